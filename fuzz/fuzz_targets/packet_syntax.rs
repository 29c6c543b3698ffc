#![no_main]
//! Packet text: nothing panics, errors are within the text, printed text can be parsed again, and
//! the frame that it builds is correct.

use libfuzzer_sys::fuzz_target;
use squall_wire::{Frame, Packet};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let packet = match Packet::parse(text) {
        Ok(packet) => packet,
        Err(e) => {
            assert!(text.get(e.at.clone()).is_some(), "{e} at {:?}", e.at);
            assert!(!e.hint.is_empty() && !e.expected.is_empty(), "{e}");
            return;
        }
    };
    let printed = packet.to_string();
    assert_eq!(Packet::parse(&printed).as_ref(), Ok(&packet), "{printed}");

    let file = |path: &str| Ok(path.as_bytes().to_vec());
    for len in [None, Some(60), Some(1514)] {
        let Ok(frame) = packet.build(len, &file, 1) else { continue };
        if packet.truncated().is_none() {
            assert_eq!(len.unwrap_or(frame.bytes.len()), frame.bytes.len());
        }
        check(&frame);
        check(&Frame::dissect(frame.bytes));
    }
});

fn check(frame: &Frame) {
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
