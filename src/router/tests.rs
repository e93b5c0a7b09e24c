mod model;
mod properties;

use super::*;
use lockgate_plugin::{Var, VarValue};

/// A request without variables.
struct NoVars;

impl VarSource for NoVars {
    fn var<'b>(&'b self, _: &'b Var) -> Option<VarValue<'b>> {
        None
    }
}

/// A request in one line: `GET host/path`, with an optional port after the host.
#[derive(Clone, Debug)]
struct Request {
    method: String,
    http_host: String,
    host: String,
    path: String,
    remote: IpAddr,
}

impl Request {
    fn new(line: &str) -> Request {
        let (method, rest) = line.split_once(' ').unwrap();
        let (authority, path) = rest.split_at(rest.find('/').unwrap());
        Request {
            method: method.into(),
            http_host: authority.into(),
            host: lockgate_host(authority),
            path: path.into(),
            remote: "192.0.2.1".parse().unwrap(),
        }
    }

    fn from(mut self, remote: &str) -> Request {
        self.remote = remote.parse().unwrap();
        self
    }

    fn input(&self) -> MatchInput<'_> {
        MatchInput {
            path: &self.path,
            host: &self.host,
            http_host: self.http_host.as_bytes(),
            method: &self.method,
            remote: self.remote,
            vars: &NoVars,
        }
    }
}

fn lockgate_host(authority: &str) -> String {
    let end = match authority.find(']') {
        Some(at) => at + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    authority[..end].to_ascii_lowercase()
}

/// A route in one line: `id uris hosts`, lists with commas, `-` for none.
fn route(order: u64, line: &str) -> Entry<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let list = |at: usize| -> Box<[Arc<str>]> {
        let text = words.get(at).copied().unwrap_or("-");
        if text == "-" {
            Box::default()
        } else {
            text.split(',').map(Arc::from).collect()
        }
    };
    Entry {
        order,
        uris: list(1),
        hosts: list(2),
        ..Entry::new(words[0], ())
    }
}

fn router(mode: Mode, routes: Vec<Entry<()>>) -> Router<()> {
    let mut router = Router::new(mode);
    for entry in routes {
        router.insert(Arc::new(entry));
    }
    router
}

fn lines(mode: Mode, routes: &[&str]) -> Router<()> {
    router(
        mode,
        routes
            .iter()
            .zip(0..)
            .map(|(line, order)| route(order, line))
            .collect(),
    )
}

/// The id of the route found, `-` for none, followed by the parameters.
fn found(router: &Router<()>, request: &Request) -> String {
    let Some(found) = router.find(&request.input()) else {
        return "-".into();
    };
    let params = found
        .params
        .iter()
        .map(|(name, value)| format!(" {name}={value}"));
    [found.entry.id.to_string()]
        .into_iter()
        .chain(params)
        .collect()
}

#[track_caller]
fn check(mode: Mode, routes: &[&str], rows: &[(&str, &str)]) {
    let router = lines(mode, routes);
    for (request, expected) in rows {
        assert_eq!(
            found(&router, &Request::new(request)),
            *expected,
            "{request}"
        );
    }
}

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
fn priority_decides_only_within_a_path() {
    let high = |priority, line, order| Entry {
        priority,
        ..route(order, line)
    };
    let check = |routes, request: &str, expected: &str| {
        let router = router(Mode::Uri, routes);
        assert_eq!(found(&router, &Request::new(request)), expected);
    };
    check(vec![high(0, "a /a", 0), high(9, "p /*", 1)], "GET h/a", "a");
    check(
        vec![high(0, "long /a/*", 0), high(9, "short /*", 1)],
        "GET h/a/b",
        "long",
    );
    check(
        vec![high(0, "low /a", 0), high(1, "high /a", 1)],
        "GET h/a",
        "high",
    );
    check(
        vec![high(0, "second /a", 7), high(0, "first /a", 3)],
        "GET h/a",
        "first",
    );
    // The same prefix: the longer pattern is tried first, but priority goes before it.
    check(
        vec![high(0, "short /a/*", 0), high(0, "long /a/*/b", 1)],
        "GET h/a/x/b",
        "long :ext=x",
    );
    check(
        vec![high(1, "short /a/*", 0), high(0, "long /a/*/b", 1)],
        "GET h/a/x/b",
        "short",
    );
}

#[test]
fn a_failed_condition_goes_on_to_the_next() {
    let methods = |entry: Entry<()>, methods: &[&str]| {
        let set = methods
            .iter()
            .try_fold(MethodSet::default(), |set, method| set.with(method));
        Entry {
            methods: set.unwrap(),
            ..entry
        }
    };
    let router = router(
        Mode::HostUri,
        vec![
            methods(route(0, "exact /a"), &["POST"]),
            methods(route(1, "prefix /*"), &["GET", "PURGE"]),
            methods(route(2, "other /*"), &[]),
            methods(route(3, "host /* h"), &["PUT"]),
        ],
    );
    let check = |request: &str, expected: &str| {
        assert_eq!(
            found(&router, &Request::new(request)),
            expected,
            "{request}"
        );
    };
    check("POST h/a", "exact");
    check("GET h/a", "prefix");
    check("PURGE h/a", "prefix");
    check("DELETE h/a", "other");
    check("BREW h/a", "other");
    check("get h/a", "other");
    check("PUT h/a", "host");
    check("PUT x/a", "other");
    assert_eq!(MethodSet::default().with("BREW"), None);
}

#[test]
fn client_networks() {
    let net = |line, nets: &[&str], order| {
        let remote_addrs = nets.iter().map(|net| net.parse().unwrap()).collect();
        Entry {
            remote_addrs,
            ..route(order, line)
        }
    };
    let router = router(
        Mode::Uri,
        vec![
            net("inside /a", &["10.0.0.0/8", "2001:db8::/32"], 0),
            net("outside /a", &[], 1),
        ],
    );
    let check = |remote: &str, expected: &str| {
        assert_eq!(
            found(&router, &Request::new("GET h/a").from(remote)),
            expected,
            "{remote}"
        );
    };
    check("10.1.2.3", "inside");
    check("::ffff:10.1.2.3", "inside");
    check("2001:db8::1", "inside");
    check("11.0.0.1", "outside");
    check("2001:db9::1", "outside");
}

#[test]
fn hosts_first_in_host_mode() {
    let routes = [
        "any /a",
        "exact /* foo.com",
        "star /a *.foo.com",
        "deep /x/* *.a.foo.com",
        "near /y *foo.com",
    ];
    check(
        Mode::HostUri,
        &routes,
        &[
            ("GET foo.com/a", "exact"),
            ("GET FOO.com:9080/a", "exact"),
            ("GET b.foo.com/a", "star"),
            ("GET b.a.foo.com/a", "star"),
            ("GET b.a.foo.com/x/1", "deep"),
            ("GET b.a.foo.com/y", "near"),
            ("GET xfoo.com/y", "near"),
            ("GET a.foo.com/x/1", "-"),
            ("GET foo.com/y", "exact"),
            ("GET bar.com/a", "any"),
            ("GET bar.com/b", "-"),
        ],
    );
    check(
        Mode::HostUri,
        &["none /a", "all /* *"],
        &[("GET x/a", "all"), ("GET y/b", "all")],
    );
}

#[test]
fn hosts_are_conditions_in_uri_mode() {
    for mode in [Mode::Uri, Mode::UriWithParameter] {
        let routes = ["any /a", "exact /* foo.com", "star /* *.foo.com,bar.com"];
        check(
            mode,
            &routes,
            &[
                ("GET foo.com/a", "any"),
                ("GET foo.com/b", "exact"),
                ("GET x.y.foo.com/b", "star"),
                ("GET bar.com/b", "star"),
                ("GET x.bar.com/b", "-"),
            ],
        );
    }
}

#[test]
fn hosts_with_a_port_are_compared_with_the_header() {
    for mode in [Mode::Uri, Mode::HostUri] {
        let routes = [
            "port /a foo.com:81,*.foo.com:82",
            "v6 /a [::1]",
            "v6port /b [::1]:80",
        ];
        check(
            mode,
            &routes,
            &[
                ("GET foo.com:81/a", "port"),
                ("GET FOO.com:81/a", "port"),
                ("GET foo.com/a", "-"),
                ("GET foo.com:82/a", "-"),
                ("GET b.foo.com:82/a", "port"),
                ("GET [::1]/a", "v6"),
                ("GET [::1]:80/a", "v6"),
                ("GET [::1]:80/b", "v6port"),
                ("GET [::1]:81/b", "-"),
            ],
        );
    }
    check(
        Mode::HostUri,
        &["plain /a foo.com", "port /* foo.com:81"],
        &[("GET foo.com:81/a", "port"), ("GET foo.com:80/a", "plain")],
    );
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

#[test]
fn the_match_names_its_patterns() {
    let check = |mode, line: &str, request: &str, uri: &str, host: Option<&str>| {
        let router = lines(mode, &[line]);
        let request = Request::new(request);
        let found = router.find(&request.input()).unwrap();
        assert_eq!((&**found.uri, found.host.map(|host| &**host)), (uri, host));
    };
    for mode in [Mode::Uri, Mode::HostUri] {
        check(mode, "r /a,/b/* x,*.y", "GET z.y/b/c", "/b/*", Some("*.y"));
        check(mode, "r /a,/b/* -", "GET z.y/a", "/a", None);
    }
}

#[test]
fn replacing_a_route_in_either_order() {
    for old_first in [true, false] {
        let mut router = Router::new(Mode::HostUri);
        let [old, new] = ["r /a x,y", "r /a x"].map(|line| Arc::new(route(1, line)));
        router.insert(Arc::clone(&old));
        if old_first {
            assert!(router.remove(&old));
        }
        router.insert(Arc::clone(&new));
        assert!(old_first || router.remove(&old));
        assert!(!router.remove(&old));
        assert_eq!(router.dump(), lines_at(1, "r /a x").dump());
        assert!(router.remove(&new) && router.is_empty());
    }
}

fn lines_at(order: u64, line: &str) -> Router<()> {
    router(Mode::HostUri, vec![route(order, line)])
}

#[test]
fn listing_is_stable() {
    let routes = ["c /b *.x", "a /a", "d /b/* y", "b /a *.x,y"];
    let list = |router: &Router<()>| -> Vec<String> {
        let line = |l: Listed<'_, ()>| {
            let host = l.host.map_or("-", |host| host);
            format!("{host} {} {}", l.uri, l.entry.id)
        };
        router.iter().map(line).collect()
    };
    let expected = ["*.x /a b", "*.x /b c", "y /a b", "y /b/* d", "- /a a"];
    assert_eq!(list(&lines(Mode::HostUri, &routes)), expected);
}

/// Every byte of a path its own node: the deepest trie that a path can make. Freed by recursion,
/// it would need more than this stack.
#[test]
fn deep_tries_fit_a_small_stack() {
    const DEEPEST: usize = 4096;
    let work = || {
        let all = "/".repeat(DEEPEST);
        let uris = (1..DEEPEST).map(|len| Arc::from(&all[..len])).collect();
        let entry = Arc::new(Entry {
            uris,
            ..Entry::new("deep", ())
        });
        let mut router = Router::new(Mode::Uri);
        router.insert(Arc::clone(&entry));
        let copy = router.clone();
        assert!(router.remove(&entry) && router.is_empty());
        assert_eq!(copy.iter().count(), DEEPEST - 1);
    };
    std::thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap();
}
