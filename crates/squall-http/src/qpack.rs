//! Compression of fields for HTTP/3 (QPACK, RFC 9204).
//!
//! An [`Encoder`] uses the static table and literals, and a dynamic table if it is given one: then
//! it refers only to entries that the peer has acknowledged, so that no stream waits for another. A
//! [`Decoder`] takes what any encoder may send, with a dynamic table of bounded size, and compares
//! the decoded length with a limit before it copies anything.

mod decoder;
mod encoder;
mod integer;
mod table;

#[cfg(test)]
mod tests;

use std::fmt;

pub use crate::hpack::{Field, Fixed};
use crate::hpack::{HpackError, huffman};
pub use decoder::{Decoder, Section};
pub use encoder::Encoder;
pub(crate) use encoder::static_line;

/// The size of the largest dynamic table that an [`Encoder`] uses, in octets.
pub const MOST_TABLE: u32 = 4096;

/// Why a field section or an instruction cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpackError {
    /// The section ends within a field.
    Truncated,
    /// An integer of more than 62 bits.
    Integer,
    /// An index that no entry has, or that the section does not announce.
    Index,
    /// A Huffman code with EOS or with wrong padding.
    Huffman,
    /// A required insert count or a base that no encoder can have.
    Prefix,
    /// A table that is larger than allowed.
    Capacity,
    /// An entry that is larger than the table.
    Entry,
    /// An acknowledgment of something that was not sent.
    Acknowledgment,
    /// Fields that are more than 16 times as long as the receiver takes.
    Bomb,
}

impl fmt::Display for QpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a field section ends within a field",
            Self::Integer => "an integer has more than 62 bits",
            Self::Index => "an index is that of no entry",
            Self::Huffman => "a string has a wrong Huffman code",
            Self::Prefix => "a field section has an impossible insert count or base",
            Self::Capacity => "a table is larger than allowed",
            Self::Entry => "an entry is larger than its table",
            Self::Acknowledgment => "an acknowledgment is of what was not sent",
            Self::Bomb => "a field section has fields that are far too long",
        })
    }
}

impl std::error::Error for QpackError {}

impl From<HpackError> for QpackError {
    /// Strings have the code of HPACK (RFC 9204 section 4.1.2), which has no other error.
    fn from(_: HpackError) -> Self {
        Self::Huffman
    }
}

/// Appends a string in the shorter of both forms, its length in the last `prefix` bits of the first
/// octet, after the bit H (RFC 9204 section 4.1.2). The bits of `flags` above are kept.
fn string(prefix: u8, flags: u8, octets: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::len(octets);
    if coded < octets.len() {
        integer::encode(prefix, flags | 1 << prefix, coded as u64, out);
        huffman::encode(octets, out);
    } else {
        integer::encode(prefix, flags, octets.len() as u64, out);
        out.extend_from_slice(octets);
    }
}
