//! A/B comparison of two devices, versions or settings by alternating trials.

mod difference;
mod exchange;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_report::render::human::si;

use crate::{
    bench::MethodError,
    outcome::{Better, Figure, Limit, Outcome, Plot, Series, Status, Table},
    settings::settings,
    trial::Measured,
};

pub use difference::{Claim, Difference, Repeats, compare, fewest, needed};
pub use exchange::probabilities;

pub const TITLE: &str = "A/B comparison: trials in turns";

/// Primary metrics by which B is judged unless the settings name others. There is one for each
/// question, because each further metric reduces the power of all. With 10 pairs, the power to
/// detect a difference of two standard deviations is 92 % with four uncorrelated metrics, and 85 %
/// with ten. The other metrics of [`metrics`] follow from these (`output_fps` from loss), describe
/// the same distribution, have the value of a single frame (`delay_max`), or belong to the
/// generator (`cpu_s`).
const PRIMARY: [&str; 8] = [
    "loss_ratio",
    "reordered",
    "delay_mean",
    "delay_p99",
    "cps",
    "failed_ratio",
    "goodput",
    "transaction_mean",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Side {
    A,
    B,
}

/// Order of the trials of `n` pairs: A B, B A, A B, ... A drift, such as that of a machine that
/// warms up, then favors neither side.
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
    /// Judge B by this metric instead of loss, reordering, mean and 99th percentile of delay,
    /// connections, failed connections, goodput and transaction time; repeatable; all: every metric
    primary: Vec<String> = Vec::new() => given("METRIC");
    /// Confidence of each interval, and of the claims about all primary metrics together
    level: f64 = 0.95 => one("LEVEL");
    /// Difference for which the result says how many pairs would show it, as a part of A
    effect: f64 = 0.01 => one("RATIO");
    /// Fail if B is worse in any primary metric
    fail_if_worse: bool = false => flag();
    /// Seed of the resampling: the same trials and seed give the same result
    resampling_seed: u64 = 1 => one("N");
}

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        let Self { pairs, level, effect, .. } = *self;
        if !(0.5..1.0).contains(&level) {
            return Err(MethodError::Usage(format!("level = {level}, expected 0.5 to below 1")));
        }
        if pairs < fewest(level) {
            let text = format!(
                "{pairs} pairs show no difference at a level of {level}\n  try {} or more",
                fewest(level)
            );
            return Err(MethodError::Usage(text));
        }
        if !(effect > 0.0 && effect.is_finite()) {
            return Err(MethodError::Usage(format!("effect = {effect}, expected above 0")));
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

/// Unit and direction of a metric of [`metrics`]. Metrics of other names have neither.
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
struct Compared {
    name: String,
    metric: Metric,
    pairs: Vec<(f64, f64)>,
    found: Difference,
    /// Number of pairs that would show a difference of `effect`.
    needed: Option<usize>,
}

/// Compares pair by pair: `a[i]` and `b[i]` are the trials of a pair. A pair counts for the metrics
/// that both of its trials have.
///
/// # Errors
/// If a setting is out of range, if there are no pairs, or if no pair has a primary metric that the
/// settings name.
pub fn outcome(
    settings: &Settings,
    a: &[Metrics],
    b: &[Metrics],
    metric: impl Fn(&str) -> Metric,
) -> Result<Outcome, MethodError> {
    settings.check()?;
    if a.is_empty() || a.len() != b.len() {
        let text = format!("{} trials of A and {} of B, expected as many", a.len(), b.len());
        return Err(MethodError::Usage(text));
    }
    let mut measured: BTreeMap<&str, Vec<Option<(f64, f64)>>> = BTreeMap::new();
    for name in a.iter().flat_map(BTreeMap::keys) {
        measured.entry(name).or_insert_with(|| {
            a.iter().zip(b).map(|(a, b)| Some((*a.get(name)?, *b.get(name)?))).collect()
        });
    }
    measured.retain(|_, pairs| pairs.iter().any(Option::is_some));
    let primary = primary(settings, &measured.keys().copied().collect::<Vec<_>>())?;
    let tested: Vec<_> = primary.iter().map(|name| measured[name].clone()).collect();
    let probabilities = probabilities(&tested, settings.resampling_seed);
    // A metric without any difference cannot cause a false claim, so it does not count among the
    // metrics tested.
    let differ = |pairs: &&Vec<Option<(f64, f64)>>| pairs.iter().flatten().any(|(a, b)| a != b);
    let differing = tested.iter().filter(differ).count();
    let compared = |(name, pairs): (&&'_ str, &Vec<Option<(f64, f64)>>)| {
        let metric = metric(name);
        let pairs: Vec<_> = pairs.iter().copied().flatten().collect();
        let probability = primary.iter().position(|one| one == name).map(|i| probabilities[i]);
        let seed = settings.resampling_seed;
        let found = compare(&pairs, metric.better, settings.level, probability, seed);
        let effect = found.mean_a.abs() * settings.effect;
        let together = if probability.is_some() { differing } else { 1 };
        let needed = needed(&pairs, effect, settings.level, together);
        Compared { name: (*name).to_string(), metric, pairs, found, needed }
    };
    let mut all: Vec<_> = measured.iter().map(compared).collect();
    // Primary metrics first.
    all.sort_by_key(|one| one.found.claim == Claim::NotTested);
    let mut outcome = Outcome::new("ab", TITLE, settings);
    outcome.figures = all.iter().map(figure).collect();
    outcome.tables = vec![table(settings, &all)];
    outcome.plots = all.iter().map(plot).collect();
    let judged = all.iter().filter(|one| one.found.claim != Claim::NotTested);
    outcome.verdict.text = judged.map(|one| sentence(settings, one)).collect();
    outcome.verdict.status = status(settings, &all);
    outcome.notes.extend(notes(settings, &all));
    Ok(outcome)
}

/// Names of the primary metrics among those measured.
fn primary<'a>(settings: &Settings, measured: &[&'a str]) -> Result<Vec<&'a str>, MethodError> {
    let given = &settings.primary;
    if let Some(name) =
        given.iter().find(|name| *name != "all" && !measured.contains(&name.as_str()))
    {
        let measured = measured.join(", ");
        let text =
            format!("primary = \"{name}\": the trials do not have it\n  try {measured}, all");
        return Err(MethodError::Usage(text));
    }
    let every = given.iter().any(|name| name == "all");
    let default = |name: &&str| PRIMARY.contains(name);
    let named = |name: &&str| given.iter().any(|given| given == name);
    let found: Vec<&str> = match given.is_empty() {
        true => measured.iter().copied().filter(default).collect(),
        false => measured.iter().copied().filter(named).collect(),
    };
    // With metrics of another program, none is known to be more important than the others.
    Ok(if every || found.is_empty() { measured.to_vec() } else { found })
}

fn status(settings: &Settings, all: &[Compared]) -> Status {
    match settings.fail_if_worse {
        false => Status::Measured,
        true if all.iter().any(|one| one.found.claim == Claim::Worse) => Status::Failed,
        true => Status::Passed,
    }
}

/// The change, as a fraction of A's mean, or absolute if the mean is 0.
fn figure(one: &Compared) -> Figure {
    let found = &one.found;
    let (low, high) = found.interval.unwrap_or((found.difference, found.difference));
    let uncertainty = (found.difference - low).max(high - found.difference);
    let unit = if found.mean_a == 0.0 { one.metric.unit } else { "ratio" };
    Figure::new(
        &one.name,
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

/// `x` with its sign, as a fraction of A's mean, or absolute if the mean is 0.
fn signed(one: &Compared, x: f64) -> String {
    match one.found.relative(x) {
        Some(part) => format!("{:+.2} %", part * 100.0),
        None => format!("{}{}", if x < 0.0 { "" } else { "+" }, si(x, one.metric.unit)),
    }
}

fn interval(one: &Compared) -> Option<String> {
    let (low, high) = one.found.interval?;
    Some(format!("{} to {}", signed(one, low), signed(one, high)))
}

fn word(claim: Claim) -> &'static str {
    match claim {
        Claim::Better => "better",
        Claim::Worse => "worse",
        Claim::Different => "different",
        Claim::NoDifference => "no difference shown",
        Claim::NotTested => "not judged",
    }
}

/// Describes values that do not vary: an interval of width 0 would suggest certainty.
fn repeated(repeats: Repeats) -> Option<&'static str> {
    match repeats {
        Repeats::Nothing => None,
        Repeats::Difference => Some("the same in all pairs"),
        Repeats::Sides => Some("all trials of a side are identical"),
        Repeats::All => Some("all trials are identical"),
    }
}

fn table(settings: &Settings, all: &[Compared]) -> Table {
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
        "By chance",
        "Pairs",
        &needed_title,
        "B is",
    ];
    let mut table = Table::new("B against A", &columns);
    for one in all {
        let value = |x: f64| si(x, one.metric.unit);
        let found = &one.found;
        table.rows.push(vec![
            one.name.clone(),
            value(found.mean_a),
            value(found.mean_b),
            value(found.median_a),
            value(found.median_b),
            signed(one, found.difference),
            interval(one).unwrap_or_else(|| repeated(found.repeats).unwrap_or("-").into()),
            found.probability.map_or("-".into(), by_chance),
            found.pairs.to_string(),
            one.needed.map_or("-".into(), |n| n.to_string()),
            word(found.claim).into(),
        ]);
    }
    table
}

/// A probability as a percentage.
fn by_chance(probability: f64) -> String {
    match probability {
        p if p < 0.001 => "< 0.1 %".into(),
        p => format!("{:.1} %", p * 100.0),
    }
}

fn sentence(settings: &Settings, one: &Compared) -> String {
    let (name, found) = (&one.name, &one.found);
    let (pairs, level) = (found.pairs, percent(settings.level));
    if pairs < fewest(settings.level) {
        let least = fewest(settings.level);
        return format!("{name}: {pairs} pairs are too few; run {least} or more");
    }
    if found.repeats == Repeats::All {
        return format!("{name}: the same in all trials of A and B ({pairs} pairs)");
    }
    let spread = match (repeated(found.repeats), interval(one)) {
        (None, Some(interval)) => format!("{level} interval {interval}"),
        (repeated, _) => repeated.unwrap_or_default().into(),
    };
    let probability = by_chance(found.probability.unwrap_or(1.0));
    if found.claim != Claim::NoDifference {
        let (word, by) = (word(found.claim), signed(one, found.difference));
        return format!(
            "{name}: B is {word}, {by} ({spread}; {probability} by chance; {pairs} pairs)"
        );
    }
    let effect = percent(settings.effect);
    let more = match one.needed.map(|needed| needed.saturating_sub(pairs)) {
        Some(0) => format!("; one of {effect} would have been found nine times in ten"),
        Some(more) => format!("; to show one of {effect}, run {more} more"),
        None => String::new(),
    };
    format!(
        "{name}: no difference that {pairs} pairs could show ({spread}; {probability} by chance)\
         {more}"
    )
}

/// Explains the probabilities and the metrics that are not judged.
fn notes(settings: &Settings, all: &[Compared]) -> Vec<String> {
    let (others, primary): (Vec<_>, Vec<_>) =
        all.iter().partition(|one| one.found.claim == Claim::NotTested);
    let risk = percent(1.0 - settings.level);
    let subject = match primary.len() {
        1 => "the primary metric".into(),
        n => format!("any of the {n} primary metrics"),
    };
    let mut notes = vec![format!(
        "Equal sides have a chance of at most {risk} that {subject} is claimed to differ. \"By \
         chance\" is the probability that equal sides differ as much, over all primary metrics \
         together; each interval is for its metric alone."
    )];
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|one| one.name.as_str()).collect();
        notes.push(format!(
            "Not judged: {}. Their intervals exclude 0 by chance once in {:.0} each; --primary \
             judges by other metrics.",
            names.join(", "),
            1.0 / (1.0 - settings.level)
        ));
    }
    notes
}

fn plot(one: &Compared) -> Plot {
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
        "" => one.name.clone(),
        unit => format!("{}, {unit}", one.name),
    };
    Plot {
        title: one.name.clone(),
        x: "Pair".into(),
        y,
        series: vec![series("A", &|pair| pair.0), series("B", &|pair| pair.1)],
    }
}

#[cfg(test)]
pub mod tests {
    use squall_units::SplitMix64;

    use super::*;
    use crate::{Device, Rig, Runner};

    pub struct Random(pub SplitMix64);

    impl Random {
        /// A random number above 0, up to 1.
        pub fn part(&mut self) -> f64 {
            ((self.0.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64
        }

        pub fn normal(&mut self) -> f64 {
            (-2.0 * self.part().ln()).sqrt() * (std::f64::consts::TAU * self.part()).cos()
        }

        pub fn exponential(&mut self) -> f64 {
            -self.part().ln()
        }
    }

    /// Trials of a device whose capacity varies from trial to trial.
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
        let every = Settings { primary: vec!["all".into()], ..settings() };
        let outcome = outcome(&every, &a, &b, metric).unwrap();
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
        assert_eq!(text("cpu_s"), "cpu_s: the same in all trials of A and B (20 pairs)");
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
            matches!(outcome(&settings, &a, b, metric), Err(MethodError::Usage(_)))
        };
        assert!(refused(settings(), &a[..2]));
        assert!(refused(Settings { level: 1.0, ..settings() }, &a));
        assert!(refused(Settings { pairs: 5, ..settings() }, &a));
        assert!(refused(Settings { effect: 0.0, ..settings() }, &a));
        // The run was stopped before its last pair was complete.
        let outcome = outcome(&settings(), &a, &a, metric).unwrap();
        assert!(outcome.verdict.text[0].ends_with("3 pairs are too few; run 6 or more"));
    }

    /// The means and standard deviations of [`drawn`], by distribution.
    const SPREAD: [(&str, f64, f64); 10] = [
        ("loss_ratio", 0.01, 0.002),
        ("reordered", 20.0, 4.0),
        ("delay_mean", 5e4, 1e3),
        ("delay_p99", 9e4, 1e4),
        ("delay_p50", 4.9e4, 1e3),
        ("delay_max", 3e5, 1e5),
        ("ipdv_mean", 1e3, 50.0),
        ("ipdv_p99", 5e3, 400.0),
        ("output_fps", 1e6, 1e3),
        ("cpu_s", 1.0, 0.1),
    ];

    /// A trial with the first `n` of these metrics, each with a different distribution, half of
    /// them skewed. The fraction `shared` of the variance is common to all of them and correlates
    /// them.
    fn drawn(random: &mut Random, n: usize, shared: f64) -> Metrics {
        let common = random.normal();
        let mut one = |(i, (name, mean, deviation)): (usize, (&str, f64, f64))| {
            let own = if i % 2 == 0 { random.normal() } else { random.exponential() - 1.0 };
            let x = shared.sqrt() * common + (1.0 - shared).sqrt() * own;
            (name.to_string(), mean + deviation * x)
        };
        SPREAD.into_iter().take(n).enumerate().map(&mut one).collect()
    }

    /// Outcomes of `n` comparisons of 10 pairs, in which B's metrics are `shifted`.
    fn comparisons(
        n: u64,
        settings: &Settings,
        shared: f64,
        shifted: impl Fn(u64, &mut Metrics),
    ) -> Vec<Outcome> {
        let mut random = Random(SplitMix64(38));
        // By default, four of these five metrics are primary.
        let metrics = if settings.primary.is_empty() { 5 } else { 10 };
        let mut one = |i: u64| {
            let a: Vec<_> = (0..10).map(|_| drawn(&mut random, metrics, shared)).collect();
            let mut b: Vec<_> = (0..10).map(|_| drawn(&mut random, metrics, shared)).collect();
            b.iter_mut().for_each(|trial| shifted(i, trial));
            outcome(&Settings { resampling_seed: i, ..settings.clone() }, &a, &b, metric).unwrap()
        };
        (0..n).map(&mut one).collect()
    }

    fn claims(outcome: &Outcome, name: &str) -> bool {
        let table = &outcome.tables[0];
        let row = table.rows.iter().find(|row| row[0] == name);
        row.is_some_and(|row| {
            ["better", "worse", "different"].contains(&row[row.len() - 1].as_str())
        })
    }

    #[test]
    fn equal_sides_are_claimed_to_differ_in_any_metric_at_most_once_in_20() {
        let every = Settings { primary: vec!["all".into()], ..settings() };
        for (settings, shared) in [(settings(), 0.0), (settings(), 0.7), (every, 0.3)] {
            let all = comparisons(400, &settings, shared, |_, _| {});
            let any = |outcome: &&Outcome| SPREAD.iter().any(|one| claims(outcome, one.0));
            let wrong = all.iter().filter(any).count();
            let failed = all.iter().filter(|one| one.verdict.status == Status::Failed).count();
            // 400 comparisons at 5 % give 20 on average; more than 31 have a probability of 1 %.
            assert!(wrong <= 31 && failed <= wrong, "{wrong} of 400, {failed} failed");
        }
    }

    #[test]
    fn differences_of_two_standard_deviations_in_one_primary_metric_are_found_by_10_pairs() {
        for shared in [0.0, 0.5] {
            let one = |i: u64| SPREAD[i as usize % 4];
            let all = comparisons(400, &settings(), shared, |i, trial| {
                let (name, _, deviation) = one(i);
                *trial.get_mut(name).unwrap() += 2.0 * deviation;
            });
            let found = |(i, outcome): &(u64, &Outcome)| claims(outcome, one(*i).0);
            let found = (0..).zip(&all).filter(found).count();
            assert!(found >= 360, "{found} of 400");
            assert!(all.iter().filter(|one| one.verdict.status == Status::Failed).count() >= found);
        }
    }
}
