//! A JSON Schema as rows of a table, one for each attribute.
//!
//! Nested attributes have dotted names: `abort.http_status`, `filters[].regex` in each item of a
//! list, `headers.*` for names that the user chooses. A keyword that is not known here is a
//! mistake: a page must not keep quiet about a rule.

use serde_json::{Map, Value};

/// Keywords that are shown, or that say nothing to a reader.
const KNOWN: [&str; 20] = [
    "type",
    "properties",
    "required",
    "items",
    "additionalProperties",
    "anyOf",
    "oneOf",
    "description",
    "default",
    "enum",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "uniqueItems",
    "pattern",
];
/// Widths of numbers in memory: the range tells what matters.
const SILENT: [&str; 1] = ["format"];

/// One attribute.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// `required`, the default in backticks, or empty.
    pub(crate) need: String,
    /// Rules for the value, each a few words.
    pub(crate) rules: Vec<String>,
    /// The documentation, as it was written.
    pub(crate) meaning: String,
}

/// The attributes of a schema. What is undocumented or unknown goes to `mistakes`.
pub(crate) fn rows(schema: &Value, mistakes: &mut Vec<String>) -> Vec<Row> {
    let mut rows = Vec::new();
    members("", schema, &mut rows, mistakes);
    rows
}

fn members(prefix: &str, schema: &Value, rows: &mut Vec<Row>, mistakes: &mut Vec<String>) {
    let required = schema["required"].as_array();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let required = required.is_some_and(|list| list.iter().any(|other| other == name));
        let Some(map) = schema.as_object() else {
            mistakes.push(format!("{path}: a schema that is no object"));
            continue;
        };
        let row = row(path, map, required, mistakes);
        let path = row.name.clone();
        rows.push(row);
        below(&path, schema, rows, mistakes);
    }
}

/// Attributes inside of an attribute's value.
fn below(path: &str, schema: &Value, rows: &mut Vec<Row>, mistakes: &mut Vec<String>) {
    members(&format!("{path}."), schema, rows, mistakes);
    let items = &schema["items"];
    if items.is_object() {
        below(&format!("{path}[]"), items, rows, mistakes);
    }
    let Some(values) = schema["additionalProperties"].as_object() else {
        return;
    };
    // Beside named members, or with rules of their own, chosen names are worth a line.
    if schema["properties"].is_object() || !rules(values).is_empty() {
        let row = row(format!("{path}.*"), values, false, mistakes);
        rows.push(row);
    }
    members(
        &format!("{path}.*."),
        &schema["additionalProperties"],
        rows,
        mistakes,
    );
}

fn row(
    name: String,
    schema: &Map<String, Value>,
    required: bool,
    mistakes: &mut Vec<String>,
) -> Row {
    let meaning = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or("");
    if meaning.is_empty() {
        mistakes.push(format!("{name}: has no documentation"));
    }
    for keyword in schema.keys() {
        if !KNOWN.contains(&keyword.as_str()) && !SILENT.contains(&keyword.as_str()) {
            mistakes.push(format!("{name}: the generator does not know `{keyword}`"));
        }
    }
    let need = match schema.get("default") {
        _ if required => "required".to_owned(),
        None | Some(Value::Null) => String::new(),
        // The members have their own lines.
        Some(Value::Object(_)) => String::new(),
        Some(default) => code(&default.to_string()),
    };
    Row {
        kind: kind(schema),
        need,
        rules: rules(schema),
        meaning: meaning.to_owned(),
        name,
    }
}

/// What the value is, in JSON's words; `null` stands for leaving it out and is not told.
fn kind(schema: &Map<String, Value>) -> String {
    let mut choices = choices(schema).peekable();
    if choices.peek().is_some() {
        let kinds: Vec<String> = choices.map(kind).collect();
        let kinds: Vec<&str> = kinds
            .iter()
            .map(String::as_str)
            .filter(|kind| *kind != "null")
            .collect();
        return kinds.join(" or ");
    }
    let named = match schema.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            let names: Vec<&str> = names.filter(|name| *name != "null").collect();
            names.join(" or ")
        }
        // Only an enumeration goes without a type.
        _ if schema.contains_key("enum") => "string".to_owned(),
        _ => "any".to_owned(),
    };
    let inner = match named.as_str() {
        "array" => schema.get("items"),
        "object" if !schema.contains_key("properties") => schema.get("additionalProperties"),
        _ => None,
    };
    match inner.and_then(Value::as_object).map(kind) {
        Some(inner) if inner != "any" => format!("{named} of {inner}"),
        _ => named,
    }
}

/// The alternatives of a value.
fn choices(schema: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let lists = ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|name| schema.get(name));
    let choices = lists.filter_map(Value::as_array).flatten();
    choices.filter_map(Value::as_object)
}

fn rules(schema: &Map<String, Value>) -> Vec<String> {
    let mut out: Vec<String> = choices(schema).flat_map(rules).collect();
    if let Some(above) = schema.get("exclusiveMinimum") {
        out.push(format!("above {above}"));
    }
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        let values = list.iter().filter(|value| !value.is_null());
        let values: Vec<String> = values.map(|value| code(plain(value).as_str())).collect();
        out.push(values.join(", "));
    }
    let bounds = [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " entries"),
    ];
    for (least, most, unit) in bounds {
        let unit = |n: &Value| match (n.as_f64(), unit) {
            (Some(1.0), " characters") => " character",
            (Some(1.0), " items") => " item",
            (Some(1.0), " entries") => " entry",
            _ => unit,
        };
        match (schema.get(least), schema.get(most)) {
            (Some(a), Some(b)) if a == b => out.push(format!("{a}{}", unit(a))),
            (Some(a), Some(b)) => out.push(format!("{a} to {b}{}", unit(b))),
            (Some(a), None) => out.push(format!("at least {a}{}", unit(a))),
            (None, Some(b)) => out.push(format!("at most {b}{}", unit(b))),
            (None, None) => {}
        }
    }
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        out.push("no item twice".to_owned());
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        out.push(format!("matches {}", code(pattern)));
    }
    if let Some(items) = schema.get("items").and_then(Value::as_object)
        && !items.contains_key("properties")
    {
        out.extend(rules(items).into_iter().map(|rule| format!("each: {rule}")));
    }
    out
}

/// A text without quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// A code span, whatever is in it.
pub(crate) fn code(text: &str) -> String {
    if text.contains('`') {
        format!("`` {text} ``")
    } else {
        format!("`{text}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Rows as `name | kind | need | rules`.
    fn check(properties: Value, expected: &[&str], mistakes: &[&str]) {
        let mut found = Vec::new();
        let rows = rows(
            &json!({"properties": properties, "required": ["must"]}),
            &mut found,
        );
        let lines: Vec<String> = rows
            .iter()
            .map(|row| {
                let rules = row.rules.join("; ");
                format!("{} | {} | {} | {rules}", row.name, row.kind, row.need)
            })
            .collect();
        assert_eq!(lines, expected);
        assert_eq!(found, mistakes);
    }

    #[test]
    fn plain_attributes() {
        let of = |schema: Value, expected: &str| {
            let mut schema = schema;
            schema["description"] = json!("Text.");
            check(json!({"a": schema}), &[&format!("a | {expected}")], &[]);
        };
        of(
            json!({"type": "string", "default": "x"}),
            "string | `\"x\"` | ",
        );
        of(
            json!({"type": ["integer", "null"], "default": null}),
            "integer |  | ",
        );
        of(
            json!({"type": "integer", "minimum": 1, "maximum": 9}),
            "integer |  | 1 to 9",
        );
        of(
            json!({"type": "string", "minLength": 1}),
            "string |  | at least 1 character",
        );
        of(
            json!({"type": "string", "maxLength": 8}),
            "string |  | at most 8 characters",
        );
        of(
            json!({"type": "string", "pattern": "^a|`"}),
            "string |  | matches `` ^a|` ``",
        );
        of(json!({"enum": ["GET", null]}), "string |  | `GET`");
        of(
            json!({"oneOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string"}]}),
            "integer or string |  | above 0",
        );
        of(
            json!({"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 2, "maxItems": 2, "uniqueItems": true}),
            "array of string |  | 2 items; no item twice; each: at least 1 character",
        );
        of(json!({"type": "array", "items": true}), "array |  | ");
        of(
            json!({"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "number"}]}, "minProperties": 1}),
            "object of string or number |  | at least 1 entry",
        );
    }

    #[test]
    fn nested_attributes() {
        let leaf = json!({"type": "boolean", "description": "Text."});
        let object = json!({"type": "object", "description": "Text.", "properties": {"b": leaf}});
        check(
            json!({"must": object}),
            &["must | object | required | ", "must.b | boolean |  | "],
            &[],
        );
        let list = json!({"type": "array", "description": "Text.", "items": object});
        check(
            json!({"a": list}),
            &["a | array of object |  | ", "a[].b | boolean |  | "],
            &[],
        );
        let named =
            json!({"type": "object", "description": "Text.", "additionalProperties": object});
        check(
            json!({"a": named}),
            &["a | object of object |  | ", "a.*.b | boolean |  | "],
            &[],
        );
        let mixed = json!({"type": "object", "description": "Text.", "properties": {"b": leaf}, "additionalProperties": leaf});
        check(
            json!({"a": mixed}),
            &[
                "a | object |  | ",
                "a.b | boolean |  | ",
                "a.* | boolean |  | ",
            ],
            &[],
        );
    }

    #[test]
    fn mistakes() {
        check(
            json!({"a": {"type": "number", "multipleOf": 2}}),
            &["a | number |  | "],
            &[
                "a: has no documentation",
                "a: the generator does not know `multipleOf`",
            ],
        );
    }
}
