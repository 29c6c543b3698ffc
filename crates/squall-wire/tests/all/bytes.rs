//! The octets of each header. tshark reads all of these without a complaint, and verifies
//! checksums. Plain UDP and TCP, IP in IP and the fragment header were also compared with scapy's.

use squall_wire::{Frame, Packet};

fn build(text: &str) -> Frame {
    let packet = Packet::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    packet.build(None, &|path| Err(std::io::Error::other(path.to_string())), 0).unwrap()
}

/// Compares the octets after the addresses of the outermost Ethernet header, without the trailer.
fn assert_octets(text: &str, expected: &str) {
    let frame = build(text);
    let hex = |octets: &[u8]| octets.iter().map(|o| format!("{o:02x}")).collect::<String>();
    assert_eq!(hex(&frame.bytes[..12]), "020000000002020000000001");
    let counted = frame.bytes.len() - frame.trailer;
    assert_eq!(
        hex(&frame.bytes[12..counted]),
        expected.split_whitespace().collect::<String>(),
        "{text}"
    );
    assert!(frame.bytes[counted..].iter().all(|&o| o == 0));
}

#[test]
fn udp_over_ipv4() {
    assert_octets("eth/ipv4/udp", "0800 4500001c000000004011eea9c6120001c6130001 c02000090008b38c");
    assert_octets(
        "eth/vlan(id=5,pcp=3)/ip(dscp=ef,ecn=ce)/udp(dport=5300)/text(hello)",
        "8100 6005 0800 45bb0021000000004011ede9c6120001c6130001 c02014b4000d5b05 68656c6c6f",
    );
}

#[test]
fn tcp_with_options_after_two_tags() {
    assert_octets(
        "eth/vlan(id=5)/vlan(id=6)/ipv4/tcp(flags=SA,ack=77,options=[mss(1460),sackok,timestamp(1,\
         2),nop,wscale(7)])",
        "88a8 0005 8100 0006 0800 4500003c000000004006ee94c6120001c6130001
         c0200009000000000000004da0122000db4e0000 020405b4 0402 080a0000000100000002 01 030307",
    );
}

#[test]
fn mpls_stacks_and_arp() {
    assert_octets(
        "eth/mpls(label=100)/mpls(label=200,tc=3)/ipv4/udp",
        "8847 00064040 000c8740 4500001c000000004011eea9c6120001c6130001 c02000090008b38c",
    );
    assert_octets(
        "eth/arp(op=reply,tha=02:00:00:00:00:09)",
        "0806 0001080006040002 020000000001c6120001 020000000009c6130001",
    );
}

#[test]
fn ipv4_options_are_padded() {
    assert_octets(
        "eth/ipv4(options=[rr(3),nop])/icmp(id=7,seq=9)/hex(0001)",
        "0800 4900002e000000004001df97c6120001c6130001 070f04000000000000000000000000 01 \
         0800f7ee00070009 0001",
    );
    assert_octets(
        "eth(dst=02:00:00:00:00:02)/ipv4(ttl=64,dst=198.19.0.1,options=[router-alert])/\
         igmp(group=224.0.0.251)",
        "0800 46000020000000004002 59b0 c6120001c6130001 94040000 16000904e00000fb",
    );
}

#[test]
fn ipv6_with_extension_headers() {
    let addresses = "20010002000000000000000000000001 20010002000000000000000000000002";
    assert_octets(
        "eth/ipv6(tc=0xb8,fl=0x12345)/udp/text(hello)",
        &format!("86dd 6b812345000d1140 {addresses} c0200009000dbbcf 68656c6c6f"),
    );
    assert_octets(
        "eth/ipv6(hop_limit=64)/hopopts(options=router-alert)/icmpv6(type=mld-report,\
         target=ff02::1:3)",
        &format!(
            "86dd 6000000000200040 {addresses} 3a00050200000100 83003d9d00000000 \
             ff020000000000000000000000010003"
        ),
    );
    assert_octets(
        "eth/ipv6/routing(segments_left=1,addresses=[2001:2::7,2001:2::8])/udp/text(abc)",
        &format!(
            "86dd 6000000000332b40 {addresses} 1104040101000000 20010002000000000000000000000007
             20010002000000000000000000000008 c0200009000b3b3e 616263"
        ),
    );
    assert_octets(
        "eth/ipv6/fragment(id=7)/udp/text(abc)",
        &format!("86dd 6000000000132c40 {addresses} 1100000000000007 c0200009000b3b43 616263"),
    );
}

#[test]
fn icmpv6_neighbor_solicitation() {
    let frame = build("eth/ipv6/icmpv6(target=fe80::1)/hex(0101020000000001)");
    assert_eq!(&frame.bytes[54..58], [0x87, 0, 0x37, 0x18]);
    assert_eq!((frame.payload, frame.bytes.len()), (78, 86));
}

#[test]
fn gre_with_checksum_key_and_sequence() {
    assert_octets(
        "eth/ipv4/gre(key=0x1234,seq=5,checksum=auto)/ipv6/udp/text(abcde)",
        "0800 4500005900000000402fee4ec6120001c6130001 b00086dd45b900000000123400000005
         60000000000d1140 20010002000000000000000000000001 20010002000000000000000000000002 \
         c0200009000dd5da 6162636465",
    );
}

#[test]
fn tunnels_over_udp_have_no_outer_checksum_over_ipv4_and_one_over_ipv6() {
    assert_octets(
        "eth/ipv4/udp/vxlan(vni=77)/eth/ipv4/tcp(flags=PA)/text(abc)",
        "0800 4500005d000000004011ee68c6120001c6130001 c02012b500490000 0800000000004d00
         020000000002020000000001 0800 4500002b000000004006eea5c6120001c6130001 \
         c02000090000000000000000501820007f150000 616263",
    );
    assert_octets(
        "eth/ipv4/udp/gtpu(teid=0xcafe)/ipv4/udp/text(abc)",
        "0800 45000043000000004011ee82c6120001c6130001 c0200868002f0000 30ff001f0000cafe
         4500001f000000004011eea6c6120001c6130001 c0200009000bef23 616263",
    );
    let frame = build("eth/ipv6/udp/vxlan(vni=77)/eth/vlan/ipv6/icmpv6");
    assert_eq!(&frame.bytes[54..62], [0xc0, 0x20, 0x12, 0xb5, 0, 0x52, 0xf1, 0x82]);
    let listed = |text: &str| build(text).checksums.iter().map(|c| c.at).collect::<Vec<_>>();
    assert_eq!(listed("eth/ipv4/udp/gtpu/ipv4/udp"), [76, 60, 24]);
    assert_eq!(listed("eth/ipv4/udp(checksum=auto)/gtpu/ipv4/udp"), [76, 60, 40, 24]);
}

#[test]
fn ip_in_ip_6in4_and_4in6() {
    assert_octets(
        "eth/ipv4/ipv4/udp",
        "0800 45000030000000004004eea2c6120001c6130001 4500001c000000004011eea9c6120001c6130001 \
         c02000090008b38c",
    );
    assert_octets(
        "eth/ipv4/ipv6/udp",
        "0800 45000044000000004029ee69c6120001c6130001 6000000000081140 \
         20010002000000000000000000000001
         20010002000000000000000000000002 c02000090008ffab",
    );
    assert_eq!(build("eth/ipv6/ipv4/tcp").bytes[20], 4);
}
