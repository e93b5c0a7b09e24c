use super::*;

fn scan_text(buf: &[u8]) -> Scan {
    scan(buf, 0, &mut Fields::default())
}

fn ok(text: &str, body: BodyLength) {
    let got = scan_text(text.as_bytes());
    assert!(
        matches!(&got, Scan::Complete(head) if head.body == body),
        "{text:?}: {got:?}"
    );
}

fn refused(text: &str, status: u16) {
    let got = scan_text(text.as_bytes());
    assert!(
        matches!(&got, Scan::Refused(r) if r.status == status),
        "{text:?}: {got:?}"
    );
}

fn partial(text: &str) {
    assert_eq!(scan_text(text.as_bytes()), Scan::Partial, "{text:?}");
}

#[test]
fn ordinary_heads() {
    ok("GET / HTTP/1.1\r\nHost: a\r\n\r\n", BodyLength::None);
    ok("GET / HTTP/1.0\r\n\r\n", BodyLength::None);
    ok(
        "POST /x?y HTTP/1.1\r\nHost: a.b:80\r\nContent-Length: 5\r\n\r\nhello",
        BodyLength::Exact(5),
    );
    ok(
        "POST / HTTP/1.1\r\nhost:[::1]:8\r\ntransfer-encoding: Chunked \r\n\r\n",
        BodyLength::Chunked,
    );
    ok(
        "GET http://a.test/x HTTP/1.1\r\nHost: A.test\r\n\r\n",
        BodyLength::None,
    );
    ok("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", BodyLength::None);
    ok("GET / HTTP/1.1\r\nHost:\r\nX: \r\n\r\n", BodyLength::None);
    ok("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", BodyLength::None);
}

#[test]
fn heads_that_ask_for_websocket() {
    let check = |start: &str, fields: &str, expected: (bool, bool)| {
        let text = format!("{start}\r\nHost: a\r\n{fields}\r\n");
        let Scan::Complete(head) = scan_text(text.as_bytes()) else {
            panic!("{text:?}");
        };
        assert_eq!((head.ordinary, head.websocket), expected, "{text:?}");
    };
    let (get, asks) = ("GET / HTTP/1.1", "Upgrade: WebSocket\r\n");
    let with = |more: &str| format!("{asks}{more}\r\n");
    check(get, &with("Connection: keep-alive, Upgrade"), (false, true));
    check(
        get,
        "Connection: upgrade\r\nUPGRADE: websocket\r\n",
        (false, true),
    );
    check(get, "", (true, false));
    let neither = (false, false);
    check(get, asks, neither);
    check(get, "Connection: Upgrade\r\n", neither);
    check(get, &with("Connection: Upgrade, X-A"), neither);
    check(
        get,
        &with("Connection: Upgrade\r\nUpgrade: websocket"),
        neither,
    );
    check(
        get,
        &with("Connection: Upgrade\r\nContent-Length: 1"),
        neither,
    );
    check(get, &with("Connection: Upgrade\r\nTE: trailers"), neither);
    check(get, "Upgrade: h2c\r\nConnection: Upgrade\r\n", neither);
    check("POST / HTTP/1.1", &with("Connection: Upgrade"), neither);
    check("GET / HTTP/1.0", &with("Connection: Upgrade"), neither);
    check(
        "GET http://a/ HTTP/1.1",
        &with("Connection: Upgrade"),
        neither,
    );
}

#[test]
fn unfinished_heads() {
    partial("");
    partial("GET / HTTP/1.1\r\nHost: a\r\n");
    partial("GET / HTTP/1.1\r\nHost: a\r\n\r");
    partial("PRI * HTTP/2.0\r\n\r\nSM");
}

#[test]
fn http2_preface() {
    assert_eq!(
        scan_text(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrest"),
        Scan::Http2
    );
    refused("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 505);
}

#[test]
fn what_parsers_disagree_about_is_refused() {
    let with = |field: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
    refused(
        &with("Content-Length: 3\r\nTransfer-Encoding: chunked"),
        400,
    );
    refused(&with("Content-Length: 3\r\nContent-Length: 3"), 400);
    refused(&with("Content-Length: +3"), 400);
    refused(&with("Content-Length: 3, 3"), 400);
    refused(&with("Content-Length: 99999999999999999999"), 400);
    refused(&with("Content-Length:"), 400);
    refused(
        &with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        400,
    );
    refused(&with("Transfer-Encoding: gzip, chunked"), 501);
    refused(&with("Transfer-Encoding: xchunked"), 501);
    refused(&with("Transfer-Encoding : chunked"), 400);
    refused(&with("X: a\r\n folded"), 400);
    refused(&with("X: a\nY: b"), 400);
    refused(&with("X: a\0b"), 400);
    refused(&with("X: a\rb"), 400);
    refused(&with("no colon"), 400);
    refused(&with(": no name"), 400);
    refused("GET / HTTP/1.1\nHost: a\n\n", 400);
    refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
}

#[test]
fn hosts() {
    refused("GET / HTTP/1.1\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    for host in [
        "a b", "a/b", "user@a", "a:80:80", "a:port", "[::1", "[zz]", "a,b",
    ] {
        refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
    }
    refused("GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400);
    refused("GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400);
}

#[test]
fn request_lines() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /",
        "GET / HTTP/1.1 x",
        "G(T / HTTP/1.1",
        " / HTTP/1.1",
        "GET / http/1.1",
    ] {
        refused(&format!("{line}\r\nHost: a\r\n\r\n"), 400);
    }
    refused("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505);
}

#[test]
fn chunks() {
    let check = |text: &str, expected: Result<Option<usize>, ()>| {
        assert_eq!(
            scan_chunks(text.as_bytes()).map_err(|_| ()),
            expected,
            "{text:?}"
        );
    };
    check("5\r\nhello\r\n0\r\n\r\nGET", Ok(Some(15)));
    check("5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", Ok(Some(25)));
    check("", Ok(None));
    check("5", Ok(None));
    check("5\r\nhel", Ok(None));
    check("5\r\nhello\r\n0\r\n", Ok(None));
    for bad in [
        "xyz\r\n",
        "+5\r\nhello\r\n",
        "0x5\r\n",
        "\r\nhello",
        "-1\r\n",
        "ffffffffffffffff\r\n",
        "3\r\nhello\r\n",
        " 5\r\nhello\r\n",
        "5\nhello",
        "5;a\rb\r\nhello\r\n",
        "0;a\x7f\r\n\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\r\n folded\r\n\r\n",
        "0\r\nX: \0\r\n\r\n",
        "0\r\nX: y\n\r\n\r\n",
        "0\r\nGET / HTTP/1.1\r\n\r\n",
    ] {
        check(bad, Err(()));
    }
}

#[test]
fn limits() {
    let long = "x".repeat(MAX_HEAD);
    refused(
        &format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
        431,
    );
    refused(&format!("GET /{long}"), 414);
    let many = "A: b\r\n".repeat(MAX_FIELDS);
    refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431);
}

#[test]
fn lines_for_the_log() {
    assert_eq!(
        request_line(b"GET /x HTTP/9\r\nA"),
        (&b"GET"[..], &b"/x"[..])
    );
    assert_eq!(request_line(b"\x16\x03\x01"), (&b"-"[..], &b"/"[..]));
}

#[test]
fn tokens_end_where_a_walk_ends() {
    for byte in 0..=255u8 {
        for at in 0..20 {
            let mut text = vec![b'x'; 20];
            text[at] = byte;
            let walk = text.iter().position(|&b| !TOKEN[usize::from(b)]);
            assert_eq!(token_len(&text), walk.unwrap_or(20), "{byte} at {at}");
        }
    }
}

#[test]
fn lengths_are_digits() {
    assert_eq!(decimal(b"0"), Some(0));
    assert_eq!(decimal(b"0012"), Some(12));
    assert_eq!(
        decimal(b"9999999999999999999"),
        Some(9_999_999_999_999_999_999)
    );
    for bad in ["", "+1", "1 ", "0x1", "1.0", "10000000000000000000", "1/"] {
        assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
    }
}
