use lockgate_plugin::testing::{build_error, run};
use serde_json::{Value, json};

use super::*;

fn made(conf: Value) -> String {
    let run = run::<RequestId>(conf).get("/").expect_next();
    run.upstream_header("x-request-id").unwrap()
}

#[test]
fn every_algorithm_has_its_form() {
    let check = |algorithm: &str, length: usize| {
        let (a, b) = (
            made(json!({ "algorithm": algorithm })),
            made(json!({ "algorithm": algorithm })),
        );
        assert_eq!((a.len(), b.len()), (length, length), "{algorithm}: {a} {b}");
        assert_ne!(a, b, "{algorithm}");
    };
    check("uuid", 36);
    check("uuidv7", 36);
    check("nanoid", 21);
    check("ksuid", 27);
    check("range_id", 16);
    let id =
        made(json!({"algorithm": "range_id", "range_id": {"length": 40, "char_set": "abcdef"}}));
    assert!(
        id.len() == 40 && id.bytes().all(|b| b"abcdef".contains(&b)),
        "{id}"
    );
}

#[test]
fn an_id_that_is_there_stays() {
    let mut run = run::<RequestId>(json!({}))
        .header("X-Request-Id", "mine")
        .get("/")
        .expect_next();
    assert_eq!(run.upstream_headers("x-request-id"), ["mine"]);
    assert_eq!(run.var("apisix_request_id").as_deref(), Some("mine"));
    assert_eq!(run.respond(200, &[], &[]).headers("x-request-id"), ["mine"]);
}

#[test]
fn the_response_carries_it_unless_it_has_one() {
    let mut first = run::<RequestId>(json!({"header_name": "X-Id"}))
        .get("/")
        .expect_next();
    let id = first.upstream_header("x-id").unwrap();
    assert_eq!(first.respond(200, &[], &[]).headers("x-id"), [id]);
    let mut second = run::<RequestId>(json!({})).get("/").expect_next();
    assert_eq!(
        second
            .respond(200, &[("X-Request-Id", "theirs")], &[])
            .headers("x-request-id"),
        ["theirs"]
    );
    let mut third = run::<RequestId>(json!({"include_in_response": false}))
        .get("/")
        .expect_next();
    assert_eq!(third.respond(200, &[], &[]).header("x-request-id"), None);
}

#[test]
fn an_empty_header_is_no_id() {
    let run = run::<RequestId>(json!({}))
        .header("X-Request-Id", "")
        .get("/")
        .expect_next();
    assert_eq!(run.upstream_header("x-request-id").unwrap().len(), 36);
}

#[test]
fn the_response_phase_is_only_there_when_needed() {
    let phases = |respond: bool| {
        let conf = json!({ "include_in_response": respond });
        run::<RequestId>(conf).build().phases()
    };
    assert_eq!(phases(true), RequestId::PHASES);
    assert_eq!(phases(false), Phases::REWRITE);
}

#[test]
fn two_instances_keep_their_own_ids() {
    let mut run = run::<RequestId>(json!({"header_name": "X-A"}))
        .get("/")
        .expect_next();
    let id = run.upstream_header("x-a").unwrap();
    // Another instance came later and made the id that the logs show.
    run.work_mut().request_id = Some("other".into());
    assert_eq!(run.respond(200, &[], &[]).headers("x-a"), [id]);
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<RequestId>(conf);
        assert!(text.contains(expected), "{text}");
    };
    check(json!({"algorithm": "dice"}), "algorithm: ");
    check(
        json!({"range_id": {"length": 5}}),
        "range_id.length: expected 5 to be at least 6",
    );
    check(
        json!({"range_id": {"char_set": "abc"}}),
        "range_id.char_set: string too short",
    );
    check(
        json!({"range_id": {"length": 257}}),
        "range_id.length: expected 257 to be at most 256",
    );
    check(
        json!({"range_id": {"char_set": "abc def"}}),
        "range_id.char_set: only visible ASCII",
    );
    check(
        json!({"header_name": "a b"}),
        "header_name: not a header name",
    );
    check(json!({"header_name": ""}), "header_name: string too short");
}
