//! Reads UPDATEs (RFC 4271 section 4.3), with the revised handling of errors (RFC 7606).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{be16, be32, get_be16};

use crate::{
    Families, Family, Notification,
    attributes::{EXTENDED_LENGTH, OPTIONAL, PathSegment, SegmentKind, TRANSITIVE, kind},
    message::AS_TRANS,
    notification::code,
};

/// Takes the routes that a peer announces.
pub trait Learner {
    /// A route, or its new attributes.
    fn announced(&mut self, family: Family, nlri: Nlri<'_>, attributes: &RawAttributes<'_>);
    /// A route that was withdrawn, whether it was announced or not.
    fn withdrawn(&mut self, family: Family, nlri: Nlri<'_>);
    /// All routes of the family have been announced (RFC 4724 section 2).
    fn end_of_rib(&mut self, family: Family);
    /// The routes of the family are stale until they are announced again (RFC 4724 section 4.2, RFC
    /// 7313 section 4).
    fn stale(&mut self, family: Family);
    /// The routes of the family that are still stale have ended.
    fn swept(&mut self, family: Family);
    /// All routes of the family have ended.
    fn cleared(&mut self, family: Family);
}

/// One route of an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nlri<'a> {
    /// Path identifier (RFC 7911); 0 without.
    pub path: u32,
    /// Length of the prefix, bits.
    pub length: u8,
    /// The octets of the prefix that were sent: `length` divided by 8, rounded up.
    pub octets: &'a [u8],
}

impl Nlri<'_> {
    /// The address, without the bits after the length.
    pub fn address(&self, family: Family) -> IpAddr {
        let mut bits = [0; 16];
        bits[..self.octets.len()].copy_from_slice(self.octets);
        let length = u32::from(self.length);
        match family {
            Family::Ipv4 => {
                let bits = be32(&bits, 0) & u32::MAX.checked_shl(32 - length).unwrap_or(0);
                Ipv4Addr::from_bits(bits).into()
            }
            Family::Ipv6 => {
                let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
                Ipv6Addr::from_bits(u128::from_be_bytes(bits) & mask).into()
            }
        }
    }
}

/// Path attributes that have passed the checks, as octets.
#[derive(Clone, Copy, Debug)]
pub struct RawAttributes<'a> {
    octets: &'a [u8],
    /// Attributes that can be read, by type. Others were malformed and are discarded.
    valid: [u64; 4],
    /// From `MP_REACH_NLRI`, for its routes.
    next_hop: &'a [u8],
    /// Numbers of systems have four octets.
    wide: bool,
}

impl<'a> RawAttributes<'a> {
    /// The value of an attribute, by its type.
    pub fn get(&self, kind: u8) -> Option<&'a [u8]> {
        if !is_in(&self.valid, kind) {
            return None;
        }
        let mut rest = self.octets;
        while let Some((attribute, after)) = Attribute::read(rest) {
            if attribute.kind == kind {
                return Some(attribute.value);
            }
            rest = after;
        }
        None
    }

    /// The next hop; the global address of two.
    pub fn next_hop(&self) -> Option<IpAddr> {
        let octets = match self.next_hop {
            [] => self.get(kind::NEXT_HOP)?,
            octets => octets,
        };
        match octets.len() {
            4 => octets.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
            _ => octets.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        }
    }

    /// The numbers of the path in their order, those of sets too.
    pub fn as_path(&self) -> Vec<u32> {
        self.segments().into_iter().flat_map(|segment| segment.numbers).collect()
    }

    /// The segments of the path. In a session of two-octet numbers, those of `AS4_PATH` replace the
    /// last numbers (RFC 6793 section 4.2.3).
    pub fn segments(&self) -> Vec<PathSegment> {
        let mut path = segments(self.get(kind::AS_PATH).unwrap_or_default(), self.wide);
        let Some(value) = self.get(kind::AS4_PATH).filter(|_| !self.wide) else { return path };
        // Another number says that a router without these attributes has aggregated the route.
        let by_old = |octets| get_be16(octets, 0).is_some_and(|asn| asn != AS_TRANS);
        let has_as4 = self.get(kind::AS4_AGGREGATOR).is_some();
        if has_as4 && self.get(kind::AGGREGATOR).is_some_and(by_old) {
            return path;
        }
        let mut last = segments(value, true);
        // RFC 6793 section 6: confederations have no part in it.
        last.retain(|segment| weight(segment.kind, 1) > 0);
        let count = |path: &[PathSegment]| {
            path.iter().map(|it| weight(it.kind, it.numbers.len())).sum::<usize>()
        };
        let Some(first) = count(&path).checked_sub(count(&last)) else { return path };
        keep_first(&mut path, first);
        path.extend(last);
        // The sequence that both have a part of is one again.
        path.dedup_by(|next, before| {
            let is_one = [&*next, &*before].iter().all(|it| it.kind == SegmentKind::Sequence);
            if is_one {
                before.numbers.append(&mut next.numbers);
            }
            is_one
        });
        path
    }

    /// The octets that these attributes were read from, and the next hop that an attribute with
    /// routes has.
    pub(crate) fn octets(&self) -> [&'a [u8]; 2] {
        [self.octets, self.next_hop]
    }
}

/// A kind of errors in UPDATEs that do not end the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultReason {
    /// `malformed COMMUNITIES`
    pub text: &'static str,
    /// The section that says what follows: `RFC 7606 section 7.8`.
    pub source: &'static str,
    /// The attribute is discarded alone. Otherwise the routes of the UPDATE are treated as
    /// withdrawn.
    pub discards: bool,
    /// The type of the attribute; 0: any type.
    kind: u8,
}

impl FaultReason {
    const fn of(kind: u8, discards: bool, text: &'static str, source: &'static str) -> Self {
        Self { text, source, discards, kind }
    }
}

/// Places of reasons that depend on no attribute.
const MISSING: usize = 0;
const BEYOND: usize = 1;
const REPEATED: usize = 2;

const COUNT: usize = 23;
/// All reasons.
static REASONS: [FaultReason; COUNT] = [
    FaultReason::of(0, false, "no ORIGIN, AS_PATH or NEXT_HOP", "RFC 7606 section 3 (d)"),
    FaultReason::of(0, false, "attribute beyond the list", "RFC 7606 section 4"),
    FaultReason::of(0, true, "attribute that is there twice", "RFC 7606 section 3 (g)"),
    FaultReason::of(kind::ORIGIN, false, "malformed ORIGIN", "RFC 7606 section 7.1"),
    FaultReason::of(kind::AS_PATH, false, "malformed AS_PATH", "RFC 7606 section 7.2"),
    FaultReason::of(kind::NEXT_HOP, false, "malformed NEXT_HOP", "RFC 7606 section 7.3"),
    FaultReason::of(kind::MED, false, "malformed MULTI_EXIT_DISC", "RFC 7606 section 7.4"),
    FaultReason::of(kind::LOCAL_PREF, false, "malformed LOCAL_PREF", "RFC 7606 section 7.5"),
    FaultReason::of(
        kind::LOCAL_PREF,
        true,
        "LOCAL_PREF of an external neighbor",
        "RFC 7606 section 7.5",
    ),
    FaultReason::of(
        kind::ATOMIC_AGGREGATE,
        true,
        "malformed ATOMIC_AGGREGATE",
        "RFC 7606 section 7.6",
    ),
    FaultReason::of(kind::AGGREGATOR, true, "malformed AGGREGATOR", "RFC 7606 section 7.7"),
    FaultReason::of(kind::COMMUNITIES, false, "malformed COMMUNITIES", "RFC 7606 section 7.8"),
    FaultReason::of(kind::ORIGINATOR_ID, false, "malformed ORIGINATOR_ID", "RFC 7606 section 7.9"),
    FaultReason::of(
        kind::ORIGINATOR_ID,
        true,
        "ORIGINATOR_ID of an external neighbor",
        "RFC 7606 section 7.9",
    ),
    FaultReason::of(kind::CLUSTER_LIST, false, "malformed CLUSTER_LIST", "RFC 7606 section 7.10"),
    FaultReason::of(
        kind::CLUSTER_LIST,
        true,
        "CLUSTER_LIST of an external neighbor",
        "RFC 7606 section 7.10",
    ),
    FaultReason::of(kind::MP_REACH, false, "flags of MP_REACH_NLRI", "RFC 7606 section 3 (c)"),
    FaultReason::of(kind::MP_UNREACH, false, "flags of MP_UNREACH_NLRI", "RFC 7606 section 3 (c)"),
    FaultReason::of(
        kind::EXTENDED_COMMUNITIES,
        false,
        "malformed EXTENDED COMMUNITIES",
        "RFC 7606 section 7.14",
    ),
    FaultReason::of(
        kind::IPV6_EXTENDED_COMMUNITIES,
        false,
        "malformed IPv6 EXTENDED COMMUNITIES",
        "RFC 7606 section 7.15",
    ),
    FaultReason::of(kind::AS4_PATH, true, "unexpected or malformed AS4_PATH", "RFC 6793 section 6"),
    FaultReason::of(
        kind::AS4_AGGREGATOR,
        true,
        "unexpected or malformed AS4_AGGREGATOR",
        "RFC 6793 section 6",
    ),
    FaultReason::of(
        kind::LARGE_COMMUNITIES,
        false,
        "malformed LARGE_COMMUNITY",
        "RFC 8092 section 6",
    ),
];

/// Errors in received UPDATEs that did not end the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateFaults {
    /// By the place of a reason, the UPDATEs that had it.
    reasons: [u32; COUNT],
    /// UPDATEs whose routes were treated as withdrawn, because of their attributes.
    pub treated_as_withdrawn: u64,
    /// Attributes that were discarded.
    pub attributes_discarded: u64,
    /// Fields with routes of families that the session does not carry.
    pub other_families: u64,
}

impl UpdateFaults {
    /// The reasons of the UPDATEs and attributes, and how many UPDATEs had each.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static FaultReason, u64)> {
        let counts = self.reasons.map(u64::from);
        REASONS.iter().zip(counts).filter(|(_, count)| *count > 0)
    }

    /// Counts the reasons of an UPDATE that `counts`, of those whose bits are set.
    fn add(&mut self, reasons: u32, counts: impl Fn(&FaultReason) -> bool) {
        for (place, (count, reason)) in self.reasons.iter_mut().zip(&REASONS).enumerate() {
            let is_set = reasons >> place & 1 == 1 && counts(reason);
            *count = count.saturating_add(is_set.into());
        }
    }
}

/// Settings of a session that its UPDATEs depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UpdateContext {
    pub families: Families,
    /// Routes have path identifiers.
    pub paths: Families,
    pub wide: bool,
    /// The peer is in the own autonomous system.
    pub internal: bool,
}

/// Reads the body of an UPDATE. Returns the family whose routes have all been announced, if it says
/// so.
///
/// # Errors
/// The NOTIFICATION that ends the session. Routes before the error have been learnt.
pub(crate) fn read_update(
    body: &[u8],
    context: &UpdateContext,
    faults: &mut UpdateFaults,
    rib: &mut impl Learner,
) -> Result<Option<Family>, Notification> {
    // RFC 7606 section 3 (a): the two lengths must be within the message.
    let malformed = || Notification::new(code::UPDATE, 1);
    let part = |octets: &'_ [u8]| -> Option<(usize, usize)> {
        let len = usize::from(get_be16(octets, 0)?);
        (octets.len() >= 2 + len).then_some((2, 2 + len))
    };
    let (from, to) = part(body).ok_or_else(malformed)?;
    let (withdrawn, rest) = (&body[from..to], &body[to..]);
    let (from, to) = part(rest).ok_or_else(malformed)?;
    let (attributes, announced) = (&rest[from..to], &rest[to..]);

    let mut scanned = scan(attributes, context)?;
    faults.attributes_discarded += scanned.discarded;
    faults.add(scanned.reasons, |reason| reason.discards);

    let mut each = |family: Family,
                    octets: &[u8],
                    code,
                    on: &mut dyn FnMut(Family, Nlri<'_>)|
     -> Result<(), Notification> {
        if !context.families[family.index()] {
            faults.other_families += 1;
            return Ok(());
        }
        let reader = Reader { rest: octets, family, paths: context.paths[family.index()] };
        for nlri in reader {
            on(family, nlri.map_err(|()| Notification::new(code::UPDATE, code))?);
        }
        Ok(())
    };
    // RFC 7606 section 5.3: routes that cannot be read reset the session.
    const FIELD: u8 = 10;
    const OPTIONAL_ATTRIBUTE: u8 = 9;
    if !withdrawn.is_empty() {
        each(Family::Ipv4, withdrawn, FIELD, &mut |family, nlri| rib.withdrawn(family, nlri))?;
    }
    if let Some((family, octets)) = scanned.unreachable {
        each(family, octets, OPTIONAL_ATTRIBUTE, &mut |family, nlri| {
            rib.withdrawn(family, nlri);
        })?;
        let only = withdrawn.is_empty() && announced.is_empty() && scanned.attributes == 1;
        if only && octets.is_empty() && context.families[family.index()] {
            rib.end_of_rib(family);
            return Ok(Some(family));
        }
    }
    if body == [0; 4] && context.families[Family::Ipv4.index()] {
        rib.end_of_rib(Family::Ipv4);
        return Ok(Some(Family::Ipv4));
    }
    if announced.is_empty() && scanned.reachable.is_none() {
        // RFC 7606 section 5.2: the error may hide routes.
        let only_ends = scanned.unreachable.is_some() && scanned.attributes == 1;
        let hides = scanned.withdraw && !scanned.reaches && !only_ends;
        return if hides { Err(malformed()) } else { Ok(None) };
    }
    // RFC 7606 section 3 (d).
    let has = |kind| is_in(&scanned.raw.valid, kind);
    let complete =
        has(kind::ORIGIN) && has(kind::AS_PATH) && (announced.is_empty() || has(kind::NEXT_HOP));
    let withdraw = scanned.withdraw || !complete;
    // Its attribute may be there, but malformed: then that is the reason.
    let missing = if !complete && !scanned.withdraw { 1 << MISSING } else { 0 };
    let mut take = |raw: &RawAttributes<'_>, family: Family, nlri: Nlri<'_>| match withdraw {
        true => rib.withdrawn(family, nlri),
        false => rib.announced(family, nlri, raw),
    };
    if !announced.is_empty() {
        let raw = scanned.raw;
        each(Family::Ipv4, announced, FIELD, &mut |family, nlri| take(&raw, family, nlri))?;
    }
    if let Some((family, next_hop, octets)) = scanned.reachable {
        scanned.raw.next_hop = next_hop;
        let raw = scanned.raw;
        each(family, octets, OPTIONAL_ATTRIBUTE, &mut |family, nlri| take(&raw, family, nlri))?;
    }
    faults.treated_as_withdrawn += u64::from(withdraw);
    faults.add(scanned.reasons | missing, |reason| !reason.discards);
    Ok(None)
}

/// An attribute of a list.
struct Attribute<'a> {
    flags: u8,
    kind: u8,
    value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The first attribute of a list, and the rest; `None`: it exceeds the list.
    fn read(octets: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let [flags, kind, rest @ ..] = octets else { return None };
        let (len, rest) = if flags & EXTENDED_LENGTH != 0 {
            (usize::from(get_be16(rest, 0)?), &rest[2..])
        } else {
            let (len, rest) = rest.split_first()?;
            (usize::from(*len), rest)
        };
        let (value, rest) = rest.split_at_checked(len)?;
        Some((Self { flags: *flags, kind: *kind, value }, rest))
    }
}

/// A list of attributes after its checks.
struct Scanned<'a> {
    raw: RawAttributes<'a>,
    attributes: u32,
    discarded: u64,
    /// The places of the reasons, as bits.
    reasons: u32,
    /// The routes of the UPDATE are treated as withdrawn.
    withdraw: bool,
    /// There is an `MP_REACH_NLRI`, of any family.
    reaches: bool,
    reachable: Option<Reachable<'a>>,
    unreachable: Option<(Family, &'a [u8])>,
}

/// Family, next hop and routes of an `MP_REACH_NLRI`.
type Reachable<'a> = (Family, &'a [u8], &'a [u8]);

/// How an attribute is handled that does not pass a check.
enum Fault {
    Discard,
    Withdraw,
}

/// Checks a list of attributes.
///
/// # Errors
/// The NOTIFICATION that ends the session.
fn scan<'a>(octets: &'a [u8], context: &UpdateContext) -> Result<Scanned<'a>, Notification> {
    let raw = RawAttributes { octets, valid: [0; 4], next_hop: &[], wide: context.wide };
    let mut scanned = Scanned {
        raw,
        attributes: 0,
        discarded: 0,
        reasons: 0,
        withdraw: false,
        reaches: false,
        reachable: None,
        unreachable: None,
    };
    let (mut seen, mut rest) = ([0; 4], octets);
    while !rest.is_empty() {
        let Some((attribute, after)) = Attribute::read(rest) else {
            // RFC 7606 section 4: the length of the list still shows where the routes begin.
            scanned.withdraw = true;
            scanned.reasons |= 1 << BEYOND;
            scanned.attributes += 1;
            break;
        };
        rest = after;
        scanned.attributes += 1;
        let Attribute { kind, value, .. } = attribute;
        if is_in(&seen, kind) {
            // RFC 7606 section 3 (g).
            if matches!(kind, kind::MP_REACH | kind::MP_UNREACH) {
                return Err(Notification::new(code::UPDATE, 1));
            }
            scanned.discarded += 1;
            scanned.reasons |= 1 << REPEATED;
            continue;
        }
        put(&mut seen, kind);
        match kind {
            kind::MP_REACH => {
                scanned.reaches = true;
                scanned.reachable = read_reachable(value, context)?;
            }
            kind::MP_UNREACH => scanned.unreachable = read_unreachable(value)?,
            _ => {}
        }
        match check(&attribute, context)? {
            None => put(&mut scanned.raw.valid, kind),
            Some(Fault::Discard) => {
                scanned.discarded += 1;
                scanned.reasons |= bit(kind, true);
            }
            Some(Fault::Withdraw) => {
                scanned.withdraw = true;
                scanned.reasons |= bit(kind, false);
            }
        }
    }
    Ok(scanned)
}

/// The bit of the reason about an attribute.
fn bit(kind: u8, discards: bool) -> u32 {
    let is_it = |reason: &FaultReason| reason.kind == kind && reason.discards == discards;
    REASONS.iter().position(is_it).map_or(0, |place| 1 << place)
}

/// Checks flags and length of an attribute (RFC 7606 sections 3 (c) and 7).
///
/// # Errors
/// The NOTIFICATION about a well-known attribute that is not known (RFC 4271 section 6.3).
fn check(
    attribute: &Attribute<'_>,
    context: &UpdateContext,
) -> Result<Option<Fault>, Notification> {
    use Fault::{Discard, Withdraw};
    let Attribute { flags, kind, value } = *attribute;
    let len = value.len();
    let multiple = |of: usize| len > 0 && len.is_multiple_of(of);
    const WELL_KNOWN: u8 = TRANSITIVE;
    const OPTIONAL_TRANSITIVE: u8 = OPTIONAL | TRANSITIVE;
    let width = if context.wide { 4 } else { 2 };
    // The flags that it has, whether its value is good, and what follows if not.
    let (expected, good, fault) = match kind {
        kind::ORIGIN => (WELL_KNOWN, matches!(value, [0..=2]), Withdraw),
        kind::AS_PATH => (WELL_KNOWN, is_path(value, width), Withdraw),
        kind::NEXT_HOP => (WELL_KNOWN, len == 4, Withdraw),
        kind::MED => (OPTIONAL, len == 4, Withdraw),
        kind::LOCAL_PREF if !context.internal => (WELL_KNOWN, false, Discard),
        kind::LOCAL_PREF => (WELL_KNOWN, len == 4, Withdraw),
        kind::ATOMIC_AGGREGATE => (WELL_KNOWN, len == 0, Discard),
        kind::AGGREGATOR => (OPTIONAL_TRANSITIVE, len == width + 4, Discard),
        kind::COMMUNITIES => (OPTIONAL_TRANSITIVE, multiple(4), Withdraw),
        kind::ORIGINATOR_ID | kind::CLUSTER_LIST if !context.internal => (OPTIONAL, false, Discard),
        kind::ORIGINATOR_ID => (OPTIONAL, len == 4, Withdraw),
        kind::CLUSTER_LIST => (OPTIONAL, multiple(4), Withdraw),
        kind::MP_REACH | kind::MP_UNREACH => (OPTIONAL, true, Withdraw),
        kind::EXTENDED_COMMUNITIES => (OPTIONAL_TRANSITIVE, multiple(8), Withdraw),
        // RFC 6793 sections 4.1 and 6: not in a session of four-octet numbers.
        kind::AS4_PATH => (OPTIONAL_TRANSITIVE, !context.wide && is_path(value, 4), Discard),
        kind::AS4_AGGREGATOR => (OPTIONAL_TRANSITIVE, !context.wide && len == 8, Discard),
        kind::IPV6_EXTENDED_COMMUNITIES => (OPTIONAL_TRANSITIVE, multiple(20), Withdraw),
        // RFC 8092 section 6.
        kind::LARGE_COMMUNITIES => (OPTIONAL_TRANSITIVE, multiple(12), Withdraw),
        _ if flags & OPTIONAL == 0 => {
            return Err(Notification::with(code::UPDATE, 2, &header_and_value(attribute)));
        }
        _ => return Ok(None),
    };
    let flags_fit = flags & (OPTIONAL | TRANSITIVE) == expected;
    Ok((!good || !flags_fit).then_some(fault))
}

/// The octets of an attribute, for the data of a NOTIFICATION.
fn header_and_value(attribute: &Attribute<'_>) -> Vec<u8> {
    let Attribute { flags, kind, value } = attribute;
    let mut out = vec![*flags, *kind];
    let len = (value.len() as u16).to_be_bytes();
    out.extend_from_slice(if flags & EXTENDED_LENGTH != 0 { &len } else { &len[1..] });
    out.extend_from_slice(value);
    out
}

/// Reads an `MP_REACH_NLRI` (RFC 4760 section 3); `None`: its family is another.
///
/// # Errors
/// The NOTIFICATION that ends the session (RFC 7606 section 7.11).
fn read_reachable<'a>(
    value: &'a [u8],
    context: &UpdateContext,
) -> Result<Option<Reachable<'a>>, Notification> {
    let error = || Notification::new(code::UPDATE, 9);
    let (head, rest) = value.split_first_chunk::<4>().ok_or_else(error)?;
    let (next_hop, rest) = rest.split_at_checked(head[3].into()).ok_or_else(error)?;
    // An octet is reserved.
    let (_, routes) = rest.split_first().ok_or_else(error)?;
    let Some(family) = Family::of(be16(head, 0), head[2]) else { return Ok(None) };
    let fits = match family {
        Family::Ipv4 => next_hop.len() == 4,
        // A global address, or one and a link-local one (RFC 2545 section 3).
        Family::Ipv6 => matches!(next_hop.len(), 16 | 32),
    };
    if !fits && context.families[family.index()] {
        return Err(error());
    }
    Ok(Some((family, next_hop, routes)))
}

fn read_unreachable(value: &[u8]) -> Result<Option<(Family, &[u8])>, Notification> {
    let (head, routes) =
        value.split_first_chunk::<3>().ok_or_else(|| Notification::new(code::UPDATE, 9))?;
    Ok(Family::of(be16(head, 0), head[2]).map(|family| (family, routes)))
}

/// Routes of a field.
struct Reader<'a> {
    rest: &'a [u8],
    family: Family,
    paths: bool,
}

impl<'a> Iterator for Reader<'a> {
    /// `Err`: a length is too high, or the prefix exceeds the field.
    type Item = Result<Nlri<'a>, ()>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let mut read = || {
            let (path, rest) = match (self.paths, self.rest) {
                (true, rest) => {
                    let (path, rest) = rest.split_first_chunk::<4>()?;
                    (u32::from_be_bytes(*path), rest)
                }
                (false, rest) => (0, rest),
            };
            let (&length, rest) = rest.split_first()?;
            if length > self.family.bits() {
                return None;
            }
            let (octets, rest) = rest.split_at_checked(usize::from(length).div_ceil(8))?;
            self.rest = rest;
            Some(Nlri { path, length, octets })
        };
        Some(read().ok_or(()))
    }
}

/// The share of a segment in the length of a path (RFC 4271 section 9.1.2.2, RFC 5065 section 5.3).
fn weight(kind: SegmentKind, numbers: usize) -> usize {
    match kind {
        SegmentKind::Sequence => numbers,
        SegmentKind::Set => numbers.min(1),
        SegmentKind::ConfederationSequence | SegmentKind::ConfederationSet => 0,
    }
}

/// Keeps the first part of a path, which counts `first`. The segment of a confederation stays if it
/// is the first one, or next to one that stays (RFC 6793 section 4.2.3).
fn keep_first(path: &mut Vec<PathSegment>, mut first: usize) {
    let mut kept = 0;
    for segment in path.iter_mut() {
        let all = weight(segment.kind, segment.numbers.len());
        if all > 0 && first == 0 {
            break;
        }
        kept += 1;
        if all > first {
            // Only a sequence counts more than 1.
            segment.numbers.truncate(first);
            break;
        }
        first -= all;
    }
    path.truncate(kept);
}

/// Whether a path consists of whole segments, with numbers of `width` octets (RFC 7606 section
/// 7.2).
fn is_path(mut octets: &[u8], width: usize) -> bool {
    while let [kind, count, rest @ ..] = octets {
        // Sets and sequences, also of confederations (RFC 5065 section 3).
        let Some(rest) = rest.get(usize::from(*count) * width..) else { return false };
        if SegmentKind::of(*kind).is_none() || *count == 0 {
            return false;
        }
        octets = rest;
    }
    octets.is_empty()
}

/// The segments of a path that [`is_path`].
fn segments(mut octets: &[u8], wide: bool) -> Vec<PathSegment> {
    let mut out = Vec::new();
    while let [kind, count, rest @ ..] = octets {
        let width = if wide { 4 } else { 2 };
        let (segment, rest) = rest.split_at(usize::from(*count) * width);
        let numbers = segment.chunks_exact(width).map(|number| match wide {
            true => be32(number, 0),
            false => be16(number, 0).into(),
        });
        let kind = SegmentKind::of(*kind);
        out.extend(kind.map(|kind| PathSegment { kind, numbers: numbers.collect() }));
        octets = rest;
    }
    out
}

fn is_in(set: &[u64; 4], kind: u8) -> bool {
    set[usize::from(kind >> 6)] >> (kind & 63) & 1 == 1
}

fn put(set: &mut [u64; 4], kind: u8) {
    set[usize::from(kind >> 6)] |= 1 << (kind & 63);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;

    const BOTH: UpdateContext = UpdateContext {
        families: [true, true],
        paths: [false, false],
        wide: true,
        internal: false,
    };

    const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
    const PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9];
    const HOP: &[u8] = &[0x40, 3, 4, 192, 0, 2, 1];
    /// 10.1.0.0/16
    const ROUTE: &[u8] = &[16, 10, 1];

    fn body(withdrawn: &[u8], attributes: &[&[u8]], routes: &[u8]) -> Vec<u8> {
        let attributes = attributes.concat();
        let len = |octets: &[u8]| (octets.len() as u16).to_be_bytes();
        [&len(withdrawn)[..], withdrawn, &len(&attributes), &attributes, routes].concat()
    }

    fn read(
        body: &[u8],
        context: &UpdateContext,
    ) -> (Result<(), (u8, u8)>, Vec<String>, UpdateFaults) {
        let (mut log, mut faults) = (Log::default(), UpdateFaults::default());
        let result = read_update(body, context, &mut faults, &mut log);
        let result = result.map(drop).map_err(|error| (error.code, error.subcode));
        (result, log.0, faults)
    }

    fn good(body: &[u8], context: &UpdateContext) -> Vec<String> {
        let (result, log, faults) = read(body, context);
        assert_eq!((result, faults), (Ok(()), UpdateFaults::default()));
        log
    }

    #[test]
    fn routes_of_ipv4_are_in_the_fields_of_the_message() {
        let update = body(&[0, 32, 192, 0, 2, 9], &[ORIGIN, PATH, HOP], &[16, 10, 1, 9, 10, 0xff]);
        assert_eq!(
            good(&update, &BOTH),
            [
                "-0.0.0.0/0#0",
                "-192.0.2.9/32#0",
                "+10.1.0.0/16#0 192.0.2.1 [65001]",
                "+10.128.0.0/9#0 192.0.2.1 [65001]",
            ]
        );
    }

    #[test]
    fn routes_of_ipv6_are_in_attributes() {
        let mut reach = vec![0x80, 14, 0, 0, 2, 1, 16];
        let hop: Ipv6Addr = "2001:db8::1".parse().unwrap();
        reach.extend(hop.octets());
        reach.extend([0, 32, 0x20, 1, 0xd, 0xb8]);
        reach[2] = reach.len() as u8 - 3;
        let unreach = [0x80, 15, 4, 0, 2, 1, 0];
        let update = body(&[], &[&reach, ORIGIN, PATH, &unreach], &[]);
        assert_eq!(good(&update, &BOTH), ["-::/0#0", "+2001:db8::/32#0 2001:db8::1 [65001]"]);
        // Without the family, both are ignored and counted.
        let context = UpdateContext { families: [true, false], ..BOTH };
        let (result, log, faults) = read(&update, &context);
        assert_eq!((result, log.len(), faults.other_families), (Ok(()), 0, 2));
    }

    #[test]
    fn paths_have_identifiers_where_that_was_agreed() {
        let context = UpdateContext { paths: [true, false], ..BOTH };
        let update = body(&[0, 0, 0, 7, 8, 11], &[ORIGIN, PATH, HOP], &[0, 0, 1, 0, 16, 10, 1]);
        assert_eq!(
            good(&update, &context),
            ["-11.0.0.0/8#7", "+10.1.0.0/16#256 192.0.2.1 [65001]"]
        );
    }

    #[test]
    fn a_path_of_two_octet_numbers_is_completed_from_as4_path() {
        let context = UpdateContext { wide: false, ..BOTH };
        let path = [0x40, 2, 8, 2, 3, 0xfd, 0xe9, 0x5b, 0xa0, 0, 7];
        let as4 = [0xc0, 17, 10, 2, 2, 0xfa, 0x56, 0xea, 1, 0, 0, 0, 7];
        let update = body(&[], &[ORIGIN, &path, HOP, &as4], ROUTE);
        assert_eq!(good(&update, &context), ["+10.1.0.0/16#0 192.0.2.1 [65001, 4200000001, 7]"]);
        // A set counts as one, whatever it has (RFC 4271 section 9.1.2.2).
        let set = [0x40, 2, 10, 2, 2, 0xfd, 0xe9, 0xfd, 0xea, 1, 1, 0x5b, 0xa0];
        let two = [0xc0, 17, 10, 1, 2, 0xfa, 0x56, 0xea, 1, 0xfa, 0x56, 0xea, 2];
        let update = body(&[], &[ORIGIN, &set, HOP, &two], ROUTE);
        assert_eq!(
            good(&update, &context),
            ["+10.1.0.0/16#0 192.0.2.1 [65001, 65002, 4200000001, 4200000002]"]
        );
        // The set of the first part stays whole. A confederation counts nothing: one next to what
        // stays does so, too.
        let first = [
            &[0x40, 2, 24, 3, 1, 0, 50, 1, 2, 0, 1, 0, 2, 3, 1, 0, 51][..],
            &[2, 2, 0x5b, 0xa0, 0, 7, 4, 1, 0, 52],
        ]
        .concat();
        let update = body(&[], &[ORIGIN, &first, HOP, &as4], ROUTE);
        assert_eq!(
            good(&update, &context),
            ["+10.1.0.0/16#0 192.0.2.1 [50, 1, 2, 51, 4200000001, 7]"]
        );
        // It is ignored with an AS4_AGGREGATOR whose place in AGGREGATOR has another number.
        let as4_aggregator = [0xc0, 18, 8, 0xfa, 0x56, 0xea, 1, 1, 1, 1, 1];
        for (asn, more, expected) in [
            ([0x5b, 0xa0], &as4_aggregator[..], "[65001, 4200000001, 7]"),
            ([0xfd, 0xea], &as4_aggregator[..], "[65001, 23456, 7]"),
            ([0xfd, 0xea], &[][..], "[65001, 4200000001, 7]"),
        ] {
            let aggregator = [&[0xc0, 7, 6][..], &asn, &[1, 1, 1, 1]].concat();
            let update = body(&[], &[ORIGIN, &path, HOP, &aggregator, &as4, more], ROUTE);
            assert_eq!(good(&update, &context), [format!("+10.1.0.0/16#0 192.0.2.1 {expected}")]);
        }
        // A longer AS4_PATH than AS_PATH is ignored.
        let short = [0x40, 2, 4, 2, 1, 0x5b, 0xa0];
        let update = body(&[], &[ORIGIN, &short, HOP, &as4], ROUTE);
        assert_eq!(good(&update, &context), ["+10.1.0.0/16#0 192.0.2.1 [23456]"]);
    }

    #[test]
    fn the_ends_of_families_are_recognized() {
        for family in Family::ALL {
            let end = &crate::message::end_of_rib(family)[crate::HEADER..];
            assert_eq!(good(end, &BOTH), [format!("end {family:?}")]);
            let mut without = BOTH;
            without.families[family.index()] = false;
            assert!(read(end, &without).1.is_empty());
        }
    }

    #[test]
    fn malformed_attributes_withdraw_the_routes_of_their_update() {
        let path_of = |value: &[u8]| [&[0x40, 2, value.len() as u8], value].concat();
        let origin = |value: &[u8]| [&[0x40, 1, value.len() as u8], value].concat();
        let all: &[(&str, &[&[u8]])] = &[
            ("no ORIGIN", &[PATH, HOP]),
            ("no AS_PATH", &[ORIGIN, HOP]),
            ("no NEXT_HOP", &[ORIGIN, PATH]),
            ("ORIGIN 3", &[&origin(&[3]), PATH, HOP]),
            ("ORIGIN of two octets", &[&origin(&[0, 0]), PATH, HOP]),
            ("an optional ORIGIN", &[&[0xc0, 1, 1, 0], PATH, HOP]),
            ("an unknown segment", &[ORIGIN, &path_of(&[5, 1, 0, 0, 0, 1]), HOP]),
            ("an empty segment", &[ORIGIN, &path_of(&[2, 0]), HOP]),
            ("a segment beyond the attribute", &[ORIGIN, &path_of(&[2, 2, 0, 0, 0, 1]), HOP]),
            ("an octet after the segments", &[ORIGIN, &path_of(&[2, 1, 0, 0, 0, 1, 2]), HOP]),
            ("NEXT_HOP of three octets", &[ORIGIN, PATH, &[0x40, 3, 3, 1, 1, 1]]),
            ("MED of three octets", &[ORIGIN, PATH, HOP, &[0x80, 4, 3, 1, 1, 1]]),
            ("a transitive MED", &[ORIGIN, PATH, HOP, &[0xc0, 4, 4, 1, 1, 1, 1]]),
            ("no community", &[ORIGIN, PATH, HOP, &[0xc0, 8, 0]]),
            ("communities of five octets", &[ORIGIN, PATH, HOP, &[0xc0, 8, 5, 1, 2, 3, 4, 5]]),
            ("half an extended community", &[ORIGIN, PATH, HOP, &[0xc0, 16, 4, 1, 2, 3, 4]]),
            ("a large community of four", &[ORIGIN, PATH, HOP, &[0xc0, 32, 4, 1, 2, 3, 4]]),
            ("an attribute beyond the list", &[ORIGIN, PATH, HOP, &[0xc0, 8, 5, 1, 2, 3, 4]]),
            ("a header beyond the list", &[ORIGIN, PATH, HOP, &[0xd0, 8, 0]]),
        ];
        for (what, attributes) in all {
            let (result, log, faults) = read(&body(&[], attributes, ROUTE), &BOTH);
            assert_eq!((result, log), (Ok(()), vec!["-10.1.0.0/16#0".to_owned()]), "{what}");
            assert_eq!((faults.treated_as_withdrawn, faults.attributes_discarded), (1, 0));
            let [(reason, 1)] = faults.reasons().collect::<Vec<_>>()[..] else {
                panic!("{what}: {faults:?}");
            };
            assert!(!reason.discards, "{what}");
        }
        let reasons = |attributes: &[&[u8]]| -> Vec<_> {
            let (_, _, faults) = read(&body(&[], attributes, ROUTE), &BOTH);
            faults.reasons().map(|(reason, count)| (reason.text, reason.source, count)).collect()
        };
        let no_origin = ("no ORIGIN, AS_PATH or NEXT_HOP", "RFC 7606 section 3 (d)", 1);
        assert_eq!(reasons(&[PATH, HOP]), [no_origin]);
        let communities = ("malformed COMMUNITIES", "RFC 7606 section 7.8", 1);
        let half: &[u8] = &[0xc0, 8, 2, 0, 1];
        assert_eq!(reasons(&[ORIGIN, PATH, HOP, half]), [communities]);
        // A second one is discarded, whatever it has.
        let twice = ("attribute that is there twice", "RFC 7606 section 3 (g)", 1);
        assert_eq!(reasons(&[ORIGIN, PATH, HOP, half, half]), [twice, communities]);
    }

    #[test]
    fn other_malformed_attributes_are_discarded_alone() {
        let all: &[(&str, &[u8])] = &[
            ("LOCAL_PREF of an external peer", &[0x40, 5, 4, 0, 0, 0, 100]),
            ("ATOMIC_AGGREGATE with a value", &[0x40, 6, 1, 0]),
            ("AGGREGATOR of six octets", &[0xc0, 7, 6, 0, 1, 1, 1, 1, 1]),
            ("ORIGINATOR_ID of an external peer", &[0x80, 9, 4, 1, 1, 1, 1]),
            ("CLUSTER_LIST of an external peer", &[0x80, 10, 4, 1, 1, 1, 1]),
            ("AS4_PATH in a session of four octets", &[0xc0, 17, 6, 2, 1, 0, 0, 0, 1]),
            ("AS4_AGGREGATOR in it", &[0xc0, 18, 8, 0, 0, 0, 1, 1, 1, 1, 1]),
            ("a second ORIGIN", &[0x40, 1, 1, 2]),
        ];
        for (what, attribute) in all {
            let update = body(&[], &[ORIGIN, PATH, HOP, attribute], ROUTE);
            let (result, log, faults) = read(&update, &BOTH);
            assert_eq!(result, Ok(()), "{what}");
            assert_eq!(log, ["+10.1.0.0/16#0 192.0.2.1 [65001]"], "{what}");
            assert_eq!((faults.treated_as_withdrawn, faults.attributes_discarded), (0, 1));
            let reasons: Vec<_> = faults.reasons().collect();
            assert!(matches!(reasons[..], [(FaultReason { discards: true, .. }, 1)]), "{what}");
        }
        let internal = UpdateContext { internal: true, ..BOTH };
        for attribute in [all[0].1, all[3].1, all[4].1] {
            assert_eq!(
                good(&body(&[], &[ORIGIN, PATH, HOP, attribute], ROUTE), &internal).len(),
                1
            );
        }
    }

    #[test]
    fn errors_that_hide_the_routes_end_the_session() {
        let mut too_long = body(&[], &[ORIGIN], &[]);
        too_long[3] += 1;
        let mut exceeds = body(ROUTE, &[], &[]);
        exceeds[1] += 3;
        let reach = |head: &[u8]| [&[0x80, 14, head.len() as u8], head].concat();
        let hop_of_15 = [&[0, 2, 1, 15][..], &[0; 16]].concat();
        let all: &[(&str, Vec<u8>, (u8, u8))] = &[
            ("attributes beyond the message", too_long, (3, 1)),
            ("withdrawn routes beyond the message", exceeds, (3, 1)),
            ("a prefix of 33 bits", body(&[], &[ORIGIN, PATH, HOP], &[33, 1, 1, 1, 1, 1]), (3, 10)),
            ("a prefix beyond the message", body(&[], &[ORIGIN, PATH, HOP], &[24, 1, 1]), (3, 10)),
            ("a withdrawn prefix of 33 bits", body(&[33, 1, 1, 1, 1, 1], &[], &[]), (3, 10)),
            ("an unknown well-known attribute", body(&[], &[&[0x40, 99, 0]], &[]), (3, 2)),
            ("a next hop of 15 octets", body(&[], &[&reach(&hop_of_15)], &[]), (3, 9)),
            ("half an MP_REACH_NLRI", body(&[], &[&reach(&[0, 2, 1])], &[]), (3, 9)),
            ("half an MP_UNREACH_NLRI", body(&[], &[&[0x80, 15, 2, 0, 2]], &[]), (3, 9)),
            (
                "a prefix of 129 bits",
                body(&[], &[&[&[0x80, 15, 21, 0, 2, 1, 129][..], &[0; 17]].concat()], &[]),
                (3, 9),
            ),
            (
                "two MP_UNREACH_NLRI",
                body(&[], &[&[0x80, 15, 3, 0, 2, 1], &[0x80, 15, 3, 0, 2, 1]], &[]),
                (3, 1),
            ),
            ("no routes", body(&[], &[ORIGIN, PATH, &[0xc0, 8, 5, 1]], &[]), (3, 1)),
            ("no end", body(&[], &[&[0x80, 15, 3, 0, 2, 1], &[0xc0]], &[]), (3, 1)),
        ];
        for (what, update, expected) in all {
            assert_eq!(read(update, &BOTH).0, Err(*expected), "{what}");
        }
    }
}
