//! Any sequence of changes gives what compiling its result at once gives.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::X509;

use super::*;

/// An edit of the file.
#[derive(Clone, Debug)]
struct Step {
    name: String,
    edit: Edit,
    /// Where the resource is moved to. Otherwise it stays where it is; a new one becomes the last.
    to: Option<Index>,
    /// Whether the file is read after this edit.
    last: bool,
}

#[derive(Clone, Debug)]
enum Edit {
    Put(Value),
    /// Of a value that is refused.
    Break(Value),
    Move,
    Delete,
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
        json!({"nodes": {"127.0.0.1:2": 3}, "scheme": "https", "tls": {"client_cert_id": "a"}}),
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
        1 => named("ssls", select(vec!["x.com", "*.x.com", ""]).prop_map(certificate)),
        1 => select(metadata).prop_map(|lists| {
            ("plugin_metadata/cors".to_owned(), json!({"allow_origins": lists}))
        }),
    ]
}

/// A certificate for a name, or without one for upstreams; the same for all of them.
pub(super) fn certificate(sni: &str) -> Value {
    static PAIR: LazyLock<(String, String)> = LazyLock::new(|| {
        let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
        let mut cert = X509::builder().unwrap();
        cert.set_pubkey(&key).unwrap();
        let day = |n| Asn1Time::days_from_now(n).unwrap();
        cert.set_not_before(&day(0)).unwrap();
        cert.set_not_after(&day(1)).unwrap();
        cert.sign(&key, MessageDigest::sha256()).unwrap();
        let text = |pem: Vec<u8>| String::from_utf8(pem).unwrap();
        let key = text(key.private_key_to_pem_pkcs8().unwrap());
        (text(cert.build().to_pem().unwrap()), key)
    });
    match sni {
        "" => json!({"type": "client", "cert": PAIR.0, "key": PAIR.1}),
        sni => json!({"sni": sni, "cert": PAIR.0, "key": PAIR.1}),
    }
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
    let what = prop_oneof![
        6 => Just("put"), 2 => Just("delete"), 1 => Just("break"), 2 => Just("move")
    ];
    (
        any_resource(),
        what,
        any::<bool>(),
        prop::option::weighted(0.4, any::<Index>()),
        prop::bool::weighted(0.4),
    )
        .prop_map(|((name, value), what, in_plugins, to, last)| {
            let edit = match what {
                "put" => Edit::Put(value),
                "break" => Edit::Break(broken(&name, value, in_plugins)),
                "move" => Edit::Move,
                _ => Edit::Delete,
            };
            Step {
                name,
                edit,
                to,
                last,
            }
        })
}

/// The file, and what is to be in use of it.
#[derive(Default)]
struct Model {
    /// What is written, and whether it is valid.
    file: Vec<(Key, Arc<Value>, bool)>,
    /// The last valid version of what is in the file.
    used: BTreeMap<Key, Arc<Value>>,
}

impl Model {
    fn edit(&mut self, step: &Step) {
        let key = key(&step.name);
        let held = self.file.iter().position(|(held, ..)| *held == key);
        let (value, valid) = match (&step.edit, held) {
            (Edit::Put(value), _) => (Arc::new(value.clone()), true),
            (Edit::Break(value), _) => (Arc::new(value.clone()), false),
            (Edit::Move, Some(at)) => (Arc::clone(&self.file[at].1), self.file[at].2),
            (Edit::Delete, Some(at)) => return drop(self.file.remove(at)),
            (Edit::Move | Edit::Delete, None) => return,
        };
        let end = self.file.len() - usize::from(held.is_some());
        let to = step.to.map(|to| to.index(end + 1)).or(held);
        if let Some(at) = held {
            self.file.remove(at);
        }
        self.file.insert(to.unwrap_or(end), (key, value, valid));
    }

    /// The file is read.
    fn read(&mut self) -> Vec<(Key, Arc<Value>)> {
        let written: BTreeSet<&Key> = self.file.iter().map(|(key, ..)| key).collect();
        self.used.retain(|key, _| written.contains(key));
        let valid = self.file.iter().filter(|(.., valid)| *valid);
        self.used
            .extend(valid.map(|(key, value, _)| (key.clone(), Arc::clone(value))));
        let both = |(key, value, _): &(Key, Arc<Value>, bool)| (key.clone(), Arc::clone(value));
        self.file.iter().map(both).collect()
    }

    /// What is in use, in the order of the file.
    fn in_use(&self) -> Vec<(Key, Arc<Value>)> {
        let used = |key: &Key| Some((key.clone(), Arc::clone(self.used.get(key)?)));
        self.file.iter().filter_map(|(key, ..)| used(key)).collect()
    }
}

/// What `describe` leaves out: the plugin configurations in use, by fingerprint.
fn configurations(graph: &Graph) -> Vec<String> {
    let prints = |list: &Option<Instances>| -> Vec<(&str, u64)> {
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
    lines.extend(snapshot.tls.describe());
    lines.extend(snapshot.router.iter().flat_map(|listed| {
        let route = &listed.entry.value;
        let plan = route.plan.describe();
        plan.into_iter()
            .chain([format!("{:?} {}", route.info, target(route))])
    }));
    lines
}

/// Takes the file as it is now, and checks what is said of it.
fn read(graph: &mut Graph, model: &mut Model) -> Option<Arc<Snapshot>> {
    let changes = graph.difference(model.read());
    let before = graph.revision();
    let applied = graph.apply(changes);
    let refused: BTreeSet<&str> = applied.problems.iter().map(|p| &*p.resource).collect();
    let invalid = model.file.iter().filter(|(.., valid)| !valid);
    let invalid: Vec<String> = invalid.map(|(key, ..)| key.to_string()).collect();
    assert_eq!(
        refused,
        invalid.iter().map(String::as_str).collect(),
        "{:?}",
        texts(&applied.problems)
    );
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
            batch.iter().for_each(|step| model.edit(step));
            snapshots.extend(read(&mut graph, &mut model).map(|held| (frozen(&held), held)));
            check_current(&graph);
        }
        let mut fresh = super::graph();
        let changes = fresh.difference(model.in_use());
        fresh.accept(changes);

        prop_assert_eq!(graph.describe(), fresh.describe());
        prop_assert_eq!(configurations(&graph), configurations(&fresh));
        prop_assert_eq!(&graph.users, &fresh.users);
        prop_assert_eq!(&graph.prints, &fresh.prints);
        for (text, held) in &snapshots {
            prop_assert_eq!(text, &frozen(held), "a snapshot changed");
        }
        // And what is there already changes nothing.
        let changes = graph.difference(model.in_use());
        prop_assert!(graph.accept(changes).snapshot.is_none());
    }
}

/// Of routes that are equal but for their ids, the first in the file is used, and to insert or move
/// one compiles that one alone.
#[test]
fn the_order_of_the_file_survives_edits() {
    let mut graph = graph();
    let mut check = |ids: &str, compiled: usize| {
        let route = |id: char| {
            let value = json!({"uri": "/a", "plugins": {}});
            (key(&format!("routes/{id}")), Arc::new(value))
        };
        let changes = graph.difference(ids.chars().map(route));
        let applied = graph.accept(changes);
        assert_eq!(applied.compiled_routes, compiled, "{ids}");
        let snapshot = graph.snapshot();
        let first = ids.chars().next().map(String::from);
        assert_eq!(find(&snapshot, "x.com", "/a"), first, "{ids}");
        let listed = snapshot.router.iter().map(|listed| &*listed.entry.id);
        assert_eq!(listed.collect::<String>(), ids);
    };
    check("bcd", 3);
    check("abcd", 1);
    check("bcda", 1);
    check("abcd", 1);
    check("axbycd", 2);
    check("axbycd", 0);
    check("cd", 0);
    check("dc", 1);
}

/// The same for certificates of one name.
#[test]
fn the_order_of_certificates_survives_edits() {
    let mut graph = graph();
    let mut check = |ids: &str, changed: usize| {
        let ssl = |id: char| {
            let value = certificate("x.com");
            (key(&format!("ssls/{id}")), Arc::new(value))
        };
        let changes = graph.difference(ids.chars().map(ssl));
        assert_eq!(graph.accept(changes).changed.len(), changed, "{ids}");
        let snapshot = graph.snapshot();
        let first = snapshot.tls.find("x.com").map(|entry| entry.id.to_string());
        assert_eq!(first, ids.chars().next().map(String::from), "{ids}");
    };
    check("bc", 2);
    check("abc", 1);
    check("cab", 1);
    check("cab", 0);
    check("ab", 1);
}
