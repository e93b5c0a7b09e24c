//! Plugin configurations by name, and the resources that hold nothing else.

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;

use super::shared::{Id, Labels, labels};

/// Plugin configurations by plugin name. Each is checked against its plugin's own schema.
pub type Plugins = IndexMap<String, Value>;

/// The schema of a plugins object, as far as it is known without the plugins.
pub(super) fn plugins(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["object", "null"]})
}

/// The same where it has to be there.
pub(super) fn needed_plugins(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

/// Plugins that routes share.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginConfig {
    /// Unique among plugin configs.
    pub id: Option<Id>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// A description for people.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    #[serde(default)]
    #[schemars(schema_with = "labels")]
    pub labels: Option<Labels>,
    /// Seconds since 1970.
    pub create_time: Option<u64>,
    /// Seconds since 1970.
    pub update_time: Option<u64>,
    /// The version clients of APISIX's standalone mode attach.
    #[serde(rename = "modifiedIndex")]
    pub modified_index: Option<u64>,
    /// The plugins.
    #[schemars(schema_with = "needed_plugins")]
    pub plugins: Plugins,
}

/// Plugins that run on every request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GlobalRule {
    /// Unique among global rules.
    pub id: Option<Id>,
    /// Seconds since 1970.
    pub create_time: Option<u64>,
    /// Seconds since 1970.
    pub update_time: Option<u64>,
    /// The version clients of APISIX's standalone mode attach.
    #[serde(rename = "modifiedIndex")]
    pub modified_index: Option<u64>,
    /// The plugins.
    #[schemars(schema_with = "needed_plugins")]
    pub plugins: Plugins,
}
