//! Accepts connections, reads request heads, and hands each request to a lane.
//!
//! The head is read here, with a deadline for the whole of it and a limit on
//! its size, and checked by [`request_head`](super::request_head). Then the
//! bytes go to the lane as they came. HTTP/2 connections go there whole.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::BytesMut;
use lockgate_plugin::{Conn, HeaderKey, ReqView};
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::protocols::{ALPN, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::io::AsyncWriteExt;

use super::core::{Core, Counted};
use super::fault::{FaultKind, stock_page};
use super::general::{Front as Request, General};
use super::pipeline::Exchange;
use super::request_head::{
    BodyLength, Head, Refusal, Scan, request_line, scan, scan_chunks, skip_empty_lines,
};
use super::wire::answer::linger;
use super::wire::buffers::Lender;
use super::wire::exchange::{Next, On, serve};
use super::wire::{Client, Wire};
use crate::tls::HandshakeFacts;

/// How long a refused client may take to read its answer.
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);
/// How long a connection that was just accepted may take to send its first request when the
/// process is about to end: the client could not know.
const LAST_MOMENT: Duration = Duration::from_millis(200);

/// The listeners' application.
pub struct Front {
    core: Arc<Core>,
    general: Arc<HttpProxy<General>>,
    wire: Wire,
    engine: Engine,
    connections: AtomicU64,
}

/// Which requests may take the wire lane.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// None.
    pub general: bool,
    /// Not those on listeners with these ports.
    pub general_ports: Vec<u16>,
}

/// Why the wait for a head ended without one.
enum NoHead {
    /// The client closed, or was too slow before its first byte, or the process ends.
    Close,
    /// The head is refused.
    Refuse(Refusal),
    /// The client speaks HTTP/2 without TLS.
    Http2,
}

/// Says once that the process is going to end.
struct Ending<F> {
    signal: F,
    came: bool,
}

impl<F: Future<Output = ()> + Unpin> Ending<F> {
    fn poll(&mut self, cx: &mut std::task::Context<'_>) -> bool {
        self.came = self.came || Pin::new(&mut self.signal).poll(cx).is_ready();
        self.came
    }
}

impl Front {
    /// The application over its lanes.
    pub fn new(
        core: Arc<Core>,
        general: Arc<HttpProxy<General>>,
        wire: Wire,
        engine: Engine,
    ) -> Front {
        Front {
            core,
            general,
            wire,
            engine,
            connections: AtomicU64::new(0),
        }
    }

    async fn serve(&self, mut stream: Stream, shutdown: &ShutdownWatch) {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let lender = self.wire.buffers.lender(connection);
        let conn = Conn {
            id: connection,
            ..self.conn(&stream)
        };
        let engine = &self.engine;
        let only_general = engine.general || engine.general_ports.contains(&conn.local.port());
        let mut client = Client::new(conn, self.core.limits.head);
        let mut watch = shutdown.clone();
        let signal = pin!(async move {
            // An error means that nobody can send any more: the process is at its end.
            let _ = watch.wait_for(|ending| *ending).await;
        });
        let mut ending = Ending {
            signal,
            came: false,
        };
        loop {
            let head = self
                .read_head(&mut stream, &mut client, lender, &mut ending)
                .await;
            let head = match head {
                Ok(head) => head,
                Err(NoHead::Close) => return,
                Err(NoHead::Refuse(refusal)) => {
                    return self.refuse(stream, &client.inb, &refusal).await;
                }
                Err(NoHead::Http2) => return self.http2(stream, &client.inb, shutdown).await,
            };
            client.requests = client.requests.saturating_add(1);
            // Upgrades too: what becomes of one is known when the route is.
            let begun = if head.websocket || (head.ordinary && !only_general) {
                let on = On {
                    wire: &self.wire,
                    lender,
                    only_upgrades: only_general,
                };
                match serve(on, &mut stream, &mut client, &head).await {
                    Next::Keep => continue,
                    Next::Close(whole) => return self.close(stream, &client, whole).await,
                    Next::General(exchange) => Some(exchange),
                }
            } else {
                None
            };
            let (prefix, whole) = match take_request(&mut client, &head, lender) {
                Ok(taken) => taken,
                Err(refusal) => return self.refuse(stream, &client.inb, &refusal).await,
            };
            let mut session = ServerSession::new_http1(stream);
            session.set_pipelined_prefix(prefix);
            session.set_connection_user_context(Some(Box::new(Request {
                connection,
                requests: client.requests,
                exchange: begun,
                // Pingora looks at one `Connection` field; there may be more.
                last: !whole || !head.persistent,
            })));
            match Box::pin(self.general.process_new_http(session, shutdown)).await {
                Some(reused) => stream = reused.consume().0,
                None => return,
            }
            // While draining, the client may have sent its next request before it could know: that
            // one is served, and told to close.
        }
    }

    /// Closes a connection. Over TLS the end of a whole answer is said, so that the client can tell
    /// it from one that was cut.
    async fn close(&self, mut stream: Stream, client: &Client, whole: bool) {
        if whole && client.conn.tls.is_some() {
            let _ = tokio::time::timeout(REFUSAL_LIMIT, stream.shutdown()).await;
        }
    }

    /// Waits for a complete head. The deadline is for all of it and starts with its first byte.
    async fn read_head<F: Future<Output = ()> + Unpin>(
        &self,
        stream: &mut Stream,
        client: &mut Client,
        lender: Lender<'_>,
        ending: &mut Ending<F>,
    ) -> Result<Head, NoHead> {
        let limits = &self.core.limits;
        let mut until = (!client.inb.is_empty()).then(|| Instant::now() + limits.head);
        // A head in the making is work that a drain waits for.
        let mut counted = None;
        let mut looked = 0;
        loop {
            if !client.inb.is_empty() {
                if let Some(head) = self.scan(client, &mut looked)? {
                    return Ok(head);
                }
                if !client.inb.is_empty() {
                    counted.get_or_insert_with(|| Counted::head(&self.core.stats));
                }
            }
            let idle = until.is_none();
            let wait = match until {
                Some(at) => at.saturating_duration_since(Instant::now()),
                None if client.requests == 0 => limits.head,
                None => limits.keepalive,
            };
            if until.is_some() && wait.is_zero() {
                return Err(slow());
            }
            let fresh = client.requests == 0;
            let Client { inb, deadline, .. } = client;
            let (mut waiting, mut hurried) = (false, false);
            let read = poll_fn(|cx| {
                if let Poll::Ready(read) = lender.poll_read(cx, stream, inb) {
                    return Poll::Ready(read.ok().filter(|n| *n > 0));
                }
                if !waiting {
                    waiting = true;
                    deadline.set(wait);
                }
                if idle && !hurried && ending.poll(cx) {
                    if !fresh {
                        return Poll::Ready(None);
                    }
                    hurried = true;
                    deadline.set(LAST_MOMENT);
                }
                deadline.poll(cx).map(|()| Some(0))
            });
            match read.await {
                Some(0) if until.is_some() => return Err(slow()),
                Some(0) | None => return Err(NoHead::Close),
                Some(_) => {
                    until.get_or_insert_with(|| Instant::now() + limits.head);
                }
            }
        }
    }

    /// Looks at what there is; `None` when more has to come. `looked` is how much of it was looked
    /// at before.
    fn scan(&self, client: &mut Client, looked: &mut usize) -> Result<Option<Head>, NoHead> {
        let skipped = skip_empty_lines(&client.inb);
        if skipped > 0 {
            client.inb.drain(..skipped);
            *looked = looked.saturating_sub(skipped);
        }
        match scan(&client.inb, *looked, &mut client.fields) {
            Scan::Complete(head) => Ok(Some(head)),
            Scan::Partial => {
                *looked = client.inb.len();
                Ok(None)
            }
            Scan::Refused(refusal) => Err(NoHead::Refuse(refusal)),
            Scan::Http2 if self.core.http2 && client.requests == 0 => Err(NoHead::Http2),
            Scan::Http2 => Err(NoHead::Refuse(Refusal {
                kind: FaultKind::BadRequest,
                status: 505,
                why: "HTTP/2 is switched off",
            })),
        }
    }

    /// Answers a head that breaks the rules, logs it, and closes.
    async fn refuse(&self, mut stream: Stream, buf: &[u8], refusal: &Refusal) {
        let _counted = Counted::request(&self.core.stats);
        let body = stock_page(refusal.status).unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {} {}\r\nServer: {}\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            refusal.status,
            http::StatusCode::from_u16(refusal.status)
                .ok()
                .and_then(|s| s.canonical_reason())
                .unwrap_or(""),
            String::from_utf8_lossy(&self.core.server_token),
            body.len(),
        );
        let sent = match request_line(buf).0 {
            b"HEAD" => "",
            _ => &body[..],
        };
        let write = async {
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(sent.as_bytes()).await?;
            stream.flush().await
        };
        let _ = pingora_timeout::timeout(REFUSAL_LIMIT, write).await;
        let view = RefusedHead::new(buf);
        let (mut exchange, _) = Exchange::begin(&self.core, self.conn(&stream), &view);
        exchange.work.status = refusal.status;
        exchange.work.reason = refusal.why;
        exchange.work.sent_body = sent.len() as u64;
        exchange.work.sent_bytes = (head.len() + sent.len()) as u64;
        exchange.finish(&self.core, &view, None);
        if refusal.kind != FaultKind::SlowHead {
            // Whoever is still sending would be told of a reset before the answer.
            let _ = pingora_timeout::timeout(REFUSAL_LIMIT, linger(&mut stream)).await;
        }
    }

    fn conn(&self, stream: &Stream) -> Conn {
        let mut conn = Conn {
            server: Arc::clone(&self.core.facts),
            ..Conn::default()
        };
        if let Some(digest) = stream.get_socket_digest() {
            let inet = |addr: Option<&pingora_core::protocols::l4::socket::SocketAddr>| {
                addr.and_then(|addr| addr.as_inet()).copied()
            };
            conn.peer = inet(digest.peer_addr()).unwrap_or(conn.peer);
            conn.local = inet(digest.local_addr()).unwrap_or(conn.local);
        }
        if let Some(tls) = stream.get_ssl_digest() {
            let facts = tls.extension.get::<HandshakeFacts>();
            conn.tls = facts.map(|facts| Arc::clone(&facts.tls));
            conn.tls.get_or_insert_default();
        }
        conn
    }

    /// Gives a clear-text HTTP/2 connection to the lane, with the bytes that were read.
    async fn http2(&self, stream: Stream, buf: &[u8], shutdown: &ShutdownWatch) {
        let Some(mut raw) = stream.into_any().downcast::<L4Stream>().ok() else {
            return;
        };
        raw.rewind(buf);
        self.general.process_new(raw, shutdown).await;
    }
}

fn slow() -> NoHead {
    NoHead::Refuse(Refusal {
        kind: FaultKind::SlowHead,
        status: FaultKind::SlowHead.status(),
        why: FaultKind::SlowHead.reason(),
    })
}

/// Takes the bytes of one request out of the buffer, for the general lane: its head and what is
/// there of its body. A following pipelined request stays. Of a chunked body that is not complete
/// everything is taken, and whatever comes later was not looked at here: `false` then.
fn take_request(
    client: &mut Client,
    head: &Head,
    lender: Lender<'_>,
) -> Result<(BytesMut, bool), Refusal> {
    let buf = &client.inb[..];
    let rest = buf.len() - head.len;
    let (body, whole) = match head.body {
        BodyLength::None => (0, true),
        BodyLength::Exact(length) => {
            let there = usize::try_from(length).map_or(rest, |l| l.min(rest));
            (there, true)
        }
        BodyLength::Chunked => match scan_chunks(&buf[head.len..])? {
            Some(length) => (length, true),
            None => (rest, false),
        },
    };
    let taken = head.len + body;
    let target = head.target.of(buf);
    let mut prefix = BytesMut::with_capacity(taken);
    match encoded(target) {
        // The target is a part of the buffer, after the method and a space.
        Cow::Owned(encoded) => {
            let at = head.method.of(buf).len() + 1;
            prefix.extend_from_slice(&buf[..at]);
            prefix.extend_from_slice(&encoded);
            prefix.extend_from_slice(&buf[at + target.len()..taken]);
        }
        Cow::Borrowed(_) => prefix.extend_from_slice(&buf[..taken]),
    }
    client.done_with(taken, lender);
    Ok((prefix, whole))
}

/// A target as Pingora's parser accepts it: bytes it would refuse are percent-encoded, which means
/// the same.
pub(super) fn encoded(target: &[u8]) -> Cow<'_, [u8]> {
    const REFUSED: &[u8] = b"\"<>\\^`{|}";
    let refused = |b: u8| !b.is_ascii() || REFUSED.contains(&b);
    if !target.iter().any(|&b| refused(b)) {
        return Cow::Borrowed(target);
    }
    let mut out = Vec::with_capacity(target.len() + 16);
    for &b in target {
        if refused(b) {
            out.extend_from_slice(format!("%{b:02X}").as_bytes());
        } else {
            out.push(b);
        }
    }
    Cow::Owned(out)
}

#[async_trait]
impl ServerApp for Front {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let open = Counted::connection(&self.core.stats);
        let stats = &self.core.stats;
        let max = i64::try_from(self.core.limits.max_connections).unwrap_or(i64::MAX);
        if stats.connections.load(Ordering::Relaxed) > max {
            stats.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            self.general.process_new(stream, shutdown).await;
        } else {
            self.serve(stream, shutdown).await;
        }
        drop(open);
        None
    }

    async fn cleanup(&self) {
        self.general.http_cleanup().await;
    }
}

/// What can be shown of a head that was refused.
struct RefusedHead<'a> {
    method: &'a str,
    target: &'a [u8],
}

impl<'a> RefusedHead<'a> {
    fn new(buf: &'a [u8]) -> RefusedHead<'a> {
        let (method, target) = request_line(buf);
        RefusedHead {
            method: std::str::from_utf8(method).unwrap_or("-"),
            target,
        }
    }
}

impl ReqView for RefusedHead<'_> {
    fn method(&self) -> &str {
        self.method
    }
    fn target(&self) -> &[u8] {
        self.target
    }
    fn version(&self) -> u8 {
        11
    }
    fn authority(&self) -> &[u8] {
        b""
    }
    fn header(&self, _: &HeaderKey) -> Option<&[u8]> {
        None
    }
    fn each(&self, _: &HeaderKey, _: &mut dyn FnMut(&[u8])) {}
    fn visit(&self, _: &mut dyn FnMut(&[u8], &[u8])) {}
}
