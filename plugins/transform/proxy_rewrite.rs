//! `proxy-rewrite`: sends another path, method, host or headers to the upstream.
//!
//! Order: host, path, headers (add, then set, then remove), method. Later plugins see the new path as
//! `$uri`; the route is not matched again.
//!
//! The path is percent-encoded for the upstream, also where only other attributes are given: it is then
//! the client's path in its normal form. The client's query follows, after the one that the new path may
//! have. A `?` in the value of a variable never starts a query.
//!
//! ```yaml
//! plugins:
//!   proxy-rewrite:
//!     regex_uri: ["^/shop/v([0-9]+)/(.*)$", "/$2"]
//!     headers: { set: { X-Shop-Version: "$1" }, remove: [X-Debug] }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | 500 | `{"error_msg":"failed to match the uri ..."}` | an expression of `regex_uri` takes too long to search |

mod headers;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use lockgate_plugin::var::Lookup;
use lockgate_plugin::{
    BuildCx, Ctx, Outcome, Phases, Plugin, PluginError, Problems, Reply, Step, Template, Var,
    VarSource, VarValue,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::headers::{Groups, HeaderChanges};
use super::regex_uri::RegexUri;

/// Configuration of `proxy-rewrite`. At least one attribute.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub struct Conf {
    /// The new path, which may have a query; `$variables` are filled in. The client's query is
    /// appended.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^\/.*"))]
    uri: Option<String>,
    /// The new method.
    #[serde(default)]
    #[schemars(extend("enum" = [
        "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "MKCOL", "COPY", "MOVE", "PROPFIND",
        "LOCK", "UNLOCK", "PATCH", "TRACE", null
    ]))]
    method: Option<String>,
    /// Pairs of a regular expression and a replacement for the path, where `uri` is not given. The
    /// first expression that matches counts; a path that none matches stays. `$1` and `${1}` stand
    /// for groups, in the replacement and in `headers`.
    #[serde(default)]
    #[schemars(length(min = 2))]
    regex_uri: Option<Vec<String>>,
    /// The new `Host`, port included; the upstream's `pass_host` has to be `pass`, its default.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[0-9a-zA-Z-.]+(:\d{1,5})?$"))]
    host: Option<String>,
    /// Header changes: `add` and `set` map names to a text, a number or a list of them, `remove`
    /// lists names. A plain mapping of names to values is short for `set`. `$variables` are filled
    /// in; a variable without a value gives an empty header. `Host` has no effect here, see `host`.
    #[serde(default)]
    #[schemars(extend("minProperties" = 1))]
    headers: Option<Map<String, Value>>,
    /// Works on the target exactly as the client sent it, query included, and sends the result
    /// without encoding it. Unsafe: what the upstream gets may not be the path that was matched.
    #[serde(default)]
    use_real_request_uri_unsafe: bool,
}

/// The built plugin.
pub struct ProxyRewrite {
    path: Path,
    /// See [`Conf::use_real_request_uri_unsafe`].
    raw: bool,
    method: Option<Bytes>,
    host: Option<Bytes>,
    headers: HeaderChanges,
}

enum Path {
    /// The client's.
    Same,
    New(Template),
    /// The first that matches.
    Regexes(Vec<RegexUri>),
}

impl Plugin for ProxyRewrite {
    const NAME: &'static str = "proxy-rewrite";
    const PRIORITY: i32 = 1008;
    const PHASES: Phases = Phases::REWRITE;
    type Conf = Conf;

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<ProxyRewrite, Problems> {
        let mut out = Problems::default();
        let regexes = pairs(&conf.regex_uri.unwrap_or_default(), &mut out);
        let headers =
            HeaderChanges::parse(&conf.headers.unwrap_or_default(), &mut out.at("headers"));
        out.into_result()?;
        let path = match conf.uri {
            Some(uri) => Path::New(Template::parse(&uri)),
            None if regexes.is_empty() => Path::Same,
            None => Path::Regexes(regexes),
        };
        Ok(ProxyRewrite {
            path,
            raw: conf.use_real_request_uri_unsafe,
            method: conf.method.map(Bytes::from),
            host: conf.host.map(Bytes::from),
            headers,
        })
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        matches!(&self.path, Path::New(uri) if uri.any_var(is)) || self.headers.any_var(is)
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        if let Some(host) = &self.host {
            cx.set_host(host.clone());
        }
        let groups = if self.raw {
            self.rewrite_raw(cx)?
        } else {
            self.rewrite_path(cx)?
        };
        self.headers.apply(cx, groups.as_deref());
        // Last, so that `$request_method` in a header is the client's.
        if let Some(method) = &self.method {
            cx.set_method(method.clone());
        }
        Ok(Step::Next)
    }
}

impl ProxyRewrite {
    /// Changes the path; gives the groups of the expression that matched.
    fn rewrite_path(&self, cx: &mut Ctx<'_>) -> Result<Option<Groups>, PluginError> {
        let (text, groups, whole) = match &self.path {
            Path::Same => {
                encode_again(cx);
                return Ok(None);
            }
            Path::New(uri) => (uri.render(&Escaped(cx.lookup())).into_owned(), None, false),
            Path::Regexes(pairs) => {
                // A `?` in the path is text (the client sent `%3F`), and stays it.
                let whole = cx.uri().contains('?');
                match self.first_match(pairs, cx.uri())? {
                    Some((text, groups)) => (text, groups, whole),
                    None => {
                        encode_again(cx);
                        return Ok(None);
                    }
                }
            }
        };
        let (path, own) = match text.split_once('?') {
            Some((path, own)) if !whole => (path, Some(own)),
            _ => (text.as_str(), None),
        };
        match (own, cx.args()) {
            (Some(own), Some(sent)) if !own.is_empty() => {
                let args = [own, "&", sent].concat();
                cx.set_uri(path, Some(&args));
            }
            (Some(own), None) => cx.set_uri(path, Some(own)),
            (_, sent) => {
                let sent = sent.map(str::to_owned);
                cx.set_uri(path, sent.as_deref());
            }
        }
        Ok(groups)
    }

    /// As [`rewrite_path`](Self::rewrite_path), on the undecoded target.
    fn rewrite_raw(&self, cx: &mut Ctx<'_>) -> Result<Option<Groups>, PluginError> {
        let raw = cx.raw_target();
        let (target, groups) = match &self.path {
            Path::Same => (raw.to_vec(), None),
            Path::New(uri) => {
                let uri = uri.render(&Escaped(cx.lookup()));
                let mut target = line_safe(&uri);
                if let Some(at) = raw.iter().position(|&b| b == b'?') {
                    target.push(if uri.contains('?') { b'&' } else { b'?' });
                    target.extend_from_slice(&raw[at + 1..]);
                }
                (target, None)
            }
            // Expressions are about text; a target that is none stays.
            Path::Regexes(pairs) => match std::str::from_utf8(raw) {
                Ok(text) => match self.first_match(pairs, text)? {
                    Some((text, groups)) => (line_safe(&text), groups),
                    None => (raw.to_vec(), None),
                },
                Err(_) => (raw.to_vec(), None),
            },
        };
        cx.set_raw_target(target);
        Ok(groups)
    }

    /// The replaced text and, where headers want them, the groups of the first pair that matches.
    fn first_match(
        &self,
        pairs: &[RegexUri],
        text: &str,
    ) -> Result<Option<(String, Option<Groups>)>, PluginError> {
        for pair in pairs {
            let matches = pair.is_match(text).map_err(|e| {
                let text = format!("failed to match the uri {text} ({})  : {e}", pair.pattern());
                let reply = Reply::error_msg(500, &text).because("regex_uri failed");
                PluginError::new(text).answer(reply)
            })?;
            if matches {
                let groups = self
                    .headers
                    .wants_groups()
                    .then(|| pair.groups(text))
                    .flatten();
                return Ok(pair.replace(text).map(|text| (text, groups)));
            }
        }
        Ok(None)
    }
}

/// Sends the path in its normal form, encoded again, where the client's spelling may differ.
fn encode_again(cx: &mut Ctx<'_>) {
    let differs = |target: &[u8]| target.iter().any(|&b| b == b'%' || b >= 0x80);
    // What a plugin has set is encoded already.
    if cx.work().request.target.is_some() || !differs(cx.raw_target()) {
        return;
    }
    let (path, args) = (cx.uri().to_owned(), cx.args().map(str::to_owned));
    cx.set_uri(&path, args.as_deref());
}

/// Variables whose `?` is written `%3F`: a request cannot start a query of the new target.
struct Escaped<'a>(Lookup<'a>);

impl VarSource for Escaped<'_> {
    fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
        let value = self.0.into_var(var)?;
        if !value.as_text().contains('?') {
            return Some(value);
        }
        Some(VarValue::Str(value.as_text().replace('?', "%3F").into()))
    }
}

/// Encodes only what would break the request line: blanks and control bytes.
fn line_safe(text: &str) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            0..=b' ' | 0x7f => {
                let digit = |n: u8| DIGITS[usize::from(n)];
                out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
            }
            byte => out.push(byte),
        }
    }
    out
}

fn pairs(list: &[String], out: &mut Problems) -> Vec<RegexUri> {
    if !list.len().is_multiple_of(2) {
        out.add(
            "regex_uri",
            "The length of regex_uri should be an even number",
        );
    }
    let mut pairs = Vec::new();
    for (i, pair) in list.chunks_exact(2).enumerate() {
        let (pattern, replacement) = (&pair[0], &pair[1]);
        match RegexUri::parse(pattern, replacement) {
            Ok(pair) => pairs.push(pair),
            Err(e) => {
                let text = format!("invalid regex_uri({pattern}, {replacement}): {e}");
                out.add(&format!("regex_uri[{}]", i * 2), text);
            }
        }
    }
    pairs
}
