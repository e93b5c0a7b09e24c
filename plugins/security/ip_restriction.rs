//! `ip-restriction`: lets through or keeps out by the client's address.
//!
//! The address is the one after the real-IP rules, so behind another proxy configure those first. A
//! list may hold many thousand networks: it is searched in the time of its logarithm.
//!
//! ```yaml
//! plugins:
//!   ip-restriction: { whitelist: ["10.0.0.0/8", "2001:db8::/32"] }
//! ```
//!
//! # Answers
//!
//! | status | body | when |
//! | --- | --- | --- |
//! | `response_code` | `{"message":"Your IP address is not allowed"}`, or `message` | the address is not in `whitelist`, or is in `blacklist` |

mod nets;

use lockgate_plugin::{BuildCx, Ctx, Outcome, Phases, Plugin, Problems, Reply, Step, network};
use schemars::JsonSchema;
use serde::Deserialize;

use self::nets::Nets;

/// Configuration of `ip-restriction`. Exactly one of `whitelist` and `blacklist`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// Addresses (`192.0.2.1`, `2001:db8::1`) and networks (`10.0.0.0/8`) that are let through; all
    /// others are kept out.
    #[serde(default)]
    #[schemars(length(min = 1))]
    whitelist: Option<Vec<String>>,
    /// Addresses and networks that are kept out; all others are let through. Written as in
    /// `whitelist`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    blacklist: Option<Vec<String>>,
    /// What is said to those kept out, as `{"message": ...}`.
    #[serde(default = "message")]
    #[schemars(length(min = 1, max = 1024))]
    message: String,
    /// The status for those kept out: 403, or 404 to hide that there is anything.
    #[serde(default = "code")]
    #[schemars(range(min = 403, max = 404))]
    response_code: u16,
}

fn message() -> String {
    "Your IP address is not allowed".to_owned()
}

fn code() -> u16 {
    403
}

/// The built plugin.
pub struct IpRestriction {
    nets: Nets,
    /// Whether members of `nets` are let through, or kept out.
    allow: bool,
    refusal: Reply,
}

impl Plugin for IpRestriction {
    const NAME: &'static str = "ip-restriction";
    const PRIORITY: i32 = 3000;
    const PHASES: Phases = Phases::ACCESS;
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        out.exactly_one(&[
            ("whitelist", conf.whitelist.is_some()),
            ("blacklist", conf.blacklist.is_some()),
        ]);
        for (name, list) in [
            ("whitelist", &conf.whitelist),
            ("blacklist", &conf.blacklist),
        ] {
            for (i, text) in list.iter().flatten().enumerate() {
                if network(text).is_none() {
                    out.add(
                        &format!("{name}[{i}]"),
                        format!("invalid ip address: {text}"),
                    );
                }
            }
        }
    }

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<IpRestriction, Problems> {
        let allow = conf.whitelist.is_some();
        let list = conf.whitelist.or(conf.blacklist).unwrap_or_default();
        // `check` has read each of them already.
        let nets = list.iter().filter_map(|text| network(text)).collect();
        let refusal = Reply::message(conf.response_code, &conf.message);
        Ok(IpRestriction {
            nets,
            allow,
            refusal: refusal.because("address not allowed"),
        })
    }

    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)> {
        let verdict = if self.allows(cx) {
            "allowed".to_owned()
        } else {
            format!("refused with {}", self.refusal.status)
        };
        vec![(
            "client",
            format!("{} is {verdict}", cx.client_ip().to_canonical()),
        )]
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        Ok(if self.allows(cx) {
            Step::Next
        } else {
            Step::Reply(self.refusal.clone())
        })
    }
}

impl IpRestriction {
    fn allows(&self, cx: &Ctx<'_>) -> bool {
        self.nets.contains(cx.client_ip()) == self.allow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::{Value, json};

    fn check(conf: Value, client: &str, passes: bool) {
        let run = run::<IpRestriction>(conf.clone()).from(client).get("/");
        if passes {
            let _ = run.expect_next();
        } else {
            let answer = run.expect_reply(403);
            assert_eq!(
                answer.text(),
                "{\"message\":\"Your IP address is not allowed\"}\n",
                "{conf}"
            );
        }
    }

    #[test]
    fn lists() {
        check(
            json!({"whitelist": ["10.0.0.0/8", "::1"]}),
            "10.1.2.3",
            true,
        );
        check(json!({"whitelist": ["10.0.0.0/8", "::1"]}), "::1", true);
        check(json!({"whitelist": ["10.0.0.0/8"]}), "11.1.2.3", false);
        check(json!({"blacklist": ["10.0.0.0/8"]}), "10.1.2.3", false);
        check(json!({"blacklist": ["10.0.0.0/8"]}), "11.1.2.3", true);
        check(
            json!({"blacklist": ["2001:db8::/32"]}),
            "2001:db8:1::5",
            false,
        );
        check(
            json!({"whitelist": ["127.0.0.1"]}),
            "::ffff:127.0.0.1",
            true,
        );
    }

    #[test]
    fn the_answer_can_be_chosen() {
        let conf = json!({"blacklist": ["127.0.0.1"], "message": "no", "response_code": 404});
        let answer = run::<IpRestriction>(conf)
            .from("127.0.0.1")
            .get("/")
            .expect_reply(404);
        assert_eq!(answer.json(), json!({"message": "no"}));
    }

    #[test]
    fn configurations_that_are_refused() {
        let check =
            |conf: Value, expected: &str| assert_eq!(build_error::<IpRestriction>(conf), expected);
        check(
            json!({}),
            "value should match only one schema, but matches none",
        );
        check(
            json!({"whitelist": ["::1"], "blacklist": ["::1"]}),
            "value should match only one schema, but matches both schemas 1 and 2",
        );
        check(
            json!({"whitelist": ["x", "::1", "10.0.0.0/33"]}),
            "whitelist[0]: invalid ip address: x\nwhitelist[2]: invalid ip address: 10.0.0.0/33",
        );
        check(
            json!({"whitelist": []}),
            "whitelist: expect array to have at least 1 items",
        );
        check(
            json!({"blacklist": ["::/0"], "response_code": 500}),
            "response_code: expected 500 to be at most 404",
        );
        check(
            json!({"blacklist": ["::/0"], "message": ""}),
            "message: string too short, expected at least 1, got 0",
        );
    }
}
