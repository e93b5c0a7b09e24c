//! Writes down what a search for a route looks at.

use std::cell::RefCell;
use std::sync::Arc;

use super::report::{CandidateSeen, Failed, Verdict};
use crate::config::snapshot::Route;
use crate::router::{Candidate, Match, Observer, Unmet};

/// Candidates that are listed. A path may have thousands of routes that differ in `vars` only.
const MOST_CANDIDATES: usize = 100;
/// Items of a list in one line.
const MOST_ITEMS: usize = 8;

/// A match of the router.
pub(super) type Found<'r> = Match<'r, Arc<Route>>;

/// Watches one search. It lets the search go on behind the match, to tell what is behind it.
pub(super) struct Trace<'r> {
    /// What the client's conditions are compared with.
    facts: Facts,
    seen: RefCell<Seen<'r>>,
}

/// The request as conditions see it.
pub(super) struct Facts {
    pub(super) method: String,
    pub(super) client: String,
    pub(super) http_host: String,
    pub(super) match_path: String,
}

#[derive(Default)]
struct Seen<'r> {
    candidates: Vec<CandidateSeen>,
    left_out: usize,
    found: Option<Found<'r>>,
}

/// What a search has shown.
pub(super) struct Shown<'r> {
    pub(super) candidates: Vec<CandidateSeen>,
    pub(super) left_out: usize,
    pub(super) found: Option<Found<'r>>,
}

impl<'r> Trace<'r> {
    pub(super) fn new(facts: Facts) -> Trace<'r> {
        Trace {
            facts,
            seen: RefCell::default(),
        }
    }

    pub(super) fn shown(self) -> Shown<'r> {
        let Seen {
            candidates,
            left_out,
            found,
        } = self.seen.into_inner();
        Shown {
            candidates,
            left_out,
            found,
        }
    }

    fn add(&self, candidate: CandidateSeen) {
        let mut seen = self.seen.borrow_mut();
        // The one that is chosen is always among them.
        if seen.candidates.len() < MOST_CANDIDATES || candidate.verdict == Verdict::Chosen {
            seen.candidates.push(candidate);
        } else {
            seen.left_out += 1;
        }
    }

    fn failed(&self, candidate: &Candidate<Arc<Route>>, why: &Unmet<'_>) -> Vec<Failed> {
        let entry = candidate.entry();
        let one = |at: &str, wanted: String, found: &str| {
            vec![Failed {
                at: at.to_owned(),
                wanted,
                found: Some(found.to_owned()),
            }]
        };
        let facts = &self.facts;
        match why {
            Unmet::Method => {
                let methods = list(entry.methods.names().map(str::to_owned));
                one("methods", methods, &facts.method)
            }
            Unmet::RemoteAddr => {
                let networks = list(entry.remote_addrs.iter().map(ToString::to_string));
                one("remote_addrs", networks, &facts.client)
            }
            Unmet::Host => {
                let hosts = list(entry.hosts.iter().map(ToString::to_string));
                one("hosts", hosts, &facts.http_host)
            }
            Unmet::Path => one("uri", candidate.uri().to_string(), &facts.match_path),
            Unmet::Vars(vars, source) => Failed::of("vars", vars.unmet(*source)),
        }
    }
}

impl<'r> Observer<'r, Arc<Route>> for &Trace<'r> {
    fn looks_at(self, _: &'r Candidate<Arc<Route>>) -> bool {
        let mut seen = self.seen.borrow_mut();
        // What is behind the match and would not be listed is not worth the work.
        let looks = seen.found.is_none() || seen.candidates.len() < MOST_CANDIDATES;
        seen.left_out += usize::from(!looks);
        looks
    }

    fn unmet(self, candidate: &'r Candidate<Arc<Route>>, why: &Unmet<'_>) {
        self.add(CandidateSeen {
            route: candidate.entry().id.to_string(),
            uri: candidate.uri().to_string(),
            host: candidate.host().map(ToString::to_string),
            priority: candidate.entry().priority,
            verdict: Verdict::Failed(self.failed(candidate, why)),
        });
    }

    fn found(self, found: Found<'r>) -> Option<Found<'r>> {
        let first = self.seen.borrow().found.is_none();
        self.add(CandidateSeen {
            route: found.entry.id.to_string(),
            uri: found.uri.to_string(),
            host: found.host.map(ToString::to_string),
            priority: found.entry.priority,
            verdict: if first {
                Verdict::Chosen
            } else {
                Verdict::Behind
            },
        });
        if first {
            self.seen.borrow_mut().found = Some(found);
        }
        None
    }
}

/// A list in one line, its end left out when it is long.
fn list(items: impl Iterator<Item = String>) -> String {
    let mut items = items;
    let mut text: Vec<String> = items.by_ref().take(MOST_ITEMS).collect();
    let more = items.count();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}
