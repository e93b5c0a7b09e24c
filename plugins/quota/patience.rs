//! How long an answer is waited for.
//!
//! What is configured is the most. A server that answers in a fraction of a millisecond is not waited for
//! that long when it hangs: a deadline follows what the server needs, with room to spare. It is for callers
//! that have something better to do without an answer than to fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No server is given up earlier: a collection of garbage, a scheduler, a fork take as long.
const LEAST: Duration = Duration::from_millis(5);
/// So many times what all but one of a hundred answers need.
const ROOM: u64 = 4;
/// How fast the estimate moves: a step is a part of it, 99 down for one up.
const STEP: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Patience {
    most: Duration,
    /// All but one of a hundred answers came within this many nanoseconds; `None` where the deadline is
    /// fixed.
    usual: Option<AtomicU64>,
}

impl Patience {
    /// Always the same.
    pub(crate) fn fixed(most: Duration) -> Patience {
        Patience { most, usual: None }
    }

    /// At most so long; less, once it is known what the server needs.
    pub(crate) fn adaptive(most: Duration) -> Patience {
        let first = nanos(most) / ROOM;
        Patience {
            most,
            usual: Some(AtomicU64::new(first)),
        }
    }

    /// How long to wait this time.
    pub(crate) fn deadline(&self) -> Duration {
        let Some(usual) = &self.usual else {
            return self.most;
        };
        let usual = Duration::from_nanos(usual.load(Ordering::Relaxed).saturating_mul(ROOM));
        usual.max(LEAST).min(self.most)
    }

    /// An answer came.
    pub(crate) fn answered(&self, took: Duration) {
        let Some(usual) = &self.usual else { return };
        // Two that write at once: one of them is not counted.
        let now = usual.load(Ordering::Relaxed);
        let step = now / STEP;
        let next = match nanos(took) > now {
            true => now.saturating_add(step).saturating_add(1),
            false => now.saturating_sub(step / 99).max(1),
        };
        usual.store(next.min(nanos(self.most)), Ordering::Relaxed);
    }

    /// None came in time: it may need longer.
    pub(crate) fn late(&self) {
        let Some(usual) = &self.usual else { return };
        let now = usual.load(Ordering::Relaxed);
        let least = nanos(LEAST) / ROOM;
        let next = now.max(least).saturating_mul(2);
        usual.store(next.min(nanos(self.most)), Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_follows_what_the_server_needs_within_its_bounds() {
        let patience = Patience::adaptive(1_000 * MS);
        assert_eq!(patience.deadline(), 1_000 * MS);
        // Four milliseconds, and one of a hundred takes ten.
        for n in 0..20_000 {
            patience.answered(if n % 100 == 0 { 10 * MS } else { 4 * MS });
        }
        let deadline = patience.deadline();
        assert!(deadline >= 16 * MS && deadline <= 60 * MS, "{deadline:?}");
        for _ in 0..20_000 {
            patience.answered(MS / 10);
        }
        assert_eq!(patience.deadline(), 5 * MS);
        // It became slow: some calls later it is waited for again.
        for _ in 0..6 {
            patience.late();
        }
        assert!(patience.deadline() >= 200 * MS);
        for _ in 0..60 {
            patience.late();
        }
        assert_eq!(patience.deadline(), 1_000 * MS);
    }

    #[test]
    fn what_is_pinned_stays() {
        let patience = Patience::fixed(70 * MS);
        patience.late();
        for _ in 0..1_000 {
            patience.answered(MS);
        }
        assert_eq!(patience.deadline(), 70 * MS);
        assert_eq!(Patience::adaptive(2 * MS).deadline(), 2 * MS);
    }
}
