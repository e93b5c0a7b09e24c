//! What is wrong, old or missing stays where it is.

use lockgate_plugin::Consumers;

use super::*;

#[test]
fn a_refused_resource_leaves_its_previous_version_and_its_neighbours() {
    let mut graph = graph();
    graph.accept([
        put("routes/1", json!({"uri": "/one", "plugins": {"cors": {}}, "upstream": {"nodes": {"127.0.0.1:1": 1}}})),
        put("upstreams/u", json!({"nodes": {"127.0.0.1:1": 1}})),
        put("consumers/ann", json!({"username": "ann", "plugins": {"key-auth": {"key": "k"}}})),
    ]);
    let before = (graph.describe(), graph.len());
    let wrong = [
        (
            "routes/1",
            json!({"uri": "/new", "plugins": {"cors": {"max_age": "x"}}}),
            "plugins.cors.max_age",
        ),
        (
            "routes/1",
            json!({"uri": "/new", "plugins": {}, "vars": [["a", "~!~", "x"]]}),
            "vars",
        ),
        (
            "routes/1",
            json!({"uri": "/new", "upstream": {"nodes": {"127.0.0.1:2": -1}}}),
            "upstream.nodes",
        ),
        (
            "routes/new",
            json!({"uri": "/new", "plugins": {"ecko": {}}}),
            "plugins.ecko",
        ),
        (
            "upstreams/u",
            json!({"nodes": {"127.0.0.1:2": 1}, "scheme": "ftp"}),
            "scheme",
        ),
        (
            "consumers/ann",
            json!({"username": "ann", "plugins": {"key-auth": {"key": 7}}}),
            "plugins.key-auth.key",
        ),
        (
            "global_rules/1",
            json!({"plugins": {"echo": {}}}),
            "plugins.echo",
        ),
    ];
    for (name, value, path) in &wrong {
        let applied = graph.apply(vec![put(name, value.clone())]);
        let texts = texts(&applied.problems);
        let found = applied
            .problems
            .iter()
            .all(|p| p.resource == *name && p.path.starts_with(path));
        assert!(!texts.is_empty() && found, "{name} {path}: {texts:?}");
        assert!(
            applied.snapshot.is_none() && applied.changed.is_empty(),
            "{name}"
        );
        assert_eq!(before, (graph.describe(), graph.len()), "{name} {value}");
    }

    // All of them in one batch, with neighbours before and behind.
    let mut batch = vec![put("routes/0", json!({"uri": "/zero", "plugins": {}}))];
    batch.extend(
        wrong
            .iter()
            .map(|(name, value, _)| put(name, value.clone())),
    );
    batch.push(put("routes/2", json!({"uri": "/two", "plugins": {}})));
    let applied = graph.apply(batch);
    let snapshot = applied.snapshot.unwrap();
    assert_eq!(applied.changed, [key("routes/0"), key("routes/2")]);
    for (path, id) in [
        ("/zero", Some("0")),
        ("/one", Some("1")),
        ("/two", Some("2")),
        ("/new", None),
    ] {
        assert_eq!(find(&snapshot, "x", path).as_deref(), id, "{path}");
    }
    let refused: BTreeSet<&str> = applied.problems.iter().map(|p| &*p.resource).collect();
    assert_eq!(refused, wrong.iter().map(|(name, ..)| *name).collect());
}

#[test]
fn an_old_snapshot_stays_as_it_was() {
    let mut graph = graph();
    let resources = |tag: &str| {
        let echo = json!({"echo": {"body": tag}});
        [
            put(
                "routes/1",
                json!({"uri": format!("/{tag}"), "plugins": echo}),
            ),
            put("routes/2", json!({"uri": "/s", "service_id": "s"})),
            put(
                "services/s",
                json!({"hosts": [format!("{tag}.com")], "plugins": echo, "upstream_id": "u"}),
            ),
            put("upstreams/u", json!({"nodes": {"127.0.0.1:1": 1}})),
            put(
                "global_rules/g",
                json!({"plugins": {"request-id": {"header_name": tag}}}),
            ),
            put(
                "consumers/ann",
                json!({"username": "ann", "plugins": {"key-auth": {"key": tag}}}),
            ),
        ]
    };
    let old = graph.accept(resources("old")).snapshot.unwrap();
    let plugins = ["1", "2"].map(|id| identity(&route(&old, id), "echo"));
    let check_old = || {
        assert_eq!(find(&old, "x", "/old").as_deref(), Some("1"));
        assert_eq!(find(&old, "old.com", "/s").as_deref(), Some("2"));
        assert_eq!(find(&old, "x", "/new"), None);
        assert_eq!(find(&old, "new.com", "/s"), None);
        assert_eq!(
            plugins,
            ["1", "2"].map(|id| identity(&route(&old, id), "echo"))
        );
        assert_eq!(target(&route(&old, "2")), "upstreams/u");
        assert!(old.global.has("request-id"));
        assert!(old.consumers.by_key("key-auth", "old").is_some());
        assert!(old.consumers.by_key("key-auth", "new").is_none());
    };
    check_old();

    let new = graph.accept(resources("new")).snapshot.unwrap();
    check_old();
    assert_eq!(find(&new, "x", "/new").as_deref(), Some("1"));
    assert_eq!(find(&new, "new.com", "/s").as_deref(), Some("2"));
    assert_eq!(
        (find(&new, "x", "/old"), find(&new, "old.com", "/s")),
        (None, None)
    );
    assert!(new.consumers.by_key("key-auth", "old").is_none());

    let changes = graph.difference(std::iter::empty::<(Key, Arc<Value>)>());
    let empty = graph.accept(changes).snapshot.unwrap();
    check_old();
    assert_eq!(find(&new, "x", "/new").as_deref(), Some("1"));
    assert!(empty.router.iter().next().is_none() && empty.global.is_empty() && graph.is_empty());
    assert!(graph.users.is_empty());
}

#[test]
fn a_dangling_reference_becomes_live() {
    let mut graph = graph();
    let mut check = |change: Change, expected: [&str; 4]| {
        let snapshot = graph.accept([change]).snapshot.unwrap();
        let targets = ["by_upstream", "by_service", "by_config", "by_all"]
            .map(|id| entry(&snapshot, id).map_or("none".to_owned(), |route| target(&route)));
        assert_eq!(targets, expected);
    };
    const UPSTREAM: &str = "missing upstream";
    const SERVICE: &str = "missing service";
    const CONFIG: &str = "missing plugin_config";
    let all = json!({"uri": "/4", "service_id": "s", "plugin_config_id": "p", "upstream_id": "u"});
    let config =
        json!({"uri": "/3", "plugin_config_id": "p", "upstream": {"nodes": {"127.0.0.1:1": 1}}});
    check(
        put(
            "routes/by_upstream",
            json!({"uri": "/1", "upstream_id": "u"}),
        ),
        [UPSTREAM, "none", "none", "none"],
    );
    check(
        put("routes/by_service", json!({"uri": "/2", "service_id": "s"})),
        [UPSTREAM, SERVICE, "none", "none"],
    );
    check(
        put("routes/by_config", config),
        [UPSTREAM, SERVICE, CONFIG, "none"],
    );
    check(
        put("routes/by_all", all),
        [UPSTREAM, SERVICE, CONFIG, CONFIG],
    );
    check(
        put("services/s", json!({"upstream_id": "u"})),
        [UPSTREAM, UPSTREAM, CONFIG, CONFIG],
    );
    let (u, inline) = ("upstreams/u", "routes/by_config");
    check(
        put("upstreams/u", json!({"nodes": {"127.0.0.1:1": 1}})),
        [u, u, CONFIG, CONFIG],
    );
    check(
        put("plugin_configs/p", json!({"plugins": {"cors": {}}})),
        [u, u, inline, u],
    );
    check(delete("services/s"), [u, SERVICE, inline, SERVICE]);
    check(delete("upstreams/u"), [UPSTREAM, SERVICE, inline, SERVICE]);
    check(
        put("services/s", json!({})),
        [UPSTREAM, "none", inline, UPSTREAM],
    );
    check(
        put("upstreams/u", json!({"nodes": {"127.0.0.1:2": 1}})),
        [u, "none", inline, u],
    );
    check(delete("plugin_configs/p"), [u, "none", CONFIG, CONFIG]);
}

#[test]
fn a_consumer_waits_for_its_group_and_its_credentials_for_it() {
    let mut graph = graph();
    let credential = json!({"plugins": {"key-auth": {"key": "k"}}});
    let first = graph
        .accept([put("consumers/ann/credentials/1", credential)])
        .snapshot
        .unwrap();
    assert!(first.consumers.by_key("key-auth", "k").is_none());
    let ann = json!({"username": "ann", "group_id": "g"});
    let second = graph.accept([put("consumers/ann", ann)]).snapshot.unwrap();
    let found = second.consumers.by_key("key-auth", "k").unwrap();
    assert_eq!(
        (&*found.consumer.username, found.credential_id.as_deref()),
        ("ann", Some("1"))
    );
    assert!(second.consumers.plugins("ann").unwrap().missing_group);
    let group = json!({"plugins": {"cors": {}}});
    let third = graph
        .accept([put("consumer_groups/g", group)])
        .snapshot
        .unwrap();
    let plugins = third.consumers.plugins("ann").unwrap();
    assert!(!plugins.missing_group && plugins.group.is_some());
    let renewed = third.consumers.by_key("key-auth", "k").unwrap();
    assert_ne!(
        found.version, renewed.version,
        "cached plans with the old group are not found again"
    );
}

#[test]
fn a_key_that_two_present_goes_back_to_the_other() {
    let consumer = |name: &str| {
        let value = json!({"username": name, "plugins": {"key-auth": {"key": "k"}}});
        put(&format!("consumers/{name}"), value)
    };
    let mut graph = graph();
    let mut check = |change: Change, expected: Option<&str>| {
        let snapshot = graph.accept([change]).snapshot.unwrap();
        let found = snapshot.consumers.by_key("key-auth", "k");
        assert_eq!(found.map(|found| &*found.consumer.username), expected);
    };
    check(consumer("bob"), Some("bob"));
    check(consumer("ann"), Some("bob"));
    check(delete("consumers/bob"), Some("ann"));
    check(consumer("bob"), Some("bob"));
    check(delete("consumers/ann"), Some("bob"));
    check(delete("consumers/bob"), None);
}

#[test]
fn unknown_variables_are_warned_of() {
    let misspelt = json!([["remote_adr", "==", "1"], ["arg_a", "==", "1"]]);
    let plugins = json!({
        "ip-restriction": {"blacklist": ["10.0.0.1"], "_meta": {"filter": misspelt}},
        "fault-injection": {"abort": {"http_status": 403, "body": "$hots", "vars": [[["statsu", "==", 1]]]}},
        "mocking": {"response_example": "$exampel $uri"},
        "proxy-rewrite": {"uri": "/$pth", "headers": {"set": {"X-A": "$1 $scheem"}}},
        "redirect": {"uri": "/$quary"},
        "response-rewrite": {"headers": {"add": ["A: $contnet_type"]}, "vars": [["statsu", "==", 1]]},
        "echo": {"body": "$body"},
    });
    let warning = |resource: &str, path: &str, names: &str| {
        format!("{resource} {path}: unknown variables never have a value: {names}")
    };
    let of_plugins = |resource: &str| {
        [
            ("ip-restriction", "remote_adr"),
            ("fault-injection", "hots, statsu"),
            ("mocking", "exampel"),
            ("proxy-rewrite", "pth, scheem"),
            ("redirect", "quary"),
            ("response-rewrite", "contnet_type, statsu"),
        ]
        .map(|(plugin, names)| warning(resource, &format!("plugins.{plugin}"), names))
    };
    let mut graph = graph();
    let route = json!({"uri": "/a", "vars": misspelt, "plugins": plugins});
    let applied = graph.accept([put("routes/1", route)]);
    let mut expected = vec![warning("routes/1", "vars", "remote_adr")];
    expected.extend(of_plugins("routes/1"));
    assert_eq!(texts(&applied.warnings), expected);
    let consumer = json!({"username": "a", "plugins": plugins});
    for (name, value) in [
        ("services/1", json!({"plugins": plugins})),
        ("plugin_configs/1", json!({"plugins": plugins})),
        ("consumer_groups/1", json!({"plugins": plugins})),
        ("global_rules/1", json!({"plugins": plugins})),
        ("consumers/a", consumer),
    ] {
        let applied = graph.accept([put(name, value)]);
        assert_eq!(texts(&applied.warnings), of_plugins(name));
    }
}
