//! `lockgate explain` beside a gateway that runs on the embedded store.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{gateway, wants};
use crate::World;
use crate::gateway::{Gateway, binary};
use crate::step::ADMIN_KEY;

/// What it prints; both streams.
async fn explain(gateway: &Gateway, args: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new(binary());
    command
        .arg("explain")
        .args(args)
        .current_dir(&gateway.dir)
        .env("LOCKGATE_ADMIN_KEY", ADMIN_KEY);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

pub(super) async fn beside(world: Arc<World>) -> Result<()> {
    let settings = json!({ "deployment": { "role": "traditional" } });
    let gateway = gateway(&world, "explain", &settings, json!({})).await?;
    let echo = world.upstreams.address("echo")?.to_string();
    let route = json!({ "uri": "/a", "methods": ["GET"], "upstream": { "nodes": { echo: 1 } } });
    let put = gateway.admin("PUT", "/routes/1", &route).await;
    wants(&put, 201, "the route")?;

    let admin = format!("http://{}", gateway.address("admin")?);
    let (good, text) = explain(&gateway, &["--admin", &admin, "POST", "/a"]).await?;
    ensure!(
        good && text.contains("methods GET, found POST") && text.contains("=> 404"),
        "online: {text}"
    );
    let (good, text) = explain(&gateway, &["--admin", &admin, "GET", "/a"]).await?;
    ensure!(good && text.contains("<- next"), "online: {text}");
    let config = gateway.dir.join("config.yaml").display().to_string();
    let (good, text) = explain(&gateway, &["-c", &config, "GET", "/a"]).await?;
    ensure!(
        !good && text.contains(&format!("--admin {admin}")),
        "offline beside the running one: {text}"
    );
    let unkeyed = ["--admin", &admin, "--key-file", "/dev/null", "GET", "/a"];
    let (good, text) = explain(&gateway, &unkeyed).await?;
    ensure!(!good && text.contains("401"), "without a key: {text}");
    let put = gateway.admin("PUT", "/routes/2", &route).await;
    wants(&put, 201, "the store is still the gateway's")?;

    let dir = gateway.dir.clone();
    let status = gateway.stop().await?;
    ensure!(status.success(), "ended with {status}");
    let before = std::fs::read(dir.join("data/lockgate.redb"))?;
    let mut command = Command::new(binary());
    command.args(["explain", "-c", &config, "GET", "/a"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && text.contains("1. 1  */a  matches"),
        "offline: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let after = std::fs::read(dir.join("data/lockgate.redb"))?;
    ensure!(before == after, "to look changed the store");
    Ok(())
}
