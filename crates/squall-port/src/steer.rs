//! Rules by which a NIC chooses the receive queue of a frame, before software sees it. They are the
//! same for all kinds of ports: af_xdp passes them to the kernel (`ethtool -N`), dpdk to the driver
//! (rte_flow).

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    ops::{Range, RangeInclusive},
    str::FromStr,
};

use crate::{Address, AddressError, Hosts};

/// The frames for which a port sets rules: the option `steer` of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// Packets to the addresses of the port's flows, and the frames by which neighbors ask for
    /// these addresses.
    Flows,
    /// TCP segments or UDP datagrams to these ports, of IPv4 and IPv6.
    Ports(Transport, RangeInclusive<u16>),
}

/// A protocol with port numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// The protocol's number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// Frames that the NIC gives to some of its receive queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteerRule {
    pub frames: Steered,
    /// Receive queues of the device. With several, RSS spreads the frames over them.
    pub queues: Range<u32>,
}

/// The frames of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steered {
    Arp,
    Ip {
        to: Prefix,
        /// Only segments or datagrams to this port; `None`: all packets.
        transport: Option<(Transport, u16)>,
    },
}

/// Addresses with the same first `len` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub address: IpAddr,
    pub len: u8,
}

/// Destination of neighbor solicitations: solicited-node addresses (RFC 4291 section 2.7.1).
const SOLICITED: Prefix =
    Prefix { address: IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0)), len: 104 };

impl Prefix {
    /// All addresses of a family.
    fn any(v6: bool) -> Self {
        let none: [IpAddr; 2] = [[0u8; 4].into(), [0u8; 16].into()];
        Self { address: none[usize::from(v6)], len: 0 }
    }

    fn width(self) -> u32 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The address whose first `len` bits are ones and whose others are zeros.
    pub fn mask(self) -> IpAddr {
        let ones = !lower_ones(self.width() - u32::from(self.len));
        match self.address {
            IpAddr::V4(_) => IpAddr::V4((ones as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(ones.into()),
        }
    }

    fn contains(self, other: Self) -> bool {
        let (own, others) = (bits(self.address), bits(other.address));
        let differ = (own ^ others) & !lower_ones(self.width() - u32::from(self.len));
        self.width() == other.width() && self.len <= other.len && differ == 0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl fmt::Display for Steered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arp => f.write_str("ARP frames"),
            Self::Ip { to, transport: None } if *to == SOLICITED => {
                f.write_str("neighbor solicitations")
            }
            Self::Ip { to, transport: None } => write!(f, "packets to {to}"),
            Self::Ip { to, transport: Some((transport, port)) } => {
                let what = match transport {
                    Transport::Tcp => "TCP segments",
                    Transport::Udp => "UDP datagrams",
                };
                let family = if to.address.is_ipv4() { 4 } else { 6 };
                write!(f, "{what} of IPv{family} to port {port}")
            }
        }
    }
}

impl Steered {
    /// Whether the frames only tell neighbors where hosts are. Without the rule a port still works
    /// for neighbors that know its hosts.
    pub fn finds_neighbors(self) -> bool {
        self == Self::Arp || self == Self::Ip { to: SOLICITED, transport: None }
    }

    fn includes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Ip { to, transport: None }, Self::Ip { to: others, .. }) => to.contains(others),
            _ => self == other,
        }
    }
}

/// Rules for one port: NICs have room for some hundred to some thousand.
const MAX_RULES: usize = 256;
const MAX_PORTS: usize = 32;

impl Steer {
    /// The option's key in an address.
    pub const KEY: &'static str = "steer";

    /// Removes the option from `address` and returns its value.
    ///
    /// # Errors
    /// The value is malformed.
    pub fn take(address: &mut Address) -> Result<Option<Self>, AddressError> {
        address.take(Self::KEY, "flows, udp/PORT, tcp/PORT, or udp/FIRST-LAST of at most 32 ports")
    }

    /// The rules that give these frames to `queues`. `hosts`: the hosts of the port's flows.
    ///
    /// # Errors
    /// The frames cannot be described by at most 256 rules.
    pub fn rules(&self, hosts: &Hosts, queues: &Range<u32>) -> Result<Vec<SteerRule>, String> {
        let frames = match self {
            Self::Flows => of_hosts(hosts)?,
            Self::Ports(transport, ports) => ports
                .clone()
                .flat_map(|port| [(port, false), (port, true)])
                .map(|(port, v6)| {
                    let transport = Some((*transport, port));
                    Steered::Ip { to: Prefix::any(v6), transport }
                })
                .collect(),
        };
        let rule = |frames| SteerRule { frames, queues: queues.clone() };
        Ok(frames.into_iter().map(rule).collect())
    }
}

impl FromStr for Steer {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "flows" {
            return Ok(Self::Flows);
        }
        let (transport, ports) = text.split_once('/').ok_or(())?;
        let transport = match transport {
            "tcp" => Transport::Tcp,
            "udp" => Transport::Udp,
            _ => return Err(()),
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| text.parse::<u16>().map_err(|_| ());
        let ports = port(first)?..=port(last)?;
        if !(1..=MAX_PORTS).contains(&ports.len()) {
            return Err(());
        }
        Ok(Self::Ports(transport, ports))
    }
}

impl fmt::Display for Steer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transport, ports) = match self {
            Self::Flows => return f.write_str("flows"),
            Self::Ports(Transport::Tcp, ports) => ("tcp", ports),
            Self::Ports(Transport::Udp, ports) => ("udp", ports),
        };
        match (ports.start(), ports.end()) {
            (first, last) if first == last => write!(f, "{transport}/{first}"),
            (first, last) => write!(f, "{transport}/{first}-{last}"),
        }
    }
}

/// The rules that a port sets when its first receive queue opens.
#[derive(Clone, Debug)]
pub struct SteerRules {
    steer: Steer,
    queues: Range<u32>,
    /// For the flows that the port serves.
    of_flows: Vec<SteerRule>,
}

impl SteerRules {
    /// Rules that give frames to `queues` of the device.
    pub fn new(steer: Steer, queues: Range<u32>) -> Self {
        Self { steer, queues, of_flows: Vec::new() }
    }

    /// Adds rules for the hosts of flows, if the port has rules for flows ([`crate::Port::serve`]).
    ///
    /// # Errors
    /// As [`Steer::rules`].
    pub fn serve(&mut self, hosts: &Hosts) -> Result<(), String> {
        if self.steer == Steer::Flows {
            let mut rules = self.steer.rules(hosts, &self.queues)?;
            rules.retain(|rule| !self.include(rule));
            self.of_flows.append(&mut rules);
        }
        Ok(())
    }

    /// Whether the rules are also for `hosts` ([`crate::Port::serves`]).
    pub fn serves(&self, hosts: &Hosts) -> bool {
        let asked = self.steer.rules(hosts, &self.queues);
        self.steer != Steer::Flows
            || asked.is_ok_and(|asked| asked.iter().all(|rule| self.include(rule)))
    }

    /// The rules.
    ///
    /// # Errors
    /// They are for flows, and no flows were served.
    pub fn get(&self) -> Result<Vec<SteerRule>, String> {
        match self.of_flows.is_empty() {
            true => self.steer.rules(&Hosts::default(), &self.queues),
            false => Ok(self.of_flows.clone()),
        }
    }

    fn include(&self, asked: &SteerRule) -> bool {
        self.of_flows.iter().any(|rule| rule.frames.includes(asked.frames))
    }
}

fn of_hosts(hosts: &Hosts) -> Result<Vec<Steered>, String> {
    if hosts.addresses.is_empty() {
        return Err("steer=flows, but no flows have their ends on this port\n  try \
                    steer=udp/PORT or steer=tcp/PORT"
            .into());
    }
    if hosts.shared {
        return Err(
            "steer=flows, but the port also has streams, replays, hosts or routers, whose \
                    frames the rules do not name\n  try it without steer"
                .into(),
        );
    }
    if hosts.labels {
        return Err(
            "steer=flows with MPLS labels, but rules compare IP headers\n  try it without \
                    steer"
                .into(),
        );
    }
    let (v4, v6) = address_ranges(&hosts.addresses)?;
    let mut all = Vec::new();
    for (ranges, width, neighbors) in
        [(v4, 32, Steered::Arp), (v6, 128, Steered::Ip { to: SOLICITED, transport: None })]
    {
        let before = all.len();
        for (first, last) in ranges {
            all.extend(prefixes(first, last, width).map(|to| Steered::Ip { to, transport: None }));
            if all.len() > MAX_RULES {
                return Err(format!(
                    "steer=flows needs more than {MAX_RULES} rules for the addresses of the \
                     flows\n  try pools that begin and end at multiples of powers of two, such as \
                     10.0.0.0/24, or steer=udp/PORT"
                ));
            }
        }
        if all.len() > before {
            all.push(neighbors);
        }
    }
    Ok(all)
}

/// Ranges of numbers, first and last.
type Ranges = Vec<(u128, u128)>;

/// Ranges of IPv4 and of IPv6 addresses as numbers, in ascending order, without overlaps or
/// adjacent ranges.
///
/// # Errors
/// A range has addresses of two families.
pub fn address_ranges(
    addresses: &[RangeInclusive<IpAddr>],
) -> Result<(Ranges, Ranges), &'static str> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for range in addresses {
        let family = match (range.start(), range.end()) {
            (IpAddr::V4(_), IpAddr::V4(_)) => &mut v4,
            (IpAddr::V6(_), IpAddr::V6(_)) => &mut v6,
            _ => return Err("a range with addresses of two families"),
        };
        family.push((bits(*range.start()), bits(*range.end())));
    }
    Ok((joined(v4), joined(v6)))
}

fn joined(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut out = Ranges::new();
    for (first, last) in ranges {
        match out.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The number whose lower `count` bits are ones.
fn lower_ones(count: u32) -> u128 {
    u128::MAX.checked_shr(128 - count).unwrap_or(0)
}

/// The fewest prefixes that have all addresses from `first` to `last` and no others. `width`: bits
/// of an address.
fn prefixes(first: u128, last: u128, width: u32) -> impl Iterator<Item = Prefix> {
    let mut next = (first <= last).then_some(first);
    std::iter::from_fn(move || {
        let at = next?;
        // The largest block that begins at `at` and ends within the range.
        let mut free = at.trailing_zeros().min(width);
        while at | lower_ones(free) > last {
            free -= 1;
        }
        let end = at | lower_ones(free);
        next = (end < last).then(|| end + 1);
        let address = match width {
            32 => IpAddr::V4((at as u32).into()),
            _ => IpAddr::V6(at.into()),
        };
        Some(Prefix { address, len: (width - free) as u8 })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(steer: &str, addresses: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let addresses =
            addresses.iter().map(|(first, last)| address(first)..=address(last)).collect();
        let hosts = Hosts { addresses, ..Hosts::default() };
        let rules = steer.parse::<Steer>().expect(steer).rules(&hosts, &(3..4))?;
        assert!(rules.iter().all(|rule| rule.queues == (3..4)));
        Ok(rules.iter().map(|rule| rule.frames.to_string()).collect())
    }

    #[test]
    fn pools_become_the_fewest_prefixes_and_the_frames_that_find_them() {
        let adjacent = [("10.0.1.0", "10.0.1.255"), ("10.0.0.0", "10.0.0.255")];
        assert_eq!(rules("flows", &adjacent).unwrap(), ["packets to 10.0.0.0/23", "ARP frames"]);
        let both = [("10.0.0.1", "10.0.0.6"), ("fd00::", "fd00::ffff")];
        let wanted = [
            "packets to 10.0.0.1/32",
            "packets to 10.0.0.2/31",
            "packets to 10.0.0.4/31",
            "packets to 10.0.0.6/32",
            "ARP frames",
            "packets to fd00::/112",
            "neighbor solicitations",
        ];
        assert_eq!(rules("flows", &both).unwrap(), wanted);
        let last6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let all = [("0.0.0.0", "255.255.255.255"), ("::", last6)];
        let found = rules("flows", &all).unwrap();
        assert!(found[0] == "packets to 0.0.0.0/0" && found[2] == "packets to ::/0", "{found:?}");
        assert!(rules("flows", &[]).unwrap_err().contains("try steer=udp/PORT"));
        let odd = |i| format!("10.0.{}.{}", i / 100, 2 * (i % 100));
        let odd: Vec<String> = (0..300).map(odd).collect();
        let odd: Vec<_> = odd.iter().map(|one| (&one[..], &one[..])).collect();
        assert!(rules("flows", &odd).unwrap_err().contains("more than 256 rules"));
    }

    #[test]
    fn ports_of_both_families_are_steered_and_ranges_are_short() {
        let wanted = [
            "TCP segments of IPv4 to port 80",
            "TCP segments of IPv6 to port 80",
            "TCP segments of IPv4 to port 81",
            "TCP segments of IPv6 to port 81",
        ];
        assert_eq!(rules("tcp/80-81", &[]).unwrap(), wanted);
        assert_eq!(rules("udp/1000-1031", &[]).unwrap().len(), 64);
        for wrong in ["udp/1000-1032", "udp/2-1", "udp/65536", "udp", "sctp/1", "udp/", ""] {
            assert!(wrong.parse::<Steer>().is_err(), "{wrong}");
        }
        for text in ["flows", "tcp/80", "udp/5000-5003"] {
            assert_eq!(text.parse::<Steer>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn rules_also_serve_hosts_within_their_prefixes() {
        let hosts = |first: &str, last: &str| {
            let (first, last): (IpAddr, IpAddr) = (first.parse().unwrap(), last.parse().unwrap());
            Hosts { addresses: vec![first..=last], ..Hosts::default() }
        };
        let mut rules = SteerRules::new(Steer::Flows, 0..1);
        assert!(rules.get().is_err() && !rules.serves(&hosts("10.0.1.7", "10.0.1.9")));
        for (first, last) in [("10.0.0.0", "10.0.1.255"), ("10.0.1.0", "10.0.2.0")] {
            rules.serve(&hosts(first, last)).unwrap();
        }
        let set: Vec<_> = rules.get().unwrap().iter().map(|rule| rule.frames.to_string()).collect();
        assert_eq!(set, ["packets to 10.0.0.0/23", "ARP frames", "packets to 10.0.2.0/32"]);
        assert!(rules.serves(&hosts("10.0.1.7", "10.0.1.9")));
        assert!(!rules.serves(&hosts("10.0.1.7", "10.0.2.1")));
        assert!(!rules.serves(&hosts("::", "::1")));
        let mut ports = SteerRules::new("udp/7".parse().unwrap(), 0..1);
        ports.serve(&Hosts::default()).unwrap();
        assert!(ports.serves(&hosts("::", "::1")) && ports.get().is_ok_and(|set| set.len() == 2));
    }

    proptest! {
        #[test]
        fn prefixes_have_each_address_of_a_range_once(first: u32, len in 0u32..3000) {
            let last = first.saturating_add(len);
            let mut next = u64::from(first);
            for prefix in prefixes(first.into(), last.into(), 32) {
                let mask = bits(prefix.mask());
                let start = bits(prefix.address);
                prop_assert_eq!(start & mask, start);
                prop_assert_eq!(u128::from(next), start);
                next += 1 << (32 - prefix.len);
            }
            prop_assert_eq!(next, u64::from(last) + 1);
        }
    }
}
