//! Replacements in a body, and the encodings it may come in.

use std::io::Read;

use base64::Engine;
use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use lockgate_plugin::Pattern;
use lockgate_plugin::pattern::BadPattern;

/// A replacement.
pub(super) struct Filter {
    pattern: Pattern,
    global: bool,
    replace: String,
}

impl Filter {
    pub(super) fn new(regex: &str, flags: &str, global: bool, replace: String) -> Result<Filter, BadPattern> {
        Ok(Filter { pattern: Pattern::with_flags(regex, flags)?, global, replace })
    }
}

/// Applies filters one after the other. A body that is not UTF-8 passes unchanged: there is no text
/// in it to replace.
pub(super) fn apply(filters: &[Filter], body: Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(&body) else { return body };
    let mut changed: Option<String> = None;
    for filter in filters {
        let now = changed.as_deref().unwrap_or(text);
        let next = match filter.global {
            true => filter.pattern.replace_all(now, &filter.replace),
            false => filter.pattern.replace_once(now, &filter.replace),
        };
        changed = next.or(changed);
    }
    match changed {
        Some(text) => Bytes::from(text),
        None => body,
    }
}

/// The `Content-Encoding` of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Encoding {
    #[default]
    Plain,
    Gzip,
    Deflate,
    Brotli,
    /// One that cannot be read.
    Other,
}

impl Encoding {
    pub(super) fn of(value: Option<&[u8]>) -> Encoding {
        match value.map(|value| value.trim_ascii().to_ascii_lowercase()).as_deref() {
            None | Some(b"" | b"identity") => Encoding::Plain,
            Some(b"gzip" | b"x-gzip") => Encoding::Gzip,
            Some(b"deflate") => Encoding::Deflate,
            Some(b"br") => Encoding::Brotli,
            Some(_) => Encoding::Other,
        }
    }

    /// The body as it was before it was compressed, at most `limit` bytes.
    pub(super) fn decode(self, body: &Bytes, limit: usize) -> std::io::Result<Bytes> {
        match self {
            Encoding::Plain | Encoding::Other => Ok(body.clone()),
            Encoding::Gzip => read(GzDecoder::new(&body[..]), limit),
            Encoding::Deflate => read(ZlibDecoder::new(&body[..]), limit),
            Encoding::Brotli => read(brotli_decompressor::Decompressor::new(&body[..], 4096), limit),
        }
    }
}

fn read(decoder: impl Read, limit: usize) -> std::io::Result<Bytes> {
    let mut out = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut out)?;
    if out.len() > limit {
        return Err(std::io::Error::other(format!("more than {limit} bytes when decompressed")));
    }
    Ok(Bytes::from(out))
}

pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
