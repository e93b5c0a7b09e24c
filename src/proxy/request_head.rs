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
//! | more than 100 fields or 32 KiB | 431, or 414 when it is the target | bounded memory |
//! | a chunk size that is not hexadecimal, control bytes beside it, a chunk longer than it says | 400 | RFC 9112 §7.1 |

use super::fault::FaultKind;

/// The longest head that is accepted, in bytes. nginx accepts four buffers of 8 KiB.
pub const MAX_HEAD: usize = 32 * 1024;
/// The longest request line, in bytes: nginx's buffer.
pub const MAX_LINE: usize = 8 * 1024;
/// The longest line with a chunk's size and extensions, in bytes.
const MAX_CHUNK_LINE: usize = 1024;
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

/// A complete head.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// Its length in bytes, the empty line included.
    pub len: usize,
    /// What follows it.
    pub body: BodyLength,
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
/// removed with [`skip_empty_lines`].
pub fn scan(buf: &[u8]) -> Scan {
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
    let Some(end) = memchr::memmem::find(buf, b"\r\n\r\n") else {
        // A head in the making can already be hopeless.
        return match (buf.len() > MAX_HEAD, memchr::memmem::find(buf, b"\n\n")) {
            (true, _) => Scan::Refused(too_large(buf)),
            (false, Some(_)) => Scan::Refused(bad("line ends without CR")),
            (false, None) => Scan::Partial,
        };
    };
    let len = end + 4;
    if len > MAX_HEAD {
        return Scan::Refused(too_large(buf));
    }
    match check(&buf[..end]) {
        Ok(body) => Scan::Complete(Head { len, body }),
        Err(refusal) => Scan::Refused(refusal),
    }
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

/// Looks at as much of a chunked body as there is. `Ok(Some(length))` when it is complete,
/// `Ok(None)` when more has to come. Pingora reads the body again; this only refuses what it
/// would read too kindly, and finds the end where it can.
///
/// # Errors
/// When a chunk breaks the rules of RFC 9112 §7.1.
pub fn scan_chunks(buf: &[u8]) -> Result<Option<usize>, Refusal> {
    let mut at = 0;
    loop {
        let Some(line) = memchr::memmem::find(&buf[at..], b"\r\n") else {
            let started = &buf[at..];
            let fits = started.len() <= MAX_CHUNK_LINE
                && !started.contains(&b'\n')
                && started.first().is_none_or(u8::is_ascii_hexdigit);
            return if fits || started == b"\r" {
                Ok(None)
            } else {
                Err(bad("chunk size is not a number"))
            };
        };
        let size = chunk_size(&buf[at..at + line])?;
        at += line + 2;
        if size == 0 {
            return Ok(trailers_end(&buf[at..]).map(|len| at + len));
        }
        let Some(end) = at.checked_add(size).filter(|end| end + 2 <= buf.len()) else {
            return Ok(None);
        };
        if &buf[end..end + 2] != b"\r\n" {
            return Err(bad("chunk is longer than its size"));
        }
        at = end + 2;
    }
}

fn chunk_size(line: &[u8]) -> Result<usize, Refusal> {
    let digits = line.split(|&b| b == b';').next().unwrap_or(b"");
    let hex = !digits.is_empty() && digits.len() <= 15 && digits.iter().all(u8::is_ascii_hexdigit);
    let size = std::str::from_utf8(digits)
        .ok()
        .filter(|_| hex)
        .and_then(|d| usize::from_str_radix(d, 16).ok());
    match size {
        Some(_) if line.iter().copied().any(is_control) => Err(bad("control byte in a chunk size")),
        Some(size) if line.len() <= MAX_CHUNK_LINE => Ok(size),
        _ => Err(bad("chunk size is not a number")),
    }
}

/// The length of the trailer section, its empty line included.
fn trailers_end(buf: &[u8]) -> Option<usize> {
    if buf.starts_with(b"\r\n") {
        return Some(2);
    }
    memchr::memmem::find(buf, b"\r\n\r\n").map(|at| at + 4)
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

/// Fields that decide about framing and routing, as they are met.
#[derive(Default)]
struct Seen<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    chunked: bool,
}

fn check(head: &[u8]) -> Result<BodyLength, Refusal> {
    let mut lines = Lines(Some(head));
    let (method, target, http11) = check_request_line(lines.next().unwrap_or(b""))?;
    let mut seen = Seen::default();
    let mut fields = 0;
    for line in lines {
        fields += 1;
        if fields > MAX_FIELDS {
            return Err(Refusal {
                why: "too many header fields",
                ..too_large(b"")
            });
        }
        check_field(line, http11, &mut seen)?;
    }
    match seen.host {
        None if http11 => return Err(bad("no Host")),
        Some(host) if !is_host(host) => return Err(bad("Host is not a host")),
        _ => {}
    }
    if target.first() != Some(&b'/') {
        check_absolute(method, target, seen.host)?;
    }
    match (seen.length, seen.chunked) {
        (Some(_), true) => Err(bad("Content-Length with Transfer-Encoding")),
        (None, true) => Ok(BodyLength::Chunked),
        (Some(0) | None, false) => Ok(BodyLength::None),
        (Some(length), false) => Ok(BodyLength::Exact(length)),
    }
}

/// Lines ended by CR LF. A CR or LF on its own stays in the line and is refused there.
struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        match memchr::memmem::find(rest, b"\r\n") {
            Some(at) => {
                self.0 = Some(&rest[at + 2..]);
                Some(&rest[..at])
            }
            None => {
                self.0 = None;
                Some(rest)
            }
        }
    }
}

fn check_request_line(line: &[u8]) -> Result<(&[u8], &[u8], bool), Refusal> {
    let mut words = line.split(|&b| b == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Err(bad("request line is not METHOD TARGET VERSION"));
    };
    if !is_token(method) {
        return Err(bad("method is not a token"));
    }
    if target.is_empty() || !is_target(target) {
        return Err(bad("target has bytes that no target may have"));
    }
    match version {
        b"HTTP/1.1" => Ok((method, target, true)),
        b"HTTP/1.0" => Ok((method, target, false)),
        _ if version.starts_with(b"HTTP/") => Err(Refusal {
            status: 505,
            ..bad("HTTP version not supported")
        }),
        _ => Err(bad("request line is not METHOD TARGET VERSION")),
    }
}

fn check_field<'a>(line: &'a [u8], http11: bool, seen: &mut Seen<'a>) -> Result<(), Refusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(bad("folded header line"));
    }
    let Some(colon) = memchr::memchr(b':', line) else {
        return Err(bad("header line without colon"));
    };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if !is_token(name) {
        return Err(bad("header name is not a token"));
    }
    if value.iter().copied().any(is_control) {
        return Err(bad("control byte in a header value"));
    }
    let value = value.trim_ascii();
    match name.len() {
        4 if name.eq_ignore_ascii_case(b"host") && seen.host.replace(value).is_some() => {
            return Err(bad("Host twice"));
        }
        14 if name.eq_ignore_ascii_case(b"content-length") => {
            // 19 digits always fit 64 bits.
            let digits =
                !value.is_empty() && value.len() < 20 && value.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(value)
                .ok()
                .filter(|_| digits)
                .and_then(|v| v.parse().ok());
            let Some(length) = length else {
                return Err(bad("Content-Length is not a number"));
            };
            if seen.length.replace(length).is_some() {
                return Err(bad("Content-Length twice"));
            }
        }
        17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
            if !http11 {
                return Err(bad("Transfer-Encoding in HTTP/1.0"));
            }
            if seen.chunked {
                return Err(bad("Transfer-Encoding twice"));
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Refusal {
                    status: 501,
                    ..bad("Transfer-Encoding is not chunked")
                });
            }
            seen.chunked = true;
        }
        _ => {}
    }
    Ok(())
}

/// `*` for OPTIONS, `host:port` for CONNECT, or `http://host/…` with the same host as `Host`.
fn check_absolute(method: &[u8], target: &[u8], host: Option<&[u8]>) -> Result<(), Refusal> {
    let Some(at) = memchr::memmem::find(target, b"://") else {
        let named = (method == b"OPTIONS" && target == b"*") || method == b"CONNECT";
        return if named {
            Ok(())
        } else {
            Err(bad("target does not start with a slash"))
        };
    };
    let scheme = &target[..at];
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(bad("target is neither a path nor an http address"));
    }
    let after = &target[at + 3..];
    let end = after
        .iter()
        .position(|b| matches!(b, b'/' | b'?' | b'#'))
        .unwrap_or(after.len());
    match host {
        Some(host) if host.eq_ignore_ascii_case(&after[..end]) => Ok(()),
        None if is_host(&after[..end]) => Ok(()),
        _ => Err(bad("target and Host name different hosts")),
    }
}

/// RFC 9110 §5.6.2.
fn is_token(text: &[u8]) -> bool {
    const fn table() -> [bool; 256] {
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
    }
    const TOKEN: [bool; 256] = table();
    !text.is_empty() && text.iter().all(|&b| TOKEN[usize::from(b)])
}

/// A control byte other than a tab: neither in a field's value nor beside a chunk's size.
fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}

fn is_target(text: &[u8]) -> bool {
    text.iter().all(|&b| b > 0x20 && b != 0x7f)
}

/// A host with an optional port: letters, digits, `-._~`, IPv6 in brackets. Empty is allowed by
/// RFC 9112 §3.2 for targets without authority.
fn is_host(host: &[u8]) -> bool {
    let (name, port) = match host.first() {
        Some(b'[') => match memchr::memchr(b']', host) {
            Some(at) => {
                let inner = &host[1..at];
                let address = std::str::from_utf8(inner)
                    .ok()
                    .and_then(|t| t.parse::<std::net::Ipv6Addr>().ok());
                if address.is_none() {
                    return false;
                }
                (&b""[..], &host[at + 1..])
            }
            None => return false,
        },
        _ => match memchr::memchr(b':', host) {
            Some(at) => (&host[..at], &host[at..]),
            None => (host, &b""[..]),
        },
    };
    let name_ok = name
        .iter()
        .all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~'));
    let port_ok = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    name_ok && port_ok
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(text: &str, body: BodyLength) {
        let got = scan(text.as_bytes());
        assert!(
            matches!(&got, Scan::Complete(head) if head.body == body),
            "{text:?}: {got:?}"
        );
    }

    fn refused(text: &str, status: u16) {
        let got = scan(text.as_bytes());
        assert!(
            matches!(&got, Scan::Refused(r) if r.status == status),
            "{text:?}: {got:?}"
        );
    }

    fn partial(text: &str) {
        assert_eq!(scan(text.as_bytes()), Scan::Partial, "{text:?}");
    }

    #[test]
    fn ordinary_heads() {
        ok("GET / HTTP/1.1\r\nHost: a\r\n\r\n", BodyLength::None);
        ok("GET / HTTP/1.0\r\n\r\n", BodyLength::None);
        ok(
            "POST /x?y HTTP/1.1\r\nHost: a.b:80\r\nContent-Length: 5\r\n\r\nhello",
            BodyLength::Exact(5),
        );
        ok(
            "POST / HTTP/1.1\r\nhost:[::1]:8\r\ntransfer-encoding: Chunked \r\n\r\n",
            BodyLength::Chunked,
        );
        ok(
            "GET http://a.test/x HTTP/1.1\r\nHost: A.test\r\n\r\n",
            BodyLength::None,
        );
        ok("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", BodyLength::None);
        ok("GET / HTTP/1.1\r\nHost:\r\nX: \r\n\r\n", BodyLength::None);
        ok("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", BodyLength::None);
    }

    #[test]
    fn unfinished_heads() {
        partial("");
        partial("GET / HTTP/1.1\r\nHost: a\r\n");
        partial("GET / HTTP/1.1\r\nHost: a\r\n\r");
        partial("PRI * HTTP/2.0\r\n\r\nSM");
    }

    #[test]
    fn http2_preface() {
        assert_eq!(scan(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrest"), Scan::Http2);
        refused("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 505);
    }

    #[test]
    fn what_parsers_disagree_about_is_refused() {
        let with = |field: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        refused(
            &with("Content-Length: 3\r\nTransfer-Encoding: chunked"),
            400,
        );
        refused(&with("Content-Length: 3\r\nContent-Length: 3"), 400);
        refused(&with("Content-Length: +3"), 400);
        refused(&with("Content-Length: 3, 3"), 400);
        refused(&with("Content-Length: 99999999999999999999"), 400);
        refused(&with("Content-Length:"), 400);
        refused(
            &with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            400,
        );
        refused(&with("Transfer-Encoding: gzip, chunked"), 501);
        refused(&with("Transfer-Encoding: xchunked"), 501);
        refused(&with("Transfer-Encoding : chunked"), 400);
        refused(&with("X: a\r\n folded"), 400);
        refused(&with("X: a\nY: b"), 400);
        refused(&with("X: a\0b"), 400);
        refused(&with("X: a\rb"), 400);
        refused(&with("no colon"), 400);
        refused(&with(": no name"), 400);
        refused("GET / HTTP/1.1\nHost: a\n\n", 400);
        refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    }

    #[test]
    fn hosts() {
        refused("GET / HTTP/1.1\r\n\r\n", 400);
        refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
        for host in [
            "a b", "a/b", "user@a", "a:80:80", "a:port", "[::1", "[zz]", "a,b",
        ] {
            refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
        }
        refused("GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400);
        refused("GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400);
    }

    #[test]
    fn request_lines() {
        for line in [
            "GET  / HTTP/1.1",
            "GET /",
            "GET / HTTP/1.1 x",
            "G(T / HTTP/1.1",
            " / HTTP/1.1",
            "GET / http/1.1",
        ] {
            refused(&format!("{line}\r\nHost: a\r\n\r\n"), 400);
        }
        refused("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505);
    }

    #[test]
    fn chunks() {
        let check = |text: &str, expected: Result<Option<usize>, ()>| {
            assert_eq!(
                scan_chunks(text.as_bytes()).map_err(|_| ()),
                expected,
                "{text:?}"
            );
        };
        check("5\r\nhello\r\n0\r\n\r\nGET", Ok(Some(15)));
        check("5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", Ok(Some(25)));
        check("", Ok(None));
        check("5", Ok(None));
        check("5\r\nhel", Ok(None));
        check("5\r\nhello\r\n0\r\n", Ok(None));
        for bad in [
            "xyz\r\n",
            "+5\r\nhello\r\n",
            "0x5\r\n",
            "\r\nhello",
            "-1\r\n",
            "ffffffffffffffff\r\n",
            "3\r\nhello\r\n",
            " 5\r\nhello\r\n",
            "5\nhello",
            "5;a\rb\r\nhello\r\n",
            "0;a\x7f\r\n\r\n",
        ] {
            check(bad, Err(()));
        }
    }

    #[test]
    fn limits() {
        let long = "x".repeat(MAX_HEAD);
        refused(
            &format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
            431,
        );
        refused(&format!("GET /{long}"), 414);
        let many = "A: b\r\n".repeat(MAX_FIELDS);
        refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431);
    }

    #[test]
    fn lines_for_the_log() {
        assert_eq!(
            request_line(b"GET /x HTTP/9\r\nA"),
            (&b"GET"[..], &b"/x"[..])
        );
        assert_eq!(request_line(b"\x16\x03\x01"), (&b"-"[..], &b"/"[..]));
    }
}
