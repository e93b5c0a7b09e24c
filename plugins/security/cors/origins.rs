//! A set of origins, and what the response says about the one that asks.

use bytes::Bytes;
use lockgate_plugin::{Pattern, Problems};
use rustc_hash::FxHashSet;

/// The longest `Origin` that is compared: a host name has at most 253 characters.
const MAX_ORIGIN: usize = 1024;

/// A set of origins.
pub(super) enum Origins {
    /// `*`: any, and the answer is the same for all.
    Any,
    /// `**`: any, by repeating it.
    Echo,
    /// A single origin, sent whatever the request's is.
    One(Bytes),
    /// The request's own, when it is in the list.
    List(FxHashSet<Box<[u8]>>),
    /// The request's own, when an expression is found in it.
    Regex(Box<[Pattern]>),
}

/// The value of an allowing header.
pub(super) enum Allowed {
    /// The same for every request.
    Fixed(Bytes),
    /// The request's own origin.
    Own,
}

impl Allowed {
    /// The header value for the origin it was decided about.
    pub(super) fn into_value(self, origin: Option<&[u8]>) -> Bytes {
        match self {
            Allowed::Fixed(value) => value,
            Allowed::Own => Bytes::copy_from_slice(origin.unwrap_or(b"*")),
        }
    }
}

impl Origins {
    /// Reads `*`, `**`, `null` or origins separated by `,`.
    pub(super) fn parse(text: &str) -> Origins {
        match text {
            "*" => Origins::Any,
            "**" => Origins::Echo,
            list if list.contains(',') => {
                let origins = list.split(',').filter(|origin| !origin.is_empty());
                Origins::List(origins.map(|origin| origin.as_bytes().into()).collect())
            }
            one => Origins::One(Bytes::copy_from_slice(one.as_bytes())),
        }
    }

    /// Compiles expressions; reports those that are none under `attribute`.
    pub(super) fn by_regex(attribute: &str, list: &[String], out: &mut Problems) -> Origins {
        let mut out = out.at(attribute);
        let mut compiled = Vec::with_capacity(list.len());
        for (i, text) in list.iter().enumerate() {
            match Pattern::new(text) {
                Ok(pattern) => compiled.push(pattern),
                Err(e) => out
                    .at_index(i)
                    .add("", format!("not a regular expression: {e}")),
            }
        }
        Origins::Regex(compiled.into())
    }

    /// What to send for this origin, if anything; the flag says whether the origin is really
    /// allowed, which a single origin that is sent to everybody does not mean.
    pub(super) fn allow(&self, origin: Option<&[u8]>) -> Option<(Allowed, bool)> {
        match self {
            Origins::Any => Some((Allowed::Fixed(Bytes::from_static(b"*")), true)),
            Origins::Echo => Some((Allowed::Own, true)),
            Origins::One(one) => {
                let same = origin.is_some_and(|origin| origin == one);
                Some((Allowed::Fixed(one.clone()), same))
            }
            Origins::List(list) => list.contains(origin?).then_some((Allowed::Own, true)),
            Origins::Regex(list) => {
                let origin = std::str::from_utf8(origin?).ok()?;
                if origin.len() > MAX_ORIGIN {
                    return None;
                }
                let found = list.iter().any(|pattern| pattern.is_match(origin));
                found.then_some((Allowed::Own, true))
            }
        }
    }
}
