//! What is found out about a request. It goes to people as text and to tools as JSON; the field
//! names are an interface.

use lockgate_plugin::expr::Unmet;
use serde::{Deserialize, Serialize};

/// Everything about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The configuration's revision, counted since the start of the process.
    pub revision: u64,
    /// The request as the gateway sees it.
    pub request: RequestSeen,
    /// The `ssl` resource whose certificate the client gets, on TLS connections.
    pub certificate: Option<Certificate>,
    /// Every route that was looked at, in order. Those behind the one that was found are looked at,
    /// too: they would get the request if it were not there.
    pub candidates: Vec<CandidateSeen>,
    /// Candidates that are not listed: there are too many.
    pub candidates_left_out: usize,
    /// Routes of the same path under other hosts, when none was found: those that are meant when
    /// somebody asks why there is none.
    pub other_hosts: Vec<OtherHost>,
    /// The route.
    pub route: Option<RouteSeen>,
    /// The consumer that was named in the question.
    pub consumer: Option<ConsumerSeen>,
    /// Every plugin that is configured for the request, by falling priority, global rules first.
    pub plugins: Vec<PluginSeen>,
    /// Who acts in each phase, in order.
    pub phases: Vec<PhaseSeen>,
    /// Where it goes.
    pub upstream: Option<UpstreamSeen>,
    /// The gateway's own answer; `None` when the request goes to the upstream.
    pub answer: Option<Answer>,
    /// What is not known.
    pub notes: Vec<String>,
}

/// The request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSeen {
    /// The method.
    pub method: String,
    /// As it was sent.
    pub target: String,
    /// The normal form of the path.
    pub path: String,
    /// The path that routes are matched with.
    pub match_path: String,
    /// The host, lower case, no port.
    pub host: String,
    /// The address of the client, after the rules for real addresses.
    pub client: String,
    /// The address that the connection comes from.
    pub peer: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The name of the TLS handshake.
    pub sni: Option<String>,
}

/// A certificate that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The `ssl` resource's id; `None` when there is none for the name: the handshake fails.
    pub ssl: Option<String>,
}

/// A route that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateSeen {
    /// The route's id.
    pub route: String,
    /// The path pattern that led to it.
    pub uri: String,
    /// The host pattern that led to it.
    pub host: Option<String>,
    /// Higher wins among routes of the same path.
    pub priority: i64,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It gets the request.
    Chosen,
    /// It matches, but another was before it.
    Behind,
    /// The first condition that failed.
    Failed(Vec<Failed>),
}

/// A condition that failed. Of a condition with alternatives there are several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The attribute of the route, with the position in it.
    pub at: String,
    /// What it asks for.
    pub wanted: String,
    /// What there is.
    pub found: Option<String>,
}

impl Failed {
    /// The tests of a condition that decided against it.
    pub(super) fn of(attribute: &str, unmet: Vec<Unmet>) -> Vec<Failed> {
        let failed = |unmet: Unmet| Failed {
            at: format!("{attribute}{}", unmet.at),
            wanted: unmet.condition,
            found: unmet.found,
        };
        unmet.into_iter().map(failed).collect()
    }
}

/// A route with a fitting path under another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherHost {
    /// Its id.
    pub route: String,
    /// The host pattern.
    pub host: String,
    /// The path pattern.
    pub uri: String,
}

/// The route that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSeen {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// The path pattern that matched.
    pub uri: String,
    /// The host pattern that matched.
    pub host: Option<String>,
    /// Captured parameters.
    pub params: Vec<(String, String)>,
    /// Its service.
    pub service: Option<String>,
    /// Whether WebSocket may pass.
    pub websocket: bool,
    /// Why all its requests take the general lane; `None` when they need not.
    pub general_lane: Option<String>,
}

/// The consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerSeen {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: Option<String>,
}

/// A plugin as it is configured for the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginSeen {
    /// Its name.
    pub name: String,
    /// Where its configuration comes from: `global_rule`, `service`, `plugin_config`, `route`,
    /// `consumer_group`, `consumer`.
    pub level: String,
    /// The id of that resource, where it is known.
    pub id: Option<String>,
    /// Its priority in this chain.
    pub priority: i32,
    /// Of its configuration: two that are equal are configured alike.
    pub fingerprint: String,
    /// Whether it runs.
    pub runs: Runs,
    /// What it would work with on this request, such as the key of a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<(String, String)>,
    /// Whether it finds out who the consumer is.
    #[serde(skip)]
    pub(super) identifies: bool,
}

impl PluginSeen {
    /// Leaves out what secrets could be found out by.
    pub(super) fn forget_secrets(&mut self) {
        self.fingerprint.clear();
        if self.identifies {
            self.details.clear();
        }
    }
}

/// Whether a plugin runs on the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runs {
    /// It does.
    Yes,
    /// `_meta.disable`.
    Disabled,
    /// `_meta.filter` does not hold.
    Filtered(Vec<Failed>),
    /// `_meta.filter` asks for what only the response shows.
    Unknown,
    /// The route has the plugin, too, and this one gives way.
    GivesWay,
    /// Another global rule has the same plugin: it runs for neither.
    Twice,
}

/// One phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSeen {
    /// Its name.
    pub phase: String,
    /// The plugins that act in it, in order.
    pub plugins: Vec<Acting>,
}

/// A plugin in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acting {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub level: String,
}

/// The upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamSeen {
    /// The resource that has it: `upstreams/1`, or the route or service it is written in.
    pub key: String,
    /// The protocol.
    pub scheme: String,
    /// How a node is chosen.
    pub balance: String,
    /// The nodes.
    pub nodes: Vec<NodeSeen>,
    /// The node that would be chosen now, `host:port`; `None` where no requests are served.
    pub next: Option<String>,
    /// `Host` of the upstream request, if plugins do not change it: `pass`, `node` or `rewrite`, and
    /// what that gives.
    pub pass_host: String,
    /// `Host` of the upstream request.
    pub host: Option<String>,
    /// Further tries after the first.
    pub retries: u32,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSeen {
    /// The host as configured.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Its share.
    pub weight: u32,
    /// Higher groups are used first.
    pub priority: i32,
    /// The address of a name that was looked up.
    pub address: Option<String>,
    /// Requests that it serves at this moment.
    pub in_flight: u32,
}

/// The gateway's own answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Why.
    pub why: String,
    /// Whether plugins run before, one of which may answer something else.
    pub after_plugins: bool,
}
