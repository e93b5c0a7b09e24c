//! Tests in Rust for what a case file cannot say: signals, upgrades, load, files replaced in odd ways.

mod admin;
mod changes;
mod clients;
mod cluster;
mod etcd;
mod etcd_faults;
mod etcd_secured;
mod explain;
mod files;
mod idle;
mod kills;
pub(crate) mod lanes;
mod limits;
pub(crate) mod limits_chaos;
mod limits_faults;
mod limits_load;
mod limits_nodes;
mod limits_operated;
mod limits_own;
mod limits_policy;
mod limits_servers;
mod limits_verdict;
mod limits_windows;
mod load;
mod peers;
mod shutdown;
mod store;
mod upgrade;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::World;
use crate::client::{Answer, Connection, Message, Target};
use crate::gateway::{Gateway, Setup};

/// The outcome of a scenario, later.
type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
/// A scenario: makes its own gateway, fails with an explanation.
pub(crate) type Scenario = fn(Arc<World>) -> Running;

/// All scenarios by name.
pub(crate) const ALL: &[(&str, Scenario)] = &[
    ("explain looks beside a running gateway", |w| {
        Box::pin(explain::beside(w))
    }),
    ("SIGTERM lets requests finish and ends with 0", |w| {
        Box::pin(shutdown::drain(w))
    }),
    ("SIGTERM lets requests finish that had arrived", |w| {
        Box::pin(shutdown::arrived(w))
    }),
    ("a head that never ends is given up", |w| {
        Box::pin(idle::slow_head(w))
    }),
    ("a body that is stretched byte by byte is given up", |w| {
        Box::pin(idle::slow_body(w))
    }),
    ("bytes that come before the answer do it no harm", |w| {
        Box::pin(clients::early(w))
    }),
    ("a silent tunnel outlives client_body_timeout", |w| {
        Box::pin(clients::silent_tunnel(w))
    }),
    ("tunnels pass what is sent early, and do not end", |w| {
        Box::pin(clients::many_tunnels(w))
    }),
    ("a client that never reads is given up", |w| {
        Box::pin(clients::never_reads(w))
    }),
    ("the lanes agree about hostile bytes", |w| {
        Box::pin(lanes::few(w))
    }),
    ("two thousand idle connections cost little", |w| {
        Box::pin(idle::many(w))
    }),
    ("silent connections cost little and are given up", |w| {
        Box::pin(idle::silent(w))
    }),
    ("as many files may be open as the system allows", |w| {
        Box::pin(idle::open_files(w))
    }),
    ("twenty edits a second fail no request", |w| {
        Box::pin(load::hot_edits(w))
    }),
    ("five upgrades under load fail no request", |w| {
        Box::pin(upgrade::five(w))
    }),
    ("SIGQUIT without a successor keeps serving", |w| {
        Box::pin(upgrade::alone(w))
    }),
    ("kill -9 loses no write that was answered", |w| {
        Box::pin(store::killed(w))
    }),
    ("a restart keeps the store, its order and its key", |w| {
        Box::pin(store::restarted(w))
    }),
    ("an upgrade hands the store over", |w| {
        Box::pin(store::handed_over(w))
    }),
    (
        "a stored resource that is not valid is reported alone",
        |w| Box::pin(store::not_valid(w)),
    ),
    ("the Admin API over HTTPS, with client certificates", |w| {
        Box::pin(admin::https(w))
    }),
    ("a change that waits goes back after a restart", |w| {
        Box::pin(changes::restarted(w))
    }),
    ("gateways on one etcd make changes together", |w| {
        Box::pin(changes::shared(w))
    }),
    ("a change goes back while another gateway writes", |w| {
        Box::pin(changes::among_others(w))
    }),
    ("changes by command", |w| Box::pin(changes::commands(w))),
    ("gateways share etcd, and outlive it", |w| {
        Box::pin(etcd::shared(w))
    }),
    ("etcd behind TLS with client certificates", |w| {
        Box::pin(etcd_secured::tls(w))
    }),
    ("etcd with users and passwords", |w| {
        Box::pin(etcd_secured::password(w))
    }),
    ("etcd killed, frozen, cut off: no request fails", |w| {
        Box::pin(etcd_faults::away(w))
    }),
    (
        "etcd restored, wiped, full of garbage: no request fails",
        |w| Box::pin(etcd_faults::restored(w)),
    ),
    (
        "without etcd a gateway starts from the last good one",
        |w| Box::pin(etcd_faults::last_good(w)),
    ),
    ("kill -9 among a thousand writes, embedded", |w| {
        Box::pin(kills::embedded(w))
    }),
    ("kill -9 among a thousand writes, etcd", |w| {
        Box::pin(kills::etcd(w))
    }),
    ("a successor that fails gives the store back", |w| {
        Box::pin(store::given_back(w))
    }),
    ("gateways count together in Redis, and without it", |w| {
        Box::pin(limits::shared(w))
    }),
    ("permits are taken ahead, and never too many", |w| {
        Box::pin(limits_own::ahead(w))
    }),
    ("limits of all kinds count in Redis, and alone", |w| {
        Box::pin(limits_own::shared(w))
    }),
    ("places in Redis come back when a gateway dies", |w| {
        Box::pin(limits::places(w))
    }),
    ("gateways with one Redis admit exactly the limit", |w| {
        Box::pin(limits_windows::few(w))
    }),
    ("limits while a Redis is frozen, killed, slow, full", |w| {
        Box::pin(limits_chaos::single(w))
    }),
    ("limits while Sentinels choose another master", |w| {
        Box::pin(limits_chaos::sentinels(w))
    }),
    ("limits while a master of a cluster dies", |w| {
        Box::pin(limits_chaos::cluster(w))
    }),
    (
        "of three gateways with one limit one dies or freezes",
        |w| Box::pin(limits_nodes::three(w)),
    ),
    ("an upgrade keeps what limits have counted", |w| {
        Box::pin(limits_operated::upgraded(w))
    }),
    ("what is said of a key reaches every gateway", |w| {
        Box::pin(limits_operated::shared(w))
    }),
    ("limits in Redis are looked at and reset there", |w| {
        Box::pin(limits_operated::in_redis(w))
    }),
    ("limits by command", |w| {
        Box::pin(limits_operated::commands(w))
    }),
    ("gateways found in etcd count for each other", |w| {
        Box::pin(peers::found(w))
    }),
    ("gateways named in settings count for each other", |w| {
        Box::pin(peers::named(w))
    }),
    ("a half-written file is ignored", |w| {
        Box::pin(files::half_written(w))
    }),
    ("a replaced symlink is followed", |w| {
        Box::pin(files::symlink(w))
    }),
];

/// One route for everything, to the first upstream.
fn one_route(world: &World) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    Ok(json!({ "routes": [{ "id": "all", "uri": "/*", "upstream": { "nodes": { echo: 1 } } }] }))
}

/// A gateway with resources of its own.
async fn gateway(world: &World, name: &str, config: &Value, resources: Value) -> Result<Gateway> {
    let setup = Setup {
        resources,
        ..world.setup(name, config)
    };
    Gateway::start(setup).await
}

fn target(gateway: &Gateway) -> Result<Target> {
    Ok(Target {
        address: gateway.address("http")?,
        bind: None,
        tls: None,
    })
}

fn get(path: &str, mark: &str) -> Message {
    let head = format!("GET {path} HTTP/1.1\r\nHost: scenario.test\r\nx-case: {mark}\r\n\r\n");
    Message {
        method: "GET".to_owned(),
        head: head.into_bytes(),
        ..Message::default()
    }
}

/// A GET on a connection of its own.
async fn once(target: &Target, path: &str) -> Answer {
    match Connection::open(target).await {
        Ok(mut connection) => connection.exchange(&get(path, "once")).await,
        Err(error) => Answer::failed(&error),
    }
}

/// Fails unless the answer has this status.
fn wants(answer: &Answer, status: u16, what: &str) -> Result<()> {
    ensure!(
        answer.status == Some(status),
        "{what}: wanted {status}, got {:?} {:?}",
        answer.status,
        answer.error
    );
    Ok(())
}

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|l| l.starts_with("VmRSS:"))
        .context("no VmRSS")?;
    let number = line
        .split_whitespace()
        .nth(1)
        .context("no number in VmRSS")?;
    Ok(number.parse()?)
}
