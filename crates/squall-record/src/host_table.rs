//! Hosts of a running run as rows of a table.

use std::net::IpAddr;

use squall_engine::{Running, SeenHosts, host_log, hosts};
use squall_host::{HostEvent, HostView, Ipv4View, Ipv6View};
use squall_plan::{Plan, PlanHosts};
use squall_report::host_table::{
    HostDetail, HostEventRow, HostIpv4Row, HostIpv6Row, HostKeys, HostLeaseRow, HostPage,
    HostQuestion, HostRow,
};
use squall_units::{MacAddr, Nanos};

/// The hosts that `question` selects.
pub fn page(running: &Running, question: &HostQuestion) -> HostPage {
    let mut search = HostSearch::new(question.clone());
    while !search.read(running) {}
    search.into_page()
}

/// A search for the hosts of a page, in parts: a filter reads a million hosts in about a second, in
/// which others may need the run.
#[derive(Clone, Debug)]
pub struct HostSearch {
    question: HostQuestion,
    page: HostPage,
    /// The place of the next host among those of all groups.
    next: usize,
}

/// Hosts in a part, which takes some milliseconds.
const PART: usize = 8192;

impl HostSearch {
    /// A search that has read no host yet.
    pub fn new(question: HostQuestion) -> Self {
        Self { question, page: HostPage::default(), next: 0 }
    }

    /// Reads the next hosts, at most 8192. Returns whether all are read. Hosts may change between
    /// two parts.
    pub fn read(&mut self, running: &Running) -> bool {
        let Self { question, page, next } = self;
        let question = &*question;
        let plan = running.plan();
        let count = |group: &PlanHosts| group.settings.count as usize;
        let all: usize = plan.hosts.iter().map(count).sum();
        let total: usize = plan.hosts.iter().filter(|group| !group.elsewhere).map(count).sum();
        page.total = total as u64;
        let HostQuestion { filter, offset, limit } = question;
        // Without a filter, the places of hosts are known. Hosts on ports of other nodes have
        // places, too, but do not answer here.
        let placed = filter.is_empty() && total == all;
        let range = if placed {
            page.matching = page.total;
            (*offset).min(total)..offset.saturating_add(*limit).min(total)
        } else {
            0..all
        };
        let from = range.start.max(*next);
        *next = from.saturating_add(PART).min(range.end);
        hosts(running, from..*next, |SeenHosts { start, hosts }| {
            for (group, host) in &hosts {
                if !placed {
                    if !matches(plan, *group, host, question) {
                        continue;
                    }
                    page.matching += 1;
                    if page.matching <= *offset as u64 || page.rows.len() == *limit {
                        continue;
                    }
                }
                page.rows.push(row(plan, *group, host, start));
            }
        });
        *next == range.end
    }

    /// The hosts that were found so far.
    pub fn into_page(self) -> HostPage {
        self.page
    }
}

/// Host `number`, from 1, of the group with this name, with its last events; `None`: there is no
/// such host here.
pub fn detail(running: &Running, group: &str, number: u32) -> Option<HostDetail> {
    let plan = running.plan();
    let of = plan.hosts.iter().position(|one| one.name == group)?;
    let seen = host_log(running, of, number.checked_sub(1)?)?;
    let start = seen.start;
    Some(HostDetail {
        host: row(plan, of, &seen.host, start),
        events: seen.events.iter().map(|event| event_row(event, start)).collect(),
        log_since_s: seen.since.map(|since| seconds(since, start)),
        log_full: seen.is_full,
    })
}

fn matches(plan: &Plan, group: usize, host: &HostView, question: &HostQuestion) -> bool {
    let (ipv4, ipv6) = (host.ipv4.as_ref(), host.ipv6.as_ref());
    let mut addresses = Vec::with_capacity(4);
    addresses.extend(ipv4.and_then(|of| of.address).map(|(address, _)| IpAddr::V4(address)));
    if let Some(of) = ipv6 {
        addresses.extend(of.addresses.iter().map(|address| IpAddr::V6(*address)));
        addresses.extend(of.link_local.map(IpAddr::V6));
        addresses.extend(of.prefix.map(|(prefix, _)| IpAddr::V6(prefix)));
    }
    question.filter.matches(&HostKeys {
        group: &plan.hosts[group].name,
        number: host.number + 1,
        mac: host.mac,
        states: [
            host.auth,
            ipv4.map(|of| of.state.word()),
            ipv6.map(|of| of.state.word()),
            Some(shown_state(host)),
        ],
        addresses: &addresses,
        failure: host.failure,
    })
}

/// The state of 802.1X until the port is open, then that of the first of its addresses.
fn shown_state(host: &HostView) -> &'static str {
    let closed = host.auth.filter(|state| *state != "authenticated");
    let ipv4 = host.ipv4.as_ref().map(|of| of.state.word());
    let ipv6 = host.ipv6.as_ref().map(|of| of.state.word());
    // Hosts without addresses or authentication have no state of their own.
    let started = if host.started { "started" } else { "init" };
    closed.or(ipv4).or(ipv6).or(host.auth).unwrap_or(started)
}

fn row(plan: &Plan, group: usize, host: &HostView, start: Nanos) -> HostRow {
    let of = &plan.hosts[group];
    let ipv4 = host.ipv4.as_ref();
    let ipv6 = host.ipv6.as_ref();
    HostRow {
        group: of.name.clone(),
        number: host.number + 1,
        port: plan.ports[of.port].name.clone(),
        mac: host.mac.to_string(),
        state: shown_state(host).to_owned(),
        auth: host.auth.map(str::to_owned),
        ipv4: ipv4.map(|of| ipv4_row(of, start)),
        ipv6: ipv6.map(|of| ipv6_row(of, start)),
        failure: host.failure.map(str::to_owned),
        sent: host.counters.sent.into(),
        received: host.counters.received.into(),
        retransmissions: host.counters.retransmissions.into(),
    }
}

fn ipv4_row(of: &Ipv4View, start: Nanos) -> HostIpv4Row {
    let (gateway, gateway_mac) = router(of.gateway);
    HostIpv4Row {
        state: of.state.word().to_owned(),
        address: of.address.map(|(address, prefix)| format!("{address}/{prefix}")),
        gateway,
        gateway_mac,
        server: of.server.map(|server| server.to_string()),
        lease: of.lease.map(|[renews, rebinds, ends]| lease([renews, rebinds, ends, ends], start)),
    }
}

fn ipv6_row(of: &Ipv6View, start: Nanos) -> HostIpv6Row {
    let (gateway, gateway_mac) = router(of.gateway);
    HostIpv6Row {
        state: of.state.word().to_owned(),
        link_local: of.link_local.map(|address| address.to_string()),
        addresses: of.addresses.iter().map(ToString::to_string).collect(),
        prefix: of.prefix.map(|(prefix, length)| format!("{prefix}/{length}")),
        gateway,
        gateway_mac,
        dhcp: of.dhcp.map(|(state, _)| state.word().to_owned()),
        lease: of.dhcp.and_then(|(_, times)| times).map(|times| lease(times, start)),
    }
}

/// A router and its MAC address.
fn router<A: ToString>(of: Option<(A, Option<MacAddr>)>) -> (Option<String>, Option<String>) {
    let mac = of.as_ref().and_then(|(_, mac)| *mac).map(|mac| mac.to_string());
    (of.map(|(router, _)| router.to_string()), mac)
}

fn lease(times: [Nanos; 4], start: Nanos) -> HostLeaseRow {
    // Nanos::MAX is never.
    let time = |at: Nanos| (at.0 < u64::MAX).then(|| seconds(at, start));
    let [renew_s, rebind_s, preferred_s, end_s] = times.map(time);
    HostLeaseRow { renew_s, rebind_s, preferred_s, end_s }
}

fn event_row(event: &HostEvent, start: Nanos) -> HostEventRow {
    HostEventRow {
        time_s: seconds(event.at, start),
        protocol: event.protocol.word().to_owned(),
        event: event.kind.word().to_owned(),
        what: event.word.to_owned(),
        address: event.address.map(|address| address.to_string()),
    }
}

fn seconds(at: Nanos, start: Nanos) -> f64 {
    at.saturating_sub(start).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_host::{DhcpState, HostCounters};

    #[test]
    fn an_authenticated_host_without_addresses_shows_that() {
        let ipv4 = Ipv4View {
            state: DhcpState::Bound,
            address: None,
            gateway: None,
            server: None,
            lease: None,
        };
        let host = |started, auth, has_ipv4: bool| HostView {
            number: 0,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            started,
            ipv4: has_ipv4.then(|| ipv4.clone()),
            ipv6: None,
            auth,
            failure: None,
            counters: HostCounters::default(),
        };
        assert_eq!(shown_state(&host(true, Some("authenticated"), false)), "authenticated");
        assert_eq!(shown_state(&host(true, Some("authenticated"), true)), "bound");
        assert_eq!(shown_state(&host(true, Some("held"), true)), "held");
        assert_eq!(shown_state(&host(true, None, false)), "started");
        assert_eq!(shown_state(&host(false, None, false)), "init");
    }
}
