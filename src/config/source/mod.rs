//! Where resources come from.

pub mod file;
mod json_env;
pub mod store;

use std::sync::Arc;

use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use super::decode::Slot;
use super::graph::Change;
use super::kind::Key;
use crate::document::Document;
use crate::store::{Event, Listing};

/// What a source has to tell.
pub enum Update {
    /// All that a file holds, or why it cannot be read.
    File(Box<Result<Batch, Problems>>),
    /// All that a store holds: what is not named is gone.
    Whole(Changes),
    /// What changed in a store.
    Changes(Changes),
}

/// Resources of a store.
pub struct Changes {
    /// What is there or gone.
    pub changes: Vec<Change>,
    /// The revision of the store that they lead to.
    pub revision: u64,
    /// The same as the store has it, where a mirror is kept of it.
    pub raw: Option<Raw>,
}

/// What a store holds, as it is there.
pub enum Raw {
    /// All of it.
    Whole(Listing),
    /// What has changed.
    Changes(Vec<Event>),
}

/// Everything a source holds at one moment.
///
/// The resources stay where the document has them: of thousands, an edit changes one or two, and
/// only those are copied out of it.
pub struct Batch {
    /// The resources, each with its place in the document.
    pub resources: Vec<(Key, Slot)>,
    /// The document, to find the place of a problem.
    pub document: Document,
    /// Its value with the environment filled in, where that made a difference.
    pub filled: Option<Value>,
    /// Accepted without an effect; with their places.
    pub warnings: Problems,
    /// Of the content it was read from.
    pub print: u64,
}

impl Batch {
    /// The resources with their content.
    pub fn wanted(&self) -> impl Iterator<Item = (Key, &Value)> {
        let whole = self.filled.as_ref().unwrap_or(self.document.value());
        let value = |slot: &Slot| whole.get(slot.list)?.get(slot.at);
        self.resources
            .iter()
            .filter_map(move |(key, slot)| Some((key.clone(), value(slot)?)))
    }

    /// Fills in where problems are: file, line and column.
    pub fn locate(&self, problems: &mut Problems) {
        // Nearly always, and then the names of all resources are not needed.
        if problems.is_empty() {
            return;
        }
        self.document.mask(problems);
        let mut paths = std::collections::HashMap::new();
        for (key, slot) in &self.resources {
            paths.insert(key.to_string(), slot);
        }
        for problem in problems.iter_mut() {
            let path = paths.get(&problem.resource).map(ToString::to_string);
            self.locate_one(problem, &path.unwrap_or_default());
        }
    }

    fn locate_one(&self, problem: &mut Problem, path: &str) {
        if problem.file.is_some() {
            return;
        }
        problem.file = Some(Arc::clone(self.document.file()));
        let whole = match (path.is_empty(), problem.path.is_empty()) {
            (true, _) => problem.path.clone(),
            (false, true) => path.to_owned(),
            (false, false) if problem.path.starts_with('[') => format!("{path}{}", problem.path),
            (false, false) => format!("{path}.{}", problem.path),
        };
        problem.place = self.document.place(&whole);
    }
}
