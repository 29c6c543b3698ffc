//! Merges the workers' statistics of flows into the report.

use std::{collections::BTreeMap, time::Instant};

use squall_engine::{FlowStats, Snapshot};
use squall_flows::{
    Conversation, FailedConversation, FlowStatistics, HostedFlow, Http2Counts, Http3Counts, Load,
    Served, Statistics, Tally, TemplateStatistics,
};
use squall_plan::{
    Plan, PlanFlows,
    flows::{PlayedScript, ends_text},
};
use squall_stats::Histogram;
use squall_units::Nanos;

use squall_report::report::{
    TemplateSample, distribution,
    flows::{
        ALL, BusiestSecond, ConversationNote, ConversationsReport, ExhaustedReport, FlowsReport,
        Http2Report, Http3Report, LinkReport, RequestsReport, RoleReport, RolesReport,
        SteadyReport, TemplateReport, TlsReport,
    },
};

/// The section of the report for flows; `None` if the run has none.
pub(crate) fn report(plan: &Plan, workers: &[Snapshot]) -> Option<FlowsReport> {
    let flows = plan.flows.as_ref()?;
    let names: Vec<_> = plan.ports.iter().map(|port| port.name.clone()).collect();
    Some(report_of(flows, &names, workers.iter().flat_map(|worker| &worker.flows)))
}

/// `names` has the names of the plan's ports.
fn report_of<'a>(
    flows: &PlanFlows,
    names: &[String],
    all: impl Iterator<Item = &'a FlowStats> + Clone,
) -> FlowsReport {
    let load = &flows.load;
    let total = merged(all.clone());
    let arrivals = if total.arrivals == Nanos::ZERO { total.elapsed } else { total.arrivals };
    let seconds = Seconds {
        all: total.elapsed.as_secs_f64(),
        arrivals: arrivals.as_secs_f64(),
        steady: total.steady.as_secs_f64(),
    };
    let mut links: BTreeMap<usize, Statistics> = BTreeMap::new();
    for one in all {
        let here = links.entry(one.port).or_default();
        here.link.merge(&one.statistics.link);
        here.strays.add(&one.statistics.strays);
    }
    let serves = |i: usize| is_served(flows, i, |port| links.contains_key(&port));
    let plateau = load.plateau();
    let is_there = |i: usize| !load.templates[i].gone;
    let asked = |i: usize| {
        let cps = is_there(i).then(|| load.rate_in(plateau, i)).flatten();
        cps.map(squall_flows::Cps::value)
    };
    let called = |i: usize| load.templates[i].arrival == squall_flows::Arrival::Called;
    // As long as flows are open, other flows that they start can begin, so the whole time counts.
    let all = Seconds { arrivals: seconds.all, ..seconds };
    let template = |(i, statistics): (usize, &TemplateStatistics)| TemplateReport {
        name: load.templates[i].name.clone(),
        roles: roles(statistics, serves(i), if called(i) { all } else { seconds }, asked(i)),
    };
    let seconds_of_all = if (0..load.templates.len()).any(called) { all } else { seconds };
    // The number of flows that are started by other flows is not configured, so the sum is unknown.
    let begin = |i: &usize| load.templates[*i].arrival != squall_flows::Arrival::None;
    let all_asked = (0..load.templates.len())
        .filter(|i| begin(i) && is_there(*i))
        .map(asked)
        .sum::<Option<f64>>()
        .filter(|cps| *cps > 0.0);
    let served = (0..load.templates.len()).any(serves);
    let mut sum = roles(&total.total(), served, seconds_of_all, all_asked);
    for (role, seconds) in [&mut sum.client, &mut sum.server].into_iter().zip(&total.seconds) {
        let most = |of: fn(&squall_flows::Second) -> u64| seconds.iter().map(of).max();
        if let (Some(role), Some(attempted), Some(completed)) =
            (role, most(|s| s.attempted), most(|s| s.completed))
        {
            role.busiest_second = Some(BusiestSecond { attempted, completed });
        }
    }
    let exhausted =
        load.clients.iter().zip(&total.exhausted).filter(|(_, exhausted)| exhausted.flows > 0);
    let script = flows.script(false).or(flows.script(true));
    let conversations = script.map(|script| played(script, &total));
    FlowsReport {
        conversations,
        duration_s: seconds.all,
        arrivals_s: seconds.arrivals,
        templates: total
            .templates
            .iter()
            .take(load.templates.len())
            .enumerate()
            .map(template)
            .collect(),
        total: sum,
        links: links
            .into_iter()
            .map(|(port, statistics)| LinkReport {
                port: names.get(port).cloned().unwrap_or_default(),
                counters: counters(&statistics),
            })
            .collect(),
        exhausted: exhausted
            .map(|(pool, exhausted)| ExhaustedReport {
                pool: pool.name.clone(),
                addresses: exhausted.addresses,
                flows: exhausted.flows,
            })
            .collect(),
    }
}

/// Whether the template has servers on a port of this run for which `here` returns true.
fn is_served(flows: &PlanFlows, template: usize, here: impl Fn(usize) -> bool) -> bool {
    let of = &flows.load.templates[template];
    let serves = |side: &squall_plan::FlowSide| {
        let (_, servers) = side.role.parts(side.clients, side.servers);
        here(side.port) && servers.has(&flows.load, template)
    };
    of.ends.has_servers() && !of.gone && flows.sides.iter().any(serves)
}

/// The counters of a port's link and stack, under the names used in reports.
fn counters(statistics: &Statistics) -> BTreeMap<String, u64> {
    let mut counters = named(statistics.link.iter());
    // Counters to leave out, because counters of flows or ports contain them in more detail.
    const STRAYS: [&str; 11] = [
        "malformed",
        "bad_ip_checksum",
        "bad_tcp_checksum",
        "bad_udp_checksum",
        "bad_icmp_checksum",
        "fragments",
        "other_protocol",
        "unknown_flow",
        "not_accepted",
        "late",
        "accept_full",
    ];
    for (name, n) in statistics.strays.entries().filter(|(name, _)| STRAYS.contains(name)) {
        *counters.entry(name.to_owned()).or_default() += n;
    }
    counters
}

/// The results of the conversations of a capture.
fn played(of: PlayedScript<'_>, total: &Statistics) -> ConversationsReport {
    let PlayedScript { script, before, plan } = of;
    let mut report = plan.report.clone();
    let own = before..before + plan.numbers.len();
    let mut failed: Vec<_> =
        total.failed.iter().filter(|one| own.contains(&(one.number as usize))).copied().collect();
    // Sort the client first, because the server's reason counts only if the client has none.
    failed.sort_unstable_by_key(|failed| (failed.number, !failed.client));
    failed.dedup_by_key(|failed| failed.number);
    for one in failed.iter().take(MOST_NAMED) {
        let place = one.number as usize - before;
        let Conversation { client, client_end, server_end, .. } = &script.conversations[place];
        report.failed_first.push(ConversationNote {
            number: plan.numbers[place],
            flow: ends_text(client.transport, *client_end, *server_end),
            reason: one.failure.name().to_owned(),
        });
    }
    let Some(loops) = script.loops else { return report };
    // Empty if no worker has answered yet.
    let own = total.templates.get(script.first..).unwrap_or_default();
    let all = report.kinds.iter().zip(own).all(|(kind, seen)| {
        let due = kind.conversations * loops;
        let done = |role: &FlowStatistics| role.is_empty() || role.completed == due;
        !seen.client.is_empty() && done(&seen.client) && done(&seen.server)
    });
    report.octets_as_captured = all.then(|| {
        report.kinds.iter().zip(own).all(|(kind, seen)| {
            let right = |role: &FlowStatistics, octets: u64| {
                role.is_empty() || role.received_octets == octets * loops
            };
            right(&seen.client, kind.octets_to_client) && right(&seen.server, kind.octets_to_server)
        })
    });
    report
}

/// The failed conversations of a script at both ends, those whose servers reached the end, and those
/// of hosts.
pub fn ended<'a>(
    all: impl Iterator<Item = &'a FlowStats>,
) -> (Vec<FailedConversation>, Served, Vec<HostedFlow>) {
    let merged = merged(all);
    (merged.failed, merged.served, merged.hosted)
}

/// Maximum number of failed conversations to list.
const MOST_NAMED: usize = 20;

/// Minimum time at full load. Over a shorter time, rates depend on the few flows that begin and end
/// in it.
const LEAST_STEADY_S: f64 = 0.1;

/// The whole duration, the part of it in which flows were due, and the part at full load.
#[derive(Clone, Copy)]
struct Seconds {
    all: f64,
    arrivals: f64,
    steady: f64,
}

/// The sum over all sides and workers.
fn merged<'a>(all: impl Iterator<Item = &'a FlowStats>) -> Statistics {
    let mut total = Statistics { over: true, ..Statistics::default() };
    all.for_each(|one| total.merge(&one.statistics));
    total
}

/// The two roles of a template. If clients started flows, the servers are kept even if they
/// accepted none, so that the report shows this.
fn roles(
    statistics: &TemplateStatistics,
    served: bool,
    seconds: Seconds,
    asked: Option<f64>,
) -> RolesReport {
    let TemplateStatistics { client, server } = statistics;
    let role = |flows: &FlowStatistics, also: bool| {
        (also || !flows.is_empty()).then(|| role(flows, seconds))
    };
    let steady = |tally: &Tally| SteadyReport {
        duration_s: seconds.steady,
        attempted_cps: tally.attempted as f64 / seconds.steady,
        completed_cps: tally.completed as f64 / seconds.steady,
        goodput_bps: tally.received_octets as f64 * 8.0 / seconds.steady,
    };
    let client_role = role(client, false).map(|role| RoleReport {
        asked: Some(client.due()),
        asked_cps: asked,
        steady: (seconds.steady >= LEAST_STEADY_S).then(|| steady(&client.steady)),
        ..role
    });
    let silent = served && client.attempted > 0;
    RolesReport { client: client_role, server: role(server, silent) }
}

fn role(flows: &FlowStatistics, seconds: Seconds) -> RoleReport {
    let over = |seconds: f64, n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
    // Open flows were active during the drain, too, but none started in it.
    let (a_second, begun_a_second) =
        (|n: f64| over(seconds.all, n), |n: f64| over(seconds.arrivals, n));
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(flows.http);
    RoleReport {
        asked: None,
        attempted: flows.attempted,
        established: flows.established,
        completed: flows.completed,
        failed: named(flows.failed.iter()),
        protocol_errors: named(flows.protocol_errors.iter().map(|(name, n)| (*name, *n))),
        requests: (flows.requests.asked > 0).then_some(RequestsReport {
            asked: flows.requests.asked,
            sent: flows.requests.sent,
            answered: flows.requests.answered,
        }),
        counters: named(flows.counted.iter().map(|(name, n)| (&**name, *n))),
        not_begun: named(flows.not_begun.iter()),
        active: flows.active,
        peak_active: flows.peak,
        cps: begun_a_second(flows.attempted as f64),
        asked_cps: None,
        steady: None,
        busiest_second: None,
        setup_ns: distribution(&flows.setup),
        first_byte_ns: distribution(&flows.first_byte),
        first_byte_from_start_ns: distribution(&flows.first_byte_from_start),
        transaction_ns: distribution(&flows.transaction),
        duration_ns: distribution(&flows.duration),
        duration_from_due_ns: distribution(&flows.corrected),
        received_octets: flows.received_octets,
        sent_octets: flows.sent_octets,
        goodput_bps: a_second(flows.received_octets as f64 * 8.0),
        http: named(classes.filter(|(_, n)| *n > 0)),
        tcp: named(flows.tcp.entries().filter(|(_, n)| *n > 0)),
        tls: flows.tls.as_ref().map(|tls| TlsReport {
            handshakes: tls.handshakes,
            resumed: tls.resumed,
            handshakes_per_second: a_second(tls.handshakes as f64),
            handshake_ns: distribution(&tls.handshake),
            early_offered: tls.early_offered,
            early_accepted: tls.early_accepted,
            early_octets_accepted: tls.early_octets_accepted,
            early_refused: tls.early_refused,
            early_octets_refused: tls.early_octets_refused,
            failed: tls.failed.clone(),
            truncated: tls.truncated,
            ciphers: named(tls.ciphers.iter().map(|(name, n)| (*name, *n))),
        }),
        http2: flows.http2.as_deref().map(http2),
        http3: flows.http3.as_deref().map(http3),
    }
}

fn http3(counts: &Http3Counts) -> Http3Report {
    let by_name =
        |counts: &BTreeMap<&'static str, u64>| named(counts.iter().map(|(name, n)| (*name, *n)));
    Http3Report {
        connections: counts.connections,
        streams: counts.streams,
        heads_sent: counts.heads_sent,
        head_octets_sent: counts.head_octets_sent,
        compressed_octets_sent: counts.compressed_octets_sent,
        heads_received: counts.heads_received,
        head_octets_received: counts.head_octets_received,
        compressed_octets_received: counts.compressed_octets_received,
        resets_sent: by_name(&counts.resets_sent),
        resets_received: by_name(&counts.resets_received),
        left_out: counts.left_out,
        goaways_received: counts.goaways_received,
        violations: by_name(&counts.violations),
        ignored: counts.ignored,
        packets_sent: counts.packets_sent,
        packets_lost: counts.packets_lost,
        congestion_events: counts.congestion_events,
        retries: counts.retries,
        version_negotiations: counts.version_negotiations,
        early_accepted: counts.early_accepted,
        early_refused: counts.early_refused,
        strays: counts.strays,
        migrations: counts.migrations,
        rebindings: counts.rebindings,
        paths_failed: counts.paths_failed,
        not_moved: by_name(&counts.not_moved),
    }
}

fn http2(counts: &Http2Counts) -> Http2Report {
    let by_name =
        |counts: &BTreeMap<&'static str, u64>| named(counts.iter().map(|(name, n)| (*name, *n)));
    Http2Report {
        connections: counts.connections,
        fallbacks: counts.fallbacks,
        streams: counts.streams,
        heads_sent: counts.heads_sent,
        head_octets_sent: counts.head_octets_sent,
        compressed_octets_sent: counts.compressed_octets_sent,
        heads_received: counts.heads_received,
        head_octets_received: counts.head_octets_received,
        compressed_octets_received: counts.compressed_octets_received,
        resets_sent: by_name(&counts.resets_sent),
        resets_received: by_name(&counts.resets_received),
        left_out: counts.left_out,
        repeated: counts.repeated,
        goaways_received: by_name(&counts.goaways_received),
        violations: by_name(&counts.violations),
        ignored: counts.ignored,
    }
}

fn named<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    counts.map(|(name, n)| (name.to_owned(), n)).collect()
}

/// The counters as of the last sample.
pub struct LastLoad {
    at: Instant,
    rows: Vec<[Row; 2]>,
}

/// Counters of one template, or of all, at one end.
#[derive(Clone, Default)]
struct Row {
    attempted: u64,
    completed: u64,
    octets: u64,
    setup: Histogram,
    transaction: Histogram,
}

impl LastLoad {
    pub fn at(at: Instant) -> Self {
        Self { at, rows: Vec::new() }
    }

    /// Rates since the last sample, and counts so far.
    pub fn sample<'a>(
        &mut self,
        now: Instant,
        load: &Load,
        all: impl Iterator<Item = &'a FlowStats>,
    ) -> Vec<TemplateSample> {
        let total = merged(all);
        let seconds = now.duration_since(self.at).as_secs_f64().max(1e-9);
        self.at = now;
        let mut names: Vec<_> =
            load.templates.iter().map(|template| template.name.as_str()).collect();
        let mut templates = total.templates.clone();
        if templates.len() > 1 {
            names.push(ALL);
            templates.push(total.total());
        }
        if self.rows.len() < templates.len() {
            // The row for all templates must stay last.
            let all =
                if self.rows.len() > 1 { self.rows.pop() } else { self.rows.first().cloned() };
            let new = templates.len() - usize::from(all.is_some());
            self.rows.resize_with(new, Default::default);
            self.rows.extend(all);
        }
        let mut samples = Vec::new();
        for ((name, template), rows) in names.into_iter().zip(&templates).zip(&mut self.rows) {
            for ((side, flows), row) in
                [("client", &template.client), ("server", &template.server)].into_iter().zip(rows)
            {
                if !flows.is_empty() {
                    samples.push(row.sample(name, side, flows, seconds));
                }
            }
        }
        samples
    }
}

impl Row {
    fn sample(
        &mut self,
        name: &str,
        side: &str,
        flows: &FlowStatistics,
        seconds: f64,
    ) -> TemplateSample {
        let p99 = |now: &Histogram, then: &Histogram| {
            let since = now.delta_since(then);
            (!since.is_empty()).then(|| since.quantile(0.99))
        };
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let sample = TemplateSample {
            name: name.to_owned(),
            side: side.to_owned(),
            active: flows.active,
            attempted_cps: rate(flows.attempted, self.attempted),
            completed_cps: rate(flows.completed, self.completed),
            failed: flows.failed.total(),
            not_begun: flows.not_begun.total(),
            late: flows.not_begun.late(),
            goodput_bps: rate(flows.received_octets, self.octets) * 8.0,
            setup_p99_ns: p99(&flows.setup, &self.setup),
            transaction_p99_ns: p99(&flows.transaction, &self.transaction),
        };
        *self = Self {
            attempted: flows.attempted,
            completed: flows.completed,
            octets: flows.received_octets,
            setup: flows.setup.clone(),
            transaction: flows.transaction.clone(),
        };
        sample
    }
}
