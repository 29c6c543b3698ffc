//! The header with which TRex's streams with latency end, in the place of a signature.
//!
//! 16 octets of TRex's `flow_stat_payload_header`, little-endian: magic 0xab (8 bits), flow_seq (8),
//! hw_id (16), seq (32), time_stamp (64). It has no check of its own: a receiver takes it for one
//! only with an hw_id that a stream of the run has.

use std::sync::atomic::{AtomicU32, Ordering};

use squall_units::{TREX_HW_IDS, TREX_MAGIC, TrexMark};

/// TRex begins so close below 2^32 that a wrap comes early.
const FIRST_SEQUENCE: u32 = u32::MAX - 1;

/// A header that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub mark: TrexMark,
    /// Index of the frame in its stream, modulo 2^32.
    pub sequence: u32,
    /// The sender's clock: nanoseconds of Squall's, ticks of the CPU of TRex's.
    pub time: u64,
}

impl Header {
    /// The octets as two big-endian halves, as signatures have them.
    #[inline]
    pub fn halves(self) -> (u64, u64) {
        let sequence = self.sequence.wrapping_add(FIRST_SEQUENCE);
        let TrexMark { hw_id, flow_seq } = self.mark;
        let high = u64::from(TREX_MAGIC) | u64::from(flow_seq) << 8 | u64::from(hw_id) << 16;
        ((high | u64::from(sequence) << 32).swap_bytes(), self.time.swap_bytes())
    }

    /// Reads the end of `frame` (octets without FCS).
    #[inline]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let octets = u128::from_le_bytes(*frame.last_chunk()?);
        let hw_id = (octets >> 16) as u16;
        if octets as u8 != TREX_MAGIC || hw_id >= TREX_HW_IDS {
            return None;
        }
        Some(Self {
            mark: TrexMark { hw_id: hw_id as u8, flow_seq: (octets >> 8) as u8 },
            sequence: ((octets >> 32) as u32).wrapping_sub(FIRST_SEQUENCE),
            time: (octets >> 64) as u64,
        })
    }
}

/// Which stream of a run has an hw_id: written where streams are added, read by all receivers.
#[derive(Debug)]
pub struct HwIds([AtomicU32; TREX_HW_IDS as usize]);

/// No stream has that number.
const FREE: u32 = u32::MAX;

impl Default for HwIds {
    fn default() -> Self {
        Self([const { AtomicU32::new(FREE) }; TREX_HW_IDS as usize])
    }
}

impl HwIds {
    pub fn set(&self, hw_id: u8, stream: u16) {
        self.0[usize::from(hw_id)].store(stream.into(), Ordering::Relaxed);
    }

    #[inline]
    pub fn stream(&self, hw_id: u8) -> Option<u16> {
        u16::try_from(self.0[usize::from(hw_id)].load(Ordering::Relaxed)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(header: Header) -> Vec<u8> {
        let (high, low) = header.halves();
        [high.to_be_bytes(), low.to_be_bytes()].concat()
    }

    #[test]
    fn octets_are_those_of_the_structure() {
        // By hand from trex_stl_fs.h. The third frame: seq has wrapped to 0.
        let mark = TrexMark { hw_id: 5, flow_seq: 2 };
        let time = 0x0102_0304_0506_0708;
        assert_eq!(
            octets(Header { mark, sequence: 2, time }),
            [0xab, 2, 5, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]
        );
        assert_eq!(octets(Header { mark, sequence: 0, time })[4..8], [0xfe, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn a_header_that_was_written_is_read() {
        for k in 0..1000u64 {
            let r = crate::mix(3, k);
            let mark = TrexMark { hw_id: r as u8 & 127, flow_seq: (r >> 8) as u8 };
            let header = Header { mark, sequence: (r >> 32) as u32, time: crate::mix(4, k) };
            assert_eq!(Header::read(&octets(header)), Some(header));
        }
    }

    #[test]
    fn another_magic_or_hw_id_is_no_header() {
        let mut good =
            octets(Header { mark: TrexMark { hw_id: 127, flow_seq: 1 }, sequence: 0, time: 0 });
        assert!(Header::read(&good).is_some());
        good[2] = 128;
        assert_eq!(Header::read(&good), None);
        good[..3].copy_from_slice(&[0xaa, 1, 127]);
        assert_eq!(Header::read(&good), None);
        assert_eq!(Header::read(&good[1..]), None);
    }
}
