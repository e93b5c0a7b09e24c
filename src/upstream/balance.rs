//! Weighted turns without a lock.
//!
//! [`Wheel`] answers "which node has turn number N". Turns are dealt along a
//! circle of `total weight` places with a stride that shares no divisor with
//! the total: each full round gives every node exactly its weight, and the
//! golden-ratio stride spreads a heavy node's turns over the round instead of
//! bunching them.
//!
//! ```
//! # use lockgate::upstream::Wheel;
//! let wheel = Wheel::new(&[3, 1]);
//! let turns: Vec<_> = (0..4).map(|turn| wheel.at(turn)).collect();
//! assert_eq!(turns.iter().filter(|t| **t == Some(0)).count(), 3);
//! ```

/// Which of several weighted entries has a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wheel {
    /// `ends[i]` is the first place behind entry `i`.
    ends: Box<[u64]>,
    stride: u64,
}

impl Wheel {
    /// A wheel over these weights. Entries of weight 0 get no turn, unless all are 0: then all
    /// weigh the same, as in APISIX.
    pub fn new(weights: &[u32]) -> Wheel {
        let divisor = weights.iter().fold(0u64, |a, &w| gcd(a, u64::from(w)));
        let mut place = 0u64;
        let ends: Box<[u64]> = weights
            .iter()
            .map(|&w| {
                place += u64::from(w).checked_div(divisor).unwrap_or(1);
                place
            })
            .collect();
        Wheel {
            stride: stride(place),
            ends,
        }
    }

    /// The entry whose turn it is; `None` for a wheel without entries.
    pub fn at(&self, turn: u64) -> Option<usize> {
        let total = *self.ends.last()?;
        // The product stays below 2^64: weights are 32 bits wide, nodes far fewer than 2^32.
        let place =
            u64::try_from(u128::from(turn) * u128::from(self.stride) % u128::from(total)).ok()?;
        Some(self.ends.partition_point(|&end| end <= place))
    }

    /// Turns in a full round, after which the sequence repeats.
    pub fn round(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The number nearest above `total / φ` that shares no divisor with it.
fn stride(total: u64) -> u64 {
    if total < 3 {
        return 1;
    }
    // 0.618… in parts of 2^16: close enough for an even spread, and exact in integers.
    const PHI: u128 = 40_503;
    let start = u64::try_from((u128::from(total) * PHI) >> 16)
        .unwrap_or(1)
        .max(1);
    (start..total).find(|&s| gcd(s, total) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(weights: &[u32], expected: &[u64]) {
        let wheel = Wheel::new(weights);
        let mut got = vec![0u64; weights.len()];
        // Two rounds from an odd start: the counts hold for every window of a round.
        for turn in 7..7 + 2 * wheel.round() {
            got[wheel.at(turn).unwrap()] += 1;
        }
        let expected: Vec<u64> = expected.iter().map(|n| n * 2).collect();
        assert_eq!(got, expected, "weights {weights:?}");
    }

    #[test]
    fn every_round_gives_exactly_the_weights() {
        check(&[1], &[1]);
        check(&[1, 1], &[1, 1]);
        check(&[3, 1], &[3, 1]);
        check(&[100, 100], &[1, 1]);
        check(&[5, 1, 1], &[5, 1, 1]);
        check(&[0, 4], &[0, 1]);
        check(&[0, 0], &[1, 1]);
        check(&[7, 13, 29, 1], &[7, 13, 29, 1]);
        check(&[997, 1009], &[997, 1009]);
    }

    #[test]
    fn nothing_comes_from_an_empty_wheel() {
        assert_eq!(Wheel::new(&[]).at(3), None);
    }

    #[test]
    fn a_heavy_node_does_not_get_its_turns_in_a_bunch() {
        let wheel = Wheel::new(&[5, 5]);
        let turns: Vec<_> = (0..10).map(|t| wheel.at(t).unwrap()).collect();
        assert!(
            turns.windows(4).all(|w| w.iter().any(|t| *t != w[0])),
            "{turns:?}"
        );
    }

    #[test]
    fn equal_weights_alternate() {
        let wheel = Wheel::new(&[1, 1]);
        let turns: Vec<_> = (0..4).map(|t| wheel.at(t).unwrap()).collect();
        assert_eq!(turns, [0, 1, 0, 1]);
    }
}
