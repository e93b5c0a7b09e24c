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
//! applies to the running window. Only another `key` starts anew. Counts are kept in this gateway's
//! memory, 16 bytes a key, for a million keys; of more, only those that use an eighth of their limit
//! are counted.
//!
//! Take no limit from what a client may send, such as `$http_x_quota`, unless something in front of the
//! gateway sets it: the client would choose its own.
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
//! | 500 | the gateway's page | no rule applies, or a variable gives no usable number, unless `allow_degradation` |
//!
//! Responses, refusals included, tell with `X-RateLimit-Limit`, `X-RateLimit-Remaining` and
//! `X-RateLimit-Reset` (seconds) how things stand. With `rules` each rule has its own:
//! `X-1-RateLimit-Limit`, or with `header_prefix: user` `X-user-RateLimit-Limit`.

mod group;
mod headers;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{Algorithm, Ask, Decision, Engine, Rule};
use lockgate_plugin::{BuildCx, Ctx, Outcome, Phases, Plugin, Problem, Problems, Reply, Step, Var};
use schemars::JsonSchema;
use serde::Deserialize;
use smallvec::SmallVec;

use self::group::Group;
pub use self::headers::Metadata;
use self::headers::Names;
use super::limits::amount::{self, Amount};
use super::limits::key::{KeySource, KeyType};
use super::limits::policy::Policy;
use super::limits::{engine, now, refusal, undecided};

/// Configuration of `limit-count`. Either `count` and `time_window`, or `rules`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct Conf {
    /// Requests in a window: a number, or a text in which `$variables` give one.
    #[serde(default)]
    #[schemars(schema_with = "amount::positive")]
    count: Option<amount::Conf>,
    /// The length of a window: a number, or a text in which `$variables` give one. Unit: seconds.
    #[serde(default)]
    #[schemars(schema_with = "amount::positive")]
    time_window: Option<amount::Conf>,
    /// How windows follow one another.
    #[serde(default)]
    window_type: WindowType,
    /// Several limits, instead of `count` and `time_window`.
    #[serde(default)]
    rules: Option<Vec<RuleConf>>,
    /// Routes with the same name here count together. Their configuration of this plugin has to be
    /// the same; for another one take another name.
    #[serde(default)]
    group: Option<String>,
    /// Whose requests count together: see `key_type`. Without a value in a request, the client's
    /// address.
    #[serde(default = "remote_addr")]
    key: String,
    /// How `key` is read: as the name of a variable, as a text with `$variables` in it, or as it is.
    #[serde(default)]
    key_type: KeyType,
    /// The status of refusals.
    #[serde(default = "unavailable")]
    #[schemars(range(min = 200, max = 599))]
    rejected_code: u16,
    /// What refusals say, as `{"error_msg": ...}`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    rejected_msg: Option<String>,
    /// Where requests are counted.
    #[serde(default)]
    policy: Policy,
    /// Lets requests pass for which no limit can be found.
    #[serde(default)]
    allow_degradation: bool,
    /// Whether responses tell how things stand.
    #[serde(default = "yes")]
    show_limit_quota_header: bool,
}

/// One of several limits.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct RuleConf {
    /// As `count` of the plugin.
    #[schemars(schema_with = "amount::positive")]
    count: amount::Conf,
    /// As `time_window` of the plugin.
    #[schemars(schema_with = "amount::positive")]
    time_window: amount::Conf,
    /// A text with `$variables`: requests with the same text count together. The rule does not apply
    /// to requests in which none of them has a value.
    key: String,
    /// What stands in the names of this rule's headers; the rule's number when left out.
    #[serde(default)]
    header_prefix: Option<String>,
}

/// How windows follow one another.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum WindowType {
    // A window starts with the first request after the last one has ended.
    #[default]
    Fixed,
    // Windows follow each other without a gap, and the one before counts in part.
    Sliding,
}

fn remote_addr() -> String {
    "remote_addr".to_owned()
}

fn unavailable() -> u16 {
    503
}

fn yes() -> bool {
    true
}

/// The built plugin.
pub struct LimitCount {
    engine: Arc<Engine>,
    limits: Box<[Limit]>,
    /// Whether a limit without a key is left out; else the client's address is the key.
    skips: bool,
    refusal: Reply,
    degrades: bool,
    _group: Option<Group>,
}

struct Limit {
    key: KeySource,
    numbers: Numbers,
    window_type: WindowType,
    names: Option<Names>,
}

enum Numbers {
    Fixed(Rule),
    Variable { count: Amount, window: Amount },
}

impl Plugin for LimitCount {
    const NAME: &'static str = "limit-count";
    const PRIORITY: i32 = 1_002;
    const PHASES: Phases = Phases::ACCESS;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        let single = conf.count.is_some() || conf.time_window.is_some();
        match (
            &conf.rules,
            conf.count.is_some() && conf.time_window.is_some(),
        ) {
            (Some(_), _) if single => out.add(
                "",
                "count/time_window and rules cannot be specified at the same time",
            ),
            (None, false) => out.exactly_one(&[("count, time_window", false), ("rules", false)]),
            _ => {}
        }
        if conf.rules.is_some() && conf.group.is_some() {
            out.add("", "group and rules cannot be specified at the same time");
        }
        let rules = conf.rules.as_deref().unwrap_or_default();
        for (at, rule) in rules.iter().enumerate() {
            if rules[..at].iter().any(|other| other.key == rule.key) {
                out.add("", format!("duplicate key '{}' in rules", rule.key));
            }
        }
        conf.policy.check(out);
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
        let limits = match &conf.rules {
            Some(rules) => {
                let mut out = out.at("rules");
                let each = rules.iter().enumerate().map(|(at, rule)| {
                    let mut out = out.at_index(at);
                    let number = (at + 1).to_string();
                    let prefix = rule.header_prefix.as_deref().unwrap_or(&number);
                    Limit {
                        key: KeySource::new(&engine, owner, KeyType::VarCombination, &rule.key),
                        numbers: Numbers::build(
                            (&rule.count, &rule.time_window),
                            conf.window_type,
                            &mut out,
                        ),
                        window_type: conf.window_type,
                        names: names(Some(prefix), &mut out),
                    }
                });
                each.collect()
            }
            None => {
                // `check` has seen that both are there.
                let both = conf.count.as_ref().zip(conf.time_window.as_ref());
                let one = both.map(|both| Limit {
                    key: KeySource::new(&engine, owner, conf.key_type, &conf.key),
                    numbers: Numbers::build(both, conf.window_type, &mut out),
                    window_type: conf.window_type,
                    names: names(None, &mut out),
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
        out.into_result()?;
        let reason = "request quota is used up";
        Ok(LimitCount {
            engine,
            limits,
            skips: conf.rules.is_some(),
            refusal: refusal(conf.rejected_code, conf.rejected_msg.as_deref(), reason),
            degrades: conf.allow_degradation,
            _group: group,
        })
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.limits.iter().any(|limit| {
            let numbers = match &limit.numbers {
                Numbers::Fixed(_) => false,
                Numbers::Variable { count, window } => count.any_var(is) || window.any_var(is),
            };
            numbers || limit.key.any_var(is)
        })
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
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
            limit.show(&decision, cx);
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
            limit.show(decision, cx);
        }
        Ok(self.step(all.allowed))
    }
}

/// A limit that applies to a request, with its numbers and whose requests count.
type Asked<'a> = (&'a Limit, Rule, lockgate_limit::Key);

impl LimitCount {
    /// What applies to a request; `None` when a number cannot be found. A rule that applies but has
    /// no number must not be left out: whoever controls the variable could switch it off.
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
            let rule = match &limit.numbers {
                Numbers::Fixed(rule) => *rule,
                Numbers::Variable { count, window } => {
                    let source = cx.lookup();
                    let count = count.find(&source, 1).ok()?;
                    let window = window.find(&source, 1).ok()?;
                    Numbers::rule(count, window, limit.window_type)?
                }
            };
            asked.push((limit, rule, key));
        }
        Some(asked)
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

impl Numbers {
    fn build(
        (count, window): (&amount::Conf, &amount::Conf),
        window_type: WindowType,
        out: &mut Problems,
    ) -> Numbers {
        let count = Amount::build(count, 1, "count", out);
        let window = Amount::build(window, 1, "time_window", out);
        let fixed = count.fixed().zip(window.fixed());
        match fixed.and_then(|(count, window)| Numbers::rule(count, window, window_type)) {
            Some(rule) => Numbers::Fixed(rule),
            None => Numbers::Variable { count, window },
        }
    }

    /// `None` for a zero, which neither the schema nor a variable lets through.
    fn rule(count: u64, window: u64, window_type: WindowType) -> Option<Rule> {
        let algorithm = match window_type {
            WindowType::Fixed => Algorithm::Fixed { aligned: false },
            WindowType::Sliding => Algorithm::Sliding { strict: false },
        };
        Rule::new(algorithm, count, Duration::from_secs(window)).ok()
    }
}

impl Limit {
    fn show(&self, decision: &Decision, cx: &mut Ctx<'_>) {
        if let Some(names) = &self.names {
            names.show(decision, self.window_type, cx);
        }
    }
}
