//! A packet, its flow and what is new of it against the rules.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use squall_rules::{Action, BitVerb, Bits, Buffer, End};

use crate::bits::{self, Who};
use crate::compiled::{Look, Prepared};
use crate::flow::{Flow, Looked, Partly, like};
use crate::inspect::{self, About};
use crate::packet::{Packet, TCP, UDP};
use crate::protocols::{FactIs, Transaction};
use crate::stream::{Session, State, Stream};
use crate::{Alert, Engine, conditions, parts, transforms};

/// With less than this, and nothing that makes it urgent, a stream waits for more: Suricata's
/// `toserver-chunk-size` and `toclient-chunk-size`.
const CHUNK: u64 = 2560;

/// What is known of a packet beside what is in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Its direction, if it is of a flow.
    pub from: Option<End>,
    /// Its flow was established before it.
    pub established: bool,
    /// Its payload is part of the stream.
    pub in_stream: bool,
    /// Part of its direction's stream that is looked at with it.
    pub stream: Option<Window>,
    pub event: Option<&'static str>,
    /// It is none: the flow has ended.
    pub last: bool,
}

/// Octets of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    from: u64,
    to: u64,
}

impl Window {
    /// What is to be looked at now of what `of` sends, if it is enough or urgent.
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
    pub fn looked_at(&mut self, window: Option<Window>) {
        if let Some(window) = window {
            self.raw = self.raw.max(window.to);
            self.trigger = false;
            self.tidy();
        }
    }
}

/// A rule that has matched, by its place among the engine's.
struct Match {
    place: u32,
    /// In a transaction: the later is told of first.
    transaction: usize,
    of_flow: bool,
}

impl Engine<'_> {
    /// Looks for all rules. `own`: the packet is one of the flow's own, not an error about it.
    pub(crate) fn look_at(
        &mut self,
        packet: &Packet,
        mut flow: Option<&mut Flow>,
        seen: Seen,
        own: bool,
    ) {
        let candidates = match (&mut flow, seen.from) {
            (Some(flow), Some(from)) if own => {
                if flow.candidates[from as usize].is_none() {
                    flow.candidates[from as usize] = Some(Arc::new(self.candidates(packet)));
                }
                flow.candidates[from as usize].clone().unwrap_or_default()
            }
            _ => Arc::new(self.candidates(packet)),
        };
        let who = Who {
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
                (seen.stream, flow.as_ref().and_then(|flow| flow.session.as_ref()), seen.from)
            {
                for (_, octets) in session.streams[from as usize].runs(window.from, window.to) {
                    prefilter.see(Buffer::Payload, octets);
                }
            }
            if self.settings.every_view
                && let (Some(session), Some(from)) =
                    (flow.as_ref().and_then(|flow| flow.session.as_ref()), seen.from)
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
            if let Some(by_stream) = self.packet_matches(rule, packet, flow.as_deref(), seen, &who)
            {
                self.after(rule, flow.as_deref_mut(), &who);
                let of_flow = by_stream || rule.addresses_only || rule.application.is_some();
                found.push(Match { place, transaction: 0, of_flow });
            }
        }
        if let (Some(flow), Some(from)) = (&mut flow, seen.from)
            && own
        {
            flow.addresses_done[from as usize] = true;
            if flow.application.application().is_some() {
                self.transactions(
                    &candidates.of_transactions,
                    packet,
                    flow,
                    from,
                    seen,
                    &who,
                    &mut found,
                );
            }
        }
        if !found.is_empty() {
            self.alert(found, packet, flow, &who);
        }
    }

    /// Whether a rule matches this packet; `Some(true)`: by its stream.
    fn packet_matches(
        &self,
        rule: &Prepared<'_>,
        packet: &Packet,
        flow: Option<&Flow>,
        seen: Seen,
        who: &Who,
    ) -> Option<bool> {
        if rule.addresses_only
            && let (Some(flow), Some(from)) = (flow, seen.from)
            && flow.addresses_done[from as usize]
        {
            return None;
        }
        // What has ended has no packet: only its stream, its transactions and its bits are left.
        let every_view = self.settings.every_view && packet.protocol == TCP;
        let is_of_ends =
            rule.places(self.settings.engine).1 || every_view && rule.possible_places().1;
        if seen.last && !rule.payload.is_empty() && !is_of_ends {
            return None;
        }
        if !rule.is_spoken(flow.and_then(|flow| flow.application.application()))
            || !self.header_matches(rule, packet, flow, seen, who)
        {
            return None;
        }
        let about = About { engine: self.settings.engine, ..About::default() };
        let (on_packets, on_stream) = rule.places(self.settings.engine);
        let mut variables = vec![0; rule.rule.variables.len()];
        for look in &rule.headers {
            let octets = header(look.buffer, packet)?;
            if !inspect::matches(&look.steps, &octets, &mut variables, about) {
                return None;
            }
        }
        if rule.payload.is_empty() {
            return Some(false);
        }
        if every_view
            && let (Some(session), Some(from)) =
                (flow.and_then(|flow| flow.session.as_ref()), seen.from)
        {
            let (of_packets, of_stream) = rule.possible_places();
            let stream = &session.streams[from as usize];
            let runs = if of_stream { stream.runs(0, stream.end()) } else { vec![] };
            let mut views: Vec<&[u8]> = runs.into_iter().map(|(_, octets)| octets).collect();
            if of_packets && !packet.payload.is_empty() {
                views.push(&packet.payload);
            }
            for octets in views {
                if inspect::matches(&rule.payload, octets, &mut variables, about) {
                    return Some(true);
                }
            }
        }
        if packet.protocol == TCP && on_stream {
            if let (Some(window), Some(session), Some(from)) =
                (seen.stream, flow.and_then(|flow| flow.session.as_ref()), seen.from)
                && session.streams[from as usize].runs(window.from, window.to).iter().any(
                    |(_, octets)| inspect::matches(&rule.payload, octets, &mut variables, about),
                )
            {
                return Some(true);
            }
            // What is in the stream is looked at there.
            if seen.in_stream && !on_packets {
                return None;
            }
        }
        if seen.last || (rule.rule.flow.stream == Some(true) && packet.protocol == TCP) {
            return None;
        }
        // An empty payload has nothing to look into.
        (!packet.payload.is_empty()
            && inspect::matches(&rule.payload, &packet.payload, &mut variables, about))
        .then_some(false)
    }

    /// All that a rule asks beside its buffers.
    fn header_matches(
        &self,
        rule: &Prepared<'_>,
        packet: &Packet,
        flow: Option<&Flow>,
        seen: Seen,
        who: &Who,
    ) -> bool {
        conditions::flow(&rule.rule.flow, packet, seen)
            && rule.packet_tests.iter().all(|test| conditions::packet(&test.is, packet, flow, seen))
            && rule.events.iter().all(|event| {
                packet.events.iter().chain(&seen.event).any(|seen| is_event(event, seen))
            })
            && rule
                .protocols
                .iter()
                .all(|(asked, negated)| conditions::protocol(*asked, *negated, flow))
            && rule
                .rule
                .bits
                .iter()
                .all(|bits| bits::holds(&bits.is, flow.map(|flow| &flow.bits), &self.hosts, who))
    }

    /// What a rule does once it has matched.
    fn after(&mut self, rule: &Prepared<'_>, mut flow: Option<&mut Flow>, who: &Who) {
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
                    who,
                );
            }
        }
    }

    /// The rules that look into transactions.
    #[expect(clippy::too_many_arguments, reason = "all that is known of one packet")]
    fn transactions(
        &mut self,
        candidates: &[u32],
        packet: &Packet,
        flow: &mut Flow,
        from: End,
        seen: Seen,
        who: &Who,
        found: &mut Vec<Match>,
    ) {
        if candidates.is_empty() {
            return;
        }
        let count = flow.transactions.len();
        flow.looked.resize_with(count, Looked::default);
        // The payload of a rule that asks for more than it: all of the stream so far.
        let stream: Option<Vec<u8>> = match (&flow.session, seen.stream) {
            (Some(session), Some(window)) => {
                let runs = session.streams[from as usize].runs(0, window.to);
                runs.into_iter().next_back().map(|(_, octets)| octets.to_vec())
            }
            _ if packet.protocol == UDP => Some(packet.payload.clone()),
            _ => None,
        };
        for index in 0..count {
            let transaction = &flow.transactions[index];
            let like = Some(like(transaction));
            let news = flow.looked[index].like[from as usize] != like;
            if !news && stream.is_none() && !seen.last {
                continue;
            }
            // Of this direction; of either.
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
                if !news && rule.payload.is_empty() {
                    continue;
                }
                let transaction = &flow.transactions[index];
                let present = if rule.of_both { &of_either } else { &present };
                if rule.looks.iter().any(|look| {
                    look.absent.is_none()
                        && present[look.buffer as usize / 64] & 1 << (look.buffer as usize % 64)
                            == 0
                }) || !rule.is_spoken(flow.application.application())
                {
                    continue;
                }
                // What looks into both directions is looked for once, whoever has sent last.
                let key = (if rule.of_both { End::Client } else { from }, place as usize);
                let mut partly = flow.looked[index].rules.get(&key).cloned().unwrap_or_default();
                if partly.done {
                    continue;
                }
                if !partly.header {
                    partly.variables = vec![0; rule.rule.variables.len()];
                    partly.header = self.header_matches(rule, packet, Some(flow), seen, who)
                        && rule
                            .tests
                            .iter()
                            .all(|test| conditions::application(test, transaction, from, flow));
                    if !partly.header {
                        continue;
                    }
                }
                let about = About {
                    little_endian: is_little_endian(transaction),
                    engine: self.settings.engine,
                };
                let matched = transaction_matches(
                    rule,
                    transaction,
                    from,
                    stream.as_deref(),
                    packet,
                    seen,
                    about,
                    &mut partly,
                );
                if matched {
                    partly.done = true;
                    found.push(Match { place, transaction: index, of_flow: true });
                    self.after(rule, Some(flow), who);
                }
                if matched || partly.looks != 0 {
                    flow.looked[index].rules.insert(key, partly);
                }
            }
            let transaction = &mut flow.transactions[index];
            flow.looked[index].like[from as usize] = like;
            // What is done and was looked at both ways is not needed any more.
            let over = |like: &Option<(usize, usize, [bool; 2])>| {
                like.is_some_and(|(_, _, done)| done == [true; 2])
            };
            if flow.looked[index].like.iter().all(over)
                && transaction.done == [true; 2]
                && count > 64
            {
                transaction.buffers = vec![];
            }
        }
    }

    /// Tells of rules that have matched: in their order, no more than one packet may have, none
    /// after one that lets it pass.
    fn alert(
        &mut self,
        mut found: Vec<Match>,
        packet: &Packet,
        mut flow: Option<&mut Flow>,
        who: &Who,
    ) {
        found.sort_by_key(|found| (found.place, usize::MAX - found.transaction));
        let mut told = 0;
        for one in found {
            let rule = self.rules[one.place as usize];
            let mut counted = true;
            for (index, count) in rule.rule.counts.iter().enumerate() {
                counted &= self.hosts.counts(rule.index, index, &count.is, who);
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
            if rule.silent || told == self.settings.alerts_per_packet {
                continue;
            }
            told += 1;
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

/// Numbers of its DCE/RPC are of that byte order.
fn is_little_endian(transaction: &Transaction) -> bool {
    transaction
        .facts
        .iter()
        .any(|fact| matches!(fact.is, FactIs::Number { what: "dcerpc.little_endian", value } if value != 0))
}

/// Whether all that a rule looks into has matched by now; what has matched is kept in `partly`.
#[expect(clippy::too_many_arguments, reason = "all that is known of one transaction")]
fn transaction_matches(
    rule: &Prepared<'_>,
    transaction: &Transaction,
    from: End,
    stream: Option<&[u8]>,
    packet: &Packet,
    seen: Seen,
    about: About,
    partly: &mut Partly,
) -> bool {
    for (index, look) in rule.looks.iter().enumerate() {
        let bit = 1u64 << index.min(63);
        if partly.looks & bit != 0 {
            continue;
        }
        let of = if rule.of_both { look.sent_by } else { Some(from) };
        if !look_matches(look, transaction, of, seen, about, &mut partly.variables) {
            return false;
        }
        partly.looks |= bit;
    }
    if rule.payload.is_empty() || partly.payload {
        return true;
    }
    partly.payload = match stream {
        Some(octets) => inspect::matches(&rule.payload, octets, &mut partly.variables, about),
        None => packet.protocol != TCP && packet.protocol != UDP,
    };
    partly.payload
}

fn look_matches(
    look: &Look<'_>,
    transaction: &Transaction,
    of: Option<End>,
    seen: Seen,
    about: About,
    variables: &mut [u64],
) -> bool {
    let mut buffers = transaction
        .buffers
        .iter()
        .filter(|(buffer, by, _)| *buffer == look.buffer && of.is_none_or(|of| of == *by))
        .peekable();
    if let Some(or_else) = look.absent {
        if buffers.peek().is_none() {
            let done = |of: End| transaction.done[of as usize];
            return seen.last || of.map_or(done(End::Client) && done(End::Server), done);
        }
        if !or_else {
            return false;
        }
    }
    buffers.any(|(_, _, octets)| {
        let octets: Cow<'_, [u8]> = match look.part {
            Some((asked, part)) => match parts::of(asked, part, octets) {
                Some(octets) => octets.into(),
                None => return false,
            },
            None => octets.into(),
        };
        if look.transforms.is_empty() {
            return inspect::matches(&look.steps, &octets, variables, about);
        }
        let made = look
            .transforms
            .iter()
            .fold(octets.into_owned(), |octets, transform| transforms::apply(transform, &octets));
        inspect::matches(&look.steps, &made, variables, about)
    })
}

/// A buffer that is a packet's header.
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

/// `stream-event:` names come with and without `stream.` before them.
fn is_event(asked: &str, seen: &str) -> bool {
    asked == seen || asked.strip_prefix("stream.").is_some_and(|asked| asked == seen)
}
