//! Updates checksums incrementally (RFC 1624), or recomputes them.

use squall_measure::flow::{Fragment, Headers, protocol};
use squall_units::be16;
use squall_wire::checksum::{fold, sctp, sctp_change, sum};

use crate::{Reason, ip};

/// A difference between checksummed octets, as an unfolded sum of 16-bit words; 0: no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta(u64);

impl Delta {
    /// The difference when four words replace four others.
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

    /// Adds a change of octets from `old` to `new`. `odd`: the octets begin in the lower half of a
    /// word.
    #[inline]
    pub fn replace(&mut self, old: &[u8], new: &[u8], odd: bool) {
        let [old, new] = [old, new].map(|octets| fold(sum(octets)));
        let change = fold(u64::from(!old) + u64::from(new));
        self.0 += u64::from(if odd { change.swap_bytes() } else { change });
    }

    /// Updates a checksum by equation 3 of RFC 1624. A wrong checksum stays wrong by the same
    /// amount.
    #[inline]
    pub fn apply(self, octets: &mut [u8], at: usize) {
        if self.0 == 0 {
            return;
        }
        let old = be16(octets, at);
        let new = !fold(u64::from(!old) + self.0);
        octets[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }

    /// Like [`apply`](Self::apply) for UDP, where 0 means "no checksum": 0 stays 0, and no other
    /// value becomes 0.
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

/// A transport checksum that covers the addresses, and the ports if the protocol has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportSum {
    /// Offset in the packet.
    pub at: usize,
    /// Whether 0 means "no checksum".
    pub may_be_none: bool,
}

impl TransportSum {
    /// The checksum of a packet, if its field was captured.
    #[inline]
    pub fn of(headers: &Headers) -> Option<Self> {
        if headers.fragment == Fragment::Later {
            return None;
        }
        let (offset, may_be_none) = Self::field(headers)?;
        let at = headers.transport as usize + offset;
        (at + 2 <= headers.end as usize).then_some(Self { at, may_be_none })
    }

    /// The offset of the field in the transport header, and whether 0 means "no checksum".
    #[inline]
    pub(crate) fn field(headers: &Headers) -> Option<(usize, bool)> {
        Some(match (headers.key.protocol, headers.key.version) {
            (protocol::TCP, _) => (16, false),
            (protocol::UDP | protocol::UDP_LITE, _) => (6, true),
            (protocol::DCCP, _) => (6, false),
            (protocol::ICMPV6, 6) => (2, false),
            (protocol::OSPF, 6) => (12, false),
            // ICMP's checksum and SCTP's CRC do not cover addresses.
            _ => return None,
        })
    }

    #[inline]
    pub fn change(self, octets: &mut [u8], delta: Delta) {
        match self.may_be_none {
            true => delta.apply_unless_none(octets, self.at),
            false => delta.apply(octets, self.at),
        }
    }
}

/// Updates SCTP's CRC after a change of the ports from `old`. A correct CRC stays correct, and a
/// wrong one stays wrong by the same bits. A missing CRC (0, by RFC 9653 or because of offload)
/// stays missing.
///
/// # Errors
/// The packet's length is unknown, or its header was not captured.
pub fn change_sctp_ports(
    octets: &mut [u8],
    headers: &Headers,
    old: &[u8; 4],
) -> Result<(), Reason> {
    let at = headers.transport as usize;
    let ports = &octets[at..at + 4];
    if ports == old {
        return Ok(());
    }
    if headers.fragment == Fragment::First {
        return Err(Reason::Cut);
    }
    // Octets that were not captured also count: the update only needs their number.
    let len = ip::end(octets, headers).saturating_sub(at);
    if at + 12 > headers.end as usize || len < 12 {
        return Err(Reason::Headers);
    }
    let change = sctp_change(old, ports, 0, len);
    let crc: &mut [u8; 4] = (&mut octets[at + 8..at + 12]).try_into().expect("4 octets");
    if *crc != [0; 4] {
        *crc = (u32::from_le_bytes(*crc) ^ change).to_le_bytes();
    }
    Ok(())
}

/// Why checksums were not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Some of the covered octets were not captured, or are in other packets.
    Cut,
    /// A source route determines the covered address.
    Routed,
}

/// Recomputes the checksums of IPv4, TCP, UDP, SCTP, ICMP, IGMP and ICMPv6. Returns true if one of
/// them changed.
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
        (protocol::SCTP, _) => Some((8, false)),
        _ => None,
    }) else {
        return (changed, None);
    };
    let end = headers.end as usize;
    let is_sctp = headers.key.protocol == protocol::SCTP;
    let width = if is_sctp { 4 } else { 2 };
    if headers.fragment != Fragment::Whole || transport + offset + width > end {
        return (changed, (headers.fragment != Fragment::Later).then_some(Unknown::Cut));
    }
    if ip::end(octets, headers) > octets.len() {
        return (changed, Some(Unknown::Cut));
    }
    let at = transport + offset;
    if is_sctp {
        let crc = sctp(&octets[transport..end]).to_le_bytes();
        changed |= octets[at..at + 4] != crc;
        octets[at..at + 4].copy_from_slice(&crc);
        return (changed, None);
    }
    let udp = headers.key.protocol == protocol::UDP;
    if udp && octets[at..at + 2] == [0, 0] {
        return (changed, None);
    }
    if pseudo && headers.key.version == 6 && ip::is_routed(octets, headers) {
        return (changed, Some(Unknown::Routed));
    }
    let mut len = end - transport;
    if udp {
        let declared = usize::from(be16(octets, transport + 4));
        len = if (8..len).contains(&declared) { declared } else { len };
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

/// Writes the checksum of `range` at offset `at`, which is within `range`. Returns whether it
/// changed.
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
