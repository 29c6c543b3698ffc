//! A packet in a chunk, already in the format of the file, so it is copied only once.

use squall_pcap::{Direction, InterfaceFormat, PacketNotes, PcapFormat};

/// The format of the packets of one interface.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Pcap(PcapFormat),
    Pcapng {
        interface: InterfaceFormat,
        /// The interface's index in the file.
        index: u32,
        /// Whether each packet has its direction.
        directed: bool,
    },
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed<'a> {
    /// Length of the record, octets.
    pub len: usize,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Length on the wire in octets, without FCS.
    pub wire_len: u32,
    pub data: &'a [u8],
}

/// Largest overhead of a record: headers, padding, direction.
pub(crate) const MOST_OVERHEAD: usize = 32 + 3 + 12;

impl Record {
    /// Length of a record with `captured` octets of a packet.
    #[inline]
    pub fn len_of(&self, captured: usize) -> usize {
        match self {
            Self::Pcap(_) => 16 + captured,
            Self::Pcapng { directed: false, .. } => 32 + captured.next_multiple_of(4),
            Self::Pcapng { directed: true, .. } => 32 + captured.next_multiple_of(4) + 12,
        }
    }

    /// Writes a packet of `wire_len` octets at `time_ns` into `out`, whose length must equal
    /// [`Record::len_of`] the packet.
    #[inline]
    pub fn put(
        &self,
        mut out: &mut [u8],
        time_ns: u64,
        wire_len: u32,
        data: &[u8],
        outgoing: bool,
    ) {
        let wire_len = wire_len.max(data.len() as u32);
        match self {
            Self::Pcap(format) => format.place_packet(out, time_ns, wire_len, data),
            Self::Pcapng { index, directed: false, .. } => {
                InterfaceFormat::place_packet(out, *index, time_ns, wire_len, data);
            }
            Self::Pcapng { interface, index, directed: true } => {
                let direction = if outgoing { Direction::Outbound } else { Direction::Inbound };
                let notes = PacketNotes { direction: Some(direction), ..PacketNotes::default() };
                interface
                    .write_packet(&mut out, *index, time_ns, wire_len, data, &notes)
                    .expect("the record was measured");
            }
        }
    }

    /// Reads the record at the start of `octets`, as written by [`Record::put`]; `None` at the end.
    #[inline]
    pub fn read<'a>(&self, octets: &'a [u8]) -> Option<Placed<'a>> {
        if octets.is_empty() {
            return None;
        }
        let number = |at: usize| {
            u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        Some(match self {
            Self::Pcap(format) => {
                let fraction = u64::from(number(4)) * if format.nanoseconds { 1 } else { 1_000 };
                let captured = number(8) as usize;
                Placed {
                    len: 16 + captured,
                    time_ns: u64::from(number(0)) * 1_000_000_000 + fraction,
                    wire_len: number(12),
                    data: &octets[16..16 + captured],
                }
            }
            Self::Pcapng { .. } => {
                let captured = number(20) as usize;
                Placed {
                    len: number(4) as usize,
                    time_ns: u64::from(number(12)) << 32 | u64::from(number(16)),
                    wire_len: number(24),
                    data: &octets[28..28 + captured],
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_has_its_computed_length_and_reads_back(
            packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..70), any::<bool>()), 0..9),
            kind in 0..4,
        ) {
            let record = match kind {
                0 | 1 => Record::Pcap(PcapFormat { nanoseconds: kind == 0, ..PcapFormat::default() }),
                _ => Record::Pcapng { interface: InterfaceFormat::default(), index: 3, directed: kind == 2 },
            };
            let mut octets = Vec::new();
            for (i, (packet, outgoing)) in packets.iter().enumerate() {
                let at = octets.len();
                // Filled like memory that was used before.
                octets.resize(at + record.len_of(packet.len()), 0xee);
                let time = 1_700_000_000_123_456_000 + i as u64 * 1_000;
                record.put(&mut octets[at..], time, packet.len() as u32 + 7, packet, *outgoing);
                let read = record.read(&octets[at..]).unwrap();
                prop_assert_eq!((read.time_ns, read.wire_len), (time, packet.len() as u32 + 7));
                prop_assert_eq!((read.len, read.data), (octets.len() - at, packet.as_slice()));
            }
            prop_assert!(record.read(&[]).is_none());
        }
    }
}
