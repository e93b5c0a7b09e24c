//! Limits that several gateways share: how they are called in a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockgate_quota::{Law, Name, Outcome, SLACK, SLACK_BUCKET, Terms};

use super::conf::{Algorithm, OnStoreError, One, Scope};
use crate::traffic::limits::store;

/// What is left of a limit, in this many parts.
const WHOLE: u64 = 1_000;

/// One limit, as far as other gateways are concerned.
pub(super) struct Shared {
    pub(super) naming: Arc<Naming>,
    /// How permits are taken ahead, if they are.
    pub(super) terms: Option<Terms>,
    pub(super) on_error: OnStoreError,
    pub(super) gateways: u64,
    /// What was left of it when it was asked last, in thousandths: the one with the least is asked first.
    pub(super) left: AtomicU32,
}

/// How the keys of a limit are called.
pub(super) struct Naming {
    /// Whose limit, before the slot.
    scope: Box<str>,
    /// The limit, with how it is kept: another algorithm keeps something else.
    rule: Box<str>,
    rule_by_address: Box<str>,
}

/// What a store is asked for one limit.
pub(super) struct SharedAsk {
    scope: String,
    text: String,
    /// The client's address stands for a key without a value.
    by_address: bool,
    /// `None` for concurrency.
    pub(super) law: Option<Law>,
}

impl Naming {
    /// What is asked for a request. Each limit spreads over the slots of a cluster by itself.
    pub(super) fn ask(
        &self,
        [kind, id]: [&str; 2],
        (text, by_address): (&str, bool),
        law: Option<Law>,
    ) -> SharedAsk {
        // Neither holds a `|`, so that what follows cannot be taken for a part of it.
        let text = format!("{kind}|{id}|{text}");
        SharedAsk {
            scope: format!("{}.{}", self.scope, store::slot(&text)),
            text,
            by_address,
            law,
        }
    }
}

impl SharedAsk {
    /// Where it is counted.
    pub(super) fn name<'a>(&'a self, naming: &'a Naming) -> Name<'a> {
        Name {
            scope: &self.scope,
            // Never the key of a client that sends this address as the value.
            rule: match self.by_address {
                true => &naming.rule_by_address,
                false => &naming.rule,
            },
            text: &self.text,
        }
    }
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
        let rule = format!("{}:{kept}:{}", conf.name, conf.key);
        let naming = Naming {
            scope: format!("{space}:{scope}").into(),
            rule_by_address: store::address_rule(&rule).into(),
            rule: rule.into(),
        };
        Shared {
            naming: Arc::new(naming),
            terms: None,
            on_error: conf.on_store_error,
            gateways,
            left: AtomicU32::new(u32::MAX),
        }
    }

    /// Takes permits ahead, as this suits the limit.
    #[must_use]
    pub(super) fn taking_ahead(mut self, law: Law) -> Shared {
        let slack = match law {
            // No window lets more pass than the limit.
            Law::Fixed { .. } => 0.0,
            Law::Sliding { .. } | Law::Log { .. } => SLACK,
            Law::Bucket { .. } => SLACK_BUCKET,
        };
        self.terms = Terms::new(law, self.gateways, slack);
        self
    }

    pub(super) fn saw(&self, outcome: &Outcome, limit: u64) {
        let left = outcome.remaining.saturating_mul(WHOLE) / limit.max(1);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        self.left.store(left, Ordering::Relaxed);
    }
}
