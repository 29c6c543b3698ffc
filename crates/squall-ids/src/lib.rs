//! Evaluates which rules match a capture. Input: rules, and frames in time order. Output: alerts.
//!
//! This is an exact evaluator, modeled on Suricata's documentation and observed behavior. It tracks
//! flows, reassembles streams, parses the application layer, and matches each rule against the
//! buffers that it names, with real PCRE2. Correctness has priority over speed: the evaluator
//! verifies traffic made from rules, and scores the alerts of detection engines. It does not depend
//! on how traffic is made from a rule (squall-attacks uses it for verification and shares no code
//! with it), nor on files, clocks and ports.
//!
//! ```
//! use squall_ids::{Compiled, Engine, Settings};
//! use squall_rules::RuleSet;
//! use squall_units::Nanos;
//!
//! let rules = RuleSet::default();
//! let compiled = Compiled::new(&rules);
//! let (mut engine, refused) = Engine::new(&compiled, &[], Settings::default());
//! engine.frame(Nanos(0), &[0; 60]);
//! engine.finish();
//! assert!(refused.is_empty() && engine.alerts().is_empty());
//! ```
#![forbid(unsafe_code)]

mod ber;
mod bits;
mod compiled;
mod conditions;
mod detect;
mod expression;
mod flow;
mod fragments;
mod inspect;
mod packet;
mod parts;
mod prefilter;
mod protocols;
mod stream;
mod transforms;

#[doc(hidden)]
pub use protocols::read_any_octets;

use std::collections::HashMap;
use std::net::IpAddr;

use squall_rules::{Application, End, EngineVersion};
use squall_units::Nanos;
use squall_wire::tcp_flags::{ACK, RST, SYN};

pub use compiled::Compiled;

use crate::bits::HostBits;
use crate::compiled::CompiledRule;
use crate::detect::{FlowContext, Window};
use crate::flow::{Candidates, Detection, Flow, Flows};
use crate::fragments::{Fragments, Policy};
use crate::packet::{Packet, UDP};
use crate::prefilter::Prefilter;
use crate::protocols::{Expected, First, Transport, Verdict};
use crate::stream::Session;

/// Maximum octets kept per end until the protocol is detected.
const MAX_PREFIX: usize = 16 * 1024;
/// Maximum number of announced connections, such as those for FTP data, that were not opened yet.
const MAX_EXPECTED: usize = 4096;

/// Maximum number of alerts for one packet: Suricata's `packet-alert-max`, `event_queue: log` in
/// Snort 2's snort.conf, and Snort 3's default.
fn alerts_per_packet(engine: EngineVersion) -> usize {
    match engine {
        EngineVersion::Suricata7 | EngineVersion::Suricata8 => 15,
        EngineVersion::Snort2 => 5,
        EngineVersion::Snort3 => 3,
    }
}

/// The reason why the engine never raises an alert for this rule on any traffic, if there is a
/// known one.
pub fn never_raised(engine: EngineVersion, rule: &squall_rules::Rule) -> Option<String> {
    let why = compiled::never_by_suricata(rule).filter(|_| engine.is_suricata())?;
    Some(format!("{engine} {why}"))
}

/// Settings in which engines differ.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The engine whose behavior to follow where engines are known to differ. Only Suricata 8 was
    /// verified against the engine's alerts; the others follow source code and documentation.
    pub engine: EngineVersion,
    /// Maximum number of alerts for one packet.
    pub alerts_per_packet: usize,
    /// Maximum octets of an HTTP body to inspect.
    pub body_limit: usize,
    /// Ignore packets with wrong checksums.
    pub checksums: bool,
    /// Also match payloads in each single packet, and in all data that an end has sent so far:
    /// every chunk that an engine may form is part of these. For traffic that must not match.
    pub every_view: bool,
}

impl Settings {
    /// The engine's default settings.
    pub fn of(engine: EngineVersion) -> Self {
        Settings {
            engine,
            alerts_per_packet: alerts_per_packet(engine),
            body_limit: 100 * 1024,
            checksums: true,
            every_view: false,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::of(EngineVersion::default())
    }
}

/// A match of a rule, in the direction of the packet that completed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alert {
    pub at: Nanos,
    /// Index into [`squall_rules::RuleSet::rules`].
    pub rule: usize,
    /// Protocol number in the IP header, such as 6, 17, 1 or 58.
    pub protocol: u8,
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    pub destination_port: u16,
    pub application: Option<Application>,
}

/// A rule that this evaluator does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    pub rule: usize,
    pub text: String,
}

/// Matches rules against frames.
pub struct Engine<'a> {
    /// The rules, in order of evaluation.
    rules: Vec<&'a CompiledRule<'a>>,
    /// Indices of rules grouped by equal headers.
    headers: Vec<Vec<u32>>,
    prefilter: Option<Prefilter>,
    settings: Settings,
    fragments: Fragments,
    flows: Flows,
    hosts: HostBits,
    /// Announced connections by the listener's address and port.
    expected: HashMap<(IpAddr, u16), Expected>,
    alerts: Vec<Alert>,
    packets: Vec<Packet>,
}

impl<'a> Engine<'a> {
    /// Creates an engine for the rules with the indices `which`. The caller must include rules that
    /// set bits which these rules test. Rules that the engine never raises are skipped.
    pub fn new(
        rules: &'a Compiled<'_>,
        which: &[usize],
        settings: Settings,
    ) -> (Self, Vec<Refused>) {
        let (mut compiled, mut refused) = (vec![], vec![]);
        for &index in which {
            match rules.rule(index) {
                Ok(rule) if never_raised(settings.engine, rule.rule).is_some() => (),
                Ok(rule) => compiled.push(rule),
                Err(why) => refused.push(why),
            }
        }
        compiled.sort_by_key(|rule| rule.order);
        let engine = Engine {
            headers: by_header(&compiled),
            prefilter: Prefilter::of(&compiled),
            rules: compiled,
            fragments: Fragments::new(match settings.engine.is_suricata() {
                true => Policy::Bsd,
                false => Policy::Linux,
            }),
            settings,
            flows: Flows::default(),
            hosts: HostBits::default(),
            expected: HashMap::new(),
            alerts: vec![],
            packets: vec![],
        };
        (engine, refused)
    }

    /// Processes an Ethernet frame, without FCS.
    pub fn frame(&mut self, at: Nanos, frame: &[u8]) {
        let mut packets = std::mem::take(&mut self.packets);
        packet::decode(at, frame, &mut self.fragments, self.settings.checksums, &mut packets);
        for packet in packets.drain(..) {
            self.packet(&packet);
        }
        self.packets = packets;
        while let Some(flow) = self.flows.oldest(false) {
            self.finish_flow(flow);
        }
    }

    /// Ends all flows, and inspects the data that is still buffered.
    pub fn finish(&mut self) {
        while let Some(flow) = self.flows.oldest(true) {
            self.finish_flow(flow);
        }
    }

    /// Returns the alerts since the last call, in order.
    pub fn alerts(&mut self) -> Vec<Alert> {
        std::mem::take(&mut self.alerts)
    }

    fn packet(&mut self, packet: &Packet) {
        let Some((mut place, mut flow)) = self.flows.take(packet) else {
            self.evaluate(packet, None, FlowContext::default(), true);
            return;
        };
        if packet.is_icmp_error() {
            let from = if packet.source == flow.client { End::Client } else { End::Server };
            let context = FlowContext {
                from: Some(from),
                established: flow.is_established(),
                ..FlowContext::default()
            };
            self.evaluate(packet, Some(&mut flow), context, false);
            self.flows.put_back(place, flow);
            return;
        }
        if let (Some(tcp), Some(session)) = (&packet.tcp, &flow.session)
            && tcp.flags & (SYN | RST) == SYN
            && tcp.flags & ACK == 0
            && session.is_over()
        {
            // A new connection reuses the addresses and ports.
            self.flows.forget(place, &flow);
            self.finish_flow(flow);
            let Some(reopened) = self.flows.take(packet) else { return };
            (place, flow) = reopened;
        }
        let from = flow.sender(packet);
        flow.packets[from as usize] += 1;
        flow.octets[from as usize] +=
            (packet.ip_header.len() + packet.upper_header.len() + packet.payload.len()) as u64;
        flow.last = packet.at;
        let mut context = FlowContext {
            from: Some(from),
            established: flow.is_established(),
            ..FlowContext::default()
        };
        match &packet.tcp {
            Some(tcp) => {
                match &mut flow.session {
                    Some(session) => {
                        let taken = session.packet(from, packet, tcp);
                        context.in_stream = taken.added;
                        context.event = taken.event;
                        // The acknowledgment that ends the handshake belongs to the established
                        // flow only if it carries data.
                        context.established |=
                            session.is_established() && !packet.payload.is_empty();
                        self.acknowledged(&mut flow, from.other());
                    }
                    None => flow.session = Session::open(tcp).filter(|_| from == End::Client),
                }
                if let Some(session) = &mut flow.session {
                    context.stream = Window::of(session, from, false);
                }
            }
            None => self.datagram(&mut flow, from, packet),
        }
        if !flow.passed {
            self.evaluate(packet, Some(&mut flow), context, true);
        }
        if let Some(session) = &mut flow.session {
            session.stream(from).mark_inspected(context.stream);
        }
        self.flows.put_back(place, flow);
    }

    /// Passes data that `of` sent and the other end acknowledged to the application parser.
    fn acknowledged(&mut self, flow: &mut Flow, of: End) {
        let Some(mut session) = flow.session.take() else { return };
        loop {
            let stream = session.stream(of);
            let octets = stream.octets(stream.application, stream.acknowledged).to_vec();
            if octets.is_empty() {
                // The capture lacks octets that were acknowledged. The parser cannot resume after a
                // gap.
                if let Some(next) = stream.after_gap(stream.application) {
                    stream.application = next;
                    flow.reader = None;
                    if flow.application == Detection::Pending {
                        flow.application = Detection::Unknown;
                    }
                    continue;
                }
                break;
            }
            stream.application += octets.len() as u64;
            let completed = self.application(flow, of, &octets, Transport::Tcp);
            let detected = flow.application.application();
            let urgent = flow.reader.as_mut().and_then(|reader| reader.urgent());
            session.stream(of).trigger |= match (urgent, detected) {
                (Some(urgent), _) => urgent.is_inspected(self.settings.engine),
                (None, Some(detected)) => {
                    completed && is_inspected_when_done(detected, self.settings.engine)
                }
                (None, None) => completed,
            };
        }
        session.stream(of).tidy();
        flow.session = Some(session);
    }

    fn datagram(&mut self, flow: &mut Flow, from: End, packet: &Packet) {
        if packet.protocol == UDP && !packet.payload.is_empty() {
            self.application(flow, from, &packet.payload, Transport::Udp);
        }
    }

    /// Passes data to the application parser. Returns whether it completed a transaction.
    fn application(
        &mut self,
        flow: &mut Flow,
        from: End,
        octets: &[u8],
        transport: Transport,
    ) -> bool {
        if flow.application == Detection::Unknown {
            return false;
        }
        let before = done(flow, from);
        if flow.application == Detection::Pending {
            self.begin(flow, from, octets, transport);
        } else {
            self.read(flow, from, octets, transport);
        }
        done(flow, from) != before
    }

    /// Detects the protocol. Once it is known, passes the data kept so far to the parser.
    fn begin(&mut self, flow: &mut Flow, from: End, octets: &[u8], transport: Transport) {
        let prefix = &mut flow.prefix[from as usize];
        prefix.extend_from_slice(&octets[..octets.len().min(MAX_PREFIX - prefix.len())]);
        let expected = self.expected.remove(&(flow.server, flow.server_port));
        let verdict = match &expected {
            Some(expected) => Verdict::Application(expected.application),
            None => protocols::recognize(&First {
                transport,
                client_port: flow.client_port,
                server_port: flow.server_port,
                engine: self.settings.engine,
                client: &flow.prefix[0],
                server: &flow.prefix[1],
            }),
        };
        match verdict {
            Verdict::Application(application) => {
                flow.application = Detection::Known(application);
                flow.reader = match &expected {
                    Some(expected) => {
                        Some(protocols::reader_of_expected(expected, self.settings.body_limit))
                    }
                    None => protocols::reader(application, transport, &self.settings),
                };
                let prefix = std::mem::take(&mut flow.prefix);
                // The end that sent last is parsed last: its data responds to that of the other
                // end.
                for end in [from.other(), from] {
                    if !prefix[end as usize].is_empty() {
                        self.read(flow, end, &prefix[end as usize], transport);
                    }
                }
            }
            Verdict::NeedMore if flow.prefix.iter().all(|prefix| prefix.len() < MAX_PREFIX) => (),
            Verdict::NeedMore | Verdict::Unknown => {
                flow.application = Detection::Unknown;
                flow.prefix = Default::default();
            }
        }
    }

    fn read(&mut self, flow: &mut Flow, from: End, octets: &[u8], transport: Transport) {
        let Some(reader) = &mut flow.reader else { return };
        reader.receive(from, octets, &mut flow.transactions);
        let switched = reader.switched();
        for expected in reader.expected() {
            let listener = if expected.listener == End::Client { flow.client } else { flow.server };
            if self.expected.len() < MAX_EXPECTED {
                self.expected.insert((listener, expected.port), expected);
            }
        }
        match switched {
            Some(Some(application)) => {
                flow.application = Detection::Known(application);
                flow.reader = protocols::reader(application, transport, &self.settings);
                flow.candidates = [None, None];
            }
            Some(None) => {
                flow.application = Detection::Pending;
                flow.reader = None;
            }
            None => (),
        }
    }

    /// Ends a flow. Inspects both directions a last time, including data that was not acknowledged.
    fn finish_flow(&mut self, mut flow: Box<Flow>) {
        if let Some(mut session) = flow.session.take() {
            for of in [End::Client, End::Server] {
                let stream = session.stream(of);
                stream.acknowledged = stream.acknowledged.max(stream.end());
                flow.session = Some(session);
                self.acknowledged(&mut flow, of);
                let Some(back) = flow.session.take() else { return };
                session = back;
            }
            flow.session = Some(session);
        }
        if let Some(mut reader) = flow.reader.take() {
            for of in [End::Client, End::Server] {
                reader.end(of, &mut flow.transactions);
            }
        }
        // Datagrams were already inspected on arrival.
        if flow.passed || !flow.session.as_ref().is_some_and(Session::is_established) {
            return;
        }
        for from in [End::Client, End::Server] {
            let packet = last_packet(&flow, from);
            let mut context = FlowContext {
                from: Some(from),
                established: true,
                last: true,
                in_stream: true,
                ..FlowContext::default()
            };
            if let Some(session) = &mut flow.session {
                context.stream = Window::of(session, from, true);
            }
            if context.stream.is_some() || flow.has_new_data(from) {
                self.evaluate(&packet, Some(&mut flow), context, true);
            }
        }
    }

    /// The rules whose header matches `packet`.
    fn candidates(&self, packet: &Packet) -> Candidates {
        let mut found = Candidates::default();
        for group in &self.headers {
            let of = |place: u32| self.rules[place as usize];
            if group.first().is_some_and(|&first| of(first).is_for(packet)) {
                for &place in group {
                    let list = if of(place).is_of_transactions() {
                        &mut found.of_transactions
                    } else {
                        &mut found.of_packets
                    };
                    list.push(place);
                }
            }
        }
        found.of_packets.sort_unstable();
        found.of_transactions.sort_unstable();
        found
    }
}

/// Groups rules by equal headers. Most rules share one of a few headers.
fn by_header(rules: &[&CompiledRule<'_>]) -> Vec<Vec<u32>> {
    let mut groups: HashMap<_, usize> = HashMap::new();
    let mut found: Vec<Vec<u32>> = vec![];
    for (place, rule) in rules.iter().enumerate() {
        let header = &rule.rule.header;
        let (source, destination) = (&header.source, &header.destination);
        let key = (
            header.protocol,
            header.direction,
            (&source.addresses, &source.ports),
            (&destination.addresses, &destination.ports),
        );
        let group = *groups.entry(key).or_insert(found.len());
        if group == found.len() {
            found.push(vec![]);
        }
        found[group].push(place as u32);
    }
    found
}

/// Whether rules without a buffer are evaluated as soon as a transaction is complete, before a
/// chunk is full. Suricata 7 does so for a few protocols, Suricata 8 for all but FTP. In neither
/// version is it done for SMB.
fn is_inspected_when_done(detected: Application, engine: EngineVersion) -> bool {
    use Application::*;
    match engine {
        EngineVersion::Suricata7 => {
            matches!(detected, Http | Http1 | Tls | Dns | DceRpc | Pgsql)
        }
        EngineVersion::Suricata8 => !matches!(detected, Ftp | FtpData | Smb),
        EngineVersion::Snort2 | EngineVersion::Snort3 => true,
    }
}

/// Number of transactions that are complete as seen from one end.
fn done(flow: &Flow, from: End) -> usize {
    flow.transactions.iter().filter(|transaction| transaction.done[from as usize]).count()
}

/// An empty packet, used to inspect the rest of a flow.
fn last_packet(flow: &Flow, from: End) -> Packet {
    let (client, server) = ((flow.client, flow.client_port), (flow.server, flow.server_port));
    let (source, destination) =
        if from == End::Client { (client, server) } else { (server, client) };
    Packet {
        at: flow.last,
        vlan: 0,
        vlan_layers: 0,
        version: flow.version,
        source: source.0,
        destination: destination.0,
        protocol: flow.protocol,
        ttl: 64,
        tos: 0,
        id: None,
        fragment_bits: 0,
        fragment_offset: 0,
        is_fragment: false,
        reassembled: false,
        ip_options: vec![],
        ip_header: vec![],
        source_port: source.1,
        destination_port: destination.1,
        upper_header: vec![],
        tcp: None,
        icmp: None,
        payload: vec![],
        events: vec![],
        has_upper: true,
    }
}
