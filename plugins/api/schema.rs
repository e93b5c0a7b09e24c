//! Checks configurations against JSON Schema, reporting every violation with its path.
//!
//! The schemas are generated from the configuration types, so what is documented
//! is what is checked. The checker knows the keywords that APISIX's own validator
//! knows, and words its messages the same way, since clients show and match them.
//!
//! ```
//! # use lockgate_plugin::{Problems, schema};
//! # use serde_json::json;
//! let schema = json!({"properties": {"count": {"type": "integer", "minimum": 1}}});
//! let value = json!({"count": 0});
//! let mut out = Problems::default();
//! schema::validate(&schema, &value, &mut out);
//! assert_eq!(out.to_string(), "count: expected 0 to be at least 1");
//! assert_eq!(
//!     schema::apisix_text(&schema, &value).as_deref(),
//!     Some("property \"count\" validation failed: expected 0 to be at least 1"),
//! );
//! ```

mod check;
mod combine;
mod complete;
mod leaf;
mod names;
mod settle;
#[cfg(test)]
mod tests;
mod violation;

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::problem::Problems;

pub use names::closest;

/// Deepest nesting of values and schemas together. A value of the deepest document that is read
/// (64) fits, with a combination such as `anyOf` on every level.
const MAX_DEPTH: usize = 160;
/// Violations kept of one value: half of what a list keeps, so that one value does not take it all.
const MAX_VIOLATIONS: usize = Problems::MOST / 2;

/// The JSON Schema of a type, all parts inlined.
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Some(map) = schema.as_object_mut() {
        map.shift_remove("title");
        map.shift_remove("$schema");
    }
    schema
}

/// The same, made once for each type.
pub fn cached<T: JsonSchema + 'static>() -> Arc<Value> {
    // A memo of constants: what a type's schema is never changes.
    static MEMO: LazyLock<Mutex<HashMap<TypeId, Arc<Value>>>> = LazyLock::new(Mutex::default);
    let known = MEMO
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&TypeId::of::<T>())
        .cloned();
    known.unwrap_or_else(|| {
        // Made without the lock, so that a type may ask for the schema of another.
        let made = Arc::new(of::<T>());
        let mut memo = MEMO.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(memo.entry(TypeId::of::<T>()).or_insert(made))
    })
}

/// Adds every violation of `schema` by `value`, each with its path and the original's words.
///
/// `1.0` is an integer; `{}` and `[]` stand for one another; a reference to a secret stands for any
/// text; `null` stands for a member that is left out, unless the schema has a use for it.
pub fn validate(schema: &Value, value: &Value, out: &mut Problems) {
    let (found, cut) = check::violations(schema, value);
    for violation in found {
        out.push(violation.into_problem());
    }
    if cut {
        out.add(
            "",
            format!("more than {MAX_VIOLATIONS} violations; the rest is not listed"),
        );
    }
}

/// The first violation in the shape of the original's answers:
/// `property "a" validation failed: failed to validate item 2: wrong type: ...`. `None` when the
/// value is valid.
pub fn apisix_text(schema: &Value, value: &Value) -> Option<String> {
    check::violations(schema, value)
        .0
        .into_iter()
        .next()
        .map(|violation| violation.nested)
}

/// Makes a value that [`validate`] accepted digestible for serde: `[]` becomes `{}` and back where
/// the schema wants the other, `1.0` becomes `1` for integers, a `null` without meaning is left
/// out. Borrowed when nothing has to change.
pub fn settle<'a>(schema: &Value, value: &'a Value) -> Cow<'a, Value> {
    settle::settle(schema, value)
}

/// Adds the defaults of members that are missing in objects that are there, for showing a value as
/// it is understood.
pub fn complete(schema: &Value, value: &mut Value) {
    complete::complete(schema, value);
}

/// Whether a text refers to a secret or an environment variable that is filled in later.
pub fn is_secret_ref(text: &str) -> bool {
    text.starts_with("$secret://")
        || text
            .get(..7)
            .is_some_and(|head| head.eq_ignore_ascii_case("$env://"))
}
