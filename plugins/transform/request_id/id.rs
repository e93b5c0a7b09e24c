//! The forms of ids. Time comes in; randomness is the thread's own generator.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rand::Rng;
use uuid::Uuid;

/// Letters of a nanoid. 64 of them, so that 6 random bits pick one without bias.
const NANOID_CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
/// The usual length of a nanoid: as hard to guess as a random UUID.
const NANOID_LEN: usize = 21;

/// Digits of a ksuid, in ASCII order, so that ids sort as text.
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 160 bits in base 62.
const KSUID_LEN: usize = 27;
/// Ksuids count seconds from this moment (13 May 2014), so that 32 bits last until 2150.
const KSUID_EPOCH: Duration = Duration::from_secs(1_400_000_000);

/// Makes ids of one form.
pub(super) enum Maker {
    /// Random UUID.
    Uuid,
    /// UUID that starts with milliseconds.
    Uuidv7,
    /// 21 characters.
    Nanoid,
    /// Seconds and 128 random bits in base 62.
    Ksuid,
    /// `length` of `chars`.
    Range { chars: Box<[u8]>, length: usize },
}

impl Maker {
    /// A new id. Always visible ASCII.
    pub(super) fn make(&self, wall: SystemTime) -> Bytes {
        match self {
            Maker::Uuid => hyphenated(uuid::Builder::from_random_bytes(random()).into_uuid()),
            Maker::Uuidv7 => {
                let millis = since(wall, Duration::ZERO).as_millis();
                let millis = u64::try_from(millis).unwrap_or(u64::MAX);
                let random: [u8; 10] = random();
                hyphenated(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }
            Maker::Nanoid => {
                let random: [u8; NANOID_LEN] = random();
                let id = random.map(|byte| NANOID_CHARS[usize::from(byte & 63)]);
                Bytes::copy_from_slice(&id)
            }
            Maker::Ksuid => ksuid(since(wall, KSUID_EPOCH).as_secs(), random()),
            Maker::Range { chars, length } => range(chars, *length),
        }
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

fn since(wall: SystemTime, epoch: Duration) -> Duration {
    // A clock before 1970 gives ids that do not sort, nothing worse.
    let unix = wall
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    unix.saturating_sub(epoch)
}

fn hyphenated(uuid: Uuid) -> Bytes {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    uuid.hyphenated().encode_lower(&mut text);
    Bytes::copy_from_slice(&text)
}

/// 4 bytes of seconds and 16 random bytes as one number, most significant digit first.
fn ksuid(seconds: u64, random: [u8; 16]) -> Bytes {
    // Wraps after 2150, as the format does.
    let mut high = seconds & u64::from(u32::MAX);
    let mut low = u128::from_be_bytes(random);
    let mut text = [b'0'; KSUID_LEN];
    for digit in text.iter_mut().rev() {
        // Long division by 62 of `high` * 2^128 + `low`, 64 bits at a time.
        let mid = (u128::from(high % 62) << 64) | (low >> 64);
        let end = ((mid % 62) << 64) | (low & u128::from(u64::MAX));
        high /= 62;
        low = ((mid / 62) << 64) | (end / 62);
        *digit = BASE62[usize::try_from(end % 62).unwrap_or(0)];
    }
    Bytes::copy_from_slice(&text)
}

fn range(chars: &[u8], length: usize) -> Bytes {
    let mut rng = rand::rng();
    let n = chars.len() as u64;
    let mut id = Vec::with_capacity(length);
    for _ in 0..length {
        // Scales 32 random bits to 0..n; the bias is below n / 2^32.
        let at = (u64::from(rng.next_u32()) * n) >> 32;
        id.extend(usize::try_from(at).ok().and_then(|at| chars.get(at)));
    }
    Bytes::from(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn check(maker: &Maker, form: &str) {
        let form = fancy_regex::Regex::new(form).unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let id = maker.make(at(1_700_000_000));
            let text = std::str::from_utf8(&id).unwrap().to_owned();
            assert!(form.is_match(&text).unwrap(), "{text} is not like {form}");
            assert!(seen.insert(text), "an id was made twice");
        }
    }

    #[test]
    fn every_id_has_its_form_and_is_new() {
        check(
            &Maker::Uuid,
            "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        );
        check(
            &Maker::Uuidv7,
            "^018bcfe5-6800-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        );
        check(&Maker::Nanoid, "^[A-Za-z0-9_-]{21}$");
        check(&Maker::Ksuid, "^[A-Za-z0-9]{27}$");
        check(
            &Maker::Range {
                chars: (*b"abcdef0123").into(),
                length: 24,
            },
            "^[a-f0-3]{24}$",
        );
    }

    #[test]
    fn ksuid_is_the_number_in_base_62() {
        // The largest and the smallest value, as the format's description gives them.
        assert_eq!(ksuid(0, [0; 16]), "000000000000000000000000000");
        assert_eq!(
            ksuid(u64::from(u32::MAX), [0xff; 16]),
            "aWgEPTl1tmebfsQzFP4bxwgy80V"
        );
    }

    #[test]
    fn ids_with_a_time_sort_by_it() {
        for maker in [Maker::Ksuid, Maker::Uuidv7] {
            assert!(maker.make(at(1_700_000_000)) < maker.make(at(1_700_000_001)));
        }
    }

    #[test]
    fn a_clock_before_the_epoch_is_survived() {
        let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Maker::Ksuid.make(early).len(), KSUID_LEN);
        assert_eq!(Maker::Uuidv7.make(early).len(), 36);
    }
}
