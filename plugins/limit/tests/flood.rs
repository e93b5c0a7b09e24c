//! P6, and what happens when more keys count than there is room for.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{START, rule};
use crate::packed::Packed;
use crate::rule::Kind;
use crate::slot::{Key, SECOND, expiry};
use crate::table::{Outcome, Room, Table};
use crate::{Algorithm, Ask, Engine, Rule};

fn packed(rule: &Rule) -> Packed {
    match rule.kind {
        Kind::Packed(packed) => packed,
        _ => panic!("not for the table"),
    }
}

fn kinds() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::Fixed { aligned: false }),
        Just(Algorithm::Sliding { strict: false }),
        Just(Algorithm::Gcra { burst: 3 }),
    ]
}

proptest! {
    #[test]
    fn giving_up_what_says_nothing_never_changes_a_decision(
        algorithm in kinds(),
        requests in prop::collection::vec((0..3 * SECOND, 0u64..12), 1..200),
    ) {
        let rule = packed(&rule(algorithm, 4, 2 * SECOND));
        let table: Table = Table::with_sets(1);
        let mut all: HashMap<u64, u128> = HashMap::new();
        let mut now = START;
        for (gap, name) in requests {
            now += gap;
            let live = |(_, state): &(&u64, &u128)| expiry(rule.tag(Key(1)).head() | **state) > now;
            let known = all.get(&name).is_some_and(|state| live(&(&0, state)));
            // Only as many at a time as there is room for.
            if !known && all.iter().filter(live).count() == 4 {
                continue;
            }
            let change = |state| {
                let taken = rule.take(state, 1, now);
                (taken.decision, taken.next)
            };
            let seen = table.update(rule.tag(Key(name)), now, change, || panic!("there was room"));
            let Outcome::Seen(seen) = seen else { panic!("there was room") };
            let state = all.entry(name).or_default();
            let (expected, next) = change(*state);
            *state = next.unwrap_or(*state);
            prop_assert_eq!(seen, expected);
        }
    }
}

#[test]
fn a_newcomer_without_room_is_asked_about_once_and_starts_as_told() {
    let gcra = packed(&rule(Algorithm::Gcra { burst: 2 }, 1, SECOND));
    let take = |state| {
        let taken = gcra.take(state, 1, START);
        (taken.decision.allowed, taken.next)
    };
    let table: Table = Table::with_sets(1);
    for name in 0..4 {
        let outcome = table.update(gcra.tag(Key(name)), START, take, || Room::Unseen);
        assert!(matches!(outcome, Outcome::Seen(true)));
    }
    let outcome = table.update(gcra.tag(Key(4)), START, take, || Room::Unseen);
    assert!(matches!(outcome, Outcome::Unseen(true)));
    assert_eq!(table.get(gcra.tag(Key(4))), 0);
    let debt = u128::from(START + SECOND);
    let evict = || Room::Evict(debt);
    let outcome = table.update(gcra.tag(Key(4)), START, take, evict);
    assert!(matches!(outcome, Outcome::Seen(true)));
    assert_eq!(table.get(gcra.tag(Key(4))), debt + u128::from(SECOND));
    assert_eq!(table.fill(START), (4, 4));
    assert_eq!(table.fill(START + 2 * SECOND), (0, 4));
}

#[test]
fn a_page_is_made_for_the_first_key_that_is_charged() {
    let gcra = packed(&rule(Algorithm::Gcra { burst: 2 }, 1, SECOND));
    let table: Table = Table::with_bytes(16 << 20);
    assert_eq!((table.fill(START), table.made()), ((0, 1 << 20), 0));
    let tag = |set: u64| gcra.tag(Key(set << 46 | 1));
    assert_eq!(table.get(tag(0)), 0);
    table.change(tag(0), |_| panic!("there is nothing to change"));
    assert_eq!(table.made(), 0);
    let take = |state| ((), gcra.take(state, 1, START).next);
    let last = (1 << 18) - 1;
    for set in [0, 1_023, 1_024, last] {
        table.update(tag(set), START, take, || panic!("there was room"));
        assert_ne!(table.get(tag(set)), 0);
    }
    assert_eq!((table.fill(START), table.made()), ((4, 1 << 20), 3));
}

/// A table for 64 keys, a window of a day, ten thousand keys with one request each, and one key that
/// wants more than its share: it never gets more, and memory stays what it is.
#[test]
fn a_flood_of_keys_neither_grows_the_table_nor_frees_a_heavy_key() {
    let engine = Engine::with_bytes(1 << 10);
    let rule = rule(Algorithm::Fixed { aligned: false }, 40, 86_400 * SECOND);
    let ask = |name: u64| Ask {
        rule: &rule,
        key: engine.key(2).bytes(&name.to_le_bytes()).done(),
        cost: 1,
    };
    let mut heavy = 0;
    for name in 1..=10_000 {
        let (decision, _) = engine.take(&ask(name), START + name);
        assert!(decision.allowed, "{name}");
        if name % 50 == 0 {
            heavy += u64::from(engine.take(&ask(0), START + name).0.allowed);
        }
    }
    assert_eq!(heavy, 40);
    let stats = engine.stats(START + 10_000);
    assert_eq!((stats.room, stats.exact), (64, 0));
    assert!(stats.unseen > 9_000, "{stats:?}");
}

#[test]
fn exact_states_are_bounded_too() {
    let engine = Engine::with_bytes(0);
    let rule = rule(Algorithm::Log, 1, 86_400 * SECOND);
    for name in 0..100_000u64 {
        let key = engine.key(name).done();
        let _ = engine.take(
            &Ask {
                rule: &rule,
                key,
                cost: 1,
            },
            START + name,
        );
    }
    let stats = engine.stats(START);
    assert!(stats.exact > 50_000 && stats.exact <= 65_536, "{stats:?}");
    // All of them still count: who has no place now was given up.
    assert_eq!(stats.evicted, 100_000 - stats.exact as u64);
}
