//! All metrics of the process, under APISIX's names.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lockgate_limit::Lost;
use prometheus::core::Collector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::family::{Family, Series};
use super::labels::Labels;
use super::options::{Families, Options};
use super::room::Room;

/// Labels of `http_status`, in APISIX's order.
pub(super) const STATUS_LABELS: &[&str] = &[
    "code",
    "route",
    "matched_uri",
    "matched_host",
    "service",
    "consumer",
    "node",
    "request_type",
    "request_llm_model",
    "llm_model",
    "response_source",
];

/// Labels of `http_latency` and `bandwidth` behind `type`, in APISIX's order.
pub(super) const TRAFFIC_LABELS: &[&str] = &[
    "route",
    "service",
    "consumer",
    "node",
    "request_type",
    "request_llm_model",
    "llm_model",
];

/// Values of `type` in `http_latency`; the order of [`Handles::latency`].
const LATENCIES: &[&str] = &["request", "upstream", "apisix"];
/// Values of `type` in `bandwidth`; the order of [`Handles::bandwidth`].
const DIRECTIONS: &[&str] = &["ingress", "egress"];

/// All metrics of the process. The gateway makes one, gives it to plugins as a shared object and
/// renders it for each scrape.
pub struct Metrics {
    registry: Registry,
    pub(super) status: Family<IntCounterVec>,
    pub(super) latency: Family<HistogramVec>,
    pub(super) bandwidth: Family<IntCounterVec>,
    connections: IntGaugeVec,
    requests: IntGauge,
    upstreams: IntGaugeVec,
    errors: IntCounter,
    room: Room,
    /// Changes when series were dropped: handles from before must be asked for again.
    generation: AtomicU64,
    told_full: AtomicBool,
    /// One scrape at a time: the gauges are written before they are read.
    scrape: Mutex<()>,
}

/// What the gateway knows at the moment of a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Open connections.
    pub active: i64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Of those, not turned away.
    pub handled: u64,
    /// Requests being served.
    pub writing: i64,
    /// Requests since the start.
    pub requests: u64,
}

/// The series that one combination of labels counts into.
pub(super) struct Handles {
    pub(super) status: Option<Series<IntCounter>>,
    /// `request`, `upstream`, `apisix`.
    pub(super) latency: Option<Series<Histogram>>,
    /// `ingress`, `egress`.
    pub(super) bandwidth: Option<Series<IntCounter>>,
}

impl Metrics {
    /// Fresh metrics with APISIX's labels, and series that stay.
    pub fn new(options: &Options) -> Metrics {
        Metrics::with(options, &Families::default())
    }

    /// Fresh metrics. A prefix or buckets that Prometheus refuses are replaced by the defaults,
    /// with an error in the log: a gateway with odd metrics beats none.
    pub fn with(options: &Options, families: &Families) -> Metrics {
        Metrics::build(options, families).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics not possible as configured, defaults used");
            let safe = Options {
                hostname: options.hostname.clone(),
                version: options.version.clone(),
                ..Options::default()
            };
            match Metrics::build(&safe, &Families::default()) {
                Ok(metrics) => metrics,
                Err(_) => unreachable!("names and buckets are constants"),
            }
        })
    }

    fn build(options: &Options, families: &Families) -> prometheus::Result<Metrics> {
        let opts = |name: &str, help: &str| Opts::new(format!("{}{name}", options.prefix), help);
        let latency = opts(
            "http_latency",
            "HTTP request latency in milliseconds per service",
        );
        let latency = HistogramOpts::from(latency).buckets(options.buckets.clone());
        let status = opts("http_status", "HTTP status codes per service");
        let bandwidth = opts("bandwidth", "Total bandwidth in bytes consumed per service");
        let metrics = Metrics {
            registry: Registry::new(),
            status: Family::new(families, &families.status, &[], STATUS_LABELS, |labels| {
                IntCounterVec::new(status, labels)
            })?,
            latency: Family::new(
                families,
                &families.latency,
                LATENCIES,
                TRAFFIC_LABELS,
                |labels| HistogramVec::new(latency, labels),
            )?,
            bandwidth: Family::new(
                families,
                &families.bandwidth,
                DIRECTIONS,
                TRAFFIC_LABELS,
                |labels| IntCounterVec::new(bandwidth, labels),
            )?,
            connections: IntGaugeVec::new(
                opts(
                    "nginx_http_current_connections",
                    "Number of HTTP connections",
                ),
                &["state"],
            )?,
            requests: IntGauge::with_opts(opts(
                "http_requests_total",
                "Total number of client requests since the gateway started",
            ))?,
            upstreams: IntGaugeVec::new(
                opts(
                    "upstream_status",
                    "Upstream status from health checks, 1 is healthy",
                ),
                &["name", "ip", "port"],
            )?,
            errors: IntCounter::with_opts(opts(
                "nginx_metric_errors_total",
                "Requests that could not be counted in some metric",
            ))?,
            room: Room::new(opts)?,
            generation: AtomicU64::new(0),
            told_full: AtomicBool::new(false),
            scrape: Mutex::new(()),
        };
        let info = IntGaugeVec::new(
            opts("node_info", "Info of the node"),
            &["hostname", "version"],
        )?;
        info.with_label_values(&[&options.hostname, &options.version])
            .set(1);
        let collectors: [Box<dyn Collector>; 8] = [
            metrics.status.collector(),
            metrics.latency.collector(),
            metrics.bandwidth.collector(),
            Box::new(metrics.connections.clone()),
            Box::new(metrics.requests.clone()),
            Box::new(metrics.upstreams.clone()),
            Box::new(metrics.errors.clone()),
            Box::new(info),
        ];
        for collector in collectors.into_iter().chain(metrics.room.collectors()) {
            metrics.registry.register(collector)?;
        }
        Ok(metrics)
    }

    /// For metrics of other parts of the gateway.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Where limits count what they had no room for: a shared object for plugins that limit.
    pub fn lost(&self) -> &Arc<Lost> {
        &self.room.lost
    }

    /// Replaces what health checks found: upstream, address, port, whether it is healthy. Shown by
    /// the next scrape.
    pub fn set_upstreams<'a>(
        &self,
        nodes: impl IntoIterator<Item = (&'a str, &'a str, u16, bool)>,
    ) {
        let _one = self.scrape.lock();
        self.upstreams.reset();
        for (name, ip, port, healthy) in nodes {
            let labels = [name, ip, &port.to_string()];
            self.upstreams
                .with_label_values(&labels)
                .set(i64::from(healthy));
        }
    }

    /// The text format that Prometheus scrapes.
    pub fn render(&self, now: Now) -> Vec<u8> {
        self.render_at(now, Instant::now())
    }

    /// The text at this moment, which decides what has expired.
    pub fn render_at(&self, now: Now, at: Instant) -> Vec<u8> {
        let _one = self.scrape.lock();
        // All three: no short circuit.
        let gone = self.status.expire(at) | self.latency.expire(at) | self.bandwidth.expire(at);
        if gone {
            self.generation.fetch_add(1, Ordering::Release);
        }
        let connections = [
            ("active", now.active),
            ("accepted", i64::try_from(now.accepted).unwrap_or(i64::MAX)),
            ("handled", i64::try_from(now.handled).unwrap_or(i64::MAX)),
            ("reading", 0),
            ("writing", now.writing),
            ("waiting", (now.active - now.writing).max(0)),
        ];
        for (state, value) in connections {
            self.connections.with_label_values(&[state]).set(value);
        }
        self.requests
            .set(i64::try_from(now.requests).unwrap_or(i64::MAX));
        self.room.refresh();
        let mut out = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            tracing::error!(%error, "metrics not rendered");
        }
        out
    }

    /// Whether labels show more than APISIX's own.
    pub(super) fn has_extra(&self) -> bool {
        let extra = [
            &self.status.extra,
            &self.latency.extra,
            &self.bandwidth.extra,
        ];
        extra.iter().any(|labels| !labels.is_empty())
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The series for these labels. Slow: builds and hashes texts. A metric that is full has none.
    pub(super) fn handles(
        &self,
        labels: &Labels<'_>,
        disabled: &super::DisabledLabels,
        now: Instant,
    ) -> Handles {
        let status = self.status.values(labels, disabled.of("http_status"));
        let latency = self.latency.values(labels, disabled.of("http_latency"));
        let bandwidth = self.bandwidth.values(labels, disabled.of("bandwidth"));
        let handles = Handles {
            status: self.status.get(status, now),
            latency: self.latency.get(latency, now),
            bandwidth: self.bandwidth.get(bandwidth, now),
        };
        if handles.is_partial() && !self.told_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a metric has too many label sets, requests with new ones are not counted"
            );
        }
        handles
    }

    /// A request was not counted everywhere.
    pub(super) fn count_error(&self) {
        self.errors.inc();
    }
}

impl Handles {
    /// Whether some metric had no room.
    pub(super) fn is_partial(&self) -> bool {
        self.status.is_none() || self.latency.is_none() || self.bandwidth.is_none()
    }
}
