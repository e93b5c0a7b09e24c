//! Gateways that count for each other: limits of all gateways together, without a server of their own.
//!
//! Each key has one gateway that counts it, its *owner* ([`place`]): the same for all, by rendezvous hashing
//! over those that take part ([`members`]). Another gateway that gets a request of that key asks the
//! owner, over a connection that stays ([`secure`], [`frame`]): for the request alone, or for permits to
//! spend without asking. Only counts go to another gateway, never requests.
//!
//! [`Peers`] is a [`QuotaStore`](lockgate_quota::QuotaStore) like a Redis. What it promises:
//!
//! | what happens | what passes beyond a limit |
//! |---|---|
//! | nothing | nothing |
//! | a gateway joins, or leaves as it should | nothing: counts are handed over |
//! | a gateway crashes | of its keys, once: at most what an even use would have left of the limit |
//! | a gateway that is alone crashes | a whole limit: nobody knows that it was there |
//! | a gateway cannot reach an owner | each such gateway lets its share pass |
//! | a gateway has lost etcd for longer than its lease | the same; it also stops counting for others |
//! | a gateway is taken for gone and does not notice | nothing: what it counted joins what others did |
//!
//! Clocks need not agree: a key goes on by the clock that it was first counted by. Where something is in doubt
//! it is charged: what was to be given back, and was lost on its way, stays charged; two counts of one key
//! are added. Who takes part by a list in the settings begins when its peers have told whether they knew
//! a former start of it, at most two seconds after its own.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod ask;
mod core;
mod figures;
pub mod frame;
pub mod kept;
mod ledger;
mod link;
pub mod members;
mod moving;
mod partition;
mod peers;
pub mod place;
pub mod secure;
mod serve;
mod store;
#[cfg(test)]
mod tests;
pub mod wire;

pub use figures::Figures;
pub use members::{Node, Roll};
pub use peers::{Peers, Setup};
pub use secure::{Identity, Unusable};
