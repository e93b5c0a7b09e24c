//! Host patterns: a trie over reversed names, so that `*.example.com` is a prefix.

use smallvec::SmallVec;

use super::candidate::{self, Paths};
use super::path::PathKey;
use super::predicate::Probe;
use super::trie::{Kind, Prefixes, Slot, Trie};
use super::{Entry, Match, Observer};

/// Paths by host.
pub(super) type Hosts<T> = Trie<Option<Paths<T>>>;

/// A host name backwards. Names have at most 253 characters; longer input costs an allocation.
type Reversed = SmallVec<[u8; 256]>;

impl<T> Slot for Option<Paths<T>> {
    fn is_vacant(&self) -> bool {
        self.is_none()
    }
}

/// Where a host pattern is filed.
pub(super) struct HostKey {
    /// Without the star.
    pub(super) reversed: Reversed,
    pub(super) kind: Kind,
    pub(super) with_port: bool,
}

impl HostKey {
    pub(super) fn new(pattern: &str) -> HostKey {
        let (kind, name) = match pattern.strip_prefix('*') {
            Some(name) => (Kind::Prefix, name),
            None => (Kind::Exact, pattern),
        };
        HostKey {
            reversed: reversed(name.as_bytes()),
            kind,
            with_port: has_port(pattern),
        }
    }
}

/// Whether a pattern names a port. The colons of an IPv6 address in brackets do not count.
pub(super) fn has_port(pattern: &str) -> bool {
    pattern
        .rsplit(']')
        .next()
        .is_some_and(|after| after.contains(':'))
}

/// Whether a host fits a pattern that names no port. `host` is in lower case.
pub(super) fn fits(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix),
        None => host == pattern,
    }
}

/// Whether a `Host` header fits a pattern with a port; in any case.
pub(super) fn fits_with_port(pattern: &str, http_host: &[u8]) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => http_host
            .len()
            .checked_sub(suffix.len())
            .is_some_and(|at| http_host[at..].eq_ignore_ascii_case(suffix.as_bytes())),
        None => http_host.eq_ignore_ascii_case(pattern.as_bytes()),
    }
}

fn reversed(name: &[u8]) -> Reversed {
    name.iter().rev().map(u8::to_ascii_lowercase).collect()
}

/// The route for a host: exact, then the longest wildcard.
#[inline]
pub(super) fn find<'r, T, O: Observer<'r, T>>(
    hosts: &'r Hosts<T>,
    host: &[u8],
    probe: &Probe<'_>,
    observer: O,
) -> Option<Match<'r, T>> {
    if hosts.is_empty() {
        return None;
    }
    let mut wildcards = Prefixes::new();
    let exact = hosts.lookup(&reversed(host), &mut wildcards);
    let hosts = exact.into_iter().chain(wildcards.into_iter().rev());
    hosts
        .flatten()
        .find_map(|paths| candidate::find(paths, probe, observer))
}

/// Removes a route from a path of a host. False when it is not there; then nothing is copied.
pub(super) fn remove<T>(
    hosts: &mut Hosts<T>,
    host: &HostKey,
    path: &PathKey<'_>,
    entry: &Entry<T>,
) -> bool {
    let paths = hosts
        .get(&host.reversed, host.kind)
        .and_then(Option::as_ref);
    let list = paths.and_then(|paths| paths.get(path.text, path.kind));
    let found = list.is_some_and(|list| list.has(entry));
    if found {
        hosts.edit(&host.reversed, host.kind, |slot| {
            if let Some(paths) = slot {
                paths.edit(path.text, path.kind, |list| list.drop_entry(entry));
                if paths.is_empty() {
                    *slot = None;
                }
            }
        });
    }
    found
}
