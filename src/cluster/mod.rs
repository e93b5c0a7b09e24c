//! This gateway among those that count together: what the settings say, put to work.
//!
//! How they count is in `plugins/peers`; who they are comes from the settings, or from etcd
//! (`store/etcd/roll.rs`).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use lockgate_peers::Peers;
use lockgate_plugin::{Problem, Problems};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::settings::{ClusterSettings, Settings, SourceKind};

/// Between tries to listen where a predecessor still does.
const AGAIN: Duration = Duration::from_millis(50);
/// Connections that wait to be taken.
const BACKLOG: u32 = 128;

/// The gateway among the others, if it is to be.
///
/// # Errors
/// When certificates cannot be used.
pub(crate) fn peers(settings: &Settings) -> Result<Option<Arc<Peers>>, Problems> {
    let Some(cluster) = &settings.lockgate.cluster else {
        return Ok(None);
    };
    let peers = Peers::new(cluster.setup()).map_err(|error| {
        let cause = std::error::Error::source(&error);
        let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        Problems::from(Problem::new(
            "lockgate.cluster.tls",
            format!("{error}{cause}"),
        ))
    })?;
    Ok(Some(Arc::new(peers)))
}

/// What ends it in order.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    peers: Arc<Peers>,
    leaving: watch::Sender<bool>,
}

impl Membership {
    /// Hands over what this gateway counts, and frees its listener. It goes on asking others.
    pub(crate) async fn leave(&self) {
        self.leaving.send_replace(true);
        self.peers.has_left().await;
        self.peers.close();
    }
}

/// Begins to take part, on a thread of its own. With a predecessor that still listens it waits for that
/// to end.
pub(crate) fn start(
    settings: &Settings,
    peers: Arc<Peers>,
    upgrade: bool,
) -> anyhow::Result<Membership> {
    let cluster = settings.lockgate.cluster.as_ref().context("no cluster")?;
    let listen = cluster.listen;
    let listener = match listener(listen) {
        Ok(listener) => Some(listener),
        Err(error) if upgrade && error.kind() == io::ErrorKind::AddrInUse => None,
        Err(error) => {
            let text = format!("lockgate.cluster.listen: cannot listen on {listen}");
            return Err(anyhow::Error::new(error).context(text));
        }
    };
    let (leaving, leave) = watch::channel(false);
    let membership = Membership {
        peers: Arc::clone(&peers),
        leaving,
    };
    let registry = registry(settings, cluster, &peers)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("cluster".into())
        .spawn(move || {
            runtime.block_on(async {
                let listener = match listener {
                    Some(listener) => TcpListener::from_std(listener),
                    None => TcpListener::from_std(wait_for_listener(listen).await),
                };
                let listener = match listener {
                    Ok(listener) => listener,
                    Err(error) => {
                        tracing::error!(%error, "other gateways cannot be listened for");
                        return;
                    }
                };
                tracing::info!(address = %listen, "listening for other gateways");
                let registered = async {
                    match registry {
                        Some(registry) => Box::pin(registry.run(leave)).await,
                        None => std::future::pending().await,
                    }
                };
                let served = async {
                    if let Err(error) = peers.run(listener).await {
                        tracing::error!(%error, "other gateways are not served any more");
                    }
                    // Links go on, for requests that are still under way.
                };
                tokio::join!(registered, served);
            });
        })?;
    Ok(membership)
}

fn listener(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(addr),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    // A port that was left just now is free.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(i32::try_from(BACKLOG).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

async fn wait_for_listener(addr: SocketAddr) -> std::net::TcpListener {
    loop {
        match listener(addr) {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

#[cfg(feature = "etcd")]
type Registry = crate::store::Registry;
#[cfg(feature = "etcd")]
fn registry(
    settings: &Settings,
    cluster: &ClusterSettings,
    peers: &Arc<Peers>,
) -> anyhow::Result<Option<Registry>> {
    match (&settings.source, &cluster.peers) {
        (SourceKind::Etcd(etcd), None) => {
            let made = Registry::new(etcd, Arc::clone(peers));
            Ok(Some(made.map_err(|error| anyhow::anyhow!(error.chain()))?))
        }
        _ => Ok(None),
    }
}

/// Without etcd the settings say who takes part.
#[cfg(not(feature = "etcd"))]
struct Registry;
#[cfg(not(feature = "etcd"))]
impl Registry {
    async fn run(self, _: watch::Receiver<bool>) {
        std::future::pending().await
    }
}
#[cfg(not(feature = "etcd"))]
fn registry(
    settings: &Settings,
    cluster: &ClusterSettings,
    _: &Arc<Peers>,
) -> anyhow::Result<Option<Registry>> {
    match (&settings.source, &cluster.peers) {
        (SourceKind::Etcd(_), None) => {
            anyhow::bail!("this binary was built without the feature `etcd`")
        }
        _ => Ok(None),
    }
}
