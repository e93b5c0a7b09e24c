//! One connection of the wire lane, to a client or to a node.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pingora_core::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection.
pub enum Link {
    /// Clear text, nothing between this and the kernel.
    Plain(TcpStream),
    /// What only Pingora can read and write: TLS. Also clear text where only its proxy serves.
    Pingora(Stream),
}

impl Link {
    /// How long a wait lasts before it is looked whether the other side has left. In clear text that
    /// is a look at what the runtime knows; TLS has to try and fail to read, which costs as much as a
    /// tenth of a request.
    pub fn patience(&self) -> Duration {
        match self {
            Link::Plain(_) => Duration::ZERO,
            Link::Pingora(_) => Duration::from_millis(500),
        }
    }

    /// Whether an idle connection can carry another request: nothing came, and it is open.
    pub fn is_alive(&mut self) -> bool {
        match self {
            Link::Plain(stream) => {
                // The kernel is asked: what the runtime knows may be some requests old.
                let socket = socket2::SockRef::from(&*stream);
                let mut peeked = [MaybeUninit::uninit(); 1];
                matches!(socket.peek(&mut peeked), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
            }
            Link::Pingora(stream) => {
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
            Link::Pingora(stream) => Pin::new(stream).poll_read(cx, buf),
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
            Link::Pingora(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Link::Pingora(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Link::Plain(stream) => stream.is_write_vectored(),
            // Pingora's type says it can, and makes a TLS record of each piece.
            Link::Pingora(_) => false,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(_) => Poll::Ready(Ok(())),
            Link::Pingora(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Link::Pingora(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
