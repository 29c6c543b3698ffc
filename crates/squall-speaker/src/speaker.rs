//! The routers of a speaker, and the time.

use std::{collections::HashMap, net::IpAddr};

use squall_bgp::{
    EndReason, Input, Learnt, LearntChange, LearntLimit, Notification, PeerSettings, Prefix,
    Session, State, UpdateKind, Way, cease,
};
use squall_host::{Answer, FrameQueue};
use squall_tcp::{ClassId, FlowKind, Settings, Stack, Tunables, Tuple};
use squall_units::{MacAddr, Nanos, mix};

use crate::{
    connections::Tag,
    link::{FrameOutput, Link, MOST_FRAMES, Received},
    peers::{PORT, Peer, Peers, SpeakerGroup, Todo},
};

/// Settings of a speaker.
#[derive(Clone, Debug)]
pub struct SpeakerSettings {
    pub routers: Vec<SpeakerRouter>,
    /// Announced by all routers, unless they name their peers.
    pub groups: Vec<SpeakerGroup>,
    /// Longest IP packet, octets.
    pub mtu: u16,
    /// Learnt routes that are kept at most, over all sessions.
    pub learnt: u64,
    /// Keeps the attributes of learnt routes.
    pub attributes: bool,
    pub seed: u64,
}

impl Default for SpeakerSettings {
    fn default() -> Self {
        Self {
            routers: Vec::new(),
            groups: Vec::new(),
            mtu: 1500,
            learnt: 10_000_000,
            attributes: false,
            seed: 0,
        }
    }
}

/// A router on the link.
#[derive(Clone, Debug, Default)]
pub struct SpeakerRouter {
    pub mac: MacAddr,
    /// At most one of each IP version.
    pub addresses: Vec<IpAddr>,
    pub peers: Vec<SpeakerPeer>,
}

/// A neighbor of a router, on the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeakerPeer {
    pub address: IpAddr,
    pub session: PeerSettings,
}

/// Something to do during a run. Peers have their numbers in the order of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Announces or withdraws a group, by its number.
    Announce(usize),
    Withdraw(usize),
    /// Announces or withdraws some routes of a group that is announced.
    Routes(usize, UpdateKind, Vec<Prefix>),
    /// Starts a session that was stopped.
    Start(usize),
    /// Stops a session with a NOTIFICATION.
    Stop(usize, Notification),
    /// Ends a session with a NOTIFICATION and starts it again, unless it is stopped.
    Reset(usize, Notification),
    /// Restarts a session gracefully; it is back after the time.
    Restart(usize, Nanos),
    /// Asks a peer for its routes again.
    Refresh(usize),
}

/// Many BGP sessions on a port.
pub struct Speaker {
    stack: Stack<Peers>,
    link: Link,
    /// An own address by those of its neighbors.
    locals: HashMap<IpAddr, IpAddr>,
    /// Sessions whose connection waits for a MAC address.
    resolving: Vec<u32>,
    packet: Vec<u8>,
    seed: u64,
    /// Connections that were opened, for their ports.
    opened: u64,
}

/// The first port of connections (RFC 6335 section 6), and their number.
const FIRST_PORT: u16 = 49_152;
const PORTS: u64 = 16_384;

impl Speaker {
    /// Makes a speaker whose sessions have not started.
    ///
    /// # Errors
    /// If the MTU is too short or too long for TCP.
    pub fn new(settings: SpeakerSettings) -> Result<Self, squall_tcp::TunableError> {
        let SpeakerSettings { routers, groups, mtu, learnt, attributes, seed } = settings;
        let mut peers = Peers::new(groups);
        let (mut link, mut locals) = (Link::default(), HashMap::new());
        let limit = LearntLimit::new(learnt);
        for router in &routers {
            link.add(router.mac, router.addresses.iter().copied());
            for peer in &router.peers {
                let same = |it: &&IpAddr| it.is_ipv4() == peer.address.is_ipv4();
                let Some(local) = router.addresses.iter().find(same) else { continue };
                let session = Session::new(peer.session);
                let learnt = Learnt::new(limit.clone());
                let learnt = if attributes { learnt.with_attributes() } else { learnt };
                peers.add(session, (*local, peer.address), learnt);
                locals.entry(peer.address).or_insert(*local);
            }
        }
        let settings = Settings { key: [mix(seed, 1), mix(seed, 2)], ..Settings::default() };
        let mut stack = Stack::new(settings, peers);
        // 40 octets: the headers of IPv4 and TCP.
        let tunables = Tunables { mss: mtu.saturating_sub(40), ..Tunables::default() };
        stack.app_mut().class = stack.add_class(tunables)?;
        Ok(Self { stack, link, locals, resolving: Vec::new(), packet: Vec::new(), seed, opened: 0 })
    }

    /// Starts all sessions.
    pub fn start(&mut self, now: Nanos, out: &mut FrameQueue) {
        self.each(now, || Input::Start);
        self.work(now, out);
    }

    /// Ends all sessions with CEASE 6/2.
    pub fn stop(&mut self, now: Nanos, out: &mut FrameQueue) {
        self.each(now, || Input::Stop(Notification::cease(cease::SHUTDOWN)));
        self.work(now, out);
    }

    fn each(&mut self, now: Nanos, input: impl Fn() -> Input<'static>) {
        for number in 0..self.peers().len() as u32 {
            self.stack.app_mut().handle(now, number, input());
        }
    }

    /// Carries out an order.
    pub fn order(&mut self, now: Nanos, order: Order, out: &mut FrameQueue) {
        let peers = self.stack.app_mut();
        match order {
            Order::Announce(group) => peers.set_announced(group, true),
            Order::Withdraw(group) => peers.set_announced(group, false),
            Order::Routes(group, kind, prefixes) => peers.set_routes(group, kind, prefixes),
            Order::Start(peer) => peers.handle(now, peer as u32, Input::Start),
            Order::Stop(peer, error) => peers.handle(now, peer as u32, Input::Stop(error)),
            Order::Reset(peer, error) => {
                if peers.all.get(peer).is_some_and(|it| !it.session.is_stopped()) {
                    peers.handle(now, peer as u32, Input::Stop(error));
                    peers.handle(now, peer as u32, Input::Start);
                }
            }
            Order::Restart(peer, after) => {
                peers.handle(now, peer as u32, Input::Restart { after });
            }
            Order::Refresh(peer) => peers.handle(now, peer as u32, Input::Refresh),
        }
        self.work(now, out);
    }

    /// Handles a frame that arrived at `now`; `partial`: its checksums are not computed yet.
    /// Returns whether it was for a router of the speaker alone.
    pub fn receive(
        &mut self,
        now: Nanos,
        (frame, partial): (&[u8], bool),
        out: &mut FrameQueue,
    ) -> bool {
        match self.link.receive(now, frame, out) {
            Received::Segment(packet) => {
                if partial {
                    self.stack.receive_verified(now, packet);
                } else {
                    self.stack.receive(now, packet);
                }
                self.run(now);
                if self.stack.is_ack_overdue() {
                    self.transmit(now, out);
                }
                true
            }
            Received::Other { is_own } => {
                if !self.resolving.is_empty() {
                    self.work(now, out);
                }
                is_own
            }
        }
    }

    /// Runs the timers that are due by `now`, and sends as much as has room.
    pub fn advance(&mut self, now: Nanos, out: &mut FrameQueue) {
        self.stack.advance(now);
        self.stack.app_mut().advance(now);
        self.work(now, out);
    }

    /// When [`Speaker::advance`] has something to do next; 0: at once, as soon as the queue of the
    /// port has room.
    pub fn next_due(&self) -> Option<Nanos> {
        if self.stack.has_output() {
            return Some(Nanos::ZERO);
        }
        let own = [self.stack.next_due(), self.stack.app().next_due()];
        own.into_iter().chain([self.link.neighbors.next_due()]).flatten().min()
    }

    /// Whether all sessions that have started are established and have announced all routes; or,
    /// after [`Speaker::stop`], whether no connection is left.
    pub fn is_settled(&self) -> bool {
        let peers = self.stack.app();
        let is_stopped =
            |peer: &Peer| peer.session.state() == State::Idle && peer.session.next_due().is_none();
        match peers.all.iter().all(is_stopped) {
            true => peers.connections.is_empty() && !self.stack.has_output(),
            false => {
                let mut started = peers.all.iter().filter(|peer| !is_stopped(peer));
                started.all(|peer| peer.fed_at.is_some())
            }
        }
    }

    /// Whether the peers have acknowledged everything, and nothing waits.
    pub fn is_acknowledged(&self) -> bool {
        self.stack.app().all_acknowledged()
    }

    /// The sessions, in the order of the settings.
    pub fn peers(&self) -> &[Peer] {
        &self.stack.app().all
    }

    /// Keeps changes of the learnt routes from now on, until they are taken.
    pub fn keep_changes(&mut self) {
        self.stack.app_mut().keep_changes();
    }

    /// Whether there are changes that were not taken.
    pub fn has_changes(&self) -> bool {
        self.stack.app().has_changes()
    }

    /// Changes of the learnt routes of all sessions, in their order. A prefix may be learnt from
    /// several sessions, and by several paths.
    pub fn take_changes(&mut self) -> Vec<LearntChange> {
        self.stack.app_mut().take_changes()
    }

    /// Counters of TCP of all sessions.
    pub fn tcp(&self) -> &squall_tcp::Counters {
        self.stack.counters(self.class())
    }

    fn class(&self) -> ClassId {
        self.stack.app().class
    }

    // Outputs of sessions.

    fn work(&mut self, now: Nanos, out: &mut FrameQueue) {
        self.resume(now);
        self.run(now);
        self.transmit(now, out);
        let locals = &self.locals;
        if self.link.ask(now, |address| locals.get(&address).copied(), out) {
            self.resume(now);
            self.run(now);
        }
    }

    fn run(&mut self, now: Nanos) {
        while let Some(todo) = self.stack.app_mut().todo.pop_front() {
            match todo {
                Todo::Connect(peer) => self.connect(now, peer),
                Todo::Send(connection, message) => {
                    self.with(now, connection, |peers, socket| {
                        if let Some(of) = peers.connections.get_mut(connection) {
                            // A flow that has ended reports that by its last event.
                            _ = socket.send(of.push_message(message));
                        }
                    });
                }
                Todo::Close(connection) => self.with(now, connection, |peers, socket| {
                    socket.close();
                    peers.close(now, connection);
                }),
                Todo::Abort(connection) => self.with(now, connection, |_, socket| socket.abort()),
                Todo::Pump(peer) => {
                    if let Some(connection) = self.stack.app().established(peer) {
                        self.with(now, connection, |peers, socket| peers.pump(connection, socket));
                    }
                }
            }
        }
    }

    fn with(
        &mut self,
        now: Nanos,
        connection: u32,
        f: impl FnOnce(&mut Peers, &mut squall_tcp::Socket<'_, Tag>),
    ) {
        if let Some(flow) = self.stack.app().connections.get(connection).and_then(|it| it.flow) {
            self.stack.with(now, flow, f);
        }
    }

    /// Opens a connection of a session, or waits for the neighbor's MAC address.
    fn connect(&mut self, now: Nanos, number: u32) {
        let peer = &mut self.stack.app_mut().all[number as usize];
        let (local, remote) = (peer.local, peer.remote);
        match self.link.neighbors.find(now, remote) {
            Answer::Wait => {
                peer.is_resolving = true;
                if !self.resolving.contains(&number) {
                    self.resolving.push(number);
                }
                return;
            }
            Answer::Silent => {
                let ended = Input::Ended(Way::Active, EndReason::Unreachable);
                return self.stack.app_mut().handle(now, number, ended);
            }
            Answer::Mac(_) => {}
        }
        let connection = self.stack.app_mut().connections.add(number, Way::Active);
        self.opened += 1;
        let port = FIRST_PORT + (mix(self.seed, self.opened) % PORTS) as u16;
        let kind = FlowKind::Tcp;
        let tuple = Tuple { kind, local, local_port: port, remote, remote_port: PORT };
        let class = self.class();
        match self.stack.connect(now, class, tuple, Tag(connection)) {
            Ok(flow) => {
                let peers = self.stack.app_mut();
                if let Some(of) = peers.connections.get_mut(connection) {
                    of.flow = Some(flow);
                    peers.all[number as usize].connections[Way::Active as usize] = Some(connection);
                }
            }
            // The port is in use, or the table is full: the session tries again.
            Err(_) => {
                let peers = self.stack.app_mut();
                peers.connections.remove(connection);
                peers.handle(now, number, Input::Ended(Way::Active, EndReason::NoPort));
            }
        }
    }

    /// Opens the connections whose neighbors are known by now.
    fn resume(&mut self, now: Nanos) {
        for number in std::mem::take(&mut self.resolving) {
            let peer = &mut self.stack.app_mut().all[number as usize];
            if std::mem::take(&mut peer.is_resolving) {
                self.connect(now, number);
            }
        }
    }

    fn transmit(&mut self, now: Nanos, out: &mut FrameQueue) {
        if out.len() >= MOST_FRAMES {
            return;
        }
        let mut output = FrameOutput::new(&mut self.link, out, now, &mut self.packet);
        self.stack.transmit(now, &mut output);
        output.flush();
        self.run(now);
    }
}

#[cfg(test)]
mod tests;
