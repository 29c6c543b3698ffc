//! A packet as a reader gives it.

use std::borrow::Cow;

use crate::{Direction, LinkType, input::Endian, pcapng::options};

/// A packet of a capture, lent until the next is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Since 1970-01-01 UTC, clamped to what fits (the year 2554). If the file has none, that of the
    /// packet before, so that the order of the file is one of time; 0 if that has none either.
    pub time_ns: u64,
    /// Whether the file has a time for it: pcapng's simple packets have none.
    pub timed: bool,
    /// Octets on the wire, without FCS; never less than there are in `data`.
    pub wire_len: u32,
    pub link_type: LinkType,
    /// Index in [`CaptureReader::interfaces`](crate::CaptureReader::interfaces): counted through
    /// all sections of the file.
    pub interface: u32,
    /// From 1, as in Wireshark.
    pub number: u64,
    /// The octets captured, without FCS.
    pub data: &'a [u8],
    pub options: PacketOptions<'a>,
}

/// What a pcapng says of a packet beside its octets; a pcap says nothing.
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

    /// Direction, kind of reception, length of the FCS, and errors of the link layer (epb_flags).
    pub fn flags(&self) -> Option<u32> {
        self.find(2, 4).map(|value| self.endian.u32(value, 0))
    }

    /// Packets lost between this and the one before of the same interface, if they were counted.
    pub fn dropped(&self) -> Option<u64> {
        self.find(4, 8).map(|value| self.endian.u64(value, 0)).or(self.dropped.map(u64::from))
    }

    /// Of the packet by the one who captured it: the algorithm's number in the first octet
    /// (epb_hash).
    pub fn hash(&self) -> Option<&'a [u8]> {
        self.find(3, 1)
    }

    pub fn comments(&self) -> impl Iterator<Item = Cow<'a, str>> {
        self.iter().filter(|&(code, _)| code == 1).map(|(_, text)| String::from_utf8_lossy(text))
    }

    /// Code and value of each, those that have no method here too; numbers in the octets' order of
    /// the section.
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
