//! What users write.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::traffic::limits::amount;
use crate::traffic::limits::key::{KeyType, var_or_combination};
use crate::traffic::limits::store::Store;

/// Configuration of `limit-conn`. Either `conn`, `burst` and `key`, or `rules`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = json!([
    {"required": ["conn", "burst", "default_conn_delay", "key"]},
    {"required": ["default_conn_delay", "rules"]},
])))]
pub struct Conf {
    /// Requests that may be under way: a number, or a text in which `$variables` give one.
    #[serde(default)]
    #[schemars(schema_with = "amount::positive")]
    pub(super) conn: Option<amount::Conf>,
    /// How many more may wait: a number, or a text in which `$variables` give one.
    #[serde(default)]
    #[schemars(schema_with = "amount::natural")]
    pub(super) burst: Option<amount::Conf>,
    /// How long a request is thought to take. Always needed. Unit: seconds.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(super) default_conn_delay: Option<f64>,
    /// Waits by `default_conn_delay`, whatever requests really take.
    #[serde(default)]
    pub(super) only_use_default_delay: bool,
    /// Whose requests count together: the name of a variable, or with `key_type: var_combination` a
    /// text with `$variables` in it. Without a value in a request, the client's address.
    #[serde(default)]
    pub(super) key: Option<String>,
    /// How `key` is read.
    #[serde(default)]
    #[schemars(schema_with = "var_or_combination")]
    pub(super) key_type: KeyType,
    #[serde(flatten)]
    pub(super) store: Store,
    /// In Redis: how long at most a place counts that nobody gives back, as its gateway died. It is never more
    /// than ten seconds, and while the request lasts its gateway renews it. Unit: seconds.
    #[serde(default = "hour")]
    #[schemars(range(min = 1))]
    pub(super) key_ttl: u64,
    /// The status of refusals.
    #[serde(default = "unavailable")]
    #[schemars(range(min = 200, max = 599))]
    pub(super) rejected_code: u16,
    /// What refusals say, as `{"error_msg": ...}`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(super) rejected_msg: Option<String>,
    /// Lets requests pass for which no limit can be found, or while Redis cannot be asked. They count as soon as
    /// it can.
    #[serde(default)]
    pub(super) allow_degradation: bool,
    /// Several limits, instead of `conn`, `burst` and `key`.
    #[serde(default)]
    pub(super) rules: Option<Vec<RuleConf>>,
}

/// One of several limits.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RuleConf {
    /// As `conn` of the plugin.
    #[schemars(schema_with = "amount::positive")]
    pub(super) conn: amount::Conf,
    /// As `burst` of the plugin.
    #[schemars(schema_with = "amount::natural")]
    pub(super) burst: amount::Conf,
    /// A text with `$variables`: requests with the same text count together.
    pub(super) key: String,
}

fn hour() -> u64 {
    3_600
}

fn unavailable() -> u16 {
    503
}
