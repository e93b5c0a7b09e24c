//! Reading HTTP/1 messages from a socket: heads, bodies, trailers. Used by the upstream and by the client.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A head longer than this is a test gone wrong.
const HEAD_LIMIT: usize = 4 * 1024 * 1024;
/// A body longer than this is a test gone wrong.
const BODY_LIMIT: usize = 256 * 1024 * 1024;
/// `/slow-read` takes this much at a time, then pauses.
const SIP: usize = 16 * 1024;
/// The pause of `/slow-read`.
const SIP_PAUSE: Duration = Duration::from_millis(2);

/// Header fields in order, names in lower case.
pub(crate) type Headers = Vec<(String, String)>;

/// A request as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The method.
    pub(crate) method: String,
    /// The target as written.
    pub(crate) target: String,
    /// `HTTP/1.1`.
    pub(crate) version: String,
    /// The fields.
    pub(crate) headers: Headers,
    /// The body, decoded from chunks.
    pub(crate) body: Vec<u8>,
    /// Fields after a chunked body.
    pub(crate) trailers: Headers,
}

impl Request {
    /// The first field of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }

    /// All fields of this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        all(&self.headers, name)
    }

    /// The path without the query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The path's last segment.
    pub(crate) fn last_segment(&self) -> &str {
        self.path().rsplit('/').next().unwrap_or_default()
    }

    /// Whether the connection ends after the answer.
    pub(crate) fn wants_close(&self) -> bool {
        let connection = self
            .header("connection")
            .unwrap_or_default()
            .to_ascii_lowercase();
        connection.contains("close")
            || (self.version == "HTTP/1.0" && !connection.contains("keep-alive"))
    }
}

/// The first field of this name.
pub(crate) fn first<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(n, _)| n == name)
        .map(|(_, v)| v.as_str())
}

/// All fields of this name.
pub(crate) fn all<'a>(headers: &'a Headers, name: &str) -> Vec<&'a str> {
    headers
        .iter()
        .filter(|(n, _)| n == name)
        .map(|(_, v)| v.as_str())
        .collect()
}

/// A stream with a read buffer.
pub(crate) struct Lines<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S> Lines<S> {
    /// Nothing buffered yet.
    pub(crate) fn new(stream: S) -> Self {
        Lines {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The bare stream; buffered bytes are dropped.
    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncWrite + Unpin> Lines<S> {
    /// Sends bytes as they are.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> Lines<S> {
    /// Reads more; 0 at the end.
    pub(crate) async fn fill(&mut self) -> std::io::Result<usize> {
        self.buffer.reserve(64 * 1024);
        self.stream.read_buf(&mut self.buffer).await
    }

    /// Takes what is buffered.
    pub(crate) fn take(&mut self, most: usize) -> Vec<u8> {
        let n = self.buffer.len().min(most);
        self.buffer.drain(..n).collect()
    }

    /// Exactly `n` bytes, or fewer when the peer ends.
    pub(crate) async fn exactly(&mut self, n: usize) -> Result<Vec<u8>> {
        ensure!(n <= BODY_LIMIT, "body of {n} bytes");
        while self.buffer.len() < n {
            if self.fill().await? == 0 {
                break;
            }
        }
        Ok(self.take(n))
    }

    /// Start line and fields of a message; `None` when the peer ended before it.
    pub(crate) async fn head(&mut self) -> Result<Option<(String, Headers)>> {
        let mut searched = 0_usize;
        loop {
            let from = searched.saturating_sub(3);
            if let Some(at) = self.buffer[from..]
                .windows(4)
                .position(|w| w == b"\r\n\r\n")
            {
                let head = self.take(from + at + 4);
                return parse_head(&head).map(Some);
            }
            searched = self.buffer.len();
            ensure!(searched < HEAD_LIMIT, "head without end");
            if self.fill().await? == 0 {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                bail!("connection ended inside a head: {:?}", self.text());
            }
        }
    }

    /// Buffered bytes for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer[..self.buffer.len().min(200)]).into_owned()
    }

    /// The head of a request.
    pub(super) async fn request_head(&mut self) -> Result<Option<Request>> {
        let Some((line, headers)) = self.head().await? else {
            return Ok(None);
        };
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (method, target, version) = (word(), word(), word());
        Ok(Some(Request {
            method,
            target,
            version,
            headers,
            ..Request::default()
        }))
    }

    /// The body of a request whose head was read.
    pub(super) async fn read_body(&mut self, request: &mut Request, slow: bool) -> Result<()> {
        if request
            .all("transfer-encoding")
            .iter()
            .any(|v| v.eq_ignore_ascii_case("chunked"))
        {
            let (body, trailers, complete) = self.chunked().await?;
            ensure!(complete, "request ended inside its chunks");
            (request.body, request.trailers) = (body, trailers);
            return Ok(());
        }
        let Some(length) = request.header("content-length") else {
            return Ok(());
        };
        let length: usize = length.parse().context("content-length")?;
        if !slow {
            request.body = self.exactly(length).await?;
        } else {
            while request.body.len() < length {
                let sip = self.exactly(SIP.min(length - request.body.len())).await?;
                ensure!(!sip.is_empty(), "request ended inside its body");
                request.body.extend(sip);
                tokio::time::sleep(SIP_PAUSE).await;
            }
        }
        ensure!(
            request.body.len() == length,
            "request ended inside its body"
        );
        Ok(())
    }

    /// A chunked body; `false` when it ended before its end.
    pub(crate) async fn chunked(&mut self) -> Result<(Vec<u8>, Headers, bool)> {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.line().await? else {
                return Ok((body, Vec::new(), false));
            };
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16)
                .with_context(|| format!("bad chunk size {line:?}"))?;
            if size == 0 {
                break;
            }
            let piece = self.exactly(size).await?;
            let full = piece.len() == size;
            body.extend(piece);
            ensure!(body.len() <= BODY_LIMIT, "chunked body too long");
            if !full || self.line().await?.is_none() {
                return Ok((body, Vec::new(), false));
            }
        }
        let mut trailers = Vec::new();
        loop {
            match self.line().await? {
                None => return Ok((body, trailers, false)),
                Some(line) if line.is_empty() => return Ok((body, trailers, true)),
                Some(line) => trailers.push(field(&line)?),
            }
        }
    }

    /// A line without its end; `None` when the peer ended first.
    async fn line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.take(at + 1);
                let line = String::from_utf8_lossy(&line);
                return Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()));
            }
            ensure!(self.buffer.len() < HEAD_LIMIT, "line without end");
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }
}

fn parse_head(head: &[u8]) -> Result<(String, Headers)> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let headers = lines.map(field).collect::<Result<_>>()?;
    Ok((first, headers))
}

fn field(line: &str) -> Result<(String, String)> {
    let (name, value) = line
        .split_once(':')
        .with_context(|| format!("bad field {line:?}"))?;
    Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
}
