//! `limit-count`: a number of requests in a window of time.
//!
//! A window is `fixed`: it starts with the first request of a key and lets `count` pass until it
//! ends; or `sliding`: the window before counts, too, by the part of it that is not over yet. Requests
//! that are refused do not count.
//!
//! With `rules` a request has to be within each of those that apply to it, and is counted by all
//! of them or by none. A rule whose key has no value does not apply.
//!
//! What has been counted stays when the configuration is edited: another `count` or `time_window`
//! applies to the running window. Only another `key` starts anew. With `policy: local` counts are kept in this gateway's
//! memory, 16 bytes a key, for a million keys; of more, only those that use an eighth of their limit
//! are counted.
//!
//! Take no limit from what a client may send, such as `$http_x_quota`, unless something in front of the
//! gateway sets it: the client would choose its own.
//!
//! With `policy: redis`, `redis-cluster` or `redis-sentinel` the counts are in Redis, for all gateways
//! together; Redis is asked once for every request, by a script. When it does not answer within
//! `redis_timeout`, it is not asked for a moment, so that it costs nothing while it is away.
//! With `sync_interval` a gateway takes permits ahead where that saves anything, and goes on with what
//! was left while Redis is away.
//!
//! ```yaml
//! plugins:
//!   limit-count: { count: 100, time_window: 60, key: remote_addr, rejected_code: 429 }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | `rejected_code` | `{"error_msg":"..."}` with `rejected_msg`, else the gateway's page | the limit is reached |
//! | 500 | `{"error_msg":"failed to limit count"}` | Redis cannot be asked, unless `allow_degradation` |
//! | 500 | the gateway's page | no rule applies, or a variable gives no usable number, unless `allow_degradation` |
//!
//! Responses, refusals included, tell with `X-RateLimit-Limit`, `X-RateLimit-Remaining` and
//! `X-RateLimit-Reset` (seconds) how things stand. With `rules` each rule has its own:
//! `X-1-RateLimit-Limit`, or with `header_prefix: user` `X-user-RateLimit-Limit`.

mod ahead;
mod central;
mod conf;
mod group;
mod headers;
mod numbers;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use lockgate_limit::{Ask, Counted, Decision, Engine, Nanos, Rule};
use lockgate_plugin::{BuildCx, Ctx, Outcome, Phases, Plugin, Problem, Problems, Reply, Step, Var};
use lockgate_quota::{Central, QuotaStore};
use smallvec::SmallVec;

use self::ahead::Ahead;
pub use self::conf::Conf;
use self::conf::WindowType;
use self::group::Group;
pub use self::group::Groups;
pub use self::headers::Metadata;
use self::headers::Names;
use self::numbers::Numbers;
use super::limits::key::{KeySource, KeyType};
use super::limits::named::Named;
use super::limits::posts::{self, InRedis, Kept, Whose};
use super::limits::{engine, now, refusal, undecided};

/// The built plugin.
pub struct LimitCount {
    engine: Arc<Engine>,
    limits: Box<[Limit]>,
    /// Whether a limit without a key is left out; else the client's address is the key.
    skips: bool,
    refusal: Reply,
    degrades: bool,
    /// Where requests are counted, unless in this gateway.
    central: Option<Arc<Central>>,
    /// How permits are taken ahead there, if they are.
    ahead: Option<Ahead>,
    /// The group that counts together with nodes of APISIX.
    with_apisix: Option<Box<str>>,
    /// What tells counters in Redis from those of others.
    owner: Box<str>,
    _group: Option<Group>,
}

struct Limit {
    key: Arc<KeySource>,
    post: Arc<Named>,
    /// The part of a Redis key that tells limits of one plugin apart.
    rule_name: Box<str>,
    numbers: Numbers,
    window_type: WindowType,
    names: Option<Names>,
}

impl Plugin for LimitCount {
    const NAME: &'static str = "limit-count";
    const PRIORITY: i32 = 1_002;
    const PHASES: Phases = Phases::ACCESS;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        conf.check(out);
    }

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<LimitCount, Problems> {
        let mut out = Problems::default();
        let engine = engine(bx);
        let owner: &[&str] = match &conf.group {
            Some(group) => &[Self::NAME, "group", group],
            None => &[Self::NAME, bx.owner],
        };
        let names = |prefix: Option<&str>, out: &mut Problems| {
            let shown = conf.show_limit_quota_header;
            shown.then(|| Names::build(bx, prefix, out)).flatten()
        };
        let central = conf.store.central(bx);
        let owner_text = owner.join(":");
        let kept = |key: &Arc<KeySource>, rule: &str, numbers: &Numbers| {
            let Some(central) = &central else {
                return Kept::Here;
            };
            let whose = Whose {
                owner: owner_text.as_str().into(),
                rule: conf.rule_name(rule),
                spread: conf.rules.is_none(),
            };
            let seen = InRedis {
                store: Arc::clone(central) as Arc<dyn QuotaStore>,
                name: conf.store.name(),
                place: whose.place(key),
                law: numbers.laws(conf.window_type),
            };
            Kept::Shared {
                overridable: false,
                // The keys that APISIX knows are called otherwise.
                seen: Some(seen).filter(|_| conf.with_apisix().is_none()),
                chosen: Ahead::suits(&conf, numbers),
            }
        };
        let limits: Box<[Limit]> = match &conf.rules {
            Some(rules) => {
                let mut out = out.at("rules");
                let each = rules.iter().enumerate().map(|(at, rule)| {
                    let mut out = out.at_index(at);
                    let number = (at + 1).to_string();
                    let prefix = rule.header_prefix.as_deref().unwrap_or(&number);
                    let both = (&rule.count, &rule.time_window);
                    let numbers = Numbers::build(both, conf.window_type, &mut out);
                    let key = KeySource::new(&engine, owner, KeyType::VarCombination, &rule.key);
                    let key = Arc::new(key);
                    let kept = kept(&key, &rule.key, &numbers);
                    let counts = numbers.told(&key, &rule.key, both, (conf.window_type, kept));
                    Limit {
                        post: posts::post(bx, &engine, &number, counts),
                        key,
                        rule_name: conf.rule_name(&rule.key),
                        numbers,
                        window_type: conf.window_type,
                        names: names(Some(prefix), &mut out),
                    }
                });
                each.collect()
            }
            None => {
                // `check` has seen that both are there.
                let both = conf.count.as_ref().zip(conf.time_window.as_ref());
                let one = both.map(|both| {
                    let numbers = Numbers::build(both, conf.window_type, &mut out);
                    let key = KeySource::new(&engine, owner, conf.key_type, &conf.key);
                    let key = Arc::new(key);
                    let kept = kept(&key, &conf.key, &numbers);
                    let counts = numbers.told(&key, &conf.key, both, (conf.window_type, kept));
                    Limit {
                        post: posts::post(bx, &engine, "1", counts),
                        key,
                        rule_name: conf.rule_name(&conf.key),
                        numbers,
                        window_type: conf.window_type,
                        names: names(None, &mut out),
                    }
                });
                one.into_iter().collect()
            }
        };
        let group = match &conf.group {
            Some(name) => Group::join(bx, name, &conf)
                .map_err(|mismatch| out.push(Problem::new("", mismatch.to_string())))
                .ok(),
            None => None,
        };
        if conf.store.is_shared() {
            limits.iter().for_each(|limit| limit.check_law(&mut out));
        }
        out.into_result()?;
        let reason = "request quota is used up";
        let store = central
            .as_ref()
            .map(|central| Arc::clone(central) as Arc<dyn QuotaStore>);
        let ahead = store.and_then(|store| Ahead::build(&conf, bx, &limits, &store));
        Ok(LimitCount {
            engine,
            limits,
            skips: conf.rules.is_some(),
            refusal: refusal(conf.rejected_code, conf.rejected_msg.as_deref(), reason),
            degrades: conf.allow_degradation,
            central,
            ahead,
            with_apisix: conf.with_apisix().map(Into::into),
            owner: owner_text.into(),
            _group: group,
        })
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.limits.iter().any(|limit| {
            let Numbers { count, window, .. } = &limit.numbers;
            count.any_var(is) || window.any_var(is) || limit.key.any_var(is)
        })
    }

    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)> {
        let mut told = Vec::new();
        for limit in &self.limits {
            let key = match limit.key.shown(cx) {
                None if self.skips => "none: its rule is skipped".to_owned(),
                _ => limit.key.shown_or_address(cx),
            };
            told.push(("key", posts::brief(key)));
            let key = match self.skips {
                true => limit.key.find(&self.engine, cx),
                false => Some(limit.key.find_or_address(&self.engine, cx)),
            };
            let asked = key.zip(limit.rule(cx).map(Counted::Rate));
            told.extend(posts::explained(&limit.post, (&self.engine, cx), asked));
        }
        told
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        if let Some(ahead) = &self.ahead {
            return self.take_ahead(ahead, cx);
        }
        if let Some(central) = &self.central {
            return self.ask_central(central, cx);
        }
        let now = now(&self.engine, cx);
        let Some(asked) = self.asked(cx) else {
            return Ok(self.undecided("a variable has no usable number"));
        };
        if asked.is_empty() {
            return Ok(self.undecided("no rule applies"));
        }
        if let [(limit, rule, key)] = asked.as_slice() {
            let cost = 1;
            let (decision, _) = self.engine.take(
                &Ask {
                    rule,
                    key: *key,
                    cost,
                },
                now,
            );
            limit.show(&decision, (decision.allowed, now), cx);
            return Ok(self.step(decision.allowed));
        }
        let asks: SmallVec<[Ask<'_>; 4]> = asked
            .iter()
            .map(|(_, rule, key)| Ask {
                rule,
                key: *key,
                cost: 1,
            })
            .collect();
        let all = self.engine.take_all(&asks, now);
        for ((limit, _, _), decision) in asked.iter().zip(&all.decisions) {
            limit.show(decision, (all.allowed, now), cx);
        }
        Ok(self.step(all.allowed))
    }
}

/// A limit that applies to a request, with its numbers and whose requests count.
type Asked<'a> = (&'a Limit, Rule, lockgate_limit::Key);

impl LimitCount {
    /// What applies to a request; `None` when a number cannot be found. A rule that applies but has no
    /// number is left out only by who degrades: whoever controls the variable can switch it off.
    fn asked(&self, cx: &Ctx<'_>) -> Option<SmallVec<[Asked<'_>; 1]>> {
        let mut asked = SmallVec::new();
        for limit in &self.limits {
            let key = if self.skips {
                let Some(key) = limit.key.find(&self.engine, cx) else {
                    continue;
                };
                key
            } else {
                limit.key.find_or_address(&self.engine, cx)
            };
            let rule = match limit.rule(cx) {
                Some(rule) => rule,
                None if self.leaves_out() => continue,
                None => return None,
            };
            asked.push((limit, rule, key));
        }
        Some(asked)
    }

    /// Whether a rule without a usable number does not apply. A limit that is the only one is never left
    /// out in this way; without a number it has no answer at all.
    fn leaves_out(&self) -> bool {
        self.skips && self.degrades
    }

    fn step(&self, allowed: bool) -> Step<'_> {
        if allowed {
            Step::Next
        } else {
            Step::Reply(self.refusal.clone())
        }
    }

    fn undecided(&self, reason: &'static str) -> Step<'_> {
        if self.degrades {
            Step::Next
        } else {
            Step::Reply(undecided(reason))
        }
    }
}

impl Limit {
    /// Says what Redis cannot count.
    fn check_law(&self, out: &mut Problems) {
        let Numbers { count, window, .. } = &self.numbers;
        if let Some((count, window)) = count.fixed().zip(window.fixed())
            && let Err(bad) = central::law(self.window_type, count, window)
        {
            out.add("count", bad.to_string());
        }
    }

    /// Its rule for a request, unless a variable has no usable number.
    fn rule(&self, cx: &Ctx<'_>) -> Option<Rule> {
        self.numbers.rule.or_else(|| {
            let (count, window) = self.numbers.find(cx)?;
            Numbers::rule(count, window, self.window_type)
        })
    }

    /// Tells what it said to a request, which passed or not, at this time.
    fn show(&self, decision: &Decision, (passed, now): (bool, Nanos), cx: &mut Ctx<'_>) {
        posts::note(&self.post, decision, passed, (cx, now));
        if let Some(names) = &self.names {
            names.show(decision, self.window_type, cx);
        }
    }
}
