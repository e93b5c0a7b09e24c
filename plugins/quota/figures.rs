//! Numbers for whoever watches: plain, cheap to read, only ever growing unless they say otherwise.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Away;

/// How calls to a store ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// With an answer.
    pub answered: u64,
    /// With none in time.
    pub late: u64,
    /// With an error.
    pub failed: u64,
    /// Before they were made: the store was known to be away.
    pub skipped: u64,
}

/// Counts them. For whoever implements a store.
#[derive(Debug, Default)]
pub struct Tally {
    answered: AtomicU64,
    late: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
}

impl Tally {
    /// A call has ended.
    pub fn count<T>(&self, ended: &Result<T, Away>) {
        let counter = match ended {
            Ok(_) => &self.answered,
            Err(Away::Late(_)) => &self.late,
            Err(Away::Failed(_)) => &self.failed,
            Err(Away::Known) => &self.skipped,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted.
    pub fn read(&self) -> Calls {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Calls {
            answered: read(&self.answered),
            late: read(&self.late),
            failed: read(&self.failed),
            skipped: read(&self.skipped),
        }
    }
}
