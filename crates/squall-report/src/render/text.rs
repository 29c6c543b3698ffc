//! The summary at the end of a run.

use std::{collections::BTreeMap, fmt::Display};

use super::human;
use super::table::{Cell, Style, Table, printable, truncate, wrap};
use crate::report::{
    Distribution, EndedBy, ForeignRun, LinkEvent, MtuChange, PartReport, PortReport, Report,
    StreamReport, VerdictStatus,
};

/// Maximum number of rows: one or two screens. The JSON has all streams.
const MAX_STREAMS: usize = 40;

/// Renders the report as text tables with lines of at most `width` columns (at least 60), with ANSI
/// colors if `color`.
pub fn summary(report: &Report, width: usize, color: bool) -> String {
    let width = width.max(60);
    let mut out = Vec::new();
    head(report, width, color, &mut out);
    if !report.parts.is_empty() {
        out.push(String::new());
        parts(&report.parts, width, color, &mut out);
    }
    if !report.ports.is_empty() {
        out.push(String::new());
        ports(report, width, color, &mut out);
    }
    if !report.streams.is_empty() {
        out.push(String::new());
        streams(&report.streams, width, color, &mut out);
    }
    if report.flows.is_some() {
        out.push(String::new());
        out.extend(super::flows::flows(report, width, color));
    }
    if !report.hosts.is_empty() {
        out.push(String::new());
        out.extend(super::hosts::hosts(report, width, color));
    }
    if !report.routers.is_empty() {
        out.push(String::new());
        out.extend(super::routers::routers(report, width, color));
    }
    let routes = super::routes::routes(report, width, color);
    if !routes.is_empty() {
        out.push(String::new());
        out.extend(routes);
    }
    if !report.notes.is_empty() {
        out.push(String::new());
        for note in &report.notes {
            out.extend(wrap(&format!("note: {note}"), width, 6));
        }
    }
    out.push(String::new());
    verdict(report, width, color, &mut out);
    out.push(String::new());
    out.join("\n")
}

fn head(report: &Report, width: usize, color: bool, out: &mut Vec<String>) {
    let command = truncate(&printable(&report.command), width);
    out.push(Style::Bold.paint(&command, color));
    let mut facts = vec![human::seconds(report.duration_s), format!("seed {}", report.seed)];
    if !report.host.name.is_empty() {
        facts.push(format!("{} ({} CPUs)", report.host.name, report.host.cpus));
    }
    if let Some(per_mpkt) = report.cpu.per_mpkt_s {
        facts.push(format!("{per_mpkt:.2} CPU s/Mpkt"));
    }
    if report.memory.peak_rss_octets > 0 {
        facts.push(format!("{} RSS", human::si(report.memory.peak_rss_octets as f64, "B")));
    }
    let facts = truncate(&printable(&facts.join(" · ")), width);
    out.push(Style::Dim.paint(&facts, color));
}

/// Lists the runs that were merged.
fn parts(parts: &[PartReport], width: usize, color: bool, out: &mut Vec<String>) {
    let columns = [
        ("RUN", 0),
        ("PART", 0),
        ("HOST", 3),
        ("STARTED", 4),
        ("SENT", 0),
        ("RECEIVED", 0),
        ("", 0),
    ];
    let mut table = Table::new(&columns);
    for part in parts {
        let good = part.status == VerdictStatus::Valid;
        table.row(vec![
            Cell::styled(&part.name, Style::Bold),
            part.part.clone().unwrap_or_default().into(),
            part.host.clone().into(),
            part.started.clone().into(),
            human::count(part.tx_packets).into(),
            human::count(part.rx_packets).into(),
            Cell::styled(part.status.word(), if good { Style::Good } else { Style::Bad }),
        ]);
    }
    out.extend(table.lines(width, color));
}

fn ports(report: &Report, width: usize, color: bool, out: &mut Vec<String>) {
    let sends = report.sends();
    let columns = [
        ("PORT", 0, true),
        ("", 0, true),
        ("PACKETS", 0, true),
        ("OCTETS", 2, true),
        ("RATE", 0, true),
        ("L1", 1, true),
        ("L2", 4, true),
        ("ERRORS", 0, sends),
        ("NOT SENT", 0, sends),
        ("DROPPED", 0, true),
        ("INTERFACE", 3, true),
    ];
    let shown: Vec<_> = columns.iter().filter(|c| c.2).map(|c| (c.0, c.1)).collect();
    let mut table = Table::new(&shown);
    let mut row = |cells: [Cell; 11]| {
        let cells = cells.into_iter().zip(columns);
        table.row(cells.filter(|(_, column)| column.2).map(|(cell, _)| cell).collect());
    };
    for port in &report.ports {
        let (tx, rx) = (&port.tx, &port.rx);
        let surplus = port.interface_surplus();
        let (unsent, dropped) = (sum(&tx.not_sent), sum(&rx.drops));
        if sends {
            row([
                Cell::styled(&port.name, Style::Bold),
                "tx".into(),
                human::count(tx.packets).into(),
                human::si(tx.octets as f64, "B").into(),
                human::si(tx.pps, "pps").into(),
                human::si(tx.bps_l1, "b/s").into(),
                human::si(tx.bps_l2, "b/s").into(),
                Cell::fault(tx.errors, human::short_count(tx.errors)),
                Cell::fault(unsent, human::short_count(unsent)),
                "".into(),
                agreement(surplus.map(|s| s.0), false),
            ]);
        }
        row([
            if sends { "".into() } else { Cell::styled(&port.name, Style::Bold) },
            "rx".into(),
            human::count(rx.packets).into(),
            human::si(rx.octets as f64, "B").into(),
            human::si(rx.pps, "pps").into(),
            human::si(rx.bps_l1, "b/s").into(),
            human::si(rx.bps_l2, "b/s").into(),
            "".into(),
            "".into(),
            Cell::fault(dropped, human::short_count(dropped)),
            agreement(surplus.map(|s| s.1), report.filter.is_some()),
        ]);
    }
    out.extend(table.lines(width, color));
    for port in &report.ports {
        explain(port, width, out);
    }
}

/// Explains the figures of a port.
fn explain(port: &PortReport, width: usize, out: &mut Vec<String>) {
    let mut add = |what: &str, reasons: &BTreeMap<String, u64>| {
        let reasons = self::reasons(reasons);
        if !reasons.is_empty() {
            out.extend(wrap(&format!("{}: {what}: {reasons}", port.name), width, 4));
        }
    };
    add("not sent", &port.tx.not_sent);
    add("dropped on receive", &port.rx.drops);
    if port.rx.foreign_packets > 0 {
        out.extend(wrap(&format!("{}: {}", port.name, foreign(port)), width, 4));
    }
    if !port.link_events.is_empty() {
        out.extend(wrap(
            &format!("{}: link {}", port.name, link_changes(&port.link_events)),
            width,
            4,
        ));
    }
    if !port.mtu_changes.is_empty() {
        out.extend(wrap(&format!("{}: {}", port.name, mtu_changes(&port.mtu_changes)), width, 4));
    }
    if port.tx.blocked_s > 0.0 {
        out.extend(wrap(
            &format!(
                "{}: the port accepted no frames for {}",
                port.name,
                human::seconds(port.tx.blocked_s)
            ),
            width,
            4,
        ));
    }
    for (what, fingerprint) in [("tx", &port.tx.fingerprint), ("rx", &port.rx.fingerprint)] {
        if let Some(fingerprint) = fingerprint {
            out.extend(wrap(&format!("{}: {what} fingerprint {fingerprint}", port.name), width, 4));
        }
    }
}

/// Describes frames of other runs.
pub(crate) fn foreign(port: &PortReport) -> String {
    let rx = &port.rx;
    let one = |run: &ForeignRun| {
        let same = if run.same_key { ", that of this run" } else { "" };
        format!("{} with key {}{same}", human::count(run.packets), run.key)
    };
    let mut runs: Vec<_> = rx.foreign.iter().take(MAX_LINK_EVENTS).map(one).collect();
    if rx.foreign.len() > MAX_LINK_EVENTS {
        runs.push(format!("{} more runs", rx.foreign.len() - MAX_LINK_EVENTS));
    }
    let frames = if rx.foreign_packets == 1 { "frame is" } else { "frames are" };
    format!(
        "{} received {frames} of other runs and in no stream ({})",
        human::count(rx.foreign_packets),
        runs.join(", ")
    )
}

/// Maximum number of changes to list. Further ones are only counted.
const MAX_LINK_EVENTS: usize = 10;

/// Times at which the link went down and came up.
pub(crate) fn link_changes(events: &[LinkEvent]) -> String {
    let shown = events.iter().take(MAX_LINK_EVENTS);
    let mut text: Vec<_> =
        shown.map(|e| format!("{} at {:.4} s", if e.up { "up" } else { "down" }, e.t_s)).collect();
    if events.len() > MAX_LINK_EVENTS {
        text.push(format!("and {} more changes", events.len() - MAX_LINK_EVENTS));
    }
    text.join(", ")
}

/// Times and new values of MTU changes.
pub(crate) fn mtu_changes(changes: &[MtuChange]) -> String {
    let Some(first) = changes.first() else { return String::new() };
    let shown = changes.iter().take(MAX_LINK_EVENTS);
    let mut text: Vec<_> = shown.map(|c| format!("{} at {:.4} s", c.after, c.t_s)).collect();
    if changes.len() > MAX_LINK_EVENTS {
        text.push(format!("and {} more changes", changes.len() - MAX_LINK_EVENTS));
    }
    format!("MTU {}, then {}", first.before, text.join(", "))
}

/// A note on the counters of a valid run. If an interface sent more, other programs used it, too.
pub(crate) fn counters_agree(report: &Report) -> String {
    let more = report.ports.iter().filter_map(|port| {
        let (sent, _) = port.interface_surplus().filter(|surplus| surplus.0 > 0)?;
        Some(format!("{} of {}", human::count(sent as u64), port.name))
    });
    let more: Vec<_> = more.collect();
    match more.is_empty() {
        true => "the counters agree".into(),
        false => format!(
            "no frame is missing; interfaces also sent frames of other programs ({})",
            more.join(", ")
        ),
    }
}

/// With `filtered`, the surplus of the interface may be frames that do not match the filter.
fn agreement(surplus: Option<i64>, filtered: bool) -> Cell {
    match surplus {
        None => Cell::styled("-", Style::Dim),
        Some(0) => Cell::styled("agrees", Style::Good),
        Some(n) => {
            let sign = if n > 0 { "+" } else { "-" };
            let style = if filtered && n > 0 { Style::Dim } else { Style::Bad };
            let other = if n > 0 { " other" } else { "" };
            Cell::styled(format!("{sign}{}{other}", human::short_count(n.unsigned_abs())), style)
        }
    }
}

fn streams(streams: &[StreamReport], width: usize, color: bool, out: &mut Vec<String>) {
    // Columns for errors appear only if a stream has errors. They are then the last to be omitted.
    let any = |f: fn(&StreamReport) -> u64| streams.iter().any(|s| f(s) > 0);
    let unsent = any(|s| sum(&s.not_sent));
    let duplicates = any(|s| s.rx.as_ref().map_or(0, |rx| rx.duplicates));
    let reordered = any(|s| s.rx.as_ref().map_or(0, |rx| rx.reordered));
    // If all streams are those of other senders, only arrivals are known.
    let sent = !streams.iter().all(|s| s.port.is_empty());
    let columns = [
        ("STREAM", 0, true),
        ("TX", 0, sent),
        ("RX", 0, !sent),
        ("RATE", 0, sent),
        ("VS ASKED", 2, sent),
        ("NOT SENT", 0, unsent),
        ("LOST", 0, true),
        ("LOSS", 0, true),
        ("DUP", 0, duplicates),
        ("REORD", 0, reordered),
        ("P50", 3, true),
        ("P99", 0, true),
        ("MAX", 4, true),
        ("LATE P99", 1, sent),
    ];
    let shown: Vec<_> = columns.iter().filter(|c| c.2).map(|c| (c.0, c.1)).collect();
    let mut table = Table::new(&shown);
    for stream in streams.iter().take(MAX_STREAMS) {
        let cells = stream_row(stream).into_iter().zip(columns);
        table.row(cells.filter(|(_, column)| column.2).map(|(cell, _)| cell).collect());
    }
    out.extend(table.lines(width, color));
    if streams.len() > MAX_STREAMS {
        let rest = &streams[MAX_STREAMS..];
        let lost: u64 = rest.iter().filter_map(|s| s.rx.as_ref()).map(|rx| rx.lost).sum();
        let sent: u64 = rest.iter().map(|s| s.tx_packets).sum();
        out.push(format!(
            "... {} more (sent {}, lost {}), see --json",
            human::count(rest.len() as u64),
            human::short_count(sent),
            human::short_count(lost)
        ));
    }
}

fn stream_row(stream: &StreamReport) -> Vec<Cell> {
    let rx = stream.rx.as_ref();
    let signed = rx.filter(|rx| rx.is_signed());
    let unsent = sum(&stream.not_sent);
    let none = || Cell::styled("-", Style::Dim);
    let time = |d: Option<&Distribution>, f: fn(&Distribution) -> u64| {
        d.filter(|d| d.count > 0).map_or_else(none, |d| human::ns(f(d) as f64).into())
    };
    let fault = |n: Option<u64>| n.map_or_else(none, |n| Cell::fault(n, human::short_count(n)));
    let latency = rx.and_then(|rx| rx.latency_ns.as_ref());
    vec![
        stream.name.as_str().into(),
        human::short_count(stream.tx_packets).into(),
        rx.map_or_else(none, |rx| human::short_count(rx.packets).into()),
        human::si(stream.tx_pps, "pps").into(),
        stream.rate_error().map_or_else(none, |e| human::deviation(e).into()),
        fault(Some(unsent)),
        fault(rx.map(|rx| rx.lost)),
        rx.map_or_else(none, |rx| Cell::fault(rx.lost, human::ratio(rx.loss_ratio))),
        fault(signed.map(|rx| rx.duplicates)),
        fault(signed.map(|rx| rx.reordered)),
        time(latency, |d| d.p50),
        time(latency, |d| d.p99),
        time(latency, |d| d.max),
        time(stream.departure_error_ns.as_ref(), |d| d.p99),
    ]
}

fn verdict(report: &Report, width: usize, color: bool, out: &mut Vec<String>) {
    let verdict = &report.verdict;
    let schedule = if report.sends() { "the generator kept to its schedule and " } else { "" };
    match verdict.status {
        VerdictStatus::Valid => {
            let mut lines = wrap(&format!("VALID: {schedule}{}", counters_agree(report)), width, 2);
            lines[0] = lines[0].replacen("VALID", &Style::Good.paint("VALID", color), 1);
            out.extend(lines);
        }
        VerdictStatus::Interrupted => {
            let word = Style::Bad.paint("INTERRUPTED", color);
            out.push(format!(
                "{word} {}; until then {schedule}{}",
                cut_short(report),
                counters_agree(report)
            ));
        }
        VerdictStatus::NotValid if report.cut_short => {
            out.push(format!(
                "{}, and interrupted {}",
                Style::Bad.paint("NOT VALID", color),
                cut_short(report)
            ));
        }
        VerdictStatus::NotValid => out.push(Style::Bad.paint("NOT VALID", color)),
    }
    for reason in &verdict.reasons {
        out.extend(wrap(&reason.to_string(), width - 2, 2).iter().map(|line| format!("  {line}")));
    }
    for port in &report.ports {
        let lines = schedule_of(port).filter(|_| !report.verdict.valid);
        let lines = lines.map(|text| wrap(&text, width - 2, 2));
        out.extend(
            lines.into_iter().flatten().map(|line| Style::Dim.paint(&format!("  {line}"), color)),
        );
    }
}

/// Cause and time of an interruption, and the requested end.
pub fn cut_short(report: &Report) -> String {
    let asked = &report.asked;
    let of = [
        asked.duration_s.map(human::seconds),
        asked.packets.map(|packets| human::counted(packets, "frame")),
        asked.octets.map(|octets| human::counted(octets, "octet")),
    ];
    let of: Vec<_> = of.into_iter().flatten().collect();
    let of = if of.is_empty() { String::new() } else { format!(" of {}", of.join(", ")) };
    let after = format!("after {}{of}", human::seconds(report.duration_s));
    match report.verdict.failed.first() {
        Some(criterion) if report.verdict.ended_by == EndedBy::Criterion => {
            format!("{after} because {criterion}")
        }
        _ => format!("by {} {after}", report.verdict.ended_by),
    }
}

/// How a port missed its schedule; `None` if it did not.
pub fn schedule_of(port: &PortReport) -> Option<String> {
    let pacing = port.tx.pacing.as_ref()?;
    let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    let mut parts = Vec::new();
    if pacing.surplus() > pacing.allowed {
        parts.push(format!(
            "an excess of {} {} in {} ({} allowed)",
            human::count(pacing.surplus()),
            pacing.unit,
            ms(pacing.over_s),
            human::count(pacing.allowed),
        ));
    }
    if pacing.moved_s > 0.0 {
        let (moved, lag) = (ms(pacing.moved_s), ms(pacing.lag_s));
        parts.push(format!("delayed {moved} by stalls, {lag} at the end"));
    }
    (!parts.is_empty()).then(|| format!("{}: {}", port.name, parts.join("; ")))
}

fn sum<'a, R>(reasons: impl IntoIterator<Item = (R, &'a u64)>) -> u64 {
    reasons.into_iter().map(|(_, n)| n).sum()
}

/// Formats counts by reason, without those that are 0: `late 10, ring_full 2`. Empty if all are 0.
pub fn reasons<'a, R: Display>(reasons: impl IntoIterator<Item = (R, &'a u64)>) -> String {
    let parts = reasons
        .into_iter()
        .filter(|(_, n)| **n > 0)
        .map(|(reason, n)| format!("{reason} {}", human::count(*n)));
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::sample::report;
    use super::super::table::terminal;
    use super::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        for streams in [0, 1, 3, 100] {
            let mut report = report(streams);
            report.notes.push("x".repeat(300));
            for width in [80, 100, 160] {
                for line in summary(&report, width, false).lines() {
                    assert!(line.width() <= width, "{} > {width}: {line}", line.width());
                }
            }
        }
    }

    #[test]
    fn without_sending_there_are_no_senders_figures_and_a_filter_explains_the_interfaces_surplus() {
        let mut report = crate::render::sample::received(2);
        let text = summary(&report, 100, true);
        assert!(
            !text.contains("tx") && !text.contains("ERRORS") && !text.contains("its schedule"),
            "{text}"
        );
        assert!(terminal(&text).contains("\x1b[1;31m+40 other\x1b[0m"), "{text}");
        report.filter = Some("udp".into());
        let text = summary(&report, 100, true);
        assert!(terminal(&text).contains("\x1b[2m+40 other\x1b[0m"), "{text}");
    }

    #[test]
    fn errors_are_shown_with_their_reasons() {
        let text = summary(&report(3), 100, false);
        assert!(text.contains("NOT VALID"), "{text}");
        assert!(text.contains("A: not sent: late 1,250, ring full 12"), "{text}");
        assert!(text.contains("generator-bound"), "{text}");
    }

    #[test]
    fn more_streams_than_a_screen_end_in_a_count() {
        let text = summary(&report(100), 100, false);
        assert!(text.contains("... 60 more (sent "), "{text}");
    }

    #[test]
    fn colors_appear_only_on_request() {
        assert!(!summary(&report(2), 100, false).contains('\x1b'));
        let painted = summary(&report(2), 100, true);
        assert!(terminal(&painted).contains("\x1b[1;31mNOT VALID\x1b[0m"));
    }
}
