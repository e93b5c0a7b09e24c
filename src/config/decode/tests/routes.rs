use serde_json::json;

use super::*;

fn route(extra: Value) -> Value {
    with(json!({"uri": "/a", "upstream_id": "1"}), extra)
}

#[test]
fn routes() {
    check(
        Kind::Route,
        json!("x"),
        &["wrong type: a resource is an object"],
    );
    check(Kind::Route, route(json!({})), &[]);
    check(
        Kind::Route,
        route(json!({"id": 1.0, "name": "a", "desc": null, "labels": {"a": "b"}, "plugins": []})),
        &[],
    );
    check(
        Kind::Route,
        json!({"uri": "/a"}),
        &["one of plugins, upstream, upstream_id or service_id is required"],
    );
    check(
        Kind::Route,
        json!({"plugins": {}}),
        &["property \"uri\" is required (or \"uris\")"],
    );
    check(
        Kind::Route,
        route(json!({"uris": ["/b"]})),
        &["uris: only one of uri or uris is allowed"],
    );
    check(
        Kind::Route,
        route(json!({"host": "a", "hosts": ["b"]})),
        &["hosts: only one of host or hosts is allowed"],
    );
    check(
        Kind::Route,
        route(json!({"remote_addr": "::1", "remote_addrs": ["::1"]})),
        &["remote_addrs: only one of remote_addr or remote_addrs is allowed"],
    );
    check(
        Kind::Route,
        route(json!({"remote_addr": "x"})),
        &["remote_addr: invalid ip address: x"],
    );
    check(
        Kind::Route,
        route(json!({"remote_addrs": ["1.2.3.4", "10.0.0.0/33", "fe80::/10"]})),
        &["remote_addrs[1]: invalid ip address: 10.0.0.0/33"],
    );
    check(
        Kind::Route,
        route(json!({"uri": "a"})),
        &["uri: a path starts with `/`, found `a`"],
    );
    check(
        Kind::Route,
        json!({"uris": ["/a", "b"], "service_id": 1}),
        &["uris[1]: a path starts with `/`, found `b`"],
    );
    check(
        Kind::Route,
        route(json!({"prioritty": 1})),
        &["prioritty: additional properties forbidden, found prioritty (did you mean `priority`?)"],
    );
}

#[test]
fn every_kind_of_wrong_value_in_a_route() {
    check(
        Kind::Route,
        route(json!({"priority": "1", "status": 2, "enable_websocket": "yes"})),
        &[
            "priority: wrong type: expected integer, got string",
            "status: matches none of the enum values (found 2, allowed: 1, 0)",
            "enable_websocket: wrong type: expected boolean, got string",
        ],
    );
    check(
        Kind::Route,
        route(
            json!({"methods": ["GET", "get"], "hosts": [], "timeout": {"connect": 0, "send": "1"}}),
        ),
        &[
            "methods[1]: matches none of the enum values (found \"get\", allowed: \"GET\", \"POST\", \"PUT\", \
             \"DELETE\", \"PATCH\", \"HEAD\", \"OPTIONS\", \"CONNECT\", \"TRACE\", \"PURGE\")",
            "hosts: expect array to have at least 1 items",
            "timeout.connect: expected 0 to be greater than 0",
            "timeout.send: wrong type: expected number, got string",
            "timeout: property \"read\" is required",
        ],
    );
    check(
        Kind::Route,
        json!({"uris": ["/a", "", "/a"], "methods": ["GET", "GET"], "plugins": {}}),
        &[
            "uris[1]: string too short, expected at least 1, got 0",
            "uris: expected unique items but items 1 and 3 are equal",
            "methods: expected unique items but items 1 and 2 are equal",
        ],
    );
    check(
        Kind::Route,
        route(json!({"id": "a b", "service_id": 0, "upstream_id": true, "name": ""})),
        &[
            "upstream_id: object matches none of the required",
            "id: failed to match pattern \"^[a-zA-Z0-9-_.]+$\" with \"a b\"",
            "service_id: expected 0 to be at least 1",
            "name: string too short, expected at least 1, got 0",
        ],
    );
    check(
        Kind::Route,
        route(json!({"host": "a/b", "labels": {"a": 1, "b": ""}, "plugins": "x", "upstream": []})),
        &[
            "host: failed to match pattern \"^(\\*|\\*?[0-9a-zA-Z-._\\[\\]:]+)$\" with \"a/b\"",
            "labels.a: wrong type: expected string, got number",
            "labels.b: string too short, expected at least 1, got 0",
            "labels.b: failed to match pattern \"^\\S+$\" with \"\"",
            "plugins: wrong type: expected object, got string",
        ],
    );
    check(
        Kind::Route,
        route(json!({"vars": [["a", "=", 1]]})),
        &["vars[0][1]: failed to validate the 'vars' expression: invalid operator '='"],
    );
    check(Kind::Route, route(json!({"vars": {}})), &[]);
    check(
        Kind::Route,
        route(json!({"vars": "x"})),
        &["vars: wrong type: expected array, got string"],
    );
    check(
        Kind::Route,
        json!({"uri": "/a", "upstream": {"nodes": [{"host": "a", "port": 1, "weight": 1},
                                                   {"host": "b", "port": 1, "weight": -1}]}}),
        &["upstream.nodes[1].weight: expected -1 to be at least 0"],
    );
    check(
        Kind::Route,
        json!({"uri": "/a", "upstream": {"nodes": {"a:x": 1}, "pass_host": "rewrite"}}),
        &[
            "upstream.upstream_host: `upstream_host` can't be empty when `pass_host` is `rewrite`",
            "upstream.nodes.a:x: invalid port x",
        ],
    );
}

#[test]
fn lua_is_refused_with_the_alternative() {
    for (name, kind) in [
        ("filter_func", Kind::Route),
        ("script", Kind::Route),
        ("script", Kind::Service),
    ] {
        let raw = with(
            json!({"plugins": {}}),
            json!({name: "function(vars) return true end"}),
        );
        let raw = if kind == Kind::Route {
            with(raw, json!({"uri": "/a"}))
        } else {
            raw
        };
        let (problems, _) = lines(kind, &raw, &catalogue());
        let [only] = problems.as_slice() else {
            panic!("{problems:?}")
        };
        assert!(
            only.starts_with(&format!("{name}: Lua source is not run by this version")),
            "{only}"
        );
        assert!(only.contains("plugins"), "{only}");
    }
}

#[test]
fn one_look_finds_all_that_is_wrong() {
    check(
        Kind::Route,
        json!({"uri": 1, "vars": [["a", "=", 1]], "plugins": {"eco": {}, "echo": {"body": 5}}}),
        &[
            "vars[0][1]: failed to validate the 'vars' expression: invalid operator '='",
            "uri: wrong type: expected string, got number",
            "plugins.eco: unknown plugin [eco] (did you mean `echo`?)",
            "plugins.echo.body: wrong type: expected string, got number",
        ],
    );
}
