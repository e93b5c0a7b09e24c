//! The numbers by which permits of one limit are taken ahead.

use std::time::Duration;

use crate::Nanos;
use crate::charge::Law;

/// How much of a window is a tick: how often it is looked whether permits lie idle, and how long a gateway
/// that got none waits for what others may give back.
const TICKS: u32 = 32;
/// Nothing happens more often: a request to the store takes a part of it.
const SHORTEST: Duration = Duration::from_millis(20);
/// An idle gateway does not keep what others lack for longer than some of these.
const LONGEST: Duration = Duration::from_secs(2);
/// Permits without a window are good for so many ticks: longer than it takes to give back what is idle.
const GOOD: u32 = 16;
/// What sliding windows may be exceeded by, unless told otherwise: a hundredth.
pub const SLACK: f64 = 0.01;
/// And buckets: a tenth of what they hold, which comes on top once, however long it is looked at.
pub const SLACK_BUCKET: f64 = 0.1;

/// How permits of one limit are taken ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    pub(crate) law: Law,
    pub(crate) nodes: u64,
    pub(crate) tick: Nanos,
    pub(crate) most: Option<u64>,
    pub(crate) keeps: Duration,
    pub(crate) over: u64,
    pub(crate) limit: u64,
}

impl Terms {
    /// For a limit that about so many gateways share. `slack` is the part of the limit by which it may be
    /// exceeded: 0 for a fixed window, which then never is; [`SLACK`] or [`SLACK_BUCKET`] for the others,
    /// which need some.
    ///
    /// `None` if permits of such a limit cannot be taken ahead: a log has to see each request.
    pub fn new(law: Law, nodes: u64, slack: f64) -> Option<Terms> {
        let nodes = nodes.max(1);
        let (limit, span) = match law {
            Law::Fixed { limit, window } | Law::Sliding { limit, window } => (limit, window),
            Law::Bucket { interval_us, holds } => {
                let fills = Duration::try_from_secs_f64(interval_us * holds / 1e6).ok()?;
                (holds.floor() as u64, fills)
            }
            Law::Log { .. } => return None,
        };
        let slack = if slack > 0.0 { slack.min(1.0) } else { 0.0 };
        let spare = (limit as f64 * slack).floor() as u64;
        let windows = matches!(law, Law::Fixed { .. });
        let tick = match windows {
            true => span / TICKS,
            // As long as it takes until what may be held has come anew.
            false => span.mul_f64(slack),
        };
        let tick = tick.clamp(SHORTEST, LONGEST);
        Some(Terms {
            law,
            nodes,
            tick: nanos(tick),
            most: (!windows).then_some(spare.max(1)),
            keeps: if windows { Duration::ZERO } else { tick * GOOD },
            over: if windows { spare / nodes } else { 0 },
            limit,
        })
    }

    /// The limit.
    pub fn law(&self) -> Law {
        self.law
    }

    /// A gateway's first ask: a quarter of its part.
    pub(crate) fn first(&self, nodes: u64) -> u64 {
        (self.limit / nodes.max(self.nodes).saturating_mul(4)).max(1)
    }
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_what_may_be_held_follow_the_law() {
        let second = Duration::from_secs(1);
        let terms = |law, slack| Terms::new(law, 8, slack).unwrap();
        let window = second * 60;
        let fixed = terms(
            Law::Fixed {
                limit: 10_000,
                window,
            },
            0.0,
        );
        assert_eq!((fixed.tick, fixed.most), (1_875_000_000, None));
        assert_eq!((fixed.over, fixed.first(1)), (0, 312));
        let over = terms(
            Law::Fixed {
                limit: 10_000,
                window,
            },
            SLACK,
        );
        assert_eq!(over.over, 12);
        let sliding = terms(
            Law::Sliding {
                limit: 100_000,
                window,
            },
            SLACK,
        );
        assert_eq!((sliding.tick, sliding.most), (600_000_000, Some(1_000)));
        assert_eq!(sliding.keeps, Duration::from_millis(9_600));
        let bucket = Law::Bucket {
            interval_us: 1_000.0,
            holds: 6_000.0,
        };
        let bucket = terms(bucket, SLACK);
        assert_eq!((bucket.tick, bucket.most), (60_000_000, Some(60)));
        let log = Law::Log { limit: 5, window };
        assert_eq!(Terms::new(log, 8, SLACK), None);
        for slack in [f64::NAN, -1.0] {
            let law = Law::Fixed { limit: 9, window };
            assert_eq!(Terms::new(law, 0, slack).unwrap().over, 0);
        }
    }
}
