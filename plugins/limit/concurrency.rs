//! How many requests of a key are under way.
//!
//! Unlike the states of the table, such a count never ages: forgetting one would let requests
//! through, or, when they end, count below zero. So it stands in a map of its own, as long as there
//! are requests; that bounds the map. A count is given back by dropping its [`Guard`], whatever ends
//! the request.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::slot::Key;

/// Maps, each with a lock of its own. A lock is held for a lookup.
const SHARDS: usize = 64;

type Shard = Mutex<FxHashMap<Key, u64>>;

/// Counts of requests under way, by key.
pub struct Concurrency {
    shards: Box<[Shard]>,
}

impl Default for Concurrency {
    fn default() -> Concurrency {
        Concurrency {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }
}

impl Concurrency {
    fn shard(&self, key: Key) -> &Shard {
        &self.shards[(key.0 >> 32) as usize % SHARDS]
    }

    /// Lets a request in if there are fewer than `most`. Says how many there are with it.
    ///
    /// # Errors
    /// How many there are when it has to stay out.
    pub fn enter(self: &Arc<Self>, key: Key, most: u64) -> Result<(Guard, u64), u64> {
        let mut shard = self
            .shard(key)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = match shard.entry(key) {
            Entry::Occupied(held) if *held.get() >= most => return Err(*held.get()),
            Entry::Occupied(mut held) => {
                *held.get_mut() += 1;
                *held.get()
            }
            Entry::Vacant(_) if most == 0 => return Err(0),
            Entry::Vacant(free) => *free.insert(1),
        };
        drop(shard);
        let counts = Arc::clone(self);
        Ok((Guard { counts, key }, now))
    }

    /// How many requests of a key are under way.
    pub fn count(&self, key: Key) -> u64 {
        let shard = self.shard(key).lock();
        let shard = shard.unwrap_or_else(PoisonError::into_inner);
        shard.get(&key).copied().unwrap_or(0)
    }

    /// How many keys have requests under way.
    pub fn keys(&self) -> usize {
        let len = |shard: &Shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.shards.iter().map(len).sum()
    }
}

/// A request that was let in. Dropping it gives its place back.
pub struct Guard {
    counts: Arc<Concurrency>,
    key: Key,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let shard = self.counts.shard(self.key).lock();
        let mut shard = shard.unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut held) = shard.entry(self.key) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
