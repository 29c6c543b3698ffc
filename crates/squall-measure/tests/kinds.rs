//! Packets in the formats of other tools: which are recognized, and how they are counted.

use proptest::prelude::*;
use squall_measure::{
    FlowSettings, Flows,
    kinds::{Kind, Recognition, SenderClock, Sequenced, Wanted},
};
use squall_units::Nanos;

/// Ethernet, IPv4 10.0.0.1 > 10.0.0.2 (identification 0xffff), UDP 5000 > 6000.
fn udp(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0, 0xff, 0xff, 0, 0, 64, 17, 0, 0,
    ];
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88, 0x17, 0x70, 0, 0, 0, 0]);
    let len = payload.len() as u16;
    frame[16..18].copy_from_slice(&(28 + len).to_be_bytes());
    frame[38..40].copy_from_slice(&(8 + len).to_be_bytes());
    frame.extend(payload);
    frame
}

fn timeval(ns: u64) -> [u8; 8] {
    let (s, us) = ((ns / 1_000_000_000) as u32, (ns % 1_000_000_000 / 1000) as u32);
    [s.to_be_bytes(), us.to_be_bytes()].concat().try_into().unwrap()
}

/// A packet with the numbering of `kind`: number `sequence`, sent at `ns`.
fn packet(kind: Kind, sequence: u64, ns: u64) -> Vec<u8> {
    let number = (sequence as u32).to_be_bytes();
    let payload = match kind {
        Kind::Mgen => [
            &[0, 96, 2, 0, 0, 0, 0, 7][..],
            &number,
            &timeval(ns),
            &[0x17, 0x70, 1, 4, 10, 0, 0, 2, 0, 0, 0, 0],
            &[0; 64],
        ]
        .concat(),
        Kind::Crude => [&number[..], &timeval(ns), &[0, 0, 0, 3, 10, 0, 0, 2], &[0; 20]].concat(),
        Kind::Trex => [
            &[0; 20][..],
            &[0xab, 1, 5, 0],
            &(sequence as u32).to_le_bytes(),
            &(ns * 3).to_le_bytes(),
        ]
        .concat(),
        Kind::Iperf3 => [&timeval(ns)[..], &number, &[0x5a; 40]].concat(),
        Kind::Iperf3Wide => [&timeval(ns)[..], &sequence.to_be_bytes(), &[0x5a; 40]].concat(),
        Kind::Rtp => {
            let stamp = (ns / 125_000) as u32;
            [
                &[0x80, 0][..],
                &(sequence as u16).to_be_bytes(),
                &stamp.to_be_bytes(),
                &[1, 2, 3, 4],
                &[0; 160],
            ]
            .concat()
        }
        Kind::Squall => unreachable!("has no packets of its own"),
    };
    udp(&payload)
}

const KINDS: [Kind; 6] =
    [Kind::Mgen, Kind::Crude, Kind::Trex, Kind::Iperf3, Kind::Iperf3Wide, Kind::Rtp];
const START: u64 = 1_700_000_000_000_000_000;
const GAP: u64 = 20_000_000;
const DELAY: u64 = 300_000;

fn seen(wanted: Wanted, frames: impl IntoIterator<Item = (Vec<u8>, u64)>) -> Recognition {
    let mut flows = Flows::new(&FlowSettings { sequence: wanted, ..FlowSettings::default() }, None);
    for (frame, time) in frames {
        flows.observe(&frame, frame.len() as u64 + 4, Nanos(time));
    }
    assert_eq!(flows.table.len(), 1, "the frames are one flow");
    let flow = flows.table.iter().next().unwrap();
    flow.value.sequence.clone()
}

/// Receives packets with these numbers in this order, one every 20 ms, each sent on schedule.
fn known(kind: Kind, numbers: impl IntoIterator<Item = u64>) -> Box<Sequenced> {
    let frames = numbers.into_iter().enumerate();
    let frames =
        frames.map(|(i, n)| (packet(kind, n, START + n * GAP), START + i as u64 * GAP + DELAY));
    match seen(Wanted::Auto, frames) {
        Recognition::Known(known) => known,
        other => panic!("{kind:?} is {other:?}"),
    }
}

#[test]
fn every_kind_is_recognized_and_counted_from_its_first_packet() {
    for kind in KINDS {
        let known = known(kind, 5..205);
        assert_eq!((known.kind, known.unnumbered), (kind, 0), "{kind:?}");
        let counts = known.sequence.counts();
        assert_eq!(
            (counts.received, counts.unique, known.sequence.missing_so_far()),
            (200, 200, 0),
            "{kind:?}"
        );
        let clock = match kind {
            Kind::Trex => SenderClock::None,
            Kind::Rtp => SenderClock::Other,
            _ => SenderClock::Receiver,
        };
        assert_eq!(known.clock, clock, "{kind:?}");
        if kind != Kind::Trex {
            assert_eq!(
                (known.delay.ipdv().count(), known.delay.ipdv().max()),
                (199, 0),
                "{kind:?}"
            );
        }
    }
}

#[test]
fn loss_duplicates_and_order_are_exact_in_every_kind() {
    // 30 and 40..43 are lost, 50 arrives twice, and 60 arrives after 62.
    let mut numbers: Vec<u64> =
        (0..100).filter(|n| *n != 30 && !(40..43).contains(n) && *n != 60).collect();
    numbers.insert(numbers.iter().position(|n| *n == 50).unwrap(), 50);
    numbers.insert(numbers.iter().position(|n| *n == 63).unwrap(), 60);
    for kind in KINDS {
        let known = known(kind, numbers.iter().copied());
        let counts = known.sequence.counts();
        assert_eq!((counts.unique, counts.duplicates, counts.reordered), (96, 1, 1), "{kind:?}");
        assert_eq!(
            (known.sequence.missing_so_far(), known.sequence.restarts()),
            (4, 0),
            "{kind:?}"
        );
        let patterns = known.sequence.patterns();
        assert_eq!(
            (patterns.periods.periods, patterns.periods.longest, patterns.extents.max()),
            (2, 3, 2),
            "{kind:?}"
        );
    }
}

#[test]
fn a_sender_that_begins_anew_has_lost_nothing() {
    for kind in KINDS {
        let first = (0..500).map(|n| (packet(kind, n, START + n * GAP), START + n * GAP));
        let second = (0..50).map(|n| {
            let sent = START + (600 + n) * GAP;
            let mut frame = packet(kind, n, sent);
            if kind == Kind::Trex {
                // flow_seq, which TRex increments.
                frame[63] = 2;
            }
            (frame, sent)
        });
        let Recognition::Known(known) = seen(Wanted::Auto, first.chain(second)) else {
            panic!("{kind:?}")
        };
        // RTP needs a second packet as evidence, and the first one is not counted.
        let proof = u64::from(kind == Kind::Rtp);
        assert_eq!(
            (known.sequence.restarts(), known.sequence.missing_so_far()),
            (1, 0),
            "{kind:?}"
        );
        assert_eq!(
            (known.sequence.counts().unique, known.unnumbered),
            (550 - proof, proof),
            "{kind:?}"
        );
        assert_eq!(known.sequence.counts().duplicates, 0, "{kind:?}");
    }
}

#[test]
fn numbers_that_wrap_go_on() {
    for kind in KINDS {
        let wrap = if kind == Kind::Rtp { 1 << 16 } else { 1 << 32 };
        let known = known(kind, wrap - 60..wrap + 60);
        let counts = known.sequence.counts();
        assert_eq!((counts.unique, known.sequence.missing_so_far()), (120, 0), "{kind:?}");
        assert_eq!((known.sequence.restarts(), counts.reordered), (0, 0), "{kind:?}");
    }
}

#[test]
fn an_outage_is_loss_and_a_leap_in_no_time_is_not() {
    let sent = |n: u64| (packet(Kind::Mgen, n, START + n * GAP), START + n * GAP);
    let Recognition::Known(outage) = seen(Wanted::Auto, (0..100).chain(20_100..20_200).map(sent))
    else {
        panic!()
    };
    assert_eq!((outage.sequence.missing_so_far(), outage.sequence.restarts()), (20_000, 0));
    let leap = (0..100).chain(1_000_000..1_000_100).enumerate();
    let leap =
        leap.map(|(i, n)| (packet(Kind::Mgen, n, START + i as u64 * GAP), START + i as u64 * GAP));
    let Recognition::Known(leap) = seen(Wanted::Auto, leap) else { panic!() };
    assert_eq!((leap.sequence.missing_so_far(), leap.sequence.restarts()), (0, 1));
}

#[test]
fn packets_before_the_numbers_are_counted_apart() {
    // iperf3's client starts with a greeting.
    let hello = (udp(&[0x39, 0x38, 0x37, 0x36]), START);
    let rest = (1..100).map(|n| (packet(Kind::Iperf3, n, START + n * GAP), START + n * GAP));
    let Recognition::Known(known) = seen(Wanted::Auto, [hello].into_iter().chain(rest)) else {
        panic!()
    };
    assert_eq!(
        (known.kind, known.unnumbered, known.sequence.counts().received),
        (Kind::Iperf3, 1, 99)
    );
}

#[test]
fn a_clock_elsewhere_gives_variation_and_no_delay() {
    let frames = (0..100)
        .map(|n| (packet(Kind::Mgen, n, START + n * GAP), 77_000_000_000 + n * GAP + n % 2 * 5000));
    let Recognition::Known(known) = seen(Wanted::Auto, frames.clone()) else { panic!() };
    assert_eq!(
        (known.clock, known.delay.delay().count(), known.delay.negative()),
        (SenderClock::Other, 0, 0)
    );
    assert_eq!((known.delay.ipdv().count(), known.delay.ipdv().min()), (99, 5000));
    // The offset from the wall clock is known, and the sender's times are of the wall clock.
    let wall = Some((START - 77_000_000_000) as i64 + 1000);
    let mut flows = Flows::new(&FlowSettings { wall, ..FlowSettings::default() }, None);
    frames.for_each(|(frame, time)| flows.observe(&frame, 64, Nanos(time)));
    let Recognition::Known(known) = &flows.table.iter().next().unwrap().value.sequence else {
        panic!()
    };
    assert_eq!(
        (known.clock, known.delay.delay().min(), known.delay.delay().max()),
        (SenderClock::Wall, 1000, 6000)
    );
}

#[test]
fn a_kind_that_is_asked_for_needs_no_evidence_and_others_are_not_taken() {
    let rtp = (0..3).map(|n| (packet(Kind::Rtp, n * 7, START + n * GAP), START + n * GAP));
    assert!(matches!(seen(Wanted::Auto, rtp.clone()), Recognition::Looking(_)));
    let Recognition::Known(known) = seen(Wanted::Only(Kind::Rtp), rtp.clone()) else { panic!() };
    assert_eq!((known.sequence.counts().unique, known.sequence.missing_so_far()), (3, 12));
    assert!(matches!(seen(Wanted::None, rtp), Recognition::Unknown));
}

#[test]
fn other_counters_are_not_taken_for_any_kind() {
    // A DNS-like identification, constant octets, a counter at each offset in turn, and random
    // octets.
    let mut state = 1u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for at in 0..24 {
        let frames = (0..200u32).map(|n| {
            let mut payload = vec![0x80; 60];
            payload[at..at + 4].copy_from_slice(&n.to_be_bytes());
            // RTP also counts its timestamp, so another octet has to change.
            payload[4 + at % 2] ^= random();
            payload[9] = random();
            (udp(&payload), START + u64::from(n) * GAP)
        });
        assert!(
            matches!(seen(Wanted::Auto, frames.collect::<Vec<_>>()), Recognition::Unknown),
            "{at}"
        );
    }
    // A counter where iperf3 has microseconds, with another one after it; then a clock that stops.
    for step in [0, 1] {
        let frames = (0..200u32).map(|n| {
            let payload = [[0; 4], (n * step).to_be_bytes(), n.to_be_bytes(), [7; 4]].concat();
            (udp(&payload), START + u64::from(n) * GAP)
        });
        assert!(
            matches!(seen(Wanted::Auto, frames.collect::<Vec<_>>()), Recognition::Unknown),
            "{step}"
        );
    }
    let noise: Vec<_> =
        (0..200).map(|n| (udp(&[(); 60].map(|()| random())), START + n * GAP)).collect();
    assert!(matches!(seen(Wanted::Auto, noise), Recognition::Unknown));
}

proptest! {
    #[test]
    fn no_packet_makes_a_recogniser_panic(
        payloads in prop::collection::vec((0..6usize, prop::collection::vec(any::<u8>(), 0..60), any::<u64>()), 0..80),
        at in 0..80usize, wide in any::<u64>(),
    ) {
        for wanted in [Wanted::Auto, Wanted::Only(Kind::Rtp), Wanted::Only(Kind::Mgen), Wanted::Only(Kind::Trex)] {
            let mut flows = Flows::new(&FlowSettings { sequence: wanted, wall: Some(wide as i64), ..FlowSettings::default() }, None);
            for (kind, octets, time) in &payloads {
                let mut frame = packet(KINDS[*kind], *time, time >> 4);
                let at = at.min(frame.len());
                let end = (at + octets.len()).min(frame.len());
                frame[at..end].copy_from_slice(&octets[..end - at]);
                flows.observe(&frame, 64, Nanos(*time));
            }
            for flow in &flows.table {
                if let Recognition::Known(known) = &flow.value.sequence {
                    let counts = known.sequence.counts();
                    prop_assert_eq!(counts.received + known.unnumbered, flow.value.traffic.packets);
                }
            }
        }
    }
}
