//! A change makes new what it touches and nothing else.

use super::*;

const ROUTES: [&str; 5] = [
    "own",
    "inline",
    "by_service",
    "by_service_too",
    "by_upstream",
];

/// One route of each kind, all with plugins.
fn shop() -> (Graph, Arc<Snapshot>) {
    let mut graph = graph();
    let echo = |body: &str| json!({"echo": {"body": body}});
    let applied = graph.accept([
        put(
            "routes/own",
            json!({"uri": "/own", "plugins": {"echo": {"body": "1"}, "cors": {}}}),
        ),
        put(
            "routes/inline",
            json!({"uri": "/inline", "plugins": echo("2"), "upstream": nodes(&[1])}),
        ),
        put(
            "routes/by_service",
            json!({"uri": "/s", "plugins": echo("3"), "service_id": "s"}),
        ),
        put(
            "routes/by_service_too",
            json!({"uri": "/t", "service_id": "s", "plugin_config_id": "p"}),
        ),
        put(
            "routes/by_upstream",
            json!({"uri": "/u", "plugins": echo("4"), "upstream_id": "u"}),
        ),
        put(
            "services/s",
            json!({"plugins": {"cors": {}}, "upstream_id": "u"}),
        ),
        put("plugin_configs/p", json!({"plugins": echo("5")})),
        put("upstreams/u", nodes(&[1, 2])),
    ]);
    assert_eq!(applied.compiled_routes, ROUTES.len());
    (graph, applied.snapshot.unwrap())
}

fn nodes(ports: &[u16]) -> Value {
    let nodes = ports
        .iter()
        .map(|port| (format!("127.0.0.1:{port}"), json!(1)));
    json!({"nodes": Value::Object(nodes.collect())})
}

/// Applies changes; exactly the routes in `compiled` may be new.
fn check(
    graph: &mut Graph,
    before: &Snapshot,
    changes: impl IntoIterator<Item = Change>,
    compiled: &[&str],
) -> Arc<Snapshot> {
    let applied = graph.accept(changes);
    let after = applied.snapshot.expect("something changed");
    for id in ROUTES {
        let (Some(old), Some(new)) = (entry(before, id), entry(&after, id)) else {
            continue;
        };
        assert_eq!(
            Arc::ptr_eq(&old, &new),
            !compiled.contains(&id),
            "route {id}"
        );
        assert_eq!(
            Arc::ptr_eq(&old.plan, &new.plan),
            !compiled.contains(&id),
            "plan of {id}"
        );
    }
    assert_eq!(applied.compiled_routes, compiled.len());
    after
}

#[test]
fn a_route_keeps_its_plugins_and_its_upstream() {
    let (mut graph, first) = shop();
    let changed = json!({"uri": "/new", "plugins": {"echo": {"body": "9"}, "cors": {}}});
    let second = check(&mut graph, &first, [put("routes/own", changed)], &["own"]);
    let (old, new) = (route(&first, "own"), route(&second, "own"));
    assert_eq!(identity(&old, "cors"), identity(&new, "cors"));
    assert_ne!(identity(&old, "echo"), identity(&new, "echo"));

    let changed =
        json!({"uri": "/inline2", "plugins": {"echo": {"body": "2"}}, "upstream": nodes(&[2, 1])});
    let third = check(
        &mut graph,
        &second,
        [put("routes/inline", changed)],
        &["inline"],
    );
    let (old, new) = (route(&second, "inline"), route(&third, "inline"));
    assert_eq!(identity(&old, "echo"), identity(&new, "echo"));
    assert!(Arc::ptr_eq(&upstream(&old), &upstream(&new)));
    assert_eq!(upstream(&new).shape().nodes.len(), 2);
}

#[test]
fn new_nodes_compile_no_route() {
    let (mut graph, first) = shop();
    let handle = upstream(&route(&first, "by_service"));
    let before = handle.shape();
    let second = check(
        &mut graph,
        &first,
        [put("upstreams/u", nodes(&[2, 3]))],
        &[],
    );
    assert!(second.revision > first.revision);
    for id in ["by_service", "by_service_too", "by_upstream"] {
        assert!(Arc::ptr_eq(&handle, &upstream(&route(&second, id))), "{id}");
    }
    let after = handle.shape();
    let ports = |shape: &crate::upstream::Shape| -> Vec<u16> {
        shape.nodes.iter().map(|n| n.port).collect()
    };
    assert_eq!((ports(&before), ports(&after)), (vec![1, 2], vec![2, 3]));
    assert!(
        Arc::ptr_eq(&before.nodes[1], &after.nodes[0]),
        "the node on port 2 lives on"
    );
}

#[test]
fn what_is_shared_compiles_its_users() {
    let (mut graph, first) = shop();
    let users = ["by_service", "by_service_too"];
    let service = json!({"plugins": {"cors": {}, "request-id": {}}, "upstream_id": "u"});
    let second = check(&mut graph, &first, [put("services/s", service)], &users);
    for id in users {
        let (old, new) = (route(&first, id), route(&second, id));
        assert!(
            new.plan.has("request-id") && !old.plan.has("request-id"),
            "{id}"
        );
        for plugin in ["cors", "echo"] {
            assert_eq!(
                identity(&old, plugin),
                identity(&new, plugin),
                "{plugin} of {id}"
            );
        }
    }
    let config = json!({"plugins": {"echo": {"body": "6"}}});
    let third = check(
        &mut graph,
        &second,
        [put("plugin_configs/p", config)],
        &["by_service_too"],
    );
    let metadata = json!({"allow_origins": {"one": "https://a.com"}});
    let all = ["own", "by_service", "by_service_too"];
    let fourth = check(
        &mut graph,
        &third,
        [put("plugin_metadata/cors", metadata)],
        &all,
    );
    for id in all {
        let (old, new) = (route(&third, id), route(&fourth, id));
        assert_ne!(identity(&old, "cors"), identity(&new, "cors"), "{id}");
        assert_eq!(identity(&old, "echo"), identity(&new, "echo"), "{id}");
    }
}

#[test]
fn what_is_beside_routes_compiles_none() {
    let (mut graph, first) = shop();
    for change in [
        put("global_rules/g", json!({"plugins": {"request-id": {}}})),
        put(
            "consumers/ann",
            json!({"username": "ann", "plugins": {"key-auth": {"key": "k"}}}),
        ),
        put(
            "consumers/ann/credentials/1",
            json!({"plugins": {"key-auth": {"key": "l"}}}),
        ),
        put("consumer_groups/g", json!({"plugins": {"request-id": {}}})),
        put("services/unused", json!({"plugins": {"cors": {}}})),
        delete("consumers/ann"),
        delete("global_rules/g"),
    ] {
        check(&mut graph, &first, [change], &[]);
    }
    check(&mut graph, &first, [delete("routes/own")], &[]);
}

#[test]
fn nothing_new_gives_no_snapshot() {
    let (mut graph, first) = shop();
    // The order of members means nothing.
    let same =
        json!({"upstream": nodes(&[1]), "plugins": {"echo": {"body": "2"}}, "uri": "/inline"});
    for change in [
        put("routes/inline", same),
        put("upstreams/u", nodes(&[1, 2])),
        delete("routes/none"),
    ] {
        let applied = graph.accept([change]);
        assert!(applied.snapshot.is_none() && applied.changed.is_empty());
        assert_eq!(
            (applied.compiled_routes, graph.revision()),
            (0, first.revision)
        );
    }
}
