//! Fields of `multipart/form-data` bodies. Source: RFC 7578.

use std::borrow::Cow;

/// Parts that are looked at. Forms have tens.
const MAX_PARTS: usize = 1_000;
/// The longest head of a part. Browsers write about 200 bytes.
const MAX_HEAD: usize = 8 << 10;
/// The longest boundary. Source: RFC 2046, section 5.1.1.
const MAX_BOUNDARY: usize = 70;

/// The content of the first part with this field name. `kind` is the content type of the request.
pub(super) fn field<'b>(body: &'b [u8], kind: &[u8], name: &str) -> Option<&'b [u8]> {
    let boundary = parameter(std::str::from_utf8(kind).ok()?, "boundary")?;
    if boundary.is_empty() || boundary.len() > MAX_BOUNDARY {
        return None;
    }
    let delimiter = ["\r\n--", &boundary].concat();
    let delimiter = delimiter.as_bytes();
    // The first delimiter may stand at the very start, without its line break.
    let mut rest = match body.strip_prefix(&delimiter[2..]) {
        Some(rest) => rest,
        None => &body[find(body, delimiter)? + delimiter.len()..],
    };
    for _ in 0..MAX_PARTS {
        // `--` after the delimiter ends the body; what else is on its line is padding.
        if rest.starts_with(b"--") {
            return None;
        }
        let part = &rest[find(rest, b"\r\n")?..];
        let end = find(part, delimiter)?;
        // A head that is not there leaves `\r\n\r\n` at the start.
        let (part, next) = (&part[..end], &part[end + delimiter.len()..]);
        if let Some(at) = find(&part[..part.len().min(MAX_HEAD)], b"\r\n\r\n")
            && names(&part[..at], name)
        {
            return Some(&part[at + 4..]);
        }
        rest = next;
    }
    None
}

/// Whether a part's head names this field.
fn names(head: &[u8], name: &str) -> bool {
    let Ok(head) = std::str::from_utf8(head) else {
        return false;
    };
    head.split("\r\n").any(|line| {
        let Some((field, value)) = line.split_once(':') else {
            return false;
        };
        field.trim().eq_ignore_ascii_case("content-disposition")
            && parameter(value, "name").is_some_and(|found| found == name)
    })
}

/// A parameter of a header value: `form-data; name="a"`.
fn parameter<'v>(value: &'v str, name: &str) -> Option<Cow<'v, str>> {
    let (_, mut rest) = value.split_once(';')?;
    loop {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (text, next) = match after.strip_prefix('"') {
            Some(inner) => quoted(inner)?,
            None => {
                let (text, next) = after.split_at(after.find(';').unwrap_or(after.len()));
                (Cow::Borrowed(text.trim_end()), next)
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(text);
        }
        rest = next.trim_start().strip_prefix(';')?;
    }
}

/// The text up to the closing quote, and what follows it.
fn quoted(inner: &str) -> Option<(Cow<'_, str>, &str)> {
    let plain = inner.find(['"', '\\'])?;
    if inner[plain..].starts_with('"') {
        return Some((Cow::Borrowed(&inner[..plain]), &inner[plain + 1..]));
    }
    let mut text = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(text), &inner[at + 1..])),
            '\\' => text.push(chars.next()?.1),
            c => text.push(c),
        }
    }
    None
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}
