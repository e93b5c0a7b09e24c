//! Schemas of resources and plugins, and the list of plugins.

use lockgate_plugin::PluginDef;
use serde_json::{Map, Value, json};

use super::Admin;
use super::kinds::schema_name;
use super::request::Request;
use crate::config::decode::schema_of;
use crate::config::kind::{Key, Kind};
use crate::endpoint::Answer;

/// What APISIX says the version of nearly all its plugins is.
const PLUGIN_VERSION: f64 = 0.1;

impl Admin {
    /// Below `/plugins`.
    pub(super) fn plugins(&self, request: &Request) -> Answer {
        match (request.segment(1), request.method.as_str()) {
            (Some("reload"), "PUT") => Answer::text(200, "done").unversioned(),
            (Some("reload"), method) => Answer::error(
                405,
                format!(
                    "please use PUT method to reload the plugins, {method} method is not allowed."
                ),
            )
            .unversioned(),
            (Some("list"), "GET") => self.names(request.arg("subsystem")),
            (Some(name), "GET") => self.plugin(name, request),
            (None, "GET") => self.all(request),
            _ => not_found("http"),
        }
    }

    /// Plugins of a subsystem, by falling priority. There are none for streams.
    fn of(&self, subsystem: Option<&str>) -> Option<Vec<&'static PluginDef>> {
        match subsystem.unwrap_or("http") {
            "http" => {
                let mut all: Vec<_> = self.checker.catalogue().ready().collect();
                all.sort_by_key(|def| std::cmp::Reverse(def.priority));
                Some(all)
            }
            "stream" => Some(Vec::new()),
            _ => None,
        }
    }

    fn names(&self, subsystem: Option<&str>) -> Answer {
        match self.of(subsystem) {
            Some(all) => {
                let names: Vec<&str> = all.iter().map(|def| def.name).collect();
                Answer::json(200, json!(names).to_string()).unversioned()
            }
            None => Answer::text(400, "invalid subsystem passed").unversioned(),
        }
    }

    fn plugin(&self, name: &str, request: &Request) -> Answer {
        let subsystem = request.arg("subsystem").unwrap_or("http");
        let Some(all) = self.of(Some(subsystem)) else {
            return Answer::bad(format!("unsupported subsystem: {subsystem}"));
        };
        let Some(def) = all.iter().find(|def| def.name == name) else {
            return not_found(subsystem);
        };
        let schema = match (request.arg("schema_type"), &def.credential) {
            (Some("consumer"), Some(credential)) => (credential.schema)(),
            (Some("consumer"), None) => return Answer::bad("not found schema"),
            _ => with_meta((def.schema)()),
        };
        Answer::json(200, schema.to_string())
    }

    fn all(&self, request: &Request) -> Answer {
        let subsystem = request.arg("subsystem").unwrap_or("http");
        let Some(all) = self.of(Some(subsystem)) else {
            return Answer::bad(format!("unsupported subsystem: {subsystem}"));
        };
        if request.arg("all") != Some("true") {
            return not_found(subsystem);
        }
        let entries = all.iter().map(|def| (def.name.to_owned(), entry(def)));
        Answer::json(200, Value::Object(entries.collect()).to_string())
    }

    /// Below `/schema`.
    pub(super) fn schema(&self, request: &Request) -> Answer {
        match (
            request.segment(1),
            request.segment(2),
            request.method.as_str(),
        ) {
            (Some("plugins"), Some(name), "GET") => self.plugin(name, request),
            (Some("validate"), Some(plural), "POST") => self.validate(plural, request),
            (Some(name), _, "GET") => {
                let kind = Kind::ALL
                    .into_iter()
                    .find(|kind| schema_name(*kind) == name);
                let schema = kind.and_then(|kind| schema_of(&Key::new(kind, "")));
                match schema {
                    Some(schema) => Answer::json(200, schema.to_string()),
                    None => Answer::bad(format!("not found schema: {name}")),
                }
            }
            _ => Answer::error(404, "not found"),
        }
    }
}

fn not_found(subsystem: &str) -> Answer {
    Answer::error(404, format!("plugin not found in subsystem {subsystem}"))
}

/// What is told of a plugin. Without metadata there is no member for it: the dashboard offers a
/// form for each that has one.
pub(crate) fn entry(def: &PluginDef) -> Value {
    let mut map = Map::new();
    map.insert("version".to_owned(), json!(PLUGIN_VERSION));
    map.insert("priority".to_owned(), json!(def.priority));
    map.insert("schema".to_owned(), with_meta((def.schema)()));
    if let Some(credential) = &def.credential {
        map.insert("type".to_owned(), json!("auth"));
        map.insert("consumer_schema".to_owned(), (credential.schema)());
    }
    if let Some((schema, _)) = &def.metadata {
        map.insert("metadata_schema".to_owned(), schema());
    }
    Value::Object(map)
}

/// Adds `_meta`, which every plugin's configuration may have.
fn with_meta(mut schema: Value) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert(
                "_meta".to_owned(),
                json!({
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "disable": {"type": "boolean"},
                        "priority": {"type": "integer"},
                        "filter": {"type": "array"},
                        "error_response": {"oneOf": [{"type": "string"}, {"type": "object"}]},
                    },
                }),
            );
        }
    }
    schema
}

impl Admin {
    /// Whether a body is a resource of a kind; what its plugins are told is not looked at.
    fn validate(&self, plural: &str, request: &Request) -> Answer {
        let kind = Kind::ALL.into_iter().find(|kind| kind.plural() == plural);
        let key = kind.map(|kind| Key::new(kind, ""));
        let Some(key) = key.filter(|key| schema_of(key).is_some()) else {
            return Answer::error(404, format!("Unsupported resource type: {plural}"));
        };
        let mut body = match request.json() {
            Ok(body) => body.unwrap_or_default(),
            Err(answer) => return answer,
        };
        if let Some(Value::Object(plugins)) = body.get_mut("plugins") {
            plugins.clear();
        }
        match self.checker.problem(&key, &body) {
            Some(text) => Answer::bad(text.trim_start_matches("invalid configuration: ")),
            None => Answer::text(200, ""),
        }
    }
}
