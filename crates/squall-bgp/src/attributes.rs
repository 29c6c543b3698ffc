//! Writes path attributes (RFC 4271 section 5), and the octets around the routes of an UPDATE.

use std::net::IpAddr;

use crate::{
    Family, Negotiated, PeerSettings, message,
    message::{AS_TRANS, Kind},
    prefix::UNICAST,
};

pub(crate) const OPTIONAL: u8 = 0x80;
pub(crate) const TRANSITIVE: u8 = 0x40;
pub(crate) const EXTENDED_LENGTH: u8 = 0x10;

/// Types of attributes.
pub(crate) mod kind {
    pub const ORIGIN: u8 = 1;
    pub const AS_PATH: u8 = 2;
    pub const NEXT_HOP: u8 = 3;
    pub const MED: u8 = 4;
    pub const LOCAL_PREF: u8 = 5;
    pub const ATOMIC_AGGREGATE: u8 = 6;
    pub const AGGREGATOR: u8 = 7;
    pub const COMMUNITIES: u8 = 8;
    pub const ORIGINATOR_ID: u8 = 9;
    pub const CLUSTER_LIST: u8 = 10;
    pub const MP_REACH: u8 = 14;
    pub const MP_UNREACH: u8 = 15;
    pub const EXTENDED_COMMUNITIES: u8 = 16;
    pub const AS4_PATH: u8 = 17;
    pub const AS4_AGGREGATOR: u8 = 18;
    pub const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    pub const LARGE_COMMUNITIES: u8 = 32;
}

/// `LOCAL_PREF` of routes to internal peers that have none: the default of routers.
const LOCAL_PREF: u32 = 100;

/// `ORIGIN` (RFC 4271 section 5.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    #[default]
    Igp,
    Egp,
    Incomplete,
}

/// A segment of an `AS_PATH` (RFC 4271 section 4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSegment {
    pub kind: SegmentKind,
    /// In a sequence, the nearest system first.
    pub numbers: Vec<u32>,
}

/// Types of segments (RFC 4271 section 4.3, RFC 5065 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    Set = 1,
    Sequence = 2,
    ConfederationSequence = 3,
    ConfederationSet = 4,
}

impl SegmentKind {
    pub(crate) fn of(octet: u8) -> Option<Self> {
        use SegmentKind::{ConfederationSequence, ConfederationSet, Sequence, Set};
        let all = [Set, Sequence, ConfederationSequence, ConfederationSet];
        all.into_iter().find(|kind| *kind as u8 == octet)
    }
}

/// Attributes of routes, before those that a session adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteAttributes {
    pub origin: Origin,
    /// The whole path, without further numbers: `prepend`, `as_path` and `further` have no effect
    /// then.
    pub segments: Option<Vec<PathSegment>>,
    /// Copies of the own number in the path, in addition to the one for an external peer.
    pub prepend: u32,
    /// Numbers in the path after the own ones, the nearest system first.
    pub as_path: Vec<u32>,
    /// Segments of the path after these numbers, which continue a sequence that they begin with.
    pub further: Vec<PathSegment>,
    /// `None`: the own address of the family.
    pub next_hop: Option<IpAddr>,
    /// `MULTI_EXIT_DISC`.
    pub med: Option<u32>,
    /// For internal peers only; `None`: 100.
    pub local_pref: Option<u32>,
    /// RFC 1997.
    pub communities: Vec<(u16, u16)>,
    /// RFC 4360.
    pub extended_communities: Vec<[u8; 8]>,
    /// RFC 8092.
    pub large_communities: Vec<[u32; 3]>,
}

/// Whether the routes of an UPDATE are announced or withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    Announce,
    Withdraw,
}

/// The octets of an UPDATE before and after its routes, for one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub(crate) kind: UpdateKind,
    pub(crate) head: Box<[u8]>,
    pub(crate) tail: Box<[u8]>,
    /// Lengths in `head` that count the routes: the offset of each, and its value without routes.
    /// All are among the first [`Envelope::CHANGING`] octets.
    pub(crate) lengths: [Option<(u8, u16)>; 3],
}

/// Offset of the length of a message.
const LEN_AT: u8 = 16;
/// Offset of the first field of an UPDATE.
const FIRST: u8 = message::HEADER as u8;

impl Envelope {
    /// Octets of `head` that may differ between messages.
    pub(crate) const CHANGING: usize = 32;

    /// For routes of `family` with `attributes` to the peer of a session; `None`: there is no next
    /// hop of the family.
    pub fn announce(
        family: Family,
        attributes: &RouteAttributes,
        session: &Negotiated,
        own: &PeerSettings,
    ) -> Option<Self> {
        let matches = |hop: &IpAddr| hop.is_ipv4() == (family == Family::Ipv4);
        let next_hop = attributes.next_hop.filter(matches).or_else(|| own.next_hop(family))?;
        let mut out = Vec::new();
        write(&mut out, TRANSITIVE, kind::ORIGIN, &[attributes.origin as u8]);
        write_path(&mut out, attributes, session, own);
        if let IpAddr::V4(hop) = next_hop {
            write(&mut out, TRANSITIVE, kind::NEXT_HOP, &hop.octets());
        }
        if let Some(med) = attributes.med {
            write(&mut out, OPTIONAL, kind::MED, &med.to_be_bytes());
        }
        if session.is_internal {
            let preference = attributes.local_pref.unwrap_or(LOCAL_PREF);
            write(&mut out, TRANSITIVE, kind::LOCAL_PREF, &preference.to_be_bytes());
        }
        if !attributes.communities.is_empty() {
            let value = attributes
                .communities
                .iter()
                .flat_map(|(high, low)| high.to_be_bytes().into_iter().chain(low.to_be_bytes()));
            let value: Vec<u8> = value.collect();
            write(&mut out, OPTIONAL | TRANSITIVE, kind::COMMUNITIES, &value);
        }
        if !attributes.extended_communities.is_empty() {
            let value = attributes.extended_communities.as_flattened();
            write(&mut out, OPTIONAL | TRANSITIVE, kind::EXTENDED_COMMUNITIES, value);
        }
        if !attributes.large_communities.is_empty() {
            let words = attributes.large_communities.as_flattened();
            let value: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            write(&mut out, OPTIONAL | TRANSITIVE, kind::LARGE_COMMUNITIES, &value);
        }

        let mut head = message::begin(Kind::Update);
        head.extend([0, 0]);
        let kind = UpdateKind::Announce;
        Some(match next_hop {
            IpAddr::V4(_) => {
                head.extend((out.len() as u16).to_be_bytes());
                head.extend(out);
                Self::new(kind, head, Vec::new(), [None; 2])
            }
            // First in the list, as RFC 7606 section 5.1 asks.
            IpAddr::V6(hop) => {
                let value = 2 + 1 + 1 + 16 + 1;
                head.extend([0, 0, OPTIONAL | EXTENDED_LENGTH, kind::MP_REACH, 0, 0]);
                head.extend(family.afi().to_be_bytes());
                head.extend([UNICAST, 16]);
                head.extend(hop.octets());
                head.push(0);
                let list = 4 + value + out.len() as u16;
                Self::new(kind, head, out, [Some((FIRST + 2, list)), Some((FIRST + 6, value))])
            }
        })
    }

    /// For the withdrawal of routes of `family`.
    pub fn withdraw(family: Family) -> Self {
        let mut head = message::begin(Kind::Update);
        let kind = UpdateKind::Withdraw;
        match family {
            Family::Ipv4 => {
                head.extend([0, 0]);
                Self::new(kind, head, vec![0, 0], [Some((FIRST, 0)), None])
            }
            Family::Ipv6 => {
                head.extend([0, 0, 0, 0, OPTIONAL | EXTENDED_LENGTH, kind::MP_UNREACH, 0, 0]);
                head.extend(family.afi().to_be_bytes());
                head.push(UNICAST);
                let lengths = [Some((FIRST + 2, 4 + 3)), Some((FIRST + 6, 3))];
                Self::new(kind, head, Vec::new(), lengths)
            }
        }
    }

    fn new(
        kind: UpdateKind,
        head: Vec<u8>,
        tail: Vec<u8>,
        [first, second]: [Option<(u8, u16)>; 2],
    ) -> Self {
        let len = (head.len() + tail.len()) as u16;
        let lengths = [Some((LEN_AT, len)), first, second];
        Self { kind, head: head.into(), tail: tail.into(), lengths }
    }

    pub fn kind(&self) -> UpdateKind {
        self.kind
    }

    /// Octets of an UPDATE in addition to its routes.
    pub fn overhead(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}

/// Writes `AS_PATH`, and `AS4_PATH` if the session has numbers of two octets and the path has
/// longer ones (RFC 6793 section 4.2.2).
fn write_path(
    out: &mut Vec<u8>,
    attributes: &RouteAttributes,
    session: &Negotiated,
    own: &PeerSettings,
) {
    let path = attributes.segments.clone().unwrap_or_else(|| {
        let copies = attributes.prepend.saturating_add(u32::from(!session.is_internal));
        let own = std::iter::repeat_n(own.asn, copies as usize);
        let numbers = own.chain(attributes.as_path.iter().copied()).collect();
        let mut path = vec![PathSegment { kind: SegmentKind::Sequence, numbers }];
        for segment in &attributes.further {
            match path.last_mut() {
                Some(last)
                    if last.kind == segment.kind && segment.kind == SegmentKind::Sequence =>
                {
                    last.numbers.extend(&segment.numbers);
                }
                _ => path.push(segment.clone()),
            }
        }
        path
    });
    let value = |write: fn(&mut Vec<u8>, u32), has: fn(SegmentKind) -> bool| {
        let mut value = Vec::new();
        for segment in path.iter().filter(|segment| has(segment.kind)) {
            // The number of a segment's systems is an octet.
            for numbers in segment.numbers.chunks(255) {
                value.extend([segment.kind as u8, numbers.len() as u8]);
                numbers.iter().for_each(|asn| write(&mut value, *asn));
            }
        }
        value
    };
    let wide: fn(&mut Vec<u8>, u32) = |out, asn| out.extend(asn.to_be_bytes());
    if session.four_octet {
        return self::write(out, TRANSITIVE, kind::AS_PATH, &value(wide, |_| true));
    }
    let narrow: fn(&mut Vec<u8>, u32) =
        |out, asn| out.extend(u16::try_from(asn).unwrap_or(AS_TRANS).to_be_bytes());
    self::write(out, TRANSITIVE, kind::AS_PATH, &value(narrow, |_| true));
    if path.iter().flat_map(|segment| &segment.numbers).any(|asn| *asn > u16::MAX.into()) {
        // Confederations have no part in it (RFC 6793 section 4.2.2).
        let public = |kind| matches!(kind, SegmentKind::Set | SegmentKind::Sequence);
        self::write(out, OPTIONAL | TRANSITIVE, kind::AS4_PATH, &value(wide, public));
    }
}

fn write(out: &mut Vec<u8>, flags: u8, kind: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(len) => out.extend([flags, kind, len]),
        Err(_) => {
            out.extend([flags | EXTENDED_LENGTH, kind]);
            out.extend((value.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_segments_continue_the_sequence_of_the_own_numbers() {
        let segment = |kind, numbers: &[u32]| PathSegment { kind, numbers: numbers.to_vec() };
        let (sequence, set) = (SegmentKind::Sequence, SegmentKind::Set);
        let path = |further: Vec<PathSegment>, is_internal| {
            let attributes =
                RouteAttributes { prepend: 1, as_path: vec![9], further, ..Default::default() };
            let session = Negotiated { four_octet: true, is_internal, ..Negotiated::default() };
            let own = PeerSettings { asn: 5, ..PeerSettings::default() };
            let mut out = Vec::new();
            write_path(&mut out, &attributes, &session, &own);
            out.split_off(3)
        };
        let further = vec![segment(sequence, &[7]), segment(set, &[8]), segment(sequence, &[6])];
        let rest = [0, 0, 0, 7, 1, 1, 0, 0, 0, 8, 2, 1, 0, 0, 0, 6];
        let own = [2, 4, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 9];
        assert_eq!(path(further.clone(), false), [&own[..], &rest].concat());
        let own = [2, 3, 0, 0, 0, 5, 0, 0, 0, 9];
        assert_eq!(path(further, true), [&own[..], &rest].concat());
        // A set continues no sequence.
        let own = [2, 3, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 9, 1, 1, 0, 0, 0, 8];
        assert_eq!(path(vec![segment(set, &[8])], false), own);
    }
}
