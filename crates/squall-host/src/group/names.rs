//! Names of DNS: questions of a group's hosts, their answers to others, and their own names
//! (multicast DNS).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::IpAddr,
};

use squall_stats::Histogram;
use squall_units::{MacAddr, Nanos};

use super::{AT_ONCE, HostGroup, PingSettings, services::ServiceSettings};
use crate::{
    Answer, DnsReply, FrameQueue, Overdue, Question, Resolved, Resolver, ResolverSettings,
    dns::{DNS_PORT, Name},
    group_mac,
    host::{IPV4, IPV6, begin_frame},
    mdns::{self, MDNS_PORT, MdnsAction, MdnsEvent, MdnsName, MdnsRecords},
    udp::{UdpDatagram, write_datagram},
};

/// Figures of the questions of a group's hosts.
#[derive(Clone, Debug, Default)]
pub struct DnsStatistics {
    /// Questions, and messages, of which `retransmissions` repeated a question.
    pub asked: u64,
    pub sent: u64,
    pub retransmissions: u64,
    /// Outcomes: answers with addresses and without, names that do not exist, errors by kind,
    /// answers that did not fit, and questions without an answer.
    pub answered: u64,
    pub empty: u64,
    pub nxdomain: u64,
    pub failed: BTreeMap<&'static str, u64>,
    pub truncated: u64,
    pub timeouts: u64,
    /// Questions that did not leave: no server is known, or the next hop has no MAC address.
    pub no_server: u64,
    pub unresolved: u64,
    /// Messages that were ignored, by reason.
    pub ignored: BTreeMap<&'static str, u64>,
    /// From a question's first message to its answer.
    pub time: Histogram,
}

/// Figures of the answers of a group's hosts.
#[derive(Clone, Debug, Default)]
pub struct DnsServerStatistics {
    pub queries: u64,
    pub answered: u64,
    pub empty: u64,
    pub nxdomain: u64,
    pub not_implemented: u64,
    pub ignored: BTreeMap<&'static str, u64>,
}

/// Figures of the names of a group's hosts.
#[derive(Clone, Debug, Default)]
pub struct MdnsStatistics {
    /// Hosts that have their name now.
    pub owned: u64,
    pub probes: u64,
    pub announcements: u64,
    /// Questions that hosts answered, by multicast and by unicast.
    pub answered: u64,
    pub unicast: u64,
    /// Names that other hosts had, and ties of probes that hosts lost.
    pub conflicts: u64,
    pub ties: u64,
    /// Last announcements.
    pub goodbyes: u64,
    pub ignored: BTreeMap<&'static str, u64>,
}

/// The state of a group.
#[derive(Debug, Default)]
pub(super) struct Names {
    resolver: Resolver,
    turns: Turns,
    /// Questions of each host, and whether its turn comes again; empty if hosts ask nothing.
    hosts: Vec<(u32, bool)>,
    number: u64,
    asked: DnsStatistics,
    served: DnsServerStatistics,
    /// The names of multicast DNS; empty if hosts have none. `table`: hosts by their names.
    own: Vec<MdnsName>,
    table: HashMap<Box<[u8]>, u32>,
    mdns: MdnsStatistics,
}

/// Pause after which the next question is tried again, while the next hop is being resolved.
const RETRY: Nanos = Nanos(20_000_000);

/// Whether a question left.
enum Sent {
    Yes,
    /// The next hop is being resolved.
    Wait,
    Unresolved,
    NoServer,
}

impl Names {
    pub(super) fn new(settings: &ServiceSettings, count: u32) -> Self {
        let with = |has: bool| if has { count as usize } else { 0 };
        Self {
            hosts: vec![(0, false); with(settings.resolver.is_some())],
            own: vec![MdnsName::default(); with(settings.mdns.is_some())],
            ..Self::default()
        }
    }

    /// Whether all questions have their outcome.
    pub(super) fn is_over(&self) -> bool {
        self.turns.ready.is_empty() && self.resolver.is_empty()
    }

    /// Asks nothing more.
    pub(super) fn stop(&mut self) {
        self.turns.ready.clear();
    }

    pub(super) fn due(&self, settings: &ServiceSettings) -> Option<Nanos> {
        let settings = settings.resolver.as_ref()?;
        self.turns.due(settings.rate).into_iter().chain(self.resolver.due()).min()
    }

    pub(super) fn asked(&self, full: bool) -> DnsStatistics {
        let time = if full { self.asked.time.clone() } else { Histogram::default() };
        DnsStatistics { time, ..self.asked.clone() }
    }

    pub(super) fn served(&self) -> DnsServerStatistics {
        self.served.clone()
    }

    pub(super) fn mdns(&self) -> MdnsStatistics {
        self.mdns.clone()
    }

    pub(super) fn due_of(&self, host: u32) -> Option<Nanos> {
        self.own.get(host as usize)?.due()
    }

    /// A step of a host's name, after which the number of names may be another one.
    fn step<T>(&mut self, host: u32, act: impl FnOnce(&mut MdnsName) -> T) -> Option<T> {
        let own = self.own.get_mut(host as usize)?;
        let before = own.is_owned();
        let outcome = act(own);
        let after = own.is_owned();
        self.mdns.owned = self.mdns.owned + u64::from(after) - u64::from(before);
        Some(outcome)
    }

    /// The port of a host was closed.
    pub(super) fn forget(&mut self, host: u32) {
        self.step(host, |own| *own = MdnsName::default());
        self.table.retain(|_, other| *other != host);
        self.turns.ready.retain(|other| *other != host);
        if let Some(one) = self.hosts.get_mut(host as usize) {
            one.1 = false;
        }
    }

    fn count(&mut self, outcome: Resolved, after: Nanos) {
        let asked = &mut self.asked;
        asked.time.record(after.0);
        match outcome {
            Resolved::Answered => asked.answered += 1,
            Resolved::Empty => asked.empty += 1,
            Resolved::NoName => asked.nxdomain += 1,
            Resolved::Failed(word) => *asked.failed.entry(word).or_default() += 1,
            Resolved::Truncated => asked.truncated += 1,
        }
    }

    /// The host's turn comes again, if it has more questions.
    fn queue(&mut self, host: u32, now: Nanos, count: u32) {
        if let Some((asked, is_queued)) = self.hosts.get_mut(host as usize)
            && *asked < count
            && !std::mem::replace(is_queued, true)
        {
            self.turns.add(host, now);
        }
    }
}

impl HostGroup {
    /// The host has an address, and so asks its questions.
    pub(super) fn can_ask(&mut self, host: u32, now: Nanos) {
        let settings = &self.settings.services.resolver;
        if let (Some(settings), Some(services)) = (settings, &mut self.services) {
            services.names.queue(host, now, settings.count);
        }
    }

    /// Asks the questions that are due, and repeats those without an answer.
    pub(super) fn advance_names(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let Some(settings) = self.settings.services.resolver.clone() else { return false };
        let mut any = false;
        while let Some(services) = &mut self.services
            && let Some(overdue) = services.names.resolver.timer(now, &settings)
        {
            any = true;
            match overdue {
                Overdue::GivenUp(_) => services.names.asked.timeouts += 1,
                Overdue::Repeat(question) => {
                    let sent = self.send_question(&question, now, &settings, out);
                    if let (Sent::Yes, Some(services)) = (sent, &mut self.services) {
                        services.names.asked.retransmissions += 1;
                    }
                }
            }
        }
        for _ in 0..AT_ONCE {
            let Some(services) = &mut self.services else { break };
            let names = &mut services.names;
            let Some((host, due)) = names.turns.next(now, settings.rate) else { break };
            any = true;
            names.hosts[host as usize].1 = false;
            // A host that has lost its address comes back with the next one.
            if self.address(host).is_none() && self.ipv6_address(host).is_none() {
                continue;
            }
            self.due = due;
            self.ask_name(host, now, &settings, out);
        }
        self.due = now;
        any
    }

    fn ask_name(
        &mut self,
        host: u32,
        now: Nanos,
        settings: &ResolverSettings,
        out: &mut FrameQueue,
    ) {
        let chance = self.chance(host);
        let Some(services) = &mut self.services else { return };
        let names = &mut services.names;
        let question = names.resolver.ask(now, host, names.number, chance, settings);
        let sent = self.send_question(&question, now, settings, out);
        let Some(services) = &mut self.services else { return };
        let names = &mut services.names;
        if !matches!(sent, Sent::Yes) {
            names.resolver.forget(&question);
        }
        match sent {
            Sent::Yes => names.asked.asked += 1,
            Sent::Unresolved => names.asked.unresolved += 1,
            Sent::NoServer => names.asked.no_server += 1,
            Sent::Wait => {
                names.hosts[host as usize].1 = true;
                names.turns.put_back(host, now + RETRY);
                return;
            }
        }
        names.number += 1;
        names.hosts[host as usize].0 += 1;
        names.queue(host, now, settings.count);
    }

    /// The server that a host asks.
    fn server_of(&self, host: u32, settings: &ResolverSettings) -> Option<IpAddr> {
        let of_dhcp = self.hosts[host as usize].client.dns();
        let of_ppp = || self.pppoe.as_ref()?.name_server(host);
        settings.server.or_else(|| of_dhcp.or_else(of_ppp).map(IpAddr::from))
    }

    fn send_question(
        &mut self,
        question: &Question,
        now: Nanos,
        settings: &ResolverSettings,
        out: &mut FrameQueue,
    ) -> Sent {
        let host = question.host;
        let server = self.server_of(host, settings);
        let path = server.and_then(|server| {
            let to =
                PingSettings { target: Some(server), rate: 1, count: 1, timeout: settings.timeout };
            self.path(host, now, &to)
        });
        self.asker = host;
        let in_session = self.pppoe.as_ref().and_then(|of| of.server_of(host));
        let answer = path.map(|(.., hop)| match hop {
            _ if let Some(server) = in_session => Answer::Mac(server),
            IpAddr::V4(_) => self.neighbors.find(now, hop),
            IpAddr::V6(hop) => self.find_ipv6(now, hop),
        });
        let from = self.mac(host);
        let Some(services) = &mut self.services else { return Sent::NoServer };
        let names = &mut services.names;
        let (source, target, mac) = match (path, answer) {
            (Some((source, target, _)), Some(Answer::Mac(mac))) => (source, target, mac),
            (Some(_), Some(Answer::Wait)) => return Sent::Wait,
            (Some(_), _) => return Sent::Unresolved,
            (None, _) => return Sent::NoServer,
        };
        names.asked.sent += 1;
        let kind = if source.is_ipv4() { IPV4 } else { IPV6 };
        let mut packet = std::mem::take(&mut self.scratch);
        packet.clear();
        write_datagram((source, target), (question.port, DNS_PORT), &mut packet, |octets| {
            names.resolver.write(question, settings, octets);
        });
        self.push((mac, from), kind, &packet, out);
        self.scratch = packet;
        Sent::Yes
    }

    /// The host examines its name, because it has an address.
    pub(super) fn examine_name(&mut self, host: u32, now: Nanos) {
        if self.settings.services.mdns.is_none() {
            return;
        }
        let chance = self.chance(host);
        if let Some(services) = &mut self.services {
            services.names.step(host, |own| own.start(now, chance));
        }
        self.enter_name(host);
        self.schedule(host);
    }

    fn own_name(&self, host: u32) -> Option<Name> {
        let settings = self.settings.services.mdns.as_ref()?;
        let mut name = Name::default();
        let own = self.services.as_ref()?.names.own.get(host as usize)?;
        own.write(host, settings, &mut name).map(|()| name)
    }

    fn enter_name(&mut self, host: u32) {
        if let (Some(name), Some(services)) = (self.own_name(host), &mut self.services) {
            services.names.table.insert(name.octets().into(), host);
        }
    }

    fn leave_name(&mut self, host: u32) {
        if let (Some(name), Some(services)) = (self.own_name(host), &mut self.services) {
            services.names.table.remove(name.octets());
        }
    }

    fn name_records(&self, host: u32) -> MdnsRecords {
        MdnsRecords { ipv4: self.address(host), ipv6: self.ipv6_address(host) }
    }

    pub(super) fn run_name_timers(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        let Some(ttl) = self.settings.services.mdns.as_ref().map(|of| of.ttl) else { return };
        while let Some(services) = &mut self.services
            && let Some(Some(action)) = services.names.step(host, |own| own.timer(now))
        {
            let names = &mut services.names;
            match action {
                MdnsAction::Probe => names.mdns.probes += 1,
                MdnsAction::Announce { .. } => names.mdns.announcements += 1,
                MdnsAction::Answer { .. } => {}
            }
            let (Some(name), records) = (self.own_name(host), self.name_records(host)) else {
                continue;
            };
            if let MdnsAction::Answer { kind } = action {
                let Some(services) = &mut self.services else { return };
                let own = services.names.own.get_mut(host as usize);
                let may = |own: &mut MdnsName| own.may_multicast(now, false);
                if records.count(kind) == 0 || !own.is_some_and(may) {
                    continue;
                }
                services.names.mdns.answered += 1;
            }
            self.push_name(host, None, out, |out| match action {
                MdnsAction::Probe => mdns::write_probe(&name, &records, ttl, out),
                MdnsAction::Announce { .. } => {
                    mdns::write_announcement(&name, &records, ttl, out);
                }
                MdnsAction::Answer { kind } => {
                    let asked = MdnsEvent::Asked { kind, unicast: false, is_probe: false };
                    mdns::write_answer((&asked, &[]), &name, &records, ttl, out);
                }
            });
        }
    }

    /// The host gives its name up.
    pub(super) fn end_name(&mut self, host: u32, out: &mut FrameQueue) {
        let Some(services) = &mut self.services else { return };
        if services.names.step(host, MdnsName::stop) != Some(true) {
            return;
        }
        services.names.mdns.goodbyes += 1;
        if let Some(name) = self.own_name(host) {
            let records = self.name_records(host);
            self.push_name(host, None, out, |out| {
                mdns::write_announcement(&name, &records, 0, out);
            });
        }
        self.leave_name(host);
    }

    /// Sends a message about the name of a host, to the group or to one host: its MAC and IP
    /// address, and its port.
    fn push_name(
        &self,
        host: u32,
        to: Option<(MacAddr, IpAddr, u16)>,
        out: &mut FrameQueue,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let MdnsRecords { ipv4, ipv6 } = self.name_records(host);
        let (ipv4, ipv6) = (ipv4.map(IpAddr::from), ipv6.map(IpAddr::from));
        let source = match to {
            Some((_, IpAddr::V4(_), _)) => ipv4,
            Some((_, IpAddr::V6(_), _)) => ipv6,
            None => ipv4.or(ipv6),
        };
        let Some(source) = source else { return };
        let group = mdns::group_of(source);
        let (mac, address, port) = to.unwrap_or((group_mac(group), group, MDNS_PORT));
        let kind = if source.is_ipv4() { IPV4 } else { IPV6 };
        let from = self.mac(host);
        out.push(self.due, |octets| {
            begin_frame(octets, (mac, from), &self.settings.tags, kind);
            write_datagram((source, address), (MDNS_PORT, port), octets, write);
        });
    }

    /// Handles a message of multicast DNS for the hosts that it is about.
    fn receive_mdns(
        &mut self,
        now: Nanos,
        from: MacAddr,
        datagram: &UdpDatagram<'_>,
        out: &mut FrameQueue,
    ) -> Option<bool> {
        let ttl = self.settings.services.mdns.as_ref()?.ttl;
        let names = &mut self.services.as_mut()?.names;
        let hosts = match mdns::names_in(datagram.payload, |name| names.table.get(name).copied()) {
            Ok(hosts) => hosts,
            Err(reason) => {
                *names.mdns.ignored.entry(reason).or_default() += 1;
                return Some(true);
            }
        };
        for host in hosts {
            let (Some(name), records) = (self.own_name(host), self.name_records(host)) else {
                continue;
            };
            let chance = self.chance(host);
            let names = &mut self.services.as_mut()?.names;
            let of = names.own.get(host as usize)?;
            let (is_probing, is_recent) = (of.is_probing(), of.is_recent(now, ttl));
            let own = (&name, &records);
            let event = mdns::read(datagram.payload, datagram.ports.0, own, is_probing, ttl);
            let to = (from, datagram.source, datagram.ports.0);
            let to = match event {
                // A dual-stack querier also asks over a family of which the host has no address:
                // IPv4, if its lease has ended.
                Ok(
                    MdnsEvent::Asked { unicast: true, is_probe: false, .. }
                    | MdnsEvent::Legacy { .. },
                ) if !records.has_family_of(datagram.source) => {
                    *names.mdns.ignored.entry("no_address").or_default() += 1;
                    continue;
                }
                Ok(MdnsEvent::Legacy { .. }) => {
                    names.mdns.unicast += 1;
                    Some(to)
                }
                Ok(MdnsEvent::Asked { unicast: true, is_probe: false, .. }) if is_recent => {
                    names.mdns.unicast += 1;
                    Some(to)
                }
                Ok(MdnsEvent::Asked { unicast, is_probe, .. }) => {
                    let may = names.own.get_mut(host as usize)?.may_multicast(now, is_probe);
                    // A quarter of a short validity has passed within the second.
                    let is_unicast = !may && unicast && !is_probe;
                    if !may && !is_unicast {
                        continue;
                    }
                    names.mdns.answered += u64::from(may);
                    names.mdns.unicast += u64::from(is_unicast);
                    is_unicast.then_some(to)
                }
                Ok(MdnsEvent::Conflict) => {
                    names.mdns.conflicts += 1;
                    self.leave_name(host);
                    let names = &mut self.services.as_mut()?.names;
                    names.step(host, |own| own.conflict(now, chance));
                    self.enter_name(host);
                    self.schedule(host);
                    continue;
                }
                Ok(MdnsEvent::Lost) => {
                    names.mdns.ties += 1;
                    names.step(host, |own| own.lose(now));
                    continue;
                }
                Ok(MdnsEvent::AskedInPart { kind, known }) => {
                    let of = datagram.source;
                    names.step(host, |own| own.defer(now, chance, of, kind, known));
                    self.schedule(host);
                    continue;
                }
                Ok(MdnsEvent::Knows { known, more }) => {
                    let of = datagram.source;
                    names.step(host, |own| own.knows(now, chance, of, known, more));
                    self.schedule(host);
                    continue;
                }
                Ok(MdnsEvent::Nothing) => continue,
                Err(reason) => {
                    *names.mdns.ignored.entry(reason).or_default() += 1;
                    continue;
                }
            };
            let event = event.unwrap_or(MdnsEvent::Nothing);
            self.push_name(host, to, out, |out| {
                let asked = (&event, datagram.payload);
                mdns::write_answer(asked, &name, &records, ttl, out);
            });
        }
        Some(true)
    }

    /// Handles a datagram of DNS to a host. `None`: it is another packet.
    pub(super) fn receive_names(
        &mut self,
        now: Nanos,
        (own, from): (Option<u32>, MacAddr),
        (packet, partial): (&[u8], bool),
        out: &mut FrameQueue,
    ) -> Option<bool> {
        let settings = &self.settings.services;
        let ports = UdpDatagram::ports_of(packet)?;
        if ports.1 == MDNS_PORT && settings.mdns.is_some() {
            let datagram = UdpDatagram::parse(packet, partial)?;
            return self.receive_mdns(now, from, &datagram, out);
        }
        let host = own?;
        let is_answer = match ports {
            (_, DNS_PORT) if settings.zone.is_some() => false,
            (DNS_PORT, _) if settings.resolver.is_some() => true,
            _ => return None,
        };
        let datagram = UdpDatagram::parse(packet, partial)?;
        let is_own = match datagram.destination {
            IpAddr::V4(address) => self.address(host) == Some(address),
            IpAddr::V6(address) => self.uses_ipv6(host, address),
        };
        if !is_own {
            return None;
        }
        match is_answer {
            true => self.receive_answer(now, host, &datagram),
            false => self.answer_query((host, from), &datagram, out),
        }
    }

    fn receive_answer(
        &mut self,
        now: Nanos,
        host: u32,
        datagram: &UdpDatagram<'_>,
    ) -> Option<bool> {
        let settings = self.settings.services.resolver.clone()?;
        let is_of_server = self.server_of(host, &settings) == Some(datagram.source);
        let shares = self.shared.is_some();
        let names = &mut self.services.as_mut()?.names;
        let at = (host, datagram.ports.1);
        let outcome = match is_of_server {
            true => names.resolver.receive(now, at, datagram.payload, &settings),
            false => Err("wrong_server"),
        };
        match outcome {
            Ok((outcome, after)) => names.count(outcome, after),
            // It may belong to a flow of the host.
            Err("no_question" | "wrong_server") if shares => return None,
            Err(reason) => *names.asked.ignored.entry(reason).or_default() += 1,
        }
        Some(true)
    }

    fn answer_query(
        &mut self,
        (host, from): (u32, MacAddr),
        datagram: &UdpDatagram<'_>,
        out: &mut FrameQueue,
    ) -> Option<bool> {
        let zone = self.settings.services.zone.clone()?;
        let mut reply = std::mem::take(&mut self.scratch);
        reply.clear();
        let names = &mut self.services.as_mut()?.names;
        names.served.queries += 1;
        let kind = zone.respond(datagram.payload, &mut reply);
        match kind {
            Ok(DnsReply::Answered) => names.served.answered += 1,
            Ok(DnsReply::Empty) => names.served.empty += 1,
            Ok(DnsReply::NoName) => names.served.nxdomain += 1,
            Ok(DnsReply::NotImplemented) => names.served.not_implemented += 1,
            Err(reason) => *names.served.ignored.entry(reason).or_default() += 1,
        }
        if kind.is_ok() {
            let addresses = (datagram.destination, datagram.source);
            let kind = if datagram.source.is_ipv4() { IPV4 } else { IPV6 };
            let ports = (DNS_PORT, datagram.ports.0);
            let mut packet = Vec::with_capacity(reply.len() + 48);
            write_datagram(addresses, ports, &mut packet, |octets| {
                octets.extend_from_slice(&reply);
            });
            self.push((from, self.mac(host)), kind, &packet, out);
        }
        self.scratch = reply;
        Some(true)
    }
}

/// Hosts whose turn to ask comes, and the schedule of the group.
#[derive(Debug, Default)]
struct Turns {
    ready: VecDeque<u32>,
    /// When the next question is due: `begin` plus `number` gaps.
    begin: Nanos,
    number: u64,
}

impl Turns {
    /// The schedule pauses while no host is ready.
    fn add(&mut self, host: u32, now: Nanos) {
        if self.ready.is_empty() {
            (self.begin, self.number) = (now.max(self.begin), 0);
        }
        self.ready.push_back(host);
    }

    /// The next turn is that of `host` again, not before `from`.
    fn put_back(&mut self, host: u32, from: Nanos) {
        (self.begin, self.number) = (from, 0);
        self.ready.push_front(host);
    }

    fn next_at(&self, rate: u64) -> Nanos {
        let gaps = u128::from(self.number) * u128::from(Nanos::SECOND.0);
        self.begin + Nanos((gaps / u128::from(rate.max(1))) as u64)
    }

    fn due(&self, rate: u64) -> Option<Nanos> {
        (!self.ready.is_empty()).then(|| self.next_at(rate))
    }

    /// The next host whose question is due by `now`, and when it was due.
    fn next(&mut self, now: Nanos, rate: u64) -> Option<(u32, Nanos)> {
        let due = self.next_at(rate);
        let host = self.ready.pop_front_if(|_| due <= now)?;
        self.number += 1;
        if self.ready.is_empty() {
            // The next question is due a gap later, even if its host is ready before.
            (self.begin, self.number) = (self.next_at(rate), 0);
        }
        Some((host, due))
    }
}

#[cfg(test)]
mod tests;
