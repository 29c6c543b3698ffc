//! The output of each operation for the same packets, octet for octet. `BLESS=1` rewrites the
//! files; review the difference in the output of `squall capture` or tcpdump.

use std::path::{Path, PathBuf};

use squall_edit::{Editor, Edits, FixLen, Meta, Vlan, VlanMode, When};
use squall_measure::flow::Link;
use squall_pcap::{CaptureReader, LinkType, PcapFormat, PcapWriter};

use crate::packets::{self, CLIENT, L4, SERVER, Spec};

/// The captured octets, and the length on the wire.
type Packet = (Vec<u8>, u32);

/// Several packets of every kind that edits distinguish.
fn input() -> Vec<Packet> {
    let whole = |octets: Vec<u8>| {
        let len = octets.len() as u32;
        (octets, len)
    };
    let tcp = |seq, ack, flags| L4::Tcp { seq, ack, flags, sack: None };
    let mut packets: Vec<Packet> = Vec::new();
    for v6 in [false, true] {
        let specs = [
            Spec { payload: 0, ..Spec::new(tcp(100, 0, 2)) },
            Spec { payload: 0, answer: true, ..Spec::new(tcp(900, 101, 0x12)) },
            Spec { payload: 1200, ..Spec::new(tcp(101, 901, 0x18)) },
            Spec {
                payload: 0,
                answer: true,
                ..Spec::new(L4::Tcp { seq: 901, ack: 101, flags: 0x10, sack: Some((501, 901)) })
            },
            Spec { ports: (5353, 53), ..Spec::new(L4::Udp) },
            Spec { ports: (5353, 53), answer: true, ..Spec::new(L4::PlainUdp) },
            Spec { payload: 32, ..Spec::new(L4::Icmp) },
        ];
        packets.extend(specs.map(|spec| whole(Spec { v6, ..spec }.frame())));
    }
    packets.push(whole(Spec { tags: 1, ..Spec::new(L4::Udp) }.frame()));
    packets.push(whole(Spec { tags: 2, v6: true, ..Spec::new(L4::Udp) }.frame()));
    packets.push(whole(Spec { tags: 1, mpls: true, ..Spec::new(tcp(7, 8, 0x18)) }.frame()));
    // A duplicate, as a mirror port causes.
    packets.push(packets.last().unwrap().clone());
    // An ARP request in a padded frame.
    let arp =
        [&[0, 1, 8, 0, 6, 4, 0, 1][..], &CLIENT, &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2], &[0; 18]]
            .concat();
    packets.push(whole([&[0xff; 6][..], &CLIENT, &[8, 6], &arp].concat()));
    // A multicast packet with a deliberately wrong checksum.
    let mut group = Spec { ports: (5353, 5353), ..Spec::new(L4::Udp) }.frame();
    group[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 0xfb]);
    group[30..34].copy_from_slice(&[224, 0, 0, 251]);
    packets.push(whole(group));
    // Packets truncated by a snap length.
    for v6 in [false, true] {
        let frame = Spec { v6, payload: 300, ..Spec::new(L4::Udp) }.frame();
        packets.push((frame[..96].to_vec(), frame.len() as u32));
    }
    // A frame that is not IP: LLDP.
    packets.push(whole(
        [&[1, 0x80, 0xc2, 0, 0, 0x0e][..], &SERVER, &[0x88, 0xcc, 2, 7, 4, 0, 0]].concat(),
    ));
    packets
}

/// File names and edits.
fn operations() -> Vec<(&'static str, Edits)> {
    let none = Edits::default;
    let vlan =
        |mode, service| Some(Vlan { mode, tag: Some(42), cfi: Some(1), pri: Some(5), service });
    vec![
        ("packets", Edits { packets: Some("1-3,7,20-".parse().unwrap()), ..none() }),
        (
            "from-to",
            Edits {
                from: Some(When::After(2_000_000_000)),
                to: Some(When::At(1_700_000_005_000_000_000)),
                ..none()
            },
        ),
        ("dedup", Edits { dedup: Some(2), ..none() }),
        ("time-scale", Edits { time_scale: Some("0.25".parse().unwrap()), ..none() }),
        ("time-shift", Edits { time_shift_ns: -1_000_000_001, ..none() }),
        ("efcs", Edits { efcs: true, ..none() }),
        ("unfold", Edits { unfold: true, ..none() }),
        ("dlt-raw", Edits { dlt: Some("raw".parse().unwrap()), ..none() }),
        ("dlt-hdlc", Edits { dlt: Some("hdlc".parse().unwrap()), ..none() }),
        ("dlt-pppserial", Edits { dlt: Some("pppserial".parse().unwrap()), ..none() }),
        ("enet-dmac", Edits { enet_dmac: Some("00:11:22:33:44:55".parse().unwrap()), ..none() }),
        (
            "enet-smac-two",
            Edits {
                enet_smac: Some("00:11:22:33:44:55,00:11:22:33:44:66".parse().unwrap()),
                ..none()
            },
        ),
        (
            "skipl2broadcast",
            Edits {
                enet_dmac: Some("00:11:22:33:44:55".parse().unwrap()),
                skip_l2_broadcast: true,
                ..none()
            },
        ),
        (
            "enet-subsmac",
            Edits {
                enet_subsmac: vec!["02:00:00:00:00:01,aa:bb:cc:dd:ee:ff".parse().unwrap()],
                ..none()
            },
        ),
        ("enet-mac-seed", Edits { enet_mac_seed: Some(5), enet_mac_seed_keep_bytes: 2, ..none() }),
        ("enet-vlan-add", Edits { vlan: vlan(VlanMode::Add, false), ..none() }),
        ("enet-vlan-add-802.1ad", Edits { vlan: vlan(VlanMode::Add, true), ..none() }),
        ("enet-vlan-del", Edits { vlan: vlan(VlanMode::Del, false), ..none() }),
        ("enet-vlan-rewrite", Edits { vlan: vlan(VlanMode::Rewrite, false), ..none() }),
        ("mtu-trunc", Edits { mtu: Some(100), mtu_trunc: true, ..none() }),
        ("fixlen-pad", Edits { fixlen: Some(FixLen::Pad), ..none() }),
        ("fixlen-trunc", Edits { fixlen: Some(FixLen::Trunc), ..none() }),
        ("fixlen-del", Edits { fixlen: Some(FixLen::Del), ..none() }),
        ("truncate", Edits { truncate: Some(90), ..none() }),
        ("pad", Edits { pad: Some(100), ..none() }),
        ("tos", Edits { tos: Some(0xb8), ..none() }),
        ("tclass", Edits { tclass: Some(0xb8), ..none() }),
        ("flowlabel", Edits { flowlabel: Some(0x12345), ..none() }),
        ("ttl", Edits { ttl: Some("7".parse().unwrap()), ..none() }),
        ("ttl-add", Edits { ttl: Some("+200".parse().unwrap()), ..none() }),
        (
            "portmap",
            Edits { portmap: Some("80:8080,5000-6000:7,53:54".parse().unwrap()), ..none() },
        ),
        ("tcp-sequence", Edits { tcp_sequence: Some(9), ..none() }),
        (
            "pnat",
            Edits {
                pnat: vec!["10.0.0.0/8:172.16.0.0/12,[2001:db8::/32]:[fd00::/16]".parse().unwrap()],
                ..none()
            },
        ),
        (
            "pnat-two",
            Edits {
                pnat: vec![
                    "0.0.0.0/0:1.1.1.0/24".parse().unwrap(),
                    "0.0.0.0/0:2.2.2.0/24".parse().unwrap(),
                ],
                ..none()
            },
        ),
        (
            "srcipmap",
            Edits {
                srcipmap: Some("10.0.0.1:9.9.9.9,[::/0]:[fd00::/16]".parse().unwrap()),
                ..none()
            },
        ),
        (
            "dstipmap",
            Edits {
                dstipmap: Some("10.0.0.1:9.9.9.9,[::/0]:[fd00::/16]".parse().unwrap()),
                ..none()
            },
        ),
        ("endpoints", Edits { endpoints: Some("1.1.1.1:2.2.2.2".parse().unwrap()), ..none() }),
        (
            "endpoints-ipv6",
            Edits { endpoints: Some("[fd00::1]:[fd00::2]".parse().unwrap()), ..none() },
        ),
        ("seed", Edits { seed: Some(1), ..none() }),
        ("skipbroadcast", Edits { seed: Some(1), skip_broadcast: true, ..none() }),
        ("anonymize", Edits { anonymize: Some("a secret".parse().unwrap()), ..none() }),
        ("fuzz", Edits { fuzz_seed: Some(3), fuzz_factor: Some(2), ..none() }),
        ("fixcsum", Edits { fixcsum: true, ..none() }),
        ("fragment", Edits { fragment: Some(576), ..none() }),
        ("snaplen", Edits { snaplen: Some(64), ..none() }),
    ]
}

fn run(edits: &Edits, packets: &[Packet]) -> (u16, Vec<(u64, u32, Vec<u8>)>) {
    let mut editor = Editor::new(edits, 1).unwrap();
    let mut out = Vec::new();
    for (number, (octets, wire_len)) in (1..).zip(packets) {
        let time_ns = 1_700_000_000_000_000_000 + (number - 1) * 500_000_001;
        let meta = Meta { time_ns, wire_len: *wire_len, number, side: None };
        editor.edit(octets, meta, &mut |octets, meta| {
            out.push((meta.time_ns, meta.wire_len, octets.to_vec()))
        });
    }
    (editor.link_type(), out)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/edit")
}

#[test]
fn each_operation_gives_its_golden_output() {
    let bless = std::env::var_os("BLESS").is_some();
    let packets = input();
    let mut known: Vec<String> = Vec::new();
    for (name, edits) in std::iter::once(("input", Edits::default())).chain(operations()) {
        let (link_type, out) = run(&edits, &packets);
        let format = PcapFormat { link_type: LinkType(link_type), ..PcapFormat::default() };
        let mut writer = PcapWriter::new(Vec::new(), format).unwrap();
        out.iter().for_each(|(time_ns, wire_len, octets)| {
            writer.write(*time_ns, *wire_len, octets).unwrap()
        });
        let file = writer.finish().unwrap();
        let path = folder().join(format!("{name}.pcap"));
        if bless {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &file).unwrap();
        }
        let golden = std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; BLESS=1 makes it", path.display()));
        if golden != file {
            panic!("{name}: {}", first_difference(&golden, &file));
        }
        known.push(format!("{name}.pcap"));
        assert!(
            name == "input" || golden != std::fs::read(folder().join("input.pcap")).unwrap(),
            "{name} does nothing"
        );
    }
    let there = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let strange: Vec<_> = there.filter(|name| !known.contains(name)).collect();
    assert!(strange.is_empty(), "of no operation: {strange:?}");
}

/// Describes the first packet that differs, in hexadecimal.
fn first_difference(golden: &[u8], made: &[u8]) -> String {
    let read = |file: &[u8]| {
        let mut reader = CaptureReader::from_read(file).unwrap();
        let mut packets = Vec::new();
        while let Some(packet) = reader.next().unwrap() {
            packets.push((packet.time_ns, packet.wire_len, packet.data.to_vec()));
        }
        packets
    };
    let (golden, made) = (read(golden), read(made));
    let at = golden.iter().zip(&made).position(|(a, b)| a != b);
    match at {
        Some(at) => format!("packet {}:\n{:02x?}\nnow\n{:02x?}", at + 1, golden[at], made[at]),
        None => format!("{} packets, now {}", golden.len(), made.len()),
    }
}

#[test]
fn edited_whole_packets_have_correct_checksums() {
    // All checksums are correct, except for those of the last five packets, which were wrong or
    // truncated.
    let mut packets = input();
    packets.truncate(packets.len() - 5);
    for (name, edits) in operations() {
        if matches!(name, "fragment" | "snaplen" | "efcs") || name.starts_with("dlt") {
            continue;
        }
        for (at, (_, _, octets)) in run(&edits, &packets).1.iter().enumerate() {
            assert_eq!(packets::wrong(octets, Link::Ethernet), None, "{name}, packet {}", at + 1);
        }
    }
}
