//! A packet that is being edited.

use squall_measure::flow::{Headers, Link};

use crate::{MAX_LEN, ip};

#[derive(Debug, Default)]
pub struct Frame {
    pub octets: Vec<u8>,
    /// Number of octets on the wire after the captured ones.
    pub missing: u32,
    pub link: Link,
    /// Headers of `octets`, after a call of `parse`.
    pub headers: Headers,
}

impl Frame {
    pub fn set(&mut self, octets: &[u8], wire_len: u32, link: Link) {
        self.octets.clear();
        self.octets.extend_from_slice(octets);
        self.missing = wire_len.saturating_sub(octets.len() as u32);
        self.link = link;
    }

    pub fn wire_len(&self) -> u32 {
        (self.octets.len() as u32).saturating_add(self.missing)
    }

    pub fn parse(&mut self) {
        self.headers = Headers::parse(&self.octets, self.link);
    }

    pub fn is_ip(&self) -> bool {
        self.headers.key.version != 0
    }

    /// Removes everything after `len` octets, also on the wire. Returns whether anything was
    /// removed.
    pub fn cut(&mut self, len: usize) -> bool {
        if self.wire_len() as usize <= len {
            return false;
        }
        self.octets.truncate(len);
        self.missing = (len - self.octets.len()) as u32;
        true
    }

    /// Appends zeros up to `len` octets, which replace missing octets.
    pub fn fill(&mut self, len: usize) {
        debug_assert!(len <= MAX_LEN);
        let old = self.octets.len();
        if len > old {
            self.octets.resize(len, 0);
            self.missing = self.missing.saturating_sub((len - old) as u32);
        }
    }

    /// The end of the IP packet according to its header.
    pub fn ip_end(&self) -> usize {
        ip::end(&self.octets, &self.headers)
    }
}
