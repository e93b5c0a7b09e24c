//! Plugins that tell what happened.

pub mod prometheus;
