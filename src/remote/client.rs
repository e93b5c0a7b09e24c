//! A gateway's Admin API, as commands ask it.

use std::path::{Path, PathBuf};

use lockgate_plugin::Problems;
use serde_json::Value;

use super::Gateway;
use crate::explain::online::{Call, send};
use crate::gateway;
use crate::settings::Settings;

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
    url: String,
    key: Option<String>,
    ca_file: Option<PathBuf>,
}

impl Client {
    /// Finds address and key.
    pub(super) fn new(args: &Gateway) -> Result<Client, Failed> {
        let given = match (&args.key_file, std::env::var(KEY_VARIABLE)) {
            (Some(file), _) => Some(key_in(file)?),
            (None, Ok(key)) => Some(key),
            (None, Err(_)) => None,
        };
        let (url, key) = match (&args.admin, given) {
            (Some(url), Some(key)) => (url.clone(), Some(key)),
            (url, key) => {
                let (settings, _) = gateway::settings(&args.config)?;
                let url = match url {
                    Some(url) => url.clone(),
                    None => address_of(&settings)?,
                };
                let key = match key {
                    Some(key) => Some(key),
                    None if is_for(&settings, &url) => key_of(&settings)?,
                    None => return Err(not_sent(&url)),
                };
                (url, key)
            }
        };
        Ok(Client {
            url,
            key,
            ca_file: args.ca_file.clone(),
        })
    }

    /// Sends a request below `/lockgate/v1`, and gives the answer if it is a good one.
    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failed> {
        let path = format!("/lockgate/v1/{path}");
        let body = body.map(Value::to_string).unwrap_or_default();
        let call = Call {
            url: &self.url,
            path: &path,
            key: self.key.as_deref(),
            ca_file: self.ca_file.as_deref(),
            body: body.as_bytes(),
        };
        let (status, answer) = send(method, &call).map_err(Failed::Text)?;
        match (status, serde_json::from_slice(&answer)) {
            (200, Ok(value)) => Ok(value),
            (_, Ok(value)) => Err(Failed::Refused(value)),
            (status, Err(_)) => {
                let text = format!(
                    "{} answers {status}, and no JSON: is it the Admin API of lockgate?",
                    self.url
                );
                Err(Failed::Text(text))
            }
        }
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

/// Whether the key of these settings may go to an address: to that of their own Admin API, or to this
/// machine. Anywhere else somebody would get it who may have nothing to do with this gateway.
fn is_for(settings: &Settings, url: &str) -> bool {
    let needed = settings
        .admin
        .as_ref()
        .is_some_and(|admin| admin.key_required);
    let own = || address_of(settings).is_ok_and(|own| own == url.trim_end_matches('/'));
    !needed || is_here(url) || own()
}

/// Whether an address says by itself that it is on this machine.
fn is_here(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<std::net::IpAddr>();
    bare.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn not_sent(url: &str) -> Failed {
    Failed::Text(format!(
        "{url} is neither on this machine nor the Admin API of these settings, so their key is not sent there: \
         name the key with --key-file or {KEY_VARIABLE}"
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_this_machine() {
        let check = |url: &str, expected: bool| assert_eq!(is_here(url), expected, "{url}");
        check("http://127.0.0.1:9180", true);
        check("https://127.9.9.9", true);
        check("http://[::1]:9180/", true);
        check("http://[::ffff:127.0.0.1]:1", true);
        check("http://LOCALHOST:9180", true);
        check("http://10.0.0.1:9180", false);
        check("http://gateway.test:9180", false);
        check("http://localhost.evil.test", false);
        check("http://127.0.0.1.evil.test:9180", false);
        check("http://evil.test:80#127.0.0.1", false);
        check("http://127.0.0.1@evil.test:80", false);
        check("http://0.0.0.0:9180", false);
    }
}
