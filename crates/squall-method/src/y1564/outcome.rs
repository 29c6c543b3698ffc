//! Tables of Y.1564: a row for each step, with the measured values and the result.

use squall_report::render::human::{ns, ratio, si};

use super::{Kind, Row, Service, Settings};
use crate::outcome::{Better, Figure, Limit, Outcome, Status, Table};

pub fn report(settings: &Settings, rows: &[Row], outcome: &mut Outcome) {
    outcome.tables.push(criteria(settings));
    outcome.tables.push(configuration(settings, rows));
    if rows.iter().any(|row| row.step.kind == Kind::Performance) {
        outcome.tables.push(performance(settings, rows));
    }
    outcome.figures.extend(rows.iter().flat_map(|row| figures(settings, row)));
    outcome.verdict.text.extend(settings.service.iter().enumerate().map(|(i, service)| {
        let own: Vec<_> = rows.iter().filter(|row| row.service == i).collect();
        sentence(service, &own)
    }));
    outcome.verdict.status = status(rows);
    let unknown = |row: &Row| row.step.kind == Kind::Performance && row.availability.is_none();
    if rows.iter().any(unknown) {
        outcome.notes.push("Availability was not measured: the trial has no seconds.".into());
    }
    outcome.notes.push(
        "IR is of frames with FCS. FTD is judged by its highest value, FDV by the difference to the \
         lowest delay (Y.1563)."
            .into(),
    );
}

/// A step that was not measured does not pass.
fn status(rows: &[Row]) -> Status {
    let mut failures = rows.iter().map(|row| row.failures.as_ref());
    if failures.clone().flatten().any(|failures| !failures.is_empty()) {
        Status::Failed
    } else if failures.any(|failures| failures.is_none()) {
        Status::GeneratorBound
    } else {
        Status::Passed
    }
}

fn result(row: &Row) -> String {
    match &row.failures {
        None => "not measured: the generator did not sustain the rate".into(),
        Some(failures) if failures.is_empty() => "pass".into(),
        Some(failures) => format!("FAIL: {}", failures.join(", ")),
    }
}

fn bits(bps: f64) -> String {
    si(bps, "b/s")
}

fn criteria(settings: &Settings) -> Table {
    let columns =
        ["Service", "Frame size", "CIR", "EIR", "FLR", "FTD", "FDV", "Availability", "Policed"];
    let mut table = Table::new("Service acceptance criteria", &columns);
    let limit = |ms: Option<f64>| ms.map_or("-".into(), |ms| ns(ms * 1e6));
    let row = |service: &Service| {
        vec![
            service.stream.clone(),
            service.frame_size.to_string(),
            bits(service.cir_bps),
            bits(service.eir_bps),
            ratio(service.flr),
            limit(service.ftd_ms),
            limit(service.fdv_ms),
            ratio(service.availability),
            if service.policed { "yes" } else { "no" }.into(),
        ]
    };
    table.rows.extend(settings.service.iter().map(row));
    table
}

/// Columns of loss and delay, shared by both tests.
fn cells(row: &Row) -> Vec<String> {
    let delay = |value: &dyn Fn((f64, f64, f64)) -> f64| {
        row.delay.map_or("-".into(), |delay| ns(value(delay)))
    };
    vec![
        bits(row.step.bps),
        bits(row.ir_bps),
        row.lost.to_string(),
        ratio(row.flr),
        delay(&|(min, ..)| min),
        delay(&|(_, mean, _)| mean),
        delay(&|(.., max)| max),
        delay(&|(min, mean, _)| mean - min),
        delay(&|(min, _, max)| max - min),
    ]
}

const CELLS: [&str; 9] =
    ["Offered IR", "IR", "FL", "FLR", "FTD min", "FTD mean", "FTD max", "FDV mean", "FDV max"];

fn configuration(settings: &Settings, rows: &[Row]) -> Table {
    let columns = [&["Service", "Step"][..], &CELLS, &["Result"]].concat();
    let mut table = Table::new("Service configuration test", &columns);
    for row in rows.iter().filter(|row| row.step.kind != Kind::Performance) {
        let head = vec![settings.service[row.service].stream.clone(), row.step.name.clone()];
        table.rows.push([head, cells(row), vec![result(row)]].concat());
    }
    table
}

fn performance(settings: &Settings, rows: &[Row]) -> Table {
    let columns =
        [&["Service"][..], &CELLS, &["AVAIL", "Unavailable, s", "SES", "Result"]].concat();
    let mut table = Table::new("Service performance test", &columns);
    for row in rows.iter().filter(|row| row.step.kind == Kind::Performance) {
        let found = row.availability;
        let seconds = |n: Option<usize>| n.map_or("-".into(), |n| n.to_string());
        let tail = vec![
            found.map_or("-".into(), |found| ratio(found.ratio())),
            seconds(found.map(|found| found.total - found.available)),
            seconds(found.map(|found| found.severely_errored)),
            result(row),
        ];
        let head = vec![settings.service[row.service].stream.clone()];
        table.rows.push([head, cells(row), tail].concat());
    }
    table
}

/// Figures of the performance test; if there is none, of the step at CIR.
fn figures(settings: &Settings, row: &Row) -> Vec<Figure> {
    let service = &settings.service[row.service];
    let wanted = match row.step.kind {
        Kind::Performance => true,
        Kind::Committed => settings.performance_s == 0.0 && row.step.bps == service.cir_bps,
        Kind::Excess => false,
    };
    if !wanted {
        return Vec::new();
    }
    let limit = if row.failures.is_none() { Limit::Generator } else { Limit::Offered };
    let figure = |name: &str, value: f64, unit: &str, better: Better, limit: Limit| Figure {
        name: format!("{name}/{}", service.stream),
        value,
        unit: unit.into(),
        better,
        uncertainty: 0.0,
        limit,
    };
    // Unlike the rate, these figures do not depend on the offered load.
    let own = if limit == Limit::Generator { limit } else { Limit::Device };
    let mut all = vec![
        figure("IR", row.ir_bps, "bit/s", Better::Higher, limit),
        figure("FLR", row.flr, "ratio", Better::Lower, own),
    ];
    if let Some((min, _, max)) = row.delay {
        all.push(figure("FTD", max, "ns", Better::Lower, own));
        all.push(figure("FDV", max - min, "ns", Better::Lower, own));
    }
    if let Some(found) = row.availability {
        all.push(figure("AVAIL", found.ratio(), "ratio", Better::Higher, own));
    }
    all
}

fn sentence(service: &Service, rows: &[&Row]) -> String {
    let failed: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            let failures = row.failures.as_ref().filter(|failures| !failures.is_empty())?;
            Some(format!("{} ({})", row.step.name, failures.join(", ")))
        })
        .collect();
    let missing = rows.iter().filter(|row| row.failures.is_none()).count();
    let stream = &service.stream;
    match (failed.is_empty(), missing) {
        (false, _) => format!("{stream}: fails {}", failed.join("; ")),
        (true, 0) => format!("{stream}: passes all {} steps", rows.len()),
        (true, _) => format!("{stream}: {missing} of {} steps were not measured", rows.len()),
    }
}
