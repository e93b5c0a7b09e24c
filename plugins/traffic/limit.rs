//! `limit`: any number of limits on rate, quota and concurrency, as one.
//!
//! A request has to be within every limit that applies to it, and is counted by all of them or by
//! none. Each limit says what it counts: with which algorithm, whose requests together, within which
//! scope, and what a request costs. Nothing of this is known to APISIX.
//!
//! | `algorithm` | what passes |
//! | --- | --- |
//! | `token_bucket` | `count` in `time_window`, evenly, and `burst` at once |
//! | `leaky_bucket` | the same rate; up to `burst` more wait for their turn |
//! | `fixed_window` | `count`, then none until the window ends; twice as many across its end |
//! | `sliding_window` | `count`; the window before counts in part, or with `strict` in full |
//! | `buckets` | `count`; the window has `parts`, of which the oldest counts in part, or with `strict` in full |
//! | `log` | `count` in any window, exactly; for counts up to 64 |
//! | `concurrency` | `count` at once |
//!
//! `buckets` and `log` are kept for 65,536 clients at once in the whole gateway, as are sliding windows of
//! more than 33 million (a million when shorter than a second); the others for a million. When more of them
//! count, the oldest of the former are given up, and light clients of the latter pass uncounted, which
//! `apisix_limit_evicted_total` and `apisix_limit_unseen_total` tell.
//!
//! With `dry_run` a limit counts for itself and refuses nothing; the log says at level `debug` when
//! it would have. Counts survive every edit but that of a limit's name, key or scope, and in a store of its
//! algorithm.
//!
//! # Several gateways
//!
//! With a `store` all gateways count together in Redis (`policy: redis`, `redis-cluster` or `redis-sentinel`,
//! and the attributes that `limit-count` has for it); a limit with `mode: local` stays by itself. Without one they can
//! count for each other, if they do so at all, in limits with another `mode`.
//!
//! | `mode` | how |
//! | --- | --- |
//! | `local` | in this gateway, for this gateway |
//! | `exact` | the store is asked once for each request, for all its limits together |
//! | `lease` | a gateway takes permits ahead and spends them without asking: a fixed window is never exceeded, a sliding one by a hundredth at most, a bucket by a tenth of its burst, once |
//! | `auto` | `lease` where that saves anything: windows of at least 10 s and 128 permits for each gateway, buckets that hold 2 s of their rate; else `exact`, or for a rate that is too much for Redis a part in each gateway |
//!
//! In a cluster, where limits are in different places, the one with the least left is asked first and then the others at
//! once; when one of these refuses the others get back what they were charged. Concurrency has a place in Redis for each
//! request under way, which is free ten seconds after its gateway died. `buckets`, aligned windows and strict sliding
//! windows count in this gateway only; logs, leaky buckets and concurrency have to see each request.
//!
//! While the store cannot be asked `on_store_error` decides: with `local` each gateway goes on alone, for
//! its part of the limit (one of `gateways` parts), of which it has used up what itself let pass before; all together
//! then let pass no more than the limit besides what had passed before. What requests cost afterwards (`refund_on`,
//! `cost_header`) is told to the store beside the traffic, once; while it is away that is lost.
//!
//! ```yaml
//! plugins:
//!   limit:
//!     limits:
//!       - { name: client, count: 20, time_window: 1, burst: 40 }
//!       - { name: user, algorithm: sliding_window, count: 1000, time_window: 3600, key: $consumer_name, scope: global }
//!       - { name: work, algorithm: concurrency, count: 100, key: "", scope: service, mode: local }
//!     store: { policy: redis, redis_host: 127.0.0.1 }
//!     gateways: 3
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | `rejected_code` | `{"error_msg":"..."}` with `rejected_msg`, else the gateway's page | a limit is reached, or a key has no value and `on_missing` is `deny` |
//! | 500 | the gateway's page | a variable gives no usable number |
//!
//! Responses carry `RateLimit-Policy` and `RateLimit` with a member for each limit: `"client";r=19;t=1`
//! says that 19 are left, for one second. A refusal adds `Retry-After`.

mod conf;
mod decide;
mod headers;
mod one;
mod shared;
mod stores;
mod suit;
#[cfg(test)]
mod tests;
mod together;

use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{Ask, Ended, Engine, Guard, Key, Nanos, Receipt, Rule};
use lockgate_plugin::{
    BuildCx, Ctx, Flow, HeaderKey, Outcome, Phases, Plugin, Problems, Reply, Step, Var,
};
use lockgate_quota::PlaceHeld;
use smallvec::SmallVec;

pub use self::conf::Conf;
use self::decide::Verdict;
use self::headers::Headers;
use self::one::{Asked, Limit, Missing};
use self::stores::{Spent, Stores, whole};
use super::limits::{ended, engine, hold, now, posts, refusal, undecided, wait};

/// The built plugin.
pub struct Limits {
    engine: Arc<Engine>,
    limits: Box<[Limit]>,
    refusal: Reply,
    headers: Option<Headers>,
    refunds: Box<[conf::Statuses]>,
    cost_header: Option<HeaderKey>,
    /// Tells clients which limits refused.
    rejected_by: Option<HeaderKey>,
    /// Where limits are counted that gateways share, if there are such limits.
    stores: Option<Stores>,
}

/// What a request holds while it is under way.
#[derive(Default)]
struct Held {
    guards: SmallVec<[Guard; 1]>,
    places: SmallVec<[PlaceHeld; 1]>,
    charges: SmallVec<[Charge; 2]>,
    /// What was charged in the store.
    shared: SmallVec<[Spent; 1]>,
}

/// What was charged, until the answer says what it should have been.
struct Charge {
    rule: Rule,
    key: Key,
    cost: u64,
    receipt: Receipt,
}

impl Plugin for Limits {
    const NAME: &'static str = "limit";
    const PRIORITY: i32 = 1_000;
    const PHASES: Phases = Phases::ACCESS.and(Phases::LOG);
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        conf.check(out);
    }

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<Limits, Problems> {
        let mut out = Problems::default();
        let engine = engine(bx);
        let stores = Stores::build(&conf, bx, &mut out);
        let each = conf.limits.iter().enumerate();
        let limits: Box<[Limit]> = each
            .map(|(at, limit)| {
                let mut out = out.at("limits");
                let mut out = out.at_index(at);
                let problems: &mut Problems = &mut out;
                let around = (stores.as_ref(), problems);
                Limit::build((limit, at), &conf, (&engine, bx), around)
            })
            .collect();
        let mut header = |field: &str, name: Option<&str>| {
            let key = name.map(str::parse).transpose();
            key.unwrap_or_else(|why| {
                out.add(field, format!("the name is {why}"));
                None
            })
        };
        let cost_header = header("cost_header", conf.cost_header.as_deref());
        let rejected_by = header("rejected_by_header", conf.rejected_by_header.as_deref());
        out.into_result()?;
        let reason = "a limit is reached";
        Ok(Limits {
            engine,
            headers: conf.standard_headers.then(|| Headers::new(&limits)),
            limits,
            refusal: refusal(conf.rejected_code, conf.rejected_msg.as_deref(), reason),
            refunds: conf.refund_on.into(),
            cost_header,
            rejected_by,
            stores,
        })
    }

    fn phases(&self) -> Phases {
        if self.settles() || self.limits.iter().any(Limit::is_concurrency) {
            Self::PHASES
        } else {
            Phases::ACCESS
        }
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.limits.iter().any(|limit| limit.any_var(is))
    }

    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)> {
        let limits = self.limits.iter();
        limits.flat_map(|l| l.explained(&self.engine, cx)).collect()
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let now = now(&self.engine, cx);
        let mut asked = SmallVec::<[(&Limit, Asked); 4]>::new();
        for limit in &self.limits {
            match limit.asked(&self.engine, cx) {
                Ok(ask) => asked.push((limit, ask)),
                Err(Missing::Skip) => {}
                Err(Missing::Deny) if limit.dry_run => limit.would_refuse(cx, now),
                Err(Missing::Deny) => {
                    limit.refused(Ended::Reject, cx, now);
                    return Ok(Step::Reply(self.refusal.clone()));
                }
                Err(Missing::Number) if limit.dry_run => {}
                Err(Missing::Number) => {
                    return Ok(Step::Reply(undecided("a variable has no usable number")));
                }
            }
        }
        if let Some(stores) = &self.stores {
            return Ok(Step::Wait(Box::pin(async move {
                let (verdict, held) = self.decide_together(stores, &asked, now).await;
                Ok(match self.conclude(&verdict, held, (cx, now)) {
                    Ok(delay) => {
                        if let Some(wait) = wait(cx, delay) {
                            wait.await;
                        }
                        Flow::Next
                    }
                    Err(refusal) => Flow::Reply(refusal),
                })
            })));
        }
        let mut held = Held::default();
        let verdict = self.decide(asked.iter(), &mut held, now);
        Ok(match self.conclude(&verdict, held, (cx, now)) {
            Ok(delay) => hold(cx, delay),
            Err(refusal) => Step::Reply(refusal),
        })
    }

    fn log(&self, cx: &mut Ctx<'_>) {
        if cx.get_local::<Held>().is_none() {
            return;
        }
        // The guards go at the end of this.
        let held = std::mem::take(cx.local::<Held>());
        let status = cx.status();
        let refunded = self.refunds.iter().any(|statuses| statuses.has(status));
        let told = self.cost_header.as_ref().and_then(|key| {
            let value = std::str::from_utf8(cx.resp_header(key)?).ok()?;
            value.trim().parse::<u64>().ok()
        });
        let used = if refunded { Some(0) } else { told };
        let Some(used) = used else { return };
        let now = ended(&self.engine, cx);
        if let Some(stores) = &self.stores {
            for spent in &held.shared {
                let more = whole(used).saturating_sub(whole(spent.charge.cost));
                stores.correct(spent, more, now);
            }
        }
        for charge in held.charges {
            let ask = Ask {
                rule: &charge.rule,
                key: charge.key,
                cost: charge.cost,
            };
            self.engine.settle(&ask, charge.receipt, used, now);
        }
    }
}

impl Limits {
    /// What becomes of the request: how long it waits, or the answer.
    fn conclude(
        &self,
        verdict: &Verdict<'_>,
        held: Held,
        (cx, now): (&mut Ctx<'_>, Nanos),
    ) -> Result<Duration, Reply> {
        for (limit, decision) in &verdict.shown {
            let away = verdict.away.iter().any(|(other, _)| other.at == limit.at);
            // What passes here is told below.
            let by = if away { posts::alone } else { posts::note };
            by(&limit.post, decision, verdict.allowed, (cx, now));
        }
        for (limit, ended) in verdict.away.iter().filter(|_| verdict.allowed) {
            limit.refused(*ended, cx, now);
        }
        for (limit, passed) in &verdict.dry {
            match passed {
                Some(decision) => limit.post.tally().passed(decision),
                None => limit.would_refuse(cx, now),
            }
        }
        if let Some(headers) = &self.headers {
            headers.show(&verdict.shown, cx);
            if !verdict.allowed {
                headers.retry(verdict.retry, cx);
            }
        }
        if !verdict.allowed {
            if let Some(header) = &self.rejected_by {
                let by = verdict.shown.iter().filter(|(_, said)| !said.allowed);
                let names: Vec<&str> = by.map(|(limit, _)| &*limit.name).collect();
                cx.set_resp_header(header, names.join(", "));
            }
            return Err(self.refusal.clone());
        }
        if !held.is_empty() {
            *cx.local() = held;
        }
        Ok(Duration::from_nanos(verdict.delay))
    }

    /// Whether a charge may change when the answer is known.
    fn settles(&self) -> bool {
        !self.refunds.is_empty() || self.cost_header.is_some()
    }
}

impl Held {
    fn is_empty(&self) -> bool {
        let counts = self.guards.is_empty() && self.places.is_empty();
        counts && self.charges.is_empty() && self.shared.is_empty()
    }
}
