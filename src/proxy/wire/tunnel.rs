//! Bytes both ways, once the upstream agreed to WebSocket.
//!
//! One side's end is the end of both, after what it sent last was passed on.
//! A tunnel in which nothing moves is closed after the route's or upstream's
//! `timeout.read`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lockgate_plugin::Origin;
use tokio::io::AsyncWrite;

use super::Client;
use super::answer::linger;
use super::buffers;
use super::connect::Linked;
use super::exchange::{Run, Shown};
use super::relay::nominated;
use super::response_head;
use super::views::WireResp;
use super::write_head::{self, Framing};
use crate::link::Link;
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
        let mut down = Way::new(FaultKind::UpstreamClosed, FaultKind::ClientGone);
        let mut up = Way::new(FaultKind::ClientGone, FaultKind::UpstreamClosed);
        buffers::lend(&mut down.buf);
        self.head(run, exchange, &mut down.buf);
        let head_len = down.buf.len() as u64;
        down.buf.extend_from_slice(&self.window[self.resp.len..]);
        self.window.truncate(self.resp.len);
        run.client.resp = std::mem::take(&mut self.window);
        let early = run.client.inb.split_off(run.upload.used());
        if !early.is_empty() {
            buffers::lend(&mut up.buf);
            up.buf.extend_from_slice(&early);
        }

        let ended = self.pass(run, &mut up, &mut down).await;
        let sent = down.passed.saturating_sub(head_len);
        run.upload.received = up.passed;
        exchange.work.upstream_body = Some(sent);
        exchange.work.sent_body = sent;
        exchange.work.sent_bytes = down.passed;
        buffers::give_back(&mut up.buf);
        buffers::give_back(&mut down.buf);
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
        write_head::response(out, &head, resp.places());
    }

    async fn pass(
        &mut self,
        run: &mut Run<'_>,
        up: &mut Way,
        down: &mut Way,
    ) -> Result<Side, Fault> {
        let stream = &mut *run.stream;
        let Client { deadline, .. } = &mut *run.client;
        let link = &mut self.linked.link;
        let mut up_first = false;
        let passing = deadline.within(self.timeouts.read, |cx, moved| {
            // In turns: a direction that never pauses uses up what the runtime grants this task, and
            // the other one would get nothing.
            up_first = !up_first;
            let mut upward = up_first;
            for _ in 0..2 {
                let end = if upward {
                    up.poll(cx, stream, link, moved).map_ok(|()| Side::Client)
                } else {
                    down.poll(cx, link, stream, moved)
                        .map_ok(|()| Side::Upstream)
                };
                if end.is_ready() {
                    return end;
                }
                upward = !upward;
            }
            Poll::Pending
        });
        match passing.await {
            Some(end) => end,
            // The client did not take what there was for it.
            None if down.at < down.buf.len() => Err(FaultKind::ClientGone.into()),
            None => Err(FaultKind::UpstreamTimeout.into()),
        }
    }
}

/// One direction.
struct Way {
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

impl Way {
    fn new(read: FaultKind, write: FaultKind) -> Way {
        Way {
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
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Link,
        to: &mut Link,
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
                let came = buffers::poll_read(cx, from, &mut self.buf);
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
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn pair() -> (TcpStream, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (far, near) = tokio::join!(TcpStream::connect(address), listener.accept());
        (far.unwrap(), Link::Plain(near.unwrap().0))
    }

    fn way(early: &[u8]) -> Way {
        let mut way = Way::new(FaultKind::ClientGone, FaultKind::UpstreamClosed);
        way.buf.extend_from_slice(early);
        way
    }

    #[tokio::test]
    async fn everything_is_passed_on_before_the_end() {
        const MUCH: usize = 8 << 20;
        let (mut source, mut from) = pair().await;
        let (mut sink, mut to) = pair().await;
        let mut way = way(b"early ");
        let passing = async { poll_fn(|cx| way.poll(cx, &mut from, &mut to, &mut false)).await };
        let feeding = async {
            source.write_all(&vec![b'x'; MUCH]).await.unwrap();
            drop(source);
        };
        let reading = async {
            let mut got = vec![0; MUCH + 6];
            sink.read_exact(&mut got).await.unwrap();
            got
        };
        let (passed, (), got) = tokio::join!(passing, feeding, reading);
        assert!(passed.is_ok());
        assert!(got.starts_with(b"early xxx") && got.ends_with(b"xxx"));
        assert_eq!((way.passed, way.buf.capacity()), (MUCH as u64 + 6, 0));
    }

    #[tokio::test]
    async fn a_side_that_takes_nothing_is_named() {
        let (_source, mut from) = pair().await;
        let (sink, mut to) = pair().await;
        // With what it never read, this resets the connection.
        let mut much = way(&vec![b'x'; 64 << 20]);
        let mut passing = std::pin::pin!(poll_fn(|cx| {
            much.poll(cx, &mut from, &mut to, &mut false)
        }));
        assert!(waits(passing.as_mut()).await);
        drop(sink);
        assert_eq!(passing.await.unwrap_err().kind, FaultKind::UpstreamClosed);
    }

    /// Whether it still waits.
    async fn waits<F: Future>(mut future: Pin<&mut F>) -> bool {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }
}
