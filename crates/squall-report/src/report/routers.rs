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
    /// How often sessions that were up went down.
    pub downs: u64,
    /// Why the daemon or its link ended before the end of the run; `null`: it did not.
    pub failed: Option<String>,
    /// CPU time of the daemon, seconds, and its peak memory, octets.
    pub cpu_s: f64,
    pub memory: u64,
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
