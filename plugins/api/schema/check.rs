//! The checker: types, members, elements. Combinations are in `combine`, texts and numbers in `leaf`.

use serde_json::{Map, Value};

use super::leaf::{self, same, shown};
use super::violation::{Step, Violation};
use super::{MAX_DEPTH, MAX_VIOLATIONS, closest, is_secret_ref};

/// Everything that is wrong, and whether that is not all of it.
pub(super) fn violations(schema: &Value, value: &Value) -> (Vec<Violation>, bool) {
    let mut check = Check {
        root: schema,
        steps: Vec::new(),
        depth: 0,
        found: Vec::new(),
        cut: false,
    };
    check.value(schema, value);
    (check.found, check.cut)
}

/// Whether `value` is valid under `schema`, a part of `root`.
pub(super) fn holds(root: &Value, schema: &Value, value: &Value) -> bool {
    let mut check = Check {
        root,
        steps: Vec::new(),
        depth: 0,
        found: Vec::new(),
        cut: false,
    };
    check.value(schema, value);
    check.found.is_empty()
}

/// A walk through a value. Nothing is allocated for what is valid.
pub(super) struct Check<'a> {
    pub(super) root: &'a Value,
    pub(super) steps: Vec<Step<'a>>,
    depth: usize,
    found: Vec<Violation>,
    cut: bool,
}

impl<'a> Check<'a> {
    pub(super) fn fail(&mut self, text: impl Into<String>) {
        self.push(Violation::new(&self.steps, text.into(), None));
    }

    pub(super) fn fail_with(&mut self, text: impl Into<String>, hint: String) {
        self.push(Violation::new(&self.steps, text.into(), Some(hint)));
    }

    pub(super) fn push(&mut self, violation: Violation) {
        if self.found.len() < MAX_VIOLATIONS {
            self.found.push(violation);
        } else {
            self.cut = true;
        }
    }

    /// What is wrong under another schema, without reporting it.
    pub(super) fn trial(&mut self, schema: &'a Value, value: &'a Value) -> Vec<Violation> {
        let held = (std::mem::take(&mut self.found), self.cut);
        self.value(schema, value);
        let found = std::mem::replace(&mut self.found, held.0);
        self.cut = held.1;
        found
    }

    pub(super) fn below(&mut self, step: Step<'a>, schema: &'a Value, value: &'a Value) {
        self.steps.push(step);
        self.value(schema, value);
        self.steps.pop();
    }

    pub(super) fn value(&mut self, schema: &'a Value, value: &'a Value) {
        if self.depth >= MAX_DEPTH {
            self.fail(format!(
                "value and schema are nested deeper than {MAX_DEPTH}"
            ));
            return;
        }
        self.depth += 1;
        match schema {
            Value::Bool(false) => self.fail("expect false always"),
            Value::Object(schema) => match schema.get("$ref").and_then(Value::as_str) {
                Some(target) => match target_of(self.root, target) {
                    Some(target) => self.value(target, value),
                    None => self.fail(format!(
                        "the schema refers to {target}, which it does not have"
                    )),
                },
                None => self.keywords(schema, value),
            },
            _ => {}
        }
        self.depth -= 1;
    }

    fn keywords(&mut self, schema: &'a Map<String, Value>, value: &'a Value) {
        // A reference to a secret stands for a text that is not known yet.
        if value.as_str().is_some_and(is_secret_ref) && wants(schema, "string") {
            return;
        }
        if !self.kind(schema, value) {
            return;
        }
        match value {
            Value::Object(map) => {
                self.object(schema, map);
                self.dependencies(schema, map, value);
                if map.is_empty() && names_kind(schema, "array") {
                    self.array(schema, &[]);
                }
            }
            Value::Array(list) => {
                self.array(schema, list);
                if list.is_empty() && names_kind(schema, "object") {
                    self.no_members(schema);
                }
            }
            Value::String(text) => leaf::text(schema, text, |problem| self.fail(problem)),
            Value::Number(_) => leaf::number(schema, value, |problem| self.fail(problem)),
            _ => {}
        }
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
            && !allowed.iter().any(|item| same(item, value))
        {
            self.fail_with(
                "matches none of the enum values",
                leaf::allowed(allowed.iter(), value),
            );
        }
        if let Some(wanted) = schema.get("const")
            && !same(wanted, value)
        {
            let hint = format!("found {}, allowed: {}", shown(value), shown(wanted));
            self.fail_with("failed to check const value", hint);
        }
        self.combined(schema, value);
    }

    /// Whether the type is right; nothing else is checked when it is not.
    fn kind(&mut self, schema: &Map<String, Value>, value: &Value) -> bool {
        if fits_kind(schema, value) {
            return true;
        }
        // `null` only says that a member may be left out.
        let named: Vec<&str> = kinds(schema).filter(|kind| *kind != "null").collect();
        let found = leaf::lua_type(value);
        self.fail(match named.as_slice() {
            [one] => format!("wrong type: expected {one}, got {found}"),
            several => format!(
                "wrong type: expected one of {}, got {found}",
                several.join(", ")
            ),
        });
        false
    }

    fn object(&mut self, schema: &'a Map<String, Value>, map: &'a Map<String, Value>) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let extra = schema.get("additionalProperties");
        for (name, value) in map {
            let named = properties.and_then(|properties| properties.get(name));
            if let Some(property) = named
                && !self.stands_for_nothing(schema, name, property, value)
            {
                self.below(Step::Member(name), property, value);
            }
            let mut known = named.is_some();
            for (pattern, property) in patterns.into_iter().flatten() {
                if self.matches(pattern, name) {
                    known = true;
                    self.below(Step::Matching(name, pattern), property, value);
                }
            }
            match extra {
                Some(Value::Bool(false)) if !known => {
                    let names = properties
                        .into_iter()
                        .flat_map(Map::keys)
                        .map(String::as_str);
                    let hint = closest(name, names).map(|close| format!("did you mean `{close}`?"));
                    self.push(Violation::extra(&self.steps, name, hint));
                }
                Some(extra @ Value::Object(_)) if !known => {
                    self.below(Step::Extra(name), extra, value)
                }
                _ => {}
            }
        }
        self.required(schema, map);
        self.count(schema, map.len());
    }

    /// What an empty list lacks where it stands for an empty object.
    fn no_members(&mut self, schema: &Map<String, Value>) {
        for name in strings(schema.get("required")) {
            self.fail(format!("property \"{name}\" is required"));
        }
        self.count(schema, 0);
    }

    /// A `null` that the schema has no use for is a member that was left out.
    fn stands_for_nothing(
        &self,
        schema: &Map<String, Value>,
        name: &str,
        property: &Value,
        value: &Value,
    ) -> bool {
        value.is_null()
            && !accepts_null(self.root, property, 0)
            && !strings(schema.get("required")).any(|required| required == name)
    }

    fn required(&mut self, schema: &Map<String, Value>, map: &Map<String, Value>) {
        for name in strings(schema.get("required")) {
            // A `null` where something else is required has been reported as a wrong type.
            if !map.contains_key(name) {
                self.fail(format!("property \"{name}\" is required"));
            }
        }
    }

    fn count(&mut self, schema: &Map<String, Value>, members: usize) {
        let members = members as u64;
        if let Some(min) = limit(schema, "minProperties").filter(|min| members < *min) {
            self.fail(format!("expect object to have at least {min} properties"));
        }
        if let Some(max) = limit(schema, "maxProperties").filter(|max| members > *max) {
            self.fail(format!("expect object to have at most {max} properties"));
        }
    }

    fn array(&mut self, schema: &'a Map<String, Value>, list: &'a [Value]) {
        let length = list.len() as u64;
        if let Some(min) = limit(schema, "minItems").filter(|min| length < *min) {
            self.fail(format!("expect array to have at least {min} items"));
        }
        if let Some(max) = limit(schema, "maxItems").filter(|max| length > *max) {
            self.fail(format!("expect array to have at most {max} items"));
        }
        let items = Items::of(schema);
        for (at, item) in list.iter().enumerate() {
            match items.schema(at) {
                Some((Value::Bool(false), true)) => {
                    self.fail("found unexpected extra items in array");
                    break;
                }
                Some((schema, true)) => self.below(Step::ExtraItem(at), schema, item),
                Some((schema, false)) => self.below(Step::Item(at), schema, item),
                None => break,
            }
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true))
            && let Some((a, b)) = leaf::twice(list)
        {
            self.fail(format!(
                "expected unique items but items {} and {} are equal",
                a + 1,
                b + 1
            ));
        }
    }

    /// Whether a name matches a pattern; a pattern that is none is reported.
    fn matches(&mut self, pattern: &str, name: &str) -> bool {
        leaf::matches(pattern, name).unwrap_or_else(|text| {
            self.fail(text);
            false
        })
    }
}

/// Which schema an element has: `items`, or `prefixItems` and what follows them.
pub(super) struct Items<'s> {
    tuple: &'s [Value],
    rest: Option<&'s Value>,
}

impl<'s> Items<'s> {
    pub(super) fn of(schema: &'s Map<String, Value>) -> Items<'s> {
        let (items, prefix) = (
            schema.get("items"),
            schema.get("prefixItems").and_then(Value::as_array),
        );
        match (prefix, items) {
            (Some(tuple), rest) => Items { tuple, rest },
            (None, Some(Value::Array(tuple))) => Items {
                tuple,
                rest: schema.get("additionalItems"),
            },
            (None, rest) => Items { tuple: &[], rest },
        }
    }

    /// The schema of element `at`, and whether it is one behind a tuple.
    pub(super) fn schema(&self, at: usize) -> Option<(&'s Value, bool)> {
        match self.tuple.get(at) {
            Some(own) => Some((own, false)),
            None => self.rest.map(|rest| (rest, !self.tuple.is_empty())),
        }
    }
}

/// What a `$ref` refers to.
pub(super) fn target_of<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    reference
        .strip_prefix('#')
        .and_then(|pointer| root.pointer(pointer))
}

/// The texts of a list such as `required`.
pub(super) fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// The types a schema names; none when it does not say.
pub(super) fn kinds(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let kind = schema.get("type");
    kind.and_then(Value::as_str)
        .into_iter()
        .chain(strings(kind))
}

/// Whether a schema names a type.
pub(super) fn names_kind(schema: &Map<String, Value>, kind: &str) -> bool {
    kinds(schema).any(|named| named == kind)
}

/// Whether a schema names a type or does not say.
fn wants(schema: &Map<String, Value>, kind: &str) -> bool {
    !schema.contains_key("type") || names_kind(schema, kind)
}

/// Whether a value is of a type that the schema allows.
pub(super) fn fits_kind(schema: &Map<String, Value>, value: &Value) -> bool {
    !schema.contains_key("type") || kinds(schema).any(|kind| leaf::is_kind(kind, value))
}

/// Whether `null` means something under a schema.
pub(super) fn accepts_null(root: &Value, schema: &Value, depth: usize) -> bool {
    let Some(schema) = schema.as_object().filter(|_| depth < MAX_DEPTH) else {
        return true;
    };
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        return target_of(root, target).is_none_or(|target| accepts_null(root, target, depth + 1));
    }
    let listed = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
    wants(schema, "null")
        && listed("enum").is_none_or(|allowed| allowed.contains(&Value::Null))
        && schema.get("const").is_none_or(Value::is_null)
        && ["anyOf", "oneOf"]
            .iter()
            .filter_map(|keyword| listed(keyword))
            .all(|parts| parts.iter().any(|part| accepts_null(root, part, depth + 1)))
        && listed("allOf")
            .is_none_or(|parts| parts.iter().all(|part| accepts_null(root, part, depth + 1)))
}

fn limit(schema: &Map<String, Value>, keyword: &str) -> Option<u64> {
    schema.get(keyword).and_then(Value::as_u64)
}
