//! Requests let pass before there is a permit: so many in a window and gateway, and no more.

use crate::Nanos;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Over {
    /// In the window that the last grant was of.
    used: u64,
    /// After that window had ended here, before a grant of another one came.
    next: u64,
    /// Not told to the store yet.
    untold: u64,
    /// When the window ends, as far as is known here.
    ends: Nanos,
    /// Any window that a request was let pass in is over by then.
    over: Nanos,
}

impl Over {
    /// Lets a request pass, if there is something left of `most`.
    pub(super) fn take(&mut self, cost: u64, most: u64, now: Nanos, window: Nanos) -> bool {
        if self.used + self.next + cost > most {
            return false;
        }
        match now < self.ends {
            true => self.used += cost,
            false => self.next += cost,
        }
        self.untold += cost;
        self.over = now.saturating_add(window);
        true
    }

    /// Whether it has to be remembered, or the same would be let pass twice in a window.
    pub(super) fn counts(&self, now: Nanos) -> bool {
        now < self.over
    }

    /// What a request cost beyond what it was charged, whether there is room for it or not.
    pub(super) fn owe(&mut self, more: u64) {
        self.untold = self.untold.saturating_add(more);
    }

    pub(super) fn untold(&self) -> u64 {
        self.untold
    }

    /// The store knows of so many; its window ends at `ends`, and may be another than before.
    pub(super) fn told(&mut self, told: u64, another: bool, ends: Nanos) {
        self.untold = self.untold.saturating_sub(told);
        self.ends = ends;
        if another {
            self.used = std::mem::take(&mut self.next);
        }
    }
}
