use serde_json::json;

use super::*;

#[test]
fn consumers_hold_credentials() {
    let ann = |plugins: Value| json!({"username": "ann", "plugins": plugins});
    check(
        Kind::Consumer,
        ann(json!({"key-auth": {"key": "k"}, "echo": {"body": "x"}})),
        &[],
    );
    check(
        Kind::Consumer,
        ann(json!({"key-auth": {}})),
        &["plugins.key-auth: property \"key\" is required"],
    );
    check(
        Kind::Consumer,
        ann(json!({"key-auth": {"key": "$env://KEY"}})),
        &["plugins.key-auth.key: references to secrets are not resolved by this version"],
    );
    check(
        Kind::Consumer,
        json!({"plugins": {}}),
        &["property \"username\" is required"],
    );
    check(
        Kind::Consumer,
        json!({"username": "a.b", "group_id": ""}),
        &[
            "username: failed to match pattern \"^[a-zA-Z0-9_\\-]+$\" with \"a.b\"",
            "group_id: string too short, expected at least 1, got 0",
            "group_id: failed to match pattern \"^[a-zA-Z0-9-_.]+$\" with \"\"",
        ],
    );
}

#[test]
fn credentials_hold_one_authentication_plugin() {
    let held = |plugins: Value| json!({"id": "ann/credentials/1", "plugins": plugins});
    check(
        Kind::Credential,
        held(json!({"key-auth": {"key": "k"}})),
        &[],
    );
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
        &[
            "id: failed to match pattern \"^([a-zA-Z0-9_-]+/credentials/)?[a-zA-Z0-9-_.]{1,64}$\" with \"ann/credentials/\"",
        ],
    );
}

#[test]
fn metadata_belongs_to_a_plugin() {
    let check = |id: &str, raw: Value, problems: &[&str], warnings: &[&str]| {
        let (mut seen, key) = (Problems::default(), Key::new(Kind::PluginMetadata, id));
        let found = decode(&key, &raw, &catalogue(), &mut seen)
            .err()
            .unwrap_or_default();
        let lines = |list: &Problems| -> Vec<String> {
            list.iter()
                .map(|p| {
                    p.to_string()
                        .replace(&format!("plugin_metadata/{id}"), "KEY")
                })
                .collect()
        };
        assert_eq!(
            (lines(&found), lines(&seen)),
            (owned(problems), owned(warnings)),
            "{id}: {raw}"
        );
    };
    check(
        "echo",
        json!({"id": "echo"}),
        &[],
        &["KEY: the plugin has no metadata: this has no effect"],
    );
    check(
        "eco",
        json!({"id": "eco"}),
        &["KEY id: invalid plugin name (did you mean `echo`?)"],
        &[],
    );
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
