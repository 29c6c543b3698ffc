//! Captures in all variants of both formats, given as octets; and damaged files.

use std::io::{self, Read};

use proptest::{collection::vec, prelude::*};
use squall_pcap::*;

use crate::octets::Order::{self, Big, Little};

/// 2023-11-14 22:13:20 UTC.
const S: u32 = 1_700_000_000;
const S_NS: u64 = 1_700_000_000_000_000_000;

#[derive(Clone, Debug, PartialEq)]
struct Owned {
    time_ns: u64,
    wire_len: u32,
    link_type: LinkType,
    interface: u32,
    data: Vec<u8>,
}

/// All packets up to the end or the first error.
fn read(file: impl Read) -> (Vec<Owned>, Option<CaptureError>) {
    let mut packets = Vec::new();
    let mut reader = match CaptureReader::from_read(file) {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(error)),
    };
    let error = loop {
        match reader.next() {
            Ok(Some(Packet { time_ns, wire_len, link_type, interface, number, data, .. })) => {
                assert_eq!(number, packets.len() as u64 + 1);
                assert!(data.len() <= wire_len as usize);
                packets.push(Owned {
                    time_ns,
                    wire_len,
                    link_type,
                    interface,
                    data: data.to_vec(),
                });
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(reader.next(), Ok(None)), "nothing comes after the end");
    (packets, error)
}

fn whole(file: &[u8]) -> Vec<Owned> {
    let (packets, error) = read(file);
    assert!(error.is_none(), "{}", error.unwrap());
    packets
}

fn fault(file: &[u8]) -> String {
    read(file).1.expect("a fault").to_string()
}

/// A pipe that returns a few octets per read, and whose reads are sometimes interrupted.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1 * 5 % 23 + 1;
        if self.1.is_multiple_of(7) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let n = self.1.min(buf.len());
        (&mut self.0).take(n as u64).read(buf)
    }
}

// ---- pcap

#[test]
fn each_magic_in_each_endian_gives_the_same_packet() {
    for order in [Little, Big] {
        for (magic, ns, extra) in
            [(0xa1b2_c3d4, 5_000, 0), (0xa1b2_3c4d, 5, 0), (0xa1b2_cd34, 5_000, 8)]
        {
            let record = [order.u32s(&[S, 5, 3, 60]), vec![0xee; extra], vec![1, 2, 3]].concat();
            let file = [order.pcap(magic, 4, 1), record.clone(), record].concat();
            let packet = Owned {
                time_ns: S_NS + ns,
                wire_len: 60,
                link_type: LinkType::ETHERNET,
                interface: 0,
                data: vec![1, 2, 3],
            };
            assert_eq!(whole(&file), [packet.clone(), packet], "{magic:x}");
        }
    }
}

#[test]
fn lengths_of_old_versions_are_swapped_back() {
    for (minor, lengths) in [(2, [60, 3]), (3, [60, 3]), (3, [3, 60]), (4, [3, 60])] {
        let file = [
            Little.pcap(0xa1b2_c3d4, minor, 1),
            Little.u32s(&[S, 0]),
            Little.u32s(&lengths),
            vec![9; 3],
        ];
        let packets = whole(&file.concat());
        assert_eq!((packets[0].wire_len, packets[0].data.len()), (60, 3), "2.{minor} {lengths:?}");
    }
}

#[test]
fn a_captured_fcs_is_cut_off() {
    // FCS length 2 x 16 bits, and its valid bit.
    let header = Little.pcap(0xa1b2_c3d4, 4, 0x2400_0001);
    for (captured, kept) in [(64, 60), (62, 60), (60, 60), (20, 20)] {
        let file = [header.clone(), Little.u32s(&[S, 0, captured, 64]), vec![7; captured as usize]]
            .concat();
        let packet = &whole(&file)[0];
        assert_eq!(
            (packet.data.len(), packet.wire_len, packet.link_type),
            (kept, 60, LinkType::ETHERNET)
        );
    }
    let tiny = [header, Little.u32s(&[S, 0, 3, 3]), vec![7; 3]].concat();
    assert_eq!((whole(&tiny)[0].wire_len, whole(&tiny)[0].data.len()), (0, 0));
}

#[test]
fn headers_of_zeros_are_packets_of_no_octets_where_packets_follow() {
    let packet = [Little.u32s(&[S, 0, 4, 4]), vec![1; 4]].concat();
    let file = |zeros: usize, after: &[u8]| {
        [Little.pcap(0xa1b2_c3d4, 4, 1), packet.clone(), vec![0; zeros], after.to_vec()].concat()
    };
    for headers in [1, 2, 31, 255] {
        for after in [&packet[..], &packet.repeat(5), &[], &[0; 9]] {
            let (packets, error) = read(file(16 * headers, after).as_slice());
            let cut = after == [0; 9];
            assert_eq!(
                packets.len(),
                1 + headers + after.len() / packet.len(),
                "{headers} {after:?} {error:?}"
            );
            assert_eq!(error.is_some(), cut, "{error:?}");
            assert_eq!((packets[1].wire_len, packets[1].time_ns), (0, 0));
        }
    }
    // A hole ends at any octet, and has a page or more.
    for (zeros, after) in [(16, &[7; 99][..]), (40, &packet), (4096, &packet), (1 << 20, &[])] {
        let (packets, error) = read(file(zeros, after).as_slice());
        let error = error.expect("a hole");
        assert!(matches!(error.fault, Fault::Hole), "{error}");
        assert_eq!((packets.len(), error.offset), (1, 44), "{zeros}");
    }
}

#[test]
fn absurd_lengths_are_refused_with_their_place() {
    let good = [Little.u32s(&[S, 0, 4, 4]), vec![1; 4]].concat();
    let file =
        [Little.pcap(0xa1b2_c3d4, 4, 1), good, Little.u32s(&[S, 0, u32::MAX, 60]), vec![1; 99]]
            .concat();
    let (packets, error) = read(file.as_slice());
    assert_eq!((packets.len(), error.as_ref().unwrap().offset), (1, 44));
    let message = error.unwrap().to_string();
    assert!(
        message.contains(
            "at octet 44, after packet 1: a packet of 4294967295 octets; expected at most 262144"
        ),
        "{message}"
    );
}

#[test]
fn a_packet_larger_than_the_buffer_is_read_whole() {
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut writer =
        PcapWriter::new(Vec::new(), PcapFormat { snaplen: 1 << 20, ..PcapFormat::default() })
            .unwrap();
    for _ in 0..3 {
        writer.write(S_NS, data.len() as u32, &data).unwrap();
        writer.write(S_NS, 3, &[1, 2, 3]).unwrap();
    }
    let packets = whole(&writer.finish().unwrap());
    assert_eq!(packets.len(), 6);
    assert!(packets[4].data == data && packets[5].data == [1, 2, 3]);
}

// ---- pcapng

#[test]
fn sections_of_both_endians_with_interfaces_of_their_own_are_read_in_turn() {
    let ns = |order: Order| order.option(9, &[9]);
    let file = [
        Big.section(),
        Big.interface(1, 0, &[]),
        Big.interface(101, 96, &[Big.option(2, b"tun0"), ns(Big), Big.option(0, &[])].concat()),
        Big.packet(0, u64::from(S) * 1_000_000 + 7, 60, &[1; 5], &[]),
        Big.packet(1, S_NS + 7, 1_500, &[2; 96], &[]),
        Little.section(),
        Little.interface(113, 0, &ns(Little)),
        Little.block(0x0bad, &[0; 1_000]),
        Little.packet(0, S_NS + 9, 44, &[3; 44], &[]),
        Little.block(
            5,
            &[Little.u32s(&[0, 0, 0]), Little.option(5, &[9, 0, 0, 0, 0, 0, 0, 0])].concat(),
        ),
    ]
    .concat();
    let packets = whole(&file);
    let expected = [
        (0, LinkType::ETHERNET, 7_000, 60, 5),
        (1, LinkType::RAW, 7, 1_500, 96),
        (2, LinkType::LINUX_SLL, 9, 44, 44),
    ];
    for (packet, (interface, link_type, ns, wire_len, captured)) in packets.iter().zip(expected) {
        assert_eq!(
            (packet.interface, packet.link_type, packet.time_ns),
            (interface, link_type, S_NS + ns)
        );
        assert_eq!((packet.wire_len, packet.data.len()), (wire_len, captured));
    }
    assert_eq!(packets.len(), 3);

    let mut reader = CaptureReader::from_read(file.as_slice()).unwrap();
    while reader.next().unwrap().is_some() {}
    assert_eq!(reader.interfaces()[1].name.as_deref(), Some("tun0"));
    assert_eq!(
        (reader.interfaces()[1].snaplen, reader.interfaces()[2].dropped_by_interface),
        (96, Some(9))
    );
    assert_eq!((reader.packets(), reader.offset()), (3, file.len() as u64));
}

#[test]
fn time_resolutions_and_offsets_come_out_in_nanoseconds() {
    let time = |options: &[u8], ticks: u64| {
        let file = [
            Little.section(),
            Little.interface(1, 0, options),
            Little.packet(0, ticks, 4, &[0; 4], &[]),
        ];
        whole(&file.concat())[0].time_ns
    };
    let resolution = |r: u8| Little.option(9, &[r]);
    assert_eq!(time(&[], 1_000_001), 1_000_001_000);
    assert_eq!(time(&resolution(0), S.into()), S_NS);
    assert_eq!(time(&resolution(3), 1_001), 1_001_000_000);
    assert_eq!(time(&resolution(9), S_NS + 1), S_NS + 1);
    assert_eq!(time(&resolution(12), 1_999), 1);
    assert_eq!(time(&resolution(127), u64::MAX), 0);
    assert_eq!(time(&resolution(0x80 | 10), 1_536), 1_500_000_000);
    assert_eq!(time(&resolution(0xff), u64::MAX), 0);
    let offset = |seconds: i64| [resolution(9), Little.option(14, &seconds.to_le_bytes())].concat();
    assert_eq!(time(&offset(S.into()), 5), S_NS + 5);
    assert_eq!(time(&offset(-2), 3_000_000_000), 1_000_000_000);
    // Values out of range are clamped.
    assert_eq!(time(&offset(-2), 1), 0);
    assert_eq!((time(&offset(i64::MAX), 1), time(&resolution(0), u64::MAX)), (u64::MAX, u64::MAX));
    assert_eq!(time(&offset(i64::MIN), u64::MAX), 0);
}

#[test]
fn simple_and_obsolete_packets_are_read() {
    for order in [Little, Big] {
        let obsolete =
            [order.u16(0), order.u16(3), order.u32s(&[0, 8, 5, 60]), vec![4; 5]].concat();
        let file = [
            order.section(),
            order.interface(1, 10, &[]),
            order.block(3, &[order.u32(60), vec![5; 10]].concat()),
            order.block(3, &[order.u32(6), vec![6; 6]].concat()),
            order.block(2, &obsolete),
            order.block(3, &[order.u32(6), vec![6; 6]].concat()),
        ];
        let found: Vec<_> =
            whole(&file.concat()).into_iter().map(|p| (p.time_ns, p.wire_len, p.data)).collect();
        assert_eq!(
            found,
            [
                (0, 60, vec![5; 10]),
                (0, 6, vec![6; 6]),
                (8_000, 60, vec![4; 5]),
                // A simple packet has no timestamp, so it gets that of the preceding packet.
                (8_000, 6, vec![6; 6])
            ]
        );
    }
}

#[test]
fn an_fcs_by_interface_or_by_packet_is_cut_off() {
    let flags = |bits: u32| Little.option(2, &bits.to_le_bytes());
    let file = [
        Little.section(),
        Little.interface(1, 0, &Little.option(13, &[4])),
        Little.interface(1, 0, &[]),
        Little.packet(0, 0, 64, &[0; 64], &[]),
        Little.packet(0, 0, 64, &[0; 64], &flags(2 << 5)),
        Little.packet(1, 0, 64, &[0; 64], &[flags(4 << 5), Little.option(0, &[])].concat()),
        Little.packet(1, 0, 64, &[0; 64], &flags(1)),
    ];
    assert_eq!(
        whole(&file.concat()).iter().map(|p| p.data.len()).collect::<Vec<_>>(),
        [60, 62, 60, 64]
    );
}

#[test]
fn faults_of_blocks_have_place_and_reason() {
    let begin = [Little.section(), Little.interface(1, 0, &[])].concat();
    let with = |block: Vec<u8>| fault(&[begin.clone(), block].concat());
    let packet = Little.packet(0, 0, 60, &[0; 60], &[]);
    let changed = |at: usize, value: u32| {
        let mut packet = packet.clone();
        packet[at..at + 4].copy_from_slice(&value.to_le_bytes());
        with(packet)
    };
    for (message, expected) in [
        (changed(4, 0), "at octet 48: a block of 0 octets; expected a multiple of 4, at least 12"),
        (changed(4, 93), "a block of 93 octets; expected a multiple of 4"),
        (changed(4, u32::MAX - 3), "a packet block of 4294967292 octets; expected at most"),
        (changed(4, 28), "a block of 28 octets; expected 60, the length at its end"),
        (changed(8, 1), "a packet of interface 1, but the file describes only 1"),
        (changed(8, u32::MAX), "a packet of interface 4294967295"),
        (changed(20, 61), "a packet of 61 octets; expected at most 60, the room in its block"),
        (changed(20, u32::MAX), "a packet of 4294967295 octets"),
        (changed(88, 7), "a block of 92 octets; expected 7, the length at its end"),
        (with(Little.block(6, &[0; 16])), "a packet block of 28 octets; expected at least 32"),
        (
            with(Little.block(1, &[0; 4])),
            "an interface description of 16 octets; expected at least 20",
        ),
        (
            with(Little.u32s(&[99, u32::MAX - 3, 1, 2])),
            "a block of 4294967292 octets; expected at most 17825792",
        ),
        (
            with(Little.u32s(&[99, 1 << 20, 1, 2])),
            "inside a block: 1048576 octets expected, 16 found",
        ),
        (
            with(Little.u32s(&[0x0a0d_0d0a, 28, 5, 0, 0, 0, 28])),
            "at octet 48: a section with the byte-order magic 0x0500",
        ),
    ] {
        assert!(message.contains(expected), "{message}\n{expected}");
    }
}

// ---- files in neither format, and properties of both formats

#[test]
fn files_that_are_no_captures_are_named() {
    assert!(fault(b"").contains("the file is empty"));
    assert!(fault(b"\xa1\xb2").contains("inside the magic number: 4 octets expected, 2 found"));
    assert!(fault(b"PK\x03\x04....").contains("begins with 0x504b0304; expected the magic number"));
    assert!(
        fault(&Little.pcap(0xa1b2_c3d4, 4, 1)[..23])
            .contains("inside the file header: 24 octets expected, 23 found")
    );
    assert!(
        fault(&[&Little.u32(0xa1b2_c3d4)[..], &[9; 20]].concat())
            .contains("version 2313.2313 of pcap; expected")
    );
    let message = CaptureReader::open("/no/such.pcap").err().unwrap().to_string();
    assert!(message.starts_with("cannot read /no/such.pcap: there is no such file"), "{message}");
}

#[test]
fn a_frame_is_fetched_by_its_number() {
    let path =
        std::env::temp_dir().join(format!("squall-frame-number-{}.pcap", std::process::id()));
    let mut writer = PcapWriter::create(&path, PcapFormat::default()).unwrap();
    for n in 1..=3u8 {
        writer.write(S_NS + u64::from(n), 60, &[n; 40]).unwrap();
    }
    writer.finish().unwrap();
    let frame = frame_number(&path, 3).unwrap();
    assert_eq!((frame.time_ns, frame.wire_len, frame.data), (S_NS + 3, 60, vec![3; 40]));
    for number in [0, 4] {
        let message = frame_number(&path, number).unwrap_err().to_string();
        assert!(
            message.contains(&format!("no packet {number}: the file has 3, numbered from 1")),
            "{message}"
        );
        assert!(message.starts_with(path.to_str().unwrap()), "{message}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn writers_refuse_values_that_do_not_fit() {
    let mut writer = PcapWriter::new(Vec::new(), PcapFormat::default()).unwrap();
    assert!(writer.write(u64::MAX, 4, &[0; 4]).unwrap_err().to_string().contains("2106"));
    assert!(
        writer
            .write(0, 3, &[0; 4])
            .unwrap_err()
            .to_string()
            .contains("3 octets with 4 captured octets")
    );
    assert_eq!(writer.finish().unwrap().len(), 24);
    let mut writer = PcapngWriter::new(Vec::new(), vec![InterfaceFormat::default()]).unwrap();
    assert!(
        writer
            .write(1, 0, 4, &[0; 4])
            .unwrap_err()
            .to_string()
            .contains("no interface 1: the capture has 1")
    );
    assert!(writer.statistics(1, 0, Statistics::default()).is_err());
}

#[test]
fn a_full_disk_is_reported_at_the_end_at_the_latest() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let writer = PcapWriter::new(Full, PcapFormat::default()).unwrap();
    assert_eq!(writer.finish().err().map(|e| e.kind()), Some(io::ErrorKind::StorageFull));
}

/// Time, captured octets, and number of octets cut off.
fn packets() -> impl Strategy<Value = Vec<(u64, Vec<u8>, u32)>> {
    vec((0..4_294_967_296_000_000_000u64, vec(any::<u8>(), 0..200), 0..2_000u32), 0..20)
}

/// Returns the file and the offset at which each packet ends.
fn write_pcap(packets: &[(u64, Vec<u8>, u32)], format: PcapFormat) -> (Vec<u8>, Vec<usize>) {
    let mut writer = PcapWriter::new(Vec::new(), format).unwrap();
    let (mut at, mut ends) = (24, Vec::new());
    for (time_ns, data, cut) in packets {
        writer.write(*time_ns, data.len() as u32 + cut, data).unwrap();
        at += 16 + data.len().min(format.snaplen as usize);
        ends.push(at);
    }
    (writer.finish().unwrap(), ends)
}

fn write_pcapng(packets: &[(u64, Vec<u8>, u32)]) -> (Vec<u8>, Vec<usize>) {
    let interface = |link_type| InterfaceFormat {
        link_type,
        name: Some("eth1".into()),
        ..InterfaceFormat::default()
    };
    let interfaces = vec![interface(LinkType::ETHERNET), interface(LinkType::RAW)];
    let mut writer = PcapngWriter::new(Vec::new(), interfaces).unwrap();
    // A section header with one option, and two interface descriptions with two options each.
    let (mut at, mut ends) = (28 + 12 + 4 + 2 * (20 + 8 + 8 + 4), Vec::new());
    for (i, (time_ns, data, cut)) in packets.iter().enumerate() {
        writer.write(i as u32 % 2, *time_ns, data.len() as u32 + cut, data).unwrap();
        at += 32 + data.len().next_multiple_of(4);
        ends.push(at);
    }
    let statistics = Statistics {
        received: Some(7),
        dropped_by_interface: Some(0),
        dropped_by_system: Some(1 << 40),
        ..Statistics::default()
    };
    writer.statistics(1, S_NS, statistics).unwrap();
    (writer.finish().unwrap(), ends)
}

#[test]
fn predicted_lengths_equal_written_ones() {
    let interface = InterfaceFormat { snaplen: 50, ..InterfaceFormat::default() };
    for len in 0..70usize {
        for comment in [None, Some("late"), Some("")] {
            for (direction, dropped) in
                [(None, 0), (Some(Direction::Inbound), 0), (Some(Direction::Outbound), 7)]
            {
                let (notes, mut out) = (PacketNotes { direction, dropped, comment }, Vec::new());
                interface.write_packet(&mut out, 0, S_NS, 70, &vec![1; len], &notes).unwrap();
                assert_eq!(out.len(), interface.packet_len(len, &notes));
                let file =
                    [Little.section(), Little.interface(1, 50, &Little.option(9, &[9])), out]
                        .concat();
                assert_eq!(
                    (whole(&file)[0].time_ns, whole(&file)[0].data.len()),
                    (S_NS, len.min(50))
                );
            }
        }
        let (format, mut out) = (PcapFormat { snaplen: 50, ..PcapFormat::default() }, Vec::new());
        format.write_packet(&mut out, S_NS, 70, &vec![1; len]).unwrap();
        assert_eq!(out.len(), format.packet_len(len));
    }
    let all = Statistics {
        start_ns: Some(S_NS),
        end_ns: Some(S_NS),
        received: Some(1),
        dropped_by_interface: Some(2),
        accepted: Some(3),
        dropped_by_system: Some(4),
        delivered: Some(5),
    };
    let mut out = Vec::new();
    all.write_block(&mut out, 0, S_NS).unwrap();
    assert_eq!(out.len(), Statistics::MAX_LEN);
}

#[test]
fn packets_placed_in_slices_equal_written_ones() {
    const TIME: u64 = S_NS + 123_456_789;
    for len in 0..70u8 {
        let data: Vec<u8> = (1..=len).collect();
        let (interface, mut out) = (InterfaceFormat::default(), Vec::new());
        let notes = PacketNotes::default();
        interface.write_packet(&mut out, 3, TIME, 99, &data, &notes).unwrap();
        // Filled like memory that was used before.
        let mut placed = vec![0xee; out.len()];
        InterfaceFormat::place_packet(&mut placed, 3, TIME, 99, &data);
        assert_eq!(placed, out);
        for nanoseconds in [false, true] {
            let format = PcapFormat { nanoseconds, ..PcapFormat::default() };
            let mut out = Vec::new();
            format.write_packet(&mut out, TIME, 99, &data).unwrap();
            let mut placed = vec![0xee; out.len()];
            format.place_packet(&mut placed, TIME, 99, &data);
            assert_eq!(placed, out);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pcap_files_round_trip(packets in packets(), ns in any::<bool>(), snaplen in 1..300u32) {
        let format = PcapFormat { link_type: LinkType::LINUX_SLL2, snaplen, nanoseconds: ns };
        let (file, _) = write_pcap(&packets, format);
        let expected: Vec<_> = packets.iter().map(|(time_ns, data, cut)| Owned {
            time_ns: if ns { *time_ns } else { time_ns / 1_000 * 1_000 },
            wire_len: data.len() as u32 + cut,
            link_type: LinkType::LINUX_SLL2,
            interface: 0,
            data: data[..data.len().min(snaplen as usize)].to_vec(),
        }).collect();
        prop_assert_eq!(&whole(&file), &expected);
        prop_assert_eq!(read(Trickle(&file, 1)).0, expected);
    }

    #[test]
    fn pcapng_files_round_trip(packets in packets()) {
        let (file, _) = write_pcapng(&packets);
        let expected: Vec<_> = packets.iter().enumerate().map(|(i, (time_ns, data, cut))| Owned {
            time_ns: *time_ns,
            wire_len: data.len() as u32 + cut,
            link_type: [LinkType::ETHERNET, LinkType::RAW][i % 2],
            interface: i as u32 % 2,
            data: data.clone(),
        }).collect();
        prop_assert_eq!(&whole(&file), &expected);
        prop_assert_eq!(read(Trickle(&file, 1)).0, expected);
        let mut reader = CaptureReader::from_read(file.as_slice()).unwrap();
        while reader.next().unwrap().is_some() {}
        let interface = &reader.interfaces()[1];
        prop_assert_eq!(interface.name.as_deref(), Some("eth1"));
        prop_assert_eq!((interface.received, interface.dropped_by_interface), (Some(7), Some(0)));
        prop_assert_eq!(interface.dropped_by_system, Some(1 << 40));
    }

    #[test]
    fn a_file_cut_anywhere_gives_all_whole_packets_before(packets in packets()) {
        for (file, ends) in [write_pcap(&packets, PcapFormat::default()), write_pcapng(&packets)] {
            let all = whole(&file);
            for cut in 0..file.len() {
                let (found, error) = read(&file[..cut]);
                let expected = ends.iter().filter(|&&end| end <= cut).count();
                prop_assert!(found == all[..expected], "cut at {}: {} of {}", cut, found.len(), expected);
                let begun = all[..expected].len().checked_sub(1).map_or(0, |last| ends[last]) as u64;
                if let Some(error) = error {
                    let cut_off = matches!(error.fault, Fault::Truncated { .. } | Fault::Empty);
                    prop_assert!(cut_off && error.offset >= begun && error.offset <= cut as u64, "cut at {}: {}", cut, error);
                }
            }
        }
    }

    #[test]
    fn damage_never_panics(packets in packets(), damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8)) {
        for (mut file, _) in [write_pcap(&packets, PcapFormat::default()), write_pcapng(&packets)] {
            for (at, octet) in &damage {
                let at = at.index(file.len());
                file[at] = *octet;
            }
            read(file.as_slice());
        }
    }
}
