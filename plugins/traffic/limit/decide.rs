//! What the limits say that count in this gateway.

use lockgate_limit::{Ask, Decision, Ended, Nanos};
use smallvec::SmallVec;

use super::one::{Asked, Limit};
use super::{Charge, Held, Limits};
use crate::traffic::limits::places;

/// What all limits say together.
pub(super) struct Verdict<'a> {
    pub(super) allowed: bool,
    /// What each says that is not only looked at.
    pub(super) shown: SmallVec<[(&'a Limit, Decision); 4]>,
    /// What those say that only count: `None` for a refusal.
    pub(super) dry: SmallVec<[(&'a Limit, Option<Decision>); 1]>,
    /// Limits whose store could not be asked: who counted here instead ([`Ended::Local`]), or nobody
    /// ([`Ended::ErrorAllow`]).
    pub(super) away: SmallVec<[(&'a Limit, Ended); 1]>,
    pub(super) delay: u64,
    pub(super) retry: u64,
}

impl<'a> Verdict<'a> {
    pub(super) fn new() -> Verdict<'a> {
        Verdict {
            allowed: true,
            shown: SmallVec::new(),
            dry: SmallVec::new(),
            away: SmallVec::new(),
            delay: 0,
            retry: 0,
        }
    }

    /// What one limit says, when it is not only looked at.
    pub(super) fn say(&mut self, limit: &'a Limit, decision: Decision) {
        self.allowed &= decision.allowed;
        self.delay = self.delay.max(decision.delay);
        self.retry = self.retry.max(decision.retry);
        self.shown.push((limit, decision));
    }

    /// The store of a limit could not be asked; it lets the request pass for that, or is counted here.
    pub(super) fn alone(&mut self, limit: &'a Limit, passes: bool) {
        if limit.dry_run {
            return;
        }
        let ended = match passes {
            true => Ended::ErrorAllow,
            false => Ended::Local,
        };
        self.away.push((limit, ended));
    }
}

impl Limits {
    /// Asks the limits that count here. What is charged or entered is put into `held`, if the request may pass.
    pub(super) fn decide<'a, 'b: 'a>(
        &self,
        asked: impl Iterator<Item = &'a (&'b Limit, Asked)>,
        held: &mut Held,
        now: Nanos,
    ) -> Verdict<'b> {
        let mut verdict = Verdict::new();
        let mut rates = SmallVec::<[(&'b Limit, Ask<'_>); 4]>::new();
        for (limit, ask) in asked {
            match &ask.rule {
                Some(rule) if limit.dry_run => {
                    let ask = Ask {
                        rule,
                        key: ask.key,
                        cost: ask.cost,
                    };
                    let (decision, _) = self.engine.take(&ask, now);
                    verdict
                        .dry
                        .push((limit, decision.allowed.then_some(decision)));
                }
                Some(rule) => rates.push((
                    limit,
                    Ask {
                        rule,
                        key: ask.key,
                        cost: ask.cost,
                    },
                )),
                None => self.enter((limit, ask), held, &mut verdict, now),
            }
        }
        if verdict.allowed && !rates.is_empty() {
            let asks: SmallVec<[Ask<'_>; 4]> = rates.iter().map(|(_, ask)| *ask).collect();
            let all = self.engine.take_all(&asks, now);
            for ((limit, _), decision) in rates.iter().zip(&all.decisions) {
                verdict.say(limit, *decision);
            }
            verdict.allowed = all.allowed;
            // Those that share the request with others may still have to give it back.
            if self.settles() || self.stores.is_some() {
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
    fn enter<'b>(
        &self,
        (limit, ask): (&'b Limit, &Asked),
        held: &mut Held,
        verdict: &mut Verdict<'b>,
        now: Nanos,
    ) {
        let most = self.engine.overrides().at_once(ask.key, ask.count, now);
        let counts = self.engine.concurrency();
        if limit.dry_run {
            if let Ok((guard, there)) = counts.enter(ask.key, u64::MAX) {
                held.guards.push(guard);
                if there > most {
                    verdict.dry.push((limit, None));
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
        verdict.say(limit, places(allowed, most, there));
    }
}
