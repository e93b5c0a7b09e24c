use schemars::JsonSchema;
use serde_json::{Value, json};

use super::*;

mod keywords;
mod settled;

#[allow(clippy::needless_pass_by_value)] // Rows read better without a `&`.
fn check(schema: &Value, value: Value, expected: &[&str]) {
    let mut out = Problems::default();
    validate(schema, &value, &mut out);
    let got: Vec<String> = out.iter().map(ToString::to_string).collect();
    assert_eq!(got, expected, "{value}");
}

#[test]
fn messages_are_those_of_the_original() {
    let schema = json!({
        "type": "object",
        "required": ["count"],
        "additionalProperties": false,
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": 10},
            "rate": {"type": "number", "exclusiveMinimum": 0},
            "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
            "mode": {"enum": ["a", "b"]},
            "list": {"type": "array", "minItems": 1, "uniqueItems": true, "items": {"type": "integer"}},
            "ip": {"type": "string", "format": "ipv4"},
            "any": {"type": ["string", "integer"]},
        },
        "dependencies": {"rate": ["name"]},
    });
    check(&schema, json!({"count": 1.0}), &[]);
    check(&schema, json!({}), &["property \"count\" is required"]);
    check(
        &schema,
        json!({"count": "x"}),
        &["count: wrong type: expected integer, got string"],
    );
    check(
        &schema,
        json!({"count": 1.5}),
        &["count: wrong type: expected integer, got number"],
    );
    check(
        &schema,
        json!({"count": 0}),
        &["count: expected 0 to be at least 1"],
    );
    check(
        &schema,
        json!({"count": 11}),
        &["count: expected 11 to be at most 10"],
    );
    check(
        &schema,
        json!({"count": 1, "rate": 0}),
        &[
            "rate: expected 0 to be greater than 0",
            "property \"name\" is required when \"rate\" is set",
        ],
    );
    check(
        &schema,
        json!({"count": 1, "name": "a"}),
        &["name: string too short, expected at least 2, got 1"],
    );
    check(
        &schema,
        json!({"count": 1, "name": "éééé"}),
        &["name: failed to match pattern \"^[a-z]+$\" with \"éééé\""],
    );
    check(
        &schema,
        json!({"count": 1, "mode": "c"}),
        &["mode: matches none of the enum values (found \"c\", allowed: \"a\", \"b\")"],
    );
    check(
        &schema,
        json!({"count": 1, "list": []}),
        &["list: expect array to have at least 1 items"],
    );
    check(
        &schema,
        json!({"count": 1, "list": [1, 2, 1]}),
        &["list: expected unique items but items 1 and 3 are equal"],
    );
    check(
        &schema,
        json!({"count": 1, "list": [1, "2"]}),
        &["list[1]: wrong type: expected integer, got string"],
    );
    check(
        &schema,
        json!({"count": 1, "ip": "1.2.3"}),
        &["ip: expect valid ipv4 address but got: 1.2.3"],
    );
    check(
        &schema,
        json!({"count": 1, "any": true}),
        &["any: wrong type: expected one of string, integer, got boolean"],
    );
    check(
        &schema,
        json!({"count": 1, "nmae": "ab"}),
        &["nmae: additional properties forbidden, found nmae (did you mean `name`?)"],
    );
    check(
        &schema,
        json!({"count": 1, "mode": null, "name": null}),
        &[],
    );
    check(
        &schema,
        json!({"count": null}),
        &["count: wrong type: expected integer, got nil"],
    );
    check(&schema, json!([]), &["property \"count\" is required"]);
    check(
        &schema,
        json!("x"),
        &["wrong type: expected object, got string"],
    );
}

#[test]
fn all_violations_are_reported() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "boolean"}}}}});
    check(
        &schema,
        json!({"a": 1, "b": {"c": "x"}}),
        &[
            "a: wrong type: expected string, got number",
            "b.c: wrong type: expected boolean, got string",
        ],
    );
}

#[test]
fn combinations() {
    let one = json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(&one, json!({"a": 1}), &[]);
    check(
        &one,
        json!({"a": 1, "b": 1}),
        &["value should match only one schema, but matches both schemas 1 and 2"],
    );
    check(
        &one,
        json!({}),
        &["value should match only one schema, but matches none"],
    );
    let any = json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(
        &any,
        json!({}),
        &["object matches none of the required: [\"a\"] or [\"b\"]"],
    );
    let all = json!({"allOf": [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}}]});
    check(
        &all,
        json!({"b": 1}),
        &[
            "property \"a\" is required",
            "b: wrong type: expected string, got number",
        ],
    );
    let cond = json!({"if": {"required": ["t"]}, "then": {"required": ["u"]}, "else": {"required": ["v"]}});
    check(
        &cond,
        json!({"t": 1}),
        &["then clause did not match (property \"u\" is required)"],
    );
    check(
        &cond,
        json!({}),
        &["else clause did not match (property \"v\" is required)"],
    );
    check(
        &json!({"not": {"type": "string"}}),
        json!("x"),
        &["value wasn't supposed to match schema"],
    );
}

#[test]
fn the_alternative_that_was_meant_explains() {
    let id =
        json!({"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}]});
    check(&id, json!("a"), &[]);
    check(
        &id,
        json!(""),
        &["string too short, expected at least 1, got 0"],
    );
    check(&id, json!(0), &["expected 0 to be at least 1"]);
    check(&id, json!(true), &["object matches none of the required"]);
    let tagged = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]},
        {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]},
    ]});
    check(
        &tagged,
        json!({"kind": "a", "n": "1"}),
        &["n: wrong type: expected integer, got string"],
    );
    check(
        &tagged,
        json!({"kind": "c"}),
        &["value should match only one schema, but matches none"],
    );
    let names =
        json!({"oneOf": [{"const": "x", "description": "X"}, {"const": "y", "description": "Y"}]});
    check(
        &names,
        json!("z"),
        &["matches none of the enum values (found \"z\", allowed: \"x\", \"y\")"],
    );
}

#[test]
fn texts_for_clients_of_the_original() {
    let check = |schema: Value, value: Value, expected: &str| {
        assert_eq!(
            apisix_text(&schema, &value).as_deref(),
            Some(expected),
            "{value}"
        );
    };
    let deep = json!({"properties": {"a": {"items": {"type": "integer"}}}});
    check(
        deep.clone(),
        json!({"a": [1, "x"]}),
        "property \"a\" validation failed: failed to validate item 2: wrong type: expected integer, got string",
    );
    assert_eq!(apisix_text(&deep, &json!({"a": [1]})), None);
    check(
        json!({"properties": {"a": {"additionalProperties": false}}}),
        json!({"a": {"b": 1}}),
        "property \"a\" validation failed: additional properties forbidden, found b",
    );
    check(
        json!({"additionalProperties": {"type": "string"}}),
        json!({"b": 1}),
        "failed to validate additional property b: wrong type: expected string, got number",
    );
    check(
        json!({"patternProperties": {"^b": {"type": "string"}}}),
        json!({"b": 1}),
        "failed to validate b (matching \"^b\"): wrong type: expected string, got number",
    );
    check(
        json!({"allOf": [{}, {"required": ["a"]}]}),
        json!({"b": 1}),
        "allOf 2 failed: property \"a\" is required",
    );
    check(
        json!({"properties": {"id": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]}}}),
        json!({"id": ""}),
        "property \"id\" validation failed: object matches none of the required",
    );
    check(
        json!({"properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}),
        json!({"n": ""}),
        "property \"n\" validation failed: wrong type: expected integer, got string",
    );
    check(
        json!({"dependencies": {"a": {"required": ["b"]}}}),
        json!({"a": 1}),
        "failed to validate dependent schema for \"a\": property \"b\" is required",
    );
    check(
        json!({"if": {}, "then": {"required": ["u"]}}),
        json!({"b": 1}),
        "then clause did not match",
    );
}

#[test]
fn reports_and_depth_are_bounded() {
    let schema = json!({"items": {"type": "integer"}});
    let mut out = Problems::default();
    validate(&schema, &Value::Array(vec![json!("x"); 5000]), &mut out);
    assert_eq!(out.len(), MAX_VIOLATIONS + 1);
    let last = format!("\nmore than {MAX_VIOLATIONS} violations; the rest is not listed");
    assert!(out.to_string().ends_with(&last));
    let mut deep = json!(1);
    for _ in 0..1000 {
        deep = json!([deep]);
    }
    let schema = json!({"items": {"$ref": "#"}});
    assert!(
        apisix_text(&schema, &deep).is_some_and(|text| text.ends_with("nested deeper than 160"))
    );
    // Dropped level by level: the drop of a value is recursive too.
    while let Value::Array(mut list) = deep {
        deep = list.pop().unwrap_or(Value::Null);
    }
    let bad = apisix_text(&json!({"pattern": "("}), &json!("a")).unwrap_or_default();
    assert!(
        bad.starts_with("the schema's pattern \"(\" is not valid: "),
        "{bad}"
    );
    let long = "x".repeat(1000);
    let text = apisix_text(&json!({"pattern": "^y"}), &json!(long)).unwrap_or_default();
    assert!(text.ends_with("xxx...\"") && text.len() < 200, "{text}");
}

#[test]
fn secret_references_are_texts_to_come() {
    let schema = json!({"properties": {"key": {"type": "string", "maxLength": 3}, "n": {"type": "integer"}}});
    check(&schema, json!({"key": "$secret://vault/1/key"}), &[]);
    check(&schema, json!({"key": "$ENV://SOME_KEY"}), &[]);
    check(
        &schema,
        json!({"n": "$env://N"}),
        &["n: wrong type: expected integer, got string"],
    );
}

#[derive(JsonSchema, serde::Deserialize)]
#[allow(dead_code)]
struct Conf {
    /// How many.
    #[schemars(range(min = 1))]
    count: u32,
    #[serde(default)]
    note: Option<String>,
    #[serde(default)]
    inner: Option<Inner>,
}

#[derive(JsonSchema, serde::Deserialize)]
#[allow(dead_code)]
struct Inner {
    list: Vec<u32>,
}

#[test]
fn schemas_of_types() {
    let schema = of::<Conf>();
    check(
        &schema,
        json!({"count": 0}),
        &["count: expected 0 to be at least 1"],
    );
    check(
        &schema,
        json!({"count": 1, "note": 1}),
        &["note: wrong type: expected string, got number"],
    );
    check(&schema, json!({"count": 1, "note": null}), &[]);
    check(
        &schema,
        json!({"count": 1, "inner": {}}),
        &["inner: property \"list\" is required"],
    );
    check(&schema, json!({"count": 1, "inner": {"list": {}}}), &[]);
}

#[test]
fn schemas_are_made_once() {
    assert!(Arc::ptr_eq(&cached::<Conf>(), &cached::<Conf>()));
    assert_eq!(*cached::<Conf>(), of::<Conf>());
    assert!(of::<Conf>().get("title").is_none());
}
