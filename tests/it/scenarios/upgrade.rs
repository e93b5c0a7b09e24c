//! Replacing the process without losing a request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::json;

use super::load::Load;
use super::{gateway, once, one_route, target, wants};
use crate::World;
use crate::gateway::POLL;

/// Hand-over and drain of one generation.
const HAND_OVER: Duration = Duration::from_secs(30);
/// Answers that must come from each generation before it is replaced.
const WARM: u64 = 200;
/// How long a lone gateway is watched after SIGQUIT.
const WATCHED: Duration = Duration::from_secs(3);

pub(super) async fn five(world: Arc<World>) -> Result<()> {
    // Each start takes the sockets that the one before hands over; the path is what they agree on.
    let mut old = gateway(&world, "upgrade", &json!({}), one_route(&world)?).await?;
    let target = target(&old)?;
    let load = Load::start(&target);
    for generation in 1..=5 {
        let aim = load.answered() + WARM;
        let start = Instant::now();
        while load.answered() < aim {
            ensure!(
                start.elapsed() < HAND_OVER,
                "generation {generation} does not serve"
            );
            tokio::time::sleep(POLL).await;
        }
        let mut new = old.successor(&["--upgrade"])?;
        old.signal(Signal::SIGQUIT)?;
        let status = old.ended(HAND_OVER).await.with_context(|| {
            format!(
                "generation {generation}\n{}\nnew:\n{}",
                old.last_lines(15),
                new.last_lines(15)
            )
        })?;
        ensure!(
            status.code() == Some(0),
            "generation {generation} ended with {status}"
        );
        new.wait_ready().await.context("the successor")?;
        old = new;
    }
    load.stop().await?;
    wants(&once(&target, "/x").await, 200, "after five upgrades")
}

pub(super) async fn alone(world: Arc<World>) -> Result<()> {
    let gateway = gateway(&world, "quit", &json!({}), one_route(&world)?).await?;
    let target = target(&gateway)?;
    let load = Load::start(&target);
    gateway.signal(Signal::SIGQUIT)?;
    let start = Instant::now();
    while start.elapsed() < WATCHED {
        wants(
            &once(&target, "/x").await,
            200,
            "a new connection after SIGQUIT",
        )?;
        tokio::time::sleep(POLL).await;
    }
    load.stop().await?;
    let status = gateway.stop().await?;
    ensure!(status.code() == Some(0), "ended with {status}");
    Ok(())
}
