//! A packet of a capture.

use std::borrow::Cow;

use crate::{Direction, LinkType, input::Endian, pcapng::options};

/// A packet of a capture, borrowed until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970-01-01 UTC, clamped to the range (up to the year 2554). A packet
    /// without a timestamp has the time of the preceding packet, so times stay in file order; 0 if
    /// there is no such packet.
    pub time_ns: u64,
    /// Whether the packet has a timestamp: pcapng's simple packet blocks have none.
    pub timed: bool,
    /// Octets on the wire, without FCS; at least the length of `data`.
    pub wire_len: u32,
    pub link_type: LinkType,
    /// Index in [`CaptureReader::interfaces`](crate::CaptureReader::interfaces), counted over all
    /// sections of the file.
    pub interface: u32,
    /// Number in the file (1-based), as in Wireshark.
    pub number: u64,
    /// The captured octets, without FCS.
    pub data: &'a [u8],
    pub options: PacketOptions<'a>,
}

/// Options of a pcapng packet block; empty for a pcap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PacketOptions<'a> {
    pub(crate) endian: Endian,
    pub(crate) octets: &'a [u8],
    pub(crate) dropped: Option<u16>,
}

impl<'a> PacketOptions<'a> {
    pub fn direction(&self) -> Option<Direction> {
        match self.flags()? & 3 {
            1 => Some(Direction::Inbound),
            2 => Some(Direction::Outbound),
            _ => None,
        }
    }

    /// Direction, kind of reception, length of the FCS, and link layer errors (epb_flags).
    pub fn flags(&self) -> Option<u32> {
        self.find(2, 4).map(|value| self.endian.u32(value, 0))
    }

    /// Packets lost on this interface since the preceding packet, if they were counted.
    pub fn dropped(&self) -> Option<u64> {
        self.find(4, 8).map(|value| self.endian.u64(value, 0)).or(self.dropped.map(u64::from))
    }

    /// Hash of the packet, computed by the capturing program. The first octet identifies the
    /// algorithm (epb_hash).
    pub fn hash(&self) -> Option<&'a [u8]> {
        self.find(3, 1)
    }

    pub fn comments(&self) -> impl Iterator<Item = Cow<'a, str>> {
        self.iter().filter(|&(code, _)| code == 1).map(|(_, text)| String::from_utf8_lossy(text))
    }

    /// Code and value of every option. Numbers are in the section's byte order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        options(self.endian, self.octets)
    }

    fn find(&self, code: u16, at_least: usize) -> Option<&'a [u8]> {
        self.iter()
            .find(|&(found, value)| found == code && value.len() >= at_least)
            .map(|(_, value)| value)
    }
}

impl std::fmt::Debug for PacketOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
