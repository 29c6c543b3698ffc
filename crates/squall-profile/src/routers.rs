//! Routers as values.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value as Json, json};
use squall_units::MacAddr;

use crate::{Router, RouterGroup, RouterStep, source::ROUTES_GROUP};

/// A neighbor of BGP, and the number of its autonomous system; `None`: the router's own (iBGP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BgpNeighbor {
    pub address: IpAddr,
    pub asn: Option<u32>,
}

/// Routes that a router announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routes {
    /// Consecutive prefixes: the address of the first, and the length of each in bits.
    Range { first: IpAddr, length: u8, count: u32 },
    /// Different prefixes with the lengths of a real table.
    Random { is_ipv6: bool, count: u32 },
    /// The routes of one peer in an MRT file (RFC 6396), by default of the one with most; at most
    /// `most` of them.
    Mrt { path: String, peer: Option<u16>, most: Option<u32> },
    /// A file with a prefix in each line.
    File { path: String },
}

impl Routes {
    /// Number of routes; `None`: the file decides.
    pub fn count(&self) -> Option<u32> {
        match self {
            Self::Range { count, .. } | Self::Random { count, .. } => Some(*count),
            Self::Mrt { .. } | Self::File { .. } => None,
        }
    }

    /// The file that has the routes.
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Mrt { path, .. } | Self::File { path } => Some(path),
            Self::Range { .. } | Self::Random { .. } => None,
        }
    }
}

/// The program that speaks the protocols of a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouterDaemon {
    #[default]
    Bird,
    Frr,
    /// Squall's own speaker of BGP.
    Native,
}

/// The attributes that routes of MRT files have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MrtAttributes {
    /// The attributes of their group.
    #[default]
    Own,
    /// The attributes that the file has.
    Mrt,
}

/// Levels of IS-IS that a router speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsisLevel {
    One,
    Two,
    #[default]
    Both,
}

/// The link of a router to its neighbors of IS-IS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsisNetwork {
    #[default]
    Broadcast,
    PointToPoint,
}

/// `ORIGIN` of BGP's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteOrigin {
    Igp,
    Egp,
    Incomplete,
}

/// The effect of a step on a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterAction {
    Withdraw,
    Announce,
    /// Sessions.
    Down,
    Up,
    /// The daemon.
    Restart,
    /// Routes of the neighbors.
    Refresh,
    /// The link drops all frames of the router, or no longer.
    Silent,
    Talk,
    /// Sessions end with any NOTIFICATION.
    Notify,
}

impl Router {
    /// The MAC address of router `number`, from 0, if it has been given none.
    pub fn default_mac(number: usize) -> MacAddr {
        MacAddr([2, 0x54, (number as u8).wrapping_add(1), 0, 0, 1])
    }

    /// Names of the groups of routes, in order: that of the key `routes` is first.
    pub fn group_names(&self) -> Vec<&str> {
        let own = (!self.routes.is_empty()).then_some(ROUTES_GROUP);
        own.into_iter().chain(self.group.iter().map(|group| group.name.as_str())).collect()
    }

    /// The JSON of the schema; `port` maps an index to a name.
    pub(crate) fn to_value<'a>(&self, port: impl Fn(usize) -> Option<&'a str>) -> Json {
        let area = |area: Option<Ipv4Addr>| area.map(|area| json!(area.to_string()));
        let all = |texts: Vec<String>| (!texts.is_empty()).then(|| json!(texts));
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "port" => port(self.port).map(|name| json!(name)),
            "mac" => self.mac.map(|mac| json!(mac.to_string())),
            "ipv4" => self.ipv4.map(|(address, length)| json!(format!("{address}/{length}"))),
            "ipv6" => self.ipv6.map(|(address, length)| json!(format!("{address}/{length}"))),
            "router_id" => self.router_id.map(|id| json!(id.to_string())),
            "neighbors" => all(self.neighbors.iter().map(neighbor).collect()),
            "communities" => {
                all(self.communities.iter().map(|(high, low)| format!("{high}:{low}")).collect())
            }
            "ospf" => area(self.ospf),
            "ospf3" => area(self.ospf3),
            "isis" => self.isis.as_ref().map(|area| json!(area)),
            "routes" => all(self.routes.iter().map(routes).collect()),
            _ => None,
        })
    }
}

impl RouterGroup {
    pub(crate) fn to_value(&self) -> Json {
        let texts = |texts: Vec<String>| Some(json!(texts));
        self.written(|key| match key {
            "routes" => texts(self.routes.iter().map(routes).collect()),
            "communities" => {
                let all = self.communities.as_ref()?;
                texts(all.iter().map(|(high, low)| format!("{high}:{low}")).collect())
            }
            "as_path" => {
                let numbers: Vec<String> = self.as_path.iter().map(u32::to_string).collect();
                (!numbers.is_empty()).then(|| json!(numbers.join(" ")))
            }
            "next_hop" => self.next_hop.map(|address| json!(address.to_string())),
            "flap" => self.flap.map(|rate| json!(format!("{rate} routes/s"))),
            _ => None,
        })
    }

    /// Whether it has routes of the IP version of `address`.
    pub(crate) fn has_routes_of(&self, address: IpAddr) -> bool {
        self.routes.iter().any(|routes| match routes {
            Routes::Range { first, .. } => first.is_ipv4() == address.is_ipv4(),
            Routes::Random { is_ipv6, .. } => *is_ipv6 == address.is_ipv6(),
            // The file is not read yet.
            Routes::Mrt { .. } | Routes::File { .. } => true,
        })
    }
}

impl RouterStep {
    pub(crate) fn to_value(&self) -> Json {
        self.written(|key| match key {
            "neighbor" => self.neighbor.map(|address| json!(address.to_string())),
            "data" => (!self.data.is_empty()).then(|| json!(hex(&self.data))),
            _ => None,
        })
    }
}

/// Octets as digits.
fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The neighbors, as a hint.
pub(crate) fn known_neighbors(neighbors: &[BgpNeighbor]) -> String {
    let found: Vec<_> = neighbors.iter().map(|one| one.address.to_string()).collect();
    format!("known: {}", found.join(", "))
}

fn neighbor(neighbor: &BgpNeighbor) -> String {
    match neighbor.asn {
        Some(asn) => format!("{} as {asn}", neighbor.address),
        None => neighbor.address.to_string(),
    }
}

fn routes(routes: &Routes) -> String {
    match routes {
        Routes::Range { first, length, count: 1 } => format!("{first}/{length}"),
        Routes::Range { first, length, count } => format!("{first}/{length} x {count}"),
        Routes::Random { is_ipv6: false, count } => format!("random x {count}"),
        Routes::Random { is_ipv6: true, count } => format!("random6 x {count}"),
        Routes::Mrt { path, peer, most } => {
            let peer = peer.map(|peer| format!("#{peer}")).unwrap_or_default();
            let most = most.map(|most| format!(" x {most}")).unwrap_or_default();
            format!("mrt:{path}{peer}{most}")
        }
        Routes::File { path } => format!("file:{path}"),
    }
}
