//! Reads thousands of generated captures with all kinds of damage. None may cause a panic, an
//! endless loop or excessive memory use. The reader must return every packet before the error,
//! octet for octet; then the error with its position; and after it, every packet that can be found.

use std::{
    fs,
    io::{Read, Write},
    process::Command,
};

use squall_pcap::*;

mod octets;
use octets::Order::{self, Big, Little};

/// 2023-11-14 22:13:20 UTC.
const S: u32 = 1_700_000_000;
const PACKETS: usize = 8;
/// Memory limit for a run of all cases, above the initial size of the process: twice the longest
/// block that is read, plus the window of xz.
const MEMORY: u64 = 160 << 20;

/// An undamaged capture with the positions of its packets.
#[derive(Clone)]
struct Base {
    name: String,
    octets: Vec<u8>,
    /// Range of each packet's record or block.
    packets: Vec<(usize, usize)>,
    /// Start of every record, block and file header.
    starts: Vec<usize>,
    order: Order,
}

/// Time and octets of a packet.
type Given = (u64, Vec<u8>);

struct Outcome {
    /// Packets before the first error; `after` has the packets after any error.
    before: Vec<Given>,
    after: Vec<Given>,
    first: Option<CaptureError>,
    faults: usize,
}

/// A generator with the same sequence on all machines: xorshift64*.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    fn octets(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

fn payload(i: usize) -> Vec<u8> {
    Chance(i as u64 + 1).octets(20 + 13 * i)
}

fn pcap(name: &str, order: Order, magic: u32, minor: u16) -> Base {
    let mut octets = order.pcap(magic, minor, 1);
    if magic >> 16 == 0x1c00 {
        octets.extend([0; 4]);
    }
    let extra = if magic == 0xa1b2_cd34 { 8 } else { 0 };
    let (mut packets, mut starts) = (Vec::new(), vec![0]);
    for i in 0..PACKETS {
        let (data, start) = (payload(i), octets.len());
        let (captured, wire) = (data.len() as u32, data.len() as u32 + i as u32);
        let lengths = if minor < 3 { [wire, captured] } else { [captured, wire] };
        octets.extend(order.u32s(&[S + i as u32, 7 * i as u32]));
        octets.extend(order.u32s(&lengths));
        octets.extend(vec![0; extra]);
        octets.extend(data);
        starts.push(start);
        packets.push((start, octets.len()));
    }
    Base { name: name.into(), octets, packets, starts, order }
}

fn pcapng(name: &str, order: Order) -> Base {
    let flags = order.option(2, &order.u32(1));
    let (mut octets, mut packets, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    let mut add = |block: Vec<u8>, is_packet: bool| {
        starts.push(octets.len());
        if is_packet {
            packets.push((octets.len(), octets.len() + block.len()));
        }
        octets.extend(block);
    };
    add(order.section(), false);
    add(
        order.interface(
            1,
            0,
            &[order.option(9, &[6]), order.option(2, b"eth0"), order.option(0, &[])].concat(),
        ),
        false,
    );
    add(order.interface(1, 0, &order.option(9, &[6])), false);
    for i in 0..PACKETS {
        let ticks = u64::from(S + i as u32) * 1_000_000 + 7 * i as u64;
        let (data, wire) = (payload(i), payload(i).len() as u32 + i as u32);
        match i {
            // One block of each kind that can contain a packet.
            3 => add(order.block(3, &[order.u32(data.len() as u32), data].concat()), true),
            4 => {
                let time = [(ticks >> 32) as u32, ticks as u32, data.len() as u32, wire];
                add(
                    order.block(2, &[order.u16(1), order.u16(2), order.u32s(&time), data].concat()),
                    true,
                );
            }
            5 => add(
                order.packet(1, ticks, wire, &data, &[&flags[..], &order.option(0, &[])].concat()),
                true,
            ),
            _ => add(order.packet(i as u32 % 2, ticks, wire, &data, &[]), true),
        }
        match i {
            // One block of each kind without packets, between the others.
            0 => add(
                order.block(
                    4,
                    &[order.option(1, b"\x7f\0\0\x01localhost\0"), order.option(0, &[])].concat(),
                ),
                false,
            ),
            1 => add(
                order.block(
                    10,
                    &[order.u32(0x544c_534b), order.u32(8), b"CLIENT_R".to_vec()].concat(),
                ),
                false,
            ),
            2 => {
                add(order.block(0xbad, &[order.u32(32_473), b"anything".to_vec()].concat()), false)
            }
            5 => add(order.block(0x4000_0bad, &order.u32(32_473)), false),
            6 => add(order.block(9, b"__REALTIME_TIMESTAMP=1\n\0"), false),
            _ => {}
        }
    }
    add(
        order.block(
            5,
            &[order.u32s(&[0, 0, 0]), order.option(4, &[9; 8]), order.option(0, &[])].concat(),
        ),
        false,
    );
    Base { name: name.into(), octets, packets, starts, order }
}

fn bases() -> Vec<Base> {
    let mut bases = Vec::new();
    for (order, endian) in [(Little, "le"), (Big, "be")] {
        bases.push(pcapng(&format!("pcapng-{endian}"), order));
        for (magic, kind) in [
            (0xa1b2_c3d4, "us"),
            (0xa1b2_3c4d, "ns"),
            (0xa1b2_cd34, "modified"),
            (0x1c00_01ac, "lcap"),
        ] {
            bases.push(pcap(&format!("pcap-{kind}-{endian}"), order, magic, 4));
        }
    }
    bases.push(pcap("pcap-2.2", Little, 0xa1b2_c3d4, 2));
    bases
}

/// Reads the whole file, recovering from each error.
fn read(name: &str, file: impl Read, octets: usize) -> Outcome {
    let mut outcome = Outcome { before: Vec::new(), after: Vec::new(), first: None, faults: 0 };
    let mut reader = match CaptureReader::from_read(file) {
        Ok(reader) => reader,
        Err(error) => {
            outcome.faults = 1;
            outcome.first = Some(error);
            return outcome;
        }
    };
    let mut skipped = 0;
    loop {
        let offset = reader.offset();
        match reader.next() {
            Ok(Some(packet)) => {
                assert!(packet.data.len() <= packet.wire_len as usize, "{name}");
                let to =
                    if outcome.first.is_none() { &mut outcome.before } else { &mut outcome.after };
                to.push((packet.time_ns, packet.data.to_vec()));
                assert!(reader.offset() > offset, "{name}: a packet of no octets of the file");
            }
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let given = (outcome.before.len() + outcome.after.len()) as u64;
                assert_eq!(error.packets, given, "{name}: {error}");
                assert!(error.offset >= offset, "{name}: {error}: {} were read", offset);
                outcome.faults += 1;
                outcome.first.get_or_insert(error);
                assert!(matches!(reader.next(), Ok(None)), "{name}: nothing without recover");
                let skip = reader.recover();
                skipped += skip.octets;
                assert!(
                    skip.octets > 0 || !skip.found || outcome.faults < 4,
                    "{name}: recovered in place"
                );
                assert!(outcome.faults <= octets + 4, "{name}: does not end");
            }
        }
    }
    assert!(matches!(reader.next(), Ok(None)), "{name}: nothing comes after the end");
    assert!(skipped <= reader.offset(), "{name}");
    outcome
}

fn sound(base: &Base) -> Vec<Given> {
    let outcome = read(&base.name, base.octets.as_slice(), base.octets.len());
    assert!(outcome.first.is_none(), "{}: {}", base.name, outcome.first.unwrap());
    let found: Vec<_> = outcome.before.iter().map(|(_, data)| data.clone()).collect();
    assert_eq!(found, (0..PACKETS).map(payload).collect::<Vec<_>>(), "{}", base.name);
    outcome.before
}

/// Checks the packets before the damage at octet `from`: all must be returned unchanged.
fn check_before(name: &str, base: &Base, all: &[Given], outcome: &Outcome, from: usize) {
    let whole = base.packets.iter().filter(|&&(_, end)| end <= from).count();
    assert!(
        outcome.before.len() >= whole,
        "{name}: {} of {whole} in front of octet {from}",
        outcome.before.len()
    );
    assert_eq!(outcome.before[..whole], all[..whole], "{name}");
    if let Some(error) = &outcome.first {
        let last = whole.checked_sub(1).map_or(0, |last| base.packets[last].1);
        assert!(error.offset >= last as u64, "{name}: {error}: what was sound ended at {last}");
    }
}

/// Checks the packets after the damage: each undamaged packet whose record begins after the first
/// error must be found. Octets after `to` were moved by `shift`.
fn check_after(name: &str, base: &Base, outcome: &Outcome, to: usize, shift: i64) {
    let Some(error) = &outcome.first else { return };
    let found: Vec<&[u8]> = outcome.after.iter().map(|(_, data)| data.as_slice()).collect();
    for (i, &(start, _)) in base.packets.iter().enumerate() {
        if start >= to && start as i64 + shift > error.offset as i64 {
            let data = payload(i);
            assert!(
                found.contains(&data.as_slice()),
                "{name}: {error}: packet {} behind it is not found",
                i + 1
            );
        }
    }
}

fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|v| v.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()).unwrap_or(0)
        << 10
}

/// Counts the cases of a test and checks the memory that they use.
struct Bounds {
    cases: usize,
    at_first: u64,
}

impl Bounds {
    fn new() -> Self {
        Self { cases: 0, at_first: peak() }
    }

    fn end(self, at_least: usize) {
        let grown = peak().saturating_sub(self.at_first);
        println!("{} captures, {} KiB more at the peak", self.cases, grown >> 10);
        assert!(self.cases >= at_least);
        assert!(grown < MEMORY, "{} MiB", grown >> 20);
    }
}

#[test]
fn a_capture_cut_at_any_octet_gives_the_packets_before() {
    let mut bounds = Bounds::new();
    for base in bases() {
        let all = sound(&base);
        for cut in 0..base.octets.len() {
            let name = format!("{} cut at {cut}", base.name);
            let outcome = read(&name, &base.octets[..cut], cut);
            let whole = base.packets.iter().filter(|&&(_, end)| end <= cut).count();
            assert_eq!(outcome.before, all[..whole], "{name}");
            // A file may be complete if it is cut where a block ends.
            let may_end = cut > 0 && base.starts.contains(&cut);
            assert_eq!(outcome.first.is_none(), may_end, "{name}");
            assert!(outcome.after.is_empty(), "{name}: nothing is made up");
            if let Some(error) = outcome.first {
                assert!(
                    matches!(error.fault, Fault::Truncated { .. } | Fault::Empty),
                    "{name}: {error}"
                );
                let start =
                    base.starts.iter().rev().find(|&&start| start < cut).copied().unwrap_or(0);
                assert_eq!(error.offset, start as u64, "{name}: {error}");
            }
            bounds.cases += 1;
        }
    }
    bounds.end(4_000);
}

#[test]
fn a_wrong_number_anywhere_costs_no_packet_before_it_and_few_after() {
    let mut bounds = Bounds::new();
    let numbers =
        [0, 1, 3, 11, 12, 28, 60, 0xffff, 1 << 20, 0x7fff_ffff, 0x8000_0000, 0xffff_fffc, u32::MAX];
    for base in bases() {
        let all = sound(&base);
        for at in 0..base.octets.len() - 3 {
            let start = *base.starts.iter().rev().find(|&&start| start <= at).unwrap();
            let end =
                base.starts.iter().find(|&&start| start > at).copied().unwrap_or(base.octets.len());
            // Numbers in headers and at the end of blocks. The octets of packets may have any
            // value, so they are left alone.
            if (at - start) % 4 != 0 || (at - start >= 28 && at + 4 != end) {
                continue;
            }
            let old: [u8; 4] = base.octets[at..at + 4].try_into().unwrap();
            let was = u32::from_le_bytes(old);
            let others = [
                was.swap_bytes(),
                was.wrapping_add(1),
                was.wrapping_sub(1),
                was.wrapping_add(4),
                was ^ 1 << 31,
            ];
            for number in numbers.into_iter().chain(others) {
                let mut octets = base.octets.clone();
                let new = if number == was { continue } else { base.order.u32(number) };
                octets[at..at + 4].copy_from_slice(&new);
                let name = format!("{} with {number:#x} at {at}", base.name);
                let outcome = read(&name, octets.as_slice(), octets.len());
                if at >= 28 {
                    check_before(&name, &base, &all, &outcome, at);
                }
                // A damaged section or interface description may change later packets; and a
                // timestamp that is years later makes the next packets implausible, as intended.
                let is_packet = base.packets.iter().any(|&(first, _)| first == start);
                if is_packet && at - start >= 8 {
                    check_after(&name, &base, &outcome, end, 0);
                }
                bounds.cases += 1;
            }
        }
    }
    bounds.end(10_000);
}

#[test]
fn garbage_between_packets_costs_none_of_them() {
    let mut bounds = Bounds::new();
    let mut chance = Chance(4);
    for base in bases() {
        let all = sound(&base);
        for &start in &base.starts[1..] {
            // Blocks before an interface description cannot be recognized.
            for len in [1, 2, 3, 4, 7, 16, 24, 31, 100, 5_000] {
                let noise = chance.octets(len);
                let text: Vec<u8> =
                    b"GET /index.html HTTP/1.1\r\n".iter().copied().cycle().take(len).collect();
                for (kind, garbage) in [
                    ("zeros", vec![0; len]),
                    ("ones", vec![0xff; len]),
                    ("noise", noise),
                    ("text", text),
                ] {
                    let mut octets = base.octets.clone();
                    octets.splice(start..start, garbage);
                    let name = format!("{} with {len} {kind} at {start}", base.name);
                    let outcome = read(&name, octets.as_slice(), octets.len());
                    check_before(&name, &base, &all, &outcome, start);
                    check_after(&name, &base, &outcome, start, len as i64);
                    bounds.cases += 1;
                }
            }
        }
    }
    bounds.end(1_000);
}

#[test]
fn missing_swapped_or_doubled_blocks_cost_no_other_packets() {
    let mut bounds = Bounds::new();
    for base in bases() {
        let all = sound(&base);
        let end_of = |i: usize| base.starts.get(i + 1).copied().unwrap_or(base.octets.len());
        for i in 1..base.starts.len() {
            let (start, end) = (base.starts[i], end_of(i));
            let mut missing = base.octets.clone();
            missing.drain(start..end);
            let mut doubled = base.octets.clone();
            doubled.splice(start..start, base.octets[start..end].to_vec());
            // Each number of the block in the other byte order.
            let mut reversed = base.octets.clone();
            reversed[start..end]
                .as_chunks_mut::<4>()
                .0
                .iter_mut()
                .for_each(|number| number.reverse());
            let mut zeroed = base.octets.clone();
            zeroed[start..end].fill(0);
            for (kind, octets) in [
                ("missing", missing),
                ("doubled", doubled),
                ("reversed", reversed),
                ("zeroed", zeroed),
            ] {
                let name = format!("{} with block {i} {kind}", base.name);
                let outcome = read(&name, octets.as_slice(), octets.len());
                check_before(&name, &base, &all, &outcome, start);
                let is_packet = base.packets.iter().any(|&(first, _)| first == start);
                if is_packet && matches!(kind, "reversed" | "zeroed") {
                    check_after(&name, &base, &outcome, end, 0);
                    let found = outcome.before.len() + outcome.after.len();
                    assert!(found + 1 >= PACKETS, "{name}: {found}");
                }
                bounds.cases += 1;
            }
        }
    }
    bounds.end(300);
}

#[test]
fn headers_with_absurd_values_cost_no_packet() {
    let mut bounds = Bounds::new();
    for base in bases().iter().filter(|base| base.name.starts_with("pcap-")) {
        for snaplen in [0, 1, 14, 262_145, 1 << 24, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let mut octets = base.octets.clone();
            octets[16..20].copy_from_slice(&base.order.u32(snaplen));
            let outcome = read("snaplen", octets.as_slice(), octets.len());
            assert!(
                outcome.first.is_none() && outcome.before.len() == PACKETS,
                "{} snaplen {snaplen}",
                base.name
            );
            bounds.cases += 1;
        }
        for at in 0..24 {
            for octet in [0, 1, 0x7f, 0x80, 0xff] {
                let mut octets = base.octets.clone();
                octets[at] = octet;
                let outcome = read(
                    &format!("{} {octet} at {at}", base.name),
                    octets.as_slice(),
                    octets.len(),
                );
                assert!(outcome.before.len() == PACKETS || outcome.first.is_some());
                bounds.cases += 1;
            }
        }
    }
    bounds.end(200);
}

#[test]
fn files_appended_to_another_are_read_after_it() {
    let mut bounds = Bounds::new();
    let bases = bases();
    for first in &bases {
        for second in &bases {
            if first.name == "pcap-2.2" && second.name.starts_with("pcapng") {
                // With swapped lengths, a section header looks like a packet of one octet.
                continue;
            }
            // lcap's header is longer than a record header, and its numbers are implausible for a
            // packet, so it is found too.
            for cut in [0, 5] {
                let kept = first.octets.len() - cut;
                let octets = [&first.octets[..kept], &second.octets[..]].concat();
                let name = format!("{} cut by {cut}, then {}", first.name, second.name);
                let outcome = read(&name, octets.as_slice(), octets.len());
                let all: Vec<_> = outcome.before.iter().chain(&outcome.after).collect();
                // The last record of the first file may swallow part of the second.
                let expected = sound(second);
                let lost = if cut == 0 { 0 } else { 2 };
                let found = expected
                    .iter()
                    .filter(|packet| all.iter().any(|given| given.1 == packet.1))
                    .count();
                assert!(found + lost >= PACKETS, "{name}: {found}; {:?}", outcome.first);
                if cut == 0 {
                    assert!(all.len() >= 2 * PACKETS, "{name}: {}", all.len());
                    let both_pcapng =
                        first.name.starts_with("pcapng") && second.name.starts_with("pcapng");
                    assert_eq!(outcome.first.is_none(), both_pcapng, "{name}: {:?}", outcome.first);
                }
                bounds.cases += 1;
            }
        }
    }
    bounds.end(200);
}

#[test]
fn any_damage_keeps_the_packets_before_it() {
    let mut bounds = Bounds::new();
    let mut chance = Chance(2026);
    for base in bases() {
        let all = sound(&base);
        for n in 0..400 {
            let mut octets = base.octets.clone();
            let mut first = octets.len();
            for _ in 0..=chance.below(4) {
                let at = chance.below(octets.len());
                match chance.below(4) {
                    0 => octets[at] = chance.next() as u8,
                    1 => octets[at] ^= 1 << chance.below(8),
                    2 => {
                        drop(octets.drain(
                            at..(at + 1 + chance.below(40)).min(base.octets.len() / 2).max(at),
                        ))
                    }
                    _ => {
                        let noise = chance.octets(1 + n % 50);
                        octets.splice(at..at, noise);
                    }
                }
                first = first.min(at);
            }
            let name = format!("{} damaged from {first} on, {n}", base.name);
            let outcome = read(&name, octets.as_slice(), octets.len());
            // The file header determines how everything after it is read.
            if first >= base.starts[1].max(28) {
                check_before(&name, &base, &all, &outcome, first);
            }
            bounds.cases += 1;
        }
    }
    bounds.end(4_000);
}

#[test]
fn a_long_file_of_nothing_but_faults_is_read_in_time() {
    // Each block claims a length that only further octets could refute, so the reader has to search
    // for the next block.
    let block = [Little.u32s(&[6, 16 << 20, 0, 0]), Little.packet(0, 7, 4, &[1; 4], &[])].concat();
    let mut file = [Little.section(), Little.interface(1, 0, &[])].concat();
    for _ in 0..200_000 {
        file.extend(&block);
    }
    let outcome = read("claims", file.as_slice(), file.len());
    assert_eq!((outcome.after.len(), outcome.faults), (200_000, 200_000));

    let record =
        [Little.u32s(&[S, 0, 200_000, 0]), Little.u32s(&[S, 0, 4, 4]), vec![1; 4]].concat();
    let file = [Little.pcap(0xa1b2_c3d4, 4, 1), record.repeat(100_000)].concat();
    assert!(read("claims", file.as_slice(), file.len()).faults > 0);
    let zeros = vec![0; 8 << 20];
    let file = [Little.pcap(0xa1b2_c3d4, 4, 1), zeros].concat();
    assert_eq!(read("zeros", file.as_slice(), file.len()).faults, 1);
}

// ---- compressed

const CODECS: [Compression; 5] =
    [Compression::Gzip, Compression::Zstd, Compression::Lz4, Compression::Xz, Compression::Bzip2];

fn packed(by: Compression, octets: &[u8]) -> Vec<u8> {
    match by {
        Compression::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            encoder.write_all(octets).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(octets).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Lz4 => {
            let info =
                lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(octets).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Xz => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
            encoder.write_all(octets).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Bzip2 => {
            let mut encoder =
                bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
            encoder.write_all(octets).unwrap();
            encoder.finish().unwrap()
        }
    }
}

#[test]
fn compressed_captures_are_read_whole_in_parts_and_in_layers() {
    let mut bounds = Bounds::new();
    let base = pcapng("pcapng-le", Little);
    let all = sound(&base);
    let whole = |name: &str, octets: &[u8]| {
        let outcome = read(name, octets, base.octets.len());
        assert!(outcome.first.is_none(), "{name}: {}", outcome.first.unwrap());
        assert_eq!(outcome.before, all, "{name}");
    };
    for by in CODECS {
        whole(&format!("{by}"), &packed(by, &base.octets));
        assert_eq!(
            CaptureReader::from_read(packed(by, &base.octets).as_slice()).unwrap().compression(),
            Some(by)
        );
        for cut in 0..base.octets.len() {
            let members =
                [packed(by, &base.octets[..cut]), packed(by, &base.octets[cut..])].concat();
            whole(&format!("{by} in two members, the first of {cut}"), &members);
            bounds.cases += 1;
        }
        let padded = [packed(by, &base.octets), vec![0; 70_000]].concat();
        if by != Compression::Lz4 {
            whole(&format!("{by} padded"), &padded);
        }
        for outer in CODECS {
            let twice = packed(outer, &packed(by, &base.octets));
            whole(&format!("{by} in {outer}"), &twice);
            let deep = packed(by, &packed(by, &twice));
            whole(&format!("{by} in {outer} in {by} twice"), &deep);
            let error =
                read("five layers", packed(by, &deep).as_slice(), 0).first.expect("too deep");
            assert!(matches!(error.fault, Fault::NotACapture { .. }), "{error}");
            bounds.cases += 3;
        }
        let error = read("of nothing", packed(by, &[]).as_slice(), 0).first.unwrap();
        assert!(matches!(error.fault, Fault::Empty), "{by}: {error}");
    }
    bounds.end(500);
}

#[test]
fn truncated_or_damaged_compressed_captures_give_the_packets_before() {
    let mut bounds = Bounds::new();
    // A capture longer than the codecs' blocks, which has data before the error; and a short one.
    let mut long = Little.pcap(0xa1b2_3c4d, 4, 1);
    let mut chance = Chance(9);
    for i in 0..3_000 {
        let data = chance.octets(100 + chance.0 as usize % 1_000);
        long.extend(Little.u32s(&[S, i, data.len() as u32, data.len() as u32]));
        long.extend(data);
    }
    for (octets, step) in [(pcap("short", Big, 0xa1b2_c3d4, 4).octets, 3), (long, 150_001)] {
        let all = read("sound", octets.as_slice(), octets.len()).before;
        for by in CODECS {
            let file = packed(by, &octets);
            let mut most = 0;
            for at in (0..file.len()).step_by(step) {
                let name = format!("{by} of {} cut at {at}", octets.len());
                let outcome = read(&name, &file[..at], octets.len());
                assert_eq!(outcome.before, all[..outcome.before.len()], "{name}");
                most = most.max(outcome.before.len());
                let error = outcome.first.unwrap_or_else(|| panic!("{name}: no fault"));
                let reported = match &error.fault {
                    Fault::Compressed { cut, .. } => *cut,
                    Fault::Empty | Fault::NotACapture { .. } | Fault::Truncated { .. } => at < 6,
                    _ => false,
                };
                assert!(reported, "{name}: {error}");

                let mut damaged = file.clone();
                damaged[at] ^= 0x55;
                let name = format!("{by} of {} with another octet at {at}", octets.len());
                let outcome = read(&name, damaged.as_slice(), octets.len());
                // A codec may detect damage only at the end, by its checksum.
                let right = outcome.before.iter().zip(&all).take_while(|(a, b)| a == b).count();
                assert!(
                    outcome.before.len() == all.len()
                        || outcome.first.is_some()
                        || right < all.len(),
                    "{name}"
                );
                bounds.cases += 2;
            }
            assert!(
                step == 3 || most > all.len() / 3,
                "{by}: {most} of {} packets at the most",
                all.len()
            );
        }
    }
    bounds.end(1_000);
}

#[test]
fn compressed_data_cannot_allocate_gigabytes() {
    let bounds = Bounds::new();
    // A zstd frame that asks for a window of 2 GiB: descriptor 0xa8, 2^(10 + 21).
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8, 1, 0, 0, 0, 0, 0];
    let error = read("zstd", zstd.as_slice(), 0).first.unwrap();
    assert!(
        matches!(error.fault, Fault::Compressed { by: Compression::Zstd, cut: false, .. }),
        "{error}"
    );

    // An xz block header that asks for a dictionary of 4 GiB: property 40, with a correct CRC.
    let mut xz = packed(Compression::Xz, &[7; 100]);
    let header = 12..12 + (usize::from(xz[12]) + 1) * 4;
    let property = (header.start..header.end).find(|&i| xz[i..i + 2] == [0x21, 1]).unwrap() + 2;
    xz[property] = 40;
    let mut crc = flate2::Crc::new();
    crc.update(&xz[header.start..header.end - 4]);
    xz[header.end - 4..header.end].copy_from_slice(&crc.sum().to_le_bytes());
    let error = read("xz", xz.as_slice(), 0).first.unwrap();
    assert!(
        matches!(error.fault, Fault::Compressed { by: Compression::Xz, cut: false, .. }),
        "{error}"
    );

    // 16 MiB of zeros, compressed to some KiB.
    for by in CODECS {
        let bomb = packed(by, &[Little.pcap(0xa1b2_c3d4, 4, 1), vec![0; 16 << 20]].concat());
        let outcome = read("bomb", bomb.as_slice(), 16 << 20);
        assert!(matches!(outcome.first.unwrap().fault, Fault::Hole), "{by}");
    }
    bounds.end(0);
}

// ---- comparison with other programs

#[test]
fn tcpdump_and_tshark_read_the_same_packets_before_a_fault() {
    for (tool, at_least) in [("tcpdump", 60), ("tshark", 8)] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("SKIPPED: {tool} is not installed (scripts/setup system)");
            continue;
        }
        compare(tool, at_least);
    }
}

/// Whether `tool` finds the same packets in captures that are truncated or contain an impossible
/// length.
fn compare(tool: &str, at_least: usize) {
    let (mut compared, mut chance) = (0, Chance(7));
    let folder = std::env::temp_dir().join(format!("squall-broken-{tool}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (from, to) = (folder.join("broken"), folder.join("kept"));
    // Skip variants that one of the two programs does not know.
    for base in bases().iter().filter(|b| !b.name.contains("lcap") && !b.name.contains("2.2")) {
        for n in 0..at_least.div_ceil(7) {
            let mut octets = base.octets.clone();
            let &(start, end) = &base.packets[chance.below(PACKETS)];
            // tshark guesses the pcap variant from the first records; an absurd length misleads it.
            if n % 2 == 0 || (tool == "tshark" && base.name.starts_with("pcap-")) {
                octets.truncate(start + 1 + chance.below(end - start - 1));
            } else {
                // An absurd captured length, or in pcapng an absurd block length.
                let at = if base.name.starts_with("pcapng") { start + 4 } else { start + 8 };
                octets[at..at + 4].copy_from_slice(&base.order.u32(0xffff_fff0));
            }
            fs::write(&from, &octets).unwrap();
            let _ = fs::remove_file(&to);
            let form: &[&str] = if tool == "tcpdump" { &["-Z", "root"] } else { &["-F", "pcapng"] };
            let mut command = Command::new(tool);
            let output = command
                .arg("-n")
                .arg("-r")
                .arg(&from)
                .arg("-w")
                .arg(&to)
                .args(form)
                .output()
                .unwrap();
            let own = read(&base.name, octets.as_slice(), octets.len());
            let Ok(kept) = fs::read(&to) else {
                assert!(own.before.is_empty(), "{tool} wrote nothing: {output:?}");
                continue;
            };
            let other = read(tool, kept.as_slice(), kept.len()).before;
            let data = |packets: &[Given]| {
                packets.iter().map(|(_, data)| data.clone()).collect::<Vec<_>>()
            };
            assert_eq!(data(&own.before), data(&other), "{} {n}: {tool}", base.name);
            compared += 1;
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(compared >= at_least, "{tool}: {compared}");
    println!("{tool} agrees on {compared} captures");
}
