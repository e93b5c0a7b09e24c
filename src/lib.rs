//! lockgate: an API gateway on Pingora that reads Apache APISIX configuration.
//!
//! The rooms, in the order a request or a change meets them: [`settings`] (the
//! process), [`config`] (resources to snapshots), [`router`], [`proxy`],
//! [`upstream`], [`tls`], [`observe`]. [`gateway`] starts and stops it all.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))] // `check(json!(…))` reads best by value.

pub mod admin;
mod background;
pub mod changes;
mod cluster;
pub mod config;
mod control;
pub mod document;
mod endpoint;
pub mod explain;
pub mod gateway;
pub mod inspect;
mod limits;
pub mod link;
pub mod load;
pub mod observe;
mod open_files;
mod own_listeners;
mod pace;
pub mod proxy;
pub mod remote;
pub mod router;
pub mod settings;
pub mod signals;
pub mod store;
mod takeover;
pub mod tls;
pub mod upstream;
