//! Benchmark of flows without engine and ports: clients and servers exchange frames in memory, 100
//! octets in each direction of a connection. `cargo run --release -p squall-flows --example sides
//! [-- CONNECTIONS [6] [idle]]`, 6: over IPv6; idle: all connections stay open without data, and
//! the memory of one is shown. It reads no clock, so `valgrind --tool=callgrind` counts the same
//! instructions in each run.
#![forbid(unsafe_code)]

use squall_apps::Program;
use squall_flows::{
    Arrival, Ends, FrameOutput, Load, Network, Order, Pool, ReceiveOffloads, Role, Side,
    SideSettings, Template, Think,
};
use squall_tcp::{FlowHint, Tunables};
use squall_units::{Cut, MacAddr, Nanos};

const BATCH: usize = 64;
const STRIDE: usize = 2112;

struct Frames {
    octets: Vec<u8>,
    lens: Vec<usize>,
}

impl FrameOutput for Frames {
    #[inline]
    fn frame(&mut self, len: usize, _: Cut) -> Option<&mut [u8]> {
        let at = self.lens.len();
        if at == BATCH {
            return None;
        }
        self.lens.push(len);
        Some(&mut self.octets[at * STRIDE..][..len])
    }

    fn longest(&self) -> usize {
        STRIDE
    }
}

fn main() {
    let connections: u64 =
        std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number"));
    let has = |option: &str| std::env::args().skip(2).any(|argument| argument == option);
    let idle = has("idle");
    let ranges = match has("6") {
        true => ["fd00::1-fd00::3fa", "fd01::1-fd01::9"],
        false => ["16.0.0.1-16.0.3.250", "48.0.0.1-48.0.0.9"],
    };
    let users = if idle { u32::try_from(connections).expect("fewer than 2^32") } else { 64 };
    let pool = |name: &str, range: &str| Pool {
        name: name.into(),
        ranges: vec![range.parse().expect("a range")],
        ports: 1024..=65535,
        order: Order::Random,
        hosts: None,
        shared: false,
    };
    let tunables = Tunables { time_wait: Nanos::ZERO, ..Tunables::default() };
    let client = Program::client("get");
    let client = if idle { client.delay("10000 s") } else { client };
    let client = client.send(&"g".repeat(100)).recv(100);
    let server = Program::server("give").recv(100).send(&"x".repeat(100));
    let load = Load {
        clients: vec![pool("clients", ranges[0])],
        servers: vec![pool("servers", ranges[1])],
        templates: vec![Template {
            name: "web".into(),
            pair: 0,
            clients: 0,
            servers: 0,
            port: 80,
            client: client.build().expect("a good program"),
            server: server.build().expect("a good program"),
            client_tunables: tunables.clone(),
            server_tunables: tunables,
            ends: Ends::Both,
            arrival: Arrival::Closed { users, think: Think::Fixed(Nanos::ZERO) },
            limit: None,
            start: Nanos::ZERO,
            duration: None,
            waits: false,
            shape: None,
            gone: false,
            joined: false,
            tls: None,
            proxy: None,
            http: None,
            http3: None,
        }],
        seed: 5,
        ..Load::default()
    };
    let side = |number, role| {
        let network = Network { mac: MacAddr([2, 0, 0, 0, number, 0]), ..Network::default() };
        let flows = users.max(1 << 14);
        Side::new(&load, &network, SideSettings { role, flows, ..SideSettings::default() })
            .expect("a good load")
    };
    let mut sides = [side(0, Role::Clients), side(1, Role::Servers)];
    let memory = |sides: &[Side; 2]| sides.iter().map(Side::memory).sum::<usize>() as u64;
    let empty = memory(&sides);
    let mut frames = Frames { octets: vec![0; BATCH * STRIDE], lens: Vec::with_capacity(BATCH) };
    let mut near = [FlowHint::default(); BATCH];
    let (mut now, mut done) = (Nanos(1 << 30), 0);
    while done < connections {
        for _ in 0..100 {
            now = now + Nanos(20_000);
            for from in 0..2 {
                sides[from].advance(now);
                sides[from].begin(now, 32);
                while sides[from].has_output() {
                    frames.lens.clear();
                    sides[from].transmit(now, &mut frames);
                    let all = frames
                        .lens
                        .iter()
                        .enumerate()
                        .map(|(i, len)| &frames.octets[i * STRIDE..][..*len]);
                    sides[1 - from].prefetch(all.clone(), &mut near);
                    for (frame, near) in all.zip(near) {
                        sides[1 - from].receive(now, frame, ReceiveOffloads::default(), near);
                    }
                }
            }
        }
        done = match idle {
            true => sides[1].active() as u64,
            false => sides[0].statistics(false).templates[0].client.completed,
        };
    }
    println!("{done} connections");
    if idle {
        println!("{} octets each, with both ends", (memory(&sides) - empty) / done);
    }
}
