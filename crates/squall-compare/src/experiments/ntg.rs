//! NTG (WorldCIS 2020) compares the speed, CPU time and memory of three generators. Here,
//! generators in use today are measured from outside: packets per second at full speed, then CPU
//! time and memory at each rate step.

use squall::Error;
use squall_units::Nanos;

use super::{
    Known, Run,
    limits::Limits,
    model::{Axis, Figure, Source, Table, Unit, Value},
    validate::{self, Validated},
};
use crate::{
    compared::Repeated,
    generators::{
        Generator, GeneratorRound, attacks,
        run::Place,
        wire::{self, Frame},
    },
    stats::mean_and_sd,
    watch::Second,
};

pub const EXPERIMENT: Known = Known {
    name: "ntg",
    title: "Network traffic generators: speed, CPU and memory",
    paper: "NTG: comparison of network traffic generators, WorldCIS 2020",
    about: "Packets per second at full speed, and CPU time and memory at each rate, of traffic \
            generators",
    takes_s: [110, 9000],
    run,
};

/// Default tools: the tools of the paper, and others in use today.
const TOOLS: &str = "squall,squall-rules,curl,drone,trex,tcpreplay,trafgen,iperf3,mgen,pktgen-dpdk";
/// Frame size, octets without FCS.
const FRAME: u32 = 512;
/// CPUs and memory of the machine in the paper.
const CPUS: u32 = 2;
const MEMORY: u64 = 4 << 30;
/// Rate steps of the paper, in thousands of octets per second.
const FULL_STEPS: [u32; 15] =
    [500, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000, 5500, 6000, 6500, 7000, 7500];
const SHORT_STEPS: [u32; 2] = [500, 7500];
/// Seconds at the start of a run that the second evaluation of the paper excludes.
const SETTLING: usize = 9;

/// Number of points of a distribution in a figure.
const QUANTILES: usize = 100;

/// One run of a tool, at a rate in KB/s or at full speed.
struct Outcome {
    tool: String,
    kb_per_s: Option<u32>,
    round: GeneratorRound,
}

fn run(run: &mut Run<'_>) -> Result<(), Error> {
    let settings = run.settings;
    let names = settings.tools.as_deref().unwrap_or(TOOLS);
    let tools = Generator::parse_list(names, &settings.squall)?;
    run.result.tools = tools.iter().map(Generator::info).collect();
    let mut frames = wire::captures(&[FRAME], &run.work.0)?;
    let attacks = attacks(&tools, &run.work.0);
    let frame = frames.remove(0);
    let interfaces = run.enter_lab(1500)?;
    let mut validates = validate::why_not();
    if let Err(why) = wire::address(&interfaces) {
        let infos = tools.iter().zip(&mut run.result.tools);
        infos.filter(|(tool, _)| tool.needs_addresses()).for_each(|(_, i)| i.lacks_addresses(&why));
    }
    if let Err(why) = validate::without_offload(&interfaces) {
        validates.get_or_insert(why);
    }
    let infos = run.result.tools.clone();
    let usable = run.usable(&tools, &infos)?;
    let limits = Limits::new(CPUS, MEMORY);
    describe(run, limits.as_ref().err());
    let full = Nanos(60 * Nanos::SECOND.0);
    let speed_time = run.step(Nanos(4 * Nanos::SECOND.0), full);
    let step_time = run.step(Nanos(2 * Nanos::SECOND.0), full);
    let mut place = Place {
        interfaces,
        work: run.work.0.clone(),
        cpu: None,
        step: speed_time,
        limits: limits.ok(),
        attacks,
    };
    let steps: &[u32] = if settings.full { &FULL_STEPS } else { &SHORT_STEPS };
    let mut outcomes = Vec::new();
    let mut validated = Vec::new();
    for kb_per_s in std::iter::once(None).chain(steps.iter().copied().map(Some)) {
        place.step = if kb_per_s.is_none() { speed_time } else { step_time };
        for tool in &usable {
            if run.stopped() {
                break;
            }
            let check = kb_per_s == steps.first().copied() && validates.is_none();
            let (round, found) = once(run, &place, tool, &frame, kb_per_s, check);
            if run.stopped() {
                break;
            }
            let at = kb_per_s.map_or("full speed".into(), |kb| format!("{kb} KB/s"));
            run.progress(&format!("{}  {at}:  {}", tool.name, round.in_a_line()));
            validated.extend(found.map(|found| (tool.name.clone(), found)));
            outcomes.push(Outcome { tool: tool.name.clone(), kb_per_s, round });
        }
    }
    if let Some(why) = validates {
        run.missing("validation of the frames", why);
    }
    present(run, &outcomes, &validated);
    Ok(())
}

/// Runs a tool once. With `check`, frames are recorded after the measurement and validated.
fn once(
    run: &Run<'_>,
    place: &Place,
    tool: &Generator,
    frame: &Frame,
    kb_per_s: Option<u32>,
    check: bool,
) -> (GeneratorRound, Option<Result<Validated, String>>) {
    let pps = kb_per_s.map(|kb| f64::from(kb) * 1000.0 / f64::from(FRAME));
    let file = run.work.0.join("frames.pcap");
    let mut recorded = None;
    let mut record = || {
        if check {
            recorded = Some(validate::record(&place.interfaces[1], &file));
        }
    };
    let round = place.once(tool, frame, pps, run.stop(), &mut record);
    let found = recorded.map(|done| done.and_then(|()| validate::examine(&file)));
    (round, found)
}

fn describe(run: &mut Run<'_>, unlimited: Option<&String>) {
    run.fact("Frames", format!("{FRAME} octets without FCS, UDP over IPv4, as far as a tool can"));
    run.fact(
        "squall-rules, curl",
        "attacks that Squall makes from rules for HTTP requests, as Genesids does; POST requests of \
         a plain client, 500 per second and of the size that the rate needs",
    );
    run.fact("KB/s", "1,000 octets of frames without FCS per second");
    match unlimited {
        None => run.fact("Limits", format!("{CPUS} CPUs and 4 GiB for each tool (control group)")),
        Some(why) => run.missing(format!("limits of {CPUS} CPUs and 4 GiB"), why.clone()),
    }
    run.missing(
        "the paper's own numbers",
        "they are not part of Squall; compare with the paper itself, whose figures have the same axes",
    );
}

fn present(
    run: &mut Run<'_>,
    outcomes: &[Outcome],
    validated: &[(String, Result<Validated, String>)],
) {
    for outcome in outcomes {
        let at = outcome.kb_per_s.map_or("full speed".into(), |kb| format!("{kb} KB/s"));
        if let Some(why) = &outcome.round.failed {
            run.note(format!("{} at {at}: it failed: {why}", outcome.tool));
        } else if let Some(wrong) = &outcome.round.disagreement {
            run.note(format!("{}: it {wrong}", outcome.tool));
        } else if let Some(why) = &outcome.round.not_valid {
            run.note(format!("{} at {at}: NOT VALID by its report: {why}", outcome.tool));
        }
    }
    run.result.notes.dedup();
    let good: Vec<&Outcome> = outcomes.iter().filter(|o| o.round.failed.is_none()).collect();
    let fastest: Vec<&Outcome> =
        good.iter().copied().filter(|outcome| outcome.kb_per_s.is_none()).collect();
    let paced: Vec<&Outcome> =
        good.iter().copied().filter(|outcome| outcome.kb_per_s.is_some()).collect();
    let result = &mut run.result;
    let mut gaps = None;
    result.tables.push(speed(&fastest));
    if !paced.is_empty() {
        result.tables.push(costs(&paced));
    }
    if !validated.is_empty() {
        result.tables.push(validity(validated));
        gaps = Some(gaps_at_the_first_rate(validated, paced.first().and_then(|o| o.kb_per_s)));
    }
    result.figures.push(speed_over_time(&fastest));
    if !paced.is_empty() {
        result.figures.extend(costs_against_rate(&paced));
    }
    result.figures.extend(gaps);
    let mut tools: Vec<&str> = paced.iter().map(|outcome| outcome.tool.as_str()).collect();
    tools.dedup();
    for tool in crate::render::in_order(tools.into_iter()) {
        result.figures.extend(costs_over_time(tool, &paced));
    }
}

/// Packets per second at full speed, over the whole run and without its first seconds.
fn speed(fastest: &[&Outcome]) -> Table {
    let mut table = Table::new(
        "speed",
        "Packets per second at full speed",
        "Counted each second at the receiving interface. Variance: standard deviation in percent \
         of the mean.",
        &[
            ("Generator", Unit::Count),
            ("Mean, packets/s", Unit::Number),
            ("SD, packets/s", Unit::Number),
            ("Variance, %", Unit::Number),
            ("Mean after 9 s", Unit::Number),
            ("SD after 9 s", Unit::Number),
            ("Variance after 9 s, %", Unit::Number),
            ("Peak", Unit::Number),
            ("Lowest", Unit::Number),
            ("CPU, % of one", Unit::Number),
        ],
    );
    for outcome in fastest {
        let pps: Vec<f64> = outcome.round.pps().collect();
        let later = pps.get(SETTLING..).unwrap_or_default();
        let mut cells: Vec<Value> = vec![outcome.tool.as_str().into()];
        cells.extend(spread(&pps));
        cells.extend(spread(later));
        cells.push(pps.iter().copied().reduce(f64::max).into());
        cells.push(pps.iter().copied().reduce(f64::min).into());
        cells.push((100.0 * (outcome.round.user_cpus + outcome.round.system_cpus)).into());
        table.row(cells);
    }
    table
}

/// Mean, standard deviation, and coefficient of variation in percent.
fn spread(pps: &[f64]) -> [Value; 3] {
    let Some((mean, sd)) = mean_and_sd(pps) else { return [Value::None, Value::None, Value::None] };
    let percent = if mean > 0.0 { (100.0 * sd / mean).into() } else { Value::None };
    // A single value has no meaningful deviation.
    if pps.len() < 2 {
        return [mean.into(), Value::None, Value::None];
    }
    [mean.into(), sd.into(), percent]
}

/// CPU time and memory at each rate step.
fn costs(paced: &[&Outcome]) -> Table {
    let mut table = Table::new(
        "costs",
        "CPU and memory at each rate",
        "Mean and largest value of the seconds of a step. CPU: user and system time of all \
         processes of the generator, in percent of one CPU.",
        &[
            ("Generator", Unit::Count),
            ("Asked, KB/s", Unit::Number),
            ("Actual, KB/s", Unit::Number),
            ("Packets/s", Unit::Number),
            ("CPU mean, %", Unit::Number),
            ("CPU max, %", Unit::Number),
            ("Memory mean, MB", Unit::Number),
            ("Memory max, MB", Unit::Number),
        ],
    );
    for outcome in paced {
        let mean = |value: fn(&Second) -> f64| mean(&outcome.round.seconds, value);
        let largest = |value: fn(&Second) -> f64| -> Option<f64> {
            outcome.round.seconds.iter().map(value).reduce(f64::max)
        };
        table.row(vec![
            outcome.tool.as_str().into(),
            outcome.kb_per_s.map(f64::from).into(),
            mean(kb_per_s).into(),
            mean(|second| second.pps).into(),
            mean(cpu_percent).into(),
            largest(cpu_percent).into(),
            mean(memory_mb).into(),
            largest(memory_mb).into(),
        ]);
    }
    table
}

fn validity(validated: &[(String, Result<Validated, String>)]) -> Table {
    let mut table = Table::new(
        "validity",
        "Frames in a capture",
        "tcpdump recorded them at the receiving interface, tshark examined them.",
        &[
            ("Generator", Unit::Count),
            ("Frames", Unit::Number),
            ("Malformed", Unit::Number),
            ("Wrong IPv4 checksum", Unit::Number),
            ("Wrong UDP or TCP checksum", Unit::Number),
            ("Remark", Unit::Count),
        ],
    );
    for (tool, found) in validated {
        let count = |value: fn(&Validated) -> u64| -> Value {
            found.as_ref().ok().map(|found| value(found) as f64).into()
        };
        table.row(vec![
            tool.as_str().into(),
            count(|f| f.frames),
            count(|f| f.malformed),
            count(|f| f.bad_ipv4_checksums),
            count(|f| f.bad_payload_checksums),
            found.as_ref().err().map(String::as_str).unwrap_or_default().into(),
        ]);
    }
    table
}

/// Distribution of the gaps between the validated frames.
fn gaps_at_the_first_rate(
    validated: &[(String, Result<Validated, String>)],
    kb_per_s: Option<u32>,
) -> Figure {
    let (x, y) =
        (Axis::new("gap", Unit::Ns).log(), Axis::new("share of gaps up to it", Unit::Ratio));
    let title = match kb_per_s {
        Some(kb) => format!("Gaps between frames at {kb} KB/s"),
        None => "Gaps between frames".into(),
    };
    let note = "of the recorded frames, by the kernel's timestamps at the receiving interface";
    let mut figure = Figure::lines("gaps", &title, note, x, y);
    for (tool, found) in validated {
        let Ok(found) = found else { continue };
        let n = found.gaps_ns.len();
        // Quantiles only: all gaps of all generators would make the page too large.
        let steps = QUANTILES.min(n);
        let quantile = |i: usize| {
            let at = (i * n).div_ceil(steps) - 1;
            (found.gaps_ns[at], i as f64 / steps as f64)
        };
        figure.steps(tool, (1..=steps).map(quantile));
    }
    figure
}

fn speed_over_time(fastest: &[&Outcome]) -> Figure {
    let (x, y) = (Axis::new("time, s", Unit::Number), Axis::new("packets per second", Unit::Pps));
    let note = "each second, counted at the receiving interface";
    let mut figure = Figure::lines("speed", "Packets per second at full speed", note, x, y);
    for outcome in fastest {
        figure.series(&outcome.tool, over_time(&outcome.round.seconds, |second| second.pps));
    }
    figure
}

/// Means over the rate, with a line for each generator.
fn costs_against_rate(paced: &[&Outcome]) -> [Figure; 3] {
    let x = || Axis::new("asked, KB/s", Unit::Number);
    let figure = |id, title, note, y: Axis, value: fn(&Second) -> f64| {
        let mut figure = Figure::lines(id, title, note, x(), y);
        for tool in crate::render::in_order(paced.iter().map(|o| o.tool.as_str())) {
            let of = paced.iter().filter(|outcome| outcome.tool == tool);
            let points = of.filter_map(|outcome| {
                Some((f64::from(outcome.kb_per_s?), mean(&outcome.round.seconds, value)))
            });
            figure.series(tool, points);
        }
        figure
    };
    let percent = Axis::new("CPU, % of one", Unit::Number);
    let memory = Axis::new("memory, MB", Unit::Number);
    let actual = Axis::new("arrived, KB/s", Unit::Number);
    let mut arrived = figure("actual", "Actual against asked rate", "", actual, kb_per_s);
    let asked = crate::render::in_order(paced.iter().filter_map(|outcome| outcome.kb_per_s));
    arrived.reference(
        "as asked",
        Source::Measured,
        asked.into_iter().map(|kb| (f64::from(kb), f64::from(kb))),
    );
    let mean_of = "mean of the seconds of a step";
    [
        figure("cpu", "CPU against rate", mean_of, percent, cpu_percent),
        figure("memory", "Memory against rate", mean_of, memory, memory_mb),
        arrived,
    ]
}

/// Figures 2 to 7 of the paper: CPU and memory over time, with a line for each rate step.
fn costs_over_time(tool: &str, paced: &[&Outcome]) -> [Figure; 2] {
    let figure = |what: &str, title: &str, y: Axis, value: fn(&Second) -> f64| {
        let x = Axis::new("time, s", Unit::Number);
        let title = format!("{title} over the time: {tool}");
        let mut figure =
            Figure::lines(&format!("{what}-{tool}"), &title, "a line for each rate", x, y);
        for outcome in paced.iter().filter(|outcome| outcome.tool == tool) {
            let label = format!("{} KB/s", outcome.kb_per_s.unwrap_or_default());
            figure.series(&label, over_time(&outcome.round.seconds, value));
        }
        figure
    };
    [
        figure("cpu", "CPU", Axis::new("CPU, % of one", Unit::Number), cpu_percent),
        figure("memory", "Memory", Axis::new("memory, MB", Unit::Number), memory_mb),
    ]
}

/// Values at the end of each second.
fn over_time(seconds: &[Second], value: fn(&Second) -> f64) -> Vec<(f64, f64)> {
    (1..).map(f64::from).zip(seconds.iter().map(value)).collect()
}

fn mean(seconds: &[Second], value: fn(&Second) -> f64) -> f64 {
    seconds.iter().map(value).sum::<f64>() / seconds.len() as f64
}

fn kb_per_s(second: &Second) -> f64 {
    second.octets_per_s / 1000.0
}

fn cpu_percent(second: &Second) -> f64 {
    100.0 * (second.user_cpus + second.system_cpus)
}

fn memory_mb(second: &Second) -> f64 {
    second.memory_octets as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(tool: &str, kb_per_s: Option<u32>, pps: impl Iterator<Item = f64>) -> Outcome {
        let second = |pps: f64| Second {
            length_s: 1.0,
            pps,
            octets_per_s: pps * f64::from(FRAME),
            user_cpus: 0.25,
            system_cpus: 0.5,
            memory_octets: 20_000_000,
        };
        let round = GeneratorRound::of(pps.map(second).collect());
        Outcome { tool: tool.into(), kb_per_s, round }
    }

    #[test]
    fn the_first_nine_seconds_count_in_the_first_columns_only() {
        // Nine slow seconds, then 100 and 300 alternately.
        let pps =
            (0..9).map(|_| 10.0).chain((0..10).map(|i| if i % 2 == 0 { 100.0 } else { 300.0 }));
        let one = outcome("a", None, pps);
        let table = speed(&[&one]);
        let number = |i: usize| match table.rows[0].cells[i] {
            Value::Number(number) => number,
            _ => panic!("{:?}", table.rows[0].cells[i]),
        };
        assert!((number(1) - 2090.0 / 19.0).abs() < 1e-9, "{}", number(1));
        assert_eq!((number(4), number(7), number(8), number(9)), (200.0, 300.0, 10.0, 75.0));
        // Ten values at a distance of 100 from 200: the square root of 100,000 / 9.
        assert!((number(5) - (100_000.0_f64 / 9.0).sqrt()).abs() < 1e-9, "{}", number(5));
        assert!((number(6) - number(5) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_of_less_than_nine_seconds_has_no_second_evaluation() {
        let one = outcome("a", None, [10.0, 20.0].into_iter());
        assert_eq!(speed(&[&one]).rows[0].cells[4..7], [Value::None, Value::None, Value::None]);
    }

    #[test]
    fn a_distribution_of_gaps_ends_with_the_largest() {
        let found = Validated { gaps_ns: vec![10.0, 20.0, 30.0, 40.0], ..Validated::default() };
        let all = [("a".into(), Ok(found)), ("b".into(), Err("no".into()))];
        let figure = gaps_at_the_first_rate(&all, Some(500));
        assert_eq!(figure.series.len(), 1);
        assert_eq!(figure.series[0].points, [(10.0, 0.25), (20.0, 0.5), (30.0, 0.75), (40.0, 1.0)]);
        let found =
            Validated { gaps_ns: (1..=999).map(f64::from).collect(), ..Validated::default() };
        let figure = gaps_at_the_first_rate(&[("a".into(), Ok(found))], None);
        let points = &figure.series[0].points;
        assert_eq!((points.len(), points[99], points[49].1), (100, (999.0, 1.0), 0.5));
        assert_eq!(points[49].0, 500.0);
        let none = [("a".into(), Ok(Validated::default()))];
        assert!(gaps_at_the_first_rate(&none, None).series[0].points.is_empty());
    }

    #[test]
    fn costs_are_means_of_the_seconds_in_the_papers_units() {
        let one = outcome("a", Some(512), [900.0, 1100.0].into_iter());
        let cells = &costs(&[&one]).rows[0].cells;
        let expected: Vec<Value> =
            [512.0, 512.0, 1000.0, 75.0, 75.0, 20.0, 20.0].map(Value::from).into_iter().collect();
        assert_eq!(cells[1..], expected);
        let [cpu, _, actual] = costs_against_rate(&[&one]);
        assert_eq!(cpu.series[0].points, [(512.0, 75.0)]);
        assert_eq!(actual.series[1].points, [(512.0, 512.0)]);
        let [cpu, memory] = costs_over_time("a", &[&one]);
        assert_eq!(cpu.series[0].points, [(1.0, 75.0), (2.0, 75.0)]);
        assert_eq!((memory.series[0].label.as_str(), memory.series.len()), ("512 KB/s", 1));
    }
}
