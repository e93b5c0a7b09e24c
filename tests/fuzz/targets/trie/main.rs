//! The router's tries against a list that is searched from front to back.
//!
//! The input is text, one step a line; the first line may name the mode:
//!
//! ```text
//! mode uri | host | parameter
//! + ID ORDER PRIORITY URIS HOSTS METHODS     adds a route, in place of one with this id
//! - ID                                       removes it
//! = anything                                 keeps a copy, which must not change any more
//! ? METHOD AUTHORITY PATH                    looks up
//! ```
//!
//! Lists are separated by commas; `.` is the empty one.
#![no_main]

mod model;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use lockgate::router::{Entry, MatchInput, MethodSet, Mode, Router, tail};
use lockgate_plugin::{Var, VarSource, VarValue};
use model::Seen;

/// Steps of one input: each change is compared with a router built afresh.
const MOST_STEPS: usize = 64;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.lines().take(MOST_STEPS).peekable();
    let mode = match lines.next_if(|line| line.starts_with("mode ")) {
        Some("mode uri") => Mode::Uri,
        Some("mode parameter") => Mode::UriWithParameter,
        _ => Mode::HostUri,
    };
    let mut run = Run {
        mode,
        router: Router::new(mode),
        routes: Vec::new(),
        copies: Vec::new(),
    };
    lines.for_each(|line| run.step(line));
    for (copy, dump) in &run.copies {
        assert_eq!(&copy.dump(), dump, "a copy changed");
    }
    for route in &run.routes {
        assert!(run.router.remove(route));
    }
    assert!(
        run.router.is_empty(),
        "something is left: {:?}",
        run.router.dump()
    );
});

type Route = Arc<Entry<()>>;

struct Run {
    mode: Mode,
    router: Router<()>,
    routes: Vec<Route>,
    copies: Vec<(Router<()>, Vec<String>)>,
}

impl Run {
    fn step(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["+", id, order, priority, uris, hosts, methods] => {
                let Some(new) = route([id, order, priority, uris, hosts, methods]) else {
                    return;
                };
                // The new version comes before the old one goes, as in the gateway.
                self.router.insert(Arc::clone(&new));
                self.remove(id);
                self.routes.push(new);
                self.compare();
            }
            ["-", id] => {
                self.remove(id);
                self.compare();
            }
            ["=", ..] => self.copies.push((self.router.clone(), self.router.dump())),
            ["?", method, authority, path @ ..] => {
                self.look_up(method, authority, &path.join(" "));
            }
            _ => {}
        }
    }

    fn remove(&mut self, id: &str) {
        let Some(at) = self.routes.iter().position(|route| &*route.id == id) else {
            return;
        };
        let old = self.routes.swap_remove(at);
        assert!(self.router.remove(&old));
        assert!(!self.router.remove(&old), "removed twice");
    }

    /// The router is the one that is built from what is in it now, in any order.
    fn compare(&self) {
        let mut fresh = Router::new(self.mode);
        self.routes
            .iter()
            .rev()
            .for_each(|route| fresh.insert(Arc::clone(route)));
        assert_eq!(self.router.dump(), fresh.dump());
        assert_eq!(self.router.is_empty(), self.routes.is_empty());
        assert_eq!(self.router.iter().count(), self.router.dump().len());
    }

    fn look_up(&self, method: &str, authority: &str, path: &str) {
        let host = lockgate_plugin::target::host_of(authority.as_bytes());
        let request = MatchInput {
            path,
            host: &host,
            http_host: authority.as_bytes(),
            method,
            remote: "192.0.2.1".parse().expect("an address"),
            vars: &NoVars,
        };
        let found = self.router.find(&request).map(|found| Seen {
            id: found.entry.id.to_string(),
            uri: found.uri.to_string(),
            host: found.host.map(ToString::to_string),
            params: found
                .params
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect(),
        });
        if let Some(found) = &found {
            tail(&found.uri, path);
        }
        assert_eq!(found, model::find(self.mode, &self.routes, &request));
    }
}

/// A request without variables.
struct NoVars;

impl VarSource for NoVars {
    fn var<'b>(&'b self, _: &'b Var) -> Option<VarValue<'b>> {
        None
    }
}

fn route([id, order, priority, uris, hosts, methods]: [&str; 6]) -> Option<Route> {
    let list = |text: &str| -> Box<[Arc<str>]> {
        let items = text.split(',').filter(|_| text != ".");
        items.map(Arc::from).collect()
    };
    let methods = list(methods)
        .iter()
        .try_fold(MethodSet::default(), |set, m| set.with(m))?;
    let uris = list(uris);
    if uris.is_empty() {
        return None;
    }
    Some(Arc::new(Entry {
        order: order.parse().ok()?,
        priority: priority.parse().ok()?,
        uris,
        hosts: list(&hosts.to_lowercase()),
        methods,
        ..Entry::new(id, ())
    }))
}
