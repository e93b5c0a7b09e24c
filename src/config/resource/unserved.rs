//! Resources that are kept and checked, and that nothing here runs yet: protobuf definitions,
//! secret managers, TCP and UDP routes.

use lockgate_plugin::{Problem, Problems, network};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::plugins::{Plugins, plugins};
use super::shared::{Id, Labels, host, labels};
use super::upstream::Upstream;

/// A protobuf definition. Source: APISIX's proto object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proto {
    /// Unique among definitions.
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
    /// The definition, or a set of descriptors in base64.
    #[schemars(length(min = 1, max = 1_048_576))]
    pub content: String,
}

/// A TCP or UDP route. Source: APISIX's stream_route object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamRoute {
    /// Unique among stream routes.
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
    /// The client's address or network.
    pub remote_addr: Option<String>,
    /// The address the client connected to.
    pub server_addr: Option<String>,
    /// The port the client connected to.
    #[schemars(range(min = 1, max = 65_535))]
    pub server_port: Option<u32>,
    /// The server name of TLS.
    #[serde(default)]
    #[schemars(schema_with = "host")]
    pub sni: Option<String>,
    /// The upstream, in place.
    pub upstream: Option<Box<Upstream>>,
    /// The upstream, by id.
    pub upstream_id: Option<Id>,
    /// The service it belongs to.
    pub service_id: Option<Id>,
    /// Plugins for streams.
    #[serde(default)]
    #[schemars(schema_with = "plugins")]
    pub plugins: Option<Plugins>,
    /// A protocol spoken inside.
    pub protocol: Option<Protocol>,
}

/// A protocol inside a stream.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Protocol {
    /// `redis` or `dubbo`.
    pub name: String,
    /// The stream route above this one.
    pub superior_id: Option<Id>,
    /// Settings of the protocol.
    pub conf: Option<serde_json::Map<String, Value>>,
    /// Where its calls are logged.
    pub logger: Option<Vec<serde_json::Map<String, Value>>>,
}

/// The stream plugins of APISIX 3.18.
const STREAM_PLUGINS: [&str; 6] = [
    "ip-restriction",
    "limit-conn",
    "mqtt-proxy",
    "prometheus",
    "syslog",
    "traffic-split",
];

impl StreamRoute {
    /// Rules between fields.
    pub fn check(&self, out: &mut Problems) {
        for (path, addr) in [
            ("remote_addr", &self.remote_addr),
            ("server_addr", &self.server_addr),
        ] {
            if let Some(addr) = addr.as_ref().filter(|addr| network(addr).is_none()) {
                out.add(path, format!("invalid ip address: {addr}"));
            }
        }
        for name in self.plugins.iter().flat_map(|plugins| plugins.keys()) {
            if !STREAM_PLUGINS.contains(&name.as_str()) {
                out.at("plugins")
                    .add(name, format!("unknown plugin [{name}]"));
            }
        }
        if let Some(protocol) = &self.protocol
            && !matches!(protocol.name.as_str(), "redis" | "dubbo")
        {
            let text = format!("unknown protocol [{}]", protocol.name);
            out.at("protocol").add("name", text);
        }
    }
}

/// HashiCorp Vault.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Vault {
    /// Its address.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    pub uri: String,
    /// The path of the engine.
    pub prefix: String,
    /// The token.
    pub token: String,
    /// The namespace.
    pub namespace: Option<String>,
}

/// AWS Secrets Manager.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Aws {
    /// The id of the key.
    pub access_key_id: String,
    /// The key.
    pub secret_access_key: String,
    /// A token for a session.
    pub session_token: Option<String>,
    /// `us-east-1` when left out.
    pub region: Option<String>,
    /// Another address than that of the region.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    pub endpoint_url: Option<String>,
}

/// Google Cloud Secret Manager.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Gcp {
    /// The account, in place.
    pub auth_config: Option<GcpAccount>,
    /// A file with the account.
    pub auth_file: Option<String>,
    /// Whether certificates are verified.
    pub ssl_verify: Option<bool>,
}

/// An account of Google Cloud.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct GcpAccount {
    /// Who signs.
    pub client_email: String,
    /// The key, PEM.
    pub private_key: String,
    /// The project.
    pub project_id: String,
    /// Where tokens are given.
    pub token_uri: Option<String>,
    /// What the token is for.
    pub scope: Option<Vec<String>>,
    /// Where secrets are.
    pub entries_uri: Option<String>,
}

impl Gcp {
    /// Rules between fields.
    pub fn check(&self, out: &mut Problems) {
        out.exactly_one(&[
            ("auth_config", self.auth_config.is_some()),
            ("auth_file", self.auth_file.is_some()),
        ]);
    }
}

/// A secret whose id (`vault/1`) names no manager that there is.
pub(crate) fn unknown_manager(id: &str) -> Problem {
    let manager = id.split('/').next().unwrap_or_default();
    Problem::new("id", format!("invalid secret manager: {manager}"))
        .hint("the id of a secret is MANAGER/ID; managers are vault, aws, gcp")
}
