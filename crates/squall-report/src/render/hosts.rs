//! Hosts in the summary.

use std::collections::BTreeMap;

use super::human;
use super::table::{Style, indented, printable};
use crate::report::{
    Distribution, Report,
    hosts::{
        HostAuthReport, HostCdpReport, HostDnsReport, HostIpv6Report, HostLacpReport,
        HostLldpReport, HostMulticastReport, HostPppoeReport, HostsReport, LacpPortReport,
    },
};

/// Lines for each group of hosts.
pub(super) fn hosts(report: &Report, width: usize, color: bool) -> Vec<String> {
    report.hosts.iter().flat_map(|group| one(group, width, color)).collect()
}

/// Hosts of all groups by their state: `hosts bound 12, selecting 3, failed 0`. `None` without
/// hosts.
pub(super) fn line(groups: &[HostsReport]) -> Option<String> {
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failed = 0;
    for group in groups {
        // A host with both is shown with its state of IPv4.
        let of = match &group.ipv6 {
            Some(ipv6) if group.states.is_empty() => (&ipv6.states, &ipv6.failed),
            _ => (&group.states, &group.failed),
        };
        of.0.iter().for_each(|(state, n)| *states.entry(state).or_default() += n);
        failed += of.1.values().sum::<u64>();
    }
    let bound = states.remove("bound").unwrap_or(0);
    states.remove("failed");
    let between: Vec<_> = states.into_iter().filter(|(_, n)| *n > 0).collect();
    let all = [&[("bound", bound)], &between[..], &[("failed", failed)]].concat();
    let texts: Vec<_> =
        all.iter().map(|(state, n)| format!("{state} {}", human::count(*n))).collect();
    (!groups.is_empty()).then(|| format!("hosts {}", texts.join(", ")))
}

fn one(group: &HostsReport, width: usize, color: bool) -> Vec<String> {
    // Groups without a name are called "hosts 1", "hosts 2" and so on, that of `squall hosts` is
    // called "hosts".
    let name = printable(&group.name);
    let name = if name.starts_with("hosts") { name } else { format!("hosts {name}") };
    let title = format!("{name} on {}", printable(&group.port));
    let mut lines = vec![Style::Bold.paint(&title, color)];
    let mut line = |text: String| lines.extend(indented(&text, width));
    let failed: u64 = group.failed.values().sum();
    let started = human::count(group.started);
    let mut head = format!("{started} of {} started", human::count(group.hosts));
    // Hosts without IPv4 have no state there, and their addresses are in a line of IPv6.
    if !group.states.is_empty() {
        // Hosts with static addresses send no DHCP messages.
        let what = if group.sent.is_empty() { "use their address" } else { "got an address" };
        head += &format!(", {} {what}", human::count(group.bound));
    }
    if let Some(rate) = group.bound_rate {
        head += &format!(" ({})", human::si(rate, "/s"));
    }
    if failed > 0 {
        head += &format!(", {} failed: {}", human::count(failed), counts(&group.failed));
    }
    line(head);
    if !group.states.is_empty() {
        line(format!("state: {}", counts(&group.states)));
    }
    if let Some(offer) = &group.offer_ns {
        line(format!("DISCOVER to OFFER: {}", times(offer)));
    }
    if let Some(dora) = &group.dora_ns {
        line(format!("DISCOVER to address: {}", times(dora)));
    }
    if !group.sent.is_empty() {
        line(format!("DHCP sent: {}; {} repeated", counts(&group.sent), group.retransmissions));
    }
    if !group.received.is_empty() {
        line(format!("DHCP received: {}", counts(&group.received)));
    }
    if group.renewed + group.expired > 0 {
        line(format!("leases: {} renewed, {} expired", group.renewed, group.expired));
    }
    if !group.ignored.is_empty() {
        line(format!("ignored: {}", counts(&group.ignored)));
    }
    if !group.faults.is_empty() {
        line(format!("faults: {}", counts(&group.faults)));
    }
    if let Some(ipv6) = &group.ipv6 {
        ipv6_lines(ipv6).into_iter().for_each(&mut line);
    }
    let arp = &group.arp;
    let arp = counted(&[
        ("answered", arp.answered),
        ("probes", arp.probes),
        ("announcements", arp.announcements),
        ("defended", arp.defended),
        ("conflicts", arp.conflicts),
        ("requests", arp.requests),
        ("unresolved", arp.unresolved),
    ]);
    if !arp.is_empty() {
        line(format!("ARP: {arp}"));
    }
    let echo = &group.echo;
    let figures = counted(&[
        ("answered", echo.answered),
        ("sent", echo.sent),
        ("received", echo.received),
        ("lost", echo.lost),
        ("unresolved", echo.unresolved),
    ]);
    if !figures.is_empty() {
        let rtt = echo.rtt_ns.as_ref().map_or_else(String::new, |rtt| format!("; {}", times(rtt)));
        line(format!("echo: {figures}{rtt}"));
    }
    if !echo.errors.is_empty() || echo.errors_sent > 0 {
        let sent = counted(&[("sent", echo.errors_sent)]);
        let texts: Vec<_> =
            [sent, counts(&echo.errors)].into_iter().filter(|text| !text.is_empty()).collect();
        line(format!("ICMP errors: {}", texts.join(", ")));
    }
    if let Some(server) = &group.server {
        let figures = counted(&[
            ("discovers", server.discovers),
            ("offers", server.offers),
            ("requests", server.requests),
            ("acks", server.acks),
            ("naks", server.naks),
            ("declines", server.declines),
            ("releases", server.releases),
            ("informs", server.informs),
            ("exhausted", server.exhausted),
        ]);
        line(format!("DHCP server: {} leases; {figures}", human::count(server.leases)));
    }
    group.auth.iter().flat_map(auth).for_each(&mut line);
    group.pppoe.iter().flat_map(pppoe).for_each(&mut line);
    group.multicast.iter().flat_map(multicast).for_each(&mut line);
    if let Some(querier) = &group.querier {
        let other = if querier.other { "; another one queries" } else { "" };
        let groups = human::count(querier.groups);
        let (sent, received) = (counts(&querier.sent), counts(&querier.received));
        line(format!("querier: {groups} groups; sent {sent}; received {received}{other}"));
    }
    group.lldp.iter().flat_map(lldp).for_each(&mut line);
    group.cdp.iter().flat_map(cdp).for_each(&mut line);
    group.dns.iter().flat_map(dns).for_each(&mut line);
    if let Some(of) = &group.dns_server {
        let figures = counted(&[
            ("queries", of.queries),
            ("answered", of.answered),
            ("empty", of.empty),
            ("NXDOMAIN", of.nxdomain),
            ("not implemented", of.not_implemented),
            ("ignored", of.ignored.values().sum()),
        ]);
        line(format!("DNS server: {figures}"));
    }
    if let Some(of) = &group.mdns {
        let figures = counted(&[
            ("names", of.owned),
            ("probes", of.probes),
            ("announcements", of.announcements),
            ("answered", of.answered),
            ("answered by unicast", of.unicast),
            ("conflicts", of.conflicts),
            ("ties", of.ties),
            ("of the end", of.goodbyes),
            ("ignored", of.ignored.values().sum()),
        ]);
        line(format!("mDNS: {figures}"));
    }
    group.lacp.iter().flat_map(lacp).for_each(&mut line);
    lines
}

/// Lines about the IPv6 of a group.
fn ipv6_lines(ipv6: &HostIpv6Report) -> Vec<String> {
    let mut lines = Vec::new();
    let mut head = format!("IPv6: {} addresses", human::count(ipv6.addresses));
    if let Some(rate) = ipv6.address_rate {
        head += &format!(" ({})", human::si(rate, "/s"));
    }
    head += &format!("; state: {}", counts(&ipv6.states));
    if !ipv6.failed.is_empty() {
        head += &format!("; failed: {}", counts(&ipv6.failed));
    }
    lines.push(head);
    let times_of =
        [("solicitation to router", &ipv6.router_ns), ("start to IPv6 address", &ipv6.address_ns)];
    let dhcp = ipv6.dhcp.as_ref();
    let of_dhcp = [
        ("Solicit to offer", dhcp.map(|dhcp| &dhcp.advertise_ns)),
        ("Solicit to lease", dhcp.map(|dhcp| &dhcp.lease_ns)),
        ("Confirm to reply", dhcp.map(|dhcp| &dhcp.confirm_ns)),
    ];
    let of_dhcp = of_dhcp.into_iter().filter_map(|(name, of)| Some((name, of?)));
    for (name, of) in times_of.into_iter().chain(of_dhcp) {
        if let Some(of) = of {
            lines.push(format!("{name}: {}", times(of)));
        }
    }
    let nd = &ipv6.nd;
    let nd = counted(&[
        ("answered", nd.answered),
        ("probes", nd.probes),
        ("duplicates", nd.duplicates),
        ("conflicts", nd.conflicts),
        ("router solicitations", nd.router_solicitations),
        ("router advertisements", nd.router_advertisements),
        ("advertised", nd.advertised),
        ("requests", nd.requests),
        ("unresolved", nd.unresolved),
        ("unreachable", nd.unreachable),
        ("redirects", nd.redirects),
    ]);
    if !nd.is_empty() {
        lines.push(format!("ND: {nd}"));
    }
    if let Some(dhcp) = dhcp {
        let figures = counted(&[
            ("bound", dhcp.bound),
            ("prefixes", dhcp.prefixes),
            ("informed", dhcp.informed),
            ("renewed", dhcp.renewed),
            ("expired", dhcp.expired),
            ("unconfirmed", dhcp.unconfirmed),
            ("refused", dhcp.refused),
        ]);
        let sent = counts(&dhcp.sent);
        lines.push(format!("DHCPv6: {figures}; sent: {sent}; {} repeated", dhcp.retransmissions));
    }
    if !ipv6.ignored.is_empty() {
        lines.push(format!("ignored over IPv6: {}", counts(&ipv6.ignored)));
    }
    if let Some(server) = &ipv6.server {
        let figures = counted(&[
            ("solicits", server.solicits),
            ("advertises", server.advertises),
            ("requests", server.requests),
            ("renews", server.renews),
            ("rebinds", server.rebinds),
            ("confirms", server.confirms),
            ("releases", server.releases),
            ("declines", server.declines),
            ("information requests", server.information_requests),
            ("replies", server.replies),
            ("exhausted", server.exhausted),
        ]);
        lines.push(format!("DHCPv6 server: {} bindings; {figures}", human::count(server.bindings)));
    }
    lines
}

fn auth(auth: &HostAuthReport) -> Vec<String> {
    let mut first = format!("802.1X: {}", counts(&auth.states));
    if let Some(time) = &auth.time_ns {
        first += &format!("; {}", times(time));
    }
    let more = counted(&[
        ("authenticated again", auth.reauthenticated),
        ("refused", auth.refused),
        ("timed out", auth.timed_out),
    ]);
    let lines = [
        (true, first),
        (!more.is_empty(), format!("802.1X: {more}")),
        (!auth.reasons.is_empty(), format!("802.1X refused: {}", counts(&auth.reasons))),
        (!auth.sent.is_empty(), format!("802.1X sent: {}", counts(&auth.sent))),
        (!auth.ignored.is_empty(), format!("802.1X ignored: {}", counts(&auth.ignored))),
    ];
    lines.into_iter().filter(|line| line.0).map(|line| line.1).collect()
}

fn pppoe(of: &HostPppoeReport) -> Vec<String> {
    let opened = counted(&[("opened", of.opened), ("with IPv6", of.opened6)]);
    let heads = [counts(&of.states), opened].into_iter().filter(|text| !text.is_empty());
    let mut lines = vec![format!("PPPoE: {}", heads.collect::<Vec<_>>().join("; "))];
    let mut add = |some: bool, line: String| lines.extend(some.then_some(line));
    for (name, time) in [("PADI to session", &of.session_ns), ("to address", &of.open_ns)] {
        if let Some(time) = time {
            add(true, format!("{name}: {}", times(time)));
        }
    }
    let repeated = format!("{} repeated", of.retransmissions);
    add(!of.sent.is_empty(), format!("PPPoE sent: {}; {repeated}", counts(&of.sent)));
    add(!of.received.is_empty(), format!("PPPoE received: {}", counts(&of.received)));
    add(!of.ended.is_empty(), format!("sessions ended: {}", counts(&of.ended)));
    add(!of.ignored.is_empty(), format!("PPPoE ignored: {}", counts(&of.ignored)));
    let servers: Vec<_> = of.name_servers.iter().map(|text| printable(text)).collect();
    add(!servers.is_empty(), format!("name servers: {}", servers.join(", ")));
    lines
}

fn lacp(of: &HostLacpReport) -> Vec<String> {
    let selected = if of.selected { "selected" } else { "not selected" };
    let times = of.up_ns.as_ref().map_or_else(String::new, |up| format!("; {}", times(up)));
    let mut lines = vec![format!("LACP: {}, {}, {selected}{times}", of.mux, of.receive)];
    for (name, end) in [("actor", &of.actor), ("partner", &of.partner)] {
        let LacpPortReport { system, key, port, state, .. } = end;
        let system = printable(system);
        lines.push(format!("LACP {name}: {system}, key {key}, port {port}: {}", state.join(", ")));
    }
    let figures = counted(&[
        ("up", of.up),
        ("down", of.down),
        ("expired", of.expired),
        ("without a partner", of.defaulted),
        ("churn", of.actor_churn),
        ("churn of the partner", of.partner_churn),
        ("received", of.received),
    ]);
    lines.push(format!("LACP: {figures}; sent: {}", counts(&of.sent)));
    if !of.ignored.is_empty() {
        lines.push(format!("LACP ignored: {}", counts(&of.ignored)));
    }
    lines
}

fn multicast(of: &HostMulticastReport) -> Vec<String> {
    let memberships =
        counted(&[("memberships began", of.joined), ("ended", of.left), ("groups", of.groups)]);
    let frames = counted(&[
        ("groups with frames", of.groups_received),
        ("frames", of.frames),
        ("after the leave", of.frames_after_leave),
        ("of other groups", of.unexpected),
    ]);
    let mut lines = vec![format!("multicast: {memberships}")];
    let mut add = |some: bool, line: String| lines.extend(some.then_some(line));
    add(!of.sent.is_empty(), format!("IGMP, MLD sent: {}", counts(&of.sent)));
    add(!of.received.is_empty(), format!("IGMP, MLD received: {}", counts(&of.received)));
    add(!of.ignored.is_empty(), format!("IGMP, MLD ignored: {}", counts(&of.ignored)));
    add(!frames.is_empty(), format!("multicast received: {frames}"));
    for (name, delay) in
        [("join to first frame", &of.join_ns), ("leave to last frame", &of.leave_ns)]
    {
        if let Some(delay) = delay {
            add(true, format!("{name}: {}", times(delay)));
        }
    }
    lines
}

fn lldp(of: &HostLldpReport) -> Vec<String> {
    let neighbors = of.neighbors.iter().map(|neighbor| {
        let texts =
            [&neighbor.system, &neighbor.chassis, &neighbor.port].map(|text| printable(text));
        let [system, chassis, port] = texts;
        let system = if system.is_empty() { "neighbor".into() } else { system };
        format!("{system}, chassis {chassis}, port {port}")
    });
    let found = of.neighbors_found();
    speaker("LLDP", [of.sent, of.shutdowns, of.received, of.aged, of.ended], found, neighbors)
}

fn cdp(of: &HostCdpReport) -> Vec<String> {
    let neighbors = of.neighbors.iter().map(|neighbor| {
        let texts =
            [&neighbor.device, &neighbor.port, &neighbor.platform].map(|text| printable(text));
        let [device, port, platform] = texts;
        format!("{device}, port {port}, platform {platform}")
    });
    let found = of.neighbors_found();
    speaker("CDP", [of.sent, of.shutdowns, of.received, of.aged, of.ended], found, neighbors)
}

/// Lines of a protocol that announces hosts and lists some of the `found` neighbors.
fn speaker(
    protocol: &str,
    [sent, shutdowns, received, aged, ended]: [u64; 5],
    found: u64,
    neighbors: impl Iterator<Item = String>,
) -> Vec<String> {
    let figures = counted(&[
        ("sent", sent),
        ("of the end", shutdowns),
        ("received", received),
        ("neighbors aged", aged),
        ("neighbors ended", ended),
    ]);
    let more = found.saturating_sub(SHOWN as u64);
    let shown = neighbors.take(SHOWN).map(|neighbor| format!("{protocol}: {neighbor}"));
    let mut lines: Vec<_> = [format!("{protocol}: {figures}")].into_iter().chain(shown).collect();
    if more > 0 {
        lines.push(format!("{protocol}: {} more neighbors", human::count(more)));
    }
    lines
}

fn dns(of: &HostDnsReport) -> Vec<String> {
    let figures = counted(&[
        ("asked", of.asked),
        ("answered", of.answered),
        ("empty", of.empty),
        ("NXDOMAIN", of.nxdomain),
        ("truncated", of.truncated),
        ("timeouts", of.timeouts),
        ("repeated", of.retransmissions),
        ("without a server", of.no_server),
        ("unresolved", of.unresolved),
    ]);
    let mut lines = vec![format!("DNS: {figures}")];
    lines.extend(of.time_ns.as_ref().map(|time| format!("question to answer: {}", times(time))));
    for (what, all) in [("errors", &of.failed), ("ignored", &of.ignored)] {
        if !all.is_empty() {
            lines.push(format!("DNS {what}: {}", counts(all)));
        }
    }
    lines
}

/// Neighbors that the summary lists.
const SHOWN: usize = 10;

fn counts(counts: &BTreeMap<String, u64>) -> String {
    let counts: Vec<_> = counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    counted(&counts)
}

/// The counts above 0, with their names.
fn counted(counts: &[(&str, u64)]) -> String {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    let texts: Vec<_> =
        some.map(|(name, count)| format!("{name} {}", human::count(*count))).collect();
    texts.join(", ")
}

fn times(times: &Distribution) -> String {
    let [median, p99, max] = [times.p50, times.p99, times.max].map(|ns| human::ns(ns as f64));
    format!("median {median}, p99 {p99}, max {max}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_shows_its_addresses_failures_and_times() {
        let group = HostsReport {
            name: "subscribers".into(),
            port: "A".into(),
            hosts: 1000,
            started: 1000,
            bound: 990,
            bound_rate: Some(1950.0),
            states: [("bound".into(), 990), ("failed".into(), 10)].into(),
            failed: [("no_offer".into(), 10)].into(),
            sent: [("discover".into(), 1040), ("request".into(), 990)].into(),
            retransmissions: 40,
            ..HostsReport::default()
        };
        let lines = one(&group, 100, false);
        assert_eq!(lines[0], "hosts subscribers on A");
        assert!(lines[1].starts_with("  1,000 of 1,000 started"), "{lines:?}");
        let fixed = HostsReport { name: "hosts 2".into(), sent: [].into(), ..group };
        let fixed = one(&fixed, 100, false);
        assert_eq!(fixed[0], "hosts 2 on A");
        assert!(fixed[1].contains("990 use their address"), "{fixed:?}");
        assert!(
            lines[1].contains("990 got an address (1.95 k/s), 10 failed: no_offer 10"),
            "{lines:?}"
        );
        assert!(lines.iter().any(|line| line.contains("request 990; 40 repeated")), "{lines:?}");
    }

    #[test]
    fn neighbors_that_are_not_shown_are_counted_even_if_the_report_does_not_list_them() {
        let neighbors = vec![Default::default(); 1000];
        let of = HostLldpReport { neighbors, neighbor_count: 4096, ..HostLldpReport::default() };
        let lines = lldp(&of);
        assert_eq!(lines.len(), 1 + SHOWN + 1, "{lines:?}");
        assert_eq!(lines.last().unwrap(), "LLDP: 4,086 more neighbors");
    }
}
