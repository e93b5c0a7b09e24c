//! One metric with labels: finds or makes a series, bounds their number, drops those out of use.
//!
//! The request path never comes here: it keeps what [`Family::get`] returned.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::labels::Source;

/// A metric whose series differ by label values.
pub(super) struct Family<B: MetricVecBuilder> {
    vec: MetricVec<B>,
    /// The values of the first label, `type`, one metric each; empty when there is no such label.
    kinds: &'static [&'static str],
    /// Names of the labels after `type`, for the plugin metadata.
    pub(super) labels: &'static [&'static str],
    /// Labels from the settings, after the others.
    pub(super) extra: Vec<(String, Source)>,
    expire: Option<Duration>,
    limit: usize,
    known: Mutex<FxHashMap<Vec<String>, Known>>,
}

struct Known {
    used: Arc<AtomicBool>,
    since: Instant,
}

/// A series: one metric for each kind, in order.
pub(super) struct Series<M> {
    pub(super) metrics: SmallVec<[M; 3]>,
    /// Set by each use, where series expire.
    used: Option<Arc<AtomicBool>>,
}

impl<M> Series<M> {
    /// Keeps the series from expiring.
    pub(super) fn touch(&self) {
        if let Some(used) = &self.used {
            // Reading first keeps the cache line shared between threads.
            if !used.load(Ordering::Relaxed) {
                used.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl<B: MetricVecBuilder + 'static> Family<B> {
    /// A family over `vec`, which must have been made with the label names `type` (if there are
    /// kinds), `labels`, `extra`, in this order.
    pub(super) fn new(
        vec: MetricVec<B>,
        kinds: &'static [&'static str],
        labels: &'static [&'static str],
        options: &super::options::FamilyOptions,
        limit: usize,
    ) -> Family<B> {
        Family {
            vec,
            kinds,
            labels,
            extra: options.extra_labels.clone(),
            expire: options.expire,
            limit,
            known: Mutex::default(),
        }
    }

    /// For the registry.
    pub(super) fn collector(&self) -> Box<dyn Collector> {
        Box::new(self.vec.clone())
    }

    /// The series with these values, without the one of `type`; made when it is new. `None` when
    /// there are too many series or the values do not fit.
    pub(super) fn get(&self, values: Vec<String>, now: Instant) -> Option<Series<B::M>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let used = match known.get(&values) {
            Some(series) => Arc::clone(&series.used),
            None if known.len() >= self.limit => return None,
            None => Arc::default(),
        };
        let metrics: Result<SmallVec<[B::M; 3]>, _> =
            self.rows(&values).map(|row| self.vec.get_metric_with_label_values(&row)).collect();
        let metrics = metrics.ok()?;
        used.store(true, Ordering::Relaxed);
        known.entry(values).or_insert_with(|| Known { used: Arc::clone(&used), since: now });
        Some(Series { metrics, used: self.expire.map(|_| used) })
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
                    // It is gone either way.
                    let _ = self.vec.remove_label_values(&row);
                }
            }
            keep
        });
        known.len() < before
    }

    /// The label values of each metric of a series.
    fn rows<'a>(&'a self, values: &'a [String]) -> impl Iterator<Item = Vec<&'a str>> + 'a {
        let kinds: SmallVec<[Option<&str>; 3]> = if self.kinds.is_empty() {
            SmallVec::from_iter([None])
        } else {
            self.kinds.iter().copied().map(Some).collect()
        };
        kinds.into_iter().map(|kind| {
            kind.into_iter().chain(values.iter().map(String::as_str)).collect()
        })
    }
}
