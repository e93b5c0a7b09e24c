//! The rules an upstream's response head must keep. Pure functions on slices.
//!
//! | head | what happens |
//! |---|---|
//! | not `HTTP/1.x NNN`, a line without colon, a folded line, control bytes | 502 |
//! | two different `Content-Length`, one that is not digits | 502 |
//! | `Transfer-Encoding` with `Content-Length`, in HTTP/1.0, or other than one `chunked` | 502 |
//! | more than 200 fields or 64 KiB | 502 |
//! | line ends without CR | accepted: the head is written anew |
//! | no length at all | the body ends with the connection |

use crate::proxy::fields::{Fields, Name, Span};
use crate::proxy::line::next_control;
use crate::proxy::request_head::{decimal, token_len};

/// The longest head that is accepted, in bytes; a longer one is a 502.
pub const MAX_HEAD: usize = 64 * 1024;
/// The most fields that are accepted.
const MAX_FIELDS: usize = 200;

/// How the end of the body is found, from the head alone. What the request was, and the status,
/// may say that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// This many bytes.
    Exact(u64),
    /// It says itself.
    Chunked,
    /// The connection ends it.
    UntilClose,
}

/// A complete head. Its fields are in the [`Fields`] that were given to [`scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its length in bytes, the empty line included.
    pub len: usize,
    /// The status code.
    pub status: u16,
    /// Where the reason phrase stands.
    pub reason: Span,
    /// How the body ends.
    pub length: Length,
    /// Whether the upstream keeps the connection open.
    pub persistent: bool,
    /// Whether `Connection` names fields of the upstream's own.
    pub nominates: bool,
}

/// What a buffer holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Scan {
    /// Not a whole head yet.
    Partial,
    /// A head that keeps the rules.
    Complete(Head),
    /// One that does not, and why.
    Bad(&'static str),
}

/// Looks at what has been received of a head. `from` is how much of it was looked at before.
pub fn scan(buf: &[u8], from: usize, fields: &mut Fields) -> Scan {
    // A head that comes in many pieces is not parsed for each of them.
    if from > 0 && !has_end(&buf[from.saturating_sub(3).min(buf.len())..]) {
        return unfinished(buf);
    }
    fields.clear();
    match check(buf, fields) {
        Ok(None) => unfinished(buf),
        Ok(Some(head)) if head.len > MAX_HEAD => Scan::Bad(TOO_LARGE),
        Ok(Some(head)) => Scan::Complete(head),
        Err(why) => Scan::Bad(why),
    }
}

const TOO_LARGE: &str = "response head too large";

fn unfinished(buf: &[u8]) -> Scan {
    if buf.len() >= MAX_HEAD {
        Scan::Bad(TOO_LARGE)
    } else {
        Scan::Partial
    }
}

/// Whether a head may end in these bytes.
fn has_end(buf: &[u8]) -> bool {
    memchr::memmem::find(buf, b"\n\r\n").is_some() || memchr::memmem::find(buf, b"\n\n").is_some()
}

/// Checks a head; `None` when it is not complete.
fn check(buf: &[u8], fields: &mut Fields) -> Result<Option<Head>, &'static str> {
    let Some(line) = next_line(buf, 0, 0)? else {
        return Ok(None);
    };
    let (status, reason, http11) = check_status_line(buf, line.text)?;
    let mut at = line.next;
    let mut length = None;
    let mut chunked = false;
    let (mut close, mut keep_alive, mut nominates) = (false, false, false);
    loop {
        match buf.get(at..).unwrap_or_default() {
            [b'\n', ..] => {
                at += 1;
                break;
            }
            [b'\r', b'\n', ..] => {
                at += 2;
                break;
            }
            _ => {}
        }
        let Some(colon) = check_name(buf, at)? else {
            return Ok(None);
        };
        let Some(line) = next_line(buf, at, colon + 1)? else {
            return Ok(None);
        };
        if fields.len() == MAX_FIELDS {
            return Err("too many response fields");
        }
        let (name, value) = line.text.field(buf, colon - at);
        at = line.next;
        let value_text = value.of(buf);
        match fields.push(buf, name, value) {
            Name::ContentLength => {
                let found = decimal(value_text).ok_or("response length is not a number")?;
                if length.replace(found).is_some_and(|first| first != found) {
                    return Err("two response lengths");
                }
            }
            Name::TransferEncoding => {
                if chunked || !http11 || !value_text.eq_ignore_ascii_case(b"chunked") {
                    return Err("response transfer encoding is not chunked");
                }
                chunked = true;
            }
            Name::Connection => {
                for token in value_text.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                    if token.eq_ignore_ascii_case(b"close") {
                        close = true;
                    } else if token.eq_ignore_ascii_case(b"keep-alive") {
                        keep_alive = true;
                    } else {
                        nominates |= !token.is_empty();
                    }
                }
            }
            _ => {}
        }
    }
    let length = match (length, chunked) {
        (Some(_), true) => return Err("response with length and transfer encoding"),
        (None, true) => Length::Chunked,
        (Some(length), false) => Length::Exact(length),
        (None, false) => Length::UntilClose,
    };
    Ok(Some(Head {
        len: at,
        status,
        reason,
        length,
        persistent: !close && (http11 || keep_alive),
        nominates,
    }))
}

/// A line.
struct Line {
    /// Without its end.
    text: Span,
    /// Where the next one begins.
    next: usize,
}

/// The line that begins at `start`, its end looked for from `from` on.
#[inline]
fn next_line(buf: &[u8], start: usize, from: usize) -> Result<Option<Line>, &'static str> {
    let Some(end) = next_control(buf, from) else {
        return Ok(None);
    };
    let next = match (buf[end], buf.get(end + 1)) {
        (b'\n', _) => end + 1,
        (b'\r', Some(b'\n')) => end + 2,
        (b'\r', None) => return Ok(None),
        _ => return Err("control byte in a response head"),
    };
    let text = Span::new(start, end);
    Ok(Some(Line { text, next }))
}

/// Where the colon of the line that begins at `start` stands; `None` when it has not come.
fn check_name(buf: &[u8], start: usize) -> Result<Option<usize>, &'static str> {
    let line = buf.get(start..).unwrap_or_default();
    let len = token_len(line);
    match line.get(len) {
        Some(b':') if len > 0 => Ok(Some(start + len)),
        Some(_) if line == b"\r" => Ok(None),
        Some(_) => Err("response field without a name and a colon"),
        None => Ok(None),
    }
}

fn check_status_line(head: &[u8], line: Span) -> Result<(u16, Span, bool), &'static str> {
    const SHAPE: &str = "response does not start with HTTP/1.x and a status";
    let text = line.of(head);
    let http11 = match text.get(..9) {
        Some(b"HTTP/1.1 ") => true,
        Some(b"HTTP/1.0 ") => false,
        _ => return Err(SHAPE),
    };
    let status = match text.get(9..12) {
        Some(&[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9']) => {
            let digit = |d: u8| u16::from(d - b'0');
            digit(a) * 100 + digit(b) * 10 + digit(c)
        }
        _ => return Err(SHAPE),
    };
    if !matches!(text.get(12), None | Some(b' ')) {
        return Err(SHAPE);
    }
    let reason = 13.min(text.len());
    // The status line is where the head starts.
    Ok((status, Span::new(reason, text.len()), http11))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan_text(text: &str) -> Scan {
        scan(text.as_bytes(), 0, &mut Fields::default())
    }

    fn ok(text: &str, status: u16, length: Length, persistent: bool) {
        let Scan::Complete(head) = scan_text(text) else {
            panic!("{text:?}: {:?}", scan_text(text));
        };
        assert_eq!(
            (head.status, head.length, head.persistent),
            (status, length, persistent),
            "{text:?}"
        );
    }

    fn bad(text: &str) {
        assert!(
            matches!(scan_text(text), Scan::Bad(_)),
            "{text:?}: {:?}",
            scan_text(text)
        );
    }

    #[test]
    fn ordinary_heads() {
        ok(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            200,
            Length::Exact(5),
            true,
        );
        ok("HTTP/1.1 200\r\n\r\n", 200, Length::UntilClose, true);
        ok("HTTP/1.1 204 \r\n\r\n", 204, Length::UntilClose, true);
        ok(
            "HTTP/1.0 200 OK\r\nContent-Length:5\r\n\r\n",
            200,
            Length::Exact(5),
            false,
        );
        ok(
            "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n",
            200,
            Length::UntilClose,
            true,
        );
        ok(
            "HTTP/1.1 200 OK\nTransfer-Encoding: Chunked\n\n",
            200,
            Length::Chunked,
            true,
        );
        ok(
            "HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n",
            200,
            Length::UntilClose,
            false,
        );
        ok(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n",
            200,
            Length::Exact(5),
            true,
        );
    }

    #[test]
    fn what_breaks_the_rules() {
        let with = |field: &str| format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n");
        for field in [
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: -1",
            "Content-Length:",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "no colon",
            "X : y",
            "X: a\r\n folded",
            "X: a\0",
            "X: a\rb",
        ] {
            bad(&with(field));
        }
        for line in [
            "HTTP/2 200 OK",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1  200 OK",
            "garbage",
            "",
            "HTTP/1.1 099 x",
        ] {
            bad(&format!("{line}\r\n\r\n"));
        }
        bad("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        bad(&with(&"A: b\r\n".repeat(MAX_FIELDS + 1)));
        bad(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD)));
    }

    #[test]
    fn unfinished_heads() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n\r",
        ] {
            assert_eq!(scan_text(text), Scan::Partial, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn looking_again_finds_the_same(cut in 0usize..60) {
            let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello";
            let mut fields = Fields::default();
            let whole = scan(text, 0, &mut fields);
            let cut = cut.min(text.len());
            match scan(&text[..cut], 0, &mut fields) {
                Scan::Partial => prop_assert_eq!(scan(text, cut, &mut fields), whole),
                other => prop_assert_eq!(other, whole),
            }
        }

        #[test]
        fn nothing_panics(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buf = b"HTTP/1.1 200 OK\r\n".to_vec();
            buf.extend_from_slice(&text);
            let _ = scan(&buf, 0, &mut Fields::default());
            let _ = scan(&text, 0, &mut Fields::default());
        }
    }
}
