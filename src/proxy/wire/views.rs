//! Heads in buffers, shown as the pipeline's views.

use lockgate_plugin::{HeaderKey, ReqView, RespView};

use super::write_head::Line;
use crate::proxy::fields::{Fields, Name};
use crate::proxy::request_head::Head;

/// A request head in the connection's buffer.
#[derive(Clone, Copy)]
pub struct WireReq<'a> {
    buf: &'a [u8],
    fields: &'a Fields,
    head: &'a Head,
}

impl<'a> WireReq<'a> {
    /// Shows a head that was found in `buf`.
    pub fn new(buf: &'a [u8], fields: &'a Fields, head: &'a Head) -> WireReq<'a> {
        WireReq { buf, fields, head }
    }

    /// The fields and the buffer they are in.
    pub fn places(&self) -> (&'a [u8], impl Iterator<Item = Line<'a>>) {
        (self.buf, lines(self.buf, self.fields))
    }

    /// Every field: what it is, its name as spelled, its value.
    pub fn fields(&self) -> impl Iterator<Item = (Name, &'a [u8], &'a [u8])> {
        shown(self.buf, self.fields)
    }
}

impl ReqView for WireReq<'_> {
    fn method(&self) -> &str {
        // Other methods do not come here to be carried, but may be asked about.
        self.head.known_method.unwrap_or_else(|| {
            std::str::from_utf8(self.head.method.of(self.buf)).unwrap_or_default()
        })
    }
    fn target(&self) -> &[u8] {
        self.head.target.of(self.buf)
    }
    fn version(&self) -> u8 {
        if self.head.http11 { 11 } else { 10 }
    }
    fn authority(&self) -> &[u8] {
        self.head.host.of(self.buf)
    }
    fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        self.fields.first(self.buf, key)
    }
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        self.fields.values(self.buf, key).for_each(f);
    }
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        self.fields().for_each(|(_, name, value)| f(name, value));
    }
}

/// An upstream's response head.
#[derive(Clone, Copy)]
pub struct WireResp<'a> {
    buf: &'a [u8],
    fields: &'a Fields,
    status: u16,
}

impl<'a> WireResp<'a> {
    /// Shows a head that was found in `buf`.
    pub fn new(buf: &'a [u8], fields: &'a Fields, status: u16) -> WireResp<'a> {
        WireResp {
            buf,
            fields,
            status,
        }
    }

    /// The fields and the buffer they are in.
    pub fn places(&self) -> (&'a [u8], impl Iterator<Item = Line<'a>>) {
        (self.buf, lines(self.buf, self.fields))
    }

    /// Every field: what it is, its name as spelled, its value.
    pub fn fields(&self) -> impl Iterator<Item = (Name, &'a [u8], &'a [u8])> {
        shown(self.buf, self.fields)
    }
}

impl RespView for WireResp<'_> {
    fn status(&self) -> u16 {
        self.status
    }
    fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        self.fields.first(self.buf, key)
    }
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        self.fields.values(self.buf, key).for_each(f);
    }
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        self.fields().for_each(|(_, name, value)| f(name, value));
    }
}

fn lines<'a>(buf: &'a [u8], fields: &'a Fields) -> impl Iterator<Item = Line<'a>> {
    fields.iter().map(move |field| Line {
        known: field.known,
        name: field.name.of(buf),
        value: field.value.of(buf),
        place: field.line(buf),
    })
}

fn shown<'a>(
    buf: &'a [u8],
    fields: &'a Fields,
) -> impl Iterator<Item = (Name, &'a [u8], &'a [u8])> {
    fields
        .iter()
        .map(move |field| (field.known, field.name.of(buf), field.value.of(buf)))
}
