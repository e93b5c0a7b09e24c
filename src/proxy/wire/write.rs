//! Writing to the client.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use crate::link::Link;

/// Two pieces being written one after the other, then flushed.
pub struct Write<'a> {
    first: &'a [u8],
    second: &'a [u8],
}

impl<'a> Write<'a> {
    /// Both pieces; each may be empty.
    pub fn new(first: &'a [u8], second: &'a [u8]) -> Write<'a> {
        Write { first, second }
    }

    /// Goes on as far as it can; sets `moved` when it did. Ready when all is with the kernel.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Link,
        moved: &mut bool,
    ) -> Poll<io::Result<()>> {
        loop {
            let written = if !self.first.is_empty() && !self.second.is_empty() {
                let both = [IoSlice::new(self.first), IoSlice::new(self.second)];
                ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &both))
            } else if !self.first.is_empty() {
                ready!(Pin::new(&mut *stream).poll_write(cx, self.first))
            } else if !self.second.is_empty() {
                ready!(Pin::new(&mut *stream).poll_write(cx, self.second))
            } else {
                return Pin::new(&mut *stream).poll_flush(cx);
            };
            match written? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => {
                    *moved = true;
                    let from_first = n.min(self.first.len());
                    self.first = &self.first[from_first..];
                    self.second = &self.second[n - from_first..];
                }
            }
        }
    }
}
