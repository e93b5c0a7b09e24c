//! `cors`: answers browsers that ask whether a page of another origin may use this API.
//!
//! An `OPTIONS` request is answered here and never reaches the upstream. The plugin runs before
//! authentication, because a browser sends such a request without credentials. Every response gets the
//! headers that allow its origin, also one that the gateway makes, and `Vary: Origin` when they depend
//! on it. An origin that is not allowed gets the response without these headers: keeping it from the
//! page is the browser's part.
//!
//! ```yaml
//! plugins:
//!   cors:
//!     allow_origins: https://shop.example.com,https://admin.example.com
//!     allow_methods: GET,POST
//!     allow_headers: Authorization
//!     allow_credential: true
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | 200 | empty | the method is `OPTIONS`, whatever the origin |

mod origins;

use std::collections::BTreeMap;

use bytes::Bytes;
use lockgate_plugin::{
    BuildCx, Ctx, HeaderKey, Outcome, Phases, Plugin, PluginError, Problems, Reply, Step,
};
use schemars::JsonSchema;
use serde::Deserialize;

use self::origins::{Allowed, Origins};

/// What `**` stands for in `allow_methods`.
const ALL_METHODS: &str = "GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS,CONNECT,TRACE";

/// The message for a wildcard that browsers refuse together with credentials.
const WILDCARD_WITH_CREDENTIAL: &str =
    "you can not set '*' for other option when 'allow_credential' is true";

/// Configuration of `cors`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The origins that may read responses. `*`: any origin, but no credentials. `**`: any
    /// origin, by repeating the request's own; with `allow_credential` that lets every site act
    /// in a user's name. `null`, or origins such as `https://a.example.com:8443` separated by `,`.
    /// A single origin is sent whatever the request's is; of several, only the request's own.
    #[serde(default = "star")]
    #[schemars(regex(pattern = r"^(\*|\*\*|null|\w+://[^,]+(,\w+://[^,]+)*)$"))]
    allow_origins: String,
    /// The methods that may be used: names separated by `,`. `*`: any, but no credentials.
    /// `**`: all common ones, by name.
    #[serde(default = "star")]
    allow_methods: String,
    /// The request headers that may be sent: names separated by `,`. `*`: any, but no
    /// credentials. `**`: those the browser asks for.
    #[serde(default = "star")]
    allow_headers: String,
    /// The response headers that a page may read: names separated by `,`, or `*` without
    /// credentials. Without it, browsers show the seven simple ones.
    #[serde(default)]
    expose_headers: Option<String>,
    /// How long a browser may remember the answer to `OPTIONS`. Unit: seconds; -1: not at all.
    #[serde(default = "default_max_age")]
    max_age: i64,
    /// Whether requests may carry cookies and `Authorization`. No option may be `*` then.
    #[serde(default)]
    allow_credential: bool,
    /// Regular expressions searched in the request's origin; used instead of `allow_origins`.
    /// Anchor them (`^https://[a-z]+\.example\.com$`), or `https://example.com.evil.test` fits too.
    #[serde(default)]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    allow_origins_by_regex: Option<Vec<String>>,
    /// Names of origin lists in the plugin metadata (`allow_origins`), tried in order when the
    /// options above do not allow the request's origin.
    #[serde(default)]
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)))]
    allow_origins_by_metadata: Option<Vec<String>>,
    /// The origins that may read resource timings, written as in `allow_origins`; sent as
    /// `Timing-Allow-Origin`. Without it the header is not sent.
    #[serde(default)]
    #[schemars(regex(pattern = r"^(\*|\*\*|null|\w+://[^,]+(,\w+://[^,]+)*)$"))]
    timing_allow_origins: Option<String>,
    /// Regular expressions searched in the request's origin; used instead of
    /// `timing_allow_origins`.
    #[serde(default)]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    timing_allow_origins_by_regex: Option<Vec<String>>,
}

/// Plugin metadata of `cors`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Lists of origins by name, each written as `allow_origins` of the plugin.
    #[serde(default)]
    allow_origins: BTreeMap<String, OriginList>,
}

/// `*`, `**`, `null`, or origins separated by `,`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
struct OriginList(
    #[schemars(regex(pattern = r"^(\*|\*\*|null|\w+://[^,]+(,\w+://[^,]+)*)$"))]
    String,
);

fn star() -> String {
    "*".to_owned()
}

fn default_max_age() -> i64 {
    5
}

/// The plugin.
pub struct Cors {
    names: Names,
    origins: Origins,
    /// Lists from the metadata, in the order of `allow_origins_by_metadata`.
    more: Box<[Origins]>,
    vary: bool,
    timing: Option<Origins>,
    methods: Bytes,
    max_age: Bytes,
    expose: Option<Bytes>,
    /// `None` repeats what the browser asks for.
    headers: Option<Bytes>,
    credential: bool,
}

/// The headers read and written here.
struct Names {
    origin: HeaderKey,
    request_headers: HeaderKey,
    allow_origin: HeaderKey,
    allow_methods: HeaderKey,
    allow_headers: HeaderKey,
    allow_credentials: HeaderKey,
    expose_headers: HeaderKey,
    max_age: HeaderKey,
    timing: HeaderKey,
    vary: HeaderKey,
}

impl Names {
    fn new() -> Names {
        Names {
            origin: HeaderKey::constant("Origin"),
            request_headers: HeaderKey::constant("Access-Control-Request-Headers"),
            allow_origin: HeaderKey::constant("Access-Control-Allow-Origin"),
            allow_methods: HeaderKey::constant("Access-Control-Allow-Methods"),
            allow_headers: HeaderKey::constant("Access-Control-Allow-Headers"),
            allow_credentials: HeaderKey::constant("Access-Control-Allow-Credentials"),
            expose_headers: HeaderKey::constant("Access-Control-Expose-Headers"),
            max_age: HeaderKey::constant("Access-Control-Max-Age"),
            timing: HeaderKey::constant("Timing-Allow-Origin"),
            vary: HeaderKey::constant("Vary"),
        }
    }
}

impl Plugin for Cors {
    const NAME: &'static str = "cors";
    const PRIORITY: i32 = 4000;
    const PHASES: Phases = Phases::REWRITE.and(Phases::HEADER_FILTER);
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        if conf.allow_credential {
            let wildcards = [
                ("allow_origins", Some(&conf.allow_origins)),
                ("allow_methods", Some(&conf.allow_methods)),
                ("allow_headers", Some(&conf.allow_headers)),
                ("expose_headers", conf.expose_headers.as_ref()),
                ("timing_allow_origins", conf.timing_allow_origins.as_ref()),
            ];
            for (name, value) in wildcards {
                if value.is_some_and(|value| value == "*") {
                    out.add(name, WILDCARD_WITH_CREDENTIAL);
                }
            }
        }
        let values = [
            ("allow_methods", Some(&conf.allow_methods)),
            ("allow_headers", Some(&conf.allow_headers)),
            ("expose_headers", conf.expose_headers.as_ref()),
        ];
        for (name, value) in values {
            if value.is_some_and(|value| !lockgate_plugin::edits::is_clean(value.as_bytes())) {
                out.add(name, "a header value cannot hold control characters");
            }
        }
    }

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<Cors, Problems> {
        let mut out = Problems::default();
        let origins = match &conf.allow_origins_by_regex {
            Some(list) => Origins::by_regex("allow_origins_by_regex", list, &mut out),
            None => Origins::parse(&conf.allow_origins),
        };
        let timing = match (
            &conf.timing_allow_origins_by_regex,
            &conf.timing_allow_origins,
        ) {
            (Some(list), _) => Some(Origins::by_regex(
                "timing_allow_origins_by_regex",
                list,
                &mut out,
            )),
            (None, Some(text)) => Some(Origins::parse(text)),
            (None, None) => None,
        };
        out.into_result()?;

        let lists = bx.metadata::<Metadata>().unwrap_or_default().allow_origins;
        let keys = conf.allow_origins_by_metadata.unwrap_or_default();
        // A name without a list allows nothing: the metadata may come later, and then the
        // plugin is built again.
        let more = keys.iter().filter_map(|key| lists.get(key));
        let more = more.map(|OriginList(text)| Origins::parse(text)).collect();

        let methods = if conf.allow_methods == "**" {
            Bytes::from_static(ALL_METHODS.as_bytes())
        } else {
            Bytes::from(conf.allow_methods)
        };
        Ok(Cors {
            names: Names::new(),
            // Beyond APISIX: also with `allow_origins_by_regex` alone, where a shared cache
            // would otherwise give one origin's answer to another.
            vary: !matches!(origins, Origins::Any),
            origins,
            more,
            timing,
            methods,
            max_age: Bytes::from(conf.max_age.to_string()),
            expose: conf
                .expose_headers
                .filter(|list| !list.is_empty())
                .map(Bytes::from),
            headers: (conf.allow_headers != "**").then(|| Bytes::from(conf.allow_headers)),
            credential: conf.allow_credential,
        })
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        // The method the client sent: a plugin that changes it for the upstream does not turn a
        // request into a question about origins.
        if cx.req_view().method() != "OPTIONS" {
            return Ok(Step::Next);
        }
        Ok(Step::Reply(
            Reply::text(200, Bytes::new()).because("CORS preflight"),
        ))
    }

    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        if self.vary {
            cx.append_resp_header(&self.names.vary, Bytes::from_static(b"Origin"));
        }
        let origin = cx.req_view().header(&self.names.origin);
        let timing = self
            .timing
            .as_ref()
            .and_then(|origins| origins.allow(origin));
        let timing = timing.map(|(allowed, _)| allowed.into_value(origin));
        let allowed = self
            .allowed(origin)
            .map(|allowed| allowed.into_value(origin));
        if let Some(allowed) = allowed {
            self.allow(allowed, cx);
        }
        if let Some(allowed) = timing {
            cx.set_resp_header(&self.names.timing, allowed);
        }
        Ok(())
    }
}

impl Cors {
    fn allowed(&self, origin: Option<&[u8]>) -> Option<Allowed> {
        let own = self.origins.allow(origin);
        if let Some((allowed, true)) = own {
            return Some(allowed);
        }
        let listed = self.more.iter().find_map(|list| match list.allow(origin) {
            Some((allowed, true)) => Some(allowed),
            _ => None,
        });
        listed.or(own.map(|(allowed, _)| allowed))
    }

    fn allow(&self, origin: Bytes, cx: &mut Ctx<'_>) {
        let names = &self.names;
        cx.set_resp_header(&names.allow_origin, origin);
        cx.set_resp_header(&names.allow_methods, self.methods.clone());
        cx.set_resp_header(&names.max_age, self.max_age.clone());
        if let Some(expose) = &self.expose {
            cx.set_resp_header(&names.expose_headers, expose.clone());
        }
        match &self.headers {
            Some(headers) => cx.set_resp_header(&names.allow_headers, headers.clone()),
            None => {
                let asked = cx.req_view().header(&names.request_headers);
                match asked.map(Bytes::copy_from_slice) {
                    Some(asked) => cx.set_resp_header(&names.allow_headers, asked),
                    None => cx.remove_resp_header(&names.allow_headers),
                }
            }
        }
        if self.credential {
            cx.set_resp_header(&names.allow_credentials, Bytes::from_static(b"true"));
        }
    }
}

#[cfg(test)]
mod tests;
