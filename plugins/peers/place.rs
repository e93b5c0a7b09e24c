//! Which gateway counts a key: partitions, and who owns each of them.
//!
//! A key's place is the same on every gateway and in every version: its hash is SHA-256 of the text, cut
//! to 128 bits. A quick hash would do for spreading keys; this one also keeps a client from making a key
//! that is taken for another's. The first twelve bits are its partition.
//!
//! For each partition every node draws a number from its own name and the partition's; the best one owns
//! it and the second best comes next (rendezvous hashing). A node that joins takes partitions from all, one
//! that leaves gives its own to all, and nothing else moves.

use std::fmt;

/// Partitions: enough for 64 nodes to get shares that differ by few percent.
pub const PARTITIONS: usize = 4096;
/// Nodes that may own partitions: their number fits a byte, and every pair of them has two connections.
pub const MOST_NODES: usize = 64;
/// Fractional bits of the logarithms that weigh.
const LOG_BITS: u32 = 32;
/// No node.
const NOBODY: u8 = u8::MAX;

/// A key as peers tell it to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u128);

impl KeyId {
    /// Of a key's text.
    pub fn of(text: &str) -> KeyId {
        let digest = openssl::sha::sha256(text.as_bytes());
        let (head, _) = digest.split_at(16);
        let bytes: [u8; 16] = head.try_into().unwrap_or_default();
        KeyId(u128::from_be_bytes(bytes))
    }

    /// Its partition.
    pub fn partition(self) -> usize {
        // Twelve bits are a number below 4,096 on every machine.
        (self.0 >> (u128::BITS - PARTITIONS.trailing_zeros())) as usize
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Who owns what.
#[derive(Clone, PartialEq, Eq)]
pub struct Table {
    owner: Box<[u8]>,
    next: Box<[u8]>,
}

impl Table {
    /// The table of nodes with these names and weights; one without weight owns nothing. Nodes beyond
    /// [`MOST_NODES`] do not count.
    pub fn new<'a>(nodes: impl IntoIterator<Item = (&'a str, u32)>) -> Table {
        let nodes: Vec<Drawer> = nodes
            .into_iter()
            .zip(0u8..)
            .take(MOST_NODES)
            .filter(|((_, weight), _)| *weight > 0)
            .map(|((name, weight), number)| Drawer {
                number,
                seed: seed(name),
                weight,
            })
            .collect();
        let alike = nodes
            .windows(2)
            .all(|pair| pair[0].weight == pair[1].weight);
        let mut table = Table::default();
        let entries = table.owner.iter_mut().zip(table.next.iter_mut());
        for ((owner, next), partition) in entries.zip(0u64..) {
            let (mut best, mut second): (Option<Draw>, Option<Draw>) = (None, None);
            for node in &nodes {
                let draw = node.draw(partition, alike);
                if best.is_none_or(|best| draw.beats(&best)) {
                    second = best.replace(draw);
                } else if second.is_none_or(|second| draw.beats(&second)) {
                    second = Some(draw);
                }
            }
            *owner = best.map_or(NOBODY, |draw| draw.number);
            *next = second.map_or(NOBODY, |draw| draw.number);
        }
        table
    }

    /// The number of the node that owns a partition.
    pub fn owner(&self, partition: usize) -> Option<u8> {
        self.owner.get(partition).copied().filter(|n| *n != NOBODY)
    }

    /// The node that would own it without the owner.
    pub fn next(&self, partition: usize) -> Option<u8> {
        self.next.get(partition).copied().filter(|n| *n != NOBODY)
    }

    /// How many partitions a node owns.
    pub fn share(&self, number: u8) -> usize {
        self.owner.iter().filter(|owner| **owner == number).count()
    }
}

impl Default for Table {
    /// Of nobody.
    fn default() -> Table {
        let nobody = || vec![NOBODY; PARTITIONS].into_boxed_slice();
        Table {
            owner: nobody(),
            next: nobody(),
        }
    }
}

struct Drawer {
    number: u8,
    seed: u64,
    weight: u32,
}

#[derive(Clone, Copy)]
struct Draw {
    number: u8,
    /// The smaller, the better; to be divided by the weight.
    cost: u64,
    weight: u32,
    /// Between equals.
    hash: u64,
}

impl Drawer {
    fn draw(&self, partition: u64, alike: bool) -> Draw {
        let hash = mixed(self.seed ^ mixed(partition.wrapping_add(1)));
        Draw {
            number: self.number,
            // With one weight the order of the logarithms is that of the hashes.
            cost: if alike { 0 } else { minus_log2(hash) },
            weight: self.weight,
            hash,
        }
    }
}

impl Draw {
    fn beats(&self, other: &Draw) -> bool {
        // cost / weight, without dividing: whole numbers are the same on every machine.
        let mine = u128::from(self.cost) * u128::from(other.weight);
        let its = u128::from(other.cost) * u128::from(self.weight);
        (mine, other.hash) < (its, self.hash)
    }
}

fn seed(name: &str) -> u64 {
    // The upper half of a digest.
    (KeyId::of(name).0 >> 64) as u64
}

/// The finishing steps of SplitMix64 (Steele, Lea and Flood, 2014): every bit in moves half the bits out.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The logarithm of a number taken as a fraction of 2^64, without its sign, in fixed point. By squaring:
/// floating point would not be the same on all machines.
fn minus_log2(hash: u64) -> u64 {
    let hash = hash.max(1);
    let zeros = hash.leading_zeros();
    // From 1 to below 2, with 63 fractional bits.
    let mut part = hash << zeros;
    let mut log = 0u64;
    for _ in 0..LOG_BITS {
        let square = (u128::from(part) * u128::from(part)) >> 63;
        log <<= 1;
        if square >> 64 == 0 {
            part = square as u64;
        } else {
            part = (square >> 1) as u64;
            log |= 1;
        }
    }
    (u64::from(zeros + 1) << LOG_BITS) - log
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("192.0.2.{n}:7946")).collect()
    }

    fn table(names: &[String]) -> Table {
        Table::new(names.iter().map(|name| (name.as_str(), 1)))
    }

    #[test]
    fn places_never_change() {
        // Gateways of other versions have to find the same: these are pinned.
        let key = KeyId::of("gw:{routes/1}:60:ann");
        assert_eq!(format!("{key:?}"), "14f73ef6fab04b05d932b46140ff167a");
        assert_eq!(key.partition(), 0x14f);
        let table = table(&names(3));
        let first: Vec<_> = (0..12).filter_map(|p| table.owner(p)).collect();
        assert_eq!(first, [0, 1, 1, 2, 2, 1, 1, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn shares_are_fair_and_follow_weights() {
        for count in [2, 3, 8, 64] {
            let table = table(&names(count));
            let fair = PARTITIONS / count;
            for number in 0..count {
                let share = table.share(number as u8);
                // Four standard deviations of a fair draw.
                let off = 4.0 * (fair as f64).sqrt();
                assert!((share as f64 - fair as f64).abs() < off, "{count}: {share}");
            }
        }
        let weighed = Table::new([("a", 1), ("b", 3), ("c", 0)]);
        let (a, b, c) = (weighed.share(0), weighed.share(1), weighed.share(2));
        assert!((900..1150).contains(&a), "{a}");
        assert_eq!((a + b, c), (PARTITIONS, 0));
    }

    #[test]
    fn nobody_owns_nothing() {
        assert_eq!(Table::new([]).owner(7), None);
        let alone = Table::new([("a", 1)]);
        assert_eq!((alone.owner(7), alone.next(7)), (Some(0), None));
        assert_eq!(Table::new([("a", 0)]).owner(7), None);
    }

    #[test]
    fn logarithms_are_those_of_the_library() {
        for hash in [
            1,
            2,
            3,
            1 << 32,
            (1 << 63) - 1,
            1 << 63,
            u64::MAX,
            0x1234_5678_9abc_def0,
        ] {
            let exact = 64.0 - (hash as f64).log2();
            let fixed = minus_log2(hash) as f64 / f64::from(LOG_BITS).exp2();
            assert!((exact - fixed).abs() < 1e-8, "{hash}: {exact} {fixed}");
        }
    }

    proptest! {
        // A table takes a while without optimization.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn only_what_has_to_move_moves(
            weights in proptest::collection::vec(1u32..5, 2..20),
            gone in any::<proptest::sample::Index>(),
        ) {
            let names = names(weights.len());
            let all = |without: Option<usize>| Table::new(names.iter().zip(&weights).enumerate().map(
                |(at, (name, weight))| (name.as_str(), if without == Some(at) { 0 } else { *weight }),
            ));
            let gone = gone.index(names.len());
            let (with, without) = (all(None), all(Some(gone)));
            for partition in 0..PARTITIONS {
                let (before, after) = (with.owner(partition), without.owner(partition));
                if before == Some(gone as u8) {
                    // It falls to the one that was next.
                    prop_assert_eq!(after, with.next(partition));
                } else {
                    prop_assert_eq!(after, before);
                }
            }
        }
    }
}
