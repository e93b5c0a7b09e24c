//! Limits on rate and concurrency: what to count, where, and what to answer.
//!
//! Nothing here does I/O or reads a clock: time comes in as [`Nanos`], so a test moves a number. One
//! [`Engine`] serves all rules of a process. It keeps 16 bytes for each key in a table that never
//! grows, and changes them with one compare-and-swap: no lock, no allocation, no sweeper.
//!
//! | algorithm | state | bound for one key in any window W |
//! |---|---|---|
//! | [`Algorithm::Fixed`] | end and count, one word | 2 L, across an edge |
//! | [`Algorithm::Sliding`] | two counters, one word | < 2 L by a schedule made for it, else about L |
//! | [`Algorithm::Buckets`] | n + 1 counters, under a lock | L when `strict` |
//! | [`Algorithm::Log`] | a time for each request, under a lock | L |
//! | [`Algorithm::Gcra`] | one time, one word | burst + L |
//! | [`Concurrency`] | a count while there are requests | exact |
//!
//! States under a lock are kept for 65,536 keys at once; when more count, the bound holds no longer for
//! those that were given up ([`Lost::evicted`] counts them).
//!
//! A request that is refused is never charged, and one with several limits is charged on all of them
//! or on none ([`Engine::take_all`]).
//!
//! ```
//! # use std::time::Duration;
//! # use lockgate_limit::{Algorithm, Ask, Engine, Rule};
//! let engine = Engine::with_bytes(64 << 10);
//! let rule = Rule::new(Algorithm::Fixed { aligned: false }, 2, Duration::from_secs(60)).unwrap();
//! let ask = Ask { rule: &rule, key: engine.key(1).bytes(b"192.0.2.1").done(), cost: 1 };
//! let now = 1 << 50;
//! assert_eq!(engine.take(&ask, now).0.remaining, 1);
//! assert!(engine.take(&ask, now).0.allowed);
//! let refused = engine.take(&ask, now).0;
//! assert!(!refused.allowed);
//! assert!(engine.take(&ask, now + refused.retry).0.allowed);
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod buckets;
mod clock;
mod concurrency;
mod desk;
mod engine;
mod exact;
mod fixed;
mod gcra;
mod instead;
mod log;
mod overrides;
mod packed;
mod rule;
mod sketch;
mod sliding;
mod slot;
mod stats;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod top;
mod weigh;

pub use clock::{Clock, since_zero};
pub use concurrency::{Concurrency, Guard};
pub use desk::{
    About, Counted, Counts, Desk, Keeper, Later, Post, SharedCount, Standing, Unclear, Wanted,
};
pub use engine::{All, Ask, Engine, KeyHasher, Origin, Receipt};
pub use overrides::{InForce, Overrides};
pub use rule::{Algorithm, BadRule, Rule};
pub use slot::Key;
pub use stats::{Lost, Stats};
pub use tally::{Ended, Tally};
pub use top::Refused;

/// 16 bytes of the table: see [`Engine::over`].
pub type Slot = portable_atomic::AtomicU128;

/// Nanoseconds since [`Clock`]'s zero.
pub type Nanos = u64;

/// What is said instead of a time to wait when waiting does not help: the cost is above the limit.
pub const NEVER: Nanos = Nanos::MAX;

/// What there has to be room for. A request that costs nothing, as its cost is known later, has to find
/// room for one unit: it does not pass a limit that is used up.
fn needed(cost: u64) -> u64 {
    cost.max(1)
}

/// The longest time that is counted with, 73 years: sums of three of them fit a word. Longer
/// windows and bursts are cut to it.
pub const HORIZON: Nanos = 1 << 61;

/// What a limit says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may pass.
    pub allowed: bool,
    /// The limit, as configured.
    pub limit: u64,
    /// What is left after this request, or of what it was refused for.
    pub remaining: u64,
    /// Until the limit is as good as new, or its window ends. Of a refusal by a sliding window: as
    /// `retry`, unless that is [`NEVER`].
    pub reset: Nanos,
    /// After a refusal: when the same request would pass if nobody else came. [`NEVER`] if not at all.
    pub retry: Nanos,
    /// How long a leaky bucket holds the request back.
    pub delay: Nanos,
}
