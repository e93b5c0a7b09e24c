//! Makes what the checker accepted digestible for serde.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Turns `[]` into `{}` and back where the schema wants the other, and `1.0` into `1` for
/// integers. Borrowed when nothing has to change.
pub fn settle<'a>(schema: &Value, value: &'a Value) -> Cow<'a, Value> {
    let kinds = |kind: &str| match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|k| k == kind),
        _ => false,
    };
    match value {
        Value::Array(list) if list.is_empty() && kinds("object") && !kinds("array") => {
            Cow::Owned(Value::Object(Map::new()))
        }
        Value::Object(map) if map.is_empty() && kinds("array") && !kinds("object") => {
            Cow::Owned(Value::Array(Vec::new()))
        }
        Value::Number(n) if n.is_f64() && kinds("integer") && !kinds("number") => {
            match n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15) {
                // Whole and below 2^53, as just checked.
                Some(f) => Cow::Owned(Value::from(f as i64)),
                None => Cow::Borrowed(value),
            }
        }
        Value::Object(map) => {
            let mut changed = None;
            for (name, member) in map {
                let Some(inner) = member_schema(schema, name) else { continue };
                if let Cow::Owned(new) = settle(inner, member) {
                    changed.get_or_insert_with(|| map.clone()).insert(name.clone(), new);
                }
            }
            changed.map_or(Cow::Borrowed(value), |map| Cow::Owned(Value::Object(map)))
        }
        Value::Array(list) => {
            let Some(inner) = schema.get("items").filter(|items| items.is_object()) else {
                return Cow::Borrowed(value);
            };
            let mut changed = None;
            for (i, item) in list.iter().enumerate() {
                if let Cow::Owned(new) = settle(inner, item) {
                    changed.get_or_insert_with(|| list.clone())[i] = new;
                }
            }
            changed.map_or(Cow::Borrowed(value), |list| Cow::Owned(Value::Array(list)))
        }
        _ => Cow::Borrowed(value),
    }
}

/// The schema of a member; of `T or null` the schema of T.
fn member_schema<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let found = schema.get("properties").and_then(|p| p.get(name)).or_else(|| {
        schema.get("additionalProperties").filter(|extra| extra.is_object())
    })?;
    match found.get("anyOf").and_then(Value::as_array) {
        Some(parts) => parts.iter().find(|part| part.get("type") != Some(&"null".into())),
        None => Some(found),
    }
}
