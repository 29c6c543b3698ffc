//! The packet syntax, and its errors.

use squall_wire::{BuildError, Frame, Packet, SyntaxError, headers, payloads, reference};

fn load(path: &str) -> std::io::Result<Vec<u8>> {
    match path {
        "four" => Ok(b"four".to_vec()),
        _ => Err(std::io::Error::other("no such file")),
    }
}

fn packet(text: &str) -> Packet {
    Packet::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn build(text: &str) -> Frame {
    packet(text).build(None, &load, 0).unwrap()
}

fn get(text: &str, field: &str) -> u128 {
    let frame = build(text);
    let at = frame.field(field).unwrap_or_else(|e| panic!("{text}: {e}"));
    frame.value(&at)
}

fn mistake(text: &str) -> SyntaxError {
    Packet::parse(text).expect_err(text)
}

#[test]
fn aliases_and_forms_of_values_mean_the_same() {
    for (a, b) in [
        ("ether/ip/udp", "eth/ipv4/udp"),
        ("eth/dot1q(prio=3,vid=9)/ip", "eth/vlan(pcp=3,id=9)/ipv4"),
        (
            " eth ( dst = 02-00-00-00-00-09 ) / IPv4 ( ttl = 0x10 ) ",
            "eth(dst=02:00:00:00:00:09)/ipv4(ttl=16)",
        ),
        ("eth/tcp6/", ""),
        ("eth/ip/tcp(flags=SA)", "eth/ip/tcp(flags=ack + syn)"),
        ("eth/ip/tcp(flags=S | A)", "eth/ip/tcp(flags=0x12)"),
        ("eth/ip(dst=\"48.0.0.1\")", "eth/ip(dst=0x30000001)"),
        ("eth/ip(protocol=udp)", "eth/ip(proto=17)"),
        ("eth/ipv6(hlim=3,nh=none)", "eth/ip6(hop_limit=3,next=59)"),
        ("eth/ip/udp(src_port=1)", "eth/ip/udp(sport=1,)"),
        ("eth/text(a b)", "eth/text( \"a b\" )"),
        ("eth/hex(0xDE ad:be-ef)", "eth/hex(deadbeef)"),
        ("eth/ip/tcp(options=mss(1460))", "eth/ip/tcp(options=[ mss( 1460 ) , ])"),
    ] {
        if b.is_empty() {
            mistake(a);
        } else {
            assert_eq!(packet(a), packet(b), "{a}");
        }
    }
}

#[test]
fn mistakes_name_place_found_expected_and_hint() {
    for (text, at, found, expected, hint) in [
        ("", 0..0, "the end", "the name of a layer", "layers are eth"),
        ("eth/ipv5/udp", 4..8, "\"ipv5\"", "the name of a layer", "did you mean ipv4?"),
        ("eth/ipv4(tll=3)", 9..12, "\"tll\"", "a field of ipv4", "did you mean ttl?"),
        ("eth/ipv4(ttl=256)", 13..16, "\"256\"", "at most 255", "ipv4.ttl has 8 bits"),
        (
            "eth/ipv4(dst=1.2.3)",
            13..18,
            "\"1.2.3\"",
            "an IPv4 address such as 198.18.0.1",
            "ipv4.dst is: Destination",
        ),
        ("eth/ipv4(ttl 3)", 13..14, "\"3\"", "=", "as in ipv4(ttl=...)"),
        ("eth/ipv4(ttl=3", 14..14, "the end", ", or )", "as in ipv4(version=...)"),
        (
            "eth/ipv4(ttl=1,ttl=2)",
            15..20,
            "\"ttl=2\"",
            "ttl once",
            "they share bits: try only one of them",
        ),
        (
            "eth/ipv4(tos=1,dscp=2)",
            15..21,
            "\"dscp=2\"",
            "not both tos and dscp",
            "they share bits",
        ),
        ("ipv4/udp", 0..4, "\"ipv4\"", "eth or raw first", "frames begin with"),
        (
            "eth/udp",
            4..7,
            "\"udp\"",
            "vlan, mpls, arp, ipv4, ipv6, pppoe, pppoed, nsh, macsec, lacp, macctl, cfm, lldp or payload \
             after eth",
            "other octets",
        ),
        ("eth/text(a)/ipv4", 12..16, "\"ipv4\"", "payload or truncate", "headers come before"),
        ("eth/hex(abc)", 8..11, "an odd number of hex digits", "an even number", "two hex digits"),
        ("eth/hex(xy)", 8..9, "\"x\"", "hex digits", "two hex digits"),
        ("eth/text(\"a", 9..11, "a string without end", "\"", "try a closing"),
        (
            "eth/ipv4/tcp(flags=SX)",
            19..21,
            "\"SX\"",
            "flags joined by |, of F,",
            "tcp.flags is: Flags",
        ),
        ("eth/ipv4/tcp(options=[mms(1)])", 22..25, "\"mms\"", "an option", "did you mean mss?"),
        (
            "eth/ipv4/tcp(options=[mss(70000)])",
            26..31,
            "\"70000\"",
            "a number of 2 octets",
            "as in mss(n): Maximum segment size",
        ),
        (
            "eth/ipv4(options=[rr(9),rr(9)])",
            17..30,
            "78 octets of options",
            "at most 40",
            "try fewer",
        ),
        ("eth/ipv4/udp)", 12..13, "\")\"", "/ and a layer, or the end", "layers are joined by /"),
        ("eth/ipv4/", 9..9, "the end", "the name of a layer", "layers are"),
        ("eth/truncate(20)/text(a)", 17..21, "\"text\"", "the end", "truncate is the last layer"),
        (
            "eth/random(70000)",
            11..16,
            "\"70000\"",
            "a number of octets up to 65536",
            "`random(64)`",
        ),
        (
            "eth/ipv4(checksum=wrong)",
            18..23,
            "\"wrong\"",
            "a number, bad or auto",
            "ipv4.checksum is: Over the header",
        ),
        ("eth/ümlaut", 4..11, "\"ümlaut\"", "the name of a layer", "layers are"),
    ] {
        let e = mistake(text);
        assert_eq!((e.at.clone(), e.found.as_str()), (at, found), "{text}: {e}");
        assert!(e.expected.starts_with(expected), "{text}: {e}");
        assert!(e.hint.starts_with(hint), "{text}: {e}");
    }
    assert!(
        mistake(&vec!["eth"; 1].into_iter().chain(vec!["vlan"; 64]).collect::<Vec<_>>().join("/"))
            .expected
            .contains("64 layers")
    );
}

#[test]
fn set_lengths_and_checksums_stay() {
    let text = "eth(type=0x1234)/ipv4(length=9000,ihl=7,checksum=0xbeef,protocol=99)/udp(length=3,\
                checksum=0)";
    let frame = build(text);
    assert_eq!((frame.lengths.len(), frame.checksums.len()), (0, 0));
    for (field, value) in [
        ("eth.type", 0x1234),
        ("ipv4.length", 9000),
        ("ipv4.ihl", 7),
        ("ipv4.checksum", 0xbeef),
        ("ip.proto", 99),
        ("udp.length", 3),
        ("udp.checksum", 0),
    ] {
        assert_eq!(get(text, field), value, "{field}");
    }
    assert_eq!(get("eth/vlan(tpid=0x9100)/vlan(tpid=dot1ad)/ipv4", "eth.type"), 0x9100);
    assert_eq!(get("eth/vlan(tpid=0x9100)/vlan(tpid=dot1ad)/ipv4", "vlan[1].tpid"), 0x88a8);
    assert_eq!(get("eth/mpls(s=1)/mpls(s=0)/ipv4", "mpls[-1].s"), 0);
}

#[test]
fn bad_checksums_are_wrong_and_nonzero() {
    for port in 0..=u16::MAX {
        if port % 97 != 0 {
            continue;
        }
        let frame = build(&format!("eth/ipv4(checksum=bad)/udp(sport={port},checksum=bad)"));
        assert_eq!(frame.checksums, []);
        let found = Frame::dissect(frame.bytes.clone());
        assert_eq!(found.checksums, []);
        assert_ne!(frame.bytes[40..42], [0, 0]);
    }
    // Both checksums: the inner, deliberately wrong one, and the outer one that covers it.
    let frame = build("eth/ipv4/udp(checksum=auto)/vxlan/eth/ipv4/udp(checksum=bad)");
    assert_eq!(frame.checksums.iter().map(|c| c.at).collect::<Vec<_>>(), [74, 40, 24]);
}

#[test]
fn a_udp_checksum_that_computes_to_0_is_sent_as_all_ones() {
    let zero: u16 =
        build("eth/ipv4/udp(sport=0)").bytes[40..42].iter().fold(0, |v, &o| v << 8 | u16::from(o));
    let frame = build(&format!("eth/ipv4/udp(sport={zero})"));
    assert_eq!(frame.bytes[40..42], [0xff, 0xff]);
    assert_eq!(Frame::dissect(frame.bytes).checksums.len(), 2);
}

#[test]
fn truncated_frames_are_those_of_the_whole_packet_cut_off() {
    let whole = build("eth/ipv4/udp/text(hello)");
    for n in [1, 14, 20, 30, 45, 50, 60, 100] {
        let frame = build(&format!("eth/ipv4/udp/text(hello)/truncate({n})"));
        let kept = n.min(60);
        assert_eq!(frame.bytes, whole.bytes[..kept]);
        assert_eq!((frame.lengths.len(), frame.checksums.len()), (0, 0));
        assert_eq!(frame.payload, kept.min(42));
        assert_eq!(frame.trailer, kept.saturating_sub(47));
    }
    let frame = build("eth/ipv4/udp/truncate(20)");
    assert_eq!(frame.names(), "eth/ipv4");
    assert!(frame.field("ipv4.length").is_ok());
    assert_eq!(frame.field("ipv4.src").unwrap_err().hint, "it is cut off");
    assert_eq!(packet("eth/truncate(20)").truncated(), Some(20));
}

#[test]
fn payload_layers_fill_or_are_cut() {
    let payload = |text: &str, len: usize| {
        let frame = packet(text).build(Some(14 + len), &load, 3).unwrap();
        frame.bytes[14..].to_vec()
    };
    assert_eq!(payload("eth/pattern(01 02 03)", 7), [1, 2, 3, 1, 2, 3, 1]);
    assert_eq!(payload("eth/text(ab)/pattern(01 02)", 5), [b'a', b'b', 1, 2, 1]);
    assert_eq!(payload("eth/text(abcdef)", 3), *b"abc");
    assert_eq!(payload("eth/text(\"\\x01\\n\")/file(four)", 8), *b"\x01\nfour\0\0");
    assert_eq!(payload("eth/inc", 300)[255..258], [255, 0, 1]);
    assert_eq!(payload("eth/inc(2)", 4), [0, 1, 0, 0]);
    assert_eq!(payload("eth/zeros(2)/hex(ff)", 4), [0, 0, 255, 0]);
    let random = payload("eth/random", 1000);
    assert!(
        (0..=255).all(|o| random.contains(&o) || random.iter().filter(|&&x| x == o).count() < 20)
    );
    assert_ne!(random, packet("eth/random").build(Some(1014), &load, 4).unwrap().bytes[14..]);
    assert_eq!(payload("eth/random", 10), random[..10]);
}

#[test]
fn impossible_builds_give_a_reason() {
    let fails = |text: &str, len| packet(text).build(len, &load, 0).unwrap_err();
    assert!(matches!(fails("eth/ipv4/udp", Some(41)), BuildError::TooShort { need: 42, len: 41 }));
    assert_eq!(fails("eth/file(nowhere)", None).to_string(), "cannot read nowhere: no such file");
    assert_eq!(
        fails("eth/ipv4/udp", Some(70_000)).to_string(),
        "ipv4.length cannot hold 69986: at most 65535"
    );
    assert!(
        fails("eth/ipv6/icmpv6(type=echo-request,target=::1)", None)
            .to_string()
            .contains("icmpv6.target is set")
    );
    let mut swapped = packet("eth/ipv4/udp");
    swapped.layers.swap(0, 2);
    assert!(matches!(swapped.build(None, &load, 0), Err(BuildError::Invalid(_))));
    assert!(Packet { layers: Vec::new() }.build(None, &load, 0).is_err());
}

#[test]
fn raw_octets_are_dissected_and_follow_the_length() {
    let hex: String =
        build("eth/ipv4/udp/text(hello)").bytes[..47].iter().map(|o| format!("{o:02x}")).collect();
    let raw = packet(&format!("raw({hex})"));
    let frame = raw.build(None, &load, 0).unwrap();
    assert_eq!(
        (frame.names().as_str(), frame.bytes.len(), frame.trailer),
        ("eth/ipv4/udp", 60, 13)
    );
    let frame = packet(&format!("raw({hex})/inc")).build(Some(100), &load, 0).unwrap();
    assert_eq!(
        (frame.bytes.len(), frame.trailer, &frame.bytes[42..50]),
        (100, 0, &b"hello\0\x01\x02"[..])
    );
    assert_eq!(Frame::dissect(frame.bytes).checksums.len(), 2);
    assert_eq!(build("raw(aabb)/truncate(2)").bytes, [0xaa, 0xbb]);
}

#[test]
fn fields_are_found_by_name_index_and_offset() {
    let frame = build(
        "eth/vlan(id=7)/vlan(id=8)/ipv4/gre(key=5)/ipv4(dst=1.2.3.4)/udp(sport=77)/\
         hex(0102030405060708)",
    );
    let value = |name: &str| frame.value(&frame.field(name).unwrap_or_else(|e| panic!("{e}")));
    assert_eq!(value("vlan.id"), 7);
    assert_eq!(value("vlan[1].vid"), 8);
    assert_eq!(value("dot1q[-1].id"), 8);
    assert_eq!(value("ip[-1].dst"), 0x01020304);
    assert_eq!(value("gre.key"), 5);
    assert_eq!(value("udp.sport"), 77);
    assert_eq!(value("payload[1:2]"), 0x0203);
    assert_eq!(value("payload[0:8]"), 0x0102030405060708);
    assert_eq!(value("frame[0:6]"), 0x020000000002);
    for (name, hint) in [
        ("ipv4.sorce", "did you mean ipv4.src?"),
        ("ipv5.src", "did you mean ipv4.src?"),
        ("tcp.sport", "the frame has no tcp"),
        ("vlan[2].id", "the frame has 2 vlan, counted from 0"),
        ("vlan[-3].id", "the frame has 2 vlan, counted from 0"),
        ("vlan[x].id", "an index is a number"),
        ("gre.seq", "this gre does not have it"),
        ("ipv4.options", "options have no fixed offset"),
        ("payload[0:9]", "try payload[offset:length]"),
        ("payload[7:2]", "payload has 8 octets"),
        ("payload[340282366920938463463374607431768211455:2]", "payload has 8 octets"),
        ("src", "try names such as"),
        ("ipv4[0.src", "try names such as"),
        ("", "try names such as"),
    ] {
        let e = frame.field(name).expect_err(name);
        assert!(e.hint.starts_with(hint), "{name}: {e}");
        assert_eq!(e.layers, "eth/vlan/vlan/ipv4/gre/ipv4/udp");
    }
}

#[test]
fn the_table_is_consistent() {
    let mut names = std::collections::HashSet::new();
    for h in headers().iter().chain(payloads()) {
        for name in [h.name].iter().chain(h.aliases) {
            assert!(names.insert(*name), "{name} twice");
        }
        assert!(h.carries().all(|c| headers().iter().any(|h| h.name == c)), "{}", h.name);
        let mut fields = std::collections::HashSet::new();
        for f in h.fields {
            for name in [f.name].iter().chain(f.aliases) {
                assert!(fields.insert(*name), "{}.{name} twice", h.name);
            }
            let text = f.kind.format(f.default);
            assert!(
                f.bits == 0 || f.kind.parse(&text) == Ok(f.default),
                "{}.{}={text}",
                h.name,
                f.name
            );
            assert!(f.bits == 128 || f.default >> f.bits == 0, "{}.{}", h.name, f.name);
            if f.presence == squall_wire::Presence::Always {
                assert!(f.bit + f.bits <= h.min_len * 8, "{}.{}", h.name, f.name);
            }
        }
    }
}

#[test]
fn the_reference_names_every_field() {
    let text = reference();
    for h in headers() {
        assert!(text.contains(&format!("\n## {}", h.name)));
        for f in h.fields {
            assert!(text.contains(&format!("\n| {}", f.name)), "{}.{}", h.name, f.name);
        }
    }
    for p in payloads() {
        assert!(text.contains(p.title));
    }
}

#[test]
fn summaries_read_like_tcpdump() {
    for (text, line) in [
        ("eth/arp", "ARP, Request who-has 198.19.0.1 tell 198.18.0.1, length 28"),
        (
            "eth/vlan(id=5)/mpls(label=9)/ipv4/tcp(flags=PA,options=[mss(1460),nop])/text(abc)",
            "vlan 5, p 0, MPLS (label 9, tc 0, [S], ttl 64) IP 198.18.0.1.49184 > 198.19.0.1.9: \
             Flags [P.], seq 0:3, ack 0, win 8192, options [mss 1460,nop], length 3",
        ),
        (
            "eth/ipv6/icmpv6(id=1,seq=2)",
            "IP6 2001:2::1 > 2001:2::2: ICMP6, echo request, id 1, seq 2, length 8",
        ),
        (
            "eth/ipv4/gre(key=1)/ipv6/udp",
            "IP 198.18.0.1 > 198.19.0.1: GREv0, key=0x1, length 56: IP6 2001:2::1.49184 > \
             2001:2::2.9: UDP, length 0",
        ),
        ("eth/ipv4(frag=10)/udp", "IP 198.18.0.1 > 198.19.0.1: frag 80+8"),
        ("eth/text(a)", "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype 0x88b5, length 60"),
        ("eth/ipv4/udp/truncate(20)", "[|ipv4]"),
    ] {
        assert_eq!(build(text).summary(), line, "{text}");
    }
    let later = Frame::dissect(build("eth/ipv4(frag=10)/hex(00 01 02)").bytes);
    assert_eq!(later.summary(), "IP 198.18.0.1 > 198.19.0.1: frag 80+3");
    assert_eq!(Frame::dissect(vec![1, 2]).summary(), "not Ethernet, length 2");
}
