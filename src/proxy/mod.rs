//! A request on its way through the gateway.
//!
//! Read [`pipeline`] first: it holds the order. [`front`] accepts connections
//! and reads heads, [`general`] is the lane that carries requests on Pingora's
//! proxy, [`chain`] runs plugins, [`fault`] has the one table of failures.

pub mod answer;
pub mod chain;
pub mod core;
pub mod fault;
pub mod fields;
pub mod front;
pub mod general;
pub mod head;
pub mod line;
pub mod local;
pub mod locate;
pub mod pipeline;
pub mod refuse;
pub mod request_head;
pub mod socket;
pub mod view;
pub mod waiting;
pub mod wire;
