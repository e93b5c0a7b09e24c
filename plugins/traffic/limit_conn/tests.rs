use std::time::Duration;

use lockgate_plugin::testing::{Instance, Run, build_error, run};
use serde_json::{Value, json};

use super::*;

fn conf(extra: &Value) -> Value {
    let mut conf = json!({"conn": 1, "burst": 2, "default_conn_delay": 0.5, "key": "remote_addr"});
    conf.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    conf
}

fn ask(instance: &Instance) -> Run {
    instance.request().from("192.0.2.1").get("/")
}

#[test]
fn requests_wait_then_are_refused_and_make_room_when_they_end() {
    let limit = run::<LimitConn>(conf(&json!({"only_use_default_delay": true}))).build();
    let mut first = ask(&limit).expect_next();
    let second = ask(&limit).expect_next();
    let third = ask(&limit).expect_next();
    let slept = [&first, &second, &third].map(Run::slept);
    assert_eq!(slept, [0, 500, 1_000].map(Duration::from_millis));
    let answer = ask(&limit).expect_reply(503);
    assert!(answer.is_stock());
    assert_eq!(answer.reason(), "too many requests are under way");
    let _ = limit.request().from("192.0.2.2").get("/").expect_next();
    // A refused request has entered nothing.
    first.respond(200, &[], &[]);
    let fourth = ask(&limit).expect_next();
    ask(&limit).expect_reply(503);
    // However they end.
    drop((second, third, fourth));
    assert_eq!(ask(&limit).expect_next().slept(), Duration::ZERO);
}

#[test]
fn the_wait_follows_what_requests_take() {
    let limit = run::<LimitConn>(conf(&json!({}))).build();
    let mut first = ask(&limit).expect_next();
    limit.advance(Duration::from_millis(1_500));
    first.respond(200, &[], &[]);
    let _first = ask(&limit).expect_next();
    // Halfway from the default to what was seen.
    assert_eq!(ask(&limit).expect_next().slept(), Duration::from_secs(1));
}

#[test]
fn an_edit_keeps_who_is_under_way() {
    let limit = run::<LimitConn>(conf(&json!({"burst": 0}))).build();
    let _held = ask(&limit).expect_next();
    ask(&limit.edited(&conf(&json!({"burst": 0, "rejected_msg": "full"})))).expect_reply(503);
    let _ = ask(&limit.edited(&conf(&json!({"conn": 2})))).expect_next();
}

#[test]
fn rules_count_together_or_not_at_all() {
    let limit = run::<LimitConn>(json!({"default_conn_delay": 1, "rules": [
        {"key": "$http_user", "conn": "$http_most", "burst": 0},
        {"key": "$http_project", "conn": 1, "burst": 0},
    ]}));
    let limit = limit.build();
    let with = |user: &str, project: &str, most: &str| {
        let mut request = limit.request().header("most", most);
        for (name, value) in [("user", user), ("project", project)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        request.get("/")
    };
    let held = with("u", "p", "2").expect_next();
    with("u", "p", "2").expect_reply(503);
    // The first rule was left again when the second refused.
    let _second = with("u", "", "2").expect_next();
    with("u", "", "2").expect_reply(503);
    drop(held);
    // A rule without a usable number does not apply.
    let _third = with("u", "p", "no").expect_next();
    let answer = with("u", "", "no").expect_reply(500);
    assert_eq!(answer.reason(), "no rule applies");
}

#[test]
fn a_number_that_is_none_refuses() {
    let limit = run::<LimitConn>(conf(&json!({"conn": "$http_most"}))).build();
    limit.request().get("/").expect_reply(500);
    let _ = limit.request().header("most", "1").get("/").expect_next();
    let lenient = limit.edited(&conf(
        &json!({"conn": "$http_most", "allow_degradation": true}),
    ));
    let _ = lenient.request().get("/").expect_next();
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<LimitConn>(conf);
        assert!(text.contains(expected), "{text}");
    };
    check(json!({}), "matches none");
    check(json!({"default_conn_delay": 1, "conn": 1}), "matches none");
    check(
        conf(&json!({"conn": 0})),
        "conn: expected 0 to be greater than 0",
    );
    check(
        conf(&json!({"burst": -1})),
        "burst: expected -1 to be at least 0",
    );
    check(
        conf(&json!({"default_conn_delay": 0})),
        "default_conn_delay: expected 0 to be greater than 0",
    );
    check(conf(&json!({"conn": "few"})), "conn: `few` is neither");
    check(conf(&json!({"key_type": "constant"})), "key_type: ");
    check(conf(&json!({"rules": []})), "matches both schemas 1 and 2");
    check(
        conf(&json!({"policy": "redis-cluster"})),
        "redis_cluster_nodes: property \"redis_cluster_nodes\" is required by this policy",
    );
    check(
        conf(&json!({"policy": "redis", "redis_host": "a.test", "key_ttl": 0})),
        "key_ttl: expected 0 to be at least 1",
    );
    check(conf(&json!({"policy": "memcached"})), "policy: ");
}

/// One connection of ten hours does not make everybody wait for an hour.
#[test]
fn long_requests_do_not_decide_how_long_all_wait() {
    let limit = run::<LimitConn>(conf(&json!({}))).build();
    let mut first = ask(&limit).expect_next();
    limit.advance(Duration::from_secs(36_000));
    first.respond(200, &[], &[]);
    let mut socket = ask(&limit).expect_next();
    let waited = ask(&limit).expect_next().slept();
    assert!(waited <= Duration::from_secs(31), "{waited:?}");
    // A WebSocket says nothing about how long requests take.
    limit.advance(Duration::from_secs(36_000));
    socket.respond(101, &[], &[]);
    let _first = ask(&limit).expect_next();
    let after = ask(&limit).expect_next().slept();
    assert!(after <= waited, "{after:?} {waited:?}");
}

#[test]
fn two_rules_with_one_key_are_refused() {
    let rule = json!({"key": "$http_user", "conn": 1, "burst": 0});
    let text = build_error::<LimitConn>(json!({"default_conn_delay": 1, "rules": [rule, rule]}));
    assert!(
        text.contains("duplicate key '$http_user' in rules"),
        "{text}"
    );
}
