//! Compression of fields (HPACK, RFC 7541).
//!
//! A generator sends the same few fields again and again, so an [`Encoder`] knows them by number
//! ([`Fixed`]): the second use of a field costs an array access and one or two octets. A
//! [`Decoder`] takes any block, and compares the decoded length with a limit before it copies
//! anything.

mod decoder;
pub(crate) mod dynamic;
mod encoder;
pub(crate) mod huffman;
mod integer;
mod table;

#[cfg(test)]
mod tests;

pub(crate) use decoder::Text;
pub use decoder::{Decoder, HpackError};
pub use encoder::{Encoder, Field, Fixed};

/// The size of an entry beyond the octets of its name and value (RFC 7541 section 4.1).
pub const OVERHEAD: u32 = 32;

/// The size of a dynamic table without SETTINGS_HEADER_TABLE_SIZE (RFC 9113 section
/// 6.5.2).
pub const DEFAULT_TABLE: u32 = 4096;
