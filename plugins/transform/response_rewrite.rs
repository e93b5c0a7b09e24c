//! `response-rewrite`: another status, other headers, another body for the client.

use bytes::{Bytes, BytesMut};
use lockgate_plugin::{
    BuildCx, Chunk, Ctx, Expr, HeaderKey, Phases, Plugin, PluginError, Problem, Problems, Template,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

mod filter;

use filter::{Encoding, Filter};

/// Configuration of `response-rewrite`. `body` and `filters` exclude each other.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The new status.
    #[serde(default)]
    #[schemars(range(min = 200, max = 598))]
    status_code: Option<u16>,
    /// The new body.
    #[serde(default)]
    body: Option<String>,
    /// Whether `body` is base64.
    #[serde(default)]
    body_base64: bool,
    /// Headers: `{add, set, remove}`, or a mapping that is set; `$variables` are filled in.
    #[serde(default)]
    headers: Option<Map<String, Value>>,
    /// Conditions that have to hold.
    #[serde(default)]
    vars: Option<Value>,
    /// Replacements in the body.
    #[serde(default)]
    #[schemars(length(min = 1))]
    filters: Option<Vec<FilterConf>>,
    /// The longest body that `filters` look at; longer ones pass unchanged. Unit: bytes.
    #[serde(default = "max_body")]
    #[schemars(range(min = 1))]
    max_resp_body_size: u64,
}

fn max_body() -> u64 {
    64 << 20
}

/// A replacement in the body.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct FilterConf {
    /// What is replaced.
    #[schemars(length(min = 1))]
    regex: String,
    /// Where: the first match, or all.
    #[serde(default = "once")]
    #[schemars(extend("enum" = ["once", "global"]))]
    scope: String,
    /// By what; `$1` is the first group.
    replace: String,
    /// Flags of the expression, as PCRE has them.
    #[serde(default = "options")]
    options: String,
}

fn once() -> String {
    "once".to_owned()
}

fn options() -> String {
    "jo".to_owned()
}

/// The built plugin.
pub struct ResponseRewrite {
    status: Option<u16>,
    body: Option<Bytes>,
    headers: Vec<Op>,
    condition: Option<Expr>,
    filters: Vec<Filter>,
    max_body: usize,
    names: Names,
}

struct Names {
    /// What describes the upstream's body and not ours.
    stale: [HeaderKey; 3],
    encoding: HeaderKey,
}

enum Op {
    Add(HeaderKey, Template),
    Set(HeaderKey, Template),
    Remove(HeaderKey),
}

/// What is remembered of a response.
#[derive(Default)]
struct Seen {
    /// Whether the conditions hold; decided when the head is known.
    active: bool,
    encoding: Encoding,
    held: BytesMut,
    /// The new body was sent, or the body was too long to be held.
    done: bool,
}

impl Plugin for ResponseRewrite {
    const NAME: &'static str = "response-rewrite";
    const PRIORITY: i32 = 899;
    const PHASES: Phases = Phases::HEADER_FILTER.and(Phases::BODY_FILTER);
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        if conf.body.is_some() && conf.filters.is_some() {
            out.add("filters", "only one of body and filters is allowed");
        }
        if conf.body_base64 && conf.body.as_ref().is_none_or(|body| filter::base64(body).is_none()) {
            out.add("body", "invalid base64 content");
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<ResponseRewrite, Problems> {
        let mut out = Problems::default();
        let headers = headers(&conf.headers.unwrap_or_default(), &mut out.at("headers"));
        let condition = match conf.vars.as_ref().map(Expr::parse) {
            Some(Err(mut problem)) => {
                problem.path = format!("vars{}", problem.path);
                out.push(problem);
                None
            }
            Some(Ok(expr)) => Some(expr),
            None => None,
        };
        let mut filters = Vec::new();
        for (i, conf) in conf.filters.into_iter().flatten().enumerate() {
            match Filter::new(&conf.regex, &conf.options, conf.scope == "global", conf.replace) {
                Ok(filter) => filters.push(filter),
                Err(e) => out.add(
                    &format!("filters[{i}].regex"),
                    format!("regex \"{}\" validation failed: {e}", conf.regex),
                ),
            }
        }
        out.into_result()?;
        let body = match (conf.body, conf.body_base64) {
            (Some(text), true) => filter::base64(&text).map(Bytes::from),
            (text, _) => text.map(Bytes::from),
        };
        Ok(ResponseRewrite {
            status: conf.status_code,
            body,
            headers,
            condition,
            filters,
            max_body: usize::try_from(conf.max_resp_body_size).unwrap_or(usize::MAX),
            names: Names {
                stale: ["Content-Encoding", "Last-Modified", "ETag"].map(HeaderKey::constant),
                encoding: HeaderKey::constant("Content-Encoding"),
            },
        })
    }

    fn phases(&self) -> Phases {
        let body = self.body.is_some() || !self.filters.is_empty();
        if body { Self::PHASES } else { Phases::HEADER_FILTER }
    }

    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        if self.condition.as_ref().is_some_and(|expr| !cx.matches(expr)) {
            return Ok(());
        }
        if self.body.is_some() || !self.filters.is_empty() {
            let encoding = Encoding::of(cx.resp_header(&self.names.encoding));
            let seen = cx.local::<Seen>();
            seen.active = true;
            seen.encoding = encoding;
            // A body in an encoding that cannot be read is left alone.
            if self.body.is_some() || encoding != Encoding::Other {
                self.names.stale.iter().for_each(|key| cx.remove_resp_header(key));
                cx.will_resize_body();
            }
        }
        if let Some(status) = self.status {
            cx.set_status(status);
        }
        for op in &self.headers {
            match op {
                Op::Add(key, text) => {
                    let value = text.render(&cx.lookup()).into_owned();
                    cx.append_resp_header(key, value);
                }
                Op::Set(key, text) => {
                    let value = text.render(&cx.lookup()).into_owned();
                    cx.set_resp_header(key, value);
                }
                Op::Remove(key) => cx.remove_resp_header(key),
            }
        }
        Ok(())
    }

    fn body_filter(&self, chunk: &mut Chunk, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        let seen = cx.local::<Seen>();
        if !seen.active {
            return Ok(());
        }
        if let Some(body) = &self.body {
            let first = !std::mem::replace(&mut seen.done, true);
            chunk.data = if first { body.clone() } else { Bytes::new() };
            return Ok(());
        }
        if seen.done || seen.encoding == Encoding::Other {
            return Ok(());
        }
        seen.held.extend_from_slice(&chunk.data);
        chunk.data = Bytes::new();
        if seen.held.len() > self.max_body {
            tracing::warn!(limit = self.max_body, "response body too long for its filters: passed unchanged");
            seen.done = true;
            chunk.data = std::mem::take(&mut seen.held).freeze();
            return Ok(());
        }
        if chunk.last {
            let held = std::mem::take(&mut seen.held).freeze();
            let plain = seen.encoding.decode(&held, self.max_body).map_err(|e| {
                PluginError::new(format!("response body cannot be decompressed: {e}"))
            })?;
            chunk.data = filter::apply(&self.filters, plain);
        }
        Ok(())
    }
}

/// Add, then set, then remove.
fn headers(conf: &Map<String, Value>, out: &mut Problems) -> Vec<Op> {
    let mut ops = Vec::new();
    let is_form = |name: &str| conf.get(name).is_some_and(|v| v.is_object() || v.is_array());
    if !["add", "set", "remove"].into_iter().any(is_form) {
        sets(conf, out, &mut ops);
        return ops;
    }
    for (i, line) in conf.get("add").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let pair = line.as_str().and_then(|line| line.split_once(':'));
        match pair.map(|(name, value)| (name.trim().parse(), value.trim())) {
            Some((Ok(key), value)) => ops.push(Op::Add(key, Template::parse(value))),
            _ => out.at("add").add(&format!("[{i}]"), "expected `Name: value`"),
        }
    }
    if let Some(set) = conf.get("set").and_then(Value::as_object) {
        sets(set, &mut out.at("set"), &mut ops);
    }
    for (i, name) in conf.get("remove").and_then(Value::as_array).into_iter().flatten().enumerate() {
        match name.as_str().map(str::parse) {
            Some(Ok(key)) => ops.push(Op::Remove(key)),
            _ => out.at("remove").add(&format!("[{i}]"), "invalid field character in header"),
        }
    }
    ops
}

fn sets(map: &Map<String, Value>, out: &mut Problems, ops: &mut Vec<Op>) {
    for (name, value) in map {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(n) => n.to_string(),
            _ => {
                out.push(Problem::new(name.as_str(), "wrong type: expected one of string, number"));
                continue;
            }
        };
        match name.parse() {
            Ok(key) => ops.push(Op::Set(key, Template::parse(&text))),
            Err(_) => out.push(Problem::new(name.as_str(), "invalid field character in header")),
        }
    }
}

#[cfg(test)]
mod tests;
