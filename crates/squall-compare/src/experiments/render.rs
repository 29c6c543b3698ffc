//! Renders an experiment as text, as a page, and as CSV files.

use squall_report::render::{
    human,
    page::{self, Group, Line, Page, Plot, Unit},
    table::{self, Cell, Style as Paint, wrap},
};

use super::model::{Column, Experiment, Figure, Row, Series, Source, Table, Value};
use crate::render::in_order;

/// Text tables with lines of at most `width` columns (at least 60), with ANSI colors if `color`.
/// Figures are only on the page.
pub fn summary(result: &Experiment, width: usize, color: bool) -> String {
    let width = width.max(60);
    let mut out = Vec::new();
    let add = |style: Paint, text: &str, out: &mut Vec<String>| {
        out.extend(wrap(text, width, 2).iter().map(|line| style.paint(line, color)));
    };
    add(Paint::Bold, &format!("{} ({})", result.title, result.paper), &mut out);
    out.push(String::new());
    for of in &result.tables {
        add(Paint::Bold, &of.title, &mut out);
        let mut table = table::Table::new(&heads(of));
        for row in &of.rows {
            table.row(row_cells(of, row));
        }
        out.extend(table.lines(width, color));
        if !of.note.is_empty() {
            add(Paint::Dim, &of.note, &mut out);
        }
        out.push(String::new());
    }
    for missing in &result.missing {
        add(Paint::Plain, &format!("missing: {}: {}", missing.what, missing.why), &mut out);
    }
    result.notes.iter().for_each(|note| add(Paint::Plain, &format!("note: {note}"), &mut out));
    if result.interrupted {
        add(Paint::Bad, "interrupted: these are the measurements made before", &mut out);
    }
    out.push(String::new());
    out.join("\n")
}

/// Column headings. On a narrow terminal, columns are omitted from the right.
fn heads(of: &Table) -> Vec<(&str, u8)> {
    let way = |i: usize| u8::try_from(i).unwrap_or(u8::MAX);
    of.columns.iter().enumerate().map(|(i, column)| (column.name.as_str(), way(i))).collect()
}

fn row_cells(of: &Table, row: &Row) -> Vec<Cell> {
    let style = if row.source == Source::Paper { Paint::Dim } else { Paint::Plain };
    texts(of, row).into_iter().map(|text| Cell::styled(text, style)).collect()
}

fn texts(of: &Table, row: &Row) -> Vec<String> {
    let mut texts: Vec<String> =
        of.columns.iter().zip(&row.cells).map(|(column, value)| shown(column, value)).collect();
    if let (Source::Paper, Some(name)) = (row.source, texts.first_mut()) {
        *name += " (published)";
    }
    texts
}

fn shown(column: &Column, value: &Value) -> String {
    match value {
        Value::None => "–".into(),
        Value::Text(text) => text.clone(),
        Value::Number(number) => written(*number, column.unit),
    }
}

fn written(number: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => human::si(number, ""),
        Unit::Number if number.abs() < 100.0 => trimmed(number),
        Unit::Number | Unit::Length => human::count(number.round().max(0.0) as u64),
        Unit::Pps => human::si(number, "pps"),
        Unit::Bps => human::si(number, "b/s"),
        Unit::Octets => human::si(number, "B"),
        Unit::Ns => human::ns(number),
        Unit::S => human::seconds(number),
        Unit::Ratio => human::ratio(number),
        Unit::Percent => human::ratio(number / 100.0),
    }
}

/// At most two decimals, without trailing zeros.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Renders the experiment as a self-contained page.
pub fn html(result: &Experiment) -> String {
    let mut page = Page::new(format!("Squall: {} {}", result.title, result.started));
    let labels = result.figures.iter().flat_map(|figure| &figure.series);
    page.colors(in_order(labels.map(|series| series.label.as_str())));
    let markup = page.markup();
    *markup += &format!(
        "<header>\n<div class=\"brand\">Squall <span>{}</span></div>\n<p>{}</p>\n",
        page::escape(&result.title),
        page::escape(&result.paper)
    );
    if result.interrupted {
        *markup += "<div class=\"verdict invalid\"><strong>Interrupted</strong><p>The page has the \
                    measurements made before.</p></div>\n";
    }
    let form = if result.full { "in full" } else { "short form; --full runs the whole" };
    let mut facts = vec![
        ("Started", result.started.clone()),
        ("Duration", human::seconds(result.duration_s)),
        ("Form", form.into()),
    ];
    facts.extend(result.method.iter().map(|fact| (fact.name.as_str(), fact.value.clone())));
    facts.extend(result.host.facts());
    page::facts(&result.command, &facts, markup);
    let missing = result.missing.iter().map(|m| format!("Missing: {}: {}", m.what, m.why));
    page::notes(&missing.chain(result.notes.iter().cloned()).collect::<Vec<_>>(), markup);
    for table in &result.tables {
        put(table, markup);
    }
    let plots: Vec<Plot> = result.figures.iter().map(plot).collect();
    if !plots.is_empty() {
        page.plots("Figures", &plots);
    }
    tools(result, page.markup());
    let version = format!("Squall {}", result.squall_version);
    page.footer(&[&version, &result.schema, "octets of frames exclude the FCS"]);
    page.finish()
}

fn put(of: &Table, markup: &mut String) {
    let heads: Vec<&str> = of.columns.iter().map(|column| column.name.as_str()).collect();
    let rows: Vec<Vec<String>> = of.rows.iter().map(|row| texts(of, row)).collect();
    page::table(&of.title, &heads, &rows, markup);
    if !of.note.is_empty() {
        *markup += &format!("<p class=\"sub\">{}</p>\n", page::escape(&of.note));
    }
}

fn tools(result: &Experiment, markup: &mut String) {
    if result.tools.is_empty() {
        return;
    }
    let row = |tool: &crate::compared::ToolInfo| {
        let version = tool.version.clone().unwrap_or_default();
        vec![tool.name.clone(), version, tool.why_not.clone().unwrap_or_else(|| "driven".into())]
    };
    let rows: Vec<_> = result.tools.iter().map(row).collect();
    page::table("Tools", &["Tool", "Version", "State"], &rows, markup);
}

fn plot(figure: &Figure) -> Plot {
    let (x, y, title) = (figure.x.clone(), figure.y.clone(), figure.title.as_str());
    if figure.categories.is_empty() {
        let line = |series: &Series| {
            Line::new(series.label.as_str(), series.points.iter().copied()).style(series.style)
        };
        let lines = figure.series.iter().map(line).collect();
        return Plot::lines(title, x, y, lines).subtitle(figure.note.as_str());
    }
    let group = |series: &Series| {
        let at = |i: usize| series.points.iter().find(|(x, _)| *x == i as f64).map(|(_, y)| *y);
        Group { label: series.label.clone(), y: (0..figure.categories.len()).map(at).collect() }
    };
    let groups = figure.series.iter().map(group).collect();
    Plot::bars(title, x.name, figure.categories.clone(), y, groups).subtitle(figure.note.as_str())
}

/// A CSV file (RFC 4180) for each table and figure, as name and content. Numbers are not rounded.
pub fn csv(result: &Experiment) -> Vec<(String, String)> {
    let name = |kind, id: &str| format!("{}-{kind}-{id}.csv", result.name);
    let tables = result.tables.iter().map(|table| (name("table", &table.id), table_csv(table)));
    let figures =
        result.figures.iter().map(|figure| (name("figure", &figure.id), figure_csv(figure)));
    tables.chain(figures).collect()
}

fn table_csv(table: &Table) -> String {
    let heads = table.columns.iter().map(|column| column.name.clone());
    let mut text = line(heads.chain(["source".into()]));
    for row in &table.rows {
        text += &line(row.cells.iter().map(raw).chain([source(row.source).into()]));
    }
    text
}

fn figure_csv(figure: &Figure) -> String {
    let heads = ["series".into(), figure.x.name.clone(), figure.y.name.clone(), "source".into()];
    let mut text = line(heads.into_iter());
    for series in &figure.series {
        for (x, y) in &series.points {
            let category = figure.categories.get(*x as usize).cloned();
            let x = category.unwrap_or_else(|| x.to_string());
            let cells = [series.label.clone(), x, y.to_string(), source(series.source).into()];
            text += &line(cells.into_iter());
        }
    }
    text
}

fn source(of: Source) -> &'static str {
    match of {
        Source::Measured => "measured",
        Source::Paper => "published",
    }
}

fn raw(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::None => String::new(),
    }
}

/// A CSV record. Quotes fields that contain a separator, a quote or a line break.
fn line(cells: impl Iterator<Item = String>) -> String {
    let quoted = |cell: String| match cell.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    cells.map(quoted).collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::{
        super::model::{Axis, Missing},
        *,
    };

    fn sample() -> Experiment {
        let columns = [("Generator", Unit::Count), ("Mean", Unit::Pps), ("SD, %", Unit::Number)];
        let mut table = Table::new("speed", "Speed", "counted where it arrives", &columns);
        table.row(vec!["squall".into(), 1.5e6.into(), 0.25.into()]);
        table.row(vec!["a,\"b\"".into(), Value::None, f64::NAN.into()]);
        table.paper(vec!["old".into(), 2e5.into(), Value::None]);
        let (x, y) = (Axis::new("time", Unit::S), Axis::new("packets per second", Unit::Pps));
        let mut lines = Figure::lines("time", "Rate", "", x, y);
        lines.series("squall", [(1.0, 10.0), (2.0, f64::NAN)]);
        lines.reference("old", Source::Paper, [(1.0, 5.0)]);
        let categories = vec!["64".into(), "1518".into()];
        let pps = Axis::new("rate", Unit::Pps);
        let mut bars = Figure::bars("sizes", "Sizes", "", "octets", categories, pps);
        bars.series("</script><b>", [(1.0, 3.0)]);
        Experiment {
            name: "ntg".into(),
            title: "Three generators".into(),
            tables: vec![table],
            figures: vec![lines, bars],
            missing: vec![Missing { what: "trex".into(), why: "not installed".into() }],
            ..Experiment::default()
        }
    }

    #[test]
    fn the_text_has_the_numbers_in_their_units_and_what_is_missing() {
        let text = summary(&sample(), 80, false);
        for expected in [
            "1.50 Mpps",
            "0.25",
            "old (published)",
            "200 kpps",
            "missing: trex: not installed",
            "–",
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
    }

    #[test]
    fn the_page_has_each_table_and_figure_and_one_color_for_a_label() {
        let page = html(&sample());
        for expected in [
            "1.50 Mpps",
            "old (published)",
            "\"colors\":[\"squall\",\"old\",",
            "packets per second",
            "Missing: trex",
            "\"style\":\"dashed\"",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert_eq!(page.matches("<script").count(), 3, "a label left its place");
    }

    #[test]
    fn csv_has_exact_numbers_and_quotes_what_needs_it() {
        let files = csv(&sample());
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["ntg-table-speed.csv", "ntg-figure-time.csv", "ntg-figure-sizes.csv"]);
        assert_eq!(
            files[0].1,
            "Generator,Mean,\"SD, %\",source\r\nsquall,1500000,0.25,measured\r\n\"a,\"\"b\"\"\",,,\
             measured\r\nold,200000,,published\r\n"
        );
        assert_eq!(
            files[1].1,
            "series,time,packets per second,source\r\nsquall,1,10,measured\r\nold,1,5,published\r\n"
        );
        assert!(files[2].1.contains("</script><b>,1518,3,measured\r\n"), "{}", files[2].1);
    }

    #[test]
    fn json_is_read_as_it_was_written() {
        let sample = sample();
        let again: Experiment = serde_json::from_str(&sample.to_json()).unwrap();
        assert_eq!(again, sample);
    }

    #[test]
    fn numbers_are_written_as_their_unit_needs() {
        for (number, unit, expected) in [
            (0.5, Unit::Number, "0.5"),
            (7500.0, Unit::Number, "7,500"),
            (12.0, Unit::Percent, "12.0 %"),
            (64.0, Unit::Length, "64"),
        ] {
            assert_eq!(written(number, unit), expected);
        }
    }
}
