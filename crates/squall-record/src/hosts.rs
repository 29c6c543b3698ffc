//! The section of the report for hosts.

use std::collections::BTreeMap;

use squall_engine::{HostStats, Snapshot};
use squall_host::{
    AuthStatistics, DnsStatistics, LacpInfo, LacpStatistics, MulticastStatistics, PppoeStatistics,
    SpeakerStatistics,
};
use squall_plan::Plan;
use squall_report::report::{
    distribution,
    hosts::{
        CdpNeighborReport, Dhcp6ServerReport, DhcpServerReport, HostArpReport, HostAuthReport,
        HostCdpReport, HostDhcp6Report, HostDnsReport, HostDnsServerReport, HostEchoReport,
        HostIpv6Report, HostLacpReport, HostLldpReport, HostMdnsReport, HostMulticastReport,
        HostNdReport, HostPppoeReport, HostsReport, LacpPortReport, LldpNeighborReport,
        QuerierReport,
    },
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
            errors: texts(&counted.echo.errors),
            errors_sent: counted.echo.errors_sent,
            rtt_ns: distribution(&counted.echo.rtt),
        },
        ipv6: ipv6_report(of),
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
        multicast: counted.multicast.as_ref().map(multicast),
        querier: counted.querier.as_ref().map(|of| QuerierReport {
            sent: texts(&of.sent),
            received: texts(&of.received),
            ignored: texts(&of.ignored),
            groups: of.groups,
            other: of.other,
        }),
        lldp: counted.lldp.as_ref().map(lldp),
        cdp: counted.cdp.as_ref().map(cdp),
        dns: counted.dns.as_ref().map(dns),
        dns_server: counted.dns_server.as_ref().map(|of| HostDnsServerReport {
            queries: of.queries,
            answered: of.answered,
            empty: of.empty,
            nxdomain: of.nxdomain,
            not_implemented: of.not_implemented,
            ignored: texts(&of.ignored),
        }),
        mdns: counted.mdns.as_ref().map(|of| HostMdnsReport {
            // The hosts that ended have had their names until then.
            owned: of.owned + of.goodbyes,
            probes: of.probes,
            announcements: of.announcements,
            answered: of.answered,
            unicast: of.unicast,
            conflicts: of.conflicts,
            ties: of.ties,
            goodbyes: of.goodbyes,
            ignored: texts(&of.ignored),
        }),
        auth: counted.auth.as_ref().map(auth),
        pppoe: counted.pppoe.as_ref().map(pppoe),
        lacp: counted.lacp.as_ref().map(lacp),
    }
}

fn multicast(of: &MulticastStatistics) -> HostMulticastReport {
    HostMulticastReport {
        joined: of.joined,
        left: of.left,
        sent: texts(&of.sent),
        received: texts(&of.received),
        ignored: texts(&of.ignored),
        groups: of.groups,
        groups_received: of.groups_received,
        frames: of.frames,
        frames_after_leave: of.frames_after_leave,
        unexpected: of.unexpected,
        join_ns: distribution(&of.join),
        leave_ns: distribution(&of.leave),
    }
}

/// Most neighbors of a group that a report lists.
const MOST_NEIGHBORS: usize = 1000;

fn lldp(of: &SpeakerStatistics) -> HostLldpReport {
    let neighbors = of.neighbors.all().take(MOST_NEIGHBORS);
    let neighbor = |(chassis, port, system): (&str, &str, &str)| LldpNeighborReport {
        chassis: chassis.to_owned(),
        port: port.to_owned(),
        system: system.to_owned(),
    };
    HostLldpReport {
        sent: of.sent,
        shutdowns: of.shutdowns,
        received: of.received,
        ignored: texts(&of.ignored),
        neighbors: neighbors.map(neighbor).collect(),
        neighbor_count: of.neighbors.len() as u64,
        aged: of.neighbors.aged,
        ended: of.neighbors.ended,
    }
}

fn cdp(of: &SpeakerStatistics) -> HostCdpReport {
    let neighbors = of.neighbors.all().take(MOST_NEIGHBORS);
    let neighbor = |(device, port, platform): (&str, &str, &str)| CdpNeighborReport {
        device: device.to_owned(),
        port: port.to_owned(),
        platform: platform.to_owned(),
    };
    HostCdpReport {
        sent: of.sent,
        shutdowns: of.shutdowns,
        received: of.received,
        ignored: texts(&of.ignored),
        neighbors: neighbors.map(neighbor).collect(),
        neighbor_count: of.neighbors.len() as u64,
        aged: of.neighbors.aged,
        ended: of.neighbors.ended,
    }
}

fn dns(of: &DnsStatistics) -> HostDnsReport {
    HostDnsReport {
        asked: of.asked,
        sent: of.sent,
        retransmissions: of.retransmissions,
        answered: of.answered,
        empty: of.empty,
        nxdomain: of.nxdomain,
        failed: texts(&of.failed),
        truncated: of.truncated,
        timeouts: of.timeouts,
        no_server: of.no_server,
        unresolved: of.unresolved,
        ignored: texts(&of.ignored),
        time_ns: distribution(&of.time),
    }
}

fn auth(of: &AuthStatistics) -> HostAuthReport {
    let states = of.states.iter().filter(|(_, count)| *count > 0);
    HostAuthReport {
        states: states.map(|(state, count)| ((*state).to_owned(), *count)).collect(),
        authenticated: of.authenticated,
        reauthenticated: of.reauthenticated,
        refused: of.refused,
        reasons: texts(&of.reasons),
        timed_out: of.timed_out,
        sent: texts(&of.sent),
        ignored: texts(&of.ignored),
        time_ns: distribution(&of.time),
    }
}

fn pppoe(of: &PppoeStatistics) -> HostPppoeReport {
    let states = of.states.iter().filter(|(_, count)| *count > 0);
    HostPppoeReport {
        states: states.map(|(state, count)| ((*state).to_owned(), *count)).collect(),
        opened: of.opened,
        opened6: of.opened6,
        ended: texts(&of.ended),
        sent: texts(&of.sent),
        retransmissions: of.retransmissions,
        received: texts(&of.received),
        ignored: texts(&of.ignored),
        name_servers: of.name_servers.iter().map(ToString::to_string).collect(),
        session_ns: distribution(&of.session),
        open_ns: distribution(&of.open),
    }
}

fn lacp(of: &LacpStatistics) -> HostLacpReport {
    HostLacpReport {
        receive: of.receive.word().to_owned(),
        mux: of.mux.word().to_owned(),
        selected: of.selected,
        actor: port_of(&of.actor),
        partner: port_of(&of.partner),
        up: of.up,
        down: of.down,
        expired: of.expired,
        defaulted: of.defaulted,
        actor_churn: of.actor_churn,
        partner_churn: of.partner_churn,
        sent: texts(&of.sent),
        received: of.received,
        ignored: texts(&of.ignored),
        up_ns: distribution(&of.time),
    }
}

fn port_of(of: &LacpInfo) -> LacpPortReport {
    LacpPortReport {
        system_priority: of.system_priority,
        system: of.system.to_string(),
        key: of.key,
        port_priority: of.port_priority,
        port: of.port,
        state: squall_host::lacp::state_words(of.state).map(str::to_owned).collect(),
    }
}

fn texts(counts: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn ipv6_report(of: &HostStats) -> Option<HostIpv6Report> {
    let counted = of.statistics.ipv6.as_ref()?;
    let states = counted.states.iter().filter(|(_, count)| *count > 0);
    let span = of.statistics.first_start.zip(counted.last_address);
    let seconds = span.map_or(0.0, |(first, last)| last.saturating_sub(first).as_secs_f64());
    let nd = counted.nd;
    Some(HostIpv6Report {
        states: states.map(|(state, count)| (state.word().to_owned(), *count)).collect(),
        failed: texts(&counted.failed),
        addresses: counted.addresses,
        address_rate: (seconds > 0.0).then(|| counted.addresses as f64 / seconds),
        ended: counted.ended,
        nd: HostNdReport {
            answered: nd.answered,
            probes: nd.probes,
            duplicates: nd.duplicates,
            conflicts: nd.conflicts,
            router_solicitations: nd.router_solicitations,
            router_advertisements: nd.router_advertisements,
            advertised: nd.advertised,
            requests: nd.requests,
            unresolved: nd.unresolved,
            unreachable: nd.unreachable,
            redirects: nd.redirects,
        },
        ignored: texts(&counted.ignored),
        router_ns: distribution(&counted.router),
        address_ns: distribution(&counted.address),
        dhcp: counted.dhcp.as_ref().map(|dhcp| HostDhcp6Report {
            sent: texts(&dhcp.sent),
            received: texts(&dhcp.received),
            retransmissions: dhcp.retransmissions,
            bound: dhcp.bound,
            prefixes: dhcp.prefixes,
            informed: dhcp.informed,
            renewed: dhcp.renewed,
            expired: dhcp.expired,
            unconfirmed: dhcp.unconfirmed,
            refused: dhcp.refused,
            advertise_ns: distribution(&dhcp.advertise),
            lease_ns: distribution(&dhcp.lease),
            confirm_ns: distribution(&dhcp.confirm),
        }),
        server: counted.server.map(|(server, bindings)| Dhcp6ServerReport {
            solicits: server.solicits,
            advertises: server.advertises,
            requests: server.requests,
            renews: server.renews,
            rebinds: server.rebinds,
            confirms: server.confirms,
            releases: server.releases,
            declines: server.declines,
            information_requests: server.information_requests,
            replies: server.replies,
            exhausted: server.exhausted,
            bindings,
        }),
    })
}

#[cfg(test)]
mod tests {
    use squall_host::Announcement;
    use squall_units::Nanos;

    use super::*;

    #[test]
    fn all_neighbors_are_counted_and_the_first_1000_listed() {
        let mut of = SpeakerStatistics::default();
        for port in 0..1500 {
            let (chassis, port) = ("switch".to_owned(), port.to_string());
            let from = Announcement { chassis, port, ttl: 120, ..Announcement::default() };
            of.neighbors.learn(Nanos::ZERO, from);
        }
        let (lldp, cdp) = (lldp(&of), cdp(&of));
        assert_eq!((lldp.neighbors.len(), lldp.neighbor_count), (MOST_NEIGHBORS, 1500));
        assert_eq!((cdp.neighbors.len(), cdp.neighbor_count), (MOST_NEIGHBORS, 1500));
    }
}
