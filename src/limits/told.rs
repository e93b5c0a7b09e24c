//! Answers about limits: which there are, how a key stands, who was refused.

use std::fmt::Display;
use std::time::Duration;

use lockgate_limit::{Counted, Ended, Key, Nanos, Post, Standing, Unclear};
use lockgate_plugin::{Problem, Problems};
use serde_json::{Map, Value, json};

use super::wish::{Named, masked};
use super::{Desk, now};
use crate::config::looked_at::reads_secret;

/// Limits that are listed at once: `rule` asks for some of them.
const MOST_LISTED: usize = 1_000;
/// Keys of which it is told how often they were refused, unless another number is asked for.
const USUAL_TOP: usize = 20;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NotTold {
    /// No limit has this name.
    Unknown(String),
    /// The question is not clear.
    Unclear(Problems),
    /// Whoever counts does not answer.
    Away(String),
}

impl NotTold {
    fn away() -> NotTold {
        NotTold::Away("gateways count it together, and it cannot be looked at from here".to_owned())
    }
}

impl From<Unclear> for NotTold {
    fn from(unclear: Unclear) -> NotTold {
        let place = match &unclear {
            Unclear::Values { .. } | Unclear::Address(_) | Unclear::Empty => "key",
            Unclear::Within(name) | Unclear::Number(name) => name,
            Unclear::Rule(_) => "limit",
        };
        NotTold::Unclear(Problem::new(place, unclear.to_string()).into())
    }
}

impl Desk {
    /// The limit of a name.
    pub(crate) fn post(&self, rule: &str) -> Result<std::sync::Arc<Post>, NotTold> {
        let unknown = || NotTold::Unknown(rule.chars().take(200).collect());
        self.engine.desk().find(rule).ok_or_else(unknown)
    }

    /// The limits whose names begin so.
    pub(crate) fn list(&self, beginning: &str) -> Value {
        let posts = self.engine.desk().list();
        let fitting = || {
            posts
                .iter()
                .filter(|post| post.name().starts_with(beginning))
        };
        let shown = fitting().take(MOST_LISTED).map(|post| shown(post));
        let now = now(&self.engine);
        let stats = self.engine.stats(now);
        json!({
            "gateway": &*self.hostname,
            "limits": shown.collect::<Vec<Value>>(),
            "left_out": fitting().count().saturating_sub(MOST_LISTED),
            "table": {
                "live": stats.live,
                "room": stats.room,
                "exact": stats.exact,
                "unseen": stats.unseen,
                "evicted": stats.evicted,
            },
        })
    }

    /// How a key stands.
    pub(crate) async fn show(&self, rule: &str, named: &Named) -> Result<Value, NotTold> {
        let post = self.post(rule)?;
        let mut wanted = named.wanted();
        let now = now(&self.engine);
        let key = post.counts().key(&self.engine, &wanted)?;
        if post.counts().is_shared()
            && let Some(Counted::Rate(rule)) = self.engine.overrides().find(key, now)
        {
            wanted.count = Some(rule.limit());
        }
        let standing = match post.counts().shared() {
            Some(shared) => shared
                .standing(&wanted, now)?
                .await
                .map_err(NotTold::Away)?,
            None if post.counts().is_shared() => return Err(NotTold::away()),
            None => {
                let counted = post.counts().counted(&wanted)?;
                self.engine.standing(&counted, key, now)
            }
        };
        let mut told = words(&post);
        told.insert("gateway".to_owned(), json!(&*self.hostname));
        self.put_standing(&mut told, &standing, (key, now));
        Ok(Value::Object(told))
    }

    fn put_standing(&self, told: &mut Map<String, Value>, standing: &Standing, of: (Key, Nanos)) {
        let instead = self.engine.overrides().until(of.0, of.1);
        let left = instead.map(|until| seconds(until.saturating_sub(of.1)));
        let Standing {
            limit,
            used,
            remaining,
            reset,
            ..
        } = standing;
        for (name, value) in [
            ("allowed", json!(limit)),
            ("used", json!(used)),
            ("remaining", json!(remaining)),
            ("reset_seconds", json!(seconds(*reset))),
            ("override_seconds_left", json!(left)),
        ] {
            told.insert(name.to_owned(), value);
        }
    }

    /// Forgets what a key has used; says whether anything was known.
    pub(crate) async fn reset(&self, rule: &str, named: &Named) -> Result<bool, NotTold> {
        let post = self.post(rule)?;
        let wanted = named.wanted();
        let key = post.counts().key(&self.engine, &wanted)?;
        let known = self.engine.forget(key);
        match post.counts().shared() {
            None if post.counts().is_shared() => Err(NotTold::away()),
            None => Ok(known),
            Some(shared) => {
                let reset = shared.reset(&wanted, now(&self.engine))?;
                Ok(reset.await.map_err(NotTold::Away)? | known)
            }
        }
    }

    /// Whether keys of a limit are shown whole: not where they may be what clients prove themselves with.
    /// Of a limit that is not in use nobody knows.
    pub(crate) fn shows_keys(&self, rule: &str) -> bool {
        let post = self.post(rule);
        post.is_ok_and(|post| !reads_secret(&post.counts().about().key))
    }

    /// Who was refused most lately; `whole` with keys as they are, where they are no secrets.
    pub(crate) fn top(
        &self,
        rule: &str,
        args: &[(String, String)],
        whole: bool,
    ) -> Result<Value, NotTold> {
        let mut most = USUAL_TOP;
        let mut out = Problems::default();
        for (name, value) in args {
            match (name.as_str(), value.parse()) {
                ("n", Ok(n)) if (1..=MOST_LISTED).contains(&n) => most = n,
                ("n", _) => out.add("n", format!("expected a number from 1 to {MOST_LISTED}")),
                ("api_key", _) => {}
                _ => out.push(Problem::new("", "unknown argument").hint("allowed: n")),
            }
        }
        out.into_result().map_err(NotTold::Unclear)?;
        let post = self.post(rule)?;
        let top = post.tally().top(most, now(&self.engine));
        let whole = whole && self.shows_keys(rule);
        let list = top.iter().flatten().map(|refused| {
            json!({
                "key": if whole { refused.key.to_string() } else { masked(&refused.key) },
                "refused": refused.count,
                "at_least": refused.count - refused.over,
            })
        });
        Ok(json!({
            "gateway": &*self.hostname,
            "rule": post.name(),
            "kept": top.is_some(),
            "top": list.collect::<Vec<Value>>(),
        }))
    }
}

/// What is said of a limit whichever key is meant.
fn words(post: &Post) -> Map<String, Value> {
    let about = post.counts().about();
    let text = |text: &dyn Display| Value::String(text.to_string());
    [
        ("rule", text(&post.name())),
        ("limit", text(&about.limit)),
        ("key", text(&about.key)),
        ("scope", text(&about.scope)),
        ("mode", text(&about.mode)),
        ("why", text(&about.why)),
        ("bound", text(&about.bound)),
        ("dry_run", json!(about.dry_run)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn shown(post: &Post) -> Value {
    let mut told = words(post);
    let tally = post.tally();
    let counts = Ended::ALL.map(|ended| (ended, tally.count(ended)));
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts: Map<String, Value> = counts
        .map(|(ended, count)| (ended.name().to_owned(), json!(count)))
        .collect();
    told.insert("decisions".to_owned(), Value::Object(counts));
    told.insert("near".to_owned(), json!(tally.near()));
    Value::Object(told)
}

fn seconds(nanos: Nanos) -> f64 {
    let millis = Duration::from_nanos(nanos).as_millis();
    millis as f64 / 1000.0
}
