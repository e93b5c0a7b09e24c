//! The host of an authority.

use std::borrow::Cow;

/// The host that a `Host` header or `:authority` names: lower case, without port and without a
/// trailing dot. IPv6 addresses keep their brackets, as in the variable `host` of nginx.
///
/// ```
/// # use lockgate_plugin::target::host_of;
/// assert_eq!(host_of(b"Shop.Example.com:8080"), "shop.example.com");
/// assert_eq!(host_of(b"[::1]:8080"), "[::1]");
/// ```
pub fn host_of(authority: &[u8]) -> Cow<'_, str> {
    let end = match authority {
        [b'[', ..] => authority.iter().position(|&b| b == b']').map(|at| at + 1),
        _ => authority.iter().position(|&b| b == b':'),
    };
    let host = &authority[..end.unwrap_or(authority.len())];
    let host = host.strip_suffix(b".").unwrap_or(host);
    let mut text = match std::str::from_utf8(host) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(host),
    };
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        text.to_mut().make_ascii_lowercase();
    }
    text
}
