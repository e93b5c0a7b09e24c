//! A first look at a chunked body, for the lane that reads it again.

use super::{Refusal, bad};
use crate::proxy::wire::chunked::Chunked;

/// Looks at as much of a chunked body as there is. `Ok(Some(length))` when it is complete,
/// `Ok(None)` when more has to come. Pingora reads the body again; this only refuses what it
/// would read too kindly, and finds the end where it can.
///
/// # Errors
/// When a chunk breaks the rules of RFC 9112 §7.1.
pub fn scan_chunks(buf: &[u8]) -> Result<Option<usize>, Refusal> {
    let mut reader = Chunked::default();
    match reader.read(buf, |_| {}) {
        Ok(length) => Ok(reader.is_done().then_some(length)),
        Err(_) => Err(bad("chunked body breaks the rules")),
    }
}
