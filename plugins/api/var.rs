//! Variables of a request: what `$name` in templates, `vars` in routes and log formats mean.
//!
//! Names are parsed once; at run time a variable is an index or a prepared key. Most values are
//! borrowed from the request. A variable that has no value is nil (`None`). Source: the variables
//! of nginx and APISIX.
//!
//! ```
//! # use lockgate_plugin::Var;
//! assert!(Var::parse("http_x_forwarded_for").is_known());
//! assert!(Var::parse("post_arg.model").needs_body());
//! assert!(!Var::parse("no_such_variable").is_known()); // always nil
//! ```

mod lookup;
mod names;
#[cfg(test)]
mod tests;
mod times;

use std::borrow::Cow;

use self::names::Known;
use crate::body_args::BodyVar;
use crate::header::HeaderKey;
pub use lookup::Lookup;

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VarValue<'a> {
    /// Text.
    Str(Cow<'a, str>),
    /// A number in a JSON body. Everything else that looks like a number is text.
    Number(serde_json::Number),
    /// Present without a value, such as `?flag`; `true` in a JSON body.
    True,
    /// `false` in a JSON body.
    False,
    /// Several values, for `has`.
    List(Vec<String>),
}

impl<'a> VarValue<'a> {
    /// The value as text; a list joined by `, `.
    pub fn as_text(&self) -> Cow<'_, str> {
        match self {
            VarValue::Str(text) => Cow::Borrowed(text),
            VarValue::Number(number) => Cow::Owned(number.to_string()),
            VarValue::True => Cow::Borrowed("true"),
            VarValue::False => Cow::Borrowed("false"),
            VarValue::List(list) => Cow::Owned(list.join(", ")),
        }
    }

    /// The value as a number, by the rules of Lua's `tonumber`.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            VarValue::Str(text) => number(text),
            VarValue::Number(number) => number.as_f64(),
            VarValue::True | VarValue::False | VarValue::List(_) => None,
        }
    }

    pub(crate) fn text(text: impl Into<Cow<'a, str>>) -> Option<VarValue<'a>> {
        Some(VarValue::Str(text.into()))
    }

    pub(crate) fn bytes(bytes: &'a [u8]) -> Option<VarValue<'a>> {
        VarValue::text(String::from_utf8_lossy(bytes))
    }

    pub(crate) fn shown(value: impl std::fmt::Display) -> Option<VarValue<'a>> {
        Some(VarValue::Str(Cow::Owned(value.to_string())))
    }
}

/// A number as Lua reads one: decimal with fraction and exponent, or hexadecimal; a sign and
/// ASCII blanks around it are allowed. Not `inf` and `nan`, which LuaJIT would take.
pub fn number(text: &str) -> Option<f64> {
    let blank = |c: char| c.is_ascii_whitespace() || c == '\x0b';
    let text = text.trim_matches(blank);
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let size = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(hex) => hexadecimal(hex)?,
        None => decimal(digits)?,
    };
    Some(if negative { -size } else { size })
}

fn decimal(digits: &str) -> Option<f64> {
    let plain = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    let starts = |b: &u8| b.is_ascii_digit() || *b == b'.';
    if !digits.as_bytes().first().is_some_and(starts) || !digits.bytes().all(plain) {
        return None;
    }
    digits.parse().ok()
}

fn hexadecimal(digits: &str) -> Option<f64> {
    if digits.is_empty() {
        return None;
    }
    digits
        .chars()
        .try_fold(0.0, |sum, c| Some(sum * 16.0 + f64::from(c.to_digit(16)?)))
}

/// Gives values to variables.
pub trait VarSource {
    /// The value of a variable, if it has one.
    fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>>;

    /// Appends the value of a variable that is a number, an address or a time, without making a
    /// text of it first; what is written needs no escaping. `false`, and nothing is written, for
    /// any other variable and for one without a value.
    fn put(&self, var: &Var, out: &mut Vec<u8>) -> bool {
        let _ = (var, out);
        false
    }
}

/// A parsed variable name.
#[derive(Clone, Debug)]
pub struct Var {
    name: Box<str>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// `http_NAME`.
    Header(HeaderField),
    /// A request header as the client sent it, whatever plugins did.
    OriginalHeader(HeaderKey),
    /// `cookie_NAME`
    Cookie(Box<str>),
    /// `arg_NAME`
    Arg(Box<str>),
    /// `uri_param_NAME`
    UriParam(Box<str>),
    /// Something in the request body.
    Body(BodyVar),
    /// `sent_http_NAME`: as the client gets it.
    SentHeader(HeaderKey),
    /// `upstream_http_NAME`: as the upstream sent it.
    UpstreamHeader(HeaderKey),
    /// One of a closed list.
    Known(Known),
    /// Always the same text.
    Fixed(&'static str),
    /// Means something, but never has a value in this gateway.
    Nil,
    /// Means nothing.
    Unknown,
}

/// A request header as variables name it.
#[derive(Clone, Debug)]
struct HeaderField {
    key: HeaderKey,
    /// The name with its underscores kept: nginx takes `x_a` for `$http_x_a`, too.
    spelled: Option<HeaderKey>,
    /// What joins several values.
    joint: &'static str,
}

impl HeaderField {
    fn parse(text: &str) -> Option<HeaderField> {
        let text = text.to_ascii_lowercase();
        let key = HeaderKey::from_var(&text).ok()?;
        let spelled = if text.contains('_') {
            text.parse().ok()
        } else {
            None
        };
        let joint = if key.lower() == "cookie" { "; " } else { ", " };
        Some(HeaderField {
            key,
            spelled,
            joint,
        })
    }
}

impl Var {
    /// Parses a name, without `$`. Unknown names give a variable that is always nil.
    pub fn parse(name: &str) -> Var {
        Var {
            name: name.into(),
            kind: Kind::parse(name).unwrap_or(Kind::Unknown),
        }
    }

    /// The name, as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the path parameter, for `uri_param_*`.
    pub fn uri_param(&self) -> Option<&str> {
        match &self.kind {
            Kind::UriParam(name) => Some(name),
            _ => None,
        }
    }

    /// Whether the name means anything.
    pub fn is_known(&self) -> bool {
        !matches!(self.kind, Kind::Unknown)
    }

    /// Whether the value comes from the request body.
    pub fn needs_body(&self) -> bool {
        matches!(self.kind, Kind::Body(_))
    }

    /// Whether the value comes with the response, so that it is nil in the request phases.
    pub fn needs_response(&self) -> bool {
        match &self.kind {
            Kind::SentHeader(_) | Kind::UpstreamHeader(_) => true,
            Kind::Known(known) => known.needs_response(),
            _ => false,
        }
    }
}

impl Kind {
    fn parse(name: &str) -> Option<Kind> {
        if let Some(known) = Known::parse(name) {
            return Some(Kind::Known(known));
        }
        if let Some((_, text)) = names::FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return Some(Kind::Fixed(text));
        }
        if let Some((_, header)) = names::ORIGINAL.iter().find(|(known, _)| *known == name) {
            return Some(Kind::OriginalHeader(HeaderKey::constant(header)));
        }
        if names::NIL.contains(&name) {
            return Some(Kind::Nil);
        }
        if let Some(body) = BodyVar::parse(name) {
            return Some(Kind::Body(body));
        }
        let after = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        Some(if let Some(text) = after("http_") {
            Kind::Header(HeaderField::parse(text)?)
        } else if let Some(text) = after("cookie_") {
            Kind::Cookie(text.into())
        } else if let Some(text) = after("arg_") {
            Kind::Arg(text.into())
        } else if let Some(text) = after("uri_param_") {
            Kind::UriParam(text.into())
        } else if let Some(text) = after("sent_http_") {
            Kind::SentHeader(HeaderKey::from_var(text).ok()?)
        } else if let Some(text) = after("upstream_http_") {
            Kind::UpstreamHeader(HeaderKey::from_var(text).ok()?)
        } else if after("upstream_trailer_")
            .or(after("sent_trailer_"))
            .is_some()
        {
            Kind::Nil
        } else {
            return None;
        })
    }
}
