//! Routers in the summary.

use super::human;
use super::table::{Style, indented, printable};
use crate::report::{
    Report,
    routers::{
        ExpectedRoutesReport, RouterFaultReport, RouterFaultsReport, RouterProtocolReport,
        RouterReport, RouterSessionsReport, RouterStepReport,
    },
};

/// Lines for each router.
pub(super) fn routers(report: &Report, width: usize, color: bool) -> Vec<String> {
    report.routers.iter().flat_map(|router| one(router, width, color)).collect()
}

/// Sessions and routes of all routers: `routers 2 of 3 sessions up, 1,000 routes learnt`. `None`
/// without routers.
pub(super) fn line(routers: &[RouterReport]) -> Option<String> {
    let sum = |of: fn(&SessionTotals) -> u64| -> u64 {
        routers.iter().map(|router| of(&SessionTotals::of(router))).sum()
    };
    let (up, all) = (human::count(sum(|of| of.up)), human::count(sum(|of| of.sessions)));
    let learnt = human::count(sum(|of| of.imported));
    let mut text = format!("routers {up} of {all} sessions up, {learnt} routes learnt");
    for router in routers.iter().filter(|router| router.failed.is_some()) {
        text += &format!(", {} FAILED", printable(&router.name));
    }
    (!routers.is_empty()).then_some(text)
}

/// Sessions and routes of a router.
pub(super) struct SessionTotals {
    pub sessions: u64,
    pub up: u64,
    pub imported: u64,
    pub exported: u64,
}

impl SessionTotals {
    pub fn of(router: &RouterReport) -> Self {
        let protocols = &router.protocols;
        match &router.sessions {
            Some(sums) => Self {
                sessions: sums.sessions,
                up: sums.up,
                imported: sums.imported,
                exported: sums.exported,
            },
            None => Self {
                sessions: protocols.len() as u64,
                up: protocols.iter().filter(|protocol| protocol.up).count() as u64,
                imported: protocols.iter().map(|protocol| protocol.imported).sum(),
                exported: protocols.iter().map(|protocol| protocol.exported).sum(),
            },
        }
    }
}

/// Lines for one router.
pub fn one(router: &RouterReport, width: usize, color: bool) -> Vec<String> {
    let name = printable(&router.name);
    let name = if name.starts_with("router") { name } else { format!("router {name}") };
    let by = match (&router.sessions, router.count) {
        (None, _) => format!("by {}", router.daemon),
        (Some(_), 1) => router.daemon.clone(),
        (Some(_), count) => format!("{} x {}", router.daemon, human::count(count)),
    };
    let title = format!("{name} on {}, {by}", printable(&router.port));
    let mut lines = vec![Style::Bold.paint(&title, color)];
    let mut line = |text: String| lines.extend(indented(&text, width));
    let (sent, received) = (human::count(router.sent), human::count(router.received));
    let mut head = format!("{sent} frames sent, {received} received");
    if router.dropped > 0 {
        head += &format!(", {} dropped", human::count(router.dropped));
    }
    line(head);
    router.sessions.iter().for_each(|sums| line(of_sums(sums)));
    router.sessions.iter().filter_map(|sums| of_faults(&sums.faults)).for_each(&mut line);
    router.protocols.iter().for_each(|protocol| line(of_protocol(protocol)));
    router.expected.iter().for_each(|expected| line(of_expected(expected)));
    let flaps: u64 = router.groups.iter().map(|group| group.flaps).sum();
    if flaps > 0 {
        let late: u64 = router.groups.iter().map(|group| group.late_flaps).sum();
        let mut text = format!("{} withdrawals by flaps", human::count(flaps));
        if late > 0 {
            text += &format!(", {} late", human::counted(late, "change"));
        }
        line(text);
    }
    router.steps.iter().take(SHOWN).for_each(|step| line(of_step(step)));
    let more = router.steps.len().saturating_sub(SHOWN) as u64 + router.more_steps;
    if more > 0 {
        line(format!("and {}", human::counted(more, "further step")));
    }
    if router.downs > 0 {
        line(format!("sessions went down {} times", human::count(router.downs)));
    }
    if let Some(why) = &router.failed {
        line(format!("failed: {}", printable(why)));
    }
    lines
}

fn of_sums(sums: &RouterSessionsReport) -> String {
    let (up, all) = (human::count(sums.up), human::counted(sums.sessions, "session"));
    let mut text = format!("{up} of {all} up");
    if let Some(after) = sums.all_up_after_s {
        text += &format!(", all up first after {}", human::seconds(after));
    }
    let (learnt, announced) = (human::count(sums.imported), human::count(sums.exported));
    text += &format!(", {learnt} routes learnt, {announced} announced");
    if let Some(after) = sums.acknowledged_after_s {
        text += &format!(", acknowledged {} after Established at most", human::seconds(after));
    }
    if sums.closed_windows > 0 {
        text += &format!(", neighbors had no room {} times", human::count(sums.closed_windows));
    }
    for (word, of) in [("sent", &sums.sent), ("received", &sums.received)] {
        let kinds = [
            ("OPEN", of.opens),
            ("UPDATE", of.updates),
            ("NOTIFICATION", of.notifications),
            ("KEEPALIVE", of.keepalives),
            ("ROUTE-REFRESH", of.refreshes),
        ];
        let kinds = kinds.into_iter().filter(|(_, count)| *count > 0);
        let kinds: Vec<_> =
            kinds.map(|(kind, count)| format!("{} {kind}", human::count(count))).collect();
        if !kinds.is_empty() {
            text += &format!("; {word} {}", kinds.join(", "));
        }
    }
    text
}

/// Errors in UPDATEs; `None`: there were none.
fn of_faults(faults: &RouterFaultsReport) -> Option<String> {
    let mut parts = Vec::new();
    if faults.withdrawn > 0 {
        let updates = human::counted(faults.withdrawn, "UPDATE");
        parts.push(format!("routes of {updates} treated as withdrawn"));
    }
    if faults.discarded > 0 {
        parts.push(format!("{} discarded", human::counted(faults.discarded, "attribute")));
    }
    if faults.other_families > 0 {
        let fields = human::counted(faults.other_families, "field");
        parts.push(format!("{fields} with routes of other families"));
    }
    let reason = |of: &RouterFaultReport| {
        let RouterFaultReport { reason, source, updates, .. } = of;
        format!("{} {} ({})", human::count(*updates), printable(reason), printable(source))
    };
    let reasons: Vec<_> = faults.reasons.iter().map(reason).collect();
    let reasons = match reasons.is_empty() {
        true => String::new(),
        false => format!(": {}", reasons.join(", ")),
    };
    (!parts.is_empty()).then(|| format!("errors in UPDATEs: {}{reasons}", parts.join(", ")))
}

fn of_expected(expected: &ExpectedRoutesReport) -> String {
    let name = match &expected.group {
        Some(group) => format!("{}/{}", printable(&expected.router), printable(group)),
        None => printable(&expected.router),
    };
    let routes = human::counted(expected.routes, "route");
    if expected.by_prefix {
        let (missing, extra) = (human::count(expected.missing), human::count(expected.extra));
        return match (expected.missing, expected.extra) {
            (0, 0) => format!("learnt the routes that {name} announces: {routes}"),
            (0, _) => format!("learnt the {routes} of {name}, and {extra} others"),
            (_, 0) => format!("{missing} of {routes} of {name} are missing"),
            _ => format!("{missing} of {routes} of {name} are missing, and {extra} others learnt"),
        };
    }
    match (expected.missing, expected.extra) {
        (0, 0) => format!("learnt as many routes as {name} announces: {routes}"),
        (0, extra) => format!("learnt {} more than the {routes} of {name}", human::count(extra)),
        (missing, _) => format!("{} of {routes} of {name} are missing", human::count(missing)),
    }
}

/// Steps of a router that the summary shows.
const SHOWN: usize = 20;

fn of_step(step: &RouterStepReport) -> String {
    let what = step.group.as_deref().or(step.neighbor.as_deref());
    let what = what.map_or_else(String::new, |name| format!(" {}", printable(name)));
    let by = if step.by == "order" { ", by order" } else { "" };
    let mut text = format!("{}{what} at {}{by}", step.action, human::seconds(step.due_s));
    if step.begun_s - step.due_s > LATE_S {
        text += &format!(", {} late", human::seconds(step.begun_s - step.due_s));
    }
    if let Some(why) = &step.error {
        return text + &format!(": failed: {}", printable(why));
    }
    if ["withdraw", "announce"].contains(&step.action.as_str()) {
        text += &format!(": {}", human::counted(step.routes, "route"));
    }
    match step.acknowledged_s {
        Some(time) => text += &format!(", done after {}", human::seconds(time - step.begun_s)),
        None => text += ", not acknowledged",
    }
    if let (Some(first), Some(last)) = (step.first_sent_s, step.last_sent_s) {
        let after = |time: f64| human::seconds((time - step.begun_s).max(0.0));
        text += &format!(", frames after {} to {}", after(first), after(last));
    }
    text
}

/// Lateness that is shown, seconds.
const LATE_S: f64 = 0.1;

fn of_protocol(protocol: &RouterProtocolReport) -> String {
    let with = if protocol.neighbor.is_empty() {
        String::new()
    } else {
        format!(" with {}", printable(&protocol.neighbor))
    };
    let mut text = format!("{}{with}: {}", printable(&protocol.name), printable(&protocol.state));
    if let Some(after) = protocol.up_after_s {
        // The state of a session that went down again did not begin at this time.
        let what = if protocol.up { " after" } else { ", first up after" };
        text += &format!("{what} {}", human::seconds(after));
    }
    if protocol.kind != "BFD" {
        let (learnt, announced) =
            (human::count(protocol.imported), human::count(protocol.exported));
        text += &format!(", {learnt} routes learnt, {announced} announced");
    }
    if !protocol.error.is_empty() && !protocol.up {
        text += &format!(" ({})", printable(&protocol.error));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::routers::{RouterGroupReport, RouterMessagesReport};

    #[test]
    fn expected_routes_are_there_or_missing_or_more() {
        let expected = |missing, extra| {
            of_expected(&ExpectedRoutesReport {
                router: "r2".into(),
                group: Some("edge".into()),
                routes: 1_000,
                missing,
                extra,
                by_prefix: false,
            })
        };
        assert_eq!(expected(0, 0), "learnt as many routes as r2/edge announces: 1,000 routes");
        assert_eq!(expected(0, 3), "learnt 3 more than the 1,000 routes of r2/edge");
        assert_eq!(expected(12, 0), "12 of 1,000 routes of r2/edge are missing");
        let by_prefix = |missing, extra| {
            of_expected(&ExpectedRoutesReport {
                router: "r2".into(),
                group: None,
                routes: 9,
                missing,
                extra,
                by_prefix: true,
            })
        };
        assert_eq!(by_prefix(0, 0), "learnt the routes that r2 announces: 9 routes");
        assert_eq!(by_prefix(2, 1), "2 of 9 routes of r2 are missing, and 1 others learnt");
    }

    #[test]
    fn errors_in_updates_have_their_reasons() {
        assert_eq!(of_faults(&RouterFaultsReport::default()), None);
        let reason = |reason: &str, source: &str, updates| RouterFaultReport {
            reason: reason.into(),
            source: source.into(),
            treatment: String::new(),
            updates,
        };
        let faults = RouterFaultsReport {
            withdrawn: 1_200,
            discarded: 1,
            other_families: 2,
            reasons: vec![
                reason("malformed COMMUNITIES", "RFC 7606 section 7.8", 1_200),
                reason("malformed AGGREGATOR", "RFC 7606 section 7.7", 1),
            ],
        };
        let expected = "errors in UPDATEs: routes of 1,200 UPDATEs treated as withdrawn, 1 attribute \
                        discarded, 2 fields with routes of other families: 1,200 malformed \
                        COMMUNITIES (RFC 7606 section 7.8), 1 malformed AGGREGATOR (RFC 7606 \
                        section 7.7)";
        assert_eq!(of_faults(&faults).as_deref(), Some(expected));
        let sums = RouterSessionsReport { faults, ..RouterSessionsReport::default() };
        let router = RouterReport { sessions: Some(sums), ..RouterReport::default() };
        let is_shown = |line: &String| line.contains("errors in UPDATEs");
        assert!(one(&router, usize::MAX, false).iter().any(is_shown));
    }

    #[test]
    fn a_native_router_has_sums_over_its_sessions() {
        let sums = RouterSessionsReport {
            sessions: 1_000,
            up: 998,
            imported: 5_000,
            exported: 2_000_000,
            acknowledged_after_s: Some(0.5),
            sent: RouterMessagesReport {
                opens: 1_000,
                updates: 3_000,
                ..RouterMessagesReport::default()
            },
            closed_windows: 3,
            ..RouterSessionsReport::default()
        };
        let router = RouterReport {
            name: "r1".into(),
            port: "A".into(),
            daemon: "native".into(),
            count: 1_000,
            sessions: Some(sums),
            ..RouterReport::default()
        };
        let shown = one(&router, 400, false);
        assert_eq!(shown[0], "router r1 on A, native x 1,000");
        assert_eq!(
            shown[2].trim(),
            "998 of 1,000 sessions up, 5,000 routes learnt, 2,000,000 announced, acknowledged \
             500 ms after Established at most, neighbors had no room 3 times; sent 1,000 OPEN, \
             3,000 UPDATE"
        );
        let text = line(&[router]).expect("there is a router");
        assert_eq!(text, "routers 998 of 1,000 sessions up, 5,000 routes learnt");
    }

    #[test]
    fn a_step_has_its_routes_and_times_or_its_error() {
        let mut step = RouterStepReport {
            action: "withdraw".into(),
            group: Some("edge".into()),
            by: "profile".into(),
            due_s: 10.0,
            begun_s: 10.25,
            acknowledged_s: Some(10.252),
            routes: 1200,
            first_sent_s: Some(10.251),
            last_sent_s: Some(10.26),
            ..RouterStepReport::default()
        };
        assert_eq!(
            of_step(&step),
            "withdraw edge at 10.0 s, 250 ms late: 1,200 routes, done after 2.00 ms, frames after \
             1.00 ms to 10.0 ms"
        );
        (step.begun_s, step.acknowledged_s, step.first_sent_s) = (10.0, None, None);
        assert_eq!(of_step(&step), "withdraw edge at 10.0 s: 1,200 routes, not acknowledged");
        (step.error, step.by) = (Some("gone".into()), "order".into());
        assert_eq!(of_step(&step), "withdraw edge at 10.0 s, by order: failed: gone");
        let report = Report {
            routers: vec![RouterReport {
                steps: vec![step; SHOWN + 1],
                more_steps: 2,
                ..RouterReport::default()
            }],
            ..Report::default()
        };
        let lines = routers(&report, 200, false);
        assert_eq!(lines.last().map(|line| line.trim()), Some("and 3 further steps"));
    }

    #[test]
    fn late_flaps_are_shown() {
        let group =
            RouterGroupReport { flaps: 6_000, late_flaps: 7, ..RouterGroupReport::default() };
        let report = Report {
            routers: vec![RouterReport { groups: vec![group], ..RouterReport::default() }],
            ..Report::default()
        };
        let lines = routers(&report, 200, false);
        let last = lines.last().map(|line| line.trim());
        assert_eq!(last, Some("6,000 withdrawals by flaps, 7 changes late"));
    }

    #[test]
    fn the_time_of_a_session_that_fell_is_not_that_of_its_state() {
        let mut protocol = RouterProtocolReport {
            name: "bgp1".into(),
            kind: "BGP".into(),
            state: "Established".into(),
            up: true,
            up_after_s: Some(1.5),
            ..RouterProtocolReport::default()
        };
        assert!(of_protocol(&protocol).starts_with("bgp1: Established after 1.50 s, "));
        (protocol.up, protocol.state) = (false, "ended".into());
        assert!(of_protocol(&protocol).starts_with("bgp1: ended, first up after 1.50 s, "));
    }
}
