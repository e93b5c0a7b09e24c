//! One metric with labels: finds or makes a series, bounds their number, drops those out of use.
//!
//! The request path does not come here: it keeps what [`Family::get`] returned.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::labels::{Labels, Source};
use super::options::{Families, FamilyOptions};

/// A metric whose series differ by label values.
pub(super) struct Family<V: Vector> {
    vec: MetricVec<V::Builder>,
    /// The values of the first label, `type`, one metric each; empty when there is no such label.
    kinds: &'static [&'static str],
    /// Names of the labels after `type`.
    labels: &'static [&'static str],
    /// Labels from the settings, after the others.
    pub(super) extra: Vec<(String, Source)>,
    expire: Option<Duration>,
    limit: usize,
    known: Mutex<FxHashMap<Vec<String>, Known>>,
}

/// `IntCounterVec` or `HistogramVec`: gives the builder behind the name.
pub(super) trait Vector {
    type Builder: MetricVecBuilder + 'static;
}

impl<B: MetricVecBuilder + 'static> Vector for MetricVec<B> {
    type Builder = B;
}

type MetricOf<V> = <<V as Vector>::Builder as MetricVecBuilder>::M;

struct Known {
    /// Used since the last look.
    used: Arc<AtomicBool>,
    /// When a look found it used.
    since: Instant,
}

/// A series: one metric for each kind, in order.
pub(super) struct Series<M> {
    metrics: SmallVec<[M; 3]>,
    /// Present where series expire.
    used: Option<Arc<AtomicBool>>,
}

impl<M> Series<M> {
    /// The metrics, one for each kind; keeps the series from expiring.
    pub(super) fn touch(&self) -> &[M] {
        if let Some(used) = &self.used {
            // Reading first keeps the cache line shared between threads.
            if !used.load(Ordering::Relaxed) {
                used.store(true, Ordering::Relaxed);
            }
        }
        &self.metrics
    }
}

impl<V: Vector> Family<V> {
    /// A family; `make` gets all label names in order.
    pub(super) fn new(
        families: &Families,
        options: &FamilyOptions,
        kinds: &'static [&'static str],
        labels: &'static [&'static str],
        make: impl FnOnce(&[&str]) -> prometheus::Result<MetricVec<V::Builder>>,
    ) -> prometheus::Result<Family<V>> {
        let kind = (!kinds.is_empty()).then_some("type");
        let extra = options.extra_labels.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = kind
            .into_iter()
            .chain(labels.iter().copied())
            .chain(extra)
            .collect();
        Ok(Family {
            vec: make(&names)?,
            kinds,
            labels,
            extra: options.extra_labels.clone(),
            expire: options.expire,
            limit: families.max_series,
            known: Mutex::default(),
        })
    }

    /// For the registry.
    pub(super) fn collector(&self) -> Box<dyn Collector> {
        Box::new(self.vec.clone())
    }

    /// The label values of a request, without `type`; those of `disabled` labels are empty.
    pub(super) fn values(&self, labels: &Labels<'_>, disabled: &[String]) -> Vec<String> {
        let shown = |name: &str| name == "code" || !disabled.iter().any(|off| off == name);
        let fixed = self.labels.iter().map(|name| match shown(name) {
            true => labels.fixed(name),
            false => String::new(),
        });
        let extra = self.extra.iter().map(|(name, source)| match shown(name) {
            true => labels.get(source),
            false => String::new(),
        });
        fixed.chain(extra).collect()
    }

    /// The series with these values; made when it is new. `None` when there are too many.
    pub(super) fn get(&self, values: Vec<String>, now: Instant) -> Option<Series<MetricOf<V>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let used = match known.get(&values) {
            Some(series) => Arc::clone(&series.used),
            None if known.len() >= self.limit => return None,
            None => Arc::default(),
        };
        let rows = self.rows(&values);
        let metrics = rows.map(|row| self.vec.get_metric_with_label_values(&row).ok());
        let metrics = metrics.collect::<Option<SmallVec<_>>>()?;
        used.store(true, Ordering::Relaxed);
        known.entry(values).or_insert_with(|| Known {
            used: Arc::clone(&used),
            since: now,
        });
        Some(Series {
            metrics,
            used: self.expire.map(|_| used),
        })
    }

    /// Drops the series that were not used for the configured time; says whether there were any.
    /// Handles to them count into nothing afterwards, so that holders must ask again.
    pub(super) fn expire(&self, now: Instant) -> bool {
        let Some(expire) = self.expire else {
            return false;
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.len();
        known.retain(|values, series| {
            if series.used.swap(false, Ordering::Relaxed) {
                series.since = now;
            }
            let keep = now.saturating_duration_since(series.since) < expire;
            if !keep {
                for row in self.rows(values) {
                    // An error means that it is gone already.
                    let _ = self.vec.remove_label_values(&row);
                }
            }
            keep
        });
        known.len() < before
    }

    /// The label values of each metric of a series.
    fn rows<'a>(&self, values: &'a [String]) -> impl Iterator<Item = Vec<&'a str>> + use<'a, V> {
        let none: &[Option<&'static str>] = &[None];
        let kinds: SmallVec<[Option<&'static str>; 3]> = match self.kinds {
            [] => SmallVec::from_slice(none),
            kinds => kinds.iter().copied().map(Some).collect(),
        };
        kinds.into_iter().map(|kind| {
            kind.into_iter()
                .chain(values.iter().map(String::as_str))
                .collect()
        })
    }
}
