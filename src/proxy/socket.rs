//! Client connections on their way between Pingora and the wire lane.
//!
//! Pingora accepts them. What it wraps around a clear-text socket (a write
//! buffer, accounting, dynamic calls) is of no use to the wire lane, which takes
//! the socket itself, and costs each idle connection two KiB. Pingora's proxy
//! gets it back with a buffer for writing.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use lockgate_plugin::Conn;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, ReadBuf};
use tokio::net::TcpStream;

use crate::link::Link;

/// Pingora copies heads into a buffer of this size before writing, so that a head and a small body
/// leave in one segment. Reads are not buffered: heads and bodies have buffers of their own.
pub const WRITE_BUFFER: usize = 1460;

/// Takes the socket out of what Pingora accepted. Nothing may have been read from it or written
/// to it; it stays with Pingora when it speaks TLS.
pub fn take(stream: Stream) -> Link {
    let accepted = stream.as_any().downcast_ref::<L4Stream>();
    match accepted.and_then(|accepted| own(accepted).ok()) {
        Some(socket) => Link::Plain(socket),
        None => Link::Pingora(stream),
    }
}

/// The same socket under a descriptor of its own: there is no way to take it away from Pingora's
/// type, which closes the other one.
fn own(accepted: &L4Stream) -> io::Result<TcpStream> {
    let socket = duplicate(accepted)?;
    TcpStream::from_std(std::net::TcpStream::from(socket))
}

#[allow(unsafe_code)] // Pingora's type offers the number of the descriptor, not the descriptor.
fn duplicate(accepted: &L4Stream) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open for as long as `accepted` is, which outlives this borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(accepted.as_raw_fd()) };
    fd.try_clone_to_owned()
}

/// Gives a connection to Pingora's proxy.
pub fn give(link: Link, conn: &Conn) -> Stream {
    match link {
        Link::Plain(socket) => {
            let digest = Arc::new(digest(&socket, conn));
            Box::new(Given {
                stream: BufWriter::with_capacity(WRITE_BUFFER, socket),
                digest,
            })
        }
        Link::Pingora(stream) => stream,
    }
}

/// Gives a connection to Pingora for another protocol, with the bytes that were read from it.
pub fn give_with(link: Link, conn: &Conn, read: &[u8]) -> Option<Stream> {
    let mut stream = match link {
        Link::Plain(socket) => {
            let digest = digest(&socket, conn);
            let mut stream = L4Stream::from(socket);
            stream.set_socket_digest(digest);
            stream
        }
        Link::Pingora(stream) => *stream.into_any().downcast::<L4Stream>().ok()?,
    };
    stream.rewind(read);
    Some(Box::new(stream))
}

/// What Pingora asks for the addresses. They are those of the moment when the connection was accepted:
/// the kernel has none to tell once the client has reset it.
fn digest(socket: &TcpStream, conn: &Conn) -> SocketDigest {
    let digest = SocketDigest::from_raw_fd(socket.as_raw_fd());
    // Nobody has set them before.
    let _ = digest.peer_addr.set(Some(conn.peer.into()));
    let _ = digest.local_addr.set(Some(conn.local.into()));
    digest
}

/// Takes a connection back from Pingora's proxy after a request.
pub fn take_back(stream: Stream) -> Option<Link> {
    let given = stream.as_any().downcast_ref::<Given>();
    if given.is_none_or(|given| !given.stream.buffer().is_empty()) {
        return Some(Link::Pingora(stream));
    }
    let given = stream.into_any().downcast::<Given>().ok()?;
    Some(Link::Plain(given.stream.into_inner()))
}

/// A clear-text connection in Pingora's proxy.
#[derive(Debug)]
struct Given {
    stream: BufWriter<TcpStream>,
    digest: Arc<SocketDigest>,
}

impl AsyncRead for Given {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Given {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Given {
    async fn shutdown(&mut self) {
        // The connection is given up; that the other side is gone already changes nothing.
        let _ = AsyncWriteExt::shutdown(&mut self.stream).await;
    }
}

impl UniqueID for Given {
    fn id(&self) -> UniqueIDType {
        self.stream.get_ref().as_raw_fd()
    }
}

impl Ssl for Given {}

impl Peek for Given {}

impl GetTimingDigest for Given {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Given {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Given {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::clone(&self.digest))
    }
}

#[cfg(test)]
mod tests;
