//! Start and stop, in order, on one page.
#![allow(clippy::print_stderr)] // Before the log exists, and for its last words.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lockgate_peers::Peers;
use lockgate_plugin::request::ServerFacts;
use lockgate_plugin::{Problem, Problems};
use lockgate_plugins::observe::prometheus::Metrics;
use lockgate_plugins::traffic::limit_count::Groups;
use pingora_core::listeners::{ListenerConfig, TcpSocketOptions};
use pingora_core::protocols::TcpKeepalive;
use pingora_core::protocols::l4::stream::L4BufferSettings;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::listening::Service;
use tokio::sync::Notify;

use crate::admin::{self, Admin, Parts as AdminParts};
use crate::background;
use crate::changes::outcomes::Trial;
use crate::changes::pending::Confirmations;
use crate::cluster;
use crate::config::graph::Graph;
use crate::config::keeper::Keeper;
use crate::config::report::{Report, Saved, SharedReport};
use crate::config::snapshot::Live;
use crate::config::writer::Writer;
use crate::control::{Control, Inventory, Place};
use crate::endpoint::{Api, Endpoint};
use crate::explain::{self, Rules};
use crate::limits::keeping::Keeping;
use crate::limits::{self, Counting, Desk, Memory};
use crate::load::{Loaded, Purpose, Remote, Source, catalogue, hostname, load, workshop};
use crate::observe::access_log::{self, AccessLog};
use crate::observe::config_metrics::ConfigMetrics;
use crate::observe::error_log;
use crate::observe::limit_metrics::LimitMetrics;
use crate::observe::recent::Recent;
use crate::observe::status::{MetricsPage, StatusPage};
use crate::open_files;
use crate::proxy::core::{ClientLimits, Core, Stats};
use crate::proxy::front::Front;
use crate::proxy::general::General;
use crate::proxy::head::AddressRules;
use crate::proxy::socket::WRITE_BUFFER;
use crate::proxy::wire::Wire;
use crate::settings::{AdminSettings, Listen, Settings, SourceKind};
use crate::signals::{Signals, exit_when_idle};
use crate::takeover::{ask_for_store, start_server};
use crate::tls::{self, ListenerTls};
use crate::upstream::{Lookups, Resolver, Sweeper};

/// The version of APISIX whose behaviour is followed; clients look at it in `Server`.
pub const APISIX_VERSION: &str = "3.18.0";
/// Linux's own values: Pingora sets the user timeout only together with them.
const KERNEL_KEEPALIVE: TcpKeepalive = TcpKeepalive {
    idle: Duration::from_secs(7200),
    interval: Duration::from_secs(75),
    count: 9,
    user_timeout: Duration::ZERO,
};
/// The kernel's patience, in `send_timeout`s: a client on a moving phone may be out of reach for a
/// while and come back.
const USER_TIMEOUT_FACTOR: u32 = 3;
/// How long a successor waits for the running process to let go of the store.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(10);
/// How long a process that was just told to end may take, before a new one gives up.
const RESTART_LIMIT: Duration = Duration::from_secs(2);
/// Tries of one request that Pingora allows in all; `retries` of an upstream is counted here.
const MAX_TRIES: usize = 1000;

/// Reads the settings, with the environment of the process.
///
/// # Errors
/// Every problem of the file.
pub fn settings(config: &Path) -> Result<(Settings, Vec<Problem>), Problems> {
    let names: Vec<&str> = lockgate_plugins::ALL.iter().map(|def| def.name).collect();
    crate::settings::load(config, &|name| std::env::var(name).ok(), &names)
}

/// Serves until a signal ends it.
pub fn run(config: &Path, upgrade: bool) -> ExitCode {
    let (mut settings, mut warnings) = match settings(config) {
        Ok(read) => read,
        Err(problems) => return refused(&problems),
    };
    if let Err(error) = error_log::start(&settings.error_log) {
        eprintln!("the log cannot be opened: {error}");
        return ExitCode::FAILURE;
    }
    settings.lockgate.max_connections = open_files::raise(settings.lockgate.max_connections);
    // A store belongs to one process: the running one lets go of it for a successor that asks, and
    // keeps its sockets until that has read it.
    let takes_over = upgrade && matches!(settings.source, SourceKind::Embedded(_));
    let asks = match takes_over.then(|| ask_for_store(&settings)).transpose() {
        Ok(asks) => asks,
        Err(error) => return ended(&error),
    };
    let patience = if takes_over {
        HAND_OVER_LIMIT
    } else {
        RESTART_LIMIT
    };
    let (resolver, lookups) = Resolver::new();
    let sock = limits::sock(&settings.lockgate.upgrade_sock);
    let predecessor = upgrade.then_some(&*sock);
    let Counting { engine, memory } = limits::counting(settings.lockgate.limit_table, predecessor);
    let serving = Purpose::Serving { patience };
    let loaded = match load(&settings, Some(resolver), Some(engine), serving) {
        Ok(loaded) => loaded,
        Err((problems, _)) => return refused(&problems),
    };
    tracing::info!(
        source = %loaded.source.describe(),
        resources = loaded.graph.len(),
        "configuration read"
    );
    warnings.extend(loaded.warnings.iter().cloned());
    warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let server = start_server(&settings, server_conf(&settings), upgrade);
    drop(asks);
    match server.and_then(|server| serve(&settings, (loaded, memory), lookups, server, upgrade)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ended(&error),
    }
}

fn ended(error: &anyhow::Error) -> ExitCode {
    tracing::error!("{error:#}");
    ExitCode::FAILURE
}

fn refused(problems: &Problems) -> ExitCode {
    for problem in problems {
        eprintln!("error: {problem}");
    }
    eprintln!(
        "not started: {} problem(s) in the configuration",
        problems.len()
    );
    ExitCode::FAILURE
}

fn serve(
    settings: &Settings,
    (loaded, memory): (Loaded, Option<Memory>),
    lookups: Lookups,
    mut server: Server,
    upgrade: bool,
) -> anyhow::Result<()> {
    let Loaded {
        graph,
        source,
        rejected,
        metrics,
        engine,
        remote,
        peers,
        ..
    } = loaded;
    let engine = engine.ok_or_else(|| anyhow::anyhow!("limits have nothing to count in"))?;
    let desk = Desk {
        engine: Arc::clone(&engine),
        hostname: hostname().into(),
    };
    let live = Arc::new(Live::new(graph.snapshot()));
    let stats = Arc::new(Stats::default());
    let report = first_report(&graph, &source, remote.as_ref());
    let store = source.store().cloned();
    // Nobody else asks for them.
    let has_admin = settings.admin.is_some() && store.is_some();
    let recent = has_admin.then(|| Arc::new(Recent::new(settings.lockgate.recent_requests)));
    let mut core = core(settings, Arc::clone(&live), Arc::clone(&stats))?;
    core.recent = recent.clone();
    let core = Arc::new(core);
    let checked_by = Arc::clone(&metrics);
    let mut workshop = workshop(settings, &metrics, peers.as_ref());
    if let Some(groups) = graph.shared::<Groups>() {
        // What is to be stored has to agree with what is in use.
        workshop.shared.insert(Arc::new(groups.looking()));
    }
    let read = match &source {
        Source::Store(_, revision) => Some(*revision),
        Source::File(_) => None,
    };
    let mirror = remote.as_ref().map(|remote| Arc::clone(&remote.mirror));
    let writer = Writer::new(graph, Arc::clone(&live), Arc::clone(&report));
    let writer = writer.mirrored(mirror.clone()).started(rejected, read);
    let keeper = remote.map(|remote| Keeper::new(remote.mirror, remote.place, Arc::clone(&report)));

    let proxy = pingora_proxy::http_proxy(&server.configuration, General::new(Arc::clone(&core)));
    let proxy = Arc::new(with_http2(proxy, settings));
    let sweeper = Arc::new(Sweeper::default());
    let wire = Wire {
        core: Arc::clone(&core),
        sweeper: Arc::clone(&sweeper),
        connector: Default::default(),
        idle: settings.upstream_keepalive.size,
        carries: settings.upstream_keepalive.requests,
    };
    let front = Front::new(Arc::clone(&core), proxy, wire, settings.engine());
    server.add_service(front_service(settings, &live, front)?);
    let listening = Arc::new(AtomicBool::new(false));
    if let Some(addr) = settings.status {
        let page = StatusPage {
            report: Arc::clone(&report),
            stats: Arc::clone(&stats),
            listening: Arc::clone(&listening),
            digests: writer.digests(),
        };
        server.add_service(small_service("status", addr, page));
    }
    if settings.prometheus.enable_export_server {
        let path = settings.prometheus.export_uri.clone();
        let prefix = &settings.prometheus.metric_prefix;
        let (registry, report) = (metrics.registry(), Arc::clone(&report));
        let config = ConfigMetrics::register(registry, prefix, report, mirror.clone());
        let limits = LimitMetrics::register(registry, prefix, Arc::clone(&engine));
        let page = MetricsPage {
            limits: limits
                .map_err(|error| tracing::error!(%error, "no metrics of limits"))
                .ok(),
            config: config
                .map_err(|error| tracing::error!(%error, "no metrics of the configuration"))
                .ok(),
            metrics,
            path,
            stats: Arc::clone(&stats),
        };
        server.add_service(small_service("metrics", settings.prometheus.addr, page));
    }

    if let Some(addr) = settings.control {
        let place = match &source {
            Source::File(file) => Place::File(file.path().to_owned(), file.format()),
            Source::Store(source, _) => Place::Store(Arc::clone(source.store())),
        };
        let control = Control {
            inventory: Inventory::new(place, Arc::clone(&report)),
            catalogue: catalogue(settings),
            live: Arc::clone(&live),
            rules: Rules::of(settings)?,
            server_token: server_token(settings),
        };
        server.add_service(small_service("control", addr, control));
    }
    let limits_wake = Arc::new(Notify::new());
    // Where there is no Admin API, too: what is said to another gateway holds for all that share the store.
    let keeping = store
        .as_ref()
        .map(|store| Keeping::new(Arc::clone(store), desk.clone(), Arc::clone(&limits_wake)));
    let mut confirmations = None;
    if let (Some(conf), Some(store), Some(recent)) = (&settings.admin, &store, &recent) {
        let wake = Arc::new(Notify::new());
        let writes = Arc::default();
        confirmations = Some(Confirmations {
            store: Arc::clone(store),
            keyring: settings.keyring.clone(),
            catalogue: catalogue(settings),
            limits: settings.lockgate.history,
            recent: Arc::clone(recent),
            wake: Arc::clone(&wake),
            writes: Arc::clone(&writes),
        });
        let key = std::path::absolute(&settings.lockgate.admin_key)?;
        let own = conf.key_required && conf.keys.iter().all(|key| key.viewer);
        let admin = Admin::new(AdminParts {
            settings: conf,
            generated_key: own.then(|| admin::key::kept_in(&key)).transpose()?,
            server_token: server_token(settings),
            store: Arc::clone(store),
            mirror,
            keyring: settings.keyring.clone(),
            standalone: settings.source == SourceKind::Memory,
            workshop,
            history: settings.lockgate.history,
            recent: Some(Arc::clone(recent)),
            trial: trial(settings, &checked_by, peers.as_ref())?,
            wake,
            writes,
            seen: writer.in_use(),
            live: Arc::clone(&live),
            rules: Rules::of(settings)?,
            desk,
            limits_wake,
        });
        server.add_service(admin_service(conf, admin)?);
        tracing::info!(address = %conf.listen, "listening for the Admin API");
    }
    let membership = peers.map(|peers| cluster::start(settings, peers, upgrade));
    let membership = membership.transpose()?;
    let looked_after = (confirmations, keeping);
    background::start_config_thread(writer, source, keeper, looked_after, Arc::clone(&report))?;
    background::start_upkeep_thread(lookups, sweeper)?;
    let sock = limits::sock(&settings.lockgate.upgrade_sock);
    let bytes = settings.lockgate.limit_table;
    background::start_readiness_thread(settings, listening, move || {
        // Not before: a process that was started by mistake takes nobody's place.
        if let Some(memory) = memory {
            limits::handover::serve(&sock, engine, (memory, bytes));
        }
    })?;
    exit_when_idle(server.watch_execution_phase(), Arc::clone(&stats));
    let signals = Signals {
        upgrade_sock: settings.lockgate.upgrade_sock.clone(),
        drain: settings.lockgate.drain,
        stats,
        store,
        membership,
    };
    for listen in &settings.listen {
        tracing::info!(address = %listen.addr, "listening for HTTP");
    }
    for listen in &settings.tls.listen {
        tracing::info!(address = %listen.addr, "listening for HTTPS");
    }
    server.run(RunArgs {
        shutdown_signal: Box::new(signals),
    });
    Ok(())
}

/// What is told before anything changes.
fn first_report(graph: &Graph, source: &Source, remote: Option<&Remote>) -> SharedReport {
    let mut report = Report {
        revision: graph.revision(),
        loaded_at: Some(SystemTime::now()),
        source: source.describe(),
        resources: graph.len(),
        print: match source {
            Source::File(file) => file.print(),
            Source::Store(..) => None,
        },
        ..Report::default()
    };
    if source.store().is_some() {
        report.found();
    }
    if let Some(remote) = remote {
        report.last_good = Some(Saved::default());
        if let Some(why) = &remote.degraded {
            report.degrade(why);
        }
        if let Some(error) = &remote.away {
            report.lost(error);
        }
    }
    Arc::new(Mutex::new(report))
}

/// What `Server` says.
fn server_token(settings: &Settings) -> String {
    if settings.server_tokens {
        format!("APISIX/{APISIX_VERSION}")
    } else {
        "APISIX".to_owned()
    }
}

/// How clients' addresses are found.
pub(crate) fn address_rules(settings: &Settings) -> anyhow::Result<AddressRules> {
    let header = &settings.real_ip.header;
    let read = header.parse();
    Ok(AddressRules {
        real_ip_header: read.map_err(|e| anyhow::anyhow!("real_ip_header `{header}` is {e}"))?,
        real_ip_from: settings.real_ip.from.clone(),
        recursive: settings.real_ip.recursive,
        trusted: settings.trusted_addresses.clone(),
    })
}

fn core(settings: &Settings, live: Arc<Live>, stats: Arc<Stats>) -> anyhow::Result<Core> {
    let token = server_token(settings);
    let access_log = match &settings.access_log {
        Some(conf) => {
            let format = access_log::Format::parse(&conf.format, conf.escape);
            let opened = AccessLog::open(&conf.path, format, conf.buffer);
            let log = opened.map_err(|e| {
                anyhow::anyhow!(
                    "the access log {} cannot be opened: {e}",
                    conf.path.display()
                )
            })?;
            Some(log)
        }
        None => None,
    };
    let client = &settings.client;
    Ok(Core {
        live,
        match_options: settings.match_options,
        addresses: address_rules(settings)?,
        facts: Arc::new(ServerFacts {
            hostname: hostname(),
            server_token: token.clone(),
            pid: std::process::id(),
        }),
        server_token: token.into(),
        show_upstream_status: settings.show_upstream_status,
        charset: settings.charset.as_deref().map(Into::into),
        limits: ClientLimits {
            head: client.head,
            body: client.body,
            min_body_rate: settings.lockgate.min_body_rate,
            send: client.send,
            keepalive: client.keepalive,
            max_body: client.max_body,
            max_connections: settings.lockgate.max_connections,
        },
        access_log,
        recent: None,
        failure_log: Default::default(),
        stats,
        http2: settings.http2,
    })
}

fn server_conf(settings: &Settings) -> ServerConf {
    ServerConf {
        threads: settings.workers,
        work_stealing: settings.lockgate.work_stealing,
        upgrade_sock: settings.lockgate.upgrade_sock.display().to_string(),
        // The real end comes from `exit_when_idle`; this is the deadline.
        grace_period_seconds: Some(settings.shutdown_timeout.as_secs()),
        graceful_shutdown_timeout_seconds: Some(1),
        upstream_keepalive_pool_size: settings.upstream_keepalive.size.max(1),
        max_retries: MAX_TRIES,
        ..ServerConf::default()
    }
}

fn with_http2(
    mut proxy: pingora_proxy::HttpProxy<General>,
    settings: &Settings,
) -> pingora_proxy::HttpProxy<General> {
    let mut options = pingora_core::apps::HttpServerOptions::default();
    options.h2c = settings.http2;
    options.h2_idle_timeout = Some(settings.client.keepalive.max(Duration::from_secs(1)));
    proxy.server_options = Some(options);
    proxy
}

fn front_service(
    settings: &Settings,
    live: &Arc<Live>,
    front: Front,
) -> anyhow::Result<Service<Front>> {
    let mut service = Service::new("front".to_owned(), front);
    for listen in &settings.listen {
        service.add_listener(listener(listen, settings.client.send));
    }
    let conf = ListenerTls {
        protocols: settings.tls.protocols.clone(),
        ciphers: settings.tls.ciphers.clone(),
        fallback_sni: settings.tls.fallback_sni.clone(),
        http2: settings.http2,
    };
    for listen in &settings.tls.listen {
        let tls = tls::listener(live, &conf).map_err(|e| anyhow::anyhow!("TLS listener: {e}"))?;
        service.add_listener(listener(listen, settings.client.send).tls(tls));
    }
    Ok(service)
}

/// A listener. `send` is how long a client may take none of what was sent: Pingora writes heads
/// without a deadline, so the kernel keeps it.
fn listener(listen: &Listen, send: Duration) -> ListenerConfig {
    let mut options = TcpSocketOptions::default();
    options.tcp_keepalive = Some(TcpKeepalive {
        user_timeout: send * USER_TIMEOUT_FACTOR,
        ..KERNEL_KEEPALIVE
    });
    if listen.v6only {
        options.ipv6_only = Some(true);
    }
    ListenerConfig::tcp(listen.addr.to_string())
        .tcp_socket_options(options)
        .l4_buffer(L4BufferSettings::new(0, WRITE_BUFFER))
}

/// What changes are tried with before they are made.
pub(crate) fn trial(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    peers: Option<&Arc<Peers>>,
) -> anyhow::Result<Trial> {
    let (own, metrics, peers) = (settings.clone(), Arc::clone(metrics), peers.cloned());
    Ok(Trial {
        workshop: Box::new(move || workshop(&own, &metrics, peers.as_ref())),
        mode: settings.router,
        rules: explain::Rules::of(settings)?,
    })
}

fn admin_service(conf: &AdminSettings, admin: Admin) -> anyhow::Result<Service<Endpoint<Admin>>> {
    let mut service = Service::new("admin".to_owned(), Endpoint::new(admin));
    service.threads = Some(1);
    let listen = ListenerConfig::tcp(conf.listen.to_string());
    service.add_listener(match &conf.tls {
        Some(files) => {
            let tls = tls::from_files(&files.cert, &files.key, files.client_ca.as_deref());
            listen.tls(tls.map_err(|e| anyhow::anyhow!("deployment.admin.admin_api_mtls: {e}"))?)
        }
        None => listen,
    });
    Ok(service)
}

fn small_service<A: Api>(name: &str, addr: SocketAddr, page: A) -> Service<Endpoint<A>> {
    let mut service = Service::new(name.to_owned(), Endpoint::new(page));
    service.threads = Some(1);
    service.add_listener(ListenerConfig::tcp(addr.to_string()));
    service
}
