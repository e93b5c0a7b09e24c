//! Reading case files strictly: every key must be known, every mistake names its path.
//!
//! ```ignore
//! let fields = Fields::new(&value, "steps[0]")?;
//! let name = fields.str("name")?;
//! fields.finish()?; // an unknown key is an error here
//! ```

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fancy_regex::Regex;
use serde_json::{Map, Value};

/// A map whose keys are taken one by one; what nobody asked for is a mistake.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    /// Fails when `value` is not a map.
    pub(crate) fn new(value: &'a Value, path: impl Into<String>) -> Result<Self> {
        let path = path.into();
        let map = value
            .as_object()
            .with_context(|| format!("{path}: expected a map"))?;
        Ok(Fields {
            map,
            path,
            asked: RefCell::default(),
        })
    }

    /// The path of a key, for error texts.
    pub(crate) fn at(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The raw value of a key; an explicit `null` is a value.
    pub(crate) fn value(&self, key: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().push(key);
        self.map.get(key)
    }

    /// A text; numbers are taken as their text.
    pub(crate) fn str(&self, key: &'static str) -> Result<Option<String>> {
        match self.value(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => text(value).map(Some).with_context(|| self.at(key)),
        }
    }

    /// A whole number.
    pub(crate) fn number(&self, key: &'static str) -> Result<Option<u64>> {
        self.value(key)
            .map(|v| {
                v.as_u64()
                    .with_context(|| format!("{}: expected a number", self.at(key)))
            })
            .transpose()
    }

    /// A switch.
    pub(crate) fn bool(&self, key: &'static str) -> Result<Option<bool>> {
        self.value(key)
            .map(|v| {
                v.as_bool()
                    .with_context(|| format!("{}: expected a boolean", self.at(key)))
            })
            .transpose()
    }

    /// Seconds, fractions allowed.
    pub(crate) fn seconds(&self, key: &'static str) -> Result<Option<Duration>> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let seconds = value
            .as_f64()
            .filter(|s| (0.0..=60.0).contains(s))
            .with_context(|| format!("{}: expected seconds from 0 to 60", self.at(key)))?;
        Ok(Some(Duration::from_secs_f64(seconds)))
    }

    /// One text or a list of texts.
    pub(crate) fn strings(&self, key: &'static str) -> Result<Vec<String>> {
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list
                .iter()
                .map(text)
                .collect::<Result<_>>()
                .with_context(|| self.at(key)),
            Some(value) => Ok(vec![text(value).with_context(|| self.at(key))?]),
        }
    }

    /// One regex or a list of them.
    pub(crate) fn regexes(&self, key: &'static str) -> Result<Vec<Regex>> {
        self.strings(key)?
            .iter()
            .map(|p| regex(p).with_context(|| self.at(key)))
            .collect()
    }

    /// Header-like rules: `name: rule`.
    pub(crate) fn rules(&self, key: &'static str) -> Result<Vec<(String, Rule)>> {
        let Some(value) = self.value(key) else {
            return Ok(Vec::new());
        };
        let map = value
            .as_object()
            .with_context(|| format!("{}: expected a map", self.at(key)))?;
        map.iter()
            .map(|(name, value)| {
                let rule = Rule::new(value).with_context(|| format!("{}.{name}", self.at(key)))?;
                Ok((name.to_ascii_lowercase(), rule))
            })
            .collect()
    }

    /// A list of values; absent is empty.
    pub(crate) fn list(&self, key: &'static str) -> Result<&'a [Value]> {
        match self.value(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => bail!("{}: expected a list", self.at(key)),
        }
    }

    /// Counts by name: `{ echo: 2 }`.
    pub(crate) fn counts(&self, key: &'static str) -> Result<Option<Vec<(String, u64)>>> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let map = value
            .as_object()
            .with_context(|| format!("{}: expected a map", self.at(key)))?;
        let count = |(name, n): (&String, &Value)| {
            let n = n
                .as_u64()
                .with_context(|| format!("{}.{name}: not a number", self.at(key)))?;
            Ok((name.clone(), n))
        };
        map.iter().map(count).collect::<Result<Vec<_>>>().map(Some)
    }

    /// Fails on keys that were never asked for.
    pub(crate) fn finish(self) -> Result<()> {
        let asked = self.asked.borrow();
        let unknown: Vec<_> = self
            .map
            .keys()
            .filter(|k| !asked.contains(&k.as_str()))
            .map(|k| self.at(k))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let mut known = asked.clone();
        known.sort_unstable();
        bail!(
            "unknown key {}; known here: {}",
            unknown.join(", "),
            known.join(", ")
        )
    }
}

/// What a header, field or variable must look like.
#[derive(Debug)]
pub(crate) enum Rule {
    /// `null`: not there.
    Absent,
    /// Several values are joined by `, ` before comparing.
    Exact(String),
    /// `~REGEX`.
    Like(Regex),
    /// A list: these values in this order.
    Values(Vec<String>),
}

impl Rule {
    /// Reads `null`, a text, `~REGEX` or a list.
    pub(crate) fn new(value: &Value) -> Result<Self> {
        Ok(match value {
            Value::Null => Rule::Absent,
            Value::Array(list) => Rule::Values(list.iter().map(text).collect::<Result<_>>()?),
            value => {
                let text = text(value)?;
                match text.strip_prefix('~') {
                    Some(pattern) => Rule::Like(regex(pattern)?),
                    None => Rule::Exact(text),
                }
            }
        })
    }

    /// `None` when it holds, else what is wrong.
    pub(crate) fn broken_by(&self, got: &[&str]) -> Option<String> {
        let joined = got.join(", ");
        let (ok, want) = match self {
            Rule::Absent => (got.is_empty(), "to be absent".to_owned()),
            Rule::Exact(want) => (!got.is_empty() && *want == joined, format!("{want:?}")),
            Rule::Like(re) => {
                let found = !got.is_empty() && re.is_match(&joined).unwrap_or(false);
                (found, format!("to match {:?}", re.as_str()))
            }
            Rule::Values(want) => (got == want.as_slice(), format!("{want:?}")),
        };
        (!ok).then(|| match got {
            [] => format!("wanted {want}, got nothing"),
            _ => format!("wanted {want}, got {joined:?}"),
        })
    }
}

/// Compiles a pattern, naming it when it is bad.
pub(crate) fn regex(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).with_context(|| format!("bad regex {pattern:?}"))
}

/// A scalar as text.
pub(crate) fn text(value: &Value) -> Result<String> {
    match value {
        Value::String(s) => Ok(s.clone()),
        Value::Number(n) => Ok(n.to_string()),
        Value::Bool(b) => Ok(b.to_string()),
        other => Err(anyhow!("expected a text, got {other}")),
    }
}

/// Reads YAML into the JSON model; map keys become texts, so that `200: 2` works.
pub(crate) fn from_yaml(source: &str) -> Result<Value> {
    let yaml: serde_yaml::Value = serde_yaml::from_str(source)?;
    to_json(yaml)
}

fn to_json(yaml: serde_yaml::Value) -> Result<Value> {
    use serde_yaml::Value as Y;
    Ok(match yaml {
        Y::Sequence(list) => Value::Array(list.into_iter().map(to_json).collect::<Result<_>>()?),
        Y::Mapping(map) => {
            let mut out = Map::new();
            for (key, value) in map {
                let key = text(&serde_json::to_value(&key)?).context("a map key")?;
                out.insert(key, to_json(value)?);
            }
            Value::Object(out)
        }
        Y::Tagged(tagged) => bail!("tag {} is not used in case files", tagged.tag),
        scalar => serde_json::to_value(&scalar)?,
    })
}

/// `got` contains `want`: maps by subset, texts starting with `~` by search, the rest equal.
/// Returns the path of the first difference.
pub(crate) fn subset(want: &Value, got: &Value) -> Option<String> {
    fn walk(want: &Value, got: Option<&Value>, path: &str) -> Option<String> {
        let differ = || {
            let got = got.map_or_else(|| "nothing".to_owned(), Value::to_string);
            Some(format!("{path}: wanted {want}, got {got}"))
        };
        match (want, got) {
            (Value::Object(want), Some(Value::Object(got))) => want
                .iter()
                .find_map(|(key, value)| walk(value, got.get(key), &format!("{path}.{key}"))),
            (Value::Array(want), Some(Value::Array(got))) if want.len() == got.len() => want
                .iter()
                .zip(got)
                .enumerate()
                .find_map(|(i, (w, g))| walk(w, Some(g), &format!("{path}[{i}]"))),
            (Value::String(pattern), Some(Value::String(got))) if pattern.starts_with('~') => {
                match regex(&pattern[1..]) {
                    Ok(re) if re.is_match(got).unwrap_or(false) => None,
                    _ => differ(),
                }
            }
            (Value::Number(want), Some(Value::Number(got))) if want.as_f64() == got.as_f64() => {
                None
            }
            (want, Some(got)) if want == got => None,
            (Value::Null, None) => None,
            _ => differ(),
        }
    }
    walk(want, Some(got), "json")
}

/// Merges `over` into `base`: maps merge, lists and scalars replace, `null` deletes.
pub(crate) fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    base.remove(key);
                } else {
                    merge(base.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}
