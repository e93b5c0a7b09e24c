//! `RateLimit`, `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers) and `Retry-After`.

use std::fmt::Write;

use bytes::Bytes;
use lockgate_limit::{Decision, NEVER, Nanos};
use lockgate_plugin::{Ctx, HeaderKey};

use super::one::Limit;

const SECOND: Nanos = 1_000_000_000;
/// Waits longer than this are spread, so that those refused together do not come back together.
const SPREAD_ABOVE: u64 = 5;

pub(super) struct Headers {
    policy: HeaderKey,
    limit: HeaderKey,
    retry_after: HeaderKey,
    /// `RateLimit-Policy`, if no count depends on the request.
    policies: Option<Bytes>,
}

impl Headers {
    pub(super) fn new(limits: &[Limit]) -> Headers {
        let shown = || limits.iter().filter(|limit| !limit.dry_run);
        let mut text = String::new();
        for limit in shown() {
            put_policy(&mut text, limit, limit.quota().unwrap_or(0));
        }
        let fixed = shown().all(|limit| limit.quota().is_some());
        Headers {
            policy: HeaderKey::constant("RateLimit-Policy"),
            limit: HeaderKey::constant("RateLimit"),
            retry_after: HeaderKey::constant("Retry-After"),
            policies: fixed.then(|| Bytes::from(text)),
        }
    }

    pub(super) fn show(&self, shown: &[(&Limit, Decision)], cx: &mut Ctx<'_>) {
        if shown.is_empty() {
            return;
        }
        let policies = self.policies.clone().unwrap_or_else(|| {
            let mut text = String::new();
            for (limit, decision) in shown {
                put_policy(&mut text, limit, decision.limit);
            }
            text.into()
        });
        let mut text = String::with_capacity(32 * shown.len());
        for (limit, decision) in shown {
            let left = decision.remaining;
            separate(&mut text);
            // Writing to a text does not fail.
            let _ = write!(text, "\"{}\";r={left}", limit.name);
            if !limit.is_concurrency() {
                let _ = write!(text, ";t={}", decision.reset.div_ceil(SECOND));
            }
        }
        cx.set_resp_header(&self.policy, policies);
        cx.set_resp_header(&self.limit, text);
    }

    /// After a refusal: when to come back, if there is such a time.
    pub(super) fn retry(&self, retry: Nanos, cx: &mut Ctx<'_>) {
        if retry == NEVER {
            return;
        }
        let seconds = retry.div_ceil(SECOND).max(1);
        let spread = if seconds > SPREAD_ABOVE {
            seconds / 10
        } else {
            0
        };
        let seconds = seconds + rand::random_range(0..=spread);
        cx.set_resp_header(&self.retry_after, seconds.to_string());
    }
}

fn put_policy(text: &mut String, limit: &Limit, quota: u64) {
    separate(text);
    let _ = write!(text, "\"{}\";q={quota}", limit.name);
    if !limit.is_concurrency() {
        let _ = write!(text, ";w={}", limit.window.as_secs().max(1));
    }
}

fn separate(text: &mut String) {
    if !text.is_empty() {
        text.push_str(", ");
    }
}
