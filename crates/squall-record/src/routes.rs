//! Loss and convergence of the routes to which streams go, from their lanes.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use squall_measure::{Lane, Lanes};
use squall_plan::{LANE_MARGIN, LanePhase, Plan, PlanStream, StreamDivision, StreamRoutes};
use squall_program::GapLaw;
use squall_report::report::routes::{
    RoutePort, RouteReport, RouteStepReport, RouteTimes, RoutesReport, WORST_ROUTES,
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
    steps: Vec<RouteStepReport>,
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
        let lanes = seen.iter().map(|(port, seen)| Some((*port, seen.lanes.as_deref()?)));
        let lanes: Vec<(usize, &Lanes)> = lanes.collect::<Option<_>>()?;
        let all = lanes.iter().flat_map(|(port, of)| of.phases().map(move |of| (*port, of)));
        let ports = by_port(all, routes.len() as usize);
        let numbers = self.numbers(i, stream, &ports);
        let all = routes.prefixes().enumerate();
        let rows = all.map(|(route, prefix)| {
            let parts = ports.iter().map(|(port, lanes)| (*port, lanes[route]));
            let parts: Vec<_> = parts.filter(|(_, lane)| lane.received > 0).collect();
            row(prefix, &parts, None, (route as u64, routes.len()), numbers)
        });
        let (rows, clock) = (rows.collect(), self.clock(i, stream));
        // Without times, no frame is known to be that of a step.
        let steps = clock.filter(|clock| keeps_phases(&stream.phases, *clock)).map(|clock| {
            let begun = stream.phases.iter().map(|phase| self.begun(phase)).collect::<Vec<_>>();
            let mut found = steps(routes, &lanes, (&stream.phases, &begun), numbers, clock);
            // A step that was due after the end was not begun.
            found.retain(|step| step.due_s < self.duration.as_secs_f64());
            found
        });
        Some(StreamLanes { routes, rows, clock, steps: steps.unwrap_or_default() })
    }

    /// Notes on streams without figures of the steps of routers.
    pub(crate) fn notes_on_steps(&self) -> Vec<String> {
        let streams = self.plan.streams.iter().enumerate();
        let lacks = |(i, stream): &(usize, &PlanStream)| {
            self.clock(*i, stream).is_some_and(|clock| !keeps_phases(&stream.phases, clock))
        };
        let note = |(_, stream): (usize, &PlanStream)| {
            format!(
                "stream {:?}: no figures for the steps of routers, because its rate was changed, \
                 or it was paused",
                stream.name
            )
        };
        streams.filter(lacks).map(note).collect()
    }

    /// When the first of the steps of a phase was begun, seconds after the start of the run;
    /// `None`: the routers are on other nodes.
    fn begun(&self, phase: &LanePhase) -> Option<f64> {
        let steps = self.daemons.iter().flat_map(|(_, state)| &state.steps);
        let of_phase = steps.filter(|step| !step.due.is_live && step.due.at == phase.at);
        of_phase.map(|step| step.begun.as_secs_f64()).reduce(f64::min)
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
        let unsent = tx.not_sent.total();
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
        let unsent = tx.not_sent.total();
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
        for i in 0..self.counted.streams.len() {
            let Some(lanes) = self.routes(i) else { continue };
            let name = self.counted.name(self.plan, i);
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
fn by_port<'a>(
    lanes: impl IntoIterator<Item = (usize, &'a [Lane])>,
    routes: usize,
) -> BTreeMap<usize, Vec<Lane>> {
    let mut ports = BTreeMap::new();
    for (port, lanes) in lanes {
        let all = ports.entry(port).or_insert_with(|| vec![Lane::default(); routes]);
        all.iter_mut().zip(lanes).for_each(|(all, lane)| *all = all.with(*lane));
    }
    ports
}

/// Whether the first frames of the phases left when it was planned. They did not if the rate was
/// changed, or the stream was paused.
fn keeps_phases(phases: &[LanePhase], clock: LaneClock) -> bool {
    let margin = LANE_MARGIN.as_secs_f64();
    phases.iter().all(|phase| {
        let (at, frames) = (phase.at.as_secs_f64(), phase.frame.saturating_sub(clock.first));
        let left = clock.begin + frames as f64 * clock.gap;
        frames == 0 || (at - 2.0 * margin - clock.gap..=at + margin + clock.gap).contains(&left)
    })
}

/// The results of each step, from the lanes of its phase. `numbers` are those of the stream's
/// frames: the first one, and the one after the last.
fn steps(
    routes: &StreamRoutes,
    lanes: &[(usize, &Lanes)],
    (phases, begun): (&[LanePhase], &[Option<f64>]),
    (first, end): (u64, u64),
    clock: LaneClock,
) -> Vec<RouteStepReport> {
    // The last frame of each route that arrived in the phases so far: its port, and its number in
    // the lane.
    let mut before: Vec<Option<(usize, u64)>> = vec![None; routes.len() as usize];
    let end = end.max(first);
    let begins = phases.iter().map(|phase| phase.frame.clamp(first, end));
    let begins: Vec<u64> = [first].into_iter().chain(begins).chain([end]).collect();
    let mut found = Vec::new();
    for (number, frames) in begins.windows(2).enumerate() {
        let in_phase =
            lanes.iter().filter_map(|(port, of)| Some((*port, of.phases().nth(number)?)));
        let ports = by_port(in_phase, before.len());
        let mut rows = Vec::new();
        for (route, prefix) in routes.prefixes().enumerate() {
            let parts = ports.iter().map(|(port, lanes)| (*port, lanes[route]));
            let parts: Vec<_> = parts.filter(|(_, lane)| lane.received > 0).collect();
            let place = (route as u64, routes.len());
            rows.push(row(prefix, &parts, before[route], place, (frames[0], frames[1])));
            let latest = parts.iter().rev().max_by_key(|(_, lane)| lane.last);
            before[route] = latest.map(|(port, lane)| (*port, lane.last)).or(before[route]);
        }
        // The frames before the first step belong to none.
        let Some(step) = number.checked_sub(1) else { continue };
        if frames[0] < frames[1] {
            let of = StreamLanes { routes, rows, clock: Some(clock), steps: Vec::new() };
            found.push(of.step(&phases[step], begun[step]));
        }
    }
    found
}

/// Route `route` of `routes`. `parts` are its lanes at the ports that received it, `earlier` the
/// port and the number of its last frame that arrived before these, and `first..end` the numbers of
/// the stream's frames.
fn row(
    prefix: Prefix,
    parts: &[(usize, Lane)],
    earlier: Option<(usize, u64)>,
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
    let old = earlier.or(earliest.map(|(port, lane)| (*port, lane.last))).map(|(port, last)| {
        let later = parts.iter().find(|(of, _)| *of == port);
        (port, later.map_or(last, |(_, lane)| lane.last))
    });
    let change = old.zip(latest).and_then(|((old, left), (new, came))| {
        let numbers = came.first.checked_sub(left).filter(|numbers| *numbers > 0)?;
        (old != *new).then_some((numbers, came.first * routes + route))
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

    /// The results of a step that was begun at `begun`, in seconds.
    fn step(&self, phase: &LanePhase, begun: Option<f64>) -> RouteStepReport {
        let count = |of: fn(&Row) -> bool| self.rows.iter().filter(|row| of(row)).count() as u64;
        let times = |of: &dyn Fn(&Row) -> Option<f64>| {
            RouteTimes::of(self.rows.iter().filter_map(of).collect())
        };
        let due = phase.at.as_secs_f64();
        // A change before the step was begun is none of its effects. A gap is the resolution.
        let since = |row: &Row| {
            let since = self.changed_at(row)? - begun.unwrap_or(due);
            (since >= -self.clock?.gap).then_some(since.max(0.0))
        };
        let lost: u64 = self.rows.iter().map(|row| row.lost).sum();
        RouteStepReport {
            steps: phase.steps.clone(),
            due_s: due,
            begun_s: begun,
            lossy: count(|row| row.lost > 0),
            down: count(|row| !row.up && row.sent > 0),
            sent: self.rows.iter().map(|row| row.sent).sum(),
            lost,
            loss_of_connectivity: times(&|row| self.loss_of_connectivity(row)),
            loss_derived_s: self
                .clock
                .map(|clock| lost as f64 * clock.period / self.rows.len() as f64),
            convergence: times(&|row| self.convergence(row)),
            since_step: times(&since),
        }
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
            steps: self.steps.clone(),
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
    use squall_router::{Prefixes, RouteRange};
    use squall_units::Nanos;

    use super::*;

    fn lane(received: u64, first: u64, last: u64) -> Lane {
        Lane { received, first, last }
    }

    /// Route 1 of 4, of a stream whose frames 8 to 47 were sent: 2 to 11 in the lane.
    fn of(parts: &[(usize, Lane)]) -> Row {
        let prefix = Prefix::parse("198.51.100.0/24").expect("a prefix");
        row(prefix, parts, None, (1, 4), (8, 48))
    }

    #[test]
    fn the_plan_knows_the_size_of_a_lane() {
        assert_eq!(size_of::<Lane>() as u64, squall_plan::LANE_OCTETS);
    }

    #[test]
    fn phases_count_only_if_their_frames_left_when_it_was_planned() {
        let phase = |frame| LanePhase { at: Nanos(10_000_000_000), steps: String::new(), frame };
        let clock = LaneClock { period: 0.02, gap: 0.01, first: 0, begin: 0.0 };
        assert!(keeps_phases(&[phase(990)], clock) && keeps_phases(&[], clock));
        assert!(!keeps_phases(&[phase(99)], clock), "a tenth of the rate at first");
        assert!(!keeps_phases(&[phase(1050)], clock), "half a second later");
    }

    #[test]
    fn each_step_has_the_losses_and_changes_of_its_phase() {
        // Two routes, a frame each 10 ms for each: route 0 has the even numbers of 0..400. Phases
        // begin with frames 100, 200 and 300.
        let begins: std::sync::Arc<[u64]> = [100, 200, 300].into();
        let [mut old, mut new] =
            [0, 1].map(|_: u32| squall_measure::Lanes::new(2, 0, begins.clone()));
        for k in 0..400u32 {
            match (k % 2, k / 2) {
                // Route 0 loses 5 frames at the first step, and goes to the other port; it is back
                // at the third one without loss.
                (0, 50..55) => {}
                (0, 55..150) => new.observe_run(k, 1),
                // Route 1 loses all frames from the second step on.
                (1, 100..) => {}
                _ => old.observe_run(k, 1),
            }
        }
        let prefixes = RouteRange { first: [10, 0, 0, 0].into(), length: 24, count: 2 };
        let routes = StreamRoutes::new("r1".into(), None, vec![Prefixes::Range(prefixes)]);
        let phase = |at: u64, frame| LanePhase {
            at: Nanos(at * 1_000_000),
            steps: format!("r1: step at {at}"),
            frame,
        };
        let phases = [phase(500, 100), phase(1_000, 200), phase(1_500, 300)];
        let clock = LaneClock { period: 0.01, gap: 0.005, first: 0, begin: 0.0 };
        let begun = [Some(0.502), None, Some(1.5)];
        let lanes = [(3, &old), (7, &new)];
        let found = steps(&routes, &lanes, (&phases, &begun), (0, 400), clock);
        let near = |found: Option<RouteTimes>, routes: u64, seconds: f64| {
            let times = found.expect("times");
            assert_eq!(times.routes, routes);
            assert!((times.full_s - seconds).abs() < 1e-9, "{times:?}");
        };
        assert_eq!(found.len(), 3);
        assert_eq!((&*found[0].steps, found[0].due_s), ("r1: step at 500", 0.5));
        assert_eq!((found[0].sent, found[0].lost, found[0].lossy, found[0].down), (100, 5, 1, 0));
        near(found[0].loss_of_connectivity, 1, 0.05);
        // From frame 49 of the lane at the old port to frame 55; that leaves at 550 ms.
        near(found[0].convergence, 1, 0.06);
        near(found[0].since_step, 1, 0.048);
        assert_eq!((found[1].lost, found[1].lossy, found[1].down), (50, 1, 1));
        assert_eq!((found[1].convergence, found[1].begun_s), (None, None));
        // Route 1 is still down; route 0 changes its port between two frames.
        assert_eq!((found[2].lost, found[2].down), (50, 1));
        near(found[2].convergence, 1, 0.01);
        near(found[2].since_step, 1, 0.0);
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
            steps: Vec::new(),
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
        let ports = by_port([(7, &one[..]), (7, &other[..])], 2);
        assert_eq!(ports[&7], [lane(4, 0, 3), lane(1, 5, 5)]);
    }

    #[test]
    fn names_in_csv_are_quoted_where_they_must_be() {
        assert_eq!((field("web"), field("a,\"b\"")), ("web".into(), "\"a,\"\"b\"\"\"".into()));
    }
}
