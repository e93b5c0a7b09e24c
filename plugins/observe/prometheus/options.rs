//! The part of `plugin_attr.prometheus` that shapes the metrics. Where they are exported is the
//! gateway's matter.

use std::collections::BTreeMap;
use std::time::Duration;

use lockgate_plugin::Problems;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::labels::Source;

/// The upper bounds of the latency histogram in milliseconds, APISIX's own.
pub const DEFAULT_BUCKETS: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    30_000.0, 60_000.0,
];

/// The most label sets of one metric: about 150 MB with the latency histogram, and more than any
/// Prometheus server likes to scrape from one target.
pub const DEFAULT_MAX_SERIES: usize = 50_000;

/// The most buckets of a histogram: each costs a number per label set and a line per scrape.
const MAX_BUCKETS: usize = 100;

/// What the metrics look like.
#[derive(Clone, Debug)]
pub struct Options {
    /// In front of every name, underscore included.
    pub prefix: String,
    /// Upper bounds of the latency histogram in milliseconds, rising.
    pub buckets: Vec<f64>,
    /// The most label sets that one metric may have.
    pub max_series: usize,
    /// The name of this machine, for `node_info`.
    pub hostname: String,
    /// The version of the gateway, for `node_info`.
    pub version: String,
    /// Of `http_status`.
    pub status: FamilyOptions,
    /// Of `http_latency`.
    pub latency: FamilyOptions,
    /// Of `bandwidth`.
    pub bandwidth: FamilyOptions,
}

/// What can be set for one metric.
#[derive(Clone, Debug, Default)]
pub struct FamilyOptions {
    /// Labels beside APISIX's own.
    pub extra_labels: Vec<(String, Source)>,
    /// Series that no request has touched for this long are dropped.
    pub expire: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            prefix: "apisix_".to_owned(),
            buckets: DEFAULT_BUCKETS.to_vec(),
            max_series: DEFAULT_MAX_SERIES,
            hostname: String::new(),
            version: String::new(),
            status: FamilyOptions::default(),
            latency: FamilyOptions::default(),
            bandwidth: FamilyOptions::default(),
        }
    }
}

/// `plugin_attr.prometheus`, as far as it is read here.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Attr {
    /// In front of every metric name, underscore included.
    #[serde(default)]
    #[schemars(regex(pattern = r"^([a-zA-Z_:][a-zA-Z0-9_:]*)?$"))]
    metric_prefix: Option<String>,
    /// Upper bounds of the latency histogram. Unit: milliseconds.
    #[serde(default)]
    default_buckets: Option<Vec<f64>>,
    /// Settings by metric: `http_status`, `http_latency`, `bandwidth`.
    #[serde(default)]
    metrics: BTreeMap<String, MetricAttr>,
}

/// Settings of one metric.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct MetricAttr {
    /// Series that no request has touched for this long are dropped; 0: never. Unit: seconds.
    #[serde(default)]
    expire: u64,
    /// Labels beside APISIX's own: a list of `{ name: $variable }` or `{ name: text }`.
    #[serde(default)]
    extra_labels: Vec<BTreeMap<String, String>>,
}

impl Options {
    /// Reads `plugin_attr.prometheus`; `Null` gives the defaults. Problems are reported relative
    /// to that attribute, and the parts without problems are used.
    pub fn read(attr: &Value, out: &mut Problems) -> Options {
        let mut options = Options::default();
        if attr.is_null() {
            return options;
        }
        let attr: Attr = match lockgate_plugin::plugin::typed(attr) {
            Ok(attr) => attr,
            Err(problems) => {
                out.extend(problems);
                return options;
            }
        };
        if let Some(prefix) = attr.metric_prefix {
            options.prefix = prefix;
        }
        if let Some(buckets) = attr.default_buckets {
            match check_buckets(&buckets) {
                Ok(()) => options.buckets = buckets,
                Err(message) => out.add("default_buckets", message),
            }
        }
        let mut out = out.at("metrics");
        for (name, attr) in attr.metrics {
            let (family, own) = match name.as_str() {
                "http_status" => (&mut options.status, super::metrics::STATUS_LABELS),
                "http_latency" => (&mut options.latency, super::metrics::TRAFFIC_LABELS),
                "bandwidth" => (&mut options.bandwidth, super::metrics::TRAFFIC_LABELS),
                // Metrics that this gateway does not have: of AI plugins, of nginx.
                _ => continue,
            };
            let mut out = out.at(&name);
            family.expire = (attr.expire > 0).then(|| Duration::from_secs(attr.expire));
            let labels = attr.extra_labels.into_iter().flatten();
            for (i, (label, value)) in labels.enumerate() {
                let mut out = out.at("extra_labels");
                let mut out = out.at_index(i);
                let taken = own.contains(&label.as_str())
                    || label == "type"
                    || family.extra_labels.iter().any(|(other, _)| *other == label);
                if taken {
                    out.add(&label, "this label exists already");
                } else if !is_label(&label) {
                    out.add(&label, "a label is letters, digits and `_`, no digit first");
                } else {
                    match Source::parse(&value) {
                        Ok(source) => family.extra_labels.push((label, source)),
                        Err(message) => out.add(&label, message),
                    }
                }
            }
        }
        options
    }
}

fn check_buckets(buckets: &[f64]) -> Result<(), String> {
    if buckets.is_empty() || buckets.len() > MAX_BUCKETS {
        return Err(format!("must have 1 to {MAX_BUCKETS} bounds, has {}", buckets.len()));
    }
    match buckets.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(format!("must rise, but {} follows {}", pair[1], pair[0])),
        None => Ok(()),
    }
}

fn is_label(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with("__")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(attr: &Value, problems: &str) -> Options {
        let mut out = Problems::default();
        let options = Options::read(attr, &mut out);
        assert_eq!(out.to_string(), problems);
        options
    }

    #[test]
    fn settings_are_read() {
        let options = check(&Value::Null, "");
        assert_eq!((options.prefix.as_str(), options.buckets.len()), ("apisix_", 15));
        let options = check(
            &json!({
                "export_uri": "/metrics",
                "metric_prefix": "gw_",
                "default_buckets": [1, 2.5, 10],
                "metrics": {
                    "http_status": { "expire": 60, "extra_labels": [{ "zone": "eu" }, { "port": "$balancer_port" }] },
                    "llm_latency": { "extra_labels": [{ "x": "$llm_model" }] },
                },
            }),
            "",
        );
        assert_eq!(options.prefix, "gw_");
        assert_eq!(options.buckets, [1.0, 2.5, 10.0]);
        assert_eq!(options.status.expire, Some(Duration::from_secs(60)));
        assert_eq!(
            options.status.extra_labels,
            [("zone".to_owned(), Source::Text("eu".to_owned())), ("port".to_owned(), Source::NodePort)]
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let attr = json!({
            "default_buckets": [1, 1],
            "metrics": { "bandwidth": { "extra_labels": [{ "node": "x" }, { "0": "x" }] } },
        });
        check(
            &attr,
            "default_buckets: must rise, but 1 follows 1\n\
             metrics.bandwidth.extra_labels[0].node: this label exists already\n\
             metrics.bandwidth.extra_labels[1].0: a label is letters, digits and `_`, no digit first",
        );
        check(&json!({ "default_buckets": [] }), "default_buckets: must have 1 to 100 bounds, has 0");
        let mut out = Problems::default();
        let attr = json!({ "metrics": { "http_status": { "extra_labels": [{ "a": "$http_x" }] } } });
        Options::read(&attr, &mut out);
        let text = out.to_string();
        assert!(text.starts_with("metrics.http_status.extra_labels[0].a: `$http_x` could"), "{text}");
    }
}
