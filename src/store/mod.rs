//! Where the Admin API keeps resources, and where the gateway reads them from.
//!
//! A store holds JSON texts by path (`routes/1`), exactly as they were given. Every write gets the
//! next number of one counter, the revision; an item remembers the one that made it and the one
//! that changed it last. A write is answered once it is on disk, and a read sees every write that
//! was answered.
//!
//! Below [`OWN`] a store keeps what is no resource: the history of changes, say. It is written in the
//! same transactions, and neither lists of everything nor watches tell of it.
//!
//! ```
//! # use lockgate::store::{Commit, Guard, Memory, Store, Txn};
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! # let store = Memory::default();
//! let listing = store.list("routes/").await.unwrap();
//! let made = Txn::put("routes/1", r#"{"uri":"/"}"#).when(Guard::Absent("routes/1".into()));
//! assert_eq!(store.commit(made.clone()).await.unwrap(), Commit::Done(listing.revision + 1));
//! assert_eq!(store.commit(made).await.unwrap(), Commit::Refused);
//! // Everything after what was listed.
//! let mut watch = store.watch(listing.revision).await.unwrap();
//! assert_eq!(watch.next().await.unwrap().1, listing.revision + 1);
//! # });
//! ```

pub mod durable;
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
pub mod last_good;
mod memory;
mod mirror;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use embedded::Embedded;
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, Registry};
pub use memory::Memory;
pub use mirror::{Accepted, Mirror};

/// What the paths begin with that are no resources but lockgate's own. In etcd they are beside the
/// prefix, where nobody looks who follows resources.
pub const OWN: &str = "lockgate/";

/// One stored resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its path: `routes/1`, `consumers/ann/credentials/c1`.
    pub path: Arc<str>,
    /// Its JSON text, as it was given.
    pub text: Arc<str>,
    /// The revision that made it.
    pub created: u64,
    /// The revision that changed it last.
    pub modified: u64,
}

/// Items at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their paths.
    pub items: Vec<Item>,
    /// The last write they show.
    pub revision: u64,
    /// Which store it is: another number at the same place is a store that was made anew. 0 where
    /// there is no telling.
    pub identity: u64,
}

/// What is there without the texts: by path, the revision that changed it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// In the order of their paths.
    pub items: Vec<(Arc<str>, u64)>,
    /// The last write they show.
    pub revision: u64,
}

impl Listing {
    /// The item at a path.
    pub fn find(&self, path: &str) -> Option<&Item> {
        let at = self.items.binary_search_by(|item| (*item.path).cmp(path));
        self.items.get(at.ok()?)
    }
}

/// What must be so for a transaction to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing is at this path.
    Absent(String),
    /// Something is at this path.
    Present(String),
    /// What is at this path was changed last by this revision.
    Modified(String, u64),
    /// Nothing whose path begins with this segment (`routes`; below [`OWN`] the two first ones) was
    /// put after this revision.
    Unchanged(&'static str, u64),
}

/// One write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Puts a text at a path. With a time to live it is deleted after that.
    Put {
        /// The path.
        path: String,
        /// The JSON text.
        text: String,
        /// How long it stays.
        ttl: Option<Duration>,
    },
    /// Deletes what is at a path; nothing there is fine.
    Delete(String),
    /// Deletes everything whose path begins so; nothing there is fine. However much there is, it
    /// is one write: etcd takes no more than 128 in a transaction.
    DeleteAll(String),
}

/// Writes that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// What must be so.
    pub guards: Vec<Guard>,
    /// The writes. None of them is at the path of another.
    pub ops: Vec<Op>,
}

impl Txn {
    /// Puts a text at a path.
    pub fn put(path: impl Into<String>, text: impl Into<String>) -> Txn {
        Txn::of(Op::Put {
            path: path.into(),
            text: text.into(),
            ttl: None,
        })
    }

    /// Deletes what is at a path.
    pub fn delete(path: impl Into<String>) -> Txn {
        Txn::of(Op::Delete(path.into()))
    }

    /// One write.
    pub fn of(op: Op) -> Txn {
        Txn {
            guards: Vec::new(),
            ops: vec![op],
        }
    }

    /// Adds a condition.
    #[must_use]
    pub fn when(mut self, guard: Guard) -> Txn {
        self.guards.push(guard);
        self
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It is on disk; this is its revision. Without an effect (deleting what is not there) it is
    /// the revision before.
    Done(u64),
    /// A guard did not hold; nothing was written.
    Refused,
}

/// A change that a watch tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This is there now.
    Put(Item),
    /// This path is gone, with the revision that removed it.
    Gone(Arc<str>, u64),
}

impl Event {
    /// What it is about.
    pub fn path(&self) -> &str {
        match self {
            Event::Put(item) => &item.path,
            Event::Gone(path, _) => path,
        }
    }
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The store no longer knows what happened since then: list again.
    #[error("the store has forgotten what changed since revision {0}")]
    Forgotten(u64),
    /// The store is older than what was read of it: it was restored, or made anew.
    #[error("the store is at revision {now}, and was at {after} before")]
    WentBack {
        /// What was read.
        after: u64,
        /// Where it is.
        now: u64,
    },
    /// The store is gone or out of reach.
    #[error("the watch broke off: {0}")]
    Broken(String),
}

/// Tells what changes, in order.
#[async_trait]
pub trait Watch: Send {
    /// The next changes and the revision they lead to. None at all when only that is told: the
    /// store is alive, and something else in it has changed.
    ///
    /// # Errors
    /// When it cannot go on.
    async fn next(&mut self) -> Result<(Vec<Event>, u64), WatchError>;
}

/// A store that cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct StoreError {
    doing: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// A failure without a cause that can be named.
    pub fn plain(doing: impl Into<String>) -> StoreError {
        StoreError {
            doing: doing.into(),
            source: None,
        }
    }

    /// A failure while `doing` something.
    pub fn new(
        doing: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> StoreError {
        StoreError {
            doing: doing.into(),
            source: Some(source.into()),
        }
    }

    /// The failure and its causes, on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        text
    }
}

/// See the module.
#[async_trait]
pub trait Store: Send + Sync {
    /// Which store it is and where, for people.
    fn describe(&self) -> String;

    /// What its keys begin with in the answers of the Admin API, with a slash at the end.
    fn prefix(&self) -> &str {
        "/apisix/"
    }

    /// Everything whose path begins so; what is below [`OWN`] only for a prefix that is, too.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn list(&self, prefix: &str) -> Result<Listing, StoreError>;

    /// What is there, without the texts: as of a revision, or if that is not known any more as of
    /// now. To see whether whoever watches has missed something; `None` where nothing can get lost.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn versions(&self, at: u64) -> Result<Option<Versions>, StoreError> {
        let _ = at;
        Ok(None)
    }

    /// What [`list`](Self::list) gives, without the texts where that is less to send.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn names(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.list(prefix).await
    }

    /// Whether what is below [`OWN`] may be written.
    ///
    /// # Errors
    /// When that cannot be found out now.
    async fn keeps_own(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Bytes of one transaction, roughly, above which it is refused, and what sets that limit.
    fn largest_write(&self) -> Option<(usize, &'static str)> {
        None
    }

    /// Writes of one transaction above which it is refused, and what sets that limit.
    fn most_changes(&self) -> Option<(usize, &'static str)> {
        None
    }

    /// Whether other processes write to it, too.
    fn is_shared(&self) -> bool {
        false
    }

    /// What is at a path.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn get(&self, path: &str) -> Result<Option<Item>, StoreError>;

    /// The last write that reads show.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn revision(&self) -> Result<u64, StoreError>;

    /// Carries a transaction out, if its guards hold. On disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written. Where the error does not say that it is uncertain, nothing was.
    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError>;

    /// Everything that changes after a revision, except below [`OWN`].
    ///
    /// # Errors
    /// When it cannot be watched.
    async fn watch(&self, after: u64) -> Result<Box<dyn Watch>, StoreError>;

    /// What the store does by itself while it is open: deleting what has had its time. Never ends.
    async fn tend(&self);

    /// Writes nothing from now on, and lets another process have what this one held.
    fn release(&self);

    /// Takes back what was let go of: the other process did not want it.
    ///
    /// # Errors
    /// When another process has it, or has written to it.
    fn retake(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
