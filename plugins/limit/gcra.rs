//! The generic cell rate algorithm: a token bucket, and a leaky bucket, in one time.
//!
//! The state is when the next request would be due if all came evenly (TAT). A request may come
//! earlier by as much as the burst takes. Nothing has to be refilled: time passing does it.

use crate::packed::Taken;
use crate::weigh::mul_div_ceil;
use crate::{Decision, HORIZON, NEVER, Nanos, needed};

/// Above this many a second, rounding each emission up to whole nanoseconds would cost more than a
/// thousandth of the burst; then the burst is rounded as a whole.
const EXACT_RATE_INTERVAL: Nanos = 1_000;

/// Post-paid costs may bring a bucket this many bursts into debt, and no further. What is above that
/// was counted under another limit, and is cut: an edit that allows more does so soon.
const MAX_DEBT: u64 = 10;

/// `count` in each `window`, and `burst` at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gcra {
    /// What one unit takes, rounded up.
    interval: Nanos,
    count: u64,
    window: Nanos,
    /// How far ahead of its time a request may come: the burst.
    tolerance: Nanos,
    burst: u64,
    /// Whether who comes early has to wait.
    waits: bool,
}

impl Gcra {
    pub(crate) fn new(count: u64, window: Nanos, burst: u64) -> Gcra {
        let interval = mul_div_ceil(1, window, count).clamp(1, HORIZON);
        let tolerance = if interval >= EXACT_RATE_INTERVAL {
            burst.saturating_mul(interval)
        } else {
            mul_div_ceil(burst, window, count)
        };
        Gcra {
            interval,
            count,
            window,
            tolerance: tolerance.clamp(1, HORIZON),
            burst,
            waits: false,
        }
    }

    /// As nginx' `limit_req`: `rate` a second, `burst` more that wait for their turn. Both may be
    /// fractions.
    pub(crate) fn leaky(rate: f64, burst: f64) -> Gcra {
        let interval = ((1e9 / rate).ceil() as Nanos).clamp(1, HORIZON);
        // Float to integer cuts off at the ends of the range.
        let tolerance = ((burst + 1.0) * interval as f64) as Nanos;
        Gcra {
            interval,
            count: 1,
            window: interval,
            tolerance: tolerance.clamp(1, HORIZON),
            burst: burst as u64,
            waits: true,
        }
    }

    /// When the next request is due, and whether that had to be cut.
    fn due(&self, state: u128, now: Nanos) -> (Nanos, bool) {
        let most = now + self.tolerance.saturating_mul(MAX_DEBT).min(HORIZON);
        let tat = state as Nanos;
        (tat.clamp(now, most), tat > most)
    }

    fn increment(&self, cost: u64) -> Nanos {
        match cost {
            1 => self.interval,
            cost => mul_div_ceil(cost, self.window, self.count).min(HORIZON + 1),
        }
    }

    pub(crate) fn take(&self, state: u128, cost: u64, now: Nanos) -> Taken {
        let (tat, cut) = self.due(state, now);
        let ahead = tat - now;
        let increment = self.increment(needed(cost));
        let due = ahead.saturating_add(increment);
        let mut decision = Decision {
            allowed: due <= self.tolerance,
            limit: self.burst,
            remaining: 0,
            reset: ahead,
            retry: 0,
            delay: 0,
        };
        let charged = decision.allowed && cost > 0;
        let used = if charged { due } else { ahead };
        decision.remaining = self.tolerance.saturating_sub(used) / self.interval;
        if !decision.allowed {
            decision.retry = if increment > self.tolerance {
                NEVER
            } else {
                due - self.tolerance
            };
            return Taken::refused(decision, cut.then_some(u128::from(tat)));
        }
        decision.reset = used;
        decision.delay = if self.waits { ahead } else { 0 };
        Taken {
            decision,
            next: charged.then_some(u128::from(now + used)),
            mark: now + used,
        }
    }

    /// Takes back what has not drained yet of a charge; `mark` is when all of it will have. Never
    /// below an empty bucket: a refund cannot make a burst larger.
    pub(crate) fn give(&self, state: u128, cost: u64, mark: u64, now: Nanos) -> Option<u128> {
        let tat = state as Nanos;
        let undrained = mark.saturating_sub(now);
        let back = tat
            .saturating_sub(self.increment(cost).min(undrained))
            .max(now);
        (back < tat).then_some(u128::from(back))
    }

    /// Charges what has been used already, whether it fits or not.
    pub(crate) fn charge(&self, state: u128, cost: u64, now: Nanos) -> Option<u128> {
        let (tat, _) = self.due(state, now);
        let (next, _) = self.due(u128::from(tat.saturating_add(self.increment(cost))), now);
        (next > now).then_some(u128::from(next))
    }
}
