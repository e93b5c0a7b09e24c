//! Metrics of limits: what became of requests, how full the table is.
//!
//! | metric | tells |
//! |---|---|
//! | `limit_decisions_total` | requests by limit (`rule`, `dim`) and `result`: allow, delay, reject, shadow_reject, error_allow, local |
//! | `limit_near_total` | of those that passed, how many left a fifth of the limit or less |
//! | `limit_table_live` | clients that count at the moment |
//! | `limit_table_room` | clients there is room for |
//! | `limit_overrides` | keys that have another limit at the moment |
//! | `limit_store_calls_total` | calls of a shared store by `store` and `outcome`: answered, late, failed, skipped |
//! | `limit_breaker_state` | 1 while a shared store is not asked, because it did not answer |
//!
//! Labels are names from the configuration, and so many of them; further limits are counted together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use lockgate_limit::{Ended, Engine, Keeper, Post};
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::limits::now;

/// Limits that have series of their own: with all results some ten thousand lines.
const MOST_NAMED: usize = 1_000;
/// Stores that have series.
const MOST_STORES: usize = 100;
/// The label of the others.
const OTHERS: &str = "(others)";

/// See the module.
pub(crate) struct LimitMetrics {
    engine: Arc<Engine>,
    /// Limits that have series of their own: as long as they are in use they keep them.
    named: Mutex<BTreeSet<Box<str>>>,
    decisions: IntCounterVec,
    near: IntCounterVec,
    live: IntGauge,
    room: IntGauge,
    overrides: IntGauge,
    calls: IntCounterVec,
    breaker: IntGaugeVec,
}

impl LimitMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When a name is taken, or is none with this prefix.
    pub(crate) fn register(
        registry: &Registry,
        prefix: &str,
        engine: Arc<Engine>,
    ) -> prometheus::Result<LimitMetrics> {
        let opts = |name: &str, help: &str| Opts::new(format!("{prefix}{name}"), help);
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(opts(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::with_opts(opts(name, help))?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        Ok(LimitMetrics {
            decisions: counter(
                "limit_decisions_total",
                "Requests that a limit was asked about, by what became of them",
                &["rule", "dim", "result"],
            )?,
            near: counter(
                "limit_near_total",
                "Requests that passed a limit and left a fifth of it or less",
                &["rule", "dim"],
            )?,
            live: gauge(
                "limit_table_live",
                "Keys of limits that count at the moment",
            )?,
            room: gauge("limit_table_room", "Keys of limits that there is room for")?,
            overrides: gauge(
                "limit_overrides",
                "Keys that have another limit at the moment",
            )?,
            calls: counter(
                "limit_store_calls_total",
                "Calls of stores that gateways share for limits, by how they ended",
                &["store", "outcome"],
            )?,
            breaker: {
                let help = "Whether a store is not asked for a moment, as it did not answer";
                let gauge = IntGaugeVec::new(opts("limit_breaker_state", help), &["store"])?;
                registry.register(Box::new(gauge.clone()))?;
                gauge
            },
            named: Mutex::default(),
            engine,
        })
    }

    /// Brings them up to date, for a scrape. Called by one at a time.
    pub(crate) fn refresh(&self) {
        let posts = self.engine.desk().list();
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let there: BTreeSet<&str> = posts.iter().map(|post| post.name()).collect();
        named.retain(|name| there.contains(&**name));
        // Anew, so that limits that are gone are gone from here.
        self.decisions.reset();
        self.near.reset();
        for post in &posts {
            let asked = Ended::ALL.map(|ended| post.tally().count(ended));
            if asked.iter().all(|count| *count == 0) {
                continue;
            }
            let has_room = named.len() < MOST_NAMED;
            if !named.contains(post.name()) && has_room {
                named.insert(post.name().into());
            }
            let labels = match named.contains(post.name()) {
                true => post.name().rsplit_once('/').unwrap_or((post.name(), "")),
                false => (OTHERS, ""),
            };
            self.count(post, labels, asked);
        }
        let stats = self.engine.stats(now(&self.engine));
        let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.live.set(signed(stats.live));
        self.room.set(signed(stats.room));
        self.overrides.set(signed(self.engine.overrides().len()));
        self.stores(&posts);
    }

    /// Limits with one server share one connection; those with other deadlines have their own.
    fn stores(&self, posts: &[Arc<Post>]) {
        self.calls.reset();
        self.breaker.reset();
        let keepers = posts
            .iter()
            .filter_map(|post| Some(post.counts().shared()?.keeper()));
        // What a connection has counted counts once, however many limits use it.
        let keepers: BTreeMap<usize, Keeper> = keepers.map(|keeper| (keeper.id, keeper)).collect();
        for keeper in keepers.values().take(MOST_STORES) {
            let counts = [
                ("answered", keeper.answered),
                ("late", keeper.late),
                ("failed", keeper.failed),
                ("skipped", keeper.skipped),
            ];
            for (outcome, count) in counts {
                let calls = self.calls.with_label_values(&[&*keeper.name, outcome]);
                calls.inc_by(count);
            }
            let breaker = self.breaker.with_label_values(&[&*keeper.name]);
            breaker.set(breaker.get().max(i64::from(keeper.away)));
        }
    }

    fn count(&self, post: &Post, (rule, dim): (&str, &str), asked: [u64; Ended::ALL.len()]) {
        for (ended, count) in Ended::ALL.into_iter().zip(asked) {
            if count > 0 {
                let labels = [rule, dim, ended.name()];
                self.decisions.with_label_values(&labels).inc_by(count);
            }
        }
        let near = self.near.with_label_values(&[rule, dim]);
        near.inc_by(post.tally().near());
    }
}

#[cfg(test)]
mod tests {
    use lockgate_limit::{About, Counted, Counts, Decision, Key, Unclear, Wanted};
    use prometheus::{Encoder, TextEncoder};

    use super::*;

    struct Any;

    impl Counts for Any {
        fn about(&self) -> About {
            About::default()
        }
        fn key(&self, _: &Engine, _: &Wanted) -> Result<Key, Unclear> {
            Err(Unclear::Empty)
        }
        fn counted(&self, _: &Wanted) -> Result<Counted, Unclear> {
            Ok(Counted::AtOnce(1))
        }
    }

    fn shown(registry: &Registry) -> Vec<String> {
        let mut out = Vec::new();
        TextEncoder::new()
            .encode(&registry.gather(), &mut out)
            .unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn limits_that_were_asked_have_series_and_no_more_than_so_many() {
        let registry = Registry::new();
        let engine = Arc::new(Engine::with_bytes(0));
        let metrics = LimitMetrics::register(&registry, "a_", Arc::clone(&engine)).unwrap();
        let post = |id: usize| {
            let name = format!("routes/{id:05}/limit/client");
            engine.desk().post(name, Box::new(Any))
        };
        let decision = Decision {
            allowed: true,
            limit: 10,
            remaining: 1,
            reset: 0,
            retry: 0,
            delay: 0,
        };
        let pass = |post: &Post| post.tally().passed(&decision);
        let unasked = post(0);
        let first = post(1);
        pass(&first);
        pass(&first);
        first.tally().other(Ended::Reject, 1, || "x\"\n".to_owned());
        metrics.refresh();
        metrics.refresh();
        let expected = [
            "a_limit_decisions_total{dim=\"client\",result=\"allow\",rule=\"routes/00001/limit\"} 2",
            "a_limit_decisions_total{dim=\"client\",result=\"reject\",rule=\"routes/00001/limit\"} 1",
            "a_limit_near_total{dim=\"client\",rule=\"routes/00001/limit\"} 2",
            "a_limit_overrides 0",
            "a_limit_table_live 0",
            "a_limit_table_room 64",
        ];
        assert_eq!(shown(&registry), expected);
        let many: Vec<_> = (2..MOST_NAMED + 102).map(post).collect();
        many.iter().for_each(|post| pass(post));
        metrics.refresh();
        let lines = shown(&registry);
        let others =
            format!("a_limit_decisions_total{{dim=\"\",result=\"allow\",rule=\"{OTHERS}\"}} 101");
        assert!(lines.contains(&others), "{:?}", &lines[..3]);
        let own = |line: &&String| line.starts_with("a_limit_decisions_total{dim=\"client\"");
        assert_eq!(lines.iter().filter(own).count(), MOST_NAMED + 1);
        drop((many, unasked));
        metrics.refresh();
        assert_eq!(shown(&registry), expected);
    }
}
