//! Writes the gateway's own answers on the general lane.

use std::time::Duration;

use http::{Method, header};
use lockgate_plugin::Reply;
use pingora_core::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::core::Core;
use super::fault::{Fault, FaultKind};
use super::general::{Lane, apply_edits};
use super::local::{self, has_body};
use super::view::Req;

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
    if matches!(fault.kind, FaultKind::BodyTooLarge | FaultKind::BadRequest) {
        session.as_downstream_mut().set_keepalive(None);
    }
    reply(core, session, lane, local::reply_to(&fault)).await
}

/// Answers with a reply.
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
    let req = Req::new(session.req_header());
    let local = local::answer(core, exchange, &req, reply);
    let status = lockgate_plugin::RespView::status(&local);
    let mut resp = ResponseHeader::build(status, Some(8))?;
    for (key, value) in local.fields() {
        resp.append_header(key.spelled_bytes().clone(), &value[..])?;
    }
    apply_edits(exchange, &mut resp)?;
    let has_body = has_body(resp.status.as_u16());
    // The whole body is here, so its length is known whatever the filters did.
    resp.remove_header(&header::TRANSFER_ENCODING);
    if has_body {
        resp.insert_header(header::CONTENT_LENGTH, local.body.len().to_string())?;
    }
    let head_only =
        !has_body || session.req_header().method == Method::HEAD || local.body.is_empty();
    session
        .write_response_header(Box::new(resp), head_only)
        .await?;
    if !head_only {
        session.write_response_body(Some(local.body), true).await?;
    }
    Ok(())
}
