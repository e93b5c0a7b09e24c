//! `key-auth`: a consumer is recognised by a key in a header or query argument.
//!
//! The header is looked at first, even when it is empty. A request without a known key gets 401,
//! or goes on as `anonymous_consumer`.
//!
//! ```yaml
//! routes:
//!   - { uri: /orders/*, plugins: { key-auth: { header: X-Api-Key, hide_credentials: true } } }
//! consumers:
//!   - { username: ann, plugins: { key-auth: { key: "$env://ANNS_KEY" } } }
//! ```

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

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{Request, build_error, run_def};
    use lockgate_plugin::{Consumer, PluginDef, Problems, def};
    use serde_json::{Value, json};

    const DEF: PluginDef = def::<KeyAuth>().credential::<Key>();

    fn request(conf: Value) -> Request {
        let guest = Consumer {
            username: "guest".into(),
            ..Consumer::default()
        };
        run_def(DEF, conf)
            .known(guest)
            .consumer("ann", json!({"key": "k 1"}))
    }

    /// Who the caller is, the key header that goes upstream, and the target.
    fn check(
        conf: Value,
        header: Option<&str>,
        target: &str,
        expected: (&str, Option<&str>, &str),
    ) {
        let mut request = request(conf.clone());
        if let Some(value) = header {
            request = request.header("apikey", value);
        }
        let run = request
            .header("X-Consumer-Username", "forged")
            .get(target)
            .expect_next();
        assert_eq!(
            run.upstream_headers("x-consumer-username"),
            [expected.0],
            "{conf} {target}"
        );
        assert_eq!(
            run.upstream_header("apikey").as_deref(),
            expected.1,
            "{conf} {target}"
        );
        assert_eq!(run.upstream_target(), expected.2, "{conf} {target}");
    }

    #[test]
    fn a_key_is_taken_from_the_header_or_the_query() {
        check(json!({}), Some("k 1"), "/", ("ann", Some("k 1"), "/"));
        check(
            json!({}),
            Some("k 1"),
            "/?apikey=bad",
            ("ann", Some("k 1"), "/?apikey=bad"),
        );
        check(
            json!({}),
            None,
            "/?a=1&apikey=k%201",
            ("ann", None, "/?a=1&apikey=k%201"),
        );
        check(
            json!({"query": "k"}),
            None,
            "/?k=k+1&k=2",
            ("ann", None, "/?k=k+1&k=2"),
        );
        let run = request(json!({"header": "X-Key"}))
            .header("x-key", "k 1")
            .get("/")
            .expect_next();
        assert_eq!(run.consumer(), Some("ann"));
    }

    #[test]
    fn refusals() {
        let check = |request: Request, target: &str, message: &str| {
            let answer = request.get(target).expect_reply(401);
            assert_eq!(
                answer.text(),
                format!("{}\n", json!({ "message": message }))
            );
            assert_eq!(
                answer.headers("www-authenticate"),
                ["apikey realm=\"a realm\""]
            );
        };
        let conf = json!({"realm": "a realm"});
        check(
            request(conf.clone()),
            "/?APIKEY=k",
            "Missing API key in request",
        );
        check(
            request(conf.clone()),
            "/?apikey=nope",
            "Invalid API key in request",
        );
        check(
            request(conf.clone()),
            "/?apikey",
            "Invalid API key in request",
        );
        check(
            request(conf.clone()).header("apikey", "nope"),
            "/",
            "Invalid API key in request",
        );
        check(
            request(conf.clone()).header("apikey", b"k\xff"),
            "/",
            "Invalid API key in request",
        );
        // An empty header is a key, so the argument is not looked at.
        check(
            request(conf).header("apikey", ""),
            "/?apikey=k%201",
            "Invalid API key in request",
        );
        let nobody = json!({"realm": "a realm", "anonymous_consumer": "nobody"});
        check(request(nobody), "/", "Invalid user authorization");
    }

    #[test]
    fn credentials_are_hidden() {
        let conf = json!({"hide_credentials": true});
        check(
            conf.clone(),
            Some("k 1"),
            "/p?apikey=x",
            ("ann", None, "/p?apikey=x"),
        );
        check(
            conf.clone(),
            None,
            "/p?a=1&apikey=k%201&b=%20",
            ("ann", None, "/p?a=1&b=%20"),
        );
        check(
            conf.clone(),
            None,
            "/p?apikey=k%201&apikey=2",
            ("ann", None, "/p"),
        );
        check(
            conf,
            None,
            "/a%20b?api%6bey=k+1&z",
            ("ann", None, "/a%20b?z"),
        );
    }

    #[test]
    fn hidden_arguments_are_hidden_from_later_plugins_too() {
        let conf = json!({"hide_credentials": true});
        let run = request(conf).get("/p?apikey=k%201&b=2").expect_next();
        assert_eq!(run.var("args").as_deref(), Some("b=2"));
        assert_eq!(run.var("uri").as_deref(), Some("/p"));
    }

    #[test]
    fn an_anonymous_consumer_stands_in() {
        let conf = json!({"anonymous_consumer": "guest"});
        check(
            conf.clone(),
            Some("bad"),
            "/?apikey=x",
            ("guest", Some("bad"), "/?apikey=x"),
        );
        check(conf.clone(), None, "/", ("guest", None, "/"));
        check(conf, Some("k 1"), "/", ("ann", Some("k 1"), "/"));
        let hide = json!({"anonymous_consumer": "guest", "hide_credentials": true});
        check(
            hide,
            Some("bad"),
            "/?apikey=x&a=1",
            ("guest", None, "/?a=1"),
        );
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |conf: Value, expected: &str| {
            let text = build_error::<KeyAuth>(conf);
            assert!(text.contains(expected), "{text}");
        };
        check(
            json!({"header": 1}),
            "header: wrong type: expected string, got number",
        );
        check(
            json!({"header": "a b"}),
            "header: `a b` is not a header name",
        );
        check(json!({"realm": ""}), "realm: string too short");
        check(json!({"realm": "a\"b"}), "realm: failed to match pattern");
        check(
            json!({"anonymous_consumer": ""}),
            "anonymous_consumer: string too short",
        );
    }

    #[test]
    fn credentials_that_are_refused() {
        let check = |value: Value, expected: &str| {
            let parsed = DEF.credential.unwrap().parse;
            let text = parsed(&value).err().as_ref().map(Problems::to_string);
            assert_eq!(text.as_deref(), Some(expected));
        };
        check(json!({}), "property \"key\" is required");
        check(
            json!({"key": 1}),
            "key: wrong type: expected string, got number",
        );
    }
}
