//! Changes one can trust: several resources at once, each change kept and reversible.
//!
//! | part | what it knows |
//! |---|---|
//! | `order` | what is asked for, from JSON: changes, or a whole configuration |
//! | [`draft`] | what that means for what a store holds: each resource, checked, with its references |
//! | `diff` | which fields differ, without secrets |
//! | [`history`] | every change that was made, and how to go back |
//! | [`pending`] | a change that goes back by itself |
//!
//! Nothing here speaks HTTP, and nothing writes except through a [`Txn`](crate::store::Txn).

mod diff;
pub mod draft;
pub mod history;
mod order;
pub mod pending;
mod references;
#[cfg(test)]
mod tests;

pub use diff::{Field, Shown};
pub use order::{Confirm, Ids, Order, Want, What, document, order};
pub use references::affected;
