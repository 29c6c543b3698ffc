//! Batches of packets: in a large file, a call per packet costs more than reading the packet.

use std::ops::Range;

use crate::{LinkType, Packet, PacketOptions, input::Endian};

/// Maximum number of packets in a batch: their headers stay in the L1 cache.
pub const MAX_BATCH: usize = 64;

/// Consecutive packets, borrowed until the next call on the reader.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub(crate) window: &'a [u8],
    pub(crate) records: &'a [BatchRecord],
    /// Number of the first packet.
    pub(crate) first: u64,
    pub(crate) endian: Endian,
    /// Options of the packet; only a batch of a single packet has any.
    pub(crate) options: &'a [u8],
    pub(crate) dropped: Option<u16>,
    /// Whether the packets have timestamps. A packet without one is alone in its batch.
    pub(crate) timed: bool,
}

/// A compact form of [`crate::reader::Record`].
#[derive(Clone, Debug)]
pub struct BatchRecord {
    pub time_ns: u64,
    /// Range of the packet's octets in the window.
    pub data: Range<u32>,
    pub wire_len: u32,
    pub interface: u32,
    pub link_type: LinkType,
}

impl<'a> Batch<'a> {
    /// Number of packets; 0 at the end of the file.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn iter(self) -> impl Iterator<Item = Packet<'a>> {
        self.records.iter().zip(self.first..).map(move |(record, number)| Packet {
            time_ns: record.time_ns,
            timed: self.timed,
            wire_len: record.wire_len,
            link_type: record.link_type,
            interface: record.interface,
            number,
            data: &self.window[record.data.start as usize..record.data.end as usize],
            options: PacketOptions {
                endian: self.endian,
                octets: self.options,
                dropped: self.dropped,
            },
        })
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("first", &self.first)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
