//! Reads pcap and pcapng.

use std::{fs::File, io::Read, ops::Range, path::Path};

use crate::{
    Batch, CaptureError, Compression, Fault, LinkType, Packet, PacketOptions, Section,
    batch::{BatchRecord, MAX_BATCH},
    input::{Endian, Input},
    pcap::{Pcap, is_file_header},
    pcapng::{Pcapng, is_section_header},
    unpack::Source,
};

/// Maximum packet length that is always accepted (libpcap's MAXIMUM_SNAPLEN), whatever the snap
/// length in the file.
const MAX_LEN: u32 = 256 << 10;
/// Maximum packet length, even if the snap length in the file is larger.
pub const MAX_LEN_EVER: u32 = 16 << 20;

/// Search distance of [`CaptureReader::recover`], which finds no packet longer than this.
pub const REACH: usize = 1 << 20;

/// Reads pcap (microseconds, nanoseconds, modified, lcap; either byte order; versions 2.0 to 2.4)
/// and pcapng (all packet blocks, several interfaces and sections) from a file or a pipe. The input
/// may be compressed with gzip, zstd, lz4, xz or bzip2, even several times. All offsets refer to
/// the decompressed data.
///
/// After an error, [`next`](Self::next) returns nothing unless [`recover`](Self::recover) is
/// called:
///
/// ```
/// # use squall_pcap::{CaptureReader, PcapFormat, PcapWriter};
/// # let mut writer = PcapWriter::new(Vec::new(), PcapFormat::default())?;
/// # for _ in 0..9 { writer.write(1_700_000_000_000_000_001, 60, &[0xff; 60])?; }
/// # let mut file = writer.finish()?;
/// file.splice(100..100, *b"what does not belong here"); // inside the first packet
/// let mut reader = CaptureReader::from_read(file.as_slice())?;
/// let (mut packets, mut lost) = (0, 0);
/// loop {
///     match reader.next() {
///         Ok(Some(_)) => packets += 1,
///         Ok(None) => break,
///         Err(error) => {
///             eprintln!("{error}");
///             lost += reader.recover().octets;
///         }
///     }
/// }
/// assert_eq!((packets, lost), (9, 25));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CaptureReader<R: Read = File> {
    input: Input<Source<R>>,
    compression: Option<Compression>,
    format: Format,
    interfaces: Vec<Interface>,
    packets: u64,
    /// Time of the last packet that has a timestamp.
    time_ns: u64,
    path: Option<Box<Path>>,
    ended: bool,
    /// The error that ended reading; `None` after recovery.
    fault: Option<Broken>,
    /// The input was read to the end.
    all_read: bool,
    batch: Vec<BatchRecord>,
}

enum Broken {
    /// Invalid data at the start of the input; more data may follow.
    Data,
    /// A read error, after which nothing can be read.
    Disk,
}

/// The part that [`CaptureReader::recover`] skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Offset of the error.
    pub from: u64,
    /// Number of octets skipped, up to the offset where reading continues or to the end.
    pub octets: u64,
    /// Whether there is readable data after the skipped part.
    pub found: bool,
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Format {
    /// Whether `octets` begin with another file, which does not continue this one.
    fn begins_another(&self, octets: &[u8]) -> bool {
        match self {
            Self::Pcap(_) => is_file_header(octets) || is_section_header(octets),
            Self::Pcapng(_) => is_file_header(octets),
        }
    }

    /// Offset in `octets`, which begin with an error, at which to start the search for packets.
    fn after_fault(&self, octets: &[u8]) -> usize {
        match self {
            _ if self.begins_another(octets) => 0,
            // A complete block is skipped as a whole, even if its content is invalid.
            Self::Pcapng(pcapng) => pcapng.whole_block(octets).unwrap_or(1),
            Self::Pcap(_) => 1,
        }
    }
}

/// Description of an interface in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub link_type: LinkType,
    /// Maximum captured octets of a packet; 0: no limit.
    pub snaplen: u32,
    /// Resolution of the timestamps.
    pub resolution: Resolution,
    pub name: Option<String>,
    pub description: Option<String>,
    /// The capture filter, as a tcpdump expression.
    pub filter: Option<String>,
    pub os: Option<String>,
    pub hardware: Option<String>,
    pub comment: Option<String>,
    pub mac: Option<[u8; 6]>,
    pub speed_bps: Option<u64>,
    /// Start and end of the capture, from the file's last statistics (pcapng).
    pub start_ns: Option<u64>,
    pub end_ns: Option<u64>,
    /// Packets received by the interface, accepted by its filter, and delivered to the program,
    /// from the file's last statistics (pcapng).
    pub received: Option<u64>,
    pub accepted: Option<u64>,
    pub delivered: Option<u64>,
    /// Packets dropped by the interface and by the operating system, from the same statistics.
    pub dropped_by_interface: Option<u64>,
    pub dropped_by_system: Option<u64>,
}

/// Encoded as in pcapng's `if_tsresol`: 10^-n s, or 2^-n s if the highest bit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution(pub u8);

impl std::fmt::Display for Resolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("seconds"),
            3 => f.write_str("milliseconds"),
            6 => f.write_str("microseconds"),
            9 => f.write_str("nanoseconds"),
            n if n < 0x80 => write!(f, "10^-{n} s"),
            n => write!(f, "2^-{} s", n & 0x7f),
        }
    }
}

impl Default for Interface {
    fn default() -> Self {
        Self {
            link_type: LinkType::ETHERNET,
            snaplen: 0,
            resolution: Resolution(6),
            name: None,
            description: None,
            filter: None,
            os: None,
            hardware: None,
            comment: None,
            mac: None,
            speed_bps: None,
            start_ns: None,
            end_ns: None,
            received: None,
            accepted: None,
            delivered: None,
            dropped_by_interface: None,
            dropped_by_system: None,
        }
    }
}

impl CaptureReader {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let in_file = |error: CaptureError| CaptureError { path: Some(path.into()), ..error };
        let file =
            File::open(path).map_err(|error| in_file(CaptureError::new(Fault::Open(error))))?;
        let mut reader = Self::from_read(file).map_err(in_file)?;
        reader.path = Some(path.into());
        Ok(reader)
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads from a pipe or from memory. The reader buffers its input, so `read` needs no buffer.
    pub fn from_read(read: R) -> Result<Self, CaptureError> {
        let source = Source::new(read).map_err(|error| CaptureError::new(Fault::read(error)))?;
        let compression = source.compression();
        let mut input = Input::new(source);
        match begin(&mut input, 0) {
            Ok((format, interface)) => Ok(Self {
                input,
                compression,
                format,
                interfaces: interface.into_iter().collect(),
                packets: 0,
                time_ns: 0,
                path: None,
                ended: false,
                fault: None,
                all_read: false,
                batch: Vec::with_capacity(MAX_BATCH),
            }),
            Err(fault) => {
                let error = CaptureError::new(fault.of_the_data());
                Err(CaptureError { offset: input.record(), compression, ..error })
            }
        }
    }

    /// Returns the next packet; `None` at the end of the file and after an error.
    #[expect(clippy::should_implement_trait, reason = "an Iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        if self.ended {
            return Ok(None);
        }
        let (record, endian) = match &mut self.format {
            Format::Pcap(pcap) => (pcap.next(&mut self.input), Endian::Little),
            Format::Pcapng(pcapng) => {
                (pcapng.next(&mut self.input, &mut self.interfaces), pcapng.endian())
            }
        };
        match record {
            Ok(Some(Record {
                time_ns,
                timed,
                wire_len,
                link_type,
                interface,
                data,
                options,
                dropped,
            })) => {
                self.packets += 1;
                let time_ns = if timed { time_ns } else { self.time_ns };
                self.time_ns = time_ns;
                let data = self.input.window(data);
                let options = PacketOptions { endian, octets: self.input.window(options), dropped };
                let number = self.packets;
                Ok(Some(Packet {
                    time_ns,
                    timed,
                    wire_len,
                    link_type,
                    interface,
                    number,
                    data,
                    options,
                }))
            }
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(fault) => Err(self.end_with(fault)),
        }
    }

    /// Returns the next packets, at most [`MAX_BATCH`]; none at the end of the file and after an
    /// error. Has the same result as [`next`](Self::next) at a fraction of its cost; the two may be
    /// mixed.
    ///
    /// # Errors
    /// An error with no packet before it.
    pub fn next_batch(&mut self) -> Result<Batch<'_>, CaptureError> {
        self.batch.clear();
        let (mut options, mut dropped, mut endian, mut timed) = (0..0, None, Endian::Little, true);
        if !self.ended {
            let (octets, at) = (self.input.peek(), self.input.window_at());
            let taken = match &self.format {
                Format::Pcap(pcap) => pcap.batch(octets, at, MAX_BATCH, &mut self.batch),
                Format::Pcapng(pcapng) => {
                    pcapng.batch(octets, at, MAX_BATCH, &self.interfaces, &mut self.batch)
                }
            };
            self.input.take(taken);
        }
        if self.batch.is_empty() && !self.ended {
            // A special case, or a packet that is not completely read yet.
            let record = match &mut self.format {
                Format::Pcap(pcap) => pcap.next(&mut self.input),
                Format::Pcapng(pcapng) => {
                    endian = pcapng.endian();
                    pcapng.next(&mut self.input, &mut self.interfaces)
                }
            };
            match record {
                Ok(Some(record)) => {
                    (options, dropped, timed) = (record.options, record.dropped, record.timed);
                    self.batch.push(BatchRecord {
                        time_ns: if timed { record.time_ns } else { self.time_ns },
                        data: record.data.start as u32..record.data.end as u32,
                        wire_len: record.wire_len,
                        interface: record.interface,
                        link_type: record.link_type,
                    });
                }
                Ok(None) => self.ended = true,
                Err(fault) => return Err(self.end_with(fault)),
            }
        }
        let first = self.packets + 1;
        self.packets += self.batch.len() as u64;
        self.time_ns = self.batch.last().map_or(self.time_ns, |record| record.time_ns);
        let window = self.input.window(0..self.input.window_len());
        Ok(Batch {
            window,
            records: &self.batch,
            first,
            endian,
            options: &window[options],
            dropped,
            timed,
        })
    }

    #[cold]
    fn end_with(&mut self, fault: Fault) -> CaptureError {
        self.ended = true;
        let fault = fault.of_the_data();
        if fault.is_of_the_disk() {
            self.fault = Some(Broken::Disk);
            return self.error(fault);
        }
        self.fault = Some(Broken::Data);
        // The header of an appended file may look like any error, so check for it first.
        let appended = self.format.begins_another(self.input.peek());
        self.error(if appended { Fault::Appended } else { fault })
    }

    /// Recovers from an error: skips to the next readable packets, which [`next`](Self::next) then
    /// returns.
    ///
    /// Data counts as readable if it is a complete pcapng block of a known type with equal lengths
    /// at both ends; several consecutive pcap records with plausible lengths, less than a year
    /// apart; or the start of another file. A capture inside captured traffic may be mistaken for
    /// one of these.
    ///
    /// Takes time in proportion to the skipped data, and at most 2 MiB of memory. Finds nothing
    /// after a read error or an error in compressed data.
    pub fn recover(&mut self) -> Skipped {
        let from = self.input.offset();
        let found = match self.fault.take() {
            Some(Broken::Data) => self.find(),
            Some(Broken::Disk) | None => false,
        };
        self.ended = !found;
        Skipped { from, octets: self.input.offset() - from, found }
    }

    /// Skips to readable data, or to the end.
    fn find(&mut self) -> bool {
        let mut start = None;
        loop {
            // Search the octets in the window before reading more, because reading moves them.
            if self.input.peek().len() <= REACH && !self.all_read {
                // An error here is the end of the file, or a read error that the next packet will
                // report.
                self.all_read = self.input.need(2 * REACH, "").is_err();
            }
            let octets = self.input.peek();
            let end = if self.all_read { octets.len() } else { octets.len() - REACH };
            let from = *start.get_or_insert_with(|| self.format.after_fault(octets).min(end));
            if let Some(at) = (from..end).find(|&at| self.begins(&octets[at..])) {
                self.input.take(at);
                return self.begin_file();
            }
            self.input.take(end);
            if self.all_read {
                return false;
            }
            start = Some(0);
        }
    }

    fn begins(&self, octets: &[u8]) -> bool {
        self.format.begins_another(octets)
            || match &self.format {
                Format::Pcap(pcap) => pcap.begins(octets, self.all_read),
                Format::Pcapng(pcapng) => pcapng.begins(octets, &self.interfaces),
            }
    }

    /// Continues with another file if one begins here.
    fn begin_file(&mut self) -> bool {
        if !self.format.begins_another(self.input.peek()) {
            return true;
        }
        match begin(&mut self.input, self.interfaces.len()) {
            Ok((format, interface)) => {
                self.format = format;
                self.interfaces.extend(interface);
                true
            }
            Err(_) => false,
        }
    }

    /// The interfaces described so far; a pcap has one.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Number of packets returned so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Octets of the file consumed so far.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// `pcap` or `pcapng`: the format of the file, or of the appended file that is being read.
    pub fn format(&self) -> &'static str {
        match self.format {
            Format::Pcap(_) => "pcap",
            Format::Pcapng(_) => "pcapng",
        }
    }

    /// The compression format of the file, if any.
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Machine and program that made the current pcapng section.
    pub fn section(&self) -> Option<&Section> {
        match &self.format {
            Format::Pcap(_) => None,
            Format::Pcapng(pcapng) => Some(&pcapng.header),
        }
    }

    pub(crate) fn error(&self, fault: Fault) -> CaptureError {
        CaptureError {
            path: self.path.as_deref().map(Into::into),
            offset: self.input.record(),
            compression: self.compression,
            packets: self.packets,
            fault,
        }
    }
}

impl<R: Read> std::fmt::Debug for CaptureReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, packets, interfaces, ended, .. } = self;
        f.debug_struct("CaptureReader")
            .field("path", path)
            .field("packets", packets)
            .field("interfaces", interfaces)
            .field("ended", ended)
            .finish_non_exhaustive()
    }
}

/// Parses a file header. `known`: number of interfaces in the files before it.
fn begin<R: Read>(
    input: &mut Input<R>,
    known: usize,
) -> Result<(Format, Option<Interface>), Fault> {
    input.begin_record();
    if input.at_end()? {
        return Err(Fault::Empty);
    }
    input.need(4, "the magic number")?;
    if let Some((pcap, interface)) = Pcap::begin(input, known as u32)? {
        return Ok((Format::Pcap(pcap), Some(interface)));
    }
    if let Some(pcapng) = Pcapng::begin(input, known)? {
        return Ok((Format::Pcapng(pcapng), None));
    }
    let found: [u8; 4] = std::array::from_fn(|i| input.peek()[i]);
    Err(Fault::NotACapture { found })
}

/// A packet whose octets are in the input window.
pub struct Record {
    pub time_ns: u64,
    pub timed: bool,
    pub wire_len: u32,
    pub link_type: LinkType,
    pub interface: u32,
    pub data: Range<usize>,
    /// Options of a pcapng block.
    pub options: Range<usize>,
    /// Drop count of an obsolete packet block.
    pub dropped: Option<u16>,
}

/// Maximum packet length. It may exceed the snap length, because such files exist.
#[inline]
pub fn limit(snaplen: u32) -> u32 {
    snaplen.clamp(MAX_LEN, MAX_LEN_EVER)
}

/// Removes the captured part of an FCS that has `fcs_len` octets.
#[inline]
pub fn without_fcs(mut record: Record, fcs_len: u32) -> Record {
    record.wire_len = record.wire_len.saturating_sub(fcs_len);
    record.data.end = record.data.end.min(record.data.start + record.wire_len as usize);
    record
}
