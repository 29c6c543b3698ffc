//! Writes captures. The `write_..` methods of [`PcapFormat`], [`Section`], [`InterfaceFormat`] and
//! [`Statistics`] write single records and blocks to any [`Write`]: a `Vec`, a slice, a file. The
//! two writers add a file and a buffer, so each packet is copied once.

use std::{
    fs::File,
    io::{self, BufWriter, Error, ErrorKind, Write},
    path::Path,
};

use crate::{
    LinkType,
    pcap::{MAGIC_NS, MAGIC_US},
    pcapng::{
        BYTE_ORDER, ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS, SECTION_HEADER,
        SIMPLE_PACKET,
    },
};

const BUFFER: usize = 256 << 10;
/// The default snap length of tcpdump and Wireshark.
const SNAPLEN: u32 = 262_144;

/// Fields of a pcap file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapFormat {
    pub link_type: LinkType,
    /// Maximum octets kept per packet.
    pub snaplen: u32,
    /// Write timestamps in nanoseconds. Readers from before 2012 need microseconds.
    pub nanoseconds: bool,
}

/// Ethernet, whole packets, nanoseconds.
impl Default for PcapFormat {
    fn default() -> Self {
        Self { link_type: LinkType::ETHERNET, snaplen: SNAPLEN, nanoseconds: true }
    }
}

impl PcapFormat {
    /// Length of the file header, which precedes the first packet.
    pub const HEADER_LEN: usize = 24;

    /// Writes the file header.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_header(&self, out: &mut impl Write) -> io::Result<()> {
        let mut header = [0; Self::HEADER_LEN];
        let magic = if self.nanoseconds { MAGIC_NS } else { MAGIC_US };
        header[..4].copy_from_slice(&magic.to_le_bytes());
        header[4..8].copy_from_slice(&[2, 0, 4, 0]);
        header[16..20].copy_from_slice(&self.snaplen.to_le_bytes());
        header[20..22].copy_from_slice(&self.link_type.0.to_le_bytes());
        out.write_all(&header)
    }

    /// Octets that [`write_packet`](Self::write_packet) writes for a packet with `captured` octets
    /// of data.
    #[inline]
    pub fn packet_len(&self, captured: usize) -> usize {
        16 + captured.min(self.snaplen as usize)
    }

    /// Writes the record of a packet with `wire_len` octets on the wire (without FCS), of which
    /// `data` were captured.
    ///
    /// # Errors
    /// The errors of `out`; a time after the year 2106, which the format cannot hold; `wire_len`
    /// below the length of `data`. In the last two cases nothing is written.
    #[inline]
    pub fn write_packet(
        &self,
        out: &mut impl Write,
        time_ns: u64,
        wire_len: u32,
        data: &[u8],
    ) -> io::Result<()> {
        let data = kept(data, wire_len, self.snaplen)?;
        if u32::try_from(time_ns / 1_000_000_000).is_err() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a pcap file cannot have times after 2106; try pcapng",
            ));
        }
        out.write_all(&self.record_header(time_ns, wire_len, data.len()))?;
        out.write_all(data)
    }

    /// Writes the same as [`write_packet`](Self::write_packet) into `out`, which has exactly the
    /// length of the record. Times after the year 2106 start again at 1970.
    ///
    /// # Panics
    /// If `out` has another length than 16 octets and those of `data`.
    #[inline]
    pub fn place_packet(&self, out: &mut [u8], time_ns: u64, wire_len: u32, data: &[u8]) {
        let (header, rest) =
            out.split_first_chunk_mut().expect("there is room for a record's header");
        *header = self.record_header(time_ns, wire_len, data.len());
        rest.copy_from_slice(data);
    }

    #[inline]
    fn record_header(&self, time_ns: u64, wire_len: u32, captured: usize) -> [u8; 16] {
        let (seconds, ns) = (time_ns / 1_000_000_000, (time_ns % 1_000_000_000) as u32);
        let fraction = if self.nanoseconds { ns } else { ns / 1_000 };
        let mut header = [0; 16];
        put(&mut header, [seconds as u32, fraction, captured as u32, wire_len]);
        header
    }
}

/// Writes a little-endian pcap file. Call [`finish`](Self::finish) at the end: a drop cannot report
/// write errors.
#[derive(Debug)]
pub struct PcapWriter<W: Write = File> {
    write: BufWriter<W>,
    format: PcapFormat,
}

impl PcapWriter {
    pub fn create(path: impl AsRef<Path>, format: PcapFormat) -> io::Result<Self> {
        Self::new(File::create(path)?, format)
    }
}

impl<W: Write> PcapWriter<W> {
    /// Creates the writer, which buffers its output, so `write` needs no buffer.
    pub fn new(write: W, format: PcapFormat) -> io::Result<Self> {
        let mut write = BufWriter::with_capacity(BUFFER, write);
        format.write_header(&mut write)?;
        Ok(Self { write, format })
    }

    /// Writes a packet with `wire_len` octets on the wire (without FCS), of which `data` were
    /// captured.
    ///
    /// # Errors
    /// The errors of the file; a time after the year 2106, which the format cannot hold; `wire_len`
    /// below the length of `data`.
    #[inline]
    pub fn write(&mut self, time_ns: u64, wire_len: u32, data: &[u8]) -> io::Result<()> {
        self.format.write_packet(&mut self.write, time_ns, wire_len, data)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }

    /// Flushes the buffer and returns the file.
    pub fn finish(self) -> io::Result<W> {
        self.write.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

/// Machine and program that made a pcapng section. Text is truncated to 65,535 octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// "AMD EPYC 9B45": shb_hardware.
    pub hardware: Option<String>,
    /// "Linux 6.18": shb_os.
    pub os: Option<String>,
    /// "squall 0.1.0": shb_userappl.
    pub application: Option<String>,
    pub comment: Option<String>,
}

impl Default for Section {
    fn default() -> Self {
        Self { hardware: None, os: None, application: Some("squall".into()), comment: None }
    }
}

impl Section {
    /// A section without any description, as a reader has it before the header.
    pub(crate) fn nothing() -> Self {
        Self { hardware: None, os: None, application: None, comment: None }
    }

    /// Writes the section header, which precedes the interface descriptions.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_header(&self, out: &mut impl Write) -> io::Result<()> {
        let mut body = BYTE_ORDER.to_le_bytes().to_vec();
        body.extend([1, 0, 0, 0]); // version 1.0
        body.extend([0xff; 8]); // the section's length is not known
        let texts =
            [(COMMENT, &self.comment), (2, &self.hardware), (3, &self.os), (4, &self.application)];
        text_options(&mut body, &texts);
        end_options(&mut body, 16);
        block(out, SECTION_HEADER, &body)
    }
}

/// Description of an interface in a pcapng file. Text is truncated to 65,535 octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFormat {
    pub name: Option<String>,
    pub description: Option<String>,
    /// The capture filter, as a tcpdump expression.
    pub filter: Option<String>,
    /// The operating system of the machine with the interface.
    pub os: Option<String>,
    /// The driver or the network card.
    pub hardware: Option<String>,
    pub comment: Option<String>,
    pub mac: Option<[u8; 6]>,
    pub speed_bps: Option<u64>,
    pub link_type: LinkType,
    /// Maximum octets kept per packet; 0: all, as in the file format.
    pub snaplen: u32,
}

/// Ethernet, whole packets, no name.
impl Default for InterfaceFormat {
    fn default() -> Self {
        Self {
            name: None,
            description: None,
            filter: None,
            os: None,
            hardware: None,
            comment: None,
            mac: None,
            speed_bps: None,
            link_type: LinkType::ETHERNET,
            snaplen: SNAPLEN,
        }
    }
}

impl InterfaceFormat {
    /// Writes the description. The first one in a section is interface 0. Timestamps of its packets
    /// are in nanoseconds.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_description(&self, out: &mut impl Write) -> io::Result<()> {
        let mut body = self.link_type.0.to_le_bytes().to_vec();
        body.extend([0; 2]);
        body.extend(self.snaplen.to_le_bytes());
        let texts = [(COMMENT, &self.comment), (2, &self.name), (3, &self.description)];
        text_options(&mut body, &texts);
        if let Some(mac) = self.mac {
            option(&mut body, 6, &mac); // if_MACaddr
        }
        if let Some(speed) = self.speed_bps {
            option(&mut body, 8, &speed.to_le_bytes()); // if_speed
        }
        option(&mut body, 9, &[9]); // if_tsresol: 10^-9 s
        if let Some(filter) = &self.filter {
            // if_filter: a leading 0 means that text follows.
            option(&mut body, 11, &[&[0], filter.as_bytes()].concat());
        }
        text_options(&mut body, &[(12, &self.os), (15, &self.hardware)]);
        end_options(&mut body, 8);
        block(out, INTERFACE_DESCRIPTION, &body)
    }

    /// Octets that [`write_packet`](Self::write_packet) writes for a packet with `captured` octets
    /// of data.
    #[inline]
    pub fn packet_len(&self, captured: usize, notes: &PacketNotes<'_>) -> usize {
        32 + self.kept_len(captured).next_multiple_of(4) + notes.len()
    }

    /// Writes the block of a packet with `wire_len` octets on the wire (without FCS), of which
    /// `data` were captured. `index` is the number of this interface in its section.
    ///
    /// # Errors
    /// The errors of `out`; `wire_len` below the length of `data`, in which case nothing is
    /// written.
    #[inline]
    pub fn write_packet(
        &self,
        out: &mut impl Write,
        index: u32,
        time_ns: u64,
        wire_len: u32,
        data: &[u8],
        notes: &PacketNotes<'_>,
    ) -> io::Result<()> {
        let data = kept(data, wire_len, self.kept_len(data.len()) as u32)?;
        let padding = data.len().next_multiple_of(4) - data.len();
        let len = (32 + data.len() + padding + notes.len()) as u32;
        out.write_all(&block_header(len, index, time_ns, data.len(), wire_len))?;
        out.write_all(data)?;
        if !notes.is_empty() {
            out.write_all(&[0; 3][..padding])?;
            notes.write(out)?;
            return out.write_all(&len.to_le_bytes());
        }
        let mut tail = [0; 7];
        tail[padding..padding + 4].copy_from_slice(&len.to_le_bytes());
        out.write_all(&tail[..padding + 4])
    }

    /// Writes the same as [`write_packet`](Self::write_packet) without notes into `out`, which has
    /// exactly the length of the block.
    ///
    /// # Panics
    /// If `out` has another length than 32 octets and those of `data`, padded to a multiple of 4.
    #[inline]
    pub fn place_packet(out: &mut [u8], index: u32, time_ns: u64, wire_len: u32, data: &[u8]) {
        let len = out.len();
        let (header, rest) =
            out.split_first_chunk_mut().expect("there is room for a packet block's header");
        assert_eq!(rest.len(), data.len().next_multiple_of(4) + 4, "the block was measured");
        *header = block_header(len as u32, index, time_ns, data.len(), wire_len);
        // Padding and length have a fixed place at the end; the packet overwrites all but the
        // padding. So only the packet itself is a copy of variable length.
        let end = (len as u64) << 32;
        match rest.last_chunk_mut() {
            Some(last) => *last = end.to_le_bytes(),
            None => rest.copy_from_slice(&(len as u32).to_le_bytes()),
        }
        rest[..data.len()].copy_from_slice(data);
    }

    /// Writes a simple packet block, which has no timestamp: a whole packet of the section's first
    /// interface, which must have no snap length.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_simple_packet(out: &mut impl Write, data: &[u8]) -> io::Result<()> {
        let mut body = (data.len() as u32).to_le_bytes().to_vec();
        body.extend_from_slice(data);
        body.resize(body.len().next_multiple_of(4), 0);
        block(out, SIMPLE_PACKET, &body)
    }

    #[inline]
    fn kept_len(&self, captured: usize) -> usize {
        if self.snaplen == 0 { captured } else { captured.min(self.snaplen as usize) }
    }
}

/// Direction of a packet, as seen from the capturing interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Inbound,
    Outbound,
}

/// Options of a pcapng packet block. If there are none, the block has its minimum length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketNotes<'a> {
    /// epb_flags.
    pub direction: Option<Direction>,
    /// Packets that the interface lost since the preceding packet, or since the start:
    /// epb_dropcount, written unless 0.
    pub dropped: u64,
    /// Comment, truncated to 65,535 octets.
    pub comment: Option<&'a str>,
}

impl PacketNotes<'_> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.direction.is_none() && self.dropped == 0 && self.comment.is_none()
    }

    /// Length of the options, including opt_endofopt.
    #[inline]
    fn len(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let comment =
            self.comment.map_or(0, |text| 4 + text.len().min(MAX_TEXT).next_multiple_of(4));
        4 + comment
            + if self.direction.is_some() { 8 } else { 0 }
            + if self.dropped > 0 { 12 } else { 0 }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(text) = self.comment {
            let mut body = Vec::new();
            option(&mut body, COMMENT, text.as_bytes());
            out.write_all(&body)?;
        }
        // Written in one call and without allocation: nearly every packet of a capture has the
        // first option.
        let (mut options, mut len) = ([0; 24], 0);
        if let Some(direction) = self.direction {
            let flags = if direction == Direction::Inbound { 1 } else { 2 };
            options[..8].copy_from_slice(&[2, 0, 4, 0, flags, 0, 0, 0]);
            len = 8;
        }
        if self.dropped > 0 {
            options[len..len + 4].copy_from_slice(&[4, 0, 8, 0]);
            options[len + 4..len + 12].copy_from_slice(&self.dropped.to_le_bytes());
            len += 12;
        }
        // The last 4 octets are opt_endofopt.
        out.write_all(&options[..len + 4])
    }
}

/// Counters of an interface, written at the end of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Start and end of the capture, in nanoseconds since 1970: isb_starttime, isb_endtime.
    pub start_ns: Option<u64>,
    pub end_ns: Option<u64>,
    /// Packets received, including lost ones: isb_ifrecv.
    pub received: Option<u64>,
    /// Packets dropped by the interface: isb_ifdrop.
    pub dropped_by_interface: Option<u64>,
    /// Packets accepted by the filter, including lost ones: isb_filteraccept.
    pub accepted: Option<u64>,
    /// Packets dropped by the operating system: isb_osdrop.
    pub dropped_by_system: Option<u64>,
    /// Packets that reached the program: isb_usrdeliv. If the file has fewer, the program lost the
    /// others.
    pub delivered: Option<u64>,
}

impl Statistics {
    /// Maximum octets that [`write_block`](Self::write_block) writes.
    pub const MAX_LEN: usize = 24 + 7 * 12 + 4;

    /// Writes the counters of interface `index`, with the timestamp `time_ns`.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_block(&self, out: &mut impl Write, index: u32, time_ns: u64) -> io::Result<()> {
        let mut body = vec![0; 12];
        put(&mut body, [index, (time_ns >> 32) as u32, time_ns as u32]);
        for (code, time) in [(2, self.start_ns), (3, self.end_ns)] {
            if let Some(time) = time {
                // In either byte order, a time starts with its high half, unlike a counter.
                option(&mut body, code, &time.rotate_left(32).to_le_bytes());
            }
        }
        let counts = [
            (4, self.received),
            (5, self.dropped_by_interface),
            (6, self.accepted),
            (7, self.dropped_by_system),
            (8, self.delivered),
        ];
        for (code, count) in counts {
            if let Some(count) = count {
                option(&mut body, code, &count.to_le_bytes());
            }
        }
        end_options(&mut body, 12);
        block(out, INTERFACE_STATISTICS, &body)
    }
}

/// Writes a little-endian pcapng file with one section and nanosecond timestamps. Call
/// [`finish`](Self::finish) at the end, as for a pcap file.
///
/// ```
/// use squall_pcap::{InterfaceFormat, PcapngWriter, Statistics};
///
/// let eth1 = InterfaceFormat { name: Some("eth1".into()), ..InterfaceFormat::default() };
/// let mut writer = PcapngWriter::new(Vec::new(), vec![eth1])?;
/// writer.write(0, 1_700_000_000_000_000_001, 1514, &[0xff; 60])?;
/// writer.statistics(0, 1_700_000_001_000_000_000, Statistics { received: Some(2), ..Default::default() })?;
/// let file = writer.finish()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PcapngWriter<W: Write = File> {
    write: BufWriter<W>,
    interfaces: Vec<InterfaceFormat>,
}

impl PcapngWriter {
    pub fn create(path: impl AsRef<Path>, interfaces: Vec<InterfaceFormat>) -> io::Result<Self> {
        Self::new(File::create(path)?, interfaces)
    }
}

impl<W: Write> PcapngWriter<W> {
    /// Creates the writer, which buffers its output, so `write` needs no buffer. Packets refer to
    /// their interface by its index in `interfaces`.
    pub fn new(write: W, interfaces: Vec<InterfaceFormat>) -> io::Result<Self> {
        Self::with_section(write, &Section::default(), interfaces)
    }

    /// Like [`new`](Self::new), with a description of machine and program.
    pub fn with_section(
        write: W,
        section: &Section,
        interfaces: Vec<InterfaceFormat>,
    ) -> io::Result<Self> {
        let mut write = BufWriter::with_capacity(BUFFER, write);
        section.write_header(&mut write)?;
        for interface in &interfaces {
            interface.write_description(&mut write)?;
        }
        Ok(Self { write, interfaces })
    }

    /// Writes a packet of `interface` with `wire_len` octets on the wire (without FCS), of which
    /// `data` were captured.
    ///
    /// # Errors
    /// The errors of the file; an unknown interface; `wire_len` below the length of `data`.
    #[inline]
    pub fn write(
        &mut self,
        interface: u32,
        time_ns: u64,
        wire_len: u32,
        data: &[u8],
    ) -> io::Result<()> {
        self.write_with(interface, time_ns, wire_len, data, &PacketNotes::default())
    }

    /// Like [`write`](Self::write), with options.
    #[inline]
    pub fn write_with(
        &mut self,
        interface: u32,
        time_ns: u64,
        wire_len: u32,
        data: &[u8],
        notes: &PacketNotes<'_>,
    ) -> io::Result<()> {
        let format = known(&self.interfaces, interface)?;
        format.write_packet(&mut self.write, interface, time_ns, wire_len, data, notes)
    }

    /// Writes the counters of `interface`, with the timestamp `time_ns`. Readers use the last
    /// counters in a file.
    pub fn statistics(
        &mut self,
        interface: u32,
        time_ns: u64,
        statistics: Statistics,
    ) -> io::Result<()> {
        known(&self.interfaces, interface)?;
        statistics.write_block(&mut self.write, interface, time_ns)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }

    /// Flushes the buffer and returns the file.
    pub fn finish(self) -> io::Result<W> {
        self.write.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

/// The part of an enhanced packet block before the packet.
#[inline]
fn block_header(len: u32, index: u32, time_ns: u64, captured: usize, wire_len: u32) -> [u8; 28] {
    let mut header = [0; 28];
    let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
    put(&mut header, [ENHANCED_PACKET, len, index, high, low, captured as u32, wire_len]);
    header
}

#[inline]
fn known(interfaces: &[InterfaceFormat], index: u32) -> io::Result<&InterfaceFormat> {
    interfaces.get(index as usize).ok_or_else(|| {
        let known = interfaces.len();
        Error::new(
            ErrorKind::InvalidInput,
            format!("no interface {index}: the capture has {known}, numbered from 0"),
        )
    })
}

/// The part of a packet that is written: at most `snaplen` octets.
#[inline]
fn kept(data: &[u8], wire_len: u32, snaplen: u32) -> io::Result<&[u8]> {
    if data.len() as u64 > u64::from(wire_len) {
        let message = format!("a packet of {wire_len} octets with {} captured octets", data.len());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(&data[..data.len().min(snaplen as usize)])
}

fn put<const N: usize>(octets: &mut [u8], numbers: [u32; N]) {
    for (place, number) in octets.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        *place = number.to_le_bytes();
    }
}

/// opt_comment, which any block can have.
const COMMENT: u16 = 1;
/// Maximum length of an option, whose length field has 16 bits. Longer text is truncated, not
/// refused.
const MAX_TEXT: usize = u16::MAX as usize;

fn text_options(body: &mut Vec<u8>, texts: &[(u16, &Option<String>)]) {
    for (code, text) in texts {
        if let Some(text) = text {
            option(body, *code, text.as_bytes());
        }
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(MAX_TEXT)];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Writes opt_endofopt if `body` has options after its `fixed` octets.
fn end_options(body: &mut Vec<u8>, fixed: usize) {
    if body.len() > fixed {
        body.extend([0; 4]);
    }
}

/// Writes a block. `body` must already be padded.
fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let len = (body.len() as u32 + 12).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&len)?;
    out.write_all(body)?;
    out.write_all(&len)
}
