//! What comes back.

use bytes::Bytes;
use serde_json::Value;

use super::head::{Fields, Resp};
use crate::reply::{Body, Reply};
use crate::request::Work;

/// Head and body of a reply. A repeated name replaces the first time and adds from then on, as in
/// the proxy; there is no default content type here.
pub(super) fn parts(reply: &Reply) -> (Resp, Bytes) {
    let mut fields = Fields::default();
    for (key, value) in &reply.headers {
        fields.add(key.spelled(), value);
    }
    let body = match &reply.body {
        Body::Stock => Bytes::new(),
        Body::Bytes(bytes) => bytes.clone(),
    };
    (
        Resp {
            status: reply.status,
            fields,
        },
        body,
    )
}

/// What the client gets.
#[derive(Debug)]
pub struct Answer {
    pub(super) status: u16,
    pub(super) fields: Fields,
    pub(super) body: Bytes,
    pub(super) stock: bool,
    pub(super) reason: &'static str,
    pub(super) errors: Vec<String>,
    pub(super) cut: bool,
}

impl Answer {
    pub(super) fn of(reply: &Reply, work: &Work) -> Answer {
        let (head, body) = parts(reply);
        Answer {
            status: reply.status,
            fields: head.fields.edited(&work.response.headers),
            body,
            stock: matches!(reply.body, Body::Stock),
            reason: reply.reason,
            errors: Vec::new(),
            cut: false,
        }
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers(name).into_iter().next()
    }

    /// Every value of a header.
    pub fn headers(&self, name: &str) -> Vec<String> {
        self.fields.texts(name)
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; fails the test when it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    /// Whether the gateway puts its stock page in place of the body.
    pub fn is_stock(&self) -> bool {
        self.stock
    }

    /// Why the plugin answered, for the log.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Failures of header and body filters.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Whether a body filter failed, so that the client's connection is cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }
}
