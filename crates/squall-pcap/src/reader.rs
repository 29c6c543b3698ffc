//! The front of both formats.

use std::{fs::File, io::Read, ops::Range, path::Path};

use crate::{CaptureError, Fault, LinkType, Packet, input::Input, pcap::Pcap, pcapng::Pcapng};

/// A packet may always be that long (libpcap's MAXIMUM_SNAPLEN), whatever snap length the file says ...
const MAX_LEN: u32 = 256 << 10;
/// ... and never longer than this.
const MAX_LEN_EVER: u32 = 16 << 20;

/// Reads pcap (microseconds, nanoseconds, modified; either endian; versions 2.0 to 2.4) and pcapng (all packet blocks,
/// several interfaces and sections) from a file or a pipe.
pub struct CaptureReader<R = File> {
    input: Input<R>,
    format: Format,
    interfaces: Vec<Interface>,
    packets: u64,
    path: Option<Box<Path>>,
    ended: bool,
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// What a capture says about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub link_type: LinkType,
    /// Octets of a packet that were kept at most; 0 is no limit.
    pub snaplen: u32,
    pub name: Option<String>,
    /// Packets that the interface received, as last counted in the file (pcapng).
    pub received: Option<u64>,
    /// Packets lost in the interface and in the operating system, likewise.
    pub dropped_by_interface: Option<u64>,
    pub dropped_by_system: Option<u64>,
}

impl Default for Interface {
    fn default() -> Self {
        Self {
            link_type: LinkType::ETHERNET,
            snaplen: 0,
            name: None,
            received: None,
            dropped_by_interface: None,
            dropped_by_system: None,
        }
    }
}

impl CaptureReader {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let in_file = |offset, fault| CaptureError { path: Some(path.into()), offset, fault };
        let file = File::open(path).map_err(|error| in_file(0, Fault::Open(error)))?;
        let mut reader = Self::from_read(file).map_err(|error| in_file(error.offset, error.fault))?;
        reader.path = Some(path.into());
        Ok(reader)
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads from a pipe, or from memory. Needs no buffering around it.
    pub fn from_read(read: R) -> Result<Self, CaptureError> {
        let mut input = Input::new(read);
        match begin(&mut input) {
            Ok((format, interfaces)) => Ok(Self { input, format, interfaces, packets: 0, path: None, ended: false }),
            Err(fault) => Err(CaptureError { path: None, offset: input.record(), fault }),
        }
    }

    /// The next packet; `None` at the end, and after an error.
    #[expect(clippy::should_implement_trait, reason = "an Iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        if self.ended {
            return Ok(None);
        }
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.input),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.input, &mut self.interfaces),
        };
        match record {
            Ok(Some(Record { time_ns, wire_len, link_type, interface, data })) => {
                self.packets += 1;
                let data = self.input.window(data);
                Ok(Some(Packet { time_ns, wire_len, link_type, interface, number: self.packets, data }))
            }
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(fault) => {
                self.ended = true;
                Err(self.error(fault))
            }
        }
    }

    /// Those described so far; a pcap has one.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Packets given so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Octets of the file that were taken so far.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    pub(crate) fn error(&self, fault: Fault) -> CaptureError {
        CaptureError { path: self.path.as_deref().map(Into::into), offset: self.input.record(), fault }
    }
}

impl<R> std::fmt::Debug for CaptureReader<R> {
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

fn begin<R: Read>(input: &mut Input<R>) -> Result<(Format, Vec<Interface>), Fault> {
    if input.at_end()? {
        return Err(Fault::Empty);
    }
    input.need(4, "the magic number")?;
    if let Some((pcap, interface)) = Pcap::begin(input)? {
        return Ok((Format::Pcap(pcap), vec![interface]));
    }
    if let Some(pcapng) = Pcapng::begin(input)? {
        return Ok((Format::Pcapng(pcapng), Vec::new()));
    }
    let found: [u8; 4] = std::array::from_fn(|i| input.peek()[i]);
    Err(match found {
        [0x1f, 0x8b, ..] => Fault::Compressed { by: "gzip", tool: "gunzip" },
        [0x28, 0xb5, 0x2f, 0xfd] => Fault::Compressed { by: "zstd", tool: "unzstd" },
        [0xfd, b'7', b'z', b'X'] => Fault::Compressed { by: "xz", tool: "unxz" },
        [0x04, 0x22, 0x4d, 0x18] => Fault::Compressed { by: "lz4", tool: "unlz4" },
        [b'B', b'Z', b'h', _] => Fault::Compressed { by: "bzip2", tool: "bunzip2" },
        found => Fault::NotACapture { found },
    })
}

/// A packet whose octets are in the input's window.
pub struct Record {
    pub time_ns: u64,
    pub wire_len: u32,
    pub link_type: LinkType,
    pub interface: u32,
    pub data: Range<usize>,
}

/// How long a packet may be claimed to be: by the snap length, but files exist with more than they say.
#[inline]
pub fn limit(snaplen: u32) -> u32 {
    snaplen.clamp(MAX_LEN, MAX_LEN_EVER)
}

/// Cuts off an FCS of `fcs_len` octets, as much of it as was captured.
#[inline]
pub fn without_fcs(mut record: Record, fcs_len: u32) -> Record {
    record.wire_len = record.wire_len.saturating_sub(fcs_len);
    record.data.end = record.data.end.min(record.data.start + record.wire_len as usize);
    record
}
