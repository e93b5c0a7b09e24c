//! Buffers that are lent to connections while they have something in them.
//!
//! An idle connection holds none: a read borrows one for the poll and gives it
//! back when nothing came. What a gateway with ten thousand idle clients needs
//! is then the buffers of those that are busy.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt;

/// Size of a buffer. Most heads and small bodies fit.
pub const SIZE: usize = 16 * 1024;
/// Size of a buffer for a body that is longer: fewer system calls.
pub const LARGE: usize = 64 * 1024;
/// A buffer with less room than this gets more before a read.
const LEAST_ROOM: usize = 4 * 1024;
/// Buffers kept for later in each shard.
const KEPT: usize = 32;
/// A buffer that grew beyond this is not kept.
const LARGEST: usize = 2 * LARGE;
/// Shards, so that workers seldom meet at a lock.
const SHARDS: usize = 16;

/// The buffers nobody uses at the moment.
pub struct Buffers {
    shards: [Mutex<Vec<Vec<u8>>>; SHARDS],
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

/// A connection's way to the buffers.
#[derive(Clone, Copy)]
pub struct Lender<'a> {
    shard: &'a Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// For a connection: its number chooses the shard.
    pub fn lender(&self, connection: u64) -> Lender<'_> {
        let at = usize::try_from(connection % SHARDS as u64).unwrap_or(0);
        Lender {
            shard: &self.shards[at],
        }
    }
}

impl Lender<'_> {
    /// Makes sure that there is room in `buf`.
    pub fn lend(self, buf: &mut Vec<u8>) {
        if buf.capacity() == 0 {
            let kept = self
                .shard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            *buf = kept.unwrap_or_else(|| Vec::with_capacity(SIZE));
        } else if buf.capacity() - buf.len() < LEAST_ROOM {
            buf.reserve(SIZE);
        }
    }

    /// Takes a buffer back; what is in it is forgotten.
    pub fn give_back(self, buf: &mut Vec<u8>) {
        let mut buf = std::mem::take(buf);
        // Of another size are those that did not come from here.
        if !(SIZE..=LARGEST).contains(&buf.capacity()) {
            return;
        }
        buf.clear();
        let mut kept = self.shard.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(buf);
        }
    }

    /// Reads into `buf`, which holds memory only if it holds bytes when this returns.
    pub fn poll_read<S: AsyncRead + Unpin>(
        self,
        cx: &mut Context<'_>,
        stream: &mut S,
        buf: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        self.lend(buf);
        let read = poll_read_buf(cx, stream, buf);
        if buf.is_empty() {
            self.give_back(buf);
        }
        read
    }
}

/// Reads into the room that `buf` has.
pub fn poll_read_buf<S: AsyncRead + Unpin>(
    cx: &mut Context<'_>,
    stream: &mut S,
    buf: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    let read = std::pin::pin!(stream.read_buf(buf));
    std::future::Future::poll(read, cx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_lent_again() {
        let buffers = Buffers::default();
        let lender = buffers.lender(3);
        let mut buf = Vec::new();
        lender.lend(&mut buf);
        buf.extend_from_slice(b"x");
        let place = buf.as_ptr();
        lender.give_back(&mut buf);
        assert_eq!(buf.capacity(), 0);
        lender.lend(&mut buf);
        assert!(buf.is_empty() && buf.as_ptr() == place);
    }

    #[test]
    fn only_whole_buffers_are_kept() {
        let buffers = Buffers::default();
        let lender = buffers.lender(3);
        for capacity in [0, 1, SIZE - 1, LARGEST + 1] {
            lender.give_back(&mut Vec::with_capacity(capacity));
        }
        let mut buf = Vec::new();
        lender.lend(&mut buf);
        assert_eq!(buf.capacity(), SIZE);
        buf.resize(SIZE - 1, 0);
        lender.lend(&mut buf);
        assert!(buf.capacity() - buf.len() >= LEAST_ROOM);
    }

    #[tokio::test]
    async fn a_read_that_has_to_wait_holds_nothing() {
        let buffers = Buffers::default();
        let lender = buffers.lender(0);
        let (mut near, mut far) = tokio::io::duplex(64);
        let mut buf = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(lender.poll_read(&mut cx, &mut near, &mut buf).is_pending());
        assert_eq!(buf.capacity(), 0);
        tokio::io::AsyncWriteExt::write_all(&mut far, b"abc")
            .await
            .unwrap();
        assert!(matches!(
            lender.poll_read(&mut cx, &mut near, &mut buf),
            Poll::Ready(Ok(3))
        ));
        assert_eq!(buf, b"abc");
    }
}
