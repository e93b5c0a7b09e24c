//! lockgate's own part of the Admin API, below `/lockgate/v1`: changes one can trust.
//!
//! | request | answer |
//! |---|---|
//! | `POST plan` | what an order would change, field by field; a viewer may ask, too |
//! | `POST apply` | the same, carried out: all of it or nothing |
//! | `GET requests` | the latest requests, which plans are tried on |
//! | `GET history`, `GET history/N` | who changed what when |
//! | `POST rollback` | back to a revision, or one change taken back |
//! | `GET confirm`, `POST confirm` | what goes back by itself, and that it stays |
//! | `limits` | see [`limits`](super::limits) |

use std::sync::Arc;

use lockgate_plugin::{Problem, Problems};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::Admin;
use super::request::Request;
use super::rollback::{Rollback, shown_strangers};
use super::write::{Failure, TRIES};
use crate::changes::draft::{Draft, Rules, draft};
use crate::changes::history::{self, Author, Generation, Kept, strangers};
use crate::changes::outcomes::{Corpus, located};
use crate::changes::pending::{self, Pending};
use crate::changes::{Confirm, Drafted, Format, Want, affected, order};
use crate::endpoint::Answer;
use crate::observe::recent::{Routes, Sample};
use crate::store::{Commit, Guard, Item, Listing, Op, Store, StoreError};

pub(super) type Ended<T> = Result<T, Failure>;

/// Keeps the number of plans down that are worked on; held by the work, which goes on when nobody waits
/// for it any more.
type Permit = Option<Arc<OwnedSemaphorePermit>>;

/// What an order asks for.
struct Wanted {
    wants: Vec<Want>,
    /// What it does not name goes.
    whole: Option<Format>,
}

/// What is done besides the changes themselves.
struct Around<'a> {
    author: &'a Author,
    confirm: Option<Confirm>,
    /// What waits already, and ceases to.
    settles: Option<u64>,
}

impl Admin {
    /// Answers below `/lockgate/v1`.
    pub(super) async fn own(&self, request: &Request) -> Answer {
        let method = request.method.as_str();
        let done = match (method, request.segment(0), request.segment(1)) {
            ("POST", Some("plan"), None) => self.plan(request).await,
            ("POST", Some("apply"), None) => self.apply(request).await,
            ("GET", Some("requests"), None) => Ok(self.list_requests()),
            ("GET", Some("history"), None) => self.list_history().await,
            ("GET", Some("history"), Some(revision)) => self.show_history(revision).await,
            ("POST", Some("rollback"), None) => self.rollback(request).await,
            ("GET", Some("confirm"), None) => self.show_pending().await,
            ("POST", Some("confirm"), None) => self.confirm(request).await,
            (_, Some("limits"), _) => self.limits(request).await,
            _ => Err(Answer::error(404, NOT_FOUND).into()),
        };
        match done {
            Ok(answer) | Err(Failure::Answer(answer)) => answer.unversioned(),
            Err(Failure::Store(error)) => super::unavailable(&error).unversioned(),
        }
    }

    async fn plan(&self, request: &Request) -> Ended<Answer> {
        let order = order(&body(request)?).map_err(|p| refused(&p))?;
        let listing = Arc::new(self.store.list("").await?);
        if let Some(expected) = order.expected {
            self.not_moved(expected, &listing).await?;
        }
        // Changes do not wait for plans: they take their turn alone, and hold it until they are made.
        let permit = Arc::clone(&self.plans).acquire_owned().await;
        let permit = permit.ok().map(Arc::new);
        let wanted = Wanted {
            wants: order.wants,
            whole: order.whole,
        };
        let drafted = self
            .drafted(wanted, &listing, request.now, permit.clone())
            .await?;
        let mut answer = drafted.shown();
        answer["requests"] = self
            .outcomes(drafted, order.requests, listing, permit)
            .await?;
        Ok(Answer::json(200, answer.to_string()))
    }

    /// Which of the requests that are given, or were seen lately, would come to something else.
    async fn outcomes(
        &self,
        drafted: Drafted,
        given: Option<Vec<String>>,
        listing: Arc<Listing>,
        permit: Permit,
    ) -> Ended<Value> {
        let corpus = match (&given, &self.recent) {
            (Some(lines), _) => Corpus::of_lines("given", lines.iter().map(String::as_str)),
            (None, Some(recent)) => {
                let lines: Vec<String> = recent.samples().iter().map(Sample::question).collect();
                Corpus::of_lines("recent", lines.iter().map(String::as_str))
            }
            (None, None) => Corpus::default(),
        };
        if corpus.is_empty() {
            return Ok(Value::Null);
        }
        let (trial, keyring) = (Arc::clone(&self.trial), self.keyring.clone());
        let tried = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            let steps = &drafted.draft.steps;
            let outcome = trial.run(&listing, &keyring, steps, &corpus);
            outcome.map_err(|problems| told(drafted.format, located(problems, steps)))
        });
        let tried = tried
            .await
            .map_err(|e| StoreError::new("the change was not tried", e))?;
        Ok(tried.map_err(|problems| refused(&problems))?)
    }

    async fn apply(&self, request: &Request) -> Ended<Answer> {
        self.writes_singly()?;
        let order = order(&body(request)?).map_err(|p| refused(&p))?;
        let author = request.author("apply".to_owned(), order.comment.clone());
        let turn = self.turns.alone().await;
        for _ in 0..TRIES {
            let listing = Arc::new(self.store.list("").await?);
            if let Some(expected) = order.expected {
                self.not_moved(expected, &listing).await?;
            }
            let wanted = Wanted {
                wants: order.wants.clone(),
                whole: order.whole,
            };
            let drafted = self.drafted(wanted, &listing, request.now, None).await?;
            let around = Around {
                author: &author,
                confirm: order.confirm,
                settles: None,
            };
            if let Some(revision) = self.carry_out(&drafted, &around).await? {
                drop(turn);
                let answer = self.carried_out(&drafted, revision, order.confirm).await;
                return Ok(Answer::json(200, answer.to_string()));
            }
        }
        Err(Answer::error(503, "others write all the time: try again").into())
    }

    async fn rollback(&self, request: &Request) -> Ended<Answer> {
        self.writes_singly()?;
        let wish = Rollback::read(&body(request)?).map_err(|p| refused(&p))?;
        let turn = self.turns.alone().await;
        for _ in 0..TRIES {
            let listing = Arc::new(self.store.list("").await?);
            if let Some(expected) = wish.expected {
                self.not_moved(expected, &listing).await?;
            }
            let known = history::generations(&*self.store).await?;
            let unrecorded = history::unrecorded(&*self.store).await?;
            let wants = wish.wants(&known, unrecorded, &listing);
            let (line, wants) = wants.map_err(|p| refused(&p))?;
            let strangers = wish.to.map(|to| strangers(&known, to, &listing, &wants));
            let wanted = Wanted { wants, whole: None };
            let drafted = self.drafted(wanted, &listing, request.now, None).await?;
            let author = request.author(line, wish.comment.clone());
            let waits = pending::read(&*self.store).await?;
            let waits = waits.map(|waiting| waiting.revision);
            let around = Around {
                author: &author,
                confirm: None,
                // What is taken back need not be confirmed.
                settles: waits.filter(|revision| wish.covers(*revision)),
            };
            if let Some(revision) = self.carry_out(&drafted, &around).await? {
                drop(turn);
                let mut answer = self.carried_out(&drafted, revision, None).await;
                if let Some(strangers) = strangers {
                    answer["not_in_history"] = shown_strangers(&strangers);
                }
                return Ok(Answer::json(200, answer.to_string()));
            }
        }
        Err(Answer::error(503, "others write all the time: try again").into())
    }

    /// Makes a draft, beside the thread that serves the Admin API: of a large order it takes a while.
    async fn drafted(
        &self,
        Wanted { wants, whole }: Wanted,
        listing: &Arc<Listing>,
        now: u64,
        permit: Permit,
    ) -> Ended<Drafted> {
        let (checker, keyring) = (Arc::clone(&self.checker), self.keyring.clone());
        let listing = Arc::clone(listing);
        let made = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            let rules = Rules {
                keyring: &keyring,
                catalogue: checker.catalogue(),
                check: &|key, value| checker.problems(key, value),
                now,
            };
            let draft = draft(wants, whole, &listing, &rules)?;
            let routes = affected(&draft.steps, &listing, &rules);
            Ok::<_, Problems>(Drafted {
                draft,
                routes,
                format: whole,
            })
        });
        let made = made
            .await
            .map_err(|e| StoreError::new("the order was not worked out", e))?;
        Ok(made.map_err(|problems| refused(&told(whole, problems)))?)
    }

    /// Writes a draft; gives the revision. `None` when something was written in between.
    async fn carry_out(&self, drafted: &Drafted, around: &Around<'_>) -> Ended<Option<u64>> {
        let draft = &drafted.draft;
        if draft.steps.is_empty() && around.settles.is_none() {
            return Ok(Some(draft.revision));
        }
        fits(draft, &*self.store)?;
        let mut txn = draft.txn();
        let waits = Guard::Absent(pending::PATH.to_owned());
        if let Some(revision) = around.settles {
            txn.guards
                .push(Guard::Modified(pending::PATH.to_owned(), revision));
            txn.ops.push(Op::Delete(pending::PATH.to_owned()));
        }
        let olds = draft.olds();
        let old = |path: &str| olds.get(path).map(|old| Item::clone(old));
        let (store, limits) = (&*self.store, self.history);
        let entry = history::record_known(store, limits, &mut txn, around.author, old).await?;
        if let Some(confirm) = around.confirm {
            if let Some(waiting) = pending::read(store).await? {
                let text = format!(
                    "revision {} waits for its confirmation: confirm it or go back first",
                    waiting.revision
                );
                return Err(Answer::error(409, text).into());
            }
            let Some(entry) = entry else {
                let text = "nothing can go back by itself: this store keeps no history";
                return Err(Answer::bad(text).into());
            };
            if entry.kept == Kept::Nothing {
                let text = "what was there before is too large for the history, and the change could not go back \
                            by itself: make it in parts, or without a confirmation";
                return Err(Answer::bad(text).into());
            }
            txn.guards.push(waits);
            // Its time begins now, however long it waited for its turn.
            let now = history::now();
            txn.ops
                .push(self.pending(drafted, confirm, entry.path, now).op()?);
        }
        Ok(match self.store.commit(txn).await? {
            Commit::Done(revision) => {
                // At once: whoever asked may be gone before requests see the change.
                if around.confirm.is_some() || around.settles.is_some() {
                    self.wake.notify_one();
                }
                Some(revision)
            }
            Commit::Refused => None,
        })
    }

    fn pending(&self, drafted: &Drafted, confirm: Confirm, entry: String, now: u64) -> Pending {
        let routes = drafted.routes.clone();
        let recent = self.recent.as_ref();
        let before = recent.map(|recent| recent.share(&Routes::new(routes.as_deref())));
        Pending {
            deadline: now.saturating_add(confirm.within_seconds.saturating_mul(1000)),
            entry,
            routes,
            error_rise: confirm.error_rise,
            before: before.unwrap_or_default(),
        }
    }

    /// The answer to what was carried out, once requests see it.
    async fn carried_out(
        &self,
        drafted: &Drafted,
        revision: u64,
        confirm: Option<Confirm>,
    ) -> Value {
        let changed = !drafted.draft.steps.is_empty();
        if changed {
            self.in_use(revision).await;
        }
        let mut answer = drafted.shown();
        answer["revision"] = json!(revision);
        if let (Some(confirm), true) = (confirm, changed) {
            answer["confirm"] = json!({ "within_seconds": confirm.within_seconds,
                "error_rise_percent": confirm.error_rise });
        }
        answer
    }

    fn list_requests(&self) -> Answer {
        let kept = self.recent.iter().flat_map(|recent| recent.samples());
        let shown = |sample: Sample| {
            json!({
                "time": history::time(sample.at),
                "request": sample.line(),
                "headers": sample.fields,
                "route": sample.route,
                "status": sample.status,
            })
        };
        let list: Vec<Value> = kept.map(shown).collect();
        Answer::json(200, json!({ "requests": list }).to_string())
    }

    async fn list_history(&self) -> Ended<Answer> {
        let known = history::generations(&*self.store).await?;
        let listing = self.store.list("").await?;
        let list = history::summaries(&known, &listing, history::now());
        let body = json!({ "revision": listing.revision, "history": list });
        Ok(Answer::json(200, body.to_string()))
    }

    async fn show_history(&self, revision: &str) -> Ended<Answer> {
        let known = history::generations(&*self.store).await?;
        let found = known.iter().find(|g| g.revision.to_string() == revision);
        match found {
            Some(found) => Ok(Answer::json(200, found.shown(&self.keyring).to_string())),
            None => {
                let text = format!("no change in the history has the revision {revision}");
                Err(Answer::error(404, text).into())
            }
        }
    }

    async fn show_pending(&self) -> Ended<Answer> {
        let waits = pending::read(&*self.store).await?;
        let waits = waits.map(|waiting| waiting.shown(history::now()));
        Ok(Answer::json(200, json!({ "waits": waits }).to_string()))
    }

    async fn confirm(&self, request: &Request) -> Ended<Answer> {
        let body = match request.body.is_empty() {
            true => json!({}),
            false => body(request)?,
        };
        let wanted = body.get("revision").filter(|value| !value.is_null());
        let _turn = self.turns.alone().await;
        for _ in 0..TRIES {
            let Some(waiting) = pending::read(&*self.store).await? else {
                let text = "nothing waits for a confirmation: it was confirmed, or went back";
                return Err(Answer::error(404, text).into());
            };
            let revision = waiting.revision;
            if wanted.is_some_and(|wanted| wanted.as_u64() != Some(revision)) {
                let text = format!("what waits for a confirmation is revision {revision}");
                return Err(Answer::error(409, text).into());
            }
            let mut txn = crate::store::Txn::delete(pending::PATH)
                .when(Guard::Modified(pending::PATH.to_owned(), revision));
            let author = request.author(format!("confirm {revision}"), None);
            let (store, limits) = (&*self.store, self.history);
            history::record_known(store, limits, &mut txn, &author, |_| None).await?;
            if let Commit::Done(now) = self.store.commit(txn).await? {
                self.wake.notify_one();
                let body = json!({ "confirmed": revision, "revision": now });
                return Ok(Answer::json(200, body.to_string()));
            }
        }
        Err(Answer::error(503, "others write all the time: try again").into())
    }

    /// Where the whole configuration is sent by one client, others would only be in its way.
    fn writes_singly(&self) -> Ended<()> {
        if self.standalone.is_some() {
            let text = "the whole configuration is sent by PUT /apisix/admin/configs here: \
                        change it where it comes from";
            return Err(Answer::bad(text).into());
        }
        Ok(())
    }

    /// Refuses when something was written after a revision.
    async fn not_moved(&self, expected: u64, listing: &Listing) -> Ended<()> {
        if expected > listing.revision {
            let now = listing.revision;
            let text = format!("revision {expected} is not there yet; the store is at {now}");
            return Err(Answer::error(409, text).into());
        }
        let known = history::generations(&*self.store).await?;
        let later = known.iter().rev().find(|g| g.revision > expected);
        let mut what = later.map(|g| {
            let Generation {
                revision, entry, ..
            } = g;
            let who = entry.key.as_deref().unwrap_or("somebody");
            let when = history::time(entry.at);
            format!("revision {revision}, {} by {who} at {when}", entry.action)
        });
        if what.is_none() {
            let items = listing.items.iter();
            let item = items.max_by_key(|item| item.modified);
            let item = item.filter(|item| item.modified > expected);
            what = item.map(|item| format!("revision {}, {}", item.modified, item.path));
        }
        match what {
            None => Ok(()),
            Some(what) => {
                let body = json!({
                    "error_msg": format!("the configuration has changed since revision {expected}: {what}"),
                    "expected_revision": expected,
                    "revision": listing.revision,
                });
                Err(Answer::json(409, body.to_string()).into())
            }
        }
    }
}

const NOT_FOUND: &str =
    "not found: try plan, apply, history, rollback, confirm, requests, limits, explain";

pub(super) fn body(request: &Request) -> Result<Value, Answer> {
    request
        .document()?
        .ok_or_else(|| Answer::bad("invalid request body: empty request body"))
}

/// Whether a store takes a change at once. It is made as a whole or not at all, so it is not split.
fn fits(draft: &Draft, store: &dyn Store) -> Result<(), Answer> {
    let refuse = |has: String, most: usize, by: &str| {
        let text = format!(
            "the change has {has}, of which this store takes {most} at once ({by}): make it in parts"
        );
        Err(Answer::bad(text))
    };
    match (store.largest_write(), store.most_changes()) {
        (Some((most, by)), _) if draft.bytes() > most => {
            refuse(format!("{} bytes", draft.bytes()), most, by)
        }
        (_, Some((most, by))) if draft.steps.len() > most => {
            refuse(format!("{} resources", draft.steps.len()), most, by)
        }
        _ => Ok(()),
    }
}

/// Problems at the places of what was sent.
fn told(format: Option<Format>, problems: Problems) -> Problems {
    match format {
        Some(format) => format.told(problems),
        None => problems,
    }
}

/// What is wrong, with every place.
pub(super) fn refused(problems: &Problems) -> Answer {
    let list: Vec<Value> = problems
        .iter()
        .map(|p| json!({ "path": p.path, "message": p.message, "hint": p.hint }))
        .collect();
    let first = problems.iter().next().map(Problem::to_string);
    let mut text = first.unwrap_or_default();
    if problems.len() > 1 {
        text.push_str(&format!("; and {} more", problems.len() - 1));
    }
    Answer::json(
        400,
        json!({ "error_msg": text, "problems": list }).to_string(),
    )
}
