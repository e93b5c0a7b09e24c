//! The first configuration from a store that is somewhere else, and may be away.
//!
//! The store comes first. When it does not answer soon, the gateway starts from what was in use
//! last and is on disk, says so, and goes over to the store as soon as that answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_plugin::Problems;
use lockgate_plugins::observe::prometheus::Metrics;

use super::{Loaded, Purpose, Source};
use crate::config::graph::{Applied, Change, Graph};
use crate::config::kind::Key;
use crate::config::source::store::{EMPTIED, StoreSource, resources};
use crate::config::source::{Changes, Raw};
use crate::config::writer::is_taken;
use crate::settings::{EtcdSettings, Settings};
use crate::store::last_good::LastGood;
use crate::store::{Accepted, Listing, Mirror, Store, StoreError};

/// How long the store may take to answer, when there is something else to start from.
const STORE_FIRST: Duration = Duration::from_secs(3);
/// Between tries when there is nothing else: the store may be starting as well.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// The same when there is: it may be just one server that does not answer.
const LOOK: Duration = Duration::from_millis(100);

/// What is kept of a store that is somewhere else.
pub struct Remote {
    /// What it holds, and what of that is in use.
    pub mirror: Arc<Mirror>,
    /// Where that is kept on disk.
    pub place: LastGood,
    /// Why what is in use is not what the store holds.
    pub degraded: Option<String>,
    /// Why the store cannot be reached.
    pub away: Option<String>,
}

/// What a start has to work with.
struct Start<'a> {
    graph: Graph,
    settings: &'a Settings,
    source: StoreSource,
    kept: Option<Accepted>,
    remote: Remote,
}

/// Reads and compiles.
pub(super) fn load(
    graph: Graph,
    metrics: Arc<Metrics>,
    settings: &Settings,
    etcd: &EtcdSettings,
    purpose: Purpose,
) -> Result<Loaded, StoreError> {
    let store = connect(etcd)?;
    let place = settings.lockgate.last_good.clone();
    let place = LastGood::new(place, store.prefix(), &etcd.hosts);
    let kept = match purpose {
        Purpose::Serving { .. } => kept(&place),
        // Of whoever only looks, the question is what the store holds.
        Purpose::Looking => None,
    };
    let mirror = Arc::new(Mirror::default());
    let source = StoreSource::new(store, settings.keyring.clone(), etcd.resync)
        .mirrored(Arc::clone(&mirror));
    let source = match &kept {
        Some(kept) => source.behind(kept.revision, kept.identity),
        None => source,
    };
    let mut start = Start {
        graph,
        settings,
        source,
        kept,
        remote: Remote {
            mirror,
            place,
            degraded: None,
            away: None,
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| StoreError::new("cannot read the store", e))?;
    let read = match &start.kept {
        Some(_) => runtime.block_on(read_soon(&mut start.source)),
        None => runtime.block_on(read_patiently(&mut start.source, etcd.retries)),
    };
    let applied = match (read, start.kept.take()) {
        (Ok(Some(all)), kept) => start.take(all, kept),
        (Ok(None), kept) => start.fall_back(kept.unwrap_or_default(), None),
        (Err(error), Some(kept)) => start.fall_back(kept, Some(&error)),
        (Err(error), None) => return Err(error),
    };
    let revision = start.remote.mirror.revision();
    Ok(Loaded {
        graph: start.graph,
        source: Source::Store(start.source, revision),
        rejected: applied.problems,
        warnings: applied.warnings.into_iter().collect(),
        metrics,
        engine: None,
        peers: None,
        remote: Some(start.remote),
    })
}

/// What is on disk, if it can be used.
fn kept(place: &LastGood) -> Option<Accepted> {
    place.read().unwrap_or_else(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        tracing::error!(
            path = %place.path().display(),
            %error,
            cause,
            "the last good configuration on disk is not used"
        );
        None
    })
}

/// Waits a short time for the store to answer at all; reading may take longer.
async fn read_soon(source: &mut StoreSource) -> Result<Option<Changes>, StoreError> {
    let until = Instant::now() + STORE_FIRST;
    let mut last = StoreError::plain(format!("the store did not answer within {STORE_FIRST:?}"));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, source.store().revision()).await {
            Ok(Ok(_)) => return source.read().await,
            Ok(Err(error)) => last = error,
            Err(_) => return Err(last),
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn read_patiently(
    source: &mut StoreSource,
    mut left: u32,
) -> Result<Option<Changes>, StoreError> {
    loop {
        match source.read().await {
            Err(error) if left > 0 => {
                tracing::warn!(error = %error.chain(), left, "the store does not answer, trying again");
                left -= 1;
                // Nobody is served yet: this is the start.
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            done => return done,
        }
    }
}

impl Start<'_> {
    /// What the store holds is in use, and where that is refused the version before.
    fn take(&mut self, all: Changes, kept: Option<Accepted>) -> Applied {
        let places: Vec<Key> = all.changes.iter().map(|c| c.key().clone()).collect();
        let mut applied = self.graph.apply(all.changes);
        let rejected = by_resource(&applied.problems);
        let kept = kept.unwrap_or_default();
        // Why these are not taken, if they are not, was said when they were in use.
        let again = match rejected.is_empty() {
            true => Applied::default(),
            false => {
                let before = resources(&self.settings.keyring, &kept.items);
                let before = before.into_iter();
                let before = before.filter(|c| rejected.contains_key(&c.key().to_string()));
                self.graph.apply(in_place(before, &places))
            }
        };
        applied.warnings.extend(again.warnings);
        let refused = by_resource(&again.problems);
        let mirror = &self.remote.mirror;
        let listing = Listing {
            items: kept.items,
            ..Listing::default()
        };
        mirror.replace(listing, |path| is_taken(&refused, path));
        if let Some(Raw::Whole(listing)) = all.raw {
            mirror.replace(listing, |path| is_taken(&rejected, path));
        }
        applied
    }

    /// What is on disk is in use.
    fn fall_back(&mut self, kept: Accepted, error: Option<&StoreError>) -> Applied {
        let applied = self
            .graph
            .apply(resources(&self.settings.keyring, &kept.items));
        let rejected = by_resource(&applied.problems);
        let revision = kept.revision;
        let why = match error {
            Some(_) => format!(
                "the store does not answer: started from the last good configuration on disk, revision {revision}"
            ),
            None => EMPTIED.to_owned(),
        };
        tracing::error!(
            path = %self.remote.place.path().display(),
            revision,
            error = error.map(StoreError::chain),
            "degraded: {why}"
        );
        self.remote.degraded = Some(why);
        self.remote.away = error.map(StoreError::chain);
        let listing = Listing {
            items: kept.items,
            revision,
            identity: kept.identity,
        };
        let mirror = &self.remote.mirror;
        mirror.replace(listing, |path| is_taken(&rejected, path));
        applied
    }
}

/// Changes at their places among all of the store, where the others stay.
fn in_place(changes: impl Iterator<Item = Change>, places: &[Key]) -> Vec<Change> {
    let mut put: BTreeMap<Key, Change> = changes.map(|c| (c.key().clone(), c)).collect();
    let all = places.iter().enumerate();
    all.map(|(at, key)| match put.remove(key) {
        Some(Change::Put(key, value, _)) => Change::Put(key, value, Some(at)),
        _ => Change::Stay(key.clone(), at),
    })
    .collect()
}

/// The resources that were refused.
fn by_resource(problems: &Problems) -> BTreeMap<String, ()> {
    let of = problems.iter();
    of.map(|problem| (problem.resource.clone(), ())).collect()
}

#[cfg(feature = "etcd")]
fn connect(etcd: &EtcdSettings) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(crate::store::Etcd::open(etcd)?))
}

#[cfg(not(feature = "etcd"))]
fn connect(_: &EtcdSettings) -> Result<Arc<dyn Store>, StoreError> {
    let text = "this binary was built without the feature `etcd`";
    Err(StoreError::new("etcd cannot be used", text))
}
