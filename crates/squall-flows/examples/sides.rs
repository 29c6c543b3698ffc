//! Benchmark of flows without engine and ports: clients and servers exchange frames in memory, 100
//! octets in each direction of a connection. `cargo run --release -p squall-flows --example sides
//! [-- CONNECTIONS [6] [wait] [random] [idle] [http3]]`, 6: over IPv6; wait: with a TIME-WAIT of 1 s,
//! and ports in sequence, as by default; random: in random order; idle: all connections stay open
//! without data, and the memory of one is shown; http3: in place of connections, requests with
//! answers of 100 octets over 10 connections of HTTP/3 with 10 streams each, so CONNECTIONS is a
//! multiple of 100. It goes by no clock, so `valgrind --tool=callgrind` counts the same instructions
//! in each run (with http3 about the same, because keys are random), those of one end with
//! `--toggle-collect='sides::clients*'` or `'sides::servers*'`.
#![forbid(unsafe_code)]

use std::{hint::black_box, time::Instant};

use squall_apps::{Http3, Program, Tls, TlsSettings, builtin};
use squall_flows::{
    Arrival, Ends, FrameOutput, Load, Network, Order, Pool, ReceiveOffloads, Role, Side,
    SideSettings, Template, Think,
};
use squall_tcp::{FlowHint, Tunables};
use squall_units::{Cut, MacAddr, Nanos};

const BATCH: usize = 64;
const STRIDE: usize = 2112;
/// Connections of HTTP/3, and streams of each.
const HTTP3: (u16, u16) = (10, 10);

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
    let (idle, http3) = (has("idle"), has("http3"));
    let each = u64::from(HTTP3.0) * u64::from(HTTP3.1);
    assert!(!http3 || !idle && connections.is_multiple_of(each), "http3: a multiple of {each}");
    let ranges = match has("6") {
        true => ["fd00::1-fd00::3fa", "fd01::1-fd01::9"],
        false => ["16.0.0.1-16.0.3.250", "48.0.0.1-48.0.0.9"],
    };
    let users = match (idle, http3) {
        (true, _) => u32::try_from(connections).expect("fewer than 2^32"),
        (false, true) => u32::from(HTTP3.0),
        (false, false) => 64,
    };
    let in_order = has("wait") && !has("random");
    let pool = |name: &str, range: &str| Pool {
        name: name.into(),
        ranges: vec![range.parse().expect("a range")],
        ports: 1024..=65535,
        order: if in_order { Order::Sequential } else { Order::Random },
        hosts: None,
        shared: false,
    };
    let time_wait = if has("wait") { Nanos(1_000_000_000) } else { Nanos::ZERO };
    let tunables = Tunables { time_wait, ..Tunables::default() };
    let client = Program::client("get");
    let client = if idle { client.delay("10000 s") } else { client };
    let client = client.send(&"g".repeat(100)).recv(100);
    let server = Program::server("give").recv(100).send(&"x".repeat(100));
    let (client, server) = match http3 {
        true => requests(connections / u64::from(HTTP3.0) / u64::from(HTTP3.1)),
        false => (client.build().expect("a good program"), server.build().expect("a good program")),
    };
    let tls = TlsSettings { alpn: vec!["h3".into()], ..TlsSettings::default() };
    let load = Load {
        clients: vec![pool("clients", ranges[0])],
        servers: vec![pool("servers", ranges[1])],
        templates: vec![Template {
            name: "web".into(),
            pair: 0,
            clients: 0,
            servers: 0,
            port: 80,
            client,
            server,
            client_tunables: tunables.clone(),
            server_tunables: tunables,
            ends: Ends::Both,
            arrival: Arrival::Closed { users, think: Think::Fixed(Nanos::ZERO) },
            limit: http3.then_some(HTTP3.0.into()),
            start: Nanos::ZERO,
            duration: None,
            waits: false,
            shape: None,
            gone: false,
            joined: false,
            tls: http3.then(|| Tls::new(&tls).expect("good settings")),
            proxy: None,
            http: None,
            http3: http3.then(|| Http3 { streams: HTTP3.1, ..Http3::default() }),
        }],
        seed: 5,
        ..Load::default()
    };
    let side = |number, role| {
        let network = Network { mac: MacAddr([2, 0, 0, 0, number, 0]), ..Network::default() };
        let flows = users.max(if has("wait") { 1 << 22 } else { 1 << 14 });
        let origin = http3.then(Instant::now);
        Side::new(&load, &network, SideSettings { role, flows, origin, ..SideSettings::default() })
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
                start(from, &mut sides, now);
                while sides[from].has_output() {
                    frames.lens.clear();
                    send(from, &mut sides, now, &mut frames);
                    receive(1 - from, &mut sides, now, &frames, &mut near);
                }
            }
        }
        let client = || sides[0].statistics(false).templates[0].client.clone();
        assert!(!http3 || client().failed.total() == 0, "{:?}", client().failed);
        done = match (idle, http3) {
            (true, _) => sides[1].active() as u64,
            (false, true) if client().completed == u64::from(HTTP3.0) => client().http[1],
            (false, true) => 0,
            (false, false) => client().completed,
        };
    }
    println!("{done} {}", if http3 { "requests" } else { "connections" });
    if idle {
        println!("{} octets each, with both ends", (memory(&sides) - empty) / done);
    }
}

/// Programs of HTTP: clients with this number of requests on each stream.
fn requests(requests: u64) -> (Program, Program) {
    let requests = u32::try_from(requests).expect("fewer than 2^32");
    let client = builtin::HttpClient { secure: true, requests, ..builtin::HttpClient::default() };
    let server = builtin::http_server("give", 100);
    (client.program("get").expect("a good program"), server.expect("a good program"))
}

// Functions of their own for each end, so that profilers count them apart. They differ, because
// the compiler merges functions that are equal.

#[inline(never)]
fn clients<T>(step: impl FnOnce() -> T) -> T {
    black_box(0);
    step()
}

#[inline(never)]
fn servers<T>(step: impl FnOnce() -> T) -> T {
    black_box(1);
    step()
}

fn of<T>(end: usize, step: impl FnOnce() -> T) -> T {
    if end == 0 { clients(step) } else { servers(step) }
}

fn start(end: usize, sides: &mut [Side; 2], now: Nanos) {
    of(end, || {
        sides[end].advance(now);
        sides[end].begin(now, 32);
    });
}

fn send(end: usize, sides: &mut [Side; 2], now: Nanos, frames: &mut Frames) {
    of(end, || sides[end].transmit(now, frames));
}

fn receive(
    end: usize,
    sides: &mut [Side; 2],
    now: Nanos,
    frames: &Frames,
    near: &mut [FlowHint; BATCH],
) {
    let all = frames.lens.iter().enumerate();
    let all = all.map(|(i, len)| &frames.octets[i * STRIDE..][..*len]);
    of(end, || {
        sides[end].prefetch(all.clone(), near);
        for (frame, near) in all.zip(near) {
            sides[end].receive(now, frame, ReceiveOffloads::default(), *near);
        }
    });
}
