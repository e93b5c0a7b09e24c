//! What is checked about a single value: texts, numbers, equality.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{LazyLock, Mutex, PoisonError};

use rustc_hash::FxBuildHasher;
use serde_json::{Map, Value};

use crate::pattern::Pattern;

/// Characters of a value that a message shows.
const SHOWN: usize = 120;
/// Compiled patterns that are kept. Those of our own types are some hundred; users may bring their
/// own, and then the memo starts anew.
const KEPT_PATTERNS: usize = 1024;

/// Adds what is wrong with a text.
pub(super) fn text(schema: &Map<String, Value>, text: &str, mut fail: impl FnMut(String)) {
    let length = text.chars().count() as u64;
    let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
    if let Some(min) = limit("minLength").filter(|min| length < *min) {
        fail(format!(
            "string too short, expected at least {min}, got {length}"
        ));
    }
    if let Some(max) = limit("maxLength").filter(|max| length > *max) {
        fail(format!(
            "string too long, expected at most {max}, got {length}"
        ));
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        match matches(pattern, text) {
            Ok(true) => {}
            Ok(false) => fail(format!(
                "failed to match pattern \"{pattern}\" with \"{}\"",
                cut(text)
            )),
            Err(problem) => fail(problem),
        }
    }
    let (valid, name) = match schema.get("format").and_then(Value::as_str) {
        Some("ipv4") => (text.parse::<Ipv4Addr>().is_ok(), "ipv4 address"),
        Some("ipv6") => (text.parse::<Ipv6Addr>().is_ok(), "ipv6 address"),
        Some("email") => (matches(EMAIL, text) == Ok(true), "email address"),
        Some("hostname") => (matches(HOSTNAME, text) == Ok(true), "hostname"),
        _ => return,
    };
    if !valid {
        fail(format!("expect valid {name} but got: {}", cut(text)));
    }
}

/// What the original takes for an address of a mailbox.
const EMAIL: &str = r"^[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+\.[A-Za-z]{2,4}$";
/// What the original takes for the name of a host.
const HOSTNAME: &str = r"^[a-zA-Z0-9.-]+$";

/// Adds what is wrong with a number.
pub(super) fn number(schema: &Map<String, Value>, value: &Value, mut fail: impl FnMut(String)) {
    let Some(n) = value.as_f64() else { return };
    let mut check = |keyword: &str, wrong: fn(f64, f64) -> bool, words: &str| {
        if let Some(bound) = schema.get(keyword)
            && bound.as_f64().is_some_and(|bound| wrong(n, bound))
        {
            fail(format!("expected {value} to be {words} {bound}"));
        }
    };
    check("minimum", |n, min| n < min, "at least");
    check("maximum", |n, max| n > max, "at most");
    check("exclusiveMinimum", |n, min| n <= min, "greater than");
    check("exclusiveMaximum", |n, max| n >= max, "smaller than");
    check(
        "multipleOf",
        |n, step| !is_multiple(n, step),
        "a multiple of",
    );
    // Generated schemas give the width of an integer by name only.
    if let Some((min, max)) = schema.get("format").and_then(Value::as_str).and_then(width) {
        if n < min && !schema.contains_key("minimum") {
            fail(format!("expected {value} to be at least {min}"));
        }
        if n > max && !schema.contains_key("maximum") {
            fail(format!("expected {value} to be at most {max}"));
        }
    }
}

/// Whether `n` is a multiple, as exactly as decimal fractions can be held.
fn is_multiple(n: f64, step: f64) -> bool {
    let times = n / step;
    (times - times.round()).abs() <= 1e-9 * times.abs().max(1.0)
}

/// The range of an integer format.
fn width(format: &str) -> Option<(f64, f64)> {
    Some(match format {
        "uint8" => (0.0, f64::from(u8::MAX)),
        "uint16" => (0.0, f64::from(u16::MAX)),
        "uint32" => (0.0, f64::from(u32::MAX)),
        "uint" | "uint64" => (0.0, u64::MAX as f64),
        "int8" => (f64::from(i8::MIN), f64::from(i8::MAX)),
        "int16" => (f64::from(i16::MIN), f64::from(i16::MAX)),
        "int32" => (f64::from(i32::MIN), f64::from(i32::MAX)),
        "int" | "int64" => (i64::MIN as f64, i64::MAX as f64),
        _ => return None,
    })
}

pub(super) fn is_kind(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        // Lua cannot tell an empty list from an empty object, so neither may we.
        "object" => value.is_object() || value.as_array().is_some_and(Vec::is_empty),
        "array" => value.is_array() || value.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// The names of Lua's types, which the original's messages use.
pub(super) fn lua_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) | Value::Object(_) => "table",
    }
}

/// Whether two values mean the same: `1` and `1.0` do, `[]` and `{}` do.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len()
                && x.iter()
                    .all(|(name, x)| y.get(name).is_some_and(|y| same(x, y)))
        }
        (Value::Array(list), Value::Object(map)) | (Value::Object(map), Value::Array(list)) => {
            list.is_empty() && map.is_empty()
        }
        _ => a == b,
    }
}

/// The first two elements that are the same. Linear, since lists may be long.
pub(super) fn twice(list: &[Value]) -> Option<(usize, usize)> {
    let mut seen: HashMap<u64, Vec<usize>, FxBuildHasher> = HashMap::default();
    for (at, item) in list.iter().enumerate() {
        let alike = seen.entry(print(item)).or_default();
        if let Some(first) = alike.iter().find(|first| same(&list[**first], item)) {
            return Some((*first, at));
        }
        alike.push(at);
    }
    None
}

/// A number that is equal for values that are the [`same`].
fn print(value: &Value) -> u64 {
    let mut hasher = FxBuildHasher.build_hasher();
    match value {
        Value::Null => 0_u8.hash(&mut hasher),
        Value::Bool(b) => b.hash(&mut hasher),
        // Adding zero makes the two zeros one.
        Value::Number(n) => (n.as_f64().unwrap_or_default() + 0.0)
            .to_bits()
            .hash(&mut hasher),
        Value::String(text) => text.hash(&mut hasher),
        Value::Array(list) => list.iter().for_each(|item| print(item).hash(&mut hasher)),
        Value::Object(map) => {
            let member =
                |(name, value): (&String, &Value)| FxBuildHasher.hash_one((name, print(value)));
            // The order of members has no meaning; of no members at all nothing is hashed, as of
            // an empty list.
            if !map.is_empty() {
                map.iter()
                    .map(member)
                    .fold(0_u64, u64::wrapping_add)
                    .hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

/// What was found and what is allowed instead.
pub(super) fn allowed<'v>(values: impl Iterator<Item = &'v Value>, found: &Value) -> String {
    let names: Vec<String> = values
        .filter(|value| !value.is_null())
        .map(Value::to_string)
        .collect();
    format!("found {}, allowed: {}", shown(found), names.join(", "))
}

/// A value as JSON, not longer than a message bears.
pub(super) fn shown(value: &Value) -> String {
    cut(&value.to_string()).into_owned()
}

fn cut(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]).into(),
        None => text.into(),
    }
}

/// Whether a schema's pattern occurs in a text; in words, when the pattern is none.
pub(super) fn matches(pattern: &str, text: &str) -> Result<bool, String> {
    // A memo: what a pattern compiles to never changes.
    static MEMO: LazyLock<Mutex<HashMap<String, Pattern>>> = LazyLock::new(Mutex::default);
    let known = MEMO
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(pattern)
        .cloned();
    let compiled = match known {
        Some(known) => known,
        None => {
            let made = Pattern::new(pattern).map_err(|e| {
                format!(
                    "the schema's pattern \"{}\" is not valid: {e}",
                    cut(pattern)
                )
            })?;
            let mut memo = MEMO.lock().unwrap_or_else(PoisonError::into_inner);
            if memo.len() >= KEPT_PATTERNS {
                memo.clear();
            }
            memo.insert(pattern.to_owned(), made.clone());
            made
        }
    };
    Ok(compiled.is_match(text))
}
