//! etcd as a store, in APISIX's layout: `PREFIX/routes/1`, each value a JSON text.
//!
//! Several gateways, and APISIX beside them, may share one. The revision is etcd's own, so guards
//! hold against everybody who writes. A watch goes on from the revision of the list before it; when
//! etcd has compacted what lies between, whoever watches lists again.
//!
//! What is below [`OWN`] is at `PREFIX-lockgate/...`: beside the prefix, where no watch looks.

mod ask;
mod members;
mod parts;
mod roll;
mod transport;
mod watch;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, KeyValue,
    PutOptions, Txn as EtcdTxn, TxnOp,
};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use super::{Commit, Guard, Item, Listing, OWN, Op, Store, StoreError, Txn, Versions, Watch};
use crate::settings::EtcdSettings;
use ask::{Failed, any, one, reason};
use members::{Connect, Members, is_unknown_revision};
use parts::Parts;
pub use roll::Registry;
use transport::Transport;
use watch::Watched;

/// The longest answer: a part of the largest items that etcd takes by default.
const LONGEST_ANSWER: usize = 1 << 30;
/// Between two signs of life on an idle connection: a server that vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// For the answer to such a sign.
const KEEPALIVE_LIMIT: Duration = Duration::from_secs(5);
/// The longest a connection may take, whatever the settings say.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The shortest silence of a watch that means anything, whatever the settings say.
const SILENCE_LEAST: Duration = Duration::from_secs(1);
/// Operations, or conditions, that one level of a transaction may have: etcd counts those of a level
/// and of the deepest one below it together, and takes 128 by default (`--max-txn-ops`). So many
/// transactions of so many operations are one.
const LEVEL_OPS: usize = 62;
/// Changes that are carried out at once.
const MOST_CHANGES: usize = LEVEL_OPS * LEVEL_OPS;
/// Of those, what the history of a change, and that it waits, may take: the removal of old entries.
const OWN_CHANGES: usize = 40;
/// The largest transaction by default (`--max-request-bytes`, 1.5 MiB), less what is around texts.
const LARGEST_WRITE: usize = 1_400_000;
/// gRPC's number for that.
const PERMISSION_DENIED: i32 = 7;

/// etcd as a store.
pub struct Etcd {
    members: Arc<Members>,
    hosts: String,
    /// Ends in a slash.
    prefix: String,
    /// Where [`OWN`] is. Ends in a slash.
    own: String,
    /// Whether that may be written.
    keeps_own: OnceCell<bool>,
    /// For a request that one server has to carry out.
    timeout: Duration,
    /// The longest a watch may say nothing.
    silence: Duration,
    /// The client's own: a connection lives on the threads it was made on.
    runtime: Option<Runtime>,
}

impl Etcd {
    /// A store that connects with its first request.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn open(settings: &EtcdSettings) -> Result<Etcd, StoreError> {
        let hosts = settings.hosts.join(", ");
        let failed = |e| StoreError::new(format!("cannot use etcd at {hosts}"), e);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(|e| failed(e.into()))?;
        let connect = Connect {
            options: options(settings),
            transport: Transport::new(&settings.tls).map_err(failed)?,
        };
        let members = Members::new(&settings.hosts, connect, settings.timeout, settings.rest);
        let prefix = settings.prefix.trim_end_matches('/');
        Ok(Etcd {
            members: Arc::new(members),
            hosts,
            prefix: format!("{prefix}/"),
            own: format!("{prefix}-lockgate/"),
            keeps_own: OnceCell::new(),
            timeout: settings.timeout,
            silence: settings.watch.max(SILENCE_LEAST),
            runtime: Some(runtime),
        })
    }

    /// Runs something on the client's own threads.
    async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        request: impl Future<Output = Result<T, Failed>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let failed = |e: Box<dyn std::error::Error + Send + Sync>| {
            StoreError::new(format!("{doing} at {}", self.hosts), e)
        };
        let Some(runtime) = &self.runtime else {
            return Err(StoreError::new(doing, "the store is closed"));
        };
        let done = runtime.spawn(request).await;
        done.map_err(|gone| failed(gone.into()))?
            .map_err(|error| failed(reason(error)))
    }

    fn key(&self, path: &str) -> String {
        self.place().key(path)
    }

    fn place(&self) -> Place {
        Place {
            prefix: self.prefix.clone(),
            own: self.own.clone(),
        }
    }

    /// Everything whose path begins so.
    async fn read_all(&self, prefix: &str, only_keys: bool) -> Result<Listing, StoreError> {
        let (place, start) = (self.place(), self.key(prefix));
        let mut parts = Parts {
            members: Arc::clone(&self.members),
            end: behind(&start),
            next: start.into_bytes(),
            revision: 0,
            only_keys,
            limit: parts::PART,
        };
        self.run("cannot read etcd", async move {
            let mut listing = Listing::default();
            loop {
                let (found, more) = parts.next().await?;
                let items = found.kvs().iter().filter_map(|kv| place.item(kv));
                listing.items.extend(items);
                if !more {
                    listing.identity = found.header().map_or(0, |h| h.cluster_id());
                    listing.revision = parts.revision;
                    return Ok(listing);
                }
            }
        })
        .await
    }
}

/// Which key a path has.
#[derive(Clone)]
struct Place {
    prefix: String,
    own: String,
}

impl Place {
    fn key(&self, path: &str) -> String {
        match path.strip_prefix(OWN) {
            Some(rest) => format!("{}{rest}", self.own),
            None => format!("{}{path}", self.prefix),
        }
    }

    /// An item, unless the key only marks a folder.
    fn item(&self, kv: &KeyValue) -> Option<Item> {
        let found = item(&self.own, kv).map(|found| Item {
            path: format!("{OWN}{}", found.path).into(),
            ..found
        });
        found.or_else(|| item(&self.prefix, kv))
    }
}

/// The same operations, so that no level has too many: transactions inside of the one that has the
/// conditions.
fn in_levels(mut ops: Vec<TxnOp>) -> Vec<TxnOp> {
    if ops.len() <= LEVEL_OPS {
        return ops;
    }
    let mut levels = Vec::new();
    while !ops.is_empty() {
        let rest = ops.split_off(ops.len().min(LEVEL_OPS));
        levels.push(TxnOp::txn(EtcdTxn::new().and_then(ops)));
        ops = rest;
    }
    levels
}

fn kv(client: &Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(LONGEST_ANSWER)
}

fn options(settings: &EtcdSettings) -> ConnectOptions {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(settings.timeout.min(CONNECT_LIMIT))
        .with_keep_alive(KEEPALIVE, KEEPALIVE_LIMIT)
        .with_keep_alive_while_idle(true)
        .with_auto_token_refresh(true)
        // A member that lost the others has to end its watches, not to keep them silent.
        .with_require_leader(true);
    if let Some((name, password)) = &settings.user {
        options = options.with_user(name, password);
    }
    options
}

/// A revision of etcd, which is signed and never negative.
fn revision(header: Option<&etcd_client::ResponseHeader>) -> u64 {
    header.map_or(0, |header| number(header.revision()))
}

fn number(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The path of a key. `None` where it is not text or only marks a folder: `apisix init` writes
/// `PREFIX/routes/`, with `init_dir` in it.
fn path<'a>(prefix: &str, kv: &'a KeyValue) -> Option<&'a str> {
    let path = std::str::from_utf8(kv.key()).ok()?.strip_prefix(prefix)?;
    (!path.is_empty() && !path.ends_with('/')).then_some(path)
}

fn item(prefix: &str, kv: &KeyValue) -> Option<Item> {
    Some(Item {
        path: path(prefix, kv)?.into(),
        text: String::from_utf8_lossy(kv.value()).into(),
        created: number(kv.create_revision()),
        modified: number(kv.mod_revision()),
    })
}

/// The first key behind all that begin so.
fn behind(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[async_trait]
impl Store for Etcd {
    fn describe(&self) -> String {
        format!("etcd at {} below {}", self.hosts, self.prefix)
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }

    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.read_all(prefix, false).await
    }

    async fn names(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.read_all(prefix, true).await
    }

    async fn keeps_own(&self) -> Result<bool, StoreError> {
        let asked = self.keeps_own.get_or_try_init(|| async move {
            let (members, key) = (Arc::clone(&self.members), format!("{}right", self.own));
            let may = self
                .run("cannot write to etcd", async move {
                    let ask = |client: Client| {
                        // Rights are looked at though the condition never holds, and nothing is written.
                        let never = Compare::create_revision(key.as_str(), CompareOp::Less, 0);
                        let put = TxnOp::put(key.as_str(), "", None);
                        let txn = EtcdTxn::new().when([never]).and_then([put]);
                        async move { kv(&client).txn(txn).await }
                    };
                    match any(&members, ask).await {
                        Ok(_) => Ok(true),
                        Err(Failed::Etcd(Error::GRpcStatus(status)))
                            if status.code() as i32 == PERMISSION_DENIED =>
                        {
                            Ok(false)
                        }
                        Err(error) => Err(error),
                    }
                })
                .await?;
            if !may {
                tracing::warn!(
                    keys = %self.own,
                    "no history is kept: the user of etcd may not write there"
                );
            }
            Ok(may)
        });
        asked.await.copied()
    }

    fn largest_write(&self) -> Option<(usize, &'static str)> {
        Some((LARGEST_WRITE, "etcd's --max-request-bytes, 1.5 MiB"))
    }

    fn most_changes(&self) -> Option<(usize, &'static str)> {
        Some((MOST_CHANGES - OWN_CHANGES, "etcd's --max-txn-ops, 128"))
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn versions(&self, at: u64) -> Result<Option<Versions>, StoreError> {
        let own = self.prefix.clone();
        let parts = |revision| Parts {
            members: Arc::clone(&self.members),
            end: behind(&own),
            next: own.clone().into_bytes(),
            revision,
            only_keys: true,
            limit: parts::PART,
        };
        // What was compacted is compared with what is there now.
        let (mut parts, mut now) = (parts(at), Some(parts(0)));
        let own = own.clone();
        self.run("cannot read etcd", async move {
            let mut versions = Versions::default();
            loop {
                let (found, more) = match (parts.next().await, now.take()) {
                    (Err(Failed::Etcd(error)), Some(now)) if is_unknown_revision(&error) => {
                        parts = now;
                        continue;
                    }
                    (part, _) => part?,
                };
                let paths = found.kvs().iter();
                let paths = paths.filter_map(|kv| {
                    let path = path(&own, kv)?;
                    Some((path.into(), number(kv.mod_revision())))
                });
                versions.items.extend(paths);
                if !more {
                    versions.revision = parts.revision;
                    return Ok(Some(versions));
                }
            }
        })
        .await
    }

    async fn get(&self, path: &str) -> Result<Option<Item>, StoreError> {
        let (members, place, key) = (Arc::clone(&self.members), self.place(), self.key(path));
        self.run("cannot read etcd", async move {
            let get = |client: Client| {
                let key = key.clone();
                async move { kv(&client).get(key, None).await }
            };
            let (_, found) = any(&members, get).await?;
            Ok(found.kvs().first().and_then(|kv| place.item(kv)))
        })
        .await
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        let (members, key) = (Arc::clone(&self.members), self.prefix.clone());
        self.run("cannot read etcd", async move {
            let get = |client: Client| {
                // What the user of the configuration has a right to, and no more.
                let (key, count) = (key.clone(), GetOptions::new().with_count_only());
                async move { kv(&client).get(key, Some(count)).await }
            };
            let (_, found) = any(&members, get).await?;
            Ok(revision(found.header()))
        })
        .await
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        if txn.ops.len() > MOST_CHANGES || txn.guards.len() > LEVEL_OPS {
            let text = format!(
                "a write has {} changes on {} conditions, of which etcd takes at most {MOST_CHANGES} and {LEVEL_OPS} \
                 at once (--max-txn-ops, 128 by default)",
                txn.ops.len(),
                txn.guards.len()
            );
            return Err(StoreError::plain(text));
        }
        let compares: Vec<Compare> = txn.guards.iter().map(|guard| self.compare(guard)).collect();
        let (members, place) = (Arc::clone(&self.members), self.place());
        let limit = self.timeout;
        let write = move |client: Client| async move {
            let mut ops = Vec::new();
            for op in txn.ops {
                ops.push(match op {
                    Op::Put { path, text, ttl } => {
                        let options = match ttl {
                            Some(ttl) => {
                                let seconds = signed(ttl.as_secs_f64().ceil() as u64).max(1);
                                let lease = client.lease_client().grant(seconds, None).await?;
                                Some(PutOptions::new().with_lease(lease.id()))
                            }
                            None => None,
                        };
                        TxnOp::put(place.key(&path), text, options)
                    }
                    Op::Delete(path) => TxnOp::delete(place.key(&path), None),
                    Op::DeleteAll(start) => {
                        let below = DeleteOptions::new().with_prefix();
                        TxnOp::delete(place.key(&start), Some(below))
                    }
                });
            }
            let txn = EtcdTxn::new().when(compares).and_then(in_levels(ops));
            kv(&client).txn(txn).await
        };
        self.run("cannot write to etcd", async move {
            // To one alone: one that does not answer may have done it. What was read just before
            // has found one that answers.
            let at = members.order(Instant::now()).first().copied().unwrap_or(0);
            let done = one(&members, at, limit, write).await;
            let done = done.map_err(Failed::of_a_write)?;
            Ok(if done.succeeded() {
                Commit::Done(revision(done.header()))
            } else {
                Commit::Refused
            })
        })
        .await
    }

    async fn watch(&self, after: u64) -> Result<Box<dyn Watch>, StoreError> {
        let (members, prefix) = (Arc::clone(&self.members), self.prefix.clone());
        let patience = self.silence;
        self.run("cannot watch etcd", async move {
            let watch = |client: Client| {
                let own = prefix.clone();
                let mut client = client
                    .watch_client()
                    .max_decoding_message_size(LONGEST_ANSWER);
                async move { client.watch(own, Some(watch::options(after))).await }
            };
            let (at, stream) = any(&members, watch).await?;
            let (asking, told) = stream.split();
            let watched = Watched {
                prefix,
                after,
                patience,
                members,
                at,
            };
            Ok(watched.follow(asking, told))
        })
        .await
    }

    async fn tend(&self) {
        // etcd ends leases by itself.
        std::future::pending().await
    }

    fn release(&self) {
        // Shared by whoever can reach it.
    }
}

impl Etcd {
    fn compare(&self, guard: &Guard) -> Compare {
        match guard {
            Guard::Absent(path) => Compare::create_revision(self.key(path), CompareOp::Equal, 0),
            Guard::Present(path) => Compare::create_revision(self.key(path), CompareOp::Greater, 0),
            Guard::Modified(path, revision) => {
                // Of what is not there, etcd says 0.
                let wanted = if *revision == 0 {
                    -1
                } else {
                    signed(*revision)
                };
                Compare::mod_revision(self.key(path), CompareOp::Equal, wanted)
            }
            Guard::Unchanged(segment, revision) => {
                let folder = self.key(&format!("{segment}/"));
                let next = signed(revision.saturating_add(1));
                Compare::mod_revision(folder, CompareOp::Less, next).with_prefix()
            }
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Waiting for its threads is not allowed on those of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_prefix() {
        assert_eq!(behind("/apisix/"), b"/apisix0");
        assert_eq!(behind("a"), b"b");
        assert_eq!(behind(""), [0]);
    }
}
