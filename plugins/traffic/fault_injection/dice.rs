//! Random numbers good enough for shares of traffic, without a lock.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter whose every value is scrambled (SplitMix64).
pub(super) struct Dice(AtomicU64);

impl Dice {
    /// Always the same throws for the same seed.
    pub(super) fn seeded(seed: u64) -> Dice {
        Dice(AtomicU64::new(seed))
    }

    /// The standard library's hash keys are the cheapest source of a random start.
    pub(super) fn random() -> Dice {
        Dice::seeded(RandomState::new().build_hasher().finish())
    }

    /// True in `percentage` of a hundred cases. Certain answers do not touch the shared counter.
    pub(super) fn percent(&self, percentage: u8) -> bool {
        match percentage {
            0 => false,
            1..=99 => self.throw() % 100 < u64::from(percentage),
            _ => true,
        }
    }

    fn throw(&self) -> u64 {
        let mut x = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_about_right() {
        for percentage in [0, 1, 30, 50, 99, 100] {
            let dice = Dice::seeded(7);
            let hits = (0..10_000).filter(|_| dice.percent(percentage)).count();
            // Four standard deviations at most; the seed is fixed, so this holds or it does not.
            assert!(
                hits.abs_diff(usize::from(percentage) * 100) <= 200,
                "{percentage}: {hits}"
            );
            let certain = percentage == 0 || percentage == 100;
            assert!(!certain || hits == usize::from(percentage) * 100);
        }
    }

    #[test]
    fn two_instances_do_not_throw_alike() {
        let throws = |dice: &Dice| (0..64).map(|_| dice.percent(50)).collect::<Vec<bool>>();
        assert_eq!(throws(&Dice::seeded(1)), throws(&Dice::seeded(1)));
        assert_ne!(throws(&Dice::seeded(1)), throws(&Dice::seeded(2)));
    }
}
