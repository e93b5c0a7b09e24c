use std::time::Duration;

use super::rig::*;
use crate::{Ask, Central, Grant};

fn ask(number: u64, want: u64) -> Ask {
    Ask {
        key: crate::key_text("t", "lease", "a"),
        limit: 1_000,
        window: MINUTE,
        number,
        want,
        back: 0,
        over: 0,
        of: 0,
    }
}

async fn lease(central: &Central, node: &str, ask: Ask) -> Grant {
    central.lease(node, &[ask], 0).await.remove(0).unwrap()
}

#[tokio::test]
async fn permits_get_fewer_as_the_limit_comes_near_and_never_exceed_it() {
    let redis = Redis::start();
    let central = redis.central();
    let mut granted = 0;
    let mut last = u64::MAX;
    for number in 1.. {
        // The other node comes once, and takes part from then on.
        if number == 1 {
            granted += lease(&central, "other", ask(1, 100)).await.permits;
        }
        let grant = lease(&central, "node", ask(number, 1_000)).await;
        assert!(grant.permits <= last);
        assert_eq!(grant.nodes, 2);
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
async fn the_same_ask_again_gets_the_same_permits() {
    let redis = Redis::start();
    let central = redis.central();
    let first = lease(&central, "node", ask(7, 300)).await;
    let again = lease(&central, "node", ask(7, 300)).await;
    assert_eq!((again.permits, again.left), (first.permits, first.left));
    assert_eq!(again.window, first.window);
}

#[tokio::test]
async fn what_is_given_back_is_there_for_others_in_its_window_only() {
    let redis = Redis::start();
    let central = redis.central();
    let had = lease(&central, "node", ask(1, 400)).await;
    assert_eq!((had.permits, had.left), (400, 600));
    let void = Ask {
        back: 400,
        of: had.window - 1,
        ..ask(2, 0)
    };
    assert_eq!(lease(&central, "node", void).await.left, 600);
    let back = Ask {
        back: 400,
        of: had.window,
        ..ask(3, 0)
    };
    assert_eq!(lease(&central, "node", back).await.left, 1_000);
    let over = Ask {
        over: 10,
        of: had.window,
        ..ask(4, 0)
    };
    assert_eq!(lease(&central, "node", over).await.left, 990);
}

#[tokio::test]
async fn a_new_window_has_the_whole_limit_and_remembers_who_came() {
    let redis = Redis::start();
    let central = redis.central();
    let short = |number, want| Ask {
        window: Duration::from_millis(400),
        ..ask(number, want)
    };
    let mut first = None;
    for node in 0..8 {
        let grant = lease(&central, &format!("node-{node}"), short(1, 1)).await;
        first.get_or_insert(grant.window);
        if first != Some(grant.window) {
            // A slow machine: the window ended in between, which is what comes next anyway.
            break;
        }
    }
    tokio::time::sleep(Duration::from_millis(450)).await;
    let next = lease(&central, "node-0", short(2, 1_000)).await;
    assert_ne!(Some(next.window), first);
    assert!(
        next.permits <= 500 && next.permits + next.left == 1_000,
        "{next:?}"
    );
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
    let grants = central.lease("node", &asks, 0).await;
    assert_eq!(grants.len(), 50);
    assert!(
        grants
            .iter()
            .all(|grant| grant.as_ref().unwrap().permits == 10)
    );
}
