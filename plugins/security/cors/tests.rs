use lockgate_plugin::def;
use lockgate_plugin::testing::{Request, build_error, run, run_def};
use serde_json::{Value, json};

use super::*;

/// The CORS headers of a response to a request with this origin.
fn headers(request: Request, origin: Option<&str>, names: &[&str]) -> Vec<Option<String>> {
    let request = match origin {
        Some(origin) => request.header("Origin", origin),
        None => request,
    };
    let mut run = request.get("/").expect_next();
    let answer = run.respond(200, &[], &["x"]);
    names.iter().map(|name| answer.header(name)).collect()
}

fn origin(conf: Value, sent: Option<&str>, expected: Option<&str>) {
    let got = headers(
        run::<Cors>(conf.clone()),
        sent,
        &["access-control-allow-origin"],
    );
    assert_eq!(got, [expected.map(str::to_owned)], "{conf} {sent:?}");
}

#[test]
fn origins() {
    let (a, b) = ("https://a.test", "https://b.test");
    origin(json!({}), Some(a), Some("*"));
    origin(json!({}), None, Some("*"));
    origin(json!({"allow_origins": "**"}), Some(a), Some(a));
    origin(json!({"allow_origins": a}), Some(b), Some(a));
    origin(
        json!({"allow_origins": "https://a.test,https://b.test"}),
        Some(b),
        Some(b),
    );
    origin(
        json!({"allow_origins": "https://a.test,https://b.test"}),
        Some("https://c.test"),
        None,
    );
    origin(
        json!({"allow_origins_by_regex": ["^https://[a-z]+\\.test$"]}),
        Some(b),
        Some(b),
    );
    origin(
        json!({"allow_origins_by_regex": ["^https://[a-z]+\\.test$"]}),
        Some("https://a.test.evil"),
        None,
    );
}

#[test]
fn the_other_headers() {
    let names = [
        "access-control-allow-methods",
        "access-control-allow-headers",
        "access-control-max-age",
        "access-control-expose-headers",
        "access-control-allow-credentials",
        "vary",
    ];
    let conf = json!({"allow_origins": "https://a.test,https://b.test", "allow_methods": "GET", "allow_headers": "X-A",
        "expose_headers": "X-B", "max_age": 60, "allow_credential": true});
    let got = headers(run::<Cors>(conf), Some("https://a.test"), &names);
    let expected = ["GET", "X-A", "60", "X-B", "true", "Origin"].map(|text| Some(text.to_owned()));
    assert_eq!(got, expected);
    let all = json!({"allow_origins": "**", "allow_methods": "**", "allow_headers": "**"});
    let request = run::<Cors>(all).header("Access-Control-Request-Headers", "x-q");
    let got = headers(request, Some("https://a.test"), &names[..2]);
    assert_eq!(
        got[0].as_deref(),
        Some("GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS,CONNECT,TRACE")
    );
    assert_eq!(got[1].as_deref(), Some("x-q"));
}

#[test]
fn options_is_answered() {
    let run = run::<Cors>(json!({}))
        .method("OPTIONS")
        .header("Origin", "https://a.test")
        .get("/");
    assert_eq!(run.expect_reply(200).text(), "");
}

#[test]
fn lists_from_the_metadata() {
    let request = run_def(
        def::<Cors>().metadata::<Metadata>(),
        json!({"allow_origins": "https://x.test", "allow_origins_by_metadata": ["k"]}),
    )
    .metadata(json!({"allow_origins": {"k": "https://a.test,https://b.test"}}));
    let got = headers(
        request,
        Some("https://b.test"),
        &["access-control-allow-origin"],
    );
    assert!(
        matches!(got[0].as_deref(), Some("https://b.test" | "https://x.test")),
        "{got:?}"
    );
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<Cors>(conf);
        assert!(text.contains(expected), "{text}");
    };
    check(json!({"allow_credential": true}), "you can not set '*'");
    check(
        json!({"allow_origins": "a.test"}),
        "allow_origins: failed to match pattern",
    );
    check(
        json!({"allow_origins_by_regex": ["("]}),
        "allow_origins_by_regex",
    );
    check(
        json!({"max_age": "5"}),
        "max_age: wrong type: expected integer, got string",
    );
}
