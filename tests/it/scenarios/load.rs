//! Steady traffic in the background, and edits under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{gateway, get, once, one_route, target, wants};
use crate::World;
use crate::client::{Connection, Target};
use crate::gateway::write_document;

/// Keep-alive clients in the background.
const CLIENTS: usize = 6;
/// Edits of the scenario, and the pause between them: twenty a second for four seconds.
const EDITS: u64 = 80;
const PAUSE: Duration = Duration::from_millis(50);
/// Failures that are kept for the report.
const SHOWN: usize = 5;

/// Clients that send one request after the other until stopped.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: JoinSet<Vec<String>>,
}

impl Load {
    /// Starts the clients.
    pub(super) fn start(target: &Target) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let client = client(target.clone(), Arc::clone(&stop), Arc::clone(&answered));
            clients.spawn(client);
        }
        Load {
            stop,
            answered,
            clients,
        }
    }

    /// How many answers came so far.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Stops them; fails when a single request failed.
    pub(super) async fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let failures: Vec<String> = self
            .clients
            .join_all()
            .await
            .into_iter()
            .flatten()
            .collect();
        let answered = self.answered.load(Ordering::Relaxed);
        ensure!(
            failures.is_empty(),
            "{} of {answered} requests failed: {:?}",
            failures.len(),
            &failures[..failures.len().min(SHOWN)]
        );
        ensure!(answered > 0, "no request was answered");
        Ok(answered)
    }
}

/// Keeps its connection until the gateway says `Connection: close`; anything else that ends it is a failure.
async fn client(target: Target, stop: Arc<AtomicBool>, answered: Arc<AtomicU64>) -> Vec<String> {
    let mut failures = Vec::new();
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        let mut open = match connection.take() {
            Some(open) => open,
            None => match Connection::open(&target).await {
                Ok(open) => open,
                Err(error) => {
                    failures.push(format!("connect: {error:#}"));
                    tokio::task::yield_now().await;
                    continue;
                }
            },
        };
        let answer = open.exchange(&get("/load", "load")).await;
        if answer.status == Some(200) && !answer.cut {
            answered.fetch_add(1, Ordering::Relaxed);
            if answer.all("connection") != ["close"] {
                connection = Some(open);
            }
        } else {
            failures.push(format!("{:?} {:?}", answer.status, answer.error));
        }
    }
    failures
}

pub(super) async fn hot_edits(world: Arc<World>) -> Result<()> {
    let gateway = gateway(&world, "hot-edits", &json!({}), one_route(&world)?).await?;
    let target = target(&gateway)?;
    let load = Load::start(&target);
    let before = gateway.revision().await?;
    let mut every = tokio::time::interval(PAUSE);
    for edit in 1..=EDITS {
        every.tick().await;
        write_document(&gateway.dir, &edited(&world, edit)?)?;
    }
    gateway.wait_revision_above(before).await?;
    // The last edit is live when its path answers; a lost one runs into the deadline of the loop.
    let last = format!("/edited/{EDITS}");
    let mut tries = 0_u32;
    while once(&target, &last).await.server() != Some("echo2") {
        tries += 1;
        ensure!(tries < 500, "the last of {EDITS} edits never went live");
        tokio::time::sleep(crate::gateway::POLL).await;
    }
    let revisions = gateway.revision().await? - before;
    load.stop().await?;
    ensure!(
        revisions >= 4,
        "{EDITS} edits gave only {revisions} revisions"
    );
    wants(&once(&target, "/x").await, 200, "afterwards")
}

/// The route under load, and neighbours that come and go.
fn edited(world: &World, edit: u64) -> Result<Value> {
    let mut document = one_route(world)?;
    let echo2 = world.upstreams.address("echo2")?.to_string();
    if let Some(routes) = document["routes"].as_array_mut() {
        for n in edit..edit + 20 {
            routes.push(json!({ "id": format!("n{n}"), "uri": format!("/n/{n}"),
                "upstream": { "nodes": { (echo2.as_str()): 1 } } }));
        }
        routes.push(json!({ "id": "edited", "uri": format!("/edited/{edit}"),
            "upstream": { "nodes": { echo2: 1 } } }));
    }
    Ok(document)
}
