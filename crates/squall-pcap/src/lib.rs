//! Captures as streams: [`CaptureReader`] takes a pcap or pcapng file (or pipe) and gives one packet after the other;
//! [`PcapWriter`] and [`PcapngWriter`] take packets and give files.
//!
//! Memory does not grow with the file. Frames never hold the FCS, whatever the file says it holds. Nothing here knows
//! what is in a packet.
//!
//! Reader and writers are our own rather than a library's: we owe the user the offset and the reason of each fault,
//! all packets before it, and the speed of the disk, which leaves little for a library to do.
//!
//! ```
//! use squall_pcap::{CaptureReader, PcapFormat, PcapWriter};
//!
//! let mut writer = PcapWriter::new(Vec::new(), PcapFormat::default())?;
//! writer.write(1_700_000_000_000_000_001, 60, &[0xff; 60])?;
//! let file = writer.finish()?;
//!
//! let mut reader = CaptureReader::from_read(file.as_slice())?;
//! while let Some(packet) = reader.next()? {
//!     assert_eq!((packet.time_ns % 1_000, packet.data.len()), (1, 60));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod input;
mod pcap;
mod pcapng;
mod reader;
mod writer;

use std::{fmt, path::Path};

pub use error::{CaptureError, Fault};
pub use reader::{CaptureReader, Interface};
pub use writer::{Direction, InterfaceFormat, PacketNotes, PcapFormat, PcapWriter, PcapngWriter, Section, Statistics};

/// A packet of a capture, lent until the next is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Since 1970-01-01 UTC; 0 if the file has none (pcapng's simple packets), clamped to what fits (the year 2554).
    pub time_ns: u64,
    /// Octets on the wire, without FCS; never less than there are in `data`.
    pub wire_len: u32,
    pub link_type: LinkType,
    /// Index in [`CaptureReader::interfaces`]: counted through all sections of the file.
    pub interface: u32,
    /// From 1, as in Wireshark.
    pub number: u64,
    /// The octets captured, without FCS.
    pub data: &'a [u8],
}

/// What the first octets of a packet are (the tcpdump.org list of link-layer header types).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    pub const NULL: Self = Self(0);
    pub const ETHERNET: Self = Self(1);
    pub const RAW: Self = Self(101);
    pub const IEEE802_11: Self = Self(105);
    pub const LINUX_SLL: Self = Self(113);
    pub const IPV4: Self = Self(228);
    pub const IPV6: Self = Self(229);
    pub const LINUX_SLL2: Self = Self(276);
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NULL => "BSD loopback",
            Self::ETHERNET => "Ethernet",
            Self::RAW => "raw IP",
            Self::IEEE802_11 => "IEEE 802.11",
            Self::LINUX_SLL => "Linux cooked v1",
            Self::IPV4 => "raw IPv4",
            Self::IPV6 => "raw IPv6",
            Self::LINUX_SLL2 => "Linux cooked v2",
            Self(other) => return write!(f, "link type {other}"),
        };
        f.write_str(name)
    }
}

/// A packet that was copied out of its capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub time_ns: u64,
    pub wire_len: u32,
    pub link_type: LinkType,
    pub data: Vec<u8>,
}

/// Packet `number` (from 1) of a capture: `x.pcap#3` in a profile.
///
/// # Errors
/// If the file cannot be read up to there, or has fewer packets: the message says how many.
pub fn frame_number(path: impl AsRef<Path>, number: u64) -> Result<Frame, CaptureError> {
    let mut reader = CaptureReader::open(path)?;
    while let Some(packet) = reader.next()? {
        if packet.number == number {
            let Packet { time_ns, wire_len, link_type, data, .. } = packet;
            return Ok(Frame { time_ns, wire_len, link_type, data: data.to_vec() });
        }
    }
    let fault = Fault::NoSuchPacket { number, packets: reader.packets() };
    Err(reader.error(fault))
}
