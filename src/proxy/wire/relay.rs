//! The upstream's answer on its way to the client.
//!
//! What one read gave is written before the next one, so a slow client slows the
//! upstream down and memory stays at one buffer for each direction.

use std::task::Poll;

use bytes::Bytes;
use lockgate_plugin::{Chunk, Origin, Phase, ReqView};
use tokio::io::AsyncWrite;

use super::Client;
use super::answer::linger;
use super::ask::is_gone;
use super::buffers::{self, LARGE, SIZE};
use super::chunked::{self, Chunked};
use super::connect::Linked;
use super::exchange::{Run, Shown};
use super::response_head::{self, Length};
use super::upload::{End, Source};
use super::views::WireResp;
use super::write::Write;
use super::write_head::{self, Framing};
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
    /// The header filters have run.
    shown: bool,
    /// Body bytes read from the upstream.
    received: u64,
    /// Body bytes that the next write brings to the client.
    ready: u64,
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
            shown: false,
            received: 0,
            ready: 0,
        }
    }

    /// Passes the answer on, head and body, and parks the connection if it can be used again.
    pub(super) async fn run(mut self, run: &mut Run<'_>, exchange: &mut Exchange) {
        if let Some(attempt) = exchange.work.attempts.last_mut() {
            attempt.status = self.resp.status;
            attempt.header = Some(attempt.started.elapsed());
        }
        run.shown = Shown::Upstream(self.resp.status);
        if run.upload.owes_continue() {
            run.upload.abandon();
        }
        if run.upload.end.is_some() {
            // The request is on its way; its buffer is free.
            self.out = std::mem::take(&mut run.upload.out);
            self.out.clear();
        }
        buffers::lend(&mut self.out);
        let passed = match self.head(run, exchange) {
            Ok(()) => self.body(run, exchange).await,
            Err(fault) => Err(fault),
        };
        exchange.work.upstream_body = Some(self.received);
        let whole = passed.is_ok();
        run.whole = whole;
        if let Err(fault) = passed {
            if !self.begun {
                // The client has seen nothing of it: it can still be told.
                if fault.kind != FaultKind::Plugin {
                    exchange.note_failure(run.core, fault.kind, &fault.cause);
                }
                if self.shown {
                    exchange.work.response = Default::default();
                }
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
        buffers::give_back(&mut self.out);
        run.client.resp = std::mem::take(&mut self.window);
    }

    /// Runs the header filters, decides how the body is framed, writes the head into `out`.
    ///
    /// # Errors
    /// When what is here of the body breaks the rules, or a body filter fails that saw all of it.
    fn head(&mut self, run: &mut Run<'_>, exchange: &mut Exchange) -> Result<(), Fault> {
        let client = &mut *run.client;
        let date = client.date.at(exchange.work.timing.wall);
        let req = client.req(run.head);
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
        if let Incoming::Chunked(reader) = &self.incoming {
            // Before anything is said: a client that was told nothing can be told of the failure.
            let looked = reader.clone().read(&self.window[self.at..], |_| {});
            looked.map_err(|e| Fault::new(FaultKind::BadResponse, e.to_string()))?;
        }
        head::response_edits(run.core, exchange);
        let resp = WireResp::new(&self.window, &client.resp_fields, self.resp.status);
        exchange.response_head(&req, &resp, Origin::Upstream);
        self.shown = true;
        let status = exchange.work.status;
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
        self.resp.persistent &= match self.resp.status {
            // They have no body; an upstream that announces one may well send it.
            204 => matches!(self.resp.length, Length::UntilClose | Length::Exact(0)),
            304 => self.resp.length != Length::Chunked,
            _ => true,
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
        write_head::response(&mut self.out, &head, resp.places());
        if let Some(body) = whole {
            self.ready = body.len() as u64;
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
        self.received = length;
        self.at = end;
        self.incoming = Incoming::Nothing;
        self.filters = false;
        Ok(Some(chunk.data))
    }

    /// Passes the body on.
    async fn body(&mut self, run: &mut Run<'_>, exchange: &mut Exchange) -> Result<(), Fault> {
        loop {
            // With no change to make, the body goes out from where it was read.
            let direct = match (&mut self.incoming, self.framing, self.filters) {
                (Incoming::Exact(left), Framing::Length(_), false) => {
                    let there = self.window.len() - self.at;
                    let take = usize::try_from(*left).map_or(there, |left| left.min(there));
                    *left -= take as u64;
                    self.received += take as u64;
                    self.ready += take as u64;
                    self.at += take;
                    take
                }
                _ => {
                    self.convert(run, exchange, false)?;
                    0
                }
            };
            let done = match &self.incoming {
                Incoming::Nothing | Incoming::Exact(0) => true,
                Incoming::Chunked(reader) => reader.is_done(),
                _ => false,
            };
            if !self.out.is_empty() || direct > 0 {
                self.write(run, exchange, direct).await?;
            }
            if done {
                return Ok(());
            }
            match self.read(run).await? {
                0 if matches!(self.incoming, Incoming::UntilClose) => {
                    self.convert(run, exchange, true)?;
                    return self.write(run, exchange, 0).await;
                }
                0 => return Err(FaultKind::UpstreamClosed.into()),
                _ => {}
            }
        }
    }

    /// Turns what was read into what the client is sent.
    fn convert(
        &mut self,
        run: &Run<'_>,
        exchange: &mut Exchange,
        closed: bool,
    ) -> Result<(), Fault> {
        buffers::lend(&mut self.out);
        let input = &self.window[self.at..];
        let mut plain = Vec::new();
        let chunks = self.framing == Framing::Chunked;
        let (filters, out) = (self.filters, &mut self.out);
        let (received, ready) = (&mut self.received, &mut self.ready);
        let mut emit = |data: &[u8]| {
            *received += data.len() as u64;
            if filters {
                plain.extend_from_slice(data);
            } else {
                *ready += data.len() as u64;
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
            self.ready += chunk.data.len() as u64;
            put(&chunk.data, chunks, &mut self.out);
        }
        if done && chunks {
            self.out.extend_from_slice(chunked::END);
        }
        Ok(())
    }

    /// Writes `out` and the piece of the window just before `at`, while the upload goes on.
    async fn write(
        &mut self,
        run: &mut Run<'_>,
        exchange: &mut Exchange,
        piece: usize,
    ) -> Result<(), Fault> {
        self.begun = true;
        let mut piece = &self.window[self.at - piece..self.at];
        if !self.out.is_empty() && piece.len() <= SIZE && !run.stream.is_write_vectored() {
            // One TLS record instead of two.
            self.out.extend_from_slice(piece);
            piece = &[];
        }
        if run.upload.end.is_some() {
            run.send(&self.out, piece).await?;
        } else {
            let mut write = Write::new(&self.out, piece);
            let Client { inb, deadline, .. } = &mut *run.client;
            let (stream, upload) = (&mut *run.stream, &mut run.upload);
            let link = &mut self.linked.link;
            let sent = deadline.within(run.core.limits.send, |cx, moved| {
                let mut source = Source {
                    stream: &mut *stream,
                    inb: &mut *inb,
                };
                let _ = upload.poll(cx, &mut source, link);
                write.poll(cx, stream, moved)
            });
            match sent.await {
                Some(Ok(())) => {}
                _ => return Err(FaultKind::ClientGone.into()),
            }
        }
        exchange.work.sent_bytes += (self.out.len() + piece.len()) as u64;
        exchange.work.sent_body += std::mem::take(&mut self.ready);
        self.out.clear();
        Ok(())
    }

    /// Reads more of the answer, while the upload goes on and the client stays there.
    async fn read(&mut self, run: &mut Run<'_>) -> Result<usize, Fault> {
        let filled = self.window.len() == self.window.capacity();
        // The head stays: plugins and the log look at it.
        self.window.truncate(self.resp.len);
        self.at = self.resp.len;
        let long = matches!(self.incoming, Incoming::Exact(left) if left > LARGE as u64);
        if long || filled {
            self.window.reserve(LARGE);
        }
        buffers::give_back(&mut self.out);
        let Client { inb, deadline, .. } = &mut *run.client;
        let (stream, upload) = (&mut *run.stream, &mut run.upload);
        let (link, window) = (&mut self.linked.link, &mut self.window);
        let patience = stream.patience();
        let read = deadline.within_patient(self.timeouts.read, patience, |cx, _, long| {
            if upload.end.is_none() {
                let mut source = Source {
                    stream: &mut *stream,
                    inb: &mut *inb,
                };
                let _ = upload.poll(cx, &mut source, link);
            }
            if let Poll::Ready(read) = buffers::poll_read(cx, link, window) {
                return Poll::Ready(Ok(read));
            }
            let sent = matches!(upload.end, Some(End::Complete));
            if sent && long && is_gone(cx, stream, inb, upload.used()) {
                return Poll::Ready(Err(FaultKind::ClientGone));
            }
            Poll::Pending
        });
        match read.await {
            Some(Ok(Ok(n))) => Ok(n),
            Some(Ok(Err(e))) => Err(Fault::new(FaultKind::UpstreamClosed, e.to_string())),
            Some(Err(gone)) => Err(gone.into()),
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
