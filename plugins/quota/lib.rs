//! Limits that several gateways share: one count, in Redis.
//!
//! [`Central`] asks a server (one, found by Sentinels, or a cluster), never for longer than its
//! deadline. Whether it can be asked at all is known without asking: after failures a
//! [`Breaker`] answers for it, so that a dead or frozen Redis costs nothing.
//!
//! All limits of a request go in one script and one round trip: a request is charged on all of them or
//! on none ([`Central::check`]). What a request really cost is settled afterwards ([`Central::settle`]).
//! A gateway that would ask too often takes permits ahead ([`Central::lease`]).
//!
//! Only the server's clock counts: gateways need not agree on the time.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod breaker;
mod central;
mod charge;
mod key;
mod lease;
mod line;
mod server;
#[cfg(test)]
mod tests;

pub use breaker::{Admitted, Breaker};
pub use central::{Away, Central, Outcome, Settled, Verdict};
pub use charge::{BadLaw, Charge, Law};
pub use key::key_text;
pub use lease::{Ask, Grant};
pub use server::{Access, Place, Server};

/// Nanoseconds on a clock that never goes back; its zero does not matter.
pub type Nanos = u64;
