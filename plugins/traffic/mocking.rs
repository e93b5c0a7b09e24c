//! `mocking`: answers in place of the upstream, with a given text or one made from a schema.
//!
//! A schema gives the same body every time, so that tests can rely on it: the schema's own examples,
//! defaults and enumerations, else `"string"`, `1.5`, `1`, `true`, and lists of one element.
//!
//! ```yaml
//! plugins:
//!   mocking:
//!     response_schema: { type: object, properties: { id: { type: integer, example: 7 } } }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | `response_status` | `response_example`, else one made from `response_schema` | always, after `delay` |

mod sample;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lockgate_plugin::{
    Body, BuildCx, Ctx, Flow, HeaderKey, Outcome, Phases, Plugin, Problems, Reply, Step, Var,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::text::{self, Scalar, Text};

/// Configuration of `mocking`. At least one of `response_example` and `response_schema`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// A pause before the answer; at most an hour. Unit: seconds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    delay: u32,
    /// The status of the answer. Not below 200, unlike in APISIX: such a status announces an answer
    /// and is none.
    #[serde(default = "ok")]
    #[schemars(range(min = 200, max = 599))]
    response_status: u16,
    /// The `Content-Type`: `application/json`, `application/xml`, `text/xml`, `text/plain` or
    /// `text/html`, with parameters if need be.
    #[serde(default = "json_type")]
    content_type: String,
    /// The body; `$variables` are filled in. Goes before `response_schema`.
    #[serde(default)]
    response_example: Option<String>,
    /// A JSON Schema of an object that the body is made from, where there is no example. As XML
    /// for the two XML types; not for `text/html`.
    #[serde(default)]
    response_schema: Option<Map<String, Value>>,
    /// Adds `x-mock-by: APISIX/VERSION`, so that a mock is never taken for the real thing.
    #[serde(default = "yes")]
    with_mock_header: bool,
    /// Response headers to add: texts or numbers by name; `$variables` are filled in. A
    /// `Content-Type` replaces that of `content_type`.
    #[serde(default)]
    #[schemars(extend("minProperties" = 1))]
    response_headers: Option<BTreeMap<String, Scalar>>,
}

fn ok() -> u16 {
    200
}

fn json_type() -> String {
    "application/json;charset=utf8".to_owned()
}

fn yes() -> bool {
    true
}

/// Types that can be mocked.
const TYPES: [&str; 5] = [
    "application/xml",
    "application/json",
    "text/plain",
    "text/html",
    "text/xml",
];

/// Who mocks: the APISIX release whose behaviour this is, whatever `enable_server_tokens` says.
/// Not the process's version, because users match on this text.
const MOCK_BY: &str = "APISIX/3.18.0";

/// The built plugin.
pub struct Mocking {
    delay: Duration,
    /// Complete, unless the body has variables.
    reply: Reply,
    /// Where it has variables.
    body: Option<Text>,
    headers: Vec<(HeaderKey, Text)>,
}

impl Plugin for Mocking {
    const NAME: &'static str = "mocking";
    const PRIORITY: i32 = 10_900;
    const PHASES: Phases = Phases::ACCESS;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        if conf.response_example.is_none() && conf.response_schema.is_none() {
            let text = "object matches none of the required: [\"response_example\"] or [\"response_schema\"]";
            out.add("", text);
        }
        let kind = bare_type(&conf.content_type);
        if !TYPES.contains(&kind) {
            out.add(
                "content_type",
                format!("unsupported content type! allowed: {}", TYPES.join(", ")),
            );
        }
        if conf.content_type.bytes().any(|b| b.is_ascii_control()) {
            out.add("content_type", "invalid value character in header");
        }
        if kind == "text/html" && conf.response_example.is_none() {
            out.add(
                "response_schema",
                "makes JSON, XML and plain text only: text/html needs `response_example`",
            );
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<Mocking, Problems> {
        let mut out = Problems::default();
        let response_headers = conf.response_headers.unwrap_or_default();
        let headers = text::fields(response_headers, &mut out.at("response_headers"));
        out.into_result()?;
        let content_type = HeaderKey::constant("Content-Type");
        let body = Text::parse(&match (conf.response_example, conf.response_schema) {
            (Some(text), _) => text,
            (None, Some(schema)) => sample::body(bare_type(&conf.content_type), &schema),
            // `check` wants one of the two.
            (None, None) => String::new(),
        });
        let mut reply = Reply::text(
            conf.response_status,
            body.constant().cloned().unwrap_or_default(),
        );
        if !headers.iter().any(|(key, _)| *key == content_type) {
            reply = reply.header(&content_type, conf.content_type);
        }
        if conf.with_mock_header {
            let key = HeaderKey::constant("x-mock-by");
            reply = reply.header(&key, Bytes::from_static(MOCK_BY.as_bytes()));
        }
        Ok(Mocking {
            delay: Duration::from_secs(u64::from(conf.delay)),
            reply: reply.because("mocked"),
            body: Some(body).filter(|body| body.constant().is_none()),
            headers,
        })
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let values = self.headers.iter().map(|(_, value)| value);
        values.chain(&self.body).any(|text| text.any_var(is))
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        if self.delay.is_zero() {
            return Ok(Step::Reply(self.reply(cx)));
        }
        let wait = cx.sleep(self.delay);
        Ok(Step::Wait(Box::pin(async move {
            wait.await;
            Ok(Flow::Reply(self.reply(cx)))
        })))
    }
}

impl Mocking {
    fn reply(&self, cx: &mut Ctx<'_>) -> Reply {
        let mut reply = self.reply.clone();
        if let Some(body) = &self.body {
            reply.body = Body::Bytes(body.render(&cx.lookup()));
        }
        for (key, value) in &self.headers {
            let value = value.render(&cx.lookup());
            // As edits and not in the reply: edits escape line ends, which variables may hold.
            match key.lower() {
                "content-type" => cx.set_resp_header(key, value),
                _ => cx.append_resp_header(key, value),
            }
        }
        reply
    }
}

/// The type without its parameters.
fn bare_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or("").trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::json;

    #[test]
    fn an_example_is_filled_in() {
        let conf = json!({"response_example": "hi $arg_name", "content_type": "text/plain", "response_status": 201,
            "response_headers": {"X-A": "$uri", "X-N": 1}});
        let run = run::<Mocking>(conf).get("/p%0a?name=ann");
        let answer = run.expect_reply(201);
        assert_eq!(answer.text(), "hi ann");
        assert_eq!(answer.headers("content-type"), ["text/plain"]);
        assert_eq!(answer.headers("x-a"), ["/p%0A"]);
        assert_eq!(answer.headers("x-n"), ["1"]);
        assert_eq!(answer.headers("x-mock-by"), ["APISIX/3.18.0"]);
        assert_eq!((run.slept(), answer.reason()), (Duration::ZERO, "mocked"));
    }

    #[test]
    fn types() {
        let check = |conf: Value, expected: &str| {
            let mut all = json!({"response_example": "x"});
            all.as_object_mut()
                .unwrap()
                .extend(conf.as_object().unwrap().clone());
            let answer = run::<Mocking>(all).get("/").expect_reply(200);
            assert_eq!(answer.headers("content-type"), [expected], "{conf}");
            assert_eq!(answer.text(), "x");
        };
        check(json!({}), "application/json;charset=utf8");
        check(
            json!({"content_type": "text/html; charset=utf-8"}),
            "text/html; charset=utf-8",
        );
        check(
            json!({"response_headers": {"Content-Type": "text/csv"}}),
            "text/csv",
        );
    }

    #[test]
    fn a_schema_gives_a_body_of_the_type() {
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "string", "example": "$arg_x"}}});
        let check = |kind: &str, expected: &str| {
            let conf = json!({"response_schema": schema, "content_type": kind});
            let answer = run::<Mocking>(conf).get("/?x=5").expect_reply(200);
            assert_eq!(answer.text(), expected, "{kind}");
        };
        check("application/json", r#"{"a":"5"}"#);
        check("text/plain;charset=utf-8", r#"{"a":"5"}"#);
        check("application/xml", "<data><a>5</a></data>");
        check("text/xml", "<data><a>5</a></data>");
        let both = json!({"response_schema": schema, "response_example": "x"});
        assert_eq!(run::<Mocking>(both).get("/").expect_reply(200).text(), "x");
    }

    #[test]
    fn a_delay_and_no_mark() {
        let conf = json!({"response_example": "x", "delay": 2, "with_mock_header": false});
        let run = run::<Mocking>(conf).get("/");
        assert_eq!(run.expect_reply(200).header("x-mock-by"), None);
        assert_eq!(run.slept(), Duration::from_secs(2));
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |conf: Value, expected: &str| {
            let text = build_error::<Mocking>(conf);
            assert!(text.contains(expected), "{text}");
        };
        check(json!({}), "object matches none of the required");
        let with = |name: &str, value: Value| {
            let mut conf = json!({"response_example": "x"});
            conf[name] = value;
            conf
        };
        check(
            with("content_type", json!("image/png")),
            "content_type: unsupported content type!",
        );
        check(
            with("content_type", json!("text/plain;\r\nX: 1")),
            "invalid value character",
        );
        check(with("response_status", json!(101)), "response_status: ");
        check(with("delay", json!(-1)), "delay: ");
        check(with("delay", json!(1.5)), "delay: wrong type");
        check(with("response_headers", json!({})), "response_headers: ");
        check(
            with("response_headers", json!({"X": []})),
            "response_headers.X: ",
        );
        check(
            json!({"response_schema": {}, "content_type": "text/html"}),
            "needs `response_example`",
        );
    }
}
