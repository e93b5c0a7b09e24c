use serde_json::{Value, json};

use super::*;

fn upstream(value: &Value) -> Upstream {
    lockgate_plugin::plugin::typed(value).unwrap_or_else(|e| panic!("{value}: {e}"))
}

fn hosts(value: &Value) -> Vec<(String, u16, u32, i32)> {
    let spec = upstream(value).spec();
    spec.nodes
        .iter()
        .map(|n| (n.host.to_string(), n.port, n.weight, n.priority))
        .collect()
}

#[test]
fn nodes_in_every_form() {
    let expected = |list: &[(&str, u16, u32, i32)]| -> Vec<_> {
        list.iter()
            .map(|(h, p, w, g)| ((*h).to_owned(), *p, *w, *g))
            .collect()
    };
    assert_eq!(
        hosts(&json!({"nodes": {"127.0.0.1:80": 1, "b.test": 2, "[::1]:8080": 3, "::1": 4}})),
        expected(&[
            ("127.0.0.1", 80, 1, 0),
            ("b.test", 80, 2, 0),
            ("::1", 8080, 3, 0),
            ("::1", 80, 4, 0)
        ])
    );
    assert_eq!(
        hosts(&json!({"scheme": "https", "nodes": [
            {"host": "a.test", "weight": 1.0},
            {"host": "::1", "port": 81.0, "weight": 0, "priority": -1, "metadata": {"zone": "a"}},
        ]})),
        expected(&[("a.test", 443, 1, 0), ("::1", 81, 0, -1)])
    );
    assert_eq!(hosts(&json!({"nodes": []})), expected(&[]));
    assert_eq!(hosts(&json!({"nodes": {}})), expected(&[]));
}

#[test]
fn limits_of_the_schema() {
    let check = |value: Value, expected: &[&str]| {
        let problems = lockgate_plugin::plugin::typed::<Upstream>(&value)
            .err()
            .unwrap_or_default();
        let got: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(got, expected, "{value}");
    };
    let with = |name: &str, value: Value| json!({"nodes": {"a:1": 1}, name: value});
    check(
        with("retries", json!(-1)),
        &["retries: expected -1 to be at least 0"],
    );
    check(
        with("retries", json!(4294967296_u64)),
        &["retries: expected 4294967296 to be at most 4294967295"],
    );
    check(
        with("retry_timeout", json!(-1)),
        &["retry_timeout: expected -1 to be at least 0"],
    );
    check(
        with("timeout", json!({"connect": 0, "send": 1})),
        &[
            "timeout.connect: expected 0 to be greater than 0",
            "timeout: property \"read\" is required",
        ],
    );
    check(
        with(
            "keepalive_pool",
            json!({"size": 0, "idle_timeout": -1, "requests": 0}),
        ),
        &[
            "keepalive_pool.size: expected 0 to be at least 1",
            "keepalive_pool.idle_timeout: expected -1 to be at least 0",
            "keepalive_pool.requests: expected 0 to be at least 1",
        ],
    );
    check(
        with("hash_on", json!("body")),
        &[
            "hash_on: matches none of the enum values (found \"body\", allowed: \"vars\", \"header\", \"cookie\", \
           \"consumer\", \"vars_combinations\")",
        ],
    );
    check(
        with("pass_host", json!("keep")),
        &[
            "pass_host: matches none of the enum values (found \"keep\", allowed: \"pass\", \"node\", \"rewrite\")",
        ],
    );
    check(
        with("upstream_host", json!("a b")),
        &[r#"upstream_host: failed to match pattern "^(\*|\*?[0-9a-zA-Z-._\[\]:]+)$" with "a b""#],
    );
    check(
        with("labels", json!({"a": "x y"})),
        &[r#"labels.a: failed to match pattern "^\S+$" with "x y""#],
    );
    check(
        with("desc", json!("x".repeat(257))),
        &["desc: string too long, expected at most 256, got 257"],
    );
    check(
        with("service_name", json!("")),
        &["service_name: string too short, expected at least 1, got 0"],
    );
    check(
        with("discovery_args", json!({"group_name": 1})),
        &["discovery_args.group_name: wrong type: expected string, got number"],
    );
    check(
        json!({"nodes": {"a:1": -1, "b:1": "2", "c:1": 1.5}}),
        &[
            "nodes.a:1: expected -1 to be at least 0",
            "nodes.b:1: wrong type: expected integer, got string",
            "nodes.c:1: wrong type: expected integer, got number",
        ],
    );
    check(
        json!({"nodes": [{"host": "a", "port": 0, "weight": 1}, {"host": "a/b", "weight": -1}, {"port": 70000}]}),
        &[
            "nodes[0].port: expected 0 to be at least 1",
            r#"nodes[1].host: failed to match pattern "^(\*|\*?[0-9a-zA-Z-._\[\]:]+)$" with "a/b""#,
            "nodes[1].weight: expected -1 to be at least 0",
            "nodes[2].port: expected 70000 to be at most 65535",
            "nodes[2]: property \"host\" is required",
            "nodes[2]: property \"weight\" is required",
        ],
    );
    check(
        json!({"nodes": "a:1"}),
        &["nodes: wrong type: expected one of object, array, got string"],
    );
    check(
        with(
            "checks",
            json!({"active": {"healthy": {"interval": 0, "http_statuses": [100]}, "type": "udp"}}),
        ),
        &[
            "checks.active.healthy.interval: expected 0 to be at least 1",
            "checks.active.healthy.http_statuses[0]: expected 100 to be at least 200",
            "checks.active.type: matches none of the enum values (found \"udp\", allowed: \"http\", \"https\", \"tcp\")",
        ],
    );
    check(
        with(
            "checks",
            json!({"passive": {"unhealthy": {"timeouts": 255, "http_statuses": []}}}),
        ),
        &[
            "checks.passive.unhealthy.timeouts: expected 255 to be at most 254",
            "checks.passive.unhealthy.http_statuses: expect array to have at least 1 items",
        ],
    );
}

#[test]
fn rules_between_fields() {
    let check = |value: Value, expected: &[&str]| {
        let mut out = Problems::default();
        upstream(&value).check(&mut out);
        let got: Vec<String> = out.iter().map(ToString::to_string).collect();
        assert_eq!(got, expected, "{value}");
    };
    check(json!({"nodes": {"a:1": 1}}), &[]);
    check(
        json!({}),
        &["property \"nodes\" is required (or \"service_name\" with \"discovery_type\")"],
    );
    check(
        json!({"nodes": {}, "service_name": "a", "discovery_type": "dns"}),
        &["service_name: only one of nodes or service_name is allowed"],
    );
    check(
        json!({"service_name": "a"}),
        &["property \"discovery_type\" is required when \"service_name\" is set"],
    );
    check(
        json!({"nodes": {"a:0": 1, "b:x": 1}}),
        &["nodes.a:0: invalid port 0", "nodes.b:x: invalid port x"],
    );
    check(
        json!({"nodes": [{"host": "a:80", "weight": 1}]}),
        &["nodes[0].host: `a:80` is neither a host name nor an IP address"],
    );
    check(
        json!({"nodes": {}, "pass_host": "rewrite"}),
        &["upstream_host: `upstream_host` can't be empty when `pass_host` is `rewrite`"],
    );
    check(
        json!({"nodes": {}, "pass_host": "rewrite", "upstream_host": "a.test"}),
        &[],
    );
    check(json!({"nodes": {}, "type": "chash"}), &["key: missing key"]);
    check(
        json!({"nodes": {}, "type": "chash", "hash_on": "consumer"}),
        &[],
    );
    check(
        json!({"nodes": {}, "type": "chash", "key": "arg_user"}),
        &[],
    );
    check(
        json!({"nodes": {}, "type": "chash", "hash_on": "header", "key": "x y"}),
        &[
            "key: failed to match pattern \"^[a-zA-Z0-9-_]+$\" with \"x y\" \
           (allowed: letters, digits, `-` and `_`)",
        ],
    );
    check(
        json!({"nodes": {}, "type": "chash", "hash_on": "vars_combinations", "key": "$a$b"}),
        &[],
    );
    check(
        json!({"nodes": {}, "scheme": "kafka"}),
        &["scheme: scheme kafka is not served by this version; allowed: http, https, grpc, grpcs"],
    );
    check(
        json!({"nodes": {}, "tls": {"client_cert": "x"}}),
        &["tls: client_cert and client_key belong together"],
    );
    check(
        json!({"nodes": {}, "checks": {"passive": {}}}),
        &["checks: property \"active\" is required when \"passive\" is set"],
    );
    check(
        json!({"nodes": {}, "checks": {"active": {"req_headers": ["a: b", "c"]}}}),
        &["checks.active.req_headers[1]: a header is written as `Name: value`"],
    );
}

#[test]
fn checks_have_the_defaults_of_the_original() {
    let active = |value: Value| {
        upstream(&json!({"nodes": {}, "checks": value}))
            .checks
            .unwrap()
            .active
            .unwrap()
    };
    let bare = active(json!({"active": {}}));
    assert_eq!(
        (bare.http_path.as_str(), bare.concurrency, bare.healthy),
        ("/", 10, None)
    );
    let healthy = active(json!({"active": {"healthy": {"successes": 3}}}))
        .healthy
        .unwrap();
    assert_eq!(
        (healthy.interval, healthy.http_statuses, healthy.successes),
        (1, vec![200, 302], 3)
    );
}
