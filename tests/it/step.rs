//! One step of a case: what is sent, in bytes.

mod bytes;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fancy_regex::Regex;
use openssl::ssl::SslVersion;
use serde_json::{Map, Value};

use crate::expect::Expect;
use crate::value::{Fields, regex, text};

/// Which listener a step talks to.
const LISTENERS: [&str; 7] = [
    "http",
    "https",
    "status",
    "prometheus",
    "control",
    "admin",
    "echo",
];

/// The admin key of gateways that have an Admin API; steps to it send it unless they say otherwise.
pub(crate) const ADMIN_KEY: &str = "it-admin-key";

/// A step, read strictly.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) target: String,
    /// Whether anything is sent at all.
    pub(crate) sends: bool,
    pub(crate) host: Option<String>,
    headers: Vec<(String, Option<String>)>,
    pieces: Vec<Vec<u8>>,
    chunked: bool,
    trailers: Vec<(String, String)>,
    pub(crate) version: String,
    pub(crate) bind: Option<IpAddr>,
    pub(crate) tls: Option<TlsChoice>,
    pub(crate) to: String,
    pub(crate) raw: Option<String>,
    pub(crate) websocket: Option<Vec<String>>,
    pub(crate) times: u64,
    pub(crate) keep: bool,
    pub(crate) parallel: bool,
    pub(crate) within: Option<Duration>,
    pub(crate) edit: Option<Map<String, Value>>,
    pub(crate) reject: Vec<String>,
    pub(crate) save: Vec<Save>,
    pub(crate) expect: Expect,
}

/// The `tls` map.
#[derive(Debug)]
pub(crate) struct TlsChoice {
    pub(crate) sni: Option<String>,
    pub(crate) alpn: Vec<String>,
    pub(crate) cert: Option<String>,
    pub(crate) version: Option<SslVersion>,
}

/// A value kept for later steps.
#[derive(Debug)]
pub(crate) struct Save {
    pub(crate) name: String,
    pub(crate) header: Option<String>,
    pub(crate) json: Option<String>,
    pub(crate) like: Option<Regex>,
}

impl Step {
    /// Reads a step; `host` is the default Host header.
    pub(crate) fn parse(value: &Value, path: &str, host: &str) -> Result<Self> {
        let f = Fields::new(value, path)?;
        let name = f
            .str("name")?
            .with_context(|| format!("{path}: name is missing"))?;
        let send = f.str("send")?;
        let (method, target) = match &send {
            None => (String::new(), String::new()),
            Some(send) => {
                let words = send
                    .split_once(' ')
                    .context(f.at("send") + ": METHOD TARGET")?;
                (words.0.to_owned(), words.1.to_owned())
            }
        };
        let raw = f.str("raw")?;
        let edit = f
            .value("edit")
            .map(|v| edit(v, &f.at("edit")))
            .transpose()?;
        ensure!(
            send.is_none() || raw.is_none(),
            "{path}: send and raw exclude each other"
        );
        ensure!(
            send.is_some() || raw.is_some() || edit.is_some(),
            "{path}: one of send, raw, edit is needed"
        );
        let parallel = f.number("parallel")?;
        let times = f.number("times")?;
        let mut headers = headers(&f)?;
        if let Some(from) = f.str("from")? {
            headers.push(("X-Real-IP".to_owned(), Some(from)));
        }
        let (pieces, chunked) = body(&f, &mut headers)?;
        let host = match f.value("host") {
            None => Some(host.to_owned()),
            Some(Value::Null) => None,
            Some(value) => Some(text(value).context(f.at("host"))?),
        };
        let sni = host
            .as_deref()
            .map(|h| h.split(':').next().unwrap_or(h).to_owned());
        let tls = f
            .value("tls")
            .map(|v| TlsChoice::parse(v, &f.at("tls"), sni))
            .transpose()?;
        let to = f
            .str("to")?
            .unwrap_or_else(|| (if tls.is_some() { "https" } else { "http" }).to_owned());
        ensure!(
            LISTENERS.contains(&to.as_str()),
            "{}: one of {LISTENERS:?}",
            f.at("to")
        );
        let has_key = |(name, _): &(String, _)| name.eq_ignore_ascii_case("x-api-key");
        if to == "admin" && !headers.iter().any(has_key) {
            headers.push(("X-API-KEY".to_owned(), Some(ADMIN_KEY.to_owned())));
        }
        let version = f.str("version")?.unwrap_or_else(|| "1.1".to_owned());
        ensure!(
            ["1.0", "1.1", "2"].contains(&version.as_str()),
            "{}: 1.0, 1.1 or 2",
            f.at("version")
        );
        let step = Step {
            name,
            method,
            target,
            sends: send.is_some() || raw.is_some(),
            host,
            headers,
            pieces,
            chunked,
            trailers: pairs(&f, "trailers")?,
            version,
            bind: f
                .str("bind")?
                .map(|ip| ip.parse().context(f.at("bind")))
                .transpose()?,
            tls,
            to,
            raw,
            websocket: f
                .value("websocket")
                .map(|_| f.strings("websocket"))
                .transpose()?,
            times: parallel.or(times).unwrap_or(1),
            keep: f.bool("keep")?.unwrap_or(false),
            parallel: parallel.is_some(),
            within: f.seconds("within")?,
            edit,
            reject: f.strings("reject")?,
            save: saves(&f)?,
            expect: match f.value("expect") {
                None => Expect::default(),
                Some(value) => Expect::parse(value, &f.at("expect"))?,
            },
        };
        f.finish()?;
        ensure!(
            (1..=10_000).contains(&step.times),
            "{path}: times and parallel are 1 to 10000"
        );
        Ok(step)
    }

    /// For failure reports.
    pub(crate) fn summary(&self) -> String {
        match &self.raw {
            Some(raw) => format!("raw {raw:?}"),
            None => format!(
                "{} {} HTTP/{} host={} to={} {:?}",
                self.method,
                self.target,
                self.version,
                self.host.as_deref().unwrap_or("none"),
                self.to,
                self.headers
            ),
        }
    }
}

impl TlsChoice {
    fn parse(value: &Value, path: &str, sni: Option<String>) -> Result<Self> {
        if *value == Value::Bool(true) {
            return Ok(TlsChoice {
                sni,
                alpn: Vec::new(),
                cert: None,
                version: None,
            });
        }
        let f = Fields::new(value, path)?;
        let sni = match f.value("sni") {
            None => sni,
            Some(Value::Null) => None,
            Some(name) => Some(text(name).context(f.at("sni"))?),
        };
        let version = match f.str("version")?.as_deref() {
            None => None,
            Some("1.1") => Some(SslVersion::TLS1_1),
            Some("1.2") => Some(SslVersion::TLS1_2),
            Some("1.3") => Some(SslVersion::TLS1_3),
            Some(other) => bail!("{}: {other:?} is not 1.1, 1.2 or 1.3", f.at("version")),
        };
        let out = TlsChoice {
            sni,
            alpn: f.strings("alpn")?,
            cert: f.str("cert")?,
            version,
        };
        f.finish()?;
        Ok(out)
    }
}

fn headers(f: &Fields<'_>) -> Result<Vec<(String, Option<String>)>> {
    let Some(value) = f.value("headers") else {
        return Ok(Vec::new());
    };
    let map = value
        .as_object()
        .with_context(|| format!("{}: expected a map", f.at("headers")))?;
    let mut out = Vec::new();
    for (name, value) in map {
        let at = || format!("{}.{name}", f.at("headers"));
        match value {
            Value::Null => out.push((name.clone(), None)),
            Value::Array(list) => {
                for value in list {
                    out.push((name.clone(), Some(text(value).with_context(at)?)));
                }
            }
            value => out.push((name.clone(), Some(text(value).with_context(at)?))),
        }
    }
    Ok(out)
}

fn pairs(f: &Fields<'_>, key: &'static str) -> Result<Vec<(String, String)>> {
    let Some(value) = f.value(key) else {
        return Ok(Vec::new());
    };
    let map = value
        .as_object()
        .with_context(|| format!("{}: expected a map", f.at(key)))?;
    map.iter()
        .map(|(n, v)| Ok((n.clone(), text(v).with_context(|| f.at(key))?)))
        .collect()
}

/// Pieces of the body and whether it is chunked.
fn body(
    f: &Fields<'_>,
    headers: &mut Vec<(String, Option<String>)>,
) -> Result<(Vec<Vec<u8>>, bool)> {
    let body = match (f.value("body"), f.number("body_size")?) {
        (Some(_), Some(_)) => bail!("{}: body and body_size exclude each other", f.at("body")),
        (Some(value @ (Value::Object(_) | Value::Array(_))), None) => {
            if !headers
                .iter()
                .any(|(n, _)| n.eq_ignore_ascii_case("content-type"))
            {
                headers.push((
                    "Content-Type".to_owned(),
                    Some("application/json".to_owned()),
                ));
            }
            vec![value.to_string().into_bytes()]
        }
        (Some(value), None) => vec![text(value).context(f.at("body"))?.into_bytes()],
        (None, Some(size)) => vec![vec![b'x'; usize::try_from(size)?]],
        (None, None) => Vec::new(),
    };
    match f.value("chunked") {
        None | Some(Value::Bool(false)) => Ok((body, false)),
        Some(Value::Bool(true)) => Ok((body, true)),
        Some(_) => {
            let pieces = f
                .strings("chunked")?
                .into_iter()
                .map(String::into_bytes)
                .collect();
            Ok((pieces, true))
        }
    }
}

fn saves(f: &Fields<'_>) -> Result<Vec<Save>> {
    let Some(value) = f.value("save") else {
        return Ok(Vec::new());
    };
    let map = value
        .as_object()
        .with_context(|| format!("{}: expected a map", f.at("save")))?;
    map.iter()
        .map(|(name, value)| {
            let f = Fields::new(value, format!("{}.{name}", f.at("save")))?;
            let like = f.str("like")?.map(|p| regex(&p)).transpose()?;
            let (header, json) = (f.str("header")?, f.str("json")?);
            f.finish()?;
            Ok(Save {
                name: name.clone(),
                header,
                json,
                like,
            })
        })
        .collect()
}

fn edit(value: &Value, path: &str) -> Result<Map<String, Value>> {
    let map = value
        .as_object()
        .with_context(|| format!("{path}: expected a map"))?;
    for (key, value) in map {
        ensure!(
            crate::case::is_resource(key),
            "{path}.{key}: not a resource list"
        );
        ensure!(value.is_array(), "{path}.{key}: expected a list");
    }
    Ok(map.clone())
}
