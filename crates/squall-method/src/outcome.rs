//! What a method found: verdict, figures, tables, plots, trials.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use squall_report::render::human;

use crate::{bench::Recorded, rig::Rig};

/// `schema` of this version.
pub const SCHEMA: &str = "squall.test/1";

/// The result of a method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Version of this layout.
    pub schema: String,
    /// `rfc2544`, `mlrsearch`, ...
    pub method: String,
    /// What the standard calls it.
    pub title: String,
    pub verdict: Verdict,
    /// What later runs are compared by.
    pub figures: Vec<Figure>,
    pub tables: Vec<Table>,
    pub plots: Vec<Plot>,
    pub notes: Vec<String>,
    /// The method's settings, all of them.
    pub settings: Value,
    pub rig: Option<Rig>,
    /// The profile whose streams were sent, as TOML.
    #[serde(default)]
    pub profile: String,
    /// All that were run, in their order.
    pub trials: Vec<Recorded>,
    pub squall_version: String,
    /// The command that repeats it.
    pub command: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub duration_s: f64,
    /// CPU, kernel, and the like.
    #[serde(default)]
    pub host: BTreeMap<String, String>,
}

/// The answer, first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    pub status: Status,
    /// Sentences: what was found, or why there is no answer.
    pub text: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Measured; there is nothing to pass or fail.
    #[default]
    Measured,
    /// Each criterion is met.
    Passed,
    /// A criterion is not met.
    Failed,
    /// The generator set the limit: the device may be better than the figures.
    GeneratorBound,
    /// It was stopped; `--journal` continues it.
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

/// A number that stands for the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// `throughput/64`.
    pub name: String,
    pub value: f64,
    /// `frames/s`, `ns`, `frames`, `s`, `ratio`.
    pub unit: String,
    pub better: Better,
    /// The true value is within this of `value`, as far as the method can say.
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

/// What set the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    #[default]
    Device,
    /// The most that was to be offered passed: the device may be better.
    Offered,
    /// The generator kept to no more: the device may be better.
    Generator,
}

impl Limit {
    pub fn mark(self) -> &'static str {
        match self {
            Self::Device => "",
            Self::Offered => "at least",
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
    /// Name and unit of the axes: `Frame size, octets`.
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

    /// Says how far delays may be off where senders and receivers have different clocks, and widens
    /// the uncertainty of times by that.
    pub fn widen(&mut self) {
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

    /// Says so if the generator set a figure's limit.
    pub fn settle(&mut self) {
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
    /// now / before - 1; 0 if both are 0.
    pub change: f64,
    pub regressed: bool,
    pub improved: bool,
}

/// Figures of `now` against those of `before` with the same names. One has changed if it differs by
/// more than `tolerance` of its value and by more than both uncertainties.
pub fn compare(before: &Outcome, now: &Outcome, tolerance: f64) -> Vec<Comparison> {
    let one = |figure: &Figure| {
        let old = before.figure(&figure.name)?;
        let difference = figure.value - old.value;
        let noise = (old.value.abs() * tolerance).max(old.uncertainty + figure.uncertainty);
        let (less, more) = (difference < -noise, difference > noise);
        let (regressed, improved) = match figure.better {
            Better::Higher => (less, more),
            Better::Lower => (more, less),
            Better::Neither => (false, false),
        };
        let change = if difference == 0.0 { 0.0 } else { difference / old.value };
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

    #[test]
    fn times_between_two_clocks_are_as_uncertain_as_these() {
        let recorded = |bound: Option<u64>, not_kept: &[&str]| Recorded {
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
        outcome.widen();
        assert_eq!(outcome.figures.iter().map(|f| f.uncertainty).collect::<Vec<_>>(), [305.0, 5.0]);
        assert!(outcome.notes[0].contains("plus or minus 300 ns"), "{:?}", outcome.notes);
        let mut here = Outcome { trials: vec![recorded(None, &[])], ..Outcome::default() };
        here.widen();
        assert!(here.notes.is_empty());
    }
}
