use super::*;
use lockgate_plugin::testing::{build_error, run};
use serde_json::json;

fn target(conf: Value, sent: &str, expected: &str) {
    let run = run::<ProxyRewrite>(conf.clone()).get(sent).expect_next();
    assert_eq!(run.upstream_target(), expected, "{conf} {sent}");
}

#[test]
fn a_new_path() {
    target(json!({"uri": "/new"}), "/old", "/new");
    target(json!({"uri": "/new"}), "/old?a=1", "/new?a=1");
    target(json!({"uri": "/new?b=2"}), "/old?a=1", "/new?b=2&a=1");
    target(json!({"uri": "/new?b=2"}), "/old", "/new?b=2");
    target(
        json!({"uri": "/x/$arg_id"}),
        "/old?id=a%20b",
        "/x/a%20b?id=a%20b",
    );
    target(json!({"uri": "/t$uri"}), "/o", "/t/o");
    target(json!({"uri": "/x?n=$arg_n"}), "/?n=5", "/x?n=5&n=5");
    target(
        json!({"uri": "/u", "regex_uri": ["^/a$", "/A"]}),
        "/a",
        "/u",
    );
}

#[test]
fn variables_cannot_start_a_query_or_a_line() {
    // Twice encoded, as by the original: once as text, once with the path.
    target(json!({"uri": "/t$uri"}), "/o%3Fa=1", "/t/o%253Fa=1");
    target(json!({"uri": "/t?u=$uri"}), "/o%3Fa=1", "/t?u=/o%3Fa=1");
    target(
        json!({"uri": "/t$uri"}),
        "/o%20x%0d%0aEvil:1",
        "/t/o%20x%0D%0AEvil:1",
    );
    target(
        json!({"uri": "/t?u=$uri"}),
        "/o%20x%0d%0aEvil:1",
        "/t?u=/o%20x%0D%0AEvil:1",
    );
    target(
        json!({"regex_uri": ["(.*)", "/t?u=$1"]}),
        "/o%0d%0a",
        "/t?u=/o%0D%0A",
    );
}

#[test]
fn expressions() {
    target(
        json!({"regex_uri": ["^/a/(.*)/(.*)$", "/$2/$1"]}),
        "/a/x/y?q=1",
        "/y/x?q=1",
    );
    target(
        json!({"regex_uri": ["^/a/(.*)$", "/$1?b=2"]}),
        "/a/x?q=1",
        "/x?b=2&q=1",
    );
    target(
        json!({"regex_uri": ["^/a$", "/A", "^/b$", "/B"]}),
        "/b",
        "/B",
    );
    target(json!({"regex_uri": ["^/a", "/1", "^/1", "/2"]}), "/a", "/1");
    target(json!({"regex_uri": ["^/a$", "/A"]}), "/c%41?x", "/cA?x");
    target(json!({"regex_uri": ["^/v1/(.*)", "$1"]}), "/v1/x", "/x");
    // With an encoded question mark in the path, none in the result starts a query.
    target(
        json!({"regex_uri": ["^/a(.*)", "/b$1?c"]}),
        "/a%3Fx?q=1",
        "/b%3Fx%3Fc?q=1",
    );
}

#[test]
fn the_path_is_encoded_again_with_other_changes_too() {
    target(json!({"method": "GET"}), "/a/b?x=%20", "/a/b?x=%20");
    target(json!({"method": "GET"}), "/a%2Fb%5fc?x=%20", "/a/b_c?x=%20");
    target(
        json!({"host": "h.test"}),
        "/h%3f0%26%20%0D%0a",
        "/h%3F0&%20%0D%0A",
    );
    target(json!({"host": "h.test"}), "/%E4%B8%AD%FF", "/%E4%B8%AD%FF");
}

#[test]
fn the_real_target() {
    let conf = |extra: Value| {
        let mut conf = json!({"use_real_request_uri_unsafe": true});
        for (name, value) in extra.as_object().into_iter().flatten() {
            conf[name] = value.clone();
        }
        conf
    };
    target(conf(json!({})), "/a//b/../c%2F?x", "/a//b/../c%2F?x");
    target(
        conf(json!({"uri": "/n%2Fx"})),
        "/a%20?x=%20",
        "/n%2Fx?x=%20",
    );
    target(conf(json!({"uri": "/n?y"})), "/a?x", "/n?y&x");
    target(
        conf(json!({"uri": "/n$uri"})),
        "/a%0d%0a%20b",
        "/n/a%0D%0A%20b",
    );
    let regex = json!({"regex_uri": ["^/h/(.+)", "/h?u=$1"]});
    target(conf(regex.clone()), "/h/%ED%85%8C", "/h?u=%ED%85%8C");
    target(conf(regex.clone()), "/h/a?b", "/h?u=a?b");
    target(conf(regex), "/h//", "/h?u=/");
}

#[test]
fn later_plugins_see_the_new_path() {
    let run = run::<ProxyRewrite>(json!({"uri": "/new?b=2"}))
        .get("/old?a=1")
        .expect_next();
    assert_eq!(run.var("uri").as_deref(), Some("/new"));
    assert_eq!(run.var("args").as_deref(), Some("b=2&a=1"));
    assert_eq!(run.var("request_uri").as_deref(), Some("/old?a=1"));
}

#[test]
fn a_match_that_takes_too_long_is_answered() {
    let conf = json!({"regex_uri": ["^/(a|aa)+(?=$)(?<!x)b", "/"]});
    let target = format!("/{}", "a".repeat(60));
    let error = run::<ProxyRewrite>(conf).get(&target);
    assert!(
        error
            .expect_error()
            .starts_with(&format!("failed to match the uri {target} ("))
    );
}

#[test]
fn method_and_host() {
    let conf =
        json!({"method": "POST", "host": "b.test:81", "headers": {"X-M": "$request_method"}});
    let run = run::<ProxyRewrite>(conf).get("/").expect_next();
    assert_eq!(
        (run.upstream_method().as_str(), run.upstream_host().as_str()),
        ("POST", "b.test:81")
    );
    assert_eq!(run.upstream_headers("x-m"), ["GET"]);
}

fn headers(conf: Value, expected: &[(&str, &[&str])]) {
    let request = run::<ProxyRewrite>(conf.clone())
        .header("X-Old", "1")
        .header("X-Gone", "1");
    let run = request.get("/a/b?n=5").expect_next();
    for (name, values) in expected {
        assert_eq!(run.upstream_headers(name), *values, "{conf} {name}");
    }
}

#[test]
fn header_changes() {
    headers(
        json!({"headers": {"X-Old": "2", "X-New": 3}}),
        &[("x-old", &["2"]), ("x-new", &["3"])],
    );
    headers(
        json!({"headers": {"add": {"X-Old": "2"}, "set": {"X-New": "$arg_n"}, "remove": ["X-Gone"]}}),
        &[("x-old", &["1", "2"]), ("x-new", &["5"]), ("x-gone", &[])],
    );
    headers(
        json!({"headers": {"set": {"X-Old": ["a", 2]}}}),
        &[("x-old", &["a", "2"])],
    );
    headers(
        json!({"headers": {"add": {"X-Old": ["a", "b"]}}}),
        &[("x-old", &["1", "a", "b"])],
    );
    headers(
        json!({"headers": {"set": {"X-Empty": "$arg_none"}}}),
        &[("x-empty", &[""])],
    );
    // A header may be called `set`, as long as its value is not a mapping.
    headers(json!({"headers": {"set": "1"}}), &[("set", &["1"])]);
}

#[test]
fn headers_are_added_then_set_then_removed() {
    let conf = json!({"headers": {
        "remove": ["X-Gone"], "set": {"X-Old": "s", "X-Gone": "s"}, "add": {"X-Old": "a", "X-Gone": "a"}}});
    headers(conf, &[("x-old", &["s"]), ("x-gone", &[])]);
}

#[test]
fn groups_in_headers() {
    let check = |value: &str, expected: &str| {
        let conf = json!({"regex_uri": ["^/(.)/(.)", "/$2"], "headers": {"set": {"X-G": value}}});
        headers(conf, &[("x-g", &[expected])]);
    };
    check("${1}-$2-$9-$uri", "a-b--/b");
    check("$0", "/a/b");
    check("$10|${1}0", "|a0");
    check("\\$1 ${1x} ${1", "\\$1  ${1");
    check("$arg_n$1", "5a");
    headers(
        json!({"uri": "/u", "headers": {"set": {"X-G": "[$1]"}}}),
        &[("x-g", &["[]"])],
    );
    headers(
        json!({"regex_uri": ["^/z", "/"], "headers": {"set": {"X-G": "[$1]"}}}),
        &[("x-g", &["[]"])],
    );
}

#[test]
fn what_the_client_sends_is_not_searched_for_variables() {
    let conf = json!({"regex_uri": ["(?s)^/(.*)", "/x"], "headers": {"set": {"X-G": "$1"}}});
    let run = run::<ProxyRewrite>(conf)
        .get("/$remote_addr%0Aa")
        .expect_next();
    assert_eq!(run.upstream_headers("x-g"), ["$remote_addr%0Aa"]);
}

#[test]
fn configurations_that_are_refused() {
    let check = |conf: Value, expected: &str| {
        let text = build_error::<ProxyRewrite>(conf);
        assert!(text.contains(expected), "{text}");
    };
    check(json!({}), "at least 1 properties");
    check(json!({"uri": "x"}), "failed to match pattern");
    check(json!({"regex_uri": ["a"]}), "at least 2 items");
    check(
        json!({"regex_uri": ["a", "b", "c"]}),
        "should be an even number",
    );
    check(
        json!({"regex_uri": ["a", "b", "(", "c"]}),
        "regex_uri[2]: invalid regex_uri((, c)",
    );
    check(
        json!({"regex_uri": ["^/t/(.*)", "/$`1"]}),
        "invalid capturing variable name found",
    );
    check(json!({"method": "get"}), "enum values");
    check(json!({"host": "a/b"}), "failed to match pattern");
    check(json!({"headers": {}}), "headers: ");
    check(
        json!({"headers": {"a b": "1"}}),
        "headers.a b: invalid field character in header",
    );
    check(
        json!({"headers": {"X-A": "1\r\n2"}}),
        "headers.X-A: invalid value character in header",
    );
    check(
        json!({"headers": {"X-A": ["1"]}}),
        "headers.X-A: a list needs the form",
    );
    check(json!({"headers": {"X-A": true}}), "headers.X-A: wrong type");
    check(
        json!({"headers": {"set": {"X-A": "1"}, "X-B": "2"}}),
        "headers.X-B: not allowed beside",
    );
    check(json!({"headers": {"set": {}}}), "headers.set: ");
    check(
        json!({"headers": {"set": {"X-A": []}}}),
        "headers.set.X-A: ",
    );
    check(
        json!({"headers": {"set": {"X-A": "1"}, "add": "x"}}),
        "headers.add: expected an object",
    );
    check(
        json!({"headers": {"add": {"X-A": [{}]}}}),
        "headers.add.X-A: wrong type",
    );
    check(json!({"headers": {"remove": []}}), "headers.remove: ");
    check(
        json!({"headers": {"remove": ["X-A", "b:"]}}),
        "headers.remove[1]: invalid field",
    );
    check(
        json!({"headers": {"Content-Length": "5"}}),
        "headers.Content-Length: ",
    );
    check(
        json!({"headers": {"remove": ["transfer-encoding"]}}),
        "headers.remove[0]: ",
    );
}
