//! Permits that this gateway holds: spent by requests without asking, renewed and given back meanwhile.
//!
//! Pure: time comes in, and what has to be asked comes out ([`Holder::due`]). [`Leases`](crate::Leases)
//! carries it to the store.
//!
//! A request that finds a permit swaps one word. What is behind it is under a lock: of eight keys together,
//! taken once for as many requests as a grant is large. The number of keys is fixed. A key is held as long
//! as it is used; when there is no place for another, its requests ask for themselves.

mod agenda;
mod asks;
mod holder;
mod lease;
mod over;
mod sizes;
mod slot;
mod sums;
mod terms;
#[cfg(test)]
mod tests;
mod told;

pub use asks::Due;
pub use holder::{Claim, Holder, Mark, Spend, Spot};
pub use lease::RoundTrip;
pub use sums::Held;
pub use terms::{SLACK, SLACK_BUCKET, Terms};
pub use told::Part;
