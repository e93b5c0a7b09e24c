//! The way back: what a revision or one change had in place of what is there now.

use std::collections::{BTreeMap, HashSet};

use lockgate_plugin::{Problem, Problems};

use super::{Changed, Entry, Generation, Kept};
use crate::changes::order::{Want, What};
use crate::config::kind::Key;
use crate::store::Listing;

/// What leads back to a revision: what is there then is what was there right after that write.
///
/// # Errors
/// When the history does not reach so far back, or has a gap on the way: it was not kept up to
/// `unrecorded`, or lost entries behind one that had to wait.
pub fn back_to(
    generations: &[Generation],
    unrecorded: u64,
    revision: u64,
    listing: &Listing,
) -> Result<Vec<Want>, Problems> {
    let refuse = |text: String| Err(Problem::new("to", text).into());
    if revision > listing.revision {
        let now = listing.revision;
        return refuse(format!(
            "revision {revision} is not there yet; the store is at {now}"
        ));
    }
    // Notes are kept for themselves: one may be older than changes that are no longer there.
    let Some(oldest) = generations.iter().rfind(|g| !g.entry.is_note()) else {
        return refuse("there is no history".to_owned());
    };
    // One before the oldest is what that one began with.
    if revision.saturating_add(1) < oldest.revision {
        return refuse(format!(
            "the history begins at revision {}, and does not know what was there at {revision}",
            oldest.revision
        ));
    }
    let gaps = generations.iter().filter_map(|g| g.entry.gap);
    let gap = gaps.fold(unrecorded, u64::max);
    if revision < gap {
        return refuse(format!(
            "not all changes up to revision {gap} are in the history: what was there at {revision} is not known"
        ));
    }
    let mut wanted: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for generation in generations.iter().filter(|g| g.revision > revision) {
        let entry = &generation.entry;
        if entry.kept == Kept::Nothing {
            return refuse(too_large(generation));
        }
        // Older ones come later, and have the last word.
        let before = entry.changes.iter();
        wanted.extend(before.map(|change| (&*change.path, change.before.as_deref())));
    }
    // What is gone again by itself needs no deletion.
    wanted.retain(|path, text| text.is_some() || listing.find(path).is_some());
    Ok(wanted
        .into_iter()
        .filter_map(|(path, text)| want(path, text))
        .collect())
}

/// What takes one change back, and leaves later ones to other resources as they are.
///
/// # Errors
/// When it is not known, or something in it was changed again.
pub fn undo(
    generations: &[Generation],
    revision: u64,
    listing: &Listing,
) -> Result<Vec<Want>, Problems> {
    let Some(found) = generations.iter().find(|g| g.revision == revision) else {
        let text = format!("no change in the history has the revision {revision}");
        return Err(Problem::new("undo", text).into());
    };
    if found.entry.is_note() {
        let text =
            format!("revision {revision} changed no resource: there is nothing to take back");
        return Err(Problem::new("undo", text).into());
    }
    let Some(wants) = taken_back(&found.entry) else {
        return Err(Problem::new("undo", too_large(found)).into());
    };
    let mut out = Problems::default();
    for change in &found.entry.changes {
        if is_as_left(change, revision, listing) {
            continue;
        }
        let touches = |g: &&Generation| {
            g.revision > revision && g.entry.changes.iter().any(|c| c.path == change.path)
        };
        let text = match generations.iter().rev().find(touches) {
            Some(later) => format!(
                "was changed again at revision {}: go back to a revision before, or undo that first",
                later.revision
            ),
            None => "was changed again by something that keeps no history".to_owned(),
        };
        out.add(&change.path, text);
    }
    out.into_result()?;
    Ok(wants)
}

/// Whether a resource is as the change of a revision left it.
pub(in crate::changes) fn is_as_left(change: &Changed, revision: u64, listing: &Listing) -> bool {
    match listing.find(&change.path) {
        Some(item) => !change.gone && item.modified == revision,
        None => change.gone,
    }
}

/// Whether a resource is as it was before a change.
pub(in crate::changes) fn is_back(change: &Changed, listing: &Listing) -> bool {
    match (listing.find(&change.path), &change.before) {
        (Some(item), Some(before)) => *item.text == **before,
        (None, None) => true,
        _ => false,
    }
}

/// What somebody put into the store who keeps no history: APISIX, or a tool of etcd's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Where.
    pub path: String,
    /// The revision that changed it last.
    pub revision: u64,
    /// Whether going back replaces it, because the history has known it before; else it stays.
    pub replaced: bool,
}

/// What was put after a revision and is in no entry. Of what was deleted so nothing is known.
pub fn strangers(
    generations: &[Generation],
    revision: u64,
    listing: &Listing,
    wants: &[Want],
) -> Vec<Stranger> {
    let known: HashSet<u64> = generations.iter().map(|g| g.revision).collect();
    let goes: HashSet<String> = wants.iter().map(|want| want.key.to_string()).collect();
    let items = listing.items.iter();
    let strange = items.filter(|i| i.modified > revision && !known.contains(&i.modified));
    let stranger = strange.map(|item| Stranger {
        path: item.path.to_string(),
        revision: item.modified,
        replaced: goes.contains(&*item.path),
    });
    stranger.collect()
}

/// Everything as it was before a change, if that is known.
pub(in crate::changes) fn taken_back(entry: &Entry) -> Option<Vec<Want>> {
    // Then a resource without a text is one of which nothing is known, not one that was not there.
    if entry.kept == Kept::Nothing {
        return None;
    }
    let changes = entry.changes.iter();
    let wants = changes.filter_map(|change| want(&change.path, change.before.as_deref()));
    Some(wants.collect())
}

fn want(path: &str, text: Option<&str>) -> Option<Want> {
    Some(Want {
        key: Key::from_path(path)?,
        place: path.to_owned(),
        what: text.map_or(What::Gone, |text| What::Text(text.to_owned())),
    })
}

fn too_large(generation: &Generation) -> String {
    format!(
        "the change at revision {} was too large to be kept: what was there before it is not known",
        generation.revision
    )
}
