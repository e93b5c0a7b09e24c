//! Bytes both ways, once the upstream agreed to WebSocket.
//!
//! One side's end is the end of both, after what it sent last was passed on.
//! A tunnel in which nothing moves is closed after the route's or upstream's
//! `timeout.read`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lockgate_plugin::Origin;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Client;
use super::answer::linger;
use super::buffers::Lender;
use super::connect::Linked;
use super::exchange::{Run, Shown};
use super::relay::nominated;
use super::response_head;
use super::views::WireResp;
use super::write_head::{self, Framing};
use crate::proxy::fault::{Fault, FaultKind};
use crate::proxy::head;
use crate::proxy::pipeline::Exchange;
use crate::upstream::Timeouts;

/// A tunnel, from the head that agreed to it.
pub(super) struct Tunnel {
    linked: Linked,
    window: Vec<u8>,
    resp: response_head::Head,
    timeouts: Timeouts,
}

/// Which side ended the tunnel.
enum Side {
    Client,
    Upstream,
}

impl Tunnel {
    /// The upstream's head stands at the start of `window`; what follows it is the tunnel's.
    pub(super) fn new(
        linked: Linked,
        window: Vec<u8>,
        resp: response_head::Head,
        timeouts: Timeouts,
    ) -> Tunnel {
        Tunnel {
            linked,
            window,
            resp,
            timeouts,
        }
    }

    /// Tells the client, then passes bytes until the end.
    pub(super) async fn run(mut self, run: &mut Run<'_>, exchange: &mut Exchange) {
        if let Some(attempt) = exchange.work.attempts.last_mut() {
            attempt.status = self.resp.status;
            attempt.header = Some(attempt.started.elapsed());
        }
        run.shown = Shown::Upstream(self.resp.status);
        run.persistent = false;
        let mut down = Way::new(run.lender, FaultKind::UpstreamClosed, FaultKind::ClientGone);
        let mut up = Way::new(run.lender, FaultKind::ClientGone, FaultKind::UpstreamClosed);
        run.lender.lend(&mut down.buf);
        self.head(run, exchange, &mut down.buf);
        let head_len = down.buf.len() as u64;
        down.buf.extend_from_slice(&self.window[self.resp.len..]);
        self.window.truncate(self.resp.len);
        run.client.resp = std::mem::take(&mut self.window);
        let early = run.client.inb.split_off(run.upload.used());
        if !early.is_empty() {
            run.lender.lend(&mut up.buf);
            up.buf.extend_from_slice(&early);
        }

        let ended = self.pass(run, &mut up, &mut down).await;
        let sent = down.passed.saturating_sub(head_len);
        run.upload.received = up.passed;
        exchange.work.upstream_body = Some(sent);
        exchange.work.sent_body = sent;
        exchange.work.sent_bytes = down.passed;
        run.lender.give_back(&mut up.buf);
        run.lender.give_back(&mut down.buf);
        match ended {
            Ok(Side::Client) => run.whole = true,
            Ok(Side::Upstream) => {
                run.whole = true;
                // The client may be in the middle of a message; a reset would take from it what it
                // was sent last.
                linger(run.stream).await;
            }
            Err(fault) => {
                exchange.work.reason = fault.kind.reason();
                tracing::debug!(reason = fault.kind.reason(), cause = %fault.cause, "tunnel ended");
            }
        }
    }

    /// Runs the header filters, writes the head. The status stays: it is what was agreed.
    fn head(&self, run: &mut Run<'_>, exchange: &mut Exchange, out: &mut Vec<u8>) {
        head::response_edits(run.core, exchange);
        let client = &mut *run.client;
        let date = client.date.at(exchange.work.timing.wall);
        let resp = WireResp::new(&self.window, &client.resp_fields, self.resp.status);
        exchange.response_head(&client.req(run.head), &resp, Origin::Upstream);
        exchange.work.status = self.resp.status;
        let head = write_head::Response {
            status: self.resp.status,
            reason: Some(self.resp.reason.of(&self.window)),
            ops: exchange.work.response.headers.ops(),
            framing: Framing::Upgrade,
            date: &date,
            persistent: false,
            nominated: &nominated(&resp),
        };
        write_head::response(out, &head, resp.fields());
    }

    async fn pass(
        &mut self,
        run: &mut Run<'_>,
        up: &mut Way<'_>,
        down: &mut Way<'_>,
    ) -> Result<Side, Fault> {
        let stream = &mut *run.stream;
        let Client { deadline, .. } = &mut *run.client;
        let link = &mut self.linked.link;
        let passing = deadline.within(self.timeouts.read, |cx, moved| {
            if let Poll::Ready(end) = down.poll(cx, link, stream, moved) {
                return Poll::Ready(end.map(|()| Side::Upstream));
            }
            up.poll(cx, stream, link, moved).map_ok(|()| Side::Client)
        });
        let passed = passing.await;
        passed.unwrap_or_else(|| Err(FaultKind::UpstreamTimeout.into()))
    }
}

/// One direction.
struct Way<'a> {
    lender: Lender<'a>,
    buf: Vec<u8>,
    /// How much of the buffer has been written.
    at: usize,
    /// Bytes written since the beginning.
    passed: u64,
    /// What was written may still sit in a buffer of the connection.
    unflushed: bool,
    /// Nothing more will come.
    ended: bool,
    /// What it means that reading fails, and that writing does.
    faults: (FaultKind, FaultKind),
}

impl<'a> Way<'a> {
    fn new(lender: Lender<'a>, read: FaultKind, write: FaultKind) -> Way<'a> {
        Way {
            lender,
            buf: Vec::new(),
            at: 0,
            passed: 0,
            unflushed: false,
            ended: false,
            faults: (read, write),
        }
    }

    /// Goes on as far as it can; sets `moved` when it did. Ready when the side it reads from has
    /// ended and all it sent was passed on.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        moved: &mut bool,
    ) -> Poll<Result<(), Fault>> {
        let (read, write) = self.faults;
        loop {
            if self.at < self.buf.len() {
                let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.buf[self.at..]));
                match written.map_err(|e| Fault::new(write, e.to_string()))? {
                    0 => return Poll::Ready(Err(write.into())),
                    n => {
                        self.at += n;
                        self.passed += n as u64;
                        (*moved, self.unflushed) = (true, true);
                    }
                }
                continue;
            }
            self.buf.clear();
            self.at = 0;
            let came = if self.ended {
                Poll::Ready(0)
            } else {
                let came = self.lender.poll_read(cx, from, &mut self.buf);
                came.map_err(|e| Fault::new(read, e.to_string()))?
            };
            if let Poll::Ready(1..) = came {
                *moved = true;
                continue;
            }
            self.ended = came.is_ready();
            if self.unflushed {
                let flushed = ready!(Pin::new(&mut *to).poll_flush(cx));
                flushed.map_err(|e| Fault::new(write, e.to_string()))?;
                self.unflushed = false;
            }
            return came.map(|_| Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter, duplex};

    use super::super::buffers::Buffers;
    use super::*;

    fn way(buffers: &Buffers) -> Way<'_> {
        let lender = buffers.lender(0);
        Way::new(lender, FaultKind::ClientGone, FaultKind::UpstreamClosed)
    }

    #[tokio::test]
    async fn everything_is_passed_on_and_flushed_before_the_end() {
        let buffers = Buffers::default();
        let (mut source, mut from) = duplex(1 << 10);
        let (to, mut sink) = duplex(7);
        let mut to = BufWriter::new(to);
        let mut way = way(&buffers);
        way.buf.extend_from_slice(b"early ");
        let passing =
            async { std::future::poll_fn(|cx| way.poll(cx, &mut from, &mut to, &mut false)).await };
        let feeding = async {
            source.write_all(&[b'x'; 5000]).await.unwrap();
            drop(source);
        };
        let reading = async {
            let mut got = vec![0; 5006];
            sink.read_exact(&mut got).await.unwrap();
            got
        };
        let (passed, (), got) = tokio::join!(passing, feeding, reading);
        assert!(passed.is_ok());
        assert!(got.starts_with(b"early xxx"));
        assert_eq!((way.passed, way.buf.capacity()), (5006, 0));
    }

    #[tokio::test]
    async fn a_side_that_takes_nothing_is_named() {
        let buffers = Buffers::default();
        let (_source, mut from) = duplex(8);
        let (mut to, sink) = duplex(8);
        drop(sink);
        let mut way = way(&buffers);
        way.buf.extend_from_slice(b"x");
        let end = std::future::poll_fn(|cx| way.poll(cx, &mut from, &mut to, &mut false)).await;
        assert_eq!(end.unwrap_err().kind, FaultKind::UpstreamClosed);
    }
}
