//! What 16 bytes hold: who, which algorithm, and its state.
//!
//! ```text
//! | 45 bits of the key's hash | 3 bits algorithm | 80 bits state |
//! ```
//!
//! The other bits of the hash choose the set of slots, so up to 64 bits tell keys apart. A word of
//! zeros is a free slot. The code lets whoever comes by judge whether a state still says anything,
//! without knowing the rule that wrote it: after its expiry it is the same as no state at all.

use crate::Nanos;

/// A key of one rule, hashed with the engine's secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub(crate) u64);

/// Which algorithm wrote a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// `tat:64`, nanoseconds.
    Gcra = 1,
    /// `end:40 | count:40`, milliseconds.
    Fixed = 2,
    /// `expiry:30 | previous:25 | current:25`, seconds.
    Sliding = 3,
    /// `expiry:40 | previous:20 | current:20`, milliseconds: windows under a second.
    SlidingShort = 4,
}

const STATE_BITS: u32 = 80;
const HASH_BITS: u32 = 45;
pub(crate) const MILLI: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// Whose state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) Key, pub(crate) Code);

impl Tag {
    /// What is the same in every word of it.
    pub(crate) fn head(self) -> u128 {
        let hash = self.0.0 & ((1 << HASH_BITS) - 1);
        (u128::from(hash) << 3 | self.1 as u128) << STATE_BITS
    }
}

/// The head of a word.
pub(crate) fn head_of(word: u128) -> u128 {
    word >> STATE_BITS << STATE_BITS
}

/// Whether a word is of this key, whichever algorithm wrote it.
pub(crate) fn is_of(word: u128, key: Key) -> bool {
    const ANY: u128 = 7 << STATE_BITS;
    word != 0 && head_of(word) & !ANY == Tag(key, Code::Gcra).head() & !ANY
}

/// The state in a word.
pub(crate) fn state_of(word: u128) -> u128 {
    word & ((1 << STATE_BITS) - 1)
}

/// From when on a word is the same as none.
pub(crate) fn expiry(word: u128) -> Nanos {
    let state = state_of(word);
    match (word >> STATE_BITS) as u8 & 7 {
        1 => state as Nanos,
        2 | 4 => field(state, 40, 40).saturating_mul(MILLI),
        3 => field(state, 50, 30).saturating_mul(SECOND),
        _ => 0,
    }
}

/// `bits` bits of a state, from bit `at` on.
pub(crate) fn field(state: u128, at: u32, bits: u32) -> u64 {
    (state >> at) as u64 & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart_as_they_were_put_together() {
        let check = |code: Code, state: u128, expected: Nanos| {
            let key = Key(u64::MAX);
            let word = Tag(key, code).head() | state;
            assert_eq!(head_of(word), Tag(key, code).head());
            assert_eq!(state_of(word), state);
            assert_eq!(expiry(word), expected, "{code:?}");
        };
        check(Code::Gcra, u128::from(u64::MAX), u64::MAX);
        check(Code::Fixed, 5 << 40 | 9, 5 * MILLI);
        check(Code::Sliding, 5 << 50 | 9 << 25 | 9, 5 * SECOND);
        check(Code::SlidingShort, 5 << 40 | 9, 5 * MILLI);
        assert_eq!(expiry(0), 0);
        assert_ne!(Tag(Key(0), Code::Gcra).head(), 0);
    }
}
