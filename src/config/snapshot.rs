//! What a request works with: an immutable compiled configuration, swapped as a whole.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use lockgate_plugin::{ConsumerCredential, HeaderKey, RouteInfo};

use super::compile::plan::{Instance, Instances, Level, Plan};
use super::consumers::{ConsumerPlugins, ConsumerTable};
use crate::router::Router;
use crate::tls::SniTable;
use crate::upstream::{Timeouts, Upstream};

/// One compiled configuration.
#[derive(Clone)]
pub struct Snapshot {
    /// Grows with every swap.
    pub revision: u64,
    /// Routes by host and path.
    pub router: Router<Arc<Route>>,
    /// All global rules, merged into one list.
    pub global: Arc<Plan>,
    /// The same before merging, by id.
    pub global_rules: Arc<[(Arc<str>, Instances)]>,
    /// Consumers by credential.
    pub consumers: ConsumerTable,
    /// Certificates by server name.
    pub tls: Arc<SniTable>,
    /// Header fields that the configuration looks at.
    pub looked_at: Arc<[HeaderKey]>,
    /// Whether some route's `vars` look into the request body, which then has to be read first.
    pub match_reads_body: bool,
    /// Whether a plugin of some consumer or group looks into the request body. Who the consumer
    /// is shows only later, so it is read for every route with authentication then.
    pub consumers_read_body: bool,
}

/// The label that puts a route on the general lane, with the value `general`. A label, because
/// APISIX refuses fields it does not know, and routes may be shared with it.
pub const ENGINE_LABEL: &str = "lockgate.engine";

/// A compiled route.
pub struct Route {
    /// What plugins and logs may know.
    pub info: Arc<RouteInfo>,
    /// Plugins of service, plugin_config and route, merged.
    pub plan: Arc<Plan>,
    /// The same before merging, for consumers that add to it.
    pub levels: Levels,
    /// Where it goes.
    pub target: Target,
    /// Its own time limits.
    pub timeouts: Option<Timeouts>,
    /// Whether connections may be upgraded to WebSocket.
    pub websocket: bool,
    /// Its label [`ENGINE_LABEL`] asks for the general lane.
    pub general: bool,
    /// Plans merged with a consumer's plugins, made on first use.
    pub merged: MergedPlans,
}

/// The plugin instances of a route, by level.
#[derive(Clone, Default)]
pub struct Levels {
    /// Of the service.
    pub service: Option<Instances>,
    /// Of the plugin_config.
    pub plugin_config: Option<Instances>,
    /// Of the route itself.
    pub route: Option<Instances>,
}

impl Levels {
    /// The plan without any consumer.
    pub fn plan(&self) -> Plan {
        Plan::merge(&self.list())
    }

    /// Whether no level has a plugin.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// The levels that have plugins, lowest first.
    pub fn list(&self) -> Vec<(Level, &[Arc<Instance>])> {
        [
            (Level::Service, &self.service),
            (Level::PluginConfig, &self.plugin_config),
            (Level::Route, &self.route),
        ]
        .into_iter()
        .filter_map(|(level, instances)| Some((level, instances.as_deref()?)))
        .collect()
    }
}

/// Where a route sends requests. The failures are found while compiling and answered per request,
/// as APISIX does.
#[derive(Clone)]
pub enum Target {
    /// An upstream.
    Upstream(Arc<Upstream>),
    /// Neither the route nor its service names an upstream: 503, unless a plugin answers.
    None,
    /// The `upstream_id` names nothing: 502, unless a plugin answers.
    MissingUpstream,
    /// The `service_id` names nothing: 404 before any plugin.
    MissingService,
    /// The `plugin_config_id` names nothing: 503 before any plugin.
    MissingPluginConfig,
}

/// A route's plan together with one consumer's plugins.
pub struct Merged {
    /// Everything; used from the access phase on.
    pub plan: Arc<Plan>,
    /// Only what the consumer added; its rewrite phase runs after authentication.
    pub added: Arc<Plan>,
}

/// A small cache of [`Merged`] plans, by consumer version.
#[derive(Default)]
pub struct MergedPlans {
    plans: Mutex<VecDeque<(u64, Arc<Merged>)>>,
}

impl MergedPlans {
    /// How many consumers' plans a route keeps. A miss costs a merge of pointers, so this bounds
    /// memory (routes × consumers) rather than work.
    const KEEP: usize = 64;

    fn get(&self, version: u64, make: impl FnOnce() -> Merged) -> Arc<Merged> {
        let lock = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let held = |plans: &VecDeque<(u64, Arc<Merged>)>| {
            let (_, found) = plans.iter().find(|(v, _)| *v == version)?;
            Some(Arc::clone(found))
        };
        let found = held(&lock());
        if let Some(found) = found {
            return found;
        }
        // Made without the lock: other consumers' requests do not wait for it.
        let made = Arc::new(make());
        let mut plans = lock();
        if let Some(first) = held(&plans) {
            return first;
        }
        if plans.len() >= Self::KEEP {
            plans.pop_front();
        }
        plans.push_back((version, Arc::clone(&made)));
        made
    }
}

impl Route {
    /// Why the route takes the general lane; `None` when the wire lane can carry it.
    pub fn general_because(&self) -> Option<&'static str> {
        if self.general {
            return Some("its label lockgate.engine says so");
        }
        self.speaks_http2().then_some("its upstream speaks HTTP/2")
    }

    /// Whether requests to its upstream are HTTP/2.
    pub fn speaks_http2(&self) -> bool {
        matches!(&self.target, Target::Upstream(upstream) if upstream.speaks_http2())
    }

    /// The route's plan for an authenticated consumer; `None` when the consumer adds nothing.
    pub fn plan_for(
        &self,
        found: &ConsumerCredential,
        plugins: &ConsumerPlugins,
    ) -> Option<Arc<Merged>> {
        if plugins.is_empty() {
            return None;
        }
        Some(self.merged.get(found.version, || self.merge(plugins)))
    }

    /// The levels together with a consumer's, lowest first.
    pub fn levels_with<'a>(
        &'a self,
        plugins: &'a ConsumerPlugins,
    ) -> Vec<(Level, &'a [Arc<Instance>])> {
        let mut levels = self.levels.list();
        if let Some(group) = &plugins.group {
            levels.push((Level::ConsumerGroup, group));
        }
        levels.push((Level::Consumer, &plugins.own));
        levels
    }

    /// The route's plan together with a consumer's plugins.
    pub fn merge(&self, plugins: &ConsumerPlugins) -> Merged {
        let plan = Plan::merge(&self.levels_with(plugins));
        let mut fresh: Vec<_> = Vec::new();
        if let Some(group) = &plugins.group {
            fresh.extend(group.iter().map(|i| (Level::ConsumerGroup, i)));
        }
        fresh.retain(|(_, i)| !plugins.own.iter().any(|own| own.def.name == i.def.name));
        fresh.extend(plugins.own.iter().map(|i| (Level::Consumer, i)));
        fresh.retain(|(_, i)| !self.plan.has(i.def.name));
        let added = Plan::of(fresh.into_iter().map(|(level, i)| (level, &**i)));
        Merged {
            plan: Arc::new(plan),
            added: Arc::new(added),
        }
    }
}

/// The cell that holds the current snapshot.
pub struct Live {
    current: ArcSwap<Snapshot>,
}

impl Live {
    /// A cell with its first snapshot.
    pub fn new(first: Arc<Snapshot>) -> Live {
        Live {
            current: ArcSwap::new(first),
        }
    }

    /// The current snapshot, to be held for a whole request.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// The current snapshot for a short look.
    pub fn peek(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Replaces the snapshot and gives the old one back, to be dropped off the request path.
    pub fn swap(&self, next: Arc<Snapshot>) -> Arc<Snapshot> {
        self.current.swap(next)
    }
}
