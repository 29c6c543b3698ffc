//! Result of an experiment: tables and figures, with the values of the paper next to the measured
//! ones. Units are part of columns and axes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::report::Host;
pub use squall_report::render::page::{Axis, Style, Unit};

use crate::compared::ToolInfo;

/// Version of this structure.
pub const EXPERIMENT_SCHEMA: &str = "squall-experiment/1";

/// A repeated experiment of a paper, or the part that was done before an interruption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// Version of this structure: `squall-experiment/1`.
    pub schema: String,
    /// The command line.
    pub command: String,
    pub squall_version: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub duration_s: f64,
    pub host: Host,
    /// Name of the experiment on the command line.
    pub name: String,
    pub title: String,
    /// The paper that describes the experiment.
    pub paper: String,
    /// Whether this is the full experiment; otherwise its short form.
    pub full: bool,
    /// Settings that affect the results.
    pub method: Vec<Fact>,
    pub tools: Vec<ToolInfo>,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    /// Parts of the experiment that could not be repeated here.
    pub missing: Vec<Missing>,
    pub notes: Vec<String>,
    /// The experiment was interrupted; only measurements made before that are included.
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

/// A table, with the names of its rows in the first column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Unique among the tables, and part of the name of the CSV file.
    pub id: String,
    pub title: String,
    /// Meaning of the values, in a sentence.
    pub note: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// Heading, with the unit if `unit` has none.
    pub name: String,
    /// Format of the values.
    pub unit: Unit,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    pub source: Source,
    /// A cell for each column.
    pub cells: Vec<Value>,
}

/// Origin of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// This run.
    #[default]
    Measured,
    /// The paper, or the other publication named in the label.
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
    /// JSON has no NaN and no infinities.
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

/// A figure: lines over `x`, or bars for `categories`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Unique among the figures, and part of the name of the CSV file.
    pub id: String,
    pub title: String,
    pub note: String,
    pub x: Axis,
    pub y: Axis,
    /// Labels of the bars; empty: the figure has lines.
    pub categories: Vec<String>,
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The generator or device. Equal labels have the same color in all figures.
    pub label: String,
    pub source: Source,
    pub style: Style,
    /// In ascending order of x. For bars, x is the index of the category.
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

    /// Adds a row with values of this run.
    ///
    /// # Panics
    /// If the number of cells is not that of the columns.
    pub fn row(&mut self, cells: Vec<Value>) {
        self.add(Source::Measured, cells);
    }

    /// Adds a row with values of the paper.
    ///
    /// # Panics
    /// The same as of [`Table::row`].
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

    /// Adds bars; `x` is the axis of the categories.
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

    /// Adds a series with values of this run.
    pub fn series(&mut self, label: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.series.push(Series {
            label: label.into(),
            points: points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect(),
            ..Series::default()
        });
    }

    /// Adds a series drawn in steps, where each value holds until the next x: a distribution.
    pub fn steps(&mut self, label: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.series(label, points);
        self.series.last_mut().expect("it was just added").style = Style::Steps;
    }

    /// Adds a dashed reference series: values of the paper, or requested ones.
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
