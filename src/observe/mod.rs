//! What the gateway tells about itself: access log, status page, metrics.

pub mod access_log;
pub mod status;
