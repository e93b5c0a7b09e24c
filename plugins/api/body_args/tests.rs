// Rows read better with values than with references to them.
#![allow(clippy::needless_pass_by_value)]

use std::time::{Instant, SystemTime};

use bytes::Bytes;

use super::*;
use crate::request::{Conn, Target, Timing};
use crate::testing::{Request, request};

const JSON: &[u8] = b"application/json; charset=utf-8";

#[track_caller]
fn check(path: &str, kind: &[u8], body: &str, expected: Option<VarValue<'_>>) {
    let parsed = path::parse(path).unwrap();
    assert_eq!(
        by_path(&parsed, kind, body.as_bytes()),
        expected,
        "{path} {body}"
    );
}

fn text(text: &str) -> Option<VarValue<'_>> {
    VarValue::text(text)
}

fn number(number: i64) -> Option<VarValue<'static>> {
    Some(VarValue::Number(number.into()))
}

fn list(items: &[&str]) -> Option<VarValue<'static>> {
    Some(VarValue::List(
        items.iter().map(|item| (*item).to_owned()).collect(),
    ))
}

#[test]
fn json_members() {
    let body = r#"{"model":"m","e":"\u0041\n","a":{"b":[{"t":"x"},{"t":"y"}],"n":5,"t":"z"},
        "f":false,"t":true,"z":null,"l":["p","q",7,{"no":1}],"x.y":"dot","d":1.5,"neg":-3}"#;
    check("model", JSON, body, text("m"));
    check("$.model", JSON, body, text("m"));
    check("e", JSON, body, text("A\n"));
    check("a.n", JSON, body, number(5));
    check("neg", JSON, body, number(-3));
    check("f", JSON, body, Some(VarValue::False));
    check("t", JSON, body, Some(VarValue::True));
    check("z", JSON, body, None);
    check("l", JSON, body, list(&["p", "q", "7"]));
    check("a", JSON, body, list(&[]));
    check("a.none", JSON, body, None);
    check("model.x", JSON, body, None);
    check("['x.y']", JSON, body, text("dot"));
    check("model", b"APPLICATION/JSON", body, text("m"));
    check(
        "d",
        JSON,
        body,
        Some(VarValue::Number(serde_json::Number::from_f64(1.5).unwrap())),
    );
}

#[test]
fn json_paths() {
    let body = r#"{"a":{"b":[{"t":"x"},{"t":"y"}],"n":5,"t":"z"},"m":[{"r":"u","c":[{"t":"i"}]}]}"#;
    check("a.b[*].t", JSON, body, list(&["x", "y"]));
    check("a.b[1].t", JSON, body, list(&["y"]));
    check("a.b[2].t", JSON, body, None);
    check("a..t", JSON, body, list(&["x", "y", "z"]));
    check("..t", JSON, body, list(&["x", "y", "z", "i"]));
    check("a.*", JSON, body, list(&["5", "z"]));
    check("m[0].c[*].t", JSON, body, list(&["i"]));
    check("m[*]..t", JSON, body, list(&["i"]));
    check("..c..t", JSON, body, list(&["i"]));
}

#[test]
fn hostile_json() {
    check("a", JSON, r#"{"a":1,"a":2}"#, number(2));
    check("a.b", JSON, r#"{"a":{"b":1},"a":{"c":2}}"#, None);
    check("a", JSON, r#"{"a":[1],"a":"x"}"#, text("x"));
    check("a", JSON, r#"{"a":1"#, None);
    check("a", JSON, r#"{"a":1}x"#, None);
    check("a", JSON, "", None);
    check("a", JSON, "[]", None);
    let deep = format!(
        "{{\"a\":1,\"b\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    check("..x", JSON, &deep, None);
    let many = format!("[{}1]", "1,".repeat(20_000));
    let parsed = path::parse("[*]").unwrap();
    let Some(VarValue::List(found)) = by_path(&parsed, JSON, many.as_bytes()) else {
        panic!()
    };
    assert_eq!(found.len(), 10_000);
}

#[test]
fn forms() {
    let form = b"application/x-www-form-urlencoded; charset=utf-8";
    check("a", form, "b=1&a=x%20y&a=2", text("x y"));
    check("a", form, "a&b", Some(VarValue::True));
    check("c", form, "a&b", None);
    check("a.b", form, "a=1", None);
    check("a", b"text/plain", "a=1", None);
}

#[test]
fn multipart_fields() {
    let kind = b"multipart/form-data; charset=x; boundary=\"X y\"";
    let body = "--X y\r\ncontent-disposition: form-data; filename=\"b\"; name=\"f\"\r\n\
        Content-Type: text/plain\r\n\r\nfile\r\n--X y\r\nContent-Disposition: form-data; name=a\r\n\
        \r\nv\r\nw\r\n--X y\r\nContent-Disposition: form-data; name=\"q\\\"u\"\r\n\r\n\r\n--X y--\r\n";
    check("f", kind, body, text("file"));
    check("a", kind, body, text("v\r\nw"));
    check("['q\"u']", kind, body, text(""));
    check("b", kind, body, None);
    check("a", kind, &format!("preamble\r\n{body}"), text("v\r\nw"));
    check("a", b"multipart/form-data; boundary=x y", body, None);
    check("a", b"multipart/form-data", body, None);
    check("a", b"multipart/form-data; boundary=", body, None);
    check(
        "a",
        kind,
        "--X y\r\nContent-Disposition: form-data; name=a\r\n\r\nunfinished",
        None,
    );
    check("a", kind, "--X y", None);
    check("a", kind, "", None);
    check("a", kind, "--X y\r\nno head\r\n--X y--", None);
}

#[test]
fn paths() {
    let check = |path: &str, ok: bool| assert_eq!(path::parse(path).is_some(), ok, "{path}");
    check("a.b", true);
    check("$..a", true);
    check("a[ 0 ]", true);
    for bad in ["", "$", "a..", "a[", "a[x]", "a.", "a[-1]", "['a]", "['a'"] {
        check(bad, false);
    }
    check(&["a"; 32].join("."), true);
    check(&["a"; 33].join("."), false);
}

#[test]
fn whole_requests() {
    let check = |name: &str, request: Request, target: &str, expected: Option<&str>| {
        assert_eq!(
            request.send(target).var(name).as_deref(),
            expected,
            "{name}"
        );
    };
    let form = || {
        let kind = "application/x-www-form-urlencoded";
        request()
            .method("POST")
            .header("Content-Type", kind)
            .body("a=1&b")
    };
    check("post_arg_a", form(), "/", Some("1"));
    check("post_arg_b", form(), "/", Some("true"));
    check("post_arg.a", form(), "/", Some("1"));
    check("request_body", form(), "/", Some("a=1&b"));
    check("request_body", request(), "/", None);
    let plain = || {
        request()
            .method("POST")
            .header("Content-Type", "text/plain")
    };
    check("post_arg_a", plain().body("a=1"), "/", None);

    let query = "mutation M { a b }";
    let json = format!("{{\"query\":\"{query}\",\"variables\":{{}}}}");
    let kind = "application/json";
    let graphql = || {
        request()
            .method("POST")
            .header("Content-Type", kind)
            .body(json.clone())
    };
    check("graphql_name", graphql(), "/", Some("M"));
    check("graphql_operation", graphql(), "/", Some("mutation"));
    check("graphql_root_fields", graphql(), "/", Some("a, b"));
    check("graphql_name", plain().body(query), "/", Some("M"));
    check(
        "graphql_name",
        request(),
        "/?query=query%20Q%7Bx%7D",
        Some("Q"),
    );
    check(
        "graphql_name",
        request().method("PUT").body(query),
        "/",
        None,
    );
}

#[test]
fn borrowed_where_possible() {
    let now = Timing {
        start: Instant::now(),
        wall: SystemTime::now(),
    };
    let mut work = Work::new(Conn::default(), Target::parse(b"/").unwrap(), now);
    work.body = Some(Bytes::from_static(b"{\"model\":\"m\"}"));
    let parsed = path::parse("model").unwrap();
    let value = by_path(&parsed, JSON, work.body.as_ref().unwrap());
    assert!(matches!(value, Some(VarValue::Str(Cow::Borrowed("m")))));
}

proptest::proptest! {
    #[test]
    fn any_body_is_survived(
        body in r#"[\\"\[\]{}:,.a-c0-1@()$# \r\n-]{0,60}"#,
        path in r"[ab.\[\]*0'$]{1,8}",
    ) {
        let kind = b"multipart/form-data; boundary=a";
        let _ = graphql::first_operation(&body);
        let framed = format!("--a\r\nContent-Disposition: {body}\r\n\r\n{body}\r\n--a{body}");
        let _ = multipart::field(framed.as_bytes(), kind, "a");
        let _ = multipart::field(body.as_bytes(), format!("x; {body}").as_bytes(), "a");
        if let Some(path) = path::parse(&path) {
            let _ = by_path(&path, JSON, body.as_bytes());
        }
    }

    /// The walker finds what a tree would show, last member first among equals.
    #[test]
    fn plain_paths_agree_with_a_tree(body in json_text(3)) {
        let tree: serde_json::Value = serde_json::from_str(&body).unwrap();
        for path in ["a", "a.b", "b.a", "a.a.b"] {
            let found = path.split('.').try_fold(&tree, |at, name| at.get(name));
            let expected = match found {
                None | Some(serde_json::Value::Null) => None,
                Some(serde_json::Value::Bool(true)) => Some(VarValue::True),
                Some(serde_json::Value::Number(n)) => Some(VarValue::Number(n.clone())),
                Some(serde_json::Value::Array(items)) => Some(VarValue::List(
                    items.iter().filter(|v| v.is_number() || v.is_boolean()).map(ToString::to_string).collect(),
                )),
                Some(_) => Some(VarValue::List(Vec::new())),
            };
            let parsed = path::parse(path).unwrap();
            proptest::prop_assert_eq!(by_path(&parsed, JSON, body.as_bytes()), expected, "{}", path);
        }
    }
}

/// JSON texts with few names, so that paths meet and members repeat.
fn json_text(depth: u32) -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just("1".to_owned()),
        Just("true".to_owned()),
        Just("null".to_owned())
    ];
    leaf.prop_recursive(depth, 24, 4, |inner| {
        let member =
            ("[ab]", inner.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..4)
                .prop_map(|items| format!("{{{}}}", items.join(","))),
        ]
    })
}
