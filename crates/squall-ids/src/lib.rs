//! Which rules a capture matches: what goes in are rules and frames in the order of their time,
//! what comes out are alerts.
//!
//! An exact evaluator, made after what Suricata documents and what was seen of it: it follows
//! flows, puts streams together, reads the application layer, and looks for each rule in the
//! buffers it names, with real PCRE2. Correct before fast: it is there to check what was made from
//! rules, and to score what another engine said. Knows nothing of how traffic is made from a rule
//! (squall-attacks uses it as an examiner and shares no code with it), of files, clocks and ports.
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
use crate::compiled::Prepared;
use crate::detect::{Seen, Window};
use crate::flow::{Candidates, Flow, Flows, Spoken};
use crate::fragments::{Fragments, Policy};
use crate::packet::{Packet, UDP};
use crate::prefilter::Prefilter;
use crate::protocols::{Expected, First, Transport, Verdict};
use crate::stream::Session;

/// Octets of each end that are kept while it is not known what is spoken.
const BEGUN: usize = 16 * 1024;
/// Connections that were announced and did not come, at most.
const EXPECTED: usize = 4096;

/// Alerts of one packet that are reported: Suricata's `packet-alert-max`, the `event_queue: log` of
/// the snort.conf of Snort 2, Snort 3's default.
fn alerts_per_packet(engine: EngineVersion) -> usize {
    match engine {
        EngineVersion::Suricata7 | EngineVersion::Suricata8 => 15,
        EngineVersion::Snort2 => 5,
        EngineVersion::Snort3 => 3,
    }
}

/// Why the engine never raises this rule, whatever it sees, where that is known.
pub fn never_raised(engine: EngineVersion, rule: &squall_rules::Rule) -> Option<String> {
    let why = compiled::never_by_suricata(rule).filter(|_| engine.is_suricata())?;
    Some(format!("{engine} {why}"))
}

/// What may differ between engines.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which engine is followed where they are known to differ: that of Suricata 8 was compared
    /// with its alerts, the others follow their source and documentation.
    pub engine: EngineVersion,
    /// Alerts of one packet at most.
    pub alerts_per_packet: usize,
    /// Octets of an HTTP body that are looked at.
    pub body_limit: usize,
    /// Packets with a wrong checksum are not looked at.
    pub checksums: bool,
    /// Payloads are looked for in each packet, and in all that an end has sent so far, as well:
    /// whatever the chunks of an engine come to, they hold nothing else. For traffic that must not
    /// match.
    pub every_view: bool,
}

impl Settings {
    /// Those that are usual with an engine.
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

/// A rule that matched, in the direction of the packet with which it did.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alert {
    pub at: Nanos,
    /// Index in [`squall_rules::RuleSet::rules`].
    pub rule: usize,
    /// Of the IP header: 6, 17, 1, 58 ...
    pub protocol: u8,
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    pub destination_port: u16,
    pub application: Option<Application>,
}

/// A rule that this evaluator cannot look for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    pub rule: usize,
    pub text: String,
}

/// Looks for rules in frames.
pub struct Engine<'a> {
    /// In the order in which they are looked at.
    rules: Vec<&'a Prepared<'a>>,
    /// Places of those with the same header.
    headers: Vec<Vec<u32>>,
    prefilter: Option<Prefilter>,
    settings: Settings,
    fragments: Fragments,
    flows: Flows,
    hosts: HostBits,
    /// By listener and port.
    expected: HashMap<(IpAddr, u16), Expected>,
    alerts: Vec<Alert>,
    packets: Vec<Packet>,
}

impl<'a> Engine<'a> {
    /// For the rules `which` of `rules` (indexes); all that they need to be seen first is up to the
    /// caller. Rules that the engine never raises are not looked for.
    pub fn new(
        rules: &'a Compiled<'_>,
        which: &[usize],
        settings: Settings,
    ) -> (Self, Vec<Refused>) {
        let (mut ready, mut refused) = (vec![], vec![]);
        for &index in which {
            match rules.rule(index) {
                Ok(rule) if never_raised(settings.engine, rule.rule).is_some() => (),
                Ok(rule) => ready.push(rule),
                Err(why) => refused.push(why),
            }
        }
        ready.sort_by_key(|rule| rule.order);
        let engine = Engine {
            headers: by_header(&ready),
            prefilter: Prefilter::of(&ready),
            rules: ready,
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

    /// The next Ethernet frame, without FCS.
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

    /// No frame follows: what waited for more is looked at.
    pub fn finish(&mut self) {
        while let Some(flow) = self.flows.oldest(true) {
            self.finish_flow(flow);
        }
    }

    /// The alerts so far, in their order; they are taken out.
    pub fn alerts(&mut self) -> Vec<Alert> {
        std::mem::take(&mut self.alerts)
    }

    fn packet(&mut self, packet: &Packet) {
        let Some((mut place, mut flow)) = self.flows.take(packet) else {
            self.look_at(packet, None, Seen::default(), true);
            return;
        };
        if packet.is_icmp_error() {
            let from = if packet.source == flow.client { End::Client } else { End::Server };
            let seen =
                Seen { from: Some(from), established: flow.is_established(), ..Seen::default() };
            self.look_at(packet, Some(&mut flow), seen, false);
            self.flows.put_back(place, flow);
            return;
        }
        if let (Some(tcp), Some(session)) = (&packet.tcp, &flow.session)
            && tcp.flags & (SYN | RST) == SYN
            && tcp.flags & ACK == 0
            && session.is_over()
        {
            // The same addresses and ports anew.
            self.flows.forget(place, &flow);
            self.finish_flow(flow);
            let Some(anew) = self.flows.take(packet) else { return };
            (place, flow) = anew;
        }
        let from = flow.sender(packet);
        flow.packets[from as usize] += 1;
        flow.octets[from as usize] +=
            (packet.ip_header.len() + packet.upper_header.len() + packet.payload.len()) as u64;
        flow.last = packet.at;
        let mut seen =
            Seen { from: Some(from), established: flow.is_established(), ..Seen::default() };
        match &packet.tcp {
            Some(tcp) => {
                match &mut flow.session {
                    Some(session) => {
                        let taken = session.packet(from, packet, tcp);
                        seen.in_stream = taken.added;
                        seen.event = taken.event;
                        // The acknowledgment that ends the handshake counts as established only if
                        // it carries something.
                        seen.established |= session.is_established() && !packet.payload.is_empty();
                        self.acknowledged(&mut flow, from.other());
                    }
                    None => flow.session = Session::open(tcp).filter(|_| from == End::Client),
                }
                if let Some(session) = &mut flow.session {
                    seen.stream = Window::of(session, from, false);
                }
            }
            None => self.datagram(&mut flow, from, packet),
        }
        if !flow.passed {
            self.look_at(packet, Some(&mut flow), seen, true);
        }
        if let Some(session) = &mut flow.session {
            session.stream(from).looked_at(seen.stream);
        }
        self.flows.put_back(place, flow);
    }

    /// Gives the application what `of` has sent and the other end has acknowledged.
    fn acknowledged(&mut self, flow: &mut Flow, of: End) {
        let Some(mut session) = flow.session.take() else { return };
        loop {
            let stream = session.stream(of);
            let octets = stream.octets(stream.application, stream.acknowledged).to_vec();
            if octets.is_empty() {
                // Octets that were acknowledged and never seen: what follows them cannot be read.
                if let Some(next) = stream.behind_hole(stream.application) {
                    stream.application = next;
                    flow.reader = None;
                    if flow.application == Spoken::NotKnownYet {
                        flow.application = Spoken::Nothing;
                    }
                    continue;
                }
                break;
            }
            stream.application += octets.len() as u64;
            let completed = self.application(flow, of, &octets, Transport::Tcp);
            let spoken = flow.application.application();
            let urgent = flow.reader.as_mut().and_then(|reader| reader.urgent());
            session.stream(of).trigger |= match (urgent, spoken) {
                (Some(urgent), _) => urgent.is_inspected(self.settings.engine),
                (None, Some(spoken)) => {
                    completed && is_inspected_when_done(spoken, self.settings.engine)
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

    /// The next octets of the application; whether they completed something.
    fn application(
        &mut self,
        flow: &mut Flow,
        from: End,
        octets: &[u8],
        transport: Transport,
    ) -> bool {
        if flow.application == Spoken::Nothing {
            return false;
        }
        let before = done(flow, from);
        if flow.application == Spoken::NotKnownYet {
            self.begin(flow, from, octets, transport);
        } else {
            self.read(flow, from, octets, transport);
        }
        done(flow, from) != before
    }

    /// Finds out what is spoken; once that is known, what came before is read.
    fn begin(&mut self, flow: &mut Flow, from: End, octets: &[u8], transport: Transport) {
        let begun = &mut flow.begun[from as usize];
        begun.extend_from_slice(&octets[..octets.len().min(BEGUN - begun.len())]);
        let expected = self.expected.remove(&(flow.server, flow.server_port));
        let verdict = match &expected {
            Some(expected) => Verdict::Application(expected.application),
            None => protocols::recognise(&First {
                transport,
                client_port: flow.client_port,
                server_port: flow.server_port,
                engine: self.settings.engine,
                client: &flow.begun[0],
                server: &flow.begun[1],
            }),
        };
        match verdict {
            Verdict::Application(application) => {
                flow.application = Spoken::Is(application);
                flow.reader = match &expected {
                    Some(expected) => {
                        Some(protocols::reader_of_expected(expected, self.settings.body_limit))
                    }
                    None => protocols::reader(application, transport, &self.settings),
                };
                let begun = std::mem::take(&mut flow.begun);
                // Who has just spoken is last, since the other had to be first.
                for end in [from.other(), from] {
                    if !begun[end as usize].is_empty() {
                        self.read(flow, end, &begun[end as usize], transport);
                    }
                }
            }
            Verdict::NeedMore if flow.begun.iter().all(|begun| begun.len() < BEGUN) => (),
            Verdict::NeedMore | Verdict::Unknown => {
                flow.application = Spoken::Nothing;
                flow.begun = Default::default();
            }
        }
    }

    fn read(&mut self, flow: &mut Flow, from: End, octets: &[u8], transport: Transport) {
        let Some(reader) = &mut flow.reader else { return };
        reader.receive(from, octets, &mut flow.transactions);
        let switched = reader.switched();
        for expected in reader.expected() {
            let listener = if expected.listener == End::Client { flow.client } else { flow.server };
            if self.expected.len() < EXPECTED {
                self.expected.insert((listener, expected.port), expected);
            }
        }
        match switched {
            Some(Some(application)) => {
                flow.application = Spoken::Is(application);
                flow.reader = protocols::reader(application, transport, &self.settings);
                flow.candidates = [None, None];
            }
            Some(None) => {
                flow.application = Spoken::NotKnownYet;
                flow.reader = None;
            }
            None => (),
        }
    }

    /// Nothing more comes: both directions are looked at a last time, acknowledged or not.
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
        // Datagrams were looked at when they came.
        if flow.passed || !flow.session.as_ref().is_some_and(Session::is_established) {
            return;
        }
        for from in [End::Client, End::Server] {
            let packet = last_packet(&flow, from);
            let mut seen = Seen {
                from: Some(from),
                established: true,
                last: true,
                in_stream: true,
                ..Seen::default()
            };
            if let Some(session) = &mut flow.session {
                seen.stream = Window::of(session, from, true);
            }
            if seen.stream.is_some() || flow.has_news(from) {
                self.look_at(&packet, Some(&mut flow), seen, true);
            }
        }
    }

    /// The rules for packets such as `packet`.
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

/// Places of rules whose headers are the same: many have one of few.
fn by_header(rules: &[&Prepared<'_>]) -> Vec<Vec<u32>> {
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

/// Whether rules without a buffer are looked for as soon as a transaction is done, not only when
/// enough octets are there: Suricata 7 does so of few protocols, Suricata 8 of all but FTP. SMB does
/// not ask for it in either.
fn is_inspected_when_done(spoken: Application, engine: EngineVersion) -> bool {
    use Application::*;
    match engine {
        EngineVersion::Suricata7 => {
            matches!(spoken, Http | Http1 | Tls | Dns | DceRpc | Pgsql)
        }
        EngineVersion::Suricata8 => !matches!(spoken, Ftp | FtpData | Smb),
        EngineVersion::Snort2 | EngineVersion::Snort3 => true,
    }
}

/// How many transactions are done, from one end's view.
fn done(flow: &Flow, from: End) -> usize {
    flow.transactions.iter().filter(|transaction| transaction.done[from as usize]).count()
}

/// A packet without anything in it, with which what is left of a flow is looked at.
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
