//! The table: sets of four words in a cache line, each changed by one compare-and-swap.
//!
//! A key has one set, and in it at most one word. Whose state says nothing any more makes room for a
//! newcomer, so nothing is lost while the keys that matter fit. Tag and state change together,
//! which is what makes an insertion race harmless: two threads that insert one key aim at the same
//! word, and one of them sees that it is too late.

use std::sync::OnceLock;

use portable_atomic::{AtomicU128, Ordering};

use crate::Nanos;
use crate::slot::{Key, Tag, expiry, head_of, is_of, state_of};

const WAYS: usize = 4;
const SET_BYTES: usize = WAYS * size_of::<u128>();
/// Fewer sets than this would meet each other all the time.
const LEAST_SETS: usize = 16;
/// A page of 64 KiB: made in some microseconds, when the first of its keys comes.
const PAGE_SETS: usize = 1_024;

/// A word that several threads change. A trait, so that the model checker can stand in.
pub(crate) trait Word: Default {
    fn read(&self) -> u128;
    /// Writes `new` if the word is `old`; says whether it did.
    fn replace(&self, old: u128, new: u128) -> bool;
}

// In one order for all threads: an insertion looks for a second one in another word.
impl Word for AtomicU128 {
    fn read(&self) -> u128 {
        self.load(Ordering::SeqCst)
    }
    fn replace(&self, old: u128, new: u128) -> bool {
        self.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

pub(crate) struct Table<W: 'static = AtomicU128> {
    words: Words<W>,
    /// Sets, in all pages.
    sets: usize,
    /// The bits of a hash that do not choose the set.
    shift: u32,
}

enum Words<W: 'static> {
    /// A page takes no memory until it is used: a table that nobody asks, as that of a configuration that
    /// is only checked, costs nothing, and no request waits for the whole to be made.
    Pages(Box<[OnceLock<Page<W>>]>),
    /// From outside; whoever gave them may have given them to another process, too. Their memory comes
    /// with the first look at it as well, so that a word for each page says whether it was ever used.
    Given {
        used: &'static [W],
        words: &'static [W],
    },
}

struct Page<W> {
    words: Box<[W]>,
    /// The first word at the beginning of a cache line.
    first: usize,
}

impl<W: Word> Page<W> {
    fn new(sets: usize) -> Page<W> {
        let words = sets * WAYS + WAYS - 1;
        let words: Box<[W]> = (0..words).map(|_| W::default()).collect();
        let past = words.as_ptr() as usize % SET_BYTES;
        let first = ((SET_BYTES - past) / size_of::<W>()) % WAYS;
        Page { words, first }
    }

    fn set(&self, at: usize) -> &[W] {
        &self.words[self.first + at * WAYS..][..WAYS]
    }
}

/// Sets of a table of about this size.
fn sets(bytes: usize) -> usize {
    (bytes / SET_BYTES).next_power_of_two().max(LEAST_SETS)
}

/// Words that say which pages were used, in whole cache lines.
fn flags(sets: usize) -> usize {
    sets.div_ceil(PAGE_SETS).next_multiple_of(WAYS)
}

/// What to do with a newcomer whose set is full of states that still count.
pub(crate) enum Room {
    /// Let it pass without a word of its own.
    Unseen,
    /// Give it the word that stops to count first. It starts with this state.
    Evict(u128),
}

/// How a change ended.
pub(crate) enum Outcome<R> {
    /// The state is written, or did not have to be.
    Seen(R),
    /// As [`Room::Unseen`].
    Unseen(R),
}

impl<W: Word> Table<W> {
    /// A table of about this size, a power of two.
    pub(crate) fn with_bytes(bytes: usize) -> Table<W> {
        Table::with_sets(sets(bytes))
    }

    pub(crate) fn with_sets(sets: usize) -> Table<W> {
        let shift = u64::BITS - sets.trailing_zeros();
        let pages = sets.div_ceil(PAGE_SETS);
        Table {
            words: Words::Pages((0..pages).map(|_| OnceLock::new()).collect()),
            sets,
            shift,
        }
    }

    /// How many words a table of about this size takes, those included that say what was used.
    pub(crate) fn words_for(bytes: usize) -> usize {
        let sets = sets(bytes);
        sets * WAYS + flags(sets)
    }

    /// A table of this size in these words. `None` unless there are as many as it takes, and the first
    /// one is at the beginning of a cache line.
    pub(crate) fn over(words: &'static [W], bytes: usize) -> Option<Table<W>> {
        let sets = sets(bytes);
        let fits = words.len() == Self::words_for(bytes)
            && (words.as_ptr() as usize).is_multiple_of(SET_BYTES);
        let (used, words) = words.split_at_checked(flags(sets))?;
        fits.then(|| Table {
            words: Words::Given { used, words },
            sets,
            shift: u64::BITS - sets.trailing_zeros(),
        })
    }

    /// The number of a key's set.
    fn at(&self, key: Key) -> usize {
        // A table of one set has nothing to choose.
        key.0.checked_shr(self.shift).unwrap_or(0) as usize
    }

    /// The set of a key, if one of its page was ever used.
    fn used(&self, key: Key) -> Option<&[W]> {
        let at = self.at(key);
        match &self.words {
            Words::Pages(pages) => Some(pages[at / PAGE_SETS].get()?.set(at % PAGE_SETS)),
            Words::Given { used, words } => {
                (used[at / PAGE_SETS].read() != 0).then(|| &words[at * WAYS..][..WAYS])
            }
        }
    }

    fn set(&self, key: Key) -> &[W] {
        let at = self.at(key);
        match &self.words {
            Words::Pages(pages) => {
                let page = &pages[at / PAGE_SETS];
                let page = page.get_or_init(|| Page::new(self.sets.min(PAGE_SETS)));
                page.set(at % PAGE_SETS)
            }
            Words::Given { used, words } => {
                let used = &used[at / PAGE_SETS];
                if used.read() == 0 {
                    // Another may have been faster, with the same.
                    used.replace(0, 1);
                }
                &words[at * WAYS..][..WAYS]
            }
        }
    }

    /// The state of a key; 0 if it has none.
    pub(crate) fn get(&self, tag: Tag) -> u128 {
        let head = tag.head();
        let words = self.used(tag.0).unwrap_or_default().iter();
        words
            .map(Word::read)
            .find(|word| head_of(*word) == head)
            .map_or(0, state_of)
    }

    /// Changes the state of a key that has one.
    pub(crate) fn change(&self, tag: Tag, f: impl Fn(u128) -> Option<u128>) {
        let head = tag.head();
        for word in self.used(tag.0).unwrap_or_default() {
            let mut held = word.read();
            while head_of(held) == head {
                match f(state_of(held)) {
                    Some(next) if !word.replace(held, head | next) => held = word.read(),
                    _ => return,
                }
            }
        }
    }

    /// Forgets a key, whichever algorithm counted; says whether it was known.
    pub(crate) fn clear(&self, key: Key) -> bool {
        let mut known = false;
        for word in self.used(key).unwrap_or_default() {
            let mut held = word.read();
            while is_of(held, key) {
                known = true;
                if word.replace(held, 0) {
                    break;
                }
                held = word.read();
            }
        }
        known
    }

    /// Changes the state of a key: `f` gets it, 0 if there is none, and returns the next one if it
    /// changes. It is called again when another thread was faster. `full` is asked at most once,
    /// when there is no word for a newcomer.
    pub(crate) fn update<R>(
        &self,
        tag: Tag,
        now: Nanos,
        f: impl Fn(u128) -> (R, Option<u128>),
        full: impl FnOnce() -> Room,
    ) -> Outcome<R> {
        let head = tag.head();
        let set = self.set(tag.0);
        let mut full = Some(full);
        let mut start = 0;
        'again: loop {
            // The word that stops to count first. Chosen by its own value only, never by `now`, so
            // that two threads with different times choose the same.
            let (mut first, mut first_word, mut first_expiry) = (0, 0, Nanos::MAX);
            for (at, word) in set.iter().enumerate() {
                let held = word.read();
                if head_of(held) == head {
                    let (result, next) = f(state_of(held));
                    if next.is_some_and(|next| !word.replace(held, head | next)) {
                        continue 'again;
                    }
                    return Outcome::Seen(result);
                }
                let expiry = expiry(held);
                if expiry < first_expiry {
                    (first, first_word, first_expiry) = (at, held, expiry);
                }
            }
            let (mut result, next) = f(start);
            let Some(mut next) = next else {
                return Outcome::Seen(result);
            };
            if first_expiry > now
                && let Some(full) = full.take()
            {
                match full() {
                    Room::Unseen => return Outcome::Unseen(result),
                    Room::Evict(state) => start = state,
                }
                (result, next) = match f(start) {
                    (result, Some(next)) => (result, next),
                    // It has had all it may while it was not seen: remembered, and refused.
                    (result, None) => (result, start),
                };
            }
            let word = head | next;
            if set[first].replace(first_word, word) && self.is_only(set, first, word) {
                return Outcome::Seen(result);
            }
        }
    }

    /// Whether an inserted word is the only one of its key. If another thread has chosen another
    /// word, which takes a refund between the two looks, one of the two sees that and withdraws.
    fn is_only(&self, set: &[W], at: usize, word: u128) -> bool {
        let head = head_of(word);
        let others = set.iter().enumerate().filter(|(other, _)| *other != at);
        let twin = others.map(|(_, other)| other.read());
        let twin = twin.into_iter().any(|other| head_of(other) == head);
        // Somebody may have counted in it meanwhile; then it stays, and ages beside the other.
        !(twin && set[at].replace(word, 0))
    }

    /// Words that still count, and all words.
    pub(crate) fn fill(&self, now: Nanos) -> (usize, usize) {
        let live = |word: &&W| expiry(word.read()) > now;
        let live = match &self.words {
            Words::Pages(pages) => {
                let pages = pages.iter().filter_map(OnceLock::get);
                pages.flat_map(|page| &page.words).filter(live).count()
            }
            Words::Given { used, words } => {
                let pages = used.iter().zip(words.chunks(PAGE_SETS * WAYS));
                let pages = pages.filter(|(used, _)| used.read() != 0);
                pages.flat_map(|(_, page)| page).filter(live).count()
            }
        };
        (live, self.sets * WAYS)
    }

    /// Pages that take memory.
    #[cfg(test)]
    pub(crate) fn made(&self) -> usize {
        match &self.words {
            Words::Pages(pages) => pages.iter().filter_map(OnceLock::get).count(),
            Words::Given { used, .. } => used.iter().filter(|used| used.read() != 0).count(),
        }
    }
}
