//! PPPoE of a group's hosts: their sessions, or those of the group's access concentrator.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{Ipv4Addr, Ipv6Addr},
};

use squall_stats::Histogram;
use squall_units::{MacAddr, Nanos, mix};

use super::{AT_ONCE, HostGroup};
use crate::{
    DhcpState, FrameQueue, GroupMessage, LogProtocol, PPP_IPV4, PPP_IPV6, PPPOE_DISCOVERY,
    PPPOE_SESSION, PppLink, PppPhase, PppoeClient, PppoeClientSettings, PppoeContext, PppoeEvent,
    PppoeFrame, PppoePacket, PppoeServer, PppoeServerContext, PppoeServerSettings, PppoeState,
    PppoeStep, echo_reply,
    host::{IPV4, IPV6, begin_frame},
    igmp, mld, ppp_word,
};

/// Role of the hosts of a group in PPPoE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PppoeSettings {
    Client(PppoeClientSettings),
    /// The first host is an access concentrator.
    Server(PppoeServerSettings),
}

/// Figures of PPPoE.
#[derive(Clone, Debug, Default)]
pub struct PppoeStatistics {
    /// Clients by state, or sessions of a server by phase of PPP.
    pub states: Vec<(&'static str, u64)>,
    /// Times that a session carried IPv4, and IPv6; sessions that ended, by reason.
    pub opened: u64,
    pub opened6: u64,
    pub ended: BTreeMap<&'static str, u64>,
    /// Packets by kind, of which `retransmissions` of the discovery were repeated, and ignored ones
    /// by reason.
    pub sent: BTreeMap<&'static str, u64>,
    pub retransmissions: u64,
    pub received: BTreeMap<&'static str, u64>,
    pub ignored: BTreeMap<&'static str, u64>,
    /// Name servers that servers named, at most 16.
    pub name_servers: BTreeSet<Ipv4Addr>,
    /// From the first PADI of a client to the number of its session, and to its address; the
    /// address of a server's session counts from the PADR. Each attempt has a first PADI, and a
    /// session that negotiates again counts from the loss of its address.
    pub session: Histogram,
    pub open: Histogram,
}

const MOST_NAME_SERVERS: usize = 16;

/// The state of a group's PPPoE.
#[derive(Debug)]
pub(super) struct PppoeHosts {
    clients: Vec<PppoeClient>,
    server: Option<PppoeServer>,
    states: [u64; PppoeState::ALL.len()],
    /// Hosts whose session is terminated at the end, by the times of their timers.
    ending: VecDeque<u32>,
    counted: PppoeStatistics,
}

impl PppoeHosts {
    pub(super) fn new(settings: &PppoeSettings, count: u32, seed: u64) -> Box<Self> {
        let mut states = [0; PppoeState::ALL.len()];
        let (clients, server) = match settings {
            PppoeSettings::Client(_) => {
                states[PppoeState::Init as usize] = count.into();
                (vec![PppoeClient::default(); count as usize], None)
            }
            PppoeSettings::Server(_) => (Vec::new(), Some(PppoeServer::new(mix(seed, 0)))),
        };
        let counted = PppoeStatistics::default();
        Box::new(Self { clients, server, states, ending: VecDeque::new(), counted })
    }

    pub(super) fn due_of(&self, host: u32) -> Option<Nanos> {
        self.clients.get(host as usize).and_then(PppoeClient::due)
    }

    /// When the server has something to do next.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.server.as_ref().and_then(PppoeServer::due)
    }

    /// Whether sessions wait for their end.
    pub(super) fn is_ending(&self) -> bool {
        self.states[PppoeState::Terminating as usize] > 0
    }

    /// The next timer of a session that ends.
    pub(super) fn ending_due(&self) -> Option<Nanos> {
        self.ending.iter().find_map(|host| self.due_of(*host))
    }

    /// The address of a client's host, and that of its server.
    pub(super) fn addresses(&self, host: u32) -> Option<(Ipv4Addr, Ipv4Addr)> {
        self.clients.get(host as usize).and_then(PppoeClient::addresses)
    }

    /// The families, IPv4 and IPv6, that the session of a client's host carries now. `None`: the
    /// group is an access concentrator.
    pub(super) fn carries(&self, host: u32) -> Option<[bool; 2]> {
        let client = self.clients.get(host as usize)?;
        let is_open = matches!(client.state(), PppoeState::Session | PppoeState::Open);
        Some([client.addresses().is_some(), is_open && client.link().is_up6()])
    }

    /// The link-local address of a client's host.
    pub(super) fn link_local(&self, host: u32) -> Option<Ipv6Addr> {
        self.clients.get(host as usize).map(|client| client.link().link_local())
    }

    /// The sessions that carry a family: that of a client's host, or those of an access
    /// concentrator. Each has the MAC address of its other end, its number, and the own link-local
    /// address.
    fn open_sessions(&self, host: u32, family: usize) -> Vec<(MacAddr, u16, Ipv6Addr)> {
        if let Some(server) = &self.server {
            let is_up = |link: &PppLink| if family == 0 { link.is_up() } else { link.is_up6() };
            let links = server.links().filter(|(.., link)| is_up(link));
            let mut all: Vec<_> =
                links.map(|(mac, number, link)| (mac, number, link.link_local())).collect();
            all.sort_unstable_by_key(|(_, number, _)| *number);
            return all;
        }
        let carries = self.carries(host).is_some_and(|carries| carries[family]);
        let client = self.clients.get(host as usize).filter(|_| carries);
        let of = |client: &PppoeClient| {
            let (mac, number) = client.session();
            (mac, number, client.link().link_local())
        };
        client.map(of).into_iter().collect()
    }

    /// Whether messages of IGMP or MLD leave in sessions. An access concentrator sends only
    /// queries there: its own memberships are those of its link.
    pub(super) fn has(&self, message: &GroupMessage) -> bool {
        self.server.is_none() || matches!(message, GroupMessage::Query(_))
    }

    /// A name server that the server of a host's session named.
    pub(super) fn name_server(&self, host: u32) -> Option<Ipv4Addr> {
        self.clients.get(host as usize)?.link().name_servers().next()
    }

    /// The server's MAC address of a host whose session is open.
    pub(super) fn server_of(&self, host: u32) -> Option<MacAddr> {
        let client = self.clients.get(host as usize)?;
        client.addresses().map(|_| client.session().0)
    }

    pub(super) fn statistics(&self, full: bool) -> PppoeStatistics {
        let mut all = self.counted.clone();
        if !full {
            (all.session, all.open) = Default::default();
        }
        if let Some(server) = &self.server {
            let mut states = BTreeMap::new();
            for (phase, is_up) in server.sessions() {
                *states.entry(phase_word(phase, is_up)).or_default() += 1;
            }
            all.states = states.into_iter().collect();
        } else {
            let states = PppoeState::ALL.iter().zip(self.states);
            all.states = states.map(|((_, word), count)| (*word, count)).collect();
        }
        all
    }

    fn count(&mut self, events: &[PppoeEvent]) {
        let counted = &mut self.counted;
        for event in events {
            match event {
                PppoeEvent::Session(after) if self.server.is_none() => {
                    counted.session.record(after.0);
                }
                PppoeEvent::Up(after) => {
                    counted.opened += 1;
                    counted.open.record(after.0);
                }
                PppoeEvent::Up6 => counted.opened6 += 1,
                PppoeEvent::Ended(reason) => *counted.ended.entry(reason).or_default() += 1,
                PppoeEvent::Ignored(reason) => *counted.ignored.entry(reason).or_default() += 1,
                PppoeEvent::Session(_) | PppoeEvent::Down | PppoeEvent::Failed(_) => {}
            }
        }
    }
}

fn phase_word(phase: PppPhase, is_up: bool) -> &'static str {
    match phase {
        PppPhase::Network if is_up => "open",
        PppPhase::Dead => "dead",
        PppPhase::Establish => "establish",
        PppPhase::Authenticate => "authenticate",
        PppPhase::Network => "network",
        PppPhase::Terminate => "terminate",
    }
}

impl HostGroup {
    /// A step of the host's client, and its consequences for the group.
    pub(super) fn step_pppoe(
        &mut self,
        host: u32,
        now: Nanos,
        out: &mut FrameQueue,
        act: impl FnOnce(&mut PppoeClient, &PppoeContext<'_>) -> PppoeStep,
    ) {
        let chance = self.chance(host);
        let (Some(PppoeSettings::Client(settings)), Some(pppoe)) =
            (&self.settings.pppoe, &mut self.pppoe)
        else {
            return;
        };
        let client = &mut pppoe.clients[host as usize];
        let before = client.state();
        let step = act(client, &PppoeContext { now, chance, number: host + 1, settings });
        let after = client.state();
        pppoe.states[before as usize] -= 1;
        pppoe.states[after as usize] += 1;
        let room = MOST_NAME_SERVERS.saturating_sub(pppoe.counted.name_servers.len());
        pppoe.counted.name_servers.extend(client.link().name_servers().take(room));
        pppoe.count(&step.events);
        if before != after {
            let state = match after {
                PppoeState::Init => DhcpState::Init,
                PppoeState::Discovery | PppoeState::Waiting => DhcpState::Selecting,
                PppoeState::Request | PppoeState::Session => DhcpState::Requesting,
                PppoeState::Open => DhcpState::Bound,
                PppoeState::Terminating | PppoeState::Closed => DhcpState::Released,
                PppoeState::Failed => DhcpState::Failed,
            };
            self.set_fixed(host, now, state);
        }
        for event in &step.events {
            match event {
                PppoeEvent::Up(_) => self.became_usable(host, now),
                PppoeEvent::Failed(reason) => {
                    self.note_failure(host, LogProtocol::Pppoe, reason);
                }
                _ => {}
            }
        }
        self.push_pppoe(self.mac(host), step.send, out);
        self.follow_session(host, now);
    }

    /// Whether the session of a host carries the families of its multicast groups. Other groups of
    /// hosts have no sessions.
    pub(super) fn carries_groups(&self, host: u32) -> bool {
        let (Some(pppoe), Some(multicast)) = (&self.pppoe, &self.settings.services.multicast)
        else {
            return true;
        };
        let has = |carries: [bool; 2]| {
            multicast.ranges.iter().all(|(first, _)| carries[usize::from(first.is_ipv6())])
        };
        pppoe.carries(host).is_none_or(has)
    }

    /// Memberships are those of a session: with the next one, the host joins its groups again,
    /// because the other end knows nothing of them.
    fn follow_session(&mut self, host: u32, now: Nanos) {
        if self.settings.services.multicast.is_none() {
            return;
        }
        match self.carries_groups(host) {
            true => self.can_join(host, now),
            false => self.forget_groups(host, now),
        }
    }

    /// Sends a message of IGMP or MLD in the session of a host or, as an access concentrator, in
    /// those of all clients.
    pub(super) fn push_in_sessions(
        &self,
        host: u32,
        (message, family): (&GroupMessage, usize),
        out: &mut FrameQueue,
    ) {
        let Some(pppoe) = &self.pppoe else { return };
        let from = self.mac(host);
        for (to, number, link_local) in pppoe.open_sessions(host, family) {
            let mut packet = Vec::new();
            let protocol = match family {
                0 => {
                    let own = self.address(host).unwrap_or(Ipv4Addr::UNSPECIFIED);
                    igmp::write(own, message, &mut packet);
                    PPP_IPV4
                }
                _ => {
                    mld::write(link_local, message, &mut packet);
                    PPP_IPV6
                }
            };
            let frame = PppoeFrame::session(to, number, protocol, &packet);
            out.push(self.due, |octets| {
                begin_frame(octets, (to, from), &self.settings.tags, frame.kind);
                octets.extend_from_slice(&frame.octets);
            });
        }
    }

    /// Handles what only concerns multicast groups in a packet of a session: a message of IGMP or
    /// MLD, or a packet of a group. `None`: it is another packet.
    fn receive_multicast(
        &mut self,
        now: Nanos,
        host: u32,
        packet: &[u8],
        out: &mut FrameQueue,
    ) -> Option<bool> {
        let (family, is_message) = match packet.first()? >> 4 {
            4 => (0, igmp::is_igmp(packet)),
            6 => (1, mld::is_mld(packet)),
            _ => return None,
        };
        if is_message {
            self.receive_group_message(now, Some(host), (packet, family), out);
            return Some(true);
        }
        // It is not for hosts alone: streams count it, too.
        self.observe_packet(now, (packet, family)).then_some(false)
    }

    fn step_pppoe_server(
        &mut self,
        now: Nanos,
        out: &mut FrameQueue,
        act: impl FnOnce(&mut PppoeServer, &PppoeServerContext<'_>) -> PppoeStep,
    ) {
        let chance = self.chance(0);
        let (Some(PppoeSettings::Server(settings)), Some(pppoe)) =
            (&self.settings.pppoe, &mut self.pppoe)
        else {
            return;
        };
        let Some(server) = &mut pppoe.server else { return };
        let step = act(server, &PppoeServerContext { now, chance, settings });
        for address in server.take_changed() {
            if let Some(shared) = &self.shared {
                shared.table.set_session(address, server.client(address));
            }
        }
        pppoe.count(&step.events);
        self.push_pppoe(self.settings.mac, step.send, out);
    }

    fn push_pppoe(&mut self, mac: MacAddr, frames: Vec<PppoeFrame>, out: &mut FrameQueue) {
        for frame in frames {
            if let Some(pppoe) = &mut self.pppoe {
                *pppoe.counted.sent.entry(frame.word).or_default() += 1;
                pppoe.counted.retransmissions += u64::from(frame.retransmission);
            }
            out.push(self.due, |octets| {
                begin_frame(octets, (frame.to, mac), &self.settings.tags, frame.kind);
                octets.extend_from_slice(&frame.octets);
            });
        }
    }

    /// Runs the timers of a host's client that are due.
    pub(super) fn run_pppoe_timers(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        if self.pppoe.as_ref().is_some_and(|of| of.due_of(host).is_some_and(|due| due <= now)) {
            self.step_pppoe(host, now, out, PppoeClient::timer);
        }
    }

    /// Runs the timers of the server that are due.
    pub(super) fn advance_pppoe(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let due = self.pppoe.as_ref().and_then(|of| of.next_due());
        let is_due = due.is_some_and(|due| due <= now);
        if is_due {
            self.step_pppoe_server(now, out, |server, cx| server.timer(cx, AT_ONCE));
        }
        is_due
    }

    /// Handles a packet of PPPoE. Returns whether it was for a host of the group.
    pub(super) fn receive_pppoe(
        &mut self,
        now: Nanos,
        (own, from): (Option<u32>, MacAddr),
        (kind, packet): (u16, &[u8]),
        out: &mut FrameQueue,
    ) -> bool {
        let Some(pppoe) = &mut self.pppoe else { return false };
        let is_server = pppoe.server.is_some();
        // The PADI of a client is for servers alone.
        let Some(host) = own.or(is_server.then_some(0)) else { return false };
        if is_server && host != 0 || !is_server && host >= self.next {
            return true;
        }
        let word = match PppoePacket::parse(packet) {
            Ok(of) if kind == PPPOE_DISCOVERY => of.word(),
            Ok(PppoePacket { payload: [high, low, rest @ ..], .. }) => {
                ppp_word(u16::from_be_bytes([*high, *low]), rest)
            }
            _ => "other",
        };
        *pppoe.counted.received.entry(word).or_default() += 1;
        let mut carried = None;
        match (kind == PPPOE_DISCOVERY, is_server) {
            (true, true) => self.step_pppoe_server(now, out, |server, cx| {
                server.receive_discovery(cx, from, packet)
            }),
            (true, false) => self.step_pppoe(host, now, out, |client, cx| {
                client.receive_discovery(cx, from, packet)
            }),
            (false, true) => self.step_pppoe_server(now, out, |server, cx| {
                let (step, inner) = server.receive_session(cx, from, packet);
                carried = inner;
                step
            }),
            (false, false) => self.step_pppoe(host, now, out, |client, cx| {
                let (step, inner) = client.receive_session(cx, from, packet);
                carried = inner;
                step
            }),
        }
        if let Some(packet) = carried
            && let Some(claimed) = self.receive_names(now, (Some(host), from), (packet, false), out)
        {
            self.schedule(host);
            return claimed;
        }
        if let Some(packet) = carried
            && let Some(claimed) = self.receive_multicast(now, host, packet, out)
        {
            self.schedule(host);
            return claimed;
        }
        let is_own = !carried.is_some_and(|packet| self.is_of_other_source(packet));
        match carried.filter(|_| is_own) {
            Some(packet) if packet.first().is_some_and(|first| first >> 4 == 4) => {
                self.receive_echo(now, (host, from), packet, out);
            }
            Some(packet) => self.answer_echo6(host, from, packet, out),
            None => {}
        }
        self.schedule(host);
        is_own
    }

    /// Answers an echo request to the link-local address of a session.
    fn answer_echo6(&mut self, host: u32, from: MacAddr, packet: &[u8], out: &mut FrameQueue) {
        let Some(pppoe) = &self.pppoe else { return };
        let link = match &pppoe.server {
            Some(server) => server.link(from).map(|(link, _)| link),
            None => Some(pppoe.clients[host as usize].link()),
        };
        let is_own =
            link.is_some_and(|link| packet.get(24..40) == Some(&link.link_local().octets()));
        let mut reply = Vec::new();
        if is_own && echo_reply(packet, &mut reply) {
            self.counted.echo.answered += 1;
            self.push((from, self.mac(host)), IPV6, &reply, out);
        }
    }

    /// The packet of a session that carries `packet`, and the MAC address of its receiver. `None`:
    /// it does not leave in a session.
    pub(super) fn in_session(
        &self,
        (to, from): (MacAddr, MacAddr),
        kind: u16,
        packet: &[u8],
    ) -> Option<PppoeFrame> {
        let pppoe = self.pppoe.as_ref()?;
        let protocol = match kind {
            IPV4 => PPP_IPV4,
            IPV6 => PPP_IPV6,
            // There is no ARP in a session: a concentrator answers it on the link.
            _ => return None,
        };
        let (to, session) = match &pppoe.server {
            None => {
                let host = self.host_of_mac(from)?;
                pppoe.clients.get(host as usize)?.session()
            }
            Some(server) if kind == IPV4 => {
                server.client(Ipv4Addr::from(*packet.get(16..20)?.first_chunk::<4>()?))?
            }
            Some(server) => (to, server.link(to)?.1),
        };
        Some(PppoeFrame::session(to, session, protocol, packet))
    }

    /// The MAC address of the other end of a host's session, and its number, for a table of hosts.
    /// A concentrator has one for each client: [`HostTable::path`](crate::HostTable::path).
    pub(super) fn shared_session(&self, host: u32) -> Option<(MacAddr, u16)> {
        let pppoe = self.pppoe.as_ref()?;
        match &pppoe.server {
            Some(_) => (host == 0).then_some((self.settings.mac, 0)),
            None => pppoe.clients.get(host as usize).map(PppoeClient::session),
        }
    }

    /// Begins to terminate the session of a host at the end.
    pub(super) fn end_session(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        self.step_pppoe(host, now, out, PppoeClient::stop);
        if let Some(pppoe) = self.pppoe.as_mut().filter(|of| of.due_of(host).is_some()) {
            pppoe.ending.push_back(host);
        }
    }

    /// Runs the timers of sessions that end.
    pub(super) fn end_sessions(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = false;
        while let Some(pppoe) = &mut self.pppoe {
            let due = pppoe.ending.front().map(|host| (*host, pppoe.due_of(*host)));
            let Some((host, due)) = due else { break };
            // All have the same interval, so that the first one is the next one.
            if due.is_some_and(|due| due > now) {
                break;
            }
            pppoe.ending.pop_front();
            if due.is_some() {
                self.due = now;
                self.step_pppoe(host, now, out, PppoeClient::timer);
                any = true;
                if let Some(pppoe) = self.pppoe.as_mut().filter(|of| of.due_of(host).is_some()) {
                    pppoe.ending.push_back(host);
                }
            }
        }
        any
    }

    /// The port of a host was closed.
    pub(super) fn disconnect_pppoe(&mut self, host: u32) {
        let Some(pppoe) = &mut self.pppoe else { return };
        let Some(client) = pppoe.clients.get_mut(host as usize) else { return };
        pppoe.states[std::mem::take(client).state() as usize] -= 1;
        pppoe.states[PppoeState::Init as usize] += 1;
    }
}

/// EtherTypes of PPPoE.
pub(super) fn is_pppoe(kind: u16) -> bool {
    matches!(kind, PPPOE_DISCOVERY | PPPOE_SESSION)
}
