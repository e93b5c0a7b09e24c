mod hosts;
mod model;
mod paths;
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
