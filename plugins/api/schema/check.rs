//! The checker.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use fancy_regex::Regex;
use serde_json::{Map, Value};

use super::{closest, is_secret_ref};
use crate::problem::{Problem, Problems};

/// How deep a value may be nested.
const MAX_DEPTH: usize = 64;

/// Adds every violation of `schema` by `value`.
pub fn validate(schema: &Value, value: &Value, out: &mut Problems) {
    Check { root: schema, depth: 0 }.value(schema, value, out);
}

struct Check<'a> {
    root: &'a Value,
    depth: usize,
}

impl<'a> Check<'a> {
    fn holds(&self, schema: &Value, value: &Value) -> Result<(), Problems> {
        let mut out = Problems::default();
        Check { root: self.root, depth: self.depth + 1 }.value(schema, value, &mut out);
        out.into_result()
    }

    fn below(&self, schema: &Value, value: &Value, out: &mut Problems) {
        Check { root: self.root, depth: self.depth + 1 }.value(schema, value, out);
    }

    fn value(&self, schema: &Value, value: &Value, out: &mut Problems) {
        let Value::Object(schema) = schema else {
            if *schema == Value::Bool(false) {
                out.add("", "value wasn't supposed to match schema");
            }
            return;
        };
        if self.depth > MAX_DEPTH {
            out.add("", format!("nested deeper than {MAX_DEPTH}"));
            return;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            match target.strip_prefix('#').and_then(|path| self.root.pointer(path)) {
                Some(target) => self.below(target, value, out),
                None => out.add("", format!("schema refers to {target}, which does not exist")),
            }
            return;
        }
        // A reference to a secret stands for a text that is not known yet.
        if value.as_str().is_some_and(is_secret_ref) && allows_text(schema) {
            return;
        }
        if !self.kind(schema, value, out) {
            return;
        }
        if let Some(list) = schema.get("enum").and_then(Value::as_array)
            && !list.iter().any(|item| same(item, value))
        {
            let allowed: Vec<String> = list.iter().filter(|v| !v.is_null()).map(Value::to_string).collect();
            out.push(
                Problem::new("", "matches none of the enum values")
                    .hint(format!("found {value}, allowed: {}", allowed.join(", "))),
            );
        }
        if let Some(wanted) = schema.get("const")
            && !same(wanted, value)
        {
            out.add("", format!("expected {wanted}, found {value}"));
        }
        match value {
            Value::Object(map) => self.object(schema, map, out),
            Value::Array(list) => self.array(schema, list, out),
            Value::String(text) => string(schema, text, out),
            Value::Number(number) => numeric(schema, number.as_f64().unwrap_or(0.0), value, out),
            _ => {}
        }
        self.combined(schema, value, out);
    }

    /// Whether the type is right; nothing else is checked when it is not.
    fn kind(&self, schema: &Map<String, Value>, value: &Value, out: &mut Problems) -> bool {
        let Some(kind) = schema.get("type") else { return true };
        let kinds: Vec<&str> = match kind {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => return true,
        };
        if kinds.iter().any(|kind| is_kind(kind, value)) {
            return true;
        }
        // `null` only says that a member may be left out.
        let named: Vec<&str> = kinds.iter().copied().filter(|kind| *kind != "null").collect();
        let found = lua_type(value);
        out.add("", match named.as_slice() {
            [one] => format!("wrong type: expected {one}, got {found}"),
            several => format!("wrong type: expected one of {}, got {found}", several.join(", ")),
        });
        false
    }

    fn object(&self, schema: &Map<String, Value>, map: &Map<String, Value>, out: &mut Problems) {
        let count = map.len() as u64;
        if let Some(min) = schema.get("minProperties").and_then(Value::as_u64)
            && count < min
        {
            out.add("", format!("expect object to have at least {min} properties"));
        }
        if let Some(max) = schema.get("maxProperties").and_then(Value::as_u64)
            && count > max
        {
            out.add("", format!("expect object to have at most {max} properties"));
        }
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if map.get(name).is_none_or(Value::is_null) {
                out.add("", format!("property \"{name}\" is required"));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        for (name, value) in map {
            let mut known = false;
            if let Some(property) = properties.and_then(|p| p.get(name)) {
                known = true;
                self.below(property, value, &mut out.at(name));
            }
            for (pattern, property) in patterns.into_iter().flatten() {
                if matches(pattern, name) {
                    known = true;
                    self.below(property, value, &mut out.at(name));
                }
            }
            match schema.get("additionalProperties") {
                Some(Value::Bool(false)) if !known => {
                    let names = properties.into_iter().flat_map(|p| p.keys()).map(String::as_str);
                    let mut problem = Problem::new(name.as_str(), format!("additional properties forbidden, found {name}"));
                    problem.hint = closest(name, names).map(|c| format!("did you mean `{c}`?"));
                    out.push(problem);
                }
                Some(extra @ Value::Object(_)) if !known => self.below(extra, value, &mut out.at(name)),
                _ => {}
            }
        }
        self.dependencies(schema, map, out);
    }

    fn dependencies(&self, schema: &Map<String, Value>, map: &Map<String, Value>, out: &mut Problems) {
        for keyword in ["dependencies", "dependentRequired", "dependentSchemas"] {
            for (name, needs) in schema.get(keyword).and_then(Value::as_object).into_iter().flatten() {
                if !map.contains_key(name) {
                    continue;
                }
                if let Value::Array(needs) = needs {
                    for need in needs.iter().filter_map(Value::as_str) {
                        if !map.contains_key(need) {
                            out.add("", format!("property \"{need}\" is required when \"{name}\" is set"));
                        }
                    }
                } else if let Err(problems) = self.holds(needs, &Value::Object(map.clone())) {
                    out.add("", format!("failed to validate dependent schema for \"{name}\": {problems}"));
                }
            }
        }
    }

    fn array(&self, schema: &Map<String, Value>, list: &[Value], out: &mut Problems) {
        let count = list.len() as u64;
        if let Some(min) = schema.get("minItems").and_then(Value::as_u64)
            && count < min
        {
            out.add("", format!("expect array to have at least {min} items"));
        }
        if let Some(max) = schema.get("maxItems").and_then(Value::as_u64)
            && count > max
        {
            out.add("", format!("expect array to have at most {max} items"));
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            unique(list, out);
        }
        let tuple = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(Value::Array(tuple)), _) | (None, Some(Value::Array(tuple))) => Some(tuple),
            _ => None,
        };
        let rest = match tuple {
            Some(_) => schema.get("additionalItems"),
            None => schema.get("items"),
        };
        for (i, item) in list.iter().enumerate() {
            if let Some(schema) = tuple.and_then(|tuple| tuple.get(i)).or(rest) {
                self.below(schema, item, &mut out.at_index(i));
            }
        }
    }

    fn combined(&self, schema: &Map<String, Value>, value: &Value, out: &mut Problems) {
        for (i, part) in list(schema, "allOf").iter().enumerate() {
            if let Err(problems) = self.holds(part, value) {
                if problems.iter().all(|p| p.path.is_empty()) {
                    out.add("", format!("allOf {} failed: {problems}", i + 1));
                } else {
                    out.extend(problems);
                }
            }
        }
        let any = list(schema, "anyOf");
        if !any.is_empty() {
            self.any_of(any, value, out);
        }
        let one = list(schema, "oneOf");
        if !one.is_empty() {
            self.one_of(one, value, out);
        }
        if let Some(not) = schema.get("not")
            && self.holds(not, value).is_ok()
        {
            out.add("", "value wasn't supposed to match schema");
        }
        if let Some(condition) = schema.get("if") {
            let (branch, text) = match self.holds(condition, value) {
                Ok(()) => ("then", "then clause did not match"),
                Err(_) => ("else", "else clause did not match"),
            };
            if let Some(branch) = schema.get(branch)
                && self.holds(branch, value).is_err()
            {
                out.add("", text);
            }
        }
    }

    fn any_of(&self, any: &[Value], value: &Value, out: &mut Problems) {
        let mut failures = Vec::new();
        for part in any {
            match self.holds(part, value) {
                Ok(()) => return,
                Err(problems) => failures.push((part, problems)),
            }
        }
        // An optional part is `T or null`: the violation of T is the one to show.
        let real: Vec<_> = failures.iter().filter(|(part, _)| part.get("type") != Some(&"null".into())).collect();
        if let [(_, only)] = real.as_slice() {
            out.extend(only.clone());
            return;
        }
        let required: Vec<String> =
            any.iter().filter_map(|part| part.get("required")).map(Value::to_string).collect();
        out.add("", if required.len() == any.len() && value.is_object() {
            format!("object matches none of the required: {}", required.join(" or "))
        } else {
            "matches none of the required".to_owned()
        });
    }

    fn one_of(&self, one: &[Value], value: &Value, out: &mut Problems) {
        let hits: Vec<usize> = (0..one.len()).filter(|&i| self.holds(&one[i], value).is_ok()).collect();
        // Constants of an enum with a description each: an enum in disguise.
        let constants: Vec<&Value> = one.iter().filter_map(|part| part.get("const").or_else(|| part.get("enum"))).collect();
        match hits.as_slice() {
            [_] => {}
            [] if constants.len() == one.len() => {
                let allowed: Vec<String> = constants.iter().map(|c| c.to_string()).collect();
                out.push(
                    Problem::new("", "matches none of the enum values")
                        .hint(format!("found {value}, allowed: {}", allowed.join(", "))),
                );
            }
            [] => out.add("", "value should match only one schema, but matches none"),
            [a, b, ..] => out.add(
                "",
                format!("value should match only one schema, but matches both schemas {} and {}", a + 1, b + 1),
            ),
        }
    }
}

fn list<'v>(schema: &'v Map<String, Value>, keyword: &str) -> &'v [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn allows_text(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        Some(_) => false,
    }
}

fn is_kind(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        // Lua cannot tell an empty list from an empty object, so neither may we.
        "object" => value.is_object() || value.as_array().is_some_and(Vec::is_empty),
        "array" => value.is_array() || value.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// The names of Lua's types, which APISIX's messages use.
fn lua_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) | Value::Object(_) => "table",
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

fn unique(list: &[Value], out: &mut Problems) {
    for (b, item) in list.iter().enumerate() {
        if let Some(a) = list[..b].iter().position(|other| same(other, item)) {
            out.add("", format!("expected unique items but items {} and {} are equal", a + 1, b + 1));
            return;
        }
    }
}

fn string(schema: &Map<String, Value>, text: &str, out: &mut Problems) {
    let length = text.chars().count() as u64;
    if let Some(min) = schema.get("minLength").and_then(Value::as_u64)
        && length < min
    {
        out.add("", format!("string too short, expected at least {min}, got {length}"));
    }
    if let Some(max) = schema.get("maxLength").and_then(Value::as_u64)
        && length > max
    {
        out.add("", format!("string too long, expected at most {max}, got {length}"));
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && !matches(pattern, text)
    {
        out.add("", format!("failed to match pattern \"{pattern}\" with \"{text}\""));
    }
    let format = schema.get("format").and_then(Value::as_str);
    let name = match format {
        Some("ipv4") if text.parse::<Ipv4Addr>().is_err() => "ipv4",
        Some("ipv6") if text.parse::<Ipv6Addr>().is_err() => "ipv6",
        _ => return,
    };
    out.add("", format!("expect valid {name} address but got: {text}"));
}

fn numeric(schema: &Map<String, Value>, n: f64, shown: &Value, out: &mut Problems) {
    let limit = |keyword: &str| schema.get(keyword).and_then(|v| Some((v.as_f64()?, v)));
    let mut fail = |text: &str, bound: &Value| out.add("", format!("expected {shown} to be {text} {bound}"));
    if let Some((min, v)) = limit("minimum")
        && n < min
    {
        fail("at least", v);
    }
    if let Some((max, v)) = limit("maximum")
        && n > max
    {
        fail("at most", v);
    }
    if let Some((min, v)) = limit("exclusiveMinimum")
        && n <= min
    {
        fail("greater than", v);
    }
    if let Some((max, v)) = limit("exclusiveMaximum")
        && n >= max
    {
        fail("smaller than", v);
    }
    if let Some((step, v)) = limit("multipleOf")
        && (n / step).fract() != 0.0
    {
        fail("a multiple of", v);
    }
}

/// Whether a schema's pattern occurs in a text. Compiled patterns are kept: schemas are constants
/// of the program, so there are only so many.
fn matches(pattern: &str, text: &str) -> bool {
    static MEMO: LazyLock<Mutex<HashMap<String, Option<Arc<Regex>>>>> = LazyLock::new(Mutex::default);
    let compiled = {
        let mut memo = MEMO.lock().unwrap_or_else(PoisonError::into_inner);
        match memo.get(pattern) {
            Some(found) => found.clone(),
            None => {
                let made = Regex::new(pattern).ok().map(Arc::new);
                memo.insert(pattern.to_owned(), made.clone());
                made
            }
        }
    };
    compiled.is_some_and(|regex| regex.is_match(text).unwrap_or(false))
}
