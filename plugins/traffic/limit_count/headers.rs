//! The headers that tell how things stand.

use bytes::Bytes;
use lockgate_limit::Decision;
use lockgate_plugin::{BuildCx, Ctx, HeaderKey, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

use super::WindowType;
use crate::traffic::limits::seconds::{Rounding, hundredths};

/// Metadata of `limit-count`: the names of its headers.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Metadata {
    /// The name of the header with the limit.
    #[serde(default = "limit")]
    limit_header: String,
    /// The name of the header with what is left.
    #[serde(default = "remaining")]
    remaining_header: String,
    /// The name of the header with the seconds until the window ends.
    #[serde(default = "reset")]
    reset_header: String,
}

fn limit() -> String {
    "X-RateLimit-Limit".to_owned()
}

fn remaining() -> String {
    "X-RateLimit-Remaining".to_owned()
}

fn reset() -> String {
    "X-RateLimit-Reset".to_owned()
}

impl Default for Metadata {
    fn default() -> Metadata {
        Metadata {
            limit_header: limit(),
            remaining_header: remaining(),
            reset_header: reset(),
        }
    }
}

/// The names of a limit's headers.
pub(super) struct Names {
    limit: HeaderKey,
    remaining: HeaderKey,
    reset: HeaderKey,
}

impl Names {
    /// With a `prefix` the names are `X-PREFIX-RateLimit-Limit` and so on. `None` after a problem.
    pub(super) fn build(
        bx: &BuildCx<'_>,
        prefix: Option<&str>,
        out: &mut Problems,
    ) -> Option<Names> {
        let metadata = bx.metadata::<Metadata>().unwrap_or_default();
        let mut name = |field: &str, base: &str| {
            let text = match prefix {
                Some(prefix) => base.replacen("RateLimit-", &format!("{prefix}-RateLimit-"), 1),
                None => base.to_owned(),
            };
            let key = text.parse::<HeaderKey>();
            key.map_err(|why| {
                let field = if prefix.is_some() {
                    "header_prefix"
                } else {
                    field
                };
                out.add(field, format!("`{text}` is {why}"));
            })
            .ok()
        };
        let limit = name("metadata.limit_header", &metadata.limit_header);
        let remaining = name("metadata.remaining_header", &metadata.remaining_header);
        let reset = name("metadata.reset_header", &metadata.reset_header);
        Some(Names {
            limit: limit?,
            remaining: remaining?,
            reset: reset?,
        })
    }

    /// Sets them. The time of a refusal is never 0: a client that comes back at once is refused.
    pub(super) fn show(&self, decision: &Decision, window: WindowType, cx: &mut Ctx<'_>) {
        let left = if decision.allowed {
            decision.remaining
        } else {
            0
        };
        let rounding = match window {
            WindowType::Fixed if decision.allowed => Rounding::Down,
            _ => Rounding::Up,
        };
        cx.set_resp_header(&self.limit, number(decision.limit));
        cx.set_resp_header(&self.remaining, number(left));
        cx.set_resp_header(&self.reset, hundredths(decision.reset, rounding));
    }
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes())
}
