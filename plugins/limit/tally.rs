//! What became of the requests that a limit was asked about.
//!
//! Counted on the request path, so a request that passes touches only what its own thread counts in,
//! and one that is refused writes down whose it was ([`Top`]) if nobody else does so at the moment.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use rustc_hash::FxBuildHasher;

use crate::top::{Refused, Top};
use crate::{Decision, Nanos};

/// Threads beyond this share counters.
const SHARDS: usize = 4;
/// A request is near the limit when no more than one of so many parts is left: 80 %, as in Envoy.
const NEAR_PART: u64 = 5;
/// Limits that remember whom they refused, at once: 8 MiB when all are under a flood.
const MOST_TOPS: usize = 1_024;

/// What became of a request, as far as one limit is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// It passed.
    Allow,
    /// It passed after a wait.
    Delay,
    /// It was refused by this limit.
    Reject,
    /// It would have been refused by this limit, which only counts.
    ShadowReject,
    /// It passed as the shared count could not be asked.
    ErrorAllow,
    /// It was counted here as the shared count could not be asked.
    Local,
}

impl Ended {
    /// All of them.
    pub const ALL: [Ended; 6] = [
        Ended::Allow,
        Ended::Delay,
        Ended::Reject,
        Ended::ShadowReject,
        Ended::ErrorAllow,
        Ended::Local,
    ];

    /// As metrics call it.
    pub fn name(self) -> &'static str {
        match self {
            Ended::Allow => "allow",
            Ended::Delay => "delay",
            Ended::Reject => "reject",
            Ended::ShadowReject => "shadow_reject",
            Ended::ErrorAllow => "error_allow",
            Ended::Local => "local",
        }
    }
}

/// What passes, by some of the threads: a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    allow: AtomicU64,
    delay: AtomicU64,
    near: AtomicU64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Tally {
    shards: [Shard; SHARDS],
    reject: AtomicU64,
    shadow: AtomicU64,
    error_allow: AtomicU64,
    local: AtomicU64,
    /// Only once there is room: a limit that found none asks again when others have gone.
    top: OnceLock<Room>,
    tops: Arc<AtomicUsize>,
}

/// Place for whom was refused; given back when it goes.
#[derive(Debug)]
struct Room {
    top: Mutex<Top>,
    tops: Arc<AtomicUsize>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.tops.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tally {
    /// One that counts itself in `tops` once it remembers keys.
    pub(crate) fn new(tops: &Arc<AtomicUsize>) -> Tally {
        Tally {
            tops: Arc::clone(tops),
            ..Tally::default()
        }
    }

    /// Counts a request that passed.
    pub fn passed(&self, decision: &Decision) {
        let shard = &self.shards[own(SHARDS)];
        let which = if decision.delay == 0 {
            &shard.allow
        } else {
            &shard.delay
        };
        which.fetch_add(1, Ordering::Relaxed);
        if decision.remaining <= decision.limit / NEAR_PART {
            shard.near.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that did not pass, or only because nothing is enforced. `key` gives the text of
    /// its key; it is asked when there is a place to write it down.
    pub fn other(&self, ended: Ended, now: Nanos, key: impl FnOnce() -> String) {
        let which = match ended {
            Ended::Allow => &self.shards[0].allow,
            Ended::Delay => &self.shards[0].delay,
            Ended::Reject => &self.reject,
            Ended::ShadowReject => &self.shadow,
            Ended::ErrorAllow => &self.error_allow,
            Ended::Local => &self.local,
        };
        which.fetch_add(1, Ordering::Relaxed);
        if !matches!(ended, Ended::Reject | Ended::ShadowReject) {
            return;
        }
        // Who finds it taken goes on: of a flood enough is seen, and nobody waits.
        if let Some(room) = self.place()
            && let Ok(mut top) = room.top.try_lock()
        {
            top.add(&key(), now);
        }
    }

    fn place(&self) -> Option<&Room> {
        if self.top.get().is_none() {
            // Of two threads that make one, the other's goes again.
            let _ = self.top.set(self.room()?);
        }
        self.top.get()
    }

    fn room(&self) -> Option<Room> {
        if self.tops.load(Ordering::Relaxed) >= MOST_TOPS {
            return None;
        }
        let tops = Arc::clone(&self.tops);
        if tops.fetch_add(1, Ordering::Relaxed) >= MOST_TOPS {
            tops.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Room {
            top: Mutex::default(),
            tops,
        })
    }

    /// How many requests ended so.
    pub fn count(&self, ended: Ended) -> u64 {
        let load = |one: &AtomicU64| one.load(Ordering::Relaxed);
        match ended {
            Ended::Allow => self.shards.iter().map(|shard| load(&shard.allow)).sum(),
            Ended::Delay => self.shards.iter().map(|shard| load(&shard.delay)).sum(),
            Ended::Reject => load(&self.reject),
            Ended::ShadowReject => load(&self.shadow),
            Ended::ErrorAllow => load(&self.error_allow),
            Ended::Local => load(&self.local),
        }
    }

    /// How many requests passed and left a fifth of the limit or less.
    pub fn near(&self) -> u64 {
        let near = |shard: &Shard| shard.near.load(Ordering::Relaxed);
        self.shards.iter().map(near).sum()
    }

    /// Who was refused most lately, at most `most` of them. `None` when there was no room to remember.
    pub fn top(&self, most: usize, now: Nanos) -> Option<Vec<Refused>> {
        match self.top.get() {
            None => {
                (self.count(Ended::Reject) + self.count(Ended::ShadowReject) == 0).then(Vec::new)
            }
            Some(room) => {
                let mut top = room.top.lock().unwrap_or_else(PoisonError::into_inner);
                Some(top.list(most, now))
            }
        }
    }
}

/// A number below `of` that is nearly always the same for a thread, and spreads threads.
pub(crate) fn own(of: usize) -> usize {
    (FxBuildHasher.hash_one(thread::current().id()) >> 32) as usize % of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(remaining: u64, delay: Nanos) -> Decision {
        Decision {
            allowed: true,
            limit: 10,
            remaining,
            reset: 0,
            retry: 0,
            delay,
        }
    }

    #[test]
    fn requests_are_counted_by_what_became_of_them() {
        let tally = Tally::default();
        for left in (0..10).rev() {
            tally.passed(&decision(left, 0));
        }
        tally.passed(&decision(9, 1));
        for ended in [Ended::Reject, Ended::Reject, Ended::ShadowReject] {
            tally.other(ended, 1, || "a".to_owned());
        }
        tally.other(Ended::ErrorAllow, 1, || unreachable!("nobody was refused"));
        let counts = Ended::ALL.map(|ended| tally.count(ended));
        assert_eq!(counts, [10, 1, 2, 1, 1, 0]);
        assert_eq!(tally.near(), 3);
        let top = tally.top(9, 1).unwrap();
        assert_eq!((top.len(), &*top[0].key, top[0].count), (1, "a", 3));
    }

    #[test]
    fn so_many_limits_remember_whom_they_refused_and_no_more() {
        let tops = Arc::default();
        let refuse = |tally: &Tally| {
            tally.other(Ended::Reject, 1, || "a".to_owned());
            tally.top(1, 1).map(|top| top.len())
        };
        let mut all: Vec<Tally> = (0..=MOST_TOPS).map(|_| Tally::new(&tops)).collect();
        assert!(all[1..].iter().all(|tally| refuse(tally) == Some(1)));
        assert_eq!(refuse(&all[0]), None);
        assert_eq!(all[0].count(Ended::Reject), 1);
        all.truncate(1);
        assert_eq!(refuse(&Tally::new(&tops)), Some(1));
        assert_eq!(refuse(&all[0]), Some(1), "there is room now");
    }
}
