//! Changes that plugins ask for. The lane applies them once, while it writes the head.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::header::HeaderKey;

/// One change of a header.
#[derive(Clone, Debug)]
pub enum HeaderOp {
    /// Replaces all values of the field.
    Set(HeaderKey, Bytes),
    /// Adds a value beside those that are there.
    Append(HeaderKey, Bytes),
    /// Removes all values of the field.
    Remove(HeaderKey),
}

impl HeaderOp {
    /// The field it changes.
    pub fn key(&self) -> &HeaderKey {
        match self {
            HeaderOp::Set(key, _) | HeaderOp::Append(key, _) | HeaderOp::Remove(key) => key,
        }
    }
}

/// An ordered list of header changes. Later changes see earlier ones.
#[derive(Clone, Debug, Default)]
pub struct HeaderEdits {
    ops: SmallVec<[HeaderOp; 6]>,
}

impl HeaderEdits {
    /// Replaces all values of a field. Control bytes in the value are written as `%0A` and the
    /// like, so that a value taken from a request can never start a new header line.
    pub fn set(&mut self, key: &HeaderKey, value: Bytes) {
        // A later `set` makes everything before it about the same field moot.
        self.forget(key);
        self.ops.push(HeaderOp::Set(key.clone(), clean(value)));
    }

    /// As [`set`](Self::set), for a value that was looked at before: it has no control bytes.
    pub fn set_clean(&mut self, key: &HeaderKey, value: Bytes) {
        debug_assert!(is_clean(&value), "{value:?} has control bytes");
        self.forget(key);
        self.ops.push(HeaderOp::Set(key.clone(), value));
    }

    /// Adds a value to a field. Control bytes are escaped as in [`set`](Self::set).
    pub fn append(&mut self, key: &HeaderKey, value: Bytes) {
        self.ops.push(HeaderOp::Append(key.clone(), clean(value)));
    }

    /// Removes a field.
    pub fn remove(&mut self, key: &HeaderKey) {
        self.forget(key);
        self.ops.push(HeaderOp::Remove(key.clone()));
    }

    fn forget(&mut self, key: &HeaderKey) {
        if self.ops.iter().any(|op| op.key() == key) {
            self.ops.retain(|op| op.key() != key);
        }
    }

    /// The changes, in order.
    pub fn ops(&self) -> &[HeaderOp] {
        &self.ops
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Forgets all changes.
    pub fn clear(&mut self) {
        self.ops.clear();
    }

    /// The first value of a field after the changes, given its first value before them.
    pub fn first<'a>(&'a self, key: &HeaderKey, original: Option<&'a [u8]>) -> Option<&'a [u8]> {
        let mut value = original;
        for op in self.ops.iter().filter(|op| op.key() == key) {
            match op {
                HeaderOp::Set(_, v) => value = Some(v),
                HeaderOp::Append(_, v) => value = value.or(Some(v)),
                HeaderOp::Remove(_) => value = None,
            }
        }
        value
    }

    /// Every value of a field after the changes. `originals` gives the values before them; it is
    /// not called when the field was replaced or removed.
    pub fn each(
        &self,
        key: &HeaderKey,
        originals: impl FnOnce(&mut dyn FnMut(&[u8])),
        f: &mut dyn FnMut(&[u8]),
    ) {
        // `set` and `remove` drop earlier changes, so such a change is the first one of its field.
        let mut rest = self.ops.iter().filter(|op| op.key() == key).peekable();
        match rest.peek() {
            Some(HeaderOp::Set(..) | HeaderOp::Remove(_)) => {}
            _ => originals(f),
        }
        for op in rest {
            if let HeaderOp::Set(_, v) | HeaderOp::Append(_, v) = op {
                f(v);
            }
        }
    }
}

/// Changes of the request that goes upstream.
#[derive(Clone, Debug, Default)]
pub struct RequestEdits {
    /// Header changes.
    pub headers: HeaderEdits,
    /// Another method.
    pub method: Option<Bytes>,
    /// Another request target, encoded, path and query. Set with [`Ctx::set_uri`](crate::Ctx::set_uri).
    pub target: Option<Bytes>,
    /// Another `Host`. An upstream with `pass_host` `node` or `rewrite` has the last word.
    pub host: Option<Bytes>,
}

/// Changes of the response that goes to the client.
#[derive(Clone, Debug, Default)]
pub struct ResponseEdits {
    /// Header changes.
    pub headers: HeaderEdits,
    /// Another status code.
    pub status: Option<u16>,
    /// A body filter will change the length: `Content-Length` goes, framing is chosen anew.
    pub resize: bool,
}

/// Whether a header value may stand on the wire as it is: no control bytes except tab.
pub fn is_clean(value: &[u8]) -> bool {
    // No early end: the compiler makes wide comparisons of it.
    value.iter().fold(true, |clean, &b| {
        clean & ((b >= 0x20) | (b == b'\t')) & (b != 0x7f)
    })
}

pub(crate) fn clean(value: Bytes) -> Bytes {
    if is_clean(&value) {
        return value;
    }
    let mut out = Vec::with_capacity(value.len() + 8);
    for &b in value.iter() {
        if (b < 0x20 && b != b'\t') || b == 0x7f {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.extend_from_slice(&[b'%', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
        } else {
            out.push(b);
        }
    }
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(edit: impl FnOnce(&mut HeaderEdits, &HeaderKey), before: &[&str], after: &[&str]) {
        let key: HeaderKey = "X-A".parse().unwrap();
        let mut edits = HeaderEdits::default();
        edit(&mut edits, &key);
        let mut got = Vec::new();
        edits.each(
            &key,
            |f| before.iter().for_each(|v| f(v.as_bytes())),
            &mut |v| got.push(String::from_utf8_lossy(v).into_owned()),
        );
        assert_eq!(got, after);
        let first = edits.first(&key, before.first().map(|v| v.as_bytes()));
        assert_eq!(first, after.first().map(|v| v.as_bytes()));
    }

    #[test]
    fn later_changes_see_earlier_ones() {
        check(|_, _| {}, &["1", "2"], &["1", "2"]);
        check(|e, k| e.set(k, "x".into()), &["1", "2"], &["x"]);
        check(|e, k| e.append(k, "x".into()), &["1"], &["1", "x"]);
        check(|e, k| e.append(k, "x".into()), &[], &["x"]);
        check(|e, k| e.remove(k), &["1"], &[]);
        check(
            |e, k| {
                e.append(k, "gone".into());
                e.set(k, "a".into());
                e.append(k, "b".into());
            },
            &["1"],
            &["a", "b"],
        );
        check(
            |e, k| {
                e.set(k, "a".into());
                e.remove(k);
                e.append(k, "b".into());
            },
            &["1"],
            &["b"],
        );
    }

    #[test]
    fn a_value_cannot_start_a_new_line() {
        check(
            |e, k| e.set(k, "a\r\nEvil: 1\0".into()),
            &[],
            &["a%0D%0AEvil: 1%00"],
        );
        check(|e, k| e.set(k, "a\tb".into()), &[], &["a\tb"]);
    }
}
