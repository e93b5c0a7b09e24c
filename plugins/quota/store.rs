//! A count that several gateways share, whoever keeps it: a Redis ([`Central`](crate::Central)), or the
//! gateway that owns the key.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use smallvec::SmallVec;

use crate::charge::{Charge, Law};
use crate::lease::{Ask, Grant};
use crate::{Nanos, figures::Calls};

/// An answer that takes its time.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps counts that several gateways share.
///
/// What holds for every method: it ends by a deadline of its own; it never panics over what comes from
/// the network; after failures it says [`Away::Known`] at once. `now` is the caller's clock, for breakers
/// and deadlines only: limits go by the clock of whoever counts.
pub trait QuotaStore: Send + Sync + fmt::Debug {
    /// Takes permits ahead, and gives some back: as many limits as are due, in one go. One answer for each
    /// ask, in their order.
    ///
    /// An ask that got no answer is sent again as it is, with the same number: it is counted once. An ask
    /// with a lower number than one that was counted gets nothing and changes nothing.
    fn acquire<'a>(&'a self, asks: &'a [Ask], now: Nanos) -> Waiting<'a, Vec<Result<Grant, Away>>>;

    /// Charges a request on all its limits, or on none. When there is no answer it is not known whether
    /// the request counts.
    fn check<'a>(&'a self, charges: &'a [Charge], now: Nanos)
    -> Waiting<'a, Result<Verdict, Away>>;

    /// Charges afterwards, or gives back: what a request really cost, less what was charged. Nothing is
    /// refused; debts are bounded, and what is given back makes no room in a window it was not charged to.
    fn settle<'a>(&'a self, settled: &'a [Settled], now: Nanos) -> Waiting<'a, Result<(), Away>>;

    /// What is counted for a key, without counting.
    fn inspect<'a>(
        &'a self,
        key: &'a str,
        law: Law,
        now: Nanos,
    ) -> Waiting<'a, Result<Standing, Away>>;

    /// Forgets what was counted for a key, and who took permits of it. Says whether there was anything.
    /// Permits that gateways hold are theirs until they lapse.
    fn reset<'a>(&'a self, key: &'a str, now: Nanos) -> Waiting<'a, Result<bool, Away>>;

    /// Who counts.
    fn keeper(&self) -> Keeper;

    /// Whether it counts as away: it would not be asked.
    fn is_away(&self) -> bool;

    /// How calls ended, since the store was made.
    fn calls(&self) -> Calls;
}

/// The gateways of a cluster as the place where limits count. A process-wide object, where they count for
/// each other.
#[derive(Clone, Debug)]
pub struct OwnerStore(pub std::sync::Arc<dyn QuotaStore>);

/// Who keeps a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keeper {
    /// A Redis, a cluster of them, or one that Sentinels know.
    Redis,
    /// The gateway that owns the key.
    Owner,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Away {
    /// It failed just before, and was not asked.
    #[error("the shared count failed before and is not asked for a moment")]
    Known,
    /// It did not answer in time.
    #[error("the shared count did not answer within {} ms", .0.as_millis())]
    Late(Duration),
    /// It could not be reached, or would not.
    #[error("the shared count cannot be asked")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// What all limits say to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether all let it pass. If not, none was charged.
    pub allowed: bool,
    /// In the order of the charges.
    pub outcomes: SmallVec<[Outcome; 2]>,
}

/// What one limit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it lets the request pass.
    pub allowed: bool,
    /// What is left after this request, or of what it was refused for.
    pub remaining: u64,
    /// Until the limit is as good as new, or its window ends.
    pub reset: Duration,
    /// After a refusal: when the same request would pass if nobody else came; `None` if never.
    pub retry: Option<Duration>,
    /// How long a leaky bucket holds the request back.
    pub delay: Duration,
    /// What it was charged to, for [`QuotaStore::settle`].
    pub mark: u64,
}

/// What a request really cost.
#[derive(Clone, Debug)]
pub struct Settled {
    /// As it was charged.
    pub charge: Charge,
    /// What is charged on top of it, or given back.
    pub more: i64,
    /// As [`Outcome::mark`] said.
    pub mark: u64,
}

/// Where a limit stands for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What is left; permits that gateways took ahead are not.
    pub remaining: u64,
    /// Until the limit is as good as new, or its window ends.
    pub reset: Duration,
    /// When one request would pass if nobody else came; zero if it would now.
    pub retry: Duration,
    /// Gateways that took permits ahead.
    pub nodes: u64,
    /// Permits that they may not have spent yet.
    pub held: u64,
}
