//! Metrics of the configuration: which is in use, whether it is what its source holds.
//!
//! | metric | tells |
//! |---|---|
//! | `config_revision` | the revision in use: of the store, else the count of changes since the start |
//! | `config_age_seconds` | how long what is in use may have been out of date; 0 while its source is followed |
//! | `config_degraded` | 1 while what is in use comes from disk, or from a store that is empty now |
//! | `config_rejected_items` | resources that were refused, whose previous versions stay |
//! | `config_store_connected` | 1 while the store answers; not for files |
//! | `etcd_reachable` | the same for etcd, under APISIX's name |
//! | `etcd_modify_indexes` | the last revision that changed each collection in etcd, as in APISIX |

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};

use crate::config::report::{Report, SharedReport};
use crate::store::Mirror;

/// Collections that APISIX has an index of.
const COLLECTIONS: [&str; 8] = [
    "routes",
    "services",
    "ssls",
    "consumers",
    "global_rules",
    "upstreams",
    "stream_routes",
    "protos",
];

/// See the module.
pub struct ConfigMetrics {
    report: SharedReport,
    revision: IntGauge,
    age: IntGauge,
    degraded: IntGauge,
    rejected: IntGauge,
    connected: Option<IntGauge>,
    etcd: Option<Etcd>,
}

struct Etcd {
    mirror: Arc<Mirror>,
    reachable: IntGauge,
    indexes: IntGaugeVec,
}

impl ConfigMetrics {
    /// Registers them. Those of a store only where there is one, and those of etcd where there is a
    /// mirror of it.
    ///
    /// # Errors
    /// When a name is taken, or is none with this prefix.
    pub fn register(
        registry: &Registry,
        prefix: &str,
        report: SharedReport,
        mirror: Option<Arc<Mirror>>,
    ) -> prometheus::Result<ConfigMetrics> {
        let opts = |name: &str, help: &str| Opts::new(format!("{prefix}{name}"), help);
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGauge> {
            let gauge = IntGauge::with_opts(opts(name, help))?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let has_store = lock(&report).store.is_some();
        let connected = || {
            gauge(
                "config_store_connected",
                "Whether the store of the configuration answers",
            )
        };
        let etcd = |mirror| {
            let indexes = IntGaugeVec::new(
                opts("etcd_modify_indexes", "Etcd modify index for APISIX keys"),
                &["key"],
            )?;
            registry.register(Box::new(indexes.clone()))?;
            Ok::<_, prometheus::Error>(Etcd {
                mirror,
                reachable: gauge(
                    "etcd_reachable",
                    "Config server etcd reachable from APISIX, 0 is unreachable",
                )?,
                indexes,
            })
        };
        Ok(ConfigMetrics {
            revision: gauge("config_revision", "Revision of the configuration in use")?,
            age: gauge(
                "config_age_seconds",
                "How long the configuration in use may have been out of date",
            )?,
            degraded: gauge(
                "config_degraded",
                "Whether the configuration in use is not from its source",
            )?,
            rejected: gauge(
                "config_rejected_items",
                "Resources of the source that were refused",
            )?,
            connected: has_store.then(connected).transpose()?,
            etcd: mirror.map(etcd).transpose()?,
            report,
        })
    }

    /// Brings them up to date, for a scrape.
    pub fn refresh(&self) {
        let report = lock(&self.report).clone();
        let revision = report.store_revision.unwrap_or(report.revision);
        self.revision.set(signed(revision));
        let age = report.age(Instant::now()).as_secs();
        self.age.set(signed(age));
        self.degraded.set(i64::from(report.degraded.is_some()));
        self.rejected
            .set(i64::try_from(report.rejected_resources).unwrap_or(i64::MAX));
        let reached = report.store.as_ref().is_some_and(|store| store.connected);
        if let Some(connected) = &self.connected {
            connected.set(i64::from(reached));
        }
        if let Some(etcd) = &self.etcd {
            etcd.reachable.set(i64::from(reached));
            etcd.refresh(revision);
        }
    }
}

impl Etcd {
    fn refresh(&self, revision: u64) {
        let held = self.mirror.indexes();
        let set = |key: &str, index: u64| {
            self.indexes.with_label_values(&[key]).set(signed(index));
        };
        for name in COLLECTIONS {
            set(name, held.get(name).copied().unwrap_or(0));
        }
        let known = COLLECTIONS.iter().filter_map(|name| held.get(*name));
        set("max_modify_index", known.copied().max().unwrap_or(0));
        set("prev_index", revision);
        set("x_etcd_index", revision);
    }
}

fn lock(report: &SharedReport) -> std::sync::MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Event, Item};
    use prometheus::{Encoder, TextEncoder};

    fn shown(registry: &Registry) -> Vec<String> {
        let mut out = Vec::new();
        let families = registry.gather();
        TextEncoder::new().encode(&families, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn of_a_file_and_of_etcd() {
        let registry = Registry::new();
        let report = SharedReport::default();
        lock(&report).revision = 4;
        let metrics = ConfigMetrics::register(&registry, "a_", Arc::clone(&report), None).unwrap();
        metrics.refresh();
        assert_eq!(
            shown(&registry),
            [
                "a_config_age_seconds 0",
                "a_config_degraded 0",
                "a_config_rejected_items 0",
                "a_config_revision 4"
            ]
        );

        let registry = Registry::new();
        let mirror = Arc::new(Mirror::default());
        let item = Item {
            path: "services/1".into(),
            text: "{}".into(),
            created: 7,
            modified: 8,
        };
        mirror.change(vec![Event::Put(item)], 9, |_| true);
        let mut held = lock(&report);
        held.store_revision = Some(9);
        held.rejected_resources = 2;
        held.lost("away");
        held.degrade("from disk");
        drop(held);
        let metrics =
            ConfigMetrics::register(&registry, "", Arc::clone(&report), Some(mirror)).unwrap();
        metrics.refresh();
        let lines = shown(&registry);
        for line in [
            "config_degraded 1",
            "config_rejected_items 2",
            "config_revision 9",
            "config_store_connected 0",
            "etcd_reachable 0",
            "etcd_modify_indexes{key=\"max_modify_index\"} 8",
            "etcd_modify_indexes{key=\"routes\"} 0",
            "etcd_modify_indexes{key=\"services\"} 8",
            "etcd_modify_indexes{key=\"x_etcd_index\"} 9",
        ] {
            assert!(lines.iter().any(|held| held == line), "{line}: {lines:?}");
        }
        assert!(ConfigMetrics::register(&registry, "", report, None).is_err());
    }
}
