//! Numbers, times and marks at the edge of what can be counted.

use std::time::Duration;

use super::rig::*;
use crate::{Ask, BadLaw, Law, Settled};

#[tokio::test]
async fn what_is_given_back_late_makes_no_room_for_others() {
    let redis = Redis::start();
    let central = redis.central();
    // So long that none ends while the test looks.
    let window = Duration::from_secs(86_400 * 300);
    let day = 86_400_000_000;
    let hold = |interval_us| Law::Bucket {
        interval_us,
        holds: 5.0,
    };
    for (name, law, ago) in [
        ("f", Law::Fixed { limit: 5, window }, day),
        // Windows have numbers: the one before the last.
        ("s", Law::Sliding { limit: 5, window }, 2),
        ("l", Law::Log { limit: 5, window }, 1),
        // All of it has drained.
        ("b", hold(60e9), 86_400 * day),
    ] {
        let others = central.check(&[charge(name, law, 3)], 0).await.unwrap();
        let mark = others.outcomes[0].mark;
        let looks = charge(name, law, 0);
        let give = async |mark| {
            let charge = charge(name, law, 3);
            let settled = [Settled {
                charge,
                more: -3,
                mark,
            }];
            central.settle(&settled, 0).await.unwrap();
            let left = central.check(std::slice::from_ref(&looks), 0).await;
            left.unwrap().outcomes[0].remaining
        };
        assert_eq!(give(mark.saturating_sub(ago)).await, 2, "{name}");
        assert_eq!(give(mark).await, 5, "{name}");
    }
}

#[tokio::test]
async fn a_clock_that_went_back_into_the_window_before_is_no_fresh_start() {
    let redis = Redis::start();
    let central = redis.central();
    let window = Duration::from_secs(86_400);
    let law = Law::Sliding { limit: 8, window };
    let key = charge("a", law, 0).key;
    let seconds: u64 = redis
        .cli(&["TIME"])
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    // Used up in the window that has not begun any more.
    let next = (seconds / 86_400 + 1).to_string();
    redis.cli(&["HSET", &key, "w", &next, "p", "0", "c", "7"]);
    let verdict = take(&central, "a", law).await;
    assert!(verdict.allowed);
    assert_eq!(verdict.outcomes[0].mark.to_string(), next);
    assert_eq!(passed(&central, "a", law, 9).await, 0);
    // What was charged there is given back there.
    let settled = Settled {
        charge: charge("a", law, 0),
        more: -1,
        mark: verdict.outcomes[0].mark,
    };
    central.settle(&[settled], 0).await.unwrap();
    assert_eq!(passed(&central, "a", law, 9).await, 1);
}

#[tokio::test]
async fn debts_are_bounded_whatever_was_charged_before() {
    let redis = Redis::start();
    let central = redis.central();
    let window = Duration::from_secs(86_400);
    for (name, law) in [("f", fixed(5)), ("s", Law::Sliding { limit: 5, window })] {
        let first = take(&central, name, law).await.outcomes[0];
        let settle = async |more| {
            let charge = charge(name, law, 0);
            let mark = first.mark;
            let settled = [Settled { charge, more, mark }];
            central.settle(&settled, 0).await.unwrap();
        };
        for more in [3, i64::MAX, i64::MAX, 1] {
            settle(more).await;
        }
        // Ten limits, and no more: of them all but two are given back.
        settle(-48).await;
        assert_eq!(passed(&central, name, law, 9).await, 3, "{name}");
    }
}

#[tokio::test]
async fn the_largest_limit_is_one() {
    let redis = Redis::start();
    let central = redis.central();
    let law = fixed((1 << 53) - 1);
    let all = charge("a", law, (1 << 53) - 1);
    let verdict = central.check(&[all], 0).await.unwrap();
    assert!(verdict.allowed);
    assert_eq!(verdict.outcomes[0].remaining, 0);
    assert!(!take(&central, "a", law).await.allowed);
    let limit = 1 << 53;
    let more = Law::Fixed {
        limit,
        window: MINUTE,
    };
    assert_eq!(more.checked(), Err(BadLaw::Limit));
}

#[tokio::test]
async fn an_ask_that_owes_more_than_can_be_counted_is_worked_off_once() {
    let redis = Redis::start();
    let central = redis.central();
    let ask = |number, want| Ask {
        key: charge("a", fixed(1_000), 0).key,
        law: fixed(1_000),
        number,
        want,
        back: 0,
        over: 0,
        mark: 0,
        held: 0,
        most: None,
        keeps: Duration::ZERO,
    };
    let lease = async |ask: Ask| central.lease(&[ask], 0).await.remove(0).unwrap();
    let granted = lease(ask(1, 400)).await;
    let owes = Ask {
        back: 50,
        over: u64::MAX,
        mark: granted.mark,
        ..ask(2, 0)
    };
    for _ in 0..5 {
        assert_eq!(lease(owes.clone()).await.left, 0);
    }
    // Ten limits, of which 9,050 are given back: 950 are used, whatever was said before.
    let settled = Settled {
        charge: charge("a", fixed(1_000), 0),
        more: -9_050,
        mark: granted.mark,
    };
    central.settle(&[settled], 0).await.unwrap();
    assert_eq!(passed(&central, "a", fixed(1_000), 60).await, 50);
}

#[tokio::test]
async fn who_holds_for_a_moment_does_not_make_others_forgotten() {
    let redis = Redis::start();
    let day = Duration::from_secs(86_400);
    let law = Law::Sliding {
        limit: 1_000,
        window: day,
    };
    let key = charge("a", law, 0).key;
    let lease = async |keeps| {
        let ask = Ask {
            key: key.clone(),
            law,
            number: 1,
            want: 10,
            back: 0,
            over: 0,
            mark: 0,
            held: 0,
            most: Some(100),
            keeps,
        };
        // Another gateway each time.
        redis.central().lease(&[ask], 0).await.remove(0).unwrap()
    };
    assert_eq!(lease(Duration::from_secs(600)).await.others, 0);
    assert_eq!(lease(Duration::from_millis(100)).await.others, 10);
    let book = redis.cli(&["PTTL", &crate::key::book_of(&key)]);
    let left: u64 = book.parse().unwrap();
    assert!(left > 900_000, "{left}");
}
