//! What the log tells of limits: which one refused a request, and how things stand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockgate_limit::{Decision, Ended, NEVER, Nanos, Post};
use lockgate_plugin::request::{LimitName, Limited};
use lockgate_plugin::{Ctx, Lookup};

use super::key::KeySource;

/// Refusals of one limit that the log tells of in a second: a flood of them says no more, and would fill the disk.
const LOGGED_A_SECOND: u64 = 10;
/// Letters of a key that the log shows: enough to recognise it, not to use it.
const SHOWN: usize = 4;

/// A limit with its name and key, for logs.
pub(crate) struct Named {
    pub(super) post: Arc<Post>,
    pub(super) key: Arc<KeySource>,
    /// The second, and how many refusals were logged in it: 40 and 24 bits.
    logged: AtomicU64,
}

impl std::ops::Deref for Named {
    type Target = Post;

    fn deref(&self) -> &Post {
        &self.post
    }
}

impl LimitName for Named {
    fn rule(&self) -> &str {
        self.parts().0
    }

    fn dimension(&self) -> &str {
        self.parts().1
    }

    fn key(&self, request: &Lookup<'_>) -> String {
        self.key.shown_in(request)
    }
}

impl Named {
    pub(super) fn new(post: Arc<Post>, key: Arc<KeySource>) -> Named {
        Named {
            post,
            key,
            logged: AtomicU64::new(0),
        }
    }

    /// Resource and plugin, and the limit.
    fn parts(&self) -> (&str, &str) {
        self.post.name().rsplit_once('/').unwrap_or_default()
    }

    /// Counts a request that passes as the store could not be asked.
    pub(crate) fn passed_unasked(&self, now: Nanos) {
        let nobody = String::new;
        self.post.tally().other(Ended::ErrorAllow, now, nobody);
    }

    /// Tells the request's log line what it said, and the log if that was a refusal.
    pub(super) fn tell(self: &Arc<Named>, decision: &Decision, (cx, now): (&mut Ctx<'_>, Nanos)) {
        let until = match decision.allowed {
            false if decision.retry != NEVER => decision.retry.max(decision.reset),
            _ => decision.reset,
        };
        cx.set_limited(Limited {
            by: Arc::clone(self) as Arc<dyn LimitName>,
            limit: decision.limit,
            remaining: match decision.allowed {
                true => decision.remaining,
                false => 0,
            },
            reset: Duration::from_nanos(until),
            refused: !decision.allowed,
        });
        if !decision.allowed && tracing::enabled!(tracing::Level::INFO) && self.may_log(now) {
            let (rule, limit) = self.parts();
            let key = masked(&self.key.shown_in(&cx.lookup()));
            tracing::info!(rule, limit, key, "a limit refused a request");
        }
    }

    fn may_log(&self, now: Nanos) -> bool {
        let second = now / 1_000_000_000;
        let count = |kept: u64| match kept >> 24 == second & ((1 << 40) - 1) {
            true => kept & 0xff_ffff,
            false => 0,
        };
        let order = Ordering::Relaxed;
        let next = |kept| {
            let count = count(kept);
            (count < LOGGED_A_SECOND).then_some(second << 24 | (count + 1))
        };
        self.logged.fetch_update(order, order, next).is_ok()
    }
}

/// A key that can be recognised, and not used.
fn masked(key: &str) -> String {
    let length = key.chars().count();
    let shown: String = key.chars().take(SHOWN.min(length / 2)).collect();
    format!("{shown}… ({length} characters)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::run;
    use serde_json::json;

    use crate::traffic::limit::Limits;
    use crate::traffic::limit_count::LimitCount;

    #[test]
    fn keys_are_masked() {
        assert_eq!(masked("secret-token"), "secr… (12 characters)");
        assert_eq!(masked("ab"), "a… (2 characters)");
        assert_eq!(masked(""), "… (0 characters)");
    }

    #[test]
    fn the_log_line_tells_of_the_limit_that_refused() {
        let limits = json!({"limits": [
            {"name": "many", "count": 9, "time_window": 60},
            {"name": "few", "algorithm": "fixed_window", "count": 1, "time_window": 60, "key": "$http_id"},
        ]});
        let limit = run::<Limits>(limits).build();
        let ask = || {
            limit
                .request()
                .from("192.0.2.1")
                .header("id", "a\"b")
                .get("/")
        };
        let told = |run: &lockgate_plugin::testing::Run| {
            ["rule", "dimension", "key", "limit", "remaining", "reset"]
                .map(|name| run.var(&format!("rate_limit_{name}")).unwrap_or_default())
                .join(" ")
        };
        let run = ask();
        assert_eq!(told(&run), "routes/1/limit few a\"b 1 0 60.000");
        let run = ask();
        assert_eq!(told(&run), "routes/1/limit few a\"b 1 0 60.000");
        let info = run.var("rate_limiting_info").unwrap();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["rate_limiting_key"], "a\"b");
        let none = lockgate_plugin::testing::request().get("/");
        assert_eq!(none.var("rate_limiting_info"), None);
    }

    #[test]
    fn the_form_of_apisix() {
        let limit =
            run::<LimitCount>(json!({"count": 2, "time_window": 10, "key": "host"})).build();
        let run = limit.request().host("test.com").get("/");
        assert_eq!(
            run.var("rate_limiting_info").as_deref(),
            Some(
                "{\"rate_limiting_key\":\"test.com\",\"rate_limiting_limit\":2,\"rate_limiting_remaining\":1,\"rate_limiting_reset\":10}"
            )
        );
    }

    #[test]
    fn a_flood_of_refusals_does_not_fill_the_log() {
        let engine = lockgate_limit::Engine::with_bytes(0);
        let key = Arc::new(KeySource::new(
            &engine,
            &["t"],
            super::super::key::KeyType::Constant,
            "k",
        ));
        struct None;
        impl lockgate_limit::Counts for None {
            fn about(&self) -> lockgate_limit::About {
                lockgate_limit::About::default()
            }
            fn key(
                &self,
                engine: &lockgate_limit::Engine,
                _: &lockgate_limit::Wanted,
            ) -> Result<lockgate_limit::Key, lockgate_limit::Unclear> {
                Ok(engine.key(1).done())
            }
            fn counted(
                &self,
                _: &lockgate_limit::Wanted,
            ) -> Result<lockgate_limit::Counted, lockgate_limit::Unclear> {
                Ok(lockgate_limit::Counted::AtOnce(1))
            }
        }
        let post = engine
            .desk()
            .post("routes/1/limit/a".to_owned(), Box::new(None));
        let named = Named::new(post, key);
        let many = |now: Nanos| (0..100).filter(|_| named.may_log(now)).count();
        let second = 1_000_000_000;
        assert_eq!(
            [many(7 * second), many(7 * second + 5), many(8 * second)],
            [10, 0, 10]
        );
    }
}
