//! The connection of a process to its server: made when it is needed, made anew when it is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisResult;

use crate::server::{Live, Server};

/// See the module.
pub(crate) struct Line {
    server: Server,
    limit: Duration,
    current: Mutex<Option<Numbered>>,
    /// One connects, the others wait for it.
    connecting: tokio::sync::Mutex<()>,
    next: AtomicU64,
}

/// A connection, and which one it is.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub live: Live,
    pub number: u64,
}

impl Line {
    /// A line to a server; connecting may take so long.
    pub(crate) fn new(server: Server, limit: Duration) -> Line {
        Line {
            server,
            limit,
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
        let _one = self.connecting.lock().await;
        if let Some(current) = &*self.current() {
            return Ok(current.clone());
        }
        let made = Numbered {
            live: self.server.connect(self.limit).await?,
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
