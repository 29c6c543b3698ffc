//! Lines of protocols of text.

/// What a sender has sent, cut into lines.
#[derive(Default)]
pub(super) struct Lines {
    pending: Vec<u8>,
    /// Of these, octets that were given; they go when new ones come, so that a line costs no more
    /// than its length.
    given: usize,
    /// Of a line that was too long, the rest is passed over.
    skipping: bool,
}

/// A line without its end.
pub(super) struct Line {
    pub text: Vec<u8>,
    /// `\r\n`, `\n`, or nothing of a line that was too long.
    pub end: &'static [u8],
}

/// Longer lines are cut.
pub(super) const LONGEST: usize = 4096;

impl Lines {
    pub fn push(&mut self, octets: &[u8]) {
        self.pending.drain(..self.given);
        self.given = 0;
        self.pending.extend_from_slice(octets);
    }

    /// The next whole line; the beginning of one that is too long.
    pub fn next(&mut self) -> Option<Line> {
        loop {
            let left = &self.pending[self.given..];
            let end = memchr::memchr(b'\n', left);
            if self.skipping {
                self.given += end.map_or(left.len(), |end| end + 1);
                self.skipping = end.is_none();
                if self.skipping {
                    return None;
                }
                continue;
            }
            return match end {
                Some(end) => {
                    self.given += end + 1;
                    let text = &left[..end];
                    let (text, end): (_, &[u8]) = match text.strip_suffix(b"\r") {
                        Some(text) => (text, b"\r\n"),
                        None => (text, b"\n"),
                    };
                    Some(Line { text: text[..text.len().min(LONGEST)].to_vec(), end })
                }
                None if left.len() > LONGEST => {
                    let text = left[..LONGEST].to_vec();
                    self.given += LONGEST;
                    self.skipping = true;
                    Some(Line { text, end: b"" })
                }
                None => None,
            };
        }
    }

    /// What was left without an end.
    pub fn rest(&mut self) -> Option<Line> {
        let text = self.pending[self.given..].to_vec();
        self.given = self.pending.len();
        (!self.skipping && !text.is_empty()).then_some(Line { text, end: b"" })
    }
}

/// A word, and what stands behind the blanks after it.
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
        lines.push(&vec![b'x'; 3 * LONGEST]);
        assert_eq!(lines.next().map(|line| line.text.len()), Some(LONGEST));
        assert!(lines.next().is_none());
        lines.push(b"y\nz\n");
        assert_eq!(lines.next().map(|line| line.text).as_deref(), Some(&b"z"[..]));
    }
}
