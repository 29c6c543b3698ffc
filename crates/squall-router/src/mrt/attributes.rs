//! Attributes of routes in MRT files, as far as a router announces them unchanged (RFC 4271 section
//! 5).

use super::Octets;
use crate::Origin;

/// Types of attributes (RFC 4271 section 4.3, RFC 1997, RFC 4360, RFC 8092).
const ORIGIN: u8 = 1;
const AS_PATH: u8 = 2;
const MED: u8 = 4;
const COMMUNITIES: u8 = 8;
const EXTENDED_COMMUNITIES: u8 = 16;
const LARGE_COMMUNITIES: u8 = 32;
/// The kept types, in order. Next hops and local preferences are of the collector's session.
const KEPT: [u8; 6] = [ORIGIN, AS_PATH, MED, COMMUNITIES, EXTENDED_COMMUNITIES, LARGE_COMMUNITIES];
/// Flag of a length of two octets.
const EXTENDED_LENGTH: u8 = 0x10;
/// Octets that are kept of a route: half of an UPDATE, so that routes and the own number fit.
const MOST: usize = 2_048;

/// Attributes of a route of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MrtAttributes {
    pub origin: Option<Origin>,
    /// The path, the nearest system first, without the parts of confederations.
    pub path: Vec<MrtSegment>,
    /// `MULTI_EXIT_DISC`.
    pub med: Option<u32>,
    pub communities: Vec<(u16, u16)>,
    pub extended_communities: Vec<[u8; 8]>,
    pub large_communities: Vec<[u32; 3]>,
}

/// A segment of a path (RFC 4271 section 4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MrtSegment {
    Set(Vec<u32>),
    Sequence(Vec<u32>),
}

/// The attributes of an entry that are kept, in one form: the type, the length in two octets and
/// the value of each. `None`: one is malformed, or they are too long.
pub(super) fn kept(attributes: &[u8]) -> Option<Vec<u8>> {
    let mut found: [Option<&[u8]>; KEPT.len()] = [None; KEPT.len()];
    let mut rest = Octets(attributes);
    while !rest.0.is_empty() {
        let (flags, kind) = (rest.take(1)?[0], rest.take(1)?[0]);
        let length = match flags & EXTENDED_LENGTH {
            0 => rest.take(1)?[0].into(),
            _ => rest.u16()?,
        };
        let value = rest.take(length.into())?;
        if let Some(place) = KEPT.iter().position(|one| *one == kind) {
            // The first of several counts (RFC 7606 section 3 (g)).
            found[place] = found[place].or(Some(value));
        }
    }
    let mut octets = Vec::new();
    for (kind, value) in KEPT.iter().zip(found) {
        let Some(value) = value else { continue };
        octets.push(*kind);
        octets.extend(u16::try_from(value.len()).ok()?.to_be_bytes());
        octets.extend(value);
    }
    (octets.len() <= MOST && MrtAttributes::of(&octets).is_some()).then_some(octets)
}

impl MrtAttributes {
    /// The attributes that [`kept`] has made.
    pub(super) fn of(octets: &[u8]) -> Option<Self> {
        let (mut all, mut rest) = (Self::default(), Octets(octets));
        while !rest.0.is_empty() {
            let (kind, length) = (rest.take(1)?[0], rest.u16()?);
            let mut value = Octets(rest.take(length.into())?);
            if kind == ORIGIN {
                all.origin = Some(match value.0 {
                    [0] => Origin::Igp,
                    [1] => Origin::Egp,
                    [2] => Origin::Incomplete,
                    _ => return None,
                });
                continue;
            }
            if kind == MED {
                all.med = Some(value.u32()?);
            }
            while !value.0.is_empty() {
                match kind {
                    AS_PATH => read_segment(&mut value, &mut all.path)?,
                    COMMUNITIES => all.communities.push((value.u16()?, value.u16()?)),
                    EXTENDED_COMMUNITIES => {
                        all.extended_communities.push(*value.take(8)?.first_chunk()?);
                    }
                    LARGE_COMMUNITIES => {
                        all.large_communities.push([value.u32()?, value.u32()?, value.u32()?]);
                    }
                    _ => return None,
                }
            }
        }
        Some(all)
    }
}

/// Reads a segment, whose numbers have four octets (RFC 6396 section 4.3.4). Leaves out segments of
/// confederations (RFC 5065 section 3). `None`: it is malformed.
fn read_segment(value: &mut Octets<'_>, path: &mut Vec<MrtSegment>) -> Option<()> {
    let (kind, count) = (value.take(1)?[0], value.take(1)?[0]);
    let numbers = (0..count).map(|_| value.u32()).collect::<Option<Vec<u32>>>()?;
    match kind {
        1 => path.push(MrtSegment::Set(numbers)),
        2 => path.push(MrtSegment::Sequence(numbers)),
        3 | 4 => {}
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_kept_in_one_form() {
        let path = [0x50, AS_PATH, 0, 12, 2, 1, 0, 0, 0, 7, 1, 1, 0, 1, 0, 0];
        let large = [0xc0, LARGE_COMMUNITIES, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        let one = [
            &[0x40, ORIGIN, 1, 2][..],
            &path,
            // NEXT_HOP and LOCAL_PREF are left out.
            &[0x40, 3, 4, 10, 0, 0, 1, 0x40, 5, 4, 0, 0, 0, 100],
            &[0x80, MED, 4, 0, 0, 0, 9, 0xc0, COMMUNITIES, 4, 0, 1, 0, 2],
            &[0xc0, EXTENDED_COMMUNITIES, 8, 0, 2, 0, 1, 0, 0, 0, 2],
            &large,
        ]
        .concat();
        let octets = kept(&one).expect("well-formed");
        // In another order, with another next hop.
        let other = [
            &large[..],
            &one[..4],
            &[0x40, 3, 4, 10, 0, 0, 2],
            &one[one.len() - large.len() - 25..one.len() - large.len()],
            &path,
        ]
        .concat();
        assert_eq!(kept(&other).as_ref(), Some(&octets));
        let expected = MrtAttributes {
            origin: Some(Origin::Incomplete),
            path: vec![MrtSegment::Sequence(vec![7]), MrtSegment::Set(vec![65_536])],
            med: Some(9),
            communities: vec![(1, 2)],
            extended_communities: vec![[0, 2, 0, 1, 0, 0, 0, 2]],
            large_communities: vec![[1, 2, 3]],
        };
        assert_eq!(MrtAttributes::of(&octets), Some(expected));
    }

    #[test]
    fn malformed_and_long_attributes_are_refused() {
        for wrong in [
            &[0x40, ORIGIN, 1, 3][..],
            &[0x40, ORIGIN, 2, 0, 0],
            &[0x40, ORIGIN, 2, 0],
            &[0x40, ORIGIN],
            &[0x50, ORIGIN, 0],
            &[0x40, AS_PATH, 6, 5, 1, 0, 0, 0, 1],
            &[0x40, AS_PATH, 5, 2, 1, 0, 0, 1],
            &[0x80, MED, 5, 0, 0, 0, 0, 1],
            &[0x80, MED, 3, 0, 0, 1],
            &[0xc0, COMMUNITIES, 3, 0, 0, 1],
            &[0xc0, EXTENDED_COMMUNITIES, 4, 0, 0, 0, 1],
            &[0xc0, LARGE_COMMUNITIES, 8, 0, 0, 0, 1, 0, 0, 0, 1],
        ] {
            assert_eq!(kept(wrong), None, "{wrong:?}");
        }
        let of = |communities: usize| {
            let length = (communities as u16 * 4).to_be_bytes();
            [&[0xd0, COMMUNITIES][..], &length, &vec![7; communities * 4]].concat()
        };
        assert!(kept(&of(511)).is_some() && kept(&of(512)).is_none());
        // Segments of confederations are no part of a path.
        let confederation = kept(&[0x40, AS_PATH, 6, 3, 1, 0, 0, 0, 1]).expect("well-formed");
        assert_eq!(MrtAttributes::of(&confederation), Some(MrtAttributes::default()));
    }
}
