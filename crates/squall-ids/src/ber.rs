//! What `asn1` finds wrong with BER.

use squall_rules::{Asn1, EngineVersion};

/// Elements one behind the other, and elements inside each other: Suricata's `asn1-max-frames`.
const ELEMENTS: usize = 256;

/// Whether one of the things that `asked` names is wrong with `octets`.
///
/// Suricata reads elements whole: one whose octets are not all there is none, nor is one whose
/// content its type does not allow, and nothing behind it is read. Snort believes the lengths.
pub(crate) fn is_wrong(asked: &Asn1, octets: &[u8], engine: EngineVersion) -> bool {
    let (mut rest, mut wrong) = (octets, false);
    for _ in 0..ELEMENTS {
        match element(asked, rest, ELEMENTS, engine) {
            Some((length, found)) => {
                wrong |= found;
                rest = &rest[length..];
            }
            None => return wrong,
        }
        if rest.is_empty() {
            return wrong;
        }
    }
    // More than it looks at: then it has looked at nothing.
    wrong && !engine.is_suricata()
}

/// How many octets the first element takes, and whether something is wrong with it or one inside;
/// `None`: there is none.
fn element(
    asked: &Asn1,
    octets: &[u8],
    depth: usize,
    engine: EngineVersion,
) -> Option<(usize, bool)> {
    let depth = depth.checked_sub(1)?;
    let header = header(octets)?;
    let behind = &octets[header.length..];
    let Some(said) = header.content else {
        // An end that is marked: the elements up to two zeros. Only what is inside can be wrong.
        let (mut at, mut wrong) = (0, false);
        while !behind.get(at..)?.starts_with(&[0, 0]) {
            let (length, found) = element(asked, &behind[at..], depth, engine)?;
            at += length;
            wrong |= found;
        }
        return header.is_constructed.then_some((header.length + at + 2, wrong));
    };
    let length = usize::try_from(said).unwrap_or(usize::MAX);
    if length > behind.len() && engine.is_suricata() {
        return None;
    }
    let content = &behind[..length.min(behind.len())];
    let mut wrong = asked.oversize_length.is_some_and(|most| said > u64::from(most));
    if header.is_universal {
        wrong |= match (header.tag, header.is_constructed) {
            (SEQUENCE | SET, true) => {
                let (mut rest, mut wrong) = (content, false);
                while !rest.is_empty() {
                    match element(asked, rest, depth, engine) {
                        Some((length, found)) => {
                            wrong |= found;
                            rest = &rest[length..];
                        }
                        None if !engine.is_suricata() => break,
                        None => return None,
                    }
                }
                wrong
            }
            (tag, false) if engine.is_suricata() && !is_allowed(tag, content) => {
                return None;
            }
            // More unused bits than octets have, counting the one that says so.
            (BIT_STRING, false) => {
                asked.bitstring_overflow
                    && content
                        .first()
                        .is_some_and(|&unused| u64::from(unused) > said.saturating_mul(8))
            }
            // A real number in decimal with more digits than a double's text has room for.
            (REAL, false) => {
                asked.double_overflow
                    && said > 256
                    && content.first().is_some_and(|first| first & 0xc0 == 0)
            }
            (BIT_STRING, true) if engine.is_suricata() => return None,
            _ => false,
        };
    }
    Some((header.length + content.len(), wrong))
}

const BIT_STRING: u32 = 3;
const REAL: u32 = 9;
const SEQUENCE: u32 = 16;
const SET: u32 = 17;

/// Whether a primitive element of a universal type may hold it, as far as its reader minds (X.690
/// §8).
fn is_allowed(tag: u32, content: &[u8]) -> bool {
    let all = |allowed: fn(&u8) -> bool| content.iter().all(allowed);
    match tag {
        1 => content.len() == 1,
        BIT_STRING => !content.is_empty(),
        SEQUENCE | SET => false,
        12 => std::str::from_utf8(content).is_ok(),
        18 => all(|octet| octet.is_ascii_digit() || *octet == b' '),
        19 => all(|octet| octet.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(octet)),
        // Times: digits, and where they are.
        23 | 24 => {
            content.len() >= 11 && all(|octet| octet.is_ascii_digit() || b"Z+-.".contains(octet))
        }
        26 => all(|octet| (0x20..0x7f).contains(octet)),
        7 | 20 | 22 | 25 | 27 => content.is_ascii(),
        30 => content.len().is_multiple_of(2),
        _ => true,
    }
}

struct Header {
    is_universal: bool,
    is_constructed: bool,
    tag: u32,
    /// Octets of tag and length.
    length: usize,
    /// Octets of what follows, as it says; `None`: its end is marked.
    content: Option<u64>,
}

fn header(octets: &[u8]) -> Option<Header> {
    let (&first, mut rest) = octets.split_first()?;
    let mut tag = u32::from(first & 0x1f);
    if tag == 0x1f {
        tag = 0;
        loop {
            let (&next, more) = rest.split_first()?;
            rest = more;
            tag = tag.checked_mul(128)?.checked_add((next & 0x7f).into())?;
            if next & 0x80 == 0 {
                break;
            }
        }
    }
    let (&length, mut rest) = rest.split_first()?;
    let content =
        match length {
            0..=0x7f => Some(u64::from(length)),
            0x80 => None,
            _ => {
                let (octets, more) = rest.split_at_checked(usize::from(length & 0x7f))?;
                rest = more;
                Some(octets.iter().fold(0u64, |value, &octet| {
                    value.saturating_mul(256).saturating_add(octet.into())
                }))
            }
        };
    Some(Header {
        is_universal: first & 0xc0 == 0,
        is_constructed: first & 0x20 != 0,
        tag,
        length: octets.len() - rest.len(),
        content,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oversize(most: u32) -> Asn1 {
        Asn1 { oversize_length: Some(most), ..Asn1::default() }
    }

    #[test]
    fn a_length_beyond_what_is_asked_is_wrong_wherever_it_is_nested() {
        let octets = b"\x30\x08\x02\x01\x05\x04\x03abc\x02\x01\x00";
        assert!(is_wrong(&oversize(2), &octets[..10], EngineVersion::Suricata8));
        assert!(!is_wrong(&oversize(8), &octets[..10], EngineVersion::Suricata8));
        // In what is no sequence nothing is looked for.
        assert!(!is_wrong(&oversize(5), b"\xa0\x05\x04\x03abc", EngineVersion::Suricata8));
    }

    #[test]
    fn an_element_that_is_not_all_there_is_none_but_for_snort() {
        let octets = b"\x30\x07\x02\x01\x05\x04\x82\x10\x00";
        assert!(!is_wrong(&oversize(1000), octets, EngineVersion::Suricata8));
        assert!(is_wrong(&oversize(1000), octets, EngineVersion::Snort2));
    }

    #[test]
    fn a_bit_string_has_no_more_unused_bits_than_bits() {
        let asked = Asn1 { bitstring_overflow: true, ..Asn1::default() };
        let wrong = |octets: &[u8]| is_wrong(&asked, octets, EngineVersion::Suricata8);
        assert!(
            wrong(b"\x03\x01\xff")
                && wrong(b"\x30\x03\x03\x01\xff")
                && wrong(b"\x02\x01\x00\x03\x02\x11\xff")
        );
        assert!(
            !wrong(b"\x03\x02\x10\xff") && !wrong(b"\x03\x00") && !wrong(b"\x23\x03\x03\x01\xff")
        );
        // What cannot be read ends it.
        assert!(!wrong(b"\x01\x02\x00\x00\x03\x01\xff"));
    }

    #[test]
    fn a_real_number_of_many_digits_is_wrong() {
        let asked = Asn1 { double_overflow: true, ..Asn1::default() };
        let real =
            |digits: usize| [&[9, 0x82, 1, digits as u8][..], &vec![3; 256 + digits]].concat();
        assert!(is_wrong(&asked, &real(1), EngineVersion::Suricata8));
        assert!(!is_wrong(&asked, &real(0), EngineVersion::Suricata8));
    }
}
