//! Received flows and sources as text tables.

use super::human;
use super::table::{Cell, Style, Table, wrap};
use crate::report::{
    Bursts, PortReport, ReceivedFlowReport, ReceivedFlowsReport, ReceivedSourceReport, Report,
    SequenceReport,
};

/// The `top` flows and sources with the most octets, in lines of at most `width` columns (at least
/// 60). Empty if flows were not measured.
pub fn received_flows(report: &Report, top: usize, width: usize, color: bool) -> String {
    let Some(all) = &report.received_flows else { return String::new() };
    let width = width.max(60);
    let mut out = vec![String::new()];
    for port in report.ports.iter().filter(|p| p.rx.packets > 0) {
        out.extend(wrap(&arrivals(port, all), width, 4));
    }
    if !all.flows.is_empty() {
        out.push(String::new());
        out.push(Style::Dim.paint(RATES, color));
        out.extend(flow_table(all, report.ports.len() > 1, top).lines(width, color));
        out.extend(more(all.flows.iter().skip(top).map(|f| (f.packets, f.octets))));
    }
    if let Some(rest) = &all.rest {
        let text = format!(
            "{} frames ({}) of flows beyond the limit of {} (--flows)",
            human::count(rest.packets),
            human::si(rest.octets as f64, "B"),
            human::count(all.limit)
        );
        out.extend(wrap(&text, width, 4));
    }
    if all.sources.len() > 1 {
        out.push(String::new());
        out.extend(source_table(&all.sources, top).lines(width, color));
        out.extend(more(all.sources.iter().skip(top).map(|s| (s.packets, s.octets))));
    }
    out.push(String::new());
    out.join("\n")
}

/// Explains why the rates of a port and of its flows differ: they are means over different times.
pub(super) const RATES: &str =
    "Rates of flows and sources: first to last frame. Of ports: the whole run.";
/// Minimum width of a name: two IPv4 addresses with ports, without which flows between the same
/// hosts would look alike.
const LEAST_FLOW: usize = 34;

/// Figures of a port that have no column in the table of ports.
fn arrivals(port: &PortReport, all: &ReceivedFlowsReport) -> String {
    let rx = &port.rx;
    let mut parts = Vec::new();
    if let Some(gap) = &rx.arrival_gap_ns {
        let times =
            [gap.mean, gap.stddev, gap.p50 as f64, gap.p99 as f64, gap.min as f64, gap.max as f64]
                .map(human::ns);
        let [mean, sd, p50, p99, min, max] = times;
        parts.push(format!("gaps mean {mean}, sd {sd}, p50 {p50}, p99 {p99}, {min} to {max}"));
    }
    if let (Some(pps), Some(bps)) = (rx.peak_pps, rx.peak_bps_l2) {
        let interval = human::ns(all.interval_ns as f64);
        parts.push(format!(
            "peak {}, {} L2 in {interval}",
            human::si(pps, "pps"),
            human::si(bps, "b/s")
        ));
    }
    if let Some(b) = rx.bursts.as_ref().filter(|b| b.count > 0) {
        let gap = human::ns(all.burst_gap_ns as f64);
        let frames =
            format!("of {:.1} frames, at most {}", b.mean_packets, human::count(b.max_packets));
        let bursts = human::counted(b.count, "burst");
        parts.push(format!("{bursts} (gaps up to {gap}) {frames}"));
    }
    let resolution = rx
        .timestamp_resolution_ns
        .map_or(String::new(), |ns| format!(", to {}", human::ns(ns as f64)));
    parts.push(format!("timestamps: {}{resolution}", port.timestamps));
    format!("{}: {}", port.name, parts.join("; "))
}

/// `ports` is true if the run has several ports.
fn flow_table(all: &ReceivedFlowsReport, ports: bool, top: usize) -> Table {
    let shown = &all.flows[..all.flows.len().min(top)];
    let any = |f: fn(&SequenceReport) -> u64| {
        shown.iter().filter_map(|flow| flow.sequence.as_ref()).any(|s| f(s) > 0)
    };
    let numbered = shown.iter().any(|flow| flow.sequence.is_some());
    let columns = [
        (if all.by == "source" { "SOURCE" } else { "FLOW" }, 0, true),
        ("PORT", 4, ports),
        ("PACKETS", 0, true),
        ("OCTETS", 2, true),
        ("RATE", 0, true),
        ("L2", 5, true),
        ("PEAK", 6, true),
        ("GAP", 3, true),
        ("SD", 1, true),
        ("SD REAL", 1, shown.iter().any(|flow| flow.gap_floor_ns.is_some())),
        ("P99", 7, true),
        ("BURSTS", 8, true),
        ("KIND", 2, numbered),
        ("LOST", 0, numbered),
        ("DUP", 1, any(|s| s.duplicates)),
        ("REORD", 1, any(|s| s.reordered)),
        ("RESTARTS", 2, any(|s| s.restarts)),
        ("DELAY P50", 3, any(|s| s.latency_ns.as_ref().map_or(0, |d| d.count))),
        ("JITTER", 4, any(|s| u64::from(s.jitter_ns.is_some()))),
    ];
    let heads: Vec<_> = columns.iter().filter(|c| c.2).map(|c| (c.0, c.1)).collect();
    let mut table = Table::new(&heads).least_name(LEAST_FLOW);
    for flow in shown {
        let cells = flow_row(flow).into_iter().zip(columns);
        table.row(cells.filter(|(_, column)| column.2).map(|(cell, _)| cell).collect());
    }
    table
}

fn flow_row(flow: &ReceivedFlowReport) -> Vec<Cell> {
    let none = || Cell::styled("-", Style::Dim);
    let gap = flow.arrival_gap_ns.as_ref();
    let time = |ns: Option<f64>| ns.map_or_else(none, |ns| human::ns(ns).into());
    // Sequence figures of Squall's own flows are in the stream table instead.
    let sequence = flow.sequence.as_ref();
    let own = sequence.filter(|s| s.kind != "squall");
    let fault = |f: fn(&SequenceReport) -> u64| {
        own.map_or_else(none, |s| Cell::fault(f(s), human::short_count(f(s))))
    };
    vec![
        Cell::styled(&flow.name, Style::Bold),
        flow.port.as_str().into(),
        human::short_count(flow.packets).into(),
        human::si(flow.octets as f64, "B").into(),
        human::si(flow.pps, "pps").into(),
        human::si(flow.bps_l2, "b/s").into(),
        human::si(flow.peak_pps, "pps").into(),
        time(gap.map(|g| g.mean)),
        time(gap.map(|g| g.stddev)),
        match flow.gap_stddev_corrected_ns {
            Some(0.0) => Cell::styled("below floor", Style::Dim),
            corrected => time(corrected),
        },
        time(gap.map(|g| g.p99 as f64)),
        bursts(&flow.bursts),
        sequence.map_or_else(none, |s| s.kind.as_str().into()),
        fault(|s| s.lost),
        fault(|s| s.duplicates),
        fault(|s| s.reordered),
        fault(|s| s.restarts),
        time(own.and_then(|s| s.latency_ns.as_ref()).map(|d| d.p50 as f64)),
        time(own.and_then(|s| s.jitter_ns)),
    ]
}

fn bursts(bursts: &Bursts) -> Cell {
    match bursts.count {
        0 => Cell::styled("-", Style::Dim),
        n => format!("{} ({:.1})", human::short_count(n), bursts.mean_packets).into(),
    }
}

fn source_table(sources: &[ReceivedSourceReport], top: usize) -> Table {
    let mut table = Table::new(&[
        ("SOURCE", 0),
        ("FLOWS", 1),
        ("PACKETS", 0),
        ("OCTETS", 0),
        ("RATE", 0),
        ("L2", 2),
        ("LOST", 0),
    ]);
    for source in sources.iter().take(top) {
        table.row(vec![
            Cell::styled(&source.name, Style::Bold),
            human::count(source.flows).into(),
            human::short_count(source.packets).into(),
            human::si(source.octets as f64, "B").into(),
            human::si(source.pps, "pps").into(),
            human::si(source.bps_l2, "b/s").into(),
            source.lost.map_or_else(
                || Cell::styled("-", Style::Dim),
                |n| Cell::fault(n, human::short_count(n)),
            ),
        ]);
    }
    table
}

fn more(rest: impl ExactSizeIterator<Item = (u64, u64)>) -> Option<String> {
    let n = rest.len() as u64;
    let (packets, octets) = rest.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let (packets, octets) = (human::short_count(packets), human::si(octets as f64, "B"));
    (n > 0).then(|| {
        format!("... {} more ({packets} frames, {octets}), see --top and --json", human::count(n))
    })
}

/// Received flows up to now, for the live view.
pub(super) fn watched(all: &ReceivedFlowsReport, rows: usize) -> Table {
    let mut table = Table::new(&[("FLOW", 0), ("PACKETS", 0), ("OCTETS", 1), ("LOST", 0)])
        .at_least(&[0, 9, 9, 6]);
    for flow in all.flows.iter().take(rows.saturating_sub(1)) {
        let lost = flow.sequence.as_ref().map(|s| s.lost);
        table.row(vec![
            flow.name.as_str().into(),
            human::short_count(flow.packets).into(),
            human::si(flow.octets as f64, "B").into(),
            lost.map_or_else(
                || Cell::styled("-", Style::Dim),
                |n| Cell::fault(n, human::short_count(n)),
            ),
        ]);
    }
    table
}
