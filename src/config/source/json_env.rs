//! `${{NAME}}` in the texts of a JSON document, and in the names of members, filled in after parsing.
//! Source: APISIX.

use lockgate_plugin::Problems;
use serde_json::{Map, Value};

use crate::document::substitute_env;

/// What a reference starts with.
const OPEN: &str = "${{";

/// Whether some text of `value` may hold a reference.
pub(super) fn refers(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(OPEN),
        Value::Array(list) => list.iter().any(refers),
        Value::Object(map) => map
            .iter()
            .any(|(name, member)| name.contains(OPEN) || refers(member)),
        _ => false,
    }
}

/// Replaces references in every text of `value`. A text that becomes a number, `true` or `false`
/// that way is one afterwards, as JSON has no other way to say so.
pub(super) fn fill(value: &mut Value, env: &dyn Fn(&str) -> Option<String>, out: &mut Problems) {
    match value {
        Value::String(text) => {
            if let Some(new) = filled(text, env, out) {
                *value = typed(&new);
            }
        }
        Value::Array(list) => {
            for (at, item) in list.iter_mut().enumerate() {
                fill(item, env, &mut out.at_index(at));
            }
        }
        Value::Object(map) => {
            if map.keys().any(|name| name.contains(OPEN)) {
                rename(map, env, out);
            }
            for (name, member) in map {
                fill(member, env, &mut out.at(name));
            }
        }
        _ => {}
    }
}

/// Fills in the names of members. They stay in their order; of two that become the same the last one
/// counts.
fn rename(map: &mut Map<String, Value>, env: &dyn Fn(&str) -> Option<String>, out: &mut Problems) {
    for (name, member) in std::mem::take(map) {
        let name = filled(&name, env, out).unwrap_or(name);
        map.insert(name, member);
    }
}

/// What becomes of a text; `None` when it stays as it is.
fn filled(text: &str, env: &dyn Fn(&str) -> Option<String>, out: &mut Problems) -> Option<String> {
    if !text.contains(OPEN) {
        return None;
    }
    match substitute_env(text, env, "") {
        Ok(new) => (*new != *text).then(|| new.into_owned()),
        Err(problems) => {
            for mut problem in problems {
                // The place in the text says nothing about the place in the file.
                (problem.file, problem.place) = (None, None);
                out.push(problem);
            }
            None
        }
    }
}

fn typed(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_filled_in() {
        let env = |name: &str| match name {
            "PORT" => Some("9080".to_owned()),
            "ON" => Some("true".to_owned()),
            "HOST" => Some("a.test".to_owned()),
            _ => None,
        };
        let check = |mut value: Value, expected: Value, problems: &str| {
            let mut out = Problems::default();
            fill(&mut value, &env, &mut out);
            assert_eq!((value, out.to_string()), (expected, problems.to_owned()));
        };
        check(
            json!({"a": ["${{PORT}}", {"b": "${{ ON }}"}]}),
            json!({"a": [9080, {"b": true}]}),
            "",
        );
        check(json!("${{HOST}}:${{PORT}}"), json!("a.test:9080"), "");
        check(json!("${{PORT:=1}}0"), json!(90800), "");
        check(
            json!({"nodes": {"${{HOST}}:${{PORT}}": 1, "b": "${{ON}}"}}),
            json!({"nodes": {"a.test:9080": 1, "b": true}}),
            "",
        );
        check(
            json!({"${{NONE}}": 1}),
            json!({"${{NONE}}": 1}),
            "can't find environment variable NONE (set it, or give a default: ${{NONE:=value}})",
        );
        check(
            json!(["$HOST", "{{HOST}}", 1, null]),
            json!(["$HOST", "{{HOST}}", 1, null]),
            "",
        );
        check(
            json!({"a": ["x${{NONE}}"]}),
            json!({"a": ["x${{NONE}}"]}),
            "a[0]: can't find environment variable NONE (set it, or give a default: ${{NONE:=value}})",
        );
    }
}
