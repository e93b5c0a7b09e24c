//! The gateway's own answers, and what is left of a request that they were given to.

use lockgate_plugin::{Reply, ReqView, RespView};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Client;
use super::buffers;
use super::exchange::{Run, Shown};
use super::upload::Source;
use super::write::Write;
use super::write_head::{self, Framing};
use crate::link::Link;
use crate::proxy::answer::DRAIN_LIMIT;
use crate::proxy::fault::{Fault, FaultKind};
use crate::proxy::fields::Name;
use crate::proxy::local;
use crate::proxy::pipeline::Exchange;
use crate::proxy::request_head::BodyLength;

/// A body of the gateway's own that goes out in one piece with its head.
const SMALL_BODY: usize = 4 * 1024;

impl Run<'_> {
    /// Writes to the client.
    pub(super) async fn send(&mut self, first: &[u8], second: &[u8]) -> Result<(), Fault> {
        let mut write = Write::new(first, second);
        let (stream, deadline) = (&mut *self.stream, &mut self.client.deadline);
        let limit = self.core.limits.send;
        let sent = deadline.within(limit, |cx, moved| write.poll(cx, stream, moved));
        match sent.await {
            Some(Ok(())) => Ok(()),
            Some(Err(e)) => Err(Fault::new(FaultKind::ClientGone, e.to_string())),
            None => Err(Fault::new(FaultKind::ClientGone, "takes nothing any more")),
        }
    }

    /// Answers from here.
    pub(super) async fn answer(&mut self, exchange: &mut Exchange, reply: Reply) {
        let req = self.client.req(self.head);
        let local = local::answer(self.core, exchange, &req, reply);
        let is_head = req.method() == "HEAD";
        let status = exchange.work.response.status.unwrap_or(local.status());
        self.persistent &= !self.core.stats.is_draining() && self.can_discard();
        let (framing, body) = match (local::has_body(status), is_head) {
            (false, _) => (Framing::None, &[][..]),
            (true, true) => (Framing::Length(local.body.len() as u64), &[][..]),
            (true, false) => (Framing::Length(local.body.len() as u64), &local.body[..]),
        };
        let date = self.client.date.at(exchange.work.timing.wall);
        let mut out = Vec::new();
        buffers::lend(&mut out);
        let head = write_head::Response {
            status,
            reason: None,
            ops: exchange.work.response.headers.ops(),
            framing,
            date: &date,
            persistent: self.persistent,
            nominated: &[],
        };
        let lines = local.fields().iter().map(|(key, value)| {
            let name = &key.spelled_bytes()[..];
            write_head::Line {
                known: Name::of(name),
                name,
                value,
                place: None,
            }
        });
        write_head::response(&mut out, &head, (&[], lines));
        let head_len = out.len() as u64;
        let sent = if body.len() <= SMALL_BODY {
            out.extend_from_slice(body);
            self.send(&out, &[]).await
        } else {
            self.send(&out, body).await
        };
        exchange.work.sent_body = body.len() as u64;
        exchange.work.sent_bytes = head_len + body.len() as u64;
        buffers::give_back(&mut out);
        self.shown = Shown::Local(Box::new(local));
        self.whole = sent.is_ok();
        match sent {
            Ok(()) if self.persistent => self.discard().await,
            Ok(()) if self.lingers && !self.upload.is_read() => linger(self.stream).await,
            Ok(()) => {}
            Err(fault) => {
                self.persistent = false;
                exchange.work.reason = fault.kind.reason();
            }
        }
    }

    /// Whether the rest of the request's body is worth reading to keep the connection.
    fn can_discard(&self) -> bool {
        const WORTH: u64 = 1 << 20;
        match self.head.body {
            _ if self.upload.is_read() => true,
            _ if self.upload.owes_continue() => false,
            BodyLength::Exact(length) => length - self.upload.received.min(length) <= WORTH,
            _ => true,
        }
    }

    /// Reads the rest of the request's body.
    async fn discard(&mut self) {
        let (stream, upload) = (&mut *self.stream, &mut self.upload);
        let Client { inb, deadline, .. } = &mut *self.client;
        let rest = deadline.within(DRAIN_LIMIT, |cx, _| {
            let mut source = Source {
                stream: &mut *stream,
                inb: &mut *inb,
            };
            upload.poll_discard(cx, &mut source)
        });
        self.persistent &= matches!(rest.await, Some(Ok(())));
    }
}

/// Closes the writing side and reads on for a while: a client that is still sending would be told
/// that the connection is broken before it has read its answer.
pub(in crate::proxy) async fn linger(stream: &mut Link) {
    let drain = async {
        let _ = AsyncWriteExt::shutdown(stream).await;
        let mut sink = vec![0u8; 16 * 1024];
        while matches!(stream.read(&mut sink).await, Ok(n) if n > 0) {}
    };
    let _ = tokio::time::timeout(DRAIN_LIMIT, drain).await;
}
