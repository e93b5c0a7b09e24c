//! Whom a limit refuses most: a few keys, however many there are.
//!
//! Space-saving: a key that is not among those that are counted takes the place of the one with the
//! smallest count, and goes on from there. So whoever was refused more often than one in so many as there
//! are places is in the list, and no count is too low, nor too high by more than [`Refused::over`].

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::Nanos;

/// Keys that are counted.
const PLACES: usize = 64;
/// What was counted in this time is halved at its end: a client that was stopped an hour ago is not
/// whom somebody looks for.
const HALF_LIFE: Nanos = 600 * 1_000_000_000;
/// Bytes of a key that are kept, and of a longer one.
const LONGEST: usize = 96;
const BEGINNING: usize = 64;

/// A key that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its text; of a long one its beginning and a number.
    pub key: String,
    /// How often, lately: what is older than ten minutes counts half, and so on.
    pub count: u64,
    /// By how much that may be too much.
    pub over: u64,
}

#[derive(Debug)]
struct Place {
    key: Box<str>,
    hash: u64,
    count: u64,
    over: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Top {
    places: Vec<Place>,
    /// When it was halved last.
    since: Nanos,
}

impl Top {
    /// A key was refused.
    pub(crate) fn add(&mut self, key: &str, now: Nanos) {
        self.age(now);
        let hash = FxBuildHasher.hash_one(key);
        let key = shortened(key, hash);
        let same = |place: &&mut Place| place.hash == hash && *place.key == *key;
        if let Some(place) = self.places.iter_mut().find(same) {
            place.count += 1;
            return;
        }
        let newcomer = |least: u64| Place {
            key: key.as_ref().into(),
            hash,
            count: least + 1,
            over: least,
        };
        if self.places.len() < PLACES {
            self.places.push(newcomer(0));
        } else if let Some(least) = self.places.iter_mut().min_by_key(|place| place.count) {
            *least = newcomer(least.count);
        }
    }

    /// The keys with the largest counts.
    pub(crate) fn list(&mut self, most: usize, now: Nanos) -> Vec<Refused> {
        self.age(now);
        let refused = |place: &Place| Refused {
            key: place.key.to_string(),
            count: place.count,
            over: place.over,
        };
        let mut all: Vec<Refused> = self.places.iter().map(refused).collect();
        all.sort_by(|a, b| (b.count, &a.key).cmp(&(a.count, &b.key)));
        all.truncate(most);
        all
    }

    fn age(&mut self, now: Nanos) {
        if self.places.is_empty() {
            self.since = now;
            return;
        }
        let halvings = now.saturating_sub(self.since) / HALF_LIFE;
        if halvings == 0 {
            return;
        }
        self.since += halvings * HALF_LIFE;
        for place in &mut self.places {
            let half = |n: u64| n.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX));
            place.count = half(place.count).unwrap_or(0);
            place.over = half(place.over).unwrap_or(0);
        }
        self.places.retain(|place| place.count > 0);
    }
}

/// A key, or what is kept of a long one.
fn shortened(key: &str, hash: u64) -> std::borrow::Cow<'_, str> {
    if key.len() <= LONGEST {
        return key.into();
    }
    let end = (0..=BEGINNING).rev().find(|at| key.is_char_boundary(*at));
    format!("{}…#{hash:016x}", &key[..end.unwrap_or(0)]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Nanos = 60 * 1_000_000_000;

    #[test]
    fn the_heavy_ones_are_found_among_a_flood_of_others() {
        let mut top = Top::default();
        let mut heavy = 0;
        for n in 0..100_000u64 {
            top.add(&format!("flood-{n}"), 1);
            if n % 20 == 0 {
                top.add("heavy", 1);
                heavy += 1;
            }
        }
        assert_eq!(top.places.len(), PLACES);
        let first = &top.list(1, 1)[0];
        assert_eq!(first.key, "heavy");
        assert!(first.count >= heavy, "{first:?}");
        assert!(first.count - first.over <= heavy, "{first:?}");
    }

    #[test]
    fn old_refusals_count_less_and_less() {
        let mut top = Top::default();
        (0..8).for_each(|_| top.add("a", MINUTE));
        top.add("b", MINUTE);
        let shown = |top: &mut Top, now| -> Vec<(String, u64)> {
            let list = top.list(9, now);
            list.into_iter().map(|r| (r.key, r.count)).collect()
        };
        assert_eq!(shown(&mut top, 10 * MINUTE).len(), 2);
        assert_eq!(shown(&mut top, 11 * MINUTE), [("a".to_owned(), 4)]);
        top.add("b", 15 * MINUTE);
        assert_eq!(
            shown(&mut top, 21 * MINUTE),
            [("a".to_owned(), 2)],
            "one that was refused once is gone at the next halving"
        );
        assert!(shown(&mut top, 1_000_000 * MINUTE).is_empty());
        // The clock of a thread that is late.
        top.add("c", 5);
        assert_eq!(top.list(9, 4)[0].count, 1);
    }

    #[test]
    fn long_keys_are_cut_and_stay_apart() {
        let mut top = Top::default();
        let long = |c: char| format!("{}{c}", "é".repeat(1 << 19));
        top.add(&long('a'), 1);
        top.add(&long('b'), 1);
        top.add(&long('a'), 1);
        let list = top.list(9, 1);
        assert_eq!(list.iter().map(|r| r.count).collect::<Vec<_>>(), [2, 1]);
        assert!(list.iter().all(|r| r.key.len() <= LONGEST), "{list:?}");
    }
}
