//! The floor: a bare Pingora proxy that forwards and does nothing else. It has what lockgate gets
//! for nothing too (a peer that is built once, the same allocator and profile) and none of what
//! costs: no modules, no routes, no plugins, no log. One worker.
//!
//! `floor 127.0.0.1:9092 127.0.0.1:1980`: listens on the first address, forwards to the second.
#![allow(clippy::print_stderr)] // The usage line.

use std::process::ExitCode;

use async_trait::async_trait;
use pingora_core::modules::http::HttpModules;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Idle upstream connections: more than any run opens, so that none is made twice.
const POOL: usize = 1024;

struct Floor {
    peer: HttpPeer,
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
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, listen, upstream] = args.as_slice() else {
        eprintln!("usage: floor LISTEN UPSTREAM");
        return ExitCode::from(2);
    };
    let conf = ServerConf {
        threads: 1,
        upstream_keepalive_pool_size: POOL,
        // SIGTERM ends it at once: nobody waits for a benchmark.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let peer = HttpPeer::new(upstream.as_str(), false, String::new());
    let mut service = http_proxy_service(&server.configuration, Floor { peer });
    service.add_tcp(listen);
    server.add_service(service);
    server.run_forever()
}
