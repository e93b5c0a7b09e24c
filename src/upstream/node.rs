//! One node of an upstream.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use pingora_core::upstreams::peer::HttpPeer;
use tokio::sync::Notify;

use super::Idle;

/// A node as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// An address or a domain name; IPv6 without brackets.
    pub host: Arc<str>,
    /// The port, the scheme's own filled in.
    pub port: u16,
    /// Share of the traffic; 0 takes no new requests.
    pub weight: u32,
    /// Higher groups are used first.
    pub priority: i32,
}

/// What is known of a node. Shared by every shape of its upstream that names the same address.
pub struct Node {
    /// The host as configured.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// Requests that are being served by it.
    pub in_flight: AtomicU32,
    /// Requests it was ever chosen for.
    pub chosen: AtomicU64,
    /// Ready to connect to; absent until a domain name is resolved.
    target: ArcSwapOption<Ready>,
    /// A look-up has failed. Only the time before the first answer is worth waiting.
    missed: AtomicBool,
    /// Tells those who wait that a look-up is over.
    resolved: Notify,
}

/// A node's address, with the peer made for it once.
pub struct Ready {
    /// Where to connect.
    pub addr: SocketAddr,
    /// Prebuilt, cloned for each request.
    pub peer: HttpPeer,
    /// Connections that wait for a request of the wire lane.
    pub idle: Arc<Idle>,
}

impl Ready {
    fn new(addr: SocketAddr, peer: HttpPeer) -> Arc<Ready> {
        Arc::new(Ready {
            addr,
            peer,
            idle: Arc::default(),
        })
    }
}

impl Node {
    /// A node; `peer` makes the peer for an address.
    pub(super) fn new(spec: &NodeSpec, peer: impl FnOnce(SocketAddr) -> HttpPeer) -> Node {
        let node = Node {
            host: Arc::clone(&spec.host),
            port: spec.port,
            in_flight: AtomicU32::new(0),
            chosen: AtomicU64::new(0),
            target: ArcSwapOption::empty(),
            missed: AtomicBool::new(false),
            resolved: Notify::new(),
        };
        if let Ok(ip) = spec.host.parse::<IpAddr>() {
            let addr = SocketAddr::new(ip, spec.port);
            node.target.store(Some(Ready::new(addr, peer(addr))));
        }
        node
    }

    /// Whether the host is a name that has to be looked up.
    pub fn is_domain(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    /// Where to connect, if that is known.
    pub fn ready(&self) -> Option<Arc<Ready>> {
        self.target.load_full()
    }

    /// Where to connect; waits up to `limit` for the first answer of the resolver.
    pub async fn wait_ready(&self, limit: Duration) -> Option<Arc<Ready>> {
        let waiting = self.resolved.notified();
        if self.ready().is_none() && !self.missed.load(Ordering::Acquire) {
            let _ = tokio::time::timeout(limit, waiting).await;
        }
        self.ready()
    }

    /// A look-up has failed: requests that wait go on without this node, and no more will wait.
    pub(super) fn not_found(&self) {
        self.missed.store(true, Ordering::Release);
        self.resolved.notify_waiters();
    }

    /// Takes a new address; one that did not change keeps its peer.
    pub(super) fn set_addr(&self, ip: IpAddr, peer: impl FnOnce(SocketAddr) -> HttpPeer) {
        let addr = SocketAddr::new(ip, self.port);
        if self
            .target
            .load()
            .as_ref()
            .is_none_or(|ready| ready.addr != addr)
        {
            self.target.store(Some(Ready::new(addr, peer(addr))));
        }
        self.resolved.notify_waiters();
    }

    /// Makes the peer anew, after settings that go into it have changed.
    pub(super) fn rebuild(&self, peer: impl FnOnce(SocketAddr) -> HttpPeer) {
        if let Some(ready) = self.ready() {
            let peer = peer(ready.addr);
            self.target.store(Some(Ready::new(ready.addr, peer)));
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Counts a request in flight on a node until it is dropped.
#[derive(Debug)]
pub struct InFlight(Arc<Node>);

impl InFlight {
    pub(super) fn enter(node: Arc<Node>) -> InFlight {
        node.in_flight.fetch_add(1, Ordering::Relaxed);
        node.chosen.fetch_add(1, Ordering::Relaxed);
        InFlight(node)
    }

    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
