//! The gateway's own answers, before a lane writes them.

use bytes::Bytes;
use lockgate_plugin::{Body, Chunk, HeaderKey, Origin, Phase, Reply, ReqView, RespView};
use smallvec::SmallVec;

use super::core::Core;
use super::fault::{Fault, stock_page};
use super::head::{self, names};
use super::pipeline::Exchange;

/// An answer with its head and its whole body.
pub struct Local {
    /// The status as answered; a plugin may have asked for another since.
    status: u16,
    fields: SmallVec<[(HeaderKey, Bytes); 4]>,
    /// The body; empty where the status has none.
    pub body: Bytes,
}

/// Says in the log what failed, and gives the answer for it.
pub fn reply_to(fault: &Fault) -> Reply {
    if !fault.cause.is_empty() {
        tracing::debug!(reason = fault.kind.reason(), cause = %fault.cause, "request failed");
    }
    fault.kind.reply()
}

/// Makes an answer: head, header filters, body filters. The length is not in it yet.
pub fn answer(core: &Core, exchange: &mut Exchange, req: &dyn ReqView, reply: Reply) -> Local {
    exchange.work.reason = reply.reason;
    let (body, kind) = match reply.body {
        Body::Bytes(bytes) => (bytes, "text/plain"),
        Body::Stock => match stock_page(reply.status) {
            Some(page) => (Bytes::from(page), "text/html"),
            None => (Bytes::new(), "text/plain"),
        },
    };
    let mut local = Local {
        status: reply.status,
        fields: SmallVec::new(),
        body: if has_body(reply.status) {
            body
        } else {
            Bytes::new()
        },
    };
    let typed = |(key, _): &(HeaderKey, Bytes)| *key == names().content_type;
    if !local.body.is_empty() && !reply.headers.iter().any(typed) {
        let value = match &core.charset {
            Some(charset) => Bytes::from(format!("{kind}; charset={charset}")),
            None => Bytes::from_static(kind.as_bytes()),
        };
        local.fields.push((names().content_type.clone(), value));
    }
    local.fields.extend(reply.headers);
    head::response_edits(core, exchange);
    exchange.response_head(req, &local, Origin::Gateway);
    if has_body(local.status) && exchange.filters(Phase::BodyFilter) {
        let mut chunk = Chunk {
            data: std::mem::take(&mut local.body),
            last: true,
        };
        let filtered = exchange.response_body(req, Some(&local), &mut chunk);
        local.body = if filtered.is_ok() {
            chunk.data
        } else {
            Bytes::new()
        };
    }
    local
}

/// Whether an answer of this status has a body.
pub fn has_body(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

impl Local {
    /// The fields, in order; a name may occur several times.
    pub fn fields(&self) -> &[(HeaderKey, Bytes)] {
        &self.fields
    }
}

impl RespView for Local {
    fn status(&self) -> u16 {
        self.status
    }
    fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        let (_, value) = self.fields.iter().find(|(name, _)| name == key)?;
        Some(value)
    }
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        for (_, value) in self.fields.iter().filter(|(name, _)| name == key) {
            f(value);
        }
    }
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        for (key, value) in &self.fields {
            f(key.lower().as_bytes(), value);
        }
    }
}
