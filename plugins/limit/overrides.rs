//! Keys that have another limit than the configured one for a while.
//!
//! There are none nearly always, which costs a request one look at a word that nobody writes.

use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use rustc_hash::FxHashMap;

use crate::{Counted, Key, Nanos};

/// By key: how it counts, and until when.
pub type InForce = FxHashMap<Key, (Counted, Nanos)>;

/// See the module.
#[derive(Default)]
pub struct Overrides {
    any: AtomicBool,
    held: ArcSwap<InForce>,
}

impl Overrides {
    /// From now on exactly these are in force.
    pub fn replace(&self, next: InForce) {
        let any = !next.is_empty();
        self.held.store(next.into());
        self.any.store(any, Ordering::Release);
    }

    /// How a key counts instead, if it does.
    pub fn find(&self, key: Key, now: Nanos) -> Option<Counted> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let held = self.held.load();
        let (counted, until) = held.get(&key)?;
        (now < *until).then_some(*counted)
    }

    /// Until when a key counts otherwise, if it does.
    pub fn until(&self, key: Key, now: Nanos) -> Option<Nanos> {
        let (_, until) = *self.held.load().get(&key)?;
        (now < until).then_some(until)
    }

    /// How many requests of a key may be under way, if that is not `most`.
    pub fn at_once(&self, key: Key, most: u64, now: Nanos) -> u64 {
        match self.find(key, now) {
            Some(Counted::AtOnce(other)) => other,
            _ => most,
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.held.load().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
