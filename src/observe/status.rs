//! The status page: alive, ready, and what became of the configuration.
//!
//! | path | answer |
//! |---|---|
//! | `/status` | 200 `{"status":"ok"}` while the process lives |
//! | `/status/ready` | 200, or 503 with `error` while it starts or drains |
//! | `/status/config` | revision, age, source, whether the store answers, and rejected resources |
//! | `/status/config/digest` | one number for everything in use, to compare gateways by |

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lockgate_plugin::Problem;
use lockgate_plugins::observe::prometheus::{Metrics, Now};
use pingora_http::RequestHeader;
use serde_json::{Value, json};

use crate::config::report::{Report, SharedReport};
use crate::config::writer::Digests;
use crate::endpoint::{Answer, Api, Taken};
use crate::observe::config_metrics::ConfigMetrics;
use crate::observe::limit_metrics::LimitMetrics;
use crate::proxy::core::Stats;

/// Serves the status page.
pub(crate) struct StatusPage {
    /// What became of the configuration.
    pub(crate) report: SharedReport,
    /// What is going on.
    pub(crate) stats: Arc<Stats>,
    /// Set once every listener accepts.
    pub(crate) listening: Arc<AtomicBool>,
    /// Tells whether two processes have the same configuration.
    pub(crate) digests: Digests,
}

impl StatusPage {
    fn page(&self, path: &str) -> (u16, Value) {
        match path {
            "/status" => (200, json!({ "status": "ok" })),
            "/status/ready" => self.ready(),
            "/status/config" => (200, self.config()),
            _ => (
                404,
                json!({ "error_msg": "not found: try /status, /status/ready, /status/config, /status/config/digest" }),
            ),
        }
    }

    fn ready(&self) -> (u16, Value) {
        let error = if self.stats.is_draining() {
            "the process is draining"
        } else if !self.listening.load(Ordering::Acquire) {
            "listeners are not open yet"
        } else {
            return (200, json!({ "status": "ok" }));
        };
        (503, json!({ "status": "error", "error": error }))
    }

    async fn digest(&self) -> (u16, Value) {
        match self.digests.get().await {
            Some(digest) => (
                200,
                json!({ "sha256": digest.sha256, "revision": digest.revision }),
            ),
            None => (503, json!({ "error": "a digest is being made, ask again" })),
        }
    }

    fn config(&self) -> Value {
        let report = self
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        json!({
            "revision": report.revision,
            "loaded_at": report.loaded_at.map(seconds),
            "age_seconds": report.loaded_at.and_then(|at| at.elapsed().ok()).map(|age| age.as_secs()),
            "source": report.source,
            "resources": report.resources,
            "config_revision": report.store_revision.unwrap_or(report.revision),
            "config_age_seconds": report.age(Instant::now()).as_secs(),
            "degraded": report.degraded,
            "store": report.store.as_ref().map(|store| json!({
                "connected": store.connected,
                "since": seconds(store.since),
                "error": store.error,
            })),
            "last_good": report.last_good.as_ref().map(|saved| json!({
                "revision": saved.revision,
                "error": saved.error,
            })),
            "rejected_items": report.rejected_resources,
            "rejected": rejected(&report),
            "connections": self.stats.connections.load(Ordering::Relaxed),
            "in_flight": self.stats.in_flight.load(Ordering::Relaxed),
        })
    }
}

/// Seconds since 1970.
fn seconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn rejected(report: &Report) -> Vec<Value> {
    let shown = |problem: &Problem| {
        json!({
            "resource": problem.resource,
            "path": problem.path,
            "message": problem.message,
            "hint": problem.hint,
            "file": problem.file,
            "line": problem.place.map(|(line, _)| line),
            "column": problem.place.map(|(_, column)| column),
        })
    };
    report.rejected.iter().map(shown).collect()
}

#[async_trait]
impl Api for StatusPage {
    /// The digest is asked for: the only page that takes time.
    type Request = ();

    fn take(&self, head: &RequestHeader, _: Option<IpAddr>) -> Taken<()> {
        match head.uri.path() {
            "/status/config/digest" => Taken::Read((), 0),
            path => {
                let (status, body) = self.page(path);
                Taken::Done(Answer::json(status, body.to_string()))
            }
        }
    }

    async fn answer(&self, (): (), _: Vec<u8>) -> Answer {
        let (status, body) = self.digest().await;
        Answer::json(status, body.to_string())
    }

    fn fields(&self, _: &RequestHeader, _: &Answer) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Serves the metrics.
pub(crate) struct MetricsPage {
    /// The metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// The path they are under.
    pub(crate) path: String,
    /// What is going on.
    pub(crate) stats: Arc<Stats>,
    /// What became of the configuration.
    pub(crate) config: Option<ConfigMetrics>,
    /// What became of limits.
    pub(crate) limits: Option<LimitMetrics>,
}

#[async_trait]
impl Api for MetricsPage {
    type Request = ();

    fn take(&self, head: &RequestHeader, _: Option<IpAddr>) -> Taken<()> {
        if head.uri.path() != self.path {
            let text = format!("metrics are at {}\n", self.path);
            return Taken::Done(Answer::text(404, text).of_kind("text/plain"));
        }
        if let Some(config) = &self.config {
            config.refresh();
        }
        if let Some(limits) = &self.limits {
            limits.refresh();
        }
        let accepted = self.stats.accepted.load(Ordering::Relaxed);
        let now = Now {
            active: self.stats.connections.load(Ordering::Relaxed),
            accepted,
            handled: accepted.saturating_sub(self.stats.refused.load(Ordering::Relaxed)),
            writing: self.stats.in_flight.load(Ordering::Relaxed),
            requests: self.stats.requests.load(Ordering::Relaxed),
        };
        let text = String::from_utf8_lossy(&self.metrics.render(now)).into_owned();
        Taken::Done(Answer::text(200, text).of_kind("text/plain; version=0.0.4"))
    }

    async fn answer(&self, (): (), _: Vec<u8>) -> Answer {
        Answer::page(404)
    }

    fn fields(&self, _: &RequestHeader, _: &Answer) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
