//! Reading and compiling the configuration for the first time, from whatever holds it.

mod remote;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::Engine;
use lockgate_peers::Peers;
use lockgate_plugin::{Problem, Problems, Shared, StateStore};
use lockgate_plugins::observe::prometheus::{Families, Metrics, Options as MetricsOptions};
use lockgate_plugins::traffic::limit_count::Groups;
use lockgate_plugins::transform::redirect::TlsPorts;
use lockgate_quota::{OwnerStore, QuotaStore};

use crate::config::catalogue::Catalogue;
use crate::config::compile::instance::Workshop;
use crate::config::graph::Graph;
use crate::config::source::file::{FileSource, Format};
use crate::config::source::store::StoreSource;
use crate::settings::{Settings, SourceKind};
use crate::store::{Embedded, Memory, Store, StoreError};
use crate::upstream::Resolver;

pub use remote::Remote;

/// Between tries to read a store in this process. They do not fail; there has to be one.
const RESYNC: Duration = Duration::from_secs(5);

/// What a configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To serve it.
    Serving {
        /// How long another process may take to let go of an embedded store.
        patience: Duration,
    },
    /// To see what it comes to.
    Looking,
}

/// A configuration that was read and compiled.
pub struct Loaded {
    /// The graph, with its first snapshot.
    pub graph: Graph,
    /// The source, to be watched.
    pub source: Source,
    /// What a store holds and was not taken.
    pub rejected: Problems,
    /// Accepted, but not what one may think.
    pub warnings: Vec<Problem>,
    /// The metrics that the plugins feed.
    pub metrics: Arc<Metrics>,
    /// What limits count in, where it serves.
    pub engine: Option<Arc<Engine>>,
    /// This gateway among those that count together, if it is to be.
    pub peers: Option<Arc<Peers>>,
    /// What is kept of a store that is somewhere else.
    pub remote: Option<Remote>,
}

/// Where changes come from.
pub enum Source {
    /// A file.
    File(FileSource),
    /// A store, and the revision that was read.
    Store(StoreSource, u64),
}

impl Source {
    /// What it is and where, for people.
    pub fn describe(&self) -> String {
        match self {
            Source::File(file) => file.path().display().to_string(),
            Source::Store(source, _) => source.store().describe(),
        }
    }

    /// The store, if it is one.
    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        match self {
            Source::File(_) => None,
            Source::Store(source, _) => Some(source.store()),
        }
    }
}

/// Reads and compiles the configuration. A file is taken whole or not at all: at the start there is
/// no previous version of anything to fall back to. A store is not edited by hand, and what it
/// holds was checked when it was written: what is not valid any more is left out and reported.
///
/// # Errors
/// Every problem, and the warnings that were found on the way.
pub fn load(
    settings: &Settings,
    resolver: Option<Resolver>,
    engine: Option<Engine>,
    purpose: Purpose,
) -> Result<Loaded, (Problems, Vec<Problem>)> {
    let alone = |problems| (problems, Vec::new());
    let metrics = metrics(settings).map_err(alone)?;
    let peers = crate::cluster::peers(settings).map_err(alone)?;
    let mut workshop = workshop(settings, &metrics, peers.as_ref());
    let engine = engine.map(|engine| Arc::new(engine.counting(Arc::clone(metrics.lost()))));
    if let Some(engine) = &engine {
        workshop.shared.insert(Arc::clone(engine));
    }
    let loaded = read(settings, workshop, resolver, (metrics, purpose))?;
    Ok(Loaded {
        engine,
        peers,
        ..loaded
    })
}

fn read(
    settings: &Settings,
    mut workshop: Workshop,
    resolver: Option<Resolver>,
    (metrics, purpose): (Arc<Metrics>, Purpose),
) -> Result<Loaded, (Problems, Vec<Problem>)> {
    let alone = |problems| (problems, Vec::new());
    if matches!(settings.source, SourceKind::Etcd(_)) {
        workshop.catalogue = workshop.catalogue.skipping_unknown();
    }
    let graph = Graph::new(workshop, settings.router, resolver);
    match &settings.source {
        SourceKind::Yaml(path) => file(graph, metrics, path, Format::Yaml),
        SourceKind::Json(path) => file(graph, metrics, path, Format::Json),
        SourceKind::Embedded(path) => match purpose {
            Purpose::Serving { patience } => Embedded::open(path, patience)
                .and_then(|store| stored(graph, metrics, Arc::new(store), settings)),
            Purpose::Looking => Embedded::look(path)
                .and_then(|store| stored(graph, metrics, Arc::new(store), settings)),
        }
        .map_err(|e| alone(failed(&e))),
        SourceKind::Memory => {
            let store = Arc::new(Memory::default());
            stored(graph, metrics, store, settings).map_err(|e| alone(failed(&e)))
        }
        SourceKind::Etcd(etcd) => {
            remote::load(graph, metrics, settings, etcd, purpose).map_err(|e| alone(failed(&e)))
        }
    }
}

fn failed(error: &StoreError) -> Problems {
    Problem::new("", error.chain()).into()
}

/// The plugins, and which of them the settings allow.
pub fn catalogue(settings: &Settings) -> Catalogue {
    Catalogue::new(lockgate_plugins::ALL, settings.plugins.clone())
}

/// What plugins are built with. One that is only used to check leaves no trace in the other.
pub fn workshop(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    peers: Option<&Arc<Peers>>,
) -> Workshop {
    let mut shared = Shared::default();
    shared.insert(Arc::clone(metrics));
    shared.insert(Arc::clone(metrics.lost()));
    shared.insert(Arc::new(Groups::default()));
    let listen = settings.tls.listen.iter();
    let ports = listen.map(|listen| listen.addr.port()).collect();
    shared.insert(Arc::new(TlsPorts(ports)));
    if let Some(peers) = peers {
        shared.insert(Arc::new(OwnerStore(
            Arc::clone(peers) as Arc<dyn QuotaStore>
        )));
    }
    Workshop {
        catalogue: catalogue(settings),
        shared,
        states: StateStore::default(),
        attr: settings.plugin_attr.clone(),
        metadata: Default::default(),
    }
}

fn file(
    mut graph: Graph,
    metrics: Arc<Metrics>,
    path: &Path,
    format: Format,
) -> Result<Loaded, (Problems, Vec<Problem>)> {
    let mut source = FileSource::new(path, format, |name| std::env::var(name).ok());
    let batch = source.load().map_err(|problems| (problems, Vec::new()))?;
    let changes = graph.difference(batch.wanted());
    let mut applied = graph.apply(changes);
    batch.locate(&mut applied.problems);
    batch.locate(&mut applied.warnings);
    applied.warnings.extend(batch.warnings);
    let warnings = applied.warnings.into_iter().collect();
    match applied.problems.into_result() {
        Ok(()) => Ok(Loaded {
            graph,
            source: Source::File(source),
            rejected: Problems::default(),
            warnings,
            metrics,
            engine: None,
            peers: None,
            remote: None,
        }),
        Err(problems) => Err((problems, warnings)),
    }
}

fn stored(
    mut graph: Graph,
    metrics: Arc<Metrics>,
    store: Arc<dyn Store>,
    settings: &Settings,
) -> Result<Loaded, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| StoreError::new("cannot read the store", e))?;
    let mut source = StoreSource::new(store, settings.keyring.clone(), RESYNC);
    // What was never read before is not emptied.
    let all = runtime.block_on(source.read())?;
    let (changes, revision) = all.map_or((Vec::new(), 0), |all| (all.changes, all.revision));
    let applied = graph.apply(changes);
    Ok(Loaded {
        graph,
        source: Source::Store(source, revision),
        rejected: applied.problems,
        warnings: applied.warnings.into_iter().collect(),
        metrics,
        engine: None,
        peers: None,
        remote: None,
    })
}

/// Metrics that nobody has counted into yet.
pub(crate) fn metrics(settings: &Settings) -> Result<Arc<Metrics>, Problems> {
    let mut out = Problems::default();
    let options = metrics_options(settings);
    let families = {
        let mut out = out.at("plugin_attr");
        let mut out = out.at("prometheus");
        options.check(&mut out);
        Families::read(&settings.prometheus.metrics, &mut out.at("metrics"))
    };
    out.into_result()?;
    Ok(Arc::new(Metrics::with(&options, &families)))
}

fn metrics_options(settings: &Settings) -> MetricsOptions {
    let default = MetricsOptions::default();
    MetricsOptions {
        prefix: settings.prometheus.metric_prefix.clone(),
        buckets: settings
            .prometheus
            .default_buckets
            .clone()
            .unwrap_or(default.buckets),
        hostname: hostname(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The name of this machine.
pub(crate) fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
