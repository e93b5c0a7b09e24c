//! What the gateway tells about itself: access log, status page, metrics.

pub mod access_log;
pub mod config_metrics;
pub mod error_log;
pub(crate) mod limit_metrics;
pub mod log_limit;
pub mod recent;
pub mod status;
