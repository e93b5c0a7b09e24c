//! etcd behind TLS with client certificates, and etcd with users and passwords.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_client::{Client, ConnectOptions, PermissionType};
use serde_json::{Value, json};

use super::etcd::until;
use super::{gateway, wants};
use crate::World;
use crate::gateway::{Gateway, POLL};

/// etcd starts well within this.
const LIMIT: Duration = Duration::from_secs(60);
/// What all keys begin with.
const PREFIX: &str = "/secured";

/// A server. Killed when dropped.
struct Server(Child);

impl Server {
    fn start(folder: &Path, client: &str, peer: u16, more: &[&str]) -> Result<Server> {
        let peer = format!("http://127.0.0.1:{peer}");
        let child = Command::new("etcd")
            .args(["--name", "it", "--data-dir"])
            .arg(folder)
            .args(["--listen-client-urls", client])
            .args(["--advertise-client-urls", client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("it={peer}")])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("etcd cannot be started: Debian has it in etcd-server")?;
        Ok(Server(child))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended is fine; the wait leaves no zombie.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn data_plane(section: &Value) -> Value {
    json!({
        "role": "data_plane", "role_data_plane": { "config_provider": "etcd" }, "etcd": section,
    })
}

/// A route that is written by one gateway is served by another.
async fn goes_through(world: &World, writer: &Gateway, reader: &Gateway, uri: &str) -> Result<()> {
    let echo = world.upstreams.address("echo")?.to_string();
    let route = json!({ "uri": uri, "upstream": { "nodes": { echo: 1 } } });
    let path = format!("/routes{uri}");
    let start = Instant::now();
    loop {
        let answer = writer.admin("PUT", &path, &route).await;
        if answer.status == Some(201) {
            break;
        }
        // Right after a restart of etcd.
        ensure!(start.elapsed() < LIMIT, "{uri}: {:?}", answer.status);
        tokio::time::sleep(POLL).await;
    }
    until(reader, uri, 200).await
}

async fn history(writer: &Gateway) -> Result<usize> {
    let answer = writer.own("GET", "/history", &Value::Null).await;
    wants(&answer, 200, "the history")?;
    let page: Value = serde_json::from_slice(&answer.body)?;
    page["history"].as_array().map(Vec::len).context("no list")
}

/// Fails unless a gateway does not start, and says something.
async fn refused(world: &World, name: &str, config: &Value, says: &str) -> Result<()> {
    let started = gateway(world, name, config, json!({})).await;
    let error = started.err().with_context(|| format!("{name} started"))?;
    let told = format!("{error:#}");
    ensure!(told.contains(says), "{name}: no {says:?} in {told}");
    Ok(())
}

pub(super) async fn tls(world: Arc<World>) -> Result<()> {
    let folder = world.root.join("etcd-tls");
    std::fs::create_dir_all(&folder)?;
    let file = |name: &str, text: &str| -> Result<PathBuf> {
        let path = folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    };
    let (server, own) = (
        world.certs.pair("127.0.0.1,localhost")?,
        world.certs.pair("gate.test")?,
    );
    let ca = file("ca.pem", &world.certs.ca_pem()?)?;
    let (cert, key) = (
        file("server.pem", &server.cert_pem()?)?,
        file("server.key", &server.key_pem()?)?,
    );
    let (own_cert, own_key) = (
        file("own.pem", &own.cert_pem()?)?,
        file("own.key", &own.key_pem()?)?,
    );
    let client = format!("https://127.0.0.1:{}", world.ports.take()?);
    let path = |path: &Path| path.display().to_string();
    let _server = Server::start(
        &folder.join("data"),
        &client,
        world.ports.take()?,
        &[
            "--cert-file",
            &path(&cert),
            "--key-file",
            &path(&key),
            "--client-cert-auth",
            "--trusted-ca-file",
            &path(&ca),
        ],
    )?;
    let section = |tls: Value| json!({ "host": [&client], "prefix": PREFIX, "timeout": 10, "startup_retry": 10, "tls": tls });
    let shown = section(json!({ "cert": path(&own_cert), "key": path(&own_key) }));
    let trusting = json!({ "ssl": { "ssl_trusted_certificate": path(&ca) } });
    let config = |deployment: Value| json!({ "apisix": trusting, "deployment": deployment });
    let writes = config(json!({ "role": "traditional", "etcd": shown }));
    let writer = gateway(&world, "etcd-tls-writer", &writes, json!({})).await?;
    let reader = gateway(
        &world,
        "etcd-tls-reader",
        &config(data_plane(&shown)),
        json!({}),
    )
    .await?;
    goes_through(&world, &writer, &reader, "/tls").await?;
    ensure!(history(&writer).await? == 1, "no history");

    // Without a certificate etcd does not let it in; without the authority it does not trust etcd.
    let quick = |mut section: Value| {
        section["startup_retry"] = json!(0);
        section["timeout"] = json!(3);
        section
    };
    let bare = config(data_plane(&quick(section(json!({})))));
    refused(&world, "etcd-tls-bare", &bare, "ended with").await?;
    let distrusts = json!({ "deployment": data_plane(&quick(shown.clone())) });
    refused(&world, "etcd-tls-distrusts", &distrusts, "ended with").await?;
    ensure!(writer.stop().await?.success(), "the writer failed");
    ensure!(reader.stop().await?.success(), "the reader failed");
    Ok(())
}

/// Users: root, and one who may what a gateway has to.
async fn users(address: &str) -> Result<()> {
    let start = Instant::now();
    let mut client = Client::connect([address], None).await?;
    while client.get("x", None).await.is_err() {
        ensure!(start.elapsed() < LIMIT, "etcd does not answer");
        tokio::time::sleep(POLL).await;
    }
    client.user_add("root", "all", None).await?;
    client.role_add("root").await?;
    client.user_grant_role("root", "root").await?;
    client.user_add("gate", "secret", None).await?;
    client.role_add("gate").await?;
    for (from, to) in [
        ("/secured/", "/secured0"),
        ("/secured-lockgate/", "/secured-lockgate0"),
    ] {
        let may = etcd_client::Permission::new(PermissionType::Readwrite, from).with_range_end(to);
        client.role_grant_permission("gate", may).await?;
    }
    client.user_grant_role("gate", "gate").await?;
    client.auth_enable().await?;
    Ok(())
}

pub(super) async fn password(world: Arc<World>) -> Result<()> {
    let folder = world.root.join("etcd-password");
    let (port, peer) = (world.ports.take()?, world.ports.take()?);
    let address = format!("http://127.0.0.1:{port}");
    let server = Server::start(&folder, &address, peer, &[])?;
    users(&address).await?;
    let section = |password: &str| {
        json!({ "host": [&address], "prefix": PREFIX, "timeout": 10, "startup_retry": 10, "resync_delay": 0.5,
            "user": "gate", "password": password })
    };
    let writes = json!({ "deployment": { "role": "traditional", "etcd": section("secret") } });
    let writer = gateway(&world, "etcd-user-writer", &writes, json!({})).await?;
    let reads = json!({ "deployment": data_plane(&section("secret")) });
    let reader = gateway(&world, "etcd-user-reader", &reads, json!({})).await?;
    goes_through(&world, &writer, &reader, "/user").await?;
    ensure!(history(&writer).await? == 1, "no history");

    // A restart of etcd ends every token: both log in again by themselves.
    drop(server);
    let _server = Server::start(&folder, &address, peer, &[])?;
    goes_through(&world, &writer, &reader, "/again").await?;

    let mut wrong = section("wrong");
    wrong["startup_retry"] = json!(0);
    let wrong = json!({ "deployment": data_plane(&wrong) });
    refused(&world, "etcd-user-wrong", &wrong, "ended with").await?;
    // What it may not: nobody reads the whole of etcd with this user.
    let with = ConnectOptions::new().with_user("gate", "secret");
    let mut client = Client::connect([&address], Some(with)).await?;
    ensure!(
        client.get("/other", None).await.is_err(),
        "the user may read everything"
    );
    ensure!(writer.stop().await?.success(), "the writer failed");
    ensure!(reader.stop().await?.success(), "the reader failed");
    Ok(())
}
