//! Replayed captures, in the wording and order of the summary of tcpreplay.

use std::fmt::Write;

use crate::report::{ReplayReport, Report};

/// Summary lines of all replays. Empty for other runs.
pub fn replay(report: &Report) -> String {
    report.replays.iter().map(|replay| one(replay, report)).collect()
}

fn one(replay: &ReplayReport, report: &Report) -> String {
    let mut text = String::from("\n");
    if report.replays.len() > 1 || report.sources.len() > replay.ports.len() {
        let _ = writeln!(text, "{}:", replay.name);
    }
    let mut line = |args: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{args}");
    };
    let seconds = report.duration_s;
    let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    line(format_args!(
        "Actual: {} packets ({} bytes) sent in {seconds:.2} seconds",
        replay.packets, replay.octets
    ));
    line(format_args!(
        "Rated: {:.1} Bps, {:.2} Mbps, {:.2} pps",
        rate(replay.octets),
        rate(replay.octets) * 8.0 / 1e6,
        rate(replay.packets)
    ));
    if let Some(flows) = &replay.flows {
        let expired = match flows.expired {
            0 => String::new(),
            expired => format!("{} unique, {expired} expired, ", flows.unique),
        };
        line(format_args!(
            "Flows: {} flows, {expired}{:.2} fps, {} flow packets, {} non-flow packets",
            flows.flows, flows.flows_per_second, flows.flow_packets, flows.non_flow_packets
        ));
    }
    for port in &replay.ports {
        let address =
            report.ports.iter().find(|p| p.name == port.port).map_or("", |p| p.address.as_str());
        line(format_args!("Statistics for network device: {address}"));
        for (name, n) in [
            ("Attempted packets:", port.attempted),
            ("Successful packets:", port.successful),
            ("Failed packets:", port.failed),
            ("Truncated packets:", port.truncated),
            ("Retried packets:", port.retried),
        ] {
            line(format_args!("\t{name:<26} {}", n));
        }
    }
    let read = &replay.read;
    for (n, what) in [
        (read.unwanted, "were left out by --filter, --include or --exclude"),
        (read.sideless, "were left out: neither client nor server"),
        (read.edited_out, "were dropped by the edits"),
        (read.too_long, "were left out: too long for their port (--too-long truncate)"),
        (read.not_ethernet, "were left out: not Ethernet, and cannot be converted"),
        (read.cut, "were sent as captured, that is, cut by the capture's snap length"),
        (read.backward, "had earlier timestamps than a previous one, and followed it at once"),
    ] {
        if n > 0 {
            line(format_args!("{} of the captures' packets {what}", n));
        }
    }
    if let Some(edited) = &replay.edited {
        line(format_args!(
            "Edited while reading: {} packets changed, {} added",
            edited.changed, edited.added
        ));
    }
    if let Some(flows) = replay.flows.as_ref().filter(|flows| flows.overflow_packets > 0) {
        let n = flows.overflow_packets;
        line(format_args!("{n} packets were of flows beyond the limit (--max-flows)"));
    }
    if replay.starved_s > 0.001 {
        line(format_args!(
            "The sender waited {:.3} s for the captures to be read (--preload)",
            replay.starved_s
        ));
    }
    if let Some(fault) = &replay.fault {
        line(format_args!("Ended early: {fault}"));
    }
    text
}
