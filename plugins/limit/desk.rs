//! The limits that are configured, for whoever operates them: what each is called, how a key stands,
//! who was refused, and which keys have another limit for a while.
//!
//! A plugin puts up a [`Post`] for each of its limits and keeps it as long as the limit is in use. What
//! was tallied goes over to the next one of the same name, so an edit loses nothing.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::{Decision, Ended, Engine, Key, Nanos, Rule, Tally};

/// Names of limits that are gone are swept when there are so many more than at the last sweep.
const SWEEP_EVERY: usize = 1_024;

/// What a limit is, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// How much, in which time, by which algorithm.
    pub limit: String,
    /// Whose requests count together, as configured.
    pub key: String,
    /// Within what they count together.
    pub scope: String,
    /// Where they are counted: `local`, or how a shared count is asked.
    pub mode: String,
    /// Why it is that mode.
    pub why: String,
    /// What passes at most.
    pub bound: String,
    /// It refuses nothing.
    pub dry_run: bool,
}

/// A key that somebody asks about, in the words of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The values of the key's variables, in order; an empty one stands for no value.
    pub values: Vec<String>,
    /// The address of a client whose key has no value, where that counts by address.
    pub address: Option<IpAddr>,
    /// The route, where a limit counts by route and is configured for several.
    pub route: Option<String>,
    /// The service, where it counts by service.
    pub service: Option<String>,
    /// The consumer, where it counts by consumer.
    pub consumer: Option<String>,
    /// The limit, instead of the configured one or where that depends on the request.
    pub count: Option<u64>,
    /// The window, where that depends on the request.
    pub window: Option<Duration>,
}

/// How a limit counts.
#[derive(Clone, Copy, Debug)]
pub enum Counted {
    /// Requests in a time.
    Rate(Rule),
    /// Requests at once.
    AtOnce(u64),
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// The key has another number of variables.
    #[error("the key has {wanted} variable(s), {given} value(s) are given")]
    Values {
        /// Variables.
        wanted: usize,
        /// Values.
        given: usize,
    },
    /// The key is an address.
    #[error("`{0}` is not an address, which this key is")]
    Address(String),
    /// None of its variables has a value.
    #[error("nothing in the key has a value: give the client's address as `address`")]
    Empty,
    /// It counts by something that is not said.
    #[error("this limit counts by {0}: say which, as `{0}`")]
    Within(&'static str),
    /// A number depends on the request.
    #[error("its {0} depends on the request: say which, as `{0}`")]
    Number(&'static str),
    /// Not with these numbers.
    #[error("{0}")]
    Rule(String),
}

/// An answer that takes its time, and why there is none.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Who keeps shared counts, and how it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    /// The same for limits that share a connection.
    pub id: usize,
    /// Who it is, from the configuration.
    pub name: String,
    /// It counts as away: it is not asked for a moment.
    pub away: bool,
    /// How many calls were answered.
    pub answered: u64,
    /// Not in time.
    pub late: u64,
    /// With an error.
    pub failed: u64,
    /// Not made, as it was away.
    pub skipped: u64,
}

/// A count that several gateways share.
pub trait SharedCount: Send + Sync {
    /// Who keeps it.
    fn keeper(&self) -> Keeper;

    /// How a key stands there.
    ///
    /// # Errors
    /// When it is not clear which is meant.
    fn standing<'a>(&'a self, wanted: &Wanted, now: Nanos) -> Result<Later<'a, Standing>, Unclear>;

    /// Forgets what a key has used there; gives whether anything was known.
    ///
    /// # Errors
    /// When it is not clear which is meant.
    fn reset<'a>(&'a self, wanted: &Wanted, now: Nanos) -> Result<Later<'a, bool>, Unclear>;
}

/// What a plugin knows of one of its limits.
pub trait Counts: Send + Sync {
    /// What it is.
    fn about(&self) -> About;

    /// The key, as this process counts it.
    ///
    /// # Errors
    /// When it is not clear which is meant.
    fn key(&self, engine: &Engine, wanted: &Wanted) -> Result<Key, Unclear>;

    /// How it counts.
    ///
    /// # Errors
    /// When that depends on the request and is not said, or the number is not possible.
    fn counted(&self, wanted: &Wanted) -> Result<Counted, Unclear>;

    /// Whether several gateways count together.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether requests go by [`Overrides`](crate::Overrides).
    fn takes_overrides(&self) -> bool {
        true
    }

    /// How that count can be looked at, if it can.
    fn shared(&self) -> Option<&dyn SharedCount> {
        None
    }
}

/// A limit that is in use.
pub struct Post {
    name: Box<str>,
    tally: Arc<Tally>,
    counts: Box<dyn Counts>,
}

impl Post {
    /// The resource, the plugin and the limit in it: `routes/1/limit/client`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What became of requests.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What the plugin knows.
    pub fn counts(&self) -> &dyn Counts {
        &*self.counts
    }

    /// Counts what it said to a request; `passed` is whether the request passed all its limits. `key`
    /// gives the text of its key, and is asked only when it was refused.
    pub fn note(
        &self,
        decision: &Decision,
        passed: bool,
        now: Nanos,
        key: impl FnOnce() -> String,
    ) {
        match (decision.allowed, passed) {
            (true, true) => self.tally.passed(decision),
            // Another limit refused it.
            (true, false) => {}
            (false, _) => self.tally.other(Ended::Reject, now, key),
        }
    }
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Post").field("name", &self.name).finish()
    }
}

/// All limits that are in use.
#[derive(Default)]
pub struct Desk {
    posts: Mutex<Posts>,
    tops: Arc<AtomicUsize>,
    /// Counts changes.
    generation: AtomicU64,
}

#[derive(Default)]
struct Posts {
    /// Several of a name while one takes the place of another.
    by_name: BTreeMap<Box<str>, Vec<Weak<Post>>>,
    swept: usize,
}

impl Desk {
    /// Puts up a limit.
    pub fn post(&self, name: String, counts: Box<dyn Counts>) -> Arc<Post> {
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        let same = posts.by_name.entry(name.as_str().into()).or_default();
        same.retain(|post| post.strong_count() > 0);
        let before = same.iter().rev().find_map(Weak::upgrade);
        let tally = before.map(|post| Arc::clone(&post.tally));
        let post = Arc::new(Post {
            name: name.into(),
            tally: tally.unwrap_or_else(|| Arc::new(Tally::new(&self.tops))),
            counts,
        });
        same.push(Arc::downgrade(&post));
        if posts.by_name.len() >= posts.swept + SWEEP_EVERY {
            let live = |post: &Weak<Post>| post.strong_count() > 0;
            posts.by_name.retain(|_, same| same.iter().any(live));
            posts.swept = posts.by_name.len();
        }
        self.generation.fetch_add(1, Ordering::Release);
        post
    }

    /// The limit of this name that was put up last.
    pub fn find(&self, name: &str) -> Option<Arc<Post>> {
        let posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        let same = posts.by_name.get(name)?;
        same.iter().rev().find_map(Weak::upgrade)
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<Arc<Post>> {
        let posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        let last = |same: &Vec<Weak<Post>>| same.iter().rev().find_map(Weak::upgrade);
        posts.by_name.values().filter_map(last).collect()
    }

    /// Changes whenever a limit is put up.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// How a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How much it may use.
    pub limit: u64,
    /// How much of that it has used; above the limit when that was lowered, or costs came late.
    pub used: u64,
    /// What is left.
    pub remaining: u64,
    /// Until it is as good as new, or its window ends; 0 of requests at once.
    pub reset: Nanos,
    /// Whether another limit than the configured one is in force for the key.
    pub overridden: bool,
}

impl Engine {
    /// How a key stands under a rule, or under what replaces that for this key.
    pub fn standing(&self, counted: &Counted, key: Key, now: Nanos) -> Standing {
        let other = self.overrides().find(key, now);
        let overridden = other.is_some();
        match other.as_ref().unwrap_or(counted) {
            Counted::AtOnce(limit) => {
                let used = self.concurrency().count(key);
                Standing {
                    limit: *limit,
                    used,
                    remaining: limit.saturating_sub(used),
                    reset: 0,
                    overridden,
                }
            }
            Counted::Rate(rule) => {
                let decision = self.look(rule, key, now);
                let limit = rule.room(now);
                Standing {
                    limit,
                    used: limit.saturating_sub(decision.remaining),
                    remaining: decision.remaining,
                    reset: decision.reset,
                    overridden,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Ask};

    struct Fixed(u64);

    impl Counts for Fixed {
        fn about(&self) -> About {
            About::default()
        }
        fn key(&self, engine: &Engine, wanted: &Wanted) -> Result<Key, Unclear> {
            let [value] = wanted.values.as_slice() else {
                return Err(Unclear::Empty);
            };
            Ok(engine.key(1).bytes(value.as_bytes()).done())
        }
        fn counted(&self, wanted: &Wanted) -> Result<Counted, Unclear> {
            let count = wanted.count.unwrap_or(self.0);
            let fixed = Algorithm::Fixed { aligned: false };
            let rule = Rule::new(fixed, count, Duration::from_secs(60));
            rule.map(Counted::Rate)
                .map_err(|bad| Unclear::Rule(bad.to_string()))
        }
    }

    const NOW: Nanos = 1 << 57;

    fn post(engine: &Engine, name: &str) -> Arc<Post> {
        engine.desk().post(name.to_owned(), Box::new(Fixed(3)))
    }

    fn wanted(value: &str, count: Option<u64>) -> Wanted {
        Wanted {
            values: vec![value.to_owned()],
            count,
            ..Wanted::default()
        }
    }

    fn take(engine: &Engine, post: &Post, value: &str, now: Nanos) -> bool {
        let wanted = wanted(value, None);
        let key = post.counts().key(engine, &wanted).unwrap();
        let Ok(Counted::Rate(rule)) = post.counts().counted(&wanted) else {
            panic!("it counts requests in a time")
        };
        let ask = Ask {
            rule: &rule,
            key,
            cost: 1,
        };
        let (decision, _) = engine.take(&ask, now);
        post.note(&decision, decision.allowed, now, || value.to_owned());
        decision.allowed
    }

    fn standing(engine: &Engine, post: &Post, value: &str, now: Nanos) -> Standing {
        let wanted = wanted(value, None);
        let key = post.counts().key(engine, &wanted).unwrap();
        engine.standing(&post.counts().counted(&wanted).unwrap(), key, now)
    }

    #[test]
    fn a_limit_that_takes_the_place_of_another_goes_on_with_its_tally() {
        let engine = Engine::with_bytes(0);
        let first = post(&engine, "routes/1/limit/a");
        assert!(take(&engine, &first, "x", NOW));
        let second = post(&engine, "routes/1/limit/a");
        // One that is given up at once: it was not valid.
        drop(post(&engine, "routes/1/limit/a"));
        drop(first);
        assert!(take(&engine, &second, "x", NOW));
        let found = engine.desk().find("routes/1/limit/a").unwrap();
        assert_eq!(found.tally().count(Ended::Allow), 2);
        assert!(Arc::ptr_eq(&found, &second));
        let other = post(&engine, "routes/1/limit/b");
        let names: Vec<String> = engine
            .desk()
            .list()
            .iter()
            .map(|p| p.name().to_owned())
            .collect();
        assert_eq!(names, ["routes/1/limit/a", "routes/1/limit/b"]);
        drop((found, second, other));
        assert!(engine.desk().find("routes/1/limit/a").is_none());
        assert!(engine.desk().list().is_empty());
    }

    #[test]
    fn names_of_limits_that_are_gone_do_not_stay() {
        let engine = Engine::with_bytes(0);
        let kept = post(&engine, "kept");
        for n in 0..10_000 {
            drop(post(&engine, &format!("routes/{n}/limit/a")));
        }
        let posts = engine.desk().posts.lock().unwrap();
        assert!(posts.by_name.len() <= SWEEP_EVERY + 2);
        assert!(posts.by_name.contains_key(kept.name()));
    }

    #[test]
    fn a_key_is_looked_at_reset_and_given_another_limit_for_a_while() {
        let engine = Engine::with_bytes(0);
        let post = post(&engine, "routes/1/limit/a");
        let told = |value: &str, now| {
            let s = standing(&engine, &post, value, now);
            (s.limit, s.used, s.remaining, s.overridden)
        };
        assert_eq!(told("x", NOW), (3, 0, 3, false));
        (0..3).for_each(|_| assert!(take(&engine, &post, "x", NOW)));
        assert!(!take(&engine, &post, "x", NOW));
        assert_eq!(told("x", NOW), (3, 3, 0, false));
        assert_eq!(told("y", NOW), (3, 0, 3, false));
        let key = post.counts().key(&engine, &wanted("x", None)).unwrap();
        assert!(engine.forget(key));
        assert!(!engine.forget(key));
        assert_eq!(told("x", NOW), (3, 0, 3, false));
        (0..3).for_each(|_| assert!(take(&engine, &post, "x", NOW)));
        // Five instead of three, for a second, on what was counted.
        let five = post.counts().counted(&wanted("x", Some(5))).unwrap();
        let until = NOW + 1_000_000_000;
        engine
            .overrides()
            .replace([(key, (five, until))].into_iter().collect());
        assert_eq!(told("x", NOW), (5, 3, 2, true));
        let passed = (0..9).filter(|_| take(&engine, &post, "x", NOW)).count();
        assert_eq!(passed, 2);
        assert!((0..3).all(|_| take(&engine, &post, "y", NOW)));
        assert!(!take(&engine, &post, "y", NOW));
        // Then the configured one applies to what was counted.
        assert_eq!(told("x", until), (3, 3, 0, false));
        assert!(!take(&engine, &post, "x", until));
        engine.overrides().replace(Default::default());
        assert_eq!(told("x", NOW), (3, 3, 0, false));
        let top = post.tally().top(9, NOW).unwrap();
        assert_eq!((&*top[0].key, top[0].count), ("x", 9));
        assert_eq!((&*top[1].key, top[1].count), ("y", 1));
    }
}
