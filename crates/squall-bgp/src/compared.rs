//! Messages against another codec, of `NetGauze`: each reads what the other writes.

use netgauze_bgp_pkt::{
    BgpMessage,
    nlri::{Ipv4Unicast, Ipv4UnicastAddress, Ipv6Unicast, Ipv6UnicastAddress},
    path_attribute::{
        As4PathSegment, AsPath, AsPathSegmentType, MpReach, MpUnreach, MultiExitDiscriminator,
        NextHop, Origin as TheirOrigin, PathAttribute, PathAttributeValue,
    },
    update::BgpUpdateMessage,
    wire::deserializer::BgpParsingContext,
};
use netgauze_parse_utils::{WritablePdu, reader::SliceReader, traits::ParseFromWithOneInput};

use crate::{
    AddPath, Capabilities, Envelope, Family, HEADER, Negotiated, Notification, Origin, PathIds,
    PeerSettings, Prefix, RestartCapability, RouteAttributes,
    log::Log,
    message::{self, Open, Refresh, end_of_rib},
    pack,
    update::{UpdateContext, UpdateFaults, read_update},
};

fn open() -> Open {
    Open {
        asn: 4_200_000_001,
        hold: 90,
        identifier: [192, 0, 2, 1].into(),
        capabilities: Capabilities {
            families: [true, true],
            other_families: false,
            asn: Some(4_200_000_001),
            add_path: [Some(AddPath { send: true, receive: true }); 2],
            restart: Some(RestartCapability {
                restarting: true,
                seconds: 120,
                families: [Some(true), Some(false)],
            }),
            refresh: true,
            enhanced_refresh: true,
            extended_messages: true,
        },
    }
}

/// Parses a whole message with the other codec.
fn parsed(octets: &[u8], context: &mut BgpParsingContext) -> BgpMessage {
    BgpMessage::parse(&mut SliceReader::new(octets), context).expect("a message")
}

fn written(message: &BgpMessage) -> Vec<u8> {
    let mut out = Vec::new();
    message.write(&mut out).expect("memory takes all");
    out
}

/// A context with path identifiers, which they know from the OPEN.
fn with_paths() -> BgpParsingContext {
    let mut context = BgpParsingContext::new(
        true,
        Default::default(),
        Default::default(),
        true,
        true,
        true,
        true,
    );
    let BgpMessage::Open(open) = parsed(&open().octets(), &mut context) else {
        panic!("an OPEN");
    };
    for capability in open.capabilities() {
        context.update_capabilities(capability, true);
    }
    context
}

#[test]
fn messages_without_routes_read_and_write_the_same() {
    let mut context = BgpParsingContext::default();
    for octets in [
        open().octets(),
        message::keepalive(),
        Notification::cease(crate::cease::SHUTDOWN).octets(),
        Notification::with(2, 1, &[0, 4]).octets(),
        message::route_refresh(Family::Ipv6, Refresh::Request),
        message::route_refresh(Family::Ipv4, Refresh::Begin),
        message::route_refresh(Family::Ipv4, Refresh::End),
        end_of_rib(Family::Ipv4),
        end_of_rib(Family::Ipv6),
    ] {
        assert_eq!(written(&parsed(&octets, &mut context)), octets);
    }
    let BgpMessage::Open(read) = parsed(&open().octets(), &mut context) else {
        panic!("an OPEN");
    };
    assert_eq!((read.my_asn4(), read.capabilities().len()), (4_200_000_001, 8));
    for family in Family::ALL {
        let message = parsed(&end_of_rib(family), &mut context);
        let BgpMessage::Update(update) = message else { panic!("an UPDATE") };
        let expected = ["Ipv4Unicast", "Ipv6Unicast"][family.index()];
        assert_eq!(format!("{:?}", update.end_of_rib()), format!("Some({expected})"));
    }
}

#[test]
fn packed_routes_read_and_write_the_same() {
    let own = PeerSettings {
        asn: 65_001,
        ipv4: Some([192, 0, 2, 1].into()),
        ipv6: Some("2001:db8::1".parse().unwrap()),
        ..PeerSettings::default()
    };
    let attributes = RouteAttributes {
        origin: Origin::Incomplete,
        prepend: 1,
        as_path: vec![4_200_000_001, 7],
        med: Some(5),
        communities: vec![(65_001, 1), (65_001, 2)],
        large_communities: vec![[4_200_000_001, 2, 3]],
        ..RouteAttributes::default()
    };
    let all = ["10.0.0.0/8", "10.1.128.0/17", "192.0.2.1/32", "2001:db8::/32", "2001:db8:1::/48"];
    let prefixes = all.map(|text| {
        let (address, length) = text.split_once('/').unwrap();
        Prefix { address: address.parse().unwrap(), length: length.parse().unwrap() }
    });
    for (family, expected) in [(Family::Ipv4, &all[..3]), (Family::Ipv6, &all[3..])] {
        for is_internal in [true, false] {
            let session = Negotiated { four_octet: true, is_internal, ..Negotiated::default() };
            let announce = Envelope::announce(family, &attributes, &session, &own).unwrap();
            for envelope in [announce, Envelope::withdraw(family)] {
                let packed = pack(family, prefixes.into_iter(), 200, PathIds::One(77));
                let mut octets = vec![0; packed.len(&envelope, 0..1) as usize];
                packed.copy(&envelope, 0..1, 0, &mut octets);
                let message = parsed(&octets, &mut with_paths());
                assert_eq!(written(&message), octets, "{message:?}");
                let BgpMessage::Update(update) = message else { panic!("an UPDATE") };
                assert_eq!(networks(&update), expected);
            }
        }
    }
}

/// The prefixes of an UPDATE, announced or withdrawn.
fn networks(update: &BgpUpdateMessage) -> Vec<String> {
    let fields = update.nlri().iter().chain(update.withdraw_routes());
    let mut out: Vec<String> = fields
        .map(|route| {
            assert_eq!(route.path_id(), Some(77));
            route.network().to_string()
        })
        .collect();
    for attribute in update.path_attributes() {
        let nlri = match attribute.value() {
            PathAttributeValue::MpReach(MpReach::Ipv6Unicast { nlri, .. })
            | PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast { nlri }) => nlri,
            _ => continue,
        };
        out.extend(nlri.iter().map(|route| route.network().to_string()));
    }
    out
}

#[test]
fn updates_of_the_other_codec_are_learnt() {
    let well_known = |value| PathAttribute::from(false, true, false, false, value).unwrap();
    let optional = |value| PathAttribute::from(true, false, false, true, value).unwrap();
    let segment = As4PathSegment::new(AsPathSegmentType::AsSequence, [4_200_000_001, 65_002]);
    let set = As4PathSegment::new(AsPathSegmentType::AsSet, [1, 2]);
    let route = |path, text: &str| {
        let network = Ipv4Unicast::from_net(text.parse().unwrap()).unwrap();
        Ipv4UnicastAddress::new(Some(path), network)
    };
    let wide = |path, text: &str| {
        let network = Ipv6Unicast::from_net(text.parse().unwrap()).unwrap();
        Ipv6UnicastAddress::new(Some(path), network)
    };
    let attributes = [
        optional(PathAttributeValue::MpReach(MpReach::Ipv6Unicast {
            next_hop_global: "2001:db8::1".parse().unwrap(),
            next_hop_local: Some("fe80::1".parse().unwrap()),
            nlri: [wide(3, "2001:db8:5::/48")].into(),
        })),
        optional(PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast {
            nlri: [wide(4, "2001:db8:6::/63")].into(),
        })),
        well_known(PathAttributeValue::Origin(TheirOrigin::EGP)),
        well_known(PathAttributeValue::AsPath(AsPath::as4_path_segments([segment, set]))),
        well_known(PathAttributeValue::NextHop(NextHop::new([192, 0, 2, 1].into()))),
        optional(PathAttributeValue::MultiExitDiscriminator(MultiExitDiscriminator::new(9))),
    ];
    let update = BgpUpdateMessage::new(
        [route(1, "10.9.0.0/16")],
        attributes,
        [route(2, "10.0.0.0/9"), route(2, "10.1.2.3/32")],
    );
    let octets = written(&BgpMessage::Update(update));
    let context =
        UpdateContext { families: [true; 2], paths: [true; 2], wide: true, internal: false };
    let (mut log, mut faults) = (Log::default(), UpdateFaults::default());
    let result = read_update(&octets[HEADER..], &context, &mut faults, &mut log);
    assert_eq!((result, faults), (Ok(None), UpdateFaults::default()));
    let path = "[4200000001, 65002, 1, 2]";
    assert_eq!(
        log.0,
        [
            "-10.9.0.0/16#1".to_owned(),
            "-2001:db8:6::/63#4".to_owned(),
            format!("+10.0.0.0/9#2 192.0.2.1 {path}"),
            format!("+10.1.2.3/32#2 192.0.2.1 {path}"),
            format!("+2001:db8:5::/48#3 2001:db8::1 {path}"),
        ]
    );
}
