//! HTTP/2 exchanges: cleartext with prior knowledge, or over TLS with ALPN.

use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::time::timeout;

use super::{Answer, DEADLINE, Target, connect};

/// A request for HTTP/2.
pub(crate) struct Request {
    /// Method, absolute URI and fields.
    pub(crate) head: http::Request<()>,
    /// Pieces of the body.
    pub(crate) body: Vec<Vec<u8>>,
    /// Fields after the body.
    pub(crate) trailers: http::HeaderMap,
}

/// One request on a connection of its own.
pub(crate) async fn exchange(target: &Target, request: Request) -> Answer {
    let start = Instant::now();
    let mut answer = match timeout(DEADLINE, run(target, request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Answer::failed(&error),
        Err(_) => Answer::failed(&anyhow::anyhow!("no complete answer within {DEADLINE:?}")),
    };
    answer.took = start.elapsed();
    answer
}

async fn run(target: &Target, request: Request) -> Result<Answer> {
    let (stream, certificate) = connect(target).await?;
    let (send, connection) = h2::client::handshake(stream)
        .await
        .context("HTTP/2 handshake")?;
    // Ends with the connection, when `send` and the streams are dropped.
    let driver = tokio::spawn(connection);
    let mut send = send.ready().await.context("HTTP/2 connection")?;
    let empty = request.body.is_empty() && request.trailers.is_empty();
    let (response, mut body) = send.send_request(request.head, empty)?;
    if !empty {
        let last = request.body.len();
        for (at, piece) in request.body.into_iter().enumerate() {
            let end = at + 1 == last && request.trailers.is_empty();
            send_piece(&mut body, Bytes::from(piece), end).await?;
        }
        if !request.trailers.is_empty() {
            body.send_trailers(request.trailers)?;
        }
    }
    let (head, mut body) = response
        .await
        .context("waiting for the answer")?
        .into_parts();
    let mut answer = Answer {
        status: Some(head.status.as_u16()),
        version: "HTTP/2".to_owned(),
        headers: fields(&head.headers),
        certificate,
        ..Answer::default()
    };
    while let Some(piece) = body.data().await {
        match piece {
            Ok(piece) => {
                body.flow_control().release_capacity(piece.len())?;
                answer.body.extend_from_slice(&piece);
            }
            Err(error) => {
                answer.cut = true;
                answer.error = Some(error.to_string());
                break;
            }
        }
    }
    if !answer.cut
        && let Some(trailers) = body.trailers().await?
    {
        answer.trailers = fields(&trailers);
    }
    drop(send);
    driver.abort();
    Ok(answer)
}

/// Sends as the peer's window allows.
async fn send_piece(body: &mut h2::SendStream<Bytes>, mut piece: Bytes, end: bool) -> Result<()> {
    while !piece.is_empty() {
        body.reserve_capacity(piece.len());
        let granted = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
        let granted = granted
            .context("the stream ended while sending")??
            .min(piece.len());
        let now = piece.split_to(granted);
        let last = end && piece.is_empty();
        body.send_data(now, last)?;
    }
    Ok(())
}

fn fields(map: &http::HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}
