//! The routes of one path, in the order in which they are tried.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use lockgate_plugin::{Var, VarSource, VarValue};
use smallvec::SmallVec;

use super::path::{Matcher, PathKey};
use super::predicate::Probe;
use super::trie::{Prefixes, Slot, Trie};
use super::{Entry, Match, Observer, Params, Unmet};

/// Routes by path.
pub(super) type Paths<T> = Trie<Candidates<T>>;

/// Stands for "no host" in [`Candidate::host`].
const NO_HOST: u32 = u32::MAX;

/// One pattern of one route.
pub struct Candidate<T> {
    entry: Arc<Entry<T>>,
    /// Index into `entry.uris`.
    uri: u32,
    /// Index into `entry.hosts`, or [`NO_HOST`].
    host: u32,
    /// What the path must match beyond its prefix; shared by all hosts of the route.
    matcher: Option<Arc<Matcher>>,
}

impl<T> Clone for Candidate<T> {
    fn clone(&self) -> Self {
        Candidate {
            entry: Arc::clone(&self.entry),
            matcher: self.matcher.clone(),
            uri: self.uri,
            host: self.host,
        }
    }
}

impl<T> std::fmt::Debug for Candidate<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Candidate")
            .field(&self.entry.id)
            .field(&self.uri)
            .finish()
    }
}

impl<T> Candidate<T> {
    /// For `entry.uris[uri]`, filed under no host.
    pub(super) fn new(entry: &Arc<Entry<T>>, uri: usize, matcher: Option<Arc<Matcher>>) -> Self {
        Candidate {
            entry: Arc::clone(entry),
            uri: index(uri),
            host: NO_HOST,
            matcher,
        }
    }

    /// The same, filed under `entry.hosts[host]`.
    pub(super) fn at_host(&self, host: usize) -> Self {
        Candidate {
            host: index(host),
            ..self.clone()
        }
    }

    /// The route.
    pub fn entry(&self) -> &Arc<Entry<T>> {
        &self.entry
    }

    /// The path pattern.
    pub fn uri(&self) -> &Arc<str> {
        &self.entry.uris[self.uri as usize]
    }

    /// The host pattern it is filed under; `None` for any host and in modes without host lookup.
    pub fn host(&self) -> Option<&Arc<str>> {
        self.entry.hosts.get(self.host as usize)
    }

    fn order(&self, other: &Self) -> Ordering {
        let key = |c: &Self| {
            (
                Reverse(c.entry.priority),
                Reverse(c.uri().len()),
                c.entry.order,
            )
        };
        key(self)
            .cmp(&key(other))
            .then_with(|| self.entry.id.cmp(&other.entry.id))
            .then_with(|| (self.uri, self.host).cmp(&(other.uri, other.host)))
    }

    /// Whether its path pattern fits.
    pub(super) fn fits_path(&self, path: &str) -> bool {
        let pattern = self.uri();
        match &self.matcher {
            Some(matcher) => matcher.captures(path).is_some(),
            None => match pattern.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => **pattern == *path,
            },
        }
    }

    /// The match, when every condition holds.
    #[inline]
    fn test<'r, O: Observer<'r, T>>(
        &'r self,
        probe: &Probe<'_>,
        observer: O,
    ) -> Option<Match<'r, T>> {
        let unmet = |why: Unmet<'_>| {
            observer.unmet(self, &why);
            None
        };
        if !observer.looks_at(self) {
            return None;
        }
        let entry = &*self.entry;
        if !entry.methods.allows(probe.method) {
            return unmet(Unmet::Method);
        }
        if !probe.is_from(&entry.remote_addrs) {
            return unmet(Unmet::RemoteAddr);
        }
        let host = match self.host {
            NO_HOST if probe.hosts_are_conditions => match probe.host_among(&entry.hosts) {
                Some(host) => host,
                None => return unmet(Unmet::Host),
            },
            NO_HOST => None,
            host => entry.hosts.get(host as usize),
        };
        let params = match &self.matcher {
            Some(matcher) => match matcher.captures(probe.input.path) {
                Some(params) => params,
                None => return unmet(Unmet::Path),
            },
            None => SmallVec::new(),
        };
        if let Some(vars) = &entry.vars {
            let source = WithParams {
                params: &params,
                rest: probe.input.vars,
            };
            if !vars.eval(&source) {
                return unmet(Unmet::Vars(vars, &source));
            }
        }
        observer.found(Match {
            entry: &self.entry,
            uri: self.uri(),
            host,
            params,
        })
    }
}

/// Variables of a request together with the parameters of the pattern that is being tested.
struct WithParams<'a> {
    params: &'a Params,
    rest: &'a dyn VarSource,
}

impl VarSource for WithParams<'_> {
    fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
        match var.uri_param() {
            Some(name) => {
                let (_, value) = self.params.iter().find(|(known, _)| **known == *name)?;
                Some(VarValue::Str(Cow::Borrowed(value)))
            }
            None => self.rest.var(var),
        }
    }
}

/// An index into a route's lists. Configuration cannot hold 2^32 patterns; one beyond would be
/// out of range rather than wrong.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NO_HOST)
}

/// See the module. Kept sorted.
#[derive(Debug)]
pub(super) struct Candidates<T>(SmallVec<[Candidate<T>; 1]>);

impl<T> Clone for Candidates<T> {
    fn clone(&self) -> Self {
        Candidates(self.0.clone())
    }
}

impl<T> Default for Candidates<T> {
    fn default() -> Self {
        Candidates(SmallVec::new())
    }
}

impl<T> Slot for Candidates<T> {
    fn is_vacant(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Candidates<T> {
    pub(super) fn add(&mut self, candidate: Candidate<T>) {
        let at = self
            .0
            .partition_point(|other| other.order(&candidate).is_lt());
        self.0.insert(at, candidate);
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Candidate<T>> {
        self.0.iter()
    }

    pub(super) fn has(&self, entry: &Entry<T>) -> bool {
        self.0.iter().any(|c| std::ptr::eq(&*c.entry, entry))
    }

    pub(super) fn drop_entry(&mut self, entry: &Entry<T>) {
        self.0.retain(|c| !std::ptr::eq(&*c.entry, entry));
    }

    #[inline]
    fn first<'r, O: Observer<'r, T>>(
        &'r self,
        probe: &Probe<'_>,
        observer: O,
    ) -> Option<Match<'r, T>> {
        self.0
            .iter()
            .find_map(|candidate| candidate.test(probe, observer))
    }
}

/// The route for a path: exact, then the longest prefix.
#[inline]
pub(super) fn find<'r, T, O: Observer<'r, T>>(
    paths: &'r Paths<T>,
    probe: &Probe<'_>,
    observer: O,
) -> Option<Match<'r, T>> {
    let mut prefixes = Prefixes::new();
    let exact = paths.lookup(probe.input.path.as_bytes(), &mut prefixes);
    exact
        .and_then(|exact| exact.first(probe, observer))
        .or_else(|| {
            let mut longest_first = prefixes.iter().rev();
            longest_first.find_map(|prefix| prefix.first(probe, observer))
        })
}

/// Removes a route from a path. False when it is not there; then nothing is copied.
pub(super) fn remove<T>(paths: &mut Paths<T>, key: &PathKey<'_>, entry: &Entry<T>) -> bool {
    let found = paths
        .get(key.text, key.kind)
        .is_some_and(|list| list.has(entry));
    if found {
        paths.edit(key.text, key.kind, |list| list.drop_entry(entry));
    }
    found
}

/// One line for every candidate.
pub(super) fn dump<T>(paths: &Paths<T>, before: &str, lines: &mut Vec<String>) {
    paths.visit(|node| {
        for (kind, list) in ["=", "^"].into_iter().zip(node.slots()) {
            for c in list.into_iter().flat_map(Candidates::iter) {
                let (shape, uri, id) = (node.shape(), c.uri(), &c.entry.id);
                let priority = c.entry.priority;
                lines.push(format!("{before}{kind}{shape} {uri} -> {id} {priority}"));
            }
        }
    });
}
