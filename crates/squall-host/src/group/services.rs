//! Protocols of a group's hosts next to those for addresses: 802.1X, LLDP, CDP, DNS, memberships of
//! multicast groups.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
    sync::Arc,
};

use squall_stats::Histogram;
use squall_units::{MacAddr, Nanos};

use super::{AT_ONCE, HostGroup, HostRecord, names::Names};
use crate::{
    Announcement, CdpSettings, DhcpState, DnsZone, EAPOL, EventKind, FrameQueue, GroupMessage,
    LldpSettings, LogProtocol, MdnsSettings, MembershipContext, MembershipTimers, Memberships,
    NeighborTable, PAE_GROUP, Querier, QuerierSettings, ResolverSettings, SourceFilter, Speaker,
    SpeakerTimers, Supplicant, SupplicantEvent, SupplicantSettings, SupplicantState,
    SupplicantStep, cdp,
    cdp::CDP_GROUP,
    group_mac,
    host::{IPV4, IPV6, begin_frame, parse},
    igmp, is_reported, link_local, lldp,
    lldp::NEAREST_BRIDGE,
    mld,
};

/// Protocols that only some groups have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSettings {
    pub multicast: Option<Arc<MulticastSettings>>,
    /// The first host is a querier of IGMP and MLD.
    pub queriers: Option<[QuerierSettings; 2]>,
    pub lldp: Option<LldpSettings>,
    pub cdp: Option<CdpSettings>,
    /// Questions to DNS servers, and the names for which hosts answer.
    pub resolver: Option<Arc<ResolverSettings>>,
    pub zone: Option<Arc<DnsZone>>,
    pub mdns: Option<MdnsSettings>,
    /// Hosts send nothing else before they are authenticated.
    pub auth: Option<SupplicantSettings>,
}

impl ServiceSettings {
    fn any(&self) -> bool {
        *self != Self::default()
    }

    /// The timers of LLDP or CDP, if hosts have it.
    fn speaker(&self, protocol: usize) -> Option<&SpeakerTimers> {
        match protocol {
            LLDP => self.lldp.as_ref().map(|of| &of.timers),
            _ => self.cdp.as_ref().map(|of| &of.timers),
        }
    }
}

/// Memberships of a group's hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastSettings {
    /// First multicast groups and their numbers; the following ones are consecutive.
    pub ranges: Vec<(IpAddr, u32)>,
    /// Groups of each host, in turn; `None`: all of them.
    pub each: Option<u32>,
    /// Sources of groups of IPv4 and IPv6.
    pub filters: [SourceFilter; 2],
    /// IGMP and MLD.
    pub timers: [MembershipTimers; 2],
    /// Joins per second of all hosts; `None`: as soon as a host can.
    pub rate: Option<u64>,
    /// How long a membership lasts; `None`: until the end.
    pub hold: Option<Nanos>,
}

impl MulticastSettings {
    fn groups(&self) -> u32 {
        self.ranges.iter().map(|(_, count)| *count).sum()
    }

    /// The group with this number.
    fn group(&self, mut number: u32) -> Option<IpAddr> {
        for (first, count) in &self.ranges {
            if number < *count {
                return Some(match first {
                    IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + number).into(),
                    IpAddr::V6(first) => {
                        Ipv6Addr::from_bits(first.to_bits() + u128::from(number)).into()
                    }
                });
            }
            number -= count;
        }
        None
    }

    /// Memberships of each host.
    fn each(&self) -> u32 {
        self.each.map_or_else(|| self.groups(), |each| each.min(self.groups()))
    }

    /// The group of a host's membership number `index`.
    fn of_host(&self, host: u32, index: u32) -> Option<IpAddr> {
        let all = u64::from(self.groups().max(1));
        let number = (u64::from(host) * u64::from(self.each()) + u64::from(index)) % all;
        self.group(number as u32)
    }
}

/// Figures of a group's memberships and multicast groups.
#[derive(Clone, Debug, Default)]
pub struct MulticastStatistics {
    /// Memberships that began and that ended.
    pub joined: u64,
    pub left: u64,
    /// Messages by kind, and ignored ones by reason.
    pub sent: BTreeMap<&'static str, u64>,
    pub received: BTreeMap<&'static str, u64>,
    pub ignored: BTreeMap<&'static str, u64>,
    /// Multicast groups that were joined, and those of which a frame arrived after it.
    pub groups: u64,
    pub groups_received: u64,
    /// Frames of groups with members, of groups after the last membership, and of groups that no
    /// host has joined.
    pub frames: u64,
    pub frames_after_leave: u64,
    pub unexpected: u64,
    /// Time from the join to the first frame, and from the leave to the last frame after it.
    pub join: Histogram,
    pub leave: Histogram,
}

/// Figures of a group's queriers.
#[derive(Clone, Debug, Default)]
pub struct QuerierStatistics {
    pub sent: BTreeMap<&'static str, u64>,
    pub received: BTreeMap<&'static str, u64>,
    pub ignored: BTreeMap<&'static str, u64>,
    /// Multicast groups with members.
    pub groups: u64,
    /// Whether another querier has a lower address, for IGMP or MLD.
    pub other: bool,
}

/// Numbers of the protocols with speakers.
pub(super) const LLDP: usize = 0;
pub(super) const CDP: usize = 1;

/// Figures of LLDP or CDP.
#[derive(Clone, Debug, Default)]
pub struct SpeakerStatistics {
    pub sent: u64,
    /// Announcements of the end.
    pub shutdowns: u64,
    pub received: u64,
    pub ignored: BTreeMap<&'static str, u64>,
    pub neighbors: NeighborTable,
}

/// Figures of 802.1X.
#[derive(Clone, Debug, Default)]
pub struct AuthStatistics {
    pub states: Vec<(&'static str, u64)>,
    pub authenticated: u64,
    pub reauthenticated: u64,
    /// Failures and timeouts, after which hosts try again, and the reasons of these failures.
    pub refused: u64,
    pub reasons: BTreeMap<&'static str, u64>,
    pub timed_out: u64,
    pub sent: BTreeMap<&'static str, u64>,
    pub ignored: BTreeMap<&'static str, u64>,
    /// From the first frame to the open port.
    pub time: Histogram,
}

/// The state of a group's protocols.
#[derive(Debug)]
pub(super) struct Services {
    pub(super) records: Vec<ServiceRecord>,
    joins: Joins,
    /// For IPv4 and for IPv6.
    queriers: [Querier; 2],
    querier: QuerierStatistics,
    receptions: HashMap<IpAddr, Reception>,
    multicast: MulticastStatistics,
    /// For LLDP and for CDP: figures, and when all speakers became fast for a new neighbor.
    announced: [SpeakerStatistics; 2],
    sped_up: [Option<Nanos>; 2],
    auth: AuthStatistics,
    auth_states: [u64; SupplicantState::ALL.len()],
    pub(super) names: Names,
}

/// One host.
#[derive(Debug, Default)]
pub(super) struct ServiceRecord {
    supplicant: Supplicant,
    /// For LLDP and for CDP.
    speakers: [Speaker; 2],
    /// For IPv4 and for IPv6.
    memberships: Option<Box<[Memberships; 2]>>,
}

impl ServiceRecord {
    fn due(&self) -> Option<Nanos> {
        let groups =
            self.memberships.iter().flat_map(|all| all.iter().filter_map(Memberships::due));
        let speakers = self.speakers.iter().filter_map(Speaker::due);
        groups.chain(self.supplicant.due()).chain(speakers).min()
    }
}

/// Frames of one multicast group.
#[derive(Clone, Copy, Debug, Default)]
struct Reception {
    members: u32,
    /// When the first host joined, if no frame arrived since.
    joined: Option<Nanos>,
    /// When the last host left, and when the last frame arrived after that.
    left: Option<Nanos>,
    late: Option<Nanos>,
    any: bool,
}

impl Services {
    pub(super) fn new(settings: &ServiceSettings, count: u32) -> Option<Box<Self>> {
        settings.any().then(|| {
            let mut auth_states = [0; SupplicantState::ALL.len()];
            auth_states[SupplicantState::Disconnected as usize] = count.into();
            Box::new(Self {
                records: (0..count).map(|_| ServiceRecord::default()).collect(),
                joins: Joins::default(),
                queriers: Default::default(),
                querier: QuerierStatistics::default(),
                receptions: HashMap::new(),
                multicast: MulticastStatistics::default(),
                announced: Default::default(),
                sped_up: [None; 2],
                auth: AuthStatistics::default(),
                auth_states,
                names: Names::new(settings, count),
            })
        })
    }

    /// The name of the state of a host's supplicant.
    pub(super) fn auth_state(&self, host: u32) -> &'static str {
        SupplicantState::ALL[self.records[host as usize].supplicant.state() as usize].1
    }

    /// Hosts whose authentication failed.
    pub(super) fn rejected(&self) -> u64 {
        self.auth_states[SupplicantState::Failed as usize]
    }

    pub(super) fn is_settled(&self, settings: &ServiceSettings) -> bool {
        use SupplicantState::{Authenticating, Connecting, Disconnected, Held};
        let pending = [Authenticating, Connecting, Disconnected, Held];
        let waits = pending.iter().any(|state| self.auth_states[*state as usize] > 0);
        (settings.auth.is_none() || !waits) && self.joins.is_over() && self.names.is_over()
    }

    /// Joins nothing more.
    pub(super) fn stop(&mut self) {
        self.joins.ready.clear();
        self.joins.held.clear();
        self.names.stop();
    }

    /// The earliest timer of a host.
    pub(super) fn due_of(&self, host: u32) -> Option<Nanos> {
        self.records[host as usize].due().into_iter().chain(self.names.due_of(host)).min()
    }

    pub(super) fn next_due(&self, settings: &ServiceSettings) -> Option<Nanos> {
        let joins = settings.multicast.as_ref().and_then(|of| self.joins.due(of));
        let names = self.names.due(settings);
        self.queriers.iter().filter_map(Querier::due).chain(joins).chain(names).min()
    }

    pub(super) fn querier(&self) -> QuerierStatistics {
        let groups = self.queriers.iter().map(|querier| querier.groups().count() as u64).sum();
        let other = self.queriers.iter().any(|querier| !querier.is_elected());
        let mut all = QuerierStatistics { groups, other, ..self.querier.clone() };
        let too_many: u64 = self.queriers.iter().map(|querier| querier.too_many).sum();
        if too_many > 0 {
            all.ignored.insert("too_many_groups", too_many);
        }
        all
    }

    pub(super) fn multicast(&self, full: bool) -> MulticastStatistics {
        let mut all = self.multicast.clone();
        all.groups = self.receptions.len() as u64;
        all.groups_received = self.receptions.values().filter(|one| one.any).count() as u64;
        if full {
            for one in self.receptions.values() {
                if let (Some(left), Some(late)) = (one.left, one.late) {
                    all.leave.record(late.saturating_sub(left).0);
                }
            }
        } else {
            (all.join, all.leave) = Default::default();
        }
        all
    }

    pub(super) fn announced(&self, protocol: usize) -> SpeakerStatistics {
        self.announced[protocol].clone()
    }

    pub(super) fn auth(&self, full: bool) -> AuthStatistics {
        let time = if full { self.auth.time.clone() } else { Histogram::default() };
        let states = SupplicantState::ALL.iter().zip(&self.auth_states);
        let states = states.map(|((_, word), count)| (*word, *count)).collect();
        AuthStatistics { states, time, ..self.auth.clone() }
    }

    fn joined(&mut self, now: Nanos, group: IpAddr) {
        self.multicast.joined += 1;
        let one = self.receptions.entry(group).or_default();
        one.members += 1;
        if one.members == 1 {
            if let (Some(left), Some(late)) = (one.left.take(), one.late.take()) {
                self.multicast.leave.record(late.saturating_sub(left).0);
            }
            one.joined = Some(now);
        }
    }

    fn left(&mut self, now: Nanos, group: IpAddr) {
        self.multicast.left += 1;
        let one = self.receptions.entry(group).or_default();
        one.members = one.members.saturating_sub(1);
        if one.members == 0 {
            (one.joined, one.left) = (None, Some(now));
        }
    }

    /// Counts a frame of a multicast group.
    fn observe(&mut self, now: Nanos, group: IpAddr) {
        match self.receptions.get_mut(&group) {
            Some(one) if one.members > 0 => {
                self.multicast.frames += 1;
                one.any = true;
                if let Some(joined) = one.joined.take() {
                    self.multicast.join.record(now.saturating_sub(joined).0);
                }
            }
            Some(one) => {
                self.multicast.frames_after_leave += 1;
                one.late = Some(now);
            }
            None if is_reported(group) && !is_local(group) => self.multicast.unexpected += 1,
            None => {}
        }
    }
}

/// The destination of an IP packet of IPv4 or IPv6.
fn destination_of(packet: &[u8], family: usize) -> Option<IpAddr> {
    match family {
        0 => packet.get(16..20)?.first_chunk::<4>().map(|at| IpAddr::from(*at)),
        _ => packet.get(24..40)?.first_chunk::<16>().map(|at| IpAddr::from(*at)),
    }
}

/// Whether switches forward a group to all ports, as RFC 4541 section 2.1.2 recommends.
fn is_local(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => group.octets()[1] & 15 == 2,
    }
}

impl HostGroup {
    /// Begins the authentication of a host. Returns whether the host has to wait for it.
    pub(super) fn authenticate(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) -> bool {
        if self.settings.services.auth.is_none() {
            return false;
        }
        self.step_supplicant(host, now, out, Supplicant::start);
        true
    }

    /// Starts the protocols of a host that may send.
    pub(super) fn start_services(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        let Some(services) = &mut self.services else { return };
        for protocol in [LLDP, CDP] {
            if let Some(timers) = self.settings.services.speaker(protocol) {
                services.records[host as usize].speakers[protocol].start(now, timers);
            }
        }
        if let (0, Some(settings)) = (host, &self.settings.services.queriers) {
            for (querier, settings) in services.queriers.iter_mut().zip(settings) {
                querier.start(now, settings);
            }
        }
        self.speak(host, now, out);
        if !self.has_ipv4() {
            self.can_join(host, now);
        }
    }

    /// The host has an address, and so joins its groups.
    pub(super) fn can_join(&mut self, host: u32, now: Nanos) {
        if !self.carries_groups(host) {
            return;
        }
        if let (Some(settings), Some(services)) =
            (&self.settings.services.multicast, &mut self.services)
            && services.records[host as usize].memberships.is_none()
        {
            services.records[host as usize].memberships = Some(Box::default());
            services.joins.add(host, now, settings);
        }
    }

    /// Runs the timers of a host that are due.
    pub(super) fn run_service_timers(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        if self.services.is_none() {
            return;
        }
        if self.settings.services.auth.is_some() {
            self.step_supplicant(host, now, out, Supplicant::timer);
        }
        self.speak(host, now, out);
        self.run_name_timers(host, now, out);
        for family in 0..2 {
            self.step_memberships(host, now, family, out, |all, cx, out| all.timer(cx, out));
        }
    }

    /// Joins and leaves the groups that are due.
    pub(super) fn advance_services(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = false;
        if let Some(services) = &mut self.services {
            // The last neighbor has no other one whose announcement would show that it is gone.
            services.announced.iter_mut().for_each(|of| of.neighbors.age(now));
        }
        for _ in 0..AT_ONCE {
            let (Some(settings), Some(services)) =
                (&self.settings.services.multicast, &mut self.services)
            else {
                break;
            };
            let Some(turn) = services.joins.next(now, settings) else { break };
            any = true;
            self.due = turn.due;
            self.change_memberships(&turn, now, out);
        }
        self.due = now;
        any |= self.advance_names(now, out);
        any | self.send_queries(now, out)
    }

    fn send_queries(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let Some(settings) = self.settings.services.queriers else { return false };
        let mut any = false;
        for (family, settings) in settings.iter().enumerate() {
            let mut messages = Vec::new();
            let Some(services) = &mut self.services else { return any };
            services.queriers[family].timer(now, settings, &mut messages);
            for message in &messages {
                *services.querier.sent.entry(message.word()).or_default() += 1;
            }
            any |= !messages.is_empty();
            for message in messages {
                self.push_group_message(0, &message, family, out);
            }
        }
        any
    }

    fn change_memberships(&mut self, turn: &Turn, now: Nanos, out: &mut FrameQueue) {
        let (Some(settings), Some(services)) =
            (self.settings.services.multicast.clone(), &mut self.services)
        else {
            return;
        };
        let groups = || (turn.from..turn.to).filter_map(|i| settings.of_host(turn.host, i));
        for group in groups() {
            match turn.join {
                true => services.joined(now, group),
                false => services.left(now, group),
            }
        }
        let word = if turn.join { "joined" } else { "left" };
        // A turn may have thousands of groups; the event has the first one.
        self.note(turn.host, (LogProtocol::Multicast, EventKind::State), word, groups().next());
        let none = SourceFilter::default();
        for family in 0..2 {
            let of_family = groups().filter(|group| group.is_ipv6() == (family == 1));
            let filter = if turn.join { &settings.filters[family] } else { &none };
            self.step_memberships(turn.host, now, family, out, |all, cx, out| {
                all.listen(cx, of_family, filter, out);
            });
        }
        self.schedule(turn.host);
    }

    /// A step of the host's memberships of one family.
    fn step_memberships(
        &mut self,
        host: u32,
        now: Nanos,
        family: usize,
        out: &mut FrameQueue,
        act: impl FnOnce(&mut Memberships, &MembershipContext<'_>, &mut Vec<GroupMessage>),
    ) {
        let Some(settings) = &self.settings.services.multicast else { return };
        let timers = settings.timers[family];
        let chance = self.chance(host);
        let Some(services) = &mut self.services else { return };
        let Some(all) = &mut services.records[host as usize].memberships else { return };
        let cx = MembershipContext { now, chance, timers: &timers };
        let mut messages = Vec::new();
        act(&mut all[family], &cx, &mut messages);
        for message in &messages {
            *services.multicast.sent.entry(message.word()).or_default() += 1;
        }
        for message in messages {
            self.note(host, (LogProtocol::Multicast, EventKind::Sent), message.word(), None);
            self.push_group_message(host, &message, family, out);
        }
    }

    fn push_group_message(
        &self,
        host: u32,
        message: &GroupMessage,
        family: usize,
        out: &mut FrameQueue,
    ) {
        if self.pppoe.as_ref().is_some_and(|of| of.has(message)) {
            return self.push_in_sessions(host, (message, family), out);
        }
        let mac = self.mac(host);
        out.push(self.due, |octets| {
            if family == 0 {
                let to = group_mac(igmp::destination(message).into());
                begin_frame(octets, (to, mac), &self.settings.tags, IPV4);
                // Hosts without an address report with 0.0.0.0 (RFC 3376 section 4.2.13).
                let source = self.address(host).unwrap_or(Ipv4Addr::UNSPECIFIED);
                igmp::write(source, message, octets);
            } else {
                let to = group_mac(mld::destination(message).into());
                begin_frame(octets, (to, mac), &self.settings.tags, IPV6);
                mld::write(self.link_local_of(host), message, octets);
            }
        });
    }

    /// The link-local address of a host, also if the group has no IPv6.
    fn link_local_of(&self, host: u32) -> Ipv6Addr {
        let of_session = self.pppoe.as_ref().and_then(|of| of.link_local(host));
        let own = of_session.or_else(|| self.ipv6_at(host, None));
        own.unwrap_or_else(|| link_local(self.mac(host)))
    }

    /// Whether an IP packet is for the host to whose MAC address it came, or, without such a host,
    /// for all.
    fn is_for(&self, host: Option<u32>, to: IpAddr) -> bool {
        match (host, to) {
            (None, to) => to.is_multicast(),
            (Some(host), IpAddr::V4(to)) => to.is_multicast() || self.address(host) == Some(to),
            (Some(host), IpAddr::V6(to)) => to.is_multicast() || self.uses_ipv6(host, to),
        }
    }

    /// Handles a message of IGMP or MLD for the host to whose MAC address it came, or for all.
    pub(super) fn receive_group_message(
        &mut self,
        now: Nanos,
        host: Option<u32>,
        (packet, family): (&[u8], usize),
        out: &mut FrameQueue,
    ) -> bool {
        let own = self.address(0).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let own = if family == 0 { own.into() } else { self.link_local_of(0).into() };
        let is_for = destination_of(packet, family).is_some_and(|to| self.is_for(host, to));
        let Some(services) = &mut self.services else { return false };
        let parsed = match family {
            0 => igmp::parse(packet).map(|(source, message)| (IpAddr::V4(source), message)),
            _ => mld::parse(packet).map(|(source, message)| (IpAddr::V6(source), message)),
        };
        let parsed = parsed.and_then(|of| if is_for { Ok(of) } else { Err("wrong_destination") });
        let (source, message) = match parsed {
            Ok(parsed) => parsed,
            Err(reason) => {
                for ignored in [&mut services.multicast.ignored, &mut services.querier.ignored] {
                    *ignored.entry(reason).or_default() += 1;
                }
                return true;
            }
        };
        for received in [&mut services.multicast.received, &mut services.querier.received] {
            *received.entry(message.word()).or_default() += 1;
        }
        if let Some(settings) = &self.settings.services.queriers {
            let querier = &mut services.queriers[family];
            querier.receive(now, (source, own), &message, &settings[family]);
        }
        let hosts = host.map_or(0..self.next, |host| host..(host + 1).min(self.next));
        for host in hosts {
            self.step_memberships(host, now, family, out, |all, cx, _| all.receive(cx, &message));
            self.schedule(host);
        }
        true
    }

    /// Counts a received frame, if it is one of a multicast group. Only frames of the hosts' VLAN
    /// count.
    pub fn observe(&mut self, now: Nanos, frame: &[u8]) {
        if self.settings.services.multicast.is_none() || frame.first().is_none_or(|to| to & 1 == 0)
        {
            return;
        }
        match parse(frame, &self.settings.tags) {
            Some((.., IPV4, packet)) if !igmp::is_igmp(packet) => {
                self.observe_packet(now, (packet, 0));
            }
            Some((.., IPV6, packet)) if !mld::is_mld(packet) => {
                self.observe_packet(now, (packet, 1));
            }
            _ => {}
        }
    }

    /// Counts a packet of IPv4 or IPv6, if it is one of a multicast group of hosts that join some.
    /// Returns whether it is.
    pub(super) fn observe_packet(&mut self, now: Nanos, (packet, family): (&[u8], usize)) -> bool {
        let Some(services) = &mut self.services else { return false };
        let joins = self.settings.services.multicast.is_some();
        let to = destination_of(packet, family).filter(|to| joins && to.is_multicast());
        if let Some(group) = to {
            services.observe(now, group);
        }
        to.is_some()
    }

    /// Sends the announcements of a host that are due.
    fn speak(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        for protocol in [LLDP, CDP] {
            let timers = self.settings.services.speaker(protocol);
            let (Some(timers), Some(services)) = (timers, &mut self.services) else { continue };
            if services.records[host as usize].speakers[protocol].timer(now, timers) {
                services.announced[protocol].sent += 1;
                self.push_announcement(host, protocol, false, out);
            }
        }
    }

    /// Without VLAN tags, because both protocols are between the two ends of a link.
    fn push_announcement(&self, host: u32, protocol: usize, ends: bool, out: &mut FrameQueue) {
        let (mac, settings) = (self.mac(host), &self.settings.services);
        if let (LLDP, Some(settings)) = (protocol, &settings.lldp) {
            let ttl = if ends { 0 } else { settings.time_to_live() };
            out.push(self.due, |octets| {
                begin_frame(octets, (NEAREST_BRIDGE, mac), &[], lldp::LLDP);
                lldp::write(mac, ttl, host + 1, settings, octets);
            });
        }
        if let (CDP, Some(settings)) = (protocol, &settings.cdp) {
            let ttl = if ends { 0 } else { settings.hold };
            let address = self.address(host);
            out.push(self.due, |octets| {
                octets.extend(CDP_GROUP.0);
                octets.extend(mac.0);
                cdp::write((mac, address), ttl, host + 1, settings, octets);
            });
        }
    }

    /// An announcement of a neighbor.
    fn receive_announcement(
        &mut self,
        now: Nanos,
        protocol: usize,
        from: MacAddr,
        parsed: Result<Announcement, &'static str>,
    ) -> Option<bool> {
        let timers = self.settings.services.speaker(protocol)?;
        if self.host_of_mac(from).is_some() {
            return Some(false);
        }
        let services = self.services.as_mut()?;
        let counted = &mut services.announced[protocol];
        match parsed {
            Ok(announcement) => {
                counted.received += 1;
                let is_new = counted.neighbors.learn(now, announcement);
                // Neighbors that come soon after one for which the speakers became fast share the
                // announcements that follow a fast interval later. Otherwise each of a flood of new
                // ones would cost a visit to all hosts.
                let last = &mut services.sped_up[protocol];
                let at = last.map_or(now, |last| now.max(last + timers.fast_interval));
                if is_new && last.is_none_or(|last| now >= last) {
                    *last = Some(at);
                    for record in &mut services.records {
                        record.speakers[protocol].speed_up(at, timers);
                    }
                    (0..self.next).for_each(|host| self.schedule(host));
                }
            }
            Err(reason) => *counted.ignored.entry(reason).or_default() += 1,
        }
        Some(true)
    }

    /// Handles a frame of LLDP, CDP or 802.1X, which have no VLAN tags. `None`: it is another one.
    pub(super) fn receive_link_local(
        &mut self,
        now: Nanos,
        frame: &[u8],
        out: &mut FrameQueue,
    ) -> Option<bool> {
        let services = self.services.as_mut()?;
        let (to, from, kind, payload) = parse(frame, &[])?;
        self.due = now;
        match kind {
            lldp::LLDP => self.receive_announcement(now, LLDP, from, lldp::parse(payload)),
            length if cdp::is_cdp(to, length, payload) => {
                self.receive_announcement(now, CDP, from, cdp::parse(payload, length))
            }
            EAPOL => {
                self.settings.services.auth.as_ref()?;
                if to != PAE_GROUP {
                    let host = self.host_of_mac(to).filter(|host| *host < self.next)?;
                    self.receive_eapol(host, now, payload, out);
                } else if self.settings.count > MOST_OF_A_PORT {
                    *services.auth.ignored.entry("group_address").or_default() += 1;
                } else {
                    for host in 0..self.next {
                        self.receive_eapol(host, now, payload, out);
                    }
                }
                Some(true)
            }
            _ => None,
        }
    }

    fn receive_eapol(&mut self, host: u32, now: Nanos, payload: &[u8], out: &mut FrameQueue) {
        self.step_supplicant(host, now, out, |supplicant, now, settings| {
            supplicant.receive(now, payload, host + 1, settings)
        });
        self.schedule(host);
    }

    /// A step of a host's supplicant, and its consequences.
    fn step_supplicant(
        &mut self,
        host: u32,
        now: Nanos,
        out: &mut FrameQueue,
        act: impl FnOnce(&mut Supplicant, Nanos, &SupplicantSettings) -> SupplicantStep,
    ) {
        let (Some(settings), Some(services)) = (&self.settings.services.auth, &mut self.services)
        else {
            return;
        };
        let supplicant = &mut services.records[host as usize].supplicant;
        let (before, was) = (supplicant.state(), supplicant.is_authorized());
        let step = act(supplicant, now, settings);
        let (after, is) = (supplicant.state(), supplicant.is_authorized());
        services.auth_states[before as usize] -= 1;
        services.auth_states[after as usize] += 1;
        let mut failed = None;
        let auth = &mut services.auth;
        match step.event {
            Some(SupplicantEvent::Authenticated(after)) => {
                auth.authenticated += 1;
                auth.time.record(after.0);
            }
            Some(SupplicantEvent::Reauthenticated(_)) => auth.reauthenticated += 1,
            Some(SupplicantEvent::Refused(reason)) => {
                auth.refused += 1;
                *auth.reasons.entry(reason).or_default() += 1;
            }
            Some(SupplicantEvent::TimedOut) => auth.timed_out += 1,
            Some(SupplicantEvent::Failed(reason)) => failed = Some(reason),
            Some(SupplicantEvent::Ignored(reason)) => {
                *auth.ignored.entry(reason).or_default() += 1;
            }
            None => {}
        }
        if let Some((word, _)) = &step.send {
            *auth.sent.entry(word).or_default() += 1;
        }
        if let Some(reason) = failed {
            self.note_failure(host, LogProtocol::Dot1x, reason);
        }
        if let Some(SupplicantEvent::Ignored(reason)) = step.event {
            self.note(host, (LogProtocol::Dot1x, EventKind::Ignored), reason, None);
        }
        if before != after && after != SupplicantState::Failed {
            let state = (LogProtocol::Dot1x, EventKind::State);
            self.note(host, state, SupplicantState::ALL[after as usize].1, None);
        }
        if let Some((word, frame)) = step.send {
            self.note(host, (LogProtocol::Dot1x, EventKind::Sent), word, None);
            self.push_untagged(host, PAE_GROUP, EAPOL, &frame, out);
        }
        match (was, is) {
            (false, true) => self.begin_host(host, now, out),
            (true, false) => self.disconnect(host, now),
            _ => {}
        }
    }

    fn push_untagged(
        &self,
        host: u32,
        to: MacAddr,
        kind: u16,
        payload: &[u8],
        out: &mut FrameQueue,
    ) {
        let mac = self.mac(host);
        out.push(self.due, |octets| {
            begin_frame(octets, (to, mac), &[], kind);
            octets.extend_from_slice(payload);
        });
    }

    /// The port of a host was closed: the host begins again when it is open.
    fn disconnect(&mut self, host: u32, now: Nanos) {
        let before = self.state(host);
        if self.has_ipv4() {
            self.states[before as usize] -= 1;
            self.states[DhcpState::Init as usize] += 1;
        }
        // DHCP gave it, or the host has chosen it.
        if let Some(address) = self.candidate(host)
            && self.addresses.get(&address) == Some(&host)
        {
            self.addresses.remove(&address);
        }
        let record = &mut self.hosts[host as usize];
        let HostRecord { scheduled, draws, echoes, counters, failure, .. } = *record;
        *record =
            HostRecord { scheduled, draws, echoes, counters, failure, ..HostRecord::default() };
        self.disconnect_ipv6(host, now);
        self.disconnect_pppoe(host);
        self.share(host, now);
        self.forget_groups(host, now);
        let Some(services) = &mut self.services else { return };
        services.records[host as usize].speakers = Default::default();
        services.names.forget(host);
    }

    /// Ends the memberships of a host that can no longer send.
    pub(super) fn forget_groups(&mut self, host: u32, now: Nanos) {
        let (Some(settings), Some(services)) =
            (&self.settings.services.multicast, &mut self.services)
        else {
            return;
        };
        if services.records[host as usize].memberships.take().is_none() {
            return;
        }
        for index in services.joins.forget(host) {
            settings.of_host(host, index).into_iter().for_each(|group| services.left(now, group));
        }
    }

    /// Whether hosts have something to send at the end.
    pub(super) fn announces_end(&self) -> bool {
        let settings = &self.settings.services;
        let speaks = [LLDP, CDP].into_iter().any(|one| settings.speaker(one).is_some());
        speaks || settings.mdns.is_some()
    }

    /// Leaves the groups of a host at the end, if hosts give their addresses back.
    pub(super) fn leave_all(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        let Some(services) = &mut self.services else { return };
        let joined = services.joins.forget(host);
        let turn = Turn { host, from: joined.start, to: joined.end, join: false, due: self.due };
        self.change_memberships(&turn, now, out);
    }

    /// Announces the end of a host to its neighbors.
    pub(super) fn announce_end(&mut self, host: u32, out: &mut FrameQueue) {
        self.end_name(host, out);
        for protocol in [LLDP, CDP] {
            let Some(services) = &mut self.services else { return };
            if services.records[host as usize].speakers[protocol].stop() {
                services.announced[protocol].shutdowns += 1;
                self.push_announcement(host, protocol, true, out);
            }
        }
    }

    /// Closes the port of a host.
    pub(super) fn log_off(&mut self, host: u32, out: &mut FrameQueue) {
        let Some(services) = &mut self.services else { return };
        let supplicant = &mut services.records[host as usize].supplicant;
        let before = supplicant.state();
        let frame = supplicant.logoff();
        let after = supplicant.state();
        services.auth_states[before as usize] -= 1;
        services.auth_states[after as usize] += 1;
        if let Some(frame) = frame {
            *services.auth.sent.entry("logoff").or_default() += 1;
            self.push_untagged(host, PAE_GROUP, EAPOL, &frame, out);
        }
    }
}

/// Hosts of a port that share a request to the group address at most: it is meant for the one
/// supplicant of a link.
const MOST_OF_A_PORT: u32 = 256;

/// Memberships that are to begin and to end.
#[derive(Debug, Default)]
struct Joins {
    /// Hosts whose turn comes, with their generations and the number of groups that they have
    /// joined. Turns of former generations are passed over, and the first turn is of a present one.
    ready: VecDeque<((u32, u32), u32)>,
    /// When the next join is due: `begin` plus `number` gaps.
    begin: Nanos,
    number: u64,
    /// Ends of memberships, with the generations of their hosts. As in `ready`, the first one is of
    /// a present generation.
    held: VecDeque<(u32, Turn)>,
    /// Groups that each host has joined and not left.
    current: HashMap<u32, Range<u32>>,
    /// How often each host was forgotten. To search the queues for it each time would take long
    /// while many hosts come and go.
    generations: HashMap<u32, u32>,
    /// Hosts forgotten since the whole of `ready` was searched for former generations.
    forgotten: usize,
}

/// Memberships of a host, by number, that begin or end now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    host: u32,
    from: u32,
    to: u32,
    join: bool,
    due: Nanos,
}

impl Joins {
    fn add(&mut self, host: u32, now: Nanos, settings: &MulticastSettings) {
        if settings.each() == 0 {
            return;
        }
        if self.ready.is_empty() {
            (self.begin, self.number) = (now.max(self.begin), 0);
        }
        self.ready.push_back(((host, self.generation(host)), 0));
    }

    fn generation(&self, host: u32) -> u32 {
        self.generations.get(&host).copied().unwrap_or_default()
    }

    /// Removes turns of former generations from the front of the queues.
    fn pass_over(&mut self) {
        let generations = &self.generations;
        let is_former = |host: u32, generation: u32| {
            generations.get(&host).is_some_and(|now| *now != generation)
        };
        while self.ready.pop_front_if(|((host, of), _)| is_former(*host, *of)).is_some() {}
        while self.held.pop_front_if(|(of, turn)| is_former(turn.host, *of)).is_some() {}
    }

    fn is_over(&self) -> bool {
        self.ready.is_empty() && self.held.is_empty()
    }

    fn next_join(&self, settings: &MulticastSettings) -> Option<Nanos> {
        self.ready.front()?;
        let Some(rate) = settings.rate else { return Some(self.begin) };
        let gaps = u128::from(self.number) * u128::from(Nanos::SECOND.0);
        Some(self.begin + Nanos((gaps / u128::from(rate.max(1))) as u64))
    }

    fn due(&self, settings: &MulticastSettings) -> Option<Nanos> {
        let end = self.held.front().map(|(_, turn)| turn.due);
        self.next_join(settings).into_iter().chain(end).min()
    }

    /// The next change that is due by `now`.
    fn next(&mut self, now: Nanos, settings: &MulticastSettings) -> Option<Turn> {
        if let Some((_, turn)) = self.held.pop_front_if(|(_, turn)| turn.due <= now) {
            self.pass_over();
            let current = self.current.entry(turn.host).or_default();
            // The host may have left since, or joined again.
            if current.start == turn.from {
                current.start = turn.to.min(current.end);
                return Some(turn);
            }
        }
        let due = self.next_join(settings).filter(|due| *due <= now)?;
        let ((host, generation), from) = self.ready.pop_front()?;
        self.pass_over();
        let to = if settings.rate.is_some() { from + 1 } else { settings.each() };
        self.number += 1;
        if to < settings.each() {
            self.ready.push_front(((host, generation), to));
        } else if self.ready.is_empty() {
            (self.begin, self.number) = (due, 1);
            if let Some(rate) = settings.rate {
                // A later host continues at the same rate.
                (self.begin, self.number) = (due + Nanos(Nanos::SECOND.0 / rate.max(1)), 0);
            }
        }
        let current = self.current.entry(host).or_insert(from..from);
        if current.start >= current.end {
            *current = from..to;
        }
        current.end = to;
        if let Some(hold) = settings.hold {
            let turn = Turn { host, from, to, join: false, due: now + hold };
            self.held.push_back((generation, turn));
        }
        let due = if settings.rate.is_some() { due } else { now };
        Some(Turn { host, from, to, join: true, due })
    }

    /// Forgets a host. Returns the memberships that it has.
    fn forget(&mut self, host: u32) -> Range<u32> {
        *self.generations.entry(host).or_default() += 1;
        self.forgotten += 1;
        // Hosts that come and go while others wait add a turn each time.
        if 2 * self.forgotten > self.ready.len() {
            self.forgotten = 0;
            let generations = &self.generations;
            self.ready.retain(|((host, of), _)| {
                generations.get(host).is_none_or(|generation| generation == of)
            });
        }
        self.pass_over();
        self.current.remove(&host).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupVersion;

    #[test]
    fn hosts_that_are_forgotten_lose_their_turns_without_a_search() {
        let settings = |rate, hold| MulticastSettings {
            ranges: vec![(Ipv4Addr::new(239, 1, 0, 0).into(), 1)],
            each: None,
            filters: [SourceFilter::any(), SourceFilter::any()],
            timers: [MembershipTimers::of(GroupVersion::Three); 2],
            rate,
            hold,
        };
        let slow = settings(Some(1), None);
        let mut joins = Joins::default();
        (0..100).for_each(|host| joins.add(host, Nanos::ZERO, &slow));
        (10..20).for_each(|host| assert_eq!(joins.forget(host), 0..0));
        assert_eq!(joins.ready.len(), 100, "no search for each");
        joins.add(15, Nanos::ZERO, &slow);
        joins.forget(0);
        assert_eq!(joins.due(&slow), Some(Nanos::ZERO));
        let late = Nanos(1000 * Nanos::SECOND.0);
        let turns: Vec<u32> =
            std::iter::from_fn(|| joins.next(late, &slow)).map(|turn| turn.host).collect();
        assert_eq!(turns, (1..10).chain(20..100).chain([15]).collect::<Vec<_>>());
        assert!(joins.is_over());
        // A host that comes and goes while others wait does not fill the queue.
        (0..100).for_each(|host| joins.add(host, Nanos::ZERO, &slow));
        for _ in 0..1000 {
            joins.forget(50);
            joins.add(50, Nanos::ZERO, &slow);
        }
        assert!(joins.ready.len() <= 200, "{}", joins.ready.len());
        for host in 0..100 {
            joins.forget(host);
        }
        assert!(joins.is_over());

        // A membership of the former generation does not end that of the next one.
        let short = settings(None, Some(Nanos::SECOND));
        let mut joins = Joins::default();
        let turn = |joins: &mut Joins, at: u64| {
            joins.next(Nanos(at), &short).map(|turn| (turn.host, turn.join))
        };
        [1, 2].into_iter().for_each(|host| joins.add(host, Nanos::ZERO, &short));
        assert_eq!([0, 0].map(|at| turn(&mut joins, at)), [Some((1, true)), Some((2, true))]);
        assert_eq!(joins.forget(2), 0..1);
        joins.add(2, Nanos(500), &short);
        assert_eq!(turn(&mut joins, 500), Some((2, true)));
        let second = Nanos::SECOND.0;
        assert_eq!(
            [second, second, second + 500].map(|at| turn(&mut joins, at)),
            [Some((1, false)), None, Some((2, false))]
        );
        assert!(joins.is_over());
    }
}
