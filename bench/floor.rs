//! The floor: a bare Pingora proxy that does nothing but forward. What lockgate's general lane is
//! measured against; built with the same profile and allocator.
//!
//! `floor 127.0.0.1:9091 127.0.0.1:1980`
#![allow(clippy::print_stderr)]

use async_trait::async_trait;
use pingora_core::modules::http::HttpModules;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Floor {
    peer: HttpPeer,
}

#[async_trait]
impl ProxyHttp for Floor {
    type CTX = ();
    fn new_ctx(&self) {}
    fn init_downstream_modules(&self, _: &mut HttpModules) {}
    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, listen, upstream] = args.as_slice() else {
        eprintln!("usage: floor LISTEN UPSTREAM");
        std::process::exit(2);
    };
    let conf = ServerConf {
        threads: 1,
        upstream_keepalive_pool_size: 1024,
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
    server.run_forever();
}
