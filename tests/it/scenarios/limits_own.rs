//! The plugin `limit` in Redis: gateways count together, get back what did not count, and go on alone.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use lockgate_test_redis::Redis;

use super::limits::{start, stop, until};
use super::{gateway, get, once, target, wants};
use crate::World;
use crate::client::{Connection, Target};

/// Routes with shared limits in this Redis, and parts of a half for each gateway while it is away.
fn routes(world: &World, port: u16) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let store = json!({ "policy": "redis", "redis_host": "127.0.0.1", "redis_port": port, "redis_timeout": 5_000 });
    let route = |id: &str, limits: Value, more: Value| {
        let mut conf = json!({ "limits": limits, "store": store, "gateways": 2 });
        if let (Some(conf), Some(more)) = (conf.as_object_mut(), more.as_object()) {
            conf.extend(more.clone());
        }
        json!({ "id": id, "uri": format!("/{id}/*"), "plugins": { "limit": conf }, "upstream": { "nodes": { &echo: 1 } } })
    };
    let one = |extra: Value| {
        let mut one =
            json!({ "name": "one", "count": 2, "time_window": 86_400, "key": "$server_addr" });
        if let (Some(one), Some(extra)) = (one.as_object_mut(), extra.as_object()) {
            one.extend(extra.clone());
        }
        one
    };
    let other =
        json!({ "name": "other", "algorithm": "fixed_window", "count": 9, "time_window": 600 });
    let routes = [
        route("token", json!([one(json!({}))]), json!({})),
        route(
            "fixed",
            json!([one(json!({ "algorithm": "fixed_window" })), other]),
            json!({}),
        ),
        route(
            "sliding",
            json!([one(json!({ "algorithm": "sliding_window" }))]),
            json!({}),
        ),
        route(
            "log",
            json!([one(json!({ "algorithm": "log" }))]),
            json!({}),
        ),
        route(
            "refund",
            json!([one(json!({ "algorithm": "fixed_window" }))]),
            json!({ "refund_on": ["5xx"] }),
        ),
        route(
            "places",
            json!([one(json!({ "algorithm": "concurrency", "count": 1 }))]),
            json!({}),
        ),
        route(
            "alone",
            json!([one(json!({ "algorithm": "fixed_window", "count": 4 }))]),
            json!({}),
        ),
    ];
    Ok(json!({ "routes": routes }))
}

pub(super) async fn shared(world: Arc<World>) -> Result<()> {
    let redis = start(world.ports.take()?).await?;
    let resources = routes(&world, redis.port())?;
    let one = gateway(&world, "own-one", &json!({}), resources.clone()).await?;
    let other = gateway(&world, "own-other", &json!({}), resources).await?;
    let (first, second) = (target(&one)?, target(&other)?);
    for path in ["/token/a", "/fixed/a", "/sliding/a", "/log/a"] {
        wants(&once(&first, path).await, 200, path)?;
        wants(&once(&second, path).await, 200, path)?;
        wants(&once(&first, path).await, 429, path)?;
        wants(&once(&second, path).await, 429, path)?;
    }
    let answer = once(&second, "/fixed/a").await;
    let told = answer.all("ratelimit").join(", ");
    // Refused by one limit, so not charged by the other.
    ensure!(told.contains("\"one\";r=0"), "{told}");
    ensure!(told.contains("\"other\";r=7"), "{told}");

    // What did not count comes back, on the other gateway, too.
    for _ in 0..4 {
        until(&first, "/refund/status/503", 503).await?;
        until(&second, "/refund/status/503", 503).await?;
    }
    until(&first, "/refund/a", 200).await?;
    until(&second, "/refund/a", 200).await?;
    wants(&once(&first, "/refund/a").await, 429, "both were used")?;

    let far = second.clone();
    // It may find the place taken by the other's question.
    let held = tokio::spawn(async move { until(&far, "/places/delay/1500", 200).await });
    until(&first, "/places/a", 429).await?;
    held.await??;
    until(&first, "/places/a", 200).await?;

    wants(&once(&first, "/alone/a").await, 200, "one of four")?;
    drop(redis);
    // One more of its half, then none; the other gateway has the other half.
    wants(&once(&first, "/alone/a").await, 200, "a half of four")?;
    wants(&once(&first, "/alone/a").await, 429, "its half is used")?;
    wants(&once(&second, "/alone/a").await, 200, "the other half")?;
    wants(&once(&second, "/alone/a").await, 200, "the other half")?;
    wants(&once(&second, "/alone/a").await, 429, "the other half")?;
    stop(one).await?;
    stop(other).await
}

/// Routes whose permits are taken ahead, and one that counts together with nodes of APISIX.
fn ahead_routes(world: &World, port: u16) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let store = json!({ "policy": "redis", "redis_host": "127.0.0.1", "redis_port": port, "redis_timeout": 5_000 });
    let count = |extra: Value| {
        let mut conf = json!({ "time_window": 600, "key": "all", "key_type": "constant" });
        for more in [&store, &extra] {
            if let (Some(conf), Some(more)) = (conf.as_object_mut(), more.as_object()) {
                conf.extend(more.clone());
            }
        }
        conf
    };
    let route = |id: &str, plugin: &str, conf: Value| json!({ "id": id, "uri": format!("/{id}"), "plugins": { plugin: conf }, "upstream": { "nodes": { &echo: 1 } } });
    let one = json!({ "name": "one", "algorithm": "fixed_window", "count": AHEAD, "time_window": 600, "key": "" });
    Ok(json!({ "routes": [
        route("lease", "limit", json!({ "limits": [one], "store": store, "gateways": 2 })),
        route("sync", "limit-count", count(json!({ "count": AHEAD, "sync_interval": 1 }))),
        route("apisix", "limit-count", count(json!({ "count": 3, "group": "g", "key_format": "apisix" }))),
    ] }))
}

/// What passes of requests whose permits are taken ahead.
const AHEAD: usize = 1_200;
/// What each of two gateways is asked.
const ASKED: usize = 800;

/// How many of so many requests pass.
async fn passed(target: Target, path: &str, asked: usize) -> Result<usize> {
    let mut connection = Connection::open(&target).await?;
    let mut passed = 0;
    for _ in 0..asked {
        let answer = connection.exchange(&get(path, "ahead")).await;
        match answer.status {
            Some(200) => passed += 1,
            Some(429 | 503) => {}
            _ => anyhow::bail!("{path}: {answer:?}"),
        }
    }
    Ok(passed)
}

/// How often a Redis ran scripts.
fn scripts(redis: &Redis) -> Result<u64> {
    let stats = redis.cli(&["INFO", "commandstats"])?;
    let calls = |line: &str| {
        let (_, rest) = line.split_once(":calls=")?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    let evals = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"));
    Ok(evals.filter_map(calls).sum())
}

pub(super) async fn ahead(world: Arc<World>) -> Result<()> {
    let redis = start(world.ports.take()?).await?;
    let resources = ahead_routes(&world, redis.port())?;
    let one = gateway(&world, "ahead-one", &json!({}), resources.clone()).await?;
    let other = gateway(&world, "ahead-other", &json!({}), resources).await?;
    let (first, second) = (target(&one)?, target(&other)?);
    for path in ["/lease", "/sync"] {
        let before = scripts(&redis)?;
        let far = second.clone();
        let there = tokio::spawn(async move { passed(far, path, ASKED).await });
        let all = passed(first.clone(), path, ASKED).await? + there.await??;
        ensure!(all <= AHEAD, "{path}: {all} passed of {AHEAD}");
        // What is left over is held by one gateway when the other asks.
        ensure!(
            all >= AHEAD * 9 / 10,
            "{path}: only {all} passed of {AHEAD}"
        );
        let asked = scripts(&redis)? - before;
        ensure!(
            asked < ASKED as u64 / 2,
            "{path}: Redis was asked {asked} times"
        );
    }
    // As a node of APISIX counted one request.
    redis.cli(&["SET", "plugin-limit-count:v1:g:all", "1", "EX", "600"])?;
    let answer = once(&first, "/apisix").await;
    ensure!(answer.all("x-ratelimit-remaining") == ["1"], "{answer:?}");
    wants(&once(&second, "/apisix").await, 200, "the third")?;
    wants(&once(&first, "/apisix").await, 503, "the fourth")?;
    let kept = redis.cli(&["GET", "plugin-limit-count:v1:g:all"])?;
    ensure!(kept == "3", "{kept}");
    stop(one).await?;
    stop(other).await
}
