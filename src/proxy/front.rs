//! Accepts connections, reads request heads, and hands each request to a lane.
//!
//! The head is read here, with a deadline for the whole of it and a limit on
//! its size, and checked by [`request_head`](super::request_head). Then the
//! bytes go to the lane as they came. HTTP/2 connections go there whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::core::{Core, Counted};
use super::fault::{FaultKind, stock_page};
use super::general::{Front as Request, General};
use super::pipeline::Exchange;
use super::request_head::{
    BodyLength, Head, Refusal, Scan, request_line, scan, scan_chunks, skip_empty_lines,
};

/// First size of the head buffer: most heads fit.
const HEAD_BUFFER: usize = 4096;
/// How long a refused client may take to read its answer.
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);

/// The listeners' application.
pub struct Front {
    core: Arc<Core>,
    general: Arc<HttpProxy<General>>,
    connections: AtomicU64,
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

impl Front {
    /// The application over a lane.
    pub fn new(core: Arc<Core>, general: Arc<HttpProxy<General>>) -> Front {
        Front {
            core,
            general,
            connections: AtomicU64::new(0),
        }
    }

    async fn serve(&self, mut stream: Stream, shutdown: &ShutdownWatch) {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let mut buf = BytesMut::new();
        let mut requests = 0u32;
        loop {
            let head = match self
                .read_head(&mut stream, &mut buf, requests, shutdown)
                .await
            {
                Ok(head) => head,
                Err(NoHead::Close) => return,
                Err(NoHead::Refuse(refusal)) => return self.refuse(stream, &buf, &refusal).await,
                Err(NoHead::Http2) => return self.http2(stream, &buf, shutdown).await,
            };
            requests = requests.saturating_add(1);
            let prefix = match take_request(&mut buf, &head) {
                Ok(prefix) => prefix,
                Err(refusal) => return self.refuse(stream, &buf, &refusal).await,
            };
            let mut session = ServerSession::new_http1(stream);
            session.set_keepalive(self.keepalive());
            session.set_pipelined_prefix(prefix);
            session.set_connection_user_context(Some(Box::new(Request {
                connection,
                requests,
            })));
            match self.general.process_new_http(session, shutdown).await {
                Some(reused) => stream = reused.consume().0,
                None => return,
            }
            // While draining, the client may have sent its next request before it could know: that
            // one is served, and told to close.
        }
    }

    fn keepalive(&self) -> Option<u64> {
        let idle = self.core.limits.keepalive.as_secs();
        (idle > 0 && !self.core.stats.is_draining()).then_some(idle)
    }

    /// Waits for a complete head. The deadline is for all of it and starts with its first byte.
    async fn read_head(
        &self,
        stream: &mut Stream,
        buf: &mut BytesMut,
        requests: u32,
        shutdown: &ShutdownWatch,
    ) -> Result<Head, NoHead> {
        let limits = &self.core.limits;
        let first = if requests == 0 {
            limits.head
        } else {
            limits.keepalive
        };
        let mut deadline = (!buf.is_empty()).then(|| Instant::now() + limits.head);
        loop {
            if !buf.is_empty() {
                let skipped = skip_empty_lines(buf);
                let _ = buf.split_to(skipped);
                match scan(buf) {
                    Scan::Complete(head) => return Ok(head),
                    Scan::Refused(refusal) => return Err(NoHead::Refuse(refusal)),
                    Scan::Http2 if self.core.http2 && requests == 0 => return Err(NoHead::Http2),
                    Scan::Http2 => {
                        let why = "HTTP/2 is switched off";
                        let kind = FaultKind::BadRequest;
                        return Err(NoHead::Refuse(Refusal {
                            kind,
                            status: 505,
                            why,
                        }));
                    }
                    Scan::Partial => {}
                }
            }
            let wait = deadline.map_or(first, |at| at.saturating_duration_since(Instant::now()));
            buf.reserve(HEAD_BUFFER);
            match read(stream, buf, wait, shutdown, deadline.is_none()).await {
                Some(Ok(n)) if n > 0 => {
                    deadline.get_or_insert_with(|| Instant::now() + limits.head);
                }
                Some(_) => return Err(NoHead::Close),
                None if deadline.is_none() => return Err(NoHead::Close),
                None => {
                    let kind = FaultKind::SlowHead;
                    let refusal = Refusal {
                        kind,
                        status: 408,
                        why: kind.reason(),
                    };
                    return Err(NoHead::Refuse(refusal));
                }
            }
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
        let write = async {
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.shutdown().await
        };
        let _ = pingora_timeout::timeout(REFUSAL_LIMIT, write).await;
        let view = RefusedHead::new(buf);
        let (mut exchange, _) = Exchange::begin(&self.core, self.conn(&stream), &view);
        exchange.work.status = refusal.status;
        exchange.work.reason = refusal.why;
        exchange.work.sent_body = body.len() as u64;
        exchange.work.sent_bytes = (head.len() + body.len()) as u64;
        exchange.finish(&self.core, &view, None);
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

/// One read; `None` when the time is over. An idle wait also ends with the process.
async fn read(
    stream: &mut Stream,
    buf: &mut BytesMut,
    wait: Duration,
    shutdown: &ShutdownWatch,
    idle: bool,
) -> Option<std::io::Result<usize>> {
    let read = pingora_timeout::timeout(wait, stream.read_buf(buf));
    if !idle {
        return read.await.ok();
    }
    if *shutdown.borrow() {
        return None;
    }
    let mut ending = shutdown.clone();
    tokio::select! {
        biased;
        got = read => got.ok(),
        _ = ending.changed() => None,
    }
}

/// Takes the bytes of one request out of the buffer: its head and what is there of its body. A
/// following pipelined request stays. A chunked body that is not complete takes all there is.
fn take_request(buf: &mut BytesMut, head: &Head) -> Result<BytesMut, Refusal> {
    let rest = buf.len() - head.len;
    let body = match head.body {
        BodyLength::None => 0,
        BodyLength::Exact(length) => usize::try_from(length).map_or(rest, |l| l.min(rest)),
        BodyLength::Chunked => scan_chunks(&buf[head.len..])?.unwrap_or(rest),
    };
    Ok(if body == rest {
        std::mem::take(buf)
    } else {
        buf.split_to(head.len + body)
    })
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
