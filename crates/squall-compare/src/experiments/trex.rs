//! The TRex paper (Netdev): rates by frame size and field engine program, and a table of stateful
//! traffic from one core. Here, the latter has Squall against nginx and against itself.

use std::fs;

use squall::Error;
use squall_port_linux::set_gro;
use squall_units::{L1_OVERHEAD, Nanos};

use super::{
    Known, Run,
    model::{Axis, Figure, Table, Unit, Value},
    stateful,
};
use crate::{
    compared::two_cpus,
    generators::{GeneratorRound, run::Place, wire},
    process::Program,
    tools::Tool,
};

pub const EXPERIMENT: Known = Known {
    name: "trex",
    title: "Frame sizes, field engine and stateful traffic from one core",
    paper: "TRex: realistic traffic generator, Netdev",
    about: "Rates by frame size and varied fields, and connections per second from one core \
            against nginx and against Squall",
    takes_s: [100, 2400],
    run,
};

/// Frame sizes of the paper, octets with FCS.
const FULL_SIZES: &[u32] = &[64, 128, 256, 512, 1024, 1280, 1518];
const SHORT_SIZES: &[u32] = &[64, 512, 1518];
/// TRex's multiplier m: for a profile of one connection per second, the connections per second.
const FULL_LOADS: &[u32] = &[1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 50_000, 70_000, 90_000];
const SHORT_LOADS: &[u32] = &[1_000, 5_000, 20_000];

/// A field engine program: the fields that it varies.
struct Engine {
    name: &'static str,
    vary: &'static [&'static str],
}

const ENGINES: &[Engine] = &[
    Engine { name: "no field", vary: &[] },
    Engine { name: "1 field, increment", vary: &["ipv4.src=increment:16.0.0.1-16.0.255.254"] },
    Engine { name: "1 field, random", vary: &["ipv4.src=random:16.0.0.1-16.0.255.254"] },
    Engine {
        name: "4 fields",
        vary: &[
            "ipv4.src=increment:16.0.0.1-16.0.255.254",
            "ipv4.dst=random:48.0.0.1-48.0.255.254",
            "udp.sport=increment:1024-65535",
            "udp.dport=random:1024-65535",
        ],
    },
];

/// Ports: af_packet sends frames that the program passes to the kernel, xdp_live frames that the
/// kernel generates with an XDP program.
const PORTS: [&str; 2] = ["af_packet", "xdp_live"];

/// Published cycles per packet of TRex, for 64 octets with FCS, on one core and a NIC.
const PUBLISHED: [(&str, &str); 2] =
    [("TRex, cached frames", "100 to 157"), ("TRex, 1 field", "223 to 255")];

fn run(run: &mut Run<'_>) -> Result<(), Error> {
    let full = run.settings.full;
    let interfaces = run.enter_lab(1500)?;
    let (cpu, server_cpu) = two_cpus();
    let addressed = wire::address(&interfaces);
    let seconds = |n: u64| Nanos(n * Nanos::SECOND.0);
    let place = Place {
        interfaces,
        work: run.work.0.clone(),
        cpu,
        step: run.step(seconds(1), seconds(20)),
        limits: None,
        attacks: Err("no tool needs attacks".into()),
    };
    let cpu = cpu.map_or("any".into(), |cpu| cpu.to_string());
    run.fact("CPU of the generator", format!("{cpu}, one worker"));
    run.missing("NICs of 10 and 40 Gb/s", "the lab has a veth pair");
    let trex = Tool::of_command("trex", "t-rex-64")?.find();
    run.missing(
        "TRex itself",
        trex.map_or(
            "not installed: t-rex-64; try https://trex-tgn.cisco.com",
            |_| "its server takes two ports of its own configuration, and the lab has one pair",
        ),
    );
    stateless(run, &place, if full { FULL_SIZES } else { SHORT_SIZES });
    let loads = if full { FULL_LOADS } else { SHORT_LOADS };
    stateful::measure(run, &stateful::Lab { place, server_cpu, addressed }, loads);
    Ok(())
}

/// A cell of the rate tables.
struct Rate {
    port: &'static str,
    engine: &'static str,
    size: u32,
    round: GeneratorRound,
}

fn stateless(run: &mut Run<'_>, place: &Place, sizes: &[u32]) {
    let engines = if run.settings.full { ENGINES } else { &ENGINES[..3] };
    let mut rates = Vec::new();
    for port in PORTS {
        // Frames from an XDP program need a receiving interface in polling mode, which changes the
        // cost of all other frames.
        let _ = set_gro(&place.interfaces[1], port == "xdp_live");
        for engine in engines {
            for size in sizes {
                if run.stopped() {
                    return present_rates(run, &rates);
                }
                let what = format!("{port}  {}  {size}", engine.name);
                match rate(run, place, port, engine, *size) {
                    Ok(round) => {
                        let mean = mean(&round);
                        run.progress(&format!("{what}:  {mean:.0} packets/s"));
                        rates.push(Rate { port, engine: engine.name, size: *size, round });
                    }
                    Err(why) => {
                        run.progress(&format!("{what}:  failed: {why}"));
                        run.note(format!("{what}: it failed: {why}"));
                    }
                }
            }
        }
    }
    present_rates(run, &rates);
}

fn rate(
    run: &Run<'_>,
    place: &Place,
    port: &str,
    engine: &Engine,
    size: u32,
) -> Result<GeneratorRound, String> {
    let mut arguments: Vec<String> = ["send", "--rate", "max", "--cores", "1", "--quiet"]
        .into_iter()
        .chain(["--allow-invalid"])
        .map(str::to_owned)
        .collect();
    arguments.push(format!("--port={port}:{}", place.interfaces[0]));
    arguments.push(format!("--packet={}", wire::packet()));
    arguments.push(format!("--size={size}"));
    arguments.extend(engine.vary.iter().map(|vary| format!("--vary={vary}")));
    let before = place.arrived()?;
    let log = place.work.join("log");
    let mut program = Program::start(&run.settings.squall, &arguments, place.cpu, log)?;
    let (round, _) = place.watched(&mut program, before, run.stop(), &mut || ())?;
    Ok(round)
}

fn mean(round: &GeneratorRound) -> f64 {
    round.pps().sum::<f64>() / round.seconds.len() as f64
}

/// CPU time per packet, nanoseconds.
fn cost_ns(round: &GeneratorRound) -> f64 {
    1e9 * (round.user_cpus + round.system_cpus) / mean(round)
}

fn present_rates(run: &mut Run<'_>, rates: &[Rate]) {
    if rates.is_empty() {
        return;
    }
    let mut speed = Table::new(
        "rates",
        "Table 1: rate by frame size and field engine program",
        "Counted each second at the receiving interface. Sizes in octets with FCS; L1 includes \
         preamble and gap.",
        &[
            ("Port, program", Unit::Count),
            ("Frame size", Unit::Number),
            ("Packets/s", Unit::Number),
            ("L1, Gb/s", Unit::Number),
        ],
    );
    let mhz = cpu_mhz();
    let mut cost = Table::new(
        "cost",
        "Table 2: cost of a packet of the smallest size",
        "CPU time of the generator, user and system. On a veth pair the system time contains the \
         reception, which a NIC takes over; the published cycles have a NIC and DPDK.",
        &[
            ("Port, program", Unit::Count),
            ("CPU time, ns", Unit::Number),
            ("Cycles", Unit::Number),
            ("Published, cycles", Unit::Count),
        ],
    );
    let least = rates.iter().map(|rate| rate.size).min().unwrap_or_default();
    for Rate { port, engine, size, round } in rates {
        let (name, pps) = (format!("{port}, {engine}"), mean(round));
        let l1 = pps * 8e-9 * f64::from(size + L1_OVERHEAD);
        speed.row(vec![name.clone().into(), f64::from(*size).into(), pps.into(), l1.into()]);
        if *size == least {
            let ns = cost_ns(round);
            let cycles = mhz.map(|mhz| ns * mhz / 1000.0);
            cost.row(vec![name.into(), ns.into(), cycles.into(), Value::None]);
        }
    }
    for (name, cycles) in PUBLISHED {
        cost.paper(vec![name.into(), Value::None, Value::None, cycles.into()]);
    }
    let (x, y) =
        (Axis::new("frame size, octets", Unit::Number), Axis::new("packets per second", Unit::Pps));
    let mut figure =
        Figure::lines("rates", "Rate by frame size", "a line for each port and program", x, y);
    let names = rates.iter().map(|rate| (rate.port, rate.engine));
    for (port, engine) in crate::render::in_order(names) {
        let of = rates.iter().filter(|rate| (rate.port, rate.engine) == (port, engine));
        let points = of.map(|rate| (f64::from(rate.size), mean(&rate.round)));
        figure.series(&format!("{port}, {engine}"), points);
    }
    run.result.tables.extend([speed, cost]);
    run.result.figures.push(figure);
}

/// Clock frequency of the first CPU, MHz.
fn cpu_mhz() -> Option<f64> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.split_once(':')?.1.trim().parse().ok()
}
