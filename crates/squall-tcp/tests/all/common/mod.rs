//! Two stacks, a path that loses, duplicates, delays and reorders, and a request-response
//! application.

use std::{collections::BTreeMap, net::IpAddr};

use squall_tcp::{
    Application, ClassId, Event, FlowHint, FlowKind, Output, Piece, Reason, Settings, Socket,
    Stack, StateParts, Tunables, Tuple,
};
use squall_units::{Cut, Nanos};
use squall_wire::checksum;

/// How much each side sends; each octet is determined by its offset.
#[derive(Clone, Copy, Default)]
pub struct Talk {
    pub sends: u32,
    pub expects: u32,
    pub received: u32,
    pub server: bool,
    /// Closes as soon as it has sent everything.
    pub half: bool,
    /// Never closes.
    pub keeps: bool,
}

/// The octet at `at` of the client's (or the server's) stream.
pub fn octet(server: bool, at: u32) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ if server { 0x5a } else { 0 }
}

#[derive(Default)]
pub struct App {
    pub class: Option<ClassId>,
    pub server: Talk,
    /// Size of the pieces passed to `send`.
    pub chunk: u32,
    pub ended: Vec<(Reason, Talk)>,
    pub bad_octets: u64,
    pub events: Vec<String>,
    pub log: bool,
    /// The reader pauses after this number of octets, for this time.
    pub pause: Option<(u32, Nanos)>,
}

impl App {
    fn sends(socket: &mut Socket<'_, Talk>, chunk: u32) {
        let all = socket.state().sends;
        let mut at = 0;
        while at < all {
            let len = (all - at).min(chunk);
            socket.send(Piece { message: at, nth: 0, len }).unwrap();
            at += len;
        }
    }
}

impl Application for App {
    type State = Talk;

    fn event(&mut self, socket: &mut Socket<'_, Talk>, event: Event<'_>) {
        if self.log {
            self.events.push(format!("{:?} {event:?}", socket.now()));
        }
        let chunk = self.chunk;
        match event {
            Event::Established => {
                if !socket.state().server {
                    Self::sends(socket, chunk);
                    if socket.state().expects == 0 && !socket.state().keeps || socket.state().half {
                        socket.close();
                    }
                }
            }
            Event::Received(octets) => {
                let talk = socket.state();
                let from_server = !talk.server;
                for (i, o) in octets.iter().enumerate() {
                    self.bad_octets +=
                        u64::from(*o != octet(from_server, talk.received + i as u32));
                }
                let before = talk.received;
                talk.received += octets.len() as u32;
                let (received, expects, server) = (talk.received, talk.expects, talk.server);
                if let Some((at, wait)) = self.pause
                    && server
                    && before < at
                    && received >= at
                {
                    socket.pause();
                    let now = socket.now();
                    socket.wake_at(now + wait);
                }
                if received == expects {
                    if server {
                        Self::sends(socket, chunk);
                    }
                    if !socket.state().keeps {
                        socket.close();
                    }
                }
            }
            Event::Timer => socket.resume(),
            Event::PeerClosed => socket.close(),
            Event::Acknowledged { .. } | Event::Settle => (),
            Event::Gone(reason) => {
                let talk = *socket.state();
                self.ended.push((reason, talk));
            }
        }
    }

    fn copy(&self, state: &Talk, _: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        for (i, o) in out.iter_mut().enumerate() {
            *o = octet(state.server, piece.message + offset + i as u32);
        }
    }

    fn accept(&mut self, _: Nanos, _: &Tuple) -> Option<(ClassId, Talk)> {
        self.class.map(|class| (class, self.server))
    }

    fn divide(
        &Talk { sends, expects, received, server, half, keeps }: &Talk,
    ) -> Option<StateParts> {
        let flags = [server, half, keeps].map(u32::from);
        Some(StateParts { own: [sends, expects, received], common: flags })
    }

    fn join(StateParts { own, common }: &StateParts) -> Talk {
        let [sends, expects, received] = *own;
        let [server, half, keeps] = common.map(|flag| flag == 1);
        Talk { sends, expects, received, server, half, keeps }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Fault {
    pub loss: f64,
    pub duplicate: f64,
    pub reorder: f64,
    pub delay: Nanos,
    pub corrupt: f64,
    /// Octets per second of IP packets to the server, and octets that wait for them at most; 0: no
    /// limit.
    pub rate: u64,
    pub queue: u64,
}

#[derive(Clone)]
pub struct Plan {
    pub request: u32,
    pub response: u32,
    pub flows: u32,
    pub chunk: u32,
    pub tunables: Tunables,
    pub fault: Fault,
    pub v6: bool,
    pub seed: u64,
    pub gso_max_size: u16,
    pub pause: Option<(u32, Nanos)>,
    pub half_close: bool,
    pub keeps: bool,
    /// Longer packets are dropped, and their sender gets an ICMP error.
    pub mtu: Option<usize>,
    pub record: bool,
    /// Whether received packets are prefetched.
    pub prefetch: bool,
    pub records: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            request: 100,
            response: 100,
            flows: 1,
            chunk: u32::MAX,
            tunables: Tunables::default(),
            fault: Fault { delay: Nanos(100_000), ..Fault::default() },
            v6: false,
            seed: 1,
            gso_max_size: 0,
            pause: None,
            half_close: false,
            keeps: false,
            mtu: None,
            record: false,
            prefetch: false,
            records: Settings::default().records,
        }
    }
}

/// Packets that a stack has sent.
#[derive(Default)]
pub struct Wire {
    pub packets: Vec<(Vec<u8>, Cut)>,
}

impl Output for Wire {
    fn packet(&mut self, _: ClassId, _: &Tuple, len: usize, cut: Cut) -> Option<&mut [u8]> {
        self.packets.push((vec![0xaa; len], cut));
        self.packets.last_mut().map(|p| &mut p.0[..])
    }
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }
}

/// The ICMP error from a router whose next link has an MTU of `mtu` octets.
fn too_big(packet: &[u8], mtu: usize) -> Vec<u8> {
    let quote = &packet[..packet.len().min(100)];
    let mtu = (mtu as u32).to_be_bytes();
    let sum = |parts: &[&[u8]]| !checksum::fold(parts.iter().map(|p| checksum::sum(p)).sum());
    let mut message =
        if packet[0] >> 4 == 4 { vec![3, 4, 0, 0, 0, 0, mtu[2], mtu[3]] } else { vec![2, 0, 0, 0] };
    if packet[0] >> 4 == 6 {
        message.extend(mtu);
    }
    message.extend(quote);
    let len = message.len() as u16;
    if packet[0] >> 4 == 4 {
        let check = sum(&[&message]).to_be_bytes();
        message[2..4].copy_from_slice(&check);
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0];
        ip[2..4].copy_from_slice(&(len + 20).to_be_bytes());
        ip.extend([10, 0, 0, 99]);
        ip.extend(&packet[12..16]);
        let check = sum(&[&ip]).to_be_bytes();
        ip[10..12].copy_from_slice(&check);
        [ip, message].concat()
    } else {
        let mut ip = vec![0x60, 0, 0, 0, 0, 0, 58, 64];
        ip[4..6].copy_from_slice(&len.to_be_bytes());
        ip.extend([0xfd; 16]);
        ip.extend(&packet[8..24]);
        let check = sum(&[&ip[8..40], &[0, 58], &len.to_be_bytes(), &message]).to_be_bytes();
        message[2..4].copy_from_slice(&check);
        [ip, message].concat()
    }
}

pub struct Pair {
    pub client: Stack<App>,
    pub server: Stack<App>,
    pub class: ClassId,
    pub now: Nanos,
    pub plan: Plan,
    random: Random,
    /// By arrival time: whether it goes to the server, the packet, and whether it is a GSO packet.
    way: BTreeMap<(Nanos, u64), (bool, Vec<u8>, bool)>,
    count: u64,
    pub sent: u64,
    pub recorded: Vec<(Nanos, Vec<u8>)>,
    /// Packets after which the client's acknowledgment was overdue.
    pub pressed: u64,
    /// When the bottleneck has sent its queue, and the packets that did not fit.
    pub free_at: Nanos,
    pub overflows: u64,
}

pub fn tuple(v6: bool, port: u16) -> Tuple {
    let address = |n: u8| -> IpAddr {
        if v6 {
            format!("2001:db8::{n}").parse().unwrap()
        } else {
            format!("10.0.0.{n}").parse().unwrap()
        }
    };
    Tuple {
        kind: FlowKind::Tcp,
        local: address(1),
        local_port: port,
        remote: address(2),
        remote_port: 80,
    }
}

impl Pair {
    pub fn new(plan: Plan) -> Self {
        let settings = |key| Settings {
            flows: 1000,
            records: plan.records,
            key: [plan.seed, key],
            gso_max_size: plan.gso_max_size,
            ..Settings::default()
        };
        let app = |class, sends, expects| App {
            class,
            server: Talk { sends, expects, server: true, keeps: plan.keeps, ..Talk::default() },
            chunk: plan.chunk,
            pause: plan.pause,
            ..App::default()
        };
        let mut client = Stack::new(settings(1), app(None, 0, 0));
        let class = client.add_class(plan.tunables.clone()).unwrap();
        let mut server = Stack::new(settings(2), app(Some(class), plan.response, plan.request));
        server.add_class(plan.tunables.clone()).unwrap();
        let now = Nanos(5_000_000_000);
        let talk = Talk {
            sends: plan.request,
            expects: plan.response,
            half: plan.half_close,
            keeps: plan.keeps,
            ..Talk::default()
        };
        for i in 0..plan.flows {
            client.connect(now, class, tuple(plan.v6, 10_000 + i as u16), talk).unwrap();
        }
        let random = Random(plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self {
            client,
            server,
            class,
            now,
            plan,
            random,
            way: BTreeMap::new(),
            count: 0,
            sent: 0,
            recorded: Vec::new(),
            pressed: 0,
            free_at: Nanos::ZERO,
            overflows: 0,
        }
    }

    fn carry(&mut self, to_server: bool) {
        let mut wire = Wire::default();
        let stack = if to_server { &mut self.client } else { &mut self.server };
        stack.transmit(self.now, &mut wire);
        for (mut packet, cut) in wire.packets {
            self.sent += 1;
            if self.plan.record {
                self.recorded.push((self.now, packet.clone()));
            }
            if self.plan.mtu.is_some_and(|mtu| packet.len() > mtu) {
                self.count += 1;
                let error = too_big(&packet, self.plan.mtu.unwrap_or_default());
                self.way.insert(
                    (self.now + self.plan.fault.delay, self.count),
                    (!to_server, error, false),
                );
                continue;
            }
            let fault = self.plan.fault;
            if self.random.chance(fault.loss) {
                continue;
            }
            if self.random.chance(fault.corrupt) {
                let at = self.random.next() as usize % packet.len();
                packet[at] ^= 1 << (self.random.next() % 8);
            }
            let mut wait = Nanos::ZERO;
            if to_server && fault.rate > 0 {
                let time = |octets: u64| Nanos(octets * 1_000_000_000 / fault.rate);
                wait = self.free_at.saturating_sub(self.now);
                if wait > time(fault.queue) {
                    self.overflows += 1;
                    continue;
                }
                wait = wait + time(packet.len() as u64);
                self.free_at = self.now + wait;
            }
            let copies = 1 + u32::from(self.random.chance(fault.duplicate));
            for _ in 0..copies {
                let late = if self.random.chance(fault.reorder) {
                    self.random.next() % (4 * fault.delay.0.max(1))
                } else {
                    0
                };
                self.count += 1;
                let at = Nanos(self.now.0 + wait.0 + fault.delay.0 + late);
                self.way.insert((at, self.count), (to_server, packet.clone(), !cut.is_whole()));
            }
        }
    }

    /// Processes the next point in time. Returns whether there is another.
    pub fn step(&mut self) -> bool {
        self.carry(true);
        self.carry(false);
        let due =
            [self.client.next_due(), self.server.next_due(), self.way.keys().next().map(|k| k.0)];
        let Some(next) = due.into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.way.first_entry()
            && entry.key().0 <= self.now
        {
            let (to_server, packet, verified) = entry.remove();
            let stack = if to_server { &mut self.server } else { &mut self.client };
            if verified {
                stack.receive_verified(self.now, &packet);
            } else {
                let mut near = [FlowHint::default()];
                if self.plan.prefetch {
                    stack.prefetch(std::iter::once(&packet[..]), &mut near);
                }
                stack.receive_prefetched(self.now, &packet, near[0]);
            }
            self.pressed += u64::from(self.client.is_ack_overdue());
        }
        self.client.advance(self.now);
        self.server.advance(self.now);
        true
    }

    /// Runs until nothing is pending.
    pub fn run(&mut self) {
        let end = self.now + Nanos(3_600 * 1_000_000_000);
        let mut still = 0;
        let mut last = self.now;
        while self.step() {
            assert!(self.now < end, "an hour, and it is not over");
            still = if self.now == last { still + 1 } else { 0 };
            last = self.now;
            assert!(still < 10_000, "time stands still");
        }
    }

    /// Checks that all data arrived and nothing is left.
    pub fn check(&mut self) {
        let flows = self.plan.flows as usize;
        for (stack, expects) in
            [(&self.client, self.plan.response), (&self.server, self.plan.request)]
        {
            assert_eq!((stack.active(), stack.time_wait()), (0, 0));
            assert_eq!(stack.app().bad_octets, 0);
            assert_eq!(stack.app().ended.len(), flows, "{:?}", stack.counters(self.class));
            for (reason, talk) in &stack.app().ended {
                assert_eq!(
                    (*reason, talk.received),
                    (Reason::Closed, expects),
                    "{:?}",
                    stack.counters(self.class)
                );
            }
        }
    }
}
