//! Topologies of labs as values: hosts, routers and bridges, and the links between them.

use std::net::{IpAddr, Ipv4Addr};

use squall_units::{Nanos, Rate};

use crate::{BgpNeighbor, Located};

/// A lab of several nodes. Names are unique, each end of a link exists, and addresses fit together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Name of the file in messages.
    pub origin: String,
    pub nodes: Vec<LabNode>,
    pub links: Vec<LabLink>,
}

/// A network namespace of a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct LabNode {
    pub name: String,
    pub role: LabRole,
    /// Names of settings below `net.`, and their values.
    pub sysctls: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LabRole {
    Host {
        /// Next hops of default routes, at most one for each IP version.
        gateways: Vec<IpAddr>,
    },
    /// The kernel forwards IPv4 and IPv6.
    Router { routes: Vec<LabRoute>, daemon: Option<LabDaemon> },
    Bridge {
        /// The bridge sends a multicast group only to ports with members (RFC 4541).
        snooping: bool,
        /// The bridge asks for members itself.
        querier: bool,
    },
}

impl LabRole {
    /// The word in files.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Host { .. } => "host",
            Self::Router { .. } => "router",
            Self::Bridge { .. } => "bridge",
        }
    }
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabRoute {
    /// The prefix; its host bits are 0.
    pub prefix: (IpAddr, u8),
    /// Addresses of neighbors, which share the traffic; none: packets are dropped.
    pub next_hops: Vec<IpAddr>,
    /// If a prefix has several routes, the lowest metric is used. `None`: the kernel's default.
    pub metric: Option<u32>,
}

/// The routing daemon of a router: BIRD 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabDaemon {
    /// The text of its own configuration, in place of the other settings.
    pub configuration: Option<String>,
    pub asn: Option<u32>,
    pub neighbors: Vec<BgpNeighbor>,
    /// Areas of OSPFv2 and OSPFv3.
    pub ospf: Option<Ipv4Addr>,
    pub ospf3: Option<Ipv4Addr>,
    /// Times of OSPF and RIP, whole seconds.
    pub hello: Nanos,
    pub dead: Nanos,
    pub rip: bool,
    pub ripng: bool,
    pub rip_update: Nanos,
    /// Interval of BFD's packets for the neighbors of BGP and OSPF.
    pub bfd: Option<Nanos>,
}

/// A cable.
#[derive(Clone, Debug, PartialEq)]
pub struct LabLink {
    pub ends: [LabEnd; 2],
    /// The longest IP packet, octets.
    pub mtu: u32,
    /// Rate at which nodes send into the link, bits per second on layer 2, and the queue discipline
    /// of the packets that wait.
    pub rate: Option<Rate>,
    pub queue: Option<String>,
    /// The most packets that wait; `None`: the discipline's default.
    pub limit: Option<u32>,
    /// Options of a port: `delay=5ms,drop=1/100`. They are not checked here.
    pub faults: Option<Located>,
    /// OSPF's cost of the link.
    pub cost: Option<u16>,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabEnd {
    /// Index into [`Topology::nodes`]; `None`: a port for Squall.
    pub node: Option<usize>,
    pub interface: String,
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Topology {
    /// The ends of all links.
    pub fn ends(&self) -> impl Iterator<Item = &LabEnd> {
        self.links.iter().flat_map(|link| &link.ends)
    }

    /// `r1:eth0`, or `A` for a port.
    pub fn end_name(&self, end: &LabEnd) -> String {
        match end.node.and_then(|node| self.nodes.get(node)) {
            Some(node) => format!("{}:{}", node.name, end.interface),
            None => end.interface.clone(),
        }
    }
}
