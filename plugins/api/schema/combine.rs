//! Combinations of schemas: `allOf`, `anyOf`, `oneOf`, `not`, `if`, dependencies.
//!
//! The original only says that no alternative matched. When one alternative is
//! clearly meant, what is wrong under it is reported here instead: its path and
//! text help, `matches none` does not.

use serde_json::{Map, Value};

use super::check::{Check, fits_kind, target_of};
use super::leaf::{allowed, same};
use super::violation::{Step, Violation, nested};

impl<'a> Check<'a> {
    pub(super) fn combined(&mut self, schema: &'a Map<String, Value>, value: &'a Value) {
        for (at, part) in list(schema, "allOf").iter().enumerate() {
            self.below(Step::AllOf(at), part, value);
        }
        match list(schema, "anyOf") {
            [] => {}
            any => self.any_of(any, value),
        }
        match list(schema, "oneOf") {
            [] => {}
            one => self.one_of(one, value),
        }
        if let Some(not) = schema.get("not")
            && self.trial(not, value).is_empty()
        {
            self.fail("value wasn't supposed to match schema");
        }
        if let Some(condition) = schema.get("if") {
            let branch = if self.trial(condition, value).is_empty() {
                "then"
            } else {
                "else"
            };
            if let Some(wanted) = schema.get(branch)
                && let Some(first) = self.trial(wanted, value).first()
            {
                self.fail_with(format!("{branch} clause did not match"), first.line());
            }
        }
    }

    pub(super) fn dependencies(
        &mut self,
        schema: &'a Map<String, Value>,
        map: &Map<String, Value>,
        value: &'a Value,
    ) {
        let there = |name: &str| map.get(name).is_some_and(|value| !value.is_null());
        for keyword in ["dependencies", "dependentRequired", "dependentSchemas"] {
            let dependencies = schema
                .get(keyword)
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            for (name, needs) in dependencies.filter(|(name, _)| there(name)) {
                match needs {
                    Value::Array(needs) => {
                        for need in needs
                            .iter()
                            .filter_map(Value::as_str)
                            .filter(|need| !there(need))
                        {
                            self.fail(format!(
                                "property \"{need}\" is required when \"{name}\" is set"
                            ));
                        }
                    }
                    needs => self.below(Step::Dependent(name), needs, value),
                }
            }
        }
    }

    fn any_of(&mut self, any: &'a [Value], value: &'a Value) {
        let mut trials = Vec::with_capacity(any.len());
        for part in any {
            let found = self.trial(part, value);
            if found.is_empty() {
                return;
            }
            trials.push(found);
        }
        let required: Vec<String> = any
            .iter()
            .filter_map(|part| part.get("required"))
            .map(Value::to_string)
            .collect();
        let text = if required.is_empty() {
            "object matches none of the required".to_owned()
        } else {
            format!(
                "object matches none of the required: {}",
                required.join(" or ")
            )
        };
        self.alternative(any, value, trials, text);
    }

    fn one_of(&mut self, one: &'a [Value], value: &'a Value) {
        let trials: Vec<Vec<Violation>> = one.iter().map(|part| self.trial(part, value)).collect();
        let mut hits = trials
            .iter()
            .enumerate()
            .filter(|(_, found)| found.is_empty())
            .map(|(at, _)| at);
        match (hits.next(), hits.next()) {
            (Some(_), None) => {}
            (Some(a), Some(b)) => self.fail(format!(
                "value should match only one schema, but matches both schemas {} and {}",
                a + 1,
                b + 1
            )),
            (None, _) => {
                let text = "value should match only one schema, but matches none".to_owned();
                self.alternative(one, value, trials, text);
            }
        }
    }

    /// Reports that no alternative matched: through the one that is meant, where that is clear.
    fn alternative(
        &mut self,
        parts: &'a [Value],
        value: &'a Value,
        mut trials: Vec<Vec<Violation>>,
        text: String,
    ) {
        // The names of an enum, each with a description of its own.
        let constants: Vec<&Value> = parts.iter().filter_map(constant).collect();
        if constants.len() == parts.len() {
            let original = nested(&self.steps, &text);
            let hint = allowed(constants.into_iter(), value);
            let text = "matches none of the enum values".to_owned();
            let mut violation = Violation::new(&self.steps, text, Some(hint));
            violation.nested = original;
            self.push(violation);
            return;
        }
        // `T or null` is how an optional T is written: no alternative in the original.
        if let [a, b] = parts
            && is_null(a) != is_null(b)
        {
            let real = usize::from(is_null(a));
            trials
                .swap_remove(real)
                .into_iter()
                .for_each(|violation| self.push(violation));
            return;
        }
        let root = self.root;
        let mut meant = (0..parts.len()).filter(|at| is_meant(root, &parts[*at], value));
        match (meant.next(), meant.next()) {
            (Some(at), None) => {
                let original = nested(&self.steps, &text);
                for mut violation in trials.swap_remove(at) {
                    violation.nested.clone_from(&original);
                    self.push(violation);
                }
            }
            _ => self.fail(text),
        }
    }
}

fn list<'v>(schema: &'v Map<String, Value>, keyword: &str) -> &'v [Value] {
    schema
        .get(keyword)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

/// The only value a schema allows.
fn constant(schema: &Value) -> Option<&Value> {
    schema
        .get("const")
        .or_else(|| match schema.get("enum")?.as_array()?.as_slice() {
            [one] => Some(one),
            _ => None,
        })
}

/// Whether a value looks like it was written for this alternative: it has the type, and every
/// member that tells alternatives apart.
fn is_meant(root: &Value, schema: &Value, value: &Value) -> bool {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(target) => target_of(root, target),
        None => Some(schema),
    };
    let Some(schema) = schema.and_then(Value::as_object) else {
        return false;
    };
    if !fits_kind(schema, value) || !schema.contains_key("type") {
        return false;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().all(|(name, property)| {
        constant(property)
            .is_none_or(|wanted| value.get(name).is_some_and(|found| same(found, wanted)))
    })
}
