use lockgate_plugin::def;
use lockgate_plugin::testing::{Answer, Request, build_error, run, run_def};
use serde_json::{Value, json};

use super::*;

const A: &str = "https://a.test";
const B: &str = "https://b.test:8443";

fn respond(request: Request, origin: Option<&str>) -> Answer {
    let request = match origin {
        Some(origin) => request.header("Origin", origin),
        None => request,
    };
    request
        .get("/")
        .expect_next()
        .respond(200, &[("Vary", "Accept")], &["x"])
}

/// What is allowed, and whether the answer says that it depends on the origin.
#[track_caller]
fn check(conf: Value, origin: Option<&str>, allowed: Option<&str>, vary: bool) {
    let answer = respond(run::<Cors>(conf.clone()), origin);
    let got = answer.header("access-control-allow-origin");
    assert_eq!(got.as_deref(), allowed, "{conf} {origin:?}");
    let expected: &[&str] = if vary {
        &["Accept", "Origin"]
    } else {
        &["Accept"]
    };
    assert_eq!(answer.headers("vary"), expected, "{conf} {origin:?}");
    // All or nothing.
    let methods = answer.header("access-control-allow-methods");
    assert_eq!(methods.is_some(), allowed.is_some(), "{conf} {origin:?}");
}

#[test]
fn origins() {
    check(json!({}), Some(A), Some("*"), false);
    check(json!({}), None, Some("*"), false);
    check(json!({"allow_origins": "**"}), Some(A), Some(A), true);
    check(json!({"allow_origins": "**"}), None, Some("*"), true);
    check(
        json!({"allow_origins": "null"}),
        Some("null"),
        Some("null"),
        true,
    );
    // A single origin is sent to everybody: a browser compares it itself.
    check(json!({"allow_origins": A}), Some(B), Some(A), true);
    check(json!({"allow_origins": A}), None, Some(A), true);
    let list = json!({ "allow_origins": format!("{A},{B}") });
    check(list.clone(), Some(A), Some(A), true);
    check(list.clone(), Some(B), Some(B), true);
    check(list.clone(), Some("https://c.test"), None, true);
    check(list.clone(), Some("https://a.test:443"), None, true);
    check(list.clone(), Some("HTTPS://A.TEST"), None, true);
    check(list, None, None, true);
    let regex = json!({"allow_origins_by_regex": ["^http:", "^https://[a-z]+\\.test$"]});
    check(regex.clone(), Some(A), Some(A), true);
    check(regex.clone(), Some("http://x"), Some("http://x"), true);
    check(regex.clone(), Some("https://a.test.evil"), None, true);
    check(regex.clone(), None, None, true);
    check(
        regex,
        Some(&format!("http://{}", "a".repeat(1024))),
        None,
        true,
    );
    // Expressions replace the list.
    let both = json!({"allow_origins": B, "allow_origins_by_regex": ["^http:"]});
    check(both, Some(B), None, true);
}

#[test]
fn lists_from_the_metadata() {
    let check = |conf: Value, origin: &str, allowed: Option<&str>| {
        let metadata =
            json!({"allow_origins": {"one": "https://one.test", "two": format!("{A},{B}")}});
        let def = def::<Cors>().metadata::<Metadata>();
        let answer = respond(run_def(def, conf.clone()).metadata(metadata), Some(origin));
        let got = answer.header("access-control-allow-origin");
        assert_eq!(got.as_deref(), allowed, "{conf} {origin}");
    };
    let conf = |own: &str| json!({"allow_origins": own, "allow_origins_by_metadata": ["none", "one", "two"]});
    check(conf("https://x.test"), B, Some(B));
    check(
        conf("https://x.test"),
        "https://one.test",
        Some("https://one.test"),
    );
    check(
        conf("https://x.test"),
        "https://c.test",
        Some("https://x.test"),
    );
    check(
        conf("https://x.test,https://y.test"),
        "https://c.test",
        None,
    );
    check(
        conf("https://x.test,https://y.test"),
        "https://y.test",
        Some("https://y.test"),
    );
    check(
        json!({"allow_origins": "https://x.test"}),
        B,
        Some("https://x.test"),
    );
}

#[test]
fn the_other_headers() {
    let check = |conf: Value, asked: Option<&str>, expected: [Option<&str>; 5]| {
        let request = run::<Cors>(conf.clone());
        let request = match asked {
            Some(names) => request.header("Access-Control-Request-Headers", names),
            None => request,
        };
        let answer = respond(request, Some(A));
        let names = [
            "allow-methods",
            "allow-headers",
            "max-age",
            "expose-headers",
            "allow-credentials",
        ];
        let got = names.map(|name| answer.header(&format!("access-control-{name}")));
        assert_eq!(got.each_ref().map(Option::as_deref), expected, "{conf}");
    };
    check(
        json!({}),
        None,
        [Some("*"), Some("*"), Some("5"), None, None],
    );
    let named = json!({
        "allow_origins": A, "allow_methods": "GET,PUT", "allow_headers": "X-A",
        "expose_headers": "X-B", "max_age": -1, "allow_credential": true,
    });
    check(
        named,
        Some("x-q"),
        [
            Some("GET,PUT"),
            Some("X-A"),
            Some("-1"),
            Some("X-B"),
            Some("true"),
        ],
    );
    let all = json!({"allow_origins": "**", "allow_methods": "**", "allow_headers": "**", "expose_headers": ""});
    let methods = Some("GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS,CONNECT,TRACE");
    check(
        all.clone(),
        Some("x-q, x-r"),
        [methods, Some("x-q, x-r"), Some("5"), None, None],
    );
    check(all, None, [methods, None, Some("5"), None, None]);
}

#[test]
fn headers_of_the_upstream_are_replaced_only_where_the_origin_is_allowed() {
    let check = |origin: &str, expected: &str| {
        let conf = json!({ "allow_origins": format!("{A},{B}") });
        let mut run = run::<Cors>(conf)
            .header("Origin", origin)
            .get("/")
            .expect_next();
        let answer = run.respond(200, &[("Access-Control-Allow-Origin", "theirs")], &[]);
        assert_eq!(answer.headers("access-control-allow-origin"), [expected]);
    };
    check(A, A);
    check("https://c.test", "theirs");
}

#[test]
fn timing() {
    let check = |conf: Value, origin: &str, expected: Option<&str>| {
        let answer = respond(run::<Cors>(conf.clone()), Some(origin));
        assert_eq!(
            answer.header("timing-allow-origin").as_deref(),
            expected,
            "{conf} {origin}"
        );
    };
    check(json!({}), A, None);
    check(json!({"timing_allow_origins": "*"}), A, Some("*"));
    check(
        json!({"timing_allow_origins": format!("{A},{B}")}),
        B,
        Some(B),
    );
    check(
        json!({"timing_allow_origins": format!("{A},{B}")}),
        "https://c.test",
        None,
    );
    check(
        json!({"timing_allow_origins_by_regex": ["\\.test$"]}),
        A,
        Some(A),
    );
    check(
        json!({"timing_allow_origins_by_regex": ["\\.test$"], "timing_allow_origins": "*"}),
        B,
        None,
    );
    // It has nothing to do with the other list.
    check(
        json!({"allow_origins": format!("{A},{A}"), "timing_allow_origins": B}),
        B,
        Some(B),
    );
}

#[test]
fn options_is_answered_with_the_headers() {
    let mut run = run::<Cors>(json!({}))
        .method("OPTIONS")
        .header("Origin", A)
        .get("/");
    assert_eq!(run.expect_reply(200).text(), "");
    let answer = run.finish();
    assert_eq!(
        answer.header("access-control-allow-origin").as_deref(),
        Some("*")
    );
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &[&str]| {
        let text = build_error::<Cors>(conf);
        assert_eq!(text.lines().count(), expected.len(), "{text}");
        for (line, start) in text.lines().zip(expected) {
            assert!(
                line.starts_with(start),
                "{line} does not start with {start}"
            );
        }
    };
    let star = "you can not set '*' for other option when 'allow_credential' is true";
    let at = |name: &str| format!("{name}: {star}");
    let all = [
        "allow_origins",
        "allow_methods",
        "allow_headers",
        "expose_headers",
        "timing_allow_origins",
    ];
    let all = all.map(at);
    check(
        json!({"allow_credential": true, "expose_headers": "*", "timing_allow_origins": "*"}),
        &all.each_ref().map(String::as_str),
    );
    check(
        json!({"allow_origins": "a.test"}),
        &["allow_origins: failed to match pattern"],
    );
    check(
        json!({"allow_origins": format!("{A}, {B}")}),
        &["allow_origins: failed to match pattern"],
    );
    check(
        json!({"timing_allow_origins": ""}),
        &["timing_allow_origins: failed to match pattern"],
    );
    check(
        json!({"allow_origins_by_regex": ["a", "("], "timing_allow_origins_by_regex": [")"]}),
        &[
            "allow_origins_by_regex[1]: not a regular",
            "timing_allow_origins_by_regex[0]: not a regular",
        ],
    );
    check(
        json!({"allow_origins_by_regex": []}),
        &["allow_origins_by_regex: expect array"],
    );
    check(
        json!({"allow_origins_by_metadata": [""]}),
        &["allow_origins_by_metadata[0]: string too short"],
    );
    check(
        json!({"max_age": "5"}),
        &["max_age: wrong type: expected integer, got string"],
    );
    check(
        json!({"allow_methods": "GET\r\nX: 1"}),
        &["allow_methods: a header value cannot"],
    );
}
