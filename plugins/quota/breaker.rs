//! Knows without asking that a server is away.
//!
//! Two words: failures in a row, and until when nobody asks. When that is over one request asks; the
//! others do not wait for what it finds. However many requests were under way when the server went
//! away, they are one failure to it: only those that ask after a pause make the next one longer.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::Nanos;

/// So many failures in a row, and the server counts as away.
const FAILURES: u32 = 5;
/// For how long nobody asks then: short, as most failures are a moment's.
const FIRST: Duration = Duration::from_millis(200);
/// The pause doubles with so many failed probes.
const PROBES: u32 = 5;
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
    /// Whether a request may ask at this moment, for so long at most. Who may has to say what came of it.
    pub fn admit(&self, now: Nanos, deadline: Duration) -> Admitted {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return Admitted::Yes;
        }
        if now < until {
            return Admitted::No;
        }
        // Whoever moves the end of the pause is the one who asks, until then alone.
        let next = now.saturating_add(self.pause().max(nanos(deadline)));
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
        if self.until.load(Ordering::Relaxed) != 0 {
            self.until.store(0, Ordering::Release);
        }
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// It did not answer, or not in time, whoever was `admitted` to ask. True when it counts as away from
    /// now on.
    pub fn failed(&self, admitted: Admitted, now: Nanos) -> bool {
        let probe = admitted == Admitted::Probe;
        if !probe && self.is_open() {
            // Under way since before: what it says is known.
            return false;
        }
        let order = Ordering::Relaxed;
        // Those that fail at the same moment do not count beyond what closes it.
        let count =
            |failures: u32| (probe || failures < FAILURES).then(|| failures.saturating_add(1));
        let failures = match self.failures.fetch_update(order, order, count) {
            Ok(before) => before.saturating_add(1),
            Err(full) => full,
        };
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
        let failures = self.failures.load(Ordering::Relaxed);
        let probes = failures.saturating_sub(FAILURES);
        let doubled = FIRST * 2u32.saturating_pow((probes / PROBES).min(8));
        nanos(doubled.min(LONGEST))
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const DEADLINE: Duration = Duration::from_millis(20);

    fn open(breaker: &Breaker, now: Nanos) {
        (0..FAILURES).for_each(|_| _ = breaker.failed(Admitted::Yes, now));
        assert!(breaker.is_open());
    }

    /// When it is asked again.
    fn next_probe(breaker: &Breaker, from: Nanos, deadline: Duration) -> Nanos {
        let mut times = (0..10_000).map(|n| from + n * MS);
        let probe = |now: &Nanos| breaker.admit(*now, deadline) == Admitted::Probe;
        times.find(probe).unwrap()
    }

    #[test]
    fn five_failures_in_a_row_close_it_and_one_request_finds_out() {
        let breaker = Breaker::default();
        for _ in 0..4 {
            assert!(!breaker.failed(Admitted::Yes, MS));
        }
        breaker.answered();
        for n in 1..=5 {
            assert_eq!(breaker.admit(MS, DEADLINE), Admitted::Yes);
            assert_eq!(breaker.failed(Admitted::Yes, MS), n == 5);
        }
        assert!(breaker.is_open());
        assert_eq!(breaker.admit(200 * MS, DEADLINE), Admitted::No);
        let asked = |now| {
            (0..9)
                .map(|_| breaker.admit(now, DEADLINE))
                .collect::<Vec<_>>()
        };
        let once = asked(201 * MS);
        assert_eq!(once[0], Admitted::Probe);
        assert!(once[1..].iter().all(|admitted| *admitted == Admitted::No));
        breaker.answered();
        assert_eq!(breaker.admit(202 * MS, DEADLINE), Admitted::Yes);
    }

    #[test]
    fn pauses_grow_but_end_within_half_a_second() {
        let breaker = Breaker::default();
        let mut now = MS;
        open(&breaker, now);
        let mut pauses = Vec::new();
        for _ in 0..40 {
            let probe = next_probe(&breaker, now, DEADLINE);
            pauses.push(probe - now);
            now = probe;
            breaker.failed(Admitted::Probe, now);
        }
        assert_eq!(pauses[0], 200 * MS);
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(pauses.last(), Some(&(400 * MS)));
    }

    #[test]
    fn however_many_were_under_way_the_first_pause_is_the_shortest() {
        for under_way in [5, 25, 512, 10_000] {
            let breaker = Breaker::default();
            for n in 0..under_way {
                // They were asked at about the same time, and their deadlines end one after the other.
                breaker.failed(Admitted::Yes, MS + n);
            }
            let probe = next_probe(&breaker, MS, DEADLINE);
            assert!(probe <= 202 * MS, "{under_way}: {} ms", probe / MS);
            // The probe is out; whoever was still under way says nothing new.
            for n in 0..under_way {
                assert!(!breaker.failed(Admitted::Yes, probe + n % 2 * 150 * MS));
            }
            breaker.failed(Admitted::Probe, probe + MS);
            let next = next_probe(&breaker, probe, DEADLINE);
            assert_eq!(next, probe + 201 * MS, "{under_way}");
        }
    }

    #[test]
    fn many_threads_fail_at_once() {
        let breaker = Breaker::default();
        let closed = std::thread::scope(|scope| {
            let one = |_| {
                scope.spawn(|| {
                    (0..500)
                        .filter(|_| breaker.failed(Admitted::Yes, MS))
                        .count()
                })
            };
            let threads: Vec<_> = (0..8).map(one).collect();
            let ended = threads.into_iter().map(|thread| thread.join().unwrap());
            ended.sum::<usize>()
        });
        assert_eq!(closed, 1);
        assert_eq!(next_probe(&breaker, MS, DEADLINE), 201 * MS);
    }

    #[test]
    fn one_probe_is_out_however_long_it_takes() {
        let breaker = Breaker::default();
        let second = Duration::from_secs(1);
        open(&breaker, MS);
        let probe = next_probe(&breaker, MS, second);
        assert_eq!(probe, 201 * MS);
        // If nobody ever says what came of it, as its request is gone, another asks then.
        assert_eq!(next_probe(&breaker, probe, second), 1_201 * MS);
        breaker.answered();
        assert!(!breaker.is_open());
        // A late failure of those days is one failure.
        assert!(!breaker.failed(Admitted::Probe, 1_202 * MS));
        assert_eq!(breaker.admit(1_202 * MS, second), Admitted::Yes);
    }
}
