//! Pieces of an answer: heads, chunks, long bodies.

use anyhow::Result;

use super::{Lines, Peer, Stream};

pub(super) async fn many<S: Stream>(out: &mut Lines<S>, total: u64, chunked: bool) -> Result<()> {
    let piece = vec![b'x'; 64 * 1024];
    let mut left = usize::try_from(total)?;
    while left > 0 {
        let n = left.min(piece.len());
        let bytes = &piece[..n];
        if chunked {
            out.write(&chunk(bytes)).await?;
        } else {
            out.write(bytes).await?;
        }
        left -= n;
    }
    Ok(())
}

pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Percent-decoding; `+` is a blank.
pub(super) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = || u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok();
        match (bytes[at], hex()) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A response head being written.
pub(super) struct Head(String);

impl Head {
    pub(super) fn new(code: u16, peer: &Peer) -> Self {
        let head = Head(format!(
            "HTTP/1.1 {code} Test\r\nX-Server: {}\r\n",
            peer.label
        ));
        match &peer.cert {
            Some(name) => head.with(&format!("X-Client-Cert: {name}")),
            None => head,
        }
    }

    pub(super) fn with(mut self, field: &str) -> Self {
        self.0.push_str(field);
        self.0.push_str("\r\n");
        self
    }

    pub(super) fn length(self, n: usize) -> Self {
        self.with(&format!("Content-Length: {n}"))
    }

    pub(super) fn end(self) -> Vec<u8> {
        self.with("").0.into_bytes()
    }

    pub(super) fn body(self, body: &[u8]) -> Vec<u8> {
        let mut out = self.end();
        out.extend_from_slice(body);
        out
    }
}
