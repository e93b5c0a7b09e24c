//! `redirect`: sends clients to another address.
//!
//! A redirect to https looks at the scheme the client used: `X-Forwarded-Proto` of a peer in
//! `apisix.trusted_addresses`, else that of the connection. Its port is
//! `plugin_attr.redirect.https_port` of `config.yaml`, else that of the first TLS listener; 443 is left
//! out. The first, and not a random one as in APISIX, because clients keep a 301.
//!
//! ```yaml
//! plugins:
//!   redirect: { http_to_https: true }
//! ```
//!
//! # Answers
//!
//! All of them carry `Location`, except for 500.
//!
//! | status | when |
//! | --- | --- |
//! | `ret_code` | `uri` is given, or the path matches `regex_uri` |
//! | 301 | `http_to_https`, and the method is `GET` or `HEAD` |
//! | 308 | `http_to_https`, with any other method |
//! | 500 | the expression of `regex_uri` takes too long to search |

mod location;
#[cfg(test)]
mod tests;

use lockgate_plugin::{
    BuildCx, Ctx, HeaderKey, Outcome, Phases, Plugin, PluginError, Problem, Problems, Reply, Step,
    Var,
};
use schemars::JsonSchema;
use serde::Deserialize;

use self::location::{Location, encode_path};
use super::regex_uri::RegexUri;

/// The ports of the gateway's TLS listeners, for redirects to https. Provided by the gateway.
pub struct TlsPorts(pub Vec<u16>);

/// Configuration of `redirect`. Exactly one of `uri`, `regex_uri` and `http_to_https`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The status. Not used by `http_to_https`.
    #[serde(default = "found")]
    #[schemars(range(min = 200, max = 599))]
    ret_code: u16,
    /// Where to: a path or an address. `$name` and `${name}` stand for variables, names being
    /// letters, digits and `_`; what follows `\$` is left as it is.
    #[serde(default)]
    #[schemars(length(min = 2))]
    uri: Option<String>,
    /// Two texts: a regular expression over the path, and what its match is replaced by; `$1` stands
    /// for the first group. A path that does not match is not redirected.
    #[serde(default)]
    #[schemars(length(min = 2, max = 2))]
    regex_uri: Option<Vec<String>>,
    /// Sends http requests to https: status 301 for GET and HEAD, else 308, which keeps the method.
    /// `false` redirects nothing.
    #[serde(default)]
    http_to_https: Option<bool>,
    /// Percent-encodes the address up to its query.
    #[serde(default)]
    encode_uri: bool,
    /// Appends the query of the request. Not together with `http_to_https`, which always does.
    #[serde(default)]
    append_query_string: bool,
}

fn found() -> u16 {
    302
}

/// The built plugin.
pub struct Redirect {
    to: To,
    encode: bool,
    append_query: bool,
    location: HeaderKey,
    forwarded_proto: HeaderKey,
    /// The answer without its `Location`.
    reply: Reply,
}

enum To {
    Uri(Location),
    Regex(RegexUri),
    /// Https; what stands between host and path, such as `:9443`.
    Https(String),
    /// `http_to_https: false`.
    Nowhere,
}

impl Plugin for Redirect {
    const NAME: &'static str = "redirect";
    const PRIORITY: i32 = 900;
    const PHASES: Phases = Phases::REWRITE;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        out.exactly_one(&[
            ("uri", conf.uri.is_some()),
            ("regex_uri", conf.regex_uri.is_some()),
            ("http_to_https", conf.http_to_https.is_some()),
        ]);
        if conf.http_to_https == Some(true) && conf.append_query_string {
            out.add(
                "",
                "only one of `http_to_https` and `append_query_string` can be configured.",
            );
        }
    }

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<Redirect, Problems> {
        let to = match (&conf.uri, conf.regex_uri.as_deref(), conf.http_to_https) {
            (Some(uri), ..) => To::Uri(Location::parse(uri)),
            (_, Some([pattern, replacement]), _) => {
                To::Regex(RegexUri::parse(pattern, replacement).map_err(|e| {
                    let text = format!("invalid regex_uri ({pattern}, {replacement}), err:{e}");
                    Problem::new("regex_uri", text)
                })?)
            }
            (.., Some(true)) => To::Https(https_port(bx)?),
            _ => To::Nowhere,
        };
        Ok(Redirect {
            to,
            encode: conf.encode_uri,
            append_query: conf.append_query_string,
            location: HeaderKey::constant("Location"),
            forwarded_proto: HeaderKey::constant("X-Forwarded-Proto"),
            reply: Reply::status(conf.ret_code).because("redirected"),
        })
    }

    fn phases(&self) -> Phases {
        if matches!(self.to, To::Nowhere) {
            Phases::NONE
        } else {
            Phases::REWRITE
        }
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        matches!(&self.to, To::Uri(location) if location.any_var(is))
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let mut reply = self.reply.clone();
        let mut location = match &self.to {
            To::Nowhere => return Ok(Step::Next),
            To::Https(_) if self.came_by_https(cx) => return Ok(Step::Next),
            To::Https(port) => {
                reply.status = if matches!(cx.method(), "GET" | "HEAD") {
                    301
                } else {
                    308
                };
                ["https://", &cx.host(), port, &cx.request_uri()].concat()
            }
            To::Uri(uri) => uri.render(cx),
            To::Regex(pair) => match self.replaced(pair, cx.uri())? {
                Some(location) => location,
                None => return Ok(Step::Next),
            },
        };
        if self.encode {
            location = encode_path(&location);
        }
        if self.append_query
            && let Some(args) = cx.args()
        {
            location.push(if location.contains('?') { '&' } else { '?' });
            location.push_str(args);
        }
        // As an edit and not in the reply: edits escape line ends, which variables may hold.
        cx.set_resp_header(&self.location, location);
        Ok(Step::Reply(reply))
    }
}

impl Redirect {
    /// Whether the client used https, as far as its peer can be believed. A header that a plugin
    /// has set counts as well.
    fn came_by_https(&self, cx: &Ctx<'_>) -> bool {
        let key = &self.forwarded_proto;
        let sent = if cx.work().trusted {
            cx.req_view().header(key)
        } else {
            None
        };
        let scheme = cx.work().request.headers.first(key, sent);
        scheme
            .unwrap_or(cx.scheme().as_bytes())
            .eq_ignore_ascii_case(b"https")
    }

    fn replaced(&self, pair: &RegexUri, path: &str) -> Result<Option<String>, PluginError> {
        match pair.is_match(path) {
            Ok(true) => Ok(pair.replace(path)),
            Ok(false) => Ok(None),
            Err(e) => {
                let pattern = pair.pattern();
                Err(PluginError::new(format!(
                    "cannot match the uri {path} ({pattern}): {e}"
                )))
            }
        }
    }
}

/// What stands between host and path of an https address.
fn https_port(bx: &BuildCx<'_>) -> Result<String, Problem> {
    let port = match bx.attr.get("https_port").filter(|port| !port.is_null()) {
        Some(port) => {
            let number = port
                .as_u64()
                .and_then(|n| u16::try_from(n).ok())
                .filter(|n| *n > 0);
            number.ok_or_else(|| {
                let text =
                    "plugin_attr.redirect.https_port: expected a port from 1 to 65535, found";
                Problem::new("http_to_https", format!("{text} {port}"))
            })?
        }
        None => bx
            .shared::<TlsPorts>()
            .and_then(|ports| ports.0.first().copied())
            .unwrap_or(443),
    };
    Ok(if port == 443 {
        String::new()
    } else {
        format!(":{port}")
    })
}
