//! Lines of text protocols.

/// Splits the data of one end into lines.
#[derive(Default)]
pub(super) struct Lines {
    pending: Vec<u8>,
    /// Octets of `pending` that were returned. They are removed when data is added, which keeps the
    /// cost of a line linear in its length.
    consumed: usize,
    /// The rest of a line that was too long is being skipped.
    skipping: bool,
}

/// A line without its terminator.
pub(super) struct Line {
    pub text: Vec<u8>,
    /// `\r\n` or `\n`; empty if the line was truncated.
    pub end: &'static [u8],
}

/// Maximum length of a line. Longer lines are truncated.
pub(super) const MAX_LEN: usize = 4096;

impl Lines {
    pub fn push(&mut self, octets: &[u8]) {
        self.pending.drain(..self.consumed);
        self.consumed = 0;
        self.pending.extend_from_slice(octets);
    }

    /// The next complete line, or the start of one that is too long.
    pub fn next(&mut self) -> Option<Line> {
        loop {
            let left = &self.pending[self.consumed..];
            let end = memchr::memchr(b'\n', left);
            if self.skipping {
                self.consumed += end.map_or(left.len(), |end| end + 1);
                self.skipping = end.is_none();
                if self.skipping {
                    return None;
                }
                continue;
            }
            return match end {
                Some(end) => {
                    self.consumed += end + 1;
                    let text = &left[..end];
                    let (text, end): (_, &[u8]) = match text.strip_suffix(b"\r") {
                        Some(text) => (text, b"\r\n"),
                        None => (text, b"\n"),
                    };
                    Some(Line { text: text[..text.len().min(MAX_LEN)].to_vec(), end })
                }
                None if left.len() > MAX_LEN => {
                    let text = left[..MAX_LEN].to_vec();
                    self.consumed += MAX_LEN;
                    self.skipping = true;
                    Some(Line { text, end: b"" })
                }
                None => None,
            };
        }
    }

    /// The remaining data, which has no terminator.
    pub fn rest(&mut self) -> Option<Line> {
        let text = self.pending[self.consumed..].to_vec();
        self.consumed = self.pending.len();
        (!self.skipping && !text.is_empty()).then_some(Line { text, end: b"" })
    }
}

/// Splits off the first word and the blanks after it.
pub(super) fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&octet| octet == b' ' || octet == b'\t').unwrap_or(text.len());
    let rest = &text[end..];
    (
        &text[..end],
        &rest[rest
            .iter()
            .position(|&octet| octet != b' ' && octet != b'\t')
            .unwrap_or(rest.len())..],
    )
}

pub(super) fn starts_caseless(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_octets_were() {
        for size in 1..12 {
            let mut lines = Lines::default();
            let mut found = vec![];
            for piece in b"a\r\n\nbc\r\nd".chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.next() {
                    found.push((line.text, line.end));
                }
            }
            assert_eq!(
                found,
                [(b"a".to_vec(), &b"\r\n"[..]), (b"".to_vec(), b"\n"), (b"bc".to_vec(), b"\r\n")]
            );
            assert_eq!(lines.rest().map(|line| line.text).as_deref(), Some(&b"d"[..]));
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_its_rest_passed_over() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; 3 * MAX_LEN]);
        assert_eq!(lines.next().map(|line| line.text.len()), Some(MAX_LEN));
        assert!(lines.next().is_none());
        lines.push(b"y\nz\n");
        assert_eq!(lines.next().map(|line| line.text).as_deref(), Some(&b"z"[..]));
    }
}
