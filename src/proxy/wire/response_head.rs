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
use crate::proxy::request_head::{controls, decimal, is_token};

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
    let Some(end) = find_end(buf, from.saturating_sub(3)) else {
        return if buf.len() >= MAX_HEAD {
            Scan::Bad("response head too large")
        } else {
            Scan::Partial
        };
    };
    if end > MAX_HEAD {
        return Scan::Bad("response head too large");
    }
    fields.clear();
    match check(&buf[..end], fields) {
        Ok(head) => Scan::Complete(Head { len: end, ..head }),
        Err(why) => Scan::Bad(why),
    }
}

/// Just behind the first empty line.
fn find_end(buf: &[u8], from: usize) -> Option<usize> {
    let mut at = from.min(buf.len());
    loop {
        at += memchr::memchr(b'\n', &buf[at..])? + 1;
        match &buf[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

fn check(head: &[u8], fields: &mut Fields) -> Result<Head, &'static str> {
    let (mut at, mut ends) = (0, 0);
    let line = next_line(head, &mut at, &mut ends);
    let (status, reason, http11) = check_status_line(head, line)?;
    let mut length = None;
    let mut chunked = false;
    let (mut close, mut keep_alive, mut nominates) = (false, false, false);
    loop {
        let line = next_line(head, &mut at, &mut ends);
        let text = line.of(head);
        if text.is_empty() {
            break;
        }
        if fields.len() == MAX_FIELDS {
            return Err("too many response fields");
        }
        let colon = memchr::memchr(b':', text).ok_or("response field without colon")?;
        if !is_token(&text[..colon]) {
            return Err("response field name is not a token");
        }
        let (name, value) = line.field(head, colon);
        let value_text = value.of(head);
        match fields.push(head, name, value) {
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
    // What is left are the line ends, with or without CR.
    if controls(head) != ends {
        return Err("control byte in a response head");
    }
    let length = match (length, chunked) {
        (Some(_), true) => return Err("response with length and transfer encoding"),
        (None, true) => Length::Chunked,
        (Some(length), false) => Length::Exact(length),
        (None, false) => Length::UntilClose,
    };
    Ok(Head {
        len: 0,
        status,
        reason,
        length,
        persistent: !close && (http11 || keep_alive),
        nominates,
    })
}

/// The next line without its end; counts the bytes of the end.
fn next_line(head: &[u8], at: &mut usize, ends: &mut usize) -> Span {
    let rest = head.get(*at..).unwrap_or_default();
    let len = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let start = *at;
    *at = start + len + 1;
    let cr = len > 0 && rest.get(len - 1) == Some(&b'\r');
    *ends += 1 + usize::from(cr);
    Span::new(start, start + len - usize::from(cr))
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
