//! Clients with habits: they talk before they were answered, stay silent in a tunnel, or never read.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::time::Instant;

use super::{gateway, get, once, one_route, target, wants};
use crate::World;
use crate::client::{Connection, Message, websocket};
use crate::gateway::POLL;

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

/// `client_body_timeout` is about bodies: a tunnel may be silent for longer.
pub(super) async fn silent_tunnel(world: Arc<World>) -> Result<()> {
    let config = json!({ "nginx_config": { "http": { "client_body_timeout": SECOND } } });
    let mut resources = one_route(&world)?;
    resources["routes"][0]["enable_websocket"] = json!(true);
    let gateway = gateway(&world, "tunnel", &config, resources).await?;
    let mut connection = Connection::open(&target(&gateway)?).await?;
    let head = format!(
        "GET /websocket HTTP/1.1\r\nHost: scenario.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n\r\n",
        websocket::KEY
    );
    let upgrade = Message {
        method: "GET".to_owned(),
        head: head.into_bytes(),
        ..Message::default()
    };
    wants(&connection.exchange(&upgrade).await, 101, "the upgrade")?;
    tokio::time::sleep(SILENCE).await;
    connection
        .websocket(&["still there".to_owned()])
        .await
        .context("after a silence")
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
