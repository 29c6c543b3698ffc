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
    /// Each host chooses an address of 169.254.0.0/16 (RFC 3927).
    LinkLocal,
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

/// How hosts authenticate at their port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMethod {
    #[default]
    None,
    /// MD5-Challenge (RFC 3748 section 5.4).
    Md5,
    /// EAP-TLS.
    Tls,
    /// PEAPv0 with EAP-MSCHAPv2 inside.
    Peap,
    /// EAP-TTLS with PAP inside.
    TtlsPap,
    /// EAP-TTLS with MS-CHAP-V2 inside.
    TtlsMschapV2,
}

/// Addresses for which hosts ask DNS servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnsType {
    #[default]
    A,
    Aaaa,
    /// Each name with both types.
    Both,
}

/// How DHCP clients begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DhcpUse {
    /// With a DISCOVER (RFC 2131 section 4.4.1).
    #[default]
    Discover,
    /// With a REQUEST for the address that they had before (section 4.4.2).
    Reboot,
    /// With an INFORM, because they have static addresses (section 4.4.3).
    Inform,
}

/// An option of DHCP messages: its code, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostOption {
    /// `{n}` is the number of the host, `{mac}` its MAC address.
    Text(u8, String),
    /// Pairs of hexadecimal digits, and `{mac}`.
    Hex(u8, String),
}

/// A violation of a protocol by hosts, to test how a device handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault {
    DuplicateAddress,
    KeepAddress,
    NoArp,
    SpoofGateway,
    SpoofMac,
    SpoofAddress,
    LateAnswer,
    Flood,
    IgnoreOffer,
    IgnoreNak,
    Decline,
    KeepLease,
    BadChecksum,
    BadOptions,
}

/// The faults of a group, in the order of the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFaults(pub Vec<HostFault>);

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
                HostAddress::LinkLocal => Some(json!("link-local")),
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
            "requested" => self.requested.map(|requested| json!(requested.to_string())),
            "relay" => self.relay.map(|relay| json!(relay.to_string())),
            "options" => {
                let texts = self.options.iter().map(|option| match option {
                    HostOption::Text(code, text) => format!("{code}={text}"),
                    HostOption::Hex(code, digits) => format!("{code}=0x{digits}"),
                });
                (!self.options.is_empty()).then(|| json!(texts.collect::<Vec<_>>()))
            }
            "serve" => self.serve.map(|(first, last)| json!(format!("{first}-{last}"))),
            "ping" => self.ping.map(|target| match target {
                PingTarget::Gateway => json!("gateway"),
                PingTarget::Address(address) => json!(address.to_string()),
            }),
            "join" => (!self.join.is_empty()).then(|| self.join.iter().map(range).collect()),
            "resolve" => (!self.resolve.is_empty()).then(|| json!(self.resolve)),
            "dns_server" => self.dns_server.map(|server| json!(server.to_string())),
            "answers" => {
                let texts = self.answers.iter().map(|(name, address)| format!("{name}={address}"));
                (!self.answers.is_empty()).then(|| json!(texts.collect::<Vec<_>>()))
            }
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
