//! DNS (RFC 1035) over UDP, over TCP with a length prefix, and as multicast (RFC 6762).

use squall_rules::{Application, ApplicationTest, Buffer, End, Numbers};

use super::{Impossible, Parts, contains, merged};
use crate::{Octets, Turn};

// Arbitrary, but constant, so that equal rules give equal octets.
const QUERY_ID: u16 = 0x5351;
const A: u16 = 1;
const NAME: &str = "www.example.com";

/// A query and its response.
pub(super) fn conversation(
    application: Application,
    parts: &Parts,
) -> Result<Vec<Turn>, Impossible> {
    let wanted = Wanted::of(parts)?;
    let multicast = application == Application::Mdns;
    let question = Message {
        multicast,
        over_tcp: parts.style.over_tcp,
        response: false,
        wanted: &wanted,
        parts,
    };
    let answer = Message { response: true, ..question };
    let mut turns = vec![Turn::new(End::Client, question.octets(End::Client)?)];
    if !parts.style.unanswered || parts.sends(End::Server) {
        turns.push(Turn::new(End::Server, answer.octets(End::Server)?));
    }
    Ok(turns)
}

struct Wanted {
    opcode: u16,
    rcode: u16,
    /// Type of the question and of the first answer.
    kind: u16,
}

impl Wanted {
    fn of(parts: &Parts) -> Result<Self, Impossible> {
        let mut wanted = Wanted { opcode: 0, rcode: 0, kind: A };
        let first = |numbers: &Numbers, usual: &[u16], most: u16, what: &str| {
            let usual = usual.iter().copied().find(|&usual| numbers.contains(usual.into()));
            let other = || {
                numbers
                    .first()
                    .and_then(|first| u16::try_from(first).ok())
                    .filter(|&first| first <= most)
            };
            usual
                .or_else(other)
                .ok_or_else(|| Impossible(format!("no allowed {what} of DNS is at most {most}")))
        };
        for test in &parts.tests {
            match test {
                ApplicationTest::DnsOpcode { opcode } => {
                    wanted.opcode = first(opcode, &[0], 15, "opcode")?
                }
                ApplicationTest::DnsRcode(rcode) => {
                    wanted.rcode = first(rcode, &[0, 3, 2, 5], 15, "rcode")?
                }
                ApplicationTest::DnsType(kind) => {
                    wanted.kind = first(kind, &[A, 28, 5, 16, 15, 2, 12, 33, 6], u16::MAX, "type")?;
                }
                _ => {}
            }
        }
        Ok(wanted)
    }
}

#[derive(Clone, Copy)]
struct Message<'a> {
    multicast: bool,
    over_tcp: bool,
    response: bool,
    wanted: &'a Wanted,
    parts: &'a Parts,
}

impl Message<'_> {
    fn octets(&self, from: End) -> Result<Octets, Impossible> {
        let questions = self.questions()?;
        let (mut answers, mut authorities, mut additionals) = (vec![], vec![], vec![]);
        let names =
            |buffer| self.parts.all(buffer, from).map(labels).collect::<Result<Vec<_>, _>>();
        if self.response {
            answers = names(Buffer::DnsAnswerName)?;
            answers.extend(names(Buffer::DnsResponseName)?);
            answers.extend(names(Buffer::MdnsResponseName)?);
            authorities = names(Buffer::DnsAuthorityName)?;
            if answers.is_empty() && self.wanted.rcode == 0 {
                answers = questions.clone();
            }
        }
        additionals.extend(names(Buffer::DnsAdditionalName)?);
        let id = if self.multicast { 0 } else { QUERY_ID };
        let flags = match (self.response, self.multicast) {
            (false, true) => 0,
            // Recursion desired and available.
            (false, false) => 0x0100,
            (true, true) => 0x8400,
            (true, false) => 0x8180,
        } | self.wanted.opcode << 11
            | if self.response { self.wanted.rcode } else { 0 };
        let mut all = Octets::new();
        for number in [id, flags] {
            all.append(&number16(number));
        }
        for section in [&questions, &answers, &authorities, &additionals] {
            let count = u16::try_from(section.len())
                .map_err(|_| Impossible("a DNS message has at most 65535 names".into()))?;
            all.append(&number16(count));
        }
        for name in &questions {
            all.append(name);
            all.append(&number16(self.wanted.kind));
            all.append(&number16(1));
        }
        for name in &answers {
            record(&mut all, name, self.wanted.kind);
        }
        for name in &authorities {
            record(&mut all, name, 2);
        }
        for name in &additionals {
            record(&mut all, name, A);
        }
        if all.len() > 65_535 {
            return Err(Impossible("a DNS message has at most 65535 octets".into()));
        }
        if self.over_tcp && !self.multicast {
            let mut framed = number16(all.len() as u16);
            framed.append(&all);
            all = framed;
        }
        Ok(all)
    }

    /// The questions, which are the same in both messages.
    fn questions(&self) -> Result<Vec<Octets>, Impossible> {
        let mut names: Vec<&Octets> = vec![];
        for buffer in [Buffer::DnsQuery, Buffer::DnsQueryName, Buffer::MdnsQueryName] {
            for from in [End::Client, End::Server] {
                for name in self.parts.all(buffer, from) {
                    // A name that is contained in another needs no question of its own.
                    if names.iter().any(|other| contains(other.bytes(), name.bytes())) {
                        continue;
                    }
                    names.retain(|other| !contains(name.bytes(), other.bytes()));
                    names.push(name);
                }
            }
        }
        let answered = [Buffer::DnsAnswerName, Buffer::DnsResponseName, Buffer::MdnsResponseName];
        let answered = answered.into_iter().find_map(|buffer| self.parts.get(buffer, End::Server));
        match (names.is_empty(), answered) {
            (true, Some(name)) => Ok(vec![labels(name)?]),
            (true, None) => Ok(vec![labels(&merged(std::iter::once(&Octets::from(NAME)), b""))?]),
            (false, _) => names.into_iter().map(labels).collect(),
        }
    }
}

fn record(all: &mut Octets, name: &Octets, kind: u16) {
    all.append(name);
    all.append(&number16(kind));
    // Class IN, TTL of an hour.
    all.append(&Octets::from(&[0, 1, 0, 0, 0x0e, 0x10]));
    let target = b"\x03ns1\x07example\x03com\0";
    let data: Vec<u8> = match kind {
        A => vec![192, 0, 2, 80],
        2 | 5 | 12 | 39 => target.to_vec(),
        6 => [
            target,
            &target[..],
            &[0, 0, 0, 1, 0, 0, 0x0e, 0x10, 0, 0, 2, 0x58, 0, 9, 0x3a, 0x80, 0, 0, 0x0e, 0x10],
        ]
        .concat(),
        15 => [&[0, 10], &target[..]].concat(),
        16 => b"\x0bv=spf1 -all".to_vec(),
        28 => [&[0x20, 1, 0x0d, 0xb8], &[0; 11][..], &[1]].concat(),
        33 => [&[0, 10, 0, 10, 0x13, 0xc4], &target[..]].concat(),
        _ => vec![0],
    };
    all.append(&number16(data.len() as u16));
    all.append(&Octets::framing(data));
}

/// Encodes a name. If the name starts or ends with a dot, a label is added there.
fn labels(name: &Octets) -> Result<Octets, Impossible> {
    let mut whole = Octets::new();
    if name.bytes().first() == Some(&b'.') {
        whole.append(&"www".into());
    }
    whole.append(name);
    if name.bytes().last() == Some(&b'.') {
        whole.append(&"com".into());
    }
    let impossible = |what: &str| {
        Err(Impossible(format!("{what}: {:?}", String::from_utf8_lossy(name.bytes()))))
    };
    let mut all = Octets::new();
    let mut begin = 0;
    for label in whole.bytes().split(|&octet| octet == b'.') {
        match label.len() {
            0 if whole.is_empty() => break,
            0 => return impossible("a label of a name must not be empty"),
            1..=63 => {}
            _ => return impossible("a label of a name has at most 63 octets"),
        }
        // Engines present the length octet as a dot, so it gets the origin of that dot.
        let origin = match begin {
            0 => crate::Origin::Framing,
            _ => whole.origins()[begin - 1],
        };
        all.push(label.len() as u8, origin);
        all.append(&whole.slice(begin..begin + label.len()));
        begin += label.len() + 1;
    }
    all.append(&Octets::from(&[0]));
    if all.len() > 255 {
        return impossible("a name has at most 255 octets");
    }
    Ok(all)
}

fn number16(number: u16) -> Octets {
    Octets::framing(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::{Style, assemble};
    use super::*;
    use crate::Origin;

    fn messages(parts: &Parts) -> Vec<Vec<u8>> {
        let turns = assemble(Application::Dns, parts).unwrap();
        turns.iter().map(|turn| turn.octets.bytes().to_vec()).collect()
    }

    fn requires(name: &str) -> Parts {
        let buffers = vec![(Buffer::DnsQuery, End::Client, Octets::of(name, Origin::Option(2)))];
        Parts { buffers, ..Parts::default() }
    }

    #[test]
    fn a_question_is_answered_for_its_name() {
        let messages = messages(&requires("a.evil"));
        assert_eq!(messages[0], b"SQ\x01\0\0\x01\0\0\0\0\0\0\x01a\x04evil\0\0\x01\0\x01");
        let answer = b"SQ\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x04evil\0\0\x01\0\x01\x01a\x04evil\0\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x50";
        assert_eq!(messages[1], answer);
    }

    #[test]
    fn over_tcp_a_length_precedes_a_message() {
        let mut parts = requires(".evil");
        parts.style = Style { over_tcp: true, ..Style::default() };
        assert_eq!(&messages(&parts)[0][..16], b"\0\x1aSQ\x01\0\0\x01\0\0\0\0\0\0\x03w");
    }

    #[test]
    fn opcode_rcode_and_type_are_as_required() {
        let mut parts = requires("x");
        parts.tests = vec![
            ApplicationTest::DnsOpcode { opcode: Numbers::one(4) },
            ApplicationTest::DnsRcode(Numbers::range(1..=9)),
            ApplicationTest::DnsType(Numbers::one(16)),
        ];
        let messages = messages(&parts);
        assert_eq!(messages[0][2..4], [0x21, 0]);
        assert_eq!(messages[1][2..4], [0xa1, 0x83]);
        assert!(messages[0].ends_with(b"\x01x\0\0\x10\0\x01"));
        parts.tests = vec![ApplicationTest::DnsOpcode { opcode: Numbers::one(16) }];
        assert!(assemble(Application::Dns, &parts).is_err());
    }

    #[test]
    fn a_name_that_has_no_labels_is_impossible() {
        for name in ["a..b", &"a".repeat(64), &"abcdefg.".repeat(40)] {
            assert!(assemble(Application::Dns, &requires(name)).is_err(), "{name}");
        }
    }
}
