//! An upstream: nodes, and how they are used.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::{Pattern, Problem, Problems};
use openssl::pkey::PKey;
use openssl::x509::X509;
use pingora_core::utils::tls::CertKey;
use rustc_hash::FxBuildHasher;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::checks::Checks;
use super::nodes::Nodes;
use super::shared::{Id, Labels, Timeout, host, labels};
use crate::upstream::{Balance, ClientCert, Keepalive, PassHost, Scheme, Timeouts, UpstreamSpec};

/// An upstream. Source: APISIX's upstream object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Unique among upstreams.
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
    /// `{"HOST:PORT": WEIGHT}` or a list of nodes.
    pub nodes: Option<Nodes>,
    /// Further tries after the first; one less than there are nodes when left out.
    pub retries: Option<u32>,
    /// Budget for all tries together in seconds; 0 is unlimited.
    #[schemars(range(min = 0))]
    pub retry_timeout: Option<f64>,
    /// Time limits in seconds; 60 each when left out.
    pub timeout: Option<Timeout>,
    /// The certificate shown to nodes.
    pub tls: Option<Tls>,
    /// Idle connections.
    pub keepalive_pool: Option<KeepalivePool>,
    /// `roundrobin`, `chash`, `ewma` or `least_conn`.
    #[serde(default = "roundrobin")]
    pub r#type: String,
    /// What `chash` hashes.
    #[serde(default)]
    #[schemars(schema_with = "hash_on")]
    pub hash_on: Option<String>,
    /// The name of what `chash` hashes.
    pub key: Option<String>,
    /// Health checks.
    pub checks: Option<Checks>,
    /// The protocol.
    #[serde(default = "http")]
    #[schemars(extend("enum" = ["grpc", "grpcs", "http", "https", "tcp", "tls", "udp", "kafka"]))]
    pub scheme: String,
    /// How `service_name` is looked up.
    pub discovery_type: Option<String>,
    /// A name that discovery turns into nodes.
    #[schemars(length(min = 1, max = 256))]
    pub service_name: Option<String>,
    /// Arguments of the discovery.
    #[schemars(schema_with = "discovery_args")]
    #[serde(default)]
    pub discovery_args: Option<serde_json::Value>,
    /// Which `Host` the nodes see.
    #[serde(default = "pass")]
    #[schemars(extend("enum" = ["pass", "node", "rewrite"]))]
    pub pass_host: String,
    /// The `Host` for `pass_host: rewrite`.
    #[serde(default)]
    #[schemars(schema_with = "host")]
    pub upstream_host: Option<String>,
}

fn roundrobin() -> String {
    "roundrobin".into()
}
fn http() -> String {
    "http".into()
}
fn pass() -> String {
    "pass".into()
}

fn discovery_args(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "properties": {"namespace_id": {"type": "string"}, "group_name": {"type": "string"}}
    })
}

fn hash_on(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": ["vars", "header", "cookie", "consumer", "vars_combinations", null]})
}

/// The certificate shown to nodes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Tls {
    /// An `ssl` resource of type client.
    pub client_cert_id: Option<Id>,
    /// PEM text.
    pub client_cert: Option<String>,
    /// PEM text.
    pub client_key: Option<String>,
    /// Documented by APISIX for kafka only.
    pub verify: Option<bool>,
}

/// Idle connections to an upstream.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub struct KeepalivePool {
    /// How many; one pool serves all upstreams here, so this is not a limit of its own.
    #[schemars(range(min = 1))]
    pub size: Option<u32>,
    /// Seconds an idle connection is kept; 0 keeps none.
    #[schemars(range(min = 0))]
    pub idle_timeout: Option<f64>,
    /// Requests on one connection.
    #[schemars(range(min = 1))]
    pub requests: Option<u32>,
}

/// What `hash_on: vars` may name. Source: APISIX, its `A-z` included: it is in its answers.
const VARS_KEY: &str = concat!(
    "^((uri|server_name|server_addr|request_uri|remote_port|remote_addr|query_string|host|",
    "hostname|mqtt_client_id)|arg_[0-9a-zA-z_-]+)$"
);
/// What `hash_on: header` and `cookie` may name.
const NAME_KEY: &str = "^[a-zA-Z0-9-_]+$";

impl Upstream {
    /// Rules between fields.
    pub fn check(&self, out: &mut Problems) {
        match (&self.nodes, &self.service_name) {
            (None, None) => out.add(
                "",
                "property \"nodes\" is required (or \"service_name\" with \"discovery_type\")",
            ),
            (Some(_), Some(_)) => out.add(
                "service_name",
                "only one of nodes or service_name is allowed",
            ),
            _ => {}
        }
        if self.service_name.is_some() && self.discovery_type.is_none() {
            out.add(
                "",
                "property \"discovery_type\" is required when \"service_name\" is set",
            );
        }
        if self.pass_host == "rewrite" && self.upstream_host.as_ref().is_none_or(String::is_empty) {
            out.add(
                "upstream_host",
                "`upstream_host` can't be empty when `pass_host` is `rewrite`",
            );
        }
        if self.r#type == "chash" {
            self.check_key(out);
        }
        if self.scheme().is_none() {
            out.add(
                "scheme",
                format!(
                    "scheme {} is not served by this version; allowed: http, https, grpc, grpcs",
                    self.scheme
                ),
            );
        }
        if let Some(tls) = &self.tls {
            self.check_tls(tls, &mut out.at("tls"));
        }
        if let Some(checks) = &self.checks {
            checks.check(&mut out.at("checks"));
        }
        if let Some(nodes) = &self.nodes {
            nodes.check(&mut out.at("nodes"));
        }
    }

    /// What `chash` hashes has to exist.
    fn check_key(&self, out: &mut Problems) {
        let (pattern, allowed) = match self.hash_on.as_deref().unwrap_or("vars") {
            "vars" => (VARS_KEY, "a variable such as remote_addr, uri or arg_NAME"),
            "header" | "cookie" => (NAME_KEY, "letters, digits, `-` and `_`"),
            "vars_combinations" => ("", ""),
            // The consumer's name needs no key.
            _ => return,
        };
        let Some(key) = &self.key else {
            out.add("key", "missing key");
            return;
        };
        let fits = Pattern::new(pattern).is_ok_and(|pattern| pattern.is_match(key));
        if !fits {
            let text = format!("failed to match pattern \"{pattern}\" with \"{key}\"");
            out.push(Problem::new("key", text).hint(format!("allowed: {allowed}")));
        }
    }

    fn check_tls(&self, tls: &Tls, out: &mut Problems) {
        match (&tls.client_cert_id, &tls.client_cert, &tls.client_key) {
            // Whether it is there shows when everything is.
            (Some(_), None, None) => {}
            (Some(_), ..) => out.add(
                "client_cert_id",
                "only one of client_cert_id or client_cert is allowed",
            ),
            (None, Some(cert), Some(key)) => {
                if let Err(text) = client_cert(cert, key) {
                    out.add("client_cert", text);
                }
            }
            (None, None, None) => {}
            _ => out.add("", "client_cert and client_key belong together"),
        }
    }

    /// What is accepted but does something else than in APISIX.
    pub fn warnings(&self, out: &mut Problems) {
        if matches!(self.r#type.as_str(), "chash" | "ewma") {
            out.add(
                "type",
                format!("{} is balanced as roundrobin by this version", self.r#type),
            );
        } else if !matches!(self.r#type.as_str(), "roundrobin" | "least_conn") {
            out.add(
                "type",
                format!(
                    "balancer {} is not known; balanced as roundrobin",
                    self.r#type
                ),
            );
        }
        if self.checks.is_some() {
            out.add(
                "checks",
                "health checks are not run by this version: every node counts as healthy",
            );
        }
        if self.service_name.is_some() {
            out.add(
                "service_name",
                "service discovery is not run by this version: the upstream has no nodes",
            );
        }
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(match self.scheme.as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "grpc" => Scheme::Grpc,
            "grpcs" => Scheme::Grpcs,
            _ => return None,
        })
    }

    /// Ready for a handle. The upstream was checked before; what does not parse is left out.
    pub fn spec(&self) -> UpstreamSpec {
        let scheme = self.scheme().unwrap_or_default();
        let tls = self.tls.as_ref();
        let pair = tls.and_then(|tls| Some((tls.client_cert.as_ref()?, tls.client_key.as_ref()?)));
        UpstreamSpec {
            scheme,
            nodes: self
                .nodes
                .as_ref()
                .map(|nodes| nodes.specs(scheme.port()))
                .unwrap_or_default(),
            balance: if self.r#type == "least_conn" {
                Balance::LeastConn
            } else {
                Balance::RoundRobin
            },
            retries: self.retries,
            retry_timeout: self
                .retry_timeout
                .filter(|seconds| *seconds > 0.0)
                .map(|seconds| Duration::from_secs_f64(seconds.min(86_400.0))),
            timeouts: self
                .timeout
                .map_or_else(Timeouts::default, |timeout| timeout.limits()),
            pass_host: match (self.pass_host.as_str(), &self.upstream_host) {
                ("node", _) => PassHost::Node,
                ("rewrite", Some(host)) => PassHost::Rewrite(host.as_str().into()),
                _ => PassHost::Pass,
            },
            keepalive: match self.keepalive_pool.and_then(|pool| pool.idle_timeout) {
                Some(seconds) => Keepalive {
                    idle: Duration::from_secs_f64(seconds.min(86_400.0)),
                },
                None => Keepalive::default(),
            },
            client_cert_id: tls
                .and_then(|tls| tls.client_cert_id.as_ref())
                .map(|id| Arc::clone(&id.0)),
            client_cert: pair.and_then(|(cert, key)| client_cert(cert, key).ok()),
        }
    }
}

/// A certificate to be shown to nodes.
pub(super) fn client_cert(cert: &str, key: &str) -> Result<ClientCert, String> {
    let chain =
        X509::stack_from_pem(cert.as_bytes()).map_err(|e| format!("failed to parse cert: {e}"))?;
    if chain.is_empty() {
        return Err("failed to parse cert: no certificate in the text".to_owned());
    }
    let parsed = PKey::private_key_from_pem(key.as_bytes())
        .map_err(|e| format!("failed to parse key: {e}"))?;
    let mut hasher = FxBuildHasher.build_hasher();
    (cert, key).hash(&mut hasher);
    Ok(ClientCert {
        fingerprint: std::hash::Hasher::finish(&hasher),
        pair: Arc::new(CertKey::new(chain, parsed)),
    })
}

#[cfg(test)]
mod tests;
