//! Consumers, their further credentials, and their groups.

use schemars::JsonSchema;
use serde::Deserialize;

use super::plugins::{Plugins, needed_plugins, plugins};
use super::shared::{Id, Labels, labels};

/// A consumer. Source: APISIX's consumer object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    /// Ignored: the name is the id.
    pub id: Option<Id>,
    /// Unique among consumers.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[a-zA-Z0-9_\-]+$"))]
    pub username: String,
    /// A description for people.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels; `custom_id` goes upstream as `X-Consumer-Custom-ID`.
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
    /// The group it belongs to.
    pub group_id: Option<Id>,
    /// Credentials of authentication plugins; others run on the consumer's requests.
    #[serde(default)]
    #[schemars(schema_with = "plugins")]
    pub plugins: Option<Plugins>,
}

/// A further credential. Its id is `CONSUMER/credentials/ID`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The whole id in a file, the last part of it in the Admin API.
    #[schemars(
        length(min = 1, max = 384),
        regex(pattern = r"^([a-zA-Z0-9_-]+/credentials/)?[a-zA-Z0-9-_.]{1,64}$")
    )]
    pub id: Option<String>,
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
    /// One authentication plugin.
    #[serde(default)]
    #[schemars(schema_with = "plugins")]
    pub plugins: Option<Plugins>,
}

/// A group of consumers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsumerGroup {
    /// Unique among groups.
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
    /// Plugins for the requests of its consumers.
    #[schemars(schema_with = "needed_plugins")]
    pub plugins: Plugins,
}
