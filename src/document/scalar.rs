//! YAML scalars: from text to null, boolean, number or string.
//!
//! The core schema of YAML 1.2, with one addition: `yes`, `no`, `on` and `off` are booleans, since
//! the original's reader takes them so and configurations rely on it.

use std::borrow::Cow;

use saphyr_parser::{ScalarStyle, Tag};
use serde_json::{Number, Value};

/// What a scalar means.
///
/// # Errors
/// A sentence about a tag that is unknown or does not fit, or about a number that JSON lacks.
pub(super) fn resolve(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
) -> Result<Value, String> {
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => plain(text),
            _ => Ok(Value::String(text.into_owned())),
        };
    };
    if !tag.is_yaml_core_schema() {
        // A lone `!` says: no guessing.
        if matches!(tag.suffix.as_str(), "" | "!") {
            return Ok(Value::String(text.into_owned()));
        }
        return Err(format!("the tag `{tag}` is not known"));
    }
    if tag.suffix == "str" {
        return Ok(Value::String(text.into_owned()));
    }
    let value = plain(Cow::Borrowed(&text))?;
    let fits = match tag.suffix.as_str() {
        "null" => value.is_null(),
        "bool" => value.is_boolean(),
        "int" => value.is_i64() || value.is_u64(),
        "float" => value.is_number(),
        other => return Err(format!("the tag `!!{other}` is not known")),
    };
    if fits {
        Ok(value)
    } else {
        Err(format!("`{text}` is not of type `{}`", tag.suffix))
    }
}

/// A scalar without quotes.
///
/// # Errors
/// Infinity and not-a-number.
pub(super) fn plain(text: Cow<'_, str>) -> Result<Value, String> {
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return Ok(Value::Bool(true));
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Ok(Value::Bool(false));
        }
        _ => {}
    }
    // Every number starts with one of these: most scalars are words and stop here.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Ok(Value::String(text.into_owned()));
    }
    match number(&text)? {
        Some(number) => Ok(Value::Number(number)),
        None => Ok(Value::String(text.into_owned())),
    }
}

/// The number that `text` is, if it is one.
fn number(text: &str) -> Result<Option<Number>, String> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            let plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
            return Ok(u64::from_str_radix(digits, radix)
                .ok()
                .filter(|_| plain)
                .map(Number::from));
        }
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    if lower == ".inf" || text.eq_ignore_ascii_case(".nan") {
        return Err(format!(
            "`{text}` is not a number that can be used; quote it to mean the word"
        ));
    }
    if !looks_numeric(unsigned) {
        return Ok(None);
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    if let Ok(n) = digits.parse::<i64>() {
        return Ok(Some(n.into()));
    }
    if let Ok(n) = digits.parse::<u64>() {
        return Ok(Some(n.into()));
    }
    let Ok(n) = digits.parse::<f64>() else {
        return Ok(None);
    };
    Number::from_f64(n)
        .map(Some)
        .ok_or_else(|| format!("the number `{text}` is too large"))
}

/// Digits, an optional fraction, an optional exponent; at least one digit before the exponent.
fn looks_numeric(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_fits
}
