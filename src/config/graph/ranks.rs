//! Ranks that put things in the order of their source.
//!
//! Ranks are far apart, so that what comes in between gets one of its own and the others keep
//! theirs: an insert or a move changes the rank of what was inserted or moved, nothing else.

/// How far apart ranks are: so many times can an interval be halved, until all get new ranks.
const GAP: u64 = 1 << 32;

/// The rank behind `last`.
pub(super) fn behind(last: u64) -> u64 {
    last.saturating_add(GAP)
}

/// Rising ranks for things in their wanted order, given those they have; `None` for what is new.
/// As many as can be keep theirs.
pub(super) fn rising(ranks: &[Option<u64>]) -> Vec<u64> {
    fill(ranks, &kept(ranks))
        .unwrap_or_else(|| (1..).take(ranks.len()).map(|n: u64| n * GAP).collect())
}

/// Positions of a longest rising sequence among the ranks: what need not move.
pub(super) fn kept(ranks: &[Option<u64>]) -> Vec<usize> {
    // `ends[n]` is the position with the least rank at which a sequence of n + 1 can end.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; ranks.len()];
    for (at, rank) in ranks.iter().enumerate() {
        if rank.is_none() {
            continue;
        }
        let len = ends.partition_point(|end| ranks[*end] < *rank);
        before[at] = len.checked_sub(1).map(|shorter| ends[shorter]);
        ends.truncate(ends.len().max(len));
        match ends.get_mut(len) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut kept: Vec<usize> =
        std::iter::successors(ends.last().copied(), |at| before[*at]).collect();
    kept.reverse();
    kept
}

/// Ranks for what is between those that are kept. `None` when there is no room.
fn fill(ranks: &[Option<u64>], kept: &[usize]) -> Option<Vec<u64>> {
    let mut made = Vec::with_capacity(ranks.len());
    let mut low = 0;
    for &at in kept {
        let high = ranks[at]?;
        let count = (at - made.len()) as u64;
        let step = (high - low) / (count + 1);
        if step == 0 {
            return None;
        }
        made.extend((1..=count).map(|n| low + n * step));
        made.push(high);
        low = high;
    }
    while made.len() < ranks.len() {
        low = low.checked_add(GAP)?;
        made.push(low);
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many of the ranks change.
    fn check(ranks: &[Option<u64>], changed: usize) {
        let made = rising(ranks);
        assert!(made.is_sorted_by(|a, b| a < b), "{ranks:?}: {made:?}");
        let differ = ranks
            .iter()
            .zip(&made)
            .filter(|(old, new)| **old != Some(**new));
        assert_eq!(differ.count(), changed, "{ranks:?}: {made:?}");
    }

    fn at(list: &[u64]) -> Vec<Option<u64>> {
        list.iter().map(|n| (*n > 0).then_some(n * GAP)).collect()
    }

    #[test]
    fn only_what_moved_gets_another_rank() {
        check(&[], 0);
        check(&at(&[0]), 1);
        check(&at(&[1, 2, 5]), 0);
        check(&at(&[0, 1, 2]), 1); // a new first one
        check(&at(&[1, 0, 0, 2]), 2);
        check(&at(&[1, 2, 0]), 1);
        check(&at(&[2, 3, 4, 1]), 1); // the first one moved to the end
        check(&at(&[4, 1, 2, 3]), 1); // the last one moved to the front
        check(&at(&[1, 3, 2, 4]), 1);
        check(&at(&[3, 2, 1]), 2);
    }

    #[test]
    fn without_room_all_get_new_ranks() {
        check(&[Some(1), None, Some(2)], 3);
        check(&[None, Some(1)], 2);
        check(&[Some(u64::MAX), None], 2);
        let mut ranks = vec![1, 2].into_iter().map(|n| n * GAP).collect::<Vec<_>>();
        for _ in 0..100 {
            let mut wanted: Vec<_> = ranks.iter().copied().map(Some).collect();
            wanted.insert(1, None);
            ranks = rising(&wanted);
            assert!(ranks.is_sorted_by(|a, b| a < b));
        }
    }

    proptest! {
        #[test]
        fn any_ranks_become_rising(ranks in prop::collection::vec(prop::option::of(0..50_u64), 0..30)) {
            let made = rising(&ranks);
            prop_assert!(made.is_sorted_by(|a, b| a < b), "{:?}", made);
        }
    }
}
