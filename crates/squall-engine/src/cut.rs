//! Super-frames over a port that cuts none: cut here, as the kernel or a NIC would, and handed over one by one.

use std::io;

use squall_port::{BATCH, SendError, Slots, TxBatch, TxQueue};
use squall_units::{Cut, FCS_LEN};
use squall_wire::Segments;

/// Super-frames at hand: few, because they are long, and many are many times as many frames.
const SLOTS: usize = 16;

pub(crate) struct Cutter {
    inner: Box<dyn TxQueue>,
    slots: Slots,
    /// Slots `next..next + lent` are lent and not sent.
    next: usize,
    lent: usize,
    /// Of the next frame, so many segments have left.
    left: usize,
    /// What befell the next frame while those before it had still to be told as sent.
    failure: Option<SendError>,
    /// Segments in the midst of a super-frame that the port refused, and why.
    refused: (u64, &'static str),
}

impl Cutter {
    /// `max_frame`: the longest frame before it is cut, octets without FCS.
    pub fn new(inner: Box<dyn TxQueue>, max_frame: u32) -> Self {
        let slots = Slots::new(SLOTS, max_frame as usize);
        Self { inner, slots, next: 0, lent: 0, left: 0, failure: None, refused: (0, "") }
    }

    fn pass(&mut self) {
        self.left = 0;
        self.next += 1;
        self.lent -= 1;
    }

    /// Hands the next frame over, as far as there is room; whether all of it.
    fn forward(&mut self) -> Result<bool, SendError> {
        let (octets, meta) = self.slots.frame(self.next);
        let segments = segments(octets, meta.cut);
        let count = segments.map_or(1, |s| s.count());
        while self.left < count {
            let mut batch = self.inner.lend((count - self.left).min(BATCH));
            let n = batch.len();
            for i in 0..n {
                match segments {
                    Some(s) => {
                        let k = self.left + i;
                        s.write(k, batch.frame(i, s.len_of(k), meta.due));
                    }
                    None => batch.frame(i, octets.len(), meta.due).copy_from_slice(octets),
                }
            }
            let taken = match if n == 0 { Ok(0) } else { self.inner.send(n) } {
                Ok(taken) => taken,
                Err(SendError::Frame(reason)) if self.left > 0 => {
                    self.refused = (self.refused.0 + 1, reason);
                    self.left += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.left += taken;
            if taken < n || n == 0 {
                return Ok(self.left == count);
            }
        }
        Ok(true)
    }
}

impl TxQueue for Cutter {
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        (self.next, self.left) = (0, 0);
        self.lent = want.min(SLOTS);
        self.slots.batch(0, self.lent)
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        assert!(n <= self.lent, "more frames sent than lent");
        for taken in 0..n {
            match self.failure.take().map_or_else(|| self.forward(), Err) {
                Ok(true) => self.pass(),
                Ok(false) => return Ok(taken),
                Err(error) if taken > 0 => {
                    self.failure = Some(error);
                    return Ok(taken);
                }
                Err(error) => {
                    self.pass();
                    return Err(error);
                }
            }
        }
        Ok(n)
    }

    fn partly(&self) -> u32 {
        self.left as u32
    }

    fn finish(&mut self) -> io::Result<()> {
        self.inner.finish()?;
        match self.refused {
            (0, _) => Ok(()),
            (n, why) => Err(io::Error::other(format!("{n} frames were refused ({why}) that are counted as sent"))),
        }
    }
}

/// The frames that `octets` are cut into; `None`: themselves.
fn segments(octets: &[u8], cut: Cut) -> Option<Segments<'_>> {
    (!cut.is_whole()).then(|| Segments::new(octets, cut.size.into(), cut.transport.into(), cut.payload.into()))
}

/// So many of the next frame's segments, and their octets with FCS, have left though the frame as a whole has not.
pub(crate) fn partly_sent(queue: &dyn TxQueue, cut: Cut) -> (u64, u64) {
    let left = u64::from(queue.partly());
    let each = u64::from(cut.payload) + u64::from(cut.size) + u64::from(FCS_LEN);
    (left, left * each)
}
