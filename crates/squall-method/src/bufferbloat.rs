//! Latency under load: the delay of measurement streams while TCP connections fill the path, as in
//! flent's RRUL test (Realtime Response Under Load).

use std::collections::BTreeMap;

use squall_report::render::human::{ns, ratio, seconds, si};

use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Plot, Series, Status, Table},
    rig::{Rig, RigLane},
    settings::{WEEK, above_0, at_most, settings, within},
    trial::{Bulk, Delay, FlowLoad, FlowsMeasured, Lane, LaneMeasured, Measured, Trial},
};

settings! {
    "Latency under load":
    /// TCP connections on which servers send, all at once; 0: none
    down: u32 = 4 => one("N"), in within(0.0..=10_000.0);
    /// TCP connections on which clients send, all at once; 0: none
    up: u32 = 4 => one("N"), in within(0.0..=10_000.0);
    /// Length of the measurement without load, seconds
    idle_s: f64 = 5.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in above_0(WEEK);
    /// Length of the measurement under load, seconds
    load_s: f64 = 60.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(3.0), in above_0(WEEK);
    /// Interval of the time series, seconds
    interval_s: f64 = 1.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(0.2), in above_0(WEEK);
    /// Frames per second of each stream that measures delay
    probe_fps: f64 = 100.0 => one("N"), in above_0(1e6);
    /// Size of these frames, octets with FCS
    frame_size: u32 = 128 => one("OCTETS", value_parser = crate::settings::frame_size());
    /// Fail if the load adds more than this to the latency, milliseconds
    max_increase_ms: Option<f64> = None => given("MS");
}

/// Maximum number of intervals of the time series: each is a separate stream in each direction.
const MAX_INTERVALS: f64 = 1000.0;

/// Grades by the increase of the round-trip time in milliseconds, as DSLReports defined them
/// (<https://www.dslreports.com/faq/17930>). There is no grade E.
const GRADES: [(f64, &str); 6] =
    [(5.0, "A+"), (30.0, "A"), (60.0, "B"), (200.0, "C"), (400.0, "D"), (f64::INFINITY, "F")];

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        self.limits()?;
        let wrong = |text: String| Err(MethodError::Usage(text));
        if self.down == 0 && self.up == 0 {
            return wrong("down = 0 and up = 0: there is no load\n  try up = 4".into());
        }
        if self.duration_s() / self.interval_s > MAX_INTERVALS {
            let least = self.duration_s() / MAX_INTERVALS;
            let interval = self.interval_s;
            return wrong(format!(
                "interval_s = {interval}, expected at least {least} for {} of measurements",
                seconds(self.duration_s())
            ));
        }
        Ok(())
    }

    fn duration_s(&self) -> f64 {
        self.idle_s + self.load_s
    }
}

/// Grade of a latency increase, nanoseconds.
fn grade(increase_ns: f64) -> &'static str {
    let found = GRADES.iter().find(|(below, _)| increase_ns / 1e6 < *below);
    found.map_or("F", |(_, grade)| grade)
}

/// Runs a single trial, first without load, then with the TCP connections.
///
/// # Errors
/// If the trial cannot run, if the test is stopped, or if the profile has no streams or no flows.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    settings.check()?;
    let streams = streams(rig);
    if streams.is_empty() {
        return Err(MethodError::Usage(
            "bufferbloat measures latency by streams, and the profile has none\n  add a [[stream]] \
             for each direction"
                .into(),
        ));
    }
    let measured = bench.trial(trial(settings, &streams))?;
    if !measured.kept() {
        outcome.not_measured("bufferbloat", &measured.not_kept);
        return Ok(());
    }
    let results: Vec<Direction<'_>> =
        streams.iter().filter_map(|stream| direction(&stream.stream, &measured)).collect();
    if results.len() < streams.len() {
        outcome.verdict.status = Status::Failed;
        outcome.verdict.text.push("frames of a stream did not come through".into());
        return Ok(());
    }
    let flows = measured.flows.clone().unwrap_or_default();
    report_latency(&results, outcome);
    report_throughput(settings, &flows, outcome);
    outcome.plots.push(latency_plot(settings, &streams, &measured));
    outcome.plots.extend(throughput_plot(&flows));
    judge(settings, &results, &flows, outcome);
    Ok(())
}

/// The first stream of each sending port.
fn streams(rig: &Rig) -> Vec<&RigLane> {
    let mut first: Vec<&RigLane> = Vec::new();
    for lane in &rig.lanes {
        if first.iter().all(|known| known.port != lane.port) {
            first.push(lane);
        }
    }
    first
}

fn idle(stream: &str) -> String {
    format!("{stream}, idle")
}

fn loaded(stream: &str) -> String {
    format!("{stream}, loaded")
}

/// Name of the lane of the interval that starts at `start_s`.
fn interval(stream: &str, start_s: f64) -> String {
    format!("{stream}, {start_s:.3} s")
}

/// Starts of the intervals, seconds.
fn intervals(settings: &Settings) -> impl Iterator<Item = f64> + '_ {
    let count = (settings.duration_s() / settings.interval_s - 1e-9).ceil() as u32;
    (0..count).map(|i| f64::from(i) * settings.interval_s)
}

/// Each direction has one lane per phase, for the exact distribution of delays, and one per
/// interval of the time series. Unlike samples by time, both also work in virtual time and over
/// several machines.
fn trial(settings: &Settings, streams: &[&RigLane]) -> Trial {
    let mut lanes = Vec::new();
    for stream in streams {
        let lane = |name: String, start_s: f64, duration_s: f64| Lane {
            name,
            stream: stream.stream.clone(),
            frame_size: Some(settings.frame_size + stream.longer),
            rate_fps: settings.probe_fps,
            start_s,
            duration_s: Some(duration_s.min(settings.duration_s() - start_s)),
            ..Lane::default()
        };
        lanes.push(lane(idle(&stream.stream), 0.0, settings.idle_s));
        lanes.push(lane(loaded(&stream.stream), settings.idle_s, settings.load_s));
        let series = intervals(settings)
            .map(|at_s| lane(interval(&stream.stream, at_s), at_s, settings.interval_s));
        lanes.extend(series);
    }
    let bulk = Bulk { down: settings.down, up: settings.up, start_s: settings.idle_s };
    // The default window of 256 KiB would end the growth of the queue before the queue is full.
    let tcp = [("window", "1048576"), ("wscale", "7")];
    let load = FlowLoad {
        bulk: Some(bulk),
        tcp: BTreeMap::from(tcp.map(|(name, value)| (name.into(), value.into()))),
        ..FlowLoad::default()
    };
    Trial {
        label: format!("latency, {} connections down, {} up", settings.down, settings.up),
        lanes,
        duration_s: settings.duration_s(),
        flows: Some(load),
        seconds: true,
        ..Trial::default()
    }
}

/// Delays of one stream.
struct Direction<'a> {
    stream: &'a str,
    idle: (&'a LaneMeasured, Delay),
    loaded: (&'a LaneMeasured, Delay),
}

impl Direction<'_> {
    fn increase_ns(&self) -> f64 {
        self.loaded.1.mean - self.idle.1.mean
    }
}

/// `None` if a phase has no delay.
fn direction<'a>(stream: &'a str, measured: &'a Measured) -> Option<Direction<'a>> {
    let phase = |name: String| {
        let lane = measured.lane(&name)?;
        Some((lane, lane.delay?))
    };
    Some(Direction { stream, idle: phase(idle(stream))?, loaded: phase(loaded(stream))? })
}

/// Standard error of a mean. The standard deviation follows from the distance between median and
/// 90th percentile: 1.28 standard deviations of a normal distribution.
fn error_of_mean((lane, delay): (&LaneMeasured, Delay)) -> f64 {
    let spread = (delay.p90 as f64 - delay.p50 as f64) / 1.28;
    spread / (lane.received.max(1) as f64).sqrt()
}

fn report_latency(results: &[Direction<'_>], outcome: &mut Outcome) {
    let columns = ["Stream", "", "Mean", "Median", "p99", "Maximum", "Frame loss rate"];
    let mut table = Table::new("One-way delay", &columns);
    for one in results {
        for (phase, (lane, delay)) in [("idle", one.idle), ("under load", one.loaded)] {
            table.rows.push(vec![
                one.stream.into(),
                phase.into(),
                ns(delay.mean),
                ns(delay.p50 as f64),
                ns(delay.p99 as f64),
                ns(delay.max as f64),
                ratio(lane.loss_ratio()),
            ]);
        }
    }
    outcome.tables.push(table);
    let mut push = |name: String, value: f64, unit: &str, better, uncertainty: f64| {
        outcome.figures.push(Figure::new(name, value, unit, better, uncertainty, Limit::Device));
    };
    for one in results {
        for (phase, (lane, delay)) in [("idle", one.idle), ("loaded", one.loaded)] {
            let stream = one.stream;
            let error = 1.96 * error_of_mean((lane, delay));
            push(format!("{phase}.mean/{stream}"), delay.mean, "ns", Better::Lower, error);
            // Percentiles are from a histogram with bins of less than 1 %; the 99th also varies by
            // chance.
            let p99 = delay.p99 as f64;
            push(format!("{phase}.p99/{stream}"), p99, "ns", Better::Lower, 0.1 * p99);
        }
        let lost = one.loaded.0.loss_ratio();
        let chance = 1.96 * (lost * (1.0 - lost) / one.loaded.0.sent.max(1) as f64).sqrt();
        push(format!("loaded.loss/{}", one.stream), lost, "ratio", Better::Lower, chance);
    }
    let variance: f64 = results
        .iter()
        .flat_map(|one| [one.idle, one.loaded])
        .map(|p| error_of_mean(p).powi(2))
        .sum();
    push("increase".into(), increase_ns(results), "ns", Better::Lower, 1.96 * variance.sqrt());
}

/// Increase of the mean latency under load, summed over all directions. With a stream in each
/// direction, this is the increase of the round-trip time.
fn increase_ns(results: &[Direction<'_>]) -> f64 {
    results.iter().map(Direction::increase_ns).sum()
}

fn report_throughput(settings: &Settings, flows: &FlowsMeasured, outcome: &mut Outcome) {
    let mut table = Table::new("TCP under load", &["", "Connections", "Goodput"]);
    for (name, connections, octets) in
        [("down", settings.down, flows.received_octets), ("up", settings.up, flows.uploaded_octets)]
    {
        if connections > 0 {
            let bps = octets as f64 * 8.0 / settings.load_s;
            table.rows.push(vec![name.into(), connections.to_string(), si(bps, "b/s")]);
            let name = format!("goodput.{name}");
            let figure = Figure::new(name, bps, "bit/s", Better::Higher, bps * 0.05, Limit::Device);
            outcome.figures.push(figure);
        }
    }
    outcome.tables.push(table);
}

fn latency_plot(settings: &Settings, streams: &[&RigLane], measured: &Measured) -> Plot {
    let series = |stream: &&RigLane, label: &str, of: &dyn Fn(&Delay) -> f64| Series {
        label: format!("{}, {label}", stream.stream),
        points: intervals(settings)
            .filter_map(|at_s| {
                let lane = measured.lane(&interval(&stream.stream, at_s))?;
                Some((at_s + settings.interval_s / 2.0, of(&lane.delay?)))
            })
            .collect(),
    };
    let of_stream = |stream| {
        [series(stream, "mean", &|d| d.mean), series(stream, "maximum", &|d| d.max as f64)]
    };
    let title = format!("One-way delay, with load from {}", seconds(settings.idle_s));
    Plot::new(&title, "Time, s", "Delay, ns", streams.iter().flat_map(of_stream).collect())
}

/// `None` if there are no samples, as in virtual time.
fn throughput_plot(flows: &FlowsMeasured) -> Option<Plot> {
    let series = |label: &str, of: &dyn Fn(&crate::Goodput) -> f64| Series {
        label: label.into(),
        points: flows.goodput.iter().map(|one| (one.at_s, of(one) / 1e6)).collect(),
    };
    let lines = vec![series("down", &|one| one.down_bps), series("up", &|one| one.up_bps)];
    let plot = Plot::new("Goodput of TCP", "Time, s", "Goodput, Mb/s", lines);
    (flows.goodput.len() > 1).then_some(plot)
}

fn judge(
    settings: &Settings,
    results: &[Direction<'_>],
    flows: &FlowsMeasured,
    outcome: &mut Outcome,
) {
    let asked = u64::from(settings.down) + u64::from(settings.up);
    if flows.established < asked {
        outcome.verdict.status = Status::Failed;
        outcome.verdict.text.push(format!(
            "{} of {asked} connections opened, so the load is not the one requested: {}",
            flows.established,
            crate::connections::why(flows)
        ));
        return;
    }
    let increase = increase_ns(results);
    let sum = |of: &dyn Fn(&Direction<'_>) -> f64| ns(results.iter().map(of).sum());
    let trip = if results.len() == 2 { "round trip" } else { "one-way delay" };
    let sign = if increase < 0.0 { "-" } else { "+" };
    outcome.verdict.text.push(format!(
        "{trip} {} idle, {} under load: {sign}{}, bufferbloat grade {}",
        sum(&|one| one.idle.1.mean),
        sum(&|one| one.loaded.1.mean),
        ns(increase.abs()),
        grade(increase),
    ));
    let limits = GRADES.windows(2).map(|two| format!("{} below {} ms", two[0].1, two[0].0));
    outcome.notes.push(format!(
        "grades by the increase of the mean round-trip time, as DSLReports defined them: {}, F above",
        limits.collect::<Vec<_>>().join(", ")
    ));
    if results.len() == 1 {
        outcome.notes.push(
            "only one direction is measured: add a stream for the other one to grade the round trip"
                .into(),
        );
    }
    let Some(most) = settings.max_increase_ms else { return };
    outcome.verdict.status = match increase / 1e6 <= most {
        true => Status::Passed,
        false => {
            let text = format!("the load adds {}, more than {most} ms", ns(increase));
            outcome.verdict.text.push(text);
            Status::Failed
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, NoWatch, RetryPolicy};

    #[test]
    fn grades_are_those_of_dslreports() {
        let of = |ms: f64| grade(ms * 1e6);
        assert_eq!([of(-1.0), of(4.9), of(5.0), of(29.9), of(59.0)], ["A+", "A+", "A", "A", "B"]);
        assert_eq!([of(60.0), of(200.0), of(399.9), of(400.0)], ["C", "D", "D", "F"]);
    }

    /// A path whose delay increases by a known time under load.
    struct Path {
        idle_ns: u64,
        loaded_ns: u64,
        opened: u64,
    }

    impl crate::Runner for Path {
        fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
            let bulk = trial.flows.as_ref().and_then(|load| load.bulk).unwrap();
            let lane = |lane: &Lane| {
                let at = if lane.start_s < bulk.start_s { self.idle_ns } else { self.loaded_ns };
                let delay = Delay {
                    min: at,
                    mean: at as f64,
                    p50: at,
                    p90: at,
                    p99: at,
                    p999: at,
                    max: at,
                };
                let due = lane.due(trial.duration_s);
                LaneMeasured {
                    name: lane.name.clone(),
                    sent: due,
                    received: due,
                    delay: Some(delay),
                    ..LaneMeasured::default()
                }
            };
            let flows = FlowsMeasured {
                attempted: 8,
                established: self.opened,
                received_octets: 60_000_000,
                uploaded_octets: 7_500_000,
                ..FlowsMeasured::default()
            };
            let lanes = trial.lanes.iter().map(lane).collect();
            Ok(Measured { lanes, flows: Some(flows), ..Measured::default() })
        }

        fn settle(&mut self, _seconds: f64) -> Result<(), MethodError> {
            Ok(())
        }
    }

    fn both_ways() -> Rig {
        let mut rig = Rig::one_stream("A to B", 1e9);
        rig.ports.push("B".into());
        let back = RigLane { stream: "B to A".into(), port: "B".into(), ..rig.lanes[0].clone() };
        rig.lanes.push(back);
        rig
    }

    fn outcome_of(mut path: Path, settings: Settings) -> Outcome {
        let mut watch = NoWatch;
        let mut bench = Bench::new(&mut path, &mut watch, RetryPolicy::default());
        crate::Method::Bufferbloat(settings).run(&both_ways(), &mut bench).unwrap()
    }

    #[test]
    fn the_increase_is_that_of_both_directions() {
        let path = Path { idle_ns: 1_000_000, loaded_ns: 21_000_000, opened: 8 };
        let found = outcome_of(path, Settings::default());
        assert_eq!(found.figure("increase").unwrap().value, 40e6);
        assert!(found.verdict.text[0].contains("grade B"), "{:?}", found.verdict);
        // 60 MB and 7.5 MB in 60 s.
        assert_eq!(found.figure("goodput.down").unwrap().value, 8e6);
        assert_eq!(found.figure("goodput.up").unwrap().value, 1e6);
        let line = &found.plots[0].series[0].points;
        assert_eq!((line.len(), line[0], line[64]), (65, (0.5, 1e6), (64.5, 21e6)));
        assert_eq!(found.verdict.status, Status::Measured);
    }

    #[test]
    fn a_limit_on_the_increase_decides() {
        let at = |most: f64| {
            let path = Path { idle_ns: 0, loaded_ns: 10_000_000, opened: 8 };
            let settings = Settings { max_increase_ms: Some(most), ..Settings::default() };
            outcome_of(path, settings).verdict.status
        };
        assert_eq!([at(20.0), at(19.9)], [Status::Passed, Status::Failed]);
    }

    #[test]
    fn connections_that_do_not_open_are_no_load() {
        let found = outcome_of(Path { idle_ns: 1, loaded_ns: 1, opened: 7 }, Settings::default());
        assert_eq!(found.verdict.status, Status::Failed);
        assert!(found.verdict.text[0].contains("7 of 8 connections"), "{:?}", found.verdict);
    }

    #[test]
    fn settings_without_load_or_with_too_many_intervals_are_refused() {
        let of = |settings: Settings| settings.check();
        assert!(of(Settings { down: 0, up: 0, ..Settings::default() }).is_err());
        assert!(of(Settings { interval_s: 0.01, ..Settings::default() }).is_err());
        assert!(of(Settings::default().quick(&[])).is_ok());
        // The device model suffices for an estimate.
        let mut device = Device::ideal();
        let mut watch = NoWatch;
        let mut bench = Bench::new(&mut device, &mut watch, RetryPolicy::default());
        crate::Method::Bufferbloat(Settings::default()).run(&both_ways(), &mut bench).unwrap();
        assert_eq!(device.spent_s, 65.0);
    }
}
