//! Keys with another limit, while the store is away: this gateway's part of that limit counts.

use std::net::TcpListener;
use std::sync::Arc;

use lockgate_limit::{Ended, Engine, Wanted};
use lockgate_plugin::RouteInfo;
use lockgate_plugin::testing::{Instance, Run, run};
use lockgate_quota::{OwnerStore, QuotaStore};
use serde_json::{Value, json};

use super::super::Limits;
use super::store::Memory;

struct Gateway {
    limit: Instance,
    engine: Arc<Engine>,
}

impl Gateway {
    fn new(store: Option<&Arc<Memory>>, conf: Value) -> Gateway {
        let engine = Arc::new(Engine::with_bytes(0));
        let mut limit = run::<Limits>(conf).shared(Arc::clone(&engine));
        if let Some(store) = store {
            let owner = OwnerStore(Arc::clone(store) as Arc<dyn QuotaStore>);
            limit = limit.shared(Arc::new(owner));
        }
        let limit = limit.build();
        Gateway { limit, engine }
    }

    /// From now on this is the limit of the client; 0: its own again.
    fn overridden(&self, count: u64) {
        let post = self.engine.desk().find("routes/1/limit/a").unwrap();
        let wanted = Wanted {
            values: vec!["192.0.2.1".to_owned()],
            route: Some("1".to_owned()),
            count: Some(count.max(1)),
            ..Wanted::default()
        };
        let key = post.counts().key(&self.engine, &wanted).unwrap();
        let counted = post.counts().counted(&wanted).unwrap();
        let all = (count > 0).then_some((key, (counted, u64::MAX)));
        self.engine.overrides().replace(all.into_iter().collect());
    }

    fn ask(&self) -> Run {
        let route = RouteInfo {
            id: "1".into(),
            ..RouteInfo::default()
        };
        let request = self.limit.request().from("192.0.2.1");
        request.route(route).get("/")
    }

    fn many(&self, n: usize) -> usize {
        (0..n).filter(|_| self.ask().passed()).count()
    }

    fn ended(&self, ended: Ended) -> u64 {
        let post = self.engine.desk().find("routes/1/limit/a").unwrap();
        post.tally().count(ended)
    }
}

fn limits(extra: Value) -> Value {
    let mut one = json!({"name": "a", "count": 8, "time_window": 60, "mode": "exact"});
    let object = one.as_object_mut().unwrap();
    object.extend(extra.as_object().unwrap().clone());
    json!({"gateways": 4, "limits": [one]})
}

#[test]
fn alone_a_gateway_lets_pass_its_part_of_an_override() {
    for algorithm in ["fixed_window", "sliding_window", "log", "token_bucket"] {
        let check = |count: u64, before: usize, expected: usize| {
            let store = Arc::new(Memory::default());
            let gateway = Gateway::new(Some(&store), limits(json!({"algorithm": algorithm})));
            gateway.overridden(count);
            assert_eq!(gateway.many(before), before);
            store.go_away(true);
            let passed = gateway.many(60);
            assert_eq!(passed, expected, "{algorithm} {count} {before}");
        };
        check(40, 0, 10);
        // What the store let pass is a part of the part.
        check(40, 3, 7);
        check(4, 0, 1);
        check(0, 0, 2);
    }
}

#[test]
fn alone_several_limits_count_their_parts_of_an_override() {
    let store = Arc::new(Memory::default());
    let one = |name: &str, count: u64| json!({"name": name, "algorithm": "fixed_window", "count": count, "time_window": 60, "mode": "exact"});
    let conf = json!({"gateways": 4, "refund_on": [404], "limits": [one("a", 8), one("b", 400)]});
    let gateway = Gateway::new(Some(&store), conf);
    gateway.overridden(40);
    store.go_away(true);
    assert_eq!(gateway.many(60), 10);
    gateway.overridden(48);
    assert_eq!(gateway.many(60), 2);
}

#[test]
fn headers_tell_of_the_override() {
    let store = Arc::new(Memory::default());
    let gateway = Gateway::new(Some(&store), limits(json!({"algorithm": "fixed_window"})));
    gateway.overridden(100);
    for _ in 0..20 {
        assert!(gateway.ask().passed());
    }
    // Eighty are left, which is far from the limit, and would not be of eight.
    let post = gateway.engine.desk().find("routes/1/limit/a").unwrap();
    assert_eq!((post.tally().near(), gateway.ended(Ended::Allow)), (0, 20));
}

#[test]
fn alone_as_many_are_under_way_as_the_override_has_for_a_gateway() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    // Nobody listens there any more.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let port = port.unwrap().port();
    let mut conf = limits(json!({"algorithm": "concurrency"}));
    conf["store"] = json!({"policy": "redis", "redis_host": "127.0.0.1", "redis_port": port});
    let gateway = Gateway::new(None, conf);
    let under_way = || {
        let mut held = Vec::new();
        for _ in 0..30 {
            held.extend(Some(gateway.ask()).filter(Run::passed));
        }
        held.len()
    };
    assert_eq!(under_way(), 2);
    gateway.overridden(40);
    assert_eq!(under_way(), 10);
    gateway.overridden(4);
    assert_eq!(under_way(), 1);
}

/// Each request is told of once, as what became of it.
#[test]
fn what_passes_without_the_store_is_tallied_so() {
    let check = |does: &str, expected: [u64; 4]| {
        let store = Arc::new(Memory::default());
        let conf = limits(json!({"algorithm": "fixed_window", "on_store_error": does}));
        let gateway = Gateway::new(Some(&store), conf);
        assert_eq!(gateway.many(1), 1);
        store.go_away(true);
        let _ = gateway.many(5);
        let ended = [Ended::Allow, Ended::ErrorAllow, Ended::Local, Ended::Reject];
        let counts = ended.map(|ended| gateway.ended(ended));
        assert_eq!(counts, expected, "{does}");
    };
    check("allow", [1, 5, 0, 0]);
    // A part is two, and one of it is used.
    check("local", [1, 0, 1, 4]);
    check("deny", [1, 0, 0, 5]);
}
