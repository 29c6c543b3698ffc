//! What a frame costs, in nanoseconds: `squall-bench [fill|engine|receive] [--frames N] [--json]`.
//!
//! CPU time, so that other programs on the machine count little; medians of nine runs, after one to warm up. `--once CASE N` makes N frames of one case and nothing else, so that
//! `valgrind --tool=callgrind` can count instructions: the difference between two N is what frames cost.
#![forbid(unsafe_code)]

use std::{hint::black_box, time::Instant};

use squall::{Format, Profile, Session};
use squall_measure::Receiver;
use squall_program::{BATCH, Law, Program, Run, Scratch, Sizes, Spec, VarSpec};
use squall_units::{Nanos, TxMeta};
use squall_wire::{Frame, Packet};

const RUNS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, case, frames] = &args[..]
        && flag == "--once"
    {
        let found =
            cases().into_iter().find(|c| c.name == *case).ok_or_else(|| format!("there is no case {case:?}"))?;
        (found.run)(frames.parse()?)?;
        return Ok(());
    }
    let json = args.iter().any(|a| a == "--json");
    let frames = match args.iter().position(|a| a == "--frames") {
        Some(i) => args.get(i + 1).ok_or("--frames needs a number")?.parse()?,
        None => 20_000_000,
    };
    let wanted = args.iter().find(|a| ["fill", "engine", "receive"].contains(&a.as_str()));
    for case in cases().iter().filter(|c| wanted.is_none_or(|w| c.name.starts_with(w.as_str()))) {
        (case.run)(frames / 10)?;
        let mut ns = Vec::new();
        for _ in 0..RUNS {
            ns.push((case.run)(frames)?);
        }
        ns.sort_by(f64::total_cmp);
        let (median, least, most) = (ns[RUNS / 2], ns[0], ns[RUNS - 1]);
        if json {
            println!("{}", serde_json::json!({"case": case.name, "ns_per_frame": median, "min": least, "max": most}));
        } else {
            println!("{:32} {median:7.2} ns/frame  ({least:.2} to {most:.2})", case.name);
        }
    }
    Ok(())
}

type Cost = Result<f64, Box<dyn std::error::Error>>;

struct Case {
    name: String,
    /// Makes so many frames and says how many nanoseconds each took.
    run: Box<dyn Fn(u64) -> Cost>,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for vars in [0, 1, 2, 4] {
        cases.push(Case { name: format!("fill-{vars}-variables"), run: Box::new(move |n| fill(vars, false, n)) });
    }
    cases.push(Case { name: "fill-2-variables-signed".into(), run: Box::new(|n| fill(2, true, n)) });
    for (name, streams, vars, rate) in [
        ("engine-1-stream-max", 1, 0, "max"),
        ("engine-1-stream", 1, 0, "1000 Mpps"),
        ("engine-1-stream-2-variables", 1, 2, "1000 Mpps"),
        ("engine-10-streams", 10, 0, "100 Mpps"),
        ("engine-1000-streams", 1000, 0, "1 Mpps"),
        ("engine-1000-streams-2-variables", 1000, 2, "1 Mpps"),
        ("engine-10000-streams", 10_000, 0, "100 kpps"),
    ] {
        cases.push(Case { name: name.into(), run: Box::new(move |n| engine(streams, vars, rate, n)) });
    }
    cases.push(Case { name: "receive-signed".into(), run: Box::new(|n| receive(true, n)) });
    cases.push(Case { name: "receive-unsigned".into(), run: Box::new(|n| receive(false, n)) });
    cases
}

/// A 64-octet UDP frame whose source address, ports and destination address vary.
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
        specs.push(VarSpec { bit: at.bit, bits: at.bits, law, every: 1, phase: 0 });
    }
    let sizes = Sizes::fixed(60);
    Program::build(Spec { frame, sizes, vars: specs, signature: signed.then_some(1) })
        .map_err(|e| format!("{e:?}").into())
}

fn udp() -> Result<Frame, Box<dyn std::error::Error>> {
    Ok(Packet::parse("eth/ipv4/udp")?.build(Some(60), &|_| Err(std::io::ErrorKind::NotFound.into()), 0)?)
}

fn fill(vars: usize, signed: bool, frames: u64) -> Cost {
    let program = program(vars, signed)?;
    let stride = 64;
    let mut base = vec![0; stride * BATCH];
    let mut meta = [TxMeta { len: 60, ..TxMeta::default() }; BATCH];
    let (mut cursor, mut scratch) = (program.cursor(0, 1, 1), Scratch::default());
    let run = Run { start: 0, count: BATCH };
    let begun = Instant::now();
    for _ in 0..frames / BATCH as u64 {
        program.fill(&mut cursor, &mut scratch, (&mut base, stride, &mut meta), &run, Some(Nanos(1)));
        black_box(&mut base);
    }
    Ok(begun.elapsed().as_nanos() as f64 / frames as f64)
}

/// Schedule, fill and send on the null port, one worker, for as long as `frames` take at 20 ns each; all streams ask for
/// more than there is time for.
fn engine(streams: usize, vars: usize, rate: &str, frames: u64) -> Cost {
    let vary = [
        serde_json::json!({"field": "ipv4.src", "op": "random", "min": "16.0.0.0", "max": "18.0.0.254"}),
        serde_json::json!({"field": "udp.sport", "op": "increment", "min": 1024, "max": 65535}),
    ];
    let stream = |i| {
        let mut stream =
            serde_json::json!({"name": format!("s{i}"), "packet": "eth/ipv4/udp", "size": 64, "rate": rate});
        if vars > 0 {
            stream["vary"] = vary[..vars].into();
        }
        stream
    };
    // By time, not by count: with a count, streams keep their exact order however far behind they are.
    let profile = serde_json::json!({
        "ports": {"A": "null:"},
        "duration": frames as f64 * 20e-9,
        "stream": (0..streams).map(stream).collect::<Vec<_>>(),
    });
    let profile = Profile::parse(&profile.to_string(), "bench", Format::Json)?;
    let mut session = Session::new(profile);
    session.receive = false;
    let report = session.open()?.start()?.finish()?;
    let sent = report.ports[0].tx.packets;
    if sent < frames / 100 {
        return Err(format!("only {sent} frames were sent").into());
    }
    Ok((report.cpu.user_s + report.cpu.system_s) * 1e9 / sent as f64)
}

/// Sequence, delay, order and histograms of each frame.
fn receive(signed: bool, frames: u64) -> Cost {
    let program = program(0, signed)?;
    let stride = 64;
    let mut base = vec![0; stride * BATCH];
    let mut meta = [TxMeta { len: 60, ..TxMeta::default() }; BATCH];
    let (mut cursor, mut scratch) = (program.cursor(0, 1, 1), Scratch::default());
    let run = Run { start: 0, count: BATCH };
    let mut receiver = Receiver::new(false);
    let (mut now, mut spent) = (0, 0);
    for _ in 0..frames / BATCH as u64 {
        program.fill(&mut cursor, &mut scratch, (&mut base, stride, &mut meta), &run, Some(Nanos(now)));
        let begun = Instant::now();
        for slot in base.chunks_exact(stride) {
            now += 100;
            receiver.observe(&slot[..60], 60, Nanos(now + 2000));
        }
        spent += begun.elapsed().as_nanos();
    }
    black_box(&receiver);
    Ok(spent as f64 / frames as f64)
}
