//! A TAP interface: the kernel's end is in a network namespace, the other one is a descriptor here.

use std::{
    fs::File,
    io::{self, IoSlice, Read, Write},
};

use squall_port::FrameLink;

use crate::sys;

/// Octets of `struct virtio_net_hdr`, which is in front of each frame.
const HEADER: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum covers only the pseudo header.
const NEEDS_CHECKSUM: u8 = 1;
/// The longest frame that the kernel passes.
const LONGEST: usize = HEADER + (1 << 16);

/// The descriptor's end of a TAP interface.
pub struct Tap {
    file: File,
    buffer: Vec<u8>,
}

impl Tap {
    /// Moves the calling thread into a new network namespace, and makes interface `name` in it, which
    /// is down. The namespace lives as long as the thread and the processes that it starts.
    ///
    /// # Errors
    /// A namespace or an interface is not permitted, with what would help.
    pub fn in_new_namespace(name: &str) -> io::Result<Self> {
        sys::unshare(libc::CLONE_NEWNET).map_err(|error| {
            let hint = "cannot make a network namespace";
            let hint = format!("{hint}: {error}\n  try sudo, or squall lab exec");
            io::Error::new(error.kind(), hint)
        })?;
        Self::new(name).map_err(|error| {
            let hint = format!("cannot make a TAP interface (/dev/net/tun): {error}");
            io::Error::new(error.kind(), hint)
        })
    }

    fn new(name: &str) -> io::Result<Self> {
        Ok(Self { file: File::from(sys::open_tap(name)?), buffer: vec![0; LONGEST] })
    }
}

impl FrameLink for Tap {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(&mut self.buffer) {
            Ok(len) if len > HEADER => {
                let frame = &self.buffer[HEADER..len];
                let len = frame.len().min(into.len());
                into[..len].copy_from_slice(&frame[..len]);
                Ok(Some(len))
            }
            Ok(_) => Ok(None),
            // The kernel refuses reads while the interface is down.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn give(&mut self, frame: &[u8], partial: bool) -> io::Result<bool> {
        let mut header = [0; HEADER];
        if let Some((start, offset)) = checksum(frame).filter(|_| partial) {
            header[0] = NEEDS_CHECKSUM;
            header[6..8].copy_from_slice(&start.to_ne_bytes());
            header[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
        match (&self.file).write_vectored(&[IoSlice::new(&header), IoSlice::new(frame)]) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(false),
            // A frame that the kernel does not understand.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Where the header of TCP or UDP begins in an untagged frame, and where its checksum is in it.
fn checksum(frame: &[u8]) -> Option<(u16, u16)> {
    let ethertype = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
    let (protocol, start) = match ethertype {
        0x0800 => (*frame.get(23)?, 14 + 4 * u16::from(frame.get(14)? & 15)),
        0x86dd => (*frame.get(20)?, 54),
        _ => return None,
    };
    match protocol {
        6 => Some((start, 16)),
        17 => Some((start, 6)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_tcp_and_udp_are_found_after_options_too() {
        let mut frame = vec![0; 80];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x46;
        frame[23] = 6;
        assert_eq!(checksum(&frame), Some((38, 16)));
        frame[23] = 17;
        assert_eq!(checksum(&frame), Some((38, 6)));
        frame[23] = 89;
        assert_eq!(checksum(&frame), None);
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[20] = 6;
        assert_eq!(checksum(&frame), Some((54, 16)));
        assert_eq!(checksum(&frame[..13]), None);
    }
}
