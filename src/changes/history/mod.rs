//! Every change that was accepted: who, when, from where, and each resource before and after.
//!
//! An entry is written in the transaction of its change, so there is none without the other, and its
//! number is the revision which that transaction made: what resources call `modifiedIndex`.
//! Resources are in it as the store holds them, encrypted where it encrypts. `back` is how to go back,
//! `shown` what is told of it.

mod back;
mod shown;

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::{Guard, Item, OWN, Op, Store, StoreError, Txn};
pub use back::{Stranger, back_to, strangers, undo};
pub(super) use back::{is_as_left, is_back, taken_back};
pub use shown::{now, summaries, time};

/// Where entries are, as [`Guard::Unchanged`] names it.
pub const FOLDER: &str = "lockgate/history";
/// Changed last by the last write that has no entry, because none were kept then. What was there
/// before that write is not known, whatever older entries say.
const UNRECORDED: &str = "lockgate/unrecorded";
/// Bytes that a gap takes in an entry.
const GAP_BYTES: usize = r#","gap":18446744073709551615"#.len();
/// Old entries that one change removes: when the limits were lowered it takes several.
const MOST_PRUNED: usize = 32;

/// In a store that others share, so many changes share the removal of old entries. Fewer than one
/// removes.
const PRUNED_BY_ONE_IN: u8 = 8;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Changes.
    pub generations: usize,
    /// Bytes of all of them together.
    pub bytes: usize,
}

/// Who makes a change, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The name of the key.
    pub key: Option<String>,
    /// The client's address.
    pub client: Option<String>,
    /// What was asked for: `PUT /apisix/admin/routes/1`, `apply`.
    pub action: String,
    /// Why.
    pub comment: Option<String>,
    /// Milliseconds since 1970.
    pub now: u64,
}

/// A change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// See [`Author`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// See [`Author`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// See [`Author`].
    pub action: String,
    /// See [`Author`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// How much of each resource is kept.
    pub kept: Kept,
    /// The changes up to this revision are no longer all there, although there are entries of older
    /// ones: one of those waits for its confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<u64>,
    /// What changed.
    pub changes: Vec<Changed>,
}

impl Entry {
    /// Whether no resource has changed: it was said to the gateways, and there is nothing to take back.
    pub fn is_note(&self) -> bool {
        self.changes.is_empty() && self.kept != Kept::Nothing
    }
}

/// How much of each resource is kept: large changes have no room in the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// What was there and what is.
    Both,
    /// What was there: enough to go back.
    Before,
    /// Only names.
    Nothing,
}

/// One resource of a change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Changed {
    /// Where the store has it.
    pub path: String,
    /// Whether it is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// Whether it was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
    /// The text that was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The text that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// For how many seconds it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
}

/// What became of a change in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Where its entry is.
    pub path: String,
    /// What that knows.
    pub kept: Kept,
}

/// An entry and its number.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The revision of the change.
    pub revision: u64,
    /// Where the store has it.
    pub path: String,
    /// The change.
    pub entry: Entry,
}

/// Adds to a transaction what makes it part of the history, and gives its entry. Reads what is there
/// before, which the transaction then insists on. `None` when the store keeps no history.
///
/// # Errors
/// When the store cannot be read.
pub async fn record(
    store: &dyn Store,
    limits: Limits,
    txn: &mut Txn,
    author: &Author,
) -> Result<Option<Recorded>, StoreError> {
    if !records(store, limits, txn).await? {
        return Ok(None);
    }
    let mut conditions = Conditions::of(&txn.guards);
    let mut changes = Vec::with_capacity(txn.ops.len());
    for at in 0..txn.ops.len() {
        let path = path_of(&txn.ops[at]).to_owned();
        if path.starts_with(OWN) {
            continue;
        }
        if let Op::DeleteAll(_) = txn.ops[at] {
            let gone = store.list(&path).await?.items;
            changes.extend(gone.iter().map(deleted));
            continue;
        }
        let before = match conditions.absent.contains(&path) {
            true => None,
            false => store.get(&path).await?,
        };
        txn.guards
            .extend(conditions.missing(&path, before.as_ref()));
        changes.push(changed(&txn.ops[at], before.as_ref()));
    }
    write(store, limits, txn, author, changes).await.map(Some)
}

/// The same when what is there before is known, and the transaction insists on it already.
///
/// # Errors
/// When the store cannot be read.
pub async fn record_known(
    store: &dyn Store,
    limits: Limits,
    txn: &mut Txn,
    author: &Author,
    before: impl Fn(&str) -> Option<Item>,
) -> Result<Option<Recorded>, StoreError> {
    if !records(store, limits, txn).await? {
        return Ok(None);
    }
    let resources = txn.ops.iter().filter(|op| !path_of(op).starts_with(OWN));
    let changes = resources
        .map(|op| changed(op, before(path_of(op)).as_ref()))
        .collect();
    write(store, limits, txn, author, changes).await.map(Some)
}

/// Whether a transaction gets an entry. If not, it says of itself that it has none: later ones may
/// have some again, and nothing can be taken back across it.
async fn records(store: &dyn Store, limits: Limits, txn: &mut Txn) -> Result<bool, StoreError> {
    if txn.ops.is_empty() || !store.keeps_own().await? {
        return Ok(false);
    }
    let keeps = limits.generations > 0;
    if !keeps && txn.ops.iter().any(|op| !path_of(op).starts_with(OWN)) {
        txn.ops.push(Op::Put {
            path: UNRECORDED.to_owned(),
            text: "{}".to_owned(),
            ttl: None,
        });
    }
    Ok(keeps)
}

fn path_of(op: &Op) -> &str {
    match op {
        Op::Put { path, .. } | Op::Delete(path) | Op::DeleteAll(path) => path,
    }
}

/// Which paths a transaction has conditions on. Read once: a transaction may have ten thousand.
#[derive(Default)]
struct Conditions {
    /// Paths at which nothing must be.
    absent: HashSet<String>,
    /// These, and those at which something certain must be.
    known: HashSet<String>,
    /// Conditions that were looked at so far.
    #[cfg(test)]
    looked_at: usize,
}

impl Conditions {
    fn of(guards: &[Guard]) -> Conditions {
        let mut conditions = Conditions::default();
        guards.iter().for_each(|guard| conditions.note(guard));
        conditions
    }

    fn note(&mut self, guard: &Guard) {
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
        match guard {
            Guard::Absent(path) => {
                self.absent.insert(path.clone());
                self.known.insert(path.clone());
            }
            Guard::Modified(path, _) => {
                self.known.insert(path.clone());
            }
            Guard::Present(_) | Guard::Unchanged(..) => {}
        }
    }

    /// The condition that what was read is still there, unless there is one.
    fn missing(&mut self, path: &str, before: Option<&Item>) -> Option<Guard> {
        if self.known.contains(path) {
            return None;
        }
        let guard = match before {
            Some(item) => Guard::Modified(path.to_owned(), item.modified),
            None => Guard::Absent(path.to_owned()),
        };
        self.note(&guard);
        Some(guard)
    }
}

fn changed(op: &Op, before: Option<&Item>) -> Changed {
    let (after, ttl) = match op {
        Op::Put { text, ttl, .. } => (Some(text.clone()), *ttl),
        Op::Delete(_) | Op::DeleteAll(_) => (None, None),
    };
    // What is granted is in whole seconds.
    let whole = |ttl: Duration| ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    Changed {
        path: path_of(op).to_owned(),
        gone: after.is_none(),
        made: before.is_none(),
        before: before.map(|item| item.text.to_string()),
        after,
        ttl: ttl.map(whole),
    }
}

fn deleted(item: &Item) -> Changed {
    Changed {
        path: item.path.to_string(),
        gone: true,
        before: Some(item.text.to_string()),
        ..Changed::default()
    }
}

async fn write(
    store: &dyn Store,
    limits: Limits,
    txn: &mut Txn,
    author: &Author,
    changes: Vec<Changed>,
) -> Result<Recorded, StoreError> {
    let is_note = changes.is_empty();
    let mut entry = Entry {
        at: author.now,
        key: author.key.clone(),
        client: author.client.clone(),
        action: author.action.clone(),
        comment: author.comment.clone(),
        kept: Kept::Both,
        gap: None,
        changes,
    };
    let length = |op: &Op| match op {
        Op::Put { path, text, .. } => path.len() + text.len(),
        Op::Delete(path) | Op::DeleteAll(path) => path.len(),
    };
    let written: usize = txn.ops.iter().map(length).sum();
    let room = store
        .largest_write()
        .map(|(most, _)| most.saturating_sub(written));
    let mut text = fitted(&mut entry, room.unwrap_or(limits.bytes).min(limits.bytes))?;
    // To look costs a shared store a request: one in so many changes does.
    if !store.is_shared() || rand::random::<u8>().is_multiple_of(PRUNED_BY_ONE_IN) {
        entry.gap = prune(store, limits, (is_note, text.len()), txn).await?;
    }
    if entry.gap.is_some() {
        text = as_text(&entry)?;
    }
    let path = name(author.now, is_note, text.len());
    txn.ops.push(Op::Put {
        path: path.clone(),
        text,
        ttl: None,
    });
    let kept = entry.kept;
    Ok(Recorded { path, kept })
}

fn as_text(entry: &Entry) -> Result<String, StoreError> {
    serde_json::to_string(entry).map_err(|e| StoreError::new("the history cannot be written", e))
}

/// The text of an entry, with as much of the resources as there is room for.
fn fitted(entry: &mut Entry, room: usize) -> Result<String, StoreError> {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    loop {
        // What does not fit as it is need not be written down to see that.
        let least: usize = entry
            .changes
            .iter()
            .map(|change| length(&change.before) + length(&change.after))
            .sum();
        if least <= room || entry.kept == Kept::Nothing {
            let text = as_text(entry)?;
            if text.len() <= room || entry.kept == Kept::Nothing {
                return Ok(text);
            }
        }
        entry.kept = match entry.kept {
            Kept::Both => Kept::Before,
            _ => Kept::Nothing,
        };
        for change in &mut entry.changes {
            change.after = None;
            if entry.kept == Kept::Nothing {
                change.before = None;
            }
        }
    }
}

/// A path that no other entry has; its end is how long the entry is.
fn name(now: u64, is_note: bool, bytes: usize) -> String {
    let random: u32 = rand::random();
    let kind = if is_note { NOTE } else { "-" };
    format!("{FOLDER}/{now:015}-{random:08x}{kind}{bytes}")
}

/// What stands in the name of an entry without changes, as of an override of a limit.
const NOTE: &str = "-note-";

fn bytes_of(path: &str) -> usize {
    let end = path.rsplit('-').next();
    end.and_then(|end| end.parse().ok()).unwrap_or(0)
}

/// Adds the removal of the oldest entries, so that a new one of so many bytes has room. What waits
/// for its confirmation stays: gives the youngest change that was removed from behind it.
async fn prune(
    store: &dyn Store,
    limits: Limits,
    (is_note, bytes): (bool, usize),
    txn: &mut Txn,
) -> Result<Option<u64>, StoreError> {
    let mut held = store.names(&format!("{FOLDER}/")).await?.items;
    held.sort_by_key(|item| item.created);
    let notes = held.iter().filter(|item| item.path.contains(NOTE)).count();
    // Each kind for itself: what there is nothing to take back of pushes out nothing that could be.
    let mut left = [held.len() - notes, notes];
    left[usize::from(is_note)] += 1;
    let mut all = bytes + held.iter().map(|item| bytes_of(&item.path)).sum::<usize>();
    let too_much = |left: usize, all: usize| left > limits.generations || all > limits.bytes;
    if !left.iter().any(|left| too_much(*left, all)) {
        return Ok(None);
    }
    // What may go back by itself needs its entry, which the same transaction has made.
    let waits = super::pending::read(store).await?;
    let waits = waits.map(|waiting| waiting.revision);
    if waits.is_some() {
        all += GAP_BYTES;
    }
    let (mut passed, mut gap) = (false, None);
    let mut pruned = 0;
    for item in &held {
        if pruned == MOST_PRUNED {
            break;
        }
        let is_note = item.path.contains(NOTE);
        let left = &mut left[usize::from(is_note)];
        if !too_much(*left, all) {
            continue;
        }
        if waits == Some(item.created) {
            passed = true;
            continue;
        }
        txn.ops.push(Op::Delete(item.path.to_string()));
        *left -= 1;
        pruned += 1;
        all -= bytes_of(&item.path);
        if passed && !is_note {
            gap = Some(item.created);
        }
    }
    Ok(gap)
}

/// All entries, the newest first.
///
/// # Errors
/// When the store cannot be read.
pub async fn generations(store: &dyn Store) -> Result<Vec<Generation>, StoreError> {
    let mut items = store.list(&format!("{FOLDER}/")).await?.items;
    items.sort_by_key(|item| std::cmp::Reverse(item.created));
    Ok(items.iter().map(generation).collect())
}

fn generation(item: &Item) -> Generation {
    let unreadable = |error: serde_json::Error| Entry {
        at: 0,
        key: None,
        client: None,
        action: format!("not readable: {error}"),
        comment: None,
        kept: Kept::Nothing,
        gap: None,
        changes: Vec::new(),
    };
    Generation {
        revision: item.created,
        path: item.path.to_string(),
        entry: serde_json::from_str(&item.text).unwrap_or_else(unreadable),
    }
}

/// The last write that has no entry because none were kept then; 0 if all have.
///
/// # Errors
/// When the store cannot be read.
pub async fn unrecorded(store: &dyn Store) -> Result<u64, StoreError> {
    let item = store.get(UNRECORDED).await?;
    Ok(item.map_or(0, |item| item.modified))
}

/// The entry at a path.
///
/// # Errors
/// When the store cannot be read.
pub async fn at(store: &dyn Store, path: &str) -> Result<Option<Generation>, StoreError> {
    Ok(store.get(path).await?.as_ref().map(generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_grows_with_the_number_of_resources_and_no_faster() {
        let work = |count: usize| {
            let guards: Vec<Guard> = (0..count / 2)
                .map(|at| Guard::Absent(format!("routes/{at}")))
                .collect();
            let mut conditions = Conditions::of(&guards);
            let added =
                (0..count).filter_map(|at| conditions.missing(&format!("routes/{at}"), None));
            assert_eq!(added.count(), count - count / 2);
            conditions.looked_at
        };
        // Each condition once: those that were there, and those that were added.
        assert_eq!(work(100), 100);
        assert_eq!(work(10_000), 10_000);
    }
}
