//! The request on its way upstream: head, then body, with back-pressure.
//!
//! One buffer's worth is read from the client, written to the upstream, and only
//! then is more read. Bodies are passed on with the length the client named, or
//! decoded and encoded anew when they are chunked.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::Instant;

use super::buffers;
use super::chunked::{self, Chunked};
use crate::link::Link;
use crate::proxy::core::ClientLimits;
use crate::proxy::fault::{Fault, FaultKind};
use crate::proxy::request_head::BodyLength;

/// So much of a request stays in the client's buffer for another try. More is forgotten once it is
/// on its way.
const KEPT: usize = 64 * 1024;

/// What the client still has to send.
enum Left {
    Nothing,
    Exact(u64),
    Chunked(Chunked),
}

/// Whom the upload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The client has to send.
    Client,
    /// The upstream has to take.
    Upstream,
}

/// How an upload came to its end.
#[derive(Debug)]
pub enum End {
    /// Everything was passed on.
    Complete,
    /// The upstream takes no more; its answer may still be there.
    Refused(std::io::Error),
    /// The client failed, or sent what must not pass.
    Failed(Fault),
}

/// A request being sent.
pub struct Upload {
    left: Left,
    /// Bytes for the upstream: the head, then chunks of the body.
    pub out: Vec<u8>,
    sent: usize,
    /// How much of the client's buffer has been used.
    used: usize,
    /// How much of what was used goes out from where it is: bodies that are not chunked.
    direct: usize,
    /// Where the request's bytes in the client's buffer began.
    start: usize,
    /// Body bytes received from the client.
    pub received: u64,
    /// The most that may be received; 0 is unlimited.
    max: u64,
    /// Bytes were read that are in no buffer any more.
    streamed: bool,
    /// `100 Continue` is owed to the client before its body is read.
    owes_continue: bool,
    /// Whom the last poll left it waiting for.
    pub waiting: Waiting,
    /// The end, once it is reached.
    pub end: Option<End>,
    /// Whether anything moved since this was last cleared.
    pub moved: bool,
    /// When the next piece of the body is due, and how much had been received when that was set.
    due: Option<(Instant, u64)>,
}

/// The client's side of an upload.
pub struct Source<'a> {
    /// The client's connection.
    pub stream: &'a mut Link,
    /// What was read from it.
    pub inb: &'a mut Vec<u8>,
}

impl Upload {
    /// An upload of a body that begins at `start` of the client's buffer.
    pub fn new(body: BodyLength, start: usize, max: u64, expects: bool) -> Upload {
        let left = match body {
            BodyLength::None => Left::Nothing,
            BodyLength::Exact(length) => Left::Exact(length),
            BodyLength::Chunked => Left::Chunked(Chunked::default()),
        };
        Upload {
            owes_continue: expects && !matches!(left, Left::Nothing),
            left,
            out: Vec::new(),
            sent: 0,
            used: start,
            direct: 0,
            start,
            received: 0,
            max,
            streamed: false,
            waiting: Waiting::Upstream,
            end: None,
            moved: false,
            due: None,
        }
    }

    /// Begins again from the client's buffer, for another try. `None` when bytes are gone.
    pub fn again(&self, body: BodyLength) -> Option<Upload> {
        if self.streamed {
            return None;
        }
        let mut again = Upload::new(body, self.start, self.max, false);
        again.owes_continue = self.owes_continue;
        Some(again)
    }

    /// Whether all of the client's body was read.
    pub fn is_read(&self) -> bool {
        match &self.left {
            Left::Nothing => true,
            Left::Exact(left) => *left == 0,
            Left::Chunked(reader) => reader.is_done(),
        }
    }

    /// How much of the client's buffer belongs to this request or the ones before.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The end of the wait for the client. It moves on when as much has come as the lowest rate asks
    /// for in that time, so that a body cannot be stretched for ever byte by byte.
    pub fn due(&mut self, limits: &ClientLimits) -> Instant {
        let quota = limits
            .min_body_rate
            .saturating_mul(limits.body.as_secs())
            .max(1);
        match self.due {
            Some((at, received)) if self.received < received.saturating_add(quota) => at,
            _ => {
                let at = Instant::now() + limits.body;
                self.due = Some((at, self.received));
                at
            }
        }
    }

    /// The client was not what it waited for: the client's time begins anew.
    pub fn not_due(&mut self) {
        self.due = None;
    }

    /// Ends it: the answer has begun, and what is still to come would only be in its way.
    pub fn abandon(&mut self) {
        self.end
            .get_or_insert(End::Refused(std::io::ErrorKind::Interrupted.into()));
    }

    /// Whether the client may still be waiting for `100 Continue`.
    pub fn owes_continue(&self) -> bool {
        self.owes_continue
    }

    /// Goes on as far as it can. Ready when it came to its end.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Source<'_>,
        link: &mut Link,
    ) -> Poll<()> {
        if self.end.is_some() {
            return Poll::Ready(());
        }
        loop {
            if self.sent < self.out.len() || self.direct > 0 {
                self.waiting = Waiting::Upstream;
                let first = &self.out[self.sent..];
                let second = &source.inb[self.used - self.direct..self.used];
                let written = match (first.is_empty(), second.is_empty()) {
                    (false, false) => {
                        let both = [IoSlice::new(first), IoSlice::new(second)];
                        Pin::new(&mut *link).poll_write_vectored(cx, &both)
                    }
                    (false, true) => Pin::new(&mut *link).poll_write(cx, first),
                    _ => Pin::new(&mut *link).poll_write(cx, second),
                };
                match ready!(written) {
                    Ok(0) => {
                        return self.finish(End::Refused(std::io::ErrorKind::WriteZero.into()));
                    }
                    Ok(n) => {
                        let head = n.min(first.len());
                        self.sent += head;
                        self.direct -= n - head;
                        self.moved = true;
                    }
                    Err(e) => return self.finish(End::Refused(e)),
                }
                continue;
            }
            self.sent = 0;
            self.out.clear();
            if self.has_buffered(source) && !self.is_read() && !self.owes_continue {
                // What came with the head goes out with it.
                if let Err(fault) = self.consume(source, true) {
                    return self.finish(End::Failed(fault));
                }
                continue;
            }
            if self.is_read() || !self.has_buffered(source) {
                // Before a wait, whatever layer below still holds has to go.
                self.waiting = Waiting::Upstream;
                if let Err(e) = ready!(Pin::new(&mut *link).poll_flush(cx)) {
                    return self.finish(End::Refused(e));
                }
            }
            if self.is_read() {
                return self.finish(End::Complete);
            }
            self.waiting = Waiting::Client;
            if let Err(fault) = ready!(self.poll_fill(cx, source)) {
                return self.finish(End::Failed(fault));
            }
            self.moved = true;
        }
    }

    fn has_buffered(&self, source: &Source<'_>) -> bool {
        self.used < source.inb.len()
    }

    fn finish(&mut self, end: End) -> Poll<()> {
        self.end = Some(end);
        Poll::Ready(())
    }

    /// Reads a piece of the body and prepares it for the upstream.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Source<'_>,
    ) -> Poll<Result<(), Fault>> {
        if self.owes_continue {
            ready!(poll_continue(cx, source.stream))?;
            self.owes_continue = false;
        }
        ready!(self.poll_more(cx, source))?;
        Poll::Ready(self.consume(source, true))
    }

    /// Makes sure that there are bytes that were not used yet. All of a request stands in the
    /// client's buffer, where another try finds it, until it grows too long for that.
    fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Source<'_>,
    ) -> Poll<Result<(), Fault>> {
        if self.has_buffered(source) {
            return Poll::Ready(Ok(()));
        }
        if self.streamed || source.inb.len() >= KEPT {
            self.streamed = true;
            source.inb.truncate(self.start);
            self.used = self.start;
        }
        let read = match self.left {
            // Not beyond the end of the body: the rest is for the next request.
            Left::Exact(left) => {
                buffers::lend(source.inb);
                let room = usize::try_from(left).unwrap_or(usize::MAX);
                let mut limited = (&mut *source.inb).limit(room);
                let read = std::pin::pin!(source.stream.read_buf(&mut limited));
                ready!(std::future::Future::poll(read, cx))
            }
            _ => ready!(buffers::poll_read(cx, source.stream, source.inb)),
        };
        Poll::Ready(match read {
            Ok(0) => Err(gone("closed in the middle of its body")),
            Ok(_) => Ok(()),
            Err(e) => Err(gone(e.to_string())),
        })
    }

    /// Uses what is in the client's buffer, as far as it belongs to the body.
    fn consume(&mut self, source: &Source<'_>, pass_on: bool) -> Result<(), Fault> {
        let input = &source.inb[self.used..];
        let (out, received) = (&mut self.out, &mut self.received);
        self.used += match &mut self.left {
            Left::Nothing => 0,
            Left::Exact(left) => {
                let take = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                if pass_on {
                    self.direct += take;
                }
                *left -= take as u64;
                *received += take as u64;
                take
            }
            Left::Chunked(reader) => {
                let taken = reader.read(input, |data| {
                    *received += data.len() as u64;
                    if pass_on {
                        chunked::put(data, out);
                    }
                });
                let taken = taken.map_err(|e| Fault::new(FaultKind::BadRequest, e.to_string()))?;
                if reader.is_done() && pass_on {
                    out.extend_from_slice(chunked::END);
                }
                taken
            }
        };
        if self.max > 0 && self.received > self.max {
            return Err(FaultKind::BodyTooLarge.into());
        }
        Ok(())
    }

    /// Reads and forgets the rest of the body. Ready when it was read.
    pub fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Source<'_>,
    ) -> Poll<Result<(), Fault>> {
        self.owes_continue = false;
        while !self.is_read() {
            ready!(self.poll_more(cx, source))?;
            self.consume(source, false)?;
        }
        Poll::Ready(Ok(()))
    }
}

fn gone(cause: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(FaultKind::ClientGone, cause)
}

/// Tells the client to go on. So short a line goes out whole or not at all: a client whose window
/// is closed before the answer has begun is given up.
fn poll_continue(cx: &mut Context<'_>, stream: &mut Link) -> Poll<Result<(), Fault>> {
    const LINE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    match ready!(Pin::new(&mut *stream).poll_write(cx, LINE)) {
        Ok(n) if n == LINE.len() => {}
        Ok(_) => return Poll::Ready(Err(gone("takes no interim answer"))),
        Err(e) => return Poll::Ready(Err(gone(e.to_string()))),
    }
    // Over TLS the line sits in a write buffer. A flush that has to wait is finished by the next write, and
    // clients that get no such line send their bodies after a while anyway.
    let _ = Pin::new(&mut *stream).poll_flush(cx);
    Poll::Ready(Ok(()))
}
