//! Conditions of a route other than its path.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::{MatchInput, host};

/// The methods that a route can name; a method outside of this list fits no route that names any.
const METHODS: [&str; 10] = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE",
];

/// A set of methods; empty means any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodSet(u16);

impl MethodSet {
    /// The set with one more method. `None` when routes cannot name that method.
    #[must_use]
    pub fn with(self, method: &str) -> Option<MethodSet> {
        match MethodSet::of(method) {
            MethodSet(0) => None,
            MethodSet(bit) => Some(MethodSet(self.0 | bit)),
        }
    }

    /// Whether every method is allowed.
    pub fn is_any(self) -> bool {
        self.0 == 0
    }

    /// The methods in it, for display.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        METHODS
            .into_iter()
            .enumerate()
            .filter(move |(at, _)| self.0 & 1 << at != 0)
            .map(|(_, m)| m)
    }

    /// The set of this one method; empty when it is not in the list.
    pub(super) fn of(method: &str) -> MethodSet {
        MethodSet(
            METHODS
                .iter()
                .position(|known| *known == method)
                .map_or(0, |at| 1 << at),
        )
    }

    /// Whether a request with the one method of `requested` may pass.
    pub(super) fn allows(self, requested: MethodSet) -> bool {
        self.0 == 0 || self.0 & requested.0 != 0
    }
}

/// A request, prepared once for all candidates.
pub(super) struct Probe<'a> {
    pub(super) input: &'a MatchInput<'a>,
    pub(super) method: MethodSet,
    /// Hosts are tested here rather than by the way the route was found.
    pub(super) hosts_are_conditions: bool,
}

impl<'a> Probe<'a> {
    pub(super) fn new(input: &'a MatchInput<'a>, hosts_are_conditions: bool) -> Probe<'a> {
        Probe {
            input,
            method: MethodSet::of(input.method),
            hosts_are_conditions,
        }
    }

    /// Whether the client is in one of the networks; true when there are none. An IPv4 client on
    /// an IPv6 socket counts as IPv4.
    #[inline]
    pub(super) fn is_from(&self, networks: &[IpNet]) -> bool {
        if networks.is_empty() {
            return true;
        }
        let remote: IpAddr = self.input.remote.to_canonical();
        networks.iter().any(|network| network.contains(&remote))
    }

    /// The first pattern that fits the request's host: `Some(None)` when there are no patterns,
    /// `None` when none fits.
    #[inline]
    pub(super) fn host_among<'r>(&self, patterns: &'r [Arc<str>]) -> Option<Option<&'r Arc<str>>> {
        if patterns.is_empty() {
            return Some(None);
        }
        let fits = |pattern: &&Arc<str>| {
            if host::has_port(pattern) {
                host::fits_with_port(pattern, self.input.http_host)
            } else {
                host::fits(pattern, self.input.host)
            }
        };
        patterns.iter().find(fits).map(Some)
    }
}
