//! What users write.

use std::borrow::Cow;

use lockgate_plugin::Problems;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use crate::traffic::limits::amount;
use crate::traffic::limits::store::{Policy, Store};

/// Configuration of `limit`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The limits. A request has to be within each that applies to it.
    #[schemars(length(min = 1, max = 16))]
    pub(super) limits: Vec<One>,
    /// The status of refusals.
    #[serde(default = "too_many")]
    #[schemars(range(min = 200, max = 599))]
    pub(super) rejected_code: u16,
    /// What refusals say, as `{"error_msg": ...}`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(super) rejected_msg: Option<String>,
    /// Whether responses carry `RateLimit`, `RateLimit-Policy` and `Retry-After`.
    #[serde(default = "yes")]
    pub(super) standard_headers: bool,
    /// The name of a header by which a refusal tells which limits refused; none when left out.
    #[serde(default)]
    pub(super) rejected_by_header: Option<String>,
    /// Counts, and refuses nothing: `dry_run` for all limits.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// Statuses whose requests do not count in the end: numbers, or classes such as `5xx`.
    /// Concurrency is not concerned.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub(super) refund_on: Vec<Statuses>,
    /// A response header with what a request has cost; it replaces `cost` when the response is there.
    #[serde(default)]
    pub(super) cost_header: Option<String>,
    /// Where limits are counted that gateways share: see `mode`. When left out, by the gateways themselves, if
    /// they count for each other.
    #[serde(default)]
    pub(super) store: Option<Store>,
    /// About how many gateways share the limits. A gateway that has to count alone lets pass this part of them.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 1024))]
    pub(super) gateways: u64,
}

/// A limit.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct One {
    /// How the limit is called in headers and in the log. In a scope other than `route`, limits of
    /// the same name count together, wherever they are configured.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$"))]
    pub(super) name: String,
    /// How it counts.
    #[serde(default)]
    pub(super) algorithm: Algorithm,
    /// How much passes in a window, or at once: a number, or a text in which `$variables` give one.
    #[schemars(schema_with = "amount::positive")]
    pub(super) count: amount::Conf,
    /// The length of a window; at least a millisecond. Not for `concurrency`. Unit: seconds,
    /// fractions allowed.
    #[serde(default = "second")]
    #[schemars(range(min = 0.001))]
    pub(super) time_window: f64,
    /// For `token_bucket`, how much may come at once: `count` when left out. For `leaky_bucket`, how
    /// many may wait: none when left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) burst: Option<u64>,
    /// Starts fixed windows on multiples of their length by the clock, such as the full minute.
    #[serde(default)]
    pub(super) aligned: bool,
    /// Counts what is partly over in full: never above the limit, and up to a part below it.
    #[serde(default)]
    pub(super) strict: bool,
    /// How many parts a window of `buckets` has.
    #[serde(default = "ten")]
    #[schemars(range(min = 2, max = 10))]
    pub(super) parts: u8,
    /// Whose requests count together: a text with `$variables` in it. An empty one stands for
    /// everybody.
    #[serde(default = "address")]
    pub(super) key: String,
    /// What is done when none of the key's variables has a value.
    #[serde(default)]
    pub(super) on_missing: OnMissing,
    /// How many bits of an IPv6 address count when the key is `$remote_addr`: a client has whole
    /// networks of them.
    #[serde(default = "network")]
    #[schemars(range(min = 1, max = 128))]
    pub(super) ipv6_prefix: u8,
    /// Within what requests count together.
    #[serde(default)]
    pub(super) scope: Scope,
    /// What a request costs: a number, or a text in which `$variables` give one. With 0
    /// nothing is charged until `cost_header` tells; such a request passes unless the limit is used up.
    /// Not for `concurrency`.
    #[serde(default = "one")]
    #[schemars(schema_with = "amount::natural")]
    pub(super) cost: amount::Conf,
    /// Counts for itself and refuses nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// Where it counts, and how. `auto` when there is a `store`, else `local`.
    #[serde(default)]
    pub(super) mode: Option<Mode>,
    /// What is done while the store cannot be asked.
    #[serde(default)]
    pub(super) on_store_error: OnStoreError,
}

/// How a limit counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Algorithm {
    // Evenly, with a burst at once.
    #[default]
    TokenBucket,
    // Evenly; the burst waits.
    LeakyBucket,
    // Windows one after the other.
    FixedWindow,
    // The running window and a part of the one before.
    SlidingWindow,
    // A window in several parts.
    Buckets,
    // Every request is remembered.
    Log,
    // Requests under way.
    Concurrency,
}

/// What is done when a key has no value.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnMissing {
    // The client's address is the key.
    #[default]
    Ip,
    // The limit does not apply.
    Skip,
    // The request is refused.
    Deny,
}

/// Within what requests count together.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scope {
    // Each route for itself.
    #[default]
    Route,
    // The routes of a service together; a route without one for itself.
    Service,
    // Each consumer for itself, on all routes; requests without one together.
    Consumer,
    // Everything together.
    Global,
}

/// Where a limit counts, and how.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    // In this gateway's memory, for this gateway.
    Local,
    // In the store, which is asked for every request.
    Exact,
    // In the store, of which each gateway takes permits ahead and spends them without asking.
    Lease,
    // In the store, as is best for the limit.
    Auto,
}

/// What is done while the store cannot be asked.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnStoreError {
    // This gateway counts alone, for its part of the limit.
    #[default]
    Local,
    // Requests pass.
    Allow,
    // Requests are refused.
    Deny,
}

/// A status or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statuses {
    first: u16,
    last: u16,
}

impl Statuses {
    pub(super) fn has(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Statuses, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            One(u16),
            Class(String),
        }
        match Raw::deserialize(from)? {
            Raw::One(status) => Ok(Statuses {
                first: status,
                last: status,
            }),
            Raw::Class(class) => {
                let digit = class.strip_suffix("xx").and_then(|d| d.parse::<u16>().ok());
                let digit =
                    digit.ok_or_else(|| de::Error::custom("expected a class such as 5xx"))?;
                Ok(Statuses {
                    first: digit * 100,
                    last: digit * 100 + 99,
                })
            }
        }
    }
}

impl JsonSchema for Statuses {
    fn schema_name() -> Cow<'static, str> {
        "Statuses".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"oneOf": [
            {"type": "integer", "minimum": 100, "maximum": 599},
            {"type": "string", "pattern": "^[1-5]xx$"},
        ]})
    }
}

impl One {
    /// What a store cannot count: a limit that is not enforced where it was meant to be is worse than none.
    fn check_shared(&self, out: &mut Problems) {
        let here = "counts in this gateway's memory only: set `mode: local`";
        if self.algorithm == Algorithm::Buckets {
            out.add("algorithm", format!("`buckets` {here}"));
        }
        if self.aligned {
            out.add("aligned", format!("an aligned window {here}"));
        }
        if self.strict && self.algorithm == Algorithm::SlidingWindow {
            out.add("strict", format!("a strict window {here}"));
        }
        let sees_each = matches!(
            self.algorithm,
            Algorithm::Log | Algorithm::LeakyBucket | Algorithm::Concurrency
        );
        if self.mode == Some(Mode::Lease) && sees_each {
            out.add(
                "mode",
                "this algorithm has to see each request: nothing can be taken ahead",
            );
        }
        let fixed = matches!(self.count, amount::Conf::Number(_));
        if self.mode == Some(Mode::Lease) && !fixed {
            out.add(
                "count",
                "permits are taken ahead of a number, not of a text",
            );
        }
    }
}

impl Conf {
    pub(super) fn check(&self, out: &mut Problems) {
        for (at, one) in self.limits.iter().enumerate() {
            let mut out = out.at("limits");
            let mut out = out.at_index(at);
            if self.limits[..at].iter().any(|other| other.name == one.name) {
                out.add("name", format!("two limits are called `{}`", one.name));
            }
            let bucket = matches!(
                one.algorithm,
                Algorithm::TokenBucket | Algorithm::LeakyBucket
            );
            if one.burst.is_some() && !bucket {
                out.add("burst", "only buckets have a burst");
            }
            if one.aligned && one.algorithm != Algorithm::FixedWindow {
                out.add("aligned", "only fixed windows can be aligned");
            }
            let strict = matches!(one.algorithm, Algorithm::SlidingWindow | Algorithm::Buckets);
            if one.strict && !strict {
                out.add("strict", "only for `sliding_window` and `buckets`");
            }
            if self.mode(one) != Mode::Local {
                one.check_shared(&mut out);
            }
        }
        if let Some(store) = &self.store {
            store.check(&Policy::SHARED, &mut out.at("store"));
        }
    }

    /// The mode of a limit.
    pub(super) fn mode(&self, one: &One) -> Mode {
        one.mode.unwrap_or(match self.store {
            Some(_) => Mode::Auto,
            None => Mode::Local,
        })
    }
}

fn too_many() -> u16 {
    429
}

fn yes() -> bool {
    true
}

fn second() -> f64 {
    1.0
}

fn ten() -> u8 {
    10
}

fn two() -> u64 {
    2
}

fn network() -> u8 {
    64
}

fn address() -> String {
    "$remote_addr".to_owned()
}

fn one() -> amount::Conf {
    amount::Conf::Number(1)
}
