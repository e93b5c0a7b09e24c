//! Turns decoded resources into what requests use.

pub mod instance;
pub mod plan;
