//! Field sections and instructions of the peer's encoder to fields.

use std::mem;

use super::{QpackError, integer, table};
use crate::hpack::{
    OVERHEAD, Text,
    dynamic::{Dynamic, size_of_field},
    huffman,
};

/// As in HPACK: from how many times the receiver's limit on a section only costs time.
const BOMB: u32 = 16;

/// Decodes the fields that one end receives.
///
/// Its dynamic table takes memory for what the peer inserts, at most the announced size.
#[derive(Clone, Debug)]
pub struct Decoder {
    entries: Dynamic,
    /// The beginning of an instruction whose end has not come.
    partial: Vec<u8>,
    /// Entries that were ever inserted, and of how many of them the peer knows that they were.
    inserted: u64,
    acknowledged: u64,
    /// The capacity that the peer has chosen, and the largest that it may choose.
    capacity: u32,
    limit: u32,
}

/// A field section that was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The lengths of names and values, plus 32 a field.
    pub sum: u32,
    /// The required insert count. If it is not 0, the section is to be acknowledged
    /// ([`Decoder::acknowledge`]).
    pub required: u64,
}

impl Decoder {
    /// `limit`: the largest table that the peer may use, as announced. Has nothing on the heap
    /// before the peer inserts an entry.
    pub fn new(limit: u32) -> Self {
        Self {
            entries: Dynamic::default(),
            partial: vec![],
            inserted: 0,
            acknowledged: 0,
            capacity: 0,
            limit,
        }
    }

    /// Reads the next octets of the peer's encoder stream (RFC 9204 section 4.3), and returns how
    /// many entries they insert.
    ///
    /// # Errors
    /// The table no longer is that of the peer: the connection has to end.
    pub fn instructions(&mut self, input: &[u8]) -> Result<u64, QpackError> {
        let before = self.inserted;
        if self.partial.is_empty() {
            let rest = self.execute(input)?;
            self.partial.extend_from_slice(rest);
        } else {
            let mut joined = mem::take(&mut self.partial);
            joined.extend_from_slice(input);
            let rest = self.execute(&joined)?.len();
            if rest > 0 {
                joined.drain(..joined.len() - rest);
                self.partial = joined;
            }
        }
        Ok(self.inserted - before)
    }

    /// Executes all instructions that are complete, and returns what follows them.
    fn execute<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], QpackError> {
        let mut rest = input;
        while !rest.is_empty() {
            let len = match self.instruction_len(rest) {
                Ok(len) => len,
                Err(QpackError::Truncated) => break,
                Err(error) => return Err(error),
            };
            let (instruction, more) = rest.split_at(len);
            self.instruction(instruction)?;
            rest = more;
        }
        Ok(rest)
    }

    /// The length of the instruction at the beginning of `input`, whose strings are not decoded: it
    /// may come in any number of pieces.
    fn instruction_len(&self, input: &[u8]) -> Result<usize, QpackError> {
        let first = *input.first().ok_or(QpackError::Truncated)?;
        let mut rest = input;
        let string = |prefix: u8, rest: &mut &[u8]| -> Result<(), QpackError> {
            let len = integer::decode(prefix, rest)?;
            // A code of Huffman has at most 30 bits an octet.
            if len > 4 * u64::from(self.limit) {
                return Err(QpackError::Entry);
            }
            *rest = rest.get(len as usize..).ok_or(QpackError::Truncated)?;
            Ok(())
        };
        match first {
            0x80.. => {
                integer::decode(6, &mut rest)?;
                string(7, &mut rest)?;
            }
            0x40..=0x7f => {
                string(5, &mut rest)?;
                string(7, &mut rest)?;
            }
            _ => {
                integer::decode(5, &mut rest)?;
            }
        }
        Ok(input.len() - rest.len())
    }

    fn instruction(&mut self, instruction: &[u8]) -> Result<(), QpackError> {
        let first = *instruction.first().ok_or(QpackError::Truncated)?;
        let (mut input, mut scratch) = (instruction, vec![]);
        match first {
            // Insert with name reference (section 4.3.2).
            0x80.. => {
                let index = integer::decode(6, &mut input)?;
                let name = match first & 0x40 {
                    0 => self.newest(index)?.0,
                    _ => table::get(index).ok_or(QpackError::Index)?.0,
                };
                // The table may move while it inserts.
                let name = Text::copy(name, &mut scratch);
                let value = text(7, &mut input, &mut scratch)?;
                self.insert(name.octets(&scratch), value.octets(&scratch))
            }
            // Insert with literal name (section 4.3.3).
            0x40..=0x7f => {
                let name = text(5, &mut input, &mut scratch)?;
                let value = text(7, &mut input, &mut scratch)?;
                self.insert(name.octets(&scratch), value.octets(&scratch))
            }
            // Set dynamic table capacity (section 4.3.1).
            0x20..=0x3f => {
                let capacity = integer::decode(5, &mut input)?;
                let capacity = u32::try_from(capacity).map_err(|_| QpackError::Capacity)?;
                if capacity > self.limit {
                    return Err(QpackError::Capacity);
                }
                self.capacity = capacity;
                self.entries.evict(capacity);
                Ok(())
            }
            // Duplicate (section 4.3.4).
            ..=0x1f => {
                let index = integer::decode(5, &mut input)?;
                let (name, value) = self.newest(index)?;
                let name = Text::copy(name, &mut scratch);
                let value = Text::copy(value, &mut scratch);
                self.insert(name.octets(&scratch), value.octets(&scratch))
            }
        }
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) -> Result<(), QpackError> {
        if !self.entries.insert(name, value, self.capacity) {
            return Err(QpackError::Entry);
        }
        self.inserted += 1;
        Ok(())
    }

    /// The entry with an index relative to the insert count.
    fn newest(&self, index: u64) -> Result<(&[u8], &[u8]), QpackError> {
        let nth = usize::try_from(index).map_err(|_| QpackError::Index)?;
        self.entries.get(nth).ok_or(QpackError::Index)
    }

    /// Calls `each` with the name and value of each field of a section (RFC 9204 section 4.5), in
    /// order, as long as the sum of their lengths plus 32 each is at most `most`. Returns `None`,
    /// without a call, if the section refers to entries that have not come: it has to wait.
    ///
    /// # Errors
    /// The tables of both ends differ: the connection has to end.
    pub fn decode(
        &self,
        section: &[u8],
        most: u32,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<Option<Section>, QpackError> {
        let mut input = section;
        let required = self.required(&mut input)?;
        let base = base(required, &mut input)?;
        if required > self.inserted {
            return Ok(None);
        }
        let before_base = |index: u64| {
            let absolute = base.checked_sub(index).and_then(|after| after.checked_sub(1));
            self.entry(absolute, required)
        };
        let after_base = |index: u64| self.entry(base.checked_add(index), required);
        let of_static = |index: u64| table::get(index).ok_or(QpackError::Index);
        let mut sum = 0_u32;
        while let Some(&first) = input.first() {
            scratch.clear();
            let (name, value) = match first {
                // Indexed field line (section 4.5.2).
                0x80.. => {
                    let index = integer::decode(6, &mut input)?;
                    let (name, value) = match first & 0x40 {
                        0 => before_base(index)?,
                        _ => of_static(index)?,
                    };
                    (Text::Given(name), Text::Given(value))
                }
                // Literal field line with name reference (section 4.5.4).
                0x40..=0x7f => {
                    let index = integer::decode(4, &mut input)?;
                    let (name, _) = match first & 0x10 {
                        0 => before_base(index)?,
                        _ => of_static(index)?,
                    };
                    (Text::Given(name), text(7, &mut input, scratch)?)
                }
                // Literal field line with literal name (section 4.5.6).
                0x20..=0x3f => {
                    let name = text(3, &mut input, scratch)?;
                    (name, text(7, &mut input, scratch)?)
                }
                // Indexed field line with post-base index (section 4.5.3).
                0x10..=0x1f => {
                    let (name, value) = after_base(integer::decode(4, &mut input)?)?;
                    (Text::Given(name), Text::Given(value))
                }
                // Literal field line with post-base name reference (section 4.5.5).
                ..=0x0f => {
                    let (name, _) = after_base(integer::decode(3, &mut input)?)?;
                    (Text::Given(name), text(7, &mut input, scratch)?)
                }
            };
            let (name, value) = (name.octets(scratch), value.octets(scratch));
            sum = sum.saturating_add(size_of_field(name.len(), value.len()));
            if sum <= most {
                each(name, value);
            }
            if sum > most.saturating_mul(BOMB) {
                return Err(QpackError::Bomb);
            }
        }
        Ok(Some(Section { sum, required }))
    }

    /// Section 4.5.1.1.
    fn required(&self, input: &mut &[u8]) -> Result<u64, QpackError> {
        let encoded = integer::decode(8, input)?;
        if encoded == 0 {
            return Ok(0);
        }
        let most_entries = u64::from(self.limit / OVERHEAD);
        let range = 2 * most_entries;
        if encoded > range {
            return Err(QpackError::Prefix);
        }
        let most = self.inserted + most_entries;
        let mut required = most / range * range + encoded - 1;
        if required > most {
            required = required.checked_sub(range).ok_or(QpackError::Prefix)?;
        }
        if required == 0 { Err(QpackError::Prefix) } else { Ok(required) }
    }

    /// The entry with an absolute index, which is below the required insert count.
    fn entry(&self, absolute: Option<u64>, required: u64) -> Result<(&[u8], &[u8]), QpackError> {
        let absolute = absolute.filter(|at| *at < required).ok_or(QpackError::Index)?;
        self.newest(self.inserted - 1 - absolute)
    }

    /// Appends the acknowledgment of a section to the octets of the decoder stream (section 4.4.1).
    pub fn acknowledge(&mut self, stream: u64, section: Section, out: &mut Vec<u8>) {
        integer::encode(7, 0x80, stream, out);
        self.acknowledged = self.acknowledged.max(section.required);
    }

    /// The same, that sections of a stream will not be read (section 4.4.2). Without a table there
    /// is nothing that the peer would wait for.
    pub fn cancel(&self, stream: u64, out: &mut Vec<u8>) {
        if self.limit > 0 {
            integer::encode(6, 0x40, stream, out);
        }
    }

    /// The same, that insertions have come (section 4.4.3), unless the peer knows that.
    pub fn increment(&mut self, out: &mut Vec<u8>) {
        if self.inserted > self.acknowledged {
            integer::encode(6, 0, self.inserted - self.acknowledged, out);
            self.acknowledged = self.inserted;
        }
    }

    /// The entries of the dynamic table, and its size.
    pub fn table(&self) -> (usize, u32) {
        (self.entries.len(), self.entries.size())
    }

    /// Octets on the heap.
    pub fn memory(&self) -> usize {
        self.entries.memory() + self.partial.capacity()
    }
}

/// Section 4.5.1.2.
fn base(required: u64, input: &mut &[u8]) -> Result<u64, QpackError> {
    let negative = input.first().is_some_and(|first| first & 0x80 != 0);
    let delta = integer::decode(7, input)?;
    let base = if negative {
        required.checked_sub(delta).and_then(|base| base.checked_sub(1))
    } else {
        required.checked_add(delta)
    };
    base.ok_or(QpackError::Prefix)
}

/// Takes a string from `input`; see [`string`](super::string).
fn text<'a>(
    prefix: u8,
    input: &mut &'a [u8],
    scratch: &mut Vec<u8>,
) -> Result<Text<'a>, QpackError> {
    let first = *input.first().ok_or(QpackError::Truncated)?;
    let len = integer::decode(prefix, input)?;
    let len = usize::try_from(len).map_err(|_| QpackError::Truncated)?;
    let (octets, rest) = input.split_at_checked(len).ok_or(QpackError::Truncated)?;
    *input = rest;
    if first >> prefix & 1 == 0 {
        return Ok(Text::Given(octets));
    }
    let from = scratch.len();
    huffman::decode(octets, scratch)?;
    Ok(Text::Scratch(from..scratch.len()))
}
