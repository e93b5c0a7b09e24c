//! Permits taken ahead, to be spent without asking.
//!
//! A permit is handed out once, before it is spent: however late, lost or repeated an answer is, no more
//! than the limit pass in a window. What is handed out gets smaller as the limit comes near: half of
//! what is left, divided among the gateways that were seen.
//!
//! Permits are charged to the same count as requests ([`Charge`](crate::Charge)): gateways that ask for each
//! request and gateways that take permits ahead share one limit.

use std::time::Duration;

use crate::charge::Law;

/// What a gateway asks for one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Where the limit is counted.
    pub key: String,
    /// The limit.
    pub law: Law,
    /// Grows with each ask of this gateway, whatever the key. The same number again, because the answer was
    /// lost, gets the same answer; a lower one is too late.
    pub number: u64,
    /// Permits wanted; 0 only gives back and looks.
    pub want: u64,
    /// Permits given back.
    pub back: u64,
    /// Requests let pass without a permit.
    pub over: u64,
    /// What the last two were charged to, as [`Grant::mark`] said: nothing is given back elsewhere.
    pub mark: u64,
    /// Permits that the gateway goes on holding.
    pub held: u64,
    /// The most that all gateways together may hold; `None` where a window ends them all. Permits of a
    /// sliding window or a bucket may be spent late, so they are what the limit can be exceeded by.
    pub most: Option<u64>,
    /// For how long permits are good, where no window ends them.
    pub keeps: Duration,
}

/// What it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Permits.
    pub permits: u64,
    /// What is left to hand out.
    pub left: u64,
    /// Until the limit is as good as new, or its window ends.
    pub reset: Duration,
    /// When a single request would pass if nobody else came and nobody gave anything back.
    pub retry: Duration,
    /// For how long all permits that the gateway holds are good, from when the ask was *sent*: so that
    /// they end here before they do where they are counted.
    pub good: Duration,
    /// What they were charged to.
    pub mark: u64,
    /// Gateways that ask for this key; 0 if nothing was wanted and no window runs.
    pub nodes: u64,
    /// Permits that others may hold. Some may come back.
    pub others: u64,
}
