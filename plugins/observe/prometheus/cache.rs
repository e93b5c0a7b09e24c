//! What one plugin instance remembers: the series of each combination it has seen, found by the
//! addresses of shared texts instead of the texts themselves.
//!
//! Route, patterns and consumer come from the snapshot as shared pointers. An entry holds them, so
//! that an address cannot be used again while it stands for something.

use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_plugin::{ConsumerCredential, RouteInfo, Work};
use rustc_hash::{FxHashMap, FxHasher};

use super::labels::Facts;
use super::metrics::Handles;

/// Parts of the cache with a lock each, so that threads seldom wait for another.
const SHARDS: usize = 8;
/// Entries of a part; when it is full it starts again. 8192 combinations in all: a global rule over
/// a thousand routes with their usual nodes and statuses. An entry takes about 300 bytes.
const SHARD_ENTRIES: usize = 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Cache {
    shards: [RwLock<FxHashMap<u64, Entry>>; SHARDS],
}

struct Entry {
    facts: Facts,
    generation: u64,
    route: Option<Arc<RouteInfo>>,
    uri: Option<Arc<str>>,
    host: Option<Arc<str>>,
    consumer: Option<Arc<ConsumerCredential>>,
    handles: Handles,
}

impl Entry {
    fn is_of(&self, work: &Work, facts: &Facts, generation: u64) -> bool {
        self.generation == generation
            && self.facts == *facts
            && same(self.route.as_ref(), work.route.as_ref())
            && same(self.uri.as_ref(), work.matched_uri.as_ref())
            && same(self.host.as_ref(), work.matched_host.as_ref())
            && same(self.consumer.as_ref(), work.consumer.as_ref())
    }
}

impl Cache {
    /// Counts into the handles of this combination; those that are not known come from `make`.
    pub(super) fn count(
        &self,
        (work, facts, generation): (&Work, Facts, u64),
        make: impl FnOnce() -> Handles,
        count: impl Fn(&Handles),
    ) {
        let hash = hash(work, &facts);
        // The upper bits: the map uses the lower ones.
        let shard = &self.shards[(hash >> 40) as usize % SHARDS];
        let known = shard.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(&hash) {
            Some(entry) if entry.is_of(work, &facts, generation) => return count(&entry.handles),
            _ => drop(known),
        }
        let handles = make();
        count(&handles);
        let entry = Entry {
            facts,
            generation,
            route: work.route.clone(),
            uri: work.matched_uri.clone(),
            host: work.matched_host.clone(),
            consumer: work.consumer.clone(),
            handles,
        };
        let mut known = shard.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SHARD_ENTRIES && !known.contains_key(&hash) {
            known.clear();
        }
        known.insert(hash, entry);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.read().unwrap().len())
            .sum()
    }
}

fn hash(work: &Work, facts: &Facts) -> u64 {
    let mut hasher = FxHasher::default();
    facts.hash(&mut hasher);
    address(work.route.as_ref()).hash(&mut hasher);
    address(work.matched_uri.as_ref()).hash(&mut hasher);
    address(work.matched_host.as_ref()).hash(&mut hasher);
    address(work.consumer.as_ref()).hash(&mut hasher);
    hasher.finish()
}

fn address<T: ?Sized>(shared: Option<&Arc<T>>) -> usize {
    shared.map_or(0, |shared| Arc::as_ptr(shared).cast::<()>().addr())
}

fn same<T: ?Sized>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
        (None, None) => true,
        _ => false,
    }
}
