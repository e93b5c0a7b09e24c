//! Plugins that shape traffic.

pub mod fault_injection;
pub mod limit;
pub mod limit_conn;
pub mod limit_count;
pub mod limit_req;
mod limits;
pub mod mocking;
pub mod sliding_window_limiter;
