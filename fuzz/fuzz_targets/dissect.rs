#![no_main]
//! Any octets as a frame, or as a packet of any link type: nothing panics, and the listed fields
//! are correct, also for another length.

use libfuzzer_sys::fuzz_target;
use squall_wire::Frame;

fuzz_target!(|data: &[u8]| {
    any_link(data);
    let mut frame = Frame::dissect(data.to_vec());
    assert_eq!(frame.bytes, data);
    check(&frame);
    for layer in frame.layers.clone() {
        for field in layer.header.fields {
            if let Ok(at) = frame.field(&format!("{}[-1].{}", layer.header.name, field.name)) {
                frame.value(&at);
            }
        }
    }
    for len in [frame.payload, data.len() / 2, data.len() + 100] {
        if frame.resize(len).is_ok() {
            assert_eq!(frame.bytes.len(), len);
            check(&frame);
        }
    }
});

/// Dissects the input as a packet on the link type in its first two octets, both complete and
/// truncated.
fn any_link(data: &[u8]) {
    let Some((&[high, low], packet)) = data.split_first_chunk() else { return };
    let link_type = u16::from_be_bytes([high, low]);
    let frame = Frame::dissect_link(link_type, packet.to_vec());
    check(&frame);
    for wire_len in [0, packet.len(), packet.len() + 1, 1 << 20] {
        assert!(!squall_wire::summary(link_type, packet, wire_len).is_empty());
        squall_wire::summary(1, packet, wire_len);
    }
    if let Ok(ethernet) = squall_wire::link::to_ethernet(link_type, packet) {
        assert!(ethernet.len() <= packet.len() + 14);
    }
}

fn check(frame: &Frame) {
    assert!(frame.payload <= frame.bytes.len() && frame.trailer <= frame.bytes.len());
    for l in &frame.lengths {
        let value = u16::from_be_bytes([frame.bytes[l.at], frame.bytes[l.at + 1]]);
        assert_eq!(usize::from(value), frame.bytes.len() - l.from);
    }
    for c in &frame.checksums {
        let value = u16::from_be_bytes([frame.bytes[c.at], frame.bytes[c.at + 1]]);
        assert_eq!(value, c.compute(&frame.bytes, frame.trailer), "{c:?} in {}", frame.names());
    }
    frame.summary();
}
