//! Results of a method: verdict, figures, tables, plots, trials.

use std::{collections::BTreeMap, fmt::Display};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use squall_report::render::human;

use crate::{bench::RecordedTrial, rig::Rig};

/// Value of `schema` in results of this version.
pub const SCHEMA: &str = "squall.test/1";

/// The result of a method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Version of this layout.
    pub schema: String,
    /// `rfc2544`, `mlrsearch`, ...
    pub method: String,
    /// The title of the standard.
    pub title: String,
    pub verdict: Verdict,
    /// The figures that comparisons of results use.
    pub figures: Vec<Figure>,
    pub tables: Vec<Table>,
    pub plots: Vec<Plot>,
    pub notes: Vec<String>,
    /// All settings of the method.
    pub settings: Value,
    pub rig: Option<Rig>,
    /// The profile whose streams were sent, as TOML.
    #[serde(default)]
    pub profile: String,
    /// All trials, in the order in which they ran.
    pub trials: Vec<RecordedTrial>,
    pub squall_version: String,
    /// The command that repeats the test.
    pub command: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// RFC 3339, UTC; empty in results of earlier versions.
    #[serde(default)]
    pub ended: String,
    pub duration_s: f64,
    /// CPU, kernel and other properties of the host.
    #[serde(default)]
    pub host: BTreeMap<String, String>,
}

/// The conclusion of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    pub status: Status,
    /// Sentences: the findings, or why there are none.
    pub text: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Measured; the test has no criteria.
    #[default]
    Measured,
    /// All criteria are met.
    Passed,
    /// At least one criterion is not met.
    Failed,
    /// The generator was the limit: the device may be better than the figures.
    GeneratorBound,
    /// The test was stopped; rerun with `--journal` to continue.
    Stopped,
}

impl Status {
    pub fn text(self) -> &'static str {
        match self {
            Self::Measured => "MEASURED",
            Self::Passed => "PASSED",
            Self::Failed => "FAILED",
            Self::GeneratorBound => "GENERATOR-BOUND",
            Self::Stopped => "STOPPED",
        }
    }
}

/// A number that characterizes the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// `throughput/64`.
    pub name: String,
    pub value: f64,
    /// `frames/s`, `ns`, `frames`, `s`, `ratio`.
    pub unit: String,
    pub better: Better,
    /// Estimated uncertainty: the true value is within this distance of `value`.
    pub uncertainty: f64,
    #[serde(default)]
    pub limit: Limit,
}

impl Figure {
    pub fn new(
        name: impl Into<String>,
        value: f64,
        unit: &str,
        better: Better,
        uncertainty: f64,
        limit: Limit,
    ) -> Self {
        Self { name: name.into(), value, unit: unit.into(), better, uncertainty, limit }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Higher,
    Lower,
    Neither,
}

/// The component that limits a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    #[default]
    Device,
    /// The highest load to try passed: the device may be better.
    Offered,
    /// The generator sustained no higher load: the device may be better.
    Generator,
    /// The trial was too short to show all of the time: the true value is higher.
    Trial,
}

impl Limit {
    pub fn mark(self) -> &'static str {
        match self {
            Self::Device => "",
            Self::Offered | Self::Trial => "at least",
            Self::Generator => "at least (generator-bound)",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.into()).collect();
        Self { title: title.into(), columns, rows: Vec::new() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plot {
    pub title: String,
    /// Names and units of the axes: `Frame size, octets`.
    pub x: String,
    pub y: String,
    pub series: Vec<Series>,
}

impl Plot {
    pub fn new(title: &str, x: &str, y: &str, series: Vec<Series>) -> Self {
        Self { title: title.into(), x: x.into(), y: y.into(), series }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

/// The JSON schema of [`Outcome`], as text.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Outcome);
    format!("{:#}\n", schema.as_value())
}

impl Outcome {
    pub fn new(method: &str, title: &str, settings: &impl Serialize) -> Self {
        Self {
            schema: SCHEMA.into(),
            method: method.into(),
            title: title.into(),
            settings: serde_json::to_value(settings).unwrap_or_default(),
            ..Self::default()
        }
    }

    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// Adds a note of the uncertainty of delays if senders and receivers have different clocks, and
    /// widens the uncertainty of times by it.
    pub fn add_clock_uncertainty(&mut self) {
        let kept = self.trials.iter().filter(|one| one.measured.kept());
        let Some(bound) = kept.filter_map(|one| one.measured.delay_bound_ns()).max() else {
            return;
        };
        for figure in self.figures.iter_mut().filter(|figure| figure.unit == "ns") {
            figure.uncertainty += bound as f64;
        }
        self.notes.push(format!(
            "one-way delays between nodes are known within plus or minus {}: sender and receiver \
             have different clocks",
            human::ns(bound as f64)
        ));
    }

    /// Adds a note that there are no figures of `what`, as the generator missed its schedule
    /// ([`Measured::not_kept`]). The result is generator-bound: it lacks what the test asks for,
    /// through no fault of the device.
    pub fn not_measured(&mut self, what: impl Display, not_kept: &[String]) {
        let why = not_kept.first().map_or_else(String::new, |why| format!(": {why}"));
        self.notes.push(format!("{what}: not measured: the generator missed its schedule{why}"));
        if matches!(self.verdict.status, Status::Measured | Status::Passed) {
            self.verdict.status = Status::GeneratorBound;
        }
    }

    /// Adds a note that `missed` of the `trials` of `what` do not count, as the generator missed
    /// its schedule ([`Measured::not_kept`]); nothing if all count. The figures are those of the
    /// other trials, so they are kept.
    pub fn partly_measured(
        &mut self,
        what: impl Display,
        (missed, trials): (u32, u32),
        not_kept: &[String],
    ) {
        if missed > 0 {
            let why = not_kept.first().map_or_else(String::new, |why| format!(": {why}"));
            self.notes.push(format!(
                "{what}: {missed} of {trials} trials do not count: the generator missed its \
                 schedule{why}"
            ));
        }
    }

    /// Adds a note that there are no figures of `what`: as [`Outcome::not_measured`] if the generator
    /// missed its schedule, otherwise because of `nothing`, such as "nothing passed".
    pub fn no_figure(&mut self, what: impl Display, nothing: &str, not_kept: &[String]) {
        match not_kept.is_empty() {
            true => self.notes.push(format!("{what}: not measured, as {nothing}")),
            false => self.not_measured(what, not_kept),
        }
    }

    /// Adds a warning if the generator limited a figure, with the reason from the last trial in
    /// which it missed its schedule.
    pub fn note_generator_limit(&mut self) {
        let bound = self.figures.iter().filter(|figure| figure.limit == Limit::Generator);
        let names: Vec<_> = bound.map(|figure| figure.name.as_str()).collect();
        if names.is_empty() {
            return;
        }
        let text = format!(
            "the generator set the limit of {}: the device may be better; free a CPU, or use a \
             faster port",
            names.join(", ")
        );
        self.verdict.text.push(text);
        let missed = |one: &RecordedTrial| {
            let why = one.measured.not_kept.first()?;
            let sent = one.measured.sent();
            let due: u64 = one.trial.lanes.iter().map(|l| l.due(one.trial.duration_s)).sum();
            Some(format!(
                "the limit of the generator: {}: {sent} of {due} frames: {}",
                one.trial.label,
                why.split(';').next().unwrap_or(why)
            ))
        };
        self.verdict.text.extend(self.trials.iter().rev().find_map(missed));
        if matches!(self.verdict.status, Status::Measured | Status::Passed) {
            self.verdict.status = Status::GeneratorBound;
        }
    }
}

/// A figure of two results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    pub name: String,
    pub unit: String,
    pub before: f64,
    pub now: f64,
    /// now / before - 1; 0 if both are 0, and `None` if only `before` is.
    pub change: Option<f64>,
    pub regressed: bool,
    pub improved: bool,
}

/// Compares the figures of `now` and `before` with equal names. A figure has changed if the
/// difference exceeds `tolerance` of its value and both uncertainties. A figure that the device did
/// not limit, and a time of which a trial showed only a part, are lower bounds, so they never count
/// as lower than another one.
pub fn compare(before: &Outcome, now: &Outcome, tolerance: f64) -> Vec<Comparison> {
    let one = |figure: &Figure| {
        let old = before.figure(&figure.name)?;
        let difference = figure.value - old.value;
        let noise = (old.value.abs() * tolerance).max(old.uncertainty + figure.uncertainty);
        let (less, more) = (difference < -noise, difference > noise);
        let (regressed, improved) = match figure.better {
            // Under the limit of the generator, or of the highest load to try, the device may be as
            // good as before.
            Better::Higher => {
                (less && figure.limit == Limit::Device, more && old.limit == Limit::Device)
            }
            Better::Lower => {
                (more && old.limit != Limit::Trial, less && figure.limit != Limit::Trial)
            }
            Better::Neither => (false, false),
        };
        // JSON has no infinity.
        let change = match difference == 0.0 {
            true => Some(0.0),
            false => (old.value != 0.0).then(|| difference / old.value),
        };
        Some(Comparison {
            name: figure.name.clone(),
            unit: figure.unit.clone(),
            before: old.value,
            now: figure.value,
            change,
            regressed,
            improved,
        })
    };
    now.figures.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LaneMeasured, Measured, Trial};

    /// Whether the only figure is worse, and better.
    fn changed(before: Outcome, now: Outcome) -> (bool, bool) {
        let one = compare(&before, &now, 0.01).remove(0);
        (one.regressed, one.improved)
    }

    #[test]
    fn a_time_that_the_trial_cut_short_is_not_better_than_a_longer_one() {
        let of = |value, limit| Outcome {
            figures: vec![Figure::new("reset", value, "s", Better::Lower, 0.0, limit)],
            ..Outcome::default()
        };
        let (device, trial) = (Limit::Device, Limit::Trial);
        assert_eq!(changed(of(5.0, device), of(2.0, trial)), (false, false));
        assert_eq!(changed(of(5.0, device), of(8.0, trial)), (true, false));
        assert_eq!(changed(of(5.0, trial), of(8.0, device)), (false, false));
        assert_eq!(changed(of(5.0, trial), of(2.0, device)), (false, true));
    }

    #[test]
    fn a_rate_that_the_generator_limits_is_not_worse_than_a_higher_one() {
        let of = |value, limit| Outcome {
            figures: vec![Figure::new("rate", value, "pps", Better::Higher, 0.0, limit)],
            ..Outcome::default()
        };
        let device = Limit::Device;
        for bound in [Limit::Generator, Limit::Offered] {
            assert_eq!(changed(of(5.0, device), of(2.0, bound)), (false, false));
            assert_eq!(changed(of(5.0, device), of(8.0, bound)), (false, true));
            assert_eq!(changed(of(5.0, bound), of(8.0, device)), (false, false));
            assert_eq!(changed(of(5.0, bound), of(2.0, device)), (true, false));
        }
    }

    #[test]
    fn a_change_from_nothing_has_no_ratio() {
        let of = |value| Outcome {
            figures: vec![Figure::new("a", value, "s", Better::Lower, 0.0, Limit::Device)],
            ..Outcome::default()
        };
        let change = |before, now| compare(&of(before), &of(now), 0.01).remove(0).change;
        assert_eq!(change(0.0, 5.0), None);
        assert_eq!(change(0.0, 0.0), Some(0.0));
        assert_eq!(change(4.0, 5.0), Some(0.25));
    }

    #[test]
    fn times_between_two_clocks_are_as_uncertain_as_these() {
        let recorded = |bound: Option<u64>, not_kept: &[&str]| RecordedTrial {
            trial: Trial::default(),
            measured: Measured {
                lanes: vec![LaneMeasured { delay_bound_ns: bound, ..LaneMeasured::default() }],
                not_kept: not_kept.iter().map(|&why| why.to_owned()).collect(),
                ..Measured::default()
            },
            attempt: 1,
        };
        let figure = |unit| Figure::new(unit, 1.0, unit, Better::Lower, 5.0, Limit::Device);
        let mut outcome = Outcome {
            figures: vec![figure("ns"), figure("frames/s")],
            trials: vec![recorded(Some(300), &[]), recorded(Some(9_000), &["late"])],
            ..Outcome::default()
        };
        outcome.add_clock_uncertainty();
        assert_eq!(outcome.figures.iter().map(|f| f.uncertainty).collect::<Vec<_>>(), [305.0, 5.0]);
        assert!(outcome.notes[0].contains("plus or minus 300 ns"), "{:?}", outcome.notes);
        let mut here = Outcome { trials: vec![recorded(None, &[])], ..Outcome::default() };
        here.add_clock_uncertainty();
        assert!(here.notes.is_empty());
    }
}
