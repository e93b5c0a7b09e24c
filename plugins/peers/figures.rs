//! Numbers for whoever watches.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a gateway and its peers get on. All but the first five only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// What it acts by.
    pub epoch: u64,
    /// Gateways that own something, itself included.
    pub nodes: u64,
    /// Others that it is connected to.
    pub connected: u64,
    /// Partitions that it owns, and those whose counts are on their way.
    pub owned: u64,
    /// See `owned`.
    pub expected: u64,
    /// Memory of what it counts, in bytes.
    pub bytes: u64,
    /// Questions it asked others.
    pub asked: u64,
    /// Questions of others that it answered.
    pub answered: u64,
    /// Permits that it handed out to others.
    pub granted: u64,
    /// Limits for which there was no room with their owner.
    pub full: u64,
    /// Questions that another gateway had to be asked for, or nobody could.
    pub moved: u64,
    /// Counts handed over to others.
    pub handed_over: u64,
    /// Counts taken over from others.
    pub taken_over: u64,
    /// Connections that others made and could not prove who they were for.
    pub refused: u64,
    /// Frames that were none.
    pub bad_frames: u64,
}

/// Where they are counted.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) asked: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) granted: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) handed_over: AtomicU64,
    pub(crate) taken_over: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) bad_frames: AtomicU64,
}

impl Tallies {
    /// One more.
    pub(crate) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The part that is counted.
    pub(crate) fn read(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            asked: read(&self.asked),
            answered: read(&self.answered),
            granted: read(&self.granted),
            moved: read(&self.moved),
            handed_over: read(&self.handed_over),
            taken_over: read(&self.taken_over),
            refused: read(&self.refused),
            bad_frames: read(&self.bad_frames),
            ..Figures::default()
        }
    }
}
