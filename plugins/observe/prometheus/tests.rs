use std::time::Instant;

use lockgate_plugin::def;
use lockgate_plugin::request::{Attempt, Consumer, ConsumerCredential, Picked};
use lockgate_plugin::testing::{Instance, Request, run_def};
use lockgate_plugin::{RouteInfo, Work};
use serde_json::{Value, json};

use super::*;

fn plugin(metrics: &Arc<Metrics>, conf: Value) -> Request {
    let def = def::<Prometheus>().metadata::<Metadata>();
    run_def(def, conf).shared(Arc::clone(metrics))
}

/// What a proxied request of a consumer leaves behind.
fn proxied(route: &Arc<RouteInfo>, node: &str) -> impl FnOnce(&mut Work) + 'static {
    let (route, addr) = (Arc::clone(route), node.parse().unwrap());
    move |work| {
        work.matched_uri = Some("/orders/*".into());
        work.matched_host = Some("*.shop.test".into());
        work.consumer = Some(Arc::new(ConsumerCredential {
            consumer: Arc::new(Consumer {
                username: "ann".into(),
                ..Consumer::default()
            }),
            credential_id: None,
            conf: Arc::new(()),
            version: 1,
        }));
        work.picked = Some(Picked {
            addr,
            host: "node".into(),
        });
        work.route = Some(route);
        work.received_body = 7;
        work.attempts.push(Attempt {
            addr,
            status: 200,
            connect: None,
            header: None,
            response: Some(Duration::from_millis(15)),
            started: work.timing.start,
        });
    }
}

fn orders() -> Arc<RouteInfo> {
    Arc::new(RouteInfo {
        id: "r1".into(),
        name: Some("orders".into()),
        service_id: Some("s1".into()),
        ..RouteInfo::default()
    })
}

fn send(instance: &Instance, node: &str) {
    let route = orders();
    let mut run = instance
        .request()
        .work(proxied(&route, node))
        .get("/orders/1")
        .expect_next();
    run.respond(200, &[], &["hello"]);
}

fn text_at(metrics: &Metrics, at: Instant) -> String {
    let now = Now {
        active: 3,
        accepted: 9,
        handled: 8,
        writing: 1,
        requests: 7,
    };
    String::from_utf8(metrics.render_at(now, at)).unwrap()
}

fn text(metrics: &Metrics) -> String {
    text_at(metrics, Instant::now())
}

/// The line is there, with these labels in any order.
#[track_caller]
fn check(text: &str, name: &str, labels: &[&str], value: &str) {
    let found = text.lines().any(|line| {
        line.starts_with(name) && line.ends_with(value) && labels.iter().all(|l| line.contains(l))
    });
    assert!(found, "{name} {labels:?} {value} in\n{text}");
}

#[test]
fn a_request_is_counted_in_every_metric() {
    let metrics = Arc::new(Metrics::new(&Options {
        hostname: "h".into(),
        version: "1".into(),
        ..Options::default()
    }));
    let instance = plugin(&metrics, json!({})).build();
    send(&instance, "10.0.0.1:80");
    send(&instance, "10.0.0.1:80");
    let text = text(&metrics);
    let common = [
        "route=\"r1\"",
        "service=\"s1\"",
        "consumer=\"ann\"",
        "node=\"10.0.0.1\"",
    ];
    let status = [
        "code=\"200\"",
        "matched_uri=\"/orders/*\"",
        "matched_host=\"*.shop.test\"",
        "request_type=\"traditional_http\"",
        "response_source=\"upstream\"",
        "llm_model=\"\"",
    ];
    check(
        &text,
        "apisix_http_status{",
        &[&common[..], &status].concat(),
        " 2",
    );
    let with = |label| [&common[..], &[label]].concat();
    check(&text, "apisix_bandwidth{", &with("type=\"ingress\""), " 14");
    check(&text, "apisix_bandwidth{", &with("type=\"egress\""), " 10");
    check(
        &text,
        "apisix_http_latency_count{",
        &with("type=\"request\""),
        " 2",
    );
    check(
        &text,
        "apisix_http_latency_count{",
        &with("type=\"apisix\""),
        " 2",
    );
    check(
        &text,
        "apisix_http_latency_sum{",
        &with("type=\"upstream\""),
        " 30",
    );
    check(
        &text,
        "apisix_http_latency_bucket{",
        &["type=\"upstream\"", "le=\"10\""],
        " 0",
    );
    check(
        &text,
        "apisix_http_latency_bucket{",
        &["type=\"upstream\"", "le=\"20\""],
        " 2",
    );
    check(
        &text,
        "apisix_nginx_http_current_connections{",
        &["state=\"waiting\""],
        " 2",
    );
    check(
        &text,
        "apisix_nginx_http_current_connections{",
        &["state=\"handled\""],
        " 8",
    );
    check(&text, "apisix_http_requests_total", &[], " 7");
    check(
        &text,
        "apisix_node_info{",
        &["hostname=\"h\"", "version=\"1\""],
        " 1",
    );
    check(&text, "apisix_nginx_metric_errors_total", &[], " 0");
}

#[test]
fn what_the_gateway_answers_has_no_upstream_latency() {
    let metrics = Arc::new(Metrics::new(&Options::default()));
    let mut run = plugin(&metrics, json!({})).get("/").expect_next();
    run.work_mut().route = None;
    run.respond(404, &[], &[]);
    let text = text(&metrics);
    let labels = [
        "code=\"404\"",
        "route=\"\"",
        "service=\"\"",
        "consumer=\"\"",
        "node=\"\"",
    ];
    check(&text, "apisix_http_status{", &labels, " 1");
    check(
        &text,
        "apisix_http_latency_count{",
        &["type=\"upstream\""],
        " 0",
    );
}

#[test]
fn names_where_there_are_some() {
    let check_labels = |route: RouteInfo, labels: &[&str]| {
        let metrics = Arc::new(Metrics::new(&Options::default()));
        let request = plugin(&metrics, json!({ "prefer_name": true })).route(route);
        request.get("/").expect_next().respond(200, &[], &[]);
        check(&text(&metrics), "apisix_http_status{", labels, " 1");
    };
    let named = RouteInfo {
        service_name: Some("shop".into()),
        ..RouteInfo::clone(&orders())
    };
    check_labels(named, &["route=\"orders\"", "service=\"shop\""]);
    let unnamed = RouteInfo {
        name: None,
        ..RouteInfo::clone(&orders())
    };
    check_labels(unnamed, &["route=\"r1\"", "service=\"s1\""]);
}

#[test]
fn labels_can_be_disabled_and_the_prefix_changed() {
    let options = Options {
        prefix: "gw_".into(),
        ..Options::default()
    };
    let metrics = Arc::new(Metrics::new(&options));
    let metadata = json!({ "disabled_labels": { "http_status": ["route", "node"] } });
    let instance = plugin(&metrics, json!({})).metadata(metadata).build();
    send(&instance, "10.0.0.1:80");
    send(&instance, "10.0.0.2:80");
    let text = text(&metrics);
    check(
        &text,
        "gw_http_status{",
        &["code=\"200\"", "route=\"\"", "node=\"\""],
        " 2",
    );
    check(
        &text,
        "gw_bandwidth{",
        &["type=\"egress\"", "node=\"10.0.0.2\""],
        " 5",
    );
    let mut out = Problems::default();
    let metadata = json!({ "disabled_labels": { "http_status": ["code"], "bandwidth": ["x"] } });
    (def::<Prometheus>()
        .metadata::<Metadata>()
        .metadata
        .unwrap()
        .1)(&metadata, &mut out);
    assert_eq!(out.len(), 2, "{out}");
}

#[test]
fn extra_labels_tell_more() {
    let mut out = Problems::default();
    let attr = json!({ "http_status": { "extra_labels": [
        { "zone": "eu" }, { "peer": "$upstream_addr" }, { "verb": "$request_method" },
        { "up": "$upstream_status" }, { "name": "$route_name" }, { "proto": "$scheme" },
    ] } });
    let families = Families::read(&attr, &mut out);
    assert!(out.is_empty(), "{out}");
    let metrics = Arc::new(Metrics::with(&Options::default(), &families));
    let instance = plugin(&metrics, json!({})).build();
    send(&instance, "10.0.0.1:80");
    send(&instance, "10.0.0.1:81");
    let route = orders();
    let request = instance
        .request()
        .method("BREW")
        .work(proxied(&route, "10.0.0.1:80"));
    request.get("/").expect_next().respond(200, &[], &[]);
    let text = text(&metrics);
    let fixed = [
        "zone=\"eu\"",
        "up=\"200\"",
        "name=\"orders\"",
        "proto=\"http\"",
    ];
    let status = |labels: &[&str]| {
        check(
            &text,
            "apisix_http_status{",
            &[&fixed[..], labels].concat(),
            " 1",
        );
    };
    status(&["peer=\"10.0.0.1:80\"", "verb=\"GET\""]);
    status(&["peer=\"10.0.0.1:81\"", "verb=\"GET\""]);
    status(&["peer=\"10.0.0.1:80\"", "verb=\"OTHER\""]);
}

#[test]
fn a_series_out_of_use_goes_and_comes_back() {
    let mut families = Families::default();
    families.status.expire = Some(Duration::from_secs(60));
    let metrics = Arc::new(Metrics::with(&Options::default(), &families));
    let instance = plugin(&metrics, json!({})).build();
    let count = |seconds: u64| {
        let text = text_at(&metrics, instance.now() + Duration::from_secs(seconds));
        let line = text
            .lines()
            .find(|line| line.starts_with("apisix_http_status{"));
        line.map(|line| line.rsplit(' ').next().unwrap().to_owned())
    };
    send(&instance, "10.0.0.1:80");
    assert_eq!(count(0).as_deref(), Some("1"));
    assert_eq!(count(59).as_deref(), Some("1"));
    send(&instance, "10.0.0.1:80");
    assert_eq!(count(100).as_deref(), Some("2"));
    assert_eq!(count(159).as_deref(), Some("2"));
    assert_eq!(count(160), None);
    send(&instance, "10.0.0.1:80");
    assert_eq!(count(161).as_deref(), Some("1"));
    // The others never expire.
    let text = text_at(&metrics, instance.now() + Duration::from_secs(1000));
    check(&text, "apisix_bandwidth{", &["type=\"egress\""], " 15");
}

#[test]
fn a_full_metric_counts_no_new_label_sets() {
    let families = Families {
        max_series: 2,
        ..Families::default()
    };
    let metrics = Arc::new(Metrics::with(&Options::default(), &families));
    let instance = plugin(&metrics, json!({})).build();
    for node in [
        "10.0.0.1:80",
        "10.0.0.2:80",
        "10.0.0.3:80",
        "10.0.0.3:80",
        "10.0.0.1:80",
    ] {
        send(&instance, node);
    }
    let text = text(&metrics);
    check(&text, "apisix_http_status{", &["node=\"10.0.0.1\""], " 2");
    assert!(!text.contains("10.0.0.3"), "{text}");
    check(&text, "apisix_nginx_metric_errors_total", &[], " 2");
}

#[test]
fn an_instance_remembers_a_bounded_number_of_series() {
    let metrics = Arc::new(Metrics::new(&Options::default()));
    let cache = Cache::default();
    let request = plugin(&metrics, json!({})).get("/");
    let facts = Facts::of(request.work(), 200, "GET", false);
    let labels = Labels {
        work: request.work(),
        facts,
        prefer_name: false,
    };
    let disabled = DisabledLabels::default();
    for generation in 0..20_000 {
        // The same combination in a new generation replaces the old one.
        let make = || metrics.handles(&labels, &disabled, Instant::now());
        cache.count((request.work(), facts, generation), make, |_| {});
    }
    assert_eq!(cache.len(), 1);
    for ip in 0..20_000u32 {
        let node = Some(std::net::SocketAddr::new(
            std::net::Ipv4Addr::from(ip).into(),
            0,
        ));
        let make = || metrics.handles(&labels, &disabled, Instant::now());
        cache.count((request.work(), Facts { node, ..facts }, 0), make, |_| {});
    }
    assert!((1000..=8192).contains(&cache.len()), "{}", cache.len());
}

#[test]
fn health_is_what_was_said_last() {
    let metrics = Metrics::new(&Options::default());
    metrics.set_upstreams([("u1", "10.0.0.1", 80, true), ("u1", "10.0.0.2", 80, false)]);
    let before = text(&metrics);
    check(
        &before,
        "apisix_upstream_status{",
        &["ip=\"10.0.0.2\"", "port=\"80\""],
        " 0",
    );
    metrics.set_upstreams([("u1", "10.0.0.1", 80, true)]);
    let after = text(&metrics);
    check(
        &after,
        "apisix_upstream_status{",
        &["name=\"u1\"", "ip=\"10.0.0.1\""],
        " 1",
    );
    assert!(!after.contains("10.0.0.2"));
}

#[test]
fn what_prometheus_refuses_is_replaced() {
    for options in [
        Options {
            buckets: vec![5.0, 1.0],
            ..Options::default()
        },
        Options {
            prefix: "0-".into(),
            ..Options::default()
        },
    ] {
        check(
            &text(&Metrics::new(&options)),
            "apisix_http_requests_total",
            &[],
            " 7",
        );
    }
}

#[test]
fn without_metrics_the_plugin_does_nothing() {
    let instance = run_def(def::<Prometheus>(), json!({})).build();
    assert_eq!(instance.phases(), Phases::NONE);
}
