use serde_json::json;

use super::*;

mod consumers;
mod routes;

fn catalogue() -> Catalogue {
    Catalogue::everything(lockgate_plugins::ALL)
}

/// Decodes; problems and warnings as lines without the resource.
fn lines(kind: Kind, raw: &Value, catalogue: &Catalogue) -> (Vec<String>, Vec<String>) {
    let key = Key::new(kind, "1");
    let mut warnings = Problems::default();
    let problems = decode(&key, raw, catalogue, &mut warnings)
        .err()
        .unwrap_or_default();
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
        with(json!({"no-such-thing": {}})),
        &["plugins.no-such-thing: unknown plugin [no-such-thing]"],
    );
    check(
        Kind::Route,
        with(json!({"openid-connect": {}})),
        &["plugins.openid-connect: plugin openid-connect is not available in this version"],
    );
    check(
        Kind::Route,
        with(json!({"echo": "x"})),
        &["plugins.echo: wrong type: a plugin's configuration is an object"],
    );
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
        &[
            "plugins.echo: the configuration is not valid; accepted since the plugin is disabled \
           (_meta.priority: wrong type: expected integer)",
        ],
    );
    for reference in ["$secret://vault/1/a", "$env://NAME", "$ENV://NAME"] {
        check(
            Kind::Route,
            with(json!({"echo": {"body": reference}})),
            &["plugins.echo.body: references to secrets are not resolved by this version"],
        );
        let metadata = json!({"allow_origins": {"a": reference}});
        let key = Key::new(Kind::PluginMetadata, "cors");
        let refused = decode(&key, &metadata, &catalogue(), &mut Problems::default());
        assert!(refused.is_err(), "{metadata}");
    }
}

#[test]
fn a_plugin_that_is_not_enabled_is_unknown() {
    let catalogue = Catalogue::new(lockgate_plugins::ALL, vec!["cors".to_owned()]);
    let of = |kind: Kind, raw: Value| lines(kind, &raw, &catalogue);
    let unknown = "plugins.echo: unknown plugin [echo] \
                   (it is not in the `plugins` list of config.yaml)";
    let plugins = json!({"echo": {"body": "x"}, "cors": {}});
    for kind in [Kind::Route, Kind::Service, Kind::Consumer, Kind::GlobalRule] {
        let raw = match kind {
            Kind::Route => json!({"uri": "/a", "plugins": plugins}),
            Kind::Consumer => json!({"username": "1", "plugins": plugins}),
            _ => json!({"plugins": plugins}),
        };
        assert_eq!(
            of(kind, raw),
            (vec![unknown.to_owned()], vec![]),
            "{kind:?}"
        );
    }
    let disabled = json!({"uri": "/a", "plugins": {"echo": {"_meta": {"disable": true}}}});
    assert_eq!(of(Kind::Route, disabled).0, [unknown]);
    let mut warnings = Problems::default();
    let key = Key::new(Kind::PluginMetadata, "echo");
    assert!(decode(&key, &json!({}), &catalogue, &mut warnings).is_ok());
    assert_eq!(
        warnings.to_string(),
        "plugin_metadata/echo: the plugin is not in the `plugins` list of config.yaml: \
         this has no effect"
    );
}

#[test]
fn services_and_what_holds_plugins_only() {
    check(Kind::Service, json!({}), &[]);
    check(
        Kind::Service,
        json!({"hosts": ["*.a.test"], "upstream": {"nodes": {}}}),
        &[],
    );
    check(
        Kind::Service,
        json!({"uri": "/a", "upstream": {}}),
        &["uri: additional properties forbidden, found uri"],
    );
    for kind in [Kind::PluginConfig, Kind::ConsumerGroup, Kind::GlobalRule] {
        check(
            kind,
            json!({"id": 1, "plugins": {"echo": {"body": "x"}}}),
            &[],
        );
        check(
            kind,
            json!({"id": 1}),
            &["property \"plugins\" is required"],
        );
        check(
            kind,
            json!({"id": 1, "plugins": {"eco": {}}}),
            &["plugins.eco: unknown plugin [eco] (did you mean `echo`?)"],
        );
    }
    check(
        Kind::GlobalRule,
        json!({"plugins": {}, "desc": "x"}),
        &["desc: additional properties forbidden, found desc"],
    );
}

#[test]
fn upstreams_say_what_they_do_not_do() {
    check(
        Kind::Upstream,
        json!({"nodes": {"a:1": 1}, "type": "least_conn"}),
        &[],
    );
    let warned = |extra: Value, path: &str| {
        let (problems, warnings) = lines(
            Kind::Upstream,
            &with(json!({"nodes": {}}), extra),
            &catalogue(),
        );
        assert!(problems.is_empty(), "{problems:?}");
        assert!(
            warnings.iter().any(|line| line.starts_with(path)),
            "{path}: {warnings:?}"
        );
    };
    warned(
        json!({"type": "random"}),
        "type: balancer random is not known",
    );
    check(
        Kind::Upstream,
        json!({"nodes": {}, "tls": {"client_cert": "x", "client_key": "y"}}),
        &["tls.client_cert: failed to parse cert: no certificate in the text"],
    );
}

#[test]
fn what_is_not_served_is_said() {
    warns(
        Kind::Proto,
        json!({"content": "x"}),
        &["protos are not served by this version"],
    );
    check(
        Kind::Proto,
        json!({"desc": "x", "zzz": 1}),
        &[
            "zzz: additional properties forbidden, found zzz",
            "property \"content\" is required",
        ],
    );
    check(
        Kind::StreamRoute,
        json!({"server_port": 0}),
        &["server_port: expected 0 to be at least 1"],
    );
    check(
        Kind::StreamRoute,
        json!({"remote_addr": "x", "plugins": {"zzz": {}, "limit-conn": {}}, "protocol": {"name": "smtp"}}),
        &[
            "remote_addr: invalid ip address: x",
            "plugins.zzz: unknown plugin [zzz]",
            "protocol.name: unknown protocol [smtp]",
        ],
    );
    let secret = |id: &str, raw: Value, expected: &[&str]| {
        let key = Key::new(Kind::Secret, id);
        let found = decode(&key, &raw, &catalogue(), &mut Problems::default());
        let found: Vec<String> = found
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(|p| p.message)
            .collect();
        assert_eq!(found, expected, "{id} {raw}");
    };
    secret(
        "vault/1",
        json!({"uri": "http://127.0.0.1:8200", "prefix": "kv", "token": "t", "more": 1}),
        &[],
    );
    secret(
        "vault/1",
        json!({"uri": "x", "prefix": "kv"}),
        &[
            "failed to match pattern \"^[^\\/]+:\\/\\/([\\da-zA-Z.-]+|\\[[\\da-fA-F:]+\\])(:\\d+)?\" with \"x\"",
            "property \"token\" is required",
        ],
    );
    secret(
        "aws/1",
        json!({"access_key_id": "a", "secret_access_key": "b"}),
        &[],
    );
    secret("gcp/1", json!({"auth_file": "f"}), &[]);
    secret(
        "gcp/1",
        json!({}),
        &["value should match only one schema, but matches none"],
    );
    secret("nobody/1", json!({}), &["invalid secret manager: nobody"]);
    warns(
        Kind::StreamRoute,
        json!({}),
        &["stream_routes are not served by this version"],
    );
}

/// Every pattern in a schema has to compile, and every reference to lead somewhere: a schema is
/// trusted when a value is checked against it.
#[test]
fn schemas_are_sound() {
    fn walk(root: &Value, schema: &Value, name: &str) {
        match schema {
            Value::Object(map) => {
                for (keyword, inner) in map {
                    match (keyword.as_str(), inner) {
                        ("pattern", Value::String(text)) => {
                            assert!(
                                lockgate_plugin::Pattern::new(text).is_ok(),
                                "{name}: {text}"
                            );
                        }
                        ("$ref", Value::String(target)) => {
                            let found =
                                target.strip_prefix('#').and_then(|path| root.pointer(path));
                            assert!(found.is_some(), "{name}: {target}");
                        }
                        _ => walk(root, inner, name),
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|inner| walk(root, inner, name)),
            _ => {}
        }
    }
    use lockgate_plugin::schema::of;
    let resources = [
        ("route", of::<Route>()),
        ("service", of::<Service>()),
        ("upstream", of::<Upstream>()),
        ("consumer", of::<Consumer>()),
        ("credential", of::<Credential>()),
        ("consumer_group", of::<ConsumerGroup>()),
        ("plugin_config", of::<PluginConfig>()),
        ("global_rule", of::<GlobalRule>()),
        ("ssl", of::<Ssl>()),
    ];
    for (name, schema) in &resources {
        assert_eq!(schema["additionalProperties"], false, "{name}");
        walk(schema, schema, name);
    }
    for def in lockgate_plugins::ALL {
        let credential = def.credential.map(|credential| (credential.schema)());
        let metadata = def.metadata.map(|(schema, _)| schema());
        for schema in [Some((def.schema)()), credential, metadata]
            .into_iter()
            .flatten()
        {
            walk(&schema, &schema, def.name);
        }
    }
}
