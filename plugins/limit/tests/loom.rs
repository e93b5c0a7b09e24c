//! Every order in which two threads can meet in a set, tried by loom.
//!
//! A word is one atomic value here as it is in the table; what is explored is the order of the
//! steps. Nothing but the words is shared, so weaker orders of memory have nothing to act on.

use loom::model::Builder;
use loom::sync::Mutex;
use loom::thread;

use super::{START, rule};
use crate::packed::Packed;
use crate::rule::Kind;
use crate::slot::{Key, SECOND};
use crate::table::{Outcome, Room, Table, Word};
use crate::{Algorithm, Nanos};

struct Model(Mutex<u128>);

impl Default for Model {
    fn default() -> Model {
        Model(Mutex::new(0))
    }
}

impl Word for Model {
    fn read(&self) -> u128 {
        *self.0.lock().unwrap()
    }
    fn replace(&self, old: u128, new: u128) -> bool {
        let mut word = self.0.lock().unwrap();
        let same = *word == old;
        if same {
            *word = new;
        }
        same
    }
}

type Words = loom::sync::Arc<Table<Model>>;

/// All orders with up to three forced changes of the thread, which is where such faults show.
fn explore(f: impl Fn() + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

fn one_each() -> Packed {
    match rule(Algorithm::Fixed { aligned: true }, 1, SECOND).kind {
        Kind::Packed(packed) => packed,
        _ => panic!("not for the table"),
    }
}

/// `None` when there was no room.
fn take(table: &Words, key: u64, now: Nanos) -> Option<bool> {
    let rule = one_each();
    let change = |state| {
        let taken = rule.take(state, 1, now);
        (taken.decision.allowed, taken.next)
    };
    match table.update(rule.tag(Key(key)), now, change, || Room::Unseen) {
        Outcome::Seen(allowed) => Some(allowed),
        Outcome::Unseen(_) => None,
    }
}

fn give(table: &Words, key: u64, now: Nanos) {
    let rule = one_each();
    let end = (now / SECOND + 1) * 1_000;
    table.change(rule.tag(Key(key)), |state| rule.give(state, 1, end, now));
}

fn two<T: 'static>(a: impl FnOnce() -> T + 'static, b: impl FnOnce() -> T) -> (T, T) {
    let a = thread::spawn(a);
    let b = b();
    (a.join().unwrap(), b)
}

#[test]
fn two_insertions_of_one_key() {
    explore(|| {
        let table = Words::new(Table::with_sets(1));
        let other = table.clone();
        // Different times, as two workers have them.
        let passed = two(
            move || take(&other, 1, START),
            move || take(&table, 1, START + 1),
        );
        assert!(matches!(
            passed,
            (Some(true), Some(false)) | (Some(false), Some(true))
        ));
    });
}

#[test]
fn a_word_that_says_nothing_is_taken_once() {
    explore(|| {
        let table = Words::new(Table::with_sets(1));
        let later = START + 2 * SECOND;
        // Three that count, and one that does not any more.
        assert_eq!(take(&table, 0, START), Some(true));
        for key in 1..4 {
            assert_eq!(take(&table, key, later), Some(true));
        }
        // Its owner comes back while somebody else wants its place.
        let (owner, newcomer) = (table.clone(), table.clone());
        let passed = two(
            move || take(&owner, 0, later),
            move || take(&newcomer, 9, later),
        );
        assert!(
            matches!(passed, (Some(true), None) | (None, Some(true))),
            "{passed:?}"
        );
        for key in 1..4 {
            assert_eq!(take(&table, key, later), Some(false));
        }
    });
}

#[test]
fn two_limits_in_opposite_order() {
    /// As `Engine::take_all` does.
    fn both(table: &Words, first: u64, second: u64) -> bool {
        if take(table, first, START) != Some(true) {
            return false;
        }
        let second = take(table, second, START) == Some(true);
        if !second {
            give(table, first, START);
        }
        second
    }
    explore(|| {
        let table = Words::new(Table::with_sets(1));
        let (one, other) = (table.clone(), table.clone());
        let (a, b) = two(move || both(&one, 1, 2), move || both(&other, 2, 1));
        assert!(!(a && b));
        // What nobody got is there for the next.
        assert_eq!(both(&table, 1, 2), !(a || b));
    });
}

#[test]
fn an_insertion_and_a_refund_beside_it() {
    explore(|| {
        let table = Words::new(Table::with_sets(1));
        for key in 1..3 {
            assert_eq!(take(&table, key, START), Some(true));
        }
        let (one, other) = (table.clone(), table.clone());
        let refund = thread::spawn(move || give(&one, 1, START));
        let passed = [take(&other, 7, START), take(&other, 7, START)];
        refund.join().unwrap();
        assert_eq!(passed, [Some(true), Some(false)]);
        assert_eq!(take(&table, 7, START), Some(false));
        assert_eq!(take(&table, 1, START), Some(true));
        assert_eq!(take(&table, 2, START), Some(false));
    });
}
