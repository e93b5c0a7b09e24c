//! `prometheus`: counts requests, latencies and bytes under APISIX's metric names.
//!
//! | metric | kind | counts |
//! | --- | --- | --- |
//! | `apisix_http_status` | counter | responses by status and route; 499 for clients that left before there was one |
//! | `apisix_http_latency` | histogram, milliseconds | `type` is `request` for the whole, `upstream` for waiting, `apisix` for the rest |
//! | `apisix_bandwidth` | counter, bytes | `type` is `ingress` for request bodies, `egress` for responses |
//!
//! Label values come from the configuration, the status and the node in use, never from the text of a
//! request, so that no client can make the number of series grow. Where metrics are read from, their
//! prefix, buckets, further labels and expiry are set in `plugin_attr.prometheus` of `config.yaml`.
//!
//! ```yaml
//! global_rules:
//!   - { id: 1, plugins: { prometheus: { prefer_name: true } } }
//! ```
//!
//! Without a `prometheus` on its route or in a global rule a request is not counted in these three.

// Each instance remembers the series it counts into by the addresses of the shared route, patterns
// and consumer: after the first request of a combination nothing is allocated, and no label is hashed.

mod cache;
mod family;
mod labels;
mod metrics;
mod options;
mod room;

use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::{BuildCx, Ctx, Phases, Plugin, Problems, Work};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use self::cache::Cache;
pub use self::labels::Source;
use self::labels::{Facts, Labels};
use self::metrics::{Handles, STATUS_LABELS, TRAFFIC_LABELS};
pub use self::metrics::{Metrics, Now};
pub use self::options::{DEFAULT_BUCKETS, Families, FamilyOptions, MAX_SERIES, Options};

/// Configuration of `prometheus`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Whether the labels `route` and `service` show names instead of ids. Without a name the id
    /// is shown.
    #[serde(default)]
    prefer_name: bool,
}

/// Plugin metadata of `prometheus`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Labels that stay empty, by metric: fewer series where nobody needs to tell them apart.
    #[serde(default)]
    disabled_labels: DisabledLabels,
}

/// Labels that stay empty, by metric. `code` and `type` cannot be disabled.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct DisabledLabels {
    /// Labels of `http_status`.
    #[serde(default)]
    #[schemars(schema_with = "status_labels")]
    http_status: Vec<String>,
    /// Labels of `http_latency`.
    #[serde(default)]
    #[schemars(schema_with = "traffic_labels")]
    http_latency: Vec<String>,
    /// Labels of `bandwidth`.
    #[serde(default)]
    #[schemars(schema_with = "traffic_labels")]
    bandwidth: Vec<String>,
}

impl DisabledLabels {
    fn of(&self, metric: &str) -> &[String] {
        match metric {
            "http_status" => &self.http_status,
            "http_latency" => &self.http_latency,
            _ => &self.bandwidth,
        }
    }
}

fn status_labels(_: &mut SchemaGenerator) -> Schema {
    let labels: Vec<_> = STATUS_LABELS
        .iter()
        .filter(|label| **label != "code")
        .collect();
    schemars::json_schema!({ "type": "array", "items": { "type": "string", "enum": labels } })
}

fn traffic_labels(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "array", "items": { "type": "string", "enum": TRAFFIC_LABELS } })
}

/// The plugin.
pub struct Prometheus {
    /// Absent when the gateway keeps no metrics.
    metrics: Option<Arc<Metrics>>,
    prefer_name: bool,
    disabled: DisabledLabels,
    cache: Cache,
}

impl Plugin for Prometheus {
    const NAME: &'static str = "prometheus";
    const PRIORITY: i32 = 500;
    const PHASES: Phases = Phases::LOG;
    type Conf = Conf;

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<Prometheus, Problems> {
        Ok(Prometheus {
            metrics: bx.shared(),
            prefer_name: conf.prefer_name,
            disabled: bx
                .metadata::<Metadata>()
                .unwrap_or_default()
                .disabled_labels,
            cache: Cache::default(),
        })
    }

    fn phases(&self) -> Phases {
        if self.metrics.is_some() {
            Self::PHASES
        } else {
            Phases::NONE
        }
    }

    fn log(&self, cx: &mut Ctx<'_>) {
        let Some(metrics) = &self.metrics else {
            return;
        };
        let work = cx.work();
        // A client that left before the answer has none: 499, as the log says.
        let status = if work.status == 0 {
            CLIENT_LEFT
        } else {
            work.status
        };
        let facts = Facts::of(work, status, cx.req_view().method(), metrics.has_extra());
        let make = || {
            let labels = Labels {
                work,
                facts,
                prefer_name: self.prefer_name,
            };
            metrics.handles(&labels, &self.disabled, cx.now())
        };
        self.cache
            .count((work, facts, metrics.generation()), make, |handles| {
                if handles.is_partial() {
                    metrics.count_error();
                }
                count(work, handles);
            });
    }
}

/// The status of a request whose client went away before there was one.
const CLIENT_LEFT: u16 = 499;

fn count(work: &Work, handles: &Handles) {
    if let Some(status) = &handles.status {
        status.touch().iter().for_each(|counter| counter.inc());
    }
    if let Some([request, upstream, gateway]) = handles.latency.as_ref().map(|s| s.touch()) {
        let start = work.timing.start;
        let total = work
            .finished
            .map(|end| end.saturating_duration_since(start));
        let total = total.unwrap_or_default();
        request.observe(millis(total));
        let tries = work.attempts.iter().filter_map(|attempt| attempt.response);
        let waited: Duration = tries.sum();
        if !work.attempts.is_empty() {
            upstream.observe(millis(waited));
        }
        gateway.observe(millis(total.saturating_sub(waited)));
    }
    if let Some([ingress, egress]) = handles.bandwidth.as_ref().map(|s| s.touch()) {
        ingress.inc_by(work.received_body);
        // The lane may not count the heads it writes.
        egress.inc_by(work.sent_bytes.max(work.sent_body));
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests;
