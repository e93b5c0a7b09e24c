//! A first look at a chunked body, for the lane that reads it again.

use super::{Refusal, bad, controls, is_token};

/// The longest line with a chunk's size and extensions, in bytes.
const MAX_CHUNK_LINE: usize = 1024;

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
            return Ok(trailers_end(&buf[at..])?.map(|len| at + len));
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
        Some(_) if controls(line) > 0 => Err(bad("control byte in a chunk size")),
        Some(size) if line.len() <= MAX_CHUNK_LINE => Ok(size),
        _ => Err(bad("chunk size is not a number")),
    }
}

/// The length of the trailer section, its empty line included, when it is complete.
fn trailers_end(buf: &[u8]) -> Result<Option<usize>, Refusal> {
    let mut at = 0;
    while let Some(len) = memchr::memmem::find(&buf[at..], b"\r\n") {
        let line = &buf[at..at + len];
        at += len + 2;
        if line.is_empty() {
            return Ok(Some(at));
        }
        let name = line.split(|&b| b == b':').next().unwrap_or(b"");
        if name.len() == line.len() || !is_token(name) || controls(line) > 0 {
            return Err(bad("trailer is not a field"));
        }
    }
    Ok(None)
}
