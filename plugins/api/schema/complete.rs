//! Fills in what a schema says about members that are left out.

use serde_json::{Map, Value};

use super::MAX_DEPTH;
use super::check::{holds, target_of};

/// Adds the defaults of members that are missing in objects that are there. A `null` stands for no
/// default.
pub(super) fn complete(schema: &Value, value: &mut Value) {
    Complete { root: schema }.value(schema, value, 0);
}

struct Complete<'s> {
    root: &'s Value,
}

impl Complete<'_> {
    fn value(&self, schema: &Value, value: &mut Value, depth: usize) {
        let Some(keywords) = schema.as_object().filter(|_| depth < MAX_DEPTH) else {
            return;
        };
        if let Some(target) = keywords.get("$ref").and_then(Value::as_str) {
            if let Some(target) = target_of(self.root, target) {
                self.value(target, value, depth + 1);
            }
            return;
        }
        match value {
            Value::Object(map) => self.members(keywords, map, depth),
            Value::Array(list) => {
                if let Some(items) = keywords.get("items") {
                    list.iter_mut()
                        .for_each(|item| self.value(items, item, depth + 1));
                }
            }
            _ => return,
        }
        let listed = |keyword: &str| keywords.get(keyword).and_then(Value::as_array);
        for part in listed("allOf").into_iter().flatten() {
            self.value(part, value, depth + 1);
        }
        for keyword in ["anyOf", "oneOf"] {
            let mut parts = listed(keyword).into_iter().flatten();
            if let Some(part) = parts.find(|part| holds(self.root, part, value)) {
                self.value(part, value, depth + 1);
            }
        }
    }

    fn members(&self, keywords: &Map<String, Value>, map: &mut Map<String, Value>, depth: usize) {
        let properties = keywords.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            match map.get_mut(name) {
                Some(member) => self.value(schema, member, depth + 1),
                None => {
                    let default = schema.get("default").filter(|default| !default.is_null());
                    if let Some(default) = default {
                        map.insert(name.clone(), default.clone());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_is_filled_in() {
        let check = |schema: Value, value: Value, expected: Value| {
            let mut value = value;
            complete(&schema, &mut value);
            assert_eq!(value, expected, "{schema}");
        };
        let one = json!({"properties": {
            "a": {"default": 1}, "b": {"default": null}, "c": {"properties": {"d": {"default": "e"}}},
        }});
        check(one.clone(), json!({}), json!({"a": 1}));
        check(one.clone(), json!({"a": null}), json!({"a": null}));
        check(
            one.clone(),
            json!({"c": {}}),
            json!({"c": {"d": "e"}, "a": 1}),
        );
        check(json!({"items": one}), json!([{}, 2]), json!([{"a": 1}, 2]));
        check(
            json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"default": 1}}}]}),
            json!({}),
            json!({"a": 1}),
        );
        check(
            json!({"$ref": "#/$defs/x", "$defs": {"x": one}}),
            json!({}),
            json!({"a": 1}),
        );
        check(json!(true), json!({}), json!({}));
    }
}
