//! Finds the route of a request.
//!
//! A router is a persistent structure: cloning it is one reference count, and a change copies the
//! nodes on the way to the changed key and nothing else. So a snapshot with one changed route
//! shares everything with the one before, and a request that holds the old one sees no change.
//!
//! Selection, in this order (the original's rules):
//! 1. In [`Mode::HostUri`], the paths of the exact host, then of every wildcard host from the
//!    longest to the shortest, then those without a host. The first that has a match wins, so a
//!    route with a host beats any route without.
//! 2. Among paths: the exact path, then prefixes from the longest to the shortest.
//! 3. Among routes of the same path: higher priority, then longer pattern, then lower `order`.
//! 4. The first whose conditions hold: methods, client addresses, hosts (in the other modes), the
//!    rest of the path pattern, then `vars`, which may read the captured parameters.
//!
//! `find` allocates nothing unless the pattern captures parameters.
//!
//! ```
//! # use std::sync::Arc;
//! # use lockgate::router::{Entry, Mode, Router};
//! let mut router = Router::new(Mode::HostUri);
//! let route = Arc::new(Entry { uris: Box::new(["/shop/*".into()]), ..Entry::new("1", "a value") });
//! router.insert(Arc::clone(&route));
//! let snapshot = router.clone();
//! assert!(router.remove(&route));
//! assert_eq!((router.dump().len(), snapshot.dump().len()), (0, 1));
//! ```

mod candidate;
mod host;
mod leaf;
mod observer;
mod path;
mod predicate;
#[cfg(test)]
mod tests;
mod trie;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use lockgate_plugin::{Expr, VarSource};
use smallvec::SmallVec;

use candidate::{Candidates, Paths};
use host::{HostKey, Hosts};
use path::PathKey;
use predicate::Probe;

pub use candidate::Candidate;
pub use observer::{Observer, Unmet, Unseen};
pub use predicate::MethodSet;

/// How routes are looked up: the setting `apisix.router.http`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// `radixtree_uri`: by path; hosts are conditions.
    Uri,
    /// `radixtree_host_uri`: by host, then by path.
    #[default]
    HostUri,
    /// `radixtree_uri_with_parameter`: as [`Mode::Uri`], and `:name` captures a path segment.
    UriWithParameter,
}

/// One route as the router sees it.
#[derive(Debug)]
pub struct Entry<T> {
    /// The route's id. Breaks ties of `order`.
    pub id: Arc<str>,
    /// Position in the configuration; lower wins among equals.
    pub order: u64,
    /// Higher wins among routes of the same path.
    pub priority: i64,
    /// Path patterns, at least one.
    pub uris: Box<[Arc<str>]>,
    /// Host patterns, lower case: the route's own, else its service's. Empty: any host.
    pub hosts: Box<[Arc<str>]>,
    /// Methods; empty: any.
    pub methods: MethodSet,
    /// Client networks; empty: any.
    pub remote_addrs: Box<[IpNet]>,
    /// A condition on the request.
    pub vars: Option<Arc<Expr>>,
    /// What a match gives.
    pub value: T,
}

impl<T> Entry<T> {
    /// An entry without any condition and without a path.
    pub fn new(id: &str, value: T) -> Entry<T> {
        Entry {
            id: id.into(),
            order: 0,
            priority: 0,
            uris: Box::default(),
            hosts: Box::default(),
            methods: MethodSet::default(),
            remote_addrs: Box::default(),
            vars: None,
            value,
        }
    }
}

/// What a request is matched by.
pub struct MatchInput<'a> {
    /// The normal form of the path, see `Target::match_path`.
    pub path: &'a str,
    /// Lower case, without port.
    pub host: &'a str,
    /// The whole `Host` header, for patterns with a port.
    pub http_host: &'a [u8],
    /// Such as `GET`.
    pub method: &'a str,
    /// The client's address.
    pub remote: IpAddr,
    /// Variables, for `vars`.
    pub vars: &'a dyn VarSource,
}

/// Captured path parameters, in the order of the pattern.
pub type Params = SmallVec<[(Arc<str>, Box<str>); 2]>;

/// The route that was found.
#[derive(Debug)]
pub struct Match<'r, T> {
    /// The route.
    pub entry: &'r Arc<Entry<T>>,
    /// The path pattern that matched, as written.
    pub uri: &'r Arc<str>,
    /// The host pattern that matched, as written; `None` when the route has no hosts.
    pub host: Option<&'r Arc<str>>,
    /// Captured parameters, without the one of a final `/*`: see [`tail`].
    pub params: Params,
}

/// What a final `/*` of a pattern stands for in a path that it matched: the parameter `:ext`.
/// Computed on demand, because nearly every pattern ends so and hardly anybody asks.
pub fn tail<'p>(uri: &str, path: &'p str) -> Option<&'p str> {
    let prefix = uri
        .strip_suffix('*')
        .filter(|prefix| prefix.ends_with('/'))?;
    path.strip_prefix(prefix)
}

/// One line of [`Router::iter`].
#[derive(Debug)]
pub struct Listed<'r, T> {
    /// The host pattern it is filed under; `None` for any host and in modes without host lookup.
    pub host: Option<&'r Arc<str>>,
    /// The path pattern.
    pub uri: &'r Arc<str>,
    /// The route.
    pub entry: &'r Arc<Entry<T>>,
}

/// Routes, ready for lookup.
#[derive(Debug)]
pub struct Router<T> {
    mode: Mode,
    /// Paths by host; empty unless in [`Mode::HostUri`].
    hosts: Hosts<T>,
    /// The same for patterns with a port, which are compared with the whole `Host` header.
    hosts_with_port: Hosts<T>,
    /// Paths of routes that are not filed by host.
    anywhere: Paths<T>,
}

impl<T> Clone for Router<T> {
    /// Four reference counts; nothing is copied.
    fn clone(&self) -> Self {
        Router {
            mode: self.mode,
            hosts: self.hosts.clone(),
            hosts_with_port: self.hosts_with_port.clone(),
            anywhere: self.anywhere.clone(),
        }
    }
}

impl<T> Router<T> {
    /// An empty router.
    pub fn new(mode: Mode) -> Router<T> {
        Router {
            mode,
            hosts: Hosts::default(),
            hosts_with_port: Hosts::default(),
            anywhere: Paths::default(),
        }
    }

    /// Adds a route. The same `Arc` must not be added twice; another version of a route may be
    /// added before or after the old one is removed.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the router keeps it, so it asks for it"
    )]
    pub fn insert(&mut self, entry: Arc<Entry<T>>) {
        let by_host = self.mode == Mode::HostUri && !entry.hosts.is_empty();
        for (at, uri) in entry.uris.iter().enumerate() {
            let key = PathKey::new(uri, self.mode);
            let matcher = key.matcher();
            let candidate = Candidate::new(&entry, at, matcher);
            if !by_host {
                self.anywhere
                    .edit(key.text, key.kind, |list| list.add(candidate));
                continue;
            }
            for (host_at, host) in entry.hosts.iter().enumerate() {
                let host = HostKey::new(host);
                let candidate = candidate.at_host(host_at);
                self.hosts_for(&host)
                    .edit(&host.reversed, host.kind, |paths| {
                        let paths = paths.get_or_insert_default();
                        paths.edit(key.text, key.kind, |list| list.add(candidate));
                    });
            }
        }
    }

    /// Removes a route: this very object, not one that looks the same. False when it was not there.
    #[must_use = "false means that the route stays in the router"]
    pub fn remove(&mut self, entry: &Entry<T>) -> bool {
        let by_host = self.mode == Mode::HostUri && !entry.hosts.is_empty();
        let mut removed = false;
        for uri in &entry.uris {
            let key = PathKey::new(uri, self.mode);
            if !by_host {
                removed |= candidate::remove(&mut self.anywhere, &key, entry);
                continue;
            }
            for host in &entry.hosts {
                let host = HostKey::new(host);
                removed |= host::remove(self.hosts_for(&host), &host, &key, entry);
            }
        }
        removed
    }

    /// The route for a request, by the rules in the module's documentation.
    pub fn find<'r>(&'r self, input: &MatchInput<'_>) -> Option<Match<'r, T>> {
        self.search(input, Unseen)
    }

    /// The same, and somebody watches.
    pub fn search<'r, O: Observer<'r, T>>(
        &'r self,
        input: &MatchInput<'_>,
        observer: O,
    ) -> Option<Match<'r, T>> {
        let probe = Probe::new(input, self.mode != Mode::HostUri);
        if self.mode == Mode::HostUri {
            if !self.hosts_with_port.is_empty()
                && let Some(found) =
                    host::find(&self.hosts_with_port, input.http_host, &probe, observer)
            {
                return Some(found);
            }
            if let Some(found) = host::find(&self.hosts, input.host.as_bytes(), &probe, observer) {
                return Some(found);
            }
        }
        candidate::find(&self.anywhere, &probe, observer)
    }

    /// Every route filed under a host whose path pattern fits, whatever the host; of interest when
    /// nothing was found. It looks at all there are and gives the first `most`.
    pub fn with_path<'r>(&'r self, path: &str, most: usize) -> Vec<&'r Candidate<T>> {
        let mut found = Vec::new();
        for hosts in [&self.hosts_with_port, &self.hosts] {
            hosts.visit(|node| {
                for paths in node.slots().into_iter().flatten().flatten() {
                    paths.visit(|node| {
                        let lists = node.slots().into_iter().flatten();
                        let all = lists.flat_map(Candidates::iter);
                        let room = most - found.len();
                        let fit = all.filter(|candidate| candidate.fits_path(path));
                        found.extend(fit.take(room));
                    });
                }
            });
        }
        found
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.hosts_with_port.is_empty() && self.anywhere.is_empty()
    }

    /// Every host and path with its routes: by host key, then by path, then in the order in which
    /// they are tried; routes without host last. The same content gives the same order.
    pub fn iter(&self) -> impl Iterator<Item = Listed<'_, T>> {
        let mut all = Vec::new();
        for hosts in [&self.hosts_with_port, &self.hosts] {
            hosts.visit(|node| {
                for paths in node.slots().into_iter().flatten().flatten() {
                    list(paths, &mut all);
                }
            });
        }
        list(&self.anywhere, &mut all);
        all.into_iter()
    }

    /// The structure as text: two routers with the same routes give the same lines, however they
    /// came to be. For tests and debugging.
    pub fn dump(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, hosts) in [("port ", &self.hosts_with_port), ("host ", &self.hosts)] {
            hosts.visit(|node| {
                for (kind, paths) in ["=", "^"].into_iter().zip(node.slots()) {
                    if let Some(Some(paths)) = paths {
                        let shape = node.shape();
                        candidate::dump(paths, &format!("{name}{kind}{shape} "), &mut lines);
                    }
                }
            });
        }
        candidate::dump(&self.anywhere, "any ", &mut lines);
        lines
    }

    fn hosts_for(&mut self, key: &HostKey) -> &mut Hosts<T> {
        if key.with_port {
            &mut self.hosts_with_port
        } else {
            &mut self.hosts
        }
    }
}

fn list<'r, T>(paths: &'r Paths<T>, all: &mut Vec<Listed<'r, T>>) {
    paths.visit(|node| {
        for candidate in node
            .slots()
            .into_iter()
            .flatten()
            .flat_map(Candidates::iter)
        {
            all.push(Listed {
                host: candidate.host(),
                uri: candidate.uri(),
                entry: candidate.entry(),
            });
        }
    });
}
