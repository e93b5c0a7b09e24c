//! Limits that several gateways share.
//!
//! [`QuotaStore`] is whoever keeps the counts. [`Central`] is a Redis (one, found by Sentinels, or a
//! cluster), never waited for longer than its deadline. Whether it can be asked at all is known without
//! asking: after failures a [`Breaker`] answers for it, so that a dead or frozen one costs nothing.
//!
//! All limits of a request go in one call: a request is charged on all of them or on none
//! ([`QuotaStore::check`]). What a request really cost is settled afterwards ([`QuotaStore::settle`]). A
//! gateway that would ask too often takes permits ahead ([`QuotaStore::acquire`]). Requests under way hold
//! [`Places`].
//!
//! Only the clock of whoever counts decides: gateways need not agree on the time.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod answers;
mod auto;
mod breaker;
mod central;
mod charge;
mod count;
mod figures;
mod grant;
mod hold;
mod key;
mod later;
mod lease;
mod leases;
mod line;
mod patience;
mod places;
mod script;
mod server;
mod share;
mod store;
mod talk;
#[cfg(test)]
mod tests;

pub use auto::{Choice, Mode, Situation};
pub use breaker::{Admitted, Breaker};
pub use central::Central;
pub use charge::{BadLaw, Charge, Law};
pub use count::{Count, Micros};
pub use figures::{Calls, Tally};
pub use grant::{Account, Holding};
pub use hold::{
    Claim, Due, Held, Holder, Mark, Part, RoundTrip, SLACK, SLACK_BUCKET, Spend, Spot, Terms,
};
pub use key::{Name, key_text};
pub use later::Later;
pub use lease::{Ask, Grant};
pub use leases::{Leases, LeasesFigures};
pub use places::{Entered, LONGEST_LIFE, PlaceHeld, Places, Seat};
pub use server::{Access, Place, Server};
pub use share::{OnStoreError, Share, Shares};
pub use store::{
    Away, Keeper, Outcome, OwnerStore, QuotaStore, Settled, Standing, Verdict, Waiting,
};

/// Nanoseconds on a clock that never goes back; its zero does not matter.
pub type Nanos = u64;
