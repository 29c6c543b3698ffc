//! The cost of flows, both ends on one core over a loop in memory (docs/measuring.md).
//!
//! `flows knee SECONDS [ANSWER]`: as many connections as the core carries, each with a request of
//! 100 octets and a response of ANSWER (100). `flows cps CPS SECONDS [ANSWER]`: an open loop.
//! `flows active N SECONDS [CPS]`: N open connections with lifetimes such that CPS of them end per
//! second: more than the core carries, to keep it busy. `flows overload SECONDS`: the knee, then
//! multiples of it. The environment variable FLOWS sets the capacity of each end, in flows.
#![forbid(unsafe_code)]

use std::{sync::Arc, time::Duration};

use squall_apps::Program;
use squall_engine::{Outcome, Settings, start};
use squall_flows::{
    Arrival, Cps, Load, Network, Order, Part, Pool, Role, Spacing, Statistics, Template, Think,
};
use squall_plan::{FlowSide, Plan, PlanFlows, PlanPort, PlanWorker};
use squall_profile::Stop;
use squall_tcp::Tunables;
use squall_units::{MacAddr, Nanos};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| {
        args.get(i).map_or(default, |text| text.parse().expect("a number"))
    };
    let mode = args.first().map_or("knee", String::as_str);
    match mode {
        "knee" => _ = run("knee", closed(number(3, 256) as u32), "", number(2, 100), number(1, 3)),
        "cps" => _ = run("open loop", open(number(1, 100_000)), "", number(3, 100), number(2, 3)),
        "active" => {
            let (active, seconds) = (number(1, 1_000_000), number(2, 10));
            let life = format!("{} us", active * 1_000_000 / number(3, 400_000));
            run(&format!("{active} active"), closed(active as u32), &life, 100, seconds);
        }
        "overload" => {
            let seconds = number(1, 3);
            let knee =
                (0..3).map(|_| run("knee", closed(256), "", 100, seconds)).fold(0.0, f64::max);
            for factor in [0.8, 1.0, 1.5, 3.0] {
                let got = run(
                    &format!("{factor} times it"),
                    open((knee * factor) as u64),
                    "",
                    100,
                    seconds,
                );
                println!("  {:.1} % of the knee", 100.0 * got / knee);
            }
        }
        other => panic!("{other:?}: expected knee, cps, active or overload"),
    }
}

fn open(cps: u64) -> Arrival {
    Arrival::Open { cps: Cps::per_second(cps), spacing: Spacing::Constant }
}

fn closed(users: u32) -> Arrival {
    Arrival::Closed { users, think: Think::Fixed(Nanos::ZERO) }
}

fn load(arrival: Arrival, life: &str, answer: u64) -> Load {
    let pool = |name: &str, range: &str| Pool {
        name: name.into(),
        ranges: vec![range.parse().expect("a range")],
        ports: 1024..=65535,
        order: Order::Random,
        hosts: None,
        shared: false,
    };
    let body = "x".repeat(answer as usize);
    let client = Program::client("get").send(&"g".repeat(100)).recv(answer as u32);
    let server = Program::server("give").recv(100).send(&body);
    // As with "Connection: close", or when the client ends.
    let (client, server) = match life {
        "" => (client, server),
        life => (client.delay(life).close(), server.wait_peer_close()),
    };
    // Without TIME-WAIT, because there are enough addresses and ports here.
    let tunables = Tunables { time_wait: Nanos::ZERO, ..Tunables::default() };
    let template = Template {
        name: "web".into(),
        pair: 0,
        clients: 0,
        servers: 0,
        port: 80,
        client: client.build().expect("a good program"),
        server: server.build().expect("a good program"),
        tls: None,
        proxy: None,
        http: None,
        http3: None,
        client_tunables: tunables.clone(),
        server_tunables: tunables,
        arrival,
        limit: None,
        start: Nanos::ZERO,
        duration: None,
        waits: false,
        shape: None,
        gone: false,
        joined: false,
        ends: squall_flows::Ends::Both,
    };
    Load {
        clients: vec![pool("clients", "16.0.0.1-16.0.3.250")],
        servers: vec![pool("servers", "48.0.0.1-48.0.0.9")],
        templates: vec![template],
        seed: 5,
        ..Load::default()
    }
}

/// Returns connections per second.
fn run(what: &str, arrival: Arrival, life: &str, answer: u64, seconds: u64) -> f64 {
    let side = |port, role| FlowSide {
        port,
        role,
        clients: Part::ALL,
        servers: Part::ALL,
        network: Network { mac: MacAddr([2, 0, 0, 0, port as u8, 0]), ..Network::default() },
        flows: std::env::var("FLOWS").map_or(1 << 21, |n| n.parse().expect("a number")),
    };
    let of = Load { drain: Nanos(100_000_000), ..load(arrival, life, answer) };
    let sides = vec![side(0, Role::Clients), side(1, Role::Servers)];
    let flows = PlanFlows {
        load: of,
        sides,
        of_profile: Vec::new(),
        scripts: Vec::new(),
        notes: Vec::new(),
    };
    let address = "loop:flows".parse().expect("an address");
    let ports: Vec<_> =
        (0..2).map(|_| squall_port::open(&address).expect("it opens").expect("a loop")).collect();
    let max_frame = flows.sides[0].max_frame(ports[0].facts().segmentation);
    let port = |name: &str| PlanPort {
        name: name.into(),
        address: "loop:flows".into(),
        max_frame,
        cut_frame: 0,
        elsewhere: false,
        virtual_bps: None,
    };
    let plan = Plan {
        seed: 5,
        key: 0,
        part: squall_units::Division::WHOLE,
        stop: Stop { duration: Some(Nanos(seconds * 1_000_000_000)), ..Stop::default() },
        counted: false,
        ports: vec![port("a"), port("b")],
        streams: Vec::new(),
        replays: Vec::new(),
        hosts: Vec::new(),
        routers: Vec::new(),
        flows: Some(Arc::new(flows)),
        afters: Vec::new(),
        workers: vec![PlanWorker { tx: vec![(0, 0), (1, 0)], rx: vec![(0, 0), (1, 0)], cpu: None }],
        notes: Vec::new(),
    };
    let settings = Settings { linger: Duration::ZERO, ..Settings::default() };
    let mut running = start(Arc::new(plan), ports, settings, Vec::new()).expect("it starts");
    // The first half warms up.
    std::thread::sleep(Duration::from_secs_f64(seconds as f64 / 2.0));
    let half = running.snapshot(false);
    while !running.wait_sent(Duration::from_millis(10))
        && running.elapsed().0 < seconds * 1_000_000_000 - 50_000_000
    {}
    let end = running.snapshot(false);
    let rss = resident();
    let (cps, cpu, answers) = between(&half[0], &end[0]);
    let outcome = running.finish().expect("nobody panics");
    let all = total(&outcome);
    let client = all.total().client;
    println!(
        "{what}: {cps:.0} connections/s, {:.0} cycles a connection and side, {:.2} Gbit/s, peak \
         {} open, {rss} MiB resident",
        cpu * counter_ghz() / 2.0,
        answers * 8.0 / 1e9,
        client.peak,
    );
    println!(
        "  completed {} failed {:?} not begun {:?}; set-up p50 {} us p99 {} us",
        client.completed,
        client.failed.iter().collect::<Vec<_>>(),
        client.not_begun.iter().collect::<Vec<_>>(),
        client.setup.quantile(0.5) / 1000,
        client.setup.quantile(0.99) / 1000,
    );
    cps
}

/// Completed connections per second, CPU nanoseconds per connection, received octets per second.
fn between(before: &squall_engine::Snapshot, after: &squall_engine::Snapshot) -> (f64, f64, f64) {
    let sum = |snapshot: &squall_engine::Snapshot| {
        let mut all = Statistics::default();
        snapshot.flows.iter().for_each(|flows| all.merge(&flows.statistics));
        let client = all.total().client;
        (client.completed as f64, client.received_octets as f64, all.elapsed.as_secs_f64())
    };
    let ((c0, o0, t0), (c1, o1, t1)) = (sum(before), sum(after));
    let cpu = (after.cpu_time.0 - before.cpu_time.0) as f64;
    ((c1 - c0) / (t1 - t0), cpu / (c1 - c0), (o1 - o0) / (t1 - t0))
}

fn total(outcome: &Outcome) -> Statistics {
    let mut all = Statistics::default();
    outcome.workers.iter().flat_map(|w| &w.flows).for_each(|flows| all.merge(&flows.statistics));
    all
}

/// The frequency of the time stamp counter; NaN without one.
fn counter_ghz() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (begun, first) = (std::time::Instant::now(), safe_arch::read_timestamp_counter());
        std::thread::sleep(Duration::from_millis(100));
        let ticks = safe_arch::read_timestamp_counter() - first;
        ticks as f64 / begun.elapsed().as_nanos() as f64
    }
    #[cfg(not(target_arch = "x86_64"))]
    f64::NAN
}

/// Resident memory in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
