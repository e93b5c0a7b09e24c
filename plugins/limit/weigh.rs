//! The arithmetic of sliding windows: counters of equal spans, the oldest counted in part.
//!
//! With spans `c[0] .. c[n]`, oldest first, the last one running and `left` of it to come, the window
//! that ends now covers all spans but the first, and `left / width` of that one. Two spans are
//! Cloudflare's approximation. All in integers, rounded against whoever asks.

use crate::{NEVER, Nanos};

/// `a * b / d`, rounded down; the largest number if it does not fit.
pub(crate) fn mul_div_floor(a: u64, b: u64, d: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / d,
        None => (u128::from(a) * u128::from(b) / u128::from(d))
            .try_into()
            .unwrap_or(u64::MAX),
    }
}

/// `a * b / d`, rounded up; the largest number if it does not fit.
pub(crate) fn mul_div_ceil(a: u64, b: u64, d: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product.div_ceil(d),
        None => (u128::from(a) * u128::from(b))
            .div_ceil(u128::from(d))
            .try_into()
            .unwrap_or(u64::MAX),
    }
}

/// A limit over counted spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weigh {
    pub(crate) limit: u64,
    /// The length of a span.
    pub(crate) width: Nanos,
    /// Counts the oldest span in full: never above the limit in any window, and less than it by up
    /// to a span's share.
    pub(crate) strict: bool,
}

impl Weigh {
    /// What is used, rounded up. A request fits when this and its cost are within the limit; as the
    /// other terms are whole, that decides the same as the fraction would.
    pub(crate) fn used(&self, spans: &[u64], left: Nanos) -> u64 {
        let [oldest, rest @ ..] = spans else { return 0 };
        let oldest = if self.strict || left >= self.width {
            *oldest
        } else {
            mul_div_ceil(*oldest, left, self.width)
        };
        sum(rest).saturating_add(oldest)
    }

    /// When `cost` would fit if nobody else came.
    pub(crate) fn retry(&self, spans: &[u64], left: Nanos, cost: u64) -> Nanos {
        if cost > self.limit {
            return NEVER;
        }
        // In each round the oldest span is one further on. `start` is when the round begins.
        let (mut start, mut left) = (0, left);
        let mut spans = spans;
        while let [oldest, rest @ ..] = spans {
            let room = self.limit.checked_sub(sum(rest).saturating_add(cost));
            if let Some(room) = room {
                if *oldest <= room {
                    return start;
                }
                if !self.strict {
                    let most = mul_div_floor(room, self.width, *oldest);
                    if most >= left {
                        return start;
                    }
                    if most > 0 {
                        return start + (left - most);
                    }
                }
            }
            start += left;
            left = self.width;
            spans = rest;
        }
        start
    }
}

fn sum(spans: &[u64]) -> u64 {
    spans.iter().fold(0, |sum, n| sum.saturating_add(*n))
}
