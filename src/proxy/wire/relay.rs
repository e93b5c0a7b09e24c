//! The upstream's answer on its way to the client.
//!
//! What one read gave is written before the next one, so a slow client slows the
//! upstream down and memory stays at one buffer for each direction.

use bytes::Bytes;
use lockgate_plugin::{Chunk, Origin, Phase, ReqView};
use pingora_core::protocols::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Client;
use super::chunked::{self, Chunked};
use super::exchange::{Linked, Run, Shown};
use super::response_head::{self, Length};
use super::upload::{End, Source};
use super::views::WireResp;
use super::write_head::{self, Framing};
use crate::proxy::answer::DRAIN_LIMIT;
use crate::proxy::fault::{Fault, FaultKind};
use crate::proxy::fields::Name;
use crate::proxy::head;
use crate::proxy::local::{self, has_body};
use crate::proxy::pipeline::Exchange;
use crate::upstream::Timeouts;

/// What the upstream still has to send.
enum Incoming {
    Nothing,
    Exact(u64),
    Chunked(Chunked),
    UntilClose,
}

/// An answer being passed on.
pub(super) struct Relay {
    linked: Linked,
    /// What was read from the upstream; the head first.
    window: Vec<u8>,
    /// How much of the window has been used.
    at: usize,
    resp: response_head::Head,
    timeouts: Timeouts,
    incoming: Incoming,
    framing: Framing,
    /// Body filters act on this answer.
    filters: bool,
    /// Bytes for the client.
    out: Vec<u8>,
    /// Some have been sent.
    begun: bool,
}

impl Relay {
    /// An answer whose head, found in `window`, is complete.
    pub(super) fn new(
        linked: Linked,
        window: Vec<u8>,
        resp: response_head::Head,
        timeouts: Timeouts,
    ) -> Relay {
        Relay {
            linked,
            at: resp.len,
            window,
            resp,
            timeouts,
            incoming: Incoming::Nothing,
            framing: Framing::None,
            filters: false,
            out: Vec::new(),
            begun: false,
        }
    }

    /// Passes the answer on, head and body, and parks the connection if it can be used again.
    pub(super) async fn run(mut self, run: &mut Run<'_>, exchange: &mut Exchange) {
        if let Some(attempt) = exchange.work.attempts.last_mut() {
            attempt.status = self.resp.status;
            attempt.header = Some(attempt.started.elapsed());
        }
        run.shown = Shown::Upstream(self.resp.status);
        if run.upload.end.is_some() {
            // The request is on its way; its buffer is free.
            self.out = std::mem::take(&mut run.upload.out);
            self.out.clear();
        }
        run.lender.lend(&mut self.out);
        let passed = match self.head(run, exchange) {
            Ok(()) => self.body(run, exchange).await,
            Err(fault) => Err(fault),
        };
        let whole = passed.is_ok();
        if let Err(fault) = passed {
            if !self.begun {
                // The client has seen nothing of it: it can still be told.
                exchange.work.response = Default::default();
                self.release(run);
                return run.answer(exchange, local::reply_to(&fault)).await;
            }
            run.persistent = false;
            exchange.work.reason = fault.kind.reason();
            if !fault.cause.is_empty() {
                tracing::debug!(reason = fault.kind.reason(), cause = %fault.cause, "answer cut short");
            }
        }
        let surplus = self.at < self.window.len();
        self.release(run);
        let sent = matches!(run.upload.end, Some(End::Complete));
        if whole && !sent {
            // The upstream answered before it had read the body: its answer must not be lost.
            run.persistent = false;
            linger(run.stream).await;
        }
        let ended = !matches!(self.incoming, Incoming::UntilClose);
        if whole && sent && ended && !surplus && self.resp.persistent {
            run.reusable = Some(self.linked);
        }
    }

    /// Leaves the head to the log.
    fn release(&mut self, run: &mut Run<'_>) {
        run.lender.give_back(&mut self.out);
        run.client.resp = std::mem::take(&mut self.window);
    }

    /// Runs the header filters, decides how the body is framed, writes the head into `out`.
    ///
    /// # Errors
    /// When a body filter fails that already saw the whole body.
    fn head(&mut self, run: &mut Run<'_>, exchange: &mut Exchange) -> Result<(), Fault> {
        head::response_edits(run.core, exchange);
        let client = &mut *run.client;
        let date = client.date.at(exchange.work.timing.wall);
        let resp = WireResp::new(&self.window, &client.resp_fields, self.resp.status);
        let req = client.req(run.head);
        exchange.response_head(&req, &resp, Origin::Upstream);

        let status = exchange.work.status;
        let is_head = req.method() == "HEAD";
        let asked_head = match &exchange.work.request.method {
            Some(method) => &method[..] == b"HEAD",
            None => is_head,
        };
        self.incoming = match self.resp.length {
            _ if asked_head || !has_body(self.resp.status) => Incoming::Nothing,
            Length::Exact(length) => Incoming::Exact(length),
            Length::Chunked => Incoming::Chunked(Chunked::default()),
            Length::UntilClose => Incoming::UntilClose,
        };
        let wanted = has_body(status) && !is_head;
        self.filters = wanted && exchange.filters(Phase::BodyFilter);
        let resize = exchange.work.response.resize;
        let unknown = if run.head.http11 {
            Framing::Chunked
        } else {
            Framing::UntilClose
        };
        let whole = self.filter_whole(run, exchange)?;
        self.framing = match &self.incoming {
            _ if let Some(body) = &whole => Framing::Length(body.len() as u64),
            _ if !has_body(status) && status != 304 => Framing::None,
            _ if !wanted && resize => Framing::None,
            _ if !wanted => Framing::AsNamed,
            _ if resize => unknown,
            Incoming::Nothing => Framing::Length(0),
            Incoming::Exact(length) => Framing::Length(*length),
            Incoming::Chunked(_) | Incoming::UntilClose => unknown,
        };
        if !wanted {
            // What the client cannot be sent need not be read; the connection goes with it.
            self.resp.persistent &= matches!(self.incoming, Incoming::Nothing | Incoming::Exact(0));
            self.incoming = Incoming::Nothing;
        }
        let client = &*run.client;
        let resp = WireResp::new(&self.window, &client.resp_fields, self.resp.status);
        let sent = matches!(run.upload.end, Some(End::Complete));
        run.persistent &=
            sent && self.framing != Framing::UntilClose && !run.core.stats.is_draining();

        let nominated = if self.resp.nominates {
            nominated(&resp)
        } else {
            Vec::new()
        };
        let changed = exchange.work.response.status.is_some();
        let head = write_head::Response {
            status,
            reason: (!changed).then(|| self.resp.reason.of(&self.window)),
            ops: exchange.work.response.headers.ops(),
            framing: self.framing,
            date: &date,
            persistent: run.persistent,
            nominated: &nominated,
        };
        write_head::response(&mut self.out, &head, resp.fields());
        exchange.work.sent_bytes = self.out.len() as u64;
        if let Some(body) = whole {
            exchange.work.sent_body = body.len() as u64;
            self.out.extend_from_slice(&body);
        }
        Ok(())
    }

    /// Runs the body filters at once when they change the length and the whole body is here: the
    /// client can be told the new length then.
    fn filter_whole(
        &mut self,
        run: &Run<'_>,
        exchange: &mut Exchange,
    ) -> Result<Option<Bytes>, Fault> {
        let here = (self.window.len() - self.at) as u64;
        let length = match self.incoming {
            Incoming::Exact(length) if length <= here => length,
            _ => return Ok(None),
        };
        if !self.filters || !exchange.work.response.resize {
            return Ok(None);
        }
        let end = self.at + usize::try_from(length).unwrap_or(0);
        let mut chunk = Chunk {
            data: Bytes::copy_from_slice(&self.window[self.at..end]),
            last: true,
        };
        let client = &*run.client;
        let resp = WireResp::new(&self.window, &client.resp_fields, self.resp.status);
        exchange.response_body(&client.req(run.head), Some(&resp), &mut chunk)?;
        self.at = end;
        self.incoming = Incoming::Nothing;
        self.filters = false;
        Ok(Some(chunk.data))
    }

    /// Passes the body on.
    async fn body(&mut self, run: &mut Run<'_>, exchange: &mut Exchange) -> Result<(), Fault> {
        let mut received = 0;
        let result = loop {
            // With no change to make, the body goes out from where it was read.
            let direct = match (&mut self.incoming, self.framing, self.filters) {
                (Incoming::Exact(left), Framing::Length(_), false) => {
                    let there = self.window.len() - self.at;
                    let take = usize::try_from(*left).map_or(there, |left| left.min(there));
                    *left -= take as u64;
                    received += take as u64;
                    exchange.work.sent_body += take as u64;
                    let from = self.at;
                    self.at += take;
                    from..self.at
                }
                _ => {
                    match self.convert(run, exchange, false) {
                        Ok(read) => received += read,
                        Err(fault) => break Err(fault),
                    }
                    0..0
                }
            };
            let done = match &self.incoming {
                Incoming::Nothing | Incoming::Exact(0) => true,
                Incoming::Chunked(reader) => reader.is_done(),
                _ => false,
            };
            let piece = &self.window[direct];
            if !self.out.is_empty() || !piece.is_empty() {
                self.begun = true;
                self.write(run, piece.len()).await?;
            }
            if done {
                break Ok(());
            }
            // The head stays: plugins and the log look at it.
            self.window.truncate(self.resp.len);
            self.at = self.resp.len;
            match self.read(run).await? {
                0 if matches!(self.incoming, Incoming::UntilClose) => {
                    self.convert(run, exchange, true)?;
                    self.write(run, 0).await?;
                    break Ok(());
                }
                0 => break Err(FaultKind::UpstreamClosed.into()),
                _ => {}
            }
        };
        exchange.work.upstream_body = Some(received);
        result
    }

    /// Turns what was read into what the client is sent; gives how many body bytes were read.
    fn convert(
        &mut self,
        run: &Run<'_>,
        exchange: &mut Exchange,
        closed: bool,
    ) -> Result<u64, Fault> {
        let input = &self.window[self.at..];
        let mut plain = Vec::new();
        let (mut received, chunks) = (0u64, self.framing == Framing::Chunked);
        let mut sent = 0;
        let (filters, out) = (self.filters, &mut self.out);
        let mut emit = |data: &[u8]| {
            received += data.len() as u64;
            if filters {
                plain.extend_from_slice(data);
            } else {
                sent += data.len() as u64;
                put(data, chunks, out);
            }
        };
        let (taken, done) = match &mut self.incoming {
            Incoming::Nothing => (0, true),
            Incoming::Exact(left) => {
                let take = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                emit(&input[..take]);
                *left -= take as u64;
                (take, *left == 0)
            }
            Incoming::Chunked(reader) => {
                let taken = reader.read(input, &mut emit);
                let taken = taken.map_err(|e| Fault::new(FaultKind::BadResponse, e.to_string()))?;
                (taken, reader.is_done())
            }
            Incoming::UntilClose => {
                emit(input);
                (input.len(), closed)
            }
        };
        self.at += taken;
        if self.filters && (done || !plain.is_empty()) {
            let mut chunk = Chunk {
                data: Bytes::from(plain),
                last: done,
            };
            let client = &*run.client;
            let resp = WireResp::new(&self.window, &client.resp_fields, self.resp.status);
            exchange.response_body(&client.req(run.head), Some(&resp), &mut chunk)?;
            sent += chunk.data.len() as u64;
            put(&chunk.data, chunks, &mut self.out);
        }
        if done && chunks {
            self.out.extend_from_slice(chunked::END);
        }
        exchange.work.sent_body += sent;
        Ok(received)
    }

    /// Writes `out` and the piece of the window just before `at`, while the upload goes on.
    async fn write(&mut self, run: &mut Run<'_>, piece: usize) -> Result<(), Fault> {
        let piece = &self.window[self.at - piece..self.at];
        if run.upload.end.is_some() {
            run.send(&self.out, piece).await?;
        } else {
            let mut write = super::write::Write::new(&self.out, piece);
            let Client { inb, deadline, .. } = &mut *run.client;
            let (stream, upload, lender) = (&mut *run.stream, &mut run.upload, run.lender);
            let link = &mut self.linked.link;
            let sent = deadline.within(run.core.limits.send, |cx, moved| {
                let mut source = Source {
                    stream: &mut *stream,
                    inb: &mut *inb,
                    lender,
                };
                let _ = upload.poll(cx, &mut source, link);
                *moved |= std::mem::take(&mut upload.moved);
                write.poll(cx, stream, moved)
            });
            match sent.await {
                Some(Ok(())) => {}
                _ => return Err(FaultKind::ClientGone.into()),
            }
        }
        self.out.clear();
        Ok(())
    }

    /// Reads more of the answer, while the upload goes on.
    async fn read(&mut self, run: &mut Run<'_>) -> Result<usize, Fault> {
        let Client { inb, deadline, .. } = &mut *run.client;
        let (stream, upload, lender) = (&mut *run.stream, &mut run.upload, run.lender);
        let (link, window) = (&mut self.linked.link, &mut self.window);
        let read = deadline.within(self.timeouts.read, |cx, moved| {
            if upload.end.is_none() {
                let mut source = Source {
                    stream: &mut *stream,
                    inb: &mut *inb,
                    lender,
                };
                let _ = upload.poll(cx, &mut source, link);
                *moved |= std::mem::take(&mut upload.moved);
            }
            lender.poll_read(cx, link, window)
        });
        match read.await {
            Some(Ok(n)) => Ok(n),
            Some(Err(e)) => Err(Fault::new(FaultKind::UpstreamClosed, e.to_string())),
            None => Err(FaultKind::UpstreamTimeout.into()),
        }
    }
}

fn put(data: &[u8], chunks: bool, out: &mut Vec<u8>) {
    if chunks {
        chunked::put(data, out);
    } else {
        out.extend_from_slice(data);
    }
}

/// Names that the upstream's `Connection` declares its own. It cannot take the framing away.
pub(super) fn nominated<'a>(resp: &WireResp<'a>) -> Vec<&'a [u8]> {
    resp.fields()
        .filter(|(known, ..)| *known == Name::Connection)
        .flat_map(|(_, _, value)| value.split(|&b| b == b',').map(<[u8]>::trim_ascii))
        .filter(|name| {
            !matches!(
                Name::of(name),
                Name::ContentLength | Name::TransferEncoding | Name::Date
            )
        })
        .collect()
}

/// Closes the writing side and reads on for a while: a client that is still sending would be told
/// that the connection is broken before it has read its answer.
pub(super) async fn linger(stream: &mut Stream) {
    let drain = async {
        let _ = AsyncWriteExt::shutdown(stream).await;
        let mut sink = vec![0u8; 16 * 1024];
        while matches!(stream.read(&mut sink).await, Ok(n) if n > 0) {}
    };
    let _ = tokio::time::timeout(DRAIN_LIMIT, drain).await;
}
