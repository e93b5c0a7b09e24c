//! Configuration files replaced in the ways that editors, copies and mounted volumes do.

use std::os::unix::fs::symlink as link;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{gateway, once, one_route, target, wants};
use crate::World;
use crate::gateway::{POLL, write_document};

/// A change is seen within a second; after this it was ignored.
const IGNORED: Duration = Duration::from_millis(1_500);

pub(super) async fn half_written(world: Arc<World>) -> Result<()> {
    let gateway = gateway(&world, "half-written", &json!({}), one_route(&world)?).await?;
    let target = target(&gateway)?;
    let revision = gateway.revision().await?;
    let file = gateway.dir.join("apisix.yaml");
    // In place, as `cp` does: no end mark yet, and half a list that would remove the route.
    std::fs::write(&file, "routes:\n  - { id: other, uri: /other, upst")?;
    let start = Instant::now();
    while start.elapsed() < IGNORED {
        wants(
            &once(&target, "/x").await,
            200,
            "while the file is half written",
        )?;
        tokio::time::sleep(POLL).await;
    }
    ensure!(
        gateway.revision().await? == revision,
        "half a file changed the configuration"
    );
    // Complete text, but still without its end mark.
    let echo2 = world.upstreams.address("echo2")?;
    let route =
        format!("  - {{ id: other, uri: /*, upstream: {{ nodes: {{ \"{echo2}\": 1 }} }} }}\n");
    std::fs::write(&file, format!("routes:\n{route}"))?;
    let start = Instant::now();
    while start.elapsed() < IGNORED {
        let server = once(&target, "/x").await.server().map(str::to_owned);
        ensure!(
            server.as_deref() == Some("echo"),
            "a file without #END went live: {server:?}"
        );
        tokio::time::sleep(POLL).await;
    }
    std::fs::write(&file, format!("routes:\n{route}#END\n"))?;
    gateway.wait_revision_above(revision).await?;
    let server = once(&target, "/x").await.server().map(str::to_owned);
    ensure!(
        server.as_deref() == Some("echo2"),
        "the finished file is not live: {server:?}"
    );
    Ok(())
}

/// A mounted volume: `apisix.yaml` points into `data`, which points to a folder and is swapped by rename.
pub(super) async fn symlink(world: Arc<World>) -> Result<()> {
    let gateway = gateway(&world, "symlink", &json!({}), one_route(&world)?).await?;
    let target = target(&gateway)?;
    let dir = &gateway.dir;
    for (label, version) in [("echo2", "v1"), ("echo3", "v2")] {
        std::fs::create_dir_all(dir.join(version))?;
        let node = world.upstreams.address(label)?.to_string();
        let document = json!({ "routes": [
            { "id": "all", "uri": "/*", "upstream": { "nodes": { node: 1 } } }] });
        write_document(&dir.join(version), &document)?;
    }
    let swap = |to: &str, name: &str| -> Result<()> {
        let temporary = dir.join(".link");
        link(to, &temporary)?;
        std::fs::rename(temporary, dir.join(name))?;
        Ok(())
    };
    swap("v1", "data")?;
    let revision = gateway.revision().await?;
    swap("data/apisix.yaml", "apisix.yaml")?;
    gateway.wait_revision_above(revision).await?;
    let server = once(&target, "/x").await.server().map(str::to_owned);
    ensure!(
        server.as_deref() == Some("echo2"),
        "the symlink is not followed: {server:?}"
    );
    let revision = gateway.revision().await?;
    swap("v2", "data")?;
    gateway.wait_revision_above(revision).await?;
    let server = once(&target, "/x").await.server().map(str::to_owned);
    ensure!(
        server.as_deref() == Some("echo3"),
        "the swapped folder is not seen: {server:?}"
    );
    Ok(())
}
