//! Text for a terminal, starting with the verdict.

use squall_report::render::{
    human::{deviation, ns, ratio, si},
    table::{self, Style, terminal, wrap},
};

use crate::{
    bench::RecordedTrial,
    outcome::{Comparison, Outcome, Status, Table},
};

pub fn text(outcome: &Outcome, width: usize, color: bool) -> String {
    let status = outcome.verdict.status;
    let style = match status {
        Status::Measured | Status::Passed => Style::Good,
        _ => Style::Bad,
    };
    let mut out = vec![format!("{}  {}", style.paint(status.text(), color), outcome.title)];
    for sentence in &outcome.verdict.text {
        out.extend(wrap(&terminal(sentence), width, 2));
    }
    for table in &outcome.tables {
        out.push(String::new());
        out.push(Style::Bold.paint(&table.title, color));
        out.extend(lines(table, color));
    }
    if !outcome.notes.is_empty() {
        out.push(String::new());
    }
    for note in &outcome.notes {
        out.extend(wrap(&terminal(&format!("note: {note}")), width, 2));
    }
    out.join("\n") + "\n"
}

/// The table at its natural width. Rows may be of any length, as an outcome can be read from a
/// file.
fn lines(table: &Table, color: bool) -> Vec<String> {
    if table.columns.is_empty() {
        return Vec::new();
    }
    let columns: Vec<(&str, u8)> = table.columns.iter().map(|head| (head.as_str(), 0)).collect();
    let mut text = table::Table::new(&columns);
    for row in &table.rows {
        let cell = |i: usize| row.get(i).cloned().unwrap_or_default().into();
        text.row((0..columns.len()).map(cell).collect());
    }
    text.lines(usize::MAX, color)
}

/// One line about a finished trial.
pub fn trial_line(recorded: &RecordedTrial) -> String {
    let measured = &recorded.measured;
    let again = if recorded.attempt > 1 {
        format!(" (again, {})", recorded.attempt)
    } else {
        String::new()
    };
    if !recorded.trial.counts(measured) {
        // The first clause only: the outcome has the details (wait time, CPU of the thread).
        let why = measured.not_kept.first().and_then(|why| why.split(';').next()).unwrap_or("");
        return format!("{}{again}: not counted: {why}", recorded.trial.label);
    }
    if let Some(flows) = &measured.flows {
        return format!(
            "{}{again}: {} connections, {} failed ({}), {}",
            recorded.trial.label,
            flows.attempted,
            flows.failures(),
            ratio(flows.failed_ratio()),
            si(flows.goodput_bps, "b/s"),
        );
    }
    let delay = measured.delay().map(|delay| format!(", mean latency {}", ns(delay.mean)));
    format!(
        "{}{again}: {} sent, {} lost ({}){}",
        recorded.trial.label,
        si(measured.sent() as f64, ""),
        measured.lost(),
        ratio(measured.loss_ratio()),
        delay.unwrap_or_default(),
    )
}

/// Changes relative to a baseline.
pub fn changes(comparisons: &[Comparison], color: bool) -> String {
    let mut table = Table::new("", &["Figure", "Baseline", "Now", "Change", ""]);
    for one in comparisons {
        let number = |value: f64| match one.unit.as_str() {
            "ns" => ns(value),
            "ratio" => ratio(value),
            unit => format!("{value:.3} {unit}"),
        };
        let word = match (one.regressed, one.improved) {
            (true, _) => "worse",
            (_, true) => "better",
            _ => "",
        };
        let change = one.change.map_or_else(|| "new".into(), deviation);
        let row = vec![one.name.clone(), number(one.before), number(one.now), change, word.into()];
        table.rows.push(row);
    }
    let regressed = comparisons.iter().filter(|one| one.regressed).count();
    let head = match regressed {
        0 => Style::Good.paint("no regression", color),
        n => Style::Bad.paint(&format!("{n} of {} figures are worse", comparisons.len()), color),
    };
    [vec![head], lines(&table, color)].concat().join("\n") + "\n"
}
