//! SCTP's CRC covers its ports, but nothing of the IP header.

use squall_edit::{Editor, Edits, Meta, Reason};
use squall_measure::flow::{Headers, Link};

use crate::packets::{L4, Spec, wrong};

fn edited(edits: &Edits, octets: &[u8], wire_len: u32) -> (Vec<u8>, squall_edit::Counts) {
    let mut editor = Editor::new(edits, 1).unwrap();
    let mut out = Vec::new();
    let meta = Meta { time_ns: 0, wire_len, number: 1, side: None };
    editor.edit(octets, meta, &mut |octets, _| out = octets.to_vec());
    (out, editor.counts().clone())
}

fn ports(octets: &[u8]) -> (u16, u16) {
    let key = Headers::parse(octets, Link::Ethernet).key;
    (key.src_port, key.dst_port)
}

fn crc(octets: &[u8]) -> u32 {
    let at = Headers::parse(octets, Link::Ethernet).transport as usize + 8;
    u32::from_le_bytes(octets[at..at + 4].try_into().unwrap())
}

fn portmap() -> Edits {
    Edits { portmap: Some("80:8080,40000:3".parse().unwrap()), ..Edits::default() }
}

#[test]
fn ports_change_and_a_crc_stays_as_right_or_as_wrong() {
    for v6 in [false, true] {
        let right = Spec { v6, payload: 1001, ..Spec::new(L4::Sctp) }.frame();
        let len = right.len() as u32;
        let (of_right, counts) = edited(&portmap(), &right, len);
        assert_eq!((ports(&of_right), wrong(&of_right, Link::Ethernet)), ((3, 8080), None));
        assert_eq!(counts.changed, 1);
        let at = Headers::parse(&right, Link::Ethernet).transport as usize;
        let mut bad = right.clone();
        bad[at + 9] ^= 0x5a;
        let (of_bad, _) = edited(&portmap(), &bad, len);
        assert_eq!(crc(&of_bad), crc(&of_right) ^ 0x5a00);
        // For a packet truncated by a snap length, the length on the wire applies.
        let (of_cut, counts) = edited(&portmap(), &right[..at + 12], len);
        assert_eq!((crc(&of_cut), ports(&of_cut)), (crc(&of_right), (3, 8080)));
        assert_eq!(counts.refused, [0; Reason::ALL.len()]);
        // A missing CRC stays missing, unless the edits request one.
        bad[at + 8..at + 12].fill(0);
        assert_eq!(crc(&edited(&portmap(), &bad, len).0), 0);
        let fixed = Edits { fixcsum: true, ..portmap() };
        assert_eq!(edited(&fixed, &bad, len).0, of_right);
    }
}

#[test]
fn a_first_fragment_leaves_the_packets_length_unknown() {
    let mut frame = Spec { payload: 300, ..Spec::new(L4::Sctp) }.frame();
    frame[20] |= 0x20;
    let (out, counts) = edited(&portmap(), &frame, frame.len() as u32);
    assert_eq!((ports(&out), crc(&out)), ((3, 8080), crc(&frame)));
    assert_eq!(counts.refused(Reason::Cut), 1);
}
