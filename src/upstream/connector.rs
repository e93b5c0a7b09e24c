//! Makes connections to nodes, for the wire lane.
//!
//! Clear text goes over a plain socket: what Pingora's connector would put around
//! it (a 64 KiB read buffer, accounting) is of no use there. TLS connections are
//! made by Pingora's connector.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::upstreams::peer::HttpPeer;
use tokio::net::TcpStream;

use crate::link::Link;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NoLink {
    /// It took longer than allowed.
    #[error("connecting took longer than {0:?}")]
    Timeout(Duration),
    /// Refused, unreachable and such.
    #[error("{0}")]
    Refused(#[from] io::Error),
    /// TLS failed, or Pingora's connector did.
    #[error("{0}")]
    Tls(Box<pingora_core::Error>),
}

/// Makes TLS connections. Reading the system's certificates takes a while, so that happens on
/// first use.
#[derive(Default)]
pub struct Connector {
    tls: OnceLock<Arc<TransportConnector>>,
}

impl Connector {
    /// Connects in clear text.
    ///
    /// # Errors
    /// When nobody listens, or too slowly.
    pub async fn plain(addr: SocketAddr, limit: Duration) -> Result<Link, NoLink> {
        let connecting = tokio::time::timeout(limit, TcpStream::connect(addr));
        let stream = connecting.await.map_err(|_| NoLink::Timeout(limit))??;
        // Heads and bodies are written whole; waiting for more would only delay them.
        stream.set_nodelay(true)?;
        Ok(Link::Plain(stream))
    }

    /// Connects over TLS, as the peer says.
    ///
    /// # Errors
    /// When the connection or the handshake fails.
    pub async fn tls(&self, peer: &HttpPeer) -> Result<Link, NoLink> {
        let connector = match self.tls.get() {
            Some(connector) => Arc::clone(connector),
            None => {
                let made = tokio::task::spawn_blocking(|| {
                    Arc::new(TransportConnector::new(Some(ConnectorOptions::new(1))))
                });
                let made = made.await.map_err(io::Error::other)?;
                Arc::clone(self.tls.get_or_init(|| made))
            }
        };
        let stream = Box::pin(connector.new_stream(peer)).await;
        stream.map(Link::Pingora).map_err(NoLink::Tls)
    }
}
