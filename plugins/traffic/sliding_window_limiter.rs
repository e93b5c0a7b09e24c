//! `sliding-window-limiter`: a number of requests in a sliding window, counted in Redis.
//!
//! Gateways with the same Redis count together. While Redis is away, all requests pass.
//!
//! ```yaml
//! plugins:
//!   sliding-window-limiter: { count: 100, time_window: 60, key: http_x_user_id, redis_host: 127.0.0.1 }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | 403 | `{"message":"Missing rate limit key"}` | the request has no `X-User-Id` |
//! | 429 | `{"message":"Too many requests"}` | the limit is reached |

use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::Engine;
use lockgate_plugin::{
    BuildCx, Ctx, Flow, Outcome, Phases, Plugin, Problem, Problems, Reply, Step, Var,
};
use lockgate_quota::{Access, Central, Charge, Law, Place, Server, key_text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::limits::{engine, now, store};

/// Configuration of `sliding-window-limiter`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Requests in a window.
    #[schemars(range(min = 1))]
    count: u64,
    /// The length of the window. Unit: seconds.
    #[schemars(range(min = 1))]
    time_window: u64,
    /// Whose requests count together: a client's address, or the header `X-User-Id`.
    #[serde(default)]
    key: By,
    /// Host of the Redis server.
    #[schemars(length(min = 1))]
    redis_host: String,
    /// Port of the Redis server.
    #[serde(default = "redis_port")]
    #[schemars(range(min = 1))]
    redis_port: u16,
    /// The longest a request waits for Redis. Unit: milliseconds.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1))]
    timeout: u64,
}

/// Whose requests count together.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum By {
    #[default]
    RemoteAddr,
    HttpXUserId,
}

fn redis_port() -> u16 {
    6_379
}

fn hundred() -> u64 {
    100
}

/// The built plugin.
pub struct SlidingWindowLimiter {
    engine: Arc<Engine>,
    central: Arc<Central>,
    owner: Box<str>,
    key: Var,
    law: Law,
    missing: Reply,
    refusal: Reply,
}

impl Plugin for SlidingWindowLimiter {
    const NAME: &'static str = "sliding-window-limiter";
    const PRIORITY: i32 = 999;
    const PHASES: Phases = Phases::ACCESS;
    type Conf = Conf;

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<SlidingWindowLimiter, Problems> {
        let law = Law::Sliding {
            limit: conf.count,
            window: Duration::from_secs(conf.time_window),
        };
        let law = law
            .checked()
            .map_err(|bad| Problem::new("", bad.to_string()))?;
        let server = Server::Single {
            place: Place {
                host: conf.redis_host,
                port: conf.redis_port,
            },
            access: Access::default(),
        };
        let name = match conf.key {
            By::RemoteAddr => "remote_addr",
            By::HttpXUserId => "http_x_user_id",
        };
        Ok(SlidingWindowLimiter {
            engine: engine(bx),
            central: store::shared(bx, server, Duration::from_millis(conf.timeout)),
            owner: format!("{}:{}", Self::NAME, bx.owner).into(),
            key: Var::parse(name),
            law,
            missing: Reply::message(403, "Missing rate limit key").because("no rate limit key"),
            refusal: Reply::message(429, "Too many requests").because("request quota is used up"),
        })
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let key = match cx.var(&self.key) {
            Some(value) if !value.as_text().is_empty() => {
                let text = value.as_text();
                let scope = format!("{}.{}", self.owner, store::slot(&text));
                key_text(&scope, self.key.name(), &text)
            }
            _ => return Ok(Step::Reply(self.missing.clone())),
        };
        let now = now(&self.engine, cx);
        Ok(Step::Wait(Box::pin(async move {
            let charge = Charge {
                key,
                law: self.law,
                cost: 1,
            };
            Ok(match self.central.check(&[charge], now).await {
                Ok(verdict) if !verdict.allowed => Flow::Reply(self.refusal.clone()),
                Ok(_) => Flow::Next,
                Err(away) => {
                    store::tell(&away);
                    Flow::Next
                }
            })
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::json;

    #[test]
    fn without_its_key_a_request_is_refused() {
        let conf = json!({"count": 1, "time_window": 1, "key": "http_x_user_id", "redis_host": "127.0.0.1", "redis_port": 1});
        let answer = run::<SlidingWindowLimiter>(conf.clone())
            .get("/")
            .expect_reply(403);
        assert_eq!(answer.text(), "{\"message\":\"Missing rate limit key\"}\n");
        let empty = run::<SlidingWindowLimiter>(conf).header("X-User-Id", "");
        empty.get("/").expect_reply(403);
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |extra: serde_json::Value, expected: &str| {
            let mut conf = json!({"count": 1, "time_window": 1, "redis_host": "a.test"});
            conf.as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            let text = build_error::<SlidingWindowLimiter>(conf);
            assert!(text.contains(expected), "{text}");
        };
        check(json!({"count": 0}), "count: ");
        check(
            json!({"count": 9_007_199_254_740_993u64}),
            "the limit must be from 1 to 2^53",
        );
        check(json!({"time_window": 0}), "time_window: ");
        check(json!({"key": "http_other"}), "key: ");
        check(json!({"redis_host": ""}), "redis_host: ");
        check(json!({"timeout": 0}), "timeout: ");
    }
}
