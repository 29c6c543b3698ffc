use std::{io, sync::Arc, time::Duration};

use squall_apps::Program;
use squall_flows::{
    Arrival, Cps, Ends, Limits, Network, NextHop, Order, Part, Pool, Spacing, Template,
};
use squall_host::HostTable;
use squall_plan::{Plan, PlanPort, PlanWorker};
use squall_port::{Port, RxQueue, TxQueue};
use squall_profile::Stop;
use squall_program::clock::Planned;
use squall_tcp::Tunables;
use squall_units::MacAddr;

use super::*;
use crate::{Outcome, Running, Settings, pacing::PortPace, source::Outlet, start};

const MS: u64 = 1_000_000;

/// A worker's waits with these flows and lanes, in microseconds, if as many streams begin every 100
/// us.
fn gathered_us(streams: u64, flows: usize, lanes: usize) -> Option<u64> {
    let mut pace = Pace::default();
    let mut gathered = None;
    for wake in 0..1_000 {
        let now = Nanos(wake * 100_000);
        pace.moved = true;
        let open = || OpenCounts { flows, lanes };
        gathered = pace.gathers(now, open, || wake * streams).map(|time| time.0 / 1_000);
    }
    gathered
}

#[test]
fn frames_gather_for_many_flows_and_longer_for_lanes() {
    assert_eq!(gathered_us(2, 31, 0), None);
    assert_eq!(gathered_us(2, 31, 31), None);
    assert_eq!(gathered_us(0, 4, 32), None, "no answers");
    assert_eq!(gathered_us(2, 32, 0), Some(50));
    // A stream every 20 us: 32 lanes have begun theirs after 640 us, of which a third is 213 us.
    assert_eq!(gathered_us(5, 4, 32), Some(213));
    assert_eq!(gathered_us(5, 4, 1_000), Some(500));
    assert_eq!(gathered_us(1, 4, 1_000), None, "5 answers in 500 us");
    assert_eq!(gathered_us(50, 4, 60), Some(50));
}

fn pool(range: &str) -> Pool {
    Pool {
        name: range.into(),
        ranges: vec![range.parse().expect(range)],
        ports: 1024..=65535,
        order: Order::Random,
        hosts: None,
        shared: false,
    }
}

/// An HTTP-like load: 100 octets in the request, `answer` octets in the response.
fn load(arrival: Arrival, answer: usize) -> Load {
    let body = "x".repeat(answer);
    let template = Template {
        name: "web".into(),
        pair: 0,
        clients: 0,
        servers: 0,
        port: 80,
        client: Program::client("get").send(&"g".repeat(100)).recv(answer as u32).build().unwrap(),
        server: Program::server("give").recv(100).send(&body).wait_peer_close().build().unwrap(),
        tls: None,
        proxy: None,
        http: None,
        http3: None,
        client_tunables: Tunables::default(),
        server_tunables: Tunables::default(),
        ends: Ends::Both,
        arrival,
        limit: None,
        start: Nanos::ZERO,
        duration: None,
        waits: false,
        shape: None,
        gone: false,
        joined: false,
    };
    Load {
        clients: vec![pool("16.0.0.1-16.0.0.250")],
        servers: vec![pool("48.0.0.1-48.0.0.9")],
        templates: vec![template],
        seed: 5,
        ..Load::default()
    }
}

fn flows_of(load: Load) -> PlanFlows {
    let side = |port, role| FlowSide {
        port,
        role,
        clients: Part::ALL,
        servers: Part::ALL,
        network: Network { mac: MacAddr([2, 0, 0, 0, port as u8, 0]), ..Network::default() },
        flows: 1 << 17,
    };
    PlanFlows {
        load,
        sides: vec![side(0, Role::Clients), side(1, Role::Servers)],
        of_profile: Vec::new(),
        scripts: Vec::new(),
        notes: Vec::new(),
    }
}

/// Both ends on a loop; each of `workers` has queues for both ends, or for one.
fn run(
    flows: PlanFlows,
    address: &str,
    workers: Vec<PlanWorker>,
    faults: &str,
    stop: Stop,
) -> Outcome {
    let virtual_time = address.contains("virtual");
    let address = format!("loop:{address}{faults}");
    let ports: Vec<_> = (0..2)
        .map(|_| squall_port::open(&address.parse().expect("an address")).unwrap().expect("a loop"))
        .collect();
    let settings = Settings { virtual_time, linger: Duration::ZERO, ..Settings::default() };
    run_on(flows, ports, workers, stop, settings)
}

fn begin(
    flows: PlanFlows,
    ports: Vec<Box<dyn Port>>,
    workers: Vec<PlanWorker>,
    stop: Stop,
    settings: Settings,
) -> Running {
    let max_frame = flows.sides[0].max_frame(ports[0].facts().segmentation);
    let port = |name: &str| PlanPort {
        name: name.into(),
        address: ports[0].facts().address.clone(),
        max_frame,
        cut_frame: 0,
        elsewhere: false,
        virtual_bps: None,
    };
    let plan = Plan {
        seed: 5,
        key: 0,
        part: squall_units::Division::WHOLE,
        stop,
        counted: false,
        ports: vec![port("a"), port("b")],
        streams: Vec::new(),
        replays: Vec::new(),
        hosts: Vec::new(),
        routers: Vec::new(),
        flows: Some(Arc::new(flows)),
        afters: Vec::new(),
        workers,
        notes: Vec::new(),
    };
    start(Arc::new(plan), ports, settings, Vec::new()).expect("it starts")
}

fn run_on(
    flows: PlanFlows,
    ports: Vec<Box<dyn Port>>,
    workers: Vec<PlanWorker>,
    stop: Stop,
    settings: Settings,
) -> Outcome {
    let mut running = begin(flows, ports, workers, stop, settings);
    let begin = std::time::Instant::now();
    while !running.wait_sent(Duration::from_millis(50)) {
        let snapshots = running.snapshot(true);
        assert!(snapshots.iter().all(|s| !s.flows.is_empty()), "a run can be watched");
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not end: {snapshots:?}");
    }
    running.finish().expect("nobody panics")
}

fn both_on_one() -> Vec<PlanWorker> {
    vec![PlanWorker { tx: vec![(0, 0), (1, 0)], rx: vec![(0, 0), (1, 0)], cpu: None }]
}

/// The sum over all workers. Asserts that every flow is accounted for, and that every sent frame
/// was received unless the port lost some.
fn total(outcome: &Outcome) -> Statistics {
    let mut all = Statistics::default();
    outcome.workers.iter().flat_map(|w| &w.flows).for_each(|flows| all.merge(&flows.statistics));
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

fn open(cps: u64) -> Arrival {
    Arrival::Open { cps: Cps::per_second(cps), spacing: Spacing::Constant }
}

#[test]
fn ten_thousand_connections_on_a_loop_complete_and_none_leaks() {
    let limits = Limits { flows: Some(10_000), ..Limits::default() };
    let one_each = vec![
        PlanWorker { tx: vec![(0, 0)], rx: vec![(0, 0)], cpu: None },
        PlanWorker { tx: vec![(1, 0)], rx: vec![(1, 0)], cpu: None },
    ];
    for (name, workers, cps) in [
        ("one", both_on_one(), 20_000),
        ("apart", one_each, 10_000),
        ("virtual,virtual", both_on_one(), 1000),
    ] {
        let of = Load { limits, max_delay: Nanos(60_000 * MS), ..load(open(cps), 100) };
        let outcome = run(flows_of(of), name, workers, "", Stop::default());
        let all = total(&outcome).total();
        assert_eq!(
            (all.client.completed, all.server.completed),
            (10_000, 10_000),
            "{name}: {all:?}"
        );
        assert_eq!(all.client.received_octets, 1_000_000);
        let tx: u64 = outcome.workers.iter().flat_map(|w| &w.tx).map(|tx| tx.packets).sum();
        let rx: u64 = outcome.workers.iter().flat_map(|w| &w.rx).map(|rx| rx.seen.packets).sum();
        assert!(tx >= 70_000 && tx == rx, "{name}: {tx} sent, {rx} received");
    }
}

#[test]
fn faults_of_the_port_lose_no_octet_and_leave_no_flow() {
    let limits = Limits { flows: Some(300), ..Limits::default() };
    for (i, faults) in [
        ",drop=0.01,seed=1",
        ",drop=0.05,reorder=0.02,dup=0.02,seed=2",
        ",delay=50000000,drop=0.01,seed=3",
        ",corrupt=0.01,reorder=0.1,seed=4",
        ",full=0.3,refuse=0.01,seed=5",
    ]
    .into_iter()
    .enumerate()
    {
        let mut of = load(open(3000), 10_000);
        (of.limits, of.drain, of.max_delay) = (limits, Nanos(600_000 * MS), Nanos(60_000 * MS));
        let outcome = run(
            flows_of(of),
            &format!("faults{i},virtual"),
            both_on_one(),
            faults,
            Stop::default(),
        );
        let all = total(&outcome).total();
        assert_eq!(all.client.attempted, 300, "{faults}");
        assert_eq!(
            all.client.received_octets,
            all.client.completed * 10_000,
            "{faults}: {:?}",
            all.client
        );
        assert!(all.client.completed >= 299, "{faults}: {:?}", all.client);
        assert!(all.client.tcp.retransmits() + all.server.tcp.retransmits() > 0, "{faults}");
    }
}

/// Each worker has a queue of both ends.
fn side_by_side(workers: u32) -> Vec<PlanWorker> {
    let worker = |queue| PlanWorker {
        tx: vec![(0, queue), (1, queue)],
        rx: vec![(0, queue), (1, queue)],
        cpu: None,
    };
    (0..workers).map(worker).collect()
}

/// A loop whose queues lead to the next worker's queues.
struct Crossed {
    inner: Box<dyn Port>,
    facts: PortFacts,
    workers: u32,
}

impl Port for Crossed {
    fn facts(&self) -> &PortFacts {
        &self.facts
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        self.inner.open_tx(queue, max_frame)
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        self.inner.open_rx((queue + 1) % self.workers)
    }
}

#[test]
fn frames_at_another_worker_are_handed_to_the_one_that_has_the_flow() {
    for workers in [2, 3] {
        let address = format!("loop:crossed{workers}").parse().expect("an address");
        let open_one = || {
            let inner = squall_port::open(&address).unwrap().expect("a loop");
            let facts = PortFacts { kind: "crossed", ..inner.facts().clone() };
            Box::new(Crossed { inner, facts, workers }) as Box<dyn Port>
        };
        let limits = Limits { flows: Some(3000), ..Limits::default() };
        // Next hops are resolved, so answers arrive at other workers too.
        let of = Load { limits, max_delay: Nanos(60_000 * MS), ..load(open(8_000), 100) };
        let ports = (0..2).map(|_| open_one()).collect();
        let players = side_by_side(workers);
        // The relay delays the last frames.
        let settings = Settings { linger: Duration::from_millis(200), ..Settings::default() };
        let outcome = run_on(flows_of(of), ports, players, Stop::default(), settings);
        let all = total(&outcome);
        let of = all.total();
        assert_eq!((of.client.completed, of.server.completed), (3000, 3000), "{of:?}");
        // Everything except ARP arrived at the wrong worker.
        let received: u64 = outcome.workers.iter().flat_map(|w| &w.rx).map(|rx| rx.given).sum();
        let link = all.link;
        assert!(link.relayed > 15_000 && link.relayed <= received, "{link:?}, {received}");
        // A relay holds 128 frames: one to a worker without a CPU is full, and TCP sends again.
        assert!(link.relay_dropped < link.relayed / 20, "{link:?}");
        assert_eq!(of.client.not_begun.total(), 0);
        for worker in &outcome.workers {
            let clients =
                worker.flows.iter().map(|flows| flows.statistics.total().client.attempted);
            let share = clients.sum::<u64>() as f64 / 3000.0 * f64::from(workers);
            assert!((0.8..1.2).contains(&share), "{workers} workers: {share}");
        }
    }
}

#[test]
fn two_workers_begin_the_flows_of_one() {
    let counts = |count: u32| {
        let limits = Limits { flows: Some(2001), ..Limits::default() };
        let of = Load { limits, max_delay: Nanos(60_000 * MS), ..load(open(10_000), 100) };
        let outcome = run(
            flows_of(of),
            &format!("workers{count},virtual"),
            side_by_side(count),
            "",
            Stop::default(),
        );
        let all = total(&outcome).total();
        (
            all.client.attempted,
            all.client.completed,
            all.server.completed,
            all.server.received_octets,
        )
    };
    assert_eq!(counts(1), (2001, 2001, 2001, 200_100));
    assert_eq!(counts(2), counts(1));
}

#[test]
fn a_run_ends_with_its_time_and_says_what_did_not() {
    let mut of = load(open(1000), 100);
    of.templates[0].server = Program::server("mute").recv(101).build().unwrap();
    of.drain = Nanos(100 * MS);
    let stop = Stop { duration: Some(Nanos(200 * MS)), ..Stop::default() };
    of.limits.duration = stop.duration;
    let outcome = run(flows_of(of), "mute", both_on_one(), "", stop);
    let client = total(&outcome).total().client;
    // A busy machine begins fewer flows and reports that.
    let due = client.attempted + client.not_begun.late();
    assert!((due, client.due()) == (200, 200) && client.attempted > 0, "{client:?}");
    assert_eq!(client.failed.iter().collect::<Vec<_>>(), [("stopped", client.attempted)]);
}

#[test]
fn open_flows_and_busy_workers_are_reported_during_the_run() {
    let mut of = load(open(1000), 100);
    of.templates[0].server = Program::server("mute").recv(101).build().unwrap();
    (of.limits.flows, of.max_delay) = (Some(5000), Nanos(60_000 * MS));
    let stop = Stop { duration: Some(Nanos(60_000 * MS)), ..Stop::default() };
    let address = "loop:looked-at".parse().expect("an address");
    let ports = (0..2).map(|_| squall_port::open(&address).unwrap().expect("a loop")).collect();
    let running = begin(flows_of(of), ports, both_on_one(), stop, Settings::default());
    let until = std::time::Instant::now() + Duration::from_secs(60);
    // The flows take several answers to list.
    let open = loop {
        let open = open_flows(&running, usize::MAX);
        if open.len() > 8500 || std::time::Instant::now() > until {
            break open;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let of_port = |port| open.iter().filter(move |(of, _)| *of == port).count();
    assert!(of_port(0) > 4200 && of_port(1) > 4200, "{} and {}", of_port(0), of_port(1));
    assert!(open.iter().all(|(port, flow)| flow.tcp.passive == (*port == 1)));
    let some = open_flows(&running, 10).len();
    assert!((11..=8192).contains(&some), "as many as say that there are more: {some}");
    let threads: Vec<_> = running.counters().into_iter().flat_map(|of| of.threads).collect();
    let [of] = &threads[..] else { panic!("one worker: {threads:?}") };
    assert_eq!((&of.tx[..], &of.rx[..]), (&[0, 1][..], &[0, 1][..]));
    // A thousand flows per second leave the worker mostly idle.
    assert!(Nanos::ZERO < of.busy && of.busy.0 < of.lived.0 / 4 * 3, "{of:?}");
    running.stop();
    running.finish().expect("nobody panics");
}

#[test]
fn a_load_that_cannot_be_does_not_start() {
    let mut of = load(open(1000), 100);
    of.templates[0].servers = 7;
    let error = check(&flows_of(of)).expect_err("there is no pool 7");
    assert_eq!((error.0, error.1.to_string().contains("pool 7")), (0, true));
}

/// Sent frames.
#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl FrameOutput for Sent {
    fn frame(&mut self, len: usize, _: Cut) -> Option<&mut [u8]> {
        self.0.push(vec![0; len]);
        self.0.last_mut().map(|frame| &mut frame[..])
    }

    fn longest(&self) -> usize {
        1514
    }
}

#[test]
fn a_run_with_clients_does_not_wait_for_flows_that_external_clients_began() {
    let (client, server) = (MacAddr([2, 0, 0, 0, 0, 0]), MacAddr([2, 0, 0, 0, 9, 1]));
    let table = Arc::new(HostTable::new(1, (server, 1), &[]));
    table.bind(0, [48, 0, 0, 1].into(), client);
    let mut outside = load(open(1000), 10);
    outside.servers[0] = pool("48.0.0.1");
    let mut own = outside.clone();
    own.servers[0] = Pool { hosts: Some(0), ..pool("0.1.0.0") };
    let flows = flows_of(own);
    let mut port = squall_port::open(&"null:".parse().unwrap()).unwrap().expect("a null port");
    let queue = port.open_tx(0, 1514).unwrap();
    let mut outlets = Outlets::default();
    let pace = Arc::new(PortPace::new(Planned::default()));
    outlets.add(Outlet::new(1, queue, None, 1, Nanos::ZERO, pace));
    let tables: HostTables = [Some(table.clone())].into_iter().collect();
    let mut player = Player::new(Clock::Real(Nanos::ZERO), &flows, &[], tables);
    player.add(&flows, 1, (port.facts(), None), &mut outlets, (Division::WHOLE, (0, 1), None));

    // A client of another program has a flow with the host.
    let network = Network { mac: client, next_hop: NextHop::Mac(server), ..Network::default() };
    let settings = SideSettings { role: Role::Clients, ..SideSettings::default() };
    let mut clients = Side::new(&outside, &network, settings).unwrap();
    let (now, side) = (Nanos(2 * MS), &mut player.ports[0].side);
    clients.advance(now);
    clients.begin(now, 1);
    for _ in 0..2 {
        let (mut there, mut back) = (Sent::default(), Sent::default());
        clients.transmit(now, &mut there);
        for frame in &there.0 {
            side.receive(now, frame, ReceiveOffloads::default(), FlowHint::default());
        }
        side.transmit(now, &mut back);
        for frame in &back.0 {
            clients.receive(now, frame, ReceiveOffloads::default(), FlowHint::default());
        }
    }
    side.advance(now);
    assert_eq!((side.active(), side.uses_hosts()), (1, true));
    assert!(player.is_done(), "others may come without end");
    // Clients of the run have flows with the hosts, too.
    table.begin_use();
    player.ports[0].side.advance(now);
    assert!(!player.is_done());
}

#[test]
fn frames_gather_only_where_many_come_to_many_flows() {
    let mut pace = Pace::default();
    let mut wake = |at_us: u64, moved: bool, flows: usize| {
        pace.moved |= moved;
        let open = || OpenCounts { flows, ..OpenCounts::default() };
        pace.gathers(Nanos(at_us * 1000), open, || 0).is_some()
    };
    // One wake-up per 200 us for 10 ms, then one per 20 us.
    assert!((0..50).all(|i| !wake(i * 200, true, 1000)));
    let eager = (500..1000).filter(|i| wake(i * 20, true, 1000)).count();
    assert!(eager > 250, "{eager}");
    assert!(!wake(20_001, false, 1000), "nothing came: the port is to wake it");
    assert!(!wake(20_002, true, MANY - 1) && wake(20_003, true, MANY));
    // After a pause the worker wakes without delay again.
    assert!(!wake(90_000, true, 1000) || !wake(90_200, true, 1000));
    assert!((0..50).all(|i| !wake(100_000 + i * 200, true, 1000)));
}
