use serde_json::json;

use super::*;

#[test]
fn every_keyword() {
    let any = |keywords: Value, value: Value, expected: &[&str]| check(&keywords, value, expected);
    any(json!(true), json!(1), &[]);
    any(json!(false), json!(1), &["expect false always"]);
    any(json!({"const": 1}), json!(1.0), &[]);
    any(
        json!({"const": "a"}),
        json!("b"),
        &["failed to check const value (found \"b\", allowed: \"a\")"],
    );
    any(json!({"enum": [[], 2]}), json!({}), &[]);
    any(json!({"minimum": 1.5}), json!(1.5), &[]);
    any(
        json!({"exclusiveMaximum": 3}),
        json!(3),
        &["expected 3 to be smaller than 3"],
    );
    any(json!({"multipleOf": 0.1}), json!(0.3), &[]);
    any(
        json!({"multipleOf": 2}),
        json!(3),
        &["expected 3 to be a multiple of 2"],
    );
    any(
        json!({"format": "uint8"}),
        json!(256),
        &["expected 256 to be at most 255"],
    );
    any(
        json!({"format": "uint32"}),
        json!(-1),
        &["expected -1 to be at least 0"],
    );
    any(
        json!({"minProperties": 1}),
        json!({}),
        &["expect object to have at least 1 properties"],
    );
    any(
        json!({"maxProperties": 1}),
        json!({"a": 1, "b": 1}),
        &["expect object to have at most 1 properties"],
    );
    any(
        json!({"maxItems": 1}),
        json!([1, 2]),
        &["expect array to have at most 1 items"],
    );
    any(
        json!({"type": "array", "minItems": 1}),
        json!({}),
        &["expect array to have at least 1 items"],
    );
    any(
        json!({"maxLength": 2}),
        json!("äöü"),
        &["string too long, expected at most 2, got 3"],
    );
    any(
        json!({"format": "ipv6"}),
        json!("::g"),
        &["expect valid ipv6 address but got: ::g"],
    );
    any(json!({"format": "email"}), json!("a.b@c.org"), &[]);
    any(
        json!({"format": "email"}),
        json!("a@b"),
        &["expect valid email address but got: a@b"],
    );
    any(
        json!({"format": "hostname"}),
        json!("a_b"),
        &["expect valid hostname but got: a_b"],
    );
    any(json!({"format": "something"}), json!("a_b"), &[]);
    any(
        json!({"patternProperties": {"^n": {"type": "integer"}}}),
        json!({"n1": "x", "m": "x"}),
        &["n1: wrong type: expected integer, got string"],
    );
    any(
        json!({"patternProperties": {"^n": {}}, "additionalProperties": false}),
        json!({"n1": 1, "m": 1}),
        &["m: additional properties forbidden, found m"],
    );
    any(
        json!({"additionalProperties": {"type": "string"}}),
        json!({"a.b": 1}),
        &["a.b: wrong type: expected string, got number"],
    );
    any(
        json!({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}),
        json!([1, "a"]),
        &[
            "[0]: wrong type: expected string, got number",
            "[1]: wrong type: expected integer, got string",
        ],
    );
    any(
        json!({"items": [{}], "additionalItems": false}),
        json!([1, 2, 3]),
        &["found unexpected extra items in array"],
    );
    any(
        json!({"uniqueItems": true}),
        json!([{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]),
        &["expected unique items but items 1 and 2 are equal"],
    );
    any(
        json!({"uniqueItems": true}),
        json!([1, "1", true, [1], {"1": 1}, null]),
        &[],
    );
    any(
        json!({"dependentRequired": {"a": ["b"]}}),
        json!({"a": null}),
        &[],
    );
    any(
        json!({"dependencies": {"a": {"properties": {"b": {"type": "string"}}}}}),
        json!({"a": 1, "b": 2}),
        &["b: wrong type: expected string, got number"],
    );
    any(
        json!({"$defs": {"id": {"type": "integer"}}, "items": {"$ref": "#/$defs/id"}}),
        json!([1, "2"]),
        &["[1]: wrong type: expected integer, got string"],
    );
    any(
        json!({"$ref": "#/nowhere"}),
        json!(1),
        &["the schema refers to #/nowhere, which it does not have"],
    );
    any(
        json!({"$ref": "#"}),
        json!(1),
        &["value and schema are nested deeper than 160"],
    );
}
