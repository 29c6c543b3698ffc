//! Packet headers that a rule requires.

use squall_rules::{End, Numbers, PacketTest, Protocol, Rule, Which};

use super::rng::Rng;
use crate::{Shape, Transport};

/// The header tests of a rule, combined.
#[derive(Clone, Debug, Default)]
pub(super) struct Headers {
    pub shape: Shape,
    /// Length of the payload in octets.
    pub size: Option<Numbers>,
    pub same_address: bool,
    pub ip_protocol: Option<u8>,
    pub rpc: Option<(u32, u32, u32)>,
    /// Whether the rule tests flags of single segments, such as those of a handshake.
    pub flags: bool,
    pub ip_version: Option<u8>,
    pub icmp: bool,
    /// Number of octets that the client and the server must have sent before.
    pub sent: [u64; 2],
    /// Number of packets with data that the client and the server must have sent before.
    pub packets: [u64; 2],
}

/// Headers that satisfy the packet tests of the rule. `Err` has the option that cannot be
/// satisfied, and the reason.
pub(super) fn headers(rule: &Rule, rng: &mut Rng, sample: u32) -> Result<Headers, (u16, String)> {
    let mut headers = Headers::default();
    let mut sizes: Option<Numbers> = None;
    let mut taken: Vec<(usize, Numbers)> = vec![];
    for test in &rule.packet {
        let option = test.option;
        let nothing = || (option, "the rule allows no number".to_string());
        // Combines several tests of the same field.
        let mut choose = |field: usize,
                          numbers: &Numbers,
                          usual: u64,
                          most: u64|
         -> Result<u64, (u16, String)> {
            let mut set = numbers.intersection(&Numbers::range(0..=most));
            if let Some((_, before)) = taken.iter().find(|(of, _)| *of == field) {
                set = set.intersection(before);
            }
            taken.retain(|(of, _)| *of != field);
            taken.push((field, set.clone()));
            if set.contains(usual) && sample == 0 {
                return Ok(usual);
            }
            let first = set.first().ok_or_else(nothing)?;
            let usual = if sample == 0 { usual } else { rng.next() % (most + 1) };
            Ok(set.at_least(usual).or(set.last()).unwrap_or(first))
        };
        let shape = &mut headers.shape;
        match &test.is {
            PacketTest::Flags { bits, ignored, which } => {
                headers.flags = true;
                let bits = bits & !ignored;
                shape.flags = Some(match which {
                    Which::Exactly | Which::All => shape.flags.unwrap_or(0) | bits,
                    Which::Any => shape.flags.unwrap_or(0) | bits & bits.wrapping_neg(),
                    Which::None => shape.flags.unwrap_or(0x18) & !bits,
                });
            }
            PacketTest::Size(numbers) => {
                let set = match &sizes {
                    Some(before) => before.intersection(numbers),
                    None => numbers.clone(),
                };
                if set.is_empty() {
                    return Err(nothing());
                }
                sizes = Some(set);
            }
            PacketTest::Ttl(numbers) => shape.ttl = Some(choose(0, numbers, 64, 255)? as u8),
            PacketTest::Tos(numbers) => shape.tos = Some(choose(1, numbers, 0, 255)? as u8),
            PacketTest::Id(numbers) => shape.id = Some(choose(2, numbers, 0x1234, 65_535)? as u16),
            PacketTest::IpOption { kind, negated: false } => shape.ip_options = ip_option(*kind),
            PacketTest::IpOption { negated: true, .. } => {}
            PacketTest::FragmentBits { bits, which } => {
                shape.fragment_bits = Some(match which {
                    Which::Exactly | Which::All => *bits,
                    Which::Any => bits & bits.wrapping_neg(),
                    Which::None => !bits & 2,
                });
            }
            PacketTest::FragmentOffset(numbers) => {
                shape.fragment_offset = Some(choose(3, numbers, 0, 8_191)? as u16)
            }
            PacketTest::IpProtocol(numbers) => {
                headers.ip_protocol = Some(choose(4, numbers, 17, 255)? as u8);
            }
            PacketTest::Sequence(numbers) => {
                shape.sequence = Some(choose(5, numbers, 1_000_000, u32::MAX.into())? as u32)
            }
            PacketTest::Acknowledgment(numbers) => {
                shape.acknowledgment = Some(choose(6, numbers, 1_000_000, u32::MAX.into())? as u32);
            }
            PacketTest::Window(numbers) => {
                shape.window = Some(choose(7, numbers, 64_240, 65_535)? as u16)
            }
            PacketTest::Mss(numbers) => shape.mss = Some(choose(8, numbers, 1_460, 65_535)? as u16),
            PacketTest::WindowScale(numbers) => {
                shape.window_scale = Some(choose(9, numbers, 7, 14)? as u8)
            }
            PacketTest::IcmpType(numbers) => {
                headers.icmp = true;
                let usual = if rule.header.protocol == Protocol::Icmp6 { 128 } else { 8 };
                shape.icmp_type = Some(choose(10, numbers, usual, 255)? as u8);
            }
            PacketTest::IcmpCode(numbers) => {
                headers.icmp = true;
                shape.icmp_code = Some(choose(11, numbers, 0, 255)? as u8);
            }
            PacketTest::IcmpId(numbers) => {
                headers.icmp = true;
                shape.icmp_id = Some(choose(12, numbers, 1, 65_535)? as u16);
            }
            PacketTest::IcmpSequence(numbers) => {
                headers.icmp = true;
                shape.icmp_sequence = Some(choose(13, numbers, 1, 65_535)? as u16);
            }
            PacketTest::Icmp6Mtu(numbers) => {
                headers.icmp = true;
                shape.icmp_type = Some(2);
                let mtu = choose(14, numbers, 1_280, u32::MAX.into())?;
                shape.icmp_id = Some((mtu >> 16) as u16);
                shape.icmp_sequence = Some(mtu as u16);
            }
            PacketTest::SameAddress => headers.same_address = true,
            PacketTest::Rpc { program, version, procedure } => {
                headers.rpc = Some((*program, version.unwrap_or(2), procedure.unwrap_or(3)));
            }
            PacketTest::StreamSize { of, size } => {
                use squall_rules::StreamSizeOf::*;
                // The sequence number of the SYN counts as one octet.
                let least = size.first().ok_or_else(nothing)?.min(1 << 20).saturating_sub(1);
                match of {
                    Client | Either => headers.sent[0] = least,
                    Server => headers.sent[1] = least,
                    Both => headers.sent = [least; 2],
                }
            }
            PacketTest::FlowAge(numbers) => {
                shape.pause_ns =
                    numbers.first().ok_or_else(nothing)?.min(86_400).saturating_mul(1_000_000_000);
            }
            PacketTest::IpVersion(version) => headers.ip_version = Some(*version),
            // The examiner checks whether the result matches.
            PacketTest::FlowPackets { of, count } => {
                let least = count.first().ok_or_else(nothing)?.min(2_000);
                headers.packets[of.unwrap_or(End::Client) as usize] = least;
            }
            PacketTest::FlowOctets { of, count } => {
                let least = count.first().ok_or_else(nothing)?.min(1 << 18);
                headers.sent[of.unwrap_or(End::Client) as usize] = least;
            }
            PacketTest::Other { .. } => {}
        }
    }
    if let Some(sizes) = sizes {
        headers.shape.whole = true;
        headers.size = Some(sizes);
    }
    if headers.icmp {
        // Only echo and similar messages have an identifier.
        let required = headers.shape.icmp_id.is_some() || headers.shape.icmp_sequence.is_some();
        let usual = if rule.header.protocol == Protocol::Icmp6 { 128 } else { 8 };
        if headers.shape.icmp_type.is_none() || required && headers.shape.icmp_type.is_none() {
            headers.shape.icmp_type = Some(usual);
        }
    }
    Ok(headers)
}

/// The transport that carries the rule's octets.
pub(super) fn transport(rule: &Rule, headers: &Headers) -> Transport {
    use squall_rules::Application::*;
    let of_protocol = |number| match number {
        6 => Transport::Tcp,
        17 => Transport::Udp,
        1 | 58 => Transport::Icmp,
        other => Transport::Ip(other),
    };
    match rule.header.protocol {
        Protocol::Tcp | Protocol::TcpSegments | Protocol::TcpReassembled => {
            let single = rule.flow.established != Some(true)
                && (headers.flags
                    || headers.shape.sequence.is_some()
                    || headers.shape.acknowledgment.is_some()
                    || headers.shape.window.is_some()
                    || rule.flow.established == Some(false)
                    || headers.same_address
                    || headers.shape.mss.is_some()
                    || headers.shape.window_scale.is_some());
            let bare = rule.inspections.is_empty()
                && rule.flow.established != Some(true)
                && rule.flow.to.is_none()
                && rule.application.is_empty();
            if single || bare { Transport::Segments } else { Transport::Tcp }
        }
        Protocol::Udp => Transport::Udp,
        Protocol::Icmp | Protocol::Icmp6 => Transport::Icmp,
        Protocol::Sctp => Transport::Ip(132),
        Protocol::Ip | Protocol::Ip4 | Protocol::Ip6 => match headers.ip_protocol {
            Some(number) => of_protocol(number),
            None if headers.icmp => Transport::Icmp,
            None if headers.flags => Transport::Segments,
            None if rule.flow.established == Some(true) || rule.flow.stream == Some(true) => {
                Transport::Tcp
            }
            None => Transport::Udp,
        },
        Protocol::Application(application) => match application {
            Dns | Mdns | Sip | Sdp | Snmp | Tftp | Ike | Ntp | Dhcp | Quic | BitTorrentDht => {
                Transport::Udp
            }
            _ => Transport::Tcp,
        },
    }
}

/// An IPv4 option, padded to a multiple of four octets.
fn ip_option(kind: Option<u8>) -> Vec<u8> {
    match kind.unwrap_or(7) {
        0 => vec![0; 4],
        1 => vec![1; 4],
        // An empty route: length, pointer, and space for one address (RFC 791 §3.1).
        kind @ (7 | 131 | 137) => vec![kind, 7, 4, 0, 0, 0, 0, 0],
        // Timestamp: length, pointer, overflow and flag, and space for one timestamp.
        68 => vec![68, 8, 5, 0, 0, 0, 0, 0],
        // Stream (satellite) identifier.
        136 => vec![136, 4, 0, 1],
        // Security: at least 3 octets in RFC 1108, 11 in RFC 791.
        130 => vec![130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        133 => vec![133, 3, 0, 0],
        kind => vec![kind, 4, 0, 0],
    }
}

/// The ONC RPC call (RFC 5531 §9) that `rpc:` tests for, with a record mark over TCP (§11).
pub(super) fn rpc_call(
    (program, version, procedure): (u32, u32, u32),
    rng: &mut Rng,
    tcp: bool,
    rest: &[u8],
) -> Vec<u8> {
    let mut call = vec![];
    for word in [rng.next() as u32, 0, 2, program, version, procedure, 0, 0, 0, 0] {
        call.extend(word.to_be_bytes());
    }
    call.extend(rest);
    if tcp {
        let mark = 0x8000_0000 | call.len() as u32;
        call.splice(0..0, mark.to_be_bytes());
    }
    call
}
