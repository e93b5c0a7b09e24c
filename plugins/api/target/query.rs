//! Query arguments.

use std::borrow::Cow;

use super::normal::{escape, escape_invalid, hex};

/// The value of a query argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgValue<'a> {
    /// The name stands alone, as in `?debug`; expressions see the boolean `true`.
    Flag,
    /// The decoded text after `=`, possibly empty.
    Text(Cow<'a, str>),
}

/// The first value of an argument: percent-decoded, `+` is a space; empty when the name stands
/// alone. Names are compared decoded and by case. `args` is the query without `?`.
///
/// ```
/// # use lockgate_plugin::target::arg;
/// assert_eq!(arg("q=a%20b+c&q=2", "q").as_deref(), Some("a b c"));
/// assert_eq!(arg("debug", "debug").as_deref(), Some(""));
/// ```
pub fn arg<'a>(args: &'a str, name: &str) -> Option<Cow<'a, str>> {
    match arg_value(args, name)? {
        ArgValue::Flag => Some(Cow::Borrowed("")),
        ArgValue::Text(text) => Some(text),
    }
}

/// As [`arg`], but tells `?name` from `?name=`.
pub fn arg_value<'a>(args: &'a str, name: &str) -> Option<ArgValue<'a>> {
    for pair in args.split('&') {
        let (key, value) = match pair.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (pair, None),
        };
        // Only an encoded name needs decoding: `a+b` is the name `a b`.
        let found = if is_encoded(key) {
            decode(key) == name
        } else {
            key == name
        };
        if key.is_empty() || !found {
            continue;
        }
        return Some(value.map_or(ArgValue::Flag, |value| ArgValue::Text(decode(value))));
    }
    None
}

fn is_encoded(text: &str) -> bool {
    text.bytes().any(|b| b == b'%' || b == b'+')
}

/// Decodes one name or value. A `%` without two digits stays; bytes that are not UTF-8 stay
/// encoded, as in the normal form of paths.
fn decode(text: &str) -> Cow<'_, str> {
    if !is_encoded(text) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                if let [high, low, tail @ ..] = rest
                    && let (Some(high), Some(low)) = (hex(*high), hex(*low))
                {
                    out.push(high << 4 | low);
                    rest = tail;
                } else {
                    out.push(b'%');
                }
            }
            byte => out.push(*byte),
        }
    }
    Cow::Owned(match String::from_utf8(out) {
        Ok(text) => text,
        Err(not_text) => escape_invalid(not_text.as_bytes()),
    })
}

/// A raw query as text, when it is not UTF-8 as it is.
pub(super) fn as_text(args: &[u8]) -> Option<Box<str>> {
    match std::str::from_utf8(args) {
        Ok(_) => None,
        Err(_) => Some(escape_invalid(args).into_boxed_str()),
    }
}

/// Appends a query that a plugin made; what would break the request line is encoded.
pub(super) fn encode_into(args: &str, out: &mut Vec<u8>) {
    for byte in args.bytes() {
        match byte {
            0..=b' ' | b'#' | 0x7f => out.extend_from_slice(&escape(byte)),
            byte => out.push(byte),
        }
    }
}
