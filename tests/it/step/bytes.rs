//! A step as it goes on the wire.

use anyhow::{Context, Result};

use super::Step;
use crate::client::{Message, http2, websocket};

impl Step {
    /// The request as HTTP/1 bytes.
    pub(crate) fn message(&self, mark: &str) -> Message {
        let mut head = format!("{} {} HTTP/{}\r\n", self.method, self.target, self.version);
        for (name, value) in self.fields(mark) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut body = Vec::new();
        if self.chunked {
            for piece in &self.pieces {
                body.extend(format!("{:x}\r\n", piece.len()).bytes());
                body.extend(piece);
                body.extend(b"\r\n");
            }
            body.extend(b"0\r\n");
            for (name, value) in &self.trailers {
                body.extend(format!("{name}: {value}\r\n").bytes());
            }
            body.extend(b"\r\n");
        } else {
            body.extend(self.pieces.iter().flatten());
        }
        let waits = self.has("expect");
        Message {
            method: self.method.clone(),
            head: head.into_bytes(),
            body,
            waits,
        }
    }

    /// The request for HTTP/2.
    pub(crate) fn http2(&self, mark: &str) -> Result<http2::Request> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = self.host.as_deref().context("HTTP/2 needs a host")?;
        let mut head = http::Request::builder()
            .method(self.method.as_str())
            .uri(format!("{scheme}://{host}{}", self.target));
        for (name, value) in self.fields(mark) {
            let lower = name.to_ascii_lowercase();
            if !["host", "content-length", "transfer-encoding"].contains(&lower.as_str()) {
                head = head.header(name, value);
            }
        }
        let mut trailers = http::HeaderMap::new();
        for (name, value) in &self.trailers {
            trailers.insert(http::HeaderName::try_from(name)?, value.parse()?);
        }
        Ok(http2::Request {
            head: head.body(())?,
            body: self.pieces.clone(),
            trailers,
        })
    }

    fn has(&self, name: &str) -> bool {
        self.headers
            .iter()
            .any(|(n, _)| n.eq_ignore_ascii_case(name))
    }

    /// All fields: our own first, then the case's; a `null` in the case removes one of ours.
    fn fields(&self, mark: &str) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut ours = |name: &str, value: &str| {
            if !self.has(name) {
                out.push((name.to_owned(), value.to_owned()));
            }
        };
        if let Some(host) = &self.host {
            ours("Host", host);
        }
        ours("User-Agent", "lockgate-it");
        ours("x-case", mark);
        if self.websocket.is_some() {
            ours("Upgrade", "websocket");
            ours("Connection", "Upgrade");
            ours("Sec-WebSocket-Version", "13");
            ours("Sec-WebSocket-Key", websocket::KEY);
        }
        let length: usize = self.pieces.iter().map(Vec::len).sum();
        if self.chunked {
            ours("Transfer-Encoding", "chunked");
        } else if length > 0 || ["POST", "PUT", "PATCH"].contains(&self.method.as_str()) {
            ours("Content-Length", &length.to_string());
        }
        let theirs =
            |(name, value): &(String, Option<String>)| Some((name.clone(), value.clone()?));
        out.extend(self.headers.iter().filter_map(theirs));
        out
    }
}
