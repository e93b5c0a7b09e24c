//! `plugin_attr.prometheus`: where metrics are exported and what they are called.

use std::net::{Ipv4Addr, SocketAddr};

use lockgate_plugin::Problems;
use lockgate_plugins::observe::prometheus::{Families, Options};
use serde_json::Value;

use super::listen::address;
use super::read::Reader;

/// See the module.
#[derive(Clone, Debug)]
pub struct PrometheusAttr {
    /// The path of the metrics.
    pub export_uri: String,
    /// What metric names begin with.
    pub metric_prefix: String,
    /// Whether there is a listener for the metrics.
    pub enable_export_server: bool,
    /// Its address.
    pub addr: SocketAddr,
    /// Upper bounds of latency buckets in milliseconds.
    pub default_buckets: Option<Vec<f64>>,
    /// Extra labels and such, by metric.
    pub metrics: Value,
}

/// Reads the attributes.
pub(super) fn attr(read: &mut Reader<'_>) -> PrometheusAttr {
    let base = "plugin_attr.prometheus";
    let ip = address(
        read,
        &format!("{base}.export_addr.ip"),
        Ipv4Addr::LOCALHOST.into(),
    );
    let port = read
        .integer(&format!("{base}.export_addr.port"), 1, 65_535)
        .unwrap_or(9091);
    let path = format!("{base}.default_buckets");
    let default_buckets = match read.value(&path) {
        None => None,
        Some(Value::Array(list)) if !list.is_empty() && list.iter().all(Value::is_number) => {
            Some(list.iter().filter_map(Value::as_f64).collect())
        }
        Some(other) => {
            read.wrong(&path, "a list of numbers", other);
            None
        }
    };
    let uri = format!("{base}.export_uri");
    let export_uri = read
        .text(&uri)
        .unwrap_or_else(|| "/apisix/prometheus/metrics".into());
    if !export_uri.starts_with('/') {
        let found = Value::String(export_uri.clone());
        read.wrong(&uri, "a path that begins with `/`", &found);
    }
    let attr = PrometheusAttr {
        export_uri,
        metric_prefix: read
            .text(&format!("{base}.metric_prefix"))
            .unwrap_or_else(|| "apisix_".into()),
        enable_export_server: read.flag(&format!("{base}.enable_export_server"), true),
        addr: SocketAddr::new(ip, u16::try_from(port).unwrap_or(9091)),
        default_buckets,
        metrics: read
            .value(&format!("{base}.metrics"))
            .cloned()
            .unwrap_or_default(),
    };
    check(&attr, &mut read.below(base));
    attr
}

/// What the metrics themselves have to say about it.
fn check(attr: &PrometheusAttr, out: &mut Problems) {
    let default = Options::default();
    let options = Options {
        prefix: attr.metric_prefix.clone(),
        buckets: attr.default_buckets.clone().unwrap_or(default.buckets),
        ..Options::default()
    };
    options.check(out);
    Families::read(&attr.metrics, &mut out.at("metrics"));
}
