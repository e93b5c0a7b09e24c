//! Counting in Redis: one script and one round trip for all limits of a request.

use std::borrow::Cow;
use std::time::Duration;

use lockgate_limit::{Decision, Nanos};
use lockgate_plugin::{Ctx, Flow, Outcome, Reply, Step};
use lockgate_quota::{self as quota, BadLaw, Central, Charge, Law};
use smallvec::SmallVec;

use super::{Limit, LimitCount, WindowType};
use crate::traffic::limits::{nanos, now, store};

type Charges<'a> = SmallVec<[(&'a Limit, u64); 2]>;

impl LimitCount {
    pub(super) fn ask_central<'a>(
        &'a self,
        central: &'a Central,
        cx: &'a mut Ctx<'_>,
    ) -> Outcome<'a> {
        let Some((limits, charges)) = self.charges(cx) else {
            return Ok(self.undecided("a variable has no usable number"));
        };
        if charges.is_empty() {
            return Ok(self.undecided("no rule applies"));
        }
        let now = now(&self.engine, cx);
        Ok(Step::Wait(Box::pin(async move {
            let verdict = match central.check(&charges, now).await {
                Ok(verdict) => verdict,
                Err(away) => {
                    store::tell(&away);
                    let failed = Reply::error_msg(500, "failed to limit count");
                    return Ok(if self.degrades {
                        for (limit, _) in &limits {
                            limit.post.passed_unasked(now);
                        }
                        Flow::Next
                    } else {
                        Flow::Reply(failed.because("Redis cannot be asked"))
                    });
                }
            };
            for ((limit, count), outcome) in limits.iter().zip(&verdict.outcomes) {
                // It would have let the request pass, and was not charged, as another refused.
                let kept = u64::from(outcome.allowed && !verdict.allowed);
                let mut decision = decision(*count, outcome);
                decision.remaining = decision.remaining.saturating_add(kept);
                limit.show(&decision, (verdict.allowed, now), cx);
            }
            Ok(if verdict.allowed {
                Flow::Next
            } else {
                Flow::Reply(self.refusal.clone())
            })
        })))
    }

    /// Tells what a store said of the only limit.
    pub(super) fn tell(
        &self,
        limit: &Limit,
        (count, outcome): (u64, &quota::Outcome),
        now: Nanos,
        cx: &mut Ctx<'_>,
    ) {
        limit.show(&decision(count, outcome), (outcome.allowed, now), cx);
    }

    /// Where APISIX counts a request of a group, so that its nodes and this gateway count together.
    fn as_apisix(&self, group: &str, limit: &Limit, cx: &Ctx<'_>) -> String {
        let text = limit.key.shown(cx);
        let text = text.unwrap_or_else(|| limit.key.address_text(cx));
        format!("plugin-limit-count:v1:{group}:{text}")
    }

    /// What applies to a request, with its count; `None` when a number cannot be found.
    fn charges(&self, cx: &Ctx<'_>) -> Option<(Charges<'_>, Vec<Charge>)> {
        let (mut limits, mut charges) = (SmallVec::new(), Vec::with_capacity(self.limits.len()));
        for limit in &self.limits {
            let (rule, text) = match limit.key.text(cx) {
                Some(text) => (Cow::Borrowed(&*limit.rule_name), text),
                None if self.skips => continue,
                None => store::address(&limit.rule_name, cx),
            };
            let numbers = limit.numbers.find(cx).and_then(|(count, window)| {
                Some((count, law(limit.window_type, count, window).ok()?))
            });
            let (count, law) = match numbers {
                Some(numbers) => numbers,
                None if self.leaves_out() => continue,
                None => return None,
            };
            limits.push((limit, count));
            charges.push(Charge {
                key: match &self.with_apisix {
                    Some(group) => self.as_apisix(group, limit, cx),
                    None => store::key(&self.owner, &rule, &text, !self.skips),
                },
                law,
                cost: 1,
            });
        }
        Some((limits, charges))
    }
}

/// What is told of an answer.
fn decision(count: u64, outcome: &quota::Outcome) -> Decision {
    Decision {
        allowed: outcome.allowed,
        limit: count,
        remaining: outcome.remaining,
        reset: nanos(if outcome.allowed {
            outcome.reset
        } else {
            outcome.retry.unwrap_or(outcome.reset)
        }),
        retry: 0,
        delay: 0,
    }
}

/// A limit as Redis counts it.
pub(super) fn law(kind: WindowType, limit: u64, seconds: u64) -> Result<Law, BadLaw> {
    let window = Duration::from_secs(seconds);
    match kind {
        WindowType::Fixed => Law::Fixed { limit, window },
        WindowType::Sliding => Law::Sliding { limit, window },
    }
    .checked()
}
