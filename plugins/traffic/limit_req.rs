//! `limit-req`: requests at an even rate; those that come too early wait for their turn.
//!
//! The leaky bucket of nginx: `rate` requests a second pass, up to `burst` more wait, the rest is
//! refused. With `nodelay` the burst passes at once, and the rate holds in the long run only. Who
//! waits is counted already, so at most `burst` requests of a key wait at a time. Nobody waits longer than
//! an hour.
//!
//! What has been counted stays when the configuration is edited; only another `key` starts anew.
//! With `policy: local` counts are kept in this gateway's memory, 16 bytes a key; with `redis` or
//! `redis-cluster` in Redis, for all gateways together.
//!
//! ```yaml
//! plugins:
//!   limit-req: { rate: 10, burst: 20, key: remote_addr, rejected_code: 429 }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | `rejected_code` | `{"error_msg":"..."}` with `rejected_msg`, else the gateway's page | `burst` requests wait already |
//! | 500 | the gateway's page | Redis cannot be asked, unless `allow_degradation` |

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{Ask, Counted, Decision, Engine, NEVER, Rule, Unclear};
use lockgate_plugin::{
    BuildCx, Ctx, Flow, Outcome, Phases, Plugin, Problem, Problems, Reply, Step, Var,
};
use lockgate_quota::{Central, Charge, Law, QuotaStore};
use schemars::JsonSchema;
use serde::Deserialize;

use super::limits::key::{KeySource, KeyType, var_or_combination};
use super::limits::named::Named;
use super::limits::posts::{self, InRedis, Kept, Told, Whose, Within, bound};
use super::limits::store::{self, Policy, Store};
use super::limits::{engine, hold, nanos, now, refusal, undecided, wait};

/// Configuration of `limit-req`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Requests a second; fractions are allowed. Rates above 10^9 are that.
    #[schemars(extend("exclusiveMinimum" = 0))]
    rate: f64,
    /// How many requests above the rate may wait; fractions are allowed.
    #[schemars(range(min = 0))]
    burst: f64,
    /// Whose requests count together: the name of a variable, or with `key_type: var_combination` a
    /// text with `$variables` in it. Without a value in a request, the client's address.
    key: String,
    /// How `key` is read.
    #[serde(default)]
    #[schemars(schema_with = "var_or_combination")]
    key_type: KeyType,
    #[serde(flatten)]
    store: Store,
    /// The status of refusals.
    #[serde(default = "unavailable")]
    #[schemars(range(min = 200, max = 599))]
    rejected_code: u16,
    /// What refusals say, as `{"error_msg": ...}`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    rejected_msg: Option<String>,
    /// Lets the burst pass at once.
    #[serde(default)]
    nodelay: bool,
    /// Lets requests pass while Redis cannot be asked.
    #[serde(default)]
    allow_degradation: bool,
}

fn unavailable() -> u16 {
    503
}

/// The built plugin.
pub struct LimitReq {
    engine: Arc<Engine>,
    key: Arc<KeySource>,
    rule: Rule,
    post: Arc<Named>,
    refusal: Reply,
    nodelay: bool,
    degrades: bool,
    /// Where requests are counted, unless in this gateway.
    shared: Option<Shared>,
}

/// A count that several gateways share.
struct Shared {
    central: Arc<Central>,
    law: Law,
    owner: Box<str>,
    rule_name: Box<str>,
}

impl Plugin for LimitReq {
    const NAME: &'static str = "limit-req";
    const PRIORITY: i32 = 1_001;
    const PHASES: Phases = Phases::ACCESS;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        conf.store
            .check(&[Policy::Local, Policy::Redis, Policy::RedisCluster], out);
    }

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<LimitReq, Problems> {
        let engine = engine(bx);
        let rule = Rule::leaky(conf.rate, conf.burst)
            .map_err(|bad| Problem::new("rate", bad.to_string()))?;
        let shared = match conf.store.central(bx) {
            None => None,
            Some(central) => Some(Shared {
                central,
                law: Law::leaky(conf.rate, conf.burst)
                    .map_err(|bad| Problem::new("rate", bad.to_string()))?,
                owner: format!("{}:{}", Self::NAME, bx.owner).into(),
                rule_name: conf.key.as_str().into(),
            }),
        };
        let reason = "request rate is too high";
        let key = KeySource::new(&engine, &[Self::NAME, bx.owner], conf.key_type, &conf.key);
        let key = Arc::new(key);
        let burst = conf.burst;
        let kept = match &shared {
            None => Kept::Here,
            Some(shared) => Kept::Shared {
                chosen: None,
                overridable: false,
                seen: Some(InRedis {
                    store: Arc::clone(&shared.central) as Arc<dyn QuotaStore>,
                    name: conf.store.name(),
                    place: Whose {
                        owner: shared.owner.clone(),
                        rule: shared.rule_name.clone(),
                        spread: true,
                    }
                    .place(&key),
                    law: {
                        let law = shared.law;
                        Box::new(move |_| Ok(law))
                    },
                }),
            },
        };
        let counts = Told {
            kept,
            key: Arc::clone(&key),
            expression: conf.key.as_str().into(),
            within: Within::Limit,
            numbers: Box::new(move |wanted| match wanted.count {
                None => Ok(Counted::Rate(rule)),
                Some(count) => Rule::leaky(count as f64, burst)
                    .map(Counted::Rate)
                    .map_err(|bad| Unclear::Rule(bad.to_string())),
            }),
            limit: format!("{} a second, {burst} more wait", conf.rate).into(),
            bound: bound::BUCKET,
            dry_run: false,
        };
        Ok(LimitReq {
            post: posts::post(bx, &engine, "1", counts),
            key,
            engine,
            rule,
            refusal: refusal(conf.rejected_code, conf.rejected_msg.as_deref(), reason),
            nodelay: conf.nodelay,
            degrades: conf.allow_degradation,
            shared,
        })
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.key.any_var(is)
    }

    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)> {
        let key = self.key.find_or_address(&self.engine, cx);
        let asked = Some((key, Counted::Rate(self.rule)));
        let more = posts::explained(&self.post, (&self.engine, cx), asked);
        let key = posts::brief(self.key.shown_or_address(cx));
        [("key", key)].into_iter().chain(more).collect()
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        if let Some(shared) = &self.shared {
            return Ok(self.ask_central(shared, cx));
        }
        let ask = Ask {
            rule: &self.rule,
            key: self.key.find_or_address(&self.engine, cx),
            cost: 1,
        };
        let now = now(&self.engine, cx);
        let (decision, _) = self.engine.take(&ask, now);
        posts::note(&self.post, &decision, decision.allowed, (cx, now));
        if !decision.allowed {
            return Ok(Step::Reply(self.refusal.clone()));
        }
        Ok(hold(cx, self.delay(Duration::from_nanos(decision.delay))))
    }
}

impl LimitReq {
    /// How long a request is held back.
    fn delay(&self, due: Duration) -> Duration {
        if self.nodelay { Duration::ZERO } else { due }
    }

    fn ask_central<'a>(&'a self, shared: &'a Shared, cx: &'a mut Ctx<'_>) -> Step<'a> {
        let (rule, text) = match self.key.text(cx) {
            Some(text) => (Cow::Borrowed(&*shared.rule_name), text),
            None => store::address(&shared.rule_name, cx),
        };
        let charge = Charge {
            key: store::key(&shared.owner, &rule, &text, true),
            law: shared.law,
            cost: 1,
        };
        let now = now(&self.engine, cx);
        Step::Wait(Box::pin(async move {
            let asked = shared.central.check(&[charge], now).await;
            let outcome = asked.as_ref().ok().and_then(|said| said.outcomes.first());
            if let Some(outcome) = outcome {
                let decision = decision(shared.law, outcome);
                posts::note(&self.post, &decision, outcome.allowed, (cx, now));
            }
            match asked {
                Ok(verdict) if verdict.allowed => {
                    let delay = verdict.outcomes.first().map_or(Duration::ZERO, |o| o.delay);
                    if let Some(wait) = wait(cx, self.delay(delay)) {
                        wait.await;
                    }
                    Ok(Flow::Next)
                }
                Ok(_) => Ok(Flow::Reply(self.refusal.clone())),
                Err(away) => {
                    store::tell(&away);
                    Ok(if self.degrades {
                        self.post.passed_unasked(now);
                        Flow::Next
                    } else {
                        Flow::Reply(undecided("Redis cannot be asked"))
                    })
                }
            }
        }))
    }
}

/// What Redis said, as limits are told of it.
fn decision(law: Law, outcome: &lockgate_quota::Outcome) -> Decision {
    Decision {
        allowed: outcome.allowed,
        limit: match law {
            Law::Bucket { holds, .. } => holds as u64,
            Law::Fixed { limit, .. } | Law::Sliding { limit, .. } | Law::Log { limit, .. } => limit,
        },
        remaining: outcome.remaining,
        reset: nanos(outcome.reset),
        retry: outcome.retry.map_or(NEVER, nanos),
        delay: nanos(outcome.delay),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{Instance, build_error, run};
    use serde_json::{Value, json};

    fn conf(extra: &Value) -> Value {
        let mut conf = json!({"rate": 2, "burst": 2, "key": "remote_addr"});
        let extra = extra.as_object().unwrap().clone();
        conf.as_object_mut().unwrap().extend(extra);
        conf
    }

    fn slept(limit: &Instance) -> u128 {
        limit.request().get("/").expect_next().slept().as_millis()
    }

    #[test]
    fn requests_that_come_too_early_wait() {
        let limit = run::<LimitReq>(conf(&json!({}))).build();
        // In tests sleeping moves the clock, so nobody comes too early for long.
        assert_eq!([slept(&limit), slept(&limit), slept(&limit)], [0, 500, 500]);
        limit.advance(Duration::from_millis(400));
        assert_eq!(slept(&limit), 100);
        limit.advance(Duration::from_secs(60));
        assert_eq!(slept(&limit), 0);
    }

    #[test]
    fn what_is_above_the_burst_is_refused() {
        let limit = conf(&json!({"nodelay": true, "rejected_code": 429, "rejected_msg": "slow"}));
        let limit = run::<LimitReq>(limit).build();
        assert_eq!([slept(&limit), slept(&limit), slept(&limit)], [0, 0, 0]);
        let answer = limit.request().get("/").expect_reply(429);
        assert_eq!(answer.text(), "{\"error_msg\":\"slow\"}\n");
        let _ = limit.request().from("192.0.2.2").get("/").expect_next();
        limit.advance(Duration::from_millis(500));
        assert_eq!(slept(&limit), 0);
        limit.request().get("/").expect_reply(429);
        // Another limit applies to what was counted.
        let edited = limit.edited(&conf(&json!({"nodelay": true, "burst": 3})));
        assert_eq!(slept(&edited), 0);
        edited.request().get("/").expect_reply(503);
    }

    #[test]
    fn fractions() {
        let limit = conf(&json!({"rate": 0.1, "burst": 0.5, "nodelay": true}));
        let limit = run::<LimitReq>(limit).build();
        assert_eq!(slept(&limit), 0);
        limit.advance(Duration::from_millis(4_900));
        limit.request().get("/").expect_reply(503);
        limit.advance(Duration::from_millis(100));
        assert_eq!(slept(&limit), 0);
    }

    #[test]
    fn nobody_is_held_longer_than_an_hour() {
        let limit = run::<LimitReq>(conf(&json!({"rate": 0.0001}))).build();
        assert_eq!([slept(&limit), slept(&limit)], [0, 3_600_000]);
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |conf: Value, expected: &str| {
            let text = build_error::<LimitReq>(conf);
            assert!(text.contains(expected), "{text}");
        };
        check(json!({}), "\"rate\" is required");
        check(
            conf(&json!({"rate": 0})),
            "rate: expected 0 to be greater than 0",
        );
        check(
            conf(&json!({"rate": -1})),
            "rate: expected -1 to be greater than 0",
        );
        check(
            conf(&json!({"burst": -1})),
            "burst: expected -1 to be at least 0",
        );
        check(conf(&json!({"key_type": "constant"})), "key_type: ");
        check(conf(&json!({"policy": "redis"})), "redis_host: ");
    }
}
