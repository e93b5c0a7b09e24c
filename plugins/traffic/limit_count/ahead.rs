//! Permits taken ahead, for who sets `sync_interval`: the limit holds, and Redis is asked now and then.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::{BuildCx, Ctx, Flow, Outcome, Step};
use lockgate_quota::{
    Away, Choice, Claim, Keeper, Mode, Name, QuotaStore, SLACK, Share, Situation, Spend, Terms,
};

use super::{Conf, Limit, LimitCount, WindowType};
use crate::traffic::limits::now;
use crate::traffic::limits::store::{self, HeldPermits};

/// How permits are taken ahead.
pub(super) struct Ahead {
    permits: Arc<HeldPermits>,
    terms: Terms,
    count: u64,
    /// How long a request waits for permits that are under way.
    longest: Duration,
}

impl Ahead {
    /// How a limit is counted that need not ask for every request; `None` if it has to, or should.
    pub(super) fn suits(conf: &Conf, numbers: &super::Numbers) -> Option<Choice> {
        if !conf.syncs() || conf.rules.is_some() {
            return None;
        }
        let (count, window) = numbers.count.fixed().zip(numbers.window.fixed())?;
        let situation = Situation {
            law: super::central::law(conf.window_type, count, window).ok()?,
            nodes: None,
            keeper: Some(Keeper::Redis),
            slack: None,
            expected: None,
            capacity: None,
        };
        Some(situation.choose()).filter(|choice| choice.mode == Mode::Lease)
    }

    fn claim<'a>(&'a self, scope: &'a str, rule: &'a str, text: &'a str) -> Claim<'a> {
        Claim {
            name: Name { scope, rule, text },
            terms: &self.terms,
            cost: 1,
        }
    }

    pub(super) fn build(
        conf: &Conf,
        bx: &BuildCx<'_>,
        limits: &[Limit],
        store: &Arc<dyn QuotaStore>,
    ) -> Option<Ahead> {
        let [limit] = limits else { return None };
        Ahead::suits(conf, &limit.numbers)?;
        let count = limit.numbers.count.fixed()?;
        let law = super::central::law(conf.window_type, count, limit.numbers.window.fixed()?);
        let slack = match conf.window_type {
            WindowType::Fixed => 0.0,
            WindowType::Sliding => SLACK,
        };
        Some(Ahead {
            permits: store::leases(bx, store),
            // Nobody says how many gateways there are; the store tells who comes.
            terms: Terms::new(law.ok()?, 1, slack)?,
            count,
            longest: conf.store.deadline(),
        })
    }
}

impl LimitCount {
    pub(super) fn take_ahead<'a>(&'a self, ahead: &'a Ahead, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let Some(limit) = self.limits.first() else {
            return Ok(self.undecided("no rule applies"));
        };
        let (rule, text) = match limit.key.text(cx) {
            Some(text) => (Cow::Borrowed(&*limit.rule_name), text),
            None => store::address(&limit.rule_name, cx),
        };
        let scope = store::scope(&self.owner, &text, true).into_owned();
        let now = now(&self.engine, cx);
        let spend = ahead
            .permits
            .0
            .take(&ahead.claim(&scope, &rule, &text), now);
        match spend {
            Spend::Known(outcome) => {
                self.tell(limit, (ahead.count, &outcome), now, cx);
                Ok(self.step(outcome.allowed))
            }
            Spend::Away => self.alone(ahead, &ahead.claim(&scope, &rule, &text), &Away::Known, cx),
            Spend::Wait | Spend::Full => Ok(Step::Wait(Box::pin(async move {
                let claim = ahead.claim(&scope, &rule, &text);
                let outcome = match ahead.permits.0.wait(&claim, now, ahead.longest).await {
                    Ok(outcome) => outcome,
                    Err(away) => {
                        return Ok(match self.alone(ahead, &claim, &away, cx)? {
                            Step::Reply(reply) => Flow::Reply(reply),
                            _ => Flow::Next,
                        });
                    }
                };
                self.tell(limit, (ahead.count, &outcome), now, cx);
                Ok(match outcome.allowed {
                    true => Flow::Next,
                    false => Flow::Reply(self.refusal.clone()),
                })
            }))),
        }
    }

    /// While Redis is away, this gateway goes on with what was left when it was heard of last.
    fn alone<'a>(
        &'a self,
        ahead: &Ahead,
        claim: &Claim<'_>,
        away: &Away,
        cx: &mut Ctx<'_>,
    ) -> Outcome<'a> {
        store::tell(away);
        let Some(limit) = self.limits.first() else {
            return Ok(self.undecided("no rule applies"));
        };
        let whole = Share {
            nodes: 1,
            factor: 1.0,
            left: None,
        };
        let now = now(&self.engine, cx);
        let outcome = ahead.permits.0.alone(claim, whole, now);
        self.tell(limit, (ahead.count, &outcome), now, cx);
        Ok(self.step(outcome.allowed))
    }
}
