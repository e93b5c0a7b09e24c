//! Clients that do little: half a head for ever, or nothing at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::task::JoinSet;

use super::{gateway, get, once, one_route, resident, target, wants};
use crate::World;
use crate::client::{Connection, Target};
use crate::gateway::{Gateway, POLL};

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
/// Connections that send nothing, half of them half a head, and how many more are allowed.
const SILENT: usize = 2_000;
const ROOM: usize = 10;
/// `client_header_timeout` for them: they all have to be open before the first is given up.
const SILENCE: Duration = Duration::from_secs(8);

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

/// Connections that send nothing, or half a head: they cost little, others are served beside them,
/// no more than allowed are kept, and all are given up in time.
pub(super) async fn silent(world: Arc<World>) -> Result<()> {
    let config = json!({
        "nginx_config": { "http": { "client_header_timeout": format!("{}s", SILENCE.as_secs()) } },
        "lockgate": { "max_connections": SILENT + ROOM },
    });
    let gateway = gateway(&world, "silent", &config, one_route(&world)?).await?;
    let target = target(&gateway)?;
    wants(&once(&target, "/x").await, 200, "before")?;
    let before = resident(gateway.pid())?;
    let start = Instant::now();
    let open = open(&target, SILENT).await?;
    wait_open(&gateway, SILENT).await?;
    let cost = resident(gateway.pid())?.saturating_sub(before);
    ensure!(
        cost < KIB_EACH * SILENT as u64,
        "{SILENT} silent connections cost {} KiB each",
        cost / SILENT as u64
    );
    wants(&once(&target, "/x").await, 200, "beside silent connections")?;

    let mut beyond = JoinSet::new();
    for _ in 0..2 * ROOM {
        let mut connection = Connection::open(&target).await?;
        beyond.spawn(async move { connection.closes().await.is_ok() });
    }
    let closed = beyond.join_all().await.into_iter().filter(|closed| *closed);
    let closed = closed.count();
    let took = start.elapsed();
    // Those that were let in end with the deadline as well, if this machine took that long.
    ensure!(
        closed == ROOM || (closed > ROOM && took > SILENCE),
        "{closed} of {} connections beyond the limit were closed within {took:?}",
        2 * ROOM
    );

    let mut ends = JoinSet::new();
    for (mut connection, half) in open {
        ends.spawn(async move {
            if half {
                return (connection.read("GET").await.status, Some(408));
            }
            let closed = connection.closes().await;
            (closed.is_err().then_some(0), None)
        });
    }
    for (got, expected) in ends.join_all().await {
        ensure!(got == expected, "given up with {got:?}, not {expected:?}");
    }
    ensure!(
        start.elapsed() >= SILENCE,
        "given up after {:?}",
        start.elapsed()
    );
    wait_open(&gateway, 0).await?;
    wants(&once(&target, "/x").await, 200, "afterwards")
}

/// Connections that say no more, and whether each has sent half a head.
async fn open(target: &Target, count: usize) -> Result<Vec<(Connection, bool)>> {
    let mut open = Vec::with_capacity(count);
    while open.len() < count {
        let mut tasks = JoinSet::new();
        for number in 0..OPENED_AT_ONCE {
            let target = target.clone();
            tasks.spawn(async move {
                let mut connection = Connection::open(&target).await?;
                let half = number % 2 == 0;
                if half {
                    connection.write(b"GET /x HTTP/1.1\r\nHost: sce").await?;
                }
                anyhow::Ok((connection, half))
            });
        }
        for connection in tasks.join_all().await {
            open.push(connection?);
        }
    }
    Ok(open)
}

/// Waits until the gateway has so many connections of clients.
async fn wait_open(gateway: &Gateway, count: usize) -> Result<()> {
    let start = Instant::now();
    loop {
        let open = gateway.configuration().await?["connections"].clone();
        if open == count {
            return Ok(());
        }
        ensure!(
            start.elapsed() < SILENCE * 2,
            "{open} connections are open, not {count}"
        );
        tokio::time::sleep(POLL).await;
    }
}

/// The gateway takes as many files as it may, whatever it was started with.
pub(super) async fn open_files(world: Arc<World>) -> Result<()> {
    // One below is as good as 1,024, and does not harm what else runs in this process.
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::from(u32::MAX));
    let lowered = Rlimit {
        current: Some(limit.current.unwrap_or(hard).min(hard - 1)),
        ..limit
    };
    setrlimit(Resource::Nofile, lowered)?;
    let gateway = gateway(&world, "open-files", &json!({}), one_route(&world)?).await?;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid()))?;
    let line = limits.lines().find(|l| l.starts_with("Max open files"));
    let line = line.context("no limit of open files")?;
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    ensure!(numbers.first() == numbers.last(), "not raised: {line}");
    Ok(())
}
