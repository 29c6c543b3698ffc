//! Ranges of routes.

use std::net::IpAddr;

/// Routes with consecutive prefixes of one length. All are in the address space, and have no host
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRange {
    /// Address of the first prefix.
    pub first: IpAddr,
    /// Length of each prefix, bits.
    pub length: u8,
    pub count: u32,
}

impl RouteRange {
    /// The address of each prefix.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        let (bits, width) = self.bits();
        let step = width - u32::from(self.length).min(width);
        (0..u128::from(self.count)).map(move |number| {
            let bits = bits.wrapping_add(number.checked_shl(step).unwrap_or(0));
            match self.first {
                IpAddr::V4(_) => IpAddr::V4((bits as u32).into()),
                IpAddr::V6(_) => IpAddr::V6(bits.into()),
            }
        })
    }

    fn bits(self) -> (u128, u32) {
        match self.first {
            IpAddr::V4(first) => (first.to_bits().into(), 32),
            IpAddr::V6(first) => (first.to_bits(), 128),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, length: u8, count: u32) -> RouteRange {
        RouteRange { first: first.parse().expect("an address"), length, count }
    }

    #[test]
    fn prefixes_follow_each_other() {
        let of = |range: RouteRange| range.addresses().map(|a| a.to_string()).collect::<Vec<_>>();
        assert_eq!(of(range("10.0.255.0", 24, 2)), ["10.0.255.0", "10.1.0.0"]);
        assert_eq!(of(range("2001:db8::", 48, 2)), ["2001:db8::", "2001:db8:1::"]);
        assert_eq!(of(range("0.0.0.0", 0, 1)), ["0.0.0.0"]);
        assert_eq!(of(range("::", 0, 1)), ["::"]);
    }
}
