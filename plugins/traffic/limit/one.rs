//! One limit, ready for requests.

use std::time::Duration;

use lockgate_limit::{self as engine, BadRule, Engine, Key, Rule};
use lockgate_plugin::{Ctx, Problems, Var};

use super::conf::{Algorithm, OnMissing, One, Scope};
use crate::traffic::limits::amount::Amount;
use crate::traffic::limits::key::{KeySource, KeyType};

pub(super) struct Limit {
    pub(super) name: Box<str>,
    pub(super) dry_run: bool,
    pub(super) window: Duration,
    pub(super) count: Amount,
    algorithm: Algorithm,
    shape: Shape,
    /// For every request, if the count is the same.
    rule: Option<Rule>,
    key: KeySource,
    scope: Scope,
    on_missing: OnMissing,
    cost: Amount,
}

/// What an algorithm wants to know besides count and window.
#[derive(Clone, Copy)]
struct Shape {
    burst: Option<u64>,
    aligned: bool,
    strict: bool,
    parts: u8,
}

/// What one request asks of one limit.
pub(super) struct Asked {
    pub(super) key: Key,
    /// `None` for concurrency.
    pub(super) rule: Option<Rule>,
    pub(super) count: u64,
    pub(super) cost: u64,
}

/// Why there is nothing to ask.
pub(super) enum Missing {
    /// The limit does not apply.
    Skip,
    /// The request is refused.
    Deny,
    /// A variable has no usable number.
    Number,
}

impl Limit {
    pub(super) fn build(
        conf: &One,
        dry_run: bool,
        (engine, owner): (&Engine, &str),
        out: &mut Problems,
    ) -> Limit {
        let dry_run = dry_run || conf.dry_run;
        // Where it is configured tells counters of routes apart; in wider scopes the name does.
        let scope = match conf.scope {
            Scope::Route => owner,
            Scope::Service => "service",
            Scope::Consumer => "consumer",
            Scope::Global => "global",
        };
        // What only counts must not use up what limits.
        let space = if dry_run { "limit, dry run" } else { "limit" };
        let kind = if conf.key.is_empty() {
            KeyType::Constant
        } else {
            KeyType::VarCombination
        };
        let key = KeySource::new(engine, &[space, scope, &conf.name], kind, &conf.key);
        let window = Duration::try_from_secs_f64(conf.time_window).unwrap_or(Duration::MAX);
        let mut limit = Limit {
            name: conf.name.as_str().into(),
            dry_run,
            window,
            count: Amount::build(&conf.count, 1, "count", out),
            algorithm: conf.algorithm,
            shape: Shape {
                burst: conf.burst,
                aligned: conf.aligned,
                strict: conf.strict,
                parts: conf.parts,
            },
            rule: None,
            key: key.ipv6_prefix(conf.ipv6_prefix),
            scope: conf.scope,
            on_missing: conf.on_missing,
            cost: Amount::build(&conf.cost, 0, "cost", out),
        };
        if let (Some(count), false) = (limit.count.fixed(), limit.is_concurrency()) {
            match limit.rule(count) {
                Ok(rule) => limit.rule = Some(rule),
                Err(bad) => out.add("count", bad.to_string()),
            }
        }
        limit
    }

    /// Its name and the key of a request.
    pub(super) fn shown(&self, cx: &Ctx<'_>) -> String {
        let key = self.key.shown(cx);
        let key = key.as_deref().unwrap_or("none: nothing in it has a value");
        format!("{}: {key}", self.name)
    }

    pub(super) fn is_concurrency(&self) -> bool {
        self.algorithm == Algorithm::Concurrency
    }

    /// What may pass at once, as the headers call the quota.
    pub(super) fn quota(&self) -> Option<u64> {
        let count = self.count.fixed()?;
        Some(match self.algorithm {
            Algorithm::TokenBucket => self.shape.burst.unwrap_or(count),
            _ => count,
        })
    }

    fn rule(&self, count: u64) -> Result<Rule, BadRule> {
        let Shape {
            burst,
            aligned,
            strict,
            parts,
        } = self.shape;
        let algorithm = match self.algorithm {
            Algorithm::LeakyBucket => {
                let rate = count as f64 / self.window.as_secs_f64();
                return Rule::leaky(rate, burst.unwrap_or(0) as f64);
            }
            Algorithm::TokenBucket | Algorithm::Concurrency => engine::Algorithm::Gcra {
                burst: burst.unwrap_or(count),
            },
            Algorithm::FixedWindow => engine::Algorithm::Fixed { aligned },
            Algorithm::SlidingWindow => engine::Algorithm::Sliding { strict },
            Algorithm::Buckets => engine::Algorithm::Buckets { parts, strict },
            Algorithm::Log => engine::Algorithm::Log,
        };
        Rule::new(algorithm, count, self.window)
    }

    pub(super) fn asked(&self, engine: &Engine, cx: &Ctx<'_>) -> Result<Asked, Missing> {
        let work = cx.work();
        let route = || work.route.as_ref().map_or("", |route| &*route.id);
        let service = || work.route.as_ref().and_then(|r| r.service_id.as_deref());
        let within = match self.scope {
            Scope::Route => ["r", route()],
            Scope::Service => service().map_or_else(|| ["r", route()], |id| ["s", id]),
            Scope::Consumer => {
                let found = cx.consumer().map(|found| &*found.consumer.username);
                found.map_or(["n", ""], |name| ["c", name])
            }
            Scope::Global => ["g", ""],
        };
        let key = match (self.key.find_in(engine, cx, &within), self.on_missing) {
            (Some(key), _) => key,
            (None, OnMissing::Ip) => self.key.address_in(engine, cx, &within),
            (None, OnMissing::Skip) => return Err(Missing::Skip),
            (None, OnMissing::Deny) => return Err(Missing::Deny),
        };
        let source = cx.lookup();
        let number =
            |amount: &Amount, least| amount.find(&source, least).map_err(|_| Missing::Number);
        let count = number(&self.count, 1)?;
        let rule = match self.rule {
            Some(rule) => Some(rule),
            None if self.is_concurrency() => None,
            None => Some(self.rule(count).map_err(|_| Missing::Number)?),
        };
        Ok(Asked {
            key,
            rule,
            count,
            cost: number(&self.cost, 0)?,
        })
    }

    /// Says in the log that a request would have been refused.
    pub(super) fn would_refuse(&self) {
        tracing::debug!(limit = &*self.name, "limit would have refused a request");
    }

    pub(super) fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.key.any_var(is) || self.count.any_var(is) || self.cost.any_var(is)
    }
}
