//! What the graph promises: a change costs what it touches, and the way to a configuration does
//! not show in it.

mod certs;
mod incremental;
mod isolation;
mod sharing;

use std::net::{IpAddr, Ipv4Addr};

use lockgate_plugin::{Shared, StateStore, Var, VarSource, VarValue};
use serde_json::json;

use super::*;
use crate::config::catalogue::Catalogue;
use crate::config::snapshot::{Route, Target};
use crate::router::{Entry, MatchInput};

fn graph() -> Graph {
    let workshop = Workshop {
        catalogue: Catalogue::everything(lockgate_plugins::ALL),
        shared: Shared::default(),
        states: StateStore::default(),
        attr: Value::Null,
        metadata: FxHashMap::default(),
    };
    Graph::new(workshop, Mode::HostUri, None)
}

/// The key of a name such as `routes/1`.
fn key(name: &str) -> Key {
    let (plural, id) = name.split_once('/').unwrap();
    let kind = match id.contains("/credentials/") {
        true => Kind::Credential,
        false => Kind::ALL
            .into_iter()
            .find(|kind| kind.plural() == plural)
            .unwrap(),
    };
    Key::new(kind, id)
}

fn put(name: &str, value: Value) -> Change {
    Change::Put(key(name), Arc::new(value), None)
}

fn delete(name: &str) -> Change {
    Change::Delete(key(name))
}

impl Graph {
    /// Applies changes that are all valid.
    fn accept(&mut self, changes: impl IntoIterator<Item = Change>) -> Applied {
        let applied = self.apply(changes.into_iter().collect());
        assert_eq!(texts(&applied.problems), Vec::<String>::new());
        applied
    }
}

fn texts(problems: &Problems) -> Vec<String> {
    problems
        .iter()
        .map(|p| format!("{} {}: {}", p.resource, p.path, p.message))
        .collect()
}

/// The compiled route with this id.
fn route(snapshot: &Snapshot, id: &str) -> Arc<Route> {
    entry(snapshot, id).unwrap_or_else(|| panic!("no route {id}"))
}

fn entry(snapshot: &Snapshot, id: &str) -> Option<Arc<Route>> {
    let listed = snapshot
        .router
        .iter()
        .find(|listed| &*listed.entry.id == id)?;
    Some(Arc::clone(&listed.entry.value))
}

/// The id of the route that a request for `host` and `path` gets.
fn find(snapshot: &Snapshot, host: &str, path: &str) -> Option<String> {
    struct NoVars;
    impl VarSource for NoVars {
        fn var<'b>(&'b self, _: &'b Var) -> Option<VarValue<'b>> {
            None
        }
    }
    let input = MatchInput {
        path,
        host,
        http_host: host.as_bytes(),
        method: "GET",
        remote: IpAddr::V4(Ipv4Addr::LOCALHOST),
        vars: &NoVars,
    };
    let found = snapshot.router.find(&input)?;
    let entry: &Arc<Entry<Arc<Route>>> = found.entry;
    Some(entry.id.to_string())
}

/// Where a route goes, in a word.
fn target(route: &Route) -> String {
    match &route.target {
        Target::Upstream(upstream) => upstream.key.to_string(),
        Target::None => "none".into(),
        Target::MissingUpstream => "missing upstream".into(),
        Target::MissingService => "missing service".into(),
        Target::MissingPluginConfig => "missing plugin_config".into(),
    }
}

fn upstream(route: &Route) -> Arc<Upstream> {
    match &route.target {
        Target::Upstream(upstream) => Arc::clone(upstream),
        _ => panic!("{} goes to {}", route.info.id, target(route)),
    }
}

/// The identity of a plugin in a route's plan.
fn identity(route: &Route, plugin: &str) -> usize {
    let mut links = lockgate_plugin::Phase::ALL
        .into_iter()
        .flat_map(|phase| route.plan.links(phase));
    let link = links.find(|link| link.handler.name() == plugin);
    link.unwrap_or_else(|| panic!("{} does not run {plugin}", route.info.id))
        .identity()
}
