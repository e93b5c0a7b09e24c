//! A running gateway with the document it serves: cases put their resources in, the rest stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::gateway::{Gateway, Setup};

/// A gateway and the resources of every case in it.
pub(crate) struct Live {
    /// The process.
    pub(crate) gateway: Gateway,
    document: Mutex<Document>,
}

#[derive(Default)]
struct Document {
    cases: BTreeMap<String, Map<String, Value>>,
    generation: u64,
}

impl Document {
    /// All lists together, with a route that is new each time, so that every edit changes something.
    fn render(&mut self) -> Value {
        self.generation += 1;
        let mut out: Map<String, Value> = Map::new();
        for lists in self.cases.values() {
            for (list, items) in lists {
                let all = out.entry(list.clone()).or_insert_with(|| json!([]));
                if let (Value::Array(all), Value::Array(items)) = (all, items) {
                    all.extend(items.iter().cloned());
                }
            }
        }
        let generation = json!({
            "id": "it-generation", "host": "generation.test", "uri": format!("/{}", self.generation),
            "upstream": { "nodes": { "127.0.0.1:9": 1 } },
        });
        let routes = out.entry("routes").or_insert_with(|| json!([]));
        if let Value::Array(routes) = routes {
            routes.push(generation);
        }
        Value::Object(out)
    }
}

impl Live {
    /// Starts a gateway that serves `resources` for `id`.
    pub(crate) async fn start(
        mut setup: Setup<'_>,
        id: &str,
        resources: Map<String, Value>,
    ) -> Result<Arc<Self>> {
        let mut document = Document::default();
        document.cases.insert(id.to_owned(), resources);
        setup.resources = document.render();
        let gateway = Gateway::start(setup).await?;
        Ok(Arc::new(Live {
            gateway,
            document: Mutex::new(document),
        }))
    }

    /// Adds or replaces lists of some cases in one edit, and waits until it is live.
    pub(crate) async fn change(&self, changes: Vec<(String, Map<String, Value>)>) -> Result<()> {
        let mut document = self.document.lock().await;
        for (id, lists) in changes {
            document.cases.entry(id).or_default().extend(lists);
        }
        let text = document.render();
        // Held while waiting: edits must not overtake each other.
        self.gateway.edit(&text).await
    }

    /// Texts of the rejected resources; with an id only those that name it.
    pub(crate) async fn rejected(&self, id: Option<&str>) -> Result<Vec<String>> {
        let page = self.gateway.configuration().await?;
        let list = page
            .get("rejected")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let texts = list.iter().map(flat);
        Ok(texts
            .filter(|text| id.is_none_or(|id| names(text, id)))
            .collect())
    }
}

/// Whether a text names the case, and not one whose number only starts the same (`a-1`, `a-12`).
fn names(text: &str, id: &str) -> bool {
    text.match_indices(id)
        .any(|(at, _)| !text[at + id.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

/// All scalars of a value as one line.
fn flat(value: &Value) -> String {
    match value {
        Value::Object(map) => map.values().map(flat).collect::<Vec<_>>().join(" "),
        Value::Array(list) => list.iter().map(flat).collect::<Vec<_>>().join(" "),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
