//! Transmit slots in one region of memory.

use std::ops::Range;

use crate::{TxBatch, TxMeta};

const CACHE_LINE: usize = 64;

/// Adjacent slots of equal size, each starting on a cache line, with their [`TxMeta`].
pub struct Slots {
    /// One block, because a batch is lent as one slice.
    memory: Vec<u8>,
    start: usize,
    stride: usize,
    meta: Vec<TxMeta>,
}

impl Slots {
    /// Allocates `count` slots for frames of up to `max_frame` octets.
    pub fn new(count: usize, max_frame: usize) -> Self {
        let stride = stride(max_frame);
        // Allocates one line more, because the heap block may start anywhere but the first slot
        // must start on a line.
        let memory = vec![0; count * stride + CACHE_LINE];
        // A Vec that never grows does not move its heap block.
        let start = match memory.as_ptr().align_offset(CACHE_LINE) {
            offset if offset < CACHE_LINE => offset,
            _ => 0,
        };
        Self { memory, start, stride, meta: vec![TxMeta::default(); count] }
    }

    /// Slots `first..first + n`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn batch(&mut self, first: usize, n: usize) -> TxBatch<'_> {
        let base = &mut self.memory[self.start + first * self.stride..][..n * self.stride];
        TxBatch { base, stride: self.stride, meta: &mut self.meta[first..first + n] }
    }

    /// The frame in slot `i`.
    #[inline]
    pub fn frame(&self, i: usize) -> (&[u8], &TxMeta) {
        let meta = &self.meta[i];
        (&self.memory[self.start + i * self.stride..][..meta.len as usize], meta)
    }

    /// Distance between slots, octets.
    pub fn stride(&self) -> usize {
        self.stride
    }

    pub fn len(&self) -> usize {
        self.meta.len()
    }

    pub fn is_empty(&self) -> bool {
        self.meta.is_empty()
    }
}

/// A queue's slots that are lent and not sent yet: they are adjacent, and sent in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lent {
    next: usize,
    left: usize,
}

impl Lent {
    /// Lends slots `first..first + n`; earlier ones are no longer lent.
    #[inline]
    pub fn lend(&mut self, first: usize, n: usize) {
        *self = Self { next: first, left: n };
    }

    /// The next `n` slots to send.
    ///
    /// # Panics
    /// If fewer are lent, which callers of [`crate::TxQueue::send`] must prevent.
    #[inline]
    pub fn range(&self, n: usize) -> Range<usize> {
        assert!(n <= self.left, "more frames sent than lent");
        self.next..self.next + n
    }

    /// Marks the next `n` slots as sent or dropped.
    #[inline]
    pub fn pass(&mut self, n: usize) {
        self.next += n;
        self.left -= n;
    }
}

/// Distance between slots for frames of up to `max_frame` octets: an odd number of cache lines.
/// With a multiple of 1 KiB, the same field of all slots falls into a few cache sets, and writing a
/// batch of 64 costs a quarter more (docs/adr/0007-slots.md).
pub fn stride(max_frame: usize) -> usize {
    (max_frame.div_ceil(CACHE_LINE).max(1) | 1) * CACHE_LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_is_an_odd_number_of_cache_lines_and_holds_the_frame() {
        for max_frame in 0..10_000 {
            let stride = stride(max_frame);
            assert!(stride >= max_frame && stride % 128 == 64, "{max_frame}: {stride}");
        }
    }

    #[test]
    fn lent_slots_go_in_order_and_lending_forgets_the_rest() {
        let mut lent = Lent::default();
        lent.lend(64, 5);
        assert_eq!(lent.range(5), 64..69);
        lent.pass(2);
        assert_eq!(lent.range(3), 66..69);
        lent.lend(0, 1);
        assert_eq!(lent.range(1), 0..1);
    }

    #[test]
    #[should_panic(expected = "more frames sent than lent")]
    fn more_than_was_lent_cannot_be_sent() {
        Lent::default().range(1);
    }

    #[test]
    fn slots_start_on_cache_lines_and_keep_their_content() {
        let mut slots = Slots::new(8, 1514);
        let mut batch = slots.batch(2, 3);
        assert_eq!(batch.base.as_ptr().align_offset(CACHE_LINE), 0);
        batch.frame(1, 4, crate::Nanos(7)).copy_from_slice(b"abcd");
        assert_eq!(slots.frame(3).0, b"abcd");
        assert_eq!(slots.frame(3).1.due.0, 7);
    }
}
