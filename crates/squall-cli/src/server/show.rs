//! `squall hosts show`: the hosts of a live run of a daemon, and one of them with its last events.

use std::process::ExitCode;

use serde_json::from_value;
use squall::Error;
use squall_report::{
    host_table::{
        HOST_ROWS, HostDetail, HostIpv4Row, HostIpv6Row, HostLeaseRow, HostPage, HostRow,
    },
    render::human,
};
use squall_server::{Client, RunRow};
use squall_units::Cannot;

use super::daemon::Daemon;
use crate::{
    output,
    table::{Side, table},
};

/// Show the hosts of a live run of a daemon: all, or one with its last events
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall hosts show                                  # the first 100 hosts of the one live run
  squall hosts show --filter 'state=failed'
  squall hosts show --filter 'group=subscribers address=10.0.1.0/24' --offset 100 --limit 50
  squall hosts show 17                               # host 17, and its last events
  squall hosts show 17 --group subscribers --json

Only runs of a daemon have hosts that can be shown: start one with squall serve, and the run on \
                        its web page, by squall.connect in Python, or by POST /squall/v1/runs.")]
pub struct Args {
    /// Show only host N of its group, from 1, with its last events
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    number: Option<u32>,
    /// Show hosts that match all TERMS: state=, group=, number= (17 or 17-40), mac=, address= (an
    /// address or a network), failure=, or a text without a key that any of them contains. A value
    /// with spaces is in quotes: 'group="hosts 1"'
    #[arg(long, value_name = "TERMS", conflicts_with = "number")]
    filter: Option<String>,
    /// Show only hosts of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Skip N matching hosts
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "number")]
    offset: u64,
    /// Show at most N hosts, up to 10000
    #[arg(long, value_name = "N", default_value_t = HOST_ROWS, conflicts_with = "number")]
    limit: usize,
    /// Show hosts of this run [default: the only live one with hosts]
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn show(args: &Args) -> Result<ExitCode, Error> {
    let client = args.daemon.client()?;
    let run = match &args.run {
        Some(run) => run.clone(),
        None => only_run(&client, ("show", "hosts"), |run| {
            // A run that is not running yet, or that is one of several machines, has no hosts here.
            let page = client.get(&format!("/squall/v1/runs/{}/hosts?limit=1", encoded(run)));
            page.is_ok_and(|page| page["total"].as_u64() > Some(0))
        })?,
    };
    let hosts = format!("/squall/v1/runs/{}/hosts", encoded(&run));
    if let Some(number) = args.number {
        let group = args.group.as_ref().map(|group| format!("?group={}", encoded(group)));
        let found = client.get(&format!("{hosts}/{number}{}", group.unwrap_or_default()))?;
        let text = match args.json {
            true => found.to_string() + "\n",
            false => detail(&from_value(found).map_err(unreadable)?),
        };
        output::print_data(&text);
        return Ok(ExitCode::SUCCESS);
    }
    let mut filter = args.filter.clone().unwrap_or_default();
    if let Some(group) = &args.group {
        filter += &group_term(group);
    }
    let found = client.get(&format!(
        "{hosts}?filter={}&offset={}&limit={}",
        encoded(&filter),
        args.offset,
        args.limit
    ))?;
    let text = match args.json {
        true => found.to_string() + "\n",
        false => page(&from_value(found).map_err(unreadable)?, args.offset),
    };
    output::print_data(&text);
    Ok(ExitCode::SUCCESS)
}

/// A term of a filter for the group with this name, which may have spaces.
fn group_term(group: &str) -> String {
    let quote = if group.contains('"') { '\'' } else { '"' };
    format!(" group={quote}{group}{quote}")
}

/// The only live run for whose ID `has` holds. `action` and `what` are for errors: show hosts.
pub(super) fn only_run(
    client: &Client,
    (action, what): (&str, &str),
    has: impl Fn(&str) -> bool,
) -> Result<String, Error> {
    let runs = client.get("/squall/v1/runs?state=live&limit=1000")?;
    let mut runs: Vec<RunRow> = from_value(runs["runs"].clone()).map_err(unreadable)?;
    runs.retain(|run| has(&run.id));
    let cannot = |why: String, hint: &str| {
        Err(Cannot::new(format!("{action} {what}"), why).with_hint(hint).into())
    };
    match &runs[..] {
        [run] => Ok(run.id.clone()),
        [] => {
            let why = format!("no live run of {} has {what}", client.url());
            cannot(why, "squall top, for its runs")
        }
        all => {
            let names: Vec<_> =
                all.iter().map(|run| format!("{} ({})", run.id, run.name)).collect();
            cannot(format!("several live runs have {what}: {}", names.join(", ")), "--run ID")
        }
    }
}

pub(super) fn unreadable(error: serde_json::Error) -> Error {
    Error::Environment(format!("cannot read the answer of the daemon: {error}"))
}

/// Text as part of a URL (RFC 3986 section 2.1).
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for octet in text.bytes() {
        match octet {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(octet.into());
            }
            _ => out += &format!("%{octet:02X}"),
        }
    }
    out
}

fn page(page: &HostPage, offset: u64) -> String {
    let columns = ["group", "host", "MAC address", "state", "addresses", "gateway", "last failure"];
    let columns = columns.map(|name| (name, if name == "host" { Side::Right } else { Side::Left }));
    let rows: Vec<_> = page.rows.iter().map(row).collect();
    let mut text = table(&columns, &rows);
    let shown = match page.rows.len() as u64 {
        0 => "none".to_owned(),
        rows => format!("{} to {}", human::count(offset + 1), human::count(offset + rows)),
    };
    let (matching, total) = (human::count(page.matching), human::count(page.total));
    text += &match page.matching == page.total {
        true => format!("{shown} of {total} hosts\n"),
        false => format!("{shown} of {matching} matching hosts, {total} in all\n"),
    };
    text
}

fn row(host: &HostRow) -> Vec<String> {
    let gateway = host.ipv4.as_ref().and_then(|of| of.gateway.clone());
    let gateway = gateway.or_else(|| host.ipv6.as_ref().and_then(|of| of.gateway.clone()));
    vec![
        host.group.clone(),
        host.number.to_string(),
        host.mac.clone(),
        host.state.clone(),
        addresses(host).join(" "),
        gateway.unwrap_or_default(),
        host.failure.clone().unwrap_or_default(),
    ]
}

fn addresses(host: &HostRow) -> Vec<String> {
    let ipv4 = host.ipv4.iter().filter_map(|of| of.address.clone());
    let ipv6 = host.ipv6.iter().flat_map(|of| of.addresses.iter().chain(&of.prefix).cloned());
    ipv4.chain(ipv6).collect()
}

fn detail(detail: &HostDetail) -> String {
    let HostDetail { host, events, log_since_s, log_full } = detail;
    let mut text =
        format!("host {} of {} on {}, {}\n", host.number, host.group, host.port, host.mac);
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("  {name:13} {value}\n");
        }
    };
    line("state", &host.state);
    line("802.1X", host.auth.as_deref().unwrap_or_default());
    if let Some(ipv4) = &host.ipv4 {
        line("IPv4", &ipv4_text(ipv4));
        line("  lease", &ipv4.lease.as_ref().map(lease_text).unwrap_or_default());
    }
    if let Some(ipv6) = &host.ipv6 {
        line("IPv6", &ipv6_text(ipv6));
        line("  lease", &ipv6.lease.as_ref().map(lease_text).unwrap_or_default());
    }
    line("last failure", host.failure.as_deref().unwrap_or_default());
    let (sent, received) = (human::count(host.sent), human::count(host.received));
    let repeated = human::count(host.retransmissions);
    line("messages", &format!("{sent} sent, {repeated} of them repeated, {received} received"));
    let rows: Vec<_> = events
        .iter()
        .map(|event| {
            let address = event.address.clone().unwrap_or_default();
            let time = format!("{:.6}", event.time_s);
            vec![time, event.protocol.clone(), event.event.clone(), event.what.clone(), address]
        })
        .collect();
    let columns = ["seconds", "protocol", "event", "", "address"];
    let columns =
        columns.map(|name| (name, if name == "seconds" { Side::Right } else { Side::Left }));
    text += "\n";
    text += &table(&columns, &rows);
    if let (true, Some(since)) = (log_full, log_since_s) {
        text += &format!("the log of the group is full, and begins at {since:.6} s\n");
    }
    text
}

fn ipv4_text(of: &HostIpv4Row) -> String {
    let mut texts = vec![of.address.clone().unwrap_or_else(|| "no address".into())];
    texts.push(of.state.clone());
    texts.extend(gateway_text(of.gateway.as_ref(), of.gateway_mac.as_ref()));
    texts.extend(of.server.as_ref().map(|server| format!("server {server}")));
    texts.join(", ")
}

fn ipv6_text(of: &HostIpv6Row) -> String {
    let mut texts: Vec<_> = of.addresses.iter().chain(&of.link_local).cloned().collect();
    texts.push(of.state.clone());
    texts.extend(of.prefix.as_ref().map(|prefix| format!("prefix {prefix}")));
    texts.extend(gateway_text(of.gateway.as_ref(), of.gateway_mac.as_ref()));
    texts.extend(of.dhcp.as_ref().map(|state| format!("DHCPv6 {state}")));
    texts.join(", ")
}

fn gateway_text(gateway: Option<&String>, mac: Option<&String>) -> Option<String> {
    let mac = mac.map(|mac| format!(" at {mac}")).unwrap_or_default();
    gateway.map(|gateway| format!("gateway {gateway}{mac}"))
}

fn lease_text(lease: &HostLeaseRow) -> String {
    let time = |name: &str, at: Option<f64>| at.map(|at| format!("{name} {at:.3} s"));
    let times = [
        time("T1", lease.renew_s),
        time("T2", lease.rebind_s),
        time("preferred until", lease.preferred_s.filter(|at| Some(*at) != lease.end_s)),
        time("end", lease.end_s),
    ];
    times.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use squall_report::host_table::{HostEventRow, HostFilter, HostKeys};
    use squall_units::MacAddr;

    use super::*;

    fn host() -> HostRow {
        HostRow {
            group: "subscribers".into(),
            number: 17,
            port: "A".into(),
            mac: "02:00:00:00:00:11".into(),
            state: "bound".into(),
            ipv4: Some(HostIpv4Row {
                state: "bound".into(),
                address: Some("10.0.1.16/16".into()),
                gateway: Some("10.0.0.1".into()),
                gateway_mac: Some("02:00:00:00:02:01".into()),
                server: Some("10.0.0.1".into()),
                lease: Some(HostLeaseRow {
                    renew_s: Some(1800.5),
                    rebind_s: Some(3150.5),
                    preferred_s: Some(3600.5),
                    end_s: Some(3600.5),
                }),
            }),
            failure: Some("no_ack".into()),
            sent: 3,
            received: 2,
            retransmissions: 1,
            ..HostRow::default()
        }
    }

    #[test]
    fn a_page_shows_its_place_among_the_hosts() {
        let all = HostPage { total: 1000, matching: 120, rows: vec![host()] };
        let text = page(&all, 100);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("group        host  MAC address"), "{text}");
        assert!(
            lines[1].contains("17  02:00:00:00:00:11  bound  10.0.1.16/16  10.0.0.1"),
            "{text}"
        );
        assert_eq!(lines[2], "101 to 101 of 120 matching hosts, 1,000 in all");
        let none = page(&HostPage { total: 5, ..HostPage::default() }, 0);
        assert!(none.ends_with("none of 0 matching hosts, 5 in all\n"), "{none}");
    }

    #[test]
    fn one_host_shows_its_lease_and_its_last_events() {
        let event = HostEventRow {
            time_s: 0.25,
            protocol: "dhcp".into(),
            event: "received".into(),
            what: "offer".into(),
            address: Some("10.0.1.16".into()),
        };
        let text = detail(&HostDetail {
            host: host(),
            events: vec![event],
            log_since_s: Some(0.2),
            log_full: true,
        });
        for line in [
            "host 17 of subscribers on A, 02:00:00:00:00:11",
            "  IPv4          10.0.1.16/16, bound, gateway 10.0.0.1 at 02:00:00:00:02:01, server \
             10.0.0.1",
            "    lease       T1 1800.500 s, T2 3150.500 s, end 3600.500 s",
            "  last failure  no_ack",
            "  messages      3 sent, 1 of them repeated, 2 received",
            "0.250000  dhcp      received  offer  10.0.1.16",
            "the log of the group is full, and begins at 0.200000 s",
        ] {
            assert!(text.lines().any(|has| has == line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn a_group_whose_name_has_spaces_or_quotes_can_be_selected() {
        for group in ["subscribers", "hosts 1", "the \"best\" hosts", "Ann's hosts"] {
            let filter: HostFilter = group_term(group).parse().unwrap();
            let of = |group| HostKeys {
                group,
                number: 1,
                mac: MacAddr([2, 0, 0, 0, 0, 1]),
                states: Default::default(),
                addresses: &[],
                failure: None,
            };
            assert!(filter.matches(&of(group)) && !filter.matches(&of("hosts")), "{group}");
        }
    }

    #[test]
    fn texts_are_encoded_for_urls() {
        assert_eq!(encoded("state=bound 10.0.1.0/24"), "state%3Dbound%2010.0.1.0%2F24");
    }
}
