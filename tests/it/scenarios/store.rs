//! The embedded store: what was answered is kept, whatever happens to the process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{gateway, once, target, wants};
use crate::World;
use crate::client::Answer;
use crate::gateway::{Gateway, POLL};

/// Processes that are killed, one after the other, over one store.
const KILLS: usize = 4;
/// Clients that write until the kill.
const WRITERS: usize = 4;
/// Writes that are in use before a kill.
const WRITES: u64 = 30;
/// A debug build ends, starts or hands over well within this.
const LIMIT: Duration = Duration::from_secs(30);

fn with_store() -> Value {
    json!({ "deployment": { "role": "traditional" } })
}

fn route(world: &World, uri: &str) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    Ok(json!({ "uri": uri, "upstream": { "nodes": { echo: 1 } } }))
}

fn json_of(answer: &Answer) -> Result<Value> {
    serde_json::from_slice(&answer.body).context("the answer is no JSON")
}

/// Keys and revisions of a list.
async fn listed(gateway: &Gateway, path: &str) -> Result<Vec<(String, u64)>> {
    let answer = gateway.admin("GET", path, &Value::Null).await;
    wants(&answer, 200, path)?;
    let list = json_of(&answer)?["list"].take();
    let items = list.as_array().context("no list")?.iter();
    let item = |item: &Value| {
        let key = item["key"].as_str().unwrap_or_default().to_owned();
        (key, item["modifiedIndex"].as_u64().unwrap_or_default())
    };
    Ok(items.map(item).collect())
}

pub(super) async fn killed(world: Arc<World>) -> Result<()> {
    let mut answered: Vec<(String, Value)> = Vec::new();
    let mut newest = 0;
    for round in 0..KILLS {
        let gateway = Arc::new(gateway(&world, "killed", &with_store(), json!({})).await?);
        for (path, value) in &answered {
            let answer = gateway.admin("GET", path, &Value::Null).await;
            wants(&answer, 200, &format!("round {round}: {path}"))?;
            let got = json_of(&answer)?["value"].take();
            ensure!(
                got == *value,
                "round {round}: {path}: {got} instead of {value}"
            );
        }
        let items = listed(&gateway, "/routes").await?;
        let found = items.iter().map(|(_, modified)| *modified).max();
        ensure!(
            found.unwrap_or(0) >= newest,
            "round {round}: revisions went back"
        );
        newest = found.unwrap_or(0);
        // Writers go on while the process is killed: their last writes are anywhere on their way.
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let gateway = Arc::clone(&gateway);
            let body = route(&world, &format!("/{round}/{writer}"))?;
            writers.spawn(async move {
                let mut done = Vec::new();
                for n in 0.. {
                    let path = format!("/routes/r{round}-{writer}-{n}");
                    let answer = gateway.admin("PUT", &path, &body).await;
                    if answer.status != Some(201) {
                        break;
                    }
                    let value = json_of(&answer).map(|mut body| body["value"].take());
                    done.push((path, value.unwrap_or_default()));
                }
                done
            });
        }
        let start = Instant::now();
        while gateway.revision().await? < WRITES {
            ensure!(start.elapsed() < LIMIT, "{WRITES} writes take too long");
            tokio::time::sleep(POLL).await;
        }
        gateway.signal(Signal::SIGKILL)?;
        let done: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
        ensure!(
            done.len() as u64 >= WRITES / 2,
            "only {} writes",
            done.len()
        );
        answered.extend(done);
    }
    Ok(())
}

pub(super) async fn restarted(world: Arc<World>) -> Result<()> {
    // Without a key in config.yaml, one is made.
    let config = json!({ "deployment": { "role": "traditional", "admin": { "admin_key": [] } } });
    let first = gateway(&world, "restarted", &config, json!({})).await?;
    let file = first.dir.join("data/admin.key");
    let key = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let shown = |gateway: &Gateway| gateway.lines_with(key.trim()).len();
    // What collects the output of services must not collect keys.
    ensure!(shown(&first) == 0, "the key is in the log");
    ensure!(
        !first.lines_with("data/admin.key").is_empty(),
        "nothing says where the key is"
    );
    ensure!(
        !first.lines_with("embedded store").is_empty(),
        "the log does not say where the store is"
    );
    // The key of the other scenarios opens nothing here.
    let answer = first.admin("GET", "/routes", &Value::Null).await;
    wants(&answer, 401, "a wrong key")?;
    // Looking at a store that is open does it no harm.
    let check = std::process::Command::new(crate::gateway::binary())
        .args(["check", "-c"])
        .arg(first.dir.join("config.yaml"))
        .output()?;
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    ensure!(
        check.status.success() && text.contains("is in use by a running process"),
        "{text}"
    );
    ensure!(first.stop().await?.success(), "the first process failed");
    // Copied about by somebody, the file is closed again.
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&file, mode(0o644))?;
    let second = gateway(&world, "restarted", &config, json!({})).await?;
    ensure!(
        std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file)?) & 0o777 == 0o600,
        "the key stays open to others"
    );
    ensure!(second.stop().await?.success(), "the second process failed");
    let config = json!({ "deployment": { "role": "traditional" } });
    let second = gateway(&world, "restarted", &config, json!({})).await?;
    // Of two equal routes the older one wins, before and after a restart.
    for (id, code) in [("b", 201), ("a", 201)] {
        let body = json!({ "uri": "/same", "plugins": { "mocking": { "response_example": id } } });
        wants(
            &second.admin("PUT", &format!("/routes/{id}"), &body).await,
            code,
            id,
        )?;
    }
    let before = once(&target(&second)?, "/same").await;
    wants(&before, 200, "before the restart")?;
    let items = listed(&second, "/routes").await?;
    ensure!(second.stop().await?.success(), "the second process failed");
    let third = gateway(&world, "restarted", &config, json!({})).await?;
    let after = once(&target(&third)?, "/same").await;
    wants(&after, 200, "after the restart")?;
    ensure!(
        after.body == before.body,
        "another route wins after the restart"
    );
    ensure!(
        listed(&third, "/routes").await? == items,
        "revisions changed"
    );
    ensure!(third.stop().await?.success(), "the third process failed");
    Ok(())
}

pub(super) async fn handed_over(world: Arc<World>) -> Result<()> {
    let mut old = gateway(&world, "handed", &with_store(), json!({})).await?;
    let body = route(&world, "/x")?;
    wants(
        &old.admin("PUT", "/routes/x", &body).await,
        201,
        "the route",
    )?;
    let mut new = old.successor(&["--upgrade"])?;
    old.signal(Signal::SIGQUIT)?;
    let status = old.ended(LIMIT).await?;
    ensure!(status.success(), "the old process ended with {status}");
    new.wait_ready().await.context("the successor")?;
    wants(&once(&target(&new)?, "/x").await, 200, "after the upgrade")?;
    wants(
        &new.admin("PUT", "/routes/y", &route(&world, "/y")?).await,
        201,
        "a write",
    )?;
    wants(&once(&target(&new)?, "/y").await, 200, "what was written")?;
    ensure!(new.stop().await?.success(), "the successor failed");
    Ok(())
}

pub(super) async fn given_back(world: Arc<World>) -> Result<()> {
    let config = json!({ "deployment": { "role": "traditional" },
        "lockgate": { "upgrade_sock": world.root.join("given-back.sock") } });
    let mut old = gateway(&world, "given-back", &config, json!({})).await?;
    wants(
        &old.admin("PUT", "/routes/x", &route(&world, "/x")?).await,
        201,
        "the route",
    )?;
    // A successor that cannot read the store, of another version say, ends before it has anything.
    let file = old.dir.join("config.yaml");
    let good = std::fs::read_to_string(&file)?;
    let broken =
        format!("{good}\n# another\n").replace("lockgate:\n", "lockgate:\n  store: apisix.yaml\n");
    ensure!(broken.contains("store: apisix.yaml"), "{broken}");
    std::fs::write(&file, broken)?;
    std::fs::write(
        old.dir.join("apisix.yaml"),
        "no database, and long enough to be read as one",
    )?;
    let mut new = old.successor(&["--upgrade"])?;
    let status = new.ended(LIMIT).await?;
    ensure!(!status.success(), "it started from what is no store");
    std::fs::write(&file, good)?;
    // One that got the store and dies before it has the sockets. The other left nothing behind.
    let asks = std::os::unix::net::UnixListener::bind(world.root.join("given-back.sock.store"))?;
    old.signal(Signal::SIGQUIT)?;
    let body = route(&world, "/y")?;
    let start = Instant::now();
    while old.admin("PUT", "/routes/y", &body).await.status != Some(503) {
        ensure!(start.elapsed() < LIMIT, "the store is not let go of");
        tokio::time::sleep(POLL).await;
    }
    wants(&once(&target(&old)?, "/x").await, 200, "requests meanwhile")?;
    drop(asks);
    let start = Instant::now();
    while !matches!(
        old.admin("PUT", "/routes/y", &body).await.status,
        Some(200 | 201)
    ) {
        ensure!(
            start.elapsed() < LIMIT,
            "the store is not taken back\n{}",
            old.last_lines(10)
        );
        tokio::time::sleep(POLL).await;
    }
    wants(&once(&target(&old)?, "/y").await, 200, "what was written")?;
    // And then a good one takes over.
    let mut new = old.successor(&["--upgrade"])?;
    old.signal(Signal::SIGQUIT)?;
    let status = old.ended(LIMIT).await?;
    ensure!(status.success(), "the old process ended with {status}");
    new.wait_ready().await.context("the successor")?;
    wants(&once(&target(&new)?, "/y").await, 200, "after the upgrade")?;
    ensure!(new.stop().await?.success(), "the successor failed");
    Ok(())
}

pub(super) async fn not_valid(world: Arc<World>) -> Result<()> {
    // Written while a plugin was enabled, read when it is not.
    let first = gateway(&world, "not-valid", &with_store(), json!({})).await?;
    let echo = world.upstreams.address("echo")?.to_string();
    let body =
        json!({ "uri": "/a", "plugins": { "cors": {} }, "upstream": { "nodes": { echo: 1 } } });
    wants(&first.admin("PUT", "/routes/a", &body).await, 201, "a")?;
    wants(
        &first.admin("PUT", "/routes/b", &route(&world, "/b")?).await,
        201,
        "b",
    )?;
    ensure!(first.stop().await?.success(), "the first process failed");
    let mut config = with_store();
    crate::value::merge(&mut config, &json!({ "plugins": ["echo"] }));
    let second = gateway(&world, "not-valid", &config, json!({})).await?;
    wants(&once(&target(&second)?, "/b").await, 200, "the valid one")?;
    wants(&once(&target(&second)?, "/a").await, 404, "the other one")?;
    let page = second.configuration().await?;
    let rejected = page["rejected"].to_string();
    ensure!(
        rejected.contains("routes/a") && !rejected.contains("routes/b"),
        "{rejected}"
    );
    // Mended, it is gone from the page at once.
    wants(
        &second
            .admin("PUT", "/routes/a", &route(&world, "/a")?)
            .await,
        200,
        "mended",
    )?;
    let start = Instant::now();
    while second.configuration().await?["rejected"] != json!([]) {
        ensure!(start.elapsed() < LIMIT, "still reported");
    }
    wants(&once(&target(&second)?, "/a").await, 200, "the mended one")?;
    Ok(())
}
