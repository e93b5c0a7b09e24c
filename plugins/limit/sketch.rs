//! What is known of keys for which the table has no room: an estimate that is not too low.
//!
//! When more keys count than the table holds, a flood of them passes through here. Each thread
//! counts in an estimator of its own, so that a flood does not bounce cache lines between workers;
//! only reading looks at all of them. What is taken back is taken from where it was counted, and not at all
//! once that is forgotten; else it would make other keys look lighter. A key that turns out to be heavy gets a word of the table.
//!
//! Two generations take turns, each for as long as the longest window that was asked about.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pingora_limits::estimator::Estimator;

use crate::Nanos;
use crate::slot::Key;
use crate::tally::own;

/// Rows and columns: 512 KiB an estimator, an estimate above the truth by more than N / 6,000 in
/// one of fifty, of N units in all.
const HASHES: usize = 4;
const SLOTS: usize = 16_384;
/// Emptying a generation takes a millisecond.
const SHORTEST: Nanos = 1_000_000_000;
/// More threads than this share estimators: memory for it ends at 8 MiB.
const MOST_WORKERS: usize = 8;

/// Where something was counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    turn: usize,
    worker: usize,
}

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

    /// Counts `cost` for a key. Returns the estimate for one window and a part of the one before, and
    /// where it was counted.
    pub(crate) fn add(&self, key: Key, cost: u64, window: Nanos, now: Nanos) -> (u64, Counted) {
        let (turn, worker) = (self.turn(window, now), self.mine());
        self.workers[worker][turn % 2].incr(key, isize::try_from(cost).unwrap_or(isize::MAX / 2));
        let estimates = self.workers.iter().flatten().map(|one| one.get(key));
        let estimate = estimates.fold(0u64, |sum, n| {
            sum.saturating_add(u64::try_from(n).unwrap_or(0))
        });
        (estimate, Counted { turn, worker })
    }

    /// Takes back what was counted, unless it is forgotten.
    pub(crate) fn sub(&self, key: Key, cost: u64, Counted { turn, worker }: Counted) {
        if self.turn.load(Ordering::Acquire).wrapping_sub(turn) > 1 {
            return;
        }
        let cost = isize::try_from(cost).unwrap_or(isize::MAX / 2);
        self.workers[worker][turn % 2].decr(key, cost);
    }

    /// The number of the generation that counts now; the last two are kept.
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
            return turn;
        }
        // The older generation is emptied before anyone counts in it.
        let next = turn.wrapping_add(1);
        for worker in &self.workers {
            worker[next % 2].reset();
        }
        self.turn.store(next, Ordering::Release);
        next
    }

    fn mine(&self) -> usize {
        own(self.workers.len())
    }
}
