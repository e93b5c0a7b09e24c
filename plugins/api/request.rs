//! One request: what is known about it, and what plugins have decided so far.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::ctx::Gates;
use crate::edits::{RequestEdits, ResponseEdits};
pub use crate::target::Target;

/// The client's connection. Shared by all requests on it.
#[derive(Clone, Debug)]
pub struct Conn {
    /// The address the connection came from, before any real-IP header.
    pub peer: SocketAddr,
    /// The address it was accepted on.
    pub local: SocketAddr,
    /// Present on TLS connections.
    pub tls: Option<Arc<Tls>>,
    /// Counts connections since the process started.
    pub id: u64,
    /// Facts about this gateway process.
    pub server: Arc<ServerFacts>,
}

/// The TLS side of a connection.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Such as `TLSv1.3`.
    pub version: String,
    /// Such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: String,
    /// The name the client asked for, lower case, no trailing dot.
    pub sni: Option<Arc<str>>,
    /// Organisation of the client's certificate, when it presented one.
    pub client_organization: Option<String>,
    /// Serial number of the client's certificate, hexadecimal; present whenever the certificate is.
    pub client_serial: Option<String>,
    /// Subject of the client's certificate, as in RFC 2253.
    pub client_subject: Option<String>,
    /// Issuer of the client's certificate, as in RFC 2253.
    pub client_issuer: Option<String>,
    /// SHA-1 of the client's certificate, lower-case hexadecimal.
    pub client_fingerprint: Option<String>,
}

/// What does not change while the process runs.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// The machine's name.
    pub hostname: String,
    /// The version clients see, such as `APISIX/3.18.0`; only `APISIX` without server tokens.
    pub server_token: String,
    /// Process id.
    pub pid: u32,
}

impl Default for Conn {
    fn default() -> Self {
        // Of an address that is not known nothing may be believed, as of this machine's own.
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Conn {
            peer: nowhere,
            local: nowhere,
            tls: None,
            id: 0,
            server: Arc::default(),
        }
    }
}

/// What plugins and logs may know of the matched route.
#[derive(Clone, Debug, Default)]
pub struct RouteInfo {
    /// The route's id.
    pub id: Arc<str>,
    /// The route's name, when it has one.
    pub name: Option<Arc<str>>,
    /// The service's id, when the route has one.
    pub service_id: Option<Arc<str>>,
    /// The service's name.
    pub service_name: Option<Arc<str>>,
    /// Labels of the route, those of the service where the route has none.
    pub labels: BTreeMap<String, String>,
}

/// A consumer, without its credentials.
#[derive(Clone, Debug, Default)]
pub struct Consumer {
    /// The unique name.
    pub username: Arc<str>,
    /// The group it belongs to.
    pub group_id: Option<Arc<str>>,
    /// Labels; `custom_id` becomes the header `X-Consumer-Custom-ID`.
    pub labels: BTreeMap<String, String>,
}

/// What an authentication plugin finds for a key: who it is, and the checked credential.
#[derive(Clone)]
pub struct ConsumerCredential {
    /// Who it is.
    pub consumer: Arc<Consumer>,
    /// The id of the credential resource; absent when the plugin sits on the consumer itself.
    pub credential_id: Option<Arc<str>>,
    /// The typed configuration, see [`ConsumerCredential::conf`].
    pub conf: Arc<dyn Any + Send + Sync>,
    /// Stable identity of the consumer's version, for caches of merged plans.
    pub version: u64,
}

impl ConsumerCredential {
    /// The typed configuration.
    pub fn conf<T: 'static>(&self) -> Option<&T> {
        self.conf.downcast_ref()
    }
}

impl std::fmt::Debug for ConsumerCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerCredential")
            .field("consumer", &self.consumer.username)
            .field("credential_id", &self.credential_id)
            .finish_non_exhaustive()
    }
}

/// Looks consumers up, in the snapshot of this request.
pub trait Consumers: Send + Sync {
    /// The credential of `plugin` with this lookup key (`key-auth.key`, `basic-auth.username`).
    fn by_key(&self, plugin: &str, key: &str) -> Option<&Arc<ConsumerCredential>>;
    /// A consumer by name, for `anonymous_consumer`.
    fn by_name(&self, name: &str) -> Option<&Arc<ConsumerCredential>>;
}

/// A node that was chosen.
#[derive(Clone, Debug)]
pub struct Picked {
    /// Where the connection goes.
    pub addr: SocketAddr,
    /// The host as configured: a domain name or the address as text.
    pub host: Arc<str>,
}

/// One try of an upstream node, for logs and `X-APISIX-Upstream-Status`.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The node.
    pub addr: SocketAddr,
    /// The status it answered, or the one its failure stands for (502, 504); 0 while open.
    pub status: u16,
    /// Time to connect; zero on a reused connection.
    pub connect: Option<Duration>,
    /// From choosing the node to the first byte of its answer.
    pub header: Option<Duration>,
    /// From choosing the node to the end of its answer.
    pub response: Option<Duration>,
    /// When the node was chosen.
    pub started: Instant,
}

/// Who made the final status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A plugin, the router or a failure table of the gateway.
    #[default]
    Gateway,
    /// The upstream's own answer.
    Upstream,
}

/// What a limit said to a request.
#[derive(Clone)]
pub struct Limited {
    /// Which limit.
    pub by: Arc<dyn LimitName>,
    /// How much it lets pass.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// Until it is as good as new, or its window ends; after a refusal, until the request would pass.
    pub reset: Duration,
    /// Whether it refused the request.
    pub refused: bool,
}

impl Limited {
    /// Whether this is worth telling rather than another: it refused, or less is left.
    pub(crate) fn is_tighter(&self, other: &Limited) -> bool {
        let share = |a: &Limited, b: &Limited| u128::from(a.remaining) * u128::from(b.limit);
        match (self.refused, other.refused) {
            (true, false) => true,
            (false, true) => false,
            _ => share(self, other) < share(other, self),
        }
    }
}

/// A limit, as logs name it. The key is made when somebody wants to know it.
pub trait LimitName: Send + Sync {
    /// The resource and the plugin: `routes/1/limit`.
    fn rule(&self) -> &str;
    /// The limit in the plugin: its name or its number.
    fn dimension(&self) -> &str;
    /// Whose requests count together with this one.
    fn key(&self, request: &crate::var::Lookup<'_>) -> String;
}

/// When things happened.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// When the head was complete.
    pub start: Instant,
    /// The same moment by the wall clock.
    pub wall: SystemTime,
}

/// Everything that changes while a request is worked on. Owned by the request; plugins change it
/// through [`Ctx`](crate::Ctx).
pub struct Work {
    /// The connection.
    pub conn: Conn,
    /// The client's address, after the real-IP rules and plugins.
    pub client: SocketAddr,
    /// Whether `X-Forwarded-Proto`, `-Host`, `-Port` and `Forwarded` of this peer are believed.
    pub trusted: bool,
    /// Whether `trusted_addresses` is configured: then the `X-Forwarded-For` of a peer that is not
    /// trusted is dropped.
    pub distrusts_forwarded_for: bool,
    /// How many requests this connection has carried, this one included.
    pub conn_requests: u32,
    /// The path in its normal form, and where the query starts.
    pub target: Target,
    /// Path parameters of the match, names without the prefix `uri_param_`.
    pub params: SmallVec<[(Arc<str>, Box<str>); 2]>,
    /// The URI pattern that matched, as written in the route.
    pub matched_uri: Option<Arc<str>>,
    /// The host pattern that matched, as written in the route or service.
    pub matched_host: Option<Arc<str>>,
    /// The route, once matched.
    pub route: Option<Arc<RouteInfo>>,
    /// The consumer, once authenticated.
    pub consumer: Option<Arc<ConsumerCredential>>,
    /// The request body, when something on this route needs it before proxying.
    pub body: Option<Bytes>,
    /// Changes for the upstream request.
    pub request: RequestEdits,
    /// Changes for the response.
    pub response: ResponseEdits,
    /// Every upstream try.
    pub attempts: SmallVec<[Attempt; 1]>,
    /// The node in use.
    pub picked: Option<Picked>,
    /// The request id, once made or read.
    pub request_id: Option<Bytes>,
    /// Who made the final status.
    pub origin: Origin,
    /// Why the gateway answered itself: a constant text for the log.
    pub reason: &'static str,
    /// What a limit said: of several the one that refused, else the one with the least left.
    pub limited: Option<Limited>,
    /// The status sent to the client; 0 until known.
    pub status: u16,
    /// Body bytes sent to the client.
    pub sent_body: u64,
    /// Bytes of the response head and body sent to the client.
    pub sent_bytes: u64,
    /// Body bytes received from the client.
    pub received_body: u64,
    /// Body bytes received from the upstream, where the lane counts them.
    pub upstream_body: Option<u64>,
    /// Scheme and host used towards the upstream, for logs.
    pub upstream_scheme: &'static str,
    /// The `Host` sent upstream, for logs.
    pub upstream_host: Option<Bytes>,
    /// When things happened.
    pub timing: Timing,
    /// When the request last went on after it had to wait; at first `timing.start`.
    pub tick: Instant,
    /// When the last byte was sent; set before the log phase.
    pub finished: Option<Instant>,
    /// Cached results of `_meta.filter` gates.
    pub gates: Gates,
    locals: SmallVec<[Local; 2]>,
}

struct Local {
    link: usize,
    kind: TypeId,
    value: Box<dyn Any + Send + Sync>,
}

impl Work {
    /// A request that just arrived.
    pub fn new(conn: Conn, target: Target, timing: Timing) -> Work {
        Work {
            client: conn.peer,
            conn,
            trusted: false,
            distrusts_forwarded_for: false,
            conn_requests: 1,
            target,
            params: SmallVec::new(),
            matched_uri: None,
            matched_host: None,
            route: None,
            consumer: None,
            body: None,
            request: RequestEdits::default(),
            response: ResponseEdits::default(),
            attempts: SmallVec::new(),
            picked: None,
            request_id: None,
            origin: Origin::Gateway,
            reason: "",
            limited: None,
            status: 0,
            sent_body: 0,
            sent_bytes: 0,
            received_body: 0,
            upstream_body: None,
            upstream_scheme: "http",
            upstream_host: None,
            timing,
            tick: timing.start,
            finished: None,
            gates: Gates::default(),
            locals: SmallVec::new(),
        }
    }

    /// Body bytes received from the upstream; as many as were sent where nobody counted.
    pub fn upstream_body(&self) -> u64 {
        self.upstream_body.unwrap_or(self.sent_body)
    }

    /// The value that link `link` keeps for this request; made by `init` on first use.
    pub(crate) fn local<T: Any + Send + Sync>(
        &mut self,
        link: usize,
        init: impl FnOnce() -> T,
    ) -> &mut T {
        let kind = TypeId::of::<T>();
        let at = match self
            .locals
            .iter()
            .position(|l| l.link == link && l.kind == kind)
        {
            Some(at) => at,
            None => {
                self.locals.push(Local {
                    link,
                    kind,
                    value: Box::new(init()),
                });
                self.locals.len() - 1
            }
        };
        match self.locals[at].value.downcast_mut::<T>() {
            Some(value) => value,
            // The TypeId was compared above.
            None => unreachable!("a local is stored under its own type"),
        }
    }

    /// The value that link `link` keeps for this request, if it made one.
    pub(crate) fn get_local<T: Any + Send + Sync>(&self, link: usize) -> Option<&T> {
        let kind = TypeId::of::<T>();
        let local = self
            .locals
            .iter()
            .find(|l| l.link == link && l.kind == kind)?;
        local.value.downcast_ref()
    }
}
