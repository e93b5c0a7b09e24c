//! `fault-injection`: delays or refuses a share of the requests, to see what clients make of it.
//!
//! The delay comes first, then the abort; each has its own share and its own conditions, and each
//! request draws anew.
//!
//! ```yaml
//! plugins:
//!   fault-injection:
//!     delay: { duration: 1.5, percentage: 20 }
//!     abort: { http_status: 503, body: "try later", vars: [[["arg_test", "==", "1"]]] }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | `abort.http_status` | `abort.body`, else the gateway's page | the request is of the share, and a condition holds |

mod dice;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lockgate_plugin::{
    BuildCx, Ctx, Expr, Flow, HeaderKey, Outcome, Phases, Plugin, Problems, Reply, Step, Var,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::dice::Dice;
use crate::text::{self, Scalar, Text};

/// Configuration of `fault-injection`. At least one of `abort` and `delay`.
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
    /// The status of the answer.
    #[schemars(range(min = 200, max = 599))]
    http_status: u16,
    /// The body of the answer; `$variables` are filled in. The gateway's page for the status when
    /// left out.
    #[serde(default)]
    body: Option<String>,
    /// Response headers to set: texts or numbers by name; `$variables` are filled in.
    #[serde(default)]
    #[schemars(extend("minProperties" = 1))]
    headers: Option<BTreeMap<String, Scalar>>,
    /// The share of requests; all when left out. Unit: percent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    percentage: Option<u8>,
    /// A list of conditions, each written as `vars` of a route: one list more than there. One of
    /// them has to hold; an empty list never does.
    #[serde(default)]
    #[schemars(length(max = 20))]
    vars: Option<Vec<Value>>,
}

/// A pause.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Delay {
    /// How long; at most an hour. Unit: seconds, fractions allowed.
    #[schemars(range(min = 0, max = 3600))]
    duration: f64,
    /// The share of requests; all when left out. Unit: percent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    percentage: Option<u8>,
    /// A list of conditions, each written as `vars` of a route: one list more than there. One of
    /// them has to hold; an empty list never does.
    #[serde(default)]
    #[schemars(length(max = 20))]
    vars: Option<Vec<Value>>,
}

/// The built plugin.
pub struct FaultInjection {
    delay: Option<(Duration, When)>,
    abort: Option<(AbortReply, When)>,
    dice: Dice,
}

struct AbortReply {
    /// Complete, unless the body has variables.
    reply: Reply,
    body: Option<Text>,
    headers: Vec<(HeaderKey, Text)>,
}

/// On which requests.
struct When {
    percentage: u8,
    any_of: Option<Vec<Expr>>,
}

impl Plugin for FaultInjection {
    const NAME: &'static str = "fault-injection";
    const PRIORITY: i32 = 11_000;
    const PHASES: Phases = Phases::REWRITE;
    type Conf = Conf;

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<FaultInjection, Problems> {
        let mut out = Problems::default();
        let delay = conf.delay.map(|delay| {
            let mut out = out.at("delay");
            let when = When::build(delay.percentage, delay.vars, &mut out);
            // The schema has bounded it.
            let duration = Duration::try_from_secs_f64(delay.duration).unwrap_or_default();
            (duration, when)
        });
        let abort = conf.abort.map(|abort| {
            let mut out = out.at("abort");
            let when = When::build(abort.percentage, abort.vars, &mut out);
            let headers = text::fields(abort.headers.unwrap_or_default(), &mut out.at("headers"));
            let body = abort.body.as_deref().map(Text::parse);
            let reply = match body.as_ref().and_then(Text::constant) {
                Some(body) => Reply::text(abort.http_status, body.clone()),
                None => Reply::status(abort.http_status),
            };
            let body = body.filter(|body| body.constant().is_none());
            (
                AbortReply {
                    reply: reply.because("fault injected"),
                    body,
                    headers,
                },
                when,
            )
        });
        out.into_result()?;
        Ok(FaultInjection {
            delay,
            abort,
            dice: Dice::random(),
        })
    }

    fn phases(&self) -> Phases {
        // Only attributes that this plugin does not know were given.
        let nothing = self.delay.is_none() && self.abort.is_none();
        if nothing {
            Phases::NONE
        } else {
            Phases::REWRITE
        }
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let abort = self.abort.as_ref();
        let mut texts = abort.into_iter().flat_map(|(abort, _)| {
            let values = abort.headers.iter().map(|(_, value)| value);
            values.chain(&abort.body)
        });
        let delay = self.delay.iter().map(|(_, when)| when);
        let mut whens = delay.chain(abort.map(|(_, when)| when));
        whens.any(|when| when.any_var(is)) || texts.any(|text| text.any_var(is))
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let pause = self
            .delay
            .as_ref()
            .filter(|(_, when)| when.holds(cx, &self.dice));
        match pause {
            Some((duration, _)) if !duration.is_zero() => {
                let wait = cx.sleep(*duration);
                Ok(Step::Wait(Box::pin(async move {
                    wait.await;
                    Ok(self.abort(cx).map_or(Flow::Next, Flow::Reply))
                })))
            }
            _ => Ok(self.abort(cx).map_or(Step::Next, Step::Reply)),
        }
    }
}

impl FaultInjection {
    fn abort(&self, cx: &mut Ctx<'_>) -> Option<Reply> {
        let (abort, _) = self
            .abort
            .as_ref()
            .filter(|(_, when)| when.holds(cx, &self.dice))?;
        let body: Option<Bytes> = abort.body.as_ref().map(|body| body.render(&cx.lookup()));
        for (key, value) in &abort.headers {
            let value = value.render(&cx.lookup());
            // As an edit and not in the reply: edits escape line ends, which variables may hold.
            cx.set_resp_header(key, value);
        }
        let reply = abort.reply.clone();
        Some(match body {
            Some(body) => Reply {
                body: lockgate_plugin::Body::Bytes(body),
                ..reply
            },
            None => reply,
        })
    }
}

impl When {
    fn build(percentage: Option<u8>, vars: Option<Vec<Value>>, out: &mut Problems) -> When {
        let any_of = vars.map(|vars| {
            let mut any_of = Vec::with_capacity(vars.len());
            for (i, value) in vars.iter().enumerate() {
                match Expr::parse(value) {
                    Ok(expr) => any_of.push(expr),
                    Err(problem) => out.at("vars").at_index(i).push(problem),
                }
            }
            any_of
        });
        When {
            percentage: percentage.unwrap_or(100),
            any_of,
        }
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.any_of.iter().flatten().any(|expr| expr.any_var(is))
    }

    fn holds(&self, cx: &Ctx<'_>, dice: &Dice) -> bool {
        let meant = self
            .any_of
            .as_ref()
            .is_none_or(|list| list.iter().any(|expr| cx.matches(expr)));
        meant && dice.percent(self.percentage)
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
        let run1 = run::<FaultInjection>(conf).get("/p?a=1%0d%0aEvil:+1");
        let answer = run1.expect_reply(418);
        assert_eq!(answer.text(), "at /p");
        assert_eq!(answer.headers("x-arg"), ["1%0D%0AEvil: 1"]);
        assert_eq!(answer.headers("x-n"), ["5"]);
        assert_eq!(answer.reason(), "fault injected");
    }

    #[test]
    fn the_body_is_sent_as_it_is() {
        let body = |conf: Value| {
            let answer = run::<FaultInjection>(json!({ "abort": conf }))
                .get("/")
                .expect_reply(503);
            (answer.is_stock(), answer.text())
        };
        assert_eq!(body(json!({"http_status": 503})), (true, String::new()));
        assert_eq!(
            body(json!({"http_status": 503, "body": ""})),
            (false, String::new())
        );
        assert_eq!(
            body(json!({"http_status": 503, "body": "no\n"})),
            (false, "no\n".to_owned())
        );
        assert_eq!(
            body(json!({"http_status": 503, "body": "$arg_x"})),
            (false, String::new())
        );
    }

    #[test]
    fn a_delay_comes_first() {
        let run1 = run::<FaultInjection>(json!({"delay": {"duration": 1.5}}))
            .get("/")
            .expect_next();
        assert_eq!(run1.slept(), Duration::from_millis(1500));
        let both = json!({"delay": {"duration": 1}, "abort": {"http_status": 500}});
        let run2 = run::<FaultInjection>(both).get("/");
        run2.expect_reply(500);
        assert_eq!(run2.slept(), Duration::from_secs(1));
        let none = run::<FaultInjection>(json!({"delay": {"duration": 0}}))
            .get("/")
            .expect_next();
        assert_eq!(none.slept(), Duration::ZERO);
    }

    fn abort(extra: Value, target: &str, answers: bool) {
        let mut conf = json!({"abort": {"http_status": 403}});
        conf["abort"]
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let run = run::<FaultInjection>(conf).get(target);
        if answers {
            run.expect_reply(403);
        } else {
            let _ = run.expect_next();
        }
    }

    #[test]
    fn conditions() {
        let two =
            json!({"vars": [[["arg_a", "==", "1"]], [["arg_b", "==", "2"], ["arg_c", "==", "3"]]]});
        abort(two.clone(), "/?a=1", true);
        abort(two.clone(), "/?b=2&c=3", true);
        abort(two.clone(), "/?b=2", false);
        abort(two, "/?a=2", false);
        abort(json!({"vars": [[]]}), "/", true);
        abort(json!({"vars": []}), "/", false);
        abort(json!({"percentage": 0}), "/", false);
        abort(json!({"percentage": 100}), "/", true);
        abort(
            json!({"percentage": 100, "vars": [[["arg_a", "==", "1"]]]}),
            "/",
            false,
        );
    }

    #[test]
    fn delay_and_abort_have_their_own_conditions() {
        let conf = json!({
            "delay": {"duration": 1, "vars": [[["arg_d", "==", "1"]]]},
            "abort": {"http_status": 500, "vars": [[["arg_a", "==", "1"]]]}});
        let instance = run::<FaultInjection>(conf).build();
        let delayed = instance.request().get("/?d=1").expect_next();
        assert_eq!(delayed.slept(), Duration::from_secs(1));
        let aborted = instance.request().get("/?a=1");
        aborted.expect_reply(500);
        assert_eq!(aborted.slept(), Duration::ZERO);
    }

    #[test]
    fn the_phase_is_only_there_when_needed() {
        let unknown = run::<FaultInjection>(json!({"other": 1})).build();
        assert_eq!(unknown.phases(), Phases::NONE);
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |conf: Value, expected: &str| {
            let text = build_error::<FaultInjection>(conf);
            assert!(text.contains(expected), "{text}");
        };
        check(json!({}), "at least 1 properties");
        check(json!({"abort": {}}), "\"http_status\" is required");
        check(
            json!({"abort": {"http_status": 100}}),
            "abort.http_status: ",
        );
        check(
            json!({"abort": {"http_status": 403, "percentage": 101}}),
            "abort.percentage: ",
        );
        check(
            json!({"abort": {"http_status": 403, "headers": {}}}),
            "abort.headers: ",
        );
        check(
            json!({"abort": {"http_status": 403, "headers": {"X": true}}}),
            "abort.headers.X: ",
        );
        check(
            json!({"abort": {"http_status": 403, "headers": {"a b": 1}}}),
            "abort.headers.a b: ",
        );
        check(json!({"delay": {}}), "\"duration\" is required");
        check(json!({"delay": {"duration": -1}}), "delay.duration: ");
        check(json!({"delay": {"duration": 3601}}), "delay.duration: ");
        check(
            json!({"delay": {"duration": "1"}}),
            "delay.duration: wrong type",
        );
        let vars = json!([[["a", "=", 1]], [["a", "==", 1]], ["a", "==", 1]]);
        let conf = json!({"abort": {"http_status": 403, "vars": vars}, "delay": {"duration": 1, "vars": vars}});
        check(conf.clone(), "abort.vars[0][0][1]: invalid operator '='");
        check(
            conf.clone(),
            "abort.vars[2]: rule should be wrapped inside brackets",
        );
        check(conf, "delay.vars[0][0][1]: invalid operator '='");
    }
}
