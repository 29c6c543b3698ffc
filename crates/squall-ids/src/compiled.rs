//! Compiles rules into a form that can be matched.

use std::sync::OnceLock;

use squall_rules::{
    Action, Application, ApplicationTest, BitVerb, Bits, Buffer, Direction, End, EngineVersion,
    IntVerb, Number, Numbers, Operation, PacketTest, Protocol, Rule, RuleSet, Sourced, Step,
    Transform,
};

use crate::Refused;
use crate::inspect::{self, CompiledStep};
use crate::packet::{ICMP, ICMP6, Packet, SCTP, TCP, UDP};

/// The rules for [`crate::Engine`]s. Each rule is compiled on first use: most engines use only a
/// few.
pub struct Compiled<'a> {
    rules: &'a RuleSet,
    made: Vec<OnceLock<Result<Box<CompiledRule<'a>>, Refused>>>,
}

impl<'a> Compiled<'a> {
    pub fn new(rules: &'a RuleSet) -> Self {
        Compiled { rules, made: rules.rules.iter().map(|_| OnceLock::new()).collect() }
    }

    pub fn rules(&self) -> &'a RuleSet {
        self.rules
    }

    /// The compiled rule `index`.
    pub(crate) fn rule(&self, index: usize) -> Result<&CompiledRule<'a>, Refused> {
        let Some((rule, made)) = self.rules.rules.get(index).zip(self.made.get(index)) else {
            return Err(Refused {
                rule: index,
                text: format!("there is no rule {index}: the set has {} rules", self.made.len()),
            });
        };
        let made = made.get_or_init(|| {
            CompiledRule::new(index, rule)
                .map(Box::new)
                .map_err(|text| Refused { rule: index, text })
        });
        made.as_deref().map_err(Clone::clone)
    }
}

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct CompiledRule<'a> {
    pub index: usize,
    pub rule: &'a Rule,
    /// Position in the order of evaluation, which is Suricata's.
    pub order: Order,
    /// Whether tests without a buffer apply to single packets; the next field: whether they apply
    /// to the stream. If both do, Suricata tries the stream first: [`CompiledRule::places`].
    on_packets: bool,
    on_stream: bool,
    /// No test requires single packets, and none requires the stream.
    anywhere: bool,
    possible: (bool, bool),
    pub payload: Vec<CompiledStep<'a>>,
    /// Tests of packet header buffers.
    pub headers: Vec<BufferTest<'a>>,
    /// Tests of transaction buffers.
    pub buffer_tests: Vec<BufferTest<'a>>,
    /// Tests of packet headers.
    pub packet_tests: &'a [Sourced<PacketTest>],
    /// Tests of transactions.
    pub tests: Vec<&'a ApplicationTest>,
    /// `app-layer-protocol:` tests of the flow, each with whether it is negated.
    pub protocols: Vec<(Option<Application>, bool)>,
    /// Events of packets and connections.
    pub events: Vec<&'a str>,
    /// The required application protocol.
    pub application: Option<Application>,
    /// A pattern without which the rule cannot match, with its buffer: the `fast_pattern` or the
    /// longest content.
    pub fast: Option<(Buffer, &'a [u8])>,
    /// Whether any source port matches, and whether any destination port does.
    any_port: [bool; 2],
    /// The rule inspects data from both ends in one transaction.
    pub of_both: bool,
    /// The rule tests only addresses, so it is evaluated once per direction of a flow.
    pub addresses_only: bool,
    pub silent: bool,
}

/// A test of one buffer.
#[derive(Debug)]
pub(crate) struct BufferTest<'a> {
    pub buffer: Buffer,
    pub transforms: Vec<&'a Transform>,
    pub steps: Vec<CompiledStep<'a>>,
    /// `Some`: the buffer must be absent. With `Some(true)` it may also be present and match the
    /// steps.
    pub absent: Option<bool>,
    /// The end that must have sent the buffer: named in the rule, or the only one that can send it.
    pub sent_by: Option<End>,
    /// The part of the buffer to test, and the buffer that the rule names, which may be a part
    /// itself: a parameter is a part of the URI.
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

impl<'a> CompiledRule<'a> {
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
        // Sort BER tests last, as Suricata does.
        payload.sort_by_key(|step| (matches!(step.operation, Operation::Asn1(_)), step.option));
        let (mut headers, mut buffer_tests) = (vec![], vec![]);
        let mut application = match rule.header.protocol {
            Protocol::Application(application) => Some(application),
            _ => None,
        };
        for inspection in &rule.inspections {
            let required = inspection.buffer;
            let buffer = if required == Buffer::HttpParameter { Buffer::HttpUri } else { required };
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
            let test = BufferTest {
                buffer,
                transforms: inspection.transforms.iter().map(|transform| &transform.is).collect(),
                absent: inspection.steps.iter().find_map(|step| match step.operation {
                    Operation::Absent { or_else } => Some(or_else),
                    _ => None,
                }),
                steps: inspect::compile_steps(&steps, &decoded)?,
                sent_by: inspection.sent_by.or(buffer.sent_by()),
                part: inspection.part.as_deref().map(|part| (required, part)),
            };
            if is_of_packets(buffer) {
                headers.push(test);
            } else {
                if application.is_none() || application == Some(Application::Http) {
                    application = buffer.application().or(application);
                }
                buffer_tests.push(test);
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
        let payload_steps = inspect::compile_steps(&payload, &decoded)?;
        let of_tcp = matches!(
            rule.header.protocol,
            Protocol::Tcp
                | Protocol::TcpSegments
                | Protocol::TcpReassembled
                | Protocol::Ip
                | Protocol::Ip4
                | Protocol::Ip6
        ) || matches!(rule.header.protocol, Protocol::Application(_));
        // A test that applies only to packets restricts the payload tests to single packets as
        // well.
        let packet_only = rule.header.protocol == Protocol::TcpSegments
            || rule.flow.stream == Some(false)
            || !headers.is_empty()
            || rule.packet.iter().any(|test| needs_packet(&test.is));
        let stream_only =
            rule.header.protocol == Protocol::TcpReassembled || rule.flow.stream == Some(true);
        let anywhere = of_tcp && !packet_only && !stream_only && !payload.is_empty();
        // Suricata applies `asn1` to packet payloads.
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
        let fast = fast(rule, !buffer_tests.is_empty() || !tests.is_empty());
        let any_port =
            [is_any_port(&rule.header.source.ports), is_any_port(&rule.header.destination.ports)];
        let addresses_only = payload.is_empty()
            && headers.is_empty()
            && buffer_tests.is_empty()
            && rule.application.is_empty()
            && application.is_none()
            && rule.flow == Default::default()
            && rule.packet.iter().all(|test| matches!(test.is, PacketTest::SameAddress))
            && rule.bits.iter().all(|bits| !is_read(&bits.is))
            && any_port == [true; 2];
        Ok(CompiledRule {
            index,
            rule,
            order: Order::of(index, rule),
            on_packets,
            on_stream,
            anywhere,
            possible,
            payload: payload_steps,
            headers,
            buffer_tests,
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

    /// Whether tests without a buffer apply to single packets, and whether to the stream.
    pub fn places(&self, engine: EngineVersion) -> (bool, bool) {
        match engine {
            EngineVersion::Snort2 | EngineVersion::Snort3 if self.anywhere => (true, true),
            _ => (self.on_packets, self.on_stream),
        }
    }

    /// Like [`CompiledRule::places`], for any engine.
    pub fn possible_places(&self) -> (bool, bool) {
        self.possible
    }

    /// Whether the rule is evaluated on transactions instead of packets.
    pub fn is_of_transactions(&self) -> bool {
        !self.buffer_tests.is_empty() || !self.tests.is_empty()
    }

    /// Whether protocol, addresses and ports of the header match `packet`.
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

    /// Whether the detected protocol satisfies the rule.
    pub fn matches_application(&self, detected: Option<Application>) -> bool {
        self.application.is_none_or(|required| {
            detected.is_some_and(|detected| protocol_matches(detected, required))
        })
    }
}

/// Why Suricata never raises an alert for the rule, as a phrase to follow the rule's name. Observed
/// with 8.0.6 on traffic that satisfies the rules; the source code of 7.0 does the same.
pub(crate) fn never_by_suricata(rule: &Rule) -> Option<&'static str> {
    let of_payload = |inspection: &squall_rules::Inspection| inspection.buffer == Buffer::Payload;
    for test in &rule.application {
        match &test.is {
            // The tested state is that of the last message in the data just parsed, which is never
            // the ServerHello.
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

/// Whether the detected protocol is one that a rule calls `required`.
pub(crate) fn protocol_matches(detected: Application, required: Application) -> bool {
    use Application::*;
    detected == required
        || matches!(
            (detected, required),
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

/// The pattern to search for first. For a rule on transactions, a pattern for one of their buffers.
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

/// Whether the prefix of the event's name (`http.`) is that of an application protocol.
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

/// The protocol that a keyword implies.
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
    /// Suricata's order: by action (pass, drop, reject, alert), then rules that set bits before
    /// rules that test them before others, then by priority.
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
