//! One partition of what this gateway counts.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use lockgate_quota::{Account, Count, Law, Micros};

use crate::frame::{Charged, Reply};
use crate::kept::{Kept, even, window};
use crate::ledger::Asked;
use crate::place::KeyId;

/// Parts of one partition that are remembered, so that one that comes twice counts once. A partition has
/// few: it goes over in one frame or two.
const MOST_HAD: usize = 16;
/// For how long a reset is remembered where counts are lost and nothing is known of the limit.
const RESET: Duration = Duration::from_secs(86_400);

/// See the module.
#[derive(Default)]
pub(crate) struct Partition {
    /// Where it is.
    pub(crate) place: Place,
    /// What is counted.
    pub(crate) keys: HashMap<KeyId, Kept>,
    /// Parts that came, by who sent them and their number.
    had: VecDeque<(u64, u64)>,
}

/// Where it is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// By another gateway.
    #[default]
    Elsewhere,
    /// Its counts are on their way.
    Expected {
        /// Until then.
        until: Micros,
        /// By which epoch they were sent.
        epoch: u64,
        /// Since when those that came already are lost in part.
        lost: Option<Micros>,
    },
    /// And since when its counts are lost, if they are.
    Here(Option<Micros>),
}

impl Partition {
    /// What is answered where it is not here.
    pub(crate) fn not_here(&self) -> Option<Asked> {
        match self.place {
            Place::Here(_) => None,
            Place::Expected { .. } => Some(Asked::Expected),
            Place::Elsewhere => Some(Asked::Answered(Reply::Moved)),
        }
    }

    /// Whether this part came before. From now on it did.
    pub(crate) fn had(&mut self, node: u64, number: u64) -> bool {
        if self.had.contains(&(node, number)) {
            return true;
        }
        if self.had.len() == MOST_HAD {
            self.had.pop_front();
        }
        self.had.push_back((node, number));
        false
    }

    /// A part came, of which counts are lost since then.
    pub(crate) fn came(&mut self, new: Option<Micros>, more: bool) {
        self.place = match self.place {
            Place::Elsewhere => Place::Elsewhere,
            Place::Here(lost) => Place::Here(lost.max(new)),
            Place::Expected { lost, .. } if !more => Place::Here(lost.max(new)),
            Place::Expected { until, epoch, lost } => Place::Expected {
                until,
                epoch,
                lost: lost.max(new),
            },
        };
    }

    /// Forgets a key: it begins with nothing. Says whether it was known.
    pub(crate) fn forget(&mut self, key: KeyId, now: Micros, room: bool) -> bool {
        let old = self.keys.remove(&key);
        let was = old.is_some();
        let law = old.map_or(
            Law::Fixed {
                limit: 1,
                window: RESET,
            },
            |old| old.law,
        );
        if self.is_lost(law, now) && (was || room) {
            // As one that is not known it would begin with a part of its limit.
            let count = Count::Fixed {
                end: now.saturating_add(window(law)),
                used: 0,
            };
            let account = Account {
                count,
                ..Account::default()
            };
            self.keys.insert(
                key,
                Kept {
                    law,
                    account,
                    ahead: 0,
                },
            );
        }
        was
    }

    /// Whether what a key was charged for may be lost.
    fn is_lost(&self, law: Law, now: Micros) -> bool {
        match self.place {
            Place::Here(Some(since)) => now < since.saturating_add(window(law)),
            _ => false,
        }
    }

    /// What a key takes, in bytes.
    pub(crate) fn size_of(&self, key: KeyId) -> usize {
        self.keys.get(&key).map_or(0, Kept::size)
    }

    /// How a key begins that is not known.
    fn begin(&self, law: Law, now: Micros) -> Account {
        let lost = self.is_lost(law, now);
        Account {
            count: if lost { even(law, now) } else { Count::Nothing },
            ..Account::default()
        }
    }

    /// Looks at what is kept for a key.
    pub(crate) fn look<T>(
        &self,
        key: KeyId,
        law: Law,
        now: Micros,
        look: impl FnOnce(&Account, Micros) -> T,
    ) -> T {
        match self.keys.get(&key) {
            Some(kept) => look(&kept.account, kept.time(now)),
            None => look(&self.begin(law, now), now),
        }
    }

    /// What is kept for a key, to charge. `None` without room for another.
    pub(crate) fn kept(&mut self, charge: &Charged, now: Micros, room: bool) -> Option<&mut Kept> {
        let law = charge.law;
        if !self.keys.contains_key(&charge.key) {
            if !room {
                return None;
            }
            let account = self.begin(law, now);
            let ahead = 0;
            self.keys.insert(
                charge.key,
                Kept {
                    law,
                    account,
                    ahead,
                },
            );
        }
        let kept = self.keys.get_mut(&charge.key)?;
        kept.law = law;
        Some(kept)
    }
}
