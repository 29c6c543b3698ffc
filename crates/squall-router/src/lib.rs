//! Routers that are routing daemons on a port: settings to a configuration, and a daemon's
//! replies to the states of its protocols, and orders to calls of the daemon.
//!
//! Input: [`RouterSettings`], what the daemon's control socket sends, and the steps of a profile.
//! Output: the text of a configuration file, a [`ProtocolState`] for each protocol, and the
//! [`DaemonCall`]s of each [`RouterOrder`]. It knows no processes, sockets or interfaces, and time
//! comes in as an argument. Tables of routes are random ([`tables`]), or come from files ([`mrt`]).
#![forbid(unsafe_code)]

pub mod bird;
pub mod frr;
mod groups;
mod igp;
pub mod mrt;
pub mod observe;
mod routes;
mod steps;
pub mod tables;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{MacAddr, Nanos};

pub use groups::{Flap, GroupAttributes, Origin, Prefix, Prefixes, RouteGroup};
pub use igp::{Igp, IgpRoutes, MOST_INTERIOR, OspfAuthentication, RouteOrigin};
pub use routes::RouteRange;
pub use steps::{
    Calls, DaemonCall, Due, GroupCount, GroupPart, OrderError, RouteChanges, RouteMove,
    RouterOrder, Schedule, Steered, Step, check,
};

/// The program that speaks the protocols of a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Daemon {
    #[default]
    Bird,
    Frr,
    /// No daemon: the speaker of BGP that is part of Squall.
    Native(Copies),
}

impl Daemon {
    /// Its name, for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bird => "BIRD",
            Self::Frr => "FRR",
            Self::Native(_) => "native",
        }
    }

    /// The routers of a native one.
    pub fn native(self) -> Option<Copies> {
        match self {
            Self::Native(copies) => Some(copies),
            Self::Bird | Self::Frr => None,
        }
    }
}

/// As many native routers with the same neighbors and routes. Their addresses, MAC addresses and
/// router IDs follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    pub count: u32,
    /// Difference between the numbers of the autonomous systems of two routers.
    pub asn_step: u32,
}

/// A router: its interface, the protocols that it speaks, and the routes that it announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSettings {
    pub daemon: Daemon,
    pub mac: MacAddr,
    pub ipv4: Option<(Ipv4Addr, u8)>,
    pub ipv6: Option<(Ipv6Addr, u8)>,
    pub router_id: Ipv4Addr,
    pub bgp: Option<Bgp>,
    /// Area of OSPFv2 (RFC 2328).
    pub ospf: Option<Ipv4Addr>,
    /// Area of OSPFv3 (RFC 5340).
    pub ospf3: Option<Ipv4Addr>,
    pub isis: Option<Isis>,
    /// Details of OSPF and IS-IS.
    pub igp: Igp,
    /// Intervals of the hello packets of OSPF and IS-IS, and after which a silent neighbor is dead;
    /// whole seconds.
    pub hello: Nanos,
    pub dead: Nanos,
    /// RIPv2 (RFC 2453) and `RIPng` (RFC 2080).
    pub rip: bool,
    pub ripng: bool,
    /// Interval of updates of RIP; whole seconds.
    pub rip_update: Nanos,
    /// BFD (RFC 5880) for the sessions of BGP, OSPF and IS-IS: the interval of its packets; they
    /// are missed three times before the session is down.
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

    /// Time after the end of a silence for which sessions may still end because of it: the longest
    /// hold time (RFC 4271 section 6.5) or dead interval (RFC 2328 section 10.3) of its protocols.
    /// Times in an own configuration are not known: BIRD's longest default, 240 s.
    pub fn recovery(&self) -> Nanos {
        let hold = self.bgp.as_ref().map(|bgp| bgp.hold);
        let has_dead = self.ospf.is_some() || self.ospf3.is_some() || self.isis.is_some();
        let dead = has_dead.then_some(self.dead);
        let own = self.configuration.as_ref().map(|_| Nanos(240 * Nanos::SECOND.0));
        [hold, dead, own].into_iter().flatten().max().unwrap_or(Nanos::ZERO)
    }

    /// Names of the protocols, for users.
    pub fn protocols(&self) -> Vec<&'static str> {
        let all = [
            ("BGP", self.bgp.is_some()),
            ("OSPFv2", self.ospf.is_some()),
            ("OSPFv3", self.ospf3.is_some()),
            ("IS-IS", self.isis.is_some()),
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

/// IS-IS (ISO/IEC 10589, RFC 1195), for each IP version of which the router has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isis {
    /// Address of the area: `49.0001`.
    pub area: String,
    /// Whether it speaks level 1 and level 2.
    pub levels: [bool; 2],
    pub metric: u32,
    /// The other end of the link is one router.
    pub point_to_point: bool,
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
    /// Time from the daemon's first start to these states.
    pub elapsed: Nanos,
    /// Protocols whose sessions may end by a step: that is not counted in `downs`.
    pub excused: Vec<Excuse>,
    /// Time for which flaps have waited, because the daemon's routes were compared with the
    /// kernel's.
    pub flaps_waited: Nanos,
    /// Sums over all sessions, of which `protocols` may have some only; `None`: not known.
    pub sessions: Option<SessionSums>,
    /// Learnt routes that are among those which the router should learn, and those that are not;
    /// `None`: routes are not compared one by one.
    pub compared: Option<(u64, u64)>,
}

/// The number of learnt routes that a native router keeps, over all its sessions: 120 MB of IPv4.
pub const MOST_LEARNT: u64 = 10_000_000;

/// Errors in UPDATEs that did not end a session (RFC 7606).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFaults {
    /// UPDATEs whose routes were treated as withdrawn, and attributes that were discarded.
    pub withdrawn: u64,
    pub discarded: u64,
    /// Fields with routes of families that the session does not carry.
    pub other_families: u64,
    /// The reasons of the first two.
    pub reasons: Vec<FaultCount>,
}

/// UPDATEs with one kind of error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCount {
    /// `malformed COMMUNITIES`
    pub reason: &'static str,
    /// The section that says what follows: `RFC 7606 section 7.8`.
    pub source: &'static str,
    /// The attribute was discarded alone.
    pub discards: bool,
    pub updates: u64,
}

/// Sums over the sessions of a native router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSums {
    pub sessions: u64,
    /// Sessions that are up, and those that were up at any time.
    pub up: u64,
    pub ever_up: u64,
    /// Time from the start until each session had been up; `None`: one has not.
    pub all_up_after: Option<Nanos>,
    /// The longest [`SessionState::acknowledged_after`].
    pub acknowledged_after: Option<Nanos>,
    /// Routes that were learnt, in all and by the session with most of them, and routes that are
    /// announced.
    pub imported: u64,
    pub most_imported: u64,
    pub exported: u64,
    /// Announcements that found no room: their routes are not among the learnt ones.
    pub not_kept: u64,
    /// Learnt prefixes that found no place among the destinations of streams.
    pub no_destination: u64,
    pub sent: MessageCounts,
    pub received: MessageCounts,
    /// How often a neighbor had no room for more octets.
    pub closed_windows: u64,
    pub faults: SessionFaults,
}

/// Figures of a session of BGP that only native routers have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// Time from Established until the neighbor had acknowledged all routes.
    pub acknowledged_after: Option<Nanos>,
    pub sent: MessageCounts,
    pub received: MessageCounts,
}

/// Messages of BGP by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    pub opens: u64,
    pub updates: u64,
    pub notifications: u64,
    pub keepalives: u64,
    pub refreshes: u64,
}

/// The session of a protocol may end by a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excuse {
    pub protocol: String,
    /// On the clock of [`DaemonState::elapsed`]; `None`: until it is up again.
    pub until: Option<Nanos>,
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
        self.elapsed = elapsed;
        self.excused.retain(|excuse| excuse.until.is_none_or(|until| elapsed <= until));
        for one in &protocols {
            let known = self.up_after.iter().any(|(name, _)| *name == one.name);
            if one.is_up && !known {
                self.up_after.push((one.name.clone(), elapsed));
            }
            let before = self.protocols.iter().find(|before| before.name == one.name);
            let was_up = before.is_some_and(|before| before.is_up);
            let is_excused = self.excused.iter().any(|excuse| excuse.protocol == one.name);
            if was_up && !one.is_up && !is_excused {
                self.downs += 1;
            }
            // The session that a step has taken down is back.
            if !was_up && one.is_up {
                self.excused.retain(|excuse| excuse.protocol != one.name);
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
        self.excused.retain(|excuse| !names.contains(&excuse.protocol));
        self.excused.extend(names.into_iter().map(|protocol| Excuse { protocol, until: None }));
    }

    /// The reason why sessions may end is over: they may still end because of it for this time.
    pub fn end_excuses(&mut self, after: Nanos) {
        let until = Nanos(self.elapsed.0.saturating_add(after.0));
        let open = self.excused.iter_mut().filter(|excuse| excuse.until.is_none());
        open.for_each(|excuse| excuse.until = Some(until));
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
    /// `BGP`, `OSPF`, `IS-IS`, `RIP`, `BFD`.
    pub kind: String,
    /// The daemon's word for the state (`Established`, `Running`, `Active`), or `ended` with the
    /// daemon.
    pub state: String,
    /// BGP: the session is established. OSPF, IS-IS: it has neighbors. RIP and BFD: it runs.
    pub is_up: bool,
    /// Address of the neighbor, where the protocol has exactly one.
    pub neighbor: String,
    /// Last error, if any: `Socket: Connection refused`.
    pub error: String,
    /// Further figures; `None`: the daemon does not have them.
    pub session: Option<SessionState>,
    /// OSPF and IS-IS: the neighbors on the link.
    pub neighbors: Vec<LinkNeighbor>,
    /// IS-IS: number of LSPs of level 1 and of level 2.
    pub lsps: [u64; 2],
    /// Routes that it has learnt, and routes that it announces.
    pub imported: u64,
    pub exported: u64,
}

/// A neighbor of OSPF or IS-IS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkNeighbor {
    /// The daemon's word for the state: `Full`, `2-Way`, `Up`, `Initializing`.
    pub state: String,
    /// OSPF: full. IS-IS: up.
    pub is_up: bool,
    /// IS-IS: whether it is a neighbor of level 1, and of level 2.
    pub levels: [bool; 2],
}
