//! One-line descriptions in the style of `tcpdump -n` for protocols that are not in the table of
//! headers. Any input may be truncated or invalid; unknown input gives `None`.

use squall_units::{be16, get_be16, get_be32};

use crate::link::{llc, pppoe};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Describes the content of a frame with this EtherType, or an LLC frame if the field is a length.
/// `octets` start after the field.
pub fn ethertype(ethertype: u16, octets: &[u8]) -> Option<String> {
    let len = octets.len();
    Some(match ethertype {
        0..=1500 => return logical_link(octets, usize::from(ethertype).min(len)),
        0x8863 | 0x8864 => match pppoe(octets, 0) {
            Ok(inner) => crate::summary::after_link(octets, inner, len),
            Err(what) => format!("{what}, length {len}"),
        },
        0x8809 => match *octets.first()? {
            1 => format!("LACPv{}, length {len}", octets.get(1)?),
            2 => format!("MARKERv{}, length {len}", octets.get(1)?),
            3 => format!("OAM, length {len}"),
            other => format!("slow protocol {other}, length {len}"),
        },
        0x888e => {
            const KINDS: [&str; 5] = ["packet", "start", "logoff", "key", "ASF alert"];
            let kind = usize::from(*octets.get(1)?);
            format!(
                "EAPOL {} ({kind}) v{}, len {}",
                KINDS.get(kind)?,
                *octets.first()?,
                get_be16(octets, 2)?
            )
        }
        0x88cc => match lldp_name(octets) {
            Some(name) => format!("LLDP, length {len}: {name}"),
            None => format!("LLDP, length {len}"),
        },
        0x88f7 => {
            format!("PTPv{}, message {}, length {len}", octets.get(1)? & 15, *octets.first()? & 15)
        }
        0x8808 if get_be16(octets, 0)? == 1 => {
            format!("MPCP, Pause, quanta {}, length {len}", get_be16(octets, 2)?)
        }
        0x9000 => {
            format!(
                "Loopback, skipCount {}, length {len}",
                u16::from_le_bytes([*octets.first()?, *octets.get(1)?])
            )
        }
        _ => return None,
    })
}

fn logical_link(octets: &[u8], end: usize) -> Option<String> {
    if let Ok(inner) = llc(octets, 0, end) {
        return Some(crate::summary::after_link(octets, inner, end));
    }
    match *octets.first_chunk::<3>()? {
        [0x42, 0x42, 3] => spanning_tree(&octets[3..end.max(3)]),
        [0xaa, 0xaa, 3] => {
            let snap = octets.get(3..8)?;
            let oui = format!("{:02x}{:02x}{:02x}", snap[0], snap[1], snap[2]);
            Some(match (oui.as_str(), be16(snap, 3)) {
                ("00000c", 0x2000) => {
                    format!("CDPv{}, length {}", octets.get(8)?, end.saturating_sub(8))
                }
                ("00000c", 0x010b) => spanning_tree(octets.get(8..end)?)?,
                (oui, pid) => format!(
                    "SNAP, oui 0x{oui}, ethertype {pid:#06x}, length {}",
                    end.saturating_sub(8)
                ),
            })
        }
        [0xfe, 0xfe, 3] => Some(match octets.get(3)? {
            0x83 => format!("IS-IS, length {}", end.saturating_sub(3)),
            other => format!("OSI NLPID {other:#04x}, length {}", end.saturating_sub(3)),
        }),
        [dsap, ssap, control] => Some(format!(
            "LLC, dsap {dsap:#04x}, ssap {ssap:#04x}, ctrl {control:#04x}, length {end}"
        )),
    }
}

/// Describes a bridge protocol data unit (IEEE 802.1D-2004 §9).
fn spanning_tree(octets: &[u8]) -> Option<String> {
    let len = octets.len();
    let (version, kind) = (*octets.get(2)?, *octets.get(3)?);
    let name = match version {
        0 => "802.1d",
        2 => "802.1w",
        3 => "802.1s",
        _ => return Some(format!("STP unknown STP version ({version}), length {len}")),
    };
    if kind == 0x80 {
        return Some(format!("STP {name}, Topology Change, length {len}"));
    }
    let (flags, id) = (*octets.get(4)?, octets.get(17..27)?);
    let flags: Vec<&str> = [
        (1, "Topology change"),
        (2, "Proposal"),
        (16, "Learn"),
        (32, "Forward"),
        (64, "Agreement"),
        (128, "Topology change ACK"),
    ]
    .into_iter()
    .filter(|(bit, _)| flags & bit != 0)
    .map(|(_, name)| name)
    .collect();
    let flags = if flags.is_empty() { "none".into() } else { flags.join(", ") };
    let mac: Vec<String> = id[2..8].iter().map(|octet| format!("{octet:02x}")).collect();
    let bridge = format!("{:02x}{:02x}.{}.{:02x}{:02x}", id[0], id[1], mac.join(":"), id[8], id[9]);
    let kind = if kind == 0 { "Config" } else { "Rapid STP" };
    Some(format!("STP {name}, {kind}, Flags [{flags}], bridge-id {bridge}, length {len}"))
}

/// PDU type 5 has the name; each element has 7 bits of type and 9 bits of length.
fn lldp_name(octets: &[u8]) -> Option<String> {
    let mut at = 0;
    loop {
        let head = get_be16(octets, at)?;
        let (kind, len) = (head >> 9, usize::from(head & 0x1ff));
        match kind {
            0 => return None,
            5 => return octets.get(at + 2..at + 2 + len).map(text),
            _ => at += 2 + len,
        }
    }
}

/// Describes an IP protocol outside the table: the text after the addresses, and the ports if it
/// has any.
pub fn protocol(number: u128, octets: &[u8]) -> Option<(Option<(u16, u16)>, String)> {
    let len = octets.len();
    let line = match number {
        50 => {
            format!(
                "ESP(spi={:#010x},seq={:#x}), length {len}",
                get_be32(octets, 0)?,
                get_be32(octets, 4)?
            )
        }
        51 => {
            format!(
                "AH(spi={:#010x},seq={:#x}), length {len}",
                get_be32(octets, 4)?,
                get_be32(octets, 8)?
            )
        }
        89 => {
            const KINDS: [&str; 6] =
                ["", "Hello", "Database Description", "LS-Request", "LS-Update", "LS-Ack"];
            let kind = KINDS.get(usize::from(*octets.get(1)?)).filter(|kind| !kind.is_empty())?;
            format!("OSPFv{}, {kind}, length {len}", *octets.first()?)
        }
        103 => {
            const KINDS: [&str; 9] = [
                "Hello",
                "Register",
                "Register-Stop",
                "Join / Prune",
                "Bootstrap",
                "Assert",
                "Graft",
                "Graft-Ack",
                "Candidate RP Advertisement",
            ];
            format!(
                "PIMv{}, {}, length {len}",
                octets.first()? >> 4,
                KINDS.get(usize::from(*octets.first()? & 15))?
            )
        }
        112 => {
            let (vrid, priority) = (octets.get(1)?, octets.get(2)?);
            format!(
                "VRRPv{}, Advertisement, vrid {vrid}, prio {priority}, length {len}",
                *octets.first()? >> 4
            )
        }
        132 => {
            const KINDS: [&str; 15] = [
                "DATA",
                "INIT",
                "INIT ACK",
                "SACK",
                "HB REQ",
                "HB ACK",
                "ABORT",
                "SHUTDOWN",
                "SHUTDOWN ACK",
                "OP ERR",
                "COOKIE ECHO",
                "COOKIE ACK",
                "ECNE",
                "CWR",
                "SHUTDOWN COMPLETE",
            ];
            let (ports, mut line) =
                ((get_be16(octets, 0)?, get_be16(octets, 2)?), String::from("sctp"));
            let (mut at, mut chunk) = (12, 0);
            while let (Some(&kind), Some(chunk_len), true) =
                (octets.get(at), get_be16(octets, at + 2), chunk < 16)
            {
                chunk += 1;
                line += &match KINDS.get(usize::from(kind)) {
                    Some(name) => format!(" ({chunk}) [{name}]"),
                    None => format!(" ({chunk}) [type {kind}]"),
                };
                if chunk_len < 4 {
                    break;
                }
                at += usize::from(chunk_len).next_multiple_of(4);
            }
            return Some((Some(ports), format!("{line}, length {len}")));
        }
        _ => return None,
    };
    Some((None, line))
}

/// Describes the content of a UDP datagram with these ports. `octets` are the payload.
pub fn udp(ports: (u16, u16), octets: &[u8]) -> Option<String> {
    let (is, len) = (|port: u16| ports.0 == port || ports.1 == port, octets.len());
    if is(53) || is(5353) {
        return dns(octets);
    }
    if is(67) || is(68) {
        let client = octets.get(28..34)?;
        let mac: Vec<String> = client.iter().map(|octet| format!("{octet:02x}")).collect();
        return Some(match *octets.first()? {
            1 => format!("BOOTP/DHCP, Request from {}, length {len}", mac.join(":")),
            2 => format!("BOOTP/DHCP, Reply, length {len}"),
            _ => return None,
        });
    }
    if is(546) || is(547) {
        const KINDS: [&str; 14] = [
            "",
            "solicit",
            "advertise",
            "request",
            "confirm",
            "renew",
            "rebind",
            "reply",
            "release",
            "decline",
            "reconfigure",
            "inf-req",
            "relay-fwd",
            "relay-reply",
        ];
        return KINDS
            .get(usize::from(*octets.first()?))
            .filter(|kind| !kind.is_empty())
            .map(|kind| format!("dhcp6 {kind}"));
    }
    if is(123) {
        const MODES: [&str; 8] = [
            "Reserved",
            "symmetric active",
            "symmetric passive",
            "Client",
            "Server",
            "Broadcast",
            "Control Message",
            "Reserved",
        ];
        let first = *octets.first()?;
        return Some(format!(
            "NTPv{}, {}, length {len}",
            first >> 3 & 7,
            MODES[usize::from(first & 7)]
        ));
    }
    None
}

/// The first line of an HTTP message; `None` for anything else.
pub fn tcp(ports: (u16, u16), octets: &[u8]) -> Option<String> {
    if ![80, 8080].iter().any(|&port| ports.0 == port || ports.1 == port) || octets.is_empty() {
        return None;
    }
    const STARTS: [&[u8]; 8] =
        [b"GET ", b"HTTP/", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"CONNECT "];
    if !STARTS.iter().any(|start| octets.starts_with(start)) {
        return Some("HTTP".into());
    }
    let end = octets
        .iter()
        .position(|&octet| octet == b'\r' || octet == b'\n')
        .unwrap_or(octets.len())
        .min(200);
    Some(format!("HTTP: {}", text(&octets[..end])))
}

/// Describes a DNS message (RFC 1035 §4.1): the question of a query, or the answers of a response.
fn dns(octets: &[u8]) -> Option<String> {
    let (id, flags) = (get_be16(octets, 0)?, get_be16(octets, 2)?);
    let [questions, answers, authorities, additions] =
        [4, 6, 8, 10].map(|at| get_be16(octets, at).unwrap_or(0));
    let (is_answer, bit) = (
        flags & 0x8000 != 0,
        |mask: u16, mark: &'static str| if flags & mask != 0 { mark } else { "" },
    );
    let mut line = id.to_string();
    let opcode = flags >> 11 & 15;
    let mut at = 12;
    if !is_answer {
        line += bit(0x0100, "+");
        line += bit(0x0010, "%");
        if opcode != 0 {
            line += &format!(" op{opcode}");
        }
        if answers > 0 {
            line += &format!(" [{answers}a]");
        }
        if authorities > 0 {
            line += &format!(" [{authorities}n]");
        }
        if additions > 0 {
            line += &format!(" [{additions}au]");
        }
        for _ in 0..questions.min(8) {
            let Some((name, end)) = dns_name(octets, at) else { break };
            line += &format!(" {}? {name}", dns_type(get_be16(octets, end).unwrap_or(0)));
            at = end + 4;
        }
    } else {
        const CODES: [&str; 6] = ["", " FormErr", " ServFail", " NXDomain", " NotImp", " Refused"];
        line += CODES.get(usize::from(flags & 15)).copied().unwrap_or(" error");
        line += bit(0x0400, "*");
        line += if flags & 0x0080 == 0 { "-" } else { "" };
        line += bit(0x0200, "|");
        line += bit(0x0020, "$");
        line += &format!(" {answers}/{authorities}/{additions}");
        for _ in 0..questions {
            let Some((_, end)) = dns_name(octets, at) else { break };
            at = end + 4;
        }
        let mut texts = Vec::new();
        for _ in 0..answers.min(16) {
            let Some((answer, end)) = dns_answer(octets, at) else { break };
            texts.push(answer);
            at = end;
        }
        if !texts.is_empty() {
            line += &format!(" {}", texts.join(", "));
        }
    }
    Some(format!("{line} ({})", octets.len()))
}

fn dns_answer(octets: &[u8], at: usize) -> Option<(String, usize)> {
    let (_, at) = dns_name(octets, at)?;
    let (kind, len) = (get_be16(octets, at)?, usize::from(get_be16(octets, at + 8)?));
    let data = octets.get(at + 10..at + 10 + len)?;
    let value = match kind {
        1 => Ipv4Addr::from(*data.first_chunk::<4>()?).to_string(),
        28 => Ipv6Addr::from(*data.first_chunk::<16>()?).to_string(),
        2 | 5 | 12 => dns_name(octets, at + 10)?.0,
        15 => format!("{} {}", dns_name(octets, at + 12)?.0, get_be16(data, 0)?),
        _ => String::new(),
    };
    let blank = if value.is_empty() { "" } else { " " };
    Some((format!("{}{blank}{value}", dns_type(kind)), at + 10 + len))
}

/// The name at octet `at`, and the offset after it. Pointers are only followed to smaller offsets,
/// which guarantees that the search ends.
fn dns_name(octets: &[u8], mut at: usize) -> Option<(String, usize)> {
    let (mut name, mut end) = (String::new(), None);
    loop {
        match usize::from(*octets.get(at)?) {
            0 => {
                let name = if name.is_empty() { ".".into() } else { name };
                return Some((name, end.unwrap_or(at + 1)));
            }
            len @ 1..=63 => {
                name += &text(octets.get(at + 1..at + 1 + len)?);
                name.push('.');
                at += 1 + len;
            }
            _ => {
                let to = usize::from(get_be16(octets, at)? & 0x3fff);
                end.get_or_insert(at + 2);
                if to >= at {
                    return None;
                }
                at = to;
            }
        }
        if name.len() > 255 {
            return None;
        }
    }
}

fn dns_type(number: u16) -> String {
    let name = match number {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        41 => "OPT",
        43 => "DS",
        46 => "RRSIG",
        48 => "DNSKEY",
        64 => "SVCB",
        65 => "HTTPS",
        255 => "ANY",
        other => return format!("Type{other}"),
    };
    name.into()
}

/// The printable characters of `octets`: others could break the line.
fn text(octets: &[u8]) -> String {
    octets
        .iter()
        .map(|&octet| if octet.is_ascii_graphic() || octet == b' ' { octet as char } else { '.' })
        .collect()
}
