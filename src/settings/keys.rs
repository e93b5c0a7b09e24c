//! Every key of APISIX's `config.yaml`, and what becomes of it here.
//!
//! A key is honoured, has no effect and needs none, or gets one warning that says
//! what happens instead; that only when its value would make a difference, so a
//! file that spells out the original's defaults loads in silence. Types are
//! checked here for the keys that nothing else reads.

mod table;

use lockgate_plugin::schema::closest;
use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use super::read::shown;
use super::units;
use crate::config::catalogue::APISIX;
use crate::document::Document;
use table::KEYS;

/// What is known of a key.
#[derive(Clone, Copy)]
struct Key {
    kind: Kind,
    fate: Fate,
    /// It is a secret, or may hold one: its value is never shown.
    secret: bool,
}

impl Key {
    const fn of(kind: Kind, fate: Fate) -> Key {
        Key {
            kind,
            fate,
            secret: false,
        }
    }

    const fn secret(mut self) -> Key {
        self.secret = true;
        self
    }
}

/// What a value has to be. `null` always fits: it stands for leaving the key out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Whoever reads it checks it.
    Own,
    Flag,
    Number,
    Port,
    Text,
    Texts,
    List,
    Duration,
    Size,
    /// A mapping of which every key is known.
    Section,
    /// A mapping with any keys.
    Free,
    /// A section that can be switched off as a whole: `false`.
    Switch,
    /// `on` and `off` as nginx has them, or a boolean.
    OnOff,
}

/// What becomes of a key.
#[derive(Clone, Copy)]
enum Fate {
    /// It does what it does in APISIX.
    Honoured,
    /// It has no effect here and needs none.
    Moot,
    /// It has no effect, and the text says what happens instead. The values, in JSON, for which
    /// that is what was asked for.
    Instead(&'static str, &'static [&'static str]),
}

/// Values that ask for nothing.
const OFF: &[&str] = &["false", "\"\"", "[]", "{}"];

/// Notes unknown keys and wrong types as problems and keys without effect as warnings, one for each.
pub(super) fn check(
    document: &Document,
    root: &Value,
    out: &mut Problems,
    warnings: &mut Problems,
) {
    if !root.is_object() {
        let found = shown(document, "", root);
        out.add("", format!("settings are a mapping, found {found}"));
        return;
    }
    let custom = |name: &str| {
        let list = root.get("plugins").and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|item| item.as_str() == Some(name)))
    };
    Walk {
        document,
        out,
        warnings,
        custom: &custom,
    }
    .section("", root);
}

struct Walk<'a> {
    document: &'a Document,
    out: &'a mut Problems,
    warnings: &'a mut Problems,
    /// Whether a name is in the `plugins` list: a plugin of one's own may have attributes.
    custom: &'a dyn Fn(&str) -> bool,
}

impl Walk<'_> {
    fn section(&mut self, path: &str, value: &Value) {
        let Value::Object(map) = value else {
            // A section whose keys are all commented out is null; an empty list is a way to write
            // an empty mapping.
            if !value.is_null() && !value.as_array().is_some_and(Vec::is_empty) {
                self.wrong(path, "a mapping", value);
            }
            return;
        };
        for (name, value) in map {
            let below = join(path, name);
            match find(&below) {
                Some(key) => self.key(&below, key, value),
                None if is_section(&below) => self.section(&below, value),
                None if path == "plugin_attr"
                    && (APISIX.contains(&name.as_str()) || (self.custom)(name)) =>
                {
                    self.key(&below, table::PLUGIN_ATTR, value);
                }
                None => self.unknown(path, name),
            }
        }
    }

    fn key(&mut self, path: &str, key: Key, value: &Value) {
        if let Fate::Instead(text, unless) = key.fate
            && !value.is_null()
            && !unless
                .iter()
                .any(|json| serde_json::from_str(json).ok().as_ref() == Some(value))
        {
            self.warnings.add(path, format!("has no effect: {text}"));
        }
        let off = key.kind == Kind::Switch && *value == Value::Bool(false);
        if is_section(path) && !off {
            return self.section(path, value);
        }
        if let Some(expected) = mismatch(key.kind, value) {
            self.wrong(path, expected, value);
        }
    }

    fn wrong(&mut self, path: &str, expected: &str, value: &Value) {
        let found = shown(self.document, path, value);
        self.out
            .add(path, format!("expected {expected}, found {found}"));
    }

    fn unknown(&mut self, section: &str, name: &str) {
        let path = join(section, name);
        let mut problem = Problem::new(path.as_str(), format!("unknown key `{name}`"));
        problem.hint = suggestion(section, name);
        self.out.push(problem);
    }
}

/// What was expected, when a value is something else.
fn mismatch(kind: Kind, value: &Value) -> Option<&'static str> {
    let text = |value: &Value| value.is_string();
    let (fits, expected) = match kind {
        _ if value.is_null() => (true, ""),
        // The others are looked at key by key.
        Kind::Own | Kind::Section | Kind::Switch => (true, ""),
        Kind::Flag => (value.is_boolean(), "true or false"),
        Kind::Number => (value.is_number(), "a number"),
        Kind::Port => {
            let port = value.as_u64().is_some_and(|n| (1..=65_535).contains(&n));
            (port, "a port from 1 to 65535")
        }
        Kind::Text => (text(value), "a text"),
        Kind::Texts => {
            let fits = value.as_array().is_some_and(|list| list.iter().all(text));
            (fits, "a list of texts")
        }
        Kind::List => (value.is_array(), "a list"),
        Kind::Duration => (units::duration(value).is_some(), units::DURATION),
        Kind::Size => (units::size(value).is_some(), units::SIZE),
        Kind::Free => {
            let empty = value.as_array().is_some_and(Vec::is_empty);
            (value.is_object() || empty, "a mapping")
        }
        Kind::OnOff => {
            let word = matches!(value.as_str(), Some("on" | "off"));
            (value.is_boolean() || word, "on or off")
        }
    };
    (!fits).then_some(expected)
}

fn find(path: &str) -> Option<Key> {
    KEYS.iter()
        .find(|(known, _)| *known == path)
        .map(|(_, key)| *key)
}

/// Whether a value may not be shown: a secret, a part of one, or a section that has one.
pub(super) fn is_secret(path: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let secret = |(known, key): &(&str, Key)| {
        key.secret && (path.is_empty() || within(path, known) || within(known, path))
    };
    KEYS.iter().any(secret) || (within(path, "plugin_attr") && find(path).is_none())
}

/// Whether keys are known below a path.
fn is_section(path: &str) -> bool {
    KEYS.iter().any(|(key, _)| {
        key.strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

fn join(section: &str, name: &str) -> String {
    if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    }
}

/// The closest key beside a wrong one, or the same name in another section.
fn suggestion(section: &str, name: &str) -> Option<String> {
    let prefix = if section.is_empty() {
        String::new()
    } else {
        format!("{section}.")
    };
    let beside = KEYS
        .iter()
        .filter_map(|(key, _)| key.strip_prefix(prefix.as_str())?.split('.').next());
    let plugins = APISIX.iter().copied().filter(|_| section == "plugin_attr");
    if let Some(close) = closest(name, beside.chain(plugins)) {
        return Some(format!("did you mean `{prefix}{close}`?"));
    }
    let elsewhere = KEYS
        .iter()
        .find(|(key, _)| key.rsplit('.').next() == Some(name));
    elsewhere.map(|(key, _)| format!("it belongs at `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shipped file says something about every key that does something.
    #[test]
    fn honoured_keys_are_shown_in_the_shipped_file() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/config.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        for (path, key) in KEYS {
            let name = path.rsplit('.').next().unwrap_or_default();
            let shown = [" ", "{"]
                .iter()
                .any(|before| text.contains(&format!("{before}{name}:")));
            assert!(
                shown || !matches!(key.fate, Fate::Honoured) || *path == "plugins",
                "{path} is not in conf/config.yaml"
            );
        }
    }

    /// Each path once, and what a row says it is is possible.
    #[test]
    fn the_table_is_consistent() {
        for (at, (path, key)) in KEYS.iter().enumerate() {
            let same = KEYS.iter().position(|(other, _)| other == path);
            assert_eq!(same, Some(at), "{path} is listed twice");
            let holds = matches!(key.kind, Kind::Section | Kind::Switch);
            assert!(holds || !is_section(path), "{path} has keys below it");
            if let Fate::Instead(_, unless) = key.fate {
                for json in unless {
                    assert!(
                        serde_json::from_str::<Value>(json).is_ok(),
                        "{path}: {json}"
                    );
                }
            }
        }
    }
}
