//! The process's own settings: `config.yaml` in the layout of APISIX, read once at start.
//!
//! Every key of APISIX is honoured, mapped to its equivalent, or answered with
//! one warning that says what happens instead; any other key is an error with
//! its place and the closest key. All problems are reported together. Null is
//! the same as leaving a key out; `real_ip_from: null` trusts nobody.
//!
//! Relative paths are relative to the folder that contains `conf` when the file
//! lies in a folder of that name, else to the file's own folder.

mod admin;
mod cgroup;
mod cluster;
mod deployment;
mod etcd;
mod keys;
mod limits;
mod listen;
mod nginx;
mod plugins;
mod prometheus;
mod read;
mod units;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use lockgate_plugin::target::MatchOptions;
use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use crate::changes::history::Limits;
use crate::config::keyring::Keyring;
use crate::document::read_yaml;
use crate::observe::access_log::Escape;
use crate::proxy::front::Engine;
use crate::router::Mode;
use read::Reader;

pub use admin::{AdminKey, AdminSettings, AdminTls};
pub use cluster::ClusterSettings;
pub use etcd::{EtcdSettings, EtcdTls};
pub use prometheus::PrometheusAttr;

/// Settings of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Clear-text listeners: `apisix.node_listen`.
    pub listen: Vec<Listen>,
    /// TLS listeners: `apisix.ssl`.
    pub tls: TlsSettings,
    /// Whether HTTP/2 is spoken, by ALPN and with prior knowledge: `apisix.enable_http2`.
    pub http2: bool,
    /// Where routes come from: `deployment`.
    pub source: SourceKind,
    /// What is encrypted in etcd: `apisix.data_encryption`. Empty for other places.
    pub keyring: Keyring,
    /// The Admin API; `None` where there is none.
    pub admin: Option<AdminSettings>,
    /// `apisix.router.http`.
    pub router: Mode,
    /// `apisix.delete_uri_tail_slash` and its neighbours.
    pub match_options: MatchOptions,
    /// `apisix.trusted_addresses`.
    pub trusted_addresses: Option<Vec<IpNet>>,
    /// `nginx_config.http.real_ip_*`.
    pub real_ip: RealIp,
    /// Worker threads: `nginx_config.worker_processes`.
    pub workers: usize,
    /// `apisix.show_upstream_status_in_response_header`.
    pub show_upstream_status: bool,
    /// `apisix.enable_server_tokens`.
    pub server_tokens: bool,
    /// Limits towards clients: `nginx_config.http`.
    pub client: Client,
    /// Idle upstream connections: `nginx_config.http.upstream`.
    pub upstream_keepalive: UpstreamKeepalive,
    /// How long a drain may take: `nginx_config.worker_shutdown_timeout`.
    pub shutdown_timeout: Duration,
    /// `nginx_config.http.access_log*`; `None` when switched off.
    pub access_log: Option<AccessLogSettings>,
    /// `nginx_config.error_log*`.
    pub error_log: ErrorLog,
    /// The status page: `apisix.status`. 127.0.0.1:7085 when not configured, `None` for `false`.
    pub status: Option<SocketAddr>,
    /// The Control API: `apisix.control`. 127.0.0.1:9090 when not configured, `None` without
    /// `apisix.enable_control`.
    pub control: Option<SocketAddr>,
    /// The `plugins` list.
    pub plugins: Vec<String>,
    /// `plugin_attr`, by plugin.
    pub plugin_attr: Value,
    /// `plugin_attr.prometheus`.
    pub prometheus: PrometheusAttr,
    /// `nginx_config.http.charset`, for the gateway's own answers.
    pub charset: Option<String>,
    /// What APISIX has no word for: the section `lockgate`.
    pub lockgate: Own,
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub addr: SocketAddr,
    /// Not for IPv4 clients: the same port has an IPv4 listener of its own.
    pub v6only: bool,
    /// Its requests all take the general lane: `engine: general`.
    pub general: bool,
}

/// TLS towards clients.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// Listeners; empty when TLS is off.
    pub listen: Vec<Listen>,
    /// Allowed versions.
    pub protocols: Vec<String>,
    /// OpenSSL cipher list for TLS 1.2.
    pub ciphers: Option<String>,
    /// The name assumed for clients that send none.
    pub fallback_sni: Option<String>,
}

/// Where routes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The embedded store, changed through the Admin API: `lockgate.store`.
    Embedded(PathBuf),
    /// etcd, in APISIX's layout: `deployment.etcd`.
    Etcd(Box<EtcdSettings>),
    /// Nothing but memory: the whole configuration is sent through the Admin API.
    Memory,
    /// `apisix.yaml` beside the settings.
    Yaml(PathBuf),
    /// `apisix.json` beside the settings.
    Json(PathBuf),
}

impl fmt::Display for SourceKind {
    /// Where it is, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceKind::Embedded(path) | SourceKind::Yaml(path) | SourceKind::Json(path) => {
                write!(f, "{}", path.display())
            }
            SourceKind::Memory => f.write_str("memory"),
            SourceKind::Etcd(etcd) => write!(f, "etcd at {}", etcd.hosts.join(", ")),
        }
    }
}

/// How a client's address is taken from a header.
#[derive(Clone, Debug)]
pub struct RealIp {
    /// The header.
    pub header: String,
    /// Peers whose header is believed.
    pub from: Vec<IpNet>,
    /// Skip believed addresses from the right.
    pub recursive: bool,
}

/// Limits towards clients.
#[derive(Clone, Debug)]
pub struct Client {
    /// For a whole request head.
    pub head: Duration,
    /// Between two reads of a body.
    pub body: Duration,
    /// For an idle connection; zero closes after each request.
    pub keepalive: Duration,
    /// Between two writes.
    pub send: Duration,
    /// The longest request body in bytes; 0 is unlimited.
    pub max_body: u64,
}

/// Idle upstream connections.
#[derive(Clone, Debug)]
pub struct UpstreamKeepalive {
    /// How many in all.
    pub size: usize,
    /// How many requests each carries.
    pub requests: u32,
    /// How long each.
    pub idle: Duration,
}

/// The access log.
#[derive(Clone, Debug)]
pub struct AccessLogSettings {
    /// The file.
    pub path: PathBuf,
    /// In the words of nginx's `log_format`.
    pub format: String,
    /// How values are escaped.
    pub escape: Escape,
    /// Bytes collected before a write.
    pub buffer: usize,
}

/// The process's log.
#[derive(Clone, Debug)]
pub struct ErrorLog {
    /// A file; standard error when absent.
    pub path: Option<PathBuf>,
    /// `error`, `warn`, `info` or `debug`.
    pub level: String,
}

/// What APISIX has no word for.
#[derive(Clone, Debug)]
pub struct Own {
    /// Where the admin key is kept when none is configured: beside `store`.
    pub admin_key: PathBuf,
    /// Where the configuration of a store that is somewhere else is kept for a start without it:
    /// beside `store`.
    pub last_good: PathBuf,
    /// Where a successor waits for the listening sockets.
    pub upgrade_sock: PathBuf,
    /// Whether workers share their work.
    pub work_stealing: bool,
    /// How long listeners stay open after readiness went off.
    pub drain: Duration,
    /// Open client connections; more are closed at once.
    pub max_connections: u64,
    /// All requests take the general lane: `engine: general`.
    pub general: bool,
    /// The lowest rate of a request body, in bytes a second over `client_body_timeout`.
    pub min_body_rate: u64,
    /// How many changes are kept, and in how many bytes.
    pub history: Limits,
    /// How many of the latest requests are kept, to try changes on.
    pub recent_requests: usize,
    /// Bytes of the table in which limits count.
    pub limit_table: usize,
    /// How this gateway counts together with others; `None` if it does not.
    pub cluster: Option<ClusterSettings>,
}

impl Settings {
    /// Which requests may take the wire lane.
    pub fn engine(&self) -> Engine {
        let listen = self.listen.iter().chain(&self.tls.listen);
        let general = listen.filter(|listen| listen.general);
        Engine {
            general: self.lockgate.general,
            general_ports: general.map(|listen| listen.addr.port()).collect(),
        }
    }
}

/// Reads the settings. `env` gives values for `${{NAME}}`; `implemented` are the plugins there are.
/// Beside the settings come warnings.
///
/// # Errors
/// Every problem, each with file, line and column.
pub fn load(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    implemented: &[&str],
) -> Result<(Settings, Vec<Problem>), Problems> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| {
        let mut problem = Problem::new("", format!("cannot be read: {e}"));
        problem.file = Some(file.as_str().into());
        Problems::from(problem)
    })?;
    parse(&bytes, path, env, implemented)
}

/// The same for a text that was read already.
///
/// # Errors
/// As [`load`].
pub fn parse(
    bytes: &[u8],
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    implemented: &[&str],
) -> Result<(Settings, Vec<Problem>), Problems> {
    let document = read_yaml(bytes, &path.display().to_string())?;
    let mut out = Problems::default();
    let mut warnings = Problems::default();
    let value = read::fill_in(document.value(), env, &mut out);
    keys::check(&document, &value, &mut out, &mut warnings);
    let home = Home::of(path);
    if env("APISIX_PROFILE").is_some_and(|profile| !profile.is_empty()) {
        let text = "environment variable APISIX_PROFILE has no effect: the files are the ones named \
                    by --config and beside it";
        warnings.add("", text);
    }
    let mut reader = Reader::new(&document, &value, &mut out, &mut warnings);
    let settings = settings(&mut reader, &home, env, implemented);
    listen::check_conflicts(&settings, &mut out);
    document.locate(&mut out, "");
    document.locate(&mut warnings, "");
    out.into_result()?;
    Ok((settings, warnings.into_iter().collect()))
}

/// Where relative paths start.
pub(crate) struct Home {
    base: PathBuf,
    beside: PathBuf,
}

impl Home {
    fn of(config: &Path) -> Home {
        let beside = match config.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let in_conf = beside.file_name().is_some_and(|name| name == "conf");
        let base = match beside.parent() {
            Some(parent) if in_conf && !parent.as_os_str().is_empty() => parent.to_owned(),
            Some(_) if in_conf => PathBuf::from("."),
            _ => beside.clone(),
        };
        Home { base, beside }
    }

    fn path(&self, text: &str) -> PathBuf {
        self.base.join(text)
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.beside.join(name)
    }
}

fn settings(
    read: &mut Reader<'_>,
    home: &Home,
    env: &dyn Fn(&str) -> Option<String>,
    implemented: &[&str],
) -> Settings {
    let router = match read.choice(
        "apisix.router.http",
        &[
            "radixtree_host_uri",
            "radixtree_uri",
            "radixtree_uri_with_parameter",
        ],
    ) {
        "radixtree_uri" => Mode::Uri,
        "radixtree_uri_with_parameter" => Mode::UriWithParameter,
        _ => Mode::HostUri,
    };
    read.choice("apisix.router.ssl", &["radixtree_sni"]);
    let store = read.text("lockgate.store");
    let store = home.path(store.as_deref().unwrap_or("data/lockgate.redb"));
    let (source, admin) = deployment::source(read, home, env, &store);
    let keyring = match source {
        SourceKind::Etcd(_) => etcd::keyring(read),
        _ => Keyring::default(),
    };
    let own = Own {
        admin_key: store.with_file_name("admin.key"),
        last_good: store.with_file_name("last-good"),
        upgrade_sock: home.path(
            &read
                .text("lockgate.upgrade_sock")
                .unwrap_or_else(|| "logs/lockgate-upgrade.sock".into()),
        ),
        work_stealing: read.flag("lockgate.work_stealing", true),
        drain: read.duration("lockgate.drain_seconds", Duration::ZERO),
        max_connections: read
            .integer("lockgate.max_connections", 1, 10_000_000)
            .unwrap_or(100_000),
        min_body_rate: read
            .integer("lockgate.min_body_rate", 0, 1 << 30)
            .unwrap_or(100),
        general: read.choice("lockgate.engine", &["auto", "general"]) == "general",
        history: Limits {
            generations: read.count("lockgate.history_generations", 100_000, 100),
            bytes: read.count("lockgate.history_bytes", 1 << 30, 8 << 20),
        },
        recent_requests: read.count("lockgate.recent_requests", 100_000, 2000),
        limit_table: limits::table(read),
        cluster: cluster::cluster(read, home, &source),
    };
    Settings {
        listen: listen::plain(read),
        tls: listen::tls(read),
        http2: read.flag("apisix.enable_http2", true),
        keyring,
        source,
        admin,
        router,
        match_options: MatchOptions {
            delete_tail_slash: read.flag("apisix.delete_uri_tail_slash", false),
            like_servlet: read.flag("apisix.normalize_uri_like_servlet", false),
            encoded_slash: read.flag("apisix.match_uri_encoded_slash", false),
        },
        trusted_addresses: read.networks("apisix.trusted_addresses"),
        real_ip: nginx::real_ip(read),
        workers: nginx::workers(read, env),
        show_upstream_status: read.flag("apisix.show_upstream_status_in_response_header", false),
        server_tokens: read.flag("apisix.enable_server_tokens", true),
        client: nginx::client(read),
        upstream_keepalive: nginx::upstream_keepalive(read),
        shutdown_timeout: read.duration(
            "nginx_config.worker_shutdown_timeout",
            Duration::from_secs(240),
        ),
        access_log: nginx::access_log(read, home),
        error_log: nginx::error_log(read, home),
        status: listen::status(read),
        control: listen::control(read),
        plugins: plugins::list(read, implemented),
        plugin_attr: read.value("plugin_attr").cloned().unwrap_or_default(),
        prometheus: prometheus::attr(read),
        charset: nginx::charset(read),
        lockgate: own,
    }
}

#[cfg(test)]
mod tests;
