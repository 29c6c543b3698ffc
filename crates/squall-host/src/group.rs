//! Many hosts of one template on one port: their start, their timers, and the frames for them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use squall_stats::Histogram;
use squall_units::{MacAddr, Nanos, mix};

use crate::{
    Answer, Arp, ClientSettings, ConflictAction, ConflictDetection, ConflictTimers, Datagram,
    DhcpClient, DhcpContext, DhcpEvent, DhcpServer, DhcpState, DhcpStep, DhcpTimers, Echo,
    EventKind, Fault, Faults, FrameQueue, HostLog, HostTable, IcmpError, Kind, LacpSettings,
    LogProtocol, Malformed, Message, NeighborCache, PppoeClient, ServerCounters, ServerSettings,
    destination,
    dhcp_message::SERVER_PORT,
    echo_reply,
    host::{ARP, IPV4, IPV6, begin_frame, parse},
    igmp, mask_of, mld,
    packets::is_of_a_flow,
};

mod names;

pub use names::{DnsServerStatistics, DnsStatistics, MdnsStatistics};

mod services;

pub use services::{
    AuthStatistics, MulticastSettings, MulticastStatistics, QuerierStatistics, ServiceSettings,
    SpeakerStatistics,
};
use services::{CDP, LLDP, Services};

mod ipv6;

use ipv6::Ipv6Hosts;
pub use ipv6::{
    Dhcp6Statistics, InterfaceIdentifier, Ipv6Addressing, Ipv6Settings, Ipv6State, Ipv6Statistics,
    NdCounters,
};

mod lacp;
mod link_local;
mod pppoe;
mod requests;

use lacp::LacpHost;
pub use lacp::LacpStatistics;
use pppoe::{PppoeHosts, is_pppoe};
pub use pppoe::{PppoeSettings, PppoeStatistics};
mod view;

pub use view::{HostCounters, HostView, Ipv4View, Ipv6View};

const BROADCAST: MacAddr = MacAddr([0xff; 6]);

/// A template of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    pub count: u32,
    /// MAC address of the first host. That of each further one is higher by `mac_step`, which is
    /// at least 1.
    pub mac: MacAddr,
    pub mac_step: u64,
    /// VLAN tags, outermost first: TPID, then priority and VLAN id.
    pub tags: Vec<(u16, u16)>,
    pub addressing: Addressing,
    pub conflict: ConflictTimers,
    pub ipv6: Option<Ipv6Settings>,
    /// `None`: that of DHCP.
    pub gateway: Option<Ipv4Addr>,
    /// When the first host starts, and how many start per second; `None`: all at once.
    pub start: Nanos,
    pub setup: Option<u64>,
    /// Whether hosts give their addresses back at the end, at the rate of `setup`.
    pub release: bool,
    pub ping: Option<PingSettings>,
    /// The first host is a DHCP server.
    pub server: Option<ServerSettings>,
    pub pppoe: Option<PppoeSettings>,
    /// The first host is a port of an aggregate.
    pub lacp: Option<LacpSettings>,
    pub services: ServiceSettings,
    /// Whether hosts answer packets that no program expects with an error of ICMP.
    pub icmp_errors: bool,
    /// Settings of DHCP clients.
    pub dhcp: ClientSettings,
    pub faults: Faults,
    /// Time by which reactions are late with [`Fault::LateAnswer`].
    pub late: Nanos,
    /// Events that the group keeps for [`HostGroup::log`].
    pub log: u32,
    pub seed: u64,
}

impl Default for GroupSettings {
    /// One host without an address, which starts at once, and is silent.
    fn default() -> Self {
        Self {
            count: 1,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mac_step: 1,
            tags: Vec::new(),
            addressing: Addressing::None,
            conflict: ConflictTimers::SILENT,
            ipv6: None,
            gateway: None,
            start: Nanos::ZERO,
            setup: None,
            release: false,
            ping: None,
            server: None,
            pppoe: None,
            lacp: None,
            services: ServiceSettings::default(),
            icmp_errors: false,
            dhcp: ClientSettings::default(),
            faults: Faults::default(),
            late: Nanos::ZERO,
            log: 0,
            seed: 0,
        }
    }
}

impl GroupSettings {
    /// Whether hosts ask for nothing: they only answer, as a server does.
    pub fn only_answers(&self) -> bool {
        let ipv4 = matches!(self.addressing, Addressing::Dhcp(_) | Addressing::Ppp);
        let ends = |multicast: &MulticastSettings| multicast.hold.is_some();
        let services = &self.services;
        let services = services.auth.is_some()
            || services.resolver.is_some()
            || services.multicast.as_deref().is_some_and(ends);
        let ipv6 = self.ipv6.as_ref().is_some_and(Ipv6Settings::asks);
        self.ping.is_none() && !ipv4 && !services && !ipv6
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// Hosts have no IPv4.
    None,
    /// The first host's address, that of each further one being the next.
    Static {
        first: Ipv4Addr,
        prefix: u8,
    },
    Dhcp(DhcpTimers),
    /// Addresses that hosts choose themselves (RFC 3927).
    LinkLocal,
    /// Addresses of PPP sessions (RFC 1332).
    Ppp,
}

/// Echo requests of all hosts of a group, in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// `None`: each host's gateway, that of IPv4 if it has one.
    pub target: Option<IpAddr>,
    /// Requests per second of the group, at least 1.
    pub rate: u64,
    /// Requests of each host.
    pub count: u16,
    /// A request without a reply within this time is lost.
    pub timeout: Nanos,
}

/// Everything that a group has counted. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct GroupStatistics {
    pub hosts: u64,
    pub started: u64,
    /// Hosts by their state now.
    pub states: Vec<(DhcpState, u64)>,
    /// Hosts that have failed, by reason.
    pub failed: BTreeMap<&'static str, u64>,
    /// Times at which any host got an address, and how often that was.
    pub first_bound: Option<Nanos>,
    pub last_bound: Option<Nanos>,
    pub bound: u64,
    /// When the first host started.
    pub first_start: Option<Nanos>,
    /// Messages of DHCP that hosts sent, by type, of which `retransmissions` were repeated; and
    /// those that they received.
    pub sent: BTreeMap<&'static str, u64>,
    pub received: BTreeMap<&'static str, u64>,
    pub retransmissions: u64,
    pub renewed: u64,
    pub expired: u64,
    /// Messages that were ignored, by reason.
    pub ignored: BTreeMap<&'static str, u64>,
    /// Effects of faults, by fault: frames that were changed, added or not sent, and messages that
    /// were ignored.
    pub faults: BTreeMap<&'static str, u64>,
    /// From the first message to the offer and to the bound address.
    pub offer: Histogram,
    pub dora: Histogram,
    pub arp: ArpCounters,
    pub echo: EchoCounters,
    pub ipv6: Option<Ipv6Statistics>,
    /// Messages and current leases of the group's DHCP server.
    pub server: Option<(ServerCounters, u64)>,
    pub multicast: Option<MulticastStatistics>,
    pub querier: Option<QuerierStatistics>,
    pub lldp: Option<SpeakerStatistics>,
    pub cdp: Option<SpeakerStatistics>,
    /// Questions to DNS servers, answers of the hosts, and their names of multicast DNS.
    pub dns: Option<DnsStatistics>,
    pub dns_server: Option<DnsServerStatistics>,
    pub mdns: Option<MdnsStatistics>,
    pub auth: Option<AuthStatistics>,
    pub pppoe: Option<PppoeStatistics>,
    pub lacp: Option<LacpStatistics>,
}

/// ARP packets of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArpCounters {
    pub answered: u64,
    pub probes: u64,
    pub announcements: u64,
    /// Announcements against another host with the address.
    pub defended: u64,
    pub conflicts: u64,
    /// Requests to resolve gateways and targets, and addresses without an answer.
    pub requests: u64,
    pub unresolved: u64,
}

/// Echo requests and replies of a group.
#[derive(Clone, Debug, Default)]
pub struct EchoCounters {
    /// Answered requests of other hosts.
    pub answered: u64,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Errors of ICMP that hosts received instead of replies, by type; and those that they sent.
    pub errors: BTreeMap<&'static str, u64>,
    pub errors_sent: u64,
    /// Requests that did not leave, because the next hop has no MAC address.
    pub unresolved: u64,
    pub rtt: Histogram,
}

/// One host.
#[derive(Clone, Debug, Default)]
struct HostRecord {
    client: DhcpClient,
    conflict: ConflictDetection,
    /// State of a host with a static address.
    fixed: DhcpState,
    /// Earliest time at which the group's list of timers has this host.
    scheduled: Option<Nanos>,
    /// Random numbers drawn, and echo requests sent.
    draws: u32,
    echoes: u16,
    /// The last two octets of the address that the host has chosen, and the addresses in turn that
    /// belonged to others.
    local: u16,
    conflicts: u8,
    /// Sender of the last ACK: the server, or the relay before it.
    server_mac: MacAddr,
    counters: HostCounters,
    /// Why the host failed last.
    failure: Option<&'static str>,
}

/// The group.
#[derive(Debug)]
pub struct HostGroup {
    settings: GroupSettings,
    begin: Nanos,
    hosts: Vec<HostRecord>,
    /// Next host to start, and after the end, next one to release.
    next: u32,
    stopped: Option<Nanos>,
    released: u32,
    /// Timers by their times. A host may have later timers than its entry, never earlier ones.
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Hosts by the address that DHCP gave them.
    addresses: HashMap<Ipv4Addr, u32>,
    neighbors: NeighborCache,
    /// The host that asks for the MAC addresses of neighbors.
    asker: u32,
    pinger: Pinger,
    server: Option<DhcpServer>,
    /// Where other sources find hosts that they may send from.
    shared: Option<Shared>,
    ipv6: Option<Ipv6Hosts>,
    services: Option<Box<Services>>,
    pppoe: Option<Box<PppoeHosts>>,
    lacp: Option<Box<LacpHost>>,
    states: [u64; DhcpState::ALL.len()],
    counted: GroupStatistics,
    log: HostLog,
    scratch: Vec<u8>,
    /// Frames that a fault makes late.
    held: FrameQueue,
    /// The second that has the last error of ICMP, and the errors in it.
    errors: (u64, u32),
    /// When the frames were due that are made now.
    due: Nanos,
}

/// The table of hosts for other sources.
#[derive(Debug)]
struct Shared {
    table: Arc<HostTable>,
    /// Hosts whose gateway has no known MAC address yet, and when they try again.
    waiting: VecDeque<u32>,
    /// By host: whether it is in `waiting`.
    is_waiting: Box<[bool]>,
    again: Option<Nanos>,
    /// The default router over IPv6, which all hosts have.
    router: Option<Ipv6Addr>,
}

/// Pause after which hosts ask for the MAC address of a silent gateway again.
const SHARED_RETRY: Nanos = Nanos(500_000_000);

/// Hosts started, timers run and echo requests sent per call at most, so that received frames do not
/// wait for long.
const AT_ONCE: usize = 64;
/// Changes of what DHCP, ARP and PPPoE know of a host, in its log.
const DHCP_STATE: (LogProtocol, EventKind) = (LogProtocol::Dhcp, EventKind::State);
const ARP_STATE: (LogProtocol, EventKind) = (LogProtocol::Arp, EventKind::State);
const PPPOE_STATE: (LogProtocol, EventKind) = (LogProtocol::Pppoe, EventKind::State);
/// Errors of ICMP that a group sends per second at most.
const ERRORS: u32 = 1000;

impl HostGroup {
    /// The group begins at `begin`: its `start` counts from then.
    pub fn new(mut settings: GroupSettings, begin: Nanos) -> Self {
        if settings.faults.has(Fault::KeepAddress) {
            settings.conflict.probes = 0;
        }
        let hosts = vec![HostRecord::default(); settings.count as usize];
        let mut states = [0; DhcpState::ALL.len()];
        if settings.addressing != Addressing::None {
            states[DhcpState::Init as usize] = settings.count.into();
        }
        Self {
            hosts,
            begin,
            next: 0,
            stopped: None,
            released: 0,
            timers: BinaryHeap::new(),
            addresses: HashMap::new(),
            neighbors: NeighborCache::default(),
            asker: 0,
            pinger: Pinger::default(),
            server: settings.server.clone().map(DhcpServer::new),
            shared: None,
            ipv6: settings.ipv6.as_ref().map(|ipv6| Ipv6Hosts::new(ipv6, settings.count)),
            services: Services::new(&settings.services, settings.count),
            pppoe: settings
                .pppoe
                .as_ref()
                .map(|of| PppoeHosts::new(of, settings.count, settings.seed)),
            lacp: settings.lacp.map(|_| Box::default()),
            states,
            counted: GroupStatistics::default(),
            log: HostLog::new(settings.log),
            scratch: Vec::new(),
            held: FrameQueue::default(),
            errors: (0, 0),
            due: Nanos::ZERO,
            settings,
        }
    }

    /// From now on, hosts with an address and a resolved next hop are in `table`.
    #[must_use]
    pub fn sharing(self, table: Arc<HostTable>) -> Self {
        let is_waiting = vec![false; table.hosts()].into();
        let waiting = VecDeque::new();
        let shared = Shared { table, waiting, is_waiting, again: None, router: None };
        Self { shared: Some(shared), ..self }
    }

    /// Whether the hosts give their addresses back, but other sources still use them.
    pub fn is_in_use(&self) -> bool {
        self.settings.release && self.shared.as_ref().is_some_and(|one| one.table.is_in_use())
    }

    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// Whether each host has an address or has failed, and all echo requests have their outcome; or,
    /// after [`HostGroup::stop`], whether nothing is left to send.
    pub fn is_settled(&self) -> bool {
        if !self.held.is_empty() {
            return false;
        }
        if self.stopped.is_some() {
            let releasing = self.ipv6.as_ref().is_some_and(|ipv6| ipv6.releasing > 0)
                || self.pppoe.as_ref().is_some_and(|pppoe| pppoe.is_ending());
            return !self.winds_down() || self.released == self.next && !releasing;
        }
        let pending = |(state, count): (DhcpState, u64)| {
            count > 0 && (state.is_pending() || state == DhcpState::Init)
        };
        let services = |of: &Services| of.is_settled(&self.settings.services);
        let waits = self.states().into_iter().any(pending)
            || self.ipv6.as_ref().is_some_and(|ipv6| !ipv6.is_settled(self.rejected()))
            || !self.services.as_deref().is_none_or(services);
        !waits && self.settings.ping.is_none_or(|_| self.pinger.is_over())
    }

    /// Starts no further host, and no further exchange. Hosts give their addresses back, if the
    /// settings say so.
    pub fn stop(&mut self, now: Nanos) {
        self.stopped.get_or_insert(now);
        if let Some(services) = &mut self.services {
            services.stop();
        }
        if let Some(lacp) = &mut self.lacp {
            lacp.stop();
        }
    }

    /// When [`HostGroup::advance`] has something to do next.
    pub fn next_due(&self) -> Option<Nanos> {
        let held = self.held.first().map(|(_, due)| due);
        if let Some(stopped) = self.stopped {
            let more = self.winds_down() && self.released < self.next;
            let next = more.then(|| self.paced(stopped, self.released));
            let releasing = self.ipv6.as_ref().is_some_and(|ipv6| ipv6.releasing > 0);
            let repeats = self.timers.peek().filter(|_| releasing);
            let repeats = repeats.map(|Reverse((due, _))| *due);
            let ending = self.pppoe.as_ref().and_then(|pppoe| pppoe.ending_due());
            return next.into_iter().chain(repeats).chain(held).chain(ending).min();
        }
        let starts = (self.next < self.settings.count).then(|| self.start_of(self.next));
        let timers = self.timers.peek().map(|Reverse((due, _))| *due);
        let ping = self.settings.ping.and_then(|ping| self.pinger.due(&ping));
        let ipv6 = self.ipv6.as_ref().and_then(Ipv6Hosts::next_due);
        let services = self.services.as_ref().and_then(|of| of.next_due(&self.settings.services));
        let again = self.shared.as_ref().and_then(|shared| shared.again);
        let neighbors = self.neighbors.next_due();
        let pppoe = self.pppoe.as_ref().and_then(|pppoe| pppoe.next_due());
        let lacp = self.lacp.as_ref().and_then(|lacp| lacp.due());
        let own = [starts, timers, neighbors, ping, ipv6, services, again, held, pppoe, lacp];
        own.into_iter().flatten().min()
    }

    /// The due time of the earliest frame that the group owes. Hosts that start all at once owe
    /// nothing, because only the port paces them.
    pub fn owed(&self) -> Option<Nanos> {
        let unpaced = self.settings.setup.is_none();
        if unpaced && self.stopped.is_some() {
            return None;
        }
        if !unpaced || self.next >= self.settings.count {
            return self.next_due();
        }
        self.timers.peek().map(|Reverse((due, _))| *due)
    }

    /// Starts hosts, runs timers and sends echo requests that are due by `now`. Returns whether
    /// there were any.
    pub fn advance(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = self.send_held(now, out);
        self.expire_leases(now);
        if let Some(stopped) = self.stopped {
            return any | self.release(stopped, now, out);
        }
        for _ in 0..AT_ONCE {
            if self.next >= self.settings.count || self.start_of(self.next) > now {
                break;
            }
            let host = self.next;
            self.next += 1;
            self.due = self.settings.setup.map_or(now, |_| self.start_of(host));
            self.start(host, now, out);
            any = true;
        }
        for _ in 0..AT_ONCE {
            let Some(Reverse((due, host))) =
                self.timers.peek().copied().filter(|Reverse((due, _))| *due <= now)
            else {
                break;
            };
            self.timers.pop();
            self.due = due;
            let record = &mut self.hosts[host as usize];
            if record.scheduled == Some(due) {
                record.scheduled = None;
                self.run_timers(host, now, out);
                self.schedule(host);
            }
            any = true;
        }
        any |= self.advance_services(now, out);
        self.due = now;
        any |= self.advance_pppoe(now, out);
        any |= self.advance_lacp(now, out);
        any |= self.share_waiting(now);
        any |= self.advance_ipv6(now, out);
        any |= self.ask_neighbors(now, out);
        any | self.ping(now, out)
    }

    /// Ends leases of the group's servers: if their clients are gone, no message does it.
    fn expire_leases(&mut self, now: Nanos) {
        if let Some(server) = &mut self.server {
            server.expire(now);
        }
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.expire_leases(now);
        }
    }

    /// Handles a frame that arrived at `now`. `partial`: see [`Datagram::parse`]. Returns whether it
    /// was for a host of the group.
    pub fn receive(
        &mut self,
        now: Nanos,
        (frame, partial): (&[u8], bool),
        out: &mut FrameQueue,
    ) -> bool {
        self.due = now;
        if !self.settings.faults.has(Fault::LateAnswer) {
            return self.react(now, (frame, partial), out);
        }
        self.due = now + self.settings.late;
        let mut held = std::mem::take(&mut self.held);
        let before = held.len();
        let is_known = self.react(now, (frame, partial), &mut held);
        self.count_fault(Fault::LateAnswer, (held.len() - before) as u64);
        self.held = held;
        is_known
    }

    /// Sends late frames that are due.
    fn send_held(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = false;
        while let Some((frame, due)) = self.held.first()
            && due <= now
        {
            out.push(due, |octets| octets.extend_from_slice(frame));
            self.held.pop();
            any = true;
        }
        any
    }

    fn react(&mut self, now: Nanos, (frame, partial): (&[u8], bool), out: &mut FrameQueue) -> bool {
        if let Some(claimed) = self.receive_link_local(now, frame, out) {
            return claimed;
        }
        if let Some((to, from, kind, payload)) = parse(frame, &[])
            && let Some(claimed) = self.receive_lacp(now, (to, from), (kind, payload), out)
        {
            return claimed;
        }
        self.observe(now, frame);
        let Some((to, from, kind, packet)) = parse(frame, &self.settings.tags) else {
            return false;
        };
        if self.host_of_mac(from).is_some() {
            return false;
        }
        let own = self.host_of_mac(to);
        if own.is_none() && to.0[0] & 1 == 0 && !self.is_relay(to) {
            return false;
        }
        if matches!(kind, IPV4 | IPV6)
            && let Some(claimed) = self.receive_names(now, (own, from), (packet, partial), out)
        {
            return claimed;
        }
        match kind {
            ARP => self.receive_arp(now, packet, out) || own.is_some(),
            IPV4 if Datagram::is_dhcp(packet) => {
                self.receive_dhcp(now, from, (packet, partial), out) || own.is_some()
            }
            IPV4 if igmp::is_igmp(packet) => {
                self.receive_group_message(now, own, (packet, 0), out) || own.is_some()
            }
            IPV6 if mld::is_mld(packet) => {
                self.receive_group_message(now, own, (packet, 1), out) || own.is_some()
            }
            IPV4 => {
                if let Some(host) = own {
                    self.receive_echo(now, (host, from), packet, out);
                }
                // Others may be routed through the host.
                let to = own.and_then(|host| self.address(host));
                let own = to.is_some_and(|to| packet.get(16..20) == Some(&to.octets()));
                own && !self.is_of_other_source(packet)
            }
            kind if is_pppoe(kind) => self.receive_pppoe(now, (own, from), (kind, packet), out),
            IPV6 if self.ipv6.is_some() => {
                self.receive_ipv6(now, (own, from), (packet, partial), out)
            }
            _ => own.is_some(),
        }
    }

    /// Whether a packet to a host may belong to a flow of another source, which sends from hosts.
    fn is_of_other_source(&self, packet: &[u8]) -> bool {
        self.shared.is_some() && is_of_a_flow(packet)
    }

    /// The figures so far; `full`: with histograms.
    pub fn statistics(&self, full: bool) -> GroupStatistics {
        let mut all = match full {
            true => self.counted.clone(),
            false => {
                let none = Histogram::default();
                let echo = EchoCounters { rtt: none.clone(), ..self.counted.echo.clone() };
                let counted = self.counted.clone();
                GroupStatistics { offer: none.clone(), dora: none, echo, ..counted }
            }
        };
        all.hosts = self.settings.count.into();
        all.started = self.next.into();
        all.states = self.states();
        all.ipv6 = self.ipv6.as_ref().map(|ipv6| ipv6.statistics(full));
        all.lacp = self.lacp.as_ref().map(|lacp| lacp.statistics(full));
        all.pppoe = self.pppoe.as_ref().map(|pppoe| pppoe.statistics(full));
        if let Some(services) = &self.services {
            let of = &self.settings.services;
            all.multicast = of.multicast.as_ref().map(|_| services.multicast(full));
            all.querier = of.queriers.map(|_| services.querier());
            all.lldp = of.lldp.as_ref().map(|_| services.announced(LLDP));
            all.cdp = of.cdp.as_ref().map(|_| services.announced(CDP));
            all.dns = of.resolver.as_ref().map(|_| services.names.asked(full));
            all.dns_server = of.zone.as_ref().map(|_| services.names.served());
            all.mdns = of.mdns.as_ref().map(|_| services.names.mdns());
            all.auth = of.auth.as_ref().map(|_| services.auth(full));
        }
        if self.held.dropped() > 0 {
            all.faults.insert("late-answer dropped", self.held.dropped());
        }
        all.server = self.server.as_ref().map(|server| (server.counters, server.bound()));
        all
    }

    fn has_ipv4(&self) -> bool {
        self.settings.addressing != Addressing::None
    }

    /// Hosts by state. Those whose authentication failed have never begun.
    fn states(&self) -> Vec<(DhcpState, u64)> {
        let mut states = self.states;
        let rejected = self.rejected().min(states[DhcpState::Init as usize]);
        states[DhcpState::Init as usize] -= rejected;
        states[DhcpState::Failed as usize] += rejected;
        DhcpState::ALL.iter().zip(states).map(|(state, count)| (state.0, count)).collect()
    }

    /// Hosts whose authentication failed.
    fn rejected(&self) -> u64 {
        self.services.as_ref().map_or(0, |services| services.rejected())
    }

    /// Whether hosts have something to send after the end.
    fn winds_down(&self) -> bool {
        self.settings.release || self.announces_end()
    }

    /// The IPv4 address of host number `host`, if it may use one.
    pub fn address(&self, host: u32) -> Option<Ipv4Addr> {
        let record = self.hosts.get(host as usize)?;
        match self.settings.addressing {
            Addressing::Dhcp(_) => record.client.address(),
            Addressing::Static { .. } | Addressing::LinkLocal => {
                Some(self.static_address(host)).filter(|_| record.fixed.has_address())
            }
            Addressing::Ppp => Some(self.pppoe.as_ref()?.addresses(host)?.0),
            Addressing::None => None,
        }
    }

    /// The MAC address of host number `host`.
    pub fn mac(&self, host: u32) -> MacAddr {
        let first = mac_bits(self.settings.mac);
        let bits = first.wrapping_add(u64::from(host).wrapping_mul(self.settings.mac_step));
        let [_, _, octets @ ..] = bits.to_be_bytes();
        MacAddr(octets)
    }

    fn host_of_mac(&self, mac: MacAddr) -> Option<u32> {
        let offset = mac_bits(mac).checked_sub(mac_bits(self.settings.mac))?;
        let (number, rest) = (offset / self.settings.mac_step, offset % self.settings.mac_step);
        (rest == 0 && number < self.settings.count.into()).then_some(number as u32)
    }

    /// The host that has this address, or examines it.
    fn host_of(&self, address: Ipv4Addr) -> Option<u32> {
        match self.settings.addressing {
            Addressing::Static { first, .. } => {
                let offset = address.to_bits().checked_sub(first.to_bits())?;
                (offset < self.addresses_of_hosts()).then_some(offset)
            }
            Addressing::Dhcp(_) | Addressing::LinkLocal => self.addresses.get(&address).copied(),
            Addressing::Ppp | Addressing::None => None,
        }
    }

    /// Number of different static addresses.
    fn addresses_of_hosts(&self) -> u32 {
        let duplicate = self.settings.faults.has(Fault::DuplicateAddress);
        if duplicate { 1 } else { self.settings.count }
    }

    fn static_address(&self, host: u32) -> Ipv4Addr {
        match self.settings.addressing {
            Addressing::Static { first, .. } => {
                let offset = host % self.addresses_of_hosts().max(1);
                Ipv4Addr::from_bits(first.to_bits().wrapping_add(offset))
            }
            Addressing::LinkLocal => link_local::address(self.hosts[host as usize].local),
            Addressing::Dhcp(_) | Addressing::Ppp | Addressing::None => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// The address that a host has or examines.
    fn candidate(&self, host: u32) -> Option<Ipv4Addr> {
        let record = &self.hosts[host as usize];
        match self.settings.addressing {
            Addressing::Dhcp(_) => record.client.candidate(),
            Addressing::Static { .. } | Addressing::LinkLocal => Some(self.static_address(host)),
            Addressing::Ppp | Addressing::None => None,
        }
    }

    fn state(&self, host: u32) -> DhcpState {
        let record = &self.hosts[host as usize];
        match self.settings.addressing {
            Addressing::Dhcp(_) => record.client.state(),
            _ => record.fixed,
        }
    }

    /// When host number `host` starts.
    fn start_of(&self, host: u32) -> Nanos {
        self.paced(self.begin + self.settings.start, host)
    }

    fn paced(&self, begin: Nanos, number: u32) -> Nanos {
        let Some(rate) = self.settings.setup else { return begin };
        let after = u128::from(number) * u128::from(Nanos::SECOND.0) / u128::from(rate.max(1));
        begin + Nanos(u64::try_from(after).unwrap_or(u64::MAX / 4))
    }

    fn chance(&mut self, host: u32) -> u64 {
        let record = &mut self.hosts[host as usize];
        record.draws = record.draws.wrapping_add(1);
        mix(self.settings.seed, u64::from(host) << 32 | u64::from(record.draws))
    }

    fn start(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        self.counted.first_start.get_or_insert(now);
        self.start_lacp(host, now, out);
        if self.authenticate(host, now, out) {
            self.schedule(host);
        } else {
            self.begin_host(host, now, out);
        }
    }

    /// Starts a host that may send.
    fn begin_host(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        match self.settings.addressing {
            Addressing::Dhcp(_) => self.step(host, now, out, |client, cx| client.start(cx)),
            Addressing::LinkLocal => {
                self.choose(host, now);
                self.run_timers(host, now, out);
            }
            Addressing::Static { .. } => {
                self.set_fixed(host, now, DhcpState::Checking);
                let chance = self.chance(host);
                let timers = self.settings.conflict;
                self.hosts[host as usize].conflict.start(now, chance, &timers);
                self.run_timers(host, now, out);
            }
            Addressing::Ppp => self.step_pppoe(host, now, out, PppoeClient::start),
            Addressing::None => {}
        }
        self.start_ipv6(host, now, out);
        self.start_services(host, now, out);
        self.schedule(host);
    }

    /// Adds the host's next timer to the list, unless the list has an earlier one of it.
    fn schedule(&mut self, host: u32) {
        let record = &mut self.hosts[host as usize];
        let ipv6 = self.ipv6.as_ref().and_then(|ipv6| ipv6.due_of(host));
        let services = self.services.as_ref().and_then(|of| of.due_of(host));
        let pppoe = self.pppoe.as_ref().and_then(|of| of.due_of(host));
        let own = [record.client.due(), record.conflict.due(), ipv6, services, pppoe];
        let due = own.into_iter().flatten().min();
        let Some(due) = due else { return };
        if record.scheduled.is_none_or(|scheduled| due < scheduled) {
            record.scheduled = Some(due);
            self.timers.push(Reverse((due, host)));
        }
    }

    fn run_timers(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        if matches!(self.settings.addressing, Addressing::Dhcp(_)) {
            self.step(host, now, out, |client, cx| client.timer(cx));
        }
        loop {
            let chance = self.chance(host);
            let timers = self.settings.conflict;
            let action = self.hosts[host as usize].conflict.timer(now, chance, &timers);
            let Some(action) = action else { break };
            self.act(host, now, action, out);
        }
        self.run_ipv6_timers(host, now, out);
        self.run_service_timers(host, now, out);
        self.run_pppoe_timers(host, now, out);
    }

    /// Carries out what the detection of conflicts wants.
    fn act(&mut self, host: u32, now: Nanos, action: ConflictAction, out: &mut FrameQueue) {
        let Some(address) = self.candidate(host) else { return };
        match action {
            ConflictAction::Probe => {
                self.counted.arp.probes += 1;
                self.ask(host, Ipv4Addr::UNSPECIFIED, address, out);
            }
            ConflictAction::Announce => {
                self.counted.arp.announcements += 1;
                self.ask(host, address, address, out);
                if let Some(gateway) = self.gateway_of(host)
                    && self.count_fault(Fault::SpoofGateway, 1)
                {
                    self.ask(host, gateway, gateway, out);
                }
            }
            ConflictAction::Defend => {
                self.counted.arp.defended += 1;
                self.note(host, ARP_STATE, "defended", Some(address.into()));
                self.ask(host, address, address, out);
            }
            ConflictAction::Usable => match self.settings.addressing {
                Addressing::Static { .. } | Addressing::LinkLocal => {
                    self.hosts[host as usize].conflicts = 0;
                    self.set_fixed(host, now, DhcpState::Bound);
                    self.became_usable(host, now);
                }
                // Without probes, the client is bound already.
                Addressing::Dhcp(_) if self.settings.conflict.probes > 0 && !self.informs() => {
                    self.step(host, now, out, |client, cx| client.checked(cx, false));
                }
                Addressing::Dhcp(_) | Addressing::Ppp | Addressing::None => {}
            },
            ConflictAction::Conflict => {
                self.counted.arp.conflicts += 1;
                self.note(host, ARP_STATE, "conflict", Some(address.into()));
                match self.settings.addressing {
                    Addressing::LinkLocal => self.choose(host, now),
                    Addressing::Static { .. } => {
                        self.note_failure(host, LogProtocol::Arp, "conflict");
                        self.set_fixed(host, now, DhcpState::Failed);
                    }
                    Addressing::Dhcp(_) => {
                        self.step(host, now, out, |client, cx| client.checked(cx, true));
                    }
                    Addressing::Ppp | Addressing::None => {}
                }
            }
        }
    }

    /// A step of the host's DHCP client, and its consequences for the group.
    fn step(
        &mut self,
        host: u32,
        now: Nanos,
        out: &mut FrameQueue,
        act: impl FnOnce(&mut DhcpClient, &DhcpContext<'_>) -> DhcpStep,
    ) {
        let Addressing::Dhcp(timers) = self.settings.addressing else { return };
        let (chance, mac, own) = (self.chance(host), self.mac(host), self.own(host));
        let check = self.settings.conflict.probes > 0;
        let (settings, faults) = (&self.settings.dhcp, self.settings.faults);
        let cx = DhcpContext { now, chance, mac, timers: &timers, settings, own, faults, check };
        let client = &mut self.hosts[host as usize].client;
        let (before, had, through) = (client.state(), client.candidate(), client.router());
        let DhcpStep { send, event } = act(client, &cx);
        let (after, has) = (client.state(), client.candidate());
        let has_moved = through != client.router();
        let failure = client.failure();
        if before != after {
            self.states[before as usize] -= 1;
            self.states[after as usize] += 1;
            if after == DhcpState::Failed {
                let reason = failure.map_or("unknown", |failure| failure.word());
                self.note_failure(host, LogProtocol::Dhcp, reason);
            } else {
                self.note(host, DHCP_STATE, after.word(), has.map(IpAddr::V4));
            }
        }
        // Hosts do not see each other's ARP packets, so the group itself finds an address that a
        // server gives twice.
        let mut is_given_twice = false;
        if had != has {
            if let Some(had) = had
                && self.addresses.get(&had) == Some(&host)
            {
                self.addresses.remove(&had);
            }
            if let Some(has) = has {
                is_given_twice = self.addresses.get(&has).is_some_and(|other| *other != host);
                // A host that examines it will decline it.
                if !is_given_twice || after != DhcpState::Checking {
                    self.addresses.insert(has, host);
                }
                let chance = self.chance(host);
                let timers = self.settings.conflict;
                self.hosts[host as usize].conflict.start(now, chance, &timers);
            } else {
                self.hosts[host as usize].conflict.stop();
            }
        }
        self.share_through(host, now, has_moved);
        match event {
            Some(DhcpEvent::Offered(after)) => self.counted.offer.record(after.0),
            Some(DhcpEvent::Bound(after)) => {
                self.counted.dora.record(after.0);
                self.became_usable(host, now);
            }
            Some(DhcpEvent::Renewed) => {
                self.counted.renewed += 1;
                self.note(host, DHCP_STATE, "renewed", has.map(IpAddr::V4));
            }
            Some(DhcpEvent::Expired) => {
                self.counted.expired += 1;
                self.note(host, DHCP_STATE, "expired", had.map(IpAddr::V4));
            }
            Some(DhcpEvent::Ignored(reason)) => {
                let by_fault = [Fault::IgnoreOffer, Fault::IgnoreNak]
                    .into_iter()
                    .any(|fault| fault.word() == reason && self.count_fault(fault, 1));
                if !by_fault {
                    *self.counted.ignored.entry(reason).or_default() += 1;
                }
                self.note(host, (LogProtocol::Dhcp, EventKind::Ignored), reason, None);
            }
            Some(DhcpEvent::Acknowledged | DhcpEvent::Refused) | None => {}
        }
        if let Some(request) = send {
            if request.message.kind == Kind::Decline {
                self.count_fault(Fault::Decline, 1);
            }
            self.send_request(host, request, out);
        }
        if is_given_twice && after == DhcpState::Checking {
            self.act(host, now, ConflictAction::Conflict, out);
        } else if is_given_twice {
            self.counted.arp.conflicts += 1;
            self.note(host, ARP_STATE, "conflict", has.map(IpAddr::V4));
        }
    }

    fn set_fixed(&mut self, host: u32, now: Nanos, state: DhcpState) {
        let record = &mut self.hosts[host as usize];
        let before = std::mem::replace(&mut record.fixed, state);
        self.states[before as usize] -= 1;
        self.states[state as usize] += 1;
        if state != DhcpState::Failed {
            let (event, address) = match self.settings.addressing {
                Addressing::Ppp => (PPPOE_STATE, self.address(host)),
                _ => (ARP_STATE, Some(self.static_address(host))),
            };
            self.note(host, event, state.word(), address.map(IpAddr::V4));
        }
        self.share(host, now);
    }

    /// Keeps the host's entry in the shared table as its address is. An address is there when the
    /// MAC address of the gateway is known.
    fn share(&mut self, host: u32, now: Nanos) {
        self.share_through(host, now, false);
    }

    /// As [`HostGroup::share`]. `has_moved`: the host may have another gateway than before.
    fn share_through(&mut self, host: u32, now: Nanos, has_moved: bool) {
        let Some(shared) = &self.shared else { return };
        let is_ipv6 = shared.table.is_ipv6();
        let own = |group: &Self, host| match is_ipv6 {
            true => group.ipv6_address(host).map(IpAddr::V6),
            false => group.address(host).map(IpAddr::V4),
        };
        let known = shared.table.get(host);
        let Some(address) = own(self, host) else {
            if known.is_some() {
                shared.table.unbind(host);
            }
            return;
        };
        if !has_moved && known.is_some_and(|known| known.address == address) {
            return;
        }
        if let Some((to, session)) = self.shared_session(host) {
            shared.table.bind_in_session(host, address, to, session);
            return;
        }
        let gateway = match is_ipv6 {
            true => self.gateway_ipv6(now).map(IpAddr::V6),
            false => self.gateway_of(host).map(IpAddr::V4),
        };
        let answer = match gateway {
            Some(IpAddr::V6(gateway)) => Some(self.find_ipv6(now, gateway)),
            Some(gateway) => Some(self.neighbors.find(now, gateway)),
            // A router may still advertise itself.
            None => is_ipv6.then_some(Answer::Silent),
        };
        let asker = own(self, self.asker).map_or(host, |_| self.asker);
        let Some(shared) = &mut self.shared else { return };
        match answer {
            Some(Answer::Mac(mac)) => shared.table.bind(host, address, mac),
            Some(answer) => {
                // Until another gateway has answered, frames leave through the one before.
                let is_same = known.is_some_and(|known| known.address == address);
                if answer == Answer::Silent || !is_same {
                    shared.table.unbind(host);
                }
                if !std::mem::replace(&mut shared.is_waiting[host as usize], true) {
                    shared.waiting.push_back(host);
                }
                shared.again.get_or_insert(now + SHARED_RETRY);
                self.asker = asker;
            }
            // Frames of such a host would have no destination.
            None => shared.table.unbind(host),
        }
    }

    /// Shares hosts whose gateway did not answer, after a pause. Returns whether there were any.
    fn share_waiting(&mut self, now: Nanos) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        if shared.again.take_if(|again| *again <= now).is_none() {
            return false;
        }
        shared.is_waiting.fill(false);
        for host in std::mem::take(&mut shared.waiting) {
            self.share_through(host, now, true);
        }
        true
    }

    /// Shares the hosts that wait for the MAC address of a gateway, which may be known now.
    fn share_resolved(&mut self, now: Nanos) {
        if let Some(shared) = self.shared.as_mut().filter(|shared| shared.again.is_some()) {
            shared.again = Some(now);
            self.share_waiting(now);
        }
    }

    /// Shared hosts of a gateway send to its other MAC address from now on.
    fn follow_gateway(&self, now: Nanos, gateway: IpAddr, mac: MacAddr) {
        let Some(Shared { table, .. }) = &self.shared else { return };
        if table.is_ipv6() != gateway.is_ipv6() {
            return;
        }
        // All hosts have the same over IPv6.
        let of_all = self.gateway_ipv6(now).map(IpAddr::V6);
        for host in 0..self.next {
            let of_host = match table.is_ipv6() {
                true => of_all,
                false => self.gateway_of(host).map(IpAddr::V4),
            };
            if let Some(bound) = table.get(host).filter(|_| of_host == Some(gateway)) {
                table.bind(host, bound.address, mac);
            }
        }
    }

    /// Shared hosts send through the default router that they have now. Without one, they cannot
    /// send (RFC 4861 section 5.2).
    fn follow_router(&mut self, now: Nanos) {
        let router = self.gateway_ipv6(now);
        let Some(shared) = self.shared.as_mut().filter(|shared| shared.table.is_ipv6()) else {
            return;
        };
        if std::mem::replace(&mut shared.router, router) != router {
            for host in 0..self.next {
                self.share_through(host, now, true);
            }
        }
    }

    fn became_usable(&mut self, host: u32, now: Nanos) {
        self.counted.bound += 1;
        self.counted.first_bound.get_or_insert(now);
        self.counted.last_bound = Some(now);
        let ipv4 = |ping: PingSettings| ping.target.is_none_or(|target| target.is_ipv4());
        if self.settings.ping.is_some_and(ipv4) && self.hosts[host as usize].echoes == 0 {
            self.pinger.add(host, now);
        }
        self.can_join(host, now);
        self.can_ask(host, now);
        self.examine_name(host, now);
    }

    fn release(&mut self, stopped: Nanos, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = false;
        for _ in 0..AT_ONCE {
            let waits = self.released < self.next && self.winds_down();
            if !waits || self.paced(stopped, self.released) > now {
                break;
            }
            let host = self.released;
            self.due = self.settings.setup.map_or(now, |_| self.paced(stopped, host));
            self.released += 1;
            if self.settings.release {
                self.leave_all(host, now, out);
                self.step(host, now, out, |client, cx| client.release(cx));
                self.release_ipv6(host, now, out);
                self.end_session(host, now, out);
            }
            self.announce_end(host, out);
            if self.settings.release {
                self.log_off(host, out);
            }
            any = true;
        }
        any |= self.end_sessions(now, out);
        any | self.repeat_releases(now, out)
    }

    /// Broadcasts an ARP request.
    fn ask(&mut self, host: u32, sender: Ipv4Addr, target: Ipv4Addr, out: &mut FrameQueue) {
        let mac = self.mac(host);
        let arp =
            Arp { request: true, sender_mac: mac, sender, target_mac: MacAddr::default(), target };
        self.push((BROADCAST, mac), ARP, &arp.octets(), out);
    }

    fn push(
        &mut self,
        addresses: (MacAddr, MacAddr),
        kind: u16,
        packet: &[u8],
        out: &mut FrameQueue,
    ) {
        if let Some(frame) = self.in_session(addresses, kind, packet) {
            out.push(self.due, |octets| {
                begin_frame(octets, (frame.to, addresses.1), &self.settings.tags, frame.kind);
                octets.extend_from_slice(&frame.octets);
            });
            return;
        }
        let copies = if kind == ARP { self.copies() } else { 1 };
        for _ in 0..copies {
            out.push(self.due, |octets| {
                begin_frame(octets, addresses, &self.settings.tags, kind);
                octets.extend_from_slice(packet);
            });
        }
    }

    fn receive_arp(&mut self, now: Nanos, packet: &[u8], out: &mut FrameQueue) -> bool {
        let Some(arp) = Arp::parse(packet) else { return false };
        if self.host_of_mac(arp.sender_mac).is_some() {
            return false;
        }
        let probes = arp.sender.is_unspecified();
        let disputed = if probes { arp.request.then_some(arp.target) } else { Some(arp.sender) };
        let disputed = disputed.and_then(|address| self.host_of(address));
        if let Some(host) = disputed.filter(|_| !self.keeps_addresses()) {
            let timers = self.settings.conflict;
            let conflict = &mut self.hosts[host as usize].conflict;
            if let Some(action) = conflict.conflict(now, probes, &timers) {
                self.act(host, now, action, out);
                self.schedule(host);
            }
        }
        let asked = self.host_of(arp.target).filter(|host| self.state(*host).has_address());
        let resolves = self.settings.ping.is_some()
            || self.shared.is_some()
            || self.settings.services.resolver.is_some();
        // Any packet updates the entry of its sender (RFC 826): a gateway that has moved to
        // another interface announces itself with a request for its own address.
        let known = self.neighbors.known(arp.sender.into());
        let learns = asked.is_some() || !arp.request || known.is_some();
        if !probes && learns && resolves {
            let was_asked = self.neighbors.learn(arp.sender.into(), arp.sender_mac);
            self.pinger.resolved(now, arp.sender.into());
            if was_asked {
                self.share_resolved(now);
            } else if known.is_some_and(|known| known != arp.sender_mac) {
                self.follow_gateway(now, arp.sender.into(), arp.sender_mac);
            }
        }
        if !arp.request {
            return asked.is_some();
        }
        if self.settings.dhcp.relay == Some(arp.target) {
            self.answer(self.relay_mac(), &arp, out);
            return true;
        }
        if let Some(host) = asked {
            if self.count_fault(Fault::NoArp, 1) {
                return true;
            }
            self.answer(self.mac(host), &arp, out);
            // Their address is that of the first host.
            for other in host + 1..self.next {
                if !self.count_fault(Fault::DuplicateAddress, 1) {
                    break;
                }
                self.answer(self.mac(other), &arp, out);
            }
            return true;
        }
        let spoofs = self.address(0).is_some() && self.gateway_of(0) == Some(arp.target);
        if spoofs && self.count_fault(Fault::SpoofGateway, 1) {
            self.answer(self.mac(0), &arp, out);
            return true;
        }
        false
    }

    /// Answers an ARP request with `mac`.
    fn answer(&mut self, mac: MacAddr, request: &Arp, out: &mut FrameQueue) {
        self.counted.arp.answered += 1;
        // All hosts must see the answers for such addresses (RFC 3927 section 2.5).
        let to = if request.target.is_link_local() { BROADCAST } else { request.sender_mac };
        let reply = Arp {
            request: false,
            sender_mac: mac,
            sender: request.target,
            target_mac: request.sender_mac,
            target: request.sender,
        };
        self.push((to, mac), ARP, &reply.octets(), out);
    }

    fn keeps_addresses(&self) -> bool {
        self.settings.faults.has(Fault::KeepAddress)
    }

    /// The router of a host.
    fn gateway_of(&self, host: u32) -> Option<Ipv4Addr> {
        self.settings.gateway.or(self.hosts[host as usize].client.router())
    }

    fn receive_dhcp(
        &mut self,
        now: Nanos,
        from: MacAddr,
        (packet, partial): (&[u8], bool),
        out: &mut FrameQueue,
    ) -> bool {
        let is_client = matches!(self.settings.addressing, Addressing::Dhcp(_));
        if !is_client && self.server.is_none() {
            return false;
        }
        let Some(datagram) = Datagram::parse(packet, partial) else {
            // Fragments and truncated packets have no datagram.
            let is_whole = Datagram::parse(packet, true).is_some();
            let reason = if is_whole { "bad_checksum" } else { "bad_packet" };
            *self.counted.ignored.entry(reason).or_default() += 1;
            return false;
        };
        let message = match Message::parse(datagram.payload) {
            Ok(message) => message,
            Err(malformed) => {
                let reason = match malformed {
                    Malformed::Truncated => "truncated",
                    Malformed::Foreign => "not_dhcp",
                    Malformed::Options => "bad_options",
                    Malformed::Kind => "bad_type",
                };
                *self.counted.ignored.entry(reason).or_default() += 1;
                return false;
            }
        };
        let relay = self.settings.dhcp.relay;
        let is_relayed = message.kind.is_reply() && relay == Some(message.giaddr);
        if datagram.ports.1 == SERVER_PORT && !is_relayed {
            return self.serve(now, from, &message, out);
        }
        let host = self.host_of_mac(message.chaddr).filter(|host| is_client && *host < self.next);
        let Some(host) = host else { return false };
        let kind = word(&message);
        *self.counted.received.entry(kind).or_default() += 1;
        let address = Some(message.yiaddr).filter(|address| !address.is_unspecified());
        self.note(host, (LogProtocol::Dhcp, EventKind::Received), kind, address.map(IpAddr::V4));
        self.step(host, now, out, |client, cx| client.receive(cx, &message));
        let record = &mut self.hosts[host as usize];
        // An offer or a refusal of another server may come at any time.
        if message.kind == Kind::Ack && message.server == record.client.server() {
            record.server_mac = from;
        }
        // Nothing else would give a lease back that the host gets after its turn.
        if self.settings.release && self.stopped.is_some() && host < self.released {
            self.step(host, now, out, |client, cx| client.release(cx));
        }
        self.schedule(host);
        true
    }

    fn serve(
        &mut self,
        now: Nanos,
        from: MacAddr,
        message: &Message,
        out: &mut FrameQueue,
    ) -> bool {
        let Some(server) = &mut self.server else { return false };
        match server.receive(now, message) {
            Ok(None) => {}
            Ok(Some(reply)) => {
                let (address, broadcast) = destination(&reply);
                let to = match broadcast {
                    true => BROADCAST,
                    false if reply.giaddr.is_unspecified() => reply.chaddr,
                    // The relay that sent the message.
                    false => from,
                };
                let own = server.settings().address;
                let mac = self.settings.mac;
                let mut options = std::mem::take(&mut self.scratch);
                options.clear();
                if reply.kind != Kind::Nak {
                    let of_server = &self.settings.dhcp.options;
                    of_server.iter().for_each(|option| option.write(0, mac, &mut options));
                }
                out.push(self.due, |octets| {
                    begin_frame(octets, (to, mac), &self.settings.tags, IPV4);
                    reply.write(own, address, &options, octets);
                });
                self.scratch = options;
            }
            Err(reason) => *self.counted.ignored.entry(reason).or_default() += 1,
        }
        true
    }

    fn receive_echo(
        &mut self,
        now: Nanos,
        (host, from): (u32, MacAddr),
        packet: &[u8],
        out: &mut FrameQueue,
    ) {
        let Some(address) = self.address(host) else { return };
        if packet.get(16..20) != Some(&address.octets()) {
            return;
        }
        let mut reply = std::mem::take(&mut self.scratch);
        reply.clear();
        if echo_reply(packet, &mut reply) {
            self.counted.echo.answered += 1;
            self.push((from, self.mac(host)), IPV4, &reply, out);
        } else if let Some(echo) = Echo::of_reply(packet) {
            self.count_reply(now, host, &echo);
        } else if let Some(error) = IcmpError::parse(packet) {
            self.count_error(host, &error);
        } else if self.settings.icmp_errors
            // Other sources may have flows of the host.
            && (self.shared.is_none() || !is_of_a_flow(packet))
            && self.may_send_error(now)
            && IcmpError::unreachable(packet, &mut reply)
        {
            self.counted.echo.errors_sent += 1;
            self.push((from, self.mac(host)), IPV4, &reply, out);
        }
        self.scratch = reply;
    }

    fn count_reply(&mut self, now: Nanos, host: u32, echo: &Echo) {
        if let Some(sent) = self.pinger.answered(host, echo) {
            self.counted.echo.received += 1;
            self.counted.echo.rtt.record(now.saturating_sub(sent).0);
        }
    }

    /// Counts an error of ICMP, which ends the echo request that caused it.
    fn count_error(&mut self, host: u32, error: &IcmpError) {
        *self.counted.echo.errors.entry(error.word).or_default() += 1;
        // A redirect is no reason to give the request up.
        if error.word != "redirect"
            && let Some(echo) = error.echo
        {
            self.pinger.answered(host, &echo);
        }
    }

    /// Whether the limit of errors leaves room for another one (RFC 1812 section 4.3.2.8).
    fn may_send_error(&mut self, now: Nanos) -> bool {
        let second = now.0 / Nanos::SECOND.0;
        if self.errors.0 != second {
            self.errors = (second, 0);
        }
        self.errors.1 += 1;
        self.errors.1 <= ERRORS
    }

    /// Asks for MAC addresses of neighbors.
    fn ask_neighbors(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = false;
        while let Some(question) = self.neighbors.question(now) {
            any = true;
            match question {
                Ok(IpAddr::V4(address)) => {
                    let Some(own) = self.address(self.asker) else { continue };
                    self.counted.arp.requests += 1;
                    self.ask(self.asker, own, address, out);
                }
                Err(IpAddr::V4(address)) => {
                    self.counted.arp.unresolved += 1;
                    self.pinger.resolved(now, address.into());
                }
                Ok(IpAddr::V6(_)) | Err(IpAddr::V6(_)) => {}
            }
        }
        any
    }

    /// Sends echo requests that are due.
    fn ping(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let Some(ping) = self.settings.ping else { return false };
        let lost = self.pinger.time_out(now, &ping);
        self.counted.echo.lost += lost;
        let mut any = lost > 0;
        for _ in 0..AT_ONCE {
            let Some(host) = self.pinger.next(now, &ping) else { break };
            any = true;
            if self.address(host).is_none() && self.ipv6.is_none() {
                continue;
            }
            let Some((source, target, hop)) = self.path(host, now, &ping) else {
                self.counted.echo.unresolved += 1;
                self.pinger.give_up(host);
                continue;
            };
            self.asker = host;
            let in_session = self.pppoe.as_ref().and_then(|of| of.server_of(host));
            let answer = match hop {
                _ if let Some(server) = in_session => Answer::Mac(server),
                IpAddr::V4(_) => self.neighbors.find(now, hop),
                IpAddr::V6(hop) => self.find_ipv6(now, hop),
            };
            match answer {
                Answer::Wait => self.pinger.wait(host, hop),
                Answer::Silent => {
                    self.counted.echo.unresolved += 1;
                    self.pinger.give_up(host);
                }
                Answer::Mac(mac) => {
                    let record = &mut self.hosts[host as usize];
                    let seq = record.echoes;
                    record.echoes += 1;
                    let source = match source {
                        IpAddr::V4(own) if self.count_fault(Fault::SpoofAddress, 1) => {
                            Ipv4Addr::from_bits(own.to_bits().wrapping_add(1)).into()
                        }
                        source => source,
                    };
                    let echo = Echo { source, destination: target, id: host as u16, seq };
                    self.counted.echo.sent += 1;
                    self.pinger.sent((host, seq), now, &ping);
                    let kind = if source.is_ipv4() { IPV4 } else { IPV6 };
                    self.push((mac, self.mac(host)), kind, &echo.request(), out);
                }
            }
        }
        any
    }

    /// The source and target of a host's echo requests, and the neighbor through which the target is
    /// reached.
    fn path(&self, host: u32, now: Nanos, ping: &PingSettings) -> Option<(IpAddr, IpAddr, IpAddr)> {
        let target = match ping.target {
            Some(IpAddr::V4(target)) => Some(target),
            None if self.has_ipv4() => None,
            Some(IpAddr::V6(_)) | None => {
                let (source, target, hop) = self.ipv6_path(host, now, ping)?;
                return Some((source.into(), target.into(), hop.into()));
            }
        };
        if let Some((own, server)) = self.pppoe.as_ref().and_then(|of| of.addresses(host)) {
            let target = target.unwrap_or(server);
            return Some((own.into(), target.into(), target.into()));
        }
        let client = &self.hosts[host as usize].client;
        let own = self.address(host)?;
        let gateway = self.gateway_of(host);
        let mask = match self.settings.addressing {
            Addressing::Static { prefix, .. } => mask_of(prefix),
            Addressing::LinkLocal => mask_of(16),
            Addressing::Dhcp(_) | Addressing::Ppp | Addressing::None => {
                client.mask().unwrap_or(Ipv4Addr::BROADCAST)
            }
        };
        let target = target.or(gateway).or(client.server())?;
        let on_link = (target.to_bits() ^ own.to_bits()) & mask.to_bits() == 0;
        let hop = if on_link { target } else { gateway? };
        Some((own.into(), target.into(), hop.into()))
    }
}

pub(crate) fn mac_bits(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The name of a message's type.
fn word(message: &Message) -> &'static str {
    use crate::Kind::{Ack, Decline, Discover, Inform, Nak, Offer, Release, Request};
    match message.kind {
        Discover => "discover",
        Offer => "offer",
        Request => "request",
        Decline => "decline",
        Ack => "ack",
        Nak => "nak",
        Release => "release",
        Inform => "inform",
    }
}

/// Echo requests that are due, wait, or are unanswered.
#[derive(Debug, Default)]
struct Pinger {
    /// Hosts whose turn comes, in this order, and those that wait for the MAC address of a neighbor.
    ready: VecDeque<u32>,
    waiting: Vec<(IpAddr, u32)>,
    /// When the next request is due: `begin` plus `number` gaps.
    begin: Nanos,
    number: u64,
    /// Unanswered requests by host and sequence number, with their times, and the order in which
    /// they are given up.
    open: HashMap<(u32, u16), Nanos>,
    deadlines: VecDeque<(Nanos, u32, u16)>,
}

impl Pinger {
    fn add(&mut self, host: u32, now: Nanos) {
        self.resume(now);
        self.ready.push_back(host);
    }

    /// The schedule pauses while no host is ready: requests that no host could send are not due.
    fn resume(&mut self, now: Nanos) {
        if self.ready.is_empty() {
            (self.begin, self.number) = (now.max(self.begin), 0);
        }
    }

    fn is_over(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty() && self.open.is_empty()
    }

    fn next_at(&self, ping: &PingSettings) -> Nanos {
        let gaps = u128::from(self.number) * u128::from(Nanos::SECOND.0);
        self.begin + Nanos((gaps / u128::from(ping.rate.max(1))) as u64)
    }

    fn due(&self, ping: &PingSettings) -> Option<Nanos> {
        let next = (!self.ready.is_empty()).then(|| self.next_at(ping));
        next.into_iter().chain(self.deadlines.front().map(|deadline| deadline.0)).min()
    }

    /// The next host whose request is due by `now`.
    fn next(&mut self, now: Nanos, ping: &PingSettings) -> Option<u32> {
        let next = self.next_at(ping);
        let host = self.ready.pop_front_if(|_| next <= now)?;
        self.number += 1;
        if self.ready.is_empty() {
            // The next request is due a gap later, even if its host is ready before.
            (self.begin, self.number) = (self.next_at(ping), 0);
        }
        Some(host)
    }

    fn wait(&mut self, host: u32, hop: IpAddr) {
        self.waiting.push((hop, host));
    }

    /// Hosts that waited for this address, which is resolved or given up, are ready.
    fn resolved(&mut self, now: Nanos, address: IpAddr) {
        self.resume(now);
        let Self { waiting, ready, .. } = self;
        waiting.retain(|(hop, host)| {
            let waits = *hop != address;
            if !waits {
                ready.push_back(*host);
            }
            waits
        });
    }

    fn give_up(&mut self, host: u32) {
        self.waiting.retain(|(_, waiting)| *waiting != host);
    }

    fn sent(&mut self, (host, seq): (u32, u16), now: Nanos, ping: &PingSettings) {
        self.open.insert((host, seq), now);
        self.deadlines.push_back((now + ping.timeout, host, seq));
        if seq + 1 < ping.count {
            self.ready.push_back(host);
        }
    }

    /// When the request was sent that `echo` answers.
    fn answered(&mut self, host: u32, echo: &Echo) -> Option<Nanos> {
        (echo.id == host as u16).then(|| self.open.remove(&(host, echo.seq))).flatten()
    }

    /// Returns the number of requests that are given up at `now`.
    fn time_out(&mut self, now: Nanos, ping: &PingSettings) -> u64 {
        let mut lost = 0;
        while let Some((_, host, seq)) = self.deadlines.pop_front_if(|(until, ..)| *until <= now) {
            // An answered request is not open. One with the same number is younger.
            let old = |sent: &Nanos| *sent + ping.timeout <= now;
            if self.open.get(&(host, seq)).is_some_and(old) {
                self.open.remove(&(host, seq));
                lost += 1;
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests;
