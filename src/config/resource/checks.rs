//! Health checks of an upstream, as the user writes them. Source: APISIX's `checks` object.

use lockgate_plugin::Problems;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// Health checks. Passive checks need active ones beside them: who takes a node out has to be able
/// to bring it back.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
pub struct Checks {
    /// Probes.
    pub active: Option<Active>,
    /// What the answers to clients say about a node.
    pub passive: Option<Passive>,
}

/// Probes.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Active {
    /// `http`, `https` or `tcp`.
    #[schemars(extend("enum" = ["http", "https", "tcp"]))]
    pub r#type: String,
    /// Seconds until a probe counts as failed.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub timeout: f64,
    /// Probes at the same time.
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// The `Host` of probes; the node's own when left out.
    #[schemars(schema_with = "super::shared::host")]
    pub host: Option<String>,
    /// The port of probes; the node's own when left out.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The method of probes.
    #[schemars(schema_with = "method")]
    pub http_method: String,
    /// The path of probes.
    pub http_path: String,
    /// The body of probes.
    pub http_req_body: String,
    /// Whether the node's certificate has to be valid.
    pub https_verify_certificate: bool,
    /// Headers of probes, each as `Name: value`.
    #[schemars(length(min = 1))]
    pub req_headers: Option<Vec<String>>,
    /// What makes a node healthy.
    pub healthy: Option<ActiveHealthy>,
    /// What makes a node unhealthy.
    pub unhealthy: Option<ActiveUnhealthy>,
}

/// What makes a probed node healthy.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ActiveHealthy {
    /// Seconds between probes of a healthy node.
    #[schemars(range(min = 1))]
    pub interval: u32,
    /// Statuses of a good answer.
    #[schemars(schema_with = "statuses")]
    pub http_statuses: Vec<u16>,
    /// Good answers in a row.
    #[schemars(range(min = 1, max = 254))]
    pub successes: u8,
}

/// What makes a probed node unhealthy.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ActiveUnhealthy {
    /// Seconds between probes of an unhealthy node.
    #[schemars(range(min = 1))]
    pub interval: u32,
    /// Statuses of a bad answer.
    #[schemars(schema_with = "statuses")]
    pub http_statuses: Vec<u16>,
    /// Bad answers in a row.
    #[schemars(range(min = 1, max = 254))]
    pub http_failures: u8,
    /// Failed connections in a row.
    #[schemars(range(min = 1, max = 254))]
    pub tcp_failures: u8,
    /// Probes without an answer in time, in a row.
    #[schemars(range(min = 1, max = 254))]
    pub timeouts: u8,
}

/// What the answers to clients say about a node.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Passive {
    /// `http`, `https` or `tcp`.
    #[schemars(extend("enum" = ["http", "https", "tcp"]))]
    pub r#type: String,
    /// What makes a node healthy.
    pub healthy: Option<PassiveHealthy>,
    /// What makes a node unhealthy.
    pub unhealthy: Option<PassiveUnhealthy>,
}

/// What makes a node in use healthy.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PassiveHealthy {
    /// Statuses of a good answer.
    #[schemars(schema_with = "statuses")]
    pub http_statuses: Vec<u16>,
    /// Good answers in a row; 0 looks at none.
    #[schemars(range(max = 254))]
    pub successes: u8,
}

/// What makes a node in use unhealthy.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PassiveUnhealthy {
    /// Statuses of a bad answer.
    #[schemars(schema_with = "statuses")]
    pub http_statuses: Vec<u16>,
    /// Bad answers in a row; 0 looks at none.
    #[schemars(range(max = 254))]
    pub http_failures: u8,
    /// Failed connections in a row; 0 looks at none.
    #[schemars(range(max = 254))]
    pub tcp_failures: u8,
    /// Requests without an answer in time, in a row; 0 looks at none.
    #[schemars(range(max = 254))]
    pub timeouts: u8,
}

impl Checks {
    /// Rules between fields.
    pub fn check(&self, out: &mut Problems) {
        match (&self.active, &self.passive) {
            (None, Some(_)) => out.add(
                "",
                "property \"active\" is required when \"passive\" is set",
            ),
            (None, None) => out.add("", "property \"active\" is required"),
            _ => {}
        }
        let headers = self
            .active
            .iter()
            .flat_map(|active| active.req_headers.iter().flatten());
        for (at, header) in headers.enumerate() {
            if header
                .split_once(':')
                .is_none_or(|(name, _)| name.trim().is_empty())
            {
                out.add(
                    &format!("active.req_headers[{at}]"),
                    "a header is written as `Name: value`",
                );
            }
        }
    }
}

impl Default for Active {
    fn default() -> Active {
        Active {
            r#type: "http".to_owned(),
            timeout: 1.0,
            concurrency: 10,
            host: None,
            port: None,
            http_method: "GET".to_owned(),
            http_path: "/".to_owned(),
            http_req_body: String::new(),
            https_verify_certificate: true,
            req_headers: None,
            healthy: None,
            unhealthy: None,
        }
    }
}

impl Default for ActiveHealthy {
    fn default() -> ActiveHealthy {
        ActiveHealthy {
            interval: 1,
            http_statuses: vec![200, 302],
            successes: 2,
        }
    }
}

impl Default for ActiveUnhealthy {
    fn default() -> ActiveUnhealthy {
        ActiveUnhealthy {
            interval: 1,
            http_statuses: vec![429, 404, 500, 501, 502, 503, 504, 505],
            http_failures: 5,
            tcp_failures: 2,
            timeouts: 3,
        }
    }
}

impl Default for Passive {
    fn default() -> Passive {
        Passive {
            r#type: "http".to_owned(),
            healthy: None,
            unhealthy: None,
        }
    }
}

impl Default for PassiveHealthy {
    fn default() -> PassiveHealthy {
        let statuses = (200..=208).chain([226]).chain(300..=308);
        PassiveHealthy {
            http_statuses: statuses.collect(),
            successes: 5,
        }
    }
}

impl Default for PassiveUnhealthy {
    fn default() -> PassiveUnhealthy {
        PassiveUnhealthy {
            http_statuses: vec![429, 500, 503],
            http_failures: 5,
            tcp_failures: 2,
            timeouts: 7,
        }
    }
}

fn method(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": super::shared::METHODS})
}

fn statuses(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "uniqueItems": true,
        "items": {"type": "integer", "minimum": 200, "maximum": 599}
    })
}
