//! Numbers and texts as bytes: whole numbers take seven bits a byte, the lowest first.
//!
//! Whatever the bytes are, reading ends with an error or a value, and takes no more memory than there are
//! bytes.

use crate::place::KeyId;

/// The longest text: a name of a gateway.
const LONGEST_TEXT: usize = 300;

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// It ends too early.
    #[error("it ends in the middle of something")]
    Short,
    /// A number that does not fit.
    #[error("a number is too large")]
    Number,
    /// No text, or too long.
    #[error("a text is too long or none")]
    Text,
    /// A word that does not exist.
    #[error("it says {0}, which means nothing")]
    Word(u8),
    /// More of something than is allowed.
    #[error("there is too much of something")]
    Many,
    /// Something follows.
    #[error("more follows behind its end")]
    Long,
    /// No limit that can be counted.
    #[error("a limit cannot be counted")]
    Law,
}

/// Writes.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// One byte.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A whole number.
    pub fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    /// Several.
    pub fn numbers(&mut self, all: impl IntoIterator<Item = u64>) {
        all.into_iter().for_each(|n| self.number(n));
    }

    /// One that may be negative: small ones stay short.
    pub fn signed(&mut self, n: i64) {
        self.number(((n << 1) ^ (n >> 63)) as u64);
    }

    /// A number of any kind.
    pub fn float(&mut self, n: f64) {
        self.0.extend_from_slice(&n.to_bits().to_be_bytes());
    }

    /// A key.
    pub fn key(&mut self, key: KeyId) {
        self.0.extend_from_slice(&key.0.to_be_bytes());
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// Reads.
#[derive(Clone, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Bad::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        self.bytes(N)?.try_into().map_err(|_| Bad::Short)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, Bad> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A whole number.
    pub fn number(&mut self) -> Result<u64, Bad> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(Bad::Number);
            }
            n |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(Bad::Number)
    }

    /// One that may be negative.
    pub fn signed(&mut self) -> Result<i64, Bad> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// A number of things that follow, each at least a byte, and at most so many.
    pub fn count(&mut self, most: usize) -> Result<usize, Bad> {
        let count = usize::try_from(self.number()?).map_err(|_| Bad::Number)?;
        if count > most {
            return Err(Bad::Many);
        }
        if count > self.0.len() {
            return Err(Bad::Short);
        }
        Ok(count)
    }

    /// A number that is finite.
    pub fn float(&mut self) -> Result<f64, Bad> {
        let n = f64::from_bits(u64::from_be_bytes(self.array()?));
        n.is_finite().then_some(n).ok_or(Bad::Number)
    }

    /// A key.
    pub fn key(&mut self) -> Result<KeyId, Bad> {
        Ok(KeyId(u128::from_be_bytes(self.array()?)))
    }

    /// A text.
    pub fn text(&mut self) -> Result<&'a str, Bad> {
        let long = self.count(LONGEST_TEXT).map_err(|_| Bad::Text)?;
        std::str::from_utf8(self.bytes(long)?).map_err(|_| Bad::Text)
    }

    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(n in any::<u64>(), shift in 0u32..64, s in any::<i64>(), k in any::<u128>(), t in ".{0,40}") {
            let mut out = Writer::default();
            out.number(n >> shift);
            out.signed(s >> shift);
            out.key(KeyId(k));
            out.text(&t);
            out.float(s as f64);
            let mut read = Reader(&out.0);
            prop_assert_eq!(read.number(), Ok(n >> shift));
            prop_assert_eq!(read.signed(), Ok(s >> shift));
            prop_assert_eq!(read.key(), Ok(KeyId(k)));
            prop_assert_eq!(read.text(), Ok(t.as_str()));
            prop_assert_eq!(read.float(), Ok(s as f64));
            prop_assert!(read.is_done());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(Reader(&[0xff; 10]).number(), Err(Bad::Number));
        assert_eq!(Reader(&[0x80; 20]).number(), Err(Bad::Number));
        assert_eq!(Reader(&[0x80]).number(), Err(Bad::Short));
        assert_eq!(Reader(&[200, 1]).count(100), Err(Bad::Many));
        assert_eq!(Reader(&[9, 1]).count(100), Err(Bad::Short));
        assert_eq!(Reader(&[2, 0xff, 0xff]).text(), Err(Bad::Text));
        assert_eq!(
            Reader(&f64::NAN.to_bits().to_be_bytes()).float(),
            Err(Bad::Number)
        );
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Reader(&most).number(), Ok(u64::MAX));
    }
}
