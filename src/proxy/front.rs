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

use async_trait::async_trait;
use bytes::BytesMut;
use lockgate_plugin::Conn;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::{ALPN, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::core::{Core, Counted};
use super::fault::FaultKind;
use super::general::{Front as Request, General};
use super::refuse::{REFUSAL_LIMIT, refuse};
use super::request_head::{BodyLength, Head, Refusal, Scan, scan, scan_chunks, skip_empty_lines};
use super::socket;
use super::waiting::{LAST_MOMENT, QUIET, Waiting};
use super::wire::buffers;
use super::wire::exchange::{Next, serve};
use super::wire::{Client, Wire};
use crate::link::Link;
use crate::tls::HandshakeFacts;

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

impl Engine {
    /// Whether a connection's requests all take the general lane.
    fn is_general(&self, conn: &Conn) -> bool {
        self.general || self.general_ports.contains(&conn.local.port())
    }
}

/// Why the wait for a head ended without one.
enum NoHead {
    /// The client closed, or was too slow before its first byte, or the process ends.
    Close,
    /// The head is refused.
    Refuse(Refusal),
    /// The client speaks HTTP/2 without TLS.
    Http2,
    /// The client has had nothing to say for a while.
    Quiet,
}

/// Says once that the process is going to end.
struct Ending<F> {
    look: ShutdownWatch,
    signal: F,
    /// The signal will wake this task.
    registered: bool,
    came: bool,
}

impl<F: Future<Output = ()> + Unpin> Ending<F> {
    fn poll(&mut self, cx: &mut std::task::Context<'_>) -> bool {
        // Whether anything changed is one load; only then is there something to ask.
        if !self.came && (!self.registered || self.look.has_changed().unwrap_or(true)) {
            self.registered = true;
            self.came = Pin::new(&mut self.signal).poll(cx).is_ready();
        }
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

    /// A task for a connection whose next request may be coming.
    fn wake(self: &Arc<Self>, waiting: Waiting) {
        let front = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(waiting) = front.serve(waiting).await {
                front.park(waiting);
            }
        });
    }

    /// A task for a connection that has been idle for a while: a much smaller one.
    fn park(self: &Arc<Self>, mut waiting: Waiting) {
        let front = Arc::clone(self);
        tokio::spawn(async move {
            if waiting.has_bytes(&front.core.limits).await {
                front.wake(waiting);
            }
        });
    }

    /// Serves requests, until the connection is closed or has nothing to say for a while.
    async fn serve(&self, waiting: Waiting) -> Option<Waiting> {
        // It counts as open until it is closed: what is bound first is dropped last.
        let Waiting {
            open,
            mut link,
            conn,
            requests,
            inb,
            shutdown,
            ..
        } = waiting;
        let only_general = self.engine.is_general(&conn);
        let mut client = Client::new(conn, self.core.limits.head);
        (client.inb, client.requests) = (inb, requests);
        let mut watch = shutdown.clone();
        let mut ending = Ending {
            look: shutdown.clone(),
            signal: pin!(async move {
                // An error means that nobody can send any more: the process is at its end.
                let _ = watch.wait_for(|ending| *ending).await;
            }),
            registered: false,
            came: false,
        };
        loop {
            let head = self.read_head(&mut link, &mut client, &mut ending).await;
            let head = match head {
                Ok(head) => head,
                Err(NoHead::Close) => return None,
                Err(NoHead::Quiet) => {
                    return Some(Waiting {
                        link,
                        conn: client.conn,
                        requests: client.requests,
                        inb: Vec::new(),
                        since: Instant::now() - QUIET,
                        shutdown,
                        open,
                    });
                }
                Err(NoHead::Refuse(refusal)) => {
                    let Client { conn, inb, .. } = client;
                    Box::pin(refuse(&self.core, link, conn, &inb, &refusal)).await;
                    return None;
                }
                Err(NoHead::Http2) => {
                    let stream = socket::give_with(link, &client.conn, &client.inb)?;
                    Box::pin(self.general.process_new(stream, &shutdown)).await;
                    return None;
                }
            };
            client.requests = client.requests.saturating_add(1);
            // Upgrades too: what becomes of one is known when the route is.
            let begun = if head.websocket || (head.ordinary && !only_general) {
                match serve(&self.wire, only_general, &mut link, &mut client, &head).await {
                    Next::Keep => continue,
                    Next::Close(whole) => {
                        Box::pin(self.close(link, &client, whole)).await;
                        return None;
                    }
                    Next::General(exchange) => Some(exchange),
                }
            } else {
                None
            };
            // What is known of an exchange are places in the target, which has to be the same then.
            let begun = begun.filter(|_| matches!(encoded(client.target(&head)), Cow::Borrowed(_)));
            let (prefix, whole) = match take_request(&mut client, &head) {
                Ok(taken) => taken,
                Err(refusal) => {
                    let Client { conn, inb, .. } = client;
                    Box::pin(refuse(&self.core, link, conn, &inb, &refusal)).await;
                    return None;
                }
            };
            let mut session = ServerSession::new_http1(socket::give(link, &client.conn));
            session.set_pipelined_prefix(prefix);
            session.set_connection_user_context(Some(Box::new(Request {
                conn: client.conn.clone(),
                requests: client.requests,
                exchange: begun,
                handed: Some(Counted::head(&self.core.stats)),
                // Pingora looks at one `Connection` field; there may be more.
                last: !whole || !head.persistent,
            })));
            let served = Box::pin(self.general.process_new_http(session, &shutdown)).await;
            link = socket::take_back(served?.consume().0)?;
            client.ended = None;
            // While draining, the client may have sent its next request before it could know: that
            // one is served, and told to close.
        }
    }

    /// Closes a connection. Over TLS the end of a whole answer is said, so that the client can tell
    /// it from one that was cut.
    async fn close(&self, mut link: Link, client: &Client, whole: bool) {
        if whole && client.conn.tls.is_some() {
            let _ = tokio::time::timeout(REFUSAL_LIMIT, link.shutdown()).await;
        }
    }

    /// Waits for a complete head. The deadline is for all of it and starts with its first byte.
    async fn read_head<F: Future<Output = ()> + Unpin>(
        &self,
        link: &mut Link,
        client: &mut Client,
        ending: &mut Ending<F>,
    ) -> Result<Head, NoHead> {
        let limits = &self.core.limits;
        let mut until = None;
        // A head in the making is work that a drain waits for.
        let mut counted = None;
        let (mut looked, mut came) = (0, !client.inb.is_empty());
        loop {
            if !client.inb.is_empty() {
                if let Some(head) = self.scan(client, &mut looked)? {
                    return Ok(head);
                }
                if !client.inb.is_empty() {
                    counted.get_or_insert_with(|| Counted::head(&self.core.stats));
                }
            }
            if came {
                // Most heads come whole, and nobody asks for the time.
                until.get_or_insert_with(|| Instant::now() + limits.head);
            }
            let idle = until.is_none();
            let limit = match until {
                Some(at) => at.saturating_duration_since(Instant::now()),
                None if client.requests == 0 => limits.head,
                None => limits.keepalive,
            };
            if until.is_some() && limit.is_zero() {
                return Err(slow());
            }
            let wait = if idle { limit.min(QUIET) } else { limit };
            let fresh = client.requests == 0;
            let Client {
                inb,
                deadline,
                ended,
                ..
            } = client;
            // Only an idle wait began when the last request ended.
            let mut from = ended.take().filter(|_| idle);
            let (mut waiting, mut hurried) = (false, false);
            let read = poll_fn(|cx| {
                if let Poll::Ready(read) = buffers::poll_read(cx, link, inb) {
                    return Poll::Ready(read.ok().filter(|n| *n > 0));
                }
                if !waiting {
                    waiting = true;
                    deadline.set_from(from.take(), wait);
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
                Some(0) if limit > wait && !ending.came => return Err(NoHead::Quiet),
                Some(0) | None => return Err(NoHead::Close),
                Some(_) => came = true,
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
fn take_request(client: &mut Client, head: &Head) -> Result<(BytesMut, bool), Refusal> {
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
    client.done_with(taken);
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
            drop(open);
            return None;
        }
        let conn = Conn {
            id: self.connections.fetch_add(1, Ordering::Relaxed) + 1,
            ..self.conn(&stream)
        };
        let link = if self.engine.is_general(&conn) {
            Link::Pingora(stream)
        } else {
            socket::take(stream)
        };
        // In a task of its own: Pingora's has room for everything that accepting may need.
        self.wake(Waiting {
            link,
            conn,
            requests: 0,
            inb: Vec::new(),
            since: Instant::now(),
            shutdown: shutdown.clone(),
            open,
        });
        None
    }

    async fn cleanup(&self) {
        self.general.http_cleanup().await;
    }
}
