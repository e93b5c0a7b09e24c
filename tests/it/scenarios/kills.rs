//! A thousand writes through the Admin API, and the gateway killed among them, over each store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
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
/// Refusals of one write in a row: a machine may be so busy that etcd misses its own deadlines, and
/// then each is answered 503. Not forever.
const REFUSALS: usize = 1_000;

pub(super) async fn embedded(world: Arc<World>) -> Result<()> {
    let config = json!({ "deployment": { "role": "traditional" } });
    thousand(&world, "thousand-embedded", &config).await
}

pub(super) async fn etcd(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::start(&world, "thousand-etcd-store", 1).await?;
    let mut section = cluster.section();
    // Nothing fails here but the gateway; a busy disk is given its time.
    section["timeout"] = json!(30);
    let config = json!({ "deployment": { "role": "traditional", "etcd": section } });
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
        let run = Run {
            gateway: Arc::clone(&gateway),
            next: Arc::clone(&next),
            answered: Arc::clone(&answered),
            killed: Arc::default(),
        };
        let mut writers = JoinSet::new();
        (0..WRITERS).for_each(|_| drop(writers.spawn(write(run.clone()))));
        if let Some(kill) = kill {
            while answered.load(Ordering::Relaxed) < kill {
                // However long it takes, as long as somebody writes.
                if let Some(ended) = writers.try_join_next() {
                    let ended = ended?;
                    bail!(
                        "a writer ended before anything was killed: {:?}",
                        ended.err()
                    );
                }
                tokio::time::sleep(POLL).await;
            }
            run.killed.store(true, Ordering::Relaxed);
            gateway.signal(Signal::SIGKILL)?;
        }
        for ended in writers.join_all().await {
            sent.extend(ended?);
        }
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

/// One life of the gateway.
#[derive(Clone)]
struct Run {
    gateway: Arc<Gateway>,
    /// The next write.
    next: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    /// Said before it is.
    killed: Arc<AtomicBool>,
}

/// Writes one route after the other until one is not answered. What is refused is written again: whether
/// it is there is uncertain. Each is large enough not to fit one page of a disk, and no two are the same.
async fn write(run: Run) -> Result<Vec<(String, (Value, bool))>> {
    let mut out = Vec::new();
    loop {
        let n = run.next.fetch_add(1, Ordering::Relaxed);
        if n >= WRITES {
            return Ok(out);
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
        let mut refusals = 0;
        let is_answered = loop {
            let uri = format!("/routes/{path}");
            let answer = run.gateway.admin("PUT", &uri, &route).await;
            match answer.status {
                Some(200 | 201) => break true,
                None if run.killed.load(Ordering::Relaxed) => break false,
                None | Some(503) if refusals < REFUSALS => {
                    refusals += 1;
                    tokio::time::sleep(POLL).await;
                }
                status => bail!(
                    "{path}: {status:?} {}",
                    String::from_utf8_lossy(&answer.body)
                ),
            }
        };
        out.push((path, (route, is_answered)));
        if !is_answered {
            return Ok(out);
        }
        run.answered.fetch_add(1, Ordering::Relaxed);
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
