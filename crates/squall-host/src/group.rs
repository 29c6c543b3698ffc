//! Many hosts of one template on one port: their start, their timers, and the frames for them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr},
};

use squall_stats::Histogram;
use squall_units::{MacAddr, Nanos, mix};

use crate::{
    Answer, Arp, ConflictAction, ConflictDetection, ConflictTimers, Datagram, DhcpClient,
    DhcpContext, DhcpEvent, DhcpServer, DhcpState, DhcpStep, DhcpTimers, Echo, FrameQueue,
    Malformed, Message, NeighborCache, ServerCounters, ServerSettings, destination,
    dhcp_message::SERVER_PORT,
    echo_reply,
    host::{ARP, IPV4, IPV6, begin_frame, parse},
    igmp, mask_of, mld,
};

mod services;

use services::Services;
pub use services::{
    AuthStatistics, LldpStatistics, MulticastSettings, MulticastStatistics, QuerierStatistics,
    ServiceSettings,
};

mod ipv6;

use ipv6::Ipv6Hosts;
pub use ipv6::{
    Dhcp6Statistics, InterfaceIdentifier, Ipv6Addressing, Ipv6Settings, Ipv6State, Ipv6Statistics,
    NdCounters,
};

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
    /// Vendor class of DHCP clients; empty: none.
    pub vendor: Vec<u8>,
    pub services: ServiceSettings,
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
            vendor: Vec::new(),
            services: ServiceSettings::default(),
            seed: 0,
        }
    }
}

impl GroupSettings {
    /// Whether hosts ask for nothing: they only answer, as a server does.
    pub fn only_answers(&self) -> bool {
        let ipv4 = matches!(self.addressing, Addressing::Dhcp(_));
        let ends = |multicast: &MulticastSettings| multicast.hold.is_some();
        let services = &self.services;
        let services = services.auth.is_some() || services.multicast.as_deref().is_some_and(ends);
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
    /// From the first DISCOVER to the offer and to the bound address.
    pub offer: Histogram,
    pub dora: Histogram,
    pub arp: ArpCounters,
    pub echo: EchoCounters,
    pub ipv6: Option<Ipv6Statistics>,
    /// Messages and current leases of the group's DHCP server.
    pub server: Option<(ServerCounters, u64)>,
    pub multicast: Option<MulticastStatistics>,
    pub querier: Option<QuerierStatistics>,
    pub lldp: Option<LldpStatistics>,
    pub auth: Option<AuthStatistics>,
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
    /// Sender of the last ACK: the server, or the relay before it.
    server_mac: MacAddr,
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
    ipv6: Option<Ipv6Hosts>,
    services: Option<Box<Services>>,
    states: [u64; DhcpState::ALL.len()],
    counted: GroupStatistics,
    scratch: Vec<u8>,
    /// When the frames were due that are made now.
    due: Nanos,
}

/// Hosts started, timers run and echo requests sent per call at most, so that received frames do not
/// wait for long.
const AT_ONCE: usize = 64;

impl HostGroup {
    /// The group begins at `begin`: its `start` counts from then.
    pub fn new(settings: GroupSettings, begin: Nanos) -> Self {
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
            ipv6: settings.ipv6.as_ref().map(|ipv6| Ipv6Hosts::new(ipv6, settings.count)),
            services: Services::new(&settings.services, settings.count),
            states,
            counted: GroupStatistics::default(),
            scratch: Vec::new(),
            due: Nanos::ZERO,
            settings,
        }
    }

    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// Whether each host has an address or has failed, and all echo requests have their outcome; or,
    /// after [`HostGroup::stop`], whether nothing is left to send.
    pub fn is_settled(&self) -> bool {
        if self.stopped.is_some() {
            let releasing = self.ipv6.as_ref().is_some_and(|ipv6| ipv6.releasing > 0);
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
    }

    /// When [`HostGroup::advance`] has something to do next.
    pub fn next_due(&self) -> Option<Nanos> {
        if let Some(stopped) = self.stopped {
            let more = self.winds_down() && self.released < self.next;
            let next = more.then(|| self.paced(stopped, self.released));
            let releasing = self.ipv6.as_ref().is_some_and(|ipv6| ipv6.releasing > 0);
            let repeats = self.timers.peek().filter(|_| releasing);
            return next.into_iter().chain(repeats.map(|Reverse((due, _))| *due)).min();
        }
        let starts = (self.next < self.settings.count).then(|| self.start_of(self.next));
        let timers = self.timers.peek().map(|Reverse((due, _))| *due);
        let ping = self.settings.ping.and_then(|ping| self.pinger.due(&ping));
        let ipv6 = self.ipv6.as_ref().and_then(Ipv6Hosts::next_due);
        let services = self.services.as_ref().and_then(|of| of.next_due(&self.settings.services));
        let neighbors = self.neighbors.next_due();
        [starts, timers, neighbors, ping, ipv6, services].into_iter().flatten().min()
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
        if let Some(stopped) = self.stopped {
            return self.release(stopped, now, out);
        }
        let mut any = false;
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
        any |= self.advance_ipv6(now, out);
        any |= self.ask_neighbors(now, out);
        any | self.ping(now, out)
    }

    /// Handles a frame that arrived at `now`. `partial`: see [`Datagram::parse`]. Returns whether it
    /// was for a host of the group.
    pub fn receive(
        &mut self,
        now: Nanos,
        (frame, partial): (&[u8], bool),
        out: &mut FrameQueue,
    ) -> bool {
        if let Some(claimed) = self.receive_link_local(now, frame, out) {
            return claimed;
        }
        self.observe(now, frame);
        let Some((to, from, kind, packet)) = parse(frame, &self.settings.tags) else {
            return false;
        };
        self.due = now;
        if self.host_of_mac(from).is_some() {
            return false;
        }
        let own = self.host_of_mac(to);
        if own.is_none() && to.0[0] & 1 == 0 {
            return false;
        }
        match kind {
            ARP => self.receive_arp(now, packet, out) || own.is_some(),
            IPV4 if Datagram::is_dhcp(packet) => {
                self.receive_dhcp(now, from, (packet, partial), out) || own.is_some()
            }
            IPV4 if igmp::is_igmp(packet) => {
                self.receive_group_message(now, packet, 0, out) || own.is_some()
            }
            IPV6 if mld::is_mld(packet) => {
                self.receive_group_message(now, packet, 1, out) || own.is_some()
            }
            IPV4 => {
                if let Some(host) = own {
                    self.receive_echo(now, (host, from), packet, out);
                }
                own.is_some()
            }
            IPV6 if self.ipv6.is_some() => {
                self.receive_ipv6(now, (own, from), (packet, partial), out)
            }
            _ => own.is_some(),
        }
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
        if let Some(services) = &self.services {
            let of = &self.settings.services;
            all.multicast = of.multicast.as_ref().map(|_| services.multicast(full));
            all.querier = of.queriers.map(|_| services.querier());
            all.lldp = of.lldp.as_ref().map(|_| services.lldp());
            all.auth = of.auth.as_ref().map(|_| services.auth(full));
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
        self.settings.release || self.says_goodbye()
    }

    /// The IPv4 address of host number `host`, if it may use one.
    pub fn address(&self, host: u32) -> Option<Ipv4Addr> {
        let record = self.hosts.get(host as usize)?;
        match self.settings.addressing {
            Addressing::Dhcp(_) => record.client.address(),
            Addressing::Static { .. } => {
                Some(self.static_address(host)).filter(|_| record.fixed.has_address())
            }
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
                (offset < self.settings.count).then_some(offset)
            }
            Addressing::Dhcp(_) => self.addresses.get(&address).copied(),
            Addressing::None => None,
        }
    }

    fn static_address(&self, host: u32) -> Ipv4Addr {
        match self.settings.addressing {
            Addressing::Static { first, .. } => {
                Ipv4Addr::from_bits(first.to_bits().wrapping_add(host))
            }
            Addressing::Dhcp(_) | Addressing::None => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// The address that a host has or examines.
    fn candidate(&self, host: u32) -> Option<Ipv4Addr> {
        let record = &self.hosts[host as usize];
        match self.settings.addressing {
            Addressing::Dhcp(_) => record.client.candidate(),
            Addressing::Static { .. } => Some(self.static_address(host)),
            Addressing::None => None,
        }
    }

    fn state(&self, host: u32) -> DhcpState {
        let record = &self.hosts[host as usize];
        match self.settings.addressing {
            Addressing::Dhcp(_) => record.client.state(),
            Addressing::Static { .. } | Addressing::None => record.fixed,
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
            Addressing::Static { .. } => {
                self.set_fixed(host, DhcpState::Checking);
                let chance = self.chance(host);
                let timers = self.settings.conflict;
                self.hosts[host as usize].conflict.start(now, chance, &timers);
                self.run_timers(host, now, out);
            }
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
        let services = self.services.as_ref().and_then(|of| of.records[host as usize].due());
        let own = [record.client.due(), record.conflict.due(), ipv6, services];
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
            }
            ConflictAction::Defend => {
                self.counted.arp.defended += 1;
                self.ask(host, address, address, out);
            }
            ConflictAction::Usable => match self.settings.addressing {
                Addressing::Static { .. } => {
                    self.set_fixed(host, DhcpState::Bound);
                    self.became_usable(host, now);
                }
                // Without probes, the client is bound already.
                Addressing::Dhcp(_) if self.settings.conflict.probes > 0 => {
                    self.step(host, now, out, |client, cx| client.checked(cx, false));
                }
                Addressing::Dhcp(_) | Addressing::None => {}
            },
            ConflictAction::Conflict => {
                self.counted.arp.conflicts += 1;
                match self.settings.addressing {
                    Addressing::Static { .. } => {
                        *self.counted.failed.entry("conflict").or_default() += 1;
                        self.set_fixed(host, DhcpState::Failed);
                    }
                    Addressing::Dhcp(_) => {
                        self.step(host, now, out, |client, cx| client.checked(cx, true));
                    }
                    Addressing::None => {}
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
        let (chance, mac) = (self.chance(host), self.mac(host));
        let check = self.settings.conflict.probes > 0;
        let cx = DhcpContext { now, chance, mac, timers: &timers, check };
        let client = &mut self.hosts[host as usize].client;
        let (before, had) = (client.state(), client.candidate());
        let DhcpStep { send, event } = act(client, &cx);
        let (after, has) = (client.state(), client.candidate());
        let failure = client.failure();
        if before != after {
            self.states[before as usize] -= 1;
            self.states[after as usize] += 1;
            if after == DhcpState::Failed {
                let reason = failure.map_or("unknown", |failure| failure.word());
                *self.counted.failed.entry(reason).or_default() += 1;
            }
        }
        if had != has {
            if let Some(had) = had
                && self.addresses.get(&had) == Some(&host)
            {
                self.addresses.remove(&had);
            }
            if let Some(has) = has {
                self.addresses.insert(has, host);
                let chance = self.chance(host);
                let timers = self.settings.conflict;
                self.hosts[host as usize].conflict.start(now, chance, &timers);
            } else {
                self.hosts[host as usize].conflict.stop();
            }
        }
        match event {
            Some(DhcpEvent::Offered(after)) => self.counted.offer.record(after.0),
            Some(DhcpEvent::Bound(after)) => {
                self.counted.dora.record(after.0);
                self.became_usable(host, now);
            }
            Some(DhcpEvent::Renewed) => self.counted.renewed += 1,
            Some(DhcpEvent::Expired) => self.counted.expired += 1,
            Some(DhcpEvent::Ignored(reason)) => {
                *self.counted.ignored.entry(reason).or_default() += 1;
            }
            Some(DhcpEvent::Acknowledged | DhcpEvent::Refused) | None => {}
        }
        let Some(request) = send else { return };
        *self.counted.sent.entry(word(&request.message)).or_default() += 1;
        self.counted.retransmissions += u64::from(request.retransmission);
        let to = match request.unicast {
            Some(_) => self.hosts[host as usize].server_mac,
            None => BROADCAST,
        };
        let (source, tags) = (request.message.ciaddr, &self.settings.tags);
        out.push(self.due, |octets| {
            begin_frame(octets, (to, mac), tags, IPV4);
            let destination = request.unicast.unwrap_or(Ipv4Addr::BROADCAST);
            request.message.write(source, destination, &self.settings.vendor, octets);
        });
    }

    fn set_fixed(&mut self, host: u32, state: DhcpState) {
        let record = &mut self.hosts[host as usize];
        let before = std::mem::replace(&mut record.fixed, state);
        self.states[before as usize] -= 1;
        self.states[state as usize] += 1;
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
            }
            self.say_goodbye(host, out);
            if self.settings.release {
                self.log_off(host, out);
            }
            any = true;
        }
        any | self.repeat_releases(now, out)
    }

    /// Broadcasts an ARP request.
    fn ask(&self, host: u32, sender: Ipv4Addr, target: Ipv4Addr, out: &mut FrameQueue) {
        let mac = self.mac(host);
        let arp =
            Arp { request: true, sender_mac: mac, sender, target_mac: MacAddr::default(), target };
        self.push((BROADCAST, mac), ARP, &arp.octets(), out);
    }

    fn push(&self, addresses: (MacAddr, MacAddr), kind: u16, packet: &[u8], out: &mut FrameQueue) {
        out.push(self.due, |octets| {
            begin_frame(octets, addresses, &self.settings.tags, kind);
            octets.extend_from_slice(packet);
        });
    }

    fn receive_arp(&mut self, now: Nanos, packet: &[u8], out: &mut FrameQueue) -> bool {
        let Some(arp) = Arp::parse(packet) else { return false };
        if self.host_of_mac(arp.sender_mac).is_some() {
            return false;
        }
        let probes = arp.sender.is_unspecified();
        let disputed = if probes { arp.request.then_some(arp.target) } else { Some(arp.sender) };
        if let Some(host) = disputed.and_then(|address| self.host_of(address)) {
            let timers = self.settings.conflict;
            let conflict = &mut self.hosts[host as usize].conflict;
            if let Some(action) = conflict.conflict(now, probes, &timers) {
                self.act(host, now, action, out);
                self.schedule(host);
            }
        }
        let asked = self.host_of(arp.target).filter(|host| self.state(*host).has_address());
        if !probes && (asked.is_some() || !arp.request) && self.settings.ping.is_some() {
            self.neighbors.learn(arp.sender.into(), arp.sender_mac);
            self.pinger.resolved(now, arp.sender.into());
        }
        let Some(host) = asked.filter(|_| arp.request) else { return asked.is_some() };
        self.counted.arp.answered += 1;
        let mac = self.mac(host);
        let reply = Arp {
            request: false,
            sender_mac: mac,
            sender: arp.target,
            target_mac: arp.sender_mac,
            target: arp.sender,
        };
        self.push((arp.sender_mac, mac), ARP, &reply.octets(), out);
        true
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
            *self.counted.ignored.entry("bad_checksum").or_default() += 1;
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
        if datagram.ports.1 == SERVER_PORT {
            return self.serve(now, from, &message, out);
        }
        let host = self.host_of_mac(message.chaddr).filter(|host| is_client && *host < self.next);
        let Some(host) = host else { return false };
        *self.counted.received.entry(word(&message)).or_default() += 1;
        self.hosts[host as usize].server_mac = from;
        self.step(host, now, out, |client, cx| client.receive(cx, &message));
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
                out.push(self.due, |octets| {
                    begin_frame(octets, (to, mac), &self.settings.tags, IPV4);
                    reply.write(own, address, &[], octets);
                });
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
        }
        self.scratch = reply;
    }

    fn count_reply(&mut self, now: Nanos, host: u32, echo: &Echo) {
        if let Some(sent) = self.pinger.answered(host, echo) {
            self.counted.echo.received += 1;
            self.counted.echo.rtt.record(now.saturating_sub(sent).0);
        }
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
            let answer = match hop {
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
        let client = &self.hosts[host as usize].client;
        let own = self.address(host)?;
        let gateway = self.settings.gateway.or(client.router());
        let mask = match self.settings.addressing {
            Addressing::Static { prefix, .. } => mask_of(prefix),
            Addressing::Dhcp(_) | Addressing::None => client.mask().unwrap_or(Ipv4Addr::BROADCAST),
        };
        let target = target.or(gateway).or(client.server())?;
        let on_link = (target.to_bits() ^ own.to_bits()) & mask.to_bits() == 0;
        let hop = if on_link { target } else { gateway? };
        Some((own.into(), target.into(), hop.into()))
    }
}

fn mac_bits(mac: MacAddr) -> u64 {
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
