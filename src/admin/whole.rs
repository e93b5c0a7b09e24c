//! Checking a whole configuration at once: `POST /configs/validate`. Nothing is stored, and
//! references are not followed.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Admin;
use super::kinds::item_key;
use super::request::Request;
use super::standalone::duplicate;
use crate::config::kind::Kind;
use crate::endpoint::Answer;

/// Mistakes that an answer tells of.
const MOST: usize = 1000;

impl Admin {
    /// Below `/configs`.
    pub(super) fn configs(&self, request: &Request) -> Answer {
        match (request.segment(1), request.method.as_str()) {
            (Some("validate"), "POST") => self.validate_all(request),
            _ => Answer::error(404, "not found").unversioned(),
        }
    }

    fn validate_all(&self, request: &Request) -> Answer {
        let body = match request.document() {
            Ok(Some(body)) => body,
            Ok(None) => {
                return Answer::bad("invalid request body: empty request body").unversioned();
            }
            Err(answer) => return answer.unversioned(),
        };
        if !body.is_object() {
            return Answer::bad("invalid request body: expected an object").unversioned();
        }
        let mut errors = Vec::new();
        for kind in Kind::ALL
            .into_iter()
            .filter(|kind| *kind != Kind::Credential)
        {
            match body.get(kind.plural()) {
                None | Some(Value::Null) => {}
                Some(Value::Array(items)) => self.validate_list(kind, items, &mut errors),
                Some(Value::Object(map)) if map.is_empty() => {}
                Some(_) => errors.push(json!({
                    "resource_type": kind.plural(),
                    "error": "invalid configuration: expected a list",
                })),
            }
        }
        if errors.is_empty() {
            return Answer::json(200, "{}").unversioned();
        }
        errors.truncate(MOST);
        let text = "Configuration validation failed";
        let body = json!({ "error_msg": text, "errors": errors });
        Answer::json(400, body.to_string()).unversioned()
    }

    fn validate_list(&self, kind: Kind, items: &[Value], errors: &mut Vec<Value>) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let key = item_key(kind, item, index);
            let has_id = item.get("id").or_else(|| item.get("username")).is_some();
            let id = has_id.then(|| key.id.to_string());
            let mut add = |error: String| {
                errors.push(json!({
                    "resource_type": kind.plural(),
                    "resource_id": id,
                    "index": index,
                    "error": error,
                }));
            };
            if let Some(error) = self.checker.problem(&key, item) {
                add(error);
            }
            if has_id && !seen.insert(key.to_string()) {
                add(duplicate(&key));
            }
        }
    }
}
