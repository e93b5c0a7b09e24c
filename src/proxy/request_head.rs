//! The rules a request head must keep before anything else looks at it.
//!
//! Strict where leniency lets two parsers disagree about where a request ends:
//! such heads are refused, never repaired. Pure functions on slices, no I/O.
//!
//! | head | answer | why |
//! |---|---|---|
//! | line ends that are not CR LF, a line folded onto the next | 400 | parsers disagree |
//! | NUL or other control bytes, space before the colon | 400 | parsers disagree |
//! | no `Host` in HTTP/1.1, two of them, one that is not a host | 400 | RFC 9112 §3.2 |
//! | absolute-form target whose authority is not the `Host` | 400 | which one counts is ambiguous |
//! | `Content-Length` twice, signed, not digits | 400 | RFC 9112 §6.3 |
//! | `Content-Length` with `Transfer-Encoding` | 400 | request smuggling |
//! | `Transfer-Encoding` other than one `chunked`, or in HTTP/1.0 | 501, 400 | RFC 9112 §6.1 |
//! | the method CONNECT | 405 | this is no forward proxy |
//! | more than 100 fields or 32 KiB | 431, or 414 when it is the target | bounded memory |
//! | a chunk size that is not hexadecimal, control bytes beside it, a chunk longer than it says | 400 | RFC 9112 §7.1 |
//! | a trailer that is not a field | 400 | a request may be hidden there |

mod chunks;
mod target;

use super::fault::FaultKind;
use super::fields::{Fields, Name, Names, Span};
use super::line::next_control;
use target::{check_absolute, is_host, is_target};

pub use chunks::scan_chunks;

/// The longest head that is accepted, in bytes. nginx accepts four buffers of 8 KiB.
pub const MAX_HEAD: usize = 32 * 1024;
/// The longest request line, in bytes: nginx's buffer.
pub const MAX_LINE: usize = 8 * 1024;
/// The most fields that are accepted.
pub const MAX_FIELDS: usize = 100;

/// What a buffer holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Scan {
    /// Not a whole head yet.
    Partial,
    /// The preface of HTTP/2.
    Http2,
    /// A head that keeps the rules.
    Complete(Head),
    /// A head that does not.
    Refused(Refusal),
}

/// A complete head. Its fields are in the [`Fields`] that were given to [`scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its length in bytes, the empty line included.
    pub len: usize,
    /// What follows it.
    pub body: BodyLength,
    /// Where the method stands.
    pub method: Span,
    /// The method, when it is one that the wire lane carries.
    pub known_method: Option<&'static str>,
    /// Where the target stands.
    pub target: Span,
    /// Where the value of `Host` stands; nowhere when there is none.
    pub host: Span,
    /// The known names among its fields.
    pub names: Names,
    /// HTTP/1.1; otherwise 1.0.
    pub http11: bool,
    /// Whether the client wants to send another request on this connection.
    pub persistent: bool,
    /// Whether the client waits for `100 Continue` before it sends its body.
    pub expects: bool,
    /// Nothing in it needs more than plain request and answer: the wire lane may carry it.
    pub ordinary: bool,
    /// It asks for WebSocket, and nothing else in it is unusual.
    pub websocket: bool,
}

/// How the end of the body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    None,
    /// This many bytes.
    Exact(u64),
    /// It says itself.
    Chunked,
}

/// Why a head is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind, which gives the status.
    pub kind: FaultKind,
    /// The status, where it is not the kind's own.
    pub status: u16,
    /// For the log.
    pub why: &'static str,
}

fn bad(why: &'static str) -> Refusal {
    Refusal {
        kind: FaultKind::BadRequest,
        status: 400,
        why,
    }
}

/// Looks at what has been received of a head. Empty lines before the request line must have been
/// removed with [`skip_empty_lines`]. `from` is how much of it was looked at before.
pub fn scan(buf: &[u8], from: usize, fields: &mut Fields) -> Scan {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if buf.starts_with(b"PRI ") {
        let seen = buf.len().min(PREFACE.len());
        if buf[..seen] == PREFACE[..seen] {
            return if seen == PREFACE.len() {
                Scan::Http2
            } else {
                Scan::Partial
            };
        }
    }
    // A head that comes in many pieces is not parsed for each of them.
    if from > 0 && !has_end(&buf[from.saturating_sub(3).min(buf.len())..]) {
        return unfinished(buf);
    }
    fields.clear();
    match check(buf, fields) {
        Ok(None) => unfinished(buf),
        Ok(Some(head)) if head.len > MAX_HEAD => Scan::Refused(too_large(buf)),
        Ok(Some(head)) => Scan::Complete(head),
        Err(refusal) => Scan::Refused(refusal),
    }
}

fn unfinished(buf: &[u8]) -> Scan {
    if buf.len() > MAX_HEAD {
        Scan::Refused(too_large(buf))
    } else {
        Scan::Partial
    }
}

/// Whether a head may end in these bytes.
fn has_end(buf: &[u8]) -> bool {
    memchr::memmem::find(buf, b"\n\r\n").is_some() || memchr::memmem::find(buf, b"\n\n").is_some()
}

/// 414 when the request line alone is too long, as nginx; else 431.
fn too_large(buf: &[u8]) -> Refusal {
    let line = memchr::memchr(b'\n', buf).unwrap_or(buf.len());
    let status = if line > MAX_LINE { 414 } else { 431 };
    Refusal {
        kind: FaultKind::HeadTooLarge,
        status,
        why: "request head too large",
    }
}

/// How many bytes of empty lines stand before the request line; RFC 9112 §2.2 asks to ignore them.
pub fn skip_empty_lines(buf: &[u8]) -> usize {
    let mut at = 0;
    while buf[at..].starts_with(b"\r\n") {
        at += 2;
    }
    at
}

/// The method and target of a request line, as far as they can be read, for the log of a refused
/// head.
pub fn request_line(buf: &[u8]) -> (&[u8], &[u8]) {
    let line = buf
        .split(|&b| b == b'\r' || b == b'\n')
        .next()
        .unwrap_or(b"");
    let mut words = line.split(|&b| b == b' ');
    let method = words.next().filter(|m| is_token(m)).unwrap_or(b"-");
    let target = words.next().filter(|t| is_target(t)).unwrap_or(b"/");
    (method, target)
}

/// What the fields have said so far.
struct Seen {
    http11: bool,
    names: Names,
    host: Option<Span>,
    length: Option<u64>,
    /// `Connection` said `close`.
    close: bool,
    /// `Connection` said `keep-alive`.
    keep_alive: bool,
    /// `Connection` said `upgrade`.
    upgrade: bool,
    /// `Upgrade` said `websocket`.
    websocket: bool,
    /// Nothing is unusual, unless it is the upgrade.
    plain: bool,
}

/// Methods that the wire lane carries.
const ORDINARY_METHODS: [&str; 7] = ["GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// Checks a head; `None` when it is not complete.
fn check(buf: &[u8], fields: &mut Fields) -> Result<Option<Head>, Refusal> {
    let Some(line) = next_line(buf, 0, 0)? else {
        return Ok(None);
    };
    let (method, target, http11) = check_request_line(buf, line)?;
    let mut seen = Seen {
        http11,
        names: Names::default(),
        host: None,
        length: None,
        close: false,
        keep_alive: false,
        upgrade: false,
        websocket: false,
        plain: true,
    };
    let mut at = line.end() + 2;
    loop {
        if buf.get(at..at + 2) == Some(b"\r\n") {
            break;
        }
        let Some(colon) = check_name(buf, at)? else {
            return Ok(None);
        };
        let Some(line) = next_line(buf, at, colon + 1)? else {
            return Ok(None);
        };
        if fields.len() == MAX_FIELDS {
            return Err(Refusal {
                why: "too many header fields",
                ..too_large(b"")
            });
        }
        let (name, value) = line.field(buf, colon - at);
        let known = fields.push(buf, name, value);
        if known != Name::Other {
            check_known(known, value.of(buf), &mut seen)?;
            if known == Name::Host {
                seen.host = Some(value);
            }
        }
        at = line.end() + 2;
    }
    let head = &buf[..at];
    let host = seen.host.map(|host| host.of(head));
    match host {
        None if http11 => return Err(bad("no Host")),
        Some(host) if !is_host(host) => return Err(bad("Host is not a host")),
        _ => {}
    }
    let origin_form = target.of(head).first() == Some(&b'/');
    if !origin_form {
        check_absolute(method.of(head), target.of(head), host)?;
    }
    let body = match (seen.length, seen.names.has(Name::TransferEncoding)) {
        (Some(_), true) => return Err(bad("Content-Length with Transfer-Encoding")),
        (None, true) => BodyLength::Chunked,
        (Some(0) | None, false) => BodyLength::None,
        (Some(length), false) => BodyLength::Exact(length),
    };
    let text = method.of(head);
    let known_method = ORDINARY_METHODS
        .into_iter()
        .find(|known| known.as_bytes() == text);
    let upgrades = seen.upgrade || seen.names.has(Name::Upgrade);
    let plain = seen.plain && origin_form;
    let asks = seen.upgrade && seen.websocket && http11 && body == BodyLength::None;
    Ok(Some(Head {
        len: at + 2,
        body,
        method,
        known_method,
        target,
        host: seen.host.unwrap_or_default(),
        names: seen.names,
        http11,
        persistent: !seen.close && (http11 || seen.keep_alive),
        expects: seen.names.has(Name::Expect) && http11,
        ordinary: plain && !upgrades && known_method.is_some(),
        websocket: plain && asks && known_method == Some("GET"),
    }))
}

/// The line that begins at `start` without its CR LF, looked for from `from` on; `None` when its end
/// has not come.
fn next_line(buf: &[u8], start: usize, from: usize) -> Result<Option<Span>, Refusal> {
    let Some(end) = next_control(buf, from) else {
        return Ok(None);
    };
    match (buf[end], buf.get(end + 1)) {
        (b'\r', Some(b'\n')) => Ok(Some(Span::new(start, end))),
        (b'\r', None) => Ok(None),
        (b'\n', _) => Err(bad("line ends without CR")),
        _ => Err(bad("control byte in the head")),
    }
}

/// Where the colon of the header line that begins at `start` stands; `None` when it has not come.
fn check_name(buf: &[u8], start: usize) -> Result<Option<usize>, Refusal> {
    let line = buf.get(start..).unwrap_or_default();
    let len = token_len(line);
    let Some(&next) = line.get(len) else {
        return Ok(None);
    };
    match (len, next) {
        (0, b' ' | b'\t') => Err(bad("folded header line")),
        // The empty line, half of it.
        (0, b'\r') if line.len() == 1 => Ok(None),
        (1.., b':') => Ok(Some(start + len)),
        (_, b'\r' | b'\n') => Err(bad("header line without colon")),
        _ => Err(bad("header name is not a token")),
    }
}

fn check_request_line(head: &[u8], line: Span) -> Result<(Span, Span, bool), Refusal> {
    const SHAPE: &str = "request line is not METHOD TARGET VERSION";
    let text = line.of(head);
    let first = memchr::memchr(b' ', text).ok_or(bad(SHAPE))?;
    let second = memchr::memrchr(b' ', text).filter(|at| *at > first);
    let second = second.ok_or(bad(SHAPE))?;
    let (method, target, version) = (
        &text[..first],
        &text[first + 1..second],
        &text[second + 1..],
    );
    if memchr::memchr(b' ', target).is_some() {
        return Err(bad(SHAPE));
    }
    if !is_token(method) {
        return Err(bad("method is not a token"));
    }
    if method == b"CONNECT" {
        return Err(Refusal {
            status: 405,
            ..bad("CONNECT is not served")
        });
    }
    if target.is_empty() || !is_target(target) {
        return Err(bad("target has bytes that no target may have"));
    }
    // The request line is where the head starts.
    let (method, target) = (Span::new(0, first), Span::new(first + 1, second));
    match version {
        b"HTTP/1.1" => Ok((method, target, true)),
        b"HTTP/1.0" => Ok((method, target, false)),
        _ if version.starts_with(b"HTTP/") => Err(Refusal {
            status: 505,
            ..bad("HTTP version not supported")
        }),
        _ => Err(bad(SHAPE)),
    }
}

/// What the fields say that decide about framing, routing and the connection.
fn check_known(name: Name, value: &[u8], seen: &mut Seen) -> Result<(), Refusal> {
    let again = seen.names.has(name);
    seen.names.add(name);
    match name {
        Name::Host if again => return Err(bad("Host twice")),
        Name::ContentLength if again => return Err(bad("Content-Length twice")),
        Name::ContentLength => {
            let length = decimal(value);
            seen.length = Some(length.ok_or(bad("Content-Length is not a number"))?);
        }
        Name::TransferEncoding if !seen.http11 => {
            return Err(bad("Transfer-Encoding in HTTP/1.0"));
        }
        Name::TransferEncoding if again => return Err(bad("Transfer-Encoding twice")),
        Name::TransferEncoding if !value.eq_ignore_ascii_case(b"chunked") => {
            return Err(Refusal {
                status: 501,
                ..bad("Transfer-Encoding is not chunked")
            });
        }
        Name::Connection => {
            for token in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                if token.eq_ignore_ascii_case(b"close") {
                    seen.close = true;
                } else if token.eq_ignore_ascii_case(b"keep-alive") {
                    seen.keep_alive = true;
                } else if token.eq_ignore_ascii_case(b"upgrade") {
                    seen.upgrade = true;
                } else if !token.is_empty() {
                    seen.plain = false;
                }
            }
        }
        Name::Expect => seen.plain &= value.eq_ignore_ascii_case(b"100-continue") && !again,
        Name::Upgrade => {
            seen.websocket = value.eq_ignore_ascii_case(b"websocket");
            seen.plain &= !again;
        }
        Name::Te | Name::Trailer | Name::Http2Settings => seen.plain = false,
        _ => {}
    }
    Ok(())
}

/// A length: digits only. 19 of them always fit 64 bits.
pub fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() >= 20 {
        return None;
    }
    value.iter().try_fold(0u64, |number, &b| {
        let digit = b.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    })
}

/// How many bytes of a token a text begins with.
pub fn token_len(text: &[u8]) -> usize {
    // Letters and `-` eight at a time, which is most of most names; then one by one.
    let mut len = 0;
    while let Some(word) = text.get(len..).and_then(<[u8]>::first_chunk) {
        let usual = leading_letters(u64::from_le_bytes(*word));
        len += usual;
        if usual < 8 {
            break;
        }
    }
    while len < text.len() && TOKEN[usize::from(text[len])] {
        len += 1;
    }
    len
}

/// How many of eight bytes are letters or `-` before one that is neither.
fn leading_letters(word: u64) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x80 * ONES;
    // Seven bits each, in lower case: no sum below leaves its byte.
    let low = (word | (0x20 * ONES)) & !TOPS;
    let from_a = low + (0x80 - u64::from(b'a')) * ONES;
    let above_z = low + (0x7f - u64::from(b'z')) * ONES;
    let not_dash = (word & !TOPS ^ (u64::from(b'-') * ONES)) + 0x7f * ONES;
    let usual = ((from_a & !above_z) | !not_dash) & !word & TOPS;
    (!usual & TOPS).trailing_zeros() as usize / 8
}

/// RFC 9110 §5.6.2.
fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && token_len(text) == text.len()
}

/// The bytes of a token.
pub(super) static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let extra = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < extra.len() {
        table[extra[i] as usize] = true;
        i += 1;
    }
    let mut b = 0;
    while b < 256 {
        if (b as u8).is_ascii_alphanumeric() {
            table[b] = true;
        }
        b += 1;
    }
    table
};

#[cfg(test)]
mod tests;
