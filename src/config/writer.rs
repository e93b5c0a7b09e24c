//! The one task that changes the configuration.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lockgate_plugin::{Problem, Problems};
use openssl::sha::Sha256;
use tokio::sync::{mpsc, oneshot, watch};

use super::graph::{Applied, Change, Graph};
use super::kind::Key;
use super::report::{Report, SharedReport};
use super::snapshot::{Live, Snapshot};
use super::source::{Batch, Changes, Raw, Update};
use crate::store::{Event, Mirror};

/// How often replaced snapshots are looked at while requests hold some. Some are large, and the
/// next change may be hours away.
const RETIRED_LOOK: Duration = Duration::from_secs(1);

/// Problems that the status page shows.
const MOST_REPORTED: usize = 200;

/// Owns the graph.
pub struct Writer {
    graph: Graph,
    live: Arc<Live>,
    report: SharedReport,
    /// Snapshots that requests may still hold. They are dropped here, so that no request pays for
    /// taking one apart.
    retired: Vec<Arc<Snapshot>>,
    /// What a store holds and is not valid, by resource: a change tells of its own resource only.
    rejected: BTreeMap<String, Vec<Problem>>,
    /// The revision of the store that requests see.
    in_use: watch::Sender<u64>,
    /// What is kept of a store that is somewhere else.
    mirror: Option<Arc<Mirror>>,
    /// Who asks for the digest of what is in use. One at a time: it is made of everything.
    asked: mpsc::Receiver<Asked>,
    ask: mpsc::Sender<Asked>,
}

/// Where an answer goes.
type Asked = oneshot::Sender<Digest>;

/// Which configuration is in use: equal for equal ones, however they came about and in whichever
/// process.
pub struct Digest {
    /// SHA-256 of everything that was compiled, in a fixed order.
    pub sha256: String,
    /// The revision it is of.
    pub revision: u64,
}

/// Asks the writer for a digest.
#[derive(Clone)]
pub struct Digests(mpsc::Sender<Asked>);

impl Digests {
    /// The digest of what is in use. `None` while another one is being made, or when the writer has
    /// ended.
    pub async fn get(&self) -> Option<Digest> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(answer).ok()?;
        answered.await.ok()
    }
}

impl Writer {
    /// A writer over a graph whose snapshot is in use already.
    pub fn new(graph: Graph, live: Arc<Live>, report: SharedReport) -> Writer {
        let (ask, asked) = mpsc::channel(1);
        Writer {
            graph,
            live,
            report,
            retired: Vec::new(),
            rejected: BTreeMap::new(),
            in_use: watch::Sender::new(0),
            mirror: None,
            asked,
            ask,
        }
    }

    /// Where the digest of what is in use can be asked for.
    pub fn digests(&self) -> Digests {
        Digests(self.ask.clone())
    }

    /// Has a mirror follow what the store holds and what of it is in use.
    #[must_use]
    pub fn mirrored(mut self, mirror: Option<Arc<Mirror>>) -> Writer {
        self.mirror = mirror;
        self
    }

    /// The revision of the store that requests see, as it grows.
    pub fn in_use(&self) -> watch::Receiver<u64> {
        self.in_use.subscribe()
    }

    /// Tells of what was not taken at the start, and of the revision of the store it was, if it was
    /// one.
    #[must_use]
    pub fn started(mut self, rejected: Problems, revision: Option<u64>) -> Writer {
        for problem in rejected {
            let of = self.rejected.entry(problem.resource.clone());
            of.or_default().push(problem);
        }
        self.in_use.send_replace(revision.unwrap_or(0));
        self.report(|report| report.store_revision = revision);
        self.note(&Applied::default());
        self
    }

    /// Works until the source is gone.
    pub async fn run(mut self, mut updates: mpsc::Receiver<Update>) {
        loop {
            let wait = if self.retired.is_empty() {
                Duration::MAX
            } else {
                RETIRED_LOOK
            };
            let next = tokio::select! {
                next = tokio::time::timeout(wait, updates.recv()) => next,
                Some(answer) = self.asked.recv() => {
                    // Whoever asked may have gone.
                    let _ = answer.send(self.digest());
                    continue;
                }
            };
            match next {
                Ok(Some(Update::File(read))) => match *read {
                    Ok(batch) => self.take_file(batch),
                    Err(problems) => self.refuse(problems),
                },
                Ok(Some(Update::Whole(all))) => self.take_all(all),
                Ok(Some(Update::Changes(changes))) => self.take_changes(changes),
                Ok(None) => return,
                Err(_) => {}
            }
            self.retired.retain(|old| Arc::strong_count(old) > 1);
        }
    }

    fn digest(&self) -> Digest {
        let mut digest = Sha256::new();
        for line in self.graph.describe() {
            digest.update(line.as_bytes());
            digest.update(b"\n");
        }
        let bytes = digest.finish();
        Digest {
            sha256: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            revision: self.graph.revision(),
        }
    }

    fn take_file(&mut self, batch: Batch) {
        let changes = self.graph.difference(batch.wanted());
        let print = batch.print;
        self.apply(changes, |rejected, applied| {
            batch.locate(&mut applied.problems);
            batch.locate(&mut applied.warnings);
            applied.warnings.extend(batch.warnings);
            rejected.clear();
        });
        self.report(|report| {
            report.print = Some(print);
            report.recover();
        });
    }

    fn take_all(&mut self, all: Changes) {
        let changes = self.graph.only(all.changes);
        self.apply(changes, |rejected, _| rejected.clear());
        self.report(|report| report.recover());
        self.arrived(all.revision, all.raw);
    }

    fn take_changes(&mut self, next: Changes) {
        let is_late = self.is_late(&next);
        let changes = next.changes;
        let touched: Vec<String> = changes.iter().map(|c| c.key().to_string()).collect();
        if !changes.is_empty() {
            self.apply(changes, |rejected, _| {
                for key in &touched {
                    rejected.remove(key);
                }
            });
        }
        self.arrived(next.revision, next.raw);
        if let Some(mirror) = self.mirror.as_ref().filter(|_| is_late) {
            let order = mirror.order();
            let places = order.iter().filter_map(|path| Key::from_path(path));
            let places = places.enumerate().map(|(at, key)| Change::Stay(key, at));
            self.apply(places.collect(), |_, _| {});
        }
    }

    /// Whether something that was refused when it was made may be taken now: it stands where it
    /// would stand had it been taken then, as it will after a restart.
    fn is_late(&self, next: &Changes) -> bool {
        let Some(Raw::Changes(events)) = &next.raw else {
            return false;
        };
        events.iter().any(|event| match event {
            Event::Put(item) => {
                let key = Key::from_path(&item.path);
                item.created < item.modified && key.is_some_and(|key| !self.graph.has(&key))
            }
            Event::Gone(..) => false,
        })
    }

    /// Requests see a revision of the store.
    fn arrived(&mut self, revision: u64, raw: Option<Raw>) {
        if let Some(mirror) = &self.mirror {
            let taken = |path: &str| is_taken(&self.rejected, path);
            match raw {
                Some(Raw::Whole(listing)) => mirror.replace(listing, taken),
                Some(Raw::Changes(events)) => mirror.change(events, revision, taken),
                None => {}
            }
        }
        self.report(|report| report.store_revision = Some(revision));
        self.in_use.send_replace(revision);
    }

    fn report(&self, tell: impl FnOnce(&mut Report)) {
        tell(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Applies changes and reports. `forget` drops what is known to be rejected and may no longer be.
    fn apply(
        &mut self,
        changes: Vec<Change>,
        forget: impl FnOnce(&mut BTreeMap<String, Vec<Problem>>, &mut Applied),
    ) {
        let started = Instant::now();
        let mut applied = self.graph.apply(changes);
        forget(&mut self.rejected, &mut applied);
        for problem in &applied.problems {
            let of = self.rejected.entry(problem.resource.clone()).or_default();
            if !of.contains(problem) {
                of.push(problem.clone());
            }
        }
        let changed = applied.changed.len();
        let swapped = applied.snapshot.take();
        if let Some(next) = &swapped {
            self.retired.push(self.live.swap(Arc::clone(next)));
        }
        self.note(&applied);
        if swapped.is_some() {
            tracing::info!(
                revision = self.graph.revision(),
                changed,
                resources = %names(&applied.changed),
                routes_compiled = applied.compiled_routes,
                took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
                "configuration swapped"
            );
        }
    }

    /// The source cannot be read: everything stays.
    fn refuse(&mut self, problems: Problems) {
        for problem in &problems {
            tracing::error!("configuration not read, the last good one stays: {problem}");
        }
        let problems: Vec<Problem> = problems.into_iter().collect();
        self.report(|report| {
            report.rejected_resources = 1;
            report.rejected = problems;
            report.stale.get_or_insert_with(Instant::now);
        });
    }

    fn note(&self, applied: &Applied) {
        for problem in &applied.problems {
            tracing::error!("resource rejected, its previous version stays: {problem}");
        }
        for warning in &applied.warnings {
            tracing::warn!("{warning}");
        }
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if report.revision != self.graph.revision() {
            report.revision = self.graph.revision();
            report.loaded_at = Some(SystemTime::now());
        }
        report.resources = self.graph.len();
        report.rejected_resources = self.rejected.len();
        let rejected = self.rejected.values().flatten();
        report.rejected = rejected.take(MOST_REPORTED).cloned().collect();
    }
}

/// Whether what is at a path of a store is a resource, and in use.
pub fn is_taken<V>(rejected: &BTreeMap<String, V>, path: &str) -> bool {
    !rejected.contains_key(path) && Key::from_path(path).is_some()
}

/// A few names for a log line.
fn names(keys: &[Key]) -> String {
    const SHOWN: usize = 5;
    let mut text: Vec<String> = keys.iter().take(SHOWN).map(Key::to_string).collect();
    if keys.len() > SHOWN {
        text.push(format!("and {} more", keys.len() - SHOWN));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::catalogue::Catalogue;
    use crate::config::compile::instance::Workshop;
    use crate::config::decode::Slot;
    use crate::config::kind::Kind;
    use crate::document::read_yaml;
    use crate::router::Mode;

    /// How long the writer may take before the test fails.
    const DEADLINE: Duration = Duration::from_secs(10);

    fn batch(uri: &str) -> Batch {
        let text = format!("routes: [{{id: 1, uri: {uri}, plugins: {{}}}}]");
        let document = read_yaml(text.as_bytes(), "f").unwrap();
        let slot = Slot {
            list: "routes",
            at: 0,
        };
        Batch {
            resources: vec![(Key::new(Kind::Route, "1"), slot)],
            document,
            filled: None,
            warnings: Problems::default(),
            print: 0,
        }
    }

    #[tokio::test]
    async fn a_snapshot_goes_when_its_last_request_does_without_another_change() {
        let workshop = Workshop {
            catalogue: Catalogue::everything(lockgate_plugins::ALL),
            shared: Default::default(),
            states: Default::default(),
            attr: Default::default(),
            metadata: Default::default(),
        };
        let graph = Graph::new(workshop, Mode::HostUri, None);
        let live = Arc::new(Live::new(graph.snapshot()));
        let writer = Writer::new(graph, Arc::clone(&live), SharedReport::default());
        let (send, batches) = mpsc::channel(1);
        let running = tokio::spawn(writer.run(batches));
        let request = live.snapshot();
        send.send(Update::File(Box::new(Ok(batch("/a")))))
            .await
            .unwrap();
        let until = Instant::now() + DEADLINE;
        while Arc::strong_count(&request) != 2 || live.peek().revision == 0 {
            assert!(Instant::now() < until, "the change was not taken");
            tokio::task::yield_now().await;
        }
        let old = Arc::downgrade(&request);
        drop(request);
        while old.strong_count() > 0 {
            assert!(Instant::now() < until, "the old snapshot stays");
            tokio::task::yield_now().await;
        }
        drop(send);
        running.await.unwrap();
    }
}
