use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::names::{FIXED, Known, NIL, ORIGINAL};
use super::*;
use crate::request::{Attempt, Consumer, ConsumerCredential, Picked, RouteInfo};
use crate::testing::{Request, Run, request};

#[test]
fn numbers_as_lua_reads_them() {
    let check = |text: &str, expected: Option<f64>| assert_eq!(number(text), expected, "{text:?}");
    check("5", Some(5.0));
    check("+5", Some(5.0));
    check(" -1.5e2\t\n", Some(-150.0));
    check(".5", Some(0.5));
    check("5.", Some(5.0));
    check("1e-2", Some(0.01));
    check("0x1F", Some(31.0));
    check("-0X10", Some(-16.0));
    check("0x1ffffffffffffffff", Some(36_893_488_147_419_103_231.0));
    check("007", Some(7.0));
    for bad in [
        "", " ", "5x", "inf", "nan", "-nan", "1 2", "0x", "0x+1", "--5", "1e", ".", "e5",
    ] {
        check(bad, None);
    }
    check("\u{a0}5", None);
}

#[test]
fn names() {
    let check = |name: &str, known: bool, body: bool, response: bool| {
        let var = Var::parse(name);
        assert_eq!(
            (var.is_known(), var.needs_body(), var.needs_response()),
            (known, body, response),
            "{name}"
        );
        assert_eq!(var.name(), name);
    };
    check("uri", true, false, false);
    check("http_x_forwarded_for", true, false, false);
    check("arg_any thing", true, false, false);
    check("post_arg.a.b", true, true, false);
    check("post_arg_a", true, true, false);
    check("post_arg.", false, false, false);
    check("graphql_name", true, true, false);
    check("request_body", true, true, false);
    check("sent_http_x", true, false, true);
    check("upstream_http_x", true, false, true);
    check("upstream_trailer_x", true, false, false);
    check("status", true, false, true);
    for bad in ["no_such_variable", "", "http_", "arg_", "http_a b", "URI"] {
        check(bad, false, false, false);
    }
    for name in Known::NAMES.iter().chain(NIL) {
        assert!(Var::parse(name).is_known(), "{name}");
    }
    for (name, _) in FIXED.iter().chain(ORIGINAL) {
        assert!(Var::parse(name).is_known(), "{name}");
    }
}

#[track_caller]
fn check(run: &Run, rows: &[(&str, Option<&str>)]) {
    for (name, expected) in rows {
        assert_eq!(run.var(name).as_deref(), *expected, "{name}");
    }
}

fn get(request: Request, target: &str) -> Run {
    request.get(target)
}

#[test]
fn the_request_line() {
    let run = get(request(), "/a%20b//c?x=1&y=%41+b&flag&x=2");
    check(
        &run,
        &[
            ("uri", Some("/a b/c")),
            ("document_uri", Some("/a b/c")),
            ("args", Some("x=1&y=%41+b&flag&x=2")),
            ("query_string", Some("x=1&y=%41+b&flag&x=2")),
            ("is_args", Some("?")),
            ("request_uri", Some("/a b/c?x=1&y=%41+b&flag&x=2")),
            ("real_request_uri", Some("/a%20b//c?x=1&y=%41+b&flag&x=2")),
            (
                "request",
                Some("GET /a%20b//c?x=1&y=%41+b&flag&x=2 HTTP/1.1"),
            ),
            (
                "request_line",
                Some("GET /a%20b//c?x=1&y=%41+b&flag&x=2 HTTP/1.1"),
            ),
            ("method", Some("GET")),
            ("request_method", Some("GET")),
            ("server_protocol", Some("HTTP/1.1")),
            ("http2", Some("")),
            ("arg_x", Some("1")),
            ("arg_y", Some("A b")),
            ("arg_flag", Some("true")),
            ("arg_X", None),
            ("request_length", Some("67")),
        ],
    );
    assert_eq!(
        run.lookup().into_var(&Var::parse("arg_flag")),
        Some(VarValue::True)
    );
    check(
        &get(request(), "/"),
        &[("args", None), ("is_args", Some("")), ("arg_x", None)],
    );
    check(
        &get(request().version(20).tls("a.test"), "/"),
        &[
            ("server_protocol", Some("HTTP/2.0")),
            ("http2", Some("h2")),
            ("ssl_alpn_protocol", Some("h2")),
        ],
    );
    check(
        &get(request().version(20), "/"),
        &[("http2", Some("h2c")), ("ssl_alpn_protocol", None)],
    );
}

#[test]
fn headers_and_cookies() {
    let run = get(
        request()
            .host("Shop.test:81")
            .header("X-A", "1")
            .header("x-a", "")
            .header("X-A", "3")
            .header("X_Under_Score", "u")
            .header("Latin", b"\xe9")
            .header("Cookie", "a=1; b=x=y;c")
            .header("Cookie", "d=4; a=2; A=5")
            .header("Authorization", "basic dXNlcjpwYXNz")
            .header("Content-Type", "text/plain")
            .header("X-Forwarded-For", "10.0.0.1")
            .work(|work| {
                work.request
                    .headers
                    .set(&"X-Set".parse().unwrap(), "s".into())
            })
            .work(|work| work.request.headers.remove(&"latin".parse().unwrap()))
            .work(|work| {
                work.request
                    .headers
                    .set(&HeaderKey::constant("x-forwarded-for"), "p".into())
            }),
        "/",
    );
    check(
        &run,
        &[
            ("http_x_a", Some("1, , 3")),
            ("http_X_A", Some("1, , 3")),
            ("http_x_under_score", Some("u")),
            ("http_x_set", Some("s")),
            ("http_latin", None),
            ("http_cookie", Some("a=1; b=x=y;c; d=4; a=2; A=5")),
            ("cookie_a", Some("1")),
            ("cookie_b", Some("x=y")),
            ("cookie_c", None),
            ("cookie_d", Some("4")),
            ("cookie_A", Some("5")),
            ("host", Some("shop.test")),
            ("http_host", Some("Shop.test:81")),
            ("content_type", Some("text/plain")),
            ("content_length", None),
            ("remote_user", Some("user")),
            ("original_x_forwarded_for", Some("10.0.0.1")),
            ("http_x_forwarded_for", Some("p")),
            ("proxy_add_x_forwarded_for", Some("p, 127.0.0.1")),
        ],
    );
    let run = get(request().header("Latin", b"\xe9").body("abc"), "/");
    check(
        &run,
        &[
            ("http_latin", Some("\u{fffd}")),
            ("content_length", Some("3")),
            ("request_body", Some("abc")),
            ("remote_user", None),
            ("proxy_add_x_forwarded_for", Some("127.0.0.1")),
        ],
    );
    for authorization in ["Basic", "Bearer x", "Basic !!", "Basic dXNlcg==", ""] {
        let run = get(request().header("Authorization", authorization), "/");
        check(&run, &[("remote_user", None)]);
    }
}

#[test]
fn the_connection() {
    let run = get(
        request()
            .from("192.0.2.1:7")
            .tls("a.test")
            .work(|work| work.client = "[::ffff:198.51.100.2]:9".parse().unwrap())
            .work(|work| work.request_id = Some(Bytes::from_static(b"id-1"))),
        "/",
    );
    check(
        &run,
        &[
            ("remote_addr", Some("198.51.100.2")),
            ("binary_remote_addr", Some("198.51.100.2")),
            ("remote_port", Some("9")),
            ("realip_remote_addr", Some("192.0.2.1")),
            ("realip_remote_port", Some("7")),
            ("server_addr", Some("127.0.0.1")),
            ("server_port", Some("9443")),
            ("server_name", Some("_")),
            ("connection", Some("1")),
            ("connection_requests", Some("1")),
            ("hostname", Some("gateway-1")),
            ("nginx_version", Some("APISIX/3.18.0")),
            ("pid", Some("1")),
            ("pipe", Some(".")),
            ("scheme", Some("https")),
            ("https", Some("on")),
            ("ssl_protocol", Some("TLSv1.3")),
            ("ssl_cipher", Some("TLS_AES_128_GCM_SHA256")),
            ("ssl_server_name", Some("a.test")),
            ("ssl_client_verify", Some("NONE")),
            ("ssl_client_serial", None),
            ("request_id", Some("id-1")),
            ("apisix_request_id", Some("id-1")),
            ("request_type", Some("traditional_http")),
            ("llm_prompt_tokens", Some("0")),
            ("resp_body", None),
        ],
    );
    check(
        &get(request(), "/"),
        &[
            ("scheme", Some("http")),
            ("https", Some("")),
            ("ssl_protocol", None),
        ],
    );
}

#[test]
fn route_and_consumer() {
    let route = RouteInfo {
        id: "r".into(),
        name: Some("route".into()),
        service_id: Some("s".into()),
        ..RouteInfo::default()
    };
    let consumer = Consumer {
        username: "jack".into(),
        group_id: Some("g".into()),
        ..Consumer::default()
    };
    let found = ConsumerCredential {
        consumer: Arc::new(consumer),
        credential_id: None,
        conf: Arc::new(()),
        version: 1,
    };
    let request = request()
        .route(route)
        .work(|work| work.consumer = Some(Arc::new(found)));
    let run = get(
        request.work(|work| work.params.push(("name".into(), "value".into()))),
        "/",
    );
    check(
        &run,
        &[
            ("route_id", Some("r")),
            ("route_name", Some("route")),
            ("service_id", Some("s")),
            ("service_name", None),
            ("consumer_name", Some("jack")),
            ("consumer_group_id", Some("g")),
            ("uri_param_name", Some("value")),
            ("uri_param_other", None),
            ("balancer_ip", None),
        ],
    );
}

fn attempt(addr: &str, status: u16, ms: Option<u64>) -> Attempt {
    let time = ms.map(Duration::from_millis);
    Attempt {
        addr: addr.parse().unwrap(),
        status,
        connect: time,
        header: time,
        response: time,
        started: std::time::Instant::now(),
    }
}

#[test]
fn the_response_and_the_upstream() {
    let mut run = get(request(), "/");
    check(
        &run,
        &[
            ("status", None),
            ("upstream_addr", None),
            ("upstream_status", None),
            ("upstream_response_length", None),
            ("sent_http_x", None),
            ("upstream_scheme", Some("http")),
            ("upstream_host", Some("gateway.test")),
            ("upstream_uri", Some("")),
            ("request_completion", Some("")),
        ],
    );
    let work = run.work_mut();
    work.attempts.push(attempt("127.0.0.1:81", 502, None));
    work.attempts.push(attempt("[::1]:82", 200, Some(1_234)));
    let addr: SocketAddr = "[::1]:82".parse().unwrap();
    work.picked = Some(Picked {
        addr,
        host: "b.test".into(),
    });
    work.upstream_host = Some(Bytes::from_static(b"b.test:82"));
    work.request.target = Some(Bytes::from_static(b"/up?x"));
    work.response
        .headers
        .append(&HeaderKey::constant("x-a"), "3".into());
    work.response
        .headers
        .set(&HeaderKey::constant("x-b"), "new".into());
    let answer = run.respond(
        200,
        &[("X-A", "1"), ("X-A", "2"), ("X-B", "old")],
        &["body"],
    );
    assert_eq!(answer.headers("x-a"), ["1", "2", "3"]);
    check(
        &run,
        &[
            ("status", Some("200")),
            ("body_bytes_sent", Some("4")),
            ("bytes_sent", Some("4")),
            ("sent_http_x_a", Some("1, 2, 3")),
            ("sent_http_x_b", Some("new")),
            ("upstream_http_x_a", Some("1, 2")),
            ("upstream_http_x_b", Some("old")),
            ("upstream_addr", Some("127.0.0.1:81, [::1]:82")),
            ("upstream_status", Some("502, 200")),
            ("upstream_connect_time", Some("-, 1.234")),
            ("upstream_header_time", Some("-, 1.234")),
            ("upstream_response_time", Some("-, 1.234")),
            ("apisix_upstream_response_time", Some("-, 1.234")),
            ("upstream_response_length", Some("0, 4")),
            ("upstream_bytes_received", Some("0, 4")),
            ("upstream_host", Some("b.test:82")),
            ("upstream_uri", Some("/up?x")),
            ("upstream_unresolved_host", Some("b.test")),
            ("balancer_ip", Some("::1")),
            ("balancer_port", Some("82")),
            ("origin", Some("upstream")),
            ("reason", None),
            ("request_completion", Some("OK")),
        ],
    );
}

#[test]
fn times_are_those_of_the_end() {
    let mut run = get(request(), "/");
    let _ = run.respond(200, &[], &[]);
    let work = run.work_mut();
    work.finished = Some(work.timing.start + Duration::from_micros(1_234_900));
    check(
        &run,
        &[
            ("request_time", Some("1.234")),
            ("msec", Some("1767323046.234")),
        ],
    );
    // The zone is the machine's, so compare with what chrono makes of it.
    let end: chrono::DateTime<chrono::Local> =
        (SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_046)).into();
    let local = end.format("%d/%b/%Y:%H:%M:%S %z").to_string();
    let iso = end.format("%Y-%m-%dT%H:%M:%S%:z").to_string();
    check(
        &run,
        &[("time_local", Some(&local)), ("time_iso8601", Some(&iso))],
    );
}

#[test]
fn values() {
    let check = |value: VarValue<'_>, text: &str, number: Option<f64>| {
        assert_eq!(
            (value.as_text().as_ref(), value.as_number()),
            (text, number)
        );
    };
    check(VarValue::Str("7".into()), "7", Some(7.0));
    check(VarValue::Number(7.into()), "7", Some(7.0));
    check(VarValue::True, "true", None);
    check(VarValue::False, "false", None);
    check(VarValue::List(vec!["1".into(), "2".into()]), "1, 2", None);
}
