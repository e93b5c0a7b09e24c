//! Decompresses a body piece by piece, never more than there is room for.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::{MultiGzDecoder, ZlibDecoder};

/// Bytes that the Brotli decoder hands over at a time.
const BROTLI_BUFFER: usize = 16 * 1024;

/// A `Content-Encoding` that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
    Deflate,
    Brotli,
}

impl Encoding {
    /// The encoding with this name; `None` for others, and for several on top of each other.
    pub(super) fn of(value: Option<&[u8]>) -> Option<Encoding> {
        let names: [(&[u8], Encoding); 6] = [
            (b"", Encoding::Plain),
            (b"identity", Encoding::Plain),
            (b"gzip", Encoding::Gzip),
            (b"x-gzip", Encoding::Gzip),
            (b"deflate", Encoding::Deflate),
            (b"br", Encoding::Brotli),
        ];
        let value = value.unwrap_or_default().trim_ascii();
        let found = names
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(value));
        found.map(|(_, encoding)| *encoding)
    }
}

/// Takes a body in pieces and collects what it was before compression.
pub(super) enum Decoder {
    Plain(Sink),
    Gzip(Box<MultiGzDecoder<Sink>>),
    Deflate(Box<ZlibDecoder<Sink>>),
    Brotli(Box<DecompressorWriter<Sink>>),
    /// Failed, or the body is over.
    Closed(Sink),
}

/// Bytes on their way, with a limit.
#[derive(Default)]
pub(super) struct Sink {
    pub(super) bytes: Vec<u8>,
    limit: usize,
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.len() > self.limit.saturating_sub(self.bytes.len()) {
            return Err(io::Error::other("a piece grows too much"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Decoder {
    pub(super) fn new(encoding: Encoding) -> Decoder {
        let sink = Sink::default();
        match encoding {
            Encoding::Plain => Decoder::Plain(sink),
            Encoding::Gzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(sink))),
            Encoding::Deflate => Decoder::Deflate(Box::new(ZlibDecoder::new(sink))),
            Encoding::Brotli => {
                Decoder::Brotli(Box::new(DecompressorWriter::new(sink, BROTLI_BUFFER)))
            }
        }
    }

    /// What has come out so far and was not taken.
    pub(super) fn sink(&mut self) -> &mut Sink {
        match self {
            Decoder::Plain(sink) | Decoder::Closed(sink) => sink,
            Decoder::Gzip(decoder) => decoder.get_mut(),
            Decoder::Deflate(decoder) => decoder.get_mut(),
            Decoder::Brotli(decoder) => decoder.get_mut(),
        }
    }

    /// Puts a piece in; at most `room` bytes more may come out.
    ///
    /// # Errors
    /// When the data is damaged or there is more.
    pub(super) fn push(&mut self, data: &[u8], room: usize) -> io::Result<()> {
        let sink = self.sink();
        sink.limit = sink.bytes.len().saturating_add(room);
        match self {
            Decoder::Plain(sink) => sink.write_all(data),
            Decoder::Gzip(decoder) => feed(decoder, data),
            Decoder::Deflate(decoder) => feed(decoder, data),
            Decoder::Brotli(decoder) => feed(decoder, data),
            Decoder::Closed(_) => Ok(()),
        }
    }

    /// The body is over; at most `room` bytes more may come out.
    ///
    /// # Errors
    /// When the body ends too early or there is more.
    pub(super) fn finish(&mut self, room: usize) -> io::Result<()> {
        let sink = self.sink();
        sink.limit = sink.bytes.len().saturating_add(room);
        let (sink, result) = match std::mem::replace(self, Decoder::Closed(Sink::default())) {
            Decoder::Plain(sink) | Decoder::Closed(sink) => (sink, Ok(())),
            Decoder::Gzip(mut decoder) => {
                let result = decoder.try_finish();
                (std::mem::take(decoder.get_mut()), result)
            }
            Decoder::Deflate(mut decoder) => {
                let result = decoder.try_finish();
                (std::mem::take(decoder.get_mut()), result)
            }
            Decoder::Brotli(decoder) => match decoder.into_inner() {
                Ok(sink) => (sink, Ok(())),
                Err(sink) => (sink, Err(io::ErrorKind::UnexpectedEof.into())),
            },
        };
        *self = Decoder::Closed(sink);
        result
    }
}

/// Writes all. What follows the end of zlib or Brotli data is left out; behind gzip data only more
/// gzip data may follow.
fn feed(decoder: &mut impl Write, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match decoder.write(data)? {
            0 => break,
            taken => data = data.get(taken..).unwrap_or_default(),
        }
    }
    // Brings out what the decoder holds, for bodies that are sent on piece by piece.
    decoder.flush()
}
