//! A window that slides over the octets of a file: packets are lent out of it without a copy.

use std::{io::Read, ops::Range};

use crate::Fault;

/// Large enough that a read(2) costs little, small enough to stay in L2.
const CHUNK: usize = 256 << 10;

pub struct Input<R> {
    read: R,
    window: Vec<u8>,
    /// What of the window is read and not yet taken.
    start: usize,
    end: usize,
    /// Of `window[start]`, in the file.
    offset: u64,
    record: u64,
}

impl<R: Read> Input<R> {
    pub fn new(read: R) -> Self {
        Self { read, window: vec![0; CHUNK], start: 0, end: 0, offset: 0, record: 0 }
    }

    /// Of the next octet to take.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whatever is found wrong from here on is wrong with what begins here.
    #[inline]
    pub fn begin_record(&mut self) {
        self.record = self.offset;
    }

    /// Where the last record began.
    pub fn record(&self) -> u64 {
        self.record
    }

    /// What is read and not yet taken; at least what was last asked of [`Self::need`].
    #[inline]
    pub fn peek(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    pub fn at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.fill(1)? == 0)
    }

    /// Makes the next `len` octets of `what` ready to be taken.
    #[inline]
    pub fn need(&mut self, len: usize, what: &'static str) -> Result<(), Fault> {
        let have = if self.end - self.start < len { self.fill(len)? } else { len };
        if have < len {
            Err(Fault::Truncated { what, need: len as u64, have: have as u64 })
        } else {
            Ok(())
        }
    }

    /// Takes `len` octets that are ready. The range is good for [`Self::window`] until more is
    /// needed.
    #[inline]
    pub fn take(&mut self, len: usize) -> Range<usize> {
        assert!(len <= self.end - self.start, "only what `need` made ready is taken");
        let start = self.start;
        self.start += len;
        self.offset += len as u64;
        start..self.start
    }

    /// Where in the window [`Self::peek`] begins.
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

    /// Reads until `len` octets are ready or the file ends; the number that are. The window grows
    /// with what really comes: a length in a damaged file allocates nothing.
    #[cold]
    fn fill(&mut self, len: usize) -> Result<usize, Fault> {
        // Only if there is no room behind, and then half of the window at most: in a damaged file
        // each step of some octets may want to see many, and must not move them all.
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

/// The order of octets in a file's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    Little,
    Big,
}

impl Endian {
    /// The number at octet `at`.
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
