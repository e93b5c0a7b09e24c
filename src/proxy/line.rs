//! Finds the ends of header lines, eight bytes at a time.

/// Where the first control byte stands, from `from` on; a tab is none.
#[inline]
pub fn next_control(text: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let mut at = from;
    while let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*word);
        // A subtraction borrows into a byte's top bit when the byte is smaller. A borrow may spoil
        // the bytes above, so only the lowest mark of each kind counts; the lowest of all is one.
        let low = word.wrapping_sub(ONES * 0x20) & !word;
        let not_del = word ^ (ONES * 0x7f);
        let del = not_del.wrapping_sub(ONES) & !not_del;
        let marks = (low | del) & TOPS;
        if marks == 0 {
            at += 8;
            continue;
        }
        at += (marks.trailing_zeros() / 8) as usize;
        if text[at] != b'\t' {
            return Some(at);
        }
        at += 1;
    }
    let rest = text.get(at..).unwrap_or_default();
    rest.iter().position(|&b| is_control(b)).map(|i| at + i)
}

fn is_control(b: u8) -> bool {
    (b < 0x20 && b != b'\t') || b == 0x7f
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_is_judged_alike_everywhere() {
        for byte in 0..=255u8 {
            for at in 0..20 {
                for len in at + 1..22 {
                    let mut text = vec![b'a'; len];
                    text[at] = byte;
                    let expected = is_control(byte).then_some(at);
                    assert_eq!(next_control(&text, 0), expected, "{byte} at {at} of {len}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_finds(text in "[\\x00-\\x7f\u{80}-\u{ff}]{0,40}", from in 0usize..45) {
            let text = text.as_bytes();
            let walk = (from..text.len()).find(|&at| is_control(text[at]));
            prop_assert_eq!(next_control(text, from), walk);
        }
    }
}
