//! The general lane: Pingora's HTTP proxy drives the pipeline.
//!
//! It carries everything: HTTP/1 and HTTP/2, upgrades, bodies of any kind. Each
//! hook of [`ProxyHttp`] translates between Pingora's types and the pipeline's
//! and decides nothing itself.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::header;
use lockgate_plugin::{Chunk, Conn, HeaderKey, Origin, Phase};
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::Digest;
use pingora_core::upstreams::peer::{H1UpgradePolicy, HttpPeer};
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use super::answer;
use super::core::{Core, Counted};
use super::fault::{Fault, FaultKind, Stop};
use super::front::encoded;
use super::head;
use super::pipeline::Exchange;
use super::request_head::decimal;
use super::view::{Req, Resp, edit};
use crate::tls::HandshakeFacts;
use crate::upstream::{Timeouts, limit_peer};

/// What Pingora keeps in memory of a request body for a retry. Also the most that variables about
/// the body can see of it.
pub const BODY_IN_MEMORY: usize = 64 * 1024;

/// Pingora's view of the gateway.
pub struct General {
    core: Arc<Core>,
}

/// One request on this lane.
#[derive(Default)]
pub struct Lane {
    pub(super) exchange: Option<Box<Exchange>>,
    counted: Option<Counted>,
    front: Option<Box<Front>>,
    /// The failure that ended the exchange, for the answer and the log.
    fault: Option<Fault>,
    /// Body bytes received so far.
    received: u64,
    /// The body filters have seen the whole body, which was empty.
    filtered: bool,
}

/// What the connection loop knows of a request before this lane sees it.
pub struct Front {
    /// The client's connection.
    pub conn: Conn,
    /// Counts requests on the connection, from 1.
    pub requests: u32,
    /// Begun already, where the head alone did not decide the lane.
    pub exchange: Option<Box<Exchange>>,
    /// Counts the request until the lane does: a drain waits for it from its head on.
    pub handed: Option<Counted>,
    /// No request may follow on the connection: the client said so, or the end of this one's body
    /// was not seen by the strict check.
    pub last: bool,
}

impl General {
    /// The lane, over the process's core.
    pub fn new(core: Arc<Core>) -> General {
        General { core }
    }

    fn conn(&self, session: &Session, lane: &Lane) -> Conn {
        if let Some(front) = &lane.front {
            return front.conn.clone();
        }
        let inet = |addr: Option<&pingora_core::protocols::l4::socket::SocketAddr>| {
            addr.and_then(|addr| addr.as_inet()).copied()
        };
        let mut conn = Conn {
            server: Arc::clone(&self.core.facts),
            ..Conn::default()
        };
        if let Some(peer) = inet(session.client_addr()) {
            conn.peer = peer;
        }
        if let Some(local) = inet(session.server_addr()) {
            conn.local = local;
        }
        if let Some(tls) = session
            .digest()
            .and_then(|digest| digest.ssl_digest.as_ref())
        {
            conn.tls = tls
                .extension
                .get::<HandshakeFacts>()
                .map(|facts| Arc::clone(&facts.tls));
            conn.tls.get_or_insert_default();
        }
        conn
    }

    /// The request phases: everything before a byte goes upstream.
    async fn work(&self, session: &mut Session, lane: &mut Lane) -> Result<(), Stop> {
        let begun = lane.front.as_mut().and_then(|front| front.exchange.take());
        let (mut exchange, begun) = match begun {
            Some(exchange) => (exchange, Ok(())),
            None => {
                let conn = self.conn(session, lane);
                let head = Req::new(session.req_header());
                Exchange::begin(&self.core, conn, &head)
            }
        };
        exchange.work.conn_requests = lane.front.as_ref().map_or(1, |front| front.requests);
        let reads_body = exchange.match_reads_body();
        let exchange = lane.exchange.insert(exchange);
        begun?;
        self.check_length(session)?;
        if reads_body {
            exchange.work.body = read_body(session).await?;
        }
        if !exchange.is_found() {
            exchange.find(&self.core, &Req::new(session.req_header()))?;
        }
        if !reads_body && exchange.plugins_read_body() {
            exchange.work.body = read_body(session).await?;
        }
        if exchange.work.body.is_some() {
            exchange.work.tick = Instant::now();
        }
        let req = Req::new(session.req_header());
        exchange.decide(&req).await?;
        exchange.choose(&req).await?;
        Ok(())
    }

    /// Bounds the writing of an answer. Pingora has a deadline for the body, none for the head.
    async fn in_time(&self, sending: impl Future<Output = Result<()>>) -> Result<()> {
        let limit = self.core.limits.send * 2;
        match pingora_timeout::timeout(limit, sending).await {
            Ok(sent) => sent,
            Err(_) => Error::e_explain(ErrorType::WriteTimedout, "writing an answer"),
        }
    }

    fn check_length(&self, session: &Session) -> Result<(), Stop> {
        let limit = self.core.limits.max_body;
        let length = session.req_header().headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        match length {
            Some(length) if limit > 0 && length > limit => Err(FaultKind::BodyTooLarge.into()),
            _ => Ok(()),
        }
    }
}

/// Reads the request body as far as Pingora can give it back to the upstream.
async fn read_body(session: &mut Session) -> Result<Option<Bytes>, Stop> {
    if session.is_body_empty() {
        return Ok(None);
    }
    let known = session.req_header().headers.get(header::CONTENT_LENGTH);
    let known = known.and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    // A body that may not fit is left alone: it streams upstream, and variables about it are nil.
    if known.is_none_or(|length| length > BODY_IN_MEMORY) {
        return Ok(None);
    }
    let wants_continue = session.req_header().headers.contains_key(header::EXPECT);
    let down = session.as_downstream_mut();
    if wants_continue {
        let sent = down.write_continue_response().await;
        sent.map_err(|e| Fault::new(FaultKind::ClientGone, e.to_string()))?;
    }
    down.enable_retry_buffering();
    loop {
        match down.read_request_body().await {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(e) => return Err(Fault::new(FaultKind::ClientGone, e.to_string()).into()),
        }
    }
    Ok(down.get_retry_buffer())
}

#[async_trait]
impl ProxyHttp for General {
    type CTX = Lane;

    fn new_ctx(&self) -> Lane {
        Lane::default()
    }

    fn init_downstream_modules(&self, _: &mut HttpModules) {
        // Pingora would add a compression module that is boxed for each request; compression is
        // a plugin's business here.
    }

    fn on_connection_reuse(
        &self,
        _session: &mut Session,
        lane: &mut Lane,
        front: Box<dyn std::any::Any + Send + Sync>,
    ) {
        lane.front = front.downcast::<Front>().ok();
    }

    async fn request_filter(&self, session: &mut Session, lane: &mut Lane) -> Result<bool> {
        lane.counted = Some(Counted::request(&self.core.stats));
        if let Some(front) = &mut lane.front {
            front.handed = None;
        }
        let limits = &self.core.limits;
        let down = session.as_downstream_mut();
        down.set_read_timeout(Some(limits.body));
        down.set_write_timeout(Some(limits.send));
        down.set_total_drain_timeout(Some(answer::DRAIN_LIMIT));
        // Without this, whatever comes while the answer is pending would end the request.
        down.set_pipelining_enabled(true);
        let last = lane.front.as_ref().is_some_and(|front| front.last);
        if last || self.core.stats.is_draining() || limits.keepalive.is_zero() {
            down.set_keepalive(None);
        }
        match self.work(session, lane).await {
            Ok(()) => Ok(false),
            Err(stop) => {
                let sent = match stop {
                    Stop::Reply(reply) => {
                        let sending = answer::reply(&self.core, session, lane, reply);
                        self.in_time(sending).await
                    }
                    Stop::Fault(fault) => {
                        let sending = answer::fault(&self.core, session, lane, fault);
                        self.in_time(sending).await
                    }
                };
                // An error ends the connection; otherwise Pingora would go on with writing.
                sent.map(|()| true).map_err(|e| e.into_down())
            }
        }
    }

    async fn upstream_peer(&self, session: &mut Session, lane: &mut Lane) -> Result<Box<HttpPeer>> {
        if lane.fault.take().is_some() {
            // A further try: the first node was chosen in the request phases.
            let exchange = exchange(lane)?;
            if let Err(fault) = exchange.retry().await {
                lane.fault = Some(fault);
                return Err(Error::new_in(ErrorType::InternalError));
            }
            head::settle_host(exchange);
            // The body is sent again from its beginning.
            lane.received = 0;
        }
        let exchange = exchange(lane)?;
        let timeouts: Option<Timeouts> = exchange.route().and_then(|route| route.timeouts);
        let Some(chosen) = &exchange.upstream else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        let mut peer = Box::new(chosen.ready.peer.clone());
        if peer.is_tls() {
            let req = Req::new(session.req_header());
            let host = head::upstream_host(&exchange.work, &req);
            peer.sni = lockgate_plugin::target::host_of(host).into_owned();
        }
        if let Some(timeouts) = &timeouts {
            limit_peer(&mut peer, timeouts);
        }
        // Upgrades are for the wire lane: Pingora may take the end of the request for the end of the
        // tunnel (docs/adr/0010).
        peer.options.http_upstream_request_policy.h1_upgrade = H1UpgradePolicy::Deny;
        Ok(peer)
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        reused: bool,
        _peer: &HttpPeer,
        _fd: std::os::unix::io::RawFd,
        _digest: Option<&Digest>,
        lane: &mut Lane,
    ) -> Result<()> {
        if let Some(attempt) = exchange(lane)?.work.attempts.last_mut() {
            attempt.connect = Some(if reused {
                Duration::ZERO
            } else {
                attempt.started.elapsed()
            });
        }
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        upstream: &mut RequestHeader,
        lane: &mut Lane,
    ) -> Result<()> {
        let req = Req::new(session.req_header());
        let exchange = exchange(lane)?;
        let work = &exchange.work;
        if session.req_header().version == http::Version::HTTP_2 {
            join_cookies(upstream)?;
        }
        let edits = &work.request;
        edit(upstream, edits.headers.ops().iter())?;
        let mut done = Ok(());
        let mut address = head::AddressText::default();
        let ip = address.of(work.client.ip());
        head::forwarded(work, &req, ip, &mut |_, key, value| match value {
            Some(value) => {
                let put = upstream.insert_header(key.spelled_bytes().clone(), value);
                done = std::mem::replace(&mut done, Ok(())).and(put);
            }
            None => drop(upstream.remove_header(key.name())),
        });
        done?;
        if work.body.is_some() {
            // The client was told to go on already, and is not to hear it twice.
            upstream.remove_header(&header::EXPECT);
        }
        if let Some(method) = &edits.method {
            let method = http::Method::from_bytes(method);
            upstream.set_method(method.map_err(|_| Error::new_in(ErrorType::InternalError))?);
        }
        match &edits.target {
            Some(target) => upstream.set_raw_path(&encoded(target))?,
            None => {
                let raw = lockgate_plugin::ReqView::target(&req);
                let target = work.target.upstream_target(raw);
                if *target != *upstream.raw_path() {
                    upstream.set_raw_path(&encoded(&target))?;
                }
            }
        }
        let host = head::upstream_host(work, &req);
        let same = upstream
            .headers
            .get(header::HOST)
            .is_some_and(|h| h.as_bytes() == host);
        if !same {
            upstream.insert_header(header::HOST, host)?;
        }
        Ok(())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        lane: &mut Lane,
    ) -> Result<()> {
        lane.received += body.as_ref().map_or(0, |body| body.len() as u64);
        let limit = self.core.limits.max_body;
        if limit > 0 && lane.received > limit {
            lane.fault = Some(FaultKind::BodyTooLarge.into());
            return Err(Error::new_down(ErrorType::HTTPStatus(413)));
        }
        // An empty last chunk would end a chunked body twice and spoil the upstream connection.
        if end && body.as_ref().is_some_and(Bytes::is_empty) {
            *body = None;
        }
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        resp: &mut ResponseHeader,
        lane: &mut Lane,
    ) -> Result<()> {
        check_framing(resp)?;
        if resp.status.is_informational() && resp.status.as_u16() != 101 {
            // It has no body and decides nothing about the connection.
            strip_hop_by_hop(resp);
            for name in [
                header::CONNECTION,
                header::CONTENT_LENGTH,
                header::TRANSFER_ENCODING,
                header::TRAILER,
                header::UPGRADE,
            ] {
                resp.remove_header(&name);
            }
            return Ok(());
        }
        if resp.status.as_u16() == 101 {
            let why = "an upgrade that was not asked for";
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_up());
        }
        let exchange = exchange(lane)?;
        if let Some(attempt) = exchange.work.attempts.last_mut() {
            attempt.status = resp.status.as_u16();
            attempt.header = Some(attempt.started.elapsed());
        }
        strip_hop_by_hop(resp);
        if session.req_header().version == http::Version::HTTP_10
            && resp.remove_header(&header::TRANSFER_ENCODING).is_some()
        {
            // Such a client knows no chunks: the end of the connection is the end of the body.
            session.as_downstream_mut().set_keepalive(None);
        }
        let ends = ends_with_head(session.req_header(), resp);
        head::response_edits(&self.core, exchange);
        let req = Req::new(session.req_header());
        exchange.response_head(&req, &Resp(resp), Origin::Upstream);
        apply_edits(exchange, resp)?;
        if exchange.work.response.resize && resp.remove_header(&header::CONTENT_LENGTH).is_some() {
            let http11 = session.req_header().version == http::Version::HTTP_11;
            if http11 {
                resp.insert_header(header::TRANSFER_ENCODING, "chunked")?;
            }
        }
        if self.core.stats.is_draining() {
            session.as_downstream_mut().set_keepalive(None);
        }
        if ends && exchange.filters(Phase::BodyFilter) {
            fill_empty(session, exchange, resp).await?;
            lane.filtered = true;
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        lane: &mut Lane,
    ) -> Result<Option<Duration>> {
        if lane.filtered {
            *body = None;
            return Ok(None);
        }
        let exchange = exchange(lane)?;
        if !exchange.filters(Phase::BodyFilter) {
            return Ok(None);
        }
        let mut chunk = Chunk {
            data: body.take().unwrap_or_default(),
            last: end,
        };
        *exchange.work.upstream_body.get_or_insert(0) += chunk.data.len() as u64;
        let resp = begun(session).map(Resp);
        let resp = resp
            .as_ref()
            .map(|resp| resp as &dyn lockgate_plugin::RespView);
        exchange
            .response_body(&Req::new(session.req_header()), resp, &mut chunk)
            .map_err(|fault| Error::explain(ErrorType::InternalError, fault.cause.into_owned()))?;
        *body = (!chunk.data.is_empty()).then_some(chunk.data);
        Ok(None)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        lane: &mut Lane,
        mut e: Box<Error>,
    ) -> Box<Error> {
        let kind = kind_of(&e, FaultKind::Connect);
        let again = self.note_failure(lane, kind, &e);
        e.set_retry(again);
        e
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut e: Box<Error>,
        lane: &mut Lane,
        reused: bool,
    ) -> Box<Error> {
        if *e.esource() != ErrorSource::Upstream {
            e.set_retry(false);
            return e;
        }
        let kind = kind_of(&e, FaultKind::UpstreamClosed);
        let req = Req::new(session.req_header());
        let safe = lane
            .exchange_mut()
            .is_some_and(|exchange| exchange.is_idempotent(&req))
            && !session.as_downstream().retry_buffer_truncated()
            && begun(session).is_none();
        let allowed = self.note_failure(lane, kind, &e);
        // A kept connection that the upstream closed in the same moment says nothing about the
        // node: that try is free.
        let closed = matches!(
            e.etype(),
            ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError
        );
        let stale = reused && closed && lane.first_try();
        if stale
            && !allowed
            && let Some(exchange) = lane.exchange_mut()
        {
            exchange.forgive();
        }
        e.set_retry(safe && (allowed || stale));
        e
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        e: &Error,
        lane: &mut Lane,
    ) -> FailToProxy {
        let fault = match lane.fault.take() {
            Some(fault) => fault,
            None => Fault::new(client_or_gateway(e), e.to_string()),
        };
        let kind = fault.kind;
        if kind == FaultKind::ClientGone || begun(session).is_some() {
            // Nobody to answer, or the answer has begun: all that is left is to cut it short.
            if let Some(exchange) = &mut lane.exchange {
                exchange.work.reason = kind.reason();
                if begun(session).is_none() {
                    exchange.work.status = kind.status();
                }
            }
            return FailToProxy {
                error_code: 0,
                can_reuse_downstream: false,
            };
        }
        // Pingora closes the connection after every failure here: the client is told.
        session.as_downstream_mut().set_keepalive(None);
        let sending = answer::fault(&self.core, session, lane, fault);
        let sent = self.in_time(sending).await;
        FailToProxy {
            error_code: kind.status(),
            can_reuse_downstream: sent.is_ok(),
        }
    }

    async fn logging(&self, session: &mut Session, e: Option<&Error>, lane: &mut Lane) {
        // What came early is out of the connection loop's reach: with this off, such a connection
        // is closed rather than gone on with as if nothing had come.
        session.as_downstream_mut().set_pipelining_enabled(false);
        let Some(exchange) = &mut lane.exchange else {
            return;
        };
        let work = &mut exchange.work;
        work.sent_body = session.body_bytes_sent() as u64;
        work.received_body = lane.received.max(session.body_bytes_read() as u64);
        if let Some(e) = e
            && work.reason.is_empty()
        {
            work.reason = client_or_gateway(e).reason();
        }
        let written = begun(session).map(Resp);
        if work.status == 0 {
            work.status = written.as_ref().map_or(499, |resp| resp.0.status.as_u16());
        }
        let resp = written
            .as_ref()
            .map(|resp| resp as &dyn lockgate_plugin::RespView);
        exchange.finish(&self.core, &Req::new(session.req_header()), resp);
        lane.counted = None;
    }

    fn suppress_error_log(&self, _: &Session, _: &Lane, _: &Error) -> bool {
        // The access log has every failure with its reason; `note_failure` logs the upstream's.
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Lane,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

impl General {
    /// Records a failed try; says whether settings and kind allow another one.
    fn note_failure(&self, lane: &mut Lane, kind: FaultKind, e: &Error) -> bool {
        lane.fault = Some(Fault::new(kind, e.to_string()));
        let Some(exchange) = &mut lane.exchange else {
            return false;
        };
        exchange.note_failure(&self.core, kind, e)
    }
}

impl Lane {
    /// Whether only one node was tried so far.
    fn first_try(&self) -> bool {
        let tries = self
            .exchange
            .as_ref()
            .map_or(0, |exchange| exchange.work.attempts.len());
        tries == 1
    }

    /// Whether the client's body may still be on its way.
    pub(super) fn exchange_mut(&mut self) -> Option<&mut Exchange> {
        self.exchange.as_deref_mut()
    }
}

fn exchange(lane: &mut Lane) -> Result<&mut Exchange> {
    lane.exchange
        .as_deref_mut()
        .ok_or_else(|| Error::new_in(ErrorType::InternalError))
}

/// Applies the changes that plugins and the gateway want in a response head. From here on the head
/// shows them; they must not be seen twice.
pub(super) fn apply_edits(exchange: &mut Exchange, resp: &mut ResponseHeader) -> Result<()> {
    let edits = std::mem::take(&mut exchange.work.response);
    edit(resp, edits.headers.ops().iter())?;
    if let Some(status) = edits.status {
        resp.set_status(status)?;
        resp.set_reason_phrase(None)?;
    }
    exchange.work.response.resize = edits.resize;
    Ok(())
}

/// Whether an upstream's answer could have a body and has none. Pingora shows no body of it.
fn ends_with_head(req: &RequestHeader, resp: &ResponseHeader) -> bool {
    let may_have = req.method != http::Method::HEAD && !matches!(resp.status.as_u16(), 204 | 304);
    let length = resp.headers.get(header::CONTENT_LENGTH);
    may_have && length.is_some_and(|length| length == "0")
}

/// Runs the body filters over an empty body. What they put there is written at once, head and all.
///
/// For Pingora the answer ends with the head it is about to write. It is left with an interim one,
/// which it is told not to send, so that both connections live on.
async fn fill_empty(
    session: &mut Session,
    exchange: &mut Exchange,
    resp: &mut ResponseHeader,
) -> Result<()> {
    let mut chunk = Chunk {
        data: Bytes::new(),
        last: true,
    };
    exchange
        .response_body(
            &Req::new(session.req_header()),
            Some(&Resp(resp)),
            &mut chunk,
        )
        .map_err(|fault| Error::explain(ErrorType::InternalError, fault.cause.into_owned()))?;
    resp.remove_header(&header::TRANSFER_ENCODING);
    resp.insert_header(header::CONTENT_LENGTH, chunk.data.len())?;
    if chunk.data.is_empty() {
        return Ok(());
    }
    session
        .write_response_header(Box::new(resp.clone()), false)
        .await?;
    session.write_response_body(Some(chunk.data), true).await?;
    session.as_downstream_mut().set_ignore_info_resp(true);
    *resp = ResponseHeader::build(103, None)?;
    Ok(())
}

/// Refuses lengths and transfer encodings that the wire lane refuses too: a client may understand
/// them in another way. Of a length beside chunks nothing is left here; Pingora has dropped it.
fn check_framing(resp: &ResponseHeader) -> Result<()> {
    let mut codings = resp.headers.get_all(header::TRANSFER_ENCODING).iter();
    let chunked = codings.next().is_none_or(|first| {
        let chunked = first.as_bytes().eq_ignore_ascii_case(b"chunked");
        chunked && codings.next().is_none() && resp.version != http::Version::HTTP_10
    });
    let lengths = resp.headers.get_all(header::CONTENT_LENGTH).iter();
    let mut lengths = lengths.map(|value| decimal(value.as_bytes()));
    let length = match lengths.next() {
        None => true,
        Some(first) => first.is_some() && lengths.all(|other| other == first),
    };
    if chunked && length {
        return Ok(());
    }
    let why = "response with an ambiguous length";
    Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_up())
}

/// Fields that belong to one connection without being named in `Connection`.
const OWN: [&str; 2] = ["keep-alive", "proxy-connection"];

/// Removes what belongs to the upstream's connection, not to the client's.
fn strip_hop_by_hop(resp: &mut ResponseHeader) {
    if resp.status.as_u16() == 101 {
        return;
    }
    if let Some(value) = resp.headers.get(header::CONNECTION) {
        let nominated: Vec<HeaderKey> = String::from_utf8_lossy(value.as_bytes())
            .split(',')
            .filter_map(|name| name.trim().parse().ok())
            .filter(|key: &HeaderKey| {
                !matches!(key.lower(), "content-length" | "transfer-encoding")
            })
            .collect();
        for key in nominated {
            resp.remove_header(key.name());
        }
    }
    // Looked for in one pass, since they are hardly ever there: taking out costs two hashes each.
    let own = resp.headers.keys().any(|name| OWN.contains(&name.as_str()));
    if own {
        OWN.iter().for_each(|name| drop(resp.remove_header(*name)));
    }
}

/// HTTP/2 clients may send a cookie in pieces; HTTP/1 knows one field (RFC 9113 §8.2.3).
fn join_cookies(head: &mut RequestHeader) -> Result<()> {
    let pieces: Vec<&[u8]> = head
        .headers
        .get_all(header::COOKIE)
        .iter()
        .map(|v| v.as_bytes())
        .collect();
    if pieces.len() > 1 {
        let joined = pieces.join(&b"; "[..]);
        head.insert_header(header::COOKIE, joined)?;
    }
    Ok(())
}

/// The head of the answer once it is on its way to the client. Interim answers are not it.
fn begun(session: &Session) -> Option<&ResponseHeader> {
    session
        .response_written()
        .filter(|resp| !resp.status.is_informational() || resp.status.as_u16() == 101)
}

/// Pingora's error in our words.
fn kind_of(e: &Error, other: FaultKind) -> FaultKind {
    match e.etype() {
        ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => FaultKind::ConnectTimeout,
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => FaultKind::UpstreamTimeout,
        ErrorType::InvalidHTTPHeader | ErrorType::H1Error | ErrorType::H2Error => {
            FaultKind::BadResponse
        }
        _ => other,
    }
}

/// For failures that no upstream hook has seen.
fn client_or_gateway(e: &Error) -> FaultKind {
    match (e.esource(), e.etype()) {
        (ErrorSource::Downstream, kind) if kind.as_str() == "InvalidChunk" => FaultKind::BadRequest,
        (_, ErrorType::HTTPStatus(413)) => FaultKind::BodyTooLarge,
        (ErrorSource::Upstream, _) => kind_of(e, FaultKind::UpstreamClosed),
        (ErrorSource::Downstream, ErrorType::InvalidHTTPHeader | ErrorType::H1Error) => {
            FaultKind::BadRequest
        }
        (ErrorSource::Downstream, _) => FaultKind::ClientGone,
        _ => FaultKind::Internal,
    }
}
