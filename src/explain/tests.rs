//! What is explained is what happens.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::*;
use crate::config::catalogue::Catalogue;
use crate::config::compile::instance::Workshop;
use crate::config::graph::{Change, Graph};
use crate::config::kind::{Key, Kind};
use crate::router::{Mode, Unseen};

fn rules() -> Rules {
    Rules {
        match_options: MatchOptions::default(),
        addresses: AddressRules {
            real_ip_header: lockgate_plugin::HeaderKey::constant("X-Real-IP"),
            real_ip_from: vec!["127.0.0.0/24".parse().unwrap()],
            recursive: false,
            trusted: None,
        },
        facts: Arc::default(),
        ports: [9080, 9443],
        fallback_sni: None,
    }
}

/// The snapshot of resources by name, such as `routes/1`. They are all valid.
fn snapshot(mode: Mode, resources: &Value) -> Arc<Snapshot> {
    let workshop = Workshop {
        catalogue: Catalogue::everything(lockgate_plugins::ALL),
        shared: Default::default(),
        states: Default::default(),
        attr: Value::Null,
        metadata: Default::default(),
    };
    let mut graph = Graph::new(workshop, mode, None);
    let put = |(at, (name, value)): (usize, (&String, &Value))| {
        let key = Key::from_path(name).unwrap();
        let mut value = value.clone();
        if key.kind == Kind::Route {
            let map = value.as_object_mut().unwrap();
            map.entry("plugins").or_insert(json!({}));
        }
        Change::Put(key, Arc::new(value), Some(at))
    };
    let map = resources.as_object().unwrap();
    let applied = graph.apply(map.iter().enumerate().map(put).collect());
    assert!(applied.problems.is_empty(), "{}", applied.problems);
    graph.snapshot()
}

fn told(snap: &Snapshot, asked: &Asked) -> Explanation {
    explain(snap, &rules(), asked, From::Running).unwrap()
}

fn shop() -> Arc<Snapshot> {
    let nodes = json!({"127.0.0.1:1980": 2, "127.0.0.2:1980": 1});
    snapshot(
        Mode::HostUri,
        &json!({
            "upstreams/1": {"type": "roundrobin", "nodes": nodes},
            "services/1": {"upstream_id": "1", "plugins": {
                "request-id": {}, "cors": {}, "key-auth": {"_meta": {"disable": true}},
            }},
            "consumer_groups/g": {"plugins": {"ip-restriction": {"whitelist": ["10.0.0.0/8"]}}},
            "consumers/ann": {"username": "ann", "group_id": "g", "plugins": {
                "key-auth": {"key": "a-key"},
                "proxy-rewrite": {"headers": {"set": {"x": "1"}}},
            }},
            "global_rules/1": {"plugins": {"prometheus": {}, "ua-restriction": {
                "denylist": ["bot"],
                "_meta": {"filter": [["arg_x", "==", "1"]]},
            }}},
            "routes/canary": {"uri": "/shop/*", "host": "a.test", "service_id": "1", "priority": 5,
                "vars": [["http_x_canary", "==", "v2"]]},
            "routes/post": {"uri": "/shop/*", "host": "a.test", "service_id": "1", "priority": 4,
                "methods": ["POST", "PUT"]},
            "routes/near": {"uri": "/shop/*", "host": "a.test", "service_id": "1", "priority": 3,
                "remote_addr": "192.0.2.0/24"},
            "routes/shop": {"uri": "/shop/*", "host": "a.test", "service_id": "1",
                "plugins": {"cors": {"allow_origins": "http://b.test"}}},
            "routes/any": {"uri": "/*", "service_id": "1"},
            "routes/lost": {"uri": "/lost", "service_id": "2"},
            "routes/none": {"uri": "/none", "plugins": {"mocking": {"response_example": "x"}}},
        }),
    )
}

fn verdicts(told: &Explanation) -> Vec<String> {
    let line = |c: &CandidateSeen| match &c.verdict {
        Verdict::Chosen => format!("{} chosen", c.route),
        Verdict::Behind => format!("{} behind", c.route),
        Verdict::Failed(failed) => {
            let Failed { at, wanted, found } = &failed[0];
            format!(
                "{} {at} {wanted} / {}",
                c.route,
                found.as_deref().unwrap_or("-")
            )
        }
    };
    told.candidates.iter().map(line).collect()
}

#[test]
fn candidates_in_order_with_what_failed_first() {
    let told = told(
        &shop(),
        &Asked::new("GET", "http://a.test/x/../shop/%61?q=1"),
    );
    assert_eq!(
        verdicts(&told),
        [
            "canary vars[0] http_x_canary == v2 / -",
            "post methods POST, PUT / GET",
            "near remote_addrs 192.0.2.0/24 / 127.0.0.1",
            "shop chosen",
            "any behind",
        ]
    );
    assert_eq!(told.request.path, "/shop/a");
    assert_eq!(told.request.host, "a.test");
    let route = told.route.unwrap();
    assert_eq!((&*route.id, route.service.as_deref()), ("shop", Some("1")));
}

#[test]
fn the_client_is_the_one_that_the_rules_find() {
    let asked = Asked {
        headers: vec![("X-Real-IP".into(), "192.0.2.7".into())],
        ..Asked::new("GET", "http://a.test/shop/")
    };
    let told = told(&shop(), &asked);
    assert_eq!(
        (&*told.request.client, &*told.request.peer),
        ("192.0.2.7", "127.0.0.1")
    );
    assert_eq!(told.route.unwrap().id, "near");
}

#[test]
fn plugins_with_their_level() {
    let list = |told: &Explanation| -> Vec<String> {
        let line = |p: &PluginSeen| {
            let id = p.id.as_deref().unwrap_or("?");
            let runs = match &p.runs {
                Runs::Filtered(failed) => format!("filtered {} {}", failed[0].at, failed[0].wanted),
                other => format!("{other:?}").to_lowercase(),
            };
            format!("{} {}/{id} {runs}", p.name, p.level)
        };
        told.plugins.iter().map(line).collect()
    };
    let phases = |told: &Explanation| -> Vec<String> {
        let line = |p: &PhaseSeen| {
            let names: Vec<&str> = p.plugins.iter().map(|a| &*a.name).collect();
            format!("{}: {}", p.phase, names.join(" "))
        };
        told.phases.iter().map(line).collect()
    };
    let mut asked = Asked::new("GET", "http://a.test/shop/");
    let alone = told(&shop(), &asked);
    assert_eq!(
        list(&alone),
        [
            "ua-restriction global_rule/1 filtered _meta.filter[0] arg_x == 1",
            "prometheus global_rule/1 yes",
            "request-id service/1 yes",
            "cors route/shop yes",
            "key-auth service/1 disabled",
        ]
    );
    asked.consumer = Some("ann".to_owned());
    let with = told(&shop(), &asked);
    assert_eq!(
        list(&with)[2..],
        [
            "request-id service/1 yes",
            "cors route/shop yes",
            "ip-restriction consumer_group/g yes",
            "key-auth service/1 disabled",
            "proxy-rewrite consumer/ann yes",
        ]
    );
    // What the consumer adds runs behind what the route has, whatever its priority.
    assert_eq!(phases(&with)[0], "rewrite: request-id cors proxy-rewrite");
    asked.consumer = Some("bob".to_owned());
    let unknown = explain(&shop(), &rules(), &asked, From::Running);
    assert_eq!(unknown, Err(NotExplained::Consumer("bob".to_owned())));
}

#[test]
fn plugins_tell_what_they_would_work_with() {
    let snap = snapshot(
        Mode::HostUri,
        &json!({
            "consumers/ann": {"username": "ann", "plugins": {"key-auth": {"key": "a-key"}}},
            "routes/1": {"uri": "/", "plugins": {
                "key-auth": {}, "ip-restriction": {"whitelist": ["10.0.0.0/8"]},
            }},
        }),
    );
    let check = |key: Option<&str>, from: &str, expected: [&str; 2]| {
        let asked = Asked {
            headers: key
                .map(|key| ("apikey".into(), key.into()))
                .into_iter()
                .collect(),
            from: Some(from.to_owned()),
            ..Asked::new("GET", "/")
        };
        let told = told(&snap, &asked);
        let details = told.plugins.iter().flat_map(|p| &p.details);
        let lines: Vec<String> = details.map(|(n, v)| format!("{n}: {v}")).collect();
        assert_eq!(lines, expected, "{key:?} {from}");
    };
    check(
        None,
        "10.1.1.1",
        ["client: 10.1.1.1 is allowed", "key: missing"],
    );
    check(
        Some("b"),
        "::1",
        ["client: ::1 is refused with 403", "key: nobody's"],
    );
    check(
        Some("a-key"),
        "10.1.1.1",
        ["client: 10.1.1.1 is allowed", "key: of the consumer ann"],
    );
}

#[test]
fn limits_tell_their_keys_and_count_nothing() {
    let snap = snapshot(
        Mode::HostUri,
        &json!({
            "routes/1": {"uri": "/", "plugins": {
                "limit-count": {"count": 1, "time_window": 60, "key": "http_x_user"},
                "limit-req": {"rate": 1, "burst": 0, "key": "remote_addr"},
                "limit-conn": {"conn": 1, "burst": 0, "default_conn_delay": 1,
                    "key_type": "var_combination", "key": "$host$http_x_user"},
            }},
        }),
    );
    let check = |headers: &[(&str, &str)], expected: [&str; 3]| {
        let own = headers
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let asked = Asked {
            headers: own.collect(),
            from: Some("192.0.2.7".to_owned()),
            ..Asked::new("GET", "http://a.test/")
        };
        for _ in 0..3 {
            let told = told(&snap, &asked);
            let details = || told.plugins.iter().flat_map(|p| &p.details);
            let all = |wanted: &str| -> Vec<&str> {
                let named = details().filter(|(name, _)| name == wanted);
                named.map(|(_, value)| &**value).collect()
            };
            assert_eq!(all("key"), expected);
            assert_eq!(all("used"), ["0 of 1"; 3]);
        }
    };
    check(&[("X-User", "ann")], ["a.testann", "ann", "192.0.2.7"]);
    check(
        &[],
        [
            "a.test",
            "192.0.2.7 (its variables have no value)",
            "192.0.2.7",
        ],
    );
}

#[test]
fn conditions_of_routes_do_not_see_the_consumer_but_those_of_plugins_do() {
    let only = json!([["consumer_name", "==", "ann"]]);
    let snap = snapshot(
        Mode::HostUri,
        &json!({
            "consumers/ann": {"username": "ann", "plugins": {"cors": {"_meta": {"filter": only}}}},
            "routes/1": {"uri": "/", "vars": only},
            "routes/2": {"uri": "/"},
        }),
    );
    let asked = Asked {
        consumer: Some("ann".to_owned()),
        ..Asked::new("GET", "/")
    };
    let told = told(&snap, &asked);
    assert_eq!(told.route.unwrap().id, "2");
    assert_eq!(
        (&*told.plugins[0].name, &told.plugins[0].runs),
        ("cors", &Runs::Yes)
    );
}

#[test]
fn the_gateway_s_own_answers() {
    let check = |method: &str, url: &str, status: u16, why: &str, after_plugins: bool| {
        let told = told(&shop(), &Asked::new(method, url));
        let expected = Answer {
            status,
            why: why.to_owned(),
            after_plugins,
        };
        assert_eq!(told.answer, Some(expected), "{method} {url}");
    };
    check("GET", "/lost", 404, "service missing", false);
    check("GET", "/none", 503, "route without upstream", true);
    check("GET", "/../x", 400, "the path leads above the root", false);
    check("GET", "/%00", 400, "the path has an encoded NUL", false);
    check("CONNECT", "/", 405, "CONNECT is not served", false);
    check(
        "G T",
        "/",
        400,
        "request line is not METHOD TARGET VERSION",
        false,
    );
    check("GET", "http://a_b c/", 400, "Host is not a host", false);
    let empty = snapshot(Mode::HostUri, &json!({}));
    let told = told(&empty, &Asked::new("GET", "/"));
    let answer = told.answer.unwrap();
    assert_eq!((answer.status, answer.after_plugins), (404, false));
}

#[test]
fn without_a_route_those_of_other_hosts_are_named() {
    let snap = snapshot(
        Mode::HostUri,
        &json!({
            "routes/1": {"uri": "/a/*", "hosts": ["x.test", "*.y.test"]},
            "routes/2": {"uri": "/b", "host": "x.test"},
            "routes/3": {"uri": "/a/:b/*c", "host": "z.test"},
        }),
    );
    let told = told(&snap, &Asked::new("GET", "http://q.test/a/1"));
    let mut hosts: Vec<String> = told
        .other_hosts
        .iter()
        .map(|o| format!("{} {}{}", o.route, o.host, o.uri))
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["1 *.y.test/a/*", "1 x.test/a/*"]);
    assert!(told.candidates.is_empty() && told.route.is_none());
}

#[test]
fn the_node_is_named_without_taking_a_turn() {
    let snap = shop();
    let asked = Asked::new("GET", "/q");
    let seen = |from| {
        explain(&snap, &rules(), &asked, from)
            .unwrap()
            .upstream
            .unwrap()
    };
    let first = seen(From::Running);
    assert_eq!((&*first.key, first.nodes.len()), ("upstreams/1", 2));
    assert_eq!(first.next.as_deref(), Some("127.0.0.1:1980"));
    assert_eq!(seen(From::Running), first);
    assert_eq!(seen(From::File).next, None);
}

#[test]
fn certificates_by_the_name_of_the_handshake() {
    let told = told(&shop(), &Asked::new("GET", "https://a.test/shop/"));
    assert_eq!(told.certificate, Some(Certificate { ssl: None }));
    assert_eq!(told.request.scheme, "https");
}

#[test]
fn long_lists_end_but_the_chosen_one_is_among_them() {
    let mut routes = serde_json::Map::new();
    for n in 0..300 {
        let vars = json!([["arg_n", "==", n.to_string()]]);
        routes.insert(format!("routes/{n}"), json!({"uri": "/", "vars": vars}));
    }
    let snap = snapshot(Mode::HostUri, &Value::Object(routes));
    let check = |n: usize, listed: usize| {
        let told = told(&snap, &Asked::new("GET", &format!("/?n={n}")));
        assert_eq!(told.route.unwrap().id, n.to_string());
        assert_eq!(told.candidates.len() + told.candidates_left_out, 300);
        let chosen = |c: &&CandidateSeen| c.verdict == Verdict::Chosen;
        assert_eq!(told.candidates.iter().filter(chosen).count(), 1);
        assert_eq!(told.candidates.len(), listed);
    };
    check(5, 100);
    check(250, 101);
}

fn resources() -> impl Strategy<Value = Value> {
    let uris = subsequence(
        vec!["/a", "/a/*", "/*", "/a/:p", "/a/*/b", "/a/b", "/a//b"],
        1..3,
    )
    .prop_shuffle();
    let hosts = subsequence(vec!["x", "*.x", "a.x", "x:1"], 0..3).prop_shuffle();
    let methods = subsequence(vec!["GET", "POST"], 0..=2);
    let vars = select(vec![
        json!([]),
        json!([["arg_q", "==", "1"]]),
        json!([["uri_param_p", "==", "b"]]),
        json!([["OR", ["http_h", "~~", "^v"], ["cookie_c", "in", ["1", "2"]]]]),
    ]);
    let from = select(vec!["10.0.0.0/8", "::/0", "0.0.0.0/0"]);
    let route = (uris, hosts, methods, vars, from, 0..2).prop_map(
        |(uris, hosts, methods, vars, from, priority)| {
            let mut route = json!({"uris": uris, "priority": priority, "remote_addr": from});
            let mut put = |name: &str, value: Value| {
                if value.as_array().is_some_and(|list| !list.is_empty()) {
                    route[name] = value;
                }
            };
            put("hosts", json!(hosts));
            put("methods", json!(methods));
            put("vars", vars);
            route
        },
    );
    prop::collection::vec(route, 0..10).prop_map(|routes| {
        let named = routes.into_iter().enumerate();
        Value::Object(named.map(|(n, r)| (format!("routes/{n}"), r)).collect())
    })
}

fn question() -> impl Strategy<Value = Asked> {
    let path = select(vec![
        "/a", "/a/b", "/a//b", "/a/x/b", "/x/../a", "/%61?q=1", "/a/b?q=1", "/a/%2Fb", "/%", "/",
    ]);
    let host = select(vec!["x", "b.x", "a.x", "X:1", "q"]);
    let header = select(vec![
        ("h", "v2"),
        ("h", "w"),
        ("cookie", "c=2"),
        ("x-real-ip", "10.1.1.1"),
    ]);
    let method = select(vec!["GET", "POST", "BREW"]);
    let from = select(vec!["127.0.0.1", "10.9.9.9", "::1"]);
    (path, host, header, method, from).prop_map(|(path, host, (name, value), method, from)| Asked {
        headers: vec![(name.into(), value.into())],
        from: Some(from.to_owned()),
        ..Asked::new(method, &format!("http://{host}{path}"))
    })
}

/// The route as a request finds it: by the search that nobody watches.
fn found(snap: &Snapshot, asked: &Asked) -> Option<String> {
    let question = asked.question().unwrap();
    let mut fields = Fields::default();
    let Scan::Complete(head) = scan(&question.head, 0, &mut fields) else {
        return None;
    };
    let req = WireReq::new(&question.head, &fields, &head);
    let mut work = rules().work(&question, Path::parse(req.target()).ok()?, asked);
    rules().addresses.settle(&mut work, &req);
    let found = locate::locate(snap, &rules().match_options, &work, &req, Unseen).ok()??;
    Some(found.entry.id.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_explained_route_is_the_one_that_is_found(
        mode in select(vec![Mode::Uri, Mode::HostUri, Mode::UriWithParameter]),
        resources in resources(),
        questions in prop::collection::vec(question(), 1..10),
    ) {
        let snap = snapshot(mode, &resources);
        for asked in questions {
            let told = told(&snap, &asked);
            let expected = found(&snap, &asked);
            prop_assert_eq!(told.route.map(|r| r.id), expected.clone(), "{:?}", &asked);
            let chosen = told.candidates.iter().filter(|c| c.verdict == Verdict::Chosen);
            let chosen: Vec<&str> = chosen.map(|c| &*c.route).collect();
            prop_assert_eq!(chosen, expected.as_deref().into_iter().collect::<Vec<_>>());
            for candidate in &told.candidates {
                if let Verdict::Failed(failed) = &candidate.verdict {
                    prop_assert!(!failed.is_empty(), "{:?}", candidate);
                }
            }
        }
    }
}
