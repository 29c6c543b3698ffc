//! Addresses that are set in place.

use std::net::IpAddr;

use proptest::{collection::vec, prelude::*};
use squall_edit::{Editor, Edits, Meta, set_addresses};
use squall_measure::flow::{Headers, Link};

use crate::packets::{L4, Spec, wrong};

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

/// The frame as fragments with 8 octets of data each.
fn fragments(frame: &[u8], v6: bool) -> Vec<Vec<u8>> {
    let edits = Edits { fragment: Some(if v6 { 56 } else { 28 }), ..Edits::default() };
    let mut all = Vec::new();
    let meta = Meta { time_ns: 0, wire_len: frame.len() as u32, number: 1, side: None };
    Editor::new(&edits, 1).unwrap().edit(frame, meta, &mut |octets, _| all.push(octets.to_vec()));
    all
}

#[test]
fn checksums_stay_right_in_whole_packets_and_in_fragments() {
    let tcp = L4::Tcp { seq: 1, ack: 2, flags: 0x18, sack: None };
    for (l4, v6, tags) in [(tcp, false, 0), (tcp, true, 1), (L4::Udp, false, 2), (L4::Udp, true, 0)]
    {
        let (source, destination) = match v6 {
            true => (address("2001:db8:7::1"), address("2001:db8:8::ffff")),
            false => (address("192.0.2.77"), address("198.51.100.3")),
        };
        let before = Spec { v6, tags, payload: 31, ..Spec::new(l4) }.frame();
        let mut after = before.clone();
        set_addresses(&mut after, source, destination);
        assert_eq!(wrong(&after, Link::Ethernet), None, "{l4:?}");
        let key = Headers::parse(&after, Link::Ethernet).key;
        assert_eq!((key.src_ip(), key.dst_ip()), (source, destination));
        let mut pieces = fragments(&before, v6);
        assert!(pieces.len() > 3);
        pieces.iter_mut().for_each(|piece| set_addresses(piece, source, destination));
        assert_eq!(pieces, fragments(&after, v6), "{l4:?}");
    }
}

#[test]
fn an_end_without_a_new_address_or_with_one_of_another_family_keeps_its_own() {
    let before = Spec::new(L4::Udp).frame();
    let mut frame = before.clone();
    set_addresses(&mut frame, None, address("2001:db8::9"));
    assert_eq!(frame, before);
    set_addresses(&mut frame, None, address("10.0.0.9"));
    let key = Headers::parse(&frame, Link::Ethernet).key;
    assert_eq!((key.src_ip(), key.dst_ip()), (address("10.0.0.1"), address("10.0.0.9")));
}

proptest! {
    #[test]
    fn any_octets_are_no_panic(mut frame in vec(any::<u8>(), 0..120), v6 in any::<bool>()) {
        if let Some(kind) = frame.get_mut(12..15) {
            kind.copy_from_slice(if v6 { &[0x86, 0xdd, 0x60] } else { &[8, 0, 0x45] });
        }
        set_addresses(&mut frame, address("10.0.0.9"), address("10.0.0.8"));
        set_addresses(&mut frame, address("2001:db8::9"), address("2001:db8::8"));
    }
}
