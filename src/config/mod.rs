//! From bytes to a [`Snapshot`](snapshot::Snapshot).
//!
//! ```text
//! source ──▶ decode ──▶ graph (compile what changed) ──▶ Live::swap
//! ```
//!
//! One task, the [`writer`], owns the [`graph`]; requests only ever see snapshots.

pub mod catalogue;
pub mod compile;
pub mod consumers;
pub mod decode;
pub mod graph;
pub mod keeper;
pub mod keyring;
pub mod kind;
pub mod looked_at;
pub mod report;
pub mod resource;
pub mod snapshot;
pub mod source;
pub mod writer;
