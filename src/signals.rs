//! How the process ends: signals, drain, hand-over.
//!
//! | signal | what happens |
//! |---|---|
//! | TERM | readiness off, answers say `Connection: close`, after `drain_seconds` listeners close, exit 0 when no request is in flight or the deadline has passed |
//! | QUIT | the same after the listening sockets went to a successor that waits for them; without one: nothing, the process goes on serving |
//! | INT | ends at once |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora_core::server::{ExecutionPhase, ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast;

use crate::cluster::Membership;
use crate::proxy::core::Stats;
use crate::proxy::waiting::LAST_MOMENT;
use crate::store::Store;

/// How often the number of requests in flight is looked at while draining.
const LOOK: Duration = Duration::from_millis(20);
/// How long a successor may take from SIGQUIT until it waits for the sockets, or the store.
const SUCCESSOR_LIMIT: Duration = Duration::from_secs(5);
/// How long it may take to read the store once that was let go of.
const READING_LIMIT: Duration = Duration::from_secs(60);
/// How long the system may take to free what a successor held that has ended.
const RETAKE_LIMIT: Duration = Duration::from_secs(2);

/// Decides what a signal means.
pub struct Signals {
    /// Where a successor waits for the sockets.
    pub upgrade_sock: PathBuf,
    /// How long listeners stay open after readiness went off.
    pub drain: Duration,
    /// What is going on.
    pub stats: Arc<Stats>,
    /// The store, which goes to the successor with the sockets.
    pub store: Option<Arc<dyn Store>>,
    /// What this gateway counts for others goes to them.
    pub(crate) membership: Option<Membership>,
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let (Ok(mut quit), Ok(mut term), Ok(mut int)) = (
            signal(SignalKind::quit()),
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            tracing::error!("signals cannot be received; ending");
            return ShutdownSignal::FastShutdown;
        };
        loop {
            tokio::select! {
                _ = quit.recv() => {
                    if self.successor_comes().await {
                        tracing::info!("SIGQUIT: handing the listening sockets to the successor");
                        self.stats.draining.store(true, Ordering::Relaxed);
                        if let Some(store) = &self.store {
                            // Let go of already, if the successor has to read it.
                            store.release();
                        }
                        self.leave().await;
                        return ShutdownSignal::GracefulUpgrade;
                    }
                    tracing::warn!(
                        upgrade_sock = %self.upgrade_sock.display(),
                        "SIGQUIT ignored: no successor waits for the listening sockets \
                         (start `lockgate run --upgrade` first)"
                    );
                }
                _ = term.recv() => {
                    tracing::info!(drain_s = self.drain.as_secs(), "SIGTERM: draining");
                    self.stats.draining.store(true, Ordering::Relaxed);
                    tokio::join!(wait_or(self.drain, &mut int), self.leave());
                    return ShutdownSignal::GracefulTerminate;
                }
                _ = int.recv() => {
                    tracing::info!("SIGINT: ending at once");
                    return ShutdownSignal::FastShutdown;
                }
            }
        }
    }
}

impl Signals {
    async fn leave(&self) {
        if let Some(membership) = &self.membership {
            membership.leave().await;
        }
    }

    /// Waits a moment for a successor: it may have been started just before the signal. One that
    /// needs the store gets it, and has to read it before it gets the sockets; when it fails, the
    /// store is taken back, and this process goes on.
    async fn successor_comes(&self) -> bool {
        let mut until = Instant::now() + SUCCESSOR_LIMIT;
        let mut released = None;
        let wants_store = store_sock(&self.upgrade_sock);
        loop {
            // In this order: a successor asks for the store until it has the sockets.
            let wants_store = successor_waits(&wants_store);
            if successor_waits(&self.upgrade_sock) {
                return true;
            }
            match (&self.store, wants_store, &released) {
                (Some(store), true, None) => {
                    tracing::info!("the successor reads the store: no writes until it has it");
                    store.release();
                    until = Instant::now() + READING_LIMIT;
                    released = Some(store);
                }
                // It has ended.
                (_, false, Some(_)) => break,
                _ if Instant::now() >= until => break,
                _ => {}
            }
            tokio::time::sleep(LOOK).await;
        }
        if let Some(store) = released {
            take_back(&**store).await;
        }
        false
    }
}

/// Where a successor says that it waits for the store.
pub fn store_sock(upgrade_sock: &Path) -> PathBuf {
    let mut name = upgrade_sock.as_os_str().to_owned();
    name.push(".store");
    name.into()
}

async fn take_back(store: &dyn Store) {
    let until = Instant::now() + RETAKE_LIMIT;
    loop {
        match store.retake() {
            Ok(()) => {
                tracing::warn!("the successor did not take over: the store is written here again");
                return;
            }
            Err(error) if Instant::now() >= until => {
                tracing::error!(
                    error = %error.chain(),
                    "the store cannot be taken back: writes are refused until a restart"
                );
                return;
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

async fn wait_or(duration: Duration, int: &mut Signal) {
    tokio::select! {
        () = tokio::time::sleep(duration) => {}
        _ = int.recv() => {}
    }
}

/// Whether a process listens on the hand-over socket. Connecting would be taken for the hand-over
/// itself, so the kernel's table of sockets is asked.
fn successor_waits(sock: &Path) -> bool {
    /// The flag of a socket that accepts connections (`SO_ACCEPTCON`).
    const ACCEPTS: &str = "00010000";
    let Ok(table) = std::fs::read_to_string("/proc/net/unix") else {
        return false;
    };
    let wanted = sock.to_string_lossy();
    table.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.nth(3) == Some(ACCEPTS) && words.nth(3).is_some_and(|path| path == wanted)
    })
}

/// Ends the process with status 0 as soon as nothing is in flight, once listeners are closed; the
/// framework itself would always wait for the whole grace period.
pub fn exit_when_idle(mut phases: broadcast::Receiver<ExecutionPhase>, stats: Arc<Stats>) {
    let watch = move || {
        loop {
            match phases.blocking_recv() {
                Ok(ExecutionPhase::ShutdownGracePeriod) => break,
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
        let since = Instant::now();
        #[allow(clippy::disallowed_methods)] // A thread of its own that has nothing else to do.
        let idle_after = until_idle(&stats, || since.elapsed(), std::thread::sleep);
        tracing::info!(
            waited_ms = idle_after.as_millis() as u64,
            "nothing in flight: ending"
        );
        std::process::exit(0);
    };
    if let Err(error) = std::thread::Builder::new()
        .name("drain".into())
        .spawn(watch)
    {
        tracing::warn!(%error, "no thread to watch the drain: the whole grace period will be waited for");
    }
}

/// Returns when nothing is in flight and its access log lines are written, with how long that took.
fn until_idle(stats: &Stats, elapsed: impl Fn() -> Duration, sleep: impl Fn(Duration)) -> Duration {
    let busy = || stats.in_flight.load(Ordering::Acquire) > 0;
    loop {
        while elapsed() < LAST_MOMENT || busy() {
            sleep(LOOK);
        }
        let requests = stats.requests.load(Ordering::Acquire);
        // Access log lines are written within half a second of the last request.
        sleep(crate::observe::access_log::FLUSH_EVERY + LOOK);
        // A request may have come meanwhile on a connection that is still open; even one that is
        // over by now has its line to be written.
        if !busy() && stats.requests.load(Ordering::Acquire) == requests {
            return elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::proxy::core::Counted;

    #[test]
    fn a_request_that_comes_at_the_last_moment_is_waited_for() {
        let stats = Arc::<Stats>::default();
        let now = Cell::new(Duration::ZERO);
        let late = RefCell::new(None);
        let took = until_idle(
            &stats,
            || now.get(),
            |pause| {
                now.set(now.get() + pause);
                let at = |ms| now.get() >= Duration::from_millis(ms);
                // From the first flush on, until two seconds after the start.
                if pause > LOOK && stats.requests.load(Ordering::Relaxed) == 0 {
                    *late.borrow_mut() = Some(Counted::request(&stats));
                }
                if at(2_000) {
                    *late.borrow_mut() = None;
                }
            },
        );
        assert!(took >= Duration::from_millis(2_500), "ended after {took:?}");
    }

    #[test]
    fn a_listening_socket_is_seen_and_others_are_not() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("lockgate-successor-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(!successor_waits(&path));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(successor_waits(&path));
        drop(listener);
        assert!(!successor_waits(&path));
        let _ = std::fs::remove_file(&path);
    }
}
