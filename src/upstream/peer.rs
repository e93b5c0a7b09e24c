//! How a node is connected to: the Pingora peer made from an upstream's settings.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::protocols::ALPN;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::utils::tls::CertKey;

use super::{Timeouts, UpstreamSpec};

/// Streams on one HTTP/2 connection to an upstream. Pingora's own default is 1, which would
/// open a connection for each concurrent gRPC call.
const H2_STREAMS: usize = 128;

/// The protocol spoken to the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP/1.1 in clear text.
    #[default]
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 in clear text, with prior knowledge.
    Grpc,
    /// HTTP/2 over TLS.
    Grpcs,
}

impl Scheme {
    /// Whether the connection is encrypted.
    pub fn is_tls(self) -> bool {
        matches!(self, Scheme::Https | Scheme::Grpcs)
    }

    /// Whether HTTP/2 is spoken.
    pub fn is_http2(self) -> bool {
        matches!(self, Scheme::Grpc | Scheme::Grpcs)
    }

    /// The port that need not be written.
    pub fn port(self) -> u16 {
        if self.is_tls() { 443 } else { 80 }
    }

    /// As written in configurations and logs.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Grpc => "grpc",
            Scheme::Grpcs => "grpcs",
        }
    }
}

/// A certificate shown to upstream nodes. Compared by identity of its text.
#[derive(Clone)]
pub struct ClientCert {
    /// Hash of the PEM texts.
    pub fingerprint: u64,
    /// Parsed.
    pub pair: Arc<CertKey>,
}

impl PartialEq for ClientCert {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl std::fmt::Debug for ClientCert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientCert({:x})", self.fingerprint)
    }
}

/// Whether two settings of an upstream make different peers.
pub(super) fn differs(a: &UpstreamSpec, b: &UpstreamSpec) -> bool {
    a.scheme != b.scheme
        || a.timeouts != b.timeouts
        || a.keepalive != b.keepalive
        || a.client_cert != b.client_cert
}

/// The peer for a node's address. Its SNI is set per request, from the `Host` that is sent.
///
/// Pingora shares idle connections between peers with the same key, and the protocol is not part of
/// that key; `group_key` keeps the protocols and certificates apart.
pub(super) fn peer(spec: &UpstreamSpec, addr: SocketAddr) -> HttpPeer {
    let mut peer = HttpPeer::new(addr, spec.scheme.is_tls(), String::new());
    let h2 = spec.scheme.is_http2();
    peer.options.alpn = if h2 { ALPN::H2 } else { ALPN::H1 };
    if h2 {
        peer.options.max_h2_streams = H2_STREAMS;
    }
    // As APISIX: upstream certificates are not verified unless configured.
    peer.options.verify_cert = false;
    peer.options.verify_hostname = false;
    peer.options.idle_timeout =
        Some(spec.keepalive.idle).map(|idle| idle.max(Duration::from_millis(1)));
    limit(&mut peer, &spec.timeouts);
    let cert = spec.client_cert.as_ref();
    peer.client_cert_key = cert.map(|cert| Arc::clone(&cert.pair));
    peer.group_key = cert.map_or(0, |cert| cert.fingerprint) ^ u64::from(h2);
    peer
}

/// Applies time limits to a peer.
pub fn limit(peer: &mut HttpPeer, timeouts: &Timeouts) {
    peer.options.connection_timeout = Some(timeouts.connect);
    if peer.is_tls() {
        peer.options.total_connection_timeout = Some(timeouts.connect);
    }
    peer.options.read_timeout = Some(timeouts.read);
    peer.options.write_timeout = Some(timeouts.send);
}
