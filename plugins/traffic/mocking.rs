//! `mocking`: answers in place of the upstream, with a given text or one made from a schema.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lockgate_plugin::{
    BuildCx, Ctx, Flow, HeaderKey, Outcome, Phases, Plugin, Problem, Problems, Reply, Step,
    Template,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Configuration of `mocking`. At least one of `response_example` and `response_schema`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// A pause before the answer. Unit: seconds.
    #[serde(default)]
    #[schemars(range(min = 0))]
    delay: u32,
    /// The status.
    #[serde(default = "ok")]
    #[schemars(range(min = 100, max = 599))]
    response_status: u16,
    /// The `Content-Type`: JSON, XML, HTML or plain text.
    #[serde(default = "json_type")]
    content_type: String,
    /// The body; `$variables` are filled in.
    #[serde(default)]
    response_example: Option<String>,
    /// A JSON Schema that the body is made from, where there is no example.
    #[serde(default)]
    response_schema: Option<Value>,
    /// Adds `x-mock-by`, so that a mock is never taken for the real thing.
    #[serde(default = "yes")]
    with_mock_header: bool,
    /// Headers; `$variables` are filled in.
    #[serde(default)]
    response_headers: BTreeMap<String, Value>,
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
const TYPES: [&str; 5] = ["application/xml", "application/json", "text/plain", "text/html", "text/xml"];

/// How deep a schema is followed.
const MAX_DEPTH: usize = 16;

/// The built plugin.
pub struct Mocking {
    delay: Duration,
    status: u16,
    content_type: Bytes,
    body: Template,
    headers: Vec<(HeaderKey, Template)>,
    content_type_key: HeaderKey,
    mock_by: Option<HeaderKey>,
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
        if !TYPES.contains(&bare_type(&conf.content_type)) {
            out.add("content_type", format!("unsupported content type! allowed: {}", TYPES.join(", ")));
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<Mocking, Problems> {
        let mut out = Problems::default();
        let mut headers = Vec::new();
        for (name, value) in &conf.response_headers {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match name.parse() {
                Ok(key) => headers.push((key, Template::parse(&text))),
                Err(e) => out.push(Problem::new(format!("response_headers.{name}"), format!("{e}"))),
            }
        }
        out.into_result()?;
        let body = match (&conf.response_example, &conf.response_schema) {
            (Some(text), _) => text.clone(),
            (None, Some(schema)) => made_body(bare_type(&conf.content_type), schema),
            (None, None) => String::new(),
        };
        Ok(Mocking {
            delay: Duration::from_secs(u64::from(conf.delay)),
            status: conf.response_status,
            content_type: Bytes::from(conf.content_type),
            body: Template::parse(&body),
            headers,
            content_type_key: HeaderKey::constant("Content-Type"),
            mock_by: conf.with_mock_header.then(|| HeaderKey::constant("x-mock-by")),
        })
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
    fn reply(&self, cx: &Ctx<'_>) -> Reply {
        let text = |template: &Template| template.render(&cx.lookup()).into_owned();
        let mut reply = Reply::text(self.status, text(&self.body))
            .header(&self.content_type_key, self.content_type.clone());
        if let Some(key) = &self.mock_by {
            let server = &cx.work().conn.server.server_token;
            reply = reply.header(key, Bytes::copy_from_slice(server.as_bytes()));
        }
        for (key, value) in &self.headers {
            reply = reply.header(key, text(value));
        }
        reply.because("mocked")
    }
}

fn bare_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or("").trim()
}

/// A body in the shape of a schema: fixed, plausible values, so that tests can rely on them.
fn made_body(kind: &str, schema: &Value) -> String {
    let value = made(schema, 0);
    match kind {
        "application/xml" | "text/xml" => {
            let mut out = String::new();
            xml("data", &value, &mut out);
            out
        }
        _ => value.to_string(),
    }
}

fn made(schema: &Value, depth: usize) -> Value {
    if let Some(example) = schema.get("example") {
        return example.clone();
    }
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or("object");
    match kind {
        "string" => json!("string"),
        "number" => json!(1.5),
        "integer" => json!(1),
        "boolean" => json!(true),
        "array" if depth < MAX_DEPTH => {
            let item = schema.get("items").map(|items| made(items, depth + 1));
            Value::Array(item.into_iter().collect())
        }
        "object" if depth < MAX_DEPTH => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let member = |(name, schema): (&String, &Value)| (name.clone(), made(schema, depth + 1));
            Value::Object(properties.into_iter().flatten().map(member).collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}

fn xml(name: &str, value: &Value, out: &mut String) {
    match value {
        Value::Array(list) => list.iter().for_each(|item| xml(name, item, out)),
        Value::Object(map) => {
            out.push_str(&format!("<{name}>"));
            map.iter().for_each(|(name, value)| xml(name, value, out));
            out.push_str(&format!("</{name}>"));
        }
        Value::String(text) => {
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            out.push_str(&format!("<{name}>{text}</{name}>"));
        }
        other => out.push_str(&format!("<{name}>{other}</{name}>")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};

    #[test]
    fn an_example_is_filled_in() {
        let conf = json!({"response_example": "hi $arg_name", "content_type": "text/plain", "response_status": 201,
            "response_headers": {"X-A": "$uri", "X-N": 1}});
        let answer = run::<Mocking>(conf).get("/p?name=ann").expect_reply(201);
        assert_eq!(answer.text(), "hi ann");
        assert_eq!(answer.header("content-type").as_deref(), Some("text/plain"));
        assert_eq!(answer.header("x-a").as_deref(), Some("/p"));
        assert_eq!(answer.header("x-n").as_deref(), Some("1"));
    }

    #[test]
    fn a_schema_gives_a_shape() {
        let schema = json!({"type": "object", "properties": {
            "id": {"type": "integer", "example": 7}, "tags": {"type": "array", "items": {"type": "string"}},
            "on": {"type": "boolean"}}});
        let answer = run::<Mocking>(json!({"response_schema": schema})).get("/").expect_reply(200);
        assert_eq!(answer.json(), json!({"id": 7, "tags": ["string"], "on": true}));
        let conf = json!({"response_schema": {"type": "object", "properties": {"a": {"type": "string"}}}, "content_type": "text/xml"});
        assert_eq!(run::<Mocking>(conf).get("/").expect_reply(200).text(), "<data><a>string</a></data>");
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
        assert!(build_error::<Mocking>(json!({})).contains("matches none of the required"));
        let conf = json!({"response_example": "x", "content_type": "image/png"});
        assert!(build_error::<Mocking>(conf).contains("unsupported content type!"));
    }
}
