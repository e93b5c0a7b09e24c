//! What became of permits: granted = spent + held + returned + stranded.

use std::sync::atomic::{AtomicU64, Ordering};

/// What became of permits, since the holder was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Granted to this gateway.
    pub granted: u64,
    /// Spent by requests.
    pub spent: u64,
    /// Held at this moment.
    pub held: u64,
    /// Given back.
    pub returned: u64,
    /// Lapsed unspent.
    pub stranded: u64,
    /// Requests let pass without a permit, within what is allowed.
    pub overdraft: u64,
    /// Requests that found no permit and had to wait for an answer.
    pub waits: u64,
    /// Requests for whose key there was no place.
    pub full: u64,
    /// Asks made, those that were repeated counted once.
    pub asks: u64,
    /// Keys held at this moment.
    pub keys: u64,
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    pub granted: Sum,
    pub spent: Sum,
    pub returned: Sum,
    pub stranded: Sum,
    pub overdraft: Sum,
    pub waits: Sum,
    pub full: Sum,
    pub asks: Sum,
}

#[derive(Debug, Default)]
pub(super) struct Sum(AtomicU64);

impl Sum {
    pub(super) fn add(&self, more: u64) {
        // Around zero, so that what was spent and put back again can be taken off.
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
