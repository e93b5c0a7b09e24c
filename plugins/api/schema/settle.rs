//! Makes what the checker accepted digestible for serde.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::MAX_DEPTH;
use super::check::{Items, accepts_null, holds, kinds, names_kind, target_of};
use super::leaf::matches;

/// Largest whole number that a floating-point number holds exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

pub(super) fn settle<'a>(schema: &Value, value: &'a Value) -> Cow<'a, Value> {
    Settle { root: schema }.value(schema, value, 0)
}

struct Settle<'s> {
    root: &'s Value,
}

impl Settle<'_> {
    fn value<'a>(&self, schema: &Value, value: &'a Value, depth: usize) -> Cow<'a, Value> {
        let Some(keywords) = schema.as_object().filter(|_| depth < MAX_DEPTH) else {
            return Cow::Borrowed(value);
        };
        if let Some(target) = keywords.get("$ref").and_then(Value::as_str) {
            return match target_of(self.root, target) {
                Some(target) => self.value(target, value, depth + 1),
                None => Cow::Borrowed(value),
            };
        }
        let mut settled = match value {
            Value::Array(list) if list.is_empty() && misses(keywords, "array", "object") => {
                Cow::Owned(Value::Object(Map::new()))
            }
            Value::Object(map) if map.is_empty() && misses(keywords, "object", "array") => {
                Cow::Owned(Value::Array(Vec::new()))
            }
            Value::Number(n) if n.is_f64() && misses(keywords, "number", "integer") => whole(value),
            Value::Object(map) => self.members(keywords, value, map, depth),
            Value::Array(list) => self.items(keywords, value, list, depth),
            _ => Cow::Borrowed(value),
        };
        for part in listed(keywords, "allOf") {
            settled = self.again(part, settled, depth);
        }
        for keyword in ["anyOf", "oneOf"] {
            let parts = listed(keywords, keyword);
            if let Some(part) = parts.iter().find(|part| holds(self.root, part, &settled)) {
                settled = self.again(part, settled, depth);
            }
        }
        settled
    }

    fn again<'a>(&self, schema: &Value, value: Cow<'a, Value>, depth: usize) -> Cow<'a, Value> {
        match value {
            Cow::Borrowed(value) => self.value(schema, value, depth + 1),
            Cow::Owned(value) => Cow::Owned(self.value(schema, &value, depth + 1).into_owned()),
        }
    }

    fn members<'a>(
        &self,
        keywords: &Map<String, Value>,
        value: &'a Value,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Cow<'a, Value> {
        let mut changed: Option<Map<String, Value>> = None;
        for (name, member) in map {
            let Some(schema) = member_schema(keywords, name) else {
                continue;
            };
            if member.is_null() && !accepts_null(self.root, schema, depth) {
                changed
                    .get_or_insert_with(|| map.clone())
                    .shift_remove(name);
            } else if let Cow::Owned(new) = self.value(schema, member, depth + 1) {
                changed
                    .get_or_insert_with(|| map.clone())
                    .insert(name.clone(), new);
            }
        }
        changed.map_or(Cow::Borrowed(value), |map| Cow::Owned(Value::Object(map)))
    }

    fn items<'a>(
        &self,
        keywords: &Map<String, Value>,
        value: &'a Value,
        list: &[Value],
        depth: usize,
    ) -> Cow<'a, Value> {
        let items = Items::of(keywords);
        let mut changed: Option<Vec<Value>> = None;
        for (at, item) in list.iter().enumerate() {
            let Some((schema, _)) = items.schema(at) else {
                break;
            };
            if let Cow::Owned(new) = self.value(schema, item, depth + 1) {
                changed.get_or_insert_with(|| list.to_vec())[at] = new;
            }
        }
        changed.map_or(Cow::Borrowed(value), |list| Cow::Owned(Value::Array(list)))
    }
}

/// Whether the schema wants another type than the one found.
fn misses(keywords: &Map<String, Value>, found: &str, wanted: &str) -> bool {
    kinds(keywords).next().is_some() && names_kind(keywords, wanted) && !names_kind(keywords, found)
}

fn whole(value: &Value) -> Cow<'_, Value> {
    match value
        .as_f64()
        .filter(|n| n.fract() == 0.0 && n.abs() <= MAX_EXACT)
    {
        // Whole and within the range, as just checked.
        Some(n) => Cow::Owned(Value::from(n as i64)),
        None => Cow::Borrowed(value),
    }
}

/// The schema of a member. The first that applies: one that a pattern adds to a named one is not
/// looked at.
fn member_schema<'s>(keywords: &'s Map<String, Value>, name: &str) -> Option<&'s Value> {
    let within = |keyword: &str| keywords.get(keyword).and_then(Value::as_object);
    within("properties")
        .and_then(|properties| properties.get(name))
        .or_else(|| {
            within("patternProperties")
                .into_iter()
                .flatten()
                .find(|(pattern, _)| matches(pattern, name) == Ok(true))
                .map(|(_, schema)| schema)
        })
        .or_else(|| {
            keywords
                .get("additionalProperties")
                .filter(|extra| extra.is_object())
        })
}

fn listed<'s>(keywords: &'s Map<String, Value>, keyword: &str) -> &'s [Value] {
    keywords
        .get(keyword)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
