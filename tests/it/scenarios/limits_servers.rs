//! Where limits are counted in scenarios: a Redis, one found by Sentinels, a cluster; and a way to them
//! that can be made slow.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use lockgate_test_redis::{Cluster, Redis, Sentinels};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::World;

/// Pieces that are on their way through the slow one; each is at most [`PIECE`].
const UNDER_WAY: usize = 1_024;
const PIECE: usize = 16 * 1024;

/// Which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One server, behind a way that can be made slow.
    Single,
    /// Three Sentinels, a master, a replica.
    Sentinels,
    /// Three masters, three replicas.
    Cluster,
}

/// The servers of a scenario.
pub(super) enum Servers {
    Single { redis: Redis, slow: Slow },
    Sentinels(Sentinels),
    Cluster(Cluster),
}

impl Servers {
    /// Starts them; `options` are for a single one.
    pub(super) async fn start(world: &Arc<World>, kind: Kind, options: &[&str]) -> Result<Servers> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let ports = Arc::clone(world);
        let started = tokio::task::spawn_blocking(move || {
            let port = || ports.ports.take();
            match kind {
                Kind::Single => {
                    let options: Vec<&str> = options.iter().map(String::as_str).collect();
                    Redis::start(port()?, &options).map(Started::Single)
                }
                Kind::Sentinels => Sentinels::start(port).map(Started::Sentinels),
                Kind::Cluster => Cluster::start(port).map(Started::Cluster),
            }
        });
        Ok(match started.await?? {
            Started::Single(redis) => {
                let slow = Slow::start(world.ports.take()?, redis.port()).await?;
                Servers::Single { redis, slow }
            }
            Started::Sentinels(sentinels) => Servers::Sentinels(sentinels),
            Started::Cluster(cluster) => Servers::Cluster(cluster),
        })
    }

    /// What a plugin has to be told to count there.
    pub(super) fn policy(&self) -> Value {
        let place = |redis: &Redis| format!("127.0.0.1:{}", redis.port());
        match self {
            Servers::Single { slow, .. } => {
                json!({ "policy": "redis", "redis_host": "127.0.0.1", "redis_port": slow.port })
            }
            Servers::Sentinels(all) => {
                let one = |redis: &Redis| json!({ "host": "127.0.0.1", "port": redis.port() });
                let each: Vec<Value> = all.sentinels.iter().map(one).collect();
                json!({ "policy": "redis-sentinel", "redis_sentinels": each,
                        "redis_master_name": "main" })
            }
            Servers::Cluster(cluster) => {
                let nodes: Vec<String> = cluster.nodes.iter().map(place).collect();
                json!({ "policy": "redis-cluster", "redis_cluster_nodes": nodes,
                        "redis_cluster_name": "it" })
            }
        }
    }

    /// The attribute that says how long a request waits.
    pub(super) fn deadline(&self, ms: u64) -> Value {
        match self {
            Servers::Sentinels(_) => {
                json!({ "redis_read_timeout": ms, "redis_connect_timeout": ms })
            }
            _ => json!({ "redis_timeout": ms }),
        }
    }

    /// All that run and answer questions about counts.
    fn masters(&self) -> Vec<&Redis> {
        let all: Vec<&Redis> = match self {
            Servers::Single { redis, .. } => vec![redis],
            Servers::Sentinels(all) => vec![&all.master, &all.replica],
            Servers::Cluster(cluster) => cluster.nodes.iter().collect(),
        };
        all.into_iter().filter(|redis| redis.is_master()).collect()
    }

    /// How many scripts were called so far, or since [`Self::forget_calls`].
    pub(super) fn calls(&self) -> Result<u64> {
        let mut calls = 0;
        for redis in self.masters() {
            let stats = redis.cli(&["INFO", "commandstats"])?;
            for name in ["cmdstat_evalsha:calls=", "cmdstat_eval:calls="] {
                let line = stats.lines().find_map(|line| line.strip_prefix(name));
                let number = line.and_then(|line| line.split(',').next());
                calls += number.map_or(Ok(0), str::parse::<u64>)?;
            }
        }
        Ok(calls)
    }

    /// The single server.
    pub(super) fn single(&mut self) -> Result<&mut Redis> {
        match self {
            Servers::Single { redis, .. } => Ok(redis),
            _ => anyhow::bail!("there are several servers"),
        }
    }

    /// How late all is that the single server is told, and says.
    pub(super) fn slow(&self, by: Duration) -> Result<()> {
        match self {
            Servers::Single { slow, .. } => slow.by(by),
            _ => anyhow::bail!("there are several servers"),
        }
    }
}

/// What a thread that may wait has started.
enum Started {
    Single(Redis),
    Sentinels(Sentinels),
    Cluster(Cluster),
}

/// A way to a server on which each piece arrives late, in order.
pub(super) struct Slow {
    port: u16,
    late_us: Arc<AtomicU64>,
}

impl Slow {
    async fn start(port: u16, to: u16) -> Result<Slow> {
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address(port)).await?;
        let late_us = Arc::<AtomicU64>::default();
        let late = Arc::clone(&late_us);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A server that is away: the connection ends, as it would without this.
                if let Ok(server) = TcpStream::connect(address(to)).await {
                    tokio::spawn(pass(client, server, Arc::clone(&late)));
                }
            }
        });
        Ok(Slow { port, late_us })
    }

    fn by(&self, late: Duration) -> Result<()> {
        let us = u64::try_from(late.as_micros()).context("too late")?;
        self.late_us.store(us, Ordering::Relaxed);
        Ok(())
    }
}

/// Both directions until one ends; half of being late is each one's.
async fn pass(client: TcpStream, server: TcpStream, late: Arc<AtomicU64>) {
    // Small pieces are what is passed on: they must not wait for more.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    tokio::select! {
        () = one_way(from_client, to_server, &late) => {}
        () = one_way(from_server, to_client, &late) => {}
    }
}

async fn one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, late: &AtomicU64) {
    let (put, mut take) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
    let read = async move {
        let mut piece = vec![0; PIECE];
        while let Ok(n @ 1..) = from.read(&mut piece).await {
            let due = Instant::now() + Duration::from_micros(late.load(Ordering::Relaxed) / 2);
            if put.send((due, piece[..n].to_vec())).await.is_err() {
                break;
            }
        }
    };
    let write = async {
        while let Some((due, piece)) = take.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(read, write);
}
