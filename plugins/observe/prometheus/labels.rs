//! Label values. They come from the configuration, the status code and the node in use, never
//! from the text of a request: else a client could make as many series as it likes.

use std::net::SocketAddr;

use lockgate_plugin::{Origin, Work};

/// Methods that are worth a label; all others share `OTHER`.
const METHODS: [&str; 10] = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE",
];

/// The variables that an extra label may show, with their names in the settings.
const SOURCES: [(&str, Source); 15] = [
    ("route_id", Source::RouteId),
    ("route_name", Source::RouteName),
    ("service_id", Source::ServiceId),
    ("service_name", Source::ServiceName),
    ("consumer_name", Source::ConsumerName),
    ("consumer_group_id", Source::ConsumerGroup),
    ("balancer_ip", Source::NodeIp),
    ("balancer_port", Source::NodePort),
    ("upstream_addr", Source::NodeAddr),
    ("upstream_status", Source::UpstreamStatus),
    ("status", Source::Status),
    ("request_method", Source::Method),
    ("method", Source::Method),
    ("scheme", Source::Scheme),
    ("hostname", Source::Hostname),
];

/// Where the value of an extra label comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This text.
    Text(String),
    /// `$route_id`.
    RouteId,
    /// `$route_name`; empty where there is no name.
    RouteName,
    /// `$service_id`.
    ServiceId,
    /// `$service_name`.
    ServiceName,
    /// `$consumer_name`.
    ConsumerName,
    /// `$consumer_group_id`.
    ConsumerGroup,
    /// `$balancer_ip`.
    NodeIp,
    /// `$balancer_port`.
    NodePort,
    /// `$upstream_addr`: the last node, address and port.
    NodeAddr,
    /// `$upstream_status`: of the last try.
    UpstreamStatus,
    /// `$status`.
    Status,
    /// `$request_method`: one of the common names, else `OTHER`.
    Method,
    /// `$scheme`.
    Scheme,
    /// `$hostname`.
    Hostname,
}

impl Source {
    /// Reads `$variable` or a text without `$`.
    ///
    /// # Errors
    /// What is wrong and what is allowed.
    pub fn parse(text: &str) -> Result<Source, String> {
        let Some(name) = text.strip_prefix('$') else {
            return Ok(Source::Text(text.to_owned()));
        };
        match SOURCES.iter().find(|(known, _)| *known == name) {
            Some((_, source)) => Ok(source.clone()),
            None => {
                let known = SOURCES.map(|(name, _)| format!("${name}")).join(", ");
                Err(format!(
                    "`{text}` could have any number of values, and each would be a series for \
                     ever; allowed are a fixed text and {known}"
                ))
            }
        }
    }
}

/// The parts of the label values that are not owned by the configuration. Small and comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub(super) status: u16,
    pub(super) node: Option<SocketAddr>,
    pub(super) origin: ResponseSource,
    pub(super) upstream_status: u16,
    /// Position in [`METHODS`]; behind them all for others.
    pub(super) method: u8,
    pub(super) https: bool,
}

/// Who made the response, in APISIX's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ResponseSource {
    /// The gateway decided on it: a plugin, no route.
    Apisix,
    /// Proxying failed; APISIX's proxy engine answers then.
    Nginx,
    Upstream,
}

impl ResponseSource {
    fn text(self) -> &'static str {
        match self {
            ResponseSource::Apisix => "apisix",
            ResponseSource::Nginx => "nginx",
            ResponseSource::Upstream => "upstream",
        }
    }
}

impl Facts {
    /// The facts of a finished request. Those that only extra labels show stay constant unless
    /// `all`, so that they do not multiply what is cached.
    pub(super) fn of(work: &Work, status: u16, method: &str, all: bool) -> Facts {
        let origin = match work.origin {
            Origin::Upstream => ResponseSource::Upstream,
            Origin::Gateway if work.attempts.is_empty() => ResponseSource::Apisix,
            Origin::Gateway => ResponseSource::Nginx,
        };
        let node = work.picked.as_ref().map(|picked| picked.addr);
        if !all {
            let node = node.map(|addr| SocketAddr::new(addr.ip(), 0));
            return Facts {
                status,
                node,
                origin,
                upstream_status: 0,
                method: 0,
                https: false,
            };
        }
        let method = METHODS
            .iter()
            .position(|known| *known == method)
            .unwrap_or(METHODS.len());
        Facts {
            status,
            node,
            origin,
            upstream_status: work.attempts.last().map_or(0, |attempt| attempt.status),
            method: u8::try_from(method).unwrap_or(u8::MAX),
            https: work.conn.tls.is_some(),
        }
    }
}

/// Reads label values of one request. For the first request with a combination only.
pub(super) struct Labels<'a> {
    pub(super) work: &'a Work,
    pub(super) facts: Facts,
    pub(super) prefer_name: bool,
}

impl Labels<'_> {
    /// The value of one of APISIX's labels; empty where nothing is known.
    pub(super) fn fixed(&self, name: &str) -> String {
        match name {
            "code" => self.facts.status.to_string(),
            "route" if self.prefer_name => self.or(&Source::RouteName, &Source::RouteId),
            "route" => self.get(&Source::RouteId),
            "service" if self.prefer_name => self.or(&Source::ServiceName, &Source::ServiceId),
            "service" => self.get(&Source::ServiceId),
            "consumer" => self.get(&Source::ConsumerName),
            "node" => self.get(&Source::NodeIp),
            "matched_uri" => self
                .work
                .matched_uri
                .as_deref()
                .unwrap_or_default()
                .to_owned(),
            "matched_host" => self
                .work
                .matched_host
                .as_deref()
                .unwrap_or_default()
                .to_owned(),
            "response_source" => self.facts.origin.text().to_owned(),
            // The one kind of traffic there is; others come with the plugins for AI.
            "request_type" => "traditional_http".to_owned(),
            _ => String::new(),
        }
    }

    /// The value of an extra label; empty where nothing is known.
    pub(super) fn get(&self, source: &Source) -> String {
        let route = self.work.route.as_deref();
        let consumer = self.work.consumer.as_deref().map(|found| &*found.consumer);
        let text = match source {
            Source::Text(text) => Some(text.as_str()),
            Source::RouteId => route.map(|route| &*route.id),
            Source::RouteName => route.and_then(|route| route.name.as_deref()),
            Source::ServiceId => route.and_then(|route| route.service_id.as_deref()),
            Source::ServiceName => route.and_then(|route| route.service_name.as_deref()),
            Source::ConsumerName => consumer.map(|consumer| &*consumer.username),
            Source::ConsumerGroup => consumer.and_then(|consumer| consumer.group_id.as_deref()),
            Source::Method => Some(
                METHODS
                    .get(usize::from(self.facts.method))
                    .unwrap_or(&"OTHER"),
            )
            .copied(),
            Source::Scheme => Some(if self.facts.https { "https" } else { "http" }),
            Source::Hostname => Some(self.work.conn.server.hostname.as_str()),
            Source::Status => return self.facts.status.to_string(),
            Source::NodeIp => return shown(self.facts.node.map(|node| node.ip())),
            Source::NodePort => return shown(self.facts.node.map(|node| node.port())),
            Source::NodeAddr => return shown(self.facts.node),
            Source::UpstreamStatus => {
                let status = self.facts.upstream_status;
                return shown((status != 0).then_some(status));
            }
        };
        text.unwrap_or_default().to_owned()
    }

    fn or(&self, first: &Source, second: &Source) -> String {
        let value = self.get(first);
        if value.is_empty() {
            self.get(second)
        } else {
            value
        }
    }
}

fn shown(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
