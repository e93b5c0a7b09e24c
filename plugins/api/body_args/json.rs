//! Finds values in a JSON text without building a tree.
//!
//! The walker carries the set of path positions that are still open at a value: bit `i` says that
//! the steps from `i` on have to match below it. One pass finds everything, each value once.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::path::Segment;
use crate::var::VarValue;

/// Values that one path may collect: a bound for `..x` on a hostile body.
const MAX_VALUES: usize = 10_000;

/// The values at a path. A path of names gives the one value with its type: an array becomes the
/// list of its texts, an object an empty list. Other paths give the list of all texts found.
pub(super) fn by_path<'a>(body: &'a [u8], path: &[Segment]) -> Option<VarValue<'a>> {
    let plain = path.iter().all(|step| matches!(step, Segment::Name(_)));
    let mut found = Found {
        values: Vec::new(),
        container: false,
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    Walk {
        path,
        plain,
        open: 1,
        found: &mut found,
    }
    .deserialize(&mut json)
    .ok()?;
    json.end().ok()?;
    if plain && !found.container {
        return found.values.pop();
    }
    if !plain && found.values.is_empty() {
        return None;
    }
    Some(VarValue::List(
        found
            .values
            .iter()
            .map(|v| v.as_text().into_owned())
            .collect(),
    ))
}

/// A member of the outermost object.
pub(super) fn member<'a>(body: &'a [u8], name: &str) -> Option<VarValue<'a>> {
    by_path(body, &[Segment::Name(name.into())])
}

struct Found<'de> {
    values: Vec<VarValue<'de>>,
    /// The value at a plain path is an array or an object.
    container: bool,
}

struct Walk<'w, 'de> {
    path: &'w [Segment],
    plain: bool,
    open: u64,
    found: &'w mut Found<'de>,
}

impl<'de> Walk<'_, 'de> {
    /// This value is what the path leads to.
    fn arrived(&self) -> bool {
        self.open & (1 << self.path.len()) != 0
    }

    /// This value is an element of the array that a plain path leads to.
    fn item(&self) -> bool {
        self.open & (2 << self.path.len()) != 0
    }

    fn take(self, value: VarValue<'de>) {
        if (self.arrived() || self.item()) && self.found.values.len() < MAX_VALUES {
            self.found.values.push(value);
        }
    }

    /// An array or object begins here; gives what is open for all of its elements.
    fn enter(&mut self) -> u64 {
        if !(self.plain && self.arrived()) {
            return 0;
        }
        self.found.container = true;
        2 << self.path.len()
    }
}

/// The positions open below, given those open at a value.
fn step(path: &[Segment], open: u64, fits: impl Fn(&Segment) -> (bool, bool)) -> u64 {
    let mut next = 0;
    for (at, segment) in path.iter().enumerate() {
        if open & (1 << at) != 0 {
            let (goes_on, stays) = fits(segment);
            next |= u64::from(goes_on) << (at + 1) | u64::from(stays) << at;
        }
    }
    next
}

fn by_name(path: &[Segment], open: u64, key: &str) -> u64 {
    step(path, open, |segment| match segment {
        Segment::Name(name) => (**name == *key, false),
        Segment::Every => (true, false),
        Segment::Below(name) => (**name == *key, true),
        Segment::Index(_) => (false, false),
    })
}

fn by_index(path: &[Segment], open: u64, index: usize) -> u64 {
    step(path, open, |segment| match segment {
        Segment::Index(wanted) => (*wanted == index, false),
        Segment::Every => (true, false),
        Segment::Below(_) => (false, true),
        Segment::Name(_) => (false, false),
    })
}

impl<'de> DeserializeSeed<'de> for Walk<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if self.open == 0 {
            json.deserialize_ignored_any(IgnoredAny).map(|_| ())
        } else {
            json.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.take(if value {
            VarValue::True
        } else {
            VarValue::False
        });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.take(VarValue::Number(value.into()));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.take(VarValue::Number(value.into()));
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        if let Some(number) = Number::from_f64(value) {
            self.take(VarValue::Number(number));
        }
        Ok(())
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<(), E> {
        self.take(VarValue::Str(Cow::Borrowed(value)));
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        if self.arrived() || self.item() {
            self.take(VarValue::Str(Cow::Owned(value.to_owned())));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let always = self.enter();
        for index in 0.. {
            let open = by_index(self.path, self.open, index) | always;
            let Walk { path, plain, .. } = self;
            let walk = Walk {
                path,
                plain,
                open,
                found: &mut *self.found,
            };
            if seq.next_element_seed(walk)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.enter();
        while let Some(open) = map.next_key_seed(Key {
            path: self.path,
            open: self.open,
        })? {
            if self.plain && open != 0 {
                // Of members with the same name the last one counts, as for most readers.
                self.found.values.clear();
                self.found.container = false;
            }
            let Walk { path, plain, .. } = self;
            map.next_value_seed(Walk {
                path,
                plain,
                open,
                found: &mut *self.found,
            })?;
        }
        Ok(())
    }
}

/// Reads a key and gives the positions open at its value.
struct Key<'w> {
    path: &'w [Segment],
    open: u64,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, key: &str) -> Result<u64, E> {
        Ok(by_name(self.path, self.open, key))
    }
}
