//! Limits where processes take over from one another, several share a store, and people type commands.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockgate_test_redis::Redis;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::etcd::Etcd;
use super::{gateway, once, target, wants};
use crate::World;
use crate::client::{Answer, Target};
use crate::gateway::{Gateway, POLL, binary};

/// Hand-over and drain of a process, or what another gateway did, takes less than this.
const LIMIT: Duration = Duration::from_secs(30);
/// What passes in the window, over all processes: too much to be used up before a process is replaced.
const COUNT: u64 = 1_500;
/// Before the first process is replaced.
const BEFORE: u64 = 100;
/// Clients during that.
const CLIENTS: usize = 4;

fn routes(world: &World) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let upstream = json!({ "nodes": { echo: 1 } });
    let fixed = json!({ "name": "client", "algorithm": "fixed_window", "count": COUNT, "time_window": 3_600 });
    let bucket = json!({ "name": "client", "count": 1, "time_window": 3_600, "burst": 5 });
    let sliding =
        json!({ "count": 3, "time_window": 3_600, "window_type": "sliding", "rejected_code": 429 });
    Ok(json!({ "routes": [
        { "id": "fixed", "uri": "/fixed", "upstream": upstream, "plugins": { "limit": { "limits": [fixed] } } },
        { "id": "bucket", "uri": "/bucket", "upstream": upstream, "plugins": { "limit": { "limits": [bucket] } } },
        { "id": "sliding", "uri": "/sliding", "upstream": upstream, "plugins": { "limit-count": sliding } },
    ] }))
}

/// What became of requests.
#[derive(Default)]
struct Counts {
    passed: AtomicU64,
    refused: AtomicU64,
    other: AtomicU64,
}

impl Counts {
    fn note(&self, answer: &Answer) {
        let which = match answer.status {
            Some(200) => &self.passed,
            Some(429) => &self.refused,
            _ => &self.other,
        };
        which.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> [u64; 3] {
        [&self.passed, &self.refused, &self.other].map(|n| n.load(Ordering::Relaxed))
    }
}

async fn load(target: Target, counts: Arc<Counts>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        counts.note(&once(&target, "/fixed").await);
    }
}

/// Replaces a process under load. The clients have to see nothing of it.
async fn replaced(mut old: Gateway) -> Result<Gateway> {
    let mut new = old.successor(&["--upgrade"])?;
    let start = Instant::now();
    while new.lines_with("limits go on with what").is_empty() {
        ensure!(
            start.elapsed() < LIMIT,
            "nothing taken over\n{}\nold:\n{}",
            new.last_lines(15),
            old.last_lines(15)
        );
        tokio::time::sleep(POLL).await;
    }
    old.signal(Signal::SIGQUIT)?;
    let status = old.ended(LIMIT).await?;
    ensure!(
        status.code() == Some(0),
        "the old process ended with {status}"
    );
    new.wait_ready().await.context("the successor")?;
    Ok(new)
}

pub(super) async fn upgraded(world: Arc<World>) -> Result<()> {
    let mut running = gateway(&world, "limits-upgrade", &json!({}), routes(&world)?).await?;
    let target = target(&running)?;
    let counts = Arc::<Counts>::default();
    for _ in 0..BEFORE {
        counts.note(&once(&target, "/fixed").await);
    }
    ensure!(counts.get() == [BEFORE, 0, 0], "{:?}", counts.get());
    let used_up = async |path: &str, passes: u64| {
        for n in 0..=passes {
            let status = if n < passes { 200 } else { 429 };
            wants(&once(&target, path).await, status, &format!("{path} {n}"))?;
        }
        Ok::<_, anyhow::Error>(())
    };
    used_up("/bucket", 5).await?;
    used_up("/sliding", 3).await?;
    let stop = Arc::<AtomicBool>::default();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(load(target.clone(), Arc::clone(&counts), Arc::clone(&stop)));
    }
    // The second one takes over from one that took over itself.
    for _ in 0..2 {
        running = replaced(running).await?;
        used_up("/bucket", 0).await?;
        used_up("/sliding", 0).await?;
    }
    let start = Instant::now();
    while counts.get()[1] == 0 {
        ensure!(start.elapsed() < LIMIT, "{:?}", counts.get());
        tokio::time::sleep(POLL).await;
    }
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let [passed, _, other] = counts.get();
    ensure!(
        (passed, other) == (COUNT, 0),
        "over three processes {passed} of {COUNT} passed, {other} failed"
    );
    // A table of another size begins anew, and says so.
    let config = running.dir.join("config.yaml");
    let text = std::fs::read_to_string(&config)?;
    let mut settings: Value = serde_yaml::from_str(&text)?;
    settings["lockgate"]["limit"] = json!({ "table_bytes": "1m" });
    std::fs::write(&config, settings.to_string())?;
    let mut new = running.successor(&["--upgrade"])?;
    let start = Instant::now();
    while new.lines_with("limits start anew").is_empty() {
        ensure!(start.elapsed() < LIMIT, "{}", new.last_lines(15));
        tokio::time::sleep(POLL).await;
    }
    running.signal(Signal::SIGQUIT)?;
    running.ended(LIMIT).await?;
    new.wait_ready().await.context("the last successor")?;
    ensure!(
        !new.lines_with("table_bytes was changed").is_empty(),
        "{}",
        new.last_lines(15)
    );
    used_up("/bucket", 5).await?;
    ensure!(new.stop().await?.success(), "the last one failed");
    Ok(())
}

fn json_of(answer: &Answer) -> Result<Value> {
    serde_json::from_slice(&answer.body).context("the answer is no JSON")
}

/// Waits until a request is answered so.
async fn until_passes(gateway: &Gateway, path: &str, wanted: u16) -> Result<()> {
    let target = target(gateway)?;
    let start = Instant::now();
    while once(&target, path).await.status != Some(wanted) {
        ensure!(
            start.elapsed() < LIMIT,
            "{path} does not answer {wanted}\n{}",
            gateway.last_lines(10)
        );
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

pub(super) async fn shared(world: Arc<World>) -> Result<()> {
    let folder = world.root.join("etcd-limits");
    let etcd = Etcd::start(folder, world.ports.take()?, world.ports.take()?)?;
    let config = json!({ "deployment": { "role": "traditional", "etcd": {
        "host": [format!("http://127.0.0.1:{}", etcd.client)],
        "prefix": "/limits", "timeout": 2, "startup_retry": 10 } } });
    let a = gateway(&world, "limits-a", &config, json!({})).await?;
    let b = gateway(&world, "limits-b", &config, json!({})).await?;
    // One without an Admin API has what is said to the others.
    let mut reads = config.clone();
    reads["deployment"]["role"] = json!("data_plane");
    reads["deployment"]["role_data_plane"] = json!({ "config_provider": "etcd" });
    let c = gateway(&world, "limits-c", &reads, json!({})).await?;
    let echo = world.upstreams.address("echo")?.to_string();
    let route = json!({ "uri": "/x", "upstream": { "nodes": { echo: 1 } }, "plugins": { "limit": { "limits": [
        { "name": "client", "algorithm": "fixed_window", "count": 1, "time_window": 3_600 } ] } } });
    wants(&a.admin("PUT", "/routes/r", &route).await, 201, "the route")?;
    until_passes(&b, "/x", 200).await?;
    for gateway in [&a, &b, &c] {
        until_passes(gateway, "/x", 429).await?;
    }
    // Another limit for a key, given to one of them, is in force on both.
    let path = "/limits/routes/r/limit/client";
    let until = from_now(600)?;
    let body = json!({ "key": "127.0.0.1", "limit": 3, "until": until });
    let answer = a.own("PUT", &format!("{path}/override"), &body).await;
    wants(&answer, 200, "the override")?;
    wants(&once(&target(&a)?, "/x").await, 200, "at once, here")?;
    until_passes(&b, "/x", 200).await?;
    until_passes(&c, "/x", 200).await?;
    let told = b
        .own("GET", &format!("{path}?key=127.0.0.1"), &Value::Null)
        .await;
    ensure!(json_of(&told)?["allowed"] == 3, "{told:?}");
    let listed = json_of(&b.own("GET", "/limits", &Value::Null).await)?;
    ensure!(listed["overrides"][0]["by"] == "it", "{listed}");
    // It survives a restart.
    ensure!(b.stop().await?.success(), "b failed");
    let b = gateway(&world, "limits-b2", &config, json!({})).await?;
    let start = Instant::now();
    loop {
        let told = b
            .own("GET", &format!("{path}?key=127.0.0.1"), &Value::Null)
            .await;
        if json_of(&told)?["allowed"] == 3 {
            break;
        }
        ensure!(start.elapsed() < LIMIT, "not in force after a restart");
        tokio::time::sleep(POLL).await;
    }
    // What is used up begins anew on both.
    for gateway in [&a, &b, &c] {
        until_passes(gateway, "/x", 429).await?;
    }
    let answer = a
        .own("DELETE", &format!("{path}?key=127.0.0.1"), &Value::Null)
        .await;
    ensure!(json_of(&answer)?["gateways"] == "all", "{answer:?}");
    for gateway in [&a, &b, &c] {
        until_passes(gateway, "/x", 200).await?;
    }
    ensure!(c.stop().await?.success(), "c failed");
    ensure!(a.stop().await?.success(), "a failed");
    ensure!(b.stop().await?.success(), "b failed");
    Ok(())
}

/// Seconds since 1970, so many from now.
fn from_now(seconds: u64) -> Result<u64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(now.as_secs() + seconds)
}

fn shows(gateway: &Gateway, args: &[&str], good: bool, parts: &[&str]) -> Result<()> {
    let done = Command::new(binary())
        .arg("limits")
        .args(args)
        .args(["-c", "config.yaml"])
        .current_dir(&gateway.dir)
        .output()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success() == good, "{args:?}: {text}{errors}");
    for part in parts {
        ensure!(
            text.contains(part),
            "{args:?}: no {part:?} in\n{text}{errors}"
        );
    }
    Ok(())
}

pub(super) async fn commands(world: Arc<World>) -> Result<()> {
    let config = json!({ "deployment": { "role": "traditional" } });
    let gateway = gateway(&world, "limits-commands", &config, json!({})).await?;
    let echo = world.upstreams.address("echo")?.to_string();
    let route = json!({ "uri": "/x", "upstream": { "nodes": { echo: 1 } }, "plugins": { "limit": { "limits": [
        { "name": "client", "algorithm": "fixed_window", "count": 2, "time_window": 3_600 } ] } } });
    let answer = gateway.admin("PUT", "/routes/r", &route).await;
    wants(&answer, 201, "the route")?;
    let target = target(&gateway)?;
    for status in [200, 200, 429, 429] {
        wants(&once(&target, "/x").await, status, "a request")?;
    }
    let rule = "routes/r/limit/client";
    let listed = [
        "routes/r/limit/client  2 in 3600 s, fixed_window\n",
        "    key `$remote_addr`, by route, counted local\n",
        "    allow 2, reject 2; near the limit 1\n",
        "table: 1 of 1048576 keys",
    ];
    shows(&gateway, &["list"], true, &listed)?;
    shows(
        &gateway,
        &["list", "routes/other"],
        true,
        &["no limit is in use"],
    )?;
    let stands = ["used 2 of 2; 0 left", "counted local", "bound: "];
    shows(&gateway, &["show", rule, "127.0.0.1"], true, &stands)?;
    shows(
        &gateway,
        &["show", rule],
        false,
        &["key: the key has 1 variable(s), 0 value(s)"],
    )?;
    shows(
        &gateway,
        &["show", "routes/none/limit/client", "x"],
        false,
        &["no limit in use is called"],
    )?;
    shows(&gateway, &["top", rule], true, &["       2  `127.0.0.1`"])?;
    let override_ = ["override", rule, "127.0.0.1", "--limit", "3", "--for", "1h"];
    shows(&gateway, &override_, true, &["`127.0.0.1`: 3 until 20"])?;
    wants(&once(&target, "/x").await, 200, "with another limit")?;
    wants(
        &once(&target, "/x").await,
        429,
        "with another limit used up",
    )?;
    shows(
        &gateway,
        &["list"],
        true,
        &["override routes/r/limit/client `127.0.0.1`: 3 until"],
    )?;
    shows(
        &gateway,
        &["show", rule, "127.0.0.1"],
        true,
        &["used 3 of 3, by an override for "],
    )?;
    let forever = [
        "override",
        rule,
        "127.0.0.1",
        "--limit",
        "3",
        "--for",
        "999d",
    ];
    shows(
        &gateway,
        &forever,
        false,
        &["until: more than 31 days ahead"],
    )?;
    shows(
        &gateway,
        &["override", rule, "127.0.0.1", "--limit", "3"],
        false,
        &[],
    )?;
    let end = ["override", rule, "127.0.0.1", "--end"];
    shows(
        &gateway,
        &end,
        true,
        &["the configured limit is in force again"],
    )?;
    shows(
        &gateway,
        &end,
        false,
        &["this key has the configured limit"],
    )?;
    shows(
        &gateway,
        &["reset", rule, "127.0.0.1"],
        true,
        &["the key begins anew"],
    )?;
    for status in [200, 200, 429] {
        wants(&once(&target, "/x").await, status, "after a reset")?;
    }
    ensure!(gateway.stop().await?.success(), "the gateway failed");
    Ok(())
}

/// Limits in a Redis, looked at and reset there.
pub(super) async fn in_redis(world: Arc<World>) -> Result<()> {
    let port = world.ports.take()?;
    let redis = tokio::task::spawn_blocking(move || Redis::start(port, &[])).await??;
    let config = json!({ "deployment": { "role": "traditional" } });
    let gateway = gateway(&world, "limits-in-redis", &config, json!({})).await?;
    let echo = world.upstreams.address("echo")?.to_string();
    let store = json!({ "policy": "redis", "redis_host": "127.0.0.1", "redis_port": port, "redis_timeout": 5_000, "rejected_code": 429 });
    let with = |extra: Value| {
        let mut conf = store.clone();
        if let (Some(conf), Some(extra)) = (conf.as_object_mut(), extra.as_object()) {
            conf.extend(extra.clone());
        }
        conf
    };
    let rules = json!([{ "key": "$remote_addr$http_none", "count": 2, "time_window": 600 }]);
    let limits = [
        (
            "fixed",
            "limit-count",
            with(json!({ "count": 2, "time_window": 600 })),
            "key=127.0.0.1",
        ),
        (
            "sliding",
            "limit-count",
            with(
                json!({ "count": 2, "time_window": 86_400, "window_type": "sliding", "key": "http_none" }),
            ),
            "address=127.0.0.1",
        ),
        (
            "rules",
            "limit-count",
            with(json!({ "rules": rules })),
            "key=127.0.0.1&key=",
        ),
        (
            "rate",
            "limit-req",
            with(json!({ "rate": 0.001, "burst": 1, "nodelay": true, "key": "remote_addr" })),
            "key=127.0.0.1",
        ),
    ];
    let target = target(&gateway)?;
    own_in_redis(&gateway, (&target, &echo), port).await?;
    for (id, plugin, conf, key) in &limits {
        let route = json!({ "uri": format!("/{id}"), "upstream": { "nodes": { &echo: 1 } }, "plugins": { *plugin: conf } });
        let answer = gateway.admin("PUT", &format!("/routes/{id}"), &route).await;
        wants(&answer, 201, id)?;
        let path = format!("/{id}");
        for status in [200, 200, 429] {
            wants(&once(&target, &path).await, status, id)?;
        }
        let place = format!("/limits/routes/{id}/{plugin}/1?{key}");
        let told = json_of(&gateway.own("GET", &place, &Value::Null).await)?;
        let seen = [
            &told["allowed"],
            &told["used"],
            &told["remaining"],
            &told["mode"],
        ];
        ensure!(
            seen == [&json!(2), &json!(2), &json!(0), &json!("exact")],
            "{id}: {told}"
        );
        let reset = json_of(&gateway.own("DELETE", &place, &Value::Null).await)?;
        ensure!(
            (&reset["was_known"], &reset["gateways"]) == (&json!(true), &json!("all")),
            "{id}: {reset}"
        );
        wants(&once(&target, &path).await, 200, "after a reset")?;
        let rule = format!("routes/{id}");
        shows(&gateway, &["list", &rule], true, &[", reject 1"])?;
    }
    let conf =
        with(json!({ "conn": 1, "burst": 0, "default_conn_delay": 1, "key": "remote_addr" }));
    places_in_redis(&gateway, (&target, &echo), (&redis, &conf)).await?;
    let metrics = |gateway: &Gateway| {
        let page = gateway.address("prometheus").map(|address| Target {
            address,
            bind: None,
            tls: None,
        });
        async move {
            let answer = once(&page?, "/apisix/prometheus/metrics").await;
            Ok::<_, anyhow::Error>(String::from_utf8_lossy(&answer.body).into_owned())
        }
    };
    let label = format!("store=\"redis 127.0.0.1:{port}/0\"");
    let text = metrics(&gateway).await?;
    let there = format!("apisix_limit_breaker_state{{{label}}} 0");
    ensure!(text.contains(&there), "{text}");
    drop(redis);
    // Away: the answer says so, and soon nobody asks.
    let start = Instant::now();
    let away = format!("apisix_limit_breaker_state{{{label}}} 1");
    while !metrics(&gateway).await?.contains(&away) {
        ensure!(start.elapsed() < LIMIT, "{}", metrics(&gateway).await?);
        once(&target, "/fixed").await;
    }
    let place = "/limits/routes/fixed/limit-count/1?key=127.0.0.1";
    wants(
        &gateway.own("GET", place, &Value::Null).await,
        503,
        "without Redis",
    )?;
    wants(
        &gateway.own("DELETE", place, &Value::Null).await,
        503,
        "without Redis",
    )?;
    ensure!(gateway.stop().await?.success(), "the gateway failed");
    Ok(())
}

/// What `limit-conn` said to requests is told, too.
async fn places_in_redis(
    gateway: &Gateway,
    (target, echo): (&Target, &str),
    (redis, conf): (&Redis, &Value),
) -> Result<()> {
    let route = json!({ "uri": "/held/*", "upstream": { "nodes": { echo: 1 } }, "plugins": { "limit-conn": conf } });
    let answer = gateway.admin("PUT", "/routes/held", &route).await;
    wants(&answer, 201, "places")?;
    let far = target.clone();
    let held = tokio::spawn(async move { once(&far, "/held/delay/2000").await });
    let start = Instant::now();
    while redis.cli(&["KEYS", "*limit-conn*"])?.is_empty() {
        ensure!(start.elapsed() < LIMIT, "nobody holds a place");
        tokio::time::sleep(POLL).await;
    }
    wants(&once(target, "/held/echo").await, 429, "the only place")?;
    let told = [", reject 1"];
    shows(gateway, &["list", "routes/held"], true, &told)?;
    shows(
        gateway,
        &["top", "routes/held/limit-conn/1"],
        true,
        &["       1  `127.0.0.1`"],
    )?;
    wants(&held.await?, 200, "the one that held the place")
}

/// The same of `limit`, whose requests go by overrides in Redis, too.
async fn own_in_redis(gateway: &Gateway, (target, echo): (&Target, &str), port: u16) -> Result<()> {
    let limits = json!([
        { "name": "client", "algorithm": "fixed_window", "count": 2, "time_window": 600, "mode": "exact" },
        { "name": "both", "algorithm": "sliding_window", "count": 100, "time_window": 86_400, "mode": "exact", "key": "$remote_addr|$uri", "scope": "global" },
    ]);
    let store = json!({ "policy": "redis", "redis_host": "127.0.0.1", "redis_port": port, "redis_timeout": 5_000 });
    let route = json!({ "uri": "/own", "upstream": { "nodes": { echo: 1 } },
        "plugins": { "limit": { "limits": limits, "store": store } } });
    let answer = gateway.admin("PUT", "/routes/own", &route).await;
    wants(&answer, 201, "own limits")?;
    for status in [200, 200, 429] {
        wants(&once(target, "/own").await, status, "own limits")?;
    }
    let both = "/limits/routes/own/limit/both?key=127.0.0.1&key=/own";
    let told = json_of(&gateway.own("GET", both, &Value::Null).await)?;
    ensure!(
        (&told["allowed"], &told["used"]) == (&json!(100), &json!(2)),
        "{told}"
    );
    let place = "/limits/routes/own/limit/client?key=127.0.0.1";
    let told = json_of(&gateway.own("GET", place, &Value::Null).await)?;
    ensure!(
        (&told["used"], &told["mode"]) == (&json!(2), &json!("exact")),
        "{told}"
    );
    let body = json!({ "key": "127.0.0.1", "limit": 3, "until": from_now(600)? });
    let answer = gateway
        .own("PUT", "/limits/routes/own/limit/client/override", &body)
        .await;
    wants(&answer, 200, "an override in Redis")?;
    for status in [200, 429] {
        wants(&once(target, "/own").await, status, "with an override")?;
    }
    let told = json_of(&gateway.own("GET", place, &Value::Null).await)?;
    ensure!(
        (&told["allowed"], &told["used"]) == (&json!(3), &json!(3)),
        "{told}"
    );
    let reset = json_of(&gateway.own("DELETE", place, &Value::Null).await)?;
    ensure!(reset["gateways"] == "all", "{reset}");
    wants(&once(target, "/own").await, 200, "after a reset")
}
