//! The one task that changes the configuration.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lockgate_plugin::{Problem, Problems};
use tokio::sync::mpsc;

use super::graph::{Applied, Graph};
use super::kind::Key;
use super::snapshot::{Live, Snapshot};
use super::source::Batch;

/// How often replaced snapshots are looked at while requests hold some. Some are large, and the
/// next change may be hours away.
const RETIRED_LOOK: Duration = Duration::from_secs(1);

/// What the status page shows of the configuration.
#[derive(Clone, Default)]
pub struct Report {
    /// The revision in use.
    pub revision: u64,
    /// When it came into use.
    pub loaded_at: Option<SystemTime>,
    /// Where it comes from.
    pub source: String,
    /// How many resources are in it.
    pub resources: usize,
    /// What was not taken when the source was read last. The previous versions stay in use.
    pub rejected: Vec<Problem>,
}

/// The report, shared with the status page.
pub type SharedReport = Arc<Mutex<Report>>;

/// Owns the graph.
pub struct Writer {
    graph: Graph,
    live: Arc<Live>,
    report: SharedReport,
    /// Snapshots that requests may still hold. They are dropped here, so that no request pays for
    /// taking one apart.
    retired: Vec<Arc<Snapshot>>,
}

impl Writer {
    /// A writer over a graph whose snapshot is in use already.
    pub fn new(graph: Graph, live: Arc<Live>, report: SharedReport) -> Writer {
        Writer {
            graph,
            live,
            report,
            retired: Vec::new(),
        }
    }

    /// Works until the source is gone.
    pub async fn run(mut self, mut batches: mpsc::Receiver<Result<Batch, Problems>>) {
        loop {
            let wait = if self.retired.is_empty() {
                Duration::MAX
            } else {
                RETIRED_LOOK
            };
            match tokio::time::timeout(wait, batches.recv()).await {
                Ok(Some(Ok(batch))) => self.take(batch),
                Ok(Some(Err(problems))) => self.refuse(problems),
                Ok(None) => return,
                Err(_) => {}
            }
            self.retired.retain(|old| Arc::strong_count(old) > 1);
        }
    }

    fn take(&mut self, batch: Batch) {
        let started = Instant::now();
        let changes = self.graph.difference(batch.wanted());
        let mut applied = self.graph.apply(changes);
        batch.locate(&mut applied.problems);
        batch.locate(&mut applied.warnings);
        applied.warnings.extend(batch.warnings);
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
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.rejected = problems.into_iter().collect();
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
        report.rejected = applied.problems.iter().cloned().collect();
    }
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
        send.send(Ok(batch("/a"))).await.unwrap();
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
