//! Typed reading of settings; every mistake is noted and the default goes on.

use std::time::Duration;

use ipnet::IpNet;
use lockgate_plugin::problem::At;
use lockgate_plugin::{Problem, Problems, network};
use serde_json::{Map, Value};

use super::units;
use crate::document::{Document, substitute_env};

/// Reads values by path.
pub(super) struct Reader<'a> {
    /// What was written.
    document: &'a Document,
    /// The same with values from the environment.
    root: &'a Value,
    out: &'a mut Problems,
    warnings: &'a mut Problems,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        document: &'a Document,
        root: &'a Value,
        out: &'a mut Problems,
        warnings: &'a mut Problems,
    ) -> Reader<'a> {
        Reader {
            document,
            root,
            out,
            warnings,
        }
    }

    /// A value; `None` when it is absent or null.
    pub(super) fn value(&self, path: &str) -> Option<&'a Value> {
        self.written(path).filter(|found| !found.is_null())
    }

    /// Whether null is written where a default could stand: it takes the default away.
    pub(super) fn is_null(&self, path: &str) -> bool {
        self.written(path).is_some_and(Value::is_null)
    }

    fn written(&self, path: &str) -> Option<&'a Value> {
        path.split('.')
            .try_fold(self.root, |here, name| here.get(name))
    }

    /// Notes a mistake.
    pub(super) fn fail(&mut self, path: &str, message: impl Into<String>) {
        self.out.add(path, message);
    }

    /// Where mistakes below a path are noted.
    pub(super) fn below(&mut self, path: &str) -> At<'_> {
        self.out.at(path)
    }

    /// Notes a mistake that comes with a hint.
    pub(super) fn push(&mut self, problem: Problem) {
        self.out.push(problem);
    }

    /// Notes what one may not expect.
    pub(super) fn warn(&mut self, warning: Problem) {
        self.warnings.push(warning);
    }

    /// Notes a value that is not what it has to be.
    pub(super) fn wrong(&mut self, path: &str, expected: &str, found: &Value) {
        let found = shown(self.document, path, found);
        self.fail(path, format!("expected {expected}, found {found}"));
    }

    pub(super) fn flag(&mut self, path: &str, default: bool) -> bool {
        match self.value(path) {
            None => default,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(path, "true or false", other);
                default
            }
        }
    }

    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        match self.value(path)? {
            Value::String(text) => Some(text.clone()),
            other => {
                self.wrong(path, "a text", other);
                None
            }
        }
    }

    /// One of several words; the first is the default.
    pub(super) fn choice<'w>(&mut self, path: &str, words: &[&'w str]) -> &'w str {
        let default = words.first().copied().unwrap_or("");
        let Some(value) = self.value(path) else {
            return default;
        };
        let found = value
            .as_str()
            .and_then(|text| words.iter().find(|word| **word == text));
        found.copied().unwrap_or_else(|| {
            self.wrong(path, &format!("one of {}", words.join(", ")), value);
            default
        })
    }

    pub(super) fn integer(&mut self, path: &str, min: u64, max: u64) -> Option<u64> {
        let value = self.value(path)?;
        let number = value.as_u64().or_else(|| {
            value
                .as_f64()
                .filter(|f| f.fract() == 0.0 && *f >= 0.0)
                .map(|f| f as u64)
        });
        match number {
            Some(n) if (min..=max).contains(&n) => Some(n),
            _ => {
                self.wrong(path, &format!("a whole number from {min} to {max}"), value);
                None
            }
        }
    }

    /// A number of things, up to `max`.
    pub(super) fn count(&mut self, path: &str, max: u32, default: usize) -> usize {
        let number = self.integer(path, 0, max.into());
        number
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(default)
    }

    pub(super) fn duration(&mut self, path: &str, default: Duration) -> Duration {
        let Some(value) = self.value(path) else {
            return default;
        };
        units::duration(value).unwrap_or_else(|| {
            self.wrong(path, units::DURATION, value);
            default
        })
    }

    pub(super) fn size(&mut self, path: &str, default: u64) -> u64 {
        let Some(value) = self.value(path) else {
            return default;
        };
        units::size(value).unwrap_or_else(|| {
            self.wrong(path, units::SIZE, value);
            default
        })
    }

    /// A list of addresses and networks. `unix:` is accepted and left out: there are no such
    /// listeners.
    pub(super) fn networks(&mut self, path: &str) -> Option<Vec<IpNet>> {
        let value = self.value(path)?;
        let Value::Array(list) = value else {
            self.wrong(path, "a list of addresses", value);
            return None;
        };
        let mut nets = Vec::new();
        for (i, item) in list.iter().enumerate() {
            let text = item.as_str().unwrap_or_default();
            match network(text) {
                Some(net) => nets.push(net),
                None if text == "unix:" => {}
                None => self.wrong(&format!("{path}[{i}]"), "an address or network", item),
            }
        }
        Some(nets)
    }
}

/// The value at `path` in an error text: short, on one line. Of what is or holds a secret, and of
/// what the file does not say itself, only the type: errors end up in logs and tickets.
pub(super) fn shown(document: &Document, path: &str, value: &Value) -> String {
    const LONGEST: usize = 60;
    let kind = match value {
        Value::Null | Value::Bool(_) => "",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    let hidden = super::keys::is_secret(path) || document.get(path) != Some(value);
    if hidden && !kind.is_empty() {
        return kind.to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What a text from the environment means.
fn typed(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match serde_json::from_str::<serde_json::Number>(text) {
            Ok(number) => Value::Number(number),
            Err(_) => Value::String(text.to_owned()),
        },
    }
}

/// Puts environment values into every text. A text that was a reference becomes a number or boolean
/// when it looks like one, as in APISIX. Where a variable is missing nothing stands: one mistake
/// shall not look like two.
pub(super) fn fill_in(
    value: &Value,
    env: &dyn Fn(&str) -> Option<String>,
    out: &mut Problems,
) -> Value {
    match value {
        Value::String(text) if text.contains("${{") => match substitute_env(text, env, "") {
            Ok(filled) if *filled == **text => value.clone(),
            Ok(filled) => typed(&filled),
            Err(problems) => {
                for mut problem in problems {
                    // The place in the text says nothing about the place in the file.
                    (problem.file, problem.place) = (None, None);
                    out.push(problem);
                }
                Value::Null
            }
        },
        Value::Array(list) => {
            let item = |(i, item): (usize, &Value)| fill_in(item, env, &mut out.at_index(i));
            Value::Array(list.iter().enumerate().map(item).collect())
        }
        Value::Object(map) => {
            let mut filled = Map::new();
            for (name, value) in map {
                let value = fill_in(value, env, &mut out.at(name));
                // A name that cannot be filled in is an unknown key, and reported as one.
                let name = substitute_env(name, env, "")
                    .map_or_else(|_| name.clone(), |name| name.into_owned());
                filled.insert(name, value);
            }
            Value::Object(filled)
        }
        other => other.clone(),
    }
}
