//! Messages of MLD as IPv6 packets (RFC 2710 section 3, RFC 3810 section 5).

use std::net::{IpAddr, Ipv6Addr};

use squall_units::{Nanos, be16};
use squall_wire::checksum::{fold, sum};

use crate::{
    multicast::{GroupMessage, GroupVersion, Query, code, records},
    packets::pseudo,
};

const QUERY: u8 = 130;
const REPORT: u8 = 131;
const DONE: u8 = 132;
const RECORDS: u8 = 143;
/// Hop-by-hop header with the option Router Alert for MLD (RFC 2711) and padding.
const HOP_BY_HOP: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Octets of IPv6 and hop-by-hop headers.
const HEADER: usize = 48;
const MILLI: u64 = 1_000_000;

/// Whether an IPv6 packet is one of MLD, as far as its headers tell.
pub fn is_mld(packet: &[u8]) -> bool {
    let kind = |at: usize| packet.get(at).is_some_and(|kind| is_type(*kind));
    match packet.get(6) {
        Some(0) => {
            let skip = packet.get(41).map_or(0, |eights| 8 + 8 * usize::from(*eights));
            packet.get(40) == Some(&58) && kind(40 + skip)
        }
        Some(58) => kind(40),
        _ => false,
    }
}

fn is_type(kind: u8) -> bool {
    matches!(kind, QUERY | REPORT | DONE | RECORDS)
}

/// Parses an IPv6 packet of MLD. Returns its source and its message.
///
/// # Errors
/// The reason for which nodes ignore the packet (RFC 3810 section 6.2).
pub fn parse(packet: &[u8]) -> Result<(Ipv6Addr, GroupMessage), &'static str> {
    let (header, rest) = packet.split_first_chunk::<40>().ok_or("truncated")?;
    let body = rest.get(..be16(header, 4).into()).ok_or("truncated")?;
    if header[6] != 0 {
        return Err("no_router_alert");
    }
    let skip = 8 + 8 * usize::from(*body.get(1).ok_or("truncated")?);
    let (options, mld) = body.split_at_checked(skip).ok_or("truncated")?;
    if options[0] != 58 || !has_router_alert(&options[2..]) {
        return Err("no_router_alert");
    }
    if header[7] != 1 {
        return Err("wrong_hop_limit");
    }
    if mld.len() < 8 || (mld[0] != RECORDS && mld.len() < 24) {
        return Err("truncated");
    }
    if fold(pseudo(header, mld.len()) + sum(mld)) != 0xffff {
        return Err("bad_checksum");
    }
    let source = address(header, 8).ok_or("truncated")?;
    let group = address(mld, 8);
    let is_group = group.is_some_and(|group| group.is_multicast());
    let message = match (mld[0], group) {
        (QUERY, Some(group)) => {
            if !source.is_unicast_link_local() {
                return Err("not_link_local");
            }
            let query = query(mld, group)?;
            // Nodes accept a general query to one of their own addresses (section 5.1.15).
            let to = address(header, 24).ok_or("truncated")?;
            if query.group.is_none() && to != ALL_NODES && to.is_multicast() {
                return Err("wrong_destination");
            }
            GroupMessage::Query(query)
        }
        (REPORT | DONE, _) if !is_group => return Err("not_a_group"),
        (REPORT, Some(group)) => {
            GroupMessage::Report { version: GroupVersion::Two, group: group.into() }
        }
        (DONE, Some(group)) => GroupMessage::Leave(group.into()),
        (RECORDS, _) => GroupMessage::Records(records::<16>(mld)?),
        _ => return Err("unknown_type"),
    };
    Ok((source, message))
}

fn has_router_alert(mut options: &[u8]) -> bool {
    while let Some((&kind, rest)) = options.split_first() {
        if kind == 0 {
            options = rest;
            continue;
        }
        let Some(len) = rest.first() else { return false };
        if kind == 5 && rest.starts_with(&[2, 0, 0]) {
            return true;
        }
        options = rest.get(1 + usize::from(*len)..).unwrap_or_default();
    }
    false
}

fn query(mld: &[u8], group: Ipv6Addr) -> Result<Query, &'static str> {
    if !group.is_unspecified() && !group.is_multicast() {
        return Err("not_a_group");
    }
    let field = u64::from(be16(mld, 4));
    // RFC 3810 section 8.1: lengths between those of the versions are ignored.
    let (version, millis) = match mld.len() {
        24 => (GroupVersion::Two, field),
        28.. if field < 0x8000 => (GroupVersion::Three, field),
        28.. => (GroupVersion::Three, (field & 0xfff | 0x1000) << ((field >> 12 & 7) + 3)),
        _ => return Err("bad_length"),
    };
    let mut query = Query {
        version,
        max_response: Nanos(millis * MILLI),
        group: (!group.is_unspecified()).then_some(group.into()),
        sources: Vec::new(),
        suppress: false,
        robustness: 0,
        interval: None,
    };
    if version == GroupVersion::Three {
        query.read_rest::<16>(&mld[24..])?;
    }
    Ok(query)
}

fn address(octets: &[u8], at: usize) -> Option<Ipv6Addr> {
    octets.get(at..)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
}

/// Where a message goes.
pub fn destination(message: &GroupMessage) -> Ipv6Addr {
    match message {
        GroupMessage::Query(query) => query.group.as_ref().map_or(ALL_NODES, v6),
        GroupMessage::Report { group, .. } => v6(group),
        GroupMessage::Leave(_) => ALL_ROUTERS,
        GroupMessage::Records(_) => V2_ROUTERS,
    }
}

fn v6(address: &IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
        IpAddr::V6(address) => *address,
    }
}

/// Appends the IPv6 packet of a message. Addresses of IPv4 are written as ::.
pub fn write(source: Ipv6Addr, message: &GroupMessage, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0x60, 0, 0, 0, 0, 0, 0, 1]);
    out.extend_from_slice(&source.octets());
    out.extend_from_slice(&destination(message).octets());
    out.extend_from_slice(&HOP_BY_HOP);
    let push = |address: &IpAddr, out: &mut Vec<u8>| {
        out.extend_from_slice(&v6(address).octets());
    };
    match message {
        GroupMessage::Query(query) => write_query(query, out),
        GroupMessage::Report { group, .. } => {
            out.extend_from_slice(&[REPORT, 0, 0, 0, 0, 0, 0, 0]);
            push(group, out);
        }
        GroupMessage::Leave(group) => {
            out.extend_from_slice(&[DONE, 0, 0, 0, 0, 0, 0, 0]);
            push(group, out);
        }
        GroupMessage::Records(records) => {
            out.extend_from_slice(&[RECORDS, 0, 0, 0, 0, 0]);
            out.extend_from_slice(&(records.len() as u16).to_be_bytes());
            for record in records {
                out.extend_from_slice(&[record.kind as u8, 0]);
                out.extend_from_slice(&(record.sources.len() as u16).to_be_bytes());
                push(&record.group, out);
                record.sources.iter().for_each(|source| push(source, out));
            }
        }
    }
    let packet = &mut out[at..];
    let body = packet.len() - 40;
    packet[4..6].copy_from_slice(&(body as u16).to_be_bytes());
    let (header, message) = packet.split_at_mut(HEADER);
    let check = !fold(pseudo(header, message.len()) + sum(message));
    message[2..4].copy_from_slice(&check.to_be_bytes());
}

fn write_query(query: &Query, out: &mut Vec<u8>) {
    let millis = query.max_response.0 / MILLI;
    let field = match (query.version, millis) {
        (GroupVersion::Three, 0x8000..) => float(millis),
        _ => millis.min(0xffff) as u16,
    };
    out.extend_from_slice(&[QUERY, 0, 0, 0]);
    out.extend_from_slice(&field.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&query.group.as_ref().map_or(Ipv6Addr::UNSPECIFIED, v6).octets());
    if query.version == GroupVersion::Three {
        let interval = query.interval.map_or(0, |interval| code(interval.0 / Nanos::SECOND.0));
        out.extend_from_slice(&[u8::from(query.suppress) << 3 | query.robustness.min(7), interval]);
        out.extend_from_slice(&(query.sources.len() as u16).to_be_bytes());
        query.sources.iter().for_each(|source| out.extend_from_slice(&v6(source).octets()));
    }
}

/// The 16-bit floating-point code of a time of at least 32768 ms (RFC 3810 section 5.1.3).
fn float(millis: u64) -> u16 {
    for exponent in 0..8u32 {
        let mantissa = millis >> (exponent + 3);
        if mantissa < 0x2000 {
            return 0x8000 | (exponent as u16) << 12 | (mantissa & 0xfff) as u16;
        }
    }
    u16::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multicast::{
        Record,
        RecordKind::{Allow, IsExclude},
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn written(message: &GroupMessage) -> Vec<u8> {
        let mut packet = Vec::new();
        write("fe80::7".parse().unwrap(), message, &mut packet);
        packet
    }

    fn query() -> Query {
        Query {
            version: GroupVersion::Three,
            max_response: Nanos(40_000 * MILLI),
            group: Some(ip("ff3e::1:2")),
            sources: vec![ip("2001:db8::1")],
            suppress: false,
            robustness: 2,
            interval: Some(Nanos(125_000_000_000)),
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let older = Query {
            version: GroupVersion::Two,
            max_response: Nanos(10_000 * MILLI),
            group: None,
            sources: Vec::new(),
            robustness: 0,
            interval: None,
            ..query()
        };
        let records = vec![
            Record { kind: IsExclude, group: ip("ff3e::1"), sources: vec![] },
            Record { kind: Allow, group: ip("ff3e::2"), sources: vec![ip("2001:db8::1")] },
        ];
        for message in [
            GroupMessage::Query(query()),
            GroupMessage::Query(older),
            GroupMessage::Report { version: GroupVersion::Two, group: ip("ff3e::1") },
            GroupMessage::Leave(ip("ff3e::1")),
            GroupMessage::Records(records),
        ] {
            let packet = written(&message);
            assert!(is_mld(&packet));
            assert_eq!(parse(&packet), Ok(("fe80::7".parse().unwrap(), message)));
            assert_eq!(packet[7], 1, "hop limit");
            for len in 0..packet.len() {
                assert!(parse(&packet[..len]).is_err(), "{len} octets of {packet:?}");
            }
        }
    }

    #[test]
    fn hostile_packets_are_ignored_with_a_reason() {
        let message = GroupMessage::Query(Query { group: None, sources: vec![], ..query() });
        let changed = |changes: &[(usize, u8)]| {
            let mut packet = written(&message);
            changes.iter().for_each(|(at, to)| packet[*at] = *to);
            packet[50..52].fill(0);
            let check = !fold(pseudo(&packet, packet.len() - 48) + sum(&packet[48..]));
            packet[50..52].copy_from_slice(&check.to_be_bytes());
            parse(&packet).map(|_| ())
        };
        assert_eq!(changed(&[]), Ok(()));
        assert_eq!(changed(&[(7, 64)]), Err("wrong_hop_limit"));
        assert_eq!(changed(&[(8, 0x20)]), Err("not_link_local"));
        assert_eq!(changed(&[(39, 9)]), Err("wrong_destination"));
        assert_eq!(changed(&[(24, 0xfe), (25, 0x80)]), Ok(()), "to an address of a node");
        assert_eq!(changed(&[(42, 1), (43, 255)]), Err("no_router_alert"));
        assert_eq!(changed(&[(6, 58)]), Err("no_router_alert"));
        assert_eq!(changed(&[(41, 200)]), Err("truncated"));
        assert_eq!(changed(&[(56, 0x20)]), Err("not_a_group"));
        assert_eq!(changed(&[(75, 1)]), Err("truncated"), "a source that is not there");
        let mut broken = written(&message);
        broken[52] ^= 1;
        assert_eq!(parse(&broken), Err("bad_checksum"));
        let records = written(&GroupMessage::Records(Vec::new()));
        assert!(parse(&records).is_ok());
    }
}
