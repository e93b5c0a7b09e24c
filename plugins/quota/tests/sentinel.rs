use std::time::Duration;

use super::rig::*;
use crate::{Access, Central, Server};

/// Three Sentinels that watch a master with a replica.
struct Trio {
    master: Redis,
    replica: Redis,
    sentinels: Vec<Redis>,
}

impl Trio {
    fn start() -> Trio {
        let master = Redis::start();
        let port = master.port.to_string();
        let replica = Redis::with(&["--replicaof", "127.0.0.1", &port]);
        let lines = format!(
            "sentinel monitor main 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds main 1000\n\
             sentinel failover-timeout main 5000\n"
        );
        let sentinels: Vec<_> = (0..3).map(|_| Redis::sentinel(&lines)).collect();
        let trio = Trio {
            master,
            replica,
            sentinels,
        };
        until("the Sentinels to know each other", || {
            trio.sentinels.iter().all(|sentinel| {
                let known = sentinel.cli(&["SENTINEL", "master", "main"]);
                let value = |name: &str| {
                    let mut lines = known.lines().skip_while(|line| *line != name);
                    lines.nth(1).map(str::to_owned)
                };
                value("num-other-sentinels").as_deref() == Some("2")
                    && value("num-slaves").as_deref() == Some("1")
            })
        });
        trio
    }

    fn central(&self, deadline: Duration) -> Central {
        let server = Server::Sentinel {
            sentinels: self.sentinels.iter().map(Redis::place).collect(),
            master: "main".to_owned(),
            access: Access::default(),
            sentinel_access: Access::default(),
        };
        Central::new(server, deadline)
    }
}

#[tokio::test]
async fn the_master_is_found_and_after_its_death_the_next_one() {
    let trio = Trio::start();
    let central = trio.central(Duration::from_secs(2));
    assert!(take(&central, "a", fixed(9)).await.allowed);
    let replica = &trio.replica;
    until("the replica to have it", || {
        replica.cli(&["GET", &charge("a", fixed(9), 0).key]) == "1"
    });
    let Trio {
        master,
        replica,
        sentinels,
    } = trio;
    drop(master);
    until("a new master", || {
        replica.cli(&["ROLE"]).starts_with("master")
    });
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
    drop(sentinels);
}

#[tokio::test]
async fn a_sentinel_that_is_away_is_passed_over() {
    let mut trio = Trio::start();
    drop(trio.sentinels.remove(0));
    assert!(take(&trio.central(LIMIT), "a", fixed(9)).await.allowed);
    // The first one in the list does not listen at all.
    let mut sentinels = vec![place(free_port())];
    sentinels.extend(trio.sentinels.iter().map(Redis::place));
    let server = Server::Sentinel {
        sentinels,
        master: "main".to_owned(),
        access: Access::default(),
        sentinel_access: Access::default(),
    };
    assert!(
        take(&Central::new(server, LIMIT), "a", fixed(9))
            .await
            .allowed
    );
}

#[tokio::test]
async fn a_frozen_sentinel_costs_time_but_not_the_connection() {
    let trio = Trio::start();
    trio.sentinels[0].signal(Signal::SIGSTOP);
    // Far less than the frozen one takes: requests give up, connecting goes on.
    let central = trio.central(Duration::from_millis(100));
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
