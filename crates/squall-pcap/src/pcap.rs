//! The classic format (draft-ietf-opsawg-pcap): a file header of 24 octets, then records.

use std::io::Read;

use crate::{
    Fault, LinkType,
    batch::BatchRecord,
    input::{Endian, Input},
    pcapng::is_section_header,
    reader::{Interface, MAX_LEN_EVER, REACH, Record, Resolution, limit, without_fcs},
};

pub const MAGIC_US: u32 = 0xa1b2_c3d4;
pub const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// Alexey Kuznetsov's modified format, whose record headers have 8 more octets (interface,
/// protocol, packet type).
pub const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;
/// Ixia's lcap, with timestamps from hardware (nanoseconds) or software (microseconds). Its file
/// header has 4 more octets.
const MAGIC_IXIA_NS: u32 = 0x1c00_01ac;
const MAGIC_IXIA_US: u32 = 0x1c00_01ab;

pub struct Pcap {
    endian: Endian,
    ns_per_tick: u64,
    record_header: usize,
    swapped_lengths: Swapped,
    limit: u32,
    fcs_len: u32,
    link_type: LinkType,
    /// Index of the interface in the reader's table.
    interface: u32,
}

/// A record's header, with its two lengths swapped if necessary.
struct Header {
    seconds: u32,
    fraction: u32,
    captured: u32,
    wire_len: u32,
}

/// Whether the two lengths of a record are swapped, as in versions before 2.4.
enum Swapped {
    No,
    Yes,
    /// Version 2.3 was written either way, so the captured length is the smaller one.
    Perhaps,
}

impl Pcap {
    /// Reads the file header if its magic number is known. `interface` is the index for its
    /// interface.
    pub fn begin<R: Read>(
        input: &mut Input<R>,
        interface: u32,
    ) -> Result<Option<(Self, Interface)>, Fault> {
        let Some((endian, magic)) = magic(input.peek()) else {
            return Ok(None);
        };
        let ixia = matches!(magic, MAGIC_IXIA_NS | MAGIC_IXIA_US);
        let len = if ixia { 28 } else { 24 };
        input.need(len, "the file header")?;
        let header = input.peek();
        let (major, minor) = (endian.u16(header, 4), endian.u16(header, 6));
        if major != 2 {
            return Err(Fault::Version { format: "pcap", major, minor, expected: "2" });
        }
        let snaplen = endian.u32(header, 16);
        // The upper bits have the FCS length in units of 16 bits (4 bits), and a bit that says
        // whether it is valid.
        let network = endian.u32(header, 20);
        let link_type = LinkType(network as u16);
        let ns_per_tick = if matches!(magic, MAGIC_NS | MAGIC_IXIA_NS) { 1 } else { 1_000 };
        let pcap = Self {
            endian,
            ns_per_tick,
            record_header: if magic == MAGIC_MODIFIED { 24 } else { 16 },
            swapped_lengths: match minor {
                0..=2 => Swapped::Yes,
                3 => Swapped::Perhaps,
                _ => Swapped::No,
            },
            limit: limit(snaplen),
            fcs_len: if network & 1 << 26 != 0 { (network >> 28) * 2 } else { 0 },
            link_type,
            interface,
        };
        input.take(len);
        let resolution = Resolution(if ns_per_tick == 1 { 9 } else { 6 });
        Ok(Some((pcap, Interface { link_type, snaplen, resolution, ..Interface::default() })))
    }

    #[inline]
    pub fn next<R: Read>(&self, input: &mut Input<R>) -> Result<Option<Record>, Fault> {
        input.begin_record();
        if input.peek().is_empty() && input.at_end()? {
            return Ok(None);
        }
        input.need(self.record_header, "a packet's header")?;
        let Header { seconds, fraction, captured, wire_len } = self.header(input.peek());
        if captured > self.limit {
            return Err(Fault::TooLong {
                what: "a packet",
                len: captured.into(),
                limit: self.limit.into(),
            });
        }
        if captured == 0 {
            if (seconds, fraction, wire_len) == (0, 0, 0) && self.is_hole(input) {
                return Err(Fault::Hole);
            }
            // This is the header of another file, read as a record.
            if input.need(24, "").is_ok() && is_file_header(input.peek()) {
                return Err(Fault::Appended);
            }
        }
        let whole = self.record_header + captured as usize;
        input.need(whole, "a packet")?;
        let mut data = input.take(whole);
        data.start += self.record_header;
        Ok(Some(without_fcs(
            Record {
                time_ns: u64::from(seconds) * 1_000_000_000
                    + u64::from(fraction) * self.ns_per_tick,
                timed: true,
                wire_len: wire_len.max(captured),
                link_type: self.link_type,
                interface: self.interface,
                options: 0..0,
                dropped: None,
                data,
            },
            self.fcs_len,
        )))
    }

    /// Reads up to `max` complete packets from `octets`, which begin at index `at` of the window.
    /// Returns the number of octets read. Stops at any special case, which [`Self::next`] handles.
    pub fn batch(
        &self,
        octets: &[u8],
        at: usize,
        max: usize,
        into: &mut Vec<BatchRecord>,
    ) -> usize {
        match (self.endian, self.record_header, &self.swapped_lengths) {
            (Endian::Little, 16, Swapped::No) => self.batch_of::<true>(octets, at, max, into),
            (Endian::Big, 16, Swapped::No) => self.batch_of::<false>(octets, at, max, into),
            _ => 0,
        }
    }

    #[inline]
    fn batch_of<const LITTLE: bool>(
        &self,
        octets: &[u8],
        window: usize,
        max: usize,
        into: &mut Vec<BatchRecord>,
    ) -> usize {
        const HEADER: usize = 16;
        let mut at = 0;
        for _ in 0..max {
            let Some(header) = octets.get(at..).and_then(|rest| rest.first_chunk::<HEADER>())
            else {
                break;
            };
            let number = |at: usize| {
                let octets = [header[at], header[at + 1], header[at + 2], header[at + 3]];
                if LITTLE { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) }
            };
            let (captured, wire_len) = (number(8), number(12));
            let whole = HEADER + captured as usize;
            if captured == 0 || captured > self.limit || whole > octets.len() - at {
                break;
            }
            let start = (window + at + HEADER) as u32;
            let wire_len = wire_len.max(captured).saturating_sub(self.fcs_len);
            into.push(BatchRecord {
                time_ns: u64::from(number(0)) * 1_000_000_000
                    + u64::from(number(4)) * self.ns_per_tick,
                data: start..start + captured.min(wire_len),
                wire_len,
                interface: self.interface,
                link_type: self.link_type,
            });
            at += whole;
        }
        at
    }

    /// Whether zeros at the start of the input are a hole in the file, not empty packets from 1970:
    /// there are too many of them, or nothing plausible follows. A hole ends within a packet.
    #[cold]
    fn is_hole<R: Read>(&self, input: &mut Input<R>) -> bool {
        let at_end = input.need(HOLE + REACH, "").is_err();
        let octets = input.peek();
        let zeros = octets.iter().take(HOLE).take_while(|octet| **octet == 0).count();
        let rest = &octets[zeros - zeros % self.record_header..];
        let packets_follow = match at_end && rest.len() < self.record_header {
            true => true,
            false => self.begins(rest, at_end) || is_file_header(rest) || is_section_header(rest),
        };
        zeros == HOLE || !packets_follow
    }

    #[inline]
    fn header(&self, octets: &[u8]) -> Header {
        let number = |at| self.endian.u32(octets, at);
        let (mut captured, mut wire_len) = (number(8), number(12));
        match self.swapped_lengths {
            Swapped::No => {}
            Swapped::Perhaps if captured <= wire_len => {}
            _ => std::mem::swap(&mut captured, &mut wire_len),
        }
        Header { seconds: number(0), fraction: number(4), captured, wire_len }
    }

    /// Whether packets can be read from the start of `octets`: there are three plausible headers in
    /// a row, or as many as fit before the end. A single header has little redundancy, but three do
    /// not match by chance. Earlier packets are not compared: the last one may have been damaged.
    pub fn begins(&self, octets: &[u8], at_end: bool) -> bool {
        let (mut at, mut last_s) = (0, None::<u32>);
        for records in 0..3 {
            if at == octets.len() && at_end {
                return records > 0;
            }
            let Some(rest) = octets.get(at..).filter(|rest| rest.len() >= self.record_header)
            else {
                // At the end of the file, the last packet may be truncated, but not the first.
                // Before that, the octets end where the search distance is exhausted.
                return records > usize::from(at_end);
            };
            let Header { seconds, fraction, captured, wire_len } = self.header(rest);
            let sensible = (1..=self.limit).contains(&captured)
                && (captured..=MAX_LEN_EVER).contains(&wire_len)
                && u64::from(fraction) * self.ns_per_tick < 1_000_000_000
                && last_s.is_none_or(|last| last.abs_diff(seconds) < A_YEAR);
            if !sensible {
                return false;
            }
            last_s = Some(seconds);
            at += self.record_header + captured as usize;
            if at > octets.len() && records == 0 {
                return false;
            }
        }
        true
    }
}

/// Zeros of at least this length are a hole: a memory page or a disk block.
const HOLE: usize = 4096;

/// If it is unclear, packets further apart than this belong to different captures.
const A_YEAR: u32 = 365 * 86_400;

fn magic(octets: &[u8]) -> Option<(Endian, u32)> {
    [Endian::Little, Endian::Big].into_iter().find_map(|endian| {
        let magic = endian.u32(octets, 0);
        matches!(magic, MAGIC_US | MAGIC_NS | MAGIC_MODIFIED | MAGIC_IXIA_NS | MAGIC_IXIA_US)
            .then_some((endian, magic))
    })
}

/// Whether `octets` begin with a plausible file header.
#[cold]
pub fn is_file_header(octets: &[u8]) -> bool {
    let Some((endian, _)) = octets.get(..24).and_then(magic) else { return false };
    endian.u16(octets, 4) == 2 && endian.u16(octets, 6) <= 4
}
