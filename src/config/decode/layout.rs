//! The layout of a whole document, as in `apisix.yaml`: lists of resources by the plural of their kind.

use std::collections::HashMap;

use lockgate_plugin::schema::closest;
use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;

/// Where a document has a resource; shown as a path, `routes[0]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The name of the list.
    pub list: &'static str,
    /// The position in it.
    pub at: usize,
}

impl std::fmt::Display for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[{}]", self.list, self.at)
    }
}

/// Splits a document into resources, each with its place in it. `warnings` gets what is accepted
/// without an effect.
///
/// # Errors
/// Unknown top-level keys, values that are not lists, and ids that occur twice.
pub fn split(document: &Value, warnings: &mut Problems) -> Result<Vec<(Key, Slot)>, Problems> {
    let mut out = Problems::default();
    let mut found = Found::default();
    let map = match document {
        Value::Object(map) => map,
        // Nothing but comments.
        Value::Null => return Ok(Vec::new()),
        _ => {
            return Err(Problem::new(
                "",
                "a configuration is a mapping of lists such as `routes:`",
            )
            .into());
        }
    };
    for (name, value) in map {
        match kinds().find(|kind| kind.plural() == name) {
            Some(kind) => match value {
                Value::Array(list) => found.add(kind, list, &mut out),
                Value::Null => {}
                Value::Object(map) if map.is_empty() => {}
                other => out.push(not_a_list(name, other)),
            },
            None if name == "plugins" => warnings.add(
                name,
                "the list of plugins is taken from config.yaml; this one has no effect",
            ),
            // Versions that clients of the original's standalone mode send.
            None if name.ends_with("_conf_version") => {}
            None => {
                let mut problem = Problem::new(name.as_str(), format!("unknown key `{name}`"));
                let close = closest(name, kinds().map(Kind::plural).chain(["plugins"]));
                problem.hint = Some(match close {
                    Some(close) => format!("did you mean `{close}`?"),
                    None => format!(
                        "allowed: {}",
                        kinds().map(Kind::plural).collect::<Vec<_>>().join(", ")
                    ),
                });
                out.push(problem);
            }
        }
    }
    out.into_result()?;
    Ok(found.list)
}

/// The kinds with a list of their own: credentials are among the consumers.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL
        .into_iter()
        .filter(|kind| *kind != Kind::Credential)
}

fn not_a_list(name: &str, found: &Value) -> Problem {
    let problem = Problem::new(name, "expected a list");
    match found {
        Value::Object(_) => {
            problem.hint("write each resource as an element with its `id`: `- id: 1`")
        }
        _ => problem,
    }
}

#[derive(Default)]
struct Found {
    list: Vec<(Key, Slot)>,
    /// Where in the list a key is.
    seen: HashMap<Key, usize>,
}

impl Found {
    fn add(&mut self, kind: Kind, items: &[Value], out: &mut Problems) {
        for (at, item) in items.iter().enumerate() {
            let slot = Slot {
                list: kind.plural(),
                at,
            };
            let id = item_id(kind, item, at);
            let kind = match kind {
                Kind::Consumer if id.contains("/credentials/") => Kind::Credential,
                kind => kind,
            };
            let key = Key::new(kind, &id);
            match self.seen.get(&key).and_then(|first| self.list.get(*first)) {
                Some((_, first)) => out.push(duplicate(&key, slot, *first)),
                None => {
                    self.seen.insert(key.clone(), self.list.len());
                    self.list.push((key, slot));
                }
            }
        }
    }
}

fn duplicate(key: &Key, slot: Slot, first: Slot) -> Problem {
    let id = &key.id;
    let text = match key.kind {
        Kind::Consumer => format!("found duplicate username {id} in consumers"),
        Kind::Credential => format!("found duplicate credential id {id} in consumers"),
        kind => format!("found duplicate id {id} in {}", kind.plural()),
    };
    Problem::new(slot.to_string(), text).hint(format!("the first one is {first}"))
}

/// `id`, else `username`, else the position from 1 as `arr_N`. A consumer is known by its name,
/// whatever its id.
fn item_id(kind: Kind, item: &Value, at: usize) -> String {
    let text = |name: &str| {
        item.get(name)
            .and_then(Id::text)
            .map(std::borrow::Cow::into_owned)
    };
    let id = text("id");
    let named = match kind {
        Kind::Consumer if !id.as_ref().is_some_and(|id| id.contains("/credentials/")) => {
            text("username").or(id)
        }
        _ => id,
    };
    named.unwrap_or_else(|| format!("arr_{}", at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_split_into_resources() {
        let check = |document: Value, expected: &[&str]| {
            let mut warnings = Problems::default();
            let found =
                split(&document, &mut warnings).unwrap_or_else(|e| panic!("{document}: {e}"));
            let keys: Vec<String> = found
                .iter()
                .map(|(key, slot)| format!("{key} {slot}"))
                .collect();
            assert_eq!(keys, expected, "{document}");
            assert!(warnings.is_empty(), "{warnings}");
        };
        check(json!({}), &[]);
        check(json!(null), &[]);
        check(
            json!({"routes": [{"id": 1.0, "uri": "/a"}, {"uri": "/b"}, {"id": null}, "x"], "upstreams": null}),
            &[
                "routes/1 routes[0]",
                "routes/arr_2 routes[1]",
                "routes/arr_3 routes[2]",
                "routes/arr_4 routes[3]",
            ],
        );
        check(
            json!({"consumers": [
                {"username": "ann"},
                {"id": "b", "username": "bob"},
                {"id": "ann/credentials/c1", "plugins": {}},
            ], "services": {}}),
            &[
                "consumers/ann consumers[0]",
                "consumers/bob consumers[1]",
                "consumers/ann/credentials/c1 consumers[2]",
            ],
        );
        check(
            json!({"plugin_metadata": [{"id": "cors"}], "secrets": [{"id": "vault/1"}], "routes_conf_version": 3}),
            &[
                "plugin_metadata/cors plugin_metadata[0]",
                "secrets/vault/1 secrets[0]",
            ],
        );
    }

    #[test]
    fn mistakes_in_the_layout() {
        let check = |document: Value, expected: &[&str]| {
            let problems = split(&document, &mut Problems::default())
                .err()
                .unwrap_or_default();
            let got: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(got, expected, "{document}");
        };
        check(
            json!([]),
            &["a configuration is a mapping of lists such as `routes:`"],
        );
        check(
            json!({"route": []}),
            &["route: unknown key `route` (did you mean `routes`?)"],
        );
        check(
            json!({"apisix": {}, "routes": {"a": 1}, "ssls": "x"}),
            &[
                "apisix: unknown key `apisix` (allowed: plugin_metadata, upstreams, ssls, plugin_configs, services, \
                 consumer_groups, consumers, global_rules, routes, protos, secrets, stream_routes)",
                "routes: expected a list (write each resource as an element with its `id`: `- id: 1`)",
                "ssls: expected a list",
            ],
        );
        check(
            json!({"routes": [{"id": "1"}, {"id": 1}, {"id": "1"}]}),
            &[
                "routes[1]: found duplicate id 1 in routes (the first one is routes[0])",
                "routes[2]: found duplicate id 1 in routes (the first one is routes[0])",
            ],
        );
        check(
            json!({"consumers": [{"username": "a"}, {"username": "a"},
                                 {"id": "a/credentials/b"}, {"id": "a/credentials/b"}]}),
            &[
                "consumers[1]: found duplicate username a in consumers (the first one is consumers[0])",
                "consumers[3]: found duplicate credential id a/credentials/b in consumers \
                 (the first one is consumers[2])",
            ],
        );
    }

    #[test]
    fn what_has_no_effect_is_said() {
        let mut warnings = Problems::default();
        split(&json!({"plugins": [{"name": "cors"}]}), &mut warnings).unwrap();
        assert!(warnings.to_string().starts_with("plugins: "), "{warnings}");
    }
}
