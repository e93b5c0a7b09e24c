//! A thousand writes through the Admin API, and the gateway killed among them, over each store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::{gateway, wants};
use crate::World;
use crate::gateway::{Gateway, POLL};

/// Writes in all, and clients that make them.
const WRITES: usize = 1_000;
const WRITERS: usize = 8;
/// After so many answers the process is killed.
const KILLS: [usize; 4] = [50, 300, 550, 800];
/// A debug build makes that many writes, or starts, well within this.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) async fn embedded(world: Arc<World>) -> Result<()> {
    let config = json!({ "deployment": { "role": "traditional" } });
    thousand(&world, "thousand-embedded", &config).await
}

pub(super) async fn etcd(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::start(&world, "thousand-etcd-store", 1).await?;
    let config = json!({ "deployment": { "role": "traditional", "etcd": cluster.section() } });
    thousand(&world, "thousand-etcd", &config).await
}

/// What was sent, and whether it was answered.
type Sent = BTreeMap<String, (Value, bool)>;

async fn thousand(world: &World, name: &str, config: &Value) -> Result<()> {
    let mut sent = Sent::new();
    let next = Arc::new(AtomicUsize::new(0));
    for kill in KILLS.into_iter().map(Some).chain([None]) {
        let gateway = Arc::new(gateway(world, name, config, json!({})).await?);
        check(&gateway, &sent)
            .await
            .with_context(|| format!("before {kill:?}"))?;
        let answered = Arc::new(AtomicUsize::new(sent.values().filter(|s| s.1).count()));
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (gateway, next) = (Arc::clone(&gateway), Arc::clone(&next));
            writers.spawn(write(gateway, next, Arc::clone(&answered)));
        }
        let start = Instant::now();
        if let Some(kill) = kill {
            while answered.load(Ordering::Relaxed) < kill {
                ensure!(start.elapsed() < LIMIT, "{kill} writes take too long");
                tokio::time::sleep(POLL).await;
            }
            gateway.signal(Signal::SIGKILL)?;
        }
        sent.extend(writers.join_all().await.into_iter().flatten());
        if kill.is_none() {
            check(&gateway, &sent).await.context("at the end")?;
        }
    }
    let answered = sent.values().filter(|sent| sent.1).count();
    ensure!(
        sent.len() >= WRITES && answered > WRITES - KILLS.len() * WRITERS - 1,
        "{answered} of {} writes were answered",
        sent.len()
    );
    Ok(())
}

/// Writes one route after the other until one is not answered. Each is large enough not to fit one
/// page of a disk, and no two are the same.
async fn write(
    gateway: Arc<Gateway>,
    next: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
) -> Vec<(String, (Value, bool))> {
    let mut out = Vec::new();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= WRITES {
            return out;
        }
        let labels: serde_json::Map<String, Value> = (0..100)
            .map(|at| {
                (
                    format!("label-{at}"),
                    json!(format!("value-{n}-{at}-{}", "x".repeat(30))),
                )
            })
            .collect();
        let route = json!({
            "uri": format!("/r/{n}"), "upstream": { "nodes": { "127.0.0.1:9": 1 } }, "labels": labels,
        });
        let path = format!("r{n}");
        let answer = gateway
            .admin("PUT", &format!("/routes/{path}"), &route)
            .await;
        let is_answered = answer.status == Some(201);
        out.push((path, (route, is_answered)));
        if !is_answered {
            return out;
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything that was answered is there, and whatever is there is as it was sent.
async fn check(gateway: &Gateway, sent: &Sent) -> Result<()> {
    let answer = gateway.admin("GET", "/routes", &Value::Null).await;
    wants(&answer, 200, "the list")?;
    let page: Value = serde_json::from_slice(&answer.body)?;
    let list = page["list"].as_array().context("no list")?;
    let mut held: BTreeMap<&str, &Value> = BTreeMap::new();
    for item in list {
        held.insert(
            item["value"]["id"].as_str().context("no id")?,
            &item["value"],
        );
    }
    for (path, (_, answered)) in sent {
        ensure!(
            !answered || held.contains_key(path.as_str()),
            "{path} is lost"
        );
    }
    for (id, value) in held {
        let (wanted, _) = sent.get(id).with_context(|| format!("{id} was not sent"))?;
        for member in ["uri", "upstream", "labels"] {
            ensure!(
                value[member] == wanted[member],
                "{id}: {member} is {}",
                value[member]
            );
        }
    }
    let page = gateway.configuration().await?;
    ensure!(page["rejected"] == json!([]), "{page}");
    Ok(())
}
