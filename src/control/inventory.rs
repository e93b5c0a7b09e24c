//! The resources in use, as they were written.
//!
//! The compiled configuration does not keep them: with 100,000 routes that would be half of the
//! memory. So they are read again where they came from, and what is there and not in use is left
//! out.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use serde_json::Value;

use crate::config::kind::{Key, Kind};
use crate::config::report::{Report, SharedReport};
use crate::config::source::file::{FileSource, Format};
use crate::store::Store;

/// Where resources are read.
pub(crate) struct Inventory {
    from: Place,
    report: SharedReport,
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
    pub(super) id: String,
    /// Its name, with the store's prefix.
    pub(super) path: String,
    pub(super) value: Value,
    pub(super) created: u64,
    pub(super) modified: u64,
}

impl Inventory {
    /// The resources of a place, of which the report tells what is in use.
    pub(crate) fn new(from: Place, report: SharedReport) -> Inventory {
        Inventory { from, report }
    }

    /// Those of one kind.
    ///
    /// # Errors
    /// In words, why they cannot be told.
    pub(super) async fn list(&self, kind: Kind) -> Result<Vec<Held>, String> {
        let report = self
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let refused: HashSet<String> = report
            .rejected
            .iter()
            .map(|problem| problem.resource.clone())
            .collect();
        let mut held = match &self.from {
            Place::Store(store) => stored(&**store, kind).await?,
            Place::File(path, format) => {
                let source = (path.clone(), *format);
                // It may be large.
                let read = tokio::task::spawn_blocking(move || filed(source, kind, &report));
                read.await.map_err(|e| e.to_string())??
            }
        };
        held.retain(|held| !refused.contains(&Key::new(kind, &held.id).to_string()));
        Ok(held)
    }

    /// One.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub(super) async fn get(&self, kind: Kind, id: &str) -> Result<Option<Held>, String> {
        let all = self.list(kind).await?;
        Ok(all.into_iter().find(|held| held.id == id))
    }
}

async fn stored(store: &dyn Store, kind: Kind) -> Result<Vec<Held>, String> {
    let folder = format!("{}/", kind.plural());
    let listing = store.list(&folder).await.map_err(|e| e.chain())?;
    let prefix = store.prefix();
    let held = listing.items.into_iter().filter_map(|item| {
        let key = Key::from_path(&item.path).filter(|key| key.kind == kind)?;
        Some(Held {
            id: key.id.to_string(),
            path: format!("{prefix}{}", item.path),
            value: serde_json::from_str(&item.text).ok()?,
            created: item.created,
            modified: item.modified,
        })
    });
    Ok(held.collect())
}

fn filed(source: (PathBuf, Format), kind: Kind, report: &Report) -> Result<Vec<Held>, String> {
    let (path, format) = source;
    let batch = FileSource::new(&path, format, |name| std::env::var(name).ok()).load();
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
    let wanted = batch.wanted().filter(|(key, _)| key.kind == kind);
    Ok(wanted
        .map(|(key, value)| Held {
            id: key.id.to_string(),
            path: format!("/{key}"),
            value: value.clone(),
            created: report.revision,
            modified: report.revision,
        })
        .collect())
}
