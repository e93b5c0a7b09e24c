//! What this process has of a store that is somewhere else.
//!
//! The configuration in use comes from here after the store has gone away: each resource as the
//! store has it, and where that was refused the version before, which is the one in use. Who writes
//! is the one task that changes the configuration; others read.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::watch;

use super::{Event, Item, Listing, Versions};

/// See the module.
pub struct Mirror {
    held: RwLock<Held>,
    /// Counts changes of what is good.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Held {
    items: BTreeMap<Arc<str>, Entry>,
    revision: u64,
    identity: u64,
}

struct Entry {
    now: Item,
    good: Good,
}

/// Which version of a resource is in use.
enum Good {
    Now,
    Before(Item),
    None,
}

/// What is in use, to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// In the order of their paths.
    pub items: Vec<Item>,
    /// The revision of the store that was read last.
    pub revision: u64,
    /// Which store it was, see [`Listing::identity`].
    pub identity: u64,
}

impl Default for Mirror {
    fn default() -> Mirror {
        Mirror {
            held: RwLock::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl Mirror {
    /// The store holds exactly this. `is_taken` tells of a path whether its resource was accepted.
    pub fn replace(&self, listing: Listing, is_taken: impl Fn(&str) -> bool) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut held.items);
        for item in listing.items {
            let old = before.remove(&item.path);
            held.put(item, old, &is_taken);
        }
        held.revision = listing.revision;
        held.identity = listing.identity;
        drop(held);
        self.changes.send_modify(|count| *count += 1);
    }

    /// This has changed in the store, and it is at this revision now.
    pub fn change(&self, events: Vec<Event>, revision: u64, is_taken: impl Fn(&str) -> bool) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.revision = revision;
        let is_change = !events.is_empty();
        for event in events {
            match event {
                Event::Put(item) => {
                    let old = held.items.remove(&item.path);
                    held.put(item, old, &is_taken);
                }
                Event::Gone(path, _) => {
                    held.items.remove(&path);
                }
            }
        }
        drop(held);
        if is_change {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Tells when what is in use has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is in use.
    pub fn accepted(&self) -> Accepted {
        let held = self.held();
        let good = held.items.values().filter_map(|entry| match &entry.good {
            Good::Now => Some(entry.now.clone()),
            Good::Before(item) => Some(item.clone()),
            Good::None => None,
        });
        Accepted {
            items: good.collect(),
            revision: held.revision,
            identity: held.identity,
        }
    }

    /// What the store holds below a prefix, as far as is known.
    pub fn list(&self, prefix: &str) -> Listing {
        let held = self.held();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let from = held.items.range::<str, _>(from);
        Listing {
            items: from
                .take_while(|(path, _)| path.starts_with(prefix))
                .map(|(_, entry)| entry.now.clone())
                .collect(),
            revision: held.revision,
            identity: held.identity,
        }
    }

    /// All paths in the order in which what is there was made.
    pub fn order(&self) -> Vec<Arc<str>> {
        let held = self.held();
        let mut order: Vec<(u64, Arc<str>)> = held
            .items
            .iter()
            .map(|(path, entry)| (entry.now.created, Arc::clone(path)))
            .collect();
        order.sort_by_key(|(created, _)| *created);
        order.into_iter().map(|(_, path)| path).collect()
    }

    /// The revision of the store that is known.
    pub fn revision(&self) -> u64 {
        self.held().revision
    }

    /// What is there without the texts.
    pub fn versions(&self) -> Versions {
        let held = self.held();
        let of = |(path, entry): (&Arc<str>, &Entry)| (Arc::clone(path), entry.now.modified);
        Versions {
            items: held.items.iter().map(of).collect(),
            revision: held.revision,
        }
    }

    /// The last revision that changed something below each first segment.
    pub fn indexes(&self) -> BTreeMap<Box<str>, u64> {
        let mut out: BTreeMap<Box<str>, u64> = BTreeMap::new();
        for (path, entry) in &self.held().items {
            let segment = path.split('/').next().unwrap_or_default();
            match out.get_mut(segment) {
                Some(last) => *last = (*last).max(entry.now.modified),
                None => {
                    out.insert(segment.into(), entry.now.modified);
                }
            }
        }
        out
    }

    fn held(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn put(&mut self, item: Item, old: Option<Entry>, is_taken: impl Fn(&str) -> bool) {
        let good = if is_taken(&item.path) {
            Good::Now
        } else {
            match old {
                Some(Entry {
                    now,
                    good: Good::Now,
                }) => Good::Before(now),
                Some(Entry { good, .. }) => good,
                None => Good::None,
            }
        };
        let path = Arc::clone(&item.path);
        self.items.insert(path, Entry { now: item, good });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(path: &str, text: &str, modified: u64) -> Item {
        Item {
            path: path.into(),
            text: text.into(),
            created: 1,
            modified,
        }
    }

    fn put(path: &str, text: &str, modified: u64) -> Event {
        Event::Put(item(path, text, modified))
    }

    fn shown(mirror: &Mirror) -> Vec<String> {
        let items = mirror.accepted().items;
        let shown = |item: Item| format!("{}={}@{}", item.path, item.text, item.modified);
        items.into_iter().map(shown).collect()
    }

    #[test]
    fn what_is_refused_leaves_the_version_before() {
        let mirror = Mirror::default();
        let listing = |items, revision| Listing {
            items,
            revision,
            identity: 7,
        };
        let all = vec![item("routes/a", "1", 1), item("routes/b", "1", 2)];
        mirror.replace(listing(all, 2), |path| path != "routes/b");
        assert_eq!(shown(&mirror), ["routes/a=1@1"]);
        // Twice refused: the version that was taken stays.
        let none = |_: &str| false;
        mirror.change(vec![put("routes/a", "2", 3)], 3, none);
        mirror.change(
            vec![put("routes/a", "3", 4), put("routes/b", "2", 4)],
            4,
            none,
        );
        assert_eq!(shown(&mirror), ["routes/a=1@1"]);
        // The same over a whole list, and what is gone is gone.
        let all = vec![item("routes/a", "4", 5), item("gen_id", "1", 3)];
        mirror.replace(listing(all, 6), none);
        assert_eq!(shown(&mirror), ["routes/a=1@1"]);
        assert_eq!(mirror.list("routes/").items, [item("routes/a", "4", 5)]);
        mirror.change(vec![put("routes/a", "5", 7)], 7, |_| true);
        assert_eq!(shown(&mirror), ["routes/a=5@7"]);
        let indexes: Vec<_> = mirror.indexes().into_iter().collect();
        assert_eq!(indexes, [("gen_id".into(), 3), ("routes".into(), 7)]);
        mirror.change(vec![Event::Gone("routes/a".into(), 8)], 8, |_| true);
        assert_eq!(mirror.accepted().items, []);
        assert_eq!((mirror.revision(), mirror.accepted().identity), (8, 7));
    }

    #[test]
    fn only_changes_wake_who_keeps_them() {
        let mirror = Mirror::default();
        let changes = mirror.changes();
        mirror.change(Vec::new(), 9, |_| true);
        assert!(!changes.has_changed().unwrap());
        mirror.change(vec![put("a/b", "", 10)], 10, |_| true);
        assert!(changes.has_changed().unwrap());
    }
}
