//! `echo`: puts text before, after or in place of the response body. The plugin to copy.
//!
//! A plugin is this file and one line in `lib.rs`. The configuration type gives the schema, the
//! defaults and the documentation; `build` does all work that does not need a request; each phase
//! named in `PHASES` has its method. This one acts in two phases: the head, because the length of
//! the body changes, and the body itself.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use lockgate_plugin::{
    BuildCx, Chunk, Ctx, HeaderKey, Phases, Plugin, PluginError, Problem, Problems,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of `echo`. At least one of `before_body`, `body`, `after_body` and `headers`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Text in front of the body.
    #[serde(default)]
    before_body: Option<String>,
    /// Text in place of the upstream's body.
    #[serde(default)]
    body: Option<String>,
    /// Text behind the body.
    #[serde(default)]
    after_body: Option<String>,
    /// Response headers to set, by name.
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// The built plugin: everything ready to be sent.
pub struct Echo {
    before: Option<Bytes>,
    body: Option<Bytes>,
    after: Option<Bytes>,
    headers: Vec<(HeaderKey, Bytes)>,
}

/// What this plugin remembers of a request: whether the beginning was sent.
#[derive(Default)]
struct Begun(bool);

impl Plugin for Echo {
    const NAME: &'static str = "echo";
    const PRIORITY: i32 = 412;
    const PHASES: Phases = Phases::HEADER_FILTER.and(Phases::BODY_FILTER);
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        if conf.before_body.is_none() && conf.body.is_none() && conf.after_body.is_none() {
            let text = "object matches none of the required: [\"before_body\"] or [\"body\"] or [\"after_body\"]";
            out.add("", text);
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<Echo, Problems> {
        let mut out = Problems::default();
        let mut headers = Vec::new();
        for (name, value) in conf.headers {
            match name.parse() {
                Ok(key) => headers.push((key, Bytes::from(value))),
                Err(e) => out.push(Problem::new(format!("headers.{name}"), format!("{e}"))),
            }
        }
        out.into_result()?;
        let text = |text: Option<String>| text.map(Bytes::from);
        Ok(Echo {
            before: text(conf.before_body),
            body: text(conf.body),
            after: text(conf.after_body),
            headers,
        })
    }

    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        for (key, value) in &self.headers {
            cx.set_resp_header(key, value.clone());
        }
        cx.will_resize_body();
        Ok(())
    }

    fn body_filter(&self, chunk: &mut Chunk, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        let begun = cx.local::<Begun>();
        let first = !std::mem::replace(&mut begun.0, true);
        let mut data = BytesMut::new();
        if first {
            data.extend_from_slice(self.before.as_deref().unwrap_or_default());
            data.extend_from_slice(self.body.as_deref().unwrap_or_default());
        }
        if self.body.is_none() {
            data.extend_from_slice(&chunk.data);
        }
        if chunk.last {
            data.extend_from_slice(self.after.as_deref().unwrap_or_default());
        }
        chunk.data = data.freeze();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::{Value, json};

    fn check(conf: Value, expected: &str) {
        let mut run = run::<Echo>(conf.clone()).get("/").expect_next();
        let answer = run.respond(200, &[("Content-Length", "5")], &["up", "per"]);
        assert_eq!(answer.text(), expected, "{conf}");
    }

    #[test]
    fn bodies() {
        check(json!({"before_body": "a"}), "aupper");
        check(json!({"after_body": "z"}), "upperz");
        check(json!({"body": "x", "before_body": "a", "after_body": "z"}), "axz");
        check(json!({"body": ""}), "");
    }

    #[test]
    fn headers_are_set() {
        let mut run = run::<Echo>(json!({"body": "x", "headers": {"X-A": "1"}})).get("/").expect_next();
        assert_eq!(run.respond(200, &[("X-A", "0")], &[]).headers("x-a"), ["1"]);
    }

    #[test]
    fn configurations_that_are_refused() {
        assert!(build_error::<Echo>(json!({})).contains("matches none of the required"));
        assert!(build_error::<Echo>(json!({"body": "x", "headers": {"a b": "1"}})).starts_with("headers.a b"));
    }
}
