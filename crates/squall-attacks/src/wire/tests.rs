use squall_wire::Packet;

use super::*;
use crate::{Octets, Origin, Shape, Transport, Turn};

pub(crate) fn ends(version: u8) -> Endpoints {
    let (client, server) =
        if version == 4 { ("192.168.0.2", "10.0.0.1") } else { ("2001:db8::2", "2001:db8:1::1") };
    Endpoints {
        client: client.parse().unwrap(),
        server: server.parse().unwrap(),
        client_mac: [2, 0, 0, 0, 0, 1],
        server_mac: [2, 0, 0, 0, 0, 2],
    }
}

fn exchange(transport: Transport, turns: Vec<Turn>) -> Exchange {
    Exchange {
        transport,
        client_port: 40_000,
        server_port: 80,
        turns,
        same_address: false,
        ip_version: None,
    }
}

fn turn(from: End, octets: &[u8]) -> Turn {
    Turn::new(from, Octets::framing(octets))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|o| format!("{o:02x}")).collect()
}

/// The frame that squall-wire builds from the text of a packet, without padding.
fn built(text: &str) -> Vec<u8> {
    let frame = Packet::parse(text).unwrap().build(None, &|_| unreachable!(), 0).unwrap();
    frame.bytes[..frame.bytes.len() - frame.trailer].to_vec()
}

#[test]
fn a_small_conversation_has_exactly_these_octets() {
    let mut get = turn(End::Client, b"GET\n");
    get.shape.sequence = Some(1001);
    get.shape.acknowledgment = Some(2001);
    get.shape.id = Some(7);
    let conversation = exchange(Transport::Tcp, vec![get, turn(End::Server, b"ok\n")]);
    let frames = frames(&conversation, &ends(4), &Settings::default()).unwrap();
    let id = |i: usize| u16::from_be_bytes([frames[i].octets[18], frames[i].octets[19]]);
    let client = |id: u16| {
        format!(
            "eth(dst=02:00:00:00:00:02,src=02:00:00:00:00:01)/ipv4(src=192.168.0.2,dst=10.0.0.1,\
             flags=DF,id={id})/tcp(sport=40000,dport=80,"
        )
    };
    let server = |id: u16| {
        format!(
            "eth(dst=02:00:00:00:00:01,src=02:00:00:00:00:02)/ipv4(src=10.0.0.1,dst=192.168.0.2,\
             flags=DF,id={id})/tcp(sport=80,dport=40000,"
        )
    };
    let options = "options=[mss(1460),nop,nop,sackok,nop,wscale(7)]";
    let (c, s) = (id(0), id(1));
    let expected = [
        client(c) + &format!("seq=1000,flags=S,window=64240,{options})"),
        server(s) + &format!("seq=2000,ack=1001,flags=S|A,window=64240,{options})"),
        client(c.wrapping_add(1)) + "seq=1001,ack=2001,flags=A,window=502)",
        client(7) + r#"seq=1001,ack=2001,flags=P|A,window=502)/text("GET\n")"#,
        server(s.wrapping_add(1)) + "seq=2001,ack=1005,flags=A,window=502)",
        server(s.wrapping_add(2)) + r#"seq=2001,ack=1005,flags=P|A,window=502)/text("ok\n")"#,
        client(c.wrapping_add(3)) + "seq=1005,ack=2004,flags=A,window=502)",
        client(c.wrapping_add(4)) + "seq=1005,ack=2004,flags=F|A,window=502)",
        server(s.wrapping_add(3)) + "seq=2004,ack=1006,flags=F|A,window=502)",
        client(c.wrapping_add(5)) + "seq=1006,ack=2005,flags=A,window=502)",
    ];
    for (frame, text) in frames.iter().zip(&expected) {
        assert_eq!(hex(&frame.octets), hex(&built(text)), "{text}");
    }
    assert_eq!(frames.len(), expected.len());
    let times: Vec<u64> = frames.iter().map(|f| f.at.0).collect();
    assert_eq!(times, (0..10).map(|i| i * 100_000).collect::<Vec<_>>());
}

#[test]
fn datagrams_and_echoes_are_those_of_the_other_builder() {
    let eth = "eth(dst=02:00:00:00:00:02,src=02:00:00:00:00:01)";
    let one = |transport, version, shape: Shape| {
        let mut turn = turn(End::Client, b"abc");
        turn.shape = Shape { id: (version == 4).then_some(9), ..shape };
        frames(&exchange(transport, vec![turn]), &ends(version), &Settings::default())
            .unwrap()
            .remove(0)
            .octets
    };
    let four = format!("{eth}/ipv4(src=192.168.0.2,dst=10.0.0.1,id=9");
    let six = format!("{eth}/ipv6(src=2001:db8::2,dst=2001:db8:1::1");
    let shape = Shape { ttl: Some(3), tos: Some(0x2e), ..Shape::default() };
    assert_eq!(
        one(Transport::Udp, 4, shape.clone()),
        built(&format!("{four},ttl=3,tos=0x2e)/udp(sport=40000,dport=80)/text(abc)"))
    );
    assert_eq!(
        one(Transport::Udp, 6, shape),
        built(&format!("{six},ttl=3,tc=0x2e)/udp(sport=40000,dport=80)/text(abc)"))
    );
    let shape = Shape { icmp_id: Some(5), icmp_sequence: Some(6), ..Shape::default() };
    assert_eq!(
        one(Transport::Icmp, 4, shape.clone()),
        built(&format!("{four})/icmp(id=5,seq=6)/text(abc)"))
    );
    assert_eq!(
        one(Transport::Icmp, 6, shape),
        built(&format!("{six})/icmpv6(id=5,seq=6)/text(abc)"))
    );
    let shape = Shape { icmp_type: Some(3), icmp_code: Some(13), ..Shape::default() };
    assert_eq!(
        one(Transport::Icmp, 4, shape),
        built(&format!("{four})/icmp(type=3,code=13)/text(abc)"))
    );
    let shape =
        Shape { ip_options: vec![148, 4, 0, 0], fragment_bits: Some(6), ..Shape::default() };
    assert_eq!(
        one(Transport::Ip(103), 4, shape),
        built(&format!("{four},protocol=103,flags=R|DF,options=[router-alert(0)])/text(abc)"))
    );
}

#[test]
fn tags_and_tunnels_are_those_of_the_other_builder() {
    let settings = Settings {
        vlans: vec![7, 8],
        gre: Some(Gre {
            source: "203.0.113.1".parse().unwrap(),
            destination: "203.0.113.2".parse().unwrap(),
        }),
        ..Settings::default()
    };
    let conversation =
        exchange(Transport::Udp, vec![turn(End::Client, b"abc"), turn(End::Server, b"d")]);
    let frames = frames(&conversation, &ends(6), &settings).unwrap();
    let id = u16::from_be_bytes([frames[0].octets[26], frames[0].octets[27]]);
    let text = format!(
        "eth(dst=02:00:00:00:00:02,src=02:00:00:00:00:01)/vlan(id=7)/vlan(id=8)/ipv4(src=203.0.\
         113.1,dst=203.0.113.2,id={id})/gre/ipv6(src=2001:db8::2,dst=2001:db8:1::1)/\
         udp(sport=40000,dport=80)/text(abc)"
    );
    assert_eq!(hex(&frames[0].octets), hex(&built(&text)));
    let back = squall_wire::Frame::dissect(frames[1].octets.clone());
    assert_eq!(back.names(), "eth/vlan/vlan/ipv4/gre/ipv6/udp");
    assert_eq!(back.value(&back.field("ipv4.src").unwrap()), u128::from(0xcb00_7102u32));
}

#[test]
fn packets_of_one_end_are_in_a_session() {
    let settings = Settings { vlans: vec![7], sessions: [true, false], ..Settings::default() };
    let turns = vec![turn(End::Client, b"abc"), turn(End::Server, b"d")];
    for version in [4, 6] {
        let conversation = exchange(Transport::Udp, turns.clone());
        let frames = frames(&conversation, &ends(version), &settings).unwrap();
        let [there, back] = [0, 1].map(|i| squall_wire::Frame::dissect(frames[i].octets.clone()));
        let ip = format!("ipv{version}/udp");
        assert_eq!(there.names(), format!("eth/vlan/pppoe/ppp/{ip}"));
        assert_eq!(back.names(), format!("eth/vlan/{ip}"));
        let value = |name: &str| there.value(&there.field(name).unwrap());
        let len = frames[0].octets.len() as u128 - 14 - 4 - 6;
        assert_eq!((value("pppoe.session"), value("pppoe.length")), (0, len));
        // After the headers, both directions are written likewise.
        let plain = super::frames(&conversation, &ends(version), &Settings::default()).unwrap();
        assert_eq!(hex(&frames[0].octets[26..]), hex(&plain[0].octets[14..]));
    }
}

#[test]
fn packets_beyond_the_mtu_are_fragmented() {
    for version in [4, 6] {
        let octets: Vec<u8> = (0..4000u32).map(|i| (i / 7) as u8).collect();
        let conversation = exchange(Transport::Udp, vec![turn(End::Client, &octets)]);
        let frames = frames(&conversation, &ends(version), &Settings::default()).unwrap();
        let header = 14 + if version == 4 { 20 } else { 48 };
        assert_eq!(frames.len(), 3, "IPv{version}");
        assert!(frames.iter().all(|f| f.octets.len() <= 1514));
        let body: Vec<u8> = frames.iter().flat_map(|f| f.octets[header..].to_vec()).collect();
        assert_eq!(body[8..], octets);
        let mut at = 0;
        for (i, frame) in frames.iter().enumerate() {
            let whole = squall_wire::Frame::dissect(frame.octets.clone());
            let value = |name: &str| whole.value(&whole.field(name).unwrap());
            let (offset, more) = match version {
                4 => (value("ipv4.frag"), value("ipv4.flags")),
                _ => (value("fragment.offset"), value("fragment.m")),
            };
            assert_eq!((offset * 8, more), (at, u128::from(i < 2)));
            at += frame.octets.len() as u128 - header as u128;
        }
    }
}

#[test]
fn impossible_settings_are_errors() {
    let conversation = |shape: Shape| {
        let mut turn = turn(End::Client, b"abc");
        turn.shape = shape;
        exchange(Transport::Tcp, vec![turn])
    };
    let settings = Settings::default();
    let usual = conversation(Shape::default());
    let error = |conversation: &Exchange, version| {
        frames(conversation, &ends(version), &settings).unwrap_err().to_string()
    };
    assert_eq!(
        error(&conversation(Shape { ip_options: vec![1; 4], ..Shape::default() }), 6),
        "a header with options needs IPv4, but the ends are IPv6; try IPv4 addresses"
    );
    assert_eq!(
        error(&conversation(Shape { ip_options: vec![1; 3], ..Shape::default() }), 4),
        "IP options of 3 octets, expected a multiple of 4, at most 40"
    );
    assert!(error(&Exchange { ip_version: Some(6), ..usual.clone() }, 4).contains("IPv6"));
    assert!(
        error(&conversation(Shape { id: Some(1), ..Shape::default() }), 6).contains("identifier")
    );
    let mut long = turn(End::Client, &[0; 70_000]);
    long.shape.whole = true;
    for version in [4, 6] {
        assert!(
            error(&exchange(Transport::Tcp, vec![long.clone()]), version).contains("at most 65535")
        );
        assert!(
            error(&exchange(Transport::Udp, vec![long.clone()]), version).contains("at most 65535")
        );
    }
    let mixed = Endpoints { server: "::1".parse().unwrap(), ..ends(4) };
    assert!(
        frames(&usual, &mixed, &settings).unwrap_err().to_string().contains("different families")
    );
    for (settings, expected) in [
        (Settings { mss: 0, ..settings.clone() }, "mss is 0"),
        (Settings { mtu: 100, ..settings.clone() }, "mtu is 100"),
        (Settings { vlans: vec![4096], ..settings.clone() }, "VLAN 4096"),
        (Settings { vlans: vec![1; 3], ..settings.clone() }, "3 VLAN tags"),
    ] {
        assert!(
            frames(&usual, &ends(4), &settings).unwrap_err().to_string().contains(expected),
            "{expected}"
        );
    }
    let mut twice = conversation(Shape { sequence: Some(5), ..Shape::default() });
    twice.turns.push(twice.turns[0].clone());
    assert_eq!(
        error(&twice, 4),
        "the sequence number 5 of a turn contradicts an earlier turn, after which it would be 8"
    );
}

#[test]
fn a_land_packet_has_one_address_and_the_required_flags() {
    let mut turn = turn(End::Client, b"");
    turn.shape =
        Shape { flags: Some(0x29), sequence: Some(0), window: Some(55_808), ..Shape::default() };
    let conversation = Exchange { same_address: true, ..exchange(Transport::Segments, vec![turn]) };
    let frames = frames(&conversation, &ends(4), &Settings::default()).unwrap();
    assert_eq!(frames.len(), 1);
    let frame = squall_wire::Frame::dissect(frames[0].octets.clone());
    let value = |name: &str| frame.value(&frame.field(name).unwrap());
    assert_eq!(value("ipv4.src"), value("ipv4.dst"));
    assert_eq!((value("tcp.flags"), value("tcp.seq"), value("tcp.ack")), (0x29, 0, 0));
    assert_eq!((value("tcp.window"), frame.bytes.len()), (55_808, 54));
}

#[test]
fn an_error_of_icmp_quotes_a_packet_that_went_the_other_way() {
    for version in [4, 6] {
        for (octets, origin) in [(32, Origin::Free), (60, Origin::Free), (32, Origin::Option(0))] {
            let mut turn = Turn::new(End::Client, Octets::of(vec![b'x'; octets], origin));
            turn.shape.icmp_type = Some(if version == 4 { 3 } else { 1 });
            let conversation = exchange(Transport::Icmp, vec![turn]);
            let frame = frames(&conversation, &ends(version), &Settings::default())
                .unwrap()
                .remove(0)
                .octets;
            let frame = squall_wire::Frame::dissect(frame);
            if origin != Origin::Free {
                assert!(frame.bytes.ends_with(&[b'x'; 32]));
                continue;
            }
            let expected =
                ["eth/ipv4/icmp/ipv4/udp", "eth/ipv6/icmpv6/ipv6/udp"][usize::from(version == 6)];
            // All lengths and checksums are correct; ICMP has no length field.
            assert_eq!((frame.names().as_str(), frame.lengths.len()), (expected, 3));
            assert_eq!(frame.checksums.len(), if version == 4 { 4 } else { 2 });
            let value = |name: &str| frame.value(&frame.field(name).unwrap());
            let ip = if version == 4 { "ipv4" } else { "ipv6" };
            assert_eq!(value(&format!("{ip}[0].src")), value(&format!("{ip}[1].dst")));
            assert_eq!(
                frame.bytes.len() - 14 - [20, 40][usize::from(version == 6)] - 8,
                octets.max(frame.payload - frame.layers[3].offset)
            );
        }
    }
}
