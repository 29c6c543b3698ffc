//! Hosts in the summary.

use std::collections::BTreeMap;

use super::human;
use super::table::{Style, printable, wrap};
use crate::report::{Distribution, Report, hosts::HostsReport};

/// Lines for each group of hosts.
pub(super) fn hosts(report: &Report, width: usize, color: bool) -> Vec<String> {
    report.hosts.iter().flat_map(|group| one(group, width, color)).collect()
}

fn one(group: &HostsReport, width: usize, color: bool) -> Vec<String> {
    let title = format!("hosts {} on {}", printable(&group.name), printable(&group.port));
    let mut lines = vec![Style::Bold.paint(&title, color)];
    let mut line = |text: String| lines.extend(wrap(&format!("  {text}"), width, 4));
    let failed: u64 = group.failed.values().sum();
    let mut head = format!(
        "{} of {} started, {} got an address",
        human::count(group.started),
        human::count(group.hosts),
        human::count(group.bound)
    );
    if let Some(rate) = group.bound_rate {
        head += &format!(" ({})", human::si(rate, "/s"));
    }
    if failed > 0 {
        head += &format!(", {} failed: {}", human::count(failed), counts(&group.failed));
    }
    line(head);
    line(format!("state: {}", counts(&group.states)));
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
    lines
}

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
        assert!(
            lines[1].contains("990 got an address (1.95 k/s), 10 failed: no_offer 10"),
            "{lines:?}"
        );
        assert!(lines.iter().any(|line| line.contains("request 990; 40 repeated")), "{lines:?}");
    }
}
