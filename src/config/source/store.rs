//! Resources from a store: everything once, then each change as it is written.
//!
//! A watch goes on until it breaks off, the store has forgotten what it asks for, or is older than
//! what was read of it; then everything is read and compared: what was missed is not known, and
//! numbers tell nothing once a store was restored. What did not change is not touched by that.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rand::RngExt;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Changes, Raw, Update};
use crate::config::graph::Change;
use crate::config::keyring::Keyring;
use crate::config::kind::{Key, Kind};
use crate::config::report::{Report, SharedReport};
use crate::store::{Event, Item, Listing, Mirror, Store, StoreError, Versions, WatchError};

/// Pause after a store could not be read, doubled each time: short enough that a restart of the
/// store is over unnoticed.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
/// Of a pause or a delay, how much more it may be at random: gateways that lose one store together
/// must not come back to it together.
const JITTER: f64 = 0.5;
/// How often it is compared whether what is in use is what the store holds. The watch tells of all
/// changes; this is for the day on which it does not, and costs the store a walk over its keys.
const CHECK_EVERY: Duration = Duration::from_secs(300);
/// How long a change may be on its way here, when there is nothing else to tell it from one that
/// was lost.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// A store as a source.
pub struct StoreSource {
    store: Arc<dyn Store>,
    keyring: Keyring,
    /// What was sent last.
    revision: u64,
    /// Which store that was, see [`Listing::identity`].
    identity: u64,
    state: State,
    /// The longest pause between tries, without jitter.
    resync: Duration,
    /// Where one is kept.
    mirror: Option<Arc<Mirror>>,
    check_every: Duration,
}

/// How what is in use stands to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is what was there at `revision`.
    Followed,
    /// It has to be read before it can be followed.
    Unread,
    /// The store is empty and was not: it is followed once something is written.
    Emptied,
}

/// Why a watch is over.
enum Ended {
    /// Nobody wants to know any more.
    Unneeded,
    /// The store does not go on.
    Watch(WatchError),
    /// Something is missing here, or too much.
    Differs(Arc<str>),
}

impl StoreSource {
    /// A source that was not read yet. `resync` is the longest pause between two tries.
    pub fn new(store: Arc<dyn Store>, keyring: Keyring, resync: Duration) -> StoreSource {
        StoreSource {
            store,
            keyring,
            revision: 0,
            identity: 0,
            state: State::Unread,
            resync: resync.max(AGAIN_FIRST),
            mirror: None,
            check_every: CHECK_EVERY,
        }
    }

    /// Keeps a mirror of the store; who takes the changes into use fills it.
    #[must_use]
    pub fn mirrored(mut self, mirror: Arc<Mirror>) -> StoreSource {
        self.mirror = Some(mirror);
        self
    }

    /// What is in use is of this revision of this store, and not what is there now.
    #[must_use]
    pub fn behind(mut self, revision: u64, identity: u64) -> StoreSource {
        (self.revision, self.identity) = (revision, identity);
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Reads everything in the store, and goes on from there. `None` when it is empty and must not
    /// be taken so: it is older than what was read before, or another.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&mut self) -> Result<Option<Changes>, StoreError> {
        let listing = self.store.list("").await?;
        let before = std::mem::replace(&mut self.revision, listing.revision);
        let known = std::mem::replace(&mut self.identity, listing.identity);
        let is_other = known != 0 && known != listing.identity;
        let went_back = listing.revision < before;
        if is_other || went_back {
            tracing::error!(
                before,
                now = listing.revision,
                "the store was restored or made anew: its revision went back, or it is another"
            );
        }
        let all = whole(&self.keyring, listing, self.mirror.is_some());
        let was_emptied = self.state == State::Emptied || is_other || went_back;
        if all.changes.is_empty() && was_emptied {
            self.state = State::Emptied;
            tracing::error!("the store is empty: what is in use stays until something is written");
            return Ok(None);
        }
        self.state = State::Followed;
        Ok(Some(all))
    }

    /// Sends changes until the receiver is gone. Reports whether the store can be reached.
    pub async fn run(mut self, out: mpsc::Sender<Update>, report: SharedReport) {
        let told = |tell: &dyn Fn(&mut Report)| {
            tell(&mut report.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let mut pause = AGAIN_FIRST;
        loop {
            match self.state {
                State::Unread => {}
                State::Followed | State::Emptied => {
                    match self.follow(&out, &mut pause).await {
                        Ended::Unneeded => return,
                        Ended::Differs(path) => {
                            tracing::error!(%path, "a change of the store was missed, everything is read");
                        }
                        Ended::Watch(error @ WatchError::Broken(_)) => {
                            tracing::error!(%error, "the store is out of reach, what is in use stays");
                            told(&|report| report.lost(&error.to_string()));
                            self.pause(&mut pause).await;
                            // Others lost it in the same moment.
                            tokio::time::sleep(self.share()).await;
                        }
                        Ended::Watch(error) => {
                            tracing::info!(%error, "everything is read");
                            tokio::time::sleep(self.share()).await;
                        }
                    }
                }
            }
            let all = loop {
                match self.read().await {
                    Ok(all) => break all,
                    Err(error) if out.is_closed() => {
                        tracing::debug!(error = %error.chain(), "no longer needed");
                        return;
                    }
                    Err(error) => {
                        tracing::error!(error = %error.chain(), "the store cannot be read");
                        told(&|report| report.lost(&error.chain()));
                        self.pause(&mut pause).await;
                    }
                }
            };
            told(&|report| report.found());
            match all {
                None => told(&|report| report.degrade(EMPTIED)),
                Some(all) => {
                    if out.send(Update::Whole(all)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Sends what changes.
    async fn follow(&mut self, out: &mpsc::Sender<Update>, pause: &mut Duration) -> Ended {
        let mut watch = match self.store.watch(self.revision).await {
            Ok(watch) => watch,
            Err(error) => return Ended::Watch(WatchError::Broken(error.chain())),
        };
        let is_emptied = self.state == State::Emptied;
        let mirror = self.mirror.clone().filter(|_| !is_emptied);
        let check = missed(&*self.store, mirror.as_deref(), self.check_every);
        let mut check = std::pin::pin!(check);
        loop {
            let (events, revision) = tokio::select! {
                next = watch.next() => match next {
                    Ok(next) => next,
                    Err(error) => return Ended::Watch(error),
                },
                path = &mut check => return Ended::Differs(path),
                () = out.closed() => return Ended::Unneeded,
            };
            *pause = AGAIN_FIRST;
            if is_emptied {
                if events.is_empty() {
                    continue;
                }
                return Ended::Watch(WatchError::Forgotten(revision));
            }
            self.revision = revision;
            let mut next = changes(&self.keyring, &events, revision);
            next.raw = self.mirror.as_ref().map(|_| Raw::Changes(events));
            if out.send(Update::Changes(next)).await.is_err() {
                return Ended::Unneeded;
            }
        }
    }

    async fn pause(&self, pause: &mut Duration) {
        let jitter = 1.0 + rand::rng().random_range(0.0..JITTER);
        tokio::time::sleep(pause.mul_f64(jitter)).await;
        *pause = (*pause * 2).min(self.resync);
    }

    /// A delay of one's own.
    fn share(&self) -> Duration {
        self.resync.mul_f64(rand::rng().random_range(0.0..JITTER))
    }
}

/// Why what is in use stays though the store holds something else.
pub const EMPTIED: &str =
    "the store is empty and was not before: what was in use stays until something is written";

/// Looks again and again whether a mirror is what the store holds. Ends with a path at which it is
/// not.
async fn missed(store: &dyn Store, mirror: Option<&Mirror>, every: Duration) -> Arc<str> {
    let Some(mirror) = mirror else {
        return std::future::pending().await;
    };
    loop {
        let jitter = 1.0 + rand::rng().random_range(0.0..JITTER);
        tokio::time::sleep(every.mul_f64(jitter)).await;
        let own = mirror.versions();
        let theirs = match store.versions(own.revision).await {
            Ok(Some(theirs)) => theirs,
            Ok(None) => return std::future::pending().await,
            Err(error) => {
                // The watch tells when the store is away.
                tracing::debug!(error = %error.chain(), "not compared with the store");
                continue;
            }
        };
        let Some(path) = difference(&own, &theirs) else {
            continue;
        };
        if theirs.revision != own.revision {
            // What makes the difference may be on its way.
            tokio::time::sleep(ON_ITS_WAY).await;
            if mirror.revision() != own.revision {
                continue;
            }
        }
        return path;
    }
}

/// The first path at which two have something else. `None` when both are the same.
fn difference(own: &Versions, theirs: &Versions) -> Option<Arc<str>> {
    let (mut own, mut theirs) = (own.items.iter(), theirs.items.iter());
    loop {
        match (own.next(), theirs.next()) {
            (None, None) => return None,
            (Some(a), Some(b)) if a == b => {}
            (Some((a, _)), Some((b, _))) => return Some(Arc::clone(a.min(b))),
            (Some((path, _)), None) | (None, Some((path, _))) => return Some(Arc::clone(path)),
        }
    }
}

/// The resources of items, in the order in which they were made: where routes are equal the older
/// one wins, before and after a restart.
pub fn resources(keyring: &Keyring, items: &[Item]) -> Vec<Change> {
    let mut items: Vec<&Item> = items.iter().collect();
    items.sort_by_key(|item| item.created);
    let keyed = items.into_iter().filter_map(|item| resource(keyring, item));
    let keyed = keyed.enumerate();
    keyed
        .map(|(at, (key, value))| Change::Put(key, value, Some(at)))
        .collect()
}

fn whole(keyring: &Keyring, listing: Listing, raw: bool) -> Changes {
    Changes {
        changes: resources(keyring, &listing.items),
        revision: listing.revision,
        raw: raw.then_some(Raw::Whole(listing)),
    }
}

/// What happened, each resource once: with what became of it last. What went and came back is a
/// deletion and a new one: it stands behind the others, as it does when the two come apart. What was
/// made together is in the order of paths, as it is when everything is read.
fn changes(keyring: &Keyring, events: &[Event], revision: u64) -> Changes {
    let mut changes: Vec<Change> = Vec::with_capacity(events.len());
    // Whether what a resource came to is that it is there, and no more is known of before.
    let mut there: rustc_hash::FxHashMap<Key, bool> = Default::default();
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| match event {
        Event::Put(item) => (item.modified, &item.path),
        Event::Gone(path, revision) => (*revision, path),
    });
    for event in events.into_iter().rev() {
        let (key, change) = match event {
            Event::Put(item) => match resource(keyring, item) {
                Some((key, value)) => (key.clone(), Change::Put(key, value, None)),
                None => continue,
            },
            Event::Gone(path, _) => match Key::from_path(path) {
                Some(key) => (key.clone(), Change::Delete(key)),
                None => continue,
            },
        };
        let is_put = matches!(change, Change::Put(..));
        match there.get_mut(&key) {
            None => {
                there.insert(key, is_put);
                changes.push(change);
            }
            Some(there) if *there && !is_put => {
                *there = false;
                changes.push(change);
            }
            Some(_) => {}
        }
    }
    changes.reverse();
    Changes {
        changes,
        revision,
        raw: None,
    }
}

/// What an item is to the gateway. A text that is no JSON becomes null, which no resource is, so
/// that it is reported and its previous version stays.
fn resource(keyring: &Keyring, item: &Item) -> Option<(Key, Arc<Value>)> {
    let key = Key::from_path(&item.path)?;
    let mut value = serde_json::from_str(&item.text).unwrap_or(Value::Null);
    keyring.open(&key, &mut value);
    if key.kind == Kind::Credential
        && let Some(id) = value.get_mut("id")
    {
        // Stored under its short id; the gateway knows credentials by the whole one.
        *id = Value::from(&*key.id);
    }
    Some((key, Arc::new(value)))
}

#[cfg(test)]
mod tests;
