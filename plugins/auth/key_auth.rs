//! `key-auth`: a consumer is recognised by a key in a header or query argument.

use std::borrow::Cow;

use bytes::Bytes;
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
    /// The query argument that holds it where the header is absent.
    #[serde(default = "apikey")]
    query: String,
    /// Removes the key from the request before it goes upstream.
    #[serde(default)]
    hide_credentials: bool,
    /// The realm in `WWW-Authenticate`.
    #[serde(default = "realm")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r#"^[\x20\x21\x23-\x5B\x5D-\x7E]+$"#))]
    realm: String,
    /// The consumer that stands for callers without a valid key.
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

/// Configuration of `key-auth` on a consumer or credential.
#[derive(Debug, Deserialize, JsonSchema)]
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
            Reply::message(401, text).header(&name, challenge.clone()).because(why)
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
        let in_header = cx.header(&self.header).map(|value| String::from_utf8_lossy(value).into_owned());
        let key = match in_header {
            Some(key) => Some((key, true)),
            None => cx.arg(&self.query).map(|key| (Cow::into_owned(key), false)),
        };
        let Some((key, in_header)) = key else { return Ok(self.refuse(&self.missing, cx)) };
        let Some(found) = cx.find_credential(Self::NAME, &key) else {
            return Ok(self.refuse(&self.invalid, cx));
        };
        if self.hide {
            self.hide(cx, in_header, !in_header);
        }
        cx.set_consumer(&found);
        Ok(Step::Next)
    }
}

impl KeyAuth {
    /// The answer for a caller that is not recognised: the anonymous consumer, else a refusal.
    fn refuse(&self, reply: &Reply, cx: &mut Ctx<'_>) -> Step<'static> {
        let Some(name) = &self.anonymous else { return Step::Reply(reply.clone()) };
        let Some(found) = cx.find_consumer(name) else {
            return Step::Reply(self.no_anonymous.clone());
        };
        if self.hide {
            self.hide(cx, true, true);
        }
        cx.set_consumer(&found);
        Step::Next
    }

    fn hide(&self, cx: &mut Ctx<'_>, header: bool, query: bool) {
        if header {
            cx.remove_header(&self.header);
        }
        if query && let Some(args) = cx.args() {
            let keep = |pair: &&str| {
                let name = pair.split('=').next().unwrap_or(pair);
                name != self.query
            };
            let rest: Vec<&str> = args.split('&').filter(keep).collect();
            let rest = rest.join("&");
            if rest.len() != args.len() {
                let path = cx.uri().to_owned();
                cx.set_uri(&path, (!rest.is_empty()).then_some(rest.as_str()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{Request, build_error, run_def};
    use lockgate_plugin::{PluginDef, def};
    use serde_json::{Value, json};

    const DEF: PluginDef = def::<KeyAuth>().credential::<Key>();

    fn request(conf: Value) -> Request {
        run_def(DEF, conf).consumer("ann", json!({"key": "k1"})).consumer("guest", json!({"key": "k2"}))
    }

    #[test]
    fn a_key_is_taken_from_the_header_or_the_query() {
        let run = request(json!({})).header("apikey", "k1").get("/").expect_next();
        assert_eq!(run.upstream_header("x-consumer-username").as_deref(), Some("ann"));
        assert_eq!(run.upstream_header("apikey").as_deref(), Some("k1"));
        let run = request(json!({"query": "k"})).get("/?a=1&k=k1").expect_next();
        assert_eq!(run.consumer(), Some("ann"));
        let run = request(json!({"header": "X-Key"})).header("x-key", "k1").get("/").expect_next();
        assert_eq!(run.consumer(), Some("ann"));
    }

    #[test]
    fn refusals() {
        let check = |request: Request, message: &str| {
            let answer = request.get("/?apikey2=k1").expect_reply(401);
            assert_eq!(answer.json(), json!({ "message": message }));
            assert_eq!(answer.header("www-authenticate").as_deref(), Some("apikey realm=\"key\""));
        };
        check(request(json!({})), "Missing API key in request");
        check(request(json!({})).header("apikey", "nope"), "Invalid API key in request");
        check(request(json!({})).header("apikey", ""), "Invalid API key in request");
        check(request(json!({"anonymous_consumer": "nobody"})), "Invalid user authorization");
    }

    #[test]
    fn credentials_are_hidden() {
        let conf = json!({"hide_credentials": true});
        let run = request(conf.clone()).header("apikey", "k1").get("/").expect_next();
        assert_eq!(run.upstream_header("apikey"), None);
        let run = request(conf).get("/p?a=1&apikey=k1&b=2").expect_next();
        assert_eq!(run.upstream_target(), "/p?a=1&b=2");
    }

    #[test]
    fn an_anonymous_consumer_stands_in() {
        let run = request(json!({"anonymous_consumer": "guest"})).header("apikey", "nope").get("/").expect_next();
        assert_eq!(run.consumer(), Some("guest"));
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |conf: Value, expected: &str| {
            let text = build_error::<KeyAuth>(conf);
            assert!(text.contains(expected), "{text}");
        };
        check(json!({"header": 1}), "header: wrong type: expected string, got number");
        check(json!({"header": "a b"}), "header: `a b` is not a header name");
        check(json!({"realm": ""}), "realm: string too short");
    }
}
