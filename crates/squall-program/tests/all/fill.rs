//! Frames filled in batches equal frames made one by one, in the slow way.

use std::ops::Range;

use squall_bpf::{interpret::Machine, xdp_action};
use squall_program::{
    BATCH, Gap, GapLaw, Law, Pattern, Program, ProgramError, Run, Scratch, Sizes, Spec, Supplied,
    Supply, Turn, VarSpec,
    kernel::{self, Stream},
    signature, trex,
};
use squall_units::{Nanos, Picos, TrexMark, TxMeta, mix};
use squall_wire::{ChecksumField, ChecksumKind, Frame, Packet, checksum};

fn frame(text: &str, len: u32) -> Frame {
    let packet = Packet::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    packet.build(Some(len as usize), &|_| Err(std::io::ErrorKind::NotFound.into()), 1).unwrap()
}

fn var(frame: &Frame, name: &str, law: Law, every: u64) -> VarSpec {
    let at = frame.field(name).unwrap();
    VarSpec { bit: at.bit, bits: at.bits, law, turn: Turn::default(), every, phase: 0 }
}

fn step(first: u128, count: u64) -> Law {
    Law::Step { first, step: 1, count, start: 0 }
}

fn random(count: u64) -> Law {
    Law::Random { min: 1, count, limit: None, seed: 99 }
}

/// The reference frame, built naively: values written bit by bit, lengths by subtraction, checksums
/// over all octets.
fn slow(spec: &Spec, trex: Option<TrexMark>, k: u64, now: Nanos) -> Vec<u8> {
    let len = spec.sizes.at(k) as usize;
    let mut octets = spec.frame.bytes[..len].to_vec();
    for l in &spec.frame.lengths {
        octets[l.at..l.at + 2].copy_from_slice(&((len - l.from) as u16).to_be_bytes());
    }
    for v in &spec.vars {
        let value = v.law.at(k / v.every);
        for bit in 0..v.bits {
            let (at, mask) = ((v.bit + bit) / 8, 0x80 >> ((v.bit + bit) % 8));
            let set = value >> (v.bits - 1 - bit) & 1 == 1;
            octets[at] = if set { octets[at] | mask } else { octets[at] & !mask };
        }
    }
    if let Some(stream) = spec.signature {
        let (sequence, time) = (k as u32, now.0);
        let (high, low) = match trex {
            None => signature::Signature { key: KEY, stream, sequence, time }.halves(),
            Some(mark) => trex::Header { mark, sequence, time }.halves(),
        };
        octets[len - 16..len - 8].copy_from_slice(&high.to_be_bytes());
        octets[len - 8..].copy_from_slice(&low.to_be_bytes());
    }
    for c in &spec.frame.checksums {
        octets[c.at..c.at + 2].fill(0);
        let value = value_of(c, &octets, spec.frame.trailer);
        octets[c.at..c.at + 2].copy_from_slice(&value.to_be_bytes());
    }
    for c in &spec.frame.crcs {
        let end = c.to.unwrap_or(octets.len() - spec.frame.trailer);
        c.write(&mut octets[..end]);
    }
    octets
}

fn value_of(c: &ChecksumField, octets: &[u8], trailer: usize) -> u16 {
    let covered: Range<usize> = c.from..c.to.unwrap_or(octets.len() - trailer);
    let mut sum = checksum::sum(&octets[covered.clone()]);
    sum += c.pseudo.iter().map(|r| checksum::sum(&octets[r.clone()])).sum::<u64>();
    if let Some(protocol) = c.protocol {
        sum += u64::from(protocol) + covered.len() as u64;
    }
    match !checksum::fold(sum) {
        0 if c.kind == ChecksumKind::Udp => 0xffff,
        value => value,
    }
}

/// Fills batches of all sizes, by one worker and by three, into slots with old content.
fn fast_equals_slow(spec: &Spec) {
    let program = Program::build(spec.clone()).unwrap();
    equals_slow(spec, &program);
    if let Some(made_ahead) = program.with_ring(1 << 20) {
        equals_slow(spec, &made_ahead);
    }
}

/// The key of all signatures. Its highest bit is set, so that sign extension would show.
const KEY: u16 = 0x9234;

fn equals_slow(spec: &Spec, program: &Program) {
    let mut program = program.clone();
    program.set_key(KEY);
    let program = &program;
    let stride = spec.frame.bytes.len().next_multiple_of(64) + 64;
    let now = Nanos(1_234_567_890_123);
    for workers in [1, 3] {
        for worker in 0..workers {
            let mut base = vec![0xa5; stride * BATCH];
            let mut meta = [TxMeta::default(); BATCH];
            let (mut cursor, mut scratch) =
                (program.cursor(worker, workers, 7), Scratch::default());
            let mut k = worker;
            for batch in 0..12u64 {
                let count = 1 + mix(batch, worker) as usize % BATCH;
                // Scattered slots in every other batch.
                let places: Vec<u8> = (0..BATCH as u8)
                    .filter(|&i| (usize::from(i) * count) % BATCH < count)
                    .collect();
                let scattered = batch % 2 == 1 && !places.is_empty();
                let slots: Vec<usize> = if scattered {
                    places.iter().map(|&i| i.into()).collect()
                } else {
                    (BATCH - count..BATCH).collect()
                };
                for (j, &slot) in slots.iter().enumerate() {
                    meta[slot].len = program.sizes().at(k + j as u64 * workers);
                }
                let memory = (&mut base[..], stride, &mut meta[..]);
                if scattered {
                    program.fill(&mut cursor, &mut scratch, memory, &places[..], Some(now));
                } else {
                    program.fill(
                        &mut cursor,
                        &mut scratch,
                        memory,
                        &Run { start: BATCH - count, count },
                        Some(now),
                    );
                }
                for slot in slots {
                    let octets = &base[slot * stride..][..meta[slot].len as usize];
                    assert_eq!(
                        octets,
                        slow(spec, program.trex(), k, now),
                        "frame {k} of {:?}",
                        spec.frame.summary()
                    );
                    k += workers;
                }
            }
        }
    }
    kernel_equals_slow(spec, program);
}

/// The other executor: an interpreter runs the kernel's program. Pages return as the last frame
/// left them, except for changes by the receiver: to the headers, or to all octets if there are
/// several streams.
fn kernel_equals_slow(spec: &Spec, program: &Program) {
    if !spec.frame.crcs.is_empty() {
        return;
    }
    for (first, by, streams) in [(0, 1, 1), (2, 3, 1), (0, 1, 2)] {
        let stream = Stream {
            sent: 0,
            name: "s",
            program,
            gap: Gap::Zero,
            law: &GapLaw::Constant,
            pattern: Pattern::CONTINUOUS,
            start: Picos(0),
            share: (first, by),
            self_start: true,
            next: None,
        };
        if program.trex().is_some() {
            let why = kernel::compile(&vec![stream; streams]).unwrap_err().to_string();
            assert!(why.contains("trex_hw_id"), "{why}");
            continue;
        }
        let image = kernel::compile(&vec![stream; streams]).unwrap();
        let mut machine = Machine::new(&image.object);
        let mut words = image.words.clone();
        // No attention requested; the run began at 0, without end or budget.
        (words[0], words[2], words[3], words[4], words[5]) =
            (0, u64::MAX - 1, u64::MAX, u64::MAX, u64::MAX);
        // Overdue frames may leave immediately.
        words[17] = u64::MAX;
        machine.maps[image.memory] = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        machine.maps[image.tables.0].copy_from_slice(&image.tables.1);
        machine.now = 1_234_567_890_123;
        let mut page = image.frame.clone();
        let mut k = first;
        for n in 0..400 * streams {
            let spoilt = if streams > 1 { page.len() } else { page.len().min(128) };
            page[..spoilt].fill(n as u8);
            let mut frame = page.clone();
            assert_eq!(machine.run_xdp(&mut frame), Ok(xdp_action::REDIRECT as u64));
            assert_eq!(
                frame,
                slow(spec, program.trex(), k, Nanos(machine.now)),
                "frame {k} of {:?}",
                spec.frame.summary()
            );
            page[..frame.len()].copy_from_slice(&frame);
            // Two frames that are due at the same time leave one after the other.
            k += if n % streams == streams - 1 { by } else { 0 };
        }
    }
}

#[test]
fn frames_made_ahead_are_the_same_frames() {
    let limited = Law::Random { min: 1, count: 1 << 30, limit: Some(30), seed: 5 };
    let list = Law::List { values: [80, 443, 8080, 53].into(), start: 3 };
    for (text, len, fields, period) in [
        (
            "eth/ipv4/udp",
            60,
            vec![("ipv4.src", limited.clone(), 1), ("udp.dport", list.clone(), 1)],
            60,
        ),
        (
            "eth/ipv4/udp",
            1514,
            vec![("ipv4.src", step(0x0a00_0001, 254), 1), ("udp.sport", step(1024, 8), 254)],
            2032,
        ),
        (
            "eth/vlan(id=3)/ipv6/tcp",
            200,
            vec![("ipv6.src", step(u128::MAX - 9, 7), 1), ("tcp.dport", list, 2)],
            56,
        ),
        (
            "eth/vlan(id=3)/ipv4",
            60,
            vec![("vlan.id", step(0, 4096), 1), ("ipv4.ttl", step(1, 3), 1)],
            12_288,
        ),
    ] {
        let f = frame(text, len);
        let vars = fields.into_iter().map(|(name, law, every)| var(&f, name, law, every)).collect();
        let spec = Spec { frame: f, sizes: Sizes::fixed(len), vars, signature: None };
        let program = Program::build(spec.clone()).unwrap();
        let made_ahead = program.with_ring(1 << 20).unwrap();
        assert_eq!((made_ahead.ring_frames(), &made_ahead), (Some(period), &program), "{text}");
        assert!(program.with_ring(period * 64 - 1).is_none(), "{text}");
        fast_equals_slow(&spec);
    }
}

#[test]
fn frames_that_do_not_soon_repeat_or_differ_far_apart_are_not_made_ahead() {
    let made_ahead = |sizes: Sizes, fields: Vec<(&str, Law)>, signature: Option<u16>| {
        let f = frame("eth/ipv4/udp", sizes.range().1);
        let vars = fields.into_iter().map(|(name, law)| var(&f, name, law, 1)).collect();
        let program = Program::build(Spec { frame: f, sizes, vars, signature }).unwrap();
        program.with_ring(1 << 20).is_some()
    };
    let short = || vec![("udp.sport", step(1, 7))];
    assert!(made_ahead(Sizes::fixed(60), short(), None));
    assert!(!made_ahead(Sizes::fixed(60), short(), Some(1)), "signed frames are all different");
    assert!(!made_ahead(Sizes::list(vec![60, 100]), short(), None));
    assert!(!made_ahead(Sizes::fixed(60), vec![], None));
    assert!(!made_ahead(Sizes::fixed(60), vec![("udp.sport", random(7))], None));
    assert!(!made_ahead(Sizes::fixed(60), vec![("udp.sport", step(1, 60_000))], None));
    let primes = vec![("udp.sport", step(1, 251)), ("udp.dport", step(1, 257))];
    assert!(!made_ahead(Sizes::fixed(60), primes, None));
    let f = frame("eth/ipv4/udp", 200);
    let far =
        |bit| VarSpec { bit, bits: 16, law: step(1, 2), turn: Turn::default(), every: 1, phase: 0 };
    let vars = vec![far(26 * 8), far(150 * 8)];
    let spec = Spec { frame: f, sizes: Sizes::fixed(200), vars, signature: None };
    assert!(Program::build(spec).unwrap().with_ring(1 << 20).is_none());
}

#[test]
fn varied_addresses_and_ports_keep_checksums_right() {
    let f = frame("eth/ipv4/udp", 60);
    let vars = vec![
        var(&f, "ipv4.src", random(1 << 20), 1),
        var(&f, "udp.sport", step(1024, 60_000), 1),
        var(&f, "ipv4.dst", step(0x3000_0000, 10), 60_000),
        var(&f, "eth.src", step(0x0200_0000_0000, 1000), 1),
    ];
    fast_equals_slow(&Spec { frame: f, sizes: Sizes::fixed(60), vars, signature: None });
}

#[test]
fn bits_within_octets_are_written_alone() {
    let f = frame("eth/vlan(id=5,pcp=3)/vlan/ipv4(dscp=10)/udp", 80);
    let vars = vec![
        var(&f, "vlan[0].id", step(1, 4094), 1),
        var(&f, "vlan[1].pcp", random(7), 1),
        var(&f, "ipv4.dscp", step(0, 64), 1),
        var(&f, "ipv4.ttl", step(1, 255), 1),
    ];
    fast_equals_slow(&Spec { frame: f, sizes: Sizes::fixed(80), vars, signature: Some(3) });
}

#[test]
fn lengths_follow_the_frame_and_the_signature_its_end() {
    for text in [
        "eth/ipv4/udp/inc",
        "eth/ipv4/tcp/pattern(0102ff)",
        "eth/ipv6/udp/random",
        "eth/ipv4/ipv6/udp/inc",
    ] {
        for signature in [None, Some(9)] {
            let f = frame(text, 1514);
            let vars = vec![var(&f, "eth.dst", random(1 << 40), 1)];
            for sizes in [
                Sizes::list((100..=1514).chain([60 + 54, 1514]).collect::<Vec<u32>>()),
                Sizes::uniform(100, 1514, 5),
                Sizes::weighted(&[(1514, 1.0), (100, 7.0), (590, 4.0)], 5),
            ] {
                fast_equals_slow(&Spec { frame: f.clone(), sizes, vars: vars.clone(), signature });
            }
        }
    }
}

#[test]
fn both_levels_of_a_tunnel_are_kept_right() {
    let f = frame("eth/ipv4/gre(checksum=auto)/ipv4/udp/inc", 200);
    let vars = vec![
        var(&f, "ipv4[0].src", random(1 << 30), 1),
        var(&f, "ipv4[1].src", random(1 << 30), 1),
        var(&f, "udp.dport", step(1, 60_000), 1),
    ];
    fast_equals_slow(&Spec { frame: f, sizes: Sizes::fixed(200), vars, signature: Some(0) });
    let f = frame("eth/ipv4/udp/vxlan(vni=7)/eth/ipv4/tcp/inc", 400);
    let vars =
        vec![var(&f, "vxlan.vni", step(0, 1 << 24), 1), var(&f, "tcp.seq", random(1 << 31), 1)];
    fast_equals_slow(&Spec {
        frame: f,
        sizes: Sizes::uniform(150, 400, 1),
        vars,
        signature: Some(65_535),
    });
}

#[test]
fn crcs_are_kept_right() {
    for (text, fields, signature) in [
        ("eth/ipv4/sctp/sctp_data/inc", vec!["sctp.sport", "ipv4.src"], None),
        ("eth/ipv6/sctp/sctp_data/inc", vec!["sctp_data.tsn"], Some(7)),
        ("eth/ipv4/sctp/sctp_data/inc", vec!["ipv4.ttl"], None),
        ("eth/ipv4/udp/bth/reth/inc", vec!["bth.psn", "ipv4.ttl"], None),
        ("eth/ipv6/udp/bth/inc", vec!["udp.sport", "ipv6.src"], None),
        ("eth/ipv4(ttl=3)/udp(checksum=0)/vxlan/eth/ipv4/sctp/inc", vec!["sctp.tag"], Some(1)),
    ] {
        let f = frame(text, 300);
        let laws = [step(1, 200), random(100)];
        let vars: Vec<VarSpec> =
            fields.iter().zip(&laws).map(|(name, law)| var(&f, name, law.clone(), 1)).collect();
        assert_eq!(f.crcs.len(), 1, "{text}");
        for sizes in [Sizes::fixed(300), Sizes::uniform(150, 300, 5)] {
            fast_equals_slow(&Spec { frame: f.clone(), sizes, vars: vars.clone(), signature });
        }
    }
}

#[test]
fn crcs_that_cannot_be_kept_right_are_refused() {
    let f = frame("eth/ipv4/udp/bth/inc", 200);
    let spec = |frame: &Frame, field: &str, signature| Spec {
        frame: frame.clone(),
        sizes: Sizes::fixed(frame.bytes.len() as u32),
        vars: vec![var(frame, field, step(1, 9), 1)],
        signature,
    };
    assert_eq!(Program::build(spec(&f, "bth.psn", Some(1))), Err(ProgramError::SignedCrc));
    let covered = frame("eth/ipv4/udp(checksum=auto)/bth/inc", 200);
    let refused = Program::build(spec(&covered, "bth.psn", None));
    assert_eq!(refused, Err(ProgramError::CoveredCrc { at: 40 }));
    // A variable outside the CRC's coverage is allowed.
    Program::build(spec(&covered, "eth.src", None)).unwrap();
}

#[test]
fn trexs_header_takes_the_place_of_the_signature() {
    for sizes in [Sizes::fixed(200), Sizes::fixed(199), Sizes::list(vec![120, 200, 131])] {
        let f = frame("eth/ipv6/udp", sizes.range().1);
        let vars = vec![var(&f, "udp.sport", random(60_000), 1)];
        let spec = Spec { frame: f.clone(), sizes, vars, signature: Some(300) };
        let mark = TrexMark { hw_id: 77, flow_seq: 9 };
        let program = Program::build(spec.clone()).unwrap().with_trex(Some(mark));
        equals_slow(&spec, &program);
    }
}

#[test]
fn a_packet_may_end_inside_of_the_signature() {
    for text in ["eth/ipv4/udp/vxlan/eth/ipv4/tcp/inc", "eth/ipv4/udp/vxlan/eth/ipv6/udp/inc"] {
        for padding in [1usize, 4, 7, 8, 11, 15, 16, 20] {
            let (outer, inner) = (frame(text, 200), frame(text, 200 - padding as u32));
            let octets = [&outer.bytes[..50], &inner.bytes[50..], &vec![0; padding]].concat();
            let f = Frame::dissect(octets);
            assert!(f.checksums.iter().any(|sum| sum.to == Some(200 - padding)));
            let vars = vec![
                var(&f, "vxlan.vni", step(0, 1 << 24), 1),
                var(&f, "eth[1].src", random(1 << 40), 1),
            ];
            fast_equals_slow(&Spec {
                frame: f,
                sizes: Sizes::fixed(200),
                vars,
                signature: Some(7),
            });
        }
    }
}

#[test]
fn addresses_of_128_bits_carry_over_64() {
    let f = frame("eth/ipv6/udp", 90);
    let first = (0x2001_0002_0000_0000u128 << 64) | u128::from(u64::MAX - 5);
    let vars = vec![
        var(&f, "ipv6.src", Law::Step { first, step: 3, count: 100, start: 2 }, 1),
        var(&f, "ipv6.dst", Law::List { values: [1, u128::MAX, 77 << 80].into(), start: 0 }, 2),
        var(&f, "ipv6.flow_label", random((1 << 20) - 1), 1),
    ];
    fast_equals_slow(&Spec { frame: f, sizes: Sizes::fixed(90), vars, signature: None });
}

#[test]
fn icmp_that_sums_to_nothing_is_not_sent_as_zero() {
    let f = frame("eth/ipv4/icmp(type=0,code=0,id=0,seq=0)", 60);
    let vars = vec![var(&f, "icmp.seq", step(0, 3), 1)];
    fast_equals_slow(&Spec { frame: f, sizes: Sizes::fixed(60), vars, signature: None });
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ffff() {
    let f = frame("eth/ipv4/udp", 60);
    let vars = vec![var(&f, "udp.sport", step(0, 65_536), 1)];
    let spec = Spec { frame: f, sizes: Sizes::fixed(60), vars, signature: None };
    let program = Program::build(spec.clone()).unwrap();
    let (mut cursor, mut scratch) = (program.cursor(0, 1, 1), Scratch::default());
    let (mut base, mut meta) =
        (vec![0; 64 * BATCH], [TxMeta { len: 60, ..TxMeta::default() }; BATCH]);
    let mut ffff = 0;
    for _ in 0..65_536 / BATCH {
        let run = Run { start: 0, count: BATCH };
        program.fill(&mut cursor, &mut scratch, (&mut base, 64, &mut meta), &run, None);
        for slot in base.chunks_exact(64) {
            assert_ne!(slot[40..42], [0, 0]);
            ffff += u32::from(slot[40..42] == [0xff, 0xff]);
        }
    }
    assert_eq!(ffff, 1, "one source port in 65,536 makes the sum 0xffff");
}

#[test]
fn a_field_may_be_given_by_offset() {
    let f = frame("eth/ipv4/udp/inc", 100);
    let vars = vec![
        VarSpec {
            bit: 50 * 8 + 3,
            bits: 9,
            law: random(500),
            turn: Turn::default(),
            every: 1,
            phase: 0,
        },
        VarSpec {
            bit: 61 * 8,
            bits: 24,
            law: random((1 << 24) - 1),
            turn: Turn::default(),
            every: 1,
            phase: 0,
        },
        VarSpec {
            bit: 71 * 8,
            bits: 64,
            law: Law::Random { min: 0, count: 0, limit: Some(7), seed: 4 },
            turn: Turn::default(),
            every: 1,
            phase: 0,
        },
    ];
    fast_equals_slow(&Spec { frame: f, sizes: Sizes::fixed(100), vars, signature: None });
}

#[test]
fn invalid_programs_are_refused() {
    let f = frame("eth/ipv4/udp", 60);
    let spec =
        |vars, signature| Spec { frame: f.clone(), sizes: Sizes::fixed(60), vars, signature };
    let v = |bit, bits, law| VarSpec { bit, bits, law, turn: Turn::default(), every: 1, phase: 0 };
    let refused = |s: Spec| Program::build(s).unwrap_err();
    assert_eq!(
        refused(spec(vec![v(59 * 8, 16, step(0, 2))], None)),
        ProgramError::OutsideFrame { index: 0, end: 61, shortest: 60 }
    );
    let twice = vec![v(26 * 8, 32, step(0, 2)), v(28 * 8, 16, step(0, 2))];
    assert_eq!(refused(spec(twice, None)), ProgramError::Overlap { first: 0, second: 1 });
    assert_eq!(
        refused(spec(vec![v(0, 8, step(0, 257))], None)),
        ProgramError::TooWide { index: 0, bits: 8, value: 256 }
    );
    assert_eq!(
        refused(spec(vec![v(44 * 8, 8, step(0, 2))], Some(1))),
        ProgramError::NoRoomForSignature { free: 15 }
    );
}

/// Draws from two lists, as [`Law::List`] does.
#[derive(Debug)]
struct Lists(u64, [Law; 2]);

impl Supply for Lists {
    fn is_ready(&mut self) -> bool {
        true
    }

    fn draw(&mut self, n: usize, out: &mut Supplied) {
        for (column, law) in out.iter_mut().zip(&self.1) {
            for (value, k) in column[..n].iter_mut().zip(self.0..) {
                *value = law.at(k);
            }
        }
        self.0 += n as u64;
    }
}

#[test]
fn supplied_values_make_the_frames_of_a_law_that_has_them() {
    let frame = frame("eth/vlan(id=7)/ipv4(dst=48.0.0.1)/udp", 96);
    let list = |values: &[u128]| Law::List { values: values.into(), start: 0 };
    let lists = [
        list(&[0x0a00_0105, 0x0a00_0107, 0xffff_ffff]),
        list(&[0x0253_0000_0001, 0xffff_ffff_ffff]),
    ];
    let sizes = Sizes::list(vec![96, 64, 80]);
    let program = |laws: [Law; 2]| {
        let [address, mac] = laws;
        let vars = vec![
            var(&frame, "ipv4.src", address, 1),
            var(&frame, "eth.src", mac, 1),
            var(&frame, "udp.sport", step(1024, 10), 1),
        ];
        let (frame, sizes) = (frame.clone(), sizes.clone());
        Program::build(Spec { frame, sizes, vars, signature: Some(3) }).unwrap()
    };
    let known = program(lists.clone());
    let supplied = program([Law::Supplied { column: 0 }, Law::Supplied { column: 1 }]);
    assert!(supplied.with_ring(1 << 20).is_none());
    let mut all = [Vec::new(), Vec::new()];
    for (program, all) in [known, supplied].into_iter().zip(&mut all) {
        let mut cursor = program.cursor(0, 1, 1);
        cursor.supply = Some(Box::new(Lists(0, lists.clone())));
        let mut scratch = Scratch::default();
        for count in [1, 40, 64, 7] {
            let (mut base, mut meta) = (vec![0; 96 * count], vec![TxMeta::default(); count]);
            for (j, m) in meta.iter_mut().enumerate() {
                m.len = sizes.at(cursor.next + j as u64);
            }
            let slots = (&mut base[..], 96, &mut meta[..]);
            let places = Run { start: 0, count };
            program.fill(&mut cursor, &mut scratch, slots, &places, Some(Nanos(5)));
            let frames = base.chunks(96).zip(&meta);
            all.extend(frames.map(|(slot, m)| slot[..m.len as usize].to_vec()));
        }
    }
    assert_eq!(all[0], all[1]);
}

#[test]
fn a_cursor_that_seeks_is_that_of_the_frame() {
    let frame = frame("eth/ipv4/udp", 96);
    let vars =
        vec![var(&frame, "ipv4.src", step(1, 7), 3), var(&frame, "udp.sport", random(100), 1)];
    let program =
        Program::build(Spec { frame, sizes: Sizes::fixed(96), vars, signature: None }).unwrap();
    let frame_of = |mut cursor: squall_program::Cursor| {
        let (mut base, mut meta) = (vec![0; 96], [TxMeta { len: 96, ..TxMeta::default() }]);
        let slots = (&mut base[..], 96, &mut meta[..]);
        let places = Run { start: 0, count: 1 };
        program.fill(&mut cursor, &mut Scratch::default(), slots, &places, None);
        base
    };
    for next in [0, 1, 5, 22, 1_000_003] {
        let mut cursor = program.cursor(9, 2, 1);
        program.seek(&mut cursor, next);
        assert_eq!(frame_of(cursor), frame_of(program.cursor(next, 2, 1)), "{next}");
    }
}
