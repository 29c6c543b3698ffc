//! The classic format (draft-ietf-opsawg-pcap): a file header of 24 octets, then records.

use std::io::Read;

use crate::{
    Fault, LinkType,
    input::{Endian, Input},
    reader::{Interface, Record, limit, without_fcs},
};

pub const MAGIC_US: u32 = 0xa1b2_c3d4;
pub const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// Alexey Kuznetsov's modified format: 8 more octets (interface, protocol, packet type) in each record's header.
pub const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

pub struct Pcap {
    endian: Endian,
    ns_per_tick: u64,
    record_header: usize,
    swapped_lengths: Swapped,
    limit: u32,
    fcs_len: u32,
    link_type: LinkType,
}

/// Whether the two lengths of a record stand in the wrong order, as they did before version 2.4.
enum Swapped {
    No,
    Yes,
    /// Version 2.3 was written either way: the captured length is the smaller.
    Perhaps,
}

impl Pcap {
    /// Takes the file header if its magic number is one of ours.
    pub fn begin<R: Read>(input: &mut Input<R>) -> Result<Option<(Self, Interface)>, Fault> {
        let Some((endian, magic)) = [Endian::Little, Endian::Big].into_iter().find_map(|endian| {
            let magic = endian.u32(input.peek(), 0);
            matches!(magic, MAGIC_US | MAGIC_NS | MAGIC_MODIFIED).then_some((endian, magic))
        }) else {
            return Ok(None);
        };
        input.need(24, "the file header")?;
        let header = input.peek();
        let (major, minor) = (endian.u16(header, 4), endian.u16(header, 6));
        if major != 2 {
            return Err(Fault::Version { format: "pcap", major, minor, expected: "2" });
        }
        let snaplen = endian.u32(header, 16);
        // Above the link type: 4 bits of FCS length in units of 16 bits, and a bit that says they mean it.
        let network = endian.u32(header, 20);
        let link_type = LinkType(network as u16);
        let pcap = Self {
            endian,
            ns_per_tick: if magic == MAGIC_NS { 1 } else { 1_000 },
            record_header: if magic == MAGIC_MODIFIED { 24 } else { 16 },
            swapped_lengths: match minor {
                0..=2 => Swapped::Yes,
                3 => Swapped::Perhaps,
                _ => Swapped::No,
            },
            limit: limit(snaplen),
            fcs_len: if network & 1 << 26 != 0 { (network >> 28) * 2 } else { 0 },
            link_type,
        };
        input.take(24);
        Ok(Some((pcap, Interface { link_type, snaplen, ..Interface::default() })))
    }

    #[inline]
    pub fn next<R: Read>(&self, input: &mut Input<R>) -> Result<Option<Record>, Fault> {
        input.begin_record();
        if input.peek().is_empty() && input.at_end()? {
            return Ok(None);
        }
        input.need(self.record_header, "a packet's header")?;
        let header = input.peek();
        let seconds = u64::from(self.endian.u32(header, 0));
        let fraction = u64::from(self.endian.u32(header, 4));
        let (mut captured, mut wire_len) = (self.endian.u32(header, 8), self.endian.u32(header, 12));
        match self.swapped_lengths {
            Swapped::No => {}
            Swapped::Perhaps if captured <= wire_len => {}
            _ => std::mem::swap(&mut captured, &mut wire_len),
        }
        if captured > self.limit {
            return Err(Fault::TooLong { what: "a packet", len: captured.into(), limit: self.limit.into() });
        }
        let whole = self.record_header + captured as usize;
        input.need(whole, "a packet")?;
        let mut data = input.take(whole);
        data.start += self.record_header;
        Ok(Some(without_fcs(
            Record {
                time_ns: seconds * 1_000_000_000 + fraction * self.ns_per_tick,
                wire_len: wire_len.max(captured),
                link_type: self.link_type,
                interface: 0,
                data,
            },
            self.fcs_len,
        )))
    }
}
