//! Groups of hosts as values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value as Json, json};

use crate::HostGroup;

/// Addresses of the hosts of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAddress {
    /// Hosts have no IPv4.
    None,
    /// Each host asks a DHCP server.
    Dhcp,
    /// The first host's address; that of each further one is the next.
    Static { first: Ipv4Addr, prefix: u8 },
}

/// Use of ARP for the own addresses of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArpUse {
    /// Examine an address before its use, announce and defend it (RFC 5227).
    Probe,
    /// Announce and defend it.
    #[default]
    Announce,
    /// Only answer requests for it.
    Silent,
}

/// How hosts authenticate at their port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMethod {
    #[default]
    None,
    /// MD5-Challenge (RFC 3748 section 5.4).
    Md5,
}

/// Destination of a group's echo requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingTarget {
    /// Each host's gateway.
    Gateway,
    Address(Ipv4Addr),
}

impl HostGroup {
    /// The JSON of the schema; `port` maps an index to a name.
    pub(crate) fn to_value<'a>(&self, port: impl Fn(usize) -> Option<&'a str>) -> Json {
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "port" => port(self.port).map(|name| json!(name)),
            "mac" => self.mac.map(|mac| json!(mac.to_string())),
            "ipv4" => match self.ipv4 {
                HostAddress::Dhcp => None,
                HostAddress::None => Some(json!("none")),
                HostAddress::Static { first, prefix } => Some(json!(format!("{first}/{prefix}"))),
            },
            "gateway" => self.gateway.map(|gateway| json!(gateway.to_string())),
            "setup" => self.setup.map(|rate| json!(format!("{rate}/s"))),
            "serve" => self.serve.map(|(first, last)| json!(format!("{first}-{last}"))),
            "ping" => self.ping.map(|target| match target {
                PingTarget::Gateway => json!("gateway"),
                PingTarget::Address(address) => json!(address.to_string()),
            }),
            "join" => (!self.join.is_empty()).then(|| self.join.iter().map(range).collect()),
            "join_rate" => self.join_rate.map(|rate| json!(format!("{rate}/s"))),
            "sources" => (!self.sources.is_empty())
                .then(|| self.sources.iter().map(|source| json!(source.to_string())).collect()),
            _ => None,
        })
    }
}

/// The text of a range of multicast groups.
fn range((first, count): &(IpAddr, u32)) -> Json {
    let last: IpAddr = match first {
        IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + (count - 1)).into(),
        IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(count - 1)).into(),
    };
    match *count {
        1 => json!(first.to_string()),
        _ => json!(format!("{first}-{last}")),
    }
}
