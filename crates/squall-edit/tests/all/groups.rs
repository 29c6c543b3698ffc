//! The MAC address of a multicast group depends on its IP address.

use squall_edit::{Editor, Edits, Meta};

use crate::packets::{L4, SERVER, Spec};

/// A frame to the IP address `dst` and the MAC address `mac`.
fn frame(mac: [u8; 6], dst: &str) -> Vec<u8> {
    let dst: std::net::IpAddr = dst.parse().unwrap();
    let mut frame = Spec { v6: dst.is_ipv6(), ..Spec::new(L4::Udp) }.frame();
    frame[..6].copy_from_slice(&mac);
    match dst {
        std::net::IpAddr::V4(dst) => frame[30..34].copy_from_slice(&dst.octets()),
        std::net::IpAddr::V6(dst) => frame[38..54].copy_from_slice(&dst.octets()),
    }
    frame
}

fn mac_after(edits: &Edits, octets: &[u8]) -> [u8; 6] {
    let mut editor = Editor::new(edits, 1).unwrap();
    let mut out = Vec::new();
    let meta = Meta { time_ns: 0, wire_len: octets.len() as u32, number: 1, side: None };
    editor.edit(octets, meta, &mut |octets, _| out = octets.to_vec());
    *out.first_chunk().unwrap()
}

fn map(map: &str) -> Edits {
    Edits { pnat: vec![map.parse().unwrap()], ..Edits::default() }
}

#[test]
fn the_mac_address_of_a_group_follows_it() {
    let all_but_one_bit = "224.0.0.0/4:239.200.0.0/16";
    for (mac, dst, edits, after) in [
        ([1, 0, 0x5e, 0, 0, 251], "224.0.0.251", map(all_but_one_bit), [1, 0, 0x5e, 72, 0, 251]),
        (
            [1, 0, 0x5e, 1, 2, 3],
            "239.129.2.3",
            map("239.0.0.0/8:232.0.0.0/8"),
            [1, 0, 0x5e, 1, 2, 3],
        ),
        (
            [0x33, 0x33, 0, 0, 0, 0xfb],
            "ff02::fb",
            map("[ff00::/8]:[ff05::1:2:3]"),
            [0x33, 0x33, 0, 2, 0, 3],
        ),
        // A host's MAC address becomes the group's. It stays if the new address is not a group.
        (SERVER, "10.0.0.9", map("10.0.0.9/32:225.1.2.3/32"), [1, 0, 0x5e, 1, 2, 3]),
        (SERVER, "2001:db8::9", map("[2001:db8::/32]:[ff0e::1:2]"), [0x33, 0x33, 0, 1, 0, 2]),
        (
            [1, 0, 0x5e, 0, 0, 251],
            "224.0.0.251",
            map("224.0.0.0/4:10.0.0.0/8"),
            [1, 0, 0x5e, 0, 0, 251],
        ),
        // A MAC address that is deliberately not the group's (RFC 6085) stays.
        (SERVER, "224.0.0.251", map(all_but_one_bit), SERVER),
        // Explicit edits have priority.
        (
            SERVER,
            "10.0.0.9",
            Edits {
                enet_dmac: Some("00:11:22:33:44:55".parse().unwrap()),
                ..map("10.0.0.0/8:225.1.2.3/32")
            },
            [0, 0x11, 0x22, 0x33, 0x44, 0x55],
        ),
    ] {
        assert_eq!(mac_after(&edits, &frame(mac, dst)), after, "{dst} {mac:x?}");
    }
}

#[test]
fn a_router_of_labels_keeps_its_mac_address() {
    let mut octets = Spec { mpls: true, ..Spec::new(L4::Udp) }.frame();
    octets[34..38].copy_from_slice(&[10, 0, 0, 9]);
    assert_eq!(mac_after(&map("10.0.0.9/32:225.1.2.3/32"), &octets), SERVER);
}
