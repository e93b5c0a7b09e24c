//! The roll of gateways that count together: `PREFIX-lockgate/nodes/HOST:PORT`, one key each, kept by a lease.
//!
//! A gateway puts its key and reads all keys *as of that revision*; from there on a watch tells each change.
//! So every gateway knows the same roll by the same revision. A key goes when its gateway leaves, or has
//! not been heard of for as long as its lease; that long the gateway itself counts as one of them, from
//! when it *asked* for more time: it always knows before the others that its time is over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::{
    Client, Compare, CompareOp, Error, EventType, GetOptions, KeyValue, PutOptions, Txn as EtcdTxn,
    TxnOp, WatchOptions, WatchResponse,
};
use lockgate_peers::{Node, Peers, Roll};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::ask::{Failed, reason};
use super::members::{Connect, Members};
use super::transport::Transport;
use super::{number, options, signed};
use crate::settings::EtcdSettings;
use crate::store::StoreError;

/// For how long a gateway counts as there that is not heard of. Source: the design; shorter and a pause of
/// the machine looks like an end, longer and its keys have to wait for an owner.
const LEASE: Duration = Duration::from_secs(5);
/// How often it is heard of: three times in that.
const PULSE: Duration = Duration::from_millis(1_500);
/// For one request. A server that takes longer is left for another while the lease still runs.
const LIMIT: Duration = Duration::from_secs(1);
/// Between tries.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a server rests that failed, while others answer.
const REST: Duration = Duration::from_secs(2);

/// What became of a try.
type Done = Result<(), Failed>;

/// See the module.
pub struct Registry {
    members: Members,
    /// Ends in a slash.
    folder: String,
    peers: Arc<Peers>,
    /// The key of this gateway.
    key: String,
    lease: Option<i64>,
    /// The revision at which its key was put last; 0 when it is yet to be.
    put: u64,
    weight: u32,
    nodes: BTreeMap<String, Node>,
    /// The revision of what is known.
    seen: u64,
}

impl Registry {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn new(settings: &EtcdSettings, peers: Arc<Peers>) -> Result<Registry, StoreError> {
        let failed = |e| StoreError::new("cannot use etcd for the roll of gateways", e);
        let connect = Connect {
            options: options(settings),
            transport: Transport::new(&settings.tls).map_err(failed)?,
        };
        let folder = format!("{}-lockgate/nodes/", settings.prefix.trim_end_matches('/'));
        Ok(Registry {
            members: Members::new(&settings.hosts, connect, LIMIT, REST),
            key: format!("{folder}{}", peers.me().0),
            folder,
            peers,
            lease: None,
            put: 0,
            weight: 1,
            nodes: BTreeMap::new(),
            seen: 0,
        })
    }

    /// Keeps this gateway on the roll, and tells it who else is. Leaves when told to, and stays on the roll
    /// without a share.
    pub async fn run(mut self, mut leaving: watch::Receiver<bool>) {
        let mut failing = false;
        loop {
            let at = self
                .members
                .order(Instant::now())
                .first()
                .copied()
                .unwrap_or(0);
            match Box::pin(self.with(at, &mut leaving, &mut failing)).await {
                Ok(()) => tokio::time::sleep(PAUSE).await,
                Err(failed) => {
                    self.members.failed(at, Instant::now());
                    // Once for each series of failures.
                    if !failing {
                        let error = reason(failed);
                        tracing::warn!(%error, "the roll of gateways cannot be kept in etcd");
                        failing = true;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// With one server, until something fails. What is known stays known.
    async fn with(
        &mut self,
        at: usize,
        leaving: &mut watch::Receiver<bool>,
        failing: &mut bool,
    ) -> Done {
        let client = soon(self.members.client(at)).await?;
        let lease = match self.lease {
            Some(lease) => lease,
            None => self.new_lease(&client).await?,
        };
        if *leaving.borrow_and_update() {
            self.weight = 0;
        }
        if self.put == 0 && self.weight == 0 {
            // It ends, and is on the roll no more: a successor may be, by the same name.
            return std::future::pending().await;
        }
        if self.put == 0 {
            self.announce(&client, lease).await?;
        }
        let from = WatchOptions::new()
            .with_prefix()
            .with_start_revision(signed(self.seen + 1));
        let mut watcher = client.watch_client();
        let mut changes = soon(watcher.watch(self.folder.as_str(), Some(from))).await?;
        let mut leases = client.lease_client();
        let first = Instant::now();
        let opened = soon(leases.keep_alive(lease)).await;
        if let Err(Failed::Etcd(Error::LeaseKeepAliveError(_))) = opened {
            // It ran out while etcd was not to be reached. The next one is new.
            self.fall();
            return Ok(());
        }
        let (mut keeper, mut kept) = opened?;
        self.peers.stand_for(LEASE.saturating_sub(first.elapsed()));
        // When what is not answered yet was asked; answers come in order.
        let (mut asked, mut answered) = (VecDeque::new(), Instant::now());
        let mut pulse = interval(PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = pulse.tick() => {
                    if answered.elapsed() > PULSE + LIMIT {
                        return Err(Failed::Late(answered.elapsed()));
                    }
                    asked.push_back(Instant::now());
                    soon(keeper.keep_alive()).await?;
                }
                told = kept.message() => {
                    let told = told?.ok_or_else(ended)?;
                    let Ok(ttl @ 1..) = u64::try_from(told.ttl()) else {
                        // It has run out: others know by now.
                        self.fall();
                        return Ok(());
                    };
                    answered = Instant::now();
                    let asked = asked.pop_front().unwrap_or(answered);
                    let left = Duration::from_secs(ttl).saturating_sub(asked.elapsed());
                    self.peers.stand_for(left);
                    self.members.answered(at);
                    *failing = false;
                }
                told = changes.message() => {
                    let told = told?.ok_or_else(ended)?;
                    if !self.read(&told) {
                        return Ok(());
                    }
                }
                Ok(()) = leaving.changed() => {
                    self.weight = 0;
                    self.announce(&client, lease).await?;
                }
            }
        }
    }

    async fn new_lease(&mut self, client: &Client) -> Result<i64, Failed> {
        let ttl = signed(LEASE.as_secs());
        let mut leases = client.lease_client();
        // Nobody counts on this gateway by that: it may have been taken for gone, and others own what it
        // thinks is its own, until it is on the roll again and knows that. Then it is kept alive at once.
        let granted = soon(leases.grant(ttl, None)).await?;
        self.lease = Some(granted.id());
        self.put = 0;
        Ok(granted.id())
    }

    /// Puts the key, unless a successor has, and reads the roll as of then.
    async fn announce(&mut self, client: &Client, lease: i64) -> Done {
        let (_, run) = self.peers.me();
        let value = json!({ "run": format!("{run:016x}"), "weight": self.weight }).to_string();
        let put = TxnOp::put(
            self.key.as_str(),
            value,
            Some(PutOptions::new().with_lease(lease)),
        );
        let mut txn = EtcdTxn::new();
        if self.put != 0 {
            let same = signed(self.put);
            txn = txn.when([Compare::mod_revision(
                self.key.as_str(),
                CompareOp::Equal,
                same,
            )]);
        }
        let done = soon(client.kv_client().txn(txn.and_then([put]))).await?;
        if !done.succeeded() {
            // Another start of this gateway has taken its place.
            return Ok(());
        }
        let revision = done.header().map_or(0, |header| number(header.revision()));
        let all = GetOptions::new()
            .with_prefix()
            .with_revision(signed(revision));
        let listed = soon(client.kv_client().get(self.folder.as_str(), Some(all))).await?;
        self.nodes = listed.kvs().iter().filter_map(|kv| self.node(kv)).collect();
        (self.put, self.seen) = (revision, revision);
        self.tell();
        Ok(())
    }

    /// What a message changes. False when this gateway is not on the roll any more, or it has to be read
    /// anew.
    fn read(&mut self, told: &WatchResponse) -> bool {
        if told.canceled() || told.compact_revision() > 0 {
            // Too old a revision: what was missed is read with the next announcement.
            self.put = 0;
            return false;
        }
        let mut on_roll = true;
        for event in told.events() {
            let Some(kv) = event.kv() else { continue };
            self.seen = self.seen.max(number(kv.mod_revision()));
            match (event.event_type(), self.node(kv)) {
                (EventType::Put, Some((name, node))) => _ = self.nodes.insert(name, node),
                _ => {
                    let name = kv.key().strip_prefix(self.folder.as_bytes());
                    let name = name.and_then(|name| std::str::from_utf8(name).ok());
                    self.nodes.remove(name.unwrap_or_default());
                    on_roll &= kv.key() != self.key.as_bytes();
                }
            }
        }
        if !told.events().is_empty() {
            self.tell();
        }
        if !on_roll {
            self.fall();
        }
        on_roll
    }

    /// Its lease is gone, and what it counted is for others to count.
    fn fall(&mut self) {
        self.peers.fall();
        (self.lease, self.put) = (None, 0);
    }

    fn tell(&self) {
        let nodes = self.nodes.values().cloned().collect();
        self.peers.see(Roll::new(self.seen, nodes));
    }

    fn node(&self, kv: &KeyValue) -> Option<(String, Node)> {
        let name = std::str::from_utf8(kv.key())
            .ok()?
            .strip_prefix(&self.folder)?;
        let value: Value = serde_json::from_slice(kv.value()).ok()?;
        let run = u64::from_str_radix(value.get("run")?.as_str()?, 16).ok()?;
        let weight = value.get("weight")?.as_u64()?;
        let node = Node {
            name: name.to_owned(),
            run,
            weight: u32::try_from(weight).ok()?,
            revision: number(kv.mod_revision()),
        };
        Some((name.to_owned(), node))
    }
}

/// Within the time of one request.
async fn soon<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
    match timeout(LIMIT, request).await {
        Ok(done) => done.map_err(Failed::Etcd),
        Err(_) => Err(Failed::Late(LIMIT)),
    }
}

fn ended() -> Failed {
    Failed::Late(Duration::ZERO)
}
