//! Consumers of a snapshot, by name and by what a request presents.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use lockgate_plugin::{ConsumerCredential, Consumers};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::compile::plan::Instances;

/// The plugins a consumer brings to the routes it uses. Credentials are not among them.
#[derive(Clone)]
pub struct ConsumerPlugins {
    /// The consumer's own.
    pub own: Instances,
    /// Its group's.
    pub group: Option<Instances>,
    /// The consumer names a group that does not exist: its requests get 503.
    pub missing_group: bool,
}

impl ConsumerPlugins {
    /// Whether the consumer changes no plan.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.group.as_ref().is_none_or(|group| group.is_empty())
    }

    /// Whether some plugin looks into the request body.
    pub fn need_body(&self) -> bool {
        let group = self.group.iter().flat_map(|group| group.iter());
        self.own.iter().chain(group).any(|i| i.needs_body())
    }
}

/// A consumer by name.
#[derive(Clone)]
pub struct ConsumerEntry {
    /// What `anonymous_consumer` attaches.
    pub identity: Arc<ConsumerCredential>,
    /// What it brings.
    pub plugins: Arc<ConsumerPlugins>,
}

/// All consumers. A clone is cheap, and a change copies a small part of it.
#[derive(Clone, Default)]
pub struct ConsumerTable {
    names: Shards<Arc<str>, ConsumerEntry>,
    /// One table for each authentication plugin; there are few.
    keys: Vec<(Box<str>, Shards<Box<str>, Holders>)>,
}

/// The credentials with one lookup key, in the order of [`rank`]. The last one is used; there is
/// hardly ever another, but when the last one goes, the one before it has to be found again.
type Holders = SmallVec<[Arc<ConsumerCredential>; 1]>;

/// By names, so that the winner does not depend on the order of arrival.
fn rank(credential: &ConsumerCredential) -> (&str, Option<&str>) {
    (
        &credential.consumer.username,
        credential.credential_id.as_deref(),
    )
}

impl ConsumerTable {
    /// Adds or replaces a consumer.
    pub fn insert(&mut self, name: Arc<str>, entry: ConsumerEntry) {
        self.names.insert(name, entry);
    }

    /// Removes a consumer. Its credentials are removed one by one with [`Self::forget`].
    pub fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Adds a credential under its lookup key; of two with the same key the one wins whose
    /// consumer's name, then credential id, is the greater.
    pub fn learn(&mut self, plugin: &str, key: &str, credential: Arc<ConsumerCredential>) {
        let at = match self.keys.iter().position(|(name, _)| &**name == plugin) {
            Some(at) => at,
            None => {
                self.keys.push((plugin.into(), Shards::default()));
                self.keys.len() - 1
            }
        };
        let holders = self.keys[at].1.entry(key.into()).or_default();
        let place = holders.partition_point(|held| rank(held) <= rank(&credential));
        holders.insert(place, credential);
    }

    /// Removes this very credential from under its key.
    pub fn forget(&mut self, plugin: &str, key: &str, credential: &Arc<ConsumerCredential>) {
        let table = self.keys.iter_mut().find(|(name, _)| &**name == plugin);
        let Some((_, table)) = table else { return };
        let Some(holders) = table.get(key) else {
            return;
        };
        match holders
            .iter()
            .position(|held| Arc::ptr_eq(held, credential))
        {
            None => {}
            Some(_) if holders.len() == 1 => table.remove(key),
            Some(at) => drop(table.entry(key.into()).or_default().remove(at)),
        }
    }

    /// What a consumer brings to routes.
    pub fn plugins(&self, name: &str) -> Option<&Arc<ConsumerPlugins>> {
        self.names.get(name).map(|entry| &entry.plugins)
    }

    /// Names and lookup keys in a stable order, for comparing tables.
    pub fn describe(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .names
            .iter()
            .map(|(name, entry)| {
                let names =
                    |list: &Instances| -> Vec<&str> { list.iter().map(|i| i.def.name).collect() };
                let group = entry.plugins.group.as_ref().map(names);
                format!("consumer {name}: {:?} {group:?}", names(&entry.plugins.own))
            })
            .chain(self.keys.iter().flat_map(|(plugin, table)| {
                table
                    .iter()
                    .map(move |(key, found)| format!("credential {plugin} {key}: {found:?}"))
            }))
            .collect();
        lines.sort();
        lines
    }
}

impl Consumers for ConsumerTable {
    fn by_key(&self, plugin: &str, key: &str) -> Option<&Arc<ConsumerCredential>> {
        let (_, table) = self.keys.iter().find(|(name, _)| &**name == plugin)?;
        table.get(key)?.last()
    }

    fn by_name(&self, name: &str) -> Option<&Arc<ConsumerCredential>> {
        self.names.get(name).map(|entry| &entry.identity)
    }
}

/// A hash map in parts: cloning it copies pointers, changing it copies one part.
#[derive(Clone)]
struct Shards<K, V> {
    parts: Arc<[Arc<Part<K, V>>]>,
}

type Part<K, V> = HashMap<K, V, FxBuildHasher>;

/// With 100,000 entries a change copies about 400 of them.
const PARTS: usize = 256;

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        // All parts start as the same empty map.
        let empty = Arc::new(Part::default());
        Shards {
            parts: (0..PARTS).map(|_| Arc::clone(&empty)).collect(),
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Shards<K, V> {
    fn of<Q: Hash + ?Sized>(key: &Q) -> usize {
        // The low bits choose the bucket inside a part, so take others here.
        (FxBuildHasher.hash_one(key) >> 48) as usize % PARTS
    }

    fn edit(&mut self, part: usize) -> &mut Part<K, V> {
        Arc::make_mut(&mut Arc::make_mut(&mut self.parts)[part])
    }

    fn insert(&mut self, key: K, value: V) {
        let part = Self::of(&key);
        self.edit(part).insert(key, value);
    }

    fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        let part = Self::of(&key);
        self.edit(part).entry(key)
    }

    fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
    {
        let part = Self::of(key);
        if self.parts[part].contains_key(key) {
            self.edit(part).remove(key);
        }
    }

    fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.parts[Self::of(key)].get(key)
    }

    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| part.iter())
    }
}
