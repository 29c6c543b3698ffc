//! Captures out: both formats buffer, so that a packet costs a copy.

use std::{
    fs::File,
    io::{self, BufWriter, Error, ErrorKind, Write},
    path::Path,
};

use crate::{
    LinkType,
    pcap::{MAGIC_NS, MAGIC_US},
    pcapng::{BYTE_ORDER, ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS, SECTION_HEADER},
};

const BUFFER: usize = 256 << 10;
/// tcpdump's and Wireshark's.
const SNAPLEN: u32 = 262_144;

/// What goes into a pcap's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapFormat {
    pub link_type: LinkType,
    /// Octets of a packet to keep.
    pub snaplen: u32,
    /// Else microseconds, for readers of before 2012.
    pub nanoseconds: bool,
}

/// Ethernet, whole, in nanoseconds.
impl Default for PcapFormat {
    fn default() -> Self {
        Self { link_type: LinkType::ETHERNET, snaplen: SNAPLEN, nanoseconds: true }
    }
}

/// Writes a pcap, little-endian. Call [`finish`](Self::finish): what a drop fails to write, nobody hears of.
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
    /// Needs no buffering around `write`.
    pub fn new(write: W, format: PcapFormat) -> io::Result<Self> {
        let mut write = BufWriter::with_capacity(BUFFER, write);
        let mut header = [0; 24];
        let magic = if format.nanoseconds { MAGIC_NS } else { MAGIC_US };
        header[..4].copy_from_slice(&magic.to_le_bytes());
        header[4..8].copy_from_slice(&[2, 0, 4, 0]);
        header[16..20].copy_from_slice(&format.snaplen.to_le_bytes());
        header[20..22].copy_from_slice(&format.link_type.0.to_le_bytes());
        write.write_all(&header)?;
        Ok(Self { write, format })
    }

    /// Writes a packet that had `wire_len` octets (without FCS), of which `data` are known.
    ///
    /// # Errors
    /// Beside those of the file: a time past the year 2106 does not fit; `wire_len` below the length of `data`.
    #[inline]
    pub fn write(&mut self, time_ns: u64, wire_len: u32, data: &[u8]) -> io::Result<()> {
        let data = kept(data, wire_len, self.format.snaplen)?;
        let (seconds, ns) = (time_ns / 1_000_000_000, (time_ns % 1_000_000_000) as u32);
        let seconds = u32::try_from(seconds)
            .map_err(|_| Error::new(ErrorKind::InvalidInput, "a pcap holds no time past 2106; write pcapng instead"))?;
        let fraction = if self.format.nanoseconds { ns } else { ns / 1_000 };
        let mut header = [0; 16];
        put(&mut header, [seconds, fraction, data.len() as u32, wire_len]);
        self.write.write_all(&header)?;
        self.write.write_all(data)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }

    /// Writes what is buffered, and gives the file back.
    pub fn finish(self) -> io::Result<W> {
        self.write.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

/// What goes into a pcapng's description of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFormat {
    pub name: Option<String>,
    pub link_type: LinkType,
    /// Octets of a packet to keep.
    pub snaplen: u32,
}

/// Ethernet, whole, without a name.
impl Default for InterfaceFormat {
    fn default() -> Self {
        Self { name: None, link_type: LinkType::ETHERNET, snaplen: SNAPLEN }
    }
}

/// What an interface counted, for the end of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that came, lost ones included.
    pub received: Option<u64>,
    /// Packets lost in the interface: isb_ifdrop.
    pub dropped_by_interface: Option<u64>,
    /// Packets lost in the operating system: isb_osdrop.
    pub dropped_by_system: Option<u64>,
}

/// Writes a pcapng of one section, little-endian, in nanoseconds. Call [`finish`](Self::finish), as for a pcap.
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
    /// Needs no buffering around `write`. Packets name their interface by its index.
    pub fn new(write: W, interfaces: Vec<InterfaceFormat>) -> io::Result<Self> {
        let mut write = BufWriter::with_capacity(BUFFER, write);
        let mut section = BYTE_ORDER.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]); // version 1.0
        section.extend([0xff; 8]); // the section's length is not known
        option(&mut section, 4, b"squall"); // shb_userappl
        section.extend([0; 4]);
        block(&mut write, SECTION_HEADER, &section)?;
        for interface in &interfaces {
            let mut description = interface.link_type.0.to_le_bytes().to_vec();
            description.extend([0; 2]);
            description.extend(interface.snaplen.to_le_bytes());
            if let Some(name) = &interface.name {
                option(&mut description, 2, name.as_bytes()); // if_name
            }
            option(&mut description, 9, &[9]); // if_tsresol: 10^-9 s
            description.extend([0; 4]);
            block(&mut write, INTERFACE_DESCRIPTION, &description)?;
        }
        Ok(Self { write, interfaces })
    }

    /// Writes a packet of `interface` that had `wire_len` octets (without FCS), of which `data` are known.
    ///
    /// # Errors
    /// Beside those of the file: an unknown interface; `wire_len` below the length of `data`.
    #[inline]
    pub fn write(&mut self, interface: u32, time_ns: u64, wire_len: u32, data: &[u8]) -> io::Result<()> {
        let data = kept(data, wire_len, self.interface(interface)?.snaplen)?;
        let padding = data.len().next_multiple_of(4) - data.len();
        let len = (32 + data.len() + padding) as u32;
        let mut header = [0; 28];
        let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
        put(&mut header, [ENHANCED_PACKET, len, interface, high, low, data.len() as u32, wire_len]);
        self.write.write_all(&header)?;
        self.write.write_all(data)?;
        let mut tail = [0; 7];
        tail[padding..padding + 4].copy_from_slice(&len.to_le_bytes());
        self.write.write_all(&tail[..padding + 4])
    }

    /// Writes what `interface` had counted at `time_ns`; the last ones in a file count.
    pub fn statistics(&mut self, interface: u32, time_ns: u64, statistics: Statistics) -> io::Result<()> {
        self.interface(interface)?;
        let mut body = vec![0; 12];
        put(&mut body, [interface, (time_ns >> 32) as u32, time_ns as u32]);
        let Statistics { received, dropped_by_interface, dropped_by_system } = statistics;
        for (code, count) in [(4, received), (5, dropped_by_interface), (7, dropped_by_system)] {
            if let Some(count) = count {
                option(&mut body, code, &count.to_le_bytes());
            }
        }
        body.extend([0; 4]);
        block(&mut self.write, INTERFACE_STATISTICS, &body)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }

    /// Writes what is buffered, and gives the file back.
    pub fn finish(self) -> io::Result<W> {
        self.write.into_inner().map_err(io::IntoInnerError::into_error)
    }

    fn interface(&self, index: u32) -> io::Result<&InterfaceFormat> {
        self.interfaces.get(index as usize).ok_or_else(|| {
            let known = self.interfaces.len();
            Error::new(ErrorKind::InvalidInput, format!("interface {index} of a capture that has {known}, from 0"))
        })
    }
}

/// The octets of a packet that go into the file.
#[inline]
fn kept(data: &[u8], wire_len: u32, snaplen: u32) -> io::Result<&[u8]> {
    if data.len() as u64 > u64::from(wire_len) {
        let message = format!("a packet of {wire_len} octets of which {} were captured", data.len());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(&data[..data.len().min(snaplen as usize)])
}

fn put<const N: usize>(octets: &mut [u8], numbers: [u32; N]) {
    for (place, number) in octets.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        *place = number.to_le_bytes();
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A name of more than 64 KiB is cut rather than refused.
    let value = &value[..value.len().min(u16::MAX as usize)];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Writes a block whose body is padded already.
fn block(write: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let len = (body.len() as u32 + 12).to_le_bytes();
    write.write_all(&kind.to_le_bytes())?;
    write.write_all(&len)?;
    write.write_all(body)?;
    write.write_all(&len)
}
