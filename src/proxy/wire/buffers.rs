//! Buffers that are lent to connections while they have something in them.
//!
//! An idle connection holds none: a read borrows one when there is something to
//! read. What a gateway with ten thousand idle clients needs is then the buffers
//! of those that are busy. Each worker keeps some for later, so that none of
//! this takes a lock.

use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncReadExt;

use crate::link::Link;

/// Size of a buffer. Most heads and small bodies fit.
pub const SIZE: usize = 16 * 1024;
/// Size of a buffer for a body that is longer: fewer system calls.
pub const LARGE: usize = 64 * 1024;
/// A buffer with less room than this gets more before a read.
const LEAST_ROOM: usize = 4 * 1024;
/// Buffers kept for later by each worker.
const KEPT: usize = 128;
/// A buffer that grew beyond this is not kept.
const LARGEST: usize = 2 * LARGE;

thread_local! {
    /// The buffers nobody uses at the moment.
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Makes sure that there is room in `buf`.
pub fn lend(buf: &mut Vec<u8>) {
    if buf.capacity() == 0 {
        let kept = FREE.try_with(|free| free.borrow_mut().pop());
        *buf = kept
            .ok()
            .flatten()
            .unwrap_or_else(|| Vec::with_capacity(SIZE));
    } else if buf.capacity() - buf.len() < LEAST_ROOM {
        buf.reserve(SIZE);
    }
}

/// Takes a buffer back; what is in it is forgotten.
pub fn give_back(buf: &mut Vec<u8>) {
    let mut buf = std::mem::take(buf);
    // Of another size are those that did not come from here.
    if !(SIZE..=LARGEST).contains(&buf.capacity()) {
        return;
    }
    buf.clear();
    // A worker that is ending keeps nothing.
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < KEPT {
            free.push(buf);
        }
    });
}

/// Reads into `buf`, which holds memory only if it holds bytes when this returns.
pub fn poll_read(
    cx: &mut Context<'_>,
    link: &mut Link,
    buf: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    if let Link::Plain(socket) = link {
        // Nothing is borrowed for looking. What it finds may still turn out to be nothing.
        ready!(socket.poll_read_ready(cx))?;
    }
    lend(buf);
    let read = poll_read_buf(cx, link, buf);
    if buf.is_empty() {
        give_back(buf);
    }
    read
}

/// Reads into the room that `buf` has.
fn poll_read_buf(
    cx: &mut Context<'_>,
    link: &mut Link,
    buf: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    let read = std::pin::pin!(link.read_buf(buf));
    read.poll(cx)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_buffer_is_lent_again() {
        let mut buf = Vec::new();
        lend(&mut buf);
        buf.extend_from_slice(b"x");
        let place = buf.as_ptr();
        give_back(&mut buf);
        assert_eq!(buf.capacity(), 0);
        lend(&mut buf);
        assert!(buf.is_empty() && buf.as_ptr() == place);
    }

    #[test]
    fn only_whole_buffers_are_kept() {
        for capacity in [0, 1, SIZE - 1, LARGEST + 1] {
            give_back(&mut Vec::with_capacity(capacity));
        }
        let mut buf = Vec::new();
        lend(&mut buf);
        assert_eq!(buf.capacity(), SIZE);
        buf.resize(SIZE - 1, 0);
        lend(&mut buf);
        assert!(buf.capacity() - buf.len() >= LEAST_ROOM);
    }

    #[tokio::test]
    async fn a_read_that_has_to_wait_holds_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut near, mut far) = (Link::Plain(near.unwrap()), far.unwrap().0);
        let mut buf = Vec::new();
        // Twice: a new socket counts as readable until it was looked at.
        for _ in 0..2 {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(poll_read(&mut cx, &mut near, &mut buf).is_pending());
            assert_eq!(buf.capacity(), 0);
        }
        far.write_all(b"abc").await.unwrap();
        let read = std::future::poll_fn(|cx| poll_read(cx, &mut near, &mut buf)).await;
        assert_eq!(read.unwrap(), 3);
        assert_eq!(buf, b"abc");
    }
}
