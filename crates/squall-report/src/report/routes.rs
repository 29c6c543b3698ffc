//! The routes to which a stream goes: loss and convergence of each.
//!
//! Terms are those of RFC 6412 section 3.6, to which RFC 6413 (link-state protocols) and RFC 7747
//! (BGP) refer. The instant of the event is not known here: times are loss of connectivity periods,
//! which begin with the first lost frame of a route.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of routes in [`RoutesReport::worst`]. The CSV has all.
pub const WORST_ROUTES: usize = 100;

/// The routes of a stream with `dst = "routes:NAME"` and `latency = true`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoutesReport {
    pub router: String,
    /// `null`: all groups of the router.
    pub group: Option<String>,
    /// Number of routes.
    pub routes: u64,
    /// Routes of which frames are lost, and of these: routes of which none arrived, and routes
    /// whose last frame did not arrive, so they were not back at the end.
    pub lossy: u64,
    pub silent: u64,
    pub down: u64,
    /// Frames to all routes, and those that are lost.
    pub sent: u64,
    pub lost: u64,
    /// Time between two frames to the same route, which is the resolution of all times, seconds.
    /// `null`: the stream had no constant rate, or missed it by more than 1 %, so the numbers of
    /// frames give no times.
    pub resolution_s: Option<f64>,
    /// The Route Loss of Connectivity Period (section 3.6.5) of the routes that lost frames: their
    /// lost frames times the resolution (section 3.5.3). `null`: none did, or times are not known.
    pub loss_of_connectivity: Option<RouteTimes>,
    /// The Loss-Derived Loss of Connectivity Period (section 3.6.6), seconds: all lost frames over
    /// the rate of the stream, which is the mean over all routes.
    pub loss_derived_s: Option<f64>,
    /// Time from the departure of the last frame that arrived at the old port to that of the first
    /// one at the new port, for the routes whose frames arrived at another port later.
    pub convergence: Option<RouteTimes>,
    /// The results of each step of a router: at most 16, in order. The plan says whether there
    /// are more. Empty without steps, or if times are not known. Live orders are no steps here.
    #[serde(default)]
    pub steps: Vec<RouteStepReport>,
    /// Number of routes whose first and last frame arrived at a port, for each port.
    pub ports: Vec<RoutePort>,
    /// The routes that lost most frames, at most 100, worst first.
    pub worst: Vec<RouteReport>,
}

/// The frames of a stream that were due from 100 ms before a step of a router to 100 ms before the
/// next one: frames may leave later than they are due. If the stream's port was delayed by more
/// (its `moved_s`), frames after a step may be part of the step before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteStepReport {
    /// The router and its step: `r1: withdraw edge`; several with commas if they are due at once.
    pub steps: String,
    /// When it was due, and when it was begun, seconds after the start of the run; `null`: the
    /// router is on another node.
    pub due_s: f64,
    pub begun_s: Option<f64>,
    /// Frames to all routes, and those that are lost.
    pub sent: u64,
    pub lost: u64,
    /// Routes of which frames are lost, and those whose last frame before the next step did not
    /// arrive.
    pub lossy: u64,
    pub down: u64,
    /// As in [`RoutesReport`], of these frames.
    pub loss_of_connectivity: Option<RouteTimes>,
    pub loss_derived_s: Option<f64>,
    pub convergence: Option<RouteTimes>,
    /// The Route-Specific Convergence Time (section 3.6.3) of the routes whose frames changed the
    /// port: from the step to the departure of the first frame at the new port.
    pub since_step: Option<RouteTimes>,
}

/// Times of several routes, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteTimes {
    /// Number of routes.
    pub routes: u64,
    /// The shortest time (First Route).
    pub first_s: f64,
    pub mean_s: f64,
    pub p50_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    /// The longest time (Full).
    pub full_s: f64,
}

/// Routes by port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoutePort {
    pub port: String,
    pub first: u64,
    pub last: u64,
}

/// One route. Times are in seconds, and `null` where they are not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteReport {
    /// `198.51.100.0/24`.
    pub prefix: String,
    pub sent: u64,
    pub lost: u64,
    pub loss_of_connectivity_s: Option<f64>,
    /// `null` also if the frames did not change from one port to another.
    pub convergence_s: Option<f64>,
    /// Likewise, the departure of the first frame at the new port, after the start of the run: less
    /// the time of the event, it is the Route-Specific Convergence Time (section 3.6.3).
    pub changed_at_s: Option<f64>,
    /// Ports at which the first and the last frame arrived; `null`: none did.
    pub first_port: Option<String>,
    pub last_port: Option<String>,
    /// Whether the last frame arrived.
    pub up: bool,
}

impl RouteTimes {
    /// The distribution of `times`, in seconds; `None` without any. Quantiles are nearest ranks.
    pub fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_unstable_by(f64::total_cmp);
        let (first, full) = (*times.first()?, *times.last()?);
        let rank = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times[rank.clamp(1, times.len()) - 1]
        };
        Some(Self {
            routes: times.len() as u64,
            first_s: first,
            mean_s: times.iter().sum::<f64>() / times.len() as f64,
            p50_s: rank(0.5),
            p90_s: rank(0.9),
            p99_s: rank(0.99),
            full_s: full,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_routes_are_nearest_ranks() {
        assert_eq!(RouteTimes::of(Vec::new()), None);
        let times = RouteTimes::of((1..=200).rev().map(f64::from).collect()).expect("200 times");
        assert_eq!((times.routes, times.first_s, times.full_s), (200, 1.0, 200.0));
        assert_eq!((times.p50_s, times.p90_s, times.p99_s), (100.0, 180.0, 198.0));
        assert_eq!(times.mean_s, 100.5);
        let one = RouteTimes::of(vec![0.25]).expect("a time");
        assert_eq!((one.first_s, one.p50_s, one.full_s), (0.25, 0.25, 0.25));
    }
}
