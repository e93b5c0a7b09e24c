//! etcd as the store: several gateways follow one, and go on when it is away.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{gateway, once, target, wants};
use crate::World;
use crate::gateway::{Gateway, POLL};

/// etcd starts, and a gateway notices that it is back, well within this.
const LIMIT: Duration = Duration::from_secs(30);

/// A server. Killed when dropped.
pub(super) struct Etcd {
    child: Child,
    folder: PathBuf,
    pub(super) client: u16,
    peer: u16,
}

impl Etcd {
    pub(super) fn start(folder: PathBuf, client: u16, peer: u16) -> Result<Etcd> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let child = Command::new("etcd")
            .args(["--name", "it", "--data-dir"])
            .arg(&folder)
            .args(["--listen-client-urls", &url(client)])
            .args(["--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer)])
            .args(["--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("it={}", url(peer))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("etcd cannot be started: Debian has it in etcd-server")?;
        Ok(Etcd {
            child,
            folder,
            client,
            peer,
        })
    }

    /// Kills it, and gives what starts it again.
    fn kill(mut self) -> Result<(PathBuf, u16, u16)> {
        self.child.kill()?;
        self.child.wait()?;
        Ok((self.folder.clone(), self.client, self.peer))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Already ended is fine; the wait leaves no zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) async fn until(gateway: &Gateway, path: &str, status: u16) -> Result<()> {
    let target = target(gateway)?;
    let start = Instant::now();
    loop {
        let answer = once(&target, path).await;
        if answer.status == Some(status) {
            return Ok(());
        }
        ensure!(
            start.elapsed() < LIMIT,
            "{path}: wanted {status}, got {:?}\n{}",
            answer.status,
            gateway.last_lines(10)
        );
        tokio::time::sleep(POLL).await;
    }
}

pub(super) async fn shared(world: Arc<World>) -> Result<()> {
    let folder = world.root.join("etcd-data");
    let etcd = Etcd::start(folder, world.ports.take()?, world.ports.take()?)?;
    let section = json!({
        "host": [format!("http://127.0.0.1:{}", etcd.client)],
        "prefix": "/of-our-own", "timeout": 2, "startup_retry": 10
    });
    let config = json!({ "deployment": { "role": "traditional", "etcd": section } });
    let writer = gateway(&world, "etcd-writer", &config, json!({})).await?;
    let config = json!({ "deployment": {
        "role": "data_plane", "role_data_plane": { "config_provider": "etcd" }, "etcd": section } });
    let reader = gateway(&world, "etcd-reader", &config, json!({})).await?;
    let admin = reader.admin("GET", "/routes", &Value::Null).await;
    ensure!(admin.status.is_none(), "a data plane has an Admin API");

    let echo = world.upstreams.address("echo")?.to_string();
    let route = |uri: &str| json!({ "uri": uri, "upstream": { "nodes": { &echo: 1 } } });
    let made = writer.admin("PUT", "/routes/a", &route("/a")).await;
    wants(&made, 201, "a route")?;
    let body: Value = serde_json::from_slice(&made.body)?;
    ensure!(body["key"] == "/of-our-own/routes/a", "{body}");
    wants(
        &once(&target(&writer)?, "/a").await,
        200,
        "where it was written",
    )?;
    until(&reader, "/a", 200).await?;
    // Secrets are encrypted there as APISIX does it, and shown as they were sent.
    let ann = json!({ "username": "ann", "plugins": { "key-auth": { "key": "auth-one" } } });
    let made = writer.admin("PUT", "/consumers", &ann).await;
    wants(&made, 201, "a consumer")?;
    let stored = String::from_utf8_lossy(&made.body).into_owned();
    ensure!(stored.contains("4y+JvURBE6ZwRbbgaryrhg=="), "{stored}");
    let shown = writer.admin("GET", "/consumers/ann", &Value::Null).await;
    let body: Value = serde_json::from_slice(&shown.body)?;
    ensure!(body["value"]["plugins"] == ann["plugins"], "{body}");
    let bob = json!({ "username": "bob", "plugins": { "key-auth": { "key": "auth-one" } } });
    wants(
        &writer.admin("PUT", "/consumers", &bob).await,
        400,
        "the same key",
    )?;
    let mut guarded = route("/guarded");
    guarded["plugins"] = json!({ "key-auth": {} });
    wants(
        &writer.admin("PUT", "/routes/g", &guarded).await,
        201,
        "a guarded route",
    )?;
    until(&reader, "/guarded?apikey=auth-one", 200).await?;
    until(&reader, "/guarded?apikey=auth-two", 401).await?;

    let used = writer
        .admin(
            "PUT",
            "/routes/b",
            &json!({ "uri": "/b", "upstream_id": "u" }),
        )
        .await;
    wants(&used, 400, "a reference to nothing")?;
    let gone = writer.admin("DELETE", "/routes/a", &Value::Null).await;
    wants(&gone, 200, "a deletion")?;
    until(&reader, "/a", 404).await?;
    wants(
        &writer.admin("PUT", "/routes/c", &route("/c")).await,
        201,
        "c",
    )?;
    until(&reader, "/c", 200).await?;

    // Away: requests do not notice, writers are told.
    let (folder, client, peer) = etcd.kill()?;
    let refused = writer.admin("PUT", "/routes/d", &route("/d")).await;
    wants(&refused, 503, "a write without etcd")?;
    wants(&once(&target(&reader)?, "/c").await, 200, "without etcd")?;

    // Back: everybody follows again.
    let _etcd = Etcd::start(folder, client, peer)?;
    let start = Instant::now();
    while writer.admin("PUT", "/routes/d", &route("/d")).await.status != Some(201) {
        ensure!(start.elapsed() < LIMIT, "no write succeeds any more");
        tokio::time::sleep(POLL).await;
    }
    until(&reader, "/d", 200).await?;
    until(&writer, "/d", 200).await?;
    ensure!(writer.stop().await?.success(), "the writer failed");
    ensure!(reader.stop().await?.success(), "the reader failed");
    Ok(())
}
