//! What routes do with their limits while nobody counts.

use serde_json::{Value, json};

use super::limits_faults::Fault;
use super::limits_load::Sample;
use crate::value::merge;

/// Admitted by routes with a limit that is reached.
const TIGHT: usize = 100;
/// Never reached.
const PLENTY: usize = 10_000_000;
/// Longer than anything here takes: there is one window.
const WINDOW: u64 = 3_600;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// `limit-count` with three rules: 500 when nobody counts.
    Strict,
    /// The same with `allow_degradation`.
    Lenient,
    /// `limit-count` with a limit that is reached; 500 when nobody counts.
    Tight,
    /// `limit`, which refuses when nobody counts.
    Denies,
    /// `limit` with a limit that is reached; the gateway counts alone when nobody else does.
    Alone,
    /// `limit` with permits taken ahead.
    Leased,
}

impl Policy {
    /// All of them; the strict one is the first.
    pub(super) const ALL: [Policy; 6] = [
        Policy::Strict,
        Policy::Lenient,
        Policy::Tight,
        Policy::Denies,
        Policy::Alone,
        Policy::Leased,
    ];

    /// For the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Policy::Strict => "limit-count, error",
            Policy::Lenient => "limit-count, allow",
            Policy::Tight => "limit-count, reached",
            Policy::Denies => "limit exact, deny",
            Policy::Alone => "limit exact, local, reached",
            Policy::Leased => "limit lease, local",
        }
    }

    /// For paths and keys.
    pub(super) fn id(self) -> &'static str {
        match self {
            Policy::Strict => "strict",
            Policy::Lenient => "lenient",
            Policy::Tight => "tight",
            Policy::Denies => "denies",
            Policy::Alone => "alone",
            Policy::Leased => "leased",
        }
    }

    /// The route's plugins; `store` says where is counted.
    pub(super) fn plugins(self, store: &Value) -> Value {
        let limit = |count: usize, mode: &str, on_error: &str| {
            let one = json!({ "name": self.id(), "algorithm": "fixed_window", "count": count,
                "time_window": WINDOW, "key": "$uri", "mode": mode, "on_store_error": on_error });
            json!({ "limit": { "store": store, "gateways": 1, "limits": [one] } })
        };
        let count = |mut conf: Value| {
            merge(&mut conf, store);
            json!({ "limit-count": conf })
        };
        let keys = ["a $uri", "b $remote_addr $uri", "c $host $uri"];
        let rules = keys.map(|key| json!({ "key": key, "count": PLENTY, "time_window": WINDOW }));
        match self {
            Policy::Strict => count(json!({ "rules": rules })),
            Policy::Lenient => count(json!({ "rules": rules, "allow_degradation": true })),
            Policy::Tight => count(json!({ "count": TIGHT, "time_window": WINDOW, "key": "uri" })),
            Policy::Denies => limit(PLENTY, "exact", "deny"),
            Policy::Alone => limit(TIGHT, "exact", "local"),
            Policy::Leased => limit(PLENTY, "lease", "local"),
        }
    }

    /// What only those requests get for which nobody counts.
    pub(super) fn fails(self) -> Option<u16> {
        match self {
            Policy::Strict | Policy::Tight => Some(500),
            Policy::Denies => Some(429),
            Policy::Lenient | Policy::Alone | Policy::Leased => None,
        }
    }

    /// Whether a request may end like this.
    pub(super) fn allows(self, sample: &Sample, away: bool) -> bool {
        let refused = match self {
            Policy::Tight => Some(503),
            Policy::Alone => Some(429),
            _ => None,
        };
        let status = Some(sample.status);
        sample.status == 200 || status == refused || (away && status == self.fails())
    }

    /// How many may be admitted in all, where that is bounded.
    pub(super) fn most(self, fault: Fault) -> Option<usize> {
        // A server that comes back empty counts anew.
        let servers = 1 + usize::from(fault.forgets());
        match self {
            // Charged, and the answer was late: nobody was admitted for it.
            Policy::Tight => Some(TIGHT * servers),
            // What it admits alone the server does not know of.
            Policy::Alone => Some(TIGHT * (servers + 1)),
            _ => None,
        }
    }
}
