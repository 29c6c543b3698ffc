//! Renders a comparison as text and as a page. A kind of comparison provides columns, plots and
//! groups of steps ([`Shown`]).

mod captures;

use std::collections::BTreeSet;

use serde::Serialize;
use squall_report::render::{
    human,
    page::{self, Axis, Group as Bars, Line, Page, Plot, Style as LineStyle, Unit},
    table::{Cell, Style, Table, wrap},
};

use crate::compared::{Compared, Measured, Repeated, Spread, ToolInfo};

#[cfg(test)]
pub(super) mod sample;

/// The part of rendering that is specific to a kind of comparison.
pub trait Shown<S>: Serialize {
    /// The subject in titles.
    const SUBJECT: &'static str;

    /// Facts about the method.
    fn facts(&self) -> Vec<(&'static str, String)>;

    /// Steps under one condition, at all rates.
    fn groups(&self) -> Vec<Group<'_, S>>;

    fn plots(&self, steps: &Steps<'_, S>) -> Vec<Plot>;

    /// Adds sections to the page after the groups.
    fn below(&self, _page: &mut Page) {}
}

/// A displayed step.
pub trait ShownStep: Measured {
    /// Column headings, as in [`Grid`].
    const COLUMNS: Columns;

    fn row(&self) -> Vec<Cell>;
    fn tool(&self) -> &str;
    fn asked(&self) -> &str;

    /// The condition: a data set, or a frame size.
    fn condition(&self) -> String;

    /// Further remarks about its rounds.
    fn remarks(&self) -> Vec<(Style, String)> {
        Vec::new()
    }
}

/// Steps under one condition, with the lines that follow them in text.
pub struct Group<'a, S> {
    pub title: String,
    pub heading: String,
    pub steps: Vec<&'a S>,
    pub below: Option<(String, Grid)>,
}

/// Column: heading in text, priority, heading on the page. An empty heading hides the column there.
/// Narrow text drops the columns with the highest numbers first.
pub type Columns = &'static [(&'static str, u8, &'static str)];

/// A table for text and page.
pub struct Grid {
    pub columns: Columns,
    pub rows: Vec<Vec<Cell>>,
}

impl Grid {
    pub fn of<S: ShownStep>(steps: &[&S]) -> Self {
        Self { columns: S::COLUMNS, rows: steps.iter().map(|step| step.row()).collect() }
    }

    fn lines(&self, width: usize, color: bool) -> Vec<String> {
        let shown = || self.columns.iter().filter(|(head, ..)| !head.is_empty());
        let mut table =
            Table::new(&shown().map(|(head, way, _)| (*head, *way)).collect::<Vec<_>>());
        for row in &self.rows {
            let cells = self.columns.iter().zip(row).filter(|((head, ..), _)| !head.is_empty());
            table.row(cells.map(|(_, cell)| cell.clone()).collect());
        }
        table.lines(width, color)
    }

    pub fn put(&self, page: &mut Page) {
        let shown = |row: &[Cell]| -> Vec<String> {
            let cells = self.columns.iter().zip(row).filter(|((.., head), _)| !head.is_empty());
            cells.map(|(_, cell)| cell.text().to_owned()).collect()
        };
        let heads = self.columns.iter().map(|(.., head)| *head).filter(|head| !head.is_empty());
        let rows: Vec<_> = self.rows.iter().map(|row| shown(row)).collect();
        page::table("", &heads.collect::<Vec<_>>(), &rows, page.markup());
    }
}

/// Text tables with lines of at most `width` columns (at least 60), with ANSI colors if `color`.
pub fn summary<M, S: ShownStep, X>(result: &Compared<M, S, X>, width: usize, color: bool) -> String
where
    Compared<M, S, X>: Shown<S>,
{
    let width = width.max(60);
    let mut out = Vec::new();
    let add = |style: Style, text: &str, out: &mut Vec<String>| {
        out.extend(wrap(text, width, 2).iter().map(|line| style.paint(line, color)));
    };
    for group in result.groups() {
        add(Style::Bold, &group.title, &mut out);
        if !group.steps.is_empty() {
            out.extend(Grid::of(&group.steps).lines(width, color));
            out.push(String::new());
        }
        if let Some((title, grid)) = group.below {
            out.push(title);
            out.extend(grid.lines(width, color));
            out.push(String::new());
        }
    }
    remarks(result).iter().for_each(|(style, text)| add(*style, text, &mut out));
    result.notes.iter().for_each(|note| add(Style::Plain, &format!("note: {note}"), &mut out));
    if result.interrupted {
        add(Style::Bad, "interrupted: these are the measurements made before", &mut out);
    }
    out.push(String::new());
    out.join("\n")
}

/// Problems of tools and rounds, one of each kind. The JSON result has all of them.
fn remarks<M, S: ShownStep, X>(result: &Compared<M, S, X>) -> Vec<(Style, String)> {
    let mut all = Vec::new();
    for tool in &result.tools {
        if let Some(why) = &tool.why_not {
            all.push((Style::Dim, format!("{} was not compared: {why}", tool.name)));
        } else if tool.takes_frames {
            all.push((Style::Dim, format!("{} takes the frames away from the host", tool.name)));
        }
    }
    for step in &result.steps {
        let what = format!("{}, {} at {}", step.tool(), step.condition(), step.asked());
        let mut add = |style, text: String| all.push((style, format!("{what}: {text}")));
        if let Some(wrong) = step.rounds().iter().find_map(S::Round::wrong) {
            add(Style::Bad, format!("it {wrong}"));
        }
        let failed: Vec<&str> = step.rounds().iter().filter_map(S::Round::failed).collect();
        if let Some(why) = failed.first() {
            let (n, of) = (failed.len(), step.rounds().len());
            add(Style::Bad, format!("{n} of {of} rounds failed: {why}"));
        }
        step.remarks().into_iter().for_each(|(style, text)| add(style, text));
    }
    all
}

/// Renders the comparison as a self-contained page.
pub fn html<M, S: ShownStep, X>(result: &Compared<M, S, X>) -> String
where
    Compared<M, S, X>: Shown<S>,
{
    let subject = Compared::<M, S, X>::SUBJECT;
    let mut page = Page::new(format!("Squall {subject} {} {}", result.host.name, result.started));
    page.colors(result.tools.iter().map(|tool| tool.name.as_str()));
    let markup = page.markup();
    *markup += &format!("<header>\n<div class=\"brand\">Squall <span>{subject}</span></div>\n");
    if result.interrupted {
        *markup += "<div class=\"verdict invalid\"><strong>Interrupted</strong><p>The page has the \
                    measurements made before.</p></div>\n";
    }
    let mut facts =
        vec![("Started", result.started.clone()), ("Duration", human::seconds(result.duration_s))];
    facts.extend(result.facts());
    facts.extend(result.host.facts());
    page::facts(&result.command, &facts, markup);
    let remarks = remarks(result).into_iter().map(|(_, text)| text);
    page::notes(&remarks.chain(result.notes.iter().cloned()).collect::<Vec<_>>(), markup);
    tools(result, markup);
    for group in result.groups().into_iter().filter(|group| !group.steps.is_empty()) {
        page.plots(&group.heading, &result.plots(&Steps(&group.steps)));
        Grid::of(&group.steps).put(&mut page);
    }
    result.below(&mut page);
    let version = format!("Squall {}", result.squall_version);
    let units = "octets of frames exclude the FCS, bits per second include it";
    page.footer(&[&version, &result.schema, units]);
    page.finish()
}

fn tools<M, S: ShownStep, X>(result: &Compared<M, S, X>, page: &mut String) {
    let row = |tool: &ToolInfo| {
        let steps = result.steps.iter().filter(|step| step.tool() == tool.name);
        let wrong = steps.flat_map(|step| step.rounds()).find_map(S::Round::wrong);
        let remark = match (&tool.why_not, wrong) {
            (Some(why), _) => format!("not compared: {why}"),
            (None, Some(wrong)) => format!("wrong: it {wrong}"),
            (None, None) => "compared".into(),
        };
        let takes = if tool.takes_frames { "taken from the host" } else { "" };
        let version = tool.version.clone().unwrap_or_default();
        vec![tool.name.clone(), tool.command.clone(), version, takes.into(), remark]
    };
    let rows: Vec<_> = result.tools.iter().map(row).collect();
    page::table("Tools", &["Tool", "Command", "Version", "Frames", "Its own counts"], &rows, page);
}

/// Steps of a group for plots, with a line or a group of bars for each tool.
pub struct Steps<'a, S>(pub &'a [&'a S]);

impl<S: ShownStep> Steps<'_, S> {
    pub fn tools(&self) -> Vec<&str> {
        in_order(self.0.iter().map(|step| step.tool()))
    }

    pub fn of<'b>(&'b self, tool: &'b str) -> impl Iterator<Item = &'b S> {
        self.0.iter().copied().filter(move |step| step.tool() == tool)
    }

    /// A value of each tool at each rate.
    pub fn at_rates<T>(&self, value: impl Fn(&S) -> Option<T>) -> (Vec<String>, Vec<Bars<T>>) {
        let rates = in_order(self.0.iter().map(|step| step.asked()));
        let bars = self.tools().into_iter().map(|tool| {
            let at = |rate: &&str| self.of(tool).find(|s| s.asked() == *rate).and_then(&value);
            Bars { label: tool.into(), y: rates.iter().map(at).collect() }
        });
        (rates.iter().map(|rate| (*rate).to_owned()).collect(), bars.collect())
    }

    pub fn bars(&self, title: &str, y: Axis, value: impl Fn(&S) -> Option<f64>) -> Plot {
        let (rates, bars) = self.at_rates(value);
        Plot::bars(title, "requested", rates, y, bars)
    }

    /// Points of each tool in ascending x, without failed steps.
    pub fn lines(&self, point: impl Fn(&S) -> Option<(f64, Spread)>) -> Vec<Line> {
        let line = |tool: &str| {
            let mut points: Vec<(f64, Spread)> = self.of(tool).filter_map(&point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let ranges: Vec<_> = points.iter().map(|(_, s)| [s.min, s.max]).collect();
            Line::new(tool, points.iter().map(|(x, s)| (*x, s.median))).ranges(ranges)
        };
        self.tools().into_iter().map(line).collect()
    }

    /// Plots actual against requested rates, in `unit`.
    pub fn actual(
        &self,
        (requested, arrived, unit): (&str, &str, Unit),
        point: impl Fn(&S) -> Option<(f64, Spread)>,
    ) -> Plot {
        let asked: Vec<f64> =
            self.0.iter().filter_map(|step| point(step)).map(|(asked, _)| asked).collect();
        let low = asked.iter().copied().fold(f64::INFINITY, f64::min);
        let high = asked.iter().copied().fold(0.0, f64::max);
        let mut lines = self.lines(point);
        if low < high {
            let ends = [(low, low), (high, high)];
            lines.push(Line::new("as requested", ends).style(LineStyle::Dashed));
        }
        let (x, y) = (Axis::new(requested, unit), Axis::new(arrived, unit));
        Plot::lines("Actual against requested rate", x, y, lines)
            .subtitle("below the dashed line, the sender or the kernel is the limit")
    }
}

/// Distinct values, in order of first occurrence.
pub fn in_order<T: Copy + Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut known = BTreeSet::new();
    all.filter(|one| known.insert(*one)).collect()
}

/// Formats a value, or a dash if there is none.
pub fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> Cell {
    value.map_or_else(|| "–".into(), text).into()
}

/// Whether the tool's own counts are right.
pub fn counts(right: Option<bool>) -> Cell {
    match right {
        Some(true) => Cell::styled("correct", Style::Good),
        Some(false) => Cell::styled("wrong", Style::Bad),
        None => "–".into(),
    }
}
