//! The `_meta` object that every plugin configuration may have.

use std::sync::Arc;

use bytes::Bytes;
use lockgate_plugin::schema::closest;
use lockgate_plugin::{Expr, Problem, Problems};
use serde_json::{Map, Value};

use crate::config::compile::plan::Meta;

/// The names `_meta` may have.
const META: [&str; 5] = [
    "disable",
    "priority",
    "filter",
    "error_response",
    "pre_function",
];

/// Takes `_meta` out of a plugin configuration.
///
/// # Errors
/// Everything that is wrong with `_meta`, or that the configuration is not a mapping; not of a
/// plugin that is disabled, as it never runs.
pub fn split_meta(conf: &Value) -> Result<(Value, Meta), Problems> {
    let (rest, meta, problems) = split(conf);
    if !meta.disable {
        problems.into_result()?;
    }
    Ok((rest, meta))
}

/// The same, with what could be read of a `_meta` that is not valid.
pub(super) fn split(conf: &Value) -> (Value, Meta, Problems) {
    let mut out = Problems::default();
    let mut meta = Meta::default();
    let map = match conf {
        Value::Object(map) => map,
        // Lua cannot tell `[]` from `{}`, and an empty value in YAML is what people write for it.
        Value::Array(list) if list.is_empty() => &Map::new(),
        Value::Null => &Map::new(),
        _ => {
            out.add("", "wrong type: a plugin's configuration is an object");
            return (Value::Object(Map::new()), meta, out);
        }
    };
    let mut rest = map.clone();
    match rest.shift_remove("_meta") {
        None | Some(Value::Null) => {}
        Some(Value::Object(raw)) => {
            let mut out = out.at("_meta");
            for (name, value) in &raw {
                member(name, value, &mut meta, &mut out);
            }
        }
        Some(Value::Array(list)) if list.is_empty() => {}
        Some(_) => out.add("_meta", "wrong type: expected object"),
    }
    (Value::Object(rest), meta, out)
}

fn member(name: &str, value: &Value, meta: &mut Meta, out: &mut Problems) {
    match (name, value) {
        (_, Value::Null) => {}
        ("disable", Value::Bool(disable)) => meta.disable = *disable,
        ("disable", _) => out.add(name, "wrong type: expected boolean"),
        ("priority", value) => match value.as_f64().filter(|n| n.fract() == 0.0) {
            // Priorities are small; an absurd one is cut to the range.
            Some(n) => {
                meta.priority = Some(n.clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i32)
            }
            None => out.add(name, "wrong type: expected integer"),
        },
        ("error_response", Value::String(text)) => {
            meta.on_error = Some(Bytes::copy_from_slice(text.as_bytes()));
        }
        ("error_response", Value::Object(_)) => {
            meta.on_error = Some(Bytes::from(format!("{value}\n")))
        }
        ("error_response", _) => out.add(name, "wrong type: expected one of string, object"),
        ("filter", value) => meta.gate = expression(name, value, out).map(Arc::new),
        ("pre_function", _) => out.push(
            Problem::new(name, "Lua source is not run by this version")
                .hint("remove it; `filter` decides when the plugin runs"),
        ),
        (other, _) => {
            let mut problem = Problem::new(
                other,
                format!("additional properties forbidden, found {other}"),
            );
            problem.hint =
                closest(other, META.into_iter()).map(|close| format!("did you mean `{close}`?"));
            out.push(problem);
        }
    }
}

/// An expression in the attribute `name`; what is wrong with it goes to `out`.
pub(super) fn expression(name: &str, value: &Value, out: &mut Problems) -> Option<Expr> {
    // An empty object is an empty list to Lua.
    let empty = Value::Array(Vec::new());
    let value = if value.as_object().is_some_and(Map::is_empty) {
        &empty
    } else {
        value
    };
    match Expr::parse(value) {
        Ok(expr) => Some(expr),
        Err(mut problem) => {
            let text = format!(
                "failed to validate the 'vars' expression: {}",
                problem.message
            );
            problem.message = text;
            out.at(name).push(problem);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn meta_is_taken_out_and_read() {
        let conf = json!({"a": 1, "_meta": {
            "disable": true, "priority": 5.0, "error_response": {"x": 1}, "filter": [["arg_a", "==", "1"]],
        }, "b": 2});
        let (rest, meta) = split_meta(&conf).unwrap();
        assert_eq!(rest, json!({"a": 1, "b": 2}));
        assert!(meta.disable && meta.gate.is_some());
        assert_eq!(meta.priority, Some(5));
        assert_eq!(meta.on_error.as_deref(), Some(b"{\"x\":1}\n".as_slice()));
        for empty in [
            json!({}),
            json!([]),
            json!(null),
            json!({"_meta": {}}),
            json!({"_meta": []}),
        ] {
            assert_eq!(split_meta(&empty).unwrap().0, json!({}), "{empty}");
        }
    }

    #[test]
    fn mistakes() {
        let check = |conf: Value, expected: &[&str]| {
            let problems = split_meta(&conf).err().unwrap_or_default();
            let got: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(got, expected, "{conf}");
        };
        check(json!({"_meta": {"disable": true, "priority": "x"}}), &[]);
        check(
            json!("x"),
            &["wrong type: a plugin's configuration is an object"],
        );
        check(json!({"_meta": 1}), &["_meta: wrong type: expected object"]);
        check(
            json!({"_meta": {"disable": "yes", "priority": 1.5, "error_response": 1, "prioritty": 1}}),
            &[
                "_meta.disable: wrong type: expected boolean",
                "_meta.priority: wrong type: expected integer",
                "_meta.error_response: wrong type: expected one of string, object",
                "_meta.prioritty: additional properties forbidden, found prioritty (did you mean `priority`?)",
            ],
        );
        check(
            json!({"_meta": {"filter": [["a", "="  , 1]], "pre_function": "return 1"}}),
            &[
                "_meta.filter[0][1]: failed to validate the 'vars' expression: invalid operator '='",
                "_meta.pre_function: Lua source is not run by this version \
                 (remove it; `filter` decides when the plugin runs)",
            ],
        );
    }
}
