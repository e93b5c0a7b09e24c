//! The place of states that do not fit a word: a few thousand short locked lists.
//!
//! Bounded like the table: a list has so many entries and no more; a state that says nothing any
//! more makes room first, then the one that stops to count first. That it was given up is counted.

use std::sync::{Mutex, PoisonError};

use crate::buckets::Spans;
use crate::log::Times;
use crate::slot::Key;
use crate::{Decision, Nanos};

/// Lists, each with a lock of its own.
const LISTS: usize = 4_096;
/// Entries in a list; all in all 65,536, at most 40 MiB when all are full logs.
const WAYS: usize = 16;

/// A state.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    None,
    Spans(Spans),
    Times(Times),
}

impl Record {
    fn expiry(&self) -> Nanos {
        match self {
            Record::None => 0,
            Record::Spans(spans) => spans.expiry(),
            Record::Times(times) => times.expiry(),
        }
    }
}

/// A decision, and what it changes.
pub(crate) struct Tried {
    pub(crate) decision: Decision,
    pub(crate) next: Option<Record>,
    pub(crate) mark: u64,
}

type List = Mutex<Vec<(Key, Record)>>;

pub(crate) struct Exact {
    lists: Box<[List]>,
}

impl Exact {
    pub(crate) fn new() -> Exact {
        Exact {
            lists: (0..LISTS).map(|_| List::default()).collect(),
        }
    }

    /// Changes the state of a key: `f` gets it and returns the next one, if it changes. `lost` is told
    /// when a state that still counts is given up for it.
    pub(crate) fn update<R>(
        &self,
        key: Key,
        now: Nanos,
        f: impl FnOnce(&Record) -> (R, Option<Record>),
        lost: impl FnOnce(),
    ) -> R {
        // The upper bits, as the table does.
        let list = &self.lists[(key.0 >> 32) as usize % LISTS];
        // A panic leaves a list as it was: states are replaced whole.
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        let found = list.iter().position(|(held, _)| *held == key);
        let record = found.map_or(&Record::None, |at| &list[at].1);
        let (result, next) = f(record);
        let Some(next) = next else { return result };
        match found {
            Some(at) => list[at].1 = next,
            None if list.len() < WAYS => list.push((key, next)),
            None => {
                list.retain(|(_, record)| record.expiry() > now);
                if list.len() >= WAYS {
                    let first = list.iter().enumerate();
                    let first = first.min_by_key(|(_, (_, record))| record.expiry());
                    if let Some(at) = first.map(|(at, _)| at) {
                        list.swap_remove(at);
                        lost();
                    }
                }
                list.push((key, next));
            }
        }
        result
    }

    /// Forgets a key; says whether it was known.
    pub(crate) fn remove(&self, key: Key) -> bool {
        let list = &self.lists[(key.0 >> 32) as usize % LISTS];
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        let found = list.iter().position(|(held, _)| *held == key);
        found.map(|at| list.swap_remove(at)).is_some()
    }

    /// How many keys are held.
    pub(crate) fn len(&self) -> usize {
        let len = |list: &List| list.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.lists.iter().map(len).sum()
    }
}
