//! Errors in captures.

use std::{fmt, io, path::PathBuf};

use squall_units::Cannot;

use crate::unpack::{Compression, Damaged};

/// Position and reason of an error in a capture. Every packet before it was returned.
#[derive(Debug)]
pub struct CaptureError {
    /// The file, if the reader knows its path.
    pub path: Option<PathBuf>,
    /// Offset of the invalid record, block or header in the file; for a compressed file, in the
    /// decompressed data.
    pub offset: u64,
    pub compression: Option<Compression>,
    /// Number of packets returned before the error.
    pub packets: u64,
    pub fault: Fault,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    #[error("{}", Cannot::of_io("read it", .0))]
    Open(io::Error),
    #[error("{}", Cannot::of_io("read it", .0))]
    Read(io::Error),
    #[error("the file is empty; expected a pcap or pcapng header (24 or more octets)")]
    Empty,
    #[error(
        "it begins with {}; expected the magic number of pcap or pcapng",
        magic(*found)
    )]
    NotACapture { found: [u8; 4] },
    #[error("the {by} data {}: {reason}", if *.cut { "was cut off, or is still being written" } else { "is damaged" })]
    Compressed { by: Compression, reason: String, cut: bool },
    #[error("version {major}.{minor} of {format}; expected version {expected}")]
    Version { format: &'static str, major: u16, minor: u16, expected: &'static str },
    #[error(
        "a section with the byte-order magic {}; expected 0x1a2b3c4d or its reverse; the file is \
         damaged here",
        magic(*found)
    )]
    ByteOrder { found: [u8; 4] },
    /// At the offset, `need` octets were expected but only `have` are left.
    #[error(
        "the file ends inside {what}: {need} octets expected, {have} found; it was cut off, or is \
         still being written"
    )]
    Truncated { what: &'static str, need: u64, have: u64 },
    #[error("{what} of {len} octets; expected at most {limit}; the file is damaged here")]
    TooLong { what: &'static str, len: u64, limit: u64 },
    #[error("{what} of {len} octets; expected {expected}; the file is damaged here")]
    Length { what: &'static str, len: u64, expected: String },
    #[error(
        "a packet of interface {interface}, but the file describes only {known}; the file is \
         damaged here, or in an interface description"
    )]
    NoSuchInterface { interface: u32, known: usize },
    #[error("more than {limit} interfaces; the file is damaged here")]
    TooManyInterfaces { limit: usize },
    #[error("zeros instead of a packet header; the file has a hole")]
    Hole,
    #[error("another capture begins here, appended to this one")]
    Appended,
    #[error("no packet {number}: the file has {packets}, numbered from 1")]
    NoSuchPacket { number: u64, packets: u64 },
}

/// Formats a magic number, such as `0x726f6f74 ("root")`.
fn magic(octets: [u8; 4]) -> String {
    let number = format!("0x{:08x}", u32::from_be_bytes(octets));
    match std::str::from_utf8(&octets) {
        Ok(text) if octets.iter().all(|octet| matches!(octet, b' '..=b'~')) => {
            format!("{number} ({text:?})")
        }
        _ => number,
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            let read = || format!("read {}", path.display());
            match &self.fault {
                Fault::Open(error) => return Cannot::read(path, error).fmt(f),
                Fault::Empty => return Cannot::new(read(), &self.fault).fmt(f),
                Fault::NotACapture { .. } => {
                    let identify = format!("file {}", path.display());
                    return Cannot::new(read(), &self.fault).with_hint(identify).fmt(f);
                }
                _ => {}
            }
        }
        match &self.path {
            Some(path) => write!(f, "{}: ", path.display())?,
            None => f.write_str("capture: ")?,
        }
        // The offset has no meaning for errors that concern the file as a whole.
        match self.fault {
            Fault::Open(_)
            | Fault::Empty
            | Fault::NotACapture { .. }
            | Fault::NoSuchPacket { .. } => {}
            _ => {
                write!(f, "at octet {}", self.offset)?;
                if self.compression.is_some() {
                    f.write_str(" of the decompressed data")?;
                }
                match self.packets {
                    0 => f.write_str(": ")?,
                    n => write!(f, ", after packet {n}: ")?,
                }
            }
        }
        self.fault.fmt(f)
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Open(error) | Fault::Read(error) => Some(error),
            _ => None,
        }
    }
}

impl CaptureError {
    /// An error for a file that is not a capture.
    pub(crate) fn new(fault: Fault) -> Self {
        Self { path: None, offset: 0, compression: None, packets: 0, fault }
    }
}

impl Fault {
    pub(crate) fn read(error: io::Error) -> Self {
        Self::Read(error).of_the_data()
    }

    /// Converts a failed read of compressed data to the decoder's error.
    pub(crate) fn of_the_data(self) -> Self {
        let Self::Read(error) = &self else { return self };
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Damaged>()) {
            Some(Damaged { by, reason, cut }) => {
                Self::Compressed { by: *by, reason: reason.clone(), cut: *cut }
            }
            None => self,
        }
    }

    /// Whether this is a read error, after which nothing can be read.
    pub(crate) fn is_of_the_disk(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Read(_) | Self::Compressed { .. })
    }
}
