use std::io::Write;

use lockgate_plugin::testing::{Answer, build_error, run};
use serde_json::json;

use super::*;

fn respond(conf: Value, headers: &[(&str, &str)], chunks: &[&str]) -> Answer {
    let mut run = run::<ResponseRewrite>(conf).get("/p?a=1").expect_next();
    run.respond(200, headers, chunks)
}

#[test]
fn status_and_headers() {
    let answer = respond(
        json!({"status_code": 201, "headers": {"X-Old": "new", "X-Arg": "$arg_a", "X-N": 5}}),
        &[("X-Old", "old")],
        &["body"],
    );
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers("x-old"), ["new"]);
    assert_eq!(answer.header("x-arg").as_deref(), Some("1"));
    assert_eq!(answer.text(), "body");
    let answer = respond(
        json!({"headers": {"add": ["X-Old: more", "Set-Cookie: a=1"], "set": {"X-S": "1"}, "remove": ["X-Gone"]}}),
        &[("X-Old", "old"), ("X-Gone", "1")],
        &[],
    );
    assert_eq!(answer.headers("x-old"), ["old", "more"]);
    assert_eq!((answer.header("x-s").as_deref(), answer.header("x-gone")), (Some("1"), None));
}

#[test]
fn a_new_body() {
    let answer = respond(
        json!({"body": "{\"ok\":true}"}),
        &[("Content-Length", "8"), ("ETag", "x"), ("Content-Encoding", "gzip")],
        &["upstream"[..4].as_ref(), "ream"],
    );
    assert_eq!(answer.text(), "{\"ok\":true}");
    assert_eq!((answer.header("etag"), answer.header("content-encoding")), (None, None));
    assert_eq!(respond(json!({"body": "aGk=", "body_base64": true}), &[], &["x"]).text(), "hi");
}

#[test]
fn conditions() {
    let conf = |expected: &str| json!({"body": "new", "vars": [["arg_a", "==", expected]]});
    assert_eq!(respond(conf("1"), &[], &["old"]).text(), "new");
    assert_eq!(respond(conf("2"), &[], &["old"]).text(), "old");
    let by_status = json!({"body": "new", "vars": [["status", "==", 200]]});
    assert_eq!(respond(by_status, &[], &["old"]).text(), "new");
}

fn filtered(filters: Value, expected: &str) {
    let answer = respond(json!({ "filters": filters }), &[], &["hello wor", "ld hello"]);
    assert_eq!(answer.text(), expected, "{filters}");
}

#[test]
fn filters() {
    filtered(json!([{"regex": "hello", "replace": "bye"}]), "bye world hello");
    filtered(json!([{"regex": "hello", "scope": "global", "replace": "bye"}]), "bye world bye");
    filtered(json!([{"regex": "HELLO", "replace": "x", "options": "i"}]), "x world hello");
    filtered(json!([{"regex": "(w)(orld)", "replace": "$2$1"}]), "hello orldw hello");
    filtered(json!([{"regex": "world", "replace": "a"}, {"regex": "hello a", "replace": "b"}]), "b hello");
    filtered(json!([{"regex": "none", "replace": "a"}]), "hello world hello");
}

#[test]
fn filters_see_the_uncompressed_body() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"hello").unwrap();
    let body = gzip.finish().unwrap();
    let conf = json!({"filters": [{"regex": "hello", "replace": "bye"}]});
    let mut run = run::<ResponseRewrite>(conf).get("/").expect_next();
    let answer = run.respond_bytes(200, &[("Content-Encoding", "gzip")], &[Bytes::from(body)]);
    assert_eq!((answer.text().as_str(), answer.header("content-encoding")), ("bye", None));
}

#[test]
fn a_body_over_the_limit_passes_unchanged() {
    let conf = json!({"filters": [{"regex": "a", "replace": "b"}], "max_resp_body_size": 3});
    assert_eq!(respond(conf, &[], &["aa", "aa", "aa"]).text(), "aaaaaa");
}

#[test]
fn the_body_phase_is_only_there_when_needed() {
    let phases = |conf| run::<ResponseRewrite>(conf).build().phases();
    assert_eq!(phases(json!({"status_code": 201})), Phases::HEADER_FILTER);
    assert_eq!(phases(json!({"body": "x"})), ResponseRewrite::PHASES);
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<ResponseRewrite>(conf);
        assert!(text.contains(expected), "{text}");
    };
    check(json!({"body": "x", "filters": [{"regex": "a", "replace": "b"}]}), "only one of body and filters");
    check(json!({"body": "!", "body_base64": true}), "invalid base64 content");
    check(json!({"filters": [{"regex": "(", "replace": "b"}]}), "filters[0].regex: regex \"(\" validation failed");
    check(json!({"status_code": 100}), "status_code: expected 100 to be at least 200");
    check(json!({"headers": {"add": ["no colon"]}}), "headers.add[0]: expected `Name: value`");
    check(json!({"vars": [["a", "=", 1]]}), "vars[0]");
}
