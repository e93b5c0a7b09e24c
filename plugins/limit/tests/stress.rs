//! Real threads on real words.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::START;
use crate::rule::Kind;
use crate::slot::Key;
use crate::table::{Outcome, Table};
use crate::{Algorithm, Concurrency, Engine, Rule};

const THREADS: usize = 4;
const KEYS: u64 = 1_000;
const BURST: u64 = 10;
const ROUNDS: u64 = 20;

/// Every round has fresh keys, four to a set, so insertions race with each other and with the words
/// of the round before. Time stands still within a round: exactly the burst passes.
#[test]
fn threads_that_race_for_a_key_let_exactly_its_burst_pass() {
    let rule = Rule::new(
        Algorithm::Gcra { burst: BURST },
        1_000_000,
        Duration::from_secs(1),
    );
    let Kind::Packed(gcra) = rule.unwrap().kind else {
        panic!()
    };
    let table: Table = Table::with_sets(1 << 8);
    let passed: Vec<AtomicU64> = (0..KEYS * ROUNDS).map(|_| AtomicU64::new(0)).collect();
    let round_ends = Barrier::new(THREADS);
    thread::scope(|threads| {
        for thread in 0..THREADS as u64 {
            let (table, passed, round_ends) = (&table, &passed, &round_ends);
            threads.spawn(move || {
                for round in 0..ROUNDS {
                    let now = START + round * 1_000_000;
                    for turn in 0..KEYS * (BURST + 2) {
                        let at = (turn + thread * 7) % KEYS;
                        let name = round * KEYS + at;
                        let key = Key(((at / 4) << 56) | name);
                        let take = |state| {
                            let taken = gcra.take(state, 1, now);
                            (taken.decision.allowed, taken.next)
                        };
                        let full = || panic!("four keys in a set of four words");
                        let outcome = table.update(gcra.tag(key), now, take, full);
                        if let Outcome::Seen(true) = outcome {
                            passed[name as usize].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    round_ends.wait();
                }
            });
        }
    });
    for (name, passed) in passed.iter().enumerate() {
        assert_eq!(passed.load(Ordering::Relaxed), BURST, "key {name}");
    }
}

#[test]
fn requests_under_way_are_counted_exactly() {
    const MOST: u64 = 3;
    let (counts, highest) = (
        std::sync::Arc::new(Concurrency::default()),
        AtomicU64::new(0),
    );
    let key = Engine::with_bytes(0).key(1).done();
    thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                for _ in 0..5_000 {
                    if let Ok((guard, there)) = counts.enter(key, MOST) {
                        highest.fetch_max(there, Ordering::Relaxed);
                        drop(guard);
                    }
                }
            });
        }
    });
    assert!(highest.load(Ordering::Relaxed) <= MOST);
    assert_eq!((counts.count(key), counts.keys()), (0, 0));
    let guards: Vec<_> = (0..MOST)
        .map(|_| counts.enter(key, MOST).unwrap())
        .collect();
    assert_eq!(
        guards.iter().map(|(_, n)| *n).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(counts.enter(key, MOST).unwrap_err(), MOST);
    // A limit that was lowered: nobody is thrown out, nobody comes in.
    assert_eq!(counts.enter(key, 1).unwrap_err(), MOST);
    drop(guards);
    assert_eq!(counts.enter(key, 0).unwrap_err(), 0);
    assert_eq!(counts.keys(), 0);
}
