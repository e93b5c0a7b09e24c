//! One limit, ready for requests.

use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{self as engine, BadRule, Counted, Ended, Engine, Key, Nanos, Rule, Unclear};
use lockgate_plugin::{BuildCx, Ctx, Problems, Var};
use lockgate_quota::{BadLaw, Law};

use super::conf::{Algorithm, Conf, OnMissing, One, Scope};
use super::shared::{Shared, SharedAsk};
use super::stores::Stores;
use super::suit;
use crate::traffic::limits::amount::Amount;
use crate::traffic::limits::key::{KeySource, KeyType};
use crate::traffic::limits::named::Named;
use crate::traffic::limits::posts::{self, Kept, Told, bound};

pub(super) struct Limit {
    /// Its place among the limits of the plugin.
    pub(super) at: usize,
    pub(super) name: Box<str>,
    pub(super) dry_run: bool,
    pub(super) window: Duration,
    pub(super) count: Amount,
    pub(super) shape: Shape,
    /// What other gateways need to know, if it counts with them.
    pub(super) shared: Option<Shared>,
    /// For every request, if the count is the same.
    rule: Option<Rule>,
    pub(super) key: Arc<KeySource>,
    pub(super) post: Arc<Named>,
    scope: Scope,
    on_missing: OnMissing,
    cost: Amount,
}

/// Everything about how it counts but the count.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) algorithm: Algorithm,
    window: Duration,
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
    /// What the store is asked, if it counts there.
    pub(super) shared: Option<SharedAsk>,
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

impl Shape {
    fn rule(self, count: u64) -> Result<Rule, BadRule> {
        let Shape {
            algorithm,
            window,
            burst,
            aligned,
            strict,
            parts,
        } = self;
        let algorithm = match algorithm {
            Algorithm::LeakyBucket => {
                let rate = count as f64 / window.as_secs_f64();
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
        Rule::new(algorithm, count, window)
    }

    /// What this gateway counts by while it counts alone: its part of the limit.
    pub(super) fn part(self, count: u64, gateways: u64) -> Option<Rule> {
        let part = |whole: u64| whole.div_ceil(gateways.max(1));
        let burst = self.burst.map(part);
        Shape { burst, ..self }.rule(part(count)).ok()
    }

    /// The limit as a store counts it.
    pub(super) fn law(self, count: u64) -> Result<Law, BadLaw> {
        let (limit, window) = (count, self.window);
        match self.algorithm {
            Algorithm::FixedWindow => Law::Fixed { limit, window },
            Algorithm::SlidingWindow | Algorithm::Buckets => Law::Sliding { limit, window },
            Algorithm::Log => Law::Log { limit, window },
            Algorithm::LeakyBucket => {
                let rate = count as f64 / window.as_secs_f64();
                return Law::leaky(rate, self.burst.unwrap_or(0) as f64);
            }
            Algorithm::TokenBucket | Algorithm::Concurrency => Law::Bucket {
                interval_us: window.as_secs_f64() * 1e6 / count as f64,
                holds: self.burst.unwrap_or(count) as f64,
            },
        }
        .checked()
    }

    /// What is told of a limit like this.
    fn told(
        self,
        conf: &One,
        (key, dry_run): (&Arc<KeySource>, bool),
        fixed: Option<u64>,
        (owner, kept): (&str, Kept),
    ) -> Told {
        let within = suit::within(conf.scope, owner);
        let numbers = move |wanted: &engine::Wanted| {
            let count = wanted.count.or(fixed).ok_or(Unclear::Number("count"))?;
            if self.algorithm == Algorithm::Concurrency {
                return Ok(Counted::AtOnce(count));
            }
            let rule = self.rule(count).map(Counted::Rate);
            rule.map_err(|bad| Unclear::Rule(bad.to_string()))
        };
        let (name, bound) = match self.algorithm {
            Algorithm::TokenBucket => ("token_bucket", bound::BUCKET),
            Algorithm::LeakyBucket => ("leaky_bucket", bound::BUCKET),
            Algorithm::FixedWindow => ("fixed_window", bound::FIXED),
            Algorithm::SlidingWindow if self.strict => ("sliding_window, strict", bound::STRICT),
            Algorithm::SlidingWindow => ("sliding_window", bound::SLIDING),
            Algorithm::Buckets if self.strict => ("buckets, strict", bound::STRICT),
            Algorithm::Buckets => ("buckets", bound::SLIDING),
            Algorithm::Log => ("log", bound::STRICT),
            Algorithm::Concurrency => ("concurrency", bound::AT_ONCE),
        };
        let count = &conf.count;
        let limit = match (self.algorithm, self.burst) {
            (Algorithm::Concurrency, _) => format!("{count} at once"),
            (_, Some(burst)) => format!("{count} in {} s, burst {burst}, {name}", conf.time_window),
            (_, None) => format!("{count} in {} s, {name}", conf.time_window),
        };
        Told {
            kept,
            key: Arc::clone(key),
            expression: conf.key.as_str().into(),
            within,
            numbers: Box::new(numbers),
            limit: limit.into(),
            bound,
            dry_run,
        }
    }
}

impl Limit {
    pub(super) fn build(
        (conf, at): (&One, usize),
        all: &Conf,
        (engine, bx): (&Engine, &BuildCx<'_>),
        (stores, out): (Option<&Stores>, &mut Problems),
    ) -> Limit {
        let dry_run = all.dry_run || conf.dry_run;
        // Where it is configured tells counters of routes apart; in wider scopes the name does.
        let scope = match conf.scope {
            Scope::Route => bx.owner,
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
        let key = Arc::new(key.ipv6_prefix(conf.ipv6_prefix));
        let shape = Shape {
            algorithm: conf.algorithm,
            window,
            burst: conf.burst,
            aligned: conf.aligned,
            strict: conf.strict,
            parts: conf.parts,
        };
        let count = Amount::build(&conf.count, 1, "count", out);
        let what = (&key, shape, count.fixed());
        let suited = suit::suit((conf, all), what, bx.owner, (stores, out));
        let kept = suited.kept;
        let counts = shape.told(conf, (&key, dry_run), count.fixed(), (bx.owner, kept));
        let mut limit = Limit {
            at,
            shared: suited.shared,
            name: conf.name.as_str().into(),
            dry_run,
            window,
            count,
            shape,
            rule: None,
            key,
            post: posts::post(bx, engine, &conf.name, counts),
            scope: conf.scope,
            on_missing: conf.on_missing,
            cost: Amount::build(&conf.cost, 0, "cost", out),
        };
        if let (Some(count), false) = (limit.count.fixed(), limit.is_concurrency()) {
            match shape.rule(count) {
                Ok(rule) => limit.rule = Some(rule),
                Err(bad) => out.add("count", bad.to_string()),
            }
        }
        if suited.part.is_some() {
            limit.rule = suited.part;
        }
        limit
    }

    /// What is explained for a request.
    pub(super) fn explained(
        &self,
        engine: &Engine,
        cx: &Ctx<'_>,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let key = self.key.shown(cx).map(posts::brief);
        let key = key.as_deref().unwrap_or("none: nothing in it has a value");
        let key = format!("{}: {key}", self.name);
        let asked = self.asked(engine, cx).ok().map(|asked| {
            let counted = match asked.rule {
                Some(rule) => Counted::Rate(rule),
                None => Counted::AtOnce(asked.count),
            };
            (asked.key, counted)
        });
        let more = posts::explained(&self.post, (engine, cx), asked);
        [("key", key)].into_iter().chain(more)
    }

    pub(super) fn is_concurrency(&self) -> bool {
        self.shape.algorithm == Algorithm::Concurrency
    }

    /// What may pass at once, as the headers call the quota.
    pub(super) fn quota(&self) -> Option<u64> {
        let count = self.count.fixed()?;
        Some(match self.shape.algorithm {
            Algorithm::TokenBucket => self.shape.burst.unwrap_or(count),
            _ => count,
        })
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
        let found = self.key.find_in(engine, cx, &within);
        let by_address = found.is_none();
        let key = match (found, self.on_missing) {
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
            None => Some(self.shape.rule(count).map_err(|_| Missing::Number)?),
        };
        let shared = match &self.shared {
            None => None,
            Some(shared) => {
                let law = match self.is_concurrency() {
                    true => None,
                    false => Some(self.shape.law(count).map_err(|_| Missing::Number)?),
                };
                let text = match by_address {
                    true => None,
                    false => self.key.text(cx),
                };
                let text = text.unwrap_or_else(|| self.key.address_text(cx));
                Some(shared.naming.ask(within, (&text, by_address), law))
            }
        };
        Ok(Asked {
            key,
            rule,
            count,
            cost: number(&self.cost, 0)?,
            shared,
        })
    }

    /// A request ended so, and not by passing.
    pub(super) fn refused(&self, ended: Ended, cx: &Ctx<'_>, now: Nanos) {
        let key = || self.key.shown_or_address(cx);
        self.post.tally().other(ended, now, key);
    }

    /// Says in the log that a request would have been refused.
    pub(super) fn would_refuse(&self, cx: &Ctx<'_>, now: Nanos) {
        self.refused(Ended::ShadowReject, cx, now);
        tracing::debug!(limit = &*self.name, "limit would have refused a request");
    }

    pub(super) fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.key.any_var(is) || self.count.any_var(is) || self.cost.any_var(is)
    }
}
