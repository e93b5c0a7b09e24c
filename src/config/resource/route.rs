//! A route: what matches a request, and what happens to it.

use lockgate_plugin::{Problems, network};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;

use super::plugins::{Plugins, plugins};
use super::shared::{Id, Labels, METHODS, Timeout, check_networks, host, hosts, labels};
use super::upstream::Upstream;

/// A route. Source: APISIX's route object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Unique among routes.
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
    /// The path: exact, or a prefix that ends in `*`. Exactly one of `uri` and `uris`.
    #[schemars(length(min = 1, max = 4096))]
    pub uri: Option<String>,
    /// Several paths.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub uris: Option<Vec<String>>,
    /// Decides between routes with the same path: higher first.
    #[serde(default)]
    pub priority: i64,
    /// Methods; any when left out.
    #[serde(default)]
    #[schemars(schema_with = "methods")]
    pub methods: Option<Vec<String>>,
    /// The host, or a wildcard such as `*.a.com`. At most one of `host` and `hosts`.
    #[serde(default)]
    #[schemars(schema_with = "host")]
    pub host: Option<String>,
    /// Several hosts.
    #[serde(default)]
    #[schemars(schema_with = "hosts")]
    pub hosts: Option<Vec<String>>,
    /// The client's address or network. At most one of `remote_addr` and `remote_addrs`.
    pub remote_addr: Option<String>,
    /// Several addresses or networks.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub remote_addrs: Option<Vec<String>>,
    /// Time limits; those of the upstream when left out.
    pub timeout: Option<Timeout>,
    /// Conditions over variables.
    pub vars: Option<Vec<Value>>,
    /// Lua source in APISIX; refused here.
    pub filter_func: Option<String>,
    /// Lua source in APISIX; refused here.
    pub script: Option<String>,
    /// A leftover of APISIX's old dashboard, without effect.
    pub script_id: Option<Id>,
    /// Plugins.
    #[serde(default)]
    #[schemars(schema_with = "plugins")]
    pub plugins: Option<Plugins>,
    /// Plugins from a plugin_config.
    pub plugin_config_id: Option<Id>,
    /// The upstream, in place.
    pub upstream: Option<Box<Upstream>>,
    /// The service it belongs to.
    pub service_id: Option<Id>,
    /// The upstream, by id.
    pub upstream_id: Option<Id>,
    /// Whether connections may be upgraded to WebSocket.
    pub enable_websocket: Option<bool>,
    /// 1: in use, 0: ignored.
    #[serde(default = "one")]
    #[schemars(extend("enum" = [1, 0]))]
    pub status: u8,
}

/// The schema of a list of methods.
fn methods(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["array", "null"], "uniqueItems": true,
        "items": {"enum": METHODS}
    })
}

fn one() -> u8 {
    1
}

/// A path that can match: requests have a `/` in front.
fn check_uri(path: &str, uri: &str, out: &mut Problems) {
    if !uri.starts_with('/') && !uri.starts_with('*') {
        out.add(path, format!("a path starts with `/`, found `{uri}`"));
    }
}

/// What to use instead of Lua.
const NO_LUA: &str = "Lua source is not run by this version: match with `vars` (it knows headers, \
                      arguments, cookies and body fields), or use plugins";

impl Route {
    /// Rules between fields.
    pub fn check(&self, out: &mut Problems) {
        match (&self.uri, &self.uris) {
            (None, None) => out.add("", "property \"uri\" is required (or \"uris\")"),
            (Some(_), Some(_)) => out.add("uris", "only one of uri or uris is allowed"),
            _ => {}
        }
        for (at, uri) in self.uris.iter().flatten().enumerate() {
            check_uri(&format!("uris[{at}]"), uri, out);
        }
        if let Some(uri) = &self.uri {
            check_uri("uri", uri, out);
        }
        if self.host.is_some() && self.hosts.is_some() {
            out.add("hosts", "only one of host or hosts is allowed");
        }
        if self.remote_addr.is_some() && self.remote_addrs.is_some() {
            out.add(
                "remote_addrs",
                "only one of remote_addr or remote_addrs is allowed",
            );
        }
        if let Some(addr) = &self.remote_addr
            && network(addr).is_none()
        {
            out.add("remote_addr", format!("invalid ip address: {addr}"));
        }
        check_networks("remote_addrs", self.remote_addrs.iter().flatten(), out);
        if self.filter_func.is_some() {
            out.add("filter_func", NO_LUA);
        }
        if self.script.is_some() {
            out.add("script", NO_LUA);
        }
        let acts = self.plugins.is_some()
            || self.upstream.is_some()
            || self.upstream_id.is_some()
            || self.service_id.is_some()
            || self.plugin_config_id.is_some();
        if !acts && self.script.is_none() {
            out.add(
                "",
                "one of plugins, upstream, upstream_id or service_id is required",
            );
        }
        if let Some(upstream) = &self.upstream {
            upstream.check(&mut out.at("upstream"));
        }
    }

    /// Its paths.
    pub fn all_uris(&self) -> impl Iterator<Item = &String> {
        self.uri.iter().chain(self.uris.iter().flatten())
    }

    /// Its hosts.
    pub fn all_hosts(&self) -> impl Iterator<Item = &String> {
        self.host.iter().chain(self.hosts.iter().flatten())
    }
}
