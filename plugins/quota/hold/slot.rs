//! What a request looks at: one word that says how many permits there are, and what stands beside it.
//!
//! The word is changed by compare-and-swap and holds a number that grows with each change of the rest.
//! Whoever changes the rest (under the lock of the key) seals the word first, which takes the permits out,
//! and opens it with the next number. A request reads the word, then the rest, then swaps: if anything was
//! changed in between, the number is another and the swap fails. So a permit is spent for the key it was
//! granted for, before it lapses, and once.
//!
//! ```text
//! | 32 bits permits | 31 bits number | sealed |
//! ```

use crate::Nanos;

/// Sixty-four bits that threads share. Reads acquire, writes release, swaps do both.
pub(crate) trait Cell: Default {
    fn get(&self) -> u64;
    fn set(&self, value: u64);
    /// Whether it was `old`, and is `new` now.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Cell for std::sync::atomic::AtomicU64 {
    fn get(&self) -> u64 {
        self.load(std::sync::atomic::Ordering::Acquire)
    }
    fn set(&self, value: u64) {
        self.store(value, std::sync::atomic::Ordering::Release);
    }
    fn replace(&self, old: u64, new: u64) -> bool {
        use std::sync::atomic::Ordering::{AcqRel, Relaxed};
        self.compare_exchange_weak(old, new, AcqRel, Relaxed)
            .is_ok()
    }
}

/// More permits than this are not held at once.
pub(crate) const MOST: u64 = u32::MAX as u64;

const SEALED: u64 = 1;
const ONE: u64 = 1 << 32;

/// A place for a key. A cache line: whoever spends owns it for a moment anyway.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot<C> {
    /// Whose it is; 0 if nobody's.
    tag: C,
    word: C,
    /// Permits lapse.
    until: C,
    /// Before this, who finds no permit is refused from memory.
    blocked: C,
    /// With so many left more are asked for.
    low: C,
    /// What the store had left to hand out.
    left: C,
    /// When the limit is as good as new, or its window ends.
    reset: C,
    /// What the permits were charged to.
    mark: C,
}

/// What stands beside the permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    pub until: Nanos,
    pub blocked: Nanos,
    pub low: u64,
    pub left: u64,
    pub reset: Nanos,
    pub mark: u64,
}

/// What a request finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Permits, and spent them.
    Spent {
        /// What is left here.
        permits: u64,
        /// It was the one that reached the low mark.
        low: bool,
        beside: Beside,
    },
    /// None, and none to be had before `blocked`.
    Blocked { permits: u64, beside: Beside },
    /// Too few: more have to be asked for.
    Short,
    /// Another key, or one that is being changed.
    Busy,
}

impl<C: Cell> Slot<C> {
    /// Whose it is.
    pub(crate) fn tag(&self) -> u64 {
        self.tag.get()
    }

    /// Spends permits. A request that costs nothing, as its cost is known later, has to find one.
    pub(crate) fn spend(&self, tag: u64, cost: u64, now: Nanos) -> Found {
        loop {
            let word = self.word.get();
            if word & SEALED != 0 || self.tag.get() != tag {
                return Found::Busy;
            }
            let beside = self.beside();
            let permits = word / ONE;
            if permits >= cost.max(1) && now < beside.until {
                if !self.word.replace(word, word - cost * ONE) {
                    continue;
                }
                return Found::Spent {
                    permits: permits - cost,
                    // Who got less than it asked for comes again when it is time.
                    low: permits > beside.low
                        && permits - cost <= beside.low
                        && now >= beside.blocked,
                    beside,
                };
            }
            // What was read belongs together only if nothing was changed meanwhile.
            if self.word.get() != word {
                continue;
            }
            let permits = if now < beside.until { permits } else { 0 };
            return match now < beside.blocked {
                true => Found::Blocked { permits, beside },
                false => Found::Short,
            };
        }
    }

    /// Puts spent permits back, if those there have not lapsed, and `may` says so of their mark and how many
    /// there would be.
    pub(crate) fn give(
        &self,
        tag: u64,
        cost: u64,
        may: impl Fn(u64, u64) -> bool,
        now: Nanos,
    ) -> bool {
        loop {
            let word = self.word.get();
            if word & SEALED != 0 || self.tag.get() != tag {
                return false;
            }
            let beside = self.beside();
            let permits = (word / ONE).saturating_add(cost);
            if now >= beside.until || !may(beside.mark, permits) || permits > MOST {
                return false;
            }
            if self.word.replace(word, word + cost * ONE) {
                return true;
            }
        }
    }

    /// Permits, lapsed or not.
    pub(crate) fn permits(&self) -> u64 {
        self.word.get() / ONE
    }

    pub(crate) fn beside(&self) -> Beside {
        Beside {
            until: self.until.get(),
            blocked: self.blocked.get(),
            low: self.low.get(),
            left: self.left.get(),
            reset: self.reset.get(),
            mark: self.mark.get(),
        }
    }

    /// Takes the permits out; nobody spends until it is opened. Only under the lock of the key.
    pub(crate) fn seal(&self) -> u64 {
        let mut word = self.word.get();
        loop {
            let sealed = (word % ONE) | SEALED;
            if self.word.replace(word, sealed) {
                return word / ONE;
            }
            word = self.word.get();
        }
    }

    /// Puts permits in, for a key. Only after [`Slot::seal`], under the same lock.
    pub(crate) fn open(&self, tag: u64, permits: u64, beside: Beside) {
        self.tag.set(tag);
        self.until.set(beside.until);
        self.blocked.set(beside.blocked);
        self.low.set(beside.low);
        self.left.set(beside.left);
        self.reset.set(beside.reset);
        self.mark.set(beside.mark);
        // From sealed to the next number.
        let number = (self.word.get() % ONE + 1) % ONE;
        self.word.set((permits.min(MOST) * ONE) | number);
    }

    /// Nobody's. Only after [`Slot::seal`], under the same lock.
    pub(crate) fn free(&self) {
        self.tag.set(0);
    }
}
