//! The path normaliser: one scan that finds out whether work is needed, and the work.

use super::BadTarget;

/// What one pass over the raw target shows.
pub(super) struct Scan {
    pub(super) path_len: usize,
    /// 0 without a query.
    pub(super) args_at: usize,
    /// Without the fragment.
    pub(super) end: usize,
    /// No escape, empty segment or dot segment in the path.
    pub(super) plain: bool,
    pub(super) args_ascii: bool,
}

/// Finds path, query and fragment. `raw` starts with `/`.
pub(super) fn scan(raw: &[u8]) -> Result<Scan, BadTarget> {
    let mut plain = true;
    let mut at = 0;
    let mut after_slash = false;
    while let Some(&byte) = raw.get(at) {
        match byte {
            b'?' | b'#' => break,
            b'%' => plain = false,
            b'/' if after_slash => plain = false,
            b'.' if after_slash && is_dot_segment(&raw[at..]) => plain = false,
            0..=b' ' | 0x7f => return Err(BadTarget::Control),
            _ => {}
        }
        after_slash = byte == b'/';
        at += 1;
    }
    let mut scan = Scan {
        path_len: at,
        args_at: 0,
        end: at,
        plain,
        args_ascii: true,
    };
    if raw.get(at) == Some(&b'?') {
        scan.args_at = at + 1;
        let args = &raw[at + 1..];
        let len = args.iter().position(|&b| b == b'#').unwrap_or(args.len());
        scan.end = at + 1 + len;
        scan.args_ascii = args[..len].is_ascii();
    }
    // The fragment is dropped, but bytes that no request line may have are still an error.
    if raw[at..].iter().any(|&b| b <= b' ' || b == 0x7f) {
        return Err(BadTarget::Control);
    }
    Ok(scan)
}

/// Whether a segment that starts with `.` is `.` or `..`.
fn is_dot_segment(rest: &[u8]) -> bool {
    let ends = |at: usize| matches!(rest.get(at), None | Some(b'/' | b'?' | b'#'));
    ends(1) || (rest.get(1) == Some(&b'.') && ends(2))
}

/// The normal form, still as bytes.
pub(super) struct Form {
    pub(super) decoded: Vec<u8>,
    pub(super) structural: bool,
    pub(super) kept_escapes: bool,
}

impl Form {
    /// As text; bytes that are not UTF-8 become escapes.
    pub(super) fn into_text(self) -> Box<str> {
        match String::from_utf8(self.decoded) {
            Ok(text) => text.into_boxed_str(),
            Err(not_text) => escape_invalid(not_text.as_bytes()).into_boxed_str(),
        }
    }
}

/// Decodes, then merges slashes, then resolves dot segments.
pub(super) fn normalise(path: &[u8]) -> Result<Form, BadTarget> {
    let mut decoded = decode(path)?;
    let structural = resolve(&mut decoded)?;
    let kept_escapes = std::str::from_utf8(&decoded).is_err();
    Ok(Form {
        decoded,
        structural,
        kept_escapes,
    })
}

fn decode(path: &[u8]) -> Result<Vec<u8>, BadTarget> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let [high, low, tail @ ..] = rest else {
            return Err(BadTarget::Escape);
        };
        let (Some(high), Some(low)) = (hex(*high), hex(*low)) else {
            return Err(BadTarget::Escape);
        };
        rest = tail;
        match high << 4 | low {
            0 => return Err(BadTarget::Nul),
            byte => out.push(byte),
        }
    }
    Ok(out)
}

/// Merges slashes and resolves dot segments in place. True when something changed.
fn resolve(path: &mut Vec<u8>) -> Result<bool, BadTarget> {
    // `path[..write]` is the result so far and always ends with a slash between segments.
    let len = path.len();
    let (mut read, mut write) = (1, 1);
    while read < len {
        let end = path[read..]
            .iter()
            .position(|&b| b == b'/')
            .map_or(len, |at| read + at);
        match &path[read..end] {
            b"" | b"." => {}
            b".." => {
                if write == 1 {
                    return Err(BadTarget::AboveRoot);
                }
                let parent = &path[..write - 1];
                write = parent.iter().rposition(|&b| b == b'/').unwrap_or(0) + 1;
            }
            segment => {
                let size = segment.len();
                path.copy_within(read..end, write);
                write += size;
                if end < len {
                    path[write] = b'/';
                    write += 1;
                }
            }
        }
        read = end + 1;
    }
    path.truncate(write);
    Ok(write != len)
}

/// Replaces bytes that are not UTF-8 by escapes in upper case.
pub(super) fn escape_invalid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for &byte in chunk.invalid() {
            text.extend(escape(byte).map(char::from));
        }
    }
    text
}

/// The decoded path with every `%2F` left as that text; `None` when there is none.
/// `path` has been decoded before, so its escapes are sound.
pub(super) fn keep_slashes(path: &[u8]) -> Option<String> {
    let mut kept = false;
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let [high, low, tail @ ..] = rest else {
            return None;
        };
        rest = tail;
        match hex(*high)? << 4 | hex(*low)? {
            b'/' => {
                kept = true;
                out.extend_from_slice(b"%2F");
            }
            byte => out.push(byte),
        }
    }
    if !kept {
        return None;
    }
    Some(match String::from_utf8(out) {
        Ok(text) => text,
        Err(not_text) => escape_invalid(not_text.as_bytes()),
    })
}

/// Removes `;parameters` from every segment, as servlet containers do.
pub(super) fn without_parameters(path: &str) -> Result<String, BadTarget> {
    let mut out = String::with_capacity(path.len());
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment.split_once(';') {
            None => out.push_str(segment),
            // A container drops the parameters first and would then see the dot segment.
            Some((".", _) | ("..", _)) => return Err(BadTarget::Parameters),
            Some(("", _)) if !last => return Err(BadTarget::Parameters),
            Some((name, _)) => {
                if name.eq_ignore_ascii_case("%2e") || name.eq_ignore_ascii_case("%2e%2e") {
                    return Err(BadTarget::Parameters);
                }
                out.push_str(name);
            }
        }
        if !last {
            out.push('/');
        }
    }
    Ok(out)
}

/// Encodes a decoded path: space, `#`, `%`, `?`, control bytes and everything from DEL up.
pub(super) fn encode(path: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.size_hint().0 + 16);
    for byte in path {
        push_encoded(byte, &mut out);
    }
    out
}

/// As [`encode`], but leaves escapes of bytes from 0x80 up alone: they stand for themselves in the
/// normal form of a path that is not UTF-8. The normal form writes them in upper case, so one with
/// a lower-case digit is plain text and its `%` is encoded. So is one that would be text together
/// with its neighbours: the normal form has such bytes decoded.
pub(super) fn encode_kept(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 16);
    let mut rest = path;
    while let [byte, tail @ ..] = rest {
        let mut kept = Vec::new();
        while let Some((byte, after)) = kept_escape(rest) {
            kept.push(byte);
            rest = after;
        }
        if kept.is_empty() {
            push_encoded(*byte, &mut out);
            rest = tail;
        }
        for chunk in kept.utf8_chunks() {
            for byte in chunk.valid().bytes().flat_map(escape) {
                push_encoded(byte, &mut out);
            }
            out.extend(chunk.invalid().iter().copied().flat_map(escape));
        }
    }
    out
}

/// The byte of an escape that the normal form may have kept, and what follows it.
fn kept_escape(path: &[u8]) -> Option<(u8, &[u8])> {
    match path {
        [
            b'%',
            high @ (b'8' | b'9' | b'A'..=b'F'),
            low @ (b'0'..=b'9' | b'A'..=b'F'),
            after @ ..,
        ] => Some((hex(*high)? << 4 | hex(*low)?, after)),
        _ => None,
    }
}

fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    match byte {
        0..=b' ' | b'#' | b'%' | b'?' | 0x7f.. => out.extend_from_slice(&escape(byte)),
        _ => out.push(byte),
    }
}

/// `%XX`.
pub(super) fn escape(byte: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [
        b'%',
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]
}

/// The value of a hexadecimal digit.
pub(super) fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
