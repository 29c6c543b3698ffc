//! For a terminal: the verdict first.

use squall_report::render::{
    human::{deviation, ns, ratio, si},
    table::{Style, terminal, wrap},
};

use crate::{
    bench::Recorded,
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
        out.extend(lines(table));
    }
    if !outcome.notes.is_empty() {
        out.push(String::new());
    }
    for note in &outcome.notes {
        out.extend(wrap(&terminal(&format!("note: {note}")), width, 2));
    }
    out.join("\n") + "\n"
}

/// The columns of a table of texts; the first stands left.
fn lines(table: &Table) -> Vec<String> {
    let cells = |i: usize| {
        let heads = table.columns.get(i).into_iter();
        heads.chain(table.rows.iter().filter_map(move |row| row.get(i)))
    };
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|i| cells(i).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &[String]| {
        let cell = |(i, text): (usize, &String)| {
            let width = widths[i];
            if i == 0 { format!("{text:<width$}") } else { format!("{text:>width$}") }
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(line(&table.columns)).chain(table.rows.iter().map(|row| line(row))).collect()
}

/// A trial that has ended, in one line.
pub fn trial_line(recorded: &Recorded) -> String {
    let measured = &recorded.measured;
    let again = if recorded.attempt > 1 {
        format!(" (again, {})", recorded.attempt)
    } else {
        String::new()
    };
    if !measured.kept() {
        // How long its thread waited for which CPU, the result has.
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
            si(flows.goodput_bps, "bit/s"),
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

/// What differs from a baseline.
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
        let change = if one.change.is_finite() { deviation(one.change) } else { "new".into() };
        let row = vec![one.name.clone(), number(one.before), number(one.now), change, word.into()];
        table.rows.push(row);
    }
    let regressed = comparisons.iter().filter(|one| one.regressed).count();
    let head = match regressed {
        0 => Style::Good.paint("no regression", color),
        n => Style::Bad.paint(&format!("{n} of {} figures are worse", comparisons.len()), color),
    };
    [vec![head], lines(&table)].concat().join("\n") + "\n"
}
