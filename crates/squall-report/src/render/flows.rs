//! The flows of a run as text.

use std::collections::BTreeMap;

use super::{
    human,
    table::{Cell, Style, Table, wrap},
};
use crate::report::{
    Distribution, Report, TemplateSample,
    flows::{
        ALL, ConversationNote, ConversationsReport, FlowsReport, LinkReport, RequestsReport,
        RoleReport, TlsReport,
    },
};

/// Summary lines of a run with flows; empty for other runs.
pub fn flows(report: &Report, width: usize, color: bool) -> Vec<String> {
    let Some(load) = &report.flows else { return Vec::new() };
    let mut table = Table::new(&COLUMNS);
    let mut reasons = Vec::new();
    for (name, side, role) in load.rows() {
        table.row(row(name, side, role));
        if name == ALL {
            continue;
        }
        if let Some(of) = role.requests.as_ref()
            && (role.lacks_requests() || of.asked > role.attempted)
        {
            reasons.push(format!("{name} ({side}): {}", requests(of)));
        }
        // Programs with WebSocket or gRPC have many counters, most of which stay 0.
        for (what, counts) in role.reasons() {
            let mut counts = counts.clone();
            counts.retain(|_, n| *n > 0);
            if !counts.is_empty() {
                reasons.push(format!("{name} ({side}): {what}: {}", listed(&counts)));
            }
        }
        if let Some(tls) = &role.tls {
            reasons.push(format!("{name} ({side}): {}", sessions(role, tls)));
        }
        if role.http2.is_some() {
            let counts = role.http2().into_iter();
            let texts = counts.map(|(what, n)| format!("{} {what}", human::count(n)));
            let texts: Vec<_> = texts.collect();
            reasons.push(format!("{name} ({side}): HTTP/2: {}", texts.join(", ")));
        }
        if role.http3.is_some() {
            let counts = role.http3().into_iter();
            let texts = counts.map(|(what, n)| format!("{} {what}", human::count(n)));
            let texts: Vec<_> = texts.collect();
            reasons.push(format!("{name} ({side}): HTTP/3: {}", texts.join(", ")));
        }
        let troubles = troubles(&role.tcp);
        if !troubles.is_empty() {
            reasons.push(format!("{name} ({side}): {troubles}"));
        }
    }
    for template in &load.templates {
        let difference = template.roles.difference();
        reasons.extend(difference.map(|text| format!("{}: {text}", template.name)));
    }
    reasons.extend(steady(load));
    reasons.extend(load.links.iter().filter_map(dropped));
    for pool in &load.exhausted {
        reasons.push(format!(
            "pool {:?}: {} addresses had all ports in use, so {} flows were not begun",
            pool.pool,
            human::count(pool.addresses),
            human::count(pool.flows)
        ));
    }
    reasons.extend(load.conversations.iter().flat_map(conversations));
    let mut lines = table.lines(width, color);
    lines.extend(reasons.iter().flat_map(|reason| wrap(reason, width, 4)));
    lines
}

/// `requests: 24 asked, 18 sent, 18 answered`
fn requests(of: &RequestsReport) -> String {
    let [asked, sent, answered] = [of.asked, of.sent, of.answered].map(human::count);
    format!("requests: {asked} asked, {sent} sent, {answered} answered")
}

/// `port A: dropped: 3 bad_tcp_checksum`
fn dropped(link: &LinkReport) -> Option<String> {
    let counts: BTreeMap<String, u64> = DROPPED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), *link.counters.get(*name)?)))
        .filter(|(_, n)| *n > 0)
        .collect();
    (!counts.is_empty()).then(|| format!("port {}: dropped: {}", link.port, listed(&counts)))
}

/// Link counters that are 0 on a good link.
const DROPPED: [&str; 7] = [
    "accept_full",
    "bad_icmp_checksum",
    "bad_ip_checksum",
    "bad_tcp_checksum",
    "bad_udp_checksum",
    "relay_dropped",
    "too_long",
];

/// Replayed conversations of a capture, one line each.
pub fn conversations(played: &ConversationsReport) -> Vec<String> {
    let times = match played.loops {
        Some(1) => String::new(),
        Some(loops) => format!(", {} times", human::count(loops)),
        None => ", until the run ended".into(),
    };
    let payload = match played.octets_as_captured {
        Some(true) => "; as many octets as captured",
        Some(false) => "; NOT as many octets as captured",
        None => "",
    };
    let (found, playable) = (human::count(played.found), human::count(played.playable));
    let mut lines = vec![format!(
        "{}: {playable} of {found} conversations played{times}{payload}",
        played.capture
    )];
    if played.one_sided > 0 {
        let n = human::count(played.one_sided);
        lines.push(format!(
            "one-sided: the capture has only one direction of {n} conversations, and only that one \
             is played"
        ));
    }
    for (what, counts) in
        [("not played", &played.not_played), ("packets left out", &played.packets_left_out)]
    {
        if !counts.is_empty() {
            lines.push(format!("{what}: {}", listed(counts).replace('_', " ")));
        }
    }
    for (what, notes) in
        [("not played", &played.not_played_first), ("failed", &played.failed_first)]
    {
        let line = |note: &ConversationNote| {
            format!("{what}: {} ({}): {}", note.number, note.flow, note.reason)
        };
        lines.extend(notes.iter().take(FEW).map(line));
    }
    lines
}

/// Maximum number of conversations named on a screen. The JSON lists all.
const FEW: usize = 5;

/// `steady 9.00 s: 10.0 k begun, 9.99 k completed per second; busiest second: 10,012 begun, 10,003 completed`
fn steady(load: &FlowsReport) -> Option<String> {
    let client = load.total.client.as_ref()?;
    let steady = client.steady.as_ref()?;
    let rates = [steady.attempted_cps, steady.completed_cps].map(|cps| human::si(cps, ""));
    let asked = client
        .asked_cps
        .map_or(String::new(), |cps| format!(" ({} requested)", human::si(cps, "")));
    let goodput = human::si(steady.goodput_bps, "b/s");
    let busiest = client.busiest_second.as_ref().map_or(String::new(), |second| {
        let counts = [second.attempted, second.completed].map(human::count);
        format!("; busiest second: {} begun, {} completed", counts[0], counts[1])
    });
    Some(format!(
        "steady for {}: {}{asked} begun and {} completed per second, {goodput}{busiest}",
        human::seconds(steady.duration_s),
        rates[0],
        rates[1]
    ))
}

/// Flows during a run, in at most `rows` lines. If there are clients, only their rows, as the
/// servers have the same flows.
pub fn watched(samples: &[TemplateSample], rows: usize) -> Table {
    let side =
        if samples.iter().any(|sample| sample.side == "client") { "client" } else { "server" };
    let samples: Vec<_> = samples.iter().filter(|sample| sample.side == side).collect();
    let columns = [
        (if side == "client" { "CLIENTS" } else { "SERVERS" }, 0),
        ("OPEN", 0),
        ("BEGUN/S", 0),
        ("DONE/S", 0),
        ("FAILED", 0),
        ("MISSED", 1),
        ("GOODPUT", 0),
        ("SET-UP P99", 3),
        ("ANSWER P99", 2),
    ];
    let mut table = Table::new(&columns).at_least(&[0, 6, 7, 7, 0, 0, 9, 7, 7]);
    let shown = if samples.len() < rows { samples.len() } else { rows.saturating_sub(2) };
    // If some templates do not fit, the sum of all takes the last line.
    let sum = samples[shown..].iter().filter(|sample| sample.name == ALL);
    for sample in samples[..shown].iter().chain(sum) {
        let time = |ns: Option<u64>| {
            ns.map_or_else(|| Cell::styled("-", Style::Dim), |ns| human::ns(ns as f64).into())
        };
        table.row(vec![
            Cell::styled(&sample.name, Style::Bold),
            human::short_count(sample.active).into(),
            human::si(sample.attempted_cps, "").into(),
            human::si(sample.completed_cps, "").into(),
            Cell::fault(sample.failed, human::short_count(sample.failed)),
            Cell::fault(sample.not_begun, human::short_count(sample.not_begun)),
            human::si(sample.goodput_bps, "b/s").into(),
            time(sample.setup_p99_ns),
            time(sample.transaction_p99_ns),
        ]);
    }
    table
}

/// `flows 1,234 open, 10.0 k begun/s, 9.99 k done/s, 80.0 Mb/s, failed 0, not begun 0 (late 0), set-up p99 1.00 ms`
pub fn line(samples: &[TemplateSample]) -> Option<String> {
    let all = |side: &str| samples.iter().rfind(|sample| sample.side == side);
    let sample = all("client").or_else(|| all("server"))?;
    let mut text = format!(
        "flows {} open, {} begun/s, {} done/s, {}, failed {}, not begun {} (late {})",
        human::count(sample.active),
        human::si(sample.attempted_cps, ""),
        human::si(sample.completed_cps, ""),
        human::si(sample.goodput_bps, "b/s"),
        human::count(sample.failed),
        human::count(sample.not_begun),
        human::count(sample.late),
    );
    for (what, p99) in [("set-up", sample.setup_p99_ns), ("answer", sample.transaction_p99_ns)] {
        text += &p99.map_or(String::new(), |ns| format!(", {what} p99 {}", human::ns(ns as f64)));
    }
    Some(text)
}

/// Column names, each with the order in which columns are dropped if space is short (0: never).
const COLUMNS: [(&str, u8); 13] = [
    ("FLOWS", 0),
    ("", 0),
    ("BEGUN", 0),
    ("DONE", 0),
    ("FAILED", 0),
    ("NOT BEGUN", 0),
    ("PEAK", 4),
    ("CPS", 0),
    ("GOODPUT", 1),
    ("SET-UP P50", 3),
    ("FIRST OCTET P50", 5),
    ("FROM START P50", 6),
    ("ANSWER P50 / P99", 2),
];

fn row(name: &str, side: &str, role: &RoleReport) -> Vec<Cell> {
    let p50 =
        |d: &Option<Distribution>| d.as_ref().map_or(String::new(), |d| human::ns(d.p50 as f64));
    let both =
        |d: &Distribution| format!("{} / {}", human::ns(d.p50 as f64), human::ns(d.p99 as f64));
    vec![
        Cell::styled(name, Style::Bold),
        side.into(),
        human::count(role.attempted).into(),
        human::count(role.completed).into(),
        Cell::fault(role.failures(), human::count(role.failures())),
        Cell::fault(role.missed(), human::count(role.missed())),
        human::count(role.peak_active).into(),
        human::si(role.cps, "").into(),
        human::si(role.goodput_bps, "b/s").into(),
        p50(&role.setup_ns).into(),
        p50(&role.first_byte_ns).into(),
        p50(&role.first_byte_from_start_ns).into(),
        role.transaction_ns.as_ref().map_or_else(String::new, both).into(),
    ]
}

/// Such as `TLS: 1,000 handshakes, 512.3 a second, 1.2 ms at the median, 3.4 ms at p99: ...`.
fn sessions(role: &RoleReport, tls: &TlsReport) -> String {
    let mut text = format!(
        "TLS: {} handshakes, {} per second",
        human::count(tls.handshakes),
        human::si(tls.handshakes_per_second, "")
    );
    if let Some(took) = &tls.handshake_ns {
        let [p50, p99] = [took.p50, took.p99].map(|ns| human::ns(ns as f64));
        text += &format!(", p50 {p50}, p99 {p99}");
    }
    for (what, n) in role.tls() {
        text += &format!(", {} {what}", human::count(n));
    }
    text
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    let texts: Vec<_> =
        counts.iter().map(|(reason, n)| format!("{} {reason}", human::count(*n))).collect();
    texts.join(", ")
}

/// Counters of repairs by the TCP stack, which are 0 on a good network.
fn troubles(tcp: &BTreeMap<String, u64>) -> String {
    let trouble = |name: &str| {
        name.contains("retransmit") || name.contains("bad_") || name.contains("zero_window")
    };
    listed(
        &tcp.iter()
            .filter(|(name, n)| **n > 0 && trouble(name))
            .map(|(name, n)| (name.clone(), *n))
            .collect(),
    )
}
