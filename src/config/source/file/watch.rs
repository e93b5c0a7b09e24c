//! Notifications of changes in the folders of a file.

use std::path::{Path, PathBuf};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// Notifies of anything that happens in the folder of a file and of what the file links to. The
/// folders are watched, not the file: a file that is replaced is another file.
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    folders: Vec<PathBuf>,
}

impl Watch {
    /// Watches nothing yet. Each change puts something into `nudge`, unless something is there.
    pub(super) fn start(nudge: mpsc::Sender<()>) -> Watch {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the file is an event too; it must not lead to reading it again. An error may
            // stand for events that were lost.
            if event.map_or(true, |event| !event.kind.is_access()) {
                let _ = nudge.try_send(());
            }
        });
        if let Err(error) = &watcher {
            tracing::warn!(%error, "no notification of file changes; looking once a second");
        }
        Watch {
            watcher: watcher.ok(),
            folders: Vec::new(),
        }
    }

    /// Watches the folders that count now; links may have been switched.
    pub(super) fn follow(&mut self, file: &Path) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let mut folders = vec![folder(file)];
        folders.extend(std::fs::canonicalize(file).ok().map(|real| folder(&real)));
        folders.dedup();
        if folders == self.folders {
            return;
        }
        for gone in self.folders.iter().filter(|held| !folders.contains(held)) {
            // It may not exist any more, and then it is not watched either.
            let _ = watcher.unwatch(gone);
        }
        for new in folders
            .iter()
            .filter(|folder| !self.folders.contains(folder))
        {
            if let Err(error) = watcher.watch(new, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %new.display(), %error, "folder not watched; looking once a second");
            }
        }
        self.folders = folders;
    }
}

fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
