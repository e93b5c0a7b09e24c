//! Plugins that shape traffic.

pub mod fault_injection;
pub mod mocking;
