//! Lanes of streams to routes: their phases, which begin with the steps of routers, and their
//! memory.

use squall_program::GapLaw;
use squall_report::render::human;
use squall_router::{RouterOrder, Schedule, Step};
use squall_units::Nanos;

use crate::{Plan, PlanRouter, PlanStream, PlanWorker, StreamDivision};

/// Memory of a route in one phase at one receive queue, octets.
pub const LANE_OCTETS: u64 = 24;
/// Maximum memory of all lanes, octets.
const MOST_OCTETS: u64 = 1 << 30;
/// Maximum number of steps that begin new lanes.
const MOST_STEPS: u64 = 16;
/// Time before a step from which on frames count for it: a frame may leave as much later than it is
/// due, and what the step changes within milliseconds would be part of the step before.
pub const LANE_MARGIN: Nanos = Nanos(100_000_000);
/// Maximum number of steps to consider of each router, because steps may repeat without end.
const CONSIDERED: usize = 256;

/// A part of a stream to routes, of which receivers count the frames apart. It begins with the
/// first frame that is due 100 ms before a step or later; if the step before is less than 200 ms
/// away, halfway between both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanePhase {
    /// Time of the step after the start of the run.
    pub at: Nanos,
    /// The steps of this time: `r1: withdraw edge, r2: silent`.
    pub steps: String,
    /// Number of its first frame in the stream.
    pub frame: u64,
}

/// Sets the phases of all streams to routes. `until` is the end of the run, if it is known.
///
/// # Errors
/// The lanes take too much memory even without phases: the number of the stream with most routes,
/// and a message.
pub(crate) fn plan(
    streams: &mut [PlanStream],
    routers: &[PlanRouter],
    workers: &[PlanWorker],
    until: Option<Nanos>,
    notes: &mut Vec<String>,
) -> Result<(), (usize, String)> {
    let routes: u64 = streams.iter().map(lanes).sum();
    let queues = queues(workers);
    let octets = LANE_OCTETS.saturating_mul(routes).saturating_mul(queues);
    if octets == 0 {
        return Ok(());
    }
    if octets > MOST_OCTETS {
        let all = streams.iter().enumerate();
        let number = all.max_by_key(|(_, stream)| lanes(stream)).map_or(0, |(number, _)| number);
        let name = &streams[number].name;
        return Err((
            number,
            format!(
                "stream {name:?}: convergence of routes needs {} of memory, {LANE_OCTETS} octets \
                 for each of {} at {}; at most 1 GiB",
                human::si(octets as f64, "B"),
                human::counted(routes, "route"),
                human::counted(queues, "receive queue"),
            ),
        ));
    }
    let routers = routers.iter().map(|router| (router.name.as_str(), &router.steps[..]));
    let steps = steps(routers, until);
    let most = (MOST_OCTETS / octets - 1).min(MOST_STEPS);
    for stream in streams.iter_mut().filter(|stream| lanes(stream) > 0) {
        let mut before = None;
        let phase = |(at, steps): &(Nanos, String)| {
            let from = begin(*at, before.replace(*at));
            let frame = frame_at(stream, *at, from)?;
            Some(LanePhase { at: *at, steps: steps.clone(), frame })
        };
        let all: Vec<LanePhase> = steps.iter().filter_map(phase).collect();
        let left_out = (all.len() as u64).saturating_sub(most);
        if left_out > 0 {
            notes.push(format!(
                "stream {:?}: {} begin no new lanes, which take at most 1 GiB and {MOST_STEPS} \
                 steps: what they change is part of the step before",
                stream.name,
                human::counted(left_out, "step"),
            ));
        }
        stream.phases = all.into_iter().take(most as usize).collect();
    }
    Ok(())
}

impl Plan {
    /// Memory of the lanes of all streams to routes, octets.
    pub fn lane_octets(&self) -> u64 {
        let of = |stream: &PlanStream| lanes(stream) * (stream.phases.len() as u64 + 1);
        LANE_OCTETS * queues(&self.workers) * self.streams.iter().map(of).sum::<u64>()
    }
}

/// Number of lanes of a stream in one phase at one queue: its routes, if its frames are signed.
fn lanes(stream: &PlanStream) -> u64 {
    let routes = stream.routes.as_ref().filter(|_| stream.program.signature().is_some());
    routes.map_or(0, |routes| routes.len())
}

/// Number of receive queues, each of which has lanes of all streams.
fn queues(workers: &[PlanWorker]) -> u64 {
    workers.iter().map(|worker| worker.rx.len() as u64).sum()
}

/// The times at which steps of routers are due before `until`, in order.
fn steps<'a>(
    routers: impl IntoIterator<Item = (&'a str, &'a [Step])>,
    until: Option<Nanos>,
) -> Vec<(Nanos, String)> {
    let mut all = Vec::new();
    for (name, steps) in routers {
        let mut schedule = Schedule::new(steps);
        for _ in 0..CONSIDERED {
            let Some(due) = schedule.take(Nanos(u64::MAX)) else { break };
            schedule.reverse(&due, 1);
            all.push((due.at, format!("{name}: {}", words(&due.order))));
        }
    }
    all.retain(|(at, _)| *at < until.unwrap_or(Nanos(u64::MAX)));
    all.sort_by_key(|(at, _)| *at);
    let mut merged: Vec<(Nanos, String)> = Vec::new();
    for (at, text) in all {
        match merged.last_mut().filter(|last| last.0 == at) {
            Some((_, texts)) => *texts += &format!(", {text}"),
            None => merged.push((at, text)),
        }
    }
    merged
}

fn words(order: &RouterOrder) -> String {
    let of = order.group().map(str::to_owned);
    let of = of.or_else(|| order.neighbor().map(|address| address.to_string()));
    of.map_or_else(|| order.action().into(), |of| format!("{} {of}", order.action()))
}

/// The time from which on frames count for a step at `at`. `before` is the time of the step before.
fn begin(at: Nanos, before: Option<Nanos>) -> Nanos {
    let margin =
        before.map_or(LANE_MARGIN, |before| LANE_MARGIN.min(Nanos(at.0.abs_diff(before.0) / 2)));
    at.saturating_sub(margin)
}

/// The number of the first frame of a stream that counts for a step at `at`, and is due at `from`
/// or later. `None`: the stream begins after the step or has ended, or its frames are not due at
/// constant intervals from a time that is known before the run.
fn frame_at(stream: &PlanStream, at: Nanos, from: Nanos) -> Option<u64> {
    let is_known = stream.law == GapLaw::Constant
        && stream.pattern.bursts == 1
        && stream.division == StreamDivision::Here
        && stream.self_start
        && !stream.waits;
    let pps = stream.asked_pps.filter(|_| is_known)?;
    let after = |time: Nanos| time.as_secs_f64() - stream.start.0 as f64 / 1e12;
    let frames = (after(at) > 0.0).then(|| (after(from).max(0.0) * pps).ceil() as u64)?;
    let exists = stream.pattern.total().is_none_or(|total| stream.sent + frames < total);
    exists.then_some(stream.sent + frames)
}

#[cfg(test)]
mod tests {
    use squall_router::GroupPart;

    use super::*;

    fn step(at: u64, duration: Option<u64>, every: Option<u64>, order: RouterOrder) -> Step {
        let seconds = |seconds: u64| Nanos(seconds * Nanos::SECOND.0);
        Step {
            at: seconds(at),
            order,
            duration: duration.map(seconds),
            every: every.map(seconds),
            times: None,
        }
    }

    #[test]
    fn steps_of_all_routers_come_in_order_and_once_for_each_time() {
        let edge = GroupPart { group: Some("edge".into()), count: None };
        let one = [step(10, Some(5), Some(20), RouterOrder::Withdraw(edge))];
        let neighbor = Some([10, 0, 0, 2].into());
        let down = RouterOrder::Down { neighbor, message: String::new() };
        let two = [step(15, None, None, down)];
        let until = Some(Nanos(35 * Nanos::SECOND.0));
        let found = steps([("r1", &one[..]), ("r2", &two[..])], until);
        let brief: Vec<_> =
            found.iter().map(|(at, text)| (at.0 / Nanos::SECOND.0, text.as_str())).collect();
        let expected = [
            (10, "r1: withdraw edge"),
            (15, "r1: announce edge, r2: down 10.0.0.2"),
            (30, "r1: withdraw edge"),
        ];
        assert_eq!(brief, expected);
    }

    #[test]
    fn frames_count_for_a_step_from_shortly_before_it() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        assert_eq!(begin(ms(5_000), None), ms(4_900));
        assert_eq!(begin(ms(5_000), Some(ms(4_000))), ms(4_900));
        assert_eq!(begin(ms(5_000), Some(ms(4_980))), ms(4_990));
        assert_eq!(begin(ms(40), None), Nanos::ZERO);
    }

    #[test]
    fn steps_that_repeat_without_end_are_bounded() {
        let endless = [step(0, None, Some(1), RouterOrder::Silent)];
        assert_eq!(steps([("r1", &endless[..])], None).len(), CONSIDERED);
        // Its reverse never comes.
        let once = step(1, None, None, RouterOrder::Silent);
        let never = [Step { duration: Some(Nanos(u64::MAX)), ..once }];
        assert_eq!(steps([("r1", &never[..])], None).len(), 1);
    }
}
