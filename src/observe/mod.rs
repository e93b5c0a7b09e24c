//! What the gateway tells about itself: access log, status page, metrics.

pub mod access_log;
pub mod error_log;
pub mod log_limit;
pub mod status;
