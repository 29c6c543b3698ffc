//! A DNS server with a list of addresses (RFC 1034 section 4.3.2), for hosts that answer.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use crate::dns::{
    A, AAAA, ANY, AUTHORITATIVE, DnsReader, DnsRecord, FIRST_NAME, HEADER, INTERNET, Name,
    NameTemplate, OPCODE, RECURSION_DESIRED, RESPONSE, TRUNCATED, write_header, write_record,
};

/// The longest message over UDP, in octets (RFC 1035 section 2.3.4).
const LONGEST: usize = 512;

/// The addresses of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsZone {
    names: HashMap<Box<[u8]>, Vec<IpAddr>>,
    /// The names above wildcards: "example" for "*.example".
    above: HashMap<Box<[u8]>, Vec<IpAddr>>,
    /// All names that exist: the names of the list and the names above them, which have no
    /// addresses if they are not in the list themselves (RFC 4592 section 2.2.2).
    existing: HashSet<Box<[u8]>>,
    /// Seconds for which answers are valid.
    ttl: u32,
}

/// The kind of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsReply {
    /// The name has addresses of the wanted type.
    Answered,
    /// The name has none.
    Empty,
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// The question is of another class, or the operation of another kind.
    NotImplemented,
}

impl DnsZone {
    /// A zone without names, whose answers are valid for `ttl` seconds.
    pub fn new(ttl: u32) -> Self {
        Self { ttl, ..Self::default() }
    }

    /// Adds an address. A name that begins with "*." means all names below. Returns whether the
    /// name is a valid one.
    pub fn add(&mut self, name: &str, address: IpAddr) -> bool {
        let (table, text) = match name.strip_prefix("*.") {
            Some(rest) => (&mut self.above, rest),
            None => (&mut self.names, name),
        };
        let mut name = Name::default();
        // A number in a name has no meaning here.
        let written = NameTemplate::new(text).filter(|_| !text.contains('{'));
        let is_valid = written.and_then(|template| template.write(0, 0, &mut name)).is_some();
        if is_valid {
            table.entry(name.octets().into()).or_default().push(address);
            // Where a name exists, the names above it exist, too.
            let new = names_from(name.octets()).take_while(|name| !self.existing.contains(*name));
            let new: Vec<Box<[u8]>> = new.map(Into::into).collect();
            self.existing.extend(new);
        }
        is_valid
    }

    /// The addresses of a name; `None`: it does not exist. A wildcard represents names that do not
    /// exist and whose closest existing name above is that of the wildcard (RFC 4592 section
    /// 3.3.1).
    fn find(&self, name: &[u8]) -> Option<&[IpAddr]> {
        if let Some(all) = self.names.get(name) {
            return Some(all);
        }
        if self.existing.contains(name) {
            return Some(&[]);
        }
        let closest = names_from(name).find(|name| self.existing.contains(*name))?;
        self.above.get(closest).map(Vec::as_slice)
    }

    /// Appends the response to a query.
    ///
    /// # Errors
    /// The reason for which the message gets no response.
    pub fn respond(&self, query: &[u8], out: &mut Vec<u8>) -> Result<DnsReply, &'static str> {
        let (header, mut reader) = DnsReader::new(query)?;
        if header.flags & RESPONSE != 0 {
            return Err("not_a_query");
        }
        if header.questions != 1 {
            return Err("not_one_question");
        }
        let mut name = Name::default();
        let (kind, class) = reader.question(&mut name)?;
        // Resolvers ask with upper and lower case at random, against forged answers, and discard
        // answers whose question has another case: it comes back octet by octet.
        let question = &reader.so_far()[HEADER..];
        // Before the first question there is only the header, so that a pointer leads to no name.
        if question.len() != name.octets().len() + 4 {
            return Err("bad_pointer");
        }
        let copied = RESPONSE | header.flags & (OPCODE | RECURSION_DESIRED);
        let begin = out.len();
        write_header(header.id, copied, [1, 0, 0, 0], out);
        out.extend_from_slice(question);
        let (reply, flags) = if header.flags & OPCODE != 0 || class != INTERNET {
            (DnsReply::NotImplemented, 4)
        } else {
            match self.find(name.octets()) {
                None => (DnsReply::NoName, AUTHORITATIVE | 3),
                Some(all) => self.write_answers(all, kind, begin, out),
            }
        };
        let flags = (copied | flags).to_be_bytes();
        out[begin + 2..begin + 4].copy_from_slice(&flags);
        Ok(reply)
    }

    /// Appends the answers that fit.
    fn write_answers(
        &self,
        all: &[IpAddr],
        kind: u16,
        begin: usize,
        out: &mut Vec<u8>,
    ) -> (DnsReply, u16) {
        let (mut count, mut flags) = (0u16, AUTHORITATIVE);
        for address in all {
            let before = out.len();
            let is_wanted = match address {
                IpAddr::V4(address) if matches!(kind, A | ANY) => {
                    write_address(A, self.ttl, &address.octets(), out)
                }
                IpAddr::V6(address) if matches!(kind, AAAA | ANY) => {
                    write_address(AAAA, self.ttl, &address.octets(), out)
                }
                _ => false,
            };
            if out.len() - begin > LONGEST {
                out.truncate(before);
                flags |= TRUNCATED;
                break;
            }
            count += u16::from(is_wanted);
        }
        out[begin + HEADER - 6..begin + HEADER - 4].copy_from_slice(&count.to_be_bytes());
        (if count > 0 { DnsReply::Answered } else { DnsReply::Empty }, flags)
    }
}

/// A name and those above it, without the root.
fn names_from(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    fn above<'a>(name: &&'a [u8]) -> Option<&'a [u8]> {
        name.get(1 + usize::from(*name.first()?)..)
    }
    std::iter::successors(Some(name), above).take_while(|name| name.first().is_some_and(|l| *l > 0))
}

fn write_address(kind: u16, ttl: u32, data: &[u8], out: &mut Vec<u8>) -> bool {
    write_record(&FIRST_NAME, &DnsRecord { kind, class: INTERNET, ttl, data }, out);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::write_question;

    fn zone() -> DnsZone {
        let mut zone = DnsZone::new(60);
        for (name, address) in [
            ("www.example", "10.0.0.1"),
            ("www.example", "10.0.0.2"),
            ("WWW.example.", "2001:db8::1"),
            ("*.example", "10.0.0.3"),
            ("*.deep.example", "10.0.0.4"),
            ("v4.example", "10.0.0.5"),
        ] {
            assert!(zone.add(name, address.parse().unwrap()), "{name}");
        }
        zone
    }

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut wire = Name::default();
        NameTemplate::new(name).unwrap().write(1, 1, &mut wire).unwrap();
        let mut out = Vec::new();
        write_header(7, RECURSION_DESIRED, [1, 0, 0, 0], &mut out);
        write_question(wire.octets(), kind, INTERNET, &mut out);
        out
    }

    /// The kind of the response, its flags, and the octets of its records.
    fn get(zone: &DnsZone, query: &[u8]) -> (DnsReply, u16, Vec<Vec<u8>>) {
        let mut out = vec![9];
        let reply = zone.respond(query, &mut out).unwrap();
        assert!(out.len() - 1 <= LONGEST);
        let (header, mut reader) = DnsReader::new(&out[1..]).unwrap();
        assert_eq!((header.id, header.questions), (7, 1));
        let mut name = Name::default();
        reader.question(&mut name).unwrap();
        let asked = name.octets().to_vec();
        let records = (0..header.answers).map(|_| {
            let record = reader.record(&mut name).unwrap();
            assert_eq!((record.ttl, name.octets()), (60, &asked[..]));
            record.data.to_vec()
        });
        let records = records.collect();
        (reply, header.flags, records)
    }

    #[test]
    fn names_have_their_addresses_by_type_and_others_do_not_exist() {
        let zone = zone();
        let fine = RESPONSE | AUTHORITATIVE | RECURSION_DESIRED;
        let (reply, flags, found) = get(&zone, &query("wWw.example", A));
        assert_eq!((reply, flags), (DnsReply::Answered, fine));
        assert_eq!(found, [[10, 0, 0, 1], [10, 0, 0, 2]]);
        assert_eq!(get(&zone, &query("www.example", AAAA)).2.len(), 1);
        assert_eq!(get(&zone, &query("www.example", ANY)).2.len(), 3);
        assert_eq!(get(&zone, &query("v4.example", AAAA)).0, DnsReply::Empty);
        let (reply, flags, found) = get(&zone, &query("other", A));
        assert_eq!((reply, flags, found.len()), (DnsReply::NoName, fine | 3, 0));
    }

    #[test]
    fn wildcards_stand_for_names_below_and_the_longest_counts() {
        let zone = zone();
        assert_eq!(get(&zone, &query("a.b.example", A)).2, [[10, 0, 0, 3]]);
        assert_eq!(get(&zone, &query("a.b.deep.example", A)).2, [[10, 0, 0, 4]]);
        // A name that exists is none of those: it may have no addresses, or be above another one.
        assert_eq!(get(&zone, &query("v4.example", AAAA)).0, DnsReply::Empty);
        assert_eq!(get(&zone, &query("deep.example", A)).0, DnsReply::Empty);
        assert_eq!(get(&zone, &query("example", A)).0, DnsReply::Empty);
        // Below it there is no wildcard, and the one above does not count.
        assert_eq!(get(&zone, &query("a.www.example", A)).0, DnsReply::NoName);
        let mut refused = DnsZone::default();
        for name in ["", "*.", "a..b", "{}.example"] {
            assert!(!refused.add(name, [10, 0, 0, 1].into()), "{name}");
        }
    }

    #[test]
    fn answers_that_do_not_fit_are_truncated() {
        let mut zone = DnsZone::new(60);
        (0..=99).for_each(|i| assert!(zone.add("many.example", [10, 0, 0, i].into())));
        let (_, flags, found) = get(&zone, &query("many.example", A));
        assert!(flags & TRUNCATED != 0 && found.len() == (512 - 12 - 18) / 16, "{}", found.len());
    }

    #[test]
    fn a_question_comes_back_with_the_case_that_it_had() {
        let mut asked = query("www.example", A);
        // "wWw.EXample".
        [14, 17, 18].into_iter().for_each(|at| asked[at] ^= 0x20);
        assert_eq!(asked[HEADER..HEADER + 6], *b"\x03wWw\x07E");
        let mut out = Vec::new();
        assert_eq!(zone().respond(&asked, &mut out), Ok(DnsReply::Answered));
        assert_eq!(out[HEADER..asked.len()], asked[HEADER..]);
        assert_eq!(get(&zone(), &asked).2, [[10, 0, 0, 1], [10, 0, 0, 2]]);
        // A pointer to the octets of the header, which have a root in them.
        let mut pointer = Vec::new();
        write_header(7, 0, [1, 0, 0, 0], &mut pointer);
        write_question(&[0xc0, 6], A, INTERNET, &mut pointer);
        assert_eq!(zone().respond(&pointer, &mut Vec::new()), Err("bad_pointer"));
    }

    #[test]
    fn other_operations_are_refused_and_hostile_queries_get_nothing() {
        let zone = zone();
        let mut notify = query("www.example", A);
        notify[2] |= 0x20;
        assert_eq!(get(&zone, &notify).0, DnsReply::NotImplemented);
        let mut chaos = query("www.example", A);
        *chaos.last_mut().unwrap() = 3;
        assert_eq!(get(&zone, &chaos).0, DnsReply::NotImplemented);
        let right = query("www.example", A);
        let reason = |octets: &[u8]| zone.respond(octets, &mut Vec::new()).unwrap_err();
        for len in 0..right.len() {
            assert_eq!(reason(&right[..len]), "truncated");
        }
        let changed = |place: usize, octet| {
            let mut octets = right.clone();
            octets[place] ^= octet;
            octets
        };
        assert_eq!(reason(&changed(2, 0x80)), "not_a_query");
        assert_eq!(reason(&changed(5, 3)), "not_one_question");
    }
}
