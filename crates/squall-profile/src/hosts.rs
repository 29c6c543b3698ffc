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

/// IPv6 addresses of the hosts of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostIpv6 {
    /// With the prefixes that routers advertise.
    Slaac,
    /// Likewise, and other configuration by DHCPv6.
    Stateless,
    /// Each host asks a DHCPv6 server.
    Dhcp,
    /// The first host's address; that of each further one is the next.
    Static { first: Ipv6Addr, prefix: u8 },
}

/// The last 64 bits of IPv6 addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterfaceId {
    /// Made from the MAC address.
    #[default]
    Eui64,
    /// Random, but the same in each run.
    Stable,
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

/// Destination of a group's echo requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingTarget {
    /// Each host's gateway.
    Gateway,
    Address(IpAddr),
}

impl HostGroup {
    /// The JSON of the schema; `port` maps an index to a name.
    pub(crate) fn to_value<'a>(&self, port: impl Fn(usize) -> Option<&'a str>) -> Json {
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "port" => port(self.port).map(|name| json!(name)),
            "mac" => self.mac.map(|mac| json!(mac.to_string())),
            "ipv4" => match self.ipv4 {
                HostAddress::Dhcp => self.ipv6.map(|_| json!("dhcp")),
                HostAddress::None => self.ipv6.is_none().then(|| json!("none")),
                HostAddress::Static { first, prefix } => Some(json!(format!("{first}/{prefix}"))),
            },
            "ipv6" => self.ipv6.map(|ipv6| match ipv6 {
                HostIpv6::Slaac => json!("slaac"),
                HostIpv6::Stateless => json!("stateless"),
                HostIpv6::Dhcp => json!("dhcp"),
                HostIpv6::Static { first, prefix } => json!(format!("{first}/{prefix}")),
            }),
            "gateway6" => self.gateway6.map(|gateway| json!(gateway.to_string())),
            "advertise" => {
                self.advertise.map(|(prefix, length)| json!(format!("{prefix}/{length}")))
            }
            "serve6" => self.serve6.map(|(first, last)| json!(format!("{first}-{last}"))),
            "delegate" => self
                .delegate
                .map(|(prefix, pool, length)| json!(format!("{prefix}/{pool}-{length}"))),
            "gateway" => self.gateway.map(|gateway| json!(gateway.to_string())),
            "setup" => self.setup.map(|rate| json!(format!("{rate}/s"))),
            "serve" => self.serve.map(|(first, last)| json!(format!("{first}-{last}"))),
            "ping" => self.ping.map(|target| match target {
                PingTarget::Gateway => json!("gateway"),
                PingTarget::Address(address) => json!(address.to_string()),
            }),
            _ => None,
        })
    }
}
