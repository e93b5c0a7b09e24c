use serde_json::json;

use super::*;

#[test]
fn settled_values_suit_serde() {
    let schema = of::<Conf>();
    let check = |schema: &Value, value: Value, expected: Value| {
        assert_eq!(*settle(schema, &value), expected, "{value}");
    };
    check(
        &schema,
        json!({"count": 2.0, "inner": {"list": {}}}),
        json!({"count": 2, "inner": {"list": []}}),
    );
    check(&schema, json!([]), json!({}));
    check(
        &json!({"properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}, "c": {}}}),
        json!({"a": null, "b": null, "c": null, "d": null}),
        json!({"b": null, "c": null, "d": null}),
    );
    check(
        &json!({"patternProperties": {"^n": {"type": "array"}}}),
        json!({"n": {}, "m": {}}),
        json!({"n": [], "m": {}}),
    );
    check(
        &json!({"prefixItems": [{"type": "integer"}], "items": {"type": "object"}}),
        json!([1.0, []]),
        json!([1, {}]),
    );
    check(
        &json!({"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "integer"}}]}),
        json!([1.0]),
        json!([1]),
    );
    check(
        &json!({"allOf": [{"properties": {"a": {"type": "integer"}}}]}),
        json!({"a": 3.0}),
        json!({"a": 3}),
    );
    check(
        &json!({"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}}),
        json!([2.0]),
        json!([2]),
    );
    check(&json!({"type": "number"}), json!(2.0), json!(2.0));
    check(&json!({"type": "integer"}), json!(1e300), json!(1e300));
    let plain = json!({"count": 2, "inner": {"list": [1]}});
    assert!(matches!(settle(&schema, &plain), Cow::Borrowed(_)));
}
