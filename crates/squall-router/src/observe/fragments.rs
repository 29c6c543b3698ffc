//! Fragments of OSPF's packets. A router LSA with many networks is one packet, which the kernel of
//! its router divides (RFC 791, RFC 8200 section 4.5).

use std::{borrow::Cow, collections::BTreeMap};

use squall_units::{Nanos, get_be16};

use super::{IPV4, IPV6, OSPF, Protocol};

/// Packets that may be incomplete at once; the oldest makes room.
const MOST: usize = 8;
/// Octets of the longest packet.
const LONGEST: usize = 65_535;
/// Time after which an incomplete packet is given up.
const TIMEOUT: Nanos = Nanos(30 * Nanos::SECOND.0);
/// Next header of a fragment of IPv6.
const FRAGMENT: u8 = 44;

/// Fragments of one direction, until their packets are whole.
#[derive(Clone, Debug, Default)]
pub struct Fragments(Vec<Incomplete>);

#[derive(Clone, Debug)]
struct Incomplete {
    key: Vec<u8>,
    begun: Nanos,
    /// By their offsets.
    parts: BTreeMap<usize, Vec<u8>>,
    octets: usize,
    /// Known with the last part.
    length: Option<usize>,
}

struct Fragment<'a> {
    /// Identification and addresses.
    key: Vec<u8>,
    offset: usize,
    is_last: bool,
    octets: &'a [u8],
}

impl Fragments {
    /// The packet of `protocol` in `frame`, or the whole one of which it has the missing fragment;
    /// empty: other fragments are missing. `None`: the frame is not of this protocol.
    pub fn take<'a>(
        &mut self,
        now: Nanos,
        protocol: Protocol,
        frame: &'a [u8],
    ) -> Option<Cow<'a, [u8]>> {
        if let Some(packet) = protocol.packet(frame) {
            return Some(packet.into());
        }
        let fragment = fragment(protocol, frame)?;
        Some(self.add(now, &fragment).unwrap_or_default().into())
    }

    fn add(&mut self, now: Nanos, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        self.0.retain(|one| now.saturating_sub(one.begun) < TIMEOUT);
        let end = fragment.offset + fragment.octets.len();
        if fragment.octets.is_empty() || end > LONGEST {
            return None;
        }
        let known = self.0.iter().position(|one| one.key == fragment.key);
        let at = known.unwrap_or_else(|| {
            if self.0.len() >= MOST {
                self.0.remove(0);
            }
            self.0.push(Incomplete {
                key: fragment.key.clone(),
                begun: now,
                parts: BTreeMap::new(),
                octets: 0,
                length: None,
            });
            self.0.len() - 1
        });
        let one = &mut self.0[at];
        if fragment.is_last {
            one.length = Some(end);
        }
        let before = one.parts.insert(fragment.offset, fragment.octets.to_vec());
        one.octets = one.octets + fragment.octets.len() - before.map_or(0, |before| before.len());
        // Parts that overlap are no fragments of one packet.
        if one.octets > one.length.unwrap_or(LONGEST) {
            self.0.remove(at);
            return None;
        }
        if Some(one.octets) != one.length {
            return None;
        }
        let mut packet = Vec::new();
        for (offset, part) in self.0.remove(at).parts {
            if offset != packet.len() {
                return None;
            }
            packet.extend(part);
        }
        Some(packet)
    }
}

/// The fragment of a packet of `protocol` that `frame` has.
fn fragment(protocol: Protocol, frame: &[u8]) -> Option<Fragment<'_>> {
    let (ethertype, rest) = (frame.get(12..14)?, frame.get(14..)?);
    let word = |at: usize| get_be16(rest, at).map(usize::from);
    match protocol {
        Protocol::Ospf2 if ethertype == IPV4 && rest.get(9) == Some(&OSPF) => {
            let (header, flags) = (4 * usize::from(rest[0] & 15), word(6)?);
            Some(Fragment {
                key: [rest.get(4..6)?, rest.get(12..20)?].concat(),
                offset: 8 * (flags & 0x1fff),
                is_last: flags & 0x2000 == 0,
                octets: rest.get(header..word(2)?.min(rest.len()))?,
            })
        }
        Protocol::Ospf3
            if ethertype == IPV6
                && rest.get(6) == Some(&FRAGMENT)
                && rest.get(40) == Some(&OSPF) =>
        {
            Some(Fragment {
                key: [rest.get(44..48)?, rest.get(8..40)?].concat(),
                offset: word(42)? & 0xfff8,
                is_last: word(42)? & 1 == 0,
                octets: rest.get(48..(40 + word(4)?).min(rest.len()))?,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames with the fragments of a packet of OSPF, of 16 octets each.
    fn fragments(protocol: Protocol, to: [u8; 6], packet: &[u8]) -> Vec<Vec<u8>> {
        let parts = packet.chunks(16);
        let last = parts.len() - 1;
        let frame = |(number, part): (usize, &[u8])| {
            let (offset, more) = (number * 16, usize::from(number < last));
            let (ethertype, mut header) = match protocol {
                Protocol::Ospf2 => (IPV4, vec![0; 20]),
                _ => (IPV6, vec![0; 48]),
            };
            if protocol == Protocol::Ospf2 {
                (header[0], header[3], header[9]) = (0x45, 20 + part.len() as u8, OSPF);
                let word = ((offset / 8) | (more << 13)) as u16;
                header[6..8].copy_from_slice(&word.to_be_bytes());
            } else {
                (header[5], header[6], header[40]) = (8 + part.len() as u8, FRAGMENT, OSPF);
                header[42..44].copy_from_slice(&((offset | more) as u16).to_be_bytes());
            }
            [&to[..], &[2; 6], &ethertype, &header, part].concat()
        };
        parts.enumerate().map(frame).collect()
    }

    fn packet() -> Vec<u8> {
        (0..50).collect()
    }

    #[test]
    fn a_packet_is_whole_with_its_last_fragment_in_any_order() {
        for protocol in [Protocol::Ospf2, Protocol::Ospf3] {
            let mut frames = fragments(protocol, [2; 6], &packet());
            let mut open = Fragments::default();
            let mut take = |frame: &[u8]| open.take(Nanos(5), protocol, frame).map(Cow::into_owned);
            frames.swap(0, 2);
            frames.push(frames[0].clone());
            frames.swap(3, 4);
            let (last, before) = frames.split_last().unwrap();
            for frame in before {
                assert_eq!(take(frame), Some(vec![]), "{protocol:?}");
            }
            assert_eq!(take(last), Some(packet()), "{protocol:?}");
            assert!(open.0.is_empty());
            let other = if protocol == Protocol::Ospf2 { Protocol::Ospf3 } else { Protocol::Isis };
            assert_eq!(open.take(Nanos(5), other, last), None);
            for cut in 0..last.len() {
                let cut = open.take(Nanos(5), protocol, &last[..cut]);
                assert!(cut.is_none_or(|packet| packet.is_empty()));
            }
        }
    }

    #[test]
    fn fragments_that_are_never_whole_end() {
        let frames = fragments(Protocol::Ospf2, [2; 6], &packet());
        let mut open = Fragments::default();
        for id in 0..100 {
            let mut frame = frames[0].clone();
            frame[14 + 4] = id;
            open.take(Nanos(id.into()), Protocol::Ospf2, &frame);
        }
        assert_eq!((open.0.len(), open.0[0].begun), (MOST, Nanos(92)));
        open.take(Nanos(99 + TIMEOUT.0), Protocol::Ospf2, &frames[1]);
        assert_eq!(open.0.len(), 1);
        // A part that overlaps another one, as the last one shows.
        let mut overlapping = frames[1].clone();
        overlapping[14 + 7] = 3;
        for frame in [&frames[0], &overlapping, &frames[2], &frames[3]] {
            let packet = open.take(Nanos(99 + TIMEOUT.0), Protocol::Ospf2, frame);
            assert_eq!(packet.as_deref(), Some(&[][..]));
        }
        assert!(open.0.is_empty());
    }
}
