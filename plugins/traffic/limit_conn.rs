//! `limit-conn`: how many requests of a key may be under way at once.
//!
//! Up to `conn` pass, up to `burst` more wait first, the rest is refused. One that waits does so for
//! `default_conn_delay` times the number of full `conn`s before it; unless
//! `only_use_default_delay` is set, that time follows how long requests really take, a minute at most for
//! each; WebSockets say nothing about it. Nobody waits longer than an hour. A request is under way from
//! here until it is over, however it ends; a WebSocket until it is closed.
//!
//! With `rules` a request has to be within each of those that apply to it, and is counted by all
//! of them or by none. A rule whose key or numbers have no value does not apply.
//!
//! Requests under way stay counted when the configuration is edited; another limit applies to the next
//! request.
//!
//! With `policy: redis`, `redis-cluster` or `redis-sentinel` requests of all gateways count together: Redis is
//! asked once when a request comes, and told afterwards, beside the traffic, that it is over. A gateway
//! says every few seconds which of its requests are still under way, so that the places of one that died
//! are free after ten seconds at most, and a Redis that has lost its data knows again how many there are. How long requests take is
//! seen by each gateway for itself.
//!
//! ```yaml
//! plugins:
//!   limit-conn: { conn: 20, burst: 10, default_conn_delay: 0.1, key: remote_addr, rejected_code: 429 }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | `rejected_code` | `{"error_msg":"..."}` with `rejected_msg`, else the gateway's page | `conn` and `burst` are used up |
//! | 500 | the gateway's page | Redis cannot be asked, no rule applies, or a variable gives no usable number, unless `allow_degradation` |

mod central;
mod conf;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockgate_limit::{Counted, Decision, Engine, Guard, Key, Unclear};
use lockgate_plugin::{BuildCx, Ctx, Outcome, Phases, Plugin, Problems, Reply, Step, Var};
use lockgate_quota::PlaceHeld;
use smallvec::SmallVec;

use self::central::Shared;
pub use self::conf::Conf;
use super::limits::amount::{self, Amount};
use super::limits::key::{KeySource, KeyType, check_rules};
use super::limits::named::Named;
use super::limits::posts::{self, Kept, Told, Within, bound};
use super::limits::store::Policy;
use super::limits::{LONGEST_WAIT, engine, hold, nanos, now, places, refusal, undecided};

/// A request that took longer counts as if it took this, which is how long an upstream may be silent: a
/// download of hours says little about how long others take.
const LONGEST_TAKEN: Duration = Duration::from_secs(60);

/// The status of connections that become something else, such as a WebSocket.
const SWITCHED: u16 = 101;

/// The built plugin.
pub struct LimitConn {
    engine: Arc<Engine>,
    limits: Box<[Limit]>,
    /// Whether a limit whose key or numbers have no value is left out.
    skips: bool,
    default_delay: Duration,
    /// What a request takes, in nanoseconds, as seen so far; 0 before the first one. `None` when
    /// only the default counts.
    observed: Option<Arc<AtomicU64>>,
    refusal: Reply,
    degrades: bool,
    /// Where requests are counted, unless in this gateway.
    shared: Option<Shared>,
}

struct Limit {
    key: Arc<KeySource>,
    post: Arc<Named>,
    /// The part of a Redis key that tells limits of one plugin apart.
    rule_name: Box<str>,
    conn: Amount,
    burst: Amount,
}

/// What a request holds while it is under way.
#[derive(Default)]
struct Held {
    guards: SmallVec<[Guard; 1]>,
    place: Option<PlaceHeld>,
    waited: Duration,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.guards.is_empty() && self.place.is_none()
    }
}

impl Plugin for LimitConn {
    const NAME: &'static str = "limit-conn";
    const PRIORITY: i32 = 1_003;
    const PHASES: Phases = Phases::ACCESS.and(Phases::LOG);
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        conf.store.check(&Policy::ALL, out);
        let rules = conf.rules.as_deref().unwrap_or_default();
        check_rules(rules.iter().map(|rule| &*rule.key), out);
    }

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<LimitConn, Problems> {
        let mut out = Problems::default();
        let engine = engine(bx);
        let limit =
            |at: usize, kind, text: &str, numbers: [&amount::Conf; 2], out: &mut Problems| {
                let key = KeySource::new(&engine, &[Self::NAME, bx.owner], kind, text);
                let key = Arc::new(key);
                let conn = Amount::build(numbers[0], 1, "conn", out);
                let burst = Amount::build(numbers[1], 0, "burst", out);
                let counts = told(&key, text, numbers, [&conn, &burst], conf.store.is_shared());
                Limit {
                    post: posts::post(bx, &engine, &(at + 1).to_string(), counts),
                    key,
                    rule_name: text.into(),
                    conn,
                    burst,
                }
            };
        let limits: Box<[Limit]> = match (&conf.rules, &conf.conn, &conf.burst, &conf.key) {
            (Some(rules), ..) => {
                let mut out = out.at("rules");
                let each = rules.iter().enumerate().map(|(at, rule)| {
                    let mut out = out.at_index(at);
                    let kind = KeyType::VarCombination;
                    limit(at, kind, &rule.key, [&rule.conn, &rule.burst], &mut out)
                });
                each.collect()
            }
            (None, Some(conn), Some(burst), Some(key)) => {
                [limit(0, conf.key_type, key, [conn, burst], &mut out)].into()
            }
            // The schema has seen that they are there.
            _ => [].into(),
        };
        out.into_result()?;
        let observed = || bx.state("observed", || AtomicU64::new(0));
        // The schema has seen that it is there.
        let delay = conf.default_conn_delay.unwrap_or_default();
        let delay = Duration::try_from_secs_f64(delay).unwrap_or(LONGEST_WAIT);
        let reason = "too many requests are under way";
        Ok(LimitConn {
            limits,
            skips: conf.rules.is_some(),
            default_delay: delay,
            observed: (!conf.only_use_default_delay).then(observed),
            refusal: refusal(conf.rejected_code, conf.rejected_msg.as_deref(), reason),
            degrades: conf.allow_degradation,
            shared: Shared::build(&conf, bx),
            engine,
        })
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|l| l.key.any_var(is) || l.conn.any_var(is) || l.burst.any_var(is))
    }

    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)> {
        let mut told = Vec::new();
        for limit in &self.limits {
            let key = match limit.key.shown(cx) {
                None if self.skips => "none: its rule is skipped".to_owned(),
                _ => limit.key.shown_or_address(cx),
            };
            told.push(("key", posts::brief(key)));
            let asked = self.asked(limit, cx);
            let at_once = |(key, conn, burst): (Key, u64, u64)| {
                (key, Counted::AtOnce(conn.saturating_add(burst)))
            };
            let asked = asked.map(at_once);
            told.extend(posts::explained(&limit.post, (&self.engine, cx), asked));
        }
        told
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        if let Some(shared) = &self.shared {
            return Ok(self.ask_central(shared, cx));
        }
        let mut held = Held::default();
        let now = now(&self.engine, cx);
        let mut passed = SmallVec::<[(&Limit, Decision); 2]>::new();
        for limit in &self.limits {
            let Some((key, conn, burst)) = self.asked(limit, cx) else {
                if self.skips {
                    continue;
                }
                return Ok(self.undecided("a variable has no usable number"));
            };
            let most = conn.saturating_add(burst);
            let most = self.engine.overrides().at_once(key, most, now);
            let (guard, there) = match self.engine.concurrency().enter(key, most) {
                Ok(entered) => entered,
                // What was entered before is left with `held`.
                Err(there) => {
                    let refused = places(false, most, there);
                    posts::note(&limit.post, &refused, false, (cx, now));
                    return Ok(Step::Reply(self.refusal.clone()));
                }
            };
            held.guards.push(guard);
            passed.push((limit, places(true, most, there)));
            held.waited = held.waited.saturating_add(self.delay(conn, there));
        }
        if held.is_empty() {
            return Ok(self.undecided("no rule applies"));
        }
        held.waited = held.waited.min(LONGEST_WAIT);
        let delay = held.waited;
        for (limit, mut decision) in passed {
            decision.delay = nanos(delay);
            posts::note(&limit.post, &decision, true, (cx, now));
        }
        *cx.local() = held;
        Ok(hold(cx, delay))
    }

    fn log(&self, cx: &mut Ctx<'_>) {
        if cx.get_local::<Held>().is_none() {
            return;
        }
        let held = std::mem::take(cx.local::<Held>());
        if let Some(observed) = &self.observed
            && cx.status() != SWITCHED
        {
            let longest = self.default_delay.max(LONGEST_TAKEN);
            let took = nanos(took(cx, held.waited).min(longest));
            let update = |seen: u64| Some(self.mean(seen, took).max(1));
            let order = Ordering::Relaxed;
            // It never refuses, so there is nothing to look at.
            let _ = observed.fetch_update(order, order, update);
        }
    }
}

impl LimitConn {
    /// Whose requests count, and the numbers; `None` when one of them cannot be found.
    fn asked(&self, limit: &Limit, cx: &Ctx<'_>) -> Option<(Key, u64, u64)> {
        let key = if self.skips {
            limit.key.find(&self.engine, cx)?
        } else {
            limit.key.find_or_address(&self.engine, cx)
        };
        let (conn, burst) = limit.numbers(cx)?;
        Some((key, conn, burst))
    }

    /// How long the request waits that is the `there`th.
    fn delay(&self, conn: u64, there: u64) -> Duration {
        // Another gateway's Redis may say anything.
        let rounds = there.saturating_sub(1) / conn.max(1);
        if rounds == 0 {
            return Duration::ZERO;
        }
        let each = match self.observed.as_ref().map(|o| o.load(Ordering::Relaxed)) {
            None | Some(0) => self.default_delay,
            Some(nanos) => Duration::from_nanos(nanos),
        };
        each.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
    }

    fn mean(&self, seen: u64, took: u64) -> u64 {
        let seen = match seen {
            0 => nanos(self.default_delay),
            seen => seen,
        };
        seen / 2 + took / 2
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
    /// `conn` and `burst` for a request.
    fn numbers(&self, cx: &Ctx<'_>) -> Option<(u64, u64)> {
        let source = cx.lookup();
        let conn = self.conn.find(&source, 1).ok()?;
        Some((conn, self.burst.find(&source, 0).ok()?))
    }
}

/// What is told of a limit: as configured, and as it is where that is the same for every request.
fn told(
    key: &Arc<KeySource>,
    expression: &str,
    [conn, burst]: [&amount::Conf; 2],
    [most, more]: [&Amount; 2],
    redis: bool,
) -> Told {
    let fixed = most.fixed().zip(more.fixed());
    let fixed = fixed.map(|(conn, burst)| conn.saturating_add(burst));
    let kept = if redis {
        Kept::Shared {
            chosen: None,
            seen: None,
            overridable: false,
        }
    } else {
        Kept::Here
    };
    Told {
        kept,
        key: Arc::clone(key),
        expression: expression.into(),
        within: Within::Limit,
        numbers: Box::new(move |wanted| {
            let most = wanted.count.or(fixed).ok_or(Unclear::Number("count"))?;
            Ok(Counted::AtOnce(most))
        }),
        limit: format!("{conn} at once, {burst} more wait").into(),
        bound: bound::AT_ONCE,
        dry_run: false,
    }
}

/// How long the upstream took; without one, the request without its wait.
fn took(cx: &Ctx<'_>, waited: Duration) -> Duration {
    let work = cx.work();
    if work.attempts.is_empty() {
        let end = work.finished.unwrap_or(work.timing.start);
        return (end - work.timing.start).saturating_sub(waited);
    }
    work.attempts.iter().filter_map(|a| a.response).sum()
}
