//! Ports and streams of a running run, as rows. The run may be in this process or in a daemon.

use squall_units::median_high;

use super::human;
use super::table::{Cell, Style, Table};
use crate::report::{Report, Sample};

/// A port: rates since the last sample, counters since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortRow {
    pub name: String,
    pub tx_pps: f64,
    pub tx_bps_l1: f64,
    pub sent: Option<u64>,
    pub rx_pps: f64,
    pub rx_bps_l1: f64,
    pub received: Option<u64>,
    /// Frames that were due and not sent, plus frames that arrived and were lost.
    pub drops: u64,
    /// Speed of the link, if known.
    pub speed_bps: Option<u64>,
}

/// A stream: rates and times since the last sample, losses since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamRow {
    pub name: String,
    pub tx_pps: f64,
    /// `None` if its receiver does not measure the stream.
    pub rx_pps: Option<f64>,
    pub lost: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// Maximum delay since the start.
    pub max_ns: Option<u64>,
    /// 99th percentile of the departure error.
    pub late_p99_ns: Option<u64>,
}

impl PortRow {
    pub fn of(sample: &Sample, so_far: &Report) -> Vec<Self> {
        let row = |(i, port): (usize, &crate::report::PortSample)| {
            let total = named(&so_far.ports, i, |p| &p.name, &port.name);
            Self {
                name: port.name.clone(),
                tx_pps: port.tx_pps,
                tx_bps_l1: port.tx_bps_l1,
                sent: total.map(|p| p.tx.packets),
                rx_pps: port.rx_pps,
                rx_bps_l1: port.rx_bps_l1,
                received: total.map(|p| p.rx.packets),
                drops: total.map_or(0, crate::report::PortReport::drops),
                speed_bps: None,
            }
        };
        sample.ports.iter().enumerate().map(row).collect()
    }

    /// Utilization of the link in percent, in the busier direction.
    fn share(&self) -> Option<f64> {
        let speed = self.speed_bps.filter(|bps| *bps > 0)?;
        Some(100.0 * self.tx_bps_l1.max(self.rx_bps_l1) / speed as f64)
    }
}

impl StreamRow {
    pub fn of(sample: &Sample, so_far: &Report) -> Vec<Self> {
        let row = |(i, stream): (usize, &crate::report::StreamSample)| {
            let total = named(&so_far.streams, i, |s| &s.name, &stream.name);
            let measured = total.is_none_or(|s| s.rx.is_some());
            Self {
                name: stream.name.clone(),
                tx_pps: stream.tx_pps,
                rx_pps: measured.then_some(stream.rx_pps),
                lost: measured.then_some(stream.lost),
                p50_ns: stream.latency_p50_ns,
                p99_ns: stream.latency_p99_ns,
                max_ns: total.and_then(|s| Some(s.rx.as_ref()?.latency_ns.as_ref()?.max)),
                late_p99_ns: stream.late_p99_ns,
            }
        };
        sample.streams.iter().enumerate().map(row).collect()
    }
}

/// A table of at most `rows` lines, which includes and marks the `selected` row. Names are indented
/// by the width of the mark, unless no row can be selected.
pub(super) fn port_table(ports: &[PortRow], rows: usize, selected: Option<Option<usize>>) -> Table {
    let (tx, rx) = ([("TX", 0), ("L1", 1), ("SENT", 2)], [("RX", 0), ("L1", 1), ("RECEIVED", 2)]);
    // Without a known link speed, the column would have only dashes.
    let link: &[_] =
        if ports.iter().any(|port| port.speed_bps.is_some()) { &[("LINK", 1)] } else { &[] };
    let columns = [&[("PORT", 0)], &tx[..], &rx, link, &[("DROPS", 3)]].concat();
    let least =
        [&[0, 9, 9, 7, 9, 9, 8][..], if link.is_empty() { &[] } else { &[6] }, &[5]].concat();
    let mut table = Table::new(&columns).at_least(&least);
    let count = |n: Option<u64>| n.map_or("-".into(), human::short_count);
    let shown = window(ports.len(), rows, selected.flatten());
    for (i, port) in ports.iter().enumerate().filter(|(i, _)| shown.contains(i)) {
        let mut cells = vec![
            name(&port.name, Style::Bold, i, selected),
            human::si(port.tx_pps, "pps").into(),
            human::si(port.tx_bps_l1, "b/s").into(),
            count(port.sent).into(),
            human::si(port.rx_pps, "pps").into(),
            human::si(port.rx_bps_l1, "b/s").into(),
            count(port.received).into(),
        ];
        if !link.is_empty() {
            cells.push(port.share().map_or("-".into(), |share| format!("{share:.1}%").into()));
        }
        cells.push(Cell::fault(port.drops, human::short_count(port.drops)));
        table.row(cells);
    }
    let rest: Vec<_> = ports
        .iter()
        .enumerate()
        .filter(|(i, _)| !shown.contains(i))
        .map(|(_, port)| port)
        .collect();
    if !rest.is_empty() {
        let sum = |f: fn(&PortRow) -> f64| rest.iter().map(|port| f(port)).sum::<f64>();
        let mut cells = vec![
            more(rest.len(), selected),
            human::si(sum(|p| p.tx_pps), "pps").into(),
            human::si(sum(|p| p.tx_bps_l1), "b/s").into(),
            "".into(),
            human::si(sum(|p| p.rx_pps), "pps").into(),
            human::si(sum(|p| p.rx_bps_l1), "b/s").into(),
        ];
        cells.resize_with(columns.len(), || "".into());
        table.row(cells);
    }
    table
}

/// The same as [`port_table`], for streams.
pub(super) fn stream_table(
    streams: &[StreamRow],
    rows: usize,
    selected: Option<Option<usize>>,
) -> Table {
    let columns = [
        ("STREAM", 0),
        ("TX", 0),
        ("RX", 1),
        ("LOST", 0),
        ("P50", 2),
        ("P99", 0),
        ("MAX", 3),
        ("LATE P99", 1),
    ];
    let mut table = Table::new(&columns).at_least(&[0, 9, 9, 6, 7, 7, 7, 8]);
    let none = || Cell::styled("-", Style::Dim);
    let time = |ns: Option<u64>| ns.map_or_else(none, |ns| human::ns(ns as f64).into());
    let shown = window(streams.len(), rows, selected.flatten());
    for (i, stream) in streams.iter().enumerate().filter(|(i, _)| shown.contains(i)) {
        table.row(vec![
            name(&stream.name, Style::Plain, i, selected),
            human::si(stream.tx_pps, "pps").into(),
            stream.rx_pps.map_or_else(none, |pps| human::si(pps, "pps").into()),
            stream.lost.map_or_else(none, |lost| Cell::fault(lost, human::short_count(lost))),
            time(stream.p50_ns),
            time(stream.p99_ns),
            time(stream.max_ns),
            time(stream.late_p99_ns),
        ]);
    }
    let rest: Vec<_> =
        streams.iter().enumerate().filter(|(i, _)| !shown.contains(i)).map(|(_, s)| s).collect();
    if !rest.is_empty() {
        let lost = rest.iter().filter_map(|s| s.lost).sum();
        table.row(vec![
            more(rest.len(), selected),
            human::si(rest.iter().map(|s| s.tx_pps).sum(), "pps").into(),
            human::si(rest.iter().filter_map(|s| s.rx_pps).sum(), "pps").into(),
            Cell::fault(lost, human::short_count(lost)),
            // The p50 of the median stream as a typical value, and the highest p99.
            time(median_high(rest.iter().filter_map(|s| s.p50_ns))),
            time(rest.iter().filter_map(|s| s.p99_ns).max()),
            time(rest.iter().filter_map(|s| s.max_ns).max()),
            time(rest.iter().filter_map(|s| s.late_p99_ns).max()),
        ]);
    }
    table
}

pub(super) const MARK: &str = "▸ ";
const NO_MARK: &str = "  ";

fn name(name: &str, style: Style, i: usize, selected: Option<Option<usize>>) -> Cell {
    match selected {
        None => Cell::styled(name, style),
        Some(this) if this == Some(i) => Cell::styled(format!("{MARK}{name}"), Style::Bold),
        Some(_) => Cell::styled(format!("{NO_MARK}{name}"), style),
    }
}

fn more(n: usize, selected: Option<Option<usize>>) -> Cell {
    let mark = if selected.is_some() { NO_MARK } else { "" };
    Cell::styled(format!("{mark}{} more", human::count(n as u64)), Style::Dim)
}

/// The range of the `n` rows that fits below a heading. It includes the selected row, and leaves a
/// row for the sum of the omitted rows, if there are any.
fn window(n: usize, rows: usize, selected: Option<usize>) -> std::ops::Range<usize> {
    let fit = if n < rows { n } else { rows.saturating_sub(2).min(n) };
    let first = selected.map_or(0, |this| (this + 1).saturating_sub(fit.max(1)).min(n - fit));
    first..first + fit
}

/// The item of that name. Its previous index is tried first, because it changes only if streams are
/// added or removed.
fn named<'a, T>(
    items: &'a [T],
    place: usize,
    name_of: impl Fn(&T) -> &str,
    name: &str,
) -> Option<&'a T> {
    items
        .get(place)
        .filter(|item| name_of(item) == name)
        .or_else(|| items.iter().find(|item| name_of(item) == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(n: usize) -> Vec<StreamRow> {
        (0..n)
            .map(|i| StreamRow { name: format!("s{i}"), lost: Some(1), ..StreamRow::default() })
            .collect()
    }

    #[test]
    fn the_selected_row_is_in_sight_wherever_it_is_and_the_others_are_summed_up() {
        let streams = streams(30);
        for selected in 0..30 {
            let lines = stream_table(&streams, 10, Some(Some(selected))).lines(80, false);
            assert_eq!(lines.len(), 10);
            let marked: Vec<_> = lines.iter().filter(|line| line.starts_with(MARK)).collect();
            assert!(
                marked.len() == 1 && marked[0].contains(&format!("s{selected} ")),
                "{lines:#?}"
            );
            assert!(lines[9].contains("22 more") && lines[9].contains(" 22"), "{lines:#?}");
        }
        assert!(
            !stream_table(&streams, 10, Some(None))
                .lines(80, false)
                .iter()
                .any(|line| line.contains(MARK.trim()))
        );
    }

    #[test]
    fn the_share_of_a_link_shows_where_its_speed_is_known() {
        let port = |speed_bps| PortRow {
            name: "A".into(),
            tx_bps_l1: 2.5e9,
            speed_bps,
            ..PortRow::default()
        };
        let lines = |speed| port_table(&[port(speed)], 10, None).lines(100, false);
        assert!(
            lines(Some(10_000_000_000))[1].contains("25.0%"),
            "{:?}",
            lines(Some(10_000_000_000))
        );
        assert!(!lines(None)[0].contains("LINK"));
    }
}
