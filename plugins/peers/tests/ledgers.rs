//! What is counted here, and what becomes of it when who owns it changes.

use std::time::Duration;

use lockgate_quota::{Law, Micros, Verdict};

use crate::frame::{Charged, Question, Reply};
use crate::kept::window;
use crate::ledger::{Asked, Ledger};
use crate::members::{Members, Node, Roll, View};
use crate::place::KeyId;

const T0: Micros = 1_700_000_000_000_000;
const MINUTE: Micros = 60_000_000;

fn fixed(limit: u64) -> Law {
    let window = Duration::from_secs(60);
    Law::Fixed { limit, window }
}

fn sliding(limit: u64) -> Law {
    let window = Duration::from_secs(60);
    Law::Sliding { limit, window }
}

fn log(limit: u64) -> Law {
    let window = Duration::from_secs(60);
    Law::Log { limit, window }
}

fn check(ledger: &Ledger, key: &str, law: Law, now: Micros) -> Option<bool> {
    let key = KeyId::of(key);
    let charge = Charged { key, law, cost: 1 };
    match ledger.ask(1, &Question::Check([charge].into_iter().collect()), now) {
        Asked::Answered(Reply::Verdict(Verdict { allowed, .. })) => Some(allowed),
        _ => None,
    }
}

/// How many pass of a thousand.
fn passes(ledger: &Ledger, key: &str, law: Law, now: Micros) -> usize {
    (0..1_000)
        .filter(|_| check(ledger, key, law, now) == Some(true))
        .count()
}

fn view(me: &str, revision: u64, nodes: &[(&str, u64, u32)]) -> View {
    let node = |(name, run, weight): &(&str, u64, u32)| Node {
        name: (*name).to_owned(),
        run: *run,
        weight: *weight,
        revision: 1,
    };
    let mut members = Members::new(me, 1);
    members.fix(Roll::new(revision, nodes.iter().map(node).collect()));
    View::clone(members.view())
}

fn nobody(me: &str) -> View {
    View::clone(Members::new(me, 1).view())
}

#[test]
fn who_is_first_begins_with_nothing() {
    let ledger = Ledger::default();
    assert_eq!(check(&ledger, "k", fixed(5), T0), None);
    let alone = view("a", 1, &[("a", 1, 1)]);
    assert!(ledger.turn(&nobody("a"), &alone, false, T0).is_empty());
    assert_eq!(passes(&ledger, "k", fixed(5), T0), 5);
    assert_eq!(passes(&ledger, "k", fixed(5), T0 + MINUTE - 1), 0);
    assert_eq!(passes(&ledger, "k", fixed(5), T0 + MINUTE), 5);
}

#[test]
fn all_limits_or_none() {
    let ledger = Ledger::default();
    ledger.open_all();
    let charge = |key: &str, limit| Charged {
        key: KeyId::of(key),
        law: fixed(limit),
        cost: 1,
    };
    let both = [charge("wide", 100), charge("narrow", 3)];
    let both = Question::Check(both.into_iter().collect());
    let allowed = |now| match ledger.ask(1, &both, now) {
        Asked::Answered(Reply::Verdict(verdict)) => verdict.allowed,
        other => panic!("{other:?}"),
    };
    assert_eq!((0..10).filter(|_| allowed(T0)).count(), 3);
    assert_eq!(passes(&ledger, "wide", fixed(100), T0), 97);
}

#[test]
fn counts_go_over_whole() {
    let bucket = Law::Bucket {
        interval_us: 6e6,
        holds: 10.0,
    };
    // The other's clock is three hours ahead.
    let ahead = 180 * MINUTE;
    for law in [fixed(10), sliding(10), log(10), bucket] {
        let (old, new) = (Ledger::default(), Ledger::default());
        old.open_all();
        for n in 0..6 {
            assert_eq!(check(&old, "k", law, T0 + n * 1_000), Some(true));
        }
        let two = [("a", 1, 0), ("b", 1, 1)];
        let alone = view("a", 1, &[("a", 1, 1)]);
        let now = T0 + 10_000;
        let leaving = old.turn(&alone, &view("a", 2, &two), false, now);
        assert_eq!(leaving.len(), 4_096);
        new.turn(&nobody("b"), &view("b", 2, &two), false, now + ahead);
        // Nobody is granted anything while they are on their way.
        assert_eq!(check(&old, "k", law, now), None);
        assert_eq!(check(&new, "k", law, now + ahead), None);
        for one in leaving {
            let mut part = one.part;
            let keys = part.keys.into_iter();
            part.keys = keys.map(|(key, kept)| (key, kept.packed(now))).collect();
            assert_eq!(new.take_over(vec![part], now + ahead), Reply::Done(true));
        }
        assert_eq!(passes(&new, "k", law, now + ahead), 4, "{law:?}");
        assert_eq!((old.bytes(), new.places()), (0, (4_096, 0)));
    }
}

#[test]
fn after_a_crash_an_even_use_is_assumed() {
    let with = view("a", 1, &[("a", 1, 1), ("b", 1, 1)]);
    let without = view("a", 2, &[("a", 1, 1)]);
    let mut names = (0..).map(|n| format!("k{n}"));
    let lost = names.find(|key| !with.is_mine(KeyId::of(key).partition()));
    let lost = lost.unwrap();
    for law in [fixed(600), sliding(600), log(600)] {
        let ledger = Ledger::default();
        let start = T0 - T0 % MINUTE;
        ledger.turn(&nobody("a"), &with, false, start);
        ledger.all_came(true, start);
        // A third of the window is over.
        let now = start + 20_000_000;
        ledger.turn(&with, &without, false, now);
        assert_eq!(passes(&ledger, &lost, law, now), 400, "{law:?}");
        // Who comes a window later is as good as new.
        let other = format!("{lost} other");
        assert_eq!(passes(&ledger, &other, law, now + 2 * window(law)), 600);
    }
    let ledger = Ledger::default();
    ledger.open_all();
    ledger.doubt(T0);
    let bucket = Law::Bucket {
        interval_us: 1e6,
        holds: 10.0,
    };
    assert_eq!(passes(&ledger, "k", bucket, T0), 5);
}

#[test]
fn what_is_not_sent_is_given_up() {
    let is = view("b", 2, &[("a", 1, 1), ("b", 1, 1)]);
    let ledger = Ledger::default();
    ledger.turn(&nobody("b"), &is, false, T0);
    let (here, expected) = ledger.places();
    assert!(here == 0 && expected > 1_500, "{here} {expected}");
    ledger.give_up(T0 + 1_999_999);
    assert_eq!(ledger.places().0, 0);
    ledger.give_up(T0 + 2_000_000);
    assert_eq!(ledger.places(), (expected, 0));
}

#[test]
fn another_start_of_a_gateway_has_forgotten() {
    let ledger = Ledger::default();
    let with = view("a", 1, &[("a", 1, 1), ("b", 1, 1)]);
    let again = view("a", 2, &[("a", 1, 1), ("b", 2, 1)]);
    ledger.turn(&nobody("a"), &with, false, T0);
    ledger.all_came(true, T0);
    let kept = ledger.places();
    assert!(ledger.turn(&with, &again, false, T0).is_empty());
    assert_eq!(ledger.places(), kept);
    // What this gateway counted before it was thought to be gone is for others to count.
    let gone = view("a", 3, &[("b", 2, 1)]);
    assert!(ledger.turn(&again, &gone, false, T0).is_empty());
    assert_eq!(ledger.places(), (0, 0));
}

#[test]
fn there_is_room_for_so_many() {
    let ledger = Ledger::new(100_000);
    ledger.open_all();
    let keys = (0..10_000).map(|n| n.to_string());
    let counted = keys
        .filter(|key| check(&ledger, key, fixed(1), T0).is_some())
        .count();
    assert!((200..2_000).contains(&counted), "{counted}");
    assert!(ledger.bytes() < 101_000, "{}", ledger.bytes());
    // Those that are known still are.
    assert_eq!(check(&ledger, "0", fixed(1), T0), Some(false));
    let later = T0 + 3 * MINUTE;
    (0..200).for_each(|_| ledger.sweep(later));
    assert_eq!(ledger.bytes(), 0);
    assert_eq!(check(&ledger, "new", fixed(1), later), Some(true));
}
