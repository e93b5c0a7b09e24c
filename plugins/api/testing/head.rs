//! Message heads as lists of fields.

use bytes::Bytes;

use crate::edits::{HeaderEdits, HeaderOp};
use crate::header::HeaderKey;
use crate::view::{ReqView, RespView};

/// Fields in order, names as they were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(pub(super) Vec<(String, Bytes)>);

impl Fields {
    pub(super) fn add(&mut self, name: &str, value: &[u8]) {
        self.0
            .push((name.to_owned(), Bytes::copy_from_slice(value)));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }

    pub(super) fn first(&self, name: &str) -> Option<&[u8]> {
        let found = self
            .0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    pub(super) fn each(&self, name: &str, f: &mut dyn FnMut(&[u8])) {
        let found = self
            .0
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.for_each(|(_, value)| f(value));
    }

    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let mut out = Vec::new();
        self.each(name, &mut |value| {
            out.push(String::from_utf8_lossy(value).into_owned())
        });
        out
    }

    /// The fields after the changes, as the proxy would write them.
    pub(super) fn edited(&self, edits: &HeaderEdits) -> Fields {
        let mut out = self.clone();
        for op in edits.ops() {
            match op {
                HeaderOp::Set(key, value) => {
                    out.remove(key.lower());
                    out.add(key.spelled(), value);
                }
                HeaderOp::Append(key, value) => out.add(key.spelled(), value),
                HeaderOp::Remove(key) => out.remove(key.lower()),
            }
        }
        out
    }
}

/// A request head.
#[derive(Clone, Debug)]
pub(super) struct Req {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: u8,
    pub(super) fields: Fields,
}

impl ReqView for Req {
    fn method(&self) -> &str {
        &self.method
    }
    fn target(&self) -> &[u8] {
        self.target.as_bytes()
    }
    fn version(&self) -> u8 {
        self.version
    }
    fn authority(&self) -> &[u8] {
        self.fields.first("host").unwrap_or_default()
    }
    fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        self.fields.first(key.lower())
    }
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        self.fields.each(key.lower(), f);
    }
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        self.fields
            .0
            .iter()
            .for_each(|(name, value)| f(name.as_bytes(), value));
    }
}

/// A response head.
#[derive(Clone, Debug, Default)]
pub(super) struct Resp {
    pub(super) status: u16,
    pub(super) fields: Fields,
}

impl RespView for Resp {
    fn status(&self) -> u16 {
        self.status
    }
    fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        self.fields.first(key.lower())
    }
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        self.fields.each(key.lower(), f);
    }
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        self.fields
            .0
            .iter()
            .for_each(|(name, value)| f(name.as_bytes(), value));
    }
}
