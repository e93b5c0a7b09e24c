//! Checking a whole configuration at once: `POST /configs/validate`. Nothing is stored, and
//! references are not followed.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Admin;
use super::answer::Answer;
use super::request::Request;
use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;

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
            let text = |name: &str| {
                let text = item.get(name).and_then(Id::text)?;
                Some(text.into_owned())
            };
            let id = text("id");
            let credential = id.as_ref().filter(|id| id.contains("/credentials/"));
            let (kind, id) = match (kind, credential) {
                (Kind::Consumer, Some(id)) => (Kind::Credential, Some(id.clone())),
                (Kind::Consumer, None) => (kind, text("username")),
                _ => (kind, id),
            };
            let list = if kind == Kind::Credential {
                Kind::Consumer.plural()
            } else {
                kind.plural()
            };
            let mut add = |error: String| {
                errors.push(json!({
                    "resource_type": list,
                    "resource_id": id,
                    "index": index,
                    "error": error,
                }));
            };
            let key = Key::new(kind, id.as_deref().unwrap_or_default());
            if let Some(error) = self.checker.problem(&key, item) {
                add(error);
            }
            if let Some(id) = &id
                && !seen.insert((kind, id.clone()))
            {
                add(match kind {
                    Kind::Consumer => format!("found duplicate username {id} in consumers"),
                    Kind::Credential => format!("found duplicate credential id {id} in consumers"),
                    kind => format!("found duplicate id {id} in {}", kind.plural()),
                });
            }
        }
    }
}
