//! Field blocks to fields.

use std::{fmt, ops::Range};

use super::{
    DEFAULT_TABLE,
    dynamic::{Dynamic, size_of_field},
    huffman, integer, table,
};

/// How often a block's fields may be longer than the receiver takes, before decoding it only costs
/// time: two octets of a block can name an entry of 4 KiB.
const BOMB: u32 = 16;

/// Decodes the fields that one end receives.
///
/// Its dynamic table takes memory for what the peer inserts, at most the larger of 4,096 octets and
/// the announced size.
#[derive(Clone, Debug)]
pub struct Decoder {
    entries: Dynamic,
    /// The size that the peer has chosen, and the largest that it may choose.
    most: u32,
    limit: u32,
}

/// Why a block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// The block ends within a field.
    Truncated,
    /// An integer of more than 28 bits.
    Integer,
    /// An index that no entry has.
    Index,
    /// A Huffman code with EOS or with wrong padding.
    Huffman,
    /// A change of the table's size that is too large, or after a field.
    TableSize,
    /// Fields that are more than 16 times as long as the receiver takes.
    Bomb,
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a field block ends within a field",
            Self::Integer => "a field block has an integer of more than 28 bits",
            Self::Index => "a field block names an entry that no table has",
            Self::Huffman => "a field block has a wrong Huffman code",
            Self::TableSize => "a field block sets a table size that is not allowed",
            Self::Bomb => "a field block has fields that are far too long",
        })
    }
}

impl std::error::Error for HpackError {}

impl Decoder {
    /// `limit`: the largest table that the peer may use. Has nothing on the heap before the peer
    /// inserts an entry.
    pub fn new(limit: u32) -> Self {
        Self { entries: Dynamic::default(), most: limit.min(DEFAULT_TABLE), limit }
    }

    /// Applies this end's SETTINGS_HEADER_TABLE_SIZE, once the peer has acknowledged it.
    ///
    /// A peer that has to shrink its table announces that in its next block, and until then the
    /// table does not change: some peers that use no table announce nothing, and if only this end
    /// evicted entries, indexes would differ.
    pub fn limit(&mut self, octets: u32) {
        self.limit = octets;
    }

    /// Calls `each` with the name and value of each field, in order, and returns the sum of their
    /// lengths plus 32 each. From the field on with which the sum exceeds `most`, fields are only
    /// entered into the table.
    ///
    /// # Errors
    /// The table no longer is that of the peer: the connection has to end (RFC 9113 section 4.3).
    pub fn decode(
        &mut self,
        block: &[u8],
        most: u32,
        scratch: &mut Vec<u8>,
        each: impl FnMut(&[u8], &[u8]),
    ) -> Result<u32, HpackError> {
        self.decode_marked(block, most, scratch, each).map(|(sum, _)| sum)
    }

    /// The same. Also returns whether the block has used or changed the dynamic table; if not, each
    /// decoder gets the same fields from it.
    pub(crate) fn decode_marked(
        &mut self,
        block: &[u8],
        most: u32,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(u32, bool), HpackError> {
        let mut input = block;
        let (mut sum, mut begun) = (0_u32, false);
        let mut used = false;
        while let Some(&first) = input.first() {
            if first & 0xe0 == 0x20 {
                used = true;
                let size = integer::decode(5, &mut input)?;
                if begun || size > self.limit {
                    return Err(HpackError::TableSize);
                }
                self.most = size;
                self.entries.evict(size);
                continue;
            }
            begun = true;
            let mut take = |name: &[u8], value: &[u8]| {
                sum = sum.saturating_add(size_of_field(name.len(), value.len()));
                if sum <= most {
                    each(name, value);
                }
            };
            if first & 0x80 != 0 {
                let index = integer::decode(7, &mut input)?;
                used |= index > table::STATIC;
                let (name, value) = self.get(index)?;
                take(name, value);
            } else {
                let insert = first & 0x40 != 0;
                let index = integer::decode(if insert { 6 } else { 4 }, &mut input)?;
                used |= insert || index > table::STATIC;
                scratch.clear();
                if insert {
                    let name = match index {
                        0 => Text::take(&mut input, scratch)?,
                        _ => Text::copy(self.get(index)?.0, scratch),
                    };
                    let value = Text::take(&mut input, scratch)?;
                    let (name, value) = (name.octets(scratch), value.octets(scratch));
                    take(name, value);
                    self.entries.insert(name, value, self.most);
                } else {
                    let name = match index {
                        0 => Text::take(&mut input, scratch)?,
                        _ => Text::Given(self.get(index)?.0),
                    };
                    let value = Text::take(&mut input, scratch)?;
                    take(name.octets(scratch), value.octets(scratch));
                }
            }
            if sum > most.saturating_mul(BOMB) {
                return Err(HpackError::Bomb);
            }
        }
        Ok((sum, used))
    }

    fn get(&self, index: u32) -> Result<(&[u8], &[u8]), HpackError> {
        if let Some(field) = table::get(index) {
            return Ok(field);
        }
        let nth = index.checked_sub(table::STATIC + 1).ok_or(HpackError::Index)?;
        self.entries.get(nth as usize).ok_or(HpackError::Index)
    }

    /// The entries of the dynamic table, and its size (RFC 7541 section 4.1).
    pub fn table(&self) -> (usize, u32) {
        (self.entries.len(), self.entries.size())
    }

    /// Octets on the heap.
    pub fn memory(&self) -> usize {
        self.entries.memory()
    }
}

/// A string of a literal: where it lies, or in the scratch buffer.
pub(crate) enum Text<'a> {
    Given(&'a [u8]),
    Scratch(Range<usize>),
}

impl<'a> Text<'a> {
    /// Takes a string from `input` (RFC 7541 section 5.2).
    fn take(input: &mut &'a [u8], scratch: &mut Vec<u8>) -> Result<Self, HpackError> {
        let &first = input.first().ok_or(HpackError::Truncated)?;
        let len = integer::decode(7, input)? as usize;
        let (octets, rest) = input.split_at_checked(len).ok_or(HpackError::Truncated)?;
        *input = rest;
        if first & 0x80 == 0 {
            return Ok(Self::Given(octets));
        }
        let from = scratch.len();
        huffman::decode(octets, scratch)?;
        Ok(Self::Scratch(from..scratch.len()))
    }

    pub fn copy(octets: &[u8], scratch: &mut Vec<u8>) -> Self {
        let from = scratch.len();
        scratch.extend_from_slice(octets);
        Self::Scratch(from..scratch.len())
    }

    pub fn octets<'b>(&self, scratch: &'b [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Given(octets) => octets,
            Self::Scratch(range) => &scratch[range.clone()],
        }
    }
}
