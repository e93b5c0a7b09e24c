//! Keeps the last good configuration on disk, for a start without the store it comes from.
//!
//! Changes that come close together are written together: the file is written as a whole. However
//! long that takes, it takes a small share of the time, on a thread of its own.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::report::{Saved, SharedReport};
use crate::store::Mirror;
use crate::store::last_good::LastGood;

/// From a change to the file: what is changed by a script comes in one go.
const COLLECT: Duration = Duration::from_secs(1);
/// After a write, so many times as long as it took is no other.
const SHARE: u32 = 20;
/// Between tries when the disk does not take it.
const AGAIN: Duration = Duration::from_secs(10);

/// See the module.
pub struct Keeper {
    mirror: Arc<Mirror>,
    place: Arc<LastGood>,
    report: SharedReport,
    collect: Duration,
    again: Duration,
}

impl Keeper {
    /// Keeps what a mirror says is in use at a place.
    pub fn new(mirror: Arc<Mirror>, place: LastGood, report: SharedReport) -> Keeper {
        Keeper {
            mirror,
            place: Arc::new(place),
            report,
            collect: COLLECT,
            again: AGAIN,
        }
    }

    /// Works until the mirror is gone.
    pub async fn run(self) {
        self.place.sweep();
        let mut changes = self.mirror.changes();
        // What was read at the start is written, too.
        changes.mark_changed();
        while changes.changed().await.is_ok() {
            tokio::time::sleep(self.collect).await;
            changes.mark_unchanged();
            let pause = match self.write().await {
                Some(took) => took * SHARE,
                None => {
                    changes.mark_changed();
                    self.again
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Writes, and gives how long that took; `None` when it failed.
    async fn write(&self) -> Option<Duration> {
        let (mirror, place) = (Arc::clone(&self.mirror), Arc::clone(&self.place));
        let started = Instant::now();
        let written = tokio::task::spawn_blocking(move || {
            let accepted = mirror.accepted();
            place.write(&accepted).map(|()| accepted.revision)
        });
        let written = match written.await {
            Ok(written) => written.map_err(|e| e.to_string()),
            Err(gone) => Err(gone.to_string()),
        };
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = report.last_good.get_or_insert_with(Saved::default);
        match written {
            Ok(revision) => {
                *saved = Saved {
                    revision: Some(revision),
                    error: None,
                };
                Some(started.elapsed())
            }
            Err(error) => {
                if saved.error.as_ref() != Some(&error) {
                    tracing::error!(
                        path = %self.place.path().display(),
                        error,
                        "the last good configuration cannot be kept on disk"
                    );
                }
                saved.error = Some(error);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Event, Item};

    /// How long the keeper may take before the test fails.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn put(path: &str, revision: u64) -> Event {
        Event::Put(Item {
            path: path.into(),
            text: "{}".into(),
            created: revision,
            modified: revision,
        })
    }

    async fn until(report: &SharedReport, what: impl Fn(&Saved) -> bool) {
        let start = Instant::now();
        while !report.lock().unwrap().last_good.as_ref().is_some_and(&what) {
            assert!(
                start.elapsed() < DEADLINE,
                "{:?}",
                report.lock().unwrap().last_good
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn every_change_is_on_disk_soon_and_a_full_disk_is_told() {
        let name = format!("lockgate-keeper-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let place = LastGood::new(folder.join("data/last-good"), "/a/", &["h".to_owned()]);
        let mirror = Arc::new(Mirror::default());
        let report = SharedReport::default();
        // Where the folder should be is something else.
        std::fs::write(folder.join("data"), "").unwrap();
        let keeper = Keeper {
            collect: Duration::from_millis(5),
            again: Duration::from_millis(5),
            ..Keeper::new(Arc::clone(&mirror), place.clone(), Arc::clone(&report))
        };
        let running = tokio::spawn(keeper.run());
        until(&report, |saved| saved.error.is_some()).await;
        std::fs::remove_file(folder.join("data")).unwrap();
        mirror.change(vec![put("routes/a", 3)], 3, |_| true);
        until(&report, |saved| {
            saved.revision == Some(3) && saved.error.is_none()
        })
        .await;
        mirror.change(vec![put("routes/b", 4)], 4, |_| true);
        mirror.change(vec![put("routes/c", 5)], 5, |_| false);
        until(&report, |saved| saved.revision == Some(5)).await;
        let kept = place.read().unwrap().unwrap();
        assert_eq!(kept, mirror.accepted());
        assert_eq!(kept.items.len(), 2);
        running.abort();
        let _ = std::fs::remove_dir_all(&folder);
    }
}
