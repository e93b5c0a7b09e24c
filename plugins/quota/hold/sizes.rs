//! How much is asked for, and when it makes no sense to ask.

use super::slot::MOST;
use super::terms::{Terms, nanos};
use crate::Nanos;
use crate::charge::Law;
use crate::lease::Grant;

/// So many ticks' demand is asked for: less often than a tick, and yet less than lies idle for long.
pub(super) const HORIZON: f64 = 8.0;

/// What is known of a key's need.
pub(super) struct Need {
    /// Permits in a nanosecond; 0 if that is not known.
    pub demand: f64,
    /// What was asked for last.
    pub last: u64,
    /// How long ago there was an answer.
    pub since: Nanos,
    /// Gateways that ask for it.
    pub nodes: u64,
    /// What requests lack that wait.
    pub lacked: u64,
    /// The dearest of them.
    pub cost: u64,
    /// What is held still.
    pub held: u64,
}

/// What to ask for.
pub(super) fn want(terms: &Terms, need: &Need) -> u64 {
    let asked = (need.demand * terms.tick as f64 * HORIZON).ceil() as u64;
    let doubled = match need.since < terms.tick {
        true => need.last.saturating_mul(2),
        false => 0,
    };
    let least = match need.demand > 0.0 {
        // Half of it: what a slow gateway asks for lies with it for long.
        true => terms.first(need.nodes) / 2,
        false => terms.first(need.nodes),
    };
    let want = asked.max(doubled).max(least).max(1);
    // Of what all may hold, each has its part; more only for a request that costs more.
    let part = terms.most.map_or(terms.limit, |most| {
        let part = most / terms.nodes.max(need.nodes);
        part.saturating_sub(need.held).max(1)
    });
    want.min(part)
        .max(need.lacked.min(part.max(need.cost)))
        .min(terms.limit)
        // What does not fit into a word would be lost.
        .min(MOST.saturating_sub(need.held))
}

/// What permits are given back to, of which so many were held before.
pub(super) fn mark(terms: &Terms, held: u64, old: u64, grant: &Grant) -> u64 {
    match terms.law {
        // Some are of the window before: what is given back of them makes no room in this one.
        Law::Sliding { .. } if held > 0 => old.max(grant.mark.saturating_sub(1)),
        _ => grant.mark,
    }
}

/// Until when it makes no sense to ask again, after an answer.
pub(super) fn blocked(terms: &Terms, want: u64, grant: &Grant, now: Nanos) -> Nanos {
    if grant.permits >= want {
        return 0;
    }
    let (soon, retry) = (terms.tick / 2, nanos(grant.retry));
    let wait = match terms.law {
        // There is more, only less for each.
        Law::Fixed { .. } if grant.permits > 0 => return 0,
        // Others may give some back.
        Law::Fixed { .. } if grant.others > 0 => retry.min(soon),
        Law::Fixed { .. } => retry,
        // What comes, comes all the time: it is fetched in portions.
        _ => retry.max(terms.tick),
    };
    now.saturating_add(wait.max(1))
}
