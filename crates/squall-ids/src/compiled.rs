//! Rules made ready to be looked for.

use std::sync::OnceLock;

use squall_rules::{
    Action, Application, ApplicationTest, BitVerb, Bits, Buffer, Direction, End, EngineVersion,
    IntVerb, Number, Numbers, Operation, PacketTest, Protocol, Rule, RuleSet, Sourced, Step,
    Transform,
};

use crate::Refused;
use crate::inspect::{self, Ready};
use crate::packet::{ICMP, ICMP6, Packet, SCTP, TCP, UDP};

/// Rules of which [`crate::Engine`]s are made. A rule is made ready when it is first asked for, and
/// stays so.
pub struct Compiled<'a> {
    rules: &'a RuleSet,
    made: Vec<OnceLock<Result<Box<Prepared<'a>>, Refused>>>,
}

impl<'a> Compiled<'a> {
    pub fn new(rules: &'a RuleSet) -> Self {
        Compiled { rules, made: rules.rules.iter().map(|_| OnceLock::new()).collect() }
    }

    pub fn rules(&self) -> &'a RuleSet {
        self.rules
    }

    /// The rule `index`, ready.
    pub(crate) fn rule(&self, index: usize) -> Result<&Prepared<'a>, Refused> {
        let Some((rule, made)) = self.rules.rules.get(index).zip(self.made.get(index)) else {
            return Err(Refused {
                rule: index,
                text: format!("there is no rule {index}: the set has {} rules", self.made.len()),
            });
        };
        let made = made.get_or_init(|| {
            Prepared::new(index, rule).map(Box::new).map_err(|text| Refused { rule: index, text })
        });
        made.as_deref().map_err(Clone::clone)
    }
}

/// A rule, ready.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    pub index: usize,
    pub rule: &'a Rule,
    /// Rules are looked at in this order: Suricata's.
    pub order: Order,
    /// Without a buffer: on single packets, on the stream. Both: the stream first. Suricata's way;
    /// see [`Prepared::places`].
    on_packets: bool,
    on_stream: bool,
    /// Nothing in it asks for single packets or for the stream.
    anywhere: bool,
    possible: (bool, bool),
    pub payload: Vec<Ready<'a>>,
    /// Of headers of packets.
    pub headers: Vec<Look<'a>>,
    /// Of transactions.
    pub looks: Vec<Look<'a>>,
    /// Of packets.
    pub packet_tests: &'a [Sourced<PacketTest>],
    /// Of transactions.
    pub tests: Vec<&'a ApplicationTest>,
    /// Of flows.
    pub protocols: Vec<(Option<Application>, bool)>,
    /// Of packets and of connections.
    pub events: Vec<&'a str>,
    /// What must be spoken.
    pub application: Option<Application>,
    /// A pattern without which it cannot match, and where: its longest, or the one that it names.
    pub fast: Option<(Buffer, &'a [u8])>,
    /// Any port will do: source, destination.
    any_port: [bool; 2],
    /// Looks into what both ends send in one transaction.
    pub of_both: bool,
    /// Looked at once in each direction of a flow.
    pub addresses_only: bool,
    pub silent: bool,
}

/// What a buffer must hold.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    pub buffer: Buffer,
    pub transforms: Vec<&'a Transform>,
    pub steps: Vec<Ready<'a>>,
    /// There must be no such buffer; or the steps match.
    pub absent: Option<bool>,
    /// Who sends it, if the rule says so or nobody else does.
    pub sent_by: Option<End>,
    /// Only a part of it, and of what the rule says that it is one: a parameter stands in a URI.
    pub part: Option<(Buffer, &'a str)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    action: u8,
    flow_bits: u8,
    flow_numbers: u8,
    host_bits: u8,
    priority: u32,
    index: usize,
}

impl<'a> Prepared<'a> {
    fn new(index: usize, rule: &'a Rule) -> Result<Self, String> {
        let mut payload: Vec<&Step> = vec![];
        let mut decoded: Vec<&Step> = vec![];
        for inspection in &rule.inspections {
            match inspection.buffer {
                Buffer::Payload | Buffer::RawPayload => payload.extend(&inspection.steps),
                Buffer::Base64Data => decoded.extend(&inspection.steps),
                _ => (),
            }
        }
        // BER is looked at when all else has matched.
        payload.sort_by_key(|step| (matches!(step.operation, Operation::Asn1(_)), step.option));
        let (mut headers, mut looks) = (vec![], vec![]);
        let mut application = match rule.header.protocol {
            Protocol::Application(application) => Some(application),
            _ => None,
        };
        for inspection in &rule.inspections {
            let asked = inspection.buffer;
            let buffer = if asked == Buffer::HttpParameter { Buffer::HttpUri } else { asked };
            if matches!(buffer, Buffer::Payload | Buffer::RawPayload | Buffer::Base64Data) {
                continue;
            }
            if let Some(Transform::Lua(script)) = inspection
                .transforms
                .iter()
                .map(|transform| &transform.is)
                .find(|is| matches!(is, Transform::Lua(_)))
            {
                return Err(format!("luaxform {script}: scripts are not supported"));
            }
            let steps: Vec<&Step> = inspection.steps.iter().collect();
            let look = Look {
                buffer,
                transforms: inspection.transforms.iter().map(|transform| &transform.is).collect(),
                absent: inspection.steps.iter().find_map(|step| match step.operation {
                    Operation::Absent { or_else } => Some(or_else),
                    _ => None,
                }),
                steps: inspect::ready(&steps, &decoded)?,
                sent_by: inspection.sent_by.or(buffer.sent_by()),
                part: inspection.part.as_deref().map(|part| (asked, part)),
            };
            if is_of_packets(buffer) {
                headers.push(look);
            } else {
                if application.is_none() || application == Some(Application::Http) {
                    application = buffer.application().or(application);
                }
                looks.push(look);
            }
        }
        let (mut tests, mut protocols, mut events) = (vec![], vec![], vec![]);
        for test in &rule.application {
            match &test.is {
                ApplicationTest::Protocol { is, negated } => protocols.push((*is, *negated)),
                ApplicationTest::Event(name) if is_of_application(name) => tests.push(&test.is),
                ApplicationTest::Event(name) => events.push(name.as_str()),
                other => {
                    application = application.or(application_of(other));
                    tests.push(other);
                }
            }
        }
        let ready_payload = inspect::ready(&payload, &decoded)?;
        let of_tcp = matches!(
            rule.header.protocol,
            Protocol::Tcp
                | Protocol::TcpSegments
                | Protocol::TcpReassembled
                | Protocol::Ip
                | Protocol::Ip4
                | Protocol::Ip6
        ) || matches!(rule.header.protocol, Protocol::Application(_));
        // What only a packet can be asked makes payloads those of packets.
        let packet_only = rule.header.protocol == Protocol::TcpSegments
            || rule.flow.stream == Some(false)
            || !headers.is_empty()
            || rule.packet.iter().any(|test| needs_packet(&test.is));
        let stream_only =
            rule.header.protocol == Protocol::TcpReassembled || rule.flow.stream == Some(true);
        let anywhere = of_tcp && !packet_only && !stream_only && !payload.is_empty();
        // Suricata reads the packet's own payload for it.
        let packet_only =
            packet_only || payload.iter().any(|step| matches!(step.operation, Operation::Asn1(_)));
        let (on_packets, on_stream) = match (packet_only, stream_only) {
            _ if payload.is_empty() || !of_tcp => (true, false),
            (true, false) => (true, false),
            (false, true) => (false, true),
            _ => {
                let placed = payload.iter().any(|step| {
                    matches!(&step.operation, Operation::Content(content)
                        if !content.is_relative() && (content.offset.is_some() || content.depth.is_some()))
                });
                let sized =
                    rule.packet.iter().any(|test| matches!(test.is, PacketTest::StreamSize { .. }));
                (placed || sized, true)
            }
        };
        let possible = match of_tcp && !payload.is_empty() {
            true => (!stream_only, !packet_only),
            false => (on_packets, on_stream),
        };
        let fast = fast(rule, !looks.is_empty() || !tests.is_empty());
        let any_port =
            [is_any_port(&rule.header.source.ports), is_any_port(&rule.header.destination.ports)];
        let addresses_only = payload.is_empty()
            && headers.is_empty()
            && looks.is_empty()
            && rule.application.is_empty()
            && application.is_none()
            && rule.flow == Default::default()
            && rule.packet.iter().all(|test| matches!(test.is, PacketTest::SameAddress))
            && rule.bits.iter().all(|bits| !is_read(&bits.is))
            && any_port == [true; 2];
        Ok(Prepared {
            index,
            rule,
            order: Order::of(index, rule),
            on_packets,
            on_stream,
            anywhere,
            possible,
            payload: ready_payload,
            headers,
            looks,
            packet_tests: &rule.packet,
            tests,
            protocols,
            events,
            application,
            fast,
            any_port,
            of_both: rule.header.direction == Direction::Transaction,
            addresses_only,
            silent: rule.silent,
        })
    }

    /// Whether what it asks of no buffer is looked for on single packets, and on the stream.
    pub fn places(&self, engine: EngineVersion) -> (bool, bool) {
        match engine {
            EngineVersion::Snort2 | EngineVersion::Snort3 if self.anywhere => (true, true),
            _ => (self.on_packets, self.on_stream),
        }
    }

    /// As [`Prepared::places`], of whatever engine.
    pub fn possible_places(&self) -> (bool, bool) {
        self.possible
    }

    /// Whether it is looked for in transactions, not in packets.
    pub fn is_of_transactions(&self) -> bool {
        !self.looks.is_empty() || !self.tests.is_empty()
    }

    /// Whether protocol, addresses, ports of the header are those of `packet`.
    pub fn is_for(&self, packet: &Packet) -> bool {
        let header = &self.rule.header;
        let protocol = match header.protocol {
            Protocol::Ip => true,
            Protocol::Ip4 => packet.version == 4,
            Protocol::Ip6 => packet.version == 6,
            Protocol::Tcp | Protocol::TcpSegments | Protocol::TcpReassembled => {
                packet.protocol == TCP
            }
            Protocol::Udp => packet.protocol == UDP,
            Protocol::Icmp => matches!(packet.protocol, ICMP | ICMP6),
            Protocol::Icmp6 => packet.protocol == ICMP6,
            Protocol::Sctp => packet.protocol == SCTP,
            Protocol::Application(_) => matches!(packet.protocol, TCP | UDP),
        };
        if !protocol {
            return false;
        }
        let (source, destination) = (&header.source, &header.destination);
        let has_ports = matches!(packet.protocol, TCP | UDP | SCTP) && !packet.is_fragment;
        let port = |is_any: bool, ports: &Numbers, port: u16| {
            is_any || (has_ports && ports.contains(port.into()))
        };
        let is = |source: &squall_rules::Ends,
                  destination: &squall_rules::Ends,
                  [any_source, any_destination]: [bool; 2]| {
            port(any_destination, &destination.ports, packet.destination_port)
                && port(any_source, &source.ports, packet.source_port)
                && destination.addresses.contains(packet.destination)
                && source.addresses.contains(packet.source)
        };
        is(source, destination, self.any_port)
            || (header.direction != Direction::To
                && is(destination, source, [self.any_port[1], self.any_port[0]]))
    }

    /// Whether `spoken` is what it asks for.
    pub fn is_spoken(&self, spoken: Option<Application>) -> bool {
        self.application.is_none_or(|asked| spoken.is_some_and(|spoken| speaks(spoken, asked)))
    }
}

/// Why Suricata never raises a rule, after its name. Seen of 8.0.6, with traffic in which all that
/// the rules ask for was there; the source of 7.0 does the same.
pub(crate) fn never_by_suricata(rule: &Rule) -> Option<&'static str> {
    let of_payload = |inspection: &squall_rules::Inspection| inspection.buffer == Buffer::Payload;
    for test in &rule.application {
        match &test.is {
            // The state is that of the last message of what was just read, behind which a server's
            // greeting never is.
            ApplicationTest::SslState { any_of, negated: false }
                if any_of.iter().all(|state| state == "server_hello") =>
            {
                return Some("never finds server_hello when it tests ssl_state");
            }
            ApplicationTest::FtpBounce if rule.inspections.iter().any(of_payload) => {
                return Some("never matches ftpbounce combined with contents of the payload");
            }
            _ => {}
        }
    }
    let before = |step: &Step| match &step.operation {
        Operation::Content(content) => {
            matches!(content.offset, Some(Number::Is(offset)) if offset < 0)
        }
        _ => false,
    };
    let refused = rule.inspections.iter().flat_map(|inspection| &inspection.steps).any(before);
    refused.then_some("does not load a content with a negative offset")
}

/// Whether who speaks `spoken` speaks what a rule calls `asked`.
pub(crate) fn speaks(spoken: Application, asked: Application) -> bool {
    use Application::*;
    spoken == asked
        || matches!(
            (spoken, asked),
            (Http | Http1 | Http2, Http)
                | (Http, Http1)
                | (Smb, DceRpc)
                | (Mdns, Dns)
                | (Doh2, Http2 | Http | Dns)
        )
}

fn is_any_port(ports: &Numbers) -> bool {
    ports.ranges().next().is_some_and(|range| *range.start() == 0 && *range.end() >= 65_535)
}

/// The pattern of a rule that is looked for first: where it looks into transactions, one of their
/// buffers.
fn fast(rule: &Rule, of_transactions: bool) -> Option<(Buffer, &[u8])> {
    let mut best: Option<(Buffer, &[u8], bool)> = None;
    for inspection in &rule.inspections {
        let buffer = match inspection.buffer {
            Buffer::Payload | Buffer::RawPayload => Buffer::Payload,
            Buffer::Base64Data => continue,
            Buffer::HttpParameter => Buffer::HttpUri,
            buffer => buffer,
        };
        if !inspection.transforms.is_empty()
            || rule.header.direction == Direction::Transaction
            || inspection
                .steps
                .iter()
                .any(|step| matches!(step.operation, Operation::Absent { .. }))
            || (buffer == Buffer::Payload) == of_transactions
            || is_of_packets(buffer)
        {
            continue;
        }
        for step in &inspection.steps {
            if let Operation::Content(content) = &step.operation
                && !content.negated
                && !content.pattern.is_empty()
                && best.is_none_or(|(_, pattern, named)| {
                    (named, pattern.len()) < (content.fast_pattern, content.pattern.len())
                })
            {
                best = Some((buffer, &content.pattern, content.fast_pattern));
            }
        }
    }
    best.map(|(buffer, pattern, _)| (buffer, pattern))
}

fn is_of_packets(buffer: Buffer) -> bool {
    use Buffer::*;
    matches!(
        buffer,
        Ipv4Header
            | Ipv6Header
            | TcpHeader
            | UdpHeader
            | Icmp4Header
            | Icmp6Header
            | SourceAddress
            | DestinationAddress
    )
}

/// Whether the event is one of a protocol of the application layer: `http.` and its like before it.
fn is_of_application(event: &str) -> bool {
    const OF_PACKETS: &[&str] = &[
        "ipv4",
        "ipv6",
        "icmpv4",
        "icmpv6",
        "tcp",
        "udp",
        "sctp",
        "esp",
        "sll",
        "ethernet",
        "ppp",
        "pppoe",
        "gre",
        "vlan",
        "ieee8021ah",
        "vntag",
        "ipraw",
        "ltnull",
        "mpls",
        "vxlan",
        "geneve",
        "erspan",
        "chdlc",
        "dce",
        "nsh",
        "arp",
        "stream",
        "3whs",
        "4whs",
    ];
    match event.split_once('.') {
        Some((prefix, _)) => !OF_PACKETS.contains(&prefix),
        None => {
            !event.starts_with("3whs_") && !event.starts_with("est_") && !event.starts_with("fin_")
        }
    }
}

fn needs_packet(test: &PacketTest) -> bool {
    use PacketTest::*;
    !matches!(
        test,
        StreamSize { .. }
            | SameAddress
            | IpVersion(_)
            | FlowAge(_)
            | FlowPackets { .. }
            | FlowOctets { .. }
            | IpProtocol(_)
    )
}

fn is_read(bits: &Bits) -> bool {
    match bits {
        Bits::Flow { verb, .. } | Bits::Host { verb, .. } => {
            matches!(verb, BitVerb::IsSet | BitVerb::IsNotSet)
        }
        Bits::Int { .. } => true,
    }
}

/// Whose keyword it is.
fn application_of(test: &ApplicationTest) -> Option<Application> {
    use ApplicationTest::*;
    match test {
        DnsOpcode { .. } | DnsRcode(_) | DnsType(_) => Some(Application::Dns),
        TlsVersion { .. } | SslState { .. } | TlsCertCount(_) => Some(Application::Tls),
        DceInterface { .. } | DceOpnum(_) => Some(Application::DceRpc),
        SmbVersion(_) => Some(Application::Smb),
        Krb5MessageType(_) => Some(Application::Krb5),
        SnmpVersion(_) | SnmpPduType(_) => Some(Application::Snmp),
        IkeExchangeType(_) => Some(Application::Ike),
        RfbSecurityType(_) => Some(Application::Rfb),
        MqttType(_) => Some(Application::Mqtt),
        ModbusFunction(_) | ModbusUnit(_) => Some(Application::Modbus),
        Dnp3Function(_) => Some(Application::Dnp3),
        EnipCommand(_) | CipService(_) => Some(Application::Enip),
        NfsProcedure(_) | NfsVersion(_) => Some(Application::Nfs),
        WebSocketOpcode(_) | WebSocketMask(_) => Some(Application::WebSocket),
        LdapRequestOperation(_) | LdapResponseOperation(_) => Some(Application::Ldap),
        SipStatusCode(_) => Some(Application::Sip),
        HttpStatusCode(_) | HttpHeaderCount { .. } => Some(Application::Http),
        SshVersion(_) => Some(Application::Ssh),
        FtpBounce => Some(Application::Ftp),
        Protocol { .. }
        | Event(_)
        | FileExtension { .. }
        | FileName { .. }
        | FileMagic { .. }
        | FileSize(_)
        | FileHash { .. }
        | Other { .. } => None,
    }
}

impl Order {
    /// Pass before drop before reject before alert; who sets before who reads, before who does
    /// neither; then by priority.
    fn of(index: usize, rule: &Rule) -> Self {
        let action = match rule.action {
            Action::Pass => 0,
            Action::Drop => 1,
            Action::Reject => 2,
            Action::Alert | Action::Log | Action::Other => 3,
        };
        let (mut flow, mut numbers, mut host) = ((false, false), (false, false), (false, false));
        for bits in &rule.bits {
            let (seen, reads) = match &bits.is {
                Bits::Flow { verb, .. } => {
                    (&mut flow, matches!(verb, BitVerb::IsSet | BitVerb::IsNotSet))
                }
                Bits::Host { verb, .. } => {
                    (&mut host, matches!(verb, BitVerb::IsSet | BitVerb::IsNotSet))
                }
                Bits::Int { verb, .. } => {
                    (&mut numbers, !matches!(verb, IntVerb::Set | IntVerb::Add | IntVerb::Subtract))
                }
            };
            if reads {
                seen.1 = true;
            } else {
                seen.0 = true;
            }
        }
        let rank = |(sets, reads)| match (sets, reads) {
            (true, false) => 0,
            (true, true) => 1,
            (false, true) => 2,
            (false, false) => 3,
        };
        Order {
            action,
            flow_bits: rank(flow),
            flow_numbers: rank(numbers),
            host_bits: rank(host),
            priority: rule.priority.unwrap_or(3),
            index,
        }
    }
}
