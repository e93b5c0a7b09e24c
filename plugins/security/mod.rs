//! Plugins that keep out.

pub mod cors;
pub mod ip_restriction;
pub mod ua_restriction;
pub mod uri_blocker;
