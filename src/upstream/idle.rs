//! Connections to a node that wait for their next request, for the wire lane.
//!
//! They belong to the node's address with its settings ([`Ready`](super::Ready)),
//! so that no key has to be made and looked up, and a connection never outlives
//! the TLS settings it was made with. The most recently used one is taken first:
//! what is not needed grows old and is closed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::link::Link;

/// How often old connections are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// A connection that was parked for less is likely to be open: who closes idle connections waits
/// longer. It also bounds for how long a surplus byte of the node may go unseen.
const JUST_NOW: Duration = Duration::from_millis(1);
/// So many in a row have to be found open before that is relied on.
const TRUSTED: u32 = 64;
/// Then still one request in so many of a connection asks the kernel.
const SAMPLE: u32 = 16;

/// The idle connections to one address.
#[derive(Default)]
pub struct Idle {
    parked: Mutex<Vec<Parked>>,
    registered: AtomicBool,
    /// Connections found open since one was not. A node that closes after an answer without having
    /// said so never gets far; with it, every connection is looked at.
    found_open: AtomicU32,
}

struct Parked {
    link: Link,
    /// The server name its handshake asked for; empty in clear text.
    sni: Box<str>,
    since: Instant,
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
    /// Takes a connection for a server name at this moment.
    ///
    /// Whether the kernel knows of an end costs a system call, a thirtieth of a small request. A
    /// connection that has just been used is spared that, as long as the node gives no reason for it.
    pub fn take(&self, sni: &str, now: Instant) -> Option<Reused> {
        loop {
            let mut parked = {
                let mut list = self.list();
                let at = list.iter().rposition(|parked| *parked.sni == *sni)?;
                list.remove(at)
            };
            let spared = now.saturating_duration_since(parked.since) < JUST_NOW
                && self.found_open.load(Ordering::Relaxed) >= TRUSTED
                && !parked.carried.is_multiple_of(SAMPLE);
            let open = if spared {
                parked.link.seems_open()
            } else {
                let open = parked.link.is_open();
                if open && self.found_open.load(Ordering::Relaxed) < TRUSTED {
                    self.found_open.fetch_add(1, Ordering::Relaxed);
                }
                open
            };
            // Old ones are swept; a second more does no harm.
            if open {
                return Some(Reused {
                    link: parked.link,
                    carried: parked.carried,
                });
            }
            self.doubt();
        }
    }

    /// A connection was not open when it was used: from now on all are looked at, for a while.
    pub fn doubt(&self) {
        self.found_open.store(0, Ordering::Relaxed);
    }

    /// Parks a connection at this moment; the oldest one goes when there are too many.
    pub fn put(self: &Arc<Self>, sni: &str, reused: Reused, keep: Keep, sweeper: &Sweeper) {
        if keep.size == 0 || keep.idle.is_zero() {
            return;
        }
        let parked = Parked {
            link: reused.link,
            sni: sni.into(),
            since: keep.now,
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
            if list[at].until <= now || !list[at].link.is_open() {
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
        let taken = || idle.take("", Instant::now()).map(|reused| reused.carried);
        assert_eq!([taken(), taken(), taken()], [Some(3), Some(2), None]);
    }

    #[tokio::test]
    async fn other_names_do_not_meet() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (idle, sweeper) = (Arc::new(Idle::default()), Sweeper::default());
        let (reused, _far) = pair(&listener).await;
        idle.put("a.test", reused, keep(), &sweeper);
        assert!(idle.take("b.test", Instant::now()).is_none());
        assert!(idle.take("a.test", Instant::now()).is_some());
    }

    #[tokio::test]
    async fn what_the_node_closed_or_spoke_on_is_not_taken() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (idle, sweeper) = (Arc::new(Idle::default()), Sweeper::default());
        for speak in [false, true] {
            let (mut reused, mut far) = pair(&listener).await;
            assert!(reused.link.is_open());
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
            assert!(idle.take("", Instant::now()).is_none());
        }
    }

    #[tokio::test]
    async fn a_node_is_believed_until_it_closes_a_connection_that_it_kept() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (idle, sweeper) = (Arc::new(Idle::default()), Sweeper::default());
        let (mut reused, far) = pair(&listener).await;
        // What the runtime knows of a new connection is nothing; the first answer tells it.
        far.try_write(b"x").unwrap();
        let mut buf = [0; 8];
        let read = tokio::io::AsyncReadExt::read(&mut reused.link, &mut buf).await;
        assert_eq!(read.unwrap(), 1);
        for _ in 0..TRUSTED {
            idle.put("", reused, keep(), &sweeper);
            reused = idle.take("", Instant::now()).unwrap();
        }
        drop(far);
        // Nothing was awaited since: only the kernel knows of the end.
        let young = keep();
        idle.put("", reused, young, &sweeper);
        let taken = idle.take("", young.now).unwrap();
        idle.put("", taken, young, &sweeper);
        assert!(
            idle.take("", young.now + JUST_NOW).is_none(),
            "rested too long"
        );
        assert_eq!(idle.found_open.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn after_doubt_the_kernel_is_asked() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (idle, sweeper) = (Arc::new(Idle::default()), Sweeper::default());
        let (reused, far) = pair(&listener).await;
        idle.found_open.store(TRUSTED, Ordering::Relaxed);
        idle.doubt();
        drop(far);
        idle.put("", reused, keep(), &sweeper);
        assert!(idle.take("", Instant::now()).is_none());
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
