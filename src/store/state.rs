//! What a store within this process knows: every item, the counter, and the latest changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::{Event, Guard, Item, Listing, OWN, Op, Txn, WatchError};

/// Changes that are kept for watches. The one that follows the gateway's configuration reads within
/// milliseconds; one that stays further behind lists again.
const REMEMBERED: usize = 4096;

/// Seconds since 1970.
pub(super) type Seconds = u64;

/// See the module.
#[derive(Default)]
pub(super) struct State {
    items: BTreeMap<Arc<str>, Held>,
    revision: u64,
    /// When something ends, soonest first.
    ends: BTreeSet<(Seconds, Arc<str>)>,
    /// The last revision that put something below a segment.
    put_last: HashMap<String, u64>,
    recent: VecDeque<(u64, Event)>,
    /// The revision before the oldest change in `recent`.
    forgotten: u64,
}

struct Held {
    text: Arc<str>,
    created: u64,
    modified: u64,
    ends: Option<Seconds>,
}

/// A write with everything that is known of it: what goes to disk.
pub(super) enum Write {
    Put { item: Item, ends: Option<Seconds> },
    Delete(Arc<str>),
}

impl Write {
    pub(super) fn path(&self) -> &str {
        match self {
            Write::Put { item, .. } => &item.path,
            Write::Delete(path) => path,
        }
    }
}

impl State {
    /// With items that were kept, and the last revision.
    pub(super) fn restore(items: Vec<(Item, Option<Seconds>)>, revision: u64) -> State {
        let mut state = State {
            revision,
            forgotten: revision,
            ..State::default()
        };
        for (item, ends) in items {
            state.insert(&item, ends);
        }
        state
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, path: &str) -> Option<Item> {
        let (path, held) = self.items.get_key_value(path)?;
        Some(held.item(path))
    }

    pub(super) fn list(&self, prefix: &str) -> Listing {
        let below = self.below(prefix);
        Listing {
            items: below.map(|(path, held)| held.item(path)).collect(),
            revision: self.revision,
            identity: 0,
        }
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a Arc<str>, &'a Held)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let from = self.items.range::<str, _>(from);
        from.take_while(move |(path, _)| path.starts_with(prefix))
            .filter(move |(path, _)| prefix.starts_with(OWN) || !path.starts_with(OWN))
    }

    pub(super) fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Absent(path) => !self.items.contains_key(path.as_str()),
            Guard::Present(path) => self.items.contains_key(path.as_str()),
            Guard::Modified(path, revision) => self
                .items
                .get(path.as_str())
                .is_some_and(|held| held.modified == *revision),
            Guard::Unchanged(segment, since) => {
                self.put_last.get(*segment).is_none_or(|last| last <= since)
            }
        }
    }

    /// What the operations come to as the next revision. Empty when they change nothing.
    pub(super) fn plan(&self, ops: Vec<Op>, now: Seconds) -> Vec<Write> {
        let next = self.revision + 1;
        let mut writes: Vec<Write> = Vec::new();
        for op in ops {
            match op {
                Op::Put { path, text, ttl } => {
                    let created = self.items.get(path.as_str()).map(|held| held.created);
                    writes.push(Write::Put {
                        item: Item {
                            path: path.into(),
                            text: text.into(),
                            created: created.unwrap_or(next),
                            modified: next,
                        },
                        // The second that has begun does not count.
                        ends: ttl.map(|ttl| now.saturating_add(whole_seconds(ttl) + 1)),
                    });
                }
                Op::Delete(path) => {
                    if let Some((path, _)) = self.items.get_key_value(path.as_str()) {
                        writes.push(Write::Delete(Arc::clone(path)));
                    }
                }
                Op::DeleteAll(prefix) => {
                    let below = self.below(&prefix);
                    writes.extend(below.map(|(path, _)| Write::Delete(Arc::clone(path))));
                }
            }
        }
        writes
    }

    /// Carries out what was planned.
    pub(super) fn apply(&mut self, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        self.revision += 1;
        for write in writes {
            let event = match write {
                Write::Put { item, ends } => {
                    self.insert(&item, ends);
                    Event::Put(item)
                }
                Write::Delete(path) => {
                    self.remove(&path);
                    Event::Gone(path, self.revision)
                }
            };
            if !event.path().starts_with(OWN) {
                self.recent.push_back((self.revision, event));
            }
        }
        while self.recent.len() > REMEMBERED {
            // All of one revision together: a watch must not get half of it.
            let Some((oldest, _)) = self.recent.pop_front() else {
                break;
            };
            while self.recent.front().is_some_and(|(next, _)| *next == oldest) {
                self.recent.pop_front();
            }
            self.forgotten = oldest;
        }
    }

    fn insert(&mut self, item: &Item, ends: Option<Seconds>) {
        let segment = segment(&item.path);
        match self.put_last.get_mut(segment) {
            Some(last) => *last = (*last).max(item.modified),
            None => {
                self.put_last.insert(segment.to_owned(), item.modified);
            }
        }
        self.remove(&item.path);
        if let Some(at) = ends {
            self.ends.insert((at, Arc::clone(&item.path)));
        }
        let held = Held {
            text: Arc::clone(&item.text),
            created: item.created,
            modified: item.modified,
            ends,
        };
        self.items.insert(Arc::clone(&item.path), held);
    }

    fn remove(&mut self, path: &Arc<str>) {
        if let Some(held) = self.items.remove(path)
            && let Some(at) = held.ends
        {
            self.ends.remove(&(at, Arc::clone(path)));
        }
    }

    /// What happened after a revision.
    pub(super) fn since(&self, after: u64) -> Result<Vec<Event>, WatchError> {
        if after < self.forgotten {
            return Err(WatchError::Forgotten(after));
        }
        let from = self.recent.partition_point(|(at, _)| *at <= after);
        let events = self.recent.range(from..);
        Ok(events.map(|(_, event)| event.clone()).collect())
    }

    /// When the next item has had its time.
    pub(super) fn next_end(&self) -> Option<Seconds> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Deletions of what has had its time, unless it is written anew before that.
    pub(super) fn ended(&self, now: Seconds) -> Txn {
        let mut txn = Txn {
            guards: Vec::new(),
            ops: Vec::new(),
        };
        for (_, path) in self.ends.iter().take_while(|(at, _)| *at <= now) {
            if let Some(held) = self.items.get(path) {
                txn.guards
                    .push(Guard::Modified(path.to_string(), held.modified));
                txn.ops.push(Op::Delete(path.to_string()));
            }
        }
        txn
    }
}

impl Held {
    fn item(&self, path: &Arc<str>) -> Item {
        Item {
            path: Arc::clone(path),
            text: Arc::clone(&self.text),
            created: self.created,
            modified: self.modified,
        }
    }
}

/// What [`Guard::Unchanged`] calls the place of a path.
fn segment(path: &str) -> &str {
    let skipped = if path.starts_with(OWN) { OWN.len() } else { 0 };
    let end = path[skipped..].find('/').map(|end| skipped + end);
    &path[..end.unwrap_or(path.len())]
}

/// At least one: what was asked to end is not kept forever.
fn whole_seconds(ttl: Duration) -> Seconds {
    (ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).max(1)
}
