//! Whatever becomes of etcd: requests do not notice, and the gateway ends with what etcd holds.
//!
//! What is compared is the digest of everything compiled, of the gateway that went through it all
//! and of one that was just started from what etcd holds now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::load::Load;
use super::{gateway, once, target, wants};
use crate::World;
use crate::gateway::{Gateway, POLL};

/// A member that froze is given up, and another one has a leader, well within this.
const LIMIT: Duration = Duration::from_secs(40);
/// Requests that are answered while nothing answers in etcd.
const WITHOUT: u64 = 100;

/// A cluster, a gateway on it, and how to tell whether that follows.
struct Run {
    world: Arc<World>,
    cluster: Cluster,
    gateway: Gateway,
    echo: String,
    marks: usize,
    fresh: usize,
}

fn with_admin(cluster: &Cluster) -> Value {
    json!({ "deployment": { "role": "traditional", "etcd": cluster.section() } })
}

fn data_plane(cluster: &Cluster) -> Value {
    json!({ "deployment": {
        "role": "data_plane", "role_data_plane": { "config_provider": "etcd" },
        "etcd": cluster.section() } })
}

impl Run {
    async fn start(world: Arc<World>, name: &str, members: usize) -> Result<Run> {
        let cluster = Cluster::start(&world, name, members).await?;
        let gateway = gateway(&world, name, &with_admin(&cluster), json!({})).await?;
        let echo = world.upstreams.address("echo")?.to_string();
        let run = Run {
            world,
            cluster,
            gateway,
            echo,
            marks: 0,
            fresh: 0,
        };
        let upstream = json!({ "nodes": { &run.echo: 1 } });
        run.put("/upstreams/u", upstream.clone()).await?;
        run.put("/services/s", json!({ "upstream_id": "u" }))
            .await?;
        run.put(
            "/routes/all",
            json!({ "uri": "/load", "upstream": upstream }),
        )
        .await?;
        for n in 0..20 {
            let uri = format!("/many/{n}");
            let route = json!({ "uri": uri, "service_id": "s", "priority": n % 3 });
            run.put(&format!("/routes/many{n}"), route).await?;
        }
        let ann = json!({ "username": "ann", "plugins": { "key-auth": { "key": "one" } } });
        run.put("/consumers", ann).await?;
        Ok(run)
    }

    async fn put(&self, path: &str, body: Value) -> Result<()> {
        wants(&self.gateway.admin("PUT", path, &body).await, 201, path)
    }

    fn route(&self, uri: &str) -> String {
        json!({ "uri": uri, "upstream": { "nodes": { &self.echo: 1 } } }).to_string()
    }

    async fn until(&self, path: &str, status: u16) -> Result<()> {
        let target = target(&self.gateway)?;
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
                self.gateway.last_lines(15)
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Something that is written into etcd through a member arrives.
    async fn follows(&mut self, member: usize, what: &str) -> Result<()> {
        self.marks += 1;
        let uri = format!("/mark/{}", self.marks);
        let text = self.route(&uri);
        self.cluster.put(member, "routes/mark", &text).await?;
        self.until(&uri, 200).await.context(what.to_owned())
    }

    /// What is in use is what a gateway has that was started from etcd just now.
    async fn equal(&mut self, what: &str) -> Result<()> {
        self.fresh += 1;
        let dir = format!("{what}-fresh").replace(' ', "-");
        let fresh = gateway(&self.world, &dir, &data_plane(&self.cluster), json!({})).await?;
        let start = Instant::now();
        loop {
            let (own, wanted) = (digest(&self.gateway).await?, digest(&fresh).await?);
            if own == wanted {
                break;
            }
            ensure!(
                start.elapsed() < LIMIT,
                "{what}: something else is in use than etcd holds\n{}",
                self.gateway.last_lines(15)
            );
            tokio::time::sleep(POLL).await;
        }
        ensure!(
            fresh.stop().await?.success(),
            "{what}: the fresh one failed"
        );
        Ok(())
    }

    /// Waits for something on `/status/config`.
    async fn page(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let start = Instant::now();
        loop {
            let page = self.gateway.configuration().await?;
            if is(&page) {
                return Ok(page);
            }
            ensure!(start.elapsed() < LIMIT, "{what}: {page}");
            tokio::time::sleep(POLL).await;
        }
    }

    async fn metric(&self, line: &str) -> Result<()> {
        let page = self
            .gateway
            .get("prometheus", "/apisix/prometheus/metrics")
            .await;
        let text = String::from_utf8_lossy(&page.body).into_owned();
        ensure!(text.lines().any(|held| held == line), "no {line} in {text}");
        Ok(())
    }
}

async fn digest(gateway: &Gateway) -> Result<Value> {
    let answer = gateway.get("status", "/status/config/digest").await;
    let page: Value = serde_json::from_slice(&answer.body).context("the digest is no JSON")?;
    Ok(page["sha256"].clone())
}

fn is_connected(page: &Value) -> bool {
    page["store"]["connected"] == true
}

async fn goes_on(load: &Load, what: &str) -> Result<()> {
    let (aim, start) = (load.answered() + WITHOUT, Instant::now());
    while load.answered() < aim {
        ensure!(start.elapsed() < LIMIT, "{what}: no requests are answered");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Killed one by one, all of them, frozen, cut off.
pub(super) async fn away(world: Arc<World>) -> Result<()> {
    let mut run = Run::start(world, "away", 3).await?;
    let load = Load::start(&target(&run.gateway)?);
    for at in 0..run.cluster.count() {
        run.cluster.kill(at)?;
        run.follows((at + 1) % 3, "one is killed").await?;
        run.cluster.start_all().await?;
    }
    run.equal("killed one by one").await?;

    run.cluster.kill_all()?;
    let page = run
        .page("all are killed", |page| !is_connected(page))
        .await?;
    ensure!(page["store"]["error"].is_string(), "{page}");
    run.page("it ages", |page| {
        page["config_age_seconds"].as_u64() > Some(0)
    })
    .await?;
    run.metric("apisix_etcd_reachable 0").await?;
    run.metric("apisix_config_store_connected 0").await?;
    let refused = run
        .gateway
        .admin("DELETE", "/routes/mark", &Value::Null)
        .await;
    wants(&refused, 503, "a write without etcd")?;
    goes_on(&load, "all are killed").await?;
    run.cluster.start_all().await?;
    run.follows(0, "all were killed").await?;
    let page = run.page("it is back", is_connected).await?;
    ensure!(page["config_age_seconds"] == 0, "{page}");
    run.metric("apisix_etcd_reachable 1").await?;
    run.equal("all were killed").await?;

    for at in 0..run.cluster.count() {
        run.cluster.freeze(at, Signal::SIGSTOP)?;
        run.follows((at + 1) % 3, "one is frozen").await?;
        run.cluster.freeze(at, Signal::SIGCONT)?;
    }
    (0..3).try_for_each(|at| run.cluster.freeze(at, Signal::SIGSTOP))?;
    run.page("all are frozen", |page| !is_connected(page))
        .await?;
    goes_on(&load, "all are frozen").await?;
    (0..3).try_for_each(|at| run.cluster.freeze(at, Signal::SIGCONT))?;
    run.follows(0, "all were frozen").await?;
    run.equal("frozen").await?;

    // Cut off, and what happened meanwhile is compacted: there is no watch to go on with.
    run.cluster.gates(false);
    run.page("cut off", |page| !is_connected(page)).await?;
    for n in 0..10 {
        let text = run.route(&format!("/cut/{n}"));
        run.cluster.put(0, "routes/cut", &text).await?;
    }
    run.cluster.compact().await?;
    run.cluster
        .put(0, "routes/later", &run.route("/later"))
        .await?;
    goes_on(&load, "cut off").await?;
    run.cluster.gates(true);
    run.until("/cut/9", 200).await?;
    run.until("/later", 200).await?;
    // Under a watch that is up to date nothing is lost.
    run.cluster.compact().await?;
    run.follows(0, "compacted").await?;
    run.equal("compacted").await?;
    load.stop().await.map(drop)
}

/// Restored from an older copy, wiped, and filled with what is no resource.
pub(super) async fn restored(world: Arc<World>) -> Result<()> {
    let mut run = Run::start(world, "restored", 1).await?;
    let load = Load::start(&target(&run.gateway)?);
    // Somebody else wrote more credentials than etcd takes operations at once.
    for n in 0..130 {
        let text = json!({ "plugins": { "key-auth": { "key": format!("k{n}") } } }).to_string();
        let path = format!("consumers/ann/credentials/c{n}");
        run.cluster.put(0, &path, &text).await?;
    }
    let gone = run
        .gateway
        .admin("DELETE", "/consumers/ann", &Value::Null)
        .await;
    wants(&gone, 200, "a consumer with many credentials")?;
    let keys = run.cluster.keys().await?;
    ensure!(
        !keys.iter().any(|key| key.contains("consumers")),
        "{keys:?}"
    );
    run.cluster.kill_all()?;
    run.cluster.save()?;
    run.cluster.start_all().await?;
    for n in 0..10 {
        let text = run.route(&format!("/newer/{n}"));
        run.cluster
            .put(0, &format!("routes/newer{n}"), &text)
            .await?;
    }
    run.until("/newer/9", 200).await?;

    run.cluster.kill_all()?;
    run.cluster.restore()?;
    run.cluster.start_all().await?;
    run.until("/newer/9", 404).await?;
    run.follows(0, "restored").await?;
    run.equal("restored").await?;

    // Restored, and others wrote until its revision was where it had been: numbers tell nothing.
    let page = run.gateway.configuration().await?;
    let revision = page["config_revision"].as_u64().context("no revision")?;
    run.cluster.gates(false);
    run.cluster.kill_all()?;
    run.cluster.restore()?;
    run.cluster.start_all().await?;
    for n in 0..revision {
        let text = run.route(&format!("/other/{n}"));
        run.cluster.put(0, "routes/mark", &text).await?;
    }
    run.cluster.gates(true);
    run.until(&format!("/other/{}", revision - 1), 200).await?;
    run.equal("overtaken").await?;

    // What is no resource: what was there stays, and the page says so.
    for (path, text) in [
        ("routes/all", "no json {"),
        ("routes/many0", r#"{"uri":7}"#),
        ("services/s", "[]"),
        ("routes/new", "\u{1}"),
        (
            "routes/unknown",
            r#"{"uri":"/unknown","plugins":{"no-such-plugin":{}}}"#,
        ),
    ] {
        run.cluster.put(0, path, text).await?;
    }
    run.follows(0, "garbage").await?;
    let page = run
        .page("garbage", |page| page["rejected_items"] == 4)
        .await?;
    ensure!(
        page["rejected"].to_string().contains("routes/many0"),
        "{page}"
    );
    run.metric("apisix_config_rejected_items 4").await?;
    let target = target(&run.gateway)?;
    wants(&once(&target, "/many/0").await, 200, "what was there")?;
    goes_on(&load, "garbage").await?;
    run.cluster
        .put(0, "routes/all", &run.route("/load"))
        .await?;
    let many = json!({ "uri": "/many/0", "service_id": "s" }).to_string();
    run.cluster.put(0, "routes/many0", &many).await?;
    let service = json!({ "upstream_id": "u" }).to_string();
    run.cluster.put(0, "services/s", &service).await?;
    run.cluster.put(0, "routes/new", &run.route("/new")).await?;
    run.page("mended", |page| page["rejected_items"] == 0)
        .await?;
    run.equal("mended").await?;

    // Wiped: what was in use stays until something is written.
    run.cluster.kill_all()?;
    run.cluster.wipe()?;
    run.cluster.start_all().await?;
    run.page("wiped", |page| page["degraded"].is_string())
        .await?;
    run.metric("apisix_config_degraded 1").await?;
    goes_on(&load, "wiped").await?;
    wants(&once(&target, "/many/1").await, 200, "what was there")?;
    run.cluster
        .put(0, "routes/all", &run.route("/load"))
        .await?;
    run.until("/many/1", 404).await?;
    ensure!(run.cluster.keys().await?.len() == 1, "something else wrote");
    run.equal("made anew").await?;
    load.stop().await.map(drop)
}

/// Started when etcd is away, with what was in use last.
pub(super) async fn last_good(world: Arc<World>) -> Result<()> {
    let mut run = Run::start(world, "last-good", 1).await?;
    run.follows(0, "at first").await?;
    // Refused at the end: its version before is what has to be there.
    run.cluster.put(0, "routes/many1", "no json").await?;
    run.page("garbage", |page| page["rejected_items"] == 1)
        .await?;
    let page = run.gateway.configuration().await?;
    let revision = page["config_revision"].clone();
    run.page("kept", |page| page["last_good"]["revision"] == revision)
        .await?;
    let wanted = digest(&run.gateway).await?;

    // With the store there, what it holds in a bad version is still there after a restart.
    let config = with_admin(&run.cluster);
    run.restart(&config).await?;
    ensure!(
        digest(&run.gateway).await? == wanted,
        "a restart lost something"
    );
    let page = run.gateway.configuration().await?;
    ensure!(
        page["rejected_items"] == 1 && page["degraded"].is_null(),
        "{page}"
    );

    // Without it the same, and it says so.
    run.cluster.kill_all()?;
    run.restart(&config).await?;
    ensure!(
        digest(&run.gateway).await? == wanted,
        "the last good one is another"
    );
    let page = run.gateway.configuration().await?;
    ensure!(
        page["degraded"].is_string() && !is_connected(&page),
        "{page}"
    );
    ensure!(page["config_revision"] == revision, "{page}");
    run.metric("apisix_config_degraded 1").await?;
    ensure!(
        !run.gateway.lines_with("degraded").is_empty(),
        "no line in the log"
    );
    let load = Load::start(&target(&run.gateway)?);
    run.cluster.start_all().await?;
    run.follows(0, "it is back").await?;
    let page = run
        .page("it is back", |page| page["degraded"].is_null())
        .await?;
    ensure!(is_connected(&page), "{page}");
    run.metric("apisix_config_degraded 0").await?;
    load.stop().await?;
    let file = run.gateway.dir.join("data/last-good");
    let text = std::fs::read_to_string(&file)?;
    ensure!(
        !text.contains(r#"\"key\":\"one\""#),
        "a secret is in {}",
        file.display()
    );

    // Damaged, it is refused with a sentence, and is in the way of no start.
    let damage = || -> Result<()> {
        let text = std::fs::read_to_string(&file)?.replace("many", "mony");
        Ok(std::fs::write(&file, text)?)
    };
    let revision = run.gateway.configuration().await?["config_revision"].clone();
    run.page("kept", |page| page["last_good"]["revision"] == revision)
        .await?;
    damage()?;
    run.restart(&config).await?;
    let said = run
        .gateway
        .lines_with("it is damaged: its digest is another");
    ensure!(!said.is_empty(), "{}", run.gateway.last_lines(10));
    run.page("made anew", |page| page["last_good"]["revision"].is_u64())
        .await?;
    run.gateway.signal(Signal::SIGKILL)?;
    run.gateway.ended(LIMIT).await?;
    run.cluster.kill_all()?;
    damage()?;
    let started = gateway(&run.world, "last-good", &config, json!({})).await;
    let error = started.err().context("it started from a damaged file")?;
    ensure!(format!("{error:#}").contains("ended with"), "{error:#}");
    Ok(())
}

impl Run {
    /// Ends the gateway, and starts another in its folder.
    async fn restart(&mut self, config: &Value) -> Result<()> {
        self.gateway.signal(Signal::SIGTERM)?;
        self.gateway.ended(LIMIT).await?;
        self.gateway = gateway(&self.world, "last-good", config, json!({})).await?;
        Ok(())
    }
}
