//! The little of WebSocket (RFC 6455) that the tests need, on both sides: short text frames and the closing handshake.

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::sha::sha1;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::upstream::{Lines, Stream};

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
/// Any mask will do; a fixed one keeps failures readable.
const MASK: [u8; 4] = [1, 2, 3, 4];

/// `Sec-WebSocket-Key` of every test request.
pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The answer to a key (RFC 6455, section 4.2.2).
pub(crate) fn accept_key(key: &str) -> String {
    STANDARD.encode(sha1(
        format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes(),
    ))
}

/// Sends back every text frame until the peer closes.
pub(crate) async fn serve_echo<S: Stream>(lines: &mut Lines<S>) -> Result<()> {
    loop {
        let (kind, payload) = read_frame(lines).await?;
        let frame = frame(kind, &payload, None)?;
        lines.write(&frame).await?;
        if kind == CLOSE {
            return Ok(());
        }
    }
}

/// A text as a client sends it.
pub(crate) fn message(text: &str) -> Result<Vec<u8>> {
    frame(TEXT, text.as_bytes(), Some(MASK))
}

/// Sends each text, unless it is one of the first that were sent before, and wants it back; then
/// closes.
pub(crate) async fn talk<R, W>(
    reader: &mut Lines<R>,
    writer: &mut W,
    texts: &[String],
    before: usize,
) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    for (at, text) in texts.iter().enumerate() {
        if at >= before {
            writer.write_all(&message(text)?).await?;
            writer.flush().await?;
        }
        let (kind, payload) = read_frame(reader).await.context("waiting for the echo")?;
        let got = String::from_utf8_lossy(&payload);
        ensure!(
            kind == TEXT && got == *text,
            "sent {text:?}, got frame {kind} {got:?}"
        );
    }
    writer.write_all(&frame(CLOSE, &[], Some(MASK))?).await?;
    writer.flush().await?;
    let (kind, _) = read_frame(reader)
        .await
        .context("waiting for the close frame")?;
    ensure!(kind == CLOSE, "wanted a close frame, got {kind}");
    Ok(())
}

fn frame(kind: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Result<Vec<u8>> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut out = vec![0x80 | kind];
    if payload.len() < 126 {
        out.push(masked | u8::try_from(payload.len())?);
    } else {
        out.push(masked | 126);
        out.extend(u16::try_from(payload.len())?.to_be_bytes());
    }
    match mask {
        None => out.extend_from_slice(payload),
        Some(mask) => {
            out.extend_from_slice(&mask);
            out.extend(payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
        }
    }
    Ok(out)
}

async fn read_frame<S: AsyncRead + Unpin>(lines: &mut Lines<S>) -> Result<(u8, Vec<u8>)> {
    let head = lines.exactly(2).await?;
    let [first, second] = head[..] else {
        bail!("the connection ended")
    };
    let mut length = usize::from(second & 0x7f);
    if length == 126 {
        let more = lines.exactly(2).await?;
        let [high, low] = more[..] else {
            bail!("the connection ended inside a frame")
        };
        length = usize::from(u16::from_be_bytes([high, low]));
    }
    ensure!(
        second & 0x7f != 127,
        "frames above 64 KiB are not for tests"
    );
    let mask = if second & 0x80 != 0 {
        lines.exactly(4).await?
    } else {
        vec![0]
    };
    let payload = lines.exactly(length).await?;
    ensure!(
        payload.len() == length && !mask.is_empty(),
        "the connection ended inside a frame"
    );
    let payload = payload
        .iter()
        .zip(mask.iter().cycle())
        .map(|(b, m)| b ^ m)
        .collect();
    Ok((first & 0x0f, payload))
}
