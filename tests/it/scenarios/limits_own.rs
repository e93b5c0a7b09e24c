//! The plugin `limit` in Redis: gateways count together, get back what did not count, and go on alone.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::limits::{start, stop, until};
use super::{gateway, once, target, wants};
use crate::World;

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
