//! A store in memory: nothing outlives the process. Also the half of the embedded store that is
//! read: what differs is the [`Disk`] that a write goes to before it counts.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tokio::sync::watch as signal;

use super::state::{Seconds, State, Write};
use super::{Commit, Event, Item, Listing, Store, StoreError, Txn, Watch, WatchError};

/// What makes writes last.
pub(super) trait Disk: Send + 'static {
    /// Keeps the writes of one revision, all or none, before it returns.
    fn keep(&mut self, writes: &[Write], revision: u64) -> Result<(), StoreError>;

    /// After a failure of [`keep`](Disk::keep): the last revision that is kept, for certain.
    fn settle(&mut self) -> Result<u64, StoreError>;
}

/// Keeps nothing.
struct Nowhere;

impl Disk for Nowhere {
    fn keep(&mut self, _: &[Write], _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn settle(&mut self) -> Result<u64, StoreError> {
        Ok(0)
    }
}

/// The disk, and what is not known of it.
struct Writer {
    disk: Box<dyn Disk>,
    /// A write that failed in a way that leaves open whether it is on disk, and its revision.
    uncertain: Option<(Vec<Write>, u64)>,
}

/// A store in memory.
pub struct Memory {
    pub(super) shared: Arc<Shared>,
}

/// What the store, its watches and its writes share.
pub(super) struct Shared {
    state: RwLock<State>,
    /// Held through a whole write. `None` once it was released.
    writer: Mutex<Option<Writer>>,
    /// The revision, for whoever waits for the next one.
    revision: signal::Sender<u64>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::alone(State::default())
    }
}

impl Memory {
    /// With these items, and nothing behind it.
    pub(super) fn alone(state: State) -> Memory {
        Memory::over(state, Box::new(Nowhere))
    }

    pub(super) fn over(state: State, disk: Box<dyn Disk>) -> Memory {
        let (revision, _) = signal::channel(state.revision());
        Memory {
            shared: Arc::new(Shared {
                state: RwLock::new(state),
                writer: Mutex::new(Some(Writer::new(disk))),
                revision,
            }),
        }
    }
}

impl Shared {
    fn state(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn next_end(&self) -> Option<Seconds> {
        self.state().next_end()
    }

    fn commit(&self, txn: Txn, now: Seconds) -> Result<Commit, StoreError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = writer.as_mut() else {
            return Err(StoreError::new(
                "cannot write",
                "the store was handed to another process",
            ));
        };
        self.make_certain(writer)?;
        // Only the holder of the disk writes: what is read here stays so until it is applied.
        let (writes, revision) = {
            let state = self.state();
            if !txn.guards.iter().all(|guard| state.holds(guard)) {
                return Ok(Commit::Refused);
            }
            (state.plan(txn.ops, now), state.revision())
        };
        if writes.is_empty() {
            return Ok(Commit::Done(revision));
        }
        let revision = revision + 1;
        if let Err(error) = writer.disk.keep(&writes, revision) {
            // It may be there all the same: what is answered has to agree with the disk.
            match writer.disk.settle() {
                Ok(kept) if kept == revision => {}
                Ok(_) => return Err(error),
                Err(_) => {
                    writer.uncertain = Some((writes, revision));
                    let text = format!("it is uncertain whether it was written: {}", error.chain());
                    return Err(StoreError::plain(text));
                }
            }
        }
        self.apply(writes, revision);
        Ok(Commit::Done(revision))
    }

    /// Finds out what became of a write that failed, before the next one builds on it.
    fn make_certain(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let Some((writes, revision)) = writer.uncertain.take() else {
            return Ok(());
        };
        match writer.disk.settle() {
            Ok(kept) if kept == revision => self.apply(writes, revision),
            Ok(_) => {}
            Err(error) => {
                writer.uncertain = Some((writes, revision));
                return Err(error);
            }
        }
        Ok(())
    }

    fn apply(&self, writes: Vec<Write>, revision: u64) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.apply(writes);
        drop(state);
        self.revision.send_replace(revision);
    }

    fn release(&self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.take();
    }

    /// The disk is there again; what is in memory is what is on it.
    pub(super) fn retake(&self, disk: Box<dyn Disk>) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        *writer = Some(Writer::new(disk));
    }

    /// The last write.
    pub(super) fn revision(&self) -> u64 {
        self.state().revision()
    }
}

impl Writer {
    fn new(disk: Box<dyn Disk>) -> Writer {
        Writer {
            disk,
            uncertain: None,
        }
    }
}

#[async_trait]
impl Store for Memory {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        Ok(self.shared.state().list(prefix))
    }

    async fn get(&self, path: &str) -> Result<Option<Item>, StoreError> {
        Ok(self.shared.state().get(path))
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.shared.state().revision())
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        let shared = Arc::clone(&self.shared);
        // A disk may take its time, and a dropped request must not end a write half-way.
        let written = tokio::task::spawn_blocking(move || shared.commit(txn, now())).await;
        written.unwrap_or_else(|error| Err(StoreError::new("a write did not end", error)))
    }

    async fn watch(&self, after: u64) -> Result<Box<dyn Watch>, StoreError> {
        Ok(Box::new(Follow {
            shared: Arc::clone(&self.shared),
            revision: self.shared.revision.subscribe(),
            after,
        }))
    }

    async fn tend(&self) {
        let mut revision = self.shared.revision.subscribe();
        loop {
            let next = self.shared.state().next_end();
            let now = now();
            if next.is_some_and(|at| at <= now) {
                let txn = self.shared.state().ended(now);
                let ended = txn.ops.len();
                match self.commit(txn).await {
                    // Something was renewed in this moment: what has ended is looked for again.
                    Ok(Commit::Refused) => {}
                    Ok(Commit::Done(_)) => {
                        tracing::info!(ended, "resources with a time to live were deleted")
                    }
                    Err(error) => {
                        tracing::error!(error = %error.chain(), "resources that had their time stay");
                        tokio::time::sleep(AGAIN).await;
                    }
                }
                continue;
            }
            let pause = next.map_or(LONG, |at| Duration::from_secs(at - now).min(LONG));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = revision.changed() => if changed.is_err() { return },
            }
        }
    }

    fn release(&self) {
        self.shared.release();
    }

    fn retake(&self) -> Result<(), StoreError> {
        self.shared.retake(Box::new(Nowhere));
        Ok(())
    }
}

/// Between two tries of a deletion that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// The clock is looked at this often at least: it may have been set.
const LONG: Duration = Duration::from_secs(60);

fn now() -> Seconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}

struct Follow {
    shared: Arc<Shared>,
    revision: signal::Receiver<u64>,
    after: u64,
}

#[async_trait]
impl Watch for Follow {
    async fn next(&mut self) -> Result<(Vec<Event>, u64), WatchError> {
        loop {
            // Marked before the look: what comes after it wakes the wait.
            self.revision.mark_unchanged();
            let (events, revision) = {
                let state = self.shared.state();
                (state.since(self.after)?, state.revision())
            };
            if !events.is_empty() {
                self.after = revision;
                return Ok((events, revision));
            }
            let changed = self.revision.changed().await;
            changed.map_err(|_| WatchError::Broken("the store is closed".to_owned()))?;
        }
    }
}
