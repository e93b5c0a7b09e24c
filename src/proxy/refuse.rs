//! Heads that break the rules: answered, logged, and the connection closed.

use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::{Conn, HeaderKey, ReqView};
use tokio::io::AsyncWriteExt;

use super::core::{Core, Counted};
use super::fault::{FaultKind, stock_page};
use super::pipeline::Exchange;
use super::request_head::{Refusal, request_line};
use super::wire::answer::linger;
use crate::link::Link;

/// How long a refused client may take to read its answer.
pub const REFUSAL_LIMIT: Duration = Duration::from_secs(2);

/// Answers a head that breaks the rules, logs it, and closes.
pub async fn refuse(core: &Arc<Core>, mut link: Link, conn: Conn, buf: &[u8], refusal: &Refusal) {
    let _counted = Counted::request(&core.stats);
    let body = stock_page(refusal.status).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} {}\r\nServer: {}\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
        refusal.status,
        http::StatusCode::from_u16(refusal.status)
            .ok()
            .and_then(|s| s.canonical_reason())
            .unwrap_or(""),
        String::from_utf8_lossy(&core.server_token),
        body.len(),
    );
    let sent = match request_line(buf).0 {
        b"HEAD" => "",
        _ => &body[..],
    };
    let write = async {
        link.write_all(head.as_bytes()).await?;
        link.write_all(sent.as_bytes()).await?;
        link.flush().await
    };
    let _ = pingora_timeout::timeout(REFUSAL_LIMIT, write).await;
    let view = RefusedHead::new(buf);
    let (mut exchange, _) = Exchange::begin(core, conn, &view);
    exchange.work.status = refusal.status;
    exchange.work.reason = refusal.why;
    exchange.work.sent_body = sent.len() as u64;
    exchange.work.sent_bytes = (head.len() + sent.len()) as u64;
    exchange.finish(core, &view, None);
    if refusal.kind != FaultKind::SlowHead {
        // Whoever is still sending would be told of a reset before the answer.
        let _ = pingora_timeout::timeout(REFUSAL_LIMIT, linger(&mut link)).await;
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
