//! Messages of DNS (RFC 1035 sections 3 and 4), read and written without allocations.

use squall_units::{be16, be32, get_be16};

/// UDP port of servers.
pub const DNS_PORT: u16 = 53;
/// Types of records (RFC 1035 section 3.2.2, RFC 3596), and the type that asks for all.
pub const A: u16 = 1;
pub const AAAA: u16 = 28;
pub const ANY: u16 = 255;
/// The class of the Internet.
pub const INTERNET: u16 = 1;
/// Bits of the header's second word (section 4.1.1).
pub const RESPONSE: u16 = 0x8000;
pub const OPCODE: u16 = 0x7800;
pub const AUTHORITATIVE: u16 = 0x0400;
pub const TRUNCATED: u16 = 0x0200;
pub const RECURSION_DESIRED: u16 = 0x0100;
pub const RCODE: u16 = 0x000f;
/// Octets of a header.
pub const HEADER: usize = 12;
/// Octets of a name and of a label at most (section 2.3.4).
const MOST_NAME: usize = 255;
const MOST_LABEL: usize = 63;
/// A pointer to the name of the first question.
pub(crate) const FIRST_NAME: [u8; 2] = [0xc0, HEADER as u8];

/// A name in wire format, without compression and in lower case, because names are compared without
/// regard to case (section 2.3.3).
#[derive(Clone)]
pub struct Name {
    octets: [u8; MOST_NAME],
    len: usize,
}

impl Default for Name {
    /// No name, not even the root.
    fn default() -> Self {
        Self { octets: [0; MOST_NAME], len: 0 }
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.octets().fmt(f)
    }
}

impl Name {
    /// Labels, each after its length, and the root.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    fn push(&mut self, octets: &[u8]) -> Option<()> {
        let end = self.len + octets.len();
        self.octets.get_mut(self.len..end)?.copy_from_slice(octets);
        self.len = end;
        Some(())
    }

    /// Reads the name at `at` in place of the current one. Returns where the octets after it begin.
    ///
    /// # Errors
    /// The name is truncated, too long, or has a pointer that does not lead to an earlier place.
    pub fn read(&mut self, message: &[u8], at: usize) -> Result<usize, &'static str> {
        self.len = 0;
        let (mut at, mut end, mut limit) = (at, None, at);
        loop {
            let len = *message.get(at).ok_or("truncated")?;
            match len >> 6 {
                0 => {
                    let label = message.get(at..=at + usize::from(len)).ok_or("truncated")?;
                    self.push(label).ok_or("long_name")?;
                    at += label.len();
                    if len == 0 {
                        break;
                    }
                }
                3 => {
                    let place = usize::from(get_be16(message, at).ok_or("truncated")? & 0x3fff);
                    end = end.or(Some(at + 2));
                    // Each pointer leads before the one before, so that the reader comes to an end.
                    if place >= limit {
                        return Err("bad_pointer");
                    }
                    (at, limit) = (place, place);
                }
                _ => return Err("bad_label"),
            }
        }
        self.octets[..self.len].make_ascii_lowercase();
        Ok(end.unwrap_or(at))
    }
}

/// A name of which parts are numbers: `{}` is the number of the host, `{q}` that of the question,
/// both from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTemplate(Box<str>);

impl NameTemplate {
    /// `None`: a label or the name is empty, or too long for the highest numbers, or has other
    /// octets than visible ASCII.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_visible = text.bytes().all(|octet| octet.is_ascii_graphic());
        let template = Self(text.into());
        let fits = is_visible && template.write(u32::MAX, u64::MAX, &mut Name::default()).is_some();
        fits.then_some(template)
    }

    /// Writes the name for a host and a question in place of `name`. `None`: it does not fit.
    pub fn write(&self, host: u32, question: u64, name: &mut Name) -> Option<()> {
        name.len = 0;
        for label in self.0.split('.') {
            let begin = name.len;
            name.push(&[0])?;
            let mut rest = label;
            while let Some((before, after)) = rest.split_once('{') {
                name.push(before.as_bytes())?;
                let (number, after) = match (after.strip_prefix('}'), after.strip_prefix("q}")) {
                    (Some(after), _) => (host.into(), after),
                    (_, Some(after)) => (question, after),
                    _ => return None,
                };
                push_decimal(number, name)?;
                rest = after;
            }
            name.push(rest.as_bytes())?;
            let len = name.len - begin - 1;
            name.octets[begin] =
                u8::try_from(len).ok().filter(|_| (1..=MOST_LABEL).contains(&len))?;
        }
        name.push(&[0])
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

fn push_decimal(number: u64, name: &mut Name) -> Option<()> {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return name.push(&digits[at..]);
        }
    }
}

/// The header of a message: identifier, flags, and the numbers of questions and of records of each
/// section (section 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsHeader {
    pub id: u16,
    pub flags: u16,
    pub questions: u16,
    pub answers: u16,
    pub authorities: u16,
    pub additional: u16,
}

/// A record, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsRecord<'a> {
    pub kind: u16,
    pub class: u16,
    /// Seconds.
    pub ttl: u32,
    pub data: &'a [u8],
}

/// A message, read from its begin.
#[derive(Clone, Copy, Debug)]
pub struct DnsReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> DnsReader<'a> {
    /// # Errors
    /// The header is truncated.
    pub fn new(message: &'a [u8]) -> Result<(DnsHeader, Self), &'static str> {
        let head = message.get(..HEADER).ok_or("truncated")?;
        let header = DnsHeader {
            id: be16(head, 0),
            flags: be16(head, 2),
            questions: be16(head, 4),
            answers: be16(head, 6),
            authorities: be16(head, 8),
            additional: be16(head, 10),
        };
        Ok((header, Self { message, at: HEADER }))
    }

    /// The octets that were read so far.
    pub fn so_far(&self) -> &'a [u8] {
        &self.message[..self.at]
    }

    /// Reads a question. Returns its type and its class.
    ///
    /// # Errors
    /// The question is malformed.
    pub fn question(&mut self, name: &mut Name) -> Result<(u16, u16), &'static str> {
        let at = name.read(self.message, self.at)?;
        let rest = self.message.get(at..at + 4).ok_or("truncated")?;
        self.at = at + 4;
        Ok((be16(rest, 0), be16(rest, 2)))
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The record is malformed.
    pub fn record(&mut self, name: &mut Name) -> Result<DnsRecord<'a>, &'static str> {
        let at = name.read(self.message, self.at)?;
        let fixed = self.message.get(at..at + 10).ok_or("truncated")?;
        let end = at + 10 + usize::from(be16(fixed, 8));
        let data = self.message.get(at + 10..end).ok_or("truncated")?;
        self.at = end;
        Ok(DnsRecord { kind: be16(fixed, 0), class: be16(fixed, 2), ttl: be32(fixed, 4), data })
    }
}

/// Appends a header. `counts` are the numbers of questions and of records of each section.
pub fn write_header(id: u16, flags: u16, counts: [u16; 4], out: &mut Vec<u8>) {
    for word in [id, flags].into_iter().chain(counts) {
        out.extend(word.to_be_bytes());
    }
}

/// Appends a question.
pub fn write_question(name: &[u8], kind: u16, class: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend(kind.to_be_bytes());
    out.extend(class.to_be_bytes());
}

/// Appends a record. `name` may be a pointer.
pub fn write_record(name: &[u8], record: &DnsRecord<'_>, out: &mut Vec<u8>) {
    write_question(name, record.kind, record.class, out);
    out.extend(record.ttl.to_be_bytes());
    out.extend((record.data.len() as u16).to_be_bytes());
    out.extend_from_slice(record.data);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn name(text: &str) -> Name {
        let mut name = Name::default();
        NameTemplate::new(text).unwrap().write(1, 1, &mut name).unwrap();
        name
    }

    #[test]
    fn templates_have_the_numbers_of_host_and_question() {
        let mut found = Name::default();
        NameTemplate::new("Www{}.x{q}y.example.").unwrap().write(17, 203, &mut found).unwrap();
        assert_eq!(found.octets(), b"\x05www17\x05x203y\x07example\0");
        let long = format!("{}.example", "a".repeat(63));
        assert!(NameTemplate::new(&long).is_some());
        let too_long = ["", ".", "a..b", "a.{x}", "a b", "\u{e9}.b"].map(String::from);
        let more = [format!("a{long}"), format!("{{}}{long}"), [&long[..63]; 4].join(".")];
        for text in too_long.iter().chain(&more) {
            assert_eq!(NameTemplate::new(text), None, "{text}");
        }
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut message = Vec::new();
        write_header(7, RESPONSE, [1, 2, 0, 0], &mut message);
        write_question(name("www.Example").octets(), A, INTERNET, &mut message);
        let record = DnsRecord { kind: A, class: INTERNET, ttl: 60, data: &[10, 0, 0, 1] };
        write_record(&FIRST_NAME, &record, &mut message);
        // A label, and a pointer to "example".
        write_record(b"\x03ftp\xc0\x10", &record, &mut message);
        let (header, mut reader) = DnsReader::new(&message).unwrap();
        assert_eq!((header.id, header.flags, header.answers), (7, RESPONSE, 2));
        let mut found = Name::default();
        assert_eq!(reader.question(&mut found), Ok((A, INTERNET)));
        assert_eq!(found.octets(), name("www.example").octets());
        assert_eq!(reader.record(&mut found), Ok(record));
        assert_eq!(found.octets(), name("www.example").octets());
        assert_eq!(reader.record(&mut found), Ok(record));
        assert_eq!(found.octets(), name("ftp.example").octets());
        assert_eq!(reader.record(&mut found), Err("truncated"));
    }

    #[test]
    fn hostile_names_are_refused_with_a_reason() {
        let read = |octets: &[u8], at| Name::default().read(octets, at).unwrap_err();
        assert_eq!(read(&[0xc0, 0], 0), "bad_pointer", "to itself");
        assert_eq!(read(&[0, 0xc0, 3, 0xc0, 1], 1), "bad_pointer", "in a circle");
        assert_eq!(read(&[1, b'a', 0xc0, 0], 2), "bad_pointer", "back to where it was");
        assert_eq!(read(&[0xc0], 0), "truncated");
        assert_eq!(read(&[3, b'a'], 0), "truncated");
        assert_eq!(read(&[0x40, 0], 0), "bad_label");
        let long: Vec<u8> = std::iter::repeat_n([1, b'a'], 128).flatten().chain([0]).collect();
        assert_eq!(read(&long, 0), "long_name");
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic_or_go_on_forever(
            octets in proptest::collection::vec(prop_oneof![any::<u8>(), 0..4u8, Just(0xc0)], 0..200),
        ) {
            let Ok((header, mut reader)) = DnsReader::new(&octets) else { return Ok(()) };
            let mut name = Name::default();
            for _ in 0..header.questions.min(50) {
                if reader.question(&mut name).is_err() {
                    break;
                }
                prop_assert!(name.octets().len() <= MOST_NAME);
            }
            for _ in 0..header.answers.min(50) {
                if reader.record(&mut name).is_err() {
                    break;
                }
            }
        }
    }
}
