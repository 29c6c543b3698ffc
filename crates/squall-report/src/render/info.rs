//! Renders statistics of captures ([`Info`]) as text and as a page.

use super::{
    columns::{Side, cell_text, padded},
    human,
    page::{Axis, Group, Line, Page, Plot, Style, Unit, escape, notes, table, tiles},
    table::printable,
};
use crate::info::{FileInfo, Flows, Info, LengthBin, Lengths, ProtocolShare, Traffic};
use crate::report::Distribution;

// --- text
// --------------------------------------------------------------------------------------------------------

/// All statistics, file by file.
pub fn info_text(info: &Info) -> String {
    let mut text = String::new();
    for file in &info.files {
        if !text.is_empty() {
            text.push('\n');
        }
        file_text(file, &mut text);
        if let Some(filter) = &info.filter {
            text += &pairs(&[("Filter", printable(filter))]);
        }
        traffic_text(&file.traffic, &mut text);
    }
    if let Some(total) = &info.total {
        text += &format!("\nall {} files\n", info.files.len());
        traffic_text(total, &mut text);
    }
    let read: u64 = info.files.iter().map(|f| f.read_octets).sum();
    if info.elapsed_s > 0.0 && read > 0 {
        text += &format!(
            "\nread in {} at {}; {} of memory at most\n",
            human::seconds(info.elapsed_s),
            human::si(read as f64 / info.elapsed_s, "B/s"),
            human::si(info.memory.peak_rss_octets as f64, "B")
        );
    }
    info.notes.iter().for_each(|note| text += &format!("note: {}\n", printable(note)));
    text
}

/// A table with one line per file.
pub fn info_table(info: &Info) -> String {
    let head = [
        "FILE",
        "FORMAT",
        "LINK",
        "PACKETS",
        "OCTETS",
        "DURATION",
        "FIRST",
        "PPS",
        "RATE",
        "MEAN LENGTH",
        "FLOWS",
        "ORDER",
        "CUT",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    let row = |name: &str, format: String, link: String, t: &Traffic| {
        vec![
            printable(name),
            format,
            link,
            human::count(t.packets),
            human::count(t.octets),
            human::seconds(t.duration_s),
            t.first.clone().unwrap_or_else(|| "-".into()),
            human::si(t.mean_pps, "pps"),
            human::si(t.mean_bps, "b/s"),
            format!("{:.1}", t.lengths.mean),
            human::count(t.flows.unique),
            order_word(t).into(),
            human::count(t.cut_packets),
        ]
    };
    for file in &info.files {
        rows.push(row(&file.path, format_text(file), link_types(file), &file.traffic));
    }
    if let Some(total) = &info.total {
        rows.push(row("total", String::new(), String::new(), total));
    }
    let left = [0, 1, 2, 6, 11];
    let mut text = aligned(&rows, &left, "");
    for file in info.files.iter().filter(|f| f.fault.is_some()) {
        text += &fault_text(file);
    }
    text
}

fn file_text(file: &FileInfo, text: &mut String) {
    *text += &format!("{}\n", printable(&file.path));
    let mut rows = vec![("Format", format_text(file))];
    if let Some(size) = file.size_octets {
        rows.push(("Size", format!("{} octets", human::count(size))));
    }
    if let Some(hash) = &file.sha256 {
        rows.push(("SHA-256", hash.clone()));
    }
    for (number, i) in file.interfaces.iter().enumerate() {
        let mut line = i.name.clone().unwrap_or_else(|| format!("{number}"));
        line += &format!(", {}, {}, ", i.link_type, i.resolution);
        line += &if i.snaplen == 0 {
            "no snap length".into()
        } else {
            format!("snap length {}", human::count(i.snaplen.into()))
        };
        line += &format!(", {}", human::counted(i.packets, "packet"));
        for (name, n) in [
            ("received", i.received),
            ("dropped by the interface", i.dropped_by_interface),
            ("dropped by the system", i.dropped_by_system),
        ] {
            if let Some(n) = n {
                line += &format!(", {} {name}", human::count(n));
            }
        }
        rows.push(("Interface", printable(&line)));
    }
    *text += &pairs(&rows);
    if file.fault.is_some() {
        *text += &format!("  {}", fault_text(file));
    }
}

fn fault_text(file: &FileInfo) -> String {
    file.fault.as_ref().map_or_else(String::new, |fault| {
        format!(
            "FAULT at octet {} of {}: {}{}\n",
            fault.offset,
            printable(&file.path),
            fault.text,
            if fault.offset > 0 { "; all packets before it are counted" } else { "" }
        )
    })
}

fn format_text(file: &FileInfo) -> String {
    let format = file.format.clone().unwrap_or_else(|| "unknown".into());
    match &file.compression {
        Some(by) => format!("{format}, {by}"),
        None => format,
    }
}

fn link_types(file: &FileInfo) -> String {
    let mut names: Vec<&str> = Vec::new();
    for interface in &file.interfaces {
        if !names.contains(&interface.link_type.as_str()) {
            names.push(&interface.link_type);
        }
    }
    names.join(", ")
}

fn traffic_text(t: &Traffic, text: &mut String) {
    if t.packets == 0 {
        *text += &pairs(&[("Packets", "0".into())]);
        return;
    }
    let order = match &t.order {
        o if o.strict => "strict".into(),
        o if o.untimed_packets == t.packets => "unknown: no packet has a time".into(),
        o => format!(
            "not strict: {} packets earlier than the previous one, by at most {}; {} without time",
            human::count(o.backward_packets),
            human::ns(o.largest_backward_ns as f64),
            human::count(o.untimed_packets)
        ),
    };
    let f = &t.flows;
    let mut rows = vec![
        ("Packets", human::count(t.packets)),
        (
            "Octets",
            format!(
                "{} on the wire, {} captured",
                human::count(t.octets),
                human::count(t.octets_captured)
            ),
        ),
        ("Cut packets", human::count(t.cut_packets)),
        ("First", t.first.clone().unwrap_or_else(|| "-".into())),
        ("Last", t.last.clone().unwrap_or_else(|| "-".into())),
        ("Duration", format!("{:.9} s", t.duration_s)),
        (
            "Mean rate",
            format!(
                "{}, {} L2 without FCS",
                human::si(t.mean_pps, "pps"),
                human::si(t.mean_bps, "b/s")
            ),
        ),
        (
            "Peak second",
            format!(
                "{}, {}",
                human::counted(t.peak_second_packets, "packet"),
                human::si(8.0 * t.peak_second_octets as f64, "b/s")
            ),
        ),
        ("Time order", order),
        (
            "Length",
            format!(
                "mean {:.1}, p50 {}, p90 {}, p99 {}, {} to {} octets without FCS",
                t.lengths.mean,
                t.lengths.p50,
                t.lengths.p90,
                t.lengths.p99,
                t.lengths.min,
                t.lengths.max
            ),
        ),
    ];
    if let Some(gap) = &t.gap_ns {
        rows.push(("Gap", distribution(gap, human::ns)));
    }
    rows.push(("Flows", flows_text(f)));
    if let Some(d) = &f.packets_per_flow {
        rows.push((
            "Per flow",
            format!("packets: {}", distribution(d, |v| human::short_count(v.round() as u64))),
        ));
    }
    let troubles = [
        ("fragments", t.fragments),
        ("malformed", t.malformed_packets),
        ("cut within headers", t.cut_header_packets),
    ];
    let troubles: Vec<String> = troubles
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{} {name}", human::count(*n)))
        .collect();
    if !troubles.is_empty() {
        rows.push(("Of these", troubles.join(", ")));
    }
    if let Some(n) = t.duplicates {
        rows.push(("Duplicates", human::count(n)));
    }
    for (name, c) in t.checksums.iter().flatten() {
        rows.push((
            "Checksums",
            format!("{name}: {} correct, {} wrong", human::count(c.good), human::count(c.bad)),
        ));
    }
    *text += &pairs(&rows);
    let mut section = |head: &[&str], left: &[usize], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let head = head.iter().map(|h| (*h).to_owned()).collect();
            *text += "\n";
            *text += &aligned(&[vec![head], rows].concat(), left, "  ");
        }
    };
    section(
        &["PROTOCOL", "PACKETS", "", "OCTETS", ""],
        &[0],
        t.protocols.iter().map(protocol_row).collect(),
    );
    section(&["LENGTH", "PACKETS", "", "OCTETS", ""], &[0], bin_rows(t));
    for (name, ports) in [("TCP PORT", &t.tcp_ports), ("UDP PORT", &t.udp_ports)] {
        let row = |p: &crate::info::PortShare| {
            vec![p.port.to_string(), human::count(p.packets), human::count(p.octets)]
        };
        section(&[name, "PACKETS", "OCTETS"], &[], ports.iter().map(row).collect());
    }
    section(&["HOST", "SENT", "OCTETS", "RECEIVED", "OCTETS"], &[0], host_rows(t));
    section(&["FLOW", "PACKETS", "OCTETS", "START", "DURATION"], &[0], flow_rows(f));
}

fn order_word(t: &Traffic) -> &'static str {
    match &t.order {
        o if o.strict => "strict",
        o if o.untimed_packets == t.packets => "unknown",
        _ => "not strict",
    }
}

fn flows_text(f: &Flows) -> String {
    let mut text = format!(
        "{} ({}), {} per second",
        human::count(f.unique),
        human::counted(f.conversations, "conversation"),
        human::si(f.per_second, "").trim()
    );
    if let (Some(expiry), Some(active)) = (f.expiry_s, f.active) {
        text += &format!(
            "; {} begun, {} expired after {}, {} active at the end",
            human::count(f.begun),
            human::count(f.expired),
            human::seconds(expiry),
            human::count(active)
        );
    }
    text += &format!(
        "; {} flow and {} non-flow packets",
        human::count(f.flow_packets),
        human::count(f.non_flow_packets)
    );
    if f.overflow_packets > 0 {
        text += &format!(
            ", {} of flows beyond the limit of {}",
            human::count(f.overflow_packets),
            human::count(f.limit)
        );
    }
    text
}

fn distribution(d: &Distribution, show: impl Fn(f64) -> String) -> String {
    let [p50, p90, p99] = [d.p50, d.p90, d.p99].map(|v| show(v as f64));
    let (min, max) = (show(d.min as f64), show(d.max as f64));
    format!(
        "mean {}, SD {}, p50 {p50}, p90 {p90}, p99 {p99}, {min} to {max}",
        show(d.mean),
        show(d.stddev)
    )
}

fn protocol_row(p: &ProtocolShare) -> Vec<String> {
    let indent = if p.layer == "transport" { "  " } else { "" };
    vec![
        format!("{indent}{}", p.name),
        human::count(p.packets),
        human::ratio(p.packet_share),
        human::count(p.octets),
        human::ratio(p.octet_share),
    ]
}

fn bin_name(bin: &LengthBin) -> String {
    match bin.to {
        Some(to) if to == bin.from => to.to_string(),
        Some(to) => format!("{}-{to}", bin.from),
        None => format!("{}-", bin.from),
    }
}

fn bin_rows(t: &Traffic) -> Vec<Vec<String>> {
    let share = |n: u64, of: u64| human::ratio(n as f64 / of.max(1) as f64);
    let row = |bin: &LengthBin| {
        let (packets, octets) = (human::count(bin.packets), human::count(bin.octets));
        vec![
            bin_name(bin),
            packets,
            share(bin.packets, t.packets),
            octets,
            share(bin.octets, t.octets),
        ]
    };
    filled(&t.lengths).iter().map(row).collect()
}

/// The bins without empty ones at either end.
fn filled(lengths: &Lengths) -> &[LengthBin] {
    let first = lengths.bins.iter().position(|b| b.packets > 0);
    let last = lengths.bins.iter().rposition(|b| b.packets > 0);
    first.zip(last).map_or(&[], |(first, last)| &lengths.bins[first..=last])
}

fn host_rows(t: &Traffic) -> Vec<Vec<String>> {
    let row = |h: &crate::info::HostShare| {
        let numbers = [h.tx_packets, h.tx_octets, h.rx_packets, h.rx_octets];
        [vec![h.address.clone()], numbers.map(human::count).to_vec()].concat()
    };
    t.hosts.iter().map(row).collect()
}

fn flow_rows(f: &Flows) -> Vec<Vec<String>> {
    let row = |r: &crate::info::FlowRow| {
        let (start, duration) = (human::seconds(r.start_s), human::seconds(r.duration_s));
        vec![r.flow.clone(), human::count(r.packets), human::count(r.octets), start, duration]
    };
    f.top.iter().map(row).collect()
}

fn pairs(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("  {name:<13}{value}\n")).collect()
}

fn aligned(rows: &[Vec<String>], left: &[usize], indent: &str) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| cell_text(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(i, cell)| {
            padded(cell, widths[i], if left.contains(&i) { Side::Left } else { Side::Right })
        });
        format!("{indent}{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

// --- page
// --------------------------------------------------------------------------------------------------------

/// All statistics as a self-contained page, with plots.
pub fn info_html(info: &Info) -> String {
    let name = match &info.files[..] {
        [one] => one.path.clone(),
        files => format!("{} captures", files.len()),
    };
    let mut page = Page::new(format!("Squall info {name}"));
    let markup = page.markup();
    *markup += "<header>\n<div class=\"brand\">Squall <span>info</span></div>\n";
    *markup += &format!("<pre class=\"command\">{}</pre>\n</header>\n", escape(&info.command));
    if let Some(all) = info.traffic() {
        summary_tiles(all, markup);
    }
    let faults = info
        .files
        .iter()
        .filter(|f| f.fault.is_some())
        .map(|f| fault_text(f).trim_end().to_owned());
    notes(&faults.chain(info.notes.iter().cloned()).collect::<Vec<_>>(), markup);
    files_table(info, markup);
    if let Some(all) = info.traffic() {
        let named: Vec<(&str, &Traffic)> =
            info.files.iter().map(|f| (f.path.as_str(), &f.traffic)).collect();
        page.plots("Lengths", &length_plots(&named));
        page.plots("Over time", &time_plots(&named));
        page.plots(
            "Protocols and flows",
            &[protocol_plot(all), gap_plot(&named), flow_plot(&named)],
        );
        let markup = page.markup();
        table(
            "Protocols",
            &["Protocol", "Packets", "", "Octets", ""],
            &all.protocols.iter().map(protocol_row).collect::<Vec<_>>(),
            markup,
        );
        table(
            "Lengths, octets without FCS",
            &["Length", "Packets", "", "Octets", ""],
            &bin_rows(all),
            markup,
        );
        for (name, ports) in [("TCP ports", &all.tcp_ports), ("UDP ports", &all.udp_ports)] {
            let row = |p: &crate::info::PortShare| {
                vec![p.port.to_string(), human::count(p.packets), human::count(p.octets)]
            };
            if !ports.is_empty() {
                table(
                    name,
                    &["Port", "Packets", "Octets"],
                    &ports.iter().map(row).collect::<Vec<_>>(),
                    markup,
                );
            }
        }
        table(
            "Hosts with most octets",
            &["Host", "Sent", "Octets", "Received", "Octets"],
            &host_rows(all),
            markup,
        );
        table(
            "Flows with most octets",
            &["Flow", "Packets", "Octets", "Start", "Duration"],
            &flow_rows(&all.flows),
            markup,
        );
    }
    page.footer(&[
        &format!("Squall {}", info.squall_version),
        &info.schema,
        "lengths and rates are those of the capture: without FCS",
    ]);
    page.finish()
}

fn summary_tiles(t: &Traffic, markup: &mut String) {
    let f = &t.flows;
    let all = [
        (
            "Packets",
            false,
            (human::short_count(t.packets), format!("{} mean", human::si(t.mean_pps, "pps"))),
        ),
        (
            "Octets",
            false,
            (human::si(t.octets as f64, "B"), format!("{} mean", human::si(t.mean_bps, "b/s"))),
        ),
        ("Duration", false, (human::seconds(t.duration_s), t.first.clone().unwrap_or_default())),
        (
            "Mean length",
            false,
            (format!("{:.0} B", t.lengths.mean), format!("{} to {}", t.lengths.min, t.lengths.max)),
        ),
        (
            "Flows",
            false,
            (
                human::short_count(f.unique),
                format!("{} per second", human::si(f.per_second, "").trim()),
            ),
        ),
        (
            "Time order",
            !t.order.strict,
            match &t.order {
                o if o.strict => {
                    ("strict".into(), "no packet is earlier than the previous one".into())
                }
                o if o.untimed_packets == t.packets => {
                    ("unknown".into(), "no packet has a time".into())
                }
                o => (
                    human::short_count(o.backward_packets),
                    "packets earlier than the previous one".into(),
                ),
            },
        ),
        (
            "Cut packets",
            t.cut_packets > 0,
            (human::short_count(t.cut_packets), "not captured completely".into()),
        ),
    ];
    tiles(&all, markup);
}

fn files_table(info: &Info, markup: &mut String) {
    let head = [
        "File",
        "Format",
        "Link type",
        "Packets",
        "Octets",
        "Duration",
        "Rate",
        "Flows",
        "Dropped when captured",
    ];
    let row = |file: &FileInfo| {
        let t = &file.traffic;
        let drops = file
            .interfaces
            .iter()
            .flat_map(|i| [i.dropped_by_interface, i.dropped_by_system])
            .flatten();
        let known = drops.clone().count() > 0;
        vec![
            file.path.clone(),
            format_text(file),
            link_types(file),
            human::count(t.packets),
            human::count(t.octets),
            human::seconds(t.duration_s),
            human::si(t.mean_bps, "b/s"),
            human::count(t.flows.unique),
            if known { human::count(drops.sum()) } else { "unknown".into() },
        ]
    };
    table("Files", &head, &info.files.iter().map(row).collect::<Vec<_>>(), markup);
}

/// Maximum number of points in a plot, which has too few pixels to show more.
const MAX_POINTS: usize = 1000;

fn length_plots(named: &[(&str, &Traffic)]) -> [Plot; 2] {
    // All files have bins of the same widths, but each file only as many as it needs.
    let longest = named.iter().map(|(_, t)| t.lengths.bins.len()).max().unwrap_or(0);
    let widest = named.iter().find(|(_, t)| t.lengths.bins.len() == longest);
    let categories =
        widest.map(|(_, t)| t.lengths.bins.iter().map(bin_name).collect()).unwrap_or_default();
    let groups = named.iter().map(|(name, t)| Group {
        label: (*name).into(),
        y: (0..longest)
            .map(|i| Some(t.lengths.bins.get(i)?.packets as f64 / t.packets.max(1) as f64))
            .collect(),
    });
    let cdf = |label: String, t: &Traffic, weight: fn(u32, u64) -> u64| {
        let counts = &t.lengths.counts;
        let total: u64 = counts.iter().map(|(len, n)| weight(*len, *n)).sum();
        let mut sum = 0;
        let points = counts.iter().map(|(len, n)| {
            sum += weight(*len, *n);
            (f64::from(*len), sum as f64 / total.max(1) as f64)
        });
        Line::new(label, points.collect::<Vec<_>>()).style(Style::Steps)
    };
    let lines = match named {
        [(_, t)] => vec![
            cdf("packets".into(), t, |_, n| n),
            cdf("octets".into(), t, |len, n| u64::from(len) * n),
        ],
        many => many.iter().map(|(name, t)| cdf((*name).into(), t, |_, n| n)).collect(),
    };
    [
        Plot::bars(
            "Packets by length",
            "octets without FCS",
            categories,
            Axis::new("", Unit::Ratio),
            groups.collect(),
        ),
        Plot::lines(
            "Cumulative share by length",
            Axis::new("octets without FCS", Unit::Length),
            Axis::new("", Unit::Ratio),
            lines,
        ),
    ]
}

fn time_plots(named: &[(&str, &Traffic)]) -> [Plot; 3] {
    let of = |title: &str, unit, factor: f64, values: fn(&Traffic) -> &Vec<u64>| {
        let line = |(name, t): &(&str, &Traffic)| {
            let values = values(t);
            let (width, n) = (t.series.width_s, values.len().div_ceil(MAX_POINTS).max(1));
            let points = values.chunks(n).enumerate().map(|(i, chunk)| {
                let rate = chunk.iter().sum::<u64>() as f64 * factor / (chunk.len() as f64 * width);
                ((i * n) as f64 * width, rate)
            });
            Line::new(*name, points)
        };
        Plot::lines(
            title,
            Axis::new("since the first packet", Unit::S),
            Axis::new("", unit),
            named.iter().map(line).collect(),
        )
    };
    [
        of("Packet rate", Unit::Pps, 1.0, |t| &t.series.packets),
        of("Bit rate", Unit::Bps, 8.0, |t| &t.series.octets).subtitle("layer 2, without FCS"),
        of("New flows per second", Unit::Count, 1.0, |t| &t.series.new_flows),
    ]
}

fn protocol_plot(t: &Traffic) -> Plot {
    let rows: Vec<_> = t.protocols.iter().filter(|p| p.packets > 0).take(12).collect();
    let group = |label: &str, share: fn(&ProtocolShare) -> f64| Group {
        label: label.into(),
        y: rows.iter().map(|p| Some(share(p))).collect(),
    };
    let names = rows.iter().map(|p| p.name.clone()).collect();
    let groups = vec![group("packets", |p| p.packet_share), group("octets", |p| p.octet_share)];
    Plot::bars("Protocol shares", "", names, Axis::new("", Unit::Ratio), groups)
}

fn cdf(label: &str, d: Option<&Distribution>) -> Line {
    let bins = d.map_or(&[][..], |d| &d.bins);
    let total: u64 = bins.iter().map(|b| b.2).sum();
    let mut sum = 0;
    let shares = bins.iter().map(|(_, high, n)| {
        sum += n;
        ((high - 1).max(1) as f64, sum as f64 / total.max(1) as f64)
    });
    // The line starts at 0, because a single bin would not give a line.
    let begin = bins.first().map(|(low, _, _)| ((*low).max(1) as f64, 0.0));
    let points: Vec<_> = begin.into_iter().chain(shares).collect();
    Line::new(label, points).style(Style::Steps)
}

fn gap_plot(named: &[(&str, &Traffic)]) -> Plot {
    let lines = named.iter().map(|(name, t)| cdf(name, t.gap_ns.as_ref()));
    Plot::lines(
        "Gaps between packets, cumulative",
        Axis::new("", Unit::Ns).log(),
        Axis::new("", Unit::Ratio),
        lines.collect(),
    )
}

fn flow_plot(named: &[(&str, &Traffic)]) -> Plot {
    let lines = named.iter().map(|(name, t)| cdf(name, t.flows.packets_per_flow.as_ref()));
    let x = Axis::new("packets", Unit::Count).log();
    Plot::lines("Flow sizes, cumulative", x, Axis::new("", Unit::Ratio), lines.collect())
}
