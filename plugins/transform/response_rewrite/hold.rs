//! Holds a body back until it is whole or too long.

use std::io;

use bytes::Bytes;
use lockgate_plugin::Chunk;

use super::decode::{Decoder, Encoding};
use super::filter::{self, Filter};

/// How much a piece may grow when it is decompressed, or by the limit if that is higher: beyond
/// honest text, whose pieces of up to 64 KiB grow twentyfold at most, and a bound for bombs.
const PIECE_GROWTH: usize = 4 << 20;

/// A body on its way through the filters.
pub(super) struct Hold {
    decoder: Decoder,
    limit: usize,
    /// Whether anything has come: the answer to a HEAD request names an encoding but has no body.
    begun: bool,
    /// Whether the body was too long to be held, and is sent on as it comes.
    passing: bool,
    plain: bool,
}

/// What [`Hold::pass`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// Held the piece, or sent the changed body, or sent a piece of a body known to be too long.
    AsPlanned,
    /// Found that the body is too long.
    TooLong,
}

impl Hold {
    pub(super) fn new(encoding: Encoding, limit: usize) -> Hold {
        Hold {
            decoder: Decoder::new(encoding),
            limit,
            begun: false,
            passing: false,
            plain: encoding == Encoding::Plain,
        }
    }

    /// Takes a piece of the body and leaves in its place what is to be sent now.
    ///
    /// Memory: the limit and what one piece may grow to, [`PIECE_GROWTH`].
    ///
    /// # Errors
    /// When the body cannot be decompressed.
    pub(super) fn pass(&mut self, chunk: &mut Chunk, filters: &[Filter]) -> io::Result<Passed> {
        if self.passing && self.plain {
            return Ok(Passed::AsPlanned);
        }
        let growth = self.limit.max(PIECE_GROWTH);
        let room = if self.plain { chunk.data.len() } else { growth };
        self.begun |= !chunk.data.is_empty();
        self.decoder.push(&chunk.data, room)?;
        if chunk.last && self.begun {
            self.decoder.finish(growth)?;
        }
        let bytes = &mut self.decoder.sink().bytes;
        if self.passing {
            chunk.data = Bytes::from(std::mem::take(bytes));
            return Ok(Passed::AsPlanned);
        }
        if bytes.len() > self.limit {
            chunk.data = Bytes::from(std::mem::take(bytes));
            self.passing = true;
            return Ok(Passed::TooLong);
        }
        chunk.data = match chunk.last {
            true => filter::apply(filters, std::mem::take(bytes)),
            false => Bytes::new(),
        };
        Ok(Passed::AsPlanned)
    }
}
