//! Asking a store: all limits of a request are charged, or none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockgate_plugin::{BuildCx, Problems};
use lockgate_quota::{
    self as quota, Away, Charge, Choice, Claim, Later, Law, Name, Outcome, OwnerStore, Places,
    QuotaStore, Settled, Share, Situation, Spend, Terms,
};

use super::conf::{Algorithm, Conf, Mode, OnStoreError, One};
use super::shared::Shared;
use crate::traffic::limits::store::{self, HeldPermits, Store};

/// A gateway that owns a key answers within this, or it is as good as gone.
const OWNER_ANSWERS: Duration = Duration::from_millis(100);

/// Where limits are counted that gateways share.
pub(super) struct Stores {
    pub(super) store: Arc<dyn QuotaStore>,
    /// Who that is, for people and metrics.
    pub(super) name: Box<str>,
    pub(super) places: Option<Arc<Places>>,
    pub(super) later: Arc<Later>,
    pub(super) leases: Arc<HeldPermits>,
    /// How long a request waits for permits that are under way.
    longest: Duration,
    /// Whether one call cannot have all keys of a request.
    split: bool,
}

/// What came of one limit of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    /// It passes, and was charged.
    Charged(Outcome),
    /// It would pass, and was not charged, as another refuses.
    Free(Outcome),
    Refused(Outcome),
    /// There was no answer, and this is what its part of the limit says.
    Alone(Outcome),
    /// There was no answer.
    Away,
    /// It was not asked, as another refuses.
    Unasked,
}

impl Said {
    fn refuses(&self) -> bool {
        match self {
            Said::Refused(_) => true,
            Said::Alone(outcome) => !outcome.allowed,
            _ => false,
        }
    }
}

/// What was charged to a shared limit, until it is known what it should have been.
pub(super) struct Spent {
    pub(super) charge: Charge,
    pub(super) mark: u64,
    /// Scope, rule and text of its key, and the terms, if it was paid with permits taken ahead.
    leased: Option<(Box<str>, Box<str>, Box<str>, Terms)>,
}

impl Spent {
    pub(super) fn new(question: &Question<'_>, mark: u64) -> Spent {
        let Name { scope, rule, text } = question.name;
        let leased = |terms| (scope.into(), rule.into(), text.into(), terms);
        Spent {
            charge: question.charge(),
            mark,
            leased: question.terms.map(leased),
        }
    }
}

/// One limit that is asked.
pub(super) struct Question<'a> {
    pub(super) shared: &'a Shared,
    pub(super) name: Name<'a>,
    pub(super) law: Law,
    pub(super) cost: u64,
    pub(super) count: u64,
    /// How permits are taken ahead, if they are.
    pub(super) terms: Option<Terms>,
}

impl Question<'_> {
    pub(super) fn charge(&self) -> Charge {
        Charge {
            key: self.name.key(),
            law: self.law,
            cost: self.cost,
        }
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim {
            name: self.name,
            terms: self.terms.as_ref()?,
            cost: self.cost,
        })
    }
}

impl Stores {
    /// The store of a plugin's shared limits; `None` when all count here.
    pub(super) fn build(conf: &Conf, bx: &BuildCx<'_>, out: &mut Problems) -> Option<Stores> {
        let modes = || conf.limits.iter().map(|one| (one, conf.mode(one)));
        if modes().all(|(_, mode)| mode == Mode::Local) {
            return None;
        }
        let (central, places) = match &conf.store {
            Some(redis) => (
                redis
                    .central(bx)
                    .map(|central| central as Arc<dyn QuotaStore>),
                redis.places(bx, lockgate_quota::LONGEST_LIFE),
            ),
            None => (
                bx.shared::<OwnerStore>().map(|owner| Arc::clone(&owner.0)),
                None,
            ),
        };
        let Some(store) = central else {
            out.add(
                "limits",
                "a `mode` other than `local` needs a `store`, or gateways that count for each other",
            );
            return None;
        };
        let places_wanted = modes()
            .any(|(one, mode)| one.algorithm == Algorithm::Concurrency && mode != Mode::Local);
        if places_wanted && places.is_none() {
            out.add(
                "limits",
                "`concurrency` is shared in Redis only: name it in `store`, or set `mode: local`",
            );
        }
        let longest = conf.store.as_ref().map_or(OWNER_ANSWERS, Store::deadline);
        Some(Stores {
            later: store::later(bx, &store),
            leases: store::leases(bx, &store),
            longest,
            name: conf
                .store
                .as_ref()
                .map_or_else(|| "gateways".into(), Store::name),
            store,
            places,
            split: conf.store.as_ref().is_some_and(|store| store.has_slots()),
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests(store: Arc<dyn QuotaStore>, split: bool) -> Stores {
        use lockgate_quota::Leases;
        Stores {
            later: Arc::new(Later::new(Arc::clone(&store))),
            leases: Arc::new(HeldPermits(Leases::new(Arc::clone(&store), 64))),
            longest: OWNER_ANSWERS,
            name: "test".into(),
            store,
            places: None,
            split,
        }
    }

    /// How a limit is counted.
    pub(super) fn choose(&self, (conf, mode): (&One, Mode), law: Law, gateways: u64) -> Choice {
        let situation = Situation {
            law,
            nodes: Some(gateways),
            keeper: Some(self.store.keeper()),
            slack: None,
            expected: None,
            capacity: None,
        };
        match mode {
            Mode::Lease => situation.pinned(quota::Mode::Lease),
            Mode::Local | Mode::Exact => situation.pinned(quota::Mode::Exact),
            // Who waits for its turn has to know the others.
            Mode::Auto if conf.algorithm == Algorithm::LeakyBucket => {
                situation.pinned(quota::Mode::Exact)
            }
            Mode::Auto => match situation.choose() {
                // The store is named: it is meant to count.
                choice if choice.mode == quota::Mode::Local => situation.pinned(quota::Mode::Exact),
                choice => choice,
            },
        }
    }

    /// Asks all limits, so that all are charged or none; what this cannot see to is said with [`Said::Charged`] beside
    /// a refusal, and has to be given back.
    ///
    /// With `late` the request has waited in vain already, and waits no more: what would have to be asked is away.
    pub(super) async fn ask(
        &self,
        questions: &[&Question<'_>],
        mut late: bool,
        now: u64,
    ) -> Vec<Said> {
        let mut said = vec![Said::Unasked; questions.len()];
        // Permits that are here cost nothing, and save the question when there are none.
        for (question, said) in questions.iter().zip(&mut said) {
            if let Some(claim) = question.claim() {
                *said = self.spend(question.shared, &claim, &mut late, now).await;
                if said.refuses() {
                    break;
                }
            }
        }
        let asked: Vec<usize> = (0..questions.len())
            .filter(|at| questions[*at].terms.is_none())
            .collect();
        if !asked.is_empty() && !said.iter().any(|said| said.refuses()) {
            let exact: Vec<&Question<'_>> = asked.iter().map(|at| questions[*at]).collect();
            let answers = if self.split && exact.len() > 1 {
                self.one_by_one(&exact, late, now).await
            } else {
                self.together(&exact, &mut late, now).await
            };
            for (at, answer) in asked.into_iter().zip(answers) {
                said[at] = answer;
            }
        }
        let refused = said.iter().any(|said| said.refuses());
        for (question, said) in questions.iter().zip(&mut said) {
            if let Said::Charged(outcome) | Said::Free(outcome) | Said::Refused(outcome) = said {
                question.shared.saw(outcome, question.count);
            }
            if let (true, Said::Charged(outcome), Some(claim)) = (refused, *said, question.claim())
            {
                self.leases
                    .0
                    .settle_here(&claim, -whole(claim.cost), outcome.mark, now);
                *said = Said::Free(outcome);
            }
        }
        said
    }

    /// Spends permits that were taken ahead, or waits for those that are under way.
    async fn spend(&self, shared: &Shared, claim: &Claim<'_>, late: &mut bool, now: u64) -> Said {
        let outcome = match self.leases.0.take(claim, now) {
            Spend::Known(outcome) => Ok(outcome),
            Spend::Wait | Spend::Full if *late => Err(Away::Known),
            Spend::Wait | Spend::Full => self.leases.0.wait(claim, now, self.longest).await,
            Spend::Away => Err(Away::Known),
        };
        match outcome {
            Ok(outcome) if outcome.allowed => Said::Charged(outcome),
            Ok(outcome) => Said::Refused(outcome),
            Err(away) => {
                store::tell(&away);
                *late |= store::has_waited(&away);
                if shared.on_error != OnStoreError::Local {
                    return Said::Away;
                }
                let part = Share {
                    nodes: shared.gateways,
                    factor: 1.0,
                    left: None,
                };
                Said::Alone(self.leases.0.alone(claim, part, now))
            }
        }
    }

    /// Corrects what was charged for a request that is over, or refused, by this much.
    pub(super) fn correct(&self, spent: &Spent, more: i64, now: u64) {
        if let Some((scope, rule, text, terms)) = &spent.leased {
            let claim = Claim {
                name: Name { scope, rule, text },
                terms,
                cost: spent.charge.cost,
            };
            if self.leases.0.settle_here(&claim, more, spent.mark, now) {
                return;
            }
        }
        let settled = Settled {
            charge: spent.charge.clone(),
            more,
            mark: spent.mark,
        };
        self.later.settle([settled], now);
    }

    async fn together(&self, questions: &[&Question<'_>], late: &mut bool, now: u64) -> Vec<Said> {
        if *late {
            return vec![Said::Away; questions.len()];
        }
        let charges: Vec<Charge> = questions.iter().map(|asked| asked.charge()).collect();
        match self.store.check(&charges, now).await {
            Ok(verdict) => {
                let each = verdict
                    .outcomes
                    .iter()
                    .map(|outcome| match outcome.allowed {
                        true if verdict.allowed => Said::Charged(*outcome),
                        true => Said::Free(*outcome),
                        false => Said::Refused(*outcome),
                    });
                let mut said: Vec<Said> = each.collect();
                // A store that says less than it was asked has not answered.
                said.resize(questions.len(), Said::Away);
                said
            }
            Err(away) => {
                store::tell(&away);
                *late = store::has_waited(&away);
                vec![Said::Away; questions.len()]
            }
        }
    }

    /// In a cluster keys are in different slots. The limit with the least left is asked first: most refusals
    /// come of it, and charge nothing.
    async fn one_by_one(&self, questions: &[&Question<'_>], late: bool, now: u64) -> Vec<Said> {
        let left = |at: &usize| questions[*at].shared.left.load(Ordering::Relaxed);
        let mut said = vec![Said::Unasked; questions.len()];
        let Some(first) = (0..questions.len()).min_by_key(left) else {
            return said;
        };
        let one = async |at: usize, mut late: bool| {
            let answer = self.together(&questions[at..=at], &mut late, now).await;
            (at, answer.into_iter().next().unwrap_or(Said::Away), late)
        };
        let (_, answer, late) = one(first, late).await;
        said[first] = answer;
        if matches!(said[first], Said::Refused(_)) {
            return said;
        }
        let rest = (0..questions.len()).filter(|at| *at != first);
        let rest = rest.map(|at| one(at, late));
        for (at, answer, _) in futures::future::join_all(rest).await {
            said[at] = answer;
        }
        said
    }
}

/// As a difference.
pub(super) fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
