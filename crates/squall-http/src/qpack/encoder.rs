//! Fields to field sections and instructions.

use std::mem;

use super::{Field, Fixed, MOST_TABLE, QpackError, integer, string, table};
use crate::hpack::OVERHEAD;

/// Sections that refer to the table and that the peer has not acknowledged: further ones do not
/// refer to it, so that a peer that acknowledges nothing costs no memory.
const MOST_SECTIONS: usize = 128;

/// Encodes the fields that one end sends.
///
/// Its dynamic table has the fixed fields that were sent, in this order. Nothing is evicted: a
/// field that does not fit stays a literal. A section refers only to insertions that the peer has
/// acknowledged, so it never waits for another stream (RFC 9204 section 2.1.2).
#[derive(Clone, Debug)]
pub struct Encoder {
    /// By a field's number: which insertion it was, from 1; 0 if it is not in the table. Empty
    /// before the first insertion.
    nth: Box<[u16]>,
    /// Octets for the encoder stream.
    instructions: Vec<u8>,
    /// Streams and required insert counts of sections that were not acknowledged.
    sections: Vec<(u64, u16)>,
    /// The beginning of an instruction of the peer's decoder whose end has not come.
    partial: [u8; 9],
    have: u8,
    fixed: u16,
    insertions: u16,
    /// Insertions that the peer has acknowledged.
    known: u16,
    /// The required insert count of the section that is being encoded.
    required: u16,
    /// Whether that section may refer to the table.
    refers: bool,
    size: u32,
    /// The table that this end uses: its wish, and with that of the peer.
    wish: u32,
    limit: u32,
    /// Entries that the largest table of the peer has (RFC 9204 section 4.5.1.1).
    most_entries: u64,
}

impl Encoder {
    /// `fixed`: how many numbers of fixed fields there are. `table`: octets of the dynamic table
    /// that this end uses if the peer allows it; at most [`MOST_TABLE`].
    pub fn new(fixed: u16, table: u32) -> Self {
        Self {
            nth: Box::default(),
            instructions: vec![],
            sections: vec![],
            partial: [0; 9],
            have: 0,
            fixed,
            insertions: 0,
            known: 0,
            required: 0,
            refers: false,
            size: 0,
            wish: table.min(MOST_TABLE),
            limit: 0,
            most_entries: 0,
        }
    }

    /// Applies the peer's SETTINGS_QPACK_MAX_TABLE_CAPACITY, which comes once.
    pub fn limit(&mut self, octets: u64) {
        let limit = u32::try_from(octets).unwrap_or(u32::MAX).min(self.wish);
        // No entry is smaller.
        if limit >= OVERHEAD {
            self.limit = limit;
            self.most_entries = octets / u64::from(OVERHEAD);
            integer::encode(5, 0x20, limit.into(), &mut self.instructions);
        }
    }

    /// Whether a section may refer to the dynamic table, or add to it.
    pub fn has_table(&self) -> bool {
        self.limit > 0
    }

    /// Appends a field section to `out`, for a stream with this number. `fields` calls
    /// [`field`](Self::field) for each field.
    pub fn section(
        &mut self,
        stream: u64,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut Self, &mut Vec<u8>),
    ) {
        let start = out.len();
        // No reference to the table: both parts of the prefix are 0 (RFC 9204 section 4.5.1).
        out.extend_from_slice(&[0, 0]);
        self.required = 0;
        self.refers = self.known > 0 && self.sections.len() < MOST_SECTIONS;
        fields(self, out);
        let required = mem::take(&mut self.required);
        if required > 0 {
            let mut prefix = Vec::with_capacity(4);
            let encoded = u64::from(required) % (2 * self.most_entries) + 1;
            integer::encode(8, 0, encoded, &mut prefix);
            // The base is the number of acknowledged insertions.
            integer::encode(7, 0, (self.known - required).into(), &mut prefix);
            drop(out.splice(start..start + 2, prefix));
            self.sections.push((stream, required));
        }
    }

    /// Appends a field to a section.
    ///
    /// # Panics
    /// If a number of a fixed field is not below that of [`new`](Self::new).
    pub fn field(&mut self, field: Field<'_>, out: &mut Vec<u8>) {
        match field {
            Field::Fixed(number, fixed) if self.limit > 0 => self.fixed(number, fixed, out),
            Field::Fixed(_, fixed) => out.extend_from_slice(fixed.line()),
            Field::Literal { name, value } => literal(name, value, out),
        }
    }

    fn fixed(&mut self, number: u16, fixed: &Fixed, out: &mut Vec<u8>) {
        assert!(number < self.fixed, "numbers are below that of `new`");
        let number = usize::from(number);
        let nth = self.nth.get(number).copied().unwrap_or(0);
        if self.refers && (1..=self.known).contains(&nth) {
            self.required = self.required.max(nth);
            return integer::encode(6, 0x80, (self.known - nth).into(), out);
        }
        out.extend_from_slice(fixed.line());
        let is_static = fixed.line()[0] & 0x80 != 0;
        let size = self.size.saturating_add(fixed.size());
        if nth == 0 && !is_static && size <= self.limit {
            if self.nth.is_empty() {
                self.nth = vec![0; usize::from(self.fixed)].into();
            }
            self.size = size;
            self.insertions += 1;
            self.nth[number] = self.insertions;
            insertion(fixed.name(), fixed.value(), &mut self.instructions);
        }
    }

    /// Octets that wait to be sent on the encoder stream. The caller removes those that it has
    /// sent.
    pub fn instructions(&mut self) -> &mut Vec<u8> {
        &mut self.instructions
    }

    /// The same, without taking it.
    pub fn waiting(&self) -> &[u8] {
        &self.instructions
    }

    /// Reads the next octets of the peer's decoder stream (RFC 9204 section 4.4).
    ///
    /// # Errors
    /// An acknowledgment of something that was not sent: the connection has to end.
    pub fn acknowledgments(&mut self, input: &[u8]) -> Result<(), QpackError> {
        for &octet in input {
            let have = usize::from(self.have);
            // An integer of 62 bits has at most ten octets.
            let mut whole = [0; 10];
            whole[..have].copy_from_slice(&self.partial[..have]);
            whole[have] = octet;
            match self.acknowledgment(&whole[..=have]) {
                Ok(()) => self.have = 0,
                Err(QpackError::Truncated) if have < self.partial.len() => {
                    self.partial[have] = octet;
                    self.have += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn acknowledgment(&mut self, instruction: &[u8]) -> Result<(), QpackError> {
        let mut input = instruction;
        match instruction[0] {
            // Section acknowledgment (section 4.4.1).
            0x80.. => {
                let stream = integer::decode(7, &mut input)?;
                let at = self.sections.iter().position(|section| section.0 == stream);
                let (_, required) = self.sections.remove(at.ok_or(QpackError::Acknowledgment)?);
                self.known = self.known.max(required);
            }
            // Stream cancellation (section 4.4.2), also of streams that refer to nothing.
            0x40..=0x7f => {
                let stream = integer::decode(6, &mut input)?;
                self.sections.retain(|section| section.0 != stream);
            }
            // Insert count increment (section 4.4.3).
            ..=0x3f => {
                let increment = integer::decode(6, &mut input)?;
                let known = u64::from(self.known) + increment;
                if increment == 0 || known > u64::from(self.insertions) {
                    return Err(QpackError::Acknowledgment);
                }
                self.known = known as u16;
            }
        }
        Ok(())
    }

    /// The entries of the dynamic table, and its size.
    pub fn table(&self) -> (usize, u32) {
        (self.insertions.into(), self.size)
    }

    /// Octets on the heap.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.nth)
            + self.instructions.capacity()
            + self.sections.capacity() * size_of::<(u64, u16)>()
    }
}

/// The field line that refers to the static table alone: an index, or a literal.
pub(crate) fn static_line(name: &[u8], value: &[u8]) -> Box<[u8]> {
    let mut line = vec![];
    match table::exact(name, value) {
        Some(index) => integer::encode(6, 0xc0, index, &mut line),
        None => literal(name, value, &mut line),
    }
    line.into()
}

/// Sections 4.5.4 and 4.5.6.
fn literal(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match table::name(name) {
        Some(index) => integer::encode(4, 0x50, index, out),
        None => string(3, 0x20, name, out),
    }
    string(7, 0, value, out);
}

/// Sections 4.3.2 and 4.3.3.
fn insertion(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match table::name(name) {
        Some(index) => integer::encode(6, 0xc0, index, out),
        None => string(5, 0x40, name, out),
    }
    string(7, 0, value, out);
}
