//! The part of `plugin_attr.prometheus` that shapes the metrics. Where they are exported is the
//! gateway's matter.

use std::collections::BTreeMap;
use std::time::Duration;

use lockgate_plugin::Problems;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::labels::Source;
use super::metrics::{STATUS_LABELS, TRAFFIC_LABELS};

/// The upper bounds of the latency histogram in milliseconds, APISIX's own.
pub const DEFAULT_BUCKETS: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    30_000.0, 60_000.0,
];

/// The most label sets of one metric: about 150 MB with the latency histogram, and more than any
/// Prometheus server likes to scrape from one target.
pub const MAX_SERIES: usize = 50_000;

/// The most buckets of a histogram: each costs a number per label set and a line per scrape.
const MAX_BUCKETS: usize = 100;

/// What the metrics are called.
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

impl Options {
    /// Reports what Prometheus would refuse, by the names in `plugin_attr.prometheus`.
    pub fn check(&self, out: &mut Problems) {
        let mut prefix = self.prefix.bytes();
        let first = prefix
            .next()
            .is_none_or(|b| b.is_ascii_alphabetic() || b"_:".contains(&b));
        if !first || !prefix.all(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b)) {
            out.add(
                "metric_prefix",
                "allowed are letters, digits, `_` and `:`, no digit first",
            );
        }
        let count = self.buckets.len();
        if !(1..=MAX_BUCKETS).contains(&count) {
            out.add(
                "default_buckets",
                format!("must have 1 to {MAX_BUCKETS} bounds, has {count}"),
            );
        } else if let Some(pair) = self.buckets.windows(2).find(|pair| pair[0] >= pair[1]) {
            out.add(
                "default_buckets",
                format!("must rise, but {} follows {}", pair[1], pair[0]),
            );
        }
    }
}

/// What can be set for the metrics of requests.
#[derive(Clone, Debug)]
pub struct Families {
    /// The most label sets that one metric may have; requests with more are not counted in it.
    pub max_series: usize,
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
    /// Series that no request has touched for this long are dropped at the next scrape.
    pub expire: Option<Duration>,
}

impl Default for Families {
    fn default() -> Families {
        Families {
            max_series: MAX_SERIES,
            status: FamilyOptions::default(),
            latency: FamilyOptions::default(),
            bandwidth: FamilyOptions::default(),
        }
    }
}

/// `plugin_attr.prometheus.metrics`: settings by metric. `http_status`, `http_latency` and
/// `bandwidth` are used, those of metrics that do not exist here are not looked at.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct MetricsAttr(BTreeMap<String, MetricAttr>);

/// Settings of one metric.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct MetricAttr {
    /// Series that no request has touched for this long are dropped; 0: never. Unit: seconds.
    #[serde(default)]
    expire: u64,
    /// Labels beside APISIX's own: a list of `{ name: $variable }` or `{ name: text }`.
    #[serde(default)]
    extra_labels: Vec<BTreeMap<String, String>>,
}

impl Families {
    /// Reads `plugin_attr.prometheus.metrics`; `Null` gives the defaults. Problems are reported
    /// relative to that attribute; what has none is used.
    pub fn read(metrics: &Value, out: &mut Problems) -> Families {
        let mut families = Families::default();
        if metrics.is_null() {
            return families;
        }
        let MetricsAttr(metrics) = match lockgate_plugin::plugin::typed(metrics) {
            Ok(attr) => attr,
            Err(problems) => {
                out.extend(problems);
                return families;
            }
        };
        for (name, attr) in metrics {
            let (family, own) = match name.as_str() {
                "http_status" => (&mut families.status, STATUS_LABELS),
                "http_latency" => (&mut families.latency, TRAFFIC_LABELS),
                "bandwidth" => (&mut families.bandwidth, TRAFFIC_LABELS),
                _ => continue,
            };
            family.read(attr, own, &mut out.at(&name));
        }
        families
    }
}

impl FamilyOptions {
    fn read(&mut self, attr: MetricAttr, own: &[&str], out: &mut Problems) {
        self.expire = (attr.expire > 0).then(|| Duration::from_secs(attr.expire));
        let mut out = out.at("extra_labels");
        for (i, labels) in attr.extra_labels.into_iter().enumerate() {
            let mut out = out.at_index(i);
            for (label, value) in labels {
                match self.extra(&label, &value, own) {
                    Ok(source) => self.extra_labels.push((label, source)),
                    Err(message) => out.add(&label, message),
                }
            }
        }
    }

    fn extra(&self, label: &str, value: &str, own: &[&str]) -> Result<Source, String> {
        let twice = self.extra_labels.iter().any(|(other, _)| other == label);
        if twice || label == "type" || own.contains(&label) {
            return Err("this label exists already".to_owned());
        }
        let (first, rest) = (label.bytes().next().unwrap_or(b'0'), label.bytes());
        // Two underscores in front are Prometheus's own; `le` is the bucket of a histogram.
        let reserved = label.starts_with("__") || label == "le";
        if first.is_ascii_digit()
            || reserved
            || !rest
                .into_iter()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            return Err(
                "a label is letters, digits and `_`, no digit or `__` first, not `le`".into(),
            );
        }
        Source::parse(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(metrics: &Value, problems: &str) -> Families {
        let mut out = Problems::default();
        let families = Families::read(metrics, &mut out);
        assert_eq!(out.to_string(), problems);
        families
    }

    #[test]
    fn settings_are_read() {
        assert_eq!(check(&Value::Null, "").status.expire, None);
        let families = check(
            &json!({
                "http_status": {
                    "expire": 60,
                    "extra_labels": [{ "zone": "eu" }, { "port": "$balancer_port" }],
                },
                "llm_latency": { "extra_labels": [{ "x": "$llm_model" }] },
            }),
            "",
        );
        assert_eq!(families.status.expire, Some(Duration::from_secs(60)));
        let zone = ("zone".to_owned(), Source::Text("eu".to_owned()));
        assert_eq!(
            families.status.extra_labels,
            [zone, ("port".to_owned(), Source::NodePort)]
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let form = "a label is letters, digits and `_`, no digit or `__` first, not `le`";
        let labels =
            json!([{ "node": "x" }, { "0": "x" }, { "le": "x" }, { "a": "x" }, { "a": "y" }]);
        check(
            &json!({ "bandwidth": { "extra_labels": labels } }),
            &format!(
                "bandwidth.extra_labels[0].node: this label exists already\n\
                 bandwidth.extra_labels[1].0: {form}\n\
                 bandwidth.extra_labels[2].le: {form}\n\
                 bandwidth.extra_labels[4].a: this label exists already"
            ),
        );
        let mut out = Problems::default();
        let attr = json!({ "http_status": { "extra_labels": [{ "a": "$http_x" }] } });
        Families::read(&attr, &mut out);
        let text = out.to_string();
        assert!(
            text.starts_with("http_status.extra_labels[0].a: `$http_x` could"),
            "{text}"
        );
    }

    #[test]
    fn names_and_buckets_are_checked() {
        let check = |options: Options, problems: &str| {
            let mut out = Problems::default();
            options.check(&mut out);
            assert_eq!(out.to_string(), problems);
        };
        check(Options::default(), "");
        check(
            Options {
                prefix: String::new(),
                ..Options::default()
            },
            "",
        );
        check(
            Options {
                prefix: "a-b".into(),
                buckets: vec![1.0, 1.0],
                ..Options::default()
            },
            "metric_prefix: allowed are letters, digits, `_` and `:`, no digit first\n\
             default_buckets: must rise, but 1 follows 1",
        );
        check(
            Options {
                buckets: Vec::new(),
                ..Options::default()
            },
            "default_buckets: must have 1 to 100 bounds, has 0",
        );
    }
}
