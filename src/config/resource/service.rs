//! A service: what several routes have in common.

use lockgate_plugin::Problems;
use schemars::JsonSchema;
use serde::Deserialize;

use super::plugins::{Plugins, plugins};
use super::shared::{Id, Labels, hosts, labels};
use super::upstream::Upstream;

/// A service. Source: APISIX's service object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Unique among services.
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
    /// Plugins.
    #[serde(default)]
    #[schemars(schema_with = "plugins")]
    pub plugins: Option<Plugins>,
    /// The upstream, in place.
    pub upstream: Option<Box<Upstream>>,
    /// The upstream, by id.
    pub upstream_id: Option<Id>,
    /// Lua source in APISIX; refused here.
    pub script: Option<String>,
    /// Whether connections may be upgraded to WebSocket, for routes that do not say.
    pub enable_websocket: Option<bool>,
    /// Hosts, for routes that name none.
    #[serde(default)]
    #[schemars(schema_with = "hosts")]
    pub hosts: Option<Vec<String>>,
}

impl Service {
    /// Rules between fields.
    pub fn check(&self, out: &mut Problems) {
        if self.script.is_some() {
            out.add(
                "script",
                "Lua source is not run by this version: use plugins",
            );
        }
        if let Some(upstream) = &self.upstream {
            upstream.check(&mut out.at("upstream"));
        }
    }
}
