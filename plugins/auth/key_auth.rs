//! `key-auth`: a consumer is recognised by a key in a header or query argument.
//!
//! The header is looked at first, even when it is empty. A request without a known key gets 401,
//! or goes on as `anonymous_consumer`.
//!
//! ```yaml
//! routes:
//!   - { uri: /orders/*, plugins: { key-auth: { header: X-Api-Key, hide_credentials: true } } }
//! consumers:
//!   - { username: ann, plugins: { key-auth: { key: "${{ANNS_KEY}}" } } }
//! ```

#[cfg(test)]
mod tests;

use bytes::Bytes;
use lockgate_plugin::target;
use lockgate_plugin::{
    BuildCx, Credential, Ctx, HeaderKey, Outcome, Phases, Plugin, Problem, Problems, Reply, Step,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of `key-auth` on a route or service.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The header that holds the key.
    #[serde(default = "apikey")]
    header: String,
    /// The query argument that holds the key of requests without the header. Compared by case.
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

/// Configuration of `key-auth` on a consumer or credential. Has no `Debug`, so that a key cannot
/// end up in a log.
#[derive(Deserialize, JsonSchema)]
pub struct Key {
    /// The key; unique among consumers.
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

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
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
            return Ok(self.unrecognised(&self.missing, cx));
        };
        let Some(found) = found else {
            return Ok(self.unrecognised(&self.invalid, cx));
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
