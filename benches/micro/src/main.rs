//! Measures the cost per frame, in nanoseconds and in cycles of the CPU's time stamp counter:
//! `squall-bench [fill|engine|paced|setup|receive|loop|flows|clock|control|cores] [--frames N]
//! [--json]`.
//!
//! Figures are CPU time, on which other programs have little influence. They are medians of nine
//! runs after a warm-up run. `--once CASE N` only makes N frames of one case (flows: as many as fit
//! into the time of N) and prints their number, for `valgrind --tool=callgrind`: the difference in
//! instructions between two values of N is the cost of the frames.
#![forbid(unsafe_code)]

mod cores;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use squall::{Profile, Session, report::Report};
use squall_control::{Control, Counted, Counts, driving::InProcess};
use squall_measure::{Measure, Receiver};
use squall_port::{FastClock, monotonic};
use squall_program::{BATCH, Law, Program, Run, Scratch, Sizes, Spec, Turn, VarSpec};
use squall_units::{Nanos, TxMeta};
use squall_wire::{Frame, Packet};

const RUNS: usize = 9;
const KINDS: [&str; 9] =
    ["fill", "engine", "paced", "setup", "receive", "loop", "flows", "clock", "control"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, case, frames] = &args[..]
        && flag == "--once"
    {
        let found = cases()
            .into_iter()
            .find(|c| c.name == *case)
            .ok_or_else(|| format!("there is no case {case:?}"))?;
        println!("{}", (found.run)(frames.parse()?)?.frames);
        return Ok(());
    }
    let json = args.iter().any(|a| a == "--json");
    if args.iter().any(|a| a == "cores") {
        return cores::compare(json);
    }
    let frames = match args.iter().position(|a| a == "--frames") {
        Some(i) => args.get(i + 1).ok_or("--frames needs a number")?.parse()?,
        None => 20_000_000,
    };
    let ghz = counter_ghz();
    let wanted = args.iter().find(|a| KINDS.contains(&a.as_str()));
    for case in cases().iter().filter(|c| wanted.is_none_or(|w| c.name.starts_with(w.as_str()))) {
        (case.run)(frames / 10)?;
        let mut ns = Vec::new();
        for _ in 0..RUNS {
            ns.push((case.run)(frames)?.ns);
        }
        ns.sort_by(f64::total_cmp);
        let (median, least, most) = (ns[RUNS / 2], ns[0], ns[RUNS - 1]);
        let cycles = median * ghz;
        if json {
            println!(
                "{}",
                serde_json::json!({"case": case.name, "ns_per_frame": median, "min": least, "max": most,
                    "cycles_per_frame": cycles})
            );
        } else {
            println!(
                "{:32} {median:7.2} ns/frame  ({least:.2} to {most:.2})  {cycles:6.1} cycles",
                case.name
            );
        }
    }
    Ok(())
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Frequency of the time stamp counter; 0 if there is none.
fn counter_ghz() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (begun, first) = (Instant::now(), safe_arch::read_timestamp_counter());
        std::thread::sleep(std::time::Duration::from_millis(100));
        let ticks = safe_arch::read_timestamp_counter() - first;
        ticks as f64 / begun.elapsed().as_nanos() as f64
    }
    #[cfg(not(target_arch = "x86_64"))]
    0.0
}

type Cost = Result<Made, Box<dyn std::error::Error>>;

struct Made {
    /// Number of items: frames, flows, clock readings or changes.
    frames: u64,
    /// Nanoseconds per item.
    ns: f64,
}

impl Made {
    fn new(frames: u64, ns: u64) -> Self {
        Self { frames, ns: ns as f64 / frames.max(1) as f64 }
    }
}

struct Case {
    name: String,
    /// Runs the case with this number of frames, or for the time that they would take.
    run: Box<dyn Fn(u64) -> Cost>,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for vars in [0, 1, 2, 4] {
        cases.push(Case {
            name: format!("fill-{vars}-variables"),
            run: Box::new(move |n| fill(vars, false, n)),
        });
    }
    cases.push(Case { name: "fill-2-variables-made-ahead".into(), run: Box::new(fill_made_ahead) });
    cases
        .push(Case { name: "fill-2-variables-signed".into(), run: Box::new(|n| fill(2, true, n)) });
    for (name, streams, vars, rate) in [
        ("engine-1-stream-max", 1, 0, "max"),
        ("engine-1-stream", 1, 0, "1000 Mpps"),
        ("engine-1-stream-2-variables-max", 1, 2, "max"),
        ("engine-1-stream-2-variables", 1, 2, "1000 Mpps"),
        ("engine-1-stream-2-variables-made-ahead", 1, 3, "max"),
        ("engine-10-streams", 10, 0, "100 Mpps"),
        ("engine-40-streams", 40, 0, "20 Mpps"),
        ("engine-1000-streams", 1000, 0, "1 Mpps"),
        ("engine-1000-streams-2-variables", 1000, 2, "1 Mpps"),
        ("engine-10000-streams", 10_000, 0, "100 kpps"),
    ] {
        cases.push(Case {
            name: name.into(),
            run: Box::new(move |n| engine(streams, vars, rate, n)),
        });
    }
    for rate in ["100 pps", "1 kpps", "10 kpps", "25 kpps"] {
        for precision in ["low-cpu", "balanced", "spin"] {
            cases.push(Case {
                name: format!("paced-{}-{precision}", rate.replace(' ', "")),
                run: Box::new(move |n| paced(rate, precision, n)),
            });
        }
    }
    for streams in [1000, 10_000, 100_000] {
        cases.push(Case {
            name: format!("setup-{streams}-streams"),
            run: Box::new(move |_| setup(streams)),
        });
    }
    for (name, size) in [("loop-signed", "64"), ("loop-signed-imix", "imix")] {
        cases.push(Case { name: name.into(), run: Box::new(move |n| round_trip(size, n)) });
    }
    for app in ["dns", "http"] {
        cases.push(Case { name: format!("flows-{app}"), run: Box::new(move |n| flows(app, n)) });
    }
    cases.push(Case { name: "clock".into(), run: Box::new(clock) });
    cases.push(Case { name: "control-100-members".into(), run: Box::new(control) });
    cases.push(Case { name: "receive-signed".into(), run: Box::new(|n| receive(true, n)) });
    cases.push(Case { name: "receive-unsigned".into(), run: Box::new(|n| receive(false, n)) });
    cases
}

/// A 64-octet UDP frame in which source address, ports and destination address vary.
fn program(vars: usize, signed: bool) -> Result<Program, Box<dyn std::error::Error>> {
    let frame = udp()?;
    let fields = [
        ("ipv4.src", Law::Random { min: 0x1000_0000, count: 1 << 25, limit: None, seed: 1 }),
        ("udp.sport", Law::Step { first: 1024, step: 1, count: 64_512, start: 0 }),
        ("ipv4.dst", Law::Step { first: 0x3000_0001, step: 1, count: 255, start: 0 }),
        ("udp.dport", Law::Random { min: 1, count: 1000, limit: None, seed: 2 }),
    ];
    let mut specs = Vec::new();
    for (name, law) in fields.into_iter().take(vars) {
        let at = frame.field(name)?;
        specs.push(VarSpec {
            bit: at.bit,
            bits: at.bits,
            law,
            turn: Turn::default(),
            every: 1,
            phase: 0,
        });
    }
    let sizes = Sizes::fixed(60);
    Program::build(Spec { frame, sizes, vars: specs, signature: signed.then_some(1) })
        .map_err(|e| format!("{e:?}").into())
}

fn udp() -> Result<Frame, Box<dyn std::error::Error>> {
    Ok(Packet::parse("eth/ipv4/udp")?.build(
        Some(60),
        &|_| Err(std::io::ErrorKind::NotFound.into()),
        0,
    )?)
}

fn fill(vars: usize, signed: bool, frames: u64) -> Cost {
    fill_by(&program(vars, signed)?, frames)
}

/// Fills frames with two varying fields that repeat after 2,048 frames.
fn fill_made_ahead(frames: u64) -> Cost {
    let frame = udp()?;
    let fields = [("ipv4.src", 64), ("udp.sport", 2048)];
    let mut vars = Vec::new();
    for (name, count) in fields {
        let at = frame.field(name)?;
        let law = Law::Step { first: 1024, step: 1, count, start: 0 };
        vars.push(VarSpec {
            bit: at.bit,
            bits: at.bits,
            law,
            turn: Turn::default(),
            every: 1,
            phase: 0,
        });
    }
    let spec = Spec { frame, sizes: Sizes::fixed(60), vars, signature: None };
    let program = Program::build(spec).map_err(|e| format!("{e:?}"))?;
    fill_by(&program.with_ring(1 << 20).ok_or("the frames repeat soon")?, frames)
}

fn fill_by(program: &Program, frames: u64) -> Cost {
    let stride = 64;
    let mut base = vec![0; stride * BATCH];
    let mut meta = [TxMeta { len: 60, ..TxMeta::default() }; BATCH];
    let (mut cursor, mut scratch) = (program.cursor(0, 1, 1), Scratch::default());
    let run = Run { start: 0, count: BATCH };
    let begun = cpu_ns();
    for _ in 0..frames / BATCH as u64 {
        program.fill(
            &mut cursor,
            &mut scratch,
            (&mut base, stride, &mut meta),
            &run,
            Some(Nanos(1)),
        );
        black_box(&mut base);
    }
    Ok(Made::new(frames, cpu_ns() - begun))
}

/// Schedules, fills and sends on the null port with one worker, for as long as `frames` take at 20
/// ns each. The streams' rates exceed what the worker can send.
fn engine(streams: usize, vars: usize, rate: &str, frames: u64) -> Cost {
    let vary = [
        serde_json::json!({"field": "ipv4.src", "op": "random", "min": "16.0.0.0", "max": "18.0.0.254"}),
        serde_json::json!({"field": "udp.sport", "op": "increment", "min": 1024, "max": 65535}),
    ];
    // Two varying fields, so frames repeat after 1,024.
    let repeating = serde_json::json!([
        {"field": "ipv4.src", "op": "increment", "min": "16.0.0.0", "max": "16.0.0.255"},
        {"field": "udp.sport", "op": "increment", "min": 1024, "max": 2047},
    ]);
    let stream = |i| {
        let mut stream = serde_json::json!({"name": format!("s{i}"), "packet": "eth/ipv4/udp", "size": 64, "rate": rate});
        match vars {
            0 => {}
            3 => stream["vary"] = repeating.clone(),
            _ => stream["vary"] = vary[..vars].into(),
        }
        stream
    };
    // The run ends by time: with a frame count, streams would keep their exact order even when
    // late.
    let profile = serde_json::json!({
        "ports": {"A": "null:"},
        "duration": frames as f64 * 20e-9,
        "stream": (0..streams).map(stream).collect::<Vec<_>>(),
    });
    run(&profile, false)
}

/// CPU time per frame of a slow stream, which consists of waiting.
fn paced(rate: &str, precision: &str, frames: u64) -> Cost {
    let profile = serde_json::json!({
        "ports": {"A": "null:"},
        "duration": frames as f64 * 20e-9,
        "run": {"precision": precision},
        "stream": [{"name": "s", "packet": "eth/ipv4/udp", "size": 64, "rate": rate}],
    });
    run(&profile, false)
}

/// CPU time per stream from a profile to the first departure and the report.
fn setup(streams: u64) -> Cost {
    let stream = |i| {
        serde_json::json!({
            "name": format!("s{i}"), "packet": "eth/ipv4/udp", "size": 64, "rate": "1 pps",
        })
    };
    let profile = serde_json::json!({
        "ports": {"A": "null:"},
        "duration": 0.001,
        "stream": (0..streams).map(stream).collect::<Vec<_>>(),
    });
    let process = || {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
    };
    let begun = process();
    run(&profile, false)?;
    Ok(Made::new(streams, process() - begun))
}

/// One worker sends signed frames from a port to itself. They are scheduled, filled, sent, received
/// and recorded (sequence, delay, jitter and gap).
fn round_trip(size: &str, frames: u64) -> Cost {
    let profile = serde_json::json!({
        "ports": {"A": "loop:bench"},
        "duration": frames as f64 * 60e-9,
        "stream": [{"name": "s", "packet": "eth/ipv4/udp", "size": size, "rate": "max", "latency": true}],
    });
    run(&profile, true)
}

/// CPU time per sent frame in a run on one worker.
fn run(profile: &serde_json::Value, receive: bool) -> Cost {
    let profile = Profile::from_value(profile, "bench")?;
    let mut session = Session::new(profile);
    (session.options.receive, session.options.cores) = (Some(receive), Some(1));
    let report = session.open()?.start()?.finish()?;
    let (sent, received) = (report.ports[0].tx.packets, report.ports[0].rx.packets);
    if receive && received != sent {
        return Err(format!("{sent} frames were sent and {received} received").into());
    }
    Ok(Made::new(sent, used(&report)))
}

/// Plays flows of 20 users and their servers on one worker, as many as fit into the time.
fn flows(app: &str, flows: u64) -> Cost {
    let profile = serde_json::json!({
        "ports": {"A": "loop:bench", "B": "loop:bench"},
        "duration": flows as f64 * 4e-6,
        "flows": {"clients": "A", "servers": "B"},
        "template": [{
            "name": app, "clients": "16.0.0.0/24", "servers": "48.0.0.1", "app": app, "users": 20,
        }],
    });
    let mut session = Session::new(Profile::from_value(&profile, "bench")?);
    session.options.cores = Some(1);
    let report = session.open()?.start()?.finish()?;
    let load = report.flows.as_ref().and_then(|load| load.total.client.as_ref());
    Ok(Made::new(load.map_or(0, |clients| clients.completed), used(&report)))
}

/// CPU time of a run in nanoseconds.
fn used(report: &Report) -> u64 {
    ((report.cpu.user_s + report.cpu.system_s) * 1e9) as u64
}

/// Reads the engine's clock.
fn clock(readings: u64) -> Cost {
    let mut clock = FastClock::new();
    // Spin until the clock has determined the counter's frequency.
    let until = monotonic() + Nanos(30_000_000);
    while clock.now() < until {}
    let begun = cpu_ns();
    for _ in 0..readings {
        black_box(clock.now());
    }
    Ok(Made::new(readings, cpu_ns() - begun))
}

/// Cost of one member leaving or joining a control, including a read of the counters of all
/// 100 members. In each round every member leaves and joins again, one by one. No stream sends, so
/// the worker sleeps.
fn control(frames: u64) -> Cost {
    const MEMBERS: usize = 100;
    let stream = |i| {
        serde_json::json!({
            "name": format!("s{i}"), "packet": "eth/ipv4/udp", "rate": "1 kpps", "start_delay": "1 h",
        })
    };
    let profile = serde_json::json!({
        "ports": {"A": "null:"},
        "stream": (0..MEMBERS).map(stream).collect::<Vec<_>>(),
    });
    let profile = Profile::from_value(&profile, "bench")?;
    let mut control = Control::<usize, Sent>::new(1);
    // One change takes as long as several thousand frames.
    let rounds = frames.div_ceil(1_000_000);
    let begun = cpu_ns();
    for _ in 0..rounds {
        let mut profile = profile.clone();
        let mut session = Session::new(profile.clone());
        (session.options.receive, session.options.cores) = (Some(false), Some(1));
        control.begin(&mut InProcess(Duration::from_secs(3600)), "bench", session)?;
        (0..MEMBERS).for_each(|i| control.count(&format!("s{i}"), 0, i));
        for change in 0..2 * MEMBERS {
            let stream = &mut profile.streams[change / 2];
            stream.self_start = !stream.self_start;
            if !control.change(profile.clone())? {
                return Err("the run is over".into());
            }
            black_box(control.members(control.see(Duration::ZERO).as_ref()));
        }
    }
    control.end().ok_or("it does not end")?.map_err(|error| error.to_string())?;
    Ok(Made::new(rounds * 2 * MEMBERS as u64, cpu_ns() - begun))
}

/// Number of frames that a member has sent.
#[derive(Clone, Default)]
struct Sent(u64);

impl Counts for Sent {
    fn add(&mut self, by: &Counted<'_>) {
        self.0 += by.stream.tx_packets;
    }
}

/// Records sequence, delay, order and histograms of each frame, batch by batch.
fn receive(signed: bool, frames: u64) -> Cost {
    let program = program(0, signed)?;
    let stride = 64;
    let mut base = vec![0; stride * BATCH];
    let mut meta = [TxMeta { len: 60, ..TxMeta::default() }; BATCH];
    let (mut cursor, mut scratch) = (program.cursor(0, 1, 1), Scratch::default());
    let run = Run { start: 0, count: BATCH };
    // Process several batches per clock reading, which costs as much as several frames.
    let mut batches = vec![Vec::new(); 16];
    let mut receiver = Receiver::new(&Measure::default());
    let (mut now, mut spent) = (0, 0);
    for _ in 0..frames / (batches.len() * BATCH) as u64 {
        for batch in &mut batches {
            program.fill(
                &mut cursor,
                &mut scratch,
                (&mut base, stride, &mut meta),
                &run,
                Some(Nanos(now)),
            );
            batch.clone_from(&base);
            now += 6400;
        }
        let begun = cpu_ns();
        for (i, batch) in batches.iter().enumerate() {
            let mut time = now - 6400 * (batches.len() - i) as u64 + 2000;
            receiver.observe_all(batch.chunks_exact(stride).map(move |slot| {
                time += 100;
                (&slot[..60], 60, Nanos(time))
            }));
        }
        spent += cpu_ns() - begun;
    }
    black_box(&receiver);
    Ok(Made::new(frames, spent))
}
