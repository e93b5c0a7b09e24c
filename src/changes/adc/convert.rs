//! From ADC's nested items to resources: what all kinds have in common.

use lockgate_plugin::schema::closest;
use lockgate_plugin::{Problem, Problems};
use serde_json::{Map, Value, json};

use super::MANAGED_BY;
use crate::changes::order::{Want, What};
use crate::config::kind::{Key, Kind};

pub(super) type Members = Map<String, Value>;

/// Members of a file.
const FILE: &[&str] = &[
    "services",
    "ssls",
    "consumers",
    "consumer_groups",
    "global_rules",
    "plugin_metadata",
];
/// The longest id that ADC takes.
const LONGEST_ID: usize = 256;

/// What was made so far.
pub(super) struct Made {
    wants: Vec<Want>,
    pub(super) out: Problems,
}

/// See [`super::wants`].
pub(super) fn wants(document: &Value, place: &str) -> Result<Vec<Want>, Problems> {
    let mut made = Made {
        wants: Vec::new(),
        out: Problems::default(),
    };
    let Value::Object(map) = document else {
        let text = "a configuration is a mapping of lists such as `services:`";
        return Err(Problem::new(place, text).into());
    };
    let at = |name: &str| join(place, name);
    made.known(map, FILE, place);
    made.each(map, "services", place, Made::service);
    made.each(map, "ssls", place, Made::ssl);
    made.each(map, "consumers", place, Made::consumer);
    made.by_plugin(map, "global_rules", place, |name, conf| {
        let plugins = Map::from_iter([(name.to_owned(), conf.clone())]);
        (Kind::GlobalRule, json!({ "plugins": plugins }))
    });
    made.by_plugin(map, "plugin_metadata", place, |_, conf| {
        (Kind::PluginMetadata, conf.clone())
    });
    let groups = map.get("consumer_groups").and_then(Value::as_array);
    if groups.is_some_and(|groups| !groups.is_empty()) {
        let text = "ADC reads consumer groups and never sends them: they would be lost";
        let hint = "make them in the layout of apisix.yaml, or through the Admin API";
        made.out
            .push(Problem::new(at("consumer_groups"), text).hint(hint));
    }
    let Made { wants, out } = made;
    out.into_result().map(|()| wants)
}

impl Made {
    pub(super) fn add(&mut self, kind: Kind, id: &str, place: &str, value: Members) {
        let key = Key::new(kind, id);
        if Key::from_path(&key.to_string()).as_ref() != Some(&key) {
            self.out.add(place, format!("`{id}` is no id"));
            return;
        }
        self.wants.push(Want {
            key,
            place: place.to_owned(),
            what: What::Value(Value::Object(value)),
        });
    }

    /// Each item of a list that is one.
    pub(super) fn each(
        &mut self,
        map: &Members,
        name: &str,
        place: &str,
        with: impl Fn(&mut Made, &Members, &str),
    ) {
        let place = join(place, name);
        match map.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Array(list)) => {
                for (at, item) in list.iter().enumerate() {
                    let place = format!("{place}[{at}]");
                    match item {
                        Value::Object(item) => with(self, item, &place),
                        _ => self.out.add(&place, "wrong type: expected a mapping"),
                    }
                }
            }
            Some(_) => self.out.add(&place, "wrong type: expected a list"),
        }
    }

    /// Configurations by the name of their plugin.
    fn by_plugin(
        &mut self,
        map: &Members,
        name: &str,
        place: &str,
        with: impl Fn(&str, &Value) -> (Kind, Value),
    ) {
        let place = join(place, name);
        match map.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(plugins)) => {
                for (plugin, conf) in plugins {
                    let (kind, value) = with(plugin, conf);
                    let place = join(&place, plugin);
                    match value {
                        Value::Object(value) => self.add(kind, plugin, &place, value),
                        _ => self.out.add(&place, "wrong type: expected a mapping"),
                    }
                }
            }
            Some(Value::Array(list)) if list.is_empty() => {}
            Some(_) => {
                let text = "wrong type: ADC has a mapping here, from the names of plugins to their configurations";
                self.out.add(&place, text);
            }
        }
    }

    /// A name, which is a text that is not empty.
    pub(super) fn name(&mut self, item: &Members, member: &str, place: &str) -> Option<String> {
        let name = item.get(member).and_then(Value::as_str);
        let name = name.filter(|name| !name.is_empty());
        if name.is_none() {
            let text = "is required: ADC knows the resource by it";
            self.out.add(&join(place, member), text);
        }
        name.map(str::to_owned)
    }

    /// Name and id of something inside a resource of this name; inside none when it is empty.
    pub(super) fn named(
        &mut self,
        item: &Members,
        place: &str,
        parent: &str,
    ) -> Option<(String, String)> {
        let name = self.name(item, "name", place)?;
        let id = self.id(item, place, &name, parent)?;
        Some((name, id))
    }

    /// The id that is written, or the one that ADC makes of the name and that of what is around.
    pub(super) fn id(
        &mut self,
        item: &Members,
        place: &str,
        name: &str,
        around: &str,
    ) -> Option<String> {
        let made = || match around.is_empty() {
            true => sha1(name),
            false => sha1(&format!("{around}.{name}")),
        };
        let is_id = |id: &&str| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(fits)
        };
        match item.get("id") {
            None => Some(made()),
            // ADC takes the plain hash of a name for an id that it has made itself.
            Some(Value::String(id)) if *id == sha1(name) => Some(made()),
            Some(Value::String(id)) if is_id(&id.as_str()) => Some(id.clone()),
            Some(_) => {
                let text = "expected a text of letters, digits, `-`, `_` and `.`";
                self.out.add(&join(place, "id"), text);
                None
            }
        }
    }

    pub(super) fn known(&mut self, map: &Members, known: &[&str], place: &str) {
        for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
            let mut problem = Problem::new(join(place, name), format!("unknown key `{name}`"));
            problem.hint = Some(match closest(name, known.iter().copied()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("ADC allows: {}", known.join(", ")),
            });
            self.out.push(problem);
        }
    }
}

/// Whether ADC says of such resources that they are its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Managed {
    Yes,
    No,
}

/// Description and labels, which ADC calls and writes in another way.
pub(super) fn described(item: &Members, value: &mut Members, managed: Managed) {
    if let Some(text) = item.get("description") {
        value.insert("desc".to_owned(), text.clone());
    }
    let labels = item.get("labels").filter(|labels| !labels.is_null());
    let mut labels = match labels {
        // For the resource's own check to refuse.
        Some(other) if !other.is_object() => {
            value.insert("labels".to_owned(), other.clone());
            return;
        }
        Some(Value::Object(labels)) => labels.clone(),
        _ if managed == Managed::No => return,
        _ => Map::new(),
    };
    for label in labels.values_mut().filter(|label| !label.is_string()) {
        *label = Value::String(label.to_string());
    }
    if managed == Managed::Yes {
        labels.insert(MANAGED_BY.0.to_owned(), json!(MANAGED_BY.1));
    }
    value.insert("labels".to_owned(), Value::Object(labels));
}

/// Members that are called the same.
pub(super) fn taken(item: &Members, names: &[&str]) -> Members {
    let member = |name: &&str| Some(((*name).to_owned(), item.get(*name)?.clone()));
    names.iter().filter_map(member).collect()
}

pub(super) fn join(place: &str, name: &str) -> String {
    match place.is_empty() {
        true => name.to_owned(),
        false => format!("{place}.{name}"),
    }
}

fn sha1(text: &str) -> String {
    let bytes = openssl::sha::sha1(text.as_bytes());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
