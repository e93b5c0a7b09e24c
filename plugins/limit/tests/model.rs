//! What the algorithms are supposed to do, written down plainly: every admitted request is kept in a
//! list and everything is counted anew each time.

use crate::slot::MILLI;
use crate::{Algorithm, Nanos};

pub(super) struct Model {
    algorithm: Algorithm,
    limit: u128,
    window: u128,
    /// When and for how much.
    admitted: Vec<(u128, u128)>,
    /// The end of the running fixed window.
    end: u128,
    /// Nanoseconds' worth of tokens, and when they were counted.
    tokens: (u128, u128),
}

impl Model {
    pub(super) fn new(algorithm: Algorithm, limit: u64, window: Nanos) -> Model {
        let tokens = match algorithm {
            Algorithm::Gcra { burst } => u128::from(burst) * u128::from(window / limit),
            _ => 0,
        };
        Model {
            algorithm,
            limit: limit.into(),
            window: window.into(),
            admitted: Vec::new(),
            end: 0,
            tokens: (tokens, 0),
        }
    }

    /// What came in `from <= t < to`.
    fn between(&self, from: u128, to: u128) -> u128 {
        let inside = self.admitted.iter().filter(|(t, _)| (from..to).contains(t));
        inside.map(|(_, cost)| cost).sum()
    }

    pub(super) fn take(&mut self, cost: u64, now: Nanos) -> bool {
        let (cost, now) = (u128::from(cost), u128::from(now));
        let (limit, window) = (self.limit, self.window);
        let allowed = match self.algorithm {
            Algorithm::Fixed { aligned } => {
                if self.end <= now {
                    self.end = if aligned {
                        now / window * window + window
                    } else {
                        now.next_multiple_of(u128::from(MILLI)) + window
                    };
                    self.admitted.clear();
                }
                let allowed = self.between(0, u128::MAX) + cost <= limit;
                // A window begins with a request that counts.
                if self.admitted.is_empty() && !allowed {
                    self.end = 0;
                }
                allowed
            }
            Algorithm::Sliding { strict } => self.spans(1, strict, cost, now),
            Algorithm::Buckets { parts, strict } => self.spans(parts.into(), strict, cost, now),
            Algorithm::Log => {
                self.between((now + 1).saturating_sub(window), now + 1) + cost <= limit
            }
            Algorithm::Gcra { burst } => {
                let each = window / limit;
                let (tokens, then) = self.tokens;
                let tokens = (tokens + now - then).min(u128::from(burst) * each);
                let allowed = cost * each <= tokens;
                self.tokens = (tokens - if allowed { cost * each } else { 0 }, now);
                allowed
            }
        };
        if allowed {
            self.admitted.push((now, cost));
        }
        allowed
    }

    fn spans(&self, parts: u128, strict: bool, cost: u128, now: u128) -> bool {
        let width = self.window.div_ceil(parts);
        let begin = now / width * width;
        let left = if strict { width } else { width - now % width };
        let oldest = begin - parts * width;
        let (old, rest) = (
            self.between(oldest, oldest + width),
            self.between(oldest + width, now + 1),
        );
        old * left + (rest + cost) * width <= self.limit * width
    }
}

/// nginx' `limit_req` as `resty.limit.req` computes it, in nanoseconds' worth of requests.
pub(super) struct LimitReq {
    pub(super) interval: u64,
    pub(super) burst: u64,
    pub(super) state: Option<(u64, Nanos)>,
}

impl LimitReq {
    /// How long to wait, or `None` to refuse.
    pub(super) fn incoming(&mut self, now: Nanos) -> Option<u64> {
        let excess = match self.state {
            None => 0,
            Some((excess, last)) => (excess + self.interval).saturating_sub(now - last),
        };
        if excess > self.burst * self.interval {
            return None;
        }
        self.state = Some((excess, now));
        Some(excess)
    }
}
