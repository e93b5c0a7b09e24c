//! `ua-restriction`: lets through or keeps out by the `User-Agent`.
//!
//! Expressions are searched in the trimmed value, with regard to case; `(?i)` in front ignores it. A
//! client may send several such headers: of an allow list one allowed value is enough; with a deny list
//! a single denied value keeps the request out, so that a second header does not undo the first. A
//! denied pattern that takes too long to search counts as found.
//!
//! ```yaml
//! plugins:
//!   ua-restriction: { denylist: ["(?i)scrapy", "^curl/"], bypass_missing: true }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | 403 | `{"message":"Not allowed"}`, or `message` | no value is in `allowlist`, one is in `denylist`, or there is none and `bypass_missing` is off |

use lockgate_plugin::{
    BuildCx, Ctx, HeaderKey, Outcome, Pattern, Phases, Plugin, Problems, Reply, Step,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of `ua-restriction`. Exactly one of `allowlist` and `denylist`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Lets requests without a `User-Agent` through; they are kept out otherwise, whatever the
    /// list.
    #[serde(default)]
    bypass_missing: bool,
    /// Regular expressions, of which one has to match.
    #[serde(default)]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    allowlist: Option<Vec<String>>,
    /// Regular expressions, of which none may match.
    #[serde(default)]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    denylist: Option<Vec<String>>,
    /// What is said to those kept out, as `{"message": ...}` with status 403.
    #[serde(default = "message")]
    #[schemars(length(min = 1, max = 1024))]
    message: String,
}

fn message() -> String {
    "Not allowed".to_owned()
}

/// The built plugin.
pub struct UaRestriction {
    patterns: Vec<Pattern>,
    allow: bool,
    bypass_missing: bool,
    header: HeaderKey,
    refusal: Reply,
}

impl Plugin for UaRestriction {
    const NAME: &'static str = "ua-restriction";
    const PRIORITY: i32 = 2999;
    const PHASES: Phases = Phases::ACCESS;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        out.exactly_one(&[
            ("allowlist", conf.allowlist.is_some()),
            ("denylist", conf.denylist.is_some()),
        ]);
        for (name, list) in [("allowlist", &conf.allowlist), ("denylist", &conf.denylist)] {
            for (i, text) in list.iter().flatten().enumerate() {
                if let Err(e) = Pattern::new(text) {
                    out.add(&format!("{name}[{i}]"), e.to_string());
                }
            }
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<UaRestriction, Problems> {
        let allow = conf.allowlist.is_some();
        let list = conf.allowlist.or(conf.denylist).unwrap_or_default();
        Ok(UaRestriction {
            // `check` has compiled each of them already.
            patterns: list
                .iter()
                .filter_map(|text| Pattern::new(text).ok())
                .collect(),
            allow,
            bypass_missing: conf.bypass_missing,
            header: HeaderKey::constant("User-Agent"),
            refusal: Reply::message(403, &conf.message).because("user agent not allowed"),
        })
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let (mut seen, mut hit) = (false, false);
        cx.each_header(&self.header, &mut |value| {
            seen = true;
            hit = hit || self.listed(&String::from_utf8_lossy(value));
        });
        let passes = if seen {
            hit == self.allow
        } else {
            self.bypass_missing
        };
        Ok(if passes {
            Step::Next
        } else {
            Step::Reply(self.refusal.clone())
        })
    }
}

impl UaRestriction {
    fn listed(&self, agent: &str) -> bool {
        let agent = agent.trim();
        // What cannot be decided in time is neither allowed nor taken for harmless.
        let undecided = !self.allow;
        self.patterns
            .iter()
            .any(|pattern| pattern.try_is_match(agent).unwrap_or(undecided))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::{Value, json};

    fn check(conf: Value, agents: &[&str], passes: bool) {
        let mut request = run::<UaRestriction>(conf.clone());
        for agent in agents {
            request = request.header("User-Agent", agent);
        }
        let run = request.get("/");
        if passes {
            let _ = run.expect_next();
        } else {
            assert_eq!(
                run.expect_reply(403).json(),
                json!({"message": "Not allowed"}),
                "{conf} {agents:?}"
            );
        }
    }

    #[test]
    fn lists() {
        let deny = json!({"denylist": ["(Baidu)?spider", "^curl/"]});
        check(deny.clone(), &["curl/8"], false);
        check(deny.clone(), &["  curl/8 "], false);
        check(deny.clone(), &["Mozilla"], true);
        check(deny.clone(), &["curl/8", "Mozilla"], false);
        check(deny.clone(), &["Mozilla", "curl/8"], false);
        check(deny.clone(), &["curl/8", "curl/8"], false);
        check(deny.clone(), &["Mozilla", "Opera"], true);
        check(deny.clone(), &[""], true);
        check(deny, &[], false);
        check(json!({"allowlist": ["^my-app"]}), &["my-app 1"], true);
        check(json!({"allowlist": ["^my-app"]}), &["other"], false);
        check(
            json!({"allowlist": ["^my-app"]}),
            &["other", "my-app"],
            true,
        );
        check(
            json!({"allowlist": ["^my-app"]}),
            &["my-app", "other"],
            true,
        );
        check(json!({"allowlist": ["^my-app"]}), &[], false);
        check(
            json!({"denylist": ["x"], "bypass_missing": true}),
            &[],
            true,
        );
        check(
            json!({"allowlist": ["^my-app"], "bypass_missing": true}),
            &[],
            true,
        );
        check(json!({"allowlist": ["^My-App"]}), &["my-app"], false);
    }

    #[test]
    fn what_takes_too_long_is_kept_out() {
        let (slow, agent) = ("^(a|aa)+(?=$)(?<!x)b", "a".repeat(60));
        check(json!({"denylist": [slow]}), &[&agent], false);
        check(json!({"allowlist": [slow]}), &[&agent], false);
    }

    #[test]
    fn the_message_can_be_chosen() {
        let conf = json!({"denylist": ["."], "message": "no robots"});
        let answer = run::<UaRestriction>(conf)
            .header("User-Agent", "x")
            .get("/")
            .expect_reply(403);
        assert_eq!(answer.json(), json!({"message": "no robots"}));
    }

    #[test]
    fn configurations_that_are_refused() {
        assert!(
            build_error::<UaRestriction>(json!({"denylist": ["("]})).starts_with("denylist[0]: ")
        );
        assert!(build_error::<UaRestriction>(json!({})).contains("matches none"));
        let both = json!({"denylist": ["a"], "allowlist": ["b"]});
        assert!(build_error::<UaRestriction>(both).contains("matches both schemas 1 and 2"));
        assert!(
            build_error::<UaRestriction>(json!({"denylist": [""]}))
                .starts_with("denylist[0]: string too short")
        );
        assert!(
            build_error::<UaRestriction>(json!({"denylist": ["a"], "message": ""}))
                .starts_with("message: ")
        );
    }
}
