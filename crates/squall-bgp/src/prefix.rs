//! Address families and prefixes.

use std::{fmt, net::IpAddr};

/// Unicast routes of an IP version (AFI 1 or 2 with SAFI 1; RFC 4760).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    Ipv4,
    Ipv6,
}

/// SAFI of unicast.
pub(crate) const UNICAST: u8 = 1;

impl Family {
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// Its place in arrays with one element for each family.
    pub fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn afi(self) -> u16 {
        match self {
            Self::Ipv4 => 1,
            Self::Ipv6 => 2,
        }
    }

    pub(crate) fn of(afi: u16, safi: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.afi() == afi && safi == UNICAST)
    }

    /// The longest prefix, bits.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
        }
    }
}

/// A prefix. Bits of the address after the length are not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    pub address: IpAddr,
    /// Bits: at most 32 for IPv4, 128 for IPv6.
    pub length: u8,
}

impl Prefix {
    pub fn family(&self) -> Family {
        if self.address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}
