//! Numbers about an engine, for whoever runs it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers about an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys in the table whose state counts.
    pub live: usize,
    /// Keys the table has room for.
    pub room: usize,
    /// Keys with states too large for the table.
    pub exact: usize,
    /// Requests let pass without a word of their own, as the table was full.
    pub unseen: u64,
    /// As [`Lost::evicted`].
    pub evicted: u64,
}

/// What was not counted, or no longer, for want of room. May outlive the engine that counts in it.
#[derive(Debug, Default)]
pub struct Lost {
    pub(crate) unseen: AtomicU64,
    pub(crate) evicted: AtomicU64,
}

impl Lost {
    /// Requests let pass without a word of their own, as the table was full.
    pub fn unseen(&self) -> u64 {
        self.unseen.load(Ordering::Relaxed)
    }

    /// States that still counted and were given up: in the table for a heavier key, among those that are
    /// too large for it for any newcomer.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}
