//! Limits over HTTP, below `/lockgate/v1/limits`. A limit is named by its resource, its plugin and itself:
//! `routes/1/limit/client`.
//!
//! | request | answer |
//! |---|---|
//! | `GET limits?rule=BEGINNING` | which there are, what became of requests, the table, the overrides |
//! | `GET limits/RULE?key=...` | how a key stands |
//! | `DELETE limits/RULE?key=...` | it begins anew |
//! | `GET limits/RULE/top?n=20` | whom it refused most lately |
//! | `PUT limits/RULE/override` | another limit for a key until a time: `{key, limit, until}` |
//! | `DELETE limits/RULE/override?key=...` | that ends |

use std::time::Duration;

use lockgate_limit::Key;
use serde_json::{Value, json};

use super::access::Role;
use super::changes::{Ended, body, refused};
use super::request::Request;
use super::write::{Failure, TRIES};
use super::{Admin, IN_USE_LIMIT};
use crate::changes::history::{self, now};
use crate::endpoint::Answer;
use crate::limits::keeping::{self, Held, MOST_OVERRIDES};
use crate::limits::told::NotTold;
use crate::limits::wish::{Instead, Named};
use crate::store::{Commit, Guard, Op, Txn};

/// How often it is looked whether an override is in force.
const LOOK: Duration = Duration::from_millis(5);

const NOT_FOUND: &str = "not found: a limit is named by its resource, its plugin and itself, as \
                         limits/routes/1/limit/client; below it there are top and override";

impl From<NotTold> for Failure {
    fn from(why: NotTold) -> Failure {
        Failure::Answer(match why {
            NotTold::Unknown(name) => {
                let text = format!("no limit in use is called `{name}`: GET limits lists them");
                Answer::error(404, text)
            }
            NotTold::Unclear(problems) => refused(&problems),
            NotTold::Away(why) => Answer::error(503, why),
        })
    }
}

impl Admin {
    /// Answers below `/lockgate/v1/limits`.
    pub(super) async fn limits(&self, request: &Request) -> Ended<Answer> {
        let below: Vec<&str> = request
            .segments
            .iter()
            .skip(1)
            .map(String::as_str)
            .collect();
        let (rule, below) = match below.as_slice() {
            [] | [""] if request.method == "GET" => return self.list_limits(request).await,
            [kind, id, plugin, name] => (format!("{kind}/{id}/{plugin}/{name}"), None),
            [kind, id, plugin, name, below] => {
                (format!("{kind}/{id}/{plugin}/{name}"), Some(*below))
            }
            _ => return Err(Answer::error(404, NOT_FOUND).into()),
        };
        match (request.method.as_str(), below) {
            ("GET", None) => {
                let named = named(request)?;
                let told = self.desk.show(&rule, &named).await?;
                Ok(Answer::json(200, told.to_string()))
            }
            ("DELETE", None) => self.reset_limit(request, &rule).await,
            ("GET", Some("top")) => {
                let told = self.desk.top(&rule, request.args(), whole(request))?;
                Ok(Answer::json(200, told.to_string()))
            }
            ("PUT", Some("override")) => self.override_limit(request, &rule).await,
            ("DELETE", Some("override")) => self.end_override(request, &rule).await,
            _ => Err(Answer::error(404, NOT_FOUND).into()),
        }
    }

    async fn list_limits(&self, request: &Request) -> Ended<Answer> {
        let mut told = self.desk.list(request.arg("rule").unwrap_or_default());
        // Without its store a gateway counts, and tells what it counts.
        let held = keeping::overrides(&*self.store, now() / 1_000).await;
        told["overrides"] = match held {
            Ok(held) => held
                .iter()
                .map(|held| held.shown(whole(request) && self.desk.shows_keys(&held.rule)))
                .collect(),
            Err(_) => Value::Null,
        };
        Ok(Answer::json(200, told.to_string()))
    }

    async fn reset_limit(&self, request: &Request, rule: &str) -> Ended<Answer> {
        let named = named(request)?;
        let post = self.desk.post(rule)?;
        let elsewhere = self.store.is_shared() && !post.counts().is_shared();
        let everywhere = match elsewhere {
            true => self.reset_everywhere(rule, &named).await?,
            false => false,
        };
        let known = match everywhere {
            // Each gateway does it once, this one, too.
            true => None,
            false => Some(self.desk.reset(rule, &named).await?),
        };
        let by = request.who.as_deref().unwrap_or("somebody");
        tracing::info!(
            limit = rule,
            key = named.masked(),
            by,
            "a key of a limit begins anew"
        );
        let gateways = if everywhere || post.counts().is_shared() {
            "all"
        } else {
            "this one"
        };
        let body = json!({ "rule": rule, "reset": true, "was_known": known, "gateways": gateways });
        Ok(Answer::json(200, body.to_string()))
    }

    /// Says in the store that a key begins anew; whether that could be said.
    async fn reset_everywhere(&self, rule: &str, named: &Named) -> Ended<bool> {
        let post = self.desk.post(rule)?;
        let wanted = named.wanted();
        let key = post.counts().key(&self.desk.engine, &wanted);
        key.map_err(NotTold::from)?;
        let said = async {
            if !self.store.keeps_own().await? {
                return Ok(false);
            }
            let txn = Txn::of(keeping::reset(rule, named)?);
            Ok::<_, crate::store::StoreError>(matches!(
                self.store.commit(txn).await?,
                Commit::Done(_)
            ))
        };
        Ok(match said.await {
            Ok(said) => {
                self.limits_wake.notify_one();
                said
            }
            // Better here than nowhere.
            Err(error) => {
                tracing::warn!(error = %error.chain(), "a key of a limit begins anew on this gateway only");
                false
            }
        })
    }

    async fn override_limit(&self, request: &Request, rule: &str) -> Ended<Answer> {
        let instead = Instead::read(&body(request)?, now() / 1_000).map_err(|p| refused(&p))?;
        let post = self.desk.post(rule)?;
        if !post.counts().takes_overrides() {
            let text = "gateways count it together, where all keys have the configured limit";
            return Err(Answer::bad(text).into());
        }
        let mut wanted = instead.named.wanted();
        wanted.count = Some(instead.limit);
        let key = post.counts().key(&self.desk.engine, &wanted);
        let key = key.map_err(NotTold::from)?;
        post.counts().counted(&wanted).map_err(NotTold::from)?;
        if !self.store.keeps_own().await? {
            let text = "nothing can be overridden: this store keeps nothing of lockgate's own";
            return Err(Answer::bad(text).into());
        }
        let held = Held::new(rule, &instead, request.who.clone());
        let path = Held::path(rule, &instead.named);
        let what = format!(
            "override {rule} {}: {} until {}",
            instead.named.masked(),
            instead.limit,
            history::time(instead.until.saturating_mul(1_000))
        );
        let _turn = self.turns.alone().await;
        for _ in 0..TRIES {
            let there = self.store.list(&path).await?.items.pop();
            let others = keeping::overrides(&*self.store, now() / 1_000).await?;
            if there.is_none() && others.len() >= MOST_OVERRIDES {
                let text = format!(
                    "{MOST_OVERRIDES} keys have another limit already: change the configuration"
                );
                return Err(Answer::error(409, text).into());
            }
            let guard = match &there {
                Some(item) => Guard::Modified(path.clone(), item.modified),
                None => Guard::Absent(path.clone()),
            };
            let op = held.op(now() / 1_000)?;
            if let Some(revision) = self.say(op, guard, (request, what.clone())).await? {
                self.until_in_force(key, true).await;
                let mut told = held.shown(true);
                told["revision"] = json!(revision);
                return Ok(Answer::json(200, told.to_string()));
            }
        }
        Err(Answer::error(503, "others write all the time: try again").into())
    }

    async fn end_override(&self, request: &Request, rule: &str) -> Ended<Answer> {
        let named = named(request)?;
        let path = Held::path(rule, &named);
        let what = format!("override {rule} {}: ended", named.masked());
        let _turn = self.turns.alone().await;
        for _ in 0..TRIES {
            let Some(item) = self.store.get(&path).await? else {
                let text = "this key has the configured limit; name it as it was named when it was overridden";
                return Err(Answer::error(404, text).into());
            };
            let guard = Guard::Modified(path.clone(), item.modified);
            let op = Op::Delete(path.clone());
            if let Some(revision) = self.say(op, guard, (request, what.clone())).await? {
                // A limit that is gone has no key to wait for.
                if let Ok(post) = self.desk.post(rule)
                    && let Ok(key) = post.counts().key(&self.desk.engine, &named.wanted())
                {
                    self.until_in_force(key, false).await;
                }
                let body = json!({ "rule": rule, "ended": true, "revision": revision });
                return Ok(Answer::json(200, body.to_string()));
            }
        }
        Err(Answer::error(503, "others write all the time: try again").into())
    }

    /// Writes, with an entry in the history; `None` when somebody was faster.
    async fn say(
        &self,
        op: Op,
        guard: Guard,
        (request, what): (&Request, String),
    ) -> Ended<Option<u64>> {
        let mut txn = Txn::of(op).when(guard);
        let author = request.author(what, None);
        history::record_known(&*self.store, self.history, &mut txn, &author, |_| None).await?;
        Ok(match self.store.commit(txn).await? {
            Commit::Done(revision) => {
                self.limits_wake.notify_one();
                Some(revision)
            }
            Commit::Refused => None,
        })
    }

    /// Waits a moment until requests see that a key has another limit, or no longer.
    async fn until_in_force(&self, key: Key, wanted: bool) {
        let engine = &self.desk.engine;
        let wait = async {
            while engine
                .overrides()
                .until(key, crate::limits::now(engine))
                .is_some()
                != wanted
            {
                tokio::time::sleep(LOOK).await;
            }
        };
        // What takes longer is in force a little later.
        let _ = tokio::time::timeout(IN_USE_LIMIT, wait).await;
    }
}

/// Whether keys are shown whole: viewers need not know whose they are.
fn whole(request: &Request) -> bool {
    request.role == Role::Admin
}

fn named(request: &Request) -> Ended<Named> {
    Named::of_args(request.args()).map_err(|problems| refused(&problems).into())
}
