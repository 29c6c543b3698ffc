//! What can be wrong with a capture.

use std::{fmt, io, path::PathBuf};

/// Where a capture is faulty, and why. Every packet before that place was given.
#[derive(Debug)]
pub struct CaptureError {
    /// The file, where the reader knows it.
    pub path: Option<PathBuf>,
    /// Of the record, block or header that is faulty, from the beginning of the file.
    pub offset: u64,
    pub fault: Fault,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    #[error("cannot be read: {0}")]
    Read(io::Error),
    #[error("the file is empty; expected a pcap or pcapng header (24 or more octets)")]
    Empty,
    #[error("begins with {found:02x?}; expected the magic number of pcap or pcapng; `file` may tell what it is")]
    NotACapture { found: [u8; 4] },
    #[error("is compressed with {by}, which is not read yet; decompress it with `{tool}` first")]
    Compressed { by: &'static str, tool: &'static str },
    #[error("version {major}.{minor} of {format}; expected version {expected}")]
    Version { format: &'static str, major: u16, minor: u16, expected: &'static str },
    #[error(
        "a section with the byte-order magic {found:02x?}; expected 1a 2b 3c 4d or its reverse; the file is damaged here"
    )]
    ByteOrder { found: [u8; 4] },
    /// `need` octets from the offset on were expected, `have` are there.
    #[error(
        "the file ends inside {what}: {need} octets expected, {have} found; it was cut off, or is still being written"
    )]
    Truncated { what: &'static str, need: u64, have: u64 },
    #[error("{what} of {len} octets; expected at most {limit}; the file is damaged here")]
    TooLong { what: &'static str, len: u64, limit: u64 },
    #[error("{what} of {len} octets; expected {expected}; the file is damaged here")]
    Length { what: &'static str, len: u64, expected: String },
    #[error("a packet of interface {interface}; the section describes {known} so far; the file is damaged here")]
    NoSuchInterface { interface: u32, known: usize },
    #[error("more than {limit} interfaces; the file is damaged here")]
    TooManyInterfaces { limit: usize },
    #[error("packet {number} was asked for; the file has {packets}, numbered from 1")]
    NoSuchPacket { number: u64, packets: u64 },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: ", path.display())?,
            None => f.write_str("capture: ")?,
        }
        // An offset says nothing about what concerns the file as a whole.
        match self.fault {
            Fault::Open(_)
            | Fault::Empty
            | Fault::NotACapture { .. }
            | Fault::Compressed { .. }
            | Fault::NoSuchPacket { .. } => {}
            _ => write!(f, "at octet {}: ", self.offset)?,
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
