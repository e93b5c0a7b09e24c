//! The floor: a bare Pingora proxy that forwards and does nothing else. It has what lockgate gets
//! for nothing too (a peer that is built once, the same allocator and profile) and none of what
//! costs: no modules, no routes, no plugins, no log.
//!
//! `floor 127.0.0.1:9092 127.0.0.1:1980 1`: listens on the first address, forwards to the second,
//! with one worker. With the paths of a certificate and of its key behind that, it speaks TLS. With `fields`
//! as its last word it tells the upstream what lockgate tells every upstream: who asks, and for what.
#![allow(clippy::print_stderr)] // A program for the command line.

use std::process::ExitCode;

use async_trait::async_trait;
use pingora_core::modules::http::HttpModules;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Idle upstream connections: more than any run opens, so that none is made twice.
const POOL: usize = 1024;

struct Floor {
    peer: HttpPeer,
    /// Adds the five fields.
    fields: bool,
}

#[async_trait]
impl ProxyHttp for Floor {
    type CTX = ();

    fn new_ctx(&self) {}

    fn init_downstream_modules(&self, _: &mut HttpModules) {}

    async fn upstream_peer(
        &self,
        _: &mut Session,
        (): &mut (),
    ) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        upstream: &mut RequestHeader,
        (): &mut (),
    ) -> pingora_core::Result<()> {
        if !self.fields {
            return Ok(());
        }
        let client = session.client_addr().and_then(|addr| addr.as_inet());
        let client = client.map_or_else(String::new, |addr| addr.ip().to_string());
        let port = session.server_addr().and_then(|addr| addr.as_inet());
        let host = upstream.headers.get("host").cloned();
        upstream.insert_header("X-Real-IP", client.as_str())?;
        upstream.insert_header("X-Forwarded-For", client)?;
        upstream.insert_header("X-Forwarded-Proto", "http")?;
        if let Some(host) = host {
            upstream.insert_header("X-Forwarded-Host", host)?;
        }
        upstream.insert_header("X-Forwarded-Port", port.map_or(0, |addr| addr.port()))
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let fields = args.pop_if(|last| *last == "fields").is_some();
    let (listen, upstream, threads, secure) = match args.as_slice() {
        [_, listen, upstream, threads] => (*listen, *upstream, threads.parse(), None),
        [_, listen, upstream, threads, cert, key] => {
            (*listen, *upstream, threads.parse(), Some((*cert, *key)))
        }
        _ => return usage(),
    };
    let Ok(threads) = threads else {
        return usage();
    };
    let conf = ServerConf {
        threads,
        upstream_keepalive_pool_size: POOL,
        // SIGTERM ends it at once: nobody waits for a benchmark.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let peer = HttpPeer::new(upstream, false, String::new());
    let mut service = http_proxy_service(&server.configuration, Floor { peer, fields });
    match secure {
        None => service.add_tcp(listen),
        Some((cert, key)) => {
            if let Err(error) = service.add_tls(listen, cert, key) {
                eprintln!("floor: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    server.add_service(service);
    server.run_forever()
}

fn usage() -> ExitCode {
    eprintln!("usage: floor LISTEN UPSTREAM WORKERS [CERT KEY] [fields]");
    ExitCode::from(2)
}
