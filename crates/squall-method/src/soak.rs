//! Soak test: a constant load for hours, in consecutive trials. Results are loss and latency over
//! time, their drift, and availability.

use squall_report::render::human::{ns, ratio, seconds};

use crate::{
    bench::{Bench, MethodError},
    outage::{Outage, Outages},
    outcome::{Better, Figure, Limit, Outcome, Plot, Series, Status, Table},
    rig::Rig,
    settings::{above_0, at_most, settings},
    trial::{Measured, Second},
    y1564::Availability,
};

settings! {
    /// Load, length and limits of a soak test.
    "Soak test":
    /// Length of the test, seconds
    duration_s: f64 = 3600.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(10.0);
    /// Length of a trial, seconds; --rest is the pause after each
    trial_s: f64 = 60.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0);
    /// Load, as a part of the highest rate
    load: f64 = 0.5 => one("RATIO"), in above_0(1.0);
    /// Frame size, octets with FCS
    frame_size: u32 = 512 => one("OCTETS", value_parser = crate::settings::frame_size());
    /// Fail if more than this ratio of all frames is lost
    max_loss: Option<f64> = None => given("RATIO");
    /// Fail if the mean latency of a trial is above this, microseconds
    max_latency_us: Option<f64> = None => given("US");
    /// Fail if the mean latency rises by more than this in an hour, microseconds, beyond chance
    max_drift_us: Option<f64> = None => given("US");
    /// Fail if a lower ratio of the time is available (Y.1563)
    min_availability: Option<f64> = None => given("RATIO");
}

/// Loss ratio above which a trial counts as unavailable if there are no counts per second (Y.1563
/// defines availability by seconds).
const SEVERE_LOSS: f64 = 0.5;

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        let wrong = |text: String| Err(MethodError::Usage(text));
        if !(self.trial_s > 0.0 && self.trial_s <= self.duration_s) {
            let (trial, all) = (self.trial_s, self.duration_s);
            return wrong(format!("trial_s = {trial}, expected above 0, to duration_s = {all}"));
        }
        if self.duration_s > 86_400.0 * 366.0 || self.duration_s / self.trial_s > 1e6 {
            let text = "expected at most a year and a million trials";
            return wrong(format!("duration_s = {}: {text}", self.duration_s));
        }
        self.limits()
    }

    fn trials(&self) -> usize {
        (self.duration_s / self.trial_s - 1e-9).ceil() as usize
    }
}

/// The result of one trial.
struct Period {
    /// Middle of the trial, seconds since the start of the test, without pauses.
    at_s: f64,
    loss: f64,
    mean_ns: Option<f64>,
    p99_ns: Option<f64>,
    max_ns: Option<f64>,
    /// Uncertainty of each delay.
    bound_ns: f64,
    sent: u64,
    lost: u64,
    /// The longest gap between the frames of a stream.
    gap_s: f64,
    /// Counts per second, of all streams together; empty in virtual time.
    seconds: Vec<Second>,
}

/// Runs the trials in sequence.
///
/// # Errors
/// If a trial cannot run, or if the test is stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    settings.check()?;
    let (mut periods, mut not_kept) = (Vec::new(), 0);
    let mut outages: Vec<Outages> = vec![Outages::default(); rig.lanes.len()];
    let mut done = Ok(());
    for number in 0..settings.trials() {
        let label = format!("soak, trial {} of {}", number + 1, settings.trials());
        let mut trial = rig.trial(label, settings.frame_size, settings.load, settings.trial_s);
        trial.seconds = true;
        match bench.trial(trial) {
            Ok(measured) if measured.kept() => {
                periods.push(period(settings, number, &measured));
                let at_s = number as f64 * settings.trial_s;
                for (outages, lane) in outages.iter_mut().zip(&measured.lanes) {
                    outages.add(lane, lane.offered_fps, at_s);
                }
            }
            Ok(_) => {
                not_kept += 1;
                outages.iter_mut().for_each(Outages::interrupt);
            }
            // Report the trials up to now.
            Err(MethodError::Stopped) => {
                done = Err(MethodError::Stopped);
                break;
            }
            Err(halt) => return Err(halt),
        }
    }
    if not_kept > 0 {
        let text = "the generator did not sustain the load";
        outcome.notes.push(format!("{not_kept} trials are not counted: {text}"));
    }
    if !periods.is_empty() {
        let outage = outages.iter().filter_map(|one| one.longest).reduce(Outage::max);
        report(settings, &periods, outage, not_kept > 0, outcome);
    }
    done
}

fn period(settings: &Settings, number: usize, measured: &Measured) -> Period {
    let delay = measured.delay();
    Period {
        at_s: (number as f64 + 0.5) * settings.trial_s,
        loss: measured.loss_ratio(),
        mean_ns: delay.map(|delay| delay.mean),
        p99_ns: delay.map(|delay| delay.p99 as f64),
        max_ns: delay.map(|delay| delay.max as f64),
        bound_ns: measured.delay_bound_ns().unwrap_or(0) as f64,
        sent: measured.sent(),
        lost: measured.lost(),
        gap_s: measured.lanes.iter().map(|lane| 1.0 / lane.offered_fps).fold(0.0, f64::max),
        seconds: together(measured),
    }
}

/// Counts per second, summed over all streams.
fn together(measured: &Measured) -> Vec<Second> {
    let seconds = measured.lanes.iter().map(|lane| lane.seconds.len()).max().unwrap_or(0);
    let sum = |i: usize| {
        let of_lanes = measured.lanes.iter().filter_map(|lane| lane.seconds.get(i));
        of_lanes.fold(Second::default(), |sum, one| Second {
            sent: sum.sent + one.sent,
            received: sum.received + one.received,
        })
    };
    (0..seconds).map(sum).collect()
}

fn second_loss(second: &Second) -> f64 {
    let lost = second.sent.saturating_sub(second.received);
    if second.sent == 0 { 0.0 } else { lost as f64 / second.sent as f64 }
}

/// A straight line, fitted by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fit {
    /// Slope: change of y per hour of x.
    per_hour: f64,
    /// Half of the 95 % confidence interval of the slope.
    within: f64,
}

/// Fits `points` of (seconds, value); `None` with fewer than three.
fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let n = points.len() as f64;
    let mean = |value: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / n;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let xx: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    if points.len() < 3 || xx == 0.0 {
        return None;
    }
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / xx;
    let rest: f64 = points.iter().map(|p| (p.1 - y - slope * (p.0 - x)).powi(2)).sum();
    let error = (rest / (n - 2.0) / xx).sqrt();
    let within = student(points.len() - 2) * error;
    Some(Fit { per_hour: slope * 3600.0, within: within * 3600.0 })
}

/// 97.5 % quantile of Student's t distribution.
fn student(freedom: usize) -> f64 {
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let n = freedom as f64;
    // Cornish-Fisher expansion. Its error is below 0.1 % for 10 degrees of freedom or more.
    let z: f64 = 1.959_964;
    let few = freedom.checked_sub(1).and_then(|i| FEW.get(i)).copied();
    few.unwrap_or(
        z + (z.powi(3) + z) / (4.0 * n)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n),
    )
}

fn report(
    settings: &Settings,
    periods: &[Period],
    outage: Option<Outage>,
    bound: bool,
    outcome: &mut Outcome,
) {
    let n = periods.len() as f64;
    let (sent, lost) = periods.iter().fold((0, 0), |(s, l), one| (s + one.sent, l + one.lost));
    let loss = if sent == 0 { 0.0 } else { lost as f64 / sent as f64 };
    let seconds: Vec<Second> = periods.iter().flat_map(|one| one.seconds.clone()).collect();
    // If there are no counts per second, count trials.
    let available = match seconds.is_empty() {
        true => periods.iter().filter(|one| one.loss <= SEVERE_LOSS).count() as f64 / n,
        false => Availability::of(&seconds).ratio(),
    };
    let worst_second = seconds.iter().map(second_loss).fold(loss, f64::max);
    let points = |value: &dyn Fn(&Period) -> Option<f64>| -> Vec<(f64, f64)> {
        periods.iter().filter_map(|one| Some((one.at_s, value(one)?))).collect()
    };
    let latency = points(&|one| one.mean_ns);
    let mean = latency.iter().map(|p| p.1).sum::<f64>() / latency.len().max(1) as f64;
    // With separate clocks, a criterion is met only if it holds for the highest possible delay.
    let most = |one: &Period| Some(one.mean_ns? + one.bound_ns);
    let worst_mean = periods.iter().filter_map(most).fold(0.0, f64::max);
    let losses = points(&|one| Some(one.loss));
    let drifts = [fit(&latency), fit(&losses)];
    let limit = if bound { Limit::Generator } else { Limit::Device };
    let mut push = |name: &str, value: f64, unit: &str, better, uncertainty: f64| {
        outcome.figures.push(Figure::new(name, value, unit, better, uncertainty, limit));
    };
    let chance = 1.96 * (loss * (1.0 - loss) / sent.max(1) as f64).sqrt();
    push("loss", loss, "ratio", Better::Lower, chance);
    push("availability", available, "ratio", Better::Higher, 1.0 / n);
    if !seconds.is_empty() {
        // A frame in flight at the end of a second is counted in the next, hence the uncertainty.
        push("worst_second", worst_second, "ratio", Better::Lower, 0.01);
    }
    if !latency.is_empty() {
        let spread = latency.iter().map(|p| (p.1 - mean).abs()).fold(0.0, f64::max);
        push("latency.mean", mean, "ns", Better::Lower, spread);
    }
    for (name, unit, drift) in
        [("latency_drift", "ns/h", drifts[0]), ("loss_drift", "ratio/h", drifts[1])]
    {
        if let Some(fit) = drift {
            push(name, fit.per_hour, unit, Better::Lower, fit.within);
        }
    }
    // The uncertainty is one gap between frames at each end.
    let gaps_s = 2.0 * periods.iter().map(|one| one.gap_s).fold(0.0, f64::max);
    let whole = outage.is_none_or(|outage| outage.is_whole());
    let limit = if whole { limit } else { Limit::Trial };
    let longest_s = outage.map_or(0.0, |outage| outage.s);
    let outage_figure = Figure::new("longest_outage", longest_s, "s", Better::Lower, gaps_s, limit);
    outcome.figures.push(outage_figure);
    let worst_second = (!seconds.is_empty()).then_some(worst_second);
    outcome.tables.push(summary(periods, loss, available, outage, worst_second, drifts));
    outcome.tables.push(worst(periods));
    outcome.plots.extend(plots(periods));
    judge(settings, loss, worst_mean, available, drifts[0], outcome);
}

fn summary(
    periods: &[Period],
    loss: f64,
    available: f64,
    outage: Option<Outage>,
    worst_second: Option<f64>,
    [latency, losses]: [Option<Fit>; 2],
) -> Table {
    let mut table = Table::new("Soak test", &["", "Value", "95 % within"]);
    let mut row = |name: &str, value: String, within: String| {
        table.rows.push(vec![name.into(), value, within]);
    };
    row("Trials", periods.len().to_string(), String::new());
    row("Frame loss rate", ratio(loss), String::new());
    row("Availability (Y.1563)", ratio(available), String::new());
    let text = outage.map_or_else(
        || "none".into(),
        |one| match one.is_whole() {
            true => format!("{}, from {}", seconds(one.s), seconds(one.at_s)),
            false => {
                format!("at least {}, from {}: {}", seconds(one.s), seconds(one.at_s), one.lacks())
            }
        },
    );
    row("Longest outage", text, String::new());
    if let Some(loss) = worst_second {
        row("Frame loss rate of the worst second", ratio(loss), String::new());
    }
    let signed = |value: f64| format!("{}{}", if value < 0.0 { "-" } else { "" }, ns(value.abs()));
    if let Some(fit) = latency {
        row("Drift of the mean latency in an hour", signed(fit.per_hour), ns(fit.within));
    }
    if let Some(fit) = losses {
        let (value, within) = (format!("{:.6}", fit.per_hour), format!("{:.6}", fit.within));
        row("Drift of the loss ratio in an hour", value, within);
    }
    table
}

/// The worst trials: by loss, then by latency.
fn worst(periods: &[Period]) -> Table {
    const SHOWN: usize = 5;
    let columns = ["At", "Sent", "Lost", "Frame loss rate", "Mean latency", "p99", "Maximum"];
    let mut table = Table::new("Worst trials", &columns);
    let mut sorted: Vec<&Period> = periods.iter().collect();
    let order = |one: &Period| (one.loss, one.mean_ns.unwrap_or(0.0));
    sorted.sort_by(|a, b| {
        let (a, b) = (order(a), order(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    for one in sorted.into_iter().take(SHOWN) {
        let time = |value: Option<f64>| value.map_or_else(|| "-".into(), ns);
        table.rows.push(vec![
            seconds(one.at_s),
            one.sent.to_string(),
            one.lost.to_string(),
            ratio(one.loss),
            time(one.mean_ns),
            time(one.p99_ns),
            time(one.max_ns),
        ]);
    }
    table
}

fn plots(periods: &[Period]) -> [Plot; 2] {
    let line = |label: &str, value: &dyn Fn(&Period) -> Option<f64>| Series {
        label: label.into(),
        points: periods.iter().filter_map(|one| Some((one.at_s, value(one)?))).collect(),
    };
    let plot = |title: &str, y: &str, series| Plot::new(title, "Time, s", y, series);
    [
        plot(
            "Frame loss rate",
            "Frame loss rate, %",
            vec![line("loss", &|one| Some(one.loss * 100.0))],
        ),
        plot(
            "Latency",
            "Latency, ns",
            vec![line("mean", &|one| one.mean_ns), line("p99", &|one| one.p99_ns)],
        ),
    ]
}

fn judge(
    settings: &Settings,
    loss: f64,
    worst_mean: f64,
    available: f64,
    drift: Option<Fit>,
    outcome: &mut Outcome,
) {
    let text = &mut outcome.verdict.text;
    text.push(format!("frame loss rate {}, availability {}", ratio(loss), ratio(available)));
    let mut failed = Vec::new();
    let us = |nanos: f64| nanos / 1e3;
    if settings.max_loss.is_some_and(|most| loss > most) {
        failed.push(format!("frame loss rate {} is above the limit", ratio(loss)));
    }
    if settings.max_latency_us.is_some_and(|most| us(worst_mean) > most) {
        failed.push(format!("mean latency {} of a trial is above the limit", ns(worst_mean)));
    }
    // Drift counts only if all of the confidence interval exceeds the limit.
    let rises = |most: f64| drift.is_some_and(|fit| us(fit.per_hour - fit.within) > most);
    if settings.max_drift_us.is_some_and(rises) {
        failed.push("the mean latency rises by more than the limit".into());
    }
    if settings.min_availability.is_some_and(|least| available < least) {
        failed.push(format!("availability {} is below the limit", ratio(available)));
    }
    let limits = [
        settings.max_loss,
        settings.max_latency_us,
        settings.max_drift_us,
        settings.min_availability,
    ];
    if limits.iter().any(Option::is_some) {
        let passed = failed.is_empty();
        outcome.verdict.status = if passed { Status::Passed } else { Status::Failed };
    }
    outcome.verdict.text.extend(failed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_exactly_and_noise_is_within_its_error() {
        let line: Vec<_> = (0..20).map(|i| (f64::from(i) * 60.0, 5.0 + f64::from(i))).collect();
        let found = fit(&line).unwrap();
        assert!((found.per_hour - 60.0).abs() < 1e-9 && found.within < 1e-6, "{found:?}");
        // Alternates between two values: no drift.
        let noise: Vec<_> = (0..200).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let found = fit(&noise).unwrap();
        assert!(found.per_hour.abs() < found.within && found.within > 0.0, "{found:?}");
        assert_eq!(fit(&line[..2]), None);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in
            [(1, 12.706), (10, 2.228), (11, 2.201), (30, 2.042), (1000, 1.962)]
        {
            assert!((student(freedom) - expected).abs() < 0.003, "{freedom}: {}", student(freedom));
        }
    }
}
