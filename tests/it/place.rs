//! Placeholders in case files: `${id}`, `${echo}`, `${base64:${id}:secret}` and so on.
//!
//! What is not ours stays as it is, because resources contain `${variables}` of their own.
//! The full list is in `tests/cases/README.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use serde_json::Value;

use crate::certs::Certs;

/// `${base64:${base64:...}}` deeper than this is a mistake in the file.
const DEPTH: usize = 8;

/// `${repeat:...}` makes heads without end, not whole bodies; those have `body_size`.
const REPEAT_LIMIT: usize = 8 * 1024 * 1024;

/// Values of one case.
#[derive(Clone)]
pub(crate) struct Places {
    names: HashMap<String, String>,
    certs: Arc<Certs>,
}

impl Places {
    /// Nothing but the computed placeholders.
    pub(crate) fn new(certs: Arc<Certs>) -> Self {
        Places {
            names: HashMap::new(),
            certs,
        }
    }

    /// Defines `${name}`.
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.names.insert(name.into(), value.into());
    }

    /// The run's certificates.
    pub(crate) fn certs(&self) -> &Certs {
        &self.certs
    }

    /// Replaces in every string of `value`, map keys included (nodes are keyed by address).
    pub(crate) fn fill(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) => Value::String(self.expand(text)?),
            Value::Array(list) => {
                Value::Array(list.iter().map(|v| self.fill(v)).collect::<Result<_>>()?)
            }
            Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, value)| Ok((self.expand(key)?, self.fill(value)?)))
                    .collect::<Result<_>>()?,
            ),
            other => other.clone(),
        })
    }

    /// Replaces in one text.
    pub(crate) fn expand(&self, text: &str) -> Result<String> {
        self.expand_at(text, 0)
    }

    fn expand_at(&self, text: &str, depth: usize) -> Result<String> {
        if depth > DEPTH {
            bail!("placeholders nested too deeply in {text:?}");
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            out.push_str(&rest[..start]);
            let inside = &rest[start + 2..];
            let Some(end) = closing(inside) else {
                out.push_str("${");
                rest = inside;
                continue;
            };
            let name = self.expand_at(&inside[..end], depth + 1)?;
            match self
                .lookup(&name)
                .with_context(|| format!("placeholder ${{{name}}}"))?
            {
                Some(value) => out.push_str(&value),
                None => out.push_str(&format!("${{{name}}}")),
            }
            rest = &inside[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn lookup(&self, name: &str) -> Result<Option<String>> {
        if let Some(value) = self.names.get(name) {
            return Ok(Some(value.clone()));
        }
        let (function, argument) = name.split_once(':').unwrap_or((name, ""));
        Ok(Some(match function {
            "base64" => STANDARD.encode(argument),
            "base64url" => URL_SAFE_NO_PAD.encode(argument),
            "hmac_sha1" => mac(MessageDigest::sha1(), argument)?,
            "hmac_sha256" => mac(MessageDigest::sha256(), argument)?,
            "hmac_sha512" => mac(MessageDigest::sha512(), argument)?,
            "jwt" => token(argument)?,
            "cert" => self.certs.pair(argument)?.cert_pem()?,
            "key" => self.certs.pair(argument)?.key_pem()?,
            "ca" => self.certs.ca_pem()?,
            "repeat" => repeat(argument)?,
            "httpdate" => httpdate::fmt_http_date(SystemTime::now()),
            "save" => bail!("nothing was saved under this name"),
            _ => match name.strip_prefix("now") {
                Some(offset) if offset.is_empty() || offset.starts_with(['+', '-']) => {
                    later(offset)?
                }
                _ => return Ok(None),
            },
        }))
    }
}

/// Position of the brace that closes a placeholder, minding balanced braces inside.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

fn repeat(argument: &str) -> Result<String> {
    let (n, text) = argument.split_once(':').context("wants N:TEXT")?;
    let n: usize = n.parse().context("wants N:TEXT")?;
    if n.saturating_mul(text.len()) > REPEAT_LIMIT {
        bail!("longer than {REPEAT_LIMIT} bytes");
    }
    Ok(text.repeat(n))
}

fn later(offset: &str) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let offset: i64 = if offset.is_empty() {
        0
    } else {
        offset.parse()?
    };
    Ok(now.saturating_add_signed(offset).to_string())
}

fn sign(digest: MessageDigest, key: &str, text: &str) -> Result<Vec<u8>> {
    let key = PKey::hmac(key.as_bytes())?;
    let mut signer = Signer::new(digest, &key)?;
    signer.update(text.as_bytes())?;
    Ok(signer.sign_to_vec()?)
}

fn mac(digest: MessageDigest, argument: &str) -> Result<String> {
    let (key, text) = argument.split_once(':').context("wants KEY:TEXT")?;
    Ok(STANDARD.encode(sign(digest, key, text)?))
}

fn token(argument: &str) -> Result<String> {
    let (secret, claims) = argument.split_once(':').context("wants SECRET:CLAIMS")?;
    let claims: Value = serde_json::from_str(claims).context("claims are not JSON")?;
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let mac = URL_SAFE_NO_PAD.encode(sign(MessageDigest::sha256(), secret, &signed)?);
    Ok(format!("{signed}.{mac}"))
}
