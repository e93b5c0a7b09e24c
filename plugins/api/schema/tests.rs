use schemars::JsonSchema;
use serde_json::{Value, json};

use super::*;
use crate::problem::Problems;

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
    check(&schema, json!({"count": "x"}), &["count: wrong type: expected integer, got string"]);
    check(&schema, json!({"count": 1.5}), &["count: wrong type: expected integer, got number"]);
    check(&schema, json!({"count": 0}), &["count: expected 0 to be at least 1"]);
    check(&schema, json!({"count": 11}), &["count: expected 11 to be at most 10"]);
    check(
        &schema,
        json!({"count": 1, "rate": 0}),
        &["rate: expected 0 to be greater than 0", "property \"name\" is required when \"rate\" is set"],
    );
    check(&schema, json!({"count": 1, "name": "a"}), &["name: string too short, expected at least 2, got 1"]);
    check(&schema, json!({"count": 1, "name": "éééé"}), &["name: failed to match pattern \"^[a-z]+$\" with \"éééé\""]);
    check(
        &schema,
        json!({"count": 1, "mode": "c"}),
        &["mode: matches none of the enum values (found \"c\", allowed: \"a\", \"b\")"],
    );
    check(&schema, json!({"count": 1, "list": []}), &["list: expect array to have at least 1 items"]);
    check(
        &schema,
        json!({"count": 1, "list": [1, 2, 1]}),
        &["list: expected unique items but items 1 and 3 are equal"],
    );
    check(&schema, json!({"count": 1, "list": [1, "2"]}), &["list[1]: wrong type: expected integer, got string"]);
    check(&schema, json!({"count": 1, "ip": "1.2.3"}), &["ip: expect valid ipv4 address but got: 1.2.3"]);
    check(&schema, json!({"count": 1, "any": true}), &["any: wrong type: expected one of string, integer, got boolean"]);
    check(
        &schema,
        json!({"count": 1, "nmae": "ab"}),
        &["nmae: additional properties forbidden, found nmae (did you mean `name`?)"],
    );
}

#[test]
fn all_violations_are_reported() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "boolean"}}}}});
    check(
        &schema,
        json!({"a": 1, "b": {"c": "x"}}),
        &["a: wrong type: expected string, got number", "b.c: wrong type: expected boolean, got string"],
    );
}

#[test]
fn combinations() {
    let one = json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(&one, json!({"a": 1}), &[]);
    check(&one, json!({"a": 1, "b": 1}), &["value should match only one schema, but matches both schemas 1 and 2"]);
    check(&one, json!({}), &["value should match only one schema, but matches none"]);
    let any = json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(&any, json!({}), &["object matches none of the required: [\"a\"] or [\"b\"]"]);
    let cond = json!({"if": {"required": ["t"]}, "then": {"required": ["u"]}, "else": {"required": ["v"]}});
    check(&cond, json!({"t": 1}), &["then clause did not match"]);
    check(&cond, json!({}), &["else clause did not match"]);
    check(&json!({"not": {"type": "string"}}), json!("x"), &["value wasn't supposed to match schema"]);
}

#[test]
fn secret_references_are_texts_to_come() {
    let schema = json!({"properties": {"key": {"type": "string", "maxLength": 3}, "n": {"type": "integer"}}});
    check(&schema, json!({"key": "$secret://vault/1/key"}), &[]);
    check(&schema, json!({"key": "$ENV://SOME_KEY"}), &[]);
    check(&schema, json!({"n": "$env://N"}), &["n: wrong type: expected integer, got string"]);
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
    check(&schema, json!({"count": 0}), &["count: expected 0 to be at least 1"]);
    check(&schema, json!({"count": 1, "note": 1}), &["note: wrong type: expected string, got number"]);
    check(&schema, json!({"count": 1, "note": null}), &[]);
    check(&schema, json!({"count": 1, "inner": {}}), &["inner: property \"list\" is required"]);
    check(&schema, json!({"count": 1, "inner": {"list": {}}}), &[]);
}

#[test]
fn settled_values_suit_serde() {
    let schema = of::<Conf>();
    let value = json!({"count": 2.0, "inner": {"list": {}}});
    assert_eq!(*settle(&schema, &value), json!({"count": 2, "inner": {"list": []}}));
    let plain = json!({"count": 2, "inner": {"list": [1]}});
    assert!(matches!(settle(&schema, &plain), std::borrow::Cow::Borrowed(_)));
}

#[test]
fn close_names() {
    let names = ["node_listen", "router", "ssl"];
    let check = |name: &str, expected: Option<&str>| assert_eq!(closest(name, names.into_iter()), expected, "{name}");
    check("node_lisen", Some("node_listen"));
    check("routr", Some("router"));
    check("zzz", None);
}
