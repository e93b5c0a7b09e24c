use std::time::Duration;

use lockgate_plugin::testing::{Instance, Run, build_error, run, run_def};
use lockgate_plugin::{Phases, def};
use serde_json::{Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn built(extra: Value) -> Instance {
    run::<LimitCount>(conf(extra)).build()
}

fn conf(extra: Value) -> Value {
    let mut conf = json!({"count": 2, "time_window": 60});
    let extra = extra.as_object().unwrap().clone();
    conf.as_object_mut().unwrap().extend(extra);
    conf
}

fn passes(instance: &Instance, client: &str) -> bool {
    instance.request().from(client).get("/").passed()
}

/// The headers of what the client gets: limit, remaining, reset.
fn shown(run: Run, prefix: &str) -> String {
    let mut run = run;
    let answer = run.respond(200, &[], &[]);
    ["Limit", "Remaining", "Reset"]
        .map(|name| {
            answer
                .header(&format!("X-{prefix}RateLimit-{name}"))
                .unwrap_or_default()
        })
        .join(" ")
}

#[test]
fn a_client_has_its_count_and_then_waits_for_the_end_of_the_window() {
    let limit = built(json!({"rejected_code": 429, "rejected_msg": "slow down"}));
    let ask = || limit.request().from("192.0.2.1").get("/");
    assert_eq!(shown(ask().expect_next(), ""), "2 1 60");
    limit.advance(Duration::from_millis(1_234));
    assert_eq!(shown(ask().expect_next(), ""), "2 0 58.76");
    let answer = ask().expect_reply(429);
    assert_eq!(answer.text(), "{\"error_msg\":\"slow down\"}\n");
    assert_eq!(answer.reason(), "request quota is used up");
    assert_eq!(answer.header("X-RateLimit-Remaining").unwrap(), "0");
    assert_eq!(answer.header("X-RateLimit-Reset").unwrap(), "58.77");
    let _ = limit.request().from("192.0.2.2").get("/").expect_next();
    limit.advance(58 * SECOND);
    ask().expect_reply(429);
    limit.advance(SECOND);
    assert_eq!(shown(ask().expect_next(), ""), "2 1 60");
}

#[test]
fn a_sliding_window_remembers_the_one_before() {
    let limit =
        built(json!({"window_type": "sliding", "count": 10, "show_limit_quota_header": false}));
    let many = |n: usize| (0..n).filter(|_| passes(&limit, "192.0.2.1")).count();
    // The test's clock starts five seconds into a minute.
    limit.advance(54 * SECOND);
    assert_eq!(many(20), 10);
    limit.advance(SECOND);
    assert_eq!(many(20), 0);
    limit.advance(30 * SECOND);
    assert_eq!(many(20), 5);
    let run = limit.request().from("192.0.2.9").get("/");
    assert_eq!(shown(run.expect_next(), ""), "  ");
}

/// Requests with different `X-User`s: which of them count together.
#[test]
fn keys() {
    let check = |extra: Value, requests: &[(&str, &str)], expected: &[bool]| {
        let limit = built(json!({"count": 1})).edited(&conf(merge(json!({"count": 1}), &extra)));
        let ask = |(client, user): &(&str, &str)| {
            let mut request = limit.request().from(client);
            if *user != "-" {
                request = request.header("X-User", user);
            }
            request.get("/").passed()
        };
        let got: Vec<bool> = requests.iter().map(ask).collect();
        assert_eq!(got, expected, "{extra}");
    };
    let (a, b) = ("192.0.2.1", "192.0.2.2");
    check(
        json!({}),
        &[(a, "1"), (a, "2"), (b, "1")],
        &[true, false, true],
    );
    let user = json!({"key": "http_x_user"});
    check(
        user.clone(),
        &[(a, "1"), (a, "2"), (b, "1")],
        &[true, true, false],
    );
    // Without a value the address counts, and no value is taken for an address.
    check(
        user.clone(),
        &[(a, "-"), (a, "-"), (b, "-"), (b, a)],
        &[true, false, true, true],
    );
    check(user, &[(a, ""), (b, "")], &[true, false]);
    check(
        json!({"key": ""}),
        &[(a, "1"), (a, "2"), (b, "1")],
        &[true, false, true],
    );
    let both = json!({"key": "$remote_addr $http_x_user", "key_type": "var_combination"});
    check(
        both,
        &[(a, "1"), (a, "2"), (b, "1"), (a, "1")],
        &[true, true, true, false],
    );
    let none = json!({"key": "x${http_x_user}", "key_type": "var_combination"});
    check(none, &[(a, "-"), (b, "-"), (a, "-")], &[true, true, false]);
    let constant = json!({"key": "remote_addr", "key_type": "constant"});
    check(constant, &[(a, "1"), (b, "2")], &[true, false]);
    let mapped = [(a, "1"), ("::ffff:192.0.2.1", "1")];
    check(json!({}), &mapped, &[true, false]);
    let large = "x".repeat(1 << 20);
    let large: [(&str, &str); 2] = [(a, &large), (b, &large)];
    check(json!({"key": "http_x_user"}), &large, &[true, false]);
}

fn merge(mut a: Value, b: &Value) -> Value {
    a.as_object_mut()
        .unwrap()
        .extend(b.as_object().unwrap().clone());
    a
}

#[test]
fn numbers_may_come_from_variables() {
    let limit = run::<LimitCount>(
        json!({"count": "$http_x_count", "time_window": "${http_x_window ?? 60}"}),
    );
    let limit = limit.build();
    let ask = |count: &str, window: &str| {
        let request = limit.request().header("X-Count", count);
        request.header("X-Window", window).get("/")
    };
    assert_eq!(shown(ask("3", "10").expect_next(), ""), "3 2 10");
    ask("1", "10").expect_reply(503);
    assert_eq!(shown(ask("3", "10").expect_next(), ""), "3 1 10");
    for (count, window) in [
        ("0", "10"),
        ("-1", "10"),
        ("x", "10"),
        ("3", "0"),
        ("3", "1.5"),
    ] {
        let answer = ask(count, window).expect_reply(500);
        assert_eq!(answer.reason(), "a variable has no usable number");
    }
    limit.request().get("/").expect_reply(500);
    let lenient = limit
        .edited(&json!({"count": "$http_x_count", "time_window": 60, "allow_degradation": true}));
    let _ = lenient.request().get("/").expect_next();
}

fn rules() -> Value {
    json!({"rules": [
        {"key": "$http_user", "count": 3, "time_window": 60, "header_prefix": "user"},
        {"key": "$http_project", "count": 1, "time_window": 10},
    ]})
}

#[test]
fn rules_that_apply_are_charged_together_or_not_at_all() {
    let limit = run::<LimitCount>(rules()).build();
    let both = || {
        limit
            .request()
            .header("user", "u")
            .header("project", "p")
            .get("/")
    };
    let user = || limit.request().header("user", "u").get("/");
    let first = both().expect_next();
    assert_eq!(shown(first, "user-"), "3 2 60");
    let refused = both().expect_reply(503);
    assert_eq!(refused.header("X-2-RateLimit-Remaining").unwrap(), "0");
    // Not charged for a request that the other rule has refused.
    assert_eq!(refused.header("X-user-RateLimit-Remaining").unwrap(), "2");
    assert_eq!(shown(user().expect_next(), "user-"), "3 1 60");
    limit.advance(11 * SECOND);
    assert_eq!(shown(both().expect_next(), "2-"), "1 0 10");
    user().expect_reply(503);
    let answer = limit.request().get("/").expect_reply(500);
    assert_eq!(answer.reason(), "no rule applies");
}

#[test]
fn an_edit_keeps_what_was_counted() {
    let limit = built(json!({}));
    assert!(passes(&limit, "192.0.2.1") && passes(&limit, "192.0.2.1"));
    let check = |extra: Value, expected: bool| {
        let edited = limit.edited(&conf(extra.clone()));
        assert_eq!(passes(&edited, "192.0.2.1"), expected, "{extra}");
    };
    check(json!({"rejected_msg": "other"}), false);
    check(json!({"count": 3}), true);
    check(json!({"count": 3, "time_window": 3600}), false);
    check(json!({"count": 1}), false);
    check(json!({"key": "server_port"}), true);
}

#[test]
fn a_group_counts_together_while_it_agrees() {
    let limit = built(json!({"group": "g", "key": "everyone", "key_type": "constant"}));
    // The same resource may change its mind, or there would be no way to edit it.
    let edited = limit.edited(&conf(
        json!({"group": "g", "key": "everyone", "key_type": "constant", "count": 1}),
    ));
    assert!(passes(&edited, "192.0.2.1"));
    assert!(!passes(&edited, "192.0.2.2"));
    assert!(passes(&limit, "192.0.2.3"));
}

#[test]
fn metadata_names_the_headers() {
    let def = def::<LimitCount>().metadata::<Metadata>();
    let metadata = json!({"limit_header": "X-Quota-RateLimit-Limit", "remaining_header": "Left"});
    let limit = run_def(def, conf(json!({}))).metadata(metadata);
    let mut run = limit.get("/").expect_next();
    let answer = run.respond(200, &[], &[]);
    assert_eq!(answer.header("X-Quota-RateLimit-Limit").unwrap(), "2");
    assert_eq!(answer.header("Left").unwrap(), "1");
    assert_eq!(answer.header("X-RateLimit-Reset").unwrap(), "60");
    let bad = run_def(def, conf(json!({}))).metadata(json!({"reset_header": "a b"}));
    let text = bad.build_error();
    assert!(
        text.starts_with("metadata.reset_header: `a b` is not a header name"),
        "{text}"
    );
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<LimitCount>(conf);
        assert!(text.contains(expected), "{text}");
    };
    let none = "value should match only one schema, but matches none";
    check(json!({}), none);
    check(json!({"count": 1}), none);
    check(
        json!({"count": 0, "time_window": 60}),
        "count: expected 0 to be greater than 0",
    );
    check(
        json!({"count": -1, "time_window": 60}),
        "count: expected -1 to be greater than 0",
    );
    check(json!({"count": 1, "time_window": 0.5}), "time_window: ");
    check(
        json!({"count": "many", "time_window": 60}),
        "count: `many` is neither",
    );
    check(
        merge(rules(), &json!({"count": 1})),
        "count/time_window and rules cannot be specified at the same time",
    );
    check(
        merge(rules(), &json!({"group": "g"})),
        "group and rules cannot be specified at the same time",
    );
    let rule = json!({"key": "$a", "count": 1, "time_window": 1});
    check(
        json!({"rules": [rule, rule]}),
        "duplicate key '$a' in rules",
    );
    let bad = json!({"rules": [merge(rule, &json!({"header_prefix": "a b"}))]});
    check(
        bad,
        "rules[0].header_prefix: `X-a b-RateLimit-Limit` is not a header name",
    );
    check(conf(json!({"policy": "redis"})), "redis_host: ");
    let redis = |extra: &Value| {
        let redis = json!({"policy": "redis", "redis_host": "a.test"});
        conf(merge(redis, extra))
    };
    check(
        redis(&json!({"sync_interval": 0.01})),
        "sync_interval should not be smaller than 0.1",
    );
    check(
        redis(&json!({"sync_interval": 60})),
        "sync_interval should be smaller than time_window",
    );
    check(
        redis(&json!({"key_format": "apisix"})),
        "key_format: without a `group` APISIX puts a checksum",
    );
    check(
        redis(&json!({"key_format": "apisix", "group": "g", "window_type": "sliding"})),
        "key_format: only fixed windows",
    );
    check(
        conf(json!({"key_format": "apisix", "group": "g"})),
        "key_format: keys have a name in Redis only",
    );
    let cluster =
        json!({"policy": "redis-cluster", "redis_cluster_nodes": ["a"], "redis_cluster_name": "c"});
    check(conf(cluster), "redis_cluster_nodes: `a` is not `host:port`");
    let slave = json!({"policy": "redis-sentinel", "redis_sentinels": [{"host": "a.test", "port": 1}],
        "redis_master_name": "m", "redis_role": "slave"});
    check(conf(slave), "redis_role: counts are written");
    check(conf(json!({"policy": "memory"})), "policy: ");
    check(conf(json!({"rejected_code": 100})), "rejected_code: ");
    check(conf(json!({"rejected_msg": ""})), "rejected_msg: ");
}

#[test]
fn the_largest_numbers_are_limits_too() {
    for count in [
        json!(u64::MAX),
        json!(1e20),
        json!(9_007_199_254_740_993u64),
    ] {
        for window_type in ["fixed", "sliding"] {
            let limit =
                built(json!({"count": count, "time_window": u64::MAX, "window_type": window_type}));
            assert!(passes(&limit, "192.0.2.1"), "{count} {window_type}");
        }
    }
    assert_eq!(built(json!({})).phases(), Phases::ACCESS);
}

/// Who sends a number that is none switches off the rule it belongs to, and no other.
#[test]
fn a_rule_that_degrades_leaves_the_others() {
    let limit = run::<LimitCount>(json!({"allow_degradation": true, "rules": [
        {"count": 1, "time_window": 60, "key": "$remote_addr"},
        {"count": "$http_x_quota", "time_window": 60, "key": "$http_user"},
    ]}));
    let limit = limit.build();
    let with = |quota: &str| {
        let request = limit.request().header("user", "a");
        request.header("x-quota", quota).get("/").passed()
    };
    assert_eq!([with("x"), with("x"), with("9")], [true, false, false]);
}
