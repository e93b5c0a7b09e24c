//! What a gateway does on its own while nobody answers.
//!
//! Each gateway lets its part pass: the limit divided by how many gateways there are, so that all of them
//! together let no more pass than the limit. What was left when the store was heard of last is what
//! is divided, so that an outage is no fresh start.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use rustc_hash::FxHashMap;

use crate::Nanos;
use crate::charge::Law;
use crate::count::Count;
use crate::key::Name;
use crate::store::Outcome;

/// What is done when the store does not answer: `on_store_error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnStoreError {
    /// This gateway's part of the limit is counted here: see [`Shares`].
    #[default]
    Local,
    /// The request passes.
    Allow,
    /// It is refused as by the limit.
    Deny,
    /// It is answered with an error: the gateway's fault, not the client's.
    Error,
}

impl OnStoreError {
    /// All of them, by the names that they are configured with.
    pub const NAMES: [(&'static str, OnStoreError); 4] = [
        ("local", OnStoreError::Local),
        ("allow", OnStoreError::Allow),
        ("deny", OnStoreError::Deny),
        ("error", OnStoreError::Error),
    ];
}

/// A gateway's part of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Gateways alive.
    pub nodes: u64,
    /// What each of them may do beyond its part, where load is known to be uneven; 1 if not.
    pub factor: f64,
    /// What was left for all of them when the store was heard of last, if it ever was in this window.
    pub left: Option<u64>,
}

impl Share {
    /// The part, rounded up: at least one passes.
    pub fn of(&self, law: Law) -> Law {
        let part = |limit: u64| {
            let part = (limit as f64 * self.part()).ceil() as u64;
            part.clamp(1, limit.max(1))
        };
        match law {
            Law::Fixed { limit, window } => Law::Fixed {
                limit: part(limit),
                window,
            },
            Law::Sliding { limit, window } => Law::Sliding {
                limit: part(limit),
                window,
            },
            Law::Log { limit, window } => Law::Log {
                limit: part(limit),
                window,
            },
            Law::Bucket { interval_us, holds } => Law::Bucket {
                interval_us: interval_us / self.part(),
                holds: (holds * self.part()).ceil().clamp(1.0, holds.max(1.0)),
            },
        }
    }

    /// How much of the part counts as used when the store was lost.
    fn used(&self, law: Law) -> u64 {
        let Some(left) = self.left else { return 0 };
        let left = (left as f64 * self.part()).ceil() as u64;
        whole(self.of(law)).saturating_sub(left)
    }

    fn part(&self) -> f64 {
        let factor = match self.factor > 0.0 {
            true => self.factor,
            false => 1.0,
        };
        (factor / self.nodes.max(1) as f64).min(1.0)
    }
}

/// Counts of this gateway alone. The number of keys is bounded: of more, some are forgotten whose
/// counts end soon.
#[derive(Debug)]
pub struct Shares {
    shards: Box<[Mutex<FxHashMap<u64, Kept>>]>,
    hash: RandomState,
    most: usize,
}

#[derive(Debug)]
struct Kept {
    law: Law,
    count: Count,
    /// What was left for all when the store was lost last.
    left: Option<u64>,
}

/// Locks, so that workers seldom meet.
const SHARDS: usize = 64;
/// Keys that are looked at to find one to forget: a flood of keys is to cost no more than this each.
const SAMPLE: usize = 8;

impl Shares {
    /// For at most about so many keys.
    pub fn new(keys: usize) -> Shares {
        Shares {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hash: RandomState::new(),
            most: keys.div_ceil(SHARDS).max(1),
        }
    }

    /// Counts a request against this gateway's part. `law` is the limit of all gateways together.
    pub fn take(&self, name: &Name<'_>, law: Law, share: &Share, ask: (u64, Nanos)) -> Outcome {
        let (cost, now) = (ask.0, ask.1 / 1_000);
        let part = share.of(law);
        let key = self.hash.hash_one(name);
        let mut shard = self.shard(key);
        if !shard.contains_key(&key) {
            self.make_room(&mut shard);
            let kept = Kept {
                law: part,
                count: Count::Nothing,
                left: None,
            };
            shard.insert(key, kept);
        }
        let Some(kept) = shard.get_mut(&key) else {
            return part_of_nothing(part, cost, now);
        };
        kept.law = part;
        if share.left.is_some() && kept.left != share.left {
            // The store was heard of since. What it has counted is used, whoever used it.
            kept.left = share.left;
            let free = kept.count.look(part, 0, now).remaining;
            let spent = whole(part).saturating_sub(free);
            let more = share.used(law).saturating_sub(spent);
            let more = i64::try_from(more).unwrap_or(i64::MAX);
            kept.count.settle(part, more, 0, now);
        }
        kept.count.take(part, cost, now).outcome(part, cost)
    }

    /// How many keys are counted.
    pub fn len(&self) -> usize {
        (0..SHARDS as u64).map(|n| self.shard(n).len()).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the key whose count ends first, of some: what is forgotten is a fresh start for its client.
    fn make_room(&self, shard: &mut FxHashMap<u64, Kept>) {
        while shard.len() >= self.most {
            let some = shard.iter().take(SAMPLE);
            let soonest = some
                .min_by_key(|(_, kept)| kept.count.ends(kept.law))
                .map(|(key, _)| *key);
            let Some(soonest) = soonest else { return };
            shard.remove(&soonest);
        }
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, FxHashMap<u64, Kept>> {
        let at = key as usize % SHARDS;
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What passes at once.
fn whole(law: Law) -> u64 {
    match law {
        Law::Fixed { limit, .. } | Law::Sliding { limit, .. } | Law::Log { limit, .. } => limit,
        Law::Bucket { holds, .. } => holds as u64,
    }
}

fn part_of_nothing(law: Law, cost: u64, now: u64) -> Outcome {
    Count::Nothing.look(law, cost, now).outcome(law, cost)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn name(text: &str) -> Name<'_> {
        Name {
            scope: "s",
            rule: "r",
            text,
        }
    }

    fn share(nodes: u64, left: Option<u64>) -> Share {
        Share {
            nodes,
            factor: 1.0,
            left,
        }
    }

    fn laws(limit: u64) -> [Law; 4] {
        let window = Duration::from_secs(60);
        [
            Law::Fixed { limit, window },
            Law::Sliding { limit, window },
            Law::Log { limit, window },
            Law::Bucket {
                interval_us: 60e6 / limit as f64,
                holds: limit as f64,
            },
        ]
    }

    /// How many of many requests at one moment pass.
    fn passed(shares: &Shares, law: Law, share: Share, now: Nanos) -> u64 {
        let one = || shares.take(&name("a"), law, &share, (1, now)).allowed;
        (0..1_000).map(|_| u64::from(one())).sum()
    }

    #[test]
    fn all_parts_together_are_the_limit_and_an_outage_is_no_fresh_start() {
        let check = |nodes, left, each| {
            for law in laws(120) {
                let shares = Shares::new(64);
                let now = 1_000 * SECOND;
                assert_eq!(
                    passed(&shares, law, share(nodes, left), now),
                    each,
                    "{law:?}"
                );
                // What was left is said once; then this gateway's own count goes on.
                assert_eq!(passed(&shares, law, share(nodes, left), now), 0, "{law:?}");
            }
        };
        check(1, None, 120);
        check(3, None, 40);
        check(7, None, 18);
        check(500, None, 1);
        check(3, Some(60), 20);
        check(3, Some(1), 1);
        check(3, Some(0), 0);
        check(3, Some(u64::MAX), 40);
    }

    #[test]
    fn the_second_outage_in_a_window_is_no_fresh_start_either() {
        let check = |first, taken, second, each| {
            for law in laws(120) {
                let shares = Shares::new(64);
                let now = 1_000 * SECOND;
                let one = |left| {
                    shares
                        .take(&name("a"), law, &share(3, left), (1, now))
                        .allowed
                };
                for _ in 0..taken {
                    assert!(one(first), "{law:?}");
                }
                // The store was back, and others used more of it.
                let passed = (0..200).filter(|_| one(second)).count();
                assert_eq!(passed, each, "{law:?}: {first:?}, {taken}, {second:?}");
            }
        };
        check(Some(120), 1, Some(30), 10);
        check(None, 1, Some(0), 0);
        // What was let pass alone counts, too, if it is more than the store knows of.
        check(Some(60), 20, Some(60), 0);
        check(Some(60), 15, Some(57), 5);
        // What is said once more is nothing new; what is not said is not known.
        check(Some(60), 5, Some(60), 15);
        check(Some(60), 5, None, 15);
    }

    #[test]
    fn an_odd_law_is_no_reason_to_panic() {
        let window = Duration::from_secs(60);
        let nothing = Law::Fixed { limit: 0, window };
        let part = share(3, Some(7)).of(nothing);
        assert_eq!(part, Law::Fixed { limit: 1, window });
    }

    #[test]
    fn a_factor_is_for_uneven_load_and_never_more_than_the_limit() {
        let check = |factor, each| {
            let share = Share {
                factor,
                ..share(4, None)
            };
            let law = laws(100)[0];
            assert_eq!(
                passed(&Shares::new(64), law, share, SECOND),
                each,
                "{factor}"
            );
        };
        check(1.0, 25);
        check(1.5, 38);
        check(99.0, 100);
        check(0.0, 25);
        check(f64::NAN, 25);
    }

    #[test]
    fn a_part_comes_again_with_the_next_window() {
        for law in laws(120) {
            let shares = Shares::new(64);
            let mut now = 600 * SECOND;
            assert_eq!(passed(&shares, law, share(4, Some(0)), now), 0, "{law:?}");
            now += 121 * SECOND;
            assert_eq!(passed(&shares, law, share(4, Some(0)), now), 30, "{law:?}");
        }
    }

    #[test]
    fn keys_are_bounded() {
        let shares = Shares::new(1_000);
        for n in 0..20_000 {
            let text = n.to_string();
            let law = laws(120)[n % 4];
            shares.take(&name(&text), law, &share(3, None), (1, SECOND));
        }
        assert!(shares.len() <= 1_024, "{}", shares.len());
        assert!(!shares.is_empty());
    }
}
