//! The Admin API behind its endpoint: who is let in, and what answers carry.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use http::{HeaderName, Method, header};
use pingora_http::RequestHeader;

use super::Admin;
use super::access::Use;
use super::explained::{self, Own};
use super::request::{MAX_BODY, Request};
use super::standalone::MAX_CONFIGURATION;
use crate::endpoint::{Answer, Api, HTML, Taken};
use crate::explain::MAX_QUESTION;

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

/// What is asked of the listener.
pub(crate) enum Wanted {
    /// Below `/apisix/admin`.
    Admin(Request),
    /// Below `/lockgate/v1`.
    Own(Own),
}

#[async_trait]
impl Api for Admin {
    type Request = Wanted;

    fn admits(&self, client: Option<IpAddr>) -> bool {
        self.access.admits(client)
    }

    fn take(&self, head: &RequestHeader, client: Option<IpAddr>) -> Taken<Wanted> {
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        let method = head.method.as_str();
        let preflight = method == "OPTIONS" && self.cors;
        let own = explained::own(method, path);
        if own.is_some() && preflight {
            return Taken::Done(Answer::text(200, "").unversioned());
        }
        if let Some(own) = own {
            // Whatever its method, it changes nothing.
            return match self.access.check(key(head, query).as_deref(), Use::Read) {
                Ok(_) => match own {
                    Ok(own) => Taken::Read(Wanted::Own(own), MAX_QUESTION),
                    Err(answer) => Taken::Done(answer),
                },
                Err(answer) => Taken::Done(answer),
            };
        }
        let Some(mut request) = Request::new(method, path, query, now()) else {
            return Taken::Done(Answer::page(404));
        };
        request.client = client;
        if preflight || (method == "HEAD" && request.segment(0).is_none()) {
            return Taken::Done(Answer::text(200, "").unversioned());
        }
        let use_of = if request.only_reads() {
            Use::Read
        } else {
            Use::Write
        };
        match self.access.check(key(head, query).as_deref(), use_of) {
            Ok((role, name)) => (request.role, request.who) = (role, name),
            Err(answer) => return Taken::Done(answer),
        }
        request.yaml = is_yaml(head, header::CONTENT_TYPE);
        request.accepts_yaml = is_yaml(head, header::ACCEPT);
        let digest = head.headers.get("x-digest");
        request.digest = digest.and_then(|text| Some(text.to_str().ok()?.to_owned()));
        let whole = self.standalone.is_some() && request.segment(0) == Some("configs");
        let mut longest = if whole { MAX_CONFIGURATION } else { MAX_BODY };
        if request.may_be_large() && length(head) > MAX_BODY {
            let Ok(permit) = Arc::clone(&self.large).try_acquire_owned() else {
                return Taken::Done(Answer::error(503, "too many large requests at once"));
            };
            request.large = Some(permit);
            longest = MAX_CONFIGURATION;
        }
        Taken::Read(Wanted::Admin(request), longest)
    }

    async fn answer(&self, wanted: Wanted, body: Vec<u8>) -> Answer {
        match wanted {
            Wanted::Admin(mut request) => {
                request.body = body;
                self.respond(&request).await
            }
            Wanted::Own(Own::Explain) => self.explain(&body),
        }
    }

    fn fields(&self, head: &RequestHeader, answer: &Answer) -> Vec<(&'static str, String)> {
        let mut fields = vec![("Server", self.server_token.clone())];
        if answer.versioned {
            fields.push(("X-API-VERSION", "v3".to_owned()));
        }
        let options = head.method == Method::OPTIONS && answer.status == 200;
        if options {
            fields.push(("Content-Type", "text/plain".to_owned()));
        }
        if self.cors && answer.kind != HTML {
            let more: &[(&str, &str)] = if options { &PREFLIGHT } else { &SHARED };
            fields.extend(
                more.iter()
                    .map(|(name, value)| (*name, (*value).to_owned())),
            );
        }
        fields
    }
}

/// The key: of the query, else of the header, else of the cookie. Source: APISIX.
fn key(head: &RequestHeader, query: &str) -> Option<String> {
    if let Some(key) = super::request::arg(query, "api_key") {
        return Some(key);
    }
    let headers = &head.headers;
    // nginx takes both for the same.
    if let Some(key) = headers
        .get("x-api-key")
        .or_else(|| headers.get("x_api_key"))
    {
        return Some(String::from_utf8_lossy(key.as_bytes()).into_owned());
    }
    let cookies = headers.get_all(header::COOKIE).iter();
    cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == "x_api_key")
        .map(|(_, value)| value.to_owned())
}

fn is_yaml(head: &RequestHeader, name: HeaderName) -> bool {
    let kind = head.headers.get(name);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    ["application/yaml", "application/x-yaml", "text/yaml"]
        .iter()
        .any(|yaml| kind.starts_with(yaml))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}

/// How long a body says it is.
fn length(head: &RequestHeader) -> usize {
    let length = head.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    length.unwrap_or(0)
}
