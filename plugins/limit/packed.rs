//! The algorithms whose state fits a word of the table.

use crate::fixed::Fixed;
use crate::gcra::Gcra;
use crate::sliding::Sliding;
use crate::slot::{Code, Key, Tag};
use crate::{Decision, Nanos};

/// A decision, and what it changes.
pub(crate) struct Taken {
    pub(crate) decision: Decision,
    /// The state from now on. Nothing is written when the request costs nothing; when it is refused,
    /// only a state from before an edit of the rule is, as it reads under the new one.
    pub(crate) next: Option<u128>,
    /// Names what was charged, for a refund: the window, or when the charge will have drained.
    pub(crate) mark: u64,
}

impl Taken {
    pub(crate) fn refused(decision: Decision, next: Option<u128>) -> Taken {
        Taken {
            decision,
            next,
            mark: 0,
        }
    }
}

/// An algorithm with its parameters. Pure: a state comes in, the next one goes out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packed {
    Gcra(Gcra),
    Fixed(Fixed),
    Sliding(Sliding),
}

impl Packed {
    /// Whose state it is in the table.
    pub(crate) fn tag(&self, key: Key) -> Tag {
        Tag(key, self.code())
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Packed::Gcra(_) => Code::Gcra,
            Packed::Fixed(_) => Code::Fixed,
            Packed::Sliding(sliding) => sliding.code(),
        }
    }

    /// Asks for `cost`. The state of a key that is not known is 0.
    pub(crate) fn take(&self, state: u128, cost: u64, now: Nanos) -> Taken {
        match self {
            Packed::Gcra(gcra) => gcra.take(state, cost, now),
            Packed::Fixed(fixed) => fixed.take(state, cost, now),
            Packed::Sliding(sliding) => sliding.take(state, cost, now),
        }
    }

    /// Takes back a charge; `None` if there is nothing to take back.
    pub(crate) fn give(&self, state: u128, cost: u64, mark: u64, now: Nanos) -> Option<u128> {
        match self {
            Packed::Gcra(gcra) => gcra.give(state, cost, mark, now),
            Packed::Fixed(fixed) => fixed.give(state, cost, mark, now),
            Packed::Sliding(sliding) => sliding.give(state, cost, mark, now),
        }
    }

    /// Charges what has been used already, whether it fits or not.
    pub(crate) fn charge(&self, state: u128, cost: u64, now: Nanos) -> Option<u128> {
        match self {
            Packed::Gcra(gcra) => gcra.charge(state, cost, now),
            Packed::Fixed(fixed) => fixed.charge(state, cost, now),
            Packed::Sliding(sliding) => sliding.charge(state, cost, now),
        }
    }
}
