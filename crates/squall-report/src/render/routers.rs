//! Routers in the summary.

use super::human;
use super::table::{Style, indented, printable};
use crate::report::{
    Report,
    routers::{RouterProtocolReport, RouterReport},
};

/// Lines for each router.
pub(super) fn routers(report: &Report, width: usize, color: bool) -> Vec<String> {
    report.routers.iter().flat_map(|router| one(router, width, color)).collect()
}

/// Sessions and routes of all routers: `routers 2 of 3 sessions up, 1,000 routes learnt`. `None`
/// without routers.
pub(super) fn line(routers: &[RouterReport]) -> Option<String> {
    let all = || routers.iter().flat_map(|router| &router.protocols);
    let learnt = human::count(all().map(|protocol| protocol.imported).sum());
    let up = all().filter(|protocol| protocol.up).count();
    let mut text = format!("routers {up} of {} sessions up, {learnt} routes learnt", all().count());
    for router in routers.iter().filter(|router| router.failed.is_some()) {
        text += &format!(", {} FAILED", printable(&router.name));
    }
    (!routers.is_empty()).then_some(text)
}

fn one(router: &RouterReport, width: usize, color: bool) -> Vec<String> {
    let name = printable(&router.name);
    let name = if name.starts_with("router") { name } else { format!("router {name}") };
    let title = format!("{name} on {}, by {}", printable(&router.port), router.daemon);
    let mut lines = vec![Style::Bold.paint(&title, color)];
    let mut line = |text: String| lines.extend(indented(&text, width));
    let (sent, received) = (human::count(router.sent), human::count(router.received));
    let mut head = format!("{sent} frames sent, {received} received");
    if router.dropped > 0 {
        head += &format!(", {} dropped", human::count(router.dropped));
    }
    line(head);
    router.protocols.iter().for_each(|protocol| line(of_protocol(protocol)));
    if router.downs > 0 {
        line(format!("sessions went down {} times", human::count(router.downs)));
    }
    if let Some(why) = &router.failed {
        line(format!("failed: {}", printable(why)));
    }
    lines
}

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
