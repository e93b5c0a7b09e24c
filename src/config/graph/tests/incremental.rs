//! Any sequence of changes gives what compiling its result at once gives.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// A change, and whether it is to be accepted.
#[derive(Clone, Debug)]
struct Step {
    name: String,
    /// `None` deletes.
    value: Option<Value>,
    valid: bool,
    /// Whether a batch ends here.
    last: bool,
}

/// An optional member.
fn maybe(name: &'static str, values: Vec<Value>) -> impl Strategy<Value = Value> {
    let none = Just(json!({}));
    prop_oneof![
        none,
        select(values).prop_map(move |value| json!({ name: value }))
    ]
}

/// All members of several objects.
fn joined(parts: impl IntoIterator<Item = Value>) -> Value {
    let members = parts
        .into_iter()
        .filter_map(|part| part.as_object().cloned())
        .flatten();
    Value::Object(members.collect())
}

fn ids() -> Vec<Value> {
    vec![json!("a"), json!("b"), json!("c")]
}

fn plugins() -> Vec<Value> {
    vec![
        json!({}),
        json!({"echo": {"body": "x"}}),
        json!({"echo": {"body": "y"}, "cors": {}}),
        json!({"cors": {"allow_origins_by_metadata": ["one"]}}),
        json!({"echo": {"body": "z", "_meta": {"priority": 9000}}, "cors": {}}),
        json!({"echo": {"body": "x", "_meta": {"disable": true}}}),
        json!({"request-id": {}, "key-auth": {}}),
    ]
}

fn nodes() -> Vec<Value> {
    vec![
        json!({"nodes": {"127.0.0.1:1": 1}}),
        json!({"nodes": {"127.0.0.1:1": 1, "127.0.0.1:2": 3}}),
        json!({"nodes": {"127.0.0.1:2": 3}, "type": "least_conn"}),
    ]
}

/// Few keys, so that they collide.
fn keys() -> Vec<Value> {
    ["k", "l"]
        .map(|key| json!({"key-auth": {"key": key}}))
        .into()
}

fn any_upstream() -> impl Strategy<Value = Value> {
    let by_id = ids().into_iter().map(|id| json!({"upstream_id": id}));
    let inline = nodes().into_iter().map(|nodes| json!({"upstream": nodes}));
    select(
        [json!({})]
            .into_iter()
            .chain(by_id)
            .chain(inline)
            .collect::<Vec<_>>(),
    )
}

fn any_route() -> impl Strategy<Value = Value> {
    let uris = vec![
        json!({"uri": "/a"}),
        json!({"uri": "/a/*"}),
        json!({"uris": ["/a", "/b*"]}),
    ];
    let body = json!([["post_arg.x", "==", "1"]]);
    let parts = (
        select(uris),
        maybe("hosts", vec![json!(["x.com"]), json!(["*.x.com", "Y.com"])]),
        maybe("priority", vec![json!(1)]),
        maybe("plugins", plugins()),
        maybe("service_id", ids()),
        maybe("plugin_config_id", ids()),
        any_upstream(),
        maybe("vars", vec![body, json!([["arg_x", "==", "1"]])]),
        maybe("status", vec![json!(0), json!(1)]),
        maybe("labels", vec![json!({"team": "r"})]),
        maybe("enable_websocket", vec![json!(true)]),
    );
    parts.prop_map(|(a, b, c, d, e, f, g, h, i, j, k)| {
        // Without a target, a route needs plugins.
        joined([json!({"plugins": {}}), a, b, c, d, e, f, g, h, i, j, k])
    })
}

fn any_service() -> impl Strategy<Value = Value> {
    let parts = (
        maybe("plugins", plugins()),
        maybe("hosts", vec![json!(["x.com"]), json!(["z.com"])]),
        maybe("name", vec![json!("shop")]),
        maybe("labels", vec![json!({"team": "s"})]),
        maybe("enable_websocket", vec![json!(true)]),
        any_upstream(),
    );
    parts.prop_map(|(a, b, c, d, e, f)| joined([a, b, c, d, e, f]))
}

fn any_consumer() -> impl Strategy<Value = (String, Value)> {
    let both = json!({"key-auth": {"key": "k"}, "echo": {"body": "c"}});
    let plugins = keys()
        .into_iter()
        .chain(plugins().into_iter().take(4))
        .chain([both]);
    let parts = (
        select(vec!["a", "b", "c"]),
        maybe("plugins", plugins.collect()),
        maybe("group_id", ids()),
        maybe("labels", vec![json!({"custom_id": "7"})]),
    );
    parts.prop_map(|(name, a, b, c)| {
        (
            format!("consumers/{name}"),
            joined([json!({"username": name}), a, b, c]),
        )
    })
}

fn named(
    plural: &'static str,
    value: impl Strategy<Value = Value>,
) -> impl Strategy<Value = (String, Value)> {
    (select(vec!["a", "b", "c"]), value)
        .prop_map(move |(id, value)| (format!("{plural}/{id}"), value))
}

fn any_resource() -> impl Strategy<Value = (String, Value)> {
    let lists = || select(plugins()).prop_map(|plugins| json!({"plugins": plugins}));
    let credential = (
        select(vec!["a", "b"]),
        select(vec!["1", "2"]),
        select(keys()),
    );
    let metadata = vec![
        json!({}),
        json!({"one": "https://a.com"}),
        json!({"one": "https://b.com"}),
    ];
    prop_oneof![
        4 => (select(vec!["a", "b", "c", "d"]), any_route())
            .prop_map(|(id, value)| (format!("routes/{id}"), value)),
        2 => named("services", any_service()),
        2 => named("upstreams", select(nodes())),
        1 => named("plugin_configs", lists()),
        1 => named("consumer_groups", lists()),
        1 => named("global_rules", lists()),
        2 => any_consumer(),
        2 => credential.prop_map(|(consumer, id, plugins)| {
            (format!("consumers/{consumer}/credentials/{id}"), json!({"plugins": plugins}))
        }),
        1 => select(metadata).prop_map(|lists| {
            ("plugin_metadata/cors".to_owned(), json!({"allow_origins": lists}))
        }),
    ]
}

/// Breaks a resource: in its own fields or, where it has any, in its plugins.
fn broken(name: &str, mut value: Value, in_plugins: bool) -> Value {
    match name {
        "plugin_metadata/cors" => value["allow_origins"] = json!(3),
        _ if in_plugins && !name.starts_with("upstreams") => {
            value["plugins"] = json!({"cors": {"max_age": "long"}});
        }
        _ => value["no_such_field"] = json!(1),
    }
    value
}

fn any_step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![6 => Just("put"), 2 => Just("delete"), 1 => Just("break")];
    (
        any_resource(),
        what,
        any::<bool>(),
        prop::bool::weighted(0.4),
    )
        .prop_map(|((name, value), what, in_plugins, last)| {
            let value = match what {
                "put" => Some(value),
                "break" => Some(broken(&name, value, in_plugins)),
                _ => None,
            };
            Step {
                name,
                value,
                valid: what != "break",
                last,
            }
        })
}

/// What is to be there after a sequence, in the order of arrival.
#[derive(Default)]
struct Model(Vec<(Key, Arc<Value>)>);

impl Model {
    fn take(&mut self, step: &Step) {
        let key = key(&step.name);
        let held = self.0.iter().position(|(held, _)| *held == key);
        match (&step.value, held) {
            _ if !step.valid => {}
            (Some(value), Some(at)) => self.0[at].1 = Arc::new(value.clone()),
            (Some(value), None) => self.0.push((key, Arc::new(value.clone()))),
            (None, Some(at)) => drop(self.0.remove(at)),
            (None, None) => {}
        }
    }
}

/// `describe`, with the order of routes left to the order of lines: it counts every arrival, those
/// of routes that are gone, too.
fn describe(graph: &Graph) -> Vec<String> {
    let mut lines = graph.describe();
    for line in lines.iter_mut().filter(|line| line.contains(" -> ")) {
        line.truncate(line.rfind(' ').unwrap());
    }
    lines
}

/// What `describe` leaves out: the plugin configurations in use, by fingerprint.
fn configurations(graph: &Graph) -> Vec<String> {
    let prints = |list: &Option<Instances>| -> Vec<(&str, u128)> {
        list.iter()
            .flat_map(|list| list.iter())
            .map(|i| (i.def.name, i.fingerprint))
            .collect()
    };
    let routes = graph.snapshot.router.iter().map(|listed| {
        let levels = &listed.entry.value.levels;
        let levels = [&levels.service, &levels.plugin_config, &levels.route].map(prints);
        format!("{} {levels:?}", listed.entry.id)
    });
    let consumers = graph.consumers.keys().map(|name| {
        let plugins = graph.snapshot.consumers.plugins(name).unwrap();
        let own = prints(&Some(Arc::clone(&plugins.own)));
        format!(
            "{name} {own:?} {:?} {}",
            prints(&plugins.group),
            plugins.missing_group
        )
    });
    let mut lines: Vec<String> = routes.chain(consumers).collect();
    lines.sort();
    lines
}

/// Nothing compiled holds on to something that was replaced.
fn check_current(graph: &Graph) {
    let same = |a: &Option<Instances>, b: &Option<Instances>| match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    for listed in graph.snapshot.router.iter() {
        let (id, route) = (&listed.entry.id, &listed.entry.value);
        let service = route
            .info
            .service_id
            .as_ref()
            .and_then(|id| graph.services.get(id));
        assert!(
            same(&route.levels.route, &graph.routes[id].instances),
            "{id}"
        );
        assert!(
            same(
                &route.levels.service,
                &service.and_then(|s| s.instances.clone())
            ),
            "{id}"
        );
        if let Some(config) = &route.levels.plugin_config {
            assert!(
                graph
                    .plugin_configs
                    .values()
                    .any(|held| Arc::ptr_eq(held, config)),
                "{id}"
            );
        }
        if let Target::Upstream(used) = &route.target {
            let held = match used.key.split_once('/') {
                Some(("upstreams", id)) => graph.upstreams.get(id),
                Some(("services", id)) => graph.services[id].upstream.as_ref(),
                _ => continue,
            };
            assert!(
                held.is_some_and(|held| Arc::ptr_eq(held, used)),
                "{id} {}",
                used.key
            );
        }
    }
    for (name, consumer) in &graph.consumers {
        let plugins = graph.snapshot.consumers.plugins(name).unwrap();
        assert!(Arc::ptr_eq(&plugins.own, &consumer.instances), "{name}");
        let group = consumer
            .group_id
            .as_ref()
            .and_then(|id| graph.groups.get(id));
        assert!(same(&plugins.group, &group.cloned()), "{name}");
    }
}

/// The text of a snapshot, without what lives on in upstreams.
fn frozen(snapshot: &Snapshot) -> Vec<String> {
    let mut lines = snapshot.router.dump();
    lines.extend(snapshot.global.describe());
    lines.extend(snapshot.consumers.describe());
    lines.extend(snapshot.router.iter().flat_map(|listed| {
        let route = &listed.entry.value;
        let plan = route.plan.describe();
        plan.into_iter()
            .chain([format!("{:?} {}", route.info, target(route))])
    }));
    lines
}

/// Applies a batch, and checks what is said of it.
fn apply(graph: &mut Graph, steps: &[Step]) -> Option<Arc<Snapshot>> {
    let changes = steps.iter().map(|step| match &step.value {
        Some(value) => put(&step.name, value.clone()),
        None => delete(&step.name),
    });
    let before = graph.revision();
    let applied = graph.apply(changes.collect());
    let refused: BTreeSet<&str> = applied.problems.iter().map(|p| &*p.resource).collect();
    let invalid: BTreeSet<&str> = steps
        .iter()
        .filter(|s| !s.valid)
        .map(|s| &*s.name)
        .collect();
    assert_eq!(refused, invalid, "{:?}", texts(&applied.problems));
    assert_eq!(applied.snapshot.is_some(), !applied.changed.is_empty());
    assert_eq!(
        graph.revision() - before,
        u64::from(applied.snapshot.is_some())
    );
    applied.snapshot
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_way_gives_what_one_step_gives(steps in prop::collection::vec(any_step(), 1..=40)) {
        let (mut graph, mut model) = (graph(), Model::default());
        let mut snapshots = Vec::new();
        for batch in steps.split_inclusive(|step| step.last) {
            batch.iter().for_each(|step| model.take(step));
            snapshots.extend(apply(&mut graph, batch).map(|held| (frozen(&held), held)));
            check_current(&graph);
        }
        let mut fresh = super::graph();
        fresh.accept(model.0.iter().map(|(key, value)| Change::Put(key.clone(), Arc::clone(value))));

        prop_assert_eq!(describe(&graph), describe(&fresh));
        prop_assert_eq!(configurations(&graph), configurations(&fresh));
        prop_assert_eq!(&graph.users, &fresh.users);
        prop_assert_eq!(&graph.prints, &fresh.prints);
        for (text, held) in &snapshots {
            prop_assert_eq!(text, &frozen(held), "a snapshot changed");
        }
        // And what is there already changes nothing.
        let changes = graph.difference(model.0);
        prop_assert!(graph.accept(changes).snapshot.is_none());
    }
}
