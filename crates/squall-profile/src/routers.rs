//! Routers as values.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value as Json, json};

use crate::Router;

/// A neighbor of BGP, and the number of its autonomous system; `None`: the router's own (iBGP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BgpNeighbor {
    pub address: IpAddr,
    pub asn: Option<u32>,
}

/// Routes with consecutive prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Address of the first prefix.
    pub first: IpAddr,
    /// Length of each prefix, bits.
    pub length: u8,
    pub count: u32,
}

impl Router {
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
            "routes" => all(self.routes.iter().map(routes).collect()),
            _ => None,
        })
    }
}

fn neighbor(neighbor: &BgpNeighbor) -> String {
    match neighbor.asn {
        Some(asn) => format!("{} as {asn}", neighbor.address),
        None => neighbor.address.to_string(),
    }
}

fn routes(routes: &Routes) -> String {
    let Routes { first, length, count } = routes;
    match count {
        1 => format!("{first}/{length}"),
        _ => format!("{first}/{length} x {count}"),
    }
}
