//! Dissects octets into headers.

use squall_units::be16;

use crate::bits::get;
use crate::build::link;
use crate::frame::{Frame, LayerAt};
use crate::header::{Extent, FieldKind, HeaderDef, Proto, Space, find};
use crate::link::{ETHERNET, inner};
use crate::table::{ETHERTYPES, TPID_S};
use std::ops::Range;

/// Maximum number of layers. Real frames have fewer, but a frame of 64 KiB could hold 16,000 MPLS
/// labels.
const MAX_LAYERS: usize = 64;

pub(crate) fn dissect(bytes: Vec<u8>) -> Frame {
    let range = 0..bytes.len();
    let first = if is_counted(&bytes) { find("dot3") } else { Some(link()) };
    let (mut frame, ends, _) = headers(bytes, range.clone(), range.end, first);
    list_right_ones(&mut frame, &ends);
    frame
}

/// Whether a frame has a length in its EtherType field (IEEE 802.3 §3.2.6).
fn is_counted(bytes: &[u8]) -> bool {
    let length = bytes.get(12..14).map(|two| usize::from(be16(two, 0)));
    length.is_some_and(|length| (3..=1500).contains(&length) && 14 + length <= bytes.len())
}

/// Dissects a packet of any link type: the headers after the link header.
pub(crate) fn dissect_link(link_type: u16, bytes: Vec<u8>) -> Frame {
    if link_type == ETHERNET {
        return dissect(bytes);
    }
    let known = bytes.len();
    let (range, first) = match inner(link_type, &bytes) {
        Ok(inner) => (inner.octets, by_ethertype(inner.ethertype)),
        Err(_) => (0..known, None),
    };
    let (mut frame, ends, _) = headers(bytes, range, known, first);
    list_right_ones(&mut frame, &ends);
    frame
}

pub(crate) fn by_ethertype(ethertype: u16) -> Option<&'static HeaderDef> {
    let name = match u64::from(ethertype) {
        TPID_S | 0x9100 => "vlan",
        0x8848 => "mpls",
        number => ETHERTYPES.iter().find(|n| n.1 == number)?.0,
    };
    find(name)
}

/// Dissects the headers from `first` on in `range` of `bytes`; octets from `known` on are zeros in
/// place of octets that were not captured. Returns the headers, the end of each layer's packet, and
/// the next header if it is truncated.
pub(crate) fn headers(
    bytes: Vec<u8>,
    range: Range<usize>,
    known: usize,
    first: Option<&'static HeaderDef>,
) -> (Frame, Vec<usize>, Option<&'static HeaderDef>) {
    let mut frame = Frame {
        layers: Vec::new(),
        lengths: Vec::new(),
        checksums: Vec::new(),
        crcs: Vec::new(),
        payload: range.start,
        trailer: bytes.len() - range.end,
        bytes,
    };
    // The end of each layer's packet, according to its own length field and those of outer layers.
    let mut ends = Vec::new();
    let mut end = range.end;
    let mut counted = false;
    let mut next = first;
    while let Some(header) = next.filter(|_| frame.layers.len() < MAX_LAYERS) {
        let offset = frame.payload;
        let Some(len) = header_len(header, &frame.bytes[offset.min(known)..end.min(known)]) else {
            break;
        };
        if let Some(stop) = packet_end(header, offset, len, &frame.bytes[..end]) {
            end = stop;
            if !counted {
                counted = true;
                frame.trailer = frame.bytes.len() - end;
            }
        }
        let layer = LayerAt { header, offset, len };
        next = next_header(&layer, &frame.bytes[..end]);
        frame.layers.push(layer);
        ends.push(end);
        frame.payload = offset + len;
    }
    (frame, ends, next)
}

/// Lists the lengths and checksums that are correct.
fn list_right_ones(frame: &mut Frame, ends: &[usize]) {
    let word = |frame: &Frame, at: usize| be16(&frame.bytes, at);
    for i in 0..frame.layers.len() {
        if let Some(field) = frame.length_of(i)
            && frame.bytes.len().checked_sub(field.from) == Some(word(frame, field.at).into())
        {
            frame.lengths.push(field);
        }
    }
    for i in (0..frame.layers.len()).rev() {
        if let Some(field) = frame.checksum_of(i, ends[i])
            && word(frame, field.at) == field.compute(&frame.bytes, frame.trailer)
        {
            frame.checksums.push(field);
        }
        if let Some(field) = frame.crc_of(i, ends[i])
            && frame.payload + frame.layers[i].header.end_octets() <= ends[i]
            && field.is_right(&frame.bytes[..ends[i]])
        {
            frame.crcs.push(field);
        }
    }
}

/// Length of the header at the start of `octets`; `None` if it is a different header, or truncated.
fn header_len(header: &HeaderDef, octets: &[u8]) -> Option<usize> {
    if octets.len() < header.min_len {
        return None;
    }
    let first = *octets.first()?;
    let len = match header.proto {
        Proto::Ipv4 => {
            (first >> 4 == 4 && first & 15 >= 5).then_some(usize::from(first & 15) * 4)?
        }
        Proto::Ipv6 => (first >> 4 == 6).then_some(40)?,
        Proto::Tcp => (octets[12] >> 4 >= 5).then_some(usize::from(octets[12] >> 4) * 4)?,
        Proto::HopOpts | Proto::DstOpts | Proto::Routing => (usize::from(octets[1]) + 1) * 8,
        Proto::Arp => (octets[..6] == [0, 1, 8, 0, 6, 4]).then_some(28)?,
        // Version 0 without source routes (RFC 2784 §2.1).
        Proto::Gre => {
            (first & 0x4f == 0 && octets[1] & 7 == 0).then_some(4 + header.optional_len(first))?
        }
        Proto::Vxlan => (first & 8 != 0).then_some(8)?,
        Proto::Gtpu => (first >> 4 == 3).then(|| 8 + header.optional_len(first))?,
        _ if !(header.looks)(octets) => return None,
        _ => match header.extent {
            Extent::Fields => header.min_len + header.optional_len(first),
            Extent::List => {
                let fields = header.min_len + header.optional_len(first);
                // The frame's padding does not belong to the list.
                let end = header
                    .counting(first)
                    .map_or(octets.len(), |(at, from)| from + usize::from(be16(octets, at)));
                fields + header.list_len(first, octets.get(fields..end.min(octets.len()))?)
            }
            Extent::Counted { field, unit, plus } => {
                let (_, field) = header.field(field).expect("the table has the field");
                let len = get(octets, field.bit, field.bits) as usize * unit + plus;
                (len >= header.min_len).then_some(len)?
            }
        },
    };
    (len <= octets.len()).then_some(len)
}

/// The end of a packet according to its header's length field, if plausible.
fn packet_end(header: &HeaderDef, offset: usize, len: usize, bytes: &[u8]) -> Option<usize> {
    let word = |at: usize| usize::from(be16(bytes, offset + at));
    let end = offset
        + match header.proto {
            Proto::Ipv4 => word(2),
            Proto::Ipv6 => 40 + word(4),
            Proto::Udp => word(4),
            Proto::Gtpu => 8 + word(2),
            Proto::Arp => 28,
            _ => {
                let (at, from) = header.counting(*bytes.get(offset)?)?;
                from + word(at)
            }
        };
    // 0 in front of hop-by-hop options marks a jumbogram (RFC 2675).
    let jumbo = header.proto == Proto::Ipv6 && word(4) == 0 && bytes[offset + 6] == 0;
    (end >= offset + len && end <= bytes.len() && !jumbo).then_some(end)
}

fn has_sources(rest: &[u8], each: usize) -> bool {
    let count = rest.get(2..4).map(|two| usize::from(be16(two, 0)));
    count.is_some_and(|count| rest.len() == 4 + count * each)
}

/// The content after the last label, which does not name it: an IP header if its length is plausible; an
/// Ethernet frame without a control word (RFC 4448), recognized by its EtherType; otherwise `ip`,
/// which begins with the right version.
fn carried_by_mpls(ip: Option<&'static HeaderDef>, rest: &[u8]) -> Option<&'static HeaderDef> {
    let fits = |ip: &&HeaderDef| {
        header_len(ip, rest).is_some_and(|len| packet_end(ip, 0, len, rest).is_some())
    };
    let ethernet = || {
        let number = u64::from(be16(rest.get(..14)?, 12));
        ETHERTYPES.iter().any(|known| known.1 == number).then(|| find("eth"))?
    };
    ip.filter(fits).or_else(ethernet).or(ip)
}

fn next_header(layer: &LayerAt, bytes: &[u8]) -> Option<&'static HeaderDef> {
    let octets = &bytes[layer.offset..layer.offset + layer.len];
    let rest = &bytes[layer.offset + layer.len..];
    let after = rest.first().copied();
    let by_version = || match after? >> 4 {
        4 => find("ipv4"),
        6 => find("ipv6"),
        _ => None,
    };
    let header = layer.header;
    match header.proto {
        Proto::Mpls if octets[2] & 1 == 0 => find("mpls"),
        Proto::Mpls => carried_by_mpls(by_version(), rest),
        Proto::Vxlan => find("eth"),
        // Extension header type 0 means none.
        Proto::Gtpu if octets[0] & 4 != 0 && octets[11] != 0 => {
            header.chosen(octets[11].into(), rest)
        }
        Proto::Gtpu if octets[1] == 255 => by_version(),
        Proto::Plain
            if header.chooses == Some(Space::GtpExtension) && octets.last() == Some(&0) =>
        {
            by_version()
        }
        // Queries of IGMPv3 and MLDv2 are longer: they count sources.
        Proto::Igmp if octets[0] == 0x11 && has_sources(rest, 4) => find("igmp3_query"),
        Proto::Icmpv6 if octets[0] == 130 && has_sources(rest, 16) => find("mld2_query"),
        // A later fragment has no header.
        Proto::Ipv4 if be16(octets, 6) & 0x1fff != 0 => None,
        Proto::Fragment if be16(octets, 2) & 0xfff8 != 0 => None,
        Proto::Icmp => matches!(octets[0], 3 | 4 | 5 | 11 | 12).then(|| find("ipv4"))?,
        Proto::Icmpv6 => matches!(octets[0], 1..=4).then(|| find("ipv6"))?,
        _ if header.follows.is_some() => find(header.follows?),
        _ if header.peeks => header.chosen(after?.into(), rest),
        _ => layer.header.fields.iter().find_map(|f| {
            let FieldKind::Next(names) = f.kind else { return None };
            let number = get(octets, f.bit, f.bits) as u64;
            let name = match (layer.header.proto, number) {
                (Proto::Eth | Proto::Vlan, TPID_S | 0x9100) => "vlan",
                (Proto::Eth | Proto::Vlan | Proto::Gre, 0x8848) => "mpls",
                _ => {
                    let named = names.iter().find(|n| n.1 == number).and_then(|n| find(n.0));
                    // A response comes from the port that identifies the protocol.
                    let from = || (header.proto == Proto::Udp).then(|| get(octets, 0, 16) as u64);
                    return header
                        .chosen(number, rest)
                        .or_else(|| named.filter(|next| header.may_carry(next)))
                        .or_else(|| header.chosen(from()?, rest));
                }
            };
            find(name).filter(|h| layer.header.may_carry(h))
        }),
    }
}
