//! Extended communities of routes (RFC 4360) in a configuration, as octets.

use std::net::Ipv4Addr;

use crate::{
    devices::address,
    lldp::hex,
    read::{Node, Notes},
};

const CUSTOM: &str = "custom";
const BANDWIDTH: &str = "link_bandwidth_subtype";
const EVPN: &str = "transitive_evpn_type";
const TARGETS: [(&str, u8); 2] = [("route_target_subtype", 2), ("route_origin_subtype", 3)];

/// A choice of the schema, its type, and its subtypes.
type Kind = (&'static str, u8, &'static [(&'static str, u8)]);

/// Choices of the schema with their types, and their subtypes: RFC 4360 sections 3 and 4, RFC 5668,
/// RFC 9012 sections 4.1 and 4.3, draft-ietf-idr-link-bandwidth.
const KINDS: [Kind; 5] = [
    ("transitive_2octet_as_type", 0x00, &[TARGETS[0], TARGETS[1], (BANDWIDTH, 4)]),
    ("transitive_ipv4_address_type", 0x01, &TARGETS),
    ("transitive_4octet_as_type", 0x02, &TARGETS),
    ("transitive_opaque_type", 0x03, &[("color_subtype", 0x0b), ("encapsulation_subtype", 0x0c)]),
    ("non_transitive_2octet_as_type", 0x40, &[(BANDWIDTH, 4)]),
];

pub(crate) fn read(node: &Node<'_>, notes: &mut Notes) -> Option<[u8; 8]> {
    let choices = [&KINDS.map(|(name, ..)| name)[..], &[EVPN, CUSTOM]].concat();
    node.known(&[&["choice"], &choices[..]].concat(), notes);
    let (choice, inner) = node.member(&choices, Some(KINDS[0].0), notes)?;
    if choice == CUSTOM {
        return read_custom(&inner, notes);
    }
    let Some((_, kind, subtypes)) = KINDS.into_iter().find(|(name, ..)| *name == choice) else {
        notes.unsupported(&inner, "communities of EVPN; try custom");
        return None;
    };
    let names: Vec<&'static str> = subtypes.iter().map(|(name, _)| *name).collect();
    inner.known(&[&["choice"], &names[..]].concat(), notes);
    let (name, fields) = inner.member(&names, names.first().copied(), notes)?;
    let (_, subtype) = subtypes.iter().find(|(of, _)| *of == name)?;
    let value = read_value(choice, name, &fields, notes);
    let [a, b, c, d, e, f] = value;
    Some([kind, *subtype, a, b, c, d, e, f])
}

/// The octets after the types.
fn read_value(choice: &str, name: &str, fields: &Node<'_>, notes: &mut Notes) -> [u8; 6] {
    let word = |key, usual: u16, notes: &mut Notes| {
        fields.uint(key, u16::MAX.into(), notes).map_or(usual, |word| word as u16).to_be_bytes()
    };
    let long = |key, usual: u32, notes: &mut Notes| {
        fields.uint(key, u32::MAX.into(), notes).map_or(usual, |word| word as u32).to_be_bytes()
    };
    match (choice, name) {
        (_, BANDWIDTH) => {
            fields.known(&["global_2byte_as", "bandwidth"], notes);
            // Octets per second.
            let bandwidth = fields.float("bandwidth", notes).unwrap_or(0.0) as f32;
            joined(word("global_2byte_as", 100, notes), bandwidth.to_be_bytes())
        }
        ("transitive_2octet_as_type", _) => {
            fields.known(&["global_2byte_as", "local_4byte_admin"], notes);
            let asn = word("global_2byte_as", 100, notes);
            joined(asn, long("local_4byte_admin", 1, notes))
        }
        ("transitive_ipv4_address_type", _) => {
            fields.known(&["global_ipv4_admin", "local_2byte_admin"], notes);
            let admin = address(fields, "global_ipv4_admin", "an IPv4 address", notes);
            let admin = admin.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
            joined(admin, word("local_2byte_admin", 1, notes))
        }
        ("transitive_4octet_as_type", _) => {
            fields.known(&["global_4byte_as", "local_2byte_admin"], notes);
            let asn = long("global_4byte_as", 100, notes);
            joined(asn, word("local_2byte_admin", 1, notes))
        }
        (_, "color_subtype") => {
            fields.known(&["flags", "color"], notes);
            joined(word("flags", 0, notes), long("color", 0, notes))
        }
        _ => {
            fields.known(&["reserved", "tunnel_type"], notes);
            joined(long("reserved", 0, notes), word("tunnel_type", 1, notes))
        }
    }
}

/// Six octets of two parts.
fn joined<const A: usize, const B: usize>(first: [u8; A], second: [u8; B]) -> [u8; 6] {
    let mut octets = first.into_iter().chain(second);
    std::array::from_fn(|_| octets.next().unwrap_or(0))
}

fn read_custom(node: &Node<'_>, notes: &mut Notes) -> Option<[u8; 8]> {
    let keys = [("community_type", 1), ("community_subtype", 1), ("value", 6)];
    node.known(&keys.map(|(key, _)| key), notes);
    let mut octets = Vec::new();
    for (key, len) in keys {
        match node.get(key) {
            Some(_) => octets.extend(hex(node, key, len..=len, notes)?),
            None => octets.resize(octets.len() + len, 0),
        }
    }
    octets.try_into().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(value: &Value) -> Result<[u8; 8], Vec<String>> {
        let mut notes = Notes::default();
        let community = read(&Node::root(value), &mut notes);
        notes.end(community).map_err(|problems| problems.texts())
    }

    #[test]
    fn communities_have_the_octets_of_their_rfcs() {
        for (value, expected) in [
            (json!({}), [0, 2, 0, 100, 0, 0, 0, 1]),
            (
                json!({ "choice": "transitive_2octet_as_type", "transitive_2octet_as_type": {
                    "route_origin_subtype": { "global_2byte_as": 258, "local_4byte_admin": 7 },
                } }),
                [0, 3, 1, 2, 0, 0, 0, 7],
            ),
            (
                json!({ "transitive_2octet_as_type": { "link_bandwidth_subtype": {
                    "global_2byte_as": 1, "bandwidth": 1250000.0,
                } } }),
                [0, 4, 0, 1, 0x49, 0x98, 0x96, 0x80],
            ),
            (
                json!({ "transitive_ipv4_address_type": { "route_target_subtype": {
                    "global_ipv4_admin": "192.0.2.1", "local_2byte_admin": 9,
                } } }),
                [1, 2, 192, 0, 2, 1, 0, 9],
            ),
            (
                json!({ "transitive_4octet_as_type": { "route_target_subtype": {
                    "global_4byte_as": 65536,
                } } }),
                [2, 2, 0, 1, 0, 0, 0, 1],
            ),
            (
                json!({ "transitive_opaque_type": { "color_subtype": { "color": 200 } } }),
                [3, 0x0b, 0, 0, 0, 0, 0, 200],
            ),
            (
                json!({ "transitive_opaque_type": { "choice": "encapsulation_subtype" } }),
                [3, 0x0c, 0, 0, 0, 0, 0, 1],
            ),
            (json!({ "non_transitive_2octet_as_type": {} }), [0x40, 4, 0, 100, 0, 0, 0, 0]),
            (
                json!({ "custom": { "community_type": "80", "value": "0102030405ff" } }),
                [0x80, 0, 1, 2, 3, 4, 5, 0xff],
            ),
        ] {
            assert_eq!(of(&value), Ok(expected), "{value}");
        }
    }

    #[test]
    fn others_are_problems() {
        let evpn = of(&json!({ "transitive_evpn_type": {} })).expect_err("it is not supported");
        assert_eq!(evpn, ["transitive_evpn_type: not supported: communities of EVPN; try custom"]);
        let short = of(&json!({ "custom": { "value": "01" } })).expect_err("too short");
        assert_eq!(short, ["custom.value: found \"01\", expected 6 to 6 pairs of hex digits"]);
    }
}
