//! SIGTERM: no new work, old work is finished, the exit status is 0.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{gateway, get, one_route, target, wants};
use crate::World;
use crate::client::Connection;
use crate::gateway::POLL;

/// The request in flight takes two seconds; the rest is for a slow machine.
const DRAIN: Duration = Duration::from_secs(15);

pub(super) async fn drain(world: Arc<World>) -> Result<()> {
    let mut gateway = gateway(&world, "drain", &json!({}), one_route(&world)?).await?;
    let target = target(&gateway)?;

    let mut idle = Connection::open(&target).await?;
    wants(
        &idle.exchange(&get("/x", "drain-idle")).await,
        200,
        "before",
    )?;
    let mut busy = Connection::open(&target).await?;
    let in_flight =
        tokio::spawn(async move { busy.exchange(&get("/delay/2000", "drain-busy")).await });
    let start = Instant::now();
    while world.upstreams.recorder.count("drain-busy") == 0 {
        // `/delay` is recorded when it arrives, before its pause.
        ensure!(
            start.elapsed() < DRAIN,
            "the slow request never reached the upstream"
        );
        tokio::time::sleep(POLL).await;
    }

    gateway.signal(Signal::SIGTERM)?;
    let start = Instant::now();
    while gateway.get("status", "/status/ready").await.status == Some(200) {
        ensure!(
            start.elapsed() < Duration::from_secs(2),
            "still ready after SIGTERM"
        );
        tokio::time::sleep(POLL).await;
    }
    idle.closes()
        .await
        .map_err(|why| anyhow::anyhow!("idle connection: {why}"))?;
    let answer = in_flight.await?;
    wants(&answer, 200, "the request in flight")?;
    ensure!(
        answer.all("connection") == ["close"],
        "no `Connection: close`: {:?}",
        answer.headers
    );
    let status = gateway.ended(DRAIN).await?;
    ensure!(
        status.code() == Some(0),
        "ended with {status}\n{}",
        gateway.last_lines(20)
    );
    Ok(())
}

/// A request that had arrived when the process learns of its end is served, also on connections
/// that were quiet for long: the client could not know.
pub(super) async fn arrived(world: Arc<World>) -> Result<()> {
    /// Few: what arrived is served as long as anything is in flight, or for 200 ms, whatever the
    /// machine has to do besides.
    const CONNECTIONS: usize = 6;
    /// Longer than a connection stays where its next request would be served at once.
    const QUIET: Duration = Duration::from_millis(900);
    let mut gateway = gateway(&world, "drain-arrived", &json!({}), one_route(&world)?).await?;
    let target = target(&gateway)?;
    let request = get("/x", "drain-arrived");
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::open(&target).await?;
        wants(&connection.exchange(&request).await, 200, "before")?;
        connections.push(connection);
    }
    tokio::time::sleep(QUIET).await;
    // While it is stopped, the signal and the requests arrive; then it finds both.
    gateway.signal(Signal::SIGSTOP)?;
    gateway.signal(Signal::SIGTERM)?;
    for connection in &mut connections {
        connection.write(&request.head).await?;
    }
    gateway.signal(Signal::SIGCONT)?;
    for (number, connection) in connections.iter_mut().enumerate() {
        let answer = connection.read("GET").await;
        wants(&answer, 200, &format!("connection {number}"))?;
    }
    drop(connections);
    let status = gateway.ended(DRAIN).await?;
    ensure!(status.code() == Some(0), "ended with {status}");
    Ok(())
}
