//! Routers of a run: the sessions of their daemons, and the routes that these exchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One `[[router]]` of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterReport {
    pub name: String,
    /// Name of the port.
    pub port: String,
    /// The daemon: `BIRD`.
    pub daemon: String,
    /// Routes of the profile, which it announces.
    pub routes: u64,
    /// Frames of the daemon to the port.
    pub sent: u64,
    /// Frames of the port that the daemon got, and those for which its interface had no room.
    pub received: u64,
    pub dropped: u64,
    pub protocols: Vec<RouterProtocolReport>,
    /// How often sessions that were up went down, other than by a step.
    pub downs: u64,
    /// Groups of routes, in the order of the profile.
    #[serde(default)]
    pub groups: Vec<RouterGroupReport>,
    /// Steps and live orders in the order in which they were carried out: the first thousand.
    #[serde(default)]
    pub steps: Vec<RouterStepReport>,
    /// Number of steps that `steps` does not have.
    #[serde(default)]
    pub more_steps: u64,
    /// Routes that it should have learnt from the device; `null`: the profile expects none.
    #[serde(default)]
    pub expected: Option<ExpectedRoutesReport>,
    /// Why the daemon or its link ended before the end of the run; `null`: it did not.
    pub failed: Option<String>,
    /// CPU time of the daemon, seconds, and its peak memory, octets.
    pub cpu_s: f64,
    pub memory: u64,
}

/// The routes that another router announces, compared by number with those learnt: by the protocol
/// (BGP, OSPF, RIP) that has learnt most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExpectedRoutesReport {
    /// The other router, and its group; `null`: all groups.
    pub router: String,
    pub group: Option<String>,
    /// Routes that it announces now.
    pub routes: u64,
    /// How many fewer or more were learnt.
    pub missing: u64,
    pub extra: u64,
}

/// A group of routes of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterGroupReport {
    pub name: String,
    /// Routes of the profile.
    pub routes: u64,
    /// Routes that are withdrawn now, by steps or flaps.
    pub withdrawn: u64,
    /// Withdrawals by flaps.
    pub flaps: u64,
}

/// A step of a router that was carried out. Times are seconds after the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterStepReport {
    /// `withdraw`, `announce`, `down`, `up`, `restart`, `refresh`, `silent` or `talk`.
    pub action: String,
    /// The group, or the address of the neighbor, that it names; `null`: all.
    pub group: Option<String>,
    pub neighbor: Option<String>,
    /// `profile`, or `order` for a live order.
    pub by: String,
    pub due_s: f64,
    /// When it was begun.
    pub begun_s: f64,
    /// When the daemon had acknowledged it; for single routes, when it had taken over all of them;
    /// for `restart`, when it answered again. `null`: it has not yet.
    pub acknowledged_s: Option<f64>,
    /// Routes that were withdrawn or announced by it.
    pub routes: u64,
    /// The first and the last frame of the daemon in the second after the beginning; `null`: none.
    pub first_sent_s: Option<f64>,
    pub last_sent_s: Option<f64>,
    /// Why it could not be carried out; `null`: it could.
    pub error: Option<String>,
}

/// A protocol of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterProtocolReport {
    /// The daemon's name for it: `bgp1`, `ospf4`, `rip6`.
    pub name: String,
    /// `BGP`, `OSPF`, `RIP`, `RIPng`, `BFD`.
    pub kind: String,
    /// The daemon's word for its state (`Established`, `Running`, `Alone`), or `ended` with the
    /// daemon.
    pub state: String,
    /// BGP: the session is established. OSPF: it has neighbors. RIP and BFD: it runs.
    pub up: bool,
    /// Time from the daemon's start until it was up first, seconds; `null`: never.
    pub up_after_s: Option<f64>,
    /// Address of the neighbor of BGP; empty for other protocols.
    pub neighbor: String,
    /// The last error, if any: `Socket: Connection refused`.
    pub error: String,
    /// Routes that it has learnt, and routes that it announces.
    pub imported: u64,
    pub exported: u64,
}
