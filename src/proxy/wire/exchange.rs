//! One request on the wire lane, up to its answer's head.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockgate_plugin::{Reply, ReqView, RespView};
use pingora_core::ErrorType;
use pingora_core::protocols::Stream;

use super::buffers::Lender;
use super::relay::{Relay, linger, nominated};
use super::response_head::{self, Scan};
use super::upload::{End, Source, Upload, Waiting};
use super::views::WireResp;
use super::write::Write;
use super::write_head::{self, Framing};
use super::{Client, Wire};
use crate::proxy::core::{Core, Counted};
use crate::proxy::fault::{Fault, FaultKind, Stop};
use crate::proxy::fields::Fields;
use crate::proxy::head;
use crate::proxy::local::{self, Local};
use crate::proxy::pipeline::Exchange;
use crate::proxy::request_head::{BodyLength, Head};
use crate::upstream::{Connector, Keep, Link, NoLink, Ready, Reused, Timeouts, limit_peer};

/// What the client may send ahead while its answer is awaited; more stays in the kernel.
const AHEAD: usize = 16 * 1024;
/// Interim answers to one request.
const INTERIMS: usize = 16;

/// What becomes of the connection after a request.
pub enum Next {
    /// The next request may come.
    Keep,
    /// It is closed.
    Close,
    /// The general lane carries this request; no plugin has run.
    General(Box<Exchange>),
}

/// The answer that the client was shown, for the log.
pub(super) enum Shown {
    /// None.
    Nothing,
    /// The upstream's, with this status, in the client's response buffer.
    Upstream(u16),
    /// The gateway's own.
    Local(Box<Local>),
}

/// Everything a request on this lane works with.
pub(super) struct Run<'a> {
    pub core: &'a Core,
    pub wire: &'a Wire,
    pub lender: Lender<'a>,
    pub stream: &'a mut Stream,
    pub client: &'a mut Client,
    pub head: &'a Head,
    pub upload: Upload,
    pub shown: Shown,
    /// Whether the client's connection may carry another request.
    pub persistent: bool,
    /// The upstream connection, when it can carry another request.
    pub reusable: Option<Linked>,
}

/// A connection to the chosen node, with what is needed to park it.
pub(super) struct Linked {
    pub link: Link,
    sni: String,
    carried: u32,
    reused: bool,
}

/// Why a try gave no answer.
enum Failure {
    /// The upstream failed; whether the connection was closed before it said anything.
    Upstream { fault: Fault, closed: bool },
    /// The client failed, or went.
    Client(Fault),
}

/// Carries one request.
pub async fn serve(
    wire: &Wire,
    lender: Lender<'_>,
    stream: &mut Stream,
    client: &mut Client,
    head: &Head,
) -> Next {
    let core = &*wire.core;
    let (mut exchange, begun) = Exchange::begin(core, client.conn.clone(), &client.req(head));
    exchange.work.conn_requests = client.requests;
    let found = match begun {
        Ok(()) if exchange.match_reads_body() && head.body != BodyLength::None => {
            return Next::General(exchange);
        }
        Ok(()) => exchange.find(core, &client.req(head)),
        bad => bad,
    };
    let reads_body = head.body != BodyLength::None && exchange.plugins_read_body();
    if found.is_ok() && (reads_body || exchange.general_because().is_some()) {
        return Next::General(exchange);
    }
    let counted = Counted::request(&core.stats);
    let mut run = Run {
        core,
        wire,
        lender,
        stream,
        client,
        head,
        upload: Upload::new(head.body, head.len, core.limits.max_body, head.expects),
        shown: Shown::Nothing,
        persistent: head.persistent && !core.limits.keepalive.is_zero(),
        reusable: None,
    };
    run.carry(&mut exchange, found).await;
    let Run {
        mut upload,
        shown,
        persistent,
        client,
        reusable,
        ..
    } = run;
    exchange.work.received_body = upload.received;
    let req = client.req(head);
    match &shown {
        Shown::Nothing => exchange.finish(core, &req, None),
        Shown::Upstream(status) => {
            let resp = WireResp::new(&client.resp, &client.resp_fields, *status);
            exchange.finish(core, &req, Some(&resp));
        }
        Shown::Local(local) => exchange.finish(core, &req, Some(&**local)),
    }
    if let Some(linked) = reusable {
        park(wire, &exchange, linked);
    }
    drop(counted);
    lender.give_back(&mut upload.out);
    client.done_with(upload.used(), lender);
    if persistent && upload.is_read() {
        Next::Keep
    } else {
        Next::Close
    }
}

impl Run<'_> {
    async fn carry(&mut self, exchange: &mut Exchange, found: Result<(), Fault>) {
        let decided = match found {
            Ok(()) => self.decide(exchange).await,
            Err(fault) => Err(fault.into()),
        };
        let stop = match decided {
            Ok(()) => match self.tries(exchange).await {
                Ok(()) => return,
                Err(stop) => stop,
            },
            Err(stop) => stop,
        };
        match stop {
            Stop::Reply(reply) => self.answer(exchange, reply).await,
            Stop::Fault(fault) if fault.kind == FaultKind::ClientGone => {
                self.persistent = false;
                exchange.work.reason = fault.kind.reason();
                exchange.work.status = fault.kind.status();
            }
            Stop::Fault(fault) => {
                let closes = [
                    FaultKind::BodyTooLarge,
                    FaultKind::BadRequest,
                    FaultKind::SlowBody,
                ];
                self.persistent &= !closes.contains(&fault.kind);
                self.answer(exchange, local::reply_to(&fault)).await;
            }
        }
    }

    async fn decide(&mut self, exchange: &mut Exchange) -> Result<(), Stop> {
        let limit = self.core.limits.max_body;
        if matches!(self.head.body, BodyLength::Exact(length) if limit > 0 && length > limit) {
            return Err(FaultKind::BodyTooLarge.into());
        }
        let req = self.client.req(self.head);
        exchange.decide(&req).await?;
        exchange.choose(&req).await
    }

    /// Tries nodes until one answers; then passes its answer on.
    async fn tries(&mut self, exchange: &mut Exchange) -> Result<(), Stop> {
        let mut fresh = false;
        loop {
            let timeouts = timeouts(exchange);
            let mut linked = match self.connect(exchange, &timeouts, fresh).await {
                Ok(linked) => linked,
                Err(fault) => {
                    if !exchange.note_failure(self.core, fault.kind, &fault.cause) {
                        return Err(fault.into());
                    }
                    self.next_node(exchange).await?;
                    fresh = false;
                    continue;
                }
            };
            self.write_request(exchange);
            let mut window = Vec::new();
            let asked = self.ask(&mut linked.link, &timeouts, &mut window).await;
            let failure = match asked {
                Ok(resp) => {
                    let relay = Relay::new(linked, window, resp, timeouts);
                    relay.run(self, exchange).await;
                    return Ok(());
                }
                Err(failure) => failure,
            };
            self.lender.give_back(&mut window);
            let (fault, closed) = match failure {
                Failure::Client(fault) => return Err(fault.into()),
                Failure::Upstream { fault, closed } => (fault, closed),
            };
            // A request may be sent twice only if that changes nothing, and if it is still here.
            let again = is_idempotent(self.client.req(self.head).method())
                .then(|| self.upload.again(self.head.body))
                .flatten();
            let Some(mut again) = again else {
                exchange.note_failure(self.core, fault.kind, &fault.cause);
                return Err(fault.into());
            };
            // A kept connection that the node closed in the same moment says nothing about the
            // node: it is asked again, once, on a connection of its own.
            if linked.reused && closed && !fresh {
                fresh = true;
            } else if exchange.note_failure(self.core, fault.kind, &fault.cause) {
                self.next_node(exchange).await?;
                fresh = false;
            } else {
                return Err(fault.into());
            }
            again.out = std::mem::take(&mut self.upload.out);
            self.upload = again;
        }
    }

    async fn next_node(&mut self, exchange: &mut Exchange) -> Result<(), Fault> {
        exchange.retry().await?;
        head::settle_host(exchange);
        Ok(())
    }

    /// A connection to the chosen node: an idle one, unless it has to be fresh.
    async fn connect(
        &mut self,
        exchange: &mut Exchange,
        timeouts: &Timeouts,
        fresh: bool,
    ) -> Result<Linked, Fault> {
        let Some(chosen) = &exchange.upstream else {
            return Err(FaultKind::Internal.into());
        };
        let ready = Arc::clone(&chosen.ready);
        let sni = if ready.peer.is_tls() {
            let req = self.client.req(self.head);
            let host = head::upstream_host(&exchange.work, &req);
            lockgate_plugin::target::host_of(host).into_owned()
        } else {
            String::new()
        };
        let kept = if fresh { None } else { ready.idle.take(&sni) };
        let (linked, took) = match kept {
            Some(Reused { link, carried }) => {
                let reused = true;
                let linked = Linked {
                    link,
                    sni,
                    carried,
                    reused,
                };
                (linked, Duration::ZERO)
            }
            None => {
                let started = std::time::Instant::now();
                let link = dial(self.wire, &ready, &sni, timeouts).await?;
                let linked = Linked {
                    link,
                    sni,
                    carried: 0,
                    reused: false,
                };
                (linked, started.elapsed())
            }
        };
        if let Some(attempt) = exchange.work.attempts.last_mut() {
            attempt.connect = Some(took);
        }
        Ok(linked)
    }

    fn write_request(&mut self, exchange: &Exchange) {
        let framing = match self.head.body {
            BodyLength::Exact(length) => Framing::Length(length),
            BodyLength::Chunked => Framing::Chunked,
            BodyLength::None => self.no_body(),
        };
        let out = &mut self.upload.out;
        self.lender.lend(out);
        out.clear();
        let req = self.client.req(self.head);
        write_head::request(out, &req, &exchange.work, framing);
    }

    /// A client that says `Content-Length: 0` has its reasons.
    fn no_body(&self) -> Framing {
        let named = self
            .client
            .fields
            .known(&self.client.inb, crate::proxy::fields::Name::ContentLength);
        match named {
            Some(_) => Framing::Length(0),
            None => Framing::None,
        }
    }

    /// Sends the request and waits for the head of its answer.
    async fn ask(
        &mut self,
        link: &mut Link,
        timeouts: &Timeouts,
        window: &mut Vec<u8>,
    ) -> Result<response_head::Head, Failure> {
        let mut looked = 0;
        let mut interims = 0;
        loop {
            let read = self.read_answer(link, timeouts, window).await?;
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
                    Scan::Complete(resp) => {
                        interims += 1;
                        if resp.status == 101 || interims > INTERIMS {
                            return Err(broken("an interim answer that was not asked for"));
                        }
                        if resp.status != 100 && self.head.http11 {
                            self.interim(&window[..resp.len], resp.status).await?;
                        }
                        window.drain(..resp.len);
                        looked = 0;
                    }
                }
            }
        }
    }

    /// Reads from the upstream, while the request goes on its way and the client stays there.
    async fn read_answer(
        &mut self,
        link: &mut Link,
        timeouts: &Timeouts,
        window: &mut Vec<u8>,
    ) -> Result<std::io::Result<usize>, Failure> {
        let lender = self.lender;
        let (stream, upload) = (&mut *self.stream, &mut self.upload);
        let Client { inb, deadline, .. } = &mut *self.client;
        let limits = &self.core.limits;
        let mut waiting = false;
        poll_fn(|cx| {
            let mut source = Source {
                stream: &mut *stream,
                inb: &mut *inb,
                lender,
            };
            let _ = upload.poll(cx, &mut source, link);
            if let Some(End::Failed(fault)) = &mut upload.end {
                let fault = std::mem::replace(fault, FaultKind::ClientGone.into());
                return Poll::Ready(Err(Failure::Client(fault)));
            }
            if let Poll::Ready(read) = lender.poll_read(cx, link, window) {
                return Poll::Ready(Ok(read));
            }
            let sent = matches!(upload.end, Some(End::Complete));
            while sent && inb.len() < upload.used() + AHEAD {
                match lender.poll_read(cx, stream, inb) {
                    Poll::Ready(Ok(n)) if n > 0 => {}
                    Poll::Ready(_) => {
                        return Poll::Ready(Err(Failure::Client(FaultKind::ClientGone.into())));
                    }
                    Poll::Pending => break,
                }
            }
            let (limit, kind) = match (&upload.end, upload.waiting) {
                (Some(_), _) => (timeouts.read, FaultKind::UpstreamTimeout),
                (None, Waiting::Upstream) => (timeouts.send, FaultKind::UpstreamTimeout),
                (None, Waiting::Client) => (limits.body, FaultKind::SlowBody),
            };
            if !waiting || upload.moved {
                (waiting, upload.moved) = (true, false);
                deadline.set(limit);
            }
            deadline.poll(cx).map(|()| {
                Err(if kind == FaultKind::SlowBody {
                    Failure::Client(kind.into())
                } else {
                    Failure::Upstream {
                        fault: kind.into(),
                        closed: false,
                    }
                })
            })
        })
        .await
    }

    /// Passes an interim answer on.
    async fn interim(&mut self, head: &[u8], status: u16) -> Result<(), Failure> {
        let mut out = Vec::new();
        let mut fields = Fields::default();
        if let Scan::Complete(_) = response_head::scan(head, 0, &mut fields) {
            let resp = WireResp::new(head, &fields, status);
            write_head::interim(&mut out, status, resp.fields(), &nominated(&resp));
        }
        self.send(&out, &[]).await.map_err(Failure::Client)
    }

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
        self.lender.lend(&mut out);
        let head = write_head::Response {
            status,
            reason: None,
            ops: exchange.work.response.headers.ops(),
            framing,
            date: &date,
            persistent: self.persistent,
            nominated: &[],
        };
        let fields = local.fields().iter().map(|(key, value)| {
            let name = &key.spelled_bytes()[..];
            (crate::proxy::fields::Name::of(name), name, &value[..])
        });
        write_head::response(&mut out, &head, fields);
        let sent = self.send(&out, body).await;
        exchange.work.sent_body = body.len() as u64;
        exchange.work.sent_bytes = (out.len() + body.len()) as u64;
        self.lender.give_back(&mut out);
        self.shown = Shown::Local(Box::new(local));
        match sent {
            Ok(()) if self.persistent => self.discard().await,
            Ok(()) if !self.upload.is_read() => linger(self.stream).await,
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
        let (stream, upload, lender) = (&mut *self.stream, &mut self.upload, self.lender);
        let Client { inb, deadline, .. } = &mut *self.client;
        let rest = deadline.within(crate::proxy::answer::DRAIN_LIMIT, |cx, _| {
            let mut source = Source {
                stream: &mut *stream,
                inb: &mut *inb,
                lender,
            };
            upload.poll_discard(cx, &mut source)
        });
        self.persistent &= matches!(rest.await, Some(Ok(())));
    }
}

/// Parks the connection to the node for the next request.
fn park(wire: &Wire, exchange: &Exchange, linked: Linked) {
    let (Some(chosen), Some(now)) = (&exchange.upstream, exchange.work.finished) else {
        return;
    };
    let carried = linked.carried + 1;
    if carried >= wire.carries {
        return;
    }
    let keep = Keep {
        size: wire.idle,
        idle: chosen.shape.spec.keepalive.idle,
        now,
    };
    let link = Reused {
        link: linked.link,
        carried,
    };
    chosen
        .ready
        .idle
        .put(&linked.sni, link, keep, &wire.sweeper);
}

/// The time limits of the route, or of its upstream.
fn timeouts(exchange: &Exchange) -> Timeouts {
    let own = exchange.route().and_then(|route| route.timeouts);
    let shape = exchange.upstream.as_ref().map(|chosen| &chosen.shape);
    own.or(shape.map(|shape| shape.spec.timeouts))
        .unwrap_or_default()
}

async fn dial(wire: &Wire, ready: &Ready, sni: &str, timeouts: &Timeouts) -> Result<Link, Fault> {
    let link = if ready.peer.is_tls() {
        let mut peer = ready.peer.clone();
        sni.clone_into(&mut peer.sni);
        limit_peer(&mut peer, timeouts);
        Box::pin(wire.connector.tls(&peer)).await
    } else {
        Box::pin(Connector::plain(ready.addr, timeouts.connect)).await
    };
    link.map_err(|e| {
        let kind = match &e {
            NoLink::Timeout(_) => FaultKind::ConnectTimeout,
            NoLink::Refused(_) => FaultKind::Connect,
            NoLink::Tls(e) => match e.etype() {
                ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => {
                    FaultKind::ConnectTimeout
                }
                _ => FaultKind::Connect,
            },
        };
        Fault::new(kind, e.to_string())
    })
}

/// RFC 9110 §9.2.2: sending it twice is the same as sending it once.
fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "PUT" | "DELETE" | "OPTIONS")
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
