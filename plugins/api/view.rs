//! What the lanes of the proxy show of a message head.
//!
//! Each lane implements these over what it has: slices of the connection buffer
//! or a parsed header map. Nothing here allocates.

use crate::header::HeaderKey;

/// A request head as the client sent it. Changes by plugins are in
/// [`RequestEdits`](crate::RequestEdits); [`Ctx`](crate::Ctx) shows both together.
pub trait ReqView: Send + Sync {
    /// The method, such as `GET`.
    fn method(&self) -> &str;
    /// The request target in origin form, undecoded: path and query.
    fn target(&self) -> &[u8];
    /// `1.0`, `1.1` or `2.0`, times ten: 10, 11, 20.
    fn version(&self) -> u8;
    /// The authority the client asked for: the `Host` field or `:authority`, port included.
    fn authority(&self) -> &[u8];
    /// The first value of a field.
    fn header(&self, key: &HeaderKey) -> Option<&[u8]>;
    /// Every value of a field, in order.
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8]));
    /// Every field, in order as far as the lane knows it.
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8]));
}

/// A response head as the upstream, or the gateway itself, made it.
pub trait RespView: Send + Sync {
    /// The status code.
    fn status(&self) -> u16;
    /// The first value of a field.
    fn header(&self, key: &HeaderKey) -> Option<&[u8]>;
    /// Every value of a field, in order.
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8]));
    /// Every field, in order as far as the lane knows it.
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8]));
}
