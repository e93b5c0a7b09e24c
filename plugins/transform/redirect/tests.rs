use super::*;
use lockgate_plugin::testing::{Request, build_error, run};
use serde_json::{Value, json};
use std::sync::Arc;

fn check(request: Request, target: &str, expected: Option<(u16, &str)>) {
    let run = request.host("h.test:81").get(target);
    match expected {
        Some((status, location)) => {
            let answer = run.expect_reply(status);
            assert_eq!(answer.headers("location"), [location], "{target}");
            assert!(answer.is_stock());
        }
        None => {
            let _ = run.expect_next();
        }
    }
}

fn with(conf: Value) -> Request {
    run::<Redirect>(conf)
}

#[test]
fn addresses() {
    let to = |uri: &str, target: &str, expected: &str| {
        check(with(json!({ "uri": uri })), target, Some((302, expected)));
    };
    to("/new", "/old?a=1", "/new");
    to("$uri/test/add", "/hello", "/hello/test/add");
    to(
        "$uri/test/a${arg_name}c",
        "/hello?name=json",
        "/hello/test/ajsonc",
    );
    to("/foo$$uri", "/hello", "/foo$/hello");
    to(
        "\\$uri/foo$uri\\$uri/bar",
        "/hello",
        "\\$uri/foo/hello\\$uri/bar",
    );
    to("$uri/$bad_var/bar", "/hello", "/hello//bar");
    to(
        "https://$host$request_uri",
        "/a?b=%20",
        "https://h.test/a?b=%20",
    );
    to(
        "https://www.$host.example.com$uri.html",
        "/a",
        "https://www.h.test.example.com/a.html",
    );
    to("/a\\b\\\\${uri ?? x}5$", "/", "/ab${uri ?? x}5$");
    to("/é$uri", "/ü", "/é/ü");
}

#[test]
fn the_status_can_be_chosen() {
    check(
        with(json!({"uri": "/new", "ret_code": 301})),
        "/",
        Some((301, "/new")),
    );
}

#[test]
fn variables_cannot_start_a_line() {
    check(
        with(json!({"uri": "$uri"})),
        "/a%0d%0aEvil:1",
        Some((302, "/a%0D%0AEvil:1")),
    );
    let conf = json!({"regex_uri": ["(?s)(.*)", "$1"]});
    check(with(conf), "/a%0d%0ab", Some((302, "/a%0D%0Ab")));
    check(
        with(json!({"http_to_https": true})),
        "/a%0ab",
        Some((301, "https://h.test/a%0Ab")),
    );
}

#[test]
fn expressions() {
    let conf = json!({"regex_uri": ["^/test/(.*)$", "http://test.com/$1"]});
    check(
        with(conf.clone()),
        "/test/1",
        Some((302, "http://test.com/1")),
    );
    check(with(conf.clone()), "/hello", None);
    let mut encoded = conf;
    encoded["encode_uri"] = json!(true);
    check(
        with(encoded),
        "/test/with%20space",
        Some((302, "http://test.com/with%20space")),
    );
    let slow = with(json!({"regex_uri": ["^/(a|aa)+(?=$)(?<!x)b", "/"]}));
    let run = slow.get(&format!("/{}", "a".repeat(60)));
    assert!(run.expect_error().starts_with("cannot match the uri /aaa"));
}

#[test]
fn encoding() {
    let conf = json!({"uri": "$uri?q=a b", "encode_uri": true});
    check(
        with(conf),
        "/50%25%23%3fé",
        Some((302, "/50%25%23?é?q=a b")),
    );
    let conf = json!({"uri": "$uri", "encode_uri": true});
    check(with(conf), "/a%20b%25é<>", Some((302, "/a%20b%25%C3%A9<>")));
}

#[test]
fn the_query() {
    let conf = |uri: &str| json!({"uri": uri, "append_query_string": true});
    check(
        with(conf("$uri")),
        "/hello?name=json",
        Some((302, "/hello?name=json")),
    );
    check(
        with(conf("$uri?type=string")),
        "/hello?name=json",
        Some((302, "/hello?type=string&name=json")),
    );
    check(with(conf("/new")), "/hello", Some((302, "/new")));
    let conf = json!({"regex_uri": ["^/a", "/b"], "append_query_string": true});
    check(with(conf), "/a?x=%20", Some((302, "/b?x=%20")));
}

#[test]
fn to_https() {
    let conf = json!({"http_to_https": true, "ret_code": 307});
    let https = || with(conf.clone());
    check(https(), "/a?b", Some((301, "https://h.test/a?b")));
    check(
        https().method("HEAD"),
        "/a",
        Some((301, "https://h.test/a")),
    );
    check(
        https().method("POST"),
        "/a",
        Some((308, "https://h.test/a")),
    );
    check(https().tls("h.test"), "/a", None);
    check(
        https().attr(json!({"https_port": 8443})),
        "/a",
        Some((301, "https://h.test:8443/a")),
    );
    check(
        https().attr(json!({"https_port": 443})),
        "/a",
        Some((301, "https://h.test/a")),
    );
    let ports = Arc::new(TlsPorts(vec![9443, 6443]));
    check(
        https().shared(Arc::clone(&ports)),
        "/a",
        Some((301, "https://h.test:9443/a")),
    );
    let both = https().shared(ports).attr(json!({"https_port": 8443}));
    check(both, "/a", Some((301, "https://h.test:8443/a")));
    check(with(json!({"http_to_https": false})), "/a", None);
}

#[test]
fn only_a_trusted_peer_names_the_scheme() {
    let https =
        |proto: &str| with(json!({"http_to_https": true})).header("X-Forwarded-Proto", proto);
    check(https("https"), "/a", Some((301, "https://h.test/a")));
    check(https("https").work(|work| work.trusted = true), "/a", None);
    check(
        https("http").work(|work| work.trusted = true).tls("h.test"),
        "/a",
        Some((301, "https://h.test/a")),
    );
    check(https("http").tls("h.test"), "/a", None);
    let set_by_a_plugin = https("http").work(|work| {
        work.request
            .headers
            .set(&HeaderKey::constant("X-Forwarded-Proto"), "https".into());
    });
    check(set_by_a_plugin, "/a", None);
}

#[test]
fn the_phase_is_only_there_when_needed() {
    assert_eq!(
        with(json!({"http_to_https": false})).build().phases(),
        Phases::NONE
    );
    assert_eq!(with(json!({"uri": "/a"})).build().phases(), Phases::REWRITE);
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<Redirect>(conf);
        assert!(text.contains(expected), "{text}");
    };
    check(
        json!({}),
        "value should match only one schema, but matches none",
    );
    check(
        json!({"uri": "/a", "http_to_https": true}),
        "only one schema, but matches both schemas 1 and 3",
    );
    check(
        json!({"regex_uri": ["a", "b"], "http_to_https": false}),
        "matches both schemas 2 and 3",
    );
    check(
        json!({"http_to_https": true, "append_query_string": true}),
        "only one of `http_to_https` and `append_query_string` can be configured.",
    );
    check(
        json!({"regex_uri": ["(", "x"]}),
        "regex_uri: invalid regex_uri ((, x), err:",
    );
    check(
        json!({"regex_uri": ["a", "$x"]}),
        "invalid capturing variable name found",
    );
    check(json!({"regex_uri": ["a"]}), "at least 2 items");
    check(json!({"regex_uri": ["a", "b", "c"]}), "at most 2 items");
    check(json!({"uri": "/"}), "uri: string too short");
    check(json!({"uri": "/a", "ret_code": 100}), "at least 200");
    for port in [json!(0), json!(70_000), json!("8443")] {
        let text = with(json!({"http_to_https": true}))
            .attr(json!({ "https_port": port }))
            .build_error();
        assert!(
            text.contains("plugin_attr.redirect.https_port: expected a port"),
            "{text}"
        );
    }
}
