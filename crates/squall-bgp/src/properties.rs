//! Properties of the codec: packed routes read back, and any octets are handled.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, Ipv6Addr},
};

use proptest::{collection::vec, prelude::*};
use squall_units::Nanos;

use crate::{
    AddPath, Envelope, Family, Input, Learnt, LearntLimit, LearntRoute, Negotiated, Origin, Packed,
    PathIds, PathSegment, PeerSettings, Prefix, RouteAttributes, SegmentKind, Session, State,
    UpdateKind, Way, log::Log, message, pack, room,
};

fn prefix(family: Family) -> impl Strategy<Value = Prefix> {
    (any::<u128>(), 0..=128u8).prop_map(move |(bits, length)| match family {
        Family::Ipv4 => {
            let length = length % 33;
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Prefix { address: Ipv4Addr::from_bits(bits as u32 & mask).into(), length }
        }
        Family::Ipv6 => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Prefix { address: Ipv6Addr::from_bits(bits & mask).into(), length }
        }
    })
}

prop_compose! {
    fn attributes()(
        origin in prop_oneof![Just(Origin::Igp), Just(Origin::Egp), Just(Origin::Incomplete)],
        prepend in 0..5u32,
        // More than fit into a segment.
        as_path in vec(1..=u32::MAX, 0..600),
        med in any::<Option<u32>>(),
        local_pref in any::<Option<u32>>(),
        communities in vec(any::<(u16, u16)>(), 0..100),
        extended_communities in vec(any::<[u8; 8]>(), 0..20),
        large_communities in vec(any::<[u32; 3]>(), 0..20),
    ) -> RouteAttributes {
        RouteAttributes {
            origin, segments: None, prepend, as_path, further: Vec::new(), next_hop: None, med,
            local_pref, communities, extended_communities, large_communities,
        }
    }
}

#[test]
fn a_path_with_sets_and_extended_communities_arrive_as_they_were_written() {
    let segment = |kind, numbers: &[u32]| PathSegment { kind, numbers: numbers.to_vec() };
    let path = vec![
        segment(SegmentKind::ConfederationSequence, &[65_010]),
        segment(SegmentKind::Sequence, &[4_200_000_001, 7]),
        segment(SegmentKind::Set, &[8, 4_200_000_002]),
    ];
    for four_octet in [true, false] {
        let one = PeerSettings { four_octet, ..settings(1, 65_001) };
        let (agreed, mut receiver) = pair(one, settings(2, 65_002));
        let attributes = RouteAttributes {
            segments: Some(path.clone()),
            prepend: 3,
            as_path: vec![9],
            extended_communities: vec![[0, 2, 0, 1, 0, 0, 0, 2]],
            ..RouteAttributes::default()
        };
        let envelope = Envelope::announce(Family::Ipv4, &attributes, &agreed, &one).unwrap();
        let prefix = Prefix { address: [10, 0, 0, 0].into(), length: 8 };
        let packed = pack(Family::Ipv4, std::iter::once(prefix), 100, PathIds::One(9));
        let mut learnt = Learnt::new(LearntLimit::new(1)).with_attributes();
        let (stream, mut out) = (octets(&packed, &envelope), Vec::new());
        receiver.handle(Nanos(1), Input::Octets(Way::Passive, &stream), &mut out, &mut learnt);
        assert_eq!(receiver.counters().faults, crate::UpdateFaults::default());
        let set = learnt.attributes(&LearntRoute { prefix, path: 9 }).expect("it is learnt");
        assert_eq!(set.attributes.path, path, "four octets: {four_octet}");
        assert_eq!(set.attributes.extended_communities, attributes.extended_communities);
    }
}

/// Settings of a side. Both sides differ in their numbers and identifiers.
fn settings(number: u8, asn: u32) -> PeerSettings {
    PeerSettings {
        asn,
        identifier: [192, 0, 2, number].into(),
        families: [true, true],
        add_path: [Some(AddPath { send: true, receive: true }); 2],
        ipv4: Some([192, 0, 2, number].into()),
        ipv6: Some(Ipv6Addr::from_bits((0x2001_0db8 << 96) + u128::from(number))),
        seed: number.into(),
        ..PeerSettings::default()
    }
}

/// Brings up two sessions, and returns what the sender has negotiated, and the receiver.
fn pair(one: PeerSettings, two: PeerSettings) -> (Negotiated, Session) {
    let mut sides = [Session::new(one), Session::new(two)];
    let (mut rib, mut waiting) = (Log::default(), [Vec::new(), Vec::new()]);
    let ways = [Way::Active, Way::Passive];
    for (side, way) in sides.iter_mut().zip(ways) {
        let mut out = Vec::new();
        side.handle(Nanos(0), Input::Start, &mut out, &mut rib);
        side.handle(Nanos(0), Input::Opened(way), &mut out, &mut rib);
        waiting[way as usize] = out;
    }
    for _ in 0..3 {
        for from in [0, 1] {
            let sent = std::mem::take(&mut waiting[from]);
            for output in sent {
                let crate::Output::Send(_, message) = output else { continue };
                let to = 1 - from;
                let input = Input::Octets(ways[to], &message);
                sides[to].handle(Nanos(0), input, &mut waiting[to], &mut rib);
            }
        }
    }
    let [one, two] = sides;
    assert_eq!((one.state(), two.state()), (State::Established, State::Established));
    let (_, agreed) = one.established().expect("it is established");
    (*agreed, two)
}

/// The octets of all messages.
fn octets(packed: &Packed, envelope: &Envelope) -> Vec<u8> {
    let messages = 0..packed.messages();
    let mut out = vec![0; packed.len(envelope, messages.clone()) as usize];
    packed.copy(envelope, messages, 0, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn packed_routes_are_learnt_and_withdrawn_ones_are_gone(
        prefixes in prop_oneof![
            vec(prefix(Family::Ipv4), 1..3000),
            vec(prefix(Family::Ipv6), 1..1000),
        ],
        attributes in attributes(),
        path in 1..=u32::MAX,
        four_octet: bool,
        extended_messages: bool,
        internal: bool,
    ) {
        let family = prefixes[0].family();
        let asn = if four_octet { 4_200_000_001 } else { 65_001 };
        let one = PeerSettings { four_octet, extended_messages, ..settings(1, asn) };
        let two = settings(2, if internal { asn } else { 65_002 });
        let (agreed, mut receiver) = pair(one, two);
        prop_assert_eq!(agreed.four_octet, four_octet);

        let announce = Envelope::announce(family, &attributes, &agreed, &one).expect("a next hop");
        let room = room(family, agreed.most, announce.overhead());
        // Attributes of a long path do not fit into a short message.
        prop_assume!(room.is_some());
        let packed =
            pack(family, prefixes.iter().copied(), room.unwrap_or(0), PathIds::One(path));
        let mut learnt = Learnt::new(LearntLimit::new(u64::MAX));
        let mut out = Vec::new();
        let stream = octets(&packed, &announce);
        receiver.handle(Nanos(1), Input::Octets(Way::Passive, &stream), &mut out, &mut learnt);

        prop_assert_eq!((receiver.state(), out.len()), (State::Established, 0));
        prop_assert_eq!(receiver.counters().faults, crate::UpdateFaults::default());
        prop_assert_eq!(receiver.counters().received.updates, u64::from(packed.messages()));
        let found: HashSet<(Prefix, u32)> = learnt
            .iter()
            .map(|LearntRoute { prefix, path }| (prefix, path))
            .collect();
        let expected: HashSet<(Prefix, u32)> =
            prefixes.iter().map(|prefix| (*prefix, path)).collect();
        prop_assert_eq!(found, expected);

        let withdraw = Envelope::withdraw(family);
        prop_assert_eq!(withdraw.kind(), UpdateKind::Withdraw);
        let stream = octets(&packed, &withdraw);
        receiver.handle(Nanos(2), Input::Octets(Way::Passive, &stream), &mut out, &mut learnt);
        prop_assert_eq!((learnt.routes(family), receiver.state()), (0, State::Established));
    }

    #[test]
    fn attributes_arrive_as_they_were_written(
        attributes in attributes(), four_octet: bool, internal: bool,
    ) {
        let asn = if four_octet { 4_200_000_001 } else { 65_001 };
        let one = PeerSettings { four_octet, ..settings(1, asn) };
        let two = settings(2, if internal { asn } else { 65_002 });
        let (agreed, mut receiver) = pair(one, two);
        let copies = attributes.prepend as usize + usize::from(!internal);
        let own = std::iter::repeat_n(one.asn, copies);
        let path: Vec<u32> = own.chain(attributes.as_path.iter().copied()).collect();
        for family in Family::ALL {
            let address = one.next_hop(family).expect("an address");
            let envelope = Envelope::announce(family, &attributes, &agreed, &one).unwrap();
            let prefixes = std::iter::once(Prefix { address, length: 16 });
            let packed = pack(family, prefixes, 100, PathIds::One(9));
            let (mut log, mut out) = (Log::default(), Vec::new());
            let stream = octets(&packed, &envelope);
            prop_assume!(stream.len() <= agreed.most);
            receiver.handle(Nanos(1), Input::Octets(Way::Passive, &stream), &mut out, &mut log);
            let network = if family == Family::Ipv4 { "192.0.0.0" } else { "2001::" };
            prop_assert_eq!(log.0, [format!("+{network}/16#9 {address} {path:?}")]);
        }
    }

    #[test]
    fn no_octets_make_it_panic_and_memory_is_that_of_a_message(
        kinds in vec((0..7u8, vec(any::<u8>(), 0..200), 0..3u8), 0..30), cut in 1..64usize,
        open: bool,
    ) {
        let mut session = Session::new(settings(1, 65_001));
        let mut learnt = Learnt::new(LearntLimit::new(1000)).with_attributes();
        let mut out = Vec::new();
        session.handle(Nanos(0), Input::Start, &mut out, &mut learnt);
        session.handle(Nanos(0), Input::Opened(Way::Passive), &mut out, &mut learnt);
        let mut stream = Vec::new();
        if open {
            let peer = message::Open {
                asn: 65_002, hold: 90, identifier: [192, 0, 2, 2].into(),
                capabilities: crate::Capabilities { families: [true; 2], ..Default::default() },
            };
            stream.extend(peer.octets());
            stream.extend(message::keepalive());
        }
        for (kind, body, wrong) in kinds {
            let begin = stream.len();
            stream.extend([0xff; 16]);
            stream.extend((19 + body.len() as u16 + u16::from(wrong == 2)).to_be_bytes());
            stream.push(kind);
            stream.extend(body);
            if wrong == 1 {
                stream.truncate(begin + 10);
            }
        }
        for part in stream.chunks(cut) {
            session.handle(Nanos(1), Input::Octets(Way::Passive, part), &mut out, &mut learnt);
        }
        prop_assert!(learnt.routes(Family::Ipv4) + learnt.routes(Family::Ipv6) <= 1000);
        prop_assert!(session.pending_octets() <= crate::MOST_EXTENDED);
    }
}
