//! Changes one can trust: several resources at once, each change kept and reversible.
//!
//! | part | what it knows |
//! |---|---|
//! | `order` | what is asked for, from JSON: changes, or a whole configuration |
//! | `layout` | how a whole configuration is written: as apisix.yaml, or as ADC's file (`adc`) |
//! | [`draft`] | what that means for what a store holds: each resource, checked, with its references |
//! | `diff` | which fields differ, without secrets |
//! | [`outcomes`] | which requests would come to something else |
//! | [`history`] | every change that was made, and how to go back |
//! | [`pending`] | a change that goes back by itself |
//! | `way_back` | how that happens though others write all the time |
//!
//! Nothing here speaks HTTP, and nothing writes except through a [`Txn`](crate::store::Txn).

mod adc;
mod diff;
pub mod draft;
pub mod history;
mod layout;
mod order;
pub mod outcomes;
pub mod pending;
mod references;
#[cfg(test)]
mod tests;
mod way_back;

pub use diff::{Field, Shown};
pub use layout::{Format, Ids, document};
pub(crate) use order::MOST_REQUESTS;
pub use order::{Confirm, Order, Want, What, order};
pub use references::affected;

use draft::{Draft, Step};
use serde_json::{Value, json};

/// A draft, and what it has to do with requests.
pub struct Drafted {
    /// What is to be done.
    pub draft: Draft,
    /// The routes it touches; `None` for all.
    pub routes: Option<Vec<String>>,
    /// The layout of the whole configuration, if it is made from one.
    pub format: Option<Format>,
}

impl Drafted {
    /// As JSON.
    pub fn shown(&self) -> Value {
        let Drafted {
            draft,
            routes,
            format,
        } = self;
        let changes: Vec<Value> = draft.steps.iter().map(Step::shown).collect();
        json!({
            "revision": draft.revision,
            "format": format.map(Format::name),
            "changes": changes,
            "unchanged": draft.unchanged,
            "routes": routes.as_ref().map_or(json!("all"), |routes| json!(routes)),
        })
    }
}
