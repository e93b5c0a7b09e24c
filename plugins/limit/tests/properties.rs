//! P1, P3, P4, P5, P7, P8: single decisions.

use proptest::prelude::*;

use super::model::{LimitReq, Model};
use super::{START, key, rule, small};
use crate::slot::{MILLI, SECOND};
use crate::{Algorithm, Ask, Engine, HORIZON, NEVER, Nanos, Rule};

pub(super) fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        any::<bool>().prop_map(|aligned| Algorithm::Fixed { aligned }),
        any::<bool>().prop_map(|strict| Algorithm::Sliding { strict }),
        (1u8..=10, any::<bool>()).prop_map(|(parts, strict)| Algorithm::Buckets { parts, strict }),
        Just(Algorithm::Log),
        (1u64..20).prop_map(|burst| Algorithm::Gcra { burst }),
    ]
}

/// A limit, a window whose parts are whole for every algorithm, and requests: time since the last
/// one, cost.
pub(super) fn traces() -> impl Strategy<Value = (u64, Nanos, Vec<(Nanos, u64)>)> {
    let windows = prop_oneof![
        1u64..50,
        Just(1_000),
        Just(60_000),
        Just(3_600_000),
        Just(10 * 86_400_000)
    ];
    (1u64..20, windows).prop_flat_map(|(limit, millis)| {
        // Divisible by the limit and by the number of parts.
        let window = millis * MILLI / 2_520 * 2_520 / limit * limit;
        let gaps = prop_oneof![
            Just(0),
            0..window / 8,
            0..window * 3,
            Just(window),
            Just(MILLI)
        ];
        let requests = prop::collection::vec((gaps, 0..limit + 3), 1..80);
        (Just(limit), Just(window), requests)
    })
}

fn starts() -> impl Strategy<Value = Nanos> {
    // Never a moment before the window; up to half of the words that hold a time.
    prop_oneof![Just(START), START..START << 1, Just(1 << 59)]
}

proptest! {
    #[test]
    fn decisions_are_those_of_the_model(
        algorithm in algorithms(), (limit, window, requests) in traces(), start in starts(),
    ) {
        let engine = small();
        // Windows are kept to the millisecond.
        let window = match algorithm {
            Algorithm::Fixed { .. } => window.next_multiple_of(MILLI),
            _ => window,
        };
        // Under a second the counters' expiry is kept to the millisecond.
        prop_assume!(!matches!(algorithm, Algorithm::Sliding { .. }) || window >= MILLI);
        prop_assume!(!matches!(algorithm, Algorithm::Gcra { .. }) || window % limit == 0);
        let rule = rule(algorithm, limit, window);
        let mut model = Model::new(algorithm, limit, window);
        let mut now = start;
        for (gap, cost) in requests {
            now += gap;
            let ask = Ask { rule: &rule, key: key(&engine, 1), cost };
            let peeked = engine.peek(&ask, now);
            let (decision, _) = engine.take(&ask, now);
            prop_assert_eq!(peeked, decision);
            let expected = if cost == 0 { decision.allowed } else { model.take(cost, now) };
            prop_assert_eq!(decision.allowed, expected, "at {} for {}", now - start, cost);
        }
    }

    #[test]
    fn a_refusal_changes_nothing_and_says_when_to_come_back(
        algorithm in algorithms(), (limit, window, requests) in traces(),
    ) {
        let engine = small();
        let rule = rule(algorithm, limit, window);
        let mut now = START;
        let free = match algorithm {
            Algorithm::Gcra { burst } => burst,
            _ => limit,
        };
        for (gap, cost) in requests {
            now += gap;
            let ask = Ask { rule: &rule, key: key(&engine, 1), cost };
            let (decision, _) = engine.take(&ask, now);
            prop_assert!(decision.remaining <= free);
            if decision.allowed {
                prop_assert_eq!(decision.retry, 0);
                continue;
            }
            // Nothing was written: all costs are judged as before.
            let all = |now| (0..limit + 2).map(|cost| engine.peek(&Ask { cost, ..ask }, now)).collect::<Vec<_>>();
            let before = all(now);
            let (again, _) = engine.take(&ask, now);
            prop_assert_eq!(decision, again);
            prop_assert_eq!(before, all(now));
            if cost > free {
                prop_assert_eq!(decision.retry, NEVER);
            } else {
                prop_assert!(decision.reset > 0);
                prop_assert!(engine.peek(&ask, now + decision.retry).allowed, "{:?}", decision);
                prop_assert!(!engine.peek(&ask, now + decision.retry - 1).allowed, "{:?}", decision);
            }
        }
    }

    #[test]
    fn several_limits_are_charged_together_or_not_at_all(
        kinds in prop::collection::vec((algorithms(), 1u64..12), 1..5),
        requests in prop::collection::vec((0u64..3, prop::collection::vec(0u64..4, 5)), 1..60),
    ) {
        let engine = small();
        let rules: Vec<Rule> = kinds.iter().map(|(a, limit)| rule(*a, *limit, 2_520 * SECOND)).collect();
        let fresh: Vec<u64> = rules.iter().zip(0..)
            .map(|(rule, at)| engine.peek(&Ask { rule, key: key(&engine, at), cost: 0 }, START).remaining)
            .collect();
        let mut charged = vec![0; rules.len()];
        for (_, costs) in requests {
            let asks: Vec<Ask<'_>> = rules.iter().zip(0..).zip(&costs)
                .map(|((rule, at), cost)| Ask { rule, key: key(&engine, at), cost: *cost })
                .collect();
            let all = engine.take_all(&asks, START);
            prop_assert_eq!(all.decisions.len(), asks.len());
            prop_assert_eq!(all.allowed, all.decisions.iter().all(|d| d.allowed));
            if all.allowed {
                charged.iter_mut().zip(&asks).for_each(|(sum, ask)| *sum += ask.cost);
            }
            for ((ask, free), sum) in asks.iter().zip(&fresh).zip(&charged) {
                let left = engine.peek(&Ask { cost: 0, ..*ask }, START).remaining;
                prop_assert_eq!(left, free - sum);
            }
        }
    }

    #[test]
    fn a_refund_gives_back_what_was_taken_and_no_more(
        algorithm in algorithms(), (limit, window, requests) in traces(), used in 0u64..30,
    ) {
        let engine = small();
        let rule = rule(algorithm, limit, window);
        let mut now = START;
        let look = |now| engine.peek(&Ask { rule: &rule, key: key(&engine, 1), cost: 0 }, now).remaining;
        let fresh = look(now);
        for (gap, cost) in requests {
            now += gap;
            let ask = Ask { rule: &rule, key: key(&engine, 1), cost };
            let before = look(now);
            let (decision, receipt) = engine.take(&ask, now);
            if decision.allowed {
                let (later, used) = (now + gap, used.min(cost));
                let full = look(later);
                engine.settle(&ask, receipt, used, later);
                prop_assert!(look(later) >= full);
                prop_assert!(look(later) <= full + (cost - used));
                prop_assert!(look(later) <= fresh);
                if gap == 0 {
                    prop_assert_eq!(look(now), before - used);
                }
                now = later;
            }
        }
    }

    #[test]
    fn a_cost_known_later_is_charged_even_if_it_does_not_fit(
        algorithm in algorithms(), (limit, window, _) in traces(), more in 1u64..1_000,
    ) {
        let engine = small();
        let rule = rule(algorithm, limit, window);
        let ask = Ask { rule: &rule, key: key(&engine, 1), cost: 1 };
        let before = engine.peek(&Ask { cost: 0, ..ask }, START).remaining;
        let (decision, receipt) = engine.take(&ask, START);
        prop_assert!(decision.allowed);
        engine.settle(&ask, receipt, 1 + more, START);
        let after = engine.peek(&Ask { cost: 0, ..ask }, START).remaining;
        prop_assert_eq!(after, before.saturating_sub(1 + more));
    }

    #[test]
    fn a_leaky_bucket_is_nginx_limit_req(
        interval in 1u64..2_000_000_000, burst in 0u64..50,
        gaps in prop::collection::vec(prop_oneof![Just(0), 0u64..3_000_000_000, 0u64..10], 1..100),
    ) {
        let engine = small();
        let rule = Rule::leaky(1e9 / interval as f64, burst as f64).unwrap();
        // The rate is a fraction; its interval is the whole number it was made of, or one more.
        let probe = engine.take(&Ask { rule: &rule, key: key(&engine, 0), cost: 1 }, START).0.reset;
        prop_assert!(probe == interval || probe == interval + 1);
        let mut model = LimitReq { interval: probe, burst, state: None };
        let mut now = START;
        for gap in gaps {
            now += gap;
            let ask = Ask { rule: &rule, key: key(&engine, 1), cost: 1 };
            let (decision, _) = engine.take(&ask, now);
            let expected = model.incoming(now);
            prop_assert_eq!(decision.allowed.then_some(decision.delay), expected);
        }
    }

    #[test]
    fn no_number_is_too_large(
        algorithm in algorithms(), limit in 1u64.., window in 1u64.., cost in any::<u64>(),
        now in START..1 << 60, gap in 0..1u64 << 59, rate in 1e-300f64..1e300, burst in 0f64..1e300,
    ) {
        let engine = Engine::with_bytes(0);
        let leaky = Rule::leaky(rate, burst).unwrap();
        let made = Rule::new(algorithm, limit, std::time::Duration::from_nanos(window));
        for rule in made.into_iter().chain([leaky]) {
            for (cost, now) in [(1, now), (cost, now), (1, now + gap), (0, now)] {
                let ask = Ask { rule: &rule, key: key(&engine, 1), cost };
                let (decision, receipt) = engine.take(&ask, now);
                prop_assert!(decision.retry == NEVER || decision.retry <= 4 * HORIZON);
                if decision.allowed {
                    engine.settle(&ask, receipt, cost.wrapping_mul(3), now);
                }
            }
        }
    }
}

#[test]
fn what_is_refused_when_a_rule_is_made() {
    use crate::BadRule;
    use std::time::Duration;
    let check = |algorithm, limit, expected| {
        let made = Rule::new(algorithm, limit, Duration::from_secs(1));
        assert_eq!(made.err(), expected, "{algorithm:?} {limit}");
    };
    check(Algorithm::Gcra { burst: 1 }, 0, Some(BadRule::NoLimit));
    check(Algorithm::Gcra { burst: 0 }, 1, Some(BadRule::NoBurst));
    check(Algorithm::Log, 65, Some(BadRule::Log));
    check(Algorithm::Log, 64, None);
    let parts = |parts| Algorithm::Buckets {
        parts,
        strict: true,
    };
    check(parts(0), 1, Some(BadRule::Parts));
    check(parts(11), 1, Some(BadRule::Parts));
    check(parts(10), u64::MAX, None);
    let fixed = Algorithm::Fixed { aligned: true };
    let none = Rule::new(fixed, 1, Duration::ZERO);
    assert_eq!(none.err(), Some(BadRule::NoWindow));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(Rule::leaky(bad, 0.0).err(), Some(BadRule::Rate));
    }
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(Rule::leaky(1.0, bad).err(), Some(BadRule::Burst));
    }
}
