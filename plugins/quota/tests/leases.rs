use std::time::Duration;

use super::rig::*;
use crate::{Ask, Central, Grant, Keeper, Law, QuotaStore};

fn ask(number: u64, want: u64) -> Ask {
    Ask {
        key: crate::key_text("t", "rule", "a"),
        law: fixed(1_000),
        number,
        want,
        back: 0,
        over: 0,
        mark: 0,
        held: 0,
        most: None,
        keeps: Duration::ZERO,
    }
}

async fn lease(central: &Central, ask: Ask) -> Grant {
    central.lease(&[ask], 0).await.remove(0).unwrap()
}

#[tokio::test]
async fn permits_get_fewer_as_the_limit_comes_near_and_never_exceed_it() {
    let redis = Redis::start();
    let (one, other) = (redis.central(), redis.central());
    let mut granted = 0;
    let mut last = u64::MAX;
    for number in 1.. {
        // The other node comes once, and takes part from then on.
        if number == 1 {
            granted += lease(&other, ask(1, 100)).await.permits;
        }
        let grant = lease(&one, ask(number, 1_000)).await;
        assert!(grant.permits <= last);
        assert_eq!((grant.nodes, grant.others), (2, 100));
        last = grant.permits;
        granted += grant.permits;
        assert_eq!(grant.left, 1_000 - granted);
        if grant.permits == 0 {
            assert!(number < 40, "as often as half of a half");
            break;
        }
    }
    assert_eq!(granted, 1_000);
}

#[tokio::test]
async fn the_same_ask_again_gets_the_same_permits_and_an_older_one_none() {
    let redis = Redis::start();
    let central = redis.central();
    let first = lease(&central, ask(7, 300)).await;
    let again = lease(&central, ask(7, 300)).await;
    assert_eq!((again.permits, again.left), (first.permits, first.left));
    assert_eq!(again.mark, first.mark);
    // It was under way for long.
    let late = Ask {
        back: 300,
        mark: first.mark,
        ..ask(6, 300)
    };
    let late = lease(&central, late).await;
    assert_eq!((late.permits, late.left), (0, first.left));
}

#[tokio::test]
async fn what_is_given_back_is_there_for_others_in_its_window_only() {
    let redis = Redis::start();
    let central = redis.central();
    let had = lease(&central, ask(1, 400)).await;
    assert_eq!((had.permits, had.left), (400, 600));
    let void = Ask {
        back: 400,
        mark: had.mark - 10_000_000,
        ..ask(2, 0)
    };
    assert_eq!(lease(&central, void).await.left, 600);
    let back = |number, back| Ask {
        back,
        mark: had.mark,
        ..ask(number, 0)
    };
    assert_eq!(lease(&central, back(3, 400)).await.left, 1_000);
    let over = Ask {
        over: 10,
        ..back(4, 0)
    };
    assert_eq!(lease(&central, over).await.left, 990);
}

#[tokio::test]
async fn requests_and_permits_are_charged_to_one_count() {
    let redis = Redis::start();
    let (asks, takes) = (redis.central(), redis.central());
    assert_eq!(passed(&asks, "a", fixed(1_000), 7).await, 7);
    let grant = lease(&takes, ask(1, 200)).await;
    assert_eq!((grant.permits, grant.left), (200, 793));
    let seen = take(&asks, "a", fixed(1_000)).await.outcomes[0];
    assert_eq!(seen.remaining, 792);
    let store: &dyn QuotaStore = &asks;
    let key = ask(1, 0).key;
    let standing = store.inspect(&key, fixed(1_000), 0).await.unwrap();
    assert_eq!(
        (standing.remaining, standing.nodes, standing.held),
        (792, 1, 200)
    );
    assert_eq!(standing.retry, Duration::ZERO);
    assert!(store.reset(&key, 0).await.unwrap());
    assert!(!store.reset(&key, 0).await.unwrap());
    let standing = store.inspect(&key, fixed(1_000), 0).await.unwrap();
    assert_eq!(
        (standing.remaining, standing.nodes, standing.held),
        (1_000, 0, 0)
    );
    assert_eq!(store.keeper(), Keeper::Redis);
    assert_eq!(store.calls().answered, 12);
}

#[tokio::test]
async fn a_new_window_has_the_whole_limit_and_remembers_who_came() {
    let redis = Redis::start();
    let nodes: Vec<_> = (0..8).map(|_| redis.central()).collect();
    let window = Duration::from_millis(400);
    let limit = 1_000;
    for tried in 0..50u64 {
        let short = |number, want| Ask {
            key: crate::key_text("t", "rule", &tried.to_string()),
            law: Law::Fixed { limit, window },
            ..ask(tried * 10 + number, want)
        };
        let mut marks = Vec::new();
        for node in &nodes {
            marks.push(lease(node, short(1, 1)).await.mark);
        }
        let together = marks.iter().all(|mark| *mark == marks[0]);
        tokio::time::sleep(Duration::from_millis(410)).await;
        let next = lease(&nodes[0], short(2, limit)).await;
        assert_ne!(next.mark, marks[0]);
        assert_eq!(next.permits + next.left, limit, "{next:?}");
        // Marks are in microseconds. On a slow machine a window ended in between: once more.
        if together && next.mark < marks[0] + 750_000 {
            // A quarter of those who came in the last one are expected.
            assert_eq!((next.nodes, next.permits), (2, 250));
            return;
        }
    }
    panic!("no window saw all of them");
}

#[tokio::test]
async fn permits_without_a_window_are_bounded_by_what_may_be_held() {
    let redis = Redis::start();
    let (one, other) = (redis.central(), redis.central());
    let hour = Duration::from_secs(3_600);
    for law in [
        Law::Sliding {
            limit: 10_000,
            window: hour * 24,
        },
        Law::Bucket {
            interval_us: 3.6e9,
            holds: 10_000.0,
        },
    ] {
        let most = |number, want, held| Ask {
            key: crate::key_text("t", "rule", law.words().0),
            law,
            most: Some(100),
            keeps: hour,
            held,
            ..ask(number, want)
        };
        let first = lease(&one, most(1, 80, 0)).await;
        assert_eq!((first.permits, first.left), (80, 9_920), "{law:?}");
        assert!(first.good > hour - MINUTE && first.good <= hour);
        let second = lease(&other, most(1, 80, 0)).await;
        assert_eq!((second.permits, second.others), (20, 80), "{law:?}");
        // Spent but for 30, the first may have 50 more.
        let third = lease(&one, most(2, 80, 30)).await;
        assert_eq!((third.permits, third.left), (50, 9_850), "{law:?}");
        let back = Ask {
            back: 80,
            mark: third.mark,
            ..most(3, 0, 0)
        };
        assert_eq!(lease(&one, back).await.left, 9_930, "{law:?}");
    }
}

#[tokio::test]
async fn asks_of_several_limits_go_together() {
    let redis = Redis::start();
    let central = redis.central();
    let asks: Vec<_> = (0..50)
        .map(|n| Ask {
            key: crate::key_text(&format!("scope-{n}"), "lease", "a"),
            ..ask(1, 10)
        })
        .collect();
    let grants = central.lease(&asks, 0).await;
    assert_eq!(grants.len(), 50);
    assert!(
        grants
            .iter()
            .all(|grant| grant.as_ref().unwrap().permits == 10)
    );
}
