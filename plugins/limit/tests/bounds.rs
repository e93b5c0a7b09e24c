//! P2: what can pass in any interval; and what an edit of a limit does to a running window.

use std::time::Duration;

use proptest::prelude::*;

use super::properties::{algorithms, traces};
use super::{START, key, rule, small};
use crate::slot::SECOND;
use crate::{Algorithm, Ask, Nanos};

/// The most that may pass between two requests that are `apart`, both included.
fn most(algorithm: Algorithm, limit: u64, window: Nanos, apart: Nanos) -> u64 {
    let windows = apart / window + 1;
    match algorithm {
        Algorithm::Gcra { burst } => {
            burst + (u128::from(apart) * u128::from(limit) / u128::from(window)) as u64
        }
        Algorithm::Log
        | Algorithm::Sliding { strict: true }
        | Algorithm::Buckets { strict: true, .. } => limit * windows,
        Algorithm::Fixed { .. } | Algorithm::Sliding { .. } | Algorithm::Buckets { .. } => {
            limit * (windows + 1)
        }
    }
}

proptest! {
    #[test]
    fn no_interval_sees_more_than_the_bound(
        algorithm in algorithms(), (limit, window, requests) in traces(),
    ) {
        let engine = small();
        let rule = rule(algorithm, limit, window);
        let (mut now, mut passed) = (START, Vec::new());
        for (gap, cost) in requests {
            now += gap;
            let ask = Ask { rule: &rule, key: key(&engine, 1), cost };
            if engine.take(&ask, now).0.allowed {
                passed.push((now, cost));
            }
        }
        for (from, (begin, _)) in passed.iter().enumerate() {
            let mut sum = 0;
            for (end, cost) in &passed[from..] {
                sum += cost;
                let most = most(algorithm, limit, window, end - begin);
                prop_assert!(sum <= most, "{sum} > {most} in {}", end - begin);
            }
        }
    }

    #[test]
    fn a_changed_limit_applies_to_what_was_counted(
        aligned in any::<bool>(), before in 1u64..20, after in 1u64..20, used in 0u64..20,
    ) {
        let engine = small();
        let fixed = Algorithm::Fixed { aligned };
        let (old, new) = (rule(fixed, before, 60 * SECOND), rule(fixed, after, 60 * SECOND));
        let key = key(&engine, 1);
        let passed = (0..used).filter(|_| engine.take(&Ask { rule: &old, key, cost: 1 }, START).0.allowed).count() as u64;
        let decision = engine.peek(&Ask { rule: &new, key, cost: 1 }, START);
        prop_assert_eq!(decision.allowed, passed < after);
        prop_assert_eq!(engine.peek(&Ask { rule: &new, key, cost: 0 }, START).remaining, after.saturating_sub(passed));
    }
}

/// Two requests under one window, then one under another: whether it still counts both.
#[test]
fn a_changed_window_keeps_its_count_and_ends_in_time() {
    let check = |algorithm: fn() -> Algorithm, from: u64, to: u64| {
        let engine = small();
        let key = key(&engine, 1);
        let (old, new) = (
            rule(algorithm(), 2, from * SECOND),
            rule(algorithm(), 2, to * SECOND),
        );
        let cost = 1;
        let ask = |rule| Ask { rule, key, cost };
        for _ in 0..2 {
            assert!(engine.take(&ask(&old), START).0.allowed);
        }
        let ask = ask(&new);
        let (decision, _) = engine.take(&ask, START + 1);
        assert!(!decision.allowed, "{from} {to}");
        let longest = Duration::from_secs(2 * to + 1);
        assert!(
            Duration::from_nanos(decision.retry) <= longest,
            "{from} {to}"
        );
        assert!(engine.take(&ask, START + 1 + decision.retry).0.allowed);
    };
    for (from, to) in [(60, 3_600), (3_600, 60), (60, 61), (1, 60), (60, 1)] {
        check(|| Algorithm::Fixed { aligned: false }, from, to);
        check(|| Algorithm::Fixed { aligned: true }, from, to);
        check(|| Algorithm::Sliding { strict: false }, from, to);
    }
}
