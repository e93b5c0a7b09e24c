//! What the test upstream answers, chosen by path. The list is in `tests/cases/README.md`.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use super::write::{Head, chunk, decode, many};
use super::{Lines, Peer, Request, Stream};
use crate::client::websocket;

/// What happens to the connection when it does not go on.
pub(super) enum After {
    /// An orderly end.
    Close,
    /// RST.
    Reset,
}

/// Answers that do not wait for the body.
pub(super) async fn before_body<S: Stream>(
    out: &mut Lines<S>,
    request: &Request,
    peer: &Peer,
) -> Result<Option<After>> {
    match request.last_segment() {
        "reset" => Ok(Some(After::Reset)),
        "early-413" => {
            let head = Head::new(413, peer).with("Connection: close").length(10);
            out.write(&head.body(b"too large\n")).await?;
            Ok(Some(After::Close))
        }
        _ => Ok(None),
    }
}

/// The answer to a request read in full; `None` when the connection can go on.
pub(super) async fn answer<S: Stream>(
    out: &mut Lines<S>,
    request: &Request,
    peer: &Peer,
) -> Result<Option<After>> {
    let segments: Vec<&str> = request
        .path()
        .split('/')
        .filter(|s| !s.is_empty())
        .collect();
    let (verb, first, second) = verb(&segments);
    let ok = || Head::new(200, peer);
    match verb {
        "status" => status(out, request, peer, u16::try_from(first)?).await?,
        "delay" => {
            tokio::time::sleep(Duration::from_millis(first)).await;
            echo(out, request, peer).await?;
        }
        "drip" => {
            out.write(&ok().with("Transfer-Encoding: chunked").end())
                .await?;
            for n in 1..=first {
                tokio::time::sleep(Duration::from_millis(second)).await;
                out.write(&chunk(format!("piece-{n}\n").as_bytes())).await?;
            }
            out.write(b"0\r\n\r\n").await?;
        }
        "sse" => {
            let head = ok().with("Content-Type: text/event-stream");
            out.write(&head.with("Transfer-Encoding: chunked").end())
                .await?;
            for n in 1..=first {
                out.write(&chunk(format!("data: {n}\n\n").as_bytes()))
                    .await?;
            }
            out.write(b"0\r\n\r\n").await?;
        }
        "bytes" => {
            let head = ok().with("Content-Type: application/octet-stream");
            out.write(&head.length(usize::try_from(first)?).end())
                .await?;
            if request.method != "HEAD" {
                many(out, first, false).await?;
            }
        }
        "chunked" => {
            out.write(&ok().with("Transfer-Encoding: chunked").end())
                .await?;
            many(out, first, true).await?;
            out.write(b"0\r\n\r\n").await?;
        }
        "trailers" => {
            let head = ok()
                .with("Transfer-Encoding: chunked")
                .with("Trailer: x-check")
                .end();
            out.write(&head).await?;
            out.write(b"5\r\nhello\r\n0\r\nx-check: done\r\n\r\n")
                .await?;
        }
        "no-length" => {
            out.write(&ok().with("Connection: close").end()).await?;
            many(out, first, false).await?;
            return Ok(Some(After::Close));
        }
        "huge-header" => {
            let name = format!("X-Huge: {}", "h".repeat(usize::try_from(first)?));
            out.write(&ok().with(&name).length(3).body(b"ok\n")).await?;
        }
        "flaky" => {
            let key = segments.iter().rev().nth(1).copied().unwrap_or_default();
            if peer.recorder.bump(key) < first {
                status(out, request, peer, 503).await?;
            } else {
                echo(out, request, peer).await?;
            }
        }
        "health" => health(out, request, peer, &segments).await?,
        "set-header" | "body" | "gzip" => plain(out, verb, request, peer).await?,
        "websocket" => return upgrade(out, request, peer).await.map(Some),
        _ => return odd(out, verb, request, peer).await,
    }
    Ok(None)
}

/// Answers that break the rules, and the echo for everything unknown.
async fn odd<S: Stream>(
    out: &mut Lines<S>,
    verb: &str,
    request: &Request,
    peer: &Peer,
) -> Result<Option<After>> {
    let ok = || Head::new(200, peer);
    match verb {
        "1xx" => {
            // What it says of its connection is not for the client, and must not reach it.
            out.write(
                b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x-own\r\n\
                  X-Own: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            )
            .await?;
            echo(out, request, peer).await?;
            Ok(None)
        }
        "reset-mid-body" => {
            out.write(&ok().length(1000).body(&[b'x'; 500])).await?;
            // Long enough for the gateway to forward the first half.
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(Some(After::Reset))
        }
        "no-answer" => Ok(Some(After::Close)),
        "cut-chunked" => {
            out.write(&ok().with("Transfer-Encoding: chunked").end())
                .await?;
            out.write(&chunk(b"first")).await?;
            Ok(Some(After::Close))
        }
        "garbage" => {
            out.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n").await?;
            Ok(Some(After::Close))
        }
        "te-and-cl" => {
            let head = ok().with("Transfer-Encoding: chunked").length(5).end();
            out.write(&head).await?;
            out.write(b"5\r\nhello\r\n0\r\n\r\n").await?;
            Ok(Some(After::Close))
        }
        "two-cl" => {
            out.write(&ok().length(5).length(7).body(b"hello")).await?;
            Ok(Some(After::Close))
        }
        _ => {
            echo(out, request, peer).await?;
            Ok(None)
        }
    }
}

/// The last known word of the path with the numbers after it.
fn verb<'a>(segments: &[&'a str]) -> (&'a str, u64, u64) {
    const NUMBERED: [&str; 8] = [
        "status",
        "delay",
        "bytes",
        "chunked",
        "no-length",
        "huge-header",
        "sse",
        "drip",
    ];
    let number = |at: usize| segments.get(at).and_then(|s| s.parse().ok());
    for (at, segment) in segments.iter().enumerate().rev() {
        let (first, second) = (number(at + 1), number(at + 2));
        match *segment {
            "flaky" => return (segment, number(at + 2).unwrap_or(0), 0),
            "health" if at + 1 < segments.len() => return (segment, 0, 0),
            word if NUMBERED.contains(&word) => {
                if let Some(first) = first {
                    return (word, first, second.unwrap_or(0));
                }
            }
            _ => {}
        }
    }
    (segments.last().copied().unwrap_or_default(), 0, 0)
}

async fn status<S: Stream>(
    out: &mut Lines<S>,
    request: &Request,
    peer: &Peer,
    code: u16,
) -> Result<()> {
    if matches!(code, 204 | 304) {
        return out.write(&Head::new(code, peer).end()).await;
    }
    let body = format!("{code}\n");
    let head = Head::new(code, peer)
        .with("Content-Type: text/plain")
        .length(body.len());
    let body = if request.method == "HEAD" {
        &[]
    } else {
        body.as_bytes()
    };
    out.write(&head.body(body)).await
}

async fn health<S: Stream>(
    out: &mut Lines<S>,
    request: &Request,
    peer: &Peer,
    segments: &[&str],
) -> Result<()> {
    let at = segments.iter().rposition(|s| *s == "health").unwrap_or(0);
    let key = format!(
        "health {} {}",
        peer.label,
        segments.get(at + 1).unwrap_or(&"")
    );
    if let (Some(&"set"), Some(code)) = (segments.get(at + 2), segments.get(at + 3)) {
        peer.recorder
            .set(&key, code.parse().context("status code")?);
        return status(out, request, peer, 200).await;
    }
    let code = peer.recorder.get(&key).unwrap_or(200);
    status(out, request, peer, u16::try_from(code)?).await
}

async fn plain<S: Stream>(
    out: &mut Lines<S>,
    verb: &str,
    request: &Request,
    peer: &Peer,
) -> Result<()> {
    let query = request.target.split_once('?').map_or("", |(_, q)| q);
    let pairs: Vec<(String, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect();
    let get = |name: &str| {
        pairs
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    let (mut head, body) = match verb {
        "set-header" => {
            let head = Head::new(200, peer);
            (
                pairs
                    .iter()
                    .fold(head, |h, (n, v)| h.with(&format!("{n}: {v}"))),
                b"ok\n".to_vec(),
            )
        }
        "gzip" => {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(b"hello gzip")?;
            let head = Head::new(200, peer).with("Content-Encoding: gzip");
            (head.with("Content-Type: text/plain"), gzip.finish()?)
        }
        _ => {
            let code = get("status").map_or(Ok(200), str::parse)?;
            let kind = format!("Content-Type: {}", get("type").unwrap_or("text/plain"));
            let text = get("text").unwrap_or_default();
            (Head::new(code, peer).with(&kind), text.as_bytes().to_vec())
        }
    };
    head = head.length(body.len());
    out.write(&head.body(if request.method == "HEAD" { &[] } else { &body }))
        .await
}

async fn echo<S: Stream>(out: &mut Lines<S>, request: &Request, peer: &Peer) -> Result<()> {
    let mut headers = Map::new();
    for (name, value) in &request.headers {
        let list = headers.entry(name.clone()).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(json!(value));
        }
    }
    let trailers: Map<String, Value> = request
        .trailers
        .iter()
        .map(|(n, v)| (n.clone(), json!(v)))
        .collect();
    let body = json!({
        "method": request.method, "uri": request.target, "version": request.version,
        "headers": headers, "trailers": trailers,
        "body": String::from_utf8_lossy(&request.body[..request.body.len().min(64 * 1024)]),
        "body_size": request.body.len(),
        "server": peer.label, "port": peer.port, "remote": peer.remote.to_string(),
    });
    let body = format!("{body}\n");
    let head = Head::new(200, peer)
        .with("Content-Type: application/json")
        .length(body.len());
    out.write(&head.body(if request.method == "HEAD" {
        &[]
    } else {
        body.as_bytes()
    }))
    .await
}

async fn upgrade<S: Stream>(out: &mut Lines<S>, request: &Request, peer: &Peer) -> Result<After> {
    let Some(key) = request.header("sec-websocket-key") else {
        status(out, request, peer, 400).await?;
        return Ok(After::Close);
    };
    let accept = format!("Sec-WebSocket-Accept: {}", websocket::accept_key(key));
    let head = Head::new(101, peer)
        .with("Upgrade: websocket")
        .with("Connection: Upgrade");
    out.write(&head.with(&accept).end()).await?;
    websocket::serve_echo(out).await?;
    Ok(After::Close)
}
