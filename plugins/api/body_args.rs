//! Variables that come from the request body: `post_arg_*`, `post_arg.*`, `request_body`, `graphql_*`.

use std::borrow::Cow;

use serde_json::Value;

use crate::header::HeaderKey;
use crate::request::Work;
use crate::target::arg;
use crate::var::VarValue;
use crate::view::ReqView;

/// How deep a JSON path may lead.
const MAX_PATH: usize = 32;
/// Values that one JSON path may collect.
const MAX_VALUES: usize = 10_000;

/// A variable that looks into the body.
#[derive(Clone, Debug)]
pub enum BodyVar {
    /// `request_body`
    Whole,
    /// `post_arg_NAME`: a field of a urlencoded form.
    Field(Box<str>),
    /// `post_arg.PATH`: by content type.
    Path(Box<[Segment]>),
    /// `graphql_name`
    GraphqlName,
    /// `graphql_operation`
    GraphqlOperation,
    /// `graphql_root_fields`
    GraphqlRootFields,
}

/// One step of a path into JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A member by name.
    Name(Box<str>),
    /// An element by position, from 0.
    Index(usize),
    /// Every member or element.
    Every,
    /// Everything below, by name.
    Below(Box<str>),
}

impl BodyVar {
    /// The variable for a name, if it is one of these.
    pub fn parse(name: &str) -> Option<BodyVar> {
        Some(match name {
            "request_body" => BodyVar::Whole,
            "graphql_name" => BodyVar::GraphqlName,
            "graphql_operation" => BodyVar::GraphqlOperation,
            "graphql_root_fields" => BodyVar::GraphqlRootFields,
            _ => {
                if let Some(path) = name.strip_prefix("post_arg.") {
                    BodyVar::Path(path_segments(path)?.into())
                } else {
                    BodyVar::Field(name.strip_prefix("post_arg_")?.into())
                }
            }
        })
    }
}

/// Splits `a.b[0]..c[*]`; `None` when it is malformed or too long.
fn path_segments(path: &str) -> Option<Vec<Segment>> {
    let mut out = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        if out.len() >= MAX_PATH {
            return None;
        }
        if let Some(after) = rest.strip_prefix("..") {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = after.get(..end).filter(|name| !name.is_empty())?;
            out.push(Segment::Below(name.into()));
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let (inner, next) = after.split_once(']')?;
            let quoted = inner.trim_matches(['\'', '"']);
            out.push(match inner {
                "*" => Segment::Every,
                _ if quoted.len() != inner.len() => Segment::Name(quoted.into()),
                _ => Segment::Index(inner.parse().ok()?),
            });
            rest = next;
        } else {
            let after = rest.strip_prefix('.').unwrap_or(rest);
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = after.get(..end).filter(|name| !name.is_empty())?;
            out.push(if name == "*" { Segment::Every } else { Segment::Name(name.into()) });
            rest = &after[end..];
        }
    }
    (!out.is_empty()).then_some(out)
}

/// The value of a body variable. Nil when the body was not read, is of another type, or does not
/// parse.
pub(crate) fn value<'a>(var: &BodyVar, req: &dyn ReqView, work: &'a Work) -> Option<VarValue<'a>> {
    let kind = content_type(req);
    let query_arg = || work.target.args(req.target()).and_then(|args| arg(args, "query")).map(Cow::into_owned);
    match var {
        BodyVar::Whole => Some(VarValue::Str(String::from_utf8_lossy(work.body.as_ref()?))),
        BodyVar::Field(name) => {
            let form = kind.starts_with("application/x-www-form-urlencoded");
            let body = std::str::from_utf8(work.body.as_ref().filter(|_| form)?).ok()?;
            Some(VarValue::Str(Cow::Owned(arg(body, name)?.into_owned())))
        }
        BodyVar::Path(path) => by_path(path, &kind, work.body.as_ref()?),
        BodyVar::GraphqlName | BodyVar::GraphqlOperation | BodyVar::GraphqlRootFields => {
            let text = match req.method() {
                "GET" => query_arg()?,
                _ if kind == "application/json" => {
                    let body: Value = serde_json::from_slice(work.body.as_ref()?).ok()?;
                    body.get("query")?.as_str()?.to_owned()
                }
                _ => String::from_utf8_lossy(work.body.as_ref()?).into_owned(),
            };
            let operation = crate::graphql::first_operation(&text)?;
            Some(match var {
                BodyVar::GraphqlName => VarValue::Str(operation.name.into()),
                BodyVar::GraphqlOperation => VarValue::Str(operation.kind.into()),
                _ => VarValue::List(operation.root_fields),
            })
        }
    }
}

fn content_type(req: &dyn ReqView) -> String {
    let value = req.header(&HeaderKey::constant("content-type")).unwrap_or_default();
    String::from_utf8_lossy(value).trim().to_ascii_lowercase()
}

fn by_path<'a>(path: &[Segment], kind: &str, body: &[u8]) -> Option<VarValue<'a>> {
    if kind.contains("application/json") {
        let body: Value = serde_json::from_slice(body).ok()?;
        let plain = path.iter().all(|s| matches!(s, Segment::Name(_)));
        let mut found = Vec::new();
        collect(&body, path, &mut found);
        return if plain {
            Some(VarValue::Str(Cow::Owned(scalar(found.first()?)?)))
        } else {
            let list: Vec<String> = found.iter().filter_map(|v| scalar(v)).collect();
            (!list.is_empty()).then_some(VarValue::List(list))
        };
    }
    let [Segment::Name(name)] = path else { return None };
    if kind.contains("application/x-www-form-urlencoded") {
        let value = arg(std::str::from_utf8(body).ok()?, name)?.into_owned();
        return Some(VarValue::Str(Cow::Owned(value)));
    }
    if kind.contains("multipart/form-data") {
        let boundary = kind_boundary(kind)?;
        return Some(VarValue::Str(Cow::Owned(multipart_field(body, &boundary, name)?)));
    }
    None
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        Value::Array(_) | Value::Object(_) => None,
        other => Some(other.to_string()),
    }
}

fn collect<'v>(value: &'v Value, path: &[Segment], out: &mut Vec<&'v Value>) {
    if out.len() >= MAX_VALUES {
        return;
    }
    let Some((first, rest)) = path.split_first() else {
        out.push(value);
        return;
    };
    match (first, value) {
        (Segment::Name(name), Value::Object(map)) => {
            if let Some(next) = map.get(&**name) {
                collect(next, rest, out);
            }
        }
        (Segment::Index(at), Value::Array(list)) => {
            if let Some(next) = list.get(*at) {
                collect(next, rest, out);
            }
        }
        (Segment::Every, Value::Array(list)) => list.iter().for_each(|v| collect(v, rest, out)),
        (Segment::Every, Value::Object(map)) => map.values().for_each(|v| collect(v, rest, out)),
        (Segment::Below(name), Value::Object(map)) => {
            for (key, next) in map {
                if **key == **name {
                    collect(next, rest, out);
                }
                collect(next, path, out);
            }
        }
        (Segment::Below(_), Value::Array(list)) => list.iter().for_each(|v| collect(v, path, out)),
        _ => {}
    }
}

/// The boundary of a multipart type. The type was lower-cased, so boundaries are compared without
/// case, which no real boundary depends on.
fn kind_boundary(kind: &str) -> Option<String> {
    let (_, after) = kind.split_once("boundary=")?;
    let text = after.split(';').next().unwrap_or("").trim().trim_matches('"');
    (!text.is_empty()).then(|| format!("--{text}"))
}

fn multipart_field(body: &[u8], boundary: &str, name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let lower = text.to_ascii_lowercase();
    let wanted = format!("name=\"{name}\"");
    let mut at = lower.find(boundary)? + boundary.len();
    while let Some(next) = lower[at..].find(boundary).map(|n| at + n) {
        let part = text.get(at..next)?;
        if let Some((head, content)) = part.split_once("\r\n\r\n")
            && head.contains(&wanted)
        {
            return Some(content.strip_suffix("\r\n").unwrap_or(content).to_owned());
        }
        at = next + boundary.len();
    }
    None
}

/// Decodes base64 text; enough for the user name in an `Authorization`.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0u32);
    for b in text.trim_end_matches('=').bytes() {
        let value = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, kind: &str, body: &str, expected: Option<VarValue<'_>>) {
        let path = path_segments(path).unwrap();
        assert_eq!(by_path(&path, kind, body.as_bytes()), expected, "{path:?}");
    }

    fn text(text: &str) -> Option<VarValue<'_>> {
        Some(VarValue::Str(text.into()))
    }

    #[test]
    fn json_paths() {
        let json = r#"{"model":"m","a":{"b":[{"t":"x"},{"t":"y"}],"n":5,"t":"z"},"f":false}"#;
        let kind = "application/json; charset=utf-8";
        let list = |items: &[&str]| Some(VarValue::List(items.iter().map(|s| (*s).to_owned()).collect()));
        check("model", kind, json, text("m"));
        check("a.n", kind, json, text("5"));
        check("f", kind, json, text("false"));
        check("a.b[*].t", kind, json, list(&["x", "y"]));
        check("a.b[1].t", kind, json, list(&["y"]));
        check("a..t", kind, json, list(&["x", "y", "z"]));
        check("a.none", kind, json, None);
        check("a.b", kind, json, None);
        check("model", kind, "{", None);
    }

    #[test]
    fn forms() {
        check("a", "application/x-www-form-urlencoded", "b=1&a=x%20y", text("x y"));
        let body = "--Xy\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nv\r\n--Xy--\r\n";
        check("a", "multipart/form-data; boundary=xy", body, text("v"));
        check("b", "multipart/form-data; boundary=xy", body, None);
        check("a", "text/plain", "a=1", None);
    }

    #[test]
    fn malformed_paths_are_refused() {
        for path in ["", "a..", "a[", "a[x]", "a."] {
            assert_eq!(path_segments(path), None, "{path}");
        }
    }

    #[test]
    fn base64_texts() {
        assert_eq!(base64("dXNlcjpwYXNz").as_deref(), Some(&b"user:pass"[..]));
        assert_eq!(base64("dQ==").as_deref(), Some(&b"u"[..]));
        assert_eq!(base64("!"), None);
    }
}
