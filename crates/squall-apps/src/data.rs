//! Records of a CSV file, one per flow: for example users and their passwords.

use std::sync::Arc;

use squall_units::{below, mix};

/// Records with named columns. The record of a flow is determined by its number, so workers need no
/// coordination. A clone shares the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    table: Arc<Table>,
    order: DataOrder,
}

#[derive(Debug, PartialEq, Eq)]
struct Table {
    columns: Vec<String>,
    /// All cells, record after record.
    cells: Vec<u8>,
    /// Offset of each cell's end.
    ends: Vec<u32>,
}

/// How records are assigned to flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataOrder {
    /// Flow k gets record k; after the last record comes the first again.
    #[default]
    Circular,
    /// Flow k gets record k, and no flow begins after the last record.
    Once,
    /// Flows get random records, derived from the seed; records may repeat.
    Random,
}

#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("{0}")]
    Csv(#[from] csv::Error),
    #[error("column {column} has no name; the first line must name all columns: user,password")]
    NoName { column: usize },
    #[error("two columns are named {name:?}")]
    NameTwice { name: String },
    #[error("there is no record after line 1, which names the columns")]
    NoRecords,
    #[error("line {line}: {found} cells; expected {expected}, one for each column of line 1")]
    Cells { line: u64, found: u64, expected: u64 },
    #[error("there are {found} octets in the cells; expected at most 4 GiB")]
    TooLong { found: u64 },
}

impl Data {
    /// Parses comma-separated values (RFC 4180) with a header line.
    ///
    /// # Errors
    /// If a record has more or fewer cells than there are columns, or there are no records.
    pub fn from_csv(octets: &[u8], order: DataOrder) -> Result<Self, DataError> {
        // Spreadsheets write a byte order mark.
        let octets = octets.strip_prefix(b"\xef\xbb\xbf").unwrap_or(octets);
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(octets);
        let names = reader.headers()?;
        let columns: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
        for (i, name) in columns.iter().enumerate() {
            if name.is_empty() {
                return Err(DataError::NoName { column: i + 1 });
            }
            if columns[..i].contains(name) {
                return Err(DataError::NameTwice { name: name.clone() });
            }
        }
        let (mut cells, mut ends) = (Vec::with_capacity(octets.len()), Vec::new());
        let mut record = csv::ByteRecord::new();
        while reader.read_byte_record(&mut record)? {
            if record.len() != columns.len() {
                return Err(DataError::Cells {
                    line: line_of(&record, octets),
                    found: record.len() as u64,
                    expected: columns.len() as u64,
                });
            }
            for cell in &record {
                cells.extend_from_slice(cell);
                let end = u32::try_from(cells.len());
                ends.push(end.map_err(|_| DataError::TooLong { found: cells.len() as u64 })?);
            }
        }
        if ends.is_empty() {
            return Err(DataError::NoRecords);
        }
        Ok(Self { table: Arc::new(Table { columns, cells, ends }), order })
    }

    /// The same records, assigned in another order.
    #[must_use]
    pub fn in_order(&self, order: DataOrder) -> Self {
        Self { table: self.table.clone(), order }
    }

    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.table.columns
    }

    /// Number of records, at least 1.
    #[must_use]
    pub fn records(&self) -> u64 {
        (self.table.ends.len() / self.table.columns.len()) as u64
    }

    #[must_use]
    pub fn order(&self) -> DataOrder {
        self.order
    }

    /// Maximum number of flows, if each record is used only once.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        (self.order == DataOrder::Once).then(|| self.records())
    }

    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.table.columns.iter().position(|known| known == name)
    }

    /// The cell of flow number `flow` in a run with this seed.
    pub(crate) fn of_flow(&self, seed: u64, flow: u32, column: usize) -> &[u8] {
        /// A salt: draws of records must differ from draws for marks.
        const RECORDS: u64 = 0x726f_7773;
        let record = match self.order {
            DataOrder::Circular | DataOrder::Once => u64::from(flow) % self.records(),
            DataOrder::Random => below(mix(mix(seed, RECORDS), flow.into()), self.records()),
        };
        let Table { columns, cells, ends } = &*self.table;
        let at = record as usize * columns.len() + column;
        let from = at.checked_sub(1).map_or(0, |before| ends[before]);
        &cells[from as usize..ends[at] as usize]
    }
}

/// The line of a record (1-based). The reader's position includes empty lines before the record.
fn line_of(record: &csv::ByteRecord, octets: &[u8]) -> u64 {
    let Some(position) = record.position() else { return 0 };
    let rest = octets.get(position.byte() as usize..).unwrap_or_default();
    let empty = rest.iter().take_while(|octet| matches!(octet, b'\r' | b'\n'));
    position.line() + empty.filter(|octet| **octet == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &[u8] = b"\xef\xbb\xbfuser,password\nann,a1\n\"bob, jr\",\"b\"\"2\"\neve,\n";

    #[test]
    fn a_table_parses_as_spreadsheets_write_it() {
        let data = Data::from_csv(USERS, DataOrder::Circular).expect("a table");
        let of = |flow, column| String::from_utf8_lossy(data.of_flow(1, flow, column)).into_owned();
        assert_eq!((data.columns(), data.records()), (&["user".into(), "password".into()][..], 3));
        assert_eq!((of(0, 0), of(0, 1)), ("ann".into(), "a1".into()));
        assert_eq!((of(1, 0), of(1, 1)), ("bob, jr".into(), "b\"2".into()));
        assert_eq!((of(2, 1), of(3, 0)), (String::new(), "ann".into()));
        for (text, expected) in [
            ("user,\na,b\n", "column 2 has no name"),
            ("user,user\na,b\n", "two columns"),
            ("user\n", "no record"),
            ("a,b\n1,2\n\n1\n", "line 4: 1 cells; expected 2"),
        ] {
            let error = Data::from_csv(text.as_bytes(), DataOrder::Once).expect_err(text);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_random_record_is_the_same_for_a_flow_and_all_records_come() {
        let data = Data::from_csv(USERS, DataOrder::Random).expect("a table");
        let mut seen = std::collections::HashMap::new();
        for flow in 0..3_000 {
            assert_eq!(data.of_flow(7, flow, 0), data.of_flow(7, flow, 0));
            *seen.entry(data.of_flow(7, flow, 0)).or_insert(0) += 1;
        }
        assert!(seen.len() == 3 && seen.values().all(|n| (850..1_150).contains(n)), "{seen:?}");
    }
}
