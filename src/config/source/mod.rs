//! Where resources come from.

pub mod file;
mod json_env;
pub mod store;

use std::sync::Arc;

use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use super::graph::Change;
use super::kind::Key;
use crate::document::Document;

/// What a source has to tell.
pub enum Update {
    /// All that a file holds, or why it cannot be read.
    File(Result<Batch, Problems>),
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
}

/// Everything a source holds at one moment.
pub struct Batch {
    /// The resources, each with its path in the document.
    pub resources: Vec<(Key, Arc<Value>, String)>,
    /// The document, to find the place of a problem.
    pub document: Document,
    /// Accepted without an effect; with their places.
    pub warnings: Problems,
}

impl Batch {
    /// Fills in where problems are: file, line and column.
    pub fn locate(&self, problems: &mut Problems) {
        let mut paths = std::collections::HashMap::new();
        for (key, _, path) in &self.resources {
            paths.insert(key.to_string(), path.as_str());
        }
        for problem in problems.iter_mut() {
            self.locate_one(problem, paths.get(&problem.resource).copied().unwrap_or(""));
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
