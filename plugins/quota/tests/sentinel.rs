use std::time::Duration;

use super::rig::*;
use crate::{Access, Central, Place, Server};

fn trio() -> Sentinels {
    Sentinels::start(lockgate_test_redis::free_port).unwrap()
}

fn server(places: Vec<Place>) -> Server {
    Server::Sentinel {
        sentinels: places,
        master: "main".to_owned(),
        access: Access::default(),
        sentinel_access: Access::default(),
    }
}

fn central(trio: &Sentinels, deadline: Duration) -> Central {
    let places = trio.sentinels.iter().map(|one| place(one.port()));
    Central::new(server(places.collect()), deadline)
}

#[tokio::test]
async fn the_master_is_found_and_after_its_death_the_next_one() {
    let mut trio = trio();
    let central = central(&trio, Duration::from_secs(2));
    assert!(take(&central, "a", fixed(9)).await.allowed);
    let replica = &trio.replica;
    until("the replica to have it", || {
        replica
            .cli(&["GET", &charge("a", fixed(9), 0).key])
            .unwrap()
            == "1"
    });
    trio.fail_over().unwrap();
    // By a clock that goes on.
    let mut now = 0;
    loop {
        now += 500_000_000;
        assert!(now < 500_000_000 * 400, "never found");
        let asked = central.check(&[charge("a", fixed(9), 1)], now).await;
        if let Ok(verdict) = asked {
            // What was counted came along.
            assert_eq!(verdict.outcomes[0].remaining, 7);
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_sentinel_that_is_away_is_passed_over() {
    let mut trio = trio();
    drop(trio.sentinels.remove(0));
    assert!(take(&central(&trio, LIMIT), "a", fixed(9)).await.allowed);
    // The first one in the list does not listen at all.
    let mut sentinels = vec![place(free_port())];
    sentinels.extend(trio.sentinels.iter().map(|one| place(one.port())));
    let central = Central::new(server(sentinels), LIMIT);
    assert!(take(&central, "a", fixed(9)).await.allowed);
}

#[tokio::test]
async fn a_frozen_sentinel_costs_time_but_not_the_connection() {
    let trio = trio();
    trio.sentinels[0].signal(Signal::SIGSTOP).unwrap();
    // Far less than the frozen one takes: requests give up, connecting goes on.
    let central = central(&trio, Duration::from_millis(100));
    let mut now = 0;
    loop {
        now += 500_000_000;
        assert!(now < 500_000_000 * 400, "never connected");
        if let Ok(verdict) = central.check(&[charge("a", fixed(9), 1)], now).await {
            assert!(verdict.allowed);
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
