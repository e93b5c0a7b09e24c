//! Limits in Redis: gateways count together, and what happens while it is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lockgate_test_redis::Redis;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{gateway, once, target, wants};
use crate::World;
use crate::client::Target;
use crate::gateway::{Gateway, POLL};

/// Redis is asked again after a failure, well within this.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn start(port: u16) -> Result<Redis> {
    tokio::task::spawn_blocking(move || Redis::start(port, &[])).await?
}

/// Waits until it holds so many keys.
async fn has_keys(redis: &Redis, wanted: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        let keys = redis.cli(&["DBSIZE"])?;
        if keys == wanted {
            return Ok(());
        }
        ensure!(start.elapsed() < LIMIT, "{keys} keys, not {wanted}");
        tokio::time::sleep(POLL).await;
    }
}

/// Routes with a limit of two in ten minutes each, in this Redis.
fn routes(world: &World, port: u16) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let redis = json!({ "policy": "redis", "redis_host": "127.0.0.1", "redis_port": port, "redis_timeout": 5_000 });
    let with = |extra: Value| {
        let mut conf = redis.clone();
        if let (Some(conf), Some(extra)) = (conf.as_object_mut(), extra.as_object()) {
            conf.extend(extra.clone());
        }
        conf
    };
    let route = |id: &str, plugin: &str, conf: Value| json!({ "id": id, "uri": format!("/{id}"), "plugins": { plugin: conf }, "upstream": { "nodes": { &echo: 1 } } });
    let count = json!({ "count": 2, "time_window": 600 });
    let two = |extra: Value| {
        let mut conf = with(count.clone());
        if let (Some(conf), Some(extra)) = (conf.as_object_mut(), extra.as_object()) {
            conf.extend(extra.clone());
        }
        conf
    };
    let rules = json!({ "rules": [
        { "key": "$remote_addr", "count": 2, "time_window": 600 },
        { "key": "$uri", "count": 5, "time_window": 600 },
    ] });
    // The second rule has no number in these requests.
    let degrades = json!({ "allow_degradation": true, "rules": [
        { "key": "$remote_addr", "count": 2, "time_window": 600 },
        { "key": "$uri", "count": "$http_x_quota", "time_window": 600 },
    ] });
    let limiter = json!({ "count": 2, "time_window": 86_400, "redis_host": "127.0.0.1", "redis_port": port, "timeout": 5_000 });
    Ok(json!({ "routes": [
        route("fixed", "limit-count", two(json!({}))),
        route("sliding", "limit-count", two(json!({ "window_type": "sliding", "time_window": 86_400 }))),
        route("rules", "limit-count", with(rules)),
        route("degrades", "limit-count", with(degrades)),
        route("rate", "limit-req", with(json!({ "rate": 0.001, "burst": 1, "nodelay": true, "key": "remote_addr" }))),
        route("limiter", "sliding-window-limiter", limiter),
        route("strict", "limit-count", two(json!({ "key": "server_addr" }))),
        route("lenient", "limit-count", two(json!({ "key": "server_addr", "allow_degradation": true }))),
    ] }))
}

pub(super) async fn shared(world: Arc<World>) -> Result<()> {
    let redis = start(world.ports.take()?).await?;
    let resources = routes(&world, redis.port())?;
    let one = gateway(&world, "limits-one", &json!({}), resources.clone()).await?;
    let other = gateway(&world, "limits-other", &json!({}), resources).await?;
    let (first, second) = (target(&one)?, target(&other)?);
    for (path, refused) in [
        ("/fixed", 503),
        ("/sliding", 503),
        ("/rules", 503),
        ("/degrades", 503),
        ("/rate", 503),
        ("/limiter", 429),
    ] {
        wants(&once(&first, path).await, 200, path)?;
        wants(&once(&second, path).await, 200, path)?;
        wants(&once(&first, path).await, refused, path)?;
        wants(&once(&second, path).await, refused, path)?;
    }
    let answer = once(&first, "/fixed").await;
    ensure!(answer.all("x-ratelimit-remaining") == ["0"], "{answer:?}");
    ensure!(answer.all("x-ratelimit-limit") == ["2"], "{answer:?}");
    // Refused by one rule, so not charged by the other.
    let answer = once(&first, "/rules").await;
    ensure!(answer.all("x-2-ratelimit-remaining") == ["3"], "{answer:?}");

    wants(&once(&first, "/strict").await, 200, "while Redis is there")?;
    let port = redis.port();
    drop(redis);
    let answer = once(&first, "/strict").await;
    wants(&answer, 500, "without Redis")?;
    let body = String::from_utf8_lossy(&answer.body);
    ensure!(body.contains("failed to limit count"), "{body}");
    wants(&once(&first, "/rate").await, 500, "without Redis")?;
    wants(
        &once(&first, "/lenient").await,
        200,
        "with allow_degradation",
    )?;
    wants(
        &once(&first, "/limiter").await,
        200,
        "which never refuses then",
    )?;

    // Back, and empty.
    let _redis = start(port).await?;
    let start = Instant::now();
    while once(&first, "/strict").await.status != Some(200) {
        ensure!(start.elapsed() < LIMIT, "Redis is not asked again");
        tokio::time::sleep(POLL).await;
    }
    stop(one).await?;
    stop(other).await
}

/// Routes with one place each, in this Redis; a place of a dead gateway is free after a second.
fn places_routes(world: &World, port: u16) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let route = |id: &str, extra: Value| {
        let mut conf = json!({ "default_conn_delay": 0.01, "policy": "redis", "redis_host": "127.0.0.1",
            "redis_port": port, "redis_timeout": 5_000, "key_ttl": 1 });
        if let (Some(conf), Some(extra)) = (conf.as_object_mut(), extra.as_object()) {
            conf.extend(extra.clone());
        }
        json!({ "id": id, "uri": format!("/{id}/*"), "plugins": { "limit-conn": conf }, "upstream": { "nodes": { &echo: 1 } } })
    };
    let one = json!({ "conn": 1, "burst": 0, "key": "server_addr" });
    let mut lenient = one.clone();
    lenient["allow_degradation"] = json!(true);
    let rules = json!({ "rules": [
        { "key": "$http_user", "conn": 9, "burst": 0 },
        { "key": "$server_addr", "conn": 1, "burst": 0 },
    ] });
    let routes = [
        route("one", one),
        route("lenient", lenient),
        route("rules", rules),
    ];
    Ok(json!({ "routes": routes }))
}

/// Asks until there is this status.
pub(super) async fn until(target: &Target, path: &str, status: u16) -> Result<()> {
    let start = Instant::now();
    loop {
        let answer = once(target, path).await;
        if answer.status == Some(status) {
            return Ok(());
        }
        ensure!(
            start.elapsed() < LIMIT,
            "{path}: never {status}: {answer:?}"
        );
        tokio::time::sleep(POLL).await;
    }
}

pub(super) async fn places(world: Arc<World>) -> Result<()> {
    let redis = start(world.ports.take()?).await?;
    let resources = places_routes(&world, redis.port())?;
    let one = gateway(&world, "places-one", &json!({}), resources.clone()).await?;
    let other = gateway(&world, "places-other", &json!({}), resources).await?;
    let (first, second) = (target(&one)?, target(&other)?);
    // Three lives of a place: it is kept, on the other gateway, too.
    for path in ["one", "rules"] {
        let (held, far) = (first.clone(), format!("/{path}/delay/3000"));
        let held = tokio::spawn(async move { once(&held, &far).await });
        let near = format!("/{path}/echo");
        has_keys(&redis, "1").await?;
        let mut refused = 0;
        while !held.is_finished() {
            let answer = once(&second, &near).await;
            refused += u32::from(answer.status == Some(503));
            tokio::time::sleep(POLL).await;
        }
        ensure!(refused > 1, "{path}: the place was not kept");
        wants(&held.await?, 200, path)?;
        until(&second, &near, 200).await?;
        // The place comes back beside the traffic, a moment later.
        until(&first, &near, 200).await?;
        has_keys(&redis, "0").await?;
    }
    // A gateway dies with a request under way.
    let far = second.clone();
    let cut = tokio::spawn(async move { once(&far, "/one/delay/20000").await });
    has_keys(&redis, "1").await?;
    wants(&once(&first, "/one/echo").await, 503, "the only place")?;
    other.signal(Signal::SIGKILL)?;
    ensure!(cut.await?.status.is_none(), "it was not killed");
    until(&first, "/one/echo", 200).await?;

    let port = redis.port();
    drop(redis);
    wants(&once(&first, "/one/echo").await, 500, "without Redis")?;
    let lenient = once(&first, "/lenient/echo").await;
    wants(&lenient, 200, "with allow_degradation")?;
    let _redis = start(port).await?;
    until(&first, "/one/echo", 200).await?;
    stop(one).await
}

pub(super) async fn stop(gateway: Gateway) -> Result<()> {
    ensure!(gateway.stop().await?.success(), "a gateway failed");
    Ok(())
}
