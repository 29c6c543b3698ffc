//! Routes as the octets that UPDATEs have of them, once for all sessions.

use std::{net::IpAddr, ops::Range, sync::Arc};

use crate::{Envelope, Family, HEADER, Prefix};

/// Routes of one family, cut into messages. They have no attributes, so that sessions with
/// different ones share them; an [`Envelope`] adds these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    family: Family,
    octets: Arc<[u8]>,
    cuts: Arc<[Cut]>,
}

/// The end of a message: octets of routes, and routes, in all messages up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cut {
    end: u32,
    routes: u32,
}

/// Path identifiers of packed routes (RFC 7911).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathIds {
    None,
    /// All routes have this one.
    One(u32),
}

/// Octets for attributes of every message, so that groups with different ones are packed alike.
const ATTRIBUTES: usize = 256;
/// Octets of an UPDATE without attributes and routes, and of an `MP_REACH_NLRI` without routes.
const FIXED: usize = HEADER + 4;
const MP_REACH: usize = 25;
/// Octets of the longest route: path identifier, length, address of IPv6.
const LONGEST: usize = 4 + 1 + 16;

/// Octets of routes in a message of at most `most` octets, for [`pack`]: as many as leave 256 for
/// attributes, and less for an `overhead` ([`Envelope::overhead`]) that has more. `None`: no route
/// fits.
pub fn room(family: Family, most: usize, overhead: usize) -> Option<usize> {
    let usual = FIXED + ATTRIBUTES + if family == Family::Ipv6 { MP_REACH } else { 0 };
    most.checked_sub(overhead.max(usual)).filter(|room| *room >= LONGEST)
}

/// Packs the prefixes of `family` in their order; others are left out. `room`: octets of routes in
/// a message, at least 21 ([`room`]).
///
/// # Panics
/// If the routes have more than 4 GiB.
pub fn pack(
    family: Family,
    prefixes: impl Iterator<Item = Prefix>,
    room: usize,
    paths: PathIds,
) -> Packed {
    let (mut octets, mut cuts): (Vec<u8>, Vec<Cut>) = (Vec::new(), Vec::new());
    let (mut begin, mut routes) = (0, 0);
    for prefix in prefixes.filter(|prefix| prefix.family() == family) {
        let before = octets.len();
        if let PathIds::One(path) = paths {
            octets.extend(path.to_be_bytes());
        }
        octets.push(prefix.length);
        let len = usize::from(prefix.length).div_ceil(8);
        match prefix.address {
            IpAddr::V4(address) => octets.extend(address.octets().iter().take(len)),
            IpAddr::V6(address) => octets.extend(address.octets().iter().take(len)),
        }
        // Bits after the length are irrelevant (RFC 4271 section 4.3), but peers may complain.
        if let (Some(last), bits @ 1..) = (octets.last_mut(), prefix.length % 8) {
            *last &= 0xff << (8 - bits);
        }
        if octets.len() - begin > room {
            cuts.push(Cut { end: before as u32, routes });
            begin = before;
        }
        routes += 1;
    }
    assert!(u32::try_from(octets.len()).is_ok(), "routes of at most 4 GiB");
    if octets.len() > begin {
        cuts.push(Cut { end: octets.len() as u32, routes });
    }
    Packed { family, octets: octets.into(), cuts: cuts.into() }
}

impl Packed {
    pub fn family(&self) -> Family {
        self.family
    }

    /// Number of messages.
    pub fn messages(&self) -> u32 {
        self.cuts.len() as u32
    }

    /// Number of routes in some messages.
    pub fn routes(&self, messages: Range<u32>) -> u32 {
        self.before(messages.end).routes - self.before(messages.start).routes
    }

    /// Octets of some messages.
    pub fn len(&self, envelope: &Envelope, messages: Range<u32>) -> u32 {
        let overhead = (messages.end - messages.start) * envelope.overhead() as u32;
        self.before(messages.end).end - self.before(messages.start).end + overhead
    }

    /// The messages from `first` on that have at most `most` octets, at least one; empty: there are
    /// none.
    pub fn run(&self, envelope: &Envelope, first: u32, most: u32) -> Range<u32> {
        if first >= self.messages() {
            return first..first;
        }
        let fits = |end: u32| self.len(envelope, first..end) <= most;
        first..last_where(first + 1..self.messages() + 1, fits)
    }

    /// Writes `out.len()` octets of the UPDATEs `messages` from `offset` on.
    ///
    /// # Panics
    /// If the messages end before.
    pub fn copy(&self, envelope: &Envelope, messages: Range<u32>, offset: u32, out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        let start_of = |message: u32| self.len(envelope, messages.start..message);
        let mut message = last_where(messages.clone(), |message| start_of(message) <= offset);
        let mut writer = Writer { skip: (offset - start_of(message)) as usize, out };
        while !writer.out.is_empty() {
            assert!(message < messages.end, "the octets are of these messages");
            self.write(envelope, message, &mut writer);
            message += 1;
        }
    }

    fn write(&self, envelope: &Envelope, message: u32, writer: &mut Writer<'_>) {
        let (from, to) = (self.before(message).end, self.before(message + 1).end);
        let mut changing = [0; Envelope::CHANGING];
        let (first, rest) = envelope.head.split_at(envelope.head.len().min(changing.len()));
        let changing = &mut changing[..first.len()];
        changing.copy_from_slice(first);
        for (at, value) in envelope.lengths.into_iter().flatten() {
            let value = value + (to - from) as u16;
            changing[usize::from(at)..][..2].copy_from_slice(&value.to_be_bytes());
        }
        writer.put(changing);
        writer.put(rest);
        writer.put(&self.octets[from as usize..to as usize]);
        writer.put(&envelope.tail);
    }

    fn before(&self, message: u32) -> Cut {
        match message {
            0 => Cut::default(),
            message => self.cuts[message as usize - 1],
        }
    }
}

/// The last number of a range for which `holds`, which it does up to some number; the first one
/// without a check.
fn last_where(range: Range<u32>, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (range.start, range.end);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// Writes a part of the octets that are put.
struct Writer<'a> {
    /// Octets to leave out before those that are written.
    skip: usize,
    out: &'a mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, octets: &[u8]) {
        let left_out = self.skip.min(octets.len());
        self.skip -= left_out;
        let octets = &octets[left_out..];
        let len = octets.len().min(self.out.len());
        let (now, later) = std::mem::take(&mut self.out).split_at_mut(len);
        now.copy_from_slice(&octets[..len]);
        self.out = later;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{MOST, Negotiated, PeerSettings, RouteAttributes};

    fn prefixes(count: u32) -> impl Iterator<Item = Prefix> {
        (0..count).map(|number| Prefix {
            address: Ipv4Addr::from_bits(0x0a00_0000 + (number << 8)).into(),
            length: 24,
        })
    }

    fn own() -> PeerSettings {
        PeerSettings {
            asn: 65_001,
            ipv4: Some([192, 0, 2, 1].into()),
            ipv6: Some("2001:db8::1".parse().unwrap()),
            ..PeerSettings::default()
        }
    }

    fn announce(family: Family) -> Envelope {
        let session = Negotiated { four_octet: true, ..Negotiated::default() };
        Envelope::announce(family, &RouteAttributes::default(), &session, &own()).unwrap()
    }

    #[test]
    fn a_million_routes_have_the_sizes_of_the_decision() {
        let room4 = room(Family::Ipv4, MOST, 0).unwrap();
        let packed = pack(Family::Ipv4, prefixes(1_000_000), room4, PathIds::None);
        assert_eq!(packed.routes(0..1), 954);
        assert_eq!((packed.messages(), packed.routes(0..1049)), (1049, 1_000_000));
        let octets = packed.len(&announce(Family::Ipv4), 0..1049);
        assert!((4_000_000..4_100_000).contains(&octets), "{octets}");

        let wide = (0..1000u128).map(|number| Prefix {
            address: std::net::Ipv6Addr::from_bits((0x2001_0db8 << 96) + (number << 80)).into(),
            length: 48,
        });
        let room6 = room(Family::Ipv6, MOST, 0).unwrap();
        assert_eq!(pack(Family::Ipv6, wide, room6, PathIds::None).routes(0..1), 541);
    }

    #[test]
    fn attributes_that_are_longer_than_usual_leave_less_room() {
        assert_eq!(room(Family::Ipv4, MOST, 300), Some(3796));
        assert_eq!(room(Family::Ipv4, MOST, 4075), Some(21));
        assert_eq!(room(Family::Ipv4, MOST, 4076), None);
    }

    #[test]
    fn updates_are_octets_of_both_parts_with_their_lengths() {
        let routes = [("10.1.0.0", 16), ("10.2.3.255", 31), ("0.0.0.0", 0)];
        let routes =
            routes.map(|(address, length)| Prefix { address: address.parse().unwrap(), length });
        let packed = pack(Family::Ipv4, routes.into_iter(), 100, PathIds::None);
        let mut out = vec![0; packed.len(&announce(Family::Ipv4), 0..1) as usize];
        packed.copy(&announce(Family::Ipv4), 0..1, 0, &mut out);
        // ORIGIN 4, AS_PATH 9, NEXT_HOP 7.
        let attributes =
            [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9, 0x40, 3, 4, 192, 0, 2, 1];
        let routes = [16, 10, 1, 31, 10, 2, 3, 254, 0];
        let expected = [&[0, 52, 2, 0, 0, 0, 20][..], &attributes, &routes].concat();
        assert_eq!(out[16..], expected);

        let mut out = vec![0; packed.len(&Envelope::withdraw(Family::Ipv4), 0..1) as usize];
        packed.copy(&Envelope::withdraw(Family::Ipv4), 0..1, 0, &mut out);
        assert_eq!(out[16..], [0, 32, 2, 0, 9, 16, 10, 1, 31, 10, 2, 3, 254, 0, 0, 0]);
    }

    #[test]
    fn any_part_of_the_octets_is_that_part_of_them_all() {
        let packed = pack(Family::Ipv4, prefixes(50), 21, PathIds::One(7));
        // Eight octets a route, two in a message.
        assert_eq!((packed.messages(), packed.routes(0..1)), (25, 2));
        for envelope in [announce(Family::Ipv4), Envelope::withdraw(Family::Ipv4)] {
            let messages = 3..20;
            let len = packed.len(&envelope, messages.clone());
            let mut all = vec![0; len as usize];
            packed.copy(&envelope, messages.clone(), 0, &mut all);
            for from in (0..len).step_by(7) {
                for to in (from..=len).step_by(13) {
                    let mut part = vec![0; (to - from) as usize];
                    packed.copy(&envelope, messages.clone(), from, &mut part);
                    assert_eq!(part, all[from as usize..to as usize]);
                }
            }
        }
    }

    #[test]
    fn runs_are_as_long_as_they_may_be_and_cover_all_messages() {
        let packed = pack(Family::Ipv4, prefixes(50), 21, PathIds::None);
        let envelope = announce(Family::Ipv4);
        for most in [0, 1, 100, 500, 1 << 16] {
            let (mut next, mut routes) = (0, 0);
            loop {
                let run = packed.run(&envelope, next, most);
                if run.is_empty() {
                    break;
                }
                assert_eq!(run.start, next);
                let len = packed.len(&envelope, run.clone());
                assert!(len <= most || run.len() == 1);
                if run.end < packed.messages() {
                    assert!(packed.len(&envelope, run.start..run.end + 1) > most);
                }
                routes += packed.routes(run.clone());
                next = run.end;
            }
            assert_eq!((next, routes), (packed.messages(), 50), "{most}");
        }
    }

    #[test]
    fn other_families_and_no_routes_are_no_message() {
        let packed = pack(Family::Ipv6, prefixes(5), 100, PathIds::None);
        assert_eq!(packed.messages(), 0);
        assert!(packed.run(&announce(Family::Ipv6), 0, 1000).is_empty());
    }
}
