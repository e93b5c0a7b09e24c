//! The connection of a process to its server: made when it is needed, made anew when it is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::task::JoinHandle;

use crate::server::{Live, Server};

/// See the module.
pub(crate) struct Line {
    server: Arc<Server>,
    current: Mutex<Option<Numbered>>,
    /// One task connects, whoever waits for it: it goes on when a request has no more time, or a server
    /// that takes longer than requests wait would never be connected to.
    connecting: tokio::sync::Mutex<Option<JoinHandle<RedisResult<Live>>>>,
    next: AtomicU64,
}

/// For one connection. Where several places are tried, one that does not answer must not take all the time.
const EACH: Duration = Duration::from_secs(2);
/// For all that are tried.
const ALL: Duration = Duration::from_secs(15);

/// A connection, and which one it is.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub live: Live,
    pub number: u64,
}

impl Line {
    /// A line to a server.
    pub(crate) fn new(server: Server) -> Line {
        Line {
            server: Arc::new(server),
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    /// The connection.
    pub(crate) async fn get(&self) -> RedisResult<Numbered> {
        if let Some(current) = &*self.current() {
            return Ok(current.clone());
        }
        let mut connecting = self.connecting.lock().await;
        if let Some(current) = &*self.current() {
            return Ok(current.clone());
        }
        let task = connecting.get_or_insert_with(|| {
            let server = Arc::clone(&self.server);
            tokio::spawn(async move {
                let limited = tokio::time::timeout(ALL, server.connect(EACH));
                limited.await.unwrap_or_else(|_| Err(late()))
            })
        });
        let done = task.await;
        *connecting = None;
        let made = Numbered {
            live: done.unwrap_or_else(|_| Err(late()))?,
            number: self.next.fetch_add(1, Ordering::Relaxed),
        };
        *self.current() = Some(made.clone());
        Ok(made)
    }

    /// A connection is of no use any more. Whoever says so of an older one has not heard that there is
    /// a new one.
    pub(crate) fn lost(&self, number: u64) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|held| held.number == number) {
            *current = None;
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Numbered>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn late() -> RedisError {
    (ErrorKind::Io, "it took too long to connect").into()
}
