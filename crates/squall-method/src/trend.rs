//! Trend of figures over stored results of one method, against the noise of earlier results.

use squall_report::render::human::{deviation, ns, ratio};
use squall_units::median;

use crate::outcome::{Better, Figure, Limit, Outcome, Plot, Series, Status, Table};

/// Minimum number of earlier results for an estimate of the noise.
pub const FEWEST: usize = 5;
/// The spread of few results varies by chance, so the band is widened by this number divided by the
/// number of results. With 3 deviations, less than 1 % of results of an unchanged device with
/// normal noise then fall outside the band on one side, for any number of results from [`FEWEST`]
/// on (simulated with 200,000 series for each of 5 to 30 results: 0.96 % to 0.08 %).
const WIDER: f64 = 12.0;
/// Ratio of the standard deviation of a normal distribution to its median absolute deviation.
const MAD_TO_SD: f64 = 1.4826;
/// Maximum number of plots; further figures are only in the table.
const MAX_PLOTS: usize = 24;

/// Settings of a trend.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Names of figures; empty: all figures of the newest result.
    pub figures: Vec<String>,
    /// Half-width of the band, in standard deviations of the earlier results.
    pub deviations: f64,
    /// Minimum half-width of the band, as a fraction of the median.
    pub tolerance: f64,
    /// Whether the outcome fails if a figure of the newest result is worse than its band.
    pub fail_if_worse: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { figures: Vec::new(), deviations: 3.0, tolerance: 0.01, fail_if_worse: false }
    }
}

/// The noise band of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Band {
    median: f64,
    half: f64,
}

/// Status of a figure of the newest result relative to its band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Better,
    Worse,
    /// Outside the band, of a figure that is neither better when higher nor when lower.
    Other,
    /// Fewer than [`FEWEST`] earlier results.
    TooFew,
    /// The newest result is only a lower bound.
    LowerBound,
}

impl Change {
    fn text(self) -> &'static str {
        match self {
            Self::None => "within the noise",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Other => "changed",
            Self::TooFew => "too few results",
            Self::LowerBound => "only a lower bound",
        }
    }
}

/// Compares the newest of `results` (name and outcome) with the earlier ones. The outcome has a
/// table, and a plot for each figure.
///
/// The noise is estimated by the median and the median absolute deviation of the earlier results:
/// unlike mean and standard deviation, they do not let one bad result hide the next one.
///
/// # Errors
/// No results, results of several methods, or an unknown figure.
pub fn trend(mut results: Vec<(String, Outcome)>, settings: &Settings) -> Result<Outcome, String> {
    let mut notes = Vec::new();
    results.retain(|(name, outcome)| {
        let stopped = outcome.verdict.status == Status::Stopped;
        if stopped {
            notes.push(format!("{name} is left out: the test was stopped"));
        }
        !stopped
    });
    // RFC 3339 timestamps in UTC sort as text.
    results.sort_by(|(a, x), (b, y)| (&x.started, a).cmp(&(&y.started, b)));
    let Some((_, newest)) = results.last() else {
        return Err(
            "no results\n  try the folder of files that squall test --json has written".into()
        );
    };
    if let Some((name, other)) = results.iter().find(|(_, one)| one.method != newest.method) {
        return Err(format!(
            "{name}: a result of {}, expected {} like the newest one\n  try files of one method",
            other.method, newest.method
        ));
    }
    let differ = results.iter().filter(|(_, one)| one.settings != newest.settings).count();
    if differ > 0 {
        notes.push(format!("{differ} results have other settings than the newest one"));
    }
    let names = names(newest, &settings.figures)?;
    let mut outcome = Outcome {
        notes,
        squall_version: newest.squall_version.clone(),
        started: newest.started.clone(),
        ..Outcome::new("trend", &format!("Trend of {}", newest.title), &serde_json::Value::Null)
    };
    let mut table = Table::new(
        "Newest result against the earlier ones",
        &["Figure", "Results", "Median", "Noise", "Newest", "Change", ""],
    );
    let mut found = Vec::new();
    for name in &names {
        let points: Vec<(usize, &Figure)> = (1..)
            .zip(&results)
            .filter_map(|(number, (_, one))| Some((number, one.figure(name)?)))
            .collect();
        let Some(((_, last), earlier)) = points.split_last() else { continue };
        let band = band(earlier, settings);
        let change = change(band, earlier.len(), last);
        found.push((name.clone(), change));
        table.rows.push(row(name, points.len(), band, last, change));
        if outcome.plots.len() < MAX_PLOTS {
            outcome.plots.push(plot(name, &points, band));
        }
        outcome.figures.push((*last).clone());
    }
    outcome.tables.push(table);
    outcome.tables.push(list(&results));
    judge(settings, &found, results.len(), &mut outcome);
    Ok(outcome)
}

fn names(newest: &Outcome, wanted: &[String]) -> Result<Vec<String>, String> {
    let all: Vec<String> = newest.figures.iter().map(|figure| figure.name.clone()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        return Err(format!(
            "cannot find figure {unknown:?}: the newest result has {}",
            all.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
        ));
    }
    Ok(if wanted.is_empty() { all } else { wanted.to_vec() })
}

/// The noise of the earlier results, at least the tolerance and the uncertainty of a single result.
fn band(earlier: &[(usize, &Figure)], settings: &Settings) -> Option<Band> {
    let center = median(earlier.iter().map(|(_, figure)| figure.value))?;
    let distance = median(earlier.iter().map(|(_, figure)| (figure.value - center).abs()))?;
    let uncertainty = median(earlier.iter().map(|(_, figure)| figure.uncertainty))?;
    let deviations = settings.deviations * (1.0 + WIDER / earlier.len() as f64);
    let spread = distance * MAD_TO_SD * deviations;
    let half = spread.max(settings.tolerance * center.abs()).max(uncertainty);
    Some(Band { median: center, half })
}

fn change(band: Option<Band>, earlier: usize, newest: &Figure) -> Change {
    let Some(band) = band.filter(|_| earlier >= FEWEST) else { return Change::TooFew };
    // The newest result may be less certain than earlier ones.
    let half = band.half.max(newest.uncertainty);
    let difference = newest.value - band.median;
    if difference.abs() <= half {
        return Change::None;
    }
    match (newest.better, difference > 0.0) {
        (Better::Neither, _) => Change::Other,
        (Better::Higher, true) | (Better::Lower, false) => Change::Better,
        _ if newest.limit != Limit::Device => Change::LowerBound,
        _ => Change::Worse,
    }
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        "ns" => ns(value),
        "ratio" => ratio(value),
        unit => format!("{value:.3} {unit}"),
    }
}

fn row(
    name: &str,
    results: usize,
    band: Option<Band>,
    newest: &Figure,
    change: Change,
) -> Vec<String> {
    let text = |of: &dyn Fn(Band) -> String| band.map_or_else(|| "-".into(), of);
    vec![
        name.into(),
        results.to_string(),
        text(&|band| number(band.median, &newest.unit)),
        text(&|band| format!("± {}", number(band.half, &newest.unit))),
        number(newest.value, &newest.unit),
        text(&|band| match band.median {
            0.0 => "-".into(),
            median => deviation(newest.value / median - 1.0),
        }),
        change.text().into(),
    ]
}

fn plot(name: &str, points: &[(usize, &Figure)], band: Option<Band>) -> Plot {
    let unit = points.last().map_or("", |(_, figure)| figure.unit.as_str());
    let at = |number: &usize| *number as f64;
    let values = points.iter().map(|(number, figure)| (at(number), figure.value)).collect();
    let mut series = vec![Series { label: name.into(), points: values }];
    if let (Some(band), Some((first, _)), Some((last, _))) = (band, points.first(), points.last()) {
        let level = |label: &str, value: f64| Series {
            label: label.into(),
            points: vec![(at(first), value), (at(last), value)],
        };
        series.push(level("median of the earlier results", band.median));
        series.push(level("upper limit of the noise", band.median + band.half));
        series.push(level("lower limit of the noise", band.median - band.half));
    }
    Plot::new(name, "Result", &format!("{name}, {unit}"), series)
}

fn list(results: &[(String, Outcome)]) -> Table {
    let columns = ["Result", "File", "Started", "Squall", "Verdict"];
    let mut table = Table::new("Results", &columns);
    for (number, (name, outcome)) in (1..).zip(results) {
        let number: usize = number;
        table.rows.push(vec![
            number.to_string(),
            name.clone(),
            outcome.started.clone(),
            outcome.squall_version.clone(),
            outcome.verdict.status.text().into(),
        ]);
    }
    table
}

fn judge(settings: &Settings, found: &[(String, Change)], results: usize, outcome: &mut Outcome) {
    let with = |change: Change| {
        let names = found.iter().filter(|(_, one)| *one == change).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>()
    };
    let worse = with(Change::Worse);
    for (change, names) in [("worse", &worse), ("better", &with(Change::Better))] {
        if !names.is_empty() {
            outcome.verdict.text.push(format!("{change}: {}", names.join(", ")));
        }
    }
    if results <= FEWEST {
        outcome.verdict.text.push(format!(
            "{results} results: at least {} are needed, {FEWEST} of them earlier ones",
            FEWEST + 1
        ));
    } else if outcome.verdict.text.is_empty() {
        let text =
            format!("the newest of {results} results is within the noise of the earlier ones");
        outcome.verdict.text.push(text);
    }
    if settings.fail_if_worse {
        outcome.verdict.status = if worse.is_empty() { Status::Passed } else { Status::Failed };
    }
}

#[cfg(test)]
mod tests {
    use squall_units::SplitMix64;

    use super::*;

    fn result(day: usize, value: f64) -> (String, Outcome) {
        let figure =
            Figure::new("throughput/64", value, "frames/s", Better::Higher, 0.0, Limit::Device);
        let outcome = Outcome {
            started: format!("2026-01-{day:02}T00:00:00Z"),
            figures: vec![figure],
            ..Outcome::new("rfc2544", "RFC 2544", &serde_json::json!({}))
        };
        (format!("{day}.json"), outcome)
    }

    fn results(values: &[f64]) -> Vec<(String, Outcome)> {
        (1..).zip(values).map(|(day, value)| result(day, *value)).collect()
    }

    fn status(values: &[f64]) -> Status {
        let settings = Settings { fail_if_worse: true, ..Settings::default() };
        trend(results(values), &settings).unwrap().verdict.status
    }

    #[test]
    fn a_drop_beyond_the_noise_fails_and_one_within_it_passes() {
        let noisy = [1000.0, 1050.0, 950.0, 1020.0, 980.0].repeat(4);
        let with = |newest: f64| status(&[&noisy[..], &[newest]].concat());
        assert_eq!([with(960.0), with(900.0)], [Status::Passed; 2]);
        assert_eq!([with(850.0), with(0.0)], [Status::Failed; 2]);
        // Higher is better.
        assert_eq!(with(1500.0), Status::Passed);
    }

    #[test]
    fn one_bad_result_among_the_earlier_ones_hides_no_second() {
        assert_eq!(status(&[100.0, 101.0, 50.0, 100.0, 99.0, 50.0]), Status::Failed);
    }

    #[test]
    fn results_are_ordered_by_their_time_and_not_by_their_names() {
        let mut all = results(&[100.0, 100.0, 100.0, 100.0, 100.0, 80.0]);
        all.reverse();
        let found = trend(all, &Settings { fail_if_worse: true, ..Settings::default() }).unwrap();
        assert_eq!(found.verdict.status, Status::Failed);
        let line = &found.plots[0].series[0].points;
        assert_eq!((line[0], line[5]), ((1.0, 100.0), (6.0, 80.0)));
    }

    #[test]
    fn few_results_and_lower_bounds_claim_nothing() {
        assert_eq!(status(&[100.0, 100.0, 1.0]), Status::Passed);
        let mut all = results(&[100.0, 100.0, 100.0, 100.0, 100.0, 1.0]);
        all[5].1.figures[0].limit = Limit::Generator;
        let settings = Settings { fail_if_worse: true, ..Settings::default() };
        let found = trend(all, &settings).unwrap();
        assert_eq!(found.verdict.status, Status::Passed);
        assert!(found.tables[0].rows[0].contains(&"only a lower bound".to_owned()));
    }

    #[test]
    fn unchanged_devices_are_seldom_worse() {
        let mut random = SplitMix64(7);
        // The sum of 12 uniform numbers is nearly normal, with a standard deviation of 1.
        let mut uniform = || (random.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        for earlier in [FEWEST, 20] {
            let mut series = || (0..=earlier).map(|_| 1000.0 + 50.0 * normal()).collect::<Vec<_>>();
            let failed = (0..1000).filter(|_| status(&series()) == Status::Failed).count();
            // 1 % of 1,000, plus four standard deviations.
            assert!(failed <= 22, "{failed} of 1,000 with {earlier} earlier results");
        }
    }

    #[test]
    fn other_methods_and_unknown_figures_are_refused() {
        let mut all = results(&[1.0, 2.0]);
        all[0].1.method = "soak".into();
        assert!(trend(all, &Settings::default()).unwrap_err().contains("1.json"));
        let settings = Settings { figures: vec!["loss".into()], ..Settings::default() };
        let error = trend(results(&[1.0]), &settings).unwrap_err();
        assert!(error.contains("cannot find figure \"loss\""), "{error}");
        assert!(trend(Vec::new(), &Settings::default()).is_err());
    }
}
