use std::time::Duration;

use super::rig::*;
use crate::{Access, Ask, Away, Central, Charge, QuotaStore, Server, key_text};

fn cluster() -> Vec<lockgate_test_redis::Redis> {
    Cluster::start(lockgate_test_redis::free_port)
        .unwrap()
        .nodes
}

fn central(nodes: &[lockgate_test_redis::Redis], deadline: Duration) -> Central {
    let server = Server::Cluster {
        nodes: nodes.iter().map(|node| place(node.port())).collect(),
        access: Access::default(),
    };
    Central::new(server, deadline)
}

#[tokio::test]
async fn limits_are_spread_and_one_request_keeps_to_one_slot() {
    let mut nodes = cluster();
    let shared = central(&nodes, Duration::from_secs(2));
    for scope in 0..30 {
        let mut charges = [charge("a", fixed(2), 1), charge("b", fixed(5), 1)];
        for (at, charge) in charges.iter_mut().enumerate() {
            charge.key = key_text(&format!("user-{scope}"), &at.to_string(), "x");
        }
        for allowed in [true, true, false] {
            let verdict = shared.check(&charges, 0).await.unwrap();
            assert_eq!(verdict.allowed, allowed, "scope {scope}");
        }
    }
    let store: &dyn QuotaStore = &shared;
    for scope in 0..30 {
        // Permits are written down where their count is.
        let key = key_text(&format!("user-{scope}"), "leased", "x");
        let ask = Ask {
            key: key.clone(),
            law: fixed(100),
            number: 1,
            want: 10,
            back: 0,
            over: 0,
            mark: 0,
            held: 0,
            most: None,
            keeps: Duration::ZERO,
        };
        let granted = store.acquire(&[ask], 0).await.remove(0).unwrap();
        assert_eq!((granted.permits, granted.left), (10, 90));
        let standing = store.inspect(&key, fixed(100), 0).await.unwrap();
        assert_eq!((standing.remaining, standing.held), (90, 10));
        assert!(store.reset(&key, 0).await.unwrap());
    }
    let used = nodes
        .iter()
        .filter(|node| node.cli(&["DBSIZE"]).unwrap() != "0");
    assert!(used.count() >= 3);

    // A master dies: its replica takes over, and the gateway finds it.
    let dead = nodes.iter().position(lockgate_test_redis::Redis::is_master);
    drop(nodes.remove(dead.unwrap()));
    let mut now = 0;
    'scopes: for scope in 0..30 {
        let mut one = charge("c", fixed(5), 1);
        one.key = key_text(&format!("late-{scope}"), "r", "x");
        let mut last = None;
        for _ in 0..400 {
            now += 500_000_000;
            match shared.check(std::slice::from_ref(&one), now).await {
                Ok(_) => continue 'scopes,
                Err(away) => last = Some(away),
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        let state = nodes[0].cli(&["CLUSTER", "NODES"]).unwrap();
        panic!("scope {scope} was never found again: {last:?}\n{state}");
    }
}

#[tokio::test]
async fn limits_in_several_slots_cannot_be_one_request() {
    let nodes = cluster();
    let shared = central(&nodes, LIMIT);
    let mut charges = [charge("a", fixed(2), 1), charge("b", fixed(5), 1)];
    charges[0].key = key_text("one", "r", "x");
    charges[1].key = key_text("two", "r", "x");
    for _ in 0..9 {
        let away = shared.check(&charges, 0).await.unwrap_err();
        assert!(matches!(away, Away::Failed(_)), "{away}");
    }
    // Which is nobody's fault but theirs.
    assert!(shared.check(&charges[..1], 0).await.unwrap().allowed);
}

#[tokio::test]
async fn a_shard_that_is_frozen_takes_no_other_down_and_is_found_after_its_failover() {
    let nodes = cluster();
    let shared = central(&nodes, Duration::from_millis(400));
    let charges: Vec<_> = (0..60)
        .map(|scope| {
            let mut one = charge("a", fixed(1_000_000), 1);
            one.key = key_text(&format!("user-{scope}"), "r", "x");
            one
        })
        .collect();
    let mut now = 1;
    for one in &charges {
        // Within the deadline at some time, however busy the machine is.
        until_answered(&shared, one, &mut now).await;
    }
    let masters = || nodes.iter().filter(|node| node.is_master());
    let has = |node: &lockgate_test_redis::Redis, one: &Charge| {
        let said = node.cli(&["EXISTS", &one.key]).unwrap();
        said == "1" || said == "(integer) 1"
    };
    let frozen = masters().next().unwrap();
    let (mine, others): (Vec<_>, Vec<_>) = charges.iter().partition(|one| has(frozen, one));
    assert!(mine.len() > 9 && others.len() > 9);
    frozen.signal(Signal::SIGSTOP).unwrap();
    let mut failed = 0;
    for round in 0..8 {
        for one in &mine {
            // By this clock no pause is ever over.
            let asked = shared.check(std::slice::from_ref(one), now);
            let other = others[round % others.len()];
            let (asked, answered) =
                tokio::join!(asked, shared.check(std::slice::from_ref(other), now));
            failed += u32::from(matches!(asked, Err(Away::Late(_))));
            assert!(!matches!(answered, Err(Away::Known)), "{round}");
        }
    }
    assert!(failed > 0);
    for one in &others {
        until_answered(&shared, one, &mut now).await;
    }
    for one in &mine {
        // Another is its master after a while.
        until_answered(&shared, one, &mut now).await;
    }
}

/// By a clock that goes on.
async fn until_answered(central: &Central, one: &Charge, now: &mut u64) {
    let mut last = None;
    for _ in 0..800 {
        *now += 500_000_000;
        match central.check(std::slice::from_ref(one), *now).await {
            Ok(_) => return,
            Err(away) => last = Some(away),
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{} was never answered: {last:?}", one.key);
}
