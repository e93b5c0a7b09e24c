use proptest::prelude::*;

use super::*;

/// `Ok`: the normal path, the query and what goes upstream.
type Seen<'a> = Result<(&'a str, Option<&'a str>, &'a [u8]), BadTarget>;

#[track_caller]
fn check(raw: &[u8], expected: Seen<'_>) {
    let target = Target::parse(raw);
    let sent = target.as_ref().map(|t| t.upstream_target(raw).into_owned());
    let sent = sent.unwrap_or_default();
    let seen = match &target {
        Ok(t) => Ok((t.uri(raw), t.args(raw), &*sent)),
        Err(bad) => Err(*bad),
    };
    assert_eq!(seen, expected, "target {:?}", String::from_utf8_lossy(raw));
}

#[test]
fn normal_paths_stay_as_they_are() {
    for raw in [
        "/",
        "/a",
        "/a/",
        "/a/b.c",
        "/.well-known/x",
        "/..a/b..",
        "/a/.b",
        "/a;x=1/b",
        "/é",
    ] {
        check(raw.as_bytes(), Ok((raw, None, raw.as_bytes())));
        assert!(
            Target::parse(raw.as_bytes()).unwrap().normal.is_none(),
            "{raw} allocates"
        );
    }
}

#[test]
fn plain_decoding_is_sent_as_it_came() {
    check(b"/a%20b", Ok(("/a b", None, b"/a%20b")));
    check(b"/%c3%a9", Ok(("/é", None, b"/%c3%a9")));
    check(b"/a%2Fb", Ok(("/a/b", None, b"/a%2Fb")));
    check(b"/a%2eb", Ok(("/a.b", None, b"/a%2eb")));
    check(b"/a%3Fb?c", Ok(("/a?b", Some("c"), b"/a%3Fb?c")));
    check(b"/a%23b", Ok(("/a#b", None, b"/a%23b")));
    check(b"/a%2541", Ok(("/a%41", None, b"/a%2541")));
    check(b"/%0d%0aX:1", Ok(("/\r\nX:1", None, b"/%0d%0aX:1")));
}

#[test]
fn structural_changes_are_encoded_again() {
    check(b"//", Ok(("/", None, b"/")));
    check(b"/a//b", Ok(("/a/b", None, b"/a/b")));
    check(b"/a/%2F%2fb", Ok(("/a/b", None, b"/a/b")));
    check(b"/a/./b/.", Ok(("/a/b/", None, b"/a/b/")));
    check(b"/a/b/..", Ok(("/a/", None, b"/a/")));
    check(
        b"/a/../b%20c?x=%20",
        Ok(("/b c", Some("x=%20"), b"/b%20c?x=%20")),
    );
    check(b"/x/%2e%2e/admin", Ok(("/admin", None, b"/admin")));
    check(b"/x/.%2e/admin", Ok(("/admin", None, b"/admin")));
    check(b"/x%2F..%2Fadmin", Ok(("/admin", None, b"/admin")));
    check(b"/x/..//..", Err(BadTarget::AboveRoot));
    check(b"/a/..//%3f%25%23", Ok(("/?%#", None, b"/%3F%25%23")));
    check(b"/a//%0a%7f", Ok(("/a/\n\u{7f}", None, b"/a/%0A%7F")));
    check(b"/a//%ff%25FF", Ok(("/a/%FF%FF", None, b"/a/%FF%25FF")));
}

#[test]
fn bytes_that_are_not_text_stay_encoded() {
    check(b"/%ff", Ok(("/%FF", None, b"/%ff")));
    check(b"/\xff", Ok(("/%FF", None, b"/\xff")));
    check(b"/%c3%a9%c3", Ok(("/é%C3", None, b"/%c3%a9%c3")));
    check(b"/a?\xffb", Ok(("/a", Some("%FFb"), b"/a?\xffb")));
}

#[test]
fn queries_and_fragments() {
    check(b"/?", Ok(("/", None, b"/?")));
    check(
        b"/a?b?c/../d//",
        Ok(("/a", Some("b?c/../d//"), b"/a?b?c/../d//")),
    );
    check(b"/a?%", Ok(("/a", Some("%"), b"/a?%")));
    check(b"/a#b?c", Ok(("/a", None, b"/a")));
    check(b"/a?b#c", Ok(("/a", Some("b"), b"/a?b")));
    check(b"/.#", Ok(("/", None, b"/")));
}

#[test]
fn bad_targets() {
    for raw in [&b""[..], b"*", b"a", b"?a", b"http://a/", b"%2F"] {
        check(raw, Err(BadTarget::NotAbsolute));
    }
    for raw in [&b"/%"[..], b"/%a", b"/%G1", b"/%1G", b"/%%", b"/a%?b"] {
        check(raw, Err(BadTarget::Escape));
    }
    for raw in [
        &b"/.."[..],
        b"/../",
        b"/a/../..",
        b"/%2e%2E",
        b"/a/..%2f../b",
        b"/./..",
    ] {
        check(raw, Err(BadTarget::AboveRoot));
    }
    for raw in [
        &b"/ "[..],
        b"/a\r\nb",
        b"/\x7f",
        b"/a?b c",
        b"/a?\n",
        b"/a#\r",
        b"/\0",
        b"/\t",
    ] {
        check(raw, Err(BadTarget::Control));
    }
    check(b"/a%00", Err(BadTarget::Nul));
    let long = |size: usize| [b"/".to_vec(), vec![b'a'; size - 1]].concat();
    assert!(Target::parse(&long(MAX_TARGET)).is_ok());
    check(&long(MAX_TARGET + 1), Err(BadTarget::TooLong));
}

#[test]
fn request_uri_is_the_normal_path_and_the_query() {
    let check = |raw: &[u8], expected: &str| {
        let mut target = Target::parse(raw).unwrap();
        assert_eq!(target.request_uri(raw), expected);
        target.rewrite("/other", None);
        assert_eq!(target.request_uri(raw), expected);
    };
    check(b"/a?b=%20", "/a?b=%20");
    check(b"/a?", "/a");
    check(b"/a%20/../b?c#d", "/b?c");
    check(b"/a?\xff", "/a?%FF");
}

#[test]
fn rewriting() {
    let check =
        |raw: &[u8], path: &str, args: Option<&str>, seen: (&str, Option<&str>), sent: &[u8]| {
            let mut target = Target::parse(raw).unwrap();
            assert_eq!(&*target.rewrite(path, args), sent);
            assert_eq!((target.uri(raw), target.args(raw)), seen);
            assert_eq!(&*target.upstream_target(raw), sent);
        };
    check(
        b"/a?b",
        "/x y?z",
        Some("c=d"),
        ("/x y?z", Some("c=d")),
        b"/x%20y%3Fz?c=d",
    );
    check(b"/a?b", "/x", None, ("/x", None), b"/x");
    check(b"/a?b", "/x", Some(""), ("/x", None), b"/x");
    check(b"/a", "x", None, ("/x", None), b"/x");
    check(b"/a", "/é%FF", None, ("/é%FF", None), b"/%C3%A9%25FF");
    check(
        b"/a",
        "/x",
        Some("a b\r\n#c=%20"),
        ("/x", Some("a b\r\n#c=%20")),
        b"/x?a%20b%0D%0A%23c=%20",
    );
    // The escapes of the client's own bytes survive a rewrite, other `%` are text.
    check(
        b"/a/%ff",
        "/b/%FF%41",
        None,
        ("/b/%FF%41", None),
        b"/b/%FF%2541",
    );
    // Text that only looks like such escapes does not become a character.
    check(
        b"/%ff%c3%25A9",
        "/%FF%C3%A9",
        None,
        ("/%FF%C3%A9", None),
        b"/%FF%25C3%25A9",
    );
}

#[test]
fn match_paths() {
    let check = |raw: &str, options: MatchOptions, expected: Result<&str, BadTarget>| {
        let target = Target::parse(raw.as_bytes()).unwrap();
        let path = target.match_path(raw.as_bytes(), &options);
        assert_eq!(
            path.as_deref().map_err(|bad| *bad),
            expected,
            "{raw} {options:?}"
        );
    };
    let plain = MatchOptions::default();
    check("/a/;b/%2f", plain, Ok("/a/;b/"));
    check("/a%2fb", plain, Ok("/a/b"));

    let tail = MatchOptions {
        delete_tail_slash: true,
        ..plain
    };
    check("/a/", tail, Ok("/a"));
    check("/a//", tail, Ok("/a"));
    check("/%61/", tail, Ok("/a"));
    check("/a", tail, Ok("/a"));
    check("/", tail, Ok("/"));

    let servlet = MatchOptions {
        like_servlet: true,
        ..plain
    };
    check("/a;x=1/b;y", servlet, Ok("/a/b"));
    check("/a%3bx/b", servlet, Ok("/a/b"));
    check("/a/;x", servlet, Ok("/a/"));
    check("/a;x/", servlet, Ok("/a/"));
    check("/a", servlet, Ok("/a"));
    check(
        "/a%252eb/c%252E%252e%252e",
        servlet,
        Ok("/a%2eb/c%2E%2e%2e"),
    );
    check("/%252e%252e%252e/x", servlet, Ok("/%2e%2e%2e/x"));
    check("/v1.0/a%252e;x", servlet, Ok("/v1.0/a%2e"));
    for raw in [
        "/a/%252e/b",
        "/a/%252E%252e",
        "/a/.%252e/b",
        "/a/%252e./b",
        "/a/..;/b",
        "/a/.;x/b",
        "/;x/b",
        "/%252e;/b",
        "/%252E%252e;x",
        "/a/..;",
    ] {
        check(raw, servlet, Err(BadTarget::Parameters));
    }

    let slash = MatchOptions {
        encoded_slash: true,
        ..plain
    };
    check("/a%2fb%20c", slash, Ok("/a%2Fb c"));
    check("/a%20b", slash, Ok("/a b"));
    check("/a%2fb//c", slash, Ok("/a/b/c"));
    check("/a%2f%ff", slash, Ok("/a%2F%FF"));
    check(
        "/a%2F",
        MatchOptions {
            delete_tail_slash: true,
            ..slash
        },
        Ok("/a%2F"),
    );
}

#[test]
fn hosts() {
    let check = |authority: &[u8], expected: &str| assert_eq!(host_of(authority), expected);
    check(b"foo.com", "foo.com");
    check(b"FOO.com:80", "foo.com");
    check(b"foo.com.", "foo.com");
    check(b"foo.com.:80", "foo.com");
    check(b"[::1]:80", "[::1]");
    check(b"[FE80::1]", "[fe80::1]");
    check(b"[::1", "[::1");
    check(b"", "");
    check(b":80", "");
    check(b"\xff", "\u{fffd}");
    assert!(matches!(host_of(b"foo.com:80"), Cow::Borrowed(_)));
}

#[test]
fn arguments() {
    let text = |text: &'static str| Some(ArgValue::Text(Cow::Borrowed(text)));
    let check = |args: &str, name: &str, expected: Option<ArgValue<'_>>| {
        assert_eq!(arg_value(args, name), expected, "{args} {name}");
    };
    check("a=1&b=2&b=3", "b", text("2"));
    check("a=1", "b", None);
    check("a", "a", Some(ArgValue::Flag));
    check("a=", "a", text(""));
    check("a==b", "a", text("=b"));
    check("a=%2f+%zz%", "a", text("/ %zz%"));
    check("a=%ff", "a", text("%FF"));
    check("A=1", "a", None);
    check("%61=1", "a", text("1"));
    check("a+b=1", "a b", text("1"));
    check("a+b=1", "a+b", None);
    check("=1&x", "", None);
    check("", "", None);
    check("aa=1&a=2", "a", text("2"));
    assert_eq!(arg("a&b=1", "a").as_deref(), Some(""));
}

#[test]
fn a_rewrite_keeps_only_the_escapes_of_the_normal_form() {
    let mut target = Target::parse(b"/%80").unwrap();
    assert_eq!(&*target.rewrite("/%80%8A", None), b"/%80%8A");
    let mut target = Target::parse(b"/%80").unwrap();
    assert_eq!(&*target.rewrite("/%80%8a", None), b"/%80%258a");
}

/// Paths made of the pieces that matter to the normaliser.
fn targets() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            "/", "//", ".", "..", "/.", "/..", "%2f", "%2F", "%2e", "%2E", "%25", "%", "%ff", "%c3%a9",
            "%00", "%3f", "%23", "%20", "a", "bc", "é", ";", "?", "#", "%252f",
        ]).prop_map(|s| s.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|b| vec![b]),
        1 => any::<u8>().prop_map(|b| format!("%{b:02x}").into_bytes()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| [b"/".to_vec(), pieces.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_normal_form_is_normal(raw in targets()) {
        let Ok(target) = Target::parse(&raw) else { return Ok(()) };
        let path = target.uri(&raw);
        prop_assert!(path.starts_with('/'));
        prop_assert!(!path.contains("//"));
        prop_assert!(path.split('/').all(|segment| segment != "." && segment != ".."), "{path}");
    }

    #[test]
    fn the_upstream_reads_the_same_path(raw in targets()) {
        let Ok(target) = Target::parse(&raw) else { return Ok(()) };
        let sent = target.upstream_target(&raw);
        let again = Target::parse(&sent);
        prop_assert!(again.is_ok(), "{:?}", again);
        let again = again.unwrap();
        prop_assert!(!again.structural);
        prop_assert_eq!(again.uri(&sent), target.uri(&raw));
        prop_assert_eq!(again.args(&sent), target.args(&raw));
        prop_assert_eq!(&*again.upstream_target(&sent), &*sent);
    }

    #[test]
    fn rewriting_to_the_same_path_changes_nothing(raw in targets()) {
        let Ok(mut target) = Target::parse(&raw) else { return Ok(()) };
        let path = target.uri(&raw).to_owned();
        let args = target.args(&raw).map(str::to_owned);
        let sent = target.rewrite(&path, args.as_deref());
        let again = Target::parse(&sent).unwrap();
        prop_assert_eq!(again.uri(&sent), &path);
        prop_assert_eq!(again.args(&sent), args.as_deref());
    }

    #[test]
    fn any_bytes_are_handled(raw in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(target) = Target::parse(&raw) {
            let options = MatchOptions { delete_tail_slash: true, like_servlet: true, encoded_slash: true };
            let _ = target.match_path(&raw, &options);
            prop_assert!(target.request_uri(&raw).starts_with('/'));
        }
        host_of(&raw);
        arg(&String::from_utf8_lossy(&raw), "a");
    }
}

#[test]
fn servlet_parameters_are_no_part_of_what_plugins_see() {
    let options = MatchOptions {
        like_servlet: true,
        ..MatchOptions::default()
    };
    for (raw, uri, request_uri) in [
        ("/a;x=1/b;y?q=;z", "/a/b", "/a/b?q=;z"),
        ("/a%3bx/b", "/a/b", "/a/b"),
        ("/a/b?q", "/a/b", "/a/b?q"),
    ] {
        let target = Target::parse_as(raw.as_bytes(), &options).unwrap();
        assert_eq!(target.uri(raw.as_bytes()), uri);
        assert_eq!(target.request_uri(raw.as_bytes()), request_uri);
        assert_eq!(target.upstream_target(raw.as_bytes()), raw.as_bytes());
        assert_eq!(target.match_path(raw.as_bytes(), &options).unwrap(), uri);
    }
    let hidden = Target::parse_as(b"/a/..;x/b", &options);
    assert!(matches!(hidden, Err(BadTarget::Parameters)));
}
