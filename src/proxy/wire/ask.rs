//! The request sent, and the wait for the head of its answer.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::Client;
use super::buffers;
use super::exchange::Run;
use super::relay::nominated;
use super::response_head::{self, Scan};
use super::upload::{End, Source, Waiting};
use super::views::{WireReq, WireResp};
use super::write_head::{self, Framing};
use crate::link::Link;
use crate::proxy::fault::{Fault, FaultKind};
use crate::proxy::fields::Name;
use crate::proxy::pipeline::Exchange;
use crate::proxy::request_head::BodyLength;
use crate::upstream::Timeouts;

/// What the client may send ahead while its answer is awaited; more stays in the kernel.
const AHEAD: usize = 16 * 1024;
/// Interim answers to one request.
const INTERIMS: usize = 16;

/// Why a try gave no answer.
pub(super) enum Failure {
    /// The upstream failed; whether the connection was closed before it said anything.
    Upstream { fault: Fault, closed: bool },
    /// The client failed, or went.
    Client(Fault),
}

impl Run<'_> {
    pub(super) fn write_request(&mut self, exchange: &Exchange) {
        let framing = match self.head.body {
            BodyLength::Exact(length) => Framing::Length(length),
            BodyLength::Chunked => Framing::Chunked,
            BodyLength::None if self.upgrade => Framing::Upgrade,
            BodyLength::None => self.no_body(),
        };
        let out = &mut self.upload.out;
        buffers::lend(out);
        out.clear();
        let Client {
            inb,
            fields,
            address,
            ..
        } = &mut *self.client;
        let req = WireReq::new(inb, fields, self.head);
        let ip = address.of(exchange.work.client.ip());
        write_head::request(out, &req, &exchange.work, ip, framing);
    }

    /// A client that says `Content-Length: 0` has its reasons.
    fn no_body(&self) -> Framing {
        if self.head.names.has(Name::ContentLength) {
            Framing::Length(0)
        } else {
            Framing::None
        }
    }

    /// Sends the request and waits for the head of its answer.
    pub(super) async fn ask(
        &mut self,
        link: &mut Link,
        timeouts: &Timeouts,
        mut started: Option<Instant>,
        window: &mut Vec<u8>,
    ) -> Result<response_head::Head, Failure> {
        let mut looked = 0;
        let mut interims = 0;
        loop {
            let started = started.take();
            let read = self.read_answer(link, timeouts, started, window).await?;
            match read {
                Ok(0) if window.is_empty() => {
                    return Err(closed(
                        FaultKind::UpstreamClosed,
                        "closed before its answer",
                    ));
                }
                Ok(0) => return Err(broken("closed in the middle of its answer's head")),
                Err(e) if window.is_empty() => {
                    return Err(closed(FaultKind::UpstreamClosed, e.to_string()));
                }
                Err(e) => {
                    let fault = Fault::new(FaultKind::UpstreamClosed, e.to_string());
                    return Err(Failure::Upstream {
                        fault,
                        closed: false,
                    });
                }
                Ok(_) => {}
            }
            loop {
                let fields = &mut self.client.resp_fields;
                match response_head::scan(window, looked, fields) {
                    Scan::Partial => {
                        looked = window.len();
                        break;
                    }
                    Scan::Bad(why) => return Err(broken(why)),
                    Scan::Complete(resp) if resp.status >= 200 => return Ok(resp),
                    Scan::Complete(resp) if resp.status == 101 && self.agrees(window) => {
                        return Ok(resp);
                    }
                    Scan::Complete(resp) => {
                        interims += 1;
                        if resp.status == 101 || interims > INTERIMS {
                            return Err(broken("an interim answer that was not asked for"));
                        }
                        if resp.status == 103 && self.head.http11 {
                            self.hints(&window[..resp.len]).await?;
                        }
                        window.drain(..resp.len);
                        looked = 0;
                    }
                }
            }
        }
    }

    /// Whether a `101` switches to what the client asked for.
    fn agrees(&self, window: &[u8]) -> bool {
        let to = self.client.resp_fields.known(window, Name::Upgrade);
        self.upgrade && to.is_some_and(|to| to.eq_ignore_ascii_case(b"websocket"))
    }

    /// Reads from the upstream, while the request goes on its way and the client stays there.
    async fn read_answer(
        &mut self,
        link: &mut Link,
        timeouts: &Timeouts,
        mut started: Option<Instant>,
        window: &mut Vec<u8>,
    ) -> Result<std::io::Result<usize>, Failure> {
        let (stream, upload) = (&mut *self.stream, &mut self.upload);
        let Client { inb, deadline, .. } = &mut *self.client;
        let limits = &self.core.limits;
        let patience = stream.patience();
        let (mut waiting, mut long) = (false, patience.is_zero());
        let mut sent = upload.end.is_some();
        poll_fn(|cx| {
            loop {
                let mut source = Source {
                    stream: &mut *stream,
                    inb: &mut *inb,
                };
                let _ = upload.poll(cx, &mut source, link);
                if let Some(End::Failed(fault)) = &mut upload.end {
                    let fault = std::mem::replace(fault, FaultKind::ClientGone.into());
                    return Poll::Ready(Err(Failure::Client(fault)));
                }
                if let Poll::Ready(read) = buffers::poll_read(cx, link, window) {
                    return Poll::Ready(Ok(read));
                }
                if matches!(upload.end, Some(End::Complete)) {
                    buffers::give_back(&mut upload.out);
                    if long && is_gone(cx, stream, inb, upload.used()) {
                        return Poll::Ready(Err(Failure::Client(FaultKind::ClientGone.into())));
                    }
                }
                let slow = upload.end.is_none() && upload.waiting == Waiting::Client;
                let limit = match &upload.end {
                    Some(_) => timeouts.read,
                    None => timeouts.send,
                };
                if !sent && upload.end.is_some() {
                    // The wait for the answer begins.
                    (sent, waiting) = (true, false);
                }
                let brief = !long && sent && limit > patience;
                if slow {
                    deadline.set_at(upload.due(limits));
                    waiting = false;
                } else if !waiting || upload.moved {
                    // The first wait begins as soon as the try.
                    deadline.set_from(started.take(), if brief { patience } else { limit });
                    (waiting, upload.moved) = (true, false);
                    upload.not_due();
                }
                ready!(deadline.poll(cx));
                if brief && !slow {
                    long = true;
                    deadline.set(limit - patience);
                    continue;
                }
                return Poll::Ready(Err(if slow {
                    Failure::Client(FaultKind::SlowBody.into())
                } else {
                    Failure::Upstream {
                        fault: FaultKind::UpstreamTimeout.into(),
                        closed: false,
                    }
                }));
            }
        })
        .await
    }

    /// Passes `103 Early Hints` on; its fields are those that were read last.
    async fn hints(&mut self, head: &[u8]) -> Result<(), Failure> {
        let mut out = Vec::new();
        let hints = WireResp::new(head, &self.client.resp_fields, 103);
        write_head::hints(&mut out, &nominated(&hints), hints.fields());
        self.send(&out, &[]).await.map_err(Failure::Client)
    }
}

/// Whether the client has left while its answer is awaited. What it sends ahead is kept, up to a
/// limit; beyond that its leaving is seen when the answer is written.
pub(super) fn is_gone(
    cx: &mut Context<'_>,
    stream: &mut Link,
    inb: &mut Vec<u8>,
    used: usize,
) -> bool {
    while inb.len() < used + AHEAD {
        match buffers::poll_read(cx, stream, inb) {
            Poll::Ready(Ok(n)) if n > 0 => {}
            Poll::Ready(_) => return true,
            Poll::Pending => break,
        }
    }
    false
}

fn closed(kind: FaultKind, cause: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::Upstream {
        fault: Fault::new(kind, cause),
        closed: true,
    }
}

fn broken(why: &'static str) -> Failure {
    Failure::Upstream {
        fault: Fault::new(FaultKind::BadResponse, why),
        closed: false,
    }
}
