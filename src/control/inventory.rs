//! The resources in use, as they were written.
//!
//! The compiled configuration does not keep them: with 100,000 routes that would be half of the
//! memory. So they are read again where they came from, and what is there and not in use is left
//! out.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use serde_json::Value;
use tokio::sync::Mutex;

use crate::config::kind::{Key, Kind};
use crate::config::report::{Report, SharedReport};
use crate::config::source::file::{FileSource, Format};
use crate::store::{Item, Store};

/// Where resources are read.
pub(crate) struct Inventory {
    from: Place,
    report: SharedReport,
    /// Whose turn it is to read the file: read, it takes many times its size.
    turn: Arc<Mutex<()>>,
}

/// See [`Inventory`].
#[derive(Clone)]
pub(crate) enum Place {
    /// A store.
    Store(Arc<dyn Store>),
    /// A file.
    File(PathBuf, Format),
}

/// A resource.
pub(super) struct Held {
    pub(super) key: Key,
    /// Its name, with the store's prefix.
    pub(super) path: String,
    pub(super) value: Value,
    pub(super) created: u64,
    pub(super) modified: u64,
}

impl Inventory {
    /// The resources of a place, of which the report tells what is in use.
    pub(crate) fn new(from: Place, report: SharedReport) -> Inventory {
        Inventory {
            from,
            report,
            turn: Arc::default(),
        }
    }

    /// Those of some kinds, in the order of the kinds.
    ///
    /// # Errors
    /// In words, why they cannot be told.
    pub(super) async fn list(&self, kinds: &'static [Kind]) -> Result<Vec<Held>, String> {
        let mut held = match &self.from {
            Place::Store(store) => {
                let mut held = Vec::new();
                for kind in kinds {
                    let folder = format!("{}/", kind.plural());
                    let listing = store.list(&folder).await.map_err(|e| e.chain())?;
                    let items = listing.items.iter();
                    let items = items.filter_map(|item| stored(store.prefix(), item));
                    held.extend(items.filter(|held| held.key.kind == *kind));
                }
                held
            }
            Place::File(path, format) => self.filed(path, *format, kinds).await?,
        };
        let refused = self.refused();
        held.retain(|held| !refused.contains(&held.key.to_string()));
        Ok(held)
    }

    /// One.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Held>, String> {
        let found = match &self.from {
            Place::Store(store) => {
                let path = key.to_string();
                // Else it is the name of something below a resource.
                if Key::from_path(&path).as_ref() != Some(key) {
                    return Ok(None);
                }
                let item = store.get(&path).await.map_err(|e| e.chain())?;
                item.and_then(|item| stored(store.prefix(), &item))
            }
            Place::File(path, format) => {
                let held = self.filed(path, *format, only(key.kind));
                held.await?.into_iter().find(|held| held.key == *key)
            }
        };
        Ok(found.filter(|_| !self.refused().contains(&key.to_string())))
    }

    /// Resources whose last version was not taken.
    fn refused(&self) -> HashSet<String> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let rejected = report.rejected.iter();
        rejected.map(|problem| problem.resource.clone()).collect()
    }

    async fn filed(
        &self,
        path: &Path,
        format: Format,
        kinds: &'static [Kind],
    ) -> Result<Vec<Held>, String> {
        let (path, report) = (path.to_owned(), Arc::clone(&self.report));
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            // Whoever asked may be gone before this is done.
            let _turn = turn;
            let report = report
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            filed(&path, format, kinds, &report)
        });
        read.await.map_err(|e| e.to_string())?
    }
}

/// Lists of one kind each.
const KINDS: [&[Kind]; 5] = [
    &[Kind::Route],
    &[Kind::Service],
    &[Kind::Upstream],
    &[Kind::StreamRoute],
    &[Kind::PluginMetadata],
];

/// The list of one kind, of those that are shown.
pub(super) fn only(kind: Kind) -> &'static [Kind] {
    let kinds = KINDS.iter().find(|kinds| kinds[0] == kind);
    kinds.map_or(&[], |kinds| kinds)
}

fn stored(prefix: &str, item: &Item) -> Option<Held> {
    Some(Held {
        key: Key::from_path(&item.path)?,
        path: format!("{prefix}{}", item.path),
        value: serde_json::from_str(&item.text).ok()?,
        created: item.created,
        modified: item.modified,
    })
}

fn filed(
    path: &Path,
    format: Format,
    kinds: &[Kind],
    report: &Report,
) -> Result<Vec<Held>, String> {
    let batch = FileSource::new(path, format, |name| std::env::var(name).ok()).load();
    let other = || {
        format!(
            "{} is not what is in use: it was changed, and is not taken yet or was refused; \
             /status/config tells",
            path.display()
        )
    };
    let batch = batch.map_err(|_| other())?;
    if report.print != Some(batch.print) {
        return Err(other());
    }
    let wanted = batch.wanted().filter(|(key, _)| kinds.contains(&key.kind));
    let mut held: Vec<Held> = wanted
        .map(|(key, value)| Held {
            path: format!("/{key}"),
            key,
            value: value.clone(),
            created: report.revision,
            modified: report.revision,
        })
        .collect();
    held.sort_by_key(|held| kinds.iter().position(|kind| *kind == held.key.kind));
    Ok(held)
}
