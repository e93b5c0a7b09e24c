//! The fields of a message head as places in the buffer they were read into.
//!
//! Nothing is copied and no map is built: looking a field up is a walk over at
//! most a hundred short slices, which is cheaper than hashing them all first.

use lockgate_plugin::HeaderKey;

/// A range of bytes in a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// From and up to these positions. Heads are bounded far below what 32 bits hold.
    #[allow(clippy::cast_possible_truncation)] // As said.
    pub fn new(start: usize, end: usize) -> Span {
        debug_assert!(u32::try_from(end).is_ok(), "a head of {end} bytes");
        Span {
            start: start as u32,
            end: end as u32,
        }
    }

    /// The bytes. Empty for a buffer that is not the one this was made for.
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// Where it ends.
    pub fn end(self) -> usize {
        self.end as usize
    }

    fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Splits a header line in its name and its value without blanks around it; `colon` is where
    /// the colon stands in the line.
    pub fn field(self, buf: &[u8], colon: usize) -> (Span, Span) {
        let start = self.start as usize;
        let mut from = start + colon + 1;
        let mut to = self.end as usize;
        let blank = |at: usize| matches!(buf.get(at), Some(b' ' | b'\t'));
        while from < to && blank(from) {
            from += 1;
        }
        while to > from && blank(to - 1) {
            to -= 1;
        }
        (Span::new(start, start + colon), Span::new(from, to))
    }
}

/// Field names that the proxy itself deals with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Name {
    /// Any other.
    #[default]
    Other,
    /// `Connection`
    Connection,
    /// `Content-Length`
    ContentLength,
    /// `Date`
    Date,
    /// `Expect`
    Expect,
    /// `Forwarded`
    Forwarded,
    /// `X-Forwarded-For`
    ForwardedFor,
    /// `X-Forwarded-Host`
    ForwardedHost,
    /// `X-Forwarded-Port`
    ForwardedPort,
    /// `X-Forwarded-Proto`
    ForwardedProto,
    /// `Host`
    Host,
    /// `HTTP2-Settings`
    Http2Settings,
    /// `Keep-Alive`
    KeepAlive,
    /// `Proxy-Connection`
    ProxyConnection,
    /// `X-Real-IP`
    RealIp,
    /// `TE`
    Te,
    /// `Trailer`
    Trailer,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Upgrade`
    Upgrade,
}

impl Name {
    /// Which of them a field's name is.
    pub fn of(name: &[u8]) -> Name {
        let (Some(first), Some(last)) = (name.first(), name.last()) else {
            return Name::Other;
        };
        // Length and two letters leave at most one candidate.
        let (text, found): (&[u8], Name) = match (name.len(), first | 0x20, last | 0x20) {
            (2, b't', _) => (b"te", Name::Te),
            (4, b'h', _) => (b"host", Name::Host),
            (4, b'd', _) => (b"date", Name::Date),
            (6, b'e', b't') => (b"expect", Name::Expect),
            (7, b'u', b'e') => (b"upgrade", Name::Upgrade),
            (7, b't', b'r') => (b"trailer", Name::Trailer),
            (9, b'x', b'p') => (b"x-real-ip", Name::RealIp),
            (9, b'f', b'd') => (b"forwarded", Name::Forwarded),
            (10, b'c', b'n') => (b"connection", Name::Connection),
            (10, b'k', b'e') => (b"keep-alive", Name::KeepAlive),
            (14, b'c', b'h') => (b"content-length", Name::ContentLength),
            (14, b'h', b's') => (b"http2-settings", Name::Http2Settings),
            (15, b'x', b'r') => (b"x-forwarded-for", Name::ForwardedFor),
            (16, b'p', b'n') => (b"proxy-connection", Name::ProxyConnection),
            (16, b'x', b't') => {
                // `-host` and `-port` end alike.
                match name.get(12).map(|b| b | 0x20) {
                    Some(b'h') => (b"x-forwarded-host", Name::ForwardedHost),
                    _ => (b"x-forwarded-port", Name::ForwardedPort),
                }
            }
            (17, b't', b'g') => (b"transfer-encoding", Name::TransferEncoding),
            (17, b'x', b'o') => (b"x-forwarded-proto", Name::ForwardedProto),
            _ => return Name::Other,
        };
        if same(name, text) { found } else { Name::Other }
    }
}

/// Whether a token is a name that is given in lower case, both of the same length. In whole words:
/// what setting their bit 5 makes of a token's other bytes is no letter, digit or `-`.
fn same(token: &[u8], lower: &[u8]) -> bool {
    const CASE: u64 = 0x2020_2020_2020_2020;
    let word = |text: &[u8]| text.first_chunk().map(|word| u64::from_le_bytes(*word));
    let last = |text: &[u8]| text.last_chunk().map(|word| u64::from_le_bytes(*word));
    let alike = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => a | CASE == b,
        _ => false,
    };
    match lower.len() {
        0..8 => token.eq_ignore_ascii_case(lower),
        len => {
            // The last word may overlap the one before.
            (0..len / 8).all(|i| {
                alike(
                    token.get(8 * i..).and_then(word),
                    lower.get(8 * i..).and_then(word),
                )
            }) && alike(last(token), last(lower))
        }
    }
}

/// A set of [`Name`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names(u32);

impl Names {
    /// Adds one. [`Name::Other`] is never a member.
    pub fn add(&mut self, name: Name) {
        if name != Name::Other {
            self.0 |= 1 << name as u32;
        }
    }

    /// Whether it has one.
    pub fn has(self, name: Name) -> bool {
        self.0 & (1 << name as u32) != 0
    }
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where its name stands, as it was spelled.
    pub name: Span,
    /// Where its value stands, without blanks around it.
    pub value: Span,
    /// What it is.
    pub known: Name,
}

impl Field {
    /// Where its whole line stands, if that is spelled as it would be written: name, colon, one
    /// space, value, CR LF. The scan has seen that there are no control bytes in it.
    pub fn line(&self, buf: &[u8]) -> Option<(usize, usize)> {
        let (name, value) = (self.name, self.value);
        let as_written = value.start == name.end + 2
            && buf.get(name.end as usize..value.start as usize) == Some(b": ")
            && buf.get(value.end()..value.end() + 2) == Some(b"\r\n");
        as_written.then(|| (name.start as usize, value.end() + 2))
    }
}

/// The fields of one head, in order.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    list: Vec<Field>,
}

impl Fields {
    /// Forgets all fields; keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// Adds a field. `buf` is the buffer that the spans are places in.
    pub fn push(&mut self, buf: &[u8], name: Span, value: Span) -> Name {
        let known = Name::of(name.of(buf));
        self.list.push(Field { name, value, known });
        known
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Field> {
        self.list.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The first value of a known name.
    pub fn known<'a>(&self, buf: &'a [u8], name: Name) -> Option<&'a [u8]> {
        let field = self.list.iter().find(|field| field.known == name)?;
        Some(field.value.of(buf))
    }

    /// The first value of a name.
    pub fn first<'a>(&self, buf: &'a [u8], key: &HeaderKey) -> Option<&'a [u8]> {
        let len = key.lower().len();
        let named = |field: &&Field| field.name.len() == len && key.is(field.name.of(buf));
        Some(self.list.iter().find(named)?.value.of(buf))
    }

    /// Every value of a name, in order.
    pub fn values<'a>(
        &'a self,
        buf: &'a [u8],
        key: &'a HeaderKey,
    ) -> impl Iterator<Item = &'a [u8]> {
        let len = key.lower().len();
        self.list
            .iter()
            .filter(move |field| field.name.len() == len && key.is(field.name.of(buf)))
            .map(|field| field.value.of(buf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        let check = |text: &str, expected| assert_eq!(Name::of(text.as_bytes()), expected);
        check("Host", Name::Host);
        check("HOST", Name::Host);
        check("x-forwarded-PORT", Name::ForwardedPort);
        check("Transfer-Encoding", Name::TransferEncoding);
        check("Hosts", Name::Other);
        check("hosx", Name::Other);
        check("", Name::Other);
    }

    #[test]
    fn values_come_in_order() {
        let buf = b"A1a2";
        let mut fields = Fields::default();
        fields.push(buf, Span::new(0, 1), Span::new(1, 2));
        fields.push(buf, Span::new(2, 3), Span::new(3, 4));
        let key: HeaderKey = "a".parse().unwrap();
        let got: Vec<&[u8]> = fields.values(buf, &key).collect();
        assert_eq!(got, [b"1", b"2"]);
        assert_eq!(Span::new(9, 12).of(buf), b"");
    }

    #[test]
    fn sets_hold_what_was_added() {
        let mut set = Names::default();
        set.add(Name::Upgrade);
        set.add(Name::Other);
        assert!(set.has(Name::Upgrade) && !set.has(Name::Host) && !set.has(Name::Other));
    }
}
