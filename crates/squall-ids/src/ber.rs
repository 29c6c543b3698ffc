//! The defects in BER that the `asn1` keyword detects.

use squall_rules::{Asn1, EngineVersion};

/// Maximum number of consecutive elements, and of nested ones: Suricata's `asn1-max-frames`.
const MAX_ELEMENTS: usize = 256;

/// Whether `octets` have one of the defects in `test`.
///
/// Suricata decodes whole elements, and stops parsing at an incomplete element or at content that
/// its type does not permit. Snort trusts the lengths.
pub(crate) fn is_wrong(test: &Asn1, octets: &[u8], engine: EngineVersion) -> bool {
    let (mut rest, mut wrong) = (octets, false);
    for _ in 0..MAX_ELEMENTS {
        match element(test, rest, MAX_ELEMENTS, engine) {
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
    // Beyond the maximum number of elements, Suricata reports nothing.
    wrong && !engine.is_suricata()
}

/// Length of the first element, and whether it or an element inside it has a defect; `None` if
/// there is no complete, valid element.
fn element(
    test: &Asn1,
    octets: &[u8],
    depth: usize,
    engine: EngineVersion,
) -> Option<(usize, bool)> {
    let depth = depth.checked_sub(1)?;
    let header = header(octets)?;
    let after = &octets[header.length..];
    let Some(claimed) = header.content else {
        // The length is indefinite: elements follow, up to two zeros. Only these elements can have
        // defects.
        let (mut at, mut wrong) = (0, false);
        while !after.get(at..)?.starts_with(&[0, 0]) {
            let (length, found) = element(test, &after[at..], depth, engine)?;
            at += length;
            wrong |= found;
        }
        return header.is_constructed.then_some((header.length + at + 2, wrong));
    };
    let length = usize::try_from(claimed).unwrap_or(usize::MAX);
    if length > after.len() && engine.is_suricata() {
        return None;
    }
    let content = &after[..length.min(after.len())];
    let mut wrong = test.oversize_length.is_some_and(|most| claimed > u64::from(most));
    if header.is_universal {
        wrong |= match (header.tag, header.is_constructed) {
            (SEQUENCE | SET, true) => {
                let (mut rest, mut wrong) = (content, false);
                while !rest.is_empty() {
                    match element(test, rest, depth, engine) {
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
            // More unused bits than the content has; the content includes the octet with their
            // number.
            (BIT_STRING, false) => {
                test.bitstring_overflow
                    && content
                        .first()
                        .is_some_and(|&unused| u64::from(unused) > claimed.saturating_mul(8))
            }
            // A real in decimal form whose text exceeds 256 octets, the engines' limit.
            (REAL, false) => {
                test.double_overflow
                    && claimed > 256
                    && content.first().is_some_and(|first| first & 0xc0 == 0)
            }
            (BIT_STRING, true) if engine.is_suricata() => return None,
            _ => false,
        };
    }
    Some((header.length + content.len(), wrong))
}

// Universal tags (X.690).
const BIT_STRING: u32 = 3;
const REAL: u32 = 9;
const SEQUENCE: u32 = 16;
const SET: u32 = 17;

/// Whether the content is valid for a primitive element of a universal type (X.690 §8), to the
/// extent that Suricata checks it.
fn is_allowed(tag: u32, content: &[u8]) -> bool {
    let all = |allowed: fn(&u8) -> bool| content.iter().all(allowed);
    match tag {
        1 => content.len() == 1,
        BIT_STRING => !content.is_empty(),
        SEQUENCE | SET => false,
        12 => std::str::from_utf8(content).is_ok(),
        18 => all(|octet| octet.is_ascii_digit() || *octet == b' '),
        19 => all(|octet| octet.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(octet)),
        // Times: digits and separators.
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
    /// Length of tag and length field in octets.
    length: usize,
    /// Length of the content; `None` if it is indefinite.
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
    fn an_oversize_length_is_wrong_at_any_depth() {
        let octets = b"\x30\x08\x02\x01\x05\x04\x03abc\x02\x01\x00";
        assert!(is_wrong(&oversize(2), &octets[..10], EngineVersion::Suricata8));
        assert!(!is_wrong(&oversize(8), &octets[..10], EngineVersion::Suricata8));
        // Suricata parses only the elements inside sequences.
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
        let test = Asn1 { bitstring_overflow: true, ..Asn1::default() };
        let wrong = |octets: &[u8]| is_wrong(&test, octets, EngineVersion::Suricata8);
        assert!(
            wrong(b"\x03\x01\xff")
                && wrong(b"\x30\x03\x03\x01\xff")
                && wrong(b"\x02\x01\x00\x03\x02\x11\xff")
        );
        assert!(
            !wrong(b"\x03\x02\x10\xff") && !wrong(b"\x03\x00") && !wrong(b"\x23\x03\x03\x01\xff")
        );
        // Parsing ends at invalid BER.
        assert!(!wrong(b"\x01\x02\x00\x00\x03\x01\xff"));
    }

    #[test]
    fn a_real_number_of_many_digits_is_wrong() {
        let test = Asn1 { double_overflow: true, ..Asn1::default() };
        let real =
            |digits: usize| [&[9, 0x82, 1, digits as u8][..], &vec![3; 256 + digits]].concat();
        assert!(is_wrong(&test, &real(1), EngineVersion::Suricata8));
        assert!(!is_wrong(&test, &real(0), EngineVersion::Suricata8));
    }
}
