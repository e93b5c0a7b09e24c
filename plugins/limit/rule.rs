//! One limit: an algorithm and its numbers.

use std::time::Duration;

use crate::buckets::{Buckets, MOST_PARTS};
use crate::clock::nanos;
use crate::fixed::Fixed;
use crate::gcra::Gcra;
use crate::log::{self, Log};
use crate::packed::Packed;
use crate::sliding::Sliding;
use crate::{HORIZON, Nanos};

/// How requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// So many in a window, which starts with the first request, or on multiples of its length.
    Fixed {
        /// Windows start on multiples of their length by the wall clock.
        aligned: bool,
    },
    /// The running window and a share of the one before.
    Sliding {
        /// Counts the window before in full.
        strict: bool,
    },
    /// A window in several parts; the oldest is counted in part.
    Buckets {
        /// How many parts, at most 10.
        parts: u8,
        /// Counts the oldest part in full: never above the limit in any window.
        strict: bool,
    },
    /// Remembers every request; limits up to 64.
    Log,
    /// Evenly, with so many at once: a token bucket.
    Gcra {
        /// How many may come at once.
        burst: u64,
    },
}

/// A limit that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// Nothing would ever pass.
    #[error("the limit must be at least 1")]
    NoLimit,
    /// There is no such time.
    #[error("the window must be longer than 0")]
    NoWindow,
    /// See [`Algorithm::Buckets`].
    #[error("a window has 1 to {MOST_PARTS} parts")]
    Parts,
    /// See [`Algorithm::Log`].
    #[error("a log remembers at most {} requests", log::MOST)]
    Log,
    /// See [`Algorithm::Gcra`].
    #[error("the burst must be at least 1")]
    NoBurst,
    /// Zero, negative or not a number.
    #[error("the rate must be above 0")]
    Rate,
    /// Negative or not a number.
    #[error("the burst must not be negative")]
    Burst,
}

/// An algorithm with its numbers, ready for requests. Cheap to make: one may be made for a request
/// whose limit is in a variable.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub(crate) kind: Kind,
    limit: u64,
    window: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Packed(Packed),
    Buckets(Buckets),
    Log(Log),
}

impl Rule {
    /// `limit` units in each `window`.
    ///
    /// Windows of more than about 17 years are cut to that: they end with the process. A fixed
    /// window counts to 2^40 and not further.
    ///
    /// # Errors
    /// When a number is zero or beyond what the algorithm offers.
    pub fn new(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Rule, BadRule> {
        let window = nanos(window).min(HORIZON);
        if limit == 0 {
            return Err(BadRule::NoLimit);
        }
        if window == 0 {
            return Err(BadRule::NoWindow);
        }
        let kind = match algorithm {
            Algorithm::Fixed { aligned } => {
                Kind::Packed(Packed::Fixed(Fixed::new(limit, window, aligned)))
            }
            Algorithm::Sliding { strict } => match Sliding::new(limit, window, strict) {
                Some(sliding) => Kind::Packed(Packed::Sliding(sliding)),
                // Its counters do not fit a word.
                None => Kind::Buckets(Buckets::new(limit, window, 1, strict)),
            },
            Algorithm::Buckets { parts, .. } if !(1..=MOST_PARTS).contains(&parts) => {
                return Err(BadRule::Parts);
            }
            Algorithm::Buckets { parts, strict } => {
                Kind::Buckets(Buckets::new(limit, window, parts, strict))
            }
            Algorithm::Log if limit > log::MOST => return Err(BadRule::Log),
            Algorithm::Log => Kind::Log(Log::new(limit, window)),
            Algorithm::Gcra { burst: 0 } => return Err(BadRule::NoBurst),
            Algorithm::Gcra { burst } => {
                Kind::Packed(Packed::Gcra(Gcra::new(limit, window, burst)))
            }
        };
        Ok(Rule {
            kind,
            limit,
            window,
        })
    }

    /// As nginx' `limit_req`: `rate` a second, and `burst` more that wait for their turn. Both may
    /// be fractions. Rates above 10^9 a second are that.
    ///
    /// # Errors
    /// When a number is not finite or too small.
    pub fn leaky(rate: f64, burst: f64) -> Result<Rule, BadRule> {
        if !(rate.is_finite() && rate > 0.0) {
            return Err(BadRule::Rate);
        }
        if !(burst.is_finite() && burst >= 0.0) {
            return Err(BadRule::Burst);
        }
        Ok(Rule {
            kind: Kind::Packed(Packed::Gcra(Gcra::leaky(rate, burst))),
            limit: burst as u64,
            window: nanos(
                Duration::try_from_secs_f64((burst + 1.0) / rate).unwrap_or(Duration::MAX),
            ),
        })
    }

    /// The limit, as given.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How much passes at once for a key that has used nothing: the limit, or the burst.
    pub(crate) fn room(&self, now: Nanos) -> u64 {
        match &self.kind {
            Kind::Packed(packed) => packed.take(0, 0, now).decision.remaining,
            Kind::Buckets(_) | Kind::Log(_) => self.limit,
        }
    }

    /// How long a charge counts at most.
    pub(crate) fn window(&self) -> Nanos {
        self.window.min(HORIZON)
    }
}
