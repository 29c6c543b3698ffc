//! Mail headers and attachments, as in Suricata, where a part with a name is a file.

use squall_rules::{Buffer, End};

use super::text::{Line, starts_caseless};
use super::{Transaction, number};

// Bounds on memory for untrusted traffic.
const MAX_NAME_LEN: usize = 255;
const MAX_HEADERS: usize = 1000;

/// Parses a mail line by line.
#[derive(Default)]
pub(super) struct Mail {
    limit: usize,
    state: State,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Number of headers of the mail itself. Headers after these belong to parts.
    own_headers: usize,
    boundary: Vec<u8>,
    encoding: Encoding,
    is_text: bool,
    name: Vec<u8>,
    file: Vec<u8>,
    is_file_added: bool,
    /// The terminator of the last line. If a boundary follows, the terminator belongs to it.
    held_end: &'static [u8],
    base64: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Start,
    Header,
    Body,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Encoding {
    #[default]
    Plain,
    Base64,
    QuotedPrintable,
}

impl Mail {
    /// `limit`: maximum octets of a file to inspect.
    pub fn new(limit: usize) -> Mail {
        Mail { limit, is_text: true, ..Mail::default() }
    }

    /// Parses the next line, from which dot-stuffing was removed.
    pub fn line(&mut self, line: &Line, transaction: &mut Transaction) {
        match self.state {
            State::Start | State::Header => {
                let text = &line.text;
                if text.is_empty() {
                    self.end_of_headers(transaction);
                } else if self.state == State::Header
                    && matches!(text[0], b' ' | b'\t')
                    && let Some((_, value)) = self.headers.last_mut()
                {
                    value.extend_from_slice(&text[1..]);
                } else if let Some(colon) = memchr::memchr(b':', text)
                    && self.headers.len() < MAX_HEADERS
                {
                    self.state = State::Header;
                    let value = &text[colon + 1..];
                    let start = value
                        .iter()
                        .position(|octet| !matches!(octet, b' ' | b'\t'))
                        .unwrap_or(value.len());
                    self.headers
                        .push((text[..colon].trim_ascii_end().to_vec(), value[start..].to_vec()));
                }
            }
            State::Body => self.body_line(line, transaction),
        }
    }

    /// Ends the mail.
    pub fn end(&mut self, transaction: &mut Transaction) {
        if self.state == State::Header {
            self.end_of_headers(transaction);
        }
        self.close_file(transaction);
    }

    fn end_of_headers(&mut self, transaction: &mut Transaction) {
        self.state = State::Body;
        let is_first = self.own_headers == 0;
        let of_part = &self.headers[self.own_headers..];
        let get = |name: &str| {
            of_part
                .iter()
                .find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
                .map(|(_, value)| &value[..])
        };
        let mut name = get("content-disposition").and_then(|value| parameter(value, b"filename"));
        match get("content-transfer-encoding") {
            Some(value) if value.trim_ascii().eq_ignore_ascii_case(b"base64") => {
                self.encoding = Encoding::Base64
            }
            Some(value) if value.trim_ascii().eq_ignore_ascii_case(b"quoted-printable") => {
                self.encoding = Encoding::QuotedPrintable;
            }
            _ => {}
        }
        if let Some(value) = get("content-type") {
            name = name.or_else(|| parameter(value, b"name"));
            if is_first && let Some(boundary) = parameter(value, b"boundary") {
                self.boundary = [b"--", &boundary[..]].concat();
            }
            let kind = value.split(|&octet| octet == b';').next().unwrap_or_default();
            self.is_text = matches!(kind, b"text/plain" | b"text/html");
        }
        let mut name = name.unwrap_or_default();
        name.truncate(MAX_NAME_LEN);
        if is_first {
            self.add_headers(transaction);
            self.own_headers = self.headers.len();
        }
        if !name.is_empty() {
            transaction.buffers.push((Buffer::FileName, End::Client, name.clone()));
        }
        self.name = name;
        self.is_file_added = false;
    }

    fn add_headers(&self, transaction: &mut Transaction) {
        for (name, buffer) in [
            ("from", Buffer::EmailFrom),
            ("to", Buffer::EmailTo),
            ("cc", Buffer::EmailCc),
            ("subject", Buffer::EmailSubject),
            ("date", Buffer::EmailDate),
            ("message-id", Buffer::EmailMessageId),
            ("x-mailer", Buffer::EmailXMailer),
            ("received", Buffer::EmailReceived),
        ] {
            for (_, value) in self
                .headers
                .iter()
                .filter(|(found, value)| {
                    found.eq_ignore_ascii_case(name.as_bytes()) && !value.is_empty()
                })
                .take(if buffer.is_multiple() { MAX_HEADERS } else { 1 })
            {
                transaction.buffers.push((buffer, End::Client, value.clone()));
            }
        }
    }

    fn body_line(&mut self, line: &Line, transaction: &mut Transaction) {
        if !self.boundary.is_empty() && line.text.starts_with(&self.boundary) {
            self.close_file(transaction);
            self.state = State::Start;
            self.headers.truncate(self.own_headers);
            self.encoding = Encoding::Plain;
            return;
        }
        if self.name.is_empty() {
            if self.is_text {
                add_urls(&line.text, transaction);
            }
            return;
        }
        if self.is_file_added {
            return;
        }
        match self.encoding {
            Encoding::Plain => {
                self.file.extend_from_slice(self.held_end);
                self.file.extend_from_slice(&line.text);
                self.held_end = line.end;
                add_urls(&line.text, transaction);
            }
            Encoding::Base64 => {
                self.base64.extend(line.text.iter().filter(|&&octet| octet != b' '));
                let whole = self.base64.len() / 4 * 4;
                for group in self.base64[..whole].chunks(4) {
                    let Some(octets) = decode_group(group) else { break };
                    self.file.extend(octets);
                }
                self.base64.drain(..whole);
            }
            Encoding::QuotedPrintable => {
                let (octets, goes_on) = quoted_printable(&line.text);
                self.file.extend(octets);
                if !goes_on {
                    self.file.extend_from_slice(line.end);
                }
            }
        }
        if self.file.len() >= self.limit {
            self.file.truncate(self.limit);
            self.close_file(transaction);
            self.is_file_added = true;
        }
    }

    fn close_file(&mut self, transaction: &mut Transaction) {
        if !self.name.is_empty() && !self.is_file_added {
            let file = std::mem::take(&mut self.file);
            number(End::Client, "file.size", file.len() as u64, transaction);
            if !file.is_empty() {
                transaction.buffers.push((Buffer::FileData, End::Client, file));
            }
        }
        self.file.clear();
        self.base64.clear();
        self.held_end = b"";
    }
}

/// Decodes four characters to up to three octets; `None` if they are invalid base64.
fn decode_group(group: &[u8]) -> Option<Vec<u8>> {
    if group[0] == b'=' || group[1] == b'=' {
        return None;
    }
    crate::transforms::decode_base64(group, squall_rules::Base64Mode::Strict)
}

/// Decodes a line, and returns whether it ends in a soft line break. Drops invalid escapes.
fn quoted_printable(line: &[u8]) -> (Vec<u8>, bool) {
    let digit = |octet: u8| match octet {
        b'0'..=b'9' => Some(octet - b'0'),
        b'A'..=b'F' => Some(octet - b'A' + 10),
        _ => None,
    };
    let mut out = Vec::with_capacity(line.len());
    let mut at = 0;
    while at < line.len() {
        if line[at] != b'=' {
            out.push(line[at]);
            at += 1;
            continue;
        }
        if at + 1 == line.len() {
            return (out, true);
        }
        let Some(&[high, low]) = line.get(at + 1..at + 3) else { break };
        if let (Some(high), Some(low)) = (digit(high), digit(low)) {
            out.push(high << 4 | low);
        }
        at += 3;
    }
    (out, false)
}

/// The value of the parameter `; name=value`, with or without quotes.
fn parameter(header: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    header.split(|&octet| octet == b';').skip(1).find_map(|section| {
        let section = section.trim_ascii();
        let value = starts_caseless(section, name).then(|| &section[name.len()..])?;
        let value = value.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
        let value = value
            .strip_prefix(b"\"")
            .map_or(value, |quoted| quoted.strip_suffix(b"\"").unwrap_or(quoted));
        Some(value.to_vec())
    })
}

/// Adds the URLs in a line, each without `http://`.
fn add_urls(line: &[u8], transaction: &mut Transaction) {
    const MOST: usize = 100;
    const SCHEME: &[u8] = b"http://";
    let mut rest = line;
    while let Some(at) =
        rest.windows(SCHEME.len()).position(|window| window.eq_ignore_ascii_case(SCHEME))
    {
        let url = &rest[at + SCHEME.len()..];
        let end = url.iter().position(|octet| b" \"'<>]\t".contains(octet)).unwrap_or(url.len());
        if transaction.buffers.iter().filter(|(buffer, ..)| *buffer == Buffer::EmailUrl).count()
            >= MOST
        {
            return;
        }
        transaction.buffers.push((Buffer::EmailUrl, End::Client, url[..end].to_vec()));
        rest = &url[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mail: &str) -> Transaction {
        let mut transaction = Transaction::default();
        let mut reader = Mail::new(1000);
        for line in mail.split_terminator("\r\n") {
            reader.line(&Line { text: line.as_bytes().to_vec(), end: b"\r\n" }, &mut transaction);
        }
        reader.end(&mut transaction);
        transaction
    }

    fn all(transaction: &Transaction, which: Buffer) -> Vec<String> {
        let text = |octets: &Vec<u8>| String::from_utf8_lossy(octets).into_owned();
        transaction
            .buffers
            .iter()
            .filter(|(buffer, ..)| *buffer == which)
            .map(|(_, _, octets)| text(octets))
            .collect()
    }

    #[test]
    fn parts_with_a_name_are_files_and_decoded() {
        let transaction = read(
            "From: a@b\r\nSubject: c\r\n d\r\nContent-Type: multipart/mixed; boundary=\"XX\"\r\n\r\n--XX\r\nContent-Type: text/plain\r\n\r\nsee http://evil.example/x now\r\n--XX\r\nContent-Type: application/x; name=one.bin\r\nContent-Transfer-Encoding: base64\r\n\r\naGVs\r\nbG8=\r\n--XX\r\nContent-Disposition: attachment; filename=\"two.txt\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=3Db=\r\nc\r\n--XX\r\nContent-Disposition: attachment; filename=three\r\n\r\nplain\r\nlines\r\n--XX--\r\n",
        );
        assert_eq!(all(&transaction, Buffer::FileName), ["one.bin", "two.txt", "three"]);
        assert_eq!(all(&transaction, Buffer::FileData), ["hello", "a=bc\r\n", "plain\r\nlines"]);
        assert_eq!(all(&transaction, Buffer::EmailSubject), ["cd"]);
        assert_eq!(all(&transaction, Buffer::EmailFrom), ["a@b"]);
        assert_eq!(all(&transaction, Buffer::EmailUrl), ["evil.example/x"]);
    }

    #[test]
    fn a_mail_without_parts_may_be_a_file_itself() {
        let transaction = read(
            "Content-Disposition: attachment; filename=f\r\nContent-Transfer-Encoding: \
             base64\r\n\r\nZm9v\r\n",
        );
        assert_eq!(all(&transaction, Buffer::FileData), ["foo"]);
        assert_eq!(
            all(&read("Subject: x\r\n\r\nonly text\r\n"), Buffer::FileData),
            Vec::<String>::new()
        );
    }
}
