//! Where requests go: upstreams, their nodes, and how one is picked.
//!
//! An [`Upstream`] is a handle with a stable identity: routes hold it, and a
//! change of its configuration replaces what is inside. Nodes are paired by
//! address across such a change, so that what is known of a node (requests in
//! flight, its resolved address) survives.
//!
//! ```text
//! Upstream ── ArcSwap ──▶ Shape { settings, groups: [Group { nodes, wheel }] }
//!                                               └─ Arc<Node> { address, in flight }
//! ```

mod balance;
mod connector;
mod handle;
mod idle;
mod node;
mod peer;
mod resolve;

pub use balance::Wheel;
pub use connector::{Connector, NoLink};
pub use handle::{NoNode, Shape, Tried, Upstream, identity};
pub use idle::{Idle, Keep, Reused, Sweeper};
pub use node::{InFlight, Node, NodeSpec, Ready};
pub use peer::{ClientCert, Scheme, limit as limit_peer};
pub use resolve::{Lookups, Resolver};

use std::sync::Arc;
use std::time::Duration;

/// Time limits towards an upstream. Source: APISIX's `timeout` object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// To establish a connection, TLS included.
    pub connect: Duration,
    /// Between two writes.
    pub send: Duration,
    /// Between two reads; also until the first byte of the answer.
    pub read: Duration,
}

impl Default for Timeouts {
    /// 60 seconds each, as nginx.
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Timeouts {
            connect: minute,
            send: minute,
            read: minute,
        }
    }
}

/// Which `Host` the upstream sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PassHost {
    /// The client's.
    #[default]
    Pass,
    /// The node's host as configured.
    Node,
    /// This one.
    Rewrite(Arc<str>),
}

/// How a node is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// By weight, in turn.
    #[default]
    RoundRobin,
    /// The node with the fewest requests in flight for its weight.
    LeastConn,
}

/// Idle connections kept to an upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keepalive {
    /// How long an idle connection is kept; zero keeps none.
    pub idle: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Keepalive {
            idle: Duration::from_secs(60),
        }
    }
}

/// The complete configuration of an upstream, ready to be put into a handle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamSpec {
    /// The protocol spoken to the nodes.
    pub scheme: Scheme,
    /// The nodes, in configured order.
    pub nodes: Vec<NodeSpec>,
    /// How one is chosen.
    pub balance: Balance,
    /// Further tries after the first; `None` stands for one less than there are nodes.
    pub retries: Option<u32>,
    /// Budget for all tries together; `None` is unlimited.
    pub retry_timeout: Option<Duration>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Which `Host` is sent.
    pub pass_host: PassHost,
    /// Idle connections.
    pub keepalive: Keepalive,
    /// The `ssl` resource that has the certificate shown to the nodes.
    pub client_cert_id: Option<Arc<str>>,
    /// Certificate shown to the nodes.
    pub client_cert: Option<ClientCert>,
}

impl UpstreamSpec {
    /// Whether the certificate that its nodes are to be shown is not there. Without it none of them
    /// is asked: what they would let through is not what was meant.
    pub fn lacks_cert(&self) -> bool {
        self.client_cert_id.is_some() && self.client_cert.is_none()
    }
}
