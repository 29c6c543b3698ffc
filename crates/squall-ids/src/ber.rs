//! What `asn1` finds wrong with BER.

use squall_rules::Asn1;

/// Elements that are looked at: Suricata's `asn1-max-frames`.
const ELEMENTS: usize = 256;

/// Whether one of the things that `asked` names is wrong with `octets`.
pub(crate) fn is_wrong(asked: &Asn1, octets: &[u8]) -> bool {
    // What is still to be read: where it begins, where it ends.
    let mut waiting = vec![(0, octets.len())];
    let mut elements = 0;
    while let Some((mut at, end)) = waiting.pop() {
        while at < end && elements < ELEMENTS {
            elements += 1;
            let Some(element) = element(&octets[at..end]) else { break };
            let content = at + element.header;
            let there = end - content;
            if asked.oversize_length.is_some_and(|most| element.length > u64::from(most)) {
                return true;
            }
            let length = usize::try_from(element.length).unwrap_or(usize::MAX).min(there);
            let octets_of = &octets[content..content + length];
            if element.is_universal && !element.is_constructed {
                // A bit string whose unused bits are more than it has.
                if asked.bitstring_overflow
                    && element.tag == 3
                    && let [unused, bits @ ..] = octets_of
                    && usize::from(*unused) > bits.len() * 8
                {
                    return true;
                }
                // A real number in decimal with more digits than a double's text has room for.
                if asked.double_overflow
                    && element.tag == 9
                    && octets_of.first().is_some_and(|first| first & 0xc0 == 0)
                    && octets_of.len() > 256
                {
                    return true;
                }
            }
            if element.is_constructed {
                waiting.push((content, content + length));
            }
            at = content + length;
        }
    }
    false
}

struct Element {
    is_universal: bool,
    is_constructed: bool,
    tag: u32,
    /// Octets of tag and length.
    header: usize,
    length: u64,
}

fn element(octets: &[u8]) -> Option<Element> {
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
    let length = match length {
        0..=0x7f => u64::from(length),
        // Without an end that is known: up to the end.
        0x80 => rest.len() as u64,
        _ => {
            let (octets, more) = rest.split_at_checked(usize::from(length & 0x7f))?;
            rest = more;
            octets.iter().fold(0u64, |value, &octet| value.saturating_mul(256).saturating_add(octet.into()))
        }
    };
    Some(Element {
        is_universal: first & 0xc0 == 0,
        is_constructed: first & 0x20 != 0,
        tag,
        header: octets.len() - rest.len(),
        length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_what_is_asked_is_wrong_wherever_it_is_nested() {
        let asked = Asn1 { oversize_length: Some(1000), ..Asn1::default() };
        assert!(is_wrong(&asked, b"\x30\x07\x02\x01\x05\x04\x82\x10\x00"));
        assert!(!is_wrong(&asked, b"\x30\x06\x02\x01\x05\x04\x01\x00"));
    }

    #[test]
    fn a_bit_string_has_no_more_unused_bits_than_bits() {
        let asked = Asn1 { bitstring_overflow: true, ..Asn1::default() };
        assert!(is_wrong(&asked, b"\x03\x02\x09\xff"));
        assert!(!is_wrong(&asked, b"\x03\x02\x07\xff"));
    }
}
