use serde_json::json;

use super::*;

fn catalogue() -> Catalogue {
    Catalogue::everything(lockgate_plugins::ALL)
}

/// Decodes; problems and warnings as lines without the resource.
fn lines(kind: Kind, raw: &Value, catalogue: &Catalogue) -> (Vec<String>, Vec<String>) {
    let key = Key::new(kind, "1");
    let mut warnings = Problems::default();
    let problems = decode(&key, raw, catalogue, &mut warnings).err().unwrap_or_default();
    let lines = |problems: Problems| {
        let line = |mut problem: Problem| {
            assert_eq!(std::mem::take(&mut problem.resource), key.to_string());
            problem.to_string()
        };
        problems.into_iter().map(line).collect()
    };
    (lines(problems), lines(warnings))
}

/// Every problem, in order; none: it is accepted without a warning.
#[allow(clippy::needless_pass_by_value)] // Rows read better without a `&`.
fn check(kind: Kind, raw: Value, expected: &[&str]) {
    let (problems, warnings) = lines(kind, &raw, &catalogue());
    assert_eq!(problems, expected, "{raw}");
    assert!(warnings.is_empty(), "{raw}: {warnings:?}");
}

/// It is accepted with exactly these warnings.
#[allow(clippy::needless_pass_by_value)] // Rows read better without a `&`.
fn warns(kind: Kind, raw: Value, expected: &[&str]) {
    let (problems, warnings) = lines(kind, &raw, &catalogue());
    assert!(problems.is_empty(), "{raw}: {problems:?}");
    assert_eq!(warnings, expected, "{raw}");
}

fn with(mut base: Value, extra: Value) -> Value {
    if let (Some(base), Value::Object(extra)) = (base.as_object_mut(), extra) {
        base.extend(extra);
    }
    base
}

fn route(extra: Value) -> Value {
    with(json!({"uri": "/a", "upstream_id": "1"}), extra)
}

#[test]
fn routes() {
    check(Kind::Route, json!("x"), &["wrong type: a resource is an object"]);
    check(Kind::Route, route(json!({})), &[]);
    check(Kind::Route, route(json!({"id": 1.0, "name": "a", "desc": null, "labels": {"a": "b"}, "plugins": []})), &[]);
    check(Kind::Route, json!({"uri": "/a"}), &["one of plugins, upstream, upstream_id or service_id is required"]);
    check(Kind::Route, json!({"plugins": {}}), &["property \"uri\" is required (or \"uris\")"]);
    check(Kind::Route, route(json!({"uris": ["/b"]})), &["uris: only one of uri or uris is allowed"]);
    check(Kind::Route, route(json!({"host": "a", "hosts": ["b"]})), &["hosts: only one of host or hosts is allowed"]);
    check(
        Kind::Route,
        route(json!({"remote_addr": "::1", "remote_addrs": ["::1"]})),
        &["remote_addrs: only one of remote_addr or remote_addrs is allowed"],
    );
    check(Kind::Route, route(json!({"remote_addr": "x"})), &["remote_addr: invalid ip address: x"]);
    check(
        Kind::Route,
        route(json!({"remote_addrs": ["1.2.3.4", "10.0.0.0/33", "fe80::/10"]})),
        &["remote_addrs[1]: invalid ip address: 10.0.0.0/33"],
    );
    check(Kind::Route, route(json!({"uri": "a"})), &["uri: a path starts with `/`, found `a`"]);
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
        route(json!({"methods": ["GET", "get"], "hosts": [], "timeout": {"connect": 0, "send": "1"}})),
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
        &["vars[0]: failed to validate the 'vars' expression: invalid operator '='"],
    );
    check(Kind::Route, route(json!({"vars": {}})), &[]);
    check(Kind::Route, route(json!({"vars": "x"})), &["vars: wrong type: expected array, got string"]);
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
    for (name, kind) in [("filter_func", Kind::Route), ("script", Kind::Route), ("script", Kind::Service)] {
        let raw = with(json!({"plugins": {}}), json!({name: "function(vars) return true end"}));
        let raw = if kind == Kind::Route { with(raw, json!({"uri": "/a"})) } else { raw };
        let (problems, _) = lines(kind, &raw, &catalogue());
        let [only] = problems.as_slice() else { panic!("{problems:?}") };
        assert!(only.starts_with(&format!("{name}: Lua source is not run by this version")), "{only}");
        assert!(only.contains("plugins"), "{only}");
    }
}

#[test]
fn plugins_are_checked_by_their_own_schema() {
    let with = |plugins: Value| json!({"uri": "/a", "plugins": plugins});
    check(Kind::Route, with(json!({"echo": {"body": "x"}})), &[]);
    check(Kind::Route, with(json!({"eco": {}})), &["plugins.eco: unknown plugin [eco] (did you mean `echo`?)"]);
    check(Kind::Route, with(json!({"no-such-thing": {}})), &["plugins.no-such-thing: unknown plugin [no-such-thing]"]);
    check(
        Kind::Route,
        with(json!({"openid-connect": {}})),
        &["plugins.openid-connect: plugin openid-connect is not available in this version"],
    );
    check(Kind::Route, with(json!({"echo": "x"})), &["plugins.echo: wrong type: a plugin's configuration is an object"]);
    check(
        Kind::Route,
        with(json!({"echo": {"body": 5, "_meta": {"prio": 1, "disable": "yes"}}})),
        &[
            "plugins.echo._meta.prio: additional properties forbidden, found prio",
            "plugins.echo._meta.disable: wrong type: expected boolean",
            "plugins.echo.body: wrong type: expected string, got number",
        ],
    );
    warns(
        Kind::Route,
        with(json!({"echo": {"body": 5, "_meta": {"disable": true, "priority": "x"}}})),
        &["plugins.echo: the configuration is not valid; accepted since the plugin is disabled \
           (_meta.priority: wrong type: expected integer)"],
    );
    warns(
        Kind::Route,
        with(json!({"echo": {"body": "$secret://vault/1/a"}})),
        &["plugins.echo.body: references to secrets are not resolved by this version"],
    );
}

#[test]
fn one_look_finds_all_that_is_wrong() {
    check(
        Kind::Route,
        json!({"uri": 1, "vars": [["a", "=", 1]], "plugins": {"eco": {}, "echo": {"body": 5}}}),
        &[
            "vars[0]: failed to validate the 'vars' expression: invalid operator '='",
            "uri: wrong type: expected string, got number",
            "plugins.eco: unknown plugin [eco] (did you mean `echo`?)",
            "plugins.echo.body: wrong type: expected string, got number",
        ],
    );
}

#[test]
fn a_plugin_that_is_not_enabled_is_checked_and_never_runs() {
    let catalogue = Catalogue::new(lockgate_plugins::ALL, vec!["cors".to_owned()]);
    let of = |body: Value| {
        let raw = json!({"uri": "/a", "plugins": {"echo": {"body": body}}});
        lines(Kind::Route, &raw, &catalogue)
    };
    let warning = "plugins.echo: the plugin is not in the `plugins` list of config.yaml: it never runs";
    assert_eq!(of(json!("x")), (vec![], vec![warning.to_owned()]));
    assert_eq!(of(json!(1)).0, ["plugins.echo.body: wrong type: expected string, got number"]);
}

#[test]
fn services_and_what_holds_plugins_only() {
    check(Kind::Service, json!({}), &[]);
    check(Kind::Service, json!({"hosts": ["*.a.test"], "upstream": {"nodes": {}}}), &[]);
    check(
        Kind::Service,
        json!({"uri": "/a", "upstream": {}}),
        &["uri: additional properties forbidden, found uri"],
    );
    for kind in [Kind::PluginConfig, Kind::ConsumerGroup, Kind::GlobalRule] {
        check(kind, json!({"id": 1, "plugins": {"echo": {"body": "x"}}}), &[]);
        check(kind, json!({"id": 1}), &["property \"plugins\" is required"]);
        check(kind, json!({"id": 1, "plugins": {"eco": {}}}), &["plugins.eco: unknown plugin [eco] (did you mean `echo`?)"]);
    }
    check(Kind::GlobalRule, json!({"plugins": {}, "desc": "x"}), &["desc: additional properties forbidden, found desc"]);
}

#[test]
fn upstreams_say_what_they_do_not_do() {
    check(Kind::Upstream, json!({"nodes": {"a:1": 1}, "type": "least_conn"}), &[]);
    let warned = |extra: Value, path: &str| {
        let (problems, warnings) = lines(Kind::Upstream, &with(json!({"nodes": {}}), extra), &catalogue());
        assert!(problems.is_empty(), "{problems:?}");
        assert!(warnings.iter().any(|line| line.starts_with(path)), "{path}: {warnings:?}");
    };
    warned(json!({"type": "random"}), "type: balancer random is not known");
    check(
        Kind::Upstream,
        json!({"nodes": {}, "tls": {"client_cert": "x", "client_key": "y"}}),
        &["tls.client_cert: failed to parse cert: no certificate in the text"],
    );
}

#[test]
fn consumers_hold_credentials() {
    let ann = |plugins: Value| json!({"username": "ann", "plugins": plugins});
    check(Kind::Consumer, ann(json!({"key-auth": {"key": "k"}, "echo": {"body": "x"}})), &[]);
    check(Kind::Consumer, ann(json!({"key-auth": {}})), &["plugins.key-auth: property \"key\" is required"]);
    check(
        Kind::Consumer,
        ann(json!({"key-auth": {"key": "$env://KEY"}})),
        &["plugins.key-auth.key: references to secrets are not resolved by this version"],
    );
    check(Kind::Consumer, json!({"plugins": {}}), &["property \"username\" is required"]);
    check(
        Kind::Consumer,
        json!({"username": "a.b", "group_id": ""}),
        &[
            "username: failed to match pattern \"^[a-zA-Z0-9_\\-]+$\" with \"a.b\"",
            "group_id: string too short, expected at least 1, got 0",
        ],
    );
}

#[test]
fn credentials_hold_one_authentication_plugin() {
    let held = |plugins: Value| json!({"id": "ann/credentials/1", "plugins": plugins});
    check(Kind::Credential, held(json!({"key-auth": {"key": "k"}})), &[]);
    check(
        Kind::Credential,
        held(json!({"echo": {"body": "x"}})),
        &["plugins.echo: only supports auth type plugins in consumer credential"],
    );
    check(
        Kind::Credential,
        held(json!({"key-auth": {"key": "k"}, "echo": {}})),
        &[
            "plugins: expect object to have at most 1 properties",
            "plugins.echo: only supports auth type plugins in consumer credential",
        ],
    );
    check(
        Kind::Credential,
        json!({"id": "ann/credentials/", "plugins": {}}),
        &["id: failed to match pattern \"^[a-zA-Z0-9_-]+/credentials/[a-zA-Z0-9-_.]+$\" with \"ann/credentials/\""],
    );
}

#[test]
fn metadata_belongs_to_a_plugin() {
    let check = |id: &str, raw: Value, problems: &[&str], warnings: &[&str]| {
        let (mut seen, key) = (Problems::default(), Key::new(Kind::PluginMetadata, id));
        let found = decode(&key, &raw, &catalogue(), &mut seen).err().unwrap_or_default();
        let lines = |list: &Problems| -> Vec<String> {
            list.iter().map(|p| p.to_string().replace(&format!("plugin_metadata/{id}"), "KEY")).collect()
        };
        assert_eq!((lines(&found), lines(&seen)), (owned(problems), owned(warnings)), "{id}: {raw}");
    };
    check("echo", json!({"id": "echo"}), &[], &["KEY: the plugin has no metadata: this has no effect"]);
    check("eco", json!({"id": "eco"}), &["KEY id: invalid plugin name (did you mean `echo`?)"], &[]);
    check(
        "arr_1",
        json!({}),
        &["KEY id: invalid plugin name (the id of metadata is the name of its plugin)"],
        &[],
    );
    check(
        "openid-connect",
        json!({}),
        &[],
        &["KEY: plugin openid-connect is not available in this version: this has no effect"],
    );
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn what_is_not_served_is_said() {
    warns(Kind::Proto, json!({"content": "x"}), &["protos are not served by this version"]);
    warns(Kind::Secret, json!({"anything": 1}), &["secrets are not served by this version"]);
    warns(Kind::StreamRoute, json!({}), &["stream_routes are not served by this version"]);
}
