//! What is known of keys for which the table has no room: an estimate that is never too low.
//!
//! When more keys count than the table holds, a flood of them passes through here. Each thread
//! counts in an estimator of its own, so that a flood does not bounce cache lines between workers;
//! only reading looks at all of them. A key that turns out to be heavy gets a word of the table.
//!
//! Two generations take turns, each for as long as the longest window that was asked about.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use pingora_limits::estimator::Estimator;
use rustc_hash::FxBuildHasher;

use crate::Nanos;
use crate::slot::Key;

/// Rows and columns: 512 KiB an estimator, an estimate above the truth by more than N / 6,000 in
/// one of fifty, of N units in all.
const HASHES: usize = 4;
const SLOTS: usize = 16_384;
/// Emptying a generation takes a millisecond.
const SHORTEST: Nanos = 1_000_000_000;
/// More threads than this share estimators: memory for it ends at 8 MiB.
const MOST_WORKERS: usize = 8;

pub(crate) struct Sketch {
    /// By worker, then by generation.
    workers: Box<[[Estimator; 2]]>,
    turn: AtomicUsize,
    /// When the generation began.
    began: AtomicU64,
    /// How long one lasts.
    length: AtomicU64,
}

impl Sketch {
    pub(crate) fn new(workers: usize, now: Nanos) -> Sketch {
        let estimator = || Estimator::new(HASHES, SLOTS);
        Sketch {
            workers: (0..workers.clamp(1, MOST_WORKERS))
                .map(|_| [estimator(), estimator()])
                .collect(),
            turn: AtomicUsize::new(0),
            began: AtomicU64::new(now),
            length: AtomicU64::new(0),
        }
    }

    /// Counts `cost` for a key and returns the estimate for one window and a part of the one before.
    pub(crate) fn add(&self, key: Key, cost: u64, window: Nanos, now: Nanos) -> u64 {
        let turn = self.turn(window, now);
        let mine = &self.workers[self.mine()];
        mine[turn].incr(key, isize::try_from(cost).unwrap_or(isize::MAX / 2));
        let estimates = self.workers.iter().flatten().map(|one| one.get(key));
        estimates.fold(0u64, |sum, n| {
            sum.saturating_add(u64::try_from(n).unwrap_or(0))
        })
    }

    /// Takes back what was counted.
    pub(crate) fn sub(&self, key: Key, cost: u64) {
        let turn = self.turn.load(Ordering::Relaxed) % 2;
        let cost = isize::try_from(cost).unwrap_or(isize::MAX / 2);
        self.workers[self.mine()][turn].decr(key, cost);
    }

    /// The generation that counts now.
    fn turn(&self, window: Nanos, now: Nanos) -> usize {
        let window = window.max(SHORTEST);
        let length = self.length.fetch_max(window, Ordering::Relaxed).max(window);
        let turn = self.turn.load(Ordering::Acquire);
        let began = self.began.load(Ordering::Relaxed);
        let over = now >= began.saturating_add(length);
        let first = |began| {
            let order = Ordering::Relaxed;
            self.began
                .compare_exchange(began, now, order, order)
                .is_ok()
        };
        if !over || !first(began) {
            return turn % 2;
        }
        // The older generation is emptied before anyone counts in it.
        let next = turn.wrapping_add(1) % 2;
        for worker in &self.workers {
            worker[next].reset();
        }
        self.turn.store(turn.wrapping_add(1), Ordering::Release);
        next
    }

    fn mine(&self) -> usize {
        let mut hasher = FxBuildHasher.build_hasher();
        std::hash::Hash::hash(&thread::current().id(), &mut hasher);
        (hasher.finish() >> 32) as usize % self.workers.len()
    }
}
