//! Rows of a table, of which each flow has one: users and their passwords, say.

use squall_program::{below, mix};

/// A table with named columns. Which row a flow has is a function of its number, so that no worker
/// asks another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    columns: Vec<String>,
    /// All cells behind each other, row by row.
    cells: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<u32>,
    order: DataOrder,
}

/// Which row the next flow has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataOrder {
    /// One after the other, from the first again behind the last.
    #[default]
    Sequential,
    /// Each once: a template has no more flows than there are rows.
    Once,
    /// Drawn for each flow by the seed; rows may come again.
    Random,
}

#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("{0}")]
    Csv(#[from] csv::Error),
    #[error("column {column} has no name; the first line has to name all columns: user,password")]
    NoName { column: usize },
    #[error("two columns are named {name:?}")]
    NameTwice { name: String },
    #[error("there is no row below the names of the columns")]
    NoRows,
    #[error("there are {found} octets in the cells; expected 4 GiB at most")]
    TooLong { found: u64 },
}

impl Data {
    /// Reads comma-separated values (RFC 4180), whose first line names the columns.
    ///
    /// # Errors
    /// If a row has more or fewer cells than there are names, or there are no rows.
    pub fn from_csv(octets: &[u8], order: DataOrder) -> Result<Self, DataError> {
        // Spreadsheets write it in front of UTF-8.
        let octets = octets.strip_prefix(b"\xef\xbb\xbf").unwrap_or(octets);
        let mut reader = csv::ReaderBuilder::new().from_reader(octets);
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
        for record in reader.byte_records() {
            for cell in &record? {
                cells.extend_from_slice(cell);
                let end = u32::try_from(cells.len());
                ends.push(end.map_err(|_| DataError::TooLong { found: cells.len() as u64 })?);
            }
        }
        if ends.is_empty() {
            return Err(DataError::NoRows);
        }
        Ok(Self { columns, cells, ends, order })
    }

    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// At least 1.
    #[must_use]
    pub fn rows(&self) -> u64 {
        (self.ends.len() / self.columns.len()) as u64
    }

    /// How many flows there may be, where each row is used once.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        (self.order == DataOrder::Once).then(|| self.rows())
    }

    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|known| known == name)
    }

    /// The cell of flow number `flow` of a run of this seed.
    pub(crate) fn of_flow(&self, seed: u64, flow: u32, column: usize) -> &[u8] {
        /// Apart from what marks draw.
        const ROWS: u64 = 0x726f_7773;
        let row = match self.order {
            DataOrder::Sequential | DataOrder::Once => u64::from(flow) % self.rows(),
            DataOrder::Random => below(mix(mix(seed, ROWS), flow.into()), self.rows()),
        };
        let at = row as usize * self.columns.len() + column;
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.cells[from as usize..self.ends[at] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &[u8] = b"\xef\xbb\xbfuser,password\nann,a1\n\"bob, jr\",\"b\"\"2\"\neve,\n";

    #[test]
    fn a_table_is_read_as_spreadsheets_write_it() {
        let data = Data::from_csv(USERS, DataOrder::Sequential).expect("a table");
        let of = |flow, column| String::from_utf8_lossy(data.of_flow(1, flow, column)).into_owned();
        assert_eq!((data.columns(), data.rows()), (&["user".into(), "password".into()][..], 3));
        assert_eq!((of(0, 0), of(0, 1)), ("ann".into(), "a1".into()));
        assert_eq!((of(1, 0), of(1, 1)), ("bob, jr".into(), "b\"2".into()));
        assert_eq!((of(2, 1), of(3, 0)), (String::new(), "ann".into()));
        for (text, told) in [
            ("user,\na,b\n", "column 2 has no name"),
            ("user,user\na,b\n", "two columns"),
            ("user\n", "no row"),
            ("a,b\n1\n", "1 field"),
        ] {
            let error = Data::from_csv(text.as_bytes(), DataOrder::Once).expect_err(text);
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn a_random_row_is_the_same_for_a_flow_and_all_rows_come() {
        let data = Data::from_csv(USERS, DataOrder::Random).expect("a table");
        let mut seen = std::collections::HashMap::new();
        for flow in 0..3_000 {
            assert_eq!(data.of_flow(7, flow, 0), data.of_flow(7, flow, 0));
            *seen.entry(data.of_flow(7, flow, 0)).or_insert(0) += 1;
        }
        assert!(seen.len() == 3 && seen.values().all(|n| (850..1_150).contains(n)), "{seen:?}");
    }
}
