//! Properties that hold for any packet and any octets.

use proptest::prelude::*;
use squall_wire::{Frame, Packet, checksum};

fn no_files(path: &str) -> std::io::Result<Vec<u8>> {
    panic!("{path} is not to be read")
}

/// Checks the contract of `ChecksumField`, as documented.
fn assert_contract(frame: &Frame) {
    let bytes = &frame.bytes;
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    for l in &frame.lengths {
        assert_eq!(usize::from(word(l.at)), bytes.len() - l.from, "{l:?}");
    }
    for c in &frame.checksums {
        let end = c.to.unwrap_or(bytes.len() - frame.trailer);
        let mut copy = bytes.clone();
        copy[c.at..c.at + 2].fill(0);
        let mut sum = checksum::sum(&copy[c.from..end]);
        for p in &c.pseudo {
            assert!(p.start.abs_diff(c.from).is_multiple_of(2));
            sum += checksum::sum(&copy[p.clone()]);
        }
        if let Some(protocol) = c.protocol {
            sum += u64::from(protocol) + (end - c.from) as u64;
        }
        let mut value = !checksum::fold(sum);
        if value == 0 && c.kind == squall_wire::ChecksumKind::Udp {
            value = 0xffff;
        }
        assert_eq!(value, word(c.at), "{c:?} in {}", frame.names());
    }
    assert!(frame.payload + frame.trailer <= bytes.len() || frame.payload <= bytes.len());
    for l in &frame.layers {
        assert!(l.offset + l.len <= bytes.len());
    }
}

/// Valid stacks of headers, with some fields set.
fn packets() -> impl Strategy<Value = String> {
    let vlan = prop_oneof![
        Just(String::new()),
        (0..4096u32, 0..8u32).prop_map(|(id, pcp)| format!("/vlan(id={id},pcp={pcp})")),
        Just("/vlan(id=5)/vlan(id=6,dei=1)".into()),
        Just("/mpls/mpls(label=99,ttl=3)".into()),
        Just("/mpls(label=99)/eth/vlan".into()),
        // These addresses begin as IP headers do.
        Just("/mpls/eth(dst=46:11:22:33:44:55)".into()),
        Just("/mpls/eth(dst=6e:11:22:33:44:55)".into()),
        Just("/vlan(tpid=dot1ad)/mpls".into()),
    ];
    let v4 =
        (any::<u32>(), any::<u32>(), any::<u8>(), 0..4).prop_map(|(src, dst, ttl, options)| {
            let options =
                ["", ",options=router-alert", ",options=[rr(3),nop]", ",options=[hex(8604abcd)]"]
                    [options as usize];
            format!("/ipv4(src={src},dst={dst},ttl={ttl},flags=DF{options})")
        });
    let v6 = (any::<u128>(), any::<u128>(), 0..7).prop_map(|(src, dst, ext)| {
        let ext = [
            "",
            "/hopopts(options=router-alert)",
            "/dstopts(options=[padn(9),pad1])",
            "/routing(addresses=[2001:2::7,2001:2::8],segments_left=1)",
            "/routing(type=rh0,addresses=[2001:2::7,2001:2::8],segments_left=2)/fragment(id=7,m=1)",
            "/fragment",
            "/hopopts/dstopts/routing/dstopts",
        ][ext as usize];
        format!("/ipv6(src={src},dst={dst}){ext}")
    });
    let ip = prop_oneof![v4, v6];
    let tunnel = prop_oneof![
        4 => Just("".to_string()),
        1 => Just("/gre/ipv6".into()),
        1 => any::<u32>().prop_map(|k| format!("/gre(key={k},checksum=auto,seq=9)/ipv4")),
        1 => Just("/gre/eth/ipv4".into()),
        1 => any::<u32>().prop_map(|t| format!("/udp/gtpu(teid={t})/ipv4")),
        1 => Just("/udp(checksum=auto)/gtpu(seq=4)/ipv6".into()),
        1 => (0..1u32 << 24).prop_map(|v| format!("/udp/vxlan(vni={v})/eth/vlan/ipv4")),
        1 => Just("/udp(checksum=auto)/vxlan/eth/ipv6".into()),
        1 => Just("/ipv4".into()),
        1 => Just("/ipv6".into()),
    ];
    let end = prop_oneof![
        4 => (any::<u16>(), any::<u16>()).prop_map(|(s, d)| format!("/udp(sport={s},dport={})", d | 1)),
        4 => any::<u32>().prop_map(|s| format!("/tcp(seq={s},flags=SA,options=[mss(1460),nop,wscale(7),sackok,timestamp(1,2)])")),
        1 => Just("/icmp".to_string()),
        1 => Just("/icmpv6".into()),
        1 => Just("/icmpv6(target=fe80::1)".into()),
        1 => Just("/igmp(group=224.0.0.9)".into()),
        1 => Just("".into()),
    ];
    let payload = prop_oneof![
        Just("".to_string()),
        proptest::collection::vec(any::<char>(), 0..40).prop_map(|t| {
            let text: String = t
                .into_iter()
                .map(|c| match c {
                    '"' | '\\' => format!("\\{c}"),
                    c => c.into(),
                })
                .collect();
            format!("/text(\"{text}\")")
        }),
        proptest::collection::vec(any::<u8>(), 1..40).prop_map(|o| {
            format!("/pattern({})", o.iter().map(|o| format!("{o:02x}")).collect::<String>())
        }),
        Just("/random".into()),
        (0..100u8).prop_map(|n| format!("/zeros({n})/inc")),
        (0..100u8).prop_map(|n| format!("/random({n})/hex(00 01 02)")),
    ];
    (vlan, ip, tunnel, end, payload)
        .prop_map(|(vlan, ip, tunnel, end, payload)| format!("eth{vlan}{ip}{tunnel}{end}{payload}"))
}

proptest! {
    #[test]
    fn listed_lengths_and_checksums_are_correct_at_any_length(text in packets(), len in 0..2000usize, seed: u64) {
        let packet = Packet::parse(&text).unwrap();
        let natural = packet.build(None, &no_files, seed).unwrap();
        assert_contract(&natural);
        let len = len.max(natural.payload);
        let frame = packet.build(Some(len), &no_files, seed).unwrap();
        prop_assert_eq!((frame.bytes.len(), frame.trailer), (len, 0));
        assert_contract(&frame);
    }

    #[test]
    fn built_layers_are_dissected(text in packets(), len in 0..300usize) {
        let packet = Packet::parse(&text).unwrap();
        let natural = packet.build(None, &no_files, 1).unwrap();
        for frame in [packet.build(Some(natural.payload + len), &no_files, 1).unwrap(), natural] {
            let found = Frame::dissect(frame.bytes.clone());
            assert_contract(&found);
            // Payload may happen to look like a further header.
            let n = frame.layers.len();
            prop_assert!(found.layers.len() >= n, "{} in {}", found.names(), text);
            for (a, b) in frame.layers.iter().zip(&found.layers) {
                prop_assert_eq!((a.header.name, a.offset), (b.header.name, b.offset));
                // Octets after neighbor discovery may happen to look like its options.
                let as_long = if a.header.name == "icmpv6" { b.len >= a.len } else { b.len == a.len };
                prop_assert!(as_long, "{} octets of {} in {}", b.len, b.header.name, text);
            }
            if found.layers.len() == n && found.payload == frame.payload {
                prop_assert_eq!(&found.lengths, &frame.lengths);
                prop_assert_eq!(&found.checksums, &frame.checksums);
            }
        }
    }

    #[test]
    fn a_printed_packet_reads_back(text in packets()) {
        let packet = Packet::parse(&text).unwrap();
        let printed = packet.to_string();
        prop_assert_eq!(Packet::parse(&printed), Ok(packet), "{}", printed);
    }

    #[test]
    fn any_text_is_a_packet_or_a_mistake_in_it(text in "\\PC{0,60}|[a-z0-9/(),=.:\"\\[\\] |x-]{0,60}") {
        if let Err(e) = Packet::parse(&text) {
            prop_assert!(text.get(e.at).is_some());
            prop_assert!(!e.hint.is_empty());
        }
    }

    #[test]
    fn mutilated_packet_text_never_panics(text in packets(), cut: prop::sample::Index, drop in 0..9usize) {
        let chars: Vec<char> = text.chars().collect();
        let at = cut.index(chars.len());
        let text: String = chars[..at].iter().chain(&chars[(at + drop).min(chars.len())..]).collect();
        match Packet::parse(&text) {
            Ok(packet) => { let _ = packet.build(None, &no_files, 0).map(|f| assert_contract(&f)); }
            Err(e) => prop_assert!(text.get(e.at).is_some()),
        }
    }

    #[test]
    fn any_octets_dissect(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let frame = Frame::dissect(octets.clone());
        assert_contract(&frame);
        prop_assert_eq!(&frame.bytes, &octets);
        frame.summary();
    }

    #[test]
    fn changed_and_cut_frames_dissect(text in packets(), at: prop::sample::Index, octet: u8, cut: prop::sample::Index) {
        let mut bytes = Packet::parse(&text).unwrap().build(None, &no_files, 1).unwrap().bytes;
        let (at, cut) = (at.index(bytes.len()), cut.index(bytes.len()));
        bytes[at] = octet;
        let whole = Frame::dissect(bytes.clone());
        assert_contract(&whole);
        whole.summary();
        bytes.truncate(cut);
        let part = Frame::dissect(bytes);
        assert_contract(&part);
        part.summary();
    }

    #[test]
    fn a_dissected_frame_resized_is_the_packet_built_at_that_length(text in packets(), len in 0..1500usize) {
        let packet = Packet::parse(&text).unwrap();
        let natural = packet.build(None, &no_files, 1).unwrap();
        let mut frame = Frame::dissect(natural.bytes.clone());
        prop_assume!(frame.layers.len() == natural.layers.len());
        let len = len.max(natural.payload).max(natural.bytes.len() - natural.trailer);
        if len != natural.bytes.len() {
            frame.resize(len).unwrap();
            assert_contract(&frame);
            prop_assert_eq!(&frame.lengths, &packet.build(Some(len), &no_files, 1).unwrap().lengths);
        }
    }

    #[test]
    fn a_payload_is_the_beginning_of_a_longer_one(text in packets(), a in 0..500usize, b in 0..500usize) {
        let packet = Packet::parse(&text).unwrap();
        let start = packet.build(None, &no_files, 1).unwrap().payload;
        let (a, b) = (a.min(b), a.max(b));
        let short = packet.build(Some(start + a), &no_files, 7).unwrap();
        let long = packet.build(Some(start + b), &no_files, 7).unwrap();
        prop_assert_eq!(&short.bytes[start..], &long.bytes[start..start + a]);
    }
}

/// Ethernet frames up to the start of each protocol that summaries describe.
fn fronts() -> Vec<Vec<u8>> {
    let eth = |ethertype: u16| [&[0; 12][..], &ethertype.to_be_bytes()].concat();
    let ip = |protocol: u8| {
        let header = [0x45, 0, 0, 220, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [eth(0x0800), header.to_vec()].concat()
    };
    let udp =
        |port: u16| [ip(17), port.to_be_bytes().to_vec(), vec![0x30, 0x39, 0, 200, 0, 0]].concat();
    let tcp = [ip(6), vec![0, 80, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let ethertypes = [
        0, 40, 1500, 0x8100, 0x8809, 0x8863, 0x8864, 0x888e, 0x88cc, 0x88f7, 0x8808, 0x9000,
        0x0806, 0x86dd,
    ];
    let llc = [
        &[0x42, 0x42, 3][..],
        &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0],
        &[0xaa, 0xaa, 3, 0, 0, 0],
        &[0xfe, 0xfe, 3],
    ];
    let mut all: Vec<_> = ethertypes.map(eth).to_vec();
    all.extend([1, 2, 6, 50, 51, 58, 89, 103, 112, 132].map(ip));
    all.extend([53, 5353, 67, 68, 123, 546, 4789, 2152].map(udp));
    all.extend(llc.map(|front| [eth(100), front.to_vec()].concat()));
    all.push(tcp);
    all
}

proptest! {
    #[test]
    fn any_octets_of_any_link_have_a_line(
        front in proptest::sample::select(fronts()),
        rest in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xc0), any::<u8>()], 0..240),
        link in prop_oneof![
            Just(0u16), Just(6), Just(9), Just(10), Just(50), Just(51), Just(101), Just(104), Just(105), Just(107), Just(108), Just(109),
            Just(113), Just(117), Just(122), Just(127), Just(204), Just(228), Just(239), Just(242), Just(276), any::<u16>()
        ],
        more in 0..3_000usize,
    ) {
        let frame = [front, rest.clone()].concat();
        for octets in [&frame[..], &rest] {
            let line = squall_wire::summary(1, octets, octets.len() + more);
            prop_assert!(!line.is_empty() && !line.contains('\n'), "{}", line);
            for link in [link, 1] {
                let _ = (squall_wire::summary(link, octets, octets.len()), squall_wire::summary(link, octets, 0));
                let frame = Frame::dissect_link(link, octets.to_vec());
                prop_assert_eq!(&frame.bytes[..], octets);
                frame.summary();
                if let Ok(ethernet) = squall_wire::link::to_ethernet(link, octets) {
                    prop_assert!(ethernet.len() <= octets.len() + 14);
                }
            }
        }
    }
}
