//! What became of the flows: from the workers' statistics to a part of the report.

use std::{collections::BTreeMap, net::SocketAddr};

use squall_engine::FlowStats;
use squall_flows::{FlowStatistics, Load, Statistics, TemplateStatistics};

use crate::{
    assemble::distribution,
    loading::Loaded,
    report::load::{
        ConversationNote, ConversationsReport, ExhaustedReport, LinkReport, LoadReport, RoleReport, RolesReport,
        TemplateReport, TlsReport,
    },
};

/// `names` are those of the plan's ports.
pub fn report<'a>(loaded: &Loaded, names: &[String], all: impl Iterator<Item = &'a FlowStats> + Clone) -> LoadReport {
    let load = &loaded.flows.load;
    let mut total = Statistics { over: true, ..Statistics::default() };
    all.clone().for_each(|one| total.merge(&one.statistics));
    let seconds = total.elapsed.as_secs_f64();
    let mut links: BTreeMap<usize, Statistics> = BTreeMap::new();
    for one in all {
        links.entry(one.port).or_default().link.merge(&one.statistics.link);
    }
    let template = |(template, statistics): (&squall_flows::Template, &TemplateStatistics)| TemplateReport {
        name: template.name.clone(),
        roles: roles(statistics, seconds),
    };
    let exhausted = load.clients.iter().zip(&total.exhausted).filter(|(_, exhausted)| exhausted.flows > 0);
    let conversations = loaded.conversations.as_ref().map(|(known, numbers)| {
        let mut conversations = known.clone();
        played(&mut conversations, numbers, load, &total);
        conversations
    });
    LoadReport {
        conversations,
        duration_s: seconds,
        templates: load.templates.iter().zip(&total.templates).map(template).collect(),
        total: roles(&total.total(), seconds),
        links: links
            .into_iter()
            .map(|(port, statistics)| LinkReport {
                port: names.get(port).cloned().unwrap_or_default(),
                counters: named(statistics.link.iter()),
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

/// What became of the conversations of a capture.
fn played(report: &mut ConversationsReport, numbers: &[u64], load: &Load, total: &Statistics) {
    let Some(script) = &load.script else { return };
    let mut failed: Vec<_> = total.failed.clone();
    // What its server says of a flow is told where its client says nothing.
    failed.sort_unstable_by_key(|failed| (failed.number, !failed.client));
    failed.dedup_by_key(|failed| failed.number);
    for one in failed.iter().take(MOST_NAMED) {
        let conversation = &script.conversations[one.number as usize];
        let ((client, from), (server, to)) = (conversation.client_end, conversation.server_end);
        report.failed_first.push(ConversationNote {
            number: numbers[one.number as usize],
            flow: format!(
                "{} {} > {}",
                super::script::name(conversation.client.transport),
                SocketAddr::new(client, from),
                SocketAddr::new(server, to)
            ),
            reason: one.failure.name().to_owned(),
        });
    }
    let Some(loops) = script.loops else { return };
    let all = report.kinds.iter().zip(&total.templates).all(|(kind, seen)| {
        let due = kind.conversations * loops;
        let done = |role: &FlowStatistics| role.is_empty() || role.completed == due;
        !seen.client.is_empty() && done(&seen.client) && done(&seen.server)
    });
    report.payload_as_captured = all.then(|| {
        report.kinds.iter().zip(&total.templates).all(|(kind, seen)| {
            let right = |role: &FlowStatistics, octets: u64| role.is_empty() || role.received_octets == octets * loops;
            right(&seen.client, kind.octets_to_client) && right(&seen.server, kind.octets_to_server)
        })
    });
}

/// So many conversations are named that failed.
const MOST_NAMED: usize = 20;

fn roles(statistics: &TemplateStatistics, seconds: f64) -> RolesReport {
    let role = |flows: &FlowStatistics| (!flows.is_empty()).then(|| role(flows, seconds));
    RolesReport { client: role(&statistics.client), server: role(&statistics.server) }
}

fn role(flows: &FlowStatistics, seconds: f64) -> RoleReport {
    let a_second = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(flows.http);
    RoleReport {
        attempted: flows.attempted,
        established: flows.established,
        completed: flows.completed,
        failed: named(flows.failed.iter()),
        protocol_errors: named(flows.protocol_errors.iter().map(|(name, n)| (*name, *n))),
        not_begun: named(flows.not_begun.iter()),
        active: flows.active,
        peak_active: flows.peak,
        cps: a_second(flows.attempted as f64),
        setup_ns: distribution(&flows.setup),
        first_byte_ns: distribution(&flows.first_byte),
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
            failed: tls.failed.clone(),
            truncated: tls.truncated,
            ciphers: named(tls.ciphers.iter().map(|(name, n)| (*name, *n))),
        }),
    }
}

fn named<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    counts.map(|(name, n)| (name.to_owned(), n)).collect()
}
