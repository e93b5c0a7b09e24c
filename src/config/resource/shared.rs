//! Pieces that several resources use.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::{Problems, network};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::upstream::Timeouts;

/// An id: a text, or a number from 1 that stands for its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id(pub Arc<str>);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match Id::text(&value) {
            Some(text) => Ok(Id(text.into())),
            None => Err(serde::de::Error::custom(format!(
                "an id is a text or a number, not {value}"
            ))),
        }
    }
}

impl JsonSchema for Id {
    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-zA-Z0-9-_.]+$"},
                {"type": "integer", "minimum": 1}
            ]
        })
    }
}

impl Id {
    /// The text of an id as it is written in a document.
    pub fn text(value: &Value) -> Option<Cow<'_, str>> {
        match value {
            Value::String(text) => Some(Cow::Borrowed(text)),
            // `1` and `1.0` are the same id.
            Value::Number(n) => Some(
                match n.as_f64().filter(|f| n.is_f64() && f.fract() == 0.0) {
                    Some(whole) => Cow::Owned(format!("{whole:.0}")),
                    None => Cow::Owned(n.to_string()),
                },
            ),
            _ => None,
        }
    }
}

/// Labels: short texts by name.
pub(super) type Labels = BTreeMap<String, String>;

/// The schema of labels.
pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "patternProperties": {".*": {"type": "string", "pattern": "^\\S+$", "minLength": 1, "maxLength": 256}}
    })
}

/// The schema of a host pattern.
pub(super) fn host(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "pattern": HOST})
}

/// The schema of a list of host patterns.
pub(super) fn hosts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["array", "null"], "minItems": 1, "uniqueItems": true,
        "items": {"type": "string", "pattern": HOST}
    })
}

/// The methods a route may name.
pub(super) const METHODS: [&str; 10] = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE",
];

/// A host or a wildcard: `*`, `*.a.com`, `a.com:80`.
pub(super) const HOST: &str = r"^(\*|\*?[0-9a-zA-Z-._\[\]:]+)$";

/// Time limits towards an upstream, in seconds.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct Timeout {
    /// To establish a connection.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub connect: f64,
    /// Between two writes.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub send: f64,
    /// Between two reads.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub read: f64,
}

impl Timeout {
    /// As durations; absurdly long ones are cut to a day.
    pub fn limits(&self) -> Timeouts {
        let duration = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.001, 86_400.0));
        Timeouts {
            connect: duration(self.connect),
            send: duration(self.send),
            read: duration(self.read),
        }
    }
}

/// Reports members of a list that are neither addresses nor networks.
pub(super) fn check_networks<'a>(
    path: &str,
    list: impl Iterator<Item = &'a String>,
    out: &mut Problems,
) {
    let mut out = out.at(path);
    for (i, text) in list.enumerate() {
        if network(text).is_none() {
            out.add(&format!("[{i}]"), format!("invalid ip address: {text}"));
        }
    }
}
