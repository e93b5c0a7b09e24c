//! Reads chunked bodies strictly (RFC 9112 §7.1), piece by piece as they arrive.
//!
//! Extensions and trailers are dropped, and bounded. What goes on is always
//! encoded anew, so that nothing two parsers could disagree about passes.

use crate::proxy::request_head::TOKEN;

/// The longest line with a chunk's size and extensions, in bytes.
const MAX_LINE: u32 = 1024;
/// The longest trailer section, in bytes.
const MAX_TRAILERS: u32 = 16 * 1024;
/// More digits are no size that anybody sends, and could overflow.
const MAX_DIGITS: u8 = 15;

/// A body that is not chunked as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadChunk(&'static str);

/// The reader's place in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunked {
    state: State,
    /// Bytes of the current line, or of the trailers.
    line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size {
        digits: u8,
        value: u64,
    },
    Extension {
        value: u64,
    },
    SizeEnd {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// At the beginning of a trailer, or of the empty line.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerEnd {
        empty: bool,
    },
    Done,
}

impl Default for Chunked {
    fn default() -> Self {
        Chunked {
            state: State::Size {
                digits: 0,
                value: 0,
            },
            line: 0,
        }
    }
}

impl Chunked {
    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads on; gives every piece of data to `data` and returns how much of the input belonged to
    /// the body. Less than all of it only when the body is complete.
    ///
    /// # Errors
    /// When the input breaks the rules; the body cannot be read any further then.
    pub fn read(&mut self, input: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if let State::Data { left } = self.state {
                let there = &input[at..];
                let take = usize::try_from(left).map_or(there.len(), |left| left.min(there.len()));
                data(&there[..take]);
                at += take;
                let left = left - take as u64;
                self.state = if left == 0 {
                    State::DataCr
                } else {
                    State::Data { left }
                };
                continue;
            }
            self.step(input[at])?;
            at += 1;
        }
        Ok(at)
    }

    fn step(&mut self, b: u8) -> Result<(), BadChunk> {
        self.line += 1;
        let limit = match self.state {
            State::TrailerStart
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerEnd { .. } => MAX_TRAILERS,
            _ => MAX_LINE,
        };
        if self.line > limit {
            return Err(BadChunk("chunk line or trailers too long"));
        }
        self.state = match (self.state, b) {
            (State::Size { digits, value }, b) if b.is_ascii_hexdigit() => {
                if digits == MAX_DIGITS {
                    return Err(BadChunk("chunk size has too many digits"));
                }
                State::Size {
                    digits: digits + 1,
                    value: value << 4 | u64::from(hex(b)),
                }
            }
            (State::Size { digits: 0, .. }, _) => {
                return Err(BadChunk("chunk size is not a number"));
            }
            (State::Size { value, .. }, b';') => State::Extension { value },
            (State::Size { value, .. } | State::Extension { value }, b'\r') => {
                State::SizeEnd { value }
            }
            (State::Extension { value }, b) if !is_control(b) => State::Extension { value },
            (State::SizeEnd { value: 0 }, b'\n') => self.line_of(State::TrailerStart),
            (State::SizeEnd { value }, b'\n') => self.line_of(State::Data { left: value }),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => self.line_of(State::Size {
                digits: 0,
                value: 0,
            }),
            (State::TrailerStart, b'\r') => State::TrailerEnd { empty: true },
            (State::TrailerStart | State::TrailerName, b) if TOKEN[usize::from(b)] => {
                State::TrailerName
            }
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerStart | State::TrailerName, _) => {
                return Err(BadChunk("trailer without a name and a colon"));
            }
            (State::TrailerValue, b'\r') => State::TrailerEnd { empty: false },
            (State::TrailerValue, b) if !is_control(b) => State::TrailerValue,
            (State::TrailerEnd { empty: true }, b'\n') => State::Done,
            (State::TrailerEnd { empty: false }, b'\n') => State::TrailerStart,
            (State::DataCr | State::DataLf, _) => {
                return Err(BadChunk("chunk is longer than its size"));
            }
            _ => return Err(BadChunk("chunk line has a byte that it may not have")),
        };
        Ok(())
    }

    /// Begins counting anew.
    fn line_of(&mut self, state: State) -> State {
        self.line = 0;
        state
    }
}

/// A control byte other than a tab has no place beside a size or in a trailer.
fn is_control(b: u8) -> bool {
    (b < 0x20 && b != b'\t') || b == 0x7f
}

fn hex(b: u8) -> u8 {
    match b {
        b'0'..=b'9' => b - b'0',
        b'a'..=b'f' => b - b'a' + 10,
        _ => b.wrapping_sub(b'A').wrapping_add(10),
    }
}

/// Appends one chunk. Nothing for no data: an empty chunk would end the body.
pub fn put(data: &[u8], out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    put_size(data.len(), out);
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line before a chunk's data.
fn put_size(len: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0u8; 18];
    let mut at = text.len() - 2;
    text[at..].copy_from_slice(b"\r\n");
    let mut rest = len;
    loop {
        at -= 1;
        text[at] = DIGITS[rest & 15];
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

/// The end of a chunked body.
pub const END: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads in pieces of `step` bytes; gives the data and how much was consumed.
    fn read(text: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), BadChunk> {
        let (mut reader, mut out, mut used) = (Chunked::default(), Vec::new(), 0);
        for piece in text.chunks(step) {
            let took = reader.read(piece, |data| out.extend_from_slice(data))?;
            used += took;
            if took < piece.len() {
                break;
            }
        }
        Ok((out, used, reader.is_done()))
    }

    fn ok(text: &str, body: &str, used: usize) {
        for step in 1..=text.len() {
            let got = read(text.as_bytes(), step);
            let expected = Ok((body.as_bytes().to_vec(), used, true));
            assert_eq!(got, expected, "{text:?} in pieces of {step}");
        }
    }

    fn refused(text: &str) {
        for step in 1..=text.len() {
            assert!(read(text.as_bytes(), step).is_err(), "{text:?}, {step}");
        }
    }

    #[test]
    fn complete_bodies() {
        ok("0\r\n\r\n", "", 5);
        ok("5\r\nhello\r\n0\r\n\r\nGET /", "hello", 15);
        ok(
            "3;a=b\r\nabc\r\n2\r\nde\r\n0;x\r\nA: b\r\nC: d\r\n\r\nrest",
            "abcde",
            38,
        );
        ok("A\r\n0123456789\r\n000\r\n\r\n", "0123456789", 22);
    }

    #[test]
    fn what_breaks_the_rules() {
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            " 1\r\n",
            "1 \r\na\r\n",
            "0x1\r\n",
            "1\na\r\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "1;\n",
            "1;\0\r\n",
            "1;a\u{7f}\r\n",
            "0\r\nA: \u{1}\r\n\r\n",
            "0\r\n\n",
            "0\r\nA: b\n\r\n",
            "0\r\nGET / HTTP/1.1\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\nA : b\r\n\r\n",
            "0\r\nA: b\r\n folded\r\n\r\n",
            "0\r\n: b\r\n\r\n",
            "0\r\n\r\r\n",
            "1111111111111111\r\n",
        ] {
            refused(text);
        }
        refused(&format!("1;{}", "x".repeat(2000)));
        refused(&format!("0\r\n{}", "a: b\r\n".repeat(4000)));
    }

    #[test]
    fn the_longest_line_may_be_used_up() {
        let line = format!("1;{}", "x".repeat(1020));
        ok(&format!("{line}\r\na\r\n0\r\n\r\n"), "a", line.len() + 10);
    }

    #[test]
    fn an_unfinished_body_is_not_done() {
        for text in [
            "",
            "5",
            "5\r\nhel",
            "5\r\nhello\r\n",
            "0\r\n",
            "0\r\nA: b\r\n",
        ] {
            let got = read(text.as_bytes(), 100).unwrap();
            assert!(!got.2 && got.1 == text.len(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8), step in 1usize..64) {
            let mut text = Vec::new();
            for piece in &pieces {
                put(piece, &mut text);
            }
            text.extend_from_slice(END);
            let len = text.len();
            text.extend_from_slice(b"GET / HTTP/1.1\r\n");
            prop_assert_eq!(read(&text, step), Ok((pieces.concat(), len, true)));
        }

        #[test]
        fn pieces_do_not_matter(text in "[0-9a-f;\r\nxA: ]{0,40}", step in 1usize..8) {
            let whole = read(text.as_bytes(), text.len().max(1));
            let split = read(text.as_bytes(), step);
            match (whole, split) {
                (Ok(a), Ok(b)) => prop_assert_eq!(a, b),
                (Err(_), Err(_)) => {}
                (a, b) => prop_assert!(false, "{:?} and {:?}", a, b),
            }
        }
    }
}
