//! What every request needs of the process. Made once at start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lockgate_plugin::request::ServerFacts;
use lockgate_plugin::target::MatchOptions;

use super::head::AddressRules;
use crate::config::snapshot::Live;
use crate::observe::access_log::AccessLog;
use crate::observe::log_limit::LogLimit;
use crate::observe::recent::Recent;

/// The process as a request sees it.
pub struct Core {
    /// The current configuration.
    pub live: Arc<Live>,
    /// How paths are prepared for matching.
    pub match_options: MatchOptions,
    /// How client addresses are found.
    pub addresses: AddressRules,
    /// The value of `Server`.
    pub server_token: Bytes,
    /// Host name, process id and such.
    pub facts: Arc<ServerFacts>,
    /// Whether `X-APISIX-Upstream-Status` is sent on every response, not only after a 5xx.
    pub show_upstream_status: bool,
    /// `nginx_config.http.charset`, added to text types of the gateway's own answers.
    pub charset: Option<Box<str>>,
    /// Limits towards clients.
    pub limits: ClientLimits,
    /// Where access log lines go.
    pub access_log: Option<AccessLog>,
    /// The latest requests, where somebody may ask for them.
    pub recent: Option<Arc<Recent>>,
    /// Bounds the lines about failed upstream tries.
    pub failure_log: LogLimit,
    /// What is going on.
    pub stats: Arc<Stats>,
    /// The size of Pingora's upstream pool and such live in its own configuration; HTTP/2 towards
    /// clients is decided here.
    pub http2: bool,
}

/// Limits towards clients.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// For the whole request head, from its first byte.
    pub head: Duration,
    /// Between two reads of the request body.
    pub body: Duration,
    /// The lowest rate of a request body in bytes a second, over `body`. The wire lane keeps it.
    pub min_body_rate: u64,
    /// Between two writes of the response.
    pub send: Duration,
    /// How long a connection may idle between requests; zero closes after each.
    pub keepalive: Duration,
    /// `client_max_body_size` in bytes; 0 is unlimited.
    pub max_body: u64,
    /// Open connections; more are closed at once.
    pub max_connections: u64,
}

/// Counters that the status page and the metrics show.
#[derive(Default)]
pub struct Stats {
    /// Open client connections.
    pub connections: AtomicI64,
    /// Connections accepted since the start.
    pub accepted: AtomicU64,
    /// Connections closed because there were too many.
    pub refused: AtomicU64,
    /// Requests being served.
    pub in_flight: AtomicI64,
    /// Requests since the start.
    pub requests: AtomicU64,
    /// Set when the process is going to end: connections are told to close.
    pub draining: AtomicBool,
}

impl Stats {
    /// Whether the process is going to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// Counts something as long as it lives.
pub struct Counted {
    stats: Arc<Stats>,
    which: fn(&Stats) -> &AtomicI64,
}

impl Counted {
    /// One more open connection.
    pub fn connection(stats: &Arc<Stats>) -> Counted {
        stats.accepted.fetch_add(1, Ordering::Relaxed);
        Counted::enter(stats, |stats| &stats.connections)
    }

    /// One more request being served.
    pub fn request(stats: &Arc<Stats>) -> Counted {
        stats.requests.fetch_add(1, Ordering::Relaxed);
        Counted::enter(stats, |stats| &stats.in_flight)
    }

    /// A request whose head is not complete.
    pub fn head(stats: &Arc<Stats>) -> Counted {
        Counted::enter(stats, |stats| &stats.in_flight)
    }

    fn enter(stats: &Arc<Stats>, which: fn(&Stats) -> &AtomicI64) -> Counted {
        which(stats).fetch_add(1, Ordering::AcqRel);
        Counted {
            stats: Arc::clone(stats),
            which,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.which)(&self.stats).fetch_sub(1, Ordering::AcqRel);
    }
}
