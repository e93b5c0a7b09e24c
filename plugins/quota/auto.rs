//! Which way of counting suits a limit: one formula, for `mode: auto` and for whoever wants to know why.
//!
//! | when | then |
//! |---|---|
//! | nothing is shared, or this gateway is alone | [`Mode::Local`] |
//! | fixed window of at least 10 s, at least 128 permits in it for each gateway | [`Mode::Lease`] |
//! | sliding window of at least 10 s, and a limit of at least 100 gateways / slack | [`Mode::Lease`] |
//! | bucket that holds what comes in 2 s, at least 128 for each gateway | [`Mode::Lease`] |
//! | gateways count for each other | [`Mode::Exact`] |
//! | Redis, and the limit lets at most a quarter pass of what it can answer | [`Mode::Exact`] |
//! | else | [`Mode::Share`] |

use std::fmt;
use std::time::Duration;

use crate::charge::Law;
use crate::hold::{SLACK, SLACK_BUCKET};
use crate::store::Keeper;

/// Below it a lease saves little: its permits are spent before an answer is there.
const LEAST_PERMITS: u64 = 128;
/// The same, of windows.
const LEAST_WINDOW: Duration = Duration::from_secs(10);
/// A bucket below this many seconds of its rate is empty while permits are on their way.
const LEAST_FILL: Duration = Duration::from_secs(2);
/// Asks that a lease of a sliding window has to save, at least: each gateway asks twice for its part of
/// what may be held.
const LEAST_SAVED: f64 = 100.0;
/// Gateways, where nobody knows how many there are.
const UNKNOWN_NODES: u64 = 8;
/// Requests in a second that a Redis answers on one core, with one limit each: measured with 8.8 us each.
const CAPACITY: f64 = 100_000.0;

/// How a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In this gateway's memory.
    Local,
    /// The store is asked for each request.
    Exact,
    /// Permits are taken ahead.
    Lease,
    /// In this gateway's memory, a part of the limit.
    Share,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// The limit.
    pub law: Law,
    /// Gateways that share it; `None` if nobody knows.
    pub nodes: Option<u64>,
    /// Who counts; `None` if nobody does.
    pub keeper: Option<Keeper>,
    /// By how much a sliding window or a bucket may be exceeded, as a part of it; `None` for what is usual.
    pub slack: Option<f64>,
    /// Requests in a second to be expected for this limit, all keys together; `None`: its own rate.
    pub expected: Option<f64>,
    /// Requests in a second that the store can answer; `None`: as a Redis on one core was measured.
    pub capacity: Option<f64>,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The mode.
    pub mode: Mode,
    /// Where it counts, if not only here.
    pub keeper: Option<Keeper>,
    /// How many pass at most, as a sentence.
    pub bound: String,
    /// Why, as a sentence.
    pub reason: String,
    /// It is worth a warning: the limit is not what its author may think.
    pub warn: bool,
}

impl Situation {
    /// The formula.
    pub fn choose(&self) -> Choice {
        let Some(keeper) = self.keeper else {
            return self.made(Mode::Local, "no store is shared");
        };
        if self.nodes == Some(1) {
            return self.made(Mode::Local, "this gateway is the only one");
        }
        let too_few = match self.lease() {
            Ok(reason) => return self.made(Mode::Lease, reason),
            Err(reason) => reason,
        };
        if keeper == Keeper::Owner {
            let reason = format!("{too_few}; the gateway that owns a key is asked");
            return self.made(Mode::Exact, reason);
        }
        let expected = self.expected.unwrap_or_else(|| rate(self.law));
        let capacity = self.capacity.unwrap_or(CAPACITY);
        if expected <= capacity / 4.0 {
            let reason = format!(
                "{too_few}; {expected:.0} requests/s are at most a quarter of what Redis answers ({capacity:.0}/s)"
            );
            return self.made(Mode::Exact, reason);
        }
        let reason = format!(
            "{too_few}; {expected:.0} requests/s are more than a quarter of what Redis answers ({capacity:.0}/s)"
        );
        let mut choice = self.made(Mode::Share, reason);
        choice.warn = true;
        choice
    }

    /// What a mode comes to that was chosen by hand.
    pub fn pinned(&self, mode: Mode) -> Choice {
        let reason = match (mode, self.keeper) {
            (Mode::Exact | Mode::Lease, None) => "configured, but no store is shared",
            _ => "configured",
        };
        self.made(mode, reason)
    }

    /// Whether permits can be taken ahead, and why (not).
    fn lease(&self) -> Result<String, String> {
        let nodes = self.gateways();
        let (each, slack) = (limit(self.law) / nodes, self.slack());
        let long = |window: Duration| match window >= LEAST_WINDOW {
            true => Ok(()),
            false => Err(format!("a window of {} is short", Span(window))),
        };
        let enough = || match each >= LEAST_PERMITS {
            true => Ok(format!("{each} permits for each of {nodes} gateways")),
            false => Err(format!(
                "{each} permits for each of {nodes} gateways are fewer than {LEAST_PERMITS}"
            )),
        };
        match self.law {
            Law::Fixed { window, .. } => long(window).and_then(|()| enough()),
            Law::Sliding { limit, window } => {
                long(window)?;
                let least = LEAST_SAVED * nodes as f64 / slack;
                if limit as f64 >= least {
                    return Ok(format!(
                        "{limit} permits in a sliding window are at least {least:.0}"
                    ));
                }
                Err(format!(
                    "{limit} permits in a sliding window are fewer than {least:.0}"
                ))
            }
            Law::Bucket { interval_us, holds } => {
                let fills = seconds(interval_us * holds / 1e6);
                if fills < LEAST_FILL {
                    return Err(format!("a bucket that fills in {} is small", Span(fills)));
                }
                enough()
            }
            Law::Log { .. } => Err("a log has to see each request".to_owned()),
        }
    }

    fn made(&self, mode: Mode, reason: impl Into<String>) -> Choice {
        let shared = matches!(mode, Mode::Exact | Mode::Lease);
        Choice {
            mode,
            keeper: self.keeper.filter(|_| shared),
            bound: self.bound(mode),
            reason: reason.into(),
            warn: false,
        }
    }

    /// How many pass at most.
    pub fn bound(&self, mode: Mode) -> String {
        let law = self.law;
        let nodes = self.gateways();
        match (mode, law) {
            (Mode::Lease, Law::Sliding { limit, window }) => {
                let held = held(limit, self.slack());
                format!("{} in any {}", limit + held, Span(window))
            }
            (Mode::Lease, Law::Bucket { interval_us, holds }) => {
                let held = held(holds as u64, self.slack());
                let rate = 1e6 / interval_us;
                format!(
                    "{} at once and {rate} more each second",
                    holds as u64 + held
                )
            }
            (Mode::Share, _) => {
                format!("{law} for all {nodes} gateways together; less if load is uneven")
            }
            (Mode::Local, _) if self.nodes != Some(1) => format!("{law} for each gateway"),
            _ => law.to_string(),
        }
    }

    fn slack(&self) -> f64 {
        let usual = match self.law {
            Law::Bucket { .. } => SLACK_BUCKET,
            _ => SLACK,
        };
        self.slack.filter(|slack| *slack > 0.0).unwrap_or(usual)
    }

    fn gateways(&self) -> u64 {
        self.nodes.unwrap_or(UNKNOWN_NODES).max(1)
    }
}

/// What may be held, as [`Terms`](crate::Terms) has it.
fn held(limit: u64, slack: f64) -> u64 {
    ((limit as f64 * slack.min(1.0)).floor() as u64).max(1)
}

fn limit(law: Law) -> u64 {
    match law {
        Law::Fixed { limit, .. } | Law::Sliding { limit, .. } | Law::Log { limit, .. } => limit,
        Law::Bucket { holds, .. } => holds as u64,
    }
}

/// Requests in a second.
fn rate(law: Law) -> f64 {
    match law {
        Law::Fixed { limit, window }
        | Law::Sliding { limit, window }
        | Law::Log { limit, window } => limit as f64 / window.as_secs_f64().max(1e-3),
        Law::Bucket { interval_us, .. } => 1e6 / interval_us,
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// A time as people write it.
pub(crate) struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            whole if whole.subsec_nanos() == 0 => write!(f, "{} s", whole.as_secs()),
            part if part < Duration::from_secs(1) => write!(f, "{} ms", part.as_millis()),
            other => write!(f, "{:.3} s", other.as_secs_f64()),
        }
    }
}

impl Mode {
    /// As it is configured.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Local => "local",
            Mode::Exact => "exact",
            Mode::Lease => "lease",
            Mode::Share => "share",
        }
    }
}

#[cfg(test)]
mod tests;
