//! IPv6 addresses in the form that packets have.

use std::net::Ipv6Addr;

use crate::checksum;

const LOW: u64 = u32::MAX as u64;

/// An IPv6 address as in packets: its octets in two words, in their order in memory. So
/// addresses are copied, compared, hashed and summed without a change of their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ipv6Octets {
    pub upper: u64,
    pub lower: u64,
}

impl Ipv6Octets {
    #[inline(always)]
    #[must_use]
    pub fn read(octets: &[u8; 16]) -> Self {
        let (words, _) = octets.as_chunks::<8>();
        let [upper, lower] = [u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])];
        Self { upper, lower }
    }

    /// The sum of the octets, as [`checksum::native`].
    #[inline(always)]
    #[must_use]
    pub fn sum(self) -> u64 {
        checksum::add(self.upper, self.lower)
    }

    /// The lower 32 bits.
    #[inline(always)]
    #[must_use]
    pub fn low(self) -> u32 {
        u64::from_be(self.lower) as u32
    }

    /// The address with 0 in place of the lower 32 bits.
    #[inline(always)]
    #[must_use]
    pub fn without_low(self) -> Self {
        Self { lower: self.lower & (!LOW).to_be(), ..self }
    }

    /// The address with the lower 32 bits, which are 0 before.
    #[inline(always)]
    #[must_use]
    pub fn with_low(self, low: u32) -> Self {
        Self { lower: self.lower | u64::from(low).to_be(), ..self }
    }
}

impl From<Ipv6Addr> for Ipv6Octets {
    #[inline(always)]
    fn from(address: Ipv6Addr) -> Self {
        Self::read(&address.octets())
    }
}

impl From<Ipv6Octets> for Ipv6Addr {
    #[inline(always)]
    fn from(Ipv6Octets { upper, lower }: Ipv6Octets) -> Self {
        let [upper, lower] = [u64::from_be(upper), u64::from_be(lower)];
        Self::from_bits(u128::from(upper) << 64 | u128::from(lower))
    }
}
