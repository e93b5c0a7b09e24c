//! Watching a search, for `lockgate explain`.
//!
//! The search is generic over who watches, so that a request's search, which nobody watches, is
//! compiled as if this did not exist.

use lockgate_plugin::{Expr, VarSource};

use super::{Candidate, Match};

/// Why a candidate does not match: the first condition that failed.
pub enum Unmet<'a> {
    /// The request's method is not among the route's.
    Method,
    /// The client's address is in none of the networks.
    RemoteAddr,
    /// The request's host fits none of the patterns.
    Host,
    /// The rest of the path pattern does not fit.
    Path,
    /// The condition does not hold for these variables.
    Vars(&'a Expr, &'a dyn VarSource),
}

/// Sees which candidates a search looks at, in their order. By value, so that nobody has no size.
pub trait Observer<'r, T>: Copy {
    /// Whether the candidate is to be looked at.
    fn looks_at(self, candidate: &'r Candidate<T>) -> bool;
    /// It does not match.
    fn unmet(self, candidate: &'r Candidate<T>, why: &Unmet<'_>);
    /// It matches. Giving it back ends the search; else it goes on with the next candidate.
    fn found(self, found: Match<'r, T>) -> Option<Match<'r, T>>;
}

/// Nobody watches.
#[derive(Clone, Copy)]
pub struct Unseen;

impl<'r, T> Observer<'r, T> for Unseen {
    #[inline(always)]
    fn looks_at(self, _: &'r Candidate<T>) -> bool {
        true
    }
    #[inline(always)]
    fn unmet(self, _: &'r Candidate<T>, _: &Unmet<'_>) {}
    #[inline(always)]
    fn found(self, found: Match<'r, T>) -> Option<Match<'r, T>> {
        Some(found)
    }
}
