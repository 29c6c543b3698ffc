//! Loss and convergence of the routes to which streams go, from their lanes.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use squall_measure::Lane;
use squall_plan::{Plan, PlanStream, StreamDivision, StreamRoutes};
use squall_program::GapLaw;
use squall_report::report::routes::{
    RoutePort, RouteReport, RouteTimes, RoutesReport, WORST_ROUTES,
};
use squall_router::Prefix;

use crate::Record;

/// The routes of one stream.
pub(crate) struct StreamLanes<'a> {
    routes: &'a StreamRoutes,
    /// In the order of the stream's routes.
    rows: Vec<Row>,
    /// `None`: the rate was not constant, so numbers give no times.
    clock: Option<LaneClock>,
}

/// The departures of a stream with a constant rate.
#[derive(Clone, Copy, Debug)]
struct LaneClock {
    /// Time between two frames to the same route, seconds.
    period: f64,
    /// Time between two frames of the stream, seconds.
    gap: f64,
    /// The number of the first frame, and its departure after the start of the run, seconds.
    first: u64,
    begin: f64,
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    prefix: Prefix,
    sent: u64,
    lost: u64,
    /// Ports at which the first and the last frame arrived.
    ports: Option<(usize, usize)>,
    /// If these differ: the numbers from the last frame at the first port to the first frame at the
    /// last port, and the number of the latter in the stream.
    change: Option<(u64, u64)>,
    /// Whether the last frame arrived.
    up: bool,
}

/// A rate that differs by more from the one in the plan gives no times.
const RATE_TOLERANCE: f64 = 0.01;

impl Record<'_> {
    /// The routes of stream `i`, after the end of the run; `None`: it has none, or they were not
    /// measured.
    pub(crate) fn routes(&self, i: usize) -> Option<StreamLanes<'_>> {
        let (counted, plan) = (&self.counted, self.plan);
        let listening = counted.rx.iter().any(|queues| !queues.is_empty());
        let is_measured = listening && !counted.running && self.is_known(i);
        let stream = plan.streams.get(i).filter(|_| is_measured)?;
        let routes = stream.routes.as_deref()?;
        stream.program.signature()?;
        let seen = &counted.seen[i];
        // Without frames, nothing is known of a stream that another part or node sends.
        if seen.is_empty() && stream.division != StreamDivision::Here {
            return None;
        }
        // A stream that was added during the run has no lanes.
        let lanes = seen.iter().map(|(port, seen)| Some((*port, seen.lanes.as_deref()?.lanes())));
        let lanes: Vec<(usize, &[Lane])> = lanes.collect::<Option<_>>()?;
        let ports = by_port(&lanes, routes.len() as usize);
        let numbers = self.numbers(i, stream, &ports);
        let all = routes.prefixes().enumerate();
        let rows = all.map(|(route, prefix)| {
            let parts = ports.iter().map(|(port, lanes)| (*port, lanes[route]));
            let parts: Vec<_> = parts.filter(|(_, lane)| lane.received > 0).collect();
            row(prefix, &parts, (route as u64, routes.len()), numbers)
        });
        Some(StreamLanes { routes, rows: rows.collect(), clock: self.clock(i, stream) })
    }

    /// The numbers of the frames that were sent: the first one, and the one after the last.
    fn numbers(
        &self,
        i: usize,
        stream: &PlanStream,
        ports: &BTreeMap<usize, Vec<Lane>>,
    ) -> (u64, u64) {
        let tx = &self.counted.streams[i];
        let routes = stream.routes.as_ref().map_or(1, |routes| routes.len());
        let highest = |lanes: &Vec<Lane>| {
            let of = |(route, lane): (usize, &Lane)| lane.last * routes + route as u64 + 1;
            let arrived = lanes.iter().enumerate().filter(|(_, lane)| lane.received > 0);
            arrived.map(of).max()
        };
        let arrived = ports.values().filter_map(highest).max();
        let unsent: u64 = tx.not_sent.values().sum();
        let (least, most) = (stream.sent + tx.packets, stream.sent + tx.packets + unsent);
        let end = match arrived {
            // The frames of another node may not all have been sent.
            _ if self.plan.has_other_nodes() || stream.division != StreamDivision::Here => {
                arrived.unwrap_or(stream.sent)
            }
            // Frames that were not sent may have had numbers.
            Some(arrived) => arrived.clamp(least, most),
            None => least,
        };
        (stream.sent, end)
    }

    /// The departures of the stream, if they are a function of the numbers of frames.
    fn clock(&self, i: usize, stream: &PlanStream) -> Option<LaneClock> {
        let routes = stream.routes.as_ref()?.len();
        let pps = stream.asked_pps.filter(|_| {
            stream.law == GapLaw::Constant
                && stream.pattern.bursts == 1
                && stream.division == StreamDivision::Here
        })?;
        let tx = &self.counted.streams[i];
        let span = tx.last.saturating_sub(tx.first?).as_secs_f64();
        let sent = tx.packets.checked_sub(1)? as f64 / span;
        let begin = tx.first?.saturating_sub(self.start).as_secs_f64();
        // Frames that were not sent have numbers, too, and would be loss of connectivity.
        let unsent: u64 = tx.not_sent.values().sum();
        let is_whole = unsent as f64 <= RATE_TOLERANCE * tx.packets as f64;
        (is_whole && (sent / pps - 1.0).abs() <= RATE_TOLERANCE).then(|| LaneClock {
            period: routes as f64 / pps,
            // The rate that was kept: an error of 1 % would be 0.5 s after 50 s. With frames left
            // out, the schedule is nearer.
            gap: if unsent == 0 { 1.0 / sent } else { 1.0 / pps },
            first: stream.sent,
            begin,
        })
    }

    /// Writes the routes of all streams as CSV, with a row for each route of each stream. Times are
    /// in seconds, and empty where they are not known.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn write_routes(&self, mut to: impl Write) -> io::Result<()> {
        writeln!(
            to,
            "stream,prefix,sent,lost,loss_of_connectivity_s,convergence_s,changed_at_s,first_port,\
             last_port,up"
        )?;
        for (i, name) in self.counted.names.iter().enumerate() {
            let Some(lanes) = self.routes(i) else { continue };
            for row in &lanes.rows {
                let time = |time: Option<f64>| time.map(|time| format!("{time:.6}"));
                let loss = time(lanes.loss_of_connectivity(row)).unwrap_or_default();
                let convergence = time(lanes.convergence(row)).unwrap_or_default();
                let changed = time(lanes.changed_at(row)).unwrap_or_default();
                let port = |port: usize| field(&self.plan.ports[port].name);
                let (first, last) =
                    row.ports.map(|(first, last)| (port(first), port(last))).unzip();
                let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
                let Row { prefix, sent, lost, up, .. } = row;
                // Without frames, nothing is known.
                let up = if *sent > 0 { up.to_string() } else { String::new() };
                let name = field(name);
                write!(to, "{name},{prefix},{sent},{lost},{loss},{convergence},{changed},")?;
                writeln!(to, "{first},{last},{up}")?;
            }
        }
        to.flush()
    }
}

/// A text as a field of a CSV file (RFC 4180).
fn field(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The lanes of each port, whose queues share its frames.
fn by_port(lanes: &[(usize, &[Lane])], routes: usize) -> BTreeMap<usize, Vec<Lane>> {
    let mut ports = BTreeMap::new();
    for (port, lanes) in lanes {
        let all = ports.entry(*port).or_insert_with(|| vec![Lane::default(); routes]);
        all.iter_mut().zip(*lanes).for_each(|(all, lane)| *all = all.with(*lane));
    }
    ports
}

/// Route `route` of `routes`. `parts` are its lanes at the ports that received it, and `first..end`
/// the numbers of the stream's frames.
fn row(
    prefix: Prefix,
    parts: &[(usize, Lane)],
    (route, routes): (u64, u64),
    (first, end): (u64, u64),
) -> Row {
    // Number of frames to this route among the first `frames` of the stream.
    let before = |frames: u64| (frames + routes - 1 - route) / routes;
    let sent = before(end).saturating_sub(before(first));
    let (received, all) = parts
        .iter()
        .fold((0, Lane::default()), |(sum, all), (_, lane)| (sum + lane.received, all.with(*lane)));
    // More frames than numbers: several ports received copies, and the one with most of them
    // counts. If not, the ports had the frames in turn.
    let received = match received <= all.last - all.first + 1 {
        true => received,
        false => parts.iter().map(|(_, lane)| lane.received).max().unwrap_or(0),
    };
    let earliest = parts.iter().min_by_key(|(_, lane)| lane.first);
    // If several ports have the same last frame, the first one counts, as above: copies are no
    // change.
    let latest = parts.iter().rev().max_by_key(|(_, lane)| lane.last);
    let ports = earliest.zip(latest).map(|(earliest, latest)| (earliest.0, latest.0));
    let change = earliest.zip(latest).and_then(|((old, left), (new, came))| {
        let numbers = came.first.checked_sub(left.last).filter(|numbers| *numbers > 0)?;
        (old != new).then_some((numbers, came.first * routes + route))
    });
    let up = all.received > 0 && all.last + 1 >= before(end);
    Row { prefix, sent, lost: sent.saturating_sub(received), ports, change, up }
}

impl StreamLanes<'_> {
    /// Seconds; `None`: nothing is lost, or the period is not known.
    fn loss_of_connectivity(&self, row: &Row) -> Option<f64> {
        Some(row.lost as f64 * self.clock.filter(|_| row.lost > 0)?.period)
    }

    fn convergence(&self, row: &Row) -> Option<f64> {
        Some(row.change?.0 as f64 * self.clock?.period)
    }

    /// Departure of the first frame at the last port after the start of the run, seconds.
    fn changed_at(&self, row: &Row) -> Option<f64> {
        let LaneClock { gap, first, begin, .. } = self.clock?;
        Some(begin + row.change?.1.saturating_sub(first) as f64 * gap)
    }

    pub fn report(&self, plan: &Plan) -> RoutesReport {
        let Self { routes, rows, .. } = self;
        let period = self.clock.map(|clock| clock.period);
        let count = |of: fn(&Row) -> bool| rows.iter().filter(|row| of(row)).count() as u64;
        let lost: u64 = rows.iter().map(|row| row.lost).sum();
        let times =
            |of: &dyn Fn(&Row) -> Option<f64>| RouteTimes::of(rows.iter().filter_map(of).collect());
        let mut worst: Vec<&Row> = rows.iter().filter(|row| row.lost > 0).collect();
        // A stable sort, so routes with the same loss stay in order.
        worst.sort_by_key(|row| std::cmp::Reverse(row.lost));
        worst.truncate(WORST_ROUTES);
        let name = |port: usize| plan.ports[port].name.clone();
        let mut ports = BTreeMap::<usize, (u64, u64)>::new();
        for (first, last) in rows.iter().filter_map(|row| row.ports) {
            ports.entry(first).or_default().0 += 1;
            ports.entry(last).or_default().1 += 1;
        }
        let ports = ports.into_iter();
        RoutesReport {
            router: routes.router.clone(),
            group: routes.group.clone(),
            routes: rows.len() as u64,
            lossy: count(|row| row.lost > 0),
            silent: count(|row| row.ports.is_none() && row.sent > 0),
            down: count(|row| !row.up && row.sent > 0),
            sent: rows.iter().map(|row| row.sent).sum(),
            lost,
            resolution_s: period,
            loss_of_connectivity: times(&|row| self.loss_of_connectivity(row)),
            loss_derived_s: period.map(|period| lost as f64 * period / rows.len() as f64),
            convergence: times(&|row| self.convergence(row)),
            ports: ports
                .map(|(port, (first, last))| RoutePort { port: name(port), first, last })
                .collect(),
            worst: worst
                .into_iter()
                .map(|row| RouteReport {
                    prefix: row.prefix.to_string(),
                    sent: row.sent,
                    lost: row.lost,
                    loss_of_connectivity_s: self.loss_of_connectivity(row),
                    convergence_s: self.convergence(row),
                    changed_at_s: self.changed_at(row),
                    first_port: row.ports.map(|ports| name(ports.0)),
                    last_port: row.ports.map(|ports| name(ports.1)),
                    up: row.up,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(received: u64, first: u64, last: u64) -> Lane {
        Lane { received, first, last }
    }

    /// Route 1 of 4, of a stream whose frames 8 to 47 were sent: 2 to 11 in the lane.
    fn of(parts: &[(usize, Lane)]) -> Row {
        let prefix = Prefix::parse("198.51.100.0/24").expect("a prefix");
        row(prefix, parts, (1, 4), (8, 48))
    }

    #[test]
    fn a_route_has_lost_what_no_port_received() {
        let all = of(&[(0, lane(10, 2, 11))]);
        assert_eq!((all.sent, all.lost, all.ports, all.up), (10, 0, Some((0, 0)), true));
        let none = of(&[]);
        assert_eq!((none.sent, none.lost, none.ports, none.up), (10, 10, None, false));
        // Frames 5 to 7 of the lane are lost, or 10 and 11.
        assert_eq!((of(&[(0, lane(7, 2, 11))]).lost, of(&[(0, lane(7, 2, 11))]).up), (3, true));
        assert_eq!((of(&[(0, lane(8, 2, 9))]).lost, of(&[(0, lane(8, 2, 9))]).up), (2, false));
    }

    #[test]
    fn a_route_that_changes_its_port_converges_from_the_old_port_to_the_new_one() {
        // Frames 2 to 4 at port 3, none of 5 to 8, then port 1.
        let changed = of(&[(1, lane(3, 9, 11)), (3, lane(3, 2, 4))]);
        assert_eq!((changed.lost, changed.ports), (4, Some((3, 1))));
        // Frame 9 of route 1 of 4 is frame 37 of the stream.
        assert_eq!(changed.change, Some((5, 37)));
        let routes = StreamLanes {
            routes: &StreamRoutes::default(),
            rows: vec![changed],
            clock: Some(LaneClock { period: 0.04, gap: 0.01, first: 8, begin: 2.0 }),
        };
        let near = |found: Option<f64>, expected: f64| {
            assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?}");
        };
        near(routes.loss_of_connectivity(&changed), 0.16);
        near(routes.convergence(&changed), 0.2);
        near(routes.changed_at(&changed), 2.29);
        // And back again after the repair: the ports had the frames in turn.
        let back = of(&[(1, lane(2, 6, 7)), (3, lane(7, 2, 11))]);
        assert_eq!((back.lost, back.ports, back.change), (1, Some((3, 3)), None));
    }

    #[test]
    fn copies_at_two_ports_hide_no_loss() {
        let flooded = of(&[(0, lane(9, 2, 11)), (1, lane(8, 2, 11))]);
        assert_eq!((flooded.sent, flooded.lost, flooded.change), (10, 1, None));
        assert_eq!(flooded.ports, Some((0, 0)), "copies are no change");
    }

    #[test]
    fn queues_of_a_port_share_its_frames() {
        let (one, other) = ([lane(2, 0, 3), lane(1, 5, 5)], [lane(2, 1, 2), Lane::default()]);
        let ports = by_port(&[(7, &one), (7, &other)], 2);
        assert_eq!(ports[&7], [lane(4, 0, 3), lane(1, 5, 5)]);
    }

    #[test]
    fn names_in_csv_are_quoted_where_they_must_be() {
        assert_eq!((field("web"), field("a,\"b\"")), ("web".into(), "\"a,\"\"b\"\"\"".into()));
    }
}
