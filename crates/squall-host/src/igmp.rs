//! Messages of IGMP as IPv4 packets (RFC 1112 appendix I, RFC 2236 section 2, RFC 3376 section 4).

use std::net::{IpAddr, Ipv4Addr};

use squall_units::{Nanos, be16};
use squall_wire::checksum::{fold, sum};

use crate::multicast::{FIRST_RESPONSE, GroupMessage, GroupVersion, Query, code, records, units};

const PROTOCOL: u8 = 2;
/// The option Router Alert (RFC 2113), which lets routers see packets for groups they are not in.
const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Unit of the maximum response time.
const TENTH: u64 = 100_000_000;
/// Octets of IPv4 header with Router Alert.
const HEADER: usize = 24;

/// Whether an IPv4 packet is one of IGMP.
pub fn is_igmp(packet: &[u8]) -> bool {
    packet.len() >= 20 && packet[0] >> 4 == 4 && packet[9] == PROTOCOL
}

/// Parses an IPv4 packet of IGMP. Returns its source and its message.
///
/// # Errors
/// The reason for which hosts ignore the packet.
pub fn parse(packet: &[u8]) -> Result<(Ipv4Addr, GroupMessage), &'static str> {
    let header = usize::from(packet.first().ok_or("truncated")? & 15) * 4;
    let total = usize::from(be16(packet.get(..20).ok_or("truncated")?, 2));
    let (ip, igmp) = packet
        .get(..total)
        .and_then(|packet| packet.split_at_checked(header.max(20)))
        .filter(|(_, igmp)| igmp.len() >= 8)
        .ok_or("truncated")?;
    if be16(ip, 6) & 0x3fff != 0 {
        return Err("fragment");
    }
    if fold(sum(igmp)) != 0xffff {
        return Err("bad_checksum");
    }
    let source = address(ip, 12).ok_or("truncated")?;
    let destination = address(ip, 16).ok_or("truncated")?;
    let group = address(igmp, 4).ok_or("truncated")?;
    let message = match igmp[0] {
        0x11 => {
            let query = query(igmp, group)?;
            // RFC 3376 section 9.1. Version 1 has no such option.
            if query.version > GroupVersion::One && !ip[20..].starts_with(&ROUTER_ALERT[..1]) {
                return Err("no_router_alert");
            }
            // A general query goes to all hosts, or to an address of one of them (section 4.1.12).
            let to_others = destination.is_multicast() || destination.is_broadcast();
            if query.group.is_none() && destination != ALL_HOSTS && to_others {
                return Err("wrong_destination");
            }
            GroupMessage::Query(query)
        }
        0x12 | 0x16 if !group.is_multicast() => return Err("not_a_group"),
        0x12 => GroupMessage::Report { version: GroupVersion::One, group: group.into() },
        0x16 => GroupMessage::Report { version: GroupVersion::Two, group: group.into() },
        0x17 => GroupMessage::Leave(group.into()),
        0x22 => GroupMessage::Records(records::<4>(igmp)?),
        _ => return Err("unknown_type"),
    };
    Ok((source, message))
}

fn query(igmp: &[u8], group: Ipv4Addr) -> Result<Query, &'static str> {
    if !group.is_unspecified() && !group.is_multicast() {
        return Err("not_a_group");
    }
    let group = (!group.is_unspecified()).then_some(IpAddr::V4(group));
    // RFC 3376 section 7.1: lengths between those of the versions are ignored.
    let (version, max_response) = match (igmp.len(), igmp[1]) {
        (8, 0) => (GroupVersion::One, FIRST_RESPONSE),
        (8, tenths) => (GroupVersion::Two, Nanos(u64::from(tenths) * TENTH)),
        (12.., code) => (GroupVersion::Three, Nanos(units(code) * TENTH)),
        _ => return Err("bad_length"),
    };
    let mut query = Query {
        version,
        max_response,
        group,
        sources: Vec::new(),
        suppress: false,
        robustness: 0,
        interval: None,
    };
    if version == GroupVersion::Three {
        query.read_rest::<4>(&igmp[8..])?;
    }
    Ok(query)
}

fn address(octets: &[u8], at: usize) -> Option<Ipv4Addr> {
    octets.get(at..)?.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets))
}

/// Where a message goes.
pub fn destination(message: &GroupMessage) -> Ipv4Addr {
    let v4 = |group: &IpAddr| match group {
        IpAddr::V4(group) => *group,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    match message {
        GroupMessage::Query(query) => query.group.as_ref().map_or(ALL_HOSTS, v4),
        GroupMessage::Report { group, .. } => v4(group),
        GroupMessage::Leave(_) => ALL_ROUTERS,
        GroupMessage::Records(_) => V3_ROUTERS,
    }
}

/// Appends the IPv4 packet of a message. Addresses of IPv6 are written as 0.0.0.0.
pub fn write(source: Ipv4Addr, message: &GroupMessage, out: &mut Vec<u8>) {
    let at = out.len();
    // Precedence "internetwork control" (RFC 3376 section 4).
    out.extend_from_slice(&[0x46, 0xc0, 0, 0, 0, 0, 0, 0, 1, PROTOCOL, 0, 0]);
    out.extend_from_slice(&source.octets());
    out.extend_from_slice(&destination(message).octets());
    out.extend_from_slice(&ROUTER_ALERT);
    match message {
        GroupMessage::Query(query) => write_query(query, out),
        GroupMessage::Report { version, group } => {
            let kind = if *version == GroupVersion::One { 0x12 } else { 0x16 };
            out.extend_from_slice(&[kind, 0, 0, 0]);
            push(group, out);
        }
        GroupMessage::Leave(group) => {
            out.extend_from_slice(&[0x17, 0, 0, 0]);
            push(group, out);
        }
        GroupMessage::Records(records) => {
            out.extend_from_slice(&[0x22, 0, 0, 0, 0, 0]);
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
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    let check = !fold(sum(&packet[..HEADER]));
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    let check = !fold(sum(&packet[HEADER..]));
    packet[HEADER + 2..HEADER + 4].copy_from_slice(&check.to_be_bytes());
}

fn write_query(query: &Query, out: &mut Vec<u8>) {
    let tenths = query.max_response.0 / TENTH;
    let response = match query.version {
        GroupVersion::One => 0,
        GroupVersion::Two => tenths.clamp(1, 255) as u8,
        GroupVersion::Three => code(tenths),
    };
    out.extend_from_slice(&[0x11, response, 0, 0]);
    push(&query.group.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), out);
    if query.version == GroupVersion::Three {
        let interval = query.interval.map_or(0, |interval| code(interval.0 / Nanos::SECOND.0));
        out.extend_from_slice(&[u8::from(query.suppress) << 3 | query.robustness.min(7), interval]);
        out.extend_from_slice(&(query.sources.len() as u16).to_be_bytes());
        query.sources.iter().for_each(|source| push(source, out));
    }
}

fn push(address: &IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(_) => out.extend_from_slice(&[0; 4]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multicast::{
        Record,
        RecordKind::{Allow, ToExclude},
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn written(message: &GroupMessage) -> Vec<u8> {
        let mut packet = Vec::new();
        write([10, 0, 0, 7].into(), message, &mut packet);
        packet
    }

    /// A general query of a bridge of Linux 6.18, with a response time of 1 s.
    const BRIDGE: &str = "46c0002400004000 01020413 00000000 e0000001 94040000 110aecf3 00000000 \
                          02020000";
    /// A general query of version 2 (RFC 2236 section 2).
    const GENERAL: &str = "46c0002000004000 01020000 00000000 e0000001 94040000 1164ee9b 00000000";

    fn octets(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn a_general_query_of_version_2_is_read() {
        let (source, message) = parse(&octets(GENERAL)).unwrap();
        let GroupMessage::Query(query) = message else { panic!("{message:?}") };
        assert_eq!((source, query.version), (Ipv4Addr::UNSPECIFIED, GroupVersion::Two));
        assert_eq!((query.max_response, query.group), (Nanos(10_000_000_000), None));
    }

    #[test]
    fn a_general_query_of_linux_is_read() {
        let GroupMessage::Query(query) = parse(&octets(BRIDGE)).unwrap().1 else { panic!() };
        assert_eq!((query.version, query.group), (GroupVersion::Three, None));
        assert_eq!((query.max_response, query.robustness), (Nanos(1_000_000_000), 2));
        assert_eq!(query.interval, Some(Nanos(2_000_000_000)));
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let query = Query {
            version: GroupVersion::Three,
            max_response: Nanos(10_000_000_000),
            group: Some(ip("239.1.2.3")),
            sources: vec![ip("10.0.0.1"), ip("10.0.0.2")],
            suppress: true,
            robustness: 2,
            interval: Some(Nanos(125_000_000_000)),
        };
        let general = Query { group: None, sources: Vec::new(), suppress: false, ..query.clone() };
        let older = |version| Query { version, robustness: 0, interval: None, ..general.clone() };
        let records = vec![
            Record { kind: ToExclude, group: ip("239.1.2.3"), sources: vec![] },
            Record { kind: Allow, group: ip("232.1.2.3"), sources: vec![ip("10.0.0.1")] },
        ];
        for message in [
            GroupMessage::Query(query),
            GroupMessage::Query(general.clone()),
            GroupMessage::Query(older(GroupVersion::One)),
            GroupMessage::Query(older(GroupVersion::Two)),
            GroupMessage::Report { version: GroupVersion::One, group: ip("239.1.2.3") },
            GroupMessage::Report { version: GroupVersion::Two, group: ip("239.1.2.3") },
            GroupMessage::Leave(ip("239.1.2.3")),
            GroupMessage::Records(records),
        ] {
            let packet = written(&message);
            assert!(is_igmp(&packet));
            assert_eq!(parse(&packet), Ok(([10, 0, 0, 7].into(), message)));
            assert_eq!((packet[8], &packet[20..24]), (1, &ROUTER_ALERT[..]), "TTL, option");
            for len in 0..packet.len() {
                assert!(parse(&packet[..len]).is_err(), "{len} octets of {packet:?}");
            }
        }
    }

    #[test]
    fn hostile_packets_are_ignored_with_a_reason() {
        let general = Query {
            version: GroupVersion::Three,
            max_response: Nanos(TENTH),
            group: None,
            sources: vec![ip("10.0.0.1")],
            suppress: false,
            robustness: 0,
            interval: None,
        };
        let packet = |message: &GroupMessage| written(message);
        let sources = packet(&GroupMessage::Query(general.clone()));
        assert_eq!(parse(&sources), Err("sources_without_group"));
        let plain = packet(&GroupMessage::Query(Query { sources: Vec::new(), ..general }));
        let changed = |at: usize, to: u8| {
            let mut packet = plain.clone();
            packet[at] = to;
            let check = {
                packet[26..28].fill(0);
                !fold(sum(&packet[24..]))
            };
            packet[26..28].copy_from_slice(&check.to_be_bytes());
            parse(&packet).map(|_| ())
        };
        assert_eq!(changed(0, 0x46), Ok(()));
        assert_eq!(changed(28, 10), Err("not_a_group"));
        assert_eq!(changed(35, 200), Err("truncated"), "200 sources in 0 octets");
        assert_eq!(changed(20, 1), Err("no_router_alert"));
        assert_eq!(changed(19, 5), Err("wrong_destination"));
        assert_eq!(changed(16, 10), Ok(()), "to an address of a host");
        assert_eq!(changed(7, 9), Err("fragment"));
        assert_eq!(changed(24, 0x99), Err("unknown_type"));
        let mut broken = plain.clone();
        broken[25] ^= 1;
        assert_eq!(parse(&broken), Err("bad_checksum"));
        // 65,535 records in no octet.
        let mut records = packet(&GroupMessage::Records(Vec::new()));
        records[30..32].fill(0xff);
        records[26..28].fill(0);
        let check = !fold(sum(&records[24..]));
        records[26..28].copy_from_slice(&check.to_be_bytes());
        assert_eq!(parse(&records), Err("truncated"));
    }
}
