//! Groups of routes: the unit of attributes, of steps, and of destinations.

use std::{fmt, net::IpAddr, sync::Arc};

use squall_units::Nanos;

use crate::{RouteRange, mrt::MrtTable};

/// A prefix without host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    pub address: IpAddr,
    /// Length, bits.
    pub length: u8,
}

impl Prefix {
    /// The prefix that `text` is: `198.51.100.0/24`. `None`: it is none, or has host bits.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let prefix = Self { address: address.parse().ok()?, length: length.parse().ok()? };
        let (bits, width) = prefix.bits();
        let hosts = width.checked_sub(prefix.length.into())?;
        (bits & low_bits(hosts) == 0).then_some(prefix)
    }

    /// The prefix of this length that has `address`.
    pub fn of(address: IpAddr, length: u8) -> Self {
        let (bits, width) = Self { address, length }.bits();
        let hosts = width.saturating_sub(length.into());
        Self { address: self::address(bits & !low_bits(hosts), width), length }
    }

    /// The address of host `number` of the prefix, from 1. Prefixes of the longest two lengths have
    /// no address for the network or for broadcasts (RFC 3021, RFC 6164): their first host has the
    /// first address. `None`: it has no such host.
    pub fn host(self, number: u64) -> Option<IpAddr> {
        let (bits, width) = self.bits();
        let hosts = width - u32::from(self.length).min(width);
        let offset = if hosts <= 1 { number.checked_sub(1)? } else { number };
        let last = low_bits(hosts) - u128::from(hosts > 1 && width == 32);
        let fits = number > 0 && u128::from(offset) <= last;
        fits.then(|| address(bits | u128::from(offset), width))
    }

    /// Whether some addresses are in both.
    pub fn overlaps(self, other: Self) -> bool {
        let ((own, width), (others, its)) = (self.bits(), other.bits());
        let hosts = width - u32::from(self.length.min(other.length)).min(width);
        width == its && (own ^ others) & !low_bits(hosts) == 0
    }

    /// Whether `address` is in it.
    pub fn contains(self, address: IpAddr) -> bool {
        let length = if address.is_ipv6() { 128 } else { 32 };
        self.overlaps(Self { address, length })
    }

    /// The first address after those of `part`, a longer prefix in this one. `None`: this prefix
    /// has no further host.
    pub fn host_after(self, part: Self) -> Option<IpAddr> {
        let ((bits, width), (of_part, _)) = (self.bits(), part.bits());
        let hosts = |length: u8| width - u32::from(length).min(width);
        let after = (of_part | low_bits(hosts(part.length))).checked_add(1)?;
        let own = hosts(self.length);
        // IPv4's last address is that of broadcasts.
        let last = (bits | low_bits(own)) - u128::from(own > 1 && width == 32);
        (after <= last).then(|| address(after, width))
    }

    /// The address as a number, and the bits of an address.
    fn bits(self) -> (u128, u32) {
        match self.address {
            IpAddr::V4(address) => (address.to_bits().into(), 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        }
    }
}

fn low_bits(bits: u32) -> u128 {
    u128::MAX.checked_shr(128 - bits).unwrap_or(0)
}

fn address(bits: u128, width: u32) -> IpAddr {
    match width {
        32 => IpAddr::V4((bits as u32).into()),
        _ => IpAddr::V6(bits.into()),
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Routes that a router announces with the same attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteGroup {
    /// Unique in the router.
    pub name: String,
    pub attributes: GroupAttributes,
    pub prefixes: Vec<Prefixes>,
    /// Routes go down and come back all the time.
    pub flap: Option<Flap>,
    /// Its routes can be withdrawn one by one: they are in the kernel's table.
    pub single: bool,
}

/// A part of the routes of a group, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefixes {
    Range(RouteRange),
    /// Plans share it.
    List(Arc<[Prefix]>),
    /// Routes with attributes of their own.
    Mrt(Arc<MrtTable>),
}

/// Attributes of BGP's routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupAttributes {
    /// `MULTI_EXIT_DISC`.
    pub med: Option<u32>,
    /// Further copies of the own number in the path.
    pub prepend: u32,
    /// Communities (RFC 1997).
    pub communities: Vec<(u16, u16)>,
    /// Numbers in the path after the own ones, the nearest system first.
    pub as_path: Vec<u32>,
    /// `None`: IGP.
    pub origin: Option<Origin>,
    /// `NEXT_HOP` of the routes of its IP version; `None`: the router.
    pub next_hop: Option<IpAddr>,
}

/// `ORIGIN` (RFC 4271 section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Igp,
    Egp,
    Incomplete,
}

/// Routes of a group are withdrawn one after the other, round and round, and come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flap {
    /// Time between two withdrawals.
    pub gap: Nanos,
    /// Time after which a withdrawn route is announced again.
    pub down: Nanos,
}

impl Prefixes {
    /// Number of routes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Range(range) => u64::from(range.count),
            Self::List(list) => list.len() as u64,
            Self::Mrt(table) => table.prefixes().len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The routes, in order.
    pub fn iter(&self) -> impl Iterator<Item = Prefix> + '_ {
        let (range, list) = match self {
            Self::Range(range) => (Some(range), &[][..]),
            Self::List(list) => (None, &list[..]),
            Self::Mrt(table) => (None, table.prefixes()),
        };
        let of_range = range.into_iter().flat_map(|range| {
            range.addresses().map(move |address| Prefix { address, length: range.length })
        });
        of_range.chain(list.iter().copied())
    }
}

impl RouteGroup {
    /// Number of routes.
    pub fn len(&self) -> u64 {
        self.prefixes.iter().map(Prefixes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The routes, in order.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.prefixes.iter().flat_map(Prefixes::iter)
    }

    /// Whether its routes are in the kernel's table, where each can be steered.
    pub fn is_in_kernel(&self) -> bool {
        self.single || self.flap.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_no_host_bits_and_knows_its_hosts() {
        for text in ["10.0.0.1/24", "10.0.0.0/33", "10.0.0.0", "2001:db8::1/64", "x/8", "::/129"] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
        let host = |text: &str, number| {
            let prefix = Prefix::parse(text).expect("a prefix");
            prefix.host(number).map(|address| address.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(host("10.0.0.0/24", 1), some("10.0.0.1"));
        assert_eq!(host("10.0.0.0/24", 254), some("10.0.0.254"));
        assert_eq!((host("10.0.0.0/24", 255), host("10.0.0.0/24", 0)), (None, None));
        assert_eq!(host("10.0.0.2/31", 1), some("10.0.0.2"));
        assert_eq!((host("10.0.0.2/31", 2), host("10.0.0.2/31", 3)), (some("10.0.0.3"), None));
        assert_eq!((host("10.0.0.7/32", 1), host("10.0.0.7/32", 2)), (some("10.0.0.7"), None));
        assert_eq!(host("2001:db8::/64", 7), some("2001:db8::7"));
        assert_eq!((host("2001:db8::/128", 1), host("::/0", 1)), (some("2001:db8::"), some("::1")));
        assert_eq!(host("0.0.0.0/0", 1), some("0.0.0.1"));
    }

    #[test]
    fn an_address_has_a_prefix_of_each_length() {
        let of = |address: &str, length| {
            Prefix::of(address.parse().expect("an address"), length).to_string()
        };
        assert_eq!(of("10.1.2.3", 20), "10.1.0.0/20");
        assert_eq!([of("10.1.2.3", 0), of("10.1.2.3", 32)], ["0.0.0.0/0", "10.1.2.3/32"]);
        assert_eq!(of("2001:db8::7", 64), "2001:db8::/64");
    }

    #[test]
    fn prefixes_overlap_if_one_is_in_the_other() {
        let overlap = |one, other| {
            let of = |text| Prefix::parse(text).expect("a prefix");
            of(one).overlaps(of(other))
        };
        assert!(overlap("10.0.0.0/8", "10.1.0.0/16") && overlap("10.1.0.0/16", "10.0.0.0/8"));
        assert!(overlap("::/0", "2001:db8::/32") && !overlap("0.0.0.0/0", "::/0"));
        assert!(!overlap("10.0.0.0/16", "10.1.0.0/16"));
    }

    #[test]
    fn a_part_of_a_prefix_is_followed_by_its_next_host() {
        let after = |one: &str, part: &str| {
            let of = |text| Prefix::parse(text).expect("a prefix");
            assert!(of(one).contains(of(part).address));
            of(one).host_after(of(part)).map(|address| address.to_string())
        };
        assert_eq!(after("10.0.0.0/24", "10.0.0.0/25").as_deref(), Some("10.0.0.128"));
        assert_eq!(after("10.0.0.0/24", "10.0.0.1/32").as_deref(), Some("10.0.0.2"));
        assert_eq!(after("10.0.0.0/24", "10.0.0.128/25"), None);
        assert_eq!(after("10.0.0.0/24", "10.0.0.254/32"), None, "the address of broadcasts");
        assert_eq!(after("10.0.0.0/31", "10.0.0.0/32").as_deref(), Some("10.0.0.1"));
        assert_eq!(after("2001:db8::/32", "2001:db8::/48").as_deref(), Some("2001:db8:1::"));
        assert_eq!(after("8000::/1", "c000::/2"), None);
        let prefix = Prefix::parse("10.0.0.0/24").expect("a prefix");
        assert!(!prefix.contains([10, 0, 1, 0].into()) && !prefix.contains([0; 16].into()));
    }

    #[test]
    fn a_group_has_the_routes_of_its_ranges_and_lists_in_order() {
        let range = RouteRange { first: [10, 0, 0, 0].into(), length: 24, count: 2 };
        let list = [Prefix { address: [192, 0, 2, 0].into(), length: 25 }];
        let group = RouteGroup {
            name: "edge".into(),
            attributes: GroupAttributes::default(),
            prefixes: vec![Prefixes::Range(range), Prefixes::List(list.into())],
            flap: None,
            single: false,
        };
        let found: Vec<_> = group.prefixes().map(|prefix| prefix.to_string()).collect();
        assert_eq!(found, ["10.0.0.0/24", "10.0.1.0/24", "192.0.2.0/25"]);
        assert_eq!((group.len(), group.is_empty()), (3, false));
    }
}
