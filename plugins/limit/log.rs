//! The sliding window that remembers every request: exact, and as large as its limit.

use std::collections::VecDeque;

use crate::exact::{Record, Tried};
use crate::{Decision, HORIZON, NEVER, Nanos, needed};

/// The largest limit it is offered for: 512 bytes a key.
pub(crate) const MOST: u64 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    limit: u64,
    window: Nanos,
}

/// The times of the requests that count, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    times: VecDeque<Nanos>,
    window: Nanos,
}

impl Log {
    pub(crate) fn new(limit: u64, window: Nanos) -> Log {
        Log {
            limit: limit.min(MOST),
            window: window.clamp(1, HORIZON),
        }
    }

    /// The times that count at `now`.
    fn live<'a>(&self, record: &'a Record, now: Nanos) -> impl Iterator<Item = Nanos> + Clone + 'a {
        let held = match record {
            Record::Times(held) => Some(&held.times),
            _ => None,
        };
        let window = self.window;
        let times = held.into_iter().flatten().copied();
        times.skip_while(move |t| t.saturating_add(window) <= now)
    }

    fn record(&self, times: impl Iterator<Item = Nanos>) -> Record {
        Record::Times(Times {
            times: times.collect(),
            window: self.window,
        })
    }

    pub(crate) fn take(&self, record: &Record, cost: u64, now: Nanos) -> Tried {
        let live = self.live(record, now);
        let used = live.clone().count() as u64;
        let ends = |t: Nanos| (t + self.window).saturating_sub(now);
        let mut decision = Decision {
            allowed: used.saturating_add(needed(cost)) <= self.limit,
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset: live.clone().last().map_or(0, ends),
            retry: 0,
            delay: 0,
        };
        if !decision.allowed {
            // So many have to be forgotten first.
            let many = used.saturating_add(needed(cost)) - self.limit;
            let last = usize::try_from(many - 1)
                .ok()
                .and_then(|n| live.clone().nth(n));
            decision.retry = NEVER;
            if cost <= self.limit {
                decision.retry = last.map_or(0, ends);
                decision.reset = decision.retry;
            }
            return Tried {
                decision,
                next: None,
                mark: 0,
            };
        }
        // Times never fall: requests are not worked on in the order of their times.
        let time = live.clone().last().map_or(now, |last| last.max(now));
        decision.remaining -= cost;
        if cost > 0 {
            decision.reset = ends(time);
        }
        let added = std::iter::repeat_n(time, usize::try_from(cost).unwrap_or(0));
        Tried {
            decision,
            next: (cost > 0).then(|| self.record(live.chain(added))),
            mark: time,
        }
    }

    /// Forgets a request.
    pub(crate) fn give(&self, record: &Record, cost: u64, mark: u64, now: Nanos) -> Option<Record> {
        let mut back = cost;
        let kept = self.live(record, now).filter(|t| {
            let forget = *t == mark && back > 0;
            back -= u64::from(forget);
            !forget
        });
        Some(self.record(kept))
    }

    /// Charges what has been used already; of more than the limit nothing is remembered.
    pub(crate) fn charge(&self, record: &Record, cost: u64, now: Nanos) -> Option<Record> {
        let live = self.live(record, now);
        let room = MOST.saturating_sub(live.clone().count() as u64);
        let time = live.clone().last().map_or(now, |last| last.max(now));
        let added = std::iter::repeat_n(time, usize::try_from(cost.min(room)).unwrap_or(0));
        (cost > 0).then(|| self.record(live.chain(added)))
    }
}

impl Times {
    /// When the last request is forgotten.
    pub(crate) fn expiry(&self) -> Nanos {
        let last = self.times.back();
        last.map_or(0, |last| last.saturating_add(self.window))
    }
}
