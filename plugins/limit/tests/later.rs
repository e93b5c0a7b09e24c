//! What is charged, given back or asked for without a cost of its own once time has passed.

use std::collections::VecDeque;

use super::{START, key, rule, small};
use crate::slot::SECOND;
use crate::{Algorithm, Ask, Engine, NEVER, Nanos, Receipt, Rule};

const ALL: [Algorithm; 6] = [
    Algorithm::Fixed { aligned: false },
    Algorithm::Sliding { strict: false },
    Algorithm::Sliding { strict: true },
    Algorithm::Buckets {
        parts: 4,
        strict: false,
    },
    Algorithm::Log,
    Algorithm::Gcra { burst: 10 },
];

/// Ten a second, ten at once; every request is refunded ten seconds later, when its charge has long
/// drained. It must not make room for others.
#[test]
fn a_bucket_gives_back_only_what_has_not_drained() {
    let engine = small();
    let rule = rule(Algorithm::Gcra { burst: 10 }, 10, SECOND);
    let ask = Ask {
        rule: &rule,
        key: key(&engine, 1),
        cost: 1,
    };
    let mut charged: VecDeque<(Nanos, Receipt)> = VecDeque::new();
    let step = SECOND / 100;
    let mut passed = Vec::new();
    for round in 0..3 {
        passed.push(0);
        for at in 0..1_000 {
            let now = START + (round * 1_000 + at) * step;
            while charged
                .front()
                .is_some_and(|(at, _)| at + 10 * SECOND <= now)
            {
                engine.give_back(&ask, charged.pop_front().unwrap().1, now);
            }
            let (decision, receipt) = engine.take(&ask, now);
            if decision.allowed {
                charged.push_back((now, receipt));
                *passed.last_mut().unwrap() += 1;
            }
        }
    }
    assert_eq!(passed, [109, 100, 100]);
}

/// A half of the charge has drained: the other half comes back.
#[test]
fn a_bucket_gives_back_what_is_left_of_a_charge() {
    let engine = small();
    let rule = rule(Algorithm::Gcra { burst: 10 }, 10, SECOND);
    let ask = |cost| Ask {
        rule: &rule,
        key: key(&engine, 1),
        cost,
    };
    let (_, receipt) = engine.take(&ask(4), START);
    let now = START + SECOND / 5;
    let _ = engine.take(&ask(6), now);
    engine.give_back(&ask(4), receipt, now);
    assert_eq!(engine.peek(&ask(0), now).remaining, 4);
}

#[test]
fn what_costs_nothing_does_not_pass_a_limit_that_is_used_up() {
    for algorithm in ALL {
        let engine = small();
        let rule = rule(algorithm, 10, 100 * SECOND);
        let ask = |cost| Ask {
            rule: &rule,
            key: key(&engine, 1),
            cost,
        };
        let _ = engine.take(&ask(9), START);
        let (decision, _) = engine.take(&ask(0), START);
        assert!(decision.allowed, "{algorithm:?}");
        assert_eq!(decision.remaining, 1, "{algorithm:?}");
        let _ = engine.take(&ask(1), START);
        let (decision, _) = engine.take(&ask(0), START);
        assert!(!decision.allowed, "{algorithm:?}");
        assert_eq!(decision.remaining, 0, "{algorithm:?}");
        let then = START + decision.retry;
        assert!(engine.peek(&ask(0), then).allowed, "{algorithm:?}");
        assert!(!engine.peek(&ask(0), then - 1).allowed, "{algorithm:?}");
    }
}

#[test]
fn what_never_fits_is_told_when_the_limit_is_as_good_as_new() {
    for algorithm in ALL {
        let engine = small();
        let rule = rule(algorithm, 10, 100 * SECOND);
        let ask = |cost| Ask {
            rule: &rule,
            key: key(&engine, 1),
            cost,
        };
        let _ = engine.take(&ask(1), START);
        let (decision, _) = engine.take(&ask(11), START);
        assert_eq!(decision.retry, NEVER, "{algorithm:?}");
        // Fixed windows end on whole milliseconds.
        assert!(decision.reset <= 101 * SECOND, "{algorithm:?}");
    }
}

/// An engine whose sets are full of keys that count for a window.
fn full(rule: &Rule) -> Engine {
    let engine = Engine::with_bytes(1 << 10);
    fill(&engine, rule, START);
    engine
}

fn fill(engine: &Engine, rule: &Rule, now: Nanos) {
    for name in 1..=2_000u64 {
        let key = engine.key(2).bytes(&name.to_le_bytes()).done();
        let _ = engine.take(&Ask { rule, key, cost: 1 }, now);
    }
}

/// A key for which there is no word is charged afterwards: what it has used is remembered.
#[test]
fn a_cost_known_later_counts_for_a_key_without_room() {
    let rule = rule(Algorithm::Fixed { aligned: false }, 1_000, 86_400 * SECOND);
    let engine = full(&rule);
    let ask = Ask {
        rule: &rule,
        key: key(&engine, 3),
        cost: 1,
    };
    let (decision, receipt) = engine.take(&ask, START);
    assert!(decision.allowed);
    engine.settle(&ask, receipt, 2_000, START);
    assert!(!engine.take(&ask, START).0.allowed);
}

/// Nothing is charged at first, and what is charged later is small each time.
#[test]
fn small_costs_known_later_add_up_for_a_key_without_room() {
    let rule = rule(Algorithm::Fixed { aligned: false }, 1_000, 86_400 * SECOND);
    let engine = full(&rule);
    let ask = Ask {
        rule: &rule,
        key: key(&engine, 3),
        cost: 0,
    };
    let mut used = 0;
    for _ in 0..3_000 {
        let (decision, receipt) = engine.take(&ask, START);
        if decision.allowed {
            engine.settle(&ask, receipt, 2, START);
            used += 2;
        }
    }
    assert!(used <= 1_000, "{used}");
}

/// A refund whose charge is forgotten takes nothing from what was counted since.
#[test]
fn a_refund_of_what_is_forgotten_changes_nothing() {
    const DAY: u64 = 86_400 * SECOND;
    let rule = rule(Algorithm::Fixed { aligned: false }, 1_000, DAY);
    let engine = Engine::with_bytes(1 << 10);
    let ask = |cost| Ask {
        rule: &rule,
        key: key(&engine, 3),
        cost,
    };
    fill(&engine, &rule, START);
    let (_, receipt) = engine.take(&ask(100), START);
    for days in 1..=3 {
        fill(&engine, &rule, START + days * DAY + days * SECOND);
    }
    let now = START + 3 * DAY + 4 * SECOND;
    engine.give_back(&ask(100), receipt, now);
    let (decision, _) = engine.take(&ask(300), now);
    assert_eq!(decision.remaining, 700);
    assert!(!engine.take(&ask(701), now).0.allowed);
}

/// A charge is settled by the rule that charged it, whatever is in force by then: else a refund under a rule
/// with a slower rate would give back what others used.
#[test]
fn a_charge_is_settled_by_the_rule_that_charged_it() {
    let (quick, slow) = (
        rule(Algorithm::Gcra { burst: 10 }, 10, SECOND),
        rule(Algorithm::Gcra { burst: 10 }, 10, 100 * SECOND),
    );
    let check = |first: bool, then: bool, together: bool| {
        let engine = small();
        let ask = Ask {
            rule: &quick,
            key: key(&engine, 1),
            cost: 1,
        };
        let instead = |is: bool| {
            let slow = (ask.key, (crate::Counted::Rate(slow), Nanos::MAX));
            let all = is.then_some(slow);
            engine.overrides().replace(all.into_iter().collect());
        };
        instead(first);
        let mut receipts = Vec::new();
        for _ in 0..5 {
            let other = Ask {
                key: key(&engine, 2),
                ..ask
            };
            let asks = [ask, other];
            let asks = if together { &asks[..] } else { &asks[..1] };
            receipts.extend(engine.take_all(asks, START).receipts.into_iter().next());
        }
        let used = || {
            let rule = if first { &slow } else { &quick };
            10 - engine.look(rule, ask.key, START).remaining
        };
        assert_eq!((receipts.len(), used()), (5, 5));
        instead(then);
        engine.give_back(&ask, receipts.pop().unwrap(), START);
        assert_eq!(used(), 4, "{first} {then} {together}");
        engine.settle(&ask, receipts.pop().unwrap(), 3, START);
        assert_eq!(used(), 6, "{first} {then} {together}");
    };
    for together in [false, true] {
        for first in [false, true] {
            check(first, false, together);
            check(first, true, together);
        }
    }
}
