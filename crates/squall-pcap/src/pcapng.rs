//! The block format (draft-ietf-opsawg-pcapng): sections of blocks. Each block has its length at
//! both ends.

use std::io::Read;

use crate::{
    Fault, LinkType,
    batch::BatchRecord,
    input::{Endian, Input},
    reader::{Interface, Record, Resolution, limit, without_fcs},
    writer::Section,
};

pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET_OBSOLETE: u32 = 2;
pub const SIMPLE_PACKET: u32 = 3;
const NAME_RESOLUTION: u32 = 4;
pub const INTERFACE_STATISTICS: u32 = 5;
pub const ENHANCED_PACKET: u32 = 6;
const JOURNAL: u32 = 9;
const DECRYPTION_SECRETS: u32 = 10;
const CUSTOM: u32 = 0xbad;
const CUSTOM_NOT_COPIED: u32 = 0x4000_0bad;

/// Maximum length of a block. A longer one is damaged, and would hide everything after it.
/// Wireshark's limit is similar, but counts the packet without its options.
const MAX_BLOCK: u32 = 17 << 20;
const MAX_INTERFACES: usize = 1 << 16;

pub struct Pcapng {
    endian: Endian,
    /// Index of the section's interface 0 in the reader's table.
    section: usize,
    /// Time formats of all interfaces in the reader's table.
    clocks: Vec<Clock>,
    /// Contents of the section header.
    pub header: Section,
}

/// Time format of an interface.
#[derive(Clone, Copy)]
struct Clock {
    unit: Unit,
    /// Seconds to add to all times.
    offset: i64,
    fcs_len: u32,
    /// Whether the interface has an undamaged description.
    known: bool,
}

/// Unit of the timestamps.
#[derive(Clone, Copy)]
enum Unit {
    /// Nanoseconds per tick.
    Times(u64),
    /// Ticks per nanosecond.
    Over(u128),
    /// 2^-n s.
    Binary(u8),
}

/// A block's type and length, both validated.
struct Block {
    kind: u32,
    /// Total length, a multiple of 4 and at least 12.
    len: u32,
}

impl Pcapng {
    /// Reads the first section header if the file begins with one. `known`: number of interfaces in
    /// earlier files.
    pub fn begin<R: Read>(input: &mut Input<R>, known: usize) -> Result<Option<Self>, Fault> {
        if Endian::Big.u32(input.peek(), 0) != SECTION_HEADER {
            return Ok(None);
        }
        let clocks = vec![Clock::default(); known];
        let mut pcapng =
            Self { endian: Endian::Big, section: known, clocks, header: Section::nothing() };
        pcapng.begin_section(input)?;
        Ok(Some(pcapng))
    }

    pub fn next<R: Read>(
        &mut self,
        input: &mut Input<R>,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Option<Record>, Fault> {
        loop {
            input.begin_record();
            if input.peek().is_empty() && input.at_end()? {
                return Ok(None);
            }
            input.need(8, "a block's header")?;
            // The type of a section header is a palindrome, so it can be read before the byte order
            // is known.
            if Endian::Big.u32(input.peek(), 0) == SECTION_HEADER {
                // Do this even if the header is invalid: the following blocks do not belong to
                // earlier interfaces.
                self.section = interfaces.len();
                let endian = self.endian;
                self.begin_section(input).inspect_err(|_| self.endian = endian)?;
                continue;
            }
            let block = self.block(input.peek())?;
            match block.kind {
                ENHANCED_PACKET => {
                    self.whole(input, &block, "a packet block")?;
                    return self.enhanced_packet(input, &block, interfaces).map(Some);
                }
                SIMPLE_PACKET => {
                    self.whole(input, &block, "a simple packet block")?;
                    return self.simple_packet(input, &block, interfaces).map(Some);
                }
                PACKET_OBSOLETE => {
                    self.whole(input, &block, "a packet block")?;
                    return self.obsolete_packet(input, &block, interfaces).map(Some);
                }
                INTERFACE_DESCRIPTION => {
                    let whole = self.whole(input, &block, "an interface description");
                    if let Err(fault) =
                        whole.and_then(|()| self.describe_interface(input, &block, interfaces))
                    {
                        // An empty entry keeps the numbers of later interfaces correct.
                        if interfaces.len() < MAX_INTERFACES {
                            interfaces.push(Interface::default());
                            self.clocks.push(Clock { known: false, ..Clock::default() });
                        }
                        return Err(fault);
                    }
                }
                INTERFACE_STATISTICS => {
                    self.whole(input, &block, "interface statistics")?;
                    self.count_drops(input, &block, interfaces)?;
                }
                // Name resolution, secrets, journals, custom blocks, and future types.
                _ => {
                    self.whole(input, &block, "a block")?;
                    input.take(block.len as usize);
                }
            }
        }
    }

    /// Reads up to `max` complete packets from `octets`, which begin at index `at` of the window.
    /// Returns the number of octets read. Stops at any special case, which [`Self::next`] handles.
    pub fn batch(
        &self,
        octets: &[u8],
        window: usize,
        max: usize,
        interfaces: &[Interface],
        into: &mut Vec<BatchRecord>,
    ) -> usize {
        let mut at = 0;
        for _ in 0..max {
            let Some(rest) = octets.get(at..).filter(|rest| rest.len() >= 32) else { break };
            let number = |at| self.endian.u32(rest, at);
            let (len, captured) = (number(4), number(20));
            let padded = u64::from(captured).next_multiple_of(4);
            // Only blocks without options: an option may contain an FCS length.
            if number(0) != ENHANCED_PACKET
                || u64::from(len) != padded + 32
                || len as usize > rest.len()
            {
                break;
            }
            let Ok(index) = self.interface(number(8), interfaces) else { break };
            if number(len as usize - 4) != len || captured > limit(interfaces[index].snaplen) {
                break;
            }
            let clock = &self.clocks[index];
            let start = (window + at + 28) as u32;
            let wire_len = number(24).max(captured).saturating_sub(clock.fcs_len);
            into.push(BatchRecord {
                time_ns: clock.time_ns(self.time(rest, 12)),
                data: start..start + captured.min(wire_len),
                wire_len,
                interface: index as u32,
                link_type: interfaces[index].link_type,
            });
            at += len as usize;
        }
        at
    }

    fn begin_section<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), Fault> {
        const WHAT: &str = "a section header";
        input.need(28, WHAT)?;
        let octets = input.peek();
        let found = std::array::from_fn(|i| octets[8 + i]);
        self.endian = match u32::from_be_bytes(found) {
            BYTE_ORDER => Endian::Big,
            order if order.swap_bytes() == BYTE_ORDER => Endian::Little,
            _ => return Err(Fault::ByteOrder { found }),
        };
        let (major, minor) = (self.endian.u16(octets, 12), self.endian.u16(octets, 14));
        // Some programs wrote version 1.2 instead of 1.0.
        if major != 1 {
            return Err(Fault::Version { format: "pcapng", major, minor, expected: "1" });
        }
        let block = self.block(octets)?;
        if block.len < 28 {
            return Err(length(WHAT, block.len, 28));
        }
        self.whole(input, &block, WHAT)?;
        self.header = Section::nothing();
        for (code, value) in options(self.endian, &input.peek()[24..block.len as usize - 4]) {
            match code {
                1 => self.header.comment = text(value),
                2 => self.header.hardware = text(value),
                3 => self.header.os = text(value),
                4 => self.header.application = text(value),
                _ => {}
            }
        }
        input.take(block.len as usize);
        Ok(())
    }

    /// The header of the block at the start of `octets`.
    #[inline]
    fn block(&self, octets: &[u8]) -> Result<Block, Fault> {
        let (kind, len) = (self.endian.u32(octets, 0), self.endian.u32(octets, 4));
        if len < 12 || len % 4 != 0 {
            let expected = "a multiple of 4, at least 12".into();
            return Err(Fault::Length { what: "a block", len: len.into(), expected });
        }
        Ok(Block { kind, len })
    }

    /// Reads the whole block and checks the length at its end.
    #[inline]
    fn whole<R: Read>(
        &self,
        input: &mut Input<R>,
        block: &Block,
        what: &'static str,
    ) -> Result<(), Fault> {
        if block.len > MAX_BLOCK {
            return Err(Fault::TooLong { what, len: block.len.into(), limit: MAX_BLOCK.into() });
        }
        input.need(block.len as usize, what)?;
        let end = self.endian.u32(input.peek(), block.len as usize - 4);
        check_ends(block.len, end)
    }

    fn describe_interface<R: Read>(
        &mut self,
        input: &mut Input<R>,
        block: &Block,
        interfaces: &mut Vec<Interface>,
    ) -> Result<(), Fault> {
        if block.len < 20 {
            return Err(length("an interface description", block.len, 20));
        }
        if interfaces.len() == MAX_INTERFACES {
            return Err(Fault::TooManyInterfaces { limit: MAX_INTERFACES });
        }
        let octets = &input.peek()[..block.len as usize - 4];
        let mut interface = Interface {
            link_type: LinkType(self.endian.u16(octets, 8)),
            snaplen: self.endian.u32(octets, 12),
            ..Interface::default()
        };
        let mut clock = Clock::default();
        for (code, value) in options(self.endian, &octets[16..]) {
            match (code, value) {
                (1, comment) => interface.comment = text(comment),
                (2, name) => interface.name = text(name),
                (3, description) => interface.description = text(description),
                (6, mac) if mac.len() >= 6 => interface.mac = mac.first_chunk().copied(),
                (8, speed) if speed.len() >= 8 => {
                    interface.speed_bps = Some(self.endian.u64(speed, 0))
                }
                (9, &[resolution, ..]) => {
                    interface.resolution = Resolution(resolution);
                    clock.unit = Unit::of(resolution);
                }
                (11, &[0, ref filter @ ..]) => interface.filter = text(filter),
                (12, os) => interface.os = text(os),
                (15, hardware) => interface.hardware = text(hardware),
                (13, &[len, ..]) => clock.fcs_len = len.into(),
                (14, seconds) if seconds.len() >= 8 => {
                    clock.offset = self.endian.u64(seconds, 0) as i64
                }
                _ => {}
            }
        }
        interfaces.push(interface);
        self.clocks.push(clock);
        input.take(block.len as usize);
        Ok(())
    }

    /// Reads a 64-bit number as two 32-bit halves. The high half is first in either byte order.
    #[inline]
    fn time(&self, octets: &[u8], at: usize) -> u64 {
        u64::from(self.endian.u32(octets, at)) << 32 | u64::from(self.endian.u32(octets, at + 4))
    }

    fn count_drops<R: Read>(
        &mut self,
        input: &mut Input<R>,
        block: &Block,
        interfaces: &mut [Interface],
    ) -> Result<(), Fault> {
        if block.len < 24 {
            return Err(length("interface statistics", block.len, 24));
        }
        let octets = &input.peek()[..block.len as usize - 4];
        let index = self.interface(self.endian.u32(octets, 8), interfaces)?;
        let (clock, interface) = (self.clocks[index], &mut interfaces[index]);
        for (code, value) in options(self.endian, &octets[20..]) {
            if value.len() >= 8 {
                let count = Some(self.endian.u64(value, 0));
                let time = Some(clock.time_ns(self.time(value, 0)));
                match code {
                    2 => interface.start_ns = time,
                    3 => interface.end_ns = time,
                    4 => interface.received = count,
                    5 => interface.dropped_by_interface = count,
                    6 => interface.accepted = count,
                    7 => interface.dropped_by_system = count,
                    8 => interface.delivered = count,
                    _ => {}
                }
            }
        }
        input.take(block.len as usize);
        Ok(())
    }

    #[inline]
    fn enhanced_packet<R: Read>(
        &self,
        input: &mut Input<R>,
        block: &Block,
        interfaces: &[Interface],
    ) -> Result<Record, Fault> {
        const WHAT: &str = "a packet block";
        if block.len < 32 {
            return Err(length(WHAT, block.len, 32));
        }
        let octets = &input.peek()[..block.len as usize - 4];
        let number = |at| self.endian.u32(octets, at);
        let index = self.interface(number(8), interfaces)?;
        let (ticks, captured) = (Some(self.time(octets, 12)), number(20));
        let head = Head { index, ticks, captured, wire_len: number(24), at: 28, dropped: None };
        self.packet(input, block, interfaces, head)
    }

    fn obsolete_packet<R: Read>(
        &self,
        input: &mut Input<R>,
        block: &Block,
        interfaces: &[Interface],
    ) -> Result<Record, Fault> {
        if block.len < 32 {
            return Err(length("a packet block", block.len, 32));
        }
        let octets = &input.peek()[..block.len as usize - 4];
        let number = |at| self.endian.u32(octets, at);
        let index = self.interface(self.endian.u16(octets, 8).into(), interfaces)?;
        let (ticks, captured) = (Some(self.time(octets, 12)), number(20));
        let dropped = Some(self.endian.u16(octets, 10)).filter(|&count| count != u16::MAX);
        let head = Head { index, ticks, captured, wire_len: number(24), at: 28, dropped };
        self.packet(input, block, interfaces, head)
    }

    /// Reads a packet that has no timestamp and no captured length, and always belongs to interface
    /// 0.
    fn simple_packet<R: Read>(
        &self,
        input: &mut Input<R>,
        block: &Block,
        interfaces: &[Interface],
    ) -> Result<Record, Fault> {
        if block.len < 16 {
            return Err(length("a simple packet block", block.len, 16));
        }
        let wire_len = self.endian.u32(input.peek(), 8);
        let index = self.interface(0, interfaces)?;
        let captured = match interfaces[index].snaplen {
            0 => wire_len,
            snaplen => wire_len.min(snaplen),
        };
        self.packet(
            input,
            block,
            interfaces,
            Head { index, ticks: None, captured, wire_len, at: 12, dropped: None },
        )
    }

    /// Takes the block from the input and returns its packet.
    #[inline]
    fn packet<R: Read>(
        &self,
        input: &mut Input<R>,
        block: &Block,
        interfaces: &[Interface],
        head: Head,
    ) -> Result<Record, Fault> {
        let room = block.len - 4 - head.at;
        if head.captured > room {
            let (what, len) = ("a packet", head.captured.into());
            return Err(Fault::Length {
                what,
                len,
                expected: format!("at most {room}, the room in its block"),
            });
        }
        let limit = limit(interfaces[head.index].snaplen);
        if head.captured > limit {
            return Err(Fault::TooLong {
                what: "a packet",
                len: head.captured.into(),
                limit: limit.into(),
            });
        }
        let clock = &self.clocks[head.index];
        let mut fcs_len = clock.fcs_len;
        let padded = head.captured.next_multiple_of(4);
        let has_options = padded < room && head.ticks.is_some();
        if has_options {
            let octets = &input.peek()[(head.at + padded) as usize..block.len as usize - 4];
            for (code, value) in options(self.endian, octets) {
                // epb_flags and pack_flags: bits 5 to 8 are the FCS length, 0 if unknown.
                if code == 2 && value.len() >= 4 {
                    let len = self.endian.u32(value, 0) >> 5 & 0xf;
                    fcs_len = if len > 0 { len } else { fcs_len };
                }
            }
        }
        let block = input.take(block.len as usize);
        let start = block.start + head.at as usize;
        let data = start..start + head.captured as usize;
        let options = if has_options { start + padded as usize..block.end - 4 } else { 0..0 };
        let record = Record {
            time_ns: head.ticks.map_or(0, |ticks| clock.time_ns(ticks)),
            timed: head.ticks.is_some(),
            wire_len: head.wire_len.max(head.captured),
            link_type: interfaces[head.index].link_type,
            interface: head.index as u32,
            data,
            options,
            dropped: head.dropped,
        };
        Ok(without_fcs(record, fcs_len))
    }

    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Length of the block at the start of `octets`, if it is complete and both its lengths are
    /// equal.
    pub fn whole_block(&self, octets: &[u8]) -> Option<usize> {
        let block = octets.get(..8).and_then(|octets| self.block(octets).ok())?;
        let len = block.len as usize;
        (octets.len() >= len && self.endian.u32(octets, len - 4) == block.len).then_some(len)
    }

    /// Whether blocks can be read from the start of `octets`: there is a complete block of a known
    /// type with equal lengths at both ends, and for a packet its interface is in the reader's
    /// table.
    pub fn begins(&self, octets: &[u8], interfaces: &[Interface]) -> bool {
        let Some(len) = self.whole_block(octets) else { return false };
        let number = |at| self.endian.u32(octets, at);
        match number(0) {
            SECTION_HEADER => is_section_header(octets),
            INTERFACE_DESCRIPTION => len >= 20,
            ENHANCED_PACKET | PACKET_OBSOLETE => {
                let interface = if number(0) == ENHANCED_PACKET {
                    number(8)
                } else {
                    self.endian.u16(octets, 8).into()
                };
                len >= 32
                    && self.interface(interface, interfaces).is_ok()
                    && number(20) as usize <= len - 32
            }
            SIMPLE_PACKET => len >= 16 && self.interface(0, interfaces).is_ok(),
            INTERFACE_STATISTICS => len >= 24,
            NAME_RESOLUTION | JOURNAL | DECRYPTION_SECRETS | CUSTOM | CUSTOM_NOT_COPIED => true,
            _ => false,
        }
    }

    /// Index in the reader's table of interface `number` of the section.
    #[inline]
    fn interface(&self, number: u32, interfaces: &[Interface]) -> Result<usize, Fault> {
        let known = interfaces.len() - self.section;
        match usize::try_from(number) {
            Ok(index) if index < known && self.clocks[self.section + index].known => {
                Ok(self.section + index)
            }
            _ => Err(Fault::NoSuchInterface { interface: number, known }),
        }
    }
}

/// The fields that all packet blocks have in common.
struct Head {
    index: usize,
    ticks: Option<u64>,
    captured: u32,
    wire_len: u32,
    /// Offset of the packet in the block.
    at: u32,
    /// Packets lost before this one, in an obsolete packet block.
    dropped: Option<u16>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { unit: Unit::Times(1_000), offset: 0, fcs_len: 0, known: true }
    }
}

impl Clock {
    #[inline]
    fn time_ns(&self, ticks: u64) -> u64 {
        let ns = match self.unit {
            Unit::Times(1) if self.offset == 0 => return ticks,
            Unit::Times(n) => u128::from(ticks) * u128::from(n),
            Unit::Over(n) => u128::from(ticks) / n,
            Unit::Binary(n) => (u128::from(ticks) * 1_000_000_000) >> n,
        };
        let ns = ns as i128 + i128::from(self.offset) * 1_000_000_000;
        ns.clamp(0, u64::MAX.into()) as u64
    }
}

impl Unit {
    /// Converts `if_tsresol`: a negative power of 10, or of 2 if the highest bit is set.
    fn of(resolution: u8) -> Self {
        match resolution {
            n @ 0..=9 => Self::Times(10u64.pow(9 - u32::from(n))),
            // At less than 10^-28 s per tick, 2^64 ticks are less than a nanosecond.
            n @ 10..=127 => Self::Over(10u128.pow((u32::from(n) - 9).min(20))),
            n => Self::Binary(n & 0x7f),
        }
    }
}

/// Whether `octets` begin with a complete section header, in either byte order.
pub fn is_section_header(octets: &[u8]) -> bool {
    if octets.len() < 28 || Endian::Big.u32(octets, 0) != SECTION_HEADER {
        return false;
    }
    let Some(endian) =
        [Endian::Little, Endian::Big].into_iter().find(|e| e.u32(octets, 8) == BYTE_ORDER)
    else {
        return false;
    };
    let len = endian.u32(octets, 4) as usize;
    let whole = len >= 28 && len <= octets.len() && endian.u32(octets, len - 4) as usize == len;
    whole && endian.u16(octets, 12) == 1
}

/// Value of a text option: UTF-8, without the trailing zeros that some programs write.
fn text(octets: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(octets).trim_end_matches('\0').into())
}

/// Code and value of each option. Ends at opt_endofopt, or at an option that exceeds `octets`.
pub fn options(endian: Endian, mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (code, len) =
            (octets.len() >= 4).then(|| (endian.u16(octets, 0), endian.u16(octets, 2) as usize))?;
        let value = octets.get(4..4 + len).filter(|_| code != 0)?;
        octets = octets.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}

#[inline]
fn check_ends(first: u32, last: u32) -> Result<(), Fault> {
    if first == last {
        return Ok(());
    }
    let expected = format!("{last}, the length at its end");
    Err(Fault::Length { what: "a block", len: first.into(), expected })
}

fn length(what: &'static str, len: u32, at_least: u32) -> Fault {
    Fault::Length { what, len: len.into(), expected: format!("at least {at_least}") }
}
