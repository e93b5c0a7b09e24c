use serde_json::json;

use super::*;

fn catalogue() -> Catalogue {
    Catalogue::everything(lockgate_plugins::ALL)
}

/// Decodes `raw` and compares every problem.
fn check(kind: Kind, raw: Value, expected: &[&str]) {
    let key = Key::new(kind, "1");
    let mut warnings = Problems::default();
    let problems = decode(&key, &raw, &catalogue(), &mut warnings).err().unwrap_or_default();
    let prefix = format!("{key} ");
    let bare = format!("{key}: ");
    let got: Vec<String> = problems
        .iter()
        .map(|p| {
            let text = p.to_string();
            text.strip_prefix(&prefix).or_else(|| text.strip_prefix(&bare)).unwrap_or(&text).to_owned()
        })
        .collect();
    assert_eq!(got, expected, "{raw}");
}

#[test]
fn routes() {
    let with = |extra: Value| {
        let mut raw = json!({"uri": "/a", "upstream_id": "1"});
        raw.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        raw
    };
    check(Kind::Route, with(json!({})), &[]);
    check(Kind::Route, json!({"uri": "/a"}), &["one of plugins, upstream, upstream_id or service_id is required"]);
    check(Kind::Route, json!({"plugins": {}}), &["property \"uri\" is required (or \"uris\")"]);
    check(Kind::Route, with(json!({"uris": ["/b"]})), &["uris: only one of uri or uris is allowed"]);
    check(Kind::Route, with(json!({"host": "a", "hosts": ["b"]})), &["hosts: only one of host or hosts is allowed"]);
    check(Kind::Route, with(json!({"remote_addr": "x"})), &["remote_addr: invalid ip address: x"]);
    check(
        Kind::Route,
        with(json!({"remote_addrs": ["1.2.3.4", "10.0.0.0/33"]})),
        &["remote_addrs[1]: invalid ip address: 10.0.0.0/33"],
    );
    check(
        Kind::Route,
        with(json!({"vars": [["a", "=", 1]]})),
        &["vars[0]: failed to validate the 'vars' expression: invalid operator '='"],
    );
    check(
        Kind::Route,
        with(json!({"prioritty": 1})),
        &["prioritty: additional properties forbidden, found prioritty (did you mean `priority`?)"],
    );
    check(
        Kind::Route,
        with(json!({"priority": "1", "status": 2})),
        &[
            "priority: wrong type: expected integer, got string",
            "status: matches none of the enum values (found 2, allowed: 1, 0)",
        ],
    );
}

#[test]
fn lua_is_refused_with_the_alternative() {
    let raw = json!({"uri": "/a", "plugins": {}, "filter_func": "function(vars) return true end"});
    let mut warnings = Problems::default();
    let problems = decode(&Key::new(Kind::Route, "7"), &raw, &catalogue(), &mut warnings).err().unwrap();
    assert!(problems.to_string().starts_with("routes/7 filter_func: "), "{problems}");
    assert!(problems.to_string().contains("`vars`"), "{problems}");
}

#[test]
fn plugins_are_checked_by_their_own_schema() {
    let with = |plugins: Value| json!({"uri": "/a", "plugins": plugins});
    check(Kind::Route, with(json!({"echo": {"body": "x"}})), &[]);
    check(
        Kind::Route,
        with(json!({"eco": {}})),
        &["plugins.eco: unknown plugin [eco] (did you mean `echo`?)"],
    );
    check(
        Kind::Route,
        with(json!({"openid-connect": {}})),
        &["plugins.openid-connect: plugin openid-connect is not available in this version"],
    );
    check(
        Kind::Route,
        with(json!({"echo": {"body": 5}})),
        &["plugins.echo.body: wrong type: expected string, got number"],
    );
    check(
        Kind::Route,
        with(json!({"echo": {"body": "x", "_meta": {"prio": 1, "disable": "yes"}}})),
        &[
            "plugins.echo._meta.prio: additional properties forbidden, found prio",
            "plugins.echo._meta.disable: wrong type: expected boolean",
        ],
    );
    check(Kind::Route, with(json!({"echo": {"body": 5, "_meta": {"disable": true}}})), &[]);
}

#[test]
fn consumers_hold_credentials() {
    check(Kind::Consumer, json!({"username": "ann", "plugins": {"key-auth": {"key": "k"}}}), &[]);
    check(
        Kind::Consumer,
        json!({"username": "ann", "plugins": {"key-auth": {}}}),
        &["plugins.key-auth: property \"key\" is required"],
    );
    check(
        Kind::Credential,
        json!({"id": "ann/credentials/1", "plugins": {"echo": {"body": "x"}}}),
        &["plugins.echo: only supports auth type plugins in consumer credential"],
    );
}

#[test]
fn fingerprints_ignore_the_order_of_members() {
    let a = fingerprint(&json!({"a": 1, "b": [1, 2], "c": {"d": null}}));
    assert_eq!(a, fingerprint(&json!({"c": {"d": null}, "b": [1, 2], "a": 1.0})));
    for other in [
        json!({"a": 1, "b": [2, 1], "c": {"d": null}}),
        json!({"a": "1", "b": [1, 2], "c": {"d": null}}),
        json!({"a": 1, "b": [1, 2], "c": {}}),
        json!({"b": 1, "a": [1, 2], "c": {"d": null}}),
    ] {
        assert_ne!(a, fingerprint(&other), "{other}");
    }
}

#[test]
fn documents_are_split_into_resources() {
    let document = json!({
        "routes": [{"id": 1, "uri": "/a"}, {"uri": "/b"}],
        "consumers": [{"username": "ann"}, {"id": "ann/credentials/c1", "plugins": {}}],
        "upstreams": null,
        "routes_conf_version": 3,
    });
    let keys: Vec<String> = split(&document).unwrap().iter().map(|(k, _, p)| format!("{k} {p}")).collect();
    assert_eq!(
        keys,
        ["routes/1 routes[0]", "routes/arr_2 routes[1]", "consumers/ann consumers[0]",
         "consumers/ann/credentials/c1 consumers[1]"]
    );
    let check = |document: Value, expected: &str| {
        assert_eq!(split(&document).err().map(|p| p.to_string()).as_deref(), Some(expected), "{document}");
    };
    check(json!({"route": []}), "route: unknown key `route` (did you mean `routes`?)");
    check(json!({"routes": {"a": 1}}), "routes: expected a list");
    check(
        json!({"routes": [{"id": "1"}, {"id": 1}]}),
        "routes[1]: found duplicate id 1 in routes, first at routes[0]",
    );
    check(json!([]), "a configuration is a mapping of lists such as `routes:`");
}
