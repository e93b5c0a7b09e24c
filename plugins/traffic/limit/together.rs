//! What the limits say that several gateways share.

use std::time::Duration;

use lockgate_limit::{Ask, Counted, Decision, NEVER, Rule};
use lockgate_quota::{self as quota, Entered, Seat};
use smallvec::SmallVec;

use super::conf::{Algorithm, OnStoreError};
use super::decide::Verdict;
use super::one::{Asked, Limit};
use super::stores::{Question, Said, Spent, Stores, whole};
use super::{Charge, Held, Limits};
use crate::traffic::limits::{nanos, places, store};

/// A limit that the store is asked about.
type Shared<'a, 'b> = (&'b Limit, &'a Asked, Question<'a>);

impl Limits {
    /// Asks all limits: those that count here first, since they cost nothing; then places, then the rest.
    pub(super) async fn decide_together<'b>(
        &self,
        stores: &Stores,
        asked: &[(&'b Limit, Asked)],
        now: u64,
    ) -> (Verdict<'b>, Held) {
        let mut held = Held::default();
        let own = asked.iter().filter(|(_, ask)| ask.shared.is_none());
        let mut verdict = self.decide(own, &mut held, now);
        if verdict.allowed {
            let round = (&mut held, &mut verdict);
            let late = self.enter_together(stores, asked, round, now).await;
            if verdict.allowed {
                let round = (&mut held, &mut verdict);
                self.charge_together((stores, late), asked, round, now)
                    .await;
            }
        }
        if !verdict.allowed {
            for charge in held.charges.drain(..) {
                let ask = Ask {
                    rule: &charge.rule,
                    key: charge.key,
                    cost: charge.cost,
                };
                self.engine.give_back(&ask, charge.receipt, now);
            }
            held = Held::default();
        }
        verdict.shown.sort_by_key(|(limit, _)| limit.at);
        (verdict, held)
    }

    /// Takes places for a request that is under way. Who has waited in vain for one does not wait again: true.
    async fn enter_together<'b>(
        &self,
        stores: &Stores,
        asked: &[(&'b Limit, Asked)],
        (held, verdict): (&mut Held, &mut Verdict<'b>),
        now: u64,
    ) -> bool {
        let mut late = false;
        let Some(seats) = &stores.places else {
            return late;
        };
        for (limit, ask) in asked {
            let Some(shared) = ask.shared.as_ref().filter(|shared| shared.law.is_none()) else {
                continue;
            };
            let most = self.engine.overrides().at_once(ask.key, ask.count, now);
            let Some(name) = limit.shared.as_ref().map(|own| shared.name(&own.naming)) else {
                continue;
            };
            let seat = Seat {
                key: name.key(),
                most: if limit.dry_run { u64::MAX } else { most },
            };
            let entered = match late {
                true => seats.enter_unasked(&[seat], now),
                false => seats.enter(&[seat], now).await,
            };
            let decision = match entered {
                Entered::In(place, there) => {
                    held.places.push(place);
                    let there = there.first().copied().unwrap_or(1);
                    if limit.dry_run && there > most {
                        verdict.dry.push((limit, None));
                    }
                    Some(places(true, most, there))
                }
                Entered::Full(there) => {
                    let there = there.first().copied().unwrap_or(most);
                    Some(places(false, most, there))
                }
                Entered::Away(away, place) => {
                    store::tell(&away);
                    late |= store::has_waited(&away);
                    held.places.push(place);
                    let alone = self.enter_alone(limit, (ask, most), held);
                    verdict.alone(limit, alone.is_none());
                    alone
                }
            };
            match decision {
                Some(decision) if !limit.dry_run => verdict.say(limit, decision),
                _ => {}
            }
            if !verdict.allowed {
                break;
            }
        }
        late
    }

    /// The same while the store is away: among the requests of this gateway.
    fn enter_alone(
        &self,
        limit: &Limit,
        (ask, most): (&Asked, u64),
        held: &mut Held,
    ) -> Option<Decision> {
        let shared = limit.shared.as_ref()?;
        match shared.on_error {
            OnStoreError::Allow => None,
            OnStoreError::Deny => Some(places(false, most, most)),
            OnStoreError::Local => {
                let part = most.div_ceil(shared.gateways);
                let counts = self.engine.concurrency();
                Some(match counts.enter(ask.key, part) {
                    Ok((guard, there)) => {
                        held.guards.push(guard);
                        places(true, part, there)
                    }
                    Err(there) => places(false, part, there),
                })
            }
        }
    }

    /// Charges the request in the store.
    async fn charge_together<'b>(
        &self,
        (stores, late): (&Stores, bool),
        asked: &[(&'b Limit, Asked)],
        (held, verdict): (&mut Held, &mut Verdict<'b>),
        now: u64,
    ) {
        let (dry, real): (SmallVec<[Shared<'_, 'b>; 4]>, SmallVec<[Shared<'_, 'b>; 4]>) = asked
            .iter()
            .filter_map(|(limit, ask)| Some((*limit, ask, self.question(limit, ask, now)?)))
            .partition(|(limit, ..)| limit.dry_run);
        let questions: SmallVec<[&Question<'_>; 4]> =
            real.iter().map(|(_, _, question)| question).collect();
        let looks = dry.iter().map(async |(limit, _, question)| {
            match stores.ask(&[question], late, now).await.first() {
                Some(Said::Charged(outcome)) => Some((
                    *limit,
                    Some(decision(limit, question.count, *outcome, true)),
                )),
                Some(Said::Refused(_)) => Some((*limit, None)),
                _ => None,
            }
        });
        let looks = futures::future::join_all(looks);
        let (said, looks) = futures::join!(stores.ask(&questions, late, now), looks);
        verdict.dry.extend(looks.into_iter().flatten());
        let alone = hear(&real, &said, verdict);
        if verdict.allowed && !alone.is_empty() {
            self.charge_alone(&alone, held, verdict, now);
        }
        let charged = real.iter().zip(&said).filter_map(|(asked, said)| {
            let Said::Charged(outcome) = said else {
                return None;
            };
            Some((asked, outcome.mark))
        });
        for ((limit, ask, question), mark) in charged {
            if !verdict.allowed {
                let spent = Spent::new(question, mark);
                stores.correct(&spent, -whole(question.cost), now);
                continue;
            }
            if question.terms.is_none() {
                self.remember(limit, (ask, question.count), now);
            }
            if self.settles() {
                held.shared.push(Spent::new(question, mark));
            }
        }
    }

    /// What the store is asked for a limit, unless that is a place.
    fn question<'b>(&self, limit: &'b Limit, ask: &'b Asked, now: u64) -> Option<Question<'b>> {
        let (shared, asked) = (limit.shared.as_ref()?, ask.shared.as_ref()?);
        let law = asked.law?;
        let mut terms = shared.terms;
        let (law, count) = match self.engine.overrides().find(ask.key, now) {
            // That of a leaky bucket does not tell its rate.
            Some(Counted::Rate(rule)) if limit.shape.algorithm != Algorithm::LeakyBucket => {
                let count = rule.limit();
                // For a while: permits of another limit are nobody's.
                terms = None;
                (limit.shape.law(count).unwrap_or(law), count)
            }
            _ => (law, ask.count),
        };
        Some(Question {
            shared,
            name: asked.name(&shared.naming),
            law,
            cost: ask.cost,
            count,
            terms,
        })
    }

    /// Counts here, for this gateway's part of limits.
    fn charge_alone<'b>(
        &self,
        alone: &[(&'b Limit, Rule, &Asked)],
        held: &mut Held,
        verdict: &mut Verdict<'b>,
        now: u64,
    ) {
        let asks: SmallVec<[Ask<'_>; 4]> = alone
            .iter()
            .map(|(_, rule, ask)| Ask {
                rule,
                key: ask.key,
                cost: ask.cost,
            })
            .collect();
        // Theirs are parts of what is in force.
        let all = self.engine.take_all_as_is(&asks, now);
        for ((limit, ..), decision) in alone.iter().zip(&all.decisions) {
            verdict.say(limit, *decision);
        }
        verdict.allowed &= all.allowed;
        let charges = asks.iter().zip(all.receipts);
        held.charges.extend(charges.map(|(ask, receipt)| Charge {
            rule: *ask.rule,
            key: ask.key,
            cost: ask.cost,
            receipt,
        }));
    }

    /// Counts here, too, what the store let pass: if it goes away this gateway has used so much of its part.
    fn remember(&self, limit: &Limit, (ask, count): (&Asked, u64), now: u64) {
        let Some(shared) = &limit.shared else { return };
        if shared.on_error != OnStoreError::Local || ask.cost == 0 {
            return;
        }
        if let Some(rule) = limit.shape.part(count, shared.gateways) {
            let nothing = Ask {
                rule: &rule,
                key: ask.key,
                cost: 0,
            };
            let (_, receipt) = self.engine.take_as_is(&nothing, now);
            self.engine.settle(&nothing, receipt, ask.cost, now);
        }
    }
}

impl Limit {
    /// What this gateway counts by while the store is away is added to `alone`. False: the request is refused.
    fn alone<'b, 'a>(&'b self, (ask, count): (&'a Asked, u64), alone: &mut Alone<'a, 'b>) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        match shared.on_error {
            OnStoreError::Allow => true,
            OnStoreError::Deny => false,
            OnStoreError::Local => match self.shape.part(count, shared.gateways) {
                Some(rule) => {
                    alone.push((self, rule, ask));
                    true
                }
                None => false,
            },
        }
    }
}

/// What this gateway counts by itself.
type Alone<'a, 'b> = SmallVec<[(&'b Limit, Rule, &'a Asked); 4]>;

/// Puts what the store said into the verdict; gives the limits that it said nothing about.
fn hear<'a, 'b>(
    real: &[Shared<'a, 'b>],
    said: &[Said],
    verdict: &mut Verdict<'b>,
) -> Alone<'a, 'b> {
    let mut alone = Alone::new();
    for ((limit, ask, question), said) in real.iter().zip(said) {
        let count = question.count;
        match *said {
            Said::Charged(outcome) => {
                // Nothing was charged, but there has to be something left.
                let allowed = ask.cost > 0 || outcome.remaining > 0;
                verdict.say(limit, decision(limit, count, outcome, allowed));
            }
            Said::Free(outcome) => {
                let kept = outcome.remaining.saturating_add(ask.cost);
                let outcome = quota::Outcome {
                    remaining: kept,
                    ..outcome
                };
                verdict.say(limit, decision(limit, count, outcome, true));
            }
            Said::Refused(outcome) => {
                verdict.say(limit, decision(limit, count, outcome, false));
            }
            Said::Alone(outcome) => {
                verdict.alone(limit, false);
                verdict.say(limit, decision(limit, count, outcome, outcome.allowed));
            }
            Said::Away => {
                let before = alone.len();
                if !limit.alone((ask, count), &mut alone) {
                    verdict.say(limit, denied(count));
                } else {
                    verdict.alone(limit, alone.len() == before);
                }
            }
            Said::Unasked => {}
        }
    }
    alone
}

fn decision(limit: &Limit, count: u64, outcome: quota::Outcome, allowed: bool) -> Decision {
    let waits = limit.shape.algorithm == Algorithm::LeakyBucket && allowed;
    Decision {
        allowed,
        limit: count,
        remaining: outcome.remaining,
        reset: nanos(outcome.reset),
        retry: match (allowed, outcome.retry) {
            (true, _) => 0,
            // It costs nothing, and there is nothing left.
            (false, Some(Duration::ZERO)) => nanos(outcome.reset),
            (false, retry) => retry.map_or(NEVER, nanos),
        },
        delay: if waits { nanos(outcome.delay) } else { 0 },
    }
}

/// What is said by a limit that refuses while its store is away.
fn denied(count: u64) -> Decision {
    Decision {
        allowed: false,
        limit: count,
        remaining: 0,
        reset: 0,
        retry: NEVER,
        delay: 0,
    }
}
