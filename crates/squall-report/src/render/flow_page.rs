//! Data of the flows of a report, for the HTML page. `assets/flows.js` renders the table and the
//! plots from it.

use serde_json::{Value, json};

use super::{
    page::{Axis, Line, Plot, Style, Unit, escape},
    received_flows::RATES,
};
use crate::report::{Distribution, ReceivedFlowReport, ReceivedFlowsReport, SequenceReport};

/// Maximum number of flows with histograms in the page.
const PLOTTED: usize = 100;
/// Maximum number of rows in the page.
const ROWS: usize = 10_000;

pub(super) fn markup(all: &ReceivedFlowsReport, page: &mut String) {
    let what = if all.by == "source" { "Sources" } else { "Flows" };
    let mut about = format!("Click a heading to sort, a row to plot it. {RATES}");
    if let Some(rest) = &all.rest {
        about +=
            &format!(" {} frames are of flows beyond the limit of {}.", rest.packets, all.limit);
    }
    if all.flows.len() > ROWS {
        about += &format!(" {} more are in the JSON report.", all.flows.len() - ROWS);
    }
    *page += &format!(
        "<section><h2>{what} <span class=\"muted\">{}</span></h2>\n<div class=\"bar\"><span \
         class=\"muted\">{}</span></div>\n<div class=\"scroll\"><table \
         id=\"flows\"><thead></thead><tbody></tbody></table></div>\n<p><button id=\"flows-more\" \
         hidden></button></p>\n<div class=\"plots\" id=\"flow-plots\"></div>\n</section>\n",
        all.flows.len(),
        escape(&about)
    );
}

pub(super) fn data(all: &ReceivedFlowsReport) -> Value {
    let column =
        |(name, unit, bad): (&str, &str, bool)| json!({ "name": name, "unit": unit, "bad": bad });
    let columns = [
        (if all.by == "source" { "Source" } else { "Flow" }, "text", false),
        ("Port", "text", false),
        ("Packets", "count", false),
        ("Octets", "octets", false),
        ("Rate", "pps", false),
        ("L2", "bps", false),
        ("Peak", "pps", false),
        ("Gap", "ns", false),
        ("Gap SD", "ns", false),
        ("Gap p99", "ns", false),
        ("Bursts", "count", false),
        ("Kind", "text", false),
        ("Lost", "count", true),
        ("Duplicates", "count", true),
        ("Reordered", "count", true),
        ("Restarts", "count", false),
        ("Delay p50", "ns", false),
        ("Delay p99", "ns", false),
        ("Jitter", "ns", false),
    ];
    let shown = &all.flows[..all.flows.len().min(ROWS)];
    json!({
        "columns": columns.map(column),
        "rows": shown.iter().map(row).collect::<Vec<_>>(),
        "plots": shown.iter().take(PLOTTED).map(plots).collect::<Vec<_>>(),
    })
}

fn row(flow: &ReceivedFlowReport) -> Value {
    let gap = flow.arrival_gap_ns.as_ref();
    let sequence = flow.sequence.as_ref();
    let own = sequence.filter(|s| s.kind != "squall");
    let count = |f: fn(&SequenceReport) -> u64| own.map(f);
    let delay = own.and_then(|s| s.latency_ns.as_ref());
    json!([
        flow.name,
        flow.port,
        flow.packets,
        flow.octets,
        flow.pps,
        flow.bps_l2,
        flow.peak_pps,
        gap.map(|g| g.mean),
        gap.map(|g| g.stddev),
        gap.map(|g| g.p99),
        flow.bursts.count,
        sequence.map(|s| &s.kind),
        count(|s| s.lost),
        count(|s| s.duplicates),
        count(|s| s.reordered),
        count(|s| s.restarts),
        delay.map(|d| d.p50),
        delay.map(|d| d.p99),
        own.and_then(|s| s.jitter_ns),
    ])
}

fn plots(flow: &ReceivedFlowReport) -> Vec<Plot> {
    let sequence = flow.sequence.as_ref();
    let patterns = sequence.and_then(|s| s.patterns.as_ref());
    let all = [
        ("Gaps between frames", Unit::Ns, flow.arrival_gap_ns.as_ref()),
        ("One-way delay", Unit::Ns, sequence.and_then(|s| s.latency_ns.as_ref())),
        ("Delay variation", Unit::Ns, sequence.and_then(|s| s.ipdv_ns.as_ref())),
        (
            "Loss periods, frames",
            Unit::Count,
            patterns.and_then(|p| p.loss_period_packets.as_ref()),
        ),
        (
            "Reordering extent, frames",
            Unit::Count,
            patterns.and_then(|p| p.reordering_extent_packets.as_ref()),
        ),
    ];
    let plot = |(title, unit, d): (&str, Unit, Option<&Distribution>)| {
        let d = d.filter(|d| d.count > 0)?;
        let mut points = Vec::new();
        let mut end = None;
        for &(low, high, n) in &d.bins {
            // Between bins that are not adjacent, the density is 0.
            if let Some(gap) = end.filter(|end| *end < low) {
                points.push((gap as f64, 0.0));
            }
            points.push((low as f64, n as f64));
            end = Some(high);
        }
        points.push((end? as f64, 0.0));
        let line = Line::new("frames", points).style(Style::Filled);
        Some(
            Plot::lines(title, Axis::new("", unit), Axis::new("", Unit::Count), vec![line])
                .subtitle(&flow.name),
        )
    };
    all.into_iter().filter_map(plot).collect()
}
