//! The wire lane: plain HTTP/1 requests, from head to log line, without header maps.
//!
//! The connection loop ([`front`](super::front)) reads a head and checks it. If
//! nothing in it is unusual ([`Head::ordinary`]) and the matched route needs
//! nothing else, this lane carries the request: heads stay slices of the buffers
//! they were read into, changes are applied while a head is written, idle
//! upstream connections are parked beside their node. Everything else goes to
//! the general lane, request by request, on the same connection.
//!
//! | file | what is there |
//! |---|---|
//! | [`exchange`] | one request: the pipeline's steps, and the tries |
//! | [`connect`] | a connection to the node: taken, made, parked |
//! | [`ask`] | the request sent, and the wait for the head of its answer |
//! | [`relay`] | the upstream's answer on its way to the client |
//! | [`tunnel`] | bytes both ways, once the upstream agreed to WebSocket |
//! | [`answer`] | the gateway's own |
//! | [`upload`] | the request on its way upstream |
//! | [`response_head`], [`chunked`] | what an upstream may send; pure |
//! | [`write_head`], [`views`] | heads written, heads shown; pure |
//! | [`buffers`], [`deadline`] | buffers lent by the worker, one timer for each connection |

#![forbid(unsafe_code)]

pub mod answer;
pub mod ask;
pub mod buffers;
pub mod chunked;
pub mod connect;
pub mod deadline;
pub mod exchange;
pub mod relay;
pub mod response_head;
pub mod tunnel;
pub mod upload;
pub mod views;
pub mod write;
pub mod write_head;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_plugin::Conn;

use self::deadline::Deadline;
use self::views::WireReq;
use self::write_head::DateText;
use super::core::Core;
use super::fields::Fields;
use super::head::AddressText;
use super::request_head::Head;
use crate::upstream::{Connector, Sweeper};

/// What all connections of the lane share.
pub struct Wire {
    /// The process.
    pub core: Arc<Core>,
    /// Closes idle upstream connections.
    pub sweeper: Arc<Sweeper>,
    /// Makes TLS connections.
    pub connector: Connector,
    /// Idle connections that are kept to one address.
    pub idle: usize,
    /// Requests that one upstream connection carries.
    pub carries: u32,
}

/// A client's connection, between requests and during them.
pub struct Client {
    /// What was read and is not used up.
    pub inb: Vec<u8>,
    /// The fields of the current request.
    pub fields: Fields,
    /// Ends every wait.
    pub deadline: Deadline,
    /// Who it is.
    pub conn: Conn,
    /// Requests so far, the current one included.
    pub requests: u32,
    /// When the last one ended, for those who come at once.
    pub ended: Option<Instant>,
    /// The current response's head.
    resp: Vec<u8>,
    resp_fields: Fields,
    date: DateText,
    address: AddressText,
}

impl Client {
    /// A connection that was just accepted; its first wait ends after `first`.
    pub fn new(conn: Conn, first: Duration) -> Client {
        Client {
            inb: Vec::new(),
            fields: Fields::default(),
            deadline: Deadline::new(first),
            conn,
            requests: 0,
            ended: None,
            resp: Vec::new(),
            resp_fields: Fields::default(),
            date: DateText::default(),
            address: AddressText::default(),
        }
    }

    /// The current request.
    pub fn req<'a>(&'a self, head: &'a Head) -> WireReq<'a> {
        WireReq::new(&self.inb, &self.fields, head)
    }

    /// The current request's target, as it was sent.
    pub fn target(&self, head: &Head) -> &[u8] {
        head.target.of(&self.inb)
    }

    /// Forgets the first `used` bytes, and gives the buffers back that are empty then.
    pub fn done_with(&mut self, used: usize) {
        buffers::give_back(&mut self.resp);
        if used >= self.inb.len() {
            buffers::give_back(&mut self.inb);
        } else {
            self.inb.drain(..used);
        }
    }
}
