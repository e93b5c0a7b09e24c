//! A hash of a document's content, to tell what did not change.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// A hash that does not depend on the order of members. It is compared with that of the previous
/// version of the same resource and with nothing else, so that 64 bits leave no accident worth
/// thinking about; somebody who makes two equal ones on purpose only keeps an own change from being
/// seen. Valid within a process.
pub fn fingerprint(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    feed(value, &mut hasher);
    hasher.finish()
}

/// Feeds a value with a tag and a length before each part, so that different values never feed the
/// same bytes.
fn feed(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(b) => (1_u8, b).hash(hasher),
        // Apart by what they are read as: no two of them may feed the same bytes.
        Value::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) => (2_u8, n).hash(hasher),
            (_, Some(n)) => (3_u8, n).hash(hasher),
            _ => (7_u8, n.as_f64().map(f64::to_bits)).hash(hasher),
        },
        Value::String(text) => (4_u8, text).hash(hasher),
        Value::Array(list) => {
            (5_u8, list.len()).hash(hasher);
            list.iter().for_each(|item| feed(item, hasher));
        }
        Value::Object(map) => {
            // Each member is hashed on its own: a sum does not know the order.
            let member = |(name, item): (&String, &Value)| {
                let mut hasher = DefaultHasher::new();
                name.hash(&mut hasher);
                feed(item, &mut hasher);
                hasher.finish()
            };
            (
                6_u8,
                map.len(),
                map.iter().map(member).fold(0, u64::wrapping_add),
            )
                .hash(hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_order_of_members_is_ignored() {
        let a = fingerprint(&json!({"a": 1, "b": [1, 2], "c": {"d": null}}));
        assert_eq!(
            a,
            fingerprint(&json!({"c": {"d": null}, "b": [1, 2], "a": 1}))
        );
        for other in [
            json!({"a": 1, "b": [2, 1], "c": {"d": null}}),
            json!({"a": "1", "b": [1, 2], "c": {"d": null}}),
            json!({"a": 1, "b": [1, 2], "c": {}}),
            json!({"a": 1, "b": [[1, 2]], "c": {"d": null}}),
            json!({"b": 1, "a": [1, 2], "c": {"d": null}}),
            json!({"a": 1, "b": [1, 2], "c": {"d": null}, "e": null}),
        ] {
            assert_ne!(a, fingerprint(&other), "{other}");
        }
        let differ = |a: Value, b: Value| assert_ne!(fingerprint(&a), fingerprint(&b), "{a} {b}");
        differ(json!([]), json!({}));
        differ(json!(["ab", "c"]), json!(["a", "bc"]));
        differ(json!(u64::MAX), json!(u64::MAX - 1));
        differ(
            json!(9_007_199_254_740_992_u64),
            json!(9_007_199_254_740_993_u64),
        );
        differ(json!(i64::MIN), json!(i64::MIN + 1));
        differ(json!(1), json!(1.0));
        differ(json!(1), json!(-1));
        differ(json!(true), json!(1));
        differ(
            json!({"a": {"b": 1}, "c": 2}),
            json!({"a": {"b": 2}, "c": 1}),
        );
    }
}
