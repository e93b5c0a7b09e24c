//! Routes in the graph: what is kept of each, and how one is compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use lockgate_plugin::{Expr, Problem, Problems, RouteInfo, network};

use super::{Dirty, Graph, lower, ranks};
use crate::config::compile::plan::Instances;
use crate::config::kind::{Key, Kind};
use crate::config::resource::Route as RouteResource;
use crate::config::snapshot::{ENGINE_LABEL, Levels, Route, Target};
use crate::router::{Entry, MethodSet};
use crate::upstream::{Timeouts, Upstream};

/// What is kept of a route to compile it again when something it refers to changes. Lean: there
/// may be hundreds of thousands.
pub(super) struct RouteNode {
    /// What the router has, if the route is in use.
    entry: Option<Arc<Entry<Arc<Route>>>>,
    /// Its place among all routes, see [`ranks`].
    rank: u64,
    priority: i64,
    enabled: bool,
    websocket: Option<bool>,
    name: Option<Arc<str>>,
    // Boxed: most routes have none, and an empty map is three words long.
    #[allow(clippy::box_collection)]
    labels: Option<Box<BTreeMap<String, String>>>,
    uris: Box<[Arc<str>]>,
    hosts: Box<[Arc<str>]>,
    methods: MethodSet,
    remote_addrs: Box<[IpNet]>,
    pub(super) vars: Option<Arc<Expr>>,
    timeouts: Option<Box<Timeouts>>,
    pub(super) instances: Option<Instances>,
    upstream: Option<Arc<Upstream>>,
    upstream_id: Option<Arc<str>>,
    service_id: Option<Arc<str>>,
    plugin_config_id: Option<Arc<str>>,
}

impl RouteNode {
    /// What the route refers to.
    pub(super) fn references(&self) -> Vec<Key> {
        let key = |kind, id: &Option<Arc<str>>| {
            id.as_ref().map(|id| Key {
                kind,
                id: Arc::clone(id),
            })
        };
        [
            key(Kind::Service, &self.service_id),
            key(Kind::Upstream, &self.upstream_id),
            key(Kind::PluginConfig, &self.plugin_config_id),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn reads_body(&self) -> bool {
        self.enabled && self.vars.as_ref().is_some_and(|vars| vars.needs_body())
    }

    /// The compiled route as text.
    pub(super) fn describe(&self) -> Option<Vec<String>> {
        let entry = self.entry.as_ref()?;
        let route = &entry.value;
        let target = match &route.target {
            Target::Upstream(upstream) => format!("{} {:?}", upstream.key, upstream.shape().spec),
            Target::None => "none".into(),
            Target::MissingUpstream => "upstream missing".into(),
            Target::MissingService => "service missing".into(),
            Target::MissingPluginConfig => "plugin_config missing".into(),
        };
        let mut lines = vec![format!(
            "route {} info {:?} websocket {} timeouts {:?} target {target}",
            entry.id, route.info, route.websocket, route.timeouts
        )];
        lines.extend(
            route
                .plan
                .describe()
                .into_iter()
                .map(|line| format!("route {} {line}", entry.id)),
        );
        Some(lines)
    }
}

impl Graph {
    pub(super) fn take_route(
        &mut self,
        key: &Key,
        route: &RouteResource,
        dirty: &mut Dirty,
    ) -> Result<(), Problems> {
        let id = &key.id;
        let old = self.routes.get(id);
        let instances = self.workshop.instances(
            &key.to_string(),
            route.plugins.as_ref(),
            old.and_then(|old| old.instances.as_ref()),
        )?;
        let vars = match &route.vars {
            Some(vars) => {
                let vars = serde_json::Value::Array(vars.clone());
                let expr = Expr::parse(&vars).map_err(|mut problem: Problem| {
                    problem.path = format!("vars{}", problem.path);
                    problem
                })?;
                (!vars.as_array().is_some_and(Vec::is_empty)).then(|| Arc::new(expr))
            }
            None => None,
        };
        let held = old.and_then(|old| old.upstream.clone());
        let rank = old.map_or(ranks::behind(self.last_rank), |old| old.rank);
        let mut methods = MethodSet::default();
        for method in route.methods.iter().flatten() {
            methods = methods.with(method).unwrap_or(methods);
        }
        let networks = route
            .remote_addr
            .iter()
            .chain(route.remote_addrs.iter().flatten());
        let id_of =
            |id: &Option<crate::config::resource::Id>| id.as_ref().map(|id| Arc::clone(&id.0));
        let node = RouteNode {
            entry: None,
            rank,
            priority: route.priority,
            enabled: route.status == 1,
            websocket: route.enable_websocket,
            name: route.name.as_deref().map(Into::into),
            labels: route.labels.clone().filter(|l| !l.is_empty()).map(Box::new),
            uris: route.all_uris().map(|uri| uri.as_str().into()).collect(),
            hosts: lower(route.all_hosts()),
            methods,
            remote_addrs: networks.filter_map(|text| network(text)).collect(),
            vars,
            timeouts: route.timeout.map(|timeout| Box::new(timeout.limits())),
            instances: (!instances.is_empty()).then_some(instances),
            upstream: self.inline_upstream(key, route.upstream.as_deref(), held),
            upstream_id: id_of(&route.upstream_id),
            service_id: id_of(&route.service_id),
            plugin_config_id: id_of(&route.plugin_config_id),
        };
        self.refer(key, &node.references());
        self.body_readers += usize::from(node.reads_body());
        if let Some(mut old) = self.routes.insert(Arc::clone(id), node) {
            self.body_readers -= usize::from(old.reads_body());
            // The router's entry is taken out when the route is compiled.
            if let Some(new) = self.routes.get_mut(id) {
                new.entry = old.entry.take();
            }
        }
        self.last_rank = self.last_rank.max(rank);
        dirty.routes.insert(Arc::clone(id));
        Ok(())
    }

    /// Puts routes into this order; gives those that had another place. Those with a rank above
    /// `known` are new.
    pub(super) fn arrange_routes(
        &mut self,
        order: &[Key],
        known: u64,
        dirty: &mut Dirty,
    ) -> Vec<Key> {
        let (keys, held): (Vec<&Key>, Vec<u64>) = order
            .iter()
            .filter_map(|key| Some((key, self.routes.get(&key.id)?.rank)))
            .unzip();
        if held.is_sorted() {
            return Vec::new();
        }
        let wanted: Vec<Option<u64>> = held
            .iter()
            .map(|rank| (*rank <= known).then_some(*rank))
            .collect();
        let mut moved = Vec::new();
        for ((key, held), rank) in keys.into_iter().zip(held).zip(ranks::rising(&wanted)) {
            self.last_rank = self.last_rank.max(rank);
            if let Some(node) = self.routes.get_mut(&key.id)
                && held != rank
            {
                node.rank = rank;
                dirty.routes.insert(Arc::clone(&key.id));
                moved.push(key.clone());
            }
        }
        moved
    }

    /// The ids of all routes, by rank.
    pub(super) fn routes_in_order(&self) -> Vec<&Arc<str>> {
        let mut ids: Vec<&Arc<str>> = self.routes.keys().collect();
        ids.sort_by_key(|id| self.routes[*id].rank);
        ids
    }

    pub(super) fn forget_route(&mut self, id: &Arc<str>) {
        self.refer(
            &Key {
                kind: Kind::Route,
                id: Arc::clone(id),
            },
            &[],
        );
        if let Some(node) = self.routes.remove(id) {
            self.body_readers -= usize::from(node.reads_body());
            if let Some(entry) = &node.entry {
                let removed = self.snapshot.router.remove(entry);
                debug_assert!(removed, "a route in use is in the router");
            }
        }
    }

    /// Puts a route together from what it refers to, and into the router.
    pub(super) fn compile_route(&mut self, id: &Arc<str>) {
        let Some(node) = self.routes.get(id) else {
            return;
        };
        let made = node.enabled.then(|| self.entry(id, node));
        let Some(node) = self.routes.get_mut(id) else {
            return;
        };
        if let Some(old) = node.entry.take() {
            let removed = self.snapshot.router.remove(&old);
            debug_assert!(removed, "a route in use is in the router");
        }
        if let Some(entry) = made {
            let entry = Arc::new(entry);
            self.snapshot.router.insert(Arc::clone(&entry));
            node.entry = Some(entry);
        }
    }

    fn entry(&self, id: &Arc<str>, node: &RouteNode) -> Entry<Arc<Route>> {
        let service = node.service_id.as_ref().map(|id| self.services.get(id));
        let config = node
            .plugin_config_id
            .as_ref()
            .map(|id| self.plugin_configs.get(id));
        let found = service.flatten();
        let levels = Levels {
            service: found.and_then(|service| service.instances.clone()),
            plugin_config: config.flatten().cloned(),
            route: node.instances.clone(),
        };
        let target = match (&service, &config) {
            (_, Some(None)) => Target::MissingPluginConfig,
            (Some(None), _) => Target::MissingService,
            _ => self.target(node, found),
        };
        let labels = node.labels.as_deref().cloned();
        let info = RouteInfo {
            id: Arc::clone(id),
            name: node.name.clone(),
            service_id: node.service_id.clone(),
            service_name: found.and_then(|service| service.name.clone()),
            labels: labels
                .or_else(|| found.map(|s| s.labels.clone()))
                .unwrap_or_default(),
        };
        let plan = if levels.is_empty() {
            Arc::clone(&self.empty_plan)
        } else {
            Arc::new(levels.plan())
        };
        let route = Route {
            plan,
            levels,
            target,
            timeouts: node.timeouts.as_deref().copied(),
            websocket: node
                .websocket
                .or_else(|| found.map(|s| s.websocket))
                .unwrap_or(false),
            general: info
                .labels
                .get(ENGINE_LABEL)
                .is_some_and(|engine| engine == "general"),
            merged: Default::default(),
            info: Arc::new(info),
        };
        let inherited = || {
            found
                .map(|service| service.hosts.clone())
                .unwrap_or_default()
        };
        Entry {
            id: Arc::clone(id),
            order: node.rank,
            priority: node.priority,
            uris: node.uris.clone(),
            hosts: if node.hosts.is_empty() {
                inherited()
            } else {
                node.hosts.clone()
            },
            methods: node.methods,
            remote_addrs: node.remote_addrs.clone(),
            vars: node.vars.clone(),
            value: Arc::new(route),
        }
    }

    /// The route's own upstream before its service's; by id before in place, as in APISIX.
    fn target(&self, node: &RouteNode, service: Option<&super::ServiceNode>) -> Target {
        let by_id = |id: &Arc<str>| match self.upstreams.get(id) {
            Some(upstream) => Target::Upstream(Arc::clone(upstream)),
            None => Target::MissingUpstream,
        };
        let own = |upstream: &Option<Arc<Upstream>>, id: &Option<Arc<str>>| match (upstream, id) {
            (_, Some(id)) => Some(by_id(id)),
            (Some(upstream), None) => Some(Target::Upstream(Arc::clone(upstream))),
            (None, None) => None,
        };
        own(&node.upstream, &node.upstream_id)
            .or_else(|| service.and_then(|service| own(&service.upstream, &service.upstream_id)))
            .unwrap_or(Target::None)
    }
}
