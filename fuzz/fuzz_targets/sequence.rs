#![no_main]
//! Packets of one flow with arrival times: the detection of sequence numbers does not panic, and
//! counts each packet once. Input: the requested kind of sequence number (one octet), then packets:
//! gap (16 bits, in us), length (8 bits), octets.

use libfuzzer_sys::fuzz_target;
use squall_measure::{
    FlowSettings, Flows,
    kinds::{Kind, Recognition, Wanted},
};
use squall_units::Nanos;

const WANTED: [Wanted; 8] = [
    Wanted::Auto,
    Wanted::Only(Kind::Squall),
    Wanted::Only(Kind::Mgen),
    Wanted::Only(Kind::Crude),
    Wanted::Only(Kind::Trex),
    Wanted::Only(Kind::Iperf3),
    Wanted::Only(Kind::Rtp),
    Wanted::None,
];

fuzz_target!(|data: &[u8]| {
    let Some((kind, mut rest)) = data.split_first() else { return };
    let sequence = WANTED[usize::from(kind % 8)];
    let mut flows =
        Flows::new(&FlowSettings { sequence, wall: Some(-5), ..FlowSettings::default() }, None);
    let mut time = 1 << 60;
    while let Some((&[high, low, len], more)) = rest.split_first_chunk() {
        let (payload, next) = more.split_at(usize::from(len).min(more.len()));
        let mut frame = vec![
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0, 0xff, 0xff, 0, 0, 64, 17, 0, 0,
        ];
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88, 0x17, 0x70, 0, 0, 0, 0]);
        frame[16..18].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
        frame[38..40].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        frame.extend(payload);
        time += u64::from(u16::from_be_bytes([high, low])) * 1000;
        flows.observe(&frame, frame.len() as u64 + 4, Nanos(time));
        rest = next;
    }
    for flow in &flows.table {
        if let Recognition::Known(known) = &flow.value.sequence {
            let counts = known.sequence.counts();
            assert_eq!(counts.received + known.unnumbered, flow.value.traffic.packets);
            assert_eq!(counts.unique + counts.duplicates + counts.too_old, counts.received);
            assert_eq!(known.sequence.patterns().periods.lost, known.sequence.missing_so_far());
        }
    }
});
