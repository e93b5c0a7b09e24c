//! The embedded store: one file, written by redb, readable by its owner only.
//!
//! Reads come from memory; a write is in the file, and the file on disk, before it is in memory and
//! before it is answered. After a crash the file holds every write that was answered.

use std::fs::TryLockError;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageBackend,
    TableDefinition,
};

use super::memory::{Disk, Memory};
use super::state::{Seconds, State, Write};
use super::{Commit, Item, Listing, OWN, Store, StoreError, Txn, Watch, durable};

/// Items by path: created, modified, end (0 for none), text.
const ITEMS: TableDefinition<&str, (u64, u64, u64, &str)> = TableDefinition::new("items");
/// The same of what is below [`OWN`]: a table of its own, which versions without it do not look at.
const OWN_ITEMS: TableDefinition<&str, (u64, u64, u64, &str)> = TableDefinition::new("own");
/// Numbers by name.
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
const REVISION: &str = "revision";
const FORMAT: &str = "format";
/// Raised when an older version could not read what a newer one writes.
const THIS_FORMAT: u64 = 1;
/// Memory for pages of the file. Items are held in memory besides, so this only speeds writes up.
const CACHE_BYTES: usize = 16 << 20;
/// Between two looks whether another process has let go of the file.
const LOOK: Duration = Duration::from_millis(20);

/// See the module.
pub struct Embedded {
    pub(super) memory: Memory,
    path: PathBuf,
}

impl Embedded {
    /// Opens the file, or makes it, and its folder. Waits `patience` for another process to let go
    /// of it.
    ///
    /// # Errors
    /// When another process keeps it, when it cannot be read or written, or when a newer version
    /// wrote it.
    pub fn open(path: &Path, patience: Duration) -> Result<Embedded, StoreError> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            durable::make_folder(folder).map_err(|e| {
                StoreError::new(format!("cannot make the folder {}", folder.display()), e)
            })?;
        }
        let (disk, state) = opened(path, patience)?;
        Ok(Embedded {
            memory: Memory::over(state, Box::new(disk)),
            // Whoever looks for it may be somewhere else.
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        })
    }

    /// What is in the file, for whoever only looks: the file stays as it is, and no process that
    /// serves is kept from it for longer than it takes to read it. What is written to the result is
    /// lost.
    ///
    /// # Errors
    /// When a process has it open, or when it cannot be read.
    pub fn look(path: &Path) -> Result<Memory, StoreError> {
        let failed = |e| StoreError::new(format!("cannot look into {}", path.display()), e);
        let bytes = read_shared(path).map_err(|e| failed(e.into()))?;
        let state = of_copy(&bytes).map_err(failed)?;
        Ok(Memory::alone(state))
    }

    /// Whether a process has the file open.
    pub fn is_open(path: &Path) -> bool {
        let Ok(file) = std::fs::File::open(path) else {
            return false;
        };
        // The lock goes with the file at the end of this function.
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The bytes of a file that no process has open.
fn read_shared(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    // The lock goes with the file at the end of this function.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            return Err(std::io::Error::other("a running process has it open"));
        }
        Err(TryLockError::Error(error)) => return Err(error),
        Ok(()) => {}
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a file with these bytes holds. After a process was killed, redb puts the file in order when it
/// is opened; here it does so to the copy.
fn of_copy(bytes: &[u8]) -> Result<State, Box<dyn std::error::Error + Send + Sync>> {
    if bytes.is_empty() {
        return Ok(State::default());
    }
    let copy = InMemoryBackend::new();
    copy.set_len(bytes.len() as u64)?;
    copy.write(0, bytes)?;
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(copy)?;
    read(&database)
}

/// The file, and what is in it.
fn opened(path: &Path, patience: Duration) -> Result<(File, State), StoreError> {
    let bytes = locked(path, patience)?;
    let failed = |e| StoreError::new(format!("cannot read {}", path.display()), e);
    let database = database(&bytes).map_err(|e| failed(e.into()))?;
    let state = read(&database).map_err(failed)?;
    // A file that was just made is there after a crash, too.
    durable::sync_entry(path).map_err(|e| failed(e.into()))?;
    let disk = File {
        path: path.to_owned(),
        bytes,
        database: Some(database),
    };
    Ok((disk, state))
}

/// The file, which no other process has until this is dropped.
fn locked(path: &Path, patience: Duration) -> Result<Arc<dyn StorageBackend>, StoreError> {
    let until = Instant::now() + patience;
    loop {
        match locked_once(path) {
            Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < until => {
                #[allow(clippy::disallowed_methods)] // At start, before any worker runs.
                std::thread::sleep(LOOK);
            }
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                let text = "another process has it open; two gateways cannot share one file";
                return Err(StoreError::new(
                    format!("cannot open {}", path.display()),
                    text,
                ));
            }
            other => {
                return other
                    .map_err(|e| StoreError::new(format!("cannot open {}", path.display()), e));
            }
        }
    }
}

fn locked_once(path: &Path) -> Result<Arc<dyn StorageBackend>, DatabaseError> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(redb::StorageError::from)?;
    // It holds keys: whatever made it, only its owner reads it.
    let meta = file.metadata().map_err(redb::StorageError::from)?;
    if meta.permissions().mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))
            .map_err(redb::StorageError::from)?;
    }
    Ok(Arc::new(FileBackend::new(file)?))
}

fn database(bytes: &Arc<dyn StorageBackend>) -> Result<Database, DatabaseError> {
    Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(Bytes(Arc::clone(bytes)))
}

/// The file as redb sees it. What locks it is not redb's: after a failure redb has to be made anew,
/// and no other process may come in between.
#[derive(Debug)]
struct Bytes(Arc<dyn StorageBackend>);

impl StorageBackend for Bytes {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

/// Everything in the file.
fn read(database: &Database) -> Result<State, Box<dyn std::error::Error + Send + Sync>> {
    // Tables are made by the first write to them.
    let make = database.begin_write()?;
    {
        make.open_table(ITEMS)?;
        make.open_table(OWN_ITEMS)?;
        let mut numbers = make.open_table(NUMBERS)?;
        let format = numbers.get(FORMAT)?.map(|found| found.value());
        match format {
            None => {
                numbers.insert(FORMAT, THIS_FORMAT)?;
            }
            Some(THIS_FORMAT) => {}
            Some(other) => {
                return Err(format!(
                    "it has format {other}, this version knows format {THIS_FORMAT}"
                )
                .into());
            }
        }
    }
    make.commit()?;
    let read = database.begin_read()?;
    let numbers = read.open_table(NUMBERS)?;
    let revision = numbers.get(REVISION)?.map_or(0, |found| found.value());
    let mut items = Vec::new();
    let own = read.open_table(OWN_ITEMS)?;
    let rows = read.open_table(ITEMS)?;
    for row in rows.iter()?.chain(own.iter()?) {
        let (path, row) = row?;
        let (created, modified, ends, text) = row.value();
        let item = Item {
            path: path.value().into(),
            text: text.into(),
            created,
            modified,
        };
        items.push((item, (ends > 0).then_some(ends)));
    }
    Ok(State::restore(items, revision))
}

/// The open file.
struct File {
    path: PathBuf,
    /// Locked.
    bytes: Arc<dyn StorageBackend>,
    /// `None` after a failure: redb wants it opened again.
    database: Option<Database>,
}

impl File {
    fn failed(&self, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
        StoreError::new(format!("cannot write {}", self.path.display()), e)
    }

    /// Does something with the database, and lets go of it when that fails.
    fn with<T>(
        &mut self,
        work: impl FnOnce(&Database) -> Result<T, Box<dyn std::error::Error + Send + Sync>>,
    ) -> Result<T, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => database(&self.bytes).map_err(|e| self.failed(e))?,
        };
        let done = work(&database).map_err(|e| self.failed(e))?;
        self.database = Some(database);
        Ok(done)
    }
}

impl Disk for File {
    fn keep(&mut self, writes: &[Write], revision: u64) -> Result<(), StoreError> {
        self.with(|database| keep(database, writes, revision))
    }

    fn settle(&mut self) -> Result<u64, StoreError> {
        // What is read after a failure may not be on disk: a write that succeeds says that it is.
        self.database = None;
        self.with(|database| {
            let mut txn = database.begin_write()?;
            txn.set_durability(Durability::Immediate)?;
            let revision = {
                let mut numbers = txn.open_table(NUMBERS)?;
                numbers.insert(FORMAT, THIS_FORMAT)?;
                numbers.get(REVISION)?.map_or(0, |found| found.value())
            };
            txn.commit()?;
            Ok(revision)
        })
    }
}

fn keep(
    database: &Database,
    writes: &[Write],
    revision: u64,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut txn = database.begin_write()?;
    // Returns once the disk has it.
    txn.set_durability(Durability::Immediate)?;
    {
        let mut items = txn.open_table(ITEMS)?;
        let mut own = txn.open_table(OWN_ITEMS)?;
        for write in writes {
            let path = write.path();
            let table = if path.starts_with(OWN) {
                &mut own
            } else {
                &mut items
            };
            match write {
                Write::Put { item, ends } => {
                    let ends: Seconds = ends.unwrap_or(0);
                    table.insert(path, (item.created, item.modified, ends, &*item.text))?;
                }
                Write::Delete(_) => {
                    table.remove(path)?;
                }
            }
        }
        txn.open_table(NUMBERS)?.insert(REVISION, revision)?;
    }
    txn.commit()?;
    Ok(())
}

#[async_trait]
impl Store for Embedded {
    fn describe(&self) -> String {
        format!("embedded store {}", self.path.display())
    }
    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.memory.list(prefix).await
    }
    async fn get(&self, path: &str) -> Result<Option<Item>, StoreError> {
        self.memory.get(path).await
    }
    async fn revision(&self) -> Result<u64, StoreError> {
        self.memory.revision().await
    }
    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        self.memory.commit(txn).await
    }
    async fn watch(&self, after: u64) -> Result<Box<dyn Watch>, StoreError> {
        self.memory.watch(after).await
    }
    async fn tend(&self) {
        self.memory.tend().await;
    }
    fn release(&self) {
        self.memory.release();
    }
    fn retake(&self) -> Result<(), StoreError> {
        let (disk, state) = opened(&self.path, Duration::ZERO)?;
        let shared = &self.memory.shared;
        if state.revision() != shared.revision() {
            let text = "another process has written to it";
            return Err(StoreError::new(
                format!("cannot take {} back", self.path.display()),
                text,
            ));
        }
        shared.retake(Box::new(disk));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
