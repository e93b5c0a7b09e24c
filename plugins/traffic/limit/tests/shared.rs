use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockgate_plugin::testing::{Instance, build_error, run};
use lockgate_quota::{Law, OwnerStore, QuotaStore};
use serde_json::{Value, json};

use super::super::stores::{Question, Said, Stores};
use super::store::Memory;
use super::*;

/// A gateway that counts in this store.
fn gateway(store: &Arc<Memory>, conf: Value) -> Instance {
    let owner = OwnerStore(Arc::clone(store) as Arc<dyn QuotaStore>);
    run::<Limits>(conf).shared(Arc::new(owner)).build()
}

fn limits(extra: Value, more: Value) -> Value {
    let mut one = json!({"name": "a", "algorithm": "fixed_window", "count": 4, "time_window": 60, "mode": "exact"});
    let object = one.as_object_mut().unwrap();
    object.extend(extra.as_object().unwrap().clone());
    let mut conf = json!({"limits": [one]});
    let object = conf.as_object_mut().unwrap();
    object.extend(more.as_object().unwrap().clone());
    conf
}

#[test]
fn gateways_count_together() {
    for (algorithm, left) in [
        ("token_bucket", "r=2"),
        ("fixed_window", "r=2"),
        ("sliding_window", "r=2"),
        ("log", "r=2"),
    ] {
        let store = Arc::new(Memory::default());
        let conf = limits(json!({"algorithm": algorithm}), json!({}));
        let (one, other) = (gateway(&store, conf.clone()), gateway(&store, conf));
        assert_eq!(many(&one, 1), 1);
        let mut run = ask(&other).expect_next();
        let told = run.respond(200, &[], &[]).header("RateLimit").unwrap();
        assert!(told.contains(left), "{algorithm}: {told}");
        assert_eq!((many(&one, 9), many(&other, 9)), (2, 0), "{algorithm}");
        let answer = ask(&one).expect_reply(429);
        assert!(answer.header("Retry-After").is_some(), "{algorithm}");
        store.advance(Duration::from_secs(120));
        assert!(many(&other, 9) >= 3, "{algorithm}");
    }
}

#[test]
fn the_burst_of_a_shared_leaky_bucket_waits_and_others_do_not() {
    let store = Arc::new(Memory::default());
    let conf = json!({"limits": [{"name": "a", "algorithm": "leaky_bucket", "count": 2, "burst": 1, "mode": "exact"}]});
    let limit = gateway(&store, conf);
    assert_eq!(ask(&limit).expect_next().slept(), Duration::ZERO);
    let slept = ask(&limit).expect_next().slept();
    assert_eq!(slept, Duration::from_millis(500));
    let conf = limits(json!({"algorithm": "token_bucket"}), json!({}));
    assert_eq!(
        ask(&gateway(&store, conf)).expect_next().slept(),
        Duration::ZERO
    );
}

#[test]
fn own_and_shared_limits_are_charged_together_or_not_at_all() {
    let fixed = |name: &str, count: u64, mode: &str| json!({"name": name, "algorithm": "fixed_window", "count": count, "time_window": 60, "mode": mode});
    let left = |limit: &Instance| {
        let answer = ask(limit).expect_reply(429);
        answer.header("RateLimit").unwrap()
    };
    let store = Arc::new(Memory::default());
    let conf = json!({"limits": [fixed("own", 9, "local"), fixed("few", 2, "exact"), fixed("many", 9, "exact")]});
    let limit = gateway(&store, conf);
    assert_eq!(many(&limit, 9), 2);
    for _ in 0..5 {
        let told = left(&limit);
        for expected in ["\"own\";r=6", "\"few\";r=0", "\"many\";r=7"] {
            assert!(told.contains(expected), "{told}");
        }
    }
    // What refuses here is not even asked there.
    let store = Arc::new(Memory::default());
    let conf = json!({"limits": [fixed("all", 9, "exact"), fixed("own", 2, "local")]});
    let limit = gateway(&store, conf);
    assert_eq!(many(&limit, 9), 2);
    assert_eq!(store.calls.load(Ordering::Relaxed), 2);
    assert!(left(&limit).starts_with("\"own\";r=0"));
    assert_eq!(
        many(
            &gateway(
                &store,
                limits(json!({"name": "all", "count": 9}), json!({}))
            ),
            9
        ),
        7
    );
}

#[test]
fn while_the_store_is_away_a_gateway_counts_alone_for_its_part() {
    let check = |extra: Value, before: usize, expected: usize| {
        let store = Arc::new(Memory::default());
        let limit = gateway(&store, limits(json!({"count": 8}), extra.clone()));
        assert_eq!(many(&limit, before), before);
        store.go_away(true);
        assert_eq!(many(&limit, 99), expected, "{extra} {before}");
        store.go_away(false);
        assert_eq!(many(&limit, 99), 8 - before, "{extra} {before}");
    };
    check(json!({"gateways": 1}), 0, 8);
    check(json!({"gateways": 4}), 0, 2);
    check(json!({"gateways": 3}), 0, 3);
    check(json!({}), 0, 4);
    // What it let pass before is a part of its part.
    check(json!({}), 1, 3);
    check(json!({}), 6, 0);
    check(json!({"gateways": 1024}), 0, 1);
}

#[test]
fn while_the_store_is_away_requests_pass_or_are_refused() {
    let store = Arc::new(Memory::default());
    store.go_away(true);
    let lenient = gateway(
        &store,
        limits(json!({"on_store_error": "allow"}), json!({})),
    );
    assert_eq!(many(&lenient, 99), 99);
    let strict = gateway(&store, limits(json!({"on_store_error": "deny"}), json!({})));
    let answer = ask(&strict).expect_reply(429);
    assert!(answer.header("Retry-After").is_none());
    // The stricter of several decides, and none of them counts.
    let one = |name: &str, does: &str| json!({"name": name, "count": 2, "time_window": 60, "mode": "exact", "on_store_error": does});
    let both = json!({"gateways": 1, "limits": [one("a", "local"), one("b", "deny")]});
    let both = gateway(&store, both);
    assert_eq!(many(&both, 5), 0);
    let alone = json!({"gateways": 1, "limits": [one("a", "local"), one("b", "allow")]});
    assert_eq!(many(&both.edited(&alone), 5), 2);
}

#[test]
fn a_dry_run_counts_in_the_store_for_itself() {
    let store = Arc::new(Memory::default());
    let dry = gateway(&store, limits(json!({}), json!({"dry_run": true})));
    assert_eq!(many(&dry, 20), 20);
    let real = gateway(&store, limits(json!({}), json!({})));
    assert_eq!(many(&real, 20), 4);
    store.go_away(true);
    assert_eq!(many(&dry, 20), 20);
}

#[test]
fn costs_count_in_the_store() {
    let passed = |cost: u64| {
        let store = Arc::new(Memory::default());
        let limit = gateway(&store, limits(json!({"cost": cost}), json!({})));
        many(&limit, 9)
    };
    assert_eq!([passed(1), passed(2), passed(4), passed(5)], [4, 2, 1, 0]);
    // What costs nothing passes unless the limit is used up.
    let store = Arc::new(Memory::default());
    let conf = limits(json!({"cost": "$http_cost"}), json!({}));
    let limit = gateway(&store, conf);
    let with = |cost: &str| {
        limit
            .request()
            .from("192.0.2.1")
            .header("cost", cost)
            .get("/")
    };
    assert!(with("0").passed() && with("4").passed() && !with("0").passed());
}

#[test]
fn scopes_and_keys_are_apart_in_the_store() {
    let store = Arc::new(Memory::default());
    let one = |scope: &str| {
        limits(
            json!({"scope": scope, "count": 1, "key": "$http_a$http_b"}),
            json!({}),
        )
    };
    let ask = |scope: &str, route: &str, a: &str, b: &str| {
        let limit = gateway(&store, one(scope));
        let mut request = limit.request().route(RouteInfo {
            id: route.into(),
            ..RouteInfo::default()
        });
        for (name, value) in [("a", a), ("b", b)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        request.get("/").passed()
    };
    assert!(ask("route", "1", "x", "yz") && !ask("route", "1", "x", "yz"));
    assert!(ask("route", "1", "xy", "z") && ask("route", "2", "x", "yz"));
    assert!(ask("route", "1", "xyz", "") && ask("route", "1", "", "xyz"));
    assert!(ask("global", "1", "x", "yz") && !ask("global", "2", "x", "yz"));
    // Without a value the address counts, and is nobody's value.
    let address = limits(json!({"key": "$http_a", "count": 1}), json!({}));
    let limit = gateway(&store, address);
    assert!(limit.request().from("192.0.2.1").get("/").passed());
    assert!(limit.request().header("a", "192.0.2.1").get("/").passed());
}

#[test]
fn what_a_store_cannot_count_is_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<Limits>(conf);
        assert!(text.contains(expected), "{text}");
    };
    let none = limits(json!({}), json!({}));
    check(none, "limits: a `mode` other than `local` needs a `store`");
    let redis = json!({"store": {"policy": "redis", "redis_host": "a.test"}});
    let with = |extra: Value| {
        let mut extra = extra;
        extra["mode"] = json!("auto");
        limits(extra, redis.clone())
    };
    check(
        with(json!({"algorithm": "buckets"})),
        "limits[0].algorithm: `buckets` counts in this gateway's memory only",
    );
    check(with(json!({"aligned": true})), "limits[0].aligned: ");
    check(
        with(json!({"algorithm": "sliding_window", "strict": true})),
        "limits[0].strict: ",
    );
    check(
        with(json!({"algorithm": "log", "count": 65})),
        "limits[0].count: ",
    );
    check(
        with(json!({"algorithm": "token_bucket", "count": 1e10})),
        "limits[0].count: the rate must be",
    );
    check(
        with(json!({"count": 9_007_199_254_740_993_u64})),
        "limits[0].count: the limit must be from 1 to 2^53",
    );
    let store = |store: Value| limits(json!({}), json!({"store": store}));
    check(store(json!({})), "store.policy: `local` is not served");
    check(store(json!({"policy": "redis"})), "store.redis_host: ");
    check(
        limits(json!({}), json!({"gateways": 0})),
        "gateways: expected 0 to be at least 1",
    );
    check(
        limits(json!({"mode": "global"}), json!({})),
        "limits[0].mode: ",
    );
    check(
        limits(json!({"on_store_error": "error"}), json!({})),
        "limits[0].on_store_error: ",
    );
}

/// In a cluster a limit that refuses keeps the others from being asked, or they say what they charged.
#[test]
fn limits_in_different_slots_are_asked_by_what_is_left() {
    let store = Arc::new(Memory::default());
    let counted = Arc::clone(&store) as Arc<dyn QuotaStore>;
    let stores = Stores::for_tests(counted, true);
    let window = Duration::from_secs(60);
    let one = json!({"name": "x", "count": 9});
    let one: super::super::conf::One = serde_json::from_value(one).unwrap();
    let shared: Vec<_> = ["wide", "narrow"]
        .map(|owner| super::super::shared::Shared::new((&one, false), owner, 2))
        .into();
    let asks: Vec<_> = shared
        .iter()
        .map(|shared| shared.naming.ask(["r", "1"], ("x", false), None))
        .collect();
    let asked = |at: usize, limit: u64| Question {
        shared: &shared[at],
        name: asks[at].name(&shared[at].naming),
        law: Law::Fixed { limit, window },
        cost: 1,
        count: limit,
        terms: None,
    };
    let (wide, narrow) = (asked(0, 100), asked(1, 1));
    let ask = || now_or_never(stores.ask(&[&wide, &narrow], false, 0));
    assert!(matches!(ask()[..], [Said::Charged(_), Said::Charged(_)]));
    // Nothing is left of the narrow one, and the wide one is not asked.
    for _ in 0..5 {
        assert!(matches!(ask()[..], [Said::Unasked, Said::Refused(_)]));
    }
    assert_ne!(wide.name.scope, narrow.name.scope);
    // Who waited in vain for one does not wait for the other, and who had waited before for none.
    let calls = |away: bool, late: bool| {
        let before = store.calls.load(Ordering::Relaxed);
        store.go_away(away);
        store.late.store(away, Ordering::Relaxed);
        let said = now_or_never(stores.ask(&[&wide, &asked(1, 100)], late, 0));
        assert_eq!(
            said.iter().all(|said| matches!(said, Said::Away)),
            away | late
        );
        store.calls.load(Ordering::Relaxed) - before
    };
    assert_eq!([calls(true, false), calls(true, true)], [1, 0]);
    assert_eq!([calls(false, true), calls(false, false)], [0, 2]);
}

/// The outcome of a future that does not wait.
fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    futures::FutureExt::now_or_never(future).unwrap()
}

/// Permits are carried by a task.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn permits_are_taken_ahead_and_never_more_than_the_limit() {
    let runtime = runtime();
    let _within = runtime.enter();
    let (store, other) = {
        let first = Memory::default();
        let second = first.beside();
        (Arc::new(first), Arc::new(second))
    };
    let conf = limits(json!({"count": 1_000, "mode": "lease"}), json!({}));
    let (one, two) = (gateway(&store, conf.clone()), gateway(&other, conf));
    let mut passed = [0, 0];
    for _ in 0..1_500 {
        passed[0] += many(&one, 1);
        passed[1] += many(&two, 1);
    }
    let all = passed[0] + passed[1];
    // What is left over is held by one of them when the other asks.
    assert!((900..=1_000).contains(&all), "{passed:?}");
    let calls = store.calls.load(Ordering::Relaxed) + other.calls.load(Ordering::Relaxed);
    assert!(calls < 200, "{calls} calls for 3,000 requests");
}

#[test]
fn permits_that_another_limit_refuses_are_put_back() {
    let runtime = runtime();
    let _within = runtime.enter();
    let store = Arc::new(Memory::default());
    let fixed = |name: &str, count: u64, mode: &str| json!({"name": name, "algorithm": "fixed_window", "count": count, "time_window": 60, "mode": mode});
    let conf =
        json!({"gateways": 1, "limits": [fixed("many", 50, "lease"), fixed("few", 3, "exact")]});
    let limit = gateway(&store, conf);
    assert_eq!(many(&limit, 100), 3);
    let rest = limits(
        json!({"name": "many", "count": 50, "mode": "lease"}),
        json!({"gateways": 1}),
    );
    assert_eq!(many(&limit.edited(&rest), 100), 47);
}

#[test]
fn without_a_store_permits_are_spent_and_then_a_part_of_the_limit() {
    let runtime = runtime();
    let _within = runtime.enter();
    let store = Arc::new(Memory::default());
    store.go_away(true);
    let limit = |does: &str| {
        let conf = limits(
            json!({"count": 100, "mode": "lease", "on_store_error": does}),
            json!({"gateways": 4}),
        );
        many(&gateway(&store, conf), 200)
    };
    assert_eq!(limit("allow"), 200);
    assert_eq!(limit("deny"), 0);
    assert_eq!(limit("local"), 25);
}

#[test]
fn auto_takes_ahead_what_is_worth_it() {
    let runtime = runtime();
    let _within = runtime.enter();
    let calls = |extra: Value| {
        let store = Arc::new(Memory::default());
        let mut conf = extra;
        conf["mode"] = json!("auto");
        let limit = gateway(&store, limits(conf, json!({})));
        assert_eq!(many(&limit, 100), 100);
        store.calls.load(Ordering::Relaxed)
    };
    assert!(calls(json!({"count": 100_000})) < 20);
    assert!(calls(json!({"algorithm": "token_bucket", "count": 100_000})) < 20);
    // A short window, and one whose requests have to be seen.
    assert_eq!(calls(json!({"count": 100_000, "time_window": 1})), 100);
    assert_eq!(
        calls(
            json!({"algorithm": "leaky_bucket", "count": 1_000_000, "time_window": 60, "burst": 200})
        ),
        100
    );
}
