//! `key-auth`: recognises a consumer by a key in a header or query argument.
//!
//! The header is looked at first; when it is there, even empty, the query argument is not. With a known
//! key the request goes on as that consumer's: its plugins join in, and the upstream learns the name in
//! `X-Consumer-Username`, `X-Credential-Identifier` and `X-Consumer-Custom-ID`. What a client sent under
//! these names is removed.
//!
//! ```yaml
//! routes:
//!   - id: orders
//!     uri: /orders/*
//!     plugins:
//!       key-auth: { header: X-Api-Key, hide_credentials: true }
//!     upstream: { nodes: { "127.0.0.1:1980": 1 } }
//! consumers:
//!   - username: ann
//!     plugins:
//!       key-auth: { key: "${{ANNS_KEY}}" }
//! ```
//!
//! # Answers
//!
//! Each of them is status 401 with `WWW-Authenticate: apikey realm="key"` and one of these bodies.
//!
//! | body | when |
//! | --- | --- |
//! | `{"message":"Missing API key in request"}` | neither header nor argument, and no `anonymous_consumer` |
//! | `{"message":"Invalid API key in request"}` | nobody's key, and no `anonymous_consumer` |
//! | `{"message":"Invalid user authorization"}` | the `anonymous_consumer` does not exist |

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use lockgate_plugin::target;
use lockgate_plugin::{
    BuildCx, ConsumerCredential, Credential, Ctx, HeaderKey, Outcome, Phases, Plugin, Problem,
    Problems, Reply, Step,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of `key-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The header that holds the key.
    #[serde(default = "apikey")]
    header: String,
    /// The query argument that holds the key of requests without the header. Its name is compared
    /// with regard to case, and decoded first.
    #[serde(default = "apikey")]
    query: String,
    /// Removes the key from the request before it goes upstream: the header or argument that was
    /// used, both for the anonymous consumer.
    #[serde(default)]
    hide_credentials: bool,
    /// The realm in the `WWW-Authenticate` of a refusal: printable ASCII without `"` and `\`.
    #[serde(default = "realm")]
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = r#"^[\x20\x21\x23-\x5B\x5D-\x7E]+$"#)
    )]
    realm: String,
    /// The name of the consumer that stands for callers without a valid key. Without it they are
    /// refused.
    #[serde(default)]
    #[schemars(length(min = 1))]
    anonymous_consumer: Option<String>,
}

fn apikey() -> String {
    "apikey".to_owned()
}

fn realm() -> String {
    "key".to_owned()
}

/// What a consumer or one of its credentials is recognised by.
// No `Debug`, so that a key cannot end up in a log.
#[derive(Deserialize, JsonSchema)]
pub struct Key {
    /// The key, as clients send it; unique among consumers. Compared byte by byte.
    key: String,
}

impl Credential for Key {
    const ATTRIBUTE: &'static str = "key";
    fn lookup(&self) -> &str {
        &self.key
    }
}

/// The built plugin.
pub struct KeyAuth {
    header: HeaderKey,
    query: String,
    hide: bool,
    anonymous: Option<String>,
    missing: Reply,
    invalid: Reply,
    no_anonymous: Reply,
}

/// Where the key may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Header,
    Query,
    Both,
}

/// What a request presents.
enum Presented {
    /// A consumer's key.
    Of(Arc<ConsumerCredential>, Place),
    Missing,
    Invalid,
}

impl Plugin for KeyAuth {
    const NAME: &'static str = "key-auth";
    const PRIORITY: i32 = 2500;
    const PHASES: Phases = Phases::REWRITE;
    type Conf = Conf;

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<KeyAuth, Problems> {
        let header = conf
            .header
            .parse()
            .map_err(|e| Problem::new("header", format!("`{}` is {e}", conf.header)))?;
        let challenge = Bytes::from(format!("apikey realm=\"{}\"", conf.realm));
        let name = HeaderKey::constant("WWW-Authenticate");
        let refuse = |text: &str, why: &'static str| {
            Reply::message(401, text)
                .header(&name, challenge.clone())
                .because(why)
        };
        Ok(KeyAuth {
            header,
            query: conf.query,
            hide: conf.hide_credentials,
            anonymous: conf.anonymous_consumer,
            missing: refuse("Missing API key in request", "missing API key"),
            invalid: refuse("Invalid API key in request", "invalid API key"),
            no_anonymous: refuse("Invalid user authorization", "anonymous consumer missing"),
        })
    }

    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)> {
        let key = match self.find(cx) {
            Presented::Of(found, _) => format!("of the consumer {}", found.consumer.username),
            Presented::Missing => "missing".to_owned(),
            Presented::Invalid => "nobody's".to_owned(),
        };
        vec![("key", key)]
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let (found, place) = match self.find(cx) {
            Presented::Of(found, place) => (found, place),
            Presented::Missing => return Ok(self.unrecognised(&self.missing, cx)),
            Presented::Invalid => return Ok(self.unrecognised(&self.invalid, cx)),
        };
        if self.hide {
            self.hide(cx, place);
        }
        cx.set_consumer(&found);
        Ok(Step::Next)
    }
}

impl KeyAuth {
    /// What happens to a caller that is not recognised: the anonymous consumer, else a refusal.
    /// Whose key the request has.
    fn find(&self, cx: &Ctx<'_>) -> Presented {
        let (found, place) = if let Some(key) = cx.header(&self.header) {
            // A key is text, so bytes that are none are nobody's key.
            let key = std::str::from_utf8(key).ok();
            (
                key.and_then(|key| cx.find_credential(Self::NAME, key)),
                Place::Header,
            )
        } else if let Some(key) = cx.arg(&self.query) {
            (cx.find_credential(Self::NAME, &key), Place::Query)
        } else {
            return Presented::Missing;
        };
        found.map_or(Presented::Invalid, |found| Presented::Of(found, place))
    }

    fn unrecognised(&self, refusal: &Reply, cx: &mut Ctx<'_>) -> Step<'static> {
        let Some(name) = &self.anonymous else {
            return Step::Reply(refusal.clone());
        };
        let Some(found) = cx.find_consumer(name) else {
            return Step::Reply(self.no_anonymous.clone());
        };
        if self.hide {
            self.hide(cx, Place::Both);
        }
        cx.set_consumer(&found);
        Step::Next
    }

    fn hide(&self, cx: &mut Ctx<'_>, place: Place) {
        if place != Place::Query {
            cx.remove_header(&self.header);
        }
        if place != Place::Header
            && let Some(args) = cx.args()
        {
            // By decoded name, as the key was found, or `api%6bey=` would go upstream.
            let keep = |pair: &&str| target::arg(pair, &self.query).is_none();
            if args.split('&').all(|pair| keep(&pair)) {
                return;
            }
            let rest = args
                .split('&')
                .filter(keep)
                .collect::<Vec<&str>>()
                .join("&");
            let path = cx.uri().to_owned();
            cx.set_uri(&path, (!rest.is_empty()).then_some(rest.as_str()));
        }
    }
}
