use super::*;
use lockgate_plugin::testing::{Request, build_error, run_def};
use lockgate_plugin::{Consumer, PluginDef, Problems, def};
use serde_json::{Value, json};

const DEF: PluginDef = def::<KeyAuth>().credential::<Key>();

fn request(conf: Value) -> Request {
    let guest = Consumer {
        username: "guest".into(),
        ..Consumer::default()
    };
    run_def(DEF, conf)
        .known(guest)
        .consumer("ann", json!({"key": "k 1"}))
}

/// Who the caller is, the key header that goes upstream, and the target.
fn check(conf: Value, header: Option<&str>, target: &str, expected: (&str, Option<&str>, &str)) {
    let mut request = request(conf.clone());
    if let Some(value) = header {
        request = request.header("apikey", value);
    }
    let run = request
        .header("X-Consumer-Username", "forged")
        .get(target)
        .expect_next();
    assert_eq!(
        run.upstream_headers("x-consumer-username"),
        [expected.0],
        "{conf} {target}"
    );
    assert_eq!(
        run.upstream_header("apikey").as_deref(),
        expected.1,
        "{conf} {target}"
    );
    assert_eq!(run.upstream_target(), expected.2, "{conf} {target}");
}

#[test]
fn a_key_is_taken_from_the_header_or_the_query() {
    check(json!({}), Some("k 1"), "/", ("ann", Some("k 1"), "/"));
    check(
        json!({}),
        Some("k 1"),
        "/?apikey=bad",
        ("ann", Some("k 1"), "/?apikey=bad"),
    );
    check(
        json!({}),
        None,
        "/?a=1&apikey=k%201",
        ("ann", None, "/?a=1&apikey=k%201"),
    );
    check(
        json!({"query": "k"}),
        None,
        "/?k=k+1&k=2",
        ("ann", None, "/?k=k+1&k=2"),
    );
    let run = request(json!({"header": "X-Key"}))
        .header("x-key", "k 1")
        .get("/")
        .expect_next();
    assert_eq!(run.consumer(), Some("ann"));
}

#[test]
fn refusals() {
    let check = |request: Request, target: &str, message: &str| {
        let answer = request.get(target).expect_reply(401);
        assert_eq!(
            answer.text(),
            format!("{}\n", json!({ "message": message }))
        );
        assert_eq!(
            answer.headers("www-authenticate"),
            ["apikey realm=\"a realm\""]
        );
    };
    let conf = json!({"realm": "a realm"});
    check(
        request(conf.clone()),
        "/?APIKEY=k",
        "Missing API key in request",
    );
    check(
        request(conf.clone()),
        "/?apikey=nope",
        "Invalid API key in request",
    );
    check(
        request(conf.clone()),
        "/?apikey",
        "Invalid API key in request",
    );
    check(
        request(conf.clone()).header("apikey", "nope"),
        "/",
        "Invalid API key in request",
    );
    check(
        request(conf.clone()).header("apikey", b"k\xff"),
        "/",
        "Invalid API key in request",
    );
    // An empty header is a key, so the argument is not looked at.
    check(
        request(conf).header("apikey", ""),
        "/?apikey=k%201",
        "Invalid API key in request",
    );
    let nobody = json!({"realm": "a realm", "anonymous_consumer": "nobody"});
    check(request(nobody), "/", "Invalid user authorization");
}

#[test]
fn credentials_are_hidden() {
    let conf = json!({"hide_credentials": true});
    check(
        conf.clone(),
        Some("k 1"),
        "/p?apikey=x",
        ("ann", None, "/p?apikey=x"),
    );
    check(
        conf.clone(),
        None,
        "/p?a=1&apikey=k%201&b=%20",
        ("ann", None, "/p?a=1&b=%20"),
    );
    check(
        conf.clone(),
        None,
        "/p?apikey=k%201&apikey=2",
        ("ann", None, "/p"),
    );
    check(
        conf,
        None,
        "/a%20b?api%6bey=k+1&z",
        ("ann", None, "/a%20b?z"),
    );
}

#[test]
fn hidden_arguments_are_hidden_from_later_plugins_too() {
    let conf = json!({"hide_credentials": true});
    let run = request(conf).get("/p?apikey=k%201&b=2").expect_next();
    assert_eq!(run.var("args").as_deref(), Some("b=2"));
    assert_eq!(run.var("uri").as_deref(), Some("/p"));
}

#[test]
fn an_anonymous_consumer_stands_in() {
    let conf = json!({"anonymous_consumer": "guest"});
    check(
        conf.clone(),
        Some("bad"),
        "/?apikey=x",
        ("guest", Some("bad"), "/?apikey=x"),
    );
    check(conf.clone(), None, "/", ("guest", None, "/"));
    check(conf, Some("k 1"), "/", ("ann", Some("k 1"), "/"));
    let hide = json!({"anonymous_consumer": "guest", "hide_credentials": true});
    check(
        hide,
        Some("bad"),
        "/?apikey=x&a=1",
        ("guest", None, "/?a=1"),
    );
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<KeyAuth>(conf);
        assert!(text.contains(expected), "{text}");
    };
    check(
        json!({"header": 1}),
        "header: wrong type: expected string, got number",
    );
    check(
        json!({"header": "a b"}),
        "header: `a b` is not a header name",
    );
    check(json!({"realm": ""}), "realm: string too short");
    check(json!({"realm": "a\"b"}), "realm: failed to match pattern");
    check(
        json!({"anonymous_consumer": ""}),
        "anonymous_consumer: string too short",
    );
}

#[test]
fn credentials_that_are_refused() {
    let check = |value: Value, expected: &str| {
        let parsed = DEF.credential.unwrap().parse;
        let text = parsed(&value).err().as_ref().map(Problems::to_string);
        assert_eq!(text.as_deref(), Some(expected));
    };
    check(json!({}), "property \"key\" is required");
    check(
        json!({"key": 1}),
        "key: wrong type: expected string, got number",
    );
}
