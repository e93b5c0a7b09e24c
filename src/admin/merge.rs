//! The two forms of PATCH.

use serde_json::{Map, Value};

/// Puts a patch over a document: objects are merged member by member, null removes a member,
/// anything else replaces what is there.
pub(super) fn merge(document: &mut Value, patch: &Value) {
    let (Value::Object(over), Value::Object(base)) = (patch, &mut *document) else {
        *document = without_nulls(patch);
        return;
    };
    for (name, value) in over {
        if value.is_null() {
            base.shift_remove(name);
        } else {
            merge(base.entry(name.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// What a patch is where there was nothing: null means "not there", at any depth of objects.
fn without_nulls(patch: &Value) -> Value {
    match patch {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Replaces what is at a path of a document. Objects on the way are made where there is nothing.
///
/// # Errors
/// The path, when something on the way is no object.
pub(super) fn replace(document: &mut Value, path: &[String], value: Value) -> Result<(), String> {
    let path = match path {
        [only] if only.is_empty() => &[],
        [front @ .., last] if last.is_empty() => front,
        whole => whole,
    };
    let mut here = document;
    for name in path {
        if here.is_null() {
            *here = Value::Object(Map::new());
        }
        let Value::Object(map) = here else {
            return Err(format!("/{}", path.join("/")));
        };
        here = map.entry(name.as_str()).or_insert(Value::Null);
    }
    *here = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn merging() {
        let check = |document: Value, patch: Value, expected: Value| {
            let mut got = document.clone();
            merge(&mut got, &patch);
            assert_eq!(got, expected, "{document} {patch}");
        };
        check(
            json!({"a": 1, "b": 2}),
            json!({"a": 3, "c": 4}),
            json!({"a": 3, "b": 2, "c": 4}),
        );
        check(
            json!({"a": {"b": 1, "c": 2}}),
            json!({"a": {"b": null}}),
            json!({"a": {"c": 2}}),
        );
        check(json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]}));
        check(
            json!({"a": [1]}),
            json!({"a": {"x": 1}}),
            json!({"a": {"x": 1}}),
        );
        check(json!({"a": {"x": 1}}), json!({"a": []}), json!({"a": []}));
        check(
            json!({}),
            json!({"a": {"b": {"c": null, "d": 1}}}),
            json!({"a": {"b": {"d": 1}}}),
        );
        check(json!({"a": 1}), json!({"b": null}), json!({"a": 1}));
        check(
            json!({"a": [{"b": null}]}),
            json!({"c": [null]}),
            json!({"a": [{"b": null}], "c": [null]}),
        );
    }

    #[test]
    fn replacing() {
        let check =
            |document: Value, path: &[&str], value: Value, expected: Result<Value, &str>| {
                let mut got = document.clone();
                let path: Vec<String> = path.iter().map(|s| (*s).to_owned()).collect();
                let done = replace(&mut got, &path, value).map(|()| got);
                assert_eq!(done, expected.map_err(str::to_owned), "{document} {path:?}");
            };
        check(
            json!({"a": {"b": 1}}),
            &["a", "b"],
            json!([1]),
            Ok(json!({"a": {"b": [1]}})),
        );
        check(json!({}), &["a", "b"], json!(1), Ok(json!({"a": {"b": 1}})));
        check(
            json!({"a": {"b": 1}}),
            &["a"],
            json!({}),
            Ok(json!({"a": {}})),
        );
        check(json!({"a": 1}), &[""], json!({"b": 2}), Ok(json!({"b": 2})));
        check(json!({"a": 1}), &["a", ""], json!(2), Ok(json!({"a": 2})));
        check(json!({"a": 1}), &["a", "b"], json!(2), Err("/a/b"));
        check(json!({"a": [1]}), &["a", "0"], json!(2), Err("/a/0"));
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4_u8).prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from);
            let names = prop::sample::select(vec!["a", "b", "c"]);
            let map = prop::collection::vec((names, inner), 0..4).prop_map(|members| {
                Value::Object(
                    members
                        .into_iter()
                        .map(|(n, v)| (n.to_owned(), v))
                        .collect(),
                )
            });
            prop_oneof![list, map]
        })
    }

    /// No object in it has a member that is null.
    fn has_no_null_member(value: &Value) -> bool {
        match value {
            Value::Object(map) => map.values().all(|v| !v.is_null() && has_no_null_member(v)),
            _ => true,
        }
    }

    proptest! {
        #[test]
        fn a_patch_twice_is_a_patch_once(base in json_value(), patch in json_value()) {
            let mut once = base;
            merge(&mut once, &patch);
            let mut twice = once.clone();
            merge(&mut twice, &patch);
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn an_empty_patch_changes_no_object(base in json_value()) {
            prop_assume!(base.is_object());
            let mut got = base.clone();
            merge(&mut got, &json!({}));
            prop_assert_eq!(got, base);
        }

        #[test]
        fn over_nothing_a_patch_is_itself_without_nulls(patch in json_value()) {
            let mut got = json!({});
            merge(&mut got, &patch);
            prop_assert!(has_no_null_member(&got), "{}", got);
        }
    }
}
