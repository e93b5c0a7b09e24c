//! What limits had no room for.

use std::sync::Arc;

use lockgate_limit::Lost;
use prometheus::core::Collector;
use prometheus::{IntCounter, Opts};

/// The counters that tell of a [`Lost`].
pub(super) struct Room {
    pub(super) lost: Arc<Lost>,
    unseen: IntCounter,
    evicted: IntCounter,
}

impl Room {
    pub(super) fn new(opts: impl Fn(&str, &str) -> Opts) -> prometheus::Result<Room> {
        Ok(Room {
            lost: Arc::default(),
            unseen: IntCounter::with_opts(opts(
                "limit_unseen_total",
                "Requests that no limit counted, as too many keys were counted",
            ))?,
            evicted: IntCounter::with_opts(opts(
                "limit_evicted_total",
                "Keys of limits that were given up while they counted, as there were too many",
            ))?,
        })
    }

    pub(super) fn collectors(&self) -> [Box<dyn Collector>; 2] {
        [
            Box::new(self.unseen.clone()),
            Box::new(self.evicted.clone()),
        ]
    }

    /// Brings the counters up to date. Called by one scrape at a time.
    pub(super) fn refresh(&self) {
        let counters = [
            (&self.unseen, self.lost.unseen()),
            (&self.evicted, self.lost.evicted()),
        ];
        for (counter, value) in counters {
            counter.inc_by(value.saturating_sub(counter.get()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockgate_limit::{Algorithm, Ask, Engine, Rule};

    use super::super::{Metrics, Now, Options};
    use super::*;

    #[test]
    fn what_limits_had_no_room_for_is_told() {
        let metrics = Metrics::new(&Options::default());
        let lost = metrics.lost();
        let engine = Engine::with_bytes(0).counting(Arc::clone(lost));
        let fixed = Algorithm::Fixed { aligned: false };
        let rule = Rule::new(fixed, 100, Duration::from_secs(86_400)).unwrap();
        let take = |name: u64, cost| {
            let (rule, key) = (&rule, engine.key(name).done());
            let _ = engine.take(&Ask { rule, key, cost }, 1 << 57);
        };
        let told = |metric: &str, expected: u64| {
            let text = String::from_utf8(metrics.render(Now::default())).unwrap();
            let line = format!("\napisix_{metric} {expected}\n");
            assert!(text.contains(&line), "{text}");
        };
        told("limit_unseen_total", 0);
        // Many more than there is room for, then one that is heavy.
        (0..1_000).for_each(|name| take(name, 1));
        take(1_000, 100);
        assert!(lost.unseen() > 900, "{lost:?}");
        told("limit_unseen_total", lost.unseen());
        told("limit_evicted_total", 1);
    }
}
