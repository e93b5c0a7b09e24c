//! A change that goes back by itself: unless somebody confirms it in time, or as soon as its routes
//! fail more than before.
//!
//! That it waits is in the store, written in the transaction of the change. Whoever is alive at the
//! deadline takes it back, after a restart, too; of several gateways on one store one does, because
//! each insists that the change still waits.

use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::Problems;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Notify, RwLock};

use super::draft::Rules;
use super::history::{self, Author, Limits};
use super::way_back::{self, Insists};
use crate::config::catalogue::Catalogue;
use crate::config::keyring::Keyring;
use crate::observe::recent::{Recent, Routes, Share};
use crate::store::{Commit, Guard, Item, Op, Store, StoreError, Txn};

/// Where the store has it.
pub const PATH: &str = "lockgate/pending";
/// How often the failures are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often a shared store is asked whether another gateway's change waits, which may be gone by
/// its deadline.
const ASK: Duration = Duration::from_secs(5);
/// The clock is looked at this often at least: it may have been set.
const LONGEST: Duration = Duration::from_secs(60);
/// After a failure of the store.
const AGAIN: Duration = Duration::from_secs(2);
/// After a write of another gateway came in between: as often as that happened already, up to
/// [`AGAIN`]. Every try reads the whole store.
const REFUSED: Duration = Duration::from_millis(100);
/// Answers below which a share of failures says nothing.
const FEWEST_ANSWERS: u64 = 20;

/// A change that waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pending {
    /// When it goes back, in milliseconds since 1970.
    pub deadline: u64,
    /// Where its entry in the history is.
    pub entry: String,
    /// The routes it touches; all without a list.
    pub routes: Option<Vec<String>>,
    /// How many percentage points the share of 5xx among their answers may rise.
    pub error_rise: Option<f64>,
    /// How they were answered before, as far as the gateway that made the change has seen.
    pub before: Share,
}

impl Pending {
    /// The write that makes it wait.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn op(&self) -> Result<Op, StoreError> {
        let text = serde_json::to_string(self);
        Ok(Op::Put {
            path: PATH.to_owned(),
            text: text.map_err(|e| StoreError::new("what waits cannot be written", e))?,
            ttl: None,
        })
    }

    /// As JSON. `revision` is that of the change.
    pub fn shown(&self, revision: u64, now: u64) -> Value {
        json!({
            "revision": revision,
            "goes_back_at": history::time(self.deadline),
            "seconds_left": self.deadline.saturating_sub(now) / 1000,
            "routes": self.routes,
            "error_rise_percent": self.error_rise,
            "before": self.before,
        })
    }
}

/// What the store says of a change that waits.
pub struct Waiting {
    /// The revision of the change, which wrote that it waits.
    pub revision: u64,
    /// When it goes back; why not, where that is not readable. It waits all the same, until somebody
    /// confirms it or takes it back.
    pub pending: Result<Pending, serde_json::Error>,
}

impl Waiting {
    /// As JSON.
    pub fn shown(&self, now: u64) -> Value {
        match &self.pending {
            Ok(pending) => pending.shown(self.revision, now),
            Err(error) => json!({
                "revision": self.revision,
                "error": format!("it does not go back by itself: what is kept of it is not readable: {error}"),
            }),
        }
    }
}

/// The change that waits, if one does.
///
/// # Errors
/// When the store cannot be read.
pub async fn read(store: &dyn Store) -> Result<Option<Waiting>, StoreError> {
    let item = store.get(PATH).await?;
    Ok(item.map(|item| Waiting {
        revision: item.modified,
        pending: serde_json::from_str(&item.text),
    }))
}

/// Watches over what waits.
pub struct Confirmations {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What is encrypted there.
    pub keyring: Keyring,
    /// The plugins.
    pub catalogue: Catalogue,
    /// How much history is kept.
    pub limits: Limits,
    /// Counts failures.
    pub recent: Arc<Recent>,
    /// Told when something began or ceased to wait.
    pub wake: Arc<Notify>,
    /// Held by every write of this process, which would come in between; alone while something goes
    /// back.
    pub writes: Arc<RwLock<()>>,
}

impl Confirmations {
    /// Never ends.
    pub async fn run(self) {
        let mut refused = 0;
        loop {
            let pause = match self.look(history::now(), refused).await {
                Ok(Some(pause)) => {
                    // What goes on at once may be the next part of what was refused before.
                    if !pause.is_zero() {
                        refused = 0;
                    }
                    pause
                }
                Ok(None) => {
                    refused += 1;
                    after_refusals(refused)
                }
                Err(error) => {
                    tracing::warn!(error = %error.chain(), "changes that wait cannot be looked after");
                    AGAIN
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Takes back what has to go; gives how long nothing will have to be done;
    /// `None` when something else was written in between, as before `refused` times.
    async fn look(&self, now: u64, refused: u32) -> Result<Option<Duration>, StoreError> {
        let Some(Waiting { revision, pending }) = read(&*self.store).await? else {
            self.recent.stop();
            let shared = self.store.is_shared();
            return Ok(Some(if shared { ASK } else { LONGEST }));
        };
        let pending = match pending {
            Ok(pending) => pending,
            Err(error) => {
                tracing::error!(
                    revision,
                    %error,
                    "a change does not go back by itself: what is kept of it is not readable; \
                     confirm it or take it back"
                );
                return Ok(Some(LONGEST));
            }
        };
        let mut why = None;
        if now >= pending.deadline {
            why = Some("it was not confirmed in time".to_owned());
        } else if let Some(rise) = pending.error_rise {
            let routes = || Routes::new(pending.routes.as_deref());
            let after = self.recent.count(revision, routes);
            why = risen(pending.before, after, rise);
        }
        let Some(why) = why else {
            let left = Duration::from_millis(pending.deadline - now);
            let most = if pending.error_rise.is_some() {
                LOOK
            } else {
                LONGEST
            };
            return Ok(Some(left.min(most)));
        };
        // In the order of asking: however much is written, its turn comes.
        let _alone = self.writes.write().await;
        let insists = Insists::after(refused);
        Ok(
            match self.go_back(revision, &pending, &why, insists).await? {
                // There may be more of it.
                Commit::Done(_) => Some(Duration::ZERO),
                // Confirmed in this moment, or something else was written: look again.
                Commit::Refused => None,
            },
        )
    }

    async fn go_back(
        &self,
        revision: u64,
        pending: &Pending,
        why: &str,
        insists: Insists,
    ) -> Result<Commit, StoreError> {
        let now = history::now();
        let listing = self.store.list("").await?;
        let found = history::at(&*self.store, &pending.entry).await?;
        // Nothing is known of it when somebody removed the history, or it is not readable.
        let known = found.as_ref().map(|found| &found.entry);
        let rules = Rules {
            keyring: &self.keyring,
            catalogue: &self.catalogue,
            // It was served before.
            check: &|_, _| Problems::default(),
            now: now / 1000,
        };
        let back = known.and_then(|entry| way_back::draft_of(entry, revision, &listing, &rules));
        let Some((draft, mut left)) = back else {
            return self.give_up(revision, why, now).await;
        };
        let part = way_back::first(&draft, insists);
        let (mut txn, more) = (part.txn, part.more);
        left.extend(part.left);
        if txn.ops.is_empty() {
            txn.guards.clear();
        }
        txn.guards.push(Guard::Modified(PATH.to_owned(), revision));
        if !more {
            txn.ops.push(Op::Delete(PATH.to_owned()));
        }
        let mut comment = format!("the change of revision {revision} went back: {why}");
        if more {
            comment.push_str("; others write all the time: this is a part of it");
        }
        if !left.is_empty() {
            comment.push_str("; it stays, because it was changed since or is in use: ");
            comment.push_str(&left.join(", "));
        }
        let author = Author {
            action: "went back".to_owned(),
            comment: Some(comment),
            now,
            ..Author::default()
        };
        let olds = draft.olds();
        let old = |path: &str| olds.get(path).map(|old| Item::clone(old));
        history::record_known(&*self.store, self.limits, &mut txn, &author, old).await?;
        let done = self.store.commit(txn).await?;
        if let Commit::Done(now) = done {
            let resources = draft.steps.len();
            if !more {
                self.recent.stop();
            }
            tracing::warn!(
                revision,
                now,
                resources,
                more,
                left = %left.join(", "),
                "a change went back by itself: {why}"
            );
        }
        Ok(done)
    }

    /// What was there before is not known: everything stays, and no longer waits.
    async fn give_up(&self, revision: u64, why: &str, now: u64) -> Result<Commit, StoreError> {
        let mut txn = Txn::delete(PATH).when(Guard::Modified(PATH.to_owned(), revision));
        let author = Author {
            action: "could not go back".to_owned(),
            comment: Some(format!(
                "the change of revision {revision} had to go back ({why}) and stays: \
                 what was there before is not in the history"
            )),
            now,
            ..Author::default()
        };
        history::record_known(&*self.store, self.limits, &mut txn, &author, |_| None).await?;
        let done = self.store.commit(txn).await?;
        if let Commit::Done(now) = done {
            self.recent.stop();
            tracing::error!(
                revision,
                now,
                "a change could not go back by itself and stays, because what was there before is \
                 not in the history: {why}"
            );
        }
        Ok(done)
    }
}

/// How long to wait before the next try.
fn after_refusals(times: u32) -> Duration {
    REFUSED.saturating_mul(times).min(AGAIN)
}

/// Why a change has to go back, when its routes fail more than before.
fn risen(before: Share, after: Share, rise: f64) -> Option<String> {
    let enough = after.answers >= FEWEST_ANSWERS;
    // Of few answers before, each that is missing may have been a failure: what failed all the time
    // is no reason to go back.
    let missing = FEWEST_ANSWERS.saturating_sub(before.answers);
    let worst = Share {
        answers: before.answers.saturating_add(missing),
        errors: before.errors.saturating_add(missing),
    };
    (enough && after.percent() > worst.percent() + rise).then(|| {
        format!(
            "5xx rose from {:.1}% (of {} answers) to {:.1}% (of {})",
            before.percent(),
            before.answers,
            after.percent(),
            after.answers
        )
    })
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn tries_become_rarer() {
        let waits = [1, 2, 19, 20, 21, u32::MAX].map(|times| after_refusals(times).as_millis());
        assert_eq!(waits, [100, 200, 1900, 2000, 2000, 2000]);
    }

    #[test]
    fn a_rise_needs_answers() {
        let share = |answers, errors| Share { answers, errors };
        let check = |before, after, rise, expected: bool| {
            assert_eq!(
                risen(before, after, rise).is_some(),
                expected,
                "{before:?} {after:?}"
            );
        };
        check(share(0, 0), share(19, 19), 5.0, false);
        check(share(0, 0), share(20, 2), 5.0, false);
        check(share(0, 0), share(20, 20), 0.0, false);
        check(share(6, 0), share(25, 10), 5.0, false);
        check(share(6, 0), share(25, 25), 5.0, true);
        check(share(19, 0), share(20, 2), 5.0, false);
        check(share(19, 0), share(20, 3), 5.0, true);
        check(share(20, 0), share(20, 1), 5.0, false);
        check(share(20, 0), share(20, 2), 5.0, true);
        check(share(100, 10), share(100, 15), 5.0, false);
        check(share(100, 10), share(100, 16), 5.0, true);
        check(share(100, 50), share(100, 1), 0.0, false);
    }
}
