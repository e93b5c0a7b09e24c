//! What operators say about keys of limits: another limit for a while, and that one begins anew.
//!
//! Both are in the store, below what is lockgate's own, so that they survive a restart and reach every
//! gateway: one that shares its store looks there every two seconds. A request sees nothing of this but
//! the table that is made of it ([`Overrides`](lockgate_limit::Overrides)), and that only when it is not empty.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{InForce, Key, Nanos};
use openssl::sha::sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::wish::{Instead, Named};
use super::{Desk, now};
use crate::changes::history;
use crate::store::{Item, OWN, Op, Store, StoreError};

/// Where the store has them.
const OVERRIDES: &str = "lockgate/limits/overrides/";
const RESETS: &str = "lockgate/limits/resets/";
/// Keys with another limit, at once: for support cases. Many of a kind belong into the configuration.
pub(crate) const MOST_OVERRIDES: usize = 1_000;
/// How often a store is looked at that others write to, too.
const LOOK: Duration = Duration::from_secs(2);
/// How often it is looked what is over, or is meant for a limit that was edited.
const TIDY: Duration = Duration::from_secs(1);
/// The same when there is nothing.
const REST: Duration = Duration::from_secs(60);
/// How long a reset is kept, for gateways that are late.
const RESET_KEPT: Duration = Duration::from_secs(60);
/// How much longer than it is in force an override is kept.
const OVER_KEPT: u64 = 60;

/// An override, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// The limit's name.
    pub(crate) rule: String,
    /// The key.
    #[serde(flatten)]
    pub(crate) named: Named,
    /// The limit instead.
    pub(crate) limit: u64,
    /// Seconds since 1970.
    pub(crate) until: u64,
    /// The name of the key for the Admin API that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
}

/// A reset, as the store has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reset {
    rule: String,
    #[serde(flatten)]
    named: Named,
}

impl Held {
    /// Where the store has the override of a key.
    pub(crate) fn path(rule: &str, named: &Named) -> String {
        format!("{OVERRIDES}{}", id(rule, named))
    }

    /// What makes it so.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn op(&self, now: u64) -> Result<Op, StoreError> {
        let kept = self.until.saturating_sub(now) + OVER_KEPT;
        put(
            Held::path(&self.rule, &self.named),
            self,
            Duration::from_secs(kept),
        )
    }

    /// As it was asked for.
    pub(crate) fn new(rule: &str, instead: &Instead, by: Option<String>) -> Held {
        Held {
            rule: rule.to_owned(),
            named: instead.named.clone(),
            limit: instead.limit,
            until: instead.until,
            by,
        }
    }

    /// As JSON, for people; `whole` with the key as it is.
    pub(crate) fn shown(&self, whole: bool) -> Value {
        let key = if whole {
            self.named.clone()
        } else {
            self.named.hidden()
        };
        json!({
            "rule": self.rule,
            "key": key,
            "limit": self.limit,
            "until": history::time(self.until.saturating_mul(1_000)),
            "by": self.by,
        })
    }
}

/// What makes every gateway forget what a key has used.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn reset(rule: &str, named: &Named) -> Result<Op, StoreError> {
    let reset = Reset {
        rule: rule.to_owned(),
        named: named.clone(),
    };
    put(format!("{RESETS}{}", id(rule, named)), &reset, RESET_KEPT)
}

fn put<T: Serialize>(path: String, what: &T, kept: Duration) -> Result<Op, StoreError> {
    debug_assert!(path.starts_with(OWN));
    let text = serde_json::to_string(what);
    Ok(Op::Put {
        path,
        text: text.map_err(|e| StoreError::new("it cannot be written", e))?,
        ttl: Some(kept),
    })
}

/// The same for the same key of the same limit.
fn id(rule: &str, named: &Named) -> String {
    let text = json!([rule, named]).to_string();
    let digest = sha256(text.as_bytes());
    digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The overrides that are in the store, and are not over.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn overrides(store: &dyn Store, now: u64) -> Result<Vec<Held>, StoreError> {
    let items = store.list(OVERRIDES).await?.items;
    Ok(held(&items).filter(|held| held.until > now).collect())
}

fn held(items: &[Item]) -> impl Iterator<Item = Held> {
    items.iter().filter_map(|item| match serde_json::from_str(&item.text) {
        Ok(held) => Some(held),
        Err(error) => {
            tracing::warn!(path = &*item.path, %error, "an override of a limit is not readable");
            None
        }
    })
}

/// Keeps what is in force in step with the store.
pub(crate) struct Keeping {
    store: Arc<dyn Store>,
    desk: Desk,
    /// Told when something was written here.
    wake: Arc<Notify>,
    /// Resets that were seen, with their revisions; those from before the start are none of ours.
    seen: Option<BTreeMap<Arc<str>, u64>>,
    /// What could not be put in force, to be told once.
    told: BTreeMap<String, String>,
}

impl Keeping {
    /// Of this store.
    pub(crate) fn new(store: Arc<dyn Store>, desk: Desk, wake: Arc<Notify>) -> Keeping {
        Keeping {
            store,
            desk,
            wake,
            seen: None,
            told: BTreeMap::new(),
        }
    }

    /// Never ends.
    pub(crate) async fn run(mut self) {
        loop {
            let any = match self.look(history::now() / 1_000).await {
                Ok(any) => any,
                Err(error) => {
                    // The watch of the configuration tells when the store is away.
                    tracing::debug!(error = %error.chain(), "overrides of limits are not looked at");
                    true
                }
            };
            let pause = match (self.store.is_shared(), any) {
                (true, _) => LOOK,
                (false, true) => TIDY,
                (false, false) => REST,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Puts in force what is there; says whether that is anything.
    async fn look(&mut self, unix: u64) -> Result<bool, StoreError> {
        let items = self.store.list(OVERRIDES).await?.items;
        let resets = self.store.list(RESETS).await?.items;
        self.forget(&resets).await;
        let now = now(&self.desk.engine);
        let mut in_force = InForce::default();
        let mut failed = BTreeMap::new();
        for held in held(&items).filter(|held| held.until > unix) {
            match self.one(&held) {
                Ok((key, counted)) => {
                    in_force.insert(key, (counted, now.saturating_add(left(held.until, unix))));
                }
                Err(why) => {
                    failed.insert(format!("{} {}", held.rule, held.named.masked()), why);
                }
            }
        }
        for (what, why) in &failed {
            if self.told.get(what) != Some(why) {
                tracing::warn!(limit = %what, %why, "an override is not in force");
            }
        }
        self.told = failed;
        let any = !items.is_empty() || !resets.is_empty();
        if in_force.is_empty() && self.desk.engine.overrides().is_empty() {
            return Ok(any);
        }
        self.desk.engine.overrides().replace(in_force);
        Ok(any)
    }

    fn one(&self, held: &Held) -> Result<(Key, lockgate_limit::Counted), String> {
        let post = self.desk.engine.desk().find(&held.rule);
        let post = post.ok_or("no limit has this name")?;
        // The limit may have been edited since it was overridden.
        if !post.counts().takes_overrides() {
            return Err(
                "gateways count it together, where all keys have the configured limit".to_owned(),
            );
        }
        let mut wanted = held.named.wanted();
        wanted.count = Some(held.limit);
        let key = post.counts().key(&self.desk.engine, &wanted);
        let counted = post.counts().counted(&wanted);
        key.and_then(|key| Ok((key, counted?)))
            .map_err(|e| e.to_string())
    }

    async fn forget(&mut self, resets: &[Item]) {
        let now = resets
            .iter()
            .map(|item| (Arc::clone(&item.path), item.modified));
        let now: BTreeMap<Arc<str>, u64> = now.collect();
        let Some(seen) = self.seen.replace(now) else {
            return;
        };
        for item in resets {
            if seen.get(&item.path) == Some(&item.modified) {
                continue;
            }
            let Ok(reset) = serde_json::from_str::<Reset>(&item.text) else {
                continue;
            };
            // A gateway whose configuration is behind has no such limit, and nothing to forget.
            if let Ok(post) = self.desk.post(&reset.rule)
                && let Ok(key) = post.counts().key(&self.desk.engine, &reset.named.wanted())
            {
                self.desk.engine.forget(key);
            }
        }
    }
}

fn left(until: u64, unix: u64) -> Nanos {
    until.saturating_sub(unix).saturating_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use lockgate_limit::{
        About, Algorithm, Ask, Counted, Counts, Engine, Post, Rule, Unclear, Wanted,
    };

    use super::*;
    use crate::store::{Memory, Txn};

    struct Three;

    impl Counts for Three {
        fn about(&self) -> About {
            About::default()
        }
        fn key(&self, engine: &Engine, wanted: &Wanted) -> Result<Key, Unclear> {
            let text = wanted.values.first().ok_or(Unclear::Empty)?;
            Ok(engine.key(1).bytes(text.as_bytes()).done())
        }
        fn counted(&self, wanted: &Wanted) -> Result<Counted, Unclear> {
            let count = wanted.count.unwrap_or(3);
            let fixed = Algorithm::Fixed { aligned: false };
            let rule = Rule::new(fixed, count, Duration::from_secs(600));
            rule.map(Counted::Rate)
                .map_err(|bad| Unclear::Rule(bad.to_string()))
        }
    }

    fn passed(desk: &Desk, post: &Post, key: &str) -> usize {
        let wanted = Named::of(key).wanted();
        let Ok(Counted::Rate(rule)) = post.counts().counted(&wanted) else {
            panic!("it counts requests in a time")
        };
        let key = post.counts().key(&desk.engine, &wanted).unwrap();
        let ask = Ask {
            rule: &rule,
            key,
            cost: 1,
        };
        let take = || desk.engine.take(&ask, now(&desk.engine)).0.allowed;
        (0..50).filter(|_| take()).count()
    }

    #[tokio::test]
    async fn what_is_in_the_store_is_in_force_on_every_gateway_and_ends() {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let gateway = || {
            let engine = Arc::new(Engine::with_bytes(0));
            let post = engine
                .desk()
                .post("routes/1/limit/a".to_owned(), Box::new(Three));
            let desk = Desk {
                engine,
                hostname: "h".into(),
            };
            let wake = Arc::default();
            (
                Keeping::new(Arc::clone(&store), desk.clone(), wake),
                desk,
                post,
            )
        };
        let (mut one, desk, post) = gateway();
        let (mut other, other_desk, other_post) = gateway();
        let unix = 1_800_000_000;
        assert!(!one.look(unix).await.unwrap());
        assert!(!other.look(unix).await.unwrap());
        assert_eq!(passed(&desk, &post, "ann"), 3);
        assert_eq!(passed(&other_desk, &other_post, "ann"), 3);
        let held = Held {
            rule: "routes/1/limit/a".to_owned(),
            named: Named::of("ann"),
            limit: 10,
            until: unix + 100,
            by: None,
        };
        let gone = Held {
            rule: "routes/2/limit/a".to_owned(),
            ..held.clone()
        };
        for held in [&held, &gone] {
            let op = held.op(unix).unwrap();
            store.commit(Txn::of(op)).await.unwrap();
        }
        assert!(one.look(unix).await.unwrap());
        assert_eq!(one.told.len(), 1, "{:?}", one.told);
        assert!(other.look(unix).await.unwrap());
        assert_eq!(passed(&desk, &post, "ann"), 7);
        assert_eq!(passed(&other_desk, &other_post, "ann"), 7);
        assert_eq!(passed(&desk, &post, "bob"), 3);
        // A reset.
        let op = reset("routes/1/limit/a", &Named::of("ann")).unwrap();
        store.commit(Txn::of(op)).await.unwrap();
        one.look(unix).await.unwrap();
        other.look(unix).await.unwrap();
        assert_eq!(passed(&desk, &post, "ann"), 10);
        one.look(unix).await.unwrap();
        assert_eq!(passed(&desk, &post, "ann"), 0, "once is enough");
        assert_eq!(passed(&other_desk, &other_post, "ann"), 10);
        // Over.
        one.look(unix + 100).await.unwrap();
        assert!(desk.engine.overrides().is_empty());
        // One that starts later has the override, and nothing to forget.
        let (mut late, late_desk, late_post) = gateway();
        assert_eq!(passed(&late_desk, &late_post, "ann"), 3);
        late.look(unix).await.unwrap();
        assert_eq!(passed(&late_desk, &late_post, "ann"), 7);
        let listed = overrides(&*store, unix).await.unwrap();
        assert_eq!(listed.len(), 2);
        assert_eq!(overrides(&*store, unix + 100).await.unwrap(), []);
    }
}
