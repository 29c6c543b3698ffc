//! Routers of a run: the sessions of their daemons, and the routes that these exchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One `[[router]]` of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterReport {
    pub name: String,
    /// Name of the port.
    pub port: String,
    /// The daemon: `BIRD` or `FRR`, or `native`.
    pub daemon: String,
    /// Number of routers: more than 1 only for native ones.
    #[serde(default = "one")]
    pub count: u64,
    /// Routes of the profile, which it announces.
    pub routes: u64,
    /// Frames of the daemon to the port.
    pub sent: u64,
    /// Frames of the port that the daemon got, and those for which its interface had no room.
    pub received: u64,
    pub dropped: u64,
    /// A native router with more than 100 sessions has only those here that are not up, at most 100
    /// of them.
    pub protocols: Vec<RouterProtocolReport>,
    /// Sums over all sessions; `null`: a daemon, whose sessions are all in `protocols`.
    #[serde(default)]
    pub sessions: Option<RouterSessionsReport>,
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
    /// CPU time of the daemon, seconds, and its peak memory, octets; `null`: there is no daemon.
    pub cpu_s: Option<f64>,
    pub memory: Option<u64>,
}

fn one() -> u64 {
    1
}

/// Sums over the sessions of native routers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterSessionsReport {
    pub sessions: u64,
    /// Sessions that are established.
    pub up: u64,
    /// Sessions that were established at any time.
    #[serde(default)]
    pub ever_up: u64,
    /// Time from the start of the run until each session had been established, seconds; `null`: one
    /// has not.
    pub all_up_after_s: Option<f64>,
    /// The longest time of a session from Established until the neighbor had acknowledged all
    /// routes, seconds; `null`: none has.
    pub acknowledged_after_s: Option<f64>,
    /// Routes that were learnt, and routes that are announced.
    pub imported: u64,
    pub exported: u64,
    /// Messages.
    pub sent: RouterMessagesReport,
    pub received: RouterMessagesReport,
    /// How often a neighbor had no room for more octets: it is slower than the router.
    pub closed_windows: u64,
    /// Errors in UPDATEs of neighbors that did not end a session.
    #[serde(default)]
    pub faults: RouterFaultsReport,
}

/// Errors in UPDATEs of BGP that do not end a session (RFC 7606).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterFaultsReport {
    /// UPDATEs whose routes were treated as withdrawn.
    pub withdrawn: u64,
    /// Attributes that were discarded.
    pub discarded: u64,
    /// Fields with routes of families that the session does not carry.
    pub other_families: u64,
    /// The reasons of the first two.
    pub reasons: Vec<RouterFaultReport>,
}

/// UPDATEs with one kind of error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterFaultReport {
    /// `malformed COMMUNITIES`
    pub reason: String,
    /// The section that says what follows: `RFC 7606 section 7.8`.
    pub source: String,
    /// The treatment: `treat-as-withdraw` or `attribute discard`.
    pub treatment: String,
    pub updates: u64,
}

/// Messages of BGP by their type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterMessagesReport {
    pub opens: u64,
    pub updates: u64,
    pub notifications: u64,
    pub keepalives: u64,
    pub refreshes: u64,
}

/// The routes that another router announces, compared with those learnt: at the end of the run of a
/// native router prefix by prefix, if none of them is withdrawn; otherwise by number, with the
/// protocol (BGP, OSPF, IS-IS, RIP) that has learnt most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExpectedRoutesReport {
    /// The other router, and its group; `null`: all groups.
    pub router: String,
    pub group: Option<String>,
    /// Routes that it announces now.
    pub routes: u64,
    /// Routes that were not learnt, and further ones that were.
    pub missing: u64,
    pub extra: u64,
    /// Whether prefixes were compared.
    #[serde(default)]
    pub by_prefix: bool,
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
    /// Withdrawals and announcements by flaps that came over 100 ms late.
    #[serde(default)]
    pub late_flaps: u64,
}

/// A step of a router that was carried out. Times are seconds after the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterStepReport {
    /// `withdraw`, `announce`, `down`, `up`, `restart`, `refresh`, `silent`, `talk` or `notify`.
    pub action: String,
    /// The group, or the address of the neighbor, that it names; `null`: all.
    pub group: Option<String>,
    pub neighbor: Option<String>,
    /// `profile`, or `order` for a live order.
    pub by: String,
    pub due_s: f64,
    /// When it was begun.
    pub begun_s: f64,
    /// When the daemon had acknowledged it; for single routes, when it had taken over all of them
    /// (of FRR, its zebra, whose protocols announce them later); for `restart`, when it answered
    /// again. For native routers, when the neighbors had acknowledged all octets. `null`: it has not
    /// yet.
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
    /// BGP: the session is established. OSPF, IS-IS: it has neighbors. RIP and BFD: it runs.
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
    /// Time from Established until the neighbor had acknowledged all routes, seconds; `null`: it
    /// has not, or the daemon does not know.
    #[serde(default)]
    pub acknowledged_after_s: Option<f64>,
    /// Messages; `null`: the daemon does not know.
    #[serde(default)]
    pub sent: Option<RouterMessagesReport>,
    #[serde(default)]
    pub received: Option<RouterMessagesReport>,
}
