//! etcd as a store, in APISIX's layout: `PREFIX/routes/1`, each value a JSON text.
//!
//! Several gateways, and APISIX beside them, may share one. The revision is etcd's own, so guards
//! hold against everybody who writes. A watch goes on from the revision of the list before it; when
//! etcd has compacted what lies between, whoever watches lists again.

use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, EventType, GetOptions, KeyValue,
    OpenSslClientConfig, PutOptions, Txn as EtcdTxn, TxnOp, WatchOptions,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::{Commit, Event, Guard, Item, Listing, Op, Store, StoreError, Txn, Watch, WatchError};
use crate::settings::EtcdSettings;

/// Items that are asked for at once. A list of a hundred thousand is read in so many parts, all of
/// one revision.
const PART: i64 = 500;
/// The longest answer: a part of the largest items that etcd takes by default.
const LONGEST_ANSWER: usize = 1 << 30;
/// Between two signs of life on an idle connection: a server that vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// For the answer to such a sign.
const KEEPALIVE_LIMIT: Duration = Duration::from_secs(5);
/// Between tries at the start: etcd may be starting as well.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// The longest a connection may take, whatever the settings say.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Changes that wait for whoever watches.
const WAITING: usize = 64;
/// What `apisix init` writes where a folder begins.
const FOLDER_MARK: &[u8] = b"init_dir";

/// etcd as a store.
pub struct Etcd {
    client: Client,
    hosts: String,
    /// Ends in a slash.
    prefix: String,
    timeout: Duration,
    /// The client's own: a connection lives on the threads it was made on.
    runtime: Option<Runtime>,
}

impl Etcd {
    /// Connects.
    ///
    /// # Errors
    /// When the settings cannot be used, or no server answers.
    pub fn open(settings: &EtcdSettings) -> Result<Etcd, StoreError> {
        let hosts = settings.hosts.join(", ");
        let failed = |e| StoreError::new(format!("cannot use etcd at {hosts}"), e);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(|e| failed(e.into()))?;
        let options = options(settings).map_err(failed)?;
        // What the user of the configuration has a right to, and no more.
        let own = format!("{}/", settings.prefix.trim_end_matches('/'));
        let mut left = settings.retries;
        let client = loop {
            let connect = Client::connect(&settings.hosts, Some(options.clone()));
            let own = own.clone();
            let asked = runtime.block_on(async {
                let limit = settings.timeout.min(CONNECT_LIMIT);
                let connected = async {
                    let client = connect.await?;
                    // To connect does nothing yet.
                    let count = GetOptions::new().with_count_only();
                    client.kv_client().get(own, Some(count)).await?;
                    Ok::<_, etcd_client::Error>(client)
                };
                match tokio::time::timeout(limit, connected).await {
                    Ok(done) => done.map_err(Into::into),
                    Err(late) => Err(late.into()),
                }
            });
            match asked {
                Ok(client) => break client,
                Err(error) if left == 0 => return Err(failed(error)),
                Err(error) => tracing::warn!(%error, left, "etcd does not answer, trying again"),
            }
            left -= 1;
            // Nobody is served yet: this is the start.
            runtime.block_on(async { tokio::time::sleep(BETWEEN_TRIES).await });
        };
        let prefix = settings.prefix.trim_end_matches('/');
        Ok(Etcd {
            client,
            hosts,
            prefix: format!("{prefix}/"),
            timeout: settings.timeout,
            runtime: Some(runtime),
        })
    }

    /// Runs a request on the client's own threads, within the time a request may take.
    async fn ask<T: Send + 'static>(
        &self,
        doing: &'static str,
        request: impl Future<Output = Result<T, etcd_client::Error>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(runtime) = &self.runtime else {
            return Err(StoreError::new(doing, "the store is closed"));
        };
        let asked = runtime
            .spawn(tokio::time::timeout(self.timeout, request))
            .await;
        match asked {
            Ok(Ok(done)) => done.map_err(|e| StoreError::new(doing, e)),
            Ok(Err(late)) => Err(StoreError::new(doing, late)),
            Err(gone) => Err(StoreError::new(doing, gone)),
        }
    }

    fn key(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}

fn options(
    settings: &EtcdSettings,
) -> Result<ConnectOptions, Box<dyn std::error::Error + Send + Sync>> {
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
    if settings
        .hosts
        .iter()
        .any(|host| host.starts_with("https://"))
    {
        let read = |path: &std::path::Path| {
            std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let mut tls = OpenSslClientConfig::default();
        if let Some(ca) = &settings.tls.ca {
            tls = tls.ca_cert_pem(&read(ca)?);
        }
        if let Some((cert, key)) = &settings.tls.cert {
            tls = tls.client_cert_pem_and_key(&read(cert)?, &read(key)?);
        }
        if settings.tls.insecure {
            tls = tls.manually(|builder| {
                builder.set_verify(openssl::ssl::SslVerifyMode::NONE);
                Ok(())
            });
        }
        options = options.with_openssl_tls(tls);
    }
    Ok(options)
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

/// An item, unless the key only marks a folder.
fn item(prefix: &str, kv: &KeyValue) -> Option<Item> {
    let path = std::str::from_utf8(kv.key()).ok()?.strip_prefix(prefix)?;
    if path.ends_with('/') || kv.value() == FOLDER_MARK {
        return None;
    }
    Some(Item {
        path: path.into(),
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
        let mut kv = self
            .client
            .kv_client()
            .max_decoding_message_size(LONGEST_ANSWER);
        let (own, start) = (self.prefix.clone(), self.key(prefix));
        let end = behind(&start);
        self.ask("etcd cannot be read", async move {
            let mut listing = Listing::default();
            let mut next = start.into_bytes();
            loop {
                let part = GetOptions::new().with_range(end.clone()).with_limit(PART);
                let part = part.with_revision(signed(listing.revision));
                let found = kv.get(next.clone(), Some(part)).await?;
                if listing.revision == 0 {
                    listing.revision = revision(found.header());
                }
                let items = found.kvs().iter().filter_map(|kv| item(&own, kv));
                listing.items.extend(items);
                match found.kvs().last().filter(|_| found.more()) {
                    Some(last) => {
                        next = last.key().to_vec();
                        next.push(0);
                    }
                    None => return Ok(listing),
                }
            }
        })
        .await
    }

    async fn get(&self, path: &str) -> Result<Option<Item>, StoreError> {
        let mut kv = self
            .client
            .kv_client()
            .max_decoding_message_size(LONGEST_ANSWER);
        let (own, key) = (self.prefix.clone(), self.key(path));
        self.ask("etcd cannot be read", async move {
            let found = kv.get(key, None).await?;
            Ok(found.kvs().first().and_then(|kv| item(&own, kv)))
        })
        .await
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        let (mut kv, key) = (self.client.kv_client(), self.prefix.clone());
        self.ask("etcd cannot be read", async move {
            let count = GetOptions::new().with_count_only();
            Ok(revision(kv.get(key, Some(count)).await?.header()))
        })
        .await
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        let compares: Vec<Compare> = txn.guards.iter().map(|guard| self.compare(guard)).collect();
        let (mut kv, mut leases) = (self.client.kv_client(), self.client.lease_client());
        let prefix = self.prefix.clone();
        self.ask("etcd cannot be written", async move {
            let mut ops = Vec::new();
            for op in txn.ops {
                ops.push(match op {
                    Op::Put { path, text, ttl } => {
                        let options = match ttl {
                            Some(ttl) => {
                                let seconds = signed(ttl.as_secs_f64().ceil() as u64).max(1);
                                let lease = leases.grant(seconds, None).await?;
                                Some(PutOptions::new().with_lease(lease.id()))
                            }
                            None => None,
                        };
                        TxnOp::put(format!("{prefix}{path}"), text, options)
                    }
                    Op::Delete(path) => TxnOp::delete(format!("{prefix}{path}"), None),
                });
            }
            let done = kv.txn(EtcdTxn::new().when(compares).and_then(ops)).await?;
            Ok(if done.succeeded() {
                Commit::Done(revision(done.header()))
            } else {
                Commit::Refused
            })
        })
        .await
    }

    async fn watch(&self, after: u64) -> Result<Box<dyn Watch>, StoreError> {
        let mut client = self
            .client
            .watch_client()
            .max_decoding_message_size(LONGEST_ANSWER);
        let own = self.prefix.clone();
        let (out, events) = mpsc::channel(WAITING);
        let follow = async move {
            let options = WatchOptions::new()
                .with_prefix()
                .with_start_revision(signed(after.saturating_add(1)))
                .with_progress_notify();
            // Kept: etcd ends a watch whose other half is gone.
            let (_asking, mut told) = client.watch(own.as_str(), Some(options)).await?.split();
            tokio::spawn(async move {
                loop {
                    let next = tokio::select! {
                        next = told.message() => next,
                        () = out.closed() => return,
                    };
                    let sent = match next {
                        Ok(Some(told)) if told.compact_revision() > 0 => {
                            Err(WatchError::Forgotten(after))
                        }
                        Ok(Some(told)) if told.canceled() => {
                            Err(WatchError::Broken(told.cancel_reason().to_owned()))
                        }
                        Ok(Some(told)) if told.events().is_empty() => continue,
                        Ok(Some(told)) => {
                            // Not the header's: more may follow that is older than it.
                            let changed = told.events().iter().filter_map(|e| e.kv());
                            let revision = changed.map(|kv| number(kv.mod_revision())).max();
                            let revision = revision.unwrap_or(after);
                            let events = told.events().iter().filter_map(|e| event(&own, e));
                            Ok((events.collect::<Vec<_>>(), revision))
                        }
                        Ok(None) => Err(WatchError::Broken("etcd ended it".to_owned())),
                        Err(error) => Err(WatchError::Broken(error.to_string())),
                    };
                    let last = sent.is_err();
                    if out.send(sent).await.is_err() || last {
                        return;
                    }
                }
            });
            Ok(())
        };
        self.ask("etcd cannot be watched", follow).await?;
        Ok(Box::new(Follow { events }))
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

fn event(prefix: &str, event: &etcd_client::Event) -> Option<Event> {
    let kv = event.kv()?;
    match event.event_type() {
        EventType::Put => item(prefix, kv).map(Event::Put),
        EventType::Delete => {
            let path = std::str::from_utf8(kv.key()).ok()?.strip_prefix(prefix)?;
            Some(Event::Gone(path.into(), number(kv.mod_revision())))
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

struct Follow {
    events: mpsc::Receiver<Result<(Vec<Event>, u64), WatchError>>,
}

#[async_trait]
impl Watch for Follow {
    async fn next(&mut self) -> Result<(Vec<Event>, u64), WatchError> {
        loop {
            match self.events.recv().await {
                // Only folders were marked, say.
                Some(Ok((events, _))) if events.is_empty() => {}
                Some(told) => return told,
                None => return Err(WatchError::Broken("etcd is closed".to_owned())),
            }
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
