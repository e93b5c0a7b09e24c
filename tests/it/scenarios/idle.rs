//! Clients that do little: half a head for ever, or nothing at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use super::{gateway, get, once, one_route, resident, target, wants};
use crate::World;
use crate::client::Connection;

/// `client_header_timeout` of the scenario.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// A client that sends a byte now and then must be given up as well.
const DRIP: Duration = Duration::from_millis(200);
/// Idle connections of the second scenario.
const IDLE: usize = 2_000;
/// Connections opened at the same time, below the listen backlog.
const OPENED_AT_ONCE: usize = 100;
/// What one may cost: its buffers and its task, in a debug build.
const KIB_EACH: u64 = 48;

pub(super) async fn slow_head(world: Arc<World>) -> Result<()> {
    let config = json!({ "nginx_config": { "http": { "client_header_timeout": "1s" } } });
    let gateway = gateway(&world, "slow-head", &config, one_route(&world)?).await?;
    let target = target(&gateway)?;
    let mut silent = Connection::open(&target).await?;
    silent.write(b"GET /x HTTP/1.1\r\nHost: sce").await?;
    let start = Instant::now();
    let dripping = async {
        let mut connection = Connection::open(&target).await?;
        connection.write(b"GET /x HTTP/1.1\r\nX-Slow: ").await?;
        while start.elapsed() < HEAD_TIMEOUT * 4 {
            if connection.write(b"a").await.is_err() {
                return anyhow::Ok(true);
            }
            tokio::time::sleep(DRIP).await;
        }
        Ok(false)
    };
    let (answer, given_up) = tokio::join!(silent.read("GET"), dripping);
    ensure!(
        start.elapsed() < HEAD_TIMEOUT * 6 && answer.status.is_none_or(|s| s == 408),
        "half a head: {:?} after {:?}",
        answer.status,
        start.elapsed()
    );
    ensure!(
        given_up?,
        "a dripping head was read for {:?}",
        HEAD_TIMEOUT * 4
    );
    wants(&once(&target, "/x").await, 200, "afterwards")
}

/// Each byte comes in time, the body never does. Pingora has no such limit: it waits for each byte.
pub(super) async fn slow_body(world: Arc<World>) -> Result<()> {
    let general = world.engine["lockgate"]["engine"] == "general";
    let config = json!({ "nginx_config": { "http": { "client_body_timeout": "1s" } } });
    let gateway = gateway(&world, "slow-body", &config, one_route(&world)?).await?;
    let target = target(&gateway)?;
    let start = Instant::now();
    let mut connection = Connection::open(&target).await?;
    let head = b"POST /x HTTP/1.1\r\nHost: scenario.test\r\nContent-Length: 100000\r\n\r\n";
    connection.write(head).await?;
    let mut given_up = false;
    while !given_up && start.elapsed() < HEAD_TIMEOUT * 4 {
        given_up = connection.write(b"a").await.is_err();
        tokio::time::sleep(DRIP).await;
    }
    ensure!(
        given_up != general,
        "a dripping body: given up is {given_up} after {:?}",
        start.elapsed()
    );
    wants(&once(&target, "/x").await, 200, "afterwards")
}

pub(super) async fn many(world: Arc<World>) -> Result<()> {
    let gateway = gateway(&world, "idle", &json!({}), one_route(&world)?).await?;
    let target = target(&gateway)?;
    wants(&once(&target, "/x").await, 200, "before")?;
    let before = resident(gateway.pid())?;
    let mut open = Vec::with_capacity(IDLE);
    while open.len() < IDLE {
        let mut tasks = JoinSet::new();
        for _ in 0..OPENED_AT_ONCE {
            let target = target.clone();
            tasks.spawn(async move {
                let mut connection = Connection::open(&target).await?;
                wants(
                    &connection.exchange(&get("/load", "idle")).await,
                    200,
                    "a request",
                )?;
                anyhow::Ok(connection)
            });
        }
        for connection in tasks.join_all().await {
            open.push(connection?);
        }
    }
    let cost = resident(gateway.pid())?.saturating_sub(before);
    ensure!(
        cost < KIB_EACH * IDLE as u64,
        "{IDLE} idle connections cost {cost} KiB, {} KiB each",
        cost / IDLE as u64
    );
    wants(&once(&target, "/x").await, 200, "beside idle connections")?;
    let Some(last) = open.last_mut() else {
        return Ok(());
    };
    wants(
        &last.exchange(&get("/x", "idle")).await,
        200,
        "an idle connection that wakes up",
    )
}
