//! Schemas of everything, as `/v1/schema` has them.

use serde_json::{Map, Value, json};

use crate::admin::plugin_entry;
use crate::config::catalogue::Catalogue;
use crate::config::decode::schema_of;
use crate::config::kind::{Key, Kind};

/// Kinds by the name of their schema.
const KINDS: [(&str, Kind); 10] = [
    ("consumer", Kind::Consumer),
    ("consumer_group", Kind::ConsumerGroup),
    ("global_rule", Kind::GlobalRule),
    ("plugin_config", Kind::PluginConfig),
    ("proto", Kind::Proto),
    ("route", Kind::Route),
    ("service", Kind::Service),
    ("ssl", Kind::Ssl),
    ("stream_route", Kind::StreamRoute),
    ("upstream", Kind::Upstream),
];

/// Schemas of resources and of the plugins that may be used.
pub(super) fn all(catalogue: &Catalogue) -> Value {
    let mut main = Map::new();
    for (name, kind) in KINDS {
        if let Some(schema) = schema_of(&Key::new(kind, "")) {
            main.insert(name.to_owned(), (*schema).clone());
        }
    }
    let plugins = json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1}, "stream": {"type": "boolean"}},
        },
    });
    main.insert("plugins".to_owned(), plugins);
    for name in ["upstream_hash_header_schema", "upstream_hash_vars_schema"] {
        main.insert(name.to_owned(), json!({"type": "string"}));
    }
    let plugins = catalogue
        .ready()
        .map(|def| (def.name.to_owned(), plugin_entry(def)));
    json!({
        "main": main,
        "plugins": plugins.collect::<Map<String, Value>>(),
        "stream_plugins": {},
    })
}
