//! One connection to a node, for the wire lane.
//!
//! Clear text goes over a plain socket: what Pingora's connector would put around
//! it (a 64 KiB read buffer, accounting) is of no use there. TLS connections are
//! made by Pingora's connector.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::Stream;
use pingora_core::upstreams::peer::HttpPeer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection to a node.
pub enum Link {
    /// Clear text.
    Plain(TcpStream),
    /// Over TLS, for the server name that was asked for.
    Tls(Stream),
}

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
        stream.map(Link::Tls).map_err(NoLink::Tls)
    }
}

impl Link {
    /// Whether an idle connection can carry another request: nothing came, and it is open.
    pub fn is_alive(&mut self) -> bool {
        match self {
            Link::Plain(stream) => {
                // The kernel is asked: what the runtime knows may be some requests old.
                let socket = socket2::SockRef::from(&*stream);
                let mut peeked = [MaybeUninit::uninit(); 1];
                matches!(socket.peek(&mut peeked), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
            }
            Link::Tls(stream) => {
                // What the runtime's budget says is no answer to this question.
                let mut byte = [0u8; 1];
                let mut buf = ReadBuf::new(&mut byte);
                let mut cx = Context::from_waker(Waker::noop());
                let probe =
                    std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buf));
                let mut probe = std::pin::pin!(tokio::task::unconstrained(probe));
                std::future::Future::poll(probe.as_mut(), &mut cx).is_pending()
            }
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Link::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Link::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Link::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Link::Plain(stream) => stream.is_write_vectored(),
            Link::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(_) => Poll::Ready(Ok(())),
            Link::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Link::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
