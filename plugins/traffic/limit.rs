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
//! it would have. Counts are kept in this gateway's memory and survive every edit but that of a limit's
//! name, key or scope.
//!
//! ```yaml
//! plugins:
//!   limit:
//!     limits:
//!       - { name: client, count: 20, time_window: 1, burst: 40 }
//!       - { name: user, algorithm: sliding_window, count: 1000, time_window: 3600, key: $consumer_name, scope: global }
//!       - { name: work, algorithm: concurrency, count: 100, key: "", scope: service }
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
mod headers;
mod one;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{Ask, Decision, Ended, Engine, Guard, Key, NEVER, Nanos, Receipt, Rule};
use lockgate_plugin::{
    BuildCx, Ctx, HeaderKey, Outcome, Phases, Plugin, Problems, Reply, Step, Var,
};
use smallvec::SmallVec;

pub use self::conf::Conf;
use self::headers::Headers;
use self::one::{Asked, Limit, Missing};
use super::limits::{ended, engine, hold, now, posts, refusal, undecided};

/// The built plugin.
pub struct Limits {
    engine: Arc<Engine>,
    limits: Box<[Limit]>,
    refusal: Reply,
    headers: Option<Headers>,
    refunds: Box<[conf::Statuses]>,
    cost_header: Option<HeaderKey>,
}

/// What a request holds while it is under way.
#[derive(Default)]
struct Held {
    guards: SmallVec<[Guard; 1]>,
    charges: SmallVec<[Charge; 2]>,
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
        let each = conf.limits.iter().enumerate();
        let limits: Box<[Limit]> = each
            .map(|(at, limit)| {
                let mut out = out.at("limits");
                Limit::build(limit, conf.dry_run, (&engine, bx), &mut out.at_index(at))
            })
            .collect();
        let cost_header = conf.cost_header.as_deref().map(str::parse);
        let cost_header = cost_header.transpose().unwrap_or_else(|why| {
            out.add("cost_header", format!("the name is {why}"));
            None
        });
        out.into_result()?;
        let reason = "a limit is reached";
        Ok(Limits {
            engine,
            headers: conf.standard_headers.then(|| Headers::new(&limits)),
            limits,
            refusal: refusal(conf.rejected_code, conf.rejected_msg.as_deref(), reason),
            refunds: conf.refund_on.into(),
            cost_header,
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
        let mut held = Held::default();
        let verdict = self.decide(&asked, &mut held, (cx, now));
        for (limit, decision) in &verdict.shown {
            let noted = (&*limit.key, &*cx, now);
            posts::note(&limit.post, decision, verdict.allowed, noted);
        }
        if let Some(headers) = &self.headers {
            headers.show(&verdict.shown, cx);
        }
        if !verdict.allowed {
            if let Some(headers) = &self.headers {
                headers.retry(verdict.retry, cx);
            }
            return Ok(Step::Reply(self.refusal.clone()));
        }
        if !held.guards.is_empty() || !held.charges.is_empty() {
            *cx.local() = held;
        }
        Ok(hold(cx, Duration::from_nanos(verdict.delay)))
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

/// What all limits say together.
struct Verdict<'a> {
    allowed: bool,
    /// What each says that is not only looked at.
    shown: SmallVec<[(&'a Limit, Decision); 4]>,
    delay: u64,
    retry: u64,
}

impl Limits {
    /// Whether a charge may change when the answer is known.
    fn settles(&self) -> bool {
        !self.refunds.is_empty() || self.cost_header.is_some()
    }

    /// Asks all of them. What is charged or entered is put into `held`, if the request may pass.
    fn decide<'a>(
        &self,
        asked: &[(&'a Limit, Asked)],
        held: &mut Held,
        (cx, now): (&Ctx<'_>, Nanos),
    ) -> Verdict<'a> {
        let mut verdict = Verdict {
            allowed: true,
            shown: SmallVec::new(),
            delay: 0,
            retry: 0,
        };
        let mut rates = SmallVec::<[(&Limit, Ask<'_>); 4]>::new();
        for (limit, ask) in asked {
            match &ask.rule {
                Some(rule) if limit.dry_run => {
                    let ask = Ask {
                        rule,
                        key: ask.key,
                        cost: ask.cost,
                    };
                    let (decision, _) = self.engine.take(&ask, now);
                    if decision.allowed {
                        limit.post.tally().passed(&decision);
                    } else {
                        limit.would_refuse(cx, now);
                    }
                }
                Some(rule) => rates.push((
                    limit,
                    Ask {
                        rule,
                        key: ask.key,
                        cost: ask.cost,
                    },
                )),
                None => self.enter((limit, ask), held, &mut verdict, (cx, now)),
            }
        }
        if verdict.allowed && !rates.is_empty() {
            let asks: SmallVec<[Ask<'_>; 4]> = rates.iter().map(|(_, ask)| *ask).collect();
            let all = self.engine.take_all(&asks, now);
            verdict.allowed = all.allowed;
            for ((limit, _), decision) in rates.iter().zip(&all.decisions) {
                verdict.shown.push((limit, *decision));
                verdict.delay = verdict.delay.max(decision.delay);
                verdict.retry = verdict.retry.max(decision.retry);
            }
            if self.settles() {
                let charges = asks.iter().zip(all.receipts);
                held.charges.extend(charges.map(|(ask, receipt)| Charge {
                    rule: *ask.rule,
                    key: ask.key,
                    cost: ask.cost,
                    receipt,
                }));
            }
        }
        if !verdict.allowed {
            *held = Held::default();
        }
        verdict
    }

    /// Counts a request that is under way.
    fn enter<'a>(
        &self,
        (limit, ask): (&'a Limit, &Asked),
        held: &mut Held,
        verdict: &mut Verdict<'a>,
        (cx, now): (&Ctx<'_>, Nanos),
    ) {
        let most = self.engine.overrides().at_once(ask.key, ask.count, now);
        let counts = self.engine.concurrency();
        if limit.dry_run {
            if let Ok((guard, there)) = counts.enter(ask.key, u64::MAX) {
                held.guards.push(guard);
                if there > most {
                    limit.would_refuse(cx, now);
                }
            }
            return;
        }
        let (allowed, there) = match counts.enter(ask.key, most) {
            Ok((guard, there)) => {
                held.guards.push(guard);
                (true, there)
            }
            Err(there) => (false, there),
        };
        if !allowed {
            verdict.allowed = false;
            // Who knows when one of them ends.
            verdict.retry = NEVER;
        }
        let decision = Decision {
            allowed,
            limit: most,
            remaining: most.saturating_sub(there),
            reset: 0,
            retry: if allowed { 0 } else { NEVER },
            delay: 0,
        };
        verdict.shown.push((limit, decision));
    }
}
