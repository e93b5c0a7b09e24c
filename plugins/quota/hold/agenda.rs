//! What has to be looked at, and when. Every place is on it at most twice: as one that is due, and with
//! the time of its next tick.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Nanos;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Agenda(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    due: Vec<u32>,
    ticks: BinaryHeap<Reverse<(Nanos, u32)>>,
}

impl Agenda {
    /// Something is to be asked. The caller knows that it is not on the list.
    pub(super) fn push(&self, place: u32) {
        self.lists().due.push(place);
    }

    pub(super) fn tick_at(&self, place: u32, at: Nanos) {
        self.lists().ticks.push(Reverse((at, place)));
    }

    /// A place whose tick has come.
    pub(super) fn ticked(&self, now: Nanos) -> Option<u32> {
        let mut lists = self.lists();
        match lists.ticks.peek() {
            Some(Reverse((at, place))) if *at <= now => {
                let place = *place;
                lists.ticks.pop();
                Some(place)
            }
            _ => None,
        }
    }

    /// Up to so many places that are due.
    pub(super) fn take(&self, most: usize) -> Vec<u32> {
        let mut lists = self.lists();
        let rest = lists.due.len().saturating_sub(most);
        lists.due.split_off(rest)
    }

    /// When there is something to do next.
    pub(super) fn next(&self) -> Option<Nanos> {
        let lists = self.lists();
        if !lists.due.is_empty() {
            return Some(0);
        }
        lists.ticks.peek().map(|Reverse((at, _))| *at)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
