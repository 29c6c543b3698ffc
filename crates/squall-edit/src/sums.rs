//! Checksums: changed as little as the octets under them (RFC 1624), or computed anew.

use squall_measure::flow::{Fragment, Headers, protocol};
use squall_wire::checksum::{fold, sum};

use crate::ip;

/// What a checksum's octets have become more and less, as an unfolded sum of 16-bit words; 0:
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta(u64);

impl Delta {
    /// Of four words in the place of four.
    #[inline]
    pub fn of_words(old: u64, new: u64) -> Self {
        let words = |four: u64| {
            (four >> 48) + (four >> 32 & 0xffff) + (four >> 16 & 0xffff) + (four & 0xffff)
        };
        Self(if old == new { 0 } else { words(!old) + words(new) })
    }

    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// `odd`: the octets begin in the lower half of a word.
    #[inline]
    pub fn replace(&mut self, old: &[u8], new: &[u8], odd: bool) {
        let [old, new] = [old, new].map(|octets| fold(sum(octets)));
        let change = fold(u64::from(!old) + u64::from(new));
        self.0 += u64::from(if odd { change.swap_bytes() } else { change });
    }

    /// Equation 3 of RFC 1624: what was wrong by some amount stays wrong by it.
    #[inline]
    pub fn apply(self, octets: &mut [u8], at: usize) {
        if self.0 == 0 {
            return;
        }
        let old = u16::from_be_bytes([octets[at], octets[at + 1]]);
        let new = !fold(u64::from(!old) + self.0);
        octets[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }

    /// Of UDP, whose 0 says that there is no checksum: it stays, and none becomes 0.
    #[inline]
    fn apply_unless_none(self, octets: &mut [u8], at: usize) {
        if octets[at..at + 2] != [0, 0] {
            self.apply(octets, at);
            if octets[at..at + 2] == [0, 0] {
                octets[at..at + 2].copy_from_slice(&[0xff; 2]);
            }
        }
    }
}

/// A checksum that covers addresses and, if there are such, ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportSum {
    /// From the packet's begin.
    pub at: usize,
    /// 0 says that there is none.
    pub may_be_none: bool,
}

impl TransportSum {
    /// That of a packet, if it was captured.
    #[inline]
    pub fn of(headers: &Headers) -> Option<Self> {
        if headers.fragment == Fragment::Later {
            return None;
        }
        let (offset, may_be_none) = match (headers.key.protocol, headers.key.version) {
            (protocol::TCP, _) => (16, false),
            (protocol::UDP | protocol::UDP_LITE, _) => (6, true),
            (protocol::DCCP, _) => (6, false),
            (protocol::ICMPV6, 6) => (2, false),
            (protocol::OSPF, 6) => (12, false),
            // SCTP's CRC and ICMP's checksum leave addresses out.
            _ => return None,
        };
        let at = headers.transport as usize + offset;
        (at + 2 <= headers.end as usize).then_some(Self { at, may_be_none })
    }

    #[inline]
    pub fn change(self, octets: &mut [u8], delta: Delta) {
        match self.may_be_none {
            true => delta.apply_unless_none(octets, self.at),
            false => delta.apply(octets, self.at),
        }
    }
}

/// Why checksums were not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Not all octets under it were captured, or they are in other packets.
    Cut,
    /// A source route says which address is under it.
    Routed,
}

/// Computes the checksums of IPv4, TCP, UDP, ICMP, IGMP and ICMPv6. True: one was another before.
pub fn fix(octets: &mut [u8], headers: &Headers) -> (bool, Option<Unknown>) {
    let mut changed = false;
    let network = headers.network as usize;
    if headers.key.version == 4 {
        let header_len = usize::from(octets[network] & 15) * 4;
        if header_len >= 20 && network + header_len <= octets.len() {
            changed |= put(octets, network + 10, network..network + header_len, 0, false);
        }
    }
    let transport = headers.transport as usize;
    let Some((offset, pseudo)) = (match (headers.key.protocol, headers.key.version) {
        (protocol::TCP, _) => Some((16, true)),
        (protocol::UDP, _) => Some((6, true)),
        (protocol::ICMPV6, 6) => Some((2, true)),
        (protocol::ICMP | protocol::IGMP, 4) => Some((2, false)),
        _ => None,
    }) else {
        return (changed, None);
    };
    let end = headers.end as usize;
    if headers.fragment != Fragment::Whole || transport + offset + 2 > end {
        return (changed, (headers.fragment != Fragment::Later).then_some(Unknown::Cut));
    }
    if ip::end(octets, headers) > octets.len() {
        return (changed, Some(Unknown::Cut));
    }
    let udp = headers.key.protocol == protocol::UDP;
    let at = transport + offset;
    if udp && octets[at..at + 2] == [0, 0] {
        return (changed, None);
    }
    if pseudo && headers.key.version == 6 && ip::is_routed(octets, headers) {
        return (changed, Some(Unknown::Routed));
    }
    let mut len = end - transport;
    if udp {
        let said = usize::from(u16::from_be_bytes([octets[transport + 4], octets[transport + 5]]));
        len = if (8..len).contains(&said) { said } else { len };
    }
    let addresses = if headers.key.version == 4 {
        network + 12..network + 20
    } else {
        network + 8..network + 40
    };
    let begin = if pseudo {
        sum(&octets[addresses]) + u64::from(headers.key.protocol) + len as u64
    } else {
        0
    };
    changed |= put(octets, at, transport..transport + len, begin, udp);
    (changed, None)
}

/// Writes the checksum of `range` at `at`, which lies in it. True: it was another before.
fn put(octets: &mut [u8], at: usize, range: std::ops::Range<usize>, begin: u64, udp: bool) -> bool {
    let before = [octets[at], octets[at + 1]];
    octets[at..at + 2].fill(0);
    let after = match !fold(begin + sum(&octets[range])) {
        0 if udp => 0xffff,
        sum => sum,
    };
    octets[at..at + 2].copy_from_slice(&after.to_be_bytes());
    before != after.to_be_bytes()
}
