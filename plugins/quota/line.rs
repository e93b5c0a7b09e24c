//! The connection of a process to its server: made when it is needed, made anew when it is lost.
//!
//! That to a cluster is many connections: it stays in use until there is a new one, as one shard that does
//! not answer is no reason for the others to wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::task::JoinHandle;

use crate::server::{Live, Server};

/// See the module.
pub(crate) struct Line {
    server: Arc<Server>,
    current: Arc<Mutex<Current>>,
    /// One task connects, whoever waits for it: it goes on when a request has no more time, or a server
    /// that takes longer than requests wait would never be connected to.
    connecting: tokio::sync::Mutex<Option<JoinHandle<RedisResult<Live>>>>,
}

#[derive(Default)]
struct Current {
    made: Option<Numbered>,
    /// Number of the last one.
    number: u64,
    /// When a new one was begun to be made while there was an old one.
    renewed: Option<Instant>,
}

/// For one connection. Where several places are tried, one that does not answer must not take all the time.
const EACH: Duration = Duration::from_secs(2);
/// For all that are tried.
const ALL: Duration = Duration::from_secs(15);

/// A cluster is not connected to anew more often than this while there is a connection: it repairs single
/// ones itself, and a new one costs each of its servers some work.
const RENEW: Duration = Duration::from_secs(3);

/// A connection, and which one it is.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub live: Live,
    pub number: u64,
    /// Made for whoever asked for it just now: it has not had the time to be lost unnoticed.
    pub fresh: bool,
}

impl Line {
    /// A line to a server.
    pub(crate) fn new(server: Server) -> Line {
        Line {
            server: Arc::new(server),
            current: Arc::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// The connection.
    pub(crate) async fn get(&self) -> RedisResult<Numbered> {
        if let Some(made) = &self.current().made {
            return Ok(made.clone());
        }
        let mut connecting = self.connecting.lock().await;
        if let Some(made) = &self.current().made {
            return Ok(made.clone());
        }
        let task =
            connecting.get_or_insert_with(|| tokio::spawn(connect(Arc::clone(&self.server))));
        let done = task.await;
        *connecting = None;
        let live = done.unwrap_or_else(|_| Err(late()))?;
        let made = self.current().put(live);
        Ok(Numbered {
            fresh: true,
            ..made
        })
    }

    /// A connection is of no use any more. Whoever says so of an older one has not heard that there is
    /// a new one.
    pub(crate) fn lost(&self, number: u64) {
        let mut current = self.current();
        if current
            .made
            .as_ref()
            .is_none_or(|held| held.number != number)
        {
            return;
        }
        if !self.server.is_cluster() {
            current.made = None;
            return;
        }
        let now = Instant::now();
        if current.renewed.is_some_and(|at| now < at + RENEW) {
            return;
        }
        current.renewed = Some(now);
        drop(current);
        let (server, current) = (Arc::clone(&self.server), Arc::clone(&self.current));
        tokio::spawn(async move {
            // If nobody is there to connect to, the old one may yet come back.
            if let Ok(live) = connect(server).await {
                lock(&current).put(live);
            }
        });
    }

    /// Number of the last connection that was made.
    pub(crate) fn number(&self) -> u64 {
        self.current().number
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        lock(&self.current)
    }
}

impl Current {
    fn put(&mut self, live: Live) -> Numbered {
        self.number += 1;
        let made = Numbered {
            live,
            number: self.number,
            fresh: false,
        };
        self.made = Some(made.clone());
        made
    }
}

fn lock(current: &Mutex<Current>) -> MutexGuard<'_, Current> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(server: Arc<Server>) -> RedisResult<Live> {
    let limited = tokio::time::timeout(ALL, server.connect(EACH));
    limited.await.unwrap_or_else(|_| Err(late()))
}

fn late() -> RedisError {
    (ErrorKind::Io, "it took too long to connect").into()
}
