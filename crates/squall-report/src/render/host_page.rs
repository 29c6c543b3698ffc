//! Hosts and routers in the HTML page: a table of the figures that users look up first, and all
//! lines of the summary.

use super::{
    human,
    page::{escape, table},
    routers::SessionTotals,
    text,
};
use crate::report::{Distribution, Report, hosts::HostsReport, routers::RouterReport};

/// Width of the summary's lines: the browser breaks them where the page ends.
const NO_LIMIT: usize = usize::MAX;

pub(super) fn hosts(report: &Report, page: &mut String) {
    if report.hosts.is_empty() {
        return;
    }
    let columns = [
        "Group",
        "Port",
        "Hosts",
        "Started",
        "IPv4 addresses",
        "IPv6 addresses",
        "To address p50",
        "p99",
        "Failed over IPv4",
        "Failed over IPv6",
        "Echo sent",
        "Lost",
        "RTT p50",
        "RTT p99",
    ];
    let rows: Vec<_> = report.hosts.iter().map(of_group).collect();
    table("Hosts", &columns, &rows, page);
    lines("Hosts in detail", &super::hosts::hosts(report, NO_LIMIT, false), page);
}

pub(super) fn routers(report: &Report, page: &mut String) {
    if report.routers.is_empty() {
        return;
    }
    let columns = [
        "Router",
        "Port",
        "Daemon",
        "Frames sent",
        "Received",
        "Dropped",
        "Sessions",
        "Up",
        "Went down",
        "Routes learnt",
        "Announced",
        "Flaps",
        "Steps",
    ];
    let rows: Vec<_> = report.routers.iter().map(of_router).collect();
    table("Routers", &columns, &rows, page);
    lines("Routers in detail", &super::routers::routers(report, NO_LIMIT, false), page);
}

fn of_group(group: &HostsReport) -> Vec<String> {
    let ipv6 = group.ipv6.as_ref();
    let pppoe = group.pppoe.as_ref().and_then(|of| of.open_ns.as_ref());
    let to_address =
        group.dora_ns.as_ref().or(pppoe).or_else(|| ipv6.and_then(|of| of.address_ns.as_ref()));
    let rtt = group.echo.rtt_ns.as_ref();
    let nanos = |times: Option<&Distribution>, of: fn(&Distribution) -> u64| {
        times.map_or_else(String::new, |times| human::ns(of(times) as f64))
    };
    vec![
        group.name.clone(),
        group.port.clone(),
        human::count(group.hosts),
        human::count(group.started),
        human::count(group.bound),
        ipv6.map_or_else(String::new, |of| human::count(of.addresses)),
        nanos(to_address, |times| times.p50),
        nanos(to_address, |times| times.p99),
        text::reasons(&group.failed),
        ipv6.map_or_else(String::new, |of| text::reasons(&of.failed)),
        human::count(group.echo.sent),
        human::count(group.echo.lost),
        nanos(rtt, |rtt| rtt.p50),
        nanos(rtt, |rtt| rtt.p99),
    ]
}

fn of_router(router: &RouterReport) -> Vec<String> {
    let totals = SessionTotals::of(router);
    vec![
        router.name.clone(),
        router.port.clone(),
        router.daemon.clone(),
        human::count(router.sent),
        human::count(router.received),
        human::count(router.dropped),
        human::count(totals.sessions),
        human::count(totals.up),
        human::count(router.downs),
        human::count(totals.imported),
        human::count(totals.exported),
        human::count(router.groups.iter().map(|group| group.flaps).sum()),
        human::count(router.steps.len() as u64 + router.more_steps),
    ]
}

/// Appends a section with lines of the summary.
/// A section of lines as the summary has them.
pub(super) fn lines(heading: &str, lines: &[String], page: &mut String) {
    *page += &format!(
        "<section><h2>{}</h2><pre class=\"command file\">{}</pre></section>\n",
        escape(heading),
        escape(&lines.join("\n"))
    );
}

#[cfg(test)]
mod tests {
    use super::super::{html, sample};
    use super::*;
    use crate::report::{
        hosts::HostIpv6Report,
        routers::{RouterProtocolReport, RouterStepReport},
    };

    #[test]
    fn a_page_shows_the_hosts_and_routers_of_its_report() {
        let ipv6 = HostIpv6Report {
            addresses: 988,
            failed: [("no_advertise".into(), 12)].into(),
            ..HostIpv6Report::default()
        };
        let group = HostsReport {
            name: "<i>subscribers".into(),
            port: "A".into(),
            hosts: 1000,
            started: 1000,
            bound: 997,
            states: [("bound".into(), 997), ("failed".into(), 3)].into(),
            failed: [("no_offer".into(), 3)].into(),
            dora_ns: Some(Distribution { count: 997, p99: 4_500_000, ..Distribution::default() }),
            ipv6: Some(ipv6),
            ..HostsReport::default()
        };
        let session = RouterProtocolReport {
            name: "bgp1".into(),
            kind: "BGP".into(),
            state: "Established".into(),
            up: true,
            imported: 77_000,
            ..RouterProtocolReport::default()
        };
        let router = RouterReport {
            name: "<i>edge".into(),
            port: "B".into(),
            daemon: "BIRD".into(),
            protocols: vec![session],
            steps: vec![RouterStepReport {
                action: "down".into(),
                neighbor: Some("<b>10.0.0.2".into()),
                ..RouterStepReport::default()
            }],
            ..RouterReport::default()
        };
        let report = Report { hosts: vec![group], routers: vec![router], ..sample::report(1) };
        let page = html(&report);
        for shown in [
            "<h2>Hosts</h2>",
            "&lt;i&gt;subscribers",
            "<td>997",
            "<td>988",
            "<td>4.50 ms",
            "<td>no_offer 3",
            "<td>no_advertise 12",
            "state: bound 997, failed 3",
            "<h2>Routers</h2>",
            "&lt;i&gt;edge",
            "<td>77,000",
            "bgp1: Established",
            "down &lt;b&gt;10.0.0.2 at",
        ] {
            assert!(page.contains(shown), "{shown}");
        }
        assert!(!page.contains("<i>subscribers") && !page.contains("<i>edge"));
        let without = html(&sample::report(1));
        assert!(!without.contains("<h2>Hosts") && !without.contains("<h2>Routers"));
    }
}
