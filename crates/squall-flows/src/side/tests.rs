use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use squall_apps::Program;
use squall_program::Shape;
use squall_units::{MacAddr, be16, mix};

use super::*;
use crate::{
    Arrival, Conversation, Cps, Failure, FlowState, Ignored, InterfaceOf, Limits, NextHop, Order,
    Pool as PoolOf, Services, Spacing, Target, Template, Think, Wrap, tests::template,
};

const MS: u64 = 1_000_000;

/// Frames in one direction, and the impairments of the path.
struct Wire {
    frames: VecDeque<(Nanos, Vec<u8>)>,
    /// Loss probability in thousandths.
    loss: u64,
    duplicates: u64,
    reordered: u64,
    delay: Nanos,
    drawn: u64,
    seed: u64,
    now: Nanos,
    /// Number of frames that fit before it is emptied.
    room: usize,
}

impl Wire {
    fn new(seed: u64) -> Self {
        Self {
            frames: VecDeque::new(),
            loss: 0,
            duplicates: 0,
            reordered: 0,
            delay: Nanos(10_000),
            drawn: 0,
            seed,
            now: Nanos(0),
            room: 1 << 20,
        }
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        self.drawn += 1;
        mix(self.seed, self.drawn) % 1000 < thousandths
    }

    /// Frames that have arrived.
    fn arrived(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let mut arrived = Vec::new();
        while self.frames.front().is_some_and(|(at, _)| *at <= now) {
            let (at, frame) = self.frames.pop_front().expect("it is there");
            if self.happens(self.loss) {
                continue;
            }
            if self.happens(self.reordered) && !self.frames.is_empty() {
                self.frames.insert(1, (at, frame));
                continue;
            }
            if self.happens(self.duplicates) {
                arrived.push(frame.clone());
            }
            arrived.push(frame);
        }
        arrived
    }
}

impl FrameOutput for Wire {
    fn frame(&mut self, len: usize, _: Cut) -> Option<&mut [u8]> {
        if self.frames.len() >= self.room {
            return None;
        }
        self.frames.push_back((self.now + self.delay, vec![0; len]));
        self.frames.back_mut().map(|(_, frame)| &mut frame[..])
    }

    fn longest(&self) -> usize {
        1514
    }
}

/// Clients, servers, and the wires between them.
struct Lab {
    sides: [Side; 2],
    wires: [Wire; 2],
    now: Nanos,
}

fn network(mac: u8) -> Network {
    Network { mac: squall_units::MacAddr([2, 0, 0, 0, mac, 0]), ..Network::default() }
}

fn pool(range: &str, ports: std::ops::RangeInclusive<u16>) -> PoolOf {
    PoolOf {
        name: range.into(),
        ranges: vec![range.parse().expect(range)],
        ports,
        order: Order::Sequential,
        hosts: None,
        shared: false,
    }
}

fn load(arrival: Arrival) -> Load {
    Load {
        clients: vec![pool("16.0.0.1-16.0.0.100", 1024..=65535)],
        servers: vec![pool("48.0.0.1-48.0.0.9", 1..=1)],
        templates: vec![template("web", arrival)],
        seed: 5,
        ..Load::default()
    }
}

fn open(cps: u64) -> Arrival {
    Arrival::Open { cps: Cps::per_second(cps), spacing: Spacing::Constant }
}

impl Lab {
    fn new(load: &Load) -> Self {
        Self::with(load, network(1), network(2), (0, 1))
    }

    fn with(load: &Load, clients: Network, servers: Network, worker: (u32, u32)) -> Self {
        Self::of_part(load, clients, servers, (Division::WHOLE, worker))
    }

    fn of_part(
        load: &Load,
        clients: Network,
        servers: Network,
        (part, worker): (Division, (u32, u32)),
    ) -> Self {
        let side = |network: &Network, role| {
            let settings = SideSettings {
                role,
                part,
                worker,
                start: Nanos(MS),
                origin: Some(Instant::now()),
                flows: 1 << 17,
                ..SideSettings::default()
            };
            Side::new(load, network, settings).expect("a good load")
        };
        Self {
            sides: [side(&clients, Role::Clients), side(&servers, Role::Servers)],
            wires: [Wire::new(1), Wire::new(2)],
            now: Nanos(0),
        }
    }

    /// Runs until `until`, or until the clients are done.
    fn run(&mut self, until: Nanos) {
        while self.now < until && !self.sides[0].is_over() {
            self.turn();
            if self.sides[0].is_over() {
                break;
            }
            let wires = self.wires.iter().filter_map(|wire| Some(wire.frames.front()?.0));
            let next = self.sides.iter().filter_map(Side::next_due).chain(wires).min();
            self.now = next.unwrap_or(until).max(self.now + Nanos(1000)).min(until);
        }
    }

    fn turn(&mut self) {
        let now = self.now;
        for i in 0..2 {
            for frame in self.wires[1 - i].arrived(now) {
                let claims = self.sides[i].claims(&frame);
                let taken = self.sides[i].receive(
                    now,
                    &frame,
                    ReceiveOffloads::default(),
                    FlowHint::default(),
                );
                assert_eq!(claims, taken, "what is held for later is what is taken at once");
            }
            self.sides[i].advance(now);
            self.sides[i].begin(now, 64);
            self.wires[i].now = now;
            self.sides[i].transmit(now, &mut self.wires[i]);
        }
    }

    fn end(mut self) -> Statistics {
        let deadline = self.now + Nanos(100_000 * MS);
        self.sides[0].stop(self.now);
        self.run(deadline);
        // Frames in flight arrive.
        while self.wires.iter().any(|wire| !wire.frames.is_empty()) {
            self.turn();
            self.now = self.now + Nanos(MS);
        }
        self.sides[1].stop(self.now);
        while !self.sides[1].is_over() && self.now < deadline {
            self.turn();
            self.now = self.now + Nanos(MS);
        }
        let [clients, servers] = &self.sides;
        assert!(
            clients.is_over() && servers.is_over(),
            "clients {} servers {}",
            clients.active(),
            servers.active()
        );
        let mut all = clients.statistics(true);
        all.merge(&servers.statistics(true));
        let total = all.total();
        for side in [&total.client, &total.server] {
            assert_eq!(side.active, 0, "a flow is stuck: {side:?}");
            assert_eq!(
                side.attempted,
                side.completed + side.failed.total(),
                "a flow is not explained: {side:?}"
            );
        }
        all
    }
}

#[test]
fn nothing_is_overdue_after_an_idle_period() {
    let mut load = load(open(10));
    load.templates[0].start = Nanos(2_000_000 * MS);
    let mut lab = Lab::new(&load);
    // The stack's wheel has not moved when the first flow begins.
    let mut opened = false;
    for start in [0, 2_000_001 * MS] {
        for turn in 0..10 {
            lab.now = Nanos(start + turn * 50_000);
            lab.turn();
            opened |= lab.sides[0].stack.next_due().is_some();
            let due = lab.sides[0].next_due().unwrap_or(lab.now);
            assert!(due >= lab.now, "{due:?} is before {:?}", lab.now);
        }
    }
    assert!(opened, "the first flow has a timer");
}

#[test]
fn ten_thousand_flows_begin_and_end() {
    let mut of = load(open(10_000));
    of.limits = Limits { flows: Some(10_000), ..Limits::default() };
    let mut lab = Lab::new(&of);
    lab.run(Nanos(10_000 * MS));
    let all = lab.end();
    let of = all.total();
    assert_eq!((of.client.completed, of.server.completed), (10_000, 10_000), "{all:?}");
    assert_eq!(
        (of.client.established, of.client.received_octets, of.server.received_octets),
        (10_000, 40_000, 40_000)
    );
    assert_eq!((of.client.setup.count(), of.client.corrected.count()), (10_000, 10_000));
    // A round trip.
    assert!(
        (20_000..60_000).contains(&of.client.setup.quantile(0.5)),
        "{}",
        of.client.setup.quantile(0.5)
    );
    assert_eq!((of.client.not_begun.total(), all.link.unresolved, all.link.not_ours), (0, 0, 0));
    assert_eq!(of.client.trex(false)["tcps_connects"], 10_000);
}

#[test]
fn loss_reordering_and_duplicates_lose_no_flow_and_no_octet() {
    let mut of = load(open(1000));
    let body = "x".repeat(20_000);
    of.templates[0].client = Program::client("get").send("GET").recv(20_000).build().unwrap();
    of.templates[0].server = Program::server("give").recv(3).send(&body).build().unwrap();
    of.limits = Limits { flows: Some(500), ..Limits::default() };
    of.drain = Nanos(60_000 * MS);
    let mut lab = Lab::new(&of);
    for wire in &mut lab.wires {
        (wire.loss, wire.duplicates, wire.reordered, wire.delay) = (20, 20, 20, Nanos(5 * MS));
    }
    lab.run(Nanos(80_000 * MS));
    let of = lab.end().total();
    assert_eq!(of.client.completed, 500, "{:?}", of.client);
    assert_eq!(of.client.received_octets, 500 * 20_000);
    assert!(of.server.tcp.retransmits() > 0);
}

/// Each flow's first segment: departure time, addresses and ports. The server's port identifies the
/// template.
fn flows(workers: u32, order: Order, arrivals: [Arrival; 2]) -> Vec<(Nanos, Vec<u8>)> {
    flows_of_parts(&[(Division::WHOLE, workers)], order, arrivals)
}

/// As [`flows`], for several parts, each with its number of workers.
fn flows_of_parts(
    parts: &[(Division, u32)],
    order: Order,
    arrivals: [Arrival; 2],
) -> Vec<(Nanos, Vec<u8>)> {
    let mut found = Vec::new();
    let seats = parts
        .iter()
        .flat_map(|&(part, workers)| (0..workers).map(move |worker| (part, (worker, workers))));
    for seat in seats {
        let mut of = load(arrivals[0].clone());
        of.templates.push(Template {
            port: 81,
            arrival: arrivals[1].clone(),
            ..of.templates[0].clone()
        });
        of.clients[0].order = order;
        of.clients
            .push(PoolOf { name: "others".into(), ..pool("16.1.0.0-16.1.0.99", 2000..=60_000) });
        of.templates[1].clients = 1;
        of.servers[0].order = order;
        let mut lab = Lab::of_part(&of, network(1), network(2), seat);
        while lab.now.0 < 1000 * MS {
            lab.turn();
            let just_now = lab.now + lab.wires[0].delay;
            let syn = |frame: &Vec<u8>| frame.len() > 47 && frame[23] == 6 && frame[47] == 2;
            let sent =
                lab.wires[0].frames.iter().filter(|(at, frame)| *at == just_now && syn(frame));
            found.extend(sent.map(|(at, frame)| (*at, frame[26..38].to_vec())));
            lab.now = lab.now + lab.wires[0].delay;
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn workers_together_begin_the_flows_of_one() {
    let poisson = |cps| Arrival::Open { cps: Cps::per_second(cps), spacing: Spacing::Poisson };
    for order in [Order::Sequential, Order::Random, Order::Hash] {
        for arrivals in [[poisson(2000), open(300)], [open(1999), poisson(50)]] {
            let one = flows(1, order, arrivals.clone());
            assert!((1800..2600).contains(&one.len()), "{}", one.len());
            let ports = |port: u8| one.iter().filter(|(_, tuple)| tuple[10..] == [0, port]).count();
            assert!(ports(80) > 1000 && ports(81) > 30 && ports(80) + ports(81) == one.len());
            for workers in [2, 3] {
                assert!(
                    one == flows(workers, order, arrivals.clone()),
                    "{order:?}, {workers} workers"
                );
            }
        }
    }
}

#[test]
fn parts_together_begin_the_flows_of_the_whole_and_share_no_client() {
    let poisson = |cps| Arrival::Open { cps: Cps::per_second(cps), spacing: Spacing::Poisson };
    for order in [Order::Sequential, Order::Random, Order::Hash] {
        let arrivals = || [poisson(2000), open(300)];
        let whole = flows(1, order, arrivals());
        let part = |index| Division::new(index, 2).unwrap();
        // The parts differ in their number of workers.
        let parts = [(part(0), 1), (part(1), 2)];
        assert!(whole == flows_of_parts(&parts, order, arrivals()), "{order:?}");
        let clients = |part: &(Division, u32)| {
            let all = flows_of_parts(std::slice::from_ref(part), order, arrivals());
            all.into_iter().map(|(_, tuple)| tuple[..4].to_vec()).collect::<BTreeSet<_>>()
        };
        let [one, other] = [clients(&parts[0]), clients(&parts[1])];
        assert!(one.is_disjoint(&other) && one.len().abs_diff(other.len()) <= 1, "{order:?}");
    }
}

#[test]
fn a_reset_where_a_client_may_close_is_no_failure_of_the_server() {
    // The client resets instead of sending a FIN, between requests; then within a response.
    let get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for (client, whole) in [
        (Program::client("get").send(get).http_response().delay("50 ms").reset(), true),
        (Program::client("get").send(get).recv(10).reset(), false),
    ] {
        let mut of = load(open(1000));
        of.limits.flows = Some(100);
        of.templates[0].client = client.build().expect("a good program");
        let body = if whole { 100 } else { 1 << 20 };
        let server = Program::server("serve").line(&format!("http_serve 200 text/plain {body}"));
        of.templates[0].server = server.build().expect("a good program");
        let mut lab = Lab::new(&of);
        lab.run(Nanos(60_000 * MS));
        let server = lab.end().total().server;
        let reset = server.failed.get(Failure::Reset);
        assert_eq!((server.completed, reset), if whole { (100, 0) } else { (0, 100) });
    }
}

#[test]
fn the_steady_part_is_without_ramps_and_drain() {
    let mut of = load(open(1000));
    of.shape = Shape::ramp(Nanos(1000 * MS), Some(Nanos(3000 * MS)), Nanos(1000 * MS)).unwrap();
    let mut lab = Lab::new(&of);
    lab.run(Nanos(60_000 * MS));
    let all = lab.end();
    let client = all.total().client;
    assert_eq!((all.steady, client.attempted), (Nanos(3000 * MS), 4000));
    assert!(client.steady.attempted.abs_diff(3000) <= 1, "{:?}", client.steady);
    assert!(client.steady.completed.abs_diff(3000) <= 2, "{:?}", client.steady);
    assert!(client.steady.received_octets > 0);
    let begun: Vec<_> = all.seconds[0].iter().map(|second| second.attempted).collect();
    assert!(begun.len() >= 5 && begun[..5].iter().sum::<u64>() == 4000, "{begun:?}");
    for (second, flows) in [500, 1000, 1000, 1000, 500].into_iter().enumerate() {
        assert!(begun[second].abs_diff(flows) <= 2, "{begun:?}");
    }
    assert_eq!(all.seconds[1].iter().map(|second| second.completed).sum::<u64>(), 4000);
}

#[test]
fn a_load_that_ends_by_its_count_was_as_long_as_its_rate_says() {
    let mut of = load(open(1000));
    of.limits.flows = Some(2500);
    let mut lab = Lab::new(&of);
    lab.run(Nanos(60_000 * MS));
    let all = lab.end();
    assert_eq!((all.steady, all.total().client.steady.attempted), (Nanos(2500 * MS), 2500));
}

#[test]
fn flows_are_due_until_one_gap_after_the_last_and_not_in_the_drain() {
    let mut of = load(open(1000));
    of.templates[0].client =
        Program::client("slow").send("ping").recv(4).delay("300 ms").build().unwrap();
    for limits in [
        Limits { flows: Some(1000), ..Limits::default() },
        Limits { duration: Some(Nanos(1000 * MS)), ..Limits::default() },
    ] {
        of.limits = limits;
        let mut lab = Lab::new(&of);
        lab.run(Nanos(500 * MS));
        let half = lab.sides[0].statistics(false);
        assert_eq!(half.arrivals, half.elapsed);
        lab.run(Nanos(60_000 * MS));
        let all = lab.end();
        assert_eq!((all.arrivals, all.total().client.due()), (Nanos(1000 * MS), 1000));
        assert!(all.elapsed > Nanos(1290 * MS), "{:?}", all.elapsed);
    }
}

#[test]
fn arrivals_due_during_a_stall_are_counted() {
    let closed = Arrival::Closed { users: 500, think: Think::Exponential(Nanos(50 * MS)) };
    for (arrival, rate) in [(open(1000), Some(1000)), (closed, None)] {
        let mut of = load(arrival);
        of.limits = Limits { duration: Some(Nanos(1000 * MS)), ..Limits::default() };
        let mut lab = Lab::new(&of);
        lab.run(Nanos(500 * MS));
        let before = lab.sides[0].statistics(false).total().client;
        assert_eq!(before.waiting, 0);
        // The side runs again only long after the end; the arrivals that were due are counted
        // first.
        lab.now = Nanos(3000 * MS);
        lab.sides[0].now = lab.now;
        let held_up = lab.sides[0].statistics(false).total().client;
        assert!(held_up.waiting > 300, "{held_up:?}");
        if let Some(rate) = rate {
            assert_eq!(held_up.due(), rate);
        }
        lab.sides[0].stop(lab.now);
        let client = lab.end().total().client;
        assert_eq!((client.due(), client.waiting), (held_up.due(), 0), "{client:?}");
        // Arrivals due before the end do not leave in a burst after it.
        assert_eq!(client.attempted + client.not_begun.late(), held_up.due());
    }
}

#[test]
fn flows_whose_next_hop_is_being_asked_for_are_due() {
    let mut of = load(open(100));
    of.limits = Limits { duration: Some(Nanos(10_000 * MS)), ..Limits::default() };
    let by_gateway = NextHop::Gateway { v4: Some("16.0.0.254".parse().unwrap()), v6: None };
    let mut lab =
        Lab::with(&of, Network { next_hop: by_gateway, ..network(1) }, network(2), (0, 1));
    // The load begins after a millisecond.
    lab.run(Nanos(201 * MS));
    let client = lab.sides[0].statistics(false).total().client;
    assert_eq!((client.due(), client.waiting, client.attempted), (20, 20, 0), "{client:?}");
}

#[test]
fn the_first_answer_of_a_server_over_udp_does_not_wait_for_its_gateway() {
    let mut of = load(open(100));
    of.limits = Limits { flows: Some(10), ..Limits::default() };
    of.templates[0].client =
        Program::udp_client("ask").send("a").recv_packets(1, None).build().unwrap();
    of.templates[0].server =
        Program::udp_server("tell").recv_packets(1, None).send("b").build().unwrap();
    let by_gateway = NextHop::Gateway { v4: Some("16.0.0.100".parse().unwrap()), v6: None };
    let mut lab =
        Lab::with(&of, network(1), Network { next_hop: by_gateway, ..network(2) }, (0, 1));
    lab.run(Nanos(2_000 * MS));
    let all = lab.end();
    assert_eq!((all.total().client.completed, all.link.unresolved), (10, 0), "{all:?}");
}

#[test]
fn flows_that_are_open_go_on_while_no_more_begin() {
    let mut of = load(open(1000));
    of.templates[0].client =
        Program::client("slow").send("ping").recv(4).delay("1 s").build().unwrap();
    let mut lab = Lab::new(&of);
    lab.run(Nanos(500 * MS));
    let begun = lab.sides[0].statistics(false).total().client.attempted;
    lab.sides[0].pause(lab.now, Some(0));
    lab.run(Nanos(3000 * MS));
    let client = lab.sides[0].statistics(false).total().client;
    assert_eq!((client.attempted, client.completed, client.not_begun.total()), (begun, begun, 0));
    lab.sides[0].resume(lab.now, None);
    let double = Load { templates: of.clone().times(2, 1).templates, ..of.clone() };
    lab.sides[0].change(lab.now, &double);
    lab.run(Nanos(4000 * MS));
    let client = lab.sides[0].statistics(false).total().client;
    assert!((client.attempted - begun).abs_diff(2000) <= 2, "{client:?}");
    assert_eq!(lab.end().total().client.not_begun.total(), 0);
}

#[test]
fn exhausted_ports_are_counted() {
    // A client's 20 tuples are in use for a second each, so most of 100 flows/s find no free tuple.
    let mut of = load(open(100));
    of.templates[0].client =
        Program::client("slow").send("ping").recv(4).delay("1 s").build().unwrap();
    of.clients = vec![pool("16.0.0.1", 1000..=1019)];
    of.servers = vec![pool("48.0.0.1", 1..=1)];
    of.limits = Limits { duration: Some(Nanos(3000 * MS)), ..Limits::default() };
    let mut lab = Lab::new(&of);
    lab.run(Nanos(20_000 * MS));
    let all = lab.end();
    let client = all.total().client;
    assert_eq!(client.due(), 300);
    let refused = client.not_begun.iter().collect::<Vec<_>>();
    assert_eq!(refused, [("ports_exhausted", 300 - client.attempted)]);
    assert!(client.completed >= 20 && client.completed == client.attempted, "{client:?}");
    assert_eq!(all.exhausted, [Exhausted { addresses: 1, flows: 300 - client.attempted }]);
}

#[test]
fn an_unresolved_next_hop_is_counted() {
    let mut of = load(open(100));
    of.limits = Limits { duration: Some(Nanos(10_000 * MS)), ..Limits::default() };
    let by_gateway = NextHop::Gateway { v4: Some("16.0.0.254".parse().unwrap()), v6: None };
    let mut lab =
        Lab::with(&of, Network { next_hop: by_gateway, ..network(1) }, network(2), (0, 1));
    lab.run(Nanos(20_000 * MS));
    let all = lab.end();
    let client = all.total().client;
    assert_eq!(
        (client.attempted, client.not_begun.iter().collect::<Vec<_>>()),
        (0, vec![("unresolved", 1000)])
    );
    assert!(all.link.resolution_failed >= 1 && all.link.arp_requests_sent >= 6);
}

#[test]
fn flows_that_do_not_end_are_aborted_when_the_drain_time_is_over() {
    let mut of = load(Arrival::Closed { users: 3000, think: Think::Fixed(Nanos(0)) });
    of.templates[0].server = Program::server("mute").recv(5).build().unwrap();
    of.drain = Nanos(200 * MS);
    let mut lab = Lab::new(&of);
    lab.run(Nanos(500 * MS));
    assert_eq!(lab.sides[0].active(), 3000);
    lab.sides[0].stop(lab.now);
    let before = lab.now;
    let all = lab.end();
    let total = all.total();
    assert_eq!(total.client.failed.iter().collect::<Vec<_>>(), [("stopped", 3000)]);
    // Servers see resets.
    assert_eq!(
        total.server.failed.get(Failure::Reset),
        3000,
        "{:?} {before:?}",
        total.server.failed
    );
}

#[test]
fn flows_that_always_have_output_are_aborted() {
    let mut load = load(open(1000));
    load.drain = Nanos(0);
    load.templates[0].client =
        Program::client("c").send("${repeat:1000000:x}").build().expect("a good program");
    load.templates[0].server =
        Program::server("s").recv(1_000_000).build().expect("a good program");
    let mut lab = Lab::new(&load);
    lab.wires[0].room = 1;
    lab.run(Nanos(20 * MS));
    assert!(lab.sides[0].has_output(), "the port is slower than the flows");
    lab.sides[0].stop(lab.now);
    for _ in 0..200 {
        lab.now = lab.now + Nanos(20_000);
        lab.turn();
    }
    assert!(lab.sides[0].is_over());
}

#[test]
fn a_number_of_open_flows_is_kept() {
    let mut of = load(Arrival::Weight { weight: 1, spacing: Spacing::Constant });
    of.target = Some(Target::Active(200));
    of.templates[0].client =
        Program::client("slow").send("ping").recv(4).delay("50 ms").build().unwrap();
    let mut lab = Lab::new(&of);
    lab.run(Nanos(1000 * MS));
    assert!((195..=200).contains(&lab.sides[0].active()), "{}", lab.sides[0].active());
    let client = lab.end().total().client;
    assert!(client.peak == 200 && client.completed > 3000, "{client:?}");
}

#[test]
fn flows_over_udp_and_ipv6_in_a_tunnel_are_flows() {
    let mut of = load(open(1000));
    of.clients = vec![pool("fd00::1-fd00::64", 1024..=65535)];
    of.servers = vec![pool("fd01::1-fd01::9", 1..=1)];
    of.templates[0].client = Program::udp_client("ask")
        .line("send_packet \"who\"")
        .recv_packets(1, None)
        .build()
        .unwrap();
    of.templates[0].server = Program::udp_server("tell")
        .recv_packets(1, None)
        .line("send_packet \"me\"")
        .build()
        .unwrap();
    of.limits = Limits { flows: Some(1000), ..Limits::default() };
    let tunnel = |local: &str, remote: &str| Wrap::Vxlan {
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        vni: 7,
        mac: squall_units::MacAddr([2, 0, 0, 0, 9, 9]),
    };
    let here = Network { wraps: vec![tunnel("10.0.0.1", "10.0.0.2")], ..network(1) };
    let there = Network { wraps: vec![tunnel("10.0.0.2", "10.0.0.1")], ..network(2) };
    let mut lab = Lab::with(&of, here, there, (0, 1));
    lab.run(Nanos(5000 * MS));
    let total = lab.end().total();
    assert_eq!((total.client.completed, total.server.completed), (1000, 1000), "{total:?}");
}

#[test]
fn the_default_room_for_flows_is_half_of_the_memory_within_bounds() {
    let of_gigabytes = |number: u64| crate::default_flows(number * 1_000_000_000);
    assert_eq!([0, 10, 400].map(of_gigabytes), [1 << 21, 29_411_764, 1 << 28]);
    assert_eq!(crate::default_flows(u64::MAX), 1 << 28);
}

#[test]
fn an_open_flow_takes_no_more_memory_than_the_plan_says() {
    const USERS: u32 = 16_000;
    for (clients, servers) in
        [("16.0.0.1-16.0.0.2", "48.0.0.1-48.0.0.2"), ("fd00::1-fd00::2", "fd01::1-fd01::2")]
    {
        let mut of = load(Arrival::Closed { users: USERS, think: Think::Fixed(Nanos(0)) });
        (of.clients, of.servers) = (vec![pool(clients, 1024..=65535)], vec![pool(servers, 1..=1)]);
        let program = Program::client("slow").delay("10 s").send("ping");
        of.templates[0].client = program.build().unwrap();
        let mut lab = Lab::new(&of);
        let empty = lab.sides.each_ref().map(Side::memory);
        lab.run(Nanos(1000 * MS));
        for (side, empty) in lab.sides.iter().zip(empty) {
            assert_eq!(side.active(), USERS as usize);
            let each = (side.memory() - empty) as u64 / u64::from(USERS);
            assert!(each <= crate::FLOW_OCTETS, "{each} octets");
        }
    }
}

#[test]
fn a_full_table_begins_no_more_flows_and_counts_them() {
    let mut of = load(Arrival::Closed { users: 100, think: Think::Fixed(Nanos(0)) });
    of.templates[0].client =
        Program::client("slow").send("ping").recv(4).delay("50 ms").build().unwrap();
    of.limits = Limits { duration: Some(Nanos(300 * MS)), ..Limits::default() };
    let mut lab = Lab::new(&of);
    let settings = SideSettings {
        role: Role::Clients,
        start: Nanos(MS),
        flows: 60,
        ..SideSettings::default()
    };
    lab.sides[0] = Side::new(&of, &network(1), settings).unwrap();
    lab.run(Nanos(400 * MS));
    let client = lab.end().total().client;
    assert!(client.peak <= 60 && client.completed >= 200, "{client:?}");
    assert_eq!(client.not_begun.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["full"]);
}

#[test]
fn datagrams_that_want_no_answer_are_flows_that_are_over_at_once() {
    let mut of = load(open(1000));
    of.templates[0].client =
        Program::udp_client("tell").line("send_packet \"so\"").build().unwrap();
    of.templates[0].server = Program::udp_server("hear").recv_packets(1, None).build().unwrap();
    of.limits = Limits { flows: Some(500), ..Limits::default() };
    let mut lab = Lab::new(&of);
    lab.run(Nanos(2000 * MS));
    let total = lab.end().total();
    assert_eq!((total.client.completed, total.server.completed), (500, 500), "{total:?}");
}

#[test]
fn a_port_that_takes_little_delays_and_loses_nothing() {
    let mut of = load(open(5000));
    of.limits = Limits { flows: Some(2000), ..Limits::default() };
    let mut lab = Lab::new(&of);
    lab.wires.iter_mut().for_each(|wire| wire.room = 3);
    lab.run(Nanos(60_000 * MS));
    let total = lab.end().total();
    assert_eq!(total.client.completed + total.client.not_begun.late(), 2000, "{:?}", total.client);
}

#[test]
fn data_without_acknowledgement_is_reset_only_where_nobody_listens() {
    let of = load(open(1000));
    let mut lab = Lab::new(&of);
    let settings = SideSettings { role: Role::Servers, verify: false, ..SideSettings::default() };
    lab.sides[1] = Side::new(&of, &network(2), settings).unwrap();
    let is_tcp = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 6;
    let syn = loop {
        lab.turn();
        lab.now = lab.now + Nanos(MS);
        if let Some((_, frame)) = lab.wires[0].frames.iter().find(|(_, frame)| is_tcp(frame)) {
            break frame.clone();
        }
        assert!(lab.now < Nanos(1000 * MS));
    };
    for (port, answered) in [(80, false), (81, true)] {
        let mut data = syn.clone();
        // A segment from a port that has no flow, with only PSH set.
        data[34..38].copy_from_slice(&[0, 7, 0, port]);
        data[47] = 8;
        lab.wires[1].frames.clear();
        lab.sides[1].receive(lab.now, &data, ReceiveOffloads::default(), FlowHint::default());
        lab.sides[1].transmit(lab.now, &mut lab.wires[1]);
        let resets =
            lab.wires[1].frames.iter().filter(|(_, frame)| is_tcp(frame) && frame[47] & 4 != 0);
        assert_eq!(resets.count() == 1, answered, "port {port}");
    }
}

/// A conversation of client `port`; its octets are its number.
fn conversation(number: usize, begin: Nanos, port: u16) -> Conversation {
    let octets = format!("{number:05}");
    Conversation {
        begin,
        template: 0,
        client: Program::client("c").send(&octets).recv(7 + number as u32).build().unwrap(),
        server: Program::server("s").recv(5).send(&"x".repeat(7 + number)).build().unwrap(),
        client_end: ("16.0.0.7".parse().unwrap(), port),
        server_end: ("48.0.0.1".parse().unwrap(), 80),
        party: None,
    }
}

fn scripted(script: Script) -> Load {
    let mut of = load(Arrival::None);
    of.scripts = vec![script.into()];
    of
}

/// When the client of each port began, relative to the start of the load.
fn syns(lab: &mut Lab, until: Nanos) -> Vec<(Nanos, u16)> {
    let mut found = Vec::new();
    while lab.now < until && !lab.sides[0].is_over() {
        let before = lab.wires[0].frames.len();
        lab.turn();
        let new = lab.wires[0].frames.iter().skip(before);
        for (at, frame) in new.filter(|(_, f)| f[12..14] == [8, 0] && f[23] == 6 && f[47] == 2) {
            let port = be16(frame, 34);
            found.push((*at - lab.wires[0].delay - Nanos(MS), port));
        }
        let wires = lab.wires.iter().filter_map(|wire| Some(wire.frames.front()?.0));
        let next = lab.sides.iter().filter_map(Side::next_due).chain(wires).min();
        lab.now = next.unwrap_or(until).max(lab.now + Nanos(1000)).min(until);
    }
    found
}

#[test]
fn conversations_of_a_script_begin_when_it_says_in_each_loop() {
    let begins = [0, 5, 5, 90].map(|ms| Nanos(ms * MS));
    let conversations =
        (1000..).zip(begins).enumerate().map(|(i, (port, begin))| conversation(i, begin, port));
    let script = Script {
        conversations: conversations.collect(),
        loops: Some(3),
        period: Nanos(2000 * MS),
        ..Script::default()
    };
    let mut lab = Lab::new(&scripted(script));
    // The first one waits for the servers' MAC address, which is known from then on.
    let found = syns(&mut lab, Nanos(60_000 * MS));
    let expected =
        (0..3).flat_map(|turn| (1000..).zip(begins.map(|begin| begin + Nanos(turn * 2000 * MS))));
    assert_eq!(found.len(), 12, "{found:?}");
    for ((at, port), (expected_port, expected)) in found.into_iter().zip(expected) {
        assert_eq!(port, expected_port);
        assert!(at.0.abs_diff(expected.0) < MS, "{port}: {at:?}, not {expected:?}");
    }
    let all = lab.end();
    let of = all.total();
    assert_eq!((of.client.completed, of.server.completed), (12, 12), "{of:?}");
    assert_eq!(
        (of.client.received_octets, of.server.received_octets),
        (3 * (7 + 8 + 9 + 10), 12 * 5)
    );
    assert!(all.failed.is_empty());
}

/// Two scripts are counted separately and keep their own times; conversation numbers continue in
/// the second.
#[test]
fn two_scripts_are_played_side_by_side() {
    let script = |first, from, ports: std::ops::Range<u16>, loops| Script {
        first,
        conversations: ports
            .enumerate()
            .map(|(i, port)| Conversation {
                template: first,
                ..conversation(i, Nanos(from * MS), port)
            })
            .collect(),
        loops: Some(loops),
        period: Nanos(1000 * MS),
        ..Script::default()
    };
    let mut load = scripted(script(0, 0, 1000..1003, 2));
    load.templates.push(Template { name: "other".into(), ..load.templates[0].clone() });
    let mut other = script(1, 500, 2000..2005, 1);
    // The fourth server sends less than its client expects.
    other.conversations[3].server = Program::server("s").recv(5).build().unwrap();
    load.scripts.push(other.into());
    let mut lab = Lab::new(&load);
    lab.run(Nanos(60_000 * MS));
    let all = lab.end();
    let completed = |template: usize| {
        let of = &all.templates[template];
        (of.client.attempted, of.client.completed, of.server.completed)
    };
    assert_eq!((completed(0), completed(1).0), ((6, 6, 6), 5), "{all:?}");
    assert!(
        !all.failed.is_empty() && all.failed.iter().all(|one| one.number == 6),
        "{:?}",
        all.failed
    );

    // A side that plays only one of the scripts.
    for (number, attempted) in [(0, [6, 0]), (1, [0, 5])] {
        let part = Part { scripts: 1 << number, ..Part::NOTHING };
        assert_eq!([part.has(&load, 0), part.has(&load, 1)], attempted.map(|n| n > 0));
    }
}

#[test]
fn conversations_of_the_same_addresses_and_ports_come_one_after_the_other() {
    for workers in [1, 2] {
        let conversations =
            (0..20).map(|i| conversation(i, Nanos(0), 1000 + (i % 4) as u16)).collect();
        let script =
            Script { conversations, loops: Some(1), at_once: Some(3), ..Script::default() };
        let (mut completed, mut peak) = (0, 0);
        for worker in 0..workers {
            let mut lab =
                Lab::with(&scripted(script.clone()), network(1), network(2), (worker, workers));
            lab.run(Nanos(60_000 * MS));
            let of = lab.end().total();
            assert_eq!(
                (of.client.failed.total(), of.client.completed),
                (0, of.server.completed),
                "{of:?}"
            );
            (completed, peak) = (completed + of.client.completed, peak + of.client.peak);
        }
        assert_eq!(completed, 20);
        assert!(peak <= 4, "{peak} at once");
    }
}

#[test]
fn failed_conversations_are_listed() {
    let mut conversations: Vec<_> =
        (0..5).map(|i| conversation(i, Nanos(0), 1000 + i as u16)).collect();
    conversations[3].server = Program::server("s").recv(5).send("short").build().unwrap();
    let mut lab =
        Lab::new(&scripted(Script { conversations, loops: Some(1), ..Script::default() }));
    lab.run(Nanos(60_000 * MS));
    let all = lab.end();
    let client: Vec<_> =
        all.failed.iter().filter(|failed| failed.client).map(|failed| failed.number).collect();
    assert_eq!((client, all.total().client.completed), (vec![3], 4), "{all:?}");
}

/// Templates at one port of one server, each with its own response length.
fn templates_of_one_server(clients: [usize; 3]) -> Load {
    let mut of = load(open(200));
    of.servers = vec![pool("48.0.0.1", 1..=1)];
    of.templates = (0..3)
        .map(|i| {
            let answer = "x".repeat(100 * (i + 1));
            Template {
                name: format!("template {i}"),
                clients: clients[i],
                client: Program::client("get")
                    .send("ping")
                    .recv(answer.len() as u32)
                    .build()
                    .unwrap(),
                server: Program::server("give").recv(4).send(&answer).build().unwrap(),
                ..template("t", open(200))
            }
        })
        .collect();
    of.limits = Limits { duration: Some(Nanos(500 * MS)), ..Limits::default() };
    of
}

#[test]
fn templates_that_share_servers_and_port_are_each_served_by_their_own_program() {
    for (order, clients) in
        [(Order::Sequential, [0, 0, 0]), (Order::Random, [0, 0, 0]), (Order::Sequential, [0, 1, 0])]
    {
        let mut of = templates_of_one_server(clients);
        of.clients[0].order = order;
        // The first template has one more port than the others.
        of.clients[0].ports = 2000..=2099;
        of.clients.push(pool("16.9.0.1-16.9.0.9", 2000..=2001));
        for workers in [1, 2] {
            let mut completed = [0; 3];
            for worker in 0..workers {
                let mut lab = Lab::with(&of, network(1), network(2), (worker, workers));
                lab.run(Nanos(5000 * MS));
                let all = lab.end();
                for (i, of) in all.templates.iter().enumerate() {
                    let flows = of.client.completed;
                    assert_eq!(flows, of.server.completed, "{order:?} {clients:?} {i}");
                    assert_eq!(of.client.received_octets, flows * 100 * (i as u64 + 1));
                    completed[i] += flows;
                }
                assert_eq!(all.link.unknown_clients, 0);
            }
            assert_eq!(completed, [100; 3], "{order:?} {clients:?}");
        }
    }
}

#[test]
fn a_template_in_plain_and_one_in_tls_share_servers_and_port() {
    let mut of = templates_of_one_server([0; 3]);
    of.templates[1].tls =
        Some(squall_apps::Tls::new(&squall_apps::TlsSettings::default()).unwrap());
    let mut lab = Lab::new(&of);
    lab.run(Nanos(5000 * MS));
    for of in &lab.end().templates {
        assert_eq!((of.client.completed, of.server.completed), (100, 100));
    }
}

#[test]
fn translated_clients_are_served_by_the_first_template_and_counted() {
    let of = templates_of_one_server([0; 3]);
    let mut servers = of.clone();
    // As if a device had translated the clients' addresses.
    servers.clients = vec![pool("99.0.0.1", 1024..=65535)];
    let mut lab = Lab::new(&of);
    let settings =
        SideSettings { role: Role::Servers, start: Nanos(MS), ..SideSettings::default() };
    lab.sides[1] = Side::new(&servers, &network(2), settings).unwrap();
    lab.run(Nanos(2000 * MS));
    let servers = lab.sides[1].statistics(false);
    assert_eq!(servers.templates[0].server.attempted, 300);
    assert_eq!(servers.link.unknown_clients, 300);
}

#[test]
fn servers_that_cannot_distinguish_templates_are_refused() {
    let new = |of: &Load, role| {
        Side::new(of, &network(1), SideSettings { role, ..SideSettings::default() })
    };
    let mut of = templates_of_one_server([0; 3]);
    of.clients[0].ports = 2000..=2001;
    let error = new(&of, Role::Servers).err().expect("two ports for three");
    assert_eq!(error.template(), Some("template 1"));
    assert!(error.to_string().contains("try at least 3 ports"), "{error}");
    assert!(new(&of, Role::Clients).is_ok(), "servers of others may know");
    of.clients[0].ports = 2000..=2002;
    assert!(new(&of, Role::Servers).is_ok());
    of.templates[2].arrival = Arrival::None;
    let error = new(&of, Role::Both).err().expect("nobody knows who they are");
    assert!(matches!(error, LoadError::SharedByOthers { .. }), "{error}");
    // With equal programs it does not matter which template serves a client.
    let (first, clients) = (of.templates[0].server.clone(), pool("16.9.0.1", 1..=1));
    of.templates.iter_mut().for_each(|template| template.server = first.clone());
    assert!(new(&of, Role::Servers).is_ok());
    let mut of = templates_of_one_server([0, 1, 0]);
    of.templates.iter_mut().for_each(|template| template.arrival = Arrival::None);
    of.templates.truncate(2);
    of.clients.push(clients);
    assert!(new(&of, Role::Servers).is_ok(), "addresses tell them apart");
}

#[test]
fn flows_that_are_the_last_have_the_time_that_was_asked_for() {
    let slow = |of: &mut Load, time: &str| {
        of.templates[0].client =
            Program::client("slow").send("ping").recv(4).delay(time).build().unwrap();
        of.limits.flows = Some(3);
    };
    // Longer than the drain time, which starts at the end of the run.
    let mut of = load(open(100));
    slow(&mut of, "20 s");
    of.limits.duration = Some(Nanos(60_000 * MS));
    let mut lab = Lab::new(&of);
    lab.run(Nanos(100_000 * MS));
    assert_eq!((lab.now.0 / (1000 * MS), lab.end().total().client.completed), (20, 3));
    // Without a configured end, flows continue as long as they have timers.
    of.limits.duration = None;
    let mut lab = Lab::new(&of);
    lab.run(Nanos(100_000 * MS));
    assert_eq!((lab.now.0 / (1000 * MS), lab.end().total().client.completed), (20, 3));
    // A stop aborts them after the drain time.
    let mut lab = Lab::new(&of);
    lab.run(Nanos(1000 * MS));
    lab.sides[0].stop(lab.now);
    lab.run(Nanos(100_000 * MS));
    assert_eq!(lab.now.0 / (1000 * MS), 6);
    assert_eq!(lab.end().total().client.failed.get(Failure::Stopped), 3);
}

#[test]
fn flows_to_which_nothing_happens_any_more_are_not_waited_for() {
    let mut of = load(open(100));
    of.templates[0].server = Program::server("mute").recv(4).wait_peer_close().build().unwrap();
    of.limits.flows = Some(3);
    // No segment was exchanged between two checks.
    for (duration, seconds) in [(None, 10), (Some(Nanos(60_000 * MS)), 70)] {
        of.limits.duration = duration;
        let mut lab = Lab::new(&of);
        lab.run(Nanos(100_000 * MS));
        assert_eq!(lab.now.0 / (1000 * MS), seconds);
        assert_eq!(lab.end().total().client.failed.get(Failure::Stopped), 3);
    }
}

#[test]
fn a_server_over_udp_whose_client_ends_first_is_not_refused() {
    let rtp = squall_apps::builtin::rtp(5);
    let mut of = load(open(100));
    (of.templates[0].client, of.templates[0].server) = (rtp.client, rtp.server);
    of.limits.flows = Some(10);
    let mut lab = Lab::new(&of);
    // The last packets of the server arrive after the client has ended.
    lab.wires.iter_mut().for_each(|wire| wire.delay = Nanos(30 * MS));
    lab.run(Nanos(5000 * MS));
    let all = lab.end();
    let total = all.total();
    assert_eq!((total.client.completed, total.server.completed), (10, 10), "{:?}", total.server);
    assert!(all.strays.late >= 10, "{:?}", all.strays);
    assert_eq!(all.strays.icmp_out, 0);
}

/// Times at which clients sent, in ms of real time: a hundred calls begin a millisecond apart, then
/// the side is stopped for 20 ms four times. `lags`: whether its clock takes the stalls as lag, as
/// a port's does.
fn speech(lags: bool) -> Vec<u64> {
    let rtp = squall_apps::builtin::rtp(60);
    let mut of = load(open(1000));
    (of.templates[0].client, of.templates[0].server) = (rtp.client, rtp.server);
    of.limits.flows = Some(100);
    let Lab { sides: [mut clients, mut servers], wires: [mut there, mut back], .. } = Lab::new(&of);
    let (mut sent, mut lag) = (Vec::new(), 0);
    for ms in 1..1000u64 {
        let real = Nanos(ms * MS);
        for frame in there.arrived(real) {
            servers.receive(real, &frame, ReceiveOffloads::default(), FlowHint::default());
        }
        servers.advance(real);
        back.now = real;
        servers.transmit(real, &mut back);
        let stalled = (201..=280).contains(&ms);
        if stalled && !ms.is_multiple_of(20) {
            continue;
        }
        if lags && stalled {
            // The stall of 20 ms minus the allowance of 1 ms.
            lag += 19;
        }
        clients.set_lag(Nanos(lag * MS));
        let now = Nanos((ms - lag) * MS);
        for frame in back.arrived(real) {
            clients.arrived(real);
            clients.receive(now, &frame, ReceiveOffloads::default(), FlowHint::default());
        }
        clients.advance(now);
        clients.begin(now, 64);
        there.now = real;
        let before = there.frames.len();
        clients.transmit(now, &mut there);
        sent.extend((before..there.frames.len()).map(|_| ms));
    }
    sent
}

#[test]
fn calls_stay_apart_after_stalls_and_count_from_when_they_were_due() {
    let most = |sent: &[u64], from: u64| {
        let in_ms = |ms: u64| sent.iter().filter(|at| **at == ms).count();
        (from..1000).map(in_ms).max().unwrap_or(0)
    };
    // Five packets are due each millisecond; ticks of 66 us may move packets of the next
    // millisecond into it.
    let sent = speech(true);
    assert!(most(&sent, 100) <= 12, "{}", most(&sent, 100));
    // Without lag all packets that became due in a stall leave at once, but the calls do not stay
    // aligned.
    let sent = speech(false);
    assert!(most(&sent, 200) >= 90, "{}", most(&sent, 200));
    assert!(most(&sent, 320) <= 12, "{}", most(&sent, 320));
}

#[test]
fn a_counted_load_begins_all_of_its_flows_whatever_stops_it() {
    let mut of = load(open(50));
    of.limits.flows = Some(6);
    let Lab { sides: [mut clients, _], .. } = Lab::new(&of);
    // The side stops before the second flow, until long after the last one is due.
    let begun: usize = [1, 400]
        .map(|ms| {
            clients.advance(Nanos(ms * MS));
            clients.begin(Nanos(ms * MS), 64)
        })
        .into_iter()
        .sum();
    let total = clients.statistics(false).total().client;
    assert_eq!((begun, total.not_begun.total()), (6, 0), "{total:?}");
}

#[test]
fn both_ends_over_udp_count_the_same_calls_when_either_is_late() {
    let speech = |mut program: Program, pause: u64| {
        for instruction in &mut program.instructions {
            if let squall_apps::Instruction::Delay(delay) = instruction {
                *delay = squall_apps::Delay::Fixed(Nanos(pause * MS));
            }
        }
        program
    };
    // The client or the server is half a second late with each packet, or the client stops
    // half-way.
    for (client, server, way) in [(500, 20, 0), (20, 500, 0), (20, 20, 700)] {
        let rtp = squall_apps::builtin::rtp(5);
        let mut of = load(open(100));
        of.templates[0].client = speech(rtp.client, client);
        of.templates[0].server = speech(rtp.server, server);
        of.limits.flows = Some(10);
        let mut lab = Lab::new(&of);
        lab.wires[0].delay = Nanos((1 + way) * MS);
        lab.run(Nanos(60_000 * MS));
        let total = lab.end().total();
        for side in [&total.client, &total.server] {
            assert_eq!((side.attempted, side.completed), (10, 10), "{client} {server}: {side:?}");
        }
        assert_eq!(total.server.received_octets, total.client.sent_octets);
    }
}

#[test]
fn a_side_that_stops_ends_flows_that_rest_as_complete_and_takes_no_others() {
    let rtp = squall_apps::builtin::rtp(5);
    let mut of = load(open(100));
    (of.templates[0].client, of.templates[0].server) = (rtp.client, rtp.server);
    of.limits.flows = Some(3);
    let mut lab = Lab::new(&of);
    let is_udp = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 17;
    let packet = loop {
        lab.turn();
        lab.now = lab.now + Nanos(MS);
        if let Some((_, frame)) = lab.wires[0].frames.iter().find(|(_, frame)| is_udp(frame)) {
            break frame.clone();
        }
        assert!(lab.now < Nanos(1000 * MS));
    };
    lab.run(Nanos(1000 * MS));
    assert_eq!(lab.sides[1].active(), 3, "they rest until nothing comes");
    assert!(!lab.sides[1].acts());
    let now = lab.now;
    lab.sides[1].stop(now);
    for _ in 0..9 {
        lab.turn();
    }
    assert!(lab.sides[1].is_over(), "it waits for nothing");
    // The last packet of a late client.
    lab.sides[1].receive(now, &packet, ReceiveOffloads::default(), FlowHint::default());
    let all = lab.sides[1].statistics(true);
    let server = &all.total().server;
    assert_eq!((server.attempted, server.completed, server.active), (3, 3, 0), "{server:?}");
    assert_eq!((all.strays.late, all.strays.icmp_out), (1, 0));
}

#[test]
fn a_flow_that_finds_no_room_at_its_server_is_counted_and_is_not_open() {
    for over_udp in [false, true] {
        let mut of = load(open(1000));
        if over_udp {
            let dns = squall_apps::builtin::dns();
            (of.templates[0].client, of.templates[0].server) = (dns.client, dns.server);
        }
        of.templates[0]
            .server
            .instructions
            .insert(1, squall_apps::Instruction::Delay(squall_apps::Delay::Fixed(Nanos(50 * MS))));
        of.limits.flows = Some(20);
        let mut lab = Lab::new(&of);
        let few = SideSettings { role: Role::Servers, flows: 5, ..SideSettings::default() };
        lab.sides[1] = Side::new(&of, &network(2), few).unwrap();
        lab.run(Nanos(1000 * MS));
        let all = lab.end();
        assert!(all.strays.accept_full > 0, "{:?}", all.strays);
        assert!(all.total().server.peak <= 5, "{:?}", all.total().server);
    }
}

#[test]
fn requests_that_are_missing_are_counted() {
    let mut of = load(open(100));
    let http = squall_apps::builtin::HttpClient { requests: 4, ..Default::default() };
    of.templates[0].client = http.program("web").unwrap();
    const OK: &str = r"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n";
    let server = Program::server("three")
        .repeat(2, |server| server.recv_until(r"\r\n\r\n").send(&format!(r"{OK}\r\nhello")));
    let server =
        server.recv_until(r"\r\n\r\n").send(&format!(r"{OK}Connection: close\r\n\r\nhello"));
    of.templates[0].server = server.close().wait_peer_close().build().unwrap();
    of.limits.flows = Some(6);
    let mut lab = Lab::new(&of);
    lab.run(Nanos(5000 * MS));
    let client = lab.end().total().client;
    assert_eq!(client.requests, crate::Requests { asked: 24, sent: 18, answered: 18 });
    assert_eq!((client.completed, client.failed.get(Failure::Unfinished)), (0, 6));
    assert_eq!(client.protocol_errors["closed_early"], 6);
}

#[test]
fn a_frame_counts_as_good_without_its_checksum_only_where_the_port_says_so() {
    let mut of = load(open(1000));
    of.limits.flows = Some(1);
    let mut lab = Lab::new(&of);
    let is_tcp = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 6;
    let syn = loop {
        lab.turn();
        lab.now = lab.now + Nanos(MS);
        if let Some((_, frame)) = lab.wires[0].frames.iter().find(|(_, frame)| is_tcp(frame)) {
            break frame.clone();
        }
        assert!(lab.now < Nanos(1000 * MS));
    };
    // The checksum as a host leaves it to its NIC: only the sum of the pseudo-header.
    let mut left = syn.clone();
    let len = (left.len() - 34) as u64;
    let pseudo = fold(sum(&left[26..34]) + 6 + len);
    left[50..52].copy_from_slice(&pseudo.to_be_bytes());
    let mut damaged = syn.clone();
    damaged[47 + 1] ^= 1;
    let partial = ReceiveOffloads { partial: true, ..ReceiveOffloads::default() };
    for (what, frame, came, taken) in [
        ("its checksum is right", &syn, ReceiveOffloads::default(), true),
        ("its checksum is right, and may be none", &syn, partial, true),
        ("it is left to a NIC", &left, partial, true),
        ("a process has copied it, checksum and all", &left, ReceiveOffloads::default(), false),
        ("it is damaged", &damaged, ReceiveOffloads::default(), false),
        ("it is damaged, and its checksum is none of the pseudo-header", &damaged, partial, false),
    ] {
        let settings = SideSettings { role: Role::Servers, ..SideSettings::default() };
        let mut server = Side::new(&of, &network(2), settings).unwrap();
        assert!(server.receive(lab.now, frame, came, FlowHint::default()));
        let all = server.statistics(true);
        let counts = (all.total().server.attempted, all.strays.bad_tcp_checksum);
        assert_eq!(counts, (u64::from(taken), u64::from(!taken)), "{what}");
        let unverified = u64::from(taken && std::ptr::eq(frame, &left));
        assert_eq!(all.link.checksum_unverified, unverified, "{what}");
    }
}

/// The client's outcome when the server resets the flow, with or without closing its TLS session
/// first.
fn reset_by_the_server(after_its_end: bool) -> FlowStatistics {
    let mut of = load(open(100));
    let server = Program::server("give").recv(4).send("pong");
    // By then the client has closed, and its close_notify is in flight.
    let server = if after_its_end { server.delay("10 ms").close() } else { server.delay("1 s") };
    of.templates[0].client = Program::client("get").send("ping").recv(4).close().build().unwrap();
    of.templates[0].server = server.build().unwrap();
    of.templates[0].tls =
        Some(squall_apps::Tls::new(&squall_apps::TlsSettings::default()).unwrap());
    of.limits.flows = Some(1);
    let mut lab = Lab::new(&of);
    lab.wires.iter_mut().for_each(|wire| wire.delay = Nanos(20 * MS));
    let received = |lab: &Lab| lab.sides[0].statistics(false).total().client.received_octets;
    while received(&lab) < 4 && lab.now < Nanos(1000 * MS) {
        lab.run(lab.now + Nanos(MS));
    }
    lab.run(lab.now + Nanos(15 * MS));
    let now = lab.now;
    lab.sides[1].stack.with(now, FlowId(0), |_, socket| socket.abort()).expect("it is open");
    lab.run(Nanos(20_000 * MS));
    lab.end().total().client
}

#[test]
fn a_session_that_both_sides_have_closed_is_complete_whatever_follows() {
    let client = reset_by_the_server(true);
    assert_eq!(
        (client.completed, client.failed.total(), client.tcp.reset),
        (1, 0, 1),
        "{client:?}"
    );
    let client = reset_by_the_server(false);
    assert_eq!((client.completed, client.failed.get(Failure::Reset)), (0, 1), "{client:?}");
}

#[test]
fn headers_of_the_proxy_protocol_precede_flows_of_both_families_with_and_without_tls() {
    use squall_apps::{Tls, TlsSettings, proxy::ProxyProtocol, proxy::ProxyVersion};
    for (clients, servers, sources) in [
        ("16.0.0.1-16.0.0.9", "48.0.0.1", "203.0.113.1"),
        ("fd16::1-fd16::9", "fd48::1", "fd77::1"),
    ] {
        for (version, secure) in
            [ProxyVersion::V1, ProxyVersion::V2].into_iter().flat_map(|v| [(v, false), (v, true)])
        {
            let source: IpAddr = sources.parse().unwrap();
            let mut of = load(open(100));
            of.clients = vec![pool(clients, 1024..=65535)];
            of.servers = vec![pool(servers, 1..=1)];
            of.limits.flows = Some(20);
            let sources = Some(source..=source);
            let proxy = ProxyProtocol { version, sources, ..ProxyProtocol::default() };
            of.templates[0].proxy = Some(Arc::new(proxy));
            of.templates[0].tls = secure.then(|| Tls::new(&TlsSettings::default()).unwrap());
            let mut lab = Lab::new(&of);
            lab.run(Nanos(10_000 * MS));
            let all = lab.end().total();
            for side in [&all.client, &all.server] {
                let figures = (side.completed, side.sent_octets, side.received_octets);
                assert_eq!(figures, (20, 80, 80), "{version:?} {secure}: {side:?}");
            }
            assert!(all.client.tcp.acked >= 80 + 20 * 28, "{:?}", all.client.tcp);
            // Clients without a header are refused.
            let mut direct = of.clone();
            direct.templates[0].proxy = None;
            let mut lab = Lab::new(&direct);
            let settings =
                SideSettings { role: Role::Servers, start: Nanos(MS), ..SideSettings::default() };
            lab.sides[1] = Side::new(&of, &network(2), settings).unwrap();
            lab.run(Nanos(10_000 * MS));
            let all = lab.end().total();
            assert_eq!(all.client.failed.get(Failure::Reset), 20, "{:?}", all.client);
            assert_eq!(all.server.protocol_errors["proxy_missing"], 20);
        }
    }
}

#[test]
fn flows_over_http2_have_all_requests_of_their_streams_with_and_without_other_layers() {
    use squall_apps::{Http2, Tls, TlsSettings, builtin, proxy::ProxyProtocol};
    let h2 = TlsSettings { alpn: vec!["h2".into()], ..TlsSettings::default() };
    for (proxied, secure) in [(false, false), (true, false), (true, true)] {
        let mut of = load(open(100));
        let client = builtin::HttpClient { requests: 5, ..builtin::HttpClient::default() };
        of.templates[0].client = client.program("http").unwrap();
        of.templates[0].server = builtin::http_server("http", 10_000).unwrap();
        of.templates[0].proxy = proxied.then(|| Arc::new(ProxyProtocol::default()));
        of.templates[0].tls = secure.then(|| Tls::new(&h2).unwrap());
        of.templates[0].http = Some(Http2 { streams: 3, ..Http2::default() });
        of.limits.flows = Some(20);
        let mut lab = Lab::new(&of);
        lab.run(Nanos(10_000 * MS));
        let all = lab.end().total();
        for side in [&all.client, &all.server] {
            let figures = side.http2.as_ref().unwrap();
            let found = (side.completed, side.http[1], figures.connections, figures.streams);
            assert_eq!(found, (20, 300, 20, 300), "{proxied} {secure}: {side:?}");
        }
        let asked = all.client.requests;
        assert_eq!((asked.asked, asked.sent, asked.answered), (300, 300, 300));
        assert_eq!(all.client.sent_octets, all.server.received_octets, "{proxied} {secure}");
        assert_eq!(all.server.sent_octets, all.client.received_octets, "{proxied} {secure}");
    }
    let mut of = load(open(100));
    of.templates[0].http = Some(Http2::default());
    let error = Side::new(&of, &network(1), SideSettings::default()).err().expect("no requests");
    assert!(error.to_string().contains("over HTTP/2"), "{error}");
}

#[test]
fn answers_to_early_data_begin_a_round_trip_earlier() {
    use squall_apps::{Tls, TlsSettings, builtin};
    // All servers have one name, so a ticket of one is for all.
    let server_name = Some("a.test".into());
    let settings = TlsSettings { resumption: true, server_name, ..TlsSettings::default() };
    for (early, round_trips) in [(false, 3), (true, 2)] {
        let mut of = load(open(1));
        of.templates[0].client = builtin::HttpClient::default().program("http").unwrap();
        of.templates[0].server = builtin::http_server("http", 1_000).unwrap();
        let mut tls = Tls::new(&settings).unwrap();
        if early {
            tls.enable_early_data().unwrap();
        }
        of.templates[0].tls = Some(tls);
        of.limits.flows = Some(5);
        let mut lab = Lab::new(&of);
        lab.wires.iter_mut().for_each(|wire| wire.delay = Nanos(20 * MS));
        lab.run(Nanos(20_000 * MS));
        let all = lab.end().total();
        let of_flows = &all.client.first_byte_from_start;
        let round_trip = 40 * MS;
        let found = (of_flows.quantile(0.5) + round_trip / 2) / round_trip;
        assert_eq!((all.client.completed, of_flows.count(), found), (5, 5, round_trips));
        for (side, offered) in [(&all.client, 4), (&all.server, 0)] {
            let tls = side.tls.as_ref().unwrap();
            let accepted = if early { 4 } else { 0 };
            let offered = if early { offered } else { 0 };
            let found = (tls.resumed, tls.early_offered, tls.early_accepted);
            assert_eq!(found, (4, offered, accepted));
            assert_eq!(tls.early_octets_accepted > 0, early);
            assert_eq!((tls.early_refused, tls.early_octets_refused), (0, 0));
        }
    }
}

#[test]
fn flows_over_http3_have_all_requests_of_their_streams() {
    use squall_apps::{Http3, Tls, TlsSettings, builtin};
    let h3 = TlsSettings { alpn: vec!["h3".into()], ..TlsSettings::default() };
    let mut of = load(open(100));
    let client = builtin::HttpClient { requests: 5, ..builtin::HttpClient::default() };
    of.templates[0].client = client.program("http").unwrap();
    of.templates[0].server = builtin::http_server("http", 10_000).unwrap();
    of.templates[0].tls = Some(Tls::new(&h3).unwrap());
    of.templates[0].http3 = Some(Http3 { streams: 3, ..Http3::default() });
    of.limits.flows = Some(20);
    let mut lab = Lab::new(&of);
    lab.run(Nanos(30_000 * MS));
    let all = lab.end().total();
    for side in [&all.client, &all.server] {
        let figures = side.http3.as_ref().unwrap();
        let found = (side.completed, side.http[1], figures.connections, figures.streams);
        assert_eq!(found, (20, 300, 20, 300), "{side:?}");
        assert_eq!((side.established, side.active), (20, 0));
    }
    assert!(all.client.setup.count() == 20, "the time of the handshakes");
    let asked = all.client.requests;
    assert_eq!((asked.asked, asked.sent, asked.answered), (300, 300, 300));
    assert_eq!(all.client.sent_octets, all.server.received_octets);
    assert_eq!(all.server.sent_octets, all.client.received_octets);

    let refused = |change: fn(&mut Template)| {
        let mut of = of.clone();
        change(&mut of.templates[0]);
        let settings = SideSettings { origin: Some(Instant::now()), ..SideSettings::default() };
        let error = Side::new(&of, &network(1), settings).err().expect("refused");
        error.to_string()
    };
    assert!(refused(|of| of.tls = None).contains("try tls = true"));
    let h2 = |of: &mut Template| of.tls = Some(Tls::new(&TlsSettings::default()).unwrap());
    assert!(refused(h2).contains("lacks \"h3\""));
    let ping = |of: &mut Template| of.client = load(open(1)).templates[0].client.clone();
    assert!(refused(ping).contains("over HTTP/2"));
    let error = Side::new(&of, &network(1), SideSettings::default()).err().expect("no clock");
    assert!(error.to_string().contains("origin"), "{error}");
}

/// Lets the clients of the template move three times in 6 requests: at the second, fourth and sixth.
fn let_clients_move(of: &mut Load, to: MigrateTo, rebind_after: u32) {
    use squall_apps::{Http3, Tls, TlsSettings, builtin};
    let h3 = TlsSettings { alpn: vec!["h3".into()], ..TlsSettings::default() };
    let client = builtin::HttpClient { requests: 6, ..builtin::HttpClient::default() };
    let template = &mut of.templates[0];
    template.client = client.program("http").unwrap();
    template.server = builtin::http_server("http", 10_000).unwrap();
    template.tls = Some(Tls::new(&h3).unwrap());
    let http3 = Http3 { migrate_after: 2, migrate_to: to, rebind_after, ..Http3::default() };
    template.http3 = Some(http3);
}

#[test]
fn connections_of_hosts_move_to_addresses_of_other_hosts() {
    let mut load = load_of_hosts(100);
    let_clients_move(&mut load, MigrateTo::Address, 0);
    load.limits.flows = Some(6);
    let mut lab = Lab::new(&load);
    lab.sides[0].use_hosts(&load, &[Some(two_hosts(0, network(2).mac))]);
    let mut senders = BTreeSet::new();
    while !lab.sides[0].is_over() && lab.now < Nanos(60_000 * MS) {
        lab.turn();
        let is_udp = |frame: &[u8]| be16(frame, 12) == 0x800 && frame[23] == 17;
        let sent = lab.wires[0].frames.iter().filter(|(_, frame)| is_udp(frame));
        senders.extend(sent.map(|(_, frame)| (frame[11], frame[29], be16(frame, 34))));
        lab.now = lab.now + Nanos(10_000);
    }
    let all = lab.end().total();
    let figures = all.client.http3.as_ref().unwrap();
    assert_eq!((all.client.completed, figures.streams, figures.migrations), (6, 36, 18));
    assert!(figures.not_moved.is_empty(), "{figures:?}");
    assert_eq!(all.server.http3.as_ref().unwrap().migrations, 18);
    // Each with its MAC address; a flow has four ends.
    assert!(senders.iter().all(|(mac, address, _)| matches!((mac, address), (1, 0) | (3, 2))));
    assert_eq!(senders.len(), 24, "{senders:?}");
}

#[test]
fn connections_without_another_address_stay() {
    let mut of = load(open(100));
    of.clients = vec![pool("16.0.0.1", 1024..=65535)];
    let_clients_move(&mut of, MigrateTo::Address, 0);
    of.limits.flows = Some(2);
    let mut lab = Lab::new(&of);
    lab.run(Nanos(30_000 * MS));
    let all = lab.end().total().client;
    let figures = all.http3.as_ref().unwrap();
    assert_eq!((all.completed, figures.migrations), (2, 0));
    assert_eq!(figures.not_moved, [("no_address", 6)].into());
}

#[test]
fn messages_with_the_port_of_a_client_keep_their_length_if_it_moves() {
    use squall_apps::builtin;
    let mut of = load(open(100));
    // First four digits, then five.
    of.clients = vec![pool("16.0.0.1", 1024..=65535)];
    let_clients_move(&mut of, MigrateTo::Port, 0);
    let headers = vec![("x-from".into(), "${client_port}".into())];
    let client = builtin::HttpClient { requests: 12, headers, ..builtin::HttpClient::default() };
    of.templates[0].client = client.program("http").unwrap();
    of.limits.flows = Some(4);
    // Without room for all streams, requests wait while others move the connection.
    for max_streams in [100, 1] {
        let http3 = of.templates[0].http3.as_mut().unwrap();
        (http3.streams, http3.max_streams) = (3, max_streams);
        let mut lab = Lab::new(&of);
        lab.run(Nanos(30_000 * MS));
        let all = lab.end().total().client;
        let figures = all.http3.as_ref().unwrap();
        assert_eq!((all.completed, figures.streams), (4, 144), "{max_streams}: {figures:?}");
        assert!(figures.migrations > 0);
    }
}

#[test]
fn workers_of_a_server_find_the_connections_of_clients_that_move() {
    let of_port = move_among_workers(MigrateTo::Port);
    assert_eq!(of_port, 20, "each client has its address");
    let of_address = move_among_workers(MigrateTo::Address);
    assert!(of_address > 30, "{of_address}");
}

/// Lets 20 clients move to ends of other workers of their server. Returns the number of addresses
/// from which they have sent.
fn move_among_workers(to: MigrateTo) -> usize {
    let mut of = load(open(100));
    let_clients_move(&mut of, to, 5);
    of.limits.flows = Some(20);
    let side = |role, mac, worker| {
        let settings = SideSettings {
            role,
            worker,
            start: Nanos(MS),
            origin: Some(Instant::now()),
            ..SideSettings::default()
        };
        Side::new(&of, &network(mac), settings).expect("a good load")
    };
    let mut clients = side(Role::Clients, 1, (0, 1));
    let mut servers = [0, 1].map(|worker| side(Role::Servers, 2, (worker, 2)));
    let mut wires = [Wire::new(1), Wire::new(2), Wire::new(3)];
    let mut now = Nanos(0);
    let take = |side: &mut Side, now, frame: &[u8]| {
        side.receive(now, frame, ReceiveOffloads::default(), FlowHint::default());
    };
    let (mut handed, mut senders) = (0, BTreeSet::new());
    while !clients.is_over() && now < Nanos(60_000 * MS) {
        for frame in wires[0].arrived(now) {
            if be16(&frame, 12) == 0x800 {
                senders.insert(frame[26..30].to_vec());
            }
            // The port's steering knows only the addresses and ports.
            let came = match servers[0].link.owner(&frame, (0, 2)) {
                FrameOwner::Other(worker) => worker as usize,
                FrameOwner::Here | FrameOwner::All => 0,
            };
            match servers[came].owner(&frame) {
                FrameOwner::Here => take(&mut servers[came], now, &frame),
                FrameOwner::Other(worker) => {
                    handed += 1;
                    take(&mut servers[worker as usize], now, &frame);
                }
                FrameOwner::All => {
                    take(&mut servers[came], now, &frame);
                    servers[1 - came].learn_neighbor(&frame);
                }
            }
        }
        for wire in &mut wires[1..] {
            wire.arrived(now).iter().for_each(|frame| take(&mut clients, now, frame));
        }
        let [to_servers, from_servers @ ..] = &mut wires;
        let all = [&mut clients].into_iter().chain(&mut servers);
        for (side, wire) in all.zip([to_servers].into_iter().chain(from_servers)) {
            side.advance(now);
            side.begin(now, 64);
            wire.now = now;
            side.transmit(now, wire);
        }
        now = now + Nanos(20_000);
    }
    let all = clients.statistics(true).total().client;
    let figures = all.http3.as_ref().unwrap();
    assert_eq!((all.completed, all.http[1], figures.streams), (20, 120, 120), "{all:?}");
    // At the second, fourth and sixth request of each, and at the fifth.
    assert_eq!((figures.migrations, figures.rebindings), (60, 20), "{figures:?}");
    assert!(figures.not_moved.is_empty(), "{figures:?}");
    let of_servers = servers.each_ref().map(|side| side.statistics(true).total().server);
    let [one, other] = of_servers.each_ref().map(|side| side.http3.as_deref().unwrap());
    let all = (one.migrations + other.migrations, one.paths_failed + other.paths_failed);
    assert_eq!(all, (80, 0), "{one:?} {other:?}, {now:?}");
    assert_eq!(of_servers.iter().map(|side| side.attempted).sum::<u64>(), 20);
    assert!(one.migrations > 0 && other.migrations > 0 && handed > 0, "{one:?} {other:?} {handed}");
    senders.len()
}

#[test]
fn open_flows_are_listed() {
    let mut of = load(open(1000));
    // The server waits for more octets than the client sends.
    of.templates[0].server = Program::server("mute").recv(5).build().unwrap();
    of.limits = Limits { flows: Some(5), ..Limits::default() };
    let mut lab = Lab::new(&of);
    lab.run(Nanos(100 * MS));
    let seen = |side: usize, from, most| -> Vec<OpenFlow> {
        lab.sides[side].look(lab.now, from, most).collect()
    };
    let (clients, servers) = (seen(0, 0, 100), seen(1, 0, 100));
    assert_eq!((clients.len(), servers.len(), lab.sides[0].records()), (5, 5, 5));
    for (number, (client, server)) in (1u8..).zip(clients.iter().zip(&servers)) {
        let (c, s) = (&client.tcp, &server.tcp);
        assert_eq!((c.passive, s.passive), (false, true));
        assert_eq!(c.tuple.local, IpAddr::from([16, 0, 0, number]));
        assert_eq!((c.tuple.local, c.tuple.local_port), (s.tuple.remote, s.tuple.remote_port));
        assert_eq!((c.tuple.remote, c.tuple.remote_port), (s.tuple.local, s.tuple.local_port));
        assert_eq!((c.state, s.state), (FlowState::Established, FlowState::Established));
        assert!(c.timestamps && c.sack && c.wscale.is_some() && c.wscale == s.wscale);
        // A round trip in milliseconds of the timestamp clock; the client's includes a delayed
        // acknowledgment.
        assert!((1..2 * MS).contains(&s.srtt.0) && s.rto > s.srtt, "{s:?}");
        assert!(s.srtt < c.srtt && c.srtt.0 < 50 * MS && c.rto > c.srtt, "{c:?}");
        assert!(c.flight == 0 && c.cwnd > 1000 && c.send_window > 1000, "{c:?}");
        // Flow n is due n - 1 ms after the start, which is at 1 ms.
        let lasted = client.lasted.expect("a client's").0 / MS;
        assert!((100 - 1 - u64::from(number)..=100 - u64::from(number)).contains(&lasted));
        assert_eq!(server.lasted, None);
    }
    assert_eq!((seen(0, 0, 2), seen(0, 2, 100)), (clients[..2].to_vec(), clients[2..].to_vec()));
    assert!(seen(0, 5, 100).is_empty());
}

#[test]
fn senders_that_are_ignored_have_no_flow_and_no_answer() {
    let mut of = load(open(1000));
    of.limits = Limits { flows: Some(300), ..Limits::default() };
    let mut lab = Lab::new(&of);
    // The first address requests the neighbors' MAC addresses.
    let ips = (51..=100u8).map(|n| IpAddr::from([16, 0, 0, n])).collect();
    lab.sides[1].ignore(&Arc::new(Ignored { ips, ..Ignored::default() }));
    lab.run(Nanos(100 * MS));
    let counts = |lab: &Lab| {
        let [clients, servers] = lab.sides.each_ref().map(|side| side.statistics(false));
        let (completed, ignored) = (clients.total().client.completed, servers.link.ignored);
        (completed, ignored, clients.link.ignored)
    };
    let (completed, ignored, _) = counts(&lab);
    assert!((45..=50).contains(&completed) && ignored >= 45, "{completed}, {ignored}");
    // Accepts all senders again, except the servers' interface.
    lab.sides[1].ignore(&Arc::default());
    let macs = [network(2).mac].into();
    lab.sides[0].ignore(&Arc::new(Ignored { macs, ..Ignored::default() }));
    lab.run(Nanos(200 * MS));
    let (then, still, received) = counts(&lab);
    assert!(
        then <= completed + 1 && still == ignored && received > 50,
        "{then}, {still}, {received}"
    );
    lab.sides[0].ignore(&Arc::default());
    lab.run(Nanos(60_000 * MS));
    let all = lab.end().total();
    assert_eq!(all.client.completed, 300, "what was sent again was received: {all:?}");
}

#[test]
fn clients_that_are_disabled_begin_no_flow_and_others_begin_theirs() {
    let mut of = load(open(1000));
    of.templates[0].server = Program::server("mute").recv(5).build().unwrap();
    let mut lab = Lab::new(&of);
    let disabled = |clients: &mut dyn Iterator<Item = u8>| {
        let clients = clients.map(|n| IpAddr::from([16, 0, 0, n])).collect();
        Arc::new(Ignored { clients, ..Ignored::default() })
    };
    lab.sides[0].ignore(&disabled(&mut (2..=41)));
    lab.run(Nanos(201 * MS));
    let by_client = |lab: &Lab| {
        let mut all = std::collections::BTreeMap::<u8, u32>::new();
        for flow in lab.sides[0].look(lab.now, 0, 1000) {
            let IpAddr::V4(ip) = flow.tcp.tuple.local else { panic!("{flow:?}") };
            *all.entry(ip.octets()[3]).or_default() += 1;
        }
        all
    };
    let then = by_client(&lab);
    assert_eq!(then.values().sum::<u32>(), 200);
    assert!(then.len() == 60 && then.keys().all(|n| !(2..=41).contains(n)), "{then:?}");
    // More consecutive disabled clients than one flow tries.
    lab.sides[0].ignore(&disabled(&mut (1..=100)));
    lab.run(Nanos(251 * MS));
    let not_begun = lab.sides[0].statistics(false).total().client.not_begun;
    assert_eq!(not_begun.iter().collect::<Vec<_>>(), [("disabled", 50)]);
    lab.sides[0].ignore(&Arc::default());
    lab.run(Nanos(310 * MS));
    assert_eq!(by_client(&lab).values().sum::<u32>(), 259);
}

#[test]
fn frames_of_ignored_services_belong_to_no_flow() {
    for (port, services) in [
        (179, Services { bgp: true, ..Services::default() }),
        (65_281, Services { high: true, ..Services::default() }),
    ] {
        let mut of = load(open(1000));
        of.templates[0].port = port;
        of.limits = Limits { flows: Some(10), ..Limits::default() };
        let others = Services { dhcp: true, mdns: true, ..Services::default() };
        for (services, completed) in [(services, 0), (others, 10)] {
            let mut lab = Lab::new(&of);
            lab.sides[1].ignore(&Arc::new(Ignored { services, ..Ignored::default() }));
            lab.run(Nanos(100 * MS));
            let all = lab.sides[0].statistics(false).total();
            assert_eq!((all.client.attempted, all.client.completed), (10, completed), "{port}");
            assert_eq!(lab.sides[1].statistics(false).link.ignored > 0, completed == 0);
        }
    }
}

/// `load` with another template, whose server replies after `ms` milliseconds.
fn with_slow(load: &Load, port: u16, ms: u64) -> Load {
    let (mut new, wait) = (load.clone(), format!("{ms}ms"));
    new.templates.retain(|template| !template.gone);
    new.templates.push(Template {
        port,
        server: Program::server("slow").recv(4).delay(&wait).send("pong").build().unwrap(),
        ..template("slow", open(1000))
    });
    new.clients.push(pool("17.0.0.1-17.0.0.9", 1024..=65535));
    let own = new.templates.len() - 1;
    new.templates[own].clients = new.clients.len() - 1;
    new
}

impl Lab {
    fn change(&mut self, from: &Load, to: &Load) -> Load {
        let joined = from.joined(to);
        from.can_become(&joined).expect("it can");
        for side in &mut self.sides {
            side.change(self.now, &joined);
            let new = from.templates.len()..joined.templates.len();
            new.for_each(|number| side.begin_template(self.now, number));
        }
        joined
    }

    fn both(&self) -> Statistics {
        let mut all = self.sides[0].statistics(true);
        all.merge(&self.sides[1].statistics(true));
        all
    }
}

#[test]
fn templates_come_and_go_while_others_are_played() {
    let only = load(open(1000));
    let mut lab = Lab::new(&only);
    lab.run(Nanos(101 * MS));
    // The new template begins now, not at the start of the load.
    let both = lab.change(&only, &with_slow(&only, 81, 10_000));
    lab.run(Nanos(201 * MS));
    let all = lab.both();
    let slow = &all.templates[1];
    assert_eq!((slow.client.attempted, slow.client.active, slow.server.active), (100, 100, 100));
    // Counted from the time at which the template joined.
    assert_eq!((all.steady.0.div_ceil(MS), slow.client.steady.attempted), (100, 100));
    assert_eq!(slow.client.not_begun.total(), 0);

    let without = lab.change(&both, &only);
    assert_eq!(without.templates.len(), 2);
    lab.run(Nanos(301 * MS));
    let all = lab.both();
    let slow = &all.templates[1];
    assert_eq!((slow.client.active, slow.server.active), (0, 0));
    assert_eq!((slow.client.attempted, slow.client.failed.total()), (100, 100));
    assert_eq!(slow.client.failed.get(Failure::Stopped), 100);

    // A new template with the same name is a different template, with its own server at the same
    // port.
    let again = lab.change(&without, &with_slow(&without, 81, 1));
    assert_eq!((again.templates.len(), again.clients.len()), (3, 2));
    lab.run(Nanos(401 * MS));
    let all = lab.end();
    let completed = |i: usize| {
        let of = &all.templates[i];
        (of.client.completed, of.server.completed, of.client.failed.total())
    };
    assert_eq!(completed(1), (0, 0, 100));
    assert_eq!(completed(2), (101, 101, 0));
    assert_eq!(completed(0), (401, 401, 0));
}

#[test]
fn a_template_joins_where_all_flows_had_begun() {
    let mut only = load(open(1000));
    only.templates[0].limit = Some(10);
    let mut lab = Lab::new(&only);
    lab.run(Nanos(100 * MS));
    assert!(lab.sides[0].is_over());
    let arrivals = lab.sides[0].statistics(true).arrivals;
    assert_eq!(arrivals, Nanos(10 * MS));
    lab.now = Nanos(100 * MS);
    lab.change(&only, &with_slow(&only, 81, 1));
    assert!(!lab.sides[0].is_over());
    lab.run(Nanos(150 * MS));
    let all = lab.end();
    assert_eq!((all.templates[0].client.completed, all.templates[1].client.completed), (10, 51));
}

#[test]
fn servers_keep_their_way_to_find_a_template() {
    let only = load(open(1000));
    let same_port = with_slow(&only, 80, 1);
    let error = only.can_become(&only.joined(&same_port)).expect_err("both at port 80");
    assert!(error.contains("port 80"), "{error}");
    let other = with_slow(&only, 81, 1);
    let both = only.joined(&other);
    assert_eq!(only.can_become(&both), Ok(()));
    // Once it is gone, another template may use its port.
    let gone = both.joined(&only);
    assert_eq!(both.can_become(&gone), Ok(()));
    assert_eq!(gone.can_become(&gone.joined(&other)), Ok(()));
    assert!(gone.can_become(&both).is_err(), "it does not come back");
    let limited = Load { limits: Limits { flows: Some(9), ..Limits::default() }, ..only.clone() };
    let joined = limited.joined(&Load { limits: limited.limits, ..other });
    assert!(limited.can_become(&joined).is_err());
}

/// Pages whose parts are fetched by separate flows; one of the parts names the next one.
fn pages() -> Load {
    let mut of = load(open(200));
    let of_page = [
        "set began clock",
        "loop 3",
        "begin part",
        "count parts",
        "end",
        "count waited elapsed began",
        "begin",
        "send \"done\"",
    ];
    of.templates[0].client = Program::client("page").lines(of_page).recv(2).build().unwrap();
    of.templates[0].server = Program::server("page").recv(4).send("ok").build().unwrap();
    let part = |name: &str, client, server| Template {
        name: name.into(),
        client,
        server,
        arrival: Arrival::Called,
        ..of.templates[0].clone()
    };
    let client = Program::client("part").lines(["next \"the name\""]).send("GET").recv(20_000);
    let server = Program::server("part").recv(3).send(&"x".repeat(20_000)).line("count served");
    let name = Program::udp_client("name").send("?").line("recv_packets 1 within 1 s");
    let answer = Program::udp_server("name").line("recv_packets 1").send("!");
    let parts = [
        part("part", client.build().unwrap(), server.build().unwrap()),
        part("the name", name.build().unwrap(), answer.build().unwrap()),
    ];
    of.templates.extend(parts);
    of.limits = Limits { flows: Some(50), ..Limits::default() };
    of.drain = Nanos(60_000 * MS);
    of
}

#[test]
fn flows_begin_flows_of_the_same_ends_and_wait_for_them() {
    for workers in [1, 3] {
        let mut all = Statistics::default();
        let mut begun = Vec::new();
        for worker in 0..workers {
            let mut lab = Lab::with(&pages(), network(1), network(2), (worker, workers));
            while !lab.sides[0].is_over() {
                lab.turn();
                let just_now = lab.now + lab.wires[0].delay;
                let syn = |frame: &[u8]| frame.len() > 47 && frame[23] == 6 && frame[47] == 2;
                let sent = lab.wires[0].frames.iter().filter(|(at, _)| *at == just_now);
                begun.extend(sent.filter(|(_, frame)| syn(frame)).map(|(_, f)| f[26..34].to_vec()));
                lab.now = just_now;
            }
            assert_eq!(lab.sides[0].stack.app().apps.held(), 0);
            all.merge(&lab.end());
        }
        let [page, part, name] = &all.templates[..] else { panic!("three templates") };
        let counts = |of: &FlowStatistics| (of.attempted, of.completed);
        for side in [&page.client, &page.server, &name.client, &name.server] {
            assert_eq!(counts(side), (50, 50), "{workers} workers: {side:?}");
        }
        assert_eq!(counts(&part.client), (150, 150), "{workers} workers");
        assert_eq!(counts(&part.server), (150, 150), "{workers} workers");
        assert_eq!(part.client.received_octets, 150 * 20_000);
        assert_eq!(page.client.counted[0], ("parts".into(), 150));
        let (waited, millis) = &page.client.counted[1];
        assert!(&**waited == "waited" && *millis < 50 * 100, "{millis} ms");
        assert_eq!(part.server.counted, [("served".into(), 150)]);
        // A page, and its three parts.
        begun.sort_unstable();
        assert_eq!(begun.len(), 200);
        for ends in begun.chunk_by(|a, b| a == b) {
            assert_eq!(ends.len() % 4, 0, "{ends:?}");
        }
    }
}

#[test]
fn a_flow_whose_call_cannot_begin_fails_with_a_reason() {
    let mut of = pages();
    of.limits.active = Some(1);
    let mut lab = Lab::new(&of);
    lab.run(Nanos(10_000 * MS));
    let all = lab.end();
    let page = &all.templates[0].client;
    assert_eq!(page.completed, 0);
    assert_eq!(page.protocol_errors["flow_not_begun"], page.attempted);
    let of_parts = &all.templates[1].client;
    assert_eq!((of_parts.attempted, of_parts.not_begun.total()), (0, page.attempted));

    of.templates.truncate(1);
    let error = Side::new(&of, &network(1), SideSettings::default()).err().expect("no such part");
    assert!(error.to_string().contains("flows of \"part\""), "{error}");
}

#[test]
fn flows_of_flows_survive_loss_and_end_with_the_run() {
    let mut of = pages();
    of.limits.flows = Some(100);
    of.drain = Nanos(1500 * MS);
    let mut lab = Lab::new(&of);
    for wire in &mut lab.wires {
        (wire.loss, wire.duplicates, wire.reordered, wire.delay) = (30, 20, 20, Nanos(5 * MS));
    }
    // While flows are open.
    lab.run(Nanos(400 * MS));
    assert!(lab.sides[0].active() > 10);
    let all = lab.end();
    let [page, part, _] = &all.templates[..] else { panic!("three templates") };
    assert!(page.client.completed > 0 && part.client.completed > page.client.completed);
}

#[test]
fn aborted_callers_report_no_protocol_error() {
    let mut of = pages();
    of.limits = Limits::default();
    of.templates[0].arrival = open(20_000);
    of.drain = Nanos(MS);
    let mut lab = Lab::new(&of);
    for wire in &mut lab.wires {
        wire.delay = Nanos(20 * MS);
    }
    lab.run(Nanos(330 * MS));
    let all = lab.end();
    let page = &all.templates[0].client;
    // More flows than are aborted in one call.
    assert!(page.failed.get(Failure::Stopped) > 2000, "{page:?}");
    assert_eq!((page.protocol_errors.len(), page.failed.get(Failure::Aborted)), (0, 0), "{page:?}");
    let part = &all.templates[1].client;
    assert_eq!(part.not_begun.total(), 0);
    // Aborted parts do not count as received.
    let came = page.counted[0].1;
    assert!(came <= part.completed && part.failed.total() > 0, "{came} {part:?}");
}

/// A part whose program waits longer than the caller's response takes.
#[test]
fn a_flow_that_has_gone_on_is_not_woken_for_what_it_waited_for() {
    let mut of = load(open(100));
    let page = ["begin part", "delay 50 ms", "count passed", "recv 1 within 1 s", "count came"];
    of.templates[0].client = Program::client("page").lines(page).build().unwrap();
    let server = ["loop 200", "delay 1 ms", "send \"x\"", "end"];
    of.templates[0].server = Program::server("page").lines(server).build().unwrap();
    of.templates[0].client.instructions.push("recv 199".parse().unwrap());
    let part = Template {
        name: "part".into(),
        client: Program::client("part").send("?").recv(1).build().unwrap(),
        server: Program::server("part").recv(1).send("!").build().unwrap(),
        arrival: Arrival::Called,
        ..of.templates[0].clone()
    };
    of.templates.push(part);
    of.limits = Limits { flows: Some(20), ..Limits::default() };
    let mut lab = Lab::new(&of);
    lab.run(Nanos(10_000 * MS));
    let all = lab.end();
    let page = &all.templates[0].client;
    assert_eq!(page.counted, [("passed".into(), 20), ("came".into(), 20)]);
    assert_eq!((page.completed, page.protocol_errors.len()), (20, 0), "{page:?}");
    // A delay is not cut short.
    assert!(page.duration.quantile(0.0) >= 50 * MS, "{}", page.duration.quantile(0.0));
}

#[test]
fn parts_name_what_follows_by_next_alone_and_have_numbers_of_their_own() {
    for workers in [1, 2] {
        let mut seen = BTreeSet::new();
        for worker in 0..workers {
            let mut of = pages();
            // The program begins a part that does not belong to the page.
            let lines = ["begin \"the name\"", "send \"${flow:6}\"", "recv 6"];
            of.templates[1].client = Program::client("part").lines(lines).build().unwrap();
            of.templates[1].server =
                Program::server("part").recv(6).send("ok").send("okok").build().unwrap();
            let page = ["next part", "loop 2", "begin", "end", "send \"done\""];
            of.templates[0].client = Program::client("page").lines(page).recv(2).build().unwrap();
            let mut lab = Lab::with(&of, network(1), network(2), (worker, workers));
            while !lab.sides[0].is_over() {
                lab.turn();
                let just_now = lab.now + lab.wires[0].delay;
                for (_, frame) in lab.wires[0].frames.iter().filter(|(at, _)| *at == just_now) {
                    let octets = &frame[frame.len() - 6..];
                    if frame[23] == 6 && octets.iter().all(u8::is_ascii_digit) {
                        seen.insert(octets.to_vec());
                    }
                }
                lab.now = just_now;
            }
            let all = lab.end();
            let counts = |i: usize| all.templates[i].client.completed;
            assert_eq!((counts(1), counts(2)), (2 * counts(0), 2 * counts(0)));
        }
        assert_eq!(seen.len(), 100, "{workers} workers");
        assert!(seen.contains(&b"000000"[..]));
    }
}

/// Two bound hosts of three, each with its own MAC address and one next hop, the peers.
fn two_hosts(group: u8, next_hop: MacAddr) -> Arc<HostTable> {
    let table = HostTable::new(3, (MacAddr([2, 0, 0, 0, 9 + group, 1]), 1), &[]);
    for number in [0, 2] {
        let address = std::net::Ipv4Addr::new(10, 0, group, number as u8);
        table.bind(number, address.into(), next_hop);
    }
    Arc::new(table)
}

fn pool_of_hosts(group: usize) -> PoolOf {
    let stand_ins = format!("0.1.{group}.0-0.1.{group}.2");
    PoolOf { hosts: Some(group), ..pool(&stand_ins, 1024..=65535) }
}

fn load_of_hosts(cps: u64) -> Load {
    let mut load = load(open(cps));
    load.clients[0] = pool_of_hosts(0);
    load
}

#[test]
fn hosts_with_an_address_are_clients_in_turn_with_their_own_mac_addresses() {
    let load = load_of_hosts(1000);
    let mut lab = Lab::new(&load);
    lab.run(Nanos(100 * MS));
    let before = lab.sides[0].statistics(false).total().client;
    assert_eq!(
        before.not_begun.iter().collect::<Vec<_>>(),
        [("no_host", before.not_begun.total())]
    );
    assert_eq!((before.attempted, lab.wires[0].frames.len()), (0, 0));
    let table = two_hosts(0, network(2).mac);
    lab.sides[0].use_hosts(&load, &[Some(table.clone())]);
    let mut senders = BTreeMap::new();
    while lab.now < Nanos(200 * MS) {
        lab.turn();
        for (_, frame) in lab.wires[0].frames.iter().filter(|(_, frame)| be16(frame, 12) == 0x800) {
            assert_eq!(frame[..6], network(2).mac.0);
            *senders.entry((frame[11], frame[29])).or_insert(0) += 1;
        }
        lab.now = lab.now + Nanos(10_000);
    }
    assert!(table.is_in_use());
    let all = lab.end();
    assert!(!table.is_in_use(), "the last flow has ended");
    let total = all.total();
    assert_eq!(total.client.completed, total.client.attempted);
    assert!((90..=110).contains(&total.client.completed), "{:?}", total.client);
    let hosts: Vec<(u8, u8)> = senders.keys().copied().collect();
    assert_eq!(hosts, [(1, 0), (3, 2)], "MAC and IP address of each");
    let counts: Vec<i32> = senders.into_values().collect();
    assert!(counts[0].abs_diff(counts[1]) < 20, "{counts:?}");
}

#[test]
fn a_lost_address_ends_the_flows_of_its_host_alone_and_nothing_more_leaves() {
    let mut load = load_of_hosts(100);
    let waits = Program::client("waits").send("ping").delay("10 s").close();
    load.templates[0].client = waits.build().expect("a good program");
    let server = Program::server("waits").recv(4).wait_peer_close();
    load.templates[0].server = server.build().expect("a good program");
    load.limits.flows = Some(10);
    let (mut lab, table) = (Lab::new(&load), two_hosts(0, network(2).mac));
    lab.sides[0].use_hosts(&load, &[Some(table.clone())]);
    lab.run(Nanos(500 * MS));
    assert_eq!(lab.sides[0].active(), 10);
    table.unbind(2);
    lab.run(Nanos(600 * MS));
    let client = lab.sides[0].statistics(false).total().client;
    assert_eq!((client.active, client.failed.get(Failure::AddressLost)), (5, 5));
    let link = lab.sides[0].statistics(false).link;
    assert_eq!(link.address_lost, 5, "resets that no host can send");
    lab.run(Nanos(12_000 * MS));
    let client = lab.sides[0].statistics(false).total().client;
    assert_eq!((client.completed, client.failed.total()), (5, 5));
}

#[test]
fn conversations_begin_from_hosts_and_their_servers_know_which_they_are() {
    // Each server answers with another number of octets.
    let conversations = (0..8).map(|i| Conversation {
        party: Some(i as u32 / 2),
        ..conversation(i, Nanos(i as u64 * 100 * MS), 1000 + i as u16)
    });
    let script = Script { conversations: conversations.collect(), ..Script::default() };
    let mut load = scripted(Script { loops: Some(1), ..script });
    load.clients[0] = pool_of_hosts(0);
    let (mut lab, table) = (Lab::new(&load), two_hosts(0, network(2).mac));
    for side in &mut lab.sides {
        side.use_hosts(&load, &[Some(table.clone())]);
    }
    let hosts = [0, 2].map(|number| table.get(number).expect("two hosts are bound"));
    [0, 2].into_iter().for_each(|number| table.unbind(number));
    lab.run(Nanos(50 * MS));
    hosts.iter().for_each(|host| table.bind(host.number, host.address, host.next_hop));
    lab.run(Nanos(280 * MS));
    let of = |lab: &Lab, number: u32| {
        let hosted = lab.sides[0].statistics(true).hosted;
        let found = hosted.into_iter().find(|one| one.number == number);
        found.map(|one| (one.client, one.not_begun))
    };
    let no_host = Some((None, Some("no_host")));
    assert_eq!([0, 1].map(|n| of(&lab, n)), [no_host; 2], "without its first, no later one");
    lab.run(Nanos(480 * MS));
    let [Some((Some(first), None)), Some((Some(second), None))] = [2, 4].map(|n| of(&lab, n))
    else {
        panic!("both have begun: {:?}", lab.sides[0].statistics(true).hosted)
    };
    assert_ne!(first, second, "parties take turns");
    assert_eq!(of(&lab, 3), Some((Some(first), None)));
    // The host loses its address after the first conversation of its party, and gets it again.
    let lost = hosts.iter().find(|host| host.address == second).expect("one of them");
    table.unbind(lost.number);
    lab.run(Nanos(490 * MS));
    table.bind(lost.number, lost.address, lost.next_hop);
    lab.run(Nanos(2000 * MS));
    assert_eq!(of(&lab, 5), Some((None, Some("address_lost"))));
    let [Some((Some(of_6), None)), of_7] = [6, 7].map(|n| of(&lab, n)) else {
        panic!("the next party has a host: {:?}", lab.sides[0].statistics(true).hosted)
    };
    assert_eq!(of_7, Some((Some(of_6), None)));
    let total = lab.end().total();
    for end in [&total.client, &total.server] {
        assert_eq!((end.completed, end.failed.total()), (5, 0), "{end:?}");
    }
    assert_eq!(total.client.received_octets, (2 + 3 + 4 + 6 + 7) + 5 * 7);
}

#[test]
fn templates_of_hosts_that_share_servers_are_each_served_by_their_own_program() {
    let mut of = templates_of_one_server([0, 1, 0]);
    of.clients = vec![pool_of_hosts(0), pool_of_hosts(1)];
    let mut lab = Lab::new(&of);
    let tables = [0, 1].map(|group| Some(two_hosts(group, network(2).mac)));
    lab.sides[0].use_hosts(&of, &tables);
    lab.run(Nanos(5000 * MS));
    let all = lab.end();
    for of in &all.templates {
        assert_eq!((of.client.completed, of.server.completed), (100, 100));
    }
    assert_eq!(all.link.unknown_clients, 0);
}

fn load_of_server_hosts(cps: u64) -> Load {
    let mut load = load(open(cps));
    load.servers[0] = pool_of_hosts(0);
    load
}

/// Sides with the hosts of `table` as servers, whose MAC addresses the clients know.
fn lab_of_server_hosts(load: &Load, table: &Arc<HostTable>) -> Lab {
    lab_of_tables(load, [table, table])
}

/// As [`lab_of_server_hosts`], where each side has its own table.
fn lab_of_tables(load: &Load, tables: [&Arc<HostTable>; 2]) -> Lab {
    let peer = |number: u8| Interface {
        of: InterfaceOf::Peer,
        addresses: format!("10.0.0.{number}").parse().unwrap(),
        mac: None,
        wraps: Vec::new(),
        next_hop: Some(MacAddr([2, 0, 0, 0, 9, 1 + number])),
    };
    let clients = Network { interfaces: [0, 1, 2].map(peer).to_vec(), ..network(1) };
    let mut lab = Lab::with(load, clients, network(2), (0, 1));
    for (side, table) in lab.sides.iter_mut().zip(tables) {
        side.use_hosts(load, &[Some(table.clone())]);
    }
    lab
}

#[test]
fn hosts_with_an_address_are_servers_in_turn_with_their_own_mac_addresses() {
    let (load, table) = (load_of_server_hosts(1000), two_hosts(0, network(1).mac));
    let mut lab = lab_of_server_hosts(&load, &table);
    [0, 2].into_iter().for_each(|number| table.unbind(number));
    lab.run(Nanos(100 * MS));
    let before = lab.sides[0].statistics(false).total().client;
    let missed = before.not_begun.total();
    assert_eq!(before.not_begun.iter().collect::<Vec<_>>(), [("no_host", missed)]);
    assert_eq!((before.attempted, missed > 50, lab.wires[0].frames.len()), (0, true, 0));
    for number in [0, 2] {
        let address = std::net::Ipv4Addr::new(10, 0, 0, number as u8);
        table.bind(number, address.into(), network(1).mac);
    }
    let (mut receivers, mut senders) = (BTreeMap::new(), BTreeSet::new());
    while lab.now < Nanos(200 * MS) {
        lab.turn();
        for (_, frame) in &lab.wires[0].frames {
            *receivers.entry((frame[5], frame[33])).or_insert(0u32) += 1;
        }
        for (_, frame) in &lab.wires[1].frames {
            assert_eq!(frame[..6], network(1).mac.0);
            senders.insert((frame[11], frame[29]));
        }
        lab.now = lab.now + Nanos(10_000);
    }
    assert!(table.is_in_use());
    let total = lab.end().total();
    assert!(!table.is_in_use(), "the last flow has ended");
    assert_eq!(total.client.completed, total.client.attempted);
    assert_eq!(total.server.completed, total.client.attempted);
    assert!((90..=110).contains(&total.client.completed), "{:?}", total.client);
    let hosts: Vec<(u8, u8)> = receivers.keys().copied().collect();
    assert_eq!(hosts, [(1, 0), (3, 2)], "MAC and IP address of each");
    assert_eq!(senders.into_iter().collect::<Vec<_>>(), hosts);
    let counts: Vec<u32> = receivers.into_values().collect();
    assert!(counts[0].abs_diff(counts[1]) < 20, "{counts:?}");
}

/// Flows that stay open for ten seconds.
fn waiting(load: Load) -> Load {
    let mut load = load;
    let waits = Program::client("waits").send("ping").delay("10 s").close();
    load.templates[0].client = waits.build().expect("a good program");
    let server = Program::server("waits").recv(4).wait_peer_close();
    load.templates[0].server = server.build().expect("a good program");
    load
}

#[test]
fn a_server_that_loses_its_address_ends_its_flows_with_the_reason() {
    let mut load = waiting(load_of_server_hosts(100));
    load.limits.flows = Some(30);
    let table = two_hosts(0, network(1).mac);
    let mut lab = lab_of_server_hosts(&load, &table);
    // Runs until this many flows have begun. Returns the numbers of open and of lost ones.
    let mut after = |flows: u64| loop {
        lab.run(lab.now + Nanos(MS));
        let all = lab.sides[1].statistics(false);
        let server = all.total().server;
        if server.attempted >= flows {
            let lost = server.failed.get(Failure::AddressLost);
            assert_eq!(all.link.address_lost, lost, "a reset for each, which no host can send");
            return (server.active, lost);
        }
    };
    assert_eq!(after(10), (10, 0));
    table.unbind(2);
    assert_eq!(after(20), (15, 5), "the other host has all that follow");
    table.bind(2, std::net::Ipv4Addr::new(10, 0, 0, 2).into(), network(1).mac);
    table.unbind(0);
    assert_eq!(after(30), (10, 20), "with an address again, the host is a server again");
    table.unbind(2);
    assert_eq!(after(30), (0, 30));
}

#[test]
fn hosts_that_are_servers_keep_their_addresses_until_the_last_flow_has_ended() {
    let mut load = load_of_server_hosts(1000);
    let server = Program::server("web").recv(4).send("pong").wait_peer_close();
    load.templates[0].server = server.build().expect("a good program");
    load.limits.flows = Some(3);
    let table = two_hosts(0, network(1).mac);
    let mut lab = lab_of_server_hosts(&load, &table);
    assert_eq!(table.users(), 2, "clients and servers");
    lab.run(Nanos(5000 * MS));
    // The last acknowledgment is on its way.
    assert_eq!((lab.sides[0].is_over(), lab.sides[1].active()), (true, 1));
    assert_eq!(table.users(), 1);
    lab.now = lab.now + lab.wires[0].delay;
    lab.turn();
    assert_eq!((lab.sides[1].active(), table.is_in_use()), (0, false));
    assert_eq!(lab.sides[1].statistics(false).total().server.completed, 3);
}

#[test]
fn flows_that_never_end_keep_the_addresses_of_servers_for_the_drain_time() {
    let mut load = waiting(load_of_server_hosts(100));
    load.limits.duration = Some(Nanos(100 * MS));
    load.drain = Nanos(200 * MS);
    let table = two_hosts(0, network(1).mac);
    let mut lab = lab_of_server_hosts(&load, &table);
    lab.run(Nanos(100 * MS));
    lab.wires.iter_mut().for_each(|wire| wire.loss = 1000);
    lab.sides[0].stop(lab.now);
    lab.run(Nanos(5000 * MS));
    assert!(lab.sides[0].is_over() && lab.sides[1].active() > 5);
    lab.turn();
    let due = lab.sides[1].next_due().expect("the end of the drain time");
    assert!(due <= lab.now + load.drain, "{due:?} at {:?}", lab.now);
    assert!(lab.sides[1].uses_hosts() && table.is_in_use());
    lab.now = lab.now + load.drain;
    lab.turn();
    assert!(!lab.sides[1].uses_hosts() && !table.is_in_use());
    assert!(lab.sides[1].active() > 5, "they stay open until the end of the run");
}

#[test]
fn the_end_of_a_run_waits_for_flows_of_other_clients_for_the_drain_time_alone() {
    for (has_own, duration) in [(true, None), (false, None), (false, Some(Nanos(600 * MS)))] {
        let mut load = waiting(load_of_server_hosts(100));
        load.limits.flows = Some(5);
        load.limits.duration = duration;
        load.drain = Nanos(200 * MS);
        let tables = [0, 1].map(|_| two_hosts(0, network(1).mac));
        // Clients that do not use the table of the servers are not those of the run.
        let of_clients = if has_own { &tables[1] } else { &tables[0] };
        let mut lab = lab_of_tables(&load, [of_clients, &tables[1]]);
        lab.run(Nanos(500 * MS));
        assert_eq!(lab.sides[1].active(), 5);
        assert!(lab.sides[1].uses_hosts());
        assert_eq!(lab.sides[1].awaits_last_flows(), has_own);
        let Some(end) = duration else { continue };
        lab.run(end + Nanos(5 * MS));
        lab.turn();
        assert!(lab.sides[1].awaits_last_flows(), "for the drain time");
        lab.run(end + load.drain + Nanos(20 * MS));
        assert!(!lab.sides[1].awaits_last_flows() && lab.sides[1].active() == 5);
    }
}

#[test]
fn addresses_that_hosts_have_lost_are_forgotten_with_their_flows() {
    let load = waiting(load_of_hosts(1000));
    let (mut lab, table) = (Lab::new(&load), two_hosts(0, network(2).mac));
    lab.sides[0].use_hosts(&load, &[Some(table.clone())]);
    for lease in 1..50 {
        lab.run(Nanos(lease * 10 * MS));
        let address = std::net::Ipv4Addr::new(10, 1, 0, lease as u8);
        table.bind(2, address.into(), network(2).mac);
        lab.run(Nanos(lease * 10 * MS + 5 * MS));
        assert_eq!(lab.sides[0].link.known_hosts(), 2, "lease {lease}");
    }
    let all = lab.sides[0].statistics(false);
    let lost = all.total().client.failed.get(Failure::AddressLost);
    assert!(lost > 100, "{lost}");
    assert_eq!(all.link.unresolved, 0, "no reset is taken for a packet of a pool");
}

#[test]
fn flows_that_flows_begin_go_to_the_same_host() {
    let mut of = pages();
    of.servers[0] = pool_of_hosts(0);
    let mut lab = lab_of_server_hosts(&of, &two_hosts(0, network(1).mac));
    let mut begun = Vec::new();
    while !lab.sides[0].is_over() {
        lab.turn();
        let just_now = lab.now + lab.wires[0].delay;
        let syn = |frame: &[u8]| frame.len() > 47 && frame[23] == 6 && frame[47] == 2;
        let sent = lab.wires[0].frames.iter().filter(|(at, _)| *at == just_now);
        begun.extend(sent.filter(|(_, frame)| syn(frame)).map(|(_, f)| f[26..34].to_vec()));
        lab.now = just_now;
    }
    let all = lab.end();
    assert_eq!((all.templates[0].client.completed, all.templates[1].server.completed), (50, 150));
    begun.sort_unstable();
    assert_eq!(begun.len(), 200);
    // A page, and its three parts.
    for ends in begun.chunk_by(|a, b| a == b) {
        assert_eq!(ends.len() % 4, 0, "{ends:?}");
    }
}
