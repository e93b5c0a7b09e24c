//! `response-rewrite`: changes status, headers and body of what the client gets.
//!
//! It acts on every response, also on those that the gateway makes itself. A new `body` replaces the old
//! one as it arrives, nothing is kept. `filters` need the whole body: it is held back, decompressed if
//! need be, changed, and sent at its end. A body that grows beyond `max_resp_body_size` is sent on
//! without filters, decompressed where the head has said so.
//!
//! ```yaml
//! plugins:
//!   response-rewrite:
//!     status_code: 503
//!     headers: { set: { Retry-After: 5 }, remove: [Server-Timing] }
//!     body: '{"message":"try again later"}'
//!     vars: [[status, ">=", 500]]
//! ```
//!
//! # Failures
//!
//! A body that `filters` have to decompress and that is not what its `Content-Encoding` says ends the
//! client's connection: the status has been sent by then.

mod decode;
mod filter;
mod headers;
mod hold;

use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use lockgate_plugin::{
    BuildCx, Chunk, Ctx, Expr, HeaderKey, Phases, Plugin, PluginError, Problem, Problems, Var,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::decode::Encoding;
use self::filter::{Filter, FilterConf};
use self::headers::{Edits, HeadersConf};
use self::hold::{Hold, Passed};

/// Configuration of `response-rewrite`. `body` and `filters` exclude each other.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The new status.
    #[serde(default)]
    #[schemars(range(min = 200, max = 598))]
    status_code: Option<u16>,
    /// The new body. `Content-Length`, `Content-Encoding`, `Last-Modified` and `ETag` of the old
    /// one are removed.
    #[serde(default)]
    body: Option<String>,
    /// Whether `body` is base64, for bytes that are not text; padding may be missing.
    #[serde(default)]
    body_base64: bool,
    /// Changes of headers: `add`, `set` and `remove`, made in this order; or, in APISIX's older form,
    /// a mapping of names to values that are set. In values `$variables` are filled in, those of the
    /// response included.
    #[serde(default)]
    headers: Option<HeadersConf>,
    /// Conditions, written as `vars` of a route, such as `[["status", "==", 500]]`: when they do not
    /// hold, the response is left alone. They are looked at once, when the head of the response is
    /// there.
    #[serde(default)]
    vars: Option<Vec<Value>>,
    /// Replacements in the body, one after the other. The same headers are removed as with
    /// `body`. A body compressed with gzip, deflate or Brotli is sent decompressed; one in another
    /// encoding is left alone.
    #[serde(default)]
    #[schemars(length(min = 1))]
    filters: Option<Vec<FilterConf>>,
    /// The longest body, decompressed, that `filters` are applied to. A longer one is sent without
    /// them, and the log says so once. Unit: bytes.
    #[serde(default = "max_body")]
    #[schemars(range(min = 1))]
    max_resp_body_size: u64,
}

fn max_body() -> u64 {
    64 << 20
}

/// The plugin.
pub struct ResponseRewrite {
    status: Option<u16>,
    headers: Edits,
    condition: Option<Expr>,
    body: NewBody,
    /// Headers that describe the upstream's body and not the new one.
    stale: [HeaderKey; 2],
    encoding: HeaderKey,
    told_long: AtomicBool,
}

enum NewBody {
    Unchanged,
    Replaced(Bytes),
    Filtered { filters: Vec<Filter>, limit: usize },
}

/// What the header filter decided about this response; none when the body stays as it is.
#[derive(Default)]
enum Plan {
    #[default]
    Leave,
    /// Send the new body with the next chunk.
    Replace,
    /// It was sent: drop what comes.
    Drop,
    Filter(Box<Hold>),
}

impl Plugin for ResponseRewrite {
    const NAME: &'static str = "response-rewrite";
    const PRIORITY: i32 = 899;
    const PHASES: Phases = Phases::HEADER_FILTER.and(Phases::BODY_FILTER);
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        if conf.body.is_some() && conf.filters.is_some() {
            out.add("filters", "only one of body and filters is allowed");
        }
        if conf.body_base64 && conf.body.as_deref().and_then(from_base64).is_none() {
            out.add("body", "invalid base64 content");
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<ResponseRewrite, Problems> {
        let mut out = Problems::default();
        let headers = Edits::new(conf.headers, &mut out.at("headers"));
        let condition = conf.vars.map(|vars| Expr::parse(&Value::Array(vars)));
        let condition = condition.transpose().unwrap_or_else(|problem| {
            out.push(Problem {
                path: format!("vars{}", problem.path),
                ..problem
            });
            None
        });
        let mut filters = Vec::new();
        for (i, conf) in conf.filters.into_iter().flatten().enumerate() {
            let mut out = out.at("filters");
            filters.extend(Filter::new(conf, &mut out.at_index(i)));
        }
        out.into_result()?;
        let body = match conf.body {
            Some(text) if conf.body_base64 => from_base64(&text).map(Bytes::from),
            text => text.map(Bytes::from),
        };
        let limit = usize::try_from(conf.max_resp_body_size).unwrap_or(usize::MAX);
        Ok(ResponseRewrite {
            status: conf.status_code,
            headers,
            condition,
            body: match body {
                Some(body) => NewBody::Replaced(body),
                None if filters.is_empty() => NewBody::Unchanged,
                None => NewBody::Filtered { filters, limit },
            },
            stale: ["Last-Modified", "ETag"].map(HeaderKey::constant),
            encoding: HeaderKey::constant("Content-Encoding"),
            told_long: AtomicBool::new(false),
        })
    }

    fn phases(&self) -> Phases {
        match self.body {
            NewBody::Unchanged => Phases::HEADER_FILTER,
            _ => Self::PHASES,
        }
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let condition = self.condition.as_ref();
        condition.is_some_and(|expr| expr.any_var(is)) || self.headers.any_var(is)
    }

    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        if self
            .condition
            .as_ref()
            .is_some_and(|expr| !cx.matches(expr))
        {
            return Ok(());
        }
        if let Some(status) = self.status {
            cx.set_status(status);
        }
        let plan = match &self.body {
            NewBody::Unchanged => Plan::Leave,
            NewBody::Replaced(_) => Plan::Replace,
            NewBody::Filtered { limit, .. } => match Encoding::of(cx.resp_header(&self.encoding)) {
                Some(encoding) => Plan::Filter(Box::new(Hold::new(encoding, *limit))),
                None => {
                    tracing::debug!("response body in an unknown encoding left without filters");
                    Plan::Leave
                }
            },
        };
        if !matches!(plan, Plan::Leave) {
            *cx.local::<Plan>() = plan;
            cx.remove_resp_header(&self.encoding);
            self.stale.iter().for_each(|key| cx.remove_resp_header(key));
            // `Content-Length` goes with this.
            cx.will_resize_body();
        }
        self.headers.apply(cx);
        Ok(())
    }

    fn body_filter(&self, chunk: &mut Chunk, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        if cx.get_local::<Plan>().is_none() {
            return Ok(());
        }
        let plan = cx.local::<Plan>();
        match (&self.body, &mut *plan) {
            (NewBody::Replaced(body), Plan::Replace) => {
                chunk.data = body.clone();
                *plan = Plan::Drop;
            }
            (NewBody::Replaced(_), Plan::Drop) => chunk.data = Bytes::new(),
            (NewBody::Filtered { filters, limit }, Plan::Filter(hold)) => {
                let passed = hold.pass(chunk, filters).map_err(|e| {
                    PluginError::new(format!("the response body cannot be decompressed: {e}"))
                })?;
                if passed == Passed::TooLong && !self.told_long.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        limit,
                        "response body longer than max_resp_body_size sent without filters"
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Decodes base64 as nginx does, with or without padding; nothing is no content.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
    engine.decode(text).ok().filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests;
