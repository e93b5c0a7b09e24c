//! Where a trie ends: some dozen keys in one hashed table.
//!
//! A trie alone would go on to the last byte in which two keys differ, and every node on the way is
//! somewhere else in memory: with many routes most of them come from far away, one after the other.
//! Here a key is found in one slot of the table and the one record that it names, side by side with
//! what it stands for.

use smallvec::SmallVec;

use super::trie::{Kind, Prefixes};

/// Most keys of one leaf: a change copies all of them, and each takes one bit of seven in the table.
pub(super) const MOST: usize = 128;

/// Bytes of a key kept inside its record, the one for its kind included: with a slot of four words
/// the record is a cache line.
const KEY_INLINE: usize = 24;

/// Any odd number without a pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Keys with their slots, each key without what all keys here begin with.
#[derive(Clone, Debug)]
pub(super) struct Leaf<S> {
    /// By hash, with room for twice as many as there are: the position of the record plus one, and
    /// eight bits more of the hash; 0 is free. A taken place moves a key to the next one.
    table: Box<[u16]>,
    /// The lengths that keys of prefixes have, ascending.
    lens: SmallVec<[u32; 4]>,
    /// By key, the exact one before the prefix.
    records: Vec<Record<S>>,
}

/// A key and what it stands for. Aligned, so that it is one line of the cache and not parts of two.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Record<S> {
    /// A byte for the kind, then the text.
    key: SmallVec<[u8; KEY_INLINE]>,
    slot: S,
}

impl<S: Clone> Clone for Record<S> {
    fn clone(&self) -> Self {
        Record {
            // The other way to clone one goes byte by byte.
            key: SmallVec::from_slice(&self.key),
            slot: self.slot.clone(),
        }
    }
}

impl<S> Record<S> {
    pub(super) fn new(before: &[u8], text: &[u8], kind: Kind, slot: S) -> Record<S> {
        let mut key = SmallVec::with_capacity(1 + before.len() + text.len());
        key.push(kind as u8);
        key.extend_from_slice(before);
        key.extend_from_slice(text);
        Record { key, slot }
    }

    /// The same with more or less text in front.
    pub(super) fn moved(self, before: &[u8], skip: usize) -> Record<S> {
        let kind = self.kind();
        Record::new(before, &self.key[1 + skip..], kind, self.slot)
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.key[1..]
    }

    pub(super) fn kind(&self) -> Kind {
        match self.key[0] {
            0 => Kind::Exact,
            _ => Kind::Prefix,
        }
    }

    pub(super) fn slot(&self) -> &S {
        &self.slot
    }

    pub(super) fn into_slot(self) -> S {
        self.slot
    }

    fn is(&self, text: &[u8], kind: Kind) -> bool {
        self.key[0] == kind as u8 && self.text() == text
    }

    fn order(&self) -> (&[u8], u8) {
        (self.text(), self.key[0])
    }
}

impl<S> Default for Leaf<S> {
    fn default() -> Self {
        Leaf::of(Vec::new())
    }
}

impl<S> Leaf<S> {
    /// A leaf of these, at most [`MOST`] and all of them different.
    pub(super) fn of(mut records: Vec<Record<S>>) -> Leaf<S> {
        records.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        let mut leaf = Leaf {
            table: Box::default(),
            lens: SmallVec::new(),
            records,
        };
        leaf.index();
        leaf
    }

    /// The exact slot of a key; the prefix slots on the way are pushed, shortest first.
    #[inline]
    pub(super) fn lookup<'t>(
        &'t self,
        key: &[u8],
        prefixes: &mut Prefixes<'t, S>,
    ) -> Option<&'t S> {
        let mut hashes = Hashes::of(key);
        for len in &self.lens {
            let Some(begin) = key.get(..*len as usize) else {
                break;
            };
            if let Some(at) = self.find(hashes.next(begin.len(), Kind::Prefix), begin, Kind::Prefix)
            {
                prefixes.push(&self.records[at].slot);
            }
        }
        let at = self.find(hashes.next(key.len(), Kind::Exact), key, Kind::Exact)?;
        Some(&self.records[at].slot)
    }

    pub(super) fn get(&self, key: &[u8], kind: Kind) -> Option<&S> {
        let at = self.position(key, kind)?;
        Some(&self.records[at].slot)
    }

    pub(super) fn get_mut(&mut self, key: &[u8], kind: Kind) -> Option<&mut S> {
        let at = self.position(key, kind)?;
        Some(&mut self.records[at].slot)
    }

    pub(super) fn records(&self) -> &[Record<S>] {
        &self.records
    }

    pub(super) fn into_records(self) -> Vec<Record<S>> {
        self.records
    }

    /// Takes one in that is not there.
    pub(super) fn insert(&mut self, record: Record<S>) {
        let at = self
            .records
            .partition_point(|other| other.order() < record.order());
        self.records.insert(at, record);
        self.index();
    }

    pub(super) fn remove(&mut self, key: &[u8], kind: Kind) {
        self.records.retain(|record| !record.is(key, kind));
        self.index();
    }

    /// How many bytes all keys begin with.
    pub(super) fn shared(&self) -> usize {
        // They are in order: what the first and the last share, all share.
        match (self.records.first(), self.records.last()) {
            (Some(first), Some(last)) => shared(first.text(), last.text()),
            _ => 0,
        }
    }

    fn position(&self, key: &[u8], kind: Kind) -> Option<usize> {
        self.find(Hashes::of(key).next(key.len(), kind), key, kind)
    }

    #[inline]
    fn find(&self, hash: u64, text: &[u8], kind: Kind) -> Option<usize> {
        let mask = self.table.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        loop {
            // Beyond the table only when it is empty.
            let found = *self.table.get(at)?;
            if found == 0 {
                return None;
            }
            if found >> 8 == tag(hash) {
                let index = usize::from(found & 0xff) - 1;
                if self.records[index].is(text, kind) {
                    return Some(index);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Makes the table and the lengths anew.
    fn index(&mut self) {
        debug_assert!(self.records.len() <= MOST);
        let size = match self.records.len() {
            0 => 0,
            count => (2 * count).next_power_of_two(),
        };
        let mut table = vec![0; size].into_boxed_slice();
        let mut lens = SmallVec::<[u32; 4]>::new();
        for (record, number) in self.records.iter().zip(1_u16..) {
            let (text, kind) = (record.text(), record.kind());
            let hash = Hashes::of(text).next(text.len(), kind);
            let mut at = hash as usize & (size - 1);
            while table[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            table[at] = tag(hash) << 8 | number;
            if kind == Kind::Prefix {
                let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
                if let Err(at) = lens.binary_search(&len) {
                    lens.insert(at, len);
                }
            }
        }
        (self.table, self.lens) = (table, lens);
    }
}

/// How many bytes both begin with.
pub(super) fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The bits of a hash that the position does not come from.
fn tag(hash: u64) -> u16 {
    (hash >> 56) as u16
}

/// Hashes of longer and longer beginnings of a text; each byte is taken in once. Whoever makes keys
/// collide makes a request compare a few more of at most [`MOST`] records.
struct Hashes<'k> {
    text: &'k [u8],
    /// Whole words that are in `state`, in bytes.
    done: usize,
    state: u64,
}

impl<'k> Hashes<'k> {
    fn of(text: &'k [u8]) -> Hashes<'k> {
        Hashes {
            text,
            done: 0,
            state: FACTOR,
        }
    }

    /// Of the first `len` bytes; not fewer than the time before.
    #[inline]
    fn next(&mut self, len: usize, kind: Kind) -> u64 {
        while let Some(word) = self.text[self.done..len].first_chunk::<8>() {
            self.state = mix(self.state, u64::from_le_bytes(*word));
            self.done += 8;
        }
        let mut last = 0;
        for byte in &self.text[self.done..len] {
            last = last << 8 | u64::from(*byte);
        }
        // The length tells `a` from `\0a`, and the kinds apart.
        mix(self.state ^ (2 * len + kind as usize) as u64, last)
    }
}

/// The two halves of a product on top of each other: every bit of the input reaches every other.
#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word.rotate_left(32)) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of one length and of all lengths, more than one table size.
    fn keys() -> Vec<(Vec<u8>, Kind)> {
        (0..MOST)
            .map(|n| match n % 3 {
                0 => (format!("{n}").into_bytes(), Kind::Exact),
                1 => (vec![b'a'; n], Kind::Prefix),
                _ => (vec![0; n], Kind::Exact),
            })
            .collect()
    }

    fn leaf(keys: &[(Vec<u8>, Kind)]) -> Leaf<usize> {
        let mut leaf = Leaf::default();
        for (n, (key, kind)) in keys.iter().enumerate() {
            leaf.insert(Record::new(b"", key, *kind, n));
        }
        leaf
    }

    #[test]
    fn every_key_is_found_and_no_other() {
        let keys = keys();
        for count in [0, 1, 2, 3, 64, MOST] {
            let leaf = leaf(&keys[..count]);
            for (n, (key, kind)) in keys.iter().enumerate() {
                let expected = (n < count).then_some(n);
                assert_eq!(leaf.get(key, *kind).copied(), expected, "{key:?}");
                let other = [Kind::Exact, Kind::Prefix][usize::from(*kind == Kind::Exact)];
                assert_eq!(leaf.get(key, other), None, "{key:?}");
            }
        }
    }

    #[test]
    fn prefixes_come_shortest_first() {
        let leaf = leaf(&keys());
        let mut prefixes = Prefixes::new();
        assert_eq!(leaf.lookup(&[b'a'; 12], &mut prefixes), None);
        assert_eq!(prefixes.into_vec(), [&1, &4, &7, &10]);
    }

    #[test]
    fn what_is_removed_is_gone() {
        let keys = keys();
        let mut leaf = leaf(&keys);
        for (n, (key, kind)) in keys.iter().enumerate() {
            assert_eq!(leaf.get_mut(key, *kind), Some(&mut { n }));
            leaf.remove(key, *kind);
            assert_eq!(leaf.get(key, *kind), None);
            assert_eq!(leaf.records().len(), keys.len() - n - 1);
        }
    }
}
