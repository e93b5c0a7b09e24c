//! What must come back, and the comparison with what did.
//!
//! `judge` covers the answer itself; what needs the upstreams' memory or log files is checked in `run.rs`.

use std::time::Duration;

use anyhow::{Context, Result};
use fancy_regex::Regex;
use serde_json::Value;

use crate::client::Answer;
use crate::upstream::Seen;
use crate::value::{Fields, Rule, subset, text};

/// How much of a body a failure shows.
const SHOWN: usize = 600;

/// The `expect` map of a step.
#[derive(Debug, Default)]
pub(crate) struct Expect {
    pub(crate) status: Option<u64>,
    pub(crate) statuses: Option<Vec<(String, u64)>>,
    pub(crate) body: Option<String>,
    pub(crate) body_like: Vec<Regex>,
    pub(crate) body_unlike: Vec<Regex>,
    pub(crate) body_size: Option<u64>,
    pub(crate) json: Option<Value>,
    pub(crate) headers: Vec<(String, Rule)>,
    pub(crate) trailers: Vec<(String, Rule)>,
    pub(crate) upstream: Option<Upstream>,
    pub(crate) server: Option<String>,
    pub(crate) distribution: Option<Vec<(String, u64)>>,
    pub(crate) no_upstream: bool,
    pub(crate) tries: Option<u64>,
    pub(crate) received: Vec<Received>,
    pub(crate) not_received: Vec<String>,
    pub(crate) interim: Option<Vec<String>>,
    pub(crate) closed: Option<bool>,
    pub(crate) no_response: bool,
    pub(crate) responses: Vec<Expect>,
    pub(crate) cut: Option<bool>,
    pub(crate) certificate: Option<String>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) at_most: Option<Duration>,
    pub(crate) log: Vec<(String, Rule)>,
    pub(crate) log_like: Vec<Regex>,
    pub(crate) stderr_like: Vec<Regex>,
}

/// What the echo upstream must have seen.
#[derive(Debug)]
pub(crate) struct Upstream {
    fields: Vec<(&'static str, String)>,
    headers: Vec<(String, Rule)>,
    trailers: Vec<(String, Rule)>,
}

/// A request that an upstream must have received.
#[derive(Debug)]
pub(crate) struct Received {
    uri: Rule,
    method: Option<String>,
    server: Option<String>,
    headers: Vec<(String, Rule)>,
    body: Option<String>,
    body_like: Vec<Regex>,
    json: Option<Value>,
    /// Exactly this often; else at least once.
    pub(crate) count: Option<u64>,
}

impl Expect {
    /// Reads the map, strictly.
    pub(crate) fn parse(value: &Value, path: &str) -> Result<Self> {
        let f = Fields::new(value, path)?;
        let nested = |key: &'static str| -> Result<Vec<Expect>> {
            let parse = |(i, v)| Expect::parse(v, &format!("{}[{i}]", f.at(key)));
            f.list(key)?.iter().enumerate().map(parse).collect()
        };
        let received = |(i, v)| Received::parse(v, &format!("{}[{i}]", f.at("received")));
        let (at_least, at_most) = match f.value("took") {
            None => (None, None),
            Some(took) => {
                let took = Fields::new(took, f.at("took"))?;
                let limits = (took.seconds("at_least")?, took.seconds("at_most")?);
                took.finish()?;
                limits
            }
        };
        let expect = Expect {
            status: f.number("status")?,
            statuses: f.counts("statuses")?,
            body: f.str("body")?,
            body_like: f.regexes("body_like")?,
            body_unlike: f.regexes("body_unlike")?,
            body_size: f.number("body_size")?,
            json: f.value("json").cloned(),
            headers: f.rules("headers")?,
            trailers: f.rules("trailers")?,
            upstream: f
                .value("upstream")
                .map(|v| Upstream::parse(v, &f.at("upstream")))
                .transpose()?,
            server: f.str("server")?,
            distribution: f.counts("distribution")?,
            no_upstream: f.bool("no_upstream")?.unwrap_or(false),
            tries: f.number("tries")?,
            received: f
                .list("received")?
                .iter()
                .enumerate()
                .map(received)
                .collect::<Result<_>>()?,
            not_received: f.strings("not_received")?,
            interim: f
                .value("interim")
                .map(|_| f.strings("interim"))
                .transpose()?,
            closed: f.bool("closed")?,
            no_response: f.bool("no_response")?.unwrap_or(false),
            responses: nested("responses")?,
            cut: f.bool("cut")?,
            certificate: f.str("certificate")?,
            at_least,
            at_most,
            log: f.rules("log")?,
            log_like: f.regexes("log_like")?,
            stderr_like: f.regexes("stderr_like")?,
        };
        f.finish()?;
        Ok(expect)
    }

    /// Everything about one answer that is not as wanted.
    pub(crate) fn judge(&self, got: &Answer) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.no_response {
            if let Some(status) = got.status {
                wrong.push(format!("wanted no answer, got status {status}"));
            }
            return wrong;
        }
        let Some(status) = got.status else {
            let why = got.error.as_deref().unwrap_or("unknown");
            wrong.push(format!("no answer: {why}"));
            return wrong;
        };
        if got.cut != self.cut.unwrap_or(false) && (got.cut || self.cut.is_some()) {
            let why = got.error.as_deref().unwrap_or("");
            wrong.push(format!("answer cut short: {} {why}", got.cut));
        }
        differs(
            &mut wrong,
            "status",
            self.status.as_ref(),
            &u64::from(status),
        );
        self.judge_body(got, &mut wrong);
        rules(&mut wrong, "header", &self.headers, &got.headers);
        rules(&mut wrong, "trailer", &self.trailers, &got.trailers);
        if let Some(server) = &self.server {
            let got = got.server().unwrap_or("gateway");
            differs(&mut wrong, "server", Some(server.as_str()), got);
        }
        if let Some(want) = &self.interim {
            let got: Vec<String> = got.interim.iter().map(u16::to_string).collect();
            differs(&mut wrong, "interim answers", Some(want), &got);
        }
        if let Some(name) = &self.certificate {
            let got = got.certificate.as_deref().unwrap_or("none");
            differs(&mut wrong, "certificate", Some(name.as_str()), got);
        }
        if self.at_least.is_some_and(|limit| got.took < limit)
            || self.at_most.is_some_and(|limit| got.took > limit)
        {
            wrong.push(format!("took {:?}", got.took));
        }
        if let Some(upstream) = &self.upstream {
            upstream.judge(got, &mut wrong);
        }
        wrong
    }

    fn judge_body(&self, got: &Answer, wrong: &mut Vec<String>) {
        let body = String::from_utf8_lossy(&got.body);
        if let Some(want) = &self.body
            && *want != body
        {
            wrong.push(format!("body: wanted {want:?}, got {:?}", shown(&body)));
        }
        differs(
            wrong,
            "body size",
            self.body_size.as_ref(),
            &(got.body.len() as u64),
        );
        for re in &self.body_like {
            if !re.is_match(&body).unwrap_or(false) {
                wrong.push(format!(
                    "body: nothing matches {re}, got {:?}",
                    shown(&body)
                ));
            }
        }
        for re in &self.body_unlike {
            if re.is_match(&body).unwrap_or(true) {
                wrong.push(format!("body: {re} matches {:?}", shown(&body)));
            }
        }
        if let Some(want) = &self.json {
            match serde_json::from_str(&body) {
                Ok(got) => wrong.extend(subset(want, &got)),
                Err(error) => wrong.push(format!("not JSON ({error}): {:?}", shown(&body))),
            }
        }
    }
}

impl Upstream {
    fn parse(value: &Value, path: &str) -> Result<Self> {
        let f = Fields::new(value, path)?;
        let mut fields = Vec::new();
        for key in ["method", "uri", "body", "body_size", "server", "version"] {
            if let Some(want) = f.str(key)? {
                fields.push((key, want));
            }
        }
        let out = Upstream {
            fields,
            headers: f.rules("headers")?,
            trailers: f.rules("trailers")?,
        };
        f.finish()?;
        Ok(out)
    }

    fn judge(&self, got: &Answer, wrong: &mut Vec<String>) {
        let Ok(echo) = serde_json::from_slice::<Value>(&got.body) else {
            let body = String::from_utf8_lossy(&got.body);
            wrong.push(format!(
                "no echo of the upstream in the body: {:?}",
                shown(&body)
            ));
            return;
        };
        for (key, want) in &self.fields {
            let got = echo.get(key).and_then(|v| text(v).ok()).unwrap_or_default();
            differs(
                wrong,
                &format!("upstream {key}"),
                Some(want.as_str()),
                got.as_str(),
            );
        }
        let mut headers = Vec::new();
        for (name, values) in echo
            .get("headers")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let values = values
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            headers.extend(values.map(|v| (name.clone(), v.to_owned())));
        }
        rules(wrong, "upstream header", &self.headers, &headers);
        let trailers = echo
            .get("trailers")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let trailers: Vec<_> = trailers
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        rules(wrong, "upstream trailer", &self.trailers, &trailers);
    }
}

impl Received {
    fn parse(value: &Value, path: &str) -> Result<Self> {
        let f = Fields::new(value, path)?;
        let uri = f
            .value("uri")
            .with_context(|| format!("{path}: uri is missing"))?;
        let out = Received {
            uri: Rule::new(uri)?,
            method: f.str("method")?,
            server: f.str("server")?,
            headers: f.rules("headers")?,
            body: f.str("body")?,
            body_like: f.regexes("body_like")?,
            json: f.value("json").cloned(),
            count: f.number("count")?,
        };
        f.finish()?;
        Ok(out)
    }

    /// Whether the address fits; only then the rest is worth reporting.
    pub(crate) fn concerns(&self, seen: &Seen) -> bool {
        self.uri.broken_by(&[&seen.request.target]).is_none()
            && self
                .method
                .as_ref()
                .is_none_or(|m| *m == seen.request.method)
            && self.server.as_ref().is_none_or(|s| s == seen.server)
    }

    /// What is wrong with a request that fits.
    pub(crate) fn judge(&self, seen: &Seen) -> Vec<String> {
        let mut wrong = Vec::new();
        let body = String::from_utf8_lossy(&seen.request.body);
        rules(
            &mut wrong,
            "received header",
            &self.headers,
            &seen.request.headers,
        );
        differs(&mut wrong, "received body", self.body.as_deref(), &body);
        for re in &self.body_like {
            if !re.is_match(&body).unwrap_or(false) {
                wrong.push(format!(
                    "received body: nothing matches {re}, got {:?}",
                    shown(&body)
                ));
            }
        }
        if let Some(want) = &self.json {
            match serde_json::from_str(&body) {
                Ok(got) => wrong.extend(subset(want, &got)),
                Err(_) => wrong.push(format!("received body is not JSON: {:?}", shown(&body))),
            }
        }
        wrong
    }
}

/// The start of a long text.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Compares named values by rules.
pub(crate) fn rules(
    wrong: &mut Vec<String>,
    what: &str,
    rules: &[(String, Rule)],
    got: &[(String, String)],
) {
    for (name, rule) in rules {
        let values: Vec<&str> = got
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
            .collect();
        if let Some(why) = rule.broken_by(&values) {
            wrong.push(format!("{what} {name}: {why}"));
        }
    }
}

fn differs<T: PartialEq + std::fmt::Debug + ?Sized>(
    wrong: &mut Vec<String>,
    what: &str,
    want: Option<&T>,
    got: &T,
) {
    if let Some(want) = want
        && want != got
    {
        wrong.push(format!("{what}: wanted {want:?}, got {got:?}"));
    }
}
