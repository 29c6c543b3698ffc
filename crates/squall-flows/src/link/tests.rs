use squall_units::be16;

use super::*;
use crate::{Interface, InterfaceOf, Order, Pool};

/// Collects all frames.
#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl FrameOutput for Frames {
    fn frame(&mut self, len: usize, _: Cut) -> Option<&mut [u8]> {
        self.0.push(vec![0xee; len]);
        self.0.last_mut().map(|frame| &mut frame[..])
    }

    fn longest(&self) -> usize {
        9000
    }
}

impl Link {
    /// [`Link::receive`] of a link without hosts.
    fn take<'f>(&mut self, frame: &'f [u8]) -> Option<&'f [u8]> {
        self.receive(frame, &mut ServedHosts::new())
    }
}

fn link(pool: &str, network: Network) -> Link {
    let pool = Pool {
        name: "p".into(),
        ranges: vec![pool.parse().unwrap()],
        ports: 1..=2,
        order: Order::Sequential,
        hosts: None,
        shared: false,
    };
    network.check().expect("a good network");
    let mut link = Link::new(&network, Division::WHOLE);
    link.add_pool(Tuples::new(&pool, 0).unwrap(), false);
    link
}

fn network(mac: u8, wraps: Vec<Wrap>) -> Network {
    Network { mac: MacAddr([2, 0, 0, 0, mac, 0]), wraps, ..Network::default() }
}

fn gtp_u((local, remote): (IpAddr, IpAddr), teid: u32, local_teid: Option<u32>) -> Wrap {
    Wrap::GtpU { local, remote, teid, local_teid, source_port: GTPU_PORT }
}

/// A valid IP packet.
fn packet(from: &str, to: &str) -> Vec<u8> {
    match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut p = vec![0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0];
            p.extend(from.octets());
            p.extend(to.octets());
            p.resize(60, 2);
            p
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut p = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
            p.extend(from.octets());
            p.extend(to.octets());
            p.resize(60, 2);
            p
        }
        _ => panic!("one family"),
    }
}

/// Sends a packet from `a` to `b`, with the ARP or ND exchange that it needs. Returns the frame,
/// and the packet that `b` extracted.
fn carry(a: &mut Link, b: &mut Link, from: &str, to: &str) -> (Vec<u8>, Vec<u8>) {
    let packet = packet(from, to);
    let tuple = between(from, to);
    for round in 0..3 {
        let mut out = Frames::default();
        a.room(Nanos(0), &mut out, &tuple, packet.len(), Cut::WHOLE)
            .expect("room")
            .copy_from_slice(&packet);
        if let Some(frame) = out.0.pop() {
            let got = b.take(&frame).unwrap_or_else(|| panic!("{frame:02x?} {:?}", b.statistics));
            return (frame.clone(), got[..packet.len()].to_vec());
        }
        assert_eq!((round, a.statistics.unresolved), (0, 1));
        a.advance(Nanos(0));
        a.transmit(&mut out);
        out.0.drain(..).for_each(|question| assert!(b.take(&question).is_none()));
        b.transmit(&mut out);
        out.0.drain(..).for_each(|answer| assert!(a.take(&answer).is_none()));
    }
    panic!("nobody answers: {:?} {:?}", a.statistics, b.statistics);
}

#[test]
fn neighbors_are_resolved_and_reply() {
    for (clients, servers, from, to) in [
        ("16.0.0.1-16.0.0.9", "48.0.0.1-48.0.0.9", "16.0.0.3", "48.0.0.4"),
        ("fd00::1-fd00::9", "fd01::1-fd01::9", "fd00::3", "fd01::4"),
    ] {
        let (mut a, mut b) = (link(clients, network(1, vec![])), link(servers, network(2, vec![])));
        let (frame, got) = carry(&mut a, &mut b, from, to);
        assert_eq!(got, packet(from, to));
        assert_eq!(frame[..12], [2, 0, 0, 0, 2, 0, 2, 0, 0, 0, 1, 0]);
        let (asked, answered) = (a.statistics, b.statistics);
        assert_eq!(asked.arp_requests_sent + asked.nd_solicitations_sent, 1);
        assert_eq!(
            (answered.arp_requests_answered + answered.nd_solicitations_answered, asked.resolved),
            (1, 1)
        );
        // The other link has learned from the request.
        let mut out = Frames::default();
        assert!(b.room(Nanos(0), &mut out, &between(to, from), 60, Cut::WHOLE).is_some());
        assert_eq!((out.0.len(), b.statistics.arp_requests_sent), (1, 0));
    }
}

#[test]
fn each_client_of_a_cluster_has_its_own_mac() {
    let with_cluster = Network { cluster: true, ..network(1, vec![]) };
    let (mut a, mut b) =
        (link("16.0.0.1-16.0.3.255", with_cluster), link("48.0.0.1", network(2, vec![])));
    let (frame, _) = carry(&mut a, &mut b, "16.0.1.5", "48.0.0.1");
    assert_eq!(frame[6..12], [2, 0, 0, 0, 2, 4]);
    // Replies arrive. A MAC address after the last one is foreign.
    let (back, _) = carry(&mut b, &mut a, "48.0.0.1", "16.0.1.5");
    assert_eq!(back[..6], [2, 0, 0, 0, 2, 4]);
    let mut strange = back.clone();
    strange[4] = 99;
    assert!(a.take(&strange).is_none());
    assert_eq!(a.statistics.not_ours, 1);
}

#[test]
fn interfaces_have_headers_of_their_own() {
    let (mac, hop) = (MacAddr([2, 0, 0, 0, 9, 9]), MacAddr([2, 0, 0, 0, 2, 0]));
    let (a4, b4): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let vlan = Wrap::Vlan { id: 7, priority: 0, service: false };
    let tunnel = |local, remote| gtp_u((local, remote), 5, Some(5));
    let interface = |addresses: &str, wrap| Interface {
        of: InterfaceOf::Side,
        addresses: addresses.parse().unwrap(),
        mac: Some(mac),
        wraps: vec![wrap],
        next_hop: Some(hop),
    };
    let interfaces =
        vec![interface("16.0.0.6", tunnel(a4, b4)), interface("16.0.0.3-16.0.0.4", vlan)];
    let mut a = link("16.0.0.1-16.0.0.9", Network { interfaces, ..network(1, vec![]) });
    let peer = |wraps| link("48.0.0.1-48.0.0.9", network(2, wraps));
    // The peer in the VLAN asks for the host, which answers there.
    let mut tagged = peer(vec![vlan]);
    let (frame, _) = carry(&mut tagged, &mut a, "48.0.0.1", "16.0.0.4");
    assert_eq!(frame[..6], mac.0);
    let (frame, _) = carry(&mut a, &mut tagged, "16.0.0.3", "48.0.0.1");
    assert_eq!(frame[..6], hop.0);
    assert_eq!(frame[6..18], [2, 0, 0, 0, 9, 9, 0x81, 0, 0, 7, 8, 0]);
    let fixed = Network { next_hop: NextHop::Mac(mac), ..network(2, vec![tunnel(b4, a4)]) };
    let mut mobile = link("48.0.0.1-48.0.0.9", fixed);
    let (frame, _) = carry(&mut a, &mut mobile, "16.0.0.6", "48.0.0.1");
    assert_eq!((&frame[6..12], frame.len()), (&mac.0[..], 14 + 20 + 8 + 8 + 60));
    let (frame, _) = carry(&mut mobile, &mut a, "48.0.0.1", "16.0.0.6");
    // With a PDU session container (3GPP TS 38.415) of four octets.
    let mut extended = frame[..50].to_vec();
    extended[42] |= 4;
    extended.extend([0, 0, 0, 0x85, 1, 0, 1, 0]);
    extended.extend(&frame[50..]);
    for (at, octets) in [(16, 20 + 8 + 16 + 60), (38, 8 + 16 + 60), (44, 8 + 60)] {
        extended[at..at + 2].copy_from_slice(&u16::to_be_bytes(octets));
    }
    extended[24..26].fill(0);
    let check = !fold(sum(&extended[14..34]));
    extended[24..26].copy_from_slice(&check.to_be_bytes());
    assert_eq!(a.take(&extended), Some(&packet("48.0.0.1", "16.0.0.6")[..]));
    // The end of the tunnel answers outside of it.
    let request = Arp {
        request: true,
        sender_mac: hop,
        sender: Ipv4Addr::new(10, 0, 0, 2),
        target_mac: MacAddr::default(),
        target: Ipv4Addr::new(10, 0, 0, 1),
    };
    let frame = [&[255; 6], &hop.0, &ARP.to_be_bytes()[..], &request.octets()].concat();
    assert!(a.claims(&frame) && a.take(&frame).is_none());
    let mut out = Frames::default();
    a.transmit(&mut out);
    let reply = Arp::parse(&out.0[0][14..]).expect("a reply");
    assert_eq!((reply.sender, reply.sender_mac), (request.target, mac));
    assert_eq!(out.0[0][..14], [&hop.0[..], &mac.0, &[8, 6]].concat());
    // The others have the side's, and neither accepts the frames of the other.
    let mut plain = peer(vec![]);
    let (frame, _) = carry(&mut plain, &mut a, "48.0.0.1", "16.0.0.5");
    assert_eq!(frame[..6], [2, 0, 0, 0, 1, 0]);
    let (frame, _) = carry(&mut a, &mut plain, "16.0.0.5", "48.0.0.1");
    assert_eq!(frame[6..14], [2, 0, 0, 0, 1, 0, 8, 0]);
    for to in ["16.0.0.3", "16.0.0.6"] {
        let mut bare = [&mac.0[..], &hop.0, &[8, 0]].concat();
        bare.extend(packet("48.0.0.1", to));
        // The checksum of what would be the outer packet is wrong.
        let refused = |link: &Link| link.statistics.not_ours + link.statistics.malformed;
        let before = refused(&a);
        assert!(a.take(&bare).is_none());
        assert_eq!(refused(&a), before + 1, "{to}");
    }
    let check = |interfaces| Network { interfaces, ..network(1, vec![]) }.check();
    let twice = vec![interface("16.0.0.3-16.0.0.4", vlan), interface("16.0.0.4", vlan)];
    assert!(check(twice).expect_err("an overlap").contains("16.0.0.4"));
    let unknown = Interface { next_hop: None, ..interface("16.0.0.4", tunnel(a4, b4)) };
    assert!(check(vec![unknown]).expect_err("not resolved").contains("next_hop"));
    let bridged = Wrap::Vxlan { local: a4, remote: b4, vni: 1, mac };
    assert!(check(vec![interface("16.0.0.4", bridged)]).expect_err("not found").contains("gtp-u"));
}

#[test]
fn interfaces_can_be_replaced() {
    let (a4, b4): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let hop = MacAddr([2, 0, 0, 0, 2, 0]);
    let interface = |teid| Interface {
        of: InterfaceOf::Side,
        addresses: "16.0.0.1".parse().unwrap(),
        mac: None,
        wraps: vec![Wrap::GtpU {
            local: a4,
            remote: b4,
            teid,
            local_teid: None,
            source_port: 5000,
        }],
        next_hop: Some(hop),
    };
    let interfaces = vec![interface(1)];
    let mut a = link("16.0.0.1-16.0.0.9", Network { interfaces, ..network(1, vec![]) });
    let frame_to = |a: &mut Link| {
        let mut out = Frames::default();
        let packet = packet("16.0.0.1", "48.0.0.1");
        let tuple = between("16.0.0.1", "48.0.0.1");
        a.room(Nanos(0), &mut out, &tuple, packet.len(), Cut::WHOLE)
            .expect("room")
            .copy_from_slice(&packet);
        out.0.pop().expect("its next hop is known")
    };
    for teid in [1u32, 7] {
        a.set_interfaces(&[interface(teid)]);
        let frame = frame_to(&mut a);
        assert_eq!(be16(&frame, 34), 5000);
        assert_eq!(frame[46..50], teid.to_be_bytes());
        // Packets with any identifier come back.
        let back = Network {
            next_hop: NextHop::Mac(MacAddr([2, 0, 0, 0, 1, 0])),
            ..network(2, vec![gtp_u((b4, a4), 99, None)])
        };
        let mut b = link("48.0.0.1-48.0.0.9", back);
        assert!(b.take(&frame).is_some());
        carry(&mut b, &mut a, "48.0.0.1", "16.0.0.1");
    }
}

#[test]
fn a_gtp_u_tunnel_with_source_port_0_has_the_port_of_the_packet_inside() {
    let (local, remote): (IpAddr, IpAddr) =
        ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let wrap = Wrap::GtpU { local, remote, teid: 1, local_teid: Some(2), source_port: 0 };
    let mut a = link("16.0.0.1-16.0.0.9", network(1, vec![wrap]));
    let mut b = link("48.0.0.1-48.0.0.9", network(2, vec![gtp_u((remote, local), 2, Some(1))]));
    let (frame, got) = carry(&mut a, &mut b, "16.0.0.3", "48.0.0.4");
    assert_eq!(got, packet("16.0.0.3", "48.0.0.4"));
    // UDP begins at octet 34; the port of the flow is 1.
    assert_eq!((be16(&frame, 34), be16(&frame, 36)), (1, GTPU_PORT));
}

#[test]
fn an_interface_for_peers_has_the_packets_to_and_from_them() {
    let (mac, hop) = (MacAddr([2, 0, 0, 0, 9, 9]), MacAddr([2, 0, 0, 0, 1, 0]));
    let vlan = |id| Wrap::Vlan { id, priority: 0, service: false };
    let interface = |of, addresses: &str, id| Interface {
        of,
        addresses: addresses.parse().unwrap(),
        mac: Some(mac),
        wraps: vec![vlan(id)],
        next_hop: Some(hop),
    };
    let peers = "16.0.0.1-16.0.0.4";
    let interfaces =
        vec![interface(InterfaceOf::Peer, peers, 8), interface(InterfaceOf::Side, "48.0.0.9", 9)];
    let mut servers = link("48.0.0.1-48.0.0.9", Network { interfaces, ..network(2, vec![]) });
    let mut eight = link(peers, network(1, vec![vlan(8)]));
    let (frame, _) = carry(&mut eight, &mut servers, "16.0.0.2", "48.0.0.1");
    assert_eq!(frame[..6], mac.0, "by the answer to its request");
    let (frame, _) = carry(&mut servers, &mut eight, "48.0.0.1", "16.0.0.3");
    assert_eq!((&frame[..6], &frame[12..18]), (&hop.0[..], &[0x81, 0, 0, 8, 8, 0][..]));
    // The interface of the server's own address comes first.
    let mut nine = link(peers, network(1, vec![vlan(9)]));
    let (frame, _) = carry(&mut servers, &mut nine, "48.0.0.9", "16.0.0.3");
    assert_eq!(frame[12..18], [0x81, 0, 0, 9, 8, 0]);
    // Others have neither.
    let mut plain = link("16.0.0.5-16.0.0.9", network(1, vec![]));
    let (frame, _) = carry(&mut plain, &mut servers, "16.0.0.5", "48.0.0.1");
    assert_eq!(frame[..6], [2, 0, 0, 0, 2, 0]);
}

#[test]
fn tags_labels_and_tunnels_go_around_and_come_off() {
    let (a4, b4): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let (a6, b6): (IpAddr, IpAddr) = ("fc00::1".parse().unwrap(), "fc00::2".parse().unwrap());
    let vlan = |id, service| Wrap::Vlan { id, priority: 3, service };
    let mpls = |label| Wrap::Mpls { label, class: 5, ttl: 9 };
    let mac = MacAddr([2, 0, 0, 0, 2, 0]);
    let all: Vec<Box<dyn Fn(bool) -> Vec<Wrap>>> = vec![
        Box::new(|_| vec![vlan(100, false)]),
        Box::new(|_| vec![vlan(7, true), vlan(100, false)]),
        Box::new(|_| vec![mpls(16), mpls(1 << 19)]),
        Box::new(|_| vec![vlan(5, false), mpls(99)]),
        Box::new(|back| {
            vec![Wrap::Gre {
                local: if back { b4 } else { a4 },
                remote: if back { a4 } else { b4 },
                key: None,
            }]
        }),
        Box::new(|back| {
            vec![Wrap::Gre {
                local: if back { b6 } else { a6 },
                remote: if back { a6 } else { b6 },
                key: Some(7),
            }]
        }),
        Box::new(|back| {
            let (local, remote) = if back { (b4, a4) } else { (a4, b4) };
            vec![vlan(9, false), Wrap::Vxlan { local, remote, vni: 0xabcdef, mac }]
        }),
        Box::new(|back| {
            let (local, remote) = if back { (b6, a6) } else { (a6, b6) };
            vec![Wrap::Vxlan { local, remote, vni: 1, mac }]
        }),
        Box::new(|back| {
            let (local, remote) = if back { (b4, a4) } else { (a4, b4) };
            let (teid, local_teid) = if back { (1, 2) } else { (2, 1) };
            vec![gtp_u((local, remote), teid, Some(local_teid))]
        }),
        Box::new(|back| {
            let (local, remote) = if back { (b6, a6) } else { (a6, b6) };
            vec![gtp_u((local, remote), 5, Some(5))]
        }),
    ];
    for wraps in all {
        for (clients, servers, from, to) in [
            ("16.0.0.1", "48.0.0.1", "16.0.0.1", "48.0.0.1"),
            ("fd00::1", "fd01::1", "fd00::1", "fd01::1"),
        ] {
            // Labels carry no ARP: their next hop is fixed.
            let labelled = matches!(wraps(false).last(), Some(Wrap::Mpls { .. }));
            let next = |mac| {
                if labelled { NextHop::Mac(MacAddr([2, 0, 0, 0, mac, 0])) } else { NextHop::OnLink }
            };
            let mut a = link(clients, Network { next_hop: next(2), ..network(1, wraps(false)) });
            let mut b = link(servers, Network { next_hop: next(1), ..network(2, wraps(true)) });
            let (frame, got) = carry(&mut a, &mut b, from, to);
            assert_eq!(got, packet(from, to), "{:?}", wraps(false));
            // An independent decoder recomputes the lengths and checksums of all layers.
            let read = squall_wire::Frame::dissect(frame.clone());
            let names: Vec<_> = read.layers.iter().map(|layer| layer.header.name).collect();
            let layers = 2 + wraps(false)
                .iter()
                .map(|w| if w.ends().is_none() { 1 } else { 2 })
                .sum::<usize>();
            assert!(names.len() >= layers, "{names:?}");
            if let Some(Places::Tunnel(TunnelPlaces { ip, v4: true, .. })) = a.prefixes.v4.places {
                assert_eq!(fold(sum(&frame[ip..ip + 20])), 0xffff);
                assert_eq!(usize::from(be16(&frame, ip + 2)), frame.len() - ip);
            }
            // Every truncated frame is refused without a panic.
            for len in 0..frame.len() - 60 {
                assert!(b.take(&frame[..len]).is_none(), "{len} of {:?}", wraps(false));
            }
        }
    }
}

#[test]
fn foreign_frames_are_counted_and_skipped() {
    let mut a = link("16.0.0.1-16.0.0.9", network(1, vec![]));
    let frame = |to: MacAddr, kind: u16, packet: &[u8]| {
        [&to.0[..], &[2; 6], &kind.to_be_bytes(), packet].concat()
    };
    let (us, them) = (MacAddr([2, 0, 0, 0, 1, 0]), MacAddr([2, 0, 0, 0, 3, 0]));
    let good = packet("48.0.0.1", "16.0.0.1");
    for (octets, own) in [
        (frame(us, IPV4, &good), true),
        (frame(them, IPV4, &good), false),
        (frame(us, IPV4, &packet("48.0.0.1", "16.0.0.10")), false),
        (frame(us, VLAN, &good), false),
        (frame(BROADCAST, IPV4, &good), true),
        (frame(us, 0x88cc, &good), false),
    ] {
        assert_eq!(a.take(&octets).is_some(), own);
    }
    assert_eq!(
        (a.statistics.frames_received, a.statistics.not_ours, a.statistics.malformed),
        (6, 4, 0)
    );
    assert!(a.take(&frame(us, IPV4, &good[..19])).is_none());
    assert_eq!(a.statistics.malformed, 1);
}

proptest::proptest! {
    #[test]
    fn no_octets_make_it_panic(octets in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), kind in 0usize..8) {
        let (local, remote) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mac = MacAddr([2, 0, 0, 0, 1, 0]);
        let wraps = match kind {
            0..=2 => vec![],
            3 => vec![Wrap::Vlan { id: 1, priority: 0, service: false }],
            4 => vec![Wrap::Mpls { label: 16, class: 0, ttl: 64 }],
            5 => vec![Wrap::Gre { local, remote, key: Some(1) }],
            6 => vec![Wrap::Vxlan { local, remote, vni: 1, mac }],
            _ => vec![gtp_u((local, remote), 1, Some(1))],
        };
        let mut a = link("16.0.0.1-16.0.0.9", network(1, wraps));
        // Begins with valid octets, so that decoding reaches deep layers.
        let mut frame = a.prefixes.v4.octets.clone();
        frame[..6].copy_from_slice(&mac.0);
        if kind == 1 {
            frame[12..14].copy_from_slice(&ARP.to_be_bytes());
        }
        if let Some(Places::Tunnel(TunnelPlaces { ip, .. })) = a.prefixes.v4.places {
            frame[ip + 2..ip + 4].copy_from_slice(&200u16.to_be_bytes());
            let (own, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
            frame[ip + 12..ip + 16].copy_from_slice(&other);
            frame[ip + 16..ip + 20].copy_from_slice(&own);
            let check = !fold(sum(&frame[ip..ip + 20]));
            frame[ip + 10..ip + 12].copy_from_slice(&check.to_be_bytes());
        }
        frame.extend(octets);
        let _ = a.take(&frame);
        assert_eq!(a.statistics.frames_received, 1);
    }
}

#[test]
fn a_gateway_is_asked_for_and_nobody_else() {
    let by_gateway = NextHop::Gateway { v4: Some("16.0.0.254".parse().unwrap()), v6: None };
    let mut a = link("16.0.0.1-16.0.0.9", Network { next_hop: by_gateway, ..network(1, vec![]) });
    let mut router = link("16.0.0.254", network(9, vec![]));
    assert_eq!(a.resolve(Nanos(0), "48.0.0.1".parse().unwrap()), Answer::Wait);
    assert_eq!(a.resolve(Nanos(0), "fd00::1".parse().unwrap()), Answer::Silent);
    let mut out = Frames::default();
    a.advance(Nanos(0));
    a.transmit(&mut out);
    assert_eq!(out.0.len(), 1);
    assert!(router.take(&out.0[0]).is_none());
    router.transmit(&mut out);
    assert!(a.take(&out.0[1]).is_none());
    assert_eq!(
        a.resolve(Nanos(0), "48.0.0.1".parse().unwrap()),
        Answer::Mac(MacAddr([2, 0, 0, 0, 9, 0]))
    );
}

fn between(local: &str, remote: &str) -> Tuple {
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    Tuple { kind: squall_tcp::FlowKind::Tcp, local, local_port: 1, remote, remote_port: 2 }
}

/// A frame from a peer to this side, from port 7 to port 9.
fn from_outside(kind: u16, tags: &[u16], mut packet: Vec<u8>, at: usize) -> Vec<u8> {
    if at > 0 {
        packet.resize(packet.len().max(at + 20), 0);
        packet[at..at + 4].copy_from_slice(&[0, 7, 0, 9]);
    }
    let mut frame = vec![2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 2, 0];
    for tag in tags {
        frame.extend(0x8100u16.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    frame
}

#[test]
fn a_frame_belongs_to_the_worker_of_its_flow_whatever_its_headers() {
    const WORKERS: u32 = 5;
    let owner = |from: &str, to: &str| {
        owner::of_ends((from.parse().unwrap(), 7), (to.parse().unwrap(), 9), WORKERS)
    };
    let check_owner = |link: &Link, frame: &[u8], expected: u32| {
        for worker in 0..WORKERS {
            let own =
                if worker == expected { FrameOwner::Here } else { FrameOwner::Other(expected) };
            assert_eq!(link.owner(frame, (worker, WORKERS)), own, "worker {worker}");
        }
    };
    let (from, to) = ("198.18.0.7", "10.0.0.3");
    let plain = link("10.0.0.1-10.0.0.9", network(1, Vec::new()));
    check_owner(&plain, &from_outside(IPV4, &[], packet(from, to), 20), owner(from, to));
    // A packet with IPv4 options.
    let mut long = packet(from, to);
    long[0] = 0x47;
    check_owner(&plain, &from_outside(IPV4, &[], long, 28), owner(from, to));
    let tagged = link(
        "10.0.0.1-10.0.0.9",
        network(1, vec![Wrap::Vlan { id: 5, priority: 0, service: false }]),
    );
    check_owner(&tagged, &from_outside(IPV4, &[5], packet(from, to), 20), owner(from, to));
    // An ICMP error about a local packet.
    let mut error = packet("192.0.2.1", to);
    (error[9], error[20]) = (ICMP, 3);
    error.truncate(28);
    let mut quote = packet(to, from);
    quote.truncate(20);
    quote.extend([0, 9, 0, 7, 0, 0, 0, 0]);
    error.extend(quote);
    check_owner(&plain, &from_outside(IPV4, &[], error, 0), owner(from, to));

    let (from, to) = ("2001:db8::7", "fd00::3");
    let plain = link("fd00::1-fd00::9", network(1, Vec::new()));
    check_owner(&plain, &from_outside(IPV6, &[], packet(from, to), 40), owner(from, to));
    // Hop-by-hop options, then destination options.
    let mut options = packet(from, to);
    options[6] = 0;
    options.resize(40, 0);
    options.extend([60, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0]);
    check_owner(&plain, &from_outside(IPV6, &[], options, 56), owner(from, to));

    // A frame to a foreign address is not worth relaying.
    let foreign = from_outside(IPV6, &[], packet(from, "fd00::77"), 40);
    assert_eq!(plain.owner(&foreign, (1, WORKERS)), FrameOwner::Here);
    assert_eq!(plain.owner(&[2; 60], (1, WORKERS)), FrameOwner::Here);
}

#[test]
fn a_syn_of_a_known_sender_takes_the_short_path() {
    let sender = |number| MacAddr([2, 0, 0, 0, 9, number]);
    for (pool, from, to, foreign, kind, flags) in [
        ("10.0.0.1-10.0.0.9", "10.0.0.77", "10.0.0.3", "10.0.0.78", IPV4, 33),
        ("fd00::1-fd00::9", "fd00::77", "fd00::3", "fd00::78", IPV6, 53),
    ] {
        let mut on_link = link(pool, network(1, Vec::new()));
        let frame = |number, to, flag| {
            let mut packet = packet(from, to);
            packet.resize(80, 0);
            packet[flags] = flag;
            let macs = [network(1, Vec::new()).mac, sender(number)].map(|mac| mac.0).concat();
            [macs, kind.to_be_bytes().to_vec(), packet].concat()
        };
        // The second MAC address is a new one of the same sender.
        for number in [1, 2] {
            let syn = frame(number, to, SYN);
            assert!(!on_link.is_usual(&syn));
            assert!(on_link.take(&syn).is_some());
            assert!(on_link.is_usual(&syn) && on_link.take(&syn).is_some());
            assert!(on_link.is_usual(&frame(9, to, 0)) && !on_link.is_usual(&frame(9, foreign, 0)));
            let hop = on_link.resolve(Nanos(1), from.parse().unwrap());
            assert_eq!(hop, Answer::Mac(sender(number)));
        }
        // All packets go to a router, so nothing is to be learned.
        let next_hop = NextHop::Mac(sender(3));
        let routed = link(pool, Network { next_hop, ..network(1, Vec::new()) });
        assert!(routed.is_usual(&frame(1, to, SYN)));
    }
}

#[test]
fn own_addresses_are_known_in_the_first_range_and_in_others() {
    let pool = |ranges: &[&str]| {
        let ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let (name, order) = ("p".into(), Order::Sequential);
        Tuples::new(&Pool { name, ranges, ports: 1..=2, order, hosts: None, shared: false }, 0)
    };
    let mut own = Link::new(&network(1, Vec::new()), Division::WHOLE);
    for ranges in [
        // No range of one upper half, and two ranges: one comparison finds neither.
        &["fd00::ffff:ffff:ffff:fffe-fd00:0:0:1::1"][..],
        &["10.0.0.1-10.0.0.9", "10.0.1.0-10.0.1.9"],
        &["10.0.2.0-10.0.2.9"],
        &["10.0.3.0"],
        &["fd01::10-fd01::20"],
        &["fd02::10-fd02::20"],
    ] {
        own.add_pool(pool(ranges).unwrap(), false);
    }
    assert!(own.own.has4(0x0a00_0209) && !own.own.has4(0x0a00_020a) && !own.own.has4(0x0a00_01ff));
    for (address, is_own) in [
        ("10.0.0.0", false),
        ("10.0.0.9", true),
        ("10.0.1.0", true),
        ("10.0.1.255", false),
        ("10.0.2.0", true),
        ("10.0.2.9", true),
        ("10.0.2.10", false),
        ("10.0.3.0", true),
        ("fd00::ffff:ffff:ffff:fffe", true),
        ("fd00:0:0:1::1", true),
        ("fd00:0:0:1::2", false),
        ("fd01::f", false),
        ("fd01::10", true),
        ("fd01::20", true),
        ("fd01::21", false),
        ("fd01:0:0:1::11", false),
        ("fd02::20", true),
        ("fd03::20", false),
    ] {
        let v4 = !address.contains(':');
        let (from, kind, flags) = if v4 { ("10.9.9.9", IPV4, 33) } else { ("fd99::1", IPV6, 53) };
        let mut packet = packet(from, address);
        packet[flags] = 0;
        let macs = [MacAddr([2, 0, 0, 0, 1, 0]).0, [2; 6]].concat();
        let frame = [macs, kind.to_be_bytes().to_vec(), packet].concat();
        assert_eq!(own.is_usual(&frame), is_own, "{address}");
        assert_eq!(own.take(&frame).is_some(), is_own, "{address}");
    }
}

#[test]
fn all_workers_learn_neighbors_and_one_replies() {
    let mut one = link("10.0.0.1-10.0.0.9", network(1, Vec::new()));
    let mut other = link("10.0.0.1-10.0.0.9", network(1, Vec::new()));
    let request = Arp {
        request: true,
        sender_mac: MacAddr([2, 0, 0, 0, 9, 9]),
        sender: Ipv4Addr::new(10, 0, 0, 77),
        target_mac: MacAddr::default(),
        target: Ipv4Addr::new(10, 0, 0, 3),
    };
    let frame = from_outside(ARP, &[], request.octets().to_vec(), 0);
    assert_eq!(one.owner(&frame, (0, 2)), FrameOwner::All);
    assert!(one.take(&frame).is_none() && one.has_answers());
    let before = other.statistics;
    other.learn_neighbor(&frame);
    assert!(!other.has_answers());
    let neighbor = IpAddr::V4(request.sender);
    for link in [&mut one, &mut other] {
        assert_eq!(link.resolve(Nanos(1), neighbor), Answer::Mac(request.sender_mac));
    }
    let after = LinkStatistics { resolved: before.resolved, ..other.statistics };
    assert_eq!(after, before, "what was overheard is counted by who was given it");
}

#[test]
fn frames_of_hosts_in_sessions_have_their_numbers_and_others_are_refused() {
    let wraps = vec![Wrap::Vlan { id: 7, priority: 0, service: false }, Wrap::Pppoe];
    let network = |mac| Network { mtu: 1492, ..network(mac, wraps.clone()) };
    network(1).check().expect("a good network");
    let (mac, server_mac) = (MacAddr([2, 0, 0, 0, 9, 1]), MacAddr([2, 0, 0, 0, 9, 2]));
    let table = HostTable::new(1, (mac, 1), &[]);
    table.bind_in_session(0, [10, 0, 1, 0].into(), server_mac, 0x1234);
    let servers = HostTable::new(1, (server_mac, 1), &[]).with_sessions([10, 0, 1, 0].into(), 4);
    servers.bind(0, [10, 0, 0, 1].into(), server_mac);
    servers.set_session([10, 0, 1, 0].into(), Some((mac, 0x1234)));
    let [mut a, mut b] = [(1, table), (2, servers)].map(|(number, table)| {
        let (mut link, table) = (Link::new(&network(number), Division::WHOLE), Arc::new(table));
        let group = link.add_hosts(&table, None);
        link.add_host((group, table.get(0).unwrap()));
        link
    });
    let (frame, got) = carry(&mut a, &mut b, "10.0.1.0", "10.0.0.1");
    assert_eq!(got, packet("10.0.1.0", "10.0.0.1"));
    assert_eq!((&frame[..6], &frame[6..12]), (&server_mac.0[..], &mac.0[..]));
    // 60 octets, and the protocol of PPP.
    let headers = [0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0x12, 0x34, 0, 62, 0, 0x21];
    assert_eq!(frame[12..26], headers);
    let (back, got) = carry(&mut b, &mut a, "10.0.0.1", "10.0.1.0");
    assert_eq!(got, packet("10.0.0.1", "10.0.1.0"));
    assert_eq!((&back[..6], &back[12..26]), (&mac.0[..], &headers[..]));

    // Another session, a packet of PPP that is not IP, and one outside of sessions.
    let mut wrongs = [frame.clone(), frame.clone(), frame.clone()];
    wrongs[0][21] ^= 1;
    wrongs[1][24..26].copy_from_slice(&[0xc0, 0x21]);
    wrongs[2].drain(18..26);
    wrongs[2][16..18].copy_from_slice(&[8, 0]);
    let before = b.statistics.not_ours;
    for wrong in &wrongs {
        assert!(!b.claims(wrong) && b.take(wrong).is_none());
    }
    assert_eq!(b.statistics.not_ours - before, 3);
    for len in 0..frame.len() {
        assert!(b.take(&frame[..len]).is_none(), "{len} octets");
    }
    // No client has this address.
    let mut out = Frames::default();
    assert!(b.room(Nanos(0), &mut out, &between("10.0.0.1", "10.0.1.1"), 60, Cut::WHOLE).is_some());
    assert_eq!((out.0.len(), b.statistics.unresolved), (0, 1));
}
