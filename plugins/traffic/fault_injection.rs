//! `fault-injection`: delays or refuses a share of the requests, to see what clients make of it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockgate_plugin::{
    BuildCx, Ctx, Expr, Flow, HeaderKey, Outcome, Phases, Plugin, Problem, Problems, Reply, Step,
    Template,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Configuration of `fault-injection`. At least one of `abort` and `delay`; the delay comes first.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub struct Conf {
    /// Answers instead of proxying.
    #[serde(default)]
    abort: Option<Abort>,
    /// Waits before going on.
    #[serde(default)]
    delay: Option<Delay>,
}

/// An answer in place of the upstream's.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Abort {
    /// The status.
    #[schemars(range(min = 200, max = 599))]
    http_status: u16,
    /// The body; `$variables` are filled in. The stock page when left out.
    #[serde(default)]
    body: Option<String>,
    /// Headers; `$variables` are filled in.
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    /// The share of requests. Unit: percent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    percentage: Option<u8>,
    /// Conditions, of which one has to hold.
    #[serde(default)]
    #[schemars(length(max = 20))]
    vars: Option<Vec<Value>>,
}

/// A pause.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Delay {
    /// How long. Unit: seconds.
    #[schemars(range(min = 0))]
    duration: f64,
    /// The share of requests. Unit: percent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    percentage: Option<u8>,
    /// Conditions, of which one has to hold.
    #[serde(default)]
    #[schemars(length(max = 20))]
    vars: Option<Vec<Value>>,
}

/// The longest pause: nobody waits longer, and it keeps a typing error from holding connections.
const LONGEST_DELAY: f64 = 3_600.0;

/// The built plugin.
pub struct FaultInjection {
    delay: Option<(Duration, When)>,
    abort: Option<(AbortReply, When)>,
    dice: Dice,
}

struct AbortReply {
    status: u16,
    body: Option<Template>,
    headers: Vec<(HeaderKey, Template)>,
}

/// On which requests.
struct When {
    percentage: u8,
    any_of: Vec<Expr>,
}

impl When {
    fn build(percentage: Option<u8>, vars: Option<&Vec<Value>>, out: &mut Problems) -> When {
        let mut any_of = Vec::new();
        for (i, value) in vars.into_iter().flatten().enumerate() {
            match Expr::parse(value) {
                Ok(expr) => any_of.push(expr),
                Err(mut problem) => {
                    problem.path = format!("vars[{i}]{}", problem.path);
                    out.push(problem);
                }
            }
        }
        When { percentage: percentage.unwrap_or(100), any_of }
    }

    fn holds(&self, cx: &Ctx<'_>, dice: &Dice) -> bool {
        (self.any_of.is_empty() || self.any_of.iter().any(|expr| cx.matches(expr)))
            && dice.percent(self.percentage)
    }
}

/// Random numbers good enough for shares of traffic, without a lock.
struct Dice(AtomicU64);

impl Dice {
    fn new() -> Dice {
        // The standard library's hash keys are the cheapest source of a random start.
        Dice(AtomicU64::new(RandomState::new().build_hasher().finish()))
    }

    fn percent(&self, percentage: u8) -> bool {
        if percentage >= 100 {
            return true;
        }
        // SplitMix64: a counter, scrambled.
        let mut x = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % 100 < u64::from(percentage)
    }
}

impl Plugin for FaultInjection {
    const NAME: &'static str = "fault-injection";
    const PRIORITY: i32 = 11_000;
    const PHASES: Phases = Phases::REWRITE;
    type Conf = Conf;

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<FaultInjection, Problems> {
        let mut out = Problems::default();
        let delay = conf.delay.map(|delay| {
            let when = When::build(delay.percentage, delay.vars.as_ref(), &mut out.at("delay"));
            (Duration::from_secs_f64(delay.duration.min(LONGEST_DELAY)), when)
        });
        let abort = conf.abort.map(|abort| {
            let mut out = out.at("abort");
            let when = When::build(abort.percentage, abort.vars.as_ref(), &mut out);
            let mut headers = Vec::new();
            for (name, value) in &abort.headers {
                let text = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                match name.parse() {
                    Ok(key) => headers.push((key, Template::parse(&text))),
                    Err(e) => out.push(Problem::new(format!("headers.{name}"), format!("{e}"))),
                }
            }
            let body = abort.body.as_deref().map(Template::parse);
            (AbortReply { status: abort.http_status, body, headers }, when)
        });
        out.into_result()?;
        Ok(FaultInjection { delay, abort, dice: Dice::new() })
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let pause = self.delay.as_ref().filter(|(_, when)| when.holds(cx, &self.dice));
        let Some((duration, _)) = pause else { return Ok(self.abort(cx).map_or(Step::Next, Step::Reply)) };
        let wait = cx.sleep(*duration);
        Ok(Step::Wait(Box::pin(async move {
            wait.await;
            Ok(self.abort(cx).map_or(Flow::Next, Flow::Reply))
        })))
    }
}

impl FaultInjection {
    fn abort(&self, cx: &Ctx<'_>) -> Option<Reply> {
        let (abort, _) = self.abort.as_ref().filter(|(_, when)| when.holds(cx, &self.dice))?;
        let text = |template: &Template| template.render(&cx.lookup()).into_owned();
        let mut reply = match &abort.body {
            Some(body) => Reply::text(abort.status, text(body)),
            None => Reply::status(abort.status),
        };
        for (key, value) in &abort.headers {
            reply = reply.header(key, text(value));
        }
        Some(reply.because("fault injected"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::json;

    #[test]
    fn an_abort_answers() {
        let conf = json!({"abort": {"http_status": 418, "body": "at $uri", "headers": {"X-Arg": "$arg_a", "X-N": 5}}});
        let answer = run::<FaultInjection>(conf).get("/p?a=1").expect_reply(418);
        assert_eq!(answer.text(), "at /p");
        assert_eq!(answer.header("x-arg").as_deref(), Some("1"));
        assert_eq!(answer.header("x-n").as_deref(), Some("5"));
    }

    #[test]
    fn a_delay_comes_first() {
        let run1 = run::<FaultInjection>(json!({"delay": {"duration": 1.5}})).get("/").expect_next();
        assert_eq!(run1.slept(), Duration::from_millis(1500));
        let both = json!({"delay": {"duration": 1}, "abort": {"http_status": 500}});
        let run2 = run::<FaultInjection>(both).get("/");
        run2.expect_reply(500);
        assert_eq!(run2.slept(), Duration::from_secs(1));
    }

    #[test]
    fn conditions() {
        let conf = json!({"abort": {"http_status": 403, "vars": [[["arg_a", "==", "1"]], [["arg_b", "==", "2"]]]}});
        run::<FaultInjection>(conf.clone()).get("/?a=1").expect_reply(403);
        run::<FaultInjection>(conf.clone()).get("/?b=2").expect_reply(403);
        let _ = run::<FaultInjection>(conf).get("/?a=2").expect_next();
        let never = json!({"abort": {"http_status": 403, "percentage": 0}});
        let _ = run::<FaultInjection>(never).get("/").expect_next();
    }

    #[test]
    fn a_share_is_about_right() {
        let dice = Dice::new();
        let hits = (0..10_000).filter(|_| dice.percent(30)).count();
        assert!((2_700..3_300).contains(&hits), "{hits}");
    }

    #[test]
    fn configurations_that_are_refused() {
        assert!(build_error::<FaultInjection>(json!({})).contains("at least 1 properties"));
        assert!(build_error::<FaultInjection>(json!({"abort": {"http_status": 100}})).starts_with("abort.http_status"));
        assert!(build_error::<FaultInjection>(json!({"delay": {}})).contains("\"duration\" is required"));
        let vars = json!({"abort": {"http_status": 403, "vars": [[["a", "=", 1]]]}});
        assert!(build_error::<FaultInjection>(vars).contains("invalid operator"));
    }
}
