//! `redirect`: sends clients elsewhere.

use bytes::Bytes;
use lockgate_plugin::{
    BuildCx, Ctx, HeaderKey, Outcome, Pattern, Phases, Plugin, Problems, Reply, Step, Template,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The ports of the gateway's TLS listeners, for redirects to https. Provided by the gateway.
pub struct TlsPorts(pub Vec<u16>);

/// Configuration of `redirect`. Exactly one of `uri`, `regex_uri` and `http_to_https`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The status.
    #[serde(default = "found")]
    #[schemars(range(min = 200, max = 599))]
    ret_code: u16,
    /// Where to; `$variables` are filled in, `\$` is a dollar.
    #[serde(default)]
    #[schemars(length(min = 2), regex(pattern = r"(\\\$[0-9a-zA-Z_]+)|\$\{([0-9a-zA-Z_]+)\}|\$([0-9a-zA-Z_]+)|(\$|[^$\\]+)"))]
    uri: Option<String>,
    /// A regular expression over the path, and the address it is replaced by.
    #[serde(default)]
    #[schemars(length(min = 2, max = 2))]
    regex_uri: Option<Vec<String>>,
    /// Sends http requests to https; the status is 301, or 308 for methods with a body.
    #[serde(default)]
    http_to_https: Option<bool>,
    /// Percent-encodes the address.
    #[serde(default)]
    encode_uri: bool,
    /// Appends the query of the request.
    #[serde(default)]
    append_query_string: bool,
}

fn found() -> u16 {
    302
}

/// The built plugin.
pub struct Redirect {
    to: To,
    status: u16,
    encode: bool,
    append_query: bool,
    location: HeaderKey,
    forwarded_proto: HeaderKey,
}

enum To {
    Uri(Template),
    Regex(Pattern, String),
    /// Https on this port.
    Https(u16),
    /// `http_to_https: false`.
    Nowhere,
}

impl Plugin for Redirect {
    const NAME: &'static str = "redirect";
    const PRIORITY: i32 = 900;
    const PHASES: Phases = Phases::REWRITE;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        let given = [conf.uri.is_some(), conf.regex_uri.is_some(), conf.http_to_https.is_some()];
        match given.iter().filter(|given| **given).count() {
            0 => out.add("", "value should match only one schema, but matches none"),
            1 => {}
            _ => out.add("", "value should match only one schema, but several of uri, regex_uri and http_to_https are given"),
        }
        if conf.http_to_https == Some(true) && conf.append_query_string {
            out.add("append_query_string", "only one of `http_to_https` and `append_query_string` can be configured");
        }
        if let Some([regex, _]) = conf.regex_uri.as_deref()
            && let Err(e) = Pattern::new(regex)
        {
            out.add("regex_uri[0]", format!("invalid regex_uri({regex}): {e}"));
        }
    }

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<Redirect, Problems> {
        let to = if conf.http_to_https == Some(true) {
            To::Https(https_port(bx)?)
        } else if let Some(uri) = &conf.uri {
            To::Uri(Template::parse(&uri.replace("\\$", "${__dollar ?? $}")))
        } else if let Some([regex, replacement]) = conf.regex_uri.as_deref() {
            match Pattern::new(regex) {
                Ok(pattern) => To::Regex(pattern, replacement.clone()),
                // `check` has compiled it already.
                Err(_) => To::Nowhere,
            }
        } else {
            To::Nowhere
        };
        Ok(Redirect {
            to,
            status: conf.ret_code,
            encode: conf.encode_uri,
            append_query: conf.append_query_string,
            location: HeaderKey::constant("Location"),
            forwarded_proto: HeaderKey::constant("X-Forwarded-Proto"),
        })
    }

    fn phases(&self) -> Phases {
        if matches!(self.to, To::Nowhere) { Phases::NONE } else { Phases::REWRITE }
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let (status, mut location) = match &self.to {
            To::Nowhere => return Ok(Step::Next),
            To::Https(port) => match self.https(cx, *port) {
                Some((status, location)) => (status, location),
                None => return Ok(Step::Next),
            },
            To::Uri(uri) => (self.status, uri.render(&cx.lookup()).into_owned()),
            To::Regex(pattern, replacement) => match pattern.replace_once(cx.uri(), replacement) {
                Some(location) => (self.status, location),
                None => return Ok(Step::Next),
            },
        };
        if self.encode {
            location = encoded(&location);
        }
        if self.append_query
            && let Some(args) = cx.args()
        {
            location.push(if location.contains('?') { '&' } else { '?' });
            location.push_str(args);
        }
        let reply = Reply::status(status).header(&self.location, Bytes::from(location));
        Ok(Step::Reply(reply.because("redirected")))
    }
}

impl Redirect {
    fn https(&self, cx: &Ctx<'_>, port: u16) -> Option<(u16, String)> {
        let scheme = cx.header_str(&self.forwarded_proto).unwrap_or(cx.scheme());
        if scheme.eq_ignore_ascii_case("https") {
            return None;
        }
        let status = if matches!(cx.method(), "GET" | "HEAD") { 301 } else { 308 };
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        Some((status, format!("https://{}{port}{}", cx.host(), cx.request_uri())))
    }
}

/// `plugin_attr.redirect.https_port`, else the first TLS listener, else 443.
fn https_port(bx: &BuildCx<'_>) -> Result<u16, Problems> {
    if let Some(port) = bx.attr.get("https_port") {
        return port.as_u64().and_then(|n| u16::try_from(n).ok()).ok_or_else(|| {
            let mut out = Problems::default();
            out.add("http_to_https", format!("plugin_attr.redirect.https_port: expected a port, found {port}"));
            out
        });
    }
    let listeners = bx.shared::<TlsPorts>();
    Ok(listeners.and_then(|ports| ports.0.first().copied()).unwrap_or(443))
}

/// Percent-encodes what may not stand in an address, keeping what structures it.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{Request, build_error, run};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn check(request: Request, target: &str, expected: Option<(u16, &str)>) {
        let run = request.host("h.test").get(target);
        match expected {
            Some((status, location)) => {
                assert_eq!(run.expect_reply(status).header("location").as_deref(), Some(location), "{target}");
            }
            None => {
                let _ = run.expect_next();
            }
        }
    }

    fn with(conf: Value) -> Request {
        run::<Redirect>(conf)
    }

    #[test]
    fn addresses() {
        check(with(json!({"uri": "/new"})), "/old?a=1", Some((302, "/new")));
        check(with(json!({"uri": "/new$uri", "ret_code": 301})), "/old", Some((301, "/new/old")));
        check(with(json!({"uri": "/x/${arg_id}/y"})), "/?id=5", Some((302, "/x/5/y")));
        check(with(json!({"uri": "/a\\$uri"})), "/", Some((302, "/a$uri")));
        check(with(json!({"uri": "/new", "append_query_string": true})), "/old?a=1", Some((302, "/new?a=1")));
        check(with(json!({"uri": "/new?b=2", "append_query_string": true})), "/old?a=1", Some((302, "/new?b=2&a=1")));
        check(with(json!({"uri": "/a b", "encode_uri": true})), "/", Some((302, "/a%20b")));
        check(with(json!({"regex_uri": ["^/t/(.*)$", "http://x.test/$1"]})), "/t/y", Some((302, "http://x.test/y")));
        check(with(json!({"regex_uri": ["^/t/(.*)$", "http://x.test/$1"]})), "/u", None);
    }

    #[test]
    fn to_https() {
        let conf = json!({"http_to_https": true});
        check(with(conf.clone()), "/a?b", Some((301, "https://h.test/a?b")));
        check(with(conf.clone()).method("POST"), "/a", Some((308, "https://h.test/a")));
        check(with(conf.clone()).header("X-Forwarded-Proto", "https"), "/a", None);
        check(with(conf.clone()).tls("h.test"), "/a", None);
        check(with(conf.clone()).attr(json!({"https_port": 8443})), "/a", Some((301, "https://h.test:8443/a")));
        check(with(conf).shared(Arc::new(TlsPorts(vec![9443]))), "/a", Some((301, "https://h.test:9443/a")));
        check(with(json!({"http_to_https": false})), "/a", None);
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |conf: Value, expected: &str| {
            let text = build_error::<Redirect>(conf);
            assert!(text.contains(expected), "{text}");
        };
        check(json!({}), "matches none");
        check(json!({"uri": "/a", "http_to_https": true}), "only one schema");
        check(json!({"http_to_https": true, "append_query_string": true}), "append_query_string");
        check(json!({"regex_uri": ["(", "x"]}), "invalid regex_uri");
        check(json!({"regex_uri": ["a"]}), "at least 2 items");
        check(json!({"uri": "/a", "ret_code": 100}), "at least 200");
    }
}
