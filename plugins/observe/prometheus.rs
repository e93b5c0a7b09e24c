//! `prometheus`: counts requests, latencies and bytes under APISIX's metric names.
//!
//! Labels come from the configuration, the status and the node, never from request text, so that
//! no client can make the number of series grow. Each plugin instance remembers the handles of
//! the series it has used: a request costs a look-up by status and node.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockgate_plugin::request::Origin;
use lockgate_plugin::{BuildCx, Ctx, Phases, Plugin, Problems};
use prometheus::core::{AtomicU64 as Cell, GenericCounter};
use prometheus::{Encoder, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// Upper bounds of the latency histogram in milliseconds, APISIX's own.
pub const DEFAULT_BUCKETS: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    30_000.0, 60_000.0,
];
/// Series that one plugin instance remembers; beyond that a request looks them up by their labels.
const MAX_REMEMBERED: usize = 1024;

/// What the metrics look like: `plugin_attr.prometheus`.
#[derive(Clone, Debug)]
pub struct Options {
    /// In front of every name, underscore included.
    pub prefix: String,
    /// Upper bounds of the latency histogram in milliseconds, rising.
    pub buckets: Vec<f64>,
    /// The name of this machine, for `node_info`.
    pub hostname: String,
    /// The version of the gateway, for `node_info`.
    pub version: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            prefix: "apisix_".to_owned(),
            buckets: DEFAULT_BUCKETS.to_vec(),
            hostname: String::new(),
            version: String::new(),
        }
    }
}

/// The labels that all request metrics share. `request_type` and the model labels are APISIX's;
/// there is only one value for them here.
const COMMON: [&str; 7] = ["route", "service", "consumer", "node", "request_type", "request_llm_model", "llm_model"];

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    status: IntCounterVec,
    latency: HistogramVec,
    bandwidth: IntCounterVec,
    connections: IntGaugeVec,
    requests: IntGauge,
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

impl Metrics {
    /// Fresh metrics. Bucket bounds that do not rise are replaced by the default.
    pub fn new(options: &Options) -> Metrics {
        let name = |name: &str| format!("{}{name}", options.prefix);
        let with = |first: &[&'static str]| [first, &COMMON[..]].concat();
        let rising = options.buckets.windows(2).all(|w| w[0] < w[1]) && !options.buckets.is_empty();
        let buckets = if rising { options.buckets.clone() } else { DEFAULT_BUCKETS.to_vec() };
        let status_labels: Vec<&str> = ["code", "route", "matched_uri", "matched_host", "service", "consumer", "node",
            "request_type", "request_llm_model", "llm_model", "response_source"].to_vec();
        let registry = Registry::new();
        let metrics = Metrics {
            status: counter(&name("http_status"), "HTTP status codes per service", &status_labels),
            latency: {
                let opts = HistogramOpts::new(name("http_latency"), "HTTP request latency in milliseconds").buckets(buckets);
                made(HistogramVec::new(opts, &with(&["type"])), || {
                    HistogramVec::new(HistogramOpts::new("http_latency", "latency"), &["type"])
                })
            },
            bandwidth: counter(&name("bandwidth"), "Bytes per service", &with(&["type"])),
            connections: gauge(&name("nginx_http_current_connections"), "Client connections", &["state"]),
            requests: made(IntGauge::new(name("http_requests_total"), "Requests since the start"), || {
                IntGauge::new("http_requests_total", "requests")
            }),
            registry,
        };
        let info = gauge(&name("node_info"), "Info of the gateway", &["hostname", "version"]);
        info.with_label_values(&[&options.hostname, &options.version]).set(1);
        let collectors: [Box<dyn prometheus::core::Collector>; 6] = [
            Box::new(metrics.status.clone()),
            Box::new(metrics.latency.clone()),
            Box::new(metrics.bandwidth.clone()),
            Box::new(metrics.connections.clone()),
            Box::new(metrics.requests.clone()),
            Box::new(info),
        ];
        for collector in collectors {
            if let Err(error) = metrics.registry.register(collector) {
                tracing::error!(%error, "metric not registered");
            }
        }
        metrics
    }

    /// The text format that Prometheus scrapes.
    pub fn render(&self, now: Now) -> Vec<u8> {
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
        self.requests.set(i64::try_from(now.requests).unwrap_or(i64::MAX));
        let mut out = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            tracing::error!(%error, "metrics not rendered");
        }
        out
    }
}

/// A metric; when its name is not one, a fallback whose name is.
fn made<T>(wanted: prometheus::Result<T>, fallback: impl FnOnce() -> prometheus::Result<T>) -> T {
    match wanted.or_else(|error| {
        tracing::error!(%error, "metric prefix not usable");
        fallback()
    }) {
        Ok(metric) => metric,
        Err(_) => unreachable!("the fallback's names are constants"),
    }
}

fn counter(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    made(IntCounterVec::new(Opts::new(name, help), labels), || IntCounterVec::new(Opts::new("lockgate_metric", help), labels))
}

fn gauge(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    made(IntGaugeVec::new(Opts::new(name, help), labels), || IntGaugeVec::new(Opts::new("lockgate_gauge", help), labels))
}

/// Configuration of `prometheus`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Labels show names of routes and services instead of ids.
    #[serde(default)]
    prefer_name: bool,
}

/// Metadata of `prometheus`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Metadata {
    /// For each metric the labels that are left empty.
    #[serde(default)]
    disabled_labels: BTreeMap<String, Vec<String>>,
}

/// The built plugin.
pub struct Prometheus {
    metrics: Option<Arc<Metrics>>,
    prefer_name: bool,
    disabled: BTreeMap<String, Vec<String>>,
    series: Mutex<HashMap<SeriesKey, Series>>,
    remembered: AtomicU64,
}

/// What distinguishes the series of one plugin instance.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    status: u16,
    origin_upstream: bool,
    node: Option<IpAddr>,
    route: Option<Arc<str>>,
    uri: Option<Arc<str>>,
    host: Option<Arc<str>>,
    consumer: Option<Arc<str>>,
}

/// The handles of a request's series.
#[derive(Clone)]
struct Series {
    status: GenericCounter<Cell>,
    request: Histogram,
    upstream: Histogram,
    gateway: Histogram,
    ingress: GenericCounter<Cell>,
    egress: GenericCounter<Cell>,
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
            disabled: bx.metadata::<Metadata>().unwrap_or_default().disabled_labels,
            series: Mutex::default(),
            remembered: AtomicU64::new(0),
        })
    }

    fn log(&self, cx: &mut Ctx<'_>) {
        let Some(metrics) = &self.metrics else { return };
        let work = cx.work();
        let key = SeriesKey {
            status: work.status,
            origin_upstream: work.origin == Origin::Upstream,
            node: work.picked.as_ref().map(|picked| picked.addr.ip()),
            route: work.route.as_ref().map(|route| Arc::clone(&route.id)),
            uri: work.matched_uri.clone(),
            host: work.matched_host.clone(),
            consumer: work.consumer.as_ref().map(|found| Arc::clone(&found.consumer.username)),
        };
        let series = self.series(metrics, key, cx);
        series.status.inc();
        let total = work.finished.map_or(Duration::ZERO, |end| end.saturating_duration_since(work.timing.start));
        let upstream: Option<Duration> = (!work.attempts.is_empty())
            .then(|| work.attempts.iter().filter_map(|attempt| attempt.response).sum());
        let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
        series.request.observe(ms(total));
        if let Some(upstream) = upstream {
            series.upstream.observe(ms(upstream));
        }
        series.gateway.observe(ms(total.saturating_sub(upstream.unwrap_or_default())));
        series.ingress.inc_by(work.received_body);
        series.egress.inc_by(work.sent_bytes.max(work.sent_body));
    }
}

impl Prometheus {
    fn series(&self, metrics: &Metrics, key: SeriesKey, cx: &Ctx<'_>) -> Series {
        let mut known = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(&key) {
            return series.clone();
        }
        let series = self.make(metrics, &key, cx);
        if known.len() < MAX_REMEMBERED {
            known.insert(key, series.clone());
            self.remembered.fetch_add(1, Ordering::Relaxed);
        }
        series
    }

    fn make(&self, metrics: &Metrics, key: &SeriesKey, cx: &Ctx<'_>) -> Series {
        let work = cx.work();
        let route = work.route.as_deref();
        let pick = |name: Option<&Arc<str>>, id: Option<&Arc<str>>| {
            let chosen = if self.prefer_name { name.or(id) } else { id };
            chosen.map_or(String::new(), |text| text.to_string())
        };
        let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or("").to_owned();
        let labels: HashMap<&str, String> = HashMap::from([
            ("code", key.status.to_string()),
            ("route", pick(route.and_then(|r| r.name.as_ref()), route.map(|r| &r.id))),
            ("service", pick(route.and_then(|r| r.service_name.as_ref()), route.and_then(|r| r.service_id.as_ref()))),
            ("matched_uri", text(&key.uri)),
            ("matched_host", text(&key.host)),
            ("consumer", text(&key.consumer)),
            ("node", key.node.map_or(String::new(), |ip| ip.to_string())),
            ("request_type", "traditional_http".to_owned()),
            ("response_source", if key.origin_upstream { "upstream" } else { "apisix" }.to_owned()),
        ]);
        let value = |metric: &str, label: &str| {
            // `code` and `type` cannot be disabled, as in APISIX.
            let off = self.disabled.get(metric).is_some_and(|list| list.iter().any(|l| l == label));
            match labels.get(label) {
                Some(text) if label == "code" || !off => text.clone(),
                _ => String::new(),
            }
        };
        let status: Vec<String> = ["code", "route", "matched_uri", "matched_host", "service", "consumer", "node",
            "request_type", "request_llm_model", "llm_model", "response_source"]
            .iter()
            .map(|label| value("http_status", label))
            .collect();
        let with = |metric: &str, kind: &str| -> Vec<String> {
            std::iter::once(kind.to_owned()).chain(COMMON.iter().map(|label| value(metric, label))).collect()
        };
        Series {
            status: metrics.status.with_label_values(&status),
            request: metrics.latency.with_label_values(&with("http_latency", "request")),
            upstream: metrics.latency.with_label_values(&with("http_latency", "upstream")),
            gateway: metrics.latency.with_label_values(&with("http_latency", "apisix")),
            ingress: metrics.bandwidth.with_label_values(&with("bandwidth", "ingress")),
            egress: metrics.bandwidth.with_label_values(&with("bandwidth", "egress")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::RouteInfo;
    use lockgate_plugin::testing::{Request, run};
    use serde_json::json;

    fn request(metrics: &Arc<Metrics>) -> Request {
        let route = RouteInfo { id: "r1".into(), name: Some("orders".into()), service_id: Some("s1".into()), ..RouteInfo::default() };
        run::<Prometheus>(json!({"prefer_name": true})).shared(Arc::clone(metrics)).route(route)
    }

    fn text(metrics: &Metrics) -> String {
        let now = Now { active: 3, accepted: 9, handled: 9, writing: 1, requests: 7 };
        String::from_utf8(metrics.render(now)).unwrap()
    }

    #[test]
    fn a_request_is_counted_under_the_originals_names() {
        let metrics = Arc::new(Metrics::new(&Options { hostname: "h".into(), version: "1".into(), ..Options::default() }));
        let mut run = request(&metrics).get("/").expect_next();
        run.respond(200, &[], &["hello"]);
        let text = text(&metrics);
        for line in [
            "apisix_http_status{code=\"200\",consumer=\"\",llm_model=\"\",matched_host=\"\",matched_uri=\"\",node=\"\",request_llm_model=\"\",request_type=\"traditional_http\",response_source=\"upstream\",route=\"orders\",service=\"s1\"} 1",
            "apisix_nginx_http_current_connections{state=\"waiting\"} 2",
            "apisix_http_requests_total 7",
            "apisix_node_info{hostname=\"h\",version=\"1\"} 1",
            "type=\"egress\"",
            "apisix_http_latency_bucket",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn labels_can_be_disabled_and_the_prefix_changed() {
        let metrics = Arc::new(Metrics::new(&Options { prefix: "gw_".into(), ..Options::default() }));
        let mut run = request(&metrics).metadata(json!({"disabled_labels": {"http_status": ["route", "code"]}})).get("/").expect_next();
        run.respond(201, &[], &[]);
        let text = text(&metrics);
        assert!(text.contains("gw_http_status{code=\"201\"") && text.contains("route=\"\""), "{text}");
    }

    #[test]
    fn buckets_that_do_not_rise_are_replaced() {
        let metrics = Metrics::new(&Options { buckets: vec![5.0, 1.0], ..Options::default() });
        assert!(metrics.latency.get_metric_with_label_values(&["request", "", "", "", "", "", "", ""]).is_ok());
    }
}
