mod overrides;
mod shared;
mod store;

use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::RouteInfo;
use lockgate_plugin::testing::{Instance, Run, build_error, run};
use serde_json::{Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn built(limits: Value) -> Instance {
    run::<Limits>(json!({ "limits": limits })).build()
}

fn ask(limit: &Instance) -> Run {
    limit.request().from("192.0.2.1").get("/")
}

fn many(limit: &Instance, n: usize) -> usize {
    let one = || limit.request().from("192.0.2.1");
    (0..n).filter(|_| one().get("/").passed()).count()
}

/// How many of twenty pass at once, after half a window, and after another whole one.
fn check(extra: Value, expected: [usize; 3]) {
    let mut one = json!({"name": "a", "count": 4, "time_window": 60});
    one.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    let limit = built(json!([one]));
    // The test's clock starts five seconds into a minute.
    limit.advance(55 * SECOND);
    let first = many(&limit, 20);
    limit.advance(30 * SECOND);
    let second = many(&limit, 20);
    limit.advance(60 * SECOND);
    assert_eq!([first, second, many(&limit, 20)], expected, "{extra}");
}

#[test]
fn algorithms() {
    check(json!({}), [4, 2, 4]);
    check(json!({"burst": 1}), [1, 1, 1]);
    check(json!({"algorithm": "leaky_bucket"}), [1, 1, 1]);
    check(json!({"algorithm": "fixed_window"}), [4, 0, 4]);
    check(
        json!({"algorithm": "fixed_window", "aligned": true}),
        [4, 0, 4],
    );
    check(json!({"algorithm": "sliding_window"}), [4, 0, 2]);
    check(
        json!({"algorithm": "sliding_window", "strict": true}),
        [4, 0, 0],
    );
    check(json!({"algorithm": "buckets"}), [4, 0, 4]);
    check(json!({"algorithm": "log"}), [4, 0, 4]);
    check(json!({"cost": 2}), [2, 1, 2]);
    check(json!({"cost": 0}), [20, 20, 20]);
    check(json!({"cost": 5}), [0, 0, 0]);
}

#[test]
fn the_burst_of_a_leaky_bucket_waits() {
    let limit = built(json!([{"name": "a", "algorithm": "leaky_bucket", "count": 2, "burst": 1}]));
    assert_eq!(ask(&limit).expect_next().slept(), Duration::ZERO);
    assert_eq!(
        ask(&limit).expect_next().slept(),
        Duration::from_millis(500)
    );
}

#[test]
fn all_limits_are_charged_or_none() {
    let limit = built(json!([
        {"name": "many", "count": 5, "time_window": 60},
        {"name": "few", "algorithm": "fixed_window", "count": 2, "time_window": 10},
    ]));
    let mut run = ask(&limit).expect_next();
    let answer = run.respond(200, &[], &[]);
    let policy = "\"many\";q=5;w=60, \"few\";q=2;w=10";
    assert_eq!(answer.header("RateLimit-Policy").unwrap(), policy);
    assert_eq!(
        answer.header("RateLimit").unwrap(),
        "\"many\";r=4;t=12, \"few\";r=1;t=10"
    );
    assert_eq!(many(&limit, 10), 1);
    let answer = ask(&limit).expect_reply(429);
    assert_eq!(
        answer.header("RateLimit").unwrap(),
        "\"many\";r=3;t=24, \"few\";r=0;t=10"
    );
    let retry: u64 = answer.header("Retry-After").unwrap().parse().unwrap();
    assert!((10..=11).contains(&retry), "{retry}");
    assert_eq!(answer.reason(), "a limit is reached");
}

#[test]
fn what_runs_is_counted_until_it_ends() {
    let limit = built(json!([
        {"name": "work", "algorithm": "concurrency", "count": 1},
        {"name": "rate", "algorithm": "fixed_window", "count": 2, "time_window": 60},
    ]));
    let mut first = ask(&limit).expect_next();
    let answer = ask(&limit).expect_reply(429);
    assert_eq!(answer.header("RateLimit").unwrap(), "\"work\";r=0");
    assert!(answer.header("Retry-After").is_none());
    first.respond(200, &[], &[]);
    let second = ask(&limit).expect_next();
    drop(second);
    // The rate refuses; then nothing is under way.
    ask(&limit).expect_reply(429);
    limit.advance(60 * SECOND);
    let _ = ask(&limit).expect_next();
}

#[test]
fn keys_and_scopes() {
    let route = |id: &str, service: Option<&str>| RouteInfo {
        id: id.into(),
        service_id: service.map(Arc::from),
        ..RouteInfo::default()
    };
    let check = |extra: Value, requests: &[(&str, &str, Option<&str>)], expected: &[bool]| {
        let mut one = json!({"name": "a", "count": 1, "time_window": 60});
        one.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let limit = built(json!([one]));
        let ask = |(client, id, service): &(&str, &str, Option<&str>)| {
            limit
                .request()
                .from(client)
                .route(route(id, *service))
                .get("/")
                .passed()
        };
        let got: Vec<bool> = requests.iter().map(ask).collect();
        assert_eq!(got, expected, "{extra}");
    };
    let (a, b, s) = ("192.0.2.1", "192.0.2.2", Some("s"));
    let routes = [(a, "1", s), (a, "2", s), (b, "1", None), (a, "3", None)];
    check(json!({}), &routes, &[true, true, true, true]);
    check(
        json!({"scope": "service"}),
        &routes,
        &[true, false, true, true],
    );
    check(
        json!({"scope": "global"}),
        &routes,
        &[true, false, true, false],
    );
    check(
        json!({"scope": "global", "key": ""}),
        &routes,
        &[true, false, false, false],
    );
    let missing = |on: &str| json!({"key": "$http_user", "on_missing": on});
    let twice = [(a, "1", s), (a, "1", s), (b, "1", s)];
    check(missing("ip"), &twice, &[true, false, true]);
    check(missing("skip"), &twice, &[true, true, true]);
    check(missing("deny"), &twice, &[false, false, false]);
    let (v6, near, far) = ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1");
    let networks = [(v6, "1", s), (near, "1", s), (far, "1", s)];
    check(json!({}), &networks, &[true, false, true]);
    check(json!({"ipv6_prefix": 128}), &networks, &[true, true, true]);
    check(json!({"ipv6_prefix": 48}), &networks, &[true, false, false]);
}

#[test]
fn a_dry_run_counts_and_refuses_nothing() {
    let limits = |dry: bool| {
        json!([{"name": "a", "algorithm": "fixed_window", "count": 1, "time_window": 60, "dry_run": dry},
        {"name": "c", "algorithm": "concurrency", "count": 1, "dry_run": true}])
    };
    let dry = built(limits(true));
    let mut held = ask(&dry).expect_next();
    assert_eq!(many(&dry, 3), 3);
    assert!(held.respond(200, &[], &[]).header("RateLimit").is_none());
    // What a dry run has counted is not held against anybody.
    let real = dry.edited(&json!({"limits": limits(false)}));
    assert_eq!(many(&real, 3), 1);
    let whole = real.edited(&json!({"limits": limits(false), "dry_run": true}));
    assert_eq!(many(&whole, 3), 3);
}

#[test]
fn answers_settle_what_was_charged() {
    let conf = json!({"limits": [{"name": "a", "algorithm": "fixed_window", "count": 10, "time_window": 60, "cost": 4}],
        "refund_on": ["5xx", 404], "cost_header": "X-Cost"});
    let limit = run::<Limits>(conf).build();
    let left = |status: u16, headers: &[(&str, &str)]| {
        let mut run = ask(&limit).expect_next();
        let answer = run.respond(status, headers, &[]);
        answer.header("RateLimit").unwrap()
    };
    assert_eq!(left(503, &[]), "\"a\";r=6;t=60");
    assert_eq!(left(404, &[("X-Cost", "7")]), "\"a\";r=6;t=60");
    assert_eq!(left(200, &[("X-Cost", "1")]), "\"a\";r=6;t=60");
    assert_eq!(left(200, &[("X-Cost", "no number")]), "\"a\";r=5;t=60");
    assert_eq!(left(200, &[("X-Cost", "9")]), "\"a\";r=1;t=60");
    ask(&limit).expect_reply(429);
}

#[test]
fn an_edit_keeps_what_was_counted() {
    let limit = |count: u64, name: &str| json!({"limits": [{"name": name, "count": count, "time_window": 60, "burst": 4, "algorithm": "token_bucket"}]});
    let first = run::<Limits>(limit(4, "a")).build();
    assert_eq!(many(&first, 9), 4);
    assert_eq!(many(&first.edited(&limit(8, "a")), 9), 0);
    assert_eq!(many(&first.edited(&limit(4, "b")), 9), 4);
}

#[test]
fn phases_are_there_when_needed() {
    let phases = |extra: Value| {
        let mut conf = json!({"limits": [{"name": "a", "count": 1}]});
        conf.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        run::<Limits>(conf).build().phases()
    };
    assert_eq!(phases(json!({})), Phases::ACCESS);
    assert_eq!(phases(json!({"refund_on": [500]})), Limits::PHASES);
    let concurrency = json!({"limits": [{"name": "a", "count": 1, "algorithm": "concurrency"}]});
    assert_eq!(phases(concurrency), Limits::PHASES);
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<Limits>(conf);
        assert!(text.contains(expected), "{text}");
    };
    let with = |extra: Value| {
        let mut one = json!({"name": "a", "count": 1});
        one.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        json!({ "limits": [one] })
    };
    check(json!({"limits": []}), "limits: ");
    check(with(json!({"name": "a b"})), "limits[0].name: ");
    check(with(json!({"count": 0})), "limits[0].count: ");
    check(
        with(json!({"count": "x"})),
        "limits[0].count: `x` is neither",
    );
    check(with(json!({"time_window": 0})), "limits[0].time_window: ");
    check(with(json!({"burst": 0})), "limits[0].burst: ");
    check(with(json!({"cost": -1})), "limits[0].cost: ");
    check(with(json!({"parts": 11})), "limits[0].parts: ");
    check(
        with(json!({"algorithm": "log", "count": 65})),
        "limits[0].count: a log remembers at most 64 requests",
    );
    check(
        with(json!({"algorithm": "log", "burst": 2})),
        "limits[0].burst: only buckets have a burst",
    );
    check(
        with(json!({"aligned": true})),
        "limits[0].aligned: only fixed windows",
    );
    check(with(json!({"strict": true})), "limits[0].strict: only for");
    check(with(json!({"mode": "redis"})), "limits[0].mode: ");
    let one = json!({"name": "a", "count": 1});
    check(
        json!({"limits": [one, one]}),
        "limits[1].name: two limits are called `a`",
    );
    check(
        json!({"limits": [one], "refund_on": ["6xx"]}),
        "refund_on[0]: ",
    );
    check(
        json!({"limits": [one], "cost_header": "a b"}),
        "cost_header: the name is not a header name",
    );
}

/// The settlement of a request that took long counts as of its end, not of its arrival.
#[test]
fn settlements_are_as_of_the_end_of_the_request() {
    let one = |algorithm: &str| json!({"name": "a", "algorithm": algorithm, "count": 10, "time_window": 60});
    let limit = |algorithm: &str, extra: Value| {
        let mut conf = json!({ "limits": [one(algorithm)] });
        let extra = extra.as_object().unwrap().clone();
        conf.as_object_mut().unwrap().extend(extra);
        run::<Limits>(conf).build()
    };
    // A refund from an ended window does not open the running one, nor reach back into it.
    let refunds = json!({"refund_on": [500]});
    for algorithm in ["sliding_window", "fixed_window", "buckets", "log"] {
        let limit = limit(algorithm, refunds.clone());
        let mut slow = ask(&limit).expect_next();
        limit.advance(200 * SECOND);
        assert_eq!(many(&limit, 20), 10, "{algorithm}");
        slow.respond(500, &[], &[]);
        assert_eq!(many(&limit, 20), 0, "{algorithm}");
    }
    // What a long request has cost is charged to the window in which it ends.
    let costs = json!({"cost_header": "X-Cost"});
    for algorithm in [
        "sliding_window",
        "fixed_window",
        "buckets",
        "log",
        "token_bucket",
    ] {
        let limit = limit(algorithm, costs.clone());
        let mut slow = ask(&limit).expect_next();
        limit.advance(200 * SECOND);
        slow.respond(200, &[("X-Cost", "9")], &[]);
        assert_eq!(many(&limit, 20), 2, "{algorithm}");
        // And does not end it.
        limit.advance(5 * SECOND);
        assert_eq!(many(&limit, 20), 0, "{algorithm}");
    }
}

#[test]
fn a_cost_above_the_limit_is_told_without_a_time_that_never_comes() {
    for algorithm in ["sliding_window", "fixed_window", "buckets", "log"] {
        let limit = built(
            json!([{"name": "a", "algorithm": algorithm, "count": 4, "time_window": 60, "cost": 5}]),
        );
        let answer = ask(&limit).expect_reply(429);
        let shown = answer.header("RateLimit").unwrap();
        let (_, seconds) = shown.split_once(";t=").unwrap();
        assert!(seconds.parse::<u64>().unwrap() <= 60, "{shown}");
        assert!(answer.header("Retry-After").is_none());
    }
}

/// Two parts of a key: a value in the one is not the same as that value in the other.
#[test]
fn values_of_different_variables_are_different_keys() {
    let limit =
        built(json!([{"name": "a", "count": 1, "time_window": 60, "key": "$http_a$http_b"}]));
    let with = |name: &str| limit.request().header(name, "x").get("/").passed();
    assert_eq!(
        [with("a"), with("b"), with("a"), with("b")],
        [true, true, false, false]
    );
}

#[test]
fn nobody_is_held_longer_than_an_hour() {
    let limit = built(
        json!([{"name": "a", "algorithm": "leaky_bucket", "count": 1, "time_window": 100_000, "burst": 9}]),
    );
    assert_eq!(ask(&limit).expect_next().slept(), Duration::ZERO);
    assert_eq!(ask(&limit).expect_next().slept(), 3_600 * SECOND);
}
