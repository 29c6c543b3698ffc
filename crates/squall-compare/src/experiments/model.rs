//! The result of an experiment: tables and figures, with the numbers of the paper next to those
//! measured here. Units are part of the columns and axes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::report::Host;
pub use squall_report::render::page::{Axis, Style, Unit};

use crate::compared::ToolInfo;

/// The version of this structure.
pub const EXPERIMENT_SCHEMA: &str = "squall-experiment/1";

/// An experiment of a paper that was repeated, or the part that was done before it was
/// interrupted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// The version of this structure: `squall-experiment/1`.
    pub schema: String,
    /// The command line.
    pub command: String,
    pub squall_version: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub duration_s: f64,
    pub host: Host,
    /// The experiment's name on the command line.
    pub name: String,
    pub title: String,
    /// The paper whose experiment this is.
    pub paper: String,
    /// Whether it ran in full length; otherwise in its short form.
    pub full: bool,
    /// Settings that the results depend on.
    pub method: Vec<Fact>,
    pub tools: Vec<ToolInfo>,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    /// Parts of the paper's experiment that could not be had here.
    pub missing: Vec<Missing>,
    pub notes: Vec<String>,
    /// The experiment was interrupted; it has the measurements made before.
    pub interrupted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    pub what: String,
    pub why: String,
}

/// A table. Its first column names the rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Unique among the tables; part of the name of its CSV file.
    pub id: String,
    pub title: String,
    /// The meaning of its numbers, in a sentence.
    pub note: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// Heading; it has the unit where `unit` has none.
    pub name: String,
    /// How numbers are written.
    pub unit: Unit,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    pub source: Source,
    /// A cell for each column.
    pub cells: Vec<Value>,
}

/// Where numbers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// This run.
    #[default]
    Measured,
    /// The paper, or another publication that the label names.
    Paper,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    Number(f64),
    Text(String),
    /// Not measured.
    #[default]
    None,
}

impl From<f64> for Value {
    /// NaN and infinities are not numbers of JSON.
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::None }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// A figure: lines over `x`, or bars over `categories`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Unique among the figures; part of the name of its CSV file.
    pub id: String,
    pub title: String,
    pub note: String,
    pub x: Axis,
    pub y: Axis,
    /// Names of the bars; if empty, the figure has lines.
    pub categories: Vec<String>,
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The generator or device; the same label has the same color in all figures.
    pub label: String,
    pub source: Source,
    pub style: Style,
    /// Ascending in x; in bars, x is the index of the category.
    pub points: Vec<(f64, f64)>,
}

impl Table {
    pub fn new(id: &str, title: &str, note: &str, columns: &[(&str, Unit)]) -> Self {
        let column = |(name, unit): &(&str, Unit)| Column { name: (*name).into(), unit: *unit };
        Self {
            id: id.into(),
            title: title.into(),
            note: note.into(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of this run.
    ///
    /// # Panics
    /// If it does not have a cell for each column.
    pub fn row(&mut self, cells: Vec<Value>) {
        self.add(Source::Measured, cells);
    }

    /// Adds a row of the paper.
    ///
    /// # Panics
    /// As [`Table::row`].
    pub fn paper(&mut self, cells: Vec<Value>) {
        self.add(Source::Paper, cells);
    }

    fn add(&mut self, source: Source, cells: Vec<Value>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(Row { source, cells });
    }
}

impl Figure {
    pub fn lines(id: &str, title: &str, note: &str, x: Axis, y: Axis) -> Self {
        let (id, title, note) = (id.into(), title.into(), note.into());
        Self { id, title, note, x, y, categories: Vec::new(), series: Vec::new() }
    }

    /// `x` names the categories.
    pub fn bars(
        id: &str,
        title: &str,
        note: &str,
        x: &str,
        categories: Vec<String>,
        y: Axis,
    ) -> Self {
        Self { categories, ..Self::lines(id, title, note, Axis::new(x, Unit::Count), y) }
    }

    /// Adds a series of this run.
    pub fn series(&mut self, label: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.series.push(Series {
            label: label.into(),
            points: points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect(),
            ..Series::default()
        });
    }

    /// Adds a series whose values hold until the next x: a distribution.
    pub fn steps(&mut self, label: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.series(label, points);
        self.series.last_mut().expect("it was just added").style = Style::Steps;
    }

    /// Adds a dashed series for comparison: numbers of the paper, or the requested ones.
    pub fn reference(
        &mut self,
        label: &str,
        source: Source,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) {
        self.series(label, points);
        let last = self.series.last_mut().expect("it was just added");
        (last.source, last.style) = (source, Style::Dashed);
    }
}

impl Experiment {
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("an experiment has string keys and no custom serializers")
    }
}

/// The JSON schema of [`Experiment`], as text.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Experiment);
    format!("{:#}\n", schema.as_value())
}
