//! Routers that are routing daemons on a port: settings to a configuration, and a daemon's
//! replies to the states of its protocols.
//!
//! Input: [`RouterSettings`], and what the daemon's control socket sends. Output: the text of a
//! configuration file, and a [`ProtocolState`] for each protocol. It knows no processes, sockets or
//! interfaces, and no time.
#![forbid(unsafe_code)]

pub mod bird;
mod routes;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{MacAddr, Nanos};

pub use routes::RouteRange;

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
    pub routes: Vec<RouteRange>,
    /// The daemon's own configuration, in place of the other settings.
    pub configuration: Option<String>,
}

impl RouterSettings {
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
    /// `MULTI_EXIT_DISC` of the announced routes.
    pub med: Option<u32>,
    /// Further copies of the own number in the path.
    pub prepend: u32,
    /// Communities (RFC 1997) of the announced routes.
    pub communities: Vec<(u16, u16)>,
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
}

impl DaemonState {
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
