#![no_main]
//! Packets in the notations of other tools, which are scapy's text and hex dumps: nothing panics,
//! errors are within the text, and the resulting packet text can be parsed. The octets of any
//! frame, written as packet text, build that frame.

use libfuzzer_sys::fuzz_target;
use squall_wire::{Frame, Packet, parse_hex, scapy, to_hex};

fuzz_target!(|data: &[u8]| {
    reads_back(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    match scapy::parse(text) {
        Ok(read) => {
            let printed = read.packet.to_string();
            assert_eq!(Packet::parse(&printed).as_ref(), Ok(&read.packet), "{printed}");
            if let Ok(frame) = read.packet.build(None, &|_| unreachable!("it names no file"), 1) {
                reads_back(&frame.bytes);
            }
        }
        Err(error) => {
            assert!(
                text.get(error.at.clone()).is_some() && !error.hint.is_empty(),
                "{error} at {:?}",
                error.at
            )
        }
    }
    if let Ok(octets) = parse_hex(text) {
        assert_eq!(parse_hex(&to_hex(&octets)), Ok(octets));
    }
});

fn reads_back(octets: &[u8]) {
    let frame = Frame::dissect(octets.to_vec());
    for i in 0..frame.layers.len() {
        let fields = frame.fields(i, None);
        assert!(fields.is_sorted_by(|a, b| a.bit + a.bits <= b.bit), "{fields:?}");
        assert!(fields.last().is_none_or(|last| last.bit + last.bits <= 8 * octets.len()));
    }
    let Some(packet) = Packet::of_frame(octets) else { return };
    let printed = packet.to_string();
    assert_eq!(Packet::parse(&printed).as_ref(), Ok(&packet), "{printed}");
    let built =
        packet.build(None, &|_| unreachable!("it names no file"), 1).expect("it was built before");
    let (same, padding) = built.bytes.split_at(octets.len());
    assert!(same == octets && padding.iter().all(|&octet| octet == 0), "{printed}");
}
