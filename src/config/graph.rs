//! All resources, what refers to what, and what a change makes necessary.
//!
//! The graph belongs to the writer task. [`Graph::apply`] takes a set of changes,
//! compiles what they touch and nothing else, and gives the next snapshot.
//! Everything untouched is the same `Arc` in it as before: plugin instances,
//! upstreams, other routes.

mod certs;
mod consumers;
mod ranks;
mod routes;
mod unknown;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lockgate_plugin::{Problem, Problems};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::compile::instance::Workshop;
use super::compile::plan::{Instances, Level, Plan};
use super::consumers::ConsumerTable;
use super::decode::{Resource, decode, fingerprint};
use super::kind::{Key, Kind};
use super::looked_at::LookedAt;
use super::resource::{Ssl, Upstream as UpstreamResource};
use super::snapshot::Snapshot;
use crate::pace::Pace;
use crate::router::{Mode, Router};
use crate::tls::{SniEntry, SniTable};
use crate::upstream::{Resolver, Upstream};

use certs::ClientCerts;
use consumers::{ConsumerNode, CredentialNode};
use routes::RouteNode;

/// A change of one resource.
pub enum Change {
    /// It is there with this content, at this position among all of its source. Without a position
    /// it stays where it was, or is the last.
    Put(Key, Arc<Value>, Option<usize>),
    /// It did not change, and is at this position among all of its source.
    Stay(Key, usize),
    /// It is gone.
    Delete(Key),
}

impl Change {
    /// The resource.
    pub fn key(&self) -> &Key {
        match self {
            Change::Put(key, ..) | Change::Stay(key, _) | Change::Delete(key) => key,
        }
    }
}

/// What came of a set of changes.
#[derive(Default)]
pub struct Applied {
    /// The next snapshot; `None` when nothing changed.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Resources that were not taken, with everything that is wrong with them. Their previous
    /// versions, where there are any, stay.
    pub problems: Problems,
    /// Accepted, but not what one may think.
    pub warnings: Problems,
    /// Resources that were added, changed or removed.
    pub changed: Vec<Key>,
    /// Routes that were compiled.
    pub compiled_routes: usize,
}

/// See the module.
pub struct Graph {
    workshop: Workshop,
    resolver: Option<Resolver>,
    /// Fingerprints of everything accepted, to skip what did not change.
    prints: FxHashMap<Key, u64>,
    routes: FxHashMap<Arc<str>, RouteNode>,
    services: FxHashMap<Arc<str>, ServiceNode>,
    upstreams: FxHashMap<Arc<str>, Arc<Upstream>>,
    plugin_configs: FxHashMap<Arc<str>, Instances>,
    groups: FxHashMap<Arc<str>, Instances>,
    consumers: FxHashMap<Arc<str>, ConsumerNode>,
    /// By id, which begins with the consumer's name: those of one consumer are side by side.
    credentials: BTreeMap<Arc<str>, CredentialNode>,
    global_rules: BTreeMap<Arc<str>, Instances>,
    /// In the order of their source: of two with the same name the first one wins.
    ssls: Vec<(Arc<str>, Vec<String>, Arc<SniEntry>)>,
    /// Certificates that nodes are shown.
    certs: ClientCerts,
    looked_at: LookedAt,
    /// Who refers to a resource.
    users: FxHashMap<Key, BTreeSet<Key>>,
    /// The rank of the last route.
    last_rank: u64,
    /// Counts up with every version of a consumer.
    version: u64,
    /// Routes whose `vars` look into the body.
    body_readers: usize,
    /// Consumers of which a plugin, or one of their group, looks into the body.
    body_reading_consumers: BTreeSet<Arc<str>>,
    /// Shared by all routes without plugins.
    empty_plan: Arc<Plan>,
    snapshot: Snapshot,
}

/// A compiled service.
struct ServiceNode {
    name: Option<Arc<str>>,
    labels: BTreeMap<String, String>,
    instances: Option<Instances>,
    upstream: Option<Arc<Upstream>>,
    upstream_id: Option<Arc<str>>,
    websocket: bool,
    hosts: Box<[Arc<str>]>,
}

/// What a set of changes has made out of date.
#[derive(Default)]
struct Dirty {
    routes: BTreeSet<Arc<str>>,
    consumers: BTreeSet<Arc<str>>,
    global: bool,
    tls: bool,
    metadata: BTreeSet<Arc<str>>,
}

impl Graph {
    /// A process-wide object that plugins are built with.
    pub fn shared<T: std::any::Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.workshop.shared.get()
    }

    /// An empty graph.
    pub fn new(workshop: Workshop, mode: Mode, resolver: Option<Resolver>) -> Graph {
        let snapshot = Snapshot {
            revision: 0,
            router: Router::new(mode),
            global: Arc::default(),
            global_rules: Arc::default(),
            consumers: ConsumerTable::default(),
            tls: Arc::default(),
            looked_at: Arc::new([]),
            match_reads_body: false,
            consumers_read_body: false,
        };
        Graph {
            workshop,
            resolver,
            prints: FxHashMap::default(),
            routes: FxHashMap::default(),
            services: FxHashMap::default(),
            upstreams: FxHashMap::default(),
            plugin_configs: FxHashMap::default(),
            groups: FxHashMap::default(),
            consumers: FxHashMap::default(),
            credentials: BTreeMap::new(),
            global_rules: BTreeMap::new(),
            ssls: Vec::new(),
            certs: ClientCerts::default(),
            looked_at: LookedAt::default(),
            users: FxHashMap::default(),
            last_rank: 0,
            version: 0,
            body_readers: 0,
            body_reading_consumers: BTreeSet::new(),
            empty_plan: Arc::default(),
            snapshot,
        }
    }

    /// The changes that lead from what is there to exactly `resources`. Only what differs is copied.
    pub fn difference<V: Borrow<Value>>(
        &self,
        resources: impl IntoIterator<Item = (Key, V)>,
    ) -> Vec<Change> {
        let mut wanted = FxHashSet::default();
        let mut there = Vec::new();
        let mut pace = Pace::start();
        for (at, (key, value)) in resources.into_iter().enumerate() {
            pace.step();
            let value = value.borrow();
            wanted.insert(key.clone());
            there.push(if self.prints.get(&key) == Some(&fingerprint(value)) {
                Change::Stay(key, at)
            } else {
                Change::Put(key, Arc::new(value.clone()), Some(at))
            });
        }
        self.only(there)
    }

    /// Adds the removal of everything that is there and not named in `changes`.
    pub fn only(&self, mut changes: Vec<Change>) -> Vec<Change> {
        let wanted: FxHashSet<&Key> = changes.iter().map(Change::key).collect();
        let gone = self.prints.keys().filter(|key| !wanted.contains(key));
        let mut all: Vec<Change> = gone.cloned().map(Change::Delete).collect();
        all.append(&mut changes);
        all
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.snapshot.clone())
    }

    /// The revision of the current snapshot.
    pub fn revision(&self) -> u64 {
        self.snapshot.revision
    }

    /// Whether a resource is in it.
    pub fn has(&self, key: &Key) -> bool {
        self.prints.contains_key(key)
    }

    /// How many resources are in it.
    pub fn len(&self) -> usize {
        self.prints.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.prints.is_empty()
    }

    /// Takes changes: those that are valid go in, the others are reported and leave what was there.
    pub fn apply(&mut self, mut changes: Vec<Change>) -> Applied {
        let mut applied = Applied::default();
        let mut dirty = Dirty::default();
        // What is referred to comes before what refers to it; equal kinds keep their order.
        changes.sort_by_key(|change| change.key().kind);
        let known = self.last_rank;
        let mut places = Vec::new();
        let mut pace = Pace::start();
        for change in changes {
            pace.step();
            match change {
                Change::Put(key, raw, at) => {
                    if let (Kind::Route | Kind::Ssl, Some(at)) = (key.kind, at) {
                        places.push((at, key.clone()));
                    }
                    self.put(key, &raw, &mut dirty, &mut applied);
                }
                Change::Stay(key, at) => {
                    if matches!(key.kind, Kind::Route | Kind::Ssl) {
                        places.push((at, key));
                    }
                }
                Change::Delete(key) => {
                    if self.prints.remove(&key).is_some() {
                        self.forget(&key, &mut dirty);
                        applied.changed.push(key);
                    }
                }
            }
        }
        places.sort_unstable();
        let (routes, ssls): (Vec<Key>, Vec<Key>) = places
            .into_iter()
            .map(|(_, key)| key)
            .partition(|key| key.kind == Kind::Route);
        let mut moved = self.arrange_routes(&routes, known, &mut dirty);
        moved.extend(self.arrange_ssls(&ssls, &mut dirty));
        let changed: BTreeSet<Key> = applied.changed.iter().cloned().collect();
        moved.retain(|key| !changed.contains(key));
        applied.changed.extend(moved);
        self.settle_certs(&mut applied);
        self.settle(dirty, &mut applied);
        applied
    }

    /// Puts certificates into this order; gives those that were somewhere else.
    fn arrange_ssls(&mut self, order: &[Key], dirty: &mut Dirty) -> Vec<Key> {
        let at: FxHashMap<&Arc<str>, usize> = order
            .iter()
            .enumerate()
            .map(|(at, key)| (&key.id, at))
            .collect();
        let before: FxHashMap<Arc<str>, u64> = (0..)
            .zip(&self.ssls)
            .map(|(at, (id, ..))| (Arc::clone(id), at))
            .collect();
        self.ssls
            .sort_by_key(|(id, ..)| at.get(id).copied().unwrap_or(usize::MAX));
        let ids = self.ssls.iter().map(|(id, ..)| id);
        let stayed: Vec<Option<u64>> = ids.clone().map(|id| before.get(id).copied()).collect();
        let stayed: BTreeSet<usize> = ranks::kept(&stayed).into_iter().collect();
        let moved: Vec<Key> = ids
            .enumerate()
            .filter(|(at, _)| !stayed.contains(at))
            .map(|(_, id)| Key {
                kind: Kind::Ssl,
                id: Arc::clone(id),
            })
            .collect();
        dirty.tls |= !moved.is_empty();
        moved
    }

    fn put(&mut self, key: Key, raw: &Value, dirty: &mut Dirty, applied: &mut Applied) {
        let print = fingerprint(raw);
        if self.prints.get(&key) == Some(&print) {
            return;
        }
        let decoded = decode(&key, raw, &self.workshop.catalogue, &mut applied.warnings);
        let taken = decoded.and_then(|resource| {
            self.take(&key, resource, dirty).map_err(|mut problems| {
                problems
                    .iter_mut()
                    .for_each(|problem| problem.resource = key.to_string());
                problems
            })
        });
        match taken {
            Ok(()) => {
                self.warn_of_unknown(&key, &mut applied.warnings);
                self.looked_at.learn(raw);
                self.prints.insert(key.clone(), print);
                applied.changed.push(key);
            }
            Err(problems) => applied.problems.extend(problems),
        }
    }

    /// Takes a decoded resource in. Nothing is changed when it is refused.
    fn take(&mut self, key: &Key, resource: Resource, dirty: &mut Dirty) -> Result<(), Problems> {
        let id = &key.id;
        match resource {
            Resource::Route(route) => self.take_route(key, &route, dirty)?,
            Resource::Service(service) => {
                let old = self.services.get(id);
                let instances = self.workshop.instances(
                    &key.to_string(),
                    service.plugins.as_ref(),
                    old.and_then(|old| old.instances.as_ref()),
                )?;
                let held = old.and_then(|old| old.upstream.clone());
                let node = ServiceNode {
                    name: service.name.as_deref().map(Into::into),
                    labels: service.labels.clone().unwrap_or_default(),
                    instances: (!instances.is_empty()).then_some(instances),
                    upstream: self.inline_upstream(key, service.upstream.as_deref(), held),
                    upstream_id: service.upstream_id.as_ref().map(|id| Arc::clone(&id.0)),
                    websocket: service.enable_websocket.unwrap_or(false),
                    hosts: lower(service.hosts.iter().flatten()),
                };
                let refers: Vec<Key> = node
                    .upstream_id
                    .iter()
                    .map(|id| Key {
                        kind: Kind::Upstream,
                        id: Arc::clone(id),
                    })
                    .collect();
                self.refer(key, &refers);
                self.services.insert(Arc::clone(id), node);
                self.touch_users(key, dirty);
            }
            Resource::Upstream(upstream) => {
                let fresh = self.put_upstream(key, &upstream);
                if fresh {
                    self.touch_users(key, dirty);
                }
            }
            Resource::PluginConfig(config) => {
                let old = self.plugin_configs.get(id);
                let made = self
                    .workshop
                    .instances(&key.to_string(), Some(&config.plugins), old)?;
                self.plugin_configs.insert(Arc::clone(id), made);
                self.touch_users(key, dirty);
            }
            Resource::ConsumerGroup(group) => {
                let old = self.groups.get(id);
                let made = self
                    .workshop
                    .instances(&key.to_string(), Some(&group.plugins), old)?;
                self.groups.insert(Arc::clone(id), made);
                self.touch_users(key, dirty);
            }
            Resource::Consumer(consumer) => self.take_consumer(key, &consumer, dirty)?,
            Resource::Credential(credential) => self.take_credential(key, &credential, dirty)?,
            Resource::GlobalRule(rule) => {
                let old = self.global_rules.get(id);
                let made = self
                    .workshop
                    .instances(&key.to_string(), Some(&rule.plugins), old)?;
                self.global_rules.insert(Arc::clone(id), made);
                dirty.global = true;
            }
            Resource::Ssl(ssl) => self.take_ssl(id, &ssl, dirty),
            Resource::PluginMetadata(value) => {
                self.workshop
                    .metadata
                    .insert(Arc::clone(id), Arc::new(value));
                dirty.metadata.insert(Arc::clone(id));
            }
            Resource::Unserved => {}
        }
        Ok(())
    }

    fn take_ssl(&mut self, id: &Arc<str>, ssl: &Ssl, dirty: &mut Dirty) {
        dirty.tls = true;
        self.certs.take(id, ssl);
        let at = self.ssls.iter().position(|(held, ..)| held == id);
        if !ssl.is_server() || ssl.status == 0 {
            if let Some(at) = at {
                self.ssls.remove(at);
            }
            return;
        }
        let names = ssl.names().cloned().collect();
        let entry = (Arc::clone(id), names, Arc::new(ssl.entry(id)));
        match at {
            Some(at) => self.ssls[at] = entry,
            None => self.ssls.push(entry),
        }
    }

    /// Puts an upstream resource into its handle; says whether the handle is new.
    fn put_upstream(&mut self, key: &Key, upstream: &UpstreamResource) -> bool {
        let spec = self.certs.spec(key, upstream);
        match self.upstreams.get(&key.id) {
            Some(held) => {
                held.update(spec);
                self.certs.note(held);
                self.announce(held);
                false
            }
            None => {
                let made = Arc::new(Upstream::new(key.to_string().into(), spec));
                self.certs.note(&made);
                self.announce(&made);
                self.upstreams.insert(Arc::clone(&key.id), made);
                true
            }
        }
    }

    /// The handle for an upstream that is written in place; `held` is the one so far.
    fn inline_upstream(
        &mut self,
        owner: &Key,
        upstream: Option<&UpstreamResource>,
        held: Option<Arc<Upstream>>,
    ) -> Option<Arc<Upstream>> {
        let spec = self.certs.spec(owner, upstream?);
        let handle = match held {
            Some(held) => {
                held.update(spec);
                held
            }
            None => Arc::new(Upstream::new(owner.to_string().into(), spec)),
        };
        self.certs.note(&handle);
        self.announce(&handle);
        Some(handle)
    }

    fn announce(&self, upstream: &Arc<Upstream>) {
        if let Some(resolver) = &self.resolver {
            resolver.watch(upstream);
        }
    }

    /// Removes what is known of a resource that is gone.
    fn forget(&mut self, key: &Key, dirty: &mut Dirty) {
        let id = &key.id;
        match key.kind {
            Kind::Route => self.forget_route(id),
            Kind::Service => {
                self.refer(key, &[]);
                self.services.remove(id);
                self.touch_users(key, dirty);
            }
            Kind::Upstream => {
                self.upstreams.remove(id);
                self.touch_users(key, dirty);
            }
            Kind::PluginConfig => {
                self.plugin_configs.remove(id);
                self.touch_users(key, dirty);
            }
            Kind::ConsumerGroup => {
                self.groups.remove(id);
                self.touch_users(key, dirty);
            }
            Kind::Consumer => {
                self.refer(key, &[]);
                self.forget_consumer(id);
            }
            Kind::Credential => {
                if let Some(credential) = self.credentials.remove(id) {
                    dirty.consumers.insert(credential.consumer);
                }
            }
            Kind::GlobalRule => {
                self.global_rules.remove(id);
                dirty.global = true;
            }
            Kind::Ssl => {
                self.ssls.retain(|(held, ..)| held != id);
                self.certs.forget(id);
                dirty.tls = true;
            }
            Kind::PluginMetadata => {
                self.workshop.metadata.remove(id);
                dirty.metadata.insert(Arc::clone(id));
            }
            Kind::Proto | Kind::Secret | Kind::StreamRoute => {}
        }
    }

    /// Replaces what a resource refers to.
    fn refer(&mut self, from: &Key, to: &[Key]) {
        let kinds: &[Kind] = match from.kind {
            Kind::Route => &[Kind::Service, Kind::Upstream, Kind::PluginConfig],
            Kind::Service => &[Kind::Upstream],
            Kind::Consumer => &[Kind::ConsumerGroup],
            _ => &[],
        };
        // Only resources that are referred to have an entry, and a resource refers to few.
        let old = self.references(from).unwrap_or_default();
        debug_assert!(to.iter().all(|key| kinds.contains(&key.kind)));
        for key in old.iter().filter(|key| !to.contains(key)) {
            if let Some(users) = self.users.get_mut(key) {
                users.remove(from);
                if users.is_empty() {
                    self.users.remove(key);
                }
            }
        }
        for key in to {
            self.users
                .entry(key.clone())
                .or_default()
                .insert(from.clone());
        }
    }

    /// What a resource refers to so far.
    fn references(&self, from: &Key) -> Option<Vec<Key>> {
        let key = |kind, id: &Option<Arc<str>>| {
            id.as_ref().map(|id| Key {
                kind,
                id: Arc::clone(id),
            })
        };
        Some(match from.kind {
            Kind::Route => self.routes.get(&from.id)?.references(),
            Kind::Service => key(Kind::Upstream, &self.services.get(&from.id)?.upstream_id)
                .into_iter()
                .collect(),
            Kind::Consumer => key(Kind::ConsumerGroup, &self.consumers.get(&from.id)?.group_id)
                .into_iter()
                .collect(),
            _ => return None,
        })
    }

    /// Marks everything that depends on a resource.
    fn touch_users(&self, key: &Key, dirty: &mut Dirty) {
        for user in self.users.get(key).into_iter().flatten() {
            match user.kind {
                Kind::Route => {
                    dirty.routes.insert(Arc::clone(&user.id));
                }
                Kind::Consumer => {
                    dirty.consumers.insert(Arc::clone(&user.id));
                }
                _ => self.touch_users(user, dirty),
            }
        }
    }

    /// Compiles what is out of date and makes the snapshot.
    fn settle(&mut self, mut dirty: Dirty, applied: &mut Applied) {
        for plugin in std::mem::take(&mut dirty.metadata) {
            self.refresh_plugin(&plugin, &mut dirty, applied);
        }
        for name in &dirty.consumers {
            self.compile_consumer(name);
        }
        let mut pace = Pace::start();
        for id in &dirty.routes {
            pace.step();
            self.compile_route(id);
        }
        if dirty.global {
            self.compile_global(applied);
        }
        if dirty.tls {
            let mut table = SniTable::default();
            for (_, names, entry) in &self.ssls {
                names
                    .iter()
                    .for_each(|name| table.insert(name, Arc::clone(entry)));
            }
            self.snapshot.tls = Arc::new(table);
        }
        applied.compiled_routes = dirty.routes.len();
        if applied.changed.is_empty() {
            return;
        }
        self.snapshot.match_reads_body = self.body_readers > 0;
        self.snapshot.consumers_read_body = !self.body_reading_consumers.is_empty();
        self.snapshot.looked_at = Arc::clone(self.looked_at.fields());
        self.snapshot.revision += 1;
        applied.snapshot = Some(self.snapshot());
    }

    /// Merges all global rules. A plugin that two of them name runs for neither, as in APISIX.
    fn compile_global(&mut self, applied: &mut Applied) {
        let all: Vec<_> = self
            .global_rules
            .values()
            .flat_map(|list| list.iter())
            .collect();
        let twice = |name: &str| all.iter().filter(|i| i.def.name == name).count() > 1;
        for (id, list) in &self.global_rules {
            for instance in list.iter().filter(|i| twice(i.def.name)) {
                let mut problem = Problem::new(
                    format!("plugins.{}", instance.def.name),
                    "the plugin is in another global rule, too: it runs for neither",
                );
                problem.resource = Key {
                    kind: Kind::GlobalRule,
                    id: Arc::clone(id),
                }
                .to_string();
                applied.warnings.push(problem);
            }
        }
        let once = all
            .iter()
            .filter(|i| !twice(i.def.name))
            .map(|i| (Level::Global, &***i));
        self.snapshot.global = Arc::new(Plan::of(once));
        let rules = self.global_rules.iter();
        self.snapshot.global_rules = rules
            .map(|(id, list)| (Arc::clone(id), Arc::clone(list)))
            .collect();
    }

    /// Builds every instance of a plugin again: its metadata has changed.
    fn refresh_plugin(&mut self, plugin: &str, dirty: &mut Dirty, applied: &mut Applied) {
        let workshop = &self.workshop;
        let has = |list: &Instances| {
            list.iter()
                .any(|i| i.def.name == plugin && i.conf.is_some())
        };
        let mut refresh = |kind: Kind, id: &Arc<str>, list: &mut Instances| -> bool {
            if !has(list) {
                return false;
            }
            let owner = Key {
                kind,
                id: Arc::clone(id),
            };
            match workshop.refresh(&owner.to_string(), list, plugin) {
                Ok(made) => {
                    *list = made;
                    true
                }
                Err(mut problems) => {
                    problems
                        .iter_mut()
                        .for_each(|problem| problem.resource = owner.to_string());
                    applied.problems.extend(problems);
                    false
                }
            }
        };
        let mut touched = Vec::new();
        for (id, list) in &mut self.global_rules {
            dirty.global |= refresh(Kind::GlobalRule, id, list);
        }
        for (id, list) in &mut self.plugin_configs {
            if refresh(Kind::PluginConfig, id, list) {
                touched.push(Key {
                    kind: Kind::PluginConfig,
                    id: Arc::clone(id),
                });
            }
        }
        for (id, list) in &mut self.groups {
            if refresh(Kind::ConsumerGroup, id, list) {
                touched.push(Key {
                    kind: Kind::ConsumerGroup,
                    id: Arc::clone(id),
                });
            }
        }
        for (id, service) in &mut self.services {
            if service
                .instances
                .as_mut()
                .is_some_and(|list| refresh(Kind::Service, id, list))
            {
                touched.push(Key {
                    kind: Kind::Service,
                    id: Arc::clone(id),
                });
            }
        }
        for (id, route) in &mut self.routes {
            if route
                .instances
                .as_mut()
                .is_some_and(|list| refresh(Kind::Route, id, list))
            {
                dirty.routes.insert(Arc::clone(id));
            }
        }
        for (name, consumer) in &mut self.consumers {
            if refresh(Kind::Consumer, name, &mut consumer.instances) {
                dirty.consumers.insert(Arc::clone(name));
            }
        }
        touched.iter().for_each(|key| self.touch_users(key, dirty));
    }

    /// Every compiled thing as text in a stable order: equal for equal configurations, however they
    /// came about.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = self.snapshot.router.dump();
        lines.push(format!("routes in order: {:?}", self.routes_in_order()));
        let mut routes: Vec<_> = self
            .routes
            .values()
            .filter_map(RouteNode::describe)
            .collect();
        routes.sort();
        lines.extend(routes.into_iter().flatten());
        lines.extend(
            self.snapshot
                .global
                .describe()
                .into_iter()
                .map(|line| format!("global {line}")),
        );
        lines.extend(self.snapshot.consumers.describe());
        lines.extend(self.snapshot.tls.describe());
        let mut upstreams: Vec<String> = self
            .upstreams
            .values()
            .map(|upstream| format!("{} {:?}", upstream.key, upstream.shape().spec))
            .collect();
        upstreams.sort();
        lines.extend(upstreams);
        lines.push(format!(
            "body readers: {} and {:?}",
            self.body_readers, self.body_reading_consumers
        ));
        lines
    }
}

/// Host patterns in lower case, as they are matched.
fn lower<'a>(hosts: impl Iterator<Item = &'a String>) -> Box<[Arc<str>]> {
    hosts.map(|host| host.to_ascii_lowercase().into()).collect()
}

#[cfg(test)]
mod tests;
