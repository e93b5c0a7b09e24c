//! What a change that goes back comes to, and how it is carried out though others write all the time.
//!
//! An order is one transaction on the condition that nothing at all was written since it was worked
//! out. Whoever has to go back cannot wait for such a moment: after some tries the conditions are what
//! is touched and what that refers to, and a draft with more of them than a transaction takes is
//! carried out in parts.

use std::collections::{HashMap, HashSet};

use super::draft::{Draft, Rules, Step, draft};
use super::history::{self, Changed, Entry};
use super::order::Want;
use super::references;
use crate::config::kind::Kind;
use crate::store::{Guard, Listing, Op, Txn};

/// Conditions of one part. Of a transaction etcd takes 62; one is that the change still waits, and
/// the folders that may refer to what is deleted are nine.
const MOST_CONDITIONS: usize = 48;
/// Tries on the condition that nothing was written.
const AS_A_WHOLE: u32 = 3;
/// Tries, those included, on the condition that nobody began to use what is deleted.
const WITH_USERS: u32 = 6;
/// Where references to things of other kinds may be.
const USERS: [&str; 8] = [
    "routes",
    "services",
    "stream_routes",
    "plugin_configs",
    "consumer_groups",
    "consumers",
    "global_rules",
    "upstreams",
];

/// How much a try insists on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Insists {
    /// That nothing was written since.
    Everything,
    /// That what it touches is as it was, and what it deletes has got no users.
    ItsOwn,
    /// The same, and it leaves what might have got users.
    Less,
}

impl Insists {
    /// After so many refusals.
    pub(super) fn after(refusals: u32) -> Insists {
        match refusals {
            _ if refusals < AS_A_WHOLE => Insists::Everything,
            _ if refusals < WITH_USERS => Insists::ItsOwn,
            _ => Insists::Less,
        }
    }
}

/// Everything as it was, except what was changed since and what something new refers to: those are
/// named. `None` when what was there before is not known.
pub(super) fn draft_of(
    entry: &Entry,
    revision: u64,
    listing: &Listing,
    rules: &Rules<'_>,
) -> Option<(Draft, Vec<String>)> {
    let changes: HashMap<&str, &Changed> = entry.changes.iter().map(|c| (&*c.path, c)).collect();
    let (mut wants, mut left) = (Vec::new(), Vec::new());
    for want in history::taken_back(entry)? {
        match changes.get(&*want.place) {
            // A part of it may have gone back already.
            Some(change) if history::is_back(change, listing) => {}
            Some(change) if history::is_as_left(change, revision, listing) => wants.push(want),
            _ => left.push(want.place),
        }
    }
    loop {
        let problems = match draft(wants.clone(), None, listing, rules) {
            Ok(draft) => return Some((draft, left)),
            Err(problems) => problems,
        };
        let of = |want: &Want| {
            problems.iter().any(|problem| {
                let rest = problem.path.strip_prefix(&*want.place);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        let before = wants.len();
        wants.retain(|want| {
            let stays = of(want);
            if stays {
                left.push(want.place.clone());
            }
            !stays
        });
        if wants.len() == before {
            left.extend(wants.drain(..).map(|want| want.place));
            return Some((Draft::default(), left));
        }
    }
}

/// A part of a draft.
pub(super) struct Part {
    /// Its transaction.
    pub(super) txn: Txn,
    /// Whether there is more.
    pub(super) more: bool,
    /// What is not deleted though it should be: somebody may use it by now.
    pub(super) left: Vec<String>,
}

/// The first part: all of it, if it fits.
pub(super) fn first(draft: &Draft, insists: Insists) -> Part {
    if insists == Insists::Everything {
        return Part {
            txn: draft.txn(),
            more: false,
            left: Vec::new(),
        };
    }
    let (mut steps, mut left) = (Vec::new(), Vec::new());
    for step in &draft.steps {
        match insists == Insists::Less && may_get_users(step) {
            true => left.push(step.path.clone()),
            false => steps.push(step),
        }
    }
    steps.sort_by_key(|step| rank(step));
    let touched: HashSet<&str> = steps.iter().map(|step| &*step.path).collect();
    let (mut txn, mut conditions) = (Txn::default(), HashSet::new());
    let (mut deletes, mut more) = (false, false);
    for step in &steps {
        let mut wanted = vec![step.path.clone()];
        let targets = references::targets(step).into_iter();
        wanted.extend(targets.filter(|target| !touched.contains(&**target)));
        let new = wanted.iter().filter(|path| !conditions.contains(*path));
        if !txn.ops.is_empty() && conditions.len() + new.count() > MOST_CONDITIONS {
            more = true;
            break;
        }
        deletes |= may_get_users(step);
        for path in wanted.drain(1..) {
            if conditions.insert(path.clone()) {
                txn.guards.push(Guard::Present(path));
            }
        }
        conditions.insert(step.path.clone());
        txn.guards.push(step.own_guard());
        txn.ops.push(step.op());
    }
    if deletes {
        let folders = USERS.into_iter();
        txn.guards
            .extend(folders.map(|folder| Guard::Unchanged(folder, draft.revision)));
    }
    Part { txn, more, left }
}

/// Whether it deletes what something else may refer to. That others use a consumer, by a credential of
/// it, is no reason to let it stay.
fn may_get_users(step: &Step) -> bool {
    step.after.is_none()
        && matches!(
            step.key.kind,
            Kind::Upstream
                | Kind::Ssl
                | Kind::Service
                | Kind::PluginConfig
                | Kind::ConsumerGroup
                | Kind::Proto
                | Kind::StreamRoute
        )
}

/// What is referred to is put before what refers to it, and deleted behind it.
fn rank(step: &Step) -> (bool, usize) {
    let at = Kind::ALL.iter().position(|kind| *kind == step.key.kind);
    let at = at.unwrap_or_default();
    match step.after {
        Some(_) => (false, at),
        None => (true, Kind::ALL.len() - at),
    }
}

impl Step {
    /// That what is there is what was read.
    pub(super) fn own_guard(&self) -> Guard {
        match &self.old {
            Some(old) => Guard::Modified(self.path.clone(), old.modified),
            None => Guard::Absent(self.path.clone()),
        }
    }

    /// The write.
    pub(super) fn op(&self) -> Op {
        match &self.text {
            Some(text) => Op::Put {
                path: self.path.clone(),
                text: text.clone(),
                ttl: None,
            },
            None => Op::Delete(self.path.clone()),
        }
    }
}
