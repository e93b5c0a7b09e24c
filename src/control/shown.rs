//! Resources as they are in use: completed with their defaults, in one form, without secrets.

use lockgate_plugin::schema;
use serde_json::{Map, Value, json};

use crate::config::catalogue::{Catalogue, Found};
use crate::config::decode::schema_of;
use crate::config::keyring::hide;
use crate::config::kind::{Key, Kind};
use crate::config::resource::Nodes;

/// A resource with what its schema and those of its plugins say about what is left out.
///
/// Whoever is on the machine sees it without a key, so secrets are not in it, encrypted or not.
pub(super) fn complete(key: &Key, mut value: Value, catalogue: &Catalogue) -> Value {
    hide(key, &mut value);
    if let Some(schema) = schema_of(key) {
        schema::complete(&schema, &mut value);
    }
    let Some(map) = value.as_object_mut() else {
        return value;
    };
    map.insert("id".to_owned(), json!(key.id));
    match key.kind {
        Kind::Upstream => upstream(map),
        _ => {
            if let Some(Value::Object(inner)) = map.get_mut("upstream") {
                upstream(inner);
            }
        }
    }
    if let Some(Value::Object(plugins)) = map.get_mut("plugins") {
        plugins
            .iter_mut()
            .for_each(|(name, conf)| plugin(name, conf, catalogue));
    }
    value
}

fn upstream(map: &mut Map<String, Value>) {
    map.entry("hash_on").or_insert(json!("vars"));
    let nodes = map.get("nodes").filter(|nodes| nodes.is_object());
    let nodes = nodes.and_then(|nodes| serde_json::from_value::<Nodes>(nodes.clone()).ok());
    if let Some(nodes) = nodes {
        map.insert("nodes".to_owned(), nodes.listed());
    }
    if let Some(Value::Object(tls)) = map.get_mut("tls") {
        tls.shift_remove("client_key");
    }
}

fn plugin(name: &str, conf: &mut Value, catalogue: &Catalogue) {
    if let Found::Ready(def) = catalogue.find(name) {
        schema::complete(&(def.schema)(), conf);
    }
    if let Some(conf) = conf.as_object_mut() {
        conf.entry("_meta").or_insert(json!({}));
    }
}
