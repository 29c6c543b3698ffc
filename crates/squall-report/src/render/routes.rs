//! Routes of streams in the summary.

use super::{
    host_page::lines,
    human,
    page::table,
    table::{Style, indented, printable},
};
use crate::report::{
    Report,
    routes::{RoutePort, RouteReport, RouteStepReport, RouteTimes, RoutesReport},
};

/// Number of routes to list for each stream.
const WORST: usize = 5;

/// The streams to routes, by name.
fn streams(report: &Report) -> impl Iterator<Item = (&str, &RoutesReport)> {
    report
        .streams
        .iter()
        .filter_map(|stream| Some((stream.name.as_str(), stream.rx.as_ref()?.routes.as_deref()?)))
}

/// Lines for each stream to routes.
pub(super) fn routes(report: &Report, width: usize, color: bool) -> Vec<String> {
    streams(report).flat_map(|(name, routes)| one(name, routes, width, color)).collect()
}

/// The section of the page: all lines, and a table of the routes that lost most.
pub(super) fn markup(report: &Report, page: &mut String) {
    if streams(report).next().is_none() {
        return;
    }
    lines("Routes of streams", &routes(report, usize::MAX, false), page);
    let columns = [
        "Route",
        "Stream",
        "Sent",
        "Lost",
        "Loss of connectivity",
        "Convergence",
        "First port",
        "Last port",
        "At the end",
    ];
    let row = |stream: &str, route: &RouteReport| {
        let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".into(), human::seconds);
        let port = |port: &Option<String>| port.clone().unwrap_or_else(|| "-".into());
        vec![
            route.prefix.clone(),
            stream.to_owned(),
            human::count(route.sent),
            human::count(route.lost),
            time(route.loss_of_connectivity_s),
            time(route.convergence_s),
            port(&route.first_port),
            port(&route.last_port),
            if route.up { "up" } else { "down" }.into(),
        ]
    };
    let rows = streams(report)
        .flat_map(|(name, routes)| routes.worst.iter().map(move |route| row(name, route)));
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        table("Routes that lost most frames", &columns, &rows, page);
    }
}

fn one(stream: &str, routes: &RoutesReport, width: usize, color: bool) -> Vec<String> {
    let name = match &routes.group {
        Some(group) => format!("{}/{}", printable(&routes.router), printable(group)),
        None => printable(&routes.router),
    };
    let count = human::counted(routes.routes, "route");
    let title = format!("{count} of {name}, stream {}", printable(stream));
    let mut lines = vec![Style::Bold.paint(&title, color)];
    let mut line = |text: String| lines.extend(indented(&text, width));
    let mut head = match routes.lossy {
        0 => "no frames lost".to_owned(),
        lossy => {
            let lost = human::counted(routes.lost, "frame");
            format!("{} lost {lost}", human::counted(lossy, "route"))
        }
    };
    for (count, what) in [(routes.silent, "received nothing"), (routes.down, "down at the end")] {
        if count > 0 {
            head += &format!(", {} {what}", human::count(count));
        }
    }
    match routes.resolution_s {
        Some(resolution) => head += &format!(", resolution {}", human::seconds(resolution)),
        None => {
            head += ", times unknown: the stream had no constant rate, missed it, or was sent by another node"
        }
    }
    line(head);
    if let Some(times) = &routes.loss_of_connectivity {
        let mut text = format!("loss of connectivity: {}", of_times(times));
        if let Some(derived) = routes.loss_derived_s {
            text += &format!(", loss-derived {}", human::seconds(derived));
        }
        line(text);
    }
    if let Some(times) = &routes.convergence {
        let count = human::counted(times.routes, "route");
        line(format!("convergence to another port: {count}, {}", of_times(times)));
    }
    routes.steps.iter().for_each(|step| line(of_step(step)));
    if routes.ports.len() > 1 {
        let of = |port: &RoutePort| {
            let (first, last) = (human::count(port.first), human::count(port.last));
            format!("{} {first}, then {last}", printable(&port.port))
        };
        let ports: Vec<_> = routes.ports.iter().map(of).collect();
        line(format!("routes by port: {}", ports.join("; ")));
    }
    let worst: Vec<_> = routes.worst.iter().take(WORST).map(of_route).collect();
    if !worst.is_empty() {
        line(format!("most lost: {}", worst.join("; ")));
    }
    lines
}

fn of_step(step: &RouteStepReport) -> String {
    let mut text = format!("after {} ({}):", printable(&step.steps), human::seconds(step.due_s));
    text += &match step.lossy {
        0 => " no frames lost".to_owned(),
        lossy => {
            let lost = human::counted(step.lost, "frame");
            format!(" {} lost {lost}", human::counted(lossy, "route"))
        }
    };
    if step.down > 0 {
        text += &format!(", {} down until the next step", human::count(step.down));
    }
    if let Some(times) = &step.loss_of_connectivity {
        text += &format!("; loss of connectivity {}", of_times(times));
    }
    if let Some(times) = &step.since_step {
        let routes = human::counted(times.routes, "route");
        text += &format!("; {routes} at another port since the step: {}", of_times(times));
    }
    text
}

fn of_times(times: &RouteTimes) -> String {
    let of = |(name, seconds): (&str, f64)| format!("{name} {}", human::seconds(seconds));
    let all = [
        ("first route", times.first_s),
        ("p50", times.p50_s),
        ("p99", times.p99_s),
        ("full", times.full_s),
    ];
    all.map(of).join(", ")
}

fn of_route(route: &RouteReport) -> String {
    let mut text = format!("{} {}", printable(&route.prefix), human::count(route.lost));
    if let Some(period) = route.loss_of_connectivity_s {
        text += &format!(" ({})", human::seconds(period));
    }
    if !route.up {
        text += ", down";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{html, sample};
    use super::*;

    #[test]
    fn the_results_of_a_step_are_shown() {
        let mut step = RouteStepReport {
            steps: "r1: withdraw edge".into(),
            due_s: 10.0,
            lossy: 200,
            lost: 5_000,
            loss_of_connectivity: RouteTimes::of(vec![0.25]),
            since_step: RouteTimes::of(vec![0.26]),
            ..RouteStepReport::default()
        };
        assert_eq!(
            of_step(&step),
            "after r1: withdraw edge (10.0 s): 200 routes lost 5,000 frames; loss of connectivity \
             first route 250 ms, p50 250 ms, p99 250 ms, full 250 ms; 1 route at another port \
             since the step: first route 260 ms, p50 260 ms, p99 260 ms, full 260 ms"
        );
        step = RouteStepReport { down: 3, ..RouteStepReport::default() };
        assert!(of_step(&step).ends_with(": no frames lost, 3 down until the next step"));
        let routes = RoutesReport { steps: vec![step], ..RoutesReport::default() };
        let lines = one("web", &routes, 200, false);
        assert!(lines.iter().any(|line| line.contains("3 down until the next step")), "{lines:?}");
    }

    #[test]
    fn losses_and_times_of_routes_are_shown() {
        let port = |port: &str, first, last| RoutePort { port: port.into(), first, last };
        let route = RouteReport {
            prefix: "198.51.100.0/24".into(),
            lost: 34,
            loss_of_connectivity_s: Some(0.34),
            ..RouteReport::default()
        };
        let mut routes = RoutesReport {
            router: "r1".into(),
            group: Some("edge".into()),
            routes: 1_000,
            lossy: 200,
            down: 1,
            lost: 5_000,
            resolution_s: Some(0.01),
            loss_of_connectivity: RouteTimes::of(vec![0.12, 0.34]),
            loss_derived_s: Some(0.05),
            ports: vec![port("B", 1_000, 800), port("C", 0, 200)],
            worst: vec![route],
            ..RoutesReport::default()
        };
        let text = one("web", &routes, 200, false).join("\n");
        for expected in [
            "1,000 routes of r1/edge, stream web",
            "200 routes lost 5,000 frames, 1 down at the end, resolution 10.0 ms",
            "first route 120 ms, p50 120 ms, p99 340 ms, full 340 ms, loss-derived 50.0 ms",
            "B 1,000, then 800; C 0, then 200",
            "198.51.100.0/24 34 (340 ms), down",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        let mut report = sample::report(1);
        report.streams[0].rx.get_or_insert_default().routes = Some(Box::new(routes.clone()));
        let page = html(&report);
        assert!(page.contains("Routes that lost most frames") && page.contains("198.51.100.0/24"));
        (routes.lossy, routes.resolution_s) = (0, None);
        assert!(one("web", &routes, 200, false)[1].contains("no frames lost, 1 down at the end"));
    }
}
