//! Writes heads: fields as they were read, with the changes that plugins and the
//! gateway made. Pure functions on slices.
//!
//! A head is always written anew, from checked parts: what no field may hold
//! cannot get through. A line that stays and was spelled as it is written here is
//! copied whole ([`Field::line`](crate::proxy::fields::Field::line)), with those
//! that follow it.

use std::borrow::Cow;

use bytes::Bytes;
use lockgate_plugin::{HeaderOp, ReqView, Work};

use super::views::WireReq;
use crate::proxy::fields::{Name, Names};
use crate::proxy::head;

/// How the receiver finds the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body, and nothing is said about one.
    None,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection.
    UntilClose,
    /// The length that the fields name stays, though no body follows: answers to HEAD, 304.
    AsNamed,
    /// After the head it is WebSocket.
    Upgrade,
}

/// A field to be written.
pub struct Line<'a> {
    /// What it is.
    pub known: Name,
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Where it stands in the buffer, when it stands there just as it is written.
    pub place: Option<(usize, usize)>,
}

/// Fields that stay as they are. Those that stand one after another go out in one piece.
struct Kept<'a> {
    buf: &'a [u8],
    from: usize,
    to: usize,
}

impl<'a> Kept<'a> {
    fn of(buf: &'a [u8]) -> Kept<'a> {
        Kept {
            buf,
            from: 0,
            to: 0,
        }
    }

    fn put(&mut self, out: &mut Vec<u8>, line: &Line<'_>) {
        match line.place {
            Some((from, to)) if from == self.to => self.to = to,
            Some((from, to)) => {
                self.flush(out);
                (self.from, self.to) = (from, to);
            }
            None => {
                self.flush(out);
                put(out, line.name, line.value);
            }
        }
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.buf.get(self.from..self.to).unwrap_or_default());
        self.from = self.to;
    }
}

/// Appends a request head for the upstream; `ip` is the client's address as text.
pub fn request(out: &mut Vec<u8>, req: &WireReq<'_>, work: &Work, ip: &[u8], framing: Framing) {
    let edits = &work.request;
    match &edits.method {
        Some(method) => out.extend_from_slice(method),
        None => out.extend_from_slice(req.method().as_bytes()),
    }
    out.push(b' ');
    let target = match &edits.target {
        Some(target) => Cow::Borrowed(&target[..]),
        None => work.target.upstream_target(req.target()),
    };
    out.extend_from_slice(&target);
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(head::upstream_host(work, req));
    out.extend_from_slice(b"\r\n");

    let mut replaced = Names::default();
    head::forwarded(work, req, ip, &mut |name, key, value| {
        replaced.add(name);
        if let Some(value) = value {
            put(out, key.spelled_bytes(), value);
        }
    });
    let ops = edits.headers.ops();
    let replaced_fields = Replaced::by(ops);
    let (buf, lines) = req.places();
    let mut kept = Kept::of(buf);
    for line in lines {
        match line.known {
            Name::Other => {}
            // Of this connection, or written anew.
            Name::Host
            | Name::Connection
            | Name::ContentLength
            | Name::TransferEncoding
            | Name::Expect
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::Te
            | Name::Trailer
            | Name::Upgrade
            | Name::Http2Settings => continue,
            known if replaced.has(known) => continue,
            _ => {}
        }
        if !replaced_fields.has(line.name) {
            kept.put(out, &line);
        }
    }
    kept.flush(out);
    put_edits(out, ops, replaced);
    put_framing(out, framing);
    out.extend_from_slice(b"\r\n");
}

/// What a response head is made of beside its fields.
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The upstream's reason phrase; the usual one when there is none.
    pub reason: Option<&'a [u8]>,
    /// Changes of fields.
    pub ops: &'a [HeaderOp],
    /// How the client finds the end of the body.
    pub framing: Framing,
    /// The value of `Date`.
    pub date: &'a [u8],
    /// Whether the connection stays open.
    pub persistent: bool,
    /// Further names that the upstream declared its own.
    pub nominated: &'a [&'a [u8]],
}

/// Appends a response head for the client, from fields and the buffer they are in.
pub fn response<'a>(
    out: &mut Vec<u8>,
    head: &Response<'_>,
    (buf, lines): (&'a [u8], impl Iterator<Item = Line<'a>>),
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(head.status).as_bytes());
    out.push(b' ');
    match head.reason {
        Some(reason) => out.extend_from_slice(reason),
        None => out.extend_from_slice(canonical_reason(head.status)),
    }
    out.extend_from_slice(b"\r\nDate: ");
    out.extend_from_slice(head.date);
    out.extend_from_slice(b"\r\n");
    let mut named = false;
    let replaced = Replaced::by(head.ops);
    let mut kept = Kept::of(buf);
    for line in lines {
        let Line { known, name, .. } = line;
        if known == Name::ContentLength {
            // The same length twice is one length.
            if head.framing != Framing::AsNamed || std::mem::replace(&mut named, true) {
                continue;
            }
        } else if known == Name::Date || is_of_connection(known) {
            continue;
        }
        let own = |nominated: &&[u8]| nominated.eq_ignore_ascii_case(name);
        if !replaced.has(name) && !head.nominated.iter().any(own) {
            kept.put(out, &line);
        }
    }
    kept.flush(out);
    put_edits(out, head.ops, Names::default());
    put_framing(out, head.framing);
    out.extend_from_slice(match (head.framing, head.persistent) {
        (Framing::Upgrade, _) => b"\r\n",
        (_, true) => b"Connection: keep-alive\r\n\r\n",
        (_, false) => b"Connection: close\r\n\r\n",
    });
}

/// Appends an interim answer for the client: hints, nothing about the connection.
pub fn hints<'a>(
    out: &mut Vec<u8>,
    nominated: &[&[u8]],
    fields: impl Iterator<Item = (Name, &'a [u8], &'a [u8])>,
) {
    out.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n");
    for (known, name, value) in fields {
        let own = |nominated: &&[u8]| nominated.eq_ignore_ascii_case(name);
        let framing = matches!(known, Name::ContentLength | Name::Date);
        if !framing && !is_of_connection(known) && !nominated.iter().any(own) {
            put(out, name, value);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Names that speak about the upstream's connection.
fn is_of_connection(name: Name) -> bool {
    matches!(
        name,
        Name::Connection
            | Name::TransferEncoding
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::Te
            | Name::Trailer
            | Name::Upgrade
            | Name::Http2Settings
    )
}

/// The usual reason phrase.
fn canonical_reason(status: u16) -> &'static [u8] {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default()
        .as_bytes()
}

fn put(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The changes that take original values of a field away.
struct Replaced<'a> {
    ops: &'a [HeaderOp],
    /// The lengths of their names, the longest ones as one: most fields differ from all by it.
    lengths: u64,
}

impl<'a> Replaced<'a> {
    fn by(ops: &'a [HeaderOp]) -> Replaced<'a> {
        let lengths = ops.iter().map(|op| Self::bit(op.key().spelled_bytes()));
        Replaced {
            ops,
            lengths: lengths.fold(0, |all, bit| all | bit),
        }
    }

    fn bit(name: &[u8]) -> u64 {
        1 << name.len().min(63)
    }

    /// Whether a field is among them. Only the first change of a name says: a `set` or `remove`
    /// forgets what came before it.
    fn has(&self, name: &[u8]) -> bool {
        if self.lengths & Self::bit(name) == 0 {
            return false;
        }
        let first = self.ops.iter().find(|op| op.key().is(name));
        matches!(first, Some(HeaderOp::Set(..) | HeaderOp::Remove(_)))
    }
}

/// Names that plugins cannot set: they would contradict what is written here.
fn is_ours(name: Name) -> bool {
    matches!(
        name,
        Name::Connection | Name::ContentLength | Name::TransferEncoding | Name::Host | Name::Date
    )
}

fn put_edits(out: &mut Vec<u8>, ops: &[HeaderOp], done: Names) {
    for op in ops {
        let (HeaderOp::Set(key, value) | HeaderOp::Append(key, value)) = op else {
            continue;
        };
        let known = Name::of(key.spelled_bytes());
        if !is_ours(known) && !done.has(known) {
            put(out, key.spelled_bytes(), value);
        }
    }
}

fn put_framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(length) => {
            let mut digits = itoa::Buffer::new();
            put(out, b"Content-Length", digits.format(length).as_bytes());
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::Upgrade => {
            out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
        }
        Framing::None | Framing::UntilClose | Framing::AsNamed => {}
    }
}

/// The text of `Date`, made anew once a second.
#[derive(Default)]
pub struct DateText {
    second: u64,
    text: Bytes,
}

impl DateText {
    /// For a moment.
    pub fn at(&mut self, now: std::time::SystemTime) -> Bytes {
        let second = now
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = Bytes::from(httpdate::fmt_http_date(now));
        }
        self.text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_answers_say_nothing_of_body_and_connection() {
        let fields = [
            "Connection: X-A",
            "Content-Length: 5",
            "transfer-encoding: chunked",
            "Keep-Alive: x",
            "Upgrade: h2c",
            "x-a: b",
            "Link: </a>",
        ];
        let fields = fields.iter().filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| {
            let name = name.as_bytes();
            (Name::of(name), name, value.as_bytes())
        });
        let mut out = Vec::new();
        hints(&mut out, &[b"X-A"], fields);
        let expected = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
