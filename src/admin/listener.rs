//! HTTP of the Admin API: reads a request within deadlines, writes the answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_http::ResponseHeader;
use tokio::sync::SemaphorePermit;

use super::Admin;
use super::answer::Answer;
use super::request::{MAX_BODY, Request};
use super::standalone::MAX_CONFIGURATION;

/// How long a connection stays open without a request.
const KEEPALIVE_SECONDS: u64 = 60;
/// For a whole head, from the end of the request before it.
const HEAD_LIMIT: Duration = Duration::from_secs(KEEPALIVE_SECONDS + 15);
/// The same for whoever is not in `allow_admin`, and is told so then.
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

/// The CORS answer to a question in advance.
const PREFLIGHT: [(&str, &str); 5] = [
    ("Access-Control-Allow-Origin", "*"),
    (
        "Access-Control-Allow-Methods",
        "POST, GET, PUT, OPTIONS, DELETE, PATCH",
    ),
    ("Access-Control-Max-Age", "3600"),
    ("Access-Control-Allow-Headers", "*"),
    ("Access-Control-Allow-Credentials", "true"),
];
/// What other answers carry.
const SHARED: [(&str, &str); 4] = [
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Credentials", "true"),
    ("Access-Control-Expose-Headers", "*"),
    ("Access-Control-Max-Age", "3600"),
];

#[async_trait]
impl HttpServerApp for Admin {
    async fn process_new_http(
        self: &Arc<Self>,
        mut http: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let Ok(_place) = self.places.try_acquire() else {
            return None;
        };
        let client = http
            .client_addr()
            .and_then(|addr| Some(addr.as_inet()?.ip()));
        let limit = if self.access.admits(client) {
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

impl Admin {
    async fn respond<'a>(
        &'a self,
        http: &mut ServerSession,
        room: &mut Option<SemaphorePermit<'a>>,
    ) -> Answer {
        let client = http
            .client_addr()
            .and_then(|addr| Some(addr.as_inet()?.ip()));
        if !self.access.admits(client) {
            return Answer::page(403);
        }
        let head = http.req_header();
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        let Some(mut request) = Request::new(head.method.as_str(), path, query, now()) else {
            return Answer::page(404);
        };
        if request.method == "OPTIONS" && self.cors {
            return Answer::text(200, "").unversioned();
        }
        if request.method == "HEAD" && request.segment(0).is_none() {
            return Answer::text(200, "").unversioned();
        }
        let role = self
            .access
            .check(key(http, &request).as_deref(), &request.method);
        match role {
            Ok(role) => request.role = role,
            Err(answer) => return answer,
        }
        match tokio::time::timeout(WORK_LIMIT, self.room.acquire()).await {
            Ok(Ok(permit)) => *room = Some(permit),
            _ => return Answer::error(503, "too many requests at once"),
        }
        request.yaml = is_yaml(http, http::header::CONTENT_TYPE);
        request.accepts_yaml = is_yaml(http, http::header::ACCEPT);
        let digest = http.req_header().headers.get("x-digest");
        request.digest = digest.and_then(|text| Some(text.to_str().ok()?.to_owned()));
        let whole = self.standalone.is_some() && request.segment(0) == Some("configs");
        let longest = if whole { MAX_CONFIGURATION } else { MAX_BODY };
        request.body = match body(http, longest).await {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        match tokio::time::timeout(WORK_LIMIT, self.answer(&request)).await {
            Ok(answer) => answer,
            Err(_) => Answer::error(
                503,
                "the store did not answer in time; what was asked for may still be done",
            ),
        }
    }

    async fn send(&self, http: &mut ServerSession, answer: Answer) -> pingora_core::Result<()> {
        let options = http.req_header().method == http::Method::OPTIONS && answer.status == 200;
        let head_only = http.req_header().method == http::Method::HEAD;
        let mut head = ResponseHeader::build(answer.status, Some(10))?;
        head.insert_header("Server", self.server_token.as_str())?;
        let kind = match (options, answer.html) {
            (true, _) => "text/plain",
            (_, true) => "text/html",
            _ => "application/json",
        };
        head.insert_header("Content-Type", kind)?;
        if answer.status != 204 {
            head.insert_header("Content-Length", answer.body.len().to_string())?;
        }
        for (name, value) in answer.headers {
            head.insert_header(name, value)?;
        }
        if answer.versioned {
            head.insert_header("X-API-VERSION", "v3")?;
        }
        if self.cors && !answer.html {
            let fields: &[(&str, &str)] = if options { &PREFLIGHT } else { &SHARED };
            for (name, value) in fields {
                head.insert_header((*name).to_owned(), *value)?;
            }
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

/// The key: of the query, else of the header, else of the cookie. Source: APISIX.
fn key(http: &ServerSession, request: &Request) -> Option<String> {
    if let Some(key) = request.arg("api_key") {
        return Some(key.to_owned());
    }
    let headers = &http.req_header().headers;
    // nginx takes both for the same.
    if let Some(key) = headers
        .get("x-api-key")
        .or_else(|| headers.get("x_api_key"))
    {
        return Some(String::from_utf8_lossy(key.as_bytes()).into_owned());
    }
    let cookies = headers.get_all(http::header::COOKIE).iter();
    cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == "x_api_key")
        .map(|(_, value)| value.to_owned())
}

fn is_yaml(http: &ServerSession, name: http::HeaderName) -> bool {
    let kind = http.req_header().headers.get(name);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    ["application/yaml", "application/x-yaml", "text/yaml"]
        .iter()
        .any(|yaml| kind.starts_with(yaml))
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

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}
