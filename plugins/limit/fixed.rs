//! Fixed windows: so many, then none until the window ends.
//!
//! A window starts with the first request of a key, or on multiples of its length since the epoch
//! when it is `aligned`. Across the edge of two windows twice the limit can pass in little time.

use crate::packed::Taken;
use crate::slot::{MILLI, field};
use crate::{Decision, NEVER, Nanos, needed};

const COUNT_BITS: u32 = 40;
/// More than this is never counted in one window: at ten million a second it takes thirty hours.
const MOST: u64 = (1 << COUNT_BITS) - 1;
const LAST_MILLI: u64 = (1 << 40) - 1;

/// A window that ends later than one window from now was started under a longer one. Requests are
/// not worked on in the order of their times, which explains this much.
const SLACK_MILLIS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    limit: u64,
    /// Milliseconds.
    window: u64,
    aligned: bool,
}

/// The running window: when it ends, in milliseconds, and what it has seen.
#[derive(Clone, Copy)]
struct Window {
    end: u64,
    count: u64,
}

impl Window {
    fn pack(self) -> u128 {
        u128::from(self.end.min(LAST_MILLI)) << COUNT_BITS | u128::from(self.count.min(MOST))
    }
    fn unpack(state: u128) -> Window {
        Window {
            end: field(state, COUNT_BITS, 40),
            count: field(state, 0, COUNT_BITS),
        }
    }
    fn left(self, now: Nanos) -> Nanos {
        (self.end * MILLI).saturating_sub(now)
    }
}

impl Fixed {
    pub(crate) fn new(limit: u64, window: Nanos, aligned: bool) -> Fixed {
        Fixed {
            limit,
            window: window.div_ceil(MILLI).clamp(1, LAST_MILLI),
            aligned,
        }
    }

    /// The window in which a request at `now` falls, and whether it had to be cut.
    fn window(&self, state: u128, now: Nanos) -> (Window, bool) {
        let end = if self.aligned {
            (now / MILLI / self.window + 1) * self.window
        } else {
            now.div_ceil(MILLI) + self.window
        };
        let held = Window::unpack(state);
        if held.end * MILLI <= now {
            return (Window { end, count: 0 }, false);
        }
        // Under a shorter limit than it began with, the running window ends in time for that.
        if held.end > end + SLACK_MILLIS {
            return (Window { end, ..held }, true);
        }
        (held, false)
    }

    pub(crate) fn take(&self, state: u128, cost: u64, now: Nanos) -> Taken {
        let (held, cut) = self.window(state, now);
        let count = held.count.saturating_add(cost);
        let left = held.left(now);
        let mut decision = Decision {
            allowed: held.count.saturating_add(needed(cost)) <= self.limit.min(MOST),
            limit: self.limit,
            remaining: self.limit.saturating_sub(held.count),
            reset: left,
            retry: 0,
            delay: 0,
        };
        if !decision.allowed {
            decision.retry = if cost > self.limit { NEVER } else { left };
            return Taken::refused(decision, cut.then(|| held.pack()));
        }
        decision.remaining = self.limit - count;
        let next = Window { count, ..held };
        Taken {
            decision,
            next: (cost > 0).then(|| next.pack()),
            mark: next.end,
        }
    }

    /// Takes back a charge, if the window it was made in is the running one.
    pub(crate) fn give(&self, state: u128, cost: u64, mark: u64, now: Nanos) -> Option<u128> {
        let held = Window::unpack(state);
        let count = held.count.saturating_sub(cost);
        (held.end == mark && held.end * MILLI > now && count < held.count)
            .then(|| Window { count, ..held }.pack())
    }

    /// Charges what has been used already, whether it fits or not.
    pub(crate) fn charge(&self, state: u128, cost: u64, now: Nanos) -> Option<u128> {
        let (held, _) = self.window(state, now);
        let count = held.count.saturating_add(cost);
        (cost > 0).then(|| Window { count, ..held }.pack())
    }
}
