//! A/B comparison of two devices, versions or settings by trials in turns.

mod difference;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_report::render::human::si;

use crate::{
    bench::Halt,
    outcome::{Better, Figure, Limit, Outcome, Plot, Series, Status, Table},
    settings::settings,
    trial::Measured,
};

pub use difference::{Claim, Difference, compare, fewest, needed};

pub const TITLE: &str = "A/B comparison: trials in turns";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Side {
    A,
    B,
}

/// The order of the trials of `n` pairs: A B, B A, A B, ... A drift, such as a machine that warms
/// up, then favors neither side.
///
/// ```
/// use squall_method::ab::{Side::{A, B}, sequence};
///
/// assert_eq!(sequence(3), [A, B, B, A, A, B]);
/// ```
pub fn sequence(n: usize) -> Vec<Side> {
    let pair = |i| if i % 2 == 0 { [Side::A, Side::B] } else { [Side::B, Side::A] };
    (0..n).flat_map(pair).collect()
}

settings! {
    /// Settings of a comparison.
    own quick, "Comparison":
    /// Pairs of trials, one of A and one of B each
    pairs: usize = 30 => one("N");
    /// Confidence of the intervals
    level: f64 = 0.95 => one("LEVEL");
    /// Difference for which the result says how many pairs would show it, as a part of A
    effect: f64 = 0.01 => one("RATIO");
    /// Fail if B is worse in any metric
    fail_if_worse: bool = false => flag();
    /// Seed of the resampling: the same trials and seed give the same intervals
    resampling_seed: u64 = 1 => one("N");
}

impl Settings {
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), Halt> {
        let Self { pairs, level, effect, .. } = *self;
        if !(0.5..1.0).contains(&level) {
            return Err(Halt::Usage(format!("level = {level}, expected 0.5 to below 1")));
        }
        if pairs < fewest(level) {
            let text = format!(
                "{pairs} pairs show no difference at a level of {level}\n  try {} or more",
                fewest(level)
            );
            return Err(Halt::Usage(text));
        }
        if !(effect > 0.0 && effect.is_finite()) {
            return Err(Halt::Usage(format!("effect = {effect}, expected above 0")));
        }
        Ok(())
    }
}

/// The metrics of one trial, by name.
pub type Metrics = BTreeMap<String, f64>;

/// Unit and direction of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    pub unit: &'static str,
    pub better: Better,
}

/// The metrics of a trial.
pub fn metrics(measured: &Measured) -> Metrics {
    let mut all = Metrics::new();
    let mut add = |name: &str, value: f64| {
        all.insert(name.into(), value);
    };
    if !measured.lanes.is_empty() {
        add("loss_ratio", measured.loss_ratio());
        add("reordered", measured.lanes.iter().map(|lane| lane.reordered as f64).sum());
        add("output_fps", measured.lanes.iter().filter_map(|lane| lane.output_fps).sum());
    }
    add("cpu_s", measured.cpu_s);
    if let Some(delay) = measured.delay() {
        add("delay_mean", delay.mean);
        add("delay_p50", delay.p50 as f64);
        add("delay_p99", delay.p99 as f64);
        add("delay_max", delay.max as f64);
    }
    if let Some(ipdv) = measured.ipdv() {
        add("ipdv_mean", ipdv.mean);
        add("ipdv_p99", ipdv.p99 as f64);
    }
    if let Some(flows) = &measured.flows {
        add("cps", flows.completed_cps);
        add("failed_ratio", flows.failed_ratio());
        add("goodput", flows.goodput_bps);
        for (name, delay) in [("setup", flows.setup), ("transaction", flows.transaction)] {
            if let Some(delay) = delay {
                add(&format!("{name}_mean"), delay.mean);
                add(&format!("{name}_p99"), delay.p99 as f64);
            }
        }
    }
    all
}

/// Unit and direction of a metric of [`metrics`]; any other name has neither.
pub fn metric(name: &str) -> Metric {
    let (unit, better) = match name {
        "loss_ratio" | "failed_ratio" => ("ratio", Better::Lower),
        "cps" => ("connections/s", Better::Higher),
        "goodput" => ("bit/s", Better::Higher),
        _ if name.starts_with("setup_") || name.starts_with("transaction_") => {
            ("ns", Better::Lower)
        }
        "reordered" => ("frames", Better::Lower),
        "output_fps" => ("frames/s", Better::Higher),
        "cpu_s" => ("s", Better::Lower),
        _ if name.starts_with("delay_") || name.starts_with("ipdv_") => ("ns", Better::Lower),
        _ => ("", Better::Neither),
    };
    Metric { unit, better }
}

/// The comparison of one metric.
struct Compared<'a> {
    name: &'a str,
    metric: Metric,
    pairs: Vec<(f64, f64)>,
    found: Difference,
    /// Pairs that would show a difference of `effect`.
    needed: Option<usize>,
}

/// Compares pair by pair: `a[i]` and `b[i]` are the trials of a pair. A pair counts for the metrics
/// that both trials have.
///
/// # Errors
/// If a setting is out of range, or if there are no pairs.
pub fn outcome(
    settings: &Settings,
    a: &[Metrics],
    b: &[Metrics],
    metric: impl Fn(&str) -> Metric,
) -> Result<Outcome, Halt> {
    settings.check()?;
    if a.is_empty() || a.len() != b.len() {
        let text = format!("{} trials of A and {} of B, expected as many", a.len(), b.len());
        return Err(Halt::Usage(text));
    }
    let mut names: Vec<&str> = a.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let all: Vec<_> =
        names.into_iter().filter_map(|name| compared(settings, a, b, name, metric(name))).collect();
    let mut outcome = Outcome::new("ab", TITLE, settings);
    outcome.figures = all.iter().map(figure).collect();
    outcome.tables = vec![table(settings, &all)];
    outcome.plots = all.iter().map(plot).collect();
    outcome.verdict.text = all.iter().map(|one| sentence(settings, one)).collect();
    outcome.verdict.status = status(settings, &all);
    outcome.notes.push(chance(settings, all.len()));
    Ok(outcome)
}

fn compared<'a>(
    settings: &Settings,
    a: &[Metrics],
    b: &[Metrics],
    name: &'a str,
    metric: Metric,
) -> Option<Compared<'a>> {
    let both = a.iter().zip(b).filter_map(|(a, b)| Some((*a.get(name)?, *b.get(name)?)));
    let pairs: Vec<_> = both.collect();
    if pairs.is_empty() {
        return None;
    }
    let found = compare(&pairs, metric.better, settings.level, settings.resampling_seed);
    let needed = needed(&pairs, found.mean_a.abs() * settings.effect, settings.level);
    Some(Compared { name, metric, pairs, found, needed })
}

fn status(settings: &Settings, all: &[Compared<'_>]) -> Status {
    match settings.fail_if_worse {
        false => Status::Measured,
        true if all.iter().any(|one| one.found.claim == Claim::Worse) => Status::Failed,
        true => Status::Passed,
    }
}

/// The change, as a part of A's mean unless that is 0.
fn figure(one: &Compared<'_>) -> Figure {
    let found = &one.found;
    let (low, high) = found.interval.unwrap_or((found.difference, found.difference));
    let uncertainty = (found.difference - low).max(high - found.difference);
    let unit = if found.mean_a == 0.0 { one.metric.unit } else { "ratio" };
    Figure::new(
        one.name,
        found.relative(found.difference).unwrap_or(found.difference),
        unit,
        one.metric.better,
        found.relative(uncertainty).unwrap_or(uncertainty),
        Limit::Device,
    )
}

fn percent(level: f64) -> String {
    format!("{} %", (level * 1e4).round() / 100.0)
}

/// `x` with its sign, as a part of A's mean unless that is 0.
fn signed(one: &Compared<'_>, x: f64) -> String {
    match one.found.relative(x) {
        Some(part) => format!("{:+.2} %", part * 100.0),
        None => format!("{}{}", if x < 0.0 { "" } else { "+" }, si(x, one.metric.unit)),
    }
}

fn interval(one: &Compared<'_>) -> Option<String> {
    let (low, high) = one.found.interval?;
    Some(format!("{} to {}", signed(one, low), signed(one, high)))
}

fn word(claim: Claim) -> &'static str {
    match claim {
        Claim::Better => "better",
        Claim::Worse => "worse",
        Claim::Different => "different",
        Claim::NoDifference => "no difference shown",
    }
}

fn table(settings: &Settings, all: &[Compared<'_>]) -> Table {
    let interval_title = format!("{} interval", percent(settings.level));
    let needed_title = format!("Pairs to show {}", percent(settings.effect));
    let columns = [
        "Metric",
        "Mean A",
        "Mean B",
        "Median A",
        "Median B",
        "B against A",
        &interval_title,
        "Pairs",
        &needed_title,
        "B is",
    ];
    let mut table = Table::new("B against A", &columns);
    for one in all {
        let value = |x: f64| si(x, one.metric.unit);
        let found = &one.found;
        table.rows.push(vec![
            one.name.into(),
            value(found.mean_a),
            value(found.mean_b),
            value(found.median_a),
            value(found.median_b),
            signed(one, found.difference),
            interval(one).unwrap_or_else(|| "-".into()),
            found.pairs.to_string(),
            one.needed.map_or("-".into(), |n| n.to_string()),
            word(found.claim).into(),
        ]);
    }
    table
}

fn sentence(settings: &Settings, one: &Compared<'_>) -> String {
    let (name, pairs) = (one.name, one.found.pairs);
    let level = percent(settings.level);
    let Some(interval) = interval(one) else {
        let least = fewest(settings.level);
        return format!("{name}: {pairs} pairs are too few; run {least} or more");
    };
    if one.found.claim != Claim::NoDifference {
        let (word, by) = (word(one.found.claim), signed(one, one.found.difference));
        return format!("{name}: B is {word}, {by} ({level} interval {interval}; {pairs} pairs)");
    }
    let effect = percent(settings.effect);
    let more = match one.needed.map(|needed| needed.saturating_sub(pairs)) {
        Some(0) => format!("; one of {effect} would have been found nine times in ten"),
        Some(more) => format!("; to show one of {effect}, run {more} more"),
        None => String::new(),
    };
    format!(
        "{name}: no difference that {pairs} pairs could show ({level} interval {interval}){more}"
    )
}

fn chance(settings: &Settings, metrics: usize) -> String {
    let level = percent(1.0 - settings.level);
    format!("Each of the {metrics} metrics has a chance of {level} to differ by chance alone.")
}

fn plot(one: &Compared<'_>) -> Plot {
    let series = |label: &str, side: &dyn Fn(&(f64, f64)) -> f64| Series {
        label: label.into(),
        points: one
            .pairs
            .iter()
            .enumerate()
            .map(|(i, pair)| ((i + 1) as f64, side(pair)))
            .collect(),
    };
    let y = match one.metric.unit {
        "" => one.name.into(),
        unit => format!("{}, {unit}", one.name),
    };
    Plot {
        title: one.name.into(),
        x: "Pair".into(),
        y,
        series: vec![series("A", &|pair| pair.0), series("B", &|pair| pair.1)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Rig, Runner};

    /// Trials of a device with a capacity that changes from trial to trial.
    fn trials(n: u32, capacity_fps: f64, delay_ns: u64) -> Vec<Metrics> {
        let rig = Rig::one_stream("A to B", 1e9);
        let one = |i: u32| {
            let capacity_fps = capacity_fps * (1.0 + f64::from(i * 7 % 5) / 500.0);
            let mut device = Device { capacity_fps, buffer: 10.0, delay_ns, ..Device::ideal() };
            metrics(&device.run(&rig.trial("trial".into(), 64, 1.0, 1.0)).unwrap())
        };
        (0..n).map(one).collect()
    }

    fn settings() -> Settings {
        Settings { fail_if_worse: true, ..Settings::default() }
    }

    #[test]
    fn a_slower_device_is_worse_in_what_it_is_slower_in() {
        let (a, b) = (trials(20, 1e6, 500), trials(20, 0.99e6, 500));
        let outcome = outcome(&settings(), &a, &b, metric).unwrap();
        assert_eq!(outcome.verdict.status, Status::Failed);
        let figure = outcome.figure("output_fps").unwrap();
        assert!((figure.value + 0.01).abs() < 1e-4 && figure.better == Better::Higher);
        assert_eq!(figure.unit, "ratio");
        let text = |name: &str| {
            let all = &outcome.verdict.text;
            all.iter().find(|text| text.starts_with(name)).unwrap().clone()
        };
        assert!(text("output_fps").starts_with("output_fps: B is worse, -1.00 %"), "{outcome:?}");
        assert!(text("loss_ratio").contains("B is worse, +"));
        let expected = "cpu_s: no difference that 20 pairs could show";
        assert!(text("cpu_s").starts_with(expected), "{}", text("cpu_s"));
        assert_eq!(outcome.tables[0].rows.len(), outcome.figures.len());
    }

    #[test]
    fn the_same_device_passes() {
        let a = trials(20, 1e6, 500);
        let outcome = outcome(&settings(), &a, &a, metric).unwrap();
        assert_eq!(outcome.verdict.status, Status::Passed);
        assert!(outcome.figures.iter().all(|figure| figure.value == 0.0));
    }

    #[test]
    fn it_says_how_many_more_pairs_it_would_take() {
        let one = |x: f64| Metrics::from([("goodput".into(), x)]);
        let a: Vec<_> = (0..10).map(|i| one(100.0 + f64::from(i * 7 % 10))).collect();
        let b: Vec<_> = (0..10).map(|i| one(100.0 + f64::from(i * 3 % 10))).collect();
        let higher = |_: &str| Metric { unit: "bit/s", better: Better::Higher };
        let outcome = outcome(&settings(), &a, &b, higher).unwrap();
        let text = &outcome.verdict.text[0];
        assert!(text.contains("no difference that 10 pairs could show"), "{text}");
        assert!(text.contains("to show one of 1 %, run "), "{text}");
    }

    #[test]
    fn trials_that_do_not_pair_and_wrong_settings_are_refused() {
        let a = trials(3, 1e6, 500);
        let refused = |settings: Settings, b: &[Metrics]| {
            matches!(outcome(&settings, &a, b, metric), Err(Halt::Usage(_)))
        };
        assert!(refused(settings(), &a[..2]));
        assert!(refused(Settings { level: 1.0, ..settings() }, &a));
        assert!(refused(Settings { pairs: 5, ..settings() }, &a));
        assert!(refused(Settings { effect: 0.0, ..settings() }, &a));
        // The run stopped before its last pair.
        let outcome = outcome(&settings(), &a, &a, metric).unwrap();
        assert!(outcome.verdict.text[0].ends_with("3 pairs are too few; run 6 or more"));
    }
}
