//! A sliding window over the octets of a file. Packets are borrowed from it, not copied.

use std::{io::Read, ops::Range};

use crate::Fault;

/// Octets per read: large enough to amortize read(2), small enough for the L2 cache.
const CHUNK: usize = 256 << 10;

pub struct Input<R> {
    read: R,
    window: Vec<u8>,
    /// Start of the octets in the window that were read but not taken yet.
    start: usize,
    end: usize,
    /// Offset of `window[start]` in the file.
    offset: u64,
    record: u64,
}

impl<R: Read> Input<R> {
    pub fn new(read: R) -> Self {
        Self { read, window: vec![0; CHUNK], start: 0, end: 0, offset: 0, record: 0 }
    }

    /// Offset of the next octet to take.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Begins a record. Later errors are reported at its offset.
    #[inline]
    pub fn begin_record(&mut self) {
        self.record = self.offset;
    }

    /// Offset of the current record.
    pub fn record(&self) -> u64 {
        self.record
    }

    /// The octets that were read but not taken yet; at least as many as the last call of
    /// [`Self::need`] requested.
    #[inline]
    pub fn peek(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    pub fn at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.fill(1)? == 0)
    }

    /// Reads until `len` octets can be taken. `what` describes them in errors.
    #[inline]
    pub fn need(&mut self, len: usize, what: &'static str) -> Result<(), Fault> {
        let have = if self.end - self.start < len { self.fill(len)? } else { len };
        if have < len {
            Err(Fault::Truncated { what, need: len as u64, have: have as u64 })
        } else {
            Ok(())
        }
    }

    /// Takes `len` octets that were already read. The range is valid for [`Self::window`] until the
    /// next read.
    #[inline]
    pub fn take(&mut self, len: usize) -> Range<usize> {
        assert!(len <= self.end - self.start, "only what `need` made ready is taken");
        let start = self.start;
        self.start += len;
        self.offset += len as u64;
        start..self.start
    }

    /// Index in the window of the first octet of [`Self::peek`].
    #[inline]
    pub fn window_at(&self) -> usize {
        self.start
    }

    pub fn window_len(&self) -> usize {
        self.window.len()
    }

    pub fn window(&self, range: Range<usize>) -> &[u8] {
        &self.window[range]
    }

    /// Reads until `len` octets are present or the file ends. Returns the number present. The
    /// window grows only as octets arrive, so a wrong length in a damaged file allocates nothing.
    #[cold]
    fn fill(&mut self, len: usize) -> Result<usize, Fault> {
        // Move data only if there is no room after it, and at most half of the window: reading a
        // damaged file proceeds in steps of a few octets, each of which may need many, and must not
        // move them all each time.
        if self.start > 0 && (self.start == self.end || self.window.len() - self.start < len) {
            self.window.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < len {
            if self.end == self.window.len() || 2 * (self.end - self.start) > self.window.len() {
                self.window.resize(2 * self.window.len(), 0);
            }
            match self.read.read(&mut self.window[self.end..]) {
                Ok(0) => break,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Read(error)),
            }
        }
        Ok(self.end - self.start)
    }
}

/// Byte order of a file's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    Little,
    Big,
}

impl Endian {
    /// Reads the number at octet `at`.
    #[inline]
    pub fn u16(self, octets: &[u8], at: usize) -> u16 {
        let octets = std::array::from_fn(|i| octets[at + i]);
        if self == Self::Little { u16::from_le_bytes(octets) } else { u16::from_be_bytes(octets) }
    }

    #[inline]
    pub fn u32(self, octets: &[u8], at: usize) -> u32 {
        let octets = std::array::from_fn(|i| octets[at + i]);
        if self == Self::Little { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) }
    }

    pub fn u64(self, octets: &[u8], at: usize) -> u64 {
        let octets = std::array::from_fn(|i| octets[at + i]);
        if self == Self::Little { u64::from_le_bytes(octets) } else { u64::from_be_bytes(octets) }
    }
}
