//! Writes the gateway's own answers on the general lane.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, header};
use lockgate_plugin::{Body, Chunk, Origin, Phase, Reply};
use pingora_core::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::core::Core;
use super::fault::{Fault, FaultKind, stock_page};
use super::general::{Lane, finish_head};
use super::view::{Req, Resp};

/// How long an unread request body is drained before the connection is given up, so that a client
/// that was refused cannot hold it with its upload.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// Answers a failure.
///
/// # Errors
/// When the client cannot be written to.
pub async fn fault(
    core: &Core,
    session: &mut Session,
    lane: &mut Lane,
    fault: Fault,
) -> Result<()> {
    if !fault.cause.is_empty() {
        tracing::debug!(reason = fault.kind.reason(), cause = %fault.cause, "request failed");
    }
    if matches!(fault.kind, FaultKind::BodyTooLarge | FaultKind::BadRequest) {
        session.as_downstream_mut().set_keepalive(None);
    }
    reply(core, session, lane, fault.kind.reply()).await
}

/// Answers with a reply: header filters, head, body filters, body.
///
/// # Errors
/// When the client cannot be written to.
pub async fn reply(
    core: &Core,
    session: &mut Session,
    lane: &mut Lane,
    reply: Reply,
) -> Result<()> {
    let Some(exchange) = lane.exchange_mut() else {
        return Ok(());
    };
    exchange.work.reason = reply.reason;
    let (body, kind) = match reply.body {
        Body::Bytes(bytes) => (bytes, "text/plain"),
        Body::Stock => match stock_page(reply.status) {
            Some(page) => (Bytes::from(page), "text/html"),
            None => (Bytes::new(), "text/plain"),
        },
    };
    let no_body = reply.status == 204 || reply.status == 304;
    let mut resp = ResponseHeader::build(reply.status, Some(8))?;
    if !no_body && !body.is_empty() {
        let value = match &core.charset {
            Some(charset) => format!("{kind}; charset={charset}"),
            None => kind.to_owned(),
        };
        resp.insert_header(header::CONTENT_TYPE, value)?;
    }
    let mut seen = Vec::with_capacity(reply.headers.len());
    for (key, value) in &reply.headers {
        let name = key.spelled_bytes().clone();
        // The first value replaces a default, further ones are added.
        if seen.contains(&key) {
            resp.append_header(name, &value[..])?;
        } else {
            resp.insert_header(name, &value[..])?;
            seen.push(key);
        }
    }
    if !no_body {
        resp.insert_header(header::CONTENT_LENGTH, body.len().to_string())?;
    }
    finish_head(core, session, exchange, &mut resp, Origin::Gateway)?;

    let mut chunk = Chunk {
        data: body,
        last: true,
    };
    if !no_body && exchange.filters(Phase::BodyFilter) {
        let filtered = exchange.response_body(
            &Req::new(session.req_header()),
            Some(&Resp(&resp)),
            &mut chunk,
        );
        if filtered.is_err() {
            chunk.data = Bytes::new();
        }
        // The whole body is here, so its length is known whatever the filters did.
        resp.remove_header(&header::TRANSFER_ENCODING);
        resp.insert_header(header::CONTENT_LENGTH, chunk.data.len().to_string())?;
    } else if !no_body && exchange.work.response.resize {
        resp.remove_header(&header::TRANSFER_ENCODING);
        resp.insert_header(header::CONTENT_LENGTH, chunk.data.len().to_string())?;
    }
    let head_only = no_body || session.req_header().method == Method::HEAD || chunk.data.is_empty();
    session
        .write_response_header(Box::new(resp), head_only)
        .await?;
    if !head_only {
        session.write_response_body(Some(chunk.data), true).await?;
    }
    Ok(())
}
