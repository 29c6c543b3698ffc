//! Rare link types: packets are found, edited in place, and converted to Ethernet.

use squall_edit::{Editor, Edits, Encapsulation, Meta};
use squall_measure::flow::{Headers, Link};

use crate::packets::{L4, Spec, wrong};

const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

/// Link type, the octets before an IPv4 packet of 48 octets, and whether these include the sender's
/// MAC address.
fn links() -> Vec<(u16, Vec<u8>, bool)> {
    let (dst, src) = ([2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 9]);
    // The packet header, the sender's address, and the payload's own header.
    let nflog = [
        &[2, 0, 0, 0, 8, 0, 1, 0, 8, 0, 1, 0][..],
        &[16, 0, 8, 0, 0, 6, 0, 0],
        &src,
        &[0, 0, 52, 0, 9, 0],
    ];
    vec![
        (6, [&[0x10, 0x40][..], &dst, &src, &SNAP, &[8, 0]].concat(), true),
        (9, vec![0xff, 3, 0, 0x21], false),
        (10, [&[0x50][..], &dst, &src, &SNAP, &[8, 0]].concat(), true),
        (51, vec![0x11, 0, 0, 7, 0, 50, 0, 0x21], false),
        (107, vec![0x18, 0x41, 3, 0xcc], false),
        (117, [&[61, 2][..], &[0; 62]].concat(), false),
        (122, [&[0x10, 0][..], &dst, &[0x10, 0], &src, &SNAP, &[8, 0]].concat(), true),
        (239, nflog.concat(), true),
        (242, [&[0; 40][..], &[8, 0, 0, 0]].concat(), false),
    ]
}

fn edited(edits: &Edits, link_type: u16, octets: &[u8]) -> Vec<Vec<u8>> {
    let mut editor = Editor::new(edits, link_type).unwrap();
    let mut out = Vec::new();
    let meta = Meta { time_ns: 0, wire_len: octets.len() as u32, number: 1, side: None };
    editor.edit(octets, meta, &mut |octets, _| out.push(octets.to_vec()));
    out
}

#[test]
fn packets_are_edited_in_their_place() {
    let edits = Edits {
        pnat: vec!["10.0.0.0/8:172.16.0.0/12".parse().unwrap()],
        portmap: Some("80:8080".parse().unwrap()),
        ttl: Some("-1".parse().unwrap()),
        ..Edits::default()
    };
    let packet = Spec::new(L4::Udp).packet();
    let expected = edited(&edits, 101, &packet).remove(0);
    assert_ne!(expected, packet);
    for (link_type, front, _) in links() {
        let out = edited(&edits, link_type, &[&front[..], &packet].concat()).remove(0);
        assert_eq!(out, [&front[..], &expected].concat(), "{link_type}");
        assert_eq!(wrong(&out, Link::from(link_type)), None);
    }
}

#[test]
fn lengths_in_front_follow_and_addresses_stay() {
    let packet = Spec::new(L4::Udp).packet();
    let edits = |len: usize| Edits { truncate: Some(len as u32), ..Edits::default() };
    for (link_type, front, _) in links() {
        let out = edited(&edits(front.len() + 40), link_type, &[&front[..], &packet].concat());
        let mut expected = front.clone();
        match link_type {
            51 => expected[5] = 42,
            239 => expected[front.len() - 4] = 44,
            _ => {}
        }
        assert_eq!(out[0][..front.len()], expected, "{link_type}");
        let headers = Headers::parse(&out[0], Link::from(link_type));
        assert_eq!((headers.end as usize, headers.fault), (front.len() + 40, None), "{link_type}");
        assert_eq!(wrong(&out[0], Link::from(link_type)), None);
    }
}

#[test]
fn each_becomes_ethernet() {
    let packet = Spec::new(L4::Udp).packet();
    let edits = Edits { dlt: Some(Encapsulation::Ethernet), ..Edits::default() };
    for (link_type, front, has_src) in links() {
        let out = edited(&edits, link_type, &[&front[..], &packet].concat()).remove(0);
        assert_eq!(out[12..], [&[8, 0][..], &packet].concat(), "{link_type}");
        assert_eq!(out[6..12] == [2, 0, 0, 0, 0, 9], has_src, "{link_type}");
    }
}

#[test]
fn the_cut_of_a_snap_header_on_linux_cooked_is_no_length() {
    // Protocol 4 means LLC; it takes the place of the two octets that have the length in 802.3.
    let front = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 0, 4][..], &SNAP, &[8, 0]].concat();
    let packet = Spec::new(L4::Udp).packet();
    let edits = Edits { truncate: Some(front.len() as u32 + 40), ..Edits::default() };
    let out = edited(&edits, 113, &[&front[..], &packet].concat()).remove(0);
    assert_eq!(out[..front.len()], front);
}
