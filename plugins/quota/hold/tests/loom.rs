//! Every order in which a request can meet an answer, the end of a window, or another key in its place,
//! tried by loom on the real words.

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::thread;

use crate::hold::slot::{Beside, Cell, Found, Slot};

struct Word(AtomicU64);

impl Default for Word {
    fn default() -> Word {
        Word(AtomicU64::new(0))
    }
}

impl Cell for Word {
    fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
    fn set(&self, value: u64) {
        self.0.store(value, Release);
    }
    fn replace(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, AcqRel, Relaxed).is_ok()
    }
}

/// All orders with up to two forced changes of the thread, which is where such faults show.
fn explore(f: impl Fn() + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(2);
    model.check(f);
}

/// A window: permits are good before its end.
fn window(mark: u64) -> Beside {
    Beside {
        until: mark * 100,
        mark,
        ..Beside::default()
    }
}

fn slot(permits: u64) -> Arc<Slot<Word>> {
    let slot = Slot::default();
    slot.seal();
    slot.open(1, permits, window(1));
    Arc::new(slot)
}

/// The mark of what was spent.
fn spend(slot: &Slot<Word>, now: u64) -> Option<u64> {
    match slot.spend(1, 1, now) {
        Found::Spent { beside, .. } => Some(beside.mark),
        _ => None,
    }
}

#[test]
fn the_last_permit_is_spent_once() {
    explore(|| {
        let slot = slot(1);
        let other = Arc::clone(&slot);
        let there = thread::spawn(move || spend(&other, 50).is_some());
        let here = spend(&slot, 50).is_some();
        assert!(there.join().unwrap() != here);
        assert_eq!(slot.permits(), 0);
    });
}

#[test]
fn what_is_granted_while_others_spend_is_spent_or_held() {
    explore(|| {
        let slot = slot(1);
        let other = Arc::clone(&slot);
        let spender = thread::spawn(move || {
            let all = [spend(&other, 50), spend(&other, 50)];
            all.iter().flatten().count() as u64
        });
        let held = slot.seal();
        slot.open(1, held + 2, window(1));
        assert_eq!(spender.join().unwrap() + slot.permits(), 3);
    });
}

#[test]
fn a_permit_is_of_the_window_that_it_is_spent_in() {
    explore(|| {
        let slot = slot(2);
        let other = Arc::clone(&slot);
        let spender = thread::spawn(move || [spend(&other, 99), spend(&other, 100)]);
        // The window has ended: what is left lapses, and the next one's permits come.
        let stranded = slot.seal();
        // As many as there were: the number alone tells the words apart.
        slot.open(1, 2, window(2));
        let [early, late] = spender.join().unwrap();
        let of = |mark| [early, late].iter().filter(|of| **of == Some(mark)).count() as u64;
        assert_eq!(of(1) + stranded, 2);
        assert_eq!(of(2) + slot.permits(), 2);
        assert_ne!(late, Some(1), "it has lapsed");
    });
}

#[test]
fn another_key_in_the_same_place_loses_nothing() {
    explore(|| {
        let slot = slot(2);
        let other = Arc::clone(&slot);
        let spender = thread::spawn(move || [spend(&other, 50), spend(&other, 50)]);
        let held = slot.seal();
        slot.free();
        slot.open(2, 2, window(2));
        let spent = spender.join().unwrap();
        assert!(!spent.contains(&Some(2)));
        assert_eq!(spent.iter().flatten().count() as u64 + held, 2);
        assert_eq!(slot.permits(), 2);
    });
}

#[test]
fn what_is_put_back_is_held_or_was_too_late() {
    explore(|| {
        let slot = slot(1);
        let other = Arc::clone(&slot);
        let giver = thread::spawn(move || other.give(1, 1, |mark, _| mark == 1, 50));
        let held = slot.seal();
        slot.open(1, 1, window(2));
        let given = u64::from(giver.join().unwrap());
        assert_eq!(held, 1 + given);
        assert_eq!(slot.permits(), 1);
    });
}
