//! Times for headers.

use bytes::Bytes;
use lockgate_limit::Nanos;

const HUNDREDTH: Nanos = 10_000_000;

/// Seconds with up to two decimals, as `59.97`, `60`.
pub(crate) fn hundredths(time: Nanos, rounding: Rounding) -> Bytes {
    let hundredths = match rounding {
        Rounding::Down => time / HUNDREDTH,
        Rounding::Up => time.div_ceil(HUNDREDTH),
    };
    let (whole, part) = (hundredths / 100, hundredths % 100);
    let mut digits = itoa::Buffer::new();
    let whole = digits.format(whole).as_bytes();
    // Twenty digits at most, a point and two more.
    let mut text = [0; 24];
    text[..whole.len()].copy_from_slice(whole);
    let mut len = whole.len();
    if part > 0 {
        text[len..len + 3].copy_from_slice(&[
            b'.',
            b'0' + (part / 10) as u8,
            b'0' + (part % 10) as u8,
        ]);
        len += if part % 10 == 0 { 2 } else { 3 };
    }
    Bytes::copy_from_slice(&text[..len])
}

/// Which way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rounding {
    Down,
    Up,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let check = |time, down: &str, up: &str| {
            assert_eq!(hundredths(time, Rounding::Down), down);
            assert_eq!(hundredths(time, Rounding::Up), up);
        };
        check(0, "0", "0");
        check(1, "0", "0.01");
        check(60_000_000_000, "60", "60");
        check(59_999_999_999, "59.99", "60");
        check(59_900_000_000, "59.9", "59.9");
        check(1_050_000_000, "1.05", "1.05");
        check(u64::MAX, "18446744073.7", "18446744073.71");
    }
}
