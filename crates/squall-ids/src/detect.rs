//! Evaluates the rules on a packet and on the new data in its flow.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use squall_rules::{Action, BitVerb, Bits, Buffer, End};

use crate::bits::{self, PacketInfo};
use crate::compiled::{BufferTest, CompiledRule};
use crate::flow::{Flow, InspectionState, RuleProgress, fingerprint};
use crate::inspect::{self, BufferProperties};
use crate::packet::{Packet, TCP, UDP};
use crate::protocols::{FactIs, Transaction};
use crate::stream::{Session, State, Stream};
use crate::{Alert, Engine, conditions, parts, transforms};

/// Shorter data waits for more, unless it is urgent: Suricata's `toserver-chunk-size` and
/// `toclient-chunk-size`.
const CHUNK: u64 = 2560;

/// The context of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowContext {
    /// The packet's direction, if it belongs to a flow.
    pub from: Option<End>,
    /// The flow was established before this packet.
    pub established: bool,
    /// The payload was added to the stream.
    pub in_stream: bool,
    /// The part of its direction's stream to inspect now.
    pub stream: Option<Window>,
    pub event: Option<&'static str>,
    /// The flow has ended, so there is no packet.
    pub last: bool,
}

/// A range of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    from: u64,
    to: u64,
}

impl Window {
    /// The data sent by `of` to inspect now; `None` if there is too little and it is not urgent.
    pub fn of(session: &mut Session, of: End, last: bool) -> Option<Self> {
        let urgent = last || session.state >= State::ClientClosed;
        let established = session.is_established();
        let stream = session.stream(of);
        let to = if last { stream.end() } else { stream.acknowledged.min(stream.end()) };
        let from = stream.raw;
        let enough = to.saturating_sub(from) >= CHUNK;
        (established && to > from && (urgent || enough || stream.trigger))
            .then_some(Window { from, to })
    }
}

impl Stream {
    pub fn mark_inspected(&mut self, window: Option<Window>) {
        if let Some(window) = window {
            self.raw = self.raw.max(window.to);
            self.trigger = false;
            self.tidy();
        }
    }
}

/// A match of a rule. `place` is the index of the rule in the engine.
struct Match {
    place: u32,
    /// Alerts for later transactions come first.
    transaction: usize,
    of_flow: bool,
}

impl Engine<'_> {
    /// Evaluates all rules. `own`: the packet belongs to the flow, and is not an ICMP error about
    /// it.
    pub(crate) fn evaluate(
        &mut self,
        packet: &Packet,
        mut flow: Option<&mut Flow>,
        context: FlowContext,
        own: bool,
    ) {
        let candidates = match (&mut flow, context.from) {
            (Some(flow), Some(from)) if own => {
                if flow.candidates[from as usize].is_none() {
                    flow.candidates[from as usize] = Some(Arc::new(self.candidates(packet)));
                }
                flow.candidates[from as usize].clone().unwrap_or_default()
            }
            _ => Arc::new(self.candidates(packet)),
        };
        let info = PacketInfo {
            at: packet.at,
            source: packet.source,
            destination: packet.destination,
            flow: flow.as_ref().map(|flow| flow.number),
        };
        let mut found: Vec<Match> = vec![];
        if let Some(prefilter) = &mut self.prefilter {
            prefilter.begin();
            prefilter.see(Buffer::Payload, &packet.payload);
            if let (Some(window), Some(session), Some(from)) =
                (context.stream, flow.as_ref().and_then(|flow| flow.session.as_ref()), context.from)
            {
                for (_, octets) in session.streams[from as usize].runs(window.from, window.to) {
                    prefilter.see(Buffer::Payload, octets);
                }
            }
            if self.settings.every_view
                && let (Some(session), Some(from)) =
                    (flow.as_ref().and_then(|flow| flow.session.as_ref()), context.from)
            {
                let stream = &session.streams[from as usize];
                for (_, octets) in stream.runs(0, stream.end()) {
                    prefilter.see(Buffer::Payload, octets);
                }
            }
        }
        for &place in &candidates.of_packets {
            if self.prefilter.as_ref().is_some_and(|prefilter| !prefilter.can_match(place)) {
                continue;
            }
            let rule = self.rules[place as usize];
            if let Some(by_stream) =
                self.packet_matches(rule, packet, flow.as_deref(), context, &info)
            {
                self.after(rule, flow.as_deref_mut(), &info);
                let of_flow = by_stream || rule.addresses_only || rule.application.is_some();
                found.push(Match { place, transaction: 0, of_flow });
            }
        }
        if let (Some(flow), Some(from)) = (&mut flow, context.from)
            && own
        {
            flow.addresses_done[from as usize] = true;
            if flow.application.application().is_some() {
                self.transactions(
                    &candidates.of_transactions,
                    packet,
                    flow,
                    from,
                    context,
                    &info,
                    &mut found,
                );
            }
        }
        if !found.is_empty() {
            self.alert(found, packet, flow, &info);
        }
    }

    /// Whether a rule matches this packet; `Some(true)`: by its stream.
    fn packet_matches(
        &self,
        rule: &CompiledRule<'_>,
        packet: &Packet,
        flow: Option<&Flow>,
        context: FlowContext,
        info: &PacketInfo,
    ) -> Option<bool> {
        if rule.addresses_only
            && let (Some(flow), Some(from)) = (flow, context.from)
            && flow.addresses_done[from as usize]
        {
            return None;
        }
        // An ended flow has no packet, but still has a stream, transactions and bits.
        let every_view = self.settings.every_view && packet.protocol == TCP;
        let is_of_ends =
            rule.places(self.settings.engine).1 || every_view && rule.possible_places().1;
        if context.last && !rule.payload.is_empty() && !is_of_ends {
            return None;
        }
        if !rule.matches_application(flow.and_then(|flow| flow.application.application()))
            || !self.header_matches(rule, packet, flow, context, info)
        {
            return None;
        }
        let properties =
            BufferProperties { engine: self.settings.engine, ..BufferProperties::default() };
        let (on_packets, on_stream) = rule.places(self.settings.engine);
        let mut variables = vec![0; rule.rule.variables.len()];
        for test in &rule.headers {
            let octets = header(test.buffer, packet)?;
            if !inspect::matches(&test.steps, &octets, &mut variables, properties) {
                return None;
            }
        }
        if rule.payload.is_empty() {
            return Some(false);
        }
        if every_view
            && let (Some(session), Some(from)) =
                (flow.and_then(|flow| flow.session.as_ref()), context.from)
        {
            let (of_packets, of_stream) = rule.possible_places();
            let stream = &session.streams[from as usize];
            let runs = if of_stream { stream.runs(0, stream.end()) } else { vec![] };
            let mut views: Vec<&[u8]> = runs.into_iter().map(|(_, octets)| octets).collect();
            if of_packets && !packet.payload.is_empty() {
                views.push(&packet.payload);
            }
            for octets in views {
                if inspect::matches(&rule.payload, octets, &mut variables, properties) {
                    return Some(true);
                }
            }
        }
        if packet.protocol == TCP && on_stream {
            if let (Some(window), Some(session), Some(from)) =
                (context.stream, flow.and_then(|flow| flow.session.as_ref()), context.from)
                && session.streams[from as usize].runs(window.from, window.to).iter().any(
                    |(_, octets)| {
                        inspect::matches(&rule.payload, octets, &mut variables, properties)
                    },
                )
            {
                return Some(true);
            }
            // Data in the stream is inspected in the stream, not in the packet.
            if context.in_stream && !on_packets {
                return None;
            }
        }
        if context.last || (rule.rule.flow.stream == Some(true) && packet.protocol == TCP) {
            return None;
        }
        // Suricata does not inspect empty payloads.
        (!packet.payload.is_empty()
            && inspect::matches(&rule.payload, &packet.payload, &mut variables, properties))
        .then_some(false)
    }

    /// Whether all conditions hold, except those on buffers.
    fn header_matches(
        &self,
        rule: &CompiledRule<'_>,
        packet: &Packet,
        flow: Option<&Flow>,
        context: FlowContext,
        info: &PacketInfo,
    ) -> bool {
        conditions::flow(&rule.rule.flow, packet, context)
            && rule
                .packet_tests
                .iter()
                .all(|test| conditions::packet(&test.is, packet, flow, context))
            && rule.events.iter().all(|event| {
                packet.events.iter().chain(&context.event).any(|raised| is_event(event, raised))
            })
            && rule
                .protocols
                .iter()
                .all(|(required, negated)| conditions::protocol(*required, *negated, flow))
            && rule
                .rule
                .bits
                .iter()
                .all(|bits| bits::holds(&bits.is, flow.map(|flow| &flow.bits), &self.hosts, info))
    }

    /// Applies the effects of a rule that has matched.
    fn after(&mut self, rule: &CompiledRule<'_>, mut flow: Option<&mut Flow>, info: &PacketInfo) {
        for bits in &rule.rule.bits {
            if !matches!(
                &bits.is,
                Bits::Flow { verb: BitVerb::IsSet | BitVerb::IsNotSet, .. }
                    | Bits::Host { verb: BitVerb::IsSet | BitVerb::IsNotSet, .. }
            ) {
                bits::set(
                    &bits.is,
                    flow.as_deref_mut().map(|flow| &mut flow.bits),
                    &mut self.hosts,
                    info,
                );
            }
        }
    }

    /// Evaluates the rules on transactions.
    #[expect(clippy::too_many_arguments, reason = "all that is known of one packet")]
    fn transactions(
        &mut self,
        candidates: &[u32],
        packet: &Packet,
        flow: &mut Flow,
        from: End,
        context: FlowContext,
        info: &PacketInfo,
        found: &mut Vec<Match>,
    ) {
        if candidates.is_empty() {
            return;
        }
        let count = flow.transactions.len();
        flow.inspected.resize_with(count, InspectionState::default);
        // The whole stream so far, for rules that also test the payload.
        let stream: Option<Vec<u8>> = match (&flow.session, context.stream) {
            (Some(session), Some(window)) => {
                let runs = session.streams[from as usize].runs(0, window.to);
                runs.into_iter().next_back().map(|(_, octets)| octets.to_vec())
            }
            _ if packet.protocol == UDP => Some(packet.payload.clone()),
            _ => None,
        };
        for index in 0..count {
            let transaction = &flow.transactions[index];
            let fingerprint = Some(fingerprint(transaction));
            let changed = flow.inspected[index].fingerprint[from as usize] != fingerprint;
            if !changed && stream.is_none() && !context.last {
                continue;
            }
            // Bit sets of the buffers that are present, in this direction and in either direction.
            let (mut present, mut of_either) = ([0u64; 4], [0u64; 4]);
            if let Some(prefilter) = &mut self.prefilter {
                prefilter.begin();
            }
            for (buffer, of, octets) in &transaction.buffers {
                of_either[*buffer as usize / 64] |= 1 << (*buffer as usize % 64);
                if *of == from {
                    present[*buffer as usize / 64] |= 1 << (*buffer as usize % 64);
                    if let Some(prefilter) = &mut self.prefilter {
                        prefilter.see(*buffer, octets);
                    }
                }
            }
            for &place in candidates {
                if self.prefilter.as_ref().is_some_and(|prefilter| !prefilter.can_match(place)) {
                    continue;
                }
                let rule = self.rules[place as usize];
                if !changed && rule.payload.is_empty() {
                    continue;
                }
                let transaction = &flow.transactions[index];
                let present = if rule.of_both { &of_either } else { &present };
                if rule.buffer_tests.iter().any(|test| {
                    test.absent.is_none()
                        && present[test.buffer as usize / 64] & 1 << (test.buffer as usize % 64)
                            == 0
                }) || !rule.matches_application(flow.application.application())
                {
                    continue;
                }
                // A rule on both directions matches only once, whichever end has sent last.
                let key = (if rule.of_both { End::Client } else { from }, place as usize);
                let mut progress =
                    flow.inspected[index].rules.get(&key).cloned().unwrap_or_default();
                if progress.done {
                    continue;
                }
                if !progress.header {
                    progress.variables = vec![0; rule.rule.variables.len()];
                    progress.header = self.header_matches(rule, packet, Some(flow), context, info)
                        && rule
                            .tests
                            .iter()
                            .all(|test| conditions::application(test, transaction, from, flow));
                    if !progress.header {
                        continue;
                    }
                }
                let properties = BufferProperties {
                    little_endian: is_little_endian(transaction),
                    engine: self.settings.engine,
                };
                let matched = transaction_matches(
                    rule,
                    transaction,
                    from,
                    stream.as_deref(),
                    packet,
                    context,
                    properties,
                    &mut progress,
                );
                if matched {
                    progress.done = true;
                    found.push(Match { place, transaction: index, of_flow: true });
                    self.after(rule, Some(flow), info);
                }
                if matched || progress.buffer_tests != 0 {
                    flow.inspected[index].rules.insert(key, progress);
                }
            }
            let transaction = &mut flow.transactions[index];
            flow.inspected[index].fingerprint[from as usize] = fingerprint;
            // Free the buffers of a complete transaction once it is inspected in both directions.
            let over = |fingerprint: &Option<(usize, usize, [bool; 2])>| {
                fingerprint.is_some_and(|(_, _, done)| done == [true; 2])
            };
            if flow.inspected[index].fingerprint.iter().all(over)
                && transaction.done == [true; 2]
                && count > 64
            {
                transaction.buffers = vec![];
            }
        }
    }

    /// Raises alerts in the order of the rules, up to the maximum per packet. A pass rule ends the
    /// list.
    fn alert(
        &mut self,
        mut found: Vec<Match>,
        packet: &Packet,
        mut flow: Option<&mut Flow>,
        info: &PacketInfo,
    ) {
        found.sort_by_key(|found| (found.place, usize::MAX - found.transaction));
        let mut raised = 0;
        for one in found {
            let rule = self.rules[one.place as usize];
            let mut counted = true;
            for (index, count) in rule.rule.counts.iter().enumerate() {
                counted &= self.hosts.counts(rule.index, index, &count.is, info);
            }
            if !counted {
                continue;
            }
            if rule.rule.action == Action::Pass {
                if let Some(flow) = &mut flow
                    && one.of_flow
                {
                    flow.passed = true;
                }
                break;
            }
            if rule.silent || raised == self.settings.alerts_per_packet {
                continue;
            }
            raised += 1;
            let has_ports = matches!(packet.protocol, TCP | UDP | crate::packet::SCTP);
            self.alerts.push(Alert {
                at: packet.at,
                rule: rule.index,
                protocol: packet.protocol,
                source: packet.source,
                source_port: if has_ports { packet.source_port } else { 0 },
                destination: packet.destination,
                destination_port: if has_ports { packet.destination_port } else { 0 },
                application: flow.as_ref().and_then(|flow| flow.application.application()),
            });
        }
    }
}

/// Whether the transaction's DCE/RPC data is little-endian.
fn is_little_endian(transaction: &Transaction) -> bool {
    transaction
        .facts
        .iter()
        .any(|fact| matches!(fact.is, FactIs::Number { what: "dcerpc.little_endian", value } if value != 0))
}

/// Whether all tests of a rule have matched so far. `progress` keeps partial matches.
#[expect(clippy::too_many_arguments, reason = "all that is known of one transaction")]
fn transaction_matches(
    rule: &CompiledRule<'_>,
    transaction: &Transaction,
    from: End,
    stream: Option<&[u8]>,
    packet: &Packet,
    context: FlowContext,
    properties: BufferProperties,
    progress: &mut RuleProgress,
) -> bool {
    for (index, test) in rule.buffer_tests.iter().enumerate() {
        let bit = 1u64 << index.min(63);
        if progress.buffer_tests & bit != 0 {
            continue;
        }
        let of = if rule.of_both { test.sent_by } else { Some(from) };
        if !look_matches(test, transaction, of, context, properties, &mut progress.variables) {
            return false;
        }
        progress.buffer_tests |= bit;
    }
    if rule.payload.is_empty() || progress.payload {
        return true;
    }
    progress.payload = match stream {
        Some(octets) => {
            inspect::matches(&rule.payload, octets, &mut progress.variables, properties)
        }
        None => packet.protocol != TCP && packet.protocol != UDP,
    };
    progress.payload
}

fn look_matches(
    test: &BufferTest<'_>,
    transaction: &Transaction,
    of: Option<End>,
    context: FlowContext,
    properties: BufferProperties,
    variables: &mut [u64],
) -> bool {
    let mut buffers = transaction
        .buffers
        .iter()
        .filter(|(buffer, by, _)| *buffer == test.buffer && of.is_none_or(|of| of == *by))
        .peekable();
    if let Some(or_else) = test.absent {
        if buffers.peek().is_none() {
            let done = |of: End| transaction.done[of as usize];
            return context.last || of.map_or(done(End::Client) && done(End::Server), done);
        }
        if !or_else {
            return false;
        }
    }
    buffers.any(|(_, _, octets)| {
        let octets: Cow<'_, [u8]> = match test.part {
            Some((required, part)) => match parts::of(required, part, octets) {
                Some(octets) => octets.into(),
                None => return false,
            },
            None => octets.into(),
        };
        if test.transforms.is_empty() {
            return inspect::matches(&test.steps, &octets, variables, properties);
        }
        let made = test
            .transforms
            .iter()
            .fold(octets.into_owned(), |octets, transform| transforms::apply(transform, &octets));
        inspect::matches(&test.steps, &made, variables, properties)
    })
}

/// The octets of a packet header buffer.
fn header(buffer: Buffer, packet: &Packet) -> Option<Cow<'_, [u8]>> {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let octets = match (buffer, packet.protocol, packet.version) {
        (Buffer::SourceAddress, ..) => return Some(address(packet.source).into()),
        (Buffer::DestinationAddress, ..) => return Some(address(packet.destination).into()),
        (Buffer::Ipv4Header, _, 4) | (Buffer::Ipv6Header, _, 6) => &packet.ip_header,
        (Buffer::TcpHeader, crate::packet::TCP, _)
        | (Buffer::UdpHeader, crate::packet::UDP, _)
        | (Buffer::Icmp4Header, crate::packet::ICMP, _)
        | (Buffer::Icmp6Header, crate::packet::ICMP6, _) => &packet.upper_header,
        _ => return None,
    };
    (!octets.is_empty()).then_some(octets.as_slice().into())
}

/// Whether `raised` is the event that a rule requires. Names of stream events may have the prefix
/// `stream.`.
fn is_event(required: &str, raised: &str) -> bool {
    required == raised || required.strip_prefix("stream.").is_some_and(|name| name == raised)
}
