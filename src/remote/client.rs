//! One request to a gateway's Admin API.

use std::path::Path;
use std::time::Duration;

use lockgate_plugin::Problems;
use pingora_core::connectors::http::v1::Connector;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;
use serde_json::Value;

use super::Gateway;
use crate::document::MAX_TEXT;
use crate::gateway;
use crate::settings::Settings;

/// For a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// For a whole request: the gateway's own limit, and the way there and back.
const LIMIT: Duration = Duration::from_secs(60);
/// The longest answer: a plan says before and after of a whole configuration.
const LONGEST: usize = 4 * MAX_TEXT;
/// A file longer than this holds no key.
const LONGEST_KEY: usize = 4096;
/// Where a key may be instead of in a file.
const KEY_VARIABLE: &str = "LOCKGATE_ADMIN_KEY";

/// Why a command did not do what it is there for.
#[derive(Debug)]
pub(super) enum Failed {
    /// Before anything was sent.
    Text(String),
    /// What is wrong with a file.
    Problems(Problems),
    /// What the gateway answered.
    Refused(Value),
}

/// See the module.
pub(super) struct Client {
    tls: bool,
    host: String,
    port: u16,
    key: Option<String>,
    insecure: bool,
}

impl Client {
    /// Finds address and key.
    pub(super) fn new(args: &Gateway) -> Result<Client, Failed> {
        let given = match (&args.key_file, std::env::var(KEY_VARIABLE)) {
            (Some(file), _) => Some(key_in(file)?),
            (None, Ok(key)) => Some(key),
            (None, Err(_)) => None,
        };
        let known = || gateway::settings(&args.config).map(|(settings, _)| settings);
        let (address, key) = match (&args.address, given) {
            (Some(address), Some(key)) => (address.clone(), Some(key)),
            (address, key) => {
                let settings = known()?;
                let address = match address {
                    Some(address) => address.clone(),
                    None => address_of(&settings)?,
                };
                let key = match key {
                    Some(key) => Some(key),
                    None => key_of(&settings)?,
                };
                (address, key)
            }
        };
        let bad = || {
            Failed::Text(format!(
                "`{address}` is not http://HOST:PORT or https://HOST:PORT"
            ))
        };
        let (scheme, rest) = address.split_once("://").ok_or_else(bad)?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(bad()),
        };
        let authority = rest.trim_end_matches('/');
        let (host, port) = authority.rsplit_once(':').ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Client {
            tls,
            host: host.to_owned(),
            port: port.parse().map_err(|_| bad())?,
            key,
            insecure: args.insecure,
        })
    }

    /// Sends a request below `/lockgate/v1`, and gives the answer if it is a good one.
    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failed> {
        let text = |what: String| Failed::Text(format!("{}: {what}", self.shown()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| text(e.to_string()))?;
        let asked = async { tokio::time::timeout(LIMIT, self.exchange(method, path, body)).await };
        let (status, answer) = match runtime.block_on(asked) {
            Ok(answered) => answered.map_err(|e| text(e.to_string()))?,
            Err(_) => return Err(text("no answer in time".to_owned())),
        };
        let value = serde_json::from_slice(&answer);
        match (status, value) {
            (200, Ok(value)) => Ok(value),
            (_, Ok(value)) => Err(Failed::Refused(value)),
            (status, Err(_)) => Err(text(format!(
                "answered {status}, which is no Admin API of lockgate"
            ))),
        }
    }

    fn shown(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("the Admin API at {scheme}://{}:{}", self.host, self.port)
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> pingora_core::Result<(u16, Vec<u8>)> {
        use pingora_core::{Error, ErrorType, OrErr};
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let mut found = found.or_err(ErrorType::ConnectError, "the name is not found")?;
        let address = found
            .next()
            .ok_or_else(|| Error::explain(ErrorType::ConnectError, "the name has no address"))?;
        let mut peer = HttpPeer::new(address, self.tls, self.host.clone());
        peer.options.connection_timeout = Some(CONNECT_LIMIT);
        peer.options.verify_cert = !self.insecure;
        peer.options.verify_hostname = !self.insecure;
        let (mut http, _) = Connector::new(None).get_http_session(&peer).await?;
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let path = format!("/lockgate/v1/{path}");
        let mut head = RequestHeader::build(method, path.as_bytes(), Some(5))?;
        let host = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        head.insert_header("Host", host)?;
        head.insert_header("Content-Type", "application/json")?;
        head.insert_header("Content-Length", body.len().to_string())?;
        head.insert_header("Connection", "close")?;
        if let Some(key) = &self.key {
            head.insert_header("X-API-KEY", key.as_str())?;
        }
        http.write_request_header(Box::new(head)).await?;
        http.write_body(body.as_bytes()).await?;
        http.finish_body().await?;
        http.read_response().await?;
        let status = http.get_status().map_or(0, |status| status.as_u16());
        let mut answer = Vec::new();
        while let Some(piece) = http.read_body_bytes().await? {
            answer.extend_from_slice(&piece);
            if answer.len() > LONGEST {
                return Error::e_explain(ErrorType::InternalError, "the answer is too long");
            }
        }
        Ok((status, answer))
    }
}

/// Where the Admin API of these settings is, for somebody on the same machine.
fn address_of(settings: &Settings) -> Result<String, Failed> {
    let Some(admin) = &settings.admin else {
        let text = "these settings have no Admin API: a gateway that is driven by a file is changed \
                    there; `lockgate plan --from OLD --to NEW` compares two files";
        return Err(Failed::Text(text.to_owned()));
    };
    let scheme = if admin.tls.is_some() { "https" } else { "http" };
    let mut address = admin.listen;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(format!("{scheme}://{address}"))
}

/// The key of these settings: the first that may write, else the one that was made.
fn key_of(settings: &Settings) -> Result<Option<String>, Failed> {
    let Some(admin) = settings.admin.as_ref().filter(|admin| admin.key_required) else {
        return Ok(None);
    };
    match admin.keys.iter().find(|key| !key.viewer) {
        Some(key) => Ok(Some(key.key.clone())),
        None => key_in(&settings.lockgate.admin_key).map(Some),
    }
}

fn key_in(file: &Path) -> Result<String, Failed> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Failed::Text(format!("the admin key {}: {e}", file.display())))?;
    match text.trim() {
        key if !key.is_empty() && key.len() <= LONGEST_KEY => Ok(key.to_owned()),
        _ => Err(Failed::Text(format!(
            "the admin key {} is none",
            file.display()
        ))),
    }
}
