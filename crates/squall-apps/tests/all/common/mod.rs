//! Programs over two stacks and a path with delay and loss, in virtual time; records the input of
//! each side.

pub mod capture;
pub mod streams;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use squall_apps::{Apps, Counts, Listener, Program, State};
use squall_tcp::{
    Application, ClassId, Deed, Event, Events, FlowId, FlowKind, Output, Piece, Reason, Settings,
    Socket, Stack, Tunables, Tuple,
};
use squall_units::{Cut, Nanos, mix};

/// Programs, and the input of each flow, keyed by the client's port.
pub struct Recorder {
    pub apps: Apps<Counts>,
    pub received: BTreeMap<u16, Vec<u8>>,
    pub ended: Vec<(u16, Reason)>,
    /// Whether flows are recorded, or only counted.
    pub record: bool,
    /// Whether the events of a segment may be handled at once, if flows are not recorded; and how
    /// often they were.
    pub at_once: bool,
    pub handled: u64,
    /// Ports that flows have left.
    pub left: BTreeSet<u16>,
}

impl Application for Recorder {
    type State = State;

    fn event(&mut self, socket: &mut Socket<'_, State>, event: Event<'_>) {
        let tuple = socket.tuple();
        let port = tuple.local_port.max(tuple.remote_port);
        match event {
            Event::Received(octets) if self.record => {
                self.received.entry(port).or_default().extend_from_slice(octets)
            }
            Event::Gone(reason) => self.ended.push((port, reason)),
            _ => {}
        }
        self.apps.event(socket, event);
    }

    fn at_once(
        &mut self,
        state: &mut State,
        flow: FlowId,
        now: Nanos,
        events: Events<'_>,
    ) -> Option<Deed> {
        if self.record || !self.at_once {
            return None;
        }
        let deed = self.apps.at_once(state, flow, now, events)?;
        self.handled += 1;
        Some(deed)
    }

    fn fixed(&self, piece: Piece) -> Option<(&[u8], u64)> {
        // One way writes all octets by themselves.
        if self.at_once { self.apps.fixed(piece) } else { None }
    }

    fn copy(&self, state: &State, flow: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        self.apps.copy(state, flow, piece, offset, out);
    }

    fn accept(&mut self, now: Nanos, flow: &Tuple) -> Option<(ClassId, State)> {
        self.apps.accept(now, flow)
    }

    fn begins(&self, flow: &Tuple, datagram: &[u8]) -> bool {
        self.apps.begins(flow, datagram)
    }

    fn moved(&self, flow: &Tuple, datagram: &[u8]) -> Option<FlowId> {
        self.apps.moved(flow, datagram)
    }

    fn ended(&self, flow: &Tuple) -> bool {
        self.left.contains(&flow.local_port)
    }
}

#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl Output for Wire {
    fn packet(&mut self, _: ClassId, _: &Tuple, len: usize, _: Cut) -> Option<&mut [u8]> {
        self.0.push(vec![0; len]);
        self.0.last_mut().map(|packet| &mut packet[..])
    }
}

/// A client's stack, a server's stack, and the path between them.
pub struct Pair {
    pub stacks: [Stack<Recorder>; 2],
    pub now: Nanos,
    pub delay: Nanos,
    /// Packets per 1,000 that are lost, that later ones overtake, and that arrive twice.
    pub loss: u64,
    pub reordered: u64,
    pub duplicated: u64,
    /// Whether clients that move get another port, and the first port to which nothing is carried.
    pub moves: bool,
    pub unreachable: Option<u16>,
    /// All packets sent, if they are wanted: when, and by which side.
    pub trace: Option<Vec<(Nanos, usize, Vec<u8>)>>,
    seed: u64,
    sent: u64,
    way: BTreeMap<(Nanos, u64), (usize, Vec<u8>)>,
    /// The next client port.
    pub port: u16,
}

/// First client port, above all servers' ports.
const FIRST_CLIENT_PORT: u16 = 20_000;
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

impl Pair {
    /// Makes a pair; each pair of programs has its own port, from 80 on.
    pub fn new(seed: u64, programs: &[(Program, Program)]) -> Self {
        let stack = || {
            let mut apps = Apps::new(seed, Counts::default());
            for (i, (client, server)) in programs.iter().enumerate() {
                apps.add(client).expect("a right program");
                let program = apps.add(server).expect("a right program");
                let port = 80 + i as u16;
                apps.listen(Listener {
                    program,
                    class: ClassId(0),
                    addresses: SERVER..=SERVER,
                    ports: port..=port,
                    peers: None,
                });
            }
            let (received, left) = (BTreeMap::new(), BTreeSet::new());
            let (ended, at_once, handled) = (vec![], true, 0);
            let app = Recorder { apps, received, ended, record: true, at_once, handled, left };
            let mut stack = Stack::new(Settings::default(), app);
            stack.add_class(Tunables::default()).expect("right tunables");
            stack
        };
        Self {
            stacks: [stack(), stack()],
            now: Nanos(1_000_000_000),
            delay: Nanos(100_000),
            loss: 0,
            reordered: 0,
            duplicated: 0,
            moves: true,
            unreachable: None,
            trace: None,
            seed,
            sent: 0,
            way: BTreeMap::new(),
            port: FIRST_CLIENT_PORT,
        }
    }

    /// Begins a flow of pair `index`. Returns the client's port.
    pub fn begin(&mut self, index: u16, kind: FlowKind) -> u16 {
        let port = self.port;
        self.port += 1;
        let client = &mut self.stacks[0];
        let state = client.app().apps.client(
            squall_apps::ProgramId(2 * index),
            u32::from(port - FIRST_CLIENT_PORT),
            self.now,
        );
        let tuple = Tuple {
            kind,
            local: Ipv4Addr::new(10, 0, 0, 1).into(),
            local_port: port,
            remote: SERVER,
            remote_port: 80 + index,
        };
        let _: FlowId =
            client.connect(self.now, ClassId(0), tuple, state).expect("room for a flow");
        port
    }

    /// Runs until nothing is pending, or until `until`.
    pub fn run(&mut self, until: Nanos) {
        loop {
            self.send();
            let due = self.stacks.iter().filter_map(Stack::next_due).min();
            let arrives = self.way.keys().next().map(|(at, _)| *at);
            let next = match (due, arrives) {
                (Some(due), Some(arrives)) => due.min(arrives),
                (due, arrives) => match due.or(arrives) {
                    Some(next) => next,
                    None => return,
                },
            };
            if next > until {
                return;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.way.first_entry().filter(|entry| entry.key().0 <= self.now)
            {
                let (to, packet) = entry.remove();
                self.stacks[to].receive(self.now, &packet);
            }
            for stack in &mut self.stacks {
                stack.advance(self.now);
                while let Some(flow) = stack.app_mut().apps.calls_mut().take_answered() {
                    stack.with(self.now, flow, |_, socket| socket.wake_at(self.now));
                }
                while let Some((flow, _)) = stack.app_mut().apps.take_move() {
                    if self.moves {
                        let tuple = stack.with(self.now, flow, |_, socket| socket.tuple());
                        let tuple = tuple.expect("an open flow");
                        stack.app_mut().left.insert(tuple.local_port);
                        let to = Tuple { local_port: self.port, ..tuple };
                        self.port += 1;
                        stack.rebind(flow, &to).expect("a free port");
                    }
                    stack.with(self.now, flow, |app, socket| app.apps.rebound(socket, self.moves));
                }
            }
        }
    }

    fn send(&mut self) {
        for (from, stack) in self.stacks.iter_mut().enumerate() {
            let mut wire = Wire::default();
            while stack.has_output() {
                stack.transmit(self.now, &mut wire);
            }
            for packet in wire.0 {
                self.sent += 1;
                if let Some(trace) = &mut self.trace {
                    trace.push((self.now, from, packet.clone()));
                }
                let happens = |which, share| mix(self.seed ^ which, self.sent) % 1000 < share;
                // The ports are after the header of IPv4.
                let port = squall_units::be16(&packet, 22);
                let lost = from == 1 && self.unreachable.is_some_and(|first| port >= first);
                if lost || happens(0, self.loss) {
                    continue;
                }
                let late = if happens(1 << 32, self.reordered) { 3 } else { 1 };
                let at = Nanos(self.now.0 + late * self.delay.0);
                if happens(2 << 32, self.duplicated) {
                    self.way.insert((at + Nanos(1), self.sent), (1 - from, packet.clone()));
                }
                self.way.insert((at, self.sent), (1 - from, packet));
            }
        }
    }

    pub fn counts(&self, side: usize) -> &Counts {
        self.stacks[side].app().apps.observer()
    }

    /// The input of this side of the flow with this client port.
    pub fn received(&self, side: usize, port: u16) -> &[u8] {
        self.stacks[side].app().received.get(&port).map_or(&[], Vec::as_slice)
    }

    /// # Panics
    /// If a flow is left, or any state that belonged to a flow.
    pub fn assert_nothing_left(&self) {
        for stack in &self.stacks {
            assert_eq!(stack.active(), 0, "flows are left");
            assert_eq!(stack.app().apps.held(), 0, "memory of flows is left");
        }
    }
}

pub fn secs(secs: u64) -> Nanos {
    Nanos(secs * 1_000_000_000)
}
