//! What is counted here, and what becomes of it when who owns it changes.

use std::time::Duration;

use lockgate_quota::{Ask, Grant, Law, Micros, Verdict};

use crate::frame::{Charged, Question, Reply};
use crate::kept::{Kept, window};
use crate::ledger::{Asked, Ledger, MOST_BYTES};
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
    assert!(ledger.turn(&nobody("a"), &alone, T0).is_empty());
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
        let leaving = old.turn(&alone, &view("a", 2, &two), now);
        assert_eq!(leaving.len(), 4_096);
        new.turn(&nobody("b"), &view("b", 2, &two), now + ahead);
        // Nobody is granted anything while they are on their way.
        assert_eq!(check(&old, "k", law, now), None);
        assert_eq!(check(&new, "k", law, now + ahead), None);
        for part in leaving {
            let took = new.take_over(7, vec![part], (now, now + ahead));
            assert_eq!(took, Reply::Done(true));
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
        ledger.turn(&nobody("a"), &with, start);
        ledger.all_came(u64::MAX, true, start);
        // A third of the window is over.
        let now = start + 20_000_000;
        ledger.turn(&with, &without, now);
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
    ledger.turn(&nobody("b"), &is, T0);
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
    ledger.turn(&nobody("a"), &with, T0);
    ledger.all_came(u64::MAX, true, T0);
    let kept = ledger.places();
    assert!(ledger.turn(&with, &again, T0).is_empty());
    assert_eq!(ledger.places(), kept);
    // What this gateway counted before it was thought to be gone is for others to count.
    let gone = view("a", 3, &[("b", 2, 1)]);
    assert!(ledger.turn(&again, &gone, T0).is_empty());
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

fn bucket() -> Law {
    Law::Bucket {
        interval_us: 6e6,
        holds: 10.0,
    }
}

fn ask(ledger: &Ledger, node: u64, number: u64, want: u64, now: Micros) -> Option<Grant> {
    let ask = Ask {
        key: String::new(),
        law: fixed(1_000),
        number,
        want,
        back: 0,
        over: 0,
        mark: 0,
        held: 0,
        most: None,
        keeps: Duration::from_secs(60),
    };
    match ledger.ask(node, &Question::Take(KeyId::of("k"), ask), now) {
        Asked::Answered(Reply::Granted(grant)) => Some(grant),
        _ => None,
    }
}

fn forget(ledger: &Ledger, key: &str, now: Micros) -> Asked {
    ledger.ask(1, &Question::Forget(KeyId::of(key)), now)
}

/// All that `old` counts goes to `new`, whose clock is so far ahead.
fn hand_over(old: &Ledger, new: &Ledger, now: Micros, ahead: Micros) {
    let alone = view("a", 1, &[("a", 1, 1)]);
    let both = |me| view(me, 2, &[("a", 1, 0), ("b", 1, 1)]);
    let leaving = old.turn(&alone, &both("a"), now);
    new.turn(&nobody("b"), &both("b"), now + ahead);
    let took = new.take_over(7, leaving, (now, now + ahead));
    assert_eq!(took, Reply::Done(true));
}

#[test]
fn what_was_charged_before_a_move_can_be_given_back_after_it() {
    for ahead in [0, 300_000, 180 * MINUTE + 12_345] {
        for law in [fixed(10), sliding(10), log(10), bucket()] {
            let (old, new) = (Ledger::default(), Ledger::default());
            old.open_all();
            let key = KeyId::of("k");
            let charge = Charged { key, law, cost: 6 };
            let question = Question::Check([charge].into_iter().collect());
            let Asked::Answered(Reply::Verdict(verdict)) = old.ask(1, &question, T0) else {
                panic!()
            };
            hand_over(&old, &new, T0, ahead);
            let mark = verdict.outcomes[0].mark;
            new.ask(1, &Question::Settle(charge, -2, mark), T0 + ahead);
            assert_eq!(passes(&new, "k", law, T0 + ahead), 6, "{law:?}");
        }
        // Leases go on in the window that they were taken of.
        let (old, new) = (Ledger::default(), Ledger::default());
        old.open_all();
        let first = ask(&old, 1, 1, 10, T0).unwrap();
        hand_over(&old, &new, T0 + 1_000, ahead);
        let second = ask(&new, 1, 2, 10, T0 + 2_000 + ahead).unwrap();
        assert_eq!((first.mark, first.nodes), (second.mark, second.nodes));
        assert_eq!(second.left, first.left - second.permits);
    }
}

#[test]
fn a_part_that_comes_twice_counts_once() {
    let (old, new) = (Ledger::default(), Ledger::default());
    old.open_all();
    (0..3).for_each(|_| _ = check(&old, "k", fixed(10), T0));
    let alone = view("a", 1, &[("a", 1, 1)]);
    let both = |me| view(me, 2, &[("a", 1, 0), ("b", 1, 1)]);
    let leaving = old.turn(&alone, &both("a"), T0);
    new.turn(&nobody("b"), &both("b"), T0);
    for node in [7, 7, 7] {
        new.take_over(node, leaving.clone(), (T0, T0));
    }
    assert_eq!(passes(&new, "k", fixed(10), T0), 7);
}

#[test]
fn that_counts_were_lost_is_passed_on_and_ends() {
    let day = Duration::from_secs(86_400);
    let law = Law::Fixed {
        limit: 100,
        window: day,
    };
    let midnight = T0 - T0 % window(law);
    let (old, new) = (Ledger::default(), Ledger::default());
    old.open_all();
    old.doubt(midnight);
    let evening = midnight + window(law) / 24 * 23;
    hand_over(&old, &new, evening, 5 * MINUTE);
    assert_eq!(new.places(), (4_096, 0));
    let key = "of today";
    assert_eq!(passes(&new, key, law, evening + 5 * MINUTE), 3);
    // A day after they were lost nothing of it matters, whenever they moved.
    let tomorrow = midnight + window(law) + 5 * MINUTE;
    assert_eq!(passes(&new, "k", law, tomorrow), 100);
}

#[test]
fn who_was_away_unnoticed_counts_with_what_others_counted() {
    let ledger = Ledger::default();
    let entered = |epoch, revision| {
        let node = Node {
            name: "b".to_owned(),
            run: 1,
            weight: 1,
            revision,
        };
        let other = Node {
            name: "a".to_owned(),
            run: 1,
            weight: 0,
            revision: 1,
        };
        let mut members = Members::new("b", 1);
        members.fix(Roll::new(epoch, vec![node, other]));
        View::clone(members.view())
    };
    let before = entered(2, 2);
    ledger.turn(&nobody("b"), &before, T0);
    ledger.all_came(2, true, T0);
    (0..3).for_each(|_| _ = check(&ledger, "k", fixed(10), T0));
    assert!(ledger.turn(&before, &entered(5, 5), T0 + 1).is_empty());
    assert_eq!(check(&ledger, "k", fixed(10), T0 + 1), None);
    // Another counted four in the meantime.
    let other = Ledger::default();
    other.open_all();
    (0..4).for_each(|_| _ = check(&other, "k", fixed(10), T0));
    let alone = view("a", 1, &[("a", 1, 1)]);
    let leaving = other.turn(&alone, &view("a", 2, &[("a", 1, 0), ("b", 1, 1)]), T0);
    ledger.take_over(7, leaving, (T0, T0 + 1));
    assert_eq!(passes(&ledger, "k", fixed(10), T0 + 1), 3);
}

#[test]
fn nobody_speaks_for_what_is_sent_later() {
    let ledger = Ledger::default();
    ledger.turn(&nobody("b"), &view("b", 2, &[("a", 1, 1), ("b", 1, 1)]), T0);
    ledger.all_came(1, true, T0);
    assert_eq!(ledger.places().0, 0);
    ledger.all_came(2, true, T0);
    assert_eq!(ledger.places().1, 0);
}

#[test]
fn a_reset_is_one_though_counts_were_lost() {
    let ledger = Ledger::default();
    ledger.open_all();
    let start = T0 - T0 % MINUTE + MINUTE / 2;
    ledger.doubt(start);
    for key in ["known", "unknown"] {
        if key == "known" {
            assert_eq!(passes(&ledger, key, fixed(10), start), 5);
        }
        let known = Reply::Done(key == "known");
        assert_eq!(forget(&ledger, key, start), Asked::Answered(known));
        (0..200).for_each(|_| ledger.sweep(start + 1));
        assert_eq!(passes(&ledger, key, fixed(10), start + 1), 10, "{key}");
    }
}

#[test]
fn who_holds_permits_is_not_forgotten_for_another() {
    let ledger = Ledger::default();
    ledger.open_all();
    let granted = (1..200).filter(|node| ask(&ledger, *node, 1, 1, T0).is_some());
    assert_eq!(granted.count(), 128);
    // Those that have some go on, and take no others' place.
    let again = ask(&ledger, 1, 2, 1, T0).unwrap();
    assert_eq!((again.permits, again.nodes), (1, 128));
    assert!(ask(&ledger, 150, 1, 1, T0 + MINUTE).is_some());
}

#[test]
fn what_is_over_joins_nothing() {
    let over = |law| {
        let (old, new) = (Ledger::default(), Ledger::default());
        old.open_all();
        new.open_all();
        (0..6).for_each(|_| _ = check(&old, "k", law, T0));
        // The window after next.
        let now = T0 + 3 * MINUTE;
        (0..3).for_each(|_| _ = check(&new, "k", law, now));
        let alone = view("a", 1, &[("a", 1, 1)]);
        let leaving = old.turn(&alone, &view("a", 2, &[("a", 1, 0), ("b", 1, 1)]), now);
        new.take_over(7, leaving, (now, now));
        passes(&new, "k", law, now)
    };
    for law in [fixed(10), sliding(10), log(10), bucket()] {
        assert_eq!(over(law), 7, "{law:?}");
    }
}

#[test]
fn there_is_room_for_as_many_keys_as_the_page_says() {
    let key = size_of::<(KeyId, Kept)>();
    assert!(MOST_BYTES / key >= 1_000_000);
}
