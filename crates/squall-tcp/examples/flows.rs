//! Cost of a connection: two stacks exchange packets in memory; each connection is a request and a
//! response.
//! `cargo run --release -p squall-tcp --example flows [-- ACTIVE... [--octets N] [--connections N]
//! [--v6] [--gso N]]`
//!
//! `--once` runs without a clock, for `valgrind --tool=callgrind`.
//!
//! For each number of open connections it prints cycles (of the time stamp counter, by CPU time)
//! per connection and side, which include both sides' work and the exchange, and memory per flow.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use squall_tcp::{
    Application, ClassId, ConnectError, Event, FlowHint, FlowKind, Output, Piece, Settings, Socket,
    Stack, Tunables, Tuple,
};
use squall_units::{Cut, Nanos};

/// How long a connection stays open, in stack time.
const HOLD: Nanos = Nanos(1_000_000_000);
/// Interval between two batches of new connections.
const STEP: Nanos = Nanos(100_000);

#[derive(Clone, Copy, Default)]
struct Talk {
    received: u32,
    server: bool,
    /// Pads the state to the allowed maximum.
    _rest: [u32; 6],
}

struct Web {
    class: Option<ClassId>,
    response: u32,
    hold: Nanos,
    done: u64,
    wrong: u64,
}

const REQUEST: u32 = 100;

impl Application for Web {
    type State = Talk;

    fn event(&mut self, socket: &mut Socket<'_, Talk>, event: Event<'_>) {
        match event {
            Event::Established if !socket.state().server => {
                socket
                    .send(Piece { message: 0, nth: 0, len: REQUEST })
                    .expect("a new flow takes it");
            }
            Event::Received(octets) => {
                let talk = socket.state();
                talk.received += octets.len() as u32;
                let (received, server) = (talk.received, talk.server);
                if server && received == REQUEST {
                    socket
                        .send(Piece { message: 1, nth: 0, len: self.response })
                        .expect("it is not closed");
                } else if !server && received == self.response {
                    if self.hold == Nanos::ZERO {
                        socket.close();
                    } else {
                        let now = socket.now();
                        socket.wake_at(now + self.hold);
                    }
                }
            }
            Event::Timer | Event::PeerClosed => socket.close(),
            Event::Gone(reason) => {
                self.done += 1;
                self.wrong += u64::from(reason != squall_tcp::Reason::Closed);
            }
            _ => (),
        }
    }

    fn copy(&self, _: &Talk, _: &Tuple, _: Piece, _: u32, out: &mut [u8]) {
        out.fill(b'x');
    }

    fn accept(&mut self, _: Nanos, _: &Tuple) -> Option<(ClassId, Talk)> {
        self.class.map(|class| (class, Talk { server: true, ..Talk::default() }))
    }
}

/// Packets in transit, up to the number that a port lends at once.
struct Slots {
    octets: Vec<u8>,
    stride: usize,
    lens: Vec<(usize, bool)>,
}

const BATCH: usize = 64;

impl Slots {
    fn new(stride: usize) -> Self {
        Self { octets: vec![0; stride * BATCH], stride, lens: Vec::with_capacity(BATCH) }
    }

    fn packets(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.lens
            .iter()
            .enumerate()
            .map(|(i, (len, cut))| (&self.octets[i * self.stride..][..*len], *cut))
    }
}

impl Output for Slots {
    fn packet(&mut self, _: ClassId, _: &Tuple, len: usize, cut: Cut) -> Option<&mut [u8]> {
        if self.lens.len() == BATCH {
            return None;
        }
        self.lens.push((len, !cut.is_whole()));
        Some(&mut self.octets[(self.lens.len() - 1) * self.stride..][..len])
    }
}

struct Bench {
    client: Stack<Web>,
    server: Stack<Web>,
    class: ClassId,
    slots: Slots,
    now: Nanos,
    next: u64,
    v6: bool,
}

impl Bench {
    fn new(active: u32, response: u32, v6: bool, gso_max_size: u16, hold: Nanos) -> Self {
        let tunables = Tunables { time_wait: Nanos::ZERO, ..Tunables::default() };
        let settings = |n| Settings {
            flows: active + active / 4 + 1000,
            key: [n, 0x1234_5678_9abc_def0],
            gso_max_size,
            ..Settings::default()
        };
        let web = |class| Web { class, response, hold, done: 0, wrong: 0 };
        let mut client = Stack::new(settings(1), web(None));
        let class = client.add_class(tunables.clone()).expect("they are good");
        let mut server = Stack::new(settings(2), web(Some(class)));
        server.add_class(tunables).expect("they are good");
        // As in ports: an odd number of cache lines, because strides that are multiples of 1 KiB
        // collide in the cache.
        let stride = if gso_max_size > 0 { 65_600 } else { 2112 };
        Self { client, server, class, slots: Slots::new(stride), now: Nanos(1 << 40), next: 0, v6 }
    }

    fn connect(&mut self) {
        let n = self.next;
        self.next += 1;
        let (host, port) = ((n / 60_000) as u32, (n % 60_000) as u16 + 1024);
        let address = |net: u32| -> std::net::IpAddr {
            if self.v6 {
                std::net::Ipv6Addr::from(u128::from(net) << 96 | u128::from(host)).into()
            } else {
                std::net::Ipv4Addr::from(net + host % 65_536).into()
            }
        };
        let tuple = Tuple {
            kind: FlowKind::Tcp,
            local: address(0x1000_0000),
            local_port: port,
            remote: address(0x3000_0000),
            remote_port: 80,
        };
        match self.client.connect(self.now, self.class, tuple, Talk::default()) {
            Ok(_) | Err(ConnectError::InUse) => (),
            Err(error) => panic!("{error}"),
        }
    }

    /// Exchanges packets until there are none.
    fn exchange(&mut self) {
        loop {
            self.slots.lens.clear();
            let there = self.client.transmit(self.now, &mut self.slots);
            deliver(&mut self.server, self.now, &self.slots);
            self.slots.lens.clear();
            let back = self.server.transmit(self.now, &mut self.slots);
            deliver(&mut self.client, self.now, &self.slots);
            if there + back == 0 {
                return;
            }
        }
    }

    /// Runs until `connections` more connections are complete.
    fn run(&mut self, each: u32, connections: u64) {
        let until = self.client.app().done + connections;
        while self.client.app().done < until {
            for i in 0..each {
                self.connect();
                if i % BATCH as u32 == BATCH as u32 - 1 {
                    self.exchange();
                }
            }
            self.exchange();
            self.now = self.now + STEP;
            self.client.advance(self.now);
            self.server.advance(self.now);
        }
    }
}

fn deliver(to: &mut Stack<Web>, now: Nanos, slots: &Slots) {
    let mut near = [FlowHint::default(); BATCH];
    to.prefetch(slots.packets().map(|(packet, _)| packet), &mut near);
    for ((packet, cut), near) in slots.packets().zip(near) {
        if cut {
            to.receive_verified(now, packet)
        } else {
            to.receive_prefetched(now, packet, near)
        }
    }
}

fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Frequency of the time stamp counter; 0 without one.
fn counter_ghz() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (begun, first) = (Instant::now(), safe_arch::read_timestamp_counter());
        std::thread::sleep(std::time::Duration::from_millis(100));
        let ticks = safe_arch::read_timestamp_counter() - first;
        ticks as f64 / begun.elapsed().as_nanos() as f64
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = Instant::now();
        0.0
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str, default: u64| {
        args.iter()
            .position(|a| a == name)
            .map_or(default, |i| args[i + 1].parse().expect("a number"))
    };
    let response = value("--octets", 100) as u32;
    let gso_max_size = value("--gso", 0) as u16;
    let v6 = args.iter().any(|a| a == "--v6");
    let no_hold = args.iter().any(|a| a == "--no-hold");
    let mut counts: Vec<u32> = args.iter().map_while(|a| a.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![10_000, 1_000_000];
    }
    let once = args.iter().any(|a| a == "--once");
    let ghz = if once { 0.0 } else { counter_ghz() };
    for active in counts {
        let hold = if no_hold { Nanos::ZERO } else { HOLD };
        let mut bench = Bench::new(active, response, v6, gso_max_size, hold);
        let each = if no_hold {
            BATCH as u32 / 2
        } else {
            ((u64::from(active) * STEP.0 / HOLD.0) as u32).max(1)
        };
        let connections = value("--connections", u64::from(active).max(300_000));
        if !no_hold {
            bench.run(each, u64::from(active));
        }
        if once {
            bench.run(each, connections);
            continue;
        }
        let mut cycles = Vec::new();
        for _ in 0..value("--runs", 5) {
            let before = cpu_ns();
            bench.run(each, connections);
            cycles.push((cpu_ns() - before) as f64 * ghz / connections as f64 / 2.0);
        }
        cycles.sort_by(f64::total_cmp);
        let median = cycles[cycles.len() / 2];
        let open = bench.client.active();
        let memory = bench.client.memory() as f64 / open.max(1) as f64;
        let segments = bench.client.counters(bench.class).segments_out
            + bench.server.counters(bench.class).segments_out;
        println!(
            "{active:8} active ({open} at the end): {median:6.0} cycles a connection and side \
             ({:.0} to {:.0}), {:.2} segments, {memory:.0} octets a flow, {} ended otherwise",
            cycles[0],
            cycles[cycles.len() - 1],
            segments as f64 / bench.client.app().done as f64,
            bench.client.app().wrong + bench.server.app().wrong,
        );
    }
}
