use std::io::Write;

use lockgate_plugin::testing::{Answer, build_error, run};
use serde_json::json;

use super::*;

#[track_caller]
fn respond(conf: Value, headers: &[(&str, &str)], chunks: &[&str]) -> Answer {
    let mut run = run::<ResponseRewrite>(conf).get("/p?a=1").expect_next();
    run.respond(200, headers, chunks)
}

#[test]
fn status_and_headers() {
    let answer = respond(
        json!({"status_code": 201, "headers": {"X-Old": "new", "X-Arg": "$arg_a", "X-N": 5}}),
        &[("X-Old", "old"), ("X-Old", "older"), ("ETag", "x")],
        &["body"],
    );
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers("x-old"), ["new"]);
    assert_eq!(answer.header("x-arg").as_deref(), Some("1"));
    assert_eq!(answer.header("x-n").as_deref(), Some("5"));
    assert_eq!(
        (answer.header("etag").as_deref(), answer.text().as_str()),
        (Some("x"), "body")
    );
    let edits = json!({"headers": {
        "add": ["X-Old: more", "Set-Cookie: a=1; Path=/", "Link:<https://a.test:8443/>"],
        "set": {"X-S": "$status-${arg_z ?? none}"},
        "remove": ["X-Gone", "X-Not-There"],
    }});
    let answer = respond(edits, &[("X-Old", "old"), ("X-Gone", "1")], &[]);
    assert_eq!(answer.headers("x-old"), ["old", "more"]);
    assert_eq!(answer.headers("set-cookie"), ["a=1; Path=/"]);
    assert_eq!(answer.headers("link"), ["<https://a.test:8443/>"]);
    assert_eq!(answer.headers("x-s"), ["200-none"]);
    assert_eq!(answer.header("x-gone"), None);
}

#[test]
fn headers_are_added_then_set_then_removed() {
    let check = |headers: Value, expected: &[&str]| {
        let answer = respond(json!({ "headers": headers }), &[("X", "0")], &[]);
        assert_eq!(answer.headers("x"), expected, "{headers}");
    };
    check(json!({"add": ["X: 1"]}), &["0", "1"]);
    check(json!({"add": ["X: 1"], "set": {"X": "2"}}), &["2"]);
    check(json!({"set": {"X": "2"}, "remove": ["x"]}), &[]);
    check(json!({"set": {"X": ""}}), &[""]);
}

#[test]
fn a_new_body() {
    let old = [
        ("ETag", "x"),
        ("Last-Modified", "x"),
        ("Content-Encoding", "gzip"),
    ];
    let answer = respond(
        json!({"body": "{\"ok\":true}"}),
        &old,
        &["up", "", "stream"],
    );
    assert_eq!(answer.text(), "{\"ok\":true}");
    for (name, _) in old {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!(
        respond(json!({"body": "x"}), &[("Content-Length", "4")], &[]).text(),
        "x"
    );
    assert_eq!(respond(json!({"body": ""}), &[], &["old"]).text(), "");
    for text in ["AGhp/w==", "AGhp/w"] {
        let conf = json!({"body": text, "body_base64": true});
        assert_eq!(
            respond(conf, &[], &["x"]).body(),
            &b"\0hi\xff"[..],
            "{text}"
        );
    }
}

#[test]
fn conditions() {
    let check = |vars: Value, expected: &str| {
        let conf = json!({"body": "new", "status_code": 202, "headers": {"X": 1}, "vars": vars});
        let answer = respond(conf, &[("ETag", "x")], &["old"]);
        let seen = (answer.status(), answer.header("x"), answer.header("etag"));
        match expected {
            "new" => assert_eq!(seen, (202, Some("1".into()), None)),
            _ => assert_eq!(seen, (200, None, Some("x".into()))),
        }
        assert_eq!(answer.text(), expected, "{vars}");
    };
    check(json!([["arg_a", "==", "1"]]), "new");
    check(json!([["arg_a", "==", "2"]]), "old");
    check(json!([["status", "==", 200]]), "new");
    check(json!([["status", ">=", 500]]), "old");
    check(json!([]), "new");
}

#[test]
fn filters_change_the_body() {
    let check = |filters: Value, expected: &str| {
        let conf = json!({ "filters": filters });
        let answer = respond(
            conf,
            &[("ETag", "x"), ("Content-Length", "17")],
            &["hello wor", "ld hello"],
        );
        assert_eq!(answer.text(), expected, "{filters}");
        assert_eq!(
            (answer.header("etag"), answer.header("content-length")),
            (None, None)
        );
    };
    check(
        json!([{"regex": "hello", "replace": "bye"}]),
        "bye world hello",
    );
    check(
        json!([{"regex": "hello", "scope": "global", "replace": "bye"}]),
        "bye world bye",
    );
    check(
        json!([{"regex": "hello", "scope": "once", "replace": ""}]),
        " world hello",
    );
    check(
        json!([{"regex": "HELLO", "replace": "x", "options": "i"}]),
        "x world hello",
    );
    check(
        json!([{"regex": "H E L L O", "replace": "x", "options": "ijox"}]),
        "x world hello",
    );
    check(
        json!([{"regex": "(w)(orld)", "replace": "$2${1}s$$"}]),
        "hello orldws$ hello",
    );
    check(
        json!([{"regex": "world", "replace": "a"}, {"regex": "hello a", "replace": "b"}]),
        "b hello",
    );
    check(
        json!([{"regex": "none", "replace": "a"}]),
        "hello world hello",
    );
}

#[test]
fn bytes_that_are_no_text_stay() {
    let check = |scope: &str, expected: &[u8]| {
        let conf = json!({"filters": [{"regex": "a+", "scope": scope, "replace": "b"}]});
        let mut run = run::<ResponseRewrite>(conf).get("/").expect_next();
        let answer = run.respond_bytes(200, &[], &[Bytes::from_static(b"\xff\xfeaa\xffa\x80")]);
        assert_eq!(answer.body(), expected, "{scope}");
    };
    check("once", b"\xff\xfeb\xffa\x80");
    check("global", b"\xff\xfeb\xffb\x80");
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Brotli without compression, for data of at most 64 KiB: a header that says 16 bits of window,
/// one uncompressed block, an empty last block.
fn brotli(data: &[u8]) -> Vec<u8> {
    // Bits, lowest first: 0 window 16; 0 not last; 00 four nibbles; length - 1; 1 uncompressed.
    let head = (data.len() as u32 - 1) << 4 | 1 << 20;
    let mut out = head.to_le_bytes()[..3].to_vec();
    out.extend_from_slice(data);
    out.push(0b11);
    out
}

fn compressed(encoding: &str, chunks: &[&[u8]], limit: u64) -> Answer {
    let conf = json!({
        "filters": [{"regex": "hello", "scope": "global", "replace": "bye"}],
        "max_resp_body_size": limit,
    });
    let chunks: Vec<Bytes> = chunks
        .iter()
        .map(|data| Bytes::copy_from_slice(data))
        .collect();
    let mut run = run::<ResponseRewrite>(conf).get("/").expect_next();
    run.respond_bytes(200, &[("Content-Encoding", encoding)], &chunks)
}

#[test]
fn filters_see_the_body_decompressed() {
    let check = |encoding: &str, body: &[u8]| {
        for at in [1, 5, body.len() - 1] {
            let answer = compressed(encoding, &[&body[..at], &body[at..]], 100);
            assert_eq!(
                answer.text(),
                "bye bye",
                "{encoding} {at}: {:?}",
                answer.errors()
            );
            assert_eq!(answer.header("content-encoding"), None);
        }
    };
    check("gzip", &gzip(b"hello hello"));
    check("X-GZIP", &gzip(b"hello hello"));
    check("deflate", &zlib(b"hello hello"));
    check("br", &brotli(b"hello hello"));
    check("identity", b"hello hello");
    check("gzip", &[gzip(b"hello "), gzip(b"hello")].concat());
    check("deflate", &[&zlib(b"hello hello")[..], b"rest"].concat());
}

#[test]
fn an_unknown_encoding_is_left_alone() {
    for encoding in ["zstd", "gzip, br"] {
        let answer = compressed(encoding, &[b"hello"], 100);
        assert_eq!(answer.text(), "hello");
        assert_eq!(answer.header("content-encoding").as_deref(), Some(encoding));
    }
}

#[test]
fn a_damaged_body_cuts_the_connection() {
    let check = |encoding: &str, body: &[u8]| {
        let answer = compressed(encoding, &[body, b""], 100);
        assert!(answer.is_cut(), "{encoding} {body:?}");
        assert!(answer.errors()[0].starts_with("the response body cannot be decompressed: "));
    };
    for (encoding, body) in [
        ("gzip", gzip(b"hello")),
        ("deflate", zlib(b"hello")),
        ("br", brotli(b"hello")),
    ] {
        check(encoding, &body[..body.len() - 1]);
        check(encoding, b"hello");
    }
    check("gzip", &[&gzip(b"hello")[..], b"rest"].concat());
}

#[test]
fn an_answer_without_a_body_is_not_damaged() {
    for encoding in ["gzip", "deflate", "br"] {
        let answer = compressed(encoding, &[], 100);
        assert!(!answer.is_cut() && answer.body().is_empty(), "{encoding}");
    }
}

#[test]
fn a_body_over_the_limit_is_sent_without_filters() {
    let conf = json!({"filters": [{"regex": "a", "replace": "b"}], "max_resp_body_size": 3});
    assert_eq!(
        respond(conf.clone(), &[], &["aa", "aa", "aa"]).text(),
        "aaaaaa"
    );
    assert_eq!(respond(conf.clone(), &[], &["aaaa"]).text(), "aaaa");
    assert_eq!(respond(conf, &[], &["aa", "a"]).text(), "baa");
    // Decompressed, as its head has said.
    for (encoding, body) in [
        ("gzip", gzip(b"hello hello")),
        ("deflate", zlib(b"hello hello")),
        ("br", brotli(b"hello hello")),
    ] {
        let (a, b) = body.split_at(body.len() - 3);
        let answer = compressed(encoding, &[a, b], 10);
        assert_eq!(
            answer.text(),
            "hello hello",
            "{encoding} {:?}",
            answer.errors()
        );
    }
}

#[test]
fn a_piece_cannot_grow_beyond_the_limit() {
    let bomb = gzip(&vec![b'a'; 5 << 20]);
    assert!(bomb.len() < 64 << 10);
    let answer = compressed("gzip", &[&bomb], 1000);
    assert!(answer.is_cut() && answer.errors()[0].ends_with("a piece grows too much"));
    assert!(answer.body().is_empty());
    assert_eq!(compressed("gzip", &[&bomb], 5 << 20).body().len(), 5 << 20);
}

#[test]
fn the_body_phase_is_only_there_when_needed() {
    let phases = |conf| run::<ResponseRewrite>(conf).build().phases();
    assert_eq!(phases(json!({"status_code": 201})), Phases::HEADER_FILTER);
    assert_eq!(phases(json!({"body": "x"})), ResponseRewrite::PHASES);
    let filters = json!({"filters": [{"regex": "a", "replace": "b"}]});
    assert_eq!(phases(filters), ResponseRewrite::PHASES);
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<ResponseRewrite>(conf);
        assert!(text.contains(expected), "{text}");
    };
    let filters = |filter: Value| json!({ "filters": [filter] });
    check(
        json!({"body": "x", "filters": [{"regex": "a", "replace": "b"}]}),
        "filters: only one of body and filters",
    );
    check(
        json!({"body": "!", "body_base64": true}),
        "body: invalid base64 content",
    );
    check(
        json!({"body": "", "body_base64": true}),
        "body: invalid base64 content",
    );
    check(json!({"body_base64": true}), "body: invalid base64 content");
    check(
        filters(json!({"regex": "(", "replace": "b"})),
        "filters[0].regex: regex \"(\" validation failed",
    );
    check(
        filters(json!({"regex": "a", "replace": "b", "options": "q"})),
        "filters[0].regex: regex \"a\" validation failed: unknown flag \"q\"",
    );
    check(
        filters(json!({"regex": "a", "replace": "b", "scope": "all"})),
        "filters[0].scope",
    );
    check(
        filters(json!({"regex": "", "replace": "b"})),
        "filters[0].regex: string too short",
    );
    check(
        filters(json!({"regex": "a"})),
        "filters[0]: property \"replace\" is required",
    );
    check(
        json!({"filters": []}),
        "filters: expect array to have at least 1 items",
    );
    check(
        json!({"status_code": 199}),
        "status_code: expected 199 to be at least 200",
    );
    check(
        json!({"status_code": 599}),
        "status_code: expected 599 to be at most 598",
    );
    check(
        json!({"max_resp_body_size": 0}),
        "max_resp_body_size: expected 0 to be at least 1",
    );
    check(
        json!({"headers": {"add": ["no colon"]}}),
        "headers.add[0]: expected `Name: value`",
    );
    check(
        json!({"headers": {"add": ["a b: c"]}}),
        "headers.add[0].a b: invalid field character",
    );
    check(
        json!({"headers": {"set": {"X": "\r\n"}}}),
        "headers.set.X: invalid value character",
    );
    check(
        json!({"headers": {"remove": ["a b"]}}),
        "headers.remove[0].a b: invalid field",
    );
    check(
        json!({"headers": {"a b": "1"}}),
        "headers.a b: invalid field character",
    );
    check(json!({"headers": {"set": {"X": []}}}), "headers.set.X: ");
    check(
        json!({"headers": {"set": "x"}}),
        "headers.set: wrong type: expected object",
    );
    check(json!({"headers": {"X": true}}), "headers.X: ");
    check(
        json!({"headers": {"remove": ["Y"], "X": "1"}}),
        "headers.X: a header beside `add`, `set` and `remove` belongs into `set`",
    );
    check(json!({"vars": [["a", "=", 1]]}), "vars[0]");
}
