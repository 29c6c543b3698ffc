//! Tests packets, flows and transactions, apart from their buffers.

use squall_rules::{
    Application, ApplicationTest, Buffer, End, Flow as FlowTest, PacketTest, StreamSizeOf, Which,
};
use squall_units::be32;

use crate::compiled::protocol_matches;
use crate::detect::FlowContext;
use crate::flow::{Detection, Flow};
use crate::packet::{Packet, UDP};
use crate::protocols::{FactIs, Transaction};

/// Whether the packet satisfies the rule's `flow:` option.
pub(crate) fn flow(required: &FlowTest, packet: &Packet, context: FlowContext) -> bool {
    if required.to.is_some_and(|to| context.from != Some(to.other())) {
        return false;
    }
    if required.established.is_some_and(|required| required != context.established) {
        return false;
    }
    required.fragments.is_none_or(|required| required == packet.reassembled)
}

/// Tests `app-layer-protocol:`. Until the protocol is detected, neither a name nor its negation
/// matches.
pub(crate) fn protocol(required: Option<Application>, negated: bool, flow: Option<&Flow>) -> bool {
    let is = match (flow.map(|flow| flow.application), required) {
        (Some(Detection::Known(detected)), Some(required)) => protocol_matches(detected, required),
        (Some(Detection::Known(_)), None) | (Some(Detection::Unknown), Some(_)) => false,
        (Some(Detection::Unknown), None) => true,
        // In UDP the first datagram of a direction determines the protocol, so a pending detection
        // counts as unknown.
        (Some(Detection::Pending), _) if flow.is_some_and(|flow| flow.protocol == UDP) => {
            required.is_none()
        }
        (Some(Detection::Pending) | None, _) => return false,
    };
    is != negated
}

fn bits(found: u8, required: u8, which: Which) -> bool {
    match which {
        Which::Exactly => found == required,
        Which::All => found & required == required,
        Which::Any => found & required != 0,
        Which::None => found & required == 0,
    }
}

pub(crate) fn packet(
    test: &PacketTest,
    packet: &Packet,
    flow: Option<&Flow>,
    context: FlowContext,
) -> bool {
    use PacketTest::*;
    let of_flow = |of: Option<End>, both: [u64; 2]| match of {
        Some(end) => both[end as usize],
        None => both[0].saturating_add(both[1]),
    };
    // The last inspection of a flow has no packet, and hence no headers.
    if context.last
        && !matches!(
            test,
            StreamSize { .. }
                | SameAddress
                | FlowAge(_)
                | FlowPackets { .. }
                | FlowOctets { .. }
                | IpProtocol(_)
        )
    {
        return false;
    }
    match test {
        Flags { bits: required, ignored, which } => {
            packet.tcp.is_some_and(|tcp| bits(tcp.flags & !ignored, required & !ignored, *which))
        }
        Size(sizes) => packet.has_upper && sizes.contains(packet.payload.len() as u64),
        Ttl(numbers) => numbers.contains(packet.ttl.into()),
        Tos(numbers) => packet.version == 4 && numbers.contains(packet.tos.into()),
        Id(numbers) => {
            packet.version == 4 && packet.id.is_some_and(|id| numbers.contains(id.into()))
        }
        IpOption { kind, negated } => {
            let found = match kind {
                Some(kind) => packet.ip_options.contains(kind),
                None => !packet.ip_options.is_empty(),
            };
            packet.version == 4 && found != *negated
        }
        FragmentBits { bits: required, which } => {
            packet.version == 4 && bits(packet.fragment_bits, *required, *which)
        }
        FragmentOffset(numbers) => {
            (packet.version == 4 || packet.is_fragment)
                && numbers.contains(packet.fragment_offset.into())
        }
        IpProtocol(numbers) => numbers.contains(packet.protocol.into()),
        Sequence(numbers) => packet.tcp.is_some_and(|tcp| numbers.contains(tcp.sequence.into())),
        Acknowledgment(numbers) => {
            packet.tcp.is_some_and(|tcp| numbers.contains(tcp.acknowledgment.into()))
        }
        Window(numbers) => packet.tcp.is_some_and(|tcp| numbers.contains(tcp.window.into())),
        Mss(numbers) => {
            packet.tcp.and_then(|tcp| tcp.mss).is_some_and(|mss| numbers.contains(mss.into()))
        }
        WindowScale(numbers) => packet
            .tcp
            .and_then(|tcp| tcp.window_scale)
            .is_some_and(|scale| numbers.contains(scale.into())),
        IcmpType(numbers) => packet.icmp.is_some_and(|icmp| numbers.contains(icmp.kind.into())),
        IcmpCode(numbers) => packet.icmp.is_some_and(|icmp| numbers.contains(icmp.code.into())),
        IcmpId(numbers) => {
            packet.icmp.and_then(|icmp| icmp.id).is_some_and(|id| numbers.contains(id.into()))
        }
        IcmpSequence(numbers) => packet
            .icmp
            .and_then(|icmp| icmp.sequence)
            .is_some_and(|sequence| numbers.contains(sequence.into())),
        Icmp6Mtu(numbers) => {
            packet.icmp.and_then(|icmp| icmp.mtu).is_some_and(|mtu| numbers.contains(mtu.into()))
        }
        IpVersion(version) => packet.version == *version,
        Other { keyword, numbers } => match *keyword {
            "vlan.id" => {
                (packet.vlan_layers > 0 && numbers.contains((packet.vlan & 0xfff).into()))
                    || (packet.vlan_layers > 1
                        && numbers.contains((packet.vlan >> 16 & 0xfff).into()))
            }
            "vlan.layers" => numbers.contains(packet.vlan_layers.into()),
            // Packets with wrong checksums have already been dropped.
            "ipv4-csum" | "tcpv4-csum" | "tcpv6-csum" | "udpv4-csum" | "udpv6-csum"
            | "icmpv4-csum" | "icmpv6-csum" => numbers.contains(1),
            _ => false,
        },
        SameAddress => packet.source == packet.destination,
        Rpc { program, version, procedure } => rpc(packet, *program, *version, *procedure),
        StreamSize { of, size } => {
            let Some(session) = flow.and_then(|flow| flow.session.as_ref()) else { return false };
            let [client, server] = session.streams.each_ref().map(|stream| stream.size());
            match of {
                StreamSizeOf::Client => size.contains(client),
                StreamSizeOf::Server => size.contains(server),
                StreamSizeOf::Both => size.contains(client) && size.contains(server),
                StreamSizeOf::Either => size.contains(client) || size.contains(server),
            }
        }
        FlowAge(seconds) => flow.is_some_and(|flow| {
            seconds.contains(flow.last.0.saturating_sub(flow.first.0) / 1_000_000_000)
        }),
        FlowPackets { of, count } => {
            flow.is_some_and(|flow| count.contains(of_flow(*of, flow.packets)))
        }
        FlowOctets { of, count } => {
            flow.is_some_and(|flow| count.contains(of_flow(*of, flow.octets)))
        }
    }
}

/// An RPC call (RFC 5531). Over TCP, a record mark precedes it.
fn rpc(packet: &Packet, program: u32, version: Option<u32>, procedure: Option<u32>) -> bool {
    let octets =
        if packet.tcp.is_some() { packet.payload.get(4..) } else { Some(&packet.payload[..]) };
    let Some(words) = octets.and_then(|octets| octets.get(..24)) else { return false };
    let word = |at: usize| be32(words, at);
    word(4) == 0
        && word(8) == 2
        && word(12) == program
        && version.is_none_or(|version| word(16) == version)
        && procedure.is_none_or(|procedure| word(20) == procedure)
}

pub(crate) fn application(
    test: &ApplicationTest,
    transaction: &Transaction,
    from: End,
    flow: &Flow,
) -> bool {
    use ApplicationTest::*;
    let numbers = |name: &'static str| {
        transaction.facts.iter().filter(move |fact| fact.of == from).filter_map(move |fact| {
            match fact.is {
                FactIs::Number { what, value } if what == name => Some(value),
                _ => None,
            }
        })
    };
    let any = |name: &'static str, required: &squall_rules::Numbers| {
        numbers(name).any(|value| required.contains(value))
    };
    let texts = |wanted: Buffer| {
        transaction
            .buffers
            .iter()
            .filter(move |(buffer, of, _)| *buffer == wanted && *of == from)
            .map(|(_, _, octets)| octets.as_slice())
    };
    let holds =
        |text: &[u8], part: &str| crate::inspect::find(text, part.as_bytes(), true).is_some();
    match test {
        Protocol { is, negated } => protocol(*is, *negated, Some(flow)),
        Event(name) => transaction.facts.iter().any(|fact| {
            fact.of == from
                && matches!(&fact.is, FactIs::Event(event) if event == name || name.ends_with(&format!(".{event}")))
        }),
        DnsOpcode { opcode } => any("dns.opcode", opcode),
        DnsRcode(required) => any("dns.rcode", required),
        DnsType(required) => any("dns.rrtype", required),
        TlsVersion { any_of, negated } => {
            let mut found = numbers("tls.version").peekable();
            found.peek().is_some()
                && found.any(|value| any_of.iter().any(|required| u64::from(*required) == value)) != *negated
        }
        SslState { any_of, negated } => {
            let mut found = numbers("ssl_state").peekable();
            let number = |name: &str| match name {
                "client_hello" => 1,
                "server_hello" => 2,
                "client_keyx" => 3,
                "server_keyx" => 4,
                _ => 0,
            };
            found.peek().is_some() && found.any(|value| any_of.iter().any(|name| number(name) == value)) != *negated
        }
        TlsCertCount(required) => any("tls.cert_chain_len", required),
        DceInterface { uuid, version, .. } => transaction.facts.iter().any(|fact| {
            matches!(&fact.is, FactIs::DceInterface { uuid: found, version: number }
                if found == uuid && version.contains((*number).into()))
        }),
        DceOpnum(required) => any("dcerpc.opnum", required),
        SmbVersion(required) => any("smb.version", required),
        FileExtension { is, negated } => {
            let mut found = texts(Buffer::FileName).peekable();
            found.peek().is_some()
                && found.any(|name| {
                    name.len() > is.len()
                        && name[name.len() - is.len() - 1] == b'.'
                        && name[name.len() - is.len()..].eq_ignore_ascii_case(is.as_bytes())
                }) != *negated
        }
        FileName { holds: part, negated } => {
            let mut found = texts(Buffer::FileName).peekable();
            found.peek().is_some() && found.any(|name| holds(name, part)) != *negated
        }
        FileMagic { holds: part, negated } => {
            let mut found = texts(Buffer::FileMagic).peekable();
            found.peek().is_some() && found.any(|name| holds(name, part)) != *negated
        }
        FileSize(required) => any("file.size", required),
        // File hashes are not supported.
        FileHash { .. } => false,
        Krb5MessageType(required) => any("krb5_msg_type", required),
        SnmpVersion(required) => any("snmp.version", required),
        SnmpPduType(required) => any("snmp.pdu_type", required),
        IkeExchangeType(required) => any("ike.exchtype", required),
        RfbSecurityType(required) => any("rfb.sectype", required),
        MqttType(required) => any("mqtt.type", required),
        ModbusFunction(required) => any("modbus.function", required),
        ModbusUnit(required) => any("modbus.unit", required),
        Dnp3Function(required) => any("dnp3_func", required),
        EnipCommand(required) => any("enip_command", required),
        CipService(required) => required.iter().all(|required| any("cip_service", required)),
        NfsProcedure(required) => any("nfs_procedure", required),
        NfsVersion(required) => any("nfs.version", required),
        WebSocketOpcode(required) => any("websocket.opcode", required),
        WebSocketMask(required) => numbers("websocket.mask").any(|value| (value != 0) == *required),
        LdapRequestOperation(required) => any("ldap.request.operation", required),
        LdapResponseOperation(required) => any("ldap.responses.operation", required),
        SipStatusCode(required) => any("sip.stat_code", required),
        HttpStatusCode(required) => any("http.stat_code", required),
        HttpHeaderCount { of, count } => *of == from && any("http.header_cnt", count),
        SshVersion(required) => texts(Buffer::SshProtocol).any(|version| version == required.as_bytes()),
        // The PORT command specifies a host other than the client.
        FtpBounce => numbers("ftp.address").any(|address| match flow.client {
            std::net::IpAddr::V4(client) => u64::from(u32::from(client)) != address,
            std::net::IpAddr::V6(_) => true,
        }),
        Other { keyword, numbers } => any(keyword, numbers),
    }
}
