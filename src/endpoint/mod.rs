//! HTTP of the listeners beside the proxy: the Admin API, the Control API, the status page, the
//! metrics.
//!
//! An [`Endpoint`] reads requests within deadlines and limits and writes the answers; what they say
//! is up to the [`Api`] behind it. Nothing from the network waits or grows without bound here: a
//! head has a deadline, a body a length and a deadline, an answer a deadline, and there are so many
//! connections and no more.

mod answer;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_http::{RequestHeader, ResponseHeader};
use tokio::sync::{Semaphore, SemaphorePermit};

pub(crate) use answer::{Answer, HTML};

/// Requests that are worked on at once: each may hold a body.
const MOST_AT_ONCE: usize = 64;
/// Connections that are served at once: each is a file that a client of the gateway could need.
const MOST_CONNECTIONS: usize = 256;
/// How long a connection stays open without a request.
const KEEPALIVE_SECONDS: u64 = 60;
/// For a whole head, from the end of the request before it.
const HEAD_LIMIT: Duration = Duration::from_secs(KEEPALIVE_SECONDS + 15);
/// The same for whoever is not admitted, and is told so then.
const STRANGER_LIMIT: Duration = Duration::from_secs(2);
/// Bytes of an answer that are written at once.
const PIECE: usize = 64 * 1024;
/// For a whole body: at the longest one, a slow line's pace.
const BODY_LIMIT: Duration = Duration::from_secs(60);
/// For the store and everything else. Whoever waits longer has given up.
const WORK_LIMIT: Duration = Duration::from_secs(30);
/// Between two writes of an answer.
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// What is read and dropped of a body that was refused: a client that is still sending when the
/// connection goes away never gets to read why.
const MOST_DROPPED: usize = 64 * 1024 * 1024;
/// For that.
const DROP_LIMIT: Duration = Duration::from_secs(10);
/// For a whole answer. A list may be long.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// What is behind an endpoint.
#[async_trait]
pub(crate) trait Api: Send + Sync + 'static {
    /// A request, as far as its head tells.
    type Request: Send;

    /// Whether a client may talk to the listener at all.
    fn admits(&self, client: Option<IpAddr>) -> bool {
        let _ = client;
        true
    }

    /// Looks at a head. Most are answered without a body; one that is not is read, and
    /// [`answer`](Self::answer) gets both.
    fn take(&self, head: &RequestHeader, client: Option<IpAddr>) -> Taken<Self::Request>;

    /// Answers a request with its body.
    async fn answer(&self, request: Self::Request, body: Vec<u8>) -> Answer;

    /// Further fields of an answer to a request with this head.
    fn fields(&self, head: &RequestHeader, answer: &Answer) -> Vec<(&'static str, String)>;
}

/// What a head comes to.
pub(crate) enum Taken<R> {
    /// Everything is said.
    Done(Answer),
    /// The body is to be read, up to this length.
    Read(R, usize),
}

/// See the module.
pub(crate) struct Endpoint<A> {
    api: A,
    room: Semaphore,
    places: Semaphore,
}

impl<A: Api> Endpoint<A> {
    /// An endpoint of this API.
    pub(crate) fn new(api: A) -> Endpoint<A> {
        Endpoint {
            api,
            room: Semaphore::new(MOST_AT_ONCE),
            places: Semaphore::new(MOST_CONNECTIONS),
        }
    }

    async fn respond<'a>(
        &'a self,
        http: &mut ServerSession,
        room: &mut Option<SemaphorePermit<'a>>,
    ) -> Answer {
        if !self.api.admits(client(http)) {
            return Answer::page(403);
        }
        let (request, longest) = match self.api.take(http.req_header(), client(http)) {
            Taken::Done(answer) => return answer,
            Taken::Read(request, longest) => (request, longest),
        };
        match tokio::time::timeout(WORK_LIMIT, self.room.acquire()).await {
            Ok(Ok(permit)) => *room = Some(permit),
            _ => return Answer::error(503, "too many requests at once"),
        }
        let body = match body(http, longest).await {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        let answer = self.api.answer(request, body);
        tokio::time::timeout(WORK_LIMIT, answer)
            .await
            .unwrap_or_else(|_| {
                let text = "no answer came in time; what was asked for may still be done";
                Answer::error(503, text)
            })
    }

    async fn send(&self, http: &mut ServerSession, answer: Answer) -> pingora_core::Result<()> {
        let head_only = http.req_header().method == http::Method::HEAD;
        let mut head = ResponseHeader::build(answer.status, Some(10))?;
        head.insert_header("Content-Type", answer.kind)?;
        if answer.status != 204 {
            head.insert_header("Content-Length", answer.body.len().to_string())?;
        }
        let fields = self.api.fields(http.req_header(), &answer);
        for (name, value) in answer.headers.into_iter().chain(fields) {
            head.insert_header(name, value)?;
        }
        http.write_response_header(Box::new(head)).await?;
        if !head_only && !answer.body.is_empty() {
            // The time limit is for one call.
            let mut body = Bytes::from(answer.body);
            while !body.is_empty() {
                let piece = body.split_to(body.len().min(PIECE));
                http.write_response_body(piece, body.is_empty()).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl<A: Api> HttpServerApp for Endpoint<A> {
    async fn process_new_http(
        self: &Arc<Self>,
        mut http: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let Ok(_place) = self.places.try_acquire() else {
            return None;
        };
        let limit = if self.api.admits(client(&http)) {
            HEAD_LIMIT
        } else {
            STRANGER_LIMIT
        };
        match tokio::time::timeout(limit, http.read_request()).await {
            Ok(Ok(true)) => {}
            // Closed, not HTTP, or too slow: nobody to answer.
            _ => return None,
        }
        let keep = (!*shutdown.borrow()).then_some(KEEPALIVE_SECONDS);
        http.set_keepalive(keep);
        http.set_write_timeout(Some(SEND_LIMIT));
        // Held until the answer is sent, which may be a long list.
        let mut room = None;
        let answer = self.respond(&mut http, &mut room).await;
        // What was not read cannot be told from the next request.
        let unread = !http.is_body_done();
        if unread {
            http.set_keepalive(None);
        }
        let sent = tokio::time::timeout(ANSWER_LIMIT, self.send(&mut http, answer)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return None;
        }
        if unread {
            // However it ends, the connection does.
            let _ = tokio::time::timeout(DROP_LIMIT, drop_body(&mut http)).await;
        }
        let persistent = HttpPersistentSettings::for_session(&http);
        let reused = tokio::time::timeout(ANSWER_LIMIT, http.finish())
            .await
            .ok()?
            .ok()?;
        reused.map(|stream| ReusedHttpStream::from_reusable_stream(stream, persistent))
    }
}

fn client(http: &ServerSession) -> Option<IpAddr> {
    http.client_addr()
        .and_then(|addr| Some(addr.as_inet()?.ip()))
}

/// The whole body, if it is not too long.
async fn body(http: &mut ServerSession, longest: usize) -> Result<Vec<u8>, Answer> {
    let head = http.req_header();
    let length = head.headers.get(http::header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = length.filter(|length| *length > longest as u64) {
        return Err(too_long(length, longest));
    }
    let expects = head.headers.get(http::header::EXPECT).is_some();
    let read = async {
        if expects {
            http.write_continue_response().await?;
        }
        let mut body = Vec::new();
        while let Some(piece) = http.read_request_body().await? {
            body.extend_from_slice(&piece);
            if body.len() > longest {
                break;
            }
        }
        Ok::<_, Box<pingora_core::Error>>(body)
    };
    match tokio::time::timeout(BODY_LIMIT, read).await {
        Ok(Ok(body)) if body.len() > longest => Err(too_long(body.len() as u64, longest)),
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) => Err(Answer::bad(format!(
            "invalid request body: {}",
            error.etype().as_str()
        ))),
        Err(_) => Err(Answer::error(
            408,
            "invalid request body: it did not come in time",
        )),
    }
}

/// Reads what is still coming, up to a limit.
async fn drop_body(http: &mut ServerSession) {
    let mut dropped = 0;
    while let Ok(Some(piece)) = http.read_request_body().await {
        dropped += piece.len();
        if dropped > MOST_DROPPED {
            return;
        }
    }
}

fn too_long(length: u64, longest: usize) -> Answer {
    Answer::bad(format!(
        "invalid request body: request size {length} is greater than the maximum size {longest} allowed"
    ))
}
