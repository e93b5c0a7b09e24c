//! Limits that several gateways share: how they are called in a store, and how it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockgate_plugin::{BuildCx, Problems};
use lockgate_quota::{Charge, Later, Law, Outcome, OwnerStore, Places, QuotaStore, key_text};

use super::conf::{Algorithm, Conf, Mode, OnStoreError, One, Scope};
use crate::traffic::limits::store;

/// What is left of a limit, in this many parts.
const WHOLE: u64 = 1_000;

/// One limit, as far as other gateways are concerned.
pub(super) struct Shared {
    /// Whose limit, before the slot.
    scope: Box<str>,
    /// The limit, with how it is kept: another algorithm keeps something else.
    rule: Box<str>,
    pub(super) on_error: OnStoreError,
    pub(super) gateways: u64,
    /// What was left of it when it was asked last, in thousandths: the one with the least is asked first.
    left: AtomicU32,
}

/// What a store is asked for one limit.
pub(super) struct SharedAsk {
    pub(super) key: String,
    /// `None` for concurrency.
    pub(super) law: Option<Law>,
}

impl Shared {
    pub(super) fn new((conf, dry_run): (&One, bool), owner: &str, gateways: u64) -> Shared {
        let scope = match conf.scope {
            Scope::Route => owner,
            Scope::Service => "service",
            Scope::Consumer => "consumer",
            Scope::Global => "global",
        };
        // What only counts must not use up what limits.
        let space = if dry_run { "limit-dry" } else { "limit" };
        let kept = match conf.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => "bucket",
            Algorithm::FixedWindow => "fixed",
            Algorithm::SlidingWindow | Algorithm::Buckets => "sliding",
            Algorithm::Log => "log",
            Algorithm::Concurrency => "places",
        };
        Shared {
            scope: format!("{space}:{scope}").into(),
            rule: format!("{}:{kept}:{}", conf.name, conf.key).into(),
            on_error: conf.on_store_error,
            gateways,
            left: AtomicU32::new(u32::MAX),
        }
    }

    /// Where a request is counted. Each limit spreads over the slots of a cluster by itself.
    pub(super) fn key(&self, [kind, id]: [&str; 2], text: &str, by_address: bool) -> String {
        // Neither holds a `|`, so that what follows cannot be taken for a part of it.
        let text = format!("{kind}|{id}|{text}");
        let scope = format!("{}.{}", self.scope, store::slot(&text));
        if by_address {
            // Never the key of a client that sends this address as the value.
            return key_text(&scope, &format!("{}@", self.rule), &text);
        }
        key_text(&scope, &self.rule, &text)
    }

    fn saw(&self, outcome: &Outcome, limit: u64) {
        let left = outcome.remaining.saturating_mul(WHOLE) / limit.max(1);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        self.left.store(left, Ordering::Relaxed);
    }
}

/// Where limits are counted that gateways share.
pub(super) struct Stores {
    pub(super) store: Arc<dyn QuotaStore>,
    pub(super) places: Option<Arc<Places>>,
    pub(super) later: Arc<Later>,
    /// Whether one call cannot have all keys of a request.
    split: bool,
}

/// Who counts for several gateways: the store that is configured, else the gateways themselves.
pub(super) fn store_of(conf: &Conf, bx: &BuildCx<'_>) -> Option<Arc<dyn QuotaStore>> {
    match &conf.store {
        Some(redis) => redis
            .central(bx)
            .map(|central| central as Arc<dyn QuotaStore>),
        None => bx.shared::<OwnerStore>().map(|owner| Arc::clone(&owner.0)),
    }
}

/// What came of one limit of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    /// It passes, and was charged.
    Charged(Outcome),
    /// It would pass, and was not charged, as another refuses.
    Free(Outcome),
    Refused(Outcome),
    /// There was no answer.
    Away,
    /// It was not asked, as another refuses.
    Unasked,
}

/// One limit that is asked.
pub(super) struct Question<'a> {
    pub(super) shared: &'a Shared,
    pub(super) charge: Charge,
    pub(super) count: u64,
}

impl Stores {
    /// The store of a plugin's shared limits; `None` when all count here.
    pub(super) fn build(conf: &Conf, bx: &BuildCx<'_>, out: &mut Problems) -> Option<Stores> {
        let modes = || conf.limits.iter().map(|one| (one, conf.mode(one)));
        if modes().all(|(_, mode)| mode == Mode::Local) {
            return None;
        }
        let redis = conf.store.as_ref();
        let places = redis.and_then(|redis| redis.places(bx, lockgate_quota::LONGEST_LIFE));
        let Some(store) = store_of(conf, bx) else {
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
        Some(Stores {
            later: store::later(bx, &store),
            store,
            places,
            split: conf.store.as_ref().is_some_and(|store| store.has_slots()),
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests(store: Arc<dyn QuotaStore>, split: bool) -> Stores {
        Stores {
            later: Arc::new(Later::new(Arc::clone(&store))),
            store,
            places: None,
            split,
        }
    }

    /// Asks all limits, so that all are charged or none; what this cannot see to is said with [`Said::Charged`] beside
    /// a refusal, and has to be given back.
    pub(super) async fn ask(&self, questions: &[&Question<'_>], now: u64) -> Vec<Said> {
        if questions.is_empty() {
            return Vec::new();
        }
        let said = if self.split && questions.len() > 1 {
            self.one_by_one(questions, now).await
        } else {
            self.together(questions, now).await
        };
        for (question, said) in questions.iter().zip(&said) {
            if let Said::Charged(outcome) | Said::Free(outcome) | Said::Refused(outcome) = said {
                question.shared.saw(outcome, question.count);
            }
        }
        said
    }

    async fn together(&self, questions: &[&Question<'_>], now: u64) -> Vec<Said> {
        let charges: Vec<Charge> = questions.iter().map(|asked| asked.charge.clone()).collect();
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
                vec![Said::Away; questions.len()]
            }
        }
    }

    /// In a cluster keys are in different slots. The limit with the least left is asked first: most refusals
    /// come of it, and charge nothing.
    async fn one_by_one(&self, questions: &[&Question<'_>], now: u64) -> Vec<Said> {
        let left = |at: &usize| questions[*at].shared.left.load(Ordering::Relaxed);
        let mut said = vec![Said::Unasked; questions.len()];
        let Some(first) = (0..questions.len()).min_by_key(left) else {
            return said;
        };
        let one = async |at: usize| {
            let answer = self.together(&questions[at..=at], now).await;
            (at, answer.into_iter().next().unwrap_or(Said::Away))
        };
        said[first] = one(first).await.1;
        if matches!(said[first], Said::Refused(_)) {
            return said;
        }
        let rest = (0..questions.len()).filter(|at| *at != first).map(one);
        for (at, answer) in futures::future::join_all(rest).await {
            said[at] = answer;
        }
        said
    }
}
