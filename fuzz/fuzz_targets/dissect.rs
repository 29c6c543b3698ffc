#![no_main]
//! The octets of any frame: no panic, what is listed is right, and stays right at another length.

use libfuzzer_sys::fuzz_target;
use squall_wire::Frame;

fuzz_target!(|data: &[u8]| {
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
