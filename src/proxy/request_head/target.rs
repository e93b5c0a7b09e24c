//! Targets and hosts.

use super::{Refusal, bad};

/// `*` for OPTIONS, or `http://host/…` with the same host as `Host`.
pub(super) fn check_absolute(
    method: &[u8],
    target: &[u8],
    host: Option<&[u8]>,
) -> Result<(), Refusal> {
    let Some(at) = memchr::memmem::find(target, b"://") else {
        return if method == b"OPTIONS" && target == b"*" {
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

pub(super) fn is_target(text: &[u8]) -> bool {
    text.iter()
        .fold(true, |ok, &b| ok & (b > 0x20) & (b != 0x7f))
}

/// A host with an optional port: letters, digits, `-._~`, IPv6 in brackets. Empty is allowed by
/// RFC 9112 §3.2 for targets without authority.
pub(super) fn is_host(host: &[u8]) -> bool {
    let port = match host.first() {
        Some(b'[') => match memchr::memchr(b']', host) {
            Some(at) => {
                let inner = &host[1..at];
                let address = std::str::from_utf8(inner)
                    .ok()
                    .and_then(|t| t.parse::<std::net::Ipv6Addr>().ok());
                if address.is_none() {
                    return false;
                }
                &host[at + 1..]
            }
            None => return false,
        },
        _ => {
            let ends = |&b: &u8| !HOST[usize::from(b)];
            &host[host.iter().position(ends).unwrap_or(host.len())..]
        }
    };
    match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The bytes of a host that is no IPv6 address.
static HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] =
            (b as u8).is_ascii_alphanumeric() || matches!(b as u8, b'-' | b'.' | b'_' | b'~');
        b += 1;
    }
    table
};
