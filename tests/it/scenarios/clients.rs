//! Clients with habits: they talk before they were answered, stay silent in a tunnel, or never read.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{gateway, get, once, one_route, target, wants};
use crate::World;
use crate::client::{Connection, Message, websocket};
use crate::gateway::{Gateway, POLL};

/// Timeouts of the gateway in these scenarios.
const SECOND: &str = "1s";
/// A silence beyond them.
const SILENCE: Duration = Duration::from_millis(2_500);
/// How long a client that reads nothing may go on: two deadlines for an answer, the kernel's
/// timers, a slow machine.
const GIVEN_UP: Duration = Duration::from_secs(15);
/// A head that no socket buffers hold, made of an argument that is repeated.
const HEAD: usize = 8 * 1024 * 1024;
const ARG: usize = 4 * 1024;

/// What comes while an answer is pending must not harm that answer, and must not vanish: either it
/// is served, or the connection is closed.
pub(super) async fn early(world: Arc<World>) -> Result<()> {
    let gateway = gateway(&world, "early", &json!({}), one_route(&world)?).await?;
    let target = target(&gateway)?;
    let next = "GET /x HTTP/1.1\r\nHost: scenario.test\r\n\r\n";
    for (mark, rest) in [("early-next", next), ("early-crlf", "\r\n")] {
        let mut connection = Connection::open(&target).await?;
        let head = format!(
            "POST /delay/400 HTTP/1.1\r\nHost: scenario.test\r\nx-case: {mark}\r\nContent-Length: 1\r\n\r\nx"
        );
        connection.write(head.as_bytes()).await?;
        let start = Instant::now();
        while world.upstreams.recorder.count(mark) == 0 {
            ensure!(start.elapsed() < GIVEN_UP, "{mark}: never arrived");
            tokio::time::sleep(POLL).await;
        }
        connection.write(rest.as_bytes()).await?;
        wants(&connection.read("POST").await, 200, mark)?;
        let second = if rest == next {
            connection.read("GET").await
        } else {
            connection.exchange(&get("/x", "early")).await
        };
        let closed = second.status.is_none() && second.took < GIVEN_UP;
        ensure!(
            second.status == Some(200) || closed,
            "{mark}: {:?} {:?}",
            second.status,
            second.error
        );
    }
    wants(&once(&target, "/x").await, 200, "afterwards")
}

/// A gateway with a route that lets WebSocket through.
async fn tunnels(world: &World, name: &str, route: &Value) -> Result<Gateway> {
    let config = json!({ "nginx_config": { "http": { "client_body_timeout": SECOND } } });
    let mut resources = one_route(world)?;
    let own = resources["routes"][0].as_object_mut().context("a route")?;
    own.insert("enable_websocket".to_owned(), json!(true));
    own.extend(route.as_object().cloned().unwrap_or_default());
    gateway(world, name, &config, resources).await
}

/// A request for WebSocket, and bytes that follow it at once.
fn upgrade(rest: &[u8]) -> Message {
    let head = format!(
        "GET /websocket HTTP/1.1\r\nHost: scenario.test\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n\r\n",
        websocket::KEY
    );
    Message {
        method: "GET".to_owned(),
        head: [head.as_bytes(), rest].concat(),
        ..Message::default()
    }
}

/// `client_body_timeout` is about bodies: a tunnel may be silent for longer, until the upstream's
/// `timeout.read`.
pub(super) async fn silent_tunnel(world: Arc<World>) -> Result<()> {
    let tunnel = tunnels(&world, "tunnel", &json!({})).await?;
    let mut connection = Connection::open(&target(&tunnel)?).await?;
    let answer = connection.exchange(&upgrade(b"")).await;
    wants(&answer, 101, "the upgrade")?;
    tokio::time::sleep(SILENCE).await;
    connection
        .websocket(&["still there".to_owned()], 0)
        .await
        .context("after a silence")?;

    let limited = json!({ "timeout": { "connect": 1, "send": 1, "read": 1 } });
    let tunnel = tunnels(&world, "tunnel-limited", &limited).await?;
    let mut connection = Connection::open(&target(&tunnel)?).await?;
    let answer = connection.exchange(&upgrade(b"")).await;
    wants(&answer, 101, "the upgrade with a limit")?;
    let start = Instant::now();
    connection.closes().await.map_err(anyhow::Error::msg)?;
    let after = start.elapsed();
    ensure!(after > Duration::from_millis(800), "closed after {after:?}");
    Ok(())
}

/// What a client sends together with its upgrade is the tunnel's, and no tunnel ends by itself.
pub(super) async fn many_tunnels(world: Arc<World>) -> Result<()> {
    const TASKS: usize = 8;
    const EACH: usize = 25;
    let gateway = tunnels(&world, "tunnels", &json!({})).await?;
    let target = target(&gateway)?;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let target = target.clone();
        tasks.spawn(async move {
            for number in 0..EACH {
                let texts = [format!("first {task} {number}"), "second".to_owned()];
                let before = number % 2;
                let early = match before {
                    0 => Vec::new(),
                    _ => websocket::message(&texts[0])?,
                };
                let mut connection = Connection::open(&target).await?;
                let answer = connection.exchange(&upgrade(&early)).await;
                wants(&answer, 101, &texts[0])?;
                let talk = connection.websocket(&texts, before).await;
                talk.with_context(|| format!("{}, {before} early", texts[0]))?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// A client that never reads is given up after `send_timeout`, whoever answers it, also when it is the
/// head that is stuck.
pub(super) async fn never_reads(world: Arc<World>) -> Result<()> {
    let config = json!({ "nginx_config": { "http": { "send_timeout": SECOND } } });
    let echo = world.upstreams.address("echo")?.to_string();
    let long = json!({ "headers": { "set": { "X-Long": "$arg_a".repeat(HEAD / ARG) } } });
    let resources = json!({ "routes": [
        { "id": "own", "uri": "/own", "plugins": {
            "mocking": { "response_status": 204, "response_example": "none" },
            "response-rewrite": long } },
        { "id": "far", "uri": "/far/*", "plugins": { "response-rewrite": long },
            "upstream": { "nodes": { echo: 1 } } },
    ] });
    let gateway = gateway(&world, "never-reads", &config, resources).await?;
    let target = target(&gateway)?;
    for path in ["/own", "/far/status/204"] {
        let mut connection = Connection::open(&target).await?;
        let path = format!("{path}?a={}", "x".repeat(ARG));
        connection.write(&get(&path, "never-reads").head).await?;
        for in_flight in [1, 0] {
            let start = Instant::now();
            while gateway.configuration().await?["in_flight"] != in_flight {
                ensure!(
                    start.elapsed() < GIVEN_UP,
                    "{}: {in_flight} in flight never came about",
                    &path[..8]
                );
                tokio::time::sleep(POLL).await;
            }
        }
    }
    Ok(())
}
