//! A certificate for server names.

use lockgate_plugin::Problems;
use lockgate_plugin::schema::is_secret_ref;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::shared::{Id, Labels, host, hosts, labels};
use crate::tls::{CertPair, SniEntry};
use crate::upstream::ClientCert;

/// A certificate. Source: APISIX's ssl object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ssl {
    /// Unique among certificates.
    pub id: Option<Id>,
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
    /// `server`: shown to clients. `client`: shown to upstreams.
    #[serde(default = "server")]
    #[schemars(extend("enum" = ["server", "client"]))]
    pub r#type: String,
    /// PEM text: the certificate and its chain.
    #[schemars(length(min = 128, max = 65536))]
    pub cert: String,
    /// PEM text: the private key.
    #[schemars(length(min = 64, max = 65536))]
    pub key: String,
    /// Further certificates of other key types.
    #[schemars(inner(length(min = 128, max = 65536)))]
    pub certs: Option<Vec<String>>,
    /// Their keys, in the same order.
    #[schemars(inner(length(min = 64, max = 65536)))]
    pub keys: Option<Vec<String>>,
    /// The server name, or a wildcard of one label.
    #[serde(default)]
    #[schemars(schema_with = "host")]
    pub sni: Option<String>,
    /// Several server names.
    #[serde(default)]
    #[schemars(schema_with = "hosts")]
    pub snis: Option<Vec<String>>,
    /// Client certificates are not checked by this version.
    pub client: Option<ClientCheck>,
    /// 1: in use, 0: ignored.
    #[serde(default = "one")]
    #[schemars(extend("enum" = [1, 0]))]
    pub status: u8,
    /// Versions allowed for these names.
    #[serde(default)]
    #[schemars(schema_with = "protocols")]
    pub ssl_protocols: Option<Vec<String>>,
}

/// How clients' certificates are checked.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ClientCheck {
    /// PEM text: who signs the certificates of clients.
    #[schemars(length(min = 128, max = 65536))]
    pub ca: String,
    /// Longest chain.
    pub depth: Option<u32>,
    /// Paths that need no certificate.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub skip_mtls_uri_regex: Option<Vec<String>>,
}

/// The schema of a list of TLS versions.
fn protocols(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["array", "null"], "maxItems": 3, "uniqueItems": true,
        "items": {"enum": ["TLSv1.1", "TLSv1.2", "TLSv1.3"]}
    })
}

/// Reports a pair that cannot be served, at the half that is to blame.
fn check_pair(
    (cert, key): (&String, &String),
    (cert_path, key_path): (&str, &str),
    prefix: &str,
    out: &mut Problems,
) {
    let mut known = true;
    for (text, path) in [(cert, cert_path), (key, key_path)] {
        if is_secret_ref(text) {
            known = false;
            out.add(
                path,
                format!(
                    "{prefix}references are not resolved here by this version: put the PEM text"
                ),
            );
        }
    }
    if known && let Err(text) = CertPair::parse(cert, key) {
        let path = if text.starts_with("failed to parse cert") {
            cert_path
        } else {
            key_path
        };
        out.add(path, format!("{prefix}{text}"));
    }
}

fn server() -> String {
    "server".to_owned()
}

fn one() -> u8 {
    1
}

impl Ssl {
    /// Rules between fields; parses the certificates.
    pub fn check(&self, out: &mut Problems) {
        match (self.is_server(), &self.sni, &self.snis) {
            (true, None, None) => out.add("", "property \"sni\" is required (or \"snis\")"),
            (true, Some(_), Some(_)) => out.add("snis", "only one of sni or snis is allowed"),
            (false, None, None) | (true, ..) => {}
            (false, ..) => out.add("sni", "a client certificate has no server names"),
        }
        let (certs, keys) = (
            self.certs.iter().flatten().count(),
            self.keys.iter().flatten().count(),
        );
        if certs != keys {
            out.add(
                "keys",
                format!("mismatched number of certs and keys: {certs} and {keys}"),
            );
        }
        if self.client.is_some() {
            out.add(
                "client",
                "client certificates are not checked by this version: serving the name without \
                 the check would open it to everyone",
            );
        }
        check_pair((&self.cert, &self.key), ("cert", "key"), "", out);
        for (at, pair) in self.further().enumerate() {
            let paths = (format!("certs[{at}]"), format!("keys[{at}]"));
            let prefix = format!("failed to handle cert-key pair[{}]: ", at + 1);
            check_pair(pair, (&paths.0, &paths.1), &prefix, out);
        }
    }

    fn further(&self) -> impl Iterator<Item = (&String, &String)> {
        self.certs.iter().flatten().zip(self.keys.iter().flatten())
    }

    /// Whether it is shown to clients.
    pub fn is_server(&self) -> bool {
        self.r#type == "server"
    }

    /// What is shown to nodes; `None` for what is shown to clients, or not in use.
    pub fn client_cert(&self) -> Option<ClientCert> {
        let is_used = !self.is_server() && self.status != 0;
        let cert = || super::upstream::client_cert(&self.cert, &self.key).ok();
        is_used.then(cert)?
    }

    /// Its server names.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.sni.iter().chain(self.snis.iter().flatten())
    }

    /// Ready for handshakes. Everything has been parsed before, so nothing is left out.
    pub fn entry(&self, id: &str) -> SniEntry {
        let first = CertPair::parse(&self.cert, &self.key).ok();
        let further = self
            .further()
            .filter_map(|(cert, key)| CertPair::parse(cert, key).ok());
        SniEntry {
            id: id.into(),
            pairs: first.into_iter().chain(further).collect(),
            protocols: self.ssl_protocols.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
