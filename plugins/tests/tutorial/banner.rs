//! `banner`: puts a line of text in front of web pages.
//!
//! Other responses are left alone, and so are compressed ones and those of requests that carry the
//! header `unless_header`.
//!
//! ```yaml
//! plugins:
//!   banner: { text: "<p>Served by $hostname</p>", unless_header: X-No-Banner }
//! ```

use bytes::{Bytes, BytesMut};
use lockgate_plugin::{
    BuildCx, Chunk, Ctx, HeaderKey, Phases, Plugin, PluginError, Problem, Problems, Template,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of `banner`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The text; `$variables` are filled in as they are, so use none that a client chooses.
    #[schemars(length(min = 1, max = 4096))]
    text: String,
    /// The `Content-Type` of the responses that get it, up to any `;`.
    #[serde(default = "html")]
    content_type: String,
    /// The name of a request header that, when present, keeps the response as it is.
    #[serde(default)]
    unless_header: Option<String>,
}

fn html() -> String {
    "text/html".to_owned()
}

/// The plugin, ready for requests.
pub struct Banner {
    text: Template,
    content_type: String,
    unless: Option<HeaderKey>,
    names: Names,
}

/// The headers read and removed here; looked up by these, no request compares names as text.
struct Names {
    content_type: HeaderKey,
    content_encoding: HeaderKey,
    /// What describes the upstream's body and not the new one.
    stale: [HeaderKey; 2],
}

/// What is kept of a request from its head to its body: the text that is still to be sent.
#[derive(Default)]
struct Pending(Bytes);

impl Plugin for Banner {
    const NAME: &'static str = "banner";
    const PRIORITY: i32 = 410;
    const PHASES: Phases = Phases::HEADER_FILTER.and(Phases::BODY_FILTER);
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        if !conf.content_type.contains('/') || conf.content_type.contains(';') {
            out.add("content_type", "expected a type such as `text/html`");
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<Banner, Problems> {
        let unless = conf.unless_header.map(|name| {
            name.parse()
                .map_err(|e| Problem::new("unless_header", format!("`{name}` is {e}")))
        });
        Ok(Banner {
            text: Template::parse(&conf.text),
            content_type: conf.content_type,
            unless: unless.transpose()?,
            names: Names {
                content_type: HeaderKey::constant("Content-Type"),
                content_encoding: HeaderKey::constant("Content-Encoding"),
                stale: ["Last-Modified", "ETag"].map(HeaderKey::constant),
            },
        })
    }

    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        let unless = self.unless.as_ref();
        let unwanted = unless.is_some_and(|name| cx.header(name).is_some());
        if unwanted || !self.is_page(cx) {
            return Ok(());
        }
        let text = self.text.render(&cx.lookup()).into_owned();
        cx.local::<Pending>().0 = Bytes::from(text);
        for name in &self.names.stale {
            cx.remove_resp_header(name);
        }
        // `Content-Length` goes with this.
        cx.will_resize_body();
        Ok(())
    }

    fn body_filter(&self, chunk: &mut Chunk, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        // `local` would make one, for every response that is left alone.
        if cx.get_local::<Pending>().is_none() {
            return Ok(());
        }
        let text = std::mem::take(&mut cx.local::<Pending>().0);
        if !text.is_empty() {
            let mut data = BytesMut::with_capacity(text.len() + chunk.data.len());
            data.extend_from_slice(&text);
            data.extend_from_slice(&chunk.data);
            chunk.data = data.freeze();
        }
        Ok(())
    }
}

impl Banner {
    fn is_page(&self, cx: &Ctx<'_>) -> bool {
        if cx.resp_header(&self.names.content_encoding).is_some() {
            return false;
        }
        let value = cx.resp_header(&self.names.content_type);
        let kind = value.unwrap_or_default().split(|b| *b == b';').next();
        let kind = kind.unwrap_or_default().trim_ascii();
        kind.eq_ignore_ascii_case(self.content_type.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::json;

    /// `header` is on the request and on the response.
    fn check(content_type: &str, header: &str, expected: &str) {
        let conf = json!({"text": "<$hostname>", "unless_header": "X-Plain"});
        let mut run = run::<Banner>(conf)
            .header(header, "1")
            .get("/")
            .expect_next();
        let head = [("Content-Type", content_type), (header, "1"), ("ETag", "x")];
        let answer = run.respond(200, &head, &["up", "per"]);
        assert_eq!(answer.text(), expected, "{content_type} {header}");
        let changed = expected != "upper";
        assert_eq!(answer.header("etag").is_none(), changed);
    }

    #[test]
    fn pages_get_the_text_once() {
        check("text/html; charset=utf-8", "X-Other", "<gateway-1>upper");
        check("Text/HTML", "X-Other", "<gateway-1>upper");
        check("application/json", "X-Other", "upper");
        check("text/html", "X-Plain", "upper");
        check("text/html", "Content-Encoding", "upper");
    }

    #[test]
    fn configurations_that_are_refused() {
        assert_eq!(
            build_error::<Banner>(json!({"text": ""})),
            "text: string too short, expected at least 1, got 0"
        );
        let text = build_error::<Banner>(json!({"text": "x", "content_type": "html"}));
        assert_eq!(text, "content_type: expected a type such as `text/html`");
        let text = build_error::<Banner>(json!({"text": "x", "unless_header": "a b"}));
        assert!(text.starts_with("unless_header: `a b` is "), "{text}");
    }
}
