//! The report of a run as an HTML page.
//!
//! Identification and verdict of the run are markup, generated here. `assets/report.js` builds the
//! stream table and the plots from data: a browser would be slow to lay out markup for 10,000 rows.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use serde_json::{Value, json};
use squall_units::median_high;

use super::{
    flow_page, host_page, human,
    page::{self, Page, escape, notes, table, tiles},
    routes, text,
};
use crate::report::{
    CaptureFile, CaptureReport, Distribution, PortReport, ReplayPort, ReplayReport, ReplayShare,
    Report, Sample, StreamReport, TemplateSample, VerdictStatus,
    attack::{AttackReport, RulePassage, UnsolvedRule},
    flows::FlowsReport,
};

const JS: &str = concat!(include_str!("assets/report.js"), include_str!("assets/flows.js"));

/// Renders the report as a self-contained page.
pub fn html(report: &Report) -> String {
    let title = format!("Squall report {} {}", report.host.name, report.started);
    let mut page = Page::new(title);
    let markup = page.markup();
    header(report, markup);
    figures(report, markup);
    notes(&report.notes, markup);
    ports(report, markup);
    if let Some(capture) = &report.capture {
        captured(capture, markup);
    }
    report.replays.iter().for_each(|replay| replayed(replay, markup));
    attacked(&report.attacks, markup);
    if let Some(load) = &report.flows {
        loaded(load, markup);
    }
    if let Some(flows) = report.received_flows.as_ref().filter(|flows| !flows.flows.is_empty()) {
        flow_page::markup(flows, markup);
    }
    host_page::hosts(report, markup);
    host_page::routers(report, markup);
    routes::markup(report, markup);
    *markup += include_str!("assets/body.html");
    page.footer(&[
        &format!("Squall {}", report.squall_version),
        &report.schema,
        "sizes include the FCS, L1 adds 20 octets a frame",
    ]);
    page.script(JS, data(report));
    page.finish()
}

// --- markup
// ------------------------------------------------------------------------------------------------------

fn header(report: &Report, page: &mut String) {
    let verdict = &report.verdict;
    let (class, word) = match verdict.status {
        VerdictStatus::Valid => ("valid", "Valid"),
        VerdictStatus::NotValid => ("invalid", "Not valid"),
        VerdictStatus::Interrupted => ("invalid", "Interrupted"),
    };
    *page += &format!(
        "<header>\n<div class=\"brand\">Squall <span>report</span></div>\n<div class=\"verdict \
         {class}\"><strong>{word}</strong>"
    );
    if report.cut_short {
        *page += &format!("<p>Interrupted {}.</p>", escape(&text::cut_short(report)));
    }
    if verdict.reasons.is_empty() {
        let schedule = if report.sends() { "The generator kept to its schedule and " } else { "" };
        let mut sentence = format!("{schedule}{}.", text::counters_agree(report));
        sentence[..1].make_ascii_uppercase();
        *page += &format!("<p>{}</p>", escape(&sentence));
    } else {
        *page += "<ul>";
        verdict
            .reasons
            .iter()
            .for_each(|r| *page += &format!("<li>{}</li>", escape(&r.to_string())));
        *page += "</ul>";
    }
    let ended = |criterion: &&String| {
        !report.cut_short || !text::cut_short(report).contains(criterion.as_str())
    };
    for criterion in verdict.failed.iter().filter(ended) {
        *page += &format!("<p>Failed: {}.</p>", escape(criterion));
    }
    *page += "</div>\n";
    let mut cpu = format!(
        "{} user, {} system",
        human::seconds(report.cpu.user_s),
        human::seconds(report.cpu.system_s)
    );
    if let Some(per_mpkt) = report.cpu.per_mpkt_s {
        cpu += &format!(", {per_mpkt:.2} s per million frames");
    }
    let mut facts = vec![
        ("Started", report.started.clone()),
        ("Duration", human::seconds(report.duration_s)),
        ("Seed", if report.sends() { report.seed.to_string() } else { String::new() }),
        ("Filter", report.filter.clone().unwrap_or_default()),
    ];
    facts.extend(report.host.facts());
    facts.push(("CPU time", cpu));
    facts.push(("Peak memory", human::si(report.memory.peak_rss_octets as f64, "B")));
    facts.extend(report.parts.iter().map(|part| ("Run", part.sentence())));
    page::facts(&report.command, &facts, page);
}

/// The figures that users look up first.
fn figures(report: &Report, page: &mut String) {
    let (ports, streams) = (&report.ports, &report.streams);
    let sum = |f: fn(&PortReport) -> f64| ports.iter().map(f).sum::<f64>();
    let frames = |n: f64| human::short_count(n as u64) + " frames";
    let rate =
        |pps: f64, l1: f64| format!("{} · {} L1", human::si(pps, "pps"), human::si(l1, "b/s"));
    let unsent: u64 = ports.iter().map(|p| p.tx.errors + p.tx.not_sent.values().sum::<u64>()).sum();
    let worst = |p99: fn(&StreamReport) -> Option<&Distribution>| {
        let all = streams
            .iter()
            .filter_map(|s| Some((p99(s).filter(|d| d.count > 0)?.p99, s.name.as_str())));
        match all.max_by_key(|(ns, _)| *ns) {
            Some((ns, name)) if streams.len() > 1 => {
                (human::ns(ns as f64), format!("worst stream: {name}"))
            }
            Some((ns, name)) => (human::ns(ns as f64), name.into()),
            None => ("n/a".into(), "not measured".into()),
        }
    };
    let measured: Vec<_> = streams.iter().filter_map(|s| Some((s, s.rx.as_ref()?))).collect();
    let lost: u64 = measured.iter().map(|(_, rx)| rx.lost).sum();
    let sent: u64 = measured.iter().map(|(s, rx)| s.tx_packets.max(rx.packets + rx.lost)).sum();
    let loss = if measured.is_empty() {
        ("n/a".into(), "no stream has latency = true".into())
    } else {
        (
            human::short_count(lost),
            human::ratio(lost as f64 / sent.max(1) as f64) + " of measured frames",
        )
    };
    let left = if unsent == 0 { "all due frames left" } else { "due, and did not leave" };
    let received = (
        "Received",
        false,
        (frames(sum(|p| p.rx.packets as f64)), rate(sum(|p| p.rx.pps), sum(|p| p.rx.bps_l1))),
    );
    let delay = ("One-way delay p99", false, worst(|s| s.rx.as_ref()?.latency_ns.as_ref()));
    if report.sends() {
        let sent = rate(sum(|p| p.tx.pps), sum(|p| p.tx.bps_l1));
        return tiles(
            &[
                ("Sent", false, (frames(sum(|p| p.tx.packets as f64)), sent)),
                received,
                ("Not sent", unsent > 0, (human::short_count(unsent), left.into())),
                ("Lost", lost > 0, loss),
                delay,
                ("Departure error p99", false, worst(|s| s.departure_error_ns.as_ref())),
            ],
            page,
        );
    }
    let mut tiles_of = vec![received];
    if let Some(capture) = &report.capture {
        let plr = format!("PLR {}", human::ratio(capture.loss_ratio));
        let files = match capture.files_written {
            0 => human::si(capture.written_octets as f64, "B"),
            n => format!(
                "{} in {}",
                human::si(capture.file_octets as f64, "B"),
                human::counted(n, "file")
            ),
        };
        tiles_of.push((
            "Written",
            false,
            (human::short_count(capture.written_packets) + " packets", files),
        ));
        tiles_of.push(("Lost", capture.lost > 0, (human::short_count(capture.lost), plr)));
    } else {
        let dropped: u64 = ports.iter().map(|p| p.rx.drops.values().sum::<u64>()).sum();
        let text = if dropped == 0 { "all frames were read" } else { "before they were read" };
        tiles_of.push(("Dropped", dropped > 0, (human::short_count(dropped), text.into())));
    }
    if let Some(flows) = &report.received_flows {
        // Squall's own streams are in the stream table already.
        let foreign =
            flows.flows.iter().filter_map(|f| f.sequence.as_ref()).filter(|s| s.kind != "squall");
        let (unique, missing) =
            foreign.fold((0, 0), |sum, s| (sum.0 + s.unique_packets, sum.1 + s.lost));
        let what = if flows.by == "source" { "Sources" } else { "Flows" };
        tiles_of.push((what, false, (human::count(flows.flows.len() as u64), "received".into())));
        if !measured.is_empty() || unique > 0 {
            let (lost, sent) = (lost + missing, sent + unique + missing);
            let share = human::ratio(lost as f64 / sent.max(1) as f64) + " of numbered packets";
            tiles_of.push(("Lost", lost > 0, (human::short_count(lost), share)));
        }
    }
    if streams.iter().any(|s| s.rx.as_ref().is_some_and(|rx| rx.latency_ns.is_some())) {
        tiles_of.push(delay);
    }
    tiles(&tiles_of, page);
}

/// Packets and files of a capture.
fn captured(capture: &CaptureReport, page: &mut String) {
    let why = |reasons: &BTreeMap<String, u64>| {
        vec![human::count(reasons.values().sum()), text::reasons(reasons)]
    };
    let row = |what: &str, cells: Vec<String>| [vec![what.to_owned()], cells].concat();
    let plain = |n: u64| vec![human::count(n), String::new()];
    let rows = [
        row("Received by filter", plain(capture.received)),
        row("Written", plain(capture.written_packets)),
        row("Dropped by kernel", why(&capture.dropped_by_kernel)),
        row("Dropped by squall", why(&capture.dropped)),
        row("Outside the requested part", why(&capture.unwanted)),
        row("Truncated", plain(capture.truncated)),
    ];
    table("Capture", &["What", "Packets", "Reasons"], &rows, page);
    let file = |file: &CaptureFile| {
        let time = |time: &Option<String>| time.clone().unwrap_or_else(|| "–".into());
        vec![
            file.name.clone(),
            human::count(file.packets),
            human::si(file.octets as f64, "B"),
            time(&file.first),
            time(&file.last),
        ]
    };
    if !capture.files.is_empty() {
        let rows: Vec<_> = capture.files.iter().map(file).collect();
        table("Files", &["File", "Packets", "Size", "First packet", "Last packet"], &rows, page);
    }
}

fn attacked(attacks: &[AttackReport], page: &mut String) {
    let counts = |of: &BTreeMap<String, u64>| {
        let each: Vec<_> =
            of.iter().map(|(name, n)| format!("{} {name}", human::count(*n))).collect();
        each.join(", ")
    };
    let row = |of: &AttackReport| {
        let figures =
            [of.chosen, of.solved, of.attacks, of.near_misses, of.frames].map(human::count);
        [
            vec![of.name.clone()],
            figures.to_vec(),
            [&of.unsolved, &of.problems, &of.left_out, &of.unsent].map(counts).to_vec(),
        ]
        .concat()
    };
    let columns = [
        "Attack",
        "Rules",
        "Solved",
        "Attacks",
        "Near misses",
        "Frames",
        "Not solved",
        "Invalid lines",
        "Left out",
        "Not sent as a whole",
    ];
    if !attacks.is_empty() {
        table("Attacks", &columns, &attacks.iter().map(row).collect::<Vec<_>>(), page);
    }
    for passage in attacks.iter().filter_map(|of| of.passage.as_ref()) {
        let row = |rule: &RulePassage| {
            let figures = [
                rule.attacks,
                rule.passed,
                rule.blocked,
                rule.near_misses,
                rule.near_misses_passed,
            ];
            let name = format!("{}:{} {}", rule.gid, rule.sid, rule.msg);
            [vec![name], figures.map(human::count).to_vec()].concat()
        };
        let columns = ["Rule", "Attacks", "Passed", "Blocked", "Near misses", "Passed"];
        table(
            "Attacks through the device",
            &columns,
            &passage.rules.iter().map(row).collect::<Vec<_>>(),
            page,
        );
    }
    let row = |rule: &UnsolvedRule| {
        vec![
            format!("{}:{} {}", rule.gid, rule.sid, rule.msg),
            rule.reason.clone(),
            rule.text.clone(),
        ]
    };
    let unsolved: Vec<_> =
        attacks.iter().flat_map(|of| &of.unsolved_rules).take(MOST_UNSOLVED).map(row).collect();
    if !unsolved.is_empty() {
        table("Unsolved rules", &["Rule", "Reason", "Details"], &unsolved, page);
    }
}

/// Maximum number of rows. The JSON has all unsolved rules.
const MOST_UNSOLVED: usize = 1000;

fn replayed(replay: &ReplayReport, page: &mut String) {
    let row = |port: &ReplayPort| {
        let counts = [port.attempted, port.successful, port.failed, port.truncated, port.retried];
        [vec![port.port.clone()], counts.map(human::count).to_vec()].concat()
    };
    let rows: Vec<_> = replay.ports.iter().map(row).collect();
    table(
        &format!("Replay: {}", replay.name),
        &["Port", "Attempted", "Successful", "Failed", "Truncated", "Retried"],
        &rows,
        page,
    );
    let Some(flows) = &replay.flows else { return };
    let counts =
        [flows.flows, flows.unique, flows.expired, flows.flow_packets, flows.non_flow_packets];
    let rate = human::si(flows.flows_per_second, "fps");
    let rows = [[counts.map(human::count).to_vec(), vec![rate]].concat()];
    table(
        "Flows sent",
        &["Flows", "Unique", "Expired", "Flow packets", "Non-flow packets", "Rate"],
        &rows,
        page,
    );
    for (title, what, shares) in [
        ("Protocols sent", "Protocol", &flows.protocols),
        ("Hosts that sent the most octets", "Host", &flows.talkers),
        ("Flows with the most octets", "Flow", &flows.top_flows),
    ] {
        let row = |share: &ReplayShare| {
            vec![
                share.name.clone(),
                human::count(share.packets),
                human::si(share.octets as f64, "B"),
            ]
        };
        let rows: Vec<_> = shares.iter().map(row).collect();
        table(title, &[what, "Packets", "Octets"], &rows, page);
    }
}

fn loaded(load: &FlowsReport, page: &mut String) {
    let nanos = |d: &Option<Distribution>, of: fn(&Distribution) -> u64| {
        d.as_ref().map_or_else(String::new, |d| human::ns(of(d) as f64))
    };
    let mut rows = Vec::new();
    let mut reasons = Vec::new();
    for (name, side, role) in load.rows() {
        let counts =
            [role.attempted, role.completed, role.failures(), role.missed(), role.peak_active];
        let optional = |cps: Option<f64>| cps.map_or_else(String::new, |cps| human::si(cps, ""));
        let steady = role.steady.as_ref();
        let rates = [
            human::si(role.cps, ""),
            optional(role.asked_cps),
            optional(steady.map(|s| s.attempted_cps)),
            optional(steady.map(|s| s.completed_cps)),
            human::si(role.goodput_bps, "b/s"),
        ];
        let times = [
            nanos(&role.setup_ns, |d| d.p50),
            nanos(&role.first_byte_ns, |d| d.p50),
            nanos(&role.first_byte_from_start_ns, |d| d.p50),
            nanos(&role.transaction_ns, |d| d.p50),
            nanos(&role.transaction_ns, |d| d.p99),
            nanos(&role.duration_from_due_ns, |d| d.p50),
            nanos(&role.duration_from_due_ns, |d| d.p99),
        ];
        let row = [
            vec![format!("{name} ({side})")],
            counts.map(human::count).to_vec(),
            rates.to_vec(),
            times.to_vec(),
        ];
        rows.push(row.concat());
        for (what, counts) in role.reasons() {
            let reason = |(reason, n): (&String, &u64)| {
                vec![format!("{name} ({side})"), what.to_owned(), reason.clone(), human::count(*n)]
            };
            // Programs with WebSocket or gRPC have many counters, most of which stay 0.
            reasons.extend(counts.iter().filter(|(_, n)| **n > 0).map(reason));
        }
        if let Some(of) = &role.requests {
            let counts = [("asked", of.asked), ("sent", of.sent), ("answered", of.answered)];
            reasons.extend(counts.map(|(what, n)| {
                let side = format!("{name} ({side})");
                vec![side, "requests".to_owned(), what.to_owned(), human::count(n)]
            }));
        }
        if let Some(tls) = &role.tls {
            let side = format!("{name} ({side})");
            let row =
                |what: String, value: String| vec![side.clone(), "TLS".to_owned(), what, value];
            reasons.push(row(
                "handshakes per second".into(),
                human::si(tls.handshakes_per_second, ""),
            ));
            reasons.push(row("handshake p50".into(), nanos(&tls.handshake_ns, |d| d.p50)));
            reasons.push(row("handshake p99".into(), nanos(&tls.handshake_ns, |d| d.p99)));
            reasons.extend(role.tls().into_iter().map(|(what, n)| row(what, human::count(n))));
        }
        reasons.extend(role.http2().into_iter().map(|(what, n)| {
            let side = format!("{name} ({side})");
            vec![side, "HTTP/2".to_owned(), what, human::count(n)]
        }));
        reasons.extend(role.http3().into_iter().map(|(what, n)| {
            let side = format!("{name} ({side})");
            vec![side, "HTTP/3".to_owned(), what, human::count(n)]
        }));
    }
    let columns = [
        "Template",
        "Begun",
        "Completed",
        "Failed",
        "Not begun",
        "Peak",
        "CPS",
        "Requested CPS",
        "Steady: begun",
        "completed per second",
        "Goodput",
        "Set-up p50",
        "First octet p50",
        "from start p50",
        "Answer p50",
        "p99",
        "Flow p50",
        "p99",
    ];
    table("Flows by template", &columns, &rows, page);
    if let Some(played) = &load.conversations {
        let rows: Vec<_> =
            super::flows::conversations(played).into_iter().map(|line| vec![line]).collect();
        table("Conversations of the capture", &[""], &rows, page);
    }
    if !reasons.is_empty() {
        table("Flows by outcome", &["Template", "", "Reason", "Flows"], &reasons, page);
    }
}

fn ports(report: &Report, page: &mut String) {
    let (ports, sends) = (&report.ports, report.sends());
    if ports.is_empty() {
        return;
    }
    *page += "<section><h2>Ports <span class=\"muted\">rates over the whole run</span></h2><div \
              class=\"scroll\"><table class=\"ports\"><thead><tr><th class=\"name\">Port<th \
              class=\"name\">Direction<th>Packets<th>Octets<th>Rate<th>L2<th>L1<th>Errors<th>Not \
              sent, dropped<th>Interface counted<th>Interface errors / drops</thead>\n<tbody>";
    for port in ports {
        let (tx, rx, interface) = (&port.tx, &port.rx, port.interface.as_ref());
        let surplus = port.interface_surplus();
        // With a filter, the interface also counts frames that do not match.
        let counted =
            |packets: Option<u64>, surplus: Option<i64>, filtered: bool| match (packets, surplus) {
                (Some(packets), Some(0)) => {
                    format!("<td>{} <em class=\"good\">agrees</em>", human::count(packets))
                }
                (Some(packets), Some(n)) => {
                    let class = if filtered && n > 0 { "none" } else { "bad" };
                    format!("<td>{} <em class=\"{class}\">{n:+}</em>", human::count(packets))
                }
                _ => "<td class=\"none\">–".into(),
            };
        let troubles = |figures: Option<(u64, u64)>| match figures {
            Some((errors, drops)) => fault(errors) + " / " + &fault(drops),
            None => "–".into(),
        };
        let _ = write!(
            page,
            "<tr{}><th class=\"name\" rowspan=\"{}\" scope=\"rowgroup\">{}<small>{}</small>",
            if sends { "" } else { " class=\"last\"" },
            if sends { 2 } else { 1 },
            escape(&port.name),
            escape(&port.address)
        );
        if sends {
            let _ = write!(
                page,
                "<td class=\"name\">tx<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}{}{}<td>{}\n<tr \
                 class=\"last\">",
                human::count(tx.packets),
                human::si(tx.octets as f64, "B"),
                human::si(tx.pps, "pps"),
                human::si(tx.bps_l2, "b/s"),
                human::si(tx.bps_l1, "b/s"),
                fault(tx.errors),
                with_reasons(&tx.not_sent),
                if tx.blocked_s > 0.0 {
                    format!("<small>blocked {}</small>", human::seconds(tx.blocked_s))
                } else {
                    String::new()
                },
                counted(interface.map(|i| i.tx_packets), surplus.map(|s| s.0), false),
                troubles(interface.map(|i| (i.tx_errors, i.tx_dropped))),
            );
        }
        let _ = writeln!(
            page,
            "<td class=\"name\">rx<small>timestamps: {}</small><td>{}<td>{}<td>{}<td>{}<td>{}<td \
             class=\"none\">–<td>{}{}<td>{}",
            escape(&port.timestamps),
            human::count(rx.packets),
            human::si(rx.octets as f64, "B"),
            human::si(rx.pps, "pps"),
            human::si(rx.bps_l2, "b/s"),
            human::si(rx.bps_l1, "b/s"),
            with_reasons(&rx.drops),
            counted(interface.map(|i| i.rx_packets), surplus.map(|s| s.1), report.filter.is_some()),
            troubles(interface.map(|i| (i.rx_errors, i.rx_dropped))),
        );
    }
    *page += "</tbody></table></div>";
    for port in ports {
        for (direction, fingerprint) in [("tx", &port.tx.fingerprint), ("rx", &port.rx.fingerprint)]
        {
            if let Some(fingerprint) = fingerprint {
                *page += &format!(
                    "<p class=\"aside\">{} {direction} fingerprint <code>{}</code></p>",
                    escape(&port.name),
                    escape(fingerprint)
                );
            }
        }
        if !port.link_events.is_empty() {
            let changes = text::link_changes(&port.link_events);
            *page += &format!("<p class=\"aside\">{}: link {changes}</p>", escape(&port.name));
        }
        if !port.mtu_changes.is_empty() {
            let changes = text::mtu_changes(&port.mtu_changes);
            *page += &format!("<p class=\"aside\">{}: {changes}</p>", escape(&port.name));
        }
        if port.rx.foreign_packets > 0 {
            let foreign = text::foreign(port);
            *page += &format!("<p class=\"aside\">{}: {foreign}</p>", escape(&port.name));
        }
        if port.rx.unsigned_packets > 0 {
            *page += &format!(
                "<p class=\"aside\">{} received {} frames without Squall's signature</p>",
                escape(&port.name),
                human::count(port.rx.unsigned_packets)
            );
        }
    }
    *page += "</section>\n";
}

fn fault(n: u64) -> String {
    let class = if n == 0 { "none" } else { "bad" };
    format!("<span class=\"{class}\">{}</span>", human::count(n))
}

fn with_reasons(reasons: &BTreeMap<String, u64>) -> String {
    let total = fault(reasons.values().sum());
    match text::reasons(reasons) {
        text if text.is_empty() => total,
        text => format!("{total}<small>{}</small>", escape(&text)),
    }
}

// --- data
// --------------------------------------------------------------------------------------------------------

/// Maximum number of points in a plot; it has too few pixels for more.
const MAX_POINTS: usize = 1000;
/// Maximum number of bins: enough to show the shape, as the script spreads them evenly over the
/// logarithm anyway.
const MAX_BINS: usize = 160;
/// Maximum number of values in the details of streams, which limits them to about 4 MB of the page.
const MAX_NUMBERS: usize = 800_000;

/// Data for `assets/report.js`. Rows are arrays in the order of the script's `COLUMNS`.
fn data(report: &Report) -> Value {
    let groups = groups(&report.series);
    let kept = details_to_keep(report, groups.len());
    let series = stream_series(report, &groups, &kept);
    let mut place = vec![Value::Null; report.streams.len()];
    let details: Vec<Value> = kept
        .iter()
        .zip(series)
        .enumerate()
        .map(|(k, (&i, series))| {
            place[i] = k.into();
            let mut detail =
                json!({ "hist": histograms(std::slice::from_ref(&report.streams[i])) });
            detail["series"] = series.to_json();
            detail
        })
        .collect();
    let streams: Vec<Value> =
        report.streams.iter().zip(place).map(|(s, place)| stream_row(s, place)).collect();
    json!({
        "t": groups.iter().map(|g| number(g.last().map_or(0.0, |s| s.t_s))).collect::<Vec<_>>(),
        "sends": report.sends(),
        "capture": captured_over_time(&groups),
        "flows": flows_over_time(&groups),
        "merged": groups.first().map_or(1, |g| g.len()),
        "ports": report.ports.iter().map(|p| port_data(p, &groups)).collect::<Vec<_>>(),
        "streams": streams,
        "details": details,
        "received_flows": report.received_flows.as_ref().filter(|flows| !flows.flows.is_empty()).map(flow_page::data),
        "all": { "hist": histograms(&report.streams), "series": all_streams(&groups).to_json() },
    })
}

/// Divides the samples into at most [`MAX_POINTS`] groups of equal length.
fn groups(series: &[Sample]) -> Vec<&[Sample]> {
    series.chunks(series.len().div_ceil(MAX_POINTS).max(1)).collect()
}

/// Indices of the streams that have plots. If not all fit, those with the most loss come first,
/// then those with the most unsent frames, then the slowest.
fn details_to_keep(report: &Report, points: usize) -> Vec<usize> {
    let bins = |d: &Option<Distribution>| d.as_ref().map_or(0, |d| 2 * d.bins.len().min(MAX_BINS));
    let numbers = |s: &StreamReport| {
        let rx = s
            .rx
            .as_ref()
            .map_or(0, |rx| bins(&rx.latency_ns) + bins(&rx.ipdv_ns) + bins(&rx.arrival_gap_ns));
        6 * points + bins(&s.departure_error_ns) + rx
    };
    let weight = |s: &StreamReport| {
        let rx = s.rx.as_ref();
        let p99 = rx.and_then(|rx| rx.latency_ns.as_ref()).map_or(0, |d| d.p99);
        (rx.map_or(0, |rx| rx.lost), s.not_sent.values().sum::<u64>(), p99)
    };
    let mut order: Vec<usize> = (0..report.streams.len()).collect();
    if report.streams.iter().map(numbers).sum::<usize>() > MAX_NUMBERS {
        order.sort_by_key(|i| std::cmp::Reverse(weight(&report.streams[*i])));
    }
    let mut budget = MAX_NUMBERS;
    let fits = |i: &usize| {
        let need = numbers(&report.streams[*i]);
        budget = budget.saturating_sub(need);
        budget > 0
    };
    let mut kept: Vec<usize> = order.into_iter().take_while(fits).collect();
    kept.sort_unstable();
    kept
}

/// Packets that a capture wrote and lost over time; null if there is no capture.
fn captured_over_time(groups: &[&[Sample]]) -> Value {
    let of = |s: &Sample| s.capture.clone();
    if !groups.iter().flat_map(|g| g.iter()).any(|s| s.capture.is_some()) {
        return Value::Null;
    }
    let lost = |g: &&[Sample]| g.last().and_then(of).map(|c| c.dropped_by_kernel + c.dropped);
    json!({
        "written_pps": groups.iter().map(|g| mean(g.iter().filter_map(of).map(|c| c.written_pps))).collect::<Vec<_>>(),
        "lost": groups.iter().map(lost).collect::<Vec<_>>(),
    })
}

/// Flows over time, of all templates together, by side: begun, completed, open, goodput; null if
/// there are no flows.
fn flows_over_time(groups: &[&[Sample]]) -> Value {
    // With several templates, the last row is their sum.
    let last =
        |sample: &Sample, side: &str| sample.flows.iter().rfind(|row| row.side == side).cloned();
    let of = |side: &'static str| {
        let rows = |g: &&[Sample]| g.iter().filter_map(|s| last(s, side)).collect::<Vec<_>>();
        let all: Vec<_> = groups.iter().map(rows).collect();
        let means = |f: fn(&TemplateSample) -> f64| {
            all.iter().map(|g| mean(g.iter().map(f))).collect::<Vec<_>>()
        };
        let most = |f: fn(&TemplateSample) -> Option<u64>| {
            all.iter().map(|g| g.iter().filter_map(f).max()).collect::<Vec<_>>()
        };
        let ends =
            |f: fn(&TemplateSample) -> u64| all.iter().map(|g| g.last().map(f)).collect::<Vec<_>>();
        all.iter().any(|g| !g.is_empty()).then(|| {
            json!({
                "side": side,
                "attempted": means(|row| row.attempted_cps),
                "completed": means(|row| row.completed_cps),
                "goodput": means(|row| row.goodput_bps),
                "active": ends(|row| row.active),
                "failed": ends(|row| row.failed),
                "not_begun": ends(|row| row.not_begun),
                "setup_p99": most(|row| row.setup_p99_ns),
                "transaction_p99": most(|row| row.transaction_p99_ns),
            })
        })
    };
    let sides: Vec<_> = ["client", "server"].into_iter().filter_map(of).collect();
    if sides.is_empty() { Value::Null } else { Value::from(sides) }
}

fn port_data(port: &PortReport, groups: &[&[Sample]]) -> Value {
    let column = |f: fn(&crate::report::PortSample) -> f64| -> Vec<Value> {
        let of_port = |s: &Sample| s.ports.iter().find(|p| p.name == port.name).map(f);
        groups.iter().map(|g| mean(g.iter().filter_map(of_port))).collect()
    };
    json!({
        "name": port.name,
        "tx_pps": column(|p| p.tx_pps),
        "rx_pps": column(|p| p.rx_pps),
        "tx_bps": column(|p| p.tx_bps_l1),
        "rx_bps": column(|p| p.rx_bps_l1),
        "gap": port.rx.arrival_gap_ns.as_ref().map(|d| histogram(&[d])),
    })
}

fn stream_row(s: &StreamReport, place: Value) -> Value {
    let rx = s.rx.as_ref();
    let signed = rx.filter(|rx| rx.is_signed());
    let latency = rx.and_then(|rx| rx.latency_ns.as_ref()).filter(|d| d.count > 0);
    let ipdv = rx.and_then(|rx| rx.ipdv_ns.as_ref()).filter(|d| d.count > 0);
    let late = s.departure_error_ns.as_ref().filter(|d| d.count > 0);
    json!([
        s.name,
        s.port,
        s.group,
        s.tx_packets,
        s.asked_pps.map(number),
        number(s.tx_pps),
        s.rate_error(),
        s.not_sent.values().sum::<u64>(),
        text::reasons(&s.not_sent),
        rx.map(|rx| rx.packets),
        rx.map(|rx| rx.lost),
        rx.map(|rx| rx.loss_ratio),
        signed.map(|rx| rx.duplicates),
        signed.map(|rx| rx.reordered),
        latency.map(|d| d.min),
        latency.map(|d| number(d.mean)),
        latency.map(|d| d.p50),
        latency.map(|d| d.p99),
        latency.map(|d| d.p999),
        latency.map(|d| d.max),
        ipdv.map(|d| d.p50),
        ipdv.map(|d| d.p99),
        late.map(|d| d.p50),
        late.map(|d| d.p99),
        late.map(|d| d.max),
        place,
    ])
}

/// Values over time for one stream, or for all.
struct Series {
    tx_pps: Vec<Value>,
    rx_pps: Vec<Value>,
    lost: Vec<Value>,
    p50: Vec<Value>,
    p99: Vec<Value>,
    late: Vec<Value>,
}

impl Series {
    fn empty(points: usize) -> Self {
        let nulls = || vec![Value::Null; points];
        Self {
            tx_pps: nulls(),
            rx_pps: nulls(),
            lost: nulls(),
            p50: nulls(),
            p99: nulls(),
            late: nulls(),
        }
    }

    fn to_json(&self) -> Value {
        let Self { tx_pps, rx_pps, lost, p50, p99, late } = self;
        json!({ "tx_pps": tx_pps, "rx_pps": rx_pps, "lost": lost, "p50": p50, "p99": p99, "late": late })
    }
}

/// Series of the streams in `kept`, in their order. Each group of samples becomes the mean of the
/// rates, the median of p50, and the maximum of p99.
fn stream_series(report: &Report, groups: &[&[Sample]], kept: &[usize]) -> Vec<Series> {
    let slots: HashMap<&str, usize> =
        kept.iter().enumerate().map(|(k, i)| (report.streams[*i].name.as_str(), k)).collect();
    let mut series: Vec<Series> = kept.iter().map(|_| Series::empty(groups.len())).collect();
    for (g, group) in groups.iter().enumerate() {
        let mut members: Vec<Vec<&crate::report::StreamSample>> = vec![Vec::new(); kept.len()];
        for s in group.iter().flat_map(|sample| &sample.streams) {
            if let Some(k) = slots.get(s.name.as_str()) {
                members[*k].push(s);
            }
        }
        for (out, members) in series.iter_mut().zip(&members) {
            let Some(last) = members.last() else { continue };
            out.tx_pps[g] = mean(members.iter().map(|s| s.tx_pps));
            out.rx_pps[g] = mean(members.iter().map(|s| s.rx_pps));
            out.lost[g] = last.lost.into();
            out.p50[g] = median_high(members.iter().filter_map(|s| s.latency_p50_ns)).into();
            out.p99[g] = members.iter().filter_map(|s| s.latency_p99_ns).max().into();
            out.late[g] = members.iter().filter_map(|s| s.late_p99_ns).max().into();
        }
    }
    series
}

/// Sums over all streams. Delays are the p50 of the median stream and the highest p99.
fn all_streams(groups: &[&[Sample]]) -> Series {
    let mut all = Series::empty(groups.len());
    for (g, group) in groups.iter().enumerate() {
        let streams = || group.iter().flat_map(|sample| &sample.streams);
        let Some(last) = group.last().filter(|s| !s.streams.is_empty()) else { continue };
        all.tx_pps[g] = mean(group.iter().map(|s| s.streams.iter().map(|s| s.tx_pps).sum()));
        all.rx_pps[g] = mean(group.iter().map(|s| s.streams.iter().map(|s| s.rx_pps).sum()));
        all.lost[g] = last.streams.iter().map(|s| s.lost).sum::<u64>().into();
        all.p50[g] = median_high(streams().filter_map(|s| s.latency_p50_ns)).into();
        all.p99[g] = streams().filter_map(|s| s.latency_p99_ns).max().into();
        all.late[g] = streams().filter_map(|s| s.late_p99_ns).max().into();
    }
    all
}

fn histograms(streams: &[StreamReport]) -> Value {
    let rx = |f: fn(&crate::report::StreamRx) -> &Option<Distribution>| {
        let found: Vec<_> = streams.iter().filter_map(|s| f(s.rx.as_ref()?).as_ref()).collect();
        histogram(&found)
    };
    let late: Vec<_> = streams.iter().filter_map(|s| s.departure_error_ns.as_ref()).collect();
    json!({
        "latency": rx(|rx| &rx.latency_ns),
        "ipdv": rx(|rx| &rx.ipdv_ns),
        "gap": rx(|rx| &rx.arrival_gap_ns),
        "late": histogram(&late),
    })
}

/// The sum of the distributions: `{stats: [p50, p99, p999, max], count, bins: [edge, width, count,
/// edge, ...]}`.
fn histogram(distributions: &[&Distribution]) -> Value {
    let mut sum: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for (low, high, count) in distributions.iter().flat_map(|d| &d.bins) {
        *sum.entry((*low, (*high).max(low.saturating_add(1)))).or_default() += count;
    }
    if sum.is_empty() {
        return Value::Null;
    }
    let total: u64 = sum.values().sum();
    // Different distributions share only their bins, so a quantile is the upper edge of a bin.
    let quantile = |q: f64, exact: fn(&Distribution) -> u64| match distributions {
        [one] => exact(one),
        _ => {
            let rank = (q * total as f64).ceil() as u64;
            let mut below = 0;
            let holds = |(_, n): &(&(u64, u64), &u64)| {
                below += **n;
                below >= rank
            };
            sum.iter().find(holds).map_or(0, |((_, high), _)| high - 1)
        }
    };
    let stats = json!([
        quantile(0.5, |d| d.p50),
        quantile(0.99, |d| d.p99),
        quantile(0.999, |d| d.p999),
        distributions.iter().map(|d| d.max).max(),
    ]);
    let mut bins: Vec<(u64, u64, u64)> =
        sum.iter().map(|((low, high), n)| (*low, *high, *n)).collect();
    while bins.len() > MAX_BINS {
        bins = bins
            .chunks(2)
            .map(|c| (c[0].0, c[c.len() - 1].1, c.iter().map(|b| b.2).sum()))
            .collect();
    }
    let flat: Vec<u64> = bins.iter().flat_map(|b| [b.0, b.1 - b.0, b.2]).collect();
    json!({ "stats": stats, "count": total, "bins": flat })
}

fn mean(values: impl Iterator<Item = f64>) -> Value {
    let (mut sum, mut n) = (0.0, 0.0);
    for value in values {
        sum += value;
        n += 1.0;
    }
    if n > 0.0 { number(sum / n) } else { Value::Null }
}

/// Rounds to an integer above 1000, otherwise to three decimals: a plot cannot show more digits.
fn number(value: f64) -> Value {
    let rounded =
        if value.abs() >= 1000.0 { value.round() } else { (value * 1000.0).round() / 1000.0 };
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        (rounded as i64).into()
    } else {
        rounded.into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::report;
    use super::*;

    #[test]
    fn flows_are_plotted_over_time() {
        let report = super::super::sample::loaded(2);
        let data = data(&report);
        let client = &data["flows"][0];
        assert_eq!(
            (&client["side"], data["flows"].as_array().map(Vec::len)),
            (&"client".into(), Some(2))
        );
        for key in
            ["attempted", "completed", "active", "goodput", "failed", "not_begun", "setup_p99"]
        {
            let values = client[key].as_array().unwrap_or_else(|| panic!("{key}"));
            assert!(
                values.len() == data["t"].as_array().unwrap().len()
                    && values.iter().all(|v| v.is_number()),
                "{key}"
            );
        }
        let page = html(&report);
        assert!(
            page.contains("flows-plots")
                && page.contains("Steady: begun")
                && !page.contains("<i>app")
        );
        assert!(super::data(&super::super::sample::report(1))["flows"].is_null());
    }

    fn data_of(page: &str) -> Value {
        let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
        let end = start + page[start..].find("</script>").unwrap();
        serde_json::from_str(&page[start..end]).unwrap()
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let mut report = report(3);
        let evil = "</script><script>alert(1)</script><!--\"'&";
        report.streams[0].name = evil.into();
        report.ports[0].name = evil.into();
        report.notes = vec![evil.into()];
        report.command = evil.into();
        report.verdict.reasons[0].text = evil.into();
        report.host.name = evil.into();
        let page = html(&report);
        assert!(!page.contains("<script>alert") && !page.contains("<!--"));
        assert_eq!(page.matches("<script").count(), 3);
        assert_eq!(page.matches("</script>").count(), 3);
        // The script receives the name unchanged.
        assert_eq!(data_of(&page)["streams"][0][0], evil);
    }

    #[test]
    fn the_page_asks_the_network_for_nothing() {
        let page = html(&report(2));
        assert!(page.contains("default-src 'none'"));
        for needle in
            [" src=", "<link", "@import", "url(http", "fetch(", "XMLHttpRequest", "import("]
        {
            assert!(!page.contains(needle), "{needle}");
        }
    }

    #[test]
    fn rows_have_the_columns_of_the_script() {
        let columns = JS.lines().filter(|l| l.trim_start().starts_with("{ key: ")).count();
        let page = html(&report(2));
        let data = data_of(&page);
        // A row has three more entries: `group`, the reasons, and the index of the details.
        assert_eq!(data["streams"][0].as_array().unwrap().len(), columns + 3);
        assert_eq!(
            data["t"].as_array().unwrap().len(),
            data["ports"][0]["tx_pps"].as_array().unwrap().len()
        );
    }

    #[test]
    fn a_run_that_only_received_has_no_senders_parts() {
        let page = html(&super::super::sample::received(3));
        let markup = &page[..page.find("id=\"data\">").unwrap()];
        for of_a_sender in
            ["<h3>Sent", "<h3>Not sent", "<h3>Departure", "its schedule", ">tx<", "<dt>Seed"]
        {
            assert!(!markup.contains(of_a_sender), "{of_a_sender}");
        }
        assert!(markup.contains("The counters agree.") && markup.contains("<h3>Received"));
        assert_eq!(data_of(&page)["sends"], false);
        assert_eq!(data_of(&html(&report(2)))["sends"], true);
    }

    #[test]
    fn a_capture_shows_what_was_written_and_lost_and_why() {
        let mut report = super::super::sample::received(0);
        let dropped = [("ring_full".to_owned(), 7)].into();
        let file = CaptureFile {
            name: "a<b>.pcapng".into(),
            packets: 93,
            octets: 1000,
            ..CaptureFile::default()
        };
        report.capture = Some(CaptureReport {
            received: 100,
            written_packets: 93,
            dropped_by_kernel: dropped,
            lost: 7,
            loss_ratio: 0.07,
            files: vec![file],
            files_written: 1,
            ..CaptureReport::default()
        });
        for (i, sample) in report.series.iter_mut().enumerate() {
            let dropped = i as u64;
            sample.capture = Some(crate::report::CaptureSample {
                written_pps: 1000.0,
                dropped,
                ..Default::default()
            });
        }
        let page = html(&report);
        for shown in ["<h3>Written", "PLR 7", "ring_full 7", "a&lt;b&gt;.pcapng"] {
            assert!(page.contains(shown), "{shown}");
        }
        let data = data_of(&page);
        assert_eq!(data["capture"]["written_pps"][0], 1000);
        assert_eq!(
            data["capture"]["lost"].as_array().unwrap().last().unwrap(),
            report.series.len() - 1
        );
    }

    #[test]
    fn ten_thousand_streams_keep_their_rows_and_the_worst_their_plots() {
        let mut report = report(200);
        for k in 0..50 {
            let streams = report.streams[..200].iter().cloned();
            let renamed: Vec<_> =
                streams.map(|s| StreamReport { name: format!("{} {k}", s.name), ..s }).collect();
            report.streams.extend(renamed);
        }
        let worst = 7000;
        report.streams[worst].rx.as_mut().unwrap().lost = 1 << 40;
        let page = html(&report);
        let data = data_of(&page);
        assert_eq!(data["streams"].as_array().unwrap().len(), 10_200);
        let details = data["details"].as_array().unwrap().len();
        assert!((100..9000).contains(&details), "{details}");
        assert!(data["streams"][worst].as_array().unwrap().last().unwrap().is_number());
        assert!(page.len() < 12 << 20, "{}", page.len());
    }

    #[test]
    fn a_long_series_is_thinned_and_keeps_its_worst_moment() {
        let mut report = report(1);
        let sample = report.series[0].clone();
        report.series =
            (0..100_000).map(|k| Sample { t_s: f64::from(k), ..sample.clone() }).collect();
        report.series[77_777].streams[0].latency_p99_ns = Some(123_456_789);
        let data = data(&report);
        assert_eq!(data["t"].as_array().unwrap().len(), 1000);
        assert!(
            data["details"][0]["series"]["p99"].as_array().unwrap().contains(&123_456_789.into())
        );
    }

    #[test]
    fn an_empty_report_is_a_page_too() {
        let page = html(&Report::default());
        assert!(page.contains("<strong>Valid</strong>"));
        assert_eq!(data_of(&page)["streams"], json!([]));
        assert_eq!(data_of(&page)["all"]["hist"]["latency"], Value::Null);
    }

    #[test]
    fn merged_histograms_keep_every_count() {
        let streams = report(5).streams;
        let found: Vec<_> = streams.iter().filter_map(|s| s.departure_error_ns.as_ref()).collect();
        let merged = histogram(&found);
        let bins = merged["bins"].as_array().unwrap();
        let counts: u64 = bins.chunks(3).map(|b| b[2].as_u64().unwrap()).sum();
        assert_eq!(counts, found.iter().map(|d| d.count).sum::<u64>());
        assert!(bins.len() <= 3 * MAX_BINS);
        let p50 = merged["stats"][0].as_u64().unwrap();
        let (low, high) = (
            found.iter().map(|d| d.p50).min().unwrap(),
            found.iter().map(|d| d.p50).max().unwrap(),
        );
        assert!((low..=high + high / 16).contains(&p50), "{low} {p50} {high}");
    }
}
