//! Sliding windows of up to ten spans, and those whose counters do not fit a word.

use crate::exact::{Record, Tried};
use crate::weigh::Weigh;
use crate::{Decision, HORIZON, NEVER, Nanos, needed};

/// The most spans a window is cut into.
pub(crate) const MOST_PARTS: u8 = 10;
const COUNTERS: usize = MOST_PARTS as usize + 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Buckets {
    weigh: Weigh,
    parts: u8,
}

/// The counters of a key: `parts + 1` of them, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    /// Which span is the last.
    at: u64,
    width: Nanos,
    parts: u8,
    counts: [u64; COUNTERS],
}

impl Buckets {
    pub(crate) fn new(limit: u64, window: Nanos, parts: u8, strict: bool) -> Buckets {
        let parts = parts.clamp(1, MOST_PARTS);
        let width = window.min(HORIZON / 2).div_ceil(u64::from(parts)).max(1);
        let weigh = Weigh {
            limit,
            width,
            strict,
        };
        Buckets { weigh, parts }
    }

    /// The counters as of `now`, what is to come of the last span, and whether they were counted in
    /// spans of another length.
    fn advance(&self, record: &Record, now: Nanos) -> (Spans, Nanos, bool) {
        let width = self.weigh.width;
        let at = now / width;
        let left = width - now % width;
        let mut next = Spans {
            at,
            width,
            parts: self.parts,
            counts: [0; COUNTERS],
        };
        let last = usize::from(self.parts);
        match record {
            Record::Spans(held) if held.width == width && held.parts == self.parts => {
                if held.at > at {
                    // Somebody whose clock was read later has opened the next span already.
                    return (held.clone(), width, false);
                }
                let gone = usize::try_from(at - held.at).unwrap_or(usize::MAX);
                if gone <= last {
                    next.counts[..=last - gone].copy_from_slice(&held.counts[gone..=last]);
                }
            }
            // What was counted in spans of another length stays, as of now.
            Record::Spans(held) if held.expiry() > now => {
                next.counts[last] = held.counts.iter().fold(0, |sum, n| sum.saturating_add(*n));
                return (next, left, true);
            }
            _ => {}
        }
        (next, left, false)
    }

    pub(crate) fn take(&self, record: &Record, cost: u64, now: Nanos) -> Tried {
        let (mut next, left, foreign) = self.advance(record, now);
        let last = usize::from(self.parts);
        let spans = &next.counts[..=last];
        let used = self.weigh.used(spans, left);
        let limit = self.weigh.limit;
        let mut decision = Decision {
            allowed: used.saturating_add(needed(cost)) <= limit,
            limit,
            remaining: limit.saturating_sub(used),
            reset: left + self.weigh.width * u64::from(self.parts - 1),
            retry: 0,
            delay: 0,
        };
        if !decision.allowed {
            decision.retry = self.weigh.retry(spans, left, needed(cost));
            if decision.retry != NEVER {
                decision.reset = decision.retry;
            }
            return Tried {
                decision,
                next: foreign.then_some(Record::Spans(next)),
                mark: 0,
            };
        }
        decision.remaining = limit - used - cost;
        next.counts[last] += cost;
        let mark = next.at;
        Tried {
            decision,
            next: (cost > 0).then_some(Record::Spans(next)),
            mark,
        }
    }

    /// Takes back a charge from the span it was made in, if that is still counted.
    pub(crate) fn give(&self, record: &Record, cost: u64, mark: u64, now: Nanos) -> Option<Record> {
        let (mut next, _, _) = self.advance(record, now);
        let back = usize::try_from(next.at.checked_sub(mark)?).ok()?;
        let slot = next
            .counts
            .get_mut(usize::from(self.parts).checked_sub(back)?)?;
        *slot = slot.saturating_sub(cost);
        Some(Record::Spans(next))
    }

    /// Charges what has been used already, whether it fits or not.
    pub(crate) fn charge(&self, record: &Record, cost: u64, now: Nanos) -> Option<Record> {
        let (mut next, _, _) = self.advance(record, now);
        let last = &mut next.counts[usize::from(self.parts)];
        *last = last.saturating_add(cost);
        (cost > 0).then_some(Record::Spans(next))
    }
}

impl Spans {
    /// When the last span has left the window.
    pub(crate) fn expiry(&self) -> Nanos {
        let spans = self.at.saturating_add(u64::from(self.parts) + 1);
        spans.saturating_mul(self.width)
    }
}
