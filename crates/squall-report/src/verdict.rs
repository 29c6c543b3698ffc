//! The generator's audit of itself. It reads the [`SourceRecord`]s of a report, the counters of its
//! ports, and [`Facts`] that the report does not contain: errors of ports, clocks that differ,
//! stretched schedules.
//!
//! VALID implies that the generator cannot have caused the measured results: in no window was the
//! load above the requested one by more than a stated excess, at most 0.1 % of the due frames are
//! missing, and the requested work was done. Effects of the load on a device are not considered.
//! docs/guide/measuring.md explains the same rules to users.

use std::fmt;

use crate::{
    render::{human, reasons},
    report::{
        EndedBy, PortReport, Reason, ReasonCode, Report, Verdict,
        flows::LinkReport,
        hosts::HostsReport,
        routers::RouterReport,
        source::{Excess, SourceKind, SourceRecord},
    },
};

/// Minimum time that counts; shorter times are not significant.
const MIN_S: f64 = 0.001;
/// Surplus of frames or flows in a window that is not a burst, even for the slowest source.
const ALLOWED_FRAMES: u64 = 2;
/// Fraction of the due frames that may be missing.
const DEFICIT: f64 = 0.001;
/// Maximum time by which a run may end after its schedule, as a fraction of its duration ...
const ALLOWED_LAG: f64 = 0.001;
/// ... and in seconds, for short runs. Virtual machines occasionally stall for 1 to 8 ms.
const SHORT_ALLOWED_LAG: f64 = 0.01;
const MAX_SHORT_ALLOWED_LAG_S: f64 = 0.010;
/// Maximum time in which the thread of a run at full speed may be ready to run without a CPU, as a
/// fraction of the duration ...
const STARVED: f64 = 0.05;
/// ... and in seconds, for short runs.
const SHORT_STARVED_S: f64 = 0.010;

/// Facts that are not in the report.
pub struct Facts {
    pub ended_by: EndedBy,
    /// Errors of ports: name, or name and direction, and the message.
    pub lost: Vec<(String, String)>,
    /// Streams, each with the number of frames that arrived before they were sent.
    pub early: Vec<(String, u64)>,
    /// Streams whose schedule was stretched, with the time in seconds.
    pub stretched: Vec<(String, f64)>,
    /// Whether each port receives.
    pub receives: Vec<bool>,
    /// Length of the longest sent frame, octets without FCS; `None`: unknown.
    pub longest_frame: Option<u32>,
    /// Streams from which a frame arrived that was never sent: the frame's sequence number, and the
    /// number of frames due.
    pub unsent: Vec<(String, u64, u64)>,
    pub machine: String,
}

pub fn judge(report: &Report, facts: &Facts) -> Verdict {
    let mut verdict = Verdict { ended_by: facts.ended_by, ..Verdict::default() };
    let duration = report.duration_s;
    for source in &report.sources {
        // A device is exposed to the traffic of the whole port. If the port was audited, its
        // sources only explain the verdict.
        let of_it = |port: &&PortReport| source.ports.contains(&port.name);
        let pacing = report.ports.iter().filter(of_it).filter_map(|port| port.tx.pacing.as_ref());
        let lag_s = pacing.map(|pacing| pacing.lag_s).reduce(f64::max);
        judge_source(source, duration, lag_s, &mut verdict);
    }
    for port in &report.ports {
        judge_pacing(port, report, &mut verdict);
    }
    let stopped =
        matches!(facts.ended_by, EndedBy::Running | EndedBy::Stopped | EndedBy::Criterion)
            || facts.ended_by.signal().is_some();
    if !stopped && nothing_sent(report) {
        verdict.add_reason(
            ReasonCode::NotDone,
            "nothing was sent".into(),
            "run squall plan to see what is due and when",
        );
    }
    report.hosts.iter().for_each(|group| judge_hosts(group, stopped, &mut verdict));
    report.routers.iter().for_each(|router| judge_router(router, stopped, &mut verdict));
    let unsent = report.streams.iter().filter(|stream| stream.tx_packets == 0 && !stopped);
    for stream in unsent {
        let of = |reason: &str| stream.not_sent.get(reason);
        let frames = without_host(of);
        // A stream without a rate has such a reason, but no number of frames.
        if frames > 0 || of(NO_HOST).or(of(NO_ROUTE)).is_some() {
            let (why, reason) = match of(NO_ROUTE) > of(NO_HOST) {
                true => ("the router had learnt no route", NO_ROUTE),
                false => ("no host had an address", NO_HOST),
            };
            let name = &stream.name;
            let what = match frames {
                0 => "nothing".to_owned(),
                _ => format!("none of {frames} frames"),
            };
            let text = format!("stream {name:?}: {what} was sent: {why}");
            verdict.add_reason(ReasonCode::NotDone, text, not_begun_hint(reason).unwrap_or(""));
        }
    }
    for attack in report.attacks.iter().filter(|_| !stopped) {
        let all = attack.attacks + attack.near_misses;
        let of = |reason: &str| attack.unsent.get(reason).copied().unwrap_or_default();
        // The run may have ended before the others were due.
        if of(NO_HOST) > 0 && of(NO_HOST) + of("not_begun") >= all {
            let text = format!(
                "attack {:?}: none of {all} attacks was sent: no host had an address",
                attack.name
            );
            verdict.add_reason(ReasonCode::NotDone, text, not_begun_hint(NO_HOST).unwrap_or(""));
        }
    }
    for (name, seconds) in facts.stretched.iter().filter(|(_, seconds)| *seconds > behind(duration))
    {
        let text =
            format!("stream {name:?}: its schedule was stretched by {:.1} ms", seconds * 1e3);
        verdict.add_reason(ReasonCode::GeneratorBound, text, "");
    }
    for (name, frames) in &facts.early {
        let text = format!(
            "stream {name:?}: {frames} frames arrived before they were sent; latency excludes them"
        );
        verdict.add_reason(ReasonCode::ClocksDiffer, text, "");
    }
    for (name, number, due) in &facts.unsent {
        let text = format!(
            "stream {name:?}: frame number {number} arrived, but only {due} were due: another run \
             with this seed is received, too"
        );
        let hint = "a seed of its own for each run (without --seed each has one)";
        verdict.add_reason(ReasonCode::CountersDiffer, text, hint);
    }
    for (port, error) in &facts.lost {
        verdict.add_reason(ReasonCode::PortLost, format!("{port}: {error}"), "");
    }
    for link in report.flows.iter().flat_map(|flows| &flows.links) {
        judge_link(link, &mut verdict);
    }
    for (port, receives) in report.ports.iter().zip(&facts.receives) {
        judge_port(port, *receives, report, &mut verdict);
    }
    // After all ports: reasons about links that were down then concern only receiving.
    for (port, _) in report.ports.iter().zip(&facts.receives).filter(|(_, receives)| **receives) {
        judge_receiver(port, facts.longest_frame, duration, &mut verdict);
    }
    let starved = |reason: &&mut Reason| reason.code == ReasonCode::Starved;
    if let Some(first) = verdict.reasons.iter_mut().find(starved) {
        first.text += &facts.machine;
    }
    if report.cut_short {
        verdict.interrupt();
    }
    verdict
}

/// Judges whether a group of hosts did its work. In a run that goes on or was stopped,
/// hosts that still wait have not failed.
fn judge_hosts(group: &HostsReport, stopped: bool, verdict: &mut Verdict) {
    // Hosts have addresses of IPv4, of IPv6, or both.
    let ipv6 = group.ipv6.as_ref();
    let addresses = group.bound + ipv6.map_or(0, |of| of.addresses);
    let mut reasons_failed = group.failed.clone();
    for (reason, n) in ipv6.into_iter().flat_map(|of| &of.failed) {
        *reasons_failed.entry(reason.clone()).or_default() += n;
    }
    let failed: u64 = reasons_failed.values().sum();
    let name = &group.name;
    // Hosts without any address have other work, such as memberships, or only authenticate.
    let by_address = ipv6.is_some() || !group.states.is_empty();
    let (what, done) = match group.auth.as_ref().filter(|_| !by_address) {
        Some(auth) => ("was authenticated", auth.authenticated),
        None => ("got an address", addresses),
    };
    let wanted = by_address || group.auth.is_some() || failed > 0;
    if wanted && group.started > 0 && done == 0 && (!stopped || failed >= group.hosts) {
        let most =
            reasons_failed.iter().max_by_key(|(_, n)| **n).map(|(reason, _)| reason.as_str());
        let hint = no_address_hint(group, most);
        let why = reasons(&reasons_failed);
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let text = format!("hosts {name:?}: none of {} {what}{why}", group.started);
        verdict.add_reason(ReasonCode::NotDone, text, hint);
    }
    if let Some(dns) = group.dns.as_ref().filter(|_| !stopped) {
        let outcomes = dns.time_ns.as_ref().map_or(0, |time| time.count);
        if dns.asked + dns.no_server + dns.unresolved > 0 && outcomes == 0 {
            let asked = dns.asked + dns.no_server + dns.unresolved;
            let text = format!("hosts {name:?}: none of {asked} DNS questions was answered");
            let hint = match dns.no_server {
                0 => "check the DNS server's address, and that it has a route back to the hosts",
                _ => "a DNS server (dns_server); that of DHCP is missing, or out of reach",
            };
            verdict.add_reason(ReasonCode::NotDone, text, hint);
        }
    }
    let echo = &group.echo;
    let over = !stopped || (failed == 0 && echo.lost == echo.sent);
    if echo.received == 0 && echo.sent > 0 && over {
        let text = format!("hosts {name:?}: none of {} echo requests was answered", echo.sent);
        let hint = "check the target's address, and that it has a route back to the hosts";
        verdict.add_reason(ReasonCode::NotDone, text, hint);
    } else if echo.sent == 0 && echo.unresolved > 0 {
        let text =
            format!("hosts {name:?}: no echo request was sent: the next hop has no MAC address");
        let hint = "check the target or --gateway (nothing answered ARP for it)";
        verdict.add_reason(ReasonCode::NotDone, text, hint);
    }
}

/// The remedy if no host of a group got an address. `most` is the most frequent reason.
fn no_address_hint(group: &HostsReport, most: Option<&str>) -> &'static str {
    // Hosts ask for an address only after they have been authenticated.
    let unauthenticated = group.auth.as_ref().is_some_and(|auth| auth.authenticated == 0);
    match most {
        Some("conflict" | "duplicate") => "other addresses: hosts on the link have these",
        _ if unauthenticated => {
            "check that an authenticator is on this link, and the identity and password"
        }
        Some("no_pado" | "no_pads") => {
            "check that an access concentrator is on this link and in this VLAN"
        }
        Some("auth_rejected" | "auth_timeout" | "no_auth_method") if group.pppoe.is_some() => {
            "check the identity, the password and the methods of both ends"
        }
        Some("no_router" | "no_prefix") => "check that a router advertises a prefix on this link",
        _ if group.pppoe.is_some() => "check the settings and the log of the access concentrator",
        Some("nak" | "no_ack") => "check the pool of the DHCP server: it refused the requests",
        _ => "check that a DHCP server is on this link and in this VLAN",
    }
}

/// Judges whether a router lived as long as the run, reported its states, and had a session. In a
/// run that goes on or was stopped, sessions that are not up yet have not failed.
fn judge_router(router: &RouterReport, stopped: bool, verdict: &mut Verdict) {
    let RouterReport { name, daemon, protocols, .. } = router;
    if let Some(why) = &router.failed {
        let text = format!("router {name:?}: {daemon} ended: {why}");
        verdict.add_reason(ReasonCode::NotDone, text, "check its configuration");
        return;
    }
    let mut failed = router.steps.iter().filter_map(|step| Some((step, step.error.as_ref()?)));
    if let Some((step, why)) = failed.next() {
        let mut text =
            format!("router {name:?}: {} at {:.1} s failed: {why}", step.action, step.due_s);
        let more = failed.count();
        if more > 0 {
            text += &format!(", and {more} more");
        }
        verdict.add_reason(ReasonCode::NotDone, text, "");
    }
    // Each reply has the memory, also that of a daemon without protocols.
    let is_native = router.sessions.is_some();
    if protocols.is_empty() && router.memory.unwrap_or(0) == 0 && !is_native && !stopped {
        let text = format!("router {name:?}: {daemon} never reported its states");
        // The path of a socket has at most 107 octets (unix(7)).
        verdict.add_reason(ReasonCode::NotDone, text, "a longer run, or a shorter TMPDIR");
    }
    let sessions = || protocols.iter().filter(|of| ["BGP", "OSPF", "IS-IS"].contains(&&*of.kind));
    // A native router with many sessions lists only those that are not up.
    let others_up = router.sessions.as_ref().is_some_and(|sums| sums.up.max(sums.ever_up) > 0);
    let none_up = !others_up && sessions().all(|protocol| protocol.up_after_s.is_none());
    if none_up && sessions().count() > 0 && !stopped {
        let states = sessions().map(|one| format!("{} is {}", one.name, one.state)).take(10);
        let states = states.collect::<Vec<_>>().join(", ");
        let text = format!("router {name:?}: no session came up: {states}");
        let hint = "a longer run, and check the addresses and autonomous systems of both ends";
        verdict.add_reason(ReasonCode::NotDone, text, hint);
    }
}

/// Judges frames that this side lost or did not answer; peers see these as loss.
fn judge_link(link: &LinkReport, verdict: &mut Verdict) {
    for (counter, code, what, hint) in [
        (
            "relay_dropped",
            ReasonCode::ReceiverBound,
            "frames were dropped between workers",
            "fewer --cores, or a port that gives each worker its own (af_packet)",
        ),
        (
            "accept_full",
            ReasonCode::ReceiverBound,
            "attempts of clients to open a flow found the table of flows full",
            "a higher max_flows in [flows] (--max-flows), a smaller load, flows that end sooner, or \
             a shorter time_wait or udp_idle",
        ),
        (
            "too_long",
            ReasonCode::PortRefused,
            "packets did not fit the port's frames and were not sent",
            "a smaller mtu in the network of this side",
        ),
    ] {
        let n = link.counters.get(counter).copied().unwrap_or(0);
        if n > 0 {
            verdict.add_reason(code, format!("port {}: {n} {what}", link.port), hint);
        }
    }
}

/// Reasons of frames and flows for which no host had an address and the MAC address of its gateway,
/// and of frames whose host has lost its address, or whose access concentrator has no session.
const NO_HOST: &str = "no_host";
const ADDRESS_LOST: &str = "address_lost";
const NO_SESSION: &str = "no_session";
/// The same for frames to learnt routes: the router had none.
const NO_ROUTE: &str = "no_route";

fn without_host<'a>(not_sent: impl Fn(&str) -> Option<&'a u64>) -> u64 {
    let reasons = [NO_HOST, ADDRESS_LOST, NO_SESSION, NO_ROUTE];
    reasons.into_iter().filter_map(not_sent).sum()
}

fn nothing_sent(report: &Report) -> bool {
    !report.sources.is_empty()
        && report.sources.iter().all(|source| source.sent == 0 && source.asked == 0)
}

/// Time by which a run of this duration may end after its schedule, seconds.
pub fn behind(duration_s: f64) -> f64 {
    (duration_s * ALLOWED_LAG)
        .max((duration_s * SHORT_ALLOWED_LAG).clamp(MIN_S, MAX_SHORT_ALLOWED_LAG_S))
}

/// Position of a source in its schedule during the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    pub name: &'a str,
    /// `packets` or `flows`.
    pub unit: &'a str,
    /// Number due up to now, and number of these that were sent.
    pub due: u64,
    pub sent: u64,
    /// Time by which the source is late.
    pub lag_s: f64,
    /// Whether more is late or missing than the verdict allows.
    pub is_behind: bool,
}

impl Report {
    /// The progress of all sources with a schedule.
    pub fn progress(&self) -> impl Iterator<Item = Progress<'_>> {
        let elapsed = self.duration_s;
        self.sources.iter().filter(|source| !source.unpaced).map(move |source| {
            // `asked` counts only frames that were sent or never will be. The number of frames that
            // are still late follows from the rate and the lag.
            let scheduled_s = elapsed - source.lag_s;
            let kept = if scheduled_s > 0.0 { source.sent as f64 / scheduled_s } else { 0.0 };
            let owed = source.lag_s * source.asked_rate.unwrap_or(kept);
            let missing: u64 = source.not_sent.values().sum();
            let own = missing - without_host(|reason| source.not_sent.get(reason));
            Progress {
                name: &source.name,
                unit: &source.unit,
                due: source.sent + missing + owed.round() as u64,
                sent: source.sent,
                lag_s: source.lag_s,
                is_behind: source.lag_s > behind(elapsed)
                    || own as f64 > source.asked as f64 * DEFICIT,
            }
        })
    }
}

/// `port_lag_s` is the lag of the port clock at the end, if the ports are audited.
fn judge_source(
    source: &SourceRecord,
    duration: f64,
    port_lag_s: Option<f64>,
    verdict: &mut Verdict,
) {
    let flows = source.unit == "flows";
    let name = match flows {
        true => format!("template {:?}", source.name),
        false => format!("port {}", source.name),
    };
    let mut add =
        |code, text: String, hint: &str| verdict.add_reason(code, format!("{name}: {text}"), hint);
    let limit = limit(source, duration);
    let advice = |code| if code == ReasonCode::Starved { STARVED_HINT } else { "" };
    let mut reported = false;
    // The state of the hosts is a result of the run, not a fault of the generator, unless it left
    // nothing of the work; that is judged for each stream.
    let excused = |reason: &str| {
        [ADDRESS_LOST, NO_SESSION, NO_ROUTE].contains(&reason)
            || reason == NO_HOST && (source.sent > 0 || !flows)
    };
    let counted = source.not_sent.iter().filter(|(reason, _)| !excused(reason));
    for (code, reasons) in missed(counted, limit) {
        let missing: u64 = reasons.iter().map(|r| r.1).sum();
        let forgiven = matches!(
            code,
            ReasonCode::GeneratorBound | ReasonCode::PortBound | ReasonCode::Starved
        );
        if forgiven && missing as f64 <= source.asked as f64 * DEFICIT {
            continue;
        }
        let why: Vec<_> = reasons.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
        let (text, hint) = match flows {
            true => {
                let text = format!(
                    "{missing} of {} flows were due and did not start ({})",
                    source.asked,
                    why.join(", ")
                );
                (text, reasons.iter().find_map(|(reason, _)| not_begun_hint(reason)).unwrap_or(""))
            }
            false => {
                let were = if missing == 1 { "frame was" } else { "frames were" };
                (format!("{missing} {were} due and not sent ({})", why.join(", ")), advice(code))
            }
        };
        add(code, with_starved(text, code, source), hint);
        reported |= forgiven;
    }
    // Not if missing frames were already reported, or if the port lagged as much: the port's reason
    // then covers all of its sources.
    let own_lag = port_lag_s.is_none_or(|lag_s| source.lag_s > lag_s);
    if !reported && own_lag && source.lag_s > behind(duration) {
        let text = format!("it ended {:.1} ms later than scheduled", source.lag_s * 1e3);
        add(limit, with_starved(text, limit, source), advice(limit));
    }
    let beyond = |excess: &Excess| {
        excess.beyond_s > excess.allowed_s && excess.surplus_packets > ALLOWED_FRAMES
    };
    if let Some(excess) = source.excess.filter(beyond).filter(|_| port_lag_s.is_none()) {
        add(
            ReasonCode::Burst,
            with_starved(burst(&excess, &source.unit), ReasonCode::Burst, source),
            BURST_HINT,
        );
    }
    if source.unread_s > behind(duration) {
        let text = format!(
            "nothing was sent in the last {:.1} ms: captures were not read in time",
            source.unread_s * 1e3
        );
        add(ReasonCode::GeneratorBound, text, "--preload");
    }
    if source.one_sided > 0 {
        let text = format!(
            "the capture has only one direction of {} conversations: octets that were not \
             captured are not compared",
            source.one_sided
        );
        add(
            ReasonCode::OneSided,
            text,
            "a capture of both directions, or replay it without --stateful",
        );
    }
    if let Some(fault) = &source.fault {
        add(ReasonCode::NotDone, format!("a capture was not sent to its end: {fault}"), "");
    }
    if source.unpaced && source.starved_s > (duration * STARVED).max(SHORT_STARVED_S) {
        let text = "it sends as fast as it can, and its CPU was taken".to_owned();
        add(ReasonCode::Starved, with_starved(text, ReasonCode::Starved, source), STARVED_HINT);
    }
    // Flows that are still open after the drain time have an unknown outcome, so they do not count.
    let failed = || source.failed.iter().filter(|(reason, _)| *reason != "stopped");
    let count: u64 = failed().map(|(_, n)| n).sum();
    if source.kind == SourceKind::Flows
        && count > 0
        && source.completed == Some(0)
        && count == source.sent
    {
        let why: Vec<_> = failed().map(|(reason, n)| format!("{reason} {n}")).collect();
        let hint = failed().max_by_key(|(_, n)| **n).map_or("", |(reason, _)| failed_hint(reason));
        add(
            ReasonCode::NotDone,
            format!("none of {count} flows completed ({})", why.join(", ")),
            hint,
        );
    }
}

/// Judges the departures of a port, over all its sources, against the load that was due.
fn judge_pacing(port: &PortReport, report: &Report, verdict: &mut Verdict) {
    let Some(pacing) = &port.tx.pacing else { return };
    let sources = report.sources.iter().filter(|source| source.ports.contains(&port.name));
    let starved = sources.max_by(|a, b| a.starved_s.total_cmp(&b.starved_s));
    let explained = |text: String, code| match starved {
        Some(source) => with_starved(text, code, source),
        None => text,
    };
    if let Some(since) = pacing.catching_up_since_s {
        let code = starved.map_or(ReasonCode::GeneratorBound, |s| limit(s, report.duration_s));
        let text = format!(
            "port {}: at {since:.3} s it was too late to keep to the schedule ({:.1} ms of delay \
             in the run); from then on frames left at up to twice the rate",
            port.name,
            pacing.moved_s * 1e3
        );
        let hint = if code == ReasonCode::Starved { STARVED_HINT } else { "" };
        verdict.add_reason(code, explained(text, code), hint);
        return;
    }
    if pacing.lag_s > behind(report.duration_s) {
        let code = starved.map_or(ReasonCode::GeneratorBound, |s| limit(s, report.duration_s));
        let text = format!(
            "port {}: it ended {:.1} ms later than scheduled",
            port.name,
            pacing.lag_s * 1e3
        );
        let hint = if code == ReasonCode::Starved { STARVED_HINT } else { "" };
        verdict.add_reason(code, explained(text, code), hint);
    }
    if pacing.surplus() > pacing.allowed {
        let text = format!(
            "port {}: {} {} left in {:.1} ms at {:.3} s, {} more than were due in such a time ({} \
             allowed)",
            port.name,
            pacing.left,
            pacing.unit,
            pacing.over_s * 1e3,
            pacing.at_s,
            pacing.surplus(),
            pacing.allowed
        );
        verdict.add_reason(ReasonCode::Burst, explained(text, ReasonCode::Burst), BURST_HINT);
    }
}

const BURST_HINT: &str =
    "give the sender its own CPU (--cpus), and leave --late at smooth (catch-up makes bursts)";
const STARVED_HINT: &str = "free a CPU, raise the quota, use --cpus, or a lower rate (--mult)";

fn burst(excess: &Excess, unit: &str) -> String {
    format!(
        "{} {unit} left in {:.1} ms at {:.3} s, {} more than were due in such a time (excess of \
         {:.1} ms, {:.1} allowed)",
        excess.packets,
        excess.over_s * 1e3,
        excess.at_s,
        excess.surplus_packets,
        excess.beyond_s * 1e3,
        excess.allowed_s * 1e3,
    )
}

/// If the sender was starved, adds the time without a CPU to the text.
fn with_starved(text: String, code: ReasonCode, source: &SourceRecord) -> String {
    match code {
        ReasonCode::Starved | ReasonCode::Burst if source.starved_s > 0.0 => format!(
            "{text}; its thread had to wait for its CPU for {:.2} s, up to {:.1} ms at a time",
            source.starved_s,
            source.longest_stall_s * 1e3,
        ),
        _ => text,
    }
}

fn not_begun_hint(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "unresolved" => {
            "check --gateway, the peer and its address (nothing answers ARP or neighbor discovery \
             for the next hop)"
        }
        "ports_exhausted" => {
            "more --clients, or a shorter time_wait (all addresses and ports of the clients are in \
             use)"
        }
        "limit" => "a higher active_limit (as many flows are open as it allows)",
        "full" => {
            "a higher max_flows in [flows] (--max-flows), a smaller load, or flows that end sooner \
             (the table of flows is full)"
        }
        "disabled" => "clients that are enabled (too many in a row begin no flow)",
        NO_HOST => {
            "a later start, or check the hosts' server and gateway (no host has an address and the \
             MAC address of its gateway)"
        }
        NO_ROUTE => {
            "a later start, or check the router's session and what its neighbor announces (it has \
             learnt no route of this IP version)"
        }
        _ => return None,
    })
}

fn failed_hint(reason: &str) -> &'static str {
    match reason {
        "reset" => {
            "check that a server listens on that port, and that no host has the addresses of \
             --clients (a host resets connections that it did not open)"
        }
        "refused" => "start the servers (nothing listens on that port)",
        "connect_timeout" => "check the route back to the clients (no answer arrived)",
        "unreachable" => "check the gateway and the routes of routers (a router has no route)",
        ADDRESS_LOST => "check the server of the hosts (their leases ended during the run)",
        "unfinished" | "aborted" => {
            "look at protocol_errors (the server's answers differ from the flow program; \
             closed_early: it closes connections before the last request, so try fewer --requests)"
        }
        _ => "look at the template's failures and protocol errors",
    }
}

/// Cause of missing frames: the lack of a CPU, the port (if it was full or accepting frames for
/// more than half of the run), or the sender itself.
fn limit(source: &SourceRecord, duration_s: f64) -> ReasonCode {
    let unhosted = without_host(|reason| source.not_sent.get(reason));
    let own = source.not_sent.values().sum::<u64>() - unhosted;
    let missing = own as f64 / source.asked.max(1) as f64;
    let missing = missing.max(source.lag_s / duration_s.max(1e-9));
    if source.starved_s > duration_s * missing / 2.0 && source.starved_s > MIN_S {
        ReasonCode::Starved
    } else if source.blocked_s.max(source.sending_s - source.starved_s) > duration_s / 2.0 {
        ReasonCode::PortBound
    } else {
        ReasonCode::GeneratorBound
    }
}

/// Describes by cause the frames that were not sent. `bound` is the bottleneck that was found.
fn missed<'a>(
    not_sent: impl Iterator<Item = (&'a String, &'a u64)>,
    bound: ReasonCode,
) -> Vec<(ReasonCode, Vec<(&'a str, u64)>)> {
    let mut by_code: Vec<(ReasonCode, Vec<(&str, u64)>)> = Vec::new();
    for (reason, &count) in not_sent.filter(|(_, count)| **count > 0) {
        let code = match reason.as_str() {
            "late" => bound,
            "full" => ReasonCode::GeneratorBound,
            "port_full" => ReasonCode::PortBound,
            "port_lost" => ReasonCode::PortLost,
            "link_down" => ReasonCode::LinkDown,
            "unresolved" | "ports_exhausted" | "limit" | "disabled" | NO_HOST | "after_the_end" => {
                ReasonCode::NotDone
            }
            _ => ReasonCode::PortRefused,
        };
        match by_code.iter_mut().find(|(c, _)| *c == code) {
            Some((_, list)) => list.push((reason, count)),
            None => by_code.push((code, vec![(reason, count)])),
        }
    }
    by_code
}

fn judge_port(port: &PortReport, receives: bool, report: &Report, verdict: &mut Verdict) {
    let dropped: u64 = port.rx.drops.values().sum();
    if dropped > 0 {
        let blame = if report.streams.iter().any(|s| s.tx_packets > 0) {
            ""
        } else {
            ": loss is an upper bound"
        };
        let text = format!("port {} lost {dropped} frames before they were read{blame}", port.name);
        verdict.add_reason(ReasonCode::ReceiverBound, text, "");
    }
    // Streams and captures report this themselves. For flows, only the port has the number.
    let unlinked = port.tx.not_sent.get("link_down").copied().unwrap_or(0);
    if unlinked > 0 && !verdict.has(ReasonCode::LinkDown) {
        let were = if unlinked == 1 { "frame was" } else { "frames were" };
        verdict.add_reason(
            ReasonCode::LinkDown,
            format!("port {}: {unlinked} {were} lost as its link was down", port.name),
            "",
        );
    }
    let Some(interface) = &port.interface else { return };
    let (tx_surplus, rx_surplus) = port.interface_surplus().unwrap_or_default();
    if tx_surplus < 0 {
        let text = format!(
            "port {} took {} frames, its interface sent {}",
            port.name, port.tx.packets, interface.tx_packets
        );
        verdict.add_reason(ReasonCode::CountersDiffer, text, "");
    }
    // With a filter, the interface counts more frames than are read.
    if report.filter.is_none() && receives && rx_surplus > 0 {
        let text = format!(
            "interface of port {} received {} frames, {} were read or counted as dropped",
            port.name,
            interface.rx_packets,
            port.rx.packets + dropped
        );
        verdict.add_reason(ReasonCode::CountersDiffer, text, "");
    }
}

/// Whether a receiving port could receive during the whole run.
fn judge_receiver(port: &PortReport, longest: Option<u32>, duration: f64, verdict: &mut Verdict) {
    let mut add = |code, text: String, hint: &str| {
        verdict.add_reason(code, format!("port {}: {text}", port.name), hint);
    };
    let states = port.link_events.iter().map(|event| (event.t_s, !event.up));
    if let Some(down) = Outage::of(states, duration) {
        let text = format!("its link was down {down}: frames that arrived then are not counted");
        add(ReasonCode::LinkDown, text, "check its cable and its peer, and what sets it down");
    }
    let mtus = || port.mtu_changes.iter();
    let Some(first) = mtus().next() else { return };
    // If the sent frames are unknown, the MTU is compared with the one before the first change.
    let is_short = |mtu: u32| match longest {
        Some(longest) => mtu + LINK_OCTETS < longest,
        None => mtu < first.before,
    };
    // A receiver whose MTU was too low from the start loses no more than it did before.
    let states = mtus().map(|change| (change.t_s, is_short(change.after)));
    if let (false, Some(short)) = (is_short(first.before), Outage::of(states, duration)) {
        let least = mtus().map(|change| change.after).min().unwrap_or(first.after);
        let text = format!(
            "its MTU was lowered from {} to {least} {short}: longer frames that arrived then are \
             not counted",
            first.before
        );
        add(ReasonCode::ReceiverBound, text, "leave the MTU as it is during a run");
    }
}

/// Octets of a frame that are not part of the MTU: Ethernet header (14) and one VLAN tag (4).
const LINK_OCTETS: u32 = 18;

/// Periods in which a port could not receive.
struct Outage {
    times: u64,
    total_s: f64,
    /// Start and end of the first outage; the end is `None` if the outage lasted to the end.
    first: (f64, Option<f64>),
}

impl Outage {
    /// `states` lists in order the times at which the port became unable (`true`) or able again to
    /// receive.
    fn of(states: impl Iterator<Item = (f64, bool)>, end_s: f64) -> Option<Self> {
        let mut outages: Vec<(f64, Option<f64>)> = Vec::new();
        for (t_s, out) in states {
            match outages.last_mut().filter(|last| last.1.is_none()) {
                Some(last) if !out => last.1 = Some(t_s),
                None if out => outages.push((t_s, None)),
                _ => {}
            }
        }
        // Remove outages before the start, whose times are 0.
        outages.retain(|(_, end)| end.is_none_or(|end| end > 0.0));
        let length = |(begin, end): &(f64, Option<f64>)| end.unwrap_or(end_s.max(*begin)) - begin;
        Some(Self {
            times: outages.len() as u64,
            total_s: outages.iter().map(length).sum(),
            first: *outages.first()?,
        })
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { times, total_s, first: (begin, end) } = self;
        let total = human::seconds(*total_s);
        match (times, end) {
            (1, Some(end)) => write!(f, "for {total} (from {begin:.3} s to {end:.3} s)"),
            (1, None) => write!(f, "for {total} (from {begin:.3} s to the end)"),
            _ => write!(f, "{times} times, for {total} in all (the first time at {begin:.3} s)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::report::{Asked, LinkEvent, MtuChange, PortPacing, StreamReport, VerdictStatus};

    fn facts(ended_by: EndedBy) -> Facts {
        let none = Vec::new();
        Facts {
            ended_by,
            lost: none,
            early: Vec::new(),
            stretched: Vec::new(),
            receives: Vec::new(),
            longest_frame: None,
            unsent: Vec::new(),
            machine: String::new(),
        }
    }

    /// 100,000 frames in 10 s, some of which were not sent.
    fn paced(not_sent: &[(&str, u64)]) -> SourceRecord {
        let not_sent: BTreeMap<String, u64> =
            not_sent.iter().map(|(reason, n)| ((*reason).to_owned(), *n)).collect();
        SourceRecord {
            name: "A".into(),
            unit: "packets".into(),
            asked: 100_000,
            sent: 100_000 - not_sent.values().sum::<u64>(),
            not_sent_ratio: not_sent.values().sum::<u64>() as f64 / 1e5,
            not_sent,
            asked_rate: Some(1e4),
            excess: Some(Excess { window_s: 0.01, allowed_s: 0.0012, ..Excess::default() }),
            ..SourceRecord::default()
        }
    }

    fn verdict(source: SourceRecord) -> Verdict {
        judge(
            &Report { duration_s: 10.0, sources: vec![source], ..Report::default() },
            &facts(EndedBy::Duration),
        )
    }

    fn codes(source: SourceRecord) -> Vec<ReasonCode> {
        verdict(source).reasons.iter().map(|reason| reason.code).collect()
    }

    #[test]
    fn a_thousandth_may_be_missing_by_lateness_and_nothing_for_other_reasons() {
        assert!(verdict(paced(&[("late", 60), ("port_full", 40)])).valid);
        assert_eq!(codes(paced(&[("late", 101)])), [ReasonCode::GeneratorBound]);
        assert_eq!(codes(paced(&[("port_full", 101)])), [ReasonCode::PortBound]);
        assert_eq!(codes(paced(&[("too_long", 1)])), [ReasonCode::PortRefused]);
        assert_eq!(codes(paced(&[("link_down", 1)])), [ReasonCode::LinkDown]);
    }

    #[test]
    fn a_router_needs_its_daemon_and_a_session() {
        let protocol = |kind: &str, after| crate::report::routers::RouterProtocolReport {
            name: "one".into(),
            kind: kind.into(),
            state: "Active".into(),
            up_after_s: after,
            ..Default::default()
        };
        let judged = |router: RouterReport, ended_by| {
            let router = RouterReport { name: "r1".into(), daemon: "BIRD".into(), ..router };
            let report = Report { duration_s: 1.0, routers: vec![router], ..Report::default() };
            let verdict = judge(&report, &facts(ended_by));
            let of_router =
                |reason: &Reason| reason.text.starts_with("router").then(|| reason.text.clone());
            verdict.reasons.iter().find_map(of_router)
        };
        let of = |protocols, failed: Option<&str>, ended_by| {
            let failed = failed.map(str::to_owned);
            judged(RouterReport { protocols, failed, ..RouterReport::default() }, ended_by)
        };
        let done = EndedBy::Done;
        assert_eq!(of(vec![protocol("BGP", Some(1.0))], None, done), None);
        assert_eq!(of(vec![protocol("RIP", None)], None, done), None);
        let isis = of(vec![protocol("IS-IS", None)], None, done);
        assert_eq!(isis.as_deref(), Some("router \"r1\": no session came up: one is Active"));
        let none = of(vec![protocol("BGP", None), protocol("OSPF", None)], None, done);
        assert_eq!(
            none.as_deref(),
            Some("router \"r1\": no session came up: one is Active, one is Active")
        );
        // A run that was stopped may have been too short.
        assert_eq!(of(vec![protocol("BGP", None)], None, EndedBy::Stopped), None);
        let dead = of(vec![protocol("BGP", Some(1.0))], Some("signal 9"), EndedBy::Running);
        assert_eq!(dead.as_deref(), Some("router \"r1\": BIRD ended: signal 9"));
        // A daemon without protocols reports at least its memory.
        let silent = judged(RouterReport::default(), done);
        assert_eq!(silent.as_deref(), Some("router \"r1\": BIRD never reported its states"));
        assert_eq!(judged(RouterReport::default(), EndedBy::Running), None);
        let failing = crate::report::routers::RouterStepReport {
            action: "restart".into(),
            due_s: 2.0,
            error: Some("no reply".into()),
            ..Default::default()
        };
        let failing =
            RouterReport { memory: Some(1 << 20), steps: vec![failing], ..RouterReport::default() };
        assert_eq!(
            judged(failing, EndedBy::Running).as_deref(),
            Some("router \"r1\": restart at 2.0 s failed: no reply")
        );
        let without = RouterReport { memory: Some(1 << 20), ..RouterReport::default() };
        assert_eq!(judged(without, done), None);
        // All sessions of a native router are up, so none is listed.
        let native = RouterReport { sessions: Some(Default::default()), ..RouterReport::default() };
        assert_eq!(judged(native, done), None);
        let mut sums = crate::report::routers::RouterSessionsReport::default();
        for (up, ever_up) in [(0, 0), (1, 1), (0, 1)] {
            (sums.up, sums.ever_up) = (up, ever_up);
            let native = RouterReport {
                protocols: vec![protocol("BGP", None)],
                sessions: Some(sums.clone()),
                ..RouterReport::default()
            };
            assert_eq!(judged(native, done).is_none(), ever_up > 0);
        }
    }

    #[test]
    fn the_hint_is_about_what_would_have_given_an_address() {
        let hint = |reason: &str, pppoe: bool, authenticated: Option<u64>| {
            let auth = authenticated.map(|authenticated| crate::report::hosts::HostAuthReport {
                authenticated,
                ..Default::default()
            });
            let failed: BTreeMap<String, u64> = [(reason.to_owned(), 3)].into();
            let group = HostsReport {
                name: "hosts".into(),
                hosts: 3,
                started: 3,
                failed,
                states: [("failed".into(), 3)].into(),
                pppoe: pppoe.then(Default::default),
                auth,
                ..HostsReport::default()
            };
            let report = Report { duration_s: 1.0, hosts: vec![group], ..Report::default() };
            judge(&report, &facts(EndedBy::Done)).reasons.remove(0).hint
        };
        for (reason, pppoe, authenticated, part) in [
            ("no_offer", false, None, "DHCP server"),
            ("nak", false, None, "pool of the DHCP server"),
            ("no_offer", false, Some(3), "DHCP server"),
            ("no_authenticator", false, Some(0), "authenticator"),
            ("auth_timeout", false, Some(0), "authenticator"),
            ("conflict", false, Some(0), "other addresses"),
            ("no_pado", true, None, "access concentrator is on this link"),
            ("no_pads", true, None, "access concentrator is on this link"),
            ("auth_rejected", true, None, "the identity, the password"),
            ("no_auth_method", true, None, "the methods of both ends"),
            ("lcp_timeout", true, None, "log of the access concentrator"),
        ] {
            let found = hint(reason, pppoe, authenticated);
            assert!(found.contains(part), "{reason}: {found}");
        }
    }

    #[test]
    fn hosts_that_got_nothing_have_not_done_their_work() {
        let group = |bound, failed| HostsReport {
            name: "hosts".into(),
            hosts: 3,
            started: 3,
            bound,
            states: [("failed".to_owned(), failed)].into(),
            failed: [("no_offer".to_owned(), failed)].into(),
            ..HostsReport::default()
        };
        let judged = |group: HostsReport, by| {
            let report = Report { duration_s: 1.0, hosts: vec![group], ..Report::default() };
            judge(&report, &facts(by)).reasons
        };
        let reasons = judged(group(0, 3), EndedBy::Done);
        assert_eq!(reasons[0].code, ReasonCode::NotDone);
        assert!(reasons[0].to_string().contains("none of 3 got an address (no_offer 3)"));
        assert_eq!(reasons[0].brief(), reasons[0].to_string().split("; try").next().unwrap());
        assert_eq!(judged(group(0, 2), EndedBy::Duration).len(), 1);
        assert_eq!(judged(group(1, 2), EndedBy::Done).len(), 0);
        let ipv6 = crate::report::hosts::HostIpv6Report { addresses: 3, ..Default::default() };
        let without_ipv4 = HostsReport { ipv6: Some(ipv6), ..group(0, 0) };
        assert_eq!(judged(without_ipv4, EndedBy::Done).len(), 0);
        assert_eq!(judged(group(0, 2), EndedBy::Running).len(), 0, "one may still get an address");
        let refused = crate::report::hosts::HostIpv6Report {
            failed: [("expired".to_owned(), 2)].into(),
            ..Default::default()
        };
        let both = HostsReport {
            failed: [("expired".to_owned(), 3)].into(),
            ipv6: Some(refused),
            ..group(0, 3)
        };
        let text = judged(both, EndedBy::Done).remove(0).text;
        assert!(text.contains("(expired 5)"), "a reason of both families is one sum: {text}");
        let pings = |sent, received, lost, unresolved| {
            let echo = crate::report::hosts::HostEchoReport {
                sent,
                received,
                lost,
                unresolved,
                ..Default::default()
            };
            judged(HostsReport { echo, ..group(3, 0) }, EndedBy::Done)
        };
        assert_eq!(pings(6, 1, 5, 0).len(), 0);
        assert!(pings(6, 0, 6, 0)[0].text.contains("none of 6 echo requests"));
        assert!(pings(0, 0, 0, 3)[0].text.contains("no echo request was sent"));
    }

    #[test]
    fn hosts_without_addresses_have_done_their_work_once_they_are_authenticated() {
        let judged = |authenticated, rejected, by| {
            let auth = crate::report::hosts::HostAuthReport { authenticated, ..Default::default() };
            let group = HostsReport {
                name: "hosts".into(),
                hosts: 100,
                started: 100,
                failed: [("rejected".to_owned(), rejected)].into(),
                auth: Some(auth),
                ..HostsReport::default()
            };
            let report = Report { duration_s: 1.0, hosts: vec![group], ..Report::default() };
            judge(&report, &facts(by)).reasons
        };
        assert_eq!(judged(99, 1, EndedBy::Done), []);
        assert_eq!(judged(0, 3, EndedBy::Running), []);
        assert_eq!(judged(0, 0, EndedBy::Duration).len(), 1, "they still wait");
        let none = judged(0, 100, EndedBy::Done).remove(0);
        assert!(none.text.contains("none of 100 was authenticated (rejected 100)"), "{none:?}");
        assert!(none.hint.contains("authenticator"), "{none:?}");
    }

    #[test]
    fn a_source_that_lags_owes_its_rate_in_that_time() {
        let progress_of = |source: SourceRecord| {
            let report = Report { duration_s: 10.0, sources: vec![source], ..Report::default() };
            report.progress().map(|p| (p.due, p.sent, p.is_behind)).next()
        };
        let late = SourceRecord { asked: 15_000, sent: 15_000, lag_s: 8.5, ..paced(&[]) };
        assert_eq!(progress_of(late.clone()), Some((100_000, 15_000, true)));
        // A capture has no mean rate, so the rate of its schedule up to now is used.
        let replayed = SourceRecord { asked_rate: None, ..late.clone() };
        assert_eq!(progress_of(replayed), Some((100_000, 15_000, true)));
        assert_eq!(progress_of(paced(&[])), Some((100_000, 100_000, false)));
        let few = paced(&[("late", 100)]);
        assert_eq!(progress_of(few), Some((100_000, 99_900, false)));
        let more = paced(&[("late", 101)]);
        assert_eq!(progress_of(more), Some((100_000, 99_899, true)));
        assert_eq!(progress_of(SourceRecord { unpaced: true, ..late }), None);
    }

    #[test]
    fn a_window_with_more_than_the_allowed_excess_is_a_burst() {
        let with = |beyond_s| {
            let excess = Excess {
                beyond_s,
                packets: 300,
                surplus_packets: 90,
                ..paced(&[]).excess.unwrap()
            };
            SourceRecord { excess: Some(excess), ..paced(&[]) }
        };
        assert!(verdict(with(0.0012)).valid);
        let reasons = verdict(with(0.0013)).reasons;
        assert_eq!(reasons[0].code, ReasonCode::Burst);
        assert!(
            reasons[0].text.contains("300 packets") && reasons[0].text.contains("90 more"),
            "{reasons:?}"
        );
    }

    /// Two sources of port A, both of which kept to their schedules.
    fn on_one_port(pacing: PortPacing) -> Verdict {
        let source = |name: &str| SourceRecord {
            name: name.into(),
            ports: vec!["A".into()],
            lag_s: pacing.lag_s,
            excess: Some(Excess { beyond_s: 1.0, surplus_packets: 9, ..Excess::default() }),
            ..paced(&[])
        };
        let sources = vec![source("one"), source("two")];
        let mut port = PortReport { name: "A".into(), ..PortReport::default() };
        port.tx.pacing = Some(pacing);
        let report = Report { duration_s: 10.0, sources, ports: vec![port], ..Report::default() };
        judge(&report, &facts(EndedBy::Duration))
    }

    #[test]
    fn the_port_decides_where_it_is_audited() {
        let pacing = PortPacing {
            unit: "octets".into(),
            over_s: 0.001,
            left: 150,
            due: 100,
            allowed: 50,
            ..PortPacing::default()
        };
        assert!(on_one_port(pacing.clone()).valid, "what sources say decides nothing");
        let burst = on_one_port(PortPacing { left: 151, ..pacing.clone() });
        assert_eq!(burst.reasons.len(), 1);
        assert_eq!(burst.reasons[0].code, ReasonCode::Burst);
        assert!(
            burst.reasons[0].text.contains("151 octets left in 1.0 ms at 0.000 s, 51 more"),
            "{}",
            burst.reasons[0].text
        );
        let late = on_one_port(PortPacing { lag_s: 0.5, ..pacing.clone() });
        assert_eq!(late.reasons.len(), 1, "once, not for each source: {:?}", late.reasons);
        let hurried = on_one_port(PortPacing {
            catching_up_since_s: Some(2.5),
            left: 1000,
            lag_s: 0.5,
            ..pacing
        });
        assert_eq!(hurried.reasons.len(), 1, "the first cause: {:?}", hurried.reasons);
        assert!(hurried.reasons[0].text.contains("at 2.500 s"), "{}", hurried.reasons[0].text);
    }

    #[test]
    fn a_run_ends_with_its_schedule() {
        let lag = |lag_s| SourceRecord { lag_s, ..paced(&[]) };
        assert!(verdict(lag(0.010)).valid);
        assert_eq!(codes(lag(0.011)), [ReasonCode::GeneratorBound]);
        assert_eq!(
            [behind(0.05), behind(0.5), behind(5.0), behind(100.0)],
            [0.001, 0.005, 0.010, 0.1]
        );
    }

    #[test]
    fn the_cause_is_the_cpu_that_was_missing_the_port_or_the_sender() {
        let late = |starved_s, blocked_s, sending_s| {
            let source =
                SourceRecord { starved_s, blocked_s, sending_s, ..paced(&[("late", 30_000)]) };
            codes(source)[0]
        };
        assert_eq!(late(0.0, 0.0, 0.0), ReasonCode::GeneratorBound);
        assert_eq!(late(0.0, 5.1, 0.0), ReasonCode::PortBound);
        assert_eq!(late(0.0, 0.0, 5.1), ReasonCode::PortBound);
        // The time of a call into the port may include time in which the thread was stopped, which
        // the port did not cause.
        assert_eq!(late(3.0, 0.0, 6.0), ReasonCode::Starved);
        assert_eq!(late(1.0, 0.0, 5.9), ReasonCode::GeneratorBound);
    }

    #[test]
    fn a_sender_at_full_speed_is_judged_by_its_cpu_time() {
        let max = |starved_s| SourceRecord {
            starved_s,
            unpaced: true,
            asked_rate: None,
            excess: None,
            ..paced(&[])
        };
        assert!(verdict(max(0.4)).valid);
        let reasons = verdict(max(0.6)).reasons;
        assert_eq!(reasons[0].code, ReasonCode::Starved);
        assert!(reasons[0].text.contains("0.60 s"), "{reasons:?}");
    }

    #[test]
    fn work_that_was_not_done_is_not_valid_and_has_a_hint() {
        let flows =
            |sent, not_sent: &[(&str, u64)], completed, failed: &[(&str, u64)]| SourceRecord {
                kind: SourceKind::Flows,
                unit: "flows".into(),
                asked: 60,
                sent,
                completed: Some(completed),
                failed: failed.iter().map(|(reason, n)| ((*reason).to_owned(), *n)).collect(),
                ..paced(not_sent)
            };
        for (source, hint) in [
            (flows(0, &[("unresolved", 60)], 0, &[]), "--gateway"),
            (flows(12, &[("ports_exhausted", 48)], 12, &[]), "--clients"),
            (flows(0, &[("no_host", 60)], 0, &[]), "a later start"),
            (flows(60, &[], 0, &[("reset", 60)]), "no host has"),
        ] {
            let reasons = verdict(source).reasons;
            assert_eq!((reasons.len(), reasons[0].code), (1, ReasonCode::NotDone), "{reasons:?}");
            assert!(reasons[0].hint.contains(hint), "{reasons:?}");
        }
        // A device may pass only some of the flows, or hold them until the end.
        assert!(verdict(flows(60, &[], 1, &[("reset", 59)])).valid);
        assert!(verdict(flows(60, &[], 0, &[("stopped", 60)])).valid);
        let nothing = SourceRecord { asked: 0, sent: 0, ..paced(&[]) };
        assert_eq!(codes(nothing), [ReasonCode::NotDone]);
    }

    #[test]
    fn frames_of_hosts_without_an_address_decide_only_if_nothing_was_sent() {
        assert!(verdict(paced(&[("no_host", 90_000)])).valid);
        assert_eq!(codes(paced(&[("no_host", 9), ("late", 101)])), [ReasonCode::GeneratorBound]);
        let flows = SourceRecord {
            kind: SourceKind::Flows,
            unit: "flows".into(),
            completed: Some(10_000),
            ..paced(&[("no_host", 90_000)])
        };
        assert!(verdict(flows).valid);
        assert!(verdict(paced(&[("address_lost", 90_000)])).valid);
        assert!(verdict(paced(&[("no_session", 90_000)])).valid);
        assert!(verdict(paced(&[("no_route", 90_000)])).valid);
        let with = |reason: &str, sent| StreamReport {
            name: "web".into(),
            tx_packets: sent,
            not_sent: [(reason.to_owned(), 7)].into(),
            ..StreamReport::default()
        };
        let stream = |sent| with("no_host", sent);
        let streams = |ended, all: &[StreamReport]| {
            let report = Report { duration_s: 10.0, streams: all.to_vec(), ..Report::default() };
            judge(&report, &facts(ended)).reasons
        };
        assert!(streams(EndedBy::Duration, &[stream(1)]).is_empty());
        let reasons = streams(EndedBy::Duration, &[stream(1), stream(0)]);
        assert_eq!((reasons.len(), reasons[0].code), (1, ReasonCode::NotDone), "{reasons:?}");
        assert!(reasons[0].text.starts_with("stream \"web\": none of 7 frames"), "{reasons:?}");
        assert!(streams(EndedBy::Stopped, &[stream(0)]).is_empty(), "hosts still had time");
        let reasons = streams(EndedBy::Duration, &[with("no_route", 0)]);
        assert!(reasons[0].text.ends_with("the router had learnt no route"), "{reasons:?}");
        assert!(reasons[0].hint.contains("the router's session"), "{reasons:?}");
        let mut both = with("no_route", 0);
        both.not_sent.add("no_host", 8);
        let reasons = streams(EndedBy::Duration, &[both]);
        assert!(reasons[0].text.ends_with("none of 15 frames was sent: no host had an address"));
        // Without a rate, there is no number of frames.
        let unpaced = |reason: &str, sent| StreamReport {
            not_sent: [(reason.to_owned(), 0)].into(),
            ..with(reason, sent)
        };
        for (reason, why) in [("no_route", "had learnt no route"), ("no_host", "had an address")] {
            let reasons = streams(EndedBy::Duration, &[unpaced(reason, 0), unpaced(reason, 1)]);
            assert_eq!((reasons.len(), reasons[0].code), (1, ReasonCode::NotDone), "{reasons:?}");
            let text = &reasons[0].text;
            assert!(text.starts_with("stream \"web\": nothing was sent: "), "{text}");
            assert!(text.ends_with(why), "{text}");
        }
        let attacks = |unsent: &[(&str, u64)]| {
            let attack = crate::report::attack::AttackReport {
                name: "scan".into(),
                attacks: 5,
                unsent: unsent.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect(),
                ..Default::default()
            };
            let report = Report { duration_s: 10.0, attacks: vec![attack], ..Report::default() };
            judge(&report, &facts(EndedBy::Duration)).reasons
        };
        assert!(attacks(&[("no_host", 4)]).is_empty());
        assert!(attacks(&[("not_begun", 5)]).is_empty());
        let reasons = attacks(&[("no_host", 3), ("not_begun", 2)]);
        assert_eq!(reasons.len(), 1, "the others were not due before the end");
        let reasons = attacks(&[("no_host", 5)]);
        assert_eq!((reasons.len(), reasons[0].code), (1, ReasonCode::NotDone), "{reasons:?}");
        assert!(reasons[0].text.starts_with("attack \"scan\": none of 5 attacks"), "{reasons:?}");
    }

    #[test]
    fn flows_that_find_no_room_and_packets_that_do_not_fit_are_of_this_side() {
        let with = |counter: &str| {
            let counters = [(counter.to_owned(), 3), ("not_ours".to_owned(), 9)].into();
            let links = vec![LinkReport { port: "S".into(), counters }];
            let flows = crate::report::flows::FlowsReport { links, ..Default::default() };
            let report = Report { duration_s: 10.0, flows: Some(flows), ..Report::default() };
            judge(&report, &facts(EndedBy::Duration)).reasons
        };
        for (counter, code, text) in [
            ("accept_full", ReasonCode::ReceiverBound, "port S: 3 attempts of clients"),
            ("relay_dropped", ReasonCode::ReceiverBound, "port S: 3 frames were dropped"),
            ("too_long", ReasonCode::PortRefused, "port S: 3 packets did not fit"),
        ] {
            let reasons = with(counter);
            assert_eq!((reasons.len(), reasons[0].code), (1, code), "{reasons:?}");
            assert!(reasons[0].text.starts_with(text), "{reasons:?}");
        }
        // Frames that a device damaged do not count against the generator.
        assert!(with("bad_tcp_checksum").is_empty());
    }

    #[test]
    fn a_capture_of_one_direction_is_not_one_of_conversations() {
        let flows = SourceRecord {
            kind: SourceKind::Flows,
            unit: "flows".into(),
            one_sided: 3,
            ..paced(&[])
        };
        assert_eq!(codes(flows), [ReasonCode::OneSided]);
    }

    #[test]
    fn a_receiver_that_could_not_receive_is_not_valid_and_says_when() {
        let link = |events: &[(f64, bool)]| PortReport {
            name: "B".into(),
            link_events: events.iter().map(|&(t_s, up)| LinkEvent { t_s, up }).collect(),
            ..PortReport::default()
        };
        let mtu = |changes: &[(f64, u32, u32)]| PortReport {
            mtu_changes: changes
                .iter()
                .map(|&(t_s, before, after)| MtuChange { t_s, before, after })
                .collect(),
            ..link(&[])
        };
        let judged = |port: PortReport, receives, longest_frame| {
            let report = Report { duration_s: 8.0, ports: vec![port], ..Report::default() };
            let facts =
                Facts { receives: vec![receives], longest_frame, ..facts(EndedBy::Duration) };
            let reasons = judge(&report, &facts).reasons.into_iter();
            reasons.map(|reason| (reason.code, reason.text)).collect::<Vec<_>>()
        };
        let down = [(2.0, false), (5.0, true)];
        let reasons = judged(link(&down), true, None);
        assert_eq!(reasons.len(), 1);
        assert_eq!(reasons[0].0, ReasonCode::LinkDown);
        let text = "port B: its link was down for 3.00 s (from 2.000 s to 5.000 s)";
        assert!(reasons[0].1.starts_with(text), "{reasons:?}");
        assert_eq!(judged(link(&down), false, None), []);
        // A link that was down before the start, one that stays down, and several outages.
        assert_eq!(judged(link(&[(0.0, false), (0.0, true)]), true, None), []);
        let text = judged(link(&[(6.0, false)]), true, None).remove(0).1;
        assert!(text.contains("for 2.00 s (from 6.000 s to the end)"), "{text}");
        let twice = [(0.0, false), (1.0, true), (3.0, false), (3.0, true)];
        let text = judged(link(&twice), true, None).remove(0).1;
        assert!(text.contains("2 times, for 1.00 s in all (the first time at 0.000 s)"), "{text}");

        let lowered = [(2.0, 1500, 500), (5.0, 500, 1500)];
        for longest in [Some(996), None] {
            let reasons = judged(mtu(&lowered), true, longest);
            assert_eq!((reasons.len(), reasons[0].0), (1, ReasonCode::ReceiverBound));
            let text = "its MTU was lowered from 1500 to 500 for 3.00 s (from 2.000 s to 5.000 s)";
            assert!(reasons[0].1.contains(text), "{reasons:?}");
        }
        assert_eq!(judged(mtu(&lowered), true, Some(518)), []);
        assert_eq!(judged(mtu(&[(2.0, 1500, 9000)]), true, None), []);
        assert_eq!(judged(mtu(&[(2.0, 900, 500)]), true, Some(996)), []);
    }

    #[test]
    fn frames_that_were_never_sent_are_of_another_run() {
        let facts = Facts { unsent: vec![("web".into(), 1200, 1000)], ..facts(EndedBy::Duration) };
        let reasons = judge(&Report { duration_s: 1.0, ..Report::default() }, &facts).reasons;
        assert_eq!((reasons.len(), reasons[0].code), (1, ReasonCode::CountersDiffer));
        assert!(reasons[0].text.contains("frame number 1200 arrived"), "{reasons:?}");
    }

    #[test]
    fn a_stopped_run_is_interrupted_and_errors_stay_errors() {
        let report = |source| Report {
            duration_s: 1.3,
            asked: Asked { duration_s: Some(20.0), ..Asked::default() },
            cut_short: true,
            sources: vec![source],
            ..Report::default()
        };
        let verdict = |source| judge(&report(source), &facts(EndedBy::Sigint));
        let good = verdict(paced(&[]));
        assert_eq!(
            (good.status, good.valid, good.ended_by),
            (VerdictStatus::Interrupted, false, EndedBy::Sigint)
        );
        assert_eq!(verdict(paced(&[("late", 50_000)])).status, VerdictStatus::NotValid);
    }
}
