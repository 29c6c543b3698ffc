//! Reads and writes comma-separated records (RFC 4180).

use std::io::{self, BufRead, Write};

/// Maximum length of a record in octets. Longer text is an error.
pub(crate) const MAX_LEN: usize = 1 << 20;

/// Maximum number of octets to search for a line end: files such as `/dev/zero` have none.
const NO_TEXT: usize = 64 << 20;

/// A syntax error in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Position in the record, in characters from 1.
    pub column: usize,
    pub text: String,
}

/// A field and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub text: String,
    /// Position in the record, in characters from 1.
    pub column: usize,
}

/// Splits a record into fields. A quoted field may contain separators, line ends and doubled
/// quotes. Blanks around a field are a part of it (RFC 4180 §2).
pub(crate) fn fields(record: &str, separator: char) -> Result<Vec<Field>, Broken> {
    let mut fields = vec![];
    let mut characters = record.chars().enumerate().peekable();
    loop {
        let mut text = String::new();
        let column = characters.peek().map_or(record.chars().count(), |(at, _)| *at) + 1;
        if characters.next_if(|(_, c)| *c == '"').is_some() {
            loop {
                match characters.next() {
                    Some((_, '"')) if characters.next_if(|(_, c)| *c == '"').is_some() => {
                        text.push('"')
                    }
                    Some((_, '"')) => break,
                    Some((_, c)) => text.push(c),
                    None => {
                        return Err(Broken { column, text: "a quote is not closed".into() });
                    }
                }
            }
            if let Some((at, c)) = characters.peek().filter(|(_, c)| *c != separator) {
                let text = format!(
                    "found {c:?} after a closing quote, expected {separator:?} or the end of the \
                     line"
                );
                return Err(Broken { column: at + 1, text });
            }
        } else {
            while let Some((_, c)) = characters.next_if(|(_, c)| *c != separator) {
                text.push(c);
            }
        }
        fields.push(Field { text, column });
        if characters.next().is_none() {
            return Ok(fields);
        }
    }
}

/// Quotes a field if necessary.
pub(crate) fn quoted(field: &str) -> std::borrow::Cow<'_, str> {
    // Also quote blanks at either end, because some readers trim them.
    if field.contains([',', '"', '\n', '\r']) || field.starts_with(' ') || field.ends_with(' ') {
        format!("\"{}\"", field.replace('"', "\"\"")).into()
    } else {
        field.into()
    }
}

/// Writes a record. Puts an apostrophe before a field that a spreadsheet would take for a formula:
/// messages of rules are untrusted, and a formula can read files and send data. Also puts one
/// before apostrophes that precede such text, so [`plain`] can remove exactly one.
pub(crate) fn write(to: &mut impl Write, fields: &[&str]) -> io::Result<()> {
    for (i, field) in fields.iter().enumerate() {
        let guard = if is_computed(field.trim_start_matches('\'')) { "'" } else { "" };
        write!(to, "{}{}", if i > 0 { "," } else { "" }, quoted(&format!("{guard}{field}")))?;
    }
    to.write_all(b"\n")
}

/// Undoes the escape of [`write`].
pub(crate) fn plain(field: &str) -> &str {
    match field.strip_prefix('\'') {
        Some(rest) if is_computed(rest.trim_start_matches('\'')) => rest,
        _ => field,
    }
}

/// Whether a spreadsheet would take the field for a formula. Numbers are harmless.
fn is_computed(field: &str) -> bool {
    field.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])
        && field.parse::<f64>().is_err()
}

/// Reads lines without their terminators.
pub(crate) struct Lines<R> {
    input: R,
    /// Number of the last line read, from 1.
    pub line: u64,
    octets: Vec<u8>,
}

/// The reason why a line could not be read.
#[derive(Debug)]
pub(crate) enum NoLine {
    Input(io::Error),
    /// It exceeds [`MAX_LEN`] octets or is not UTF-8. The reader has skipped it.
    Unreadable(&'static str),
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Self {
        Lines { input, line: 0, octets: vec![] }
    }

    /// The next line. `None` at the end of the input.
    pub fn next(&mut self) -> Option<Result<&str, NoLine>> {
        self.octets.clear();
        match self.append() {
            Ok(false) => None,
            Ok(true) => Some(self.text()),
            Err(e) => Some(Err(e)),
        }
    }

    /// The next record, which may contain line ends within quotes. `None` at the end of the input.
    /// Sets `line` to the last line of the record.
    pub fn record(&mut self) -> Option<Result<&str, NoLine>> {
        self.octets.clear();
        let (mut seen, mut open) = (0, false);
        loop {
            match self.append() {
                Ok(false) if seen == 0 => return None,
                Ok(false) => return Some(self.text()),
                Ok(true) => {}
                Err(e) => return Some(Err(e)),
            }
            open ^= self.octets[seen..].iter().filter(|&&o| o == b'"').count() % 2 == 1;
            if !open {
                return Some(self.text());
            }
            self.octets.push(b'\n');
            seen = self.octets.len();
        }
    }

    /// Removes a carriage return at the end of the line. Within quotes, it belongs to the field.
    fn text(&mut self) -> Result<&str, NoLine> {
        if self.octets.last() == Some(&b'\r') {
            self.octets.pop();
        }
        std::str::from_utf8(&self.octets)
            .map_err(|_| NoLine::Unreadable("found octets that are not UTF-8"))
    }

    /// Appends the next line. Returns false at the end of the input.
    fn append(&mut self) -> Result<bool, NoLine> {
        let mut any = false;
        let mut too_long = false;
        let mut skipped = 0;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(NoLine::Input(e)),
            };
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = chunk.iter().position(|&o| o == b'\n');
            let taken = end.unwrap_or(chunk.len());
            too_long |= self.octets.len() + taken > MAX_LEN;
            if !too_long {
                self.octets.extend_from_slice(&chunk[..taken]);
            }
            skipped += taken;
            if skipped > NO_TEXT {
                let text =
                    format!("no line ends within {} MiB: this is not a text file", NO_TEXT >> 20);
                return Err(NoLine::Input(io::Error::new(io::ErrorKind::InvalidData, text)));
            }
            self.input.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                break;
            }
        }
        self.line += u64::from(any);
        if too_long {
            return Err(NoLine::Unreadable("found a line of more than 1 MiB"));
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(record: &str) -> Vec<String> {
        fields(record, ',').unwrap().into_iter().map(|f| f.text).collect()
    }

    #[test]
    fn fields_are_those_of_rfc_4180() {
        assert_eq!(texts("aaa,bbb,ccc"), ["aaa", "bbb", "ccc"]);
        assert_eq!(texts("\"aaa\",\"b\nbb\",\"c,cc\""), ["aaa", "b\nbb", "c,cc"]);
        assert_eq!(texts("\"b\"\"bb\",,"), ["b\"bb", "", ""]);
        assert_eq!(texts(""), [""]);
        assert_eq!(texts(" a , b"), [" a ", " b"]);
        let columns: Vec<usize> =
            fields("a,\"b\",,d", ',').unwrap().iter().map(|f| f.column).collect();
        assert_eq!(columns, [1, 3, 7, 8]);
    }

    #[test]
    fn an_invalid_quote_is_reported_with_its_column() {
        assert_eq!(fields("a,\"b", ',').unwrap_err().column, 3);
        let Broken { column, text } = fields("a,\"b\"c", ',').unwrap_err();
        assert_eq!(
            (column, text.as_str()),
            (6, "found 'c' after a closing quote, expected ',' or the end of the line")
        );
    }

    #[test]
    fn a_record_continues_after_a_line_end_within_quotes() {
        let mut lines = Lines::new(&b"a,\"b\r\nc\"\r\nd\n\xff\ne"[..]);
        assert_eq!(lines.record().unwrap().unwrap(), "a,\"b\r\nc\"");
        assert_eq!(lines.record().unwrap().unwrap(), "d");
        assert!(matches!(lines.record(), Some(Err(NoLine::Unreadable(_)))));
        assert_eq!(lines.record().unwrap().unwrap(), "e");
        assert_eq!(lines.line, 5);
        assert!(lines.record().is_none());
    }

    #[test]
    fn a_line_without_an_end_in_sight_takes_no_memory() {
        let long = io::Read::chain(io::Read::take(io::repeat(b'x'), 3 << 20), &b"\nshort"[..]);
        let mut lines = Lines::new(io::BufReader::new(long));
        assert!(matches!(lines.next(), Some(Err(NoLine::Unreadable(_)))));
        assert!(lines.octets.len() <= MAX_LEN);
        assert_eq!(lines.next().unwrap().unwrap(), "short");
    }

    #[test]
    fn a_spreadsheet_computes_nothing_that_came_from_a_rule() {
        let formulas =
            ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-1+1", "\t=1", "\r=1", "'=1", "''@x", "＝1"];
        let others = ["a=b", "-12.5", "+3", "it's", "'quoted'", "", "-1e3"];
        let mut octets = vec![];
        write(&mut octets, &[&formulas[..], &others].concat()).unwrap();
        let read = texts(Lines::new(&octets[..]).record().unwrap().unwrap());
        let (of_formulas, of_others) = read.split_at(formulas.len());
        assert!(of_formulas.iter().all(|field| field.starts_with('\'')), "{of_formulas:?}");
        assert_eq!(of_others, others);
        assert_eq!(of_formulas.iter().map(|field| plain(field)).collect::<Vec<_>>(), formulas);
    }

    proptest! {
        #[test]
        fn written_records_read_back(fields_in in prop::collection::vec("[ -~\r\n\"='@+-]{0,12}", 1..6)) {
            let mut octets = vec![];
            write(&mut octets, &fields_in.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
            let mut lines = Lines::new(&octets[..]);
            let read = texts(lines.record().unwrap().unwrap());
            prop_assert_eq!(read.iter().map(|field| plain(field)).collect::<Vec<_>>(), fields_in);
            prop_assert!(lines.record().is_none());
        }
    }
}
