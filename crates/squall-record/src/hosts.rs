//! The section of the report for hosts.

use std::collections::BTreeMap;

use squall_engine::{HostStats, Snapshot};
use squall_plan::Plan;
use squall_report::report::{
    distribution,
    hosts::{DhcpServerReport, HostArpReport, HostEchoReport, HostsReport},
};

/// One entry for each group of hosts on ports of this node. One worker has all hosts of a group.
pub(crate) fn report(plan: &Plan, workers: &[Snapshot]) -> Vec<HostsReport> {
    let mut groups: Vec<_> = workers.iter().flat_map(|worker| &worker.hosts).collect();
    groups.sort_by_key(|group| group.group);
    groups.into_iter().map(|group| one(plan, group)).collect()
}

fn one(plan: &Plan, of: &HostStats) -> HostsReport {
    let group = &plan.hosts[of.group];
    let counted = &of.statistics;
    let texts = |counts: &BTreeMap<&'static str, u64>| -> BTreeMap<String, u64> {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    let states = counted.states.iter().filter(|(_, count)| *count > 0);
    let span = counted.first_start.zip(counted.last_bound);
    let seconds = span.map_or(0.0, |(first, last)| last.saturating_sub(first).as_secs_f64());
    HostsReport {
        name: group.name.clone(),
        port: plan.ports[group.port].name.clone(),
        hosts: counted.hosts,
        started: counted.started,
        asked_rate: group.settings.setup.map(|rate| rate as f64),
        states: states.map(|(state, count)| (state.word().to_owned(), *count)).collect(),
        bound: counted.bound,
        bound_rate: (seconds > 0.0).then(|| counted.bound as f64 / seconds),
        failed: texts(&counted.failed),
        sent: texts(&counted.sent),
        received: texts(&counted.received),
        retransmissions: counted.retransmissions,
        renewed: counted.renewed,
        expired: counted.expired,
        ignored: texts(&counted.ignored),
        faults: texts(&counted.faults),
        offer_ns: distribution(&counted.offer),
        dora_ns: distribution(&counted.dora),
        arp: HostArpReport {
            answered: counted.arp.answered,
            probes: counted.arp.probes,
            announcements: counted.arp.announcements,
            defended: counted.arp.defended,
            conflicts: counted.arp.conflicts,
            requests: counted.arp.requests,
            unresolved: counted.arp.unresolved,
        },
        echo: HostEchoReport {
            answered: counted.echo.answered,
            sent: counted.echo.sent,
            received: counted.echo.received,
            lost: counted.echo.lost,
            unresolved: counted.echo.unresolved,
            rtt_ns: distribution(&counted.echo.rtt),
        },
        server: counted.server.map(|(server, leases)| DhcpServerReport {
            discovers: server.discovers,
            offers: server.offers,
            requests: server.requests,
            acks: server.acks,
            naks: server.naks,
            declines: server.declines,
            releases: server.releases,
            informs: server.informs,
            exhausted: server.exhausted,
            leases,
        }),
    }
}
