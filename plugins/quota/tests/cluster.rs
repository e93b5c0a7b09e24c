use std::process::Command;
use std::time::Duration;

use super::rig::*;
use crate::{Access, Central, Server, key_text};

/// Three masters with a replica each.
fn cluster() -> Vec<Redis> {
    let nodes: Vec<_> = (0..6)
        .map(|_| {
            // The bus has a port of its own, 10,000 higher unless it is said.
            let bus = free_port().to_string();
            let options = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            Redis::with(&[&options[..], &["--cluster-node-timeout", "1500"]].concat())
        })
        .collect();
    let places = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
    let made = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(places)
        .args(["--cluster-replicas", "1", "--cluster-yes"])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stdout)
    );
    until("all nodes to agree", || {
        nodes.iter().all(|node| {
            let info = node.cli(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok")
                && info.contains("cluster_known_nodes:6")
                && !node
                    .cli(&["INFO", "replication"])
                    .contains("master_link_status:down")
        })
    });
    nodes
}

fn central(nodes: &[Redis], deadline: Duration) -> Central {
    let server = Server::Cluster {
        nodes: nodes.iter().map(Redis::place).collect(),
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
    let used = nodes.iter().filter(|node| node.cli(&["DBSIZE"]) != "0");
    assert!(used.count() >= 3);

    // A master dies: its replica takes over, and the gateway finds it.
    let dead = nodes
        .iter()
        .position(|node| node.cli(&["ROLE"]).starts_with("master"));
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
        let state = nodes[0].cli(&["CLUSTER", "NODES"]);
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
    let away = shared.check(&charges, 0).await.unwrap_err();
    assert!(matches!(away, crate::Away::Failed(_)), "{away}");
}
