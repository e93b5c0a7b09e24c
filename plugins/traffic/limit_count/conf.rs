//! What users write.

use lockgate_plugin::Problems;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::traffic::limits::amount;
use crate::traffic::limits::key::{KeyType, check_rules};
use crate::traffic::limits::store::{Policy, Store};

/// As in the original: the interval that is none, and the shortest.
const NO_SYNC: f64 = -1.0;
const SHORTEST_SYNC: f64 = 0.1;

/// Configuration of `limit-count`. Either `count` and `time_window`, or `rules`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct Conf {
    /// Requests in a window: a number, or a text in which `$variables` give one.
    #[serde(default)]
    #[schemars(schema_with = "amount::positive")]
    pub(super) count: Option<amount::Conf>,
    /// The length of a window: a number, or a text in which `$variables` give one. Unit: seconds.
    #[serde(default)]
    #[schemars(schema_with = "amount::positive")]
    pub(super) time_window: Option<amount::Conf>,
    /// How windows follow one another.
    #[serde(default)]
    pub(super) window_type: WindowType,
    /// Several limits, instead of `count` and `time_window`.
    #[serde(default)]
    pub(super) rules: Option<Vec<RuleConf>>,
    /// Routes with the same name here count together. Their configuration of this plugin has to be
    /// the same; for another one take another name, in all of them. A member that differs from those in use is
    /// refused.
    #[serde(default)]
    pub(super) group: Option<String>,
    /// Whose requests count together: see `key_type`. Without a value in a request, the client's
    /// address.
    #[serde(default = "remote_addr")]
    pub(super) key: String,
    /// How `key` is read: as the name of a variable, as a text with `$variables` in it, or as it is.
    #[serde(default)]
    pub(super) key_type: KeyType,
    /// The status of refusals.
    #[serde(default = "unavailable")]
    #[schemars(range(min = 200, max = 599))]
    pub(super) rejected_code: u16,
    /// What refusals say, as `{"error_msg": ...}`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(super) rejected_msg: Option<String>,
    #[serde(flatten)]
    pub(super) store: Store,
    /// -1: Redis is asked for every request. Else a gateway takes permits ahead and spends them without asking,
    /// where that saves anything: with windows of at least 10 s and at least 1,024 requests in a fixed one, or 80,000 in
    /// a sliding one; not with `rules`, nor with numbers from variables. The limit holds all the same, a sliding one
    /// within a hundredth. How often Redis is asked depends on what is left, not on this number. Unit: seconds.
    #[serde(default = "no_sync")]
    sync_interval: f64,
    /// How keys are called in Redis. `apisix`: as APISIX calls them, so that its nodes and this gateway count together
    /// during a migration; for fixed windows of a `group`.
    #[serde(default)]
    key_format: KeyFormat,
    /// Lets requests pass for which no limit can be found. With `rules`, one without a usable number is left
    /// out, and the others apply.
    #[serde(default)]
    pub(super) allow_degradation: bool,
    /// Whether responses tell how things stand.
    #[serde(default = "yes")]
    pub(super) show_limit_quota_header: bool,
}

/// How keys are called in Redis.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum KeyFormat {
    // By resource, plugin and limit.
    #[default]
    Lockgate,
    // As in APISIX.
    Apisix,
}

/// One of several limits.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub(super) struct RuleConf {
    /// As `count` of the plugin.
    #[schemars(schema_with = "amount::positive")]
    pub(super) count: amount::Conf,
    /// As `time_window` of the plugin.
    #[schemars(schema_with = "amount::positive")]
    pub(super) time_window: amount::Conf,
    /// A text with `$variables`: requests with the same text count together. The rule does not apply
    /// to requests in which none of them has a value.
    pub(super) key: String,
    /// What stands in the names of this rule's headers; the rule's number when left out.
    #[serde(default)]
    pub(super) header_prefix: Option<String>,
}

/// How windows follow one another.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum WindowType {
    // A window starts with the first request after the last one has ended.
    #[default]
    Fixed,
    // Windows follow each other without a gap, and the one before counts in part.
    Sliding,
}

fn no_sync() -> f64 {
    NO_SYNC
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

impl Conf {
    pub(super) fn check(&self, out: &mut Problems) {
        let single = self.count.is_some() || self.time_window.is_some();
        match (
            &self.rules,
            self.count.is_some() && self.time_window.is_some(),
        ) {
            (Some(_), _) if single => out.add(
                "",
                "count/time_window and rules cannot be specified at the same time",
            ),
            (None, false) => out.exactly_one(&[("count, time_window", false), ("rules", false)]),
            _ => {}
        }
        if self.rules.is_some() && self.group.is_some() {
            out.add("", "group and rules cannot be specified at the same time");
        }
        let rules = self.rules.as_deref().unwrap_or_default();
        check_rules(rules.iter().map(|rule| &*rule.key), out);
        self.store.check(&Policy::ALL, out);
        if self.key_format == KeyFormat::Apisix {
            self.check_apisix(out);
        }
        if self.store.is_shared() && self.sync_interval != NO_SYNC {
            let window = match self.time_window {
                Some(amount::Conf::Number(seconds)) => seconds as f64,
                _ => f64::INFINITY,
            };
            if self.sync_interval < SHORTEST_SYNC {
                out.add("", "sync_interval should not be smaller than 0.1");
            } else if self.sync_interval >= window {
                out.add("", "sync_interval should be smaller than time_window");
            }
        }
    }

    fn check_apisix(&self, out: &mut Problems) {
        if !self.store.is_shared() {
            out.add(
                "key_format",
                "keys have a name in Redis only: set a `policy`",
            );
        }
        if self.group.is_none() {
            let why = "without a `group` APISIX puts a checksum of its own form of the configuration into the key";
            out.add("key_format", why);
        }
        if self.window_type != WindowType::Fixed || self.sync_interval != NO_SYNC {
            let why = "only fixed windows with `sync_interval: -1` are kept as APISIX keeps them";
            out.add("key_format", why);
        }
    }

    /// Whether Redis need not be asked for every request.
    pub(super) fn syncs(&self) -> bool {
        self.store.is_shared() && self.sync_interval != NO_SYNC
    }

    /// The group that counts together with nodes of APISIX.
    pub(super) fn with_apisix(&self) -> Option<&str> {
        let group = self.group.as_deref();
        group.filter(|_| self.key_format == KeyFormat::Apisix)
    }

    /// The part of a Redis key that tells this plugin's limits apart.
    pub(super) fn rule_name(&self, key: &str) -> Box<str> {
        let window = match self.window_type {
            WindowType::Fixed => "fixed",
            WindowType::Sliding => "sliding",
        };
        format!("{window}:{key}").into()
    }
}
