//! What is charged to a limit that is counted centrally.

use std::time::Duration;

use crate::auto::Span;

/// The largest number that scripts count with: beyond it Lua's numbers have gaps, and one more than that
/// would be the same.
const MOST: u64 = (1 << 53) - 1;
/// Requests that a log remembers for a key: the server spends a step on each.
const MOST_LOGGED: u64 = 1_000;
/// The longest window: its end in microseconds is still an exact number.
const LONGEST: Duration = Duration::from_secs(86_400 * 366 * 10);

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// So many in a window that begins with its first request.
    Fixed {
        /// How many.
        limit: u64,
        /// How long.
        window: Duration,
    },
    /// This window, and the one before by the share of it that is still in sight.
    Sliding {
        /// How many.
        limit: u64,
        /// How long.
        window: Duration,
    },
    /// Remembers each request, up to 1,000: exact, and dear in memory.
    Log {
        /// How many.
        limit: u64,
        /// How long.
        window: Duration,
    },
    /// Evenly, with some at once: a token bucket, a leaky one, GCRA.
    Bucket {
        /// Microseconds from one request to the next; may be a fraction.
        interval_us: f64,
        /// How many at once.
        holds: f64,
    },
}

/// A limit that cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLaw {
    /// Zero or too large.
    #[error("the limit must be from 1 to 2^53 - 1, of a log to {MOST_LOGGED}")]
    Limit,
    /// Zero or too long.
    #[error("the window must be from 1 ms to 10 years")]
    Window,
    /// No number, zero, or above one in a microsecond.
    #[error("the rate must be above 0 and at most 1,000,000 a second")]
    Rate,
    /// No number, or negative.
    #[error("the burst must be a number that is not negative")]
    Burst,
}

impl Law {
    /// The law, if the server can count it.
    ///
    /// # Errors
    /// When a number is out of bounds.
    pub fn checked(self) -> Result<Law, BadLaw> {
        match self {
            Law::Fixed { limit, window }
            | Law::Sliding { limit, window }
            | Law::Log { limit, window } => {
                let most = match self {
                    Law::Log { .. } => MOST_LOGGED,
                    _ => MOST,
                };
                if !(1..=most).contains(&limit) {
                    return Err(BadLaw::Limit);
                }
                if !(Duration::from_millis(1)..=LONGEST).contains(&window) {
                    return Err(BadLaw::Window);
                }
            }
            Law::Bucket { interval_us, holds } => {
                let whole = LONGEST.as_micros() as f64;
                if !(1.0..=whole).contains(&interval_us) {
                    return Err(BadLaw::Rate);
                }
                if !(holds >= 1.0 && holds * interval_us <= whole) {
                    return Err(BadLaw::Burst);
                }
            }
        }
        Ok(self)
    }

    /// As nginx' `limit_req`: `rate` a second, and `burst` more that wait for their turn.
    ///
    /// # Errors
    /// When a number is out of bounds.
    pub fn leaky(rate: f64, burst: f64) -> Result<Law, BadLaw> {
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(BadLaw::Rate);
        }
        if !(burst >= 0.0 && burst.is_finite()) {
            return Err(BadLaw::Burst);
        }
        let law = Law::Bucket {
            interval_us: 1e6 / rate,
            holds: burst + 1.0,
        };
        law.checked()
    }

    /// How long a bucket holds a request back that it let pass, so that those behind it come evenly.
    pub(crate) fn delay(&self, allowed: bool, reset: Duration, cost: u64) -> Duration {
        match self {
            // It is due when those before it are: not later because it costs more itself.
            Law::Bucket { interval_us, .. } if allowed => {
                reset.saturating_sub(Duration::from_secs_f64(interval_us * cost as f64 / 1e6))
            }
            _ => Duration::ZERO,
        }
    }

    /// How scripts call it, its limit and its window.
    pub(crate) fn words(&self) -> (&'static str, String, String) {
        let us = |window: &Duration| window.as_micros().to_string();
        match self {
            Law::Fixed { limit, window } => ("fixed", limit.to_string(), us(window)),
            Law::Sliding { limit, window } => ("sliding", limit.to_string(), us(window)),
            Law::Log { limit, window } => ("log", limit.to_string(), us(window)),
            Law::Bucket { interval_us, holds } => (
                "bucket",
                interval_us.to_string(),
                (interval_us * holds).to_string(),
            ),
        }
    }
}

impl std::fmt::Display for Law {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Law::Fixed { limit, window } => {
                write!(f, "{limit} in a window of {}", Span(*window))
            }
            Law::Sliding { limit, window } => {
                write!(f, "about {limit} in any {}", Span(*window))
            }
            Law::Log { limit, window } => write!(f, "{limit} in any {}", Span(*window)),
            Law::Bucket { interval_us, holds } => {
                let rate = 1e6 / interval_us;
                write!(f, "{holds} at once and {rate} more each second")
            }
        }
    }
}

/// One limit of one request.
#[derive(Clone, Debug)]
pub struct Charge {
    /// Where it is counted: see [`key_text`](crate::key_text).
    pub key: String,
    /// The limit.
    pub law: Law,
    /// For how much; with 0 nothing is charged, only looked.
    pub cost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let minute = Duration::from_secs(60);
        let fixed = |limit, window| Law::Fixed { limit, window }.checked();
        assert_eq!(fixed(0, minute), Err(BadLaw::Limit));
        assert_eq!(fixed(MOST + 1, minute), Err(BadLaw::Limit));
        let log = |limit| Law::Log {
            limit,
            window: minute,
        };
        assert_eq!(log(1_001).checked(), Err(BadLaw::Limit));
        assert!(log(1_000).checked().is_ok());
        assert_eq!(fixed(1, Duration::ZERO), Err(BadLaw::Window));
        assert_eq!(fixed(1, Duration::MAX), Err(BadLaw::Window));
        assert!(fixed(MOST, LONGEST).is_ok());
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9, 1e-12] {
            assert_eq!(Law::leaky(rate, 1.0), Err(BadLaw::Rate), "{rate}");
        }
        for burst in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(Law::leaky(1.0, burst), Err(BadLaw::Burst), "{burst}");
        }
        assert!(Law::leaky(0.5, 0.0).is_ok());
    }
}
