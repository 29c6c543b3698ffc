//! Routers that are routing daemons on a port: settings to a configuration, and a daemon's
//! replies to the states of its protocols, and orders to calls of the daemon.
//!
//! Input: [`RouterSettings`], what the daemon's control socket sends, and the steps of a profile.
//! Output: the text of a configuration file, a [`ProtocolState`] for each protocol, and the
//! [`DaemonCall`]s of each [`RouterOrder`]. It knows no processes, sockets or interfaces, and time
//! comes in as an argument. Tables of routes are random ([`tables`]), or come from files ([`mrt`]).
#![forbid(unsafe_code)]

pub mod bird;
mod groups;
pub mod mrt;
mod routes;
mod steps;
pub mod tables;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{MacAddr, Nanos};

pub use groups::{Flap, GroupAttributes, Origin, Prefix, Prefixes, RouteGroup};
pub use routes::RouteRange;
pub use steps::{
    Calls, DaemonCall, Due, GroupCount, GroupPart, OrderError, RouterOrder, Schedule, Steered,
    Step, check,
};

/// A router: its interface, the protocols that it speaks, and the routes that it announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSettings {
    pub mac: MacAddr,
    pub ipv4: Option<(Ipv4Addr, u8)>,
    pub ipv6: Option<(Ipv6Addr, u8)>,
    pub router_id: Ipv4Addr,
    pub bgp: Option<Bgp>,
    /// Area of OSPFv2 (RFC 2328).
    pub ospf: Option<Ipv4Addr>,
    /// Area of OSPFv3 (RFC 5340).
    pub ospf3: Option<Ipv4Addr>,
    /// Intervals of OSPF's hello packets, and after which a silent neighbor is dead; whole seconds.
    pub hello: Nanos,
    pub dead: Nanos,
    /// RIPv2 (RFC 2453) and `RIPng` (RFC 2080).
    pub rip: bool,
    pub ripng: bool,
    /// Interval of updates of RIP; whole seconds.
    pub rip_update: Nanos,
    /// BFD (RFC 5880) for the sessions of BGP and OSPF: the interval of its packets; they are missed
    /// three times before the session is down.
    pub bfd: Option<Nanos>,
    /// Routes that it announces. Their numbers in the kernel's table are those of this list.
    pub groups: Vec<RouteGroup>,
    /// BGP and OSPF offer a graceful restart (RFC 4724, RFC 3623).
    pub graceful_restart: bool,
    /// The daemon's own configuration, in place of the other settings.
    pub configuration: Option<String>,
}

impl RouterSettings {
    /// Number of its routes.
    pub fn routes(&self) -> u64 {
        self.groups.iter().map(RouteGroup::len).sum()
    }

    /// Names of the protocols, for users.
    pub fn protocols(&self) -> Vec<&'static str> {
        let all = [
            ("BGP", self.bgp.is_some()),
            ("OSPFv2", self.ospf.is_some()),
            ("OSPFv3", self.ospf3.is_some()),
            ("RIPv2", self.rip),
            ("RIPng", self.ripng),
            ("BFD", self.bfd.is_some()),
            ("own configuration", self.configuration.is_some()),
        ];
        all.into_iter().filter(|(_, speaks)| *speaks).map(|(name, _)| name).collect()
    }
}

/// BGP (RFC 4271).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bgp {
    /// Number of the own autonomous system.
    pub asn: u32,
    pub neighbors: Vec<Neighbor>,
    /// Offered hold time; whole seconds.
    pub hold: Nanos,
    /// Password of TCP MD5 signatures (RFC 2385).
    pub password: Option<String>,
}

/// A neighbor of BGP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    pub address: IpAddr,
    pub asn: u32,
}

/// The protocols of a running daemon, and its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonState {
    pub protocols: Vec<ProtocolState>,
    /// For each protocol that was ever up: its name, and the time from the daemon's start.
    pub up_after: Vec<(String, Nanos)>,
    /// How often protocols that had been up were not up later.
    pub downs: u64,
    /// Why the daemon ended before it was stopped, with the last line of its log.
    pub failed: Option<String>,
    /// CPU time of the daemon, and its peak memory, octets.
    pub cpu: Nanos,
    pub memory: u64,
    /// Steps and orders that were carried out, up to [`MOST_STEPS`] of them, and the number of all.
    pub steps: Vec<StepState>,
    pub all_steps: u64,
    /// The earliest step that is not carried out yet.
    pub next_step: Option<Due>,
    /// The groups of routes, in the order of the settings.
    pub groups: Vec<GroupCount>,
    /// Names of protocols whose sessions may end by a step: that is not counted in `downs`.
    pub excused: Vec<String>,
}

/// Steps of which a router keeps a record.
pub const MOST_STEPS: usize = 1_000;

/// A step or an order that was carried out. Times are after the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepState {
    pub due: Due,
    /// When it was begun, and when the daemon had acknowledged all of it; `None`: it has not.
    pub begun: Nanos,
    pub acknowledged: Option<Nanos>,
    /// Routes that it changed.
    pub routes: u64,
    /// The first and the last frame that the daemon sent in the second after it was begun.
    pub sent: Option<(Nanos, Nanos)>,
    /// Why it could not be carried out.
    pub error: Option<String>,
}

impl DaemonState {
    /// Takes over the states of the protocols, `elapsed` after the daemon's first start.
    pub fn update(&mut self, protocols: Vec<ProtocolState>, elapsed: Nanos) {
        for one in &protocols {
            let known = self.up_after.iter().any(|(name, _)| *name == one.name);
            if one.is_up && !known {
                self.up_after.push((one.name.clone(), elapsed));
            }
            let before = self.protocols.iter().find(|before| before.name == one.name);
            let was_up = before.is_some_and(|before| before.is_up);
            if was_up && !one.is_up && !self.excused.contains(&one.name) {
                self.downs += 1;
            }
            // The session that a step has taken down is back.
            if !was_up && one.is_up {
                self.excused.retain(|name| *name != one.name);
            }
        }
        self.protocols = protocols;
    }

    /// Adds a step, and returns its number; `None`: there are too many already.
    pub fn add_step(&mut self, step: StepState) -> Option<usize> {
        self.all_steps += 1;
        // Steps that failed make the run NOT VALID, so a full record still takes some of them.
        let most = if step.error.is_some() { 2 * MOST_STEPS } else { MOST_STEPS };
        (self.steps.len() < most).then(|| {
            self.steps.push(step);
            self.steps.len() - 1
        })
    }

    /// The daemon has carried out the steps from this number on, at `now`.
    pub fn acknowledge(&mut self, from: usize, now: Nanos) {
        let open = |step: &&mut StepState| step.acknowledged.is_none() && step.error.is_none();
        let steps = self.steps.get_mut(from..).unwrap_or_default();
        steps.iter_mut().filter(open).for_each(|step| step.acknowledged = Some(now));
    }

    /// The daemon has not carried out the steps from this number on.
    pub fn fail_steps(&mut self, from: usize, why: &str) {
        let open = |step: &&mut StepState| step.acknowledged.is_none() && step.error.is_none();
        let steps = self.steps.get_mut(from..).unwrap_or_default();
        steps.iter_mut().filter(open).for_each(|step| step.error = Some(why.to_owned()));
    }

    /// The first and the last frame of the daemon after a step.
    pub fn note_frames(&mut self, step: usize, sent: (Nanos, Nanos)) {
        if let Some(step) = self.steps.get_mut(step) {
            step.sent = Some(sent);
        }
    }

    /// The next end of the sessions of these protocols is that of a step.
    pub fn excuse(&mut self, names: Vec<String>) {
        self.excused.extend(names);
        self.excused.sort_unstable();
        self.excused.dedup();
    }

    /// Records that the daemon has ended before it was stopped. Its sessions end with it.
    pub fn fail(&mut self, why: String) {
        for protocol in &mut self.protocols {
            self.downs += u64::from(protocol.is_up);
            protocol.is_up = false;
            "ended".clone_into(&mut protocol.state);
        }
        self.failed = Some(why);
    }
}

/// The state of one protocol of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolState {
    /// The daemon's name for it: `bgp1`.
    pub name: String,
    /// `BGP`, `OSPF`, `RIP`, `BFD`.
    pub kind: String,
    /// The daemon's word for the state (`Established`, `Running`, `Active`), or `ended` with the
    /// daemon.
    pub state: String,
    /// BGP: the session is established. OSPF: it has neighbors. RIP and BFD: it runs.
    pub is_up: bool,
    /// Address of the neighbor, where the protocol has exactly one.
    pub neighbor: String,
    /// Last error, if any: `Socket: Connection refused`.
    pub error: String,
    /// Routes that it has learnt, and routes that it announces.
    pub imported: u64,
    pub exported: u64,
}
