//! `uri-blocker`: refuses requests whose path and query match a rule.
//!
//! The path is searched in its normal form (decoded, dot segments resolved), the query as the client
//! sent it. A rule that takes too long to search blocks.
//!
//! ```yaml
//! plugins:
//!   uri-blocker: { block_rules: ["^/internal/", "\\.\\./"], rejected_msg: access is not allowed }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | `rejected_code` | `{"error_msg":...}` with `rejected_msg`, else the gateway's page | a rule is found |

use lockgate_plugin::{BuildCx, Ctx, Outcome, Pattern, Phases, Plugin, Problems, Reply, Step};
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of `uri-blocker`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Regular expressions, searched in the normalised path with its query; at least one.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    block_rules: Vec<String>,
    /// The status of a refusal.
    #[serde(default = "code")]
    #[schemars(range(min = 200, max = 599))]
    rejected_code: u16,
    /// What is said with a refusal, as `{"error_msg": ...}`; the gateway's page for the
    /// status when left out.
    #[serde(default)]
    #[schemars(length(min = 1))]
    rejected_msg: Option<String>,
    /// Matches without regard to case.
    #[serde(default)]
    case_insensitive: bool,
}

fn code() -> u16 {
    403
}

/// The built plugin.
pub struct UriBlocker {
    rules: Pattern,
    refusal: Reply,
}

impl Plugin for UriBlocker {
    const NAME: &'static str = "uri-blocker";
    const PRIORITY: i32 = 2900;
    const PHASES: Phases = Phases::REWRITE;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        for (i, rule) in conf.block_rules.iter().enumerate() {
            if let Err(e) = Pattern::new(rule) {
                out.add(&format!("block_rules[{i}]"), e.to_string());
            }
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<UriBlocker, Problems> {
        let flags = if conf.case_insensitive { "i" } else { "" };
        let rules = Pattern::with_flags(&conf.block_rules.join("|"), flags).map_err(|e| {
            let mut out = Problems::default();
            out.add("block_rules", e.to_string());
            out
        })?;
        let refusal = match &conf.rejected_msg {
            Some(text) => Reply::error_msg(conf.rejected_code, text),
            None => Reply::status(conf.rejected_code),
        };
        Ok(UriBlocker {
            rules,
            refusal: refusal.because("URI blocked"),
        })
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        // A blocker that gives up must not let through what it could not read.
        let hit = self.rules.try_is_match(&cx.request_uri()).unwrap_or(true);
        Ok(if hit {
            Step::Reply(self.refusal.clone())
        } else {
            Step::Next
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::{Value, json};

    fn check(conf: Value, target: &str, blocked: bool) {
        let run = run::<UriBlocker>(conf.clone()).get(target);
        if blocked {
            assert!(run.expect_reply(403).is_stock(), "{conf} {target}");
        } else {
            let _ = run.expect_next();
        }
    }

    #[test]
    fn rules() {
        let conf = json!({"block_rules": ["^/admin", "select.+from", "root.exe"]});
        check(conf.clone(), "/admin/x", true);
        check(conf.clone(), "/x/../admin", true);
        check(conf.clone(), "/a?q=select%20x%20from%20y", true);
        check(conf.clone(), "/a?f=root.exe", true);
        check(conf.clone(), "/Admin", false);
        check(conf, "/", false);
        let insensitive = json!({"block_rules": ["^/a", "^/admin"], "case_insensitive": true});
        check(insensitive, "/ADMIN", true);
        check(json!({"block_rules": ["a?b$"]}), "/a?b", true);
        check(json!({"block_rules": ["^/x$"]}), "/x?a", false);
        let slow = json!({"block_rules": ["^/(a|aa)+(?=$)(?<!x)b"]});
        check(slow, &format!("/{}", "a".repeat(60)), true);
    }

    #[test]
    fn the_answer_can_be_chosen() {
        let conf = json!({"block_rules": ["a"], "rejected_code": 401, "rejected_msg": "no"});
        assert_eq!(
            run::<UriBlocker>(conf).get("/a").expect_reply(401).json(),
            json!({"error_msg": "no"})
        );
    }

    #[test]
    fn configurations_that_are_refused() {
        assert!(
            build_error::<UriBlocker>(json!({"block_rules": [".+("]}))
                .starts_with("block_rules[0]: ")
        );
        let two = json!({"block_rules": ["^a", "^b(", "c", "["]});
        let text = build_error::<UriBlocker>(two);
        assert!(
            text.contains("block_rules[1]: ") && text.contains("\nblock_rules[3]: "),
            "{text}"
        );
        assert!(build_error::<UriBlocker>(json!({})).contains("\"block_rules\" is required"));
        let empty = json!({"block_rules": ["a"], "rejected_msg": ""});
        assert!(build_error::<UriBlocker>(empty).starts_with("rejected_msg: string too short"));
        let code = json!({"block_rules": ["a"], "rejected_code": 199});
        assert!(build_error::<UriBlocker>(code).starts_with("rejected_code: "));
        assert!(build_error::<UriBlocker>(json!({"block_rules": []})).contains("at least 1 items"));
        assert!(build_error::<UriBlocker>(json!({"block_rules": ["a", "a"]})).contains("unique"));
    }
}
