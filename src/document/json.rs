//! JSON by RFC 8259, read strictly and with places.

use std::sync::Arc;

use lockgate_plugin::Problems;
use serde_json::{Number, Value};

use super::tree::{Key, Node, Size, Spot, Tree};

/// The value, its own spot, and the spots of its parts.
pub(super) fn read(text: &str, file: &Arc<str>) -> Result<(Value, Spot, Vec<Spot>), Problems> {
    let mut reader = Reader {
        text,
        at: 0,
        seen: 0,
        line: 1,
        column: 1,
        tree: Tree::new(file),
    };
    reader.skip_space();
    if !text.is_empty() && reader.peek().is_some() {
        reader.value()?;
        reader.skip_space();
        if reader.peek().is_some() {
            return Err(reader.fail("something follows the end of the value"));
        }
    }
    reader.tree.finish()
}

struct Reader<'t> {
    text: &'t str,
    /// Next byte.
    at: usize,
    /// Byte up to which `line` and `column` have counted: places are asked for in order, so the
    /// whole text is counted once.
    seen: usize,
    line: u32,
    column: u32,
    tree: Tree<'t>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Line and column of the next byte.
    fn place(&mut self) -> (u32, u32) {
        for b in &self.text.as_bytes()[self.seen..self.at] {
            match b {
                b'\n' => (self.line, self.column) = (self.line + 1, 1),
                // A continuation byte is no character of its own.
                0x80..=0xbf => {}
                _ => self.column += 1,
            }
        }
        self.seen = self.at;
        (self.line, self.column)
    }

    fn fail(&mut self, message: impl Into<String>) -> Problems {
        let place = self.place();
        self.tree.fail(place, message)
    }

    /// Complains about the next character.
    fn unexpected(&mut self, wanted: &str) -> Problems {
        let found = match self.text[self.at..].chars().next() {
            Some(c) => format!("`{}`", c.escape_debug()),
            None => "the end".to_owned(),
        };
        self.fail(format!("not JSON: expected {wanted}, found {found}"))
    }

    fn expect(&mut self, byte: u8, wanted: &str) -> Result<(), Problems> {
        self.skip_space();
        if self.peek() != Some(byte) {
            return Err(self.unexpected(wanted));
        }
        self.at += 1;
        Ok(())
    }

    /// One value. Recursion is bounded: the tree refuses to open containers that lie too deep.
    fn value(&mut self) -> Result<(), Problems> {
        self.skip_space();
        let place = self.place();
        let value = match self.peek() {
            Some(b'{') => return self.map(place),
            Some(b'[') => return self.list(place),
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => Value::Number(self.number()?),
            _ => self.word()?,
        };
        let size = Size::scalar(&value);
        self.tree.put(Node {
            value,
            spot: Spot::new(place),
            size,
        })
    }

    fn word(&mut self) -> Result<Value, Problems> {
        let words = [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ];
        for (word, value) in words {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("a value"))
    }

    fn list(&mut self, place: (u32, u32)) -> Result<(), Problems> {
        self.tree.open_list(place, 0)?;
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return self.tree.close().map(drop);
        }
        loop {
            self.value()?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return self.tree.close().map(drop);
                }
                _ => return Err(self.unexpected("`,` or `]`")),
            }
        }
    }

    fn map(&mut self, place: (u32, u32)) -> Result<(), Problems> {
        self.tree.open_map(place, 0)?;
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return self.tree.close().map(drop);
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a name in double quotes"));
            }
            let place = self.place();
            let name = self.string()?;
            self.tree.key(Key::Text(name), place);
            self.expect(b':', "`:`")?;
            self.value()?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return self.tree.close().map(drop);
                }
                _ => return Err(self.unexpected("`,` or `}`")),
            }
        }
    }

    /// A string; the opening quote is next.
    fn string(&mut self) -> Result<String, Problems> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .bytes()
                .position(|b| matches!(b, b'"' | b'\\' | 0..0x20));
            let Some(plain) = plain else {
                self.at = self.text.len();
                return Err(self.unexpected("a closing `\"`"));
            };
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                _ => return Err(self.fail("not JSON: a control character inside a string")),
            }
        }
    }

    /// One escape; the backslash is next.
    fn escape(&mut self) -> Result<char, Problems> {
        let c = match self.text.as_bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.fail("not JSON: an unknown escape")),
        };
        self.at += 2;
        Ok(c)
    }

    /// `\uXXXX`, or two of them for one character beyond the first 65 536.
    fn unicode_escape(&mut self) -> Result<char, Problems> {
        let first = self.hex_at(self.at);
        let (code, len) = match first {
            Some(high @ 0xd800..=0xdbff) => match self.hex_at(self.at + 6) {
                Some(low @ 0xdc00..=0xdfff) => {
                    (Some(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 12)
                }
                _ => (None, 0),
            },
            other => (other, 6),
        };
        let Some(c) = code.and_then(char::from_u32) else {
            return Err(self.fail("not JSON: an escape that is no character"));
        };
        self.at += len;
        Ok(c)
    }

    /// The number of a `\uXXXX` at `at`.
    fn hex_at(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| plain)
    }

    fn number(&mut self) -> Result<Number, Problems> {
        let rest = &self.text.as_bytes()[self.at..];
        let digits = |from: usize| {
            from + rest[from.min(rest.len())..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count()
        };
        let whole = usize::from(rest.first() == Some(&b'-'));
        let mut end = digits(whole);
        let mut fits = end > whole && (rest[whole] != b'0' || end == whole + 1);
        let mut integer = true;
        if rest.get(end) == Some(&b'.') {
            integer = false;
            let fraction = end + 1;
            end = digits(fraction);
            fits &= end > fraction;
        }
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            integer = false;
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = end + 1 + sign;
            end = digits(exponent);
            fits &= end > exponent;
        }
        let text = &self.text[self.at..self.at + end];
        if !fits {
            return Err(self.fail(format!("not JSON: `{text}` is not a number")));
        }
        let exact = text
            .parse::<i64>()
            .map(Number::from)
            .or_else(|_| text.parse::<u64>().map(Number::from));
        let number = match exact {
            Ok(number) if integer => Some(number),
            _ => text.parse::<f64>().ok().and_then(Number::from_f64),
        };
        let Some(number) = number else {
            return Err(self.fail(format!("the number `{text}` is too large")));
        };
        self.at += end;
        Ok(number)
    }
}
