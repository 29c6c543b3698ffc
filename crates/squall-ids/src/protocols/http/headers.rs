//! HTTP/1 header fields, parsed as leniently as libhtp does.

/// A header field, with name and value trimmed. A line without a colon has an empty name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

/// All fields of a message. Values of repeated fields are joined by `, `.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Headers {
    pub list: Vec<Header>,
}

/// Maximum number of fields; libhtp rejects a message with more.
const MOST: usize = 1024;
/// Maximum number of continuation lines of a field.
const MAX_FOLDS: usize = 128;
/// Maximum number of values appended to a field.
const MAX_REPETITIONS: usize = 64;

impl Headers {
    /// Finds a field by name, ignoring case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.list
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|header| &header.value[..])
    }

    /// Adds the fields in `block`, which holds all header lines unless the data ended early.
    /// Returns false if there are too many.
    pub fn read(&mut self, block: &[u8], by: By) -> bool {
        let mut repetitions = 0;
        for Header { name, value } in unfold(block, by) {
            if let Some(there) =
                self.list.iter_mut().find(|header| header.name.eq_ignore_ascii_case(&name))
            {
                repetitions += 1;
                // The first Content-Length applies.
                if repetitions <= MAX_REPETITIONS && !name.eq_ignore_ascii_case(b"content-length") {
                    there.value.extend_from_slice(b", ");
                    there.value.extend_from_slice(&value);
                }
            } else if self.list.len() > MOST {
                return false;
            } else {
                self.list.push(Header { name, value });
            }
        }
        true
    }
}

/// The sender. In the server's messages, a bare carriage return also ends a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum By {
    Client,
    Server,
}

/// Length of the headers at the start of `input`, including the final empty line; `None` if they
/// are incomplete.
pub(super) fn end_of_headers(input: &[u8], by: By) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = line_length(&input[at..], by)?;
        at += line.with_end;
        if line.text == 0 {
            return Some(at);
        }
    }
}

struct Line {
    text: usize,
    with_end: usize,
}

/// The first line of `input`; `None` if it is incomplete.
fn line_length(input: &[u8], by: By) -> Option<Line> {
    let end = match by {
        By::Client => memchr::memchr(b'\n', input)?,
        By::Server => memchr::memchr2(b'\r', b'\n', input)?,
    };
    match (by, input[end], input.get(end + 1)) {
        (By::Server, b'\r', Some(b'\n')) => Some(Line { text: end, with_end: end + 2 }),
        // Whether the line ends here depends on the next octet.
        (By::Server, b'\r', None) => None,
        // `\n\r` is a single line end, except in `\n\r\n`, which ends a line and then an empty
        // line.
        (By::Server, b'\n', Some(b'\r'))
            if input.get(end + 2).is_some_and(|&next| next != b'\n') =>
        {
            Some(Line { text: end, with_end: end + 2 })
        }
        (By::Client, _, _) if end > 0 && input[end - 1] == b'\r' => {
            Some(Line { text: end - 1, with_end: end + 1 })
        }
        _ => Some(Line { text: end, with_end: end + 1 }),
    }
}

fn unfold(block: &[u8], by: By) -> Vec<Header> {
    let mut headers: Vec<Header> = vec![];
    let mut folds = 0;
    let mut rest = block;
    while !rest.is_empty() {
        let line = line_length(rest, by).unwrap_or(Line { text: rest.len(), with_end: rest.len() });
        let text = &rest[..line.text];
        rest = &rest[line.with_end..];
        if text.is_empty() {
            continue;
        }
        if matches!(text[0], b' ' | b'\t' | 0)
            && folds < MAX_FOLDS
            && let Some(last) = headers.last_mut()
            && !(by == By::Server && has_name(text))
        {
            folds += 1;
            if !last.value.is_empty() {
                last.value.push(text[0]);
            }
            last.value.extend_from_slice(&text[1..]);
            continue;
        }
        folds = 0;
        headers.push(match memchr::memchr(b':', text) {
            Some(colon) => Header {
                name: trimmed(&text[..colon]).to_vec(),
                value: skip_blanks(&text[colon + 1..]).to_vec(),
            },
            None => Header { name: vec![], value: text.to_vec() },
        });
    }
    for header in &mut headers {
        header.value = trimmed(&header.value).to_vec();
    }
    headers
}

/// Whether `text` starts with a field name and a colon. In a response, even a line that starts with
/// a blank may be a new field.
fn has_name(text: &[u8]) -> bool {
    let text = skip_blanks(text);
    let token = text.iter().position(|&octet| !is_token(octet)).unwrap_or(text.len());
    token > 0 && skip_blanks(&text[token..]).starts_with(b":")
}

fn is_token(octet: u8) -> bool {
    (33..127).contains(&octet) && !b"()<>@,;:\\\"/[]?={}".contains(&octet)
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    &text[text.iter().position(|octet| !matches!(octet, b' ' | b'\t')).unwrap_or(text.len())..]
}

/// White space as in C's `isspace`.
pub(super) fn is_space(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let Some(start) = text.iter().position(|&octet| !is_space(octet)) else { return &[] };
    let end = text.iter().rposition(|&octet| !is_space(octet)).map_or(start, |last| last + 1);
    &text[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: &str, by: By) -> Vec<(String, String)> {
        let mut headers = Headers::default();
        assert!(headers.read(block.as_bytes(), by));
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        headers.list.iter().map(|header| (text(&header.name), text(&header.value))).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn blanks_around_names_and_values_are_no_part_of_them() {
        assert_eq!(read("A :  b \t\r\nC:d\r\n\r\n", By::Client), pairs(&[("A", "b"), ("C", "d")]));
    }

    #[test]
    fn folded_lines_are_one_value_with_the_blank_they_begin_with() {
        assert_eq!(
            read("K: V\n a\r\n l\n u\r\n\te\r\n\r\n", By::Client),
            pairs(&[("K", "V a l u\te")])
        );
    }

    #[test]
    fn a_line_without_a_colon_is_a_value_without_a_name() {
        assert_eq!(
            read("k1:v1\r\nk4 v4\r\n\r\n", By::Client),
            pairs(&[("k1", "v1"), ("", "k4 v4")])
        );
    }

    #[test]
    fn headers_of_one_name_are_joined_but_a_length_stays() {
        assert_eq!(
            read("a: 1\r\nContent-Length: 3\r\nA: 2\r\ncontent-length: 4\r\n\r\n", By::Client),
            pairs(&[("a", "1, 2"), ("Content-Length", "3")])
        );
    }

    #[test]
    fn a_carriage_return_ends_a_line_of_a_server_only() {
        assert_eq!(
            read("Host:a\rName: Value\r\n\r\n", By::Client),
            pairs(&[("Host", "a\rName: Value")])
        );
        assert_eq!(
            read("Host:a\rName: Value\r\n\r\n", By::Server),
            pairs(&[("Host", "a"), ("Name", "Value")])
        );
    }

    #[test]
    fn an_empty_line_ends_them_however_it_is_written() {
        assert_eq!(end_of_headers(b"a: b\r\n\r\nx", By::Client), Some(8));
        assert_eq!(end_of_headers(b"a: b\n\nx", By::Client), Some(6));
        assert_eq!(end_of_headers(b"\r\nx", By::Client), Some(2));
        assert_eq!(end_of_headers(b"a: b\r\n", By::Client), None);
        assert_eq!(end_of_headers(b"a: b\n\r\nx", By::Server), Some(7));
        assert_eq!(end_of_headers(b"a: b\r\n\r\nx", By::Server), Some(8));
    }
}
