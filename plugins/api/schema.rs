//! Checks configurations against JSON Schema, reporting every violation with its path.
//!
//! The schemas are generated from the configuration types. The checker knows the
//! keywords that APISIX's own validator knows, and words its messages the same way,
//! since clients show and match them.

mod check;
mod settle;

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

pub use check::validate;
pub use settle::settle;

/// The JSON Schema of a type, all parts inlined.
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(map) = schema.as_object_mut() {
        map.remove("title");
        map.remove("$schema");
    }
    schema
}

/// The same, made once for each type.
pub fn cached<T: JsonSchema + 'static>() -> Arc<Value> {
    // A memo of constants: what a type's schema is never changes.
    static MEMO: LazyLock<Mutex<HashMap<TypeId, Arc<Value>>>> = LazyLock::new(Mutex::default);
    let mut memo = MEMO.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(memo.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(of::<T>())))
}

/// Whether a text refers to a secret or an environment variable that is filled in later.
pub fn is_secret_ref(text: &str) -> bool {
    text.starts_with("$secret://")
        || text.get(..7).is_some_and(|head| head.eq_ignore_ascii_case("$env://"))
}

/// The closest of several names, when one is close enough to be meant.
pub fn closest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let far = name.chars().count() / 3 + 1;
    names.map(|known| (distance(name, known), known)).filter(|(d, _)| *d <= far).min().map(|(_, k)| k)
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
