//! The threads beside the workers.
//!
//! | thread | what it does | priority |
//! |---|---|---|
//! | `config` | reads, compiles and swaps the configuration; takes back what was not confirmed; overrides of limits | below the workers |
//! | `limits` | gives a successor what limits count in | as the workers |
//! | `upkeep` | looks names up, closes idle upstream connections | as the workers |
//! | `cluster` | speaks with the other gateways that count limits (`src/cluster`) | as the workers |
//! | `readiness` | waits for the listeners, then ends | as the workers |

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::changes::pending::Confirmations;
use crate::config::keeper::Keeper;
use crate::config::report::SharedReport;
use crate::config::writer::Writer;
use crate::limits::keeping::Keeping;
use crate::load::Source;
use crate::own_listeners;
use crate::settings::Settings;
use crate::upstream::{Lookups, Sweeper};

/// How far below the workers the configuration stands when both want the same core: it does not take
/// the core from a worker that runs. What it does once it has it, see [`Pace`](crate::pace::Pace).
/// Not lower: on a machine without a free core an edit still has to arrive.
const CONFIG_NICE: i32 = 5;

/// The thread that changes the configuration: reading, compiling, swapping and freeing what was
/// replaced happen beside the workers, never on them.
pub(crate) fn start_config_thread(
    writer: Writer,
    source: Source,
    keeper: Option<Keeper>,
    (confirmations, keeping): (Option<Confirmations>, Option<Keeping>),
    report: SharedReport,
) -> anyhow::Result<()> {
    let runtime = runtime()?;
    std::thread::Builder::new()
        .name("config".into())
        .spawn(move || {
            // Of this thread alone: Linux counts each thread as a process here.
            if let Err(error) = rustix::process::setpriority_process(None, CONFIG_NICE) {
                tracing::warn!(%error, "the configuration is compiled at the workers' priority");
            }
            runtime.block_on(async {
                let (updates, rx) = mpsc::channel(1);
                let read = async {
                    match source {
                        Source::File(file) => file.run(updates).await,
                        Source::Store(source, _) => {
                            let store = Arc::clone(source.store());
                            tokio::join!(source.run(updates, report), store.tend());
                        }
                    }
                };
                let keep = async {
                    if let Some(keeper) = keeper {
                        keeper.run().await;
                    }
                };
                let confirm = async {
                    if let Some(confirmations) = confirmations {
                        confirmations.run().await;
                    }
                };
                let limits = async {
                    if let Some(keeping) = keeping {
                        keeping.run().await;
                    }
                };
                tokio::join!(read, writer.run(rx), keep, confirm, limits);
            });
        })?;
    Ok(())
}

/// The thread for what the upstreams need now and then. Not the one of the configuration: a thread
/// of low priority must not hold a lock that a worker waits for, and names have to be looked up in
/// time however long a file takes.
pub(crate) fn start_upkeep_thread(lookups: Lookups, sweeper: Arc<Sweeper>) -> anyhow::Result<()> {
    let runtime = runtime()?;
    std::thread::Builder::new()
        .name("upkeep".into())
        .spawn(move || {
            runtime.block_on(async {
                tokio::join!(lookups.run(), sweeper.run());
            });
        })?;
    Ok(())
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Says that the process is ready once every listener accepts a connection, and `first` is done. Where
/// another process accepts there, this one is not: it was started by mistake, and takes nobody's place.
pub(crate) fn start_readiness_thread(
    settings: &Settings,
    listening: Arc<AtomicBool>,
    first: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    const LOOK: Duration = Duration::from_millis(10);
    let listens: Vec<SocketAddr> = settings
        .listen
        .iter()
        .chain(&settings.tls.listen)
        .map(|listen| listen.addr)
        .chain(settings.admin.iter().map(|admin| admin.listen))
        .collect();
    let addrs: Vec<SocketAddr> = listens.iter().copied().map(reachable).collect();
    std::thread::Builder::new()
        .name("readiness".into())
        .spawn(move || {
            let accepts =
                |addr| std::net::TcpStream::connect_timeout(addr, Duration::from_secs(1)).is_ok();
            #[allow(clippy::disallowed_methods)] // A thread of its own that has nothing else to do.
            while !(are_own(&listens) && addrs.iter().all(accepts)) {
                std::thread::sleep(LOOK);
            }
            first();
            listening.store(true, Ordering::Release);
            tracing::info!("ready");
        })?;
    Ok(())
}

/// Whether this process listens on all of these. Where the kernel does not tell, that somebody does has to do.
fn are_own(addrs: &[SocketAddr]) -> bool {
    match own_listeners::own() {
        Ok(own) => addrs.iter().all(|addr| own.contains(addr)),
        Err(error) => {
            tracing::warn!(%error, "not known whether the listeners are this process's: ready as they accept");
            true
        }
    }
}

/// An address to connect to for one to listen on.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        ip if !ip.is_unspecified() => ip,
        std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, addr.port())
}
