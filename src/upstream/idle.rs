//! Connections to a node that wait for their next request, for the wire lane.
//!
//! They belong to the node's address with its settings ([`Ready`](super::Ready)),
//! so that no key has to be made and looked up, and a connection never outlives
//! the TLS settings it was made with. The most recently used one is taken first:
//! what is not needed grows old and is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::link::Link;

/// How often old connections are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The idle connections to one address.
#[derive(Default)]
pub struct Idle {
    parked: Mutex<Vec<Parked>>,
    registered: AtomicBool,
}

struct Parked {
    link: Link,
    /// The server name its handshake asked for; empty in clear text.
    sni: Box<str>,
    until: Instant,
    /// Requests it has carried.
    carried: u32,
}

/// A connection that was parked.
pub struct Reused {
    /// The connection, open a moment ago.
    pub link: Link,
    /// Requests it has carried.
    pub carried: u32,
}

/// Limits of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Connections to one address.
    pub size: usize,
    /// How long each.
    pub idle: Duration,
    /// Counted from this moment.
    pub now: Instant,
}

impl Idle {
    /// Takes a connection for a server name.
    pub fn take(&self, sni: &str) -> Option<Reused> {
        loop {
            let mut parked = {
                let mut list = self.list();
                let at = list.iter().rposition(|parked| *parked.sni == *sni)?;
                list.remove(at)
            };
            // Old ones are swept; a second more does no harm.
            if parked.link.is_alive() {
                return Some(Reused {
                    link: parked.link,
                    carried: parked.carried,
                });
            }
        }
    }

    /// Parks a connection at this moment; the oldest one goes when there are too many.
    pub fn put(self: &Arc<Self>, sni: &str, reused: Reused, keep: Keep, sweeper: &Sweeper) {
        if keep.size == 0 || keep.idle.is_zero() {
            return;
        }
        let parked = Parked {
            link: reused.link,
            sni: sni.into(),
            until: keep.now + keep.idle,
            carried: reused.carried,
        };
        let mut list = self.list();
        let oldest = (list.len() >= keep.size).then(|| list.remove(0));
        list.push(parked);
        drop(list);
        drop(oldest);
        if !self.registered.swap(true, Ordering::Relaxed) {
            sweeper.watch(self);
        }
    }

    /// Closes what is too old or was closed by the node.
    fn sweep(&self, now: Instant) {
        let mut list = self.list();
        let mut gone = Vec::new();
        let mut at = 0;
        while at < list.len() {
            if list[at].until <= now || !list[at].link.is_alive() {
                gone.push(list.remove(at));
            } else {
                at += 1;
            }
        }
        // Closing takes system calls; not under the lock.
        drop(list);
    }

    fn list(&self) -> MutexGuard<'_, Vec<Parked>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes idle connections in time.
#[derive(Default)]
pub struct Sweeper {
    pools: Mutex<Vec<Weak<Idle>>>,
}

impl Sweeper {
    fn watch(&self, pool: &Arc<Idle>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.push(Arc::downgrade(pool));
    }

    /// Looks through all pools for ever.
    pub async fn run(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.sweep(Instant::now());
        }
    }

    fn sweep(&self, now: Instant) {
        let alive: Vec<Arc<Idle>> = {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.retain(|pool| pool.strong_count() > 0);
            pools.iter().filter_map(Weak::upgrade).collect()
        };
        alive.iter().for_each(|pool| pool.sweep(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::connector::Connector;

    fn keep() -> Keep {
        Keep {
            size: 2,
            idle: Duration::from_secs(60),
            now: Instant::now(),
        }
    }

    async fn pair(listener: &tokio::net::TcpListener) -> (Reused, tokio::net::TcpStream) {
        let addr = listener.local_addr().unwrap();
        let (link, far) = tokio::join!(
            Connector::plain(addr, Duration::from_secs(5)),
            listener.accept()
        );
        let link = link.unwrap();
        (Reused { link, carried: 1 }, far.unwrap().0)
    }

    #[tokio::test]
    async fn the_last_one_parked_is_taken_first_and_the_oldest_goes() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (idle, sweeper) = (Arc::new(Idle::default()), Sweeper::default());
        let mut far = Vec::new();
        for carried in 1..=3 {
            let (mut reused, other) = pair(&listener).await;
            reused.carried = carried;
            far.push(other);
            idle.put("", reused, keep(), &sweeper);
        }
        let taken = || idle.take("").map(|reused| reused.carried);
        assert_eq!([taken(), taken(), taken()], [Some(3), Some(2), None]);
    }

    #[tokio::test]
    async fn other_names_do_not_meet() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (idle, sweeper) = (Arc::new(Idle::default()), Sweeper::default());
        let (reused, _far) = pair(&listener).await;
        idle.put("a.test", reused, keep(), &sweeper);
        assert!(idle.take("b.test").is_none());
        assert!(idle.take("a.test").is_some());
    }

    #[tokio::test]
    async fn what_the_node_closed_or_spoke_on_is_not_taken() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (idle, sweeper) = (Arc::new(Idle::default()), Sweeper::default());
        for speak in [false, true] {
            let (mut reused, mut far) = pair(&listener).await;
            assert!(reused.link.is_alive());
            if speak {
                tokio::io::AsyncWriteExt::write_all(&mut far, b"x")
                    .await
                    .unwrap();
            } else {
                drop(far);
            }
            // The runtime learns of it when it looks; a request finds it in the same way.
            tokio::time::sleep(Duration::from_millis(50)).await;
            idle.put("", reused, keep(), &sweeper);
            assert!(idle.take("").is_none());
        }
    }

    #[tokio::test]
    async fn old_connections_are_swept() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (idle, sweeper) = (Arc::new(Idle::default()), Sweeper::default());
        let (reused, _far) = pair(&listener).await;
        idle.put("", reused, keep(), &sweeper);
        sweeper.sweep(Instant::now());
        assert_eq!(idle.list().len(), 1);
        sweeper.sweep(Instant::now() + keep().idle);
        assert_eq!(idle.list().len(), 0);
        drop(idle);
        sweeper.sweep(Instant::now());
        assert!(sweeper.pools.lock().unwrap().is_empty());
    }
}
