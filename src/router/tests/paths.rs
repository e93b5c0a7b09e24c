use super::*;

#[test]
fn exact_before_prefix_and_longer_before_shorter() {
    for mode in [Mode::Uri, Mode::HostUri, Mode::UriWithParameter] {
        let routes = [
            "all /*",
            "a /a",
            "a* /a*",
            "a/ /a/*",
            "ab /a/b",
            "abc* /a/bc*",
        ];
        check(
            mode,
            &routes,
            &[
                ("GET h/", "all"),
                ("GET h/a", "a"),
                ("GET h/ab", "a*"),
                ("GET h/a/", "a/"),
                ("GET h/a/b", "ab"),
                ("GET h/a/bc", "abc*"),
                ("GET h/a/bcd/e", "abc*"),
                ("GET h/a/x", "a/"),
                ("GET h/x", "all"),
            ],
        );
        check(
            mode,
            &["a/ /a/*"],
            &[("GET h/a", "-"), ("GET h/", "-"), ("GET h/ax", "-")],
        );
        check(mode, &[], &[("GET h/", "-")]);
    }
}

#[test]
fn parameters() {
    let routes = [
        "user /user/:id",
        "books /user/:id/books/:book",
        "me /user/me",
        "rest /files/:id/*path",
        "ext /ext/:id/*",
        "part /a:b",
    ];
    check(
        Mode::UriWithParameter,
        &routes,
        &[
            ("GET h/user/7", "user id=7"),
            ("GET h/user/", "-"),
            ("GET h/user/7/", "-"),
            ("GET h/user/me", "me"),
            ("GET h/user/7/books/8", "books id=7 book=8"),
            ("GET h/files/7/a/b", "rest id=7 path=a/b"),
            ("GET h/files/7/", "rest id=7 path="),
            ("GET h/files/7", "-"),
            ("GET h/ext/7/a", "ext id=7 :ext=a"),
            ("GET h/a:b", "part"),
        ],
    );
    check(
        Mode::Uri,
        &routes,
        &[("GET h/user/7", "-"), ("GET h/user/:id", "user")],
    );
}

#[test]
fn variables_and_parameters_in_conditions() {
    let when = |line, vars: serde_json::Value, order| {
        let vars = Some(Arc::new(lockgate_plugin::Expr::parse(&vars).unwrap()));
        Entry {
            vars,
            ..route(order, line)
        }
    };
    let router = router(
        Mode::UriWithParameter,
        vec![
            when(
                "seven /user/:id",
                serde_json::json!([["uri_param_id", "==", "7"]]),
                0,
            ),
            when(
                "nobody /user/:id",
                serde_json::json!([["uri_param_other", "==", "7"]]),
                1,
            ),
            when(
                "absent /user/:id",
                serde_json::json!([["arg_x", "==", null], ["uri_param_id", "~=", "8"]]),
                2,
            ),
            route(3, "else /user/:id"),
        ],
    );
    let check = |request: &str, expected: &str| {
        assert_eq!(
            found(&router, &Request::new(request)),
            expected,
            "{request}"
        );
    };
    check("GET h/user/7", "seven id=7");
    check("GET h/user/9", "absent id=9");
    check("GET h/user/8", "else id=8");
}

#[test]
fn stars_in_the_middle() {
    let routes = [
        "b /a/*/b",
        "named /n/*x/y/*z",
        "re /v/*/v[0-9]+",
        "bad /w/*/x(",
        "dot /d/*/e.f",
        "or /o/*/v1|v2",
        "end /e/*/x\\",
    ];
    for mode in [Mode::Uri, Mode::HostUri, Mode::UriWithParameter] {
        check(
            mode,
            &routes,
            &[
                ("GET h/a/1/b", "b :ext=1"),
                ("GET h/a/1/2/b", "b :ext=1/2"),
                ("GET h/a/b/b", "b :ext=b"),
                ("GET h/a//b", "b :ext="),
                ("GET h/a/b", "-"),
                ("GET h/a/1/b/c", "-"),
                ("GET h/n/1/y/2/y/3", "named x=1/y/2 z=3"),
                ("GET h/n/y/y/y/y", "named x=y/y z=y"),
                ("GET h/v/1/v22", "re :ext=1"),
                ("GET h/v/1/2/v22", "re :ext=1/2"),
                ("GET h/v/1/vx", "-"),
                ("GET h/w/1/x(", "bad :ext=1"),
                ("GET h/d/1/e.f", "dot :ext=1"),
                ("GET h/d/1/exf", "-"),
                ("GET h/o/1/v1", "or :ext=1"),
                ("GET h/o/1/v12", "-"),
                ("GET h/o/v2", "-"),
                ("GET h/o/1/xv2", "-"),
                ("GET h/e/1/x\\zy", "-"),
            ],
        );
    }
}

#[test]
fn a_final_star_is_read_on_demand() {
    assert_eq!(tail("/a/*", "/a/b/c"), Some("b/c"));
    assert_eq!(tail("/*", "/"), Some(""));
    assert_eq!(tail("/a*", "/ab"), None);
    assert_eq!(tail("/a", "/a"), None);
}
