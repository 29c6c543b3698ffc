//! Captures of ports, with their filters translated to tcpdump expressions.

use crate::{
    packet::hex,
    read::{Node, Notes},
    translate::{CaptureInfo, PortInfo},
};

/// A field of a filter: name, first bit in the frame, and number of bits.
type Place = (&'static str, usize, usize);

const ETHERNET: &[Place] = &[("src", 48, 48), ("dst", 0, 48), ("ether_type", 96, 16)];
/// Fields of the outermost VLAN tag.
const VLAN: &[Place] =
    &[("priority", 112, 3), ("cfi", 115, 1), ("id", 116, 12), ("protocol", 128, 16)];
/// Fields of an IPv4 header that follows Ethernet without a VLAN tag.
const IPV4: &[Place] = &[
    ("version", 112, 4),
    ("header_length", 116, 4),
    ("priority", 120, 8),
    ("total_length", 128, 16),
    ("identification", 144, 16),
    ("reserved", 160, 1),
    ("dont_fragment", 161, 1),
    ("more_fragments", 162, 1),
    ("fragment_offset", 163, 13),
    ("time_to_live", 176, 8),
    ("protocol", 184, 8),
    ("header_checksum", 192, 16),
    ("src", 208, 32),
    ("dst", 240, 32),
];
const IPV6: &[Place] = &[
    ("version", 112, 4),
    ("traffic_class", 116, 8),
    ("flow_label", 124, 20),
    ("payload_length", 144, 16),
    ("next_header", 160, 8),
    ("hop_limit", 168, 8),
    ("src", 176, 128),
    ("dst", 304, 128),
];

pub(crate) fn read(root: &Node<'_>, ports: &[PortInfo], notes: &mut Notes) -> Vec<CaptureInfo> {
    let mut captures: Vec<CaptureInfo> = Vec::new();
    for node in root.list("captures", notes) {
        node.known(&["name", "port_names", "filters", "overwrite", "packet_size", "format"], notes);
        let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
        if captures.iter().any(|capture| capture.name == name) {
            notes.problem(
                &node.at("name").path,
                format!("{name:?} is also the name of another capture"),
            );
        }
        let port_names = node.texts("port_names", notes);
        if port_names.is_empty() {
            notes.problem(&node.at("port_names").path, "missing: expected names of ports");
        }
        for port in port_names.iter().filter(|name| !ports.iter().any(|port| port.name == **name)) {
            notes.problem(&node.at("port_names").path, format!("there is no port {port:?}"));
        }
        for port in
            port_names.iter().filter(|name| captures.iter().any(|c| c.port_names.contains(*name)))
        {
            notes.problem(
                &node.at("port_names").path,
                format!("port {port:?} has another capture already"),
            );
        }
        let filters: Vec<String> =
            node.list("filters", notes).iter().filter_map(|f| filter(f, notes)).collect();
        captures.push(CaptureInfo {
            name,
            port_names,
            pcapng: node.word("format", &["pcap", "pcapng"], Some("pcap"), notes) == Some("pcapng"),
            overwrite: node.flag("overwrite", true, notes),
            packet_size: node.uint("packet_size", 65_535, notes).map(|size| size as u32),
            filter: (!filters.is_empty()).then(|| filters.join(" and ")),
        });
    }
    captures
}

/// Translates the filters of a capture; `None` if there are none.
fn filter(node: &Node<'_>, notes: &mut Notes) -> Option<String> {
    let choices = ["custom", "ethernet", "vlan", "ipv4", "ipv6"];
    node.known(&[choices.as_slice(), &["choice"]].concat(), notes);
    let (choice, inner) = node.member(&choices, Some("custom"), notes)?;
    let (table, also): (&[Place], _) = match choice {
        "custom" => return custom(&inner, notes),
        "ethernet" => (ETHERNET, None),
        "vlan" => (VLAN, Some("ether[12:2] = 0x8100")),
        "ipv4" => (IPV4, Some("ether[12:2] = 0x0800")),
        _ => (IPV6, Some("ether[12:2] = 0x86dd")),
    };
    let names: Vec<&str> = table.iter().map(|place| place.0).chain(["pfc_queue"]).collect();
    inner.known(&names[..names.len() - usize::from(choice != "ethernet")], notes);
    if let Some(queue) = inner.get("pfc_queue") {
        notes.unsupported(&queue, "ports have no priority queues");
    }
    let mut terms: Vec<String> = also.map(str::to_owned).into_iter().collect();
    for (name, bit, bits) in table {
        let Some(field) = inner.get(name) else { continue };
        field.known(&["value", "mask", "negate"], notes);
        terms.extend(term(&field, *bit, *bits, notes));
    }
    (!terms.is_empty()).then(|| format!("({})", terms.join(" and ")))
}

fn custom(node: &Node<'_>, notes: &mut Notes) -> Option<String> {
    node.known(&["offset", "bit_length", "value", "mask", "negate"], notes);
    let offset = node.uint("offset", 65_535, notes).unwrap_or(0) as usize;
    let bits = node.uint("bit_length", 1024, notes).unwrap_or(8) as usize;
    if bits == 0 {
        notes.problem(&node.at("bit_length").path, "found 0, expected bits to compare");
        return None;
    }
    term(node, offset * 8, bits, notes).map(|term| format!("({term})"))
}

/// Translates the filter of one field. An all-zero mask, the schema's default, means that all bits
/// are compared.
fn term(node: &Node<'_>, bit: usize, bits: usize, notes: &mut Notes) -> Option<String> {
    let mut octets = |key: &str| {
        let text = node.text(key, notes).unwrap_or("00");
        let text = text.strip_prefix("0x").unwrap_or(text);
        let even = if text.len().is_multiple_of(2) { text.to_owned() } else { format!("0{text}") };
        let value = hex(&even);
        if value.is_none() {
            notes.problem(&node.at(key).path, "expected hex digits");
        }
        value
    };
    let (value, mask) = (octets("value")?, octets("mask")?);
    let from = bit / 8;
    let len = (bit + bits).div_ceil(8) - from;
    // Value and mask are right-aligned to the field.
    let shift = len * 8 - (bit - from * 8) - bits;
    let place = |number: &[u8]| {
        let mut out = vec![0u8; len];
        for i in 0..bits {
            let set = number
                .len()
                .checked_sub(1 + i / 8)
                .is_some_and(|at| number[at] >> (i % 8) & 1 == 1);
            let to = i + shift;
            if set {
                out[len - 1 - to / 8] |= 1 << (to % 8);
            }
        }
        out
    };
    let mask = if mask.iter().all(|octet| *octet == 0) { vec![0xff; len.max(1) + 1] } else { mask };
    let (value, mask) = (place(&value), place(&mask));
    let mut terms = Vec::new();
    let mut at = 0;
    while at < len {
        let size = match len - at {
            4.. => 4,
            2 | 3 => 2,
            _ => 1,
        };
        let number =
            |octets: &[u8]| octets[at..at + size].iter().fold(0u32, |n, o| n << 8 | u32::from(*o));
        let (value, mask) = (number(&value), number(&mask));
        let whole = u32::MAX >> (32 - 8 * size as u32);
        let place = format!("ether[{}:{size}]", from + at);
        match mask {
            0 => {}
            mask if mask == whole => terms.push(format!("{place} = {value:#x}")),
            mask => terms.push(format!("{place} & {mask:#x} = {:#x}", value & mask)),
        }
        at += size;
    }
    let all = terms.join(" and ");
    Some(if node.flag("negate", false, notes) { format!("not ({all})") } else { all })
}
