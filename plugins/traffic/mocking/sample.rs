//! A value in the shape of a JSON Schema, always the same one for the same schema.

use serde_json::{Map, Value, json};

/// How deep a schema is followed; the recursion is bounded by it.
const MAX_DEPTH: usize = 32;

/// A body of this content type, in the shape of an object's schema.
pub(super) fn body(kind: &str, schema: &Map<String, Value>) -> String {
    let value = object(schema, 0);
    match kind {
        "application/xml" | "text/xml" => {
            let mut out = String::new();
            xml("data", &value, &mut out);
            out
        }
        _ => value.to_string(),
    }
}

/// `None` for a type that does not exist, and for a list of no known kind: such a member is left
/// out.
fn value(schema: &Value, depth: usize) -> Option<Value> {
    let schema = schema.as_object().filter(|_| depth < MAX_DEPTH)?;
    let kind = kind(schema);
    let own = ["example", "default", "const"]
        .into_iter()
        .filter_map(|name| schema.get(name));
    let listed = schema
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    if let Some(given) = own.chain(listed).find(|given| fits(kind, given)) {
        return Some(given.clone());
    }
    Some(match kind {
        "string" => json!("string"),
        "number" => json!(1.5),
        "integer" => json!(1),
        "boolean" => json!(true),
        "array" => Value::Array(value(schema.get("items")?, depth + 1).into_iter().collect()),
        "object" => object(schema, depth),
        _ => return None,
    })
}

fn object(schema: &Map<String, Value>, depth: usize) -> Value {
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let member =
        |(name, schema): (&String, &Value)| Some((name.clone(), value(schema, depth + 1)?));
    Value::Object(properties.filter_map(member).collect())
}

/// The type; of several the first that is not `null`. In any case, as in the original.
fn kind(schema: &Map<String, Value>) -> &'static str {
    const KINDS: [&str; 6] = ["string", "number", "integer", "boolean", "array", "object"];
    let known = |name: &Value| {
        let name = name.as_str()?;
        KINDS
            .into_iter()
            .find(|kind| kind.eq_ignore_ascii_case(name))
    };
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().find_map(known).unwrap_or(""),
        Some(name) => known(name).unwrap_or(""),
        None if schema.contains_key("items") => "array",
        None => "object",
    }
}

/// Whether a value that the schema gives is of the schema's own type.
fn fits(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// An element; a list is one element for each of its members.
fn xml(name: &str, value: &Value, out: &mut String) {
    if let Value::Array(list) = value {
        return list.iter().for_each(|item| xml(name, item, out));
    }
    out.extend(["<", name, ">"]);
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| xml(name, value, out)),
        Value::String(text) => {
            let text = text
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            out.push_str(&text);
        }
        other => out.push_str(&other.to_string()),
    }
    out.extend(["</", name, ">"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(properties: Value, as_json: &str, as_xml: &str) {
        let schema = json!({ "properties": properties });
        let schema = schema.as_object().unwrap();
        assert_eq!(body("application/json", schema), as_json);
        assert_eq!(body("text/xml", schema), as_xml);
    }

    #[test]
    fn shapes() {
        check(json!({}), "{}", "<data></data>");
        check(
            json!({"s": {"type": "string"}, "n": {"type": "number"}, "i": {"type": "INTEGER"}, "b": {"type": "boolean"}}),
            r#"{"s":"string","n":1.5,"i":1,"b":true}"#,
            "<data><s>string</s><n>1.5</n><i>1</i><b>true</b></data>",
        );
        check(
            json!({"l": {"type": "array", "items": {"properties": {"a": {"type": "string"}}}}, "e": {"type": "array"}}),
            r#"{"l":[{"a":"string"}]}"#,
            "<data><l><a>string</a></l></data>",
        );
        check(
            json!({"x": {"type": "other"}, "y": 5, "z": {"type": ["null", "string"]}}),
            r#"{"z":"string"}"#,
            "<data><z>string</z></data>",
        );
    }

    #[test]
    fn values_of_the_schema() {
        check(
            json!({"a": {"type": "string", "example": "<&>"}, "b": {"type": "integer", "default": 7}}),
            r#"{"a":"<&>","b":7}"#,
            "<data><a>&lt;&amp;&gt;</a><b>7</b></data>",
        );
        check(
            json!({"a": {"type": "string", "enum": ["x", "y"]}, "b": {"type": "array", "example": [1, 2]}}),
            r#"{"a":"x","b":[1,2]}"#,
            "<data><a>x</a><b>1</b><b>2</b></data>",
        );
        // One of another type does not count.
        check(
            json!({"a": {"type": "integer", "example": "x"}}),
            r#"{"a":1}"#,
            "<data><a>1</a></data>",
        );
    }

    #[test]
    fn depth_has_a_bound() {
        let mut schema = json!({"type": "string"});
        for _ in 0..100 {
            schema = json!({"type": "object", "properties": {"d": schema}});
        }
        let made = body("application/json", schema.as_object().unwrap());
        assert_eq!(made.matches("\"d\"").count(), MAX_DEPTH - 1);
    }
}
