//! Health of upstreams.

use serde_json::{Value, json};

use super::inventory::Held;
use super::{Control, unavailable};
use crate::config::kind::{Key, Kind};
use crate::endpoint::Answer;

/// Kinds that may have an upstream with health checks.
static KINDS: [Kind; 4] = [
    Kind::Route,
    Kind::StreamRoute,
    Kind::Service,
    Kind::Upstream,
];

impl Control {
    /// Everything that has health checks.
    pub(super) async fn health(&self) -> Answer {
        let held = match self.inventory.list(&KINDS).await {
            Ok(held) => held,
            Err(error) => return unavailable(&error),
        };
        let all: Vec<Value> = held.iter().filter_map(checked).collect();
        // APISIX writes a list without items as an object, and clients of it know.
        let body = if all.is_empty() {
            json!({})
        } else {
            Value::Array(all)
        };
        Answer::json(200, body.to_string())
    }

    /// One resource.
    pub(super) async fn health_of(&self, name: &str, id: Option<&str>) -> Answer {
        let Some(kind) = KINDS.into_iter().find(|kind| kind.plural() == name) else {
            return Answer::error(400, format!("invalid src type {name}"));
        };
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Answer::error(404, format!("missing src id for src type {name}"));
        };
        match self.inventory.get(&Key::new(kind, id)).await {
            Ok(None) => Answer::error(404, format!("{name}[{id}] not found")),
            Ok(Some(held)) => match checked(&held) {
                Some(seen) => Answer::json(200, seen.to_string()),
                None => Answer::error(404, format!("no checker for {name}[{id}]")),
            },
            Err(error) => unavailable(&error),
        }
    }
}

/// What is known of a resource with health checks. This version makes none, so no node has a
/// status.
fn checked(held: &Held) -> Option<Value> {
    let upstream = match held.key.kind {
        Kind::Upstream => &held.value,
        _ => held.value.get("upstream")?,
    };
    let checks = upstream.get("checks").filter(|checks| !checks.is_null())?;
    let of = checks.pointer("/active/type").and_then(Value::as_str);
    Some(json!({
        "name": held.path,
        "type": of.unwrap_or("http"),
        "nodes": [],
    }))
}
