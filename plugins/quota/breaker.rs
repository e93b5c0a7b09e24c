//! Knows without asking that a server is away.
//!
//! Two words: failures in a row, and until when nobody asks. When that is over one request asks; the
//! others do not wait for what it finds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::Nanos;

/// So many failures in a row, and the server counts as away.
const FAILURES: u32 = 5;
/// For how long nobody asks then; doubles with each failed probe.
const FIRST: Duration = Duration::from_millis(200);
/// At most: a server that is back is asked within half a second, and while it is away only one request in that
/// time waits for it.
const LONGEST: Duration = Duration::from_millis(400);

/// See the module.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: AtomicU32,
    /// Nobody asks before; 0 while the server answers.
    until: AtomicU64,
}

/// Whether a request may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The server answered when it was asked last.
    Yes,
    /// It did not; this request finds out whether it does now.
    Probe,
    /// It is not asked.
    No,
}

impl Breaker {
    /// Whether a request may ask at this moment. Who may has to say what came of it.
    pub fn admit(&self, now: Nanos) -> Admitted {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return Admitted::Yes;
        }
        if now < until {
            return Admitted::No;
        }
        // Whoever moves the end of the pause is the one who asks.
        let next = now.saturating_add(self.pause());
        match self
            .until
            .compare_exchange(until, next, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Admitted::Probe,
            Err(_) => Admitted::No,
        }
    }

    /// It answered.
    pub fn answered(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        if self.until.load(Ordering::Relaxed) != 0 {
            self.until.store(0, Ordering::Release);
        }
    }

    /// It did not answer, or not in time. True when it counts as away from now on.
    pub fn failed(&self, now: Nanos) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < FAILURES {
            return false;
        }
        let until = now.saturating_add(self.pause()).max(1);
        self.until.fetch_max(until, Ordering::AcqRel) == 0
    }

    /// Whether it counts as away.
    pub fn is_open(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    fn pause(&self) -> Nanos {
        let beyond = self
            .failures
            .load(Ordering::Relaxed)
            .saturating_sub(FAILURES);
        // Requests that were under way when it closed count too: they are no probes.
        let doubled = FIRST * 2u32.saturating_pow((beyond / FAILURES).min(8));
        u64::try_from(doubled.min(LONGEST).as_nanos()).unwrap_or(Nanos::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn five_failures_in_a_row_close_it_and_one_request_finds_out() {
        let breaker = Breaker::default();
        for _ in 0..4 {
            assert!(!breaker.failed(MS));
        }
        breaker.answered();
        for n in 1..=5 {
            assert_eq!(breaker.admit(MS), Admitted::Yes);
            assert_eq!(breaker.failed(MS), n == 5);
        }
        assert!(breaker.is_open());
        assert_eq!(breaker.admit(200 * MS), Admitted::No);
        let asked = |now| (0..9).map(|_| breaker.admit(now)).collect::<Vec<_>>();
        let once = asked(201 * MS);
        assert_eq!(once[0], Admitted::Probe);
        assert!(once[1..].iter().all(|admitted| *admitted == Admitted::No));
        breaker.answered();
        assert_eq!(breaker.admit(202 * MS), Admitted::Yes);
    }

    #[test]
    fn pauses_grow_but_end_within_half_a_second() {
        let breaker = Breaker::default();
        let mut now = MS;
        (0..5).for_each(|_| _ = breaker.failed(now));
        let mut pauses = Vec::new();
        for _ in 0..40 {
            let from = now;
            while breaker.admit(now) != Admitted::Probe {
                now += MS;
            }
            pauses.push(now - from);
            breaker.failed(now);
        }
        assert_eq!(pauses[0], 200 * MS);
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(pauses.last(), Some(&(400 * MS)));
    }
}
