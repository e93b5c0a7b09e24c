//! Gateways that count limits for each other: three processes, no Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{gateway, once, target, wants};
use crate::World;
use crate::client::Target;
use crate::gateway::{Gateway, POLL};

/// Whatever is waited for comes well within this.
const LIMIT: Duration = Duration::from_secs(40);
/// The limit of each key. Its window is a week, and does not end meanwhile.
const COUNT: usize = 30;
/// Keys that are counted; each gateway owns some of them.
const KEYS: usize = 12;
/// Keys in a row of which all gateways agree, before they are taken to count together: so many, that each
/// of them owns some.
const AGREE: usize = 40;

fn routes(world: &World) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let limited = |on_store_error: &str| {
        json!({ "limit": { "gateways": 3, "limits": [{
            "name": "k", "algorithm": "fixed_window", "count": "$arg_n", "time_window": 604_800,
            "key": "$arg_k", "mode": "exact", "on_store_error": on_store_error }] } })
    };
    let route = |id: &str, plugins: Value| json!({ "id": id, "uri": format!("/{id}"), "plugins": plugins, "upstream": { "nodes": { &echo: 1 } } });
    Ok(json!({ "routes": [
        route("strict", limited("deny")),
        route("lenient", limited("local")),
    ] }))
}

/// One request; whether it passed.
async fn passes(target: &Target, route: &str, key: &str, count: usize) -> Result<bool> {
    let answer = once(target, &format!("/{route}?k={key}&n={count}")).await;
    match answer.status {
        Some(200) => Ok(true),
        Some(429) => Ok(false),
        _ => {
            wants(&answer, 200, key)?;
            Ok(false)
        }
    }
}

/// Requests of one key at all of these, all at once; how many passed.
async fn burst(targets: &[&Target], key: &str, each: usize) -> Result<usize> {
    let all = targets
        .iter()
        .flat_map(|target| (0..each).map(|_| passes(target, "strict", key, COUNT)));
    Ok(try_join_all(all)
        .await?
        .into_iter()
        .filter(|passed| *passed)
        .count())
}

/// Requests of all keys; how many passed of each.
async fn all_keys(targets: &[&Target], each: usize) -> Result<Vec<usize>> {
    let keys = (0..KEYS).map(|key| format!("key{key}"));
    let mut passed = Vec::new();
    for key in keys {
        passed.push(burst(targets, &key, each).await?);
    }
    Ok(passed)
}

/// What an answer says is left, if it tells.
async fn left(target: &Target, key: &str) -> Option<u64> {
    let answer = once(target, &format!("/lenient?k={key}&n=1000")).await;
    let header = answer.all("ratelimit").first()?.to_string();
    let (_, rest) = header.split_once("r=")?;
    rest.split(';').next()?.parse().ok()
}

/// Waits until every key is counted by one of them, whichever is asked: each leaves one less to the next.
/// Who counts alone leaves the same as the others.
async fn together(targets: &[&Target], mark: &str) -> Result<()> {
    let start = Instant::now();
    let (mut agree, mut n) = (0, 0);
    while agree < AGREE {
        n += 1;
        let key = format!("{mark}{n}");
        let mut said = Vec::new();
        for target in targets {
            said.push(left(target, &key).await);
        }
        let one_less = |pair: &[Option<u64>]| matches!(pair, [Some(a), Some(b)] if *a == *b + 1);
        agree = if said.windows(2).all(one_less) {
            agree + 1
        } else {
            0
        };
        ensure!(
            start.elapsed() < LIMIT,
            "{mark}: they do not count together, but say {said:?}"
        );
        if agree == 0 {
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

async fn in_etcd(world: &World, name: &str, etcd: &Value, port: u16) -> Result<Gateway> {
    let config = json!({
        "deployment": {
            "role": "data_plane", "role_data_plane": { "config_provider": "etcd" }, "etcd": etcd },
        "lockgate": { "cluster": {
            "owner": true, "listen": format!("127.0.0.1:{port}"),
            "secret": "a secret of the scenario", "timeout": "5s" } } });
    gateway(world, name, &config, json!({})).await
}

/// Found in etcd: they join, one leaves, one is killed, etcd is cut off for longer than a lease.
pub(super) async fn found(world: Arc<World>) -> Result<()> {
    let etcd = Cluster::start(&world, "peers", 1).await?;
    let resources = routes(&world)?;
    for route in resources["routes"].as_array().into_iter().flatten() {
        let id = route["id"].as_str().unwrap_or_default();
        etcd.put(0, &format!("routes/{id}"), &route.to_string())
            .await?;
    }
    let section = etcd.section();
    let ports = [
        world.ports.take()?,
        world.ports.take()?,
        world.ports.take()?,
    ];
    let start = |at: usize| {
        let (world, section, port) = (&world, &section, ports[at]);
        async move { in_etcd(world, &format!("peer-{at}-{port}"), section, port).await }
    };
    let (a, b, c) = (start(0).await?, start(1).await?, start(2).await?);
    let (ta, tb, tc) = (target(&a)?, target(&b)?, target(&c)?);
    together(&[&ta, &tb, &tc], "start").await?;
    // Uneven, and exactly the limit.
    let half = all_keys(&[&ta], 5).await?;
    ensure!(half == [5; KEYS], "{half:?}");
    let rest = all_keys(&[&ta, &tb, &tc], 20).await?;
    ensure!(rest == [COUNT - 5; KEYS], "{rest:?}");

    // One leaves as it should: the others know what it had counted.
    ensure!(c.stop().await?.success(), "a gateway failed");
    together(&[&ta, &tb], "left").await?;
    let more = all_keys(&[&ta, &tb], 5).await?;
    ensure!(more == [0; KEYS], "after one left: {more:?}");
    // Another comes in its place, and gets the counts of its keys.
    let c = start(2).await?;
    let tc = target(&c)?;
    together(&[&ta, &tb, &tc], "came").await?;
    let more = all_keys(&[&ta, &tb, &tc], 5).await?;
    ensure!(more == [0; KEYS], "after one came: {more:?}");

    // One is killed: until its lease is over its keys have no owner, then they have another. At most an
    // even use is granted once more, on its keys.
    let mut c = c;
    c.signal(Signal::SIGKILL)?;
    c.ended(LIMIT).await?;
    together(&[&ta, &tb], "killed").await?;
    let more = all_keys(&[&ta, &tb], 2 * COUNT).await?;
    let (again, same): (Vec<&usize>, Vec<&usize>) = more.iter().partition(|passed| **passed > 0);
    ensure!(
        same.len() >= KEYS / 4,
        "counts were lost that were not of the one killed: {more:?}"
    );
    ensure!(again.iter().all(|passed| **passed <= COUNT), "{more:?}");

    // Without etcd for longer than a lease each counts its share alone, and no request fails.
    etcd.gates(false);
    let begun = Instant::now();
    let (mut n, mut alone) = (0, 0);
    while alone < AGREE {
        n += 1;
        let key = format!("alone{n}");
        for target in [&ta, &tb] {
            ensure!(
                passes(target, "lenient", &key, 1_000).await?,
                "a request fails"
            );
        }
        // Keys of both are counted by nobody.
        let strict = [
            passes(&ta, "strict", &key, 1_000).await?,
            passes(&tb, "strict", &key, 1_000).await?,
        ];
        alone = if strict == [false; 2] { alone + 1 } else { 0 };
        ensure!(begun.elapsed() < LIMIT, "they go on without etcd");
        if alone == 0 {
            tokio::time::sleep(POLL).await;
        }
    }
    // A part of three for each, as the plugin says how many they are.
    let passed = try_join_all((0..10).map(|_| passes(&ta, "lenient", "part", 6))).await?;
    let passed = passed.into_iter().filter(|passed| *passed).count();
    ensure!(passed <= 3, "{passed} of a part of 6");
    etcd.gates(true);
    // Their leases have run out: they enter themselves anew.
    together(&[&ta, &tb], "back").await?;
    ensure!(
        a.stop().await?.success() && b.stop().await?.success(),
        "a gateway failed"
    );
    Ok(())
}

/// Named in the settings, with certificates: one is killed, and comes back.
pub(super) async fn named(world: Arc<World>) -> Result<()> {
    let dir = world.root.join("peers-named");
    std::fs::create_dir_all(&dir)?;
    let pair = world.certs.pair("127.0.0.1")?;
    let file = |name: &str| dir.join(name).display().to_string();
    std::fs::write(file("ca.pem"), world.certs.ca_pem()?)?;
    std::fs::write(file("peer.pem"), pair.cert_pem()?)?;
    std::fs::write(file("peer.key"), pair.key_pem()?)?;
    let ports = [
        world.ports.take()?,
        world.ports.take()?,
        world.ports.take()?,
    ];
    let peers: Vec<String> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let resources = routes(&world)?;
    let start = |at: usize| {
        let config = json!({ "lockgate": { "cluster": {
            "owner": true, "listen": peers[at], "peers": peers, "timeout": "5s",
            "tls": { "ca": file("ca.pem"), "cert": file("peer.pem"), "key": file("peer.key") } } } });
        let (world, resources) = (&world, resources.clone());
        async move { gateway(world, &format!("named-{at}"), &config, resources).await }
    };
    let (a, b, mut c) = (start(0).await?, start(1).await?, start(2).await?);
    let (ta, tb) = (target(&a)?, target(&b)?);
    together(&[&ta, &tb, &target(&c)?], "start").await?;
    let all = all_keys(&[&ta, &tb, &target(&c)?], 20).await?;
    ensure!(all == [COUNT; KEYS], "{all:?}");
    // Nobody else counts what one that is gone owns: where that is refused, it is refused.
    c.signal(Signal::SIGKILL)?;
    c.ended(LIMIT).await?;
    let more = all_keys(&[&ta, &tb], 2).await?;
    ensure!(more == [0; KEYS], "{more:?}");
    let begun = Instant::now();
    let (mut own, mut gone) = (0, 0);
    for n in 0..60 {
        match passes(&ta, "strict", &format!("new{n}"), COUNT).await? {
            true => own += 1,
            false => gone += 1,
        }
        ensure!(
            begun.elapsed() < LIMIT,
            "requests wait for one that is gone"
        );
    }
    ensure!(own >= 20 && gone >= 5, "{own} are counted, {gone} are not");
    let c = start(2).await?;
    together(&[&ta, &tb, &target(&c)?], "again").await?;
    // It knows from the others that it had counted, and grants no more than an even use has left.
    let again = all_keys(&[&ta, &tb, &target(&c)?], COUNT).await?;
    ensure!(again.iter().all(|passed| *passed <= COUNT), "{again:?}");
    ensure!(
        again.iter().filter(|passed| **passed == 0).count() >= KEYS / 4,
        "{again:?}"
    );
    for gateway in [a, b, c] {
        ensure!(gateway.stop().await?.success(), "a gateway failed");
    }
    Ok(())
}
