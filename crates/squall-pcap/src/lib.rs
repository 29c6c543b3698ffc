//! Reads and writes captures as streams: [`CaptureReader`] reads the packets of a pcap or pcapng
//! file (or pipe) one by one; [`PcapWriter`] and [`PcapngWriter`] write files.
//!
//! Memory does not grow with the file. Frames never contain the FCS, even if the file does. The
//! content of packets is not interpreted here.
//!
//! Reader and writers do not use a library, because users need the offset of each error and its
//! reason, all packets before it, and the full speed of the disk.
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

mod batch;
mod error;
mod input;
mod link;
mod packet;
mod pcap;
mod pcapng;
mod reader;
mod unpack;
mod writer;

use std::{
    io::{self, Read},
    path::Path,
};

pub use batch::{Batch, MAX_BATCH};
pub use error::{CaptureError, Fault};
pub use link::LinkType;
pub use packet::{Packet, PacketOptions};
pub use reader::{CaptureReader, Interface, Resolution, Skipped};
pub use unpack::Compression;
pub use writer::{
    Direction, InterfaceFormat, PacketNotes, PcapFormat, PcapWriter, PcapngWriter, Section,
    Statistics,
};

/// The octets of `read`, decompressed as those of captures are.
///
/// # Errors
/// A read error. Damaged data are an error of a later read.
pub fn decompressed<R: Read>(read: R) -> io::Result<impl Read> {
    unpack::Source::new(read)
}

/// A packet copied from its capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub time_ns: u64,
    pub wire_len: u32,
    pub link_type: LinkType,
    pub data: Vec<u8>,
}

/// Packet `number` (1-based) of a capture: `x.pcap#3` in a profile.
///
/// # Errors
/// The file cannot be read up to that packet, or has fewer packets: the message gives their number.
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
