//! Fields to field blocks.

use super::{DEFAULT_TABLE, OVERHEAD, huffman, integer, table};
use crate::qpack;

/// A field whose octets are known before the run, and its encoded forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    name: Box<[u8]>,
    value: Box<[u8]>,
    /// The strings of the literal: the name, unless the static table has it, and the value.
    literal: Box<[u8]>,
    /// The static entries with this name, and with this name and value; 0 if there is none.
    name_index: u8,
    exact: u8,
    /// The field line of QPACK that refers to the static table alone.
    line: Box<[u8]>,
}

impl Fixed {
    /// `name` is lower case, or a pseudo-field as `:path`.
    pub fn new(name: &[u8], value: &[u8]) -> Self {
        let (name_index, exact) = (table::name(name), table::exact(name, value));
        let mut literal = vec![];
        if name_index == 0 {
            string(name, &mut literal);
        }
        string(value, &mut literal);
        Self {
            name: name.into(),
            value: value.into(),
            literal: literal.into(),
            name_index,
            exact,
            line: qpack::static_line(name, value),
        }
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// See [`qpack::static_line`].
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }

    /// Its size in a table (RFC 7541 section 4.1).
    pub(crate) fn size(&self) -> u32 {
        let octets = u32::try_from(self.name.len() + self.value.len()).unwrap_or(u32::MAX);
        octets.saturating_add(OVERHEAD)
    }
}

/// A field to send.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// By its number in the caller's table, the same on all of a connection: it is added to the
    /// dynamic table with its first use, if there is room.
    Fixed(u16, &'a Fixed),
    /// A literal that is never added to the table, so that it evicts nothing.
    Literal { name: &'a [u8], value: &'a [u8] },
}

/// Encodes the fields that one end sends.
///
/// Its dynamic table has the fixed fields that have been sent, in this order. Nothing is evicted: a
/// field that does not fit stays a literal. So an entry is the number of its insertion, and the
/// encoder has no octets.
#[derive(Clone, Debug)]
pub struct Encoder {
    /// By a field's number: which insertion it was, from 1; 0 if it is not in the table. Empty
    /// before the first insertion.
    nth: Box<[u16]>,
    fixed: u16,
    insertions: u16,
    size: u32,
    limit: u32,
    /// Whether the next block has to begin with a change of the table's size.
    resized: bool,
}

impl Encoder {
    /// `fixed`: how many numbers of fixed fields there are. Has nothing on the heap before the
    /// first of them is sent.
    pub fn new(fixed: u16) -> Self {
        Self {
            nth: Box::default(),
            fixed,
            insertions: 0,
            size: 0,
            limit: DEFAULT_TABLE,
            resized: false,
        }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE. A table of more than 4,096 octets is never
    /// used. The next block empties the peer's table if the size has changed (RFC 7541 section
    /// 4.2).
    pub fn limit(&mut self, octets: u32) {
        let limit = octets.min(DEFAULT_TABLE);
        if limit != self.limit {
            self.limit = limit;
            self.resized = true;
            self.nth.fill(0);
            self.insertions = 0;
            self.size = 0;
        }
    }

    /// Appends a field to a block.
    ///
    /// # Panics
    /// If a number of a fixed field is not below that of [`new`](Self::new).
    pub fn field(&mut self, field: Field<'_>, out: &mut Vec<u8>) {
        if self.resized {
            self.resized = false;
            integer::encode(5, 0x20, 0, out);
            if self.limit > 0 {
                integer::encode(5, 0x20, self.limit, out);
            }
        }
        match field {
            Field::Fixed(_, fixed) if fixed.exact != 0 => out.push(0x80 | fixed.exact),
            Field::Fixed(number, fixed) => self.fixed(number, fixed, out),
            Field::Literal { name, value } => {
                let index = table::name(name);
                integer::encode(4, 0, index.into(), out);
                if index == 0 {
                    string(name, out);
                }
                string(value, out);
            }
        }
    }

    fn fixed(&mut self, number: u16, fixed: &Fixed, out: &mut Vec<u8>) {
        assert!(number < self.fixed, "numbers are below that of `new`");
        let number = usize::from(number);
        let nth = self.nth.get(number).copied().unwrap_or(0);
        if nth > 0 {
            let index = table::STATIC + 1 + u32::from(self.insertions - nth);
            return integer::encode(7, 0x80, index, out);
        }
        let size = self.size.saturating_add(fixed.size());
        if size <= self.limit {
            if self.nth.is_empty() {
                self.nth = vec![0; usize::from(self.fixed)].into();
            }
            self.size = size;
            self.insertions += 1;
            self.nth[number] = self.insertions;
            integer::encode(6, 0x40, fixed.name_index.into(), out);
        } else {
            integer::encode(4, 0, fixed.name_index.into(), out);
        }
        out.extend_from_slice(&fixed.literal);
    }

    /// The entries of the dynamic table, and its size (RFC 7541 section 4.1).
    pub fn table(&self) -> (usize, u32) {
        (self.insertions.into(), self.size)
    }

    /// Octets on the heap.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.nth)
    }
}

/// Appends a string, in the shorter of both forms (RFC 7541 section 5.2).
fn string(octets: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::len(octets);
    let length = |len: usize| u32::try_from(len).expect("strings are shorter than 4 GiB");
    if coded < octets.len() {
        integer::encode(7, 0x80, length(coded), out);
        huffman::encode(octets, out);
    } else {
        integer::encode(7, 0, length(octets.len()), out);
        out.extend_from_slice(octets);
    }
}
