//! `echo`: puts text before, after or in place of the response body.
//!
//! The texts are sent as they are: variables are not filled in. `Content-Length`, `Content-Encoding`,
//! `Last-Modified` and `ETag` of the upstream's response are removed, as they describe another body. A
//! compressed body is not decompressed: text around it would make it unreadable.
//!
//! ```yaml
//! plugins:
//!   echo: { before_body: "<!-- served by the gateway -->\n" }
//! ```

// The plugin to copy; `docs/writing-a-plugin.md` builds a smaller one step by step. A plugin is a file
// like this one and a line in `lib.rs`:
//
// 1. The text above is its page in `docs/plugins`, with an example that `make docs` tries out.
// 2. `Conf` is what users write. Its types give the schema, its doc comments the table of attributes,
//    its attributes the defaults and limits.
// 3. `check` reports what a schema cannot express; all of it, not the first mistake only.
// 4. `build` does all work that does not need a request: parse, compile, convert to `Bytes`.
// 5. One method for each phase named in `PHASES`. What it remembers of a request is a local.
// 6. The tests run the real `build` and the phases, without a socket.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use lockgate_plugin::{BuildCx, Chunk, Ctx, HeaderKey, Phases, Plugin, PluginError, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::text::{self, Scalar};

/// Configuration of `echo`. At least one of `before_body`, `body` and `after_body`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Text in front of the body.
    #[serde(default)]
    before_body: Option<String>,
    /// Text in place of the body; an empty text sends none.
    #[serde(default)]
    body: Option<String>,
    /// Text behind the body.
    #[serde(default)]
    after_body: Option<String>,
    /// Response headers to set: texts or numbers by name. They replace the upstream's.
    #[serde(default)]
    #[schemars(extend("minProperties" = 1))]
    headers: Option<BTreeMap<String, Scalar>>,
}

/// The built plugin: everything ready to be sent. A `clone` of `Bytes` copies nothing.
pub struct Echo {
    before: Option<Bytes>,
    body: Option<Bytes>,
    after: Option<Bytes>,
    headers: Vec<(HeaderKey, Bytes)>,
    /// What describes the upstream's body and not ours.
    stale: [HeaderKey; 3],
}

/// What this plugin remembers of a request: whether the beginning of the body was sent.
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
        for (name, value) in conf.headers.unwrap_or_default() {
            // No variables in these values, so they are not parsed for any.
            let value = value.to_string();
            if let Some(key) = text::name_and_value(&name, &value, &mut out.at("headers")) {
                headers.push((key, Bytes::from(value)));
            }
        }
        out.into_result()?;
        Ok(Echo {
            before: conf.before_body.map(Bytes::from),
            body: conf.body.map(Bytes::from),
            after: conf.after_body.map(Bytes::from),
            headers,
            stale: ["Content-Encoding", "Last-Modified", "ETag"].map(HeaderKey::constant),
        })
    }

    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        self.stale.iter().for_each(|key| cx.remove_resp_header(key));
        cx.will_resize_body();
        for (key, value) in &self.headers {
            cx.set_resp_header(key, value.clone());
        }
        Ok(())
    }

    fn body_filter(&self, chunk: &mut Chunk, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        let first = !std::mem::replace(&mut cx.local::<Begun>().0, true);
        match &self.body {
            Some(body) if first => chunk.data = body.clone(),
            Some(_) => chunk.data = Bytes::new(),
            None => {}
        }
        let before = self.before.as_deref().filter(|_| first).unwrap_or_default();
        let after = self
            .after
            .as_deref()
            .filter(|_| chunk.last)
            .unwrap_or_default();
        // Chunks in the middle pass without being copied.
        if !before.is_empty() || !after.is_empty() {
            let len = before.len() + chunk.data.len() + after.len();
            let mut data = BytesMut::with_capacity(len);
            data.extend_from_slice(before);
            data.extend_from_slice(&chunk.data);
            data.extend_from_slice(after);
            chunk.data = data.freeze();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::{Value, json};

    fn check(conf: Value, chunks: &[&str], expected: &str) {
        let mut run = run::<Echo>(conf.clone()).get("/").expect_next();
        let answer = run.respond(200, &[("Content-Length", "5"), ("ETag", "x")], chunks);
        assert_eq!(answer.text(), expected, "{conf} {chunks:?}");
        assert_eq!(
            (answer.header("content-length"), answer.header("etag")),
            (None, None)
        );
    }

    #[test]
    fn bodies() {
        let three = &["u", "pp", "er"];
        check(json!({"before_body": "a"}), three, "aupper");
        check(json!({"after_body": "z"}), three, "upperz");
        check(
            json!({"body": "x", "before_body": "a", "after_body": "z"}),
            three,
            "axz",
        );
        check(json!({"body": ""}), three, "");
        check(
            json!({"before_body": "a", "after_body": "z"}),
            &["upper"],
            "aupperz",
        );
        check(json!({"before_body": "a", "after_body": "z"}), &[], "az");
        check(json!({"body": "x", "after_body": "z"}), &[], "xz");
    }

    #[test]
    fn headers_are_set() {
        let conf = json!({"body": "x", "headers": {"X-A": "1", "X-N": 2, "ETag": "mine"}});
        let mut run = run::<Echo>(conf).get("/").expect_next();
        let answer = run.respond(200, &[("X-A", "0"), ("ETag", "theirs")], &[]);
        assert_eq!(answer.headers("x-a"), ["1"]);
        assert_eq!(answer.headers("x-n"), ["2"]);
        assert_eq!(answer.headers("etag"), ["mine"]);
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |conf: Value, expected: &str| {
            let text = build_error::<Echo>(conf);
            assert!(text.starts_with(expected), "{text}");
        };
        check(json!({}), "object matches none of the required");
        check(
            json!({"headers": {"X-A": "1"}}),
            "object matches none of the required",
        );
        check(
            json!({"after_body": 1}),
            "after_body: wrong type: expected string, got number",
        );
        check(json!({"body": "x", "headers": {}}), "headers: ");
        check(json!({"body": "x", "headers": {"X": true}}), "headers.X: ");
        check(
            json!({"body": "x", "headers": {"a b": "1"}}),
            "headers.a b: invalid field character",
        );
    }
}
