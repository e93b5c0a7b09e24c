//! Pingora's heads, shown as the pipeline's views, and edits applied to them.

use bytes::Bytes;
use http::{HeaderName, Version};
use lockgate_plugin::{HeaderKey, HeaderOp, ReqView, RespView};
use pingora_core::Result;
use pingora_http::{RequestHeader, ResponseHeader};

/// A request head of the general lane.
pub struct Req<'a> {
    head: &'a RequestHeader,
    target: Target<'a>,
}

enum Target<'a> {
    Borrowed(&'a [u8]),
    Slash,
}

impl<'a> Req<'a> {
    /// Shows a request head. An absolute-form target is shown from its path on.
    pub fn new(head: &'a RequestHeader) -> Req<'a> {
        let raw = head.raw_path();
        let target = if raw.first() == Some(&b'/') || raw == b"*" {
            Target::Borrowed(raw)
        } else {
            match origin_form(raw) {
                Some(path) => Target::Borrowed(path),
                None => Target::Slash,
            }
        };
        Req { head, target }
    }
}

/// `http://host/path` without `http://host`; `None` when nothing is left.
pub fn origin_form(raw: &[u8]) -> Option<&[u8]> {
    let after = memchr::memmem::find(raw, b"://").map(|at| &raw[at + 3..])?;
    let at = after.iter().position(|&b| b == b'/' || b == b'?')?;
    (after[at] == b'/').then(|| &after[at..])
}

impl ReqView for Req<'_> {
    fn method(&self) -> &str {
        self.head.method.as_str()
    }
    fn target(&self) -> &[u8] {
        match self.target {
            Target::Borrowed(raw) => raw,
            Target::Slash => b"/",
        }
    }
    fn version(&self) -> u8 {
        version(self.head.version)
    }
    fn authority(&self) -> &[u8] {
        match self.head.headers.get(http::header::HOST) {
            Some(host) => host.as_bytes(),
            None => self
                .head
                .uri
                .authority()
                .map_or(b"", |a| a.as_str().as_bytes()),
        }
    }
    fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        self.head.headers.get(key.name()).map(|v| v.as_bytes())
    }
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        self.head
            .headers
            .get_all(key.name())
            .iter()
            .for_each(|v| f(v.as_bytes()));
    }
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        self.head
            .headers
            .iter()
            .for_each(|(k, v)| f(k.as_str().as_bytes(), v.as_bytes()));
    }
}

/// A response head of the general lane.
pub struct Resp<'a>(pub &'a ResponseHeader);

impl RespView for Resp<'_> {
    fn status(&self) -> u16 {
        self.0.status.as_u16()
    }
    fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        self.0.headers.get(key.name()).map(|v| v.as_bytes())
    }
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        self.0
            .headers
            .get_all(key.name())
            .iter()
            .for_each(|v| f(v.as_bytes()));
    }
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        self.0
            .headers
            .iter()
            .for_each(|(k, v)| f(k.as_str().as_bytes(), v.as_bytes()));
    }
}

fn version(version: Version) -> u8 {
    match version {
        Version::HTTP_09 => 9,
        Version::HTTP_10 => 10,
        Version::HTTP_2 => 20,
        Version::HTTP_3 => 30,
        _ => 11,
    }
}

/// A head whose fields can be changed. Pingora's two have the same methods, but no trait in common.
pub trait Fields {
    /// Puts a field in the place of all of its name.
    ///
    /// # Errors
    /// When the value is not a header value.
    fn insert(&mut self, name: Bytes, value: &[u8]) -> Result<()>;
    /// Adds a field.
    ///
    /// # Errors
    /// As for [`Fields::insert`].
    fn append(&mut self, name: Bytes, value: &[u8]) -> Result<()>;
    /// Removes all fields of a name.
    fn remove(&mut self, name: &HeaderName);
}

impl Fields for RequestHeader {
    fn insert(&mut self, name: Bytes, value: &[u8]) -> Result<()> {
        self.insert_header(name, value)
    }
    fn append(&mut self, name: Bytes, value: &[u8]) -> Result<()> {
        self.append_header(name, value).map(drop)
    }
    fn remove(&mut self, name: &HeaderName) {
        self.remove_header(name);
    }
}

impl Fields for ResponseHeader {
    fn insert(&mut self, name: Bytes, value: &[u8]) -> Result<()> {
        self.insert_header(name, value)
    }
    fn append(&mut self, name: Bytes, value: &[u8]) -> Result<()> {
        self.append_header(name, value).map(drop)
    }
    fn remove(&mut self, name: &HeaderName) {
        self.remove_header(name);
    }
}

/// Applies header changes to a head.
///
/// # Errors
/// When a value is not a header value; edits are cleaned before, so this does not happen.
pub fn edit<'a>(head: &mut impl Fields, ops: impl Iterator<Item = &'a HeaderOp>) -> Result<()> {
    for op in ops {
        match op {
            HeaderOp::Set(key, value) => head.insert(key.spelled_bytes().clone(), value)?,
            HeaderOp::Append(key, value) => head.append(key.spelled_bytes().clone(), value)?,
            HeaderOp::Remove(key) => head.remove(key.name()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_targets_are_shown_in_origin_form() {
        let check = |raw: &str, expected: &str| {
            let head = RequestHeader::build("GET", raw.as_bytes(), None).unwrap();
            assert_eq!(Req::new(&head).target(), expected.as_bytes(), "{raw}");
        };
        check("/a?b", "/a?b");
        check("http://h.test/a?b=http://x/", "/a?b=http://x/");
        check("http://h.test", "/");
        check("http://h.test:80/", "/");
    }
}
